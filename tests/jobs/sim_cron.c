/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules of the simulation: clients put and remove them, workers take turns (the real ones of cron.h), and what each
 * turn has fired is held against R12 and R13. */
#include "jobs/sim_priv.h"

#define CATCHING_UP_MS 2000

static const char *const cron_names[SIM_CRONS] = {"s0", "s1", "s2"};

static int64_t store_now(struct sim *sim)
{
	int64_t now = 0;
	if (sim->store.ops->now_ms(sim->store.ctx, &now, NULL) != 0)
		sim_fail(sim, "the store has no time");
	return now;
}

static int64_t tick_after(const struct sim_schedule *s, int64_t ms)
{
	int64_t next;
	return sl__cron_after(&s->parsed, ms, &next) == 0 ? next : INT64_MAX;
}

/* ---- turns, as keeper.c ---- */

static void turn(struct sim_fiber *f, void *arg)
{
	struct sim *sim = f->sim;
	struct sim_worker *w = arg;
	sl_store store = sim_fiber_store(f);
	struct sim_hearing h;
	struct sl__cron_turn done = {.next_ms = -1};
	struct sl_err err = SL_ERR_INIT;
	int64_t now = sl__core_store_ms(w->core, sim_clock(sim, w));
	bool asks = now == 0;
	const struct sl_store_scope *scope = sim_hear(&h);
	int rc = asks ? store.ops->now_ms(store.ctx, &now, &err) : 0;
	int64_t asked_ns = f->dead ? 0 : sim_clock(sim, w);
	f->turn_ms = now;
	if (rc == 0 && sim->opts.wrong != SIM_WRONG_NO_TURN)
		rc = sl__cron_turn(&sim->env, &store, now, scope, &done, &err);
	if (f->dead)
		return;
	sim->report->turns++;
	sim_trace(sim, "%s: a turn at %lld fired %u, the next is %lld%s", w->id, (long long)now, done.fired,
		  (long long)done.next_ms, rc != 0 ? ", failed" : "");
	if (asks && now != 0 && sl__core_store_ms(w->core, sim_clock(sim, w)) == 0)
		sl__core_store_clock(w->core, now, asked_ns);
	sl__core_cron_done(w->core, rc, done.next_ms, sim_clock(sim, w));
	for (size_t i = 0; i < h.n; i++)
		sl__core_note(w->core, &h.notes[i], sim_clock(sim, w));
	sim_publish(sim, h.notes, h.n);
	sim_wake(sim, w);
	sim_step(sim, w, &w->scheduler);
}

void sim_cron_turn(struct sim *sim, struct sim_worker *w)
{
	sim_fiber_start(sim, w, turn, w);
}

/* ---- clients ---- */

static void put(struct sim *sim, int i)
{
	static const char *const specs[] = {"* * * * *", "* * * * *", "*/2 * * * *", "*/5 * * * *", "1-59/3 * * * *"};
	struct sim_schedule *s = &sim->schedules[i];
	const char *type = sim_type_names[sim_range(sim, 0, SIM_TYPES - 1)];
	*s = (struct sim_schedule){
		.there = true, .spec = specs[sim_range(sim, 0, 4)], .catch_up = sim_chance(sim, 500)};
	if (sl__cron_parse(s->spec, &s->parsed, NULL) != 0)
		sim_fail(sim, "no schedule: %s", s->spec);
	s->at_ms = tick_after(s, store_now(sim));
	sim_trace(sim, "client: schedule %s is %s, catch-up %d, first at %lld", cron_names[i], s->spec, s->catch_up,
		  (long long)s->at_ms);
	const struct sl_cron cron = {
		.name = cron_names[i], .spec = s->spec, .type = type, .catch_up = s->catch_up, .next_ms = s->at_ms};
	if (sim->store.ops->cron_put(sim->store.ctx, &cron, NULL, NULL) != 0)
		sim_fail(sim, "a schedule could not be put");
	if (!sim_fault(sim, sim->k.lose_answer))
		sim_publish(sim, &(struct sl_note){.kind = SL_NOTE_JOB_SCHEDULED, .type = type}, 1);
}

static void take_out(struct sim *sim, int i)
{
	if (!sim->schedules[i].there)
		return;
	sim_trace(sim, "client: schedule %s is removed", cron_names[i]);
	sim->schedules[i].there = false;
	if (sim->store.ops->cron_remove(sim->store.ctx, cron_names[i], NULL, NULL) != 0)
		sim_fail(sim, "a schedule could not be removed");
}

static void change_cron(struct sim *sim, const struct sim_event *ev)
{
	if (sim->now_ns < sim->away_until_ns || sim_fault(sim, sim->k.lose_request))
		return;
	if (ev->which >= SIM_CRONS && sim_chance(sim, 300))
		take_out(sim, (int)(ev->which % SIM_CRONS));
	else
		put(sim, (int)(ev->which % SIM_CRONS));
}

void sim_plan_crons(struct sim *sim)
{
	for (int i = 0; i < sim->k.n_crons; i++)
		sim_at(sim, sim_range(sim, 0, sim->k.chaos_ms / 2) * SIM_MS, change_cron, NULL)->which = (uint64_t)i;
	for (int i = 0; i < sim->k.n_cron_puts; i++)
		sim_at(sim, sim_range(sim, 0, sim->k.chaos_ms) * SIM_MS, change_cron, NULL)->which =
			(uint64_t)(SIM_CRONS + sim_range(sim, 0, sim->k.n_crons - 1));
}

void sim_remove_crons(struct sim *sim)
{
	for (int i = 0; i < SIM_CRONS; i++)
		take_out(sim, i);
}

/* ---- R12, R13 ---- */

static struct sim_schedule *find(struct sim *sim, const char *name)
{
	for (int i = 0; i < SIM_CRONS; i++)
		if (strcmp(cron_names[i], name) == 0 && sim->schedules[i].there)
			return &sim->schedules[i];
	return NULL;
}

/* The schedule was moved on to next_ms: which ticks lie between? */
static void check_moved(struct sim *sim, const struct sim_schedule *s, const struct sim_call *c)
{
	int64_t next = c->next_ms, due = tick_after(s, s->catch_up ? c->seen.next_ms : c->turn_ms);
	for (int64_t t = tick_after(s, c->seen.next_ms); t < next; t = tick_after(s, t))
		sim->report->left_out++;
	if (tick_after(s, next - 1) != next)
		sim_fail(sim, "R12: schedule %s goes to %lld, which is no tick of %s", c->seen.name, (long long)next,
			 s->spec);
	else if (next > due)
		sim_fail(sim, "R13: schedule %s leaves tick %lld out", c->seen.name, (long long)due);
	else if (next < due)
		sim_fail(sim, "R13: schedule %s makes up for tick %lld", c->seen.name, (long long)next);
	else if (sim->clocks_true && !s->catch_up && c->turn_ms > store_now(sim))
		sim_fail(sim, "R13: schedule %s is fired by a clock that is ahead", c->seen.name);
}

void sim_check_fired(struct sim *sim, const struct sim_call *c, size_t rows_before)
{
	struct sim_schedule *s = find(sim, c->seen.name);
	size_t made = memstore_rows(sim->ms) - rows_before;
	bool fired = c->applied_rc == 0 && c->fired;
	if (made != (fired ? 1 : 0)) {
		sim_fail(sim, "R12: tick %lld of %s made %zu jobs", (long long)c->seen.next_ms, c->seen.name, made);
		return;
	}
	sim->report->races += c->applied_rc == 0 && !c->fired;
	if (!fired)
		return;
	sim->report->ticks++;
	if (s == NULL || s->at_ms != c->seen.next_ms)
		sim_fail(sim, "R12: tick %lld of %s was fired, which was not its next", (long long)c->seen.next_ms,
			 c->seen.name);
	else if (sim->settled_ns != 0 && sim->now_ns > sim->settled_ns &&
		 store_now(sim) - c->seen.next_ms > CATCHING_UP_MS)
		sim_fail(sim, "R12: tick %lld of %s comes %lld ms late", (long long)c->seen.next_ms, c->seen.name,
			 (long long)(store_now(sim) - c->seen.next_ms));
	else
		check_moved(sim, s, c);
	if (s != NULL)
		s->at_ms = c->next_ms;
}

void sim_check_punctual(struct sim *sim)
{
	int64_t now = store_now(sim);
	for (int i = 0; i < SIM_CRONS; i++) {
		const struct sim_schedule *s = &sim->schedules[i];
		if (s->there && s->at_ms < now - CATCHING_UP_MS)
			sim_fail(sim, "R12: tick %lld of %s was not fired in %lld ms", (long long)s->at_ms,
				 cron_names[i], (long long)(now - s->at_ms));
	}
}
