/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/utf8.h"
#include <sluice/version.h>

static void every_code_has_a_name_a_text_and_an_exit_code(void **state)
{
	(void)state;
	static const int codes[] = {
#define CODE(name, value, exit_code, text) SL_##name,
		SL_ERR_TABLE(CODE)
#undef CODE
	};
	static const int exits[] = {64, 65, 69, 70, 73, 74, 75, 78};
	for (size_t i = 0; i < SL_COUNT(codes); i++) {
		bool known = false;
		for (size_t k = 0; k < SL_COUNT(exits); k++)
			known = known || sl_err_exit_code(codes[i]) == exits[k];
		assert_true(known);
		assert_string_not_equal(sl_err_name(codes[i]), "EUNKNOWN");
		assert_string_not_equal(sl_err_text(codes[i]), "unknown error");
		for (size_t k = 0; k < i; k++)
			assert_int_not_equal(codes[i], codes[k]);
	}
	assert_int_equal(SL_EINVAL, -1);
	assert_int_equal(SL_EINTERNAL, -30);
	assert_string_equal(sl_err_name(SL_ENOSPC), "ENOSPC");
}

static void success_and_foreign_codes_are_answered_too(void **state)
{
	(void)state;
	assert_string_equal(sl_err_name(0), "OK");
	assert_int_equal(sl_err_exit_code(0), 0);
	assert_string_equal(sl_err_name(-999), "EUNKNOWN");
	assert_string_equal(sl_err_text(12), "unknown error");
	assert_int_equal(sl_err_exit_code(-999), 70);
	assert_string_equal(sl_err_class_name(SL_CLASS_THROTTLED), "throttled");
	assert_string_equal(sl_err_class_name((enum sl_err_class)77), "none");
}

static void set_fills_everything_and_returns_the_code(void **state)
{
	(void)state;
	struct sl_err err;
	memset(&err, 0xAA, sizeof(err));
	assert_int_equal(sl_err_set(&err, SL_EREFUSED, "record %d of %s", 7, "job"), SL_EREFUSED);
	assert_int_equal(err.code, SL_EREFUSED);
	assert_int_equal(err.error_class, SL_CLASS_POISON);
	assert_int_equal(sl_err_retryable(&err), 0);
	assert_int_equal(err.sys_errno, 0);
	assert_int_equal(err.retry_after_ms, 0);
	assert_string_equal(err.sqlstate, "");
	assert_string_equal(err.msg, "record 7 of job");
	assert_int_equal(sl_err_set(NULL, SL_EIO, "not kept"), SL_EIO);
}

static void an_errno_becomes_code_class_and_text(void **state)
{
	(void)state;
	static const struct {
		int sys, code, retryable;
	} rows[] = {
		{ENOSPC, SL_ENOSPC, 1},       {EDQUOT, SL_ENOSPC, 1}, {ENOENT, SL_ENOENT, 0},
		{EACCES, SL_EACCES, 0},       {EEXIST, SL_EEXIST, 0}, {EIO, SL_EIO, 0},
		{EWOULDBLOCK, SL_ELOCKED, 1}, {ENOMEM, SL_ENOMEM, 1}, {ECONNREFUSED, SL_EUNAVAIL, 1},
		{EINVAL, SL_EINVAL, 0},       {ENOTTY, SL_EIO, 0},
	};
	for (size_t i = 0; i < SL_COUNT(rows); i++) {
		struct sl_err err = SL_ERR_INIT;
		assert_int_equal(sl_err_set_errno(&err, rows[i].sys, "write %s", "x"), rows[i].code);
		assert_int_equal(err.code, rows[i].code);
		assert_int_equal(err.sys_errno, rows[i].sys);
		assert_int_equal(sl_err_retryable(&err), rows[i].retryable);
	}
	struct sl_err err = SL_ERR_INIT;
	(void)sl_err_set_errno(&err, ENOSPC, "append to job-7.wal: fdatasync");
	assert_string_equal(err.msg, "append to job-7.wal: fdatasync: No space left on device");
	assert_int_equal(err.error_class, SL_CLASS_TRANSIENT);
	assert_int_equal(sl_err_set_errno(NULL, ENOENT, "x"), SL_ENOENT);
}

static void whether_a_call_may_succeed_later_follows_from_class_and_code(void **state)
{
	(void)state;
	static const struct {
		int code;
		enum sl_err_class error_class;
		int retryable;
	} rows[] = {{SL_EIO, SL_CLASS_TRANSIENT, 1},  {SL_EAGAIN, SL_CLASS_THROTTLED, 1},
		    {SL_EUNAVAIL, SL_CLASS_FATAL, 1}, {SL_ENOSPC, SL_CLASS_FATAL, 0},
		    {SL_EACCES, SL_CLASS_FATAL, 0},   {SL_EAGAIN, SL_CLASS_POISON, 0},
		    {SL_ETIMEDOUT, SL_CLASS_NONE, 0}, {0, SL_CLASS_NONE, 0}};
	for (size_t i = 0; i < SL_COUNT(rows); i++) {
		struct sl_err err = {.code = rows[i].code, .error_class = rows[i].error_class};
		assert_int_equal(sl_err_retryable(&err), rows[i].retryable);
	}
}

static void wrapping_puts_words_before_and_keeps_the_rest(void **state)
{
	(void)state;
	struct sl_err err = SL_ERR_INIT;
	int code = sl_err_set_errno(&err, ENOSPC, "fdatasync");
	err.retry_after_ms = 250;
	assert_int_equal(sl_err_wrap(&err, code, "append to %s", "job-7.wal"), SL_ENOSPC);
	assert_string_equal(err.msg, "append to job-7.wal: fdatasync: No space left on device");
	assert_int_equal(err.code, SL_ENOSPC);
	assert_int_equal(err.sys_errno, ENOSPC);
	assert_int_equal(sl_err_retryable(&err), 1);
	assert_int_equal(err.retry_after_ms, 250);
	assert_int_equal(sl_err_wrap(NULL, SL_EIO, "x"), SL_EIO);
}

static void a_long_message_is_cut_at_a_whole_character(void **state)
{
	(void)state;
	static const char *const letters[] = {"x", "ü", "日", "🙂"};
	for (size_t i = 0; i < SL_COUNT(letters); i++) {
		for (size_t lead = 0; lead < 4; lead++) {
			char text[600] = "";
			for (size_t n = 0; n < lead; n++)
				strcat(text, "a");
			while (strlen(text) < 300)
				strcat(text, letters[i]);
			struct sl_err err = SL_ERR_INIT;
			(void)sl_err_set(&err, SL_EIO, "%s", text);
			assert_true(sl__utf8_valid(err.msg));
			assert_true(strlen(err.msg) >= SL_ERR_MSG_BYTES - 4);
			(void)sl_err_wrap(&err, SL_EIO, "%.*s", 100, text);
			assert_true(strlen(err.msg) < SL_ERR_MSG_BYTES);
			(void)sl_err_set_errno(&err, EIO, "%s", text);
			assert_true(sl__utf8_valid(err.msg));
		}
	}
}

static void the_running_version_is_that_of_the_headers(void **state)
{
	(void)state;
	char expected[32];
	(void)snprintf(expected, sizeof(expected), "%d.%d.%d", SL_VERSION_MAJOR, SL_VERSION_MINOR, SL_VERSION_PATCH);
	assert_string_equal(sl_version(), SL_VERSION);
	assert_string_equal(sl_version(), expected);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_code_has_a_name_a_text_and_an_exit_code),
		cmocka_unit_test(success_and_foreign_codes_are_answered_too),
		cmocka_unit_test(set_fills_everything_and_returns_the_code),
		cmocka_unit_test(an_errno_becomes_code_class_and_text),
		cmocka_unit_test(whether_a_call_may_succeed_later_follows_from_class_and_code),
		cmocka_unit_test(wrapping_puts_words_before_and_keeps_the_rest),
		cmocka_unit_test(a_long_message_is_cut_at_a_whole_character),
		cmocka_unit_test(the_running_version_is_that_of_the_headers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
