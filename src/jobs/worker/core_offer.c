/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offers: a worker with an idle slot lets the store hand it the next job that is started in this process (struct
 * sl_offer), or in another one when the offer is posted. Only types that a claim found empty are offered, so that what
 * waits in the queue goes first. Nothing is reserved for an offer: a job that comes while claims fill the slots waits
 * as one that was claimed ahead. One that comes by letter has a short lease until it is renewed.
 */
#include "jobs/worker/core_priv.h"

static uint32_t free_of(uint32_t cap, uint32_t used)
{
	return cap > used ? cap - used : 0;
}

/* Who starts a job for another process cannot know whether it was heard of there, and so whether the loss of it is to
 * be charged: what may run once is not offered to others. */
static uint32_t type_room(const struct sl__core *core, const struct core_type *t, bool posted)
{
	if (!t->dry || (posted && core->classes[t->klass].once))
		return 0;
	return free_of((uint32_t)t->cfg.slots, t->running + t->waiting.n + t->reserved);
}

static uint32_t slot_room(const struct sl__core *core, int64_t now_ns)
{
	if (core->stopping || core->paused || now_ns < core->backoff_ns)
		return 0;
	return free_of((uint32_t)core->cfg.slots, core->running + core->resting + core->waiting + core->reserved);
}

size_t sl__core_may_offer(const struct sl__core *core, int64_t now_ns, bool posted)
{
	size_t n = 0;
	if (slot_room(core, now_ns) == 0)
		return 0;
	for (size_t i = 0; i < core->n_types; i++)
		n += type_room(core, &core->types[i], posted) > 0;
	return n;
}

bool sl__core_last_slot(const struct sl__core *core)
{
	return free_of((uint32_t)core->cfg.slots, core->running + core->resting + core->waiting) == 1;
}

bool sl__core_offer(struct sl__core *core, int64_t now_ns, struct sl__todo *todo, struct sl_offer *offer,
		    struct sl_offer_type *types)
{
	uint32_t n = 0, room = SL_MIN(slot_room(core, now_ns), (uint32_t)core->cfg.claim_batch);
	for (uint32_t i = 0; i < core->n_types && room > 0; i++) {
		const struct core_type *t = &core->types[i];
		if (type_room(core, t, offer->accept_ms != 0) == 0)
			continue;
		offer->accept_ms = SL_MIN(offer->accept_ms, t->cfg.lease_ms);
		types[n] = (struct sl_offer_type){.type = t->cfg.name, .lease_ms = t->cfg.lease_ms};
		todo->types[n] = (struct sl_claim_type){.type = t->cfg.name, .limit = 1};
		todo->type_index[n++] = i;
	}
	struct sl__claim *claim = n > 0 ? sl__core_claim_get(core, 1) : NULL;
	if (claim == NULL)
		return false;
	claim->lane = todo->who;
	claim->held_ms = offer->accept_ms;
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

void sl__core_handed(struct sl__core *core, struct sl__todo *todo, int rc, int64_t sent_ns, int64_t now_ms,
		     int64_t now_ns)
{
	struct sl__claim *claim = todo->claim;
	struct core_lane *lane = &core->lanes[todo->who];
	if (rc == 0 && todo->refused == 0 && claim->n > 0) {
		const struct core_type *t = &core->types[claim->runs[0].type];
		bool armed = lane->armed; /* the lane sleeps as it did */
		todo->claim = NULL;
		claim->klass = t->klass;
		claim->lease_ms = t->cfg.lease_ms;
		claim->sent_ns = sent_ns;
		sl__core_publish(core, claim, now_ms, now_ns);
		lane->armed = armed;
		return;
	}
	/* A claim of which nobody knows whether it was made, or that could not be kept, is asked after. */
	if (todo->refused != 0 || (rc != 0 && rc != SL_EAGAIN))
		sl__core_remember_claim(core, todo);
	else
		sl__core_withdrawn(core, todo);
}
