/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for the end of a chain. A waiter enters the list before it asks the store to watch the chain, and the store
 * returns the chain's status after it began to watch: so an end is either in that status or in a notification that
 * finds the waiter. Notifications may still be lost, and a deleted chain sends none: a poll finds both.
 *
 * All waiters of a client share one subscription. `mu` is never held during a call of the store or the notifier.
 */
#include "jobs/client/client.h"

#define POLL_NOTIFIED_MS 1000
#define POLL_ALONE_MS 100

struct sl__waiter {
	struct sl__waiter *next;
	uint64_t chain_id;
	bool woken;
	sl__cond cond;
};

static void wake_waiters(const struct sl_note *note, void *ctx)
{
	sl_jobs *client = ctx;
	bool all = (int)note->kind == 0;
	if (!all && note->kind != SL_NOTE_CHAIN_ENDED)
		return;
	sl__lock(&client->mu);
	for (struct sl__waiter *w = client->waiters; w != NULL; w = w->next)
		if (all || w->chain_id == note->id) {
			w->woken = true;
			sl__signal(&w->cond);
		}
	sl__unlock(&client->mu);
}

void sl__jobs_unsubscribe(sl_jobs *client)
{
	const sl_notify *notify = client->home.notify;
	if (client->subscribed)
		notify->ops->unsubscribe(notify->ctx, wake_waiters, client);
	client->subscribed = false;
}

static bool has_ended(enum sl_job_status status)
{
	return status == SL_JOB_COMPLETED || status == SL_JOB_FAILED || status == SL_JOB_CANCELLED;
}

/* The state of a chain, as the store returned it. */
struct chain_state {
	sl_jobs *client;
	uint64_t chain_id;
	bool want_copy;
	bool found, ended, no_memory;
	struct sl_chain *chain; /* a copy, once it has ended */
};

static int keep_state(const struct sl_chain *chain, void *ctx)
{
	struct chain_state *s = ctx;
	s->found = true;
	s->ended = has_ended(chain->status);
	if (!s->ended || !s->want_copy)
		return 0;
	struct sl__copy copy = {.env = &s->client->home.env};
	int rc = sl__copy_chain(chain, &copy);
	s->chain = copy.data;
	s->no_memory = rc != 0;
	return rc;
}

/* 0 also while it has not ended. */
static int read_chain_state(struct chain_state *s, struct sl_err *err)
{
	const sl_store *store = &s->client->home.store;
	s->found = s->ended = false;
	int rc = store->ops->get_chain(store->ctx, NULL, s->chain_id, keep_state, s, err);
	if (s->no_memory)
		return sl_err_set(err, SL_ENOMEM, "wait for chain %llu: no memory", (unsigned long long)s->chain_id);
	if (rc == SL_ENOENT || (rc == 0 && !s->found))
		return sl_err_set(err, SL_ENOENT, "no chain %llu", (unsigned long long)s->chain_id);
	return rc;
}

/* Until the chain has ended or the deadline has passed; w is in the list of waiters. */
static int wait_for_chain(struct chain_state *s, struct sl__waiter *w, int64_t deadline_ns, struct sl_err *err)
{
	sl_jobs *client = s->client;
	const struct sl_env *env = &client->home.env;
	const sl_store *store = &client->home.store;
	const sl_notify *notify = client->home.notify;
	enum sl_job_status status = SL_JOB_PENDING;
	int rc = 0;
	if (notify != NULL) {
		/* The first waiter subscribes; the others wait for it, or they would miss what is sent meanwhile. After a
		 * failure the next waiter tries again. */
		struct sl_err why = SL_ERR_INIT;
		sl__lock(&client->subscribe_mu);
		if (!client->subscribed) {
			client->subscribed = notify->ops->subscribe(notify->ctx, wake_waiters, client, &why) == 0;
			if (!client->subscribed)
				sl__log(env, SL_LOG_WARN, "jobs",
					"subscribing to notifications failed; falling back to polling",
					SL__F_STR("error", why.msg));
		}
		sl__unlock(&client->subscribe_mu);
		rc = store->ops->watch(store->ctx, s->chain_id, &status, err);
		if (rc == 0 && has_ended(status))
			rc = read_chain_state(s, err);
	}
	for (bool in_time = true; rc == 0 && !s->ended && in_time;) {
		/* Sleep until woken, until the next poll or the deadline. */
		int64_t poll_ms = client->wait_poll_ms;
		if (poll_ms == 0)
			poll_ms =
				notify != NULL && notify->ops->healthy(notify->ctx) ? POLL_NOTIFIED_MS : POLL_ALONE_MS;
		int64_t until = SL_MIN(sl__deadline_ns(env, poll_ms), deadline_ns);
		sl__lock(&client->mu);
		while (!w->woken && sl__wait(env, &w->cond, &client->mu, until)) {
		}
		w->woken = false;
		sl__unlock(&client->mu);
		in_time = sl__mono_ns(env) < deadline_ns;
		/* A store that is unavailable meanwhile will be back; the deadline is the bound. */
		rc = read_chain_state(s, err);
		if ((rc == SL_EUNAVAIL || rc == SL_EAGAIN) && in_time)
			rc = 0;
	}
	return rc;
}

int sl_jobs_wait(sl_jobs *client, uint64_t chain_id, int64_t timeout_ms, struct sl_chain **out, struct sl_err *err)
{
	struct chain_state s = {.client = client, .chain_id = chain_id, .want_copy = out != NULL};
	struct sl__waiter w = {.chain_id = chain_id};
	int rc = sl__home_check(&client->home, err);
	if (rc != 0)
		return rc;
	if (timeout_ms < 0 && timeout_ms != SL_UNLIMITED)
		return sl_err_set(err, SL_EINVAL, "timeout_ms is %lld; give 0 or more, or SL_UNLIMITED",
				  (long long)timeout_ms);
	rc = read_chain_state(&s, err);
	if (rc == 0 && !s.ended && timeout_ms != 0) {
		sl__cond_init(&w.cond);
		sl__lock(&client->mu);
		w.next = client->waiters;
		client->waiters = &w;
		sl__unlock(&client->mu);

		rc = wait_for_chain(&s, &w, sl__deadline_ns(&client->home.env, timeout_ms), err);

		sl__lock(&client->mu);
		struct sl__waiter **at = &client->waiters;
		while (*at != &w)
			at = &(*at)->next;
		*at = w.next;
		sl__unlock(&client->mu);
		sl__cond_fini(&w.cond);
	}
	if (rc != 0)
		return rc;
	if (!s.ended)
		return sl_err_set(err, SL_ETIMEDOUT, "chain %llu has not ended in time", (unsigned long long)chain_id);
	if (out != NULL)
		*out = s.chain;
	return 0;
}
