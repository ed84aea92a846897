/* SPDX-License-Identifier: Apache-2.0 */
/* The clockwork of the simulation: a heap of events in virtual time, chance from a seed, and the course of a run. */
#include "jobs/sim_priv.h"

#include <stdarg.h>
#include <stdlib.h>

const char *const sim_type_names[SIM_TYPES] = {"a", "b", "c"};

/* ---- chance ---- */

uint64_t sim_rand(struct sim *sim)
{
	uint64_t z = sim->rng += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

int64_t sim_range(struct sim *sim, int64_t from, int64_t to)
{
	return from + (int64_t)(sim_rand(sim) % (uint64_t)(to - from + 1));
}

bool sim_chance(struct sim *sim, uint32_t thousandths)
{
	return sim_rand(sim) % 1000 < thousandths;
}

bool sim_fault(struct sim *sim, uint32_t thousandths)
{
	return !sim->calm && thousandths > 0 && sim_chance(sim, thousandths);
}

/* ---- telling ---- */

void sim_trace(struct sim *sim, const char *fmt, ...)
{
	if (!sim->opts.trace)
		return;
	va_list args;
	va_start(args, fmt);
	printf("# %10.3f ms  ", (double)sim->now_ns / 1e6);
	vprintf(fmt, args);
	printf("\n");
	va_end(args);
}

void sim_fail(struct sim *sim, const char *fmt, ...)
{
	if (sim->report->failed)
		return;
	sim->report->failed = true;
	va_list args;
	va_start(args, fmt);
	vsnprintf(sim->report->why, sizeof(sim->report->why), fmt, args);
	va_end(args);
	sim_trace(sim, "FAILED: %s", sim->report->why);
}

void *sim_alloc(size_t n)
{
	void *p = calloc(1, n > 0 ? n : 1);
	if (p == NULL)
		abort();
	return p;
}

void *sim_keep(struct sim *sim, size_t n)
{
	if (sim->n_kept == sim->cap_kept) {
		sim->cap_kept = sim->cap_kept * 2 + 64;
		sim->kept = realloc(sim->kept, sim->cap_kept * sizeof(*sim->kept));
		if (sim->kept == NULL)
			abort();
	}
	return sim->kept[sim->n_kept++] = sim_alloc(n);
}

/* ---- the heap: by time, then in the order in which they were made ---- */

static bool before(const struct sim_event *a, const struct sim_event *b)
{
	return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

struct sim_event *sim_at(struct sim *sim, int64_t at_ns, sim_fn *fn, const struct sim_worker *w)
{
	if (sim->n_heap == sim->cap_heap) {
		sim->cap_heap = sim->cap_heap * 2 + 64;
		sim->heap = realloc(sim->heap, sim->cap_heap * sizeof(*sim->heap));
		if (sim->heap == NULL)
			abort();
	}
	struct sim_event ev = {.at_ns = at_ns < sim->now_ns ? sim->now_ns : at_ns,
			       .order = sim->order++,
			       .fn = fn,
			       .worker = w != NULL ? w->index : -1,
			       .life = w != NULL ? w->life : 0};
	size_t i = sim->n_heap++;
	for (; i > 0 && before(&ev, &sim->heap[(i - 1) / 2]); i = (i - 1) / 2)
		sim->heap[i] = sim->heap[(i - 1) / 2];
	sim->heap[i] = ev;
	return &sim->heap[i];
}

static struct sim_event pop(struct sim *sim)
{
	struct sim_event top = sim->heap[0], last = sim->heap[--sim->n_heap];
	size_t i = 0;
	for (size_t c = 1; c < sim->n_heap; c = 2 * i + 1) {
		if (c + 1 < sim->n_heap && before(&sim->heap[c + 1], &sim->heap[c]))
			c++;
		if (!before(&sim->heap[c], &last))
			break;
		sim->heap[i] = sim->heap[c];
		i = c;
	}
	sim->heap[i] = last;
	return top;
}

/* An event of a worker waits while that is paused, and is void when it has died. */
static void dispatch(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0) {
		ev->fn(sim, ev);
		return;
	}
	struct sim_worker *w = &sim->workers[ev->worker];
	if (!w->alive || w->life != ev->life) {
		ev->fn(sim, &(struct sim_event){.fn = ev->fn, .worker = -1, .ptr = ev->ptr, .which = ev->which});
	} else if (w->paused_until_ns > sim->now_ns) {
		struct sim_event *again = sim_at(sim, w->paused_until_ns, ev->fn, w);
		again->which = ev->which;
		again->ptr = ev->ptr;
	} else {
		ev->fn(sim, ev);
	}
}

/* ---- the seed ---- */

static uint32_t maybe(struct sim *sim, int64_t most)
{
	return sim_chance(sim, 500) ? 0 : (uint32_t)sim_range(sim, 1, most);
}

static void draw_knobs(struct sim *sim)
{
	static const int batches[] = {1, 2, 8, 32};
	static const int64_t polls[] = {300, 2000, 10000}, leases[] = {100, 500, 3000}, timeouts[] = {50, 1000};
	static const int32_t attempts[] = {SL_UNLIMITED, SL_UNLIMITED, 1, 3};
	struct sim_knobs *k = &sim->k;
	k->n_workers = (int)sim_range(sim, 1, SIM_WORKERS);
	k->lanes = (int)sim_range(sim, 1, SIM_LANES);
	k->slots = (int)sim_range(sim, 1, SIM_SLOTS);
	k->claim_batch = batches[sim_range(sim, 0, 3)];
	k->poll_ms = polls[sim_range(sim, 0, 2)];
	bool rests = sim_chance(sim, 200);
	for (int i = 0; i < SIM_TYPES; i++) {
		k->next_job_delay_ms[i] = rests && sim_chance(sim, 700) ? sim_range(sim, 1, 50) : 0;
		k->lease_ms[i] = leases[sim_range(sim, 0, 2)];
		k->max_attempts[i] = attempts[sim_range(sim, 0, 3)];
		k->timeout_ms[i] = sim_chance(sim, 300) ? timeouts[sim_range(sim, 0, 1)] : SL_UNLIMITED;
	}
	k->n_chains = (int)sim_range(sim, 3, 30);
	k->n_meddles = sim_chance(sim, 300) ? 0 : (int)sim_range(sim, 1, 30);
	k->chaos_ms = sim_range(sim, 500, 15000);
	k->notes = sim_chance(sim, 800);
	k->lose_request = maybe(sim, 100);
	k->lose_answer = maybe(sim, 150);
	k->apply_late = maybe(sim, 100);
	k->again = maybe(sim, 100);
	k->poison = maybe(sim, 60);
	k->lose_note = maybe(sim, 500);
	k->double_note = maybe(sim, 300);
	k->n_outages = (int)maybe(sim, 3);
	k->n_pauses = (int)maybe(sim, 5);
	k->n_kills = (int)maybe(sim, 4);
	k->n_stops = (int)maybe(sim, 4);
	k->n_clock_jumps = (int)maybe(sim, 4);
	k->n_store_jumps = sim_chance(sim, 800) ? 0 : (int)sim_range(sim, 1, 2);
	k->slow = maybe(sim, 200);
	k->disobey = maybe(sim, 400);
	k->inside = maybe(sim, 300);
	k->fan_out = maybe(sim, 300);
	sim->clocks_true = k->n_clock_jumps == 0 && k->n_store_jumps == 0;
}

/* Schedules tick by the minute, so there is more time for everything, and clocks jump further. */
static void draw_cron_knobs(struct sim *sim)
{
	static const int64_t polls[] = {5000, 10000, 30000};
	struct sim_knobs *k = &sim->k;
	k->n_crons = (int)sim_range(sim, 1, SIM_CRONS);
	k->n_cron_puts = (int)maybe(sim, 5);
	k->poll_ms = polls[sim_range(sim, 0, 2)];
	k->chaos_ms = sim_range(sim, 60000, 240000);
	k->jump_ms = 100000;
	k->store_jump_ms = 300000;
	k->pause_ms = sim_chance(sim, 500) ? 150000 : k->pause_ms;
	sim->base_ms += sim_range(sim, 0, 59999);
}

static void draw_event_knobs(struct sim *sim)
{
	struct sim_knobs *k = &sim->k;
	k->events = true;
	k->send_batch = (int)sim_range(sim, 1, 6);
	k->fail_flush = maybe(sim, 50);
	k->slow_flush = maybe(sim, 100);
	k->bad_line = maybe(sim, 80);
	k->put_back = sim_chance(sim, 800) ? 0 : 500;
	k->copy = sim_chance(sim, 700) ? 0 : 800;
	k->reopen = maybe(sim, 900);
	k->n_losses = sim_chance(sim, 800) ? 0 : (int)sim_range(sim, 1, 3);
}

/* The number of a seed decides what its run is about, and later features draw from a separate random stream. So runs
 * about jobs alone stayed the same when schedules and events were added, and so did the seeds that failed once. */
static void draw_more_knobs(struct sim *sim)
{
	uint64_t about = sim->opts.seed % 8, rng = sim->rng;
	sim->rng = ~sim->opts.seed;
	sim->k.jump_ms = 4000;
	sim->k.store_jump_ms = 3000;
	sim->k.pause_ms = 8000;
	sim->base_ms = 1700000000000;
	if (about == 3 || about == 7)
		draw_cron_knobs(sim);
	if (about == 2 || about == 6 || about == 7)
		draw_event_knobs(sim);
	if (sim->opts.seed % 5 == 3) {
		sim->k.offers = true;
		sim->k.n_beside = (int)sim_range(sim, 5, 60);
	}
	if (sim->opts.seed % 7 == 2 || sim->opts.seed % 7 == 4)
		sim->k.n_fails = (int)sim_range(sim, 1, 20);
	sim->rng = rng;
}

/* ---- what befalls the world ---- */

static struct sim_worker *any_worker(struct sim *sim)
{
	return &sim->workers[sim_range(sim, 0, sim->k.n_workers - 1)];
}

static void outage(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	int64_t ms = sim_range(sim, 10, 5000);
	sim_trace(sim, "the store is unavailable for %lld ms", (long long)ms);
	if (!sim->calm)
		sim->away_until_ns = sim->now_ns + ms * SIM_MS;
}

static void pause_one(struct sim *sim, struct sim_worker *w, int64_t ms)
{
	if (sim->calm || !w->alive)
		return;
	sim_trace(sim, "%s is stopped for %lld ms", w->id, (long long)ms);
	w->paused_until_ns = SL_MAX(w->paused_until_ns, sim->now_ns + ms * SIM_MS); /* stopped twice: until the later */
	sim->report->pauses++;
}

static void pause_worker(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	struct sim_worker *w = any_worker(sim);
	int64_t ms = sim_range(sim, 5, sim->k.pause_ms);
	pause_one(sim, w, ms);
	if (sim->k.n_crons > 0 && sim_chance(sim, 500)) /* then no worker fires meanwhile */
		for (int i = 0; i < sim->k.n_workers; i++)
			pause_one(sim, &sim->workers[i], ms);
}

static void respawn(struct sim *sim, const struct sim_event *ev)
{
	sim_spawn(sim, (int)ev->which);
}

static void kill_worker(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	struct sim_worker *w = any_worker(sim);
	if (sim->calm || !w->alive)
		return;
	sim_trace(sim, "%s is killed", w->id);
	sim->report->kills++;
	sim_kill(sim, w);
	sim_at(sim, sim->now_ns + sim_range(sim, 0, 3000) * SIM_MS, respawn, NULL)->which = (uint64_t)w->index;
}

static void stop_worker(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	struct sim_worker *w = any_worker(sim);
	if (!sim->calm && w->alive && !w->stopping && w->paused_until_ns <= sim->now_ns)
		sim_stop(sim, w);
}

static void jump_clock(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	struct sim_worker *w = any_worker(sim);
	int64_t ms = sim_range(sim, -sim->k.jump_ms, sim->k.jump_ms);
	if (!sim->calm && w->alive)
		sim_jump(sim, w, ms * SIM_MS);
}

static void jump_store(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	int64_t ms = sim_range(sim, -sim->k.store_jump_ms, sim->k.store_jump_ms);
	if (sim->calm)
		return;
	sim_trace(sim, "the store's clock jumps by %lld ms", (long long)ms);
	sim->store_skew_ns += ms * SIM_MS;
}

static void befall(struct sim *sim, int n, sim_fn *fn)
{
	for (int i = 0; i < n; i++)
		sim_at(sim, sim_range(sim, 0, sim->k.chaos_ms) * SIM_MS, fn, NULL);
}

/* The faults end: everybody is there, all types run, and what happens now must come to an end. */
static void calm_down(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	sim_trace(sim, "calm");
	sim->calm = true;
	sim->away_until_ns = 0;
	sim->poisoned = 0;
	for (int i = 0; i < SIM_TYPES; i++) {
		struct sim_hearing h;
		struct sl_err err = SL_ERR_INIT;
		if (sim->store.ops->pause(sim->store.ctx, sim_type_names[i], 0, sim_hear(&h), &err) != 0)
			sim_fail(sim, "resume: %s", err.msg);
		sim_publish(sim, h.notes, h.n);
	}
	for (int i = 0; i < sim->k.n_workers; i++) {
		struct sim_worker *w = &sim->workers[i];
		if (w->paused_until_ns > sim->awake_ns)
			sim->awake_ns = w->paused_until_ns; /* what was put off until then is */
		if (w->paused_until_ns > sim->now_ns)
			w->paused_until_ns = sim->now_ns;
		w->skew_ns = sim_clock(sim, w) - sim->now_ns; /* a stalled clock runs again */
	}
}

/* ---- the course of a run ---- */

static int64_t store_mono(void *ctx)
{
	return ((struct sim *)ctx)->now_ns;
}

static int64_t store_real(void *ctx)
{
	const struct sim *sim = ctx;
	return sim->base_ms + (sim->now_ns + sim->store_skew_ns) / SIM_MS;
}

static const struct sl_clock store_clock = {.version = SL_CLOCK_VERSION, .mono_ns = store_mono, .real_ms = store_real};

static void begin(struct sim *sim)
{
	struct sl_env env = {SL_ENV_INIT, .clock = &store_clock, .clock_ctx = sim};
	sim->ms = memstore_new(&env);
	memstore_set_break(sim->ms, sim->opts.broken);
	sim->store = memstore_handle(sim->ms);
	if (sl__env_init(&sim->env, NULL, NULL) != 0)
		abort();
	draw_knobs(sim);
	draw_more_knobs(sim);
	if (sim->k.events)
		sim_plan_logs(sim);
	for (int i = 0; i < sim->k.n_workers; i++)
		sim_spawn(sim, i);
	befall(sim, sim->k.n_outages, outage);
	befall(sim, sim->k.n_pauses, pause_worker);
	befall(sim, sim->k.n_kills, kill_worker);
	befall(sim, sim->k.n_stops, stop_worker);
	befall(sim, sim->k.n_clock_jumps, jump_clock);
	befall(sim, sim->k.n_store_jumps, jump_store);
	sim_plan_clients(sim);
	sim_plan_crons(sim);
	sim_at(sim, sim->k.chaos_ms * SIM_MS, calm_down, NULL);
}

static void run_until(struct sim *sim, int64_t until_ns)
{
	while (!sim->report->failed && sim->n_heap > 0 && sim->heap[0].at_ns <= until_ns) {
		struct sim_event ev = pop(sim);
		sim->now_ns = ev.at_ns;
		if (++sim->report->steps > SIM_STEPS)
			sim_fail(sim, "R9: a loop: %d steps without an end", SIM_STEPS);
		dispatch(sim, &ev);
	}
	if (!sim->report->failed && sim->now_ns < until_ns)
		sim->now_ns = until_ns;
}

static bool workers_idle(const struct sim *sim)
{
	if (sim->handing > 0)
		return false;
	for (int i = 0; i < sim->k.n_workers; i++)
		if (!sim->workers[i].alive || sl__core_stats(sim->workers[i].core)->open > 0)
			return false;
	return true;
}

/* R12. Every process has looked twice, with a clock that is right. */
static void tick_on(struct sim *sim)
{
	sim->settled_ns = SL_MAX(sim->now_ns, sim->awake_ns) + 130000 * SIM_MS;
	run_until(sim, sim->settled_ns);
	for (int i = 0; i < 4 && !sim->report->failed; i++) {
		run_until(sim, sim->now_ns + sim_range(sim, 1, 40000) * SIM_MS);
		sim_check_punctual(sim);
	}
	if (!sim->report->failed)
		sim_remove_crons(sim);
}

/* R9. Long enough for every backoff, lease, poll and clock that jumped back. */
static void come_to_rest(struct sim *sim)
{
	char why[128] = "";
	int64_t limit = sim->now_ns + (int64_t)600000 * SIM_MS;
	while (!sim->report->failed && sim->now_ns < limit &&
	       !(sim_at_rest(sim, why, sizeof(why)) && workers_idle(sim) && sim_logs_at_rest(sim)))
		run_until(sim, sim->now_ns + 200 * SIM_MS);
	if (!sim->report->failed && !sim_at_rest(sim, why, sizeof(why)))
		sim_fail(sim, "R9: %s", why);
	else if (!sim->report->failed && !workers_idle(sim))
		sim_fail(sim, "R9: a worker still holds jobs, or did not come back");
	else if (!sim->report->failed && !sim_logs_at_rest(sim))
		sim_fail(sim, "R14: a log is not sent");
}

static void stay_at_rest(struct sim *sim)
{
	char why[128] = "";
	uint64_t completions = sim->report->completions;
	run_until(sim, sim->now_ns + (sim->k.poll_ms + 6500) * SIM_MS);
	if (!sim->report->failed && (completions != sim->report->completions || !sim_at_rest(sim, why, sizeof(why))))
		sim_fail(sim, "R9: something moved after the end: %s", why);
}

/* R10. Everybody sleeps now, some until a poll in 10 s. Several of a type come one after the other, so that some come
 * while a claim is under way that no longer finds them. */
static void probe(struct sim *sim, int type)
{
	uint64_t ids[6];
	int64_t last = sim->now_ns;
	sim->probing = true;
	for (int i = 0; i < 6 && !sim->report->failed; i++) {
		int64_t delay_ms = i == 3 ? sim_range(sim, 1, 300) : 0;
		ids[i] = sim_start_probe(sim, type, delay_ms);
		last = sim->now_ns + delay_ms * SIM_MS;
		run_until(sim, sim->now_ns + sim_range(sim, 0, 8000) * 1000);
	}
	run_until(sim, last + 1500 * SIM_MS);
	for (int i = 0; i < 6 && !sim->report->failed; i++)
		if (sim->shadow[ids[i]].claimed_fence == 0)
			sim_fail(sim, "R10: no worker has claimed job %llu", (unsigned long long)ids[i]);
	come_to_rest(sim);
}

/* R19. Every worker that runs has claimed in vain and waits, except while it polls. */
static void probe_offers(struct sim *sim)
{
	sim->probing = true;
	/* What a stopped worker has put off, it does first; and it may learn only then that a call failed. */
	if (sim->awake_ns + SL__BACKOFF_CAP_NS + 10 * SIM_MS > sim->now_ns)
		run_until(sim, sim->awake_ns + SL__BACKOFF_CAP_NS + 10 * SIM_MS);
	for (int i = 0; i < sim->k.n_workers && !sim->report->failed; i++) {
		const char *type = sim_type_names[sim_range(sim, 0, SIM_TYPES - 1)];
		uint64_t handed = sim->report->handed;
		int64_t limit = sim->now_ns + 100 * SIM_MS;
		while (!sim->report->failed && !sim_hand_over(sim, i, type)) {
			if (sim->now_ns >= limit)
				sim_fail(sim, "R19: %s does not offer to run %s", sim->workers[i].id, type);
			run_until(sim, sim->now_ns + SIM_MS);
		}
		run_until(sim, sim->now_ns + 10 * SIM_MS);
		if (!sim->report->failed && sim->report->handed == handed)
			sim_fail(sim, "R19: a job was not handed to %s", sim->workers[i].id);
		come_to_rest(sim);
	}
}

static void end(struct sim *sim)
{
	sim->over = true;
	for (int i = 0; i < SIM_WORKERS; i++)
		if (sim->workers[i].alive)
			sim_kill(sim, &sim->workers[i]);
	while (sim->n_heap > 0) { /* calls that are under way own memory */
		struct sim_event ev = pop(sim);
		ev.worker = -1;
		if (ev.ptr != NULL)
			ev.fn(sim, &ev);
	}
	sim->report->jobs = memstore_rows(sim->ms);
	sim->report->virtual_s = (uint64_t)(sim->now_ns / SIM_MS / 1000);
	sim_free_logs(sim);
	sim_fiber_free_all(sim);
	memstore_free(sim->ms);
	for (size_t i = 0; i < sim->n_kept; i++)
		free(sim->kept[i]);
	free(sim->kept);
	free(sim->heap);
}

void sim_run(const struct sim_opts *opts, struct sim_report *report)
{
	struct sim *sim = sim_alloc(sizeof(*sim));
	*report = (struct sim_report){0};
	sim->opts = *opts;
	sim->report = report;
	sim->rng = opts->seed;
	begin(sim);
	run_until(sim, sim->k.chaos_ms * SIM_MS);
	if (sim->k.n_crons > 0)
		tick_on(sim);
	come_to_rest(sim);
	stay_at_rest(sim);
	if (!sim->report->failed && sim->k.offers)
		probe_offers(sim);
	for (int i = 0; i < SIM_TYPES && sim->k.notes; i++)
		probe(sim, i);
	if (!sim->report->failed && sim->k.n_losses > 0) {
		sim_reopen_logs(sim);
		come_to_rest(sim);
	}
	if (!sim->report->failed && sim->k.events)
		sim_check_events(sim);
	end(sim);
	free(sim);
}
