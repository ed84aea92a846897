/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a lane settles, claims and offers next, and when.
 *
 * How many to claim. A free slot is always claimed for. Ahead of free slots, a type is claimed only as far as its
 * handlers, at the speed observed, will start it within SL__AHEAD_NS; nothing while all slots are stuck for that long.
 *
 * When to go. An ended run is settled at once, unless its lane's other runs, at the speed observed, will have been
 * started within SL__LINGER_NS: then all go together, SL__LINGER_NS later at the latest. So a lone job is settled
 * without delay, and a batch of short ones costs one exchange, which also claims the next batch. Where more wait than
 * that, those that end within SL__BUSY_LINGER_NS go together: the slots are busy meanwhile.
 *
 * When to sleep. A type is dry when a claim that could have found more of it did not; it stays so until a hint, the
 * poll, or the time when something is due. A claim sent before a hint proves nothing about it. While a claim is under
 * way to find out, the other lanes wait for its answer.
 */
#include "jobs/worker/core_priv.h"

/* ---- how many ---- */

static uint32_t room(uint32_t cap, uint32_t used)
{
	return cap > used ? cap - used : 0;
}

struct want {
	uint32_t limit, free, n_types;
	bool urgent; /* a slot is idle, or half a batch is wanted */
};

/* What the lane would claim of the class now. todo NULL: only count. */
static struct want want_of(const struct sl__core *core, int lane, uint32_t klass, int64_t now_ns, struct sl__todo *todo)
{
	struct want w = {0};
	uint32_t ahead = 0, sum = 0, slots = (uint32_t)core->cfg.slots, batch = (uint32_t)core->cfg.claim_batch;
	const struct core_class *class = &core->classes[klass];
	bool due = now_ns >= class->poll_ns;
	bool stuck = core->stats.busy + core->resting >= slots && now_ns - core->last_end_ns > SL__AHEAD_NS;
	for (uint32_t i = 0; i < core->n_types; i++) {
		const struct core_type *t = &core->types[i];
		if (t->klass != klass || (t->dry && !due))
			continue;
		/* Ahead of free slots: what its handlers will start within SL__AHEAD_NS. */
		uint32_t more = 0;
		if (!class->once && !class->alone && batch > 1 && t->avg_ns >= 0 && !stuck) {
			int64_t each = core_add(SL_MAX(t->avg_ns, 1000), core_ms(t->cfg.next_job_delay_ms));
			int64_t n = SL_MIN(t->cfg.slots, core->cfg.slots) * (SL__AHEAD_NS / each);
			more = (uint32_t)SL_MIN(n, (int64_t)batch * core->cfg.lanes);
		}
		uint32_t used = t->running + t->waiting.n + t->reserved;
		uint32_t limit = SL_MIN(room((uint32_t)t->cfg.slots + more, used), batch);
		if (limit == 0)
			continue;
		if (todo != NULL) {
			todo->types[w.n_types] = (struct sl_claim_type){
				.type = t->cfg.name, .limit = limit, .free = room((uint32_t)t->cfg.slots, used)};
			todo->type_index[w.n_types] = i;
		}
		ahead = SL_MAX(ahead, more);
		sum = limit > UINT32_MAX - sum ? UINT32_MAX : sum + limit;
		w.n_types++;
	}
	uint32_t used = core->stats.busy + core->resting + core->waiting + core->reserved;
	w.limit = SL_MIN(room(slots + ahead, used), room(batch, core->lanes[lane].waiting));
	w.limit = SL_MIN(w.limit, sum);
	w.free = room(slots, used);
	w.urgent = w.limit > 0 && (used < slots || w.limit >= (batch + 1) / 2);
	return w;
}

/* The class to claim from, in turns; n_classes: none. */
static uint32_t pick_class(const struct sl__core *core, int lane, int64_t now_ns, bool *urgent)
{
	uint32_t found = (uint32_t)core->n_classes;
	*urgent = false;
	for (uint32_t i = 0; i < core->n_classes; i++) {
		uint32_t klass = (core->lanes[lane].next_class + i) % (uint32_t)core->n_classes;
		const struct core_class *c = &core->classes[klass];
		/* While a claim is on its way to see whether there is anything, others of the class wait for its answer. */
		if (core->stopping || core->paused || (c->in_flight > 0 && !c->wet))
			continue;
		struct want w = want_of(core, lane, klass, now_ns, NULL);
		if (w.limit > 0 && (found == core->n_classes || (w.urgent && !*urgent))) {
			found = klass;
			*urgent = w.urgent;
		}
	}
	return found;
}

/* ---- when ---- */

/* How long an ended run of this lane may wait for others of it that will have been started soon, at the speed observed;
 * 0: there are none. */
static int64_t linger_ns(const struct sl__core *core, const struct core_lane *l)
{
	if (l->waiting == 0 || core->avg_ns < 0 || core->rests)
		return 0;
	int64_t each = SL_MAX(core->avg_ns, 1);
	if (each <= SL__LINGER_NS && l->waiting / (uint32_t)core->cfg.slots <= SL__LINGER_NS / each)
		return SL__LINGER_NS;
	return each <= SL__BUSY_LINGER_NS ? SL__BUSY_LINGER_NS : 0;
}

static bool lane_lingers(const struct sl__core *core, const struct core_lane *l, int64_t now_ns)
{
	return !core->stopping && l->ended.head->suspect == SL__RUN_TRUSTED &&
	       now_ns < core_add(l->ended.head->ended_ns, linger_ns(core, l));
}

bool sl__core_ready(const struct sl__core *core, int lane, int64_t now_ns)
{
	const struct core_lane *l = &core->lanes[lane];
	bool urgent;
	if (core->stopping && l->open == 0)
		return true;
	if (now_ns < core->backoff_ns || l->under_way)
		return false;
	if (core->lost != NULL)
		return true;
	if (l->ended.n > 0)
		return !l->armed || !lane_lingers(core, l, now_ns);
	if (l->armed && linger_ns(core, l) > 0)
		return false;
	return pick_class(core, lane, now_ns, &urgent) < core->n_classes && urgent;
}

/* ---- deciding ---- */

/* The runs to settle: a suspect alone, or as many trusted ones as fit. */
static void pick_runs(struct core_lane *l, struct sl__todo *todo)
{
	size_t max = l->ended.head != NULL && l->ended.head->suspect != SL__RUN_TRUSTED ? 1 : SL__SETTLE_MAX;
	while (l->ended.head != NULL && todo->n_runs < max && (max == 1 || l->ended.head->suspect == SL__RUN_TRUSTED)) {
		struct sl__run *run = l->ended.head;
		sl__core_remove(&l->ended, run);
		run->state = SL__RUN_SETTLING;
		todo->runs[todo->n_runs++] = run;
		run->claim->n_picked++;
	}
	/* The last run of a claim that has no other run left: the lease goes with it (C2). */
	for (size_t i = todo->n_runs; i-- > 0;) {
		struct sl__claim *c = todo->runs[i]->claim;
		todo->runs[i]->last = c->n_picked > 0 && c->n_gone + c->n_picked == c->n && !c->abandoned;
		c->n_picked = 0;
	}
}

void sl__core_reserve(struct sl__core *core, const struct sl__todo *todo, bool give)
{
	for (size_t i = 0; i < todo->request.n_types; i++) {
		struct core_type *t = &core->types[todo->type_index[i]];
		t->reserved = give ? t->reserved + todo->types[i].limit : t->reserved - todo->types[i].limit;
	}
	core->reserved = give ? core->reserved + todo->request.limit : core->reserved - todo->request.limit;
}

static bool prepare_claim(struct sl__core *core, struct sl__todo *todo, uint32_t klass, int64_t now_ns)
{
	struct core_class *c = &core->classes[klass];
	struct want w = want_of(core, todo->who, klass, now_ns, todo);
	struct sl__claim *claim = sl__core_claim_get(core, w.limit);
	if (claim == NULL)
		return false;
	bool polls = now_ns >= c->poll_ns;
	if (polls) {
		for (size_t i = 0; i < core->n_types; i++)
			if (core->types[i].klass == klass)
				core->types[i].dry = false;
		c->poll_ns =
			core_add(now_ns, core_ms(core->cfg.poll_ms)); /* not before: dry types may be due earlier */
		core->stats.polls++;
	}
	claim->lane = todo->who;
	claim->klass = klass;
	claim->lease_ms = c->lease_ms;
	claim->sent_ns = now_ns;
	todo->claim = claim;
	todo->request = (struct sl_claim_request){.claim = claim->id,
						  .worker = core->cfg.worker,
						  .types = todo->types,
						  .n_types = w.n_types,
						  .limit = w.limit,
						  .free = w.free,
						  .lease_ms = c->lease_ms,
						  .hinted = todo->n_runs == 0 && !polls};
	for (uint32_t i = 0; i < w.n_types; i++)
		todo->seen[i] = core->types[todo->type_index[i]].hints;
	sl__core_reserve(core, todo, true);
	c->in_flight++;
	core->lanes[todo->who].next_class = (klass + 1) % (uint32_t)core->n_classes;
	return true;
}

/* Ask for the jobs of a claim whose answer was lost: of any type, under a lease that suits them all. */
static void ask_again(struct sl__core *core, struct sl__todo *todo, int64_t now_ns)
{
	struct sl__claim *c = core->lost;
	int64_t lease_ms = core->types[0].cfg.lease_ms;
	for (uint32_t i = 0; i < core->n_types; i++) {
		todo->types[i] = (struct sl_claim_type){.type = core->types[i].cfg.name};
		todo->type_index[i] = i;
		lease_ms = SL_MIN(lease_ms, core->types[i].cfg.lease_ms);
	}
	core->lost = c->next;
	c->next = NULL;
	c->lane = todo->who;
	c->sent_ns = now_ns;
	c->held_ms = lease_ms;
	todo->claim = c;
	todo->request = (struct sl_claim_request){.claim = c->id,
						  .worker = core->cfg.worker,
						  .types = todo->types,
						  .n_types = core->n_types,
						  .limit = c->cap,
						  .lease_ms = lease_ms,
						  .again = true};
}

/* What a lane settles and claims while the worker runs. Returns when it should be called again without being woken. */
static int64_t next_working(struct sl__core *core, struct core_lane *l, int64_t now_ns, struct sl__todo *todo)
{
	/* Runs that wait too long because slow handlers have all their slots go back to the queue, for other workers. */
	int64_t wake = SL_FOREVER;
	for (size_t i = 0; i < core->n_types; i++) {
		struct core_type *t = &core->types[i];
		while (t->waiting.head != NULL &&
		       now_ns >= core_add(t->waiting.head->claim->replied_ns, SL__STUCK_NS)) {
			sl__core_give_back(core, t->waiting.head, SL_SETTLE_RELEASE, NULL, now_ns);
			t->avg_ns = SL_MAX(t->avg_ns, SL__AHEAD_NS + 1);
		}
		if (t->waiting.head != NULL)
			wake = SL_MIN(wake, core_add(t->waiting.head->claim->replied_ns, SL__STUCK_NS));
	}
	/* A run that ended by continuing makes a job that the claim of the same exchange can find. */
	for (const struct sl__run *run = l->ended.head; run != NULL; run = run->next) {
		const struct sl_new_job *next = run->continued;
		if (next == NULL || next->delay_ms > 0 || next->at_ms > 0 || next->n_blockers > 0)
			continue;
		for (size_t i = 0; i < core->n_types; i++)
			if (core->types[i].dry && strcmp(core->types[i].cfg.name, next->type) == 0)
				core->types[i].dry = false;
	}

	bool urgent;
	uint32_t klass = pick_class(core, todo->who, now_ns, &urgent);
	bool suspects = l->ended.n > 0 && l->ended.head->suspect != SL__RUN_TRUSTED;
	bool hold = l->ended.n > 0 ? lane_lingers(core, l, now_ns) : l->armed && linger_ns(core, l) > 0;
	l->armed = false;
	if (core->lost != NULL && !suspects) {
		pick_runs(l, todo);
		ask_again(core, todo, now_ns);
	} else if (!hold && (l->ended.n > 0 || (klass < core->n_classes && urgent))) {
		pick_runs(l, todo);
		if (klass < core->n_classes && !suspects && !prepare_claim(core, todo, klass, now_ns) &&
		    todo->n_runs == 0)
			return core_add(now_ns, SL__BACKOFF_FIRST_NS);
	}

	for (size_t i = 0; i < core->n_classes; i++)
		if (core->classes[i].poll_ns > now_ns)
			wake = SL_MIN(wake, core->classes[i].poll_ns);
	int64_t linger = linger_ns(core, l);
	l->armed = linger > 0;
	if (l->armed)
		wake = SL_MIN(wake, core_add(l->ended.n > 0 ? l->ended.head->ended_ns : now_ns, linger));
	return wake;
}

void sl__core_next(struct sl__core *core, int64_t now_ns, struct sl__todo *todo)
{
	todo->kind = SL__TODO_SLEEP;
	todo->wake_ns = SL_FOREVER;
	todo->sent_ns = now_ns;
	todo->n_runs = todo->n_renewals = 0;
	todo->claim = NULL;
	todo->refused = 0;
	todo->answered = false;
	if (todo->who < 0) {
		sl__core_next_keeper(core, now_ns, todo);
		return;
	}
	struct core_lane *l = &core->lanes[todo->who];
	if (now_ns < core->backoff_ns) {
		todo->wake_ns = core->backoff_ns;
	} else if (core->stopping) {
		if (l->ended.n > 0)
			pick_runs(l, todo);
		if (core->lost != NULL && !core->giving_up &&
		    (l->ended.n == 0 || l->ended.head->suspect == SL__RUN_TRUSTED))
			ask_again(core, todo, now_ns);
	} else {
		todo->wake_ns = next_working(core, l, now_ns, todo);
	}
	if (todo->n_runs > 0 || todo->claim != NULL) {
		todo->kind = SL__TODO_EXCHANGE;
		l->under_way = true;
	} else if (core->stopping && l->open == 0) {
		todo->kind = SL__TODO_END;
	}
}

/*
 * ---- offers ----
 *
 * A worker with an idle slot offers to run the next job that is started in this process (struct sl_offer).
 * Only types for which the last claim found no more jobs are offered, so that queued jobs go first. An offer reserves
 * nothing: a job that is started for it while claims fill the slots waits like one that was claimed ahead.
 */

static bool may_offer_type(const struct core_type *t)
{
	return t->dry && room((uint32_t)t->cfg.slots, t->running + t->waiting.n + t->reserved) > 0;
}

size_t sl__core_may_offer(const struct sl__core *core, int64_t now_ns)
{
	size_t n = 0;
	if (core->stopping || core->paused || now_ns < core->backoff_ns ||
	    room((uint32_t)core->cfg.slots, core->stats.busy + core->resting + core->waiting + core->reserved) == 0)
		return 0;
	for (size_t i = 0; i < core->n_types; i++)
		n += may_offer_type(&core->types[i]);
	return n;
}

bool sl__core_offer(struct sl__core *core, int64_t now_ns, struct sl__todo *todo, struct sl_offer *offer,
		    struct sl_offer_type *types)
{
	uint32_t n = 0;
	if (sl__core_may_offer(core, now_ns) == 0)
		return false;
	for (uint32_t i = 0; i < core->n_types; i++) {
		const struct core_type *t = &core->types[i];
		if (!may_offer_type(t))
			continue;
		types[n] = (struct sl_offer_type){.type = t->cfg.name, .lease_ms = t->cfg.lease_ms};
		todo->types[n] = (struct sl_claim_type){.type = t->cfg.name, .limit = 1};
		todo->type_index[n++] = i;
	}
	struct sl__claim *claim = sl__core_claim_get(core, 1);
	if (claim == NULL)
		return false;
	claim->lane = todo->who;
	todo->claim = claim;
	todo->refused = 0;
	todo->request = (struct sl_claim_request){
		.claim = claim->id, .worker = core->cfg.worker, .types = todo->types, .n_types = n, .limit = 1};
	offer->claim = claim->id;
	offer->worker = core->cfg.worker;
	offer->types = types;
	offer->n_types = n;
	return true;
}

void sl__core_withdrawn(struct sl__core *core, struct sl__todo *todo)
{
	sl__core_claim_put(core, todo->claim);
	todo->claim = NULL;
}

void sl__core_offer_accepted(struct sl__core *core, struct sl__todo *todo, const struct sl__offer_accepted *accepted,
			     int64_t now_ns)
{
	struct sl__claim *claim = todo->claim;
	struct core_lane *lane = &core->lanes[todo->who];
	if (accepted->rc == 0 && todo->refused == 0 && claim->n > 0) {
		const struct core_type *t = &core->types[claim->runs[0].type];
		bool armed = lane->armed; /* the lane keeps sleeping as before */
		todo->claim = NULL;
		claim->klass = t->klass;
		claim->lease_ms = t->cfg.lease_ms;
		claim->sent_ns = accepted->sent_ns;
		sl__core_publish(core, claim, accepted->now_ms, now_ns);
		lane->armed = armed;
		return;
	}
	/* If the claim may have been made, or could not be kept, the store is asked about it. */
	if (todo->refused != 0 || (accepted->rc != 0 && accepted->rc != SL_EAGAIN))
		sl__core_remember_claim(core, todo);
	else
		sl__core_withdrawn(core, todo);
}
