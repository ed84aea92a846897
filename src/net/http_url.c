/* SPDX-License-Identifier: Apache-2.0 */
/* URLs taken apart: what is sent, what is secret, what people see. libcurl reads them, so that both mean the same. */
#include <curl/curl.h>

#include "net/http.h"

#define MARK "?…" /* in `shown`, for a query that is left out */

static int bad_url(struct sl_err *err, const char *why)
{
	return sl_err_set(err, SL_EINVAL, "http: invalid URL: %s", why);
}

/* A part in our own memory; *out stays NULL where the URL has none. */
static int take_part(const struct sl_env *env, CURLU *h, CURLUPart part, char **out, struct sl_err *err)
{
	char *text = NULL;
	bool decode = part == CURLUPART_USER || part == CURLUPART_PASSWORD;
	CURLUcode rc = curl_url_get(h, part, &text, decode ? CURLU_URLDECODE : 0);
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

static int split_url(struct sl__http_url *u, CURLU *h, struct sl_err *err)
{
	char *query = NULL, *bare = NULL;
	/* Take a part, and remove the parts that are not sent, or not shown, before the next. */
	const struct {
		CURLUPart part;
		char **out; /* NULL: only remove it */
		bool remove;
	} steps[] = {
		{CURLUPART_USER, &u->user, true}, {CURLUPART_PASSWORD, &u->password, true},
		{CURLUPART_FRAGMENT, NULL, true}, {CURLUPART_QUERY, &query, false},
		{CURLUPART_URL, &u->url, false},  {CURLUPART_QUERY, NULL, true},
		{CURLUPART_URL, &bare, false},
	};
	int rc = 0;
	for (size_t i = 0; i < SL_COUNT(steps) && rc == 0; i++) {
		if (steps[i].out != NULL)
			rc = take_part(u->env, h, steps[i].part, steps[i].out, err);
		if (rc == 0 && steps[i].remove && curl_url_set(h, steps[i].part, NULL, 0) != CURLUE_OK)
			rc = sl__no_memory(err, "http");
	}
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
		return bad_url(err, "its query was left out (\"" MARK "\"); give the whole URL");
	CURLU *h = curl_url();
	if (h == NULL)
		return sl__no_memory(err, "http");
	char *scheme = NULL;
	CURLUcode parsed = curl_url_set(h, CURLUPART_URL, text, 0);
	if (parsed == CURLUE_OK)
		parsed = curl_url_get(h, CURLUPART_SCHEME, &scheme, 0);
	int rc;
	if (parsed == CURLUE_OUT_OF_MEMORY)
		rc = sl__no_memory(err, "http");
	else if (parsed != CURLUE_OK)
		rc = bad_url(err, curl_url_strerror(parsed));
	else if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)
		rc = bad_url(err, "must begin with http:// or https://");
	else
		rc = split_url(u, h, err);
	curl_free(scheme);
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
