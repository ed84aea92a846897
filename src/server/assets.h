/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dashboard's files, embedded by scripts/embed-web: each as it is and compressed. Names below /assets/ hold a hash
 * of the content and may be kept for ever; "/" is asked for again each time.
 *
 * Thread safety: constant data.
 */
#ifndef SLUICE_SERVER_ASSETS_H
#define SLUICE_SERVER_ASSETS_H

#include <stddef.h>

struct srv_asset {
	const char *path; /* "/", or "/assets/js/main.0123456789ab.js" */
	const char *type;
	const char *etag, *etag_gzip; /* with their quotes; of the two encodings, which are different bytes */
	const char *plain;
	size_t plain_len;
	const char *gzip;
	size_t gzip_len;
};

extern const struct srv_asset srv_assets[];
extern const size_t srv_n_assets;

/* By the whole path; NULL: not found. */
const struct srv_asset *srv_asset_find(const char *path);

#endif
