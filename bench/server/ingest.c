/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs of events, and how long it takes to get them to a server.
 *
 *   sluice-bench-ingest fill DIR SENDERS EVENTS        logs s0, s1, … in DIR with EVENTS events in all, not timed
 *   sluice-bench-ingest send DIR SENDERS URL [BATCH]   send them, all at once; prints the seconds from the start of the
 *                                                      senders until the last event is acknowledged
 *
 * Event i (from 0) of sender s is a line of the job s + 1: "line i of sender s, …", 80 bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sluice/events.h>

#define LINE_BYTES 80
#define CHUNK 1000
#define SENDERS_MAX 64
#define BATCH 500

static void must(int rc, const struct sl_err *err)
{
	if (rc == 0)
		return;
	fprintf(stderr, "sluice-bench-ingest: %s: %s\n", sl_err_name(rc), err->msg);
	exit(1);
}

static sl_wal *open_log(const char *dir, int sender, int batch)
{
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .wal_dir = dir, .archive_on_complete = SL_OFF,
				   .batch_records = batch};
	struct sl_err err = SL_ERR_INIT;
	sl_wal *log = NULL;
	char id[16];
	(void)snprintf(id, sizeof(id), "s%d", sender);
	must(sl_wal_open(&log, id, &opts, &err), &err);
	return log;
}

static void make_record(int sender, long i, struct sl_wal_span *out)
{
	char line[LINE_BYTES + 1];
	struct sl_err err = SL_ERR_INIT;
	void *bytes = NULL;
	int n = snprintf(line, sizeof(line), "line %ld of sender %d, ", i, sender);
	memset(line + n, 'x', (size_t)(LINE_BYTES - n));
	const struct sl_event event = {.type = SL_EVENT_STDOUT,
				       .job_id = (uint64_t)sender + 1,
				       .attempt = 1,
				       .claim = {{1, 2, 3}},
				       .ts_ms = 1700000000000 + i,
				       .position = (uint64_t)i * LINE_BYTES,
				       .data = line,
				       .len = LINE_BYTES};
	must(sl_event_encode(&event, NULL, &bytes, &out->len, &err), &err);
	out->data = bytes;
}

static void fill(const char *dir, int senders, long events)
{
	static struct sl_wal_span spans[CHUNK];
	struct sl_err err = SL_ERR_INIT;
	for (int s = 0; s < senders; s++) {
		sl_wal *log = open_log(dir, s, BATCH);
		for (long i = 0; i < events / senders;) {
			size_t n = 0;
			while (n < CHUNK && i < events / senders)
				make_record(s, i++, &spans[n++]);
			must(sl_wal_append_many(log, spans, n, NULL, NULL, &err), &err);
			for (size_t k = 0; k < n; k++)
				sl_event_free(NULL, (void *)(uintptr_t)spans[k].data);
		}
		must(sl_wal_close(log, &err), &err);
	}
}

static double now(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void send_all(const char *dir, int senders, const char *url, int batch)
{
	sl_wal *logs[SENDERS_MAX];
	sl_event_http_sender *http[SENDERS_MAX];
	struct sl_err err = SL_ERR_INIT;
	const struct sl_event_http_opts opts = {SL_EVENT_HTTP_OPTS_INIT, .url = url};
	for (int s = 0; s < senders; s++) {
		logs[s] = open_log(dir, s, batch);
		must(sl_event_http_sender_new(&http[s], &opts, &err), &err);
	}
	double start = now();
	for (int s = 0; s < senders; s++)
		must(sl_wal_sender_start(logs[s], sl_event_http_sender_ops(), http[s], &err), &err);
	for (int s = 0; s < senders; s++)
		must(sl_wal_sender_stop(logs[s], SL_UNLIMITED, &err), &err);
	printf("%.6f\n", now() - start);
	for (int s = 0; s < senders; s++) {
		must(sl_wal_close(logs[s], &err), &err);
		sl_event_http_sender_free(http[s]);
	}
}

int main(int argc, char **argv)
{
	int senders = argc > 3 ? atoi(argv[3]) : 0;
	if (argc < 5 || senders < 1 || senders > SENDERS_MAX) {
		fprintf(stderr, "usage: sluice-bench-ingest fill DIR SENDERS EVENTS | send DIR SENDERS URL [BATCH]\n");
		return 64;
	}
	if (strcmp(argv[1], "fill") == 0)
		fill(argv[2], senders, atol(argv[4]));
	else
		send_all(argv[2], senders, argv[4], argc > 5 ? atoi(argv[5]) : BATCH);
	return 0;
}
