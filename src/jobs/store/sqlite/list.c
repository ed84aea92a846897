/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listings: SQL put together from a filter. Every value is bound, none is pasted in.
 *
 * A filter by status that leaves completed jobs out starts from the small tables and partial indexes that hold the
 * others, so that a long history costs nothing.
 */
#include "jobs/store/sqlite/store.h"

#define LIMIT_DEFAULT 100
#define LIMIT_MAX 10000
#define ALL_STATUSES 0x7eu
#define HAS(mask, status) (((mask) >> (status)) & 1u)

struct listing {
	const struct sl_job_filter *filter;
	struct sl__buf sql;
	struct sl__buf values; /* struct sl__sqlite_value */
	const char *at;        /* the alias whose id is the listed one: "j" or "h" */
	bool chains;
};

static void text(struct listing *l, const char *sql)
{
	(void)sl__buf_str_append(&l->sql, sql);
}

static void value(struct listing *l, struct sl__sqlite_value v)
{
	(void)sl__buf_append(&l->values, &v, sizeof v);
}

static void where_types(struct listing *l)
{
	if (l->filter->n_types == 0)
		return;
	(void)sl__buf_printf(&l->sql, " AND %s.type IN (", l->at);
	for (size_t i = 0; i < l->filter->n_types; i++) {
		text(l, i == 0 ? "?" : ",?");
		value(l, SQ_TEXT(l->filter->types[i]));
	}
	text(l, ")");
}

/* Jobs that can have one of the statuses, from where such jobs are few. */
static void statuses_from_small(struct listing *l, uint32_t mask)
{
	static const struct {
		enum sl_job_status status;
		const char *sql;
	} sources[] = {
		{SL_JOB_BLOCKED, "SELECT id FROM sluice_job WHERE status=1"},
		{SL_JOB_PENDING, "SELECT id FROM sluice_ready UNION ALL SELECT id FROM sluice_sched"},
		{SL_JOB_RUNNING, "SELECT id FROM r"},
		{SL_JOB_FAILED, "SELECT id FROM sluice_job WHERE status=5"},
		{SL_JOB_CANCELLED, "SELECT id FROM sluice_job WHERE status=6"},
	};
	const char *between = "";
	text(l, l->chains ? " AND h.id IN (SELECT chain_id FROM sluice_job WHERE id IN (" : " AND j.id IN (");
	for (size_t i = 0; i < SL_COUNT(sources); i++)
		if (HAS(mask, sources[i].status)) {
			text(l, between);
			text(l, sources[i].sql);
			between = " UNION ALL ";
		}
	text(l, l->chains ? "))" : ")");
}

static void where_statuses(struct listing *l)
{
	uint32_t mask = l->filter->statuses & ALL_STATUSES;
	if (l->filter->statuses == 0 || mask == ALL_STATUSES)
		return;
	if (mask != 0 && !HAS(mask, SL_JOB_COMPLETED))
		statuses_from_small(l, mask);
	text(l, " AND (0");
	for (int status = SL_JOB_BLOCKED; status <= SL_JOB_CANCELLED; status++)
		if (HAS(mask, status) && status != SL_JOB_PENDING && status != SL_JOB_RUNNING)
			(void)sl__buf_printf(&l->sql, " OR j.status=%d", status);
	if (HAS(mask, SL_JOB_PENDING))
		text(l, " OR (j.status=2 AND r.id IS NULL)");
	if (HAS(mask, SL_JOB_RUNNING))
		text(l, " OR r.id IS NOT NULL");
	text(l, ")");
}

static void where_chain(struct listing *l)
{
	const struct sl_job_filter *f = l->filter;
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
}

static void where_created(struct listing *l)
{
	if (l->filter->created_from_ms != 0) {
		(void)sl__buf_printf(&l->sql, " AND %s.created_us>=?", l->at);
		value(l, SQ_INT(l->filter->created_from_ms * 1000));
	}
	if (l->filter->created_to_ms != 0) {
		(void)sl__buf_printf(&l->sql, " AND %s.created_us<?", l->at);
		value(l, SQ_INT(l->filter->created_to_ms * 1000));
	}
}

/* The page and its order: by id, or in the order in which a job's blockers were given. */
static void page(struct listing *l)
{
	const struct sl_job_filter *f = l->filter;
	uint32_t limit = f->limit == 0 ? LIMIT_DEFAULT : SL_MIN(f->limit, LIMIT_MAX);
	bool by_order = l->chains && f->blocked_by_job != 0;
	if (f->after != 0 && by_order) {
		text(l, " AND b.ord>(SELECT max(ord) FROM sluice_blocker WHERE job_id=? AND chain_id=?)");
		value(l, SQ_INT(f->blocked_by_job));
		value(l, SQ_INT(f->after));
	} else if (f->after != 0) {
		(void)sl__buf_printf(&l->sql, " AND %s.id%s?", l->at, f->ascending ? ">" : "<");
		value(l, SQ_INT(f->after));
	}
	if (by_order)
		text(l, " ORDER BY b.ord LIMIT ?");
	else
		(void)sl__buf_printf(&l->sql, " ORDER BY %s.id %s LIMIT ?", l->at, f->ascending ? "ASC" : "DESC");
	value(l, SQ_INT(limit));
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
	where_types(l);
	where_statuses(l);
	where_chain(l);
	where_created(l);
	page(l);
}

static int prepare(struct listing *l, struct sl__sqlite *c, sqlite3_stmt **out, struct sl_err *err)
{
	build(l);
	if (l->sql.failed != 0 || l->values.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "no memory for a listing");
	return sl__sqlite_prepare(c, l->sql.data, (const struct sl__sqlite_value *)(const void *)l->values.data,
				  l->values.len / sizeof(struct sl__sqlite_value), out, err);
}

static int visit(struct listing *l, sqlite3_stmt *s, sl_job_fn *job_fn, sl_chain_fn *chain_fn, void *ctx)
{
	if (l->chains) {
		struct sl_chain chain;
		sl__sq_read_chain(s, &chain);
		return chain_fn(&chain, ctx);
	}
	struct sl_job job;
	sl__sq_read_job(s, &job);
	return job_fn(&job, ctx);
}

static int list(struct sq_store *store, const struct sl_job_filter *filter, sl_job_fn *job_fn, sl_chain_fn *chain_fn,
		void *ctx, struct sl_err *err)
{
	static const struct sl_job_filter all = {0};
	struct listing l = {.filter = filter != NULL ? filter : &all, .chains = chain_fn != NULL};
	struct sl__sqlite *c;
	sqlite3_stmt *s = NULL;
	int rc = sl__sq_read_begin(store, NULL, &c, err);
	if (rc != 0)
		return rc;
	l.at = l.chains ? "h" : "j";
	sl__buf_init(&l.sql, &store->env);
	sl__buf_init(&l.values, &store->env);
	rc = prepare(&l, c, &s, err);
	while (rc == 0 && (rc = sl__sqlite_step(c, s, err)) > 0)
		rc = visit(&l, s, job_fn, chain_fn, ctx);
	(void)sqlite3_finalize(s);
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
