/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small HTTP client over libcurl: one request at a time on a connection that is kept, and an answer with what matters
 * of it.
 *
 * Guarantees: certificates and host names are checked, always; redirects are not followed; only http and https; no
 * signal is raised or needed. A request ends within its timeout, and at once when the cancel descriptor is readable,
 * also while a name is looked up or nothing comes back. No message shows the user, the password or the query of a URL.
 * Not guaranteed: that a request was not carried out when it failed. libcurl itself sends once more when a kept
 * connection turns out to be closed before anything of an answer came. Proxies are taken from the environment
 * (http_proxy, https_proxy, no_proxy) as libcurl does. libcurl's own memory is not the environment's.
 *
 * Thread safety: a client belongs to one thread at a time; the cancel descriptor is written to by any.
 * Ownership: a client owns its copies of the options' strings; a response belongs to the client until its next request.
 */
#ifndef SL_NET_HTTP_H
#define SL_NET_HTTP_H

#include "base/buf.h"
#include "base/thread.h"

#define SL__HTTP_BODY_MAX 65536 /* of an answer; what is behind is not read */

/* ---- URLs ---- */

struct sl__http_url {
	const struct sl_env *env;
	char *url;             /* without user, password and fragment */
	char *user, *password; /* decoded; NULL: none */
	char *shown;           /* for people: without the query as well, but for a mark "?…" that there was one */
};

/* SL_EINVAL says what is wrong without showing the URL. */
SL_MUST_CHECK int sl__http_url_init(struct sl__http_url *u, const char *text, const struct sl_env *env,
				    struct sl_err *err);
void sl__http_url_fini(struct sl__http_url *u); /* a zeroed one is allowed */

/* ---- requests ---- */

struct sl__http_opts {
	const struct sl_env *env;
	const struct sl__http_url *url; /* borrowed: outlives the client */
	const char *ca_file;            /* PEM, instead of the system's; NULL: the system's */
	int64_t timeout_ms;             /* of a request, all in all */
	int64_t connect_timeout_ms;     /* of name, connection and TLS together */
	int cancel_fd;                  /* readable (an eventfd): requests end with SL_ECANCELLED; -1: none */
};

struct sl__http;
SL_MUST_CHECK int sl__http_new(struct sl__http **out, const struct sl__http_opts *opts, struct sl_err *err);
void sl__http_free(struct sl__http *c); /* NULL is allowed */

struct sl__http_request {
	const char *const *headers; /* "Name: value" */
	size_t n_headers;
	const char *token; /* "Authorization: Bearer …"; NULL: none */
	const void *body;
	size_t len;
};

struct sl__http_response {
	int status;
	bool has_retry_after;
	int64_t retry_after_ms; /* from seconds, or from a date and the answer's own Date; at least 0 */
	const char *type;       /* Content-Type; NULL: none */
	const char *location;   /* where a redirect leads, as for people (sl__http_url.shown); NULL: nowhere */
	char *body;             /* the first SL__HTTP_BODY_MAX bytes, followed by a NUL; may be changed */
	size_t len;
};

/* POST. 0: an answer came, whatever its status. SL_ETIMEDOUT, SL_ECANCELLED, SL_ENOMEM; SL_ECONFIG: the certificate or
 * the CA file is not good; SL_EUNAVAIL: no connection, or no whole answer. */
SL_MUST_CHECK int sl__http_post(struct sl__http *c, const struct sl__http_request *request,
				struct sl__http_response *response, struct sl_err *err);
/* GET; the request's body is not sent. Errors as of post. */
SL_MUST_CHECK int sl__http_get(struct sl__http *c, const struct sl__http_request *request,
			       struct sl__http_response *response, struct sl_err *err);
/* Connect, with TLS, and send nothing. Errors as of post. */
SL_MUST_CHECK int sl__http_connect(struct sl__http *c, struct sl_err *err);

/* ---- a bearer token, most often in a file that another program renews ---- */

/* Locks itself: any thread. */
struct sl__http_token {
	const struct sl_env *env;
	const char *path; /* NULL: no file, or its text was set */
	sl__mutex mu;
	char *text;
	uint64_t version; /* of text */
};

/* SL_ENOENT, SL_EACCES …; SL_ECONFIG: the file holds no token. */
SL_MUST_CHECK int sl__http_token_init(struct sl__http_token *t, const struct sl_env *env, const char *path,
				      struct sl_err *err);
/* The token itself, for one without a path, before any get. SL_EINVAL: no text that a header can carry. */
SL_MUST_CHECK int sl__http_token_set(struct sl__http_token *t, const char *text, struct sl_err *err);
void sl__http_token_fini(struct sl__http_token *t); /* a zeroed one is allowed */
/* A copy in out; *version is for refresh. */
SL_MUST_CHECK int sl__http_token_get(struct sl__http_token *t, struct sl__buf *out, uint64_t *version);
/* The one of this version was not good. Is there another one by now? A file that cannot be read leaves the old one. */
SL_MUST_CHECK bool sl__http_token_refresh(struct sl__http_token *t, uint64_t version);

/* ---- text that came from elsewhere ---- */

/* The first line of text that is not empty, as printable UTF-8 in out[cap]: control characters as blanks, other bytes
 * as '?'. Returns its length. */
size_t sl__http_first_line(char *out, size_t cap, const char *text, size_t len);
/* When does this header (seconds or a date) say to come back, from `now_ms` on? false: it cannot be read. */
SL_MUST_CHECK bool sl__http_retry_after(const char *value, int64_t now_ms, int64_t *out_ms);

#endif
