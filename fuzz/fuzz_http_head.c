/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a whole request, as libmicrohttpd hands it over: "METHOD TARGET", lines of header fields, an empty line
 * and the body. The bytes 1 to 4 stand for what cannot be guessed: the admin's token, an admin's session, its
 * CSRF token, and a reader's token.
 *
 * A request that is let through has shown what the route asks for, in the right place; every other request is answered.
 * The answer is whole, its header fields are lines, and it does not repeat a token or a session; both are gone from the
 * buffers and the request afterwards. The audit log gets a line of JSON, whatever the request holds.
 */
#include <fcntl.h>
#include <sodium.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "must.h"
#include "server/http/internal.h"

#define ADMIN "4dm1n-t0k3n-4dm1n-t0k3n"
#define READER "r34d3r-t0k3n-r34d3r-t0k3n"
#define FIELDS_MAX 80
#define OUT_MAX 24
#define BODY_MAX 256
#define LOGIN_MAX 4095 /* never moved: it holds a token */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- libmicrohttpd ---- */

struct field {
	char *name, *value; /* each in memory of exactly its length */
	size_t len;         /* of the value */
	char *cookie;       /* libmicrohttpd's own copy of a Cookie field */
};

struct MHD_Connection {
	struct field fields[FIELDS_MAX];
	size_t n;
};

struct MHD_Response {
	char *data;
	size_t len;
	char *name[OUT_MAX], *value[OUT_MAX];
	size_t n;
};

static size_t live; /* responses */

int MHD_get_connection_values_n(struct MHD_Connection *c, enum MHD_ValueKind kind, MHD_KeyValueIteratorN iterator,
				void *cls)
{
	for (size_t i = 0; i < c->n; i++) {
		struct field *f = &c->fields[i];
		char *value = kind == MHD_COOKIE_KIND ? f->cookie : f->value;
		if (value != NULL)
			(void)iterator(cls, kind, f->name, strlen(f->name), value, f->len);
	}
	return (int)c->n;
}

struct MHD_Response *MHD_create_response_from_buffer(size_t size, void *buffer, enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *x = calloc(1, sizeof(*x));
	MUST(x != NULL && (x->data = malloc(size + 1)) != NULL);
	memcpy(x->data, buffer, size);
	x->data[size] = '\0';
	x->len = size;
	if (mode == MHD_RESPMEM_MUST_FREE)
		free(buffer);
	live++;
	return x;
}

/* As libmicrohttpd: nothing that would begin another line. */
enum MHD_Result MHD_add_response_header(struct MHD_Response *x, const char *name, const char *value)
{
	MUST(x->n < OUT_MAX && strpbrk(name, "\r\n \t:") == NULL && strpbrk(value, "\r\n") == NULL);
	for (const char *p = value; *p != '\0'; p++)
		MUST((unsigned char)*p >= ' ' && (unsigned char)*p < 0x7F);
	x->name[x->n] = strdup(name);
	x->value[x->n++] = strdup(value);
	return MHD_YES;
}

const char *MHD_get_response_header(struct MHD_Response *x, const char *name)
{
	for (size_t i = 0; i < x->n; i++)
		if (strcasecmp(x->name[i], name) == 0)
			return x->value[i];
	return NULL;
}

void MHD_destroy_response(struct MHD_Response *x)
{
	for (size_t i = 0; i < x->n; i++) {
		free(x->name[i]);
		free(x->value[i]);
	}
	free(x->data);
	free(x);
	live--;
}

/* ---- the rest of the server ---- */

static srv_http server;
static char session[SRV_SESSION_BYTES], csrf[SRV_CSRF_BYTES];

void srv_resume(srv_request *r, bool locked)
{
	(void)r;
	(void)locked;
	abort(); /* nothing is suspended here */
}

int srv_http_add(srv_http *h, const struct srv_route *routes, size_t n, void *ctx, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = srv_routes_add(h->routes, &routes[i], ctx, err);
	return rc;
}

void srv_metrics_count(srv_http *h, struct srv_endpoint *e, int status, int64_t ns, bool stream)
{
	(void)h;
	(void)e;
	(void)ns;
	(void)stream;
	MUST(status >= 100 && status < 600);
}

bool srv_tls_is_named(srv_tls *tls, const char *name, size_t len)
{
	(void)tls;
	(void)name;
	(void)len;
	return false;
}

/* A record is one line, in both forms, and has no query: that may hold secrets. */
void srv_accesslog_add(srv_accesslog *a, int64_t time_ms, const struct sl_log_field fields[SRV_ACCESS_FIELDS])
{
	const struct sl_log_record record = {.level = SL_LOG_INFO,
					     .time_ms = time_ms,
					     .component = "access",
					     .message = "request",
					     .fields = fields,
					     .n_fields = SRV_ACCESS_FIELDS};
	char line[4096];
	(void)a;
	for (size_t i = 0; i < SRV_ACCESS_FIELDS; i++)
		MUST(strcmp(fields[i].key, "path") != 0 || strchr(fields[i].str, '?') == NULL);
	size_t n = sl_log_format(&record, SL_LOG_LOGFMT, line, sizeof(line));
	MUST(n < sizeof(line) && memchr(line, '\n', n) == NULL);
	n = sl_log_format(&record, SL_LOG_JSON, line, sizeof(line));
	json_t *v = json_loadb(line, n, 0, NULL);
	MUST(json_is_object(v));
	json_decref(v);
}

/* The record of a change in the audit trail is JSON, whatever was in the path and the query. */
static void check_record(srv_request *r)
{
	struct sl_audit_record record;
	srv_audit_record(r, &record);
	MUST(record.actor != NULL && record.action != NULL && record.detail != NULL);
	json_t *detail = json_loads(record.detail, 0, NULL);
	MUST(json_is_object(detail));
	json_decref(detail);
}

static void show(srv_request *r, void *ctx)
{
	(void)ctx;
	if (r->match.endpoint->route.audit != NULL)
		check_record(r);
	json_t *body = srv_body_json(r);
	if (body != NULL)
		srv_json(r, 200, json_pack("{s:s?,s:O}", "id", srv_param(r, "id"), "body", body));
}

static void page(srv_request *r, void *ctx)
{
	(void)ctx;
	srv_static(r, &(struct srv_content){"text/html", "<p>", 3, "gzip", "\"1\"", 0});
}

static const struct srv_route routes[] = {
	{"GET", "/", SRV_PUBLIC, 0, page, NULL},
	{"GET", "/things/{id}", SRV_READ, 0, show, NULL},
	{"POST", "/things/{id}", SRV_WRITE, 0, show, "thing.write"},
	{"DELETE", "/all/{id*}", SRV_ADMIN, 0, show, "thing.delete"},
};

/* ---- a request ---- */

struct text {
	char *data;
	size_t len;
};

static void put(struct text *t, const char *s, size_t n)
{
	memcpy(t->data + t->len, s, n);
	t->len += n;
}

/* With what the bytes 1 to 4 stand for, none longer than 64. */
static struct text expand(const uint8_t *data, size_t size)
{
	const char *const words[] = {ADMIN, session, csrf, READER};
	struct text t = {.data = malloc(64 * size + 1)};
	MUST(t.data != NULL);
	for (size_t i = 0; i < size; i++)
		if (data[i] >= 1 && data[i] <= 4)
			put(&t, words[data[i] - 1], strlen(words[data[i] - 1]));
		else
			put(&t, (const char *)&data[i], 1);
	t.data[t.len] = '\0';
	return t;
}

static char *copy_of(const char *s, size_t n)
{
	char *p = malloc(n + 1);
	MUST(p != NULL);
	memcpy(p, s, n);
	p[n] = '\0';
	return p;
}

static bool is_secret(const struct field *f)
{
	return strcasecmp(f->name, "Authorization") == 0 || strcasecmp(f->name, "Cookie") == 0;
}

static void take_field(struct MHD_Connection *c, const char *line, size_t n)
{
	const char *colon = memchr(line, ':', n);
	if (colon == NULL || colon == line || c->n == FIELDS_MAX || memchr(line, 0, n) != NULL)
		return;
	size_t name = (size_t)(colon - line), from = name + 1;
	while (from < n && (line[from] == ' ' || line[from] == '\t'))
		from++;
	struct field *f = &c->fields[c->n++];
	*f = (struct field){.name = copy_of(line, name), .value = copy_of(line + from, n - from), .len = n - from};
	if (strcasecmp(f->name, "Cookie") == 0)
		f->cookie = copy_of(f->value, f->len);
}

/* The rest, after the empty line. */
static const char *take_fields(struct MHD_Connection *c, const char *p, const char *end)
{
	while (p < end) {
		const char *stop = memchr(p, '\n', (size_t)(end - p));
		size_t n = (size_t)((stop != NULL ? stop : end) - p);
		if (n > 0)
			take_field(c, p, n);
		p = stop != NULL ? stop + 1 : end;
		if (n == 0)
			break;
	}
	return p;
}

static const struct field *only(const struct MHD_Connection *c, const char *name, size_t *count)
{
	const struct field *found = NULL;
	*count = 0;
	for (size_t i = 0; i < c->n; i++)
		if (strcasecmp(c->fields[i].name, name) == 0) {
			found = &c->fields[i];
			++*count;
		}
	return found;
}

/* ---- what must hold ---- */

/* What was shown, before it is wiped. */
struct shown {
	bool admin, reader, session; /* in a field where it counts */
	bool elsewhere;              /* a secret in a place where it is none: it may be repeated */
	size_t n_authorization;
};

static bool has(const char *text, size_t len, const char *word)
{
	return memmem(text, len, word, strlen(word)) != NULL;
}

static bool has_any(const char *text, size_t len)
{
	return has(text, len, ADMIN) || has(text, len, READER) || has(text, len, session);
}

static struct shown look(const struct MHD_Connection *c, const char *head, size_t head_len)
{
	struct shown s = {.elsewhere = has_any(head, head_len)};
	for (size_t i = 0; i < c->n; i++) {
		const struct field *f = &c->fields[i];
		bool authorization = strcasecmp(f->name, "Authorization") == 0;
		s.n_authorization += authorization;
		s.admin |= authorization && has(f->value, f->len, ADMIN);
		s.reader |= authorization && has(f->value, f->len, READER);
		s.session |= f->cookie != NULL && has(f->value, f->len, session);
		s.elsewhere |= has_any(f->name, strlen(f->name)) || (!is_secret(f) && has_any(f->value, f->len));
	}
	return s;
}

static void check_wiped(const struct MHD_Connection *c)
{
	for (size_t i = 0; i < c->n; i++) {
		const struct field *f = &c->fields[i];
		MUST(!is_secret(f) || sodium_is_zero((const unsigned char *)f->value, f->len));
		MUST(f->cookie == NULL || sodium_is_zero((const unsigned char *)f->cookie, f->len));
	}
}

/* r is let through. */
static void check_allowed(const srv_request *r, const struct MHD_Connection *c, const struct shown *s)
{
	const struct srv_route *route = &r->match.endpoint->route;
	bool by_token = s->n_authorization == 1 && (s->admin || s->reader);
	bool by_session = s->n_authorization == 0 && s->session;
	size_t n;
	const struct field *host = only(c, "Host", &n);
	MUST(n == 1 && host->len > 0);
	MUST(route->role == SRV_PUBLIC || by_token || by_session);
	MUST(route->role <= SRV_READ || by_session || s->admin);
	if (by_session && r->way == SRV_BY_COOKIE) {
		const struct field *origin = only(c, "Origin", &n), *f;
		MUST(n <= 1 && (n == 0 || strcasestr(origin->value, "://") != NULL));
		f = only(c, "X-CSRF-Token", &n);
		MUST(srv_is_read(r) || (route->flags & SRV_LOGIN) != 0 || (f != NULL && strcmp(f->value, csrf) == 0));
	}
	(void)only(c, "Transfer-Encoding", &n);
	size_t codings = n;
	const struct field *length = only(c, "Content-Length", &n);
	MUST(n + codings <= 1 && (n == 0 || strspn(length->value, "0123456789") == length->len));
	MUST(n == 0 || strtoull(length->value, NULL, 10) <= BODY_MAX);
}

static void check_answer(const srv_request *r, bool may_repeat)
{
	const struct MHD_Response *x = r->response;
	MUST(x != NULL && r->status >= 200 && r->status < 600 && r->answer_len == x->len);
	const char *type = MHD_get_response_header((struct MHD_Response *)(uintptr_t)x, "Content-Type");
	MUST(MHD_get_response_header((struct MHD_Response *)(uintptr_t)x, "X-Request-Id") != NULL);
	if (type != NULL && strcmp(type, "application/json") == 0) {
		json_t *body = json_loadb(x->data, x->len, JSON_DECODE_ANY, NULL);
		MUST(body != NULL);
		json_decref(body);
	}
	MUST(may_repeat || !has_any(x->data, x->len));
}

/* As http/mhd.c does it. false: the connection is cut. */
static bool feed(srv_request *r, char *body, size_t len)
{
	bool login = r->match.endpoint != NULL && (r->match.endpoint->route.flags & SRV_LOGIN) != 0;
	for (size_t at = 0, n; at < len; at += n) {
		n = 1 + (len * 7 + at) % 97;
		n = n < len - at ? n : len - at;
		int rc = srv_request_body(r, body + at, n);
		if (login)
			sodium_memzero(body + at, n);
		if (rc != 0)
			return false;
	}
	return true;
}

static bool is_answered(const srv_request *r)
{
	return (atomic_load(&((srv_request *)(uintptr_t)r)->state) & R_ANSWERED) != 0;
}

static void serve(struct srv_conn *conn, const char *method, const char *target, char *body, size_t len, struct shown s)
{
	srv_request *r = srv_request_new(&server, conn, target);
	MUST(r != NULL);
	srv_request_begin(r, method);
	check_wiped(conn->mhd);
	if (!is_answered(r)) {
		check_allowed(r, conn->mhd, &s);
		bool login = (r->match.endpoint->route.flags & SRV_LOGIN) != 0;
		s.elsewhere |= !login && has_any(body, len);
		if (feed(r, body, len) && !is_answered(r)) {
			MUST(r->body_len <= (login ? LOGIN_MAX : BODY_MAX));
			r->match.endpoint->route.fn(r, r->match.endpoint->ctx);
		}
	}
	MUST(is_answered(r));
	check_answer(r, s.elsewhere);
	srv_record_access(r, r->start_ns);
	srv_request_detach(r);
	MUST(live == 0 && conn->spare == r && atomic_load(&server.body_bytes) == 0);
	MUST(s.elsewhere || !has_any((const char *)r, sizeof(*r)));
}

static void run(struct text t)
{
	static struct MHD_Connection mhd;
	struct srv_conn conn = {.h = &server, .mhd = &mhd, .address = "127.0.0.1"};
	char *end = t.data + t.len, *line_end = memchr(t.data, '\n', t.len);
	char *space = line_end != NULL ? memchr(t.data, ' ', (size_t)(line_end - t.data)) : NULL;
	if (space == NULL || memchr(t.data, 0, (size_t)(line_end - t.data)) != NULL)
		return;
	mhd.n = 0;
	struct text rest = {.data = (char *)(uintptr_t)take_fields(&mhd, line_end + 1, end)};
	rest.len = (size_t)(end - rest.data);
	struct shown s = look(&mhd, t.data, (size_t)(line_end - t.data));
	char *method = copy_of(t.data, (size_t)(space - t.data));
	char *target = copy_of(space + 1, (size_t)(line_end - space - 1)), *body = copy_of(rest.data, rest.len);
	serve(&conn, method, target, body, rest.len, s);
	srv_request_free_spare(&conn);
	for (size_t i = 0; i < mhd.n; i++) {
		free(mhd.fields[i].name);
		free(mhd.fields[i].value);
		free(mhd.fields[i].cookie);
	}
	free(method);
	free(target);
	free(body);
}

/* ---- the server ---- */

static void write_hash(int fd, const char *name, const char *token)
{
	unsigned char hash[32];
	char hex[65];
	crypto_hash_sha256(hash, (const unsigned char *)token, strlen(token));
	MUST(dprintf(fd, "%s sha256:%s\n", name, sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash))) > 0);
}

static void make_auth(void)
{
	char path[64];
	int fd = memfd_create("tokens", MFD_CLOEXEC);
	MUST(fd >= 0 && fchmod(fd, 0600) == 0);
	write_hash(fd, "boss admin", ADMIN);
	write_hash(fd, "reader read", READER);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	MUST(srv_auth_new(&server.auth, path, NULL) == 0);
}

/* Inputs log out, and log in often enough that sessions are forgotten. */
static void need_session(void)
{
	struct srv_identity who;
	if (srv_auth_by_session(server.auth, session, strlen(session), sl__real_ms(&server.env), &who))
		return;
	MUST(srv_auth_login(server.auth, ADMIN, strlen(ADMIN), sl__real_ms(&server.env), session, &who));
	memcpy(csrf, who.csrf, sizeof(csrf));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static int logs; /* there are some; what they hold does not matter here */
	(void)argc;
	(void)argv;
	srv_http_wipe_json();
	MUST(sodium_init() >= 0);
	make_auth();
	server.env = sl__env_real;
	server.body_max = BODY_MAX;
	server.bodies_max = 1 << 20;
	server.answers_max = 1 << 20;
	server.needs_token = true;
	server.access = (srv_accesslog *)(void *)&logs;
	(void)snprintf(server.cookie, sizeof(server.cookie), "sid");
	(void)snprintf(server.boot, sizeof(server.boot), "boot");
	MUST(srv_routes_new(&server.routes, NULL) == 0);
	MUST(srv_http_add(&server, routes, sizeof(routes) / sizeof(routes[0]), NULL, NULL) == 0);
	return srv_session_add(&server, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	need_session();
	struct text t = expand(data, size);
	run(t);
	free(t.data);
	return 0;
}
