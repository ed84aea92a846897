/* SPDX-License-Identifier: Apache-2.0 */
/* Holding on to jobs, and taking back those whose lease has run out. */
#include <stdio.h>

#include "jobs/store/postgres/store.h"

int sl__pg_guard(void *store, sl_store_tx *tx, uint64_t id, uint64_t fence, enum sl_lost_reason *out,
		 struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, tx, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_int8(&call.params, (int64_t)id);
	sl__pg_add_int8(&call.params, (int64_t)fence);
	rc = sl__pg_call_one(&call, ST_GUARD, &res, err);
	if (rc == 0)
		*out = PQntuples(res) == 0 ? SL_LOST_NOT_FOUND : sl__pg_reason(res, 0);
	sl__pg_call_close(&call);
	return rc;
}

int sl__pg_progress(void *store, uint64_t id, uint64_t fence, const char *progress, enum sl_lost_reason *out,
		    struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_int8(&call.params, (int64_t)id);
	sl__pg_add_int8(&call.params, (int64_t)fence);
	sl__pg_add_text(&call.params, progress);
	rc = sl__pg_call_one(&call, ST_PROGRESS, &res, err);
	*out = SL_LOST_NOT;
	if (rc == 0 && PQntuples(res) == 0) {
		rc = sl__pg_lost_reasons(&call, &id, &fence, 1, out, err);
		*out = *out == SL_LOST_PUT_BACK ? SL_LOST_TAKEN : *out;
		if (rc == 0 && *out == SL_LOST_NOT)
			rc = sl_err_set(err, SL_EAGAIN, "postgres: progress: a transaction has the job's row");
	}
	sl__pg_call_close(&call);
	return rc;
}

/* ---- renewing ---- */

static void add_leases(struct sl__pg_params *p, const struct sl_renewal *renewals, size_t n)
{
	sl__pg_add_array(p, SL__PG_UUID, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_uuid(p, renewals[i].claim.bytes);
	sl__pg_add_array(p, SL__PG_INTERVAL, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_interval(p, SL_MAX(renewals[i].lease_ms, 1));
	sl__pg_add_array(p, SL__PG_BOOL, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_bool(p, renewals[i].started != 0);
}

static size_t add_jobs(struct sl__pg_params *p, const struct sl_renewal *renewals, size_t n)
{
	size_t jobs = 0;
	for (size_t i = 0; i < n; i++)
		jobs += renewals[i].n;
	sl__pg_add_array(p, SL__PG_INT8, jobs);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < renewals[i].n; j++)
			sl__pg_el_int8(p, (int64_t)renewals[i].ids[j]);
	sl__pg_add_array(p, SL__PG_INT8, jobs);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < renewals[i].n; j++)
			sl__pg_el_int8(p, (int64_t)renewals[i].fences[j]);
	return jobs;
}

/* reasons[jobs], in the order of renewals and their ids. Without a lease all of a claim is lost. */
static void find_lost(const PGresult *leases, const PGresult *jobs, const struct sl_renewal *renewals, size_t n,
		      bool *renewed, enum sl_lost_reason *reasons)
{
	for (int row = 0; row < PQntuples(leases); row++)
		renewed[sl__pg_int4(leases, row, 0) - 1] = true;
	size_t at = 0;
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < renewals[i].n; j++)
			reasons[at++] = renewed[i] ? SL_LOST_NOT : SL_LOST_TAKEN;
	for (int row = 0; row < PQntuples(jobs); row++)
		reasons[sl__pg_int4(jobs, row, 0) - 1] = sl__pg_reason(jobs, row);
}

static void tell_lost(const struct sl_renewal *renewals, size_t n, const enum sl_lost_reason *reasons, sl_lost_fn *lost,
		      void *lost_ctx)
{
	for (size_t i = 0, at = 0; i < n; i++)
		for (size_t j = 0; j < renewals[i].n; j++, at++)
			if (reasons[at] != SL_LOST_NOT)
				lost(renewals[i].ids[j], renewals[i].fences[j], reasons[at], lost_ctx);
}

/* Losing a renewal only runs a job again, so the disk is not waited for. */
int sl__pg_renew(void *store, const struct sl_renewal *renewals, size_t n, sl_lost_fn *lost, void *lost_ctx,
		 struct sl_err *err)
{
	struct pg_store *s = store;
	struct pg_call call;
	int rc = sl__pg_call_open_renewal(&call, s, err);
	if (rc != 0)
		return rc;
	(void)sl__pg_call_send(&call, ST_ASYNC);
	add_leases(&call.params, renewals, n);
	int at_leases = sl__pg_call_send(&call, ST_RENEW);
	size_t jobs = add_jobs(&call.params, renewals, n);
	int at_jobs = sl__pg_call_send(&call, ST_RENEW_LOST);
	bool *renewed = sl__calloc(&s->env, n, sizeof(*renewed));
	enum sl_lost_reason *reasons = sl__calloc(&s->env, jobs, sizeof(*reasons));
	if (renewed == NULL || reasons == NULL)
		rc = sl_err_set(err, SL_ENOMEM, "postgres: renew: out of memory");
	if (rc == 0)
		rc = sl__pg_call_run(&call, true, err);
	if (rc == 0) {
		find_lost(sl__pg_call_result(&call, at_leases), sl__pg_call_result(&call, at_jobs), renewals, n,
			  renewed, reasons);
		tell_lost(renewals, n, reasons, lost, lost_ctx);
	}
	sl__free(&s->env, renewed);
	sl__free(&s->env, reasons);
	sl__pg_call_close(&call);
	return rc;
}

/* ---- reaping ---- */

#define FOLD_FROM 1000 /* rows of tally */

#define FOLD_NS INT64_C(10000000000)

/* Rows: id, chain, type; the last has only whether there is more. */
static void tell_reaped(const PGresult *res, struct sl_reaped *out, const struct sl_store_listen *l)
{
	int last = PQntuples(res) - 1;
	for (int i = 0; i < last; i++) {
		uint64_t id = (uint64_t)sl__pg_int8(res, i, 0);
		const char *type = sl__pg_text(res, i, 2);
		sl__pg_change(l, SL_CHANGE_REAPED, id, (uint64_t)sl__pg_int8(res, i, 1), type);
		sl__pg_note(l, SL_NOTE_JOB_SCHEDULED, type, id, SL_LOST_NOT);
		sl__pg_note(l, SL_NOTE_OWNERSHIP_LOST, type, id, SL_LOST_TAKEN);
	}
	out->more = sl__pg_bool(res, last, 3);
	out->n = (uint32_t)last;
}

static void add_types(struct sl__pg_params *p, const struct sl_reap_type *types, size_t n)
{
	sl__pg_add_array(p, SL__PG_TEXT, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_text(p, types[i].type);
}

static void add_policies(struct sl__pg_params *p, const struct sl_reap_type *types, size_t n)
{
	static const struct sl_retry_policy none = {.multiplier = 1};
	char text[32];
	sl__pg_add_array(p, SL__PG_INT8, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_int8(p, (types[i].retry != NULL ? types[i].retry : &none)->first_ms);
	sl__pg_add_array(p, SL__PG_INT8, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_int8(p, (types[i].retry != NULL ? types[i].retry : &none)->cap_ms);
	sl__pg_add_array(p, SL__PG_TEXT, n);
	for (size_t i = 0; i < n; i++) {
		(void)snprintf(text, sizeof(text), "%.17g",
			       (types[i].retry != NULL ? types[i].retry : &none)->multiplier);
		sl__pg_el_text(p, text);
	}
}

/* Every worker comes by here every second, also where no one asks for counts. */
static bool must_fold(struct pg_store *s)
{
	int64_t now = sl__mono_ns(&s->env);
	sl__lock(&s->marks_mu);
	bool must = now - s->folded_ns >= FOLD_NS;
	if (must)
		s->folded_ns = now;
	sl__unlock(&s->marks_mu);
	return must;
}

static int64_t expiry_of(const PGresult *res)
{
	if (sl__pg_is_null(res, 0, 0))
		return -1;
	return SL_MAX(sl__pg_int8(res, 0, 0), 0);
}

/* A look without locks; then, if something has expired, the reap and another look. */
int sl__pg_reap(void *store, const struct sl_reap_type *types, size_t n_types, uint32_t limit, struct sl_reaped *out,
		const struct sl_store_listen *listen, struct sl_err *err)
{
	struct pg_call call;
	*out = (struct sl_reaped){.next_expiry_in_ms = -1};
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	add_types(&call.params, types, n_types);
	int look = sl__pg_call_send(&call, ST_NEXT_EXPIRY);
	if (must_fold(store)) {
		sl__pg_add_int8(&call.params, FOLD_FROM);
		(void)sl__pg_call_send(&call, ST_FOLD_TALLY);
	}
	rc = sl__pg_call_run(&call, true, err);
	if (rc == 0)
		out->next_expiry_in_ms = expiry_of(sl__pg_call_result(&call, look));
	sl__pg_call_close(&call);
	if (rc != 0 || out->next_expiry_in_ms != 0)
		return rc;
	rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	add_types(&call.params, types, n_types);
	sl__pg_add_int4(&call.params, (int32_t)SL_MIN(limit, (uint32_t)INT32_MAX));
	add_policies(&call.params, types, n_types);
	int at = sl__pg_call_send(&call, ST_REAP);
	add_types(&call.params, types, n_types);
	look = sl__pg_call_send(&call, ST_NEXT_EXPIRY);
	rc = sl__pg_call_run(&call, true, err);
	if (rc == 0) {
		tell_reaped(sl__pg_call_result(&call, at), out, listen);
		out->next_expiry_in_ms = expiry_of(sl__pg_call_result(&call, look));
	}
	if (rc == 0 && out->n > 0)
		sl__pg_marks_forget(store);
	sl__pg_call_close(&call);
	return rc;
}

int sl__pg_claim_standings(struct pg_call *call, const uint64_t *jobs, const int32_t *attempts,
			   const struct sl_claim_id *claims, size_t n, enum sl__claim_standing *out, struct sl_err *err)
{
	struct sl__pg_params *p = &call->params;
	struct sl__claim_hash last = {.known = 0};
	const PGresult *res = NULL;
	sl__pg_add_ids(p, jobs, n);
	sl__pg_add_array(p, SL__PG_INT4, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_int4(p, attempts[i]);
	sl__pg_add_array(p, SL__PG_UUID, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_uuid(p, claims[i].bytes);
	sl__pg_add_array(p, SL__PG_INT8, n);
	for (size_t i = 0; i < n; i++) {
		int64_t hash = 0;
		int rc = sl__claim_hash(&last, &claims[i], &hash, err);
		if (rc != 0)
			return rc;
		sl__pg_el_int8(p, hash);
	}
	int rc = sl__pg_call_one(call, ST_CLAIM_STANDING, &res, err);
	for (size_t i = 0; rc == 0 && i < n; i++)
		out[i] = (enum sl__claim_standing)sl__pg_int4(res, (int)i, 0);
	return rc;
}
