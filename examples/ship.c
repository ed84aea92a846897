/* SPDX-License-Identifier: Apache-2.0 */
/* Ship a log file: every line is durable before it counts as read, and a second run continues after the last one. */
#include <inttypes.h>
#include <sluice/ship.h>
#include <stdio.h>

/* Follow the file until this many lines are delivered. */
static void stop_after(sl_ship *ship, void *ctx)
{
	struct sl_ship_stats stats = {.struct_size = sizeof(stats)};
	if (sl_ship_get_stats(ship, &stats, NULL) == 0 && stats.delivered >= *(const uint64_t *)ctx)
		sl_ship_stop(ship); /* from any thread, or from a signal handler */
}

static int append(const char *lines)
{
	FILE *f = fopen("app.log", "a");
	return f == NULL || fputs(lines, f) < 0 || fclose(f) != 0;
}

static int ship(enum sl_switch follow, uint64_t lines)
{
	const char *paths[] = {"app.log"};
	const struct sl_ship_opts opts = {SL_SHIP_OPTS_INIT,
					  .paths = paths,
					  .n_paths = 1,
					  .follow = follow,
					  .wal_dir = "wal",
					  .stream = "example",
					  .to = "file:rows.jsonl",
					  .on_progress = stop_after,
					  .ctx = &lines};
	struct sl_ship_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;
	sl_ship *s = NULL;
	int rc = sl_ship_open(&s, &opts, &err);

	if (rc == 0)
		rc = sl_ship_run(s, &err); /* 0: everything that was read is delivered */
	if (rc == 0 && sl_ship_get_stats(s, &stats, &err) == 0)
		printf("%" PRIu64 " read, %" PRIu64 " delivered\n", stats.read, stats.delivered);
	if (sl_ship_close(s, rc == 0 ? &err : NULL) != 0 || rc != 0)
		fprintf(stderr, "%s\n", err.msg);
	return rc;
}

int main(void)
{
	return append("started\nready\n") || ship(SL_ON, 2) || append("stopped\n") || ship(SL_OFF, 1);
}
