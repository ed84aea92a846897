/* SPDX-License-Identifier: Apache-2.0 */
/* Removing chains, with everything that belongs to them; and the retention that removes old ones. */
#include "jobs/store/id_set.h"
#include "jobs/store/refusals.h"
#include "jobs/store/sqlite/store.h"

#define ORPHAN_PAGE 10000

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

static int remove_job(struct sq_op *op, uint64_t id)
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
	if (!queued)
		sl__report_note(op->scope, SL_NOTE_OWNERSHIP_LOST, row.type, id, SL_LOST_NOT_FOUND);
	sl__report_change(op->scope, SL_CHANGE_DELETED, id, row.chain_id, row.type);
	return 0;
}

static int remove_chain(struct sq_op *op, uint64_t chain_id)
{
	struct sl__id_set jobs SL_CLEANUP(sl__id_set_fini) = {.env = &op->store->env};
	sqlite3_stmt *s;
	int rc = sl__sqlite_bind(op->c, SQ_CHAIN_JOBS, SQ_VALUES(SQ_INT(chain_id)), &s, op->err);
	while (rc == 0 && (rc = sl__sqlite_step(op->c, s, op->err)) > 0)
		rc = sl__id_set_add(&jobs, sl__sqlite_u64(s, 0), op->err);
	(void)sqlite3_reset(s);
	for (size_t i = 0; rc == 0 && i < jobs.n; i++)
		rc = remove_job(op, jobs.ids[i]);
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
	for (size_t i = 0; rc == 0 && i < x.set.n; i++)
		rc = remove_chain(&op, x.set.ids[i]);
	rc = sl__sq_op_end(&op, rc);
	if (rc == 0 && n != NULL)
		*n = x.set.n;
	sl__id_set_fini(&x.set);
	return rc;
}

/* ---- retention ---- */

static int prune_found(struct sq_op *op, int64_t before_us, const struct sl__id_set *found, size_t *n)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < found->n; i++) {
		sqlite3_stmt *s;
		uint64_t id = found->ids[i];
		/* It may have been redriven, or become a blocker, since it was found. */
		rc = SQ_ROW(op, SQ_PRUNE_CHECK, &s, SQ_INT(before_us), SQ_INT(id));
		(void)sqlite3_reset(s);
		if (rc <= 0)
			continue;
		rc = remove_chain(op, id);
		++*n;
	}
	return rc;
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
	struct sq_store *s = store;
	struct sq_op op;
	struct sl__sqlite *c;
	sqlite3_stmt *st;
	struct sl__id_set found SL_CLEANUP(sl__id_set_fini) = {.env = &s->env};
	size_t removed = 0;
	/* The search reads the whole history when little is old enough, so it is made without the lock. */
	int rc = sl__sq_read_begin(s, NULL, &c, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_bind(c, SQ_PRUNE_FIND, SQ_VALUES(SQ_INT(sq_us(before_ms)), SQ_INT(limit)), &st, err);
	while (rc == 0 && (rc = sl__sqlite_step(c, st, err)) > 0)
		rc = sl__id_set_add(&found, sl__sqlite_u64(st, 0), err);
	(void)sqlite3_reset(st);
	sl__sq_read_end(s, NULL, c);
	if (rc == 0 && found.n > 0) {
		rc = sl__sq_op_begin(&op, s, SQ_DURABLE, scope, err);
		if (rc == 0)
			rc = sl__sq_op_end(&op, prune_found(&op, sq_us(before_ms), &found, &removed));
	}
	if (rc == 0 && removed == 0)
		rc = sq_prune_events(s, before_ms, err);
	if (rc == 0)
		*n = removed;
	return rc;
}
