/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what the server takes apart itself of a request: the first byte says as what. Every text lies in memory
 * of exactly its length, so that a read of one byte too many is seen. What is found lies in what was given, and what is
 * decoded is UTF-8 without a NUL.
 */
#include <stdint.h>
#include <string.h>

#include "must.h"
#include "server/http/net_text.h"
#include "server/http/route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A string of exactly this length. */
static char *text_of(const uint8_t *data, size_t size)
{
	char *s = malloc(size + 1);
	MUST(s != NULL);
	if (size > 0)
		memcpy(s, data, size);
	s[size] = '\0';
	return s;
}

static void decode(const uint8_t *data, size_t size, bool plus)
{
	char *out = malloc(size + 1), *in = malloc(size > 0 ? size : 1);
	MUST(out != NULL && in != NULL);
	if (size > 0)
		memcpy(in, data, size);
	ptrdiff_t n = srv_percent_decode(out, in, size, plus);
	MUST(n >= -1 && n <= (ptrdiff_t)size);
	if (n >= 0) {
		MUST(strlen(out) == (size_t)n && srv_utf8_ok(out, (size_t)n));
		/* In place: the same. */
		char *same = text_of(data, size);
		MUST(srv_percent_decode(same, same, size, plus) == n && strcmp(same, out) == 0);
		free(same);
	}
	free(out);
	free(in);
}

static void query(const char *text, size_t size)
{
	const char *at = text, *end = text + size, *name, *value;
	char *room = malloc(2 * size + 2), *scratch = room;
	int rc;
	MUST(room != NULL);
	while ((rc = srv_query_next(&at, end, &scratch, &name, &value)) > 0) {
		MUST(at <= end && scratch <= room + 2 * size + 2);
		MUST(srv_utf8_ok(name, strlen(name)) && srv_utf8_ok(value, strlen(value)));
	}
	MUST(rc == 0 || rc == -1);
	free(room);
}

static void cookie(const char *text, size_t size)
{
	size_t n = 0;
	const char *value = srv_cookie_find(text, "sid", &n);
	if (value == NULL)
		return;
	MUST(value >= text + 4 && value + n <= text + size && memcmp(value - 4, "sid=", 4) == 0);
	MUST(memchr(value, ';', n) == NULL);
}

static void host(const uint8_t *data, size_t size)
{
	struct srv_host h;
	char *in = malloc(size > 0 ? size : 1);
	MUST(in != NULL);
	if (size > 0)
		memcpy(in, data, size);
	if (srv_host_parse(in, size, &h)) {
		MUST(h.name >= in && h.len > 0 && h.name + h.len <= in + size && h.port >= -1 && h.port <= 65535);
		for (size_t i = 0; i < h.len; i++)
			MUST((unsigned char)h.name[i] > ' ' && strchr("/@?#\\\"", h.name[i]) == NULL);
	}
	free(in);
}

static void nothing(srv_request *r, void *ctx)
{
	(void)r;
	(void)ctx;
}

/* Kept for the next input. */
static srv_routes *table(void)
{
	static const struct srv_route routes[] = {
		{"GET", "/", SRV_PUBLIC, 0, nothing, NULL},
		{"GET", "/a", SRV_PUBLIC, 0, nothing, NULL},
		{"GET", "/a/{id}", SRV_PUBLIC, 0, nothing, NULL},
		{"POST", "/a/{id}/b", SRV_PUBLIC, 0, nothing, NULL},
		{"GET", "/a/{id}/{other}/c", SRV_PUBLIC, 0, nothing, NULL},
		{"GET", "/files/{path*}", SRV_PUBLIC, 0, nothing, NULL},
	};
	static srv_routes *t;
	if (t != NULL)
		return t;
	MUST(srv_routes_new(&t, NULL) == 0);
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
		MUST(srv_routes_add(t, &routes[i], NULL, NULL) == 0);
	return t;
}

static void check_values(const struct srv_match *m, const char *scratch, size_t room)
{
	char allow[128];
	for (size_t i = 0; m->endpoint != NULL && i < m->endpoint->n_params; i++) {
		const char *v = m->value[i];
		MUST(v >= scratch && v + strlen(v) < scratch + room && srv_utf8_ok(v, strlen(v)));
		MUST(strcmp(v, "..") != 0 && strcmp(v, ".") != 0);
		MUST(strncmp(v, "../", 3) != 0 && strstr(v, "/../") == NULL);
	}
	if (m->endpoint == NULL && m->other != NULL) {
		srv_routes_allow(m->other, allow, sizeof(allow));
		MUST(strlen(allow) < sizeof(allow));
	}
}

static void route(const char *text)
{
	size_t room = strlen(text) + 2;
	char *scratch = malloc(room);
	struct srv_match m = {0};
	MUST(scratch != NULL);
	int rc = text[0] == '/' ? srv_routes_find(table(), "GET", text, scratch, &m) : SL_EINVAL;
	MUST(rc == 0 || rc == SL_EINVAL);
	if (rc == 0)
		check_values(&m, scratch, room);
	free(scratch);
}

static void fields(const char *text)
{
	bool id = srv_request_id_ok(text);
	MUST(!id || (strlen(text) >= 1 && strlen(text) <= 64 && strpbrk(text, "\r\n \"") == NULL));
	(void)srv_accepts_coding(text, "gzip");
	MUST(srv_etag_matches("*", "\"a\""));
	(void)srv_etag_matches(text, "\"a\"");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	char *text = text_of(data + 1, size - 1);
	switch (data[0] % 6) {
	case 0:
		decode(data + 1, size - 1, (data[0] & 8) != 0);
		break;
	case 1:
		query(text, size - 1);
		break;
	case 2:
		cookie(text, size - 1);
		break;
	case 3:
		host(data + 1, size - 1);
		break;
	case 4:
		route(text);
		break;
	default:
		fields(text);
	}
	free(text);
	return 0;
}
