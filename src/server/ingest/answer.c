/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to PublishJobEvents. A success is in the form of the request; an error is JSON, {"code","message"}, as
 * Connect has it, with the HTTP status of the code but for a refused event, which is 422 and names its sequence.
 */
#include "server/http/net_text.h"
#include "server/ingest/ingest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <events.pb-c.h>

#define ANSWER_BYTES 128
#define AGAIN_MS 1000

void srv_connect_error(srv_request *r, int status, const char *code, const char *message)
{
	char text[SL_ERR_MSG_BYTES];
	srv_utf8_copy(text, sizeof(text), message);
	srv_json(r, status, json_pack("{s:s,s:s}", "code", code, "message", text));
}

static srv_request *take_request(struct srv_publish *p)
{
	return atomic_exchange(&p->request, NULL);
}

static void answer_refused(srv_request *r, uint64_t refused, const char *why)
{
	char text[24], message[SL_ERR_MSG_BYTES];
	(void)snprintf(text, sizeof(text), "%" PRIu64, refused);
	srv_utf8_copy(message, sizeof(message), why);
	srv_json(r, 422, json_pack("{s:s,s:s,s:s}", "code", "invalid_argument", "message", message, "refused", text));
}

void srv_publish_answer(struct srv_publish *p)
{
	srv_request *r = take_request(p);
	if (r == NULL)
		return;
	if (p->rc == 0) {
		Sluice__V1__PublishJobEventsResponse m;
		uint8_t bytes[ANSWER_BYTES];
		char text[ANSWER_BYTES];
		sluice__v1__publish_job_events_response__init(&m);
		m.mark = p->mark.sequence;
		m.mark_crc = p->mark.crc;
		m.mark_skipped = p->mark.kind == SL_WAL_MARK_SKIPPED && p->mark.sequence != 0;
		if (p->json) {
			int n = snprintf(text, sizeof(text), "{\"mark\":\"%" PRIu64 "\"", p->mark.sequence);
			if (p->mark.crc != 0)
				n += snprintf(text + n, sizeof(text) - (size_t)n, ",\"markCrc\":\"%" PRIu64 "\"",
					      p->mark.crc);
			n += snprintf(text + n, sizeof(text) - (size_t)n, "%s}",
				      m.mark_skipped ? ",\"markSkipped\":true" : "");
			srv_bytes(r, 200, "application/json", text, (size_t)n);
		} else {
			srv_bytes(r, 200, "application/proto", bytes,
				  sluice__v1__publish_job_events_response__pack(&m, bytes));
		}
	} else if (p->rc == SL_ECONFLICT)
		srv_connect_error(r, 409, "already_exists", p->why);
	else if (p->rc == SL_EACCES)
		srv_connect_error(r, 403, "permission_denied", p->why);
	else if (p->rc == SL_EAGAIN) {
		srv_retry_after(r, AGAIN_MS);
		srv_connect_error(r, 503, "unavailable", p->why);
	} else {
		answer_refused(r, p->refused, p->why);
	}
}

void srv_publish_busy(struct srv_publish *p, int status, int64_t ms, const char *why)
{
	srv_request *r = take_request(p);
	if (r == NULL)
		return;
	srv_retry_after(r, ms);
	srv_connect_error(r, status,
			  status == 429   ? "resource_exhausted"
			  : status == 403 ? "permission_denied"
					  : "unavailable",
			  why);
}

void srv_publish_bad(struct srv_publish *p, const struct sl_err *err)
{
	srv_request *r = take_request(p);
	if (r == NULL)
		return;
	if (err->code == SL_EREFUSED)
		answer_refused(r, p->refused, err->msg);
	else if (err->code == SL_ETOOBIG)
		srv_connect_error(r, 413, "resource_exhausted", err->msg);
	else
		srv_connect_error(r, 400, "invalid_argument", err->msg);
}
