/* SPDX-License-Identifier: Apache-2.0 */
/* One job, one chain, the history of a job, and how rows become structs. */
#include <inttypes.h>

#include "jobs/store/sqlite/store.h"

/* Columns as in SQ_JOB_COLUMNS. */
void sl__sq_read_job(sqlite3_stmt *s, struct sl_job *job)
{
	*job = (struct sl_job){
		.id = sl__sqlite_u64(s, 0),
		.chain_id = sl__sqlite_u64(s, 1),
		.prev_id = sl__sqlite_u64(s, 2),
		.next_id = sl__sqlite_u64(s, 3),
		.type = sl__sqlite_text(s, 4),
		.status = (enum sl_job_status)sqlite3_column_int(s, 5),
		.attempt = sqlite3_column_int(s, 6),
		.priority = sqlite3_column_int(s, 7),
		.input = sl__sqlite_text(s, 8),
		.output = sl__sqlite_text(s, 9),
		.error = sl__sqlite_text(s, 10),
		.progress = sl__sqlite_text(s, 11),
		.key = sl__sqlite_text(s, 12),
		.traceparent = sl__sqlite_text(s, 13),
		.leased_by = sl__sqlite_text(s, 14),
		.created_ms = sl__sqlite_i64(s, 15) / 1000,
		.scheduled_ms = sl__sqlite_i64(s, 16) / 1000,
		.started_ms = sl__sqlite_i64(s, 17) / 1000,
		.ended_ms = sl__sqlite_i64(s, 18) / 1000,
		.blockers_open = (uint32_t)sqlite3_column_int(s, 19),
		.charged = sqlite3_column_int(s, 23),
	};
	if (sqlite3_column_type(s, 21) == SQLITE_NULL)
		return;
	job->status = SL_JOB_RUNNING;
	job->leased_by = sl__sqlite_text(s, 20);
	job->leased_until_ms = sl__sqlite_i64(s, 21) / 1000;
	job->started_ms = sl__sqlite_i64(s, 22) / 1000;
}

/* Columns as in SQ_CHAIN_COLUMNS. */
void sl__sq_read_chain(sqlite3_stmt *s, struct sl_chain *chain)
{
	bool leased = sqlite3_column_type(s, 11) != SQLITE_NULL;
	*chain = (struct sl_chain){
		.id = sl__sqlite_u64(s, 0),
		.last_id = sl__sqlite_u64(s, 1),
		.type = sl__sqlite_text(s, 2),
		.at_type = sl__sqlite_text(s, 3),
		.status = leased ? SL_JOB_RUNNING : (enum sl_job_status)sqlite3_column_int(s, 4),
		.input = sl__sqlite_text(s, 5),
		.output = sl__sqlite_text(s, 6),
		.error = sl__sqlite_text(s, 7),
		.key = sl__sqlite_text(s, 8),
		.created_ms = sl__sqlite_i64(s, 9) / 1000,
		.ended_ms = sl__sqlite_i64(s, 10) / 1000,
	};
}

int sl__sq_get_job(void *store, sl_store_tx *tx, uint64_t id, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	struct sl__sqlite *c;
	sqlite3_stmt *s;
	int rc = sl__sq_read_begin(store, tx, &c, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_row(c, SQ_READ_JOB, SQ_VALUES(SQ_INT(id)), &s, err);
	if (rc > 0) {
		struct sl_job job;
		sl__sq_read_job(s, &job);
		job.from_http = sqlite3_column_int(s, 24);
		rc = fn(&job, ctx);
	} else if (rc == 0) {
		rc = sl_err_set(err, SL_ENOENT, "no job %" PRIu64, id);
	}
	(void)sqlite3_reset(s);
	sl__sq_read_end(store, tx, c);
	return rc;
}

int sl__sq_get_chain(void *store, sl_store_tx *tx, uint64_t id, sl_chain_fn *fn, void *ctx, struct sl_err *err)
{
	struct sl__sqlite *c;
	sqlite3_stmt *s;
	int rc = sl__sq_read_begin(store, tx, &c, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_row(c, SQ_READ_CHAIN, SQ_VALUES(SQ_INT(id)), &s, err);
	if (rc > 0) {
		struct sl_chain chain;
		sl__sq_read_chain(s, &chain);
		rc = fn(&chain, ctx);
	} else if (rc == 0) {
		rc = sl_err_set(err, SL_ENOENT, "there is no chain %" PRIu64, id);
	}
	(void)sqlite3_reset(s);
	sl__sq_read_end(store, tx, c);
	return rc;
}

/* ---- history ---- */

static int past_attempts(struct sl__sqlite *c, uint64_t job_id, sl_attempt_record_fn *fn, void *ctx, struct sl_err *err)
{
	sqlite3_stmt *s;
	int rc = sl__sqlite_bind(c, SQ_ATTEMPTS, SQ_VALUES(SQ_INT(job_id)), &s, err);
	while (rc == 0 && (rc = sl__sqlite_step(c, s, err)) > 0) {
		struct sl_attempt_record a = {
			.attempt = sqlite3_column_int(s, 0),
			.outcome = (enum sl_attempt_outcome)sqlite3_column_int(s, 1),
			.worker = sl__sqlite_text(s, 2),
			.error = sl__sqlite_text(s, 3),
			.started_ms = sl__sqlite_i64(s, 4) / 1000,
			.ended_ms = sl__sqlite_i64(s, 5) / 1000,
		};
		rc = fn(&a, ctx);
	}
	(void)sqlite3_reset(s);
	return rc;
}

/* The attempt that runs, or the one that completed the job: those are in no table, but follow from the job's row. */
static int last_attempt(sqlite3_stmt *s, sl_attempt_record_fn *fn, void *ctx)
{
	struct sl_attempt_record a = {.attempt = sqlite3_column_int(s, 1)};
	if (sqlite3_column_type(s, 6) != SQLITE_NULL) {
		a.attempt = sqlite3_column_int(s, 7);
		a.outcome = SL_ATTEMPT_RUNNING;
		a.worker = sl__sqlite_text(s, 5);
		a.started_ms = sl__sqlite_i64(s, 6) / 1000;
	} else if (sqlite3_column_int(s, 0) == SL_JOB_COMPLETED && sqlite3_column_type(s, 3) != SQLITE_NULL) {
		a.outcome = SL_ATTEMPT_COMPLETED;
		a.worker = sl__sqlite_text(s, 2);
		a.started_ms = sl__sqlite_i64(s, 3) / 1000;
		a.ended_ms = sl__sqlite_i64(s, 4) / 1000;
	} else {
		return 0;
	}
	return fn(&a, ctx);
}

int sl__sq_attempts(void *store, uint64_t job_id, sl_attempt_record_fn *fn, void *ctx, struct sl_err *err)
{
	struct sl__sqlite *c;
	sqlite3_stmt *now;
	int rc = sl__sq_read_begin(store, NULL, &c, err);
	if (rc != 0)
		return rc;
	/* One snapshot, so that an attempt that ends meanwhile is reported once: the statement that stands on the job's row
	 * holds it, without the price of a BEGIN and a ROLLBACK. */
	rc = sl__sqlite_row(c, SQ_ATTEMPT_NOW, SQ_VALUES(SQ_INT(job_id)), &now, err);
	if (rc == 0)
		rc = sl_err_set(err, SL_ENOENT, "no job %" PRIu64, job_id);
	if (rc > 0) {
		rc = past_attempts(c, job_id, fn, ctx, err);
		rc = rc != 0 ? rc : last_attempt(now, fn, ctx);
	}
	(void)sqlite3_reset(now);
	sl__sq_read_end(store, NULL, c);
	return rc;
}
