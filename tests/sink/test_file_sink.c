/* SPDX-License-Identifier: Apache-2.0 */
/* What only the file sink does: formats, headers, rotation, torn ends, full disks. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "sink/contract_kit.h"
#include "sink/place.h"
#include "support/crashfs.h"
#include "support/fault.h"
#include "support/vclock.h"

static struct place place;

static int set_up(void **state)
{
	(void)state;
	return place_init(&place, "out");
}

static int tear_down(void **state)
{
	(void)state;
	place_fini(&place);
	return 0;
}

static void expect_file(const char *name, const char *want)
{
	char *got = place_read(place_file(&place, name), NULL);
	assert_non_null(got);
	assert_string_equal(got, want);
	free(got);
}

static int open_here(sl_sink *out, struct sl_sink_opts opts, struct sl_err *err)
{
	opts.struct_size = sizeof(opts);
	return sl_sink_file_open(out, place.path, &opts, err);
}

/* Write records in one batch as a coordinator would; how many were refused. */
static size_t write_to(const sl_sink *sink, const char *const *records)
{
	struct sl_sink_item items[16];
	struct sink_delivery d = {.writes = 0};
	size_t n = 0;
	for (; records[n] != NULL; n++)
		items[n] = (struct sl_sink_item){.data = records[n], .len = strlen(records[n]), .position = n};
	void *lane = sink_attach(sink);
	if (sink_deliver(sink, lane, items, n, &d) != 0)
		fail_msg("%s", d.err.msg);
	sink_detach(sink, lane);
	size_t dead = d.dead.n;
	sink_delivery_fini(&d);
	return dead;
}
#define WRITE(sink, ...) write_to(sink, (const char *const[]){__VA_ARGS__, NULL})

#define OPENED(sink, ...)                                                                                              \
	do {                                                                                                           \
		struct sl_err err_;                                                                                    \
		if (open_here(sink, (struct sl_sink_opts){__VA_ARGS__}, &err_) != 0)                                   \
			fail_msg("%s", err_.msg);                                                                      \
	} while (0)

/* ---- formats ---- */

static void json_is_written_on_one_line_and_checked(void **state)
{
	sl_sink sink;
	(void)state;
	OPENED(&sink, 0);
	assert_int_equal(
		WRITE(&sink, "{\"a\":1}", "[1,\n 2]", "\"x\"", "12", "{\"a\":", "{} {}", "{\"b\":\"\\u0000\"}", ""), 3);
	sl_sink_close(&sink);
	expect_file("out", "{\"a\":1}\n[1,  2]\n\"x\"\n12\n{\"b\":\"\\u0000\"}\n");
}

static void csv_becomes_json_with_the_names_of_its_columns(void **state)
{
	static const char *const columns[] = {"id", "na\"me"};
	sl_sink sink;
	(void)state;
	OPENED(&sink, .format = SL_ROWS_CSV, .columns = columns, .n_columns = 2, .null_text = "-");
	assert_int_equal(WRITE(&sink, "1,x", "2,\"a \"\"b\"\"\nc\"", "3,-", "4,\"-\"", "5", "6,"), 1);
	sl_sink_close(&sink);
	expect_file("out", "{\"id\":\"1\",\"na\\\"me\":\"x\"}\n{\"id\":\"2\",\"na\\\"me\":\"a \\\"b\\\"\\nc\"}\n"
			   "{\"id\":\"3\",\"na\\\"me\":null}\n{\"id\":\"4\",\"na\\\"me\":\"-\"}\n"
			   "{\"id\":\"6\",\"na\\\"me\":\"\"}\n");
}

static void json_becomes_csv_under_one_header(void **state)
{
	static const char *const columns[] = {"id", "a,b"};
	sl_sink sink;
	(void)state;
	for (int i = 0; i < 2; i++) {
		OPENED(&sink, .file_format = SL_ROWS_CSV, .columns = columns, .n_columns = 2);
		assert_int_equal(WRITE(&sink, "{\"id\":1,\"a,b\":\"x,y\"}", "{\"a,b\":\"\"}", "{\"id\":2,\"c\":3}",
				       "{\"id\":\"nul\\u0000\"}"),
				 2);
		sl_sink_close(&sink);
	}
	expect_file("out", "id,\"a,b\"\n1,\"x,y\"\n,\"\"\n1,\"x,y\"\n,\"\"\n");
}

static void csv_without_columns_is_kept_as_it_is(void **state)
{
	sl_sink sink;
	(void)state;
	OPENED(&sink, .format = SL_ROWS_CSV, .file_format = SL_ROWS_CSV);
	assert_int_equal(WRITE(&sink, "1,2,3", "a", "\"x\ny\",2", "\"open", "two\nrows"), 2);
	sl_sink_close(&sink);
	expect_file("out", "1,2,3\na\n\"x\ny\",2\n");
}

static void a_file_with_other_columns_is_refused(void **state)
{
	static const char *const columns[] = {"id", "b"};
	struct sl_err err;
	sl_sink sink;
	(void)state;
	place_write(place.path, "id,a\n1,2\n", 9);
	assert_int_equal(
		open_here(&sink, (struct sl_sink_opts){.file_format = SL_ROWS_CSV, .columns = columns, .n_columns = 2},
			  &err),
		SL_ECONFIG);
	expect_file("out", "id,a\n1,2\n");
}

/* ---- opening ---- */

static void what_can_be_checked_at_once_is(void **state)
{
	struct sl_err err;
	sl_sink sink, second;
	(void)state;
	place_hide(&place);
	assert_int_equal(open_here(&sink, (struct sl_sink_opts){0}, &err), SL_ENOENT);
	assert_non_null(strstr(err.msg, "folder"));
	place_show(&place);
	assert_int_equal(symlink("elsewhere", place.path), 0);
	assert_int_equal(open_here(&sink, (struct sl_sink_opts){0}, &err), SL_EACCES);
	assert_non_null(strstr(err.msg, "symbolic link"));
	assert_int_equal(unlink(place.path), 0);
	assert_int_equal(mkfifo(place.path, 0600), 0);
	assert_int_equal(open_here(&sink, (struct sl_sink_opts){0}, &err), SL_EINVAL);
	assert_int_equal(unlink(place.path), 0);
	assert_int_equal(open_here(&sink, (struct sl_sink_opts){.table = "t"}, &err), SL_EINVAL);
	assert_int_equal(open_here(&sink, (struct sl_sink_opts){.file_format = SL_ROWS_CSV}, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "columns"));
	assert_int_equal(open_here(&sink, (struct sl_sink_opts){.zstd_level = 20}, &err), SL_EINVAL);
	OPENED(&sink, 0);
	assert_int_equal(open_here(&second, (struct sl_sink_opts){0}, &err), SL_ELOCKED);
	sl_sink_close(&sink);
	OPENED(&second, 0);
	sl_sink_close(&second);
}

static void a_torn_end_is_moved_aside(void **state)
{
	static const char holes[] = "{\"id\":1}\n{\"i\0\0\0\0}\n{\"id\":3}\n";
	sl_sink sink;
	(void)state;
	place_write(place.path, "{\"id\":1}\n{\"id\":", 15);
	OPENED(&sink, 0);
	WRITE(&sink, "2");
	sl_sink_close(&sink);
	expect_file("out", "{\"id\":1}\n2\n");
	expect_file("out.torn-000", "{\"id\":");
	place_write(place.path, holes, sizeof(holes) - 1);
	OPENED(&sink, 0);
	sl_sink_close(&sink);
	expect_file("out", "{\"id\":1}\n");
	size_t n = 0;
	char *torn = place_read(place_file(&place, "out.torn-001"), &n);
	assert_int_equal(n, sizeof(holes) - 1 - 9);
	free(torn);
}

static void a_torn_end_inside_of_quotes_is_found(void **state)
{
	sl_sink sink;
	(void)state;
	place_write(place.path, "a,\"x\ny\"\nb,\"z\nlonger\n", 20);
	OPENED(&sink, .format = SL_ROWS_CSV, .file_format = SL_ROWS_CSV);
	sl_sink_close(&sink);
	expect_file("out", "a,\"x\ny\"\n");
	expect_file("out.torn-000", "b,\"z\nlonger\n");
}

static void new_files_are_not_for_everybody(void **state)
{
	struct stat st;
	sl_sink sink;
	(void)state;
	mode_t old = umask(022);
	OPENED(&sink, 0);
	sl_sink_close(&sink);
	(void)umask(old);
	assert_int_equal(stat(place.path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
}

/* ---- rotation ---- */

static void a_file_that_would_grow_too_long_is_rotated(void **state)
{
	struct vclock clock;
	sl_sink sink;
	(void)state;
	vclock_init(&clock);
	const struct sl_env env = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &clock};
	OPENED(&sink, .env = &env, .rotate_bytes = 20);
	for (int i = 0; i < 5; i++)
		WRITE(&sink, "\"123456\"");
	WRITE(&sink, "\"longer than twenty bytes\"");
	WRITE(&sink, "1");
	sl_sink_close(&sink);
	expect_file("out.20231114T221320Z-000", "\"123456\"\n\"123456\"\n");
	expect_file("out.20231114T221320Z-001", "\"123456\"\n\"123456\"\n");
	expect_file("out.20231114T221320Z-002", "\"123456\"\n");
	expect_file("out.20231114T221320Z-003", "\"longer than twenty bytes\"\n");
	expect_file("out", "1\n");
	vclock_fini(&clock);
}

/* Time passes whenever the clock is read. */
static int64_t hurried_ms(void *ctx)
{
	vclock_advance_ms(ctx, 100);
	return vclock_table.real_ms(ctx);
}

static void rotated_files_are_in_the_order_of_their_names_also_when_the_second_changes(void **state)
{
	struct sl_clock hurried = vclock_table;
	struct vclock clock;
	struct dirent **names;
	sl_sink sink;
	(void)state;
	vclock_init(&clock);
	hurried.real_ms = hurried_ms;
	const struct sl_env env = {SL_ENV_INIT, .clock = &hurried, .clock_ctx = &clock};
	OPENED(&sink, .env = &env, .rotate_bytes = 4);
	for (int i = 100; i < 140; i++) {
		char text[16];
		(void)snprintf(text, sizeof(text), "%d", i);
		WRITE(&sink, text);
	}
	sl_sink_close(&sink);
	int n = scandir(place_file(&place, "."), &names, NULL, alphasort), seen = 0;
	for (int i = 0; i < n; i++) {
		if (strncmp(names[i]->d_name, "out.", 4) == 0) {
			char text[16];
			(void)snprintf(text, sizeof(text), "%d\n", 100 + seen++);
			expect_file(names[i]->d_name, text);
		}
		free(names[i]);
	}
	free(names);
	assert_int_equal(seen, 39);
	vclock_fini(&clock);
}

static void a_file_that_is_old_enough_is_rotated_by_the_next_batch(void **state)
{
	static const char *const columns[] = {"a"};
	struct vclock clock;
	sl_sink sink;
	(void)state;
	vclock_init(&clock);
	const struct sl_env env = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &clock};
	OPENED(&sink, .env = &env, .rotate_ms = 60000, .format = SL_ROWS_CSV, .file_format = SL_ROWS_CSV,
	       .columns = columns, .n_columns = 1);
	vclock_advance_ms(&clock, 70000);
	WRITE(&sink, "1"); /* its age counts from here */
	vclock_advance_ms(&clock, 59999);
	WRITE(&sink, "2");
	vclock_advance_ms(&clock, 1);
	WRITE(&sink, "3");
	sl_sink_close(&sink);
	expect_file("out.20231114T221530Z-000", "a\n1\n2\n");
	expect_file("out", "a\n3\n");
	vclock_fini(&clock);
}

static void a_file_that_was_moved_is_left_alone(void **state)
{
	char to[192];
	sl_sink sink;
	(void)state;
	OPENED(&sink, 0);
	WRITE(&sink, "1");
	(void)snprintf(to, sizeof(to), "%s", place_file(&place, "moved"));
	assert_int_equal(rename(place.path, to), 0);
	WRITE(&sink, "2");
	assert_int_equal(unlink(place.path), 0);
	WRITE(&sink, "3");
	sl_sink_close(&sink);
	expect_file("moved", "1\n");
	expect_file("out", "3\n");
}

/* ---- failures ---- */

static int write_one(const sl_sink *sink, void *lane, const char *record, struct sl_err *err)
{
	struct sl_sink_item item = {.data = record, .len = strlen(record)};
	struct sl_sink_reply reply;
	uint8_t outcome;
	return sink_write(sink, lane, &item, 1, &reply, &outcome, err);
}

static void a_full_disk_is_fatal_and_leaves_no_half_line(void **state)
{
	struct crashfs *fs = crashfs_new();
	const struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	const struct sl_sink_opts opts = {SL_SINK_OPTS_INIT, .env = &env};
	struct sl_err err;
	size_t n;
	sl_sink sink;
	(void)state;
	crashfs_mkdir(fs, "/d");
	assert_int_equal(sl_sink_file_open(&sink, "/d/out", &opts, &err), 0);
	void *lane = sink_attach(&sink);
	assert_int_equal(write_one(&sink, lane, "\"first\"", &err), 0);
	crashfs_quota(fs, 12);
	assert_int_equal(write_one(&sink, lane, "\"second\"", &err), SL_ENOSPC);
	assert_int_equal(err.error_class, SL_CLASS_FATAL);
	const char *data = crashfs_get(fs, "/d/out", &n);
	assert_int_equal(n, 8);
	assert_memory_equal(data, "\"first\"\n", 8);
	crashfs_quota(fs, SIZE_MAX);
	assert_int_equal(write_one(&sink, lane, "\"second\"", &err), 0);
	data = crashfs_get(fs, "/d/out", &n);
	assert_int_equal(n, 17);
	assert_memory_equal(data, "\"first\"\n\"second\"\n", 17);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	crashfs_free(fs);
}

static void what_could_not_be_cut_off_at_once_is_cut_off_before_the_next_batch(void **state)
{
	struct fault f;
	struct sl_err err;
	sl_sink sink;
	(void)state;
	fault_init(&f, NULL);
	f.partial_writes = 1;
	const struct sl_env env = fault_env(&f, NULL);
	OPENED(&sink, .env = &env);
	void *lane = sink_attach(&sink);
	fault_arm_io(&f, 1, FAULT_FROM, EIO, FAULT_OP(FAULT_PWRITE) | FAULT_OP(FAULT_TRUNCATE));
	assert_int_equal(write_one(&sink, lane, "\"a long record of which half is written\"", &err), SL_EIO);
	assert_int_equal(write_one(&sink, lane, "1", &err), SL_EIO); /* still */
	fault_disarm(&f);
	assert_int_equal(write_one(&sink, lane, "1", &err), 0);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	fault_fini(&f);
	expect_file("out", "1\n");
}

/* All files, oldest first, end to end. */
static void read_all(char *out, size_t cap)
{
	char sh[256];
	(void)snprintf(sh, sizeof(sh), "cd '%s/inner' && cat $(ls out.2* 2>/dev/null | sort) out", place.dir);
	FILE *p = popen(sh, "r");
	assert_non_null(p);
	out[fread(out, 1, cap - 1, p)] = '\0';
	assert_int_equal(pclose(p), 0);
}

/* Call number `at` fails, alone or with all that follow until it was seen. Was there such a call? */
static bool faulty_round(enum fault_mode mode, int64_t at)
{
	static const char *const records[] = {"11111111", "2222", "333333333", "4"};
	struct fault f;
	struct sl_err err;
	sl_sink sink = {0};
	char got[256];
	fault_init(&f, NULL);
	f.partial_writes = 1;
	const struct sl_env env = fault_env(&f, NULL);
	const struct sl_sink_opts opts = {.env = &env, .rotate_bytes = 16};
	place_write(place.path, "0\n9", 3);
	fault_arm_io(&f, at, mode, EIO, FAULT_ALL_OPS);
	if (open_here(&sink, opts, &err) != 0) {
		fault_disarm(&f);
		OPENED(&sink, .env = &env, .rotate_bytes = 16);
	}
	void *lane = sink_attach(&sink);
	for (size_t i = 0; i < 4; i++) {
		if (write_one(&sink, lane, records[i], &err) == 0)
			continue;
		assert_int_equal(err.error_class, SL_CLASS_FATAL);
		fault_disarm(&f);
		assert_int_equal(write_one(&sink, lane, records[i], &err), 0);
	}
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	assert_true(fault_open_fds(&f) == 0);
	read_all(got, sizeof(got));
	assert_string_equal(got, "0\n11111111\n2222\n333333333\n4\n");
	bool failed = fault_io_failed(&f) != 0;
	fault_fini(&f);
	return failed;
}

static void every_failing_call_leaves_whole_lines_and_all_of_them(void **state)
{
	static const enum fault_mode modes[] = {FAULT_ONCE, FAULT_FROM};
	int64_t rounds = 0;
	(void)state;
	for (size_t m = 0; m < 2; m++) {
		bool failed = true;
		for (int64_t at = 1; failed; at++, rounds++) {
			failed = faulty_round(modes[m], at);
			place_fini(&place);
			assert_int_equal(place_init(&place, "out"), 0);
		}
	}
	print_message("# %lld calls failed\n", (long long)rounds);
}

static void a_batch_larger_than_one_write_is_reported_item_by_item(void **state)
{
	enum { N = 20 };
	struct crashfs *fs = crashfs_new();
	const struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	const struct sl_sink_opts opts = {SL_SINK_OPTS_INIT, .env = &env};
	struct sl_sink_item items[N];
	struct sl_sink_reply reply;
	struct sl_err err;
	uint8_t outcomes[N];
	sl_sink sink;
	(void)state;
	size_t len = 1 << 20;
	char *big = malloc(len);
	assert_non_null(big);
	memset(big, '1', len);
	for (int i = 0; i < N; i++)
		items[i] = (struct sl_sink_item){.data = big, .len = len};
	crashfs_record(fs, false);
	crashfs_mkdir(fs, "/d");
	assert_int_equal(sl_sink_file_open(&sink, "/d/out", &opts, &err), 0);
	void *lane = sink_attach(&sink);
	crashfs_quota(fs, 10 * (len + 1));
	assert_int_equal(sink_write(&sink, lane, items, N, &reply, outcomes, &err), SL_ENOSPC);
	for (int i = 0; i < N; i++)
		assert_int_equal(outcomes[i], i < 8 ? SL_SINK_WRITTEN : SL_SINK_AS_BATCH);
	assert_int_equal(crashfs_used(fs), 8 * (len + 1));
	crashfs_quota(fs, SIZE_MAX);
	assert_int_equal(sink_write(&sink, lane, items + 8, N - 8, &reply, outcomes, &err), 0);
	assert_int_equal(crashfs_used(fs), N * (len + 1));
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	crashfs_free(fs);
	free(big);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(json_is_written_on_one_line_and_checked),
		TEST(csv_becomes_json_with_the_names_of_its_columns),
		TEST(json_becomes_csv_under_one_header),
		TEST(csv_without_columns_is_kept_as_it_is),
		TEST(a_file_with_other_columns_is_refused),
		TEST(what_can_be_checked_at_once_is),
		TEST(a_torn_end_is_moved_aside),
		TEST(a_torn_end_inside_of_quotes_is_found),
		TEST(new_files_are_not_for_everybody),
		TEST(a_file_that_would_grow_too_long_is_rotated),
		TEST(rotated_files_are_in_the_order_of_their_names_also_when_the_second_changes),
		TEST(a_file_that_is_old_enough_is_rotated_by_the_next_batch),
		TEST(a_file_that_was_moved_is_left_alone),
		TEST(a_full_disk_is_fatal_and_leaves_no_half_line),
		TEST(what_could_not_be_cut_off_at_once_is_cut_off_before_the_next_batch),
		TEST(every_failing_call_leaves_whole_lines_and_all_of_them),
		TEST(a_batch_larger_than_one_write_is_reported_item_by_item),
	};
	return cmocka_run_group_tests_name("file_sink", tests, NULL, NULL);
}
