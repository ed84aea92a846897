/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs between their claim and their settle: which one a slot starts, and what the end of an attempt means.
 *
 *   ended by            an abort before that     settles as
 *   ─────────────────   ──────────────────────   ────────────────────────────────────────────────────────────
 *   complete, continue  (none: declaring an end  COMPLETE, CONTINUE
 *   fail, reschedule     after one is refused)   FAIL, RESCHEDULE
 *   an error            none                     RETRY with the backoff of its type; FAIL when attempts ran out
 *   events not written  none                     RELEASE; FAIL when the type has one attempt
 *   anything            timeout                  the same, with the timeout as its error
 *   anything            shutdown, error          RELEASE: given back, not charged; FAIL when the type has one attempt
 *   anything            taken, completed,        nothing: the job is not ours
 *                       not found, cancelled
 *
 * A handler that ignores its timeout keeps its slot and its lease, and settles when it returns: to give its job to
 * another attempt meanwhile would run both at once.
 */
#include "jobs/worker/core_priv.h"

static const char out_of_attempts[] = "the attempts ran out: the last ones ended with their worker";
static const char shut_down[] = "the worker was stopped before the only attempt ended";
static const char lease_lost[] = "the lease of the only attempt could not be renewed";
static const char timed_out[] = "the attempt took longer than its timeout";

void sl__core_unqueue(struct sl__core *core, struct sl__run *run)
{
	sl__core_remove(&core->types[run->type].waiting, run);
	core->waiting--;
	core->lanes[run->claim->lane].waiting--;
}

static void to_settle(struct sl__core *core, struct sl__run *run, int64_t now_ns)
{
	run->state = SL__RUN_ENDED;
	run->ended_ns = now_ns;
	sl__core_push(&core->lanes[run->claim->lane].ended, run);
}

void sl__core_give_back(struct sl__core *core, struct sl__run *run, enum sl_settle_kind kind, const char *error,
			int64_t now_ns)
{
	sl__core_unqueue(core, run);
	run->kind = kind;
	run->error = error;
	to_settle(core, run, now_ns);
}

void sl__core_release_waiting(struct sl__core *core, int64_t now_ns)
{
	for (size_t i = 0; i < core->n_types; i++)
		while (core->types[i].waiting.head != NULL)
			sl__core_give_back(core, core->types[i].waiting.head, SL_SETTLE_RELEASE, NULL, now_ns);
}

void sl__core_gone(struct sl__core *core, struct sl__run *run)
{
	struct sl__claim *claim = run->claim;
	run->state = SL__RUN_GONE;
	if (core->cfg.release != NULL)
		core->cfg.release(run, core->cfg.release_ctx);
	core->stats.open--;
	core->lanes[claim->lane].open--;
	if (++claim->n_gone < claim->n)
		return;
	if (claim->prev != NULL)
		claim->prev->next = claim->next;
	else
		core->claims = claim->next;
	if (claim->next != NULL)
		claim->next->prev = claim->prev;
	sl__core_claim_put(core, claim);
}

void sl__core_settled(struct sl__core *core, const struct sl__run *run, int64_t now_ns)
{
	const struct sl__claim *claim = run->claim;
	switch (run->kind) {
	case SL_SETTLE_COMPLETE:
	case SL_SETTLE_CONTINUE:
		core->stats.completed++;
		return;
	case SL_SETTLE_FAIL:
		core->stats.failed++;
		return;
	case SL_SETTLE_RETRY:
		core->stats.retried++;
		break;
	case SL_SETTLE_RESCHEDULE:
	case SL_SETTLE_RELEASE:
		core->stats.released++;
		break;
	}
	/* When can its job be claimed again? */
	struct core_type *t = &core->types[run->type];
	int64_t in_ms = run->delay_ms;
	if (run->at_ms > 0)
		in_ms = run->at_ms - claim->now_ms - (now_ns - claim->replied_ns) / 1000000;
	if (in_ms <= 0 || run->kind == SL_SETTLE_RELEASE) {
		t->dry = false;
		t->hints++;
	} else {
		struct core_class *class = &core->classes[t->klass];
		class->poll_ns = SL_MIN(class->poll_ns, core_add(now_ns, core_ms(in_ms + 1)));
	}
}

/* ---- starting ---- */

/* The longest-claimed run of a type that has a slot to spare. */
static struct sl__run *first_waiting(const struct sl__core *core)
{
	struct sl__run *best = NULL;
	for (size_t i = 0; i < core->n_types; i++) {
		const struct core_type *t = &core->types[i];
		struct sl__run *head = t->waiting.head;
		if (head != NULL && t->running < (uint32_t)t->cfg.slots && (best == NULL || head->order < best->order))
			best = head;
	}
	return best;
}

bool sl__core_waiting(const struct sl__core *core)
{
	return core->waiting > 0 && first_waiting(core) != NULL;
}

struct sl__run *sl__core_take(struct sl__core *core, int64_t now_ns)
{
	struct sl__run *run;
	while (core->waiting > 0 && (run = first_waiting(core)) != NULL) {
		struct core_type *t = &core->types[run->type];
		const struct sl__claim *claim = run->claim;
		if (now_ns >= claim->abort_ns) { /* C1 */
			sl__core_give_back(core, run, SL_SETTLE_RELEASE, NULL, now_ns);
			continue;
		}
		if (sl__retry_exhausted(&t->cfg.retry, (uint32_t)run->charged)) {
			sl__core_give_back(core, run, SL_SETTLE_FAIL, out_of_attempts, now_ns);
			continue;
		}
		sl__core_unqueue(core, run);
		run->state = SL__RUN_RUNNING;
		run->started_ns = now_ns;
		run->started_ms = claim->now_ms + (now_ns - claim->replied_ns) / 1000000;
		t->running++;
		core->stats.busy++;
		core->abort_ns = SL_MIN(core->abort_ns, claim->abort_ns);
		if (t->cfg.timeout_ms >= 0)
			core->abort_ns = SL_MIN(core->abort_ns, core_add(now_ns, core_ms(t->cfg.timeout_ms)));
		return run;
	}
	return NULL;
}

/* ---- ending ---- */

/* Fast to rise, slow to fall: a handler that turned slow must not find hundreds claimed ahead. */
static int64_t average(int64_t avg, int64_t sample)
{
	if (avg < 0)
		return sample;
	return sample > avg ? avg + (sample - avg + 3) / 4 : avg - (avg - sample) / 16;
}

void sl__core_set_failure(struct sl__core *core, struct sl__run *run)
{
	const struct sl_retry_policy *policy = &core->types[run->type].cfg.retry;
	uint32_t charged = (uint32_t)run->charged + 1;
	bool exhausted = sl__retry_exhausted(policy, charged);
	run->kind = exhausted ? SL_SETTLE_FAIL : SL_SETTLE_RETRY;
	run->delay_ms = exhausted ? 0 : sl__retry_delay_ms(policy, charged, &core->prng);
	run->at_ms = 0;
	run->output = NULL;
	run->continued = NULL;
}

void sl__core_set_released(const struct sl__core *core, struct sl__run *run)
{
	run->kind = core->types[run->type].cfg.retry.max_attempts == 1 ? SL_SETTLE_FAIL : SL_SETTLE_RELEASE;
	run->delay_ms = run->at_ms = 0;
	run->output = NULL;
	run->continued = NULL;
}

void sl__core_end(struct sl__core *core, struct sl__run *run, enum sl__ending ending, int64_t now_ns)
{
	static const enum sl_settle_kind plain[] = {[SL__END_COMPLETE] = SL_SETTLE_COMPLETE,
						    [SL__END_CONTINUE] = SL_SETTLE_CONTINUE,
						    [SL__END_FAIL] = SL_SETTLE_FAIL,
						    [SL__END_RESCHEDULE] = SL_SETTLE_RESCHEDULE};
	struct core_type *t = &core->types[run->type];
	int64_t took = now_ns - run->started_ns;
	t->avg_ns = average(t->avg_ns, took);
	core->avg_ns = average(core->avg_ns, took);
	core->last_end_ns = now_ns;
	t->running--;
	core->stats.busy--;
	if (t->cfg.next_job_delay_ms > 0)
		core->resting++;
	if (ending == SL__END_SETTLED) {
		sl__core_settled(core, run, now_ns);
		sl__core_gone(core, run);
		return;
	}
	if (ending == SL__END_LOST || run->lost != SL_LOST_NOT) {
		if (run->lost == SL_LOST_NOT)
			core->stats.lost++;
		run->lost = SL_LOST_TAKEN;
		sl__core_gone(core, run);
		return;
	}
	/* It is still ours: the kind with which it settles. */
	bool undone = run->abort != SL_ABORT_NONE && !run->declared;
	if (undone && run->abort == SL_ABORT_TIMEOUT) {
		run->error = timed_out;
		sl__core_set_failure(core, run);
	} else if (undone) {
		sl__core_set_released(core, run);
		if (run->kind == SL_SETTLE_FAIL)
			run->error = run->abort == SL_ABORT_SHUTDOWN ? shut_down : lease_lost;
	} else if (ending == SL__END_FAILED) {
		sl__core_set_failure(core, run);
	} else if (ending == SL__END_UNLOGGED) {
		sl__core_set_released(core, run);
	} else {
		run->kind = plain[ending];
	}
	to_settle(core, run, now_ns);
}

void sl__core_rested(struct sl__core *core)
{
	assert(core->resting > 0);
	core->resting--;
}

/* ---- stopping ---- */

void sl__core_stop(struct sl__core *core, int64_t now_ns)
{
	core->stopping = true;
	sl__core_release_waiting(core, now_ns);
}

void sl__core_pause(struct sl__core *core, bool paused, int64_t now_ns)
{
	core->paused = paused;
	if (paused)
		sl__core_release_waiting(core, now_ns);
}

size_t sl__core_abort_all(struct sl__core *core, sl__abort_fn *fn, void *ctx)
{
	size_t n = 0;
	for (struct sl__claim *c = core->claims; c != NULL; c = c->next)
		for (uint32_t i = 0; i < c->n; i++) {
			struct sl__run *run = &c->runs[i];
			if (run->state != SL__RUN_RUNNING || run->abort != SL_ABORT_NONE || run->declared)
				continue;
			run->abort = SL_ABORT_SHUTDOWN;
			fn(run, SL_ABORT_SHUTDOWN, ctx);
			n++;
		}
	return n;
}

void sl__core_give_up(struct sl__core *core)
{
	core->giving_up = true;
	core->backoff_ns = INT64_MIN;
}
