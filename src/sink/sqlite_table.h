/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of a SQLite sink: its columns as the database has them, and the statements that write to it.
 *
 * Thread safety: one thread at a time. Ownership: a shape owns its names; statements belong to their connection.
 */
#ifndef SL_SINK_SQLITE_TABLE_H
#define SL_SINK_SQLITE_TABLE_H

#include "base/buf.h"
#include "db/sqlite.h"
#include "sink/sink.h"

/* As in section 3.1 of SQLite's datatype3.html. */
enum sl__affinity {
	SL__AFFINITY_BLOB = 0, /* or no type: nothing is converted */
	SL__AFFINITY_TEXT = 1,
	SL__AFFINITY_NUMERIC = 2,
	SL__AFFINITY_INTEGER = 3,
	SL__AFFINITY_REAL = 4
};

/* An SQL function that only fails, with SQLITE_CONSTRAINT_FUNCTION: where immutable_rows would change a row. */
#define SL__SQLITE_OTHER_ROW "sluice_other_row"

/* The columns that are written, in the order of the fields of a record. */
struct sl__shape {
	const struct sl_env *env;
	const char **names;
	uint8_t *affinity; /* enum sl__affinity */
	size_t n;
	int64_t version; /* of the database's schema; -1: nothing is known yet */
};

/* Read the columns: those of opts->columns, or all that can be written. SL_ENOENT: no such table; SL_ECONFIG: no such
 * column. The old content goes. */
SL_MUST_CHECK int sl__shape_load(struct sl__shape *shape, struct sl__sqlite *db, const struct sl_sink_opts *opts,
				 int64_t version, struct sl_err *err);
void sl__shape_fini(struct sl__shape *shape); /* a zeroed one is allowed */

/* Which rows a statement writes. */
struct sl__insert {
	const uint8_t *present; /* bits of the columns that they have; NULL: all of them */
	size_t rows;            /* at a time; at least 1 */
};

/* INSERT, or INSERT … ON CONFLICT DO UPDATE, in fresh memory; NULL without memory. */
char *sl__table_insert_sql(const struct sl__shape *shape, const struct sl_sink_opts *opts, struct sl__insert what);
/* Is the column one of on_conflict? */
bool sl__is_key_column(const struct sl_sink_opts *opts, const char *name);
/* A name in quotes. */
void sl__put_sql_name(struct sl__buf *buf, const char *name);

/* The prepared statements of a connection, by what they write. */
#define SL__INSERTS 16
struct sl__inserts {
	struct {
		sqlite3_stmt *stmt;
		uint8_t *present; /* (n + 7) / 8 bytes; NULL: all */
		size_t rows;
	} at[SL__INSERTS];
	size_t next; /* the place that is taken next */
	int64_t version;
};

/* Finalize all of them. */
void sl__inserts_clear(struct sl__inserts *in, const struct sl_env *env);

#endif
