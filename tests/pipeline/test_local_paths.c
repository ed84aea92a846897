/* SPDX-License-Identifier: Apache-2.0 */
/* Every part of the library that takes a file or a folder refuses a URL there, before anything is made. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <sluice/adapter/driver.h>
#include <sluice/sluice.h>

static char folder[64], *before;

/* Each test runs in an empty folder, which must be empty afterwards: a URL taken for a path makes "s3:" in it. */
static int enter(void **state)
{
	(void)state;
	(void)snprintf(folder, sizeof(folder), "/tmp/sluice-local-XXXXXX");
	before = getcwd(NULL, 0);
	return before != NULL && mkdtemp(folder) != NULL ? chdir(folder) : -1;
}

static int leave(void **state)
{
	(void)state;
	int rc = chdir(before);
	free(before);
	return rc != 0 ? rc : rmdir(folder);
}

static void assert_refused(int rc, const struct sl_err *err)
{
	assert_int_equal(rc, SL_EINVAL);
	assert_non_null(strstr(err->msg, "s3:// is not supported here"));
	assert_null(strstr(err->msg, "secret"));
	DIR *dir = opendir(".");
	assert_non_null(dir);
	for (const struct dirent *d; (d = readdir(dir)) != NULL;)
		assert_int_equal(d->d_name[0], '.');
	closedir(dir);
}

#define URL "s3://user:secret@bucket/x"

static void a_scheme_is_letters_digits_and_signs_before_colon_slash_slash(void **state)
{
	static const char *const urls[] = {"s3://", "gs://b", "HTTPS://h/x", "a+b-c.9://x", "file:///x"};
	static const char *const paths[] = {"",       "x",      "./s3://b", "/s3://b",   "s3:/b", "a b://x",
					    "9s://x", "s3:x//", "://x",     "dir/s3://", "C:\\x", "_s://x"};
	(void)state;
	for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++)
		assert_int_equal(sl_check_local_path("to", urls[i], NULL), SL_EINVAL);
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		assert_int_equal(sl_check_local_path("to", paths[i], NULL), 0);
	assert_int_equal(sl_check_local_path("to", NULL, NULL), 0);
}

static void an_export_refuses_a_url_as_source_folder_catalog_and_dead_letters(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	sl_export *e = NULL;
	sl_catalog *c = NULL;
	(void)state;
	struct sl_export_opts o = {SL_EXPORT_OPTS_INIT, .from = URL ".csv", .to = "out", .dataset = "d"};
	assert_refused(sl_export_new(&e, &o, &err), &err);
	o.from = "rows.csv";
	o.to = URL;
	assert_refused(sl_export_new(&e, &o, &err), &err);
	o.to = "out";
	o.dead_letters = URL;
	assert_refused(sl_export_new(&e, &o, &err), &err);
	assert_refused(sl_catalog_open(&c, "sqlite:" URL, NULL, &err), &err);
}

static void logs_and_dead_letters_refuse_a_url(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	sl_wal *w = NULL;
	sl_dlq *q = NULL;
	(void)state;
	struct sl_wal_opts o = {SL_WAL_OPTS_INIT, .wal_dir = URL, .archive_dir = "archive"};
	assert_refused(sl_wal_open(&w, "id", &o, &err), &err);
	o.wal_dir = "wal";
	o.archive_dir = URL;
	assert_refused(sl_wal_open(&w, "id", &o, &err), &err);
	o.archive_dir = "archive";
	o.dead_letter_dir = URL;
	assert_refused(sl_wal_open(&w, "id", &o, &err), &err);
	assert_refused(sl_dlq_open(&q, URL, NULL, &err), &err);
}

static void sinks_and_repositories_refuse_a_url(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink;
	sl_driver driver;
	(void)state;
	assert_refused(sl_sink_open(&sink, "file:" URL, NULL, &err), &err);
	assert_refused(sl_driver_local_open(&driver, URL, NULL, &err), &err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_scheme_is_letters_digits_and_signs_before_colon_slash_slash),
		cmocka_unit_test_setup_teardown(an_export_refuses_a_url_as_source_folder_catalog_and_dead_letters,
						enter, leave),
		cmocka_unit_test_setup_teardown(logs_and_dead_letters_refuse_a_url, enter, leave),
		cmocka_unit_test_setup_teardown(sinks_and_repositories_refuse_a_url, enter, leave),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
