/* SPDX-License-Identifier: Apache-2.0 */
/* The folders and files of a server, from what was configured and from the data folder for what was not. */
#include "server/config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* value, or <prefix><folder>/<name>. */
static char *configured_or_below(const char *value, const char *prefix, const char *folder, const char *name)
{
	char *out = NULL;
	if (value != NULL)
		return strdup(value);
	return asprintf(&out, "%s%s/%s", prefix, folder, name) < 0 ? NULL : out;
}

int srv_places_init(struct srv_places *p, const struct srv_config *config, struct sl_err *err)
{
	const char *home = getenv("HOME"), *data = config->server_data != NULL ? config->server_data : "~/.sluice";
	memset(p, 0, sizeof(*p));
	/* A leading ~/ is the home folder. */
	if (strncmp(data, "~/", 2) != 0)
		p->data = strdup(data);
	else if (home != NULL && *home && asprintf(&p->data, "%s/%s", home, data + 2) < 0)
		p->data = NULL;
	if (p->data == NULL)
		return sl_err_set(err, SL_ECONFIG, "HOME is not set; give --data=DIR");
	p->store_url = configured_or_below(config->store_url, "sqlite:", p->data, "sluice.db");
	p->wal_dir = configured_or_below(config->wal_wal_dir, "", p->data, "wal");
	p->archive_dir = configured_or_below(config->wal_archive_dir, "", p->data, "archive");
	p->dlq_dir = configured_or_below(NULL, "", p->data, "dead");
	if (p->store_url == NULL || p->wal_dir == NULL || p->archive_dir == NULL || p->dlq_dir == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	return 0;
}

void srv_places_fini(struct srv_places *p)
{
	free(p->data);
	free(p->store_url);
	free(p->wal_dir);
	free(p->archive_dir);
	free(p->dlq_dir);
	memset(p, 0, sizeof(*p));
}
