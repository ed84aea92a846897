/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PostgreSQL notifier. Two threads, each with its own connection:
 *
 *	publish ──▶ inbox ─────────────────────────▶ listener ──▶ subscribers of this process
 *	        └─▶ outbox (merged) ─▶ publisher ──▶ NOTIFY ──▶ LISTEN of other processes ─▶ their listener
 *
 * A payload begins with the number of the notifier that sent it: its own listener has delivered those notes already and
 * takes them only as a sign that notifications arrive. What a store sends with a start (start_notification) is such a
 * payload too; that note does not go through the publisher.
 *
 * The publisher. NOTIFY takes a lock of the whole server until its transaction has ended, so it is sent apart from
 * other transactions, without waiting for the disk. While one is under way, further notes are merged in the outbox; and
 * so they are when there were many just now, since each costs the server a transaction and a wake of every listener,
 * which a stream of starts would feel more than a worker feels 10 ms. What could not be sent is forgotten; the next that
 * can is preceded by "check everything".
 *
 * The listener holds one LISTEN connection while there are subscribers. It waits for the socket and for wake-ups, and
 * connects again with growing pauses. After every connect subscribers are notified to check everything, since notes may
 * have been missed.
 *
 * Health: after LISTEN, and then now and again, the publisher is asked for a notification, which must come back. When it
 * does not (a pooler between us and the server accepts LISTEN and forgets it), the notifier is unhealthy, and polling is
 * what remains.
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "db/postgres.h"
#include "flow/tokens.h"
#include "jobs/notify/payload.h"
#include <sluice/jobs.h>

#define CONNECT_TIMEOUT_MS 5000
#define STATEMENT_TIMEOUT_MS 10000
#define TOKENS_PER_S 100 /* for notes of a process, after a first few at once */
#define TOKENS_BURST 10
#define PRICE_MAX 5              /* tokens for one sending: 50 ms apart at most */
#define RARE_NS INT64_C(5000000) /* between two starts, for the store to notify with the second one */
#define FIRST_PAUSE_MS 100
#define LONGEST_PAUSE_MS 5000
#define PROBE_EVERY_MS 30000
#define PROBE_PATIENCE_MS 5000

struct pg_notify {
	struct sl__fanout inbox; /* to the subscribers, delivered by the listener; first: its slots get this struct */
	struct sl_env env;
	char *conninfo;
	uint64_t id; /* of this notifier, never 0 */
	atomic_bool stopping;

	pthread_t listener;
	int wake_fd;            /* eventfd: something for the listener */
	atomic_bool subscribed; /* there are subscribers: the connection is wanted */
	atomic_bool healthy;

	struct sl__fanout outbox; /* to the server; its only subscriber writes payloads */
	pthread_t publisher;
	sl__mutex mu;
	sl__cond work;
	sl__tokens *tokens;              /* for sending */
	_Atomic int64_t start_ns;        /* when a start last asked for a notification */
	atomic_uint published;           /* calls since notes were sent last */
	bool has_work, probe_wanted;     /* under mu */
	struct sl__pg_conn out;          /* the publisher's, as the two below; out.pg NULL: not connected */
	struct sl__pg_payloads payloads; /* to be sent next */
	bool lost;                       /* notes were not sent */
};

static struct sl__pg_opts connection_opts(const struct pg_notify *n)
{
	return (struct sl__pg_opts){.env = &n->env,
				    .conninfo = n->conninfo,
				    .application = "sluice",
				    .connect_timeout_ms = CONNECT_TIMEOUT_MS,
				    .statement_timeout_ms = STATEMENT_TIMEOUT_MS};
}

static void wake_listener(void *ctx)
{
	struct pg_notify *n = ctx;
	uint64_t one = 1;
	/* EAGAIN: it has been woken four billion billion times already. */
	if (write(n->wake_fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN);
}

static void wake_publisher(void *ctx)
{
	struct pg_notify *n = ctx;
	sl__lock(&n->mu);
	n->has_work = true;
	sl__signal(&n->work);
	sl__unlock(&n->mu);
}

/* ---- the publisher ---- */

/* The subscriber of the outbox. */
static void add_to_payloads(const struct sl_note *note, void *ctx)
{
	struct pg_notify *n = ctx;
	sl__pg_payloads_add(&n->payloads, note);
}

/* Send the payloads on a connection. lazy: the commit need not wait for the disk; never in a caller's transaction. */
static int send_payloads(struct sl__pg_conn *conn, const struct sl__pg_payloads *p, bool lazy, struct sl_err *err)
{
	static const struct sl__pg_stmt notify_stmt = {
		.index = 0, .name = "sluice_NOTIFY", .sql = "SELECT pg_notify('" SL__PG_CHANNEL "', $1)"};
	/* For its transaction only: of a session that a pooler shares, the next transaction may be an enqueue. */
	static const struct sl__pg_stmt lazy_stmt = {
		.index = 1, .name = "sluice_LAZY", .sql = "SELECT set_config('synchronous_commit', 'off', true)"};
	SL__PG_PARAMS_LOCAL(params, conn->env);
	if (p->text.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "postgres: notify: out of memory");
	int rc = 0;
	for (size_t at = 0; rc == 0 && at < p->text.len;) {
		struct sl__pg_pipe pipe;
		sl__pg_pipe_init(&pipe, conn);
		sl__pg_params_clear(&params);
		if (lazy)
			(void)sl__pg_send(&pipe, &lazy_stmt, &params);
		for (; pipe.n < SL__PG_PIPE_MAX && at < p->text.len; at += strlen(p->text.data + at) + 1) {
			sl__pg_params_clear(&params);
			sl__pg_add_text(&params, p->text.data + at);
			(void)sl__pg_send(&pipe, &notify_stmt, &params);
		}
		rc = sl__pg_run(&pipe, err);
		sl__pg_pipe_end(&pipe);
	}
	return rc;
}

/* Send what was collected, and forget it: one try, and a second one on a new connection when there was an old one. */
static void send_collected(struct pg_notify *n)
{
	const struct sl__pg_opts opts = connection_opts(n);
	struct sl_err err = SL_ERR_INIT;
	int rc = SL_EUNAVAIL;
	sl__pg_payloads_end(&n->payloads);
	for (int tries = n->out.pg != NULL ? 2 : 1; rc != 0 && tries > 0; tries--) {
		rc = n->out.pg == NULL ? sl__pg_open(&n->out, &opts, &err) : 0;
		if (rc == 0)
			rc = send_payloads(&n->out, &n->payloads, true, &err);
		if (rc != 0) {
			PQfinish(n->out.pg);
			n->out = (struct sl__pg_conn){.env = &n->env};
		}
	}
	if (rc != 0 && !n->lost)
		sl__log(&n->env, SL_LOG_WARN, "notify", "NOTIFY failed; other processes fall back to polling",
			SL__F_STR("error", err.msg));
	n->lost = rc != 0;
	sl__buf_clear(&n->payloads.text);
	n->payloads.begin = 0;
}

static void *publish_main(void *arg)
{
	struct pg_notify *n = arg;
	unsigned price = 1; /* tokens for sending next */
	for (;;) {
		/* Leave when everything that was published before has been taken along. */
		sl__lock(&n->mu);
		while (!n->has_work && !n->probe_wanted && !atomic_load(&n->stopping))
			(void)sl__wait(&n->env, &n->work, &n->mu, SL_FOREVER);
		bool probe = n->probe_wanted, more = n->has_work || (probe && !atomic_load(&n->stopping));
		n->has_work = n->probe_wanted = false;
		sl__unlock(&n->mu);
		if (!more)
			break;
		/* What was merged last time is paid for now: a stream of notes is sent ever more rarely, up to a bound. */
		int rc = sl__tokens_take(n->tokens, price, SL_UNLIMITED);
		assert(rc == 0 || rc == SL_ECLOSED); /* closed: the last ones go immediately */
		(void)rc;
		unsigned merged = atomic_exchange(&n->published, 0);
		price = SL_MIN(SL_MAX(merged, 1U), PRICE_MAX);
		if (n->lost)
			sl__pg_payloads_add(&n->payloads, &(const struct sl_note){.kind = 0});
		sl__fanout_deliver(&n->outbox);
		if (probe)
			sl__pg_payloads_head(&n->payloads);
		if (n->payloads.text.len > 0)
			send_collected(n);
	}
	PQfinish(n->out.pg);
	n->out = (struct sl__pg_conn){.env = &n->env};
	return NULL;
}

/* ---- the listener ---- */

struct listening {
	struct pg_notify *n;
	PGconn *pg;          /* NULL: not connected */
	int64_t pause_ms;    /* before the next try */
	int64_t next_ns;     /* of the next try, while not connected; of the next probe otherwise */
	int64_t patience_ns; /* until then a probe must have come; SL_FOREVER: none is out */
	bool failed;         /* the last try did, which was logged */
};

static void stop_listening(struct listening *l)
{
	PQfinish(l->pg);
	l->pg = NULL;
	atomic_store(&l->n->healthy, false);
	l->next_ns = sl__deadline_ns(&l->n->env, l->pause_ms);
	l->pause_ms = SL_MIN(l->pause_ms * 2, (int64_t)LONGEST_PAUSE_MS);
}

/* Make the publisher send a sign of life that must come back. */
static void send_probe(struct listening *l)
{
	l->next_ns = sl__deadline_ns(&l->n->env, PROBE_EVERY_MS);
	l->patience_ns = sl__deadline_ns(&l->n->env, PROBE_PATIENCE_MS);
	sl__lock(&l->n->mu);
	l->n->probe_wanted = true;
	sl__signal(&l->n->work);
	sl__unlock(&l->n->mu);
}

static void connect_and_listen(struct listening *l)
{
	const struct sl__pg_opts opts = connection_opts(l->n);
	struct sl_err err = SL_ERR_INIT;
	if (sl__pg_connect(&l->pg, &opts, &err) == 0) {
		PGresult *res = PQexec(l->pg, "LISTEN " SL__PG_CHANNEL);
		bool listening = PQresultStatus(res) == PGRES_COMMAND_OK;
		if (!listening)
			(void)sl__pg_error(&err, l->pg, res, "listen");
		PQclear(res);
		if (listening) {
			if (l->failed)
				sl__log(&l->n->env, SL_LOG_INFO, "notify", "LISTEN works again",
					SL__F_STR("channel", SL__PG_CHANNEL));
			l->failed = false;
			l->pause_ms = FIRST_PAUSE_MS;
			sl__fanout_push_all(&l->n->inbox);
			send_probe(l);
			return;
		}
	}
	/* Once for an outage: the tries that follow have nothing new to report. */
	sl__log(&l->n->env, l->failed ? SL_LOG_DEBUG : SL_LOG_WARN, "notify", "LISTEN failed; falling back to polling",
		SL__F_STR("error", err.msg));
	l->failed = true;
	stop_listening(l);
}

/* Sleep until there is something to do, and read the notifications that have come. */
static void wait_and_read(struct listening *l)
{
	struct pg_notify *n = l->n;
	struct pollfd fds[2] = {{.fd = n->wake_fd, .events = POLLIN},
				{.fd = l->pg != NULL ? PQsocket(l->pg) : -1, .events = POLLIN}};
	int timeout_ms = -1;
	if (l->pg != NULL || atomic_load(&n->subscribed)) {
		int64_t until = l->pg != NULL ? SL_MIN(l->next_ns, l->patience_ns) : l->next_ns;
		int64_t left = until - sl__mono_ns(&n->env);
		timeout_ms = left <= 0 ? 0 : (int)SL_MIN(left / 1000000 + 1, (int64_t)PROBE_EVERY_MS);
	}
	if (poll(fds, l->pg != NULL ? 2 : 1, timeout_ms) <= 0)
		return;
	uint64_t wakes;
	if ((fds[0].revents & POLLIN) != 0 && read(n->wake_fd, &wakes, sizeof(wakes)) < 0)
		assert(errno == EAGAIN);
	if (l->pg == NULL || fds[1].revents == 0)
		return;
	if (PQconsumeInput(l->pg) != 1 || PQstatus(l->pg) != CONNECTION_OK) {
		stop_listening(l);
		return;
	}
	for (PGnotify *got; (got = PQnotifies(l->pg)) != NULL; PQfreemem(got))
		if (sl__pg_payload_take(got->extra, n->id, &n->inbox) == n->id) {
			l->patience_ns = SL_FOREVER;
			atomic_store(&n->healthy, true);
		}
}

static void *pg_listen_main(void *arg)
{
	struct pg_notify *n = arg;
	struct listening l = {.n = n, .pause_ms = FIRST_PAUSE_MS, .patience_ns = SL_FOREVER};
	while (!atomic_load(&n->stopping)) {
		int64_t now = sl__mono_ns(&n->env);
		if (l.pg == NULL) {
			if (atomic_load(&n->subscribed) && now >= l.next_ns)
				connect_and_listen(&l);
		} else {
			if (now >= l.patience_ns) {
				l.patience_ns = SL_FOREVER;
				if (atomic_exchange(&n->healthy, false))
					sl__fanout_push_all(&n->inbox);
			}
			if (now >= l.next_ns)
				send_probe(&l);
		}
		sl__fanout_deliver(&n->inbox);
		wait_and_read(&l);
		sl__fanout_deliver(&n->inbox);
	}
	PQfinish(l.pg);
	return NULL;
}

/* ---- the slots ---- */

static int pg_publish(void *notify, const struct sl_note *notes, size_t n_notes, struct sl_err *err)
{
	struct pg_notify *n = notify;
	bool any = false;
	int rc = sl__fanout_publish(&n->inbox, notes, n_notes, err);
	if (rc != 0)
		return rc;
	/* What a store has sent has reached the others already. */
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
	return 0;
}

/* Sent by the server when the transaction commits, to this process too: so it has no sender. */
static int pg_publish_in(void *notify, sl_store_tx *tx, const struct sl_note *notes, size_t n_notes, struct sl_err *err)
{
	struct pg_notify *n = notify;
	const struct sl__pg_tx *pg = (const struct sl__pg_tx *)(const void *)tx;
	int rc = sl__fanout_check_fork(&n->inbox, err);
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
	rc = send_payloads(&plain, &payloads, false, err);
	sl__buf_fini(&payloads.text);
	return rc;
}

/* A notification costs the server a transaction and a wake of every listener, and the start waits for it. Only starts
 * that are RARE_NS apart get their own; in a stream of starts the publisher merges and paces the notes. */
static int pg_start_notification(void *notify, const char *type, struct sl_start_notification *out)
{
	struct pg_notify *n = notify;
	int64_t now = sl__mono_ns(&n->env);
	if (sl__fanout_check_fork(&n->inbox, NULL) != 0 || strlen(type) >= SL__FANOUT_TYPE_BYTES)
		return 0;
	int64_t last = atomic_exchange(&n->start_ns, now);
	if (now - last < RARE_NS || sl__tokens_try_take(n->tokens, 1, NULL) != 0)
		return 0;
	sl__pg_payload_of_start(n->id, type, out);
	return 1;
}

static int pg_subscribe(void *notify, sl_note_fn *fn, void *ctx, struct sl_err *err)
{
	struct pg_notify *n = notify;
	int rc = sl__fanout_subscribe(&n->inbox, fn, ctx, err);
	if (rc == 0 && !atomic_exchange(&n->subscribed, true))
		wake_listener(n);
	return rc;
}

static int pg_healthy(void *notify)
{
	struct pg_notify *n = notify;
	return atomic_load(&n->healthy);
}

/* ---- opening and closing ---- */

static void free_notify(struct pg_notify *n)
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

static void stop_threads(struct pg_notify *n, bool has_publisher)
{
	atomic_store(&n->stopping, true);
	sl__tokens_close(n->tokens);
	wake_listener(n);
	sl__lock(&n->mu);
	sl__broadcast(&n->work);
	sl__unlock(&n->mu);
	(void)pthread_join(n->listener, NULL);
	if (has_publisher)
		(void)pthread_join(n->publisher, NULL);
}

/* What was published is sent before this returns, when the server is there. */
static void pg_notify_close(void *notify)
{
	struct pg_notify *n = notify;
	if (sl__fanout_check_fork(&n->inbox, NULL) != 0)
		return;
	stop_threads(n, true);
	free_notify(n);
}

static const struct sl_notify_ops ops = {
	.version = SL_NOTIFY_VERSION,
	.name = "postgres",
	.close = pg_notify_close,
	.publish = pg_publish,
	.publish_in = pg_publish_in,
	.subscribe = pg_subscribe,
	.unsubscribe = sl__fanout_unsubscribe,
	.healthy = pg_healthy,
	.start_notification = pg_start_notification,
};

/* Everything that can fail; the caller frees n after a failure. */
static int build_notify(struct pg_notify *n, const char *conninfo, struct sl_err *err)
{
	const struct sl__tokens_opts rate = {.env = &n->env, .rate = TOKENS_PER_S, .burst = TOKENS_BURST};
	int rc = sl__pg_check_conninfo(conninfo, err);
	if (rc != 0)
		return rc;
	n->conninfo = sl__strdup(&n->env, conninfo);
	if (n->conninfo == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a notifier");
	n->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (n->wake_fd < 0)
		return sl_err_set_errno(err, errno, "notifier: eventfd");
	rc = sl__tokens_new(&n->tokens, &rate, err);
	if (rc != 0)
		return rc;
	rc = sl__fanout_init(&n->inbox, &n->env, wake_listener, n, err);
	if (rc != 0)
		return rc;
	rc = sl__fanout_init(&n->outbox, &n->env, wake_publisher, n, err);
	if (rc != 0)
		return rc;
	rc = sl__fanout_subscribe(&n->outbox, add_to_payloads, n, err);
	if (rc != 0)
		return rc;
	rc = sl__thread_start(&n->listener, "sl-listen", pg_listen_main, n);
	if (rc != 0)
		return sl__thread_error(err, rc, "listener", "this process");
	rc = sl__thread_start(&n->publisher, "sl-publish", publish_main, n);
	if (rc == 0)
		return 0;
	stop_threads(n, false);
	return sl__thread_error(err, rc, "publisher", "this process");
}

int sl_notify_postgres_open(sl_notify *out, const char *conninfo, const struct sl_env *env, struct sl_err *err)
{
	struct sl_env full;
	struct sl__prng prng;
	int rc = sl__env_init(&full, env, err);
	if (rc != 0)
		return rc;
	struct pg_notify *n = sl__calloc(&full, 1, sizeof(*n));
	if (n == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a notifier");
	n->env = full;
	n->wake_fd = -1;
	sl__prng_init(&prng, &n->env);
	n->id = sl__prng_next(&prng) >> 1 | 1; /* neither 0 nor that of transactions */
	n->out.env = &n->env;
	n->start_ns = INT64_MIN / 2;
	sl__pg_payloads_init(&n->payloads, &n->env, n->id);
	sl__mutex_init(&n->mu);
	sl__cond_init(&n->work);
	rc = build_notify(n, conninfo, err);
	if (rc != 0) {
		free_notify(n);
		return rc;
	}
	*out = (sl_notify){.ops = &ops, .ctx = n};
	return 0;
}
