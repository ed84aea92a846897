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

bool srv_guard_host(srv_request *r)
{
	static const char localhost[] = ".localhost";
	const size_t n = sizeof(localhost) - 1;
	struct srv_host host;
	const char *field = r->field[F_HOST];
	if (r->seen[F_HOST] != 1 || !srv_host_parse(field, strlen(field), &host)) {
		srv_error(r, 400, "bad_host", "the request needs exactly one Host header with a name or an address");
		return false;
	}
	bool allowed = host.is_address || same_text(host.name, host.len, "localhost") ||
		       (host.len > n && strncasecmp(host.name + host.len - n, localhost, n) == 0);
	for (size_t i = 0; !allowed && i < r->h->n_hosts; i++)
		allowed = same_text(host.name, host.len, r->h->hosts[i]);
	if (allowed || (r->h->tls != NULL && srv_tls_is_named(r->h->tls, host.name, host.len)))
		return true;
	srv_error(r, 421, "wrong_host", "%.*s is not a name of this server; add it to server.hosts", (int)host.len,
		  host.name);
	return false;
}

/* false: the page of another site made the browser send the request. */
static bool is_own_page(const srv_request *r)
{
	const char *site = r->field[F_FETCH_SITE], *mode = r->field[F_FETCH_MODE], *origin = r->field[F_ORIGIN];
	if (r->seen[F_ORIGIN] > 1 || r->seen[F_FETCH_SITE] > 1)
		return false;
	/* Origin must name the host of the request. The scheme is not compared: a proxy may have ended TLS. */
	if (origin != NULL) {
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
		if (!srv_host_parse(origin, strlen(origin), &a) ||
		    !srv_host_parse(r->field[F_HOST], strlen(r->field[F_HOST]), &b) || a.len != b.len ||
		    strncasecmp(a.name, b.name, a.len) != 0 ||
		    (a.port < 0 ? standard : a.port) != (b.port < 0 ? standard : b.port))
			return false;
	}
	if (site == NULL || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0)
		return true;
	/* A link on another site may be followed. */
	return (strcmp(r->method, "GET") == 0 || r->head) && mode != NULL && strcmp(mode, "navigate") == 0;
}

/* How the actor is known; fills r->identity. */
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
	const char *bearer = r->field[F_AUTHORIZATION];
	if (bearer != NULL) {
		if (r->seen[F_AUTHORIZATION] != 1 || strncasecmp(bearer, "Bearer ", 7) != 0)
			return SRV_BY_NOTHING;
		bearer += 7 + strspn(bearer + 7, " ");
		return srv_auth_by_token(r->h->auth, bearer, strcspn(bearer, " \t"), &r->identity) ? SRV_BY_TOKEN
												   : SRV_BY_NOTHING;
	}
	size_t n;
	const char *value = r->field[F_COOKIE] != NULL ? srv_cookie_find(r->field[F_COOKIE], r->h->cookie, &n) : NULL;
	if (value != NULL && srv_auth_by_session(r->h->auth, value, n, sl__real_ms(&r->h->env), &r->identity))
		return SRV_BY_COOKIE;
	return SRV_BY_NOTHING;
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

bool srv_guard_actor(srv_request *r)
{
	r->way = find_actor(r);
	/* The fields are in buffers of libmicrohttpd, which may be changed while the request lasts: tokens and session
	 * ids are wiped once they were checked. The id of the session is kept for logging out, in the request, which
	 * is wiped too. */
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

	/* What a browser sends along for any site. */
	unsigned flags = r->match.endpoint->route.flags;
	bool browser = r->field[F_ORIGIN] != NULL || r->field[F_FETCH_SITE] != NULL || r->way == SRV_BY_COOKIE;
	bool login = (flags & SRV_LOGIN) != 0;
	if (r->way != SRV_BY_TOKEN && (r->way != SRV_BY_NOTHING || login)) {
		const char *csrf = r->field[F_CSRF];
		if (!is_own_page(r)) {
			srv_error(r, 403, "cross_site", "the request comes from a page of another site");
			return false;
		}
		if (browser && !login && !srv_is_read(r) &&
		    (csrf == NULL || strlen(csrf) != SRV_CSRF_BYTES - 1 ||
		     sodium_memcmp(csrf, r->identity.csrf, SRV_CSRF_BYTES - 1) != 0)) {
			srv_error(r, 403, "csrf", "a browser must send the X-CSRF-Token that /api/v1/session returns");
			return false;
		}
	}

	/* The role, or a scope that the route accepts in its place. */
	enum srv_role needed = r->match.endpoint->route.role;
	bool may = r->identity.role >= needed || ((flags & SRV_BY_ENQUEUE) != 0 && r->identity.enqueue[0] != '\0') ||
		   ((flags & SRV_BY_SHIP) != 0 && (r->identity.ship[0] != '\0' || r->identity.worker[0] != '\0'));
	if (!may && r->way == SRV_BY_NOTHING) {
		srv_set_header(r, "WWW-Authenticate", "Bearer realm=\"sluice\"");
		srv_error(r, 401, "unauthorized", "%s",
			  r->h->needs_token ? "the request needs a token"
					    : "this server has no tokens and serves only its own user and root; start "
					      "it with --tokens to admit others");
		return false;
	}
	if (!may) {
		srv_error(r, 403, "forbidden", "token \"%s\" does not have the scope %s that this request needs",
			  r->identity.name, srv_role_name(needed));
		return false;
	}
	if (r->h->read_only && !srv_is_read(r) && (flags & SRV_OF_SESSION) == 0) {
		srv_error(r, 403, "read_only", "this server is read-only");
		return false;
	}
	return true;
}
