/* SPDX-License-Identifier: Apache-2.0 */
/* sluice backup repair: keep everything that is not damaged, and say what is lost. */
#include "backupfindings.h"
#include "backupwatch.h"
#include "commands.h"
#include "text.h"

#include <inttypes.h>

static int repaired(struct backupfindings *c, const struct sl_backup_repaired *r, double seconds)
{
	char blocks[TEXT_COUNT_BYTES], files[TEXT_COUNT_BYTES], snapshots[TEXT_COUNT_BYTES];
	char packs[TEXT_COUNT_BYTES];
	uint64_t lost = r->blocks_lost + r->files_lost + r->snapshots_lost;

	backupfindings_end(c, json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "ok", lost == 0,
					"packs_rewritten", (json_int_t)r->packs_rewritten, "packs_lost",
					(json_int_t)r->packs_lost, "blocks_kept", (json_int_t)r->blocks_kept,
					"blocks_lost", (json_int_t)r->blocks_lost, "indexes_rebuilt",
					(json_int_t)r->indexes_rebuilt, "snapshots_rewritten",
					(json_int_t)r->snapshots_rewritten, "snapshots_lost",
					(json_int_t)r->snapshots_lost, "files_lost", (json_int_t)r->files_lost,
					"copies_mended", (json_int_t)r->copies_mended, "seconds", seconds));
	if (!c->json)
		out_printf(&c->cli->out, "%s rewritten, %s kept, index rebuilt: %s; %s without what is lost\n",
			   text_count(packs, r->packs_rewritten, "pack"), text_count(blocks, r->blocks_kept, "block"),
			   r->indexes_rebuilt ? "yes" : "no",
			   text_count(snapshots, r->snapshots_rewritten, "snapshot"));
	if (!lost)
		return EXIT_OK;
	(void)out_flush(&c->cli->out);
	cli_say(c->cli, SL_LOG_ERROR, "lost: %s, %s, %s, %s; what was damaged is kept below damaged/",
		text_count(packs, r->packs_lost, "pack"), text_count(blocks, r->blocks_lost, "block"),
		text_count(files, r->files_lost, "file"), text_count(snapshots, r->snapshots_lost, "snapshot"));
	return EXIT_BAD_DATA;
}

static int repair(struct backupfindings *c)
{
	struct sl_backup_repaired result = {.struct_size = sizeof(result)};
	struct sl_err err = SL_ERR_INIT;
	struct backupwatch watch;
	double seconds;
	int rc = backupwatch_start(&watch, c->cli, c->repo.backup, 0);

	if (rc)
		return rc;
	backupfindings_begin(c);
	rc = sl_backup_repair(c->repo.backup, backupfindings_add, c, &result, &err);
	seconds = backupwatch_stop(&watch);
	return rc ? backupfindings_fail(c, &err) : repaired(c, &result, seconds);
}

static int repair_run(struct cli *cli, const struct parsed *args)
{
	struct backupfindings c = {.cli = cli, .args = args, .json = opt_flag(args, "json")};
	int rc = backuprepo_open(&c.repo, cli, args, NULL);

	rc = rc ? rc : repair(&c);
	backuprepo_close(&c.repo);
	return rc;
}

static const struct opt repair_opts[] = {
	BACKUP_OPTS_REPO BACKUP_OPT_JSON("One JSON object with all findings and counts"){.name = NULL},
};

const struct command cmd_backup_repair = {
	.name = "backup repair",
	.operands = "",
	.summary = "keep everything that is not damaged",
	.opts = repair_opts,
	.description =
		"Reads everything. Blocks of damaged packs that are still right go into new packs, the index is made "
		"anew, and a snapshot that misses something is replaced by one, tagged repaired, without the files "
		"that are lost, each of which is named. Damaged objects are kept below damaged/ in the repository. "
		"Status 0 when nothing is lost, 65 otherwise. A later backup of the same files brings lost blocks "
		"back.",
	.example = "sluice backup repair --repo ./repo",
	.run = repair_run,
};
