/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends a log of events to a Sluice server: a batch is one POST, on a connection that is kept.
 *
 *   batch ─▶ body ─▶ POST …/PublishJobEvents ─▶ 401? read the token again, retry once ─▶ answer: mark, refused, retry
 *
 * Invariants
 *  1. A cancel is never lost: its descriptor stays readable until a send has ended with it. One that comes too late
 *     ends the next send, which is tried again.
 *  2. No message shows the password of the URL or the token.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "jobs/events/http.h"

#define TIMEOUT_MS 30000
#define CONNECT_TIMEOUT_MS 10000
#define TIMEOUT_MAX_MS ((int64_t)INT32_MAX)
#define HEADER_BYTES (sizeof(SL__EVENT_HTTP_TARGET_HEADER ": ") + 33)

struct sl_event_http_sender {
	struct sl_env env;
	struct sl__http_url base, publish;
	struct sl__http_token token;
	char *token_file, *ca_file;
	int64_t timeout_ms, connect_timeout_ms;
	char target[HEADER_BYTES]; /* a header; empty: none */
	int cancel;                /* an eventfd */
	struct sl__http *client;   /* made for the first batch */
	struct sl__buf body, secret;
};

/* ---- requests ---- */

static int make_http_client(sl_event_http_sender *s, const struct sl__http_url *url, struct sl__http **out,
			    struct sl_err *err)
{
	const struct sl__http_opts opts = {.env = &s->env,
					   .url = url,
					   .ca_file = s->ca_file,
					   .timeout_ms = s->timeout_ms,
					   .connect_timeout_ms = s->connect_timeout_ms,
					   .cancel_fd = s->cancel};
	return sl__http_new(out, &opts, err);
}

/* One request and its answer: a POST if it has a body, else a GET. After a 401 the token is read again, and the request
 * is sent once more if it changed. */
static int publish_once(sl_event_http_sender *s, struct sl__http *client, struct sl__http_request *request,
			struct sl__http_response *r, struct sl_err *err)
{
	for (bool retried = false;; retried = true) {
		uint64_t version;
		if (sl__http_token_get(&s->token, &s->secret, &version) != 0)
			return sl__no_memory(err, "publish events");
		request->token = s->secret.len > 0 ? s->secret.data : NULL;
		int rc = request->body != NULL ? sl__http_post(client, request, r, err)
					       : sl__http_get(client, request, r, err);
		if (rc != 0 || r->status != 401 || retried || !sl__http_token_refresh(&s->token, version))
			return rc;
	}
}

static struct sl__event_http_peer peer_of(const sl_event_http_sender *s)
{
	return (struct sl__event_http_peer){.shown = s->base.shown,
					    .token = s->secret.len > 0 ? s->secret.data : NULL,
					    .password = s->base.password};
}

static int send_over_http(const struct sl_wal_batch *batch, struct sl_wal_reply *reply, struct sl_err *err, void *ctx)
{
	sl_event_http_sender *s = ctx;
	const char *const headers[] = {"Content-Type: application/proto", "Connect-Protocol-Version: 1", s->target};
	struct sl__http_response r;
	reply->refused = 0;
	int rc = sl__event_http_body(&s->body, batch, &reply->refused, err);
	if (rc == 0 && s->client == NULL)
		rc = make_http_client(s, &s->publish, &s->client, err);
	if (rc != 0)
		return rc;
	struct sl__http_request request = {.headers = headers,
					   .n_headers = s->target[0] != '\0' ? 3 : 2,
					   .body = s->body.data,
					   .len = s->body.len};
	rc = publish_once(s, s->client, &request, &r, err);
	if (rc == SL_ECANCELLED) {
		uint64_t cancels;
		(void)!read(s->cancel, &cancels, sizeof(cancels));
	}
	if (rc != 0)
		return rc;
	const struct sl__event_http_peer peer = peer_of(s);
	return sl__event_http_answer(&r, &peer, reply, &s->env, err);
}

static void cancel_send(void *ctx)
{
	sl_event_http_sender *s = ctx;
	uint64_t one = 1;
	(void)!write(s->cancel, &one, sizeof(one));
}

const struct sl_wal_sender *sl_event_http_sender_ops(void)
{
	static const struct sl_wal_sender ops = {
		.version = SL_WAL_SENDER_VERSION, .send = send_over_http, .cancel = cancel_send};
	return &ops;
}

static int url_below(const sl_event_http_sender *s, const char *path, struct sl__http_url *out, struct sl_err *err)
{
	size_t n = strlen(s->base.url);
	while (n > 0 && s->base.url[n - 1] == '/')
		n--;
	char *text = sl__asprintf(&s->env, "%.*s%s", (int)n, s->base.url, path);
	if (text == NULL)
		return sl__no_memory(err, "publish events");
	int rc = sl__http_url_init(out, text, &s->env, err);
	sl__free(&s->env, text);
	if (rc != 0)
		return rc;
	out->user = s->base.user != NULL ? sl__strdup(&s->env, s->base.user) : NULL;
	out->password = s->base.password != NULL ? sl__strdup(&s->env, s->base.password) : NULL;
	bool copied =
		(out->user != NULL) == (s->base.user != NULL) && (out->password != NULL) == (s->base.password != NULL);
	return copied ? 0 : sl__no_memory(err, "publish events");
}

int sl_event_http_sender_target(sl_event_http_sender *s, char out[33], struct sl_err *err)
{
	struct sl__http_request request = {.headers = NULL};
	struct sl__http_url url = {.env = NULL};
	struct sl__http *client = NULL;
	struct sl__http_response r;
	int rc = url_below(s, SL__EVENT_HTTP_TARGET_PATH, &url, err);
	if (rc == 0)
		rc = make_http_client(s, &url, &client, err);
	if (rc == 0)
		rc = publish_once(s, client, &request, &r, err);
	if (rc == 0) {
		const struct sl__event_http_peer peer = peer_of(s);
		rc = sl__event_http_target(&r, &peer, out, err);
	}
	sl__http_free(client);
	sl__http_url_fini(&url);
	return rc;
}

/* ---- the handle ---- */

/* Check the options and copy them; what was built is freed by the caller after a failure. */
static int build_sender(sl_event_http_sender *s, const struct sl_event_http_opts *o, struct sl_err *err)
{
	s->token_file = o->token_file != NULL ? sl__strdup(&s->env, o->token_file) : NULL;
	s->ca_file = o->ca_file != NULL ? sl__strdup(&s->env, o->ca_file) : NULL;
	if ((o->token_file != NULL && s->token_file == NULL) || (o->ca_file != NULL && s->ca_file == NULL))
		return sl__no_memory(err, "publish events");
	int rc = sl__http_url_init(&s->base, o->url, &s->env, err);
	if (rc != 0)
		return rc;
	if (strchr(s->base.url, '?') != NULL)
		return sl_err_set(err, SL_EINVAL, "url: a server's address has no query");
	bool has_token = o->token_file != NULL || o->token != NULL;
	if (has_token && (s->base.user != NULL || s->base.password != NULL))
		return sl_err_set(err, SL_EINVAL, "%s: the URL has a user or a password already",
				  o->token_file != NULL ? "token_file" : "token");
	rc = url_below(s, SL__EVENT_HTTP_PATH, &s->publish, err);
	if (rc != 0)
		return rc;
	int64_t connect = o->connect_timeout_ms != 0 ? o->connect_timeout_ms : CONNECT_TIMEOUT_MS;
	if (o->timeout_ms < 0 || connect < 0)
		return sl_err_set(err, SL_EINVAL, "%s: must not be negative",
				  o->timeout_ms < 0 ? "timeout_ms" : "connect_timeout_ms");
	s->timeout_ms = o->timeout_ms != 0 ? SL_MIN(o->timeout_ms, TIMEOUT_MAX_MS) : TIMEOUT_MS;
	s->connect_timeout_ms = SL_MIN(connect, s->timeout_ms);
	if (o->target != NULL) {
		if (!sl__event_http_is_target(o->target))
			return sl_err_set(err, SL_EINVAL, "target: not 32 hexadecimal characters");
		(void)snprintf(s->target, sizeof(s->target), SL__EVENT_HTTP_TARGET_HEADER ": %s", o->target);
	}
	/* A file that cannot be read is reported now, not with the first batch. */
	if (s->ca_file != NULL) {
		int fd = SL__IO(&s->env, open, s->ca_file, O_RDONLY, 0);
		if (fd < 0)
			return sl_err_set_errno(err, -fd, "ca_file %s", s->ca_file);
		sl__close_fd(&s->env, &fd);
	}
	if (o->token != NULL && s->token_file != NULL)
		return sl_err_set(err, SL_EINVAL, "token and token_file exclude each other");
	rc = sl__http_token_init(&s->token, &s->env, s->token_file, err);
	if (rc == 0 && o->token != NULL)
		rc = sl__http_token_set(&s->token, o->token, err);
	if (rc != 0)
		return rc;
	s->cancel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return s->cancel >= 0 ? 0 : sl_err_set_errno(err, errno, "publish events: eventfd");
}

int sl_event_http_sender_new(sl_event_http_sender **out, const struct sl_event_http_opts *opts, struct sl_err *err)
{
	struct sl_event_http_opts o;
	struct sl_env env;
	sl__opts_copy(&o, sizeof(o), opts);
	if (o.url == NULL)
		return sl_err_set(err, SL_EINVAL, "url: the server's address is needed");
	int rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	sl_event_http_sender *s = sl__calloc(&env, 1, sizeof(*s));
	if (s == NULL)
		return sl__no_memory(err, "publish events");
	s->env = env;
	s->cancel = -1;
	sl__buf_init(&s->body, &s->env);
	sl__buf_init(&s->secret, &s->env);
	rc = build_sender(s, &o, err);
	if (rc != 0)
		sl_event_http_sender_free(s);
	else
		*out = s;
	return rc;
}

void sl_event_http_sender_free(sl_event_http_sender *s)
{
	if (s == NULL)
		return;
	struct sl_env env = s->env;
	sl__http_free(s->client);
	sl__http_token_fini(&s->token);
	sl__http_url_fini(&s->publish);
	sl__http_url_fini(&s->base);
	if (s->cancel >= 0)
		(void)close(s->cancel);
	if (s->secret.data != NULL)
		explicit_bzero(s->secret.data, s->secret.len);
	sl__buf_fini(&s->secret);
	sl__buf_fini(&s->body);
	sl__free(&env, s->token_file);
	sl__free(&env, s->ca_file);
	sl__free(&env, s);
}
