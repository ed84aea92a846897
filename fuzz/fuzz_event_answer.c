/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a server, or a proxy in front of it, answers to a sender of events: the first two bytes say the
 * status and the type. Only a whole answer of ours moves the mark or parks a record, and no message shows a secret.
 */
#include <stdint.h>
#include <string.h>

#include "base/env.h"
#include "jobs/events/http.h"
#include "must.h"

#define TOKEN "s3cr3t"
#define PASSWORD "pa55"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const int statuses[] = {200, 400, 409, 413, 422, 429, 503, 302, 401, 421, 500, 99, 204};
static const char *const types[] = {"application/proto", "application/json", "application/json; charset=utf-8",
				    "text/html", NULL};
static const struct sl__event_http_peer peer = {.shown = "https://h", .token = TOKEN, .password = PASSWORD};

static void check_err(int rc, const struct sl_err *err)
{
	MUST(rc < 0 && err->code == rc && err->msg[0] != '\0' && strlen(err->msg) < sizeof(err->msg));
	MUST(strstr(err->msg, TOKEN) == NULL && strstr(err->msg, PASSWORD) == NULL);
	for (const char *p = err->msg; *p != '\0'; p++)
		MUST((unsigned char)*p >= ' ');
}

static void publish(struct sl__http_response *r, const struct sl_env *env)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_wal_reply reply = {.mark = UINT64_MAX, .refused = UINT64_MAX};
	int rc = sl__event_http_answer(r, &peer, &reply, env, &err);
	if (rc == 0) {
		MUST(r->status == 200 && reply.refused == 0);
		return;
	}
	check_err(rc, &err);
	MUST(reply.mark == UINT64_MAX && (reply.refused == 0 || rc == SL_EREFUSED));
	MUST(rc != SL_EREFUSED || r->status == 413 || r->status == 400 || r->status == 422);
	MUST(rc != SL_ECONFLICT || r->status == 409);
}

static void target(struct sl__http_response *r)
{
	struct sl_err err = SL_ERR_INIT;
	char out[33] = "";
	int rc = sl__event_http_target(r, &peer, out, &err);
	if (rc != 0)
		check_err(rc, &err);
	else
		MUST(r->status == 200 && sl__event_http_is_target(out));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sl_env env;
	if (size < 2)
		return 0;
	MUST(sl__env_init(&env, NULL, NULL) == 0);
	char *body = malloc(size - 1);
	MUST(body != NULL);
	memcpy(body, data + 2, size - 2);
	body[size - 2] = '\0';
	struct sl__http_response r = {.status = statuses[data[0] % SL_COUNT(statuses)],
				      .has_retry_after = (data[1] & 64) != 0,
				      .retry_after_ms = data[1],
				      .type = types[(data[1] & 63) % SL_COUNT(types)],
				      .body = body,
				      .len = size - 2};
	if ((data[1] & 128) != 0)
		target(&r);
	else
		publish(&r, &env);
	free(body);
	return 0;
}
