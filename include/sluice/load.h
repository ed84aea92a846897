/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading files: read CSV records or JSON lines from files, pipes and standard input, and write them to a database, an
 * HTTP endpoint, a file or a program. `sluice load` is a command line around these calls.
 *
 *     files, pipes ─▶ records ─▶ coordinator (and a log, with wal_dir) ─▶ sink
 *                        └ bad records ─▶ dead letters ◀─ rows that the target refuses
 *
 * Guarantees
 *  - Every record that was read is written, in the dead letters, in the log, or counted (dropped or left).
 *  - A load into a table records which bytes of its input are written, in the same transaction as the rows. Run it
 *    again after an interruption, and it writes the rest: no row is lost or loaded twice. An input that has changed
 *    since is detected and not mixed with the old one.
 *  - With wal_dir what was read is durable before reading continues, for every kind of target. The next run writes it
 *    first; rows that were written just before a crash may be written twice where the table has no key.
 *  - Rows with the same key (on_conflict) are written in the order of the input: the last one wins.
 *  - A target that is unavailable is retried for as long as it takes, or for give_up_after_ms of the delivery.
 * Not guaranteed: an order of rows without a key; that rows are written once where the target records nothing.
 *
 * Thread safety: open, run and close on one thread. sl_load_stop and sl_load_get_stats on any thread between open and
 * close; sl_load_stop also in a signal handler. A handle does not work in a forked child. Ownership: strings and lists
 * in options are copied; the handle closes no descriptor that it was given.
 */
#ifndef SLUICE_LOAD_H
#define SLUICE_LOAD_H

#include <sluice/coordinator.h>
#include <sluice/sink.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_load sl_load;

struct sl_load_opts {
	size_t struct_size; /* SL_LOAD_OPTS_INIT fills it */
	const struct sl_env *env;

	/* input */
	const char *const *paths; /* "-" is standard input, at most once. At least one path */
	size_t n_paths;
	enum sl_switch header;    /* of CSV: the first record names the columns; default on */
	int64_t max_record_bytes; /* longer ones are dead letters; default as in <sluice/records.h> */

	/* target */
	const char *to; /* required: a URL, see sl_sink_open */
	/* Options of the sink; env is ignored. format is that of the input; columns only for CSV without a header.
	 * Required for databases (table). */
	const struct sl_sink_opts *sink;
	enum sl_switch create; /* on: create the table unless it exists, with types guessed from the first rows */
	/* Options of the delivery: sizes, watermarks, overflow, retries, rate. The load sets env, name, max_bytes, the
	 * order of keys, dead letters, the log and the callbacks for them. NULL: defaults. */
	const struct sl_coordinator_opts *delivery;

	/* what survives the run */
	const char *dead_letters; /* required: a folder, created when it is missing */
	/* on: while another process writes to that folder, use "<dead_letters>-2", and so on; default off: SL_ELOCKED */
	enum sl_switch dead_letters_numbered;
	const char *wal_dir;   /* folder of the logs; NULL: no log */
	enum sl_switch resume; /* off: the table keeps no record of the load; default on, for databases */
	enum sl_switch again; /* on: load the input from its beginning although it is recorded as loaded; default off */
	const char *load_id;  /* name of an input without a path, to resume it by; for one input */

	int stop_fd; /* readable: as sl_load_stop. Polled, never read. 0: none */
};
#define SL_LOAD_OPTS_INIT .struct_size = sizeof(struct sl_load_opts)

/* Check and copy the options. Nothing is opened yet. SL_EINVAL names the option. */
SL_API SL_MUST_CHECK int sl_load_open(sl_load **out, const struct sl_load_opts *opts, struct sl_err *err);

/*
 * Load all inputs, one after the other. Call it once.
 *
 * 0: every record is written or a dead letter (sl_load_stats has the counts), or dropped by the overflow strategy.
 * SL_ECANCELLED: stopped; everything that was read is written, or stays for the next run. SL_EUNAVAIL, SL_ECONFIG: the
 * target has taken no row for give_up_after_ms of the delivery, or refused the first ones. SL_ELOCKED: another run of
 * the same load, or another user of the dead letters. SL_EDATA: the input has changed since an earlier run, or its
 * header does not fit. Other errors are those of inputs, the sink, the log and the dead letters.
 */
SL_API SL_MUST_CHECK int sl_load_run(sl_load *load, struct sl_err *err);
/* Let sl_load_run end: nothing more is read, and what was read is written. While the target is unavailable it stays in
 * the log or unrecorded, for the next run. May be called before run, from any thread and from a signal handler. */
SL_API void sl_load_stop(sl_load *load);
/* Release everything. SL_EPENDING: a write to the target has not returned; the handle stays allocated, and the process
 * is expected to end. NULL is allowed. */
SL_API SL_MUST_CHECK int sl_load_close(sl_load *load, struct sl_err *err);

struct sl_load_stats {
	size_t struct_size;
	uint64_t read;           /* records, without those that an earlier run had loaded */
	uint64_t written;        /* rows, with those of the log of an earlier run */
	uint64_t dead;           /* records and rows in the dead letters, by this run */
	uint64_t dead_all;       /* and by earlier runs of the same load; known after run */
	uint64_t dead_elsewhere; /* of dead_all: in other folders of dead_letters_numbered */
	uint64_t dropped;        /* by the overflow strategy */
	uint64_t left;    /* read and not written: in the log, or for the next run to read again; known after run */
	uint64_t skipped; /* records that an earlier run had loaded */
	uint64_t queued, in_flight, retrying; /* rows now */
	uint64_t bytes_read, bytes_total;     /* of the inputs; bytes_total 0: not known */
	bool resumable;                       /* true: the same load continues where this one stopped */
	struct sl_err trouble;                /* why the target is waited for; code 0: it is not */
};
/* A snapshot of the counts. */
SL_API void sl_load_get_stats(sl_load *load, struct sl_load_stats *out);
/* The URL of the target without secrets; NULL before the target and the dead letters are open. For the thread of run.
 * Lives as long as the handle. */
SL_API const char *sl_load_target(const sl_load *load);

/* The folder of the dead letters; with dead_letters_numbered the one that was free. As sl_load_target otherwise. */
SL_API const char *sl_load_dead_letters(const sl_load *load);

#ifdef __cplusplus
}
#endif
#endif
