/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settling a batch: in order of ids (P2 in sql.c), in one statement for completions of single-job chains, in another
 * for everything else, with the rows of chains and blockers locked before it.
 */
#include <stdlib.h>

#include "jobs/store/ends.h"
#include "jobs/store/postgres/store.h"
#include "jobs/store/refusals.h"

/* A parameter of the server may have 1 GB; a batch beyond this is better sent job by job. */
#define BATCH_BYTES_MAX ((size_t)256 << 20)

static int by_id(const void *a, const void *b, void *ctx)
{
	const struct sl_settle *settles = ctx;
	size_t x = *(const size_t *)a, y = *(const size_t *)b;
	if (settles[x].id != settles[y].id)
		return settles[x].id < settles[y].id ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* Do all of them complete chains of one job, for one worker? */
static bool is_fast(const struct sl_settle *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i].kind != SL_SETTLE_COMPLETE || s[i].id != s[i].chain_id || s[i].progress != NULL ||
		    (s[i].worker != s[0].worker &&
		     (s[i].worker == NULL || s[0].worker == NULL || strcmp(s[i].worker, s[0].worker) != 0)))
			return false;
	return true;
}

/* In order of ids; s names the settle at hand in `add`. */
#define EACH(s, st, p, oid, add)                                                                                       \
	do {                                                                                                           \
		sl__pg_add_array(p, oid, (st)->n);                                                                     \
		for (size_t each = 0; each < (st)->n; each++) {                                                        \
			const struct sl_settle *s = &(st)->settles[(st)->order[each]];                                 \
			add;                                                                                           \
		}                                                                                                      \
	} while (0)

static void add_hashes(struct sl__pg_params *p, const struct pg_settling *st)
{
	sl__pg_add_array(p, SL__PG_INT8, st->n);
	for (size_t i = 0; i < st->n; i++)
		sl__pg_el_int8(p, st->claims[st->order[i]]);
}

static void add_claims(struct sl__pg_params *p, const struct pg_settling *st)
{
	size_t n = 0;
	for (size_t i = 0; i < st->n; i++)
		n += st->settles[i].last_of_claim;
	sl__pg_add_array(p, SL__PG_UUID, n);
	for (size_t i = 0; i < st->n; i++)
		if (st->settles[i].last_of_claim)
			sl__pg_el_uuid(p, st->settles[i].claim.bytes);
}

static int send_fast(struct pg_call *call, const struct pg_settling *st)
{
	struct sl__pg_params *p = &call->params;
	EACH(s, st, p, SL__PG_INT8, sl__pg_el_int8(p, (int64_t)s->id));
	EACH(s, st, p, SL__PG_INT8, sl__pg_el_int8(p, (int64_t)s->fence));
	add_hashes(p, st);
	EACH(s, st, p, SL__PG_TEXT, sl__pg_el_text(p, sl__settle_output(s)));
	EACH(s, st, p, SL__PG_TIMESTAMPTZ, sl__pg_el_time(p, s->started_ms));
	sl__pg_add_text(p, st->settles[0].worker);
	add_claims(p, st);
	return sl__pg_call_send(call, ST_SETTLE_FAST);
}

/* ---- the general statement ---- */

static const struct sl_new_job *next_of(const struct sl_settle *s)
{
	static const struct sl_new_job none;
	return s->kind == SL_SETTLE_CONTINUE ? s->next : &none;
}

static size_t count_edges(const struct pg_settling *st)
{
	size_t n = 0;
	for (size_t i = 0; i < st->n; i++)
		n += next_of(&st->settles[i])->n_blockers;
	return n;
}

#define EACH_EDGE(each, job, edge, st, p, oid, add)                                                                    \
	do {                                                                                                           \
		sl__pg_add_array(p, oid, count_edges(st));                                                             \
		for (size_t each = 0; each < (st)->n; each++) {                                                        \
			const struct sl_new_job *job = next_of(&(st)->settles[(st)->order[each]]);                     \
			for (size_t edge = 0; edge < job->n_blockers; edge++)                                          \
				add;                                                                                   \
		}                                                                                                      \
	} while (0)

static int send_general(struct pg_call *call, const struct pg_settling *st)
{
	struct sl__pg_params *p = &call->params;
	EACH(s, st, p, SL__PG_INT8, sl__pg_el_int8(p, (int64_t)s->id));
	EACH(s, st, p, SL__PG_INT8, sl__pg_el_int8(p, (int64_t)s->fence));
	EACH(s, st, p, SL__PG_INT4, sl__pg_el_int4(p, (int32_t)s->kind));
	EACH(s, st, p, SL__PG_INT4, sl__pg_el_int4(p, sl__settle_is_charged(s)));
	EACH(s, st, p, SL__PG_TEXT, sl__pg_el_text(p, sl__settle_output(s)));
	EACH(s, st, p, SL__PG_TEXT, sl__pg_el_text(p, s->error));
	EACH(s, st, p, SL__PG_TEXT, sl__pg_el_text(p, s->progress));
	EACH(s, st, p, SL__PG_TIMESTAMPTZ, sl__pg_el_time(p, s->started_ms));
	EACH(s, st, p, SL__PG_TIMESTAMPTZ, sl__pg_el_time(p, s->at_ms));
	EACH(s, st, p, SL__PG_INTERVAL, sl__pg_el_interval(p, s->delay_ms));
	EACH(s, st, p, SL__PG_TEXT, sl__pg_el_text(p, s->worker));
	add_claims(p, st);
	/* Continuations. */
	EACH(s, st, p, SL__PG_TEXT, sl__pg_el_text(p, next_of(s)->type));
	EACH(s, st, p, SL__PG_TEXT, {
		const struct sl_new_job *job = next_of(s);
		const char *input = job->input != NULL ? job->input : "null";
		sl__pg_el_text(p, job->type != NULL ? input : NULL);
	});
	EACH(s, st, p, SL__PG_INT4, sl__pg_el_int4(p, next_of(s)->priority));
	EACH(s, st, p, SL__PG_TIMESTAMPTZ, sl__pg_el_time(p, next_of(s)->at_ms));
	EACH(s, st, p, SL__PG_INTERVAL, sl__pg_el_interval(p, next_of(s)->delay_ms));
	EACH(s, st, p, SL__PG_TEXT, sl__pg_el_text(p, next_of(s)->traceparent));
	/* Their blockers. */
	EACH_EDGE(each, job, edge, st, p, SL__PG_INT4, sl__pg_el_int4(p, (int32_t)each + 1));
	EACH_EDGE(each, job, edge, st, p, SL__PG_INT4, sl__pg_el_int4(p, (int32_t)edge));
	EACH_EDGE(each, job, edge, st, p, SL__PG_INT8, sl__pg_el_int8(p, (int64_t)job->blockers[edge]));
	add_hashes(p, st);
	return sl__pg_call_send(call, ST_SETTLE);
}

/* Lock the jobs in order, when rows besides their own are touched: heads of chains, blockers. */
static void send_locks(struct pg_call *call, const struct pg_settling *st)
{
	struct sl__pg_params *p = &call->params;
	bool others = false;
	for (size_t i = 0; i < st->n; i++)
		others |= st->settles[i].id != st->settles[i].chain_id || st->settles[i].kind == SL_SETTLE_CONTINUE;
	if (!others)
		return;
	sl__pg_add_array(p, SL__PG_INT8, st->n * 2 + count_edges(st));
	for (size_t i = 0; i < st->n; i++) {
		const struct sl_new_job *next = next_of(&st->settles[i]);
		sl__pg_el_int8(p, (int64_t)st->settles[i].id);
		sl__pg_el_int8(p, (int64_t)st->settles[i].chain_id);
		for (size_t edge = 0; edge < next->n_blockers; edge++)
			sl__pg_el_int8(p, (int64_t)next->blockers[edge]);
	}
	(void)sl__pg_call_send(call, ST_LOCK);
}

/* ---- both ---- */

static void send_unblock(struct pg_call *call, struct pg_settling *st)
{
	size_t n = 0;
	for (size_t i = 0; i < st->n; i++)
		n += st->settles[i].kind == SL_SETTLE_COMPLETE;
	st->at_unblock = -1;
	if (n == 0)
		return;
	sl__pg_add_array(&call->params, SL__PG_INT8, n);
	for (size_t i = 0; i < st->n; i++)
		if (st->settles[i].kind == SL_SETTLE_COMPLETE)
			sl__pg_el_int8(&call->params, (int64_t)st->settles[i].chain_id);
	st->at_unblock = sl__pg_call_send(call, ST_UNBLOCK);
}

/* Last of all, since it may wait for another continuation: who holds the lock must not wait for us. */
static void send_circle(struct pg_call *call, const struct pg_settling *st)
{
	struct sl__pg_params *p = &call->params;
	size_t n = 0, edges = count_edges(st);
	if (edges == 0)
		return;
	EACH_EDGE(each, job, edge, st, p, SL__PG_INT8, sl__pg_el_int8(p, (int64_t)job->blockers[edge]));
	(void)sl__pg_call_send(call, ST_CIRCLE_LOCK);
	for (size_t i = 0; i < st->n; i++)
		n += next_of(&st->settles[i])->n_blockers > 0;
	sl__pg_add_array(p, SL__PG_INT8, n);
	for (size_t i = 0; i < st->n; i++)
		if (next_of(&st->settles[i])->n_blockers > 0)
			sl__pg_el_int8(p, (int64_t)st->settles[i].chain_id);
	sl__pg_add_int8(p, (int64_t)edges + SL__CIRCLE_EDGES);
	(void)sl__pg_call_send(call, ST_CIRCLE);
}

static size_t text_bytes(const char *text)
{
	return text != NULL ? strlen(text) : 0;
}

static int check_settles(const struct pg_settling *st, struct sl_err *err)
{
	size_t bytes = 0;
	for (size_t i = 0; i < st->n; i++) {
		const struct sl_settle *s = &st->settles[i];
		if (s->kind < SL_SETTLE_COMPLETE || s->kind > SL_SETTLE_RELEASE ||
		    (s->kind == SL_SETTLE_CONTINUE && (s->next == NULL || s->next->type == NULL)))
			return sl_err_set(err, SL_EINVAL, "postgres: settle of job %llu: no kind, or no next job",
					  (unsigned long long)s->id);
		bytes += text_bytes(s->output) + text_bytes(s->error) + text_bytes(s->progress) +
			 text_bytes(next_of(s)->input);
	}
	if (bytes > BATCH_BYTES_MAX)
		return sl_err_set(err, SL_ETOOBIG, "postgres: outputs of %zu bytes in one exchange, at most %zu", bytes,
				  BATCH_BYTES_MAX);
	return 0;
}

int sl__pg_settle_send(struct pg_call *call, struct pg_settling *st, struct sl_err *err)
{
	int rc = check_settles(st, err);
	if (rc != 0)
		return rc;
	st->order = sl__calloc(&call->store->env, st->n, sizeof(*st->order));
	st->claims = sl__calloc(&call->store->env, st->n, sizeof(*st->claims));
	if (st->order == NULL || st->claims == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: settle: out of memory");
	struct sl__claim_hash last = {.known = false};
	for (size_t i = 0; i < st->n && rc == 0; i++) {
		st->order[i] = i;
		rc = sl__claim_hash(&last, &st->settles[i].claim, &st->claims[i], err);
	}
	if (rc != 0)
		return rc;
	union {
		const struct sl_settle *in;
		void *out;
	} settles = {.in = st->settles};
	qsort_r(st->order, st->n, sizeof(*st->order), by_id, settles.out);
	st->fast = is_fast(st->settles, st->n);
	if (!st->fast) {
		sl__pg_marks_forget(call->store); /* before the claim that may follow is sent */
		send_locks(call, st);
	}
	st->at_settle = st->fast ? send_fast(call, st) : send_general(call, st);
	send_unblock(call, st);
	send_circle(call, st);
	return 0;
}

void sl__pg_settle_fini(struct pg_call *call, struct pg_settling *st)
{
	sl__free(&call->store->env, st->order);
	sl__free(&call->store->env, st->claims);
}

/* ---- results ---- */

/* Row: ord, next id, type, later, watched, next later, next's open blockers. */
static void report_settled(const PGresult *res, int row, const struct sl_settle *s, const struct sl_store_scope *l)
{
	const char *type = sl__pg_text(res, row, 2);
	bool later = sl__pg_bool(res, row, 3), watched = sl__pg_bool(res, row, 4);
	switch (s->kind) {
	case SL_SETTLE_COMPLETE:
	case SL_SETTLE_FAIL:
		if (watched)
			sl__report_note(l, SL_NOTE_CHAIN_ENDED, NULL, s->chain_id, SL_LOST_NOT);
		if (s->kind == SL_SETTLE_COMPLETE)
			sl__report_change(l, SL_CHANGE_CHAIN_COMPLETED, s->id, s->chain_id, type);
		break;
	case SL_SETTLE_CONTINUE: {
		enum pg_created how = sl__pg_bool(res, row, 5) ? PG_CREATED_SCHEDULED : PG_CREATED_READY;
		if (sl__pg_int4(res, row, 6) > 0)
			how = PG_CREATED_BLOCKED;
		sl__pg_report_created(l, (uint64_t)sl__pg_int8(res, row, 1), s->chain_id, s->next->type, how);
		break;
	}
	case SL_SETTLE_RETRY:
	case SL_SETTLE_RESCHEDULE:
	case SL_SETTLE_RELEASE:
		sl__report_put_back(l, s, type, later);
		break;
	}
}

/* The settles are durable whatever this question comes to, and lost is lost: an error leaves SL_LOST_TAKEN. */
static void ask_why(struct pg_call *call, const struct pg_settling *st, struct sl_settle_result *results, size_t n)
{
	const struct sl_env *env = &call->store->env;
	uint64_t *ids = sl__calloc(env, n, sizeof(*ids)), *fences = sl__calloc(env, n, sizeof(*fences));
	struct pg_lost lost = {
		.ids = ids, .fences = fences, .reasons = sl__calloc(env, n, sizeof(*lost.reasons)), .n = n};
	size_t at = 0;
	for (size_t i = 0; i < st->n && ids != NULL && fences != NULL; i++)
		if (results[i].lost != SL_LOST_NOT) {
			ids[at] = st->settles[i].id;
			fences[at++] = st->settles[i].fence;
		}
	if (at == n && lost.reasons != NULL && sl__pg_lost_reasons(call, &lost, NULL) == 0) {
		at = 0;
		for (size_t i = 0; i < st->n; i++)
			if (results[i].lost != SL_LOST_NOT && lost.reasons[at++] != SL_LOST_NOT)
				results[i].lost = lost.reasons[at - 1];
	}
	sl__free(env, ids);
	sl__free(env, fences);
	sl__free(env, lost.reasons);
}

void sl__pg_settle_read(struct pg_call *call, const struct pg_settling *st, struct sl_settle_result *results,
			const struct sl_store_scope *scope)
{
	const PGresult *res = sl__pg_call_result(call, st->at_settle);
	/* Those without a row did not match: SL_LOST_TAKEN until the reason is known. */
	size_t lost = st->n - (size_t)PQntuples(res);
	for (size_t i = 0; i < st->n; i++)
		results[i] = (struct sl_settle_result){.lost = SL_LOST_TAKEN};
	for (int row = 0; row < PQntuples(res); row++) {
		size_t i = st->order[sl__pg_int4(res, row, 0) - 1];
		results[i].lost = SL_LOST_NOT;
		results[i].next_id = (uint64_t)sl__pg_int8(res, row, 1);
		results[i].chain_ended = st->settles[i].kind == SL_SETTLE_COMPLETE;
		report_settled(res, row, &st->settles[i], scope);
	}
	if (st->at_unblock >= 0)
		sl__pg_report_unblocked(call->store, sl__pg_call_result(call, st->at_unblock), scope);
	if (lost > 0)
		ask_why(call, st, results, lost);
}

int sl__pg_lost_reasons(struct pg_call *call, const struct pg_lost *jobs, struct sl_err *err)
{
	struct sl__pg_pipe pipe;
	SL__PG_PARAMS_LOCAL(params, &call->store->env);
	const struct sl__pg_stmt *lost = &call->store->statements[ST_LOST];
	sl__pg_pipe_init(&pipe, call->conn);
	sl__pg_add_ids(&params, jobs->ids, jobs->n);
	sl__pg_add_ids(&params, jobs->fences, jobs->n);
	int at = call->tx != NULL ? sl__pg_send_sql(&pipe, lost->sql, &params) : sl__pg_send(&pipe, lost, &params);
	int rc = sl__pg_run(&pipe, err);
	for (int row = 0; rc == 0 && row < PQntuples(pipe.results[at]); row++) {
		const PGresult *res = pipe.results[at];
		enum sl_lost_reason reason = sl__pg_reason(res, row);
		if (reason == SL_LOST_TAKEN && sl__pg_int4(res, row, 1) == SL_JOB_PENDING && sl__pg_bool(res, row, 3) &&
		    sl__pg_bool(res, row, 4))
			reason = SL_LOST_PUT_BACK;
		jobs->reasons[sl__pg_int4(res, row, 0) - 1] = reason;
	}
	sl__pg_pipe_end(&pipe);
	return rc;
}

/* Row: ord, the job's status (NULL: gone), under its fence, under the next one. */
enum sl_lost_reason sl__pg_reason(const PGresult *res, int row)
{
	if (sl__pg_is_null(res, row, 1))
		return SL_LOST_NOT_FOUND;
	if (sl__pg_bool(res, row, 2))
		return SL_LOST_NOT;
	int32_t status = sl__pg_int4(res, row, 1);
	/* In the very next step: no one had taken it before. Else another worker has ended it. */
	if (status == SL_JOB_FAILED && sl__pg_bool(res, row, 3))
		return SL_LOST_FAILED;
	if (status == SL_JOB_COMPLETED && sl__pg_bool(res, row, 3))
		return SL_LOST_COMPLETED;
	return status == SL_JOB_CANCELLED ? SL_LOST_CANCELLED : SL_LOST_TAKEN;
}
