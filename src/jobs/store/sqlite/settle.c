/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settling: the end of a claim on one job. The row is read, judged, and updated with its fence in the WHERE; under the
 * store's lock nothing comes in between.
 */
#include "jobs/store/ends.h"
#include "jobs/store/refusals.h"
#include "jobs/store/sqlite/store.h"

struct settling {
	struct sq_op *op;
	const struct sl_settle *settle;
	struct sq_row row;
	int64_t started_us;
};

static int put_history(struct settling *x, enum sl_attempt_outcome outcome)
{
	const struct sl_settle *t = x->settle;
	const struct sq_past past = {.claim = t->claim,
				     .outcome = outcome,
				     .worker = t->worker,
				     .error = t->error,
				     .started_us = x->started_us};
	return sl__sq_attempt_put(x->op, &x->row, &past);
}

/* next_id 0: the chain completes with the output. */
static int complete(struct settling *x, uint64_t next_id)
{
	const struct sl_settle *t = x->settle;
	int64_t claim;
	int rc = sl__claim_hash(&x->op->claim_hash, &t->claim, &claim, x->op->err);
	if (rc != 0)
		return rc;
	rc = SQ_RUN(x->op, SQ_JOB_COMPLETE, SQ_INT(t->id), SQ_INT(t->fence), SQ_INT(claim),
		    SQ_TEXT(sl__settle_output(t)), SQ_TEXT(t->progress), SQ_TEXT(t->worker),
		    SQ_INT_OR_NULL(x->started_us), SQ_INT(x->op->now_us), SQ_INT_OR_NULL(next_id));
	if (rc == 0)
		rc = sl__sq_count(x->op, x->row.type, SQ_N_COMPLETED, 1);
	if (rc != 0 || next_id != 0)
		return rc;
	return sl__sq_chain_ended(x->op, &x->row, SL_JOB_COMPLETED);
}

static int continue_with(struct settling *x, uint64_t next_id)
{
	sqlite3_stmt *s;
	int rc = complete(x, next_id);
	if (rc == 0)
		rc = SQ_RUN(x->op, SQ_HEAD_LAST, SQ_INT(x->row.chain_id), SQ_INT(next_id));
	if (rc == 0)
		rc = sl__sq_insert_job(x->op, next_id, x->row.chain_id, x->row.id, NULL, x->settle->next);
	if (rc != 0 || x->settle->next->n_blockers == 0)
		return rc;
	/* Nothing waits for a chain that is just being started: only a continuation can make chains wait for each other.
	 * Under the store's lock, so that no other comes in between. */
	size_t edges = x->settle->next->n_blockers;
	rc = SQ_ROW(x->op, SQ_CIRCLE, &s, SQ_INT(x->row.chain_id), SQ_INT(edges + SL__CIRCLE_EDGES));
	if (rc <= 0)
		return rc;
	uint64_t by = sl__sqlite_u64(s, 0);
	(void)sqlite3_reset(s);
	return sl__refuse_circle(x->row.chain_id, by, x->op->err);
}

static int settle_as_failed(struct settling *x)
{
	const struct sl_settle *t = x->settle;
	bool ran = sl__settle_has_run(t);
	int rc = SQ_RUN(x->op, SQ_JOB_FAIL, SQ_INT(t->id), SQ_INT(t->fence), SQ_INT(ran), SQ_TEXT(t->error),
			SQ_TEXT(t->progress), SQ_TEXT(t->worker), SQ_INT_OR_NULL(x->started_us), SQ_INT(x->op->now_us));
	if (rc == 0 && ran)
		rc = put_history(x, SL_ATTEMPT_FAILED);
	if (rc == 0)
		rc = sl__sq_count(x->op, x->row.type, SQ_N_FAILED, 1);
	if (rc != 0)
		return rc;
	return sl__sq_chain_ended(x->op, &x->row, SL_JOB_FAILED);
}

/* Back into the queue. */
static int put_back(struct settling *x, enum sl_attempt_outcome outcome)
{
	const struct sl_settle *t = x->settle;
	int64_t due_us = sq_due_us(x->op, t->at_ms, t->delay_ms);
	uint32_t flags = x->row.flags;
	int charge = sl__settle_is_charged(t);
	bool ran = sl__settle_has_run(t);
	/* It has run and its worker lived: it need not be alone the next time. */
	if (ran)
		flags &= ~(uint32_t)SQ_SOLO;
	int rc = SQ_RUN(x->op, SQ_JOB_BACK, SQ_INT(t->id), SQ_INT(t->fence), SQ_INT(charge), SQ_TEXT(t->error),
			SQ_TEXT(t->progress), SQ_TEXT(t->worker), SQ_INT_OR_NULL(x->started_us), SQ_INT_OR_NULL(due_us),
			SQ_INT(flags), SQ_INT_OR_NULL(ran ? x->row.fence : 0), SQ_INT(t->kind == SL_SETTLE_RETRY));
	if (rc == 0 && ran)
		rc = put_history(x, outcome);
	if (rc != 0)
		return rc;
	x->row.charged += charge;
	x->row.flags = flags;
	rc = sl__sq_enqueue(x->op, &x->row, due_us);
	if (rc != 0)
		return rc;
	sl__report_put_back(x->op->scope, t, x->row.type, due_us > x->op->now_us);
	return 0;
}

static int settle_kind(struct settling *x, uint64_t *next_id, struct sl_settle_result *result)
{
	const struct sl_settle *t = x->settle;
	switch (t->kind) {
	case SL_SETTLE_COMPLETE:
		result->chain_ended = true;
		return complete(x, 0);
	case SL_SETTLE_CONTINUE:
		result->next_id = (*next_id)++;
		return continue_with(x, result->next_id);
	case SL_SETTLE_RETRY:
		return put_back(x, SL_ATTEMPT_FAILED);
	case SL_SETTLE_FAIL:
		return settle_as_failed(x);
	case SL_SETTLE_RESCHEDULE:
		return put_back(x, SL_ATTEMPT_RESCHEDULED);
	case SL_SETTLE_RELEASE:
		return put_back(x, SL_ATTEMPT_RELEASED);
	default:
		return sl_err_set(x->op->err, SL_EINVAL, "%d is no way to settle a job", (int)t->kind);
	}
}

int sl__sq_settle(struct sq_op *op, const struct sl_settle *settle, uint64_t *next_id, struct sl_settle_result *result)
{
	struct settling x = {.op = op, .settle = settle, .started_us = sq_us(settle->started_ms)};
	*result = (struct sl_settle_result){.lost = SL_LOST_NOT};
	int rc = sl__sq_row_get(op, settle->id, &x.row);
	if (rc < 0)
		return rc;
	result->lost = rc == 0 ? SL_LOST_NOT_FOUND : sl__sq_lost(&x.row, settle->fence);
	/* What a reap puts back is flagged, what a settle puts back is not. */
	if (rc > 0 && x.row.status == SL_JOB_PENDING && x.row.fence == settle->fence + 1 &&
	    (x.row.flags & SQ_SOLO) == 0)
		result->lost = SL_LOST_PUT_BACK;
	rc = result->lost == SL_LOST_NOT ? settle_kind(&x, next_id, result) : 0;
	if (rc == 0 && settle->last_of_claim)
		rc = SQ_RUN(op, SQ_LEASE_DROP, SQ_BLOB(settle->claim.bytes, sizeof(settle->claim.bytes)));
	return rc;
}

int sl__sq_exchange(void *store, const struct sl_exchange *x, const struct sl_store_scope *scope, struct sl_err *err)
{
	struct sq_op op;
	uint64_t next_id = 0, continues = 0;
	int rc = sl__sq_op_begin(&op, store, SQ_DURABLE, scope, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < x->n_settles; i++)
		continues += x->settles[i].kind == SL_SETTLE_CONTINUE;
	if (continues > 0)
		rc = sl__sq_new_ids(&op, continues, &next_id);
	for (size_t i = 0; rc == 0 && i < x->n_settles; i++)
		rc = sl__sq_settle(&op, &x->settles[i], &next_id, &x->results[i]);
	if (rc == 0 && x->request != NULL)
		rc = sl__sq_claim(&op, x);
	return sl__sq_op_end(&op, rc);
}
