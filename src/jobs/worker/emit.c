/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of attempts. They are handed to the log without waiting; a run keeps the ticket of its last one, and its lane
 * waits for that before it settles the run, so that many slots share a sync.
 *
 * A flush is in the log as a whole or not at all, so one ticket speaks for all events of its flush. Before an event
 * goes into another flush than the one before it, that one is waited for: it is under way already.
 */
#include "jobs/worker/worker.h"
#include <sluice/events.h>

int sl__emit_wait(sl_worker *w, const struct sl_wal_ticket *ticket, struct sl_err *err)
{
	if (ticket->batch == 0)
		return 0;
	struct sl_err why = SL_ERR_INIT;
	int rc = sl_wal_wait(w->events, ticket, SL_UNLIMITED, &why);
	if (rc == 0) {
		if (atomic_load_explicit(&w->log_failures, memory_order_relaxed) != 0)
			atomic_store(&w->log_failures, 0);
		return 0;
	}
	if (sl__worker_log_error(rc))
		sl__worker_log_failed(w, &why);
	if (err != NULL)
		*err = why;
	return sl_err_wrap(err, rc, "the events of the attempt");
}

static int submit(sl_attempt *a, const struct sl_event *event, struct sl_wal_ticket *ticket, struct sl_err *err)
{
	const struct sl_env *env = &a->w->home.env;
	void *record;
	size_t len;
	int rc = sl_event_encode(event, env, &record, &len, err);
	if (rc != 0)
		return rc;
	rc = sl_wal_submit(a->w->events, record, len, ticket, err);
	sl_event_free(env, record);
	return rc;
}

int sl_attempt_emit(sl_attempt *a, int type, const void *data, size_t len, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	struct sl_wal_ticket ticket;
	if (a->w->events == NULL)
		return sl_err_set(err, SL_EINVAL, "emit an event: the worker has no log (option events)");
	const struct sl_event event = {.type = type,
				       .job_id = a->run->id,
				       .attempt = a->run->attempt,
				       .claim = a->run->claim->id,
				       .ts_ms = sl__real_ms(&a->w->home.env),
				       .data = data,
				       .len = len};
	struct sl_wal_ticket before = a->ticket;
	int rc = submit(a, &event, &ticket, &why);
	/* It is waited for in any case: closing a log reports a failure that no caller has heard of. */
	if (rc == 0)
		a->ticket = ticket;
	if (rc == 0 && before.batch != 0 && before.batch != ticket.batch)
		rc = sl__emit_wait(a->w, &before, &why);
	return rc != 0 ? sl__attempt_unlogged(a, &why, err) : 0;
}
