/* SPDX-License-Identifier: Apache-2.0 */
/* The folders and files of a server, from what was configured and from the data folder for what was not. */
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* value, or <prefix><folder>/<name>. */
static char *place(const char *value, const char *prefix, const char *folder, const char *name)
{
	char *out = NULL;

	if (value)
		return strdup(value);
	return asprintf(&out, "%s%s/%s", prefix, folder, name) < 0 ? NULL : out;
}

/* A leading ~/ is the home folder. */
static char *data_folder(const char *configured)
{
	const char *home = getenv("HOME");
	const char *rest = configured ? configured : "~/.sluice";
	char *out = NULL;

	if (strncmp(rest, "~/", 2) != 0)
		return strdup(rest);
	if (!home || !*home)
		return NULL;
	return asprintf(&out, "%s/%s", home, rest + 2) < 0 ? NULL : out;
}

int srv_places_init(struct srv_places *p, const struct srv_config *config, struct sl_err *err)
{
	memset(p, 0, sizeof(*p));
	p->data = data_folder(config->server_data);
	if (!p->data)
		return sl_err_set(err, SL_ECONFIG, "HOME is not set; give --data=DIR");
	p->store_url = place(config->store_url, "sqlite:", p->data, "sluice.db");
	p->wal_dir = place(config->wal_wal_dir, "", p->data, "wal");
	p->archive_dir = place(config->wal_archive_dir, "", p->data, "archive");
	p->dlq_dir = place(NULL, "", p->data, "dead");
	if (!p->store_url || !p->wal_dir || !p->archive_dir || !p->dlq_dir)
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
