/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of the simulation: chains are started, and then meddled with. A client's call is lost, or its answer is. */
#include "jobs/sim_priv.h"

static bool lost_on_the_way(struct sim *sim)
{
	return sim->now_ns < sim->away_until_ns || sim_fault(sim, sim->k.lose_request);
}

void sim_know(struct sim *sim, uint64_t chain_id)
{
	if (sim->n_chains < SIM_ROWS)
		sim->chains[sim->n_chains++] = chain_id;
}

static uint64_t any_chain(struct sim *sim)
{
	return sim->chains[sim_range(sim, 0, (int64_t)sim->n_chains - 1)];
}

static int start(struct sim *sim, const struct sl_new_chain *chains, size_t n, struct sl_started *out)
{
	struct sim_hearing h;
	struct sl_err err = SL_ERR_INIT;
	if (lost_on_the_way(sim) || memstore_rows(sim->ms) + n > SIM_ROWS)
		return SL_EUNAVAIL;
	int rc = sim->store.ops->start(sim->store.ctx, chains, n, sim_hear(&h), out, &err);
	sim_check(sim, "start");
	if (rc == 0 && sim_fault(sim, sim->k.lose_answer))
		return SL_EUNAVAIL;
	if (rc == 0)
		sim_publish(sim, h.notes, h.n);
	return rc;
}

size_t sim_start_children(struct sim *sim, uint64_t *out, size_t n)
{
	struct sl_new_chain chains[SIM_CHILDREN] = {{.key = NULL}};
	struct sl_started started[SIM_CHILDREN];
	for (size_t i = 0; i < n; i++)
		chains[i] = (struct sl_new_chain){.job = {.type = sim_type_names[sim_range(sim, 0, SIM_TYPES - 1)]}};
	if (start(sim, chains, n, started) != 0)
		return 0;
	for (size_t i = 0; i < n; i++) {
		out[i] = started[i].chain_id;
		sim_know(sim, out[i]);
	}
	return n;
}

uint64_t sim_start_probe(struct sim *sim, int type, int64_t delay_ms)
{
	struct sl_new_chain chain = {.job = {.type = sim_type_names[type], .delay_ms = delay_ms}};
	struct sl_started started = {0};
	if (start(sim, &chain, 1, &started) != 0)
		sim_fail(sim, "a probe could not be started");
	sim_trace(sim, "probe: chain %llu in %lld ms", (unsigned long long)started.chain_id, (long long)delay_ms);
	return started.chain_id;
}

static size_t draw_blockers(struct sim *sim, uint64_t out[3])
{
	size_t n = 0;
	for (int64_t tries = sim_range(sim, 1, 3); tries > 0 && sim->n_chains > 0; tries--) {
		uint64_t id = any_chain(sim);
		bool twice = false;
		for (size_t i = 0; i < n; i++)
			twice = twice || out[i] == id;
		if (!twice)
			out[n++] = id;
	}
	return n;
}

static void start_chain(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	static const char *const keys[] = {"k0", "k1", "k2"};
	uint64_t blockers[3];
	struct sl_new_chain chain = {.job = {.type = sim_type_names[sim_range(sim, 0, SIM_TYPES - 1)],
					     .priority = (int32_t)sim_range(sim, -1, 1),
					     .blockers = blockers}};
	struct sl_started started;
	if (sim_chance(sim, 300))
		chain.job.n_blockers = draw_blockers(sim, blockers);
	if (sim_chance(sim, 200))
		chain.job.delay_ms = sim_range(sim, 1, 2000);
	if (sim_chance(sim, 150)) {
		chain.key = keys[sim_range(sim, 0, 2)];
		chain.scope = sim_chance(sim, 500) ? SL_DEDUP_ANY : SL_DEDUP_INCOMPLETE;
		chain.window_ms = sim_chance(sim, 300) ? sim_range(sim, 1, 1000) : 0;
	}
	if (start(sim, &chain, 1, &started) != 0)
		return;
	sim_trace(sim, "client: chain %llu, %zu blockers%s", (unsigned long long)started.chain_id, chain.job.n_blockers,
		  started.deduplicated ? ", deduplicated" : "");
	if (!started.deduplicated)
		sim_know(sim, started.chain_id);
}

static int complete_outside(struct sim *sim, uint64_t id, const struct sl_store_scope *l, struct sl_err *err)
{
	int rc = sim->store.ops->complete_chain(sim->store.ctx, id, "\"outside\"", l, err);
	if (rc == 0)
		sim->report->completions++;
	return rc;
}

static void meddle(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	static const char *const names[] = {"cancel",  "cancel",   "redrive", "redrive", "redrive",
					    "trigger", "complete", "remove",  "pause",   "resume"};
	if (sim->n_chains == 0 || lost_on_the_way(sim))
		return;
	const struct sl_store_ops *ops = sim->store.ops;
	void *s = sim->store.ctx;
	uint64_t ids[2] = {any_chain(sim), any_chain(sim)};
	size_t n_ids = ids[0] == ids[1] ? 1 : 2, n = 0;
	int what = (int)sim_range(sim, 0, 9), rc = 0;
	const char *type = sim_type_names[sim_range(sim, 0, SIM_TYPES - 1)];
	struct sim_hearing h;
	const struct sl_store_scope *l = sim_hear(&h);
	struct sl_err err = SL_ERR_INIT;
	sim_trace(sim, "client: %s %llu", names[what], (unsigned long long)ids[0]);
	sim->redriving = what >= 2 && what <= 4;
	if (what < 2)
		rc = ops->cancel(s, (struct sl_ids){ids, n_ids}, l, &n, &err);
	else if (what < 5)
		rc = ops->redrive(s, (struct sl_ids){ids, n_ids}, l, &n, &err);
	else if (what == 5)
		rc = ops->trigger(s, (struct sl_ids){ids, n_ids}, l, &n, &err);
	else if (what == 6)
		rc = complete_outside(sim, ids[0], l, &err);
	else if (what == 7)
		rc = ops->remove(s, (struct sl_ids){ids, 1}, sim_chance(sim, 500), l, &n, &err);
	else
		rc = ops->pause(s, type, what == 8, l, &err);
	sim_check(sim, names[what]);
	sim->redriving = false;
	if (rc == 0 && !sim_fault(sim, sim->k.lose_answer))
		sim_publish(sim, h.notes, h.n);
}

/* In the process of a worker; an offer that is open there gets the job. */
static void start_beside(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	int process = (int)sim_range(sim, 0, sim->k.n_workers - 1);
	const char *type = sim_type_names[sim_range(sim, 0, SIM_TYPES - 1)];
	const struct sim_worker *w = &sim->workers[process];
	struct sl_new_chain chain = {.job = {.type = type}};
	struct sl_started started;
	if (!w->alive || w->paused_until_ns > sim->now_ns || sim_hand_over(sim, process, type))
		return;
	if (start(sim, &chain, 1, &started) == 0)
		sim_know(sim, started.chain_id);
}

static void fail_outside(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	struct sim_hearing h;
	struct sl_err err = SL_ERR_INIT;
	struct memstore_row row;
	if (sim->n_chains == 0 || lost_on_the_way(sim))
		return;
	uint64_t id = any_chain(sim);
	for (memstore_row(sim->ms, id, &row); row.next_id != 0;)
		memstore_row(sim->ms, row.next_id, &row);
	sim_trace(sim, "client: fail %llu", (unsigned long long)id);
	int rc = sim->store.ops->fail_chain(sim->store.ctx, id, "from outside", sim_hear(&h), &err);
	if (rc == 0) {
		sim->report->failed_outside++;
		sim->report->failed_leased += row.leases > 0;
	}
	sim_check(sim, "fail");
	if (rc == 0 && !sim_fault(sim, sim->k.lose_answer))
		sim_publish(sim, h.notes, h.n);
}

static void plan(struct sim *sim, int n, sim_fn *fn)
{
	for (int i = 0; i < n; i++)
		sim_at(sim, sim_range(sim, 0, sim->k.chaos_ms) * SIM_MS, fn, NULL);
}

void sim_plan_clients(struct sim *sim)
{
	plan(sim, sim->k.n_chains, start_chain);
	plan(sim, sim->k.n_meddles, meddle);
	plan(sim, sim->k.n_beside, start_beside);
	plan(sim, sim->k.n_fails, fail_outside);
}
