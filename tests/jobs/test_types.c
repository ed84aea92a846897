/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of types, the layers of a type, what a new job must be like, and which text is JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "jobs/client/types.h"
#include "support/budget.h"
#include "support/fault.h"

static const struct sl_env real_env = {SL_ENV_INIT, .mem = &sl__mem_real};

static sl_job_types *registry(const struct sl_job_type *type)
{
	sl_job_types *types;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl_job_types_new(&types, NULL, &err), 0);
	if (type != NULL && sl_job_types_add(types, type, &err) != 0)
		fail_msg("%s", err.msg);
	return types;
}

/* ---- types ---- */

static void a_type_without_fields_has_the_defaults_of_the_specification(void **state)
{
	(void)state;
	struct sl_job_type t;
	assert_int_equal(sl__job_type_resolve(&t, "mail", NULL, 0, NULL), 0);
	assert_string_equal(t.name, "mail");
	assert_int_equal(t.retry.max_attempts, SL_UNLIMITED);
	assert_int_equal(t.retry.first_ms, 10000);
	assert_int_equal(t.retry.cap_ms, 300000);
	assert_true(t.retry.multiplier == 2);
	assert_int_equal(t.lease_ms, 60000);
	assert_int_equal(t.renew_interval_ms, 30000);
	assert_int_equal(t.timeout_ms, SL_UNLIMITED);
	assert_int_equal(t.priority, 0);
	assert_int_equal(t.slots, 0);
}

static void the_strongest_layer_that_says_something_wins(void **state)
{
	(void)state;
	struct sl_job_type t;
	const struct sl_job_type processor = {SL_JOB_TYPE_INIT, .retry.max_attempts = 3, .slots = 2};
	const struct sl_job_type given = {SL_JOB_TYPE_INIT, .retry = {.max_attempts = 5, .first_ms = 50},
					  .priority = 7};
	const struct sl_job_type worker = {SL_JOB_TYPE_INIT, .retry = {.first_ms = 99, .multiplier = 4}, .slots = 8};
	const struct sl_job_type *layers[] = {&processor, NULL, &given, &worker};
	assert_int_equal(sl__job_type_resolve(&t, "mail", layers, 4, NULL), 0);
	assert_int_equal(t.retry.max_attempts, 3);
	assert_int_equal(t.retry.first_ms, 50);
	assert_true(t.retry.multiplier == 4);
	assert_int_equal(t.slots, 2);
	assert_int_equal(t.priority, 7);
}

static void a_lease_alone_is_renewed_every_third_of_it(void **state)
{
	(void)state;
	struct sl_job_type t;
	const struct sl_job_type given = {SL_JOB_TYPE_INIT, .lease_ms = 900};
	const struct sl_job_type *layer = &given;
	assert_int_equal(sl__job_type_resolve(&t, "mail", &layer, 1, NULL), 0);
	assert_int_equal(t.lease_ms, 900);
	assert_int_equal(t.renew_interval_ms, 300);
}

static void a_renewal_from_below_the_layer_of_the_lease_does_not_count(void **state)
{
	(void)state;
	struct sl_job_type t;
	const struct sl_job_type strong = {SL_JOB_TYPE_INIT, .lease_ms = 900};
	const struct sl_job_type weak = {SL_JOB_TYPE_INIT, .lease_ms = 80000, .renew_interval_ms = 20000};
	const struct sl_job_type *layers[] = {&strong, &weak};
	assert_int_equal(sl__job_type_resolve(&t, "mail", layers, 2, NULL), 0);
	assert_int_equal(t.renew_interval_ms, 300);
	/* The other way round the pair is taken as it is. */
	const struct sl_job_type renew = {SL_JOB_TYPE_INIT, .renew_interval_ms = 10000};
	const struct sl_job_type *up[] = {&renew, &weak};
	assert_int_equal(sl__job_type_resolve(&t, "mail", up, 2, NULL), 0);
	assert_int_equal(t.lease_ms, 80000);
	assert_int_equal(t.renew_interval_ms, 10000);
}

static void a_bad_field_of_a_type_is_named(void **state)
{
	(void)state;
	static const struct {
		struct sl_job_type type;
		const char *field;
	} cases[] = {
		{{SL_JOB_TYPE_INIT}, "name"},
		{{SL_JOB_TYPE_INIT, .name = ""}, "name"},
		{{SL_JOB_TYPE_INIT, .name = "a b"}, "character 2"},
		{{SL_JOB_TYPE_INIT, .name = "a", .lease_ms = 9}, "lease_ms"},
		{{SL_JOB_TYPE_INIT, .name = "a", .lease_ms = -1}, "lease_ms"},
		{{SL_JOB_TYPE_INIT, .name = "a", .lease_ms = 100, .renew_interval_ms = 51}, "renew_interval_ms"},
		{{SL_JOB_TYPE_INIT, .name = "a", .renew_interval_ms = 30001}, "renew_interval_ms"},
		{{SL_JOB_TYPE_INIT, .name = "a", .timeout_ms = -1}, "timeout_ms"},
		{{SL_JOB_TYPE_INIT, .name = "a", .slots = -1}, "slots"},
		{{SL_JOB_TYPE_INIT, .name = "a", .retry.max_attempts = -7}, "max_attempts"},
	};
	sl_job_types *types = registry(NULL);
	for (size_t i = 0; i < SL_COUNT(cases); i++) {
		struct sl_err err = SL_ERR_INIT;
		assert_int_equal(sl_job_types_add(types, &cases[i].type, &err), SL_EINVAL);
		assert_non_null(strstr(err.msg, cases[i].field));
	}
	sl_job_types_free(types);
}

static void an_open_registry_has_defaults_for_its_types_and_allows_others(void **state)
{
	(void)state;
	const struct sl_job_type mail = {SL_JOB_TYPE_INIT, .name = "mail", .priority = -3};
	const struct sl_new_job known = {.type = "mail"}, other = {.type = "other"};
	sl_job_types *types = registry(&mail);
	struct sl_new_job out;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl__new_job_check(types, &real_env, &other, &out, &err), SL_EINVAL);
	sl_job_types_allow_others(types);
	assert_int_equal(sl__new_job_check(types, &real_env, &other, &out, &err), 0);
	assert_int_equal(out.priority, 0);
	assert_int_equal(sl__new_job_check(types, &real_env, &known, &out, &err), 0);
	assert_int_equal(out.priority, -3);
	sl_job_types_free(types);
}

static void a_registry_finds_every_type_and_takes_none_twice(void **state)
{
	(void)state;
	sl_job_types *types = registry(NULL);
	char name[16];
	for (int i = 0; i < 100; i++) {
		(void)snprintf(name, sizeof(name), "t%d", i * 37 % 100);
		const struct sl_job_type t = {SL_JOB_TYPE_INIT, .name = name, .priority = i * 37 % 100};
		assert_int_equal(sl_job_types_add(types, &t, NULL), 0);
		assert_int_equal(sl_job_types_add(types, &t, NULL), SL_EEXIST);
	}
	for (int i = 0; i < 100; i++) {
		(void)snprintf(name, sizeof(name), "t%d", i);
		const struct sl_job_type *t = sl__job_types_given(types, name);
		assert_non_null(t);
		assert_string_equal(t->name, name);
		assert_int_equal(t->priority, i);
	}
	assert_null(sl__job_types_given(types, "t"));
	assert_null(sl__job_types_given(NULL, "t1"));
	sl_job_types_free(types);
}

static void a_registry_without_memory_stays_as_it_was(void **state)
{
	(void)state;
	struct fault f;
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, NULL);
	const struct sl_job_type t = {SL_JOB_TYPE_INIT, .name = "mail"};
	int64_t n = 1;
	for (;; n++) {
		sl_job_types *types = NULL;
		fault_arm_mem(&f, n, FAULT_ONCE);
		int rc = sl_job_types_new(&types, &env, NULL);
		if (rc == 0)
			rc = sl_job_types_add(types, &t, NULL);
		fault_disarm(&f);
		if (fault_mem_failed(&f) == 0) {
			assert_int_equal(rc, 0);
			sl_job_types_free(types);
			break;
		}
		assert_int_equal(rc, SL_ENOMEM);
		if (types != NULL)
			assert_null(sl__job_types_given(types, "mail"));
		sl_job_types_free(types);
	}
	assert_true(n > 3);
	assert_int_equal(fault_live_allocs(&f), 0);
	fault_fini(&f);
}

/* ---- new jobs ---- */

static void refuse(const struct sl_new_chain *chain, int code, const char *text)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_new_chain out;
	int rc = sl__new_chain_check(NULL, &real_env, chain, &out, &err);
	if (rc != code || strstr(err.msg, text) == NULL)
		fail_msg("expected %s with \"%s\", got %s: %s", sl_err_name(code), text, sl_err_name(rc), err.msg);
}

static void a_bad_field_of_a_new_chain_is_named(void **state)
{
	(void)state;
	static const uint64_t blockers[] = {4, 9, 4}, zero[] = {1, 0};
	char longest[600];
	memset(longest, 'k', sizeof(longest));
	longest[513] = '\0';
	refuse(&(struct sl_new_chain){0}, SL_EINVAL, "type is missing");
	refuse(&(struct sl_new_chain){.job = {.type = "caf\xc3\xa9"}}, SL_EINVAL, "type: character 4");
	refuse(&(struct sl_new_chain){.job = {.type = longest}}, SL_EINVAL, "type: longer");
	refuse(&(struct sl_new_chain){.job = {.type = "t", .at_ms = 1, .delay_ms = 1}}, SL_EINVAL, "exclude");
	refuse(&(struct sl_new_chain){.job = {.type = "t", .at_ms = -1}}, SL_EINVAL, "at_ms");
	refuse(&(struct sl_new_chain){.job = {.type = "t", .delay_ms = INT64_MAX}}, SL_EINVAL, "delay_ms");
	refuse(&(struct sl_new_chain){.job = {.type = "t", .blockers = blockers, .n_blockers = 3}}, SL_EINVAL,
	       "chain 4 is given twice");
	refuse(&(struct sl_new_chain){.job = {.type = "t", .blockers = zero, .n_blockers = 2}}, SL_EINVAL,
	       "blockers[1]");
	refuse(&(struct sl_new_chain){.job = {.type = "t", .n_blockers = 1}}, SL_EINVAL, "blockers is NULL");
	refuse(&(struct sl_new_chain){.job = {.type = "t", .traceparent = "a b"}}, SL_EINVAL, "traceparent");
	refuse(&(struct sl_new_chain){.job = {.type = "t", .input = "{\"a\":}"}}, SL_EDATA, "input: line 1, column 6");
	refuse(&(struct sl_new_chain){.job = {.type = "t"}, .key = ""}, SL_EINVAL, "key");
	refuse(&(struct sl_new_chain){.job = {.type = "t"}, .key = longest}, SL_EINVAL, "key");
	refuse(&(struct sl_new_chain){.job = {.type = "t"}, .key = "\xff"}, SL_EDATA, "key: invalid UTF-8");
	refuse(&(struct sl_new_chain){.job = {.type = "t"}, .window_ms = 5}, SL_EINVAL, "window_ms needs a key");
	refuse(&(struct sl_new_chain){.job = {.type = "t"}, .key = "k", .window_ms = -5}, SL_EINVAL, "window_ms");
	refuse(&(struct sl_new_chain){.job = {.type = "t"}, .key = "k", .scope = (enum sl_dedup_scope)9}, SL_EINVAL,
	       "scope");
}

static void a_blocker_given_twice_is_found_among_thousands(void **state)
{
	(void)state;
	enum { N = 5000 };
	uint64_t ids[N];
	for (size_t i = 0; i < N; i++)
		ids[i] = N - i;
	struct sl_new_chain out, chain = {.job = {.type = "t", .blockers = ids, .n_blockers = N}};
	assert_int_equal(sl__new_chain_check(NULL, &real_env, &chain, &out, NULL), 0);
	assert_ptr_equal(out.job.blockers, ids);
	ids[17] = ids[4000];
	refuse(&chain, SL_EINVAL, "is given twice");
}

static int even_only(const char *type, const char *json, struct sl_err *err, void *ctx)
{
	assert_string_equal(type, "even");
	(*(int *)ctx)++;
	return atoi(json) % 2 == 0 ? 0 : sl_err_set(err, SL_EDATA, "%s is odd", json);
}

static void the_type_gives_the_priority_and_has_a_say_in_input_and_output(void **state)
{
	(void)state;
	int asked = 0;
	const struct sl_job_type even = {SL_JOB_TYPE_INIT,
					 .name = "even",
					 .priority = 5,
					 .validate_input = even_only,
					 .validate_output = even_only,
					 .validate_ctx = &asked};
	sl_job_types *types = registry(&even);
	struct sl_err err = SL_ERR_INIT;
	struct sl_new_job out, job = {.type = "even", .input = "4"};
	assert_int_equal(sl__new_job_check(types, &real_env, &job, &out, &err), 0);
	assert_int_equal(out.priority, 5);
	job.priority = 1;
	assert_int_equal(sl__new_job_check(types, &real_env, &job, &out, &err), 0);
	assert_int_equal(out.priority, 1);
	job.priority = SL_PRIORITY_ZERO;
	assert_int_equal(sl__new_job_check(types, &real_env, &job, &out, &err), 0);
	assert_int_equal(out.priority, 0);
	assert_int_equal(sl__new_job_check(NULL, &real_env, &job, &out, &err), 0);
	assert_int_equal(out.priority, 0);
	job.input = "3";
	assert_int_equal(sl__new_job_check(types, &real_env, &job, &out, &err), SL_EDATA);
	assert_string_equal(err.msg, "input: 3 is odd");
	job.input = "3,"; /* the callback sees only JSON */
	assert_int_equal(sl__new_job_check(types, &real_env, &job, &out, &err), SL_EDATA);
	assert_int_equal(asked, 4);
	assert_int_equal(sl__job_output_check(types, "even", "7", &err), SL_EDATA);
	assert_string_equal(err.msg, "output: 7 is odd");
	assert_int_equal(err.error_class, SL_CLASS_POISON);
	assert_int_equal(sl__job_output_check(types, "other", "7", &err), 0);
	sl_job_types_free(types);
	const struct sl_job_type zero = {SL_JOB_TYPE_INIT, .name = "zero", .priority = SL_PRIORITY_ZERO};
	types = registry(&zero);
	job = (struct sl_new_job){.type = "zero"};
	assert_int_equal(sl__new_job_check(types, &real_env, &job, &out, &err), 0);
	assert_int_equal(out.priority, 0);
	job = (struct sl_new_job){.type = "odd"};
	assert_int_equal(sl__new_job_check(types, &real_env, &job, &out, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "odd is not in the registry"));
	assert_int_equal(sl__new_job_check(NULL, &real_env, &job, &out, &err), 0);
	assert_string_equal(out.input, "null");
	sl_job_types_free(types);
}

static int silent_no(const char *type, const char *json, struct sl_err *err, void *ctx)
{
	(void)type;
	(void)json;
	(void)err;
	(void)ctx;
	return 1;
}

static void a_validation_that_gives_no_reason_is_still_an_error(void **state)
{
	(void)state;
	const struct sl_job_type t = {SL_JOB_TYPE_INIT, .name = "t", .validate_output = silent_no};
	sl_job_types *types = registry(&t);
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl__job_output_check(types, "t", NULL, &err), SL_EDATA);
	assert_non_null(strstr(err.msg, "output: refused"));
	sl_job_types_free(types);
}

/* ---- JSON ---- */

static void json_that_is_well_formed_passes(void **state)
{
	(void)state;
	static const char *const good[] = {
		"null",
		" true\n",
		"0",
		"-0.5e+10",
		"18446744073709551615",
		"1e400",
		"\"\"",
		"\"\\u0000\"",
		"\"\\ud83d\\ude00 \\n\"",
		"\"\xf0\x9f\x98\x80\"",
		"[]",
		"[ 1 , [ ] , {} ]",
		"{\"a\":{\"b\":[1,2]},\"a\":0}",
	};
	for (size_t i = 0; i < SL_COUNT(good); i++) {
		struct sl_err err = SL_ERR_INIT;
		if (sl__job_json_check(good[i], "x", &err) != 0)
			fail_msg("%s: %s", good[i], err.msg);
	}
}

static void json_that_is_not_is_refused_with_the_place(void **state)
{
	(void)state;
	static const char *const bad[][2] = {
		{"", "x: line 1, column 1: the text ends"},
		{"nul", "column 1: a value"},
		{"[1,]", "column 4"},
		{"[1,\n 2 3]", "line 2, column 4: ',' or ']'"},
		{"{\"a\" 1}", "column 6: ':'"},
		{"{a:1}", "column 2: a string"},
		{"{\"a\":1", "column 7: ',' or '}'"},
		{"1 2", "column 3: unexpected text"},
		{"01", "column 2: unexpected text"},
		{"1.", "column 3: a digit"},
		{"-", "column 2: a digit"},
		{"1e", "column 3: a digit"},
		{"+1", "column 1"},
		{"'a'", "column 1"},
		{"\"a", "column 3: the text ends inside"},
		{"\"\xc3\xa9\xff\"", "column 3: invalid UTF-8"},
		{"\"\xc0\x80\"", "invalid UTF-8"},
		{"\"\xed\xa0\x80\"", "invalid UTF-8"},
		{"\"a\tb\"", "column 3: a control"},
		{"\"\\x\"", "column 2: invalid escape"},
		{"\"\\u12g4\"", "four hexadecimal"},
		{"\"\\ud800\"", "lone surrogate"},
		{"\"\\udc00\"", "lone surrogate"},
		{"\"\\ud800\\u0041\"", "lone surrogate"},
		{"NaN", "column 1"},
	};
	for (size_t i = 0; i < SL_COUNT(bad); i++) {
		struct sl_err err = SL_ERR_INIT;
		int rc = sl__job_json_check(bad[i][0], "x", &err);
		if (rc != SL_EDATA || strstr(err.msg, bad[i][1]) == NULL)
			fail_msg("%s: %d %s", bad[i][0], rc, err.msg);
	}
}

static void json_may_be_nested_a_thousand_times_and_not_once_more(void **state)
{
	(void)state;
	enum { DEEP = 1000 };
	char text[2 * DEEP + 3];
	memset(text, '[', DEEP);
	memset(text + DEEP, ']', DEEP);
	text[2 * DEEP] = '\0';
	assert_int_equal(sl__job_json_check(text, "x", NULL), 0);
	memset(text, '[', DEEP + 1);
	memset(text + DEEP + 1, ']', DEEP + 1);
	text[2 * DEEP + 2] = '\0';
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl__job_json_check(text, "x", &err), SL_EDATA);
	assert_non_null(strstr(err.msg, "column 1001: nested too deep"));
}

/* Text of JSON's own pieces, so that much of it is nearly right. */
static void random_text(struct sl__prng *p, char *out, size_t size)
{
	static const char *const pieces[] = {"{",        "}",    "[",  "]",   ",",    ":",           "\"",
					     "\"a\"",    "1",    "-",  "0",   ".",    "e",           "true",
					     "null",     " ",    "\n", "\\u", "00e9", "d83d",        "\\ude00",
					     "\xc3\xa9", "\xff", "\\", "{\"", "\":1", "\"b\":[1,2]", "]}"};
	size_t used = 0, n = sl__prng_next(p) % 12;
	for (size_t i = 0; i < n; i++) {
		const char *piece = pieces[sl__prng_next(p) % SL_COUNT(pieces)];
		if (used + strlen(piece) + 1 < size)
			used += (size_t)snprintf(out + used, size - used, "%s", piece);
	}
	out[used] = '\0';
}

static void jansson_agrees_on_what_json_is(void **state)
{
	(void)state;
	const char *given = getenv("SLUICE_TEST_SEED");
	struct sl__prng prng = {given != NULL ? strtoull(given, NULL, 0) : 1};
	int64_t until = sl__clock_real.mono_ns(NULL) + (int64_t)(test_seconds(1) * 1e9);
	uint64_t n = 0, good = 0;
	do {
		char text[128];
		uint64_t seed = prng.s;
		random_text(&prng, text, sizeof(text));
		/* jansson takes no number that a double cannot hold, such as 1e1111; we keep it as it is. */
		json_error_t why;
		json_t *theirs = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
		bool too_large = theirs == NULL && json_error_code(&why) == json_error_numeric_overflow;
		bool ours = sl__job_json_check(text, "x", NULL) == 0;
		if (ours != (theirs != NULL) && !too_large)
			fail_msg("seed %" PRIu64 ": \"%s\" is JSON for %s only", seed, text, ours ? "us" : "jansson");
		good += ours;
		n++;
		json_decref(theirs);
	} while (n % 1024 != 0 || sl__clock_real.mono_ns(NULL) < until);
	assert_true(good > 100);
	printf("# %" PRIu64 " texts, %" PRIu64 " of them JSON\n", n, good);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_type_without_fields_has_the_defaults_of_the_specification),
		cmocka_unit_test(the_strongest_layer_that_says_something_wins),
		cmocka_unit_test(a_lease_alone_is_renewed_every_third_of_it),
		cmocka_unit_test(a_renewal_from_below_the_layer_of_the_lease_does_not_count),
		cmocka_unit_test(a_bad_field_of_a_type_is_named),
		cmocka_unit_test(a_registry_finds_every_type_and_takes_none_twice),
		cmocka_unit_test(an_open_registry_has_defaults_for_its_types_and_allows_others),
		cmocka_unit_test(a_registry_without_memory_stays_as_it_was),
		cmocka_unit_test(a_bad_field_of_a_new_chain_is_named),
		cmocka_unit_test(a_blocker_given_twice_is_found_among_thousands),
		cmocka_unit_test(the_type_gives_the_priority_and_has_a_say_in_input_and_output),
		cmocka_unit_test(a_validation_that_gives_no_reason_is_still_an_error),
		cmocka_unit_test(json_that_is_well_formed_passes),
		cmocka_unit_test(json_that_is_not_is_refused_with_the_place),
		cmocka_unit_test(json_may_be_nested_a_thousand_times_and_not_once_more),
		cmocka_unit_test(jansson_agrees_on_what_json_is),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
