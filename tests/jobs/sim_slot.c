/* SPDX-License-Identifier: Apache-2.0 */
/* Slots and handlers of the simulation: when an attempt starts, how long it runs, how it ends. */
#include "jobs/sim_priv.h"

#include <stdlib.h>

/* What the end fields of a run point to. */
struct ending {
	char output[48], error[48];
	struct sl_new_job next;
	uint64_t children[SIM_CHILDREN];
};

void sim_release(struct sl__run *run, void *ctx)
{
	(void)ctx;
	free(run->owned);
	run->owned = NULL;
}

static int slot_of(const struct sim_worker *w, const struct sl__run *run)
{
	for (int i = 0; i < SIM_SLOTS; i++)
		if (w->slots[i].run == run)
			return i;
	return -1;
}

/* ---- the end of an attempt ---- */

static void hand_in(struct sim *sim, struct sim_worker *w, int i, enum sl__ending ending);
static void planned_end(struct sim *sim, const struct sim_event *ev);

static void rested(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0)
		return;
	struct sim_worker *w = &sim->workers[ev->worker];
	w->slots[ev->which].resting = false;
	sl__core_rested(w->core);
	sim_wake(sim, w);
}

static void hand_in(struct sim *sim, struct sim_worker *w, int i, enum sl__ending ending)
{
	struct sim_slot *slot = &w->slots[i];
	struct sl__run *run = slot->run;
	int lane = run->claim->lane;
	int64_t rest_ms = sim->k.next_job_delay_ms[run->type];
	sim_trace(sim, "%s: job %llu/%llu ends (%d), abort %d%s", w->id, (unsigned long long)run->id,
		  (unsigned long long)run->fence, ending, run->abort, run->declared ? ", declared" : "");
	slot->run = NULL;
	slot->calling = false;
	sl__core_end(w->core, run, ending, sim_clock(sim, w));
	sim_wake_lane(sim, w, lane);
	sim_look_settled(sim, w);
	if (rest_ms > 0) {
		slot->resting = true;
		sim_at(sim, sim->now_ns + rest_ms * SIM_MS, rested, w)->which = (uint64_t)i;
		return;
	}
	sim_fill_slots(sim, w);
	if (slot->run == NULL)
		sim_wake_offer(sim, w);
}

/* Fill the end fields once, as the handler declares how it ends. */
static void fill_end(struct sim *sim, struct sim_slot *slot)
{
	struct sl__run *run = slot->run;
	if (run->owned != NULL)
		return;
	struct ending *e = sim_alloc(sizeof(*e));
	run->owned = e;
	snprintf(e->output, sizeof(e->output), "\"%llu.%llu\"", (unsigned long long)run->id,
		 (unsigned long long)slot->plan.serial);
	snprintf(e->error, sizeof(e->error), "error %llu", (unsigned long long)slot->plan.serial);
	run->output = e->output;
	run->error = e->error;
	if (slot->plan.ending == SL__END_RESCHEDULE)
		run->delay_ms = sim_range(sim, 0, 500);
	if (slot->plan.ending != SL__END_CONTINUE)
		return;
	e->next = (struct sl_new_job){.type = sim_type_names[sim_range(sim, 0, SIM_TYPES - 1)], .input = "1"};
	if (sim_chance(sim, 200))
		e->next.delay_ms = sim_range(sim, 1, 300);
	if (!sim->calm && sim_chance(sim, sim->k.fan_out)) {
		e->next.blockers = e->children;
		e->next.n_blockers = sim_start_children(sim, e->children, (size_t)sim_range(sim, 1, SIM_CHILDREN));
	}
	if (!sim->calm && sim_chance(sim, 20)) { /* a mistake: there is no such chain */
		e->children[0] = SIM_ROWS * 2;
		e->next.blockers = e->children;
		e->next.n_blockers = 1;
	}
	run->continued = &e->next;
}

static enum sl_settle_kind kind_of(enum sl__ending ending)
{
	return ending == SL__END_CONTINUE     ? SL_SETTLE_CONTINUE
	       : ending == SL__END_FAIL       ? SL_SETTLE_FAIL
	       : ending == SL__END_RESCHEDULE ? SL_SETTLE_RESCHEDULE
					      : SL_SETTLE_COMPLETE;
}

static void declare(struct sim *sim, struct sim_slot *slot)
{
	if (slot->run->abort != SL_ABORT_NONE || slot->plan.ending == SL__END_FAILED)
		return;
	fill_end(sim, slot);
	slot->run->declared = 1;
}

/* As attempt.c: a transaction that settles the job commits after its events are durable. */
static bool events_durable(struct sim *sim, struct sim_worker *w, int i)
{
	struct sim_slot *slot = &w->slots[i];
	enum sim_flushed outcome = w->log != NULL ? sim_flushed(w, slot->run) : SIM_FLUSH_OK;
	if (outcome == SIM_FLUSH_OK || sim->opts.wrong == SIM_WRONG_NO_WAIT)
		return true;
	if (outcome == SIM_FLUSH_WAIT) {
		sim_at(sim, sim->now_ns + SIM_MS, planned_end, w)->which = slot->plan.serial;
		return false;
	}
	slot->run->declared = 0;
	hand_in(sim, w, i, SL__END_FAILED);
	return false;
}

static void return_now(struct sim *sim, struct sim_worker *w, int i)
{
	struct sim_slot *slot = &w->slots[i];
	bool aborted = slot->run->abort != SL_ABORT_NONE && !slot->run->declared;
	if (!aborted)
		declare(sim, slot);
	fill_end(sim, slot);
	if (!aborted && slot->plan.inside && slot->plan.ending != SL__END_FAILED) {
		if (!events_durable(sim, w, i))
			return;
		struct sl_settle s;
		slot->run->kind = kind_of(slot->plan.ending);
		sl__core_settle(w->core, slot->run, &s);
		slot->calling = true;
		sim_send_settle(sim, w, i, &s);
		return;
	}
	hand_in(sim, w, i, slot->plan.ending);
}

void sim_slot_answered(struct sim *sim, struct sim_worker *w, struct sim_call *c)
{
	struct sim_slot *slot = &w->slots[c->who];
	struct sl__run *run = slot->run;
	if (c->rc == 0 && c->results[0].lost == SL_LOST_NOT) {
		for (size_t i = 0; i < c->n_notes; i++)
			sl__core_note(w->core, &c->notes[i], sim_clock(sim, w));
		sim_wake(sim, w);
		hand_in(sim, w, c->who, SL__END_SETTLED);
		return;
	}
	run->declared = 0;
	if (c->rc == 0)
		sl__core_lost(w->core, &(struct sl__loss){run->id, run->fence, c->results[0].lost}, sim_abort, w);
	else
		run->uncertain = 1;
	hand_in(sim, w, c->who, SL__END_FAILED);
}

static void planned_end(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0)
		return;
	struct sim_worker *w = &sim->workers[ev->worker];
	for (int i = 0; i < SIM_SLOTS; i++)
		if (w->slots[i].run != NULL && w->slots[i].plan.serial == ev->which && !w->slots[i].calling)
			return_now(sim, w, i);
}

static void planned_declaration(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0)
		return;
	struct sim_worker *w = &sim->workers[ev->worker];
	for (int i = 0; i < SIM_SLOTS; i++)
		if (w->slots[i].run != NULL && w->slots[i].plan.serial == ev->which && !w->slots[i].calling)
			declare(sim, &w->slots[i]);
}

static void planned_line(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0)
		return;
	struct sim_worker *w = &sim->workers[ev->worker];
	for (int i = 0; i < SIM_SLOTS; i++)
		if (w->slots[i].run != NULL && w->slots[i].plan.serial == ev->which && !w->slots[i].calling)
			sim_emit(sim, w, w->slots[i].run);
}

void sim_abort(struct sl__run *run, enum sl_abort_reason reason, void *ctx)
{
	struct sim_worker *w = ctx;
	struct sim *sim = sim_of(w);
	int i = slot_of(w, run);
	sim_trace(sim, "%s: job %llu/%llu is aborted: %d", w->id, (unsigned long long)run->id,
		  (unsigned long long)run->fence, reason);
	if (i < 0)
		sim_fail(sim, "an abort for a run that no slot has");
	else if (w->slots[i].plan.obeys)
		sim_at(sim, sim->now_ns + sim_range(sim, 0, 20) * SIM_MS, planned_end, w)->which =
			w->slots[i].plan.serial;
}

/* ---- starting ---- */

static enum sl__ending draw_ending(struct sim *sim)
{
	int64_t x = sim_range(sim, 0, 99);
	if (sim->calm)
		return x < 95 ? SL__END_COMPLETE : x < 97 ? SL__END_CONTINUE : SL__END_FAILED;
	return x < 55   ? SL__END_COMPLETE
	       : x < 75 ? SL__END_CONTINUE
	       : x < 80 ? SL__END_FAIL
	       : x < 85 ? SL__END_RESCHEDULE
			: SL__END_FAILED;
}

static int64_t draw_duration_ns(struct sim *sim, const struct sl__core_type *type)
{
	if (!sim->probing && sim_chance(sim, sim->k.slow))
		return sim_range(sim, 1, type->lease_ms * 3) * SIM_MS;
	return sim_chance(sim, 700) ? sim_range(sim, 0, 2000) * 1000 : sim_range(sim, 1, 60) * SIM_MS;
}

static void start(struct sim *sim, struct sim_worker *w, int i, struct sl__run *run)
{
	struct sim_slot *slot = &w->slots[i];
	slot->run = run;
	slot->plan = (struct sim_plan){.ending = draw_ending(sim),
				       .obeys = sim->calm || !sim_chance(sim, sim->k.disobey),
				       .inside = sim_chance(sim, sim->k.inside),
				       .early = sim_chance(sim, 300),
				       .serial = ++sim->serial};
	sim_trace(sim, "%s: job %llu/%llu starts, attempt %d", w->id, (unsigned long long)run->id,
		  (unsigned long long)run->fence, run->attempt);
	sim_check_started(sim, w, run);
	int64_t takes = draw_duration_ns(sim, &w->types[run->type]);
	for (int64_t n = w->log != NULL ? sim_range(sim, 0, 3) : 0; n > 0; n--)
		sim_at(sim, sim->now_ns + sim_range(sim, 0, takes), planned_line, w)->which = slot->plan.serial;
	if (slot->plan.early)
		sim_at(sim, sim->now_ns + takes / 2, planned_declaration, w)->which = slot->plan.serial;
	sim_at(sim, sim->now_ns + takes, planned_end, w)->which = slot->plan.serial;
}

void sim_fill_slots(struct sim *sim, struct sim_worker *w)
{
	for (int i = 0; i < sim->k.slots; i++) {
		if (w->slots[i].run != NULL || w->slots[i].resting || !sl__core_waiting(w->core))
			continue;
		struct sl__run *run = sl__core_take(w->core, sim_clock(sim, w));
		if (run == NULL) { /* what it gave back must be settled */
			for (int lane = 0; lane < sim->k.lanes; lane++)
				sim_wake_lane(sim, w, lane);
			return;
		}
		start(sim, w, i, run);
	}
}
