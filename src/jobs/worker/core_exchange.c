/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange: what is sent, and what follows from the answer.
 *
 * Refused data. A batch that the store refuses for its data is settled run by run (suspects), without a claim; the one
 * that is refused alone is settled as a failed attempt with the store's reason, then once more with a plain reason, and
 * then left to its lease.
 */
#include "jobs/worker/core_priv.h"

static const char refused_twice[] = "the store refused the end of the attempt";

/* ---- the request and the settles ---- */

int sl__core_claimed(const struct sl__core *core, struct sl__todo *todo, const struct sl_claimed_job *job)
{
	struct sl__claim *c = todo->claim;
	size_t at = 0;
	while (at < todo->request.n_types && strcmp(todo->types[at].type, job->type) != 0)
		at++;
	if (at == todo->request.n_types || c->n == c->cap) {
		todo->refused = SL_EDATA;
		return SL_EDATA;
	}
	struct sl__run *run = &c->runs[c->n];
	*run = (struct sl__run){.claim = c,
				.id = job->id,
				.chain_id = job->chain_id,
				.fence = job->fence,
				.created_ms = job->created_ms,
				.scheduled_ms = job->scheduled_ms,
				.attempt = job->attempt,
				.charged = job->charged,
				.priority = job->priority,
				.type = todo->type_index[at],
				.has_blockers = job->has_blockers,
				.state = SL__RUN_WAITING};
	run->input = sl__core_text(core->env, c->arena, job->input != NULL ? job->input : "null");
	if (job->traceparent != NULL)
		run->traceparent = sl__core_text(core->env, c->arena, job->traceparent);
	if (run->input == NULL || (job->traceparent != NULL && run->traceparent == NULL)) {
		todo->refused = SL_ENOMEM;
		return SL_ENOMEM;
	}
	c->n++;
	return 0;
}

void sl__core_settle(const struct sl__core *core, const struct sl__run *run, struct sl_settle *out)
{
	const struct sl__claim *claim = run->claim;
	/* For a run that a lane settles this was decided when it was picked: the claim's counts need the lock. */
	bool last = run->state == SL__RUN_SETTLING ? run->last : claim->n_gone + 1 == claim->n && !claim->abandoned;
	*out = (struct sl_settle){.kind = run->kind,
				  .id = run->id,
				  .chain_id = run->chain_id,
				  .fence = run->fence,
				  .claim = claim->id,
				  .last_of_claim = last,
				  .worker = core->cfg.worker,
				  .started_ms = run->started_ms,
				  .output = run->output,
				  .error = run->error,
				  .progress = run->progress,
				  .next = run->continued,
				  .delay_ms = run->delay_ms,
				  .at_ms = run->at_ms};
}

/* ---- the answer ---- */

int64_t sl__core_delay_ns(struct sl__core *core, uint32_t failures, bool transient)
{
	int64_t first = transient ? SL__BACKOFF_FIRST_NS / 10 : SL__BACKOFF_FIRST_NS;
	int64_t delay = SL_MIN(first << SL_MIN(failures, 10), SL__BACKOFF_CAP_NS);
	return delay / 2 + (int64_t)(sl__prng_unit(&core->prng) * (double)(delay / 2));
}

bool sl__core_done(const struct sl__run *run, const struct sl_settle_result *result)
{
	static const enum sl_lost_reason own[] = {
		[SL_SETTLE_COMPLETE] = SL_LOST_COMPLETED,  [SL_SETTLE_CONTINUE] = SL_LOST_COMPLETED,
		[SL_SETTLE_RETRY] = SL_LOST_PUT_BACK,      [SL_SETTLE_FAIL] = SL_LOST_FAILED,
		[SL_SETTLE_RESCHEDULE] = SL_LOST_PUT_BACK, [SL_SETTLE_RELEASE] = SL_LOST_PUT_BACK};
	return result->lost == SL_LOST_NOT || (run->uncertain && result->lost == own[run->kind]);
}

void sl__core_publish(struct sl__core *core, struct sl__claim *c, int64_t now_ms, int64_t now_ns)
{
	sl__core_leased(core, c, c->sent_ns);
	c->now_ms = now_ms;
	c->replied_ns = now_ns;
	c->next = core->claims;
	if (c->next != NULL)
		c->next->prev = c;
	core->claims = c;
	for (uint32_t i = 0; i < c->n; i++) {
		c->runs[i].order = core->order++;
		sl__core_push(&core->types[c->runs[i].type].waiting, &c->runs[i]);
	}
	core->waiting += c->n;
	core->stats.open += c->n;
	core->lanes[c->lane].waiting += c->n;
	core->lanes[c->lane].open += c->n;
	core->lanes[c->lane].armed = true;
	core->stats.claimed += c->n;
	if (core->stopping || core->paused)
		sl__core_release_waiting(core, now_ns);
}

/* What the answer to a claim says of its types: which of them are dry, and when to claim again. */
static void learn(struct sl__core *core, const struct sl__todo *todo, const struct sl_claim_reply *reply,
		  int64_t now_ns)
{
	struct core_class *class = &core->classes[todo->claim->klass];
	const struct sl__claim *c = todo->claim;
	size_t n_of_class = 0;
	/* One that is given alone, or what an earlier claim had: there may be more. */
	bool partly = c->n > 0 && reply->next_due_in_ms == 0;
	class->alone = reply->alone;
	class->wet = partly || c->n >= todo->request.limit;
	if (class->wet)
		return;
	for (size_t i = 0; i < todo->request.n_types; i++) {
		struct core_type *t = &core->types[todo->type_index[i]];
		uint32_t got = 0;
		for (uint32_t j = 0; j < c->n; j++)
			got += c->runs[j].type == todo->type_index[i];
		/* What waits for a free slot is there, and is asked for when there is one. */
		bool for_slot = reply->alone && (todo->request.free == 0 || todo->types[i].free == 0);
		if (got < todo->types[i].limit && t->hints == todo->seen[i] && !for_slot)
			t->dry = true;
	}
	if (reply->next_due_in_ms >= 0)
		class->poll_ns = SL_MIN(class->poll_ns, core_add(now_ns, core_ms(reply->next_due_in_ms + 1)));
	int64_t expiry =
		reply->next_expiry_in_ms >= 0 ? core_add(now_ns, core_ms(reply->next_expiry_in_ms + 1)) : SL_FOREVER;
	/* What was learned before still holds for types that were not asked for, and after a hinted claim, which may
	 * leave it out. */
	for (size_t i = 0; i < core->n_types; i++)
		n_of_class += core->types[i].klass == c->klass;
	bool whole = todo->request.n_types == n_of_class && !todo->request.hinted;
	class->expiry_ns = whole ? expiry : SL_MIN(class->expiry_ns, expiry);
}

/* ---- failures ---- */

bool sl__core_refused(const struct sl__todo *todo, int rc, const struct sl_err *err)
{
	if (rc == 0 || todo->n_runs == 0 || todo->refused != 0)
		return false;
	/* SL_ENOENT: a continuation waits for a chain that does not exist. */
	return rc == SL_EDATA || rc == SL_ETOOBIG || rc == SL_ENOENT || rc == SL_EINVAL ||
	       (err != NULL && err->error_class == SL_CLASS_POISON);
}

void sl__core_refuse(struct sl__core *core, struct sl__run *run, bool charged, const char *error)
{
	const char *copy = sl__core_text(core->env, run->claim->arena, error);
	if (charged)
		sl__core_set_failure(core, run);
	else
		sl__core_set_released(core, run);
	run->error = copy != NULL ? copy : charged ? refused_twice : "the events of the attempt could not be written";
}

/* The store may have made a claim whose answer was lost: the next exchange asks for its jobs. */
void sl__core_remember_claim(struct sl__core *core, struct sl__todo *todo)
{
	struct sl__claim *c = todo->claim, **at = &core->lost;
	while (*at != NULL)
		at = &(*at)->next;
	c->next = NULL;
	c->n = 0;
	*at = c;
	todo->claim = NULL;
}

/* A batch that was refused for its data is settled one by one from here on. A run that was refused alone is settled as
 * failed, first with the store's reason and then with a plain one. After another failure the runs are settled again
 * later, unless the worker gives up. */
static void fail_exchange(struct sl__core *core, struct sl__todo *todo, const struct sl__answer *answer, int64_t now_ns)
{
	const struct sl_err *err = answer->err;
	bool transient = answer->rc == SL_EAGAIN, refused = sl__core_refused(todo, answer->rc, err);
	bool alone = refused && todo->n_runs == 1 && todo->runs[0]->suspect != SL__RUN_TRUSTED;
	if (!refused) {
		core->stats.connected = transient;
		core->backoff_ns = core_add(now_ns, sl__core_delay_ns(core, core->failures, transient));
		core->failures++;
	}
	for (size_t i = todo->n_runs; i-- > 0;) {
		struct sl__run *run = todo->runs[i];
		if (refused ? alone && run->suspect == SL__RUN_REFUSED_TWICE : core->giving_up) {
			/* Left to the end of its lease, which no other run of the claim may give up then. */
			core->stats.abandoned++;
			run->claim->abandoned = true;
			sl__core_gone(core, run);
			continue;
		}
		if (alone) {
			bool with_reason = run->suspect == SL__RUN_ALONE && err != NULL && err->msg[0] != '\0';
			sl__core_refuse(core, run, true, with_reason ? err->msg : refused_twice);
			run->progress = NULL;
			run->suspect++;
		} else if (!refused) {
			run->uncertain = true;
			run->ended_ns = SL_MIN(run->ended_ns, now_ns);
		} else if (run->suspect == SL__RUN_TRUSTED) {
			run->suspect = SL__RUN_ALONE;
		}
		run->state = SL__RUN_ENDED;
		sl__core_push_front(&core->lanes[todo->who].ended, run);
	}
	if (todo->claim == NULL)
		return;
	if (!todo->request.again) {
		core->classes[todo->claim->klass].poll_ns = now_ns; /* nothing was learned */
		core->classes[todo->claim->klass].in_flight--;
		sl__core_reserve(core, todo, false);
	}
	/* What was refused or rolled back was not made. A claim that was sent again stays to be sent again. */
	bool unknown = !refused && !transient;
	if ((unknown || todo->request.again) && !core->giving_up)
		sl__core_remember_claim(core, todo);
	else
		sl__core_withdrawn(core, todo);
}

void sl__core_exchanged(struct sl__core *core, struct sl__todo *todo, const struct sl__answer *answer, int64_t now_ns)
{
	const struct sl_claim_reply *reply = answer->reply;
	core->lanes[todo->who].under_way = false;
	core->stats.exchanges++;
	if (answer->rc != 0) {
		fail_exchange(core, todo, answer, now_ns);
		return;
	}
	core->stats.connected = true;
	core->failures = 0;
	core->backoff_ns = INT64_MIN;
	for (size_t i = 0; i < todo->n_runs; i++) {
		struct sl__run *run = todo->runs[i];
		if (sl__core_done(run, &answer->results[i])) {
			sl__core_settled(core, run, now_ns);
		} else if (run->lost == SL_LOST_NOT) {
			core->stats.lost++;
		}
		sl__core_gone(core, run);
	}
	todo->n_runs = 0;
	if (reply != NULL && reply->epoch != core->epoch) {
		/* The store was out of reach, and may have forgotten claims: ask about all of them. */
		core->epoch = reply->epoch;
		for (struct sl__claim *c = core->claims; c != NULL; c = c->next)
			c->renew_ns = now_ns;
		if (core->claims != NULL)
			core->renew_ns = now_ns;
	}
	if (reply != NULL && reply->now_ms != 0)
		sl__core_store_clock(core, reply->now_ms, now_ns);
	struct sl__claim *c = todo->claim;
	if (c == NULL)
		return;
	if (!todo->request.again) {
		core->classes[c->klass].in_flight--;
		sl__core_reserve(core, todo, false);
		todo->answered = true;
		learn(core, todo, reply, now_ns);
	} else if (c->n > 0) {
		c->klass = core->types[c->runs[0].type].klass;
		c->lease_ms = core->classes[c->klass].lease_ms;
	}
	if (c->n > 0)
		sl__core_publish(core, c, reply->now_ms, now_ns);
	else
		sl__core_claim_put(core, c);
	todo->claim = NULL;
}
