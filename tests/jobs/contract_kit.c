/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the contract suite share. */
#include "jobs/contract_kit.h"
#include "support/budget.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- failing ---- */

static pthread_t test_thread;

void kit_set_thread(void)
{
	test_thread = pthread_self();
}

static void failed(const char *file, int line, const char *text)
{
	if (pthread_equal(pthread_self(), test_thread)) {
		print_error("%s:%d: %s\n", file, line, text);
		_fail(file, line);
	}
	fprintf(stderr, "%s:%d: %s\n", file, line, text);
	abort();
}

void kit_check(int rc, const struct sl_err *err, const char *call, const char *file, int line)
{
	if (rc == 0)
		return;
	char text[600];
	snprintf(text, sizeof(text), "%.200s: %s: %s", call, sl_err_name(rc), err->msg);
	failed(file, line, text);
}

void kit_expect(int code, int rc, const struct sl_err *err, const char *call, const char *file, int line)
{
	if (rc == code)
		return;
	char text[600];
	snprintf(text, sizeof(text), "%.200s: %s, not %s: %s", call, sl_err_name(rc), sl_err_name(code), err->msg);
	failed(file, line, text);
}

void kit_true(bool ok, const char *cond, const char *file, int line)
{
	if (!ok)
		failed(file, line, cond);
}

/* ---- the store and its clock ---- */

void kit_open(struct kit *k, const struct contract_fixture *f)
{
	*k = (struct kit){.f = f};
	int rc = f->open(&k->store, f->ctx);
	KIT_TRUE(rc == 0);
	k->ops = k->store.ops;
	k->s = k->store.ctx;
}

void kit_close(struct kit *k)
{
	k->f->close(&k->store, k->f->ctx);
}

int64_t kit_now(struct kit *k)
{
	int64_t now = 0;
	KIT_OK(k->ops->now_ms(k->s, &now, err));
	return now;
}

void kit_pass_ms(struct kit *k, int64_t ms)
{
	int64_t until = kit_now(k) + ms;
	if (k->f->advance_ms != NULL)
		k->f->advance_ms(ms, k->f->ctx);
	while (kit_now(k) < until)
		sched_yield();
}

int64_t kit_mono_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t kit_box_ns(void)
{
	return (int64_t)(test_seconds(1) * 1e9);
}

/* ---- notes and changes ---- */

static void copy(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from != NULL ? from : "");
}

static void hear_note(const struct sl_note *note, void *ctx)
{
	struct kit_heard *h = ctx;
	KIT_TRUE(h->n_notes < KIT_MAX);
	struct kit_note *n = &h->notes[h->n_notes++];
	*n = (struct kit_note){.kind = note->kind, .reason = note->reason, .id = note->id};
	copy(n->type, sizeof(n->type), note->type);
}

static void hear_change(const struct sl_change *change, void *ctx)
{
	struct kit_heard *h = ctx;
	KIT_TRUE(h->n_changes < KIT_MAX);
	h->changes[h->n_changes++] =
		(struct kit_change){.kind = change->kind, .id = change->id, .chain_id = change->chain_id};
}

const struct sl_store_scope *kit_hear(struct kit_heard *heard)
{
	heard->n_notes = 0;
	heard->n_changes = 0;
	heard->scope = (struct sl_store_scope){.note = hear_note, .change = hear_change, .ctx = heard};
	return &heard->scope;
}

size_t kit_notes(const struct kit_heard *heard, enum sl_note_kind kind, const char *type, uint64_t id)
{
	size_t n = 0;
	for (size_t i = 0; i < heard->n_notes; i++) {
		const struct kit_note *note = &heard->notes[i];
		n += note->kind == kind && (type == NULL || strcmp(note->type, type) == 0) &&
		     (id == 0 || note->id == id);
	}
	return n;
}

size_t kit_changes(const struct kit_heard *heard, enum sl_change_kind kind, uint64_t id)
{
	size_t n = 0;
	for (size_t i = 0; i < heard->n_changes; i++)
		n += heard->changes[i].kind == kind && (id == 0 || heard->changes[i].id == id);
	return n;
}

enum sl_lost_reason kit_lost_note(const struct kit_heard *heard, uint64_t id)
{
	for (size_t i = 0; i < heard->n_notes; i++)
		if (heard->notes[i].kind == SL_NOTE_OWNERSHIP_LOST && heard->notes[i].id == id)
			return heard->notes[i].reason;
	return SL_LOST_NOT;
}

/* ---- starting ---- */

uint64_t kit_start_job(struct kit *k, const struct sl_new_job *job)
{
	struct sl_new_chain chain = {.job = *job};
	struct sl_started started = {0};
	KIT_OK(k->ops->start(k->s, &chain, 1, NULL, &started, err));
	KIT_TRUE(started.chain_id != 0 && !started.deduplicated);
	return started.chain_id;
}

uint64_t kit_start(struct kit *k, const char *type)
{
	return kit_start_job(k, &(struct sl_new_job){.type = type, .input = "{\"n\":1}"});
}

uint64_t kit_start_after(struct kit *k, const char *type, const uint64_t *blockers, size_t n)
{
	return kit_start_job(k, &(struct sl_new_job){.type = type, .blockers = blockers, .n_blockers = n});
}

struct sl_started kit_start_key(struct kit *k, const char *key, enum sl_dedup_scope scope, int64_t window_ms)
{
	struct sl_new_chain chain = {.job = {.type = "t"}, .key = key, .scope = scope, .window_ms = window_ms};
	struct sl_started started = {0};
	KIT_OK(k->ops->start(k->s, &chain, 1, NULL, &started, err));
	return started;
}

/* ---- claiming and settling ---- */

static int keep_claimed(const struct sl_claimed_job *job, void *ctx)
{
	struct kit_claim *c = ctx;
	KIT_TRUE(c->n < KIT_MAX);
	struct kit_job *j = &c->jobs[c->n++];
	*j = (struct kit_job){.id = job->id,
			      .chain_id = job->chain_id,
			      .fence = job->fence,
			      .attempt = job->attempt,
			      .priority = job->priority,
			      .charged = job->charged,
			      .has_blockers = job->has_blockers};
	copy(j->type, sizeof(j->type), job->type);
	copy(j->input, sizeof(j->input), job->input);
	copy(j->traceparent, sizeof(j->traceparent), job->traceparent);
	return 0;
}

int kit_noop_claimed(const struct sl_claimed_job *job, void *ctx)
{
	(void)job, (void)ctx;
	return 0;
}

/* Claim ids must differ; the store only compares them. */
static struct sl_claim_id fresh_claim_id(void)
{
	static uint64_t counter;
	uint64_t n = __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED);
	uint64_t t = (uint64_t)kit_mono_ns();
	struct sl_claim_id id;
	memcpy(id.bytes, &n, sizeof(n));
	memcpy(id.bytes + sizeof(n), &t, sizeof(t));
	return id;
}

void kit_claim_again(struct kit *k, const char *type, const struct kit_claim *claim, struct kit_claim *out)
{
	const struct sl_claim_type types = {.type = type};
	const struct sl_claim_request request = {.claim = claim->id,
						 .worker = claim->worker,
						 .types = &types,
						 .n_types = 1,
						 .limit = KIT_MAX,
						 .lease_ms = KIT_LONG_MS,
						 .again = 1};
	out->n = 0;
	out->id = claim->id;
	memcpy(out->worker, claim->worker, sizeof(out->worker));
	KIT_OK(k->ops->exchange(
		k->s,
		&(struct sl_exchange){
			.request = &request, .reply = &out->reply, .claimed = keep_claimed, .claimed_ctx = out},
		NULL, err));
	KIT_TRUE(out->reply.n == out->n);
}

static void claim_types(struct kit *k, const struct sl_claim_type *types, size_t n, uint32_t limit, int64_t lease_ms,
			int hinted, struct kit_claim *out)
{
	out->n = 0;
	out->id = fresh_claim_id();
	out->reply = (struct sl_claim_reply){0};
	uint64_t number;
	memcpy(&number, out->id.bytes, sizeof(number));
	snprintf(out->worker, sizeof(out->worker), "worker-%llu", (unsigned long long)number);
	struct sl_claim_type asked[8];
	KIT_TRUE(n <= sizeof(asked) / sizeof(asked[0]));
	for (size_t i = 0; i < n; i++)
		asked[i] = (struct sl_claim_type){.type = types[i].type, .limit = types[i].limit, .free = !k->busy};
	struct sl_claim_request request = {.claim = out->id,
					   .worker = out->worker,
					   .types = asked,
					   .free = !k->busy,
					   .n_types = n,
					   .limit = limit,
					   .lease_ms = lease_ms > 0 ? lease_ms : KIT_LONG_MS,
					   .hinted = hinted};
	KIT_OK(k->ops->exchange(
		k->s,
		&(struct sl_exchange){
			.request = &request, .reply = &out->reply, .claimed = keep_claimed, .claimed_ctx = out},
		NULL, err));
	KIT_TRUE(out->reply.n == out->n);
}

void kit_claim_types(struct kit *k, const struct sl_claim_type *types, size_t n, uint32_t limit, int64_t lease_ms,
		     struct kit_claim *out)
{
	claim_types(k, types, n, limit, lease_ms, 0, out);
}

void kit_claim_hinted(struct kit *k, const char *type, uint32_t limit, struct kit_claim *out)
{
	struct sl_claim_type types = {.type = type, .limit = limit};
	claim_types(k, &types, 1, limit, 0, 1, out);
}

void kit_claim(struct kit *k, const char *type, uint32_t limit, int64_t lease_ms, struct kit_claim *out)
{
	struct sl_claim_type types = {.type = type != NULL ? type : "t", .limit = limit};
	kit_claim_types(k, &types, 1, limit, lease_ms, out);
}

struct kit_job kit_claim_one(struct kit *k, const char *type, struct kit_claim *out)
{
	kit_claim(k, type, 1, 0, out);
	KIT_TRUE(out->n == 1);
	return out->jobs[0];
}

struct sl_settle kit_settle(const struct kit_claim *claim, size_t i, enum sl_settle_kind kind)
{
	const struct kit_job *job = &claim->jobs[i];
	return (struct sl_settle){.kind = kind,
				  .id = job->id,
				  .chain_id = job->chain_id,
				  .fence = job->fence,
				  .claim = claim->id,
				  .worker = claim->worker,
				  .started_ms = kind == SL_SETTLE_RELEASE ? 0 : claim->reply.now_ms,
				  .last_of_claim = claim->n == 1};
}

struct sl_settle_result kit_exchange(struct kit *k, const struct sl_settle *settle, struct kit_heard *heard)
{
	struct sl_settle_result result = {.lost = 99};
	const struct sl_store_scope *scope = heard != NULL ? kit_hear(heard) : NULL;
	KIT_OK(k->ops->exchange(k->s, &(struct sl_exchange){.settles = settle, .n_settles = 1, .results = &result},
				scope, err));
	return result;
}

static void settle_mine(struct kit *k, const struct sl_settle *settle)
{
	struct sl_settle_result result = kit_exchange(k, settle, NULL);
	KIT_TRUE(result.lost == SL_LOST_NOT);
}

void kit_complete(struct kit *k, const struct kit_claim *claim, size_t i, const char *output)
{
	struct sl_settle s = kit_settle(claim, i, SL_SETTLE_COMPLETE);
	s.output = output;
	settle_mine(k, &s);
}

void kit_fail(struct kit *k, const struct kit_claim *claim, size_t i)
{
	struct sl_settle s = kit_settle(claim, i, SL_SETTLE_FAIL);
	s.error = "failed for good";
	settle_mine(k, &s);
}

void kit_retry(struct kit *k, const struct kit_claim *claim, size_t i, int64_t delay_ms)
{
	struct sl_settle s = kit_settle(claim, i, SL_SETTLE_RETRY);
	s.error = "failed once";
	s.delay_ms = delay_ms;
	settle_mine(k, &s);
}

void kit_run(struct kit *k, const char *type, const char *output)
{
	struct kit_claim claim;
	kit_claim_one(k, type, &claim);
	kit_complete(k, &claim, 0, output);
}

uint32_t kit_reap(struct kit *k, const char *type, struct kit_heard *heard)
{
	const struct sl_reap_type types[] = {{.type = type != NULL ? type : "t", .retry = k->retry}};
	const struct sl_store_scope *scope = heard != NULL ? kit_hear(heard) : NULL;
	struct sl_reaped reaped = {.more = 1};
	uint32_t all = 0;
	while (reaped.more) {
		KIT_OK(k->ops->reap(k->s, types, 1, 100, &reaped, scope, err));
		KIT_TRUE(reaped.n <= 100);
		all += reaped.n;
	}
	return all;
}

void kit_claim_expired(struct kit *k, const char *type, uint32_t limit, struct kit_claim *out)
{
	kit_claim(k, type, limit, 1, out);
	kit_pass_ms(k, 3);
}

/* ---- reading ---- */

#define KEEP(row, struct_, field)                                                                                      \
	do {                                                                                                           \
		copy((row)->field, sizeof(row)->field, (row)->struct_.field);                                          \
		if ((row)->struct_.field != NULL)                                                                      \
			(row)->struct_.field = (row)->field;                                                           \
	} while (0)

static int keep_row(const struct sl_job *job, void *ctx)
{
	struct kit_row *row = ctx;
	row->job = *job;
	row->output_len = job->output != NULL ? strlen(job->output) : 0;
	KEEP(row, job, type);
	KEEP(row, job, input);
	KEEP(row, job, output);
	KEEP(row, job, error);
	KEEP(row, job, progress);
	KEEP(row, job, key);
	KEEP(row, job, traceparent);
	KEEP(row, job, leased_by);
	return 0;
}

void kit_get(struct kit *k, uint64_t id, struct kit_row *out)
{
	KIT_OK(k->ops->get_job(k->s, NULL, id, keep_row, out, err));
}

static int keep_chain(const struct sl_chain *chain, void *ctx)
{
	struct kit_chain *row = ctx;
	row->chain = *chain;
	KEEP(row, chain, type);
	KEEP(row, chain, at_type);
	KEEP(row, chain, input);
	KEEP(row, chain, output);
	KEEP(row, chain, error);
	KEEP(row, chain, key);
	return 0;
}

void kit_get_chain(struct kit *k, uint64_t id, struct kit_chain *out)
{
	KIT_OK(k->ops->get_chain(k->s, NULL, id, keep_chain, out, err));
}

enum sl_job_status kit_status(struct kit *k, uint64_t id)
{
	struct kit_row row;
	kit_get(k, id, &row);
	return row.job.status;
}

bool kit_exists(struct kit *k, uint64_t id)
{
	struct kit_row row;
	struct sl_err err = SL_ERR_INIT;
	int rc = k->ops->get_job(k->s, NULL, id, keep_row, &row, &err);
	KIT_TRUE(rc == 0 || rc == SL_ENOENT);
	return rc == 0;
}

static int keep_id(const struct sl_job *job, void *ctx)
{
	struct kit_ids *ids = ctx;
	KIT_TRUE(ids->n < KIT_MAX);
	ids->ids[ids->n++] = job->id;
	return 0;
}

void kit_list(struct kit *k, const struct sl_job_filter *filter, struct kit_ids *out)
{
	out->n = 0;
	KIT_OK(k->ops->list_jobs(k->s, filter, keep_id, out, err));
}

static int keep_chain_id(const struct sl_chain *chain, void *ctx)
{
	struct kit_ids *ids = ctx;
	KIT_TRUE(ids->n < KIT_MAX);
	ids->ids[ids->n++] = chain->id;
	return 0;
}

void kit_list_chains(struct kit *k, const struct sl_job_filter *filter, struct kit_ids *out)
{
	out->n = 0;
	KIT_OK(k->ops->list_chains(k->s, filter, keep_chain_id, out, err));
}

static int keep_outcome(const struct sl_attempt_record *attempt, void *ctx)
{
	char *out = ctx;
	size_t n = strlen(out);
	KIT_TRUE(n + 1 < KIT_MAX);
	out[n] = "rcfRsba"[attempt->outcome];
	out[n + 1] = '\0';
	return 0;
}

void kit_outcomes(struct kit *k, uint64_t id, char out[KIT_MAX])
{
	out[0] = '\0';
	KIT_OK(k->ops->attempts(k->s, id, keep_outcome, out, err));
}
