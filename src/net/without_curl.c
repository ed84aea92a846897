/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP client of a build without libcurl (-Dcurl=disabled): no URL can be used, so nothing else is ever called. */
#include "net/http.h"

static int refuse_http(struct sl_err *err)
{
	return sl_err_set(err, SL_EUNSUPPORTED, "this build of Sluice has no HTTP client (-Dcurl=disabled)");
}

int sl__http_url_init(struct sl__http_url *u, SL_UNUSED const char *text, SL_UNUSED const struct sl_env *env,
		      struct sl_err *err)
{
	*u = (struct sl__http_url){0};
	return refuse_http(err);
}

void sl__http_url_fini(SL_UNUSED struct sl__http_url *u)
{
}

int sl__http_new(struct sl__http **out, SL_UNUSED const struct sl__http_opts *opts, struct sl_err *err)
{
	*out = NULL;
	return refuse_http(err);
}

void sl__http_free(SL_UNUSED struct sl__http *c)
{
}

int sl__http_post(SL_UNUSED struct sl__http *c, SL_UNUSED const struct sl__http_request *request,
		  SL_UNUSED struct sl__http_response *response, struct sl_err *err)
{
	return refuse_http(err);
}

int sl__http_get(SL_UNUSED struct sl__http *c, SL_UNUSED const struct sl__http_request *request,
		 SL_UNUSED struct sl__http_response *response, struct sl_err *err)
{
	return refuse_http(err);
}

int sl__http_connect(SL_UNUSED struct sl__http *c, struct sl_err *err)
{
	return refuse_http(err);
}

size_t sl__http_first_line(SL_UNUSED char *out, SL_UNUSED size_t cap, SL_UNUSED const char *text, SL_UNUSED size_t len)
{
	return 0;
}

bool sl__http_retry_after(SL_UNUSED const char *value, SL_UNUSED int64_t now_ms, SL_UNUSED int64_t *out_ms)
{
	return false;
}
