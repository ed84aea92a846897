/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for the end of a chain. A waiter enters the list before it asks the store to watch the chain, and the store
 * says where the chain is after it began to watch: so an end is either in that answer or in a note that finds the
 * waiter. Notes may be lost all the same, and a deleted chain sends none: a poll finds both.
 *
 * All waiters of a client share one subscription. The notifier's thread takes `mu` for a moment; nobody holds it while
 * calling the store or the notifier.
 */
#include "jobs/client/client.h"
#include "jobs/client/copy.h"

#define POLL_NOTIFIED_MS 1000
#define POLL_ALONE_MS 100

struct sl__waiter {
	struct sl__waiter *next;
	uint64_t chain_id;
	bool woken;
	sl__cond cond;
};

static void hear(const struct sl_note *note, void *ctx)
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

/* Made by the first waiter; the others wait for it, or they would miss what is sent meanwhile. A notifier that fails is
 * asked again by the next waiter. */
static void subscribe(sl_jobs *client)
{
	const sl_notify *notify = client->home.notify;
	struct sl_err err = SL_ERR_INIT;
	sl__lock(&client->subscribe_mu);
	if (!client->subscribed) {
		client->subscribed = notify->ops->subscribe(notify->ctx, hear, client, &err) == 0;
		if (!client->subscribed)
			sl__log(&client->home.env, SL_LOG_WARN, "jobs", "no notifications; waiting polls",
				SL__F_STR("error", err.msg));
	}
	sl__unlock(&client->subscribe_mu);
}

void sl__jobs_unsubscribe(sl_jobs *client)
{
	const sl_notify *notify = client->home.notify;
	if (client->subscribed)
		notify->ops->unsubscribe(notify->ctx, hear, client);
	client->subscribed = false;
}

static void enter(sl_jobs *client, struct sl__waiter *w)
{
	sl__cond_init(&w->cond);
	sl__lock(&client->mu);
	w->next = client->waiters;
	client->waiters = w;
	sl__unlock(&client->mu);
}

static void leave(sl_jobs *client, struct sl__waiter *w)
{
	sl__lock(&client->mu);
	struct sl__waiter **at = &client->waiters;
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	sl__unlock(&client->mu);
	sl__cond_fini(&w->cond);
}

static bool has_ended(enum sl_job_status status)
{
	return status == SL_JOB_COMPLETED || status == SL_JOB_FAILED || status == SL_JOB_CANCELLED;
}

/* What is asked of the store, and its answer. */
struct question {
	sl_jobs *client;
	uint64_t chain_id;
	bool want_copy;
	bool found, ended, no_memory;
	struct sl_chain *chain;
};

static int answer(const struct sl_chain *chain, void *ctx)
{
	struct question *q = ctx;
	q->found = true;
	q->ended = has_ended(chain->status);
	if (!q->ended || !q->want_copy)
		return 0;
	q->chain = sl__copy_chain(&q->client->home.env, chain);
	q->no_memory = q->chain == NULL;
	return q->no_memory ? SL_ENOMEM : 0;
}

/* 0 also while it has not ended. */
static int ask(struct question *q, struct sl_err *err)
{
	const sl_store *store = &q->client->home.store;
	q->found = q->ended = false;
	int rc = store->ops->get_chain(store->ctx, NULL, q->chain_id, answer, q, err);
	if (q->no_memory)
		return sl_err_set(err, SL_ENOMEM, "wait for chain %llu: no memory", (unsigned long long)q->chain_id);
	if (rc == SL_ENOENT || (rc == 0 && !q->found))
		return sl_err_set(err, SL_ENOENT, "chain %llu: there is none", (unsigned long long)q->chain_id);
	return rc;
}

static int64_t poll_ms(const sl_jobs *client)
{
	const sl_notify *notify = client->home.notify;
	if (client->wait_poll_ms != 0)
		return client->wait_poll_ms;
	return notify != NULL && notify->ops->healthy(notify->ctx) ? POLL_NOTIFIED_MS : POLL_ALONE_MS;
}

/* Sleep until woken, until the next poll or the deadline; false when that has passed. */
static bool rest(sl_jobs *client, struct sl__waiter *w, int64_t deadline_ns)
{
	const struct sl_env *env = &client->home.env;
	int64_t until = SL_MIN(sl__deadline_ns(env, poll_ms(client)), deadline_ns);
	sl__lock(&client->mu);
	while (!w->woken && sl__wait(env, &w->cond, &client->mu, until)) {
	}
	w->woken = false;
	sl__unlock(&client->mu);
	return sl__mono_ns(env) < deadline_ns;
}

/* A store that went away while we wait will be back; the deadline is the bound. */
static bool passes(int rc)
{
	return rc == 0 || rc == SL_EUNAVAIL || rc == SL_EAGAIN;
}

static int timed_out(const struct question *q, int rc, struct sl_err *err)
{
	if (rc != 0)
		return rc;
	return sl_err_set(err, SL_ETIMEDOUT, "chain %llu has not ended in time", (unsigned long long)q->chain_id);
}

static int wait_notified(struct question *q, struct sl__waiter *w, int64_t timeout_ms, struct sl_err *err)
{
	sl_jobs *client = q->client;
	const sl_store *store = &client->home.store;
	int64_t deadline_ns = sl__deadline_ns(&client->home.env, timeout_ms);
	enum sl_job_status status = SL_JOB_PENDING;
	int rc = 0;
	if (client->home.notify != NULL) {
		subscribe(client);
		rc = store->ops->watch(store->ctx, q->chain_id, &status, err);
		if (rc == 0 && has_ended(status))
			rc = ask(q, err);
	}
	bool in_time = true;
	while (rc == 0 && !q->ended && in_time) {
		in_time = rest(client, w, deadline_ns);
		rc = ask(q, err);
		if (passes(rc) && in_time)
			rc = 0;
	}
	return q->ended ? rc : timed_out(q, rc, err);
}

int sl_jobs_wait(sl_jobs *client, uint64_t chain_id, int64_t timeout_ms, struct sl_chain **out, struct sl_err *err)
{
	struct question q = {.client = client, .chain_id = chain_id, .want_copy = out != NULL};
	struct sl__waiter w = {.chain_id = chain_id};
	int rc = sl__home_check(&client->home, err);
	if (rc == 0 && timeout_ms < 0 && timeout_ms != SL_UNLIMITED)
		rc = sl_err_set(err, SL_EINVAL, "timeout_ms is %lld; give 0 or more, or SL_UNLIMITED",
				(long long)timeout_ms);
	if (rc == 0)
		rc = ask(&q, err);
	if (rc == 0 && !q.ended && timeout_ms == 0)
		rc = timed_out(&q, 0, err);
	if (rc == 0 && !q.ended) {
		enter(client, &w);
		rc = wait_notified(&q, &w, timeout_ms, err);
		leave(client, &w);
	}
	if (rc == 0 && out != NULL)
		*out = q.chain;
	return rc;
}
