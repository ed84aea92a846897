/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's events as CSV into a pipe, in the order of their offsets.
 *
 * Offsets are gapless when events are committed, so one that is not there was deleted with its job. The export wants
 * every number once; such an event gets a row with its offset and nothing else. What is missing before the very first
 * event that is there was never ours: the dataset begins after it.
 *
 * A read of the store never waits for the reader of the pipe: rows are gathered first, READ_BYTES of them at most, and
 * written when the store's statement has ended.
 */
#include "base/buf.h"
#include "base/thread.h"
#include "base/time.h"
#include "server/export/export.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sluice/events.h>
#include <sluice/parquet.h>

#define READ_ROWS 2000
#define READ_BYTES ((size_t)1 << 20)
#define POLL_MS 500
#define ENOUGH 1 /* stops a read */

const struct sl_parquet_column srv_feed_columns[] = {
	{.name = "offset", .kind = SL_PARQUET_INT64},
	{.name = "stream", .kind = SL_PARQUET_STRING, .nullable = 1},
	{.name = "incarnation", .kind = SL_PARQUET_INT64, .nullable = 1},
	{.name = "sequence", .kind = SL_PARQUET_INT64, .nullable = 1},
	{.name = "crc", .kind = SL_PARQUET_INT64, .nullable = 1},
	{.name = "job_id", .kind = SL_PARQUET_INT64, .nullable = 1},
	{.name = "attempt", .kind = SL_PARQUET_INT32, .nullable = 1},
	{.name = "type", .kind = SL_PARQUET_STRING, .nullable = 1},
	{.name = "late", .kind = SL_PARQUET_BOOL, .nullable = 1},
	{.name = "partial", .kind = SL_PARQUET_BOOL, .nullable = 1},
	{.name = "ts", .kind = SL_PARQUET_TIMESTAMP, .nullable = 1, .unit = SL_PARQUET_MILLIS},
	{.name = "payload", .kind = SL_PARQUET_BINARY, .nullable = 1},
};
const size_t srv_feed_columns_n = sizeof(srv_feed_columns) / sizeof(srv_feed_columns[0]);
#define HEADER "offset,stream,incarnation,sequence,crc,job_id,attempt,type,late,partial,ts,payload\n"
#define NOTHING ",,,,,,,,,,,\n" /* after the offset of an event that is gone */

struct srv_feed {
	struct srv_core *core;
	int fd;
	uint64_t next; /* offset of the next row; 0: that of the first event there is */
	struct sl__buf text;
	pthread_t thread;
	sl__mutex mu; /* guards end */
	sl__cond wake;
	bool end;
	struct sl_err err; /* the thread's until it is joined */
};

/* ---- rows ---- */

static int put_event(struct sl__buf *t, const struct sl_event_row *e)
{
	char ts[SL__TIME_BYTES];
	(void)sl__time_text(ts, e->ts_ms);
	(void)sl__buf_printf(t, "%" PRIu64 ",\"", e->offset);
	for (const char *p = e->stream; *p != '\0'; p++) /* a quote is doubled */
		(void)sl__buf_append(t, *p == '"' ? "\"\"" : p, *p == '"' ? 2 : 1);
	/* A checksum has 64 bits and keeps them; the store's column has a sign as well. */
	(void)sl__buf_printf(t, "\",%" PRIu32 ",%" PRIu64 ",%" PRId64 ",", e->incarnation, e->sequence,
			     (int64_t)e->crc);
	if (e->job_id != 0)
		(void)sl__buf_printf(t, "%" PRIu64, e->job_id);
	(void)sl__buf_append(t, ",", 1);
	if (e->attempt != 0)
		(void)sl__buf_printf(t, "%" PRId32, e->attempt);
	(void)sl__buf_printf(t, ",%s,%s,%s,%s,\\x", sl_event_type_name(e->type), e->late ? "true" : "false",
			     e->partial ? "true" : "false", ts);
	if (sl__buf_reserve(t, 2 * e->payload_len) == 0)
		t->len = (size_t)(sl__hex(t->data + t->len, e->payload, e->payload_len) - t->data);
	return sl__buf_append(t, "\n", 1);
}

/* One event, after a row for each offset before it that is gone. */
static int on_row(const struct sl_event_row *e, void *ctx)
{
	struct srv_feed *f = ctx;
	if (f->next == 0)
		f->next = e->offset;
	while (f->next < e->offset) {
		if (sl__buf_printf(&f->text, "%" PRIu64 NOTHING, f->next++) != 0)
			return SL_ENOMEM;
		if (f->text.len >= READ_BYTES)
			return ENOUGH; /* e is read again */
	}
	if (put_event(&f->text, e) != 0)
		return SL_ENOMEM;
	f->next = e->offset + 1;
	return f->text.len >= READ_BYTES ? ENOUGH : 0;
}

/* ---- the thread ---- */

/* Write the rows into the pipe. SL_ECLOSED: the export has ended. */
static int write_rows(struct srv_feed *f)
{
	if (f->text.failed != 0)
		return sl_err_set(&f->err, SL_ENOMEM, "out of memory");
	for (size_t at = 0; at < f->text.len;) {
		ssize_t n = write(f->fd, f->text.data + at, f->text.len - at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EPIPE ? SL_ECLOSED : sl_err_set_errno(&f->err, errno, "write to the export");
		at += (size_t)n;
	}
	sl__buf_clear(&f->text);
	return 0;
}

/* Wait for at most ms. false: the feed is to end. */
static bool wait_for_end(struct srv_feed *f, int64_t ms)
{
	int64_t until = sl__clock_ms() + ms;
	sl__lock(&f->mu);
	while (ms > 0 && !f->end && sl__wait_until_ms(&f->wake, &f->mu, until))
		;
	bool end = f->end;
	sl__unlock(&f->mu);
	return end;
}

static void *feed_main(void *arg)
{
	struct srv_feed *f = arg;
	const sl_store *store = f->core->store;
	int64_t pause_ms = 0;
	(void)sl__buf_str_append(&f->text, HEADER);
	int rc = write_rows(f);
	while (rc == 0 && !wait_for_end(f, pause_ms)) {
		uint64_t after = f->next > 0 ? f->next - 1 : 0;
		rc = store->ops->events_read(store->ctx, 0, after, READ_ROWS, on_row, f, &f->err);
		pause_ms = f->text.len == 0 ? POLL_MS : 0;
		if (rc == 0 || rc == ENOUGH || f->text.failed != 0)
			rc = write_rows(f);
	}
	(void)close(f->fd);
	f->err.code = rc == SL_ECLOSED ? 0 : rc;
	return NULL;
}

int srv_feed_start(struct srv_feed **out, struct srv_core *core, uint64_t after, int fd, struct sl_err *err)
{
	struct srv_feed *f = calloc(1, sizeof(*f));
	if (f == NULL) {
		(void)close(fd);
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	}
	f->core = core;
	f->fd = fd;
	f->next = after > 0 ? after + 1 : 0;
	sl__buf_init(&f->text, &sl__env_real);
	sl__mutex_init(&f->mu);
	sl__cond_init(&f->wake);
	int rc = sl__thread_start(&f->thread, "sl-export-feed", feed_main, f);
	if (rc == 0) {
		*out = f;
		return 0;
	}
	(void)close(fd);
	sl__cond_fini(&f->wake);
	sl__mutex_fini(&f->mu);
	free(f);
	return sl__thread_error(err, rc, "feed", "the export");
}

void srv_feed_end(struct srv_feed *f)
{
	sl__lock(&f->mu);
	f->end = true;
	sl__broadcast(&f->wake);
	sl__unlock(&f->mu);
}

void srv_feed_free(struct srv_feed *f, struct sl_err *err)
{
	if (f == NULL)
		return;
	srv_feed_end(f);
	(void)pthread_join(f->thread, NULL);
	if (err != NULL && f->err.code != 0)
		*err = f->err;
	sl__cond_fini(&f->wake);
	sl__mutex_fini(&f->mu);
	sl__buf_fini(&f->text);
	free(f);
}

/* ---- the newest event ---- */

static int note_offset(const struct sl_event_row *e, void *ctx)
{
	*(uint64_t *)ctx = e->offset;
	return 0;
}

/* The first event after `after`; 0: no such event. */
static int first_behind(struct srv_core *core, uint64_t after, uint64_t *out, struct sl_err *err)
{
	const sl_store *store = core->store;
	*out = 0;
	return store->ops->events_read(store->ctx, 0, after, 1, note_offset, out, err);
}

int srv_feed_newest(struct srv_core *core, uint64_t *newest, struct sl_err *err)
{
	uint64_t found = 0, below = *newest, above, step = 1;
	int rc = first_behind(core, below, &found, err);
	if (rc != 0 || found == 0)
		return rc;
	/* There is an event after `below`; double the step until no event follows `above`. */
	for (below = found; rc == 0 && found != 0 && step < UINT64_C(1) << 62; step *= 2) {
		below = found;
		rc = first_behind(core, below + step, &found, err);
	}
	above = below + step;
	while (rc == 0 && above > below) { /* it is one of both, or between them */
		uint64_t middle = below + (above - below) / 2;
		rc = first_behind(core, middle, &found, err);
		if (found != 0)
			below = found;
		else
			above = middle;
	}
	if (rc == 0)
		*newest = below;
	return rc;
}
