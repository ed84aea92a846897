/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backup/driver_contract.h"
#include "base/compare.h"

static const struct driver_fixture *fixture;
static sl_driver d; /* of the running test */

static int set_up(void **state)
{
	(void)state;
	fixture->open(&d, 1, fixture->ctx);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	sl_driver_close(&d);
	fixture->clean(fixture->ctx);
	return 0;
}

static int put(const char *name, const char *text, enum sl_driver_put how)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = d.ops->put(d.driver, name, text, strlen(text), how, &err);
	assert_int_equal(rc, err.code);
	return rc;
}

static void expect(const sl_driver *from, const char *name, const char *text)
{
	char buf[256];
	size_t got = 0;
	struct sl_err err = SL_ERR_INIT;
	if (from->ops->get(from->driver, name, 0, buf, sizeof(buf) - 1, &got, &err) != 0)
		fail_msg("%s", err.msg);
	buf[got] = '\0';
	assert_string_equal(buf, text);
}

static int get_code(const char *name)
{
	char buf[8];
	size_t got = 77;
	struct sl_err err = SL_ERR_INIT;
	int rc = d.ops->get(d.driver, name, 0, buf, sizeof(buf), &got, &err);
	assert_int_equal(rc, err.code);
	assert_true(rc == 0 || got == 77);
	return rc;
}

/* ---- objects ---- */

static void what_was_put_is_got_back_in_pieces(void **state)
{
	static uint8_t bytes[100000], back[100000];
	size_t got = 0;
	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + i / 251);
	assert_int_equal(d.ops->put(d.driver, "packs/3f/a", bytes, sizeof(bytes), SL_DRIVER_NEW, NULL), 0);
	for (size_t at = 0; at < sizeof(bytes); at += got) {
		assert_int_equal(d.ops->get(d.driver, "packs/3f/a", at, back + at, 7777, &got, NULL), 0);
		assert_int_equal(got, at + 7777 <= sizeof(bytes) ? 7777 : sizeof(bytes) - at);
	}
	assert_memory_equal(bytes, back, sizeof(bytes));
	assert_int_equal(d.ops->get(d.driver, "packs/3f/a", sizeof(bytes), back, 10, &got, NULL), 0);
	assert_int_equal(got, 0);
	assert_int_equal(d.ops->get(d.driver, "packs/3f/a", 1u << 30, back, 10, &got, NULL), 0);
	assert_int_equal(got, 0);
}

static void an_object_of_no_bytes_is_one(void **state)
{
	struct sl_driver_stat st = {.size = 9};
	(void)state;
	assert_int_equal(d.ops->put(d.driver, "empty", NULL, 0, SL_DRIVER_NEW, NULL), 0);
	expect(&d, "empty", "");
	assert_int_equal(d.ops->stat(d.driver, "empty", &st, NULL), 0);
	assert_int_equal(st.size, 0);
	assert_int_equal(put("empty", "x", SL_DRIVER_NEW), SL_EEXIST);
}

static void a_new_object_does_not_replace_one(void **state)
{
	(void)state;
	assert_int_equal(put("config", "first", SL_DRIVER_NEW), 0);
	assert_int_equal(put("config", "second", SL_DRIVER_NEW), SL_EEXIST);
	expect(&d, "config", "first");
	assert_int_equal(put("config", "third", SL_DRIVER_REPLACE), 0);
	expect(&d, "config", "third");
	assert_int_equal(put("other", "made by replace", SL_DRIVER_REPLACE), 0);
	expect(&d, "other", "made by replace");
}

static void an_update_changes_what_is_there_and_makes_nothing(void **state)
{
	(void)state;
	assert_int_equal(put("sessions/a", "no such", SL_DRIVER_UPDATE), SL_ENOENT);
	assert_int_equal(get_code("sessions/a"), SL_ENOENT);
	assert_int_equal(put("sessions/a", "a text", SL_DRIVER_NEW), 0);
	assert_int_equal(put("sessions/a", "a text that is longer", SL_DRIVER_UPDATE), 0);
	expect(&d, "sessions/a", "a text that is longer");
	assert_int_equal(put("sessions/a", "short", SL_DRIVER_UPDATE), 0);
	expect(&d, "sessions/a", "short");
	assert_int_equal(d.ops->remove(d.driver, "sessions/a", NULL), 0);
	assert_int_equal(put("sessions/a", "again", SL_DRIVER_UPDATE), SL_ENOENT);
	assert_int_equal(get_code("sessions/a"), SL_ENOENT);
}

static void what_is_not_there_is_enoent(void **state)
{
	struct sl_driver_stat st;
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	assert_int_equal(get_code("packs/00/none"), SL_ENOENT);
	assert_int_equal(d.ops->stat(d.driver, "none", &st, &err), SL_ENOENT);
	assert_int_equal(err.code, SL_ENOENT);
	assert_int_equal(d.ops->remove(d.driver, "none", NULL), SL_ENOENT);
	assert_int_equal(d.ops->remove(d.driver, "none/at/all", NULL), SL_ENOENT);
	assert_int_equal(d.ops->rename(d.driver, "none", "some", NULL), SL_ENOENT);
	assert_int_equal(get_code("some"), SL_ENOENT);
	assert_int_equal(put("a", "x", SL_DRIVER_NEW), 0);
	assert_int_equal(d.ops->remove(d.driver, "a", NULL), 0);
	assert_int_equal(d.ops->remove(d.driver, "a", NULL), SL_ENOENT);
	assert_int_equal(get_code("a"), SL_ENOENT);
}

static void a_rename_moves_and_replaces_nothing(void **state)
{
	(void)state;
	assert_int_equal(put("sessions/a", "one", SL_DRIVER_NEW), 0);
	assert_int_equal(put("sessions/b", "two", SL_DRIVER_NEW), 0);
	assert_int_equal(d.ops->rename(d.driver, "sessions/a", "snapshots/a", NULL), 0);
	expect(&d, "snapshots/a", "one");
	assert_int_equal(get_code("sessions/a"), SL_ENOENT);
	assert_int_equal(d.ops->rename(d.driver, "sessions/b", "snapshots/a", NULL), SL_EEXIST);
	expect(&d, "snapshots/a", "one");
	expect(&d, "sessions/b", "two");
	assert_int_equal(d.ops->rename(d.driver, "sessions/a", "snapshots/c", NULL), SL_ENOENT);
}

static void names_that_are_none_are_refused(void **state)
{
	char longest[SL_DRIVER_NAME_BYTES + 1];
	const char *const wrong[] = {"",    "/a",   "a/",  "a//b", ".",   "..",    "../a", "a/..", "a/./b",
				     "A/b", "a b",  "a\n", "a_b",  "a\\", "a*",    "é",    "~",    "-/../../x",
				     "a/.", "a/..", "//",  "\x7f", "a:b", "a%2fb", longest};
	(void)state;
	memset(longest, 'a', sizeof(longest));
	longest[SL_DRIVER_NAME_BYTES] = '\0';
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct sl_driver_stat st;
		if (put(wrong[i], "x", SL_DRIVER_NEW) != SL_EINVAL || get_code(wrong[i]) != SL_EINVAL ||
		    d.ops->stat(d.driver, wrong[i], &st, NULL) != SL_EINVAL ||
		    d.ops->remove(d.driver, wrong[i], NULL) != SL_EINVAL ||
		    d.ops->rename(d.driver, "a", wrong[i], NULL) != SL_EINVAL ||
		    d.ops->rename(d.driver, wrong[i], "a", NULL) != SL_EINVAL)
			fail_msg("\"%s\" is taken for a name", wrong[i]);
	}
	longest[SL_DRIVER_NAME_BYTES - 1] = '\0';
	assert_int_equal(put(longest, "x", SL_DRIVER_NEW), 0);
	expect(&d, longest, "x");
	assert_int_equal(put("0/-a.9/..b/c.", "x", SL_DRIVER_NEW), 0);
	expect(&d, "0/-a.9/..b/c.", "x");
}

/* ---- lists and times ---- */

struct listed {
	char text[4096];
	bool remove;
	int stop_after; /* 0: never */
};

static int add(const char *name, const struct sl_driver_stat *stat, void *ctx)
{
	struct listed *l = ctx;
	size_t n = strlen(l->text);
	(void)snprintf(l->text + n, sizeof(l->text) - n, "%s=%llu ", name, (unsigned long long)stat->size);
	if (l->remove) {
		char whole[300];
		(void)snprintf(whole, sizeof(whole), "x/%s", name);
		assert_int_equal(d.ops->remove(d.driver, whole, NULL), 0);
	}
	return l->stop_after != 0 && --l->stop_after == 0 ? 42 : 0;
}

/* The words in order. */
static void sort_words(char *text)
{
	char *words[512], copy[4096], *save = NULL;
	size_t n = 0;
	(void)snprintf(copy, sizeof(copy), "%s", text);
	for (char *w = strtok_r(copy, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save))
		words[n++] = w;
	qsort(words, n, sizeof(words[0]), sl__compare_texts);
	text[0] = '\0';
	for (size_t i = 0; i < n; i++)
		(void)strcat(strcat(text, words[i]), i + 1 < n ? " " : "");
}

static void expect_list(const char *folder, const char *text)
{
	struct listed l = {.text = ""};
	assert_int_equal(d.ops->list(d.driver, folder, add, &l, NULL), 0);
	sort_words(l.text);
	assert_string_equal(l.text, text);
}

static void a_list_has_the_objects_of_a_folder_and_no_others(void **state)
{
	(void)state;
	expect_list("x", "");
	expect_list("", "");
	assert_int_equal(put("x/a", "1", SL_DRIVER_NEW), 0);
	assert_int_equal(put("x/b", "22", SL_DRIVER_NEW), 0);
	assert_int_equal(put("x/sub/c", "333", SL_DRIVER_NEW), 0);
	assert_int_equal(put("y", "4444", SL_DRIVER_NEW), 0);
	expect_list("x", "a=1 b=2");
	expect_list("x/sub", "c=3");
	expect_list("", "y=4");
	assert_int_equal(d.ops->remove(d.driver, "x/a", NULL), 0);
	expect_list("x", "b=2");
	assert_int_equal(d.ops->list(d.driver, "../x", add, NULL, NULL), SL_EINVAL);
}

static void a_walk_ends_with_what_its_function_says(void **state)
{
	struct listed l = {.stop_after = 2};
	(void)state;
	for (int i = 0; i < 5; i++) {
		char name[16];
		(void)snprintf(name, sizeof(name), "x/%d", i);
		assert_int_equal(put(name, "1", SL_DRIVER_NEW), 0);
	}
	assert_int_equal(d.ops->list(d.driver, "x", add, &l, NULL), 42);
	l = (struct listed){.remove = true};
	assert_int_equal(d.ops->list(d.driver, "x", add, &l, NULL), 0);
	expect_list("x", "");
}

static int64_t now(void)
{
	int64_t ms = 0;
	assert_int_equal(d.ops->now_ms(d.driver, &ms, NULL), 0);
	return ms;
}

static void times_are_those_of_the_drivers_clock(void **state)
{
	struct sl_driver_stat st;
	int64_t before = now();
	(void)state;
	assert_int_equal(put("a", "x", SL_DRIVER_NEW), 0);
	assert_int_equal(d.ops->stat(d.driver, "a", &st, NULL), 0);
	assert_true(st.mtime_ms >= before);
	assert_true(now() >= st.mtime_ms);
	before = now();
	assert_int_equal(put("a", "y", SL_DRIVER_UPDATE), 0);
	assert_int_equal(d.ops->stat(d.driver, "a", &st, NULL), 0);
	assert_true(st.mtime_ms >= before);
}

/* ---- scheduled puts ---- */

#define PUTS 200

struct scheduled {
	atomic_int done[PUTS], failed;
};
static struct scheduled all;
static char texts[PUTS][64];

static void note_done(const struct sl_err *err, void *ctx)
{
	if (err != NULL)
		atomic_fetch_add(&all.failed, 1);
	atomic_fetch_add((atomic_int *)ctx, 1);
}

static void name_of(int i, char name[64])
{
	(void)snprintf(name, 64, "packs/%02x/%d", i % 16, i);
}

static void *schedule_some(void *arg)
{
	int first = *(int *)arg;
	for (int i = first; i < PUTS; i += 4) {
		char name[64];
		name_of(i, name);
		(void)snprintf(texts[i], sizeof(texts[i]), "the bytes of %d", i);
		if (d.ops->schedule_put(d.driver, name, texts[i], strlen(texts[i]), note_done, &all.done[i], NULL) != 0)
			atomic_fetch_add(&all.failed, 1);
	}
	return NULL;
}

static void await_done(void)
{
	for (int i = 0; i < PUTS; i++)
		while (atomic_load(&all.done[i]) == 0 && atomic_load(&all.failed) == 0)
			(void)sched_yield();
	assert_int_equal(atomic_load(&all.failed), 0);
}

static void scheduled_puts_are_there_when_they_are_done(void **state)
{
	pthread_t threads[4];
	int firsts[4] = {0, 1, 2, 3};
	(void)state;
	all = (struct scheduled){.failed = 0};
	assert_int_equal(put("packs/00/0", "is replaced", SL_DRIVER_NEW), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, schedule_some, &firsts[i]), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	await_done();
	assert_int_equal(d.ops->sync(d.driver, NULL), 0);
	for (int i = 0; i < PUTS; i++) {
		char name[64];
		name_of(i, name);
		expect(&d, name, texts[i]);
		assert_int_equal(atomic_load(&all.done[i]), 1);
	}
}

static void a_scheduled_put_of_a_wrong_name_is_refused(void **state)
{
	(void)state;
	all = (struct scheduled){.failed = 0};
	assert_int_equal(d.ops->schedule_put(d.driver, "../a", "x", 1, note_done, &all.done[0], NULL), SL_EINVAL);
	assert_int_equal(d.ops->sync(d.driver, NULL), 0);
	assert_int_equal(atomic_load(&all.done[0]), 0);
}

/* ---- several at once ---- */

static atomic_bool stop_replacing;

static void *replace(void *arg)
{
	static const char *const versions[] = {"aaaaaaaaaa", "bbbbb", "cccccccccccccccc"};
	sl_driver *other = arg;
	for (int i = 0; !atomic_load(&stop_replacing); i++) {
		const char *text = versions[i % 3];
		if (other->ops->put(other->driver, "config", text, strlen(text), SL_DRIVER_REPLACE, NULL) != 0)
			return arg;
	}
	return NULL;
}

static void a_reader_during_replacements_sees_one_of_them_whole(void **state)
{
	sl_driver other;
	pthread_t thread;
	void *failed = NULL;
	(void)state;
	atomic_store(&stop_replacing, false);
	assert_int_equal(put("config", "bbbbb", SL_DRIVER_NEW), 0);
	fixture->open(&other, 0, fixture->ctx);
	assert_int_equal(pthread_create(&thread, NULL, replace, &other), 0);
	for (int i = 0; i < 300; i++) {
		char buf[64];
		size_t got = 0;
		assert_int_equal(d.ops->get(d.driver, "config", 0, buf, sizeof(buf), &got, NULL), 0);
		assert_true(got == 5 || got == 10 || got == 16);
		for (size_t k = 0; k < got; k++)
			assert_int_equal(buf[k], got == 10 ? 'a' : got == 5 ? 'b' : 'c');
	}
	atomic_store(&stop_replacing, true);
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	sl_driver_close(&other);
}

static void two_handles_see_the_same_objects(void **state)
{
	sl_driver other;
	(void)state;
	fixture->open(&other, 0, fixture->ctx);
	assert_int_equal(put("a", "one", SL_DRIVER_NEW), 0);
	expect(&other, "a", "one");
	assert_int_equal(other.ops->put(other.driver, "a", "two", 3, SL_DRIVER_REPLACE, NULL), 0);
	expect(&d, "a", "two");
	assert_int_equal(other.ops->remove(other.driver, "a", NULL), 0);
	assert_int_equal(get_code("a"), SL_ENOENT);
	assert_int_equal(put("a", "three", SL_DRIVER_UPDATE), SL_ENOENT);
	sl_driver_close(&other);
}

static void a_lock_has_one_holder(void **state)
{
	sl_driver other;
	void *held = NULL, *mine = NULL;
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	if (d.ops->lock == NULL) {
		assert_null(d.ops->unlock);
		return;
	}
	fixture->open(&other, 0, fixture->ctx);
	assert_int_equal(other.ops->lock(other.driver, "prune", &held, NULL), 0);
	assert_int_equal(d.ops->lock(d.driver, "prune", &mine, &err), SL_ELOCKED);
	assert_int_equal(err.code, SL_ELOCKED);
	assert_null(mine);
	assert_int_equal(d.ops->lock(d.driver, "another/name", &mine, NULL), 0);
	d.ops->unlock(d.driver, mine);
	other.ops->unlock(other.driver, held);
	assert_int_equal(d.ops->lock(d.driver, "prune", &mine, NULL), 0);
	d.ops->unlock(d.driver, mine);
	expect_list("", "");
	sl_driver_close(&other);
}

int driver_contract_run(const struct driver_fixture *f)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(what_was_put_is_got_back_in_pieces),
		T(an_object_of_no_bytes_is_one),
		T(a_new_object_does_not_replace_one),
		T(an_update_changes_what_is_there_and_makes_nothing),
		T(what_is_not_there_is_enoent),
		T(a_rename_moves_and_replaces_nothing),
		T(names_that_are_none_are_refused),
		T(a_list_has_the_objects_of_a_folder_and_no_others),
		T(a_walk_ends_with_what_its_function_says),
		T(times_are_those_of_the_drivers_clock),
		T(scheduled_puts_are_there_when_they_are_done),
		T(a_scheduled_put_of_a_wrong_name_is_refused),
		T(a_reader_during_replacements_sees_one_of_them_whole),
		T(two_handles_see_the_same_objects),
		T(a_lock_has_one_holder),
	};
	fixture = f;
	return cmocka_run_group_tests_name(f->name, tests, NULL, NULL);
}
