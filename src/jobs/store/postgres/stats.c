/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counting sums: neither history nor what waits is read, however much there is. How many are in which status is in
 * tally; which of them run is in the leases; what is pending and does not run is due or waits for its time, so that of
 * these two only the smaller is counted. The oldest are found by their ids, which are given out in the order of time
 * but for starts at the same moment.
 */
#include "jobs/store/postgres/store.h"

#define FOLD_FROM 64 /* rows of tally from which on they are summed up in place */

/* A job by its id. The OFFSET keeps it a search by the key, whatever the planner believes. */
#define JOB(id, where)                                                                                                 \
	" CROSS JOIN LATERAL (SELECT j.* FROM {s}.job j WHERE j.id = " id " AND j.status " where " OFFSET 0) j"
#define READY "SELECT r.id FROM {s}.ready r" JOB("r.id", "= 2 AND j.fence = r.fence") " WHERE r.type = p.type"

/* Ids in ready are in order per priority: the first of each is read. With more of them than this the queue of the
 * type is read once. */
#define PRIORITIES_MAX "1000"
#define FEW_MAX "20000"

/* clang-format off */
/* The claimable job of a type with the smallest id. Rows that their job has left are skipped. */
#define OLDEST_READY \
	"(WITH RECURSIVE h(n, solo, priority) AS ((SELECT 1, r.solo, r.priority FROM {s}.ready r WHERE r.type = p.type" \
	" ORDER BY r.solo, r.priority LIMIT 1)" \
	" UNION ALL SELECT h.n + 1, x.solo, x.priority FROM h CROSS JOIN LATERAL (SELECT r.solo, r.priority" \
	" FROM {s}.ready r WHERE r.type = p.type AND (r.solo, r.priority) > (h.solo, h.priority)" \
	" ORDER BY r.solo, r.priority LIMIT 1) x WHERE h.n < " PRIORITIES_MAX ")" \
	" SELECT CASE WHEN (SELECT max(h.n) FROM h) < " PRIORITIES_MAX \
	" THEN (SELECT min(x.id) FROM h CROSS JOIN LATERAL (" READY \
	" AND r.solo = h.solo AND r.priority = h.priority ORDER BY r.solo, r.priority, r.id LIMIT 1) x)" \
	" ELSE (" READY " ORDER BY r.id LIMIT 1) END)"
#define SCHED(from)                                                                                                    \
	"(SELECT q.id FROM " from JOB("q.id", "= 2 AND j.fence = q.fence") " WHERE q.type = p.type ORDER BY q.id LIMIT 1)"
/* What has come due since the last claim of its type: by the time, then put in order. Where that is much, most of it
 * may be: in order, until one is. */
#define CAME                                                                                                           \
	"(SELECT * FROM (SELECT q.type, q.id, q.fence FROM {s}.sched q WHERE q.type = p.type AND q.due <= now() OFFSET 0)" \
	" q ORDER BY q.id OFFSET 0) q"
#define CAME_MANY                                                                                                      \
	"(SELECT * FROM (SELECT q.type, q.id, q.fence, q.due FROM {s}.sched q WHERE q.type = p.type"                    \
	" ORDER BY q.id OFFSET 0) q WHERE q.due <= now() ORDER BY q.id OFFSET 0) q"

/* Counted no further than to FEW_MAX and one. */
#define FEW(from) "(SELECT count(*) FROM (SELECT 1 FROM " from " LIMIT " FEW_MAX " + 1) few)"
#define LATER "{s}.sched q WHERE q.type = p.type AND q.due > now()"

/* How many jobs of a type are in a status. */
#define TALLIED                                                                                                        \
	"t AS MATERIALIZED (SELECT type, status::integer, sum(n)::bigint AS n FROM (SELECT type, status, n"             \
	" FROM {s}.tally UNION ALL SELECT type, was, -n FROM {s}.tally) m WHERE status <> 0 GROUP BY 1, 2"              \
	" HAVING sum(n) > 0)"

static const char oldest_sql[] =
	"WITH " TALLIED " SELECT min(least(" OLDEST_READY ", " SCHED("{s}.sched q") ")) FROM t p WHERE p.status = 2";

static const char counts_sql[] =
	"WITH run AS MATERIALIZED (SELECT j.type, count(*) AS n, min(j.created_at) AS oldest FROM {s}.lease l"
	" CROSS JOIN LATERAL unnest(l.ids, l.fences) AS u(id, fence)" JOB("u.id", "= 2 AND j.fence = u.fence")
	" GROUP BY j.type),"
	TALLIED ","
	"q AS MATERIALIZED (SELECT type, count(*) AS tried FROM {s}.sched WHERE tried AND due > now() GROUP BY type),"
	"p AS MATERIALIZED (SELECT p.*, " FEW(LATER) " AS later,"
	" " FEW("{s}.sched q WHERE q.type = p.type AND q.due <= now()") " AS came FROM (SELECT type, sum(n)::bigint AS n,"
	" sum(tried)::bigint AS tried FROM (SELECT type, n, 0 AS tried FROM t WHERE status = 2"
	" UNION ALL SELECT type, -n, 0 FROM run UNION ALL SELECT type, 0, tried FROM q) m GROUP BY type HAVING sum(n) > 0) p),"
	"o AS MATERIALIZED (SELECT p.type, p.n, p.tried, CASE WHEN p.later <= " FEW_MAX " THEN p.n - p.later"
	" WHEN p.came <= " FEW_MAX " AND " FEW("{s}.ready r WHERE r.type = p.type") " <= " FEW_MAX
	" THEN p.came + (SELECT count(*) FROM {s}.ready r WHERE r.type = p.type)"
	" ELSE p.n - (SELECT count(*) FROM " LATER ") END AS due, " OLDEST_READY " AS ready_id,"
	" CASE WHEN p.later + p.came > 0 THEN " SCHED("{s}.sched q") " END AS sched_id,"
	" CASE WHEN p.came > " FEW_MAX " THEN " SCHED(CAME_MANY) " WHEN p.came > 0 THEN " SCHED(CAME) " END AS came_id"
	" FROM p),"
	"c(type, status, n, due, retrying, oldest, oldest_due) AS (SELECT o.type, 2, o.n, least(greatest(o.due, 0), o.n),"
	" least(o.tried, o.n - least(greatest(o.due, 0), o.n)), (SELECT j.created_at FROM {s}.job j WHERE j.id = least(o.ready_id, o.sched_id)),"
	" (SELECT greatest(j.created_at, j.scheduled_for) FROM {s}.job j WHERE j.id = least(o.ready_id, o.came_id)) FROM o"
	" UNION ALL SELECT run.type, 3, run.n, 0, 0, run.oldest, NULL FROM run"
	" UNION ALL SELECT t.type, 1, t.n, 0, 0, (SELECT j.created_at FROM {s}.blocker b"
	JOB("b.job_id", "= 1") " WHERE NOT b.done AND j.type = t.type ORDER BY b.job_id LIMIT 1), NULL"
	" FROM t WHERE t.status = 1"
	" UNION ALL SELECT t.type, t.status, t.n, 0, 0, NULL, NULL FROM t WHERE t.status > 2)"
	" SELECT c.type, c.status, c.n, c.due, c.retrying, c.oldest, c.oldest_due,"
	" EXISTS (SELECT 1 FROM {s}.paused p WHERE p.type = c.type), (SELECT count(*) FROM {s}.tally)"
	" FROM (SELECT * FROM c UNION ALL SELECT p.type, 2, 0, 0, 0, NULL, NULL FROM {s}.paused p"
	" WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.type = p.type)) c ORDER BY 1, 2";
/* clang-format on */

/* SQL of this file, alone in a call. The planner stays as it is for the hot path: it must use the indexes, whatever it
 * knows of the tables, and to start processes that help would take longer than the rest. */
static int run_count(struct pg_call *call, struct pg_store *s, const char *sql, const PGresult **res,
		     struct sl_err *err)
{
	char *text = sl__pg_render(&s->env, sql, s->schema);
	if (text == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: counts: out of memory");
	int rc = sl__pg_call_open(call, s, NULL, PG_ONCE, err);
	if (rc == 0) {
		int at = sl__pg_call_send_sql(call, text);
		rc = sl__pg_call_run(call, true, err);
		if (rc == 0)
			*res = sl__pg_call_result(call, at);
		else
			sl__pg_call_close(call);
	}
	sl__free(&s->env, text);
	return rc;
}

int sl__pg_oldest_pending(struct pg_store *s, uint64_t *out, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = run_count(&call, s, oldest_sql, &res, err);
	if (rc != 0)
		return rc;
	*out = PQgetisnull(res, 0, 0) ? 0 : (uint64_t)sl__pg_int8(res, 0, 0);
	sl__pg_call_close(&call);
	return 0;
}

int sl__pg_counts(void *store, sl_job_count_fn *fn, void *ctx, struct sl_err *err)
{
	struct pg_store *s = store;
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = run_count(&call, s, counts_sql, &res, err);
	if (rc != 0)
		return rc;
	for (int i = 0; rc == 0 && i < PQntuples(res); i++) {
		const struct sl_job_count count = {.type = sl__pg_text(res, i, 0),
						   .status = (enum sl_job_status)sl__pg_int4(res, i, 1),
						   .count = (uint64_t)sl__pg_int8(res, i, 2),
						   .due = (uint64_t)sl__pg_int8(res, i, 3),
						   .retrying = (uint64_t)sl__pg_int8(res, i, 4),
						   .oldest_ms = sl__pg_time_ms(res, i, 5),
						   .oldest_due_ms = sl__pg_time_ms(res, i, 6),
						   .paused = sl__pg_bool(res, i, 7)};
		rc = fn(&count, ctx);
	}
	bool many = rc == 0 && PQntuples(res) > 0 && sl__pg_int8(res, 0, 8) >= FOLD_FROM;
	sl__pg_call_close(&call);
	if (many && sl__pg_call_open(&call, s, NULL, PG_ONCE, NULL) == 0) {
		sl__pg_add_int8(&call.params, FOLD_FROM);
		(void)!sl__pg_call_one(&call, ST_FOLD_TALLY, NULL, NULL);
		sl__pg_call_close(&call);
	}
	return rc;
}

int sl__pg_check_writable(void *store, struct sl_err *err)
{
	struct pg_call call;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	int at = sl__pg_call_send_sql(&call, "SELECT 1 WHERE current_setting('transaction_read_only') = 'on'");
	rc = sl__pg_call_run(&call, true, err);
	if (rc == 0 && PQntuples(sl__pg_call_result(&call, at)) > 0)
		rc = sl_err_set(
			err, SL_EUNAVAIL,
			"postgres: the database is read-only: a standby, or default_transaction_read_only is on");
	sl__pg_call_close(&call);
	return rc;
}
