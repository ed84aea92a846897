/* SPDX-License-Identifier: Apache-2.0 */
/* Progress and signals of an export that runs. */
#include "exportwatch.h"

#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>

static void obey_signals(struct exportwatch *w)
{
	int count = stop_count();

	if (count >= 1 && w->told < 1) {
		w->told = 1;
		cli_say(w->watch.cli, SL_LOG_WARN,
			"stopping: what was read is being committed; a second signal gives up what is not");
		sl_export_stop(w->export, SL_EXPORT_DRAIN);
	}
	if (count >= 2 && w->told < 2) {
		w->told = 2;
		sl_export_stop(w->export, SL_EXPORT_NOW);
	}
}

/* "63%, 120.0 MiB/s, 7.0 s left", or how many rows a second where the size of the input is not known. */
static void describe_rate(const struct exportwatch *w, const struct sl_export_progress *p, char *to, size_t size)
{
	char rate[TEXT_TIME_BYTES], left[TEXT_TIME_BYTES];
	int64_t ms = watch_ms(&w->watch);
	double speed =
		ms > w->from_ms ? (double)(p->input_bytes - w->from_bytes) * 1000 / (double)(ms - w->from_ms) : 0;
	double rest = p->input_total > p->input_bytes ? (double)(p->input_total - p->input_bytes) : 0;

	if (!p->input_total)
		(void)snprintf(to, size, "%.0f rows/s", ms > 0 ? (double)p->rows * 1000 / (double)ms : 0.0);
	else if (speed < 1)
		(void)snprintf(to, size, "%.0f%%", (double)p->input_bytes * 100 / (double)p->input_total);
	else
		(void)snprintf(to, size, "%.0f%%, %s/s, %s left", (double)p->input_bytes * 100 / (double)p->input_total,
			       text_bytes(rate, (uint64_t)speed), text_age(left, (int64_t)(rest * 1000 / speed)));
}

/* An export that follows a source at rest has nothing new to say. */
static void show(struct exportwatch *w)
{
	struct sl_export_progress p;
	char text[256], rate[96], rows[TEXT_COUNT_BYTES], partitions[TEXT_COUNT_BYTES], bytes[TEXT_TIME_BYTES];

	if (!progress_due(&w->watch.progress))
		return;
	sl_export_get_progress(w->export, &p);
	if (p.partitions == w->shown)
		return;
	if (!w->shown) {
		w->from_bytes = p.input_bytes;
		w->from_ms = watch_ms(&w->watch);
	}
	w->shown = p.partitions;
	describe_rate(w, &p, rate, sizeof(rate));
	(void)snprintf(text, sizeof(text), "%s, %s, %s of %s, checkpoint %" PRIu64 "%s", rate,
		       text_count(rows, p.rows, "row"), text_count(partitions, p.partitions, "partition"),
		       text_bytes(bytes, p.bytes), p.checkpoint, p.bad_rows ? ", bad rows" : "");
	progress_show(&w->watch.progress, text, p.input_bytes, p.input_total);
}

static void look(void *ctx)
{
	obey_signals(ctx);
	show(ctx);
}

int exportwatch_start(struct exportwatch *w, struct cli *cli, sl_export *export)
{
	*w = (struct exportwatch){.export = export};
	stop_ask_twice();
	return watch_start(&w->watch, cli, 0, look, w);
}
