/* SPDX-License-Identifier: Apache-2.0 */
/* Lists (jobs/store/list.h) in SQLite's dialect, in one read transaction, so that all queries of a page see one
 * snapshot. */
#include "jobs/store/list.h"
#include "jobs/store/sqlite/store.h"

#define STATE SQ_STATE("r.id", "@")
#define CHAINS "SELECT " SQ_CHAIN_COLUMNS("[h.input]", "[j.output]", "r.id") "," STATE SQ_CHAIN_FROM

#define READY_PART                                                                                                     \
	{                                                                                                              \
		.group = "g",                                                                                          \
		.from = "FROM sluice_ready q WHERE q.type=g.type AND q.solo=g.solo AND q.priority=g.priority",         \
		.id = "q.id"                                                                                           \
	}
#define SCHED_PART                                                                                                     \
	{                                                                                                              \
		.group = "k", .from = "FROM sluice_sched q INDEXED BY sluice_sched_oldest WHERE q.type=k.type",        \
		.id = "q.id"                                                                                           \
	}

static const struct sl__list_dialect dialect = {
	.job = "sluice_job",
	.blocker = "sluice_blocker",
	.in = "IN (",
	.in_end = ")",
	.in_ids = "IN (SELECT value FROM json_each(",
	.in_ids_end = "))",
	.each = " CROSS JOIN json_each((SELECT json_group_array(id) FROM (",
	.each_end = "))) x",
	.each_id = "x.value",
	.now = "?",
	.created = "created_us",
	.ended = "ended_us",
	.find = "instr",
	.length = "length(CAST(",
	.length_end = " AS BLOB))",
	.error_line = SQ_ERROR_LINE,
	.status = "iif(r.id IS NULL,j.status,3)",
	.state = STATE,
	.leases = SQ_LEASED,
	.jobs = "SELECT " SQ_JOB_COLUMNS("[j.input]", "[j.output]", "[j.progress]") "," STATE SQ_JOB_FROM " WHERE true",
	.chains = CHAINS " WHERE h.id=h.chain_id",
	.blocked_chains = CHAINS " JOIN sluice_blocker b ON b.chain_id=h.id AND b.job_id=",
	.whole = {[SL_JOB_BLOCKED] = "SELECT id FROM sluice_job WHERE status=1",
		  [SL_JOB_PENDING] = "SELECT id FROM sluice_ready UNION ALL SELECT id FROM sluice_sched",
		  [SL_JOB_RUNNING] = "SELECT id FROM r",
		  [SL_JOB_READY] = "SELECT id FROM sluice_ready UNION ALL SELECT q.id FROM sluice_count c CROSS JOIN"
				   " sluice_sched q ON q.type=c.type AND q.due_us<=@ WHERE c.sched>0",
		  [SL_JOB_SCHEDULED] = "SELECT id FROM sluice_sched",
		  [SL_JOB_RETRYING] = "SELECT id FROM sluice_sched WHERE tried=1"},
	/* Of each type the priorities of its queue, each found by one step of the index after the one before it. A NULL
	 * ends them: there are at most two per priority, with solo and without. */
	.groups = "g(type,solo,priority) AS (SELECT c.type,s.value,(SELECT min(q.priority) FROM sluice_ready q"
		  " WHERE q.type=c.type AND q.solo=s.value) FROM sluice_count c CROSS JOIN json_each('[0,1]') s"
		  " WHERE c.ready>0 UNION ALL SELECT g.type,g.solo,(SELECT min(q.priority) FROM sluice_ready q"
		  " WHERE q.type=g.type AND q.solo=g.solo AND q.priority>g.priority) FROM g"
		  " WHERE g.priority IS NOT NULL LIMIT 3001),"
		  "k(type) AS (SELECT type FROM sluice_count WHERE sched>0 LIMIT 1001),"
		  "b(type) AS (SELECT type FROM sluice_count WHERE blocked>0 LIMIT 1001)",
	.n_groups = "(SELECT count(priority) FROM g)+(SELECT count(*) FROM k)+(SELECT count(*) FROM b)",
	.parts = {[SL_JOB_BLOCKED] = {{.group = "b",
				       .from = "FROM sluice_job q INDEXED BY sluice_job_blocked"
					       " WHERE q.status=1 AND q.type=b.type",
				       .id = "q.id"}},
		  [SL_JOB_PENDING] = {READY_PART, SCHED_PART},
		  /* By their times, then put in order. */
		  [SL_JOB_READY] = {READY_PART,
				    {.group = "k",
				     .from = "FROM sluice_sched q WHERE q.type=k.type AND q.due_us<=@",
				     .id = "+q.id"}},
		  [SL_JOB_SCHEDULED] = {SCHED_PART},
		  [SL_JOB_RETRYING] = {{.from = "FROM sluice_sched q INDEXED BY sluice_sched_tried WHERE q.tried=1",
					.id = "q.id"}}},
	/* The condition of the partial index, as it is there. */
	.stopped = "FROM sluice_job x INDEXED BY sluice_job_stopped WHERE x.status>=5 AND x.status=",
	.stopped_chains = "FROM sluice_job x INDEXED BY sluice_job_stopped_chain WHERE x.status>=5 AND x.status=",
	.continued = "FROM sluice_job c INDEXED BY sluice_job_chain WHERE c.chain_id<>c.id",
};
_Static_assert(SL__LIST_GROUPS_MAX == 1000, "as the groups stop");

struct list_call {
	struct sq_store *store;
	struct sl__sqlite *c;
};

static int sq_list_query(const struct sl__cold_query *q, struct sl_err *err, void *ctx)
{
	const struct list_call *l = ctx;
	return sl__sq_cold_rows(l->store, l->c, q, err);
}

static int sq_list_oldest(uint64_t *out, struct sl_err *err, void *ctx)
{
	const struct list_call *l = ctx;
	return sl__sq_oldest_pending(l->c, out, err);
}

static int sq_list(struct sq_store *s, const struct sl_job_filter *filter, const struct sl__list_to *to,
		   struct sl_err *err)
{
	struct list_call l = {.store = s};
	const struct sl__list_db db = {
		.env = &s->env, .dialect = &dialect, .run = sq_list_query, .oldest_pending = sq_list_oldest, .ctx = &l};
	int rc = sl__sq_read_begin(s, NULL, &l.c, err);
	if (rc != 0)
		return rc;
	rc = sl__sqlite_exec(l.c, "BEGIN", err);
	if (rc == 0)
		rc = sl__list(&db, filter, to, err);
	sl__sqlite_rollback(l.c);
	sl__sq_read_end(s, NULL, l.c);
	return rc;
}

int sl__sq_list_jobs(void *store, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	return sq_list(store, filter, &(struct sl__list_to){.job = fn, .ctx = ctx}, err);
}

int sl__sq_list_chains(void *store, const struct sl_job_filter *filter, sl_chain_fn *fn, void *ctx, struct sl_err *err)
{
	return sq_list(store, filter, &(struct sl__list_to){.chain = fn, .ctx = ctx}, err);
}
