/* SPDX-License-Identifier: Apache-2.0 */
/* Load a CSV file into a table that is created from it. A second run finds that everything is loaded already. */
#include <inttypes.h>
#include <sluice/load.h>
#include <stdio.h>

static int load(void)
{
	const char *paths[] = {"bars.csv"};
	const struct sl_sink_opts sink = {SL_SINK_OPTS_INIT, .format = SL_ROWS_CSV, .table = "bars"};
	const struct sl_coordinator_opts delivery = {SL_COORDINATOR_OPTS_INIT, .workers = 2, .batch_size = 1000};
	const struct sl_load_opts opts = {SL_LOAD_OPTS_INIT,      .paths = paths,        .n_paths = 1,
					  .to = "sqlite:bars.db", .sink = &sink,         .create = SL_ON,
					  .delivery = &delivery,  .dead_letters = "dead"};
	struct sl_load_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err err = SL_ERR_INIT;
	sl_load *l = NULL;
	int rc = sl_load_open(&l, &opts, &err);

	if (rc == 0) {
		rc = sl_load_run(l, &err); /* sl_load_stop(l), from any thread, lets it end early */
		sl_load_get_stats(l, &stats);
		printf("%" PRIu64 " written, %" PRIu64 " dead, %" PRIu64 " loaded before\n", stats.written, stats.dead,
		       stats.skipped);
	}
	if (rc != 0)
		fprintf(stderr, "%s\n", err.msg);
	return sl_load_close(l, &err) != 0 || rc != 0;
}

int main(void)
{
	FILE *f = fopen("bars.csv", "w");

	if (f == NULL || fputs("symbol,price\nA,1.5\nB,2\nC,\"not closed\n", f) < 0 || fclose(f) != 0)
		return 1;
	return load() || load();
}
