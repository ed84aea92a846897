/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists: a page is the rows with id > cursor (or <) ORDER BY id LIMIT n. Two queries make one:
 *
 *	1. which ids can be on the page, as far as an index has them, and the last id that this is known for (the floor)
 *	2. the rows of these ids up to the floor, with all conditions of the filter
 *
 * Where the ids come from:
 *
 *	key, chain, blocker       an index; query 1 is not needed
 *	failed, cancelled         an index in the order of ids (of chains, in the order of chains)
 *	running                   the leases, read whole
 *	pending, blocked          read whole up to SL__LIST_SMALL_MAX. Beyond that, in the order of ids from each group of
 *	                          the queues (type and priority), since no index has all of them in that order. A chain
 *	                          past its first job is then found among the jobs that continue a chain
 *	ready, scheduled,         the same, of those parts of the queues that can have them; what is retrying is in an
 *	retrying                  index in the order of ids
 *	anything else             a walk along the ids: the floor is where `scan` ids end
 *
 * Invariants:
 * 1. A source that is not read whole gives at most a bounded number of ids, so a page costs bounded work.
 * 2. Up to the floor, every source has given all its ids: what is not among them has none of the statuses.
 * 3. All sources are read by one statement, so a job that changes its status meanwhile is in one of them.
 */
#include "jobs/store/list.h"

#define HAS(mask, status) (((mask) >> (status)) & 1u)
#define BIT(status) (1u << (status))
#define STATES (BIT(SL_JOB_READY) | BIT(SL_JOB_SCHEDULED) | BIT(SL_JOB_RETRYING))
#define LIMIT_DEFAULT 100u
#define LIMIT_MAX 10000u
#define SCAN_DEFAULT 20000 /* ids that a source gives at a time where the caller sets no bound */
#define GIVEN_LEAST 1000   /* and where nearly all that it gives will be listed: a few will not */

struct list {
	const struct sl__list_db *db;
	const struct sl__list_dialect *d;
	const struct sl_job_filter *filter;
	const struct sl__list_to *to;
	struct sl__buf sql, values; /* of the query that is built; values: struct sl__cold_value */
	struct sl__buf found;       /* struct sl__list_found, by query 1 */
	struct sl__buf ids;         /* uint64_t: those of found */
	uint32_t n_visited;
	uint64_t last; /* the id of the last row that was visited */
	bool chains;
	bool by_ids;                       /* only ids can be listed; otherwise the list walks along all ids */
	bool many[SL_JOB_STATE_COUNT + 1]; /* of this status or state there are too many to read it whole */
	uint32_t mask;                     /* the filter's statuses; with PENDING, no states */
	uint32_t limit;
	uint64_t after; /* the cursor; 0: from the end */
	uint64_t floor; /* the last id of the page; 0: no bound */
};

/* ---- building a query ---- */

/* Append SQL; an @ in it is the time now. */
static void put_sql(struct list *l, const char *sql)
{
	static const struct sl__cold_value now = {.kind = SL__COLD_NOW};
	for (const char *at; (at = strchr(sql, '@')) != NULL; sql = at + 1) {
		(void)sl__buf_append(&l->sql, sql, (size_t)(at - sql));
		(void)sl__buf_str_append(&l->sql, l->d->now);
		if (*l->d->now == '?')
			(void)sl__buf_append(&l->values, &now, sizeof(now));
	}
	(void)sl__buf_str_append(&l->sql, sql);
}

/* Append SQL and a placeholder. */
static void put_parameter(struct list *l, const char *sql, struct sl__cold_value v)
{
	static const char *const types[] = {
		[SL__COLD_INT] = "bigint",
		[SL__COLD_TEXT] = "text",
		[SL__COLD_TIME] = "timestamptz",
		[SL__COLD_IDS] = "bigint[]",
	};
	put_sql(l, sql);
	(void)sl__buf_append(&l->values, &v, sizeof(v));
	if (l->d->numbered)
		(void)sl__buf_printf(&l->sql, "$%zu::%s", l->values.len / sizeof(v), types[v.kind]);
	else
		put_sql(l, "?");
}

static void put_int(struct list *l, const char *sql, uint64_t v)
{
	put_parameter(l, sql, COLD_INT(v));
}

static void put_text_value(struct list *l, const char *sql, const char *text)
{
	put_parameter(l, sql, COLD_TEXT(text));
}

/* " AND alias.column operator time", unless the time is 0. */
static void put_time_range(struct list *l, const char *alias, const char *column, const char *operator, int64_t ms)
{
	if (ms == 0)
		return;
	(void)sl__buf_printf(&l->sql, " AND %s.%s", alias, column);
	put_parameter(l, operator, COLD_TIME(ms));
}

static void put_types(struct list *l, const char *alias)
{
	for (size_t i = 0; i < l->filter->n_types; i++) {
		if (i == 0)
			(void)sl__buf_printf(&l->sql, " AND %s.type IN (", alias);
		put_text_value(l, i == 0 ? "" : ",", l->filter->types[i]);
	}
	put_sql(l, l->filter->n_types > 0 ? ")" : "");
}

static void put_order(struct list *l, const char *id)
{
	(void)sl__buf_printf(&l->sql, " ORDER BY %s %s", id, l->filter->ascending ? "ASC" : "DESC");
}

/* The ids that the cursor and the floor leave, in the order of the list. */
static void put_range(struct list *l, const char *id)
{
	const char *past = l->filter->ascending ? ">" : "<", *up_to = l->filter->ascending ? "<=" : ">=";
	if (l->after != 0) {
		(void)sl__buf_printf(&l->sql, " AND %s%s", id, past);
		put_int(l, "", l->after);
	}
	if (l->floor != 0) {
		(void)sl__buf_printf(&l->sql, " AND %s%s", id, up_to);
		put_int(l, "", l->floor);
	}
	put_order(l, id);
}

static void start_query(struct list *l)
{
	sl__buf_clear(&l->sql);
	sl__buf_clear(&l->values);
}

/* Run what was built. */
static int run_query(struct list *l, sl__cold_row_fn *row, struct sl_err *err)
{
	if (l->sql.failed != 0 || l->values.failed != 0 || l->ids.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "no memory for a list");
	const struct sl__cold_query query = {.sql = sl__buf_str(&l->sql),
					     .values = (const struct sl__cold_value *)(const void *)l->values.data,
					     .n_values = l->values.len / sizeof(struct sl__cold_value),
					     .row = row,
					     .ctx = l};
	return l->db->run(&query, err, l->db->ctx);
}

static int keep_found(const struct sl__cold_row *row, void *ctx)
{
	struct list *l = ctx;
	const struct sl__list_found found = {.source = sl__cold_id(row, 0), .id = sl__cold_id(row, 1)};
	(void)sl__buf_append(&l->found, &found, sizeof(found)); /* find checks it */
	return 0;
}

/* Run a query that finds ids; they replace those in l->found. */
static int find_ids(struct list *l, struct sl_err *err)
{
	sl__buf_clear(&l->found);
	int rc = run_query(l, keep_found, err);
	if (rc == 0 && l->found.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "no memory for a list");
	return rc;
}

/* ---- query 1: which ids ---- */

static bool filters_content(const struct sl_job_filter *f)
{
	return f->created_from_ms != 0 || f->created_to_ms != 0 || f->text != NULL || f->error != NULL ||
	       f->ended_from_ms != 0 || f->ended_to_ms != 0;
}

/* How many ids a source may give: as many as may be scanned, but few more than the page holds where the filter accepts
 * nearly all of them. */
static uint64_t given(const struct list *l, bool type_is_known)
{
	const struct sl_job_filter *f = l->filter;
	uint64_t scan = f->scan != 0 ? f->scan : SCAN_DEFAULT;
	uint64_t few = SL_MAX(4 * (uint64_t)l->limit, (uint64_t)GIVEN_LEAST);
	bool selective = filters_content(f) || (f->n_types > 0 && !type_is_known);
	return selective ? scan : SL_MIN(scan, few);
}

/* How many ids the source with this number may give; UINT64_MAX: it is read whole. */
static uint64_t source_bound(const struct list *l, uint64_t source)
{
	if (source == SL_JOB_COMPLETED) /* the jobs that continue chains */
		return l->filter->scan != 0 ? l->filter->scan : SCAN_DEFAULT;
	if (source == SL_JOB_FAILED || source == SL_JOB_CANCELLED)
		return given(l, false);
	return l->many[source] ? given(l, l->d->parts[source][0].group != NULL) : UINT64_MAX;
}

/* The first n ids of a status in the order of the list, n from each group at most. */
static void put_parts(struct list *l, enum sl_job_status status, uint64_t n)
{
	const struct sl__list_part *parts = l->d->parts[status];
	put_sql(l, "SELECT y.id FROM (");
	for (size_t i = 0; i < SL_COUNT(l->d->parts[status]) && parts[i].from != NULL; i++) {
		const struct sl__list_part *p = &parts[i];
		put_sql(l, i > 0 ? " UNION ALL " : "");
		if (p->group != NULL)
			(void)sl__buf_printf(&l->sql, "SELECT %s AS id FROM %s%s", l->d->each_id, p->group, l->d->each);
		else
			put_sql(l, "SELECT x.id FROM (");
		(void)sl__buf_printf(&l->sql, "SELECT %s AS id ", p->id);
		put_sql(l, p->from);
		put_range(l, p->id);
		put_int(l, " LIMIT ", n);
		put_sql(l, p->group != NULL ? l->d->each_end : ") x");
		put_sql(l, " WHERE true");
		if (p->group != NULL)
			put_types(l, p->group);
	}
	put_sql(l, ") y");
	put_order(l, "y.id");
	put_int(l, " LIMIT ", n);
}

/* SELECT source, id for one source. */
static void put_source(struct list *l, enum sl_job_status source)
{
	uint64_t n = source_bound(l, source);
	(void)sl__buf_printf(&l->sql, "SELECT %d AS source, s.id FROM (", source);
	if (source == SL_JOB_COMPLETED) {
		(void)sl__buf_printf(&l->sql, "SELECT c.chain_id AS id %s", l->d->continued);
		put_range(l, "c.chain_id");
		put_int(l, " LIMIT ", n);
	} else if (source == SL_JOB_FAILED || source == SL_JOB_CANCELLED) {
		const char *id = l->chains ? "x.chain_id" : "x.id";
		(void)sl__buf_printf(&l->sql, "SELECT %s AS id %s%d", id,
				     l->chains ? l->d->stopped_chains : l->d->stopped, source);
		put_range(l, id);
		put_int(l, " LIMIT ", n);
	} else if (l->many[source]) {
		put_parts(l, source, n);
	} else {
		put_sql(l, l->d->whole[source]);
		if (source != SL_JOB_RUNNING)
			put_int(l, " LIMIT ", SL__LIST_SMALL_MAX + 1);
	}
	put_sql(l, ") s");
}

/* All sources of the statuses in one statement. */
static int find_in_sources(struct list *l, bool many, struct sl_err *err)
{
	start_query(l);
	put_sql(l, many ? "WITH RECURSIVE " : "WITH ");
	put_sql(l, l->d->leases);
	if (many)
		(void)sl__buf_printf(&l->sql, ", %s SELECT 0 AS source, %s AS id", l->d->groups, l->d->n_groups);
	const char *between = many ? " UNION ALL " : " ";
	for (enum sl_job_status s = SL_JOB_BLOCKED; s <= SL_JOB_STATE_COUNT; s++) {
		bool continued = s == SL_JOB_COMPLETED && l->chains && many;
		if (!HAS(l->mask, s) && !continued)
			continue;
		put_sql(l, between);
		between = " UNION ALL ";
		put_source(l, s);
	}
	return find_ids(l, err);
}

static uint64_t nearer(const struct list *l, uint64_t a, uint64_t b)
{
	if (a == 0 || b == 0)
		return a | b;
	return l->filter->ascending ? SL_MIN(a, b) : SL_MAX(a, b);
}

/* The ids by status: sets by_ids, ids and the floor. *too_many_groups: nothing was set. */
static int find_by_status(struct list *l, bool *too_many_groups, struct sl_err *err)
{
	const struct sl__list_found *row;
	uint64_t n[SL_JOB_STATE_COUNT + 1], last[SL_JOB_STATE_COUNT + 1];
	bool many = false, again = true;
	memset(l->many, 0, sizeof(l->many));
	while (again) {
		int rc = find_in_sources(l, many, err);
		if (rc != 0)
			return rc;
		/* How many each source gave, and the last of them in the order of the list. */
		memset(n, 0, sizeof(n));
		memset(last, 0, sizeof(last));
		row = (const struct sl__list_found *)(const void *)l->found.data;
		for (size_t i = 0; i < l->found.len / sizeof(*row); i++) {
			uint64_t at = row[i].source, id = row[i].id;
			n[at]++;
			if (at == 0 || last[at] == 0 || (l->filter->ascending ? id > last[at] : id < last[at]))
				last[at] = id;
		}
		/* What turns out to be large is read again, along with the others, by groups. */
		again = false;
		for (enum sl_job_status s = SL_JOB_BLOCKED; s <= SL_JOB_STATE_COUNT; s++)
			if (l->d->parts[s][0].from != NULL && !l->many[s] && n[s] > SL__LIST_SMALL_MAX)
				l->many[s] = many = again = true;
	}
	*too_many_groups = last[0] > SL__LIST_GROUPS_MAX;
	if (*too_many_groups)
		return 0;
	for (size_t i = 0; i < l->found.len / sizeof(*row); i++)
		if (row[i].source != 0)
			(void)sl__buf_append(&l->ids, &row[i].id, sizeof(row[i].id));
	for (enum sl_job_status s = SL_JOB_BLOCKED; s <= SL_JOB_STATE_COUNT; s++)
		if (n[s] >= source_bound(l, s))
			l->floor = nearer(l, l->floor, last[s]);
	l->by_ids = true;
	return 0;
}

/* Set by_ids, ids and the floor. */
static int find_candidates(struct list *l, struct sl_err *err)
{
	const struct sl_job_filter *f = l->filter;
	l->by_ids = false;
	l->floor = 0;
	sl__buf_clear(&l->ids);
	if (f->key != NULL || f->chain_id != 0 || f->blocks != 0 || f->blocked_by_job != 0)
		return 0;
	if (l->mask != 0 && !HAS(l->mask, SL_JOB_COMPLETED)) {
		bool too_many_groups = false;
		int rc = find_by_status(l, &too_many_groups, err);
		if (rc != 0 || !too_many_groups)
			return rc;
		/* What ended before the oldest pending job is not walked through. A chain may be older than its job. */
		if (!l->chains && f->ascending && (l->mask & ~(BIT(SL_JOB_PENDING) | STATES)) == 0) {
			uint64_t oldest = 0;
			rc = l->db->oldest_pending(&oldest, err, l->db->ctx);
			if (rc != 0)
				return rc;
			l->after = SL_MAX(l->after + 1, oldest) - 1;
		}
	}
	/* A walk, bounded where the filter may skip what it finds. */
	if (f->scan == 0 || (l->mask == 0 && f->n_types == 0 && !filters_content(f)))
		return 0;
	start_query(l);
	(void)sl__buf_printf(&l->sql, "SELECT 0 AS source, x.id FROM %s x WHERE true", l->d->job);
	put_range(l, "x.id");
	put_int(l, " LIMIT 1 OFFSET ", f->scan - 1);
	int rc = find_ids(l, err);
	if (rc == 0 && l->found.len > 0)
		l->floor = ((const struct sl__list_found *)(const void *)l->found.data)->id;
	return rc;
}

/* ---- query 2: the rows ---- */

/* Copy a SELECT; a [column] in it is one of data, which the filter can leave out. */
static void put_columns(struct list *l, const char *sql)
{
	const struct sl_job_filter *f = l->filter;
	for (const char *open; (open = strchr(sql, '[')) != NULL;) {
		int len = (int)strcspn(open + 1, "]");
		const char *column = open + 1;
		(void)sl__buf_append(&l->sql, sql, (size_t)(open - sql));
		if (f->without_data)
			put_sql(l, "NULL");
		else if (f->data_max_bytes == 0)
			(void)sl__buf_printf(&l->sql, "%.*s", len, column);
		else
			(void)sl__buf_printf(&l->sql, "CASE WHEN %s%.*s%s > %u THEN '' ELSE %.*s END", l->d->length,
					     len, column, l->d->length_end, f->data_max_bytes, len, column);
		sql = column + len + 1;
	}
	put_sql(l, sql);
}

/* The candidates, in PostgreSQL as an array, so that they are looked up one by one. */
static void put_candidates(struct list *l)
{
	const struct sl__cold_value ids = COLD_IDS(l->ids.data, l->ids.len / sizeof(uint64_t));
	if (l->chains)
		(void)sl__buf_printf(&l->sql, " AND h.id %sSELECT c.chain_id FROM %s c WHERE c.id %s", l->d->in,
				     l->d->job, l->d->in_ids);
	else
		(void)sl__buf_printf(&l->sql, " AND j.id %s", l->d->in_ids);
	put_parameter(l, "", ids);
	put_sql(l, l->d->in_ids_end);
	put_sql(l, l->chains ? l->d->in_end : "");
}

static void put_statuses(struct list *l)
{
	const uint32_t live = BIT(SL_JOB_BLOCKED) | BIT(SL_JOB_PENDING) | BIT(SL_JOB_RUNNING);
	uint32_t statuses = l->mask;
	if (statuses == 0)
		return;
	/* Whether a chain has ended can be seen in its first job, before the one that it is at is read. */
	if (l->chains && l->d->head_status != NULL) {
		(void)sl__buf_printf(&l->sql, " AND (1 << %s) & ", l->d->head_status);
		put_int(l, "", (statuses & (live | STATES)) != 0 ? statuses | live : statuses);
		put_sql(l, " <> 0");
	}
	put_sql(l, " AND (1 << ");
	put_sql(l, (statuses & STATES) != 0 ? l->d->state : l->d->status);
	put_int(l, ") & ", statuses);
	put_sql(l, " <> 0");
}

/* Conditions on jobs j, or chains with the first job h and the last job j. */
static void put_conditions(struct list *l)
{
	const struct sl__list_dialect *d = l->d;
	const struct sl_job_filter *f = l->filter;
	const char *head = l->chains ? "h" : "j";
	put_types(l, head);
	if (l->by_ids)
		put_candidates(l);
	put_statuses(l);
	if (f->key != NULL) {
		(void)sl__buf_printf(&l->sql, " AND %s.key = ", head);
		put_text_value(l, "", f->key);
	}
	put_time_range(l, head, d->created, " >= ", f->created_from_ms);
	put_time_range(l, head, d->created, " < ", f->created_to_ms);
	put_time_range(l, "j", d->ended, " >= ", f->ended_from_ms);
	put_time_range(l, "j", d->ended, " < ", f->ended_to_ms);
	if (f->text != NULL) {
		const char *const in[] = {l->chains ? "h.input" : "j.input", "j.output", "j.error",
					  l->chains ? "h.key" : "j.key"};
		for (size_t i = 0; i < SL_COUNT(in); i++) {
			(void)sl__buf_printf(&l->sql, "%s%s(%s, ", i == 0 ? " AND (" : " OR ", d->find, in[i]);
			put_text_value(l, "", f->text);
			put_sql(l, ") > 0");
		}
		put_sql(l, ")");
	}
	if (f->error != NULL) {
		(void)sl__buf_printf(&l->sql, " AND %s = ", d->error_line);
		put_text_value(l, "", f->error);
	}
	if (f->chain_id != 0 && l->chains) {
		put_int(l, " AND h.id = ", f->chain_id);
	} else if (f->chain_id != 0) {
		/* The last condition: a job that is not the first of its chain does not name a chain. */
		(void)sl__buf_printf(&l->sql, " AND j.id %s", d->in);
		put_int(l, "SELECT ", f->chain_id);
		(void)sl__buf_printf(&l->sql, " UNION ALL SELECT c.id FROM %s c WHERE c.chain_id = ", d->job);
		put_int(l, "", f->chain_id);
		(void)sl__buf_printf(&l->sql, " AND c.chain_id <> c.id%s AND j.chain_id = ", d->in_end);
		put_int(l, "", f->chain_id);
	}
	if (f->blocks != 0) {
		(void)sl__buf_printf(&l->sql, " AND %s.id %s", head, d->in);
		if (l->chains)
			(void)sl__buf_printf(
				&l->sql, "SELECT w.chain_id FROM %s b JOIN %s w ON w.id = b.job_id WHERE b.chain_id = ",
				d->blocker, d->job);
		else
			(void)sl__buf_printf(&l->sql, "SELECT b.job_id FROM %s b WHERE b.chain_id = ", d->blocker);
		put_int(l, "", f->blocks);
		put_sql(l, d->in_end);
	}
}

/* Pass a row to the caller's callback, and count it before that. */
static int visit_row(const struct sl__cold_row *row, void *ctx)
{
	struct list *l = ctx;
	l->n_visited++;
	l->last = sl__cold_id(row, 0);
	if (l->chains) {
		const struct sl_chain chain = sl__cold_chain(row);
		return l->to->chain(&chain, l->to->ctx);
	}
	const struct sl_job job = sl__cold_job(row);
	return l->to->job(&job, l->to->ctx);
}

/* Visit the rows up to the floor. */
static int visit_rows(struct list *l, struct sl_err *err)
{
	const struct sl_job_filter *f = l->filter;
	bool by_order = l->chains && f->blocked_by_job != 0;
	start_query(l);
	(void)sl__buf_printf(&l->sql, "WITH %s ", l->d->leases);
	if (by_order) {
		put_columns(l, l->d->blocked_chains);
		put_int(l, "", f->blocked_by_job);
		put_sql(l, " WHERE h.id = h.chain_id");
	} else {
		put_columns(l, l->chains ? l->d->chains : l->d->jobs);
	}
	put_conditions(l);
	if (!by_order) {
		put_range(l, l->chains ? "h.id" : "j.id");
	} else {
		/* In the order in which the job's blockers were given. */
		if (f->after != 0) {
			(void)sl__buf_printf(&l->sql,
					     " AND b.ord > (SELECT max(a.ord) FROM %s a WHERE a.job_id = b.job_id"
					     " AND a.chain_id = ",
					     l->d->blocker);
			put_int(l, "", f->after);
			put_sql(l, ")");
		}
		put_sql(l, " ORDER BY b.ord");
	}
	put_int(l, " LIMIT ", l->limit - l->n_visited);
	return run_query(l, visit_row, err);
}

int sl__list(const struct sl__list_db *db, const struct sl_job_filter *filter, const struct sl__list_to *to,
	     struct sl_err *err)
{
	static const struct sl_job_filter all = {0};
	const struct sl_job_filter *f = filter != NULL ? filter : &all;
	struct list l = {
		.db = db, .d = db->dialect, .filter = f, .to = to, .chains = to->chain != NULL, .after = f->after};
	int rc;
	l.mask = HAS(f->statuses, SL_JOB_PENDING) ? f->statuses & ~STATES : f->statuses;
	l.limit = f->limit == 0 ? LIMIT_DEFAULT : SL_MIN(f->limit, LIMIT_MAX);
	sl__buf_init(&l.sql, db->env);
	sl__buf_init(&l.values, db->env);
	sl__buf_init(&l.found, db->env);
	sl__buf_init(&l.ids, db->env);
	/* Without a bound of what may be scanned the page is filled, wherever the rest of it is. */
	do {
		rc = find_candidates(&l, err);
		if (rc == 0)
			rc = visit_rows(&l, err);
		bool stopped = rc != 0 || l.n_visited == l.limit;
		l.after = stopped && l.last != 0 ? l.last : l.floor;
	} while (rc == 0 && f->scan == 0 && l.after != 0 && l.n_visited < l.limit);
	if (f->reached != NULL)
		*f->reached = l.after;
	sl__buf_fini(&l.ids);
	sl__buf_fini(&l.found);
	sl__buf_fini(&l.values);
	sl__buf_fini(&l.sql);
	return rc;
}
