/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sources of databases share: the SELECT around a table or a query, the columns, the text that waits to be
 * read, and which row may be given.
 *
 * Rows are asked for in chunks, so that no snapshot of the database grows old. What must stay true:
 *  1. A chunk begins at the last row of the one before, which is skipped once: a second row with the same number is
 *     seen and given, and the export refuses it.
 *  2. Where numbers are drawn before they are committed (PostgreSQL), a row may be visible before the one that
 *     precedes it. A row after a missing number, and the first row of a new dataset, is therefore not given before
 *     every transaction has ended that could still produce a smaller number, and the rows were read again ("to
 *     settle"). One wait settles all numbers up to the greatest that was visible when it began. SQLite has one writer
 *     at a time: what it does not show is not there.
 *  3. A database that becomes unavailable is waited for, once the source is open: the place is known to the row, so nothing is
 *     lost or given twice. What is wrong for good is reported at once.
 *
 * Thread safety: as the source. Ownership: sl__export_db_fini frees what is in it.
 */
#ifndef SL_PIPELINE_EXPORT_SOURCE_DB_H
#define SL_PIPELINE_EXPORT_SOURCE_DB_H

#include <stdatomic.h>

#include "base/buf.h"
#include "pipeline/export/source.h"

/* After so long it is logged who is waited for. */
#define SL__EXPORT_DB_LOG_MS 10000

struct sl__export_db {
	const struct sl_env *env;
	const struct sl_export_opts *opts;
	char *describe;
	char *inner; /* the table or query as what stands between FROM and WHERE */
	struct sl_parquet_column *columns;
	size_t n;
	size_t sequence; /* index of that column */

	uint64_t first, last; /* of begin */
	uint64_t seen;        /* the last row that was given; any: there is one since begin */
	bool any, pass_seen;  /* pass_seen: the next row with that number is the one that was given */
	bool done;            /* no more rows since begin */
	bool waits;           /* numbers are drawn before they are committed */
	bool any_settled;     /* of numbers up to `settled`, one that is missing stays so */
	uint64_t settled;

	struct sl__buf text; /* CSV; from `at` on it is to be read */
	size_t at;

	uint32_t failures; /* in a row */
	struct sl__prng prng;
	int wake_fd; /* readable after wake */
	atomic_bool woken;
};

/* table or query, and their SQL. SL_EINVAL: neither or both. */
SL_MUST_CHECK int sl__export_db_init(struct sl__export_db *db, const struct sl_export_opts *opts,
				     const struct sl_env *env, struct sl_err *err);
void sl__export_db_fini(struct sl__export_db *db);

/* Room for n columns; names are copied with sl__export_db_name. */
SL_MUST_CHECK int sl__export_db_columns(struct sl__export_db *db, size_t n, struct sl_err *err);
SL_MUST_CHECK int sl__export_db_name(struct sl__export_db *db, size_t i, const char *name, struct sl_err *err);
/* All names are there: find the sequence. SL_EINVAL when it is not among them. */
SL_MUST_CHECK int sl__export_db_find_sequence(struct sl__export_db *db, struct sl_err *err);

/* "name" with its quotes doubled. */
void sl__export_db_put_name(struct sl__buf *buf, const char *name);
/* The name of the sequence as the SELECT knows it: s."name". */
void sl__export_db_put_sequence(struct sl__buf *buf, const struct sl__export_db *db);

/* SELECT of the smallest number that lies in one of the next ranges of *ranges, which then is after them; false: there
 * are no more. */
bool sl__export_db_put_present(struct sl__buf *sql, const struct sl__export_db *db, const char **ranges);

/* Is the table that of the events of jobs, whose offsets have no gaps? */
bool sl__export_db_is_job_events(const struct sl_export_opts *opts);

void sl__export_db_begin(struct sl__export_db *db, uint64_t first, uint64_t last);
/* The least number that the next chunk asks for; from there on pass_seen is in force. */
uint64_t sl__export_db_next_chunk(struct sl__export_db *db);

enum sl__export_db_verdict { SL__EXPORT_DB_GIVE, SL__EXPORT_DB_PASS, SL__EXPORT_DB_SETTLE };
/* What to do with the row of this number, which is the next one. SETTLE: wait until a smaller number cannot appear any
 * more, set `settled`, and read again from sl__export_db_next_chunk. */
enum sl__export_db_verdict sl__export_db_admit(struct sl__export_db *db, uint64_t sequence);

/* After a failure that may pass: log it and wait. 0: try again; SL_ECANCELLED: woken; else the failure's own code. */
SL_MUST_CHECK int sl__export_db_retry(struct sl__export_db *db, struct sl_err *err);
/* From any thread, for good: the source gives no more. */
void sl__export_db_wake(struct sl__export_db *db);
int sl__export_db_cancelled(struct sl_err *err);

/* Move up to n bytes of the text that waits to buf. */
size_t sl__export_db_take(struct sl__export_db *db, void *buf, size_t n);

#endif
