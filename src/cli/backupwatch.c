/* SPDX-License-Identifier: Apache-2.0 */
/* Progress and signals of a backup that runs. */
#include "backupwatch.h"

#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct words {
	char text[256];
	size_t used;
};

static void SL_PRINTF(2, 3) say(struct words *w, const char *fmt, ...)
{
	size_t room = sizeof(w->text) - w->used;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(w->text + w->used, room, fmt, ap);
	va_end(ap);
	w->used += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

/* Signals and progress: the phase, what is done, the rate, and how the block writer fares. */
static void watch_backup(void *ctx)
{
	struct backupwatch *w = ctx;
	struct sl_backup_progress p = {.struct_size = sizeof(p)};
	struct words words = {.used = 0};
	char a[TEXT_TIME_BYTES], b[TEXT_TIME_BYTES];
	int64_t ms = watch_ms(&w->watch);
	double speed;

	if (stop_requested())
		sl_backup_stop(w->backup); /* each time: a call that begins forgets an earlier stop */
	if (!progress_due(&w->watch.progress))
		return;
	sl_backup_get_progress(w->backup, &p);
	if (!p.phase)
		return;
	say(&words, "%s", p.phase);
	if (p.totals_known && p.bytes_total)
		say(&words, ", %" PRIu64 " of %" PRIu64 " files, %s of %s", p.files, p.files_total,
		    text_bytes(a, p.bytes), text_bytes(b, p.bytes_total));
	else if (p.files || p.bytes)
		say(&words, ", %" PRIu64 " files, %s", p.files, text_bytes(a, p.bytes));
	if (p.packs_total)
		say(&words, ", %" PRIu64 " of %" PRIu64 " packs", p.packs, p.packs_total);
	speed = ms > 0 ? (double)p.bytes * 1000 / (double)ms : 0;
	if (speed >= 1)
		say(&words, ", %s/s", text_bytes(a, (uint64_t)speed));
	if (speed >= 1 && p.totals_known && p.bytes_total > p.bytes)
		say(&words, ", %s left", text_age(a, (int64_t)((double)(p.bytes_total - p.bytes) * 1000 / speed)));
	if (p.dedup_bytes || p.physical_bytes)
		say(&words, ", %s known, %s written", text_bytes(a, p.dedup_bytes), text_bytes(b, p.physical_bytes));
	if (p.max_concurrency)
		say(&words, ", %" PRIu32 "/%" PRIu32 " writes%s", p.concurrency, p.max_concurrency,
		    p.backpressure ? ", readers wait" : "");
	if (p.errors)
		say(&words, ", %" PRIu64 " problems", p.errors);
	if (p.totals_known && p.bytes_total)
		progress_show(&w->watch.progress, words.text, p.bytes, p.bytes_total);
	else
		progress_show(&w->watch.progress, words.text, p.packs, p.packs_total);
}

int backupwatch_start(struct backupwatch *w, struct cli *cli, sl_backup *backup, int prints)
{
	w->backup = backup;
	return watch_start(&w->watch, cli, prints, watch_backup, w);
}

double backupwatch_stop(struct backupwatch *w)
{
	watch_stop(&w->watch);
	return (double)watch_ms(&w->watch) / 1000;
}
