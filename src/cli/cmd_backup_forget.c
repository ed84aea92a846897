/* SPDX-License-Identifier: Apache-2.0 */
/* sluice backup forget and prune: snapshots that are not needed any more, and the space that they took. */
#include "backuprepo.h"
#include "backupshow.h"
#include "commands.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- forget ---- */

struct forgetting {
	struct cli *cli;
	const struct parsed *args;
	struct backuprepo repo;
	bool json;
	struct table table;
	const char **tags, **ids;
	char (*resolved)[SL_BACKUP_ID_BYTES];
	size_t n_tags, n_ids;
	char path[PATH_MAX]; /* as snapshots have it; "": all */
};

static int on_decision(const struct sl_backup_snapshot *s, bool keeps, const char *rules, void *ctx)
{
	struct forgetting *f = ctx;
	struct out *out = &f->cli->out;

	/* Every snapshot that was considered is printed, so that a dry run shows the whole decision. */
	if (f->json) {
		json_t *j = backupshow_json(s);

		json_object_set_new(j, "keep", json_boolean(keeps));
		json_object_set_new(j, "rules", text_json(rules != NULL ? rules : ""));
		out_json_line(out, j);
	} else {
		table_cell(&f->table, "%s", keeps ? "keep" : "forget");
		table_cell(&f->table, "%s", keeps && rules != NULL ? rules : "-");
		backupshow_row(&f->table, s);
	}
	return cli_stopped(f->cli);
}

static int forget_snapshots(struct forgetting *f)
{
	const struct parsed *a = f->args;
	bool dry = opt_flag(a, "dry-run");
	struct sl_backup_forget_opts opts = {
		SL_BACKUP_FORGET_OPTS_INIT,
		.keep_last = (int32_t)opt_num(a, "keep-last"),
		.keep_hourly = (int32_t)opt_num(a, "keep-hourly"),
		.keep_daily = (int32_t)opt_num(a, "keep-daily"),
		.keep_weekly = (int32_t)opt_num(a, "keep-weekly"),
		.keep_monthly = (int32_t)opt_num(a, "keep-monthly"),
		.keep_yearly = (int32_t)opt_num(a, "keep-yearly"),
		.keep_tags = f->tags,
		.n_keep_tags = f->n_tags,
		.snapshots = f->ids,
		.n_snapshots = f->n_ids,
		.host = opt_str(a, "host"),
		.tag = opt_str(a, "tag"),
		.path = f->path[0] ? f->path : NULL,
		.dry_run = dry ? SL_ON : SL_OFF,
		.on_decision = on_decision,
		.ctx = f,
	};
	struct sl_err err = SL_ERR_INIT;
	char count[TEXT_COUNT_BYTES], text[160];
	uint64_t removed = 0;
	int rc;

	backupshow_table(&f->table, &f->cli->out, true);
	rc = sl_backup_forget(f->repo.backup, &opts, &removed, &err);
	table_end(&f->table);
	/* cli_finish reports a broken output. */
	if (rc != 0)
		return out_failed(&f->cli->out) ? EXIT_OK : backuprepo_fail(&f->repo, &err);
	if (f->cli->quiet)
		return EXIT_OK;
	/* The summary comes after the lines that it counts. */
	(void)out_flush(&f->cli->out);
	(void)snprintf(text, sizeof(text), "%s%s%s", text_count(count, removed, "snapshot"),
		       dry ? " would be forgotten" : " forgotten",
		       removed && !dry ? "; 'sluice backup prune' frees their space" : "");
	cli_line(f->cli, SL_LOG_INFO, text);
	return EXIT_OK;
}

static int backup_forget_run(struct cli *cli, const struct parsed *args)
{
	static const char *const rules[] = {"keep-last",    "keep-hourly", "keep-daily", "keep-weekly",
					    "keep-monthly", "keep-yearly", "keep-tag"};
	bool filters = opt_given(args, "host") || opt_given(args, "tag") || opt_given(args, "path");
	struct forgetting f = {.cli = cli, .args = args, .json = opt_flag(args, "json")};
	size_t n = (size_t)args->n_operands;
	bool has_rule = false;
	int rc = 0;

	/* A mistake here costs backups: what is meant must be given. */
	for (size_t i = 0; i < SL_COUNT(rules); i++)
		has_rule |= opt_given(args, rules[i]);
	if (!has_rule && !n)
		return cli_usage(cli, "give what to keep (--keep-last, --keep-daily, …), or each SNAPSHOT to remove");
	if (n && (has_rule || filters))
		return cli_usage(cli, "give either rules and filters or SNAPSHOTs, not both");
	if (opt_given(args, "path"))
		rc = backuprepo_stored_path(cli, opt_str(args, "path"), f.path);
	if (rc != 0)
		return rc;

	/* The lists that the library takes: tags, and the names of snapshots. */
	while (opt_all(args, "keep-tag", (int)f.n_tags) != NULL)
		f.n_tags++;
	f.tags = calloc(f.n_tags + 1, sizeof(*f.tags));
	f.ids = calloc(n + 1, sizeof(*f.ids));
	f.resolved = calloc(n + 1, sizeof(*f.resolved));
	if (f.tags == NULL || f.ids == NULL || f.resolved == NULL)
		rc = cli_no_memory(cli);
	for (size_t i = 0; rc == 0 && i < f.n_tags; i++)
		f.tags[i] = opt_all(args, "keep-tag", (int)i);
	if (rc == 0)
		rc = backuprepo_open(&f.repo, cli, args, NULL);
	/* All snapshots are known before the first one is removed. */
	for (size_t i = 0; rc == 0 && i < n; i++) {
		rc = backuprepo_snapshot(&f.repo, args->operands[i], f.resolved[i]);
		f.ids[f.n_ids++] = f.resolved[i];
	}
	if (rc == 0)
		rc = forget_snapshots(&f);
	backuprepo_close(&f.repo);
	free(f.tags);
	free(f.ids);
	free(f.resolved);
	return rc;
}

#define OPT_KEEP(which, what)                                                                                          \
	{                                                                                                              \
		.name = "keep-" which, .kind = OPT_INT, .arg = "N", .min = 1, .max = 1000000, .help = what             \
	}

static const struct opt forget_opts[] = {
	BACKUP_OPTS_REPO,
	OPT_KEEP("last", "Keep the newest N"),
	OPT_KEEP("hourly", "Keep the newest snapshot of each of the last N hours that have one"),
	OPT_KEEP("daily", "Keep the newest snapshot of each of the last N days that have one"),
	OPT_KEEP("weekly", "Keep the newest snapshot of each of the last N weeks (from Monday) that have one"),
	OPT_KEEP("monthly", "Keep the newest snapshot of each of the last N months that have one"),
	OPT_KEEP("yearly", "Keep the newest snapshot of each of the last N years that have one"),
	{.name = "keep-tag",
	 .kind = OPT_STRING,
	 .arg = "TAG",
	 .repeat = true,
	 .help = "Keep all snapshots with this tag"},
	OPT_TEXT("host", 0, "NAME", "Consider only snapshots of this host"),
	OPT_TEXT("tag", 't', "TAG", "Consider only snapshots with this tag"),
	OPT_TEXT("path", 0, "PATH", "Consider only snapshots of this path"),
	{.name = "dry-run",
	 .letter = 'n',
	 .kind = OPT_FLAG,
	 .help = "Print what would be forgotten, and change nothing"},
	OPT_JSON("Print one JSON object per snapshot, with keep and rules"),
	{.name = NULL},
};

const struct command cmd_backup_forget = {
	.name = "backup forget",
	.operands = "SNAPSHOT…",
	.optional = 1,
	.summary = "remove snapshots, by rules or by name",
	.opts = forget_opts,
	.description = "Rules are applied to each host and set of paths separately, and a snapshot stays when one rule "
		       "keeps it. Every snapshot considered is printed with the decision. Times are UTC. With "
		       "SNAPSHOTs, exactly these are removed. 'sluice backup prune' frees the space.",
	.example = "sluice backup forget --keep-last 3 --keep-daily 7 --keep-weekly 5 --keep-monthly 12 --dry-run\n"
		   "sluice backup forget 3fa29c10 --repo ./repo",
	.run = backup_forget_run,
};

/* ---- prune ---- */

static int backup_prune_run(struct cli *cli, const struct parsed *args)
{
	bool dry = opt_flag(args, "dry-run");
	const char *would = dry ? "would be " : "";
	int64_t percent = opt_num(args, "repack-percent");
	struct sl_backup_prune_opts opts = {SL_BACKUP_PRUNE_OPTS_INIT,
					    .repack_percent = percent ? (int32_t)percent : SL_NONE,
					    .dry_run = dry ? SL_ON : SL_OFF};
	struct sl_backup_pruned n = {.struct_size = sizeof(n)};
	SL_CLEANUP(backuprepo_close) struct backuprepo r = {0};
	char packs[TEXT_COUNT_BYTES], bytes[TEXT_TIME_BYTES], sessions[TEXT_COUNT_BYTES];
	struct out *out = &cli->out;
	struct sl_err err = SL_ERR_INIT;
	struct backupwatch watch;
	double seconds;
	int rc = backuprepo_open(&r, cli, args, NULL);

	/* Prune, with its progress shown. */
	if (rc == 0)
		rc = backupwatch_start(&watch, cli, r.backup);
	if (rc != 0)
		return rc;
	rc = sl_backup_prune(r.backup, &opts, &n, &err);
	seconds = backupwatch_stop(&watch);
	if (rc != 0)
		return backuprepo_fail(&r, &err);
	/* All counts for programs; what a person acts upon as text. */
	if (opt_flag(args, "json")) {
		out_json_line(out, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}",
					     "packs", (json_int_t)n.packs, "packs_marked", (json_int_t)n.packs_marked,
					     "packs_repacked", (json_int_t)n.packs_repacked, "packs_merged",
					     (json_int_t)n.packs_merged, "packs_deleted", (json_int_t)n.packs_deleted,
					     "packs_rescued", (json_int_t)n.packs_rescued, "packs_waiting",
					     (json_int_t)n.packs_waiting, "bytes", (json_int_t)n.bytes, "bytes_marked",
					     (json_int_t)n.bytes_marked, "bytes_deleted", (json_int_t)n.bytes_deleted,
					     "bytes_waiting", (json_int_t)n.bytes_waiting, "sessions_live",
					     (json_int_t)n.sessions_live, "sessions_removed",
					     (json_int_t)n.sessions_removed, "seconds", seconds));
		return EXIT_OK;
	}
	out_printf(out, "%s (%s) %sdeleted, ", text_count(packs, n.packs_deleted, "pack"),
		   text_bytes(bytes, n.bytes_deleted), would);
	out_printf(out, "%s (%s) %smarked for deletion by a later prune, ", text_count(packs, n.packs_marked, "pack"),
		   text_bytes(bytes, n.bytes_marked), would);
	out_printf(out, "%s %srewritten, in %.1f s\n", text_count(packs, n.packs_repacked, "pack"), would, seconds);
	/* Not an error: these go with a later prune. */
	if (n.packs_waiting)
		out_printf(out, "%s (%s) wait for running backups to end\n", text_count(packs, n.packs_waiting, "pack"),
			   text_bytes(bytes, n.bytes_waiting));
	if (n.sessions_removed)
		out_printf(out, "%s removed\n", text_count(sessions, n.sessions_removed, "silent session"));
	return EXIT_OK;
}

static const struct opt prune_opts[] = {
	BACKUP_OPTS_REPO,
	{.name = "repack-percent",
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "70",
	 .min = 0,
	 .max = 100,
	 .help = "Rewrite a pack when less than N % of it is needed; 0: never"},
	{.name = "dry-run", .letter = 'n', .kind = OPT_FLAG, .help = "Print what would be done, and change nothing"},
	OPT_JSON("Print the counts as one JSON object"),
	{.name = NULL},
};

const struct command cmd_backup_prune = {
	.name = "backup prune",
	.operands = "",
	.summary = "free the space that no snapshot needs",
	.opts = prune_opts,
	.description =
		"Works in two runs: the first marks packs that no snapshot needs for deletion, and a later one deletes "
		"them once no running backup can depend on them. So backups may run at any time, from any machine, and "
		"the space is free after the second run. A backup that shows no activity for 24 hours counts as dead.",
	.example = "sluice backup prune --repo ./repo\n"
		   "sluice backup prune --repo ./repo --dry-run",
	.run = backup_prune_run,
};
