/* SPDX-License-Identifier: Apache-2.0 */
/* JSON objects into a table of PostgreSQL, in order for each symbol; a callback for each reports that it is written. */
#include <sluice/coordinator.h>
#include <sluice/sink.h>
#include <stdio.h>
#include <string.h>

static int written;

static void done(enum sl_item_end end, const struct sl_err *err, void *ctx)
{
	if (end == SL_ITEM_WRITTEN)
		__atomic_fetch_add(&written, 1, __ATOMIC_RELAXED); /* workers call it side by side */
	else
		fprintf(stderr, "%s: %s\n", (const char *)ctx, err != NULL ? err->msg : "not written");
}

int main(int argc, char **argv)
{
	static char rows[][32] = {"{\"symbol\":\"A\",\"price\":1.5}", "{\"symbol\":\"B\",\"price\":2}",
				  "{\"symbol\":\"A\",\"price\":1.75}"};
	static const char *const key[] = {"symbol"};
	static const struct sl_column columns[] = {{"symbol", SL_COLUMN_TEXT, 1}, {"price", SL_COLUMN_REAL, 0}};
	const struct sl_sink_opts table = {SL_SINK_OPTS_INIT, .table = "prices", .on_conflict = key,
					   .n_on_conflict = 1};
	struct sl_coordinator_opts opts = {SL_COORDINATOR_OPTS_INIT, .per_key_order = SL_ON};
	const struct sl_dlq_opts letters = {SL_DLQ_OPTS_INIT};
	const char *url = argc > 1 ? argv[1] : "postgres://localhost/postgres";
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink = {0};
	sl_coordinator *c = NULL;

	if (sl_dlq_open(&opts.unwritten.dead_letters, "dead-letters", &letters, &err) != 0 ||
	    sl_sink_create_table(url, &table, columns, 2, &err) != 0 || sl_sink_open(&sink, url, &table, &err) != 0 ||
	    sl_coordinator_new(&c, &sink, &opts, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	for (int i = 0; c != NULL && i < 3; i++) {
		struct sl_item item = {.data = rows[i],
				       .len = strlen(rows[i]),
				       .key = rows[i] + 11,
				       .key_len = 1,
				       .done = done,
				       .done_ctx = rows[i]};
		if (sl_coordinator_submit_many(c, &item, 1, SL_UNLIMITED, NULL) != 0)
			fprintf(stderr, "%s was not taken\n", rows[i]);
	}
	if (c != NULL && sl_coordinator_stop(c, 10000, NULL, &err) != 0)
		fprintf(stderr, "%s\n", err.msg);
	printf("%d rows written\n", written);
	sl_coordinator_free(c);
	sl_sink_close(&sink);
	sl_dlq_close(opts.unwritten.dead_letters);
	return err.code != 0;
}
