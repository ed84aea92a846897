/* SPDX-License-Identifier: Apache-2.0 */
/* sluice backup init and passphrase: a new repository, and another passphrase for one. */
#include "backuprepo.h"
#include "commands.h"
#include "text.h"

/* ---- init ---- */

static const struct askpass_question for_new = {.option = "passphrase-file",
						.environment = "SLUICE_PASSPHRASE_FILE",
						.prompt = "A passphrase for the new repository",
						.twice = 1};

static int backup_init_run(struct cli *cli, const struct parsed *args)
{
	const char *path = args->operands[0];
	struct backuprepo r;
	bool plain = opt_flag(args, "plain");
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .env = &cli->env, .encrypt = plain ? SL_OFF : SL_ON};
	struct askpass pass = {.len = 0};
	struct sl_err err = SL_ERR_INIT;
	char shown[600];
	int rc;

	if (plain && opt_given(args, "passphrase-file"))
		return cli_usage(cli, "--plain and --passphrase-file exclude each other: a repository without "
				      "encryption has no passphrase");
	if (path != NULL && opt_given(args, "repo"))
		return cli_usage(cli, "REPO and --repo exclude each other; give one of them");
	rc = 0;
	if (path != NULL)
		r = (struct backuprepo){.cli = cli, .args = args, .path = path};
	else
		rc = backuprepo_find(&r, cli, args);
	if (rc != 0)
		return rc;
	path = r.path;
	/* The passphrase is asked for before anything is made. */
	rc = plain ? 0 : askpass(&pass, cli, args, &for_new);
	opts.passphrase = plain ? NULL : pass.bytes;
	opts.passphrase_len = pass.len;
	if (rc == 0) {
		rc = backuprepo_driver(&r, true);
		if (rc == 0 && sl_backup_init(&r.driver, &opts, &err))
			rc = backuprepo_fail(&r, &err);
		backuprepo_close(&r);
	}
	askpass_wipe(&pass);
	if (rc != 0)
		return rc;
	/* The warning is part of the result: a lost passphrase cannot be replaced. */
	text_line(shown, sizeof(shown), path);
	if (opt_flag(args, "json"))
		out_json(&cli->out, json_pack("{s:o, s:b}", "repo", text_json(path), "encrypted", !plain));
	else
		out_printf(&cli->out, "created repository %s%s", shown,
			   plain ? ", not encrypted"
				 : ". Keep the passphrase safe: without it the backups cannot be read.");
	out_str(&cli->out, "\n");
	return EXIT_OK;
}

static const struct opt init_opts[] = {
	{.name = "plain",
	 .kind = OPT_FLAG,
	 .help = "Create the repository without encryption and without a passphrase"},
	BACKUP_OPTS_REPO,
	OPT_JSON("Print {\"repo\":…,\"encrypted\":…}"),
	{.name = NULL},
};

const struct command cmd_backup_init = {
	.name = "backup init",
	.operands = "REPO",
	.optional = 1,
	.summary = "create a repository for backups",
	.opts = init_opts,
	.description = "Creates the folder REPO (also --repo, or SLUICE_BACKUP_REPO) if it does not exist, and a "
		       "repository in it. The repository is "
		       "encrypted unless --plain is given: its keys are random and wrapped with a key derived from the "
		       "passphrase, which 'sluice backup passphrase' can change. The passphrase is read from a file or "
		       "asked for twice on the terminal, and never taken from the command line. An existing repository "
		       "is never changed (status 73).",
	.example = "sluice backup init --repo /mnt/disk/backups --passphrase-file ~/.backup-pass\n"
		   "sluice backup init ./repo --plain",
	.run = backup_init_run,
};

/* ---- passphrase ---- */

static const struct askpass_question for_change = {
	.option = "new-passphrase-file", .prompt = "The new passphrase", .twice = 1};

static int backup_passphrase_run(struct cli *cli, const struct parsed *args)
{
	struct askpass pass = {.len = 0};
	SL_CLEANUP(backuprepo_close) struct backuprepo r = {0};
	struct sl_err err = SL_ERR_INIT;
	int rc = backuprepo_open(&r, cli, args, NULL);

	/* The old passphrase has opened the repository; now ask for the new one, twice. */
	if (rc == 0)
		rc = askpass(&pass, cli, args, &for_change);
	if (rc == 0 && sl_backup_change_passphrase(r.backup, pass.bytes, pass.len, &err))
		rc = backuprepo_fail(&r, &err);
	askpass_wipe(&pass);
	if (rc != 0)
		return rc;
	out_str(&cli->out, opt_flag(args, "json") ? "{\"changed\":true}\n" : "passphrase changed\n");
	return EXIT_OK;
}

static const struct opt passphrase_opts[] = {
	BACKUP_OPTS_REPO,
	OPT_TEXT("new-passphrase-file", 0, "FILE",
		 "Read the new passphrase from FILE (default: ask twice on the terminal)"),
	OPT_JSON("Print {\"changed\":true}"),
	{.name = NULL},
};

const struct command cmd_backup_passphrase = {
	.name = "backup passphrase",
	.operands = "",
	.summary = "change the passphrase of a repository",
	.opts = passphrase_opts,
	.description = "The keys of the data stay the same and are wrapped again, so no data is written again. From "
		       "then on, only the new passphrase opens the repository. A copy of the repository that was made "
		       "before still opens with the old one.",
	.example = "sluice backup passphrase --repo ./repo\n"
		   "sluice backup passphrase --repo ./repo --passphrase-file old --new-passphrase-file new",
	.run = backup_passphrase_run,
};
