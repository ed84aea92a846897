/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The publisher. NOTIFY takes a lock of the whole server until its transaction has ended, so it is sent apart from
 * everybody's transactions, without waiting for the disk. While one is under way, further notes are merged in the
 * outbox; and so they are when there were many just now, since each costs the server a transaction and a wake of every
 * listener, which a stream of starts would feel more than a worker feels 10 ms. What could not be sent is forgotten;
 * the next that can is preceded by "check everything".
 */
#include "jobs/notify/postgres.h"

#define PRICE_MAX 5 /* tokens for one sending: 50 ms apart at most */

static const struct sl__pg_stmt notify_stmt = {
	.index = 0, .name = "sluice_NOTIFY", .sql = "SELECT pg_notify('" SL__PG_CHANNEL "', $1)"};
/* For its transaction only: of a session that a pooler shares, the next transaction may be an enqueue. */
static const struct sl__pg_stmt lazy_stmt = {
	.index = 1, .name = "sluice_LAZY", .sql = "SELECT set_config('synchronous_commit', 'off', true)"};

void sl__pg_collect(const struct sl_note *note, void *ctx)
{
	struct sl__pg_notify *n = ctx;
	sl__pg_payloads_add(&n->payloads, note);
}

int sl__pg_send_payloads(struct sl__pg_conn *conn, const struct sl__pg_payloads *p, bool lazy, struct sl_err *err)
{
	SL__PG_PARAMS_LOCAL(params, conn->env);
	int rc = p->text.failed != 0 ? sl_err_set(err, SL_ENOMEM, "postgres: notify: out of memory") : 0;
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

static void disconnect(struct sl__pg_notify *n)
{
	PQfinish(n->out.pg);
	n->out = (struct sl__pg_conn){.env = &n->env};
}

static int try_to_send(struct sl__pg_notify *n, struct sl_err *err)
{
	struct sl__pg_opts opts;
	int rc = 0;
	if (n->out.pg == NULL) {
		sl__pg_notify_opts(n, &opts);
		rc = sl__pg_open(&n->out, &opts, err);
	}
	if (rc == 0)
		rc = sl__pg_send_payloads(&n->out, &n->payloads, true, err);
	if (rc != 0)
		disconnect(n);
	return rc;
}

/* One try, and a second one on a new connection when there was an old one. */
static void flush(struct sl__pg_notify *n)
{
	struct sl_err err = SL_ERR_INIT;
	bool was_connected = n->out.pg != NULL;
	sl__pg_payloads_end(&n->payloads);
	int rc = try_to_send(n, &err);
	if (rc != 0 && was_connected)
		rc = try_to_send(n, &err);
	if (rc != 0 && !n->lost)
		sl__log(&n->env, SL_LOG_WARN, "notify", "cannot notify; others will poll", SL__F_STR("error", err.msg));
	n->lost = rc != 0;
	sl__pg_payloads_clear(&n->payloads);
}

/* False when it is time to leave and everything that was published before has been taken along. */
static bool await_work(struct sl__pg_notify *n, bool *probe)
{
	sl__lock(&n->mu);
	while (!n->has_work && !n->probe_wanted && !atomic_load(&n->stopping))
		(void)sl__wait(&n->env, &n->work, &n->mu, SL_FOREVER);
	bool more = n->has_work || (n->probe_wanted && !atomic_load(&n->stopping));
	*probe = n->probe_wanted;
	n->has_work = n->probe_wanted = false;
	sl__unlock(&n->mu);
	return more;
}

void sl__pg_probe(struct sl__pg_notify *n)
{
	sl__lock(&n->mu);
	n->probe_wanted = true;
	sl__signal(&n->work);
	sl__unlock(&n->mu);
}

/* What was merged last time is paid for now: a stream of notes is sent ever more rarely, up to a bound. */
static void pace(struct sl__pg_notify *n)
{
	int rc = sl__tokens_take(n->tokens, n->price, SL_UNLIMITED);
	assert(rc == 0 || rc == SL_ECLOSED); /* closed: the last ones go at once */
	(void)rc;
	unsigned merged = atomic_exchange(&n->published, 0);
	n->price = SL_MIN(SL_MAX(merged, 1U), PRICE_MAX);
}

void *sl__pg_publish_main(void *arg)
{
	struct sl__pg_notify *n = arg;
	bool probe;
	while (await_work(n, &probe)) {
		pace(n);
		if (n->lost)
			sl__pg_payloads_add(&n->payloads, &(const struct sl_note){.kind = 0});
		sl__fanout_deliver(&n->outbox);
		if (probe)
			sl__pg_payloads_head(&n->payloads);
		if (n->payloads.text.len > 0)
			flush(n);
	}
	disconnect(n);
	return NULL;
}
