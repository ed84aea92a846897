/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /api/v1/session: a browser shows its token once and has a cookie afterwards.
 *
 * Any client can request these, so they must not use up any resource. A log-in is recorded in the audit trail at most
 * once per minute and token; refused ones are counted, and past a rate they get 429. A valid token is always accepted: a
 * client that sends wrong ones cannot lock others out. Logging out changes nothing durable, and is not recorded.
 */
#include "server/http/internal.h"

#include <sluice/version.h>

#include <malloc.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Of this thread, while it handles a log-in: wiping everything costs a tenth of a small answer's time. */
static _Thread_local bool wiping;

static void free_json(void *p)
{
	if (p != NULL && wiping)
		sodium_memzero(p, malloc_usable_size(p));
	free(p);
}

void srv_http_wipe_json(void)
{
	json_set_alloc_funcs(malloc, free_json);
}

static json_t *session_json(const srv_request *r, const struct srv_identity *who)
{
	return json_pack("{s:s,s:s,s:s,s:b,s:s,s:s?}", "actor", who->name, "role", srv_role_name(who->role), "csrf",
			 who->csrf, "read_only", r->h->read_only, "version", sl_version(), "store", r->h->store);
}

static void show_session(srv_request *r, void *ctx)
{
	(void)ctx;
	srv_json(r, 200, session_json(r, &r->identity));
}

static void set_cookie(srv_request *r, const char *value, long long seconds)
{
	char cookie[256];
	const char *proto = r->h->behind_proxy ? r->field[F_FORWARDED_PROTO] : NULL;
	bool secure = r->h->tls != NULL || (proto != NULL && strcasecmp(proto, "https") == 0);
	snprintf(cookie, sizeof(cookie), "%s=%s; Path=/; Max-Age=%lld; HttpOnly; SameSite=Strict%s", r->h->cookie,
		 value, seconds, secure ? "; Secure" : "");
	srv_set_header(r, "Set-Cookie", cookie);
	sodium_memzero(cookie, sizeof(cookie));
}

/* A log-in to be recorded on a separate thread: the store may be slow, and the log-in itself runs on the network
 * thread, where its secrets are overwritten soon. It changes nothing in the store, so it does not wait for its record.
 */
struct login {
	srv_http *h;
	char name[SRV_NAME_BYTES], address[SRV_ADDRESS_BYTES], id[65];
};

static void *record_main(void *ctx)
{
	struct login *l = ctx;
	srv_http *h = l->h;
	struct sl_err err = SL_ERR_INIT;
	const struct sl_audit_record record = {.via = SL_VIA_HTTP,
					       .actor = l->name,
					       .address = l->address,
					       .action = "session.begin",
					       .request_id = l->id};
	if (h->audit(&record, &err, h->audit_ctx) != 0)
		sl__log(&h->env, SL_LOG_ERROR, "http", "login not recorded", SL__F_STR("error", err.msg));
	free(l);
	sl__lock(&h->mu);
	h->n_recording--;
	sl__broadcast(&h->idle);
	sl__unlock(&h->mu);
	return NULL;
}

static void record_login(srv_request *r, const struct srv_identity *who)
{
	srv_http *h = r->h;
	struct login *l = h->audit != NULL && who->first_login ? malloc(sizeof(*l)) : NULL;
	pthread_t thread;
	if (l == NULL)
		return;
	l->h = h;
	memcpy(l->name, who->name, sizeof(l->name));
	memcpy(l->address, r->address, sizeof(l->address));
	memcpy(l->id, r->id, sizeof(l->id));
	sl__lock(&h->mu);
	h->n_recording++;
	int rc = sl__thread_start(&thread, "http-login", record_main, l);
	h->n_recording -= rc != 0;
	sl__unlock(&h->mu);
	if (rc == 0)
		pthread_detach(thread);
	else
		free(l);
}

void srv_session_stop(srv_http *h)
{
	sl__lock(&h->mu);
	while (h->n_recording > 0)
		(void)sl__wait(&h->env, &h->idle, &h->mu, SL_FOREVER);
	sl__unlock(&h->mu);
}

static void log_in(srv_request *r, void *ctx)
{
	struct srv_identity who = {.name = "local", .role = SRV_ADMIN};
	char session[SRV_SESSION_BYTES] = "";
	wiping = true;
	const json_t *body = srv_body_json(r), *token = json_object_get(body, "token");
	bool answered = body == NULL, given = json_is_string(token);
	bool known = given && srv_auth_login(r->h->auth, json_string_value(token), json_string_length(token),
					     sl__real_ms(&r->h->env), session, &who);
	(void)ctx;
	/* Before the answer, after which no copy of the token may be left. What jansson frees is wiped
	 * (srv_http_wipe_json). */
	if (r->body != NULL)
		sodium_memzero(r->body, r->body_cap);
	srv_json_body_fini(&r->json);
	wiping = false;
	if (answered)
		return;
	if (known) {
		record_login(r, &who);
		set_cookie(r, session, SRV_SESSION_MS / 1000);
		r->identity = who;
		srv_json(r, 200, session_json(r, &who));
	} else if (given) {
		sl_counter_add(r->h->refused_logins, 1);
		if (srv_auth_may_refuse(r->h->auth, sl__real_ms(&r->h->env))) {
			srv_error(r, 401, "unauthorized", "unknown token");
		} else {
			srv_retry_after(r, 1000);
			srv_error(r, 429, "too_many", "too many failed logins; try again later");
		}
	} else {
		srv_error(r, 400, "invalid", "the body has no token");
	}
	sodium_memzero(session, sizeof(session));
}

static void log_out(srv_request *r, void *ctx)
{
	(void)ctx;
	srv_auth_logout(r->h->auth, r->session, strlen(r->session));
	set_cookie(r, "", 0);
	srv_bytes(r, 204, NULL, "", 0);
}

int srv_session_add(srv_http *h, struct sl_err *err)
{
	const struct srv_route routes[] = {
		{"GET", "/api/v1/session", SRV_READ, SRV_QUICK | SRV_OF_SESSION, show_session, NULL},
		{"POST", "/api/v1/session", SRV_PUBLIC, SRV_QUICK | SRV_OF_SESSION | SRV_LOGIN, log_in,
		 "session.begin"},
		{"DELETE", "/api/v1/session", SRV_PUBLIC, SRV_QUICK | SRV_OF_SESSION, log_out, NULL},
	};
	return srv_http_add(h, routes, SL_COUNT(routes), NULL, err);
}
