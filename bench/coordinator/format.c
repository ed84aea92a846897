/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reading records costs, without any sink: finding the records of CSV and JSON lines in a stream, taking one apart
 * into fields, writing it again. Rows are those of the load benchmark (symbol, ts, open, high, low, close, volume).
 *
 *	usage: sluice-bench-format [ROUNDS]      default 5; the best round counts, and the worst is shown beside it
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "format/row.h"
#include <sluice/records.h>

#define N_ROWS 200000

static const char *const columns[] = {"symbol", "ts", "open", "high", "low", "close", "volume"};
enum { N_COLUMNS = 7 };

struct text {
	char *data;
	size_t len, at;
};

static double cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* nothing here waits; other programs must not count */
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "sluice-bench-format: %s\n", what);
	exit(70);
}

enum style { PLAIN, QUOTED, JSON };

static void put_row(FILE *f, enum style style, unsigned i)
{
	static const char *const formats[] = {
		"S%03u,2024-01-%02uT%02u:30:%02u.125Z,%u.%02u,%u.%02u,%u.%02u,%u.%02u,%u\n",
		"\"S%03u\",\"2024-01-%02uT%02u:30:%02u.125Z\",%u.%02u,%u.%02u,%u.%02u,%u.%02u,%u\n",
		("{\"symbol\":\"S%03u\",\"ts\":\"2024-01-%02uT%02u:30:%02u.125Z\",\"open\":%u.%02u,\"high\":%u.%02u,"
		 "\"low\":"
		 "%u.%02u,\"close\":%u.%02u,\"volume\":%u}\n"),
	};
	unsigned p = 100 + i % 400, c = i * 7 % 100;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	fprintf(f, formats[style], i % 1000, i % 28 + 1, i % 24, i % 60, p, c, p + 2, c, p - 1, c, p + 1, c, i * 37);
#pragma GCC diagnostic pop
}

static struct text make(enum style style)
{
	struct text t = {0};
	FILE *f = open_memstream(&t.data, &t.len);
	if (f == NULL)
		die("no memory");
	for (unsigned i = 0; i < N_ROWS; i++)
		put_row(f, style, i);
	fclose(f);
	return t;
}

static int64_t read_text(void *buf, size_t n, struct sl_err *err, void *ctx)
{
	struct text *t = ctx;
	(void)err;
	size_t k = SL_MIN(n, t->len - t->at);
	memcpy(buf, t->data + t->at, k);
	t->at += k;
	return (int64_t)k;
}

/* Every record in batches of 500; the nanoseconds of all. fields: also take them apart. */
static double split(struct text *t, enum style style, struct sl__row_reader *rows)
{
	const struct sl_records_opts opts = {SL_RECORDS_OPTS_INIT, .format = style == JSON ? SL_ROWS_JSON : SL_ROWS_CSV,
					     .header = style == JSON ? SL_DEFAULT : SL_OFF};
	struct sl_record batch[500];
	struct sl__field fields[N_COLUMNS];
	sl_records *r;
	size_t n, all = 0;
	t->at = 0;
	if (sl_records_new(&r, read_text, t, &opts, NULL) != 0)
		die("no reader");
	double from = cpu_ns();
	do {
		if (sl_records_next(r, batch, SL_COUNT(batch), &n, NULL) != 0)
			die("not read");
		all += n;
		for (size_t i = 0; i < n; i++)
			if (batch[i].bad != NULL ||
			    (rows != NULL && sl__row_read(rows, batch[i].data, batch[i].len, fields, NULL) != 0))
				die("a bad record");
	} while (n > 0);
	double took = cpu_ns() - from;
	sl_records_free(r);
	if (all != N_ROWS)
		die("records are missing");
	return took;
}

static void show(const char *what, const struct text *t, double best, double worst)
{
	printf("%-34s %8.0f MB/s %8.1f ns a record (worst round %.1f)\n", what, (double)t->len / best * 1e3,
	       best / N_ROWS, worst / N_ROWS);
}

static void run(enum style style, int rounds)
{
	static const char *const names[] = {"CSV", "CSV, two fields quoted", "JSON lines"};
	const struct sl__row_opts opts = {.csv = style != JSON, .columns = columns, .n_columns = N_COLUMNS};
	struct text t = make(style);
	struct sl__row_reader *rows;
	char label[64];
	if (sl__row_reader_new(&rows, &opts, NULL) != 0)
		die("no reader");
	for (int apart = 0; apart < 2; apart++) {
		double best = 1e18, worst = 0;
		for (int i = 0; i < rounds; i++) {
			double took = split(&t, style, apart ? rows : NULL);
			best = SL_MIN(best, took);
			worst = SL_MAX(worst, took);
		}
		snprintf(label, sizeof(label), "%s: %s", names[style], apart ? "records and fields" : "records");
		show(label, &t, best, worst);
	}
	sl__row_reader_free(rows);
	free(t.data);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 5;
	for (enum style style = PLAIN; style <= JSON; style++)
		run(style, rounds > 0 ? rounds : 5);
	return 0;
}
