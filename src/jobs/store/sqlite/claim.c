/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claiming: what is due moves to the ready queue, then the first jobs of the wanted types leave it and get one lease.
 *
 * Each type is asked for by itself, in the order of its index, and the answers are merged by (priority, id): so what a
 * claim takes is the head of each type's queue, and one DELETE per type removes it. The jobs' rows are only read. A job
 * that was lost before (solo) is claimed when its turn comes, alone, and only for a free slot.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "jobs/store/sqlite/store.h"

#define PROMOTE_MAX 1000 /* per type and claim */

struct candidate {
	int64_t priority;
	uint64_t id;
	size_t type; /* of the request */
	bool tried;
};

struct claiming {
	struct sq_op *op;
	const struct sl_claim_request *request;
	sl_claimed_fn *claimed;
	void *claimed_ctx;
	bool *paused; /* per type of the request */
	struct candidate *candidates;
	size_t n, cap;
	bool solo;           /* the one candidate is a flagged job */
	bool alone;          /* a flagged job was left, for lack of a free slot */
	bool ask_again;      /* what was found says nothing about what there is */
	struct sl__buf jobs; /* {"id":fence,… */
	struct sl__buf types;
};

/* Move what is due of one type, at most PROMOTE_MAX. */
static int promote(struct sq_op *op, const char *type)
{
	sqlite3_stmt *s;
	int64_t due_us = 0, n = 0, tried = 0;
	uint64_t id = 0;
	int rc = sl__sqlite_bind(op->c, SQ_SCHED_DUE, SQ_VALUES(SQ_TEXT(type), SQ_INT(op->now_us), SQ_INT(PROMOTE_MAX)),
				 &s, op->err);
	while (rc == 0 && (rc = sl__sqlite_step(op->c, s, op->err)) > 0) {
		due_us = sl__sqlite_i64(s, 0);
		id = sl__sqlite_u64(s, 1);
		n++;
		tried += sl__sqlite_i64(s, 4);
		rc = SQ_RUN(op, SQ_READY_PUT, SQ_TEXT(type), SQ_INT(sl__sqlite_i64(s, 3)), SQ_INT(sl__sqlite_i64(s, 2)),
			    SQ_INT(id), SQ_INT(sl__sqlite_i64(s, 4)));
	}
	(void)sqlite3_reset(s);
	if (rc != 0 || n == 0)
		return rc;
	rc = SQ_RUN(op, SQ_SCHED_TAKE_UPTO, SQ_TEXT(type), SQ_INT(due_us), SQ_INT(id));
	if (rc == 0)
		rc = sl__sq_count_queued(op, type, SQ_N_SCHED, -n, -tried);
	if (rc != 0)
		return rc;
	return sl__sq_count_queued(op, type, SQ_N_READY, n, tried);
}

static struct candidate candidate_of(size_t type, sqlite3_stmt *s)
{
	return (struct candidate){.priority = sl__sqlite_i64(s, 0),
				  .id = sl__sqlite_u64(s, 1),
				  .type = type,
				  .tried = sqlite3_column_int(s, 2) != 0};
}

static int add_candidate(struct claiming *x, const struct candidate *c)
{
	struct candidate *all = sl__grow(&x->op->store->env, x->candidates, x->n, &x->cap, sizeof(*all));
	if (all == NULL)
		return sl__no_memory(x->op->err, "a claim");
	x->candidates = all;
	all[x->n++] = *c;
	return 0;
}

static bool comes_before(const struct candidate *a, const struct candidate *b)
{
	return a->priority != b->priority ? a->priority < b->priority : a->id < b->id;
}

static int compare_candidates(const void *a, const void *b)
{
	return comes_before(a, b) ? -1 : comes_before(b, a);
}

/* The first flagged job of all types, when it comes before all that find_ready has found: then it is the claim. */
static int find_solo(struct claiming *x)
{
	struct candidate first = {.type = SIZE_MAX};
	for (size_t i = 0; i < x->request->n_types; i++) {
		sqlite3_stmt *s;
		if (x->paused[i] || x->request->types[i].limit == 0)
			continue;
		int rc = SQ_ROW(x->op, SQ_READY_SOLO, &s, SQ_TEXT(x->request->types[i].type));
		if (rc < 0)
			return rc;
		struct candidate c = rc > 0 ? candidate_of(i, s) : (struct candidate){.type = SIZE_MAX};
		(void)sqlite3_reset(s);
		if (c.type == SIZE_MAX)
			continue;
		if (x->request->free == 0 || x->request->types[i].free == 0)
			x->alone = true;
		else if (first.type == SIZE_MAX || comes_before(&c, &first))
			first = c;
	}
	if (first.type == SIZE_MAX || (x->n > 0 && comes_before(&x->candidates[0], &first)))
		return 0;
	x->n = 0;
	x->solo = true;
	return add_candidate(x, &first);
}

static int find_ready(struct claiming *x)
{
	const struct sl_claim_request *q = x->request;
	for (size_t i = 0; i < q->n_types; i++) {
		sqlite3_stmt *s;
		uint32_t limit = SL_MIN(q->types[i].limit, q->limit);
		if (x->paused[i] || limit == 0)
			continue;
		int rc = sl__sqlite_bind(x->op->c, SQ_READY_LIST, SQ_VALUES(SQ_TEXT(q->types[i].type), SQ_INT(limit)),
					 &s, x->op->err);
		while (rc == 0 && (rc = sl__sqlite_step(x->op->c, s, x->op->err)) > 0) {
			struct candidate c = candidate_of(i, s);
			rc = add_candidate(x, &c);
		}
		(void)sqlite3_reset(s);
		if (rc != 0)
			return rc;
	}
	if (q->n_types > 1 && x->n > 1)
		qsort(x->candidates, x->n, sizeof(*x->candidates), compare_candidates);
	x->n = SL_MIN(x->n, q->limit);
	return 0;
}

/* What was taken of a type is the head of its queue: everything up to its last candidate. */
static int take_of_type(struct claiming *x, size_t type)
{
	const char *name = x->request->types[type].type;
	const struct candidate *last = NULL;
	int64_t n = 0, tried = 0;
	for (size_t i = 0; i < x->n; i++) {
		if (x->candidates[i].type != type)
			continue;
		last = &x->candidates[i];
		n++;
		tried += last->tried;
	}
	if (last == NULL)
		return 0;
	if (sl__buf_printf(&x->types, "%s\n", name) != 0)
		return sl__no_memory(x->op->err, "a claim");
	int rc = sl__sq_count_queued(x->op, name, SQ_N_READY, -n, -tried);
	if (rc != 0)
		return rc;
	if (x->solo)
		return SQ_RUN(x->op, SQ_READY_TAKE, SQ_TEXT(name), SQ_INT(1), SQ_INT(last->priority), SQ_INT(last->id));
	return SQ_RUN(x->op, SQ_READY_TAKE_UPTO, SQ_TEXT(name), SQ_INT(last->priority), SQ_INT(last->id));
}

/* The job as the claim gives it. *given 0: a row of the queue without a job, which is dropped with the others. */
static int give_job(struct claiming *x, uint64_t id, bool *given)
{
	sqlite3_stmt *s;
	int rc = SQ_ROW(x->op, SQ_CLAIM_GET, &s, SQ_INT(id));
	*given = rc > 0;
	if (rc <= 0)
		return rc;
	struct sl_claimed_job job = {
		.id = id,
		.chain_id = sl__sqlite_u64(s, 0),
		.fence = sl__sqlite_u64(s, 1),
		.attempt = sqlite3_column_int(s, 1),
		.type = sl__sqlite_text(s, 9),
		.input = sl__sqlite_text(s, 2),
		.traceparent = sl__sqlite_text(s, 3),
		.charged = sqlite3_column_int(s, 4),
		.priority = sqlite3_column_int(s, 5),
		.has_blockers = (sqlite3_column_int(s, 6) & SQ_HAS_BLOCKERS) != 0,
		.created_ms = sl__sqlite_i64(s, 7) / 1000,
		.scheduled_ms = sl__sqlite_i64(s, 8) / 1000,
	};
	rc = sl__buf_printf(&x->jobs, "%c\"%" PRIu64 "\":%" PRIu64, x->jobs.len == 0 ? '{' : ',', job.id, job.fence);
	if (rc == 0)
		rc = x->claimed(&job, x->claimed_ctx);
	else
		rc = sl__no_memory(x->op->err, "a claim");
	(void)sqlite3_reset(s);
	return rc;
}

static int take_found(struct claiming *x)
{
	const struct sl_claim_request *q = x->request;
	bool started = x->n <= q->free; /* will every job of the claim start immediately? */
	for (size_t i = 0; started && i < q->n_types; i++) {
		uint32_t of_type = 0;
		for (size_t j = 0; j < x->n; j++)
			of_type += x->candidates[j].type == i;
		started = of_type <= q->types[i].free;
	}
	size_t n = 0;
	int rc = sl__buf_str_append(&x->types, "\n") != 0 ? sl__no_memory(x->op->err, "a claim") : 0;
	for (size_t i = 0; rc == 0 && i < q->n_types; i++)
		rc = take_of_type(x, i);
	for (size_t i = 0; rc == 0 && i < x->n; i++) {
		bool given;
		rc = give_job(x, x->candidates[i].id, &given);
		n += rc == 0 && given;
	}
	x->ask_again = n < x->n; /* rows without jobs were in front of others */
	x->n = n;
	if (rc != 0 || n == 0)
		return rc;
	if (sl__buf_str_append(&x->jobs, "}") != 0)
		return sl__no_memory(x->op->err, "a claim");
	return SQ_RUN(x->op, SQ_LEASE_PUT, SQ_BLOB(q->claim.bytes, sizeof(q->claim.bytes)), SQ_TEXT(q->worker),
		      SQ_INT(x->op->now_us), SQ_INT(x->op->now_us + sq_us(q->lease_ms)), SQ_INT(started),
		      SQ_TEXT(sl__buf_str(&x->types)), SQ_TEXT_N(x->jobs.data, x->jobs.len));
}

/* The claim was made before, and its answer was lost: what it still holds is given again. */
static int take_again(struct claiming *x)
{
	const struct sl_claim_request *q = x->request;
	struct sq_lease lease;
	sqlite3_stmt *s;
	int rc = SQ_ROW(x->op, SQ_LEASE_BY_CLAIM, &s, SQ_BLOB(q->claim.bytes, sizeof(q->claim.bytes)));
	x->ask_again = true;
	if (rc <= 0)
		return rc;
	int64_t rowid = sl__sqlite_i64(s, 0);
	(void)sqlite3_reset(s);
	sl__buf_init(&lease.jobs, &x->op->store->env);
	sl__buf_init(&lease.worker, &x->op->store->env);
	rc = sl__sq_lease_read(x->op, rowid, &lease);
	for (size_t at = 0; rc == 0 && at < lease.jobs.len; at += sizeof(struct sq_leased)) {
		struct sq_leased job;
		struct sq_row row;
		bool given = false;
		memcpy(&job, lease.jobs.data + at, sizeof(job));
		rc = sl__sq_row_get(x->op, job.id, &row);
		if (rc > 0)
			rc = sl__sq_lost(&row, job.fence) == SL_LOST_NOT ? give_job(x, job.id, &given) : 0;
		x->n += rc == 0 && given;
	}
	sl__buf_fini(&lease.jobs);
	sl__buf_fini(&lease.worker);
	if (rc != 0)
		return rc;
	return SQ_RUN(x->op, SQ_LEASE_RENEW, SQ_BLOB(q->claim.bytes, sizeof(q->claim.bytes)),
		      SQ_INT(x->op->now_us + sq_us(q->lease_ms)), SQ_INT(0));
}

/* ---- how long to sleep ---- */

static int next_due(struct claiming *x, int64_t *out)
{
	for (size_t i = 0; i < x->request->n_types; i++) {
		sqlite3_stmt *s;
		const char *type = x->request->types[i].type;
		if (x->paused[i])
			continue;
		int rc = SQ_ROW(x->op, SQ_NEXT_DUE, &s, SQ_TEXT(type));
		if (rc < 0)
			return rc;
		int64_t ms = rc > 0 ? sq_until_ms(x->op->now_us, sl__sqlite_i64(s, 0)) : -1;
		(void)sqlite3_reset(s);
		/* A flagged job was taken alone: the others of the queue are due. */
		if (x->solo) {
			rc = SQ_ROW(x->op, SQ_READY_ANY, &s, SQ_TEXT(type));
			if (rc < 0)
				return rc;
			ms = rc > 0 ? 0 : ms;
			(void)sqlite3_reset(s);
		}
		if (ms >= 0 && (*out < 0 || ms < *out))
			*out = ms;
	}
	return 0;
}

/* When the first lease with one of the types ends. */
static int claim_expiry(struct claiming *x, int64_t *out)
{
	sqlite3_stmt *s;
	char line[SQ_TYPE_BYTES + 2];
	bool found = false;
	int rc = sl__sqlite_bind(x->op->c, SQ_NEXT_EXPIRY, NULL, 0, &s, x->op->err);
	while (rc == 0 && !found && (rc = sl__sqlite_step(x->op->c, s, x->op->err)) > 0) {
		rc = 0;
		for (size_t i = 0; !found && i < x->request->n_types; i++) {
			(void)snprintf(line, sizeof(line), "\n%s\n", x->request->types[i].type);
			found = strstr(sl__sqlite_text(s, 1), line) != NULL;
		}
		if (found)
			*out = sq_until_ms(x->op->now_us, sl__sqlite_i64(s, 0));
	}
	(void)sqlite3_reset(s);
	return rc;
}

static int fill_reply(struct claiming *x, struct sl_claim_reply *reply)
{
	*reply = (struct sl_claim_reply){.n = (uint32_t)x->n,
					 .now_ms = x->op->now_us / 1000,
					 .next_due_in_ms = -1,
					 .next_expiry_in_ms = -1,
					 .alone = x->alone};
	if (x->n >= x->request->limit)
		return 0;
	int rc = next_due(x, &reply->next_due_in_ms);
	if (x->ask_again)
		reply->next_due_in_ms = 0;
	if (rc != 0)
		return rc;
	return claim_expiry(x, &reply->next_expiry_in_ms);
}

/* Promote what is due, then take the first. */
static int take_next(struct claiming *x)
{
	const struct sl_claim_request *q = x->request;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < q->n_types; i++)
		rc = promote(x->op, q->types[i].type);
	if (rc == 0)
		rc = find_ready(x);
	if (rc == 0 && q->limit > 0)
		rc = find_solo(x);
	if (rc == 0 && x->n > 0)
		rc = take_found(x);
	return rc;
}

static int claim(struct claiming *x, struct sl_claim_reply *reply)
{
	const struct sl_claim_request *q = x->request;
	x->paused = sl__calloc(&x->op->store->env, SL_MAX(q->n_types, 1), sizeof(*x->paused));
	if (x->paused == NULL)
		return sl__no_memory(x->op->err, "a claim");
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < q->n_types; i++) {
		sqlite3_stmt *s;
		rc = SQ_ROW(x->op, SQ_PAUSED, &s, SQ_TEXT(q->types[i].type));
		x->paused[i] = rc > 0;
		(void)sqlite3_reset(s);
		rc = SL_MIN(rc, 0);
	}
	if (rc == 0)
		rc = q->again ? take_again(x) : take_next(x);
	if (rc != 0)
		return rc;
	return fill_reply(x, reply);
}

int sl__sq_claim(struct sq_op *op, const struct sl_exchange *exchange)
{
	struct claiming x = {.op = op,
			     .request = exchange->request,
			     .claimed = exchange->claimed,
			     .claimed_ctx = exchange->claimed_ctx};
	sl__buf_init(&x.jobs, &op->store->env);
	sl__buf_init(&x.types, &op->store->env);
	int rc = claim(&x, exchange->reply);
	sl__buf_fini(&x.jobs);
	sl__buf_fini(&x.types);
	sl__free(&op->store->env, x.candidates);
	sl__free(&op->store->env, x.paused);
	return rc;
}
