/* SPDX-License-Identifier: Apache-2.0 */
/* sluice backup forget and prune: snapshots that are not needed any more, and the space that they took. */
#include "backuprepo.h"
#include "backupshow.h"
#include "backupwatch.h"
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
	int json;
	const char **tags, **ids;
	char (*resolved)[SL_BACKUP_ID_BYTES];
	size_t n_tags, n_ids;
	char path[PATH_MAX]; /* as snapshots have it; "": all */
};

static int on_decision(const struct sl_backup_snapshot *s, int keeps, const char *rules, void *ctx)
{
	struct forgetting *f = ctx;
	struct out *out = &f->cli->out;

	if (f->json) {
		json_t *j = backupshow_json(s);

		json_object_set_new(j, "keep", json_boolean(keeps));
		json_object_set_new(j, "rules", text_json(rules ? rules : ""));
		out_json(out, j);
		out_str(out, "\n");
	} else {
		out_printf(out, "%-7s %-14s ", keeps ? "keep" : "forget", keeps && rules ? rules : "");
		backupshow_line(out, s);
	}
	if (out_failed(out))
		return SL_EIO;
	return stop_requested() ? SL_ECANCELLED : 0;
}

static int32_t keep(const struct forgetting *f, const char *option)
{
	return (int32_t)opt_num(f->args, option);
}

static int forget(struct forgetting *f)
{
	const struct parsed *a = f->args;
	int dry = opt_flag(a, "dry-run");
	struct sl_backup_forget_opts opts = {
		SL_BACKUP_FORGET_OPTS_INIT,
		.keep_last = keep(f, "keep-last"),
		.keep_hourly = keep(f, "keep-hourly"),
		.keep_daily = keep(f, "keep-daily"),
		.keep_weekly = keep(f, "keep-weekly"),
		.keep_monthly = keep(f, "keep-monthly"),
		.keep_yearly = keep(f, "keep-yearly"),
		.keep_tags = f->tags,
		.keep_tags_n = f->n_tags,
		.snapshots = f->ids,
		.snapshots_n = f->n_ids,
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

	if (sl_backup_forget(f->repo.backup, &opts, &removed, &err))
		return out_failed(&f->cli->out) ? EXIT_OK : backuprepo_fail(&f->repo, &err);
	if (f->cli->quiet)
		return EXIT_OK;
	(void)out_flush(&f->cli->out);
	(void)snprintf(text, sizeof(text), "%s%s%s", text_count(count, removed, "snapshot"),
		       dry ? " would be forgotten" : " forgotten",
		       removed && !dry ? "; 'sluice backup prune' frees their space" : "");
	cli_line(f->cli, SL_LOG_INFO, text);
	return EXIT_OK;
}

static int has_rule(const struct parsed *args)
{
	static const char *const rules[] = {"keep-last",    "keep-hourly", "keep-daily", "keep-weekly",
					    "keep-monthly", "keep-yearly", "keep-tag"};

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		if (opt_given(args, rules[i]))
			return 1;
	}
	return 0;
}

/* A mistake here costs backups: what is meant must be said. */
static int check_rules(struct forgetting *f)
{
	int rules = has_rule(f->args),
	    filters = opt_given(f->args, "host") || opt_given(f->args, "tag") || opt_given(f->args, "path");

	if (!rules && !f->args->n_operands)
		return cli_usage(f->cli, "say what stays (--keep-last, --keep-daily, …), or which SNAPSHOT goes");
	if (f->args->n_operands && (rules || filters))
		return cli_usage(f->cli, "either rules and filters or the names of snapshots, not both");
	return 0;
}

static int set_lists(struct forgetting *f)
{
	size_t n = (size_t)f->args->n_operands;

	while (opt_all(f->args, "keep-tag", (int)f->n_tags))
		f->n_tags++;
	f->tags = calloc(f->n_tags + 1, sizeof(*f->tags));
	f->ids = calloc(n + 1, sizeof(*f->ids));
	f->resolved = calloc(n + 1, sizeof(*f->resolved));
	if (!f->tags || !f->ids || !f->resolved) {
		cli_say(f->cli, SL_LOG_ERROR, "out of memory");
		return EXIT_INTERNAL;
	}
	for (size_t i = 0; i < f->n_tags; i++)
		f->tags[i] = opt_all(f->args, "keep-tag", (int)i);
	return 0;
}

/* All of them are known before the first one goes. */
static int resolve(struct forgetting *f)
{
	int rc = 0;

	for (int i = 0; !rc && i < f->args->n_operands; i++) {
		rc = backuprepo_snapshot(&f->repo, f->args->operands[i], f->resolved[i]);
		f->ids[f->n_ids++] = f->resolved[i];
	}
	return rc;
}

static int forget_run(struct cli *cli, const struct parsed *args)
{
	struct forgetting f = {.cli = cli, .args = args, .json = opt_flag(args, "json")};
	int rc = check_rules(&f);

	if (!rc && opt_given(args, "path"))
		rc = backuprepo_stored_path(cli, opt_str(args, "path"), f.path);
	rc = rc ? rc : set_lists(&f);
	rc = rc ? rc : backuprepo_open(&f.repo, cli, args, NULL);
	rc = rc ? rc : resolve(&f);
	rc = rc ? rc : forget(&f);
	backuprepo_close(&f.repo);
	free(f.tags);
	free(f.ids);
	free(f.resolved);
	return rc;
}

#define OPT_KEEP(which, what)                                                                                          \
	{.name = "keep-" which, .kind = OPT_INT, .arg = "N", .min = 1, .max = 1000000, .help = what},

static const struct opt forget_opts[] = {
	BACKUP_OPTS_REPO OPT_KEEP("last", "Keep the newest N") OPT_KEEP("hourly", "Keep the newest of each of the last "
										  "N hours that have one")
		OPT_KEEP("daily", "Keep the newest of each of the last N days that have one")
			OPT_KEEP("weekly", "The same with weeks, from Monday on")
				OPT_KEEP("monthly", "The same with months")
					OPT_KEEP("yearly", "The same with years"){.name = "keep-tag",
										  .kind = OPT_STRING,
										  .arg = "TAG",
										  .repeat = 1,
										  .help = "Keep all with this tag"},
	{.name = "host", .kind = OPT_STRING, .arg = "NAME", .help = "Look only at snapshots of this host"},
	{.name = "tag", .letter = 't', .kind = OPT_STRING, .arg = "TAG", .help = "Look only at those with this tag"},
	{.name = "path", .kind = OPT_STRING, .arg = "PATH", .help = "Look only at those that were given this path"},
	{.name = "dry-run", .letter = 'n', .kind = OPT_FLAG, .help = "Only say what would be kept and forgotten"},
	BACKUP_OPT_JSON("One JSON object a line for each snapshot, with keep and rules"){.name = NULL},
};

const struct command cmd_backup_forget = {
	.name = "backup forget",
	.operands = "SNAPSHOT…",
	.optional = 1,
	.summary = "remove snapshots, by rules or by name",
	.opts = forget_opts,
	.description =
		"Rules are applied for each host and set of paths by itself, and a snapshot stays when one rule keeps "
		"it; every snapshot considered is printed with what happens to it. Times are UTC. With names, "
		"exactly these snapshots are removed. The space is freed by 'sluice backup prune'.",
	.example = "sluice backup forget --keep-last 3 --keep-daily 7 --keep-weekly 5 --keep-monthly 12 --dry-run\n"
		   "sluice backup forget 3fa29c10 --repo ./repo",
	.run = forget_run,
};

/* ---- prune ---- */

static void pruned_json(struct cli *cli, const struct sl_backup_pruned *r, double seconds)
{
	out_json(&cli->out,
		 json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "packs",
			   (json_int_t)r->packs, "packs_condemned", (json_int_t)r->packs_condemned, "packs_repacked",
			   (json_int_t)r->packs_repacked, "packs_merged", (json_int_t)r->packs_merged, "packs_deleted",
			   (json_int_t)r->packs_deleted, "packs_rescued", (json_int_t)r->packs_rescued, "packs_waiting",
			   (json_int_t)r->packs_waiting, "bytes", (json_int_t)r->bytes, "bytes_condemned",
			   (json_int_t)r->bytes_condemned, "bytes_deleted", (json_int_t)r->bytes_deleted,
			   "bytes_waiting", (json_int_t)r->bytes_waiting, "sessions_live", (json_int_t)r->sessions_live,
			   "sessions_removed", (json_int_t)r->sessions_removed, "seconds", seconds));
	out_str(&cli->out, "\n");
}

static void pruned_text(struct cli *cli, const struct sl_backup_pruned *r, int dry, double seconds)
{
	char packs[TEXT_COUNT_BYTES], bytes[TEXT_TIME_BYTES], sessions[TEXT_COUNT_BYTES];
	const char *would = dry ? "would be " : "";

	out_printf(&cli->out, "%s (%s) %sdeleted, ", text_count(packs, r->packs_deleted, "pack"),
		   text_bytes(bytes, r->bytes_deleted), would);
	out_printf(&cli->out, "%s (%s) %scondemned for a later prune, ", text_count(packs, r->packs_condemned, "pack"),
		   text_bytes(bytes, r->bytes_condemned), would);
	out_printf(&cli->out, "%s %srewritten, in %.1f s\n", text_count(packs, r->packs_repacked, "pack"), would,
		   seconds);
	if (r->packs_waiting)
		out_printf(&cli->out, "%s (%s) wait for backups that run\n",
			   text_count(packs, r->packs_waiting, "pack"), text_bytes(bytes, r->bytes_waiting));
	if (r->sessions_removed)
		out_printf(&cli->out, "%s removed\n", text_count(sessions, r->sessions_removed, "silent session"));
}

static int prune(struct backuprepo *r)
{
	int dry = opt_flag(r->args, "dry-run");
	int64_t percent = opt_num(r->args, "repack-percent");
	struct sl_backup_prune_opts opts = {SL_BACKUP_PRUNE_OPTS_INIT,
					    .repack_percent = percent ? (int32_t)percent : SL_NONE,
					    .dry_run = dry ? SL_ON : SL_OFF};
	struct sl_backup_pruned result = {.struct_size = sizeof(result)};
	struct sl_err err = SL_ERR_INIT;
	struct backupwatch watch;
	double seconds;
	int rc = backupwatch_start(&watch, r->cli, r->backup, 0);

	if (rc)
		return rc;
	rc = sl_backup_prune(r->backup, &opts, &result, &err);
	seconds = backupwatch_stop(&watch);
	if (rc)
		return backuprepo_fail(r, &err);
	if (opt_flag(r->args, "json"))
		pruned_json(r->cli, &result, seconds);
	else
		pruned_text(r->cli, &result, dry, seconds);
	return EXIT_OK;
}

static int prune_run(struct cli *cli, const struct parsed *args)
{
	struct backuprepo r;
	int rc = backuprepo_open(&r, cli, args, NULL);

	rc = rc ? rc : prune(&r);
	backuprepo_close(&r);
	return rc;
}

static const struct opt prune_opts[] = {
	BACKUP_OPTS_REPO{.name = "repack-percent",
			 .kind = OPT_INT,
			 .arg = "N",
			 .def = "70",
			 .min = 0,
			 .max = 100,
			 .help = "A pack of which less is needed is written again without the rest; 0: never"},
	{.name = "dry-run", .letter = 'n', .kind = OPT_FLAG, .help = "Only say what would be done"},
	BACKUP_OPT_JSON("Print the counts as one JSON object"){.name = NULL},
};

const struct command cmd_backup_prune = {
	.name = "backup prune",
	.operands = "",
	.summary = "free the space that no snapshot needs",
	.opts = prune_opts,
	.description =
		"Works in two steps, of two runs: packs that no snapshot needs are marked for deletion by the first "
		"and deleted by a "
		"later one, once no backup runs that could still count on it. So backups may run at any time, from "
		"any machine, and space is free after the second run. A backup that was not heard of for 24 hours "
		"counts as dead.",
	.example = "sluice backup prune --repo ./repo",
	.run = prune_run,
};
