/* SPDX-License-Identifier: Apache-2.0 */
/* The export as a whole: what it makes of an input, the same bytes every time, and where it stops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/base.h"
#include "export_place.h"
#include "support/vclock.h"
#include <sluice/dead_letter.h>
#include <sluice/metrics.h>

static int open_place(void **state)
{
	struct place *p = malloc(sizeof(*p));
	place_open(p);
	*state = p;
	return 0;
}

static int close_place(void **state)
{
	place_close(*state);
	free(*state);
	return 0;
}

static void write_csv(struct place *p, uint64_t first, uint64_t last)
{
	char *text = rows_csv(first, last);
	place_write(p, "in.csv", text, strlen(text));
	free(text);
}

/* Export and expect it to work. */
static struct sl_export_result export(const struct sl_export_opts *opts)
{
	struct sl_export_result result;
	struct sl_err err = SL_ERR_INIT;
	if (place_run(opts, &result, &err) != 0)
		fail_msg("%s", err.msg);
	return result;
}

/* Export and expect this code and message. */
static struct sl_export_result refuse(const struct sl_export_opts *opts, int code, const char *message)
{
	struct sl_export_result result;
	struct sl_err err = SL_ERR_INIT;
	int rc = place_run(opts, &result, &err);
	if (rc != code)
		fail_msg("%d: %s", rc, err.msg);
	if (strstr(err.msg, message) == NULL)
		fail_msg("\"%s\" is not in \"%s\"", message, err.msg);
	return result;
}

static void expect_rows(const struct place *p, const char *wanted)
{
	char *rows = place_rows(p);
	assert_string_equal(rows, wanted);
	free(rows);
}

static void expect_same(const struct place *p, const char *wanted)
{
	char *now = place_show(p);
	if (strcmp(now, wanted) != 0)
		fail_msg("is:\n%s\nnot:\n%s", now, wanted);
	free(now);
}

/* ---- values ---- */

static void csv_becomes_rows_of_guessed_columns(void **state)
{
	struct place *p = *state;
	static const char text[] =
		"n,name,ok,x,at,day,big\n"
		"7,\"a \"\"q\"\"\",true,1.5,2024-02-29T12:00:00.5+01:00,2024-02-29,123456789012345678901234567890\n"
		"8,,false,-2,2024-02-29 12:00:00Z,,1\n"
		"9,\"\",,,,1970-01-02,\n";
	place_write(p, "in.csv", text, sizeof(text) - 1);
	struct sl_export_opts opts = place_opts(p, 8);
	struct sl_export_result r = export(&opts);
	assert_int_equal(r.partitions, 2);
	assert_int_equal(r.rows, 3);
	assert_int_equal(r.start, 7);
	assert_int_equal(r.checkpoint, 9);
	assert_int_equal(strlen(r.head), 64);
	expect_rows(p, "7|a \"q\"|true|1.5|1709204400500000|19782|123456789012345678901234567890\n"
		       "8|NULL|false|-2|1709208000000000|NULL|1\n"
		       "9||NULL|NULL|NULL|1|NULL\n");
}

static void json_lines_may_have_their_members_in_any_order_and_leave_some_out(void **state)
{
	struct place *p = *state;
	static const char text[] = "{\"n\":0,\"a\":\"x\\u00e9\\n\",\"nested\":{\"k\":[1,2]}}\n"
				   "\n"
				   "{\"nested\":[],\"a\":null,\"n\":1,\"late\":9007199254740993}\r\n"
				   "{\"n\":2}";
	place_write(p, "in.jsonl", text, sizeof(text) - 1);
	struct sl_export_opts opts = place_opts(p, 100);
	assert_int_equal(export(&opts).rows, 3);
	expect_rows(p, "0|x\xC3\xA9\n|{\"k\":[1,2]}|NULL\n"
		       "1|NULL|[]|9007199254740993\n"
		       "2|NULL|NULL|NULL\n");
}

static void given_columns_are_found_by_name(void **state)
{
	struct place *p = *state;
	static const struct sl_parquet_column columns[] = {
		{.name = "extra", .kind = SL_PARQUET_STRING, .nullable = true},
		{.name = "fee", .kind = SL_PARQUET_DECIMAL, .precision = 10, .scale = 2},
		{.name = "n", .kind = SL_PARQUET_INT32},
	};
	place_write(p, "in.csv", "n,fee\n5,1.5\n6,2\n", 16);
	struct sl_export_opts opts = place_opts(p, 10);
	opts.columns = columns;
	opts.n_columns = 3;
	opts.sequence = "n";
	(void)export(&opts);
	expect_rows(p, "NULL|150|5\nNULL|200|6\n");
	place_clear(p);
	place_write(p, "in.csv", "n,fee,other\n5,1.5,x\n", 20);
	(void)refuse(&opts, SL_EDATA, "the schema has no column for \"other\"");
	place_write(p, "in.csv", "n\n5\n", 4);
	(void)refuse(&opts, SL_EDATA, "required column \"fee\"");
}

/* One row per partition, of text that hardly compresses: pages below, at and above what a file gathers before a write.
 */
static void pages_of_any_size_come_back(void **state)
{
	enum { ROWS = 16, STEP = 24 << 10 };
	struct place *p = *state;
	char *text = malloc(ROWS * (ROWS + 1) / 2 * STEP + ROWS * 32 + 32), *at = text + sprintf(text, "n,t\n");
	uint64_t random = 1;
	for (int row = 1; row <= ROWS; row++) {
		at += sprintf(at, "%d,", row);
		for (int i = 0; i < row * STEP; i++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			*at++ = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[random >> 58];
		}
		*at++ = '\n';
	}
	*at = '\0';
	place_write(p, "in.csv", text, (size_t)(at - text));
	struct sl_export_opts opts = place_opts(p, 1);
	assert_int_equal(export(&opts).rows, ROWS);
	for (char *comma = text; (comma = strchr(comma, ',')) != NULL;)
		*comma = '|';
	expect_rows(p, strchr(text, '\n') + 1);
	free(text);
}

/* ---- the same bytes ---- */

static void the_bytes_are_the_same_for_any_number_of_workers(void **state)
{
	struct place *p = *state;
	write_csv(p, 95, 1000);
	struct sl_export_opts opts = place_opts(p, 100);
	opts.perf.workers = 1;
	struct sl_export_result r = export(&opts);
	assert_int_equal(r.partitions, 11);
	assert_int_equal(r.sequential, 0);
	char *wanted = place_show(p);
	for (int workers = 2; workers <= 8; workers *= 2) {
		place_clear(p);
		opts.perf.workers = workers;
		(void)export(&opts);
		expect_same(p, wanted);
	}
	free(wanted);
}

struct feeder {
	int fd;
	const char *text;
};

static void *feed(void *ctx)
{
	const struct feeder *f = ctx;
	for (size_t at = 0, n = strlen(f->text); at < n;) {
		ssize_t wrote = write(f->fd, f->text + at, SL_MIN(n - at, (size_t)777));
		if (wrote <= 0)
			break;
		at += (size_t)wrote;
	}
	close(f->fd);
	return NULL;
}

static struct sl_export_result export_pipe(struct sl_export_opts *opts, const char *text)
{
	int fds[2];
	pthread_t thread;
	assert_int_equal(pipe(fds), 0);
	struct feeder f = {.fd = fds[1], .text = text};
	assert_int_equal(pthread_create(&thread, NULL, feed, &f), 0);
	opts->from = "-";
	opts->fd = fds[0];
	struct sl_export_result r = export(opts);
	pthread_join(thread, NULL);
	close(fds[0]);
	return r;
}

static void a_pipe_gives_the_same_bytes_as_a_file(void **state)
{
	struct place *p = *state;
	char *text = rows_csv(1, 700);
	place_write(p, "in.csv", text, strlen(text));
	struct sl_export_opts opts = place_opts(p, 64);
	(void)export(&opts);
	char *wanted = place_show(p);
	place_clear(p);
	opts.format = SL_EXPORT_CSV;
	struct sl_export_result r = export_pipe(&opts, text);
	assert_int_equal(r.sequential, 1);
	expect_same(p, wanted);
	free(wanted);
	free(text);
}

struct paused {
	sl_export *e;
	int rc;
	struct sl_err err;
	atomic_int partitions;
};

static void count_partitions(const struct sl_export_progress *progress, void *ctx)
{
	struct paused *r = ctx;
	atomic_store(&r->partitions, (int)progress->partitions);
}

static void *run_paused(void *ctx)
{
	struct paused *r = ctx;
	r->rc = sl_export_run(r->e, NULL, &r->err);
	return NULL;
}

static void put_rows(int fd, uint64_t first, uint64_t last, bool header)
{
	char *text = rows_csv(first, last);
	const char *from = header ? text : strchr(text, '\n') + 1;
	assert_int_equal(write(fd, from, strlen(from)), strlen(from));
	free(text);
}

/* The pipe stays open, far from a whole sample. */
static void the_columns_of_a_pipe_that_pauses_are_guessed_from_what_came(void **state)
{
	struct place *p = *state;
	struct vclock clock;
	struct paused r = {.rc = -1};
	pthread_t thread;
	int fds[2];
	vclock_init(&clock);
	struct sl_env env = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &clock};
	assert_int_equal(pipe(fds), 0);
	struct sl_export_opts opts = place_opts(p, 10);
	opts.env = &env;
	opts.from = "-";
	opts.fd = fds[0];
	opts.format = SL_EXPORT_CSV;
	opts.on_progress = count_partitions;
	opts.on_progress_ctx = &r;
	assert_int_equal(sl_export_new(&r.e, &opts, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, run_paused, &r), 0);
	vclock_advance_ms(&clock, 60000); /* for the first row it waits as long as it takes */
	put_rows(fds[1], 0, 14, true);
	assert_int_equal(write(fds[1], "15,te", 5), 5);
	while (atomic_load(&r.partitions) < 1) {
		vclock_advance_ms(&clock, 100);
		sched_yield();
	}
	assert_int_equal(write(fds[1], "xt,1.5,\n", 8), 8);
	put_rows(fds[1], 16, 29, false);
	close(fds[1]);
	pthread_join(thread, NULL);
	if (r.rc != 0)
		fail_msg("%s", r.err.msg);
	assert_int_equal(atomic_load(&r.partitions), 3);
	sl_export_free(r.e);
	close(fds[0]);
	vclock_fini(&clock);
	char *rows = place_rows(p);
	assert_non_null(strstr(rows, "\n15|text|"));
	free(rows);
}

static void json_gives_the_same_rows_as_csv(void **state)
{
	struct place *p = *state;
	write_csv(p, 1, 700);
	struct sl_export_opts opts = place_opts(p, 64);
	(void)export(&opts);
	char *wanted = place_show(p), *text = rows_json(1, 700);
	place_clear(p);
	place_write(p, "in.jsonl", text, strlen(text));
	assert_int_equal(export(&opts).sequential, 0);
	expect_same(p, wanted);
	free(text);
	free(wanted);
}

/* Line ends in quotes, some of which look like rows. */
static char *tricky_csv(uint64_t last)
{
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	fprintf(f, "n,note\n");
	for (uint64_t i = 1; i <= last; i++)
		fprintf(f, "%" PRIu64 ",\"line\n%" PRIu64 ",x\n%" PRIu64 ",\"\"y\"\"\n\"\n", i, i + 1, i + 1);
	fclose(f);
	return text;
}

static void line_ends_in_quotes_are_found_and_cut_record_by_record(void **state)
{
	struct place *p = *state;
	char *text = tricky_csv(300);
	place_write(p, "in.csv", text, strlen(text));
	struct sl_export_opts opts = place_opts(p, 50);
	struct sl_export_result r = export(&opts);
	assert_int_equal(r.rows, 300);
	assert_int_equal(r.partitions, 7);
	assert_int_equal(r.sequential, 1);
	char *wanted = place_show(p);
	place_clear(p);
	opts.format = SL_EXPORT_CSV;
	(void)export_pipe(&opts, text);
	expect_same(p, wanted);
	free(text);
	free(wanted);
}

/* A place in the middle that looks like the row to continue with, but lies in quotes. */
struct said {
	atomic_int complaints;
	atomic_int falls_back;
};

static void listen(const struct sl_log_record *record, void *ctx)
{
	struct said *said = ctx;
	if (record->level == SL_LOG_WARN || record->level == SL_LOG_ERROR)
		atomic_fetch_add(&said->complaints, 1);
	if (record->level == SL_LOG_INFO &&
	    strcmp(record->message, "cannot split the file for parallel reading; reading it record by record") == 0)
		atomic_fetch_add(&said->falls_back, 1);
}

static int append_text(const char *data, size_t n, void *text)
{
	strncat(text, data, n);
	return 0;
}

/* In order but for one record that holds what looks like the first row of the next partition. */
static char *misleading_csv(uint64_t last)
{
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	fprintf(f, "n,note\n");
	for (uint64_t i = 1; i <= last; i++)
		fprintf(f, i == 99 ? "%" PRIu64 ",\"x\n100,y\n\"\n" : "%" PRIu64 ",x\n", i);
	fclose(f);
	return text;
}

static void cutting_record_by_record_is_no_failure(void **state)
{
	struct place *p = *state;
	struct said said = {0};
	sl_metrics *metrics;
	char *text = misleading_csv(300);
	place_write(p, "in.csv", text, strlen(text));
	free(text);
	assert_int_equal(sl_metrics_new(&metrics, NULL, NULL), 0);
	struct sl_env env = {SL_ENV_INIT, .log = listen, .log_ctx = &said, .metrics = metrics};
	struct sl_export_opts opts = place_opts(p, 50);
	opts.env = &env;
	struct sl_export_result r = export(&opts);
	assert_int_equal(r.sequential, 1);
	assert_int_equal(said.complaints, 0);
	assert_int_equal(said.falls_back, 1);
	char shown[1 << 16] = "";
	assert_int_equal(sl_metrics_render(metrics, append_text, shown, NULL), 0);
	assert_non_null(strstr(shown, "{status=\"committed\"} 7\n"));
	assert_non_null(strstr(shown, "{status=\"failed\"} 0\n"));
	sl_metrics_free(metrics);
}

struct seen_input {
	uint64_t last, total;
	int calls, backwards;
};

static void see_input(const struct sl_export_progress *progress, void *ctx)
{
	struct seen_input *seen = ctx;
	seen->backwards += progress->input_bytes <= seen->last;
	seen->last = progress->input_bytes;
	seen->total = progress->input_total;
	seen->calls++;
}

static void progress_reports_how_far_the_input_is_committed(void **state)
{
	struct place *p = *state;
	struct sl_export_opts opts = place_opts(p, 50);
	opts.on_progress = see_input;
	for (int how = 0; how < 3; how++) { /* guessed, record by record, a pipe */
		struct seen_input seen = {0};
		char *text = how == 1 ? misleading_csv(300) : rows_csv(1, 300);
		opts.on_progress_ctx = &seen;
		place_clear(p);
		place_write(p, "in.csv", text, strlen(text));
		opts.format = SL_EXPORT_CSV;
		struct sl_export_result r = how < 2 ? export(&opts) : export_pipe(&opts, text);
		assert_int_equal(r.sequential, how > 0);
		assert_int_equal(seen.calls, 7);
		assert_int_equal(seen.backwards, 0);
		assert_int_equal(seen.last, strlen(text));
		assert_int_equal(seen.total, how < 2 ? strlen(text) : 0);
		free(text);
	}
}

static void a_resume_is_not_taken_in_by_a_row_inside_of_quotes(void **state)
{
	struct place *p = *state;
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	fprintf(f, "n,note\n");
	for (int i = 0; i < 10; i++)
		fprintf(f, "%d,plain\n", i);
	fprintf(f, "10,\"\n");
	for (int i = 10; i < 25; i++)
		fprintf(f, "%d,fake\n", i);
	fprintf(f, "\"\n");
	for (int i = 11; i < 40; i++)
		fprintf(f, "%d,plain\n", i);
	fclose(f);
	struct sl_export_opts opts = place_opts(p, 10);
	static const char begin[] = "n,note\n0,plain\n1,plain\n2,plain\n3,plain\n4,plain\n5,plain\n6,plain\n7,plain\n"
				    "8,plain\n9,plain\n10,plain\n11,plain\n12,plain\n13,plain\n14,plain\n";
	place_write(p, "in.csv", begin, sizeof(begin) - 1);
	assert_int_equal(export(&opts).checkpoint, 14);
	place_write(p, "in.csv", text, n);
	struct sl_export_result r = export(&opts);
	assert_int_equal(r.rows, 25);
	assert_int_equal(r.checkpoint, 39);
	char *rows = place_rows(p);
	assert_null(strstr(rows, "fake"));
	free(rows);
	free(text);
}

/* ---- stops and resumes ---- */

struct stopper {
	sl_export *e;
	uint64_t at;
	enum sl_export_stop_mode mode;
};

static void stop_at(const struct sl_export_progress *progress, void *ctx)
{
	const struct stopper *s = ctx;
	if (progress->partitions >= s->at)
		sl_export_stop(s->e, s->mode);
}

static void an_export_that_was_stopped_anywhere_resumes_to_the_same_bytes(void **state)
{
	struct place *p = *state;
	char *text = rows_csv(1, 400), *tricky = tricky_csv(400);
	for (int way = 0; way < 4; way++) {
		const char *input = way < 2 ? text : tricky;
		place_write(p, "in.csv", input, strlen(input));
		struct sl_export_opts opts = place_opts(p, 20);
		place_clear(p);
		(void)export(&opts);
		char *wanted = place_show(p);
		place_clear(p);
		struct stopper s = {.at = 1, .mode = way % 2 == 0 ? SL_EXPORT_NOW : SL_EXPORT_DRAIN};
		opts.on_progress = stop_at;
		opts.on_progress_ctx = &s;
		uint64_t partitions = 0;
		int runs = 0;
		for (struct sl_export_result r = {.stopped = true}; r.stopped; runs++) {
			r = (struct sl_export_result){.struct_size = sizeof(r)};
			assert_int_equal(sl_export_new(&s.e, &opts, NULL), 0);
			assert_int_equal(sl_export_run(s.e, &r, NULL), 0);
			sl_export_free(s.e);
			partitions += r.partitions;
			assert_true(runs < 30);
		}
		assert_true(runs > 1);
		assert_int_equal(partitions, 21);
		expect_same(p, wanted);
		free(wanted);
	}
	free(text);
	free(tricky);
}

/* They come with one read, so that the stop finds all of them read, and the pipe open. */
static void rows_that_a_stop_leaves_are_counted(void **state)
{
	struct place *p = *state;
	static const struct sl_parquet_column columns[] = {{.name = "n", .kind = SL_PARQUET_INT64},
							   {.name = "a", .kind = SL_PARQUET_STRING}};
	static const char text[] = "n,a\n1,x\n2,x\n3,x\n4,x\n5,x\n6,x\n7,x\n8,x\n9,x\n10,x\n11,x\n12,x\n";
	struct stopper s = {.at = 1, .mode = SL_EXPORT_DRAIN};
	struct sl_export_opts opts = place_opts(p, 10);
	opts.from = "-";
	opts.format = SL_EXPORT_CSV;
	opts.columns = columns;
	opts.n_columns = SL_COUNT(columns);
	opts.on_progress = stop_at;
	opts.on_progress_ctx = &s;
	for (int way = 0; way < 2; way++) { /* the second skips what the first has */
		struct sl_export_result r = {.struct_size = sizeof(r)};
		int fds[2];
		assert_int_equal(pipe(fds), 0);
		assert_int_equal(write(fds[1], text, sizeof(text) - 1), sizeof(text) - 1);
		opts.fd = fds[0];
		opts.follow = SL_ON;
		assert_int_equal(sl_export_new(&s.e, &opts, NULL), 0);
		if (way == 1)
			close(fds[1]);
		assert_int_equal(sl_export_run(s.e, &r, NULL), 0);
		sl_export_free(s.e);
		close(fds[0]);
		if (way == 0)
			close(fds[1]);
		assert_int_equal(r.stopped, way == 0);
		assert_int_equal(r.checkpoint, 9);
		assert_int_equal(r.waiting, 3);
	}
}

static void a_run_over_what_is_committed_changes_nothing(void **state)
{
	struct place *p = *state;
	write_csv(p, 1, 100);
	struct sl_export_opts opts = place_opts(p, 30);
	(void)export(&opts);
	char *wanted = place_show(p);
	struct sl_export_result r = export(&opts);
	assert_int_equal(r.partitions, 0);
	assert_int_equal(r.checkpoint, 100);
	expect_same(p, wanted);
	free(wanted);
}

static void after_a_close_the_next_partition_runs_to_the_boundary(void **state)
{
	struct place *p = *state;
	write_csv(p, 1, 25);
	struct sl_export_opts opts = place_opts(p, 10);
	(void)export(&opts);
	write_csv(p, 1, 45);
	struct sl_export_result r = export(&opts);
	assert_int_equal(r.partitions, 3); /* 26-29, 30-39, 40-45 */
	assert_int_equal(r.rows, 20);
	write_csv(p, 46, 46);
	assert_int_equal(export(&opts).partitions, 1); /* the rows before it need not be there any more */
	char *rows = place_rows(p);
	size_t lines = 0;
	for (const char *at = rows; (at = strchr(at, '\n')) != NULL; at++)
		lines++;
	assert_int_equal(lines, 46);
	free(rows);
}

static void an_unfinished_partition_waits_when_it_is_not_final(void **state)
{
	struct place *p = *state;
	write_csv(p, 1, 25);
	struct sl_export_opts opts = place_opts(p, 10);
	opts.final = SL_OFF;
	struct sl_export_result r = export(&opts);
	assert_int_equal(r.checkpoint, 19);
	assert_int_equal(r.waiting, 6);
	opts.final = SL_ON;
	r = export(&opts);
	assert_int_equal(r.checkpoint, 25);
	assert_int_equal(r.waiting, 0);
}

struct growing {
	struct place *p;
	sl_export *e;
	uint64_t next;
};

static void grow(const struct sl_export_progress *progress, void *ctx)
{
	struct growing *g = ctx;
	if (progress->checkpoint >= 79) {
		sl_export_stop(g->e, SL_EXPORT_DRAIN);
		return;
	}
	char *text = rows_csv(g->next, g->next + 9), *behind = strchr(text, '\n') + 1;
	char *half = behind + strlen(behind) / 2;
	char saved = *half;
	*half = '\0';
	place_append(g->p, behind); /* in the middle of a row */
	*half = saved;
	place_append(g->p, half);
	g->next += 10;
	free(text);
}

static void following_a_file_commits_what_it_grows_by(void **state)
{
	struct place *p = *state;
	char *text = rows_csv(0, 14);
	place_write(p, "in.csv", text, strlen(text));
	free(text);
	struct growing g = {.p = p, .next = 15};
	struct sl_export_opts opts = place_opts(p, 10);
	opts.follow = SL_ON;
	opts.poll_interval_ms = 5;
	opts.on_progress = grow;
	opts.on_progress_ctx = &g;
	struct sl_export_result r = {.struct_size = sizeof(r)};
	assert_int_equal(sl_export_new(&g.e, &opts, NULL), 0);
	assert_int_equal(sl_export_run(g.e, &r, NULL), 0);
	sl_export_free(g.e);
	assert_int_equal(r.stopped, 1);
	assert_int_equal(r.checkpoint, 79);
	assert_int_equal(r.rows, 80);
	assert_int_equal(r.partitions, 8);
}

/* ---- the order of the input ---- */

static char *with_line(uint64_t last, uint64_t after, const char *line, uint64_t next)
{
	char *before = rows_csv(1, after), *behind = rows_csv(next, last), *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	fprintf(f, "%s%s%s", before, line, strchr(behind, '\n') + 1);
	fclose(f);
	free(before);
	free(behind);
	return text;
}

static void a_gap_a_repetition_and_a_step_back_are_named_with_line_and_column(void **state)
{
	struct place *p = *state;
	static const struct {
		uint64_t after, next;
		int code;
		const char *message;
	} wrong[] = {
		{55, 57, SL_EGAP, "56 is missing: the next number is 57 (line 57, column n)"},
		{59, 75, SL_EGAP, "60 to 74 are missing: the next number is 75 (line 61, column n)"},
		{55, 55, SL_EDUPLICATE, "55 (line 57, column n) comes after 55"},
		{55, 12, SL_EDUPLICATE, "12 (line 57, column n) comes after 55"},
	};
	for (size_t i = 0; i < SL_COUNT(wrong); i++)
		for (int pipe = 0; pipe < 2; pipe++) {
			char *text = with_line(200, wrong[i].after, "", wrong[i].next);
			place_clear(p);
			place_write(p, "in.csv", text, strlen(text));
			struct sl_export_opts opts = place_opts(p, 20);
			opts.header = SL_ON;
			if (pipe) { /* a descriptor of a regular file is read as a pipe is */
				opts.from = "-";
				opts.format = SL_EXPORT_CSV;
				opts.fd = open(p->input, O_RDONLY);
			}
			struct sl_export_result r = refuse(&opts, wrong[i].code, wrong[i].message);
			assert_int_equal(r.checkpoint, wrong[i].after == 59 ? 59 : 39);
			if (pipe)
				close(opts.fd);
			free(text);
			write_csv(p, 1, 200); /* set right, it continues */
			opts.from = p->input;
			r = export(&opts);
			assert_int_equal(r.checkpoint, 200);
		}
}

static void an_input_that_begins_past_the_checkpoint_has_a_gap(void **state)
{
	struct place *p = *state;
	write_csv(p, 1, 20);
	struct sl_export_opts opts = place_opts(p, 10);
	(void)export(&opts);
	write_csv(p, 25, 40);
	(void)refuse(&opts, SL_EGAP, "21 to 24 are missing: the next number is 25 (line 2, column n)");
}

/* ---- rows that do not fit ---- */

static void a_bad_row_stops_its_partition_with_line_and_column(void **state)
{
	struct place *p = *state;
	static const struct {
		const char *line, *message;
	} bad[] = {
		{"56,x,many,2024-01-01T00:00:00Z\n", "in.csv: "},
		{"56,x,many,2024-01-01T00:00:00Z\n", "line 57: column amount: not a number: \"many\""},
		{"56,x,1.5\n", "line 57: "},
		{"56,x,1.5,yesterday\n", "line 57: column at: not a valid time: \"yesterday\""},
		{"zz,x,1.5,\n", "line 57, column n: not an integer"},
		{"56,\"x,1.5,\n", "line 57: an unclosed quote"},
		{"56,\xFF,1.5,\n", "line 57: invalid UTF-8"},
	};
	for (size_t i = 0; i < SL_COUNT(bad); i++) {
		char *text = with_line(200, 55, bad[i].line, 57);
		place_clear(p);
		place_write(p, "in.csv", text, strlen(text));
		struct sl_export_opts opts = place_opts(p, 20);
		opts.sample_records = 20;
		struct sl_export_result r = refuse(&opts, SL_EDATA, bad[i].message);
		assert_int_equal(r.checkpoint, 39);
		free(text);
	}
}

static int count_letter(const struct sl_dlq_letter *letter, void *ctx)
{
	char *seen = ctx;
	size_t n = strlen(seen);
	(void)snprintf(seen + n, 1000 - n, "%s %" PRIu64 " [%.*s] %s\n", letter->source, letter->position,
		       (int)letter->item_len, (const char *)letter->item, letter->error);
	return 0;
}

static void bad_rows_can_be_diverted_and_are_counted(void **state)
{
	struct place *p = *state;
	static const char text[] = "n,x\n1,1\n2,2\n3,many\nfour,4\n5,\"5\n6,6\n7,7,7\n8,8\n";
	char letters[128], seen[1000] = "";
	place_write(p, "in.csv", text, sizeof(text) - 1);
	for (int pipe = 0; pipe < 2; pipe++) {
		struct sl_export_opts opts = place_opts(p, 4);
		opts.sample_records = 2;
		opts.bad_rows = SL_EXPORT_BAD_ROWS_DIVERT;
		place_clear(p);
		opts.format = SL_EXPORT_CSV;
		struct sl_export_result r = pipe ? export_pipe(&opts, text) : export(&opts);
		assert_int_equal(r.rows, 4);
		assert_int_equal(r.bad_rows, 4);
		assert_int_equal(r.checkpoint, 8);
		expect_rows(p, "1|1\n2|2\n6|6\n8|8\n");
	}
	const struct sl_dlq_opts read_only = {SL_DLQ_OPTS_INIT, .read_only = SL_ON};
	sl_dlq *q;
	(void)snprintf(letters, sizeof(letters), "%s/_dead/ledger", p->to);
	assert_int_equal(sl_dlq_open(&q, letters, &read_only, NULL), 0);
	assert_int_equal(sl_dlq_list(q, false, count_letter, seen, NULL), 0);
	sl_dlq_close(q);
	assert_non_null(strstr(seen, "export:ledger 4 [3,many] column x: not an integer: \"many\"\n"));
	assert_non_null(strstr(seen, "export:ledger 5 [four,4] not an integer\n"));
	assert_non_null(strstr(seen, "export:ledger 6 [5,\"5] an unclosed quote\n"));
	assert_non_null(strstr(seen, "export:ledger 8 [7,7,7] more fields than the header has\n"));
}

/* Those who read letters know commas. */
static void diverted_rows_have_commas_whatever_the_input_has(void **state)
{
	struct place *p = *state;
	static const char text[] = "n;x;y;z\n1;1;a;b\n2;two;\"a, \"\"b\"\"\";\n3;three;a,b;\"\"\n4;\"fo\"ur;;\n";
	char letters[128], seen[1000] = "";
	sl_dlq *q;
	place_write(p, "in.csv", text, sizeof(text) - 1);
	struct sl_export_opts opts = place_opts(p, 4);
	opts.sample_records = 1;
	opts.bad_rows = SL_EXPORT_BAD_ROWS_DIVERT;
	opts.format = SL_EXPORT_CSV;
	opts.delimiter = ';';
	assert_int_equal(export(&opts).bad_rows, 3);
	const struct sl_dlq_opts read_only = {SL_DLQ_OPTS_INIT, .read_only = SL_ON};
	(void)snprintf(letters, sizeof(letters), "%s/_dead/ledger", p->to);
	assert_int_equal(sl_dlq_open(&q, letters, &read_only, NULL), 0);
	assert_int_equal(sl_dlq_list(q, false, count_letter, seen, NULL), 0);
	sl_dlq_close(q);
	assert_non_null(strstr(seen, "[2,two,\"a, \"\"b\"\"\",]"));
	assert_non_null(strstr(seen, "[3,three,\"a,b\",\"\"]"));
	assert_non_null(strstr(seen, "[4;\"fo\"ur;;]")); /* not a record: as it was */
}

/* ---- what the dataset is ---- */

static void a_dataset_keeps_its_schema_size_and_sequence(void **state)
{
	struct place *p = *state;
	write_csv(p, 1, 20);
	struct sl_export_opts opts = place_opts(p, 10);
	opts.zstd_level = 5;
	(void)export(&opts);
	write_csv(p, 1, 40);
	opts.partition_size = 11;
	(void)refuse(&opts, SL_ECONFLICT, "partition_size: the dataset ledger has 10");
	opts.partition_size = 0;
	opts.zstd_level = 3;
	(void)refuse(&opts, SL_ECONFLICT, "zstd_level: the dataset ledger has 5");
	opts.zstd_level = 0;
	opts.sequence = "amount";
	(void)refuse(&opts, SL_ECONFLICT, "sequence: the dataset ledger has n");
	opts.sequence = NULL;
	struct sl_parquet_column other = {.name = "n", .kind = SL_PARQUET_INT64};
	opts.columns = &other;
	opts.n_columns = 1;
	(void)refuse(&opts, SL_ECONFLICT, "columns");
	opts.columns = NULL;
	opts.n_columns = 0;
	assert_int_equal(export(&opts).checkpoint, 40);
	place_write(p, "in.csv", "n,surprise\n41,1\n", 16);
	(void)refuse(&opts, SL_EDATA, "no column for \"surprise\"");
}

static void options_that_cannot_be_are_named(void **state)
{
	struct place *p = *state;
	struct sl_err err = SL_ERR_INIT;
	sl_export *e;
	write_csv(p, 1, 5);
	struct sl_export_opts opts = place_opts(p, 10);
#define WRONG(field, value, text)                                                                                      \
	do {                                                                                                           \
		struct sl_export_opts o = opts;                                                                        \
		o.field = (value);                                                                                     \
		assert_int_equal(sl_export_new(&e, &o, &err), SL_EINVAL);                                              \
		if (strstr(err.msg, text) == NULL)                                                                     \
			fail_msg("%s: %s", text, err.msg);                                                             \
	} while (0)
	WRONG(from, NULL, "from");
	WRONG(from, "data.bin", "format");
	WRONG(from, "sqlite:x.db", "table");
	WRONG(table, "t", "table");
	WRONG(to, "", "to");
	WRONG(dataset, "../x", "dataset");
	WRONG(dataset, "_x", "dataset");
	char name[102] = {0};
	memset(name, 'n', 101);
	WRONG(dataset, name, "dataset");
	name[100] = '\0';
	opts.dataset = name;
	assert_int_equal(sl_export_new(&e, &opts, &err), 0);
	sl_export_free(e);
	opts.dataset = place_opts(p, 10).dataset;
	WRONG(partition_size, -1, "partition_size");
	WRONG(zstd_level, 20, "zstd_level");
	WRONG(delimiter, '"', "delimiter");
#undef WRONG
	opts.follow = opts.final = SL_ON;
	assert_int_equal(sl_export_new(&e, &opts, &err), SL_EINVAL);
	opts.follow = opts.final = SL_DEFAULT;
	opts.sequence = "nothing";
	(void)refuse(&opts, SL_EINVAL, "sequence: no column \"nothing\"");
	opts.from = "/nowhere/in.csv";
	(void)refuse(&opts, SL_ENOENT, "open /nowhere/in.csv");
}

/* ---- gaps and backfill ---- */

static int count_gap(const struct sl_export_gap *gap, void *ctx)
{
	char *seen = ctx;
	size_t n = strlen(seen);
	(void)snprintf(seen + n, 200 - n, "%d %" PRIu64 "-%" PRIu64 "\n", gap->kind, gap->first, gap->last);
	return 0;
}

static void expect_gaps(const struct sl_export_opts *opts, const char *wanted)
{
	char seen[200] = "";
	sl_export *e;
	assert_int_equal(sl_export_new(&e, opts, NULL), 0);
	assert_int_equal(sl_export_gaps(e, count_gap, seen, NULL), 0);
	assert_string_equal(seen, wanted);
	sl_export_free(e);
}

static int backfill(const struct sl_export_opts *opts, uint64_t first, uint64_t last, struct sl_export_result *r,
		    struct sl_err *err)
{
	const struct sl_export_range range = {first, last};
	sl_export *e;
	*r = (struct sl_export_result){.struct_size = sizeof(*r)};
	assert_int_equal(sl_export_new(&e, opts, NULL), 0);
	int rc = sl_export_backfill(e, &range, 1, r, err);
	sl_export_free(e);
	return rc;
}

static void damaged_partitions_are_built_again_as_they_were(void **state)
{
	struct place *p = *state;
	struct sl_export_result r;
	struct sl_err err = SL_ERR_INIT;
	char one[256], other[256];
	write_csv(p, 1, 55);
	struct sl_export_opts opts = place_opts(p, 10);
	(void)export(&opts);
	char *wanted = place_show(p);
	(void)snprintf(one, sizeof(one), "%s/ledger/partition-%020d/part-%020d-%020d.parquet", p->to, 2, 20, 29);
	(void)snprintf(other, sizeof(other), "%s/ledger/partition-%020d/part-%020d-%020d.parquet", p->to, 4, 40, 49);
	assert_int_equal(unlink(one), 0);
	assert_int_equal(truncate(other, 10), 0);
	expect_gaps(&opts, "2 20-29\n3 40-49\n");
	assert_int_equal(backfill(&opts, 25, 41, &r, &err), 0);
	assert_int_equal(r.partitions, 2); /* the one between was in place */
	expect_gaps(&opts, "");
	expect_same(p, wanted);
	assert_int_equal(unlink(one), 0);
	char *changed = rows_csv(1, 55);
	*strstr(changed, "name") = 'N';
	memcpy(strstr(changed, "\n22,name"), "\n22,NAME", 8);
	place_write(p, "in.csv", changed, strlen(changed));
	assert_int_equal(backfill(&opts, 20, 20, &r, &err), SL_EDATA); /* the header has no "Name" */
	changed[2] = 'n';
	place_write(p, "in.csv", changed, strlen(changed));
	assert_int_equal(backfill(&opts, 20, 20, &r, &err), SL_ECONFLICT);
	expect_gaps(&opts, "2 20-29\n");
	assert_int_equal(backfill(&opts, 56, 60, &r, &err), SL_EINVAL);
	free(changed);
	free(wanted);
}

static void what_lies_before_the_start_becomes_backfill_events(void **state)
{
	struct place *p = *state;
	struct sl_export_result r;
	struct sl_err err = SL_ERR_INIT;
	write_csv(p, 35, 60);
	struct sl_export_opts opts = place_opts(p, 10);
	(void)export(&opts);
	write_csv(p, 1, 60);
	if (backfill(&opts, 12, 34, &r, &err) != 0)
		fail_msg("%s", err.msg);
	assert_int_equal(r.partitions, 3);
	assert_int_equal(r.rows, 23);
	assert_int_equal(r.start, 12);
	assert_int_equal(r.checkpoint, 60);
	expect_gaps(&opts, "");
	char *all = place_show(p);
	assert_non_null(strstr(all, "partition 1 12-19 rows 8"));
	assert_non_null(strstr(all, "partition 1 30-34 rows 5"));
	free(all);
	char *before = place_show(p);
	assert_int_equal(backfill(&opts, 12, 34, &r, &err), 0); /* again: nothing to do */
	assert_int_equal(r.partitions, 0);
	expect_same(p, before);
	free(before);
}

#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, open_place, close_place)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_PLACE(csv_becomes_rows_of_guessed_columns),
		IN_PLACE(json_lines_may_have_their_members_in_any_order_and_leave_some_out),
		IN_PLACE(given_columns_are_found_by_name),
		IN_PLACE(pages_of_any_size_come_back),
		IN_PLACE(the_bytes_are_the_same_for_any_number_of_workers),
		IN_PLACE(a_pipe_gives_the_same_bytes_as_a_file),
		IN_PLACE(the_columns_of_a_pipe_that_pauses_are_guessed_from_what_came),
		IN_PLACE(progress_reports_how_far_the_input_is_committed),
		IN_PLACE(json_gives_the_same_rows_as_csv),
		IN_PLACE(line_ends_in_quotes_are_found_and_cut_record_by_record),
		IN_PLACE(cutting_record_by_record_is_no_failure),
		IN_PLACE(a_resume_is_not_taken_in_by_a_row_inside_of_quotes),
		IN_PLACE(an_export_that_was_stopped_anywhere_resumes_to_the_same_bytes),
		IN_PLACE(rows_that_a_stop_leaves_are_counted),
		IN_PLACE(a_run_over_what_is_committed_changes_nothing),
		IN_PLACE(after_a_close_the_next_partition_runs_to_the_boundary),
		IN_PLACE(an_unfinished_partition_waits_when_it_is_not_final),
		IN_PLACE(following_a_file_commits_what_it_grows_by),
		IN_PLACE(a_gap_a_repetition_and_a_step_back_are_named_with_line_and_column),
		IN_PLACE(an_input_that_begins_past_the_checkpoint_has_a_gap),
		IN_PLACE(a_bad_row_stops_its_partition_with_line_and_column),
		IN_PLACE(bad_rows_can_be_diverted_and_are_counted),
		IN_PLACE(diverted_rows_have_commas_whatever_the_input_has),
		IN_PLACE(a_dataset_keeps_its_schema_size_and_sequence),
		IN_PLACE(options_that_cannot_be_are_named),
		IN_PLACE(damaged_partitions_are_built_again_as_they_were),
		IN_PLACE(what_lies_before_the_start_becomes_backfill_events),
	};
	return cmocka_run_group_tests_name("export", tests, NULL, NULL);
}
