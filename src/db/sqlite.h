/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to SQLite as the library uses it: write-ahead log, no checkpoint by itself and none on close, a table
 * of statements that are prepared once, values bound by kind, results as SL_E… codes with their class.
 *
 * Several connections that write and checkpoint at once can damage a database with SQLite 3.40, so every writer and
 * every checkpoint must hold the lock of db/sqlite_lock.h. The functions here do not take it.
 *
 * Thread safety: one thread at a time per connection. Ownership: the table of statements and env are borrowed and must
 * outlive the connection; text and blobs that are bound must live until the statement has run.
 */
#ifndef SL_DB_SQLITE_H
#define SL_DB_SQLITE_H

#include <sqlite3.h>
#include <sys/types.h>

#include "base/env.h"

enum sl__sqlite_kind { SL__SQLITE_RW = 1, SL__SQLITE_READER = 2 };

struct sl__sqlite {
	const struct sl_env *env;
	sqlite3 *db;             /* NULL: closed */
	const char *const *sql;  /* the statements by number */
	sqlite3_stmt **prepared; /* the same numbers; NULL: not yet */
	size_t n_sql;
	bool borrowed;          /* the caller's connection: only the statements are ours */
	bool broken;            /* an I/O error or the like: close it and open another */
	int synchronous;        /* as set last: 1 NORMAL, 2 FULL */
	int wal_pages;          /* in the log after the last commit through here */
	int checkpointed_pages; /* of them, when sl__sqlite_checkpoint_grown last looked */
};

/* Write the real, absolute name of path to out. Two names of one file have one lock, so everything beside the database
 * goes by this name. create: make it and its folders when they are missing (0600, 0700); else SL_EUNAVAIL. */
SL_MUST_CHECK int sl__sqlite_locate(const struct sl_env *env, const char *path, bool create, char out[4096],
				    struct sl_err *err);
/* Make an empty file unless it is there, without ever opening it: closing a descriptor of a database releases all locks
 * that connections of this process have on it, and then another program takes itself for the last user and removes the
 * log that they still use. */
SL_MUST_CHECK int sl__sqlite_make(const char *path, mode_t mode, struct sl_err *err);
/* Open the file at path, which must exist. busy_ms: how long a statement waits for foreign locks. */
SL_MUST_CHECK int sl__sqlite_open(struct sl__sqlite *c, const struct sl_env *env, const char *path,
				  enum sl__sqlite_kind kind, int64_t busy_ms, struct sl_err *err);
/* Use a connection of the caller's. */
void sl__sqlite_borrow(struct sl__sqlite *c, const struct sl_env *env, sqlite3 *db);
/* Give the connection its table of statements. */
SL_MUST_CHECK int sl__sqlite_statements(struct sl__sqlite *c, const char *const *sql, size_t n, struct sl_err *err);
/* Finalize the statements; close what is not borrowed. NULL-safe, idempotent. */
void sl__sqlite_close(struct sl__sqlite *c);

/* ---- running ---- */

struct sl__sqlite_value {
	char kind; /* 'i', 't', 'b', 'n' */
	int64_t i;
	const void *p;
	size_t len;
};
#define SQ_INT(x) ((struct sl__sqlite_value){.kind = 'i', .i = (int64_t)(x)})
/* NULL binds NULL. */
#define SQ_TEXT(x) ((struct sl__sqlite_value){.kind = 't', .p = (x)})
#define SQ_TEXT_N(x, n) ((struct sl__sqlite_value){.kind = 'x', .p = (x), .len = (n)})
#define SQ_BLOB(x, n) ((struct sl__sqlite_value){.kind = 'b', .p = (x), .len = (n)})
#define SQ_NULL ((struct sl__sqlite_value){.kind = 'n'})
/* 0 binds NULL: times and ids that are not there. */
#define SQ_INT_OR_NULL(x) ((struct sl__sqlite_value){.kind = (x) != 0 ? 'i' : 'n', .i = (int64_t)(x)})

/* Any SQL without values, not kept. */
SL_MUST_CHECK int sl__sqlite_exec(struct sl__sqlite *c, const char *sql, struct sl_err *err);
/* Statement number `id`, prepared, with its values bound from the first on. */
SL_MUST_CHECK int sl__sqlite_bind(struct sl__sqlite *c, size_t id, const struct sl__sqlite_value *values, size_t n,
				  sqlite3_stmt **out, struct sl_err *err);
/* Prepare SQL that is made at run time, with its values; finalize it with sqlite3_finalize. */
SL_MUST_CHECK int sl__sqlite_prepare(struct sl__sqlite *c, const char *sql, const struct sl__sqlite_value *values,
				     size_t n, sqlite3_stmt **out, struct sl_err *err);
/* 1: a row; 0: done, and the statement is reset; negative: an error, and it is reset. */
SL_MUST_CHECK int sl__sqlite_step(struct sl__sqlite *c, sqlite3_stmt *stmt, struct sl_err *err);
/* The number that sql finds in a table of ours; 0 when there is no such table, or no row. */
SL_MUST_CHECK int sl__sqlite_version(struct sl__sqlite *c, const char *table, const char *sql, int *out,
				     struct sl_err *err);
/* Bind and run to the end. *changed (may be NULL): rows. */
SL_MUST_CHECK int sl__sqlite_run(struct sl__sqlite *c, size_t id, const struct sl__sqlite_value *values, size_t n,
				 int *changed, struct sl_err *err);
/* Bind and step once: 1 and a row in *out, which the caller must sqlite3_reset; 0: none; negative: an error. */
SL_MUST_CHECK int sl__sqlite_row(struct sl__sqlite *c, size_t id, const struct sl__sqlite_value *values, size_t n,
				 sqlite3_stmt **out, struct sl_err *err);

/* 1 NORMAL, 2 FULL; outside of a transaction. Costs nothing when it is so already. */
SL_MUST_CHECK int sl__sqlite_synchronous(struct sl__sqlite *c, int level, struct sl_err *err);
/* The caller holds the lock and no transaction. Copies what can be copied without waiting; with restart
 * it waits up to 100 ms for readers, to begin the log anew. A failure is only logged: the log stays. */
void sl__sqlite_checkpoint(struct sl__sqlite *c, bool restart);
/* The same when the log has grown by this many pages since the last time; with restart when it is four times as
 * long. */
void sl__sqlite_checkpoint_grown(struct sl__sqlite *c, int pages);
/* End a transaction that may be open, whatever happens. */
void sl__sqlite_rollback(struct sl__sqlite *c);

/* Fill err from a result code and the connection's text. Returns the SL_E… code; marks the connection when it broke. */
int sl__sqlite_fail(struct sl__sqlite *c, int rc, const char *what, struct sl_err *err);

static inline const char *sl__sqlite_text(sqlite3_stmt *s, int column)
{
	return (const char *)sqlite3_column_text(s, column);
}
static inline int64_t sl__sqlite_i64(sqlite3_stmt *s, int column)
{
	return sqlite3_column_int64(s, column);
}
static inline uint64_t sl__sqlite_u64(sqlite3_stmt *s, int column)
{
	return (uint64_t)sqlite3_column_int64(s, column);
}

#endif
