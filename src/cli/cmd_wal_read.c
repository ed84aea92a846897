/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice wal dump, stat, verify and recover: read a log to its end. The first three lock and change nothing; recover
 * does what opening a log does. Every damaged range is reported when it is found.
 */
#include "base/time.h"
#include "commands.h"
#include "progress.h"
#include "stop.h"
#include "text.h"
#include "walfile.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PREVIEW_BYTES = 120 };

struct scan {
	struct cli *cli;
	const char *path;
	bool json;
	uint64_t reported, damaged; /* ranges */
	bool of_archive;            /* the damage is in the archive, not in the log */
	struct progress progress;
};

static int on_scan_progress(uint64_t done, uint64_t total, void *ctx)
{
	struct scan *s = ctx;

	progress_update(&s->progress, done, total);
	return cli_stopped(s->cli);
}

/* Scan the log with the callbacks that opts has. 0 or a negative SL_E…. */
static int scan_log(struct scan *s, const struct parsed *args, struct sl_wal_scan_opts *opts,
		    struct sl_wal_stats *stats, struct sl_err *err)
{
	int rc;

	opts->env = &s->cli->env;
	opts->key_file = opt_str(args, "key-file");
	opts->on_progress = on_scan_progress;
	opts->ctx = s;
	progress_start(&s->progress, s->cli, opts->on_record != NULL);
	rc = sl_wal_scan(s->path, opts, stats, err);
	progress_end(&s->progress);
	return rc;
}

/* The exit code of a scan that found no or some damage. */
static int scan_code(struct scan *s)
{
	const char *advice = "'sluice wal recover' quarantines it";
	char count[TEXT_COUNT_BYTES];
	size_t n = strlen(s->path);

	if (!s->damaged)
		return EXIT_OK;
	(void)out_flush(&s->cli->out);
	/* What to do depends on where the damage is: a recovery works on logs only. */
	if (s->of_archive)
		advice = "the parts that could be decompressed were read; restore the rest from a copy of the archive";
	else if (n > 4 && strcmp(s->path + n - 4, ".zst") == 0)
		advice = "decompress it with 'zstd -d' and recover the log";
	cli_say(s->cli, SL_LOG_ERROR, "%s: %s; %s", s->path, text_count(count, s->damaged, "damaged range"), advice);
	return EXIT_BAD_DATA;
}

/* ---- dump ---- */

static int on_dump_record(const struct sl_wal_record *r, void *ctx)
{
	static const char *const names[] = {
		[SL_WAL_PENDING] = "pending", [SL_WAL_SENT] = "sent", [SL_WAL_FAILED] = "failed"};
	const char *status =
		(size_t)r->status < SL_COUNT(names) && names[r->status] != NULL ? names[r->status] : "unknown";
	struct scan *s = ctx;
	struct out *out = &s->cli->out;
	char when[TEXT_TIME_BYTES], size[TEXT_COUNT_BYTES];

	if (s->json) {
		/* Written by hand: nothing here needs escaping, and a payload is never held twice. */
		out_printf(out,
			   "{\"offset\":%" PRIu64 ",\"length\":%" PRIu64 ",\"sequence\":%" PRIu64
			   ",\"status\":\"%s\",\"timestamp_ms\":%" PRId64 ",\"payload_b64\":\"",
			   r->offset, r->length, r->sequence, status, r->timestamp_ms);
		out_b64(out, r->payload, r->payload_len);
		out_str(out, "\"}\n");
		return cli_stopped(s->cli);
	}
	out_printf(out, "%" PRIu64 "  %s  %-7s  %s@%" PRIu64 "  %s  ", r->sequence,
		   text_moment(when, out, r->timestamp_ms), status, r->segment != NULL ? r->segment : "", r->offset,
		   text_count(size, r->payload_len, "byte"));
	text_quoted(out, r->payload, r->payload_len, PREVIEW_BYTES);
	out_str(out, "\n");
	return cli_stopped(s->cli);
}

static int on_dump_damage(const struct sl_wal_damage *damage, void *ctx)
{
	struct scan *s = ctx;
	char text[1024];

	walfile_describe(text, sizeof(text), damage);
	if (damage->declared)
		cli_say(s->cli, SL_LOG_WARN, "declared hole: %s", text);
	else if (damage->torn_tail)
		cli_say(s->cli, SL_LOG_WARN, "torn tail, never acknowledged: %s", text);
	else
		cli_say(s->cli, SL_LOG_ERROR, "damaged: %s", text);
	s->damaged += !damage->declared && !damage->torn_tail;
	s->of_archive |= damage->of_archive;
	return cli_stopped(s->cli);
}

static int wal_dump_run(struct cli *cli, const struct parsed *args)
{
	struct scan s = {.cli = cli, .path = args->operands[0], .json = opt_flag(args, "json")};
	struct sl_wal_scan_opts opts = {SL_WAL_SCAN_OPTS_INIT, .on_record = on_dump_record,
					.on_damage = on_dump_damage};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;
	int rc = walfile_check(cli, s.path);

	if (rc != 0)
		return rc;
	rc = scan_log(&s, args, &opts, &stats, &err);
	if (rc != 0 && stop_requested())
		return cli_interrupted(cli);
	if (rc != 0)
		return out_failed(&cli->out) ? EXIT_OK
					     : cli_fail(cli, &err, s.path); /* cli_finish reports the output */
	if (stats.format_version == 2 && opts.key_file == NULL)
		cli_say(cli, SL_LOG_WARN, "%s is encrypted: payloads are shown as stored; give --key-file", s.path);
	return scan_code(&s);
}

static const struct opt wal_dump_opts[] = {
	OPT_JSON("Print one JSON object per record: offset, length, sequence, status, timestamp_ms, payload_b64"),
	WALFILE_OPT_KEY_FILE,
	{.name = NULL},
};

const struct command cmd_wal_dump = {
	.name = "wal dump",
	.operands = "FILE",
	.summary = "print the records of a log",
	.opts = wal_dump_opts,
	.description =
		"Prints one line per data record: sequence, time, effective status (pending, sent or failed), place, "
		"size and the beginning of the payload. FILE is the active file of a log, whose sealed segments are "
		"read first, a single segment, or a .zst archive. Nothing is locked or changed. If the log is damaged, "
		"all valid records are printed; if an archive is damaged or cut off, those that can be decompressed. "
		"The damage is reported on stderr, and the status is 65. Offsets count within a record's segment.",
	.example = "sluice wal dump ./demo.wal\nsluice wal dump --json ./demo.wal.zst | jq -r .payload_b64 | base64 -d",
	.run = wal_dump_run,
};

/* ---- stat ---- */

/* Other damage is a number in the output; an archive that lost its end would otherwise look like a short one. */
static int on_stat_damage(const struct sl_wal_damage *damage, void *ctx)
{
	struct scan *s = ctx;
	char text[1024];

	if (!damage->of_archive)
		return 0;
	walfile_describe(text, sizeof(text), damage);
	cli_say(s->cli, SL_LOG_WARN, "the archive is damaged; only records that could be decompressed are counted: %s",
		text);
	return 0;
}

/* A clock that went back makes no negative age; a time as foreign as INT64_MIN makes the greatest one. */
static int64_t pending_age_ms(const struct sl_wal_stats *stats)
{
	int64_t age;

	if (__builtin_sub_overflow(sl__clock_real_ms(), stats->oldest_pending_ms, &age))
		return stats->oldest_pending_ms < 0 ? INT64_MAX : 0;
	return age > 0 ? age : 0;
}

static void print_stats_text(struct out *out, const char *path, const struct sl_wal_stats *s)
{
	char a[TEXT_TIME_BYTES], b[TEXT_TIME_BYTES], incarnation[TEXT_INCARNATION_BYTES];

	text_name(out, path);
	out_printf(out, "\nrecords         %" PRIu64 " (%" PRIu64 " pending, %" PRIu64 " sent, %" PRIu64 " failed)\n",
		   s->records, s->pending, s->sent, s->failed);
	if (s->last_sequence)
		out_printf(out, "sequences       %" PRIu64 " to %" PRIu64 "\n", s->first_sequence, s->last_sequence);
	else
		out_str(out, "sequences       none\n");
	out_printf(out, "holes           %" PRIu64 "\n", s->holes);
	out_printf(out, "bytes           %" PRIu64 " (%s)\n", s->bytes, text_bytes(a, s->bytes));
	out_printf(out, "pending bytes   %" PRIu64 " (%s)\n", s->pending_bytes, text_bytes(a, s->pending_bytes));
	if (s->pending)
		out_printf(out, "oldest pending  %s ago (%s)\n", text_age(a, pending_age_ms(s)),
			   text_moment(b, out, s->oldest_pending_ms));
	else
		out_str(out, "oldest pending  none\n");
	out_printf(out, "damaged ranges  %" PRIu64 "\n", s->damaged_ranges);
	out_printf(out, "torn bytes      %" PRIu64 "\n", s->torn_bytes);
	out_printf(out, "segments        %" PRIu64 "\n", s->segments);
	out_printf(out, "incarnation     %s\n",
		   s->incarnation ? text_incarnation(incarnation, s->incarnation) : "none (a foreign log)");
	if (s->sent_incarnation != s->incarnation)
		out_printf(out, "sent as         %s\n", text_incarnation(incarnation, s->sent_incarnation));
	if (s->format_version)
		out_printf(out, "version         %" PRIu32 "%s\n", s->format_version,
			   s->format_version == 2 ? " (encrypted)" : "");
	else
		out_str(out, "version         unknown (no valid header)\n");
}

static int wal_stat_run(struct cli *cli, const struct parsed *args)
{
	struct scan s = {.cli = cli, .path = args->operands[0]};
	struct sl_wal_scan_opts opts = {SL_WAL_SCAN_OPTS_INIT, .on_damage = on_stat_damage};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;
	char sent[TEXT_INCARNATION_BYTES];
	json_t *j;
	int rc = walfile_check(cli, s.path);

	if (rc != 0)
		return rc;
	if (scan_log(&s, args, &opts, &stats, &err))
		return stop_requested() ? cli_interrupted(cli) : cli_fail(cli, &err, s.path);
	if (!opt_flag(args, "json")) {
		print_stats_text(&cli->out, s.path, &stats);
		return EXIT_OK;
	}
	j = walfile_stats_json(&stats);
	json_object_set_new(j, "file", text_json(s.path));
	json_object_set_new(j, "sent_incarnation",
			    stats.sent_incarnation ? json_string(text_incarnation(sent, stats.sent_incarnation))
						   : json_null());
	json_object_set_new(j, "oldest_pending_ms",
			    stats.pending ? json_integer(stats.oldest_pending_ms) : json_null());
	json_object_set_new(j, "oldest_pending_age_ms",
			    stats.pending ? json_integer(pending_age_ms(&stats)) : json_null());
	out_json_line(&cli->out, j);
	return EXIT_OK;
}

/* Of stat and verify. */
static const struct opt wal_stat_opts[] = {
	OPT_JSON("Print JSON"),
	WALFILE_OPT_KEY_FILE,
	{.name = NULL},
};

const struct command cmd_wal_stat = {
	.name = "wal stat",
	.operands = "FILE",
	.summary = "count the records of a log",
	.opts = wal_stat_opts,
	.description = "Prints records by status, bytes, the age of the oldest pending record, damaged ranges, "
		       "segments, incarnation and format version of FILE, its sealed segments included, or of a .zst "
		       "archive. Nothing is locked or changed. Damage is counted and does not change the status; "
		       "'sluice wal verify' judges it.",
	.example = "sluice wal stat ./demo.wal\nsluice wal stat --json ./demo.wal | jq .pending",
	.run = wal_stat_run,
};

/* ---- verify and recover ---- */

/* JSON output is one object, written as it grows: any number of ranges needs no memory. */
static void begin_ranges(struct scan *s)
{
	if (!s->json)
		return;
	out_str(&s->cli->out, "{\"file\":");
	out_json(&s->cli->out, text_json(s->path));
	out_str(&s->cli->out, ",\"ranges\":[");
}

/* Close the object with the counts (extra ones may be NULL; taken), or with the error that ended the work. */
static void end_ranges(struct scan *s, const struct sl_wal_stats *stats, json_t *extra, const struct sl_err *err)
{
	json_t *rest = err != NULL
			       ? json_pack("{s:s, s:o}", "code", sl_err_name(err->code), "error", text_json(err->msg))
			       : walfile_stats_json(stats);

	if (extra != NULL)
		json_object_update(rest, extra);
	json_decref(extra);
	json_object_set_new(rest, "ok", json_boolean(!err && !s->damaged));
	if (s->json)
		out_json_end(&s->cli->out, rest);
	else
		json_decref(rest);
}

static int on_range(const struct sl_wal_damage *damage, void *ctx)
{
	struct scan *s = ctx;
	char text[1024], line[1024];

	s->damaged += !damage->declared && !damage->torn_tail;
	s->of_archive |= damage->of_archive;
	if (s->json) {
		out_str(&s->cli->out, s->reported ? "," : "");
		out_json(&s->cli->out, walfile_damage_json(damage));
	} else {
		walfile_describe(text, sizeof(text), damage);
		text_line(line, sizeof(line), text);
		out_printf(&s->cli->out, "%s: %s\n",
			   damage->declared    ? "declared hole"
			   : damage->torn_tail ? "torn tail"
					       : "damaged",
			   line);
	}
	s->reported++;
	return cli_stopped(s->cli);
}

/* "demo.wal: ok: 12 records (10 pending, 2 sent, 0 failed), sequences 1 to 12, 512 B in 1 segment" */
static void print_ranges_summary(struct scan *s, const char *verdict, const struct sl_wal_stats *stats)
{
	char bytes[TEXT_TIME_BYTES], records[TEXT_COUNT_BYTES], segments[TEXT_COUNT_BYTES];
	struct out *out = &s->cli->out;

	if (s->json)
		return;
	text_name(out, s->path);
	out_printf(out, ": %s: %s (%" PRIu64 " pending, %" PRIu64 " sent, %" PRIu64 " failed)", verdict,
		   text_count(records, stats->records, "record"), stats->pending, stats->sent, stats->failed);
	if (stats->first_sequence != stats->last_sequence)
		out_printf(out, ", sequences %" PRIu64 " to %" PRIu64, stats->first_sequence, stats->last_sequence);
	else if (stats->last_sequence)
		out_printf(out, ", sequence %" PRIu64, stats->last_sequence);
	out_printf(out, ", %s in %s\n", text_bytes(bytes, stats->bytes),
		   text_count(segments, stats->segments, "segment"));
}

/* The scan or recovery failed. */
static int scan_failed(struct scan *s, const struct sl_err *err)
{
	end_ranges(s, NULL, NULL, err);
	if (out_failed(&s->cli->out))
		return EXIT_OK; /* cli_finish reports it */
	return stop_requested() ? cli_interrupted(s->cli) : cli_fail(s->cli, err, s->path);
}

static int wal_verify_run(struct cli *cli, const struct parsed *args)
{
	struct scan s = {.cli = cli, .path = args->operands[0], .json = opt_flag(args, "json")};
	struct sl_wal_scan_opts opts = {SL_WAL_SCAN_OPTS_INIT, .on_damage = on_range};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;
	int rc = walfile_check(cli, s.path);

	if (rc != 0)
		return rc;
	begin_ranges(&s);
	if (scan_log(&s, args, &opts, &stats, &err))
		return scan_failed(&s, &err);
	end_ranges(&s, &stats, NULL, NULL);
	print_ranges_summary(&s, s.damaged ? "damaged" : "ok", &stats);
	return scan_code(&s);
}

const struct command cmd_wal_verify = {
	.name = "wal verify",
	.operands = "FILE",
	.summary = "check a log for damage without changing it",
	.opts = wal_stat_opts,
	.description = "Reads every record of FILE and its sealed segments, or of a .zst archive, and checks it. "
		       "Prints a summary with status 0 when all is well. A torn tail, left by a crash in the middle of "
		       "a write, and a hole that an earlier recovery declared are reported but are not damage. "
		       "Otherwise prints every damaged range, and the status is 65. Nothing is locked or changed. "
		       "--key-file also checks the seal of every payload of an encrypted log.",
	.example = "sluice wal verify ./demo.wal\n"
		   "sluice wal verify ./demo.wal --json",
	.run = wal_verify_run,
};

static int wal_recover_run(struct cli *cli, const struct parsed *args)
{
	struct scan s = {.cli = cli, .path = args->operands[0], .json = opt_flag(args, "json")};
	const struct sl_wal_opts wal = walfile_opts(cli, args);
	struct sl_wal_recover_opts opts = {SL_WAL_RECOVER_OPTS_INIT, .wal = &wal,
					   .new_incarnation = opt_flag(args, "new-incarnation"), .on_damage = on_range,
					   .ctx = &s};
	struct sl_wal_scan_opts count = {SL_WAL_SCAN_OPTS_INIT, .env = &cli->env};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)}, before = {.struct_size = sizeof(before)};
	char ranges[TEXT_COUNT_BYTES], records[TEXT_COUNT_BYTES];
	struct sl_err err = SL_ERR_INIT;
	struct walfile file;
	int64_t started_ms = sl__clock_ms();
	uint64_t cut = 0;
	int rc = walfile_split(cli, s.path, &file);

	if (rc == 0)
		rc = walfile_check(cli, s.path);
	if (rc != 0)
		return rc;
	/* How many good records are in the log now? Cutting discards those after the damage, and recovery itself only
	 * sees what is left. */
	if (wal.on_corruption == SL_WAL_TRUNCATE && sl_wal_scan(s.path, &count, &before, NULL))
		before.records = 0;
	begin_ranges(&s);
	do
		rc = sl_wal_recover(s.path, &opts, &stats, &err);
	while (rc != 0 && walfile_lock_again(args, rc, started_ms));
	if (rc != 0)
		return scan_failed(&s, &err);
	if (s.damaged)
		cli_say(cli, SL_LOG_WARN, "%s: %s quarantined next to the log", s.path,
			text_count(ranges, s.damaged, "damaged range"));
	if (before.records > stats.records) {
		cut = before.records - stats.records;
		cli_say(cli, SL_LOG_WARN, "%s: %s after the damage cut off; they are in the quarantined bytes", s.path,
			text_count(records, cut, "good record"));
	}
	s.damaged = 0; /* the log is well now */
	end_ranges(&s, &stats, json_pack("{s:I}", "cut_records", (json_int_t)cut), NULL);
	print_ranges_summary(&s, "recovered", &stats);
	return EXIT_OK;
}

static const struct opt wal_recover_opts[] = {
	WALFILE_OPT_ON_CORRUPTION,
	{.name = "new-incarnation",
	 .kind = OPT_FLAG,
	 .help = "Restart a stream that stopped on a conflict under a new incarnation, and send its pending records "
		 "again"},
	OPT_JSON("Print JSON"),
	WALFILE_OPT_KEY_FILE,
	WALFILE_OPT_LOCK_WAIT,
	{.name = NULL},
};

const struct command cmd_wal_recover = {
	.name = "wal recover",
	.operands = "FILE",
	.summary = "repair a log after a crash or damage",
	.opts = wal_recover_opts,
	.description =
		"Does what opening a log does: trims a torn tail, repairs the header, and handles damage according to "
		"--on-corruption. The removed bytes are kept next to the log as <segment>.damaged-<offset>, and the "
		"missing sequences are declared as a hole. Every range is reported, and with --on-corruption=truncate "
		"also how many valid records were cut off. It is safe to run it twice.",
	.example = "sluice wal recover ./demo.wal\nsluice wal recover --on-corruption=refuse ./demo.wal",
	.run = wal_recover_run,
};
