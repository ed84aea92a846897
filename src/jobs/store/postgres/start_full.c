/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting chains with keys or blockers. The server resolves the keys; a key that is given twice in one call is
 * resolved here, by letting only its first chain go to the server, since one statement cannot meet the same row twice.
 */
#include <stdlib.h>

#include "jobs/store/postgres/store.h"
#include "jobs/store/refusals.h"

/* Beyond this many chains the nested loops of the prepared statement cost more than to plan it anew with hash joins. */
#define NESTED_MAX 128

struct full {
	const struct sl_new_chain *chains;
	size_t n;     /* chains given */
	size_t *sent; /* numbers of the chains that go to the server */
	size_t n_sent;
	size_t *same_as; /* per chain: the number in sent[] whose result it has */
	size_t n_edges;
};

static int by_key(const void *a, const void *b, void *ctx)
{
	const struct sl_new_chain *chains = ctx;
	size_t x = *(const size_t *)a, y = *(const size_t *)b;
	const char *kx = chains[x].key, *ky = chains[y].key;
	int c = kx == NULL || ky == NULL ? (kx == NULL) - (ky == NULL) : strcmp(kx, ky);
	return c != 0 ? c : x < y ? -1 : x > y;
}

static int resolve(struct pg_store *s, struct full *f, struct sl_err *err)
{
	size_t *order = sl__calloc(&s->env, f->n, sizeof(*order));
	f->sent = sl__calloc(&s->env, f->n, sizeof(*f->sent));
	f->same_as = sl__calloc(&s->env, f->n, sizeof(*f->same_as));
	if (order == NULL || f->sent == NULL || f->same_as == NULL) {
		sl__free(&s->env, order);
		return sl_err_set(err, SL_ENOMEM, "postgres: start: out of memory");
	}
	for (size_t i = 0; i < f->n; i++)
		order[i] = i;
	union {
		const struct sl_new_chain *in;
		void *out;
	} chains = {.in = f->chains};
	qsort_r(order, f->n, sizeof(*order), by_key, chains.out);
	/* same_as[i] is at first the first chain with the key of chain i. */
	for (size_t i = 0; i < f->n; i++) {
		const char *key = f->chains[order[i]].key, *before = i > 0 ? f->chains[order[i - 1]].key : NULL;
		bool again = key != NULL && before != NULL && strcmp(key, before) == 0;
		f->same_as[order[i]] = again ? f->same_as[order[i - 1]] : order[i];
	}
	size_t *place = order; /* the order is not needed any more: number of a chain in sent[] */
	for (size_t i = 0; i < f->n; i++) {
		if (f->same_as[i] == i) {
			place[i] = f->n_sent;
			f->sent[f->n_sent++] = i;
			f->n_edges += f->chains[i].job.n_blockers;
		}
		f->same_as[i] = place[f->same_as[i]];
	}
	sl__free(&s->env, order);
	return 0;
}

#define EACH(c, f, p, oid, add)                                                                                        \
	do {                                                                                                           \
		sl__pg_add_array(p, oid, (f)->n_sent);                                                                 \
		for (size_t each = 0; each < (f)->n_sent; each++) {                                                    \
			const struct sl_new_chain *c = &(f)->chains[(f)->sent[each]];                                  \
			add;                                                                                           \
		}                                                                                                      \
	} while (0)

#define EACH_EDGE(each, job, edge, f, p, oid, add)                                                                     \
	do {                                                                                                           \
		sl__pg_add_array(p, oid, (f)->n_edges);                                                                \
		for (size_t each = 0; each < (f)->n_sent; each++) {                                                    \
			const struct sl_new_job *job = &(f)->chains[(f)->sent[each]].job;                              \
			for (size_t edge = 0; edge < job->n_blockers; edge++)                                          \
				add;                                                                                   \
		}                                                                                                      \
	} while (0)

static void add_edge_chains(struct sl__pg_params *p, const struct full *f)
{
	EACH_EDGE(each, job, edge, f, p, SL__PG_INT8, sl__pg_el_int8(p, (int64_t)job->blockers[edge]));
}

/* Send and run the statements; record may be NULL. */
static int run_full(struct pg_call *call, const struct full *f, const struct sl_audit_record *record,
		    const PGresult **res, struct sl_err *err)
{
	enum pg_statement statement = record != NULL ? ST_START_FULL_AUDITED : ST_START_FULL;
	struct sl__pg_params *p = &call->params;
	bool planned = f->n_sent > NESTED_MAX;
	if (f->n_edges > 0) {
		add_edge_chains(p, f);
		(void)sl__pg_call_send(call, ST_LOCK_SHARE);
	}
	if (planned)
		(void)sl__pg_call_send_sql(call, "SELECT set_config('enable_hashjoin', 'on', true),"
						 " set_config('plan_cache_mode', 'auto', true)");
	EACH(c, f, p, SL__PG_TEXT, sl__pg_el_text(p, c->job.type));
	EACH(c, f, p, SL__PG_TEXT, sl__pg_el_text(p, c->job.input != NULL ? c->job.input : "null"));
	EACH(c, f, p, SL__PG_INT4, sl__pg_el_int4(p, c->job.priority));
	EACH(c, f, p, SL__PG_TIMESTAMPTZ, sl__pg_el_time(p, c->job.at_ms));
	EACH(c, f, p, SL__PG_INTERVAL, sl__pg_el_interval(p, c->job.delay_ms));
	EACH(c, f, p, SL__PG_TEXT, sl__pg_el_text(p, c->job.traceparent));
	EACH(c, f, p, SL__PG_TEXT, sl__pg_el_text(p, c->key));
	EACH(c, f, p, SL__PG_INT4, sl__pg_el_int4(p, (int32_t)c->scope));
	EACH(c, f, p, SL__PG_INTERVAL, sl__pg_el_interval(p, c->window_ms));
	EACH_EDGE(each, job, edge, f, p, SL__PG_INT4, sl__pg_el_int4(p, (int32_t)each + 1));
	EACH_EDGE(each, job, edge, f, p, SL__PG_INT4, sl__pg_el_int4(p, (int32_t)edge));
	add_edge_chains(p, f);
	if (record != NULL)
		sl__pg_add_record(p, record);
	int at = planned ? sl__pg_call_send_sql(call, call->store->statements[statement].sql)
			 : sl__pg_call_send(call, statement);
	struct sl_err local;
	int rc = sl__pg_call_run(call, true, err != NULL ? err : &local);
	if (rc != 0)
		return sl__pg_blocker_error(rc, err != NULL ? err : &local);
	*res = sl__pg_call_result(call, at);
	return 0;
}

int sl__pg_start_full(struct pg_store *s, const struct pg_start *start, struct sl_err *err)
{
	const struct sl_store_scope *l = start->scope;
	struct full f = {.chains = start->chains, .n = start->n};
	struct pg_call call;
	const PGresult *res = NULL;
	const struct sl_audit_record *record = l != NULL && l->n_audit > 0 ? l->audit : NULL;
	if (record != NULL && l->n_audit > 1)
		return sl_err_set(err, SL_EINVAL, "start: chains with keys or blockers have one audit record");
	call.conn = NULL;
	int rc = resolve(s, &f, err);
	if (rc == 0)
		rc = sl__pg_call_open(&call, s, start->tx, PG_ONCE, err);
	if (rc == 0)
		rc = run_full(&call, &f, record, &res, err);
	for (size_t i = 0; rc == 0 && i < f.n; i++) {
		struct sl_started *out = &start->out[i];
		int row = (int)f.same_as[i];
		bool first = f.sent[f.same_as[i]] == i;
		out->chain_id = (uint64_t)sl__pg_int8(res, row, 0);
		out->deduplicated = !first || sl__pg_bool(res, row, 1);
		if (out->deduplicated)
			continue;
		enum pg_created how = sl__pg_bool(res, row, 3) ? PG_CREATED_SCHEDULED : PG_CREATED_READY;
		if (sl__pg_int4(res, row, 2) > 0)
			how = PG_CREATED_BLOCKED;
		sl__pg_report_created(l, out->chain_id, out->chain_id, f.chains[i].job.type, how);
	}
	sl__pg_call_close(&call);
	/* The statement reports only that a blocker is missing; which one is asked for here. */
	if (rc == SL_ENOENT && err != NULL && sl__pg_call_open(&call, s, start->tx, PG_ONCE, NULL) == 0) {
		add_edge_chains(&call.params, &f);
		if (sl__pg_call_one(&call, ST_MISSING, &res, NULL) == 0 && PQntuples(res) > 0)
			rc = sl__no_blocker((uint64_t)sl__pg_int8(res, 0, 0), err);
		sl__pg_call_close(&call);
	}
	sl__free(&s->env, f.sent);
	sl__free(&s->env, f.same_as);
	return rc;
}
