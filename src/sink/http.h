/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the HTTP sink: the body of a request, the headers that go with it, and what an answer means.
 *
 * Thread safety: a body belongs to one lane; the headers and the times are shared by all lanes and lock themselves.
 * Ownership: each part owns its memory until its fini and borrows env and opts.
 */
#ifndef SL_SINK_HTTP_H
#define SL_SINK_HTTP_H

#include "base/buf.h"
#include "base/thread.h"
#include "format/row.h"
#include "net/http.h"
#include "sink/refusal.h"
#include "sink/sink.h"

/* ---- the body ---- */

struct sl__http_body {
	const struct sl_env *env;
	const struct sl_sink_opts *opts;
	struct sl__row_reader *reader; /* NULL: items are JSON already */
	struct sl__field *fields;
	struct sl__buf text;
	size_t n; /* items in it */
};

SL_MUST_CHECK int sl__http_body_init(struct sl__http_body *b, const struct sl_env *env, const struct sl_sink_opts *opts,
				     struct sl_err *err);
void sl__http_body_fini(struct sl__http_body *b); /* a zeroed one is allowed */
/* Make text of the items up to refused->stop. An item that is no record goes to `refused`. The same items, id and time
 * give the same bytes. */
SL_MUST_CHECK int sl__http_body_fill(struct sl__http_body *b, const struct sl_sink_batch *batch, int64_t time_ms,
				     struct sl__refusals *refused, struct sl_err *err);

/* ---- when batches were first sent ---- */

/* An idempotency key stands for one body: the time in it must be the same when the batch is sent again. Batches that
 * failed are remembered here, the last SL__HTTP_TIMES of them: more than wait for a retry at any moment. */
#define SL__HTTP_TIMES 1024
struct sl__http_times {
	sl__mutex mu;
	struct {
		uint8_t id[16];
		int64_t ms;
	} at[SL__HTTP_TIMES];
	size_t next;
};
int64_t sl__http_times_get(struct sl__http_times *t, const struct sl_sink_batch *batch, int64_t now_ms);
void sl__http_times_keep(struct sl__http_times *t, const struct sl_sink_batch *batch, int64_t ms);

/* ---- the user's headers ---- */

/* What a file has of them; never changed. */
#define SL__HTTP_FILE_HEADERS 256
struct sl__http_header_list {
	unsigned refs; /* under the mutex of the headers */
	size_t n, bytes;
	const char *lines[SL__HTTP_FILE_HEADERS]; /* in text */
	char text[];
};

struct sl__http_headers {
	const struct sl_env *env;
	const struct sl_sink_opts *opts; /* headers, header_file */
	bool authorized;                 /* Authorization is set without the file */
	sl__mutex mu;
	struct sl__http_header_list *list; /* of the file; NULL: no file */
};

/* authorized: the token or the URL sets Authorization. SL_EINVAL for headers of the options; of the file SL_ENOENT,
 * SL_EACCES …, SL_ECONFIG with the line. */
SL_MUST_CHECK int sl__http_headers_init(struct sl__http_headers *h, const struct sl_env *env,
					const struct sl_sink_opts *opts, bool authorized, struct sl_err *err);
void sl__http_headers_fini(struct sl__http_headers *h); /* a zeroed one is allowed; no list may be in use */
/* Those of the file as they are now; NULL without a file. Returned with put, NULL too. */
struct sl__http_header_list *sl__http_headers_get(struct sl__http_headers *h);
void sl__http_headers_put(struct sl__http_headers *h, struct sl__http_header_list *list);
/* These were not good. Does the file have others by now? One that is not good as a whole leaves the old ones. */
SL_MUST_CHECK bool sl__http_headers_refresh(struct sl__http_headers *h, const struct sl__http_header_list *used);

/* ---- the answer ---- */

/* What must not be shown, in any answer that repeats it. */
struct sl__http_secrets {
	const struct sl__http_url *url;
	const char *const *headers; /* their values */
	size_t n_headers;
	const char *token; /* NULL: none */
};

/* What the answer is to. */
struct sl__http_answer_to {
	const struct sl_sink_batch *batch;
	const struct sl__refusals *refused; /* the item that the body lacks */
	struct sl_sink_reply *reply;        /* filled where the answer names items */
};

/* What the answer means: 0 for 2xx, else err and, where the answer names items, the reply. r->body is changed. */
SL_MUST_CHECK int sl__http_answer(struct sl__http_response *r, const struct sl__http_secrets *secrets,
				  const struct sl__http_answer_to *to, struct sl_err *err);

#endif
