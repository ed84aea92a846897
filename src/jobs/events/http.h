/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of the sender of events over HTTP that need no connection: the body of a request and what an answer means.
 *
 * Thread safety: no state. Ownership: buffers are the caller's.
 */
#ifndef SL_JOBS_EVENT_HTTP_H
#define SL_JOBS_EVENT_HTTP_H

#include "base/buf.h"
#include "net/http.h"
#include <sluice/events.h>

#define SL__EVENT_HTTP_PATH "/sluice.v1.JobEvents/PublishJobEvents"
#define SL__EVENT_HTTP_TARGET_PATH "/api/v1/target"
#define SL__EVENT_HTTP_TARGET_HEADER "Sluice-Target"

/* A PublishJobEventsRequest in out, which is cleared first. A record that is not a JobEvent: SL_EREFUSED, its sequence
 * in *refused. */
SL_MUST_CHECK int sl__event_http_body(struct sl__buf *out, const struct sl_wal_batch *batch, uint64_t *refused,
				      struct sl_err *err);

/* The server as messages show it, and what they must not show when an answer repeats it. NULL: none. */
struct sl__event_http_peer {
	const char *shown; /* its URL */
	const char *token, *password;
};

/* The answer to a publish, as a sender's `send` returns it. May change the response's body. */
SL_MUST_CHECK int sl__event_http_answer(struct sl__http_response *r, const struct sl__event_http_peer *peer,
					struct sl_wal_reply *reply, const struct sl_env *env, struct sl_err *err);
/* The answer to the question for the target. */
SL_MUST_CHECK int sl__event_http_target(struct sl__http_response *r, const struct sl__event_http_peer *peer,
					char out[33], struct sl_err *err);
/* 32 lower-case hexadecimal characters? */
SL_MUST_CHECK bool sl__event_http_is_target(const char *text);

#endif
