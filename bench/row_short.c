/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short logs, one after the other: open, ten appends (each durable), close, archive. What counts beside the rate is
 * that a short log does not pay for a long one's preparation: the zeros written ahead are asked from the log and, not
 * trusting it, read off the size of its file before it is closed.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "bench.h"
#include <sluice/wal_files.h>

#define RECORDS 10
#define PAYLOAD 256

struct worst {
	uint64_t prepared, file;
};

static int look(sl_wal *w, const char *path, struct worst *worst, struct sl_err *err)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct stat st;
	int rc = sl_wal_get_stats(w, &stats, err);
	if (rc != 0)
		return rc;
	if (stat(path, &st) != 0)
		return sl_err_set_errno(err, errno, "stat %s", path);
	if (stats.prepared_bytes > worst->prepared)
		worst->prepared = stats.prepared_bytes;
	if ((uint64_t)st.st_size > worst->file)
		worst->file = (uint64_t)st.st_size;
	return 0;
}

static int one_log(const char *dir, const char *archive, int number, struct worst *worst, struct sl_err *err)
{
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .wal_dir = dir, .archive_dir = archive};
	unsigned char payload[PAYLOAD];
	char id[32], path[4200];
	sl_wal *w = NULL;
	(void)snprintf(id, sizeof(id), "job-%d", number);
	(void)snprintf(path, sizeof(path), "%s/%s.wal", dir, id);
	fill_random(payload, sizeof(payload), (uint64_t)number + 1);
	int rc = sl_wal_open(&w, id, &opts, err);
	for (int i = 0; rc == 0 && i < RECORDS; i++)
		rc = sl_wal_append(w, payload, sizeof(payload), NULL, err);
	if (rc == 0)
		rc = look(w, path, worst, err);
	int closed = sl_wal_close(w, rc == 0 ? err : NULL);
	if (rc == 0)
		rc = closed;
	return rc != 0 ? rc : sl_wal_archive_path(path, archive, true, &opts, err);
}

static void report_short(struct report *r, int logs, double seconds, const struct worst *worst)
{
	struct line rate = {.row = "short", .record_bytes = PAYLOAD, .unit = "logs/s", .against = "-"};
	struct line zeros = {
		.row = "short", .record_bytes = PAYLOAD, .unit = "KiB", .against = "-", .floor = 128, .at_most = true};
	(void)snprintf(rate.work, sizeof(rate.work), "%d short logs", logs);
	(void)snprintf(rate.ours, sizeof(rate.ours), "%.2f s", seconds);
	rate.value = rate.ours_rate = logs / seconds;
	report_line(r, &rate);
	uint64_t most = worst->prepared > worst->file ? worst->prepared : worst->file;
	(void)snprintf(zeros.work, sizeof(zeros.work), "short logs, most zeros prepared");
	(void)snprintf(zeros.ours, sizeof(zeros.ours), "%llu KiB", (unsigned long long)(most / 1024));
	zeros.value = (double)most / 1024;
	report_line(r, &zeros);
	fprintf(r->details,
		"\nshort logs: most prepared as reported %llu bytes, largest file before close %llu bytes\n",
		(unsigned long long)worst->prepared, (unsigned long long)worst->file);
}

void row_short_logs(struct report *r, const struct settings *s)
{
	char dir[4096], archive[4096];
	struct sl_err err = SL_ERR_INIT;
	struct worst worst = {0};
	int rc = make_dir(dir, sizeof(dir), s->dir, "short", &err);
	if (rc == 0)
		rc = make_dir(archive, sizeof(archive), s->dir, "archive", &err);
	uint64_t begin = now_ns();
	int done = 0;
	while (rc == 0 && done < s->short_logs && now_ns() < begin + s->short_ns && !bench_stopped) {
		rc = one_log(dir, archive, done, &worst, &err);
		done += rc == 0;
	}
	if (rc == 0 && done > 0)
		report_short(r, done, (double)(now_ns() - begin) / 1e9, &worst);
	else if (rc != 0)
		fprintf(r->details, "\nshort logs failed: %s\n", err.msg);
	remove_tree(dir);
	remove_tree(archive);
}
