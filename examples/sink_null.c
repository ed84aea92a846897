/* SPDX-License-Identifier: Apache-2.0 */
/* A sink that keeps nothing: how fast is everything before it? */
#include <sluice/coordinator.h>
#include <sluice/sink.h>
#include <stdio.h>

static void on_dead(const struct sl_item *item, const struct sl_err *err, uint32_t attempts, void *ctx)
{
	(void)item, (void)err, (void)attempts, (void)ctx; /* it refuses nothing */
}

int main(void)
{
	const struct sl_coordinator_opts opts = {SL_COORDINATOR_OPTS_INIT, .unwritten = {.on_dead = on_dead}};
	struct sl_coordinator_report report = {.struct_size = sizeof(report)};
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink = {0};
	sl_coordinator *c = NULL;
	int rc = sl_sink_null_open(&sink, NULL, &err); /* as sl_sink_open with "null:" */
	if (rc == 0)
		rc = sl_coordinator_new(&c, &sink, &opts, &err);
	for (int i = 0; rc == 0 && i < 100000; i++)
		rc = sl_coordinator_submit(c, "an item", 7, SL_UNLIMITED); /* waits when 10,000 are waiting */
	if (rc != 0 || sl_coordinator_stop(c, 10000, &report, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	printf("%d written\n", (int)report.written);
	sl_coordinator_free(c);
	sl_sink_close(&sink);
	return rc != 0;
}
