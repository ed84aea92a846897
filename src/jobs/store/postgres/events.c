/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events. The first round trip locks the marks of the streams, in order; here each event is then found to be new, known
 * or out of order; the second round trip compares what is known, inserts what is new and moves the marks. Many new ones
 * go by COPY (events_copy.c), which takes two round trips more.
 */
#include <stdio.h>
#include <stdlib.h>

#include "jobs/store/postgres/store.h"

#define COPY_LEAST 50 /* new events */

static void add_streams(struct sl__pg_params *p, const struct sl__event_admission *a)
{
	sl__pg_add_array(p, SL__PG_TEXT, a->n_streams);
	for (size_t i = 0; i < a->n_streams; i++)
		sl__pg_el_text(p, a->streams[i].name);
	sl__pg_add_array(p, SL__PG_INT8, a->n_streams);
	for (size_t i = 0; i < a->n_streams; i++)
		sl__pg_el_int8(p, a->streams[i].incarnation);
}

#define EACH(e, list, n, p, oid, add)                                                                                  \
	do {                                                                                                           \
		sl__pg_add_array(p, oid, n);                                                                           \
		for (size_t each = 0; each < (n); each++) {                                                            \
			const struct sl_event_row *e = (list)[each];                                                   \
			add;                                                                                           \
		}                                                                                                      \
	} while (0)

/* Ask what the claims of the events are worth, once for those of one attempt that come in a row. a->fresh serves as
 * room: it is empty yet. *n: how many were asked for; *at: where the answer will be. */
static int send_claims(struct pg_call *call, const struct sl__event_admission *a, size_t *n, int *at,
		       struct sl_err *err)
{
	const struct sl_event_row **asked = a->fresh;
	struct sl__pg_params *p = &call->params;
	struct sl__claim_hash cache = {.known = false};
	*n = 0;
	for (size_t i = 0; i < a->n; i++)
		if (a->events[i].job_id != 0 && (*n == 0 || !sl__event_same_claim(asked[*n - 1], &a->events[i])))
			asked[(*n)++] = &a->events[i];
	if (*n == 0)
		return 0;
	EACH(e, asked, *n, p, SL__PG_INT8, sl__pg_el_int8(p, (int64_t)e->job_id));
	EACH(e, asked, *n, p, SL__PG_INT4, sl__pg_el_int4(p, e->attempt));
	EACH(e, asked, *n, p, SL__PG_UUID, sl__pg_el_uuid(p, e->claim.bytes));
	sl__pg_add_array(p, SL__PG_INT8, *n);
	for (size_t i = 0; i < *n; i++) {
		int64_t hash = 0;
		int rc = sl__claim_hash(&cache, &asked[i]->claim, &hash, err);
		if (rc != 0)
			return rc;
		sl__pg_el_int8(p, hash);
	}
	*at = sl__pg_call_send(call, ST_CLAIM_STANDING);
	return 0;
}

static void set_owner(struct sl__event_stream *s, const PGresult *res, int row, int column)
{
	if (!PQgetisnull(res, row, column))
		(void)snprintf(s->owner, sizeof(s->owner), "%s", PQgetvalue(res, row, column));
}

/* An incarnation that is new may be one of a stream that is not. In the order of their names: streams are sorted by the
 * statement that locks the marks, but not here. */
static int find_owners(struct pg_call *call, struct sl__event_admission *a, struct sl_err *err)
{
	const char *last = "";
	for (;;) {
		struct sl__event_stream *s = NULL;
		for (size_t i = 0; i < a->n_streams; i++)
			if (!a->streams[i].found && strcmp(a->streams[i].name, last) > 0 &&
			    (s == NULL || strcmp(a->streams[i].name, s->name) < 0))
				s = &a->streams[i];
		if (s == NULL)
			return 0;
		last = s->name;
		sl__pg_add_text(&call->params, s->name);
		(void)sl__pg_call_send(call, ST_EVENT_NAME_LOCK);
		sl__pg_add_text(&call->params, s->name);
		sl__pg_add_int8(&call->params, s->incarnation);
		int at = sl__pg_call_send(call, ST_EVENT_OWNERS);
		int rc = sl__pg_call_run(call, false, err);
		if (rc != 0)
			return rc;
		const PGresult *res = sl__pg_call_result(call, at);
		s->has_others = PQntuples(res) > 0;
		if (s->has_others)
			set_owner(s, res, 0, 0);
		sl__pg_pipe_end(&call->pipe);
	}
}

/* Lock the marks and, in the same round trip, read the claims. */
static int lock_marks(struct pg_call *call, struct sl__event_admission *a, struct sl_err *err)
{
	size_t n_asked = 0;
	int at_claims = 0;
	add_streams(&call->params, a);
	int at = sl__pg_call_send(call, ST_EVENT_MARKS);
	int rc = send_claims(call, a, &n_asked, &at_claims, err);
	if (rc == 0)
		rc = sl__pg_call_run(call, false, err);
	if (rc != 0)
		return rc;
	/* What the claims of the events are worth. */
	const PGresult *standings = n_asked > 0 ? sl__pg_call_result(call, at_claims) : NULL;
	for (size_t i = 0, k = 0; n_asked > 0 && i < a->n; i++) {
		if (a->events[i].job_id == 0)
			continue;
		if (k + 1 < n_asked && a->fresh[k + 1] == &a->events[i])
			k++;
		a->standings[i] = (enum sl__claim_standing)sl__pg_int4(standings, (int)k, 0);
	}
	const PGresult *res = sl__pg_call_result(call, at);
	for (int i = 0; i < PQntuples(res); i++) {
		struct sl__event_stream *s =
			sl__events_stream(a, sl__pg_text(res, i, 0), (uint32_t)sl__pg_int8(res, i, 1));
		s->mark = (struct sl__event_mark){.sequence = (uint64_t)sl__pg_int8(res, i, 2),
						  .crc = PQgetisnull(res, i, 3) ? 0 : (uint64_t)sl__pg_int8(res, i, 3),
						  .has_crc = !PQgetisnull(res, i, 3)};
		s->found = !sl__pg_bool(res, i, 5);
		set_owner(s, res, i, 4);
	}
	sl__pg_pipe_end(&call->pipe);
	return find_owners(call, a, err);
}

static void add_keys(struct sl__pg_params *p, const struct sl_event_row *const *list, size_t n)
{
	EACH(e, list, n, p, SL__PG_TEXT, sl__pg_el_text(p, e->stream));
	EACH(e, list, n, p, SL__PG_INT8, sl__pg_el_int8(p, e->incarnation));
	EACH(e, list, n, p, SL__PG_INT8, sl__pg_el_int8(p, (int64_t)e->sequence));
}

/* Known events must have the CRC that they had; what retention has removed cannot be compared. */
static int compare_known(struct pg_call *call, const struct sl__event_admission *a, struct sl_err *err)
{
	if (a->n_known == 0)
		return 0;
	add_keys(&call->params, a->known, a->n_known);
	int at = sl__pg_call_send(call, ST_EVENT_KNOWN);
	int rc = sl__pg_call_run(call, false, err);
	if (rc != 0)
		return rc;
	const PGresult *res = sl__pg_call_result(call, at);
	for (int i = 0; i < PQntuples(res); i++) {
		const struct sl_event_row *event = a->known[sl__pg_int4(res, i, 0) - 1];
		if ((uint64_t)sl__pg_int8(res, i, 1) != event->crc)
			return sl__event_conflict(event->stream, event->sequence, err);
	}
	sl__pg_pipe_end(&call->pipe);
	return 0;
}

/* Any number may stand there. The server has no time before 4714 BC, and would refuse the others along with it; 0 would
 * be none. */
int64_t sl__pg_event_ms(const struct sl_event_row *e)
{
	const int64_t first_ms = -INT64_C(210866803200000);
	return e->ts_ms == 0 ? 1 : SL_MAX(e->ts_ms, first_ms);
}

static void send_fresh(struct pg_call *call, const struct sl__event_admission *a)
{
	struct sl__pg_params *p = &call->params;
	add_keys(p, a->fresh, a->n_fresh);
	EACH(e, a->fresh, a->n_fresh, p, SL__PG_INT8, sl__pg_el_int8(p, (int64_t)e->crc));
	EACH(e, a->fresh, a->n_fresh, p, SL__PG_INT8,
	     sl__pg_el_int8(p, sl__event_keeps_job(a, e) ? (int64_t)e->job_id : 0));
	EACH(e, a->fresh, a->n_fresh, p, SL__PG_INT4, sl__pg_el_int4(p, sl__event_keeps_job(a, e) ? e->attempt : 0));
	EACH(e, a->fresh, a->n_fresh, p, SL__PG_INT4, sl__pg_el_int4(p, (int32_t)e->type));
	/* 1 ms after the beginning of time rather than no time at all. */
	EACH(e, a->fresh, a->n_fresh, p, SL__PG_TIMESTAMPTZ, sl__pg_el_time(p, sl__pg_event_ms(e)));
	EACH(e, a->fresh, a->n_fresh, p, SL__PG_BYTEA, sl__pg_el_bytes(p, e->payload, e->payload_len));
	EACH(e, a->fresh, a->n_fresh, p, SL__PG_BOOL, sl__pg_el_bool(p, e->partial));
	sl__pg_add_int8(p, (int64_t)a->n_fresh);
	EACH(e, a->fresh, a->n_fresh, p, SL__PG_BOOL, sl__pg_el_bool(p, sl__event_is_late(a, e)));
	(void)sl__pg_call_send(call, ST_EVENT_INSERT);
}

static int write_admitted(struct pg_call *call, const struct sl__event_admission *a, struct sl_err *err)
{
	if (a->n_fresh >= COPY_LEAST) {
		int rc = sl__pg_events_copy(call, a, err);
		if (rc != 0)
			return rc;
	} else if (a->n_fresh > 0) {
		send_fresh(call, a);
	}
	add_streams(&call->params, a);
	sl__pg_add_array(&call->params, SL__PG_INT8, a->n_streams);
	for (size_t i = 0; i < a->n_streams; i++)
		sl__pg_el_int8(&call->params, (int64_t)a->streams[i].mark.sequence);
	sl__pg_add_array(&call->params, SL__PG_INT8, a->n_streams);
	for (size_t i = 0; i < a->n_streams; i++)
		sl__pg_el_int8(&call->params, (int64_t)a->streams[i].mark.crc);
	sl__pg_add_array(&call->params, SL__PG_BOOL, a->n_streams);
	for (size_t i = 0; i < a->n_streams; i++)
		sl__pg_el_bool(&call->params, a->streams[i].mark.has_crc);
	(void)sl__pg_call_send(call, ST_EVENT_ADVANCE);
	for (size_t i = 0; i < a->n_streams; i++) {
		const struct sl__event_stream *s = &a->streams[i];
		if (!s->own)
			continue;
		sl__pg_add_text(&call->params, s->name);
		if (!s->adopted)
			sl__pg_add_int8(&call->params, s->incarnation);
		sl__pg_add_text(&call->params, s->owner);
		(void)sl__pg_call_send(call, s->adopted ? ST_EVENT_ADOPT : ST_EVENT_OWN);
	}
	call->audit = a->records;
	call->n_audit = a->n_records;
	return sl__pg_call_run(call, true, err);
}

static int admit_events(struct pg_call *call, struct sl__event_admission *a, struct sl_err *err)
{
	int rc = lock_marks(call, a, err);
	if (rc != 0)
		return rc;
	rc = sl__events_admit(a, err);
	if (rc != 0)
		return rc;
	rc = compare_known(call, a, err);
	if (rc != 0)
		return rc;
	sl__events_audit(a);
	return write_admitted(call, a, err);
}

int sl__pg_events_append(void *store, const struct sl_event_row *events, size_t n, struct sl_event_mark *marks,
			 size_t n_marks, size_t *n_new, struct sl_err *err)
{
	struct pg_store *s = store;
	struct sl__event_admission a = {.events = events, .n = n, .marks = marks, .n_marks = n_marks};
	struct pg_call call = {.conn = NULL};
	int rc = sl__events_init(&a, &s->env, err);
	if (rc == 0)
		rc = sl__pg_call_open(&call, s, NULL, PG_LONG, err);
	if (rc == 0)
		rc = admit_events(&call, &a, err);
	if (rc == 0)
		sl__events_return_marks(&a);
	if (rc == 0 && n_new != NULL)
		*n_new = a.n_fresh;
	sl__pg_call_close(&call);
	sl__events_fini(&a, &s->env);
	return rc;
}
