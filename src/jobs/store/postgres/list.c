/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists: statements made for their filter, planned as usual.
 *
 * Where to look: failed and cancelled jobs are in `stopped`, in the order of ids and of chains. What is blocked,
 * pending or running is in small places, which are read whole as long as they are small. Large ones are read in the
 * order of ids: `ready` has it for each type and priority, `sched` for each type, `blocker` for all. A chain that is
 * not at its first job is not among the ids of those; it is found by a walk along the jobs that were continued with.
 * Everything else is a walk along the ids.
 *
 * Every one of these sources is made to end somewhere: how many ids it may give becomes a bound of ids by a question
 * that goes before, and the list ends at the nearest of the bounds.
 */
#include <stdio.h>

#include "jobs/store/list_rules.h"
#include "jobs/store/postgres/store.h"

#define RUN                                                                                                            \
	"run AS MATERIALIZED (SELECT u.id, u.fence, l.worker, l.until, l.claimed_at FROM {s}.lease l"                  \
	" CROSS JOIN LATERAL unnest(l.ids, l.fences) AS u(id, fence))"
#define JOIN_RUN " LEFT JOIN run ON run.id = j.id AND run.fence = j.fence AND j.status = 2"
#define STATUS "CASE WHEN run.until IS NULL THEN j.status ELSE 3 END"

struct list {
	const struct sl_job_filter *filter;
	const struct pg_row_to *to;
	struct sl__buf sql;
	struct sl__pg_params *params;
	bool chains;
	bool by_status;               /* found by the statuses, not along the ids */
	bool many_wait, many_blocked; /* of those statuses there are too many to read them whole */
	uint32_t limit, told;
	uint64_t after;   /* where to begin; 0: at the end */
	uint64_t floor;   /* do not look beyond this id; 0: no bound */
	uint64_t reached; /* the cursor to continue from; 0: nothing is left */
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

/* Run a statement that put() has made, in its own call. */
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

/* ---- sources in the order of ids ---- */

static void put_limit(struct list *l, uint64_t n)
{
	if (n != 0)
		put_id(l, " LIMIT $::bigint", n);
}

/* The parts of ready and sched in which ids are in order: found one after the other, by a step of the index each. */
#define GROUPS                                                                                                         \
	"g(n, type, solo, priority) AS ((SELECT 1, r.type, r.solo, r.priority FROM {s}.ready r"                        \
	" ORDER BY r.type, r.solo, r.priority LIMIT 1) UNION ALL SELECT g.n + 1, x.type, x.solo, x.priority FROM g"    \
	" CROSS JOIN LATERAL (SELECT r.type, r.solo, r.priority FROM {s}.ready r WHERE (r.type, r.solo, r.priority)"   \
	" > (g.type, g.solo, g.priority) ORDER BY r.type, r.solo, r.priority LIMIT 1) x WHERE g.n <= 1000),"           \
	"k(n, type) AS ((SELECT 1, q.type FROM {s}.sched q ORDER BY q.type LIMIT 1) UNION ALL SELECT k.n + 1, x.type"  \
	" FROM k CROSS JOIN LATERAL (SELECT q.type FROM {s}.sched q WHERE q.type > k.type ORDER BY q.type LIMIT 1) x"  \
	" WHERE k.n <= 1000)"
_Static_assert(SL__LIST_GROUPS_MAX == 1000, "as GROUPS stops");

/* The types are those of jobs; of a chain, only its first job is looked for here. */
static void put_groups_of_types(struct list *l, const char *sql)
{
	if (l->filter->n_types > 0) {
		put(l, sql);
		sl__pg_add_texts(l->params, l->filter->types, l->filter->n_types);
	}
}

/* n: of each group; 0: all that the range leaves. */
static void put_waiting(struct list *l, uint64_t n)
{
	put(l, "SELECT x.id FROM g CROSS JOIN LATERAL (SELECT r.id FROM {s}.ready r WHERE r.type = g.type"
	       " AND r.solo = g.solo AND r.priority = g.priority");
	put_range(l, "r.id");
	put_limit(l, n);
	put(l, ") x WHERE true");
	put_groups_of_types(l, " AND g.type = ANY ($::text[])");
	put(l, " UNION ALL SELECT x.id FROM k CROSS JOIN LATERAL (SELECT q.id FROM {s}.sched q WHERE q.type = k.type");
	put_range(l, "q.id");
	put_limit(l, n);
	put(l, ") x WHERE true");
	put_groups_of_types(l, " AND k.type = ANY ($::text[])");
}

static void put_blocked(struct list *l, uint64_t n)
{
	put(l, "SELECT b.job_id AS id FROM {s}.blocker b WHERE NOT b.done");
	put_range(l, "b.job_id");
	put_limit(l, n);
}

/* Jobs that continued their chains, ended or not. */
static void put_continued(struct list *l, const char *columns, uint64_t n)
{
	put(l, columns);
	put(l, " FROM {s}.job c WHERE c.chain_id <> c.id");
	put_range(l, "c.chain_id");
	put_limit(l, n);
}

/* The n-th id of a source, in the order of the list; NULL when it has fewer. */
static void put_end_of(struct list *l, uint64_t n)
{
	put(l, ") x ORDER BY x.id");
	put(l, l->filter->ascending ? " ASC" : " DESC");
	put_id(l, " LIMIT 1 OFFSET $::bigint)", n - 1);
}

/* The place where `stopped` has given scan ids, or NULL. */
static void put_scan_end(struct list *l, enum sl_job_status status)
{
	put(l, ", (");
	put_stopped(l, status);
	put_id(l, " LIMIT 1 OFFSET $::bigint)", l->filter->scan - 1);
}

#define COUNT_SOME(from) "(SELECT count(*) FROM (SELECT 1 FROM " from " LIMIT 10001) few)"
_Static_assert(SL__LIST_SMALL_MAX == 10000, "as COUNT_SOME counts");

/* How many wait and how many are blocked, as far as that matters, and where the failed and the cancelled end. */
static void put_question(struct list *l)
{
	uint32_t mask = l->filter->statuses & SL__LIST_STATUSES;
	put(l, "SELECT ");
	put(l,
	    SL__LIST_HAS(mask, SL_JOB_PENDING) ? COUNT_SOME("{s}.ready") " + " COUNT_SOME("{s}.sched") : "0::bigint");
	put(l, SL__LIST_HAS(mask, SL_JOB_BLOCKED) ? ", " COUNT_SOME("{s}.blocker b WHERE NOT b.done") : ", 0::bigint");
	for (enum sl_job_status status = SL_JOB_FAILED; status <= SL_JOB_CANCELLED; status++)
		if (l->filter->scan != 0 && SL__LIST_HAS(mask, status))
			put_scan_end(l, status);
		else
			put(l, ", NULL::bigint");
}

/* Where a walk along the ids ends. */
static void put_walk_question(struct list *l)
{
	put(l, "SELECT x.id FROM {s}.job x WHERE true");
	put_range(l, "x.id");
	put_id(l, " LIMIT 1 OFFSET $::bigint", l->filter->scan - 1);
}

/* Into how many parts the queues fall, and where the large sources end. */
static void put_large_question(struct list *l)
{
	bool picky = sl__list_is_picky(l->filter), but_types = sl__list_searches(l->filter);
	uint64_t n = sl__list_given(l->filter, but_types);
	put(l, "WITH RECURSIVE " GROUPS " SELECT (SELECT count(*) FROM g) + (SELECT count(*) FROM k)");
	if (l->many_wait) {
		put(l, ", (SELECT x.id FROM (");
		put_waiting(l, n);
		put_end_of(l, n);
	} else {
		put(l, ", NULL::bigint");
	}
	if (l->many_blocked) {
		n = sl__list_given(l->filter, picky);
		put(l, ", (SELECT x.id FROM (");
		put_blocked(l, n);
		put_end_of(l, n);
	} else {
		put(l, ", NULL::bigint");
	}
	if (l->chains) {
		n = sl__list_given(l->filter, true);
		put(l, ", (SELECT x.id FROM (");
		put_continued(l, "SELECT c.chain_id AS id", n);
		put_end_of(l, n);
	} else {
		put(l, ", NULL::bigint");
	}
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
	if (!sl__list_oldest_pending(l->filter, l->chains))
		return 0;
	int rc = sl__pg_oldest_pending(s, &oldest, err);
	if (rc == 0 && oldest > l->after + 1)
		l->after = oldest - 1;
	return rc;
}

/* Ask what `make` puts: a row of numbers, 0 for NULL. */
static int ask(struct list *l, struct pg_store *s, void (*make)(struct list *l), uint64_t *out, int n,
	       struct sl_err *err)
{
	const PGresult *res = NULL;
	struct pg_call call;
	int rc = sl__pg_call_open(&call, s, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	l->params = &call.params;
	make(l);
	rc = run(&call, l, &res, err);
	for (int i = 0; rc == 0 && i < n; i++)
		out[i] = PQntuples(res) == 0 || PQgetisnull(res, 0, i) ? 0 : (uint64_t)sl__pg_int8(res, 0, i);
	sl__pg_call_close(&call);
	sl__buf_clear(&l->sql);
	l->params = NULL;
	return rc;
}

static int choose_walk(struct list *l, struct pg_store *s, struct sl_err *err)
{
	l->by_status = l->many_wait = l->many_blocked = false;
	l->floor = 0;
	int rc = skip_ended(l, s, err);
	return rc != 0 || l->filter->scan == 0 ? rc : ask(l, s, put_walk_question, &l->floor, 1, err);
}

static int choose_large(struct list *l, struct pg_store *s, struct sl_err *err)
{
	uint64_t got[4] = {0};
	int rc = ask(l, s, put_large_question, got, 4, err);
	if (rc == 0 && got[0] > SL__LIST_GROUPS_MAX)
		return choose_walk(l, s, err);
	for (int i = 1; rc == 0 && i < 4; i++)
		l->floor = nearer(l, l->floor, got[i]);
	return rc;
}

/* Set by_status, what is many, after and floor. */
static int choose(struct list *l, struct pg_store *s, struct sl_err *err)
{
	const struct sl_job_filter *f = l->filter;
	uint32_t mask = f->statuses & SL__LIST_STATUSES;
	bool statuses = mask != 0 && !SL__LIST_HAS(mask, SL_JOB_COMPLETED);
	uint64_t got[4] = {0};
	l->floor = 0;
	if (sl__list_by_index(f) || (!statuses && (f->scan == 0 || (mask == 0 && !sl__list_is_picky(f)))))
		return 0;
	if (!statuses)
		return choose_walk(l, s, err);
	int rc = ask(l, s, put_question, got, 4, err);
	l->by_status = true;
	l->many_wait = got[0] > SL__LIST_SMALL_MAX;
	l->many_blocked = got[1] > SL__LIST_SMALL_MAX;
	l->floor = nearer(l, got[2], got[3]);
	return rc == 0 && (l->many_wait || l->many_blocked) ? choose_large(l, s, err) : rc;
}

/* ---- conditions ---- */

static void put_source(struct list *l, enum sl_job_status status)
{
	put(l, "(");
	if (status == SL_JOB_PENDING && l->many_wait) {
		put_waiting(l, 0);
	} else if (status == SL_JOB_BLOCKED && l->many_blocked) {
		put_blocked(l, 0);
	} else if (status < SL_JOB_COMPLETED) {
		put_small(l, status);
	} else {
		put_stopped(l, status);
		if (!sl__list_is_picky(l->filter))
			put_id(l, " LIMIT $::bigint", l->limit);
	}
	put(l, ")");
}

/* Chains that continued and have not ended. Where most continued, their first jobs are read one after the other; otherwise
 * each is looked for, and the OFFSET keeps that a look by the key. */
static void put_continuing(struct list *l)
{
	uint64_t span = l->floor > l->after ? l->floor - l->after : l->after - l->floor;
	if (l->floor != 0 && l->after != 0 && span < 4 * sl__list_given(l->filter, true)) {
		put(l, " UNION ALL (SELECT o.id FROM {s}.job o WHERE o.chain_status < 4");
		put_range(l, "o.id");
		put(l, ")");
		return;
	}
	put(l, " UNION ALL SELECT c.chain_id FROM (");
	put_continued(l, "SELECT DISTINCT c.chain_id", 0);
	put(l, ") c CROSS JOIN LATERAL (SELECT 1 FROM {s}.job o WHERE o.id = c.chain_id AND o.chain_status < 4"
	       " OFFSET 0) o");
}

/* Jobs, or chains, that can have one of the statuses. */
static void put_by_status(struct list *l, uint32_t mask)
{
	const char *between = "";
	put(l, l->chains ? " AND h.id = ANY (ARRAY(" : " AND j.id = ANY (ARRAY(");
	for (enum sl_job_status status = SL_JOB_BLOCKED; status <= SL_JOB_CANCELLED; status++) {
		if (!SL__LIST_HAS(mask, status))
			continue;
		put(l, between);
		between = " UNION ALL ";
		put_source(l, status);
	}
	if (l->chains && (l->many_wait || l->many_blocked))
		put_continuing(l);
	put(l, "))");
}

/* What can be seen of a chain in its first job, before the one that it is at is looked for: whether it has ended, and
 * how. */
static uint32_t statuses_of_heads(uint32_t mask)
{
	const uint32_t live = 1u << SL_JOB_BLOCKED | 1u << SL_JOB_PENDING | 1u << SL_JOB_RUNNING;
	return (mask & live) != 0 ? mask | live : mask;
}

/* What jobs and chains have in common; h is the first job of a chain, or the job. */
static void put_common(struct list *l, const struct sl_job_filter *f)
{
	const char *h = l->chains ? "h" : "j";
	char sql[160];
	if (f->n_types > 0) {
		(void)snprintf(sql, sizeof(sql), " AND %s.type = ANY ($::text[])", h);
		put(l, sql);
		sl__pg_add_texts(l->params, f->types, f->n_types);
	}
	if (l->by_status)
		put_by_status(l, f->statuses & SL__LIST_STATUSES);
	if (l->chains && f->statuses != 0) {
		put(l, " AND (1 << coalesce(h.chain_status, h.status)) & $::integer <> 0");
		sl__pg_add_int4(l->params, (int32_t)statuses_of_heads(f->statuses));
	}
	if (f->statuses != 0) {
		put(l, " AND (1 << " STATUS ") & $::integer <> 0");
		sl__pg_add_int4(l->params, (int32_t)f->statuses);
	}
	if (f->key != NULL) {
		(void)snprintf(sql, sizeof(sql), " AND %s.key = $::text", h);
		put_text(l, sql, f->key);
	}
	if (f->created_from_ms != 0) {
		(void)snprintf(sql, sizeof(sql), " AND %s.created_at >= $::timestamptz", h);
		put_time(l, sql, f->created_from_ms);
	}
	if (f->created_to_ms != 0) {
		(void)snprintf(sql, sizeof(sql), " AND %s.created_at < $::timestamptz", h);
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

/* A column of data, followed by a comma. */
static void put_data(struct list *l, const char *column)
{
	const struct sl_job_filter *f = l->filter;
	if (f->without_data)
		put(l, " NULL::text,");
	else if (f->data_max_bytes == 0)
		(void)sl__buf_printf(&l->sql, " %s,", column);
	else
		/* The length is known without fetching the value: what is left out is not read. */
		(void)sl__buf_printf(&l->sql, " CASE WHEN octet_length(%s) > %u THEN '' ELSE %s END,", column,
				     f->data_max_bytes, column);
}

static void put_jobs(struct list *l, const struct sl_job_filter *f)
{
	put(l, l->many_wait ? "WITH RECURSIVE " RUN ", " GROUPS " " : "WITH " RUN " ");
	put(l, "SELECT j.id, j.chain_id, j.prev_id, j.next_id, j.type, " STATUS
	       ", CASE WHEN run.until IS NULL THEN j.attempt ELSE j.fence::integer END,"
	       " j.priority,");
	put_data(l, "j.input");
	put_data(l, "j.output");
	put(l, " j.error,");
	put_data(l, "j.progress");
	put(l, " j.key, j.traceparent, coalesce(run.worker, j.leased_by), j.created_at, j.scheduled_for,"
	       " coalesce(run.claimed_at, j.started_at), j.ended_at, run.until, j.blockers_open, j.charged"
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
	put(l, l->many_wait ? "WITH RECURSIVE " RUN ", " GROUPS " " : "WITH " RUN " ");
	put(l, "SELECT h.id, j.id, h.type, j.type, " STATUS ",");
	put_data(l, "h.input");
	put_data(l, "j.output");
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
	put_id(l, " LIMIT $::bigint", l->limit - l->told);
	rc = run(&call, l, &res, err);
	int n = rc == 0 ? PQntuples(res) : 0, i = 0;
	for (; rc == 0 && i < n; i++)
		rc = sl__pg_tell_row(res, i, l->to);
	l->told += (uint32_t)n;
	l->reached = i > 0 && (rc != 0 || l->told == l->limit) ? (uint64_t)sl__pg_int8(res, i - 1, 0) : l->floor;
	sl__pg_call_close(&call);
	sl__buf_clear(&l->sql);
	return rc;
}

static int list(void *store, const struct sl_job_filter *filter, const struct pg_row_to *to, struct sl_err *err)
{
	struct pg_store *s = store;
	struct list l = {.filter = filter, .to = to, .chains = to->chain != NULL, .after = filter->after};
	l.limit = sl__list_limit(filter);
	sl__buf_init(&l.sql, &s->env);
	/* Again only for who wants a full page, wherever the rest of it is. */
	int rc;
	do {
		rc = choose(&l, s, err);
		rc = rc != 0 ? rc : show(&l, s, err);
		l.after = l.reached;
	} while (rc == 0 && filter->scan == 0 && l.reached != 0 && l.told < l.limit);
	if (filter->reached != NULL)
		*filter->reached = l.reached;
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
