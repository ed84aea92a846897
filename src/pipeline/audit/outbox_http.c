/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events to an endpoint: a POST of JSON lines, in order, one request at a time. Any 2xx accepts the whole batch; the
 * mark follows. Everything else is tried again, for ever: no event is ever skipped, and the backlog can be seen in
 * the catalog. A batch whose answer was lost is sent again; receivers know events by their ids.
 */
#include "net/http.h"
#include "pipeline/audit/outbox.h"

#define BATCH_BYTES (256 << 10)

struct http_lane {
	struct sl__http_url url;
	struct sl__http_token token;
	struct sl__http *client; /* made for the first batch */
	struct sl__buf body, secret;
	bool known; /* delivered is */
	uint64_t delivered;
};

static int post_batch_once(struct sl__lane *lane, struct sl__http_response *r, uint64_t *version, struct sl_err *err)
{
	static const char *const headers[] = {"Content-Type: application/x-ndjson"};
	struct http_lane *h = lane->target;
	if (sl__http_token_get(&h->token, &h->secret, version) != 0)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a request");
	const struct sl__http_request request = {.headers = headers,
						 .n_headers = SL_COUNT(headers),
						 .token = h->secret.len > 0 ? h->secret.data : NULL,
						 .body = h->body.data,
						 .len = h->body.len};
	return sl__http_post(h->client, &request, r, err);
}

static int post_batch(struct sl__lane *lane, bool *more, struct sl_err *err)
{
	struct http_lane *h = lane->target;
	struct sl_outbox *o = lane->outbox;
	const struct sl__http_opts opts = {.env = &o->env,
					   .url = &h->url,
					   .ca_file = o->opts.ca_file,
					   .timeout_ms = o->opts.timeout_ms,
					   .connect_timeout_ms = SL_MIN(o->opts.timeout_ms, 10000),
					   .cancel_fd = o->cancel_fd};
	struct sl__http_response r;
	uint64_t version; /* of the token */
	struct sl__outbox_batch batch = {.lines = &h->body, .max_bytes = BATCH_BYTES, .last = h->delivered};
	int rc = sl__outbox_read(o, &batch, err);
	*more = rc == 0 && h->body.len > 0;
	if (!*more)
		return rc;
	if (h->client == NULL && (rc = sl__http_new(&h->client, &opts, err)) != 0)
		return rc;
	rc = post_batch_once(lane, &r, &version, err);
	if (rc == 0 && r.status == 401 && sl__http_token_refresh(&h->token, version))
		rc = post_batch_once(lane, &r, &version, err);
	if (rc != 0)
		return rc;
	if (r.status < 200 || r.status > 299) {
		char line[120];
		(void)sl__http_first_line(line, sizeof(line), r.body, r.len);
		rc = sl_err_set(err, SL_EUNAVAIL, "%s answered %d%s%s", h->url.shown, r.status,
				line[0] != '\0' ? ": " : "", line);
		if (err != NULL && r.has_retry_after)
			err->retry_after_ms = r.retry_after_ms;
		return rc;
	}
	h->delivered = batch.last;
	return sl__catalog_mark(o->catalog, o->lease, true, batch.last, err);
}

static int http_deliver(struct sl__lane *lane, struct sl_err *err)
{
	struct http_lane *h = lane->target;
	bool more = true;
	int rc = h->known ? 0 : sl__outbox_delivered(lane->outbox, true, &h->delivered, err);
	h->known = rc == 0;
	while (rc == 0 && more && !sl__outbox_stopping(lane->outbox))
		rc = post_batch(lane, &more, err);
	return rc;
}

static void close_http_lane(struct sl__lane *lane)
{
	struct http_lane *h = lane->target;
	sl__http_free(h->client);
	sl__http_token_fini(&h->token);
	sl__http_url_fini(&h->url);
	sl__buf_fini(&h->body);
	sl__buf_fini(&h->secret);
	sl__free(&lane->outbox->env, h);
}

static const struct sl__lane_ops ops = {
	.name = "the endpoint", .endpoint = true, .deliver = http_deliver, .close = close_http_lane};

int sl__lane_http_open(struct sl__lane *lane, struct sl_err *err)
{
	struct sl_outbox *o = lane->outbox;
	struct http_lane *h = sl__calloc(&o->env, 1, sizeof(*h));
	if (h == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for an outbox");
	sl__buf_init(&h->body, &o->env);
	sl__buf_init(&h->secret, &o->env);
	lane->target = h;
	lane->ops = &ops;
	int rc = sl__http_url_init(&h->url, o->opts.endpoint, &o->env, err);
	if (rc != 0)
		return rc;
	return sl__http_token_init(&h->token, &o->env, o->opts.token_file, err);
}
