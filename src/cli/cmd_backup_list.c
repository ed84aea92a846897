/* SPDX-License-Identifier: Apache-2.0 */
/* sluice backup list, show, ls and cat: what is in a repository. Nothing is changed. */
#include "backuprepo.h"
#include "backupshow.h"
#include "commands.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct listing {
	struct cli *cli;
	const struct parsed *args;
	struct backuprepo repo;
	const char *id;      /* of show */
	char path[PATH_MAX]; /* of list: as snapshots have it; "": all */
	bool json;
	struct table table;
	int damaged;
	char end; /* after a name of ls */
};

/* ---- list ---- */

static int on_snapshot(const struct sl_backup_snapshot *s, void *ctx)
{
	struct listing *l = ctx;
	const char *host = opt_str(l->args, "host"), *tag = opt_str(l->args, "tag");
	bool has_tag = tag == NULL, has_path = !l->path[0];

	/* The filters of --host, --tag and --path: all of them must match. */
	for (size_t i = 0; i < s->n_tags; i++)
		has_tag |= tag != NULL && strcmp(s->tags[i], tag) == 0;
	for (size_t i = 0; i < s->n_paths; i++)
		has_path |= strcmp(s->paths[i], l->path) == 0;
	if ((host != NULL && strcmp(host, s->host) != 0) || !has_tag || !has_path)
		return 0;
	if (l->json) {
		out_json_line(&l->cli->out, backupshow_json(s));
	} else {
		backupshow_row(&l->table, s);
	}
	return out_failed(&l->cli->out) ? 1 : cli_stopped(l->cli);
}

/* Of list: every one; of show: the one that is shown. */
static int on_damaged(const char *id, const struct sl_err *err, void *ctx)
{
	struct listing *l = ctx;

	if (l->id != NULL && strcmp(id, l->id) != 0)
		return 0;
	l->damaged++;
	cli_say(l->cli, SL_LOG_ERROR, "snapshot %s: %s", id, err->msg);
	return out_failed(&l->cli->out) ? 1 : cli_stopped(l->cli);
}

/* Walk over the snapshots. The exit code. */
static int list_snapshots(struct listing *l, sl_backup_snapshot_fn *on_each)
{
	struct sl_err err = SL_ERR_INIT;
	char count[TEXT_COUNT_BYTES];
	int rc = sl_backup_list(l->repo.backup, on_each, on_damaged, l, &err);

	if (rc == SL_ECANCELLED && stop_requested())
		return cli_interrupted(l->cli);
	if (rc < 0)
		return backuprepo_fail(&l->repo, &err);
	/* The others are listed all the same; the status shows that one is missing. */
	if (!l->damaged)
		return EXIT_OK;
	cli_say(l->cli, SL_LOG_ERROR, "%s cannot be read; 'sluice backup check' shows why",
		text_count(count, (uint64_t)l->damaged, "snapshot"));
	return EXIT_BAD_DATA;
}

static int backup_list_run(struct cli *cli, const struct parsed *args)
{
	struct listing l = {.cli = cli, .args = args, .json = opt_flag(args, "json")};
	int rc = opt_given(args, "path") ? backuprepo_stored_path(cli, opt_str(args, "path"), l.path) : 0;

	if (rc == 0)
		rc = backuprepo_open(&l.repo, cli, args, NULL);
	if (rc == 0) {
		backupshow_table(&l.table, &cli->out, false);
		rc = list_snapshots(&l, on_snapshot);
		table_end(&l.table);
	}
	backuprepo_close(&l.repo);
	return rc;
}

static const struct opt list_opts[] = {
	BACKUP_OPTS_REPO,
	OPT_TEXT("host", 0, "NAME", "List only snapshots of this host"),
	OPT_TEXT("tag", 't', "TAG", "List only snapshots with this tag"),
	OPT_TEXT("path", 0, "PATH", "List only snapshots of this path"),
	OPT_JSON("Print one JSON object per line"),
	{.name = NULL},
};

const struct command cmd_backup_list = {
	.name = "backup list",
	.operands = "",
	.summary = "list the snapshots of a repository",
	.opts = list_opts,
	.description = "Prints one line per snapshot, oldest first: the beginning of its id, which names it in other "
		       "commands, its time, host, files, their size, bytes written for it, paths and tags. A snapshot "
		       "that cannot be read is reported on stderr, and the status is 65.",
	.example = "sluice backup list --repo ./repo\nsluice backup list --json | jq -r .snapshot",
	.run = backup_list_run,
};

/* ---- show ---- */

static int on_one(const struct sl_backup_snapshot *s, void *ctx)
{
	struct listing *l = ctx;

	if (strcmp(s->id, l->id) != 0)
		return 0;
	if (l->json)
		out_json_line(&l->cli->out, backupshow_json(s));
	else
		backupshow_details(&l->cli->out, s);
	return 1;
}

static int backup_show_run(struct cli *cli, const struct parsed *args)
{
	struct listing l = {.cli = cli, .args = args, .json = opt_flag(args, "json")};
	char id[SL_BACKUP_ID_BYTES] = "";
	int rc = backuprepo_open(&l.repo, cli, args, NULL);

	l.id = id;
	/* The word may be a beginning or "latest"; the list is then searched for the id. */
	if (rc == 0)
		rc = backuprepo_snapshot(&l.repo, args->operands[0], id);
	if (rc == 0)
		rc = list_snapshots(&l, on_one);
	backuprepo_close(&l.repo);
	return rc;
}

static const struct opt show_opts[] = {
	BACKUP_OPTS_REPO,
	OPT_JSON("Print one JSON object"),
	{.name = NULL},
};

const struct command cmd_backup_show = {
	.name = "backup show",
	.operands = "SNAPSHOT",
	.summary = "show one snapshot in detail",
	.opts = show_opts,
	.description = "SNAPSHOT is an id, its beginning (at least 4 characters), or latest, the newest.",
	.example = "sluice backup show latest --repo ./repo\n"
		   "sluice backup show latest --repo ./repo --json",
	.run = backup_show_run,
};

/* ---- ls and cat ---- */

static int on_entry(const struct sl_backup_entry *e, void *ctx)
{
	struct listing *l = ctx;
	struct out *out = &l->cli->out;

	/* JSON, like ls -l, or names only: escaped for people, byte for byte with --null. */
	if (l->json) {
		out_json_line(out, backupshow_entry_json(e));
	} else if (opt_flag(l->args, "long")) {
		backupshow_entry(out, e);
	} else if (l->end) {
		text_name(out, e->path);
		out_write(out, &l->end, 1);
	} else {
		out_write(out, e->path, strlen(e->path) + 1);
	}
	return out_failed(out) ? 1 : cli_stopped(l->cli);
}

static int on_bytes(const void *bytes, size_t len, void *ctx)
{
	struct listing *l = ctx;

	out_write(&l->cli->out, bytes, len);
	return out_failed(&l->cli->out) ? 1 : cli_stopped(l->cli);
}

/* ls and cat: what the operands name in a snapshot. */
static int ls_cat_run(struct cli *cli, const struct parsed *args)
{
	const char *given = args->n_operands > 1 ? args->operands[1] : "";
	bool ls = args->command == &cmd_backup_ls;
	struct listing l = {.cli = cli, .args = args};
	char id[SL_BACKUP_ID_BYTES] = "", *path;
	struct sl_err err = SL_ERR_INIT;
	int rc;

	if (ls) {
		l.json = opt_flag(args, "json");
		l.end = opt_flag(args, "null") ? '\0' : '\n';
		if (l.json + opt_flag(args, "long") + opt_flag(args, "null") > 1)
			return cli_usage(cli, "--json, --long and --null exclude each other");
	}
	/* Paths in a snapshot have no slash before them and no dots; the copy is never longer. */
	path = malloc(strlen(given) + 1);
	rc = backuprepo_open(&l.repo, cli, args, NULL);
	if (rc == 0)
		rc = backuprepo_snapshot(&l.repo, args->operands[0], id);
	if (rc == 0 && path == NULL)
		rc = cli_no_memory(cli);
	if (rc == 0) {
		backuprepo_path(path, given);
		rc = ls ? sl_backup_ls(l.repo.backup, id, *path ? path : NULL, on_entry, &l, &err)
			: sl_backup_cat(l.repo.backup, id, path, on_bytes, &l, &err);
		if (rc >= 0) {
			rc = EXIT_OK; /* cli_finish reports a broken output */
		} else if (rc == SL_ECANCELLED && stop_requested()) {
			rc = cli_interrupted(cli);
		} else {
			/* What is not in a snapshot is bad data. */
			(void)cli_fail(cli, &err, NULL);
			if (rc == SL_ENOENT)
				backuprepo_hint(cli, args, 1);
			rc = rc == SL_ENOENT || rc == SL_EINVAL ? EXIT_BAD_DATA : sl_err_exit_code(rc);
		}
	}
	backuprepo_close(&l.repo);
	free(path);
	return rc;
}

static const struct opt ls_opts[] = {
	BACKUP_OPTS_REPO,
	{.name = "long",
	 .letter = 'l',
	 .kind = OPT_FLAG,
	 .help = "Print mode, owner, group, size and time before the name, and the target of a link after it"},
	{.name = "null",
	 .letter = '0',
	 .kind = OPT_FLAG,
	 .help = "End each name with a NUL and do not escape it, for xargs -0"},
	OPT_JSON("Print one JSON object per line; a name that is not UTF-8 also as path_hex"),
	{.name = NULL},
};

const struct command cmd_backup_ls = {
	.name = "backup ls",
	.operands = "SNAPSHOT PATH",
	.optional = 1,
	.summary = "list the files of a snapshot",
	.opts = ls_opts,
	.description = "Lists everything in the snapshot, or PATH and what is below it. Names in a snapshot have no "
		       "leading slash; a PATH may have one.",
	.example = "sluice backup ls latest --repo ./repo\n"
		   "sluice backup ls latest /etc --long --repo ./repo",
	.run = ls_cat_run,
};

static const struct opt cat_opts[] = {
	BACKUP_OPTS_REPO,
	{.name = NULL},
};

const struct command cmd_backup_cat = {
	.name = "backup cat",
	.operands = "SNAPSHOT PATH",
	.summary = "print a file of a snapshot",
	.opts = cat_opts,
	.description = "Prints the contents of one file byte for byte, holes as zeros. Each block is checked against "
		       "its id first.",
	.example = "sluice backup cat latest etc/fstab --repo ./repo\n"
		   "sluice backup cat latest etc/hosts --repo ./repo > hosts",
	.run = ls_cat_run,
};
