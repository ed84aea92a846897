/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appending: a COPY per run of rows. One run is one statement and so one transaction; more are put into one. When the
 * server refuses a row it says which ("COPY bars, line 7"), whatever its language.
 *
 * Binary values do not say what they are: those of a bigint would be taken for a double precision. So a second
 * statement of the same transaction, while COPY has the table locked, checks whether the columns are still those of the
 * encoding.
 */
#include <stdlib.h>

#include "sink/postgres.h"

#define PIECE ((size_t)256 * 1024) /* handed to libpq at a time */

/* A row as a line of COPY's text format. */
static void put_line(struct sl__buf *out, const char *row, size_t n)
{
	for (size_t at = 0; at < n;) {
		uint32_t len = sl__pg_length(row + at);
		if (at > 0)
			(void)sl__buf_append(out, "\t", 1);
		at += 4;
		if (len == UINT32_MAX) {
			(void)sl__buf_append(out, "\\N", 2);
			continue;
		}
		const char *p = row + at, *end = p + len;
		for (const char *q = p; q < end; q++) {
			const char *escaped = *q == '\\'   ? "\\\\"
					      : *q == '\t' ? "\\t"
					      : *q == '\n' ? "\\n"
					      : *q == '\r' ? "\\r"
							   : NULL;
			if (escaped == NULL)
				continue;
			(void)sl__buf_append(out, p, (size_t)(q - p));
			(void)sl__buf_append(out, escaped, 2);
			p = q + 1;
		}
		(void)sl__buf_append(out, p, (size_t)(end - p));
		at += len;
	}
	(void)sl__buf_append(out, "\n", 1);
}

static int send_piece(struct sl__pg_lane *lane, struct sl_err *err)
{
	struct sl__buf *out = &lane->out;
	if (out->failed != 0)
		return sl__no_memory(err, "postgres");
	int sent = out->len == 0 ? 1 : PQputCopyData(lane->pg, out->data, (int)out->len);
	sl__buf_clear(out);
	return sent == 1 ? sl__pg_push(lane, err) : sl__pg_sink_error(err, lane->pg, NULL, "COPY");
}

static int send_copy_rows(struct sl__pg_lane *lane, const struct sl__pg_run *run, struct sl_err *err)
{
	const struct sl__pg_rows *r = &lane->rows;
	struct sl__buf *out = &lane->out;
	size_t n = 0;
	for (size_t i = 0; i < lane->table.n; i++)
		n += run->have[i];
	char count[2] = {(char)(n >> 8), (char)n};
	sl__buf_clear(out);
	if (!r->text)
		(void)sl__buf_append(out, "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0", 19);
	for (size_t i = run->first; i < run->first + run->n; i++) {
		const char *row = r->buf.data + r->at[i];
		size_t len = r->at[i + 1] - r->at[i];
		if (r->text) {
			put_line(out, row, len);
		} else {
			(void)sl__buf_append(out, count, 2);
			(void)sl__buf_append(out, row, len);
		}
		if (out->len >= PIECE) {
			int rc = send_piece(lane, err);
			if (rc != 0)
				return rc;
		}
	}
	if (!r->text)
		(void)sl__buf_append(out, "\377\377", 2);
	return send_piece(lane, err);
}

/* The row of "COPY bars, line 7, column …", from 0; SIZE_MAX: the context is another. */
static size_t named_row(const struct sl__pg_lane *lane, const PGresult *res)
{
	const char *context = PQresultErrorField(res, PG_DIAG_CONTEXT), *bare = lane->sink->bare;
	size_t n = strlen(bare);
	if (context == NULL || strncmp(context, "COPY ", 5) != 0 || strncmp(context + 5, bare, n) != 0 ||
	    context[5 + n] != ',')
		return SIZE_MAX;
	const char *p = context + 5 + n;
	while (*p != '\0' && *p != '\n' && (*p < '0' || *p > '9'))
		p++;
	unsigned long long line = strtoull(p, NULL, 10);
	return line == 0 ? SIZE_MAX : (size_t)line - 1;
}

/* All results up to the end of the statement; the first failure counts. copying: stop when the server wants data. */
static int copy_results(struct sl__pg_lane *lane, bool copying, size_t *named, struct sl_err *err)
{
	int rc = 0, wait_rc = 0;
	bool copied = false;
	PGresult *res;
	while ((res = sl__pg_next(lane, &wait_rc, err)) != NULL) {
		ExecStatusType status = PQresultStatus(res);
		bool wants_data = status == PGRES_COPY_IN;
		if (rc == 0 && status == PGRES_FATAL_ERROR) {
			rc = sl__pg_sink_error(err, lane->pg, res, "COPY");
			*named = named_row(lane, res);
			lane->changed = copied && rc != SL_ELOCKED; /* the check of the columns has failed then */
		}
		copied = copied || status == PGRES_COMMAND_OK;
		PQclear(res);
		if (wants_data) {
			if (copying)
				return 0;
			(void)PQputCopyEnd(lane->pg, "unexpected");
		}
	}
	if (wait_rc == 0 && rc == 0 && copying)
		return sl_err_set(err, SL_EINTERNAL, "postgres: COPY: the server did not ask for data");
	return wait_rc != 0 ? wait_rc : rc;
}

/* alone: the whole transaction is this one COPY. */
static int copy_run(struct sl__pg_lane *lane, const struct sl__pg_run *run, bool alone, size_t *culprit,
		    struct sl_err *err)
{
	size_t named = SIZE_MAX;
	/* COPY "t" ("a", "b") FROM STDIN (FORMAT binary) */
	struct sl__buf *sql = &lane->out;
	const char *before = " (";
	sl__buf_clear(sql);
	(void)sl__buf_printf(sql, "COPY %s", lane->sink->table);
	for (size_t i = 0; i < lane->table.n; i++) {
		if (!run->have[i])
			continue;
		(void)sl__buf_str_append(sql, before);
		sl__pg_put_name(sql, lane->table.names[i]);
		before = ", ";
	}
	(void)sl__buf_str_append(sql, lane->rows.text ? ") FROM STDIN" : ") FROM STDIN (FORMAT binary); ");
	if (!lane->rows.text)
		sl__pg_put_shape_check(sql, lane);
	if (alone && lane->record.len > 0) {
		(void)sl__buf_str_append(sql, "; ");
		(void)sl__buf_append(sql, lane->record.data, lane->record.len);
	}
	if (sql->failed != 0)
		return sl__no_memory(err, "postgres");
	if (PQsendQuery(lane->pg, sl__buf_str(sql)) == 0)
		return sl__pg_sink_error(err, lane->pg, NULL, "COPY");
	int rc = copy_results(lane, true, &named, err);
	if (rc != 0)
		return rc;
	int sent = send_copy_rows(lane, run, err);
	if (PQputCopyEnd(lane->pg, sent != 0 ? "given up" : NULL) != 1)
		return sent != 0 ? sent : sl__pg_sink_error(err, lane->pg, NULL, "COPY");
	rc = copy_results(lane, false, &named, sent != 0 ? NULL : err);
	if (rc != 0 && named < run->n)
		*culprit = run->first + named;
	return sent != 0 ? sent : rc;
}

int sl__pg_append(struct sl__pg_lane *lane, size_t *culprit, struct sl_err *err)
{
	const struct sl__pg_rows *r = &lane->rows;
	*culprit = SIZE_MAX;
	if (r->n_runs == 1 && !lane->pooled)
		return copy_run(lane, &r->runs[0], true, culprit, err);
	int rc = sl__pg_simple(lane, lane->pooled ? "BEGIN; " SL__PG_SET_LOCAL : "BEGIN", "BEGIN", err);
	for (size_t i = 0; i < r->n_runs && rc == 0; i++)
		rc = copy_run(lane, &r->runs[i], false, culprit, err);
	if (rc == 0 && lane->record.len > 0)
		rc = sl__pg_simple(lane, lane->record.data, "record", err);
	if (rc == 0)
		return sl__pg_simple(lane, "COMMIT", "COMMIT", err);
	bool can = PQstatus(lane->pg) == CONNECTION_OK && PQtransactionStatus(lane->pg) != PQTRANS_ACTIVE;
	if (can && sl__pg_simple(lane, "ROLLBACK", "ROLLBACK", NULL) != 0)
		lane->broken = true;
	return rc;
}
