/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery: how fast sl_wal_open reads back a log whose files are in the page cache, first with every record pending,
 * then with every record sent.
 */
#include <stdlib.h>

#include "bench.h"
#include <sluice/wal.h>

#define PAYLOAD ((size_t)2048)
#define BATCH 256

static int open_log(sl_wal **out, const char *dir, struct sl_err *err)
{
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .wal_dir = dir, .archive_dir = dir, .archive_on_complete = SL_OFF,
				   .max_pending_bytes = SL_UNLIMITED};
	return sl_wal_open(out, "recovery", &opts, err);
}

static int write_log(const char *dir, size_t bytes, struct sl_err *err)
{
	struct sl_wal_span spans[BATCH];
	unsigned char *data = malloc(BATCH * PAYLOAD);
	sl_wal *w = NULL;
	if (data == NULL)
		return sl_err_set(err, SL_ENOMEM, "payloads");
	fill_random(data, BATCH * PAYLOAD, 3);
	for (size_t i = 0; i < BATCH; i++)
		spans[i] = (struct sl_wal_span){.data = data + i * PAYLOAD, .len = PAYLOAD};
	int rc = open_log(&w, dir, err);
	for (size_t done = 0; rc == 0 && done < bytes && !bench_stopped; done += BATCH * PAYLOAD)
		rc = sl_wal_append_many(w, spans, BATCH, NULL, NULL, err);
	free(data);
	int closed = sl_wal_close(w, rc == 0 ? err : NULL);
	return rc != 0 ? rc : closed;
}

static int mark_all_sent(const char *dir, struct sl_err *err)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	sl_wal *w = NULL;
	int rc = open_log(&w, dir, err);
	if (rc == 0)
		rc = sl_wal_get_stats(w, &stats, err);
	if (rc == 0)
		rc = sl_wal_mark_sent(w, stats.first_sequence, stats.last_sequence, err);
	int closed = sl_wal_close(w, rc == 0 ? err : NULL);
	return rc != 0 ? rc : closed;
}

/* One open, timed; *stats as it was then. */
static int time_open(const char *dir, double *seconds, struct sl_wal_stats *stats, struct sl_err *err)
{
	sl_wal *w = NULL;
	uint64_t begin = now_ns();
	int rc = open_log(&w, dir, err);
	*seconds = (double)(now_ns() - begin) / 1e9;
	if (rc == 0)
		rc = sl_wal_get_stats(w, stats, err);
	int closed = sl_wal_close(w, rc == 0 ? err : NULL);
	return rc != 0 ? rc : closed;
}

static int measure(struct report *r, const struct settings *s, const char *dir, const char *work, bool sent,
		   struct sl_err *err)
{
	struct line l = {
		.row = "recovery", .record_bytes = PAYLOAD, .unit = "GiB/s", .floor = 1, .goal = 5, .against = "-"};
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	double seconds[5], warm;
	int rc = time_open(dir, &warm, &stats, err);
	for (size_t i = 0; rc == 0 && i < 5; i++)
		rc = time_open(dir, &seconds[i], &stats, err);
	if (rc != 0)
		return rc;
	uint64_t expected = s->recovery_bytes / PAYLOAD;
	if (stats.records != expected || stats.pending != (sent ? 0 : expected))
		return sl_err_set(err, SL_EINTERNAL, "%llu records, %llu pending found",
				  (unsigned long long)stats.records, (unsigned long long)stats.pending);
	l.value = (double)stats.bytes / median(seconds, 5) / (1 << 30);
	l.ours_rate = l.value;
	(void)snprintf(l.work, sizeof(l.work), "%s", work);
	(void)snprintf(l.ours, sizeof(l.ours), "%.0f ms", median(seconds, 5) * 1000);
	fprintf(r->details, "\n%s: %.2f GiB in %llu segments, index %llu bytes (%.1f a record)\n", work,
		(double)stats.bytes / (1 << 30), (unsigned long long)stats.segments,
		(unsigned long long)stats.index_bytes, (double)stats.index_bytes / (double)expected);
	report_line(r, &l);
	return 0;
}

void row_recovery(struct report *r, const struct settings *s)
{
	char dir[4096];
	struct sl_err err = SL_ERR_INIT;
	int rc = make_dir(dir, sizeof(dir), s->dir, "recovery", &err);
	if (rc == 0)
		rc = write_log(dir, s->recovery_bytes, &err);
	if (rc == 0)
		rc = measure(r, s, dir, "recovery, cached, all pending", false, &err);
	if (rc == 0)
		rc = mark_all_sent(dir, &err);
	if (rc == 0)
		rc = measure(r, s, dir, "recovery, cached, all sent", true, &err);
	if (rc != 0)
		fprintf(r->details, "\nrecovery failed: %s\n", err.msg);
	remove_tree(dir);
}
