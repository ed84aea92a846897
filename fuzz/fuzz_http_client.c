/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what our HTTP client gets from other machines: the first byte says whether as Retry-After, as text for a
 * message, as where a redirect leads, or as an answer to the HTTP sink. A wait is bounded and never negative, what
 * people are shown is one line of UTF-8 without a secret, and only items of the batch are named.
 */
#include <stdint.h>
#include <string.h>

#include "base/env.h"
#include "base/utf8.h"
#include "must.h"
#include "sink/http.h"

#define PASSWORD "pa55w0rd"
#define BASIC "dXNlcjpwYTU1dzByZA" /* both */
#define TOKEN "t0k3n/w1th+mor3"
#define QUERY "qu3ryv4lue"
#define FIELD "s3same-0pen"
#define ITEMS 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(const char *line, size_t n)
{
	MUST(strlen(line) == n && sl__utf8_valid(line));
	for (size_t i = 0; i < n; i++)
		MUST((unsigned char)line[i] >= ' ' && line[i] != 0x7F);
}

static void retry_after(const char *text, size_t size)
{
	int64_t now_ms = 0, out = -1;
	MUST(size < 8 || memcpy(&now_ms, text, sizeof(now_ms)) == &now_ms);
	const char *value = size < 8 ? text : text + 8;
	now_ms = now_ms < 0 ? 0 : now_ms;
	if (!sl__http_retry_after(value, now_ms, &out))
		return;
	MUST(out >= 0);
	/* Seconds are what they say, as far as that can be counted. */
	if (strspn(value, "0123456789") == strlen(value) && strlen(value) < 15)
		MUST(out == strtoll(value, NULL, 10) * 1000);
}

static void first_line(const char *text, size_t size)
{
	char out[64];
	size_t cap = size > 0 ? 1 + (unsigned char)text[0] % sizeof(out) : 1;
	char *room = malloc(cap);
	MUST(room != NULL);
	size_t n = sl__http_first_line(room, cap, text, size);
	MUST(n < cap);
	check_line(room, n);
	/* A second time it stays as it is, but for blanks before it that were something else. */
	size_t blank = strspn(room, " ");
	MUST(sl__http_first_line(out, sizeof(out), room, n) == n - blank && strcmp(out, room + blank) == 0);
	free(room);
}

static void redirect(const char *text, const struct sl_env *env)
{
	struct sl__http_url u, again;
	struct sl_err err = SL_ERR_INIT;
	if (sl__http_url_init(&u, text, env, &err) != 0) {
		MUST(err.code == SL_EINVAL && (strlen(text) < 60 || strstr(err.msg, text) == NULL));
		return;
	}
	const char *mark = strchr(u.shown, '?');
	MUST(strncmp(u.url, "http://", 7) == 0 || strncmp(u.url, "https://", 8) == 0);
	MUST(strchr(u.shown, '#') == NULL && (mark == NULL || strcmp(mark, "?…") == 0));
	/* What is sent holds no user and no password. */
	MUST(sl__http_url_init(&again, u.url, env, NULL) == 0);
	MUST(again.user == NULL && again.password == NULL && strcmp(again.url, u.url) == 0);
	/* An empty query is not sent, so the second URL does not hint at one. */
	MUST(strncmp(again.shown, u.shown, strcspn(u.shown, "?")) == 0);
	sl__http_url_fini(&again);
	sl__http_url_fini(&u);
}

/* ---- an answer to the sink ---- */

static void check_named(const uint8_t *outcomes, size_t n, const struct sl__refusals *refused, const struct sl_err *err)
{
	size_t named = 0;
	for (size_t i = 0; i < n; i++) {
		MUST(outcomes[i] == SL_SINK_AS_BATCH || outcomes[i] == SL_SINK_POISON);
		/* What was refused here is not in the body, nor what comes after a second one. */
		MUST(outcomes[i] == SL_SINK_AS_BATCH || (i != refused->first && i < refused->stop));
		named += outcomes[i] == SL_SINK_POISON;
	}
	MUST(named == 0 || err->error_class == SL_CLASS_POISON);
}

static void check_message(const struct sl_err *err)
{
	static const char *const secrets[] = {PASSWORD, BASIC, TOKEN, QUERY, FIELD};
	check_line(err->msg, strlen(err->msg));
	for (size_t i = 0; i < SL_COUNT(secrets); i++)
		MUST(strstr(err->msg, secrets[i]) == NULL);
}

static void answer(const uint8_t *data, size_t size, const struct sl_env *env)
{
	static const int statuses[] = {200, 204, 301, 400, 401, 404, 409, 413, 422, 429, 500, 503, 99, 700};
	static const char *const headers[] = {"X-Key: " FIELD, "Cookie: id=" FIELD "; lang=en"};
	struct sl_sink_item items[ITEMS] = {0};
	struct sl_sink_batch batch = {.items = items, .n = ITEMS};
	uint8_t outcomes[ITEMS] = {0};
	struct sl_sink_reply reply = {.outcomes = outcomes, .culprit = SL_SINK_NO_CULPRIT};
	struct sl_err err = SL_ERR_INIT;
	struct sl__refusals refused = SL__REFUSALS_INIT;
	struct sl__http_url url;
	if (size < 2)
		return;
	MUST(sl__http_url_init(&url, "https://user:" PASSWORD "@h/p?key=" QUERY, env, NULL) == 0);
	refused.first = (data[1] & 1) != 0 ? data[1] / 2 % ITEMS : SIZE_MAX;
	refused.stop = (data[1] & 16) != 0 && refused.first < ITEMS - 1 ? refused.first + 1 : SIZE_MAX;
	struct sl__http_secrets secrets = {
		.url = &url, .headers = headers, .n_headers = SL_COUNT(headers), .token = TOKEN};
	char *body = malloc(size - 1);
	MUST(body != NULL);
	memcpy(body, data + 2, size - 2);
	body[size - 2] = '\0';
	struct sl__http_response r = {.status = statuses[data[0] % SL_COUNT(statuses)], .body = body, .len = size - 2};
	const struct sl__http_answer_to to = {.batch = &batch, .refused = &refused, .reply = &reply};
	int rc = sl__http_answer(&r, &secrets, &to, &err);
	MUST((rc == 0) == (r.status >= 200 && r.status < 300) && rc == err.code);
	if (rc != 0)
		check_message(&err);
	check_named(outcomes, ITEMS, &refused, &err);
	free(body);
	sl__http_url_fini(&url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sl_env env;
	if (size == 0)
		return 0;
	MUST(sl__env_init(&env, NULL, NULL) == 0);
	char *text = malloc(size);
	MUST(text != NULL);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0] % 4) {
	case 0:
		retry_after(text, size - 1);
		break;
	case 1:
		first_line(text, size - 1);
		break;
	case 2:
		redirect(text, &env);
		break;
	default:
		answer(data + 1, size - 1, &env);
	}
	free(text);
	return 0;
}
