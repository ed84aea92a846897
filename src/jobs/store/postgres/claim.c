/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claiming. Under a pinned snapshot (a dump, a forgotten transaction) the rows of `ready` that claims have deleted
 * stay, and every claim would read its way through them. So a claim begins at the place where the last one of its type
 * ended: the mark. What comes in below it (a retried job has an old id) is found because the marks are forgotten every
 * second and whenever a claim finds less than it asked for; what is more urgent is always looked for.
 */
#include "jobs/store/postgres/store.h"

#define MARKS_LIVE_NS INT64_C(1000000000)
#define MARKS_MAX 1024

/* ---- marks ---- */

void sl__pg_marks_free(struct pg_store *s)
{
	for (size_t i = 0; i < s->n_marks; i++)
		sl__free(&s->env, s->marks[i].type);
	sl__free(&s->env, s->marks);
}

static struct pg_mark *claim_mark(struct pg_store *s, const char *type) SL_REQUIRES(s->marks_mu)
{
	for (size_t i = 0; i < s->n_marks; i++)
		if (strcmp(s->marks[i].type, type) == 0)
			return &s->marks[i];
	return NULL;
}

/* NULL without memory or room: the type goes without a mark. */
static struct pg_mark *make_mark(struct pg_store *s, const char *type) SL_REQUIRES(s->marks_mu)
{
	if (s->n_marks == MARKS_MAX)
		return NULL;
	struct pg_mark *marks = sl__grow(&s->env, s->marks, s->n_marks, &s->cap_marks, sizeof(*marks));
	if (marks == NULL)
		return NULL;
	s->marks = marks;
	char *copy = sl__strdup(&s->env, type);
	if (copy == NULL)
		return NULL;
	s->marks[s->n_marks] = (struct pg_mark){.type = copy};
	return &s->marks[s->n_marks++];
}

static void forget_marks(struct pg_store *s) SL_REQUIRES(s->marks_mu)
{
	for (size_t i = 0; i < s->n_marks; i++)
		s->marks[i].id = 0;
}

void sl__pg_marks_forget(struct pg_store *s)
{
	sl__lock(&s->marks_mu);
	forget_marks(s);
	sl__unlock(&s->marks_mu);
}

/* Where to begin: INT32_MIN and 0 without a mark, so that everything comes after it. */
static bool get_mark(struct pg_store *s, const char *type, int32_t *priority, int64_t *id) SL_REQUIRES(s->marks_mu)
{
	const struct pg_mark *m = claim_mark(s, type);
	bool set = m != NULL && m->id != 0;
	*priority = set ? m->priority : INT32_MIN;
	*id = set ? m->id : 0;
	return set;
}

static void age_marks(struct pg_store *s) SL_REQUIRES(s->marks_mu)
{
	int64_t now = sl__mono_ns(&s->env);
	if (now - s->marks_reset_ns < MARKS_LIVE_NS)
		return;
	forget_marks(s);
	s->marks_reset_ns = now;
}

/* The claim took everything up to this job, as far as it could see. An urgent job says nothing of the rest. */
static void set_mark(struct pg_store *s, const char *type, int32_t priority, int64_t id) SL_REQUIRES(s->marks_mu)
{
	struct pg_mark *m = claim_mark(s, type);
	if (m == NULL)
		m = make_mark(s, type);
	if (m == NULL || (m->id != 0 && (priority < m->priority || (priority == m->priority && id < m->id))))
		return;
	m->priority = priority;
	m->id = id;
}

/* ---- sending ---- */

static int send_types(struct pg_call *call, struct pg_claiming *cl)
{
	const struct sl_claim_request *r = cl->request;
	struct pg_store *s = call->store;
	struct sl__pg_params *p = &call->params;
	int32_t priority;
	int64_t id;
	sl__pg_add_array(p, SL__PG_TEXT, r->n_types);
	for (size_t i = 0; i < r->n_types; i++)
		sl__pg_el_text(p, r->types[i].type);
	sl__pg_add_array(p, SL__PG_INT4, r->n_types);
	for (size_t i = 0; i < r->n_types; i++)
		sl__pg_el_int4(p, (int32_t)SL_MIN(r->types[i].limit, (uint32_t)INT32_MAX));
	/* Their marks. */
	sl__lock(&s->marks_mu);
	age_marks(s);
	sl__pg_add_array(p, SL__PG_INT4, r->n_types);
	for (size_t i = 0; i < r->n_types; i++) {
		cl->marked |= get_mark(s, r->types[i].type, &priority, &id);
		sl__pg_el_int4(p, priority);
	}
	sl__pg_add_array(p, SL__PG_INT8, r->n_types);
	for (size_t i = 0; i < r->n_types; i++) {
		(void)get_mark(s, r->types[i].type, &priority, &id);
		sl__pg_el_int8(p, id);
	}
	sl__unlock(&s->marks_mu);
	sl__pg_add_int4(p, (int32_t)SL_MIN(r->limit, (uint32_t)INT32_MAX));
	sl__pg_add_uuid(p, r->claim.bytes);
	sl__pg_add_text(p, r->worker);
	sl__pg_add_interval(p, r->lease_ms);
	sl__pg_add_bool(p, cl->lock_all);
	sl__pg_add_array(p, SL__PG_INT4, r->n_types);
	for (size_t i = 0; i < r->n_types; i++)
		sl__pg_el_int4(p, (int32_t)SL_MIN(r->types[i].free, (uint32_t)INT32_MAX));
	sl__pg_add_int4(p, (int32_t)SL_MIN(r->free, (uint32_t)INT32_MAX));
	return sl__pg_call_send(call, ST_CLAIM_TYPES);
}

static int send_one_type(struct pg_call *call, struct pg_claiming *cl)
{
	const struct sl_claim_request *r = cl->request;
	struct pg_store *s = call->store;
	struct sl__pg_params *p = &call->params;
	int32_t priority;
	int64_t id;
	sl__lock(&s->marks_mu);
	age_marks(s);
	cl->marked = get_mark(s, r->types[0].type, &priority, &id);
	sl__unlock(&s->marks_mu);
	/* Where everybody waits for work, most of what a claim has to look after is not there: the quick statement does
	 * without marks and without jobs that are claimed alone. */
	cl->quick = cl->hinted && cl->bare && !cl->marked && r->limit > 1;
	sl__pg_add_text(p, r->types[0].type);
	sl__pg_add_int4(p, (int32_t)SL_MIN(r->limit, (uint32_t)INT32_MAX));
	if (!cl->quick) {
		sl__pg_add_int4(p, priority);
		sl__pg_add_int8(p, id);
	}
	sl__pg_add_uuid(p, r->claim.bytes);
	sl__pg_add_text(p, r->worker);
	sl__pg_add_interval(p, r->lease_ms);
	sl__pg_add_int4(p, (int32_t)SL_MIN(SL_MIN(r->types[0].free, r->free), (uint32_t)INT32_MAX));
	return sl__pg_call_send(call, cl->quick ? ST_CLAIM_HINTED : ST_CLAIM_ONE_TYPE);
}

void sl__pg_claim_send(struct pg_call *call, struct pg_claiming *cl)
{
	const struct sl_claim_request *r = cl->request;
	cl->at_promote = -1;
	if (r->again) {
		sl__pg_add_uuid(&call->params, r->claim.bytes);
		sl__pg_add_text(&call->params, r->worker);
		sl__pg_add_interval(&call->params, r->lease_ms);
		cl->at = sl__pg_call_send(call, ST_CLAIM_AGAIN);
		return;
	}
	if (!cl->hinted || !cl->bare) {
		sl__pg_add_array(&call->params, SL__PG_TEXT, r->n_types);
		for (size_t i = 0; i < r->n_types; i++)
			sl__pg_el_text(&call->params, r->types[i].type);
		cl->at_promote = sl__pg_call_send(call, ST_PROMOTE);
	}
	/* The statement for one type knows one limit only. */
	bool one = r->n_types == 1 && r->types[0].limit >= r->limit;
	cl->at = one ? send_one_type(call, cl) : send_types(call, cl);
}

/* ---- reading: jobs in order, then the row of the reply, which a quick claim does without ---- */

enum {
	COL_ID,
	COL_CHAIN,
	COL_FENCE,
	COL_TYPE,
	COL_INPUT,
	COL_TRACE,
	COL_CHARGED,
	COL_PRIORITY,
	COL_MORE,
	COL_BLOCKERS, /* of the last row: whether jobs wait for a free slot */
	COL_CREATED,
	COL_SCHEDULED,
	COL_EXPIRY, /* in every row of a quick claim: the next due time */
	COL_NOW,    /* and the time */
	COL_TAKEN   /* the row stands for one that was taken out of ready */
};

static void update_marks(struct pg_store *s, const struct pg_claiming *cl, const PGresult *res)
{
	sl__lock(&s->marks_mu);
	if (cl->n < cl->request->limit || cl->promoted)
		forget_marks(s);
	else /* the last of each type; jobs come in order, so later ones overwrite */
		for (uint32_t i = 0; i < cl->n; i++)
			if (i + 1 == cl->n || cl->request->n_types > 1)
				set_mark(s, sl__pg_text(res, (int)i, COL_TYPE), sl__pg_int4(res, (int)i, COL_PRIORITY),
					 sl__pg_int8(res, (int)i, COL_ID));
	sl__unlock(&s->marks_mu);
}

static int64_t in_ms(const PGresult *res, int row, int column, int64_t now_ms)
{
	if (sl__pg_is_null(res, row, column))
		return -1;
	int64_t at = sl__pg_time_ms(res, row, column);
	return at > now_ms ? at - now_ms : 0;
}

void sl__pg_claim_read(struct pg_call *call, struct pg_claiming *cl, struct sl_claim_reply *reply)
{
	const PGresult *res = sl__pg_call_result(call, cl->at);
	int last = PQntuples(res) - 1;
	if (cl->quick) {
		cl->n = 0;
		while ((int)cl->n <= last && !sl__pg_is_null(res, (int)cl->n, COL_ID))
			cl->n++;
		cl->out = sl__pg_bool(res, 0, COL_TAKEN) ? (uint32_t)last + 1 : 0;
		*reply = (struct sl_claim_reply){.now_ms = sl__pg_time_ms(res, 0, COL_NOW), .next_expiry_in_ms = -1};
		reply->next_due_in_ms = in_ms(res, 0, COL_EXPIRY, reply->now_ms);
	} else {
		cl->n = (uint32_t)last;
		cl->out = (uint32_t)sl__pg_int8(res, last, COL_CHAIN);
		cl->seen = (uint32_t)sl__pg_int8(res, last, COL_FENCE);
		*reply = (struct sl_claim_reply){.now_ms = sl__pg_time_ms(res, last, COL_CREATED)};
		reply->next_due_in_ms = in_ms(res, last, COL_SCHEDULED, reply->now_ms);
		reply->next_expiry_in_ms = in_ms(res, last, COL_EXPIRY, reply->now_ms);
		reply->alone = sl__pg_bool(res, last, COL_BLOCKERS);
	}
	reply->n = cl->n;
	/* Do not sleep: a flagged job came alone and there are others, or some may lie below the mark. */
	if (sl__pg_bool(res, last, COL_MORE) || (cl->marked && cl->n < cl->request->limit))
		reply->next_due_in_ms = 0;
	cl->passed = cl->hinted && reply->next_due_in_ms == 0;
	if (cl->at_promote >= 0 && strcmp(PQcmdTuples(call->pipe.results[cl->at_promote]), "0") != 0)
		cl->promoted = true;
	/* Less than the limit forgets the marks: also a flagged job that came alone. */
	if (!cl->request->again)
		update_marks(call->store, cl, res);
}

int sl__pg_claim_report(struct pg_call *call, const struct pg_claiming *cl, sl_claimed_fn *claimed, void *claimed_ctx)
{
	const PGresult *res = sl__pg_call_result(call, cl->at);
	int rc = 0;
	for (int i = 0; i < (int)cl->n && rc == 0; i++) {
		const struct sl_claimed_job job = {.id = (uint64_t)sl__pg_int8(res, i, COL_ID),
						   .chain_id = (uint64_t)sl__pg_int8(res, i, COL_CHAIN),
						   .fence = (uint64_t)sl__pg_int8(res, i, COL_FENCE),
						   .type = sl__pg_text(res, i, COL_TYPE),
						   .input = sl__pg_text(res, i, COL_INPUT),
						   .traceparent = sl__pg_text(res, i, COL_TRACE),
						   .attempt = (int32_t)sl__pg_int8(res, i, COL_FENCE),
						   .charged = sl__pg_int4(res, i, COL_CHARGED),
						   .priority = sl__pg_int4(res, i, COL_PRIORITY),
						   .has_blockers = sl__pg_bool(res, i, COL_BLOCKERS),
						   .created_ms = sl__pg_time_ms(res, i, COL_CREATED),
						   .scheduled_ms = sl__pg_time_ms(res, i, COL_SCHEDULED)};
		rc = claimed(&job, claimed_ctx);
	}
	return rc;
}

void sl__pg_claim_release(const PGresult *res, int row, const struct sl_claim_request *request, struct sl_settle *out)
{
	*out = (struct sl_settle){.kind = SL_SETTLE_RELEASE,
				  .id = (uint64_t)sl__pg_int8(res, row, COL_ID),
				  .chain_id = (uint64_t)sl__pg_int8(res, row, COL_CHAIN),
				  .fence = (uint64_t)sl__pg_int8(res, row, COL_FENCE),
				  .claim = request->claim,
				  .worker = request->worker};
}
