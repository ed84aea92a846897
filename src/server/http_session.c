/* SPDX-License-Identifier: Apache-2.0 */
/* /api/v1/session: a browser shows its token once and has a cookie afterwards. /api/v1/audit: the last lines of it. */
#include "http_internal.h"

#include <sluice/version.h>

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *session_json(const srv_request *r, const struct srv_identity *who)
{
	return json_pack("{s:s,s:s,s:s,s:b,s:s}", "actor", who->name, "role", srv_role_name(who->role), "csrf",
			 who->csrf, "read_only", r->h->read_only != 0, "version", sl_version());
}

static void show(srv_request *r, void *ctx)
{
	(void)ctx;
	srv_json(r, 200, session_json(r, &r->identity));
}

static void set_cookie(srv_request *r, const char *value, long long seconds)
{
	char cookie[256];
	snprintf(cookie, sizeof cookie, "%s=%s; Path=/; Max-Age=%lld; HttpOnly; SameSite=Strict%s", r->h->cookie, value,
		 seconds, r->h->tls != NULL ? "; Secure" : "");
	srv_set_header(r, "Set-Cookie", cookie);
	sodium_memzero(cookie, sizeof cookie);
}

/* Before the answer: whoever sees that may look for the token. What jansson frees is wiped (srv_http_wipe_json). */
static void wipe_body(srv_request *r)
{
	if (r->body != NULL)
		sodium_memzero(r->body, r->body_cap);
	json_decref(r->json);
	r->json = NULL;
	srv_json_wiping(false);
}

static void log_in(srv_request *r, void *ctx)
{
	struct srv_identity who = {.name = "local", .role = SRV_ADMIN};
	char session[SRV_SESSION_BYTES] = "";
	srv_json_wiping(true);
	const json_t *body = srv_body_json(r), *token = json_object_get(body, "token");
	bool answered = body == NULL, given = json_is_string(token);
	bool known = given && srv_auth_login(r->h->auth, json_string_value(token), json_string_length(token),
					     srv_real_ms(r->h), session, &who);
	(void)ctx;
	wipe_body(r);
	if (answered)
		return;
	if (known) {
		set_cookie(r, session, SRV_SESSION_MS / 1000);
		r->identity = who;
		srv_json(r, 200, session_json(r, &who));
	} else if (given) {
		srv_error(r, 401, "unauthorized", "nobody has this token");
	} else {
		srv_error(r, 400, "invalid", "the body has no token");
	}
	sodium_memzero(session, sizeof session);
}

static void log_out(srv_request *r, void *ctx)
{
	(void)ctx;
	srv_auth_logout(r->h->auth, r->session, strlen(r->session));
	set_cookie(r, "", 0);
	srv_bytes(r, 204, NULL, "", 0);
}

static void show_audit(srv_request *r, void *ctx)
{
	const char *text = srv_query(r, "limit");
	char *end = NULL;
	unsigned long limit = text != NULL ? strtoul(text, &end, 10) : 50;
	struct sl_err err = SL_ERR_INIT;
	json_t *items = NULL;
	(void)ctx;
	if (limit < 1 || limit > 1000 || (text != NULL && (*text < '0' || *text > '9' || *end != '\0'))) {
		srv_error(r, 400, "invalid", "limit is 1 to 1000");
		return;
	}
	if (r->h->audit == NULL)
		items = json_array();
	else if (srv_audit_tail(r->h->audit, limit, &items, &err) != 0) {
		srv_fail(r, &err);
		return;
	}
	srv_json(r, 200, json_pack("{s:o}", "items", items));
}

int srv_session_add(srv_http *h, struct sl_err *err)
{
	const struct srv_route routes[] = {
		{"GET", "/api/v1/session", SRV_READ, SRV_QUICK | SRV_OF_SESSION, show, NULL},
		{"POST", "/api/v1/session", SRV_PUBLIC, SRV_QUICK | SRV_OF_SESSION | SRV_LOGIN, log_in,
		 "session.begin"},
		{"DELETE", "/api/v1/session", SRV_PUBLIC, SRV_QUICK | SRV_OF_SESSION, log_out, "session.end"},
		{"GET", "/api/v1/audit", SRV_ADMIN, 0, show_audit, NULL},
	};
	return srv_http_add(h, routes, sizeof routes / sizeof routes[0], NULL, err);
}
