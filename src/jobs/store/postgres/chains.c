/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients do to chains from outside. Every one of them locks the chains' first jobs in order of id, sees what the
 * last jobs are, and changes those in a second round trip.
 */
#include <stdlib.h>

#include "jobs/store/postgres/store.h"
#include "jobs/store/refusals.h"

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

/* Sorted ids against the sorted rows that were found: the first that has none; 0: all have. */
static uint64_t first_missing(const uint64_t *sorted, size_t n, const PGresult *res)
{
	int row = 0;
	for (size_t i = 0; i < n; i++) {
		while (row < PQntuples(res) && (uint64_t)sl__pg_int8(res, row, 0) < sorted[i])
			row++;
		if (row == PQntuples(res) || (uint64_t)sl__pg_int8(res, row, 0) != sorted[i])
			return sorted[i];
	}
	return 0;
}

int sl__pg_lock_heads(struct pg_call *call, const uint64_t *chains, size_t n, int *at, struct sl_err *err)
{
	const struct sl_env *env = &call->store->env;
	uint64_t *sorted = sl__calloc(env, n, sizeof(*sorted));
	if (sorted == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
	if (n > 0)
		memcpy(sorted, chains, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), by_number);
	sl__pg_add_ids(&call->params, sorted, n);
	*at = sl__pg_call_send(call, ST_HEADS);
	int rc = sl__pg_call_run(call, false, err);
	uint64_t missing = rc == 0 ? first_missing(sorted, n, sl__pg_call_result(call, *at)) : 0;
	/* An id of 0 is missing too, and cannot be distinguished from no id by its number. */
	if (rc == 0 && (missing != 0 || (n > 0 && sorted[0] == 0)))
		rc = sl_err_set(err, SL_ENOENT, "postgres: chain %llu: not found", (unsigned long long)missing);
	sl__free(env, sorted);
	return rc;
}

/* The last jobs of those chains whose status is among these bits, as a parameter. Returns how many. */
static size_t add_lasts(struct pg_call *call, const PGresult *heads, uint32_t statuses)
{
	size_t n = 0;
	for (int i = 0; i < PQntuples(heads); i++)
		n += (statuses >> sl__pg_int4(heads, i, 2) & 1) != 0;
	sl__pg_add_array(&call->params, SL__PG_INT8, n);
	for (int i = 0; i < PQntuples(heads); i++)
		if ((statuses >> sl__pg_int4(heads, i, 2) & 1) != 0)
			sl__pg_el_int8(&call->params, sl__pg_int8(heads, i, 1));
	return n;
}

#define LIVE (1u << SL_JOB_BLOCKED | 1u << SL_JOB_PENDING)

/* ---- ending ---- */

/* How chains end from outside. */
struct end {
	enum sl_job_status status;
	enum sl_lost_reason reason; /* for who has them */
	enum sl_change_kind change;
	const char *output, *error;
};

/* Rows: id, chain, type, was leased, watched */
static size_t tell_ended(const PGresult *res, const struct end *end, const struct sl_store_listen *l)
{
	for (int i = 0; i < PQntuples(res); i++) {
		uint64_t id = (uint64_t)sl__pg_int8(res, i, 0), chain_id = (uint64_t)sl__pg_int8(res, i, 1);
		const char *type = sl__pg_text(res, i, 2);
		if (sl__pg_bool(res, i, 3))
			sl__pg_note(l, SL_NOTE_OWNERSHIP_LOST, type, id, end->reason);
		sl__pg_change(l, end->change, id, chain_id, type);
		if (sl__pg_bool(res, i, 4))
			sl__pg_note(l, SL_NOTE_CHAIN_ENDED, NULL, chain_id, SL_LOST_NOT);
		if (end->status == SL_JOB_COMPLETED)
			sl__pg_change(l, SL_CHANGE_CHAIN_COMPLETED, id, chain_id, type);
	}
	return (size_t)PQntuples(res);
}

/* In a call whose heads are locked: end the last jobs, open what waited. */
static int end_lasts(struct pg_call *call, int at_heads, const struct end *end, size_t *n,
		     const struct sl_store_listen *listen, struct sl_err *err)
{
	const PGresult *heads = sl__pg_call_result(call, at_heads);
	int at_unblock = -1;
	(void)add_lasts(call, heads, LIVE);
	sl__pg_add_int4(&call->params, (int32_t)end->status);
	sl__pg_add_text(&call->params, end->output);
	sl__pg_add_text(&call->params, end->error);
	struct sl__pg_params unblock;
	sl__pg_params_init(&unblock, &call->store->env);
	sl__pg_add_array(&unblock, SL__PG_INT8, (size_t)PQntuples(heads));
	for (int i = 0; i < PQntuples(heads); i++)
		sl__pg_el_int8(&unblock, sl__pg_int8(heads, i, 0));
	sl__pg_pipe_end(&call->pipe);
	int at = sl__pg_call_send(call, ST_END);
	if (end->status == SL_JOB_COMPLETED)
		at_unblock = sl__pg_send(&call->pipe, &call->store->statements[ST_UNBLOCK], &unblock);
	sl__pg_params_fini(&unblock);
	int rc = sl__pg_call_run(call, true, err);
	if (rc != 0)
		return rc;
	*n = tell_ended(sl__pg_call_result(call, at), end, listen);
	if (at_unblock >= 0)
		sl__pg_tell_unblocked(call->store, sl__pg_call_result(call, at_unblock), listen);
	return 0;
}

static int end_chain(struct pg_store *store, sl_store_tx *tx, uint64_t chain_id, const struct end *end,
		     const struct sl_store_listen *listen, struct sl_err *err)
{
	struct pg_call call;
	size_t n = 0;
	int at;
	int rc = sl__pg_call_open(&call, store, tx, PG_LONG, err);
	if (rc != 0)
		return rc;
	sl__pg_call_audit(&call, listen);
	rc = sl__pg_lock_heads(&call, &chain_id, 1, &at, err);
	if (rc == 0 && (LIVE >> sl__pg_int4(sl__pg_call_result(&call, at), 0, 2) & 1) == 0)
		rc = sl_err_set(err, SL_EEXIST, "postgres: chain %llu has ended", (unsigned long long)chain_id);
	if (rc == 0)
		rc = end_lasts(&call, at, end, &n, listen, err);
	sl__pg_call_close(&call);
	return rc;
}

int sl__pg_complete_chain(void *store, sl_store_tx *tx, uint64_t chain_id, const char *output,
			  const struct sl_store_listen *listen, struct sl_err *err)
{
	const struct end end = {.status = SL_JOB_COMPLETED,
				.reason = SL_LOST_COMPLETED,
				.change = SL_CHANGE_COMPLETED,
				.output = output != NULL ? output : "null"};
	return end_chain(store, tx, chain_id, &end, listen, err);
}

int sl__pg_fail_chain(void *store, sl_store_tx *tx, uint64_t chain_id, const char *error,
		      const struct sl_store_listen *listen, struct sl_err *err)
{
	const struct end end = {.status = SL_JOB_FAILED,
				.reason = SL_LOST_FAILED,
				.change = SL_CHANGE_FAILED,
				.error = error != NULL ? error : "failed from outside"};
	return end_chain(store, tx, chain_id, &end, listen, err);
}

int sl__pg_cancel(void *store, sl_store_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n,
		  const struct sl_store_listen *listen, struct sl_err *err)
{
	static const struct end end = {
		.status = SL_JOB_CANCELLED, .reason = SL_LOST_CANCELLED, .change = SL_CHANGE_CANCELLED};
	struct pg_call call;
	size_t changed = 0;
	int at;
	int rc = sl__pg_call_open(&call, store, tx, PG_LONG, err);
	if (rc != 0)
		return rc;
	sl__pg_call_audit(&call, listen);
	rc = sl__pg_lock_heads(&call, chains, n_chains, &at, err);
	if (rc == 0)
		rc = end_lasts(&call, at, &end, &changed, listen, err);
	if (rc == 0 && n != NULL)
		*n = changed;
	sl__pg_call_close(&call);
	return rc;
}

/* ---- going on ---- */

/* Rows: id, chain, type, can be claimed */
static void tell_going(struct pg_store *s, const PGresult *res, size_t *n, const struct sl_store_listen *listen)
{
	for (int i = 0; i < PQntuples(res); i++)
		if (sl__pg_bool(res, i, 3))
			sl__pg_note(listen, SL_NOTE_JOB_SCHEDULED, sl__pg_text(res, i, 2),
				    (uint64_t)sl__pg_int8(res, i, 0), SL_LOST_NOT);
	sl__pg_marks_forget(s);
	if (n != NULL)
		*n = (size_t)PQntuples(res);
}

/* Failed and cancelled chains, and their last jobs. */
struct stopped {
	uint64_t *chains, *lasts;
	size_t n;
};

static void stopped_fini(const struct pg_call *call, struct stopped *st)
{
	sl__free(&call->store->env, st->chains);
	sl__free(&call->store->env, st->lasts);
}

static int find_stopped(struct pg_call *call, const PGresult *heads, struct stopped *st, struct sl_err *err)
{
	size_t n = (size_t)PQntuples(heads);
	st->chains = sl__calloc(&call->store->env, n, sizeof(*st->chains));
	st->lasts = sl__calloc(&call->store->env, n, sizeof(*st->lasts));
	if (st->chains == NULL || st->lasts == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: out of memory");
	for (int i = 0; i < PQntuples(heads); i++) {
		int32_t status = sl__pg_int4(heads, i, 2);
		if (status != SL_JOB_FAILED && status != SL_JOB_CANCELLED)
			continue;
		st->chains[st->n] = (uint64_t)sl__pg_int8(heads, i, 0);
		st->lasts[st->n++] = (uint64_t)sl__pg_int8(heads, i, 1);
	}
	return 0;
}

/* Take the keys of the chains again. SL_EEXIST, SL_ECONFLICT: one of them cannot continue. */
static int prepare_redrive(struct pg_call *call, const struct stopped *st, struct sl_err *err)
{
	sl__pg_add_ids(&call->params, st->lasts, st->n);
	(void)sl__pg_call_send(call, ST_LOCK_BLOCKERS);
	sl__pg_add_ids(&call->params, st->lasts, st->n);
	int at_gone = sl__pg_call_send(call, ST_BLOCKERS_GONE);
	sl__pg_add_ids(&call->params, st->chains, st->n);
	(void)sl__pg_call_send(call, ST_TAKE_KEYS);
	sl__pg_add_ids(&call->params, st->chains, st->n);
	int at_held = sl__pg_call_send(call, ST_KEYS_HELD);
	int rc = sl__pg_call_run(call, false, err);
	if (rc != 0)
		return rc;
	const PGresult *gone = sl__pg_call_result(call, at_gone), *held = sl__pg_call_result(call, at_held);
	if (PQntuples(gone) > 0)
		rc = sl__refuse_orphan((uint64_t)sl__pg_int8(gone, 0, 0), (uint64_t)sl__pg_int8(gone, 0, 1), err);
	else if (PQntuples(held) > 0)
		rc = sl__refuse_key((uint64_t)sl__pg_int8(held, 0, 0), (uint64_t)sl__pg_int8(held, 0, 1), err);
	sl__pg_pipe_end(&call->pipe);
	return rc;
}

static int redrive_stopped(struct pg_call *call, const struct stopped *st, size_t *n,
			   const struct sl_store_listen *listen, struct sl_err *err)
{
	const PGresult *res = NULL;
	int rc = st->n > 0 ? prepare_redrive(call, st, err) : 0;
	if (rc != 0)
		return rc;
	if (sl__pg_from_http(listen)) {
		sl__pg_add_ids(&call->params, st->chains, st->n);
		(void)sl__pg_call_send(call, ST_MARK_HTTP);
	}
	sl__pg_add_ids(&call->params, st->lasts, st->n);
	rc = sl__pg_call_one(call, ST_REDRIVE, &res, err);
	if (rc == 0)
		tell_going(call->store, res, n, listen);
	return rc;
}

int sl__pg_redrive(void *store, sl_store_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n,
		   const struct sl_store_listen *listen, struct sl_err *err)
{
	struct pg_call call;
	struct stopped st = {.n = 0};
	int at;
	int rc = sl__pg_call_open(&call, store, tx, PG_LONG, err);
	if (rc != 0)
		return rc;
	sl__pg_call_audit(&call, listen);
	rc = sl__pg_lock_heads(&call, chains, n_chains, &at, err);
	if (rc == 0)
		rc = find_stopped(&call, sl__pg_call_result(&call, at), &st, err);
	if (rc == 0) {
		sl__pg_pipe_end(&call.pipe);
		rc = redrive_stopped(&call, &st, n, listen, err);
	}
	stopped_fini(&call, &st);
	sl__pg_call_close(&call);
	return rc;
}

int sl__pg_trigger(void *store, sl_store_tx *tx, const uint64_t *chains, size_t n_chains, size_t *n,
		   const struct sl_store_listen *listen, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int at;
	int rc = sl__pg_call_open(&call, store, tx, PG_LONG, err);
	if (rc != 0)
		return rc;
	sl__pg_call_audit(&call, listen);
	rc = sl__pg_lock_heads(&call, chains, n_chains, &at, err);
	if (rc == 0) {
		(void)add_lasts(&call, sl__pg_call_result(&call, at), 1u << SL_JOB_PENDING);
		sl__pg_pipe_end(&call.pipe);
		rc = sl__pg_call_one(&call, ST_TRIGGER, &res, err);
	}
	if (rc == 0)
		tell_going(store, res, n, listen);
	sl__pg_call_close(&call);
	return rc;
}

int sl__pg_pause(void *store, const char *type, int paused, const struct sl_store_listen *listen, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_text(&call.params, type);
	sl__pg_call_audit(&call, listen);
	rc = sl__pg_call_one(&call, paused ? ST_PAUSE : ST_RESUME, &res, err);
	if (rc == 0 && !paused && PQntuples(res) > 0)
		sl__pg_note(listen, SL_NOTE_JOB_SCHEDULED, type, 0, SL_LOST_NOT);
	sl__pg_call_close(&call);
	return rc;
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
		rc = sl_err_set(err, SL_ENOENT, "postgres: chain %llu: not found", (unsigned long long)chain_id);
	if (rc == 0)
		*status = (enum sl_job_status)sl__pg_int4(sl__pg_call_result(&call, at), 0, 4);
	sl__pg_call_close(&call);
	return rc;
}
