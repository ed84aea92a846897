/* SPDX-License-Identifier: Apache-2.0 */
/* sluice wal verify and recover: look for damage, and set it aside. Both report every range as it is found. */
#include "base/time.h"
#include "commands.h"
#include "progress.h"
#include "stop.h"
#include "text.h"
#include "walfile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct ranges {
	struct cli *cli;
	int json;
	uint64_t reported, damaged;
	int of_archive;
	struct progress progress;
};

/* JSON output is one object, written as it grows: any number of ranges needs no memory. */
static void begin(struct ranges *r, const char *path)
{
	if (!r->json)
		return;
	out_str(&r->cli->out, "{\"file\":");
	out_json(&r->cli->out, text_json(path));
	out_str(&r->cli->out, ",\"ranges\":[");
}

/* Close the object with the counts (extra ones may be NULL; taken), or with the error that ended the work. */
static void end_json(struct ranges *r, const struct sl_wal_stats *stats, json_t *extra, const struct sl_err *err)
{
	json_t *rest = err ? json_pack("{s:s, s:o}", "code", sl_err_name(err->code), "error", text_json(err->msg))
			   : walfile_stats_json(stats);
	char *text;

	if (extra)
		json_object_update(rest, extra);
	json_decref(extra);
	if (!r->json) {
		json_decref(rest);
		return;
	}
	json_object_set_new(rest, "ok", json_boolean(!err && !r->damaged));
	text = json_dumps(rest, JSON_COMPACT);
	json_decref(rest);
	out_str(&r->cli->out, "],");
	out_str(&r->cli->out, text ? text + 1 : "}"); /* its fields join those that are written */
	out_str(&r->cli->out, "\n");
	free(text);
}

static int on_damage(const struct sl_wal_damage *damage, void *ctx)
{
	struct ranges *r = ctx;
	char text[1024], line[1024];

	r->damaged += !damage->declared && !damage->torn_tail;
	r->of_archive |= damage->of_archive;
	if (r->json) {
		out_str(&r->cli->out, r->reported ? "," : "");
		out_json(&r->cli->out, walfile_damage_json(damage));
	} else {
		walfile_describe(text, sizeof(text), damage);
		text_line(line, sizeof(line), text);
		out_printf(&r->cli->out, "%s: %s\n",
			   damage->declared    ? "declared hole"
			   : damage->torn_tail ? "torn tail"
					       : "damaged",
			   line);
	}
	r->reported++;
	return cli_stopped(r->cli);
}

static int on_progress(uint64_t done, uint64_t total, void *ctx)
{
	struct ranges *r = ctx;

	progress_update(&r->progress, done, total);
	return cli_stopped(r->cli);
}

static void print_summary(struct ranges *r, const char *path, const char *verdict, const struct sl_wal_stats *stats)
{
	char text[512];

	if (r->json)
		return;
	walfile_summary(text, sizeof(text), stats);
	text_name(&r->cli->out, path);
	out_printf(&r->cli->out, ": %s: %s\n", verdict, text);
}

/* The scan or recovery failed. */
static int failed(struct ranges *r, const struct sl_err *err, const char *path)
{
	end_json(r, NULL, NULL, err);
	if (out_failed(&r->cli->out))
		return EXIT_OK; /* told at the end */
	return stop_requested() ? cli_interrupted(r->cli) : cli_fail(r->cli, err, path);
}

static int verify_run(struct cli *cli, const struct parsed *args)
{
	struct ranges r = {.cli = cli, .json = opt_flag(args, "json")};
	struct sl_wal_scan_opts opts = {
		SL_WAL_SCAN_OPTS_INIT,  .env = &cli->env,           .key_file = opt_str(args, "key-file"),
		.on_damage = on_damage, .on_progress = on_progress, .ctx = &r};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;
	const char *path = args->operands[0];
	int rc = walfile_check(cli, path);

	if (rc)
		return rc;
	begin(&r, path);
	progress_start(&r.progress, cli, 0);
	rc = sl_wal_scan(path, &opts, &stats, &err);
	progress_end(&r.progress);
	if (rc)
		return failed(&r, &err, path);
	end_json(&r, &stats, NULL, NULL);
	print_summary(&r, path, r.damaged ? "damaged" : "ok", &stats);
	if (!r.damaged)
		return EXIT_OK;
	(void)out_flush(&cli->out);
	walfile_tell_damaged(cli, path, r.damaged, r.of_archive);
	return EXIT_BAD_DATA;
}

static const struct opt verify_opts[] = {
	WALFILE_OPT_JSON,
	WALFILE_OPT_KEY_FILE,
	{.name = NULL},
};

const struct command cmd_wal_verify = {
	.name = "wal verify",
	.operands = "FILE",
	.summary = "look for damage in a log, changing nothing",
	.opts = verify_opts,
	.description = "Reads every record of FILE and its sealed segments, or of a .zst archive, and checks it. "
		       "Status 0 and a "
		       "summary when all is well: a torn tail, which a crash in the middle of a write leaves, is "
		       "reported but is not "
		       "damage, and so is a hole that an earlier recovery declared. Status 65 and every damaged range "
		       "otherwise. "
		       "Nothing is locked or changed. With --key-file the seal of every payload of an encrypted log is "
		       "checked too.",
	.example = "sluice wal verify ./demo.wal",
	.run = verify_run,
};

/* How many good records lie in the log now. Cutting throws away those behind the damage, which a person wants to know;
 * recovery itself only sees what is left. 0 when unknown. */
static uint64_t count_records(struct cli *cli, const char *path)
{
	struct sl_wal_scan_opts opts = {SL_WAL_SCAN_OPTS_INIT, .env = &cli->env};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};

	return sl_wal_scan(path, &opts, &stats, NULL) ? 0 : stats.records;
}

static void tell_recovered(struct ranges *r, const char *path, uint64_t cut)
{
	char ranges[TEXT_COUNT_BYTES], records[TEXT_COUNT_BYTES];

	if (r->damaged)
		cli_say(r->cli, SL_LOG_WARN, "%s: %s quarantined next to the log", path,
			text_count(ranges, r->damaged, "damaged range"));
	if (cut)
		cli_say(r->cli, SL_LOG_WARN, "%s: %s after the damage cut off; they are in the quarantined bytes", path,
			text_count(records, cut, "good record"));
}

static int recover_run(struct cli *cli, const struct parsed *args)
{
	struct ranges r = {.cli = cli, .json = opt_flag(args, "json")};
	struct sl_wal_recover_opts opts = {SL_WAL_RECOVER_OPTS_INIT, .wal = walfile_opts(cli, args),
					   .new_incarnation = opt_flag(args, "new-incarnation"), .on_damage = on_damage,
					   .ctx = &r};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;
	struct walfile file;
	const char *path = args->operands[0];
	int64_t started_ms = sl__clock_ms();
	uint64_t before = 0, cut;
	int rc = walfile_split(cli, path, &file);

	rc = rc ? rc : walfile_check(cli, path);
	if (rc)
		return rc;
	if (opts.wal.on_corruption == SL_WAL_TRUNCATE)
		before = count_records(cli, path);
	begin(&r, path);
	do
		rc = sl_wal_recover(path, &opts, &stats, &err);
	while (rc && walfile_lock_again(args, rc, started_ms));
	if (rc)
		return failed(&r, &err, path);
	cut = before > stats.records ? before - stats.records : 0;
	tell_recovered(&r, path, cut);
	r.damaged = 0; /* the log is well now */
	end_json(&r, &stats, json_pack("{s:I}", "cut_records", (json_int_t)cut), NULL);
	print_summary(&r, path, "recovered", &stats);
	return EXIT_OK;
}

static const struct opt recover_opts[] = {
	WALFILE_OPT_ON_CORRUPTION,
	{.name = "new-incarnation",
	 .kind = OPT_FLAG,
	 .help = "Restart a stream that was stopped on a conflict under a new incarnation; pending records are sent "
		 "again"},
	WALFILE_OPT_JSON,
	WALFILE_OPT_KEY_FILE,
	WALFILE_OPT_LOCK_WAIT,
	{.name = NULL},
};

const struct command cmd_wal_recover = {
	.name = "wal recover",
	.operands = "FILE",
	.summary = "bring a log into order after a crash or damage",
	.opts = recover_opts,
	.description = "Does what opening a log does: trims a torn tail, repairs the header, and deals with damage as "
		       "--on-corruption says. Bytes that are taken out are kept beside the log as "
		       "<segment>.damaged-<offset>, and the "
		       "missing sequences are declared as a hole. Every range is reported, and with "
		       "--on-corruption=truncate how many good records were cut off "
		       "with it. Running it twice is the same as once.",
	.example = "sluice wal recover ./demo.wal\nsluice wal recover --on-corruption=refuse ./demo.wal",
	.run = recover_run,
};
