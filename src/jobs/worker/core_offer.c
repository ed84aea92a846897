/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offers: a worker with an idle slot lets the store hand over the next job that is started in this process (struct
 * sl_offer). Only types for which the last claim found no more jobs are offered, so that queued jobs go first. An offer
 * reserves nothing: a job that is handed over while claims fill the slots waits like one that was claimed ahead.
 */
#include "jobs/worker/core_priv.h"

static uint32_t slots_left(int32_t slots, uint32_t used)
{
	return (uint32_t)slots > used ? (uint32_t)slots - used : 0;
}

static bool may_offer_type(const struct core_type *t)
{
	return t->dry && slots_left(t->cfg.slots, t->running + t->waiting.n + t->reserved) > 0;
}

size_t sl__core_may_offer(const struct sl__core *core, int64_t now_ns)
{
	size_t n = 0;
	if (core->stopping || core->paused || now_ns < core->backoff_ns ||
	    slots_left(core->cfg.slots, core->running + core->resting + core->waiting + core->reserved) == 0)
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

void sl__core_handed(struct sl__core *core, struct sl__todo *todo, int rc, int64_t sent_ns, int64_t now_ms,
		     int64_t now_ns)
{
	struct sl__claim *claim = todo->claim;
	struct core_lane *lane = &core->lanes[todo->who];
	if (rc == 0 && todo->refused == 0 && claim->n > 0) {
		const struct core_type *t = &core->types[claim->runs[0].type];
		bool armed = lane->armed; /* the lane keeps sleeping as before */
		todo->claim = NULL;
		claim->klass = t->klass;
		claim->lease_ms = t->cfg.lease_ms;
		claim->sent_ns = sent_ns;
		sl__core_publish(core, claim, now_ms, now_ns);
		lane->armed = armed;
		return;
	}
	/* If the claim may have been made, or could not be kept, the store is asked about it. */
	if (todo->refused != 0 || (rc != 0 && rc != SL_EAGAIN))
		sl__core_remember_claim(core, todo);
	else
		sl__core_withdrawn(core, todo);
}
