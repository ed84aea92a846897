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

/* Fill todo with every claim that is due now, or so soon that it goes along. False: none is. Sets when the next one will
 * be. */
static bool prepare_renewal(struct sl__core *core, int64_t now_ns, struct sl__todo *todo)
{
	size_t n_claims = 0, n_runs = 0, used = 0;
	core->renew_ns = SL_FOREVER;
	for (struct sl__claim *c = core->claims; c != NULL; c = c->next) {
		c->renews = c->renew_ns <= core_add(now_ns, core_ms(core->classes[c->klass].renew_ms) / 8);
		if (!c->renews)
			core->renew_ns = SL_MIN(core->renew_ns, c->renew_ns);
		n_claims += c->renews;
		n_runs += c->renews ? c->n : 0;
	}
	/* Room for the claims, and for the ids and fences of their runs. */
	if (n_claims > todo->cap_renewals) {
		void *p = sl__realloc(core->env, todo->renewals, n_claims * 2 * sizeof(*todo->renewals));
		if (p == NULL)
			goto later;
		todo->renewals = p;
		todo->cap_renewals = n_claims * 2;
	}
	if (n_runs * 2 > todo->cap_ids) {
		void *p = sl__realloc(core->env, todo->ids, n_runs * 4 * sizeof(*todo->ids));
		if (p == NULL)
			goto later;
		todo->ids = p;
		todo->cap_ids = n_runs * 4;
	}
	for (struct sl__claim *c = core->claims; c != NULL; c = c->next) {
		if (!c->renews)
			continue;
		uint64_t *ids = todo->ids + used, *fences = ids + c->n;
		size_t n = 0;
		bool started = true;
		for (uint32_t i = 0; i < c->n; i++) {
			const struct sl__run *run = &c->runs[i];
			started = started && run->state != SL__RUN_WAITING;
			if (run->state == SL__RUN_GONE || run->lost != SL_LOST_NOT)
				continue;
			ids[n] = run->id;
			fences[n++] = run->fence;
		}
		used += 2 * (size_t)c->n;
		if (n > 0)
			todo->renewals[todo->n_renewals++] = (struct sl_renewal){.claim = c->id,
										 .lease_ms = c->lease_ms,
										 .started = started,
										 .ids = ids,
										 .fences = fences,
										 .n = n};
		else
			c->renew_ns = SL_FOREVER; /* all are lost, and their handlers still run */
	}
	return todo->n_renewals > 0;
later:
	core->renew_ns = core_add(now_ns, SL__BACKOFF_FIRST_NS);
	return false;
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
		core->stats.connected = true;
	} else if (rc != SL_EAGAIN) {
		core->stats.connected = false;
	}
	int64_t delay = rc != 0 ? sl__core_delay_ns(core, core->renew_failures++, rc == SL_EAGAIN) : 0;
	for (size_t i = 0; i < todo->n_renewals; i++) {
		struct sl__claim *c = core->claims;
		while (c != NULL && memcmp(&c->id, &todo->renewals[i].claim, sizeof(c->id)) != 0)
			c = c->next;
		if (c == NULL)
			continue;
		if (rc == 0) {
			c->held_ms = 0;
			sl__core_leased(core, c, todo->sent_ns);
			core->stats.renewals++;
		} else {
			c->renew_ns = core_add(now_ns, SL_MIN(delay, core_held_ns(c) / 8));
			core->renew_ns = SL_MIN(core->renew_ns, c->renew_ns);
		}
	}
	todo->n_renewals = 0;
}

void sl__core_lost(struct sl__core *core, const struct sl__loss *loss, sl__abort_fn *fn, void *ctx)
{
	static const enum sl_abort_reason aborts[] = {[SL_LOST_NOT] = SL_ABORT_NONE,
						      [SL_LOST_TAKEN] = SL_ABORT_TAKEN_BY_ANOTHER_WORKER,
						      [SL_LOST_COMPLETED] = SL_ABORT_ALREADY_COMPLETED,
						      [SL_LOST_NOT_FOUND] = SL_ABORT_NOT_FOUND,
						      [SL_LOST_CANCELLED] = SL_ABORT_CANCELLED,
						      [SL_LOST_FAILED] = SL_ABORT_ALREADY_FAILED,
						      [SL_LOST_PUT_BACK] = SL_ABORT_TAKEN_BY_ANOTHER_WORKER};
	struct sl__run *run = NULL;
	for (struct sl__claim *c = core->claims; c != NULL && run == NULL; c = c->next)
		for (uint32_t i = 0; i < c->n && run == NULL; i++)
			if (c->runs[i].id == loss->id && c->runs[i].fence == loss->fence &&
			    c->runs[i].state != SL__RUN_GONE)
				run = &c->runs[i];
	/* A run that settles, or whose end was declared, may have moved the fence itself: its settle will show. */
	if (run == NULL || run->lost != SL_LOST_NOT || run->declared)
		return;
	if (run->state == SL__RUN_WAITING) {
		core->stats.lost++;
		sl__core_unqueue(core, run);
		sl__core_gone(core, run);
	} else if (run->state == SL__RUN_RUNNING) {
		core->stats.lost++;
		run->lost = (uint8_t)loss->reason;
		if (run->abort == SL_ABORT_NONE) {
			run->abort = (uint8_t)aborts[loss->reason];
			fn(run, aborts[loss->reason], ctx);
		}
	}
}

/* ---- reaping and schedules ---- */

void sl__core_reaped(struct sl__core *core, int rc, const struct sl_reaped *reaped, int64_t now_ns)
{
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

void sl__core_cron_done(struct sl__core *core, int rc, int64_t tick_ms, int64_t now_ns)
{
	core->cron_done_ns = now_ns;
	core->tick_ms = rc == 0 ? tick_ms : -1;
	if (rc != 0) {
		core->cron_ns = core_add(now_ns, sl__core_delay_ns(core, core->cron_failures++, rc == SL_EAGAIN));
		return;
	}
	core->cron_failures = 0;
	core->cron_ns = core_add(now_ns, until_tick(core, now_ns));
}

void sl__core_heartbeat_done(struct sl__core *core, int rc, int64_t now_ns)
{
	int64_t pause_ms = rc == 0 ? core->cfg.heartbeat_ms : core->cfg.heartbeat_ms / 6;
	core->heartbeat_ns = core_add(now_ns, core_ms(pause_ms));
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

/* Has the conversation nothing left to do? */
static bool keeper_ends(const struct sl__core *core, int who)
{
	return core->stopping && (who != SL__KEEPER || core->stats.open == 0);
}

int64_t sl__core_wake_ns(const struct sl__core *core, int who, int64_t now_ns)
{
	if (keeper_ends(core, who))
		return now_ns;
	if (who == SL__KEEPER)
		return core->renew_ns;
	if (who == SL__SCHEDULER) /* a heartbeat has times of the store's clock, which the first turn asks for */
		return core->store_ms != 0 ? SL_MIN(core->cron_ns, core->heartbeat_ns) : core->cron_ns;
	/* Expired leases are reaped when their expiry is known: from a claim that found too little, or from the last reap.
	 * Leases that were taken since are found within a second, and before the shortest of ours would end. */
	int64_t due = core->reap_ns, interval = core_ms(CORE_REAP_MS);
	for (size_t i = 0; i < core->n_classes; i++) {
		due = SL_MIN(due, core->classes[i].expiry_ns);
		interval = SL_MIN(interval, core_ms(core->classes[i].lease_ms) / 2);
	}
	due = SL_MIN(due, core_add(core->reaped_ns, interval));
	return SL_MAX(due, core->reaper_backoff_ns);
}

void sl__core_next_keeper(struct sl__core *core, int64_t now_ns, struct sl__todo *todo)
{
	todo->wake_ns = sl__core_wake_ns(core, todo->who, now_ns);
	if (keeper_ends(core, todo->who)) {
		todo->kind = SL__TODO_END;
	} else if (now_ns < todo->wake_ns) {
		todo->kind = SL__TODO_SLEEP;
	} else if (todo->who == SL__SCHEDULER) {
		todo->kind = now_ns >= core->cron_ns ? SL__TODO_CRON : SL__TODO_HEARTBEAT;
	} else if (todo->who == SL__REAPER) {
		todo->kind = SL__TODO_REAP;
		todo->reap_limit = SL__REAP_LIMIT;
	} else if (prepare_renewal(core, now_ns, todo)) {
		todo->kind = SL__TODO_RENEW;
	} else {
		todo->wake_ns = core->renew_ns;
	}
}

/* ---- the clock ---- */

int64_t sl__core_next_abort_ns(const struct sl__core *core)
{
	return core->abort_ns;
}

void sl__core_expire(struct sl__core *core, int64_t now_ns, bool shielded, sl__abort_fn *fn, void *ctx)
{
	core->abort_ns = SL_FOREVER;
	for (struct sl__claim *c = core->claims; c != NULL; c = c->next) {
		/*
		 * Grace, while the store is asked; nothing is started meanwhile (C1). A process that was suspended wakes up
		 * after its leases have ended: the renewal that is due finds out whether another worker took the jobs. And
		 * while a renewal waits for a lock that every worker needs to take a job, no lease is given up.
		 */
		int64_t held = core_held_ns(c);
		if (shielded || (c->grace_ns == 0 && now_ns >= core_add(c->sent_ns, held)))
			c->grace_ns = core_add(now_ns, SL_MIN(held / 4, core_ms(1000)));
		int64_t lease = SL_MAX(c->abort_ns, c->grace_ns);
		for (uint32_t i = 0; i < c->n; i++) {
			struct sl__run *run = &c->runs[i];
			if (run->state != SL__RUN_RUNNING || run->abort != SL_ABORT_NONE || run->declared)
				continue;
			int64_t timeout_ms = core->types[run->type].cfg.timeout_ms;
			int64_t timeout = timeout_ms >= 0 ? core_add(run->started_ns, core_ms(timeout_ms)) : SL_FOREVER;
			if (now_ns < SL_MIN(timeout, lease)) {
				core->abort_ns = SL_MIN(core->abort_ns, SL_MIN(timeout, lease));
				continue;
			}
			enum sl_abort_reason reason = timeout < lease ? SL_ABORT_TIMEOUT : SL_ABORT_ERROR;
			run->abort = (uint8_t)reason;
			fn(run, reason, ctx);
		}
	}
}
