/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counting reads what has not ended, and sums: history is not read, however long it is. What has not ended is in ready,
 * sched, a lease or an open edge to a blocker, and counted by its job's row; what has ended is in tally.
 */
#include "jobs/store/postgres/store.h"

#define FOLD_FROM 64 /* rows of tally from which on they are summed up in place */

static const char counts_sql[] =
	"WITH run AS MATERIALIZED (SELECT u.id, u.fence FROM {s}.lease l"
	" CROSS JOIN LATERAL unnest(l.ids, l.fences) AS u(id, fence)),"
	"live AS (SELECT id FROM {s}.ready UNION SELECT id FROM {s}.sched UNION SELECT id FROM run"
	" UNION SELECT b.job_id FROM {s}.blocker b WHERE NOT b.done),"
	"j AS (SELECT j.type, CASE WHEN run.id IS NULL THEN j.status ELSE 3 END AS status, j.attempt, j.created_at,"
	" j.scheduled_for IS NULL OR j.scheduled_for <= now() AS due"
	" FROM live JOIN {s}.job j ON j.id = live.id AND j.status IN (1, 2)"
	" LEFT JOIN run ON run.id = j.id AND run.fence = j.fence AND j.status = 2),"
	"c AS (SELECT j.type, j.status::integer, count(*) AS n, count(*) FILTER (WHERE j.status = 2 AND j.due) AS due,"
	" count(*) FILTER (WHERE j.status = 2 AND j.attempt > 0) AS retrying, min(j.created_at) AS oldest"
	" FROM j GROUP BY 1, 2 UNION ALL SELECT type, status, sum(n)::bigint, 0, 0, NULL FROM {s}.tally"
	" GROUP BY 1, 2 HAVING sum(n) > 0),"
	"p AS (SELECT p.type FROM {s}.paused p WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.type = p.type))"
	" SELECT c.type, c.status, c.n, c.due, c.retrying, c.oldest,"
	" EXISTS (SELECT 1 FROM {s}.paused p WHERE p.type = c.type), (SELECT count(*) FROM {s}.tally)"
	" FROM (SELECT * FROM c UNION ALL SELECT type, 2, 0, 0, 0, NULL FROM p) c ORDER BY 1, 2";

/* What others are folding, or have not committed, stays as it is. The sum is the same before and after. */
static void fold(struct pg_store *s)
{
	struct pg_call call;
	if (sl__pg_call_open(&call, s, NULL, PG_ONCE, NULL) != 0)
		return;
	(void)!sl__pg_call_one(&call, ST_FOLD_TALLY, NULL, NULL);
	sl__pg_call_close(&call);
}

int sl__pg_counts(void *store, sl_job_count_fn *fn, void *ctx, struct sl_err *err)
{
	struct pg_store *s = store;
	struct pg_call call;
	const PGresult *res = NULL;
	char *sql = sl__pg_render(&s->env, counts_sql, s->schema);
	if (sql == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: counts: out of memory");
	int rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, err);
	if (rc != 0) {
		sl__free(&s->env, sql);
		return rc;
	}
	rc = sl__pg_call_run_relaxed(&call, sql, false, &res, err);
	for (int i = 0; rc == 0 && i < PQntuples(res); i++) {
		const struct sl_job_count count = {.type = sl__pg_text(res, i, 0),
						   .status = (enum sl_job_status)sl__pg_int4(res, i, 1),
						   .count = (uint64_t)sl__pg_int8(res, i, 2),
						   .due = (uint64_t)sl__pg_int8(res, i, 3),
						   .retrying = (uint64_t)sl__pg_int8(res, i, 4),
						   .oldest_ms = sl__pg_time_ms(res, i, 5),
						   .paused = sl__pg_bool(res, i, 6)};
		rc = fn(&count, ctx);
	}
	bool many = rc == 0 && PQntuples(res) > 0 && sl__pg_int8(res, 0, 7) >= FOLD_FROM;
	sl__pg_call_close(&call);
	sl__free(&s->env, sql);
	if (many)
		fold(s);
	return rc;
}

int sl__pg_outstanding(void *store, const char *const *types, size_t n_types, struct sl_outstanding *out,
		       struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_texts(&call.params, types, n_types);
	rc = sl__pg_call_one(&call, ST_OUTSTANDING, &res, err);
	if (rc == 0)
		*out = (struct sl_outstanding){.due = (uint64_t)sl__pg_int8(res, 0, 0),
					       .retrying = (uint64_t)sl__pg_int8(res, 0, 1),
					       .running = (uint64_t)sl__pg_int8(res, 0, 2),
					       .scheduled = (uint64_t)sl__pg_int8(res, 0, 3),
					       .blocked = (uint64_t)sl__pg_int8(res, 0, 4)};
	sl__pg_call_close(&call);
	return rc;
}
