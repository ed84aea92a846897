/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside sl_load.
 *
 *   files ─▶ records ─▶ coordinator (and with wal_dir a log) ─▶ sink
 *               └ bad records ─▶ dead letters ◀─ rows that the target refuses
 *
 *   load.c     the handle, its inputs and their target     rows.c    one input through a coordinator
 *   resume.c   what the table has of an input              place.c   how far a load with a log has come
 *   target.c   a target as text, for dead letters
 *
 * Invariants
 *  1. Target and dead letters are known to work before the first row is read.
 *  2. Logs are removed only when all inputs are done and nothing in them is pending.
 *  3. `mu` guards c, total and what sl_load_get_stats reads besides the atomic counts; all else belongs to the thread
 *     of sl_load_run. Other threads and signal handlers touch `stop` and `wake` only.
 */
#ifndef SL_LOAD_LOAD_H
#define SL_LOAD_LOAD_H

#include "base/thread.h"
#include "load/place.h"
#include "load/resume.h"
#include "load/target.h"

#include <sluice/dead_letter.h>
#include <sluice/load.h>
#include <sluice/records.h>
#include <stdatomic.h>

/* One file, or standard input. */
struct load_input {
	sl_load *load;
	const char *path; /* as given; "-" */
	const char *name; /* for messages: "standard input" */
	int fd;
	uint64_t read; /* bytes so far */
	bool is_file;  /* a regular file: its last line may lack its line end */
	bool cut;      /* the last byte read was not a line end */
	bool sampling; /* the types of columns are being guessed */
	sl_records *records;
};

struct sl_load {
	struct sl_env env; /* first: sl__flow_new */

	/* options */
	const char **paths;
	size_t n_paths;
	bool header, create, wants_resume, again, numbered;
	char dead_path[PATH_MAX]; /* of dead letters, with a number when dead_dir is another process's */
	int64_t max_record_bytes;
	struct load_target to; /* its strings are in `strings` */
	struct sl_coordinator_opts delivery;
	const char *dead_dir, *wal_dir, *load_id;
	const char **headers, **argv; /* of the sink */
	char *strings[12];            /* copies, to be freed */
	size_t n_strings;
	int stop_fd;

	_Atomic bool stop;
	int wake;        /* an eventfd: readable after sl_load_stop */
	bool ran, stuck; /* stuck: a write has not returned */

	sl_sink sink;
	sl_dlq *dead;
	char target[LOAD_TARGET_BYTES]; /* of dead letters, and of the names of logs */

	/* the input that is read now */
	struct load_input in;
	char source[256]; /* of dead letters: "load:bars.csv" */
	struct load_place place;
	struct load_resume resume;
	struct sl_err gave_up; /* why the target is not waited for any longer; code 0: it is */
	void *key_lane;        /* of the sink, for the keys of rows; NULL: rows have none */
	bool one_key;          /* a key could not be compared with others: from there on all rows have one */
	bool left; /* the target was unavailable, or another run has taken over: not everything was written */

	/* in total */
	_Atomic uint64_t read, bad, skipped, bytes_read;
	_Atomic uint64_t bytes_total, dead_all, dead_elsewhere;
	_Atomic bool resumable;
	int64_t since_ms; /* an earlier run began this load then (Unix time); 0: this is the first */
	sl__mutex mu;
	sl_coordinator *c;                  /* guarded by mu */
	struct sl_coordinator_report total; /* guarded by mu: of the inputs before the current one */
};

/* load.c */
bool sl__load_is_stopped(sl_load *l);
int sl__load_input_open(struct load_input *in, sl_load *l, const char *path, struct sl_err *err);
void sl__load_input_close(struct load_input *in); /* a zeroed one is allowed */
/* Put the subject before the message unless it is named there. Returns rc. */
int sl__load_name_error(struct sl_err *err, int rc, const char *subject);
/* After a failure of a call on its records: SL_ECANCELLED when a stop was why, else rc with the input's name. */
int sl__load_input_failed(const struct load_input *in, int rc, struct sl_err *err);

/* resume.c: read what the table has of input i, and compare that with the input. */
int sl__load_resume(sl_load *l, size_t i, struct sl_err *err);
/* The input is not the one that was loaded in part: SL_EDATA. */
int sl__load_changed(const sl_load *l, enum load_resume_what found, struct sl_err *err);
/* After the rows: record that the input is finished, unless rc says otherwise. rc, or an error. */
int sl__load_resumed(sl_load *l, int rc, struct sl_err *err);

/* rows.c: read what is left of the input and write it, and what the log has of it. SL_ECANCELLED after a stop. */
int sl__load_rows(sl_load *l, struct sl_err *err);

#endif
