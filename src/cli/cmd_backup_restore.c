/* SPDX-License-Identifier: Apache-2.0 */
/* sluice backup restore: a snapshot, or parts of it, into a folder that it never leaves. */
#include "backuprepo.h"
#include "commands.h"
#include "stop.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct restoring {
	struct cli *cli;
	const struct parsed *args;
	struct backuprepo repo;
	char id[SL_BACKUP_ID_BYTES];
	char **paths; /* of the command line, as the snapshot has them */
	size_t n_paths;
};

static void on_problem(enum sl_backup_problem problem, const char *path, const struct sl_err *err, void *ctx)
{
	struct restoring *r = ctx;
	const char *reason = err != NULL ? err->msg : "";
	char beginning[101]; /* of the path: messages shorten it */

	/* Many messages name the path already. */
	(void)snprintf(beginning, sizeof(beginning), "%s", path);
	if (strstr(reason, beginning) != NULL)
		path = "";
	cli_say(r->cli, problem == SL_BACKUP_UNREADABLE ? SL_LOG_ERROR : SL_LOG_WARN, "%s: %.900s%s%.256s",
		sl_backup_problem_name(problem), path, *path && *reason ? ": " : "", reason);
}

/* What the snapshot has and the restored entries have not, when that was not requested. on and off: the options. */
static void report_stripped(struct restoring *r, uint64_t n, const char *what, const char *on, const char *off)
{
	char why[200];

	if (!n || opt_flag(r->args, off))
		return;
	/* Requested or encrypted: the bits were wanted, and the system has refused them. */
	if (opt_flag(r->args, on) || sl_backup_is_encrypted(&r->repo.driver, NULL, NULL) == 1)
		(void)snprintf(why, sizeof(why), "this process may not set them");
	else
		(void)snprintf(why, sizeof(why),
			       "the repository is not encrypted, so anyone who could write to it may have changed "
			       "them. If you trust it, restore into an empty folder with --%s",
			       on);
	cli_say(r->cli, SL_LOG_WARN, "%" PRIu64 " %s restored without %s %s: %s", n, n == 1 ? "entry" : "entries",
		n == 1 ? "its" : "their", what, why);
}

static int restore_failed(struct restoring *r, const struct sl_err *err)
{
	if (err->code == SL_ECANCELLED && stop_requested()) {
		cli_say(r->cli, SL_LOG_ERROR, "interrupted; run the same command again to resume");
		return EXIT_INTERRUPTED;
	}
	/* Overwriting helps with a file in the way, not with a folder. */
	if (err->code == SL_EEXIST && err->sys_errno != EISDIR && !opt_flag(r->args, "overwrite"))
		cli_say(r->cli, SL_LOG_ERROR, "--overwrite replaces existing files");
	if (err->code != SL_ENOENT)
		return cli_fail(r->cli, err, NULL);
	(void)cli_fail(r->cli, err, NULL);
	backuprepo_hint(r->cli, r->args, 1);
	return EXIT_BAD_DATA;
}

static int restore_snapshot(struct restoring *r)
{
	const struct parsed *a = r->args;
	const char *to = opt_str(a, "to");
	struct sl_backup_restore_opts opts = {
		SL_BACKUP_RESTORE_OPTS_INIT,
		.to = to,
		.paths = (const char *const *)r->paths,
		.n_paths = r->n_paths,
		.conflict = opt_flag(a, "overwrite") ? SL_BACKUP_OVERWRITE : SL_BACKUP_RESUME,
		.owner = opt_flag(a, "no-owner") ? SL_OFF : SL_DEFAULT,
		.set_id = opt_flag(a, "set-id")      ? SL_ON
			  : opt_flag(a, "no-set-id") ? SL_OFF
						     : SL_DEFAULT,
		.security = opt_flag(a, "security")      ? SL_ON
			    : opt_flag(a, "no-security") ? SL_OFF
							 : SL_DEFAULT,
		.devices = opt_flag(a, "no-devices") ? SL_OFF : SL_DEFAULT,
		.on_problem = on_problem,
		.ctx = r,
	};
	struct sl_backup_restored n = {.struct_size = sizeof(n)};
	char files[TEXT_COUNT_BYTES], bytes[TEXT_TIME_BYTES], shown[600];
	struct out *out = &r->cli->out;
	struct sl_err err = SL_ERR_INIT;
	struct backupwatch watch;
	double seconds;
	int rc = backupwatch_start(&watch, r->cli, r->repo.backup);

	if (rc != 0)
		return rc;
	/* Restore, and print what was restored also after a failure: files that are there stay. */
	rc = sl_backup_restore(r->repo.backup, r->id, &opts, &n, &err);
	seconds = backupwatch_stop(&watch);
	if ((rc == 0 || n.entries) && opt_flag(a, "json")) {
		out_json_line(out, json_pack("{s:s, s:o, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "snapshot",
					     r->id, "to", text_json(to), "ok", rc == 0, "entries",
					     (json_int_t)n.entries, "files", (json_int_t)n.files, "bytes",
					     (json_int_t)n.bytes, "skipped", (json_int_t)n.skipped, "problems",
					     (json_int_t)n.problems, "set_id_stripped", (json_int_t)n.set_id_stripped,
					     "security_stripped", (json_int_t)n.security_stripped, "seconds", seconds));
	} else if (rc == 0 || n.entries) {
		text_line(shown, sizeof(shown), to);
		out_printf(out, "%s, %s restored to %s in %.1f s", text_count(files, n.files, "file"),
			   text_bytes(bytes, n.bytes), shown, seconds);
		if (n.skipped)
			out_printf(out, "; %s unchanged", text_count(files, n.skipped, "file"));
		out_str(out, "\n");
	}
	report_stripped(r, n.set_id_stripped, "set-uid and set-gid bits", "set-id", "no-set-id");
	report_stripped(r, n.security_stripped, "security.* and trusted.* attributes", "security", "no-security");
	if (rc != 0)
		return restore_failed(r, &err);
	if (!n.problems)
		return EXIT_OK;
	cli_say(r->cli, SL_LOG_ERROR, "%s: some files or attributes were not restored",
		text_count(files, n.problems, "problem"));
	return EXIT_BAD_DATA;
}

static int backup_restore_run(struct cli *cli, const struct parsed *args)
{
	struct restoring r = {.cli = cli, .args = args};
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .threads = (int32_t)opt_num(args, "threads")};
	const char *to = opt_str(args, "to");
	size_t n = (size_t)args->n_operands - 1;
	struct stat st;
	int rc = 0;

	/* The folder is made by the library; a file of that name is reported before a passphrase is asked for. */
	if (!*to)
		return cli_usage(cli, "--to: the folder's name is empty");
	if (stat(to, &st) == 0 && !S_ISDIR(st.st_mode)) {
		cli_say(cli, SL_LOG_ERROR, "--to: %.500s is not a folder", to);
		return sl_err_exit_code(SL_ECREATE);
	}
	if (opt_flag(args, "set-id") && opt_flag(args, "no-set-id"))
		return cli_usage(cli, "--set-id and --no-set-id exclude each other");
	if (opt_flag(args, "security") && opt_flag(args, "no-security"))
		return cli_usage(cli, "--security and --no-security exclude each other");

	/* The paths as the snapshot has them, without a slash before them. */
	r.paths = calloc(n + 1, sizeof(*r.paths));
	if (r.paths == NULL)
		return cli_no_memory(cli);
	for (size_t i = 0; rc == 0 && i < n; i++) {
		const char *given = args->operands[i + 1];
		char *copy = r.paths[i] = malloc(strlen(given) + 1);

		if (copy == NULL) {
			rc = cli_no_memory(cli);
			break;
		}
		r.n_paths++;
		backuprepo_path(copy, given);
		if (!*copy)
			rc = cli_usage(cli, "PATH '%.100s' is the whole snapshot; leave it out to restore everything",
				       given);
	}
	/* The repository, the snapshot, the files. */
	if (rc == 0)
		rc = backuprepo_open(&r.repo, cli, args, &opts);
	if (rc == 0)
		rc = backuprepo_snapshot(&r.repo, args->operands[0], r.id);
	if (rc == 0)
		rc = restore_snapshot(&r);
	backuprepo_close(&r.repo);
	for (size_t i = 0; i < r.n_paths; i++)
		free(r.paths[i]);
	free(r.paths);
	return rc;
}

static const struct opt backup_restore_opts[] = {
	BACKUP_OPTS_REPO,
	{.name = "to",
	 .kind = OPT_STRING,
	 .arg = "DIR",
	 .required = true,
	 .help = "Folder to restore into; created if it does not exist"},
	{.name = "overwrite",
	 .kind = OPT_FLAG,
	 .help = "Replace files that differ (default: stop at the first one with status 73). Also read and compare "
		 "files of the same size and time"},
	{.name = "no-owner", .kind = OPT_FLAG, .help = "Do not restore owners and groups; only root restores them"},
	{.name = "set-id",
	 .kind = OPT_FLAG,
	 .help = "Restore set-uid and set-gid bits (default for an encrypted repository). From a plain one they are "
		 "left out and counted, because anyone who can write to it can set them"},
	{.name = "no-set-id", .kind = OPT_FLAG, .help = "Leave out set-uid and set-gid bits"},
	{.name = "security",
	 .kind = OPT_FLAG,
	 .help = "Restore security.* and trusted.* attributes, such as file capabilities. Default as with --set-id, if "
		 "the process may set them"},
	{.name = "no-security", .kind = OPT_FLAG, .help = "Leave out security.* and trusted.* attributes"},
	{.name = "no-devices", .kind = OPT_FLAG, .help = "Do not restore device files; only root restores them"},
	BACKUP_OPT_THREADS,
	OPT_JSON("Print the counts as one JSON object"),
	{.name = NULL},
};

const struct command cmd_backup_restore = {
	.name = "backup restore",
	.operands = "SNAPSHOT PATH…",
	.optional = 1,
	.summary = "restore a snapshot, or parts of it, into a folder",
	.opts = backup_restore_opts,
	.description = "Restores everything in the snapshot, or the PATHs and what is below them, as 'sluice backup "
		       "ls' shows them, below DIR, with modes, times, attributes, links and holes. Nothing outside DIR "
		       "is written, whatever the repository contains. An existing file with the size and time of the "
		       "snapshot's is left alone, so an interrupted run resumes with the same command. With "
		       "--overwrite, such a file is read, and replaced if its bytes differ. A damaged block is "
		       "reported with its file (status 65), and all other files are restored.",
	.example = "sluice backup restore latest --to ./restored --repo ./repo\n"
		   "sluice backup restore 3fa2 /etc/ssh --to / --overwrite --repo /mnt/disk/backups",
	.run = backup_restore_run,
};
