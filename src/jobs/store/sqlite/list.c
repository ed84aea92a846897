/* SPDX-License-Identifier: Apache-2.0 */
/* Lists (jobs/store/list.h) in SQLite's dialect, in one read transaction, so that all queries of a page see one
 * snapshot. */
#include <inttypes.h>

#include "jobs/store/list.h"
#include "jobs/store/sqlite/store.h"

#define CHAINS "SELECT " SQ_CHAIN_COLUMNS("[h.input]", "[j.output]", "r.id") SQ_CHAIN_FROM

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
	.created = "created_us",
	.ended = "ended_us",
	.find = "instr",
	.length = "length(CAST(",
	.length_end = " AS BLOB))",
	.error_line = SQ_ERROR_LINE,
	.status = "iif(r.id IS NULL,j.status,3)",
	.leases = SQ_LEASED,
	.jobs = "SELECT " SQ_JOB_COLUMNS("[j.input]", "[j.output]", "[j.progress]") SQ_JOB_FROM " WHERE true",
	.chains = CHAINS " WHERE h.id=h.chain_id",
	.blocked_chains = CHAINS " JOIN sluice_blocker b ON b.chain_id=h.id AND b.job_id=",
	.whole = {[SL_JOB_BLOCKED] = "SELECT id FROM sluice_job WHERE status=1",
		  [SL_JOB_PENDING] = "SELECT id FROM sluice_ready UNION ALL SELECT id FROM sluice_sched",
		  [SL_JOB_RUNNING] = "SELECT id FROM r"},
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
		  [SL_JOB_PENDING] = {{.group = "g",
				       .from = "FROM sluice_ready q WHERE q.type=g.type AND q.solo=g.solo"
					       " AND q.priority=g.priority",
				       .id = "q.id"},
				      {.group = "k",
				       .from = "FROM sluice_sched q INDEXED BY sluice_sched_oldest WHERE q.type=k.type",
				       .id = "q.id"}}},
	/* The condition of the partial index, as it is there. */
	.stopped = "FROM sluice_job x INDEXED BY sluice_job_stopped WHERE x.status>=5 AND x.status=",
	.stopped_chains = "FROM sluice_job x INDEXED BY sluice_job_stopped_chain WHERE x.status>=5 AND x.status=",
	.continued = "FROM sluice_job c INDEXED BY sluice_job_chain WHERE c.chain_id<>c.id",
};
_Static_assert(SL__LIST_GROUPS_MAX == 1000, "as the groups stop");

struct list_call {
	struct sl__sqlite *c;
	sl_job_fn *job_fn; /* or */
	sl_chain_fn *chain_fn;
	void *ctx;
	struct sl__buf values; /* struct sl__sqlite_value, of the query that runs */
	struct sl__buf ids;    /* SL__LIST_IDS as JSON, for it */
};

static int prepare_list_query(struct list_call *l, const struct sl__list_query *q, sqlite3_stmt **out,
			      struct sl_err *err)
{
	const struct sl__list_value *v = sl__list_values(q);
	sl__buf_clear(&l->values);
	sl__buf_clear(&l->ids);
	for (size_t i = 0; i < q->n_values; i++) {
		struct sl__sqlite_value value = SQ_INT(v[i].i);
		if (v[i].kind == SL__LIST_TEXT) {
			value = SQ_TEXT(v[i].text);
		} else if (v[i].kind == SL__LIST_TIME) {
			value = SQ_INT(sq_us(v[i].i));
		} else if (v[i].kind == SL__LIST_IDS) {
			for (size_t at = 0; at < v[i].n_ids; at++)
				(void)sl__buf_printf(&l->ids, "%c%" PRIu64, at == 0 ? '[' : ',', v[i].ids[at]);
			(void)sl__buf_str_append(&l->ids, v[i].n_ids == 0 ? "[]" : "]");
			value = SQ_TEXT(sl__buf_str(&l->ids));
		}
		(void)sl__buf_append(&l->values, &value, sizeof(value));
	}
	if (l->values.failed != 0 || l->ids.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "no memory for a list");
	return sl__sqlite_prepare(l->c, sl__buf_str(&q->sql),
				  (const struct sl__sqlite_value *)(const void *)l->values.data, q->n_values, out, err);
}

static int find_ids(void *ctx, const struct sl__list_query *q, struct sl__buf *out, struct sl_err *err)
{
	struct list_call *l = ctx;
	sqlite3_stmt *s = NULL;
	int rc = prepare_list_query(l, q, &s, err);
	while (rc == 0 && (rc = sl__sqlite_step(l->c, s, err)) > 0) {
		const struct sl__list_found row = {.source = sl__sqlite_u64(s, 0), .id = sl__sqlite_u64(s, 1)};
		rc = 0;
		(void)sl__buf_append(out, &row, sizeof(row)); /* sl__list checks out->failed */
	}
	(void)sqlite3_finalize(s);
	return rc;
}

static int visit_rows(void *ctx, const struct sl__list_query *q, struct sl__list_page *page, struct sl_err *err)
{
	struct list_call *l = ctx;
	sqlite3_stmt *s = NULL;
	int rc = prepare_list_query(l, q, &s, err);
	while (rc == 0 && (rc = sl__sqlite_step(l->c, s, err)) > 0) {
		page->n++;
		page->last = sl__sqlite_u64(s, 0);
		if (l->chain_fn != NULL) {
			struct sl_chain chain;
			sl__sq_read_chain(s, &chain);
			rc = l->chain_fn(&chain, l->ctx);
		} else {
			struct sl_job job;
			sl__sq_read_job(s, &job);
			rc = l->job_fn(&job, l->ctx);
		}
	}
	(void)sqlite3_finalize(s);
	return rc;
}

static int oldest_pending(void *ctx, uint64_t *out, struct sl_err *err)
{
	struct list_call *l = ctx;
	return sl__sq_oldest_pending(l->c, out, err);
}

static int list_rows(struct sq_store *store, const struct sl_job_filter *filter, struct list_call *l,
		     struct sl_err *err)
{
	const struct sl__list_db db = {.env = &store->env,
				       .dialect = &dialect,
				       .find = find_ids,
				       .visit = visit_rows,
				       .oldest_pending = oldest_pending,
				       .ctx = l};
	int rc = sl__sq_read_begin(store, NULL, &l->c, err);
	if (rc != 0)
		return rc;
	sl__buf_init(&l->values, &store->env);
	sl__buf_init(&l->ids, &store->env);
	rc = sl__sqlite_exec(l->c, "BEGIN", err);
	if (rc == 0)
		rc = sl__list(&db, filter, l->chain_fn != NULL, err);
	sl__sqlite_rollback(l->c);
	sl__buf_fini(&l->ids);
	sl__buf_fini(&l->values);
	sl__sq_read_end(store, NULL, l->c);
	return rc;
}

int sl__sq_list_jobs(void *store, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	return list_rows(store, filter, &(struct list_call){.job_fn = fn, .ctx = ctx}, err);
}

int sl__sq_list_chains(void *store, const struct sl_job_filter *filter, sl_chain_fn *fn, void *ctx, struct sl_err *err)
{
	return list_rows(store, filter, &(struct list_call){.chain_fn = fn, .ctx = ctx}, err);
}
