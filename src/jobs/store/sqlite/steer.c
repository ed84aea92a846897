/* SPDX-License-Identifier: Apache-2.0 */
/* What clients do to chains from outside: complete, fail, cancel, redrive, trigger, watch. */
#include "jobs/store/ends.h"
#include "jobs/store/refusals.h"
#include "jobs/store/sqlite/store.h"

int sl__sq_chain_last(struct sq_op *op, uint64_t chain_id, struct sq_row *row)
{
	sqlite3_stmt *s;
	int rc = SQ_ROW(op, SQ_CHAIN_LAST, &s, SQ_INT(chain_id));
	if (rc > 0) {
		uint64_t last = sl__sqlite_u64(s, 0);
		(void)sqlite3_reset(s);
		rc = sl__sq_row_get(op, last, row);
	}
	if (rc == 0)
		return sl__no_chain(chain_id, op->err);
	return SL_MIN(rc, 0);
}

static bool is_final(enum sl_job_status status)
{
	return status >= SL_JOB_COMPLETED;
}

/* End a live job from outside, under a lease or not. */
static int end_job(struct sq_op *op, const struct sq_row *row, const struct sl__end *end)
{
	bool queued = row->status == SL_JOB_BLOCKED;
	int rc = queued ? sl__sq_count(op, row->type, SQ_N_BLOCKED, -1) : sl__sq_dequeue(op, row, &queued);
	if (rc == 0 && !queued)
		rc = sl__sq_attempt_put_leased(op, row, SL_ATTEMPT_ABORTED, end->history);
	if (rc != 0)
		return rc;
	rc = SQ_RUN(op, SQ_JOB_END, SQ_INT(row->id), SQ_INT(end->status), SQ_TEXT(end->output), SQ_INT(op->now_us),
		    SQ_INT(!queued), SQ_INT(row->fence), SQ_TEXT(end->error));
	if (rc == 0)
		rc = sl__sq_count(op, row->type, sl__sq_kind(end->status), 1);
	if (rc != 0)
		return rc;
	if (!queued)
		sl__report_note(op->scope, SL_NOTE_OWNERSHIP_LOST, row->type, row->id, end->reason);
	sl__report_change(op->scope, end->change, row->id, row->chain_id, row->type);
	return sl__sq_chain_ended(op, row, end->status);
}

static int end_chain(struct sq_store *store, uint64_t chain_id, struct sl__end end, const struct sl_store_scope *scope,
		     struct sl_err *err)
{
	struct sq_op op;
	struct sq_row row;
	int rc = sl__sq_op_begin(&op, store, SQ_DURABLE, scope, err);
	if (rc != 0)
		return rc;
	rc = sl__sq_chain_last(&op, chain_id, &row);
	if (rc == 0 && is_final(row.status))
		rc = sl__refuse_ended(chain_id, row.status, err);
	if (rc == 0)
		rc = end_job(&op, &row, &end);
	return sl__sq_op_end(&op, rc);
}

int sl__sq_complete_chain(void *store, uint64_t chain_id, const char *output, const struct sl_store_scope *scope,
			  struct sl_err *err)
{
	return end_chain(store, chain_id, sl__end_completed(output), scope, err);
}

int sl__sq_fail_chain(void *store, uint64_t chain_id, const char *error, const struct sl_store_scope *scope,
		      struct sl_err *err)
{
	return end_chain(store, chain_id, sl__end_failed(error), scope, err);
}

/* ---- many chains at once ---- */

/* 1: changed; 0: skipped; negative: an error. */
typedef int steer_fn(struct sq_op *op, const struct sq_row *row);

static int steer(struct sq_store *store, struct sl_ids chains, steer_fn *fn, const struct sl_store_scope *scope,
		 size_t *n, struct sl_err *err)
{
	struct sq_op op;
	size_t changed = 0;
	int rc = sl__sq_op_begin(&op, store, SQ_DURABLE, scope, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; rc == 0 && i < chains.n; i++) {
		struct sq_row row;
		rc = sl__sq_chain_last(&op, chains.ids[i], &row);
		if (rc == 0)
			rc = fn(&op, &row);
		changed += rc > 0;
		rc = SL_MIN(rc, 0);
	}
	rc = sl__sq_op_end(&op, rc);
	if (rc == 0 && n != NULL)
		*n = changed;
	return rc;
}

static int cancel_one(struct sq_op *op, const struct sq_row *row)
{
	if (is_final(row->status))
		return 0;
	int rc = end_job(op, row, &sl__end_cancelled);
	return rc < 0 ? rc : 1;
}

/* Refuse to redrive a chain that can never run, or whose key another chain has; take its key otherwise. */
static int prepare_redrive(struct sq_op *op, const struct sq_row *row)
{
	sqlite3_stmt *s, *head;
	/* A blocker that was deleted can never complete. */
	int rc = row->blockers_open > 0 ? SQ_ROW(op, SQ_BLOCKER_GONE, &s, SQ_INT(row->id)) : 0;
	if (rc < 0)
		return rc;
	if (rc > 0) {
		uint64_t gone = sl__sqlite_u64(s, 0);
		(void)sqlite3_reset(s);
		return sl__refuse_orphan(row->chain_id, gone, op->err);
	}
	/* Which chain has the key of this one? 0: this one, or it has no key. */
	uint64_t holder = 0;
	rc = SQ_ROW(op, SQ_KEY_OF, &head, SQ_INT(row->chain_id));
	if (rc <= 0)
		return rc;
	const char *key = sl__sqlite_text(head, 0);
	rc = key != NULL ? SQ_ROW(op, SQ_KEY_GET, &s, SQ_TEXT(key), SQ_INT(op->now_us)) : 0;
	if (rc > 0) {
		holder = sl__sqlite_u64(s, 0);
		(void)sqlite3_reset(s);
		rc = 0;
	} else if (rc == 0 && key != NULL) {
		rc = SQ_RUN(op, SQ_KEY_PUT, SQ_TEXT(key), SQ_INT(row->chain_id), SQ_INT(SL_DEDUP_INCOMPLETE), SQ_NULL);
	}
	(void)sqlite3_reset(head);
	if (rc != 0 || holder == 0 || holder == row->chain_id)
		return rc;
	struct sq_row other;
	rc = sl__sq_chain_last(op, holder, &other);
	if (rc != 0 || is_final(other.status))
		return rc;
	return sl__refuse_key(row->chain_id, holder, op->err);
}

static int redrive_one(struct sq_op *op, const struct sq_row *old)
{
	if (old->status != SL_JOB_FAILED && old->status != SL_JOB_CANCELLED)
		return 0;
	int rc = prepare_redrive(op, old);
	if (rc != 0)
		return rc;
	struct sq_row row = *old;
	row.status = row.blockers_open > 0 ? SL_JOB_BLOCKED : SL_JOB_PENDING;
	row.charged = 0;
	row.flags &= ~(uint32_t)SQ_SOLO;
	rc = SQ_RUN(op, SQ_JOB_REDRIVE, SQ_INT(row.id), SQ_INT(row.status));
	if (rc == 0 && op->from_http)
		rc = SQ_RUN(op, SQ_HEAD_FLAG, SQ_INT(row.chain_id), SQ_INT(SQ_FROM_HTTP));
	if (rc == 0)
		rc = sl__sq_count(op, row.type, sl__sq_kind(old->status), -1);
	if (rc != 0)
		return rc;
	bool waits = row.status == SL_JOB_BLOCKED;
	rc = waits ? sl__sq_count(op, row.type, SQ_N_BLOCKED, 1) : sl__sq_enqueue(op, &row, 0);
	if (rc != 0)
		return rc;
	if (!waits)
		sl__report_note(op->scope, SL_NOTE_JOB_SCHEDULED, row.type, row.id, SL_LOST_NOT);
	return 1;
}

static int trigger_one(struct sq_op *op, const struct sq_row *row)
{
	int waited = 0;
	if (row->status != SL_JOB_PENDING || row->due_us == 0)
		return 0;
	int rc = SQ_CHANGE(op, SQ_SCHED_TAKE, &waited, SQ_TEXT(row->type), SQ_INT(row->due_us), SQ_INT(row->id));
	if (rc != 0 || !waited)
		return rc;
	rc = sl__sq_count_queued(op, row->type, SQ_N_SCHED, -1, -(row->charged > 0));
	if (rc == 0)
		rc = SQ_RUN(op, SQ_JOB_DUE_NOW, SQ_INT(row->id), SQ_INT(op->now_us));
	if (rc == 0)
		rc = sl__sq_enqueue(op, row, 0);
	if (rc != 0)
		return rc;
	sl__report_note(op->scope, SL_NOTE_JOB_SCHEDULED, row->type, row->id, SL_LOST_NOT);
	return 1;
}

int sl__sq_cancel(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n, struct sl_err *err)
{
	return steer(store, chains, cancel_one, scope, n, err);
}

int sl__sq_redrive(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n, struct sl_err *err)
{
	return steer(store, chains, redrive_one, scope, n, err);
}

int sl__sq_trigger(void *store, struct sl_ids chains, const struct sl_store_scope *scope, size_t *n, struct sl_err *err)
{
	return steer(store, chains, trigger_one, scope, n, err);
}

int sl__sq_watch(void *store, uint64_t chain_id, enum sl_job_status *status, struct sl_err *err)
{
	struct sq_op op;
	struct sq_row row;
	sqlite3_stmt *s;
	int rc = sl__sq_op_begin(&op, store, SQ_DURABLE, NULL, err);
	if (rc != 0)
		return rc;
	rc = sl__sq_chain_last(&op, chain_id, &row);
	if (rc == 0 && row.status == SL_JOB_PENDING) {
		rc = SQ_ROW(&op, SQ_LEASE_OF, &s, SQ_INT(row.id), SQ_INT(row.fence));
		if (rc > 0)
			row.status = SL_JOB_RUNNING;
		(void)sqlite3_reset(s);
		rc = SL_MIN(rc, 0);
	}
	/* Who asks after the end learns it from the status. */
	if (rc == 0 && !is_final(row.status))
		rc = SQ_RUN(&op, SQ_HEAD_FLAG, SQ_INT(chain_id), SQ_INT(SQ_WATCHED));
	rc = sl__sq_op_end(&op, rc);
	if (rc == 0)
		*status = row.status;
	return rc;
}
