/* SPDX-License-Identifier: Apache-2.0 */
/* The start of a request: its headers are read and checked, its route and its actor are found, its body is collected. */
#include "server/http/internal.h"

#include <ctype.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FIRST_BYTES ((size_t)4096)
#define DROP_BYTES ((size_t)64 * 1024)

static const struct {
	const char *name;
	size_t len;
} fields[F_COUNT] = {
	[F_HOST] = {"Host", sizeof("Host") - 1},
	[F_ORIGIN] = {"Origin", sizeof("Origin") - 1},
	[F_AUTHORIZATION] = {"Authorization", sizeof("Authorization") - 1},
	[F_COOKIE] = {"Cookie", sizeof("Cookie") - 1},
	[F_FETCH_SITE] = {"Sec-Fetch-Site", sizeof("Sec-Fetch-Site") - 1},
	[F_FETCH_MODE] = {"Sec-Fetch-Mode", sizeof("Sec-Fetch-Mode") - 1},
	[F_CSRF] = {"X-CSRF-Token", sizeof("X-CSRF-Token") - 1},
	[F_REQUEST_ID] = {"X-Request-Id", sizeof("X-Request-Id") - 1},
	[F_LENGTH] = {"Content-Length", sizeof("Content-Length") - 1},
	[F_CODING] = {"Transfer-Encoding", sizeof("Transfer-Encoding") - 1},
	[F_EXPECT] = {"Expect", sizeof("Expect") - 1},
	[F_CONTENT_CODING] = {"Content-Encoding", sizeof("Content-Encoding") - 1},
	[F_FORWARDED_FOR] = {"X-Forwarded-For", sizeof("X-Forwarded-For") - 1},
	[F_FORWARDED_PROTO] = {"X-Forwarded-Proto", sizeof("X-Forwarded-Proto") - 1},
};

static char *copy_to_arena(srv_request *r, const char *s, size_t n)
{
	char *p = srv_arena(r, n + 1);
	if (p == NULL)
		return NULL;
	memcpy(p, s, n);
	p[n] = '\0';
	return p;
}

static enum MHD_Result note_field(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_len,
				  const char *value, size_t value_len)
{
	srv_request *r = cls;
	struct pair *h = &r->headers[r->n_headers];
	int known = F_COUNT;
	(void)kind;
	/* A name is a token of RFC 9110. "Content-Length : 16" is not valid: parsers that accept it as a length and those
	 * that do not would disagree about where the request ends. */
	r->unclear |= name_len == 0;
	for (size_t i = 0; i < name_len; i++)
		if (!isalnum((unsigned char)name[i]) && (name[i] == '\0' || strchr("!#$%&'*+-.^_`|~", name[i]) == NULL))
			r->unclear = true;
	do
		known--;
	while (known >= 0 && (fields[known].len != name_len || strcasecmp(name, fields[known].name) != 0));
	if (known == F_AUTHORIZATION || known == F_COOKIE) {
		/* Where it is: it is wiped there, and never copied. */
		if (r->n_secret == SRV_MAX_SECRETS) {
			r->headers_bad = true;
			sodium_memzero((void *)(uintptr_t)value, value_len);
			return MHD_YES;
		}
		r->secret[r->n_secret].text = (void *)(uintptr_t)value;
		r->secret[r->n_secret++].len = value_len;
		r->field[known] = value;
		r->seen[known]++;
		return MHD_YES;
	}
	if (r->n_headers == SRV_MAX_HEADERS || (h->name = copy_to_arena(r, name, name_len)) == NULL ||
	    (h->value = copy_to_arena(r, value != NULL ? value : "", value_len)) == NULL) {
		r->headers_bad = true;
		return MHD_YES; /* secrets may follow: they are wiped */
	}
	r->n_headers++;
	if (known >= 0) {
		r->field[known] = h->value;
		r->seen[known]++;
	}
	return MHD_YES;
}

bool srv_is_read(const srv_request *r)
{
	return strcmp(r->method, "GET") == 0 || r->head || strcmp(r->method, "OPTIONS") == 0;
}

/* Split the target into path and query. -1: malformed, or too many parameters. */
static int split_target(srv_request *r)
{
	char *mark = strchr(r->target, '?');
	size_t n = mark != NULL ? (size_t)(mark - r->target) : strlen(r->target);
	r->path = copy_to_arena(r, r->target, n);
	if (r->path == NULL)
		return -1;
	if (mark == NULL)
		return 0;
	const char *q = mark + 1, *end = q + strlen(q);
	char *scratch = srv_arena(r, 2 * (size_t)(end - q) + 2);
	while (scratch != NULL && r->n_query < SRV_MAX_QUERY) {
		struct pair *p = &r->query[r->n_query];
		int rc = srv_query_next(&q, end, &scratch, &p->name, &p->value);
		if (rc <= 0)
			return rc;
		r->n_query++;
	}
	return -1;
}

/* A browser that asks for an unknown address gets a page that says so, where there is one. */
static bool find_unknown_page(srv_request *r)
{
	static const char api[] = "/api/", assets[] = "/assets/";
	const char *accepts = srv_header(r, "Accept");
	char scratch[sizeof(SRV_UNKNOWN_PAGE) + 2];
	return srv_is_read(r) && strncmp(r->path, api, strlen(api)) != 0 &&
	       strncmp(r->path, assets, strlen(assets)) != 0 && accepts != NULL &&
	       strstr(accepts, "text/html") != NULL &&
	       srv_routes_find(r->h->routes, r->method, SRV_UNKNOWN_PAGE, scratch, &r->match) == 0 &&
	       r->match.endpoint != NULL;
}

/* Find the route. false: answered. */
static bool find_route(srv_request *r)
{
	char *scratch = srv_arena(r, strlen(r->path) + 2);
	if (scratch == NULL || srv_routes_find(r->h->routes, r->method, r->path, scratch, &r->match) != 0) {
		if (find_unknown_page(r))
			return true;
		srv_error(r, 400, "bad_path", "the path is malformed");
		return false;
	}
	if (r->match.endpoint != NULL)
		return true;
	/* The path exists for other methods: name them. */
	if (r->match.other != NULL) {
		char allow[128];
		srv_routes_allow(r->match.other, allow, sizeof(allow));
		srv_set_header(r, "Allow", allow);
		if (strcmp(r->method, "OPTIONS") == 0)
			srv_bytes(r, 204, NULL, "", 0);
		else
			srv_error(r, 405, "method_not_allowed", "%s does not support %s", r->path, r->method);
	} else {
		if (find_unknown_page(r))
			return true;
		srv_error(r, 404, "not_found", "no route %s", r->path);
	}
	return false;
}

/* The form of the head, and of the body that it announces. false: answered. */
static bool check_form(srv_request *r)
{
	const char *length = r->field[F_LENGTH], *coding = r->field[F_CODING], *content = r->field[F_CONTENT_CODING];
	unsigned long long n = 0;
	if (r->unclear) {
		srv_error(r, 400, "bad_field", "invalid header field name");
		return false;
	}
	if (r->headers_bad) {
		srv_error(r, 431, "too_many_fields", "too many header fields");
		return false;
	}
	if (split_target(r) != 0) {
		srv_error(r, 400, "bad_target", "malformed request target");
		return false;
	}
	bool bad_length = length != NULL &&
			  (length[0] == '\0' || strspn(length, "0123456789") != strlen(length) || strlen(length) > 18);
	if (bad_length || r->seen[F_LENGTH] + r->seen[F_CODING] > 1 ||
	    (coding != NULL && strcasecmp(coding, "chunked") != 0)) {
		r->unclear = true;
		srv_error(r, 400, "bad_length", "the length of the body is ambiguous");
		return false;
	}
	if (length != NULL)
		n = strtoull(length, NULL, 10);
	r->has_body = coding != NULL || n > 0;
	if (content != NULL && r->has_body && strcasecmp(content, "identity") != 0) {
		srv_error(r, 415, "bad_encoding", "Content-Encoding is not supported; send the body unencoded");
		return false;
	}
	if (n > (unsigned long long)r->h->body_max) {
		srv_error(r, 413, "too_big", "the body is larger than %lld bytes", (long long)r->h->body_max);
		return false;
	}
	return true;
}

void srv_request_begin(srv_request *r, const char *method)
{
	snprintf(r->method, sizeof(r->method), "%s", method);
	r->head = strcmp(r->method, "HEAD") == 0;
	MHD_get_connection_values_n(r->conn->mhd, MHD_HEADER_KIND, note_field, r);
	/* The client's request id, if it is a sane one, or one of ours. */
	const char *given = r->field[F_REQUEST_ID];
	uint64_t n = atomic_fetch_add(&r->h->next_id, 1);
	if (given != NULL && srv_request_id_ok(given))
		memcpy(r->id, given, strlen(given) + 1);
	else
		snprintf(r->id, sizeof(r->id), "%s-%llx", r->h->boot, (unsigned long long)n);
	/* Behind a proxy the client is the last address of the list, which the proxy added; those before it were sent by
	 * the client. */
	const char *list = r->field[F_FORWARDED_FOR];
	if (r->h->behind_proxy && list != NULL) {
		const char *last = strrchr(list, ',');
		last = last != NULL ? last + 1 : list;
		last += strspn(last, " \t");
		size_t len = strcspn(last, " \t");
		if (len > 0 && len < sizeof(r->address) && strspn(last, "0123456789abcdefABCDEF.:[]") >= len) {
			memcpy(r->address, last, len);
			r->address[len] = '\0';
		}
	}
	bool going = check_form(r) && srv_guard_host(r) && find_route(r);
	/* Also for a request that was refused already: what it carries is wiped. */
	going = srv_guard_actor(r) && going;
	if (going && (atomic_load(&r->h->stopping) || (!srv_is_read(r) && atomic_load(&r->h->refusing)))) {
		srv_retry_after(r, 1000);
		srv_error(r, 503, "stopping", "the server is stopping");
		return;
	}
	if (going && r->has_body)
		atomic_store(&r->conn->deadline_ns, r->start_ns + r->h->request_deadline_ns);
}

int srv_request_body(srv_request *r, const char *data, size_t len)
{
	if ((atomic_load(&r->state) & R_ANSWERED) != 0) {
		/* The request was refused: read the rest of its body, within a bound, so that the client can read
		 * why. */
		r->dropped += len;
		if (r->dropped <= 2 * (size_t)r->h->body_max + DROP_BYTES)
			return 0;
		sl_counter_add(r->h->cut_body, 1);
		return -1;
	}
	/* A body with a token is never moved, so that no copy of it remains. */
	bool login = (r->match.endpoint->route.flags & SRV_LOGIN) != 0;
	size_t max = login ? FIRST_BYTES - 1 : (size_t)r->h->body_max;
	if (r->body_len + len > max) {
		srv_error(r, 413, "too_big", "the body is larger than %zu bytes", max);
		return 0;
	}
	/* Grow the buffer, within the bound of all bodies. */
	size_t need = r->body_len + len + 1;
	if (need > r->body_cap) {
		size_t cap = r->body_cap != 0 ? r->body_cap : FIRST_BYTES;
		while (cap < need)
			cap *= 2;
		int64_t more = (int64_t)(cap - r->body_cap);
		bool fits = atomic_fetch_add(&r->h->body_bytes, more) + more <= r->h->bodies_max;
		char *p = fits ? realloc(r->body, cap) : NULL;
		if (p == NULL) {
			atomic_fetch_sub(&r->h->body_bytes, more);
			srv_retry_after(r, 1000);
			srv_error(r, 503, "busy", "too many large request bodies at the same time");
			return 0;
		}
		r->body = p;
		r->body_cap = cap;
	}
	memcpy(r->body + r->body_len, data, len);
	r->body_len += len;
	r->body[r->body_len] = '\0';
	return 0;
}
