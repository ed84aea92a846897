/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client: an easy handle that keeps its connection, driven through its own multi handle, because only that can
 * wait for something besides the transfer: the descriptor that cancels.
 */
#include <curl/curl.h>
#include <poll.h>
#include <pthread.h>

#include "base/buf.h"
#include "net/http.h"
#include <sluice/version.h>

#define POLL_MS 1000     /* a turn of the wait; curl's own times shorten it */
#define FIRST_BYTES 4096 /* of an answer there is memory for before the request goes out */
#define EXPECT_MS 250    /* how long a large body waits for "100 Continue" */
#define KEEP_ALIVE_S 30L /* of idle connections, probes */
#define LINE_BYTES CURL_ERROR_SIZE

struct sl__http {
	const struct sl_env *env;
	const struct sl__http_url *url;
	CURLM *multi;
	CURL *easy;
	int cancel_fd;
	struct sl__buf body;
	bool cut; /* there was more in the body than is kept */
	char *location;
	char why[CURL_ERROR_SIZE];
};

/* ---- once per process ---- */

static CURLcode curl_started;

/* Never undone: other code in the process may use it as well. */
static void start_curl(void)
{
	curl_started = curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* ---- the body of an answer ---- */

/* Keeps what there is room for. Lack of memory cuts the text and nothing else: the request was carried out. */
static size_t take_body(char *data, size_t size, size_t n, void *ctx)
{
	struct sl__http *c = ctx;
	size_t bytes = size * n, room = SL__HTTP_BODY_MAX - c->body.len;
	if (sl__buf_append(&c->body, data, SL_MIN(bytes, room)) != 0 || bytes > room) {
		c->cut = true;
		return 0;
	}
	return bytes;
}

/* ---- a client ---- */

static int option_failed(CURLcode rc, struct sl_err *err)
{
	if (rc == CURLE_OUT_OF_MEMORY)
		return sl__no_memory(err, "http");
	return sl_err_set(err, SL_EUNSUPPORTED, "http: libcurl: %s", curl_easy_strerror(rc));
}

static int set_options(struct sl__http *c, const struct sl__http_opts *o, struct sl_err *err)
{
	static const struct {
		CURLoption option;
		long value;
	} fixed[] = {
		{CURLOPT_NOSIGNAL, 1},
		{CURLOPT_FOLLOWLOCATION, 0},
		{CURLOPT_SSL_VERIFYPEER, 1},
		{CURLOPT_SSL_VERIFYHOST, 2},
		{CURLOPT_EXPECT_100_TIMEOUT_MS, EXPECT_MS},
		{CURLOPT_TCP_KEEPALIVE, 1},
		{CURLOPT_TCP_KEEPIDLE, KEEP_ALIVE_S},
		{CURLOPT_TCP_KEEPINTVL, KEEP_ALIVE_S},
		{CURLOPT_QUICK_EXIT, 1}, /* a name look-up that hangs does not outlast its request */
	};
	const struct sl__http_url *url = c->url;
	const struct {
		CURLoption option;
		const char *value;
	} texts[] = {
		{CURLOPT_PROTOCOLS_STR, "http,https"},
		{CURLOPT_URL, url->url},
		{CURLOPT_USERAGENT, "sluice/" SL_VERSION},
		{CURLOPT_USERNAME, url->user == NULL && url->password != NULL ? "" : url->user},
		{CURLOPT_PASSWORD, url->password},
		{CURLOPT_CAINFO, o->ca_file},
	};
	CURLcode rc;

	/* The same for every client: certificates and host names are always checked, redirects are not followed. */
	for (size_t i = 0; i < SL_COUNT(fixed); i++) {
		rc = curl_easy_setopt(c->easy, fixed[i].option, fixed[i].value);
		if (rc != CURLE_OK)
			return option_failed(rc, err);
	}
	for (size_t i = 0; i < SL_COUNT(texts); i++) {
		rc = texts[i].value != NULL ? curl_easy_setopt(c->easy, texts[i].option, texts[i].value) : CURLE_OK;
		if (rc != CURLE_OK)
			return option_failed(rc, err);
	}
	/* A CA file is used instead of the system's folder, not in addition to it. */
	if (o->ca_file != NULL && (rc = curl_easy_setopt(c->easy, CURLOPT_CAPATH, NULL)) != CURLE_OK)
		return option_failed(rc, err);
	if ((rc = curl_easy_setopt(c->easy, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC)) != CURLE_OK ||
	    (rc = curl_easy_setopt(c->easy, CURLOPT_TIMEOUT_MS, (long)o->timeout_ms)) != CURLE_OK ||
	    (rc = curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)o->connect_timeout_ms)) != CURLE_OK ||
	    (rc = curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->why)) != CURLE_OK ||
	    (rc = curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, take_body)) != CURLE_OK ||
	    (rc = curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c)) != CURLE_OK)
		return option_failed(rc, err);
	return 0;
}

int sl__http_new(struct sl__http **out, const struct sl__http_opts *opts, struct sl_err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	(void)pthread_once(&once, start_curl);
	if (curl_started != CURLE_OK)
		return sl_err_set(err, SL_EINTERNAL, "http: libcurl failed to start");
	struct sl__http *c = sl__calloc(opts->env, 1, sizeof(*c));
	if (c == NULL)
		return sl__no_memory(err, "http");
	c->env = opts->env;
	c->url = opts->url;
	c->cancel_fd = opts->cancel_fd;
	sl__buf_init(&c->body, c->env);
	c->easy = curl_easy_init();
	c->multi = curl_multi_init();
	int rc = c->easy != NULL && c->multi != NULL ? set_options(c, opts, err) : sl__no_memory(err, "http");
	if (rc != 0) {
		sl__http_free(c);
		return rc;
	}
	*out = c;
	return 0;
}

void sl__http_free(struct sl__http *c)
{
	if (c == NULL)
		return;
	curl_easy_cleanup(c->easy);
	if (c->multi != NULL)
		(void)curl_multi_cleanup(c->multi);
	sl__buf_fini(&c->body);
	sl__free(c->env, c->location);
	sl__free(c->env, c);
}

/* ---- a transfer ---- */

static int check_cancelled(const struct sl__http *c, struct sl_err *err)
{
	struct pollfd p = {.fd = c->cancel_fd, .events = POLLIN};
	if (c->cancel_fd < 0 || poll(&p, 1, 0) <= 0)
		return 0;
	return sl_err_set(err, SL_ECANCELLED, "http: %s: the request was cancelled", c->url->shown);
}

static int multi_failed(CURLMcode rc, struct sl_err *err)
{
	if (rc == CURLM_OUT_OF_MEMORY)
		return sl__no_memory(err, "http");
	return sl_err_set(err, SL_EINTERNAL, "http: libcurl: %s", curl_multi_strerror(rc));
}

/* Run the transfer until it has ended or is cancelled; *result is how it ended. */
static int await_transfer(struct sl__http *c, CURLcode *result, struct sl_err *err)
{
	struct curl_waitfd also = {.fd = c->cancel_fd, .events = CURL_WAIT_POLLIN};
	for (int running = 1;;) {
		CURLMcode rc = curl_multi_perform(c->multi, &running);
		if (rc == CURLM_OK && running == 0)
			break;
		if (rc == CURLM_OK)
			rc = curl_multi_poll(c->multi, &also, c->cancel_fd >= 0 ? 1 : 0, POLL_MS, NULL);
		if (rc != CURLM_OK)
			return multi_failed(rc, err);
		int cancelled = check_cancelled(c, err);
		if (cancelled != 0)
			return cancelled;
	}
	*result = CURLE_RECV_ERROR;
	int left;
	for (CURLMsg *m; (m = curl_multi_info_read(c->multi, &left)) != NULL;)
		if (m->msg == CURLMSG_DONE) {
			*result = m->data.result;
			break;
		}
	return 0;
}

static int transfer_failed(const struct sl__http *c, CURLcode result, struct sl_err *err)
{
	const char *what;
	int code = SL_EUNAVAIL;
	switch (result) {
	case CURLE_OUT_OF_MEMORY:
		return sl__no_memory(err, "http");
	case CURLE_OPERATION_TIMEDOUT:
		code = SL_ETIMEDOUT;
		what = "no answer in time";
		break;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_INVALIDCERTSTATUS:
		code = SL_ECONFIG;
		what = "its certificate is not trusted";
		break;
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_WEIRD_SERVER_REPLY:
	case CURLE_BAD_CONTENT_ENCODING:
		what = "the answer is not HTTP";
		break;
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_GOT_NOTHING:
	case CURLE_PARTIAL_FILE:
	case CURLE_HTTP2:
	case CURLE_HTTP2_STREAM:
		what = "the connection was lost";
		break;
	default:
		what = c->why[0] != '\0' ? "unavailable" : curl_easy_strerror(result);
	}
	char line[LINE_BYTES];
	(void)sl__http_first_line(line, sizeof(line), c->why, strlen(c->why));
	return sl_err_set(err, code, "http: %s: %s%s%s", c->url->shown, what, line[0] != '\0' ? ": " : "", line);
}

static int run_transfer(struct sl__http *c, struct sl_err *err)
{
	CURLcode result = CURLE_OK;
	int rc = check_cancelled(c, err);
	if (rc != 0)
		return rc;
	sl__buf_clear(&c->body);
	sl__free(c->env, c->location);
	c->location = NULL;
	c->cut = false;
	c->why[0] = '\0';
	if (sl__buf_reserve(&c->body, FIRST_BYTES) != 0)
		return sl__no_memory(err, "http");
	CURLMcode added = curl_multi_add_handle(c->multi, c->easy);
	if (added != CURLM_OK)
		return multi_failed(added, err);
	rc = await_transfer(c, &result, err);
	(void)curl_multi_remove_handle(c->multi, c->easy);
	if (rc != 0)
		return rc;
	bool answered = result == CURLE_OK || (result == CURLE_WRITE_ERROR && c->cut);
	return answered ? 0 : transfer_failed(c, result, err);
}

/* ---- the answer ---- */

static const char *answer_header(const struct sl__http *c, const char *name)
{
	struct curl_header *h = NULL;
	return curl_easy_header(c->easy, name, 0, CURLH_HEADER, -1, &h) == CURLHE_OK ? h->value : NULL;
}

static void read_answer(struct sl__http *c, struct sl__http_response *r)
{
	long status = 0;
	(void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	/* Where a redirect leads, without its secrets. */
	char *text = NULL;
	struct sl__http_url to;
	if (status >= 300 && status < 400 && curl_easy_getinfo(c->easy, CURLINFO_REDIRECT_URL, &text) == CURLE_OK &&
	    text != NULL && sl__http_url_init(&to, text, c->env, NULL) == 0) {
		c->location = sl__strdup(c->env, to.shown);
		sl__http_url_fini(&to);
	}
	*r = (struct sl__http_response){
		.status = (int)status, .location = c->location, .body = c->body.data, .len = c->body.len};
	r->type = answer_header(c, "Content-Type");
	/* The other machine's clock counts for a date that it gives. */
	const char *wait = answer_header(c, "Retry-After"), *date = answer_header(c, "Date");
	time_t when = date != NULL ? curl_getdate(date, NULL) : -1;
	int64_t answered_ms = when >= 0 && when <= INT64_MAX / 1000 ? (int64_t)when * 1000 : sl__real_ms(c->env);
	r->has_retry_after = wait != NULL && sl__http_retry_after(wait, answered_ms, &r->retry_after_ms);
}

/* ---- requests ---- */

static struct curl_slist *make_headers(const struct sl__http *c, const struct sl__http_request *q)
{
	struct curl_slist *list = NULL, *more;
	char *token = q->token != NULL ? sl__asprintf(c->env, "Authorization: Bearer %s", q->token) : NULL;
	size_t n = q->n_headers + (q->token != NULL);
	for (size_t i = 0; i < n; i++) {
		const char *line = i < q->n_headers ? q->headers[i] : token;
		more = line != NULL ? curl_slist_append(list, line) : NULL;
		if (more == NULL) {
			curl_slist_free_all(list);
			list = NULL;
			break;
		}
		list = more;
	}
	sl__free(c->env, token);
	return list;
}

static int exchange(struct sl__http *c, const struct sl__http_request *request, bool is_post,
		    struct sl__http_response *response, struct sl_err *err)
{
	struct curl_slist *headers = make_headers(c, request);
	bool needs_headers = request->n_headers > 0 || request->token != NULL;
	CURLcode set = needs_headers && headers == NULL ? CURLE_OUT_OF_MEMORY
							: curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, headers);
	if (set == CURLE_OK)
		set = curl_easy_setopt(c->easy, is_post ? CURLOPT_POST : CURLOPT_HTTPGET, 1L);
	if (set == CURLE_OK && is_post)
		set = curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->len);
	if (set == CURLE_OK && is_post)
		set = curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, request->len > 0 ? request->body : "");
	int rc = set == CURLE_OK ? run_transfer(c, err) : sl__no_memory(err, "http");
	if (rc == 0)
		read_answer(c, response);
	/* What was borrowed for the request goes out of the handle with it. */
	(void)curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, NULL);
	(void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, NULL);
	curl_slist_free_all(headers);
	return rc;
}

int sl__http_post(struct sl__http *c, const struct sl__http_request *request, struct sl__http_response *response,
		  struct sl_err *err)
{
	return exchange(c, request, true, response, err);
}

int sl__http_get(struct sl__http *c, const struct sl__http_request *request, struct sl__http_response *response,
		 struct sl_err *err)
{
	return exchange(c, request, false, response, err);
}

int sl__http_connect(struct sl__http *c, struct sl_err *err)
{
	if (curl_easy_setopt(c->easy, CURLOPT_CONNECT_ONLY, 1L) != CURLE_OK)
		return sl__no_memory(err, "http");
	int rc = run_transfer(c, err);
	(void)curl_easy_setopt(c->easy, CURLOPT_CONNECT_ONLY, 0L);
	return rc;
}
