/* SPDX-License-Identifier: Apache-2.0 */
/* sluice backup list, show, ls and cat: what is in a repository. Nothing is changed. */
#include "backuprepo.h"
#include "backupshow.h"
#include "backupwatch.h"
#include "commands.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct looking {
	struct cli *cli;
	const struct parsed *args;
	struct backuprepo repo;
	const char *id;      /* of show */
	char path[PATH_MAX]; /* of list: as snapshots have it; "": all */
	int json, shown, damaged;
	char end; /* after a name of ls */
};

/* Ends a walk: output that cannot be written, or a signal. */
static int enough(const struct looking *l)
{
	if (out_failed(&l->cli->out))
		return 1;
	return stop_requested() ? SL_ECANCELLED : 0;
}

static int has(const char *const *items, size_t n, const char *item)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(items[i], item) == 0)
			return 1;
	}
	return 0;
}

/* ---- list ---- */

static int wanted(const struct looking *l, const struct sl_backup_snapshot *s)
{
	const char *host = opt_str(l->args, "host"), *tag = opt_str(l->args, "tag");

	return (!host || strcmp(host, s->host) == 0) && (!tag || has(s->tags, s->tags_n, tag)) &&
	       (!l->path[0] || has(s->paths, s->paths_n, l->path));
}

static int on_snapshot(const struct sl_backup_snapshot *s, void *ctx)
{
	struct looking *l = ctx;

	if (!wanted(l, s))
		return 0;
	if (l->json) {
		out_json(&l->cli->out, backupshow_json(s));
		out_str(&l->cli->out, "\n");
	} else {
		if (!l->shown)
			out_printf(&l->cli->out, "%-8s  %-20s  %-12s  %9s  %10s  %10s  %s\n", "ID", "TIME", "HOST",
				   "FILES", "SIZE", "WRITTEN", "PATHS");
		backupshow_line(&l->cli->out, s);
	}
	l->shown++;
	return enough(l);
}

static int on_damaged(const char *id, const struct sl_err *err, void *ctx)
{
	struct looking *l = ctx;

	l->damaged++;
	cli_say(l->cli, SL_LOG_ERROR, "snapshot %s: %s", id, err->msg);
	return enough(l);
}

static int damaged(const struct looking *l)
{
	char count[TEXT_COUNT_BYTES];

	if (!l->damaged)
		return EXIT_OK;
	cli_say(l->cli, SL_LOG_ERROR, "%s cannot be read; 'sluice backup check' says more",
		text_count(count, (uint64_t)l->damaged, "snapshot"));
	return EXIT_BAD_DATA;
}

static int list_run(struct cli *cli, const struct parsed *args)
{
	struct looking l = {.cli = cli, .args = args, .json = opt_flag(args, "json")};
	struct sl_err err = SL_ERR_INIT;
	int rc = opt_given(args, "path") ? backuprepo_stored_path(cli, opt_str(args, "path"), l.path) : 0, walked;

	rc = rc ? rc : backuprepo_open(&l.repo, cli, args, NULL);
	if (!rc) {
		walked = sl_backup_list(l.repo.backup, on_snapshot, on_damaged, &l, &err);
		rc = walked == SL_ECANCELLED ? cli_interrupted(cli)
		     : walked < 0            ? backuprepo_fail(&l.repo, &err)
					     : damaged(&l);
	}
	backuprepo_close(&l.repo);
	return rc;
}

static const struct opt list_opts[] = {
	BACKUP_OPTS_REPO{.name = "host", .kind = OPT_STRING, .arg = "NAME", .help = "Only those of this host"},
	{.name = "tag", .letter = 't', .kind = OPT_STRING, .arg = "TAG", .help = "Only those with this tag"},
	{.name = "path", .kind = OPT_STRING, .arg = "PATH", .help = "Only those that were given this path"},
	BACKUP_OPT_JSON("One JSON object a line"){.name = NULL},
};

const struct command cmd_backup_list = {
	.name = "backup list",
	.operands = "",
	.summary = "list the snapshots of a repository",
	.opts = list_opts,
	.description =
		"The oldest first: the beginning of its id, which names it in other commands, its time, host, files, "
		"their size, what was written for it, paths and tags. A snapshot that cannot be read is reported on "
		"stderr, and the status is 65.",
	.example = "sluice backup list --repo ./repo\nsluice backup list --json | jq -r .snapshot",
	.run = list_run,
};

/* ---- show ---- */

static int on_one(const struct sl_backup_snapshot *s, void *ctx)
{
	struct looking *l = ctx;

	if (strcmp(s->id, l->id) != 0)
		return 0;
	if (l->json) {
		out_json(&l->cli->out, backupshow_json(s));
		out_str(&l->cli->out, "\n");
	} else {
		backupshow_details(&l->cli->out, s);
	}
	return 1;
}

static int on_one_damaged(const char *id, const struct sl_err *err, void *ctx)
{
	struct looking *l = ctx;

	return strcmp(id, l->id) == 0 ? on_damaged(id, err, l) : 0;
}

static int show_run(struct cli *cli, const struct parsed *args)
{
	struct looking l = {.cli = cli, .args = args, .json = opt_flag(args, "json")};
	char id[SL_BACKUP_ID_BYTES] = "";
	struct sl_err err = SL_ERR_INIT;
	int rc = backuprepo_open(&l.repo, cli, args, NULL);

	rc = rc ? rc : backuprepo_snapshot(&l.repo, args->operands[0], id);
	l.id = id;
	if (!rc && sl_backup_list(l.repo.backup, on_one, on_one_damaged, &l, &err) < 0)
		rc = backuprepo_fail(&l.repo, &err);
	rc = rc ? rc : damaged(&l);
	backuprepo_close(&l.repo);
	return rc;
}

static const struct opt show_opts[] = {
	BACKUP_OPTS_REPO BACKUP_OPT_JSON("One JSON object"){.name = NULL},
};

const struct command cmd_backup_show = {
	.name = "backup show",
	.operands = "SNAPSHOT",
	.summary = "everything about one snapshot",
	.opts = show_opts,
	.description = "SNAPSHOT is an id, its beginning (at least 4 characters), or latest, the newest.",
	.example = "sluice backup show latest --repo ./repo",
	.run = show_run,
};

/* ---- ls ---- */

static int on_entry(const struct sl_backup_entry *e, void *ctx)
{
	struct looking *l = ctx;
	struct out *out = &l->cli->out;

	if (l->json) {
		out_json(out, backupshow_entry_json(e));
		out_str(out, "\n");
	} else if (opt_flag(l->args, "long")) {
		backupshow_entry(out, e);
	} else if (l->end) {
		text_name(out, e->path);
		out_write(out, &l->end, 1);
	} else {
		out_write(out, e->path, strlen(e->path) + 1);
	}
	return enough(l);
}

/* What is not in a snapshot is bad data; a broken output is reported at the end. */
static int walked(struct looking *l, int rc, const struct sl_err *err)
{
	if (rc >= 0)
		return EXIT_OK;
	if (rc == SL_ECANCELLED && stop_requested())
		return cli_interrupted(l->cli);
	(void)cli_fail(l->cli, err, NULL);
	if (rc == SL_ENOENT)
		backuprepo_hint(l->cli, l->args, 1);
	return rc == SL_ENOENT || rc == SL_EINVAL ? EXIT_BAD_DATA : sl_err_exit_code(rc);
}

/* fn on snapshot and path of the operands, in a repository that is open. */
typedef int look_fn(struct looking *l, const char *id, const char *path, struct sl_err *err);

static int look(struct cli *cli, const struct parsed *args, struct looking *l, look_fn *fn)
{
	const char *given = args->n_operands > 1 ? args->operands[1] : "";
	char id[SL_BACKUP_ID_BYTES] = "", *path = malloc(strlen(given) + 1);
	struct sl_err err = SL_ERR_INIT;
	int rc = backuprepo_open(&l->repo, cli, args, NULL);

	rc = rc ? rc : backuprepo_snapshot(&l->repo, args->operands[0], id);
	if (!rc && !path) {
		cli_say(cli, SL_LOG_ERROR, "out of memory");
		rc = EXIT_INTERNAL;
	}
	if (!rc) {
		backuprepo_path(path, given);
		rc = walked(l, fn(l, id, path, &err), &err);
	}
	backuprepo_close(&l->repo);
	free(path);
	return rc;
}

static int ls(struct looking *l, const char *id, const char *path, struct sl_err *err)
{
	return sl_backup_ls(l->repo.backup, id, *path ? path : NULL, on_entry, l, err);
}

static int ls_run(struct cli *cli, const struct parsed *args)
{
	struct looking l = {.cli = cli, .args = args, .json = opt_flag(args, "json")};

	if (l.json + opt_flag(args, "long") + opt_flag(args, "null") > 1)
		return cli_usage(cli, "--json, --long and --null: give one of them");
	l.end = opt_flag(args, "null") ? '\0' : '\n';
	return look(cli, args, &l, ls);
}

static const struct opt ls_opts[] = {
	BACKUP_OPTS_REPO{.name = "long",
			 .letter = 'l',
			 .kind = OPT_FLAG,
			 .help = "Mode, owner, group, size and time before the name, targets of links after it"},
	{.name = "null",
	 .letter = '0',
	 .kind = OPT_FLAG,
	 .help = "Print names byte for byte, each ended by a NUL, for xargs -0; without it they are escaped"},
	BACKUP_OPT_JSON("One JSON object a line; names that are not UTF-8 also as path_hex"){.name = NULL},
};

const struct command cmd_backup_ls = {
	.name = "backup ls",
	.operands = "SNAPSHOT PATH",
	.optional = 1,
	.summary = "list the files of a snapshot",
	.opts = ls_opts,
	.description = "Everything in the snapshot, or PATH and what is below it. Names are as they are in the "
		       "snapshot, without a slash before them; a PATH may have one.",
	.example = "sluice backup ls latest /etc --long --repo ./repo",
	.run = ls_run,
};

/* ---- cat ---- */

static int on_bytes(const void *bytes, size_t len, void *ctx)
{
	struct looking *l = ctx;

	out_write(&l->cli->out, bytes, len);
	return enough(l);
}

static int cat(struct looking *l, const char *id, const char *path, struct sl_err *err)
{
	return sl_backup_cat(l->repo.backup, id, path, on_bytes, l, err);
}

static int cat_run(struct cli *cli, const struct parsed *args)
{
	struct looking l = {.cli = cli, .args = args};

	return look(cli, args, &l, cat);
}

static const struct opt cat_opts[] = {
	BACKUP_OPTS_REPO{.name = NULL},
};

const struct command cmd_backup_cat = {
	.name = "backup cat",
	.operands = "SNAPSHOT PATH",
	.summary = "print a file of a snapshot",
	.opts = cat_opts,
	.description = "The contents of one file, byte for byte, holes as zeros; every block was compared with its id "
		       "before.",
	.example = "sluice backup cat latest etc/fstab --repo ./repo",
	.run = cat_run,
};
