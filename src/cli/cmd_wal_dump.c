/* SPDX-License-Identifier: Apache-2.0 */
/* sluice wal dump: every data record of a log, with its effective status. */
#include "commands.h"
#include "progress.h"
#include "stop.h"
#include "text.h"
#include "walfile.h"

#include <inttypes.h>

enum { PREVIEW_BYTES = 120 };

struct dump {
	struct cli *cli;
	int json;
	uint64_t damaged;
	int of_archive;
	struct progress progress;
};

static const char *status_name(enum sl_wal_status status)
{
	switch (status) {
	case SL_WAL_PENDING:
		return "pending";
	case SL_WAL_SENT:
		return "sent";
	case SL_WAL_FAILED:
		return "failed";
	}
	return "unknown";
}

/* Written by hand: nothing here needs escaping, and a payload is never held twice. */
static void print_json(struct out *out, const struct sl_wal_record *r)
{
	out_printf(out,
		   "{\"offset\":%" PRIu64 ",\"length\":%" PRIu64 ",\"sequence\":%" PRIu64
		   ",\"status\":\"%s\",\"timestamp_ms\":%" PRId64 ",\"payload_b64\":\"",
		   r->offset, r->length, r->sequence, status_name(r->status), r->timestamp_ms);
	out_b64(out, r->payload, r->payload_len);
	out_str(out, "\"}\n");
}

static void print_text(struct out *out, const struct sl_wal_record *r)
{
	char when[TEXT_TIME_BYTES], size[TEXT_COUNT_BYTES];

	out_printf(out, "%" PRIu64 "  %s  %-7s  %s@%" PRIu64 "  %s  ", r->sequence, text_time(when, r->timestamp_ms),
		   status_name(r->status), r->segment ? r->segment : "", r->offset,
		   text_count(size, r->payload_len, "byte"));
	text_quoted(out, r->payload, r->payload_len, PREVIEW_BYTES);
	out_str(out, "\n");
}

static int on_record(const struct sl_wal_record *record, void *ctx)
{
	struct dump *d = ctx;

	if (d->json)
		print_json(&d->cli->out, record);
	else
		print_text(&d->cli->out, record);
	return cli_stopped(d->cli);
}

static int on_damage(const struct sl_wal_damage *damage, void *ctx)
{
	struct dump *d = ctx;
	char text[1024];

	walfile_describe(text, sizeof(text), damage);
	if (damage->declared)
		cli_say(d->cli, SL_LOG_WARN, "declared hole: %s", text);
	else if (damage->torn_tail)
		cli_say(d->cli, SL_LOG_WARN, "torn tail, never acknowledged: %s", text);
	else
		cli_say(d->cli, SL_LOG_ERROR, "damaged: %s", text);
	d->damaged += !damage->declared && !damage->torn_tail;
	d->of_archive |= damage->of_archive;
	return cli_stopped(d->cli);
}

static int on_progress(uint64_t done, uint64_t total, void *ctx)
{
	struct dump *d = ctx;

	progress_update(&d->progress, done, total);
	return cli_stopped(d->cli);
}

static int run(struct cli *cli, const struct parsed *args)
{
	struct dump d = {.cli = cli, .json = opt_flag(args, "json")};
	struct sl_wal_scan_opts opts = {SL_WAL_SCAN_OPTS_INIT,
					.env = &cli->env,
					.key_file = opt_str(args, "key-file"),
					.on_record = on_record,
					.on_damage = on_damage,
					.on_progress = on_progress,
					.ctx = &d};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;
	const char *path = args->operands[0];
	int rc = walfile_check(cli, path);

	if (rc)
		return rc;
	progress_start(&d.progress, cli, 1);
	rc = sl_wal_scan(path, &opts, &stats, &err);
	progress_end(&d.progress);
	if (rc && cli_stopped(d.cli))
		return stop_requested() ? cli_interrupted(cli)
					: EXIT_OK; /* the output's failure is reported at the end */
	if (rc)
		return cli_fail(cli, &err, path);
	if (stats.format_version == 2 && !opts.key_file)
		cli_say(cli, SL_LOG_WARN, "%s is encrypted: payloads are shown as stored; give --key-file", path);
	if (!d.damaged)
		return EXIT_OK;
	(void)out_flush(&cli->out);
	walfile_tell_damaged(cli, path, d.damaged, d.of_archive);
	return EXIT_BAD_DATA;
}

static const struct opt opts[] = {
	{.name = "json",
	 .letter = 'j',
	 .kind = OPT_FLAG,
	 .help = "One JSON object a record: offset, length, sequence, status, timestamp_ms, payload_b64"},
	WALFILE_OPT_KEY_FILE,
	{.name = NULL},
};

const struct command cmd_wal_dump = {
	.name = "wal dump",
	.operands = "FILE",
	.summary = "print the records of a log",
	.opts = opts,
	.description = "Prints one line a data record: sequence, time, effective status (pending, sent or failed), "
		       "place, size and the "
		       "beginning of the payload. FILE is the active file of a log, whose sealed segments are read "
		       "first, a single "
		       "segment, or a .zst archive. Nothing is locked or changed. Of a damaged log all valid records "
		       "are printed, of a damaged or cut off archive those of what can be decompressed; the "
		       "damage is reported on stderr, and the status is 65. Offsets count within a record's segment.",
	.example = "sluice wal dump ./demo.wal\nsluice wal dump --json ./demo.wal.zst | jq -r .payload_b64 | base64 -d",
	.run = run,
};
