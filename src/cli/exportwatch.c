/* SPDX-License-Identifier: Apache-2.0 */
/* Progress and signals of an export that runs. */
#include "exportwatch.h"

#include "stop.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>

/* Signals, then progress: "63%, 120.0 MiB/s, 7.0 s left", or rows per second where the size of the input is unknown. */
static void watch_export(void *ctx)
{
	struct exportwatch *w = ctx;
	struct sl_export_progress p;
	char text[256], rate[96], rows[TEXT_COUNT_BYTES], partitions[TEXT_COUNT_BYTES], bytes[TEXT_TIME_BYTES];
	char per_second[TEXT_TIME_BYTES], left[TEXT_TIME_BYTES];
	int64_t ms = watch_ms(&w->watch);
	double speed, percent, rest;
	int count = stop_count();

	if (count >= 1 && w->n_stops < 1) {
		w->n_stops = 1;
		cli_say(w->watch.cli, SL_LOG_WARN,
			"stopping: what was read is being committed; a second signal gives up what is not");
		sl_export_stop(w->export, SL_EXPORT_DRAIN);
	}
	if (count >= 2 && w->n_stops < 2) {
		w->n_stops = 2;
		sl_export_stop(w->export, SL_EXPORT_NOW);
	}

	/* An export that follows a source at rest has nothing new to show. */
	if (!progress_due(&w->watch.progress))
		return;
	sl_export_get_progress(w->export, &p);
	if (p.partitions == w->shown)
		return;
	if (!w->shown) {
		w->from_bytes = p.input_bytes;
		w->from_ms = ms;
	}
	w->shown = p.partitions;
	speed = ms > w->from_ms ? (double)(p.input_bytes - w->from_bytes) * 1000 / (double)(ms - w->from_ms) : 0;
	percent = p.input_total ? (double)p.input_bytes * 100 / (double)p.input_total : 0;
	rest = p.input_total > p.input_bytes ? (double)(p.input_total - p.input_bytes) : 0;
	if (!p.input_total)
		(void)snprintf(rate, sizeof(rate), "%.0f rows/s", ms > 0 ? (double)p.rows * 1000 / (double)ms : 0.0);
	else if (speed < 1)
		(void)snprintf(rate, sizeof(rate), "%.0f%%", percent);
	else
		(void)snprintf(rate, sizeof(rate), "%.0f%%, %s/s, %s left", percent,
			       text_bytes(per_second, (uint64_t)speed), text_age(left, (int64_t)(rest * 1000 / speed)));
	(void)snprintf(text, sizeof(text), "%s, %s, %s of %s, checkpoint %" PRIu64 "%s", rate,
		       text_count(rows, p.rows, "row"), text_count(partitions, p.partitions, "partition"),
		       text_bytes(bytes, p.bytes), p.checkpoint, p.bad_rows ? ", bad rows" : "");
	progress_show(&w->watch.progress, text, p.input_bytes, p.input_total);
}

int exportwatch_start(struct exportwatch *w, struct cli *cli, sl_export *export)
{
	*w = (struct exportwatch){.export = export};
	stop_ask_twice();
	return watch_start(&w->watch, cli, false, watch_export, w);
}
