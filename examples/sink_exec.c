/* SPDX-License-Identifier: Apache-2.0 */
/* A program gets each batch on its standard input, a record a line; its exit code says what became of it. */
#include <sluice/coordinator.h>
#include <sluice/sink.h>
#include <stdio.h>

static void on_dead(const struct sl_item *item, const struct sl_err *err, uint32_t attempts, void *ctx)
{
	(void)attempts;
	(void)ctx;
	printf("dead: %.*s: %s\n", (int)item->len, (const char *)item->data, err->msg);
	fflush(stdout); /* the program writes to the same place */
}

int main(void)
{
	/* 0 written, 65 an item is refused, 75 try again, 69 away; the program may use $SLUICE_BATCH_ID as a key. */
	const char *url = "exec:if grep bad; then echo 'no bad ones' >&2; exit 65; fi";
	const struct sl_coordinator_opts opts = {SL_COORDINATOR_OPTS_INIT, .workers = 1,
						 .unwritten = {.on_dead = on_dead}};
	struct sl_coordinator_report report = {.struct_size = sizeof(report)};
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink = {0};
	sl_coordinator *c = NULL;

	if (sl_sink_open(&sink, url, NULL, &err) != 0 || sl_coordinator_new(&c, &sink, &opts, &err) != 0 ||
	    sl_coordinator_submit(c, "good", 4, SL_UNLIMITED) != 0 ||
	    sl_coordinator_submit(c, "better", 6, SL_UNLIMITED) != 0 || sl_coordinator_flush(c, 10000) != 0 ||
	    sl_coordinator_submit(c, "bad", 3, SL_UNLIMITED) != 0 || sl_coordinator_stop(c, 10000, &report, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	printf("%d written, %d dead\n", (int)report.written, (int)report.dead);
	sl_coordinator_free(c);
	sl_sink_close(&sink);
	return err.code != 0;
}
