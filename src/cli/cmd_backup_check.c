/* SPDX-License-Identifier: Apache-2.0 */
/* sluice backup check: is everything that the snapshots need there, and right. */
#include "backupfindings.h"
#include "backupwatch.h"
#include "commands.h"
#include "text.h"

#include <inttypes.h>

static int checked(struct backupfindings *c, const struct sl_backup_checked *r, double seconds)
{
	char snapshots[TEXT_COUNT_BYTES], packs[TEXT_COUNT_BYTES], bytes[TEXT_TIME_BYTES], count[TEXT_COUNT_BYTES];
	uint64_t wrong = r->findings - (r->harmless < r->findings ? r->harmless : r->findings);

	backupfindings_end(c, json_pack("{s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "ok", wrong == 0, "read_data",
					opt_flag(c->args, "read-data"), "snapshots", (json_int_t)r->snapshots, "packs",
					(json_int_t)r->packs, "blocks", (json_int_t)r->blocks, "bytes",
					(json_int_t)r->bytes, "findings_total", (json_int_t)r->findings, "harmless",
					(json_int_t)r->harmless, "seconds", seconds));
	if (!c->json && !wrong)
		out_printf(&c->cli->out, "ok: %s, %" PRIu64 " blocks in %s, %s%s, in %.1f s\n",
			   text_count(snapshots, r->snapshots, "snapshot"), r->blocks,
			   text_count(packs, r->packs, "pack"), text_bytes(bytes, r->bytes),
			   opt_flag(c->args, "read-data") ? ", every byte read" : "", seconds);
	if (!wrong)
		return EXIT_OK;
	(void)out_flush(&c->cli->out);
	cli_say(c->cli, SL_LOG_ERROR, "%s: %s; 'sluice backup repair' keeps what is right", c->repo.path,
		text_count(count, wrong, "finding"));
	return EXIT_BAD_DATA;
}

static int check(struct backupfindings *c)
{
	struct sl_backup_check_opts opts = {SL_BACKUP_CHECK_OPTS_INIT,
					    .read_data = opt_flag(c->args, "read-data") ? SL_ON : SL_OFF,
					    .on_finding = backupfindings_add, .ctx = c};
	struct sl_backup_checked result = {.struct_size = sizeof(result)};
	struct sl_err err = SL_ERR_INIT;
	struct backupwatch watch;
	double seconds;
	int rc = backupwatch_start(&watch, c->cli, c->repo.backup, 0);

	if (rc)
		return rc;
	backupfindings_begin(c);
	rc = sl_backup_check(c->repo.backup, &opts, &result, &err);
	seconds = backupwatch_stop(&watch);
	if (rc && !(rc == SL_ECORRUPT && result.findings > result.harmless))
		return backupfindings_fail(c, &err);
	return checked(c, &result, seconds);
}

static int check_run(struct cli *cli, const struct parsed *args)
{
	struct backupfindings c = {.cli = cli, .args = args, .json = opt_flag(args, "json")};
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .threads = (int32_t)opt_num(args, "threads")};
	int rc = backuprepo_open(&c.repo, cli, args, &opts);

	rc = rc ? rc : check(&c);
	backuprepo_close(&c.repo);
	return rc;
}

static const struct opt check_opts[] = {
	BACKUP_OPTS_REPO{.name = "read-data",
			 .kind = OPT_FLAG,
			 .help = "Read every byte of every pack and compare every block with its id"},
	BACKUP_OPT_THREADS BACKUP_OPT_JSON("One JSON object with all findings and counts"){.name = NULL},
};

const struct command cmd_backup_check = {
	.name = "backup check",
	.operands = "",
	.summary = "prove that every snapshot can be restored",
	.opts = check_opts,
	.description =
		"Reads every snapshot and the directory of every pack: all blocks that a snapshot needs must be in "
		"packs that are there, whole and of the right size. With --read-data, every byte is read and compared. "
		"Status 0 and a summary when all is well; 65 and a line for everything that is wrong otherwise, with "
		"the snapshot and file that it concerns. A note is harmless. Nothing is changed, and backups may run "
		"meanwhile.",
	.example = "sluice backup check --repo ./repo\nsluice backup check --read-data --json --repo ./repo",
	.run = check_run,
};
