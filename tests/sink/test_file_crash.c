/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power loss under the file sink. A run writes batches to a crash filesystem (some of them find the disk full at
 * first); then, for every point of its history, states that a loss could leave there are rebuilt, the sink is opened on
 * them and writes one batch more. In all of them:
 *
 *  1. The files hold whole records only, in order, and what was torn is beside them.
 *  2. Every record that was acknowledged before the loss is there.
 *  3. The batch that was written afterwards is behind all of them.
 *
 *   SLUICE_TEST_SECONDS=N   so long for each way of writing (default 1)
 *   SLUICE_SEED=S           start with this seed
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include <cmocka.h>

#include "sink/contract_kit.h"
#include "support/crashloop.h"

#define PATH "/d/out"
#define BATCHES 8
#define STATES_PER_POINT 12

struct way {
	const char *name;
	bool csv;
	int level;
	int64_t rotate_bytes;
};

struct run {
	const struct way *way;
	struct crashfs *fs;
	uint64_t seed;
	uint32_t n_records;           /* of all batches */
	uint32_t acked[BATCHES];      /* records when the batch was acknowledged */
	size_t ack_point[BATCHES];    /* of the history */
	char *line[BATCHES * 16 + 8]; /* what record i must look like */
	char *record[BATCHES * 16 + 8];
};

static uint64_t next_random(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

/* ---- records ---- */

/* A record as JSON, and the line it becomes. In CSV the text has line ends and quotes. */
static void make_record(struct run *r, uint32_t i, uint64_t *rnd)
{
	char text[700], quoted[1500];
	size_t n = 1 + (size_t)(next_random(rnd) % (next_random(rnd) % 8 == 0 ? 600 : 60)), q = 0;
	for (size_t k = 0; k < n; k++)
		text[k] = (char)('a' + next_random(rnd) % 26);
	text[n] = '\0';
	if (!r->way->csv) {
		assert_true(asprintf(&r->line[i], "{\"id\":%u,\"text\":\"%s\"}\n", i, text) > 0);
		assert_true(asprintf(&r->record[i], "{\"id\":%u,\"text\":\"%s\"}", i, text) > 0);
		return;
	}
	for (size_t k = 0; k < n; k += 9)
		text[k] = k % 2 == 0 ? '\n' : '"';
	for (size_t k = 0; k < n; k++) {
		if (text[k] == '"')
			quoted[q++] = '"';
		quoted[q++] = text[k];
	}
	quoted[q] = '\0';
	assert_true(asprintf(&r->line[i], "%u,\"%s\"\n", i, quoted) > 0);
	assert_true(asprintf(&r->record[i], "%u,\"%s\"", i, quoted) > 0);
}

static int open_on(sl_sink *out, const struct run *r, struct crashfs *fs, struct sl_err *err)
{
	static const char *const columns[] = {"id", "text"};
	const struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	struct sl_sink_opts opts = {SL_SINK_OPTS_INIT, .env = &env, .zstd_level = r->way->level};
	opts.rotate_bytes = r->way->rotate_bytes;
	if (r->way->csv) {
		opts.format = opts.file_format = SL_ROWS_CSV;
		opts.columns = columns;
		opts.n_columns = 2;
	}
	return sl_sink_file_open(out, PATH, &opts, err);
}

static int write_records(const struct run *r, const sl_sink *sink, void *lane, uint32_t from, uint32_t n)
{
	struct sl_sink_item items[16];
	struct sl_sink_reply reply;
	struct sl_err err;
	uint8_t outcomes[16];
	for (uint32_t i = 0; i < n; i++)
		items[i] = (struct sl_sink_item){.data = r->record[from + i], .len = strlen(r->record[from + i])};
	return sink_write(sink, lane, items, n, &reply, outcomes, &err);
}

/* ---- a run ---- */

static void run_begin(struct run *r, const struct way *way, uint64_t seed)
{
	uint64_t rnd = seed * 0x9E3779B97F4A7C15u + 1;
	struct sl_err err;
	sl_sink sink;
	*r = (struct run){.way = way, .seed = seed, .fs = crashfs_new()};
	crashfs_mkdir(r->fs, "/d");
	for (uint32_t i = 0; i < sizeof(r->line) / sizeof(r->line[0]); i++)
		make_record(r, i, &rnd);
	assert_int_equal(open_on(&sink, r, r->fs, &err), 0);
	void *lane = sink_attach(&sink);
	for (uint32_t b = 0; b < BATCHES; b++) {
		uint32_t n = 1 + (uint32_t)(next_random(&rnd) % 16);
		if (next_random(&rnd) % 4 == 0) {
			crashfs_fail_writes(r->fs, 1, 1);
			assert_int_not_equal(write_records(r, &sink, lane, r->n_records, n), 0);
		}
		assert_int_equal(write_records(r, &sink, lane, r->n_records, n), 0);
		r->n_records += n;
		r->acked[b] = r->n_records;
		r->ack_point[b] = crashfs_point(r->fs);
	}
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
}

static void run_end(struct run *r)
{
	for (uint32_t i = 0; i < sizeof(r->line) / sizeof(r->line[0]); i++) {
		free(r->line[i]);
		free(r->record[i]);
	}
	crashfs_free(r->fs);
}

/* ---- what is there ---- */

struct names {
	char at[64][64];
	size_t n;
};

static int add_name(const char *name, void *ctx)
{
	struct names *names = ctx;
	if (strstr(name, ".torn-") == NULL && strcmp(name, "out") != 0)
		(void)snprintf(names->at[names->n++], 64, "/d/%s", name);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* The text of a file at out; its length, or SIZE_MAX when it cannot be read. */
static size_t text_of(const struct run *r, const struct crashfs *fs, const char *path, char *out, size_t cap)
{
	size_t n = 0;
	const void *data = crashfs_get(fs, path, &n);
	if (data == NULL)
		return 0;
	if (r->way->level == 0) {
		memcpy(out, data, n);
		return n;
	}
	ZSTD_DStream *stream = ZSTD_createDStream();
	ZSTD_inBuffer in = {data, n, 0};
	ZSTD_outBuffer text = {out, cap, 0};
	size_t rc = 0;
	while (in.pos < in.size && !ZSTD_isError(rc))
		rc = ZSTD_decompressStream(stream, &text, &in);
	(void)ZSTD_freeDStream(stream);
	return rc == 0 ? text.pos : SIZE_MAX;
}

/* All files together, oldest first, without the header of each. */
static bool read_all(const struct run *r, const struct crashfs *fs, char *out, size_t cap, size_t *len)
{
	static const char header[] = "id,text\n";
	struct names names = {.n = 0};
	*len = 0;
	(void)crashfs_each(fs, "/d", add_name, &names);
	qsort(names.at, names.n, sizeof(names.at[0]), by_name);
	(void)snprintf(names.at[names.n++], 64, PATH);
	for (size_t i = 0; i < names.n; i++) {
		size_t n = text_of(r, fs, names.at[i], out + *len, cap - *len);
		if (n == SIZE_MAX)
			return false;
		size_t skip = r->way->csv && n > 0 ? sizeof(header) - 1 : 0;
		if (skip > 0 && (n < skip || memcmp(out + *len, header, skip) != 0))
			return false;
		memmove(out + *len, out + *len + skip, n - skip);
		*len += n - skip;
	}
	return true;
}

/* Records first, first + 1, … as far as they go; how many. */
static uint32_t count_lines(const struct run *r, uint32_t first, const char *text, size_t len, size_t *at)
{
	uint32_t i = first;
	for (; i < sizeof(r->line) / sizeof(r->line[0]); i++) {
		size_t n = strlen(r->line[i]);
		if (len - *at < n || memcmp(text + *at, r->line[i], n) != 0)
			break;
		*at += n;
	}
	return i - first;
}

/* NULL, or what is wrong. */
static const char *judge(const void *run, struct crashfs *state, size_t point)
{
	const struct run *r = run;
	static char text[1 << 18];
	uint32_t must = 0, last = BATCHES * 16;
	struct sl_err err;
	sl_sink sink;
	size_t len, at = 0;
	for (int b = 0; b < BATCHES; b++)
		must = r->ack_point[b] <= point ? r->acked[b] : must;
	if (open_on(&sink, r, state, &err) != 0)
		return "it cannot be opened";
	if (!read_all(r, state, text, sizeof(text), &len))
		return "what is there cannot be read";
	uint32_t found = count_lines(r, 0, text, len, &at);
	if (at != len)
		return "there is something that is no record";
	if (found < must)
		return "a record that was acknowledged is gone";
	void *lane = sink_attach(&sink);
	int rc = write_records(r, &sink, lane, last, 8);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	if (rc != 0 || !read_all(r, state, text, sizeof(text), &len))
		return "it cannot be written to";
	at = 0;
	if (count_lines(r, 0, text, len, &at) != found)
		return "the next batch changed what was there";
	if (count_lines(r, last, text, len, &at) != 8 || at != len)
		return "the next batch is not after the others";
	return NULL;
}

/* The file is cut back after a write or a sync that failed, and the cut is synced: a power loss must not bring back
 * records of a batch that has failed. */
static void nothing_of_a_failed_batch_comes_back(const struct way *way, bool full)
{
	static char text[1 << 16];
	struct run r = {.way = way, .fs = crashfs_new()};
	struct sl_err err;
	sl_sink sink;
	uint64_t rnd = 7;
	crashfs_mkdir(r.fs, "/d");
	for (uint32_t i = 0; i < sizeof(r.line) / sizeof(r.line[0]); i++)
		make_record(&r, i, &rnd);
	assert_int_equal(open_on(&sink, &r, r.fs, &err), 0);
	void *lane = sink_attach(&sink);
	assert_int_equal(write_records(&r, &sink, lane, 0, 1), 0);
	if (full) /* room for one record and the beginning of the next */
		crashfs_quota(r.fs, crashfs_used(r.fs) + strlen(r.line[1]) + 3);
	else
		crashfs_fail_syncs(r.fs, 1);
	assert_int_not_equal(write_records(&r, &sink, lane, 1, 2), 0);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	size_t now = crashfs_point(r.fs), n = crashfs_states(r.fs, now, 200);
	for (size_t k = 0; k < n; k++) {
		struct crashfs *after = crashfs_crash(r.fs, now, k, 200, 7, NULL);
		size_t len, at = 0;
		assert_true(read_all(&r, after, text, sizeof(text), &len));
		assert_int_equal(count_lines(&r, 0, text, len, &at), 1);
		assert_int_equal(at, len);
		crashfs_free(after);
	}
	run_end(&r);
}

static void what_failed_to_be_written_does_not_come_back_after_a_power_loss(void **state)
{
	static const struct way lines = {"lines", false, 0, 0}, csv = {"csv", true, 0, 0}, zstd = {"zstd", false, 3, 0};
	(void)state;
	nothing_of_a_failed_batch_comes_back(&lines, false);
	nothing_of_a_failed_batch_comes_back(&lines, true);
	nothing_of_a_failed_batch_comes_back(&csv, false);
	nothing_of_a_failed_batch_comes_back(&zstd, false);
}

static void a_power_loss_leaves_whole_records_and_all_that_were_acknowledged(void **state)
{
	const struct way *way = *state;
	struct crashloop l = crashloop_begin(NULL, way->name);
	do {
		struct run r;
		run_begin(&r, way, l.seed);
		crashloop_judge(&l, r.fs, STATES_PER_POINT, judge, &r);
		run_end(&r);
	} while (crashloop_continues(&l));
}

/* ---- a torn end ---- */

#define TORN "{\"id\":1,\"text\":\"this line was never"

struct torn {
	const struct crashfs *fs;
	bool found;
};

static int look_for_torn(const char *name, void *ctx)
{
	struct torn *t = ctx;
	char path[80];
	size_t n = 0, len = sizeof(TORN) - 1;
	(void)snprintf(path, sizeof(path), "/d/%s", name);
	const char *data = crashfs_get(t->fs, path, &n);
	t->found = t->found || (data != NULL && n >= len && memcmp(data + n - len, TORN, len) == 0);
	return 0;
}

/* At every point of the healing it is at the end of the file, or whole beside it. */
static void a_torn_end_is_never_lost_on_its_way_aside(void **state)
{
	static const struct way lines = {"lines", false, 0, 0};
	static const char text[] = "{\"id\":0}\n" TORN;
	struct run r = {.way = &lines, .seed = 1, .fs = crashfs_new()};
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink;
	size_t states = 0;
	(void)state;
	crashfs_mkdir(r.fs, "/d");
	crashfs_put(r.fs, PATH, text, sizeof(text) - 1);
	crashfs_settle(r.fs);
	assert_int_equal(open_on(&sink, &r, r.fs, &err), 0);
	sl_sink_close(&sink);
	for (size_t point = 0; point <= crashfs_point(r.fs); point++)
		for (size_t k = 0; k < crashfs_states(r.fs, point, 200); k++, states++) {
			struct crashfs *lost = crashfs_crash(r.fs, point, k, 200, 1, NULL);
			struct torn t = {.fs = lost};
			(void)crashfs_each(lost, "/d", look_for_torn, &t);
			if (!t.found) {
				crashfs_print_log(r.fs, point, stdout);
				crashfs_print_tree(lost, stdout);
				fail_msg("point %zu, state %zu: what was torn is gone", point, k);
			}
			crashfs_free(lost);
		}
	assert_true(states > 10);
	crashfs_free(r.fs);
}

int main(void)
{
	static struct way ways[] = {{"lines", false, 0, 0},
				    {"lines, rotated", false, 0, 2000},
				    {"csv", true, 0, 0},
				    {"csv, rotated", true, 0, 2000},
				    {"zstd", false, 3, 0},
				    {"zstd, rotated", false, 3, 800},
				    {"csv in zstd, rotated", true, 3, 800}};
	enum { N_WAYS = sizeof(ways) / sizeof(ways[0]) };
	struct CMUnitTest tests[N_WAYS + 2];
	for (size_t i = 0; i < N_WAYS; i++)
		tests[i] = (struct CMUnitTest){ways[i].name,
					       a_power_loss_leaves_whole_records_and_all_that_were_acknowledged, NULL,
					       NULL, &ways[i]};
	tests[N_WAYS] = (struct CMUnitTest)cmocka_unit_test(a_torn_end_is_never_lost_on_its_way_aside);
	tests[N_WAYS + 1] =
		(struct CMUnitTest)cmocka_unit_test(what_failed_to_be_written_does_not_come_back_after_a_power_loss);
	return cmocka_run_group_tests_name("file_crash", tests, NULL, NULL);
}
