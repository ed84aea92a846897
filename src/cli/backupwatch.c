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

static void say_done(struct words *w, const struct sl_backup_progress *p)
{
	char a[TEXT_TIME_BYTES], b[TEXT_TIME_BYTES];

	if (p->totals_known && p->bytes_total)
		say(w, ", %" PRIu64 " of %" PRIu64 " files, %s of %s", p->files, p->files_total,
		    text_bytes(a, p->bytes), text_bytes(b, p->bytes_total));
	else if (p->files || p->bytes)
		say(w, ", %" PRIu64 " files, %s", p->files, text_bytes(a, p->bytes));
	if (p->packs_total)
		say(w, ", %" PRIu64 " of %" PRIu64 " packs", p->packs, p->packs_total);
}

/* What is left is known where the whole is. */
static void say_rate(struct words *w, const struct sl_backup_progress *p, int64_t ms)
{
	char rate[TEXT_TIME_BYTES], left[TEXT_TIME_BYTES];
	double speed = ms > 0 ? (double)p->bytes * 1000 / (double)ms : 0;

	if (speed < 1)
		return;
	say(w, ", %s/s", text_bytes(rate, (uint64_t)speed));
	if (p->totals_known && p->bytes_total > p->bytes)
		say(w, ", %s left", text_age(left, (int64_t)((double)(p->bytes_total - p->bytes) * 1000 / speed)));
}

/* What the repository knew, what was written, and how the block writer fares. */
static void say_writer(struct words *w, const struct sl_backup_progress *p)
{
	char a[TEXT_TIME_BYTES], b[TEXT_TIME_BYTES];

	if (p->dedup_bytes || p->physical_bytes)
		say(w, ", %s known, %s written", text_bytes(a, p->dedup_bytes), text_bytes(b, p->physical_bytes));
	if (p->max_concurrency)
		say(w, ", %" PRIu32 "/%" PRIu32 " writes%s", p->concurrency, p->max_concurrency,
		    p->backpressure ? ", readers wait" : "");
	if (p->errors)
		say(w, ", %" PRIu64 " problems", p->errors);
}

static void show(struct backupwatch *w)
{
	struct sl_backup_progress p = {.struct_size = sizeof(p)};
	struct words words = {.used = 0};

	if (!progress_due(&w->watch.progress))
		return;
	sl_backup_get_progress(w->backup, &p);
	if (!p.phase)
		return;
	say(&words, "%s", p.phase);
	say_done(&words, &p);
	say_rate(&words, &p, watch_ms(&w->watch));
	say_writer(&words, &p);
	if (p.totals_known && p.bytes_total)
		progress_show(&w->watch.progress, words.text, p.bytes, p.bytes_total);
	else
		progress_show(&w->watch.progress, words.text, p.packs, p.packs_total);
}

/* A call that begins forgets an earlier stop, so the stop is repeated. */
static void look(void *ctx)
{
	struct backupwatch *w = ctx;

	if (stop_requested())
		sl_backup_stop(w->backup);
	show(w);
}

int backupwatch_start(struct backupwatch *w, struct cli *cli, sl_backup *backup, int prints)
{
	w->backup = backup;
	return watch_start(&w->watch, cli, prints, look, w);
}

double backupwatch_stop(struct backupwatch *w)
{
	watch_stop(&w->watch);
	return (double)watch_ms(&w->watch) / 1000;
}
