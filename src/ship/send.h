/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target of sl_ship: a Sluice server, or any sink.
 *
 * http://host:port without a path is a Sluice server, as 'sluice up' prints it; so is every URL after "sluice:". An
 * HTTP URL with a path, or with as_rows, is an endpoint that gets rows (row.h) as POST requests. Nothing is probed: a
 * server that is unavailable must not be mistaken for something else.
 *
 * A server stores every stream's mark and takes each line once. For a sink the log itself records what was delivered:
 * what was written but not yet recorded when a crash came is written again, with the same key (stream, incarnation,
 * sequence). Tables are upserted by that key, so each line is there once. In a file of rows the last row of the stream
 * is read back. Endpoints and programs get the key with every row.
 *
 * A row that the target refuses is parked in the dead letters of the log by the sender. A target that is unavailable,
 * or asks for a pause, is retried.
 *
 * Thread safety: open, start and close on the thread of sl_ship; the log's sender calls from its own thread;
 * sl__ship_send_get from any.
 */
#ifndef SL_SHIP_SEND_H
#define SL_SHIP_SEND_H

#include "base/thread.h"
#include "ship/row.h"

#include <sluice/ship.h>

/* What the target has done so far. */
struct ship_progress {
	uint64_t delivered;    /* lines since open */
	uint64_t mark;         /* the sequence up to which everything is delivered or parked */
	struct sl_err trouble; /* why the last batch failed; code 0: it was delivered */
	int64_t failing_ms;    /* with trouble: no line was taken or refused for this long */
	bool answered;         /* a batch was delivered, or a line of it refused, since open */
};

struct ship_send {
	const struct sl_env *env;
	bool server; /* a Sluice server, not a sink */
	bool create;
	char url[2048];
	char target[2048]; /* the URL without secrets, and a file by its whole path: what a log is for */
	sl_event_http_sender *http;
	struct sl_sink_opts opts; /* table and on_conflict are owned */
	sl_sink sink;
	unsigned members;
	int wake; /* an eventfd: something was delivered, or failed */

	/* of the sender's thread */
	void *lane;
	bool attached, ready;
	uint64_t first; /* that was pending when the run began */
	uint64_t mark;
	uint32_t foreign; /* the target has another log's lines under this incarnation; 0: not known to */
	struct sl__buf rows;
	struct sl_sink_item *items;
	uint8_t *outcomes;

	sl__mutex mu;
	struct ship_progress progress; /* guarded by mu; failing_ms is the time by the monotonic clock here */
};

/* Check the options of the target and open it. Close it also after a failure. */
int sl__ship_send_open(struct ship_send *s, const struct sl_env *env, const struct sl_ship_opts *opts,
		       struct sl_err *err);
/* Check that the target works. One that is unavailable is only logged: lines wait for it in the log. */
int sl__ship_send_check(struct ship_send *s, struct sl_err *err);
/* Start to deliver what the log has from `pending` on. */
int sl__ship_send_start(struct ship_send *s, sl_wal *w, const char *stream, uint64_t pending, struct sl_err *err);
void sl__ship_send_close(struct ship_send *s);
struct ship_progress sl__ship_send_get(struct ship_send *s);

#endif
