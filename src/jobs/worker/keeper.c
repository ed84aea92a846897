/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: renews leases, and nothing else, so that a renewal waits for nothing but the store. The reaper: takes
 * back what others lost, writes the progress that waits. The scheduler: fires schedules.
 */
#include "jobs/cron/cron.h"
#include "jobs/worker/worker.h"

/* ---- renewing ---- */

static void on_lost(uint64_t id, uint64_t fence, enum sl_lost_reason reason, void *ctx)
{
	sl_worker *w = ctx;
	struct sl__keeper *k = &w->keeper;
	if (k->n_losses == k->cap_losses) {
		size_t cap = k->cap_losses != 0 ? k->cap_losses * 2 : 16;
		struct sl__loss *more = sl__realloc(&w->home.env, k->losses, cap * sizeof(*more));
		if (more == NULL)
			return; /* the next renewal, or the settle, finds it again */
		k->losses = more;
		k->cap_losses = cap;
	}
	k->losses[k->n_losses++] = (struct sl__loss){id, fence, reason};
}

static void apply_losses(sl_worker *w) SL_REQUIRES(w->mu)
{
	struct sl__keeper *k = &w->keeper;
	for (size_t i = 0; i < k->n_losses; i++)
		sl__core_lost(w->core, k->losses[i].id, k->losses[i].fence, k->losses[i].reason, sl__abort_fire, w);
	k->n_losses = 0;
}

static void put_progress_back(sl_worker *w, struct sl_attempt *a, uint64_t id, struct sl__owned *text)
	SL_REQUIRES(w->mu)
{
	bool same = a->run != NULL && a->run->id == id && a->progress == NULL;
	if (same)
		a->progress = text;
	else
		sl__free(&w->home.env, text);
}

/* Write what handlers reported in their first second and have not topped since. */
static void write_progress(sl_worker *w)
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
		if (rc != 0) {
			put_progress_back(w, a, id, text);
		} else {
			sl__free(&w->home.env, text);
			if (lost != SL_LOST_NOT)
				sl__core_lost(w->core, id, fence, lost, sl__abort_fire, w);
		}
		sl__unlock(&w->mu);
	}
}

static void renew(sl_worker *w) SL_REQUIRES(w->mu)
{
	struct sl__keeper *k = &w->keeper;
	const sl_store *store = &w->home.store;
	struct sl_err err = SL_ERR_INIT;
	sl__unlock(&w->mu);
	k->n_losses = 0;
	int rc = store->ops->renew(store->ctx, k->todo.renewals, k->todo.n_renewals, on_lost, w, &err);
	size_t n = 0;
	for (size_t i = 0; i < k->todo.n_renewals; i++)
		n += k->todo.renewals[i].n > 0;
	sl__lock(&w->mu);
	if (rc == 0)
		apply_losses(w);
	int64_t now = sl__mono_ns(&w->home.env);
	sl__core_renewed(w->core, &k->todo, rc, now);
	w->progress_due = w->progress_due || rc == 0;
	sl__worker_wake(w, now);
	sl__unlock(&w->mu);
	sl__abort_observe(w);
	for (size_t i = 0; i < n && rc == 0; i++)
		sl__tell_lease(w, SL_OBSERVE_LEASE_RENEWED, NULL);
	sl__tell_store(w, SL__ASKS_RENEW, rc, &err);
	sl__lock(&w->mu);
}

/* ---- reaping and schedules: both make jobs that can be claimed ---- */

struct hearing {
	struct sl__effects fx;
	struct sl__notes notes; /* for our own core, also without a notifier */
	struct sl_store_listen listen;
};

static void hear_note(const struct sl_note *note, void *ctx)
{
	struct hearing *h = ctx;
	sl__notes_add(&h->notes, note);
	if (h->fx.listen.note != NULL)
		h->fx.listen.note(note, h->fx.listen.ctx);
}

static void hear_change(const struct sl_change *change, void *ctx)
{
	struct hearing *h = ctx;
	h->fx.listen.change(change, h->fx.listen.ctx);
}

static void hearing_init(struct hearing *h, sl_worker *w)
{
	sl__effects_init(&h->fx, &w->home);
	sl__notes_init(&h->notes, &w->home.env);
	h->listen = (struct sl_store_listen){
		.note = hear_note, .change = h->fx.listen.change != NULL ? hear_change : NULL, .ctx = h};
}

static void hearing_end(sl_worker *w, struct hearing *h, bool happened, int64_t now_ns) SL_REQUIRES(w->mu)
{
	for (size_t i = 0; happened && i < h->notes.n; i++)
		sl__core_note(w->core, &h->notes.notes[i], now_ns);
	sl__worker_wake(w, now_ns);
	sl__unlock(&w->mu);
	sl__effects_end(&h->fx, happened);
	sl__notes_fini(&h->notes);
	sl__lock(&w->mu);
}

static void reap(sl_worker *w) SL_REQUIRES(w->mu)
{
	const sl_store *store = &w->home.store;
	struct sl_err err = SL_ERR_INIT;
	struct hearing h;
	struct sl_reaped reaped = {.n = 0};
	sl__unlock(&w->mu);
	hearing_init(&h, w);
	int rc = store->ops->reap(store->ctx, w->reap_types, w->n_types, w->reaper.todo.reap_limit, &reaped, &h.listen,
				  &err);
	sl__tell_store(w, SL__ASKS_REAP, rc, &err);
	if (rc == 0 && reaped.n > 0)
		sl__log(&w->home.env, SL_LOG_INFO, "worker", "jobs taken back from leases that ended",
			SL__F_STR("worker", w->id), SL__F_U64("jobs", reaped.n));
	sl__lock(&w->mu);
	int64_t now = sl__mono_ns(&w->home.env);
	sl__core_reaped(w->core, &w->reaper.todo, rc, &reaped, now);
	hearing_end(w, &h, rc == 0, now);
}

static void cron(sl_worker *w) SL_REQUIRES(w->mu)
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
		rc = sl__cron_turn(&w->home.env, store, now_ms, &h.listen, &turn, &err);
	sl__tell_store(w, SL__ASKS_CRON, rc, &err);
	sl__lock(&w->mu);
	int64_t now = sl__mono_ns(&w->home.env);
	if (asks && now_ms != 0 && sl__core_store_ms(w->core, now) == 0)
		sl__core_store_clock(w->core, now_ms, asked_ns);
	sl__core_cron_done(w->core, &w->scheduler.todo, rc, turn.next_ms, now);
	if (!w->looked_at_schedules && (rc == 0 || !err.retryable)) {
		w->looked_at_schedules = true;
		sl__broadcast(&w->changed);
	}
	hearing_end(w, &h, true, now);
}

static void sleep_until(sl_worker *w, struct sl__keeper *k) SL_REQUIRES(w->mu)
{
	k->until_ns = k->todo.wake_ns;
	(void)sl__wait(&w->home.env, &k->wake, &w->mu, k->until_ns);
	k->until_ns = INT64_MIN;
}

void *sl__keeper_main(void *worker)
{
	sl_worker *w = worker;
	struct sl__keeper *k = &w->keeper;
	sl__lock(&w->mu);
	for (;;) {
		sl__core_next(w->core, sl__mono_ns(&w->home.env), &k->todo);
		if (k->todo.kind == SL__TODO_END)
			break;
		if (k->todo.kind == SL__TODO_RENEW)
			renew(w);
		else
			sleep_until(w, k);
	}
	sl__unlock(&w->mu);
	return NULL;
}

void *sl__reaper_main(void *worker)
{
	sl_worker *w = worker;
	struct sl__keeper *k = &w->reaper;
	sl__lock(&w->mu);
	for (;;) {
		if (w->progress_due) {
			w->progress_due = false;
			sl__unlock(&w->mu);
			write_progress(w);
			sl__lock(&w->mu);
		}
		sl__core_next(w->core, sl__mono_ns(&w->home.env), &k->todo);
		if (k->todo.kind == SL__TODO_END)
			break;
		if (k->todo.kind == SL__TODO_REAP)
			reap(w);
		else if (!w->progress_due)
			sleep_until(w, k);
	}
	sl__unlock(&w->mu);
	return NULL;
}

void *sl__scheduler_main(void *worker)
{
	sl_worker *w = worker;
	struct sl__keeper *k = &w->scheduler;
	sl__lock(&w->mu);
	for (;;) {
		sl__core_next(w->core, sl__mono_ns(&w->home.env), &k->todo);
		if (k->todo.kind == SL__TODO_END)
			break;
		if (k->todo.kind == SL__TODO_CRON)
			cron(w);
		else
			sleep_until(w, k);
	}
	sl__unlock(&w->mu);
	return NULL;
}
