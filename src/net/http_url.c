/* SPDX-License-Identifier: Apache-2.0 */
/* URLs taken apart: what is sent, what is secret, what people see. libcurl reads them, so that both mean the same. */
#include <curl/curl.h>

#include "net/http.h"

#define MARK "?…" /* in `shown`, for a query that is left out */

static int bad_url(struct sl_err *err, const char *why)
{
	return sl_err_set(err, SL_EINVAL, "http: the URL is not good: %s", why);
}

/* A part in our own memory; *out stays NULL where the URL has none. */
static int take(CURLU *h, CURLUPart part, unsigned flags, const struct sl_env *env, char **out, struct sl_err *err)
{
	char *text = NULL;
	CURLUcode rc = curl_url_get(h, part, &text, flags);
	if (rc == CURLUE_NO_USER || rc == CURLUE_NO_PASSWORD || rc == CURLUE_NO_QUERY)
		return 0;
	if (rc == CURLUE_OUT_OF_MEMORY)
		return sl__no_memory(err, "http");
	if (rc != CURLUE_OK)
		return bad_url(err, curl_url_strerror(rc));
	*out = sl__strdup(env, text);
	curl_free(text);
	return *out != NULL ? 0 : sl__no_memory(err, "http");
}

static int drop(CURLU *h, CURLUPart part, struct sl_err *err)
{
	return curl_url_set(h, part, NULL, 0) == CURLUE_OK ? 0 : sl__no_memory(err, "http");
}

static int read_url(CURLU *h, const char *text, struct sl_err *err)
{
	char *scheme = NULL;
	CURLUcode rc = curl_url_set(h, CURLUPART_URL, text, 0);
	if (rc == CURLUE_OK)
		rc = curl_url_get(h, CURLUPART_SCHEME, &scheme, 0);
	if (rc != CURLUE_OK)
		return rc == CURLUE_OUT_OF_MEMORY ? sl__no_memory(err, "http") : bad_url(err, curl_url_strerror(rc));
	bool ours = strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0;
	curl_free(scheme);
	return ours ? 0 : bad_url(err, "it is neither http:// nor https://");
}

static int split(struct sl__http_url *u, CURLU *h, struct sl_err *err)
{
	char *query = NULL, *bare = NULL;
	int rc = take(h, CURLUPART_USER, CURLU_URLDECODE, u->env, &u->user, err);
	rc = rc != 0 ? rc : take(h, CURLUPART_PASSWORD, CURLU_URLDECODE, u->env, &u->password, err);
	rc = rc != 0 ? rc : take(h, CURLUPART_QUERY, 0, u->env, &query, err);
	rc = rc != 0 ? rc : drop(h, CURLUPART_USER, err);
	rc = rc != 0 ? rc : drop(h, CURLUPART_PASSWORD, err);
	rc = rc != 0 ? rc : drop(h, CURLUPART_FRAGMENT, err);
	rc = rc != 0 ? rc : take(h, CURLUPART_URL, 0, u->env, &u->url, err);
	rc = rc != 0 ? rc : drop(h, CURLUPART_QUERY, err);
	rc = rc != 0 ? rc : take(h, CURLUPART_URL, 0, u->env, &bare, err);
	if (rc == 0) {
		u->shown = sl__asprintf(u->env, "%s%s", bare, query != NULL ? MARK : "");
		rc = u->shown != NULL ? 0 : sl__no_memory(err, "http");
	}
	sl__free(u->env, query);
	sl__free(u->env, bare);
	return rc;
}

int sl__http_url_init(struct sl__http_url *u, const char *text, const struct sl_env *env, struct sl_err *err)
{
	*u = (struct sl__http_url){.env = env};
	/* What was shown to people lacks a part: to send to it would be to send elsewhere. */
	if (strstr(text, MARK) != NULL)
		return bad_url(err, "its query was left out (\"" MARK "\"); name the whole URL");
	CURLU *h = curl_url();
	if (h == NULL)
		return sl__no_memory(err, "http");
	int rc = read_url(h, text, err);
	rc = rc != 0 ? rc : split(u, h, err);
	curl_url_cleanup(h);
	if (rc != 0)
		sl__http_url_fini(u);
	return rc;
}

void sl__http_url_fini(struct sl__http_url *u)
{
	if (u->env == NULL)
		return;
	sl__free(u->env, u->url);
	sl__free(u->env, u->user);
	sl__free(u->env, u->password);
	sl__free(u->env, u->shown);
	*u = (struct sl__http_url){.env = NULL};
}
