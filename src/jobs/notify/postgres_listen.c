/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listener: one LISTEN connection per process, held while there are subscribers. It waits for the socket and for
 * wake-ups at once, and connects again with growing pauses. After every connect subscribers are notified to check
 * everything, since notes may have been missed.
 *
 * Health: after LISTEN, and then now and again, the publisher is asked for a notification, which must come back. That
 * it does not (a pooler between us and the server takes LISTEN and forgets it) makes the notifier unhealthy, and
 * polling is what remains.
 */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "jobs/notify/postgres.h"

#define FIRST_PAUSE_MS 100
#define LONGEST_PAUSE_MS 5000
#define PROBE_EVERY_MS 30000
#define PROBE_PATIENCE_MS 5000

struct listening {
	struct sl__pg_notify *n;
	PGconn *pg;          /* NULL: not connected */
	int64_t pause_ms;    /* before the next try */
	int64_t next_ns;     /* of the next try, while not connected; of the next probe otherwise */
	int64_t patience_ns; /* until then a probe must have come; SL_FOREVER: none is out */
	bool failed;         /* the last try did, which was logged */
};

static void disconnect(struct listening *l)
{
	PQfinish(l->pg);
	l->pg = NULL;
	atomic_store(&l->n->healthy, false);
	l->next_ns = sl__deadline_ns(&l->n->env, l->pause_ms);
	l->pause_ms = SL_MIN(l->pause_ms * 2, (int64_t)LONGEST_PAUSE_MS);
}

static void probe(struct listening *l)
{
	l->next_ns = sl__deadline_ns(&l->n->env, PROBE_EVERY_MS);
	l->patience_ns = sl__deadline_ns(&l->n->env, PROBE_PATIENCE_MS);
	sl__pg_probe(l->n);
}

static void connect_and_listen(struct listening *l)
{
	struct sl__pg_opts opts;
	struct sl_err err = SL_ERR_INIT;
	sl__pg_notify_opts(l->n, &opts);
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
			probe(l);
			return;
		}
	}
	/* Once for an outage: the tries that follow have nothing new to report. */
	sl__log(&l->n->env, l->failed ? SL_LOG_DEBUG : SL_LOG_WARN, "notify", "LISTEN failed; falling back to polling",
		SL__F_STR("error", err.msg));
	l->failed = true;
	disconnect(l);
}

static void read_notifications(struct listening *l)
{
	PGnotify *got;
	if (PQconsumeInput(l->pg) != 1 || PQstatus(l->pg) != CONNECTION_OK) {
		disconnect(l);
		return;
	}
	while ((got = PQnotifies(l->pg)) != NULL) {
		if (sl__pg_payload_take(got->extra, l->n->id, &l->n->inbox) == l->n->id) {
			l->patience_ns = SL_FOREVER;
			atomic_store(&l->n->healthy, true);
		}
		PQfreemem(got);
	}
}

/* Milliseconds to wait at most, for poll. */
static int patience_ms(const struct listening *l)
{
	int64_t until = l->pg != NULL ? SL_MIN(l->next_ns, l->patience_ns) : l->next_ns;
	if (l->pg == NULL && !atomic_load(&l->n->subscribed))
		return -1;
	int64_t left = until - sl__mono_ns(&l->n->env);
	return left <= 0 ? 0 : (int)SL_MIN(left / 1000000 + 1, (int64_t)PROBE_EVERY_MS);
}

static void wait(struct listening *l)
{
	struct pollfd fds[2] = {{.fd = l->n->wake_fd, .events = POLLIN},
				{.fd = l->pg != NULL ? PQsocket(l->pg) : -1, .events = POLLIN}};
	if (poll(fds, l->pg != NULL ? 2 : 1, patience_ms(l)) <= 0)
		return;
	uint64_t wakes;
	if ((fds[0].revents & POLLIN) != 0 && read(l->n->wake_fd, &wakes, sizeof(wakes)) < 0)
		assert(errno == EAGAIN);
	if (l->pg != NULL && fds[1].revents != 0)
		read_notifications(l);
}

static void keep_up(struct listening *l)
{
	int64_t now = sl__mono_ns(&l->n->env);
	if (l->pg == NULL) {
		if (atomic_load(&l->n->subscribed) && now >= l->next_ns)
			connect_and_listen(l);
		return;
	}
	if (now >= l->patience_ns) {
		l->patience_ns = SL_FOREVER;
		if (atomic_exchange(&l->n->healthy, false))
			sl__fanout_push_all(&l->n->inbox);
	}
	if (now >= l->next_ns)
		probe(l);
}

void *sl__pg_listen_main(void *arg)
{
	struct sl__pg_notify *n = arg;
	struct listening l = {.n = n, .pause_ms = FIRST_PAUSE_MS, .patience_ns = SL_FOREVER};
	while (!atomic_load(&n->stopping)) {
		keep_up(&l);
		sl__fanout_deliver(&n->inbox);
		wait(&l);
		sl__fanout_deliver(&n->inbox);
	}
	PQfinish(l.pg);
	return NULL;
}
