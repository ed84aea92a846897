/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory store at work: start, settle, claim, renew, reap. What can be refused is checked before anything changes,
 * so an operation that fails has done nothing.
 */
#include <stdlib.h>

#include "base/base.h"
#include "flow/retry.h"
#include "support/memstore_priv.h"

/* ---- making jobs ---- */

int mem_check_blockers(struct memstore *ms, const struct sl_new_job *job, uint64_t own, struct sl_err *err)
{
	for (size_t i = 0; i < job->n_blockers; i++)
		if (job->blockers[i] == own || mem_chain(ms, job->blockers[i]) == NULL)
			return sl_err_set(err, SL_ENOENT, "blocker %llu: no such chain",
					  (unsigned long long)job->blockers[i]);
	return 0;
}

void mem_enqueue(struct memstore *ms, struct mem_job *job)
{
	job->place = job->scheduled_ms > mem_now(ms) ? MEM_SCHED : MEM_READY;
}

static enum sl_job_status chain_status(struct memstore *ms, uint64_t chain_id)
{
	const struct mem_job *head = mem_chain(ms, chain_id);
	return head != NULL ? mem_job(ms, head->last_id)->status : 0;
}

static void add_edges(struct memstore *ms, struct mem_job *job, const struct sl_new_job *spec)
{
	job->first_edge = ms->s.edges.n;
	job->n_edges = (uint32_t)spec->n_blockers;
	for (size_t i = 0; i < spec->n_blockers; i++) {
		struct mem_edge *edge = mem_push(&ms->s.edges);
		edge->job_id = job->id;
		edge->chain_id = spec->blockers[i];
		edge->done = chain_status(ms, edge->chain_id) == SL_JOB_COMPLETED;
	}
}

/* Blocked, or where claims find it. */
static void place_job(struct memstore *ms, struct mem_job *job)
{
	uint32_t open;
	mem_blockers(ms, job->id, &open);
	job->status = open > 0 ? SL_JOB_BLOCKED : SL_JOB_PENDING;
	if (open == 0)
		mem_enqueue(ms, job);
}

struct mem_job *mem_make(struct memstore *ms, const struct sl_new_job *spec, struct mem_job *prev,
			 const struct sl_store_scope *l)
{
	uint64_t prev_id = prev != NULL ? prev->id : 0, chain_id = prev != NULL ? prev->chain_id : 0;
	struct mem_job *job = mem_push(&ms->s.jobs);
	job->id = ms->s.jobs.n;
	job->chain_id = prev_id != 0 ? chain_id : job->id;
	job->prev_id = prev_id;
	job->type = mem_str(ms, spec->type);
	job->input = mem_str(ms, spec->input != NULL ? spec->input : "null");
	job->traceparent = mem_str(ms, spec->traceparent);
	job->priority = spec->priority;
	job->created_ms = mem_now(ms);
	job->scheduled_ms = spec->delay_ms > 0 ? mem_now(ms) + spec->delay_ms : spec->at_ms;
	job->fence = 1;
	add_edges(ms, job, spec);
	place_job(ms, job);
	mem_chain(ms, job->chain_id)->last_id = job->id;
	mem_change(l, SL_CHANGE_CREATED, job);
	if (job->status == SL_JOB_BLOCKED)
		mem_change(l, SL_CHANGE_BLOCKED, job);
	else if (job->place == MEM_SCHED)
		mem_change(l, SL_CHANGE_SCHEDULED, job);
	if (job->status == SL_JOB_PENDING)
		mem_note(l, SL_NOTE_JOB_SCHEDULED, job->type, job->id, SL_LOST_NOT);
	return job;
}

static struct mem_key *find_key(struct memstore *ms, const char *key)
{
	for (size_t i = 0; i < ms->s.keys.n; i++) {
		struct mem_key *k = MEM_AT(ms->s.keys, struct mem_key, i);
		if (strcmp(k->key, key) != 0)
			continue;
		if (k->until_ms == 0 || k->until_ms > mem_now(ms))
			return k;
		mem_drop(&ms->s.keys, i--);
	}
	return NULL;
}

void mem_free_keys(struct memstore *ms, uint64_t chain_id, bool all_scopes)
{
	for (size_t i = 0; i < ms->s.keys.n; i++) {
		const struct mem_key *k = MEM_AT(ms->s.keys, struct mem_key, i);
		if (k->chain_id == chain_id && (all_scopes || k->scope == SL_DEDUP_INCOMPLETE))
			mem_drop(&ms->s.keys, i--);
	}
}

static void put_key(struct memstore *ms, const struct mem_job *head, enum sl_dedup_scope scope, int64_t window_ms)
{
	struct mem_key *k = mem_push(&ms->s.keys);
	k->key = head->key;
	k->chain_id = head->id;
	k->scope = scope;
	k->until_ms = window_ms > 0 ? mem_now(ms) + window_ms : 0;
}

uint64_t mem_take_key(struct memstore *ms, const struct mem_job *head)
{
	const struct mem_key *known = find_key(ms, head->key);
	if (known != NULL)
		return known->chain_id;
	put_key(ms, head, SL_DEDUP_INCOMPLETE, 0);
	return head->id;
}

static void start_one(struct memstore *ms, const struct sl_new_chain *chain, struct sl_started *out,
		      const struct sl_store_scope *l)
{
	const struct mem_key *known = chain->key != NULL ? find_key(ms, chain->key) : NULL;
	if (known != NULL) {
		*out = (struct sl_started){.chain_id = known->chain_id, .deduplicated = true};
		return;
	}
	struct mem_job *job = mem_make(ms, &chain->job, NULL, l);
	job->key = mem_str(ms, chain->key);
	*out = (struct sl_started){.chain_id = job->id};
	if (chain->key != NULL)
		put_key(ms, job, chain->scope, chain->window_ms);
}

int mem_start(void *store, const struct sl_new_chain *chains, size_t n, const struct sl_store_scope *scope,
	      struct sl_started *out, struct sl_err *err)
{
	sl_store_tx *tx = mem_tx(scope);
	struct memstore *ms = store;
	int rc = mem_enter(ms, tx, "start", err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = mem_check_blockers(ms, &chains[i].job, 0, err);
	for (size_t i = 0; i < n && rc == 0; i++)
		start_one(ms, &chains[i], &out[i], scope);
	return mem_leave(ms, tx, rc, err);
}

/* ---- ends ---- */

void mem_history(struct memstore *ms, const struct mem_job *job, enum sl_attempt_outcome outcome, const char *worker,
		 const char *error, int64_t started_ms, int32_t attempt, const struct sl_claim_id *claim)
{
	struct mem_attempt *a = mem_push(&ms->s.attempts);
	a->job_id = job->id;
	a->claim = *claim;
	a->rec = (struct sl_attempt_record){.attempt = attempt,
					    .outcome = outcome,
					    .worker = mem_str(ms, worker),
					    .error = mem_str(ms, error),
					    .started_ms = started_ms,
					    .ended_ms = mem_now(ms)};
}

static void open_job(struct memstore *ms, struct mem_job *job, const struct sl_store_scope *l)
{
	job->status = SL_JOB_PENDING;
	mem_enqueue(ms, job);
	mem_change(l, SL_CHANGE_UNBLOCKED, job);
	mem_note(l, SL_NOTE_JOB_SCHEDULED, job->type, job->id, SL_LOST_NOT);
}

/* S5: edges to this chain are done; a job whose last one that was opens. */
static void unblock(struct memstore *ms, uint64_t chain_id, const struct sl_store_scope *l)
{
	MEM_EACH(ms->s.edges, struct mem_edge, edge)
	{
		if (edge->chain_id != chain_id || edge->done || edge->gone)
			continue;
		edge->done = true;
		struct mem_job *job = mem_job(ms, edge->job_id);
		uint32_t open;
		mem_blockers(ms, edge->job_id, &open);
		if (ms->broken == MEMSTORE_UNBLOCK_EARLY)
			open = 0;
		bool waits = job->status == SL_JOB_BLOCKED ||
			     (ms->broken == MEMSTORE_UNBLOCK_ENDED && job->status == SL_JOB_CANCELLED);
		if (open == 0 && waits)
			open_job(ms, job, l);
	}
}

void mem_chain_ended(struct memstore *ms, struct mem_job *job, const struct sl_store_scope *l)
{
	const struct mem_job *head = mem_chain(ms, job->chain_id);
	mem_free_keys(ms, head->id, false);
	if (head->watched)
		mem_note(l, SL_NOTE_CHAIN_ENDED, NULL, head->id, SL_LOST_NOT);
	if (job->status != SL_JOB_COMPLETED)
		return;
	mem_change(l, SL_CHANGE_CHAIN_COMPLETED, job);
	if (ms->broken != MEMSTORE_UNBLOCK_NEVER || job->prev_id == 0)
		unblock(ms, head->id, l);
}

bool mem_abort_claim(struct memstore *ms, struct mem_job *job, enum sl_lost_reason reason,
		     const struct sl_store_scope *l)
{
	const struct mem_lease *lease = mem_lease_of(ms, job);
	if (lease == NULL)
		return false;
	job->leased_by = lease->worker;
	job->started_ms = lease->since_ms;
	if (reason != SL_LOST_NOT_FOUND)
		mem_history(ms, job, SL_ATTEMPT_ABORTED, lease->worker,
			    reason == SL_LOST_COMPLETED ? "completed from outside"
			    : reason == SL_LOST_FAILED  ? job->error
							: "cancelled",
			    lease->since_ms, (int32_t)job->fence, &lease->claim);
	job->attempt = (int32_t)job->fence;
	mem_note(l, SL_NOTE_OWNERSHIP_LOST, job->type, job->id, reason);
	return true;
}

static int64_t when(struct memstore *ms, const struct sl_settle *s)
{
	return s->delay_ms > 0 ? mem_now(ms) + s->delay_ms : s->at_ms;
}

static void back_in_queue(struct memstore *ms, struct mem_job *job, int64_t at_ms, const struct sl_store_scope *l)
{
	job->scheduled_ms = at_ms;
	mem_enqueue(ms, job);
	bool later = job->place == MEM_SCHED;
	if (later)
		mem_change(l, SL_CHANGE_SCHEDULED, job);
	if (l != NULL && l->note != NULL)
		l->note(
			&(struct sl_note){
				.kind = SL_NOTE_JOB_SCHEDULED, .type = job->type, .id = job->id, .later = later},
			l->ctx);
}

static void end_job(struct memstore *ms, struct mem_job *job, enum sl_job_status status)
{
	job->status = status;
	job->place = MEM_NOWHERE;
	job->ended_ms = mem_now(ms);
}

static void settle_continue(struct memstore *ms, struct mem_job *job, const struct sl_settle *s,
			    struct sl_settle_result *result, const struct sl_store_scope *l)
{
	uint64_t id = job->id;
	end_job(ms, job, SL_JOB_COMPLETED);
	job->by_worker = true;
	job->claim = s->claim;
	job->error = NULL;
	if (ms->broken == MEMSTORE_TORN_CONTINUE && ++ms->torn % 3 == 0)
		return;
	uint64_t next_id = mem_make(ms, s->next, job, l)->id; /* job may have moved */
	mem_job(ms, id)->next_id = next_id;
	result->next_id = next_id;
}

static void settle_complete(struct memstore *ms, struct mem_job *job, const struct sl_settle *s,
			    struct sl_settle_result *result, const struct sl_store_scope *l)
{
	end_job(ms, job, SL_JOB_COMPLETED);
	job->by_worker = true;
	job->claim = s->claim;
	job->output = mem_str(ms, s->output != NULL ? s->output : "null");
	job->error = NULL;
	result->chain_ended = 1;
	mem_chain_ended(ms, job, l);
}

/* A failure for good without a start is that of a worker which found that the attempts had run out. */
static bool was_started(const struct sl_settle *s)
{
	return s->kind != SL_SETTLE_FAIL || s->started_ms != 0;
}

static void settle_failed(struct memstore *ms, struct mem_job *job, const struct sl_settle *s,
			  const struct sl_store_scope *l)
{
	job->error = mem_str(ms, s->error);
	if (was_started(s))
		mem_history(ms, job, SL_ATTEMPT_FAILED, s->worker, s->error, s->started_ms, (int32_t)s->fence,
			    &s->claim);
	if (s->kind == SL_SETTLE_RETRY) {
		job->solo = false;
		back_in_queue(ms, job, when(ms, s), l);
		return;
	}
	end_job(ms, job, SL_JOB_FAILED);
	mem_chain_ended(ms, job, l);
}

static void settle_back(struct memstore *ms, struct mem_job *job, const struct sl_settle *s,
			const struct sl_store_scope *l)
{
	if (s->kind == SL_SETTLE_RESCHEDULE)
		mem_history(ms, job, SL_ATTEMPT_RESCHEDULED, s->worker, s->error, s->started_ms, (int32_t)s->fence,
			    &s->claim);
	if (s->kind == SL_SETTLE_RELEASE && s->started_ms != 0)
		mem_history(ms, job, SL_ATTEMPT_RELEASED, s->worker, s->error, s->started_ms, (int32_t)s->fence,
			    &s->claim);
	if (s->kind == SL_SETTLE_RESCHEDULE || s->started_ms != 0)
		job->solo = false;
	back_in_queue(ms, job, s->kind == SL_SETTLE_RESCHEDULE ? when(ms, s) : 0, l);
}

static void drop_lease(struct memstore *ms, const struct sl_claim_id *claim)
{
	for (size_t i = 0; i < ms->s.leases.n; i++)
		if (memcmp(&MEM_AT(ms->s.leases, struct mem_lease, i)->claim, claim, sizeof(*claim)) == 0)
			mem_drop(&ms->s.leases, i--);
}

static void settle_one(struct memstore *ms, const struct sl_settle *s, struct sl_settle_result *result,
		       const struct sl_store_scope *l)
{
	*result = (struct sl_settle_result){.lost = mem_lost(ms, s->id, s->fence)};
	const struct mem_job *there = mem_job(ms, s->id);
	if (there != NULL && there->status == SL_JOB_PENDING && there->fence == s->fence + 1 && !there->solo)
		result->lost = SL_LOST_PUT_BACK; /* a reap would have flagged it */
	if ((ms->broken == MEMSTORE_NO_FENCE && result->lost != SL_LOST_NOT_FOUND) ||
	    (ms->broken == MEMSTORE_SETTLE_FAILED && result->lost == SL_LOST_FAILED))
		result->lost = SL_LOST_NOT;
	if (s->last_of_claim)
		drop_lease(ms, &s->claim);
	if (result->lost != SL_LOST_NOT)
		return;
	struct mem_job *job = mem_job(ms, s->id);
	job->fence++;
	job->leased_by = mem_str(ms, s->worker);
	if (s->started_ms != 0)
		job->started_ms = s->started_ms;
	if (s->progress != NULL)
		job->progress = mem_str(ms, s->progress);
	if (s->kind <= SL_SETTLE_FAIL && was_started(s))
		job->charged++;
	if (s->kind == SL_SETTLE_RELEASE ? s->started_ms != 0 : was_started(s))
		job->attempt = (int32_t)s->fence;
	switch (s->kind) {
	case SL_SETTLE_COMPLETE:
		settle_complete(ms, job, s, result, l);
		break;
	case SL_SETTLE_CONTINUE:
		settle_continue(ms, job, s, result, l);
		break;
	case SL_SETTLE_RETRY:
	case SL_SETTLE_FAIL:
		settle_failed(ms, job, s, l);
		break;
	case SL_SETTLE_RESCHEDULE:
	case SL_SETTLE_RELEASE:
		settle_back(ms, job, s, l);
		break;
	}
}

/* ---- claiming ---- */

/* How many of the type at most; 0: none. */
static uint32_t wanted(const struct sl_claim_request *r, const char *type)
{
	for (size_t i = 0; i < r->n_types; i++)
		if (strcmp(r->types[i].type, type) == 0)
			return r->types[i].limit;
	return 0;
}

static bool claimable(struct memstore *ms, const struct sl_claim_request *r, const struct mem_job *job)
{
	return !job->gone && job->place == MEM_READY && wanted(r, job->type) > 0 && !mem_paused(ms, job->type);
}

static uint32_t free_for(const struct sl_claim_request *r, const char *type)
{
	for (size_t i = 0; i < r->n_types; i++)
		if (strcmp(r->types[i].type, type) == 0)
			return r->types[i].free < r->free ? r->types[i].free : r->free;
	return 0;
}

static int by_rank(const void *a, const void *b)
{
	const struct mem_job *x = *(struct mem_job *const *)a, *y = *(struct mem_job *const *)b;
	if (x->priority != y->priority)
		return x->priority < y->priority ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static uint32_t taken_of(struct mem_job *const *picks, uint32_t n, const char *type)
{
	uint32_t taken = 0;
	for (uint32_t i = 0; i < n; i++)
		taken += strcmp(picks[i]->type, type) == 0;
	return taken;
}

/* Does a hinted claim leave out what the contract lets it? */
static bool skips(const struct sl_claim_request *r)
{
	return r->hinted && r->limit > 1;
}

struct picked {
	uint32_t n;
	bool left;  /* more are there */
	bool alone; /* and are given only for a free slot */
};

/* The jobs that this request gets, in order; a flagged one alone, when it is the first. all[] is sorted in place. */
static struct picked pick(struct memstore *ms, const struct sl_claim_request *r, struct mem_job **all)
{
	size_t n_all = 0;
	struct picked p = {0};
	MEM_EACH(ms->s.jobs, struct mem_job, job)
	if (claimable(ms, r, job))
		all[n_all++] = job;
	if (n_all > 1)
		qsort(all, n_all, sizeof(*all), by_rank);
	for (size_t i = 0; i < n_all && p.n < r->limit; i++) {
		if (all[i]->solo && free_for(r, all[i]->type) == 0 && ms->broken != MEMSTORE_SOLO_AHEAD) {
			p.alone = true;
		} else if (all[i]->solo && (p.n > 0 || skips(r))) {
			p.left = true;
		} else if (all[i]->solo) {
			all[0] = all[i];
			return (struct picked){.n = 1, .left = n_all > 1};
		} else if (taken_of(all, p.n, all[i]->type) < wanted(r, all[i]->type)) {
			all[p.n++] = all[i];
		}
	}
	return p;
}

/* Before it is taken. */
static struct sl_claimed_job as_claimed(struct memstore *ms, const struct mem_job *job)
{
	uint32_t open;
	return (struct sl_claimed_job){.id = job->id,
				       .chain_id = job->chain_id,
				       .fence = job->fence,
				       .type = job->type,
				       .input = job->input,
				       .traceparent = job->traceparent,
				       .attempt = (int32_t)job->fence,
				       .charged = job->charged,
				       .priority = job->priority,
				       .has_blockers = mem_blockers(ms, job->id, &open) > 0,
				       .created_ms = job->created_ms,
				       .scheduled_ms = job->scheduled_ms};
}

static int report_claimed(struct memstore *ms, struct mem_job *const *picks, uint32_t n, sl_claimed_fn *claimed,
			  void *ctx)
{
	int rc = 0;
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		struct sl_claimed_job job = as_claimed(ms, picks[i]);
		rc = claimed(&job, ctx);
	}
	return rc;
}

static void take(struct memstore *ms, struct mem_job **picks, uint32_t n, bool started,
		 const struct sl_claim_request *r)
{
	if (n == 0)
		return;
	uint64_t *ids = mem_room(ms, n * sizeof(*ids)), *fences = mem_room(ms, n * sizeof(*fences));
	for (uint32_t i = 0; i < n; i++) {
		ids[i] = picks[i]->id;
		fences[i] = picks[i]->fence;
		if (ms->broken != MEMSTORE_CLAIM_TWICE)
			picks[i]->place = MEM_NOWHERE;
	}
	struct mem_lease *lease = mem_push(&ms->s.leases);
	lease->claim = r->claim;
	lease->worker = mem_str(ms, r->worker);
	lease->since_ms = mem_now(ms);
	lease->until_ms = lease->since_ms + r->lease_ms;
	lease->started = started;
	lease->n = n;
	lease->ids = ids;
	lease->fences = fences;
}

static bool lease_wanted(struct memstore *ms, const struct mem_lease *lease, const struct sl_claim_request *r)
{
	for (size_t i = 0; i < lease->n; i++) {
		const struct mem_job *job = mem_job(ms, lease->ids[i]);
		if (job != NULL && mem_live(job) && job->fence == lease->fences[i] && wanted(r, job->type) > 0)
			return true;
	}
	return false;
}

static int64_t earlier(int64_t in_ms, int64_t at_ms, int64_t now_ms)
{
	int64_t d = at_ms > now_ms ? at_ms - now_ms : 0;
	return in_ms < 0 || d < in_ms ? d : in_ms;
}

static void report_sleep(struct memstore *ms, const struct sl_claim_request *r, struct sl_claim_reply *reply)
{
	MEM_EACH(ms->s.jobs, struct mem_job, job)
	if (!job->gone && job->place == MEM_SCHED && wanted(r, job->type) > 0)
		reply->next_due_in_ms = earlier(reply->next_due_in_ms, job->scheduled_ms, reply->now_ms);
	MEM_EACH(ms->s.leases, struct mem_lease, lease)
	if (lease_wanted(ms, lease, r))
		reply->next_expiry_in_ms = earlier(reply->next_expiry_in_ms, lease->until_ms, reply->now_ms);
}

static bool all_start(const struct sl_claim_request *r, struct mem_job *const *picks, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (taken_of(picks, n, picks[i]->type) > free_for(r, picks[i]->type))
			return false;
	return n <= r->free;
}

static struct mem_lease *find_lease(struct memstore *ms, const struct sl_claim_id *claim)
{
	MEM_EACH(ms->s.leases, struct mem_lease, lease)
	if (memcmp(&lease->claim, claim, sizeof(*claim)) == 0)
		return lease;
	return NULL;
}

/* What a claim holds whose answer was lost. */
static int claim_again(struct memstore *ms, const struct sl_claim_request *r, struct sl_claim_reply *reply,
		       sl_claimed_fn *claimed, void *ctx)
{
	struct mem_lease *lease = ms->broken != MEMSTORE_AGAIN_FORGETS ? find_lease(ms, &r->claim) : NULL;
	int rc = 0;
	*reply = (struct sl_claim_reply){.now_ms = mem_now(ms), .next_expiry_in_ms = -1};
	for (size_t i = 0; lease != NULL && i < lease->n && rc == 0; i++) {
		const struct mem_job *job = mem_job(ms, lease->ids[i]);
		if (job == NULL || !mem_live(job) || job->fence != lease->fences[i])
			continue;
		struct sl_claimed_job given = as_claimed(ms, job);
		rc = claimed(&given, ctx);
		reply->n++;
	}
	if (rc == 0 && lease != NULL)
		lease->until_ms = mem_now(ms) + r->lease_ms;
	return rc;
}

static int claim(struct memstore *ms, const struct sl_claim_request *r, struct sl_claim_reply *reply,
		 sl_claimed_fn *claimed, void *ctx)
{
	struct sl_claim_request all_of_it = *r;
	int64_t now = mem_now(ms);
	if (r->again)
		return claim_again(ms, r, reply, claimed, ctx);
	MEM_EACH(ms->s.jobs, struct mem_job, job)
	if (job->place == MEM_SCHED && job->scheduled_ms <= now && !r->hinted)
		job->place = MEM_READY;
	struct mem_job **all = malloc((ms->s.jobs.n + 1) * sizeof(*all));
	if (all == NULL)
		abort();
	struct picked p = pick(ms, r, all);
	if (p.n == 0 && r->hinted) {
		free(all);
		all_of_it.hinted = 0;
		return claim(ms, &all_of_it, reply, claimed, ctx);
	}
	int rc = report_claimed(ms, all, p.n, claimed, ctx);
	if (rc == 0) {
		take(ms, all, p.n, all_start(r, all, p.n), r);
		*reply = (struct sl_claim_reply){
			.n = p.n, .now_ms = now, .next_due_in_ms = -1, .next_expiry_in_ms = -1, .alone = p.alone};
		if (p.n < r->limit)
			report_sleep(ms, r, reply);
		if (p.n < r->limit && p.left)
			reply->next_due_in_ms = 0;
	}
	free(all);
	return rc;
}

int memstore_start_offered(struct memstore *ms, const struct sl_new_job *spec, const struct sl_offer *offer,
			   int64_t lease_ms, struct memstore_handed *out, const struct sl_store_scope *scope,
			   struct sl_err *err)
{
	const struct sl_claim_request as_request = {
		.claim = offer->claim, .worker = offer->worker, .lease_ms = lease_ms, .limit = 1};
	int rc = mem_enter(ms, NULL, "start", err);
	if (rc != 0)
		return rc;
	bool paused = mem_paused(ms, spec->type);
	struct mem_job *job = mem_make(ms, spec, NULL, paused ? scope : NULL);
	*out = (struct memstore_handed){.started = {.chain_id = job->id}, .now_ms = mem_now(ms)};
	if (!paused) {
		out->job = as_claimed(ms, job);
		take(ms, &job, 1, 1, &as_request);
	}
	if (ms->broken == MEMSTORE_OFFER_QUEUED)
		job->place = MEM_READY;
	return mem_leave(ms, NULL, 0, err);
}

void memstore_find_claimed(struct memstore *ms, const struct sl_claim_id *claim, struct memstore_handed *out)
{
	*out = (struct memstore_handed){.now_ms = 0};
	MEM_EACH(ms->s.leases, struct mem_lease, l)
	{
		struct mem_job *job = l->n == 1 ? mem_job(ms, l->ids[0]) : NULL;
		if (memcmp(&l->claim, claim, sizeof(*claim)) != 0 || job == NULL || job->fence != l->fences[0] ||
		    !mem_live(job))
			continue;
		out->job = as_claimed(ms, job);
		out->now_ms = l->since_ms;
	}
}

/* ---- circles ---- */

/* Does one of the chains that `chain` waits for, near or far, wait for `own`? *by: which. seen[] is by id. */
static bool leads_to(struct memstore *ms, uint64_t chain, uint64_t own, bool *seen, uint64_t *by)
{
	const struct mem_job *head = mem_chain(ms, chain);
	const struct mem_job *last = head != NULL ? mem_job(ms, head->last_id) : NULL;
	if (last == NULL || seen[chain] || last->status == SL_JOB_PENDING || last->status == SL_JOB_COMPLETED)
		return false;
	seen[chain] = true;
	for (uint32_t i = 0; i < last->n_edges; i++) {
		const struct mem_edge *edge = MEM_AT(ms->s.edges, struct mem_edge, last->first_edge + i);
		if (!edge->done && edge->chain_id == own)
			*by = chain;
		if (!edge->done && (edge->chain_id == own || leads_to(ms, edge->chain_id, own, seen, by)))
			return true;
	}
	return false;
}

static bool may_close_circle(const struct sl_settle *s)
{
	return s->kind == SL_SETTLE_CONTINUE && s->next->n_blockers > 0;
}

/* After the settles. */
static int check_circles(struct memstore *ms, const struct sl_settle *settles, size_t n, struct sl_err *err)
{
	bool *seen = malloc(ms->s.jobs.n + 1);
	uint64_t by = 0;
	int rc = 0;
	for (size_t i = 0; i < n && rc == 0; i++) {
		memset(seen, 0, ms->s.jobs.n + 1);
		if (may_close_circle(&settles[i]) && leads_to(ms, settles[i].chain_id, settles[i].chain_id, seen, &by))
			rc = sl_err_set(err, SL_EDATA, "chains %llu and %llu would wait for each other",
					(unsigned long long)settles[i].chain_id, (unsigned long long)by);
	}
	if (rc != 0 && err != NULL)
		err->error_class = SL_CLASS_POISON;
	free(seen);
	return rc;
}

static bool any_may_close_circle(const struct sl_settle *settles, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (may_close_circle(&settles[i]))
			return true;
	return false;
}

int mem_exchange(void *store, const struct sl_exchange *x, const struct sl_store_scope *scope, struct sl_err *err)
{
	sl_store_tx *tx = mem_tx(scope);
	const struct sl_settle *settles = x->settles;
	size_t n = x->n_settles;
	struct memstore *ms = store;
	int rc = mem_enter(ms, tx, "exchange", err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < n && rc == 0; i++)
		if (settles[i].kind == SL_SETTLE_CONTINUE)
			rc = mem_check_blockers(ms, settles[i].next, settles[i].chain_id, err);
	bool circles = any_may_close_circle(settles, n);
	/* The claim may still be refused by its callback. */
	bool undo = rc == 0 && n > 0 && (x->request != NULL || circles);
	struct mem_state before;
	if (undo)
		mem_snapshot(&before, &ms->s);
	for (size_t i = 0; i < n && rc == 0; i++)
		settle_one(ms, &settles[i], &x->results[i], scope);
	if (rc == 0 && circles)
		rc = check_circles(ms, settles, n, err);
	if (rc == 0 && x->request != NULL)
		rc = claim(ms, x->request, x->reply, x->claimed, x->claimed_ctx);
	if (undo && rc != 0)
		mem_restore(&ms->s, &before);
	else if (undo)
		mem_discard(&before);
	return mem_leave(ms, tx, rc, err);
}

/* ---- holding on, and taking back ---- */

int mem_guard(void *store, sl_store_tx *tx, uint64_t id, uint64_t fence, enum sl_lost_reason *out, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, tx, "guard", err);
	if (rc != 0)
		return rc;
	*out = mem_lost(ms, id, fence);
	return mem_leave(ms, tx, 0, err);
}

int mem_progress(void *store, uint64_t id, uint64_t fence, const char *progress, enum sl_lost_reason *out,
		 struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "progress", err);
	if (rc != 0)
		return rc;
	*out = mem_lost(ms, id, fence);
	if (*out == SL_LOST_NOT)
		mem_job(ms, id)->progress = mem_str(ms, progress);
	return mem_leave(ms, NULL, 0, err);
}

int mem_renew(void *store, const struct sl_renewal *renewals, size_t n, sl_lost_fn *lost, void *lost_ctx,
	      struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "renew", err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < n; i++) {
		const struct sl_renewal *r = &renewals[i];
		struct mem_lease *lease = find_lease(ms, &r->claim);
		if (lease != NULL) {
			lease->until_ms = mem_now(ms) + r->lease_ms;
			lease->started = lease->started || r->started;
		}
		for (size_t j = 0; j < r->n; j++) {
			enum sl_lost_reason why = mem_lost(ms, r->ids[j], r->fences[j]);
			if (why == SL_LOST_NOT && lease == NULL)
				why = SL_LOST_TAKEN;
			if (why != SL_LOST_NOT)
				lost(r->ids[j], r->fences[j], why, lost_ctx);
		}
	}
	return mem_leave(ms, NULL, 0, err);
}

static bool lost_before(struct memstore *ms, const struct mem_job *job)
{
	MEM_EACH(ms->s.attempts, struct mem_attempt, a)
	if (a->job_id == job->id && a->rec.outcome == SL_ATTEMPT_REAPED)
		return true;
	return false;
}

static void reap_job(struct memstore *ms, struct mem_job *job, const struct mem_lease *lease,
		     const struct sl_reap_type *type, const struct sl_store_scope *l)
{
	bool delayed = type->retry != NULL && lost_before(ms, job) && ms->broken != MEMSTORE_LOSS_WITHOUT_DELAY;
	mem_history(ms, job, SL_ATTEMPT_REAPED, lease->worker, NULL, lease->since_ms, (int32_t)job->fence,
		    &lease->claim);
	job->attempt = (int32_t)job->fence;
	job->leased_by = lease->worker;
	job->started_ms = lease->since_ms;
	if (lease->started && ms->broken != MEMSTORE_LOSS_FREE)
		job->charged++;
	if (ms->broken != MEMSTORE_REAP_LIVE)
		job->fence++;
	job->solo = true;
	if (delayed)
		job->scheduled_ms =
			mem_now(ms) + sl__retry_delay_ms(type->retry, (uint32_t)SL_MAX(job->charged, 1), NULL);
	job->place = delayed && job->scheduled_ms > mem_now(ms) ? MEM_SCHED : MEM_READY;
	mem_change(l, SL_CHANGE_REAPED, job);
	mem_note(l, SL_NOTE_JOB_SCHEDULED, job->type, job->id, SL_LOST_NOT);
	mem_note(l, SL_NOTE_OWNERSHIP_LOST, job->type, job->id, SL_LOST_TAKEN);
}

static const struct sl_reap_type *reap_wanted(const struct sl_reap_type *types, size_t n_types, const char *type)
{
	static const struct sl_reap_type any;
	for (size_t i = 0; i < n_types; i++)
		if (strcmp(types[i].type, type) == 0)
			return &types[i];
	return n_types == 0 ? &any : NULL;
}

struct mem_reaping {
	const struct sl_reap_type *types;
	size_t n_types;
	uint32_t limit;
	struct sl_reaped *out;
	const struct sl_store_scope *scope;
};

/* Reap what is left of the limit from one lease that has expired. True when a job of it is still held. */
static bool reap_lease(struct memstore *ms, const struct mem_lease *lease, const struct mem_reaping *x, bool expired)
{
	bool held = false;
	for (size_t i = 0; i < lease->n; i++) {
		struct mem_job *job = mem_job(ms, lease->ids[i]);
		if (job == NULL || !mem_live(job) || job->fence != lease->fences[i])
			continue;
		const struct sl_reap_type *type = reap_wanted(x->types, x->n_types, job->type);
		if (!expired || type == NULL || x->out->n == x->limit) {
			held = true;
			if (type == NULL)
				continue;
			x->out->more |= expired;
			x->out->next_expiry_in_ms = earlier(x->out->next_expiry_in_ms, lease->until_ms, mem_now(ms));
		} else if (ms->broken != MEMSTORE_LEASE_LOST) {
			reap_job(ms, job, lease, type, x->scope);
			x->out->n++;
		}
	}
	return held;
}

int mem_reap(void *store, const struct sl_reap_type *types, size_t n_types, uint32_t limit, struct sl_reaped *out,
	     const struct sl_store_scope *scope, struct sl_err *err)
{
	struct memstore *ms = store;
	struct mem_reaping x = {.types = types, .n_types = n_types, .limit = limit, .out = out, .scope = scope};
	int rc = mem_enter(ms, NULL, "reap", err);
	if (rc != 0)
		return rc;
	*out = (struct sl_reaped){.next_expiry_in_ms = -1};
	int64_t now = mem_now(ms);
	for (size_t i = 0; i < ms->s.leases.n; i++) {
		const struct mem_lease *lease = MEM_AT(ms->s.leases, struct mem_lease, i);
		bool expired = lease->until_ms <= now || ms->broken == MEMSTORE_REAP_LIVE;
		if (!reap_lease(ms, lease, &x, expired) && expired)
			mem_drop(&ms->s.leases, i--);
	}
	return mem_leave(ms, NULL, 0, err);
}
