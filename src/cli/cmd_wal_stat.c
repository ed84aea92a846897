/* SPDX-License-Identifier: Apache-2.0 */
/* sluice wal stat: the counts of a log. */
#include "base/time.h"
#include "commands.h"
#include "progress.h"
#include "stop.h"
#include "text.h"
#include "walfile.h"

#include <inttypes.h>

struct stat_scan {
	struct cli *cli;
	struct progress progress;
};

static int on_progress(uint64_t done, uint64_t total, void *ctx)
{
	struct stat_scan *s = ctx;

	progress_update(&s->progress, done, total);
	return stop_requested() ? SL_ECANCELLED : 0;
}

/* Other damage is a number in the output; an archive that lost its end would otherwise look like a short one. */
static int on_damage(const struct sl_wal_damage *damage, void *ctx)
{
	struct stat_scan *s = ctx;
	char text[1024];

	if (!damage->of_archive)
		return 0;
	walfile_describe(text, sizeof(text), damage);
	cli_say(s->cli, SL_LOG_WARN, "the archive is damaged, only what can be decompressed is counted: %s", text);
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

static void print_json(struct out *out, const char *path, const struct sl_wal_stats *stats)
{
	json_t *j = walfile_stats_json(stats);
	char sent[TEXT_INCARNATION_BYTES];

	json_object_set_new(j, "file", text_json(path));
	json_object_set_new(j, "sent_incarnation",
			    stats->sent_incarnation ? json_string(text_incarnation(sent, stats->sent_incarnation))
						    : json_null());
	json_object_set_new(j, "oldest_pending_ms",
			    stats->pending ? json_integer(stats->oldest_pending_ms) : json_null());
	json_object_set_new(j, "oldest_pending_age_ms",
			    stats->pending ? json_integer(pending_age_ms(stats)) : json_null());
	out_json(out, j);
	out_str(out, "\n");
}

static void print_text(struct out *out, const char *path, const struct sl_wal_stats *s)
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
			   text_time(b, s->oldest_pending_ms));
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
		out_str(out, "version         unknown (no sound header)\n");
}

static int run(struct cli *cli, const struct parsed *args)
{
	struct stat_scan s = {.cli = cli};
	struct sl_wal_scan_opts opts = {
		SL_WAL_SCAN_OPTS_INIT,  .env = &cli->env,           .key_file = opt_str(args, "key-file"),
		.on_damage = on_damage, .on_progress = on_progress, .ctx = &s};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;
	const char *path = args->operands[0];
	int rc = walfile_check(cli, path);

	if (rc)
		return rc;
	progress_start(&s.progress, cli, 0);
	rc = sl_wal_scan(path, &opts, &stats, &err);
	progress_end(&s.progress);
	if (rc)
		return stop_requested() ? cli_interrupted(cli) : cli_fail(cli, &err, path);
	if (opt_flag(args, "json"))
		print_json(&cli->out, path, &stats);
	else
		print_text(&cli->out, path, &stats);
	return EXIT_OK;
}

static const struct opt opts[] = {
	WALFILE_OPT_JSON,
	WALFILE_OPT_KEY_FILE,
	{.name = NULL},
};

const struct command cmd_wal_stat = {
	.name = "wal stat",
	.operands = "FILE",
	.summary = "count the records of a log",
	.opts = opts,
	.description = "Prints records by status, bytes, the age of the oldest pending record, damaged ranges, "
		       "segments, incarnation "
		       "and format version of FILE, its sealed segments included, or of a .zst archive. Nothing is "
		       "locked or changed. "
		       "Damage is counted and does not change the status; 'sluice wal verify' judges it.",
	.example = "sluice wal stat ./demo.wal\nsluice wal stat --json ./demo.wal | jq .pending",
	.run = run,
};
