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

static int no_memory(struct cli *cli)
{
	cli_say(cli, SL_LOG_ERROR, "out of memory");
	return EXIT_INTERNAL;
}

/* The rest of path behind folder and a slash, or NULL when it is not in it. Both are absolute. */
static const char *below(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	if (n == 1)
		return path + 1;
	return strncmp(path, folder, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

/* ---- Sluice's own ---- */

static int has(const struct backupdata *d, const char *path)
{
	for (size_t i = 0; i < d->n_own; i++) {
		if (strcmp(d->own[i], path) == 0 || below(path, d->own[i]))
			return 1;
	}
	return 0;
}

/* What is not there yet, or lies in what is taken already, needs no word. */
static int add_own(struct backupdata *d, struct cli *cli, const char *path)
{
	char *real = path ? realpath(path, NULL) : NULL;

	if (path && !real && errno == ENOMEM)
		return no_memory(cli);
	if (!real || has(d, real) || d->n_own == BACKUPDATA_OWN_MAX)
		free(real);
	else
		d->own[d->n_own++] = real;
	return 0;
}

static int add_places(struct backupdata *d, struct cli *cli, const struct srv_places *p, const struct srv_config *c)
{
	int rc = add_own(d, cli, p->data);

	if (!rc && d->n_own == 0) {
		cli_say(cli, SL_LOG_ERROR, "Sluice's data folder %.500s: %s; name what is to be backed up", p->data,
			strerror(errno));
		return sl_err_exit_code(SL_ENOENT);
	}
	if (!rc && strncmp(p->store_url, "sqlite:", 7) == 0)
		rc = add_own(d, cli, p->store_url + 7);
	else if (!rc)
		cli_say(cli, SL_LOG_WARN, "the store is PostgreSQL's and not in this backup: use pg_dump for it");
	rc = rc ? rc : add_own(d, cli, p->wal_dir);
	rc = rc ? rc : add_own(d, cli, p->archive_dir);
	return rc ? rc : add_own(d, cli, c->export_events_dir);
}

static int read_settings(struct cli *cli, const struct parsed *args, struct srv_config *config)
{
	const char *file = opt_str(args, "config"), *data = opt_str(args, "data");
	struct serving_problems problems = {.cli = cli, .path = file};
	struct sl_err err = SL_ERR_INIT;

	if (srv_config_init(config, &err))
		return cli_fail(cli, &err, NULL);
	if (file && srv_config_file(config, file, serving_problem, &problems, &err))
		return problems.n ? sl_err_exit_code(SL_ECONFIG) : cli_fail(cli, &err, file);
	if (srv_config_environment(config, environ, &err) ||
	    (data && srv_config_set(config, srv_setting_find("server", "data"), data, &err)))
		return cli_fail(cli, &err, NULL);
	return 0;
}

static int find_own(struct backupdata *d, struct cli *cli, const struct parsed *args)
{
	struct srv_config config = {0};
	struct srv_places places = {0};
	struct sl_err err = SL_ERR_INIT;
	int rc = read_settings(cli, args, &config);

	if (!rc && srv_places_init(&places, &config, &err))
		rc = cli_fail(cli, &err, NULL);
	rc = rc ? rc : add_places(d, cli, &places, &config);
	srv_places_fini(&places);
	srv_config_fini(&config);
	return rc;
}

/* ---- the repository itself ---- */

/* path as a pattern that matches only itself. */
static char *pattern_of(const char *path)
{
	char *out = malloc(2 * strlen(path) + 1);
	size_t n = 0;

	for (const char *p = path; out && *p; p++) {
		if (strchr("*?[\\", *p))
			out[n++] = '\\';
		out[n++] = *p;
	}
	if (out)
		out[n] = '\0';
	return out;
}

/* 1: the repository is inside of path, 0: it is not, -1: it is path itself, or path is inside of it. */
static int holds(const char *path, const char *repo)
{
	char *real = realpath(path, NULL);
	int rc = real && below(repo, real) ? 1 : 0;

	if (real && (strcmp(real, repo) == 0 || below(real, repo)))
		rc = -1;
	free(real);
	return rc;
}

/* A backup that takes in its own repository would grow with every run. The walk knows folders by their real names. */
static int leave_out_real(struct backupdata *d, struct cli *cli, const char *repo)
{
	int inside = 0;

	for (size_t i = 0; i < d->n; i++) {
		int held = holds(d->paths[i], repo);

		if (held < 0) {
			cli_say(cli, SL_LOG_ERROR, "%.500s is the repository itself, or lies in the repository",
				d->paths[i]);
			return EXIT_USAGE_ERROR;
		}
		inside |= held;
	}
	if (inside)
		d->exclude = pattern_of(repo);
	return inside && !d->exclude ? no_memory(cli) : 0;
}

static int leave_out(struct backupdata *d, struct cli *cli, const char *repo)
{
	char *real = realpath(repo, NULL);
	int rc = real ? leave_out_real(d, cli, real) : 0;

	free(real);
	return rc;
}

int backupdata_find(struct backupdata *d, struct cli *cli, const struct parsed *args, const char *repo)
{
	int given = args->n_operands, rc = 0;

	*d = (struct backupdata){.n = 0};
	if (!given || opt_given(args, "data") || opt_given(args, "config"))
		rc = find_own(d, cli, args);
	if (rc)
		return rc;
	d->paths = calloc(d->n_own + (size_t)given, sizeof(*d->paths));
	if (!d->paths)
		return no_memory(cli);
	for (size_t i = 0; i < d->n_own; i++)
		d->paths[d->n++] = d->own[i];
	for (int i = 0; i < given; i++)
		d->paths[d->n++] = args->operands[i];
	return leave_out(d, cli, repo);
}

void backupdata_fini(struct backupdata *d)
{
	for (size_t i = 0; i < d->n_own; i++)
		free(d->own[i]);
	free(d->paths);
	free(d->exclude);
}
