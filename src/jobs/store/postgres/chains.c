/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients do to chains from outside. Every one of them locks the chains' first jobs in order of id, sees what the
 * last jobs are, and changes those in a second round trip.
 */
#include "jobs/store/ends.h"
#include "jobs/store/id_set.h"
#include "jobs/store/postgres/store.h"
#include "jobs/store/refusals.h"

int sl__pg_lock_heads(struct pg_call *call, struct sl_ids chains, const PGresult **heads, struct sl_err *err)
{
	struct sl__id_set sorted SL_CLEANUP(sl__id_set_fini) = {.env = &call->store->env};
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < chains.n; i++)
		rc = sl__id_set_add(&sorted, chains.ids[i], err);
	if (rc != 0)
		return rc;
	sl__id_set_sort(&sorted);
	sl__pg_add_ids(&call->params, sorted.ids, sorted.n);
	int at = sl__pg_call_send(call, ST_HEADS);
	rc = sl__pg_call_run(call, false, err);
	if (rc != 0)
		return rc;
	*heads = sl__pg_call_result(call, at);
	/* Sorted ids against the sorted rows: the first without a row is missing. */
	for (size_t i = 0; i < sorted.n; i++)
		if ((int)i == PQntuples(*heads) || (uint64_t)sl__pg_int8(*heads, (int)i, 0) != sorted.ids[i])
			return sl__no_chain(sorted.ids[i], err);
	return 0;
}

/* A request to change chains: a call with their heads locked, and what it was asked for. */
struct request {
	struct pg_call call;
	const PGresult *heads;
	const struct sl_store_scope *scope;
	struct sl_err *err;
};

/* Call close_request, whatever this returns. */
static int open_request(struct request *r, struct pg_store *store, struct sl_ids chains)
{
	int rc = sl__pg_call_open(&r->call, store, sl__scope_tx(r->scope), PG_LONG, r->err);
	if (rc != 0)
		return rc;
	sl__pg_call_audit(&r->call, r->scope);
	return sl__pg_lock_heads(&r->call, chains, &r->heads, r->err);
}

static void close_request(struct request *r)
{
	sl__pg_call_close(&r->call);
}

/* The last jobs of those chains whose status is among these bits, as a parameter. */
static void add_lasts(struct request *r, uint32_t statuses)
{
	size_t n = 0;
	for (int i = 0; i < PQntuples(r->heads); i++)
		n += (statuses >> sl__pg_int4(r->heads, i, 2) & 1) != 0;
	sl__pg_add_array(&r->call.params, SL__PG_INT8, n);
	for (int i = 0; i < PQntuples(r->heads); i++)
		if ((statuses >> sl__pg_int4(r->heads, i, 2) & 1) != 0)
			sl__pg_el_int8(&r->call.params, sl__pg_int8(r->heads, i, 1));
}

#define LIVE (1u << SL_JOB_BLOCKED | 1u << SL_JOB_PENDING)

/* ---- ending ---- */

/* End the last jobs of the chains, and open what waited for them. *n: how many ended. */
static int end_lasts(struct request *r, const struct sl__end *end, size_t *n)
{
	struct pg_call *call = &r->call;
	const struct sl_store_scope *l = r->scope;
	int at_unblock = -1;
	SL__PG_PARAMS_LOCAL(unblock, &call->store->env);
	add_lasts(r, LIVE);
	sl__pg_add_int4(&call->params, (int32_t)end->status);
	sl__pg_add_text(&call->params, end->output);
	sl__pg_add_text(&call->params, end->error);
	sl__pg_add_text(&call->params, end->history);
	sl__pg_add_array(&unblock, SL__PG_INT8, (size_t)PQntuples(r->heads));
	for (int i = 0; i < PQntuples(r->heads); i++)
		sl__pg_el_int8(&unblock, sl__pg_int8(r->heads, i, 0));
	sl__pg_pipe_end(&call->pipe);
	int at = sl__pg_call_send(call, ST_END);
	if (end->status == SL_JOB_COMPLETED)
		at_unblock = sl__pg_send(&call->pipe, &call->store->statements[ST_UNBLOCK], &unblock);
	int rc = sl__pg_call_run(call, true, r->err);
	if (rc != 0)
		return rc;
	/* Rows: id, chain, type, was leased, watched */
	const PGresult *res = sl__pg_call_result(call, at);
	for (int i = 0; i < PQntuples(res); i++) {
		uint64_t id = (uint64_t)sl__pg_int8(res, i, 0), chain_id = (uint64_t)sl__pg_int8(res, i, 1);
		const char *type = sl__pg_text(res, i, 2);
		if (sl__pg_bool(res, i, 3))
			sl__report_note(l, SL_NOTE_OWNERSHIP_LOST, type, id, end->reason);
		sl__report_change(l, end->change, id, chain_id, type);
		if (sl__pg_bool(res, i, 4))
			sl__report_note(l, SL_NOTE_CHAIN_ENDED, NULL, chain_id, SL_LOST_NOT);
		if (end->status == SL_JOB_COMPLETED)
			sl__report_change(l, SL_CHANGE_CHAIN_COMPLETED, id, chain_id, type);
	}
	*n = (size_t)PQntuples(res);
	if (at_unblock >= 0)
		sl__pg_report_unblocked(call->store, sl__pg_call_result(call, at_unblock), l);
	return 0;
}

static int end_one_chain(struct pg_store *store, uint64_t chain_id, struct sl__end end,
			 const struct sl_store_scope *scope, struct sl_err *err)
{
	struct request r SL_CLEANUP(close_request) = {.scope = scope, .err = err};
	size_t n = 0;
	int rc = open_request(&r, store, (struct sl_ids){&chain_id, 1});
	if (rc != 0)
		return rc;
	int32_t status = sl__pg_int4(r.heads, 0, 2);
	if ((LIVE >> status & 1) == 0)
		return sl__refuse_ended(chain_id, (enum sl_job_status)status, err);
	return end_lasts(&r, &end, &n);
}

int sl__pg_complete_chain(void *store, uint64_t chain_id, const char *output, const struct sl_store_scope *scope,
			  struct sl_err *err)
{
	return end_one_chain(store, chain_id, sl__end_completed(output), scope, err);
}

int sl__pg_fail_chain(void *store, uint64_t chain_id, const char *error, const struct sl_store_scope *scope,
		      struct sl_err *err)
{
	return end_one_chain(store, chain_id, sl__end_failed(error), scope, err);
}

int sl__pg_cancel(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n, struct sl_err *err)
{
	struct request r SL_CLEANUP(close_request) = {.scope = scope, .err = err};
	size_t changed = 0;
	int rc = open_request(&r, store, chains);
	if (rc == 0)
		rc = end_lasts(&r, &sl__end_cancelled, &changed);
	if (rc == 0 && n != NULL)
		*n = changed;
	return rc;
}

/* ---- continuing ---- */

/* Run a statement that lets jobs continue. Rows: id, chain, type, can be claimed. */
static int run_continue(struct request *r, enum pg_statement statement, size_t *n)
{
	const PGresult *res = NULL;
	int rc = sl__pg_call_one(&r->call, statement, &res, r->err);
	if (rc != 0)
		return rc;
	for (int i = 0; i < PQntuples(res); i++)
		if (sl__pg_bool(res, i, 3))
			sl__report_note(r->scope, SL_NOTE_JOB_SCHEDULED, sl__pg_text(res, i, 2),
					(uint64_t)sl__pg_int8(res, i, 0), SL_LOST_NOT);
	sl__pg_marks_forget(r->call.store);
	if (n != NULL)
		*n = (size_t)PQntuples(res);
	return 0;
}

/* Take the keys of the chains again. SL_EEXIST, SL_ECONFLICT: one of them cannot continue. */
static int take_keys(struct request *r, const struct sl__id_set *chains, const struct sl__id_set *lasts)
{
	struct pg_call *call = &r->call;
	sl__pg_add_ids(&call->params, lasts->ids, lasts->n);
	(void)sl__pg_call_send(call, ST_LOCK_BLOCKERS);
	sl__pg_add_ids(&call->params, lasts->ids, lasts->n);
	int at_gone = sl__pg_call_send(call, ST_BLOCKERS_GONE);
	sl__pg_add_ids(&call->params, chains->ids, chains->n);
	(void)sl__pg_call_send(call, ST_TAKE_KEYS);
	sl__pg_add_ids(&call->params, chains->ids, chains->n);
	int at_held = sl__pg_call_send(call, ST_KEYS_HELD);
	int rc = sl__pg_call_run(call, false, r->err);
	if (rc != 0)
		return rc;
	const PGresult *gone = sl__pg_call_result(call, at_gone), *held = sl__pg_call_result(call, at_held);
	if (PQntuples(gone) > 0)
		rc = sl__refuse_orphan((uint64_t)sl__pg_int8(gone, 0, 0), (uint64_t)sl__pg_int8(gone, 0, 1), r->err);
	else if (PQntuples(held) > 0)
		rc = sl__refuse_key((uint64_t)sl__pg_int8(held, 0, 0), (uint64_t)sl__pg_int8(held, 0, 1), r->err);
	sl__pg_pipe_end(&call->pipe);
	return rc;
}

int sl__pg_redrive(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n, struct sl_err *err)
{
	struct request r SL_CLEANUP(close_request) = {.scope = scope, .err = err};
	struct pg_store *s = store;
	int rc = open_request(&r, s, chains);
	if (rc != 0)
		return rc;
	/* The failed and cancelled chains, and their last jobs. */
	struct sl__id_set stopped SL_CLEANUP(sl__id_set_fini) = {.env = &s->env};
	struct sl__id_set lasts SL_CLEANUP(sl__id_set_fini) = {.env = &s->env};
	for (int i = 0; rc == 0 && i < PQntuples(r.heads); i++) {
		int32_t status = sl__pg_int4(r.heads, i, 2);
		if (status != SL_JOB_FAILED && status != SL_JOB_CANCELLED)
			continue;
		rc = sl__id_set_add(&stopped, (uint64_t)sl__pg_int8(r.heads, i, 0), err);
		if (rc == 0)
			rc = sl__id_set_add(&lasts, (uint64_t)sl__pg_int8(r.heads, i, 1), err);
	}
	sl__pg_pipe_end(&r.call.pipe);
	if (rc == 0 && stopped.n > 0)
		rc = take_keys(&r, &stopped, &lasts);
	if (rc != 0)
		return rc;
	if (sl__pg_from_http(scope)) {
		sl__pg_add_ids(&r.call.params, stopped.ids, stopped.n);
		(void)sl__pg_call_send(&r.call, ST_MARK_HTTP);
	}
	sl__pg_add_ids(&r.call.params, lasts.ids, lasts.n);
	return run_continue(&r, ST_REDRIVE, n);
}

int sl__pg_trigger(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n, struct sl_err *err)
{
	struct request r SL_CLEANUP(close_request) = {.scope = scope, .err = err};
	int rc = open_request(&r, store, chains);
	if (rc != 0)
		return rc;
	add_lasts(&r, 1u << SL_JOB_PENDING);
	sl__pg_pipe_end(&r.call.pipe);
	return run_continue(&r, ST_TRIGGER, n);
}

/* Column 4 of ST_GET_CHAIN is the status. */
int sl__pg_watch(void *store, uint64_t chain_id, enum sl_job_status *status, struct sl_err *err)
{
	struct pg_call call;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_int8(&call.params, (int64_t)chain_id);
	(void)sl__pg_call_send(&call, ST_WATCH);
	sl__pg_add_int8(&call.params, (int64_t)chain_id);
	int at = sl__pg_call_send(&call, ST_GET_CHAIN);
	rc = sl__pg_call_run(&call, true, err);
	if (rc == 0 && PQntuples(sl__pg_call_result(&call, at)) == 0)
		rc = sl__no_chain(chain_id, err);
	if (rc == 0)
		*status = (enum sl_job_status)sl__pg_int4(sl__pg_call_result(&call, at), 0, 4);
	sl__pg_call_close(&call);
	return rc;
}
