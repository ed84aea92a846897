/* SPDX-License-Identifier: Apache-2.0 */
/* Removing chains, with everything that belongs to them; and the retention that removes old ones. */
#include <inttypes.h>
#include <stdlib.h>

#include "jobs/store/sqlite/store.h"

#define ORPHAN_PAGE 10000

/* A set of chains, once each, as numbers and as a JSON array for statements. */
struct doomed {
	struct sq_op *op;
	struct sl__buf ids; /* 8 bytes each */
	struct sl__buf json;
};

static int doomed_no_memory(struct doomed *d)
{
	return sl_err_set(d->op->err, SL_ENOMEM, "no memory for the chains to remove");
}

static size_t doomed_count(const struct doomed *d)
{
	return d->ids.len / 8;
}

static uint64_t doomed_at(const struct doomed *d, size_t i)
{
	return sl__get64(d->ids.data + i * 8);
}

static int compare_doomed(const void *a, const void *b)
{
	uint64_t x = sl__get64(a), y = sl__get64(b);
	return x < y ? -1 : x > y;
}

/* Sort, drop what is there twice, write the JSON. */
static int doomed_settle(struct doomed *d)
{
	size_t n = doomed_count(d), kept = 0;
	if (n > 0)
		qsort(d->ids.data, n, 8, compare_doomed);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || doomed_at(d, i) != doomed_at(d, i - 1))
			sl__put64(d->ids.data + 8 * kept++, doomed_at(d, i));
	d->ids.len = kept * 8;
	sl__buf_clear(&d->json);
	for (size_t i = 0; i < kept; i++)
		(void)sl__buf_printf(&d->json, "%c%" PRIu64, i == 0 ? '[' : ',', doomed_at(d, i));
	(void)sl__buf_str_append(&d->json, kept == 0 ? "[]" : "]");
	return d->json.failed != 0 ? doomed_no_memory(d) : 0;
}

/* Chains outside of the set that wait for one inside: refuse them, or take them in. */
static int take_in_waiting(struct doomed *d, bool cascade)
{
	for (size_t before = SIZE_MAX; before != doomed_count(d);) {
		sqlite3_stmt *s;
		before = doomed_count(d);
		int rc = sl__sqlite_bind(d->op->c, SQ_WAITING, SQ_VALUES(SQ_TEXT(d->json.data)), &s, d->op->err);
		while (rc == 0 && (rc = sl__sqlite_step(d->op->c, s, d->op->err)) > 0) {
			rc = sl__buf_put64(&d->ids, sl__sqlite_u64(s, 0)) != 0 ? doomed_no_memory(d) : 0;
			if (!cascade)
				rc = sl_err_set(d->op->err, SL_EPENDING,
						"chain %" PRIu64 " waits for chain %" PRIu64
						"; remove it too, or let it go with a cascade",
						sl__sqlite_u64(s, 0), sl__sqlite_u64(s, 1));
		}
		(void)sqlite3_reset(s);
		if (rc == 0)
			rc = doomed_settle(d);
		if (rc != 0)
			return rc;
	}
	return 0;
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
		sl__sq_note(op, SL_NOTE_OWNERSHIP_LOST, row.type, id, SL_LOST_NOT_FOUND);
	sl__sq_changed(op, SL_CHANGE_DELETED, id, row.chain_id, row.type);
	return 0;
}

static int remove_chain(struct sq_op *op, uint64_t chain_id)
{
	struct sl__buf jobs;
	sqlite3_stmt *s;
	sl__buf_init(&jobs, &op->store->env);
	int rc = sl__sqlite_bind(op->c, SQ_CHAIN_JOBS, SQ_VALUES(SQ_INT(chain_id)), &s, op->err);
	while (rc == 0 && (rc = sl__sqlite_step(op->c, s, op->err)) > 0)
		rc = sl__buf_put64(&jobs, sl__sqlite_u64(s, 0));
	(void)sqlite3_reset(s);
	if (rc == SL_ENOMEM)
		(void)sl_err_set(op->err, rc, "no memory for the jobs of a chain");
	for (size_t i = 0; rc == 0 && i < jobs.len; i += 8)
		rc = remove_job(op, sl__get64(jobs.data + i));
	sl__buf_fini(&jobs);
	return rc;
}

int sl__sq_remove(void *store, struct sl_ids chains, bool cascade, const struct sl_store_scope *scope, size_t *n,
		  struct sl_err *err)
{
	struct sq_op op;
	struct doomed d = {.op = &op};
	int rc = sl__sq_op_begin(&op, store, SQ_DURABLE, scope, err);
	if (rc != 0)
		return rc;
	sl__buf_init(&d.ids, &op.store->env);
	sl__buf_init(&d.json, &op.store->env);
	for (size_t i = 0; rc == 0 && i < chains.n; i++) {
		struct sq_row row;
		rc = sl__sq_chain_last(&op, chains.ids[i], &row);
		if (rc == 0 && sl__buf_put64(&d.ids, chains.ids[i]) != 0)
			rc = doomed_no_memory(&d);
	}
	if (rc == 0)
		rc = doomed_settle(&d);
	if (rc == 0)
		rc = take_in_waiting(&d, cascade);
	size_t count = doomed_count(&d);
	for (size_t i = 0; rc == 0 && i < count; i++)
		rc = remove_chain(&op, doomed_at(&d, i));
	sl__buf_fini(&d.ids);
	sl__buf_fini(&d.json);
	rc = sl__sq_op_end(&op, rc);
	if (rc == 0 && n != NULL)
		*n = count;
	return rc;
}

/* ---- retention ---- */

static int prune_found(struct sq_op *op, int64_t before_us, const struct sl__buf *ids, size_t *n)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < ids->len; i += 8) {
		sqlite3_stmt *s;
		uint64_t id = sl__get64(ids->data + i);
		/* It may have been re-driven, or become a blocker, since it was found. */
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
static int find_orphans(struct sq_store *s, uint64_t *after, struct sl__buf *ids, size_t *n, struct sl_err *err)
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
		rc = sqlite3_column_int(st, 1) ? sl__buf_put64(ids, *after) : 0;
	}
	if (rc == SL_ENOMEM)
		(void)sl_err_set(err, rc, "no memory for the events to prune");
	(void)sqlite3_reset(st);
	sl__sq_read_end(s, NULL, c);
	return rc;
}

/* Events that came after their job was deleted. */
static int sq_prune_events(struct sq_store *s, int64_t before_us, struct sl_err *err)
{
	struct sl__buf ids;
	uint64_t after = 0;
	size_t n = ORPHAN_PAGE;
	int rc = 0;
	sl__buf_init(&ids, &s->env);
	while (rc == 0 && n == ORPHAN_PAGE) {
		struct sq_op op;
		sl__buf_clear(&ids);
		rc = find_orphans(s, &after, &ids, &n, err);
		if (rc != 0 || ids.len == 0)
			continue;
		rc = sl__sq_op_begin(&op, s, SQ_DURABLE, NULL, err);
		if (rc != 0)
			break;
		for (size_t i = 0; rc == 0 && i < ids.len; i += 8)
			rc = SQ_RUN(&op, SQ_EVENTS_ORPHANED, SQ_INT(sl__get64(ids.data + i)), SQ_INT(before_us));
		rc = sl__sq_op_end(&op, rc);
	}
	sl__buf_fini(&ids);
	/* Those whose job was gone when they came, a page in each transaction: others write in between. */
	for (int changed = ORPHAN_PAGE; rc == 0 && changed == ORPHAN_PAGE;) {
		struct sq_op op;
		rc = sl__sq_op_begin(&op, s, SQ_DURABLE, NULL, err);
		if (rc == 0)
			rc = sl__sq_op_end(&op, SQ_CHANGE(&op, SQ_EVENTS_JOBLESS, &changed, SQ_INT(before_us),
							  SQ_INT(ORPHAN_PAGE)));
	}
	if (rc == 0) { /* then marks of which nothing is left */
		struct sq_op op;
		rc = sl__sq_op_begin(&op, s, SQ_DURABLE, NULL, err);
		if (rc == 0)
			rc = sl__sq_op_end(&op, SQ_RUN(&op, SQ_MARKS_PRUNE, SQ_INT(before_us)));
	}
	return rc;
}

int sl__sq_prune(void *store, int64_t before_ms, uint32_t limit, const struct sl_store_scope *scope, size_t *n,
		 struct sl_err *err)
{
	struct sq_store *s = store;
	struct sq_op op;
	struct sl__sqlite *c;
	sqlite3_stmt *st;
	struct sl__buf ids;
	size_t removed = 0;
	/* The search reads the whole history when little is old enough, so it is made without the lock. */
	int rc = sl__sq_read_begin(s, NULL, &c, err);
	if (rc != 0)
		return rc;
	sl__buf_init(&ids, &s->env);
	rc = sl__sqlite_bind(c, SQ_PRUNE_FIND, SQ_VALUES(SQ_INT(sq_us(before_ms)), SQ_INT(limit)), &st, err);
	while (rc == 0 && (rc = sl__sqlite_step(c, st, err)) > 0)
		rc = sl__buf_put64(&ids, sl__sqlite_u64(st, 0));
	if (rc == SL_ENOMEM)
		(void)sl_err_set(err, rc, "no memory for the chains to prune");
	(void)sqlite3_reset(st);
	sl__sq_read_end(s, NULL, c);
	if (rc == 0 && ids.len > 0) {
		rc = sl__sq_op_begin(&op, s, SQ_DURABLE, scope, err);
		if (rc == 0)
			rc = sl__sq_op_end(&op, prune_found(&op, sq_us(before_ms), &ids, &removed));
	}
	if (rc == 0 && removed == 0)
		rc = sq_prune_events(s, sq_us(before_ms), err);
	sl__buf_fini(&ids);
	if (rc == 0)
		*n = removed;
	return rc;
}
