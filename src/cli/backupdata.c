/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of a backup: those of the command line, and the data of a server. */
#include "backupdata.h"

#include "server/server.h"
#include "serving.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The rest of path behind folder and a slash, or NULL when it is not in it. Both are absolute. */
static const char *below(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	if (n == 1)
		return path + 1;
	return strncmp(path, folder, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

/* Does nothing for what is not there yet, or is in a folder that was added already. */
static int add_own(struct backupdata *d, struct cli *cli, const char *path)
{
	char *real = path ? realpath(path, NULL) : NULL;
	bool known = false;

	if (path && !real && errno == ENOMEM)
		return cli_no_memory(cli);
	for (size_t i = 0; real && i < d->n_own; i++)
		known |= strcmp(d->own[i], real) == 0 || below(real, d->own[i]);
	if (!real || known || d->n_own == BACKUPDATA_OWN_MAX)
		free(real);
	else
		d->own[d->n_own++] = real;
	return 0;
}

/* The data folder of a server, and what its configuration has put elsewhere. */
static int find_own(struct backupdata *d, struct cli *cli, const struct parsed *args)
{
	const char *file = opt_str(args, "config"), *data = opt_str(args, "data");
	struct serving_problems problems = {.cli = cli, .path = file};
	SL_CLEANUP(srv_config_fini) struct srv_config config = {0};
	SL_CLEANUP(srv_places_fini) struct srv_places places = {0};
	struct sl_err err = SL_ERR_INIT;
	const char *elsewhere[3];
	int rc;

	if (srv_config_init(&config, &err))
		return cli_fail(cli, &err, NULL);
	if (file && srv_config_file(&config, file, serving_problem, &problems, &err))
		return problems.n ? sl_err_exit_code(SL_ECONFIG) : cli_fail(cli, &err, file);
	if (srv_config_environment(&config, environ, &err) ||
	    (data && srv_config_set(&config, srv_setting_find("server", "data"), data, &err)) ||
	    srv_places_init(&places, &config, &err))
		return cli_fail(cli, &err, NULL);

	rc = add_own(d, cli, places.data);
	if (!rc && d->n_own == 0) {
		cli_say(cli, SL_LOG_ERROR, "Sluice's data folder %.500s: %s; name what is to be backed up", places.data,
			strerror(errno));
		return sl_err_exit_code(SL_ENOENT);
	}
	if (!rc && strncmp(places.store_url, "sqlite:", 7) == 0)
		rc = add_own(d, cli, places.store_url + 7);
	else if (!rc)
		cli_say(cli, SL_LOG_WARN, "the store is PostgreSQL's and not in this backup: use pg_dump for it");
	elsewhere[0] = places.wal_dir;
	elsewhere[1] = places.archive_dir;
	elsewhere[2] = config.export_events_dir;
	for (size_t i = 0; !rc && i < SL_COUNT(elsewhere); i++)
		rc = add_own(d, cli, elsewhere[i]);
	return rc;
}

/* A backup that contains its own repository would grow with every run: exclude it, as a pattern that matches only
 * itself. The walk knows folders by their real names. repo is one. */
static int exclude_repo(struct backupdata *d, struct cli *cli, const char *repo)
{
	bool inside = false;
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++) {
		char *real = realpath(d->paths[i], NULL);
		bool is_repo = real && (strcmp(real, repo) == 0 || below(real, repo));

		inside |= real && below(repo, real);
		free(real);
		if (is_repo) {
			cli_say(cli, SL_LOG_ERROR, "%.500s is the repository itself, or lies in the repository",
				d->paths[i]);
			return EXIT_USAGE_ERROR;
		}
	}
	if (!inside)
		return 0;
	d->exclude = calloc(2, strlen(repo) + 1);
	if (!d->exclude)
		return cli_no_memory(cli);
	for (const char *p = repo; *p; p++) {
		if (strchr("*?[\\", *p))
			d->exclude[n++] = '\\';
		d->exclude[n++] = *p;
	}
	return 0;
}

int backupdata_find(struct backupdata *d, struct cli *cli, const struct parsed *args, const char *repo)
{
	int given = args->n_operands, rc = 0;
	char *real;

	*d = (struct backupdata){.n = 0};
	if (!given || opt_given(args, "data") || opt_given(args, "config"))
		rc = find_own(d, cli, args);
	if (rc)
		return rc;
	d->paths = calloc(d->n_own + (size_t)given, sizeof(*d->paths));
	if (!d->paths)
		return cli_no_memory(cli);
	for (size_t i = 0; i < d->n_own; i++)
		d->paths[d->n++] = d->own[i];
	for (int i = 0; i < given; i++)
		d->paths[d->n++] = args->operands[i];
	real = realpath(repo, NULL);
	rc = real ? exclude_repo(d, cli, real) : 0;
	free(real);
	return rc;
}

void backupdata_fini(struct backupdata *d)
{
	for (size_t i = 0; i < d->n_own; i++)
		free(d->own[i]);
	free(d->paths);
	free(d->exclude);
}
