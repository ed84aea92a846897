/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's events as CSV into a pipe, in the order of their offsets.
 *
 * Offsets are gapless when events are committed, so one that is not there was deleted with its job. The export wants
 * every number once; such an event gets a row with its offset and nothing else. What is missing before the very first
 * event that is there was never ours: the dataset begins behind it.
 *
 * A read of the store never waits for the reader of the pipe: rows are gathered first, READ_BYTES of them at most, and
 * written when the store's statement has ended.
 */
#include "server/export/export.h"
#include "server/growing.h"
#include "server/thread.h"

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
#define LOOK_MS 500
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
#define NOTHING ",,,,,,,,,,,\n" /* behind the offset of an event that is gone */

struct srv_feed {
	struct srv_core *core;
	int fd;
	uint64_t next; /* offset of the next row; 0: that of the first event there is */
	struct srv_growing text;
	pthread_t thread;
	pthread_mutex_t mu; /* guards end */
	pthread_cond_t wake;
	bool end;
	struct sl_err err; /* the thread's until it is joined */
};

/* ---- rows ---- */

static void put(struct srv_growing *t, const char *data, size_t n)
{
	memcpy(t->data + t->len, data, n);
	t->len += n;
}

static void put_quoted(struct srv_growing *t, const char *text)
{
	t->data[t->len++] = '"';
	for (; *text != '\0'; text++) {
		if (*text == '"')
			t->data[t->len++] = '"';
		t->data[t->len++] = *text;
	}
	t->data[t->len++] = '"';
}

static void put_hex(struct srv_growing *t, const uint8_t *data, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	put(t, "\\x", 2);
	for (size_t i = 0; i < n; i++) {
		t->data[t->len++] = digits[data[i] >> 4];
		t->data[t->len++] = digits[data[i] & 15];
	}
}

static size_t time_text(char *out, size_t size, int64_t ms)
{
	struct tm tm;
	time_t s = (time_t)(ms / 1000 - (ms % 1000 < 0));
	if (gmtime_r(&s, &tm) == NULL)
		return 0;
	size_t n = strftime(out, size, "%Y-%m-%dT%H:%M:%S", &tm);
	return n + (size_t)snprintf(out + n, size - n, ".%03dZ", (int)(ms - (int64_t)s * 1000));
}

static int put_event(struct srv_growing *t, const struct sl_event_row *e)
{
	char fixed[256], ts[64], job[24] = "", attempt[16] = "";
	size_t names = 2 * strlen(e->stream) + 2;
	if (srv_growing_reserve(t, sizeof(fixed) + sizeof(ts) + names + 2 * e->payload_len + 8) != 0)
		return SL_ENOMEM;
	if (e->job_id != 0)
		(void)snprintf(job, sizeof(job), "%" PRIu64, e->job_id);
	if (e->attempt != 0)
		(void)snprintf(attempt, sizeof(attempt), "%" PRId32, e->attempt);
	put(t, fixed, (size_t)snprintf(fixed, sizeof(fixed), "%" PRIu64 ",", e->offset));
	put_quoted(t, e->stream);
	/* A checksum has 64 bits and keeps them; the store's column has a sign as well. */
	put(t, fixed,
	    (size_t)snprintf(fixed, sizeof(fixed), ",%" PRIu32 ",%" PRIu64 ",%" PRId64 ",%s,%s,%s,%s,%s,",
			     e->incarnation, e->sequence, (int64_t)e->crc, job, attempt, sl_event_type_name(e->type),
			     e->late ? "true" : "false", e->partial ? "true" : "false"));
	put(t, ts, time_text(ts, sizeof(ts), e->ts_ms));
	put(t, ",", 1);
	put_hex(t, e->payload, e->payload_len);
	put(t, "\n", 1);
	return 0;
}

/* Those before e that are gone. ENOUGH: there are more of them than fit. */
static int put_gone(struct srv_feed *f, const struct sl_event_row *e)
{
	char row[64];
	if (f->next == 0)
		f->next = e->offset;
	for (; f->next < e->offset; f->next++) {
		int n = snprintf(row, sizeof(row), "%" PRIu64 NOTHING, f->next);
		if (srv_growing_reserve(&f->text, (size_t)n) != 0)
			return SL_ENOMEM;
		put(&f->text, row, (size_t)n);
		if (f->text.len >= READ_BYTES) {
			f->next++;
			return ENOUGH;
		}
	}
	return 0;
}

static int on_row(const struct sl_event_row *e, void *ctx)
{
	struct srv_feed *f = ctx;
	int rc = put_gone(f, e);
	/* The last one that fitted may have been its neighbour: it is read again. */
	if (rc == 0)
		rc = put_event(&f->text, e);
	if (rc != 0)
		return rc;
	f->next = e->offset + 1;
	return f->text.len >= READ_BYTES ? ENOUGH : 0;
}

/* ---- the thread ---- */

static int write_all(struct srv_feed *f)
{
	for (size_t at = 0; at < f->text.len;) {
		ssize_t n = write(f->fd, f->text.data + at, f->text.len - at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EPIPE ? SL_ECLOSED : sl_err_set_errno(&f->err, errno, "write to the export");
		at += (size_t)n;
	}
	f->text.len = 0;
	return 0;
}

static bool ended(struct srv_feed *f)
{
	(void)pthread_mutex_lock(&f->mu);
	bool end = f->end;
	(void)pthread_mutex_unlock(&f->mu);
	return end;
}

static void rest(struct srv_feed *f)
{
	struct timespec at = srv_clock_at(srv_clock_ms() + LOOK_MS);
	(void)pthread_mutex_lock(&f->mu);
	int rc = 0;
	while (!f->end && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&f->wake, &f->mu, &at);
	(void)pthread_mutex_unlock(&f->mu);
}

/* One read of the store and what it gave into the pipe. *idle: there was nothing. */
static int step(struct srv_feed *f, bool *idle)
{
	const sl_store *store = f->core->store;
	uint64_t after = f->next > 0 ? f->next - 1 : 0;
	int rc = store->ops->events_read(store->ctx, 0, after, READ_ROWS, on_row, f, &f->err);
	*idle = f->text.len == 0;
	if (rc != 0 && rc != ENOUGH)
		return rc == SL_ENOMEM ? sl_err_set(&f->err, SL_ENOMEM, "out of memory") : rc;
	return write_all(f);
}

static void *run(void *arg)
{
	struct srv_feed *f = arg;
	bool idle = false;
	int rc = 0;
	if (srv_growing_reserve(&f->text, sizeof(HEADER)) == 0)
		put(&f->text, HEADER, sizeof(HEADER) - 1);
	else
		rc = sl_err_set(&f->err, SL_ENOMEM, "out of memory");
	rc = rc != 0 ? rc : write_all(f);
	while (rc == 0 && !ended(f)) {
		rc = step(f, &idle);
		if (rc == 0 && idle)
			rest(f);
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
	(void)pthread_mutex_init(&f->mu, NULL);
	srv_cond_init(&f->wake);
	int failed = srv_thread_start(&f->thread, "sl-export-feed", run, f);
	if (failed == 0) {
		*out = f;
		return 0;
	}
	(void)close(fd);
	(void)pthread_cond_destroy(&f->wake);
	(void)pthread_mutex_destroy(&f->mu);
	free(f);
	return sl_err_set_errno(err, failed, "start a thread");
}

void srv_feed_end(struct srv_feed *f)
{
	(void)pthread_mutex_lock(&f->mu);
	f->end = true;
	(void)pthread_cond_broadcast(&f->wake);
	(void)pthread_mutex_unlock(&f->mu);
}

void srv_feed_free(struct srv_feed *f, struct sl_err *err)
{
	if (f == NULL)
		return;
	srv_feed_end(f);
	(void)pthread_join(f->thread, NULL);
	if (err != NULL && f->err.code != 0)
		*err = f->err;
	(void)pthread_cond_destroy(&f->wake);
	(void)pthread_mutex_destroy(&f->mu);
	free(f->text.data);
	free(f);
}

/* ---- the newest event ---- */

static int note_offset(const struct sl_event_row *e, void *ctx)
{
	*(uint64_t *)ctx = e->offset;
	return 0;
}

/* The first event behind `after`; 0: there is none. */
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
	/* There is one behind `below`; go on in doubled steps until there is none behind `above`. */
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
