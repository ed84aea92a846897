/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a SQLite file, stepped and written as CSV. A statement runs until CHUNK_BYTES of text are there and is reset
 * then, so that writers and checkpoints of the database never wait for the export; the next one continues after its last
 * row (source_db.h). An index on the sequence makes that cheap.
 *
 * In SQLite each value has a type, in Parquet each column. A column gets the type that it is declared with. Without a
 * declaration (an expression, a view), or with one that leaves it open (DATETIME), the first SAMPLE_ROWS rows decide. A
 * value of another type than its column is a bad row, which the export reports.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/compare.h"
#include "db/sqlite.h"
#include "format/guess.h"
#include "pipeline/export/source_db.h"

enum { CHUNK_BYTES = 4 << 20, SAMPLE_ROWS = 1000, BUSY_MS = 10000 };

struct sqlite_source {
	struct sl__export_db db;
	struct sl__sqlite conn;
	const char *path;
	sqlite3_stmt *chunk; /* ?1 the least number, ?2 the greatest */
	bool not_null, numbers_checked;
};

/* n_bounds: the number of parameters, which are bound later. The database's "SQL logic error" is the caller's: a wrong
 * column or query, or, as with PostgreSQL, a missing table; SQLite has no codes to distinguish them. */
static int prepare(struct sqlite_source *s, const char *sql, size_t n_bounds, sqlite3_stmt **out, struct sl_err *err)
{
	static const struct sl__sqlite_value bounds[2] = {{.kind = 'i'}, {.kind = 'i'}};
	struct sl_err local = SL_ERR_INIT;
	err = err != NULL ? err : &local;
	int rc = sl__sqlite_prepare(&s->conn, sql, bounds, n_bounds, out, err);
	if (rc == SL_EINTERNAL)
		rc = err->code = strstr(err->msg, "no such table: ") != NULL ? SL_ECONFIG : SL_EINVAL;
	if (rc != 0)
		return sl_err_wrap(err, rc, "%.150s", s->db.describe);
	return 0;
}

/* ---- types ---- */

struct sample {
	bool ints, reals, texts, blobs;
	unsigned kinds; /* as which all texts can be read */
};

/* DECIMAL(12,2); false: without a precision, or with one that 64 bits do not hold. */
static bool set_decimal(struct sl_parquet_column *c, const char *declared)
{
	const char *open = strchr(declared, '(');
	int precision = 0, scale = 0;
	if (open == NULL || sscanf(open, "( %d , %d", &precision, &scale) < 1)
		return false;
	if (precision < 1 || precision > 18 || scale < 0 || scale > precision)
		return false;
	c->kind = SL_PARQUET_DECIMAL;
	c->precision = precision;
	c->scale = scale;
	return true;
}

static enum sl_parquet_kind kind_of_sample(const struct sample *s)
{
	if (s->blobs)
		return s->texts || s->ints || s->reals ? SL_PARQUET_STRING : SL_PARQUET_BINARY;
	if (s->texts || !(s->ints || s->reals))
		return SL_PARQUET_STRING;
	return s->reals ? SL_PARQUET_DOUBLE : SL_PARQUET_INT64;
}

/* Times are texts in some databases and numbers in others. */
static enum sl_parquet_kind kind_of_time(const struct sample *s, enum sl_column_kind wanted, enum sl_parquet_kind kind)
{
	if (s->texts && !s->ints && !s->reals && !s->blobs && (s->kinds & SL__KIND(wanted)) != 0)
		return kind;
	return kind_of_sample(s);
}

static void sqlite_set_kind(struct sl_parquet_column *c, const char *declared, const struct sample *sample)
{
	c->nullable = true;
	if (sl__has_word(declared, "BOOL"))
		c->kind = SL_PARQUET_BOOL;
	else if (sl__has_word(declared, "DATETIME") || sl__has_word(declared, "TIMESTAMP"))
		c->kind = kind_of_time(sample, SL_COLUMN_TIMESTAMP, SL_PARQUET_TIMESTAMP);
	else if (sl__has_word(declared, "INT"))
		c->kind = SL_PARQUET_INT64;
	else if (sl__has_word(declared, "CHAR") || sl__has_word(declared, "CLOB") || sl__has_word(declared, "TEXT") ||
		 sl__has_word(declared, "JSON"))
		c->kind = SL_PARQUET_STRING;
	else if (sl__has_word(declared, "BLOB"))
		c->kind = SL_PARQUET_BINARY;
	else if (sl__has_word(declared, "REAL") || sl__has_word(declared, "FLOA") || sl__has_word(declared, "DOUB"))
		c->kind = SL_PARQUET_DOUBLE;
	else if (sl__has_word(declared, "DATE"))
		c->kind = kind_of_time(sample, SL_COLUMN_DATE, SL_PARQUET_DATE);
	else if (!(sl__has_word(declared, "DEC") || sl__has_word(declared, "NUM")) || !set_decimal(c, declared))
		c->kind = kind_of_sample(sample);
}

/* Names and kinds, by the first rows where the declaration is not enough. Stepping also reports what is wrong with a
 * query that can be prepared. */
static int sqlite_take_columns(struct sqlite_source *s, sqlite3_stmt *rows, struct sl_err *err)
{
	int rc = sl__export_db_columns(&s->db, (size_t)sqlite3_column_count(rows), err);
	for (size_t i = 0; rc == 0 && i < s->db.n; i++)
		rc = sl__export_db_name(&s->db, i, sqlite3_column_name(rows, (int)i), err);
	if (rc != 0)
		return rc;
	struct sample *samples = sl__calloc(s->db.env, s->db.n, sizeof(*samples));
	if (samples == NULL)
		return sl__no_memory(err, "sqlite");
	for (size_t i = 0; i < s->db.n; i++)
		samples[i].kinds = SL__KINDS_TIME;
	for (int row = 0; row < SAMPLE_ROWS && (rc = sl__sqlite_step(&s->conn, rows, err)) == 1; row++)
		for (int i = 0; i < (int)s->db.n; i++) {
			struct sample *sample = &samples[i];
			int type = sqlite3_column_type(rows, i);
			sample->ints |= type == SQLITE_INTEGER;
			sample->reals |= type == SQLITE_FLOAT;
			sample->blobs |= type == SQLITE_BLOB;
			if (type == SQLITE_TEXT) {
				sample->texts = true;
				sample->kinds = sl__guess(sl__sqlite_text(rows, i),
							  (size_t)sqlite3_column_bytes(rows, i), sample->kinds);
			}
		}
	for (size_t i = 0; rc >= 0 && i < s->db.n; i++) {
		const char *declared = sqlite3_column_decltype(rows, (int)i);
		sqlite_set_kind(&s->db.columns[i], declared != NULL ? declared : "", &samples[i]);
	}
	sl__free(s->db.env, samples);
	return rc < 0 ? sl_err_wrap(err, rc, "%.150s", s->db.describe) : 0;
}

static int sqlite_describe_rows(struct sqlite_source *s, struct sl_err *err)
{
	const char *table = s->db.opts->table, *type;
	sqlite3_stmt *rows = NULL;
	char *sql = sl__asprintf(s->db.env, "SELECT * FROM %s", s->db.inner);
	int rc = sql != NULL ? prepare(s, sql, 0, &rows, err) : sl__no_memory(err, "sqlite");
	sl__free(s->db.env, sql);
	if (rc == 0)
		rc = sqlite_take_columns(s, rows, err);
	(void)sqlite3_finalize(rows);
	if (rc == 0)
		rc = sl__export_db_find_sequence(&s->db, err);
	if (rc != 0)
		return rc;

	/* Of a table, which columns are NOT NULL; an INTEGER PRIMARY KEY is, too, whatever is declared. */
	for (size_t i = 0; table != NULL && i < s->db.n; i++) {
		int not_null = 0, key = 0;
		if (sqlite3_table_column_metadata(s->conn.db, NULL, table, s->db.columns[i].name, &type, NULL,
						  &not_null, &key, NULL) != SQLITE_OK)
			continue;
		if (not_null || (key && type != NULL && strcasecmp(type, "INTEGER") == 0))
			s->db.columns[i].nullable = false;
	}
	struct sl_parquet_column *c = &s->db.columns[s->db.sequence];
	s->not_null = !c->nullable;
	c->nullable = false;
	c->kind = SL_PARQUET_INT64;
	return 0;
}

/* ---- values as CSV ---- */

/* One value as CSV: \x and hexadecimal digits for a blob; for a real as few digits as reproduce it, and PostgreSQL's
 * words for infinities; NULL is nothing between the commas. */
static void put_csv_value(struct sl__buf *buf, sqlite3_stmt *row, int column, enum sl_parquet_kind kind)
{
	static const char digits[] = "0123456789abcdef";
	switch (sqlite3_column_type(row, column)) {
	case SQLITE_INTEGER:
		if (kind == SL_PARQUET_BOOL && (uint64_t)sl__sqlite_i64(row, column) <= 1)
			(void)sl__buf_str_append(buf, sl__sqlite_i64(row, column) != 0 ? "true" : "false");
		else
			(void)sl__buf_printf(buf, "%lld", (long long)sl__sqlite_i64(row, column));
		break;
	case SQLITE_FLOAT: {
		char text[40];
		double v = sqlite3_column_double(row, column);
		if (isinf(v)) {
			(void)sl__buf_str_append(buf, v < 0 ? "-Infinity" : "Infinity");
			break;
		}
		for (int precision = 15; precision <= 17; precision++) {
			(void)snprintf(text, sizeof(text), "%.*g", precision, v);
			if (strtod(text, NULL) == v)
				break;
		}
		(void)sl__buf_str_append(buf, text);
		break;
	}
	case SQLITE_TEXT: {
		const char *text = sl__sqlite_text(row, column);
		size_t n = (size_t)sqlite3_column_bytes(row, column);
		(void)sl__buf_append(buf, "\"", 1);
		for (const char *quote; (quote = memchr(text, '"', n)) != NULL;) {
			size_t k = (size_t)(quote - text) + 1;
			(void)sl__buf_append(buf, text, k);
			(void)sl__buf_append(buf, "\"", 1);
			text += k;
			n -= k;
		}
		(void)sl__buf_append(buf, text, n);
		(void)sl__buf_append(buf, "\"", 1);
		break;
	}
	case SQLITE_BLOB: {
		const unsigned char *bytes = sqlite3_column_blob(row, column);
		size_t n = (size_t)sqlite3_column_bytes(row, column);
		(void)sl__buf_append(buf, "\\x", 2);
		if (sl__buf_reserve(buf, 2 * n) != 0)
			break;
		for (size_t i = 0; i < n; i++) {
			char pair[2] = {digits[bytes[i] >> 4], digits[bytes[i] & 15]};
			(void)sl__buf_append(buf, pair, 2);
		}
		break;
	}
	default:
		break;
	}
}

/* ---- rows ---- */

static int64_t bound(uint64_t v)
{
	return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

/* One statement's worth of text. */
static int sqlite_fill(struct sqlite_source *s, struct sl_err *err)
{
	uint64_t from = sl__export_db_next_chunk(&s->db);
	int rc = 1;
	if (from > INT64_MAX) {
		s->db.done = true;
		return 0;
	}
	(void)sqlite3_bind_int64(s->chunk, 1, from == 0 ? INT64_MIN : bound(from));
	(void)sqlite3_bind_int64(s->chunk, 2, bound(s->db.last));
	while (s->db.text.len < CHUNK_BYTES) {
		rc = atomic_load(&s->db.woken) ? SL_ECANCELLED : sl__sqlite_step(&s->conn, s->chunk, err);
		if (rc != 1)
			break;
		int64_t sequence = sl__sqlite_i64(s->chunk, 0);
		if (sequence >= 0 && sl__export_db_admit(&s->db, (uint64_t)sequence) != SL__EXPORT_DB_GIVE)
			continue;
		for (size_t i = 0; i < s->db.n; i++) { /* column 0 is the number, the others are the row */
			if (i > 0)
				(void)sl__buf_append(&s->db.text, ",", 1);
			put_csv_value(&s->db.text, s->chunk, (int)i + 1, s->db.columns[i].kind);
		}
		(void)sl__buf_append(&s->db.text, "\n", 1);
	}
	s->db.done = rc == 0;
	(void)sqlite3_reset(s->chunk);
	if (s->db.text.failed != 0)
		return sl__no_memory(err, "sqlite");
	if (rc >= 0)
		return 0;
	if (atomic_load(&s->db.woken))
		return sl__export_db_cancelled(err);
	if (rc != SL_EAGAIN) /* another connection has it locked: only that passes */
		err->error_class = SL_CLASS_NONE;
	return sl_err_wrap(err, rc, "%.150s", s->db.describe);
}

/* ---- the table ---- */

static const char *sqlite_describe(void *ctx)
{
	return ((struct sqlite_source *)ctx)->db.describe;
}

static int sqlite_columns(const struct sl_parquet_column **out, size_t *n, SL_UNUSED struct sl_err *err, void *ctx)
{
	struct sqlite_source *s = ctx;
	*out = s->db.columns;
	*n = s->db.n;
	return 0;
}

/* A sort over the whole table is one step. */
static int is_woken(void *ctx)
{
	return atomic_load(&((struct sqlite_source *)ctx)->db.woken);
}

static int open_again(struct sqlite_source *s, struct sl_err *err)
{
	if (s->conn.db != NULL && s->conn.broken) {
		(void)sqlite3_finalize(s->chunk);
		s->chunk = NULL;
		sl__sqlite_close(&s->conn);
	}
	if (s->conn.db == NULL) {
		int rc = sl__sqlite_open(&s->conn, s->db.env, s->path, SL__SQLITE_READER, BUSY_MS, err);
		if (rc != 0)
			return rc;
	}
	sqlite3_progress_handler(s->conn.db, 10000, is_woken, s);
	return 0;
}

static int sqlite_begin(uint64_t first, uint64_t last, struct sl_err *err, void *ctx)
{
	struct sqlite_source *s = ctx;
	struct sl__buf sql SL_CLEANUP(sl__buf_fini);
	sl__buf_init(&sql, s->db.env);
	sl__export_db_begin(&s->db, first, last);
	int rc = open_again(s, err);
	if (rc != 0)
		return rc;
	if (s->chunk == NULL) {
		(void)sl__buf_str_append(&sql, "SELECT ");
		sl__export_db_put_sequence(&sql, &s->db);
		(void)sl__buf_printf(&sql, ", s.* FROM %s WHERE ", s->db.inner);
		sl__export_db_put_sequence(&sql, &s->db);
		(void)sl__buf_str_append(&sql, " >= ?1 AND ");
		sl__export_db_put_sequence(&sql, &s->db);
		(void)sl__buf_str_append(&sql, " <= ?2 ORDER BY ");
		sl__export_db_put_sequence(&sql, &s->db);
		if (sql.failed != 0)
			return sl__no_memory(err, "sqlite");
		if ((rc = prepare(s, sl__buf_str(&sql), 2, &s->chunk, err)) != 0)
			return rc;
	}
	if (s->numbers_checked)
		return 0;

	/* Rows without a number would never be read, and would be missing unnoticed. So would numbers that are texts,
	 * which sort after all others. */
	sqlite3_stmt *rows = NULL;
	sl__buf_clear(&sql);
	(void)sl__buf_printf(&sql, "SELECT 1 FROM %s WHERE ", s->db.inner);
	sl__export_db_put_sequence(&sql, &s->db);
	(void)sl__buf_str_append(&sql, " IS NULL OR ");
	sl__export_db_put_sequence(&sql, &s->db);
	(void)sl__buf_str_append(&sql, " > 9223372036854775807 LIMIT 1");
	if (sql.failed != 0)
		return sl__no_memory(err, "sqlite");
	rc = prepare(s, sl__buf_str(&sql), 0, &rows, err);
	if (rc == 0)
		rc = sl__sqlite_step(&s->conn, rows, err);
	if (rc == 1)
		rc = sl_err_set(err, SL_EDATA, "%.150s has a row whose %.60s is not an integer", s->db.describe,
				s->db.columns[s->db.sequence].name);
	(void)sqlite3_finalize(rows);
	s->numbers_checked = rc == 0;
	return rc;
}

/* What was read before a failure is given first; the failure comes again. */
static int64_t sqlite_read(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct sqlite_source *s = ctx;
	struct sl_err why = SL_ERR_INIT;
	int rc = 0;
	while (s->db.text.len == 0 && !s->db.done) {
		rc = sqlite_fill(s, &why);
		if (rc == 0 || s->db.text.len > 0)
			s->db.failures = 0;
		else if ((rc = sl__export_db_retry(&s->db, &why)) != 0)
			break;
	}
	if (rc != 0 && s->db.text.len == 0) {
		if (err != NULL)
			*err = why;
		return rc;
	}
	return (int64_t)sl__export_db_take(&s->db, buf, n);
}

static int sqlite_present(const char *ranges, bool *any, uint64_t *found, struct sl_err *err, void *ctx)
{
	struct sqlite_source *s = ctx;
	struct sl_err why = SL_ERR_INIT;
	struct sl__buf sql SL_CLEANUP(sl__buf_fini);
	int rc = 0;
	sl__buf_init(&sql, s->db.env);
	for (*any = false; rc == 0 && !*any && sl__export_db_put_present(&sql, &s->db, &ranges);) {
		do {
			sqlite3_stmt *rows = NULL;
			rc = sql.failed != 0 ? sl__no_memory(&why, "sqlite") : open_again(s, &why);
			if (rc == 0)
				rc = sl__sqlite_prepare(&s->conn, sl__buf_str(&sql), NULL, 0, &rows, &why);
			if (rc == 0)
				rc = sl__sqlite_step(&s->conn, rows, &why);
			*any = rc == 1 && sqlite3_column_type(rows, 0) == SQLITE_INTEGER;
			if (*any)
				*found = (uint64_t)sl__sqlite_i64(rows, 0);
			(void)sqlite3_finalize(rows);
			if (rc < 0 && atomic_load(&s->db.woken))
				rc = sl__export_db_cancelled(&why);
			else if (rc < 0 && rc != SL_EAGAIN) /* another connection has it locked: only that passes */
				why.error_class = SL_CLASS_NONE;
			rc = SL_MIN(rc, 0);
		} while (rc != 0 && (rc = sl__export_db_retry(&s->db, &why)) == 0);
		s->db.failures = 0;
	}
	if (rc != 0 && err != NULL)
		*err = why;
	return rc;
}

static void sqlite_wake(void *ctx)
{
	sl__export_db_wake(&((struct sqlite_source *)ctx)->db);
}

static void close_sqlite_source(void *ctx)
{
	struct sqlite_source *s = ctx;
	const struct sl_env *env = s->db.env;
	(void)sqlite3_finalize(s->chunk);
	if (s->conn.db != NULL)
		sl__sqlite_close(&s->conn);
	sl__export_db_fini(&s->db);
	sl__free(env, s);
}

static const struct sl__export_source_ops ops = {.csv = true,
						 .describe = sqlite_describe,
						 .columns = sqlite_columns,
						 .begin = sqlite_begin,
						 .read = sqlite_read,
						 .present = sqlite_present,
						 .wake = sqlite_wake,
						 .close = close_sqlite_source};

int sl__export_sqlite_open(struct sl__export_source *out, const struct sl_export_opts *opts, const struct sl_env *env,
			   struct sl_err *err)
{
	struct stat st;
	struct sqlite_source *s = sl__calloc(env, 1, sizeof(*s));
	if (s == NULL)
		return sl__no_memory(err, "sqlite");
	int rc = sl__export_db_init(&s->db, opts, env, err);
	if (rc != 0)
		goto fail;
	s->path = strncmp(opts->from, "sqlite:", 7) == 0 ? opts->from + 7 : opts->from;
	s->db.describe = sl__asprintf(env, "%s%.100s of sqlite:%s", opts->table != NULL ? "table " : "a query",
				      opts->table != NULL ? opts->table : "", s->path);
	if (s->db.describe == NULL)
		rc = sl__no_memory(err, "sqlite");
	else if (stat(s->path, &st) != 0)
		rc = sl_err_set_errno(err, errno, "open %s", s->path);
	else if ((rc = open_again(s, err)) == 0)
		rc = sqlite_describe_rows(s, err);
	if (rc != 0)
		goto fail;
	*out = (struct sl__export_source){
		.ops = &ops, .ctx = s, .records_gaps = opts->table != NULL && !sl__export_db_is_job_events(opts)};
	return 0;
fail:
	close_sqlite_source(s);
	return rc;
}
