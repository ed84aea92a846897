/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The export: rows that carry a gapless sequence number, out of a file, a pipe or a database, become Parquet partitions
 * with a catalog, an audit chain and a checkpoint. It is the pipeline of <sluice/pipeline.h> with a source, rows that
 * become columns, <sluice/parquet.h>, <sluice/catalog.h> and <sluice/audit.h> put together.
 *
 * Guarantees
 *  - Exactly once in effect: files, catalog rows and audit events are the same bytes for any number of workers and any
 *    history of crashes, for one version of this library and of zstd. A file is whole and durable under its name before
 *    the catalog knows it; catalog row, audit event and checkpoint are one transaction.
 *  - Order: partitions are committed in the order of their sequences, each after the one before, without a gap.
 *  - Every row is checked: its sequence must be the one before plus one, or what is missing is recorded as a hole
 *    (enum sl_export_gaps). A gap that is not (SL_EGAP), a repetition or a step back (SL_EDUPLICATE) stops the run and
 *    says the line and the column; what came before is committed.
 *  - A row that does not fit its columns stops the run (SL_EDATA, with line and column), or goes to the dead letters:
 *    it is durable there before its partition is committed, takes up its sequence number, and is counted in the event.
 *  - A committed file that differs from what would be written is never replaced: SL_ECONFLICT.
 *  - Memory is bounded: of a file that is mapped nothing is copied but strings with escapes; of a pipe or a database
 *    the partitions at hand are kept as text, perf.queue_bytes of them.
 * Not guaranteed: that a dead letter is there only once (a crash between the letter and the commit repeats it). A file
 * that is truncated while it is mapped ends the process with SIGBUS, as any mapped file does; one that may
 * be is better followed, or piped in.
 *
 * Boundaries are floor(sequence / partition_size). The first sequence of the first run is the dataset's start. Input at
 * or below the checkpoint is skipped. A file or a pipe is final at its end: the unfinished last partition is
 * closed; from a database, or with follow, it waits until it is full or `final` closes it. After such a close the next
 * partition runs from there to the boundary.
 *
 * Thread safety: sl_export_stop and sl_export_get_progress from any thread; everything else one thread at a time per
 * handle. A handle does not work in a forked child. Ownership: strings and columns in options are copied.
 */
#ifndef SLUICE_EXPORT_H
#define SLUICE_EXPORT_H

#include <sluice/adapter/env.h>
#include <sluice/parquet.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_export sl_export;

enum sl_export_format {
	SL_EXPORT_BY_NAME = 0,   /* .csv; .jsonl, .ndjson and .json; a database needs none */
	SL_EXPORT_CSV = 1,       /* RFC 4180; an unquoted empty field is NULL */
	SL_EXPORT_JSON_LINES = 2 /* one object per line */
};

/* Set kind, unit, precision, scale and length from text as sl_parquet_type_name gives it: "int64",
 * "timestamp(micros)", "timestamp(millis)", "decimal(18,2)", "fixed(16)" … SL_EINVAL names the possible ones; *column
 * is untouched then. */
SL_API SL_MUST_CHECK int sl_export_column_type(const char *text, struct sl_parquet_column *column, struct sl_err *err);

enum sl_export_bad_rows {
	SL_EXPORT_BAD_ROWS_STOP = 0,
	SL_EXPORT_BAD_ROWS_DIVERT = 1 /* to the dead letters, at least once */
};

/*
 * A number that the source does not have: of a database table one that no open transaction can still produce, which is
 * waited for as long as it takes (PostgreSQL: every transaction that holds a lock for writing on the table or its
 * partitions, prepared ones included, has ended; SQLite has one writer at a time). Recorded holes are checked again for
 * 24 h by later runs: a row that has appeared in one is SL_EGAP after everything else was exported, and
 * sl_export_backfill exports it.
 */
enum sl_export_gaps {
	/* record for a table of a database; stop for files, pipes and queries, for job_events, and where open
	 * transactions are invisible or prove nothing: on a standby, a target of a subscription, a sequence with CACHE
	 * above 1 */
	SL_EXPORT_GAPS_DEFAULT = 0,
	SL_EXPORT_GAPS_STOP = 1,  /* SL_EGAP; what came before is committed */
	SL_EXPORT_GAPS_RECORD = 2 /* a hole, recorded in the audit event of its partition */
};

/*
 * Points that a run passes, reported to on_step for tests and tracing; partition_start is the first sequence of the
 * partition. On a worker: built, temp_written, temp_synced, renamed, folder_synced. On the thread that commits, in
 * order: before_commit, committed. On the outbox's thread, with the event's number instead: before_outbox,
 * outbox_written.
 */
typedef void sl_export_step_fn(const char *step, uint64_t partition_start, void *ctx);

struct sl_export_progress {
	size_t struct_size;
	uint64_t checkpoint;                        /* last committed sequence; 0: none yet */
	uint64_t partitions, rows, bad_rows, bytes; /* committed by this run */
	uint64_t holes;                             /* recorded by it */
	uint64_t input_bytes; /* of the input, up to the last row that is committed; 0: none yet, or a database */
	uint64_t input_total; /* bytes of the input; 0: not known (a pipe, a database), or it is followed */
};
/* After each commit, on the thread that commits. May call sl_export_stop. */
typedef void sl_export_progress_fn(const struct sl_export_progress *progress, void *ctx);

/*
 * Rows from the program itself: a callback hands over typed values, and nothing is written as text and parsed again.
 * The files are byte for byte those of the same rows as CSV with the same columns.
 */
struct sl_export_value {
	bool is_null;    /* true: NULL; the other fields do not matter */
	int64_t integer; /* bool (0 or 1), int32, int64, date (days), timestamp (the column's unit), decimal (unscaled) */
	double real;     /* float, double */
	const void *bytes; /* string (UTF-8 without NUL), binary, fixed; copied by sl_export_rows_add */
	size_t len;
};
typedef struct sl_export_rows sl_export_rows;

#define SL_EXPORT_ROWS_FULL 1 /* sl_export_rows_add: the row was taken, and the callback should return */
#define SL_EXPORT_ROWS_END 1  /* the callback: there are no more rows */

/*
 * Add the next rows with sl_export_rows_add, in order of their sequence. `next` is the sequence that is expected; 0: the
 * source may begin anywhere. Rows below it are skipped. Returns 0 (also without a row: then it is called again),
 * SL_EXPORT_ROWS_END, or a negative SL_E… that ends the run. It may block until there are rows, if it returns soon after
 * sl_export_rows_wait has returned 0. Called by one thread of sl_export_run at a time, without locks.
 */
typedef int sl_export_rows_fn(uint64_t next, sl_export_rows *rows, struct sl_err *err, void *ctx);

/*
 * Only from the callback. values has one value for each of opts.columns. 0 or SL_EXPORT_ROWS_FULL: the row was copied.
 * SL_EDATA: a value does not fit its column (the message names it), or the sequence is negative. SL_ENOMEM. After a
 * failure the callback returns it.
 */
SL_API SL_MUST_CHECK int sl_export_rows_add(sl_export_rows *rows, const struct sl_export_value *values,
					    struct sl_err *err);
/* Only from the callback: wait up to this long for new rows. True: the time has passed; false: the export is stopping, so
 * return. */
SL_API bool sl_export_rows_wait(sl_export_rows *rows, int64_t ms);

/* The specification's perf: names. Zero is the default. */
struct sl_export_perf {
	int32_t workers;          /* default 4; at most 256 */
	int32_t queue_size;       /* partitions that wait for a worker; default 8 */
	int32_t retry_attempts;   /* of build and of store, each; the first try counts; default 3 */
	int64_t retry_backoff_ms; /* default 1000 */
	int64_t queue_bytes;      /* text of pipes and databases that waits; default 256 MiB; at least one partition */
	uint64_t reserved[4];
};

struct sl_export_opts {
	size_t struct_size; /* SL_EXPORT_OPTS_INIT fills it */
	const struct sl_env *env;

	/* the source */
	/* A path; "-": the descriptor fd; postgres://…, sqlite:PATH; required. A pipe whose last line has no line end
	 * is SL_EDATA: its writer was cut off. */
	const char *from;
	int fd;                    /* of "-": default 0, standard input; not closed */
	const char *table, *query; /* of a database: one of them */
	enum sl_export_format format;
	enum sl_switch header;    /* CSV: the first record names the columns; default on */
	char delimiter;           /* CSV; default ',' */
	int64_t max_record_bytes; /* default 16 MiB */
	/* Records from which columns are guessed; fewer when a pipe pauses for 500 ms or has taken 5 s, or a file that
	 * is followed has no more, but at least one. Default 10,000. */
	int64_t sample_records;

	/* the dataset */
	const char *to;         /* the folder; required */
	const char *dataset;    /* [A-Za-z0-9][A-Za-z0-9._-]*, at most 100 bytes; required */
	const char *catalog;    /* sqlite:PATH or postgres://…; default sqlite:TO/_catalog.db */
	const char *sequence;   /* the column that counts; default: of the dataset, else the first column */
	int64_t partition_size; /* default: of the dataset, else 250,000 */
	/* The schema, in the order of the file. NULL: of the dataset, else of the source, else guessed. Members and
	 * header names are found by name; one without a column is an error, a column without a value is NULL. */
	const struct sl_parquet_column *columns;
	size_t n_columns;
	int32_t zstd_level; /* default 3 */

	/* the run */
	struct sl_export_perf perf;
	enum sl_switch follow;    /* continue as the source grows, until stopped; a file may be rotated; default off */
	int64_t poll_interval_ms; /* of follow; default 500 */
	enum sl_switch final;     /* close the unfinished last partition; default as said above */
	enum sl_export_gaps gaps;
	enum sl_export_bad_rows bad_rows;
	const char *dead_letters; /* folder; default TO/_dead/DATASET */

	/* audit */
	const char *audit_endpoint;   /* an HTTP URL that gets the events besides the files; NULL: none */
	const char *audit_token_file; /* bearer token for it */
	const char *audit_ca_file;    /* PEM */

	sl_export_step_fn *on_step;
	void *on_step_ctx;
	sl_export_progress_fn *on_progress;
	void *on_progress_ctx;

	/* Rows from a callback instead of a file, a pipe or a database. `from` is then only a name for messages (default
	 * "rows"); columns are required; a backfill and SL_EXPORT_BAD_ROWS_DIVERT are not possible. */
	sl_export_rows_fn *rows;
	void *rows_ctx;
};
#define SL_EXPORT_OPTS_INIT .struct_size = sizeof(struct sl_export_opts)

/* Checks the options; opens nothing yet. SL_EINVAL names the field. */
SL_API SL_MUST_CHECK int sl_export_new(sl_export **out, const struct sl_export_opts *opts, struct sl_err *err);
SL_API void sl_export_free(sl_export *e); /* NULL is allowed; not while a call is running */

struct sl_export_result {
	size_t struct_size;
	uint64_t partitions, rows, bad_rows, bytes; /* committed by this call */
	uint64_t holes;                             /* recorded by it */
	uint64_t skipped;                           /* rows at or below the checkpoint; 0 when they were not counted */
	uint64_t start, checkpoint;                 /* of the dataset; both 0: it has no partition yet */
	uint64_t waiting; /* rows that were read and left for a later run: of an unfinished partition, or by a stop */
	char head[65];    /* event_hash of the last event, or empty */
	bool stopped;     /* true: sl_export_stop ended it */
	bool sequential;  /* true: the input was cut row by row (a pipe, line ends inside of quotes, bad rows) */
};

/*
 * Export until the source ends (with follow: until stopped). 0 also when it was stopped: everything that result
 * counts is durable and a later run continues after it. SL_EGAP, SL_EDUPLICATE, SL_EDATA (the input; the message has
 * the place); SL_ECONFLICT (a committed file, the schema, the partition size or the sequence column differ); SL_ELOCKED
 * (another process exports to this dataset); what the source, the storage or the catalog returned when retries were
 * exhausted. result (may be NULL) is written in any case.
 */
SL_API SL_MUST_CHECK int sl_export_run(sl_export *e, struct sl_export_result *result, struct sl_err *err);

enum sl_export_stop_mode {
	SL_EXPORT_DRAIN = 0, /* take in nothing more, finish and commit what was taken in */
	SL_EXPORT_NOW = 1    /* give up what is not committed; a later run does it again */
};
/* From any thread, also from callbacks; not from a signal handler. Returns at once; run ends soon after. */
SL_API void sl_export_stop(sl_export *e, enum sl_export_stop_mode mode);

/* A snapshot of the counts, also while a run is in progress. */
SL_API void sl_export_get_progress(sl_export *e, struct sl_export_progress *out);

struct sl_export_range {
	uint64_t first, last;
};
/*
 * Build these sequences again from the source. A committed partition that a range touches must come out with the hash
 * that the catalog has (else SL_ECONFLICT and nothing is changed); its file is put in place when it is missing or
 * differs. Rows that have appeared in its recorded holes become files next to it with events of type "late". Sequences
 * before the dataset's start become partitions with events of type "backfill" at the end of the chain; a range after
 * the checkpoint is SL_EINVAL: run does that.
 */
SL_API SL_MUST_CHECK int sl_export_backfill(sl_export *e, const struct sl_export_range *ranges, size_t n,
					    struct sl_export_result *result, struct sl_err *err);

enum sl_export_gap_kind {
	SL_EXPORT_GAP_UNCOMMITTED = 1, /* between the first and the last committed sequence, in no partition */
	SL_EXPORT_GAP_MISSING = 2,     /* committed, but the file is not there */
	SL_EXPORT_GAP_SIZE = 3         /* committed, but the file has another size */
};
struct sl_export_gap {
	enum sl_export_gap_kind kind;
	uint64_t first, last;
	const char *path; /* relative to TO; "" for uncommitted ones */
};
/* Return 0 to continue; another value ends the walk and becomes its result. */
typedef int sl_export_gap_fn(const struct sl_export_gap *gap, void *ctx);
/* What the catalog and the files lack, in order of sequence. Checks sizes, not contents: that is audit verify.
 * SL_ENOENT: there is no such dataset. */
SL_API SL_MUST_CHECK int sl_export_gaps(sl_export *e, sl_export_gap_fn *fn, void *ctx, struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
