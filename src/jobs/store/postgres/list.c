/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists (jobs/store/list.h) in PostgreSQL's dialect. Every statement is planned for its values, and looks up ids by an
 * index: an OFFSET 0 and = ANY (array) keep a planner that knows little of the tables from joining them whole.
 */
#include "jobs/store/list.h"
#include "jobs/store/postgres/store.h"

#define STATUS "CASE WHEN run.until IS NULL THEN j.status ELSE 3 END"
#define STATE                                                                                                          \
	"CASE WHEN run.until IS NOT NULL THEN 3 WHEN j.status <> 2 THEN j.status"                                      \
	" WHEN j.scheduled_for IS NULL OR j.scheduled_for <= @ THEN 7 WHEN j.charged > 0 THEN 9 ELSE 8 END"
#define JOIN_RUN " LEFT JOIN run ON run.id = j.id AND run.fence = j.fence AND j.status = 2"
#define CHAINS                                                                                                         \
	"SELECT h.id, j.id, h.type, j.type, " STATUS ", [h.input], [j.output], j.error, h.key, h.created_at,"          \
	" j.ended_at, " STATE                                                                                          \
	" FROM {s}.job h CROSS JOIN LATERAL (SELECT * FROM {s}.job x WHERE x.id = coalesce(h.last_id, "                \
	"h.id)"                                                                                                        \
	" OFFSET 0) j" JOIN_RUN

#define READY_PART                                                                                                     \
	{                                                                                                              \
		.group = "g",                                                                                          \
		.from = "FROM {s}.ready r WHERE r.type = g.type AND r.solo = g.solo AND r.priority = g.priority",      \
		.id = "r.id"                                                                                           \
	}
#define SCHED_PART                                                                                                     \
	{                                                                                                              \
		.group = "k", .from = "FROM {s}.sched q WHERE q.type = k.type", .id = "q.id"                           \
	}

static const struct sl__list_dialect dialect = {
	.numbered = true,
	.job = "{s}.job",
	.blocker = "{s}.blocker",
	.in = "= ANY (ARRAY(",
	.in_end = "))",
	.in_ids = "= ANY (",
	.in_ids_end = ")",
	.each = " CROSS JOIN LATERAL (",
	.each_end = ") x",
	.each_id = "x.id",
	.now = "now()", /* for an index, unlike clock_timestamp() */
	.created = "created_at",
	.ended = "ended_at",
	.find = "strpos",
	.length = "octet_length(", /* known without fetching the value */
	.length_end = ")",
	.error_line = SL__PG_ERROR_LINE,
	.status = STATUS,
	.state = STATE,
	.head_status = "coalesce(h.chain_status, h.status)",
	.leases = "run AS MATERIALIZED (SELECT u.id, u.fence, l.worker, l.until, l.claimed_at FROM {s}.lease l"
		  " CROSS JOIN LATERAL unnest(l.ids, l.fences) AS u(id, fence))",
	.jobs = "SELECT j.id, j.chain_id, j.prev_id, j.next_id, j.type, " STATUS ","
		" CASE WHEN run.until IS NULL THEN j.attempt ELSE j.fence::integer END, j.priority, [j.input],"
		" [j.output], j.error, [j.progress], j.key, j.traceparent, coalesce(run.worker, j.leased_by),"
		" j.created_at, j.scheduled_for, coalesce(run.claimed_at, j.started_at), j.ended_at, run.until,"
		" j.blockers_open, j.charged, " STATE " FROM {s}.job j" JOIN_RUN " WHERE true",
	.chains = CHAINS " WHERE h.id = h.chain_id",
	.blocked_chains = CHAINS " JOIN {s}.blocker b ON b.chain_id = h.id AND b.job_id = ",
	.whole = {[SL_JOB_BLOCKED] = "SELECT b.job_id AS id FROM {s}.blocker b WHERE NOT b.done",
		  [SL_JOB_PENDING] = "SELECT r.id FROM {s}.ready r UNION ALL SELECT q.id FROM {s}.sched q",
		  [SL_JOB_RUNNING] = "SELECT run.id FROM run",
		  [SL_JOB_READY] = "SELECT r.id FROM {s}.ready r UNION ALL SELECT q.id FROM (WITH RECURSIVE k(type) AS"
				   " ((SELECT q.type FROM {s}.sched q ORDER BY q.type LIMIT 1) UNION ALL SELECT"
				   " (SELECT q.type FROM {s}.sched q WHERE q.type > k.type ORDER BY q.type LIMIT 1)"
				   " FROM k WHERE k.type IS NOT NULL) SELECT x.id FROM k CROSS JOIN LATERAL"
				   " (SELECT q.id FROM {s}.sched q WHERE q.type = k.type AND q.due <= @"
				   " ORDER BY q.type, q.due, q.id OFFSET 0) x) q",
		  [SL_JOB_SCHEDULED] = "SELECT q.id FROM {s}.sched q",
		  [SL_JOB_RETRYING] = "SELECT q.id FROM {s}.sched q WHERE q.tried"},
	/* Each group is found by one step of an index, after the one before it. */
	.groups = "g(n, type, solo, priority) AS ((SELECT 1, r.type, r.solo, r.priority FROM {s}.ready r"
		  " ORDER BY r.type, r.solo, r.priority LIMIT 1) UNION ALL SELECT g.n + 1, x.type, x.solo, x.priority"
		  " FROM g CROSS JOIN LATERAL (SELECT r.type, r.solo, r.priority FROM {s}.ready r"
		  " WHERE (r.type, r.solo, r.priority) > (g.type, g.solo, g.priority)"
		  " ORDER BY r.type, r.solo, r.priority LIMIT 1) x WHERE g.n <= 1000),"
		  "k(n, type) AS ((SELECT 1, q.type FROM {s}.sched q ORDER BY q.type LIMIT 1) UNION ALL"
		  " SELECT k.n + 1, x.type FROM k CROSS JOIN LATERAL (SELECT q.type FROM {s}.sched q"
		  " WHERE q.type > k.type ORDER BY q.type LIMIT 1) x WHERE k.n <= 1000)",
	.n_groups = "(SELECT count(*) FROM g) + (SELECT count(*) FROM k)",
	.parts = {[SL_JOB_BLOCKED] = {{.from = "FROM {s}.blocker b WHERE NOT b.done", .id = "b.job_id"}},
		  [SL_JOB_PENDING] = {READY_PART, SCHED_PART},
		  /* By their times, in the order of the index with them, then put in order of ids. */
		  [SL_JOB_READY] = {READY_PART,
				    {.group = "k",
				     .from = "FROM (SELECT q.id FROM {s}.sched q WHERE q.type = k.type AND q.due <= @"
					     " ORDER BY q.type, q.due, q.id OFFSET 0) q WHERE true",
				     .id = "q.id"}},
		  [SL_JOB_SCHEDULED] = {SCHED_PART},
		  [SL_JOB_RETRYING] = {{.from = "FROM {s}.sched q WHERE q.tried", .id = "q.id"}}},
	.stopped = "FROM {s}.stopped x WHERE x.status = ",
	.stopped_chains = "FROM {s}.stopped x WHERE x.status = ",
	.continued = "FROM {s}.job c WHERE c.chain_id <> c.id",
};
_Static_assert(SL__LIST_GROUPS_MAX == 1000, "as the groups stop");

/* Run a query in its own call. */
static int pg_list_query(const struct sl__cold_query *q, struct sl_err *err, void *ctx)
{
	struct pg_store *s = ctx;
	struct pg_call call SL_CLEANUP(sl__pg_call_close);
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_values(&call.params, q);
	char *sql = sl__pg_render(&s->env, q->sql, s->schema);
	rc = sql != NULL ? sl__pg_call_run_relaxed(&call, sql, &res, err) : sl__no_memory(err, "postgres: list");
	sl__free(&s->env, sql);
	if (rc != 0)
		return rc;
	return sl__pg_cold_rows(res, q);
}

static int pg_list_oldest(uint64_t *out, struct sl_err *err, void *ctx)
{
	return sl__pg_oldest_pending(ctx, out, err);
}

static int pg_list(struct pg_store *s, const struct sl_job_filter *filter, const struct sl__list_to *to,
		   struct sl_err *err)
{
	const struct sl__list_db db = {
		.env = &s->env, .dialect = &dialect, .run = pg_list_query, .oldest_pending = pg_list_oldest, .ctx = s};
	return sl__list(&db, filter, to, err);
}

int sl__pg_list_jobs(void *store, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	return pg_list(store, filter, &(struct sl__list_to){.job = fn, .ctx = ctx}, err);
}

int sl__pg_list_chains(void *store, const struct sl_job_filter *filter, sl_chain_fn *fn, void *ctx, struct sl_err *err)
{
	return pg_list(store, filter, &(struct sl__list_to){.chain = fn, .ctx = ctx}, err);
}
