/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice wal append: standard input into a log.
 *
 * Records are submitted ahead of their flush, up to a window, so that a file is as fast as the disk allows; sequences
 * are printed in order, each after its record is durable. When no input is waiting, all that is in flight is awaited
 * and printed before the next read, so that a slow producer has its answer at once. What must stay true:
 *  1. A printed sequence is durable, and the nth one printed is that of the nth record of the input.
 *  2. However the command ends, short of being killed, all that was submitted has been awaited, and printed if durable.
 *  3. After a failure is known nothing more is submitted. A record that was handed over between the failure and its
 *     news may still succeed, after others that did not; because of 1 it is reported on stderr and not printed.
 */
#include "base/time.h"
#include "commands.h"
#include "input.h"
#include "progress.h"
#include "stop.h"
#include "text.h"
#include "walfile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct in_flight {
	struct sl_wal_ticket ticket;
	uint64_t number; /* of the record in the input */
};

struct append {
	struct cli *cli;
	sl_wal *wal;
	struct input in;
	struct progress progress;
	uint64_t input_bytes; /* when known, else 0 */
	struct in_flight *ring;
	size_t window, first, count;
	uint64_t durable;
	size_t unshown;                 /* printed, and perhaps still in the buffer of the output */
	uint64_t failed, failed_number; /* records that are not in the log, and the first of them */
	uint64_t strays;                /* durable after a failed one */
	struct sl_err err;              /* the first failure of the log or the input */
};

/* The outcome of the oldest record in flight. 1: it is known, 0: not yet. */
static int wait_for_oldest(struct append *a, int64_t timeout_ms)
{
	struct in_flight *f = &a->ring[a->first];
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_wal_wait(a->wal, &f->ticket, timeout_ms, &err);

	if (rc == SL_ETIMEDOUT)
		return 0;
	if (rc == 0 && a->failed) {
		a->strays++;
	} else if (rc == 0) {
		out_printf(&a->cli->out, "%" PRIu64 "\n", f->ticket.sequence);
		a->durable++;
		a->unshown++;
	} else if (a->failed++ == 0) {
		a->failed_number = f->number;
		a->err = err;
	}
	a->first = (a->first + 1) % a->window;
	a->count--;
	return 1;
}

static void show_durable(struct append *a)
{
	(void)out_flush(&a->cli->out);
	a->unshown = 0;
	progress_update(&a->progress, a->in.offset, a->input_bytes);
}

static void wait_for_all(struct append *a)
{
	while (a->count > 0)
		(void)wait_for_oldest(a, SL_UNLIMITED);
	show_durable(a);
}

static void submit_record(struct append *a, const struct input_record *record)
{
	struct in_flight *f;
	struct sl_err err = SL_ERR_INIT;
	bool full = a->count == a->window;
	int more = a->count > 0 ? wait_for_oldest(a, full ? SL_UNLIMITED : 0) : 0;

	/* Make room in the window: wait for one, and take what came with it in the same flush. Otherwise only learn
	 * of a failure that came meanwhile. */
	while (full && more && a->count > 0)
		more = wait_for_oldest(a, 0);
	if (full || a->unshown >= a->window)
		show_durable(a);
	if (a->failed)
		return; /* it stays unsubmitted, like all after it */
	f = &a->ring[(a->first + a->count) % a->window];
	f->number = record->number;
	if (sl_wal_submit(a->wal, record->data, record->len, &f->ticket, &err) == 0) {
		a->count++;
		return;
	}
	wait_for_all(a); /* those before it first: one of them may have failed earlier */
	if (a->failed++ == 0) {
		a->failed_number = record->number;
		a->err = err;
	}
}

/* Until the input ends or something fails. Returns true when the input ended. */
static bool append_all(struct append *a)
{
	struct input_record record;

	while (!stop_requested() && !a->failed && !out_failed(&a->cli->out)) {
		switch (input_next(&a->in, &record, &a->err)) {
		case INPUT_RECORD:
			submit_record(a, &record);
			break;
		case INPUT_NEED:
			/* A writer that waits for answers before its next line gets them first. */
			if (!input_ready(&a->in)) {
				wait_for_all(a);
				input_wait(&a->in, stop_fd());
			}
			if (!stop_requested() && input_fill(&a->in, &a->err))
				return false;
			break;
		case INPUT_END:
			return true;
		case INPUT_FAILED:
			return false;
		}
	}
	return false;
}

/* Report what is not in the log. The exit code. */
static int report_append(struct append *a, bool at_end, const char *path)
{
	const char *what = a->in.frames ? "frame" : "line";
	char count[TEXT_COUNT_BYTES];
	struct sl_err ignored = SL_ERR_INIT;
	struct input_record record;
	uint64_t left = a->in.end - a->in.start;

	text_count(count, a->durable, "record");
	if (a->failed) {
		cli_say(a->cli, SL_LOG_ERROR, "%s: %s; %s %s in the log, %s %" PRIu64 " and what follows is not", path,
			a->err.msg, count, a->durable == 1 ? "is" : "are", what, a->failed_number);
		if (a->strays)
			cli_say(a->cli, SL_LOG_ERROR,
				"%s: %s after it were appended too, with sequences that were not printed", path,
				text_count(count, a->strays, "record"));
		return sl_err_exit_code(a->err.code);
	}
	if (a->err.code) {
		cli_say(a->cli, SL_LOG_ERROR, "%s; before it %s appended to %s", a->err.msg, count, path);
		return sl_err_exit_code(a->err.code);
	}
	if (at_end || !stop_requested())
		return EXIT_OK;

	/* Bytes that were read and will not be appended: the beginning of a line, or whole lines after a full
	 * window. */
	cli_say(a->cli, SL_LOG_ERROR, "interrupted; %s appended to %s", count, path);
	if (!left)
		return EXIT_INTERRUPTED;
	text_count(count, left, "byte");
	if (input_next(&a->in, &record, &ignored) == INPUT_RECORD)
		cli_say(a->cli, SL_LOG_ERROR, "%s had been read and were not appended, from %s %" PRIu64 " on", count,
			what, record.number);
	else
		cli_say(a->cli, SL_LOG_ERROR, "%s %s not appended", count,
			a->in.frames ? "of an unfinished frame" : "without a newline");
	return EXIT_INTERRUPTED;
}

static int wal_append_run(struct cli *cli, const struct parsed *args)
{
	struct append a = {.cli = cli, .window = (size_t)opt_num(args, "window")};
	struct sl_wal_opts opts = walfile_opts(cli, args);
	const char *path = args->operands[0];
	int64_t started_ms = sl__clock_ms();
	struct sl_err err = SL_ERR_INIT;
	struct walfile file;
	struct stat st;
	bool at_end;
	int rc = walfile_split(cli, path, &file);

	if (rc == 0)
		rc = walfile_check_folder(cli, file.dir);
	if (rc == 0)
		rc = walfile_check(cli, path);
	if (rc != 0)
		return rc;
	opts.wal_dir = file.dir;
	opts.segment_bytes = opt_num(args, "segment-bytes");
	opts.max_pending_bytes = SL_UNLIMITED; /* nothing sends here: the file is the bound */
	do
		rc = sl_wal_open(&a.wal, file.id, &opts, &err);
	while (rc != 0 && walfile_lock_again(args, rc, started_ms));
	if (rc != 0)
		return cli_fail(cli, &err, path);
	a.ring = calloc(a.window, sizeof(*a.ring));
	if (a.ring == NULL) {
		(void)sl_wal_close(a.wal, NULL);
		return cli_no_memory(cli);
	}
	input_init(&a.in, STDIN_FILENO, opt_flag(args, "frames"), SL_WAL_MAX_PAYLOAD);
	progress_start(&a.progress, cli, true);
	if (fstat(STDIN_FILENO, &st) == 0 && S_ISREG(st.st_mode))
		a.input_bytes = (uint64_t)st.st_size;
	at_end = append_all(&a);
	wait_for_all(&a);
	progress_end(&a.progress);
	rc = report_append(&a, at_end, path);
	if (sl_wal_close(a.wal, &err) && !a.failed)
		rc = cli_fail(cli, &err, path);
	input_fini(&a.in);
	free(a.ring);
	return rc;
}

static const struct opt wal_append_opts[] = {
	{.name = "frames",
	 .kind = OPT_FLAG,
	 .help = "Read records as frames, a 4-byte little-endian length and that many bytes, instead of lines"},
	{.name = "window",
	 .letter = 'w',
	 .kind = OPT_INT,
	 .arg = "N",
	 .def = "64",
	 .min = 1,
	 .max = 4096,
	 .help = "Number of records being written to disk at the same time"},
	{.name = "segment-bytes",
	 .kind = OPT_SIZE,
	 .arg = "SIZE",
	 .def = "64MiB",
	 .min = 4096,
	 .max = (int64_t)1 << 40,
	 .help = "Seal the active file and start another when it exceeds this size"},
	WALFILE_OPT_ON_CORRUPTION,
	WALFILE_OPT_KEY_FILE,
	WALFILE_OPT_LOCK_WAIT,
	{.name = NULL},
};

const struct command cmd_wal_append = {
	.name = "wal append",
	.operands = "FILE",
	.summary = "append each line of standard input as one record",
	.opts = wal_append_opts,
	.description = "Each line of standard input, without its newline, becomes one record of the log FILE, which is "
		       "created or recovered first and whose name ends in .wal. The sequence of a record is printed "
		       "when it is durable: what was printed survives a power loss. An empty line is an empty record. "
		       "A carriage return or NUL is kept. The last line may lack its newline. A line above 16777184 "
		       "bytes ends the command with status 65 and its number; the lines before it are in the log. On "
		       "SIGINT or SIGTERM, append finishes and prints what is in flight (status 75); it reports, but "
		       "does not append, a line without its newline. With --key-file a new log is encrypted.",
	.example = "printf 'one\\ntwo\\n' | sluice wal append ./demo.wal\nsluice wal append --window=1024 ./demo.wal < "
		   "events.jsonl > sequences",
	.run = wal_append_run,
};
