/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice backup create: a snapshot of paths, or of Sluice's own data. Its id goes to standard output, everything else a
 * person may want to know to standard error, so that a script has the id by itself.
 */
#include "backuprepo.h"
#include "commands.h"
#include "configfile.h"
#include "opts.h"
#include "stop.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the paths ---- */

/*
 * What is backed up: the paths of the command line, and Sluice's own data: the data folder of a server with store, log,
 * archive, dead letters and audit log, and what its configuration has put elsewhere, the exports among it.
 */
enum { BACKUPDATA_OWN_MAX = 8 };

struct backupdata {
	const char **paths; /* n of them; those of the command line are borrowed */
	size_t n;
	char *own[BACKUPDATA_OWN_MAX]; /* absolute */
	size_t n_own;
	char *exclude; /* the repository, when it is inside of a path; or NULL */
};

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
	char *real = path != NULL ? realpath(path, NULL) : NULL;
	bool known = false;

	if (path != NULL && real == NULL && errno == ENOMEM)
		return cli_no_memory(cli);
	for (size_t i = 0; real != NULL && i < d->n_own; i++)
		known |= strcmp(d->own[i], real) == 0 || below(real, d->own[i]) != NULL;
	if (real == NULL || known || d->n_own == BACKUPDATA_OWN_MAX)
		free(real);
	else
		d->own[d->n_own++] = real;
	return 0;
}

/* The data folder of a server, and what its configuration has put elsewhere. */
static int find_own(struct backupdata *d, struct cli *cli, const struct parsed *args)
{
	const char *data = opt_str(args, "data");
	SL_CLEANUP(srv_config_fini) struct srv_config config = {0};
	SL_CLEANUP(srv_places_fini) struct srv_places places = {0};
	struct sl_err err = SL_ERR_INIT;
	const char *elsewhere[3];
	int rc = configfile_read(cli, opt_str(args, "config"), true, &config);

	if (rc != 0)
		return rc;
	if ((data != NULL && srv_config_set(&config, srv_setting_find("server", "data"), data, &err)) ||
	    srv_places_init(&places, &config, &err))
		return cli_fail(cli, &err, NULL);

	rc = add_own(d, cli, places.data);
	if (rc == 0 && d->n_own == 0) {
		cli_say(cli, SL_LOG_ERROR, "Sluice's data folder %.500s: %s; give --data=DIR, or the PATHs to back up",
			places.data, strerror(errno));
		return sl_err_exit_code(SL_ENOENT);
	}
	if (rc == 0 && strncmp(places.store_url, "sqlite:", 7) == 0)
		rc = add_own(d, cli, places.store_url + 7);
	else if (rc == 0)
		cli_say(cli, SL_LOG_WARN,
			"the store is a PostgreSQL database and is not in this backup; back it up with pg_dump");
	elsewhere[0] = places.wal_dir;
	elsewhere[1] = places.archive_dir;
	elsewhere[2] = config.export_events_dir;
	for (size_t i = 0; rc == 0 && i < SL_COUNT(elsewhere); i++)
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
		bool is_repo = real != NULL && (strcmp(real, repo) == 0 || below(real, repo) != NULL);

		inside |= real != NULL && below(repo, real) != NULL;
		free(real);
		if (is_repo) {
			cli_say(cli, SL_LOG_ERROR, "%.500s is the repository, or lies in it; give another PATH",
				d->paths[i]);
			return EXIT_USAGE_ERROR;
		}
	}
	if (!inside)
		return 0;
	d->exclude = calloc(2, strlen(repo) + 1);
	if (d->exclude == NULL)
		return cli_no_memory(cli);
	for (const char *p = repo; *p; p++) {
		if (strchr("*?[\\", *p) != NULL)
			d->exclude[n++] = '\\';
		d->exclude[n++] = *p;
	}
	return 0;
}

/* repo is left out when it lies in a path. 0, or an exit code after a line on stderr. */
static int backupdata_find(struct backupdata *d, struct cli *cli, const struct parsed *args, const char *repo)
{
	int given = args->n_operands, rc = 0;
	char *real;

	*d = (struct backupdata){.n = 0};
	if (!given || opt_given(args, "data") || opt_given(args, "config"))
		rc = find_own(d, cli, args);
	if (rc != 0)
		return rc;
	d->paths = calloc(d->n_own + (size_t)given, sizeof(*d->paths));
	if (d->paths == NULL)
		return cli_no_memory(cli);
	for (size_t i = 0; i < d->n_own; i++)
		d->paths[d->n++] = d->own[i];
	for (int i = 0; i < given; i++)
		d->paths[d->n++] = args->operands[i];
	real = realpath(repo, NULL);
	rc = real != NULL ? exclude_repo(d, cli, real) : 0;
	free(real);
	return rc;
}

/* ---- the snapshot ---- */

enum { PROBLEM_KINDS = SL_BACKUP_AS_FILE + 1 };

struct creating {
	struct cli *cli;
	const struct parsed *args;
	struct backuprepo repo;
	struct backupdata data;
	const char **excludes, **tags; /* of the command line, and the repository */
	size_t n_excludes, n_tags;
	uint64_t problems[PROBLEM_KINDS];
};

/* ---- files that need an eye ---- */

/* One at a time, on any thread. */
static void on_problem(enum sl_backup_problem problem, const char *path, const struct sl_err *err, void *ctx)
{
	struct creating *c = ctx;
	const char *why = err != NULL && err->msg[0] ? err->msg : NULL;
	enum sl_log_level level = SL_LOG_WARN;

	/* Counted by kind for the result, and reported as it happens. */
	if ((unsigned)problem < PROBLEM_KINDS)
		c->problems[problem]++;
	if (problem == SL_BACKUP_UNREADABLE || problem == SL_BACKUP_AS_FILE)
		level = SL_LOG_ERROR;
	if (problem == SL_BACKUP_SKIPPED) /* sockets belong to the process that listens: a backup does not need them */
		level = SL_LOG_INFO;
	cli_say(c->cli, level, "%s: %.900s%s%.256s", sl_backup_problem_name(problem), path, why != NULL ? ": " : "",
		why != NULL ? why : "");
}

/* Print the snapshot, and report what it does not have as it was. The exit code. */
static int report_created(struct creating *c, const struct sl_backup_created *r, double seconds)
{
	uint64_t unreadable = c->problems[SL_BACKUP_UNREADABLE], as_file = c->problems[SL_BACKUP_AS_FILE];
	char count[TEXT_COUNT_BYTES], all[TEXT_TIME_BYTES], fresh[TEXT_TIME_BYTES], stored[TEXT_TIME_BYTES];
	char text[400];
	json_t *j;

	if (opt_flag(c->args, "json")) {
		j = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f}", "snapshot",
			      r->id, "entries", text_number(r->entries), "files", text_number(r->files), "files_new",
			      text_number(r->files_new), "files_changed", text_number(r->files_changed),
			      "files_unchanged", text_number(r->files_unchanged), "bytes", text_number(r->bytes),
			      "read_bytes", text_number(r->read_bytes), "new_bytes", text_number(r->new_bytes),
			      "physical_bytes", text_number(r->physical_bytes), "new_blocks",
			      text_number(r->new_blocks), "known_blocks", text_number(r->known_blocks), "problems",
			      text_number(r->problems), "seconds", seconds);
		for (int i = SL_BACKUP_VANISHED; i <= SL_BACKUP_SKIPPED; i++)
			json_object_set_new(j, sl_backup_problem_name((enum sl_backup_problem)i),
					    text_number(c->problems[i]));
		json_object_set_new(j, sl_backup_problem_name(SL_BACKUP_AS_FILE), text_number(as_file));
		out_json_line(&c->cli->out, j);
	} else {
		out_printf(&c->cli->out, "%s\n", r->id);
		(void)out_flush(&c->cli->out);
	}
	if (!opt_flag(c->args, "json") && !c->cli->quiet) {
		(void)snprintf(text, sizeof(text),
			       "%s (%" PRIu64 " new, %" PRIu64
			       " changed), %s; %s new to the repository, %s written, in %.1f s",
			       text_count(count, r->files, "file"), r->files_new, r->files_changed,
			       text_bytes(all, r->bytes), text_bytes(fresh, r->new_bytes),
			       text_bytes(stored, r->physical_bytes), seconds);
		cli_line(c->cli, SL_LOG_INFO, text);
	}
	if (unreadable)
		cli_say(c->cli, SL_LOG_ERROR, "%s could not be read; the snapshot has everything else",
			text_count(count, unreadable, "file"));
	if (as_file)
		cli_say(c->cli, SL_LOG_ERROR,
			"%s %s in the snapshot as a plain file, perhaps in the middle of a change; run the backup "
			"again when no program has it open",
			text_count(count, as_file, "database"), as_file == 1 ? "is" : "are");
	return unreadable || as_file ? EXIT_BAD_DATA : EXIT_OK;
}

static int create_snapshot(struct creating *c)
{
	const struct parsed *a = c->args;
	struct sl_backup_create_opts opts = {
		SL_BACKUP_CREATE_OPTS_INIT,
		.paths = c->data.paths,
		.n_paths = c->data.n,
		.excludes = c->excludes,
		.n_excludes = c->n_excludes,
		.tags = c->tags,
		.n_tags = c->n_tags,
		.one_file_system = opt_flag(a, "one-file-system") ? SL_ON : SL_OFF,
		.sqlite = opt_flag(a, "no-sqlite") ? SL_OFF : SL_ON,
		.databases_first = c->data.n_own ? SL_ON : SL_OFF,
		.force = opt_flag(a, "force") ? SL_ON : SL_OFF,
		.host = opt_str(a, "host"),
		.on_problem = on_problem,
		.ctx = c,
	};
	struct sl_backup_created result = {.struct_size = sizeof(result)};
	struct sl_err err = SL_ERR_INIT;
	struct backupwatch watch;
	double seconds;
	int rc = backupwatch_start(&watch, c->cli, c->repo.backup);

	if (rc != 0)
		return rc;
	rc = sl_backup_create(c->repo.backup, &opts, &result, &err);
	seconds = backupwatch_stop(&watch);
	if (rc == SL_ECANCELLED && stop_requested()) {
		cli_say(c->cli, SL_LOG_ERROR,
			"interrupted; no snapshot was made. Run the same command again: it reuses what is stored");
		return EXIT_INTERRUPTED;
	}
	if (rc != 0)
		return cli_fail(c->cli, &err, NULL);
	return report_created(c, &result, seconds);
}

/* All values of an option that repeats, and one more; NULL without memory. */
static const char **values_of(const struct parsed *args, const char *option, const char *more, size_t *n)
{
	const char **list;

	*n = 0;
	/* Room for one more than were given. */
	while (opt_all(args, option, (int)*n) != NULL)
		++*n;
	list = calloc(*n + 1, sizeof(*list));
	for (size_t i = 0; list != NULL && i < *n; i++)
		list[i] = opt_all(args, option, (int)i);
	if (list != NULL && more != NULL)
		list[(*n)++] = more;
	return list;
}

static int backup_create_run(struct cli *cli, const struct parsed *args)
{
	struct creating c = {.cli = cli, .args = args};
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .threads = (int32_t)opt_num(args, "threads"),
				      .zstd_level = (int32_t)opt_num(args, "level")};
	int rc = backuprepo_find(&c.repo, cli, args);

	if (rc == 0)
		rc = backupdata_find(&c.data, cli, args, c.repo.path);
	/* Excludes and tags, the repository itself among the first. */
	if (rc == 0) {
		c.excludes = values_of(args, "exclude", c.data.exclude, &c.n_excludes);
		c.tags = values_of(args, "tag", NULL, &c.n_tags);
		if (c.excludes == NULL || c.tags == NULL)
			rc = cli_no_memory(cli);
	}
	for (size_t i = 0; rc == 0 && i < c.n_tags; i++) {
		if (!*c.tags[i])
			rc = cli_usage(cli, "--tag: the tag is empty");
	}
	for (int i = 0; rc == 0 && opt_all(args, "exclude", i) != NULL; i++) {
		if (!*opt_all(args, "exclude", i))
			rc = cli_usage(cli, "--exclude: the pattern is empty");
	}
	if (rc == 0)
		rc = backuprepo_open(&c.repo, cli, args, &opts);
	if (rc == 0)
		rc = create_snapshot(&c);
	backuprepo_close(&c.repo);
	for (size_t i = 0; i < c.data.n_own; i++)
		free(c.data.own[i]);
	free(c.data.paths);
	free(c.data.exclude);
	free(c.excludes);
	free(c.tags);
	return rc;
}

static const struct opt backup_create_opts[] = {
	BACKUP_OPTS_REPO,
	OPT_TEXT("data", 'd', "DIR",
		 "Back up this data folder of Sluice, in addition to any PATH (default without a PATH: ~/.sluice)"),
	OPT_TEXT("config", 'c', "FILE",
		 "YAML settings of its server, to back up what they place outside the data folder too"),
	{.name = "exclude",
	 .letter = 'x',
	 .kind = OPT_STRING,
	 .arg = "PATTERN",
	 .repeat = true,
	 .help = "Leave out everything with this name and all below it; a pattern with a slash matches the path. *, ? "
		 "and […] as in a shell, ** also across slashes"},
	{.name = "tag",
	 .letter = 't',
	 .kind = OPT_STRING,
	 .arg = "TAG",
	 .repeat = true,
	 .help = "Tag the snapshot, to find it later"},
	OPT_TEXT("host", 0, "NAME", "Host name of the snapshot (default: this machine's)"),
	{.name = "one-file-system", .kind = OPT_FLAG, .help = "Skip folders on other file systems"},
	{.name = "force", .letter = 'f', .kind = OPT_FLAG, .help = "Read every file, also those that look unchanged"},
	{.name = "no-sqlite",
	 .kind = OPT_FLAG,
	 .help = "Copy SQLite databases as plain files, not as consistent snapshots"},
	{.name = "level",
	 .letter = 'l',
	 .kind = OPT_INT,
	 .arg = "N",
	 .min = 1,
	 .max = 19,
	 .help = "Compression level of zstd (default: a mode between levels 2 and 3 in size, faster than both)"},
	BACKUP_OPT_THREADS,
	OPT_JSON("Print the snapshot's id and all counts as one JSON object"),
	{.name = NULL},
};

const struct command cmd_backup_create = {
	.name = "backup create",
	.operands = "PATH…",
	.optional = 1,
	.summary = "back up files and folders, or Sluice's own data",
	.opts = backup_create_opts,
	.description = "Prints the id of the new snapshot once it is durable. Without a PATH, Sluice's own data folder "
		       "is backed up: its databases first, each as a consistent snapshot, then logs and files, so that "
		       "the copy fits together. Only blocks that the repository does not have are stored. Files that "
		       "did not change since the last snapshot of the same host and paths are not read. A file that "
		       "cannot be read is reported on stderr and left out of the snapshot, and the status is 65. A "
		       "SQLite database that SQLite cannot copy is reported the same way, and kept as a plain file "
		       "with its journals. The files being backed up are never written to. An interrupted backup makes "
		       "no snapshot; the next run reuses what it stored. A repository inside a PATH is left out.",
	.example = "sluice backup create --repo ./repo\n"
		   "sluice backup create /etc /home --repo /mnt/disk/backups --exclude '*.tmp' --exclude '**/.cache' "
		   "--tag daily",
	.run = backup_create_run,
};
