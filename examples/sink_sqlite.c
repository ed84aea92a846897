/* SPDX-License-Identifier: Apache-2.0 */
/* Rows into SQLite as upserts; one of them does not fit its column and goes to the dead letters alone. */
#include <sluice/coordinator.h>
#include <sluice/sink.h>
#include <stdio.h>
#include <string.h>

#define URL "sqlite:prices.db"

int main(void)
{
	static const char *const key[] = {"symbol"}, *const rows[] = {"A,1.5", "B,2", "C,cheap", "A,1.75"};
	static const struct sl_column columns[] = {{"symbol", SL_COLUMN_TEXT, 1}, {"price", SL_COLUMN_REAL, 0}};
	const struct sl_sink_opts table = {SL_SINK_OPTS_INIT, .format = SL_ROWS_CSV, .table = "prices",
					   .on_conflict = key, .n_on_conflict = 1};
	struct sl_coordinator_opts opts = {SL_COORDINATOR_OPTS_INIT};
	const struct sl_dlq_opts letters = {SL_DLQ_OPTS_INIT};
	struct sl_coordinator_report report = {.struct_size = sizeof(report)};
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink = {0};
	sl_coordinator *c = NULL;

	if (sl_dlq_open(&opts.unwritten.dead_letters, "dead-letters", &letters, &err) != 0 ||
	    sl_sink_create_table(URL, &table, columns, 2, &err) != 0 || sl_sink_open(&sink, URL, &table, &err) != 0 ||
	    sl_coordinator_new(&c, &sink, &opts, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	for (int i = 0; c != NULL && i < 4; i++)
		if (sl_coordinator_submit(c, rows[i], strlen(rows[i]), SL_UNLIMITED) != 0)
			fprintf(stderr, "%s was not taken\n", rows[i]);
	if (c != NULL && sl_coordinator_stop(c, 10000, &report, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	printf("%d written, %d dead\n", (int)report.written, (int)report.dead);
	sl_coordinator_free(c);
	sl_sink_close(&sink);
	sl_dlq_close(opts.unwritten.dead_letters);
	return err.code != 0;
}
