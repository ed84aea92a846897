/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice backup check and repair: is everything that the snapshots need there, and right; and keep everything that is.
 * Findings are printed as they come, as lines or as one JSON object that grows, so that any number needs no memory.
 */
#include "backuprepo.h"
#include "commands.h"
#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <sluice/backup_care.h>

struct findings {
	struct cli *cli;
	struct backuprepo *repo;
	struct backupwatch watch;
	bool json;
	uint64_t reported;
};

/* Open the repository and begin the output. 0, or an exit code after a line on stderr. */
static int findings_open(struct findings *c, const struct parsed *args, const struct sl_backup_opts *opts)
{
	struct out *out = &c->cli->out;
	int rc = backuprepo_open(c->repo, c->cli, args, opts);

	if (rc == 0)
		rc = backupwatch_start(&c->watch, c->cli, c->repo->backup);
	if (rc == 0 && c->json) {
		out_str(out, "{\"repo\":");
		out_json(out, text_json(c->repo->path));
		out_str(out, ",\"findings\":[");
	}
	return rc;
}

/* Called by the library, one call at a time. */
static int on_finding(const struct sl_backup_finding *f, void *ctx)
{
	struct findings *c = ctx;
	struct out *out = &c->cli->out;
	char line[1100];

	if (c->json) {
		out_str(out, c->reported++ ? "," : "");
		out_json(out, json_pack("{s:s, s:b, s:o, s:o, s:o, s:o}", "fault", sl_backup_fault_name(f->fault),
					"harmless", f->harmless, "object",
					f->object != NULL ? text_json(f->object) : json_null(), "snapshot",
					f->snapshot != NULL ? text_json(f->snapshot) : json_null(), "path",
					f->path != NULL ? text_json(f->path) : json_null(), "text",
					text_json(f->reason.msg)));
		return cli_stopped(c->cli);
	}
	/* What is wrong, then where: object, snapshot, file, and the reason. */
	out_printf(out, "%s%s", f->harmless ? "note: " : "", sl_backup_fault_name(f->fault));
	if (f->object != NULL) {
		text_line(line, sizeof(line), f->object);
		out_printf(out, " %s", line);
	}
	if (f->snapshot != NULL)
		out_printf(out, ", snapshot %.8s", f->snapshot);
	if (f->path != NULL) {
		text_line(line, sizeof(line), f->path);
		out_printf(out, ", file %s", line);
	}
	text_line(line, sizeof(line), f->reason.msg);
	out_printf(out, "%s%s\n", line[0] ? ": " : "", line);
	return cli_stopped(c->cli);
}

/* The check could not finish: the exit code, after a line on stderr. */
static int findings_fail(struct findings *c, const struct sl_err *err)
{
	if (c->json)
		out_json_end(&c->cli->out, json_pack("{s:b, s:s, s:o}", "ok", 0, "code", sl_err_name(err->code),
						     "error", text_json(err->msg)));
	if (out_failed(&c->cli->out))
		return EXIT_OK; /* cli_finish reports it */
	return stop_requested() ? cli_interrupted(c->cli) : backuprepo_fail(c->repo, err);
}

static int backup_check_run(struct cli *cli, const struct parsed *args)
{
	bool read_data = opt_flag(args, "read-data");
	struct sl_backup_opts open_opts = {SL_BACKUP_OPTS_INIT, .threads = (int32_t)opt_num(args, "threads")};
	SL_CLEANUP(backuprepo_close) struct backuprepo repo = {0};
	struct findings c = {.cli = cli, .repo = &repo, .json = opt_flag(args, "json")};
	struct sl_backup_check_opts opts = {SL_BACKUP_CHECK_OPTS_INIT, .read_data = read_data ? SL_ON : SL_OFF,
					    .on_finding = on_finding, .ctx = &c};
	char snapshots[TEXT_COUNT_BYTES], packs[TEXT_COUNT_BYTES], bytes[TEXT_TIME_BYTES], count[TEXT_COUNT_BYTES];
	struct sl_backup_checked r = {.struct_size = sizeof(r)};
	struct sl_err err = SL_ERR_INIT;
	uint64_t wrong;
	double seconds;
	int rc = findings_open(&c, args, &open_opts);

	if (rc != 0)
		return rc;
	rc = sl_backup_check(repo.backup, &opts, &r, &err);
	seconds = backupwatch_stop(&c.watch);
	wrong = r.findings - SL_MIN(r.harmless, r.findings);
	/* Damage is a result, not a failure of the check. */
	if (rc != 0 && !(rc == SL_ECORRUPT && wrong))
		return findings_fail(&c, &err);
	if (c.json)
		out_json_end(&cli->out,
			     json_pack("{s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "ok", wrong == 0, "read_data",
				       read_data, "snapshots", (json_int_t)r.snapshots, "packs", (json_int_t)r.packs,
				       "blocks", (json_int_t)r.blocks, "bytes", (json_int_t)r.bytes, "findings_total",
				       (json_int_t)r.findings, "harmless", (json_int_t)r.harmless, "seconds", seconds));
	else if (!wrong)
		out_printf(&cli->out, "ok: %s, %" PRIu64 " blocks in %s, %s%s, in %.1f s\n",
			   text_count(snapshots, r.snapshots, "snapshot"), r.blocks, text_count(packs, r.packs, "pack"),
			   text_bytes(bytes, r.bytes), read_data ? ", every byte read" : "", seconds);
	if (!wrong)
		return EXIT_OK;
	/* The findings before the line that counts them. */
	(void)out_flush(&cli->out);
	cli_say(cli, SL_LOG_ERROR, "%s: %s; 'sluice backup repair' saves everything that is undamaged", repo.path,
		text_count(count, wrong, "finding"));
	return EXIT_BAD_DATA;
}

static const struct opt check_opts[] = {
	BACKUP_OPTS_REPO,
	{.name = "read-data",
	 .kind = OPT_FLAG,
	 .help = "Read every byte of every pack and check every block against its id"},
	BACKUP_OPT_THREADS,
	OPT_JSON("Print one JSON object with all findings and counts"),
	{.name = NULL},
};

const struct command cmd_backup_check = {
	.name = "backup check",
	.operands = "",
	.summary = "prove that every snapshot can be restored",
	.opts = check_opts,
	.description = "Reads every snapshot and the directory of every pack: all blocks that a snapshot needs must be "
		       "in packs that exist, whole and of the right size. With --read-data, every byte is read and "
		       "compared. Prints a summary with status 0 when all is well; otherwise a line for everything "
		       "that is wrong, with the snapshot and file that it concerns, and the status is 65. A note is "
		       "harmless. Nothing is changed, and backups may run meanwhile.",
	.example = "sluice backup check --repo ./repo\nsluice backup check --read-data --json --repo ./repo",
	.run = backup_check_run,
};

/* ---- repair ---- */

static int backup_repair_run(struct cli *cli, const struct parsed *args)
{
	SL_CLEANUP(backuprepo_close) struct backuprepo repo = {0};
	struct findings c = {.cli = cli, .repo = &repo, .json = opt_flag(args, "json")};
	char blocks[TEXT_COUNT_BYTES], files[TEXT_COUNT_BYTES], snapshots[TEXT_COUNT_BYTES], packs[TEXT_COUNT_BYTES];
	struct sl_backup_repaired r = {.struct_size = sizeof(r)};
	struct sl_err err = SL_ERR_INIT;
	uint64_t lost;
	double seconds;
	int rc = findings_open(&c, args, NULL);

	if (rc != 0)
		return rc;
	rc = sl_backup_repair(repo.backup, on_finding, &c, &r, &err);
	seconds = backupwatch_stop(&c.watch);
	lost = r.blocks_lost + r.files_lost + r.snapshots_lost;
	if (rc != 0)
		return findings_fail(&c, &err);
	/* What was kept and what is lost; anything lost makes the status 65. */
	if (c.json)
		out_json_end(&cli->out,
			     json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "ok", lost == 0,
				       "packs_rewritten", (json_int_t)r.packs_rewritten, "packs_lost",
				       (json_int_t)r.packs_lost, "blocks_kept", (json_int_t)r.blocks_kept,
				       "blocks_lost", (json_int_t)r.blocks_lost, "indexes_rebuilt",
				       (json_int_t)r.indexes_rebuilt, "snapshots_rewritten",
				       (json_int_t)r.snapshots_rewritten, "snapshots_lost",
				       (json_int_t)r.snapshots_lost, "files_lost", (json_int_t)r.files_lost,
				       "copies_repaired", (json_int_t)r.copies_repaired, "seconds", seconds));
	else
		out_printf(&cli->out, "%s rewritten, %s kept, index rebuilt: %s; %s saved without the lost files\n",
			   text_count(packs, r.packs_rewritten, "pack"), text_count(blocks, r.blocks_kept, "block"),
			   r.indexes_rebuilt ? "yes" : "no", text_count(snapshots, r.snapshots_rewritten, "snapshot"));
	if (!lost)
		return EXIT_OK;
	(void)out_flush(&cli->out);
	cli_say(cli, SL_LOG_ERROR, "lost: %s, %s, %s, %s; the damaged objects are in damaged/",
		text_count(packs, r.packs_lost, "pack"), text_count(blocks, r.blocks_lost, "block"),
		text_count(files, r.files_lost, "file"), text_count(snapshots, r.snapshots_lost, "snapshot"));
	return EXIT_BAD_DATA;
}

static const struct opt repair_opts[] = {
	BACKUP_OPTS_REPO,
	OPT_JSON("Print one JSON object with all findings and counts"),
	{.name = NULL},
};

const struct command cmd_backup_repair = {
	.name = "backup repair",
	.operands = "",
	.summary = "save everything that is not damaged",
	.opts = repair_opts,
	.description =
		"Reads everything. Undamaged blocks of damaged packs are written to new packs, and the index is "
		"rebuilt. A snapshot that misses something is replaced by one, tagged repaired, without the lost "
		"files, each of which is named. Damaged objects are kept below damaged/ in the repository. Status 0 "
		"when nothing is lost, 65 otherwise. A later backup of the same files restores lost blocks.",
	.example = "sluice backup repair --repo ./repo\n"
		   "sluice backup repair --repo ./repo --json",
	.run = backup_repair_run,
};
