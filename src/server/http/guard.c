/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who asks, and whether they may. In order:
 *
 * 1. Host says an address, localhost, a name of the certificate or a configured one. A site that points its own name at
 *    our address (DNS rebinding) gets 421.
 * 2. The actor: by bearer token; by session cookie; or, where no token exists (loopback only), by a socket of the
 *    server's own user or of root.
 * 3. A cookie and the loopback are ambient: a browser sends them along for any site. So where a browser shows itself
 *    (Origin, Sec-Fetch-Site), the request must come from our own page, and a mutation must carry the CSRF token, which
 *    only our own page can have read.
 * 4. The role of the route.
 */
#include "server/http/internal.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool same_text(const char *a, size_t n, const char *b)
{
	return strlen(b) == n && strncasecmp(a, b, n) == 0;
}

static bool is_localhost(const struct srv_host *host)
{
	static const char end[] = ".localhost";
	const size_t n = sizeof(end) - 1;
	return same_text(host->name, host->len, "localhost") ||
	       (host->len > n && strncasecmp(host->name + host->len - n, end, n) == 0);
}

static bool host_allowed(const srv_http *h, const struct srv_host *host)
{
	if (host->is_address || is_localhost(host))
		return true;
	for (size_t i = 0; i < h->n_hosts; i++)
		if (same_text(host->name, host->len, h->hosts[i]))
			return true;
	return h->tls != NULL && srv_tls_is_named(h->tls, host->name, host->len);
}

bool srv_guard_host(srv_request *r)
{
	struct srv_host host;
	const char *field = r->field[F_HOST];
	if (r->seen[F_HOST] != 1 || !srv_host_parse(field, strlen(field), &host)) {
		srv_error(r, 400, "bad_host", "the request needs one Host field with a name or an address");
		return false;
	}
	if (host_allowed(r->h, &host))
		return true;
	srv_error(r, 421, "wrong_host", "this server does not go by the name %.*s; see server.hosts", (int)host.len,
		  host.name);
	return false;
}

static bool same_port(int32_t a, int32_t b, int32_t standard)
{
	return (a < 0 ? standard : a) == (b < 0 ? standard : b);
}

/* Whether Origin names the host that was asked. The scheme is left out: a proxy may have taken TLS off. */
static bool own_origin(const srv_request *r)
{
	const char *origin = r->field[F_ORIGIN];
	struct srv_host a, b;
	int32_t standard;
	if (strncasecmp(origin, "https://", 8) == 0) {
		origin += 8;
		standard = 443;
	} else if (strncasecmp(origin, "http://", 7) == 0) {
		origin += 7;
		standard = 80;
	} else {
		return false;
	}
	return srv_host_parse(origin, strlen(origin), &a) &&
	       srv_host_parse(r->field[F_HOST], strlen(r->field[F_HOST]), &b) && a.len == b.len &&
	       strncasecmp(a.name, b.name, a.len) == 0 && same_port(a.port, b.port, standard);
}

static bool is_navigation(const srv_request *r)
{
	const char *mode = r->field[F_FETCH_MODE];
	return (strcmp(r->method, "GET") == 0 || r->head) && mode != NULL && strcmp(mode, "navigate") == 0;
}

/* false: another site's page made the browser ask. */
static bool own_page(const srv_request *r)
{
	const char *site = r->field[F_FETCH_SITE];
	if (r->seen[F_ORIGIN] > 1 || r->seen[F_FETCH_SITE] > 1)
		return false;
	if (r->field[F_ORIGIN] != NULL && !own_origin(r))
		return false;
	return site == NULL || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0 || is_navigation(r);
}

static bool csrf_ok(const srv_request *r)
{
	const char *given = r->field[F_CSRF];
	return given != NULL && strlen(given) == SRV_CSRF_BYTES - 1 &&
	       sodium_memcmp(given, r->identity.csrf, SRV_CSRF_BYTES - 1) == 0;
}

static bool by_bearer(srv_request *r)
{
	const char *field = r->field[F_AUTHORIZATION];
	if (field == NULL || strncasecmp(field, "Bearer ", 7) != 0)
		return false;
	field += 7 + strspn(field + 7, " ");
	return srv_auth_by_token(r->h->auth, field, strcspn(field, " \t"), &r->identity);
}

static bool by_cookie(srv_request *r)
{
	size_t n;
	const char *value = r->field[F_COOKIE] != NULL ? srv_cookie_find(r->field[F_COOKIE], r->h->cookie, &n) : NULL;
	return value != NULL && srv_auth_by_session(r->h->auth, value, n, sl__real_ms(&r->h->env), &r->identity);
}

/* How the actor is known. */
static enum srv_way find_actor(srv_request *r)
{
	if (!r->h->needs_token && !r->conn->own_user)
		return SRV_BY_NOTHING;
	if (!r->h->needs_token) {
		snprintf(r->identity.name, sizeof(r->identity.name), "local");
		r->identity.role = SRV_ADMIN;
		memcpy(r->identity.csrf, r->h->local_csrf, sizeof(r->identity.csrf));
		return SRV_BY_PLACE;
	}
	if (r->field[F_AUTHORIZATION] != NULL)
		return r->seen[F_AUTHORIZATION] == 1 && by_bearer(r) ? SRV_BY_TOKEN : SRV_BY_NOTHING;
	return by_cookie(r) ? SRV_BY_COOKIE : SRV_BY_NOTHING;
}

static enum MHD_Result wipe_value(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_len,
				  const char *value, size_t value_len)
{
	(void)cls;
	(void)kind;
	(void)name;
	(void)name_len;
	if (value != NULL)
		sodium_memzero((void *)(uintptr_t)value, value_len);
	return MHD_YES;
}

static bool guard_browser(srv_request *r)
{
	bool browser = r->field[F_ORIGIN] != NULL || r->field[F_FETCH_SITE] != NULL || r->way == SRV_BY_COOKIE;
	bool login = (r->match.endpoint->route.flags & SRV_LOGIN) != 0;
	if (r->way == SRV_BY_TOKEN || (r->way == SRV_BY_NOTHING && !login))
		return true;
	if (!own_page(r)) {
		srv_error(r, 403, "cross_site", "another site's page asked for this");
		return false;
	}
	if (!browser || login || srv_is_read(r) || csrf_ok(r))
		return true;
	srv_error(r, 403, "csrf", "a browser must send the X-CSRF-Token that /api/v1/session gives");
	return false;
}

static bool guard_role(srv_request *r)
{
	enum srv_role needed = r->match.endpoint->route.role;
	unsigned flags = r->match.endpoint->route.flags;
	if (r->identity.role >= needed || ((flags & SRV_BY_ENQUEUE) != 0 && r->identity.enqueue[0] != '\0') ||
	    ((flags & SRV_BY_SHIP) != 0 && (r->identity.ship[0] != '\0' || r->identity.worker[0] != '\0')))
		return true;
	if (r->way == SRV_BY_NOTHING) {
		srv_set_header(r, "WWW-Authenticate", "Bearer realm=\"sluice\"");
		srv_error(r, 401, "unauthorized", "%s",
			  r->h->needs_token
				  ? "a token is needed"
				  : "this server has no tokens, so it serves only its own user and root; start "
				    "it with --tokens to let others in");
	} else {
		srv_error(r, 403, "forbidden", "token \"%s\" does not have the scope %s that this request needs",
			  r->identity.name, srv_role_name(needed));
	}
	return false;
}

bool srv_guard_actor(srv_request *r)
{
	r->way = find_actor(r);
	/* The fields lie in libmicrohttpd's buffers, which are ours to change while the request lasts: once looked
	 * at, tokens
	 * and session ids are nowhere. The session's own id is kept for logging out, in the request, which is wiped. */
	size_t n;
	const char *cookie = r->field[F_COOKIE] != NULL ? srv_cookie_find(r->field[F_COOKIE], r->h->cookie, &n) : NULL;
	if (cookie != NULL && n < sizeof(r->session) && r->match.endpoint != NULL &&
	    (r->match.endpoint->route.flags & SRV_OF_SESSION) != 0) {
		memcpy(r->session, cookie, n);
		r->session[n] = '\0';
	}
	if (r->seen[F_COOKIE] > 0)
		MHD_get_connection_values_n(r->conn->mhd, MHD_COOKIE_KIND, wipe_value, NULL);
	for (size_t i = 0; i < r->n_secret; i++)
		sodium_memzero(r->secret[i].text, r->secret[i].len);
	r->field[F_AUTHORIZATION] = NULL;
	r->field[F_COOKIE] = NULL;
	if (r->match.endpoint == NULL)
		return true;
	if (!guard_browser(r) || !guard_role(r))
		return false;
	if (r->h->read_only && !srv_is_read(r) && (r->match.endpoint->route.flags & SRV_OF_SESSION) == 0) {
		srv_error(r, 403, "read_only", "this server is read-only");
		return false;
	}
	return true;
}
