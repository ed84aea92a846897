/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many new events, by COPY: the server then has neither arrays to take apart nor a job to look up for every row, and
 * writes whole pages.
 *
 *	which attempt the jobs are in, the first offset │ COPY, with offsets and lateness filled in here
 *
 * The counter's row is locked until the commit, so offsets are gapless and in the order of commits.
 */
#include <stdlib.h>

#include "jobs/store/postgres/store.h"

#define PIECE ((size_t)128 * 1024) /* handed to libpq at a time */
#define COLUMNS 12                 /* of ST_EVENT_COPY */

/* The jobs of the events, in order, and the attempt that each is in; -1: it is not there. */
struct jobs {
	uint64_t *ids;
	int32_t *attempts;
	size_t n;
	size_t last; /* found */
};

static int by_id(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static bool has_attempt(const struct sl_event_row *e)
{
	return e->job_id != 0 && e->attempt != 0;
}

static int collect_jobs(struct pg_store *s, struct jobs *jobs, const struct sl_event_row *const *rows, size_t n,
			struct sl_err *err)
{
	size_t found = 0;
	jobs->ids = sl__calloc(&s->env, n, sizeof *jobs->ids);
	jobs->attempts = sl__calloc(&s->env, n, sizeof *jobs->attempts);
	if (jobs->ids == NULL || jobs->attempts == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: events: out of memory");
	for (size_t i = 0; i < n; i++)
		if (has_attempt(rows[i]) && (found == 0 || jobs->ids[found - 1] != rows[i]->job_id))
			jobs->ids[found++] = rows[i]->job_id;
	qsort(jobs->ids, found, sizeof *jobs->ids, by_id);
	for (size_t i = 0; i < found; i++)
		if (i == 0 || jobs->ids[i] != jobs->ids[jobs->n - 1])
			jobs->ids[jobs->n++] = jobs->ids[i];
	for (size_t i = 0; i < jobs->n; i++)
		jobs->attempts[i] = -1;
	return 0;
}

static bool is_late(struct jobs *jobs, const struct sl_event_row *e)
{
	if (!has_attempt(e))
		return false;
	if (jobs->ids[jobs->last] != e->job_id) {
		const uint64_t *at = bsearch(&e->job_id, jobs->ids, jobs->n, sizeof *jobs->ids, by_id);
		assert(at != NULL);
		jobs->last = (size_t)(at - jobs->ids);
	}
	int32_t now = jobs->attempts[jobs->last];
	return now < 0 || e->attempt < now;
}

/* The attempts, and the offset before the first. */
static int ask(struct pg_call *call, struct jobs *jobs, size_t n, int64_t *base, struct sl_err *err)
{
	sl__pg_add_ids(&call->params, jobs->ids, jobs->n);
	int at = sl__pg_call_send(call, ST_EVENT_ATTEMPTS);
	sl__pg_add_int8(&call->params, (int64_t)n);
	int at_base = sl__pg_call_send(call, ST_EVENT_OFFSET);
	int rc = sl__pg_call_run(call, false, err);
	if (rc != 0)
		return rc;
	const PGresult *res = sl__pg_call_result(call, at);
	for (int i = 0; i < PQntuples(res); i++)
		jobs->attempts[sl__pg_int4(res, i, 0) - 1] = sl__pg_int4(res, i, 1);
	*base = sl__pg_int8(sl__pg_call_result(call, at_base), 0, 0);
	sl__pg_pipe_end(&call->pipe);
	return 0;
}

/* Elements of an array and the fields of COPY are written alike: a length, -1 for NULL, and the bytes. So the row is
 * put together in a parameter that is never sent as one. */
static void put_row(struct sl__pg_params *p, const struct sl_event_row *e, int64_t offset, bool late)
{
	static const char columns[2] = {0, COLUMNS};
	(void)sl__buf_append(&p->data, columns, sizeof columns);
	sl__pg_el_int8(p, offset);
	sl__pg_el_text(p, e->stream);
	sl__pg_el_int8(p, e->incarnation);
	sl__pg_el_int8(p, (int64_t)e->sequence);
	sl__pg_el_int8(p, (int64_t)e->crc);
	if (e->job_id != 0)
		sl__pg_el_int8(p, (int64_t)e->job_id);
	else
		sl__pg_el_text(p, NULL);
	if (e->attempt != 0)
		sl__pg_el_int4(p, e->attempt);
	else
		sl__pg_el_text(p, NULL);
	sl__pg_el_int4(p, e->type);
	sl__pg_el_bool(p, late);
	sl__pg_el_time(p, sl__pg_event_ms(e));
	sl__pg_el_bytes(p, e->payload, e->payload_len);
	sl__pg_el_bool(p, e->partial != 0);
}

static void begin_piece(struct sl__pg_params *p)
{
	sl__pg_params_clear(p);
	sl__pg_add_text(p, "");
}

/* NULL: it went out, as far as anybody knows; what else happened the server says at the end. */
static const char *send_piece(PGconn *pg, struct sl__pg_params *p)
{
	if (p->data.failed != 0)
		return "out of memory";
	int sent = PQputCopyData(pg, sl__buf_str(&p->data), (int)p->data.len);
	begin_piece(p);
	return sent == 1 ? NULL : "given up";
}

static const char *send_rows(struct pg_call *call, struct jobs *jobs, const struct sl_event_row *const *rows, size_t n,
			     int64_t base)
{
	struct sl__pg_params *p = &call->params;
	const char *bad = NULL;
	begin_piece(p);
	(void)sl__buf_append(&p->data, "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0", 19);
	for (size_t i = 0; i < n && bad == NULL; i++) {
		put_row(p, rows[i], base + 1 + (int64_t)i, is_late(jobs, rows[i]));
		if (p->data.len >= PIECE || p->data.failed != 0)
			bad = send_piece(call->conn->pg, p);
	}
	(void)sl__buf_append(&p->data, "\377\377", 2);
	return bad != NULL ? bad : send_piece(call->conn->pg, p);
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

static int copy(struct pg_call *call, struct jobs *jobs, const struct sl_event_row *const *rows, size_t n, int64_t base,
		struct sl_err *err)
{
	PGconn *pg = call->conn->pg;
	PGresult *res = PQexec(pg, call->store->statements[ST_EVENT_COPY].sql);
	int rc = PQresultStatus(res) == PGRES_COPY_IN ? 0 : sl__pg_error(err, pg, res, "events: COPY");
	PQclear(res);
	if (rc != 0)
		return rc;
	const char *bad = send_rows(call, jobs, rows, n, base);
	bool no_memory = call->params.data.failed != 0;
	rc = end_copy(pg, bad, err);
	sl__pg_params_clear(&call->params);
	return no_memory ? sl_err_set(err, SL_ENOMEM, "postgres: events: out of memory, or too big") : rc;
}

int sl__pg_events_copy(struct pg_call *call, const struct sl_event_row *const *rows, size_t n, struct sl_err *err)
{
	struct pg_store *s = call->store;
	struct jobs jobs = {0};
	int64_t base = 0;
	int rc = collect_jobs(s, &jobs, rows, n, err);
	rc = rc != 0 ? rc : ask(call, &jobs, n, &base, err);
	rc = rc != 0 ? rc : copy(call, &jobs, rows, n, base, err);
	sl__free(&s->env, jobs.ids);
	sl__free(&s->env, jobs.attempts);
	return rc;
}
