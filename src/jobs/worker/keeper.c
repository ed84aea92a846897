/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three threads that run the same loop:
 *
 *   the keeper     renews leases, and nothing else, so that a renewal waits for nothing but the store;
 *   the reaper     takes back what others lost, and writes the progress that waits;
 *   the scheduler  fires schedules, and sends heartbeats.
 */
#include "jobs/cron/cron.h"
#include "jobs/worker/worker.h"

#include <sluice/version.h>
#include <unistd.h>

#define SWEEP_EVERY 100 /* heartbeats, and with the first one */

/* ---- renewing ---- */

static void on_lost(uint64_t id, uint64_t fence, enum sl_lost_reason reason, void *ctx)
{
	struct sl__keeper *k = ctx;
	struct sl__loss *more = sl__grow(&k->w->home.env, k->losses, k->n_losses, &k->cap_losses, sizeof(*more));
	if (more == NULL)
		return; /* the next renewal, or the settle, finds it again */
	k->losses = more;
	k->losses[k->n_losses++] = (struct sl__loss){id, fence, reason};
}

/* Write the progress that handlers reported in their first second and have not replaced since. */
static void write_waiting_progress(sl_worker *w)
{
	const sl_store *store = &w->home.store;
	for (unsigned i = 0; i < w->n_started; i++) {
		struct sl_attempt *a = &w->slots[i];
		enum sl_lost_reason lost = SL_LOST_NOT;
		sl__lock(&w->mu);
		struct sl__owned *text = a->run != NULL && !a->in_tx ? a->progress : NULL;
		if (text == NULL) {
			sl__unlock(&w->mu);
			continue;
		}
		uint64_t id = a->run->id, fence = a->run->fence;
		a->progress = NULL;
		sl__unlock(&w->mu);
		int rc = store->ops->progress(store->ctx, id, fence, text->data, &lost, NULL);
		sl__lock(&w->mu);
		if (rc != 0 && a->run != NULL && a->run->id == id && a->progress == NULL)
			a->progress = text; /* for the next time */
		else
			sl__free(&w->home.env, text);
		if (rc == 0 && lost != SL_LOST_NOT)
			sl__core_lost(w->core, &(struct sl__loss){id, fence, lost}, sl__abort_fire, w);
		sl__unlock(&w->mu);
	}
}

static void renew(sl_worker *w, struct sl__keeper *k) SL_REQUIRES(w->mu)
{
	const sl_store *store = &w->home.store;
	struct sl_err err = SL_ERR_INIT;
	sl__unlock(&w->mu);
	k->n_losses = 0;
	int rc = store->ops->renew(store->ctx, k->todo.renewals, k->todo.n_renewals, on_lost, k, &err);
	size_t n = k->todo.n_renewals;
	sl__lock(&w->mu);
	for (size_t i = 0; rc == 0 && i < k->n_losses; i++)
		sl__core_lost(w->core, &k->losses[i], sl__abort_fire, w);
	int64_t now = sl__mono_ns(&w->home.env);
	sl__core_renewed(w->core, &k->todo, rc, now);
	w->progress_due = w->progress_due || rc == 0;
	sl__worker_wake(w, now);
	sl__unlock(&w->mu);
	sl__abort_observe(w);
	for (size_t i = 0; i < n && rc == 0; i++)
		sl__report_worker(w, SL_OBSERVE_LEASE_RENEWED, NULL);
	sl__report_store(w, SL__ASKS_RENEW, rc, &err);
	sl__lock(&w->mu);
}

/* ---- reaping and schedules: both make jobs that can be claimed ---- */

struct hearing {
	struct sl__effects fx;
	struct sl__heard heard; /* for our own core, also without a notifier */
};

static void hearing_init(struct hearing *h, const sl_worker *w)
{
	sl__effects_init(&h->fx, &w->home);
	sl__heard_init(&h->heard, w, &h->fx.scope);
}

static void hearing_end(sl_worker *w, struct hearing *h, bool happened, int64_t now_ns) SL_REQUIRES(w->mu)
{
	for (size_t i = 0; happened && i < h->heard.notes.n; i++)
		sl__core_note(w->core, &h->heard.notes.notes[i], now_ns);
	sl__worker_wake(w, now_ns);
	sl__unlock(&w->mu);
	if (happened)
		sl__heard_pass(&h->heard);
	sl__effects_end(&h->fx, happened);
	sl__notes_fini(&h->heard.notes);
	sl__lock(&w->mu);
}

static void reap_lost(sl_worker *w, const struct sl__keeper *k) SL_REQUIRES(w->mu)
{
	const sl_store *store = &w->home.store;
	struct sl_err err = SL_ERR_INIT;
	struct hearing h;
	struct sl_reaped reaped = {.n = 0};
	sl__unlock(&w->mu);
	hearing_init(&h, w);
	int rc = store->ops->reap(store->ctx, w->reap_types, w->n_types, k->todo.reap_limit, &reaped, &h.heard.scope,
				  &err);
	sl__report_store(w, SL__ASKS_REAP, rc, &err);
	if (rc == 0 && reaped.n > 0)
		sl__log(&w->home.env, SL_LOG_INFO, "worker", "jobs taken back from leases that ended",
			SL__F_STR("worker", w->id), SL__F_U64("jobs", reaped.n));
	sl__lock(&w->mu);
	int64_t now = sl__mono_ns(&w->home.env);
	sl__core_reaped(w->core, rc, &reaped, now);
	hearing_end(w, &h, rc == 0, now);
}

static void fire_schedules(sl_worker *w) SL_REQUIRES(w->mu)
{
	const sl_store *store = &w->home.store;
	struct sl_err err = SL_ERR_INIT;
	struct sl__cron_turn turn = {.next_ms = -1};
	struct hearing h;
	int64_t now_ms = sl__core_store_ms(w->core, sl__mono_ns(&w->home.env));
	bool asks = now_ms == 0;
	sl__unlock(&w->mu);
	hearing_init(&h, w);
	int rc = asks ? store->ops->now_ms(store->ctx, &now_ms, &err) : 0;
	int64_t asked_ns = sl__mono_ns(&w->home.env);
	if (rc == 0)
		rc = sl__cron_turn(&w->home.env, store, now_ms, &h.heard.scope, &turn, &err);
	sl__report_store(w, SL__ASKS_CRON, rc, &err);
	sl__lock(&w->mu);
	int64_t now = sl__mono_ns(&w->home.env);
	if (asks && now_ms != 0 && sl__core_store_ms(w->core, now) == 0)
		sl__core_store_clock(w->core, now_ms, asked_ns);
	sl__core_cron_done(w->core, rc, turn.next_ms, now);
	if (!w->schedules_checked && (rc == 0 || !sl_err_retryable(&err))) {
		w->schedules_checked = true;
		sl__broadcast(&w->changed);
	}
	hearing_end(w, &h, true, now);
}

/* ---- heartbeats ---- */

static void send_heartbeat(sl_worker *w) SL_REQUIRES(w->mu)
{
	const sl_store *store = &w->home.store;
	struct sl__pulse *p = &w->pulse;
	struct sl_err err = SL_ERR_INIT;
	char error[sizeof(p->error)];
	memcpy(error, p->error, sizeof(error));
	if (p->started_ms == 0)
		p->started_ms = sl__core_store_ms(w->core, p->started_ns);
	const struct sl_heartbeat heartbeat = {.worker = w->id,
					       .host = p->host,
					       .version = sl_version(),
					       .types = p->types,
					       .pid = getpid(),
					       .slots = w->cfg.slots,
					       .started_ms = p->started_ms,
					       .error = p->error_ms != 0 ? error : NULL,
					       .error_ms = p->error_ms,
					       .ttl_ms = SL__HEARTBEAT_TTL_MS,
					       .sweep = p->sent % SWEEP_EVERY == 0};
	sl__unlock(&w->mu);
	int rc = store->ops->heartbeat(store->ctx, &heartbeat, &err);
	sl__report_store(w, SL__ASKS_HEARTBEAT, rc, &err);
	sl__lock(&w->mu);
	p->sent += rc == 0;
	sl__core_heartbeat_done(w->core, rc, sl__mono_ns(&w->home.env));
}

/* Nothing more is claimed: the worker leaves the list. One that cannot reach its store leaves it when its heartbeat
 * expires. */
static void end_heartbeats(const sl_worker *w)
{
	const sl_store *store = &w->home.store;
	struct sl_err err = SL_ERR_INIT;
	int rc = store->ops->heartbeat_end(store->ctx, w->id, w->pulse.started_ms, &err);
	if (rc != 0)
		sl__log(&w->home.env, SL_LOG_INFO, "worker", "the last heartbeat was not removed; it expires",
			SL__F_STR("worker", w->id), SL__F_STR("error", err.msg));
}

void *sl__keeper_main(void *keeper)
{
	struct sl__keeper *k = keeper;
	sl_worker *w = k->w;
	sl__lock(&w->mu);
	for (;;) {
		if (k->todo.who == SL__REAPER && w->progress_due) {
			w->progress_due = false;
			sl__unlock(&w->mu);
			write_waiting_progress(w);
			sl__lock(&w->mu);
		}
		sl__core_next(w->core, sl__mono_ns(&w->home.env), &k->todo);
		if (k->todo.kind == SL__TODO_END)
			break;
		if (k->todo.kind == SL__TODO_RENEW) {
			renew(w, k);
		} else if (k->todo.kind == SL__TODO_REAP) {
			reap_lost(w, k);
		} else if (k->todo.kind == SL__TODO_CRON) {
			fire_schedules(w);
		} else if (k->todo.kind == SL__TODO_HEARTBEAT) {
			send_heartbeat(w);
		} else if (k->todo.who != SL__REAPER || !w->progress_due) {
			k->until_ns = k->todo.wake_ns;
			(void)sl__wait(&w->home.env, &k->wake, &w->mu, k->until_ns);
			k->until_ns = INT64_MIN;
		}
	}
	bool ends = k->todo.who == SL__SCHEDULER && w->pulse.sent > 0 && atomic_load(&w->unanswered) == 0;
	sl__unlock(&w->mu);
	if (ends)
		end_heartbeats(w);
	return NULL;
}
