/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of jobs, their place in the queues, what they wait for, and what the end of a chain brings. */
#include <stdio.h>

#include "jobs/store/id_set.h"
#include "jobs/store/refusals.h"
#include "jobs/store/sqlite/store.h"

/* ---- rows ---- */

enum sl_lost_reason sl__sq_lost(const struct sq_row *row, uint64_t fence)
{
	switch (row->status) {
	case SL_JOB_COMPLETED: /* in the very next step: no one had taken it before, as below */
		return row->fence == fence + 1 ? SL_LOST_COMPLETED : SL_LOST_TAKEN;
	case SL_JOB_CANCELLED:
		return SL_LOST_CANCELLED;
	case SL_JOB_PENDING:
		return row->fence == fence ? SL_LOST_NOT : SL_LOST_TAKEN;
	case SL_JOB_FAILED: /* in the very next step: no one had taken it before */
		return row->fence == fence + 1 ? SL_LOST_FAILED : SL_LOST_TAKEN;
	default:
		return SL_LOST_TAKEN;
	}
}

int sl__sq_row_get(struct sq_op *op, uint64_t id, struct sq_row *row)
{
	sqlite3_stmt *s;
	int rc = SQ_ROW(op, SQ_JOB_GET, &s, SQ_INT(id));
	if (rc <= 0)
		return rc;
	row->id = id;
	row->chain_id = sl__sqlite_u64(s, 0);
	row->fence = sl__sqlite_u64(s, 1);
	row->status = (enum sl_job_status)sqlite3_column_int(s, 2);
	row->attempt = sqlite3_column_int(s, 3);
	row->priority = sqlite3_column_int(s, 4);
	row->flags = (uint32_t)sqlite3_column_int(s, 5);
	row->blockers_open = (uint32_t)sqlite3_column_int(s, 6);
	row->due_us = sl__sqlite_i64(s, 7);
	row->charged = sqlite3_column_int(s, 9);
	const char *type = sl__sqlite_text(s, 8);
	(void)snprintf(row->type, sizeof(row->type), "%s", type != NULL ? type : "");
	(void)sqlite3_reset(s);
	return 1;
}

int sl__sq_new_ids(struct sq_op *op, uint64_t n, uint64_t *first)
{
	sqlite3_stmt *s;
	int rc = SQ_ROW(op, SQ_NEW_IDS, &s, SQ_INT(n));
	if (rc == 0)
		rc = sl_err_set(op->err, SL_ECORRUPT, "%s has lost its counter of ids", op->store->path);
	if (rc < 0)
		return rc;
	*first = sl__sqlite_u64(s, 0) - n;
	/* Only a step to the end writes the row for sure. */
	while ((rc = sl__sqlite_step(op->c, s, op->err)) > 0)
		;
	return rc;
}

/* ---- queues ---- */

int sl__sq_enqueue(struct sq_op *op, const struct sq_row *row, int64_t due_us)
{
	int solo = (row->flags & SQ_SOLO) != 0, tried = row->charged > 0;
	bool now = due_us <= op->now_us;
	int rc = sl__sq_count_queued(op, row->type, now ? SQ_N_READY : SQ_N_SCHED, 1, tried);
	if (rc != 0)
		return rc;
	if (now)
		return SQ_RUN(op, SQ_READY_PUT, SQ_TEXT(row->type), SQ_INT(solo), SQ_INT(row->priority),
			      SQ_INT(row->id), SQ_INT(tried));
	return SQ_RUN(op, SQ_SCHED_PUT, SQ_TEXT(row->type), SQ_INT(due_us), SQ_INT(row->id), SQ_INT(row->priority),
		      SQ_INT(solo), SQ_INT(tried));
}

int sl__sq_dequeue(struct sq_op *op, const struct sq_row *row, bool *queued)
{
	int changed = 0, rc = 0;
	int solo = (row->flags & SQ_SOLO) != 0;
	enum sq_kind queue = SQ_N_SCHED;
	if (row->due_us != 0)
		rc = SQ_CHANGE(op, SQ_SCHED_TAKE, &changed, SQ_TEXT(row->type), SQ_INT(row->due_us), SQ_INT(row->id));
	if (rc == 0 && changed == 0) {
		queue = SQ_N_READY;
		rc = SQ_CHANGE(op, SQ_READY_TAKE, &changed, SQ_TEXT(row->type), SQ_INT(solo), SQ_INT(row->priority),
			       SQ_INT(row->id));
	}
	*queued = changed != 0;
	if (rc != 0 || changed == 0)
		return rc;
	return sl__sq_count_queued(op, row->type, queue, -1, -(row->charged > 0));
}

/* ---- counting ---- */

enum sq_kind sl__sq_kind(enum sl_job_status status)
{
	switch (status) {
	case SL_JOB_BLOCKED:
		return SQ_N_BLOCKED;
	case SL_JOB_FAILED:
		return SQ_N_FAILED;
	case SL_JOB_CANCELLED:
		return SQ_N_CANCELLED;
	default:
		return SQ_N_COMPLETED;
	}
}

int sl__sq_count_flush(struct sq_op *op)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < op->n_tally; i++) {
		const struct sq_tally *t = &op->tally[i];
		bool any = false;
		for (size_t kind = 0; kind < SQ_KINDS; kind++)
			any = any || t->n[kind] != 0;
		if (any)
			rc = SQ_RUN(op, SQ_COUNT, SQ_TEXT(t->type), SQ_INT(t->n[SQ_N_BLOCKED]),
				    SQ_INT(t->n[SQ_N_READY]), SQ_INT(t->n[SQ_N_READY_TRIED]), SQ_INT(t->n[SQ_N_SCHED]),
				    SQ_INT(t->n[SQ_N_SCHED_TRIED]), SQ_INT(t->n[SQ_N_COMPLETED]),
				    SQ_INT(t->n[SQ_N_FAILED]), SQ_INT(t->n[SQ_N_CANCELLED]));
	}
	op->n_tally = 0;
	return rc;
}

/* The tally of a type; when there is no room for another type, after what was counted is written. */
static int tally_of(struct sq_op *op, const char *type, struct sq_tally **out)
{
	size_t i = 0;
	/* Most often the same type as the time before. */
	if (op->last_tally < op->n_tally && strcmp(op->tally[op->last_tally].type, type) == 0)
		i = op->last_tally;
	while (i < op->n_tally && strcmp(op->tally[i].type, type) != 0)
		i++;
	if (i == SL_COUNT(op->tally)) {
		int rc = sl__sq_count_flush(op);
		if (rc != 0)
			return rc;
		i = 0;
	}
	if (i == op->n_tally) {
		memset(&op->tally[i], 0, sizeof(op->tally[i]));
		(void)snprintf(op->tally[i].type, sizeof(op->tally[i].type), "%s", type);
		op->n_tally++;
	}
	op->last_tally = i;
	*out = &op->tally[i];
	return 0;
}

int sl__sq_count(struct sq_op *op, const char *type, enum sq_kind kind, int64_t by)
{
	struct sq_tally *t;
	int rc = tally_of(op, type, &t);
	if (rc == 0)
		t->n[kind] += by;
	return rc;
}

int sl__sq_count_queued(struct sq_op *op, const char *type, enum sq_kind queue, int64_t by, int64_t tried_by)
{
	struct sq_tally *t;
	int rc = tally_of(op, type, &t);
	if (rc != 0)
		return rc;
	t->n[queue] += by;
	t->n[queue == SQ_N_READY ? SQ_N_READY_TRIED : SQ_N_SCHED_TRIED] += tried_by;
	return 0;
}

/* ---- new jobs ---- */

/* The edges of a job; *open: how many of the chains have not completed. */
static int insert_blockers(struct sq_op *op, uint64_t id, const struct sl_new_job *job, uint32_t *open)
{
	*open = 0;
	for (size_t i = 0; i < job->n_blockers; i++) {
		sqlite3_stmt *s;
		uint64_t chain = job->blockers[i];
		int rc = SQ_ROW(op, SQ_CHAIN_STATUS, &s, SQ_INT(chain));
		if (rc == 0)
			rc = sl__no_blocker(chain, op->err);
		if (rc < 0)
			return rc;
		bool done = sqlite3_column_int(s, 0) == SL_JOB_COMPLETED;
		(void)sqlite3_reset(s);
		*open += !done;
		rc = SQ_RUN(op, SQ_BLOCKER_PUT, SQ_INT(id), SQ_INT(i), SQ_INT(chain), SQ_INT(done));
		if (rc == 0)
			rc = SQ_RUN(op, SQ_HEAD_FLAG, SQ_INT(chain), SQ_INT(SQ_BLOCKING));
		if (rc != 0)
			return rc;
	}
	return 0;
}

int sl__sq_insert_job(struct sq_op *op, uint64_t id, uint64_t chain_id, uint64_t prev_id, const char *key,
		      const struct sl_new_job *job)
{
	struct sq_row row = {
		.id = id, .chain_id = chain_id, .fence = 1, .status = SL_JOB_PENDING, .priority = job->priority};
	size_t n = strlen(job->type);
	if (n == 0 || n >= sizeof(row.type))
		return sl_err_set(op->err, SL_EDATA, "a type has 1 to %d bytes, not %zu", SQ_TYPE_BYTES - 1, n);
	memcpy(row.type, job->type, n + 1);
	row.due_us = sq_due_us(op, job->at_ms, job->delay_ms);
	row.flags = (job->n_blockers > 0 ? SQ_HAS_BLOCKERS : 0) | (key != NULL ? SQ_KEYED : 0) |
		    (prev_id == 0 && op->from_http ? SQ_FROM_HTTP : 0);
	int rc = job->n_blockers > 0 ? insert_blockers(op, id, job, &row.blockers_open) : 0;
	if (rc != 0)
		return rc;
	if (row.blockers_open > 0)
		row.status = SL_JOB_BLOCKED;
	rc = SQ_RUN(op, SQ_JOB_INSERT, SQ_INT(id), SQ_INT(chain_id), SQ_TEXT_N(row.type, n), SQ_INT(row.status),
		    SQ_INT(row.priority), SQ_INT(row.flags), SQ_INT(op->now_us), SQ_INT_OR_NULL(row.due_us),
		    SQ_INT(row.blockers_open), SQ_INT_OR_NULL(prev_id), SQ_TEXT(key), SQ_TEXT(job->traceparent),
		    SQ_TEXT(job->input != NULL ? job->input : "null"));
	if (rc != 0)
		return rc;
	/* Into its queue, unless it is blocked, or all that is due is put there at once, at the end. */
	bool later = row.due_us > op->now_us;
	if (row.status == SL_JOB_BLOCKED)
		rc = sl__sq_count(op, row.type, SQ_N_BLOCKED, 1);
	else if (op->defer_ready && !later)
		rc = sl__sq_count(op, row.type, SQ_N_READY, 1);
	else
		rc = sl__sq_enqueue(op, &row, row.due_us);
	if (rc != 0)
		return rc;
	sl__report_change(op->scope, SL_CHANGE_CREATED, id, chain_id, row.type);
	if (row.status == SL_JOB_BLOCKED)
		sl__report_change(op->scope, SL_CHANGE_BLOCKED, id, chain_id, row.type);
	else if (later)
		sl__report_change(op->scope, SL_CHANGE_SCHEDULED, id, chain_id, row.type);
	if (row.status == SL_JOB_PENDING)
		sl__report_note(op->scope, SL_NOTE_JOB_SCHEDULED, row.type, id, SL_LOST_NOT);
	return 0;
}

/* ---- the end of a chain ---- */

static int unblock(struct sq_op *op, uint64_t id)
{
	struct sq_row row;
	int rc = sl__sq_row_get(op, id, &row);
	if (rc <= 0)
		return rc;
	rc = SQ_RUN(op, SQ_JOB_UNBLOCK, SQ_INT(id));
	if (rc != 0 || row.status != SL_JOB_BLOCKED || row.blockers_open != 1)
		return rc;
	rc = sl__sq_count(op, row.type, SQ_N_BLOCKED, -1);
	if (rc == 0)
		rc = sl__sq_enqueue(op, &row, row.due_us);
	if (rc != 0)
		return rc;
	sl__report_change(op->scope, SL_CHANGE_UNBLOCKED, id, row.chain_id, row.type);
	sl__report_note(op->scope, SL_NOTE_JOB_SCHEDULED, row.type, id, SL_LOST_NOT);
	return 0;
}

static int open_blocked(struct sq_op *op, uint64_t chain_id)
{
	struct sl__id_set waiting SL_CLEANUP(sl__id_set_fini) = {.env = &op->store->env};
	sqlite3_stmt *s;
	int rc = sl__sqlite_bind(op->c, SQ_BLOCKED_BY, SQ_VALUES(SQ_INT(chain_id)), &s, op->err);
	while (rc == 0 && (rc = sl__sqlite_step(op->c, s, op->err)) > 0)
		rc = sl__id_set_add(&waiting, sl__sqlite_u64(s, 0), op->err);
	(void)sqlite3_reset(s);
	if (rc == 0)
		rc = SQ_RUN(op, SQ_BLOCKER_DONE, SQ_INT(chain_id));
	for (size_t i = 0; rc == 0 && i < waiting.n; i++)
		rc = unblock(op, waiting.ids[i]);
	return rc;
}

int sl__sq_chain_ended(struct sq_op *op, const struct sq_row *row, enum sl_job_status status)
{
	struct sq_row other;
	const struct sq_row *head = row;
	int rc = 0;
	if (row->id != row->chain_id) {
		rc = sl__sq_row_get(op, row->chain_id, &other);
		if (rc <= 0)
			return rc < 0 ? rc : sl_err_set(op->err, SL_ECORRUPT, "the head of a chain is missing");
		head = &other;
		rc = 0;
	}
	if (head->flags & SQ_KEYED)
		rc = SQ_RUN(op, SQ_KEY_FREE, SQ_INT(head->id), SQ_INT(SL_DEDUP_INCOMPLETE));
	if (rc == 0 && (head->flags & SQ_BLOCKING) && status == SL_JOB_COMPLETED)
		rc = open_blocked(op, head->id);
	if (rc != 0)
		return rc;
	if (status == SL_JOB_COMPLETED)
		sl__report_change(op->scope, SL_CHANGE_CHAIN_COMPLETED, head->id, head->id, head->type);
	if (head->flags & SQ_WATCHED)
		sl__report_note(op->scope, SL_NOTE_CHAIN_ENDED, head->type, head->id, SL_LOST_NOT);
	return 0;
}

/* ---- history ---- */

int sl__sq_attempt_put(struct sq_op *op, const struct sq_row *row, const struct sq_past *past)
{
	int64_t hash;
	int rc = sl__claim_hash(&op->claim_hash, &past->claim, &hash, op->err);
	if (rc != 0)
		return rc;
	return SQ_RUN(op, SQ_ATTEMPT_PUT, SQ_INT(row->id), SQ_INT(row->fence), SQ_INT(hash), SQ_INT(past->outcome),
		      SQ_TEXT(past->worker), SQ_TEXT(past->error), SQ_INT_OR_NULL(past->started_us),
		      SQ_INT(op->now_us));
}

void sl__sq_read_claim(sqlite3_stmt *s, int column, struct sl_claim_id *out)
{
	const void *bytes = sqlite3_column_blob(s, column);
	memset(out, 0, sizeof(*out));
	if (bytes != NULL && sqlite3_column_bytes(s, column) == (int)sizeof(out->bytes))
		memcpy(out->bytes, bytes, sizeof(out->bytes));
}

int sl__sq_attempt_put_leased(struct sq_op *op, const struct sq_row *row, enum sl_attempt_outcome outcome,
			      const char *error)
{
	sqlite3_stmt *s;
	int rc = SQ_ROW(op, SQ_LEASE_OF, &s, SQ_INT(row->id), SQ_INT(row->fence));
	if (rc <= 0)
		return rc;
	struct sq_past past = {.outcome = outcome,
			       .worker = sl__sqlite_text(s, 0),
			       .error = error,
			       .started_us = sl__sqlite_i64(s, 1)};
	sl__sq_read_claim(s, 2, &past.claim);
	rc = sl__sq_attempt_put(op, row, &past);
	(void)sqlite3_reset(s);
	return rc;
}

int sl__sq_claim_standing(struct sq_op *op, uint64_t job_id, int32_t attempt, const struct sl_claim_id *claim,
			  enum sl__claim_standing *out)
{
	sqlite3_stmt *s;
	struct sl_claim_id held;
	int64_t hash;
	int rc = sl__claim_hash(&op->claim_hash, claim, &hash, op->err);
	*out = SL__CLAIM_NO_JOB;
	if (rc != 0)
		return rc;
	rc = SQ_ROW(op, SQ_CLAIM_OF, &s, SQ_INT(job_id), SQ_INT(attempt));
	if (rc <= 0)
		return rc;
	/* Of the job: its last attempt that ended and, when that completed it, the claim. Of its lease, if any: the
	 * attempt that runs, and its claim. Of the history: the claim of the attempt that is asked for. */
	bool runs = sqlite3_column_type(s, 2) != SQLITE_NULL;
	bool completed = sqlite3_column_type(s, 1) != SQLITE_NULL && sqlite3_column_int(s, 0) == attempt;
	int32_t last = runs ? sqlite3_column_int(s, 2) : sqlite3_column_int(s, 0);
	sl__sq_read_claim(s, 3, &held);
	bool genuine = (runs && last == attempt && memcmp(&held, claim, sizeof(held)) == 0) ||
		       (completed && sl__sqlite_i64(s, 1) == hash) ||
		       (sqlite3_column_type(s, 4) != SQLITE_NULL && sl__sqlite_i64(s, 4) == hash);
	(void)sqlite3_reset(s);
	*out = !genuine ? SL__CLAIM_FORGED : attempt == last ? SL__CLAIM_LATEST : SL__CLAIM_OLD;
	return 0;
}
