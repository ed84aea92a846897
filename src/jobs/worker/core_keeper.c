/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper's decisions: renewing leases; the reaper's: taking back what others lost; the scheduler's: firing
 * schedules; and the clock's: which attempts are aborted.
 *
 * A lease counts from before its claim or renewal was sent, so that this process believes in its end earlier than the
 * store does; an attempt is aborted a margin before that (a tenth, at most 2 s). A renewal that fails is tried again
 * within an eighth of the lease.
 */
#include "jobs/worker/core_priv.h"

/* ---- renewing ---- */

static bool keeps(const struct sl__run *run)
{
	return run->state != SL__RUN_GONE && run->lost == SL_LOST_NOT;
}

static bool renewal_room(struct sl__core *core, struct sl__todo *todo, size_t n_claims, size_t n_ids)
{
	if (n_claims > todo->cap_renewals) {
		void *p = sl__realloc(core->env, todo->renewals, n_claims * 2 * sizeof(*todo->renewals));
		if (p == NULL)
			return false;
		todo->renewals = p;
		todo->cap_renewals = n_claims * 2;
	}
	if (n_ids * 2 > todo->cap_ids) {
		void *p = sl__realloc(core->env, todo->ids, n_ids * 4 * sizeof(*todo->ids));
		if (p == NULL)
			return false;
		todo->ids = p;
		todo->cap_ids = n_ids * 4;
	}
	return true;
}

/* Due now, or so soon that it goes along. */
static bool renews_now(const struct sl__core *core, const struct sl__claim *c, int64_t now_ns)
{
	return c->renew_ns <= core_add(now_ns, core_ms(core->classes[c->klass].renew_ms) / 8);
}

static void add_renewal(struct sl__todo *todo, const struct sl__claim *c, size_t *used)
{
	uint64_t *ids = todo->ids + *used;
	size_t n = 0;
	for (uint32_t i = 0; i < c->n; i++)
		if (keeps(&c->runs[i]))
			ids[n++] = c->runs[i].id;
	uint64_t *fences = ids + n;
	for (uint32_t i = 0, j = 0; i < c->n; i++)
		if (keeps(&c->runs[i]))
			fences[j++] = c->runs[i].fence;
	bool started = true;
	for (uint32_t i = 0; i < c->n; i++)
		started = started && c->runs[i].state != SL__RUN_WAITING;
	*used += 2 * n;
	todo->renewals[todo->n_renewals++] = (struct sl_renewal){
		.claim = c->id, .lease_ms = c->lease_ms, .started = started, .ids = ids, .fences = fences, .n = n};
}

/* Fill todo with every claim that is due; false: none is. Sets when the next one will be. */
static bool prepare_renewal(struct sl__core *core, int64_t now_ns, struct sl__todo *todo)
{
	size_t n = 0, ids = 0, used = 0;
	core->renew_ns = SL_FOREVER;
	for (struct sl__claim *c = core->claims; c != NULL; c = c->next) {
		if (!renews_now(core, c, now_ns)) {
			core->renew_ns = SL_MIN(core->renew_ns, c->renew_ns);
			continue;
		}
		n++;
		ids += c->n;
	}
	if (n == 0)
		return false;
	if (!renewal_room(core, todo, n, ids)) {
		core->renew_ns = core_add(now_ns, SL__BACKOFF_FIRST_NS);
		return false;
	}
	for (struct sl__claim *c = core->claims; c != NULL; c = c->next) {
		if (!renews_now(core, c, now_ns))
			continue;
		add_renewal(todo, c, &used);
		if (todo->renewals[todo->n_renewals - 1].n == 0) { /* all are lost, and their handlers still run */
			todo->n_renewals--;
			c->renew_ns = SL_FOREVER;
		}
	}
	return todo->n_renewals > 0;
}

static struct sl__claim *find_claim(struct sl__core *core, const struct sl_claim_id *id)
{
	for (struct sl__claim *c = core->claims; c != NULL; c = c->next)
		if (memcmp(&c->id, id, sizeof(*id)) == 0)
			return c;
	return NULL;
}

void sl__core_leased(struct sl__core *core, struct sl__claim *c, int64_t sent_ns)
{
	int64_t lease = core_held_ns(c);
	c->sent_ns = sent_ns;
	c->grace_ns = 0;
	c->abort_ns = core_add(sent_ns, lease - SL_MIN(lease / 10, core_ms(2000)));
	c->renew_ns = core_add(sent_ns, c->held_ms > 0 ? lease / 3 : core_ms(core->classes[c->klass].renew_ms));
	core->renew_ns = SL_MIN(core->renew_ns, c->renew_ns);
}

void sl__core_renewed(struct sl__core *core, struct sl__todo *todo, int rc, int64_t now_ns)
{
	if (rc == 0) {
		core->renew_failures = 0;
		core->reaper_backoff_ns = INT64_MIN;
		core->connected = true;
	} else if (rc != SL_EAGAIN) {
		core->connected = false;
	}
	int64_t delay = rc != 0 ? sl__core_delay_ns(core, core->renew_failures++, rc == SL_EAGAIN) : 0;
	for (size_t i = 0; i < todo->n_renewals; i++) {
		struct sl__claim *c = find_claim(core, &todo->renewals[i].claim);
		if (c != NULL && rc == 0) {
			c->held_ms = 0;
			sl__core_leased(core, c, todo->sent_ns);
			core->stats.renewals++;
		} else if (c != NULL) {
			c->renew_ns = core_add(now_ns, SL_MIN(delay, core_held_ns(c) / 8));
			core->renew_ns = SL_MIN(core->renew_ns, c->renew_ns);
		}
	}
	todo->n_renewals = 0;
}

static enum sl_abort_reason abort_of(enum sl_lost_reason reason)
{
	static const enum sl_abort_reason table[] = {[SL_LOST_NOT] = SL_ABORT_NONE,
						     [SL_LOST_TAKEN] = SL_ABORT_TAKEN_BY_ANOTHER_WORKER,
						     [SL_LOST_COMPLETED] = SL_ABORT_ALREADY_COMPLETED,
						     [SL_LOST_NOT_FOUND] = SL_ABORT_NOT_FOUND,
						     [SL_LOST_CANCELLED] = SL_ABORT_CANCELLED,
						     [SL_LOST_FAILED] = SL_ABORT_ALREADY_FAILED,
						     [SL_LOST_PUT_BACK] = SL_ABORT_TAKEN_BY_ANOTHER_WORKER};
	return table[reason];
}

static void lose(struct sl__core *core, struct sl__run *run, enum sl_lost_reason reason, sl__abort_fn *fn, void *ctx)
{
	/* One that settles, or has said how it ends, may have moved the fence itself: its settle will show. */
	if (run->lost != SL_LOST_NOT || run->declared)
		return;
	if (run->state == SL__RUN_WAITING) {
		core->stats.lost++;
		sl__core_unqueue(core, run);
		sl__core_gone(core, run);
	} else if (run->state == SL__RUN_RUNNING) {
		core->stats.lost++;
		run->lost = (uint8_t)reason;
		if (run->abort == SL_ABORT_NONE) {
			run->abort = (uint8_t)abort_of(reason);
			fn(run, abort_of(reason), ctx);
		}
	}
}

void sl__core_lost(struct sl__core *core, uint64_t id, uint64_t fence, enum sl_lost_reason reason, sl__abort_fn *fn,
		   void *ctx)
{
	for (struct sl__claim *c = core->claims; c != NULL; c = c->next)
		for (uint32_t i = 0; i < c->n; i++)
			if (c->runs[i].id == id && c->runs[i].fence == fence && c->runs[i].state != SL__RUN_GONE) {
				lose(core, &c->runs[i], reason, fn, ctx);
				return; /* the claim may be gone */
			}
}

/* ---- reaping and schedules ---- */

/* What has expired is taken back when that is known: from a claim that found too little, or from the last look. Leases
 * that were taken since are found by another look, within a second and before the shortest of ours would end. */
static int64_t reap_due(const struct sl__core *core)
{
	int64_t due = core->reap_ns, interval = core_ms(CORE_REAP_MS);
	for (size_t i = 0; i < core->n_classes; i++) {
		due = SL_MIN(due, core->classes[i].expiry_ns);
		interval = SL_MIN(interval, core_ms(core->classes[i].lease_ms) / 2);
	}
	return SL_MIN(due, core_add(core->reaped_ns, interval));
}

void sl__core_reaped(struct sl__core *core, struct sl__todo *todo, int rc, const struct sl_reaped *reaped,
		     int64_t now_ns)
{
	(void)todo;
	if (rc != 0) {
		core->reap_ns = core->reaper_backoff_ns =
			core_add(now_ns, sl__core_delay_ns(core, core->reaper_failures++, rc == SL_EAGAIN));
		return;
	}
	core->reaper_failures = 0;
	core->stats.reaped += reaped->n;
	core->reaped_ns = now_ns;
	core->reap_ns =
		reaped->next_expiry_in_ms >= 0 ? core_add(now_ns, core_ms(reaped->next_expiry_in_ms + 1)) : SL_FOREVER;
	if (reaped->more)
		core->reap_ns = now_ns;
	for (size_t i = 0; i < core->n_classes; i++)
		core->classes[i].expiry_ns = SL_FOREVER; /* the store has just said when the next one is */
	for (size_t i = 0; i < core->n_types && reaped->n > 0; i++)
		sl__core_note_type(core, &core->types[i]);
}

static int64_t until_tick(const struct sl__core *core, int64_t now_ns)
{
	int64_t store_ms = sl__core_store_ms(core, now_ns);
	if (core->tick_ms < 0 || store_ms == 0)
		return CORE_CRON_NS;
	return SL_MIN(core_ms(SL_MAX(core->tick_ms - store_ms, 0)), CORE_CRON_NS);
}

void sl__core_cron_done(struct sl__core *core, struct sl__todo *todo, int rc, int64_t tick_ms, int64_t now_ns)
{
	(void)todo;
	core->cron_done_ns = now_ns;
	core->tick_ms = rc == 0 ? tick_ms : -1;
	if (rc != 0) {
		core->cron_ns = core_add(now_ns, sl__core_delay_ns(core, core->cron_failures++, rc == SL_EAGAIN));
		return;
	}
	core->cron_failures = 0;
	core->cron_ns = core_add(now_ns, until_tick(core, now_ns));
}

/* Our clock stops while a machine is suspended, and the store's does not: what was to be the time of a tick comes
 * too late then. */
void sl__core_store_clock(struct sl__core *core, int64_t store_ms, int64_t now_ns)
{
	int64_t ahead = core->store_ms != 0 ? store_ms - sl__core_store_ms(core, now_ns) : 0;
	core->store_ms = store_ms;
	core->store_ns = now_ns;
	if (ahead > CORE_CLOCK_MS && core->tick_ms >= 0)
		core->cron_ns = SL_MIN(core->cron_ns, core_add(now_ns, until_tick(core, now_ns)));
}

int64_t sl__core_store_ms(const struct sl__core *core, int64_t now_ns)
{
	return core->store_ms == 0 ? 0 : core->store_ms + (now_ns - core->store_ns) / 1000000;
}

int64_t sl__core_keeper_ns(const struct sl__core *core, int64_t now_ns)
{
	return core->stopping && core->open == 0 ? now_ns : core->renew_ns;
}

void sl__core_next_keeper(struct sl__core *core, int64_t now_ns, struct sl__todo *todo)
{
	if (core->stopping && core->open == 0) {
		todo->kind = SL__TODO_END;
		return;
	}
	if (now_ns >= core->renew_ns && prepare_renewal(core, now_ns, todo))
		todo->kind = SL__TODO_RENEW;
	else
		todo->wake_ns = core->renew_ns;
}

int64_t sl__core_reaper_ns(const struct sl__core *core, int64_t now_ns)
{
	if (core->stopping)
		return now_ns;
	return SL_MAX(reap_due(core), core->reaper_backoff_ns);
}

int64_t sl__core_scheduler_ns(const struct sl__core *core, int64_t now_ns)
{
	return core->stopping ? now_ns : core->cron_ns;
}

void sl__core_next_reaper(struct sl__core *core, int64_t now_ns, struct sl__todo *todo)
{
	if (core->stopping) {
		todo->kind = SL__TODO_END;
		return;
	}
	todo->wake_ns = sl__core_reaper_ns(core, now_ns);
	if (now_ns >= todo->wake_ns) {
		todo->kind = SL__TODO_REAP;
		todo->reap_limit = SL__REAP_LIMIT;
	}
}

void sl__core_next_scheduler(struct sl__core *core, int64_t now_ns, struct sl__todo *todo)
{
	todo->wake_ns = core->cron_ns;
	if (core->stopping)
		todo->kind = SL__TODO_END;
	else if (now_ns >= core->cron_ns)
		todo->kind = SL__TODO_CRON;
}

/* ---- the clock ---- */

int64_t sl__core_next_abort_ns(const struct sl__core *core)
{
	return core->abort_ns;
}

/* A process that stood still (SIGSTOP, a suspended machine) wakes up after its leases have ended. Before it gives up on
 * them it lets the renewal that is due ask the store, which knows better: another worker took the job, or none did and
 * the lease is renewed. Nothing is started meanwhile (C1). */
static void wait_for_the_store(struct sl__claim *c, int64_t now_ns)
{
	if (c->grace_ns == 0 && now_ns >= core_add(c->sent_ns, core_held_ns(c)))
		c->grace_ns = core_add(now_ns, SL_MIN(core_held_ns(c) / 4, core_ms(1000)));
}

/* When the run is to be aborted, and why. */
static int64_t abort_time(const struct sl__core *core, const struct sl__run *run, enum sl_abort_reason *reason)
{
	int64_t timeout_ms = core->types[run->type].cfg.timeout_ms;
	int64_t timeout = timeout_ms >= 0 ? core_add(run->started_ns, core_ms(timeout_ms)) : SL_FOREVER;
	int64_t lease = SL_MAX(run->claim->abort_ns, run->claim->grace_ns);
	*reason = timeout < lease ? SL_ABORT_TIMEOUT : SL_ABORT_ERROR;
	return SL_MIN(timeout, lease);
}

/* While a renewal waits for a lock that everybody needs who could take a job back, no lease is given up, and a little
 * longer, until the renewal's answer is here. */
static void shield(struct sl__claim *c, int64_t now_ns)
{
	c->grace_ns = core_add(now_ns, SL_MIN(core_held_ns(c) / 4, core_ms(1000)));
}

void sl__core_expire(struct sl__core *core, int64_t now_ns, bool shielded, sl__abort_fn *fn, void *ctx)
{
	core->abort_ns = SL_FOREVER;
	for (struct sl__claim *c = core->claims; c != NULL; c = c->next) {
		if (shielded)
			shield(c, now_ns);
		else
			wait_for_the_store(c, now_ns);
		for (uint32_t i = 0; i < c->n; i++) {
			struct sl__run *run = &c->runs[i];
			enum sl_abort_reason reason;
			if (run->state != SL__RUN_RUNNING || run->abort != SL_ABORT_NONE || run->declared)
				continue;
			int64_t at = abort_time(core, run, &reason);
			if (now_ns < at) {
				core->abort_ns = SL_MIN(core->abort_ns, at);
				continue;
			}
			run->abort = (uint8_t)reason;
			fn(run, reason, ctx);
		}
	}
}
