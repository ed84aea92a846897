/* SPDX-License-Identifier: Apache-2.0 */
/* Removing chains, with everything that belongs to them; and the retention that removes old ones. */
#include "jobs/store/id_set.h"
#include "jobs/store/refusals.h"
#include "jobs/store/sqlite/store.h"

#define ORPHAN_PAGE 10000
#define SCAN_PAGES 10 /* of a prune: rows that are read for each chain that may be deleted */

/* The chains to remove. */
struct removing {
	struct sl__id_set set;
	bool cascade;
	struct sl_err *err;
};

static int take_in_waiting(const struct sl__cold_row *row, void *ctx)
{
	struct removing *x = ctx;
	if (!x->cascade)
		return sl__refuse_waited_for(sl__cold_id(row, 0), sl__cold_id(row, 1), x->err);
	return sl__id_set_add(&x->set, sl__cold_id(row, 0), x->err);
}

/* Chains outside of the set that wait for one inside: refuse them, or take them in, until no other waits. */
static int close_over(struct removing *x, struct sq_op *op)
{
	int rc = 0;
	for (size_t before = SIZE_MAX; rc == 0 && before != x->set.n;) {
		sl__id_set_sort(&x->set);
		before = x->set.n;
		/* The query has a copy of the ids. */
		const struct sl__cold_query query = {.stmt = SL__COLD_WAITING,
						     COLD_VALUES(COLD_IDS(x->set.ids, before)),
						     .row = take_in_waiting,
						     .ctx = x};
		rc = sl__sq_cold_rows(op->store, op->c, &query, op->err);
	}
	return rc;
}

/* Jobs that were removed, by how they had ended. */
struct removed_jobs {
	uint64_t by[SL_JOB_STATUS_COUNT + 1];
};

static int remove_job(struct sq_op *op, uint64_t id, struct removed_jobs *gone)
{
	struct sq_row row;
	bool queued = true;
	int rc = sl__sq_row_get(op, id, &row);
	if (rc <= 0)
		return rc;
	if (row.status == SL_JOB_PENDING)
		rc = sl__sq_dequeue(op, &row, &queued);
	else
		rc = sl__sq_count(op, row.type, sl__sq_kind(row.status), -1);
	if (rc == 0 && (row.flags & SQ_KEYED))
		rc = SQ_RUN(op, SQ_KEY_FREE, SQ_INT(id), SQ_INT(SL_DEDUP_ANY));
	/* What belongs to the job, as far as its flags say that there is any; then the job. */
	const struct {
		enum sq_statement statement;
		bool any;
	} rows[] = {{SQ_ATTEMPTS_DELETE, true},
		    {SQ_EVENTS_DELETE, true},
		    {SQ_EDGES_DELETE, (row.flags & SQ_HAS_BLOCKERS) != 0},
		    {SQ_EDGES_TO_DELETE, (row.flags & SQ_BLOCKING) != 0},
		    {SQ_JOB_DELETE, true}};
	for (size_t i = 0; rc == 0 && i < SL_COUNT(rows); i++)
		if (rows[i].any)
			rc = SQ_RUN(op, rows[i].statement, SQ_INT(id));
	if (rc != 0)
		return rc;
	gone->by[row.status]++;
	if (!queued)
		sl__report_note(op->scope, SL_NOTE_OWNERSHIP_LOST, row.type, id, SL_LOST_NOT_FOUND);
	sl__report_change(op->scope, SL_CHANGE_DELETED, id, row.chain_id, row.type);
	return 0;
}

/* *events: at most about that many are deleted with the chain; one that has more loses as many, and stays. NULL: it goes,
 * however many there are. *removed: it is gone. */
static int remove_chain(struct sq_op *op, uint64_t chain_id, uint32_t *events, struct removed_jobs *gone, bool *removed)
{
	struct sl__id_set jobs SL_CLEANUP(sl__id_set_fini) = {.env = &op->store->env};
	sqlite3_stmt *s;
	int rc = sl__sqlite_bind(op->c, SQ_CHAIN_JOBS, SQ_VALUES(SQ_INT(chain_id)), &s, op->err);
	while (rc == 0 && (rc = sl__sqlite_step(op->c, s, op->err)) > 0)
		rc = sl__id_set_add(&jobs, sl__sqlite_u64(s, 0), op->err);
	(void)sqlite3_reset(s);
	for (size_t i = 0; rc == 0 && events != NULL && i < jobs.n; i++) {
		int deleted = 0;
		rc = SQ_CHANGE(op, SQ_EVENTS_SOME, &deleted, SQ_INT(jobs.ids[i]), SQ_INT(*events));
		*events -= SL_MIN((uint32_t)deleted, *events);
		if (rc == 0 && *events == 0)
			return 0;
	}
	for (size_t i = 0; rc == 0 && i < jobs.n; i++)
		rc = remove_job(op, jobs.ids[i], gone);
	*removed = rc == 0;
	return rc;
}

int sl__sq_remove(void *store, struct sl_ids chains, bool cascade, const struct sl_store_scope *scope, size_t *n,
		  struct sl_err *err)
{
	struct sq_op op;
	int rc = sl__sq_op_begin(&op, store, SQ_DURABLE, scope, err);
	if (rc != 0)
		return rc;
	struct removing x = {.set = {.env = &op.store->env}, .cascade = cascade, .err = err};
	for (size_t i = 0; rc == 0 && i < chains.n; i++) {
		struct sq_row row;
		rc = sl__sq_chain_last(&op, chains.ids[i], &row);
		if (rc == 0)
			rc = sl__id_set_add(&x.set, chains.ids[i], err);
	}
	if (rc == 0)
		rc = close_over(&x, &op);
	struct removed_jobs gone = {0};
	bool removed;
	for (size_t i = 0; rc == 0 && i < x.set.n; i++)
		rc = remove_chain(&op, x.set.ids[i], NULL, &gone, &removed);
	rc = sl__sq_op_end(&op, rc);
	if (rc == 0 && n != NULL)
		*n = x.set.n;
	sl__id_set_fini(&x.set);
	return rc;
}

/* ---- retention ---- */

static int prune_found(struct sq_op *op, struct sl_prune_step *step, const struct sl__id_set *found)
{
	int64_t completed_us = sq_us(step->completed_before_ms), failed_us = sq_us(step->failed_before_ms);
	int64_t exported = (int64_t)SL_MIN(step->exported, (uint64_t)INT64_MAX);
	struct removed_jobs gone = {0};
	uint32_t events = step->n_events;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < found->n; i++) {
		sqlite3_stmt *s;
		uint64_t id = found->ids[i];
		bool removed = false;
		/* It may have been redriven, or become a blocker, since it was found. */
		rc = SQ_ROW(op, SQ_PRUNE_CHECK, &s, SQ_INT(completed_us), SQ_INT(failed_us), SQ_INT(id), SQ_INT(id),
			    SQ_INT(exported), SQ_INT(sq_us(step->now_ms)));
		(void)sqlite3_reset(s);
		if (rc <= 0)
			continue;
		rc = remove_chain(op, id, step->n_events != 0 ? &events : NULL, &gone, &removed);
		step->chains += removed;
		if (rc == 0 && !removed) { /* the next step continues with it */
			step->after = id - 1;
			step->end = false;
			break;
		}
	}
	step->events = step->n_events - events;
	if (rc == 0 && step->chains > 0)
		rc = SQ_RUN(op, SQ_PRUNED, SQ_INT(op->now_us / 1000), SQ_INT(step->chains),
			    SQ_INT(gone.by[SL_JOB_COMPLETED]), SQ_INT(gone.by[SL_JOB_FAILED]));
	return rc;
}

/* The chains of one page of jobs, without the lock; what comes after the page in step. */
static int sq_find_prunable(struct sq_store *s, struct sl_prune_step *step, struct sl__id_set *found,
			    struct sl_err *err)
{
	int64_t completed_us = sq_us(step->completed_before_ms), failed_us = sq_us(step->failed_before_ms);
	int64_t exported = (int64_t)SL_MIN(step->exported, (uint64_t)INT64_MAX);
	struct sl__sqlite *c;
	sqlite3_stmt *st;
	uint64_t last = step->after, n = 0;
	int rc = sl__sq_read_begin(s, NULL, &c, err);
	if (rc != 0)
		return rc;
	/* Ids grow with the time of creation: the first page with a job that is too young is the last. */
	rc = sl__sqlite_bind(
		c, SQ_PRUNE_PAGE,
		SQ_VALUES(SQ_INT(step->after), SQ_INT(step->scan), SQ_INT(SL_MAX(completed_us, failed_us))), &st, err);
	if (rc == 0 && (rc = sl__sqlite_step(c, st, err)) > 0) {
		n = (uint64_t)sqlite3_column_double(st, 0);
		last = SL_MAX(last, sl__sqlite_u64(st, 1));
		step->end = n < step->scan;
		rc = 0;
	}
	(void)sqlite3_reset(st);
	if (rc == 0 && n > 0)
		rc = sl__sqlite_bind(c, SQ_PRUNE_FIND,
				     SQ_VALUES(SQ_INT(completed_us), SQ_INT(failed_us), SQ_INT(step->after),
					       SQ_INT(last), SQ_INT(exported), SQ_INT(sq_us(step->now_ms)),
					       SQ_INT(step->limit)),
				     &st, err);
	while (rc == 0 && n > 0 && (rc = sl__sqlite_step(c, st, err)) > 0)
		rc = sl__id_set_add(found, sl__sqlite_u64(st, 0), err);
	(void)sqlite3_reset(st);
	sl__sq_read_end(s, NULL, c);
	if (rc != 0)
		return rc;
	if (found->n == step->limit) {
		last = found->ids[found->n - 1];
		step->end = false;
	}
	step->after = last;
	return 0;
}

/* The search is made without the lock, and with it only what was found. */
static int sq_prune_step(struct sq_store *s, struct sl_prune_step *step, const struct sl_store_scope *scope,
			 struct sl_err *err)
{
	struct sl__id_set found SL_CLEANUP(sl__id_set_fini) = {.env = &s->env};
	struct sq_op op;
	step->chains = step->events = 0;
	int rc = sq_find_prunable(s, step, &found, err);
	if (rc != 0 || found.n == 0)
		return rc;
	rc = sl__sq_op_begin(&op, s, SQ_DURABLE, scope, err);
	if (rc != 0)
		return rc;
	return sl__sq_op_end(&op, prune_found(&op, step, &found));
}

int sl__sq_retain_chains(void *store, struct sl_prune_step *step, struct sl_err *err)
{
	return sq_prune_step(store, step, NULL, err);
}

/* One page of the jobs that events name, without the lock: those that are not there. *after: the last one. *n: all. */
static int find_orphans(struct sq_store *s, uint64_t *after, struct sl__id_set *gone, size_t *n, struct sl_err *err)
{
	struct sl__sqlite *c;
	sqlite3_stmt *st;
	int rc = sl__sq_read_begin(s, NULL, &c, err);
	if (rc != 0)
		return rc;
	*n = 0;
	rc = sl__sqlite_bind(c, SQ_EVENT_JOBS, SQ_VALUES(SQ_INT(*after), SQ_INT(ORPHAN_PAGE)), &st, err);
	while (rc == 0 && (rc = sl__sqlite_step(c, st, err)) > 0) {
		*after = sl__sqlite_u64(st, 0);
		++*n;
		rc = sqlite3_column_int(st, 1) ? sl__id_set_add(gone, *after, err) : 0;
	}
	(void)sqlite3_reset(st);
	sl__sq_read_end(s, NULL, c);
	return rc;
}

/* Events that came after their job was deleted. */
static int sq_prune_events(struct sq_store *s, int64_t before_ms, struct sl_err *err)
{
	int64_t before_us = sq_us(before_ms);
	struct sl__id_set gone SL_CLEANUP(sl__id_set_fini) = {.env = &s->env};
	uint64_t after = 0;
	size_t n = ORPHAN_PAGE;
	int rc = 0;
	while (rc == 0 && n == ORPHAN_PAGE) {
		struct sq_op op;
		gone.n = 0;
		rc = find_orphans(s, &after, &gone, &n, err);
		if (rc != 0 || gone.n == 0)
			continue;
		rc = sl__sq_op_begin(&op, s, SQ_DURABLE, NULL, err);
		if (rc != 0)
			break;
		for (size_t i = 0; rc == 0 && i < gone.n; i++)
			rc = SQ_RUN(&op, SQ_EVENTS_ORPHANED, SQ_INT(gone.ids[i]), SQ_INT(before_us));
		rc = sl__sq_op_end(&op, rc);
	}
	/* Those whose job was gone when they came, a page in each transaction: others write in between. */
	for (int changed = ORPHAN_PAGE; rc == 0 && changed == ORPHAN_PAGE;) {
		struct sq_op op;
		rc = sl__sq_op_begin(&op, s, SQ_DURABLE, NULL, err);
		if (rc == 0)
			rc = sl__sq_op_end(&op, SQ_CHANGE(&op, SQ_EVENTS_JOBLESS, &changed, SQ_INT(before_us),
							  SQ_INT(ORPHAN_PAGE)));
	}
	if (rc != 0)
		return rc;
	return sl__cold_prune_marks(&s->cold, before_ms, err);
}

int sl__sq_prune(void *store, int64_t before_ms, uint32_t limit, const struct sl_store_scope *scope, size_t *n,
		 struct sl_err *err)
{
	struct sl_prune_step step = {.completed_before_ms = before_ms,
				     .failed_before_ms = before_ms,
				     .now_ms = SL__NO_KEYS_MS,
				     .exported = UINT64_MAX,
				     .scan = limit * SCAN_PAGES,
				     .limit = limit};
	int rc = 0;
	while (rc == 0 && step.chains == 0 && !step.end)
		rc = sq_prune_step(store, &step, scope, err);
	if (rc == 0 && step.chains == 0)
		rc = sq_prune_events(store, before_ms, err);
	if (rc == 0)
		*n = step.chains;
	return rc;
}
