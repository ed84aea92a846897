/* SPDX-License-Identifier: Apache-2.0 */
/* Reading jobs, chains and attempts: one by its id, or lists with filters. */
#include <stdio.h>

#include "jobs/store/postgres/store.h"

/* Columns as in get_job and get_chain of sql.c. */
static struct sl_job job_of(const PGresult *r, int i)
{
	return (struct sl_job){.id = (uint64_t)sl__pg_int8(r, i, 0),
			       .chain_id = (uint64_t)sl__pg_int8(r, i, 1),
			       .prev_id = (uint64_t)sl__pg_int8(r, i, 2),
			       .next_id = (uint64_t)sl__pg_int8(r, i, 3),
			       .type = sl__pg_text(r, i, 4),
			       .status = (enum sl_job_status)sl__pg_int4(r, i, 5),
			       .attempt = sl__pg_int4(r, i, 6),
			       .priority = sl__pg_int4(r, i, 7),
			       .input = sl__pg_text(r, i, 8),
			       .output = sl__pg_text(r, i, 9),
			       .error = sl__pg_text(r, i, 10),
			       .progress = sl__pg_text(r, i, 11),
			       .key = sl__pg_text(r, i, 12),
			       .traceparent = sl__pg_text(r, i, 13),
			       .leased_by = sl__pg_text(r, i, 14),
			       .created_ms = sl__pg_time_ms(r, i, 15),
			       .scheduled_ms = sl__pg_time_ms(r, i, 16),
			       .started_ms = sl__pg_time_ms(r, i, 17),
			       .ended_ms = sl__pg_time_ms(r, i, 18),
			       .leased_until_ms = sl__pg_time_ms(r, i, 19),
			       .blockers_open = (uint32_t)sl__pg_int4(r, i, 20)};
}

static struct sl_chain chain_of(const PGresult *r, int i)
{
	return (struct sl_chain){.id = (uint64_t)sl__pg_int8(r, i, 0),
				 .last_id = (uint64_t)sl__pg_int8(r, i, 1),
				 .type = sl__pg_text(r, i, 2),
				 .at_type = sl__pg_text(r, i, 3),
				 .status = (enum sl_job_status)sl__pg_int4(r, i, 4),
				 .input = sl__pg_text(r, i, 5),
				 .output = sl__pg_text(r, i, 6),
				 .error = sl__pg_text(r, i, 7),
				 .key = sl__pg_text(r, i, 8),
				 .created_ms = sl__pg_time_ms(r, i, 9),
				 .ended_ms = sl__pg_time_ms(r, i, 10)};
}

/* Whom a row is told to. */
struct row_to {
	sl_job_fn *job; /* or */
	sl_chain_fn *chain;
	void *ctx;
};

static int tell_row(const PGresult *res, int row, const struct row_to *to)
{
	if (to->job != NULL) {
		struct sl_job job = job_of(res, row);
		return to->job(&job, to->ctx);
	}
	struct sl_chain chain = chain_of(res, row);
	return to->chain(&chain, to->ctx);
}

static int get(void *store, sl_store_tx *tx, uint64_t id, const struct row_to *to, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, tx, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_int8(&call.params, (int64_t)id);
	rc = sl__pg_call_one(&call, to->job != NULL ? ST_GET_JOB : ST_GET_CHAIN, &res, err);
	if (rc == 0 && PQntuples(res) == 0)
		rc = sl_err_set(err, SL_ENOENT, "postgres: %s %llu: not found", to->job != NULL ? "job" : "chain",
				(unsigned long long)id);
	if (rc == 0)
		rc = tell_row(res, 0, to);
	sl__pg_call_close(&call);
	return rc;
}

int sl__pg_get_job(void *store, sl_store_tx *tx, uint64_t id, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	return get(store, tx, id, &(struct row_to){.job = fn, .ctx = ctx}, err);
}

int sl__pg_get_chain(void *store, sl_store_tx *tx, uint64_t id, sl_chain_fn *fn, void *ctx, struct sl_err *err)
{
	return get(store, tx, id, &(struct row_to){.chain = fn, .ctx = ctx}, err);
}

int sl__pg_attempts(void *store, uint64_t job_id, sl_attempt_record_fn *fn, void *ctx, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	sl__pg_add_int8(&call.params, (int64_t)job_id);
	rc = sl__pg_call_one(&call, ST_ATTEMPTS, &res, err);
	if (rc == 0 && PQntuples(res) == 0)
		rc = sl_err_set(err, SL_ENOENT, "postgres: job %llu: not found", (unsigned long long)job_id);
	for (int i = 0; rc == 0 && i < PQntuples(res) - 1; i++) {
		const struct sl_attempt_record record = {.attempt = sl__pg_int4(res, i, 0),
							 .outcome = (enum sl_attempt_outcome)sl__pg_int4(res, i, 1),
							 .worker = sl__pg_text(res, i, 2),
							 .error = sl__pg_text(res, i, 3),
							 .started_ms = sl__pg_time_ms(res, i, 4),
							 .ended_ms = sl__pg_time_ms(res, i, 5)};
		rc = fn(&record, ctx);
	}
	sl__pg_call_close(&call);
	return rc;
}

/* ---- lists: statements made for their filter, planned as usual ---- */

#define RUNS                                                                                                           \
	"WITH run AS MATERIALIZED (SELECT u.id, u.fence, l.worker, l.until, l.claimed_at FROM {s}.lease l"             \
	" CROSS JOIN LATERAL unnest(l.ids, l.fences) AS u(id, fence)) "
#define JOIN_RUN " LEFT JOIN run ON run.id = j.id AND run.fence = j.fence AND j.status = 2"
#define STATUS "CASE WHEN run.until IS NULL THEN j.status ELSE 3 END"

struct list {
	struct sl__buf sql;
	struct sl__pg_params *params;
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

/* What jobs and chains have in common. t is the table whose type, key and time of creation count. */
static void put_common(struct list *l, const struct sl_job_filter *f, const char *t)
{
	char sql[128];
	if (f->n_types > 0) {
		(void)snprintf(sql, sizeof sql, " AND %s.type = ANY ($::text[])", t);
		put(l, sql);
		sl__pg_add_texts(l->params, f->types, f->n_types);
	}
	if (f->statuses != 0) {
		put(l, " AND (1 << " STATUS ") & $::integer <> 0");
		sl__pg_add_int4(l->params, (int32_t)f->statuses);
	}
	if (f->key != NULL) {
		(void)snprintf(sql, sizeof sql, " AND %s.key = $::text", t);
		put(l, sql);
		sl__pg_add_text(l->params, f->key);
	}
	if (f->created_from_ms != 0) {
		(void)snprintf(sql, sizeof sql, " AND %s.created_at >= $::timestamptz", t);
		put(l, sql);
		sl__pg_add_time(l->params, f->created_from_ms);
	}
	if (f->created_to_ms != 0) {
		(void)snprintf(sql, sizeof sql, " AND %s.created_at < $::timestamptz", t);
		put(l, sql);
		sl__pg_add_time(l->params, f->created_to_ms);
	}
}

static void put_cursor(struct list *l, const struct sl_job_filter *f, const char *id)
{
	if (f->after != 0) {
		(void)sl__buf_printf(&l->sql, " AND %s %s", id, f->ascending ? ">" : "<");
		put(l, " $::bigint");
		sl__pg_add_int8(l->params, (int64_t)f->after);
	}
	(void)sl__buf_printf(&l->sql, " ORDER BY %s %s", id, f->ascending ? "ASC" : "DESC");
}

static void put_limit(struct list *l, const struct sl_job_filter *f)
{
	put(l, " LIMIT $::bigint");
	sl__pg_add_int8(l->params, f->limit == 0 ? 100 : SL_MIN(f->limit, 10000u));
}

static void put_jobs(struct list *l, const struct sl_job_filter *f)
{
	put(l, RUNS "SELECT j.id, j.chain_id, j.prev_id, j.next_id, j.type, " STATUS ", j.attempt, j.priority,");
	put(l, f->without_data ? " NULL::text, NULL::text, j.error, NULL::text,"
			       : " j.input, j.output, j.error, j.progress,");
	put(l, " j.key, j.traceparent, coalesce(run.worker, j.leased_by), j.created_at, j.scheduled_for,"
	       " coalesce(run.claimed_at, j.started_at), j.ended_at, run.until, j.blockers_open"
	       " FROM {s}.job j" JOIN_RUN " WHERE true");
	put_common(l, f, "j");
	if (f->chain_id != 0) {
		put(l, " AND j.id = ANY (ARRAY(SELECT c.id FROM {s}.job c WHERE c.chain_id = $::bigint");
		sl__pg_add_int8(l->params, (int64_t)f->chain_id);
		put(l, " AND c.chain_id <> c.id) || $::bigint) ");
		sl__pg_add_int8(l->params, (int64_t)f->chain_id);
		/* A job that is not the first of its chain is no chain. */
		put(l, " AND j.chain_id = $::bigint");
		sl__pg_add_int8(l->params, (int64_t)f->chain_id);
	}
	if (f->blocks != 0) {
		put(l, " AND j.id = ANY (ARRAY(SELECT b.job_id FROM {s}.blocker b WHERE b.chain_id = $::bigint))");
		sl__pg_add_int8(l->params, (int64_t)f->blocks);
	}
	put_cursor(l, f, "j.id");
	put_limit(l, f);
}

static void put_chains(struct list *l, const struct sl_job_filter *f)
{
	put(l, RUNS "SELECT h.id, j.id, h.type, j.type, " STATUS ",");
	put(l, f->without_data ? " NULL::text, NULL::text," : " h.input, j.output,");
	put(l, " j.error, h.key, h.created_at, j.ended_at FROM {s}.job h"
	       " JOIN {s}.job j ON j.id = coalesce(h.last_id, h.id)" JOIN_RUN);
	if (f->blocked_by_job != 0) {
		put(l, " JOIN {s}.blocker b ON b.chain_id = h.id AND b.job_id = $::bigint");
		sl__pg_add_int8(l->params, (int64_t)f->blocked_by_job);
	}
	put(l, " WHERE h.id = h.chain_id");
	put_common(l, f, "h");
	if (f->chain_id != 0) {
		put(l, " AND h.id = $::bigint");
		sl__pg_add_int8(l->params, (int64_t)f->chain_id);
	}
	if (f->blocked_by_job == 0) {
		put_cursor(l, f, "h.id");
	} else {
		if (f->after != 0) {
			put(l, " AND b.ord > (SELECT max(a.ord) FROM {s}.blocker a WHERE a.job_id = b.job_id"
			       " AND a.chain_id = $::bigint)");
			sl__pg_add_int8(l->params, (int64_t)f->after);
		}
		put(l, " ORDER BY b.ord");
	}
	put_limit(l, f);
}

/* Run a statement that put() has made, with the planner as it comes. */
static int run_list(struct pg_call *call, struct list *l, const PGresult **res, struct sl_err *err)
{
	struct pg_store *s = call->store;
	char *sql = l->sql.failed == 0 ? sl__pg_render(&s->env, sl__buf_str(&l->sql), s->schema) : NULL;
	if (sql == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: list: out of memory");
	int rc = sl__pg_call_run_relaxed(call, sql, res, err);
	sl__free(&s->env, sql);
	return rc;
}

static int list(void *store, const struct sl_job_filter *filter, const struct row_to *to, struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	struct list l = {.params = &call.params};
	sl__buf_init(&l.sql, &call.store->env);
	if (to->job != NULL)
		put_jobs(&l, filter);
	else
		put_chains(&l, filter);
	rc = run_list(&call, &l, &res, err);
	sl__buf_fini(&l.sql);
	for (int i = 0; rc == 0 && i < PQntuples(res); i++)
		rc = tell_row(res, i, to);
	sl__pg_call_close(&call);
	return rc;
}

int sl__pg_list_jobs(void *store, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	return list(store, filter, &(struct row_to){.job = fn, .ctx = ctx}, err);
}

int sl__pg_list_chains(void *store, const struct sl_job_filter *filter, sl_chain_fn *fn, void *ctx, struct sl_err *err)
{
	return list(store, filter, &(struct row_to){.chain = fn, .ctx = ctx}, err);
}
