/* SPDX-License-Identifier: Apache-2.0 */
/* Counting, from sluice_count and the leases: never by reading jobs. Rows are counted only of what has become due since
 * its type was last claimed. */
#include "jobs/store/sqlite/store.h"

/* Ids in sluice_ready are in order per priority. With more priorities than this the whole queue is read once. */
#define PRIORITIES_MAX 1000

/* A row of SQ_COUNTS. */
struct type_count {
	const char *type;
	int64_t n[SQ_KINDS], running, sched_due, retrying;
	uint64_t oldest_came;                                  /* id of what is due and was not moved, 0: none */
	uint64_t oldest_blocked, oldest_sched, oldest_running; /* ids, 0: none */
	bool paused;
};

static void read_type(sqlite3_stmt *s, struct type_count *t)
{
	t->type = sl__sqlite_text(s, 0);
	for (int i = 0; i < SQ_KINDS; i++)
		t->n[i] = sl__sqlite_i64(s, 1 + i);
	t->running = sl__sqlite_i64(s, SQ_KINDS + 1);
	t->paused = sqlite3_column_int(s, SQ_KINDS + 2) != 0;
	t->sched_due = sl__sqlite_i64(s, SQ_KINDS + 3);
	t->retrying = sl__sqlite_i64(s, SQ_KINDS + 4);
	t->oldest_came = sl__sqlite_u64(s, SQ_KINDS + 5);
	t->oldest_blocked = sl__sqlite_u64(s, SQ_KINDS + 6);
	t->oldest_sched = sl__sqlite_u64(s, SQ_KINDS + 7);
	t->oldest_running = sl__sqlite_u64(s, SQ_KINDS + 8);
}

struct counting {
	struct sl__sqlite *c;
	sl_job_count_fn *fn;
	void *ctx;
	struct sl_err *err;
};

/* The number that a statement answers; 0 for none. */
static int count_number(struct sl__sqlite *c, enum sq_statement id, struct sl__sqlite_value v, int64_t *out,
			struct sl_err *err)
{
	sqlite3_stmt *s;
	int rc = sl__sqlite_row(c, id, &v, 1, &s, err);
	*out = rc > 0 ? sl__sqlite_i64(s, 0) : 0;
	(void)sqlite3_reset(s);
	return SL_MIN(rc, 0);
}

/* The smallest id in the ready queue of a type: the first of each priority is read. */
static int oldest_ready(struct sl__sqlite *c, const char *type, uint64_t *out, struct sl_err *err)
{
	int64_t solo = -1, priority = 0, least = 0;
	int rc = 1, n = 0;
	for (*out = 0; rc > 0 && n <= PRIORITIES_MAX; n++) {
		sqlite3_stmt *s;
		rc = sl__sqlite_row(c, SQ_READY_NEXT, SQ_VALUES(SQ_TEXT(type), SQ_INT(solo), SQ_INT(priority)), &s,
				    err);
		if (rc > 0) {
			uint64_t id = sl__sqlite_u64(s, 2);
			solo = sl__sqlite_i64(s, 0);
			priority = sl__sqlite_i64(s, 1);
			*out = *out == 0 ? id : SL_MIN(*out, id);
		}
		(void)sqlite3_reset(s);
	}
	if (rc <= 0)
		return rc;
	rc = count_number(c, SQ_READY_MIN, SQ_TEXT(type), &least, err);
	*out = (uint64_t)least;
	return rc;
}

static uint64_t older(uint64_t a, uint64_t b)
{
	return a == 0 || b == 0 ? a | b : SL_MIN(a, b);
}

int sl__sq_oldest_pending(struct sl__sqlite *c, uint64_t *out, struct sl_err *err)
{
	sqlite3_stmt *s;
	*out = 0;
	int rc = sl__sqlite_bind(c, SQ_PENDING_TYPES, NULL, 0, &s, err);
	while (rc == 0 && (rc = sl__sqlite_step(c, s, err)) > 0) {
		uint64_t ready = 0;
		*out = older(*out, sl__sqlite_u64(s, 2));
		rc = sl__sqlite_i64(s, 1) > 0 ? oldest_ready(c, sl__sqlite_text(s, 0), &ready, err) : 0;
		*out = older(*out, ready);
	}
	(void)sqlite3_reset(s);
	return rc;
}

static int report_count(struct counting *x, const struct type_count *t, struct sl_job_count count, uint64_t oldest)
{
	int64_t created_us = 0;
	int rc = oldest != 0 ? count_number(x->c, SQ_CREATED, SQ_INT(oldest), &created_us, x->err) : 0;
	count.type = t->type;
	count.paused = t->paused;
	count.oldest_ms = created_us / 1000;
	if (rc != 0)
		return rc;
	return x->fn(&count, x->ctx);
}

static int report_pending_count(struct counting *x, const struct type_count *t)
{
	int64_t n = t->n[SQ_N_READY] + t->n[SQ_N_SCHED];
	uint64_t oldest = 0;
	int64_t due_us = 0;
	int rc = t->n[SQ_N_READY] > 0 ? oldest_ready(x->c, t->type, &oldest, x->err) : 0;
	uint64_t due = older(oldest, t->oldest_came);
	if (rc == 0 && due != 0)
		rc = count_number(x->c, SQ_DUE_SINCE, SQ_INT(due), &due_us, x->err);
	const struct sl_job_count count = {.status = SL_JOB_PENDING,
					   .count = (uint64_t)n,
					   .oldest_due_ms = due_us / 1000,
					   .due = (uint64_t)(t->n[SQ_N_READY] + t->sched_due),
					   .retrying = (uint64_t)t->retrying};
	if (rc != 0)
		return rc;
	return report_count(x, t, count, older(oldest, t->oldest_sched));
}

static bool has_jobs(const struct type_count *t)
{
	bool any = t->running != 0;
	for (size_t i = 0; i < SQ_KINDS; i++)
		any = any || t->n[i] != 0;
	return any;
}

/* A line per status that jobs are in, in the order of statuses. A paused type without any is reported as pending, with 0.
 */
static int report_type_counts(struct counting *x, const struct type_count *t)
{
	int rc = 0;
	if (t->n[SQ_N_BLOCKED] != 0)
		rc = report_count(
			x, t, (struct sl_job_count){.status = SL_JOB_BLOCKED, .count = (uint64_t)t->n[SQ_N_BLOCKED]},
			t->oldest_blocked);
	if (rc == 0 && (t->n[SQ_N_READY] + t->n[SQ_N_SCHED] != 0 || (t->paused && !has_jobs(t))))
		rc = report_pending_count(x, t);
	if (rc == 0 && t->running != 0)
		rc = report_count(x, t, (struct sl_job_count){.status = SL_JOB_RUNNING, .count = (uint64_t)t->running},
				  t->oldest_running);
	for (enum sl_job_status status = SL_JOB_COMPLETED; rc == 0 && status <= SL_JOB_CANCELLED; status++) {
		uint64_t n = (uint64_t)t->n[sl__sq_kind(status)];
		if (n != 0)
			rc = report_count(x, t, (struct sl_job_count){.status = status, .count = n}, 0);
	}
	return rc;
}

int sl__sq_counts(void *store, sl_job_count_fn *fn, void *ctx, struct sl_err *err)
{
	struct counting x = {.fn = fn, .ctx = ctx, .err = err};
	sqlite3_stmt *s = NULL;
	int rc = sl__sq_read_begin(store, NULL, &x.c, err);
	if (rc != 0)
		return rc;
	/* One snapshot for the counts and the oldest. */
	rc = sl__sqlite_exec(x.c, "BEGIN", err);
	if (rc == 0)
		rc = sl__sqlite_bind(x.c, SQ_COUNTS, SQ_VALUES(SQ_INT(sl__sq_now_us(store))), &s, err);
	while (rc == 0 && (rc = sl__sqlite_step(x.c, s, err)) > 0) {
		struct type_count t;
		read_type(s, &t);
		rc = report_type_counts(&x, &t);
	}
	(void)sqlite3_reset(s);
	sl__sqlite_rollback(x.c);
	sl__sq_read_end(store, NULL, x.c);
	return rc;
}
