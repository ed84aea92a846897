/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of the server's export: the events of its store, in the order of their offsets.
 *
 * Offsets are gapless when events are committed, so an offset that is missing belonged to an event that was deleted with
 * its job. The export needs every offset once, so such an event gets a row with its offset and NULLs.
 * Offsets missing before the first event that exists were never exported: a new dataset begins after them.
 *
 * A read of the store never waits for the export: sl_export_rows_add only copies, and the read ends when it has enough.
 */
#include "server/export/export.h"

#include <string.h>

#include <sluice/events.h>

#define READ_ROWS 2000
#define POLL_MS 500

enum { N_COLUMNS = 12 };
static const struct sl_export_value null = {.is_null = true};

const struct sl_parquet_column srv_feed_columns[] = {
	{.name = "offset", .kind = SL_PARQUET_INT64},
	{.name = "stream", .kind = SL_PARQUET_STRING, .nullable = true},
	{.name = "incarnation", .kind = SL_PARQUET_INT64, .nullable = true},
	{.name = "sequence", .kind = SL_PARQUET_INT64, .nullable = true},
	{.name = "crc", .kind = SL_PARQUET_INT64, .nullable = true},
	{.name = "job_id", .kind = SL_PARQUET_INT64, .nullable = true},
	{.name = "attempt", .kind = SL_PARQUET_INT32, .nullable = true},
	{.name = "type", .kind = SL_PARQUET_STRING, .nullable = true},
	{.name = "late", .kind = SL_PARQUET_BOOL, .nullable = true},
	{.name = "partial", .kind = SL_PARQUET_BOOL, .nullable = true},
	{.name = "ts", .kind = SL_PARQUET_TIMESTAMP, .nullable = true, .unit = SL_PARQUET_MILLIS},
	{.name = "payload", .kind = SL_PARQUET_BINARY, .nullable = true},
};
const size_t srv_feed_n_columns = SL_COUNT(srv_feed_columns);
_Static_assert(SL_COUNT(srv_feed_columns) == N_COLUMNS, "a row has a value per column");

/* One call of the callback. */
struct feed_read {
	sl_export_rows *rows;
	uint64_t next; /* offset of the next row; 0: that of the first event in the store */
	size_t n_rows; /* added */
	struct sl_err *err;
};

/* Add one event, after a row for each missing offset before it. SL_EXPORT_ROWS_FULL ends the read. */
static int feed_on_event(const struct sl_event_row *e, void *ctx)
{
	struct feed_read *f = ctx;
	if (f->next == 0)
		f->next = e->offset;
	for (; f->next < e->offset; f->next++, f->n_rows++) {
		struct sl_export_value gone[N_COLUMNS] = {{.integer = (int64_t)f->next}};
		for (size_t i = 1; i < N_COLUMNS; i++)
			gone[i] = null;
		int rc = sl_export_rows_add(f->rows, gone, f->err);
		if (rc < 0)
			return rc;
		if (rc == SL_EXPORT_ROWS_FULL) { /* e is read again by the next call */
			f->n_rows++;
			return rc;
		}
	}
	const char *type = sl_event_type_name(e->type);
	const struct sl_export_value values[N_COLUMNS] = {
		{.integer = (int64_t)e->offset},
		{.bytes = e->stream, .len = strlen(e->stream)},
		{.integer = e->incarnation},
		{.integer = (int64_t)e->sequence},
		{.integer = (int64_t)e->crc}, /* keeps its 64 bits; the column is signed, as the store's is */
		e->job_id != 0 ? (struct sl_export_value){.integer = (int64_t)e->job_id} : null,
		e->attempt != 0 ? (struct sl_export_value){.integer = e->attempt} : null,
		{.bytes = type, .len = strlen(type)},
		{.integer = e->late},
		{.integer = e->partial},
		{.integer = e->ts_ms},
		{.bytes = e->payload, .len = e->payload_len},
	};
	f->next++;
	f->n_rows++;
	return sl_export_rows_add(f->rows, values, f->err);
}

int srv_feed_rows(uint64_t next, sl_export_rows *rows, struct sl_err *err, void *ctx)
{
	const struct srv_core *core = ctx;
	const sl_store *store = core->store;
	struct feed_read f = {.rows = rows, .next = next, .err = err};
	int rc = store->ops->events_read(store->ctx, 0, next > 0 ? next - 1 : 0, READ_ROWS, feed_on_event, &f, err);
	if (rc < 0)
		return rc;
	if (f.n_rows == 0)
		(void)sl_export_rows_wait(rows, POLL_MS); /* on a stop it returns early, and this is not called again */
	return 0;
}
