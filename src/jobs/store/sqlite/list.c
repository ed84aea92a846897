/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listings: SQL put together from a filter. Every value is bound, none is pasted in.
 *
 * A filter by status that leaves completed jobs out starts from the tables and partial indexes that hold the others, so
 * that a long history costs nothing. `scan` becomes a bound of ids, found before the list is made.
 */
#include <inttypes.h>
#include <stdio.h>

#include "jobs/store/list_rules.h"
#include "jobs/store/sqlite/store.h"

struct listing {
	const struct sl_job_filter *filter;
	struct sl__buf sql;
	struct sl__buf values; /* struct sl__sqlite_value */
	const char *at;        /* the alias whose id is the listed one: "j" or "h" */
	bool chains;
	bool by_status;               /* the jobs are found by their statuses, not along the ids */
	bool many_wait, many_blocked; /* of those statuses there are too many to read them whole */
	struct sl__buf waiting;       /* then: the first of them, as a JSON array */
	uint32_t limit;
	uint64_t after;   /* the cursor, or a later place before which there is nothing */
	uint64_t floor;   /* do not look beyond this id; 0: no bound */
	uint64_t n, last; /* listed, and the last of them */
};

static void text(struct listing *l, const char *sql)
{
	(void)sl__buf_str_append(&l->sql, sql);
}

static void value(struct listing *l, struct sl__sqlite_value v)
{
	(void)sl__buf_append(&l->values, &v, sizeof(v));
}

static int prepare_text(struct listing *l, struct sl__sqlite *c, sqlite3_stmt **out, struct sl_err *err)
{
	if (l->sql.failed != 0 || l->values.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "no memory for a listing");
	return sl__sqlite_prepare(c, l->sql.data, (const struct sl__sqlite_value *)(const void *)l->values.data,
				  l->values.len / sizeof(struct sl__sqlite_value), out, err);
}

/* ---- where to look ----
 *
 * Failed and cancelled jobs have an index in the order of ids (of chains, too). What is blocked, pending or running is
 * in small places, which are read whole as long as they are small; of large ones the first are gathered
 * (list_waiting.c). A chain that is not at its first job is not among the ids of those: it is found by a walk along the
 * jobs that were continued with. Everything else is a walk along the ids.
 */

static const char *small_sql(enum sl_job_status status)
{
	switch (status) {
	case SL_JOB_BLOCKED:
		return "SELECT id FROM sluice_job WHERE status=1";
	case SL_JOB_PENDING:
		return "SELECT id FROM sluice_ready UNION ALL SELECT id FROM sluice_sched";
	case SL_JOB_RUNNING:
		return "SELECT id FROM r";
	default:
		return NULL;
	}
}

static int is_small(struct sl__sqlite *c, enum sl_job_status status, bool *small, struct sl_err *err)
{
	char sql[256];
	sqlite3_stmt *s;
	(void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM (%s LIMIT %d)", small_sql(status),
		       SL__LIST_SMALL_MAX + 1);
	int rc = sl__sqlite_prepare(c, sql, NULL, 0, &s, err);
	rc = rc != 0 ? rc : sl__sqlite_step(c, s, err);
	if (rc > 0)
		*small = sqlite3_column_int(s, 0) <= SL__LIST_SMALL_MAX;
	(void)sqlite3_finalize(s);
	return SL_MIN(rc, 0);
}

/* The oldest of many that wait are wanted: what ended before those is not walked through. A chain may be older than the
 * job that it is at. */
static int skip_ended(struct listing *l, struct sl__sqlite *c, struct sl_err *err)
{
	uint64_t oldest = 0;
	if (!sl__list_oldest_pending(l->filter, l->chains))
		return 0;
	int rc = sl__sq_oldest_pending(c, &oldest, err);
	if (rc == 0 && oldest > l->after + 1)
		l->after = oldest - 1;
	return rc;
}

static int choose(struct listing *l, struct sl__sqlite *c, struct sl_err *err)
{
	uint32_t mask = l->filter->statuses & SL__LIST_STATUSES;
	bool small = true;
	int rc = 0;
	l->many_wait = l->many_blocked = false;
	l->by_status = mask != 0 && !SL__LIST_HAS(mask, SL_JOB_COMPLETED) && !sl__list_by_index(l->filter);
	if (l->by_status && SL__LIST_HAS(mask, SL_JOB_PENDING)) {
		rc = is_small(c, SL_JOB_PENDING, &small, err);
		l->many_wait = !small;
	}
	if (rc == 0 && l->by_status && SL__LIST_HAS(mask, SL_JOB_BLOCKED)) {
		rc = is_small(c, SL_JOB_BLOCKED, &small, err);
		l->many_blocked = !small;
	}
	return rc;
}

/* ids (or chains) that the cursor and the bound leave, in the order of the list. */
static void put_range(struct listing *l, const char *id)
{
	const struct sl_job_filter *f = l->filter;
	if (l->after != 0) {
		(void)sl__buf_printf(&l->sql, " AND %s%s?", id, f->ascending ? ">" : "<");
		value(l, SQ_INT(l->after));
	}
	if (l->floor != 0) {
		(void)sl__buf_printf(&l->sql, " AND %s%s?", id, f->ascending ? "<=" : ">=");
		value(l, SQ_INT(l->floor));
	}
	(void)sl__buf_printf(&l->sql, " ORDER BY %s %s", id, f->ascending ? "ASC" : "DESC");
}

static void put_stopped(struct listing *l, enum sl_job_status status)
{
	const char *id = l->chains ? "chain_id" : "id";
	(void)sl__buf_printf(&l->sql, "SELECT %s FROM sluice_job INDEXED BY %s WHERE status>=5 AND status=%d", id,
			     l->chains ? "sluice_job_stopped_chain" : "sluice_job_stopped", status);
	put_range(l, id);
}

/* Jobs that continued their chains, ended or not. */
static void put_continued(struct listing *l)
{
	text(l, "SELECT chain_id FROM sluice_job INDEXED BY sluice_job_chain WHERE chain_id<>id");
	put_range(l, "chain_id");
}

static void put_all(struct listing *l)
{
	text(l, "SELECT id FROM sluice_job WHERE 1");
	put_range(l, "id");
}

static void put_failed(struct listing *l)
{
	put_stopped(l, SL_JOB_FAILED);
}

static void put_cancelled(struct listing *l)
{
	put_stopped(l, SL_JOB_CANCELLED);
}

/* Bring the floor to where a source has given n ids. */
static int bound_by(struct listing *l, struct sl__sqlite *c, void (*source)(struct listing *l), uint64_t n,
		    struct sl_err *err)
{
	sqlite3_stmt *s = NULL;
	sl__buf_clear(&l->sql);
	sl__buf_clear(&l->values);
	source(l);
	text(l, " LIMIT 1 OFFSET ?");
	value(l, SQ_INT(n - 1));
	int rc = prepare_text(l, c, &s, err);
	rc = rc != 0 ? rc : sl__sqlite_step(c, s, err);
	/* It was looked for no further than to the floor. */
	if (rc > 0)
		l->floor = sl__sqlite_u64(s, 0);
	(void)sqlite3_finalize(s);
	sl__buf_clear(&l->sql);
	sl__buf_clear(&l->values);
	return SL_MIN(rc, 0);
}

static int walk(struct listing *l, struct sl__sqlite *c, struct sl_err *err)
{
	const struct sl_job_filter *f = l->filter;
	l->by_status = l->many_wait = l->many_blocked = false;
	l->floor = 0;
	int rc = skip_ended(l, c, err);
	if (rc != 0 || f->scan == 0 || sl__list_by_index(f) ||
	    ((f->statuses & SL__LIST_STATUSES) == 0 && !sl__list_is_picky(f)))
		return rc;
	return bound_by(l, c, put_all, f->scan, err);
}

/* Those of one status that are up to the floor, behind those that are there, and the floor where they end. */
static int gather(struct listing *l, struct sl__sqlite *c, bool blocked, bool *too_many, struct sl_err *err)
{
	struct sq_waiting w = {.filter = l->filter,
			       .ascending = l->filter->ascending != 0,
			       .after = l->after,
			       .floor = l->floor,
			       .n = (uint32_t)sl__list_given(l->filter, sl__list_searches(l->filter))};
	sl__buf_init(&w.ids, l->sql.env);
	int rc = sl__sq_waiting(c, &w, blocked, err);
	const uint64_t *ids = (const uint64_t *)(const void *)w.ids.data;
	for (size_t i = 0; rc == 0 && i < w.ids.len / sizeof(*ids); i++)
		(void)sl__buf_printf(&l->waiting, "%c%" PRIu64, l->waiting.len == 0 ? '[' : ',', ids[i]);
	if (w.end != 0)
		l->floor = w.end;
	*too_many = *too_many || w.too_many_parts;
	sl__buf_fini(&w.ids);
	return rc;
}

static int gather_all(struct listing *l, struct sl__sqlite *c, struct sl_err *err)
{
	bool too_many = false;
	sl__buf_clear(&l->waiting);
	int rc = l->chains ? bound_by(l, c, put_continued, sl__list_given(l->filter, true), err) : 0;
	if (rc == 0 && l->many_wait)
		rc = gather(l, c, false, &too_many, err);
	if (rc == 0 && l->many_blocked)
		rc = gather(l, c, true, &too_many, err);
	if (sl__buf_str_append(&l->waiting, l->waiting.len == 0 ? "[]" : "]") != 0 && rc == 0)
		rc = sl_err_set(err, SL_ENOMEM, "no memory for a listing");
	return rc == 0 && too_many ? walk(l, c, err) : rc;
}

/* Set the floor: beyond it, some source would have to give more ids than it may. */
static int bound(struct listing *l, struct sl__sqlite *c, struct sl_err *err)
{
	uint32_t mask = l->filter->statuses & SL__LIST_STATUSES;
	int rc = 0;
	l->floor = 0;
	if (!l->by_status)
		return walk(l, c, err);
	if (l->filter->scan != 0 && SL__LIST_HAS(mask, SL_JOB_FAILED))
		rc = bound_by(l, c, put_failed, l->filter->scan, err);
	if (rc == 0 && l->filter->scan != 0 && SL__LIST_HAS(mask, SL_JOB_CANCELLED))
		rc = bound_by(l, c, put_cancelled, l->filter->scan, err);
	return rc == 0 && (l->many_wait || l->many_blocked) ? gather_all(l, c, err) : rc;
}

static bool is_large(const struct listing *l, enum sl_job_status status)
{
	return (status == SL_JOB_PENDING && l->many_wait) || (status == SL_JOB_BLOCKED && l->many_blocked);
}

/* What was gathered, and chains that continued and have not ended. */
static void put_gathered(struct listing *l)
{
	text(l, "SELECT value FROM json_each(?)");
	value(l, SQ_TEXT(l->waiting.data));
	if (!l->chains)
		return;
	text(l, " UNION ALL SELECT o.id FROM (SELECT DISTINCT chain_id FROM (");
	put_continued(l);
	text(l, ")) c CROSS JOIN sluice_job o ON o.id=c.chain_id CROSS JOIN sluice_job e ON e.id=o.last_id"
		" AND e.status<4");
}

/* Jobs, or chains, that can have one of the statuses. */
static void where_by_status(struct listing *l, uint32_t mask)
{
	const char *between = "";
	(void)sl__buf_printf(&l->sql, " AND %s.id IN (", l->at);
	if (l->many_wait || l->many_blocked) {
		put_gathered(l);
		between = " UNION ALL ";
	}
	for (enum sl_job_status status = SL_JOB_BLOCKED; status <= SL_JOB_CANCELLED; status++) {
		if (!SL__LIST_HAS(mask, status) || is_large(l, status))
			continue;
		text(l, between);
		between = " UNION ALL ";
		if (small_sql(status) != NULL) {
			text(l, l->chains ? "SELECT chain_id FROM sluice_job WHERE id IN (" : "");
			text(l, small_sql(status));
			text(l, l->chains ? ")" : "");
			continue;
		}
		text(l, "SELECT * FROM (");
		put_stopped(l, status);
		if (!sl__list_is_picky(l->filter)) {
			text(l, " LIMIT ?");
			value(l, SQ_INT(l->limit));
		}
		text(l, ")");
	}
	text(l, ")");
}

static void where_statuses(struct listing *l)
{
	uint32_t mask = l->filter->statuses & SL__LIST_STATUSES;
	if (l->filter->statuses == 0 || mask == SL__LIST_STATUSES)
		return;
	if (l->by_status)
		where_by_status(l, mask);
	text(l, " AND (0");
	for (int status = SL_JOB_BLOCKED; status <= SL_JOB_CANCELLED; status++)
		if (SL__LIST_HAS(mask, status) && status != SL_JOB_PENDING && status != SL_JOB_RUNNING)
			(void)sl__buf_printf(&l->sql, " OR j.status=%d", status);
	if (SL__LIST_HAS(mask, SL_JOB_PENDING))
		text(l, " OR (j.status=2 AND r.id IS NULL)");
	if (SL__LIST_HAS(mask, SL_JOB_RUNNING))
		text(l, " OR r.id IS NOT NULL");
	text(l, ")");
}

/* The conditions of the filter, one after the other. */
static void put_conditions(struct listing *l)
{
	const struct sl_job_filter *f = l->filter;
	for (size_t i = 0; i < f->n_types; i++) {
		(void)sl__buf_printf(&l->sql, i == 0 ? " AND %s.type IN (?" : ",?", l->at);
		value(l, SQ_TEXT(f->types[i]));
	}
	text(l, f->n_types > 0 ? ")" : "");
	where_statuses(l);
	if (f->chain_id != 0) {
		text(l, l->chains ? " AND h.id=?"
				  : " AND j.id IN (SELECT ? UNION ALL"
				    " SELECT id FROM sluice_job WHERE chain_id=? AND chain_id<>id)");
		value(l, SQ_INT(f->chain_id));
		if (!l->chains)
			value(l, SQ_INT(f->chain_id));
	}
	if (f->blocks != 0) {
		text(l, l->chains ? " AND h.id IN (SELECT chain_id FROM sluice_job WHERE id IN"
				    " (SELECT job_id FROM sluice_blocker WHERE chain_id=?))"
				  : " AND j.id IN (SELECT job_id FROM sluice_blocker WHERE chain_id=?)");
		value(l, SQ_INT(f->blocks));
	}
	if (f->key != NULL) {
		(void)sl__buf_printf(&l->sql, " AND %s.key=?", l->at);
		value(l, SQ_TEXT(f->key));
	}
	if (f->created_from_ms != 0) {
		(void)sl__buf_printf(&l->sql, " AND %s.created_us>=?", l->at);
		value(l, SQ_INT(sq_us(f->created_from_ms)));
	}
	if (f->created_to_ms != 0) {
		(void)sl__buf_printf(&l->sql, " AND %s.created_us<?", l->at);
		value(l, SQ_INT(sq_us(f->created_to_ms)));
	}
	if (f->ended_from_ms != 0) {
		text(l, " AND j.ended_us>=?");
		value(l, SQ_INT(sq_us(f->ended_from_ms)));
	}
	if (f->ended_to_ms != 0) {
		text(l, " AND j.ended_us<?");
		value(l, SQ_INT(sq_us(f->ended_to_ms)));
	}
	if (f->text != NULL) {
		(void)sl__buf_printf(&l->sql, " AND (instr(%s.input,?)>0 OR instr(j.output,?)>0 OR instr(j.error,?)>0)",
				     l->at);
		for (int i = 0; i < 3; i++)
			value(l, SQ_TEXT(f->text));
	}
	if (f->error != NULL) {
		text(l, " AND " SQ_ERROR_LINE "=?");
		value(l, SQ_TEXT(f->error));
	}
}

/* The page and its order: by id, or in the order in which a job's blockers were given. */
static void page(struct listing *l)
{
	const struct sl_job_filter *f = l->filter;
	bool by_order = l->chains && f->blocked_by_job != 0;
	if (f->after != 0 && by_order) {
		text(l, " AND b.ord>(SELECT max(ord) FROM sluice_blocker WHERE job_id=? AND chain_id=?)");
		value(l, SQ_INT(f->blocked_by_job));
		value(l, SQ_INT(f->after));
	}
	if (by_order)
		text(l, " ORDER BY b.ord");
	else
		put_range(l, l->chains ? "h.id" : "j.id");
	text(l, " LIMIT ?");
	value(l, SQ_INT(l->limit - l->n));
}

static void build(struct listing *l)
{
	bool data = !l->filter->without_data;
	text(l, "WITH " SQ_LEASED " SELECT ");
	if (!l->chains) {
		text(l, data ? SQ_JOB_COLUMNS("j.input", "j.output", "j.progress") SQ_JOB_FROM " WHERE 1"
			     : SQ_JOB_COLUMNS("NULL", "NULL", "NULL") SQ_JOB_FROM " WHERE 1");
	} else {
		text(l, data ? SQ_CHAIN_COLUMNS("h.input", "j.output", "r.id") SQ_CHAIN_FROM
			     : SQ_CHAIN_COLUMNS("NULL", "NULL", "r.id") SQ_CHAIN_FROM);
		if (l->filter->blocked_by_job != 0) {
			text(l, " JOIN sluice_blocker b ON b.chain_id=h.id AND b.job_id=?");
			value(l, SQ_INT(l->filter->blocked_by_job));
		}
		text(l, " WHERE h.chain_id=h.id");
	}
	put_conditions(l);
	page(l);
}

/* "" in place of a value that is longer than the filter wants it. */
static const char *bounded(const struct listing *l, const char *json)
{
	uint32_t max = l->filter->data_max_bytes;
	return max != 0 && json != NULL && strlen(json) > max ? "" : json;
}

static int visit(struct listing *l, sqlite3_stmt *s, sl_job_fn *job_fn, sl_chain_fn *chain_fn, void *ctx)
{
	l->n++;
	if (l->chains) {
		struct sl_chain chain;
		sl__sq_read_chain(s, &chain);
		chain.input = bounded(l, chain.input);
		chain.output = bounded(l, chain.output);
		l->last = chain.id;
		return chain_fn(&chain, ctx);
	}
	struct sl_job job;
	sl__sq_read_job(s, &job);
	job.input = bounded(l, job.input);
	job.output = bounded(l, job.output);
	job.progress = bounded(l, job.progress);
	l->last = job.id;
	return job_fn(&job, ctx);
}

static int run(struct listing *l, struct sl__sqlite *c, sl_job_fn *job_fn, sl_chain_fn *chain_fn, void *ctx,
	       struct sl_err *err)
{
	sqlite3_stmt *s = NULL;
	int rc = choose(l, c, err);
	rc = rc != 0 ? rc : bound(l, c, err);
	if (rc == 0) {
		build(l);
		rc = prepare_text(l, c, &s, err);
	}
	while (rc == 0 && (rc = sl__sqlite_step(c, s, err)) > 0)
		rc = visit(l, s, job_fn, chain_fn, ctx);
	(void)sqlite3_finalize(s);
	l->after = rc != 0 || l->n == l->limit ? l->last : l->floor;
	sl__buf_clear(&l->sql);
	sl__buf_clear(&l->values);
	return rc;
}

/* Again only for who wants a full page, wherever the rest of it is. */
static int run_all(struct listing *l, struct sl__sqlite *c, sl_job_fn *job_fn, sl_chain_fn *chain_fn, void *ctx,
		   struct sl_err *err)
{
	int rc;
	do
		rc = run(l, c, job_fn, chain_fn, ctx, err);
	while (rc == 0 && l->filter->scan == 0 && l->after != 0 && l->n < l->limit);
	if (l->filter->reached != NULL)
		*l->filter->reached = l->after;
	return rc;
}

static int list(struct sq_store *store, const struct sl_job_filter *filter, sl_job_fn *job_fn, sl_chain_fn *chain_fn,
		void *ctx, struct sl_err *err)
{
	static const struct sl_job_filter all = {0};
	struct listing l = {.filter = filter != NULL ? filter : &all, .chains = chain_fn != NULL};
	struct sl__sqlite *c;
	int rc = sl__sq_read_begin(store, NULL, &c, err);
	if (rc != 0)
		return rc;
	l.at = l.chains ? "h" : "j";
	l.after = l.filter->after;
	l.limit = sl__list_limit(l.filter);
	sl__buf_init(&l.sql, &store->env);
	sl__buf_init(&l.values, &store->env);
	sl__buf_init(&l.waiting, &store->env);
	/* One snapshot, so that the bound is that of what is listed. */
	rc = sl__sqlite_exec(c, "BEGIN", err);
	rc = rc != 0 ? rc : run_all(&l, c, job_fn, chain_fn, ctx, err);
	sl__sqlite_rollback(c);
	sl__buf_fini(&l.waiting);
	sl__buf_fini(&l.values);
	sl__buf_fini(&l.sql);
	sl__sq_read_end(store, NULL, c);
	return rc;
}

int sl__sq_list_jobs(void *store, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	return list(store, filter, fn, NULL, ctx, err);
}

int sl__sq_list_chains(void *store, const struct sl_job_filter *filter, sl_chain_fn *fn, void *ctx, struct sl_err *err)
{
	return list(store, filter, NULL, fn, ctx, err);
}
