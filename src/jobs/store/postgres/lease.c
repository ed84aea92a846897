/* SPDX-License-Identifier: Apache-2.0 */
/* Holding on to jobs, and taking back those whose lease has run out. */
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
	int rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	(void)sl__pg_call_send(&call, ST_ASYNC);
	add_leases(&call.params, renewals, n);
	int at_leases = sl__pg_call_send(&call, ST_RENEW);
	size_t jobs = add_jobs(&call.params, renewals, n);
	int at_jobs = sl__pg_call_send(&call, ST_RENEW_LOST);
	bool *renewed = sl__calloc(&s->env, n, sizeof *renewed);
	enum sl_lost_reason *reasons = sl__calloc(&s->env, jobs, sizeof *reasons);
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

/* Rows: id, chain, type; the last has only whether there is more. */
static uint32_t tell_reaped(const PGresult *res, int *more, const struct sl_store_listen *l)
{
	int last = PQntuples(res) - 1;
	for (int i = 0; i < last; i++) {
		uint64_t id = (uint64_t)sl__pg_int8(res, i, 0);
		const char *type = sl__pg_text(res, i, 2);
		sl__pg_change(l, SL_CHANGE_REAPED, id, (uint64_t)sl__pg_int8(res, i, 1), type);
		sl__pg_note(l, SL_NOTE_JOB_SCHEDULED, type, id, SL_LOST_NOT);
		sl__pg_note(l, SL_NOTE_OWNERSHIP_LOST, type, id, SL_LOST_TAKEN);
	}
	*more = sl__pg_bool(res, last, 3);
	return (uint32_t)last;
}

int sl__pg_reap(void *store, const char *const *types, size_t n_types, uint32_t limit, uint32_t *n, int *more,
		const struct sl_store_listen *listen, struct sl_err *err)
{
	struct pg_call call;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_texts(&call.params, types, n_types);
	sl__pg_add_int4(&call.params, (int32_t)SL_MIN(limit, (uint32_t)INT32_MAX));
	int at = sl__pg_call_send(&call, ST_REAP);
	/* Every worker comes by here now and then, also where nobody counts. */
	sl__pg_add_int8(&call.params, FOLD_FROM);
	(void)sl__pg_call_send(&call, ST_FOLD_TALLY);
	rc = sl__pg_call_run(&call, true, err);
	if (rc == 0)
		*n = tell_reaped(sl__pg_call_result(&call, at), more, listen);
	if (rc == 0 && *n > 0)
		sl__pg_marks_forget(store);
	sl__pg_call_close(&call);
	return rc;
}
