/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of sluice load: its input, what runs one file, and the command around them.
 *
 *   files ─▶ records ─▶ coordinator (and with --wal a log) ─▶ sink
 *               └ bad records ─▶ dead letters ◀─ rows that the target refuses
 *
 *   cmd_load.c     the command                        loadinput.c   an input that is open
 *   loadresume.c   what the table has of an input     loadrows.c    one input through a coordinator
 *
 * Thread safety: none; the main thread calls.
 */
#ifndef SLUICE_CLI_LOAD_H
#define SLUICE_CLI_LOAD_H

#include "loadplace.h"
#include "loadresume.h"
#include "loadsink.h"
#include "loadwatch.h"
#include "opts.h"

#include <stdbool.h>

/* One file, or standard input. */
struct loadinput {
	struct cli *cli;
	const char *path; /* as given; "-" */
	const char *name; /* for people: "standard input" */
	int fd;
	uint64_t read; /* bytes so far */
	bool is_file;  /* a regular file: its last line may lack its line end */
	bool cut;      /* the last byte read was not a line end */
	bool sampling; /* loadinput_infer is reading */
	sl_records *records;
};

/* Open it and begin to find records. opts without env. 0, or an exit code after a line on stderr. */
int loadinput_open(struct loadinput *in, struct cli *cli, const char *path, struct sl_records_opts opts);
/* sl_records_infer; the sample of a pipe that was cut is the complete records before the cut. */
int loadinput_infer(struct loadinput *in, size_t max_records, const struct sl_column **out, size_t *n,
		    struct sl_err *err);
/* After a failure of a call on its records: 75 when a signal was why, else err is told. */
int loadinput_failed(const struct loadinput *in, struct sl_err *err);
void loadinput_close(struct loadinput *in); /* a zeroed one is allowed */

struct load {
	struct cli *cli;
	const struct parsed *args;
	const char *const *inputs;
	int n_inputs;
	struct loadsink to;
	char target[LOADSINK_TEXT_BYTES]; /* of letters, and of the names of logs */
	sl_sink sink;
	sl_dlq *dead;
	struct loadwatch watch;

	/* the input that is read now */
	struct loadinput in;
	struct sl_records_opts records; /* that it was opened with */
	char source[256];               /* of letters: "load:bars.csv" */
	struct loadplace place;
	struct loadresume resume;
	sl_coordinator *c;
	int gave_up;    /* the exit code, when the target was not waited for any longer */
	void *key_lane; /* of the sink, for the keys of rows; NULL: rows have none */
	int one_key;    /* a key could not be told from others: from there on all rows are of one */
	int left;       /* the target was away, or another run has taken over: not everything was written */

	/* all in all */
	uint64_t read, bad, skipped;
	int64_t since_ms; /* an earlier run began this load then (Unix time); 0: this is the first */
	struct sl_coordinator_report total;
};

/* Ask the table what it has of input i, and compare that with the input. 0, or an exit code after a line on stderr. */
int load_resume(struct load *l, int i);
/* The input is not the one that was loaded in part: says so. 65. */
int load_changed(struct load *l, enum loadresume_what found);
/* After the rows: record that the input is finished, unless rc says otherwise. rc, or an exit code. */
int load_resumed(struct load *l, int rc);

/* Read what is left of the input and write it, and what the log has of it. 0, or an exit code after a line on stderr;
 * 75 after a signal. */
int load_rows(struct load *l);

#endif
