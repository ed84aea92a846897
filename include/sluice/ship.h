/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shipping lines: read files, pipes and standard input line by line, keep every line in a durable log, and deliver it
 * to a Sluice server or a sink. `sluice ship` is a command line around these calls.
 *
 *     files, pipes ─▶ lines ─▶ log (durable: now they count as read) ─▶ sender ─▶ server or sink
 *
 * Guarantees
 *  - A line of a file is in the log exactly once, however the process ends. The log also records the position in each
 *    file, so the next run continues after the last line that is durable.
 *  - Files may be rotated by rename or by copy and truncation, truncated, deleted, or not exist yet, also while nothing
 *    runs: with `follow` every line is read that is still on disk under its name or a rotated one. Compressed files are
 *    not read.
 *  - Lines are delivered in order and at least once, each with the key (stream, incarnation, sequence). A Sluice
 *    server, a table with that unique key and a file of rows have each line once.
 *  - A line that the target refuses is in the dead letters of the log, <wal_dir>/<stream>.dead. A target that is
 *    unavailable is retried; its lines stay in the log.
 *  - While the log is full, or its disk is, nothing is read: the writer of a pipe is held up, and files wait.
 *  - Nothing wakes the process while nothing happens.
 * Not guaranteed: a pipe has no position. What was read from it and is not durable yet when the process is killed (at
 * most one read) is lost with the pipe.
 *
 * A line ends with a newline, which is not part of it; all other bytes are kept as they are. A line longer than 15.75
 * MiB is cut into pieces. All pieces but the last are marked as partial, as is the last line of a file that ends without
 * a newline and is done with.
 *
 * Thread safety: open, run and close on one thread. sl_ship_stop, sl_ship_get_stats, sl_ship_target and sl_ship_stream
 * on any thread between open and close; sl_ship_stop also in a signal handler. A handle does not work in a forked child.
 * Ownership: strings and lists in options are copied; the handle closes no descriptor that it was given.
 */
#ifndef SLUICE_SHIP_H
#define SLUICE_SHIP_H

#include <sluice/adapter/env.h>
#include <sluice/sink.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_ship sl_ship;

enum sl_ship_input {
	SL_SHIP_LINES = 0, /* lines of text or of any bytes */
	SL_SHIP_JSON = 1   /* a line that is a JSON object is an event; other lines are text */
};

/* Called by sl_ship_run on its thread, with no lock held, each time it wakes up. It may call sl_ship_stop and
 * sl_ship_get_stats. */
typedef void sl_ship_progress_fn(sl_ship *ship, void *ctx);

struct sl_ship_opts {
	size_t struct_size; /* SL_SHIP_OPTS_INIT fills it */
	const struct sl_env *env;

	/* input */
	const char *const *paths; /* files and pipes, by path; "-" is standard input. At least one */
	size_t n_paths;
	enum sl_switch follow; /* on: continue with what is added, until sl_ship_stop. Default off: read to the end */
	enum sl_ship_input input;

	/* log: <wal_dir>/<stream>.wal */
	const char *wal_dir;       /* required; created when it is missing */
	const char *stream;        /* default: the host name and a hash of the target */
	const char *key_file;      /* of an encrypted log */
	int64_t max_pending_bytes; /* of the log that may wait for the target; default 1 GiB */
	enum sl_switch retarget;   /* on: send what waits in the log for another target to this one; default off */

	/* target */
	const char *to; /* required: http://HOST:PORT of a Sluice server, sluice:URL for a server below a path, or the
			   URL of a sink (see sl_sink_open), which gets rows */
	const char *const *columns; /* of rows, from stream, incarnation, sequence, ts, file, partial, line, line_b64
				       and event; default all */
	size_t n_columns;
	const char *table;              /* of a database; default shipped_lines */
	enum sl_switch create;          /* on: create the table unless it exists; default off */
	const char *const *on_conflict; /* unique key of the table; default stream, incarnation, sequence */
	size_t n_on_conflict;
	enum sl_switch upsert;  /* off: append rows without a key; default on, for databases */
	enum sl_switch as_rows; /* on: POST rows in the format `body` also to a URL without a path; default off */
	enum sl_http_body body;
	const char *token_file; /* of HTTP: its first line is the bearer token */
	const char *token;      /* the bearer token itself; not used with token_file or a login in the URL */
	const char *ca_file;    /* of HTTP: PEM, instead of the system's */

	/* the end */
	int64_t flush_timeout_ms; /* after the input: give up when nothing was delivered for this long; default 30,000;
				      SL_NONE: at once */
	int64_t give_up_after_ms; /* end when the target has taken no line for this long; default never */
	int stop_fd;              /* readable: as sl_ship_stop. Polled, never read. 0: none */
	int reopen_fd;            /* readable: it is drained, and all files are opened anew. 0: none */
	sl_ship_progress_fn *on_progress;
	void *ctx; /* of on_progress */
};
#define SL_SHIP_OPTS_INIT .struct_size = sizeof(struct sl_ship_opts)

/*
 * Open the target, the log and the inputs, and start to deliver what waits in the log. Lines are read by sl_ship_run.
 * An unavailable target is logged and retried later. SL_EINVAL names the option; SL_ECONFIG: the target cannot work as
 * given (wrong token, no such table), or the log holds lines for another target; SL_ELOCKED: another process has the
 * stream or the target's file; SL_ENOENT, SL_EACCES: of a file.
 */
SL_API SL_MUST_CHECK int sl_ship_open(sl_ship **out, const struct sl_ship_opts *opts, struct sl_err *err);

/*
 * Read and deliver until the input has ended, or sl_ship_stop; then deliver what is left. Call it once.
 *
 * 0: every line that was read is delivered, or refused (sl_ship_stats.refused). SL_EPENDING: lines are left in the log
 * for the next run, because of flush_timeout_ms or sl_ship_stop, which leaves 5 s. SL_ECANCELLED: stopped before the end
 * of the input, without follow; everything that was read is delivered. SL_EUNAVAIL, SL_ECONFIG: the target has taken no
 * line for give_up_after_ms, or refused the first ones because of a wrong token or address. SL_ECONFLICT: the target
 * has other lines under these sequences. Other errors are those of the log and of files.
 */
SL_API SL_MUST_CHECK int sl_ship_run(sl_ship *ship, struct sl_err *err);
/* Let sl_ship_run end. Of files, what is not read yet waits there; of pipes, everything that was read is kept. May be
 * called before run, from any thread and from a signal handler. */
SL_API void sl_ship_stop(sl_ship *ship);
/* Save the positions and release everything. ship is gone also when it fails. Fails as the log does. NULL is allowed. */
SL_API SL_MUST_CHECK int sl_ship_close(sl_ship *ship, struct sl_err *err);

struct sl_ship_stats {
	size_t struct_size;
	uint64_t read;         /* lines made durable since open */
	uint64_t delivered;    /* lines that the target took since open, those of earlier runs included */
	uint64_t pending;      /* lines in the log that are not delivered */
	uint64_t refused;      /* lines moved to the dead letters since open */
	uint64_t cut;          /* pieces of lines that were too long; exact after run */
	struct sl_err trouble; /* why the last batch was not delivered; code 0: it was */
};
/* A snapshot of the counts. Fails as sl_wal_get_stats does. */
SL_API SL_MUST_CHECK int sl_ship_get_stats(sl_ship *ship, struct sl_ship_stats *out, struct sl_err *err);
/* The URL of the target without secrets. Lives as long as the handle. */
SL_API const char *sl_ship_target(const sl_ship *ship);
/* The name of the stream and its log. Lives as long as the handle. */
SL_API const char *sl_ship_stream(const sl_ship *ship);

#ifdef __cplusplus
}
#endif
#endif
