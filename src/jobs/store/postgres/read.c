/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a job, a chain, the attempts of a job; and how rows become structs. */
#include "jobs/store/postgres/store.h"

/* Columns as in get_job and get_chain of sql.c. */
static struct sl_job job_of(const PGresult *r, int i)
{
	return (struct sl_job){.id = (uint64_t)sl__pg_int8(r, i, 0),
			       .chain_id = (uint64_t)sl__pg_int8(r, i, 1),
			       .prev_id = (uint64_t)sl__pg_int8(r, i, 2),
			       .next_id = (uint64_t)sl__pg_int8(r, i, 3),
			       .type = sl__pg_text(r, i, 4),
			       .status = (enum sl_job_status)sl__pg_int4(r, i, 5),
			       .attempt = sl__pg_int4(r, i, 6),
			       .priority = sl__pg_int4(r, i, 7),
			       .input = sl__pg_text(r, i, 8),
			       .output = sl__pg_text(r, i, 9),
			       .error = sl__pg_text(r, i, 10),
			       .progress = sl__pg_text(r, i, 11),
			       .key = sl__pg_text(r, i, 12),
			       .traceparent = sl__pg_text(r, i, 13),
			       .leased_by = sl__pg_text(r, i, 14),
			       .created_ms = sl__pg_time_ms(r, i, 15),
			       .scheduled_ms = sl__pg_time_ms(r, i, 16),
			       .started_ms = sl__pg_time_ms(r, i, 17),
			       .ended_ms = sl__pg_time_ms(r, i, 18),
			       .leased_until_ms = sl__pg_time_ms(r, i, 19),
			       .blockers_open = (uint32_t)sl__pg_int4(r, i, 20),
			       .charged = sl__pg_int4(r, i, 21),
			       .from_http = PQnfields(r) > 22 && sl__pg_bool(r, i, 22)};
}

static struct sl_chain chain_of(const PGresult *r, int i)
{
	return (struct sl_chain){.id = (uint64_t)sl__pg_int8(r, i, 0),
				 .last_id = (uint64_t)sl__pg_int8(r, i, 1),
				 .type = sl__pg_text(r, i, 2),
				 .at_type = sl__pg_text(r, i, 3),
				 .status = (enum sl_job_status)sl__pg_int4(r, i, 4),
				 .input = sl__pg_text(r, i, 5),
				 .output = sl__pg_text(r, i, 6),
				 .error = sl__pg_text(r, i, 7),
				 .key = sl__pg_text(r, i, 8),
				 .created_ms = sl__pg_time_ms(r, i, 9),
				 .ended_ms = sl__pg_time_ms(r, i, 10)};
}

int sl__pg_tell_row(const PGresult *res, int row, const struct pg_row_to *to)
{
	if (to->job != NULL) {
		struct sl_job job = job_of(res, row);
		return to->job(&job, to->ctx);
	}
	struct sl_chain chain = chain_of(res, row);
	return to->chain(&chain, to->ctx);
}

static int get(void *store, sl_store_tx *tx, uint64_t id, const struct pg_row_to *to, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, tx, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_int8(&call.params, (int64_t)id);
	rc = sl__pg_call_one(&call, to->job != NULL ? ST_GET_JOB : ST_GET_CHAIN, &res, err);
	if (rc == 0 && PQntuples(res) == 0)
		rc = sl_err_set(err, SL_ENOENT, "postgres: %s %llu: not found", to->job != NULL ? "job" : "chain",
				(unsigned long long)id);
	if (rc == 0)
		rc = sl__pg_tell_row(res, 0, to);
	sl__pg_call_close(&call);
	return rc;
}

int sl__pg_get_job(void *store, sl_store_tx *tx, uint64_t id, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	return get(store, tx, id, &(struct pg_row_to){.job = fn, .ctx = ctx}, err);
}

int sl__pg_get_chain(void *store, sl_store_tx *tx, uint64_t id, sl_chain_fn *fn, void *ctx, struct sl_err *err)
{
	return get(store, tx, id, &(struct pg_row_to){.chain = fn, .ctx = ctx}, err);
}

int sl__pg_attempts(void *store, uint64_t job_id, sl_attempt_record_fn *fn, void *ctx, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_int8(&call.params, (int64_t)job_id);
	rc = sl__pg_call_one(&call, ST_ATTEMPTS, &res, err);
	if (rc == 0 && PQntuples(res) == 0)
		rc = sl_err_set(err, SL_ENOENT, "postgres: job %llu: not found", (unsigned long long)job_id);
	for (int i = 0; rc == 0 && i < PQntuples(res) - 1; i++) {
		const struct sl_attempt_record record = {.attempt = sl__pg_int4(res, i, 0),
							 .outcome = (enum sl_attempt_outcome)sl__pg_int4(res, i, 1),
							 .worker = sl__pg_text(res, i, 2),
							 .error = sl__pg_text(res, i, 3),
							 .started_ms = sl__pg_time_ms(res, i, 4),
							 .ended_ms = sl__pg_time_ms(res, i, 5)};
		rc = fn(&record, ctx);
	}
	sl__pg_call_close(&call);
	return rc;
}
