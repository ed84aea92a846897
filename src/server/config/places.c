/* SPDX-License-Identifier: Apache-2.0 */
/* The folders and files of a server, from what was configured and from the data folder for what was not. */
#include "server/config/config.h"

#include <sluice/jobs.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* value, or <prefix><folder>/<name>. */
static char *configured_or_below(const char *value, const char *prefix, const char *folder, const char *name)
{
	char *out = NULL;
	if (value != NULL)
		return strdup(value);
	return asprintf(&out, "%s%s/%s", prefix, folder, name) < 0 ? NULL : out;
}

/* What commands on this machine give as --store to reach the same store, in *out, in new memory; NULL where it is
 * their default, or its URL holds a password, which must not be shown. */
static int show_store(const char *url, const char *home, char **out)
{
	static const char sqlite[] = "sqlite:", secret[] = "password=";
	*out = NULL;
	if (strncmp(url, sqlite, strlen(sqlite)) != 0) {
		const char *at = strchr(url, '@'), *user = strstr(url, "://");
		bool has_password =
			user != NULL && at != NULL && memchr(user + 3, ':', (size_t)(at - user - 3)) != NULL;
		if (has_password || strstr(url, secret) != NULL)
			return 0;
		*out = strdup(url);
		return *out != NULL ? 0 : SL_ENOMEM;
	}
	/* The same file for a shell in any folder. */
	const char *file = url + strlen(sqlite);
	char *folder = file[0] != '/' && strncmp(file, "~/", 2) != 0 ? getcwd(NULL, 0) : NULL;
	int n = folder != NULL ? asprintf(out, "%s%s/%s", sqlite, folder, file) : asprintf(out, "%s", url);
	free(folder);
	if (n < 0) {
		*out = NULL;
		return SL_ENOMEM;
	}
	const char *usual = sl_store_default_url();
	size_t len = home != NULL ? strlen(home) : 0;
	bool below_home = len > 0 && strncmp(*out + strlen(sqlite), home, len) == 0 &&
			  strcmp(*out + strlen(sqlite) + len, usual + strlen(sqlite) + 1) == 0;
	if (strcmp(*out, usual) == 0 || below_home) {
		free(*out);
		*out = NULL;
	}
	return 0;
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
	if (p->store_url == NULL || p->wal_dir == NULL || p->archive_dir == NULL || p->dlq_dir == NULL ||
	    show_store(p->store_url, home, &p->shown_store) != 0)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	return 0;
}

void srv_places_fini(struct srv_places *p)
{
	free(p->data);
	free(p->store_url);
	free(p->shown_store);
	free(p->wal_dir);
	free(p->archive_dir);
	free(p->dlq_dir);
	memset(p, 0, sizeof(*p));
}
