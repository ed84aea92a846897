/* SPDX-License-Identifier: Apache-2.0 */
/* Items into a file, a line each: whole lines only, synced before an item counts as written. */
#include <sluice/coordinator.h>
#include <sluice/sink.h>
#include <stdio.h>

static void on_dead(const struct sl_item *item, const struct sl_err *err, uint32_t attempts, void *ctx)
{
	(void)attempts;
	(void)ctx;
	printf("dead: %.*s: %s\n", (int)item->len, (const char *)item->data, sl_err_class_name(err->error_class));
}

int main(void)
{
	const struct sl_sink_opts file = {SL_SINK_OPTS_INIT, .rotate_bytes = 1 << 30, .rotate_ms = 86400000};
	const struct sl_coordinator_opts opts = {SL_COORDINATOR_OPTS_INIT, .workers = 1,
						 .unwritten = {.on_dead = on_dead}};
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink = {0};
	sl_coordinator *c = NULL;
	struct sl_coordinator_report report = {.struct_size = sizeof(report)};

	if (sl_sink_open(&sink, "file:events.jsonl", &file, &err) != 0 ||
	    sl_coordinator_new(&c, &sink, &opts, &err) != 0 ||
	    sl_coordinator_submit(c, "{\"id\":1}", 8, SL_UNLIMITED) != 0 ||
	    sl_coordinator_submit(c, "{\"id\":", 6, SL_UNLIMITED) != 0 ||
	    sl_coordinator_submit(c, "{\"id\":2}", 8, SL_UNLIMITED) != 0 ||
	    sl_coordinator_stop(c, 10000, &report, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	printf("%d written, %d dead\n", (int)report.written, (int)report.dead);
	sl_coordinator_free(c);
	sl_sink_close(&sink);
	return err.code != 0;
}
