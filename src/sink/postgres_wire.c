/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Talking to the server with a deadline. The server's own statement timeout ends what takes too long; a server that has
 * stopped, or a network that loses everything, is found here: no answer within that timeout and a few seconds.
 */
#include <errno.h>
#include <poll.h>

#include "sink/postgres.h"

#define GRACE_MS 5000

static int64_t deadline(const struct sl__pg_lane *lane)
{
	int64_t ms = lane->sink->opts.statement_timeout_ms;
	return ms == SL_UNLIMITED ? SL_FOREVER : sl__mono_ns(&lane->sink->env) + (ms + GRACE_MS) * 1000000;
}

static int lost(struct sl__pg_lane *lane, struct sl_err *err)
{
	return sl__pg_sink_error(err, lane->pg, NULL, "write");
}

static bool is_cancelled(struct sl__pg_sink *sink)
{
	sl__lock(&sink->mu);
	bool cancelled = sink->cancelled;
	sl__unlock(&sink->mu);
	return cancelled;
}

/* Wait until the socket can do one of the events. */
static int await(struct sl__pg_lane *lane, short events, int64_t until, struct sl_err *err)
{
	for (;;) {
		if (is_cancelled(lane->sink))
			return sl__sink_class(err, sl_err_set(err, SL_ECANCELLED, "postgres: write: cancelled"),
					      SL_CLASS_TRANSIENT);
		int64_t left = until == SL_FOREVER ? -1 : (until - sl__mono_ns(&lane->sink->env)) / 1000000;
		if (until != SL_FOREVER && left <= 0)
			return sl__sink_class(
				err,
				sl_err_set(err, SL_ETIMEDOUT, "postgres: write: no answer within %lld s",
					   (long long)(lane->sink->opts.statement_timeout_ms + GRACE_MS) / 1000),
				SL_CLASS_FATAL);
		struct pollfd p = {.fd = PQsocket(lane->pg), .events = events};
		int n = poll(&p, 1, left < 0 || left > INT32_MAX ? INT32_MAX : (int)left + 1);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return sl__sink_class(err, sl_err_set_errno(err, errno, "postgres: poll"), SL_CLASS_FATAL);
	}
}

/* Send what libpq has queued, taking in what the server says meanwhile: else both sides could wait for each other. */
int sl__pg_push(struct sl__pg_lane *lane, struct sl_err *err)
{
	int64_t until = deadline(lane);
	for (;;) {
		int left = PQflush(lane->pg);
		if (left == 0)
			return 0;
		if (left < 0)
			return lost(lane, err);
		int rc = await(lane, POLLIN | POLLOUT, until, err);
		if (rc != 0)
			return rc;
		if (PQconsumeInput(lane->pg) == 0)
			return lost(lane, err);
	}
}

PGresult *sl__pg_next(struct sl__pg_lane *lane, int *rc, struct sl_err *err)
{
	int64_t until = deadline(lane);
	*rc = sl__pg_push(lane, err);
	while (*rc == 0 && PQisBusy(lane->pg)) {
		*rc = await(lane, POLLIN, until, err);
		if (*rc == 0 && PQconsumeInput(lane->pg) == 0)
			*rc = lost(lane, err);
	}
	return *rc == 0 ? PQgetResult(lane->pg) : NULL;
}

int sl__pg_simple(struct sl__pg_lane *lane, const char *sql, const char *what, struct sl_err *err)
{
	if (PQsendQuery(lane->pg, sql) == 0)
		return lost(lane, err);
	int rc = 0, wait_rc = 0;
	for (;;) {
		PGresult *res = sl__pg_next(lane, &wait_rc, err);
		if (res == NULL)
			return wait_rc != 0 ? wait_rc : rc;
		ExecStatusType status = PQresultStatus(res);
		if (rc == 0 && status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
			rc = sl__pg_sink_error(err, lane->pg, res, what);
		PQclear(res);
	}
}
