/* SPDX-License-Identifier: Apache-2.0 */
/* The PostgreSQL notifier: its slots, opening and closing. */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "jobs/notify/postgres.h"
#include <sluice/jobs.h>

#define CONNECT_TIMEOUT_MS 5000
#define STATEMENT_TIMEOUT_MS 10000
#define TOKENS_PER_S 100 /* for notes of a process, after a first few at once */
#define TOKENS_BURST 10
#define RARE_NS INT64_C(5000000) /* between two starts, for the store to notify with the second one */

void sl__pg_notify_opts(const struct sl__pg_notify *n, struct sl__pg_opts *out)
{
	*out = (struct sl__pg_opts){.env = &n->env,
				    .conninfo = n->conninfo,
				    .application = "sluice",
				    .connect_timeout_ms = CONNECT_TIMEOUT_MS,
				    .statement_timeout_ms = STATEMENT_TIMEOUT_MS};
}

static void wake_listener(void *ctx)
{
	struct sl__pg_notify *n = ctx;
	uint64_t one = 1;
	/* EAGAIN: it has been woken four billion billion times already. */
	if (write(n->wake_fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN);
}

static void wake_publisher(void *ctx)
{
	struct sl__pg_notify *n = ctx;
	sl__lock(&n->mu);
	n->has_work = true;
	sl__signal(&n->work);
	sl__unlock(&n->mu);
}

static int check_fork(const struct sl__pg_notify *n, struct sl_err *err)
{
	return n->pid == getpid() ? 0 : sl_err_set(err, SL_EFORKED, "a forked child must open its own notifier");
}

/* What a store has sent has reached the others already. */
static void send_unsent(struct sl__pg_notify *n, const struct sl_note *notes, size_t n_notes)
{
	bool any = false;
	for (size_t from = 0, to; from < n_notes; from = to + 1) {
		for (to = from; to < n_notes && !notes[to].sent; to++)
			;
		if (to == from)
			continue;
		if (!any)
			(void)atomic_fetch_add(&n->published, 1);
		any = true;
		sl__fanout_push(&n->outbox, notes + from, to - from);
	}
}

static int publish(void *notify, const struct sl_note *notes, size_t n_notes, struct sl_err *err)
{
	struct sl__pg_notify *n = notify;
	int rc = check_fork(n, err);
	if (rc != 0)
		return rc;
	sl__fanout_push(&n->inbox, notes, n_notes);
	send_unsent(n, notes, n_notes);
	return 0;
}

/* Sent by the server when the transaction commits, to this process too: so it has no sender. */
static int publish_in(void *notify, sl_store_tx *tx, const struct sl_note *notes, size_t n_notes, struct sl_err *err)
{
	struct sl__pg_notify *n = notify;
	const struct sl__pg_tx *pg = (const struct sl__pg_tx *)(const void *)tx;
	int rc = check_fork(n, err);
	if (rc != 0)
		return rc;
	if (pg->magic != SL__PG_TX_MAGIC)
		return sl_err_set(err, SL_EINVAL, "postgres: notify: the transaction is another store's");
	struct sl__pg_payloads payloads;
	struct sl__pg_conn plain = *pg->conn; /* nothing of ours is prepared there */
	plain.foreign = true;
	sl__pg_payloads_init(&payloads, &n->env, UINT64_MAX);
	for (size_t i = 0; i < n_notes; i++)
		sl__pg_payloads_add(&payloads, &notes[i]);
	sl__pg_payloads_end(&payloads);
	rc = sl__pg_send_payloads(&plain, &payloads, false, err);
	sl__buf_fini(&payloads.text);
	return rc;
}

/* A notification costs the server a transaction and a wake of every listener, and the start waits for it. Only starts
 * that are RARE_NS apart get one of their own; in a stream of starts the publisher merges and paces the notes. */
static int start_notification(void *notify, const char *type, struct sl_start_notification *out)
{
	struct sl__pg_notify *n = notify;
	int64_t now = sl__mono_ns(&n->env);
	if (check_fork(n, NULL) != 0 || strlen(type) >= SL__FANOUT_TYPE_BYTES)
		return 0;
	int64_t last = atomic_exchange(&n->start_ns, now);
	if (now - last < RARE_NS || sl__tokens_try_take(n->tokens, 1, NULL) != 0)
		return 0;
	sl__pg_payload_of_start(n->id, type, out);
	return 1;
}

static int subscribe(void *notify, sl_note_fn *fn, void *ctx, struct sl_err *err)
{
	struct sl__pg_notify *n = notify;
	int rc = check_fork(n, err);
	if (rc == 0)
		rc = sl__fanout_subscribe(&n->inbox, fn, ctx, err);
	if (rc == 0 && !atomic_exchange(&n->subscribed, true))
		wake_listener(n);
	return rc;
}

static void unsubscribe(void *notify, sl_note_fn *fn, void *ctx)
{
	struct sl__pg_notify *n = notify;
	if (check_fork(n, NULL) == 0)
		sl__fanout_unsubscribe(&n->inbox, fn, ctx);
}

static int healthy(void *notify)
{
	struct sl__pg_notify *n = notify;
	return atomic_load(&n->healthy);
}

/* ---- opening and closing ---- */

static void free_notify(struct sl__pg_notify *n)
{
	sl__fanout_fini(&n->inbox);
	sl__fanout_fini(&n->outbox);
	sl__buf_fini(&n->payloads.text);
	sl__tokens_free(n->tokens);
	sl__cond_fini(&n->work);
	sl__mutex_fini(&n->mu);
	if (n->wake_fd >= 0)
		(void)close(n->wake_fd);
	sl__free(&n->env, n->conninfo);
	struct sl_env env = n->env;
	sl__free(&env, n);
}

static void stop_threads(struct sl__pg_notify *n, bool has_listener, bool has_publisher)
{
	atomic_store(&n->stopping, true);
	sl__tokens_close(n->tokens);
	wake_listener(n);
	sl__lock(&n->mu);
	sl__broadcast(&n->work);
	sl__unlock(&n->mu);
	if (has_listener)
		(void)pthread_join(n->listener, NULL);
	if (has_publisher)
		(void)pthread_join(n->publisher, NULL);
}

/* What was published is sent before this returns, when the server is there. */
static void close_notify(void *notify)
{
	struct sl__pg_notify *n = notify;
	if (n->pid != getpid())
		return;
	stop_threads(n, true, true);
	free_notify(n);
}

static const struct sl_notify_ops ops = {
	.version = SL_NOTIFY_VERSION,
	.name = "postgres",
	.close = close_notify,
	.publish = publish,
	.publish_in = publish_in,
	.subscribe = subscribe,
	.unsubscribe = unsubscribe,
	.healthy = healthy,
	.start_notification = start_notification,
};

static int start_threads(struct sl__pg_notify *n, struct sl_err *err)
{
	int rc = sl__thread_start(&n->listener, "sl-listen", sl__pg_listen_main, n);
	if (rc != 0)
		return sl__thread_error(err, rc, "listener", "this process");
	rc = sl__thread_start(&n->publisher, "sl-publish", sl__pg_publish_main, n);
	if (rc == 0)
		return 0;
	stop_threads(n, true, false);
	return sl__thread_error(err, rc, "publisher", "this process");
}

static int set_up(struct sl__pg_notify *n, const char *conninfo, struct sl_err *err)
{
	int rc = sl__pg_check_conninfo(conninfo, err);
	if (rc != 0)
		return rc;
	n->conninfo = sl__strdup(&n->env, conninfo);
	if (n->conninfo == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a notifier");
	n->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (n->wake_fd < 0)
		return sl_err_set_errno(err, errno, "notifier: eventfd");
	const struct sl__tokens_opts rate = {.env = &n->env, .rate = TOKENS_PER_S, .burst = TOKENS_BURST};
	rc = sl__tokens_new(&n->tokens, &rate, err);
	if (rc == 0)
		rc = sl__fanout_init(&n->inbox, &n->env, wake_listener, n, err);
	if (rc == 0)
		rc = sl__fanout_init(&n->outbox, &n->env, wake_publisher, n, err);
	if (rc == 0)
		rc = sl__fanout_subscribe(&n->outbox, sl__pg_collect, n, err);
	return rc != 0 ? rc : start_threads(n, err);
}

int sl_notify_postgres_open(sl_notify *out, const char *conninfo, const struct sl_env *env, struct sl_err *err)
{
	struct sl_env full;
	struct sl__prng prng;
	int rc = sl__env_init(&full, env, err);
	if (rc != 0)
		return rc;
	struct sl__pg_notify *n = sl__calloc(&full, 1, sizeof(*n));
	if (n == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a notifier");
	n->env = full;
	n->pid = getpid();
	n->wake_fd = -1;
	sl__prng_init(&prng, &n->env);
	n->id = sl__prng_next(&prng) >> 1 | 1; /* neither 0 nor that of transactions */
	n->out.env = &n->env;
	n->price = 1;
	n->start_ns = INT64_MIN / 2;
	sl__pg_payloads_init(&n->payloads, &n->env, n->id);
	sl__mutex_init(&n->mu);
	sl__cond_init(&n->work);
	rc = set_up(n, conninfo, err);
	if (rc != 0) {
		free_notify(n);
		return rc;
	}
	*out = (sl_notify){.ops = &ops, .ctx = n};
	return 0;
}
