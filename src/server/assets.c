/* SPDX-License-Identifier: Apache-2.0 */
/* Serving the dashboard: "/" for every page of it (the page's own code reads the path), and the files it names. */
#include "server/assets.h"

#include "server/core.h"
#include "server/http/net_text.h"

#include <string.h>

const struct srv_asset *srv_asset_find(const char *path)
{
	for (size_t i = 0; i < srv_n_assets; i++) {
		if (strcmp(srv_assets[i].path, path) == 0)
			return &srv_assets[i];
	}
	return NULL;
}

static void serve(srv_request *r, const struct srv_asset *a, const char *caching, int status)
{
	const char *etag = status == 0 ? a->etag : NULL, *etag_gzip = status == 0 ? a->etag_gzip : NULL;
	srv_set_header(r, "Cache-Control", caching);
	srv_set_header(r, "Vary", "Accept-Encoding");
	const char *accepts = srv_header(r, "Accept-Encoding");
	if (accepts != NULL && srv_accepts_coding(accepts, "gzip"))
		srv_static(r, &(struct srv_content){a->type, a->gzip, a->gzip_len, "gzip", etag_gzip, status});
	else
		srv_static(r, &(struct srv_content){a->type, a->plain, a->plain_len, NULL, etag, status});
}

static void page(srv_request *r, void *ctx)
{
	(void)ctx;
	serve(r, srv_asset_find("/"), "no-cache", 0);
}

/* The dashboard says itself that there is no such page. */
static void unknown_page(srv_request *r, void *ctx)
{
	(void)ctx;
	serve(r, srv_asset_find("/"), "no-store", 404);
}

static void asset(srv_request *r, void *ctx)
{
	const struct srv_asset *a = srv_asset_find(srv_path(r));

	(void)ctx;
	if (a != NULL)
		serve(r, a, "public, max-age=31536000, immutable", 0);
	else
		srv_error(r, 404, "not_found", "no such file");
}

#define PAGE(path)                                                                                                     \
	{                                                                                                              \
		"GET", path, SRV_PUBLIC, SRV_QUICK, page, NULL                                                         \
	}

/* Public: the log-in page is one of them, and none of them holds data. */
static const struct srv_route routes[] = {
	PAGE("/"),
	PAGE("/login"),
	PAGE("/jobs"),
	PAGE("/jobs/{id}"),
	PAGE("/chains/{id}"),
	PAGE("/failures"),
	PAGE("/types"),
	PAGE("/workers"),
	PAGE("/cron"),
	PAGE("/pipeline"),
	PAGE("/exports"),
	PAGE("/exports/{dataset}"),
	PAGE("/backups"),
	PAGE("/dead-letters"),
	PAGE("/dead-letters/{id}"),
	PAGE("/audit"),
	{"GET", SRV_UNKNOWN_PAGE, SRV_PUBLIC, SRV_QUICK, unknown_page, NULL},
	{"GET", "/assets/{path*}", SRV_PUBLIC, SRV_QUICK, asset, NULL},
};

int srv_assets_add(srv_http *h, struct sl_err *err)
{
	return srv_http_add(h, routes, SL_COUNT(routes), NULL, err);
}
