/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP sink: a batch is one POST, and its answer's status decides (http_answer.c).
 *
 *   lane: items into a body ─▶ POST with Idempotency-Key ─▶ 401? token and headers read again, once more ─▶ answer
 *
 * Invariants
 *  1. Whenever a batch is sent again, it has the same Idempotency-Key (its id) and the same bytes.
 *  2. No message and no target shows the user information or the query of the URL, a header's value or the token.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "sink/http.h"

#define TIMEOUT_MS 30000
#define CONNECT_TIMEOUT_MS 10000
#define TIMEOUT_MAX_MS ((int64_t)INT32_MAX)
#define KEY_BYTES 64

struct http_sink {
	struct sl_env env;
	struct sl_sink_opts opts;
	struct sl__http_url url;
	struct sl__http_headers headers;
	struct sl__http_token token;
	struct sl__http_times times;
	int cancel; /* an eventfd: readable for ever once cancelled */
};

struct lane {
	struct sl__http *client;
	struct sl__http_body body;
	struct sl__buf token;
	const char **headers; /* of the options, of `list`, and two that the sink sets at the end */
	size_t n_headers;     /* without our own */
	struct sl__http_header_list *list;
	char key[KEY_BYTES];
};

/* ---- lanes ---- */

static void http_detach(void *ctx, void *lane)
{
	struct http_sink *s = ctx;
	struct lane *l = lane;
	sl__http_free(l->client);
	sl__http_body_fini(&l->body);
	sl__buf_fini(&l->token);
	sl__http_headers_put(&s->headers, l->list);
	sl__free(&s->env, l->headers);
	sl__free(&s->env, l);
}

static int make_client(struct http_sink *s, struct sl__http **out, struct sl_err *err)
{
	const struct sl__http_opts opts = {.env = &s->env,
					   .url = &s->url,
					   .ca_file = s->opts.ca_file,
					   .timeout_ms = s->opts.timeout_ms,
					   .connect_timeout_ms = s->opts.connect_timeout_ms,
					   .cancel_fd = s->cancel};
	return sl__http_new(out, &opts, err);
}

/* One request, with the token and the headers of the file as they are now. */
static int post_once(struct http_sink *s, struct lane *l, struct sl__http_response *r, uint64_t *token_version,
		     struct sl_err *err)
{
	if (sl__http_token_get(&s->token, &l->token, token_version) != 0)
		return sl__no_memory(err, "http");
	sl__http_headers_put(&s->headers, l->list);
	l->list = sl__http_headers_get(&s->headers);
	static const char *const content_types[] = {
		[SL_HTTP_JSON_LINES] = "Content-Type: application/x-ndjson",
		[SL_HTTP_JSON_ARRAY] = "Content-Type: application/json",
		[SL_HTTP_CLOUD_EVENTS] = "Content-Type: application/cloudevents-batch+json; charset=UTF-8",
	};
	size_t n = s->opts.n_headers;
	for (size_t i = 0; l->list != NULL && i < l->list->n; i++)
		l->headers[n++] = l->list->lines[i];
	l->n_headers = n;
	l->headers[n] = content_types[s->opts.body];
	l->headers[n + 1] = l->key;
	const struct sl__http_request request = {.headers = l->headers,
						 .n_headers = l->n_headers + 2,
						 .token = l->token.len > 0 ? l->token.data : NULL,
						 .body = l->body.text.data,
						 .len = l->body.text.len};
	return sl__http_post(l->client, &request, r, err);
}

static int http_attach(void *ctx, void **lane, struct sl_err *err)
{
	struct http_sink *s = ctx;
	struct lane *l = sl__calloc(&s->env, 1, sizeof(*l));
	if (l == NULL)
		return sl__no_memory(err, "http");
	sl__buf_init(&l->token, &s->env);
	int rc = sl__http_body_init(&l->body, &s->env, &s->opts, err);
	if (rc == 0) {
		size_t most = s->opts.n_headers + (s->opts.header_file != NULL ? SL__HTTP_FILE_HEADERS : 0) + 2;
		l->headers = sl__calloc(&s->env, most, sizeof(*l->headers));
		for (size_t i = 0; l->headers != NULL && i < s->opts.n_headers; i++)
			l->headers[i] = s->opts.headers[i];
		rc = l->headers == NULL ? sl__no_memory(err, "http") : make_client(s, &l->client, err);
	}
	if (rc != 0)
		http_detach(s, l);
	else
		*lane = l;
	return rc;
}

/* ---- a batch ---- */

/* What keeps a request from being answered is the target's, or the way to it, unless we ourselves are short of
 * something. */
static int classify_unanswered(int rc, struct sl_err *err)
{
	bool ours = rc == SL_ENOMEM || rc == SL_ECANCELLED;
	return sl__sink_class(err, rc, ours ? SL_CLASS_TRANSIENT : SL_CLASS_FATAL);
}

static int http_write_batch(void *ctx, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			    struct sl_err *err)
{
	struct http_sink *s = ctx;
	struct lane *l = lane;
	struct sl__refusals refused = SL__REFUSALS_INIT;
	struct sl_err own;
	err = err != NULL ? err : &own;
	int64_t ms = sl__http_times_get(&s->times, batch, sl__real_ms(&s->env));
	int rc = sl__http_body_fill(&l->body, batch, ms, &refused, err);
	if (rc != 0)
		return rc;
	int n = snprintf(l->key, sizeof(l->key), "Idempotency-Key: ");
	*sl__hex(l->key + n, batch->id, sizeof(batch->id)) = '\0';
	if (l->body.n > 0) {
		struct sl__http_response r;
		uint64_t token_version;
		rc = post_once(s, l, &r, &token_version, err);
		if (rc == 0 && r.status == 401) {
			/* What the request carried was not accepted. Is there something else by now? */
			bool other_token = sl__http_token_refresh(&s->token, token_version);
			if (sl__http_headers_refresh(&s->headers, l->list) || other_token)
				rc = post_once(s, l, &r, &token_version, err);
		}
		const struct sl__http_secrets secrets = {.url = &s->url,
							 .headers = l->headers,
							 .n_headers = l->n_headers,
							 .token = l->token.len > 0 ? l->token.data : NULL};
		struct sl__http_answer_to to = {.batch = batch, .refused = &refused, .reply = reply};
		if (rc != 0)
			rc = classify_unanswered(rc, err);
		else
			rc = sl__http_answer(&r, &secrets, &to, err);
	}
	if (rc == 0)
		return sl__refusals_reply(&refused, SL_MIN(refused.stop, batch->n), reply, 0, err);
	if (s->opts.body == SL_HTTP_CLOUD_EVENTS)
		sl__http_times_keep(&s->times, batch, ms);
	return rc;
}

static void http_cancel(void *ctx)
{
	struct http_sink *s = ctx;
	uint64_t one = 1;
	(void)!write(s->cancel, &one, sizeof(one));
}

/* A connection, with TLS: what can be known without sending anything. */
static int http_check(void *ctx, struct sl_err *err)
{
	struct http_sink *s = ctx;
	struct sl__http *client;
	int rc = make_client(s, &client, err);
	if (rc != 0)
		return rc;
	rc = sl__http_connect(client, err);
	sl__http_free(client);
	if (rc == SL_ETIMEDOUT) { /* nothing was asked that could have taken long */
		rc = SL_EUNAVAIL;
		if (err != NULL)
			err->code = rc;
	}
	if (rc != 0)
		return classify_unanswered(rc, err);
	return 0;
}

/* ---- the handle ---- */

static const char *http_target(void *ctx)
{
	return ((struct http_sink *)ctx)->url.shown;
}

static void http_close(void *ctx)
{
	struct http_sink *s = ctx;
	struct sl_env env = s->env;
	if (s->cancel >= 0)
		(void)close(s->cancel);
	sl__mutex_fini(&s->times.mu);
	sl__http_token_fini(&s->token);
	sl__http_headers_fini(&s->headers);
	sl__http_url_fini(&s->url);
	sl__sink_free_opts(&s->opts, &env);
	sl__free(&env, s);
}

static const struct sl_sink_ops http_ops = {.version = SL_SINK_VERSION,
					    .name = "http",
					    .attach = http_attach,
					    .detach = http_detach,
					    .write = http_write_batch,
					    .check = http_check,
					    .cancel = http_cancel,
					    .close = http_close,
					    .target = http_target};

static int build_http_sink(struct http_sink *s, const char *url, const struct sl_sink_opts *opts, struct sl_err *err)
{
	struct sl_sink_opts *o = &s->opts;
	int rc = sl__sink_copy_opts(o, opts, &s->env, err);
	if (rc == 0)
		rc = sl__http_url_init(&s->url, url, &s->env, err);
	if (rc != 0)
		return rc;
	bool has_user = s->url.user != NULL || s->url.password != NULL;
	const char *const names[] = {"event_type", "event_source"}, *const values[] = {o->event_type, o->event_source};
	if (o->format == SL_ROWS_CSV && o->n_columns == 0)
		return sl_err_set(err, SL_EINVAL, "http: columns: missing; CSV records need names for their fields");
	if (o->token_file != NULL && has_user)
		return sl_err_set(err, SL_EINVAL,
				  "http: token_file: the URL already has a user or a password; give one of them");
	for (size_t i = 0; i < SL_COUNT(names); i++) {
		if (values[i] != NULL && o->body != SL_HTTP_CLOUD_EVENTS)
			return sl_err_set(err, SL_EINVAL, "http: %s needs body=cloudevents", names[i]);
		if (values[i] != NULL && values[i][0] == '\0')
			return sl_err_set(err, SL_EINVAL, "http: %s must not be empty", names[i]);
	}
	if (o->ca_file != NULL) {
		int fd = SL__IO(&s->env, open, o->ca_file, O_RDONLY, 0);
		if (fd < 0)
			return sl_err_set_errno(err, -fd, "http: ca_file %s", o->ca_file);
		sl__close_fd(&s->env, &fd);
	}
	/* Defaults. */
	o->timeout_ms = o->timeout_ms != 0 ? SL_MIN(o->timeout_ms, TIMEOUT_MAX_MS) : TIMEOUT_MS;
	if (o->connect_timeout_ms == 0)
		o->connect_timeout_ms = CONNECT_TIMEOUT_MS;
	o->connect_timeout_ms = SL_MIN(o->connect_timeout_ms, o->timeout_ms);
	if (o->event_type == NULL)
		o->event_type = sl__strdup(&s->env, "sluice.item");
	if (o->event_source == NULL)
		o->event_source = sl__strdup(&s->env, "sluice");
	if (o->event_type == NULL || o->event_source == NULL)
		return sl__no_memory(err, "http");
	/* Headers and token. */
	rc = sl__http_headers_init(&s->headers, &s->env, o, o->token_file != NULL || has_user, err);
	if (rc == 0)
		rc = sl__http_token_init(&s->token, &s->env, o->token_file, err);
	if (rc != 0)
		return rc;
	s->cancel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return s->cancel >= 0 ? 0 : sl_err_set_errno(err, errno, "http: eventfd");
}

int sl_sink_http_open(sl_sink *out, const char *url, const struct sl_sink_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	if (url == NULL)
		return sl_err_set(err, SL_EINVAL, "http: missing URL");
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS | SL__SINK_HTTP, "http", &env, err);
	if (rc != 0)
		return rc;
	struct http_sink *s = sl__calloc(&env, 1, sizeof(*s));
	if (s == NULL)
		return sl__no_memory(err, "http");
	s->env = env;
	s->cancel = -1;
	sl__mutex_init(&s->times.mu);
	rc = build_http_sink(s, url, opts, err);
	if (rc != 0)
		http_close(s);
	else
		*out = (sl_sink){.ops = &http_ops, .ctx = s};
	return rc;
}
