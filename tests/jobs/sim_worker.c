/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers of the simulation: what the shell of src/jobs (worker.c, lane.c, keeper.c, stop.c) does with threads, done
 * with events. Wake-ups are given where the shell gives them and nowhere else, so that one that is missing shows.
 */
#include "jobs/sim_priv.h"

#include <stdlib.h>

/* ---- clock and chance of a worker ---- */

int64_t sim_clock(struct sim *sim, struct sim_worker *w)
{
	int64_t now = sim->now_ns + w->skew_ns;
	if (now > w->last_ns)
		w->last_ns = now;
	return w->last_ns; /* monotonic: after a jump back it does not advance */
}

static int fill_random(void *buf, size_t n, void *ctx)
{
	struct sim *sim = ctx;
	for (size_t i = 0; i < n; i++)
		((uint8_t *)buf)[i] = (uint8_t)sim_rand(sim);
	return 0;
}

static const struct sl_rand random_table = {.version = SL_RAND_VERSION, .fill = fill_random};

struct sim *sim_of(struct sim_worker *w)
{
	return w->env.rand_ctx;
}

/* ---- conversations ---- */

static struct sim_conv *sim_conv_of(struct sim_worker *w, int who)
{
	switch (who) {
	case SL__KEEPER:
		return &w->keeper;
	case SL__REAPER:
		return &w->reaper;
	case SL__SCHEDULER:
		return &w->scheduler;
	default:
		return &w->lanes[who];
	}
}

static void timer(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0)
		return;
	struct sim_worker *w = &sim->workers[ev->worker];
	struct sim_conv *conv = sim_conv_of(w, (int)(ev->which >> 32) + SL__SCHEDULER);
	if (conv->asleep && (uint32_t)conv->naps == (uint32_t)ev->which)
		sim_step(sim, w, conv);
}

static void nap(struct sim *sim, struct sim_worker *w, struct sim_conv *conv)
{
	conv->asleep = true;
	conv->wake_ns = conv->todo.wake_ns;
	conv->naps++;
	if (conv->wake_ns == SL_FOREVER)
		return;
	int64_t in = conv->wake_ns - sim_clock(sim, w);
	/* While the clock does not advance, nothing comes nearer: check again now and then, not in a busy loop. */
	if (in > 0 && sim->now_ns + w->skew_ns < w->last_ns)
		in = SL_MAX(in, 10 * SIM_MS);
	uint64_t who = (uint64_t)(conv->who - SL__SCHEDULER);
	/* A timer that is a little late is a timer. */
	sim_at(sim, sim->now_ns + (in > 0 ? in : 0) + 1000, timer, w)->which = who << 32 | (uint32_t)conv->naps;
}

static bool all_ended(const struct sim *sim, const struct sim_worker *w)
{
	bool ended = w->keeper.ended && w->reaper.ended && w->scheduler.ended;
	for (int i = 0; i < sim->k.lanes; i++)
		ended = ended && w->lanes[i].ended;
	return ended;
}

static void retire(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0)
		return;
	struct sim_worker *w = &sim->workers[ev->worker];
	sim_trace(sim, "%s has stopped; %llu abandoned", w->id, (unsigned long long)sl__core_stats(w->core)->abandoned);
	int index = w->index;
	sim_end_worker(sim, w);
	sim_spawn(sim, index);
}

/* As lane.c. Only the first lane has offers. */
static void decide(struct sim *sim, struct sim_worker *w, struct sim_conv *conv)
{
	for (;;) {
		int64_t now = sim_clock(sim, w);
		sl__core_next(w->core, now, &conv->todo);
		if (conv != &w->lanes[0] || !sim->k.offers)
			return;
		if (conv->todo.kind == SL__TODO_EXCHANGE) {
			(void)sim_offer_close(sim, w);
			return;
		}
		bool keep = sl__core_may_offer(w->core, now) > 0 && !(w->offered && sim_offer_lacks(sim, w));
		if (!(keep ? sim_offer_open(sim, w) : sim_offer_close(sim, w)))
			return;
	}
}

void sim_step(struct sim *sim, struct sim_worker *w, struct sim_conv *conv)
{
	conv->asleep = false;
	decide(sim, w, conv);
	bool awaits_taker = conv == &w->lanes[0] && w->offered;
	if (conv->todo.kind == SL__TODO_SLEEP || (conv->todo.kind == SL__TODO_END && awaits_taker)) {
		nap(sim, w, conv);
	} else if (conv->todo.kind == SL__TODO_END) {
		conv->ended = true;
		if (all_ended(sim, w))
			sim_at(sim, sim->now_ns, retire, w);
	} else {
		sim_send_todo(sim, w, conv);
	}
}

/* ---- waking, as sl__worker_wake ---- */

static void expire(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0)
		return;
	struct sim_worker *w = &sim->workers[ev->worker];
	int64_t now = sim_clock(sim, w);
	if (now < w->abort_at_ns) /* the clock was put back, or a later time was set */
		return;
	sl__core_expire(w->core, now, false, sim_abort, w);
	w->abort_at_ns = SL_FOREVER;
	sim_wake(sim, w);
}

static void set_clock(struct sim *sim, struct sim_worker *w)
{
	int64_t next = sl__core_next_abort_ns(w->core);
	if (next >= w->abort_at_ns)
		return;
	w->abort_at_ns = next;
	int64_t in = next - sim_clock(sim, w);
	sim_at(sim, sim->now_ns + (in > 0 ? in : 0) + 1000, expire, w);
}

void sim_wake_lane(struct sim *sim, struct sim_worker *w, int lane)
{
	if (w->lanes[lane].asleep && sl__core_ready(w->core, lane, sim_clock(sim, w)))
		sim_step(sim, w, &w->lanes[lane]);
}

void sim_wake_offer(struct sim *sim, struct sim_worker *w)
{
	if (w->lanes[0].asleep && sim->k.offers && sim_offer_lacks(sim, w))
		sim_step(sim, w, &w->lanes[0]);
}

void sim_wake(struct sim *sim, struct sim_worker *w)
{
	sim_fill_slots(sim, w);
	for (int i = 0; i < sim->k.lanes; i++)
		sim_wake_lane(sim, w, i);
	sim_wake_offer(sim, w);
	if (w->keeper.asleep && w->keeper.wake_ns > sl__core_wake_ns(w->core, SL__KEEPER, sim_clock(sim, w)))
		sim_step(sim, w, &w->keeper);
	if (w->reaper.asleep && w->reaper.wake_ns > sl__core_wake_ns(w->core, SL__REAPER, sim_clock(sim, w)))
		sim_step(sim, w, &w->reaper);
	if (w->scheduler.asleep && w->scheduler.wake_ns > sl__core_wake_ns(w->core, SL__SCHEDULER, sim_clock(sim, w)))
		sim_step(sim, w, &w->scheduler);
	set_clock(sim, w);
}

void sim_wake_all(struct sim *sim, struct sim_worker *w)
{
	for (int i = 0; i < sim->k.lanes; i++)
		if (w->lanes[i].asleep)
			sim_step(sim, w, &w->lanes[i]);
	if (w->keeper.asleep)
		sim_step(sim, w, &w->keeper);
	if (w->reaper.asleep)
		sim_step(sim, w, &w->reaper);
	if (w->scheduler.asleep)
		sim_step(sim, w, &w->scheduler);
}

void sim_deliver_note(struct sim *sim, struct sim_worker *w, const struct sl_note *note)
{
	sl__core_note(w->core, note, sim_clock(sim, w));
	sim_wake(sim, w);
}

/* ---- answers ---- */

static void own_notes(struct sim *sim, struct sim_worker *w, const struct sim_conv *conv, const struct sim_call *c)
{
	for (size_t i = 0; i < c->n_notes; i++)
		if (c->kind != SIM_EXCHANGE || !sl__core_satisfied(w->core, &conv->todo, &c->notes[i]))
			sl__core_note(w->core, &c->notes[i], sim_clock(sim, w));
}

static void exchanged(struct sim *sim, struct sim_worker *w, struct sim_conv *conv, const struct sim_call *c)
{
	/* An answer that broke off may have delivered a part of the jobs. */
	size_t delivered = c->rc == 0 ? c->n_claimed : c->n_claimed / 2;
	for (size_t i = 0; i < delivered; i++)
		if (sl__core_claimed(w->core, &conv->todo, &c->claimed[i].job) != 0)
			sim_fail(sim, "the core refused a claimed job");
	sl__core_exchanged(w->core, &conv->todo, &(struct sl__answer){c->rc, &c->err, c->results, &c->reply},
			   sim_clock(sim, w));
}

void sim_answered(struct sim *sim, struct sim_worker *w, struct sim_call *c)
{
	struct sim_conv *conv = sim_conv_of(w, c->who);
	int64_t now = sim_clock(sim, w);
	switch (c->kind) {
	case SIM_RENEW:
		for (size_t i = 0; i < c->n_lost && c->rc == 0; i++)
			sl__core_lost(w->core, &(struct sl__loss){c->lost[i].id, c->lost[i].fence, c->lost[i].reason},
				      sim_abort, w);
		for (size_t i = 0; i < c->n_lost && c->rc == 0; i++)
			sim_check_lost(sim, w, &c->lost[i]);
		sl__core_renewed(w->core, &conv->todo, c->rc, now);
		break;
	case SIM_REAP:
		sl__core_reaped(w->core, c->rc, &c->reaped, now);
		break;
	case SIM_CRON:
		sl__core_cron_done(w->core, c->rc, -1, now);
		break;
	default:
		exchanged(sim, w, conv, c);
		break;
	}
	if (c->rc == 0)
		own_notes(sim, w, conv, c);
	sim_wake(sim, w);
	sim_step(sim, w, conv);
	sim_look_settled(sim, w);
}

/* ---- life and death ---- */

static void make_types(struct sim *sim, struct sim_worker *w)
{
	for (int i = 0; i < SIM_TYPES; i++) {
		w->types[i] = (struct sl__core_type){.name = sim_type_names[i],
						     .retry = {.max_attempts = sim->k.max_attempts[i],
							       .first_ms = 20,
							       .cap_ms = 1000,
							       .multiplier = 2,
							       .jitter = SL_JITTER_HALF},
						     .lease_ms = sim->k.lease_ms[i],
						     .renew_ms = sim->k.lease_ms[i] / 3,
						     .timeout_ms = sim->k.timeout_ms[i],
						     .slots = i == 0 ? 1 : sim->k.slots,
						     .next_job_delay_ms = sim->k.next_job_delay_ms[i]};
		w->reap_types[i] = (struct sl_reap_type){.type = w->types[i].name, .retry = &w->types[i].retry};
	}
}

static void make_conv(struct sim *sim, struct sim_worker *w, struct sim_conv *conv, int who)
{
	*conv = (struct sim_conv){.who = who};
	if (sl__todo_init(&conv->todo, w->core, who, NULL) != 0)
		abort();
	(void)sim;
}

void sim_spawn(struct sim *sim, int index)
{
	struct sim_worker *w = &sim->workers[index];
	*w = (struct sim_worker){.index = index, .alive = true, .life = w->life + 1, .abort_at_ns = SL_FOREVER};
	snprintf(w->id, sizeof(w->id), "w%d.%u", index, w->life);
	struct sl_env env = {SL_ENV_INIT, .rand = &random_table, .rand_ctx = sim};
	if (sl__env_init(&w->env, &env, NULL) != 0)
		abort();
	make_types(sim, w);
	struct sl__core_cfg cfg = {.env = &w->env,
				   .worker = w->id,
				   .types = w->types,
				   .n_types = SIM_TYPES,
				   .slots = sim->k.slots,
				   .claim_batch = sim->k.claim_batch,
				   .lanes = sim->k.lanes,
				   .poll_ms = sim->k.poll_ms,
				   .release = sim_release,
				   .release_ctx = w};
	w->last_ns = sim->now_ns;
	if (sl__core_new(&w->core, &cfg, sim_clock(sim, w), NULL) != 0)
		abort();
	sim_trace(sim, "%s begins", w->id);
	if (sim->k.events)
		sim_log_open(sim, w);
	for (int i = 0; i < sim->k.lanes; i++)
		make_conv(sim, w, &w->lanes[i], i);
	make_conv(sim, w, &w->keeper, SL__KEEPER);
	make_conv(sim, w, &w->reaper, SL__REAPER);
	make_conv(sim, w, &w->scheduler, SL__SCHEDULER);
	if (sl__todo_init(&w->offer_todo, w->core, 0, NULL) != 0)
		abort();
	for (int i = 0; i < sim->k.lanes; i++)
		sim_step(sim, w, &w->lanes[i]);
	sim_step(sim, w, &w->keeper);
	sim_step(sim, w, &w->reaper);
	sim_step(sim, w, &w->scheduler);
}

void sim_kill(struct sim *sim, struct sim_worker *w)
{
	sim_forget_offers(sim, w->index);
	sim_end_worker(sim, w);
}

void sim_end_worker(struct sim *sim, struct sim_worker *w)
{
	sim_check_worker(sim, w);
	for (int i = 0; i < sim->k.lanes; i++)
		sl__todo_fini(&w->lanes[i].todo, w->core);
	sl__todo_fini(&w->keeper.todo, w->core);
	sl__todo_fini(&w->reaper.todo, w->core);
	sl__todo_fini(&w->scheduler.todo, w->core);
	sl__todo_fini(&w->offer_todo, w->core);
	sl__core_free(w->core);
	w->core = NULL;
	w->alive = false;
	sim_log_left(sim, w);
}

void sim_jump(struct sim *sim, struct sim_worker *w, int64_t ns)
{
	sim_trace(sim, "the clock of %s jumps by %lld ms", w->id, (long long)(ns / SIM_MS));
	w->skew_ns += ns;
	if (ns < 0 || w->paused_until_ns > sim->now_ns)
		return;       /* timers fire early then, which is allowed */
	sim_wake_all(sim, w); /* sleepers see that their time has come */
	w->abort_at_ns = SL_FOREVER;
	set_clock(sim, w);
}

/* ---- stopping, as stop.c ---- */

static void all_settled(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker >= 0)
		sim_wake_all(sim, &sim->workers[ev->worker]);
}

void sim_look_settled(struct sim *sim, struct sim_worker *w)
{
	if (w->stopping && sl__core_stats(w->core)->open == 0)
		sim_at(sim, sim->now_ns, all_settled, w);
}

static void give_up(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0)
		return;
	struct sim_worker *w = &sim->workers[ev->worker];
	if (sl__core_stats(w->core)->busy > 0) {
		sim_at(sim, sim->now_ns + 50 * SIM_MS, give_up, w);
		return;
	}
	if (sl__core_stats(w->core)->open == 0)
		return;
	sim_trace(sim, "%s gives up on its last settles", w->id);
	w->gave_up = true;
	sl__core_give_up(w->core);
	sim_wake_all(sim, w);
}

static void abort_late(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0)
		return;
	struct sim_worker *w = &sim->workers[ev->worker];
	sl__core_abort_all(w->core, sim_abort, w);
	sim_at(sim, sim->now_ns + sim_range(sim, 0, 1000) * SIM_MS, give_up, w);
}

void sim_stop(struct sim *sim, struct sim_worker *w)
{
	sim_trace(sim, "%s is asked to stop", w->id);
	w->stopping = true;
	sl__core_stop(w->core, sim_clock(sim, w));
	sim_wake_all(sim, w);
	sim_look_settled(sim, w);
	sim_at(sim, sim->now_ns + sim_range(sim, 0, 1500) * SIM_MS, abort_late, w);
}
