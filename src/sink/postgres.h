/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the PostgreSQL sink. A batch takes three steps:
 *
 *   rows    (postgres_rows.c)   every record becomes a row of encoded values; what cannot be a value of its column is
 *                               refused here, before anything is sent
 *   append  (postgres_copy.c)   runs of rows with the same columns go through COPY, binary or text
 *   upsert  (postgres_upsert.c) runs of rows with the same columns and no key twice go through INSERT … SELECT FROM
 *                               unnest(arrays) ON CONFLICT DO UPDATE, all runs in one pipeline
 *
 * In a load, the last statement of the transaction records what it has written (postgres_load.c).
 *
 * Values are encoded in PostgreSQL's binary form by the type in the catalog (postgres_value.c). A batch with a
 * value that only the server can read for certain ("yesterday", a time with a named zone), and a table with a column of
 * another type, is sent as text instead: the server decides then. Either way one batch is one transaction.
 *
 * Sessions have TimeZone UTC: a time without a zone is UTC.
 */
#ifndef SL_SINK_POSTGRES_H
#define SL_SINK_POSTGRES_H

#include <locale.h>

#include "base/thread.h"
#include "db/postgres.h"
#include "format/row.h"
#include "sink/ranges.h"
#include "sink/refusal.h"
#include "sink/sink.h"

/* ---- the table ---- */

/* How a column's values are encoded; SL__ENC_OTHER only as text. */
enum sl__enc {
	SL__ENC_OTHER = 0,
	SL__ENC_TEXT,
	SL__ENC_BOOL,
	SL__ENC_INT2,
	SL__ENC_INT4,
	SL__ENC_INT8,
	SL__ENC_FLOAT4,
	SL__ENC_FLOAT8,
	SL__ENC_NUMERIC,
	SL__ENC_DATE,
	SL__ENC_TIMESTAMP,
	SL__ENC_TIMESTAMPTZ,
	SL__ENC_UUID,
	SL__ENC_BYTEA,
	SL__ENC_JSON,
	SL__ENC_JSONB
};

/* Begins the error of an upsert with immutable_rows that would change a row. */
#define SL__PG_OTHER_ROW "another row has the key "

struct sl__pg_column {
	char *name;
	char *type;     /* as in a cast, without a length */
	uint32_t oid;   /* of the type; of a domain, of what it is made from */
	uint32_t array; /* the type of its arrays */
	enum sl__enc enc;
	bool has_default; /* a value that is not there is not NULL */
	bool is_key;      /* of on_conflict */
	bool plain;       /* equal values have equal encodings, but for blanks at the end of text */
};

/* The columns that are written, in the order of a record's fields. */
struct sl__pg_table {
	const struct sl_env *env;
	struct sl__pg_column *columns;
	const char **names;
	size_t n;
	bool binary;   /* every column has an encoding */
	int64_t shape; /* a hash of all names and types */
};

/* "schema"."table", in fresh memory; NULL without memory. */
char *sl__pg_quoted_table(const struct sl_env *env, const char *table);
void sl__pg_put_name(struct sl__buf *buf, const char *name);
void sl__pg_table_fini(struct sl__pg_table *t); /* a zeroed one is allowed */

/* ---- values ---- */

/* What a field is to a column, for sure. */
enum sl__fit {
	SL__FIT_OK = 0,     /* encoded */
	SL__FIT_UNSURE = 1, /* the server decides: sent as text */
	SL__FIT_NO = 2      /* no value of this column */
};

/* Append length and value, in binary; nothing unless SL__FIT_OK. NULL and absent fields are NULL. */
enum sl__fit sl__pg_put_binary(struct sl__buf *out, enum sl__enc enc, const struct sl__field *f, bool from_csv,
			       locale_t c_locale);
/* The same as text, for the server to read. */
enum sl__fit sl__pg_put_text(struct sl__buf *out, enum sl__enc enc, const struct sl__field *f, bool from_csv);

/* The length in front of an encoded value; UINT32_MAX: NULL. */
static inline uint32_t sl__pg_length(const char *value)
{
	const uint8_t *b = (const uint8_t *)value;
	return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* ---- rows ---- */

struct sl__pg_run {
	size_t first, n;     /* rows */
	const uint8_t *have; /* n_columns bytes: 1 the column is there */
};

/* Rows of items that are not refused; row r is buf[at[r] … at[r + 1]): n values of length and bytes. */
struct sl__pg_rows {
	struct sl__buf buf;
	struct sl__buf have; /* the columns of the runs */
	size_t *at;          /* n + 1 */
	uint32_t *item;      /* of each row, in the batch */
	size_t n, cap;
	struct sl__pg_run *runs;
	size_t n_runs, cap_runs;
	size_t done;    /* items of the batch that were processed */
	bool text;      /* values are text */
	bool unsure;    /* a value needs the server to read it: the batch has to be sent as text */
	uint64_t *seen; /* hashes of the keys in the present run, an open table of cap_seen places */
	size_t cap_seen;
	struct sl__field *fields;
	uint8_t *skip; /* of each item: 1 it is recorded as written; cap_skip of them */
	size_t cap_skip;
	bool skips; /* skip says something about this batch */
};

/* ---- the sink ---- */

struct sl__pg_sink;

struct sl__pg_lane {
	struct sl__pg_sink *sink;
	struct sl__pg_lane *next;
	PGconn *pg;  /* NULL: not connected. Changed under the sink's lock: cancel shuts its socket down. */
	bool pooled; /* every transaction may be in another session: each sets what it needs, for itself */
	struct sl__pg_table table;
	bool table_known;
	bool changed; /* the table has other columns than those that were encoded for */
	bool broken;  /* the connection cannot be used any more */
	struct sl__row_reader *reader;
	struct sl__pg_rows rows;
	struct sl__buf out;      /* what is sent; SQL */
	struct sl__buf prepared; /* the columns (have) of the prepared upsert; empty: none */
	bool prepared_text;
	char load_id[SL__LOAD_ID_BYTES]; /* of the run, as of this batch; empty: no load */
	struct sl__ranges written, dead; /* of this transaction; dead letters that it records */
	struct sl__buf record;           /* the statement that does it; empty: none */
};

struct sl__pg_sink {
	struct sl_env env;
	struct sl_sink_opts opts;
	char *conninfo;
	char *table;  /* quoted */
	char *bare;   /* without its schema and quotes: as messages have it */
	char *target; /* for people */
	locale_t c_locale;
	sl__mutex mu;
	bool cancelled;
	struct sl__pg_lane *lanes;
	struct sl__load load; /* under load_mu; `dead` under mu, and `done` is not changed while lanes write */
	char *load_schema;    /* quoted: where the tables of the records are */
	sl__mutex load_mu;    /* taken before mu */
};

/* Columns, types and keys from the catalog. SL_ECONFIG, fatal: there is no such table or column. */
SL_MUST_CHECK int sl__pg_table_load(struct sl__pg_lane *lane, struct sl_err *err);

/* A statement that fails (22012) when the table's columns are not those that lane knows. */
void sl__pg_put_shape_check(struct sl__buf *sql, const struct sl__pg_lane *lane);

/* ---- lanes (postgres.c) ---- */
SL_MUST_CHECK int sl__pg_attach(void *ctx, void **out, struct sl_err *err);
void sl__pg_detach(void *ctx, void *lane_ctx);
void sl__pg_disconnect(struct sl__pg_lane *lane);
bool sl__pg_is_cancelled(struct sl__pg_sink *s);
/* Connected, and the table is known. */
SL_MUST_CHECK int sl__pg_make_ready(struct sl__pg_lane *lane, struct sl_err *err);

/* ---- loads (postgres_load.c) ---- */
int sl__pg_load_begin(void *ctx, const char *input, bool again, struct sl_sink_loaded *out, struct sl_err *err);
int sl__pg_load_dead(void *ctx, const struct sl_input_range *range);
int sl__pg_load_end(void *ctx, bool finished, struct sl_err *err);
/* Before a batch: which run it is of, and which of its items are written. */
SL_MUST_CHECK int sl__pg_load_enter(struct sl__pg_lane *lane, const struct sl_sink_batch *batch, struct sl_err *err);
/* Make the statement that records the rows of this batch, and dead letters. */
SL_MUST_CHECK int sl__pg_load_record(struct sl__pg_lane *lane, const struct sl_sink_batch *batch, struct sl_err *err);
/* After a batch. lost: it is unknown whether it was committed. Returns whether the batch failed only because of the
 * id of the run, which another lane has changed. */
bool sl__pg_load_leave(struct sl__pg_lane *lane, int rc, bool lost);
#define SL__PG_LOAD_FENCE "sluice_load_ranges_load" /* the constraint that fails when another run has taken over */

/* Encode the batch, as text when rows.text is set. Some rows may be refused. With rows.unsure, a value can only be read
 * by the server and the rows must not be used. */
SL_MUST_CHECK int sl__pg_rows_fill(struct sl__pg_lane *lane, const struct sl_sink_batch *batch,
				   struct sl__refusals *refused, struct sl_err *err);
void sl__pg_rows_fini(struct sl__pg_rows *rows, const struct sl_env *env);
/* The key of sl_sink_ops. */
int sl__pg_key(void *ctx, void *lane_ctx, const void *data, size_t len, uint64_t *hash, struct sl_err *err);

/* What decides how text is read, for one transaction. */
#define SL__PG_SET_LOCAL                                                                                               \
	"SELECT set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO, YMD', true),"                       \
	" set_config('standard_conforming_strings', 'on', true)"

/* Send all rows as one transaction. *culprit: the row that the server named, or SIZE_MAX. */
SL_MUST_CHECK int sl__pg_append(struct sl__pg_lane *lane, size_t *culprit, struct sl_err *err);
SL_MUST_CHECK int sl__pg_upsert(struct sl__pg_lane *lane, struct sl_err *err);
/* Would the server take rows? It plans a statement without running it: that needs the rights and the unique key. */
SL_MUST_CHECK int sl__pg_try(struct sl__pg_lane *lane, struct sl_err *err);

/* ---- talking without blocking for ever (postgres_wire.c) ---- */

/* Wait for the next result, up to the statement timeout and some seconds. NULL with *rc 0: no more results; with *rc:
 * the connection is of no use any more. */
PGresult *sl__pg_next(struct sl__pg_lane *lane, int *rc, struct sl_err *err);
/* One simple statement. */
SL_MUST_CHECK int sl__pg_simple(struct sl__pg_lane *lane, const char *sql, const char *what, struct sl_err *err);
/* Get everything out that was queued. */
SL_MUST_CHECK int sl__pg_push(struct sl__pg_lane *lane, struct sl_err *err);

/* ---- errors (postgres_wire.c) ---- */

/* What an SQLSTATE means for a batch: always one of the four classes. */
enum sl_err_class sl__pg_sink_class(const char *sqlstate);
/* Fill err from a result, with the class for sinks. */
int sl__pg_sink_error(struct sl_err *err, const PGconn *pg, const PGresult *res, const char *what);

#endif
