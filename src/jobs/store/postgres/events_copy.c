/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many new events, by COPY: the server then has no arrays to take apart for every row, and writes whole pages.
 *
 *	the first offset │ COPY, with offsets and lateness filled in here
 *
 * The counter's row is locked until the commit, so offsets are gapless and in the order of commits.
 */
#include "jobs/store/postgres/store.h"

#define PIECE ((size_t)128 * 1024) /* handed to libpq at a time */
#define COLUMNS 12                 /* of ST_EVENT_COPY */

/* Elements of an array and the fields of COPY are written alike: a length, -1 for NULL, and the bytes. So the row is
 * put together in a parameter that is never sent as one. */
static void put_row(struct sl__pg_params *p, const struct sl__event_admission *a, const struct sl_event_row *e,
		    int64_t offset)
{
	static const char columns[2] = {0, COLUMNS};
	bool keeps = sl__event_keeps_job(a, e);
	(void)sl__buf_append(&p->data, columns, sizeof(columns));
	sl__pg_el_int8(p, offset);
	sl__pg_el_text(p, e->stream);
	sl__pg_el_int8(p, e->incarnation);
	sl__pg_el_int8(p, (int64_t)e->sequence);
	sl__pg_el_int8(p, (int64_t)e->crc);
	if (keeps && e->job_id != 0)
		sl__pg_el_int8(p, (int64_t)e->job_id);
	else
		sl__pg_el_text(p, NULL);
	if (keeps && e->attempt != 0)
		sl__pg_el_int4(p, e->attempt);
	else
		sl__pg_el_text(p, NULL);
	sl__pg_el_int4(p, (int32_t)e->type);
	sl__pg_el_bool(p, sl__event_is_late(a, e));
	sl__pg_el_time(p, sl__pg_event_ms(e));
	sl__pg_el_bytes(p, e->payload, e->payload_len);
	sl__pg_el_bool(p, e->partial);
}

static void begin_piece(struct sl__pg_params *p)
{
	sl__pg_params_clear(p);
	sl__pg_add_text(p, "");
}

/* NULL: it went out, as far as anybody knows; what else happened the server says at the end. */
static const char *send_copy_piece(PGconn *pg, struct sl__pg_params *p)
{
	if (p->data.failed != 0)
		return "out of memory";
	int sent = PQputCopyData(pg, sl__buf_str(&p->data), (int)p->data.len);
	begin_piece(p);
	return sent == 1 ? NULL : "given up";
}

static const char *send_copied_rows(struct pg_call *call, const struct sl__event_admission *a, int64_t base)
{
	struct sl__pg_params *p = &call->params;
	const char *bad = NULL;
	begin_piece(p);
	(void)sl__buf_append(&p->data, "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0", 19);
	for (size_t i = 0; i < a->n_fresh && bad == NULL; i++) {
		put_row(p, a, a->fresh[i], base + 1 + (int64_t)i);
		if (p->data.len >= PIECE || p->data.failed != 0)
			bad = send_copy_piece(call->conn->pg, p);
	}
	(void)sl__buf_append(&p->data, "\377\377", 2);
	return bad != NULL ? bad : send_copy_piece(call->conn->pg, p);
}

static int end_copy(PGconn *pg, const char *bad, struct sl_err *err)
{
	PGresult *res;
	int rc = 0;
	if (PQputCopyEnd(pg, bad) != 1)
		return sl__pg_error(err, pg, NULL, "events: COPY");
	while ((res = PQgetResult(pg)) != NULL) {
		if (rc == 0 && PQresultStatus(res) != PGRES_COMMAND_OK)
			rc = sl__pg_error(err, pg, res, "events: COPY");
		PQclear(res);
	}
	return rc;
}

int sl__pg_events_copy(struct pg_call *call, const struct sl__event_admission *a, struct sl_err *err)
{
	PGconn *pg = call->conn->pg;
	sl__pg_add_int8(&call->params, (int64_t)a->n_fresh);
	int at = sl__pg_call_send(call, ST_EVENT_OFFSET);
	int rc = sl__pg_call_run(call, false, err);
	if (rc != 0)
		return rc;
	int64_t base = sl__pg_int8(sl__pg_call_result(call, at), 0, 0); /* the offset before the first */
	sl__pg_pipe_end(&call->pipe);
	PGresult *res = PQexec(pg, call->store->statements[ST_EVENT_COPY].sql);
	rc = PQresultStatus(res) == PGRES_COPY_IN ? 0 : sl__pg_error(err, pg, res, "events: COPY");
	PQclear(res);
	if (rc != 0)
		return rc;
	const char *bad = send_copied_rows(call, a, base);
	bool no_memory = call->params.data.failed != 0;
	rc = end_copy(pg, bad, err);
	sl__pg_params_clear(&call->params);
	return no_memory ? sl_err_set(err, SL_ENOMEM, "postgres: events: out of memory, or too big") : rc;
}
