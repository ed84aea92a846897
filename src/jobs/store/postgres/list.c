/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists: statements made for their filter, planned as usual.
 *
 * Where to look: failed and cancelled jobs are in `stopped`, in the order of ids and of chains. What is blocked,
 * pending or running is in small places, which are read whole as long as they are small. Everything else is a walk
 * along the ids, and `scan` is made a bound of ids by a question that goes before.
 */
#include <stdio.h>

#include "jobs/store/postgres/store.h"

#define RUNS                                                                                                           \
	"WITH run AS MATERIALIZED (SELECT u.id, u.fence, l.worker, l.until, l.claimed_at FROM {s}.lease l"             \
	" CROSS JOIN LATERAL unnest(l.ids, l.fences) AS u(id, fence)) "
#define JOIN_RUN " LEFT JOIN run ON run.id = j.id AND run.fence = j.fence AND j.status = 2"
#define STATUS "CASE WHEN run.until IS NULL THEN j.status ELSE 3 END"

#define ALL_STATUSES 0x7eu
#define HAS(mask, status) (((mask) >> (status)) & 1u)
#define SMALL_MAX 10000

struct list {
	const struct sl_job_filter *filter;
	const struct pg_row_to *to;
	struct sl__buf sql;
	struct sl__pg_params *params;
	bool chains;
	bool by_status; /* found by the statuses, not along the ids */
	uint32_t limit;
	uint64_t after; /* where to begin; 0: at the end */
	uint64_t floor; /* do not look beyond this id; 0: no bound */
};

/* Append SQL; a $ in it becomes the number of the parameter that is added next. */
static void put(struct list *l, const char *sql)
{
	const char *at = strchr(sql, '$');
	if (at == NULL) {
		(void)sl__buf_str_append(&l->sql, sql);
		return;
	}
	(void)sl__buf_append(&l->sql, sql, (size_t)(at - sql));
	(void)sl__buf_printf(&l->sql, "$%d%s", l->params->n + 1, at + 1);
}

static void put_id(struct list *l, const char *sql, uint64_t id)
{
	put(l, sql);
	sl__pg_add_int8(l->params, (int64_t)id);
}

static void put_text(struct list *l, const char *sql, const char *text)
{
	put(l, sql);
	sl__pg_add_text(l->params, text);
}

static void put_time(struct list *l, const char *sql, int64_t ms)
{
	put(l, sql);
	sl__pg_add_time(l->params, ms);
}

/* Run a statement that put() has made, in a call of its own. */
static int run(struct pg_call *call, struct list *l, const PGresult **res, struct sl_err *err)
{
	struct pg_store *s = call->store;
	char *sql = l->sql.failed == 0 ? sl__pg_render(&s->env, sl__buf_str(&l->sql), s->schema) : NULL;
	if (sql == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: list: out of memory");
	int rc = sl__pg_call_run_relaxed(call, sql, true, res, err);
	sl__free(&s->env, sql);
	return rc;
}

/* ---- where to look ---- */

static bool found_by_index(const struct sl_job_filter *f)
{
	return f->key != NULL || f->chain_id != 0 || f->blocks != 0 || f->blocked_by_job != 0;
}

/* Whether something but the status decides. */
static bool is_picky(const struct sl_job_filter *f)
{
	return f->n_types > 0 || f->created_from_ms != 0 || f->created_to_ms != 0 || f->text != NULL ||
	       f->error != NULL || f->ended_from_ms != 0 || f->ended_to_ms != 0;
}

/* The rows that the cursor and the bound leave, in the order of the list. */
static void put_range(struct list *l, const char *id)
{
	const struct sl_job_filter *f = l->filter;
	if (l->after != 0) {
		(void)sl__buf_printf(&l->sql, " AND %s %s", id, f->ascending ? ">" : "<");
		put_id(l, " $::bigint", l->after);
	}
	if (l->floor != 0) {
		(void)sl__buf_printf(&l->sql, " AND %s %s", id, f->ascending ? "<=" : ">=");
		put_id(l, " $::bigint", l->floor);
	}
	(void)sl__buf_printf(&l->sql, " ORDER BY %s %s", id, f->ascending ? "ASC" : "DESC");
}

static void put_stopped(struct list *l, enum sl_job_status status)
{
	const char *id = l->chains ? "x.chain_id" : "x.id";
	(void)sl__buf_printf(&l->sql, "SELECT %s FROM {s}.stopped x WHERE x.status = %d", id, status);
	put_range(l, id);
}

static void put_small(struct list *l, enum sl_job_status status)
{
	static const char *const places[] = {
		[SL_JOB_BLOCKED] = "SELECT b.job_id FROM {s}.blocker b WHERE NOT b.done",
		[SL_JOB_PENDING] = "SELECT r.id FROM {s}.ready r UNION ALL SELECT q.id FROM {s}.sched q",
		[SL_JOB_RUNNING] = "SELECT run.id FROM run",
	};
	put(l, l->chains ? "SELECT c.chain_id FROM {s}.job c WHERE c.id = ANY (ARRAY(" : "");
	put(l, places[status]);
	put(l, l->chains ? "))" : "");
}

/* The place where a source has given scan ids, or NULL. */
static void put_scan_end(struct list *l, enum sl_job_status status)
{
	put(l, ", (");
	if (status == 0) {
		put(l, "SELECT x.id FROM {s}.job x WHERE true");
		put_range(l, "x.id");
	} else {
		put_stopped(l, status);
	}
	put_id(l, " LIMIT 1 OFFSET $::bigint)", l->filter->scan - 1);
}

#define COUNT_SOME(from) "(SELECT count(*) FROM (SELECT 1 FROM " from " LIMIT 10001) few)"
_Static_assert(SMALL_MAX == 10000, "as COUNT_SOME counts");

/* How many wait and how many are blocked, as far as that matters, and where scanning ends: for all, failed, cancelled.
 */
static void put_question(struct list *l, uint32_t mask, bool statuses)
{
	put(l, "SELECT ");
	put(l, statuses && HAS(mask, SL_JOB_PENDING) ? COUNT_SOME("{s}.ready") " + " COUNT_SOME("{s}.sched")
						     : "0::bigint");
	put(l,
	    statuses && HAS(mask, SL_JOB_BLOCKED) ? ", " COUNT_SOME("{s}.blocker b WHERE NOT b.done") : ", 0::bigint");
	if (l->filter->scan == 0)
		return;
	/* The walk along all ids ends there; it is not asked for where the statuses alone will decide. */
	if (statuses && !HAS(mask, SL_JOB_PENDING) && !HAS(mask, SL_JOB_BLOCKED))
		put(l, ", NULL::bigint");
	else
		put_scan_end(l, 0);
	for (enum sl_job_status status = SL_JOB_FAILED; status <= SL_JOB_CANCELLED; status++)
		if (statuses && HAS(mask, status))
			put_scan_end(l, status);
		else
			put(l, ", NULL::bigint");
}

static uint64_t nearer(const struct list *l, uint64_t a, uint64_t b)
{
	if (a == 0 || b == 0)
		return a | b;
	return l->filter->ascending ? SL_MIN(a, b) : SL_MAX(a, b);
}

/* The oldest that wait are wanted: what ended before those is not walked through. A chain may be older than the job
 * that it is at. */
static int skip_ended(struct list *l, struct pg_store *s, struct sl_err *err)
{
	uint64_t oldest = 0;
	if (l->chains || !l->filter->ascending || (l->filter->statuses & ALL_STATUSES) != 1u << SL_JOB_PENDING)
		return 0;
	int rc = sl__pg_oldest_pending(s, &oldest, err);
	if (rc == 0 && oldest > l->after + 1)
		l->after = oldest - 1;
	return rc;
}

/* Set by_status, after and floor. */
static int choose(struct list *l, struct pg_store *s, struct sl_err *err)
{
	const struct sl_job_filter *f = l->filter;
	uint32_t mask = f->statuses & ALL_STATUSES;
	bool statuses = mask != 0 && !HAS(mask, SL_JOB_COMPLETED);
	const PGresult *res = NULL;
	struct pg_call call;
	if (found_by_index(f) || (!statuses && (f->scan == 0 || (mask == 0 && !is_picky(f)))))
		return 0;
	int rc = skip_ended(l, s, err);
	rc = rc != 0 ? rc : sl__pg_call_open(&call, s, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	l->params = &call.params;
	put_question(l, mask, statuses);
	rc = run(&call, l, &res, err);
	if (rc == 0) {
		l->by_status = statuses && sl__pg_int8(res, 0, 0) <= SMALL_MAX && sl__pg_int8(res, 0, 1) <= SMALL_MAX;
		if (f->scan != 0)
			l->floor = l->by_status ? nearer(l, (uint64_t)sl__pg_int8(res, 0, 3),
							 (uint64_t)sl__pg_int8(res, 0, 4))
						: (uint64_t)sl__pg_int8(res, 0, 2);
	}
	sl__pg_call_close(&call);
	sl__buf_clear(&l->sql);
	return rc;
}

/* ---- conditions ---- */

/* Jobs, or chains, that can have one of the statuses. */
static void put_by_status(struct list *l, uint32_t mask)
{
	const char *between = "";
	put(l, l->chains ? " AND h.id = ANY (ARRAY(" : " AND j.id = ANY (ARRAY(");
	for (enum sl_job_status status = SL_JOB_BLOCKED; status <= SL_JOB_CANCELLED; status++) {
		if (!HAS(mask, status))
			continue;
		put(l, between);
		between = " UNION ALL ";
		put(l, "(");
		if (status < SL_JOB_COMPLETED) {
			put_small(l, status);
		} else {
			put_stopped(l, status);
			if (!is_picky(l->filter))
				put_id(l, " LIMIT $::bigint", l->limit);
		}
		put(l, ")");
	}
	put(l, "))");
}

/* What jobs and chains have in common; h is the first job of a chain, or the job. */
static void put_common(struct list *l, const struct sl_job_filter *f)
{
	const char *h = l->chains ? "h" : "j";
	char sql[160];
	if (f->n_types > 0) {
		(void)snprintf(sql, sizeof sql, " AND %s.type = ANY ($::text[])", h);
		put(l, sql);
		sl__pg_add_texts(l->params, f->types, f->n_types);
	}
	if (l->by_status)
		put_by_status(l, f->statuses & ALL_STATUSES);
	if (f->statuses != 0) {
		put(l, " AND (1 << " STATUS ") & $::integer <> 0");
		sl__pg_add_int4(l->params, (int32_t)f->statuses);
	}
	if (f->key != NULL) {
		(void)snprintf(sql, sizeof sql, " AND %s.key = $::text", h);
		put_text(l, sql, f->key);
	}
	if (f->created_from_ms != 0) {
		(void)snprintf(sql, sizeof sql, " AND %s.created_at >= $::timestamptz", h);
		put_time(l, sql, f->created_from_ms);
	}
	if (f->created_to_ms != 0) {
		(void)snprintf(sql, sizeof sql, " AND %s.created_at < $::timestamptz", h);
		put_time(l, sql, f->created_to_ms);
	}
}

static void put_content(struct list *l, const struct sl_job_filter *f)
{
	if (f->ended_from_ms != 0)
		put_time(l, " AND j.ended_at >= $::timestamptz", f->ended_from_ms);
	if (f->ended_to_ms != 0)
		put_time(l, " AND j.ended_at < $::timestamptz", f->ended_to_ms);
	if (f->text != NULL) {
		put_text(l, l->chains ? " AND (strpos(h.input, $::text) > 0" : " AND (strpos(j.input, $::text) > 0",
			 f->text);
		put_text(l, " OR strpos(j.output, $::text) > 0", f->text);
		put_text(l, " OR strpos(j.error, $::text) > 0)", f->text);
	}
	if (f->error != NULL)
		put_text(l, " AND " SL__PG_ERROR_LINE " = $::text", f->error);
}

/* ---- jobs and chains ---- */

static void put_jobs(struct list *l, const struct sl_job_filter *f)
{
	put(l, RUNS "SELECT j.id, j.chain_id, j.prev_id, j.next_id, j.type, " STATUS ", j.attempt, j.priority,");
	put(l, f->without_data ? " NULL::text, NULL::text, j.error, NULL::text,"
			       : " j.input, j.output, j.error, j.progress,");
	put(l, " j.key, j.traceparent, coalesce(run.worker, j.leased_by), j.created_at, j.scheduled_for,"
	       " coalesce(run.claimed_at, j.started_at), j.ended_at, run.until, j.blockers_open"
	       " FROM {s}.job j" JOIN_RUN " WHERE true");
	put_common(l, f);
	put_content(l, f);
	if (f->chain_id != 0) {
		put_id(l, " AND j.id = ANY (ARRAY(SELECT c.id FROM {s}.job c WHERE c.chain_id = $::bigint",
		       f->chain_id);
		put_id(l, " AND c.chain_id <> c.id) || $::bigint) ", f->chain_id);
		/* A job that is not the first of its chain is no chain. */
		put_id(l, " AND j.chain_id = $::bigint", f->chain_id);
	}
	if (f->blocks != 0)
		put_id(l, " AND j.id = ANY (ARRAY(SELECT b.job_id FROM {s}.blocker b WHERE b.chain_id = $::bigint))",
		       f->blocks);
	put_range(l, "j.id");
}

static void put_chains(struct list *l, const struct sl_job_filter *f)
{
	put(l, RUNS "SELECT h.id, j.id, h.type, j.type, " STATUS ",");
	put(l, f->without_data ? " NULL::text, NULL::text," : " h.input, j.output,");
	/* The OFFSET keeps the last job of a chain a look by its id: a planner that knows little joins two whole
	 * tables.
	 */
	put(l, " j.error, h.key, h.created_at, j.ended_at FROM {s}.job h CROSS JOIN LATERAL (SELECT * FROM {s}.job x"
	       " WHERE x.id = coalesce(h.last_id, h.id) OFFSET 0) j" JOIN_RUN);
	if (f->blocked_by_job != 0)
		put_id(l, " JOIN {s}.blocker b ON b.chain_id = h.id AND b.job_id = $::bigint", f->blocked_by_job);
	put(l, " WHERE h.id = h.chain_id");
	put_common(l, f);
	put_content(l, f);
	if (f->chain_id != 0)
		put_id(l, " AND h.id = $::bigint", f->chain_id);
	if (f->blocks != 0)
		put_id(l,
		       " AND h.id = ANY (ARRAY(SELECT w.chain_id FROM {s}.blocker b JOIN {s}.job w ON w.id = b.job_id"
		       " WHERE b.chain_id = $::bigint))",
		       f->blocks);
	if (f->blocked_by_job == 0) {
		put_range(l, "h.id");
		return;
	}
	if (f->after != 0)
		put_id(l,
		       " AND b.ord > (SELECT max(a.ord) FROM {s}.blocker a WHERE a.job_id = b.job_id"
		       " AND a.chain_id = $::bigint)",
		       f->after);
	put(l, " ORDER BY b.ord");
}

static int show(struct list *l, struct pg_store *s, struct sl_err *err)
{
	const PGresult *res = NULL;
	struct pg_call call;
	int rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	l->params = &call.params;
	if (l->chains)
		put_chains(l, l->filter);
	else
		put_jobs(l, l->filter);
	put_id(l, " LIMIT $::bigint", l->limit);
	rc = run(&call, l, &res, err);
	int n = rc == 0 ? PQntuples(res) : 0, i = 0;
	for (; rc == 0 && i < n; i++)
		rc = sl__pg_tell_row(res, i, l->to);
	if (l->filter->reached != NULL)
		*l->filter->reached =
			i > 0 && (rc != 0 || (uint32_t)n == l->limit) ? (uint64_t)sl__pg_int8(res, i - 1, 0) : l->floor;
	sl__pg_call_close(&call);
	return rc;
}

static int list(void *store, const struct sl_job_filter *filter, const struct pg_row_to *to, struct sl_err *err)
{
	struct pg_store *s = store;
	struct list l = {.filter = filter, .to = to, .chains = to->chain != NULL, .after = filter->after};
	l.limit = filter->limit == 0 ? 100 : SL_MIN(filter->limit, 10000u);
	sl__buf_init(&l.sql, &s->env);
	int rc = choose(&l, s, err);
	if (rc == 0)
		rc = show(&l, s, err);
	sl__buf_fini(&l.sql);
	return rc;
}

int sl__pg_list_jobs(void *store, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	return list(store, filter, &(struct pg_row_to){.job = fn, .ctx = ctx}, err);
}

int sl__pg_list_chains(void *store, const struct sl_job_filter *filter, sl_chain_fn *fn, void *ctx, struct sl_err *err)
{
	return list(store, filter, &(struct pg_row_to){.chain = fn, .ctx = ctx}, err);
}
