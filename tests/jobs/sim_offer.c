/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offers of the simulation: what lane.c does for the first lane of a worker, and the list of offers that a store keeps
 * in each process. A start takes an offer out of the list before it sends anything; until the answer has come to the
 * process, the worker cannot take it back, and then hears how it went. Between them everything happens that happens to
 * other calls (sim_call.c).
 */
#include "jobs/sim_priv.h"

typedef unsigned long long ull;

/* ---- the worker's side ---- */

bool sim_offer_lacks(struct sim *sim, struct sim_worker *w)
{
	return !w->closing && sl__core_may_offer(w->core, sim_clock(sim, w)) > (w->offered ? w->offer.n_types : 0);
}

bool sim_offer_open(struct sim *sim, struct sim_worker *w)
{
	struct sim_offer *listed = &sim->offers[w->index];
	if (w->offered || sim->opts.wrong == SIM_WRONG_NO_OFFER ||
	    !sl__core_offer(w->core, sim_clock(sim, w), &w->offer_todo, &w->offer, w->offer_types))
		return false;
	w->offered = true;
	*listed = (struct sim_offer){
		.there = true, .life = w->life, .claim = w->offer.claim, .n_types = w->offer.n_types};
	memcpy(listed->types, w->offer_types, w->offer.n_types * sizeof(*listed->types));
	sim->report->offers++;
	sim_trace(sim, "%s offers to run %s (%zu types)", w->id, listed->types[0].type, listed->n_types);
	return true;
}

static bool withdraw(struct sim *sim, const struct sim_worker *w)
{
	struct sim_offer *listed = &sim->offers[w->index];
	bool back = listed->there && listed->life == w->life;
	if (!w->stopping || sim->opts.wrong != SIM_WRONG_OFFER_LEFT)
		listed->there = false;
	return back;
}

bool sim_offer_close(struct sim *sim, struct sim_worker *w)
{
	if (!w->offered || w->closing)
		return false;
	if (withdraw(sim, w)) {
		sl__core_withdrawn(w->core, &w->offer_todo);
		w->offered = false;
	} else {
		w->closing = true;
	}
	return true;
}

void sim_forget_offers(struct sim *sim, int process)
{
	sim->offers[process].there = false;
}

/* As on_taken. */
void sim_handed(struct sim *sim, struct sim_worker *w, struct sim_call *c)
{
	bool handed = c->rc == 0 && c->handed.job.id != 0;
	int64_t now = sim_clock(sim, w);
	sim_trace(sim, "%s: its offer was taken: %s", w->id, c->rc != 0 ? c->err.msg : handed ? "a job" : "queued");
	if (!w->offered) {
		sim_fail(sim, "R18: %s hears of an offer that it had taken back", w->id);
		return;
	}
	if (handed && sl__core_claimed(w->core, &w->offer_todo, &c->handed.job) != 0)
		sim_fail(sim, "the core refused a job that was handed over");
	sl__core_offer_accepted(w->core, &w->offer_todo,
				&(struct sl__offer_accepted){c->rc, c->sent_ns, c->handed.now_ms}, now);
	w->offered = w->closing = false;
	sim->report->handed += handed;
	if (c->rc == 0)
		sim_know(sim, c->handed.started.chain_id);
	sim_wake(sim, w);
	if (w->lanes[0].asleep)
		sim_step(sim, w, &w->lanes[0]);
}

/* ---- the store's side ---- */

/* R18. */
static void check_taken(struct sim *sim, const struct sim_offer *offer, const struct sim_worker *w)
{
	if (!w->alive || w->life != offer->life)
		sim_fail(sim, "R18: an offer was taken whose worker is gone");
	else if (!w->offered)
		sim_fail(sim, "R18: an offer of %s was taken that it had taken back", w->id);
	for (size_t i = 0; i < sim->n_taken; i++)
		if (memcmp(&sim->taken[i], &offer->claim, sizeof(offer->claim)) == 0)
			sim_fail(sim, "R18: an offer of %s was taken twice", w->id);
	if (sim->n_taken < sizeof(sim->taken) / sizeof(sim->taken[0]))
		sim->taken[sim->n_taken++] = offer->claim;
}

bool sim_hand_over(struct sim *sim, int process, const char *type)
{
	struct sim_worker *w = &sim->workers[process];
	struct sim_offer *listed = &sim->offers[process];
	size_t i = 0;
	while (i < listed->n_types && strcmp(listed->types[i].type, type) != 0)
		i++;
	if (!listed->there || i == listed->n_types || memstore_rows(sim->ms) >= SIM_ROWS)
		return false;
	listed->there = sim->opts.wrong == SIM_WRONG_OFFER_TWICE;
	check_taken(sim, listed, w);
	if (sim->report->failed)
		return true;
	sim->report->taken++;
	struct sim_call *c = sim_call_by(w, SIM_HAND_OVER);
	c->start = (struct sl_new_job){.type = listed->types[i].type, .input = "1"};
	c->offer = (struct sl_offer){.claim = listed->claim, .worker = sim_call_text(c, w->id)};
	c->offer_lease_ms = listed->types[i].lease_ms;
	c->sent_ns = sim_clock(sim, w);
	sim_trace(sim, "client: a job of %s for %s", type, w->id);
	sim_call_send(sim, c);
	sim->handing += c->refs;
	return true;
}

void sim_apply_handed(struct sim *sim, struct sim_call *c, const struct sl_store_scope *scope)
{
	c->applied_rc =
		memstore_start_offered(sim->ms, &c->start, &c->offer, c->offer_lease_ms, &c->handed, scope, &c->err);
	if (c->applied_rc != 0)
		return;
	sim_trace(sim, "  chain %llu for %s", (ull)c->handed.started.chain_id, c->offer.worker);
	if (c->handed.job.id != 0)
		sim_check_claimed(sim, &c->handed.job, false);
}
