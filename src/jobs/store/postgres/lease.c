/* SPDX-License-Identifier: Apache-2.0 */
/* Holding on to jobs, and taking back those whose lease has run out. */
#include <stdio.h>

#include "jobs/store/postgres/store.h"

int sl__pg_guard(void *store, sl_store_tx *tx, uint64_t id, uint64_t fence, enum sl_lost_reason *out,
		 struct sl_err *err)
{
	struct pg_call call SL_CLEANUP(sl__pg_call_close);
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, tx, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_int8(&call.params, (int64_t)id);
	sl__pg_add_int8(&call.params, (int64_t)fence);
	rc = sl__pg_call_one(&call, ST_GUARD, &res, err);
	if (rc == 0)
		*out = PQntuples(res) == 0 ? SL_LOST_NOT_FOUND : sl__pg_reason(res, 0);
	return rc;
}

int sl__pg_progress(void *store, uint64_t id, uint64_t fence, const char *progress, enum sl_lost_reason *out,
		    struct sl_err *err)
{
	struct pg_call call SL_CLEANUP(sl__pg_call_close);
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_int8(&call.params, (int64_t)id);
	sl__pg_add_int8(&call.params, (int64_t)fence);
	sl__pg_add_text(&call.params, progress);
	rc = sl__pg_call_one(&call, ST_PROGRESS, &res, err);
	*out = SL_LOST_NOT;
	if (rc != 0 || PQntuples(res) > 0)
		return rc;
	rc = sl__pg_lost_reasons(&call, &(struct pg_lost){.ids = &id, .fences = &fence, .reasons = out, .n = 1}, err);
	*out = *out == SL_LOST_PUT_BACK ? SL_LOST_TAKEN : *out;
	if (rc == 0 && *out == SL_LOST_NOT)
		return sl_err_set(err, SL_EAGAIN, "postgres: progress: a transaction holds the job's row");
	return rc;
}

/* ---- renewing ---- */

/* Losing a renewal only runs a job again, so the disk is not waited for. */
int sl__pg_renew(void *store, const struct sl_renewal *renewals, size_t n, sl_lost_fn *lost, void *lost_ctx,
		 struct sl_err *err)
{
	struct pg_store *s = store;
	struct pg_call call SL_CLEANUP(sl__pg_call_close);
	struct sl__pg_params *p = &call.params;
	int rc = sl__pg_call_open(&call, s, NULL, PG_RENEWAL, err);
	if (rc != 0)
		return rc;
	(void)sl__pg_call_send(&call, ST_ASYNC);
	/* The leases. */
	sl__pg_add_array(p, SL__PG_UUID, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_uuid(p, renewals[i].claim.bytes);
	sl__pg_add_array(p, SL__PG_INTERVAL, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_interval(p, SL_MAX(renewals[i].lease_ms, 1));
	sl__pg_add_array(p, SL__PG_BOOL, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_bool(p, renewals[i].started);
	int at_leases = sl__pg_call_send(&call, ST_RENEW);
	/* Their jobs. */
	size_t n_jobs = 0;
	for (size_t i = 0; i < n; i++)
		n_jobs += renewals[i].n;
	sl__pg_add_array(p, SL__PG_INT8, n_jobs);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < renewals[i].n; j++)
			sl__pg_el_int8(p, (int64_t)renewals[i].ids[j]);
	sl__pg_add_array(p, SL__PG_INT8, n_jobs);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < renewals[i].n; j++)
			sl__pg_el_int8(p, (int64_t)renewals[i].fences[j]);
	int at_jobs = sl__pg_call_send(&call, ST_RENEW_LOST);
	enum sl_lost_reason *reasons = sl__calloc(&s->env, n_jobs, sizeof(*reasons));
	rc = reasons != NULL ? sl__pg_call_run(&call, true, err)
			     : sl_err_set(err, SL_ENOMEM, "postgres: renew: out of memory");
	/* Without a lease all of a claim is lost; with it, what its job's row says. */
	const PGresult *leases = rc == 0 ? sl__pg_call_result(&call, at_leases) : NULL;
	const PGresult *jobs = rc == 0 ? sl__pg_call_result(&call, at_jobs) : NULL;
	for (size_t i = 0; rc == 0 && i < n_jobs; i++)
		reasons[i] = SL_LOST_TAKEN;
	for (int row = 0; rc == 0 && row < PQntuples(leases); row++) {
		size_t lease = (size_t)sl__pg_int4(leases, row, 0) - 1, first = 0;
		for (size_t i = 0; i < lease; i++)
			first += renewals[i].n;
		for (size_t j = 0; j < renewals[lease].n; j++)
			reasons[first + j] = SL_LOST_NOT;
	}
	for (int row = 0; rc == 0 && row < PQntuples(jobs); row++)
		reasons[sl__pg_int4(jobs, row, 0) - 1] = sl__pg_reason(jobs, row);
	for (size_t i = 0, at = 0; rc == 0 && i < n; i++)
		for (size_t j = 0; j < renewals[i].n; j++, at++)
			if (reasons[at] != SL_LOST_NOT)
				lost(renewals[i].ids[j], renewals[i].fences[j], reasons[at], lost_ctx);
	sl__free(&s->env, reasons);
	return rc;
}

/* ---- reaping ---- */

#define FOLD_FROM 1000 /* rows of tally */

#define FOLD_NS INT64_C(10000000000)

/* When the next lease of the types ends: queue the question, and read the answer. */
static int send_next_expiry(struct pg_call *call, const struct sl_reap_type *types, size_t n)
{
	sl__pg_add_array(&call->params, SL__PG_TEXT, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_text(&call->params, types[i].type);
	return sl__pg_call_send(call, ST_NEXT_EXPIRY);
}

static int64_t read_next_expiry(const struct pg_call *call, int at)
{
	const PGresult *res = sl__pg_call_result(call, at);
	return sl__pg_is_null(res, 0, 0) ? -1 : SL_MAX(sl__pg_int8(res, 0, 0), 0);
}

/* A check without locks. Every worker comes by here every second, also where no one asks for counts: it folds the tally
 * now and then. */
static int check_expiry(struct pg_store *s, const struct sl_reap_type *types, size_t n_types, int64_t *in_ms,
			struct sl_err *err)
{
	struct pg_call call SL_CLEANUP(sl__pg_call_close);
	int rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	int at_expiry = send_next_expiry(&call, types, n_types);
	int64_t now = sl__mono_ns(&s->env);
	sl__lock(&s->marks_mu);
	bool must_fold = now - s->folded_ns >= FOLD_NS;
	if (must_fold)
		s->folded_ns = now;
	sl__unlock(&s->marks_mu);
	if (must_fold) {
		sl__pg_add_int8(&call.params, FOLD_FROM);
		(void)sl__pg_call_send(&call, ST_FOLD_TALLY);
	}
	rc = sl__pg_call_run(&call, true, err);
	if (rc == 0)
		*in_ms = read_next_expiry(&call, at_expiry);
	return rc;
}

int sl__pg_reap(void *store, const struct sl_reap_type *types, size_t n_types, uint32_t limit, struct sl_reaped *out,
		const struct sl_store_scope *scope, struct sl_err *err)
{
	static const struct sl_retry_policy none = {.multiplier = 1};
	struct pg_call call SL_CLEANUP(sl__pg_call_close);
	struct sl__pg_params *p = &call.params;
	call.conn = NULL;
	*out = (struct sl_reaped){.next_expiry_in_ms = -1};
	int rc = check_expiry(store, types, n_types, &out->next_expiry_in_ms, err);
	if (rc != 0 || out->next_expiry_in_ms != 0)
		return rc;
	rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	/* Something has expired: the types with their retry policies, then another check. */
	sl__pg_add_array(p, SL__PG_TEXT, n_types);
	for (size_t i = 0; i < n_types; i++)
		sl__pg_el_text(p, types[i].type);
	sl__pg_add_int4(p, (int32_t)SL_MIN(limit, (uint32_t)INT32_MAX));
	sl__pg_add_array(p, SL__PG_INT8, n_types);
	for (size_t i = 0; i < n_types; i++)
		sl__pg_el_int8(p, (types[i].retry != NULL ? types[i].retry : &none)->first_ms);
	sl__pg_add_array(p, SL__PG_INT8, n_types);
	for (size_t i = 0; i < n_types; i++)
		sl__pg_el_int8(p, (types[i].retry != NULL ? types[i].retry : &none)->cap_ms);
	sl__pg_add_array(p, SL__PG_TEXT, n_types);
	for (size_t i = 0; i < n_types; i++) {
		char text[32];
		const struct sl_retry_policy *policy = types[i].retry != NULL ? types[i].retry : &none;
		(void)snprintf(text, sizeof(text), "%.17g", policy->multiplier);
		sl__pg_el_text(p, text);
	}
	int at = sl__pg_call_send(&call, ST_REAP);
	int at_expiry = send_next_expiry(&call, types, n_types);
	rc = sl__pg_call_run(&call, true, err);
	if (rc != 0)
		return rc;
	/* Rows: id, chain, type; the last has only whether there is more. */
	const PGresult *res = sl__pg_call_result(&call, at);
	int last = PQntuples(res) - 1;
	for (int i = 0; i < last; i++) {
		uint64_t id = (uint64_t)sl__pg_int8(res, i, 0);
		const char *type = sl__pg_text(res, i, 2);
		sl__report_change(scope, SL_CHANGE_REAPED, id, (uint64_t)sl__pg_int8(res, i, 1), type);
		sl__report_note(scope, SL_NOTE_JOB_SCHEDULED, type, id, SL_LOST_NOT);
		sl__report_note(scope, SL_NOTE_OWNERSHIP_LOST, type, id, SL_LOST_TAKEN);
	}
	out->more = sl__pg_bool(res, last, 3);
	out->n = (uint32_t)last;
	out->next_expiry_in_ms = read_next_expiry(&call, at_expiry);
	if (out->n > 0)
		sl__pg_marks_forget(store);
	return 0;
}
