/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline from the outside: what it takes, what it refuses, where it begins and ends. */
#include "pipeline/rig.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

static void assert_message(struct rig *r, const char *text)
{
	if (strstr(r->err.msg, text) == NULL)
		fail_msg("\"%s\" is not in: %s", text, r->err.msg);
}

/* ---- the whole way ---- */

static void every_whole_partition_is_built_stored_and_committed(void **state)
{
	struct rig *r = *state;
	assert_int_equal(rig_run(r), 0);
	rig_assert_chain(r, 0, 59, 10);
	assert_int_equal(r->builds, 6);
	assert_int_equal(r->stores, 6);
	assert_int_equal(r->stats.dispatched, 6);
	assert_int_equal(r->stats.stored, 6);
	assert_int_equal(r->stats.committed, 6);
	assert_int_equal(r->stats.has_last, 1);
	assert_int_equal(r->stats.last, 59);
	assert_int_equal(r->stats.next, 60);
	assert_int_equal(r->stats.window_used, 0);
	assert_int_equal(r->stats.commit_lag_ms, 0);
}

static void an_empty_source_commits_nothing_and_succeeds(void **state)
{
	struct rig *r = *state;
	r->script = (struct sl_pipeline_element[]){{0}};
	assert_int_equal(rig_run(r), 0);
	assert_int_equal(r->n_commits, 0);
	assert_int_equal(r->stats.has_last, 0);
}

static void runs_of_any_length_give_the_same_partitions(void **state)
{
	struct rig *r = *state;
	for (r->run = 1; r->run <= 12; r->run++) {
		r->n_commits = 0;
		assert_int_equal(rig_run(r), 0);
		rig_assert_chain(r, 0, 59, 10);
	}
}

static int count_build(void *worker, const struct sl_pipeline_partition *p, void **out, struct sl_err *err, void *ctx)
{
	(void)worker;
	(void)out;
	(void)err;
	(void)p;
	rig_lock(ctx);
	((struct rig *)ctx)->builds++;
	rig_unlock(ctx);
	return 0;
}

static int count_commit(const struct sl_pipeline_partition *p, void *out, void *ref, struct sl_err *err, void *ctx)
{
	bool right = out == NULL && ref == NULL && p->start == 10 * ((struct rig *)ctx)->tries++;
	return right ? 0 : sl_err_set(err, SL_EINTERNAL, "not what was built");
}

static int one_to_thirty(struct sl_pipeline_element *out, struct sl_err *err, void *ctx)
{
	struct rig *r = ctx;
	(void)err;
	out->first = out->last = r->at++;
	return out->first < 30 ? 0 : SL_PIPELINE_END;
}

static void a_table_of_next_build_and_commit_is_enough(void **state)
{
	struct rig *r = *state;
	r->ops = (struct sl_pipeline_ops){.version = SL_PIPELINE_OPS_VERSION,
					  .next = one_to_thirty,
					  .build = count_build,
					  .commit = count_commit};
	r->o.on_step = NULL;
	assert_int_equal(rig_run(r), 0);
	assert_int_equal(r->builds, 3);
	assert_int_equal(r->tries, 3);
}

static void input_that_begins_within_a_partition_keeps_the_boundaries(void **state)
{
	struct rig *r = *state;
	r->from = 17;
	r->run = 4;
	assert_int_equal(rig_run(r), 0);
	rig_assert_chain(r, 17, 59, 10);
	assert_int_equal(r->commits[0].end, 19);
}

static void the_highest_number_ends_its_partition(void **state)
{
	struct rig *r = *state;
	r->script = (struct sl_pipeline_element[]){{.first = SL_SEQUENCE_MAX - 1, .last = SL_SEQUENCE_MAX}};
	r->n_script = 1;
	r->o.partition_size = 1 << 20;
	assert_int_equal(rig_run(r), 0);
	assert_int_equal(r->n_commits, 1);
	assert_true(r->commits[0].end == SL_SEQUENCE_MAX);
}

/* ---- the end ---- */

static void an_unfinished_partition_waits_for_a_run_that_sees_it_whole(void **state)
{
	struct rig *r = *state;
	r->to = 54;
	assert_int_equal(rig_run(r), 0);
	rig_assert_chain(r, 0, 49, 10);
	r->to = 59;
	assert_int_equal(rig_resume(r), 0);
	rig_assert_chain(r, 0, 59, 10);
}

static void a_final_end_commits_the_short_partition_and_the_next_run_fills_up_to_the_boundary(void **state)
{
	struct rig *r = *state;
	r->to = 54;
	r->o.final = SL_ON;
	assert_int_equal(rig_run(r), 0);
	rig_assert_chain(r, 0, 54, 10);
	r->to = 75;
	assert_int_equal(rig_resume(r), 0);
	assert_int_equal(r->n_commits, 9);
	assert_int_equal(r->commits[6].start, 55);
	assert_int_equal(r->commits[6].end, 59);
	assert_int_equal(r->commits[7].start, 60);
	assert_int_equal(r->commits[8].end, 75);
}

static void an_error_of_the_source_commits_what_was_whole_before_it(void **state)
{
	struct rig *r = *state;
	r->to = 44;
	r->end_rc = SL_EIO;
	r->o.final = SL_ON;
	assert_int_equal(rig_run(r), SL_EIO);
	assert_message(r, "the source broke");
	rig_assert_chain(r, 0, 39, 10);
	assert_int_equal(r->stats.last, 39);
}

/* ---- where a run begins ---- */

static void input_at_or_below_the_checkpoint_is_skipped(void **state)
{
	struct rig *r = *state;
	r->o.begin = SL_PIPELINE_AT;
	r->o.first = 30;
	r->run = 5;
	assert_int_equal(rig_run(r), 0);
	rig_assert_chain(r, 30, 59, 10);
	assert_int_equal(r->stats.skipped, 6);
}

static void input_that_lies_wholly_below_the_checkpoint_commits_nothing(void **state)
{
	struct rig *r = *state;
	r->o.begin = SL_PIPELINE_AT;
	r->o.first = 60;
	assert_int_equal(rig_run(r), 0);
	assert_int_equal(r->n_commits, 0);
	assert_int_equal(r->stats.skipped, 60);
}

static void input_that_begins_past_the_checkpoint_has_a_gap(void **state)
{
	struct rig *r = *state;
	r->from = 32;
	r->o.begin = SL_PIPELINE_AT;
	r->o.first = 30;
	assert_int_equal(rig_run(r), SL_EGAP);
	assert_message(r, "30 to 31 are missing: the next number is 32 (place");
	assert_int_equal(r->n_commits, 0);
}

static void a_run_on_both_sides_of_the_checkpoint_is_refused(void **state)
{
	struct rig *r = *state;
	r->run = 10;
	r->o.begin = SL_PIPELINE_AT;
	r->o.first = 35;
	assert_int_equal(rig_run(r), SL_EINVAL);
	assert_message(r, "30 to 39");
	assert_message(r, "35");
}

/* ---- the order of the input ---- */

#define E(a, b)                                                                                                        \
	{                                                                                                              \
		.first = (a), .last = (b)                                                                              \
	}

static void refuse(struct rig *r, const struct sl_pipeline_element *script, size_t n, int code, const char *text,
		   uint64_t committed_to)
{
	r->script = script;
	r->n_script = n;
	r->n_commits = 0;
	r->o.final = SL_ON;
	assert_int_equal(rig_run(r), code);
	assert_message(r, text);
	if (committed_to > 0)
		rig_assert_chain(r, 0, committed_to, 10);
	else
		assert_int_equal(r->n_commits, 0);
}

static void a_gap_stops_the_run_at_its_place(void **state)
{
	static const struct sl_pipeline_element one[] = {E(0, 9), E(10, 14), E(16, 19), E(20, 29)};
	static const struct sl_pipeline_element many[] = {E(0, 9), E(10, 19), E(40, 49)};
	refuse(*state, one, 4, SL_EGAP, "15 is missing: the next number is 16 (place 3)", 9);
	refuse(*state, many, 3, SL_EGAP, "20 to 39 are missing: the next number is 40 (place 3)", 19);
}

static void a_repetition_and_a_step_back_stop_the_run(void **state)
{
	static const struct sl_pipeline_element again[] = {E(0, 9), E(10, 14), E(14, 19)};
	static const struct sl_pipeline_element back[] = {E(0, 9), E(10, 19), E(3, 3)};
	refuse(*state, again, 3, SL_EDUPLICATE, "14 (place 3) comes after 14", 9);
	refuse(*state, back, 3, SL_EDUPLICATE, "3 (place 3) comes after 19", 19);
}

static void the_order_is_checked_below_the_checkpoint_too(void **state)
{
	struct rig *r = *state;
	static const struct sl_pipeline_element gap[] = {E(0, 4), E(6, 9), E(10, 19)};
	static const struct sl_pipeline_element back[] = {E(0, 9), E(10, 19), E(20, 29), E(5, 5)};
	r->o.begin = SL_PIPELINE_AT;
	r->o.first = 20;
	refuse(r, gap, 3, SL_EGAP, "5 is missing", 0);
	r->script = back;
	r->n_script = 4;
	assert_int_equal(rig_run(r), SL_EDUPLICATE);
	rig_assert_chain(r, 20, 29, 10);
}

static void a_run_that_is_no_range_or_crosses_a_boundary_is_refused(void **state)
{
	static const struct sl_pipeline_element crossing[] = {E(0, 9), E(10, 20)};
	static const struct sl_pipeline_element backward[] = {E(0, 9), E(15, 10)};
	static const struct sl_pipeline_element beyond[] = {E(SL_SEQUENCE_MAX, SL_SEQUENCE_MAX + 1)};
	refuse(*state, crossing, 2, SL_EINVAL, "10 to 20 (place 2) crosses the boundary", 9);
	refuse(*state, backward, 2, SL_EINVAL, "not a range", 9);
	refuse(*state, beyond, 1, SL_EINVAL, "not a range", 0);
}

static void say_much(const struct sl_pipeline_element *e, char *text, size_t n, void *ctx)
{
	(void)ctx;
	(void)e;
	memset(text, 'x', n - 1);
	text[n - 1] = '\0';
}

static void long_words_for_a_place_are_cut_and_not_overrun(void **state)
{
	struct rig *r = *state;
	static const struct sl_pipeline_element gap[] = {E(0, 9), E(11, 19)};
	r->ops.describe = say_much;
	refuse(r, gap, 2, SL_EGAP, "xxx)", 9);
}

/* ---- options ---- */

static void a_bad_option_is_named(void **state)
{
	struct rig *r = *state;
	static const struct {
		const char *text;
		struct sl_pipeline_opts o;
	} rows[] = {
		{"partition_size", {.partition_size = 0}},
		{"partition_size", {.partition_size = UINT64_MAX}},
		{"workers", {.partition_size = 1, .workers = 257}},
		{"workers", {.partition_size = 1, .workers = -1}},
		{"queue_size", {.partition_size = 1, .queue_size = -1}},
		{"window", {.partition_size = 1, .window = -1}},
		{"queue_bytes", {.partition_size = 1, .queue_bytes = -1}},
		{"retry_attempts", {.partition_size = 1, .retry_attempts = -1}},
		{"retry_backoff_ms", {.partition_size = 1, .retry_backoff_ms = -3}},
		{"commit_patience_ms", {.partition_size = 1, .commit_patience_ms = -3}},
		{"begin", {.partition_size = 1, .begin = (enum sl_pipeline_begin)7}},
		{"final", {.partition_size = 1, .final = (enum sl_switch)7}},
		{"keep_output", {.partition_size = 1, .keep_output = (enum sl_switch)7}},
		{"first", {.partition_size = 1, .first = UINT64_MAX}},
		{"name", {.partition_size = 1, .name = ""}},
	};
	for (size_t i = 0; i < SL_COUNT(rows); i++) {
		struct sl_pipeline_opts o = rows[i].o;
		o.struct_size = sizeof(o);
		o.env = &r->env;
		o.ops = &r->ops;
		assert_int_equal(sl_pipeline_new(&r->p, &o, &r->err), SL_EINVAL);
		assert_message(r, rows[i].text);
		assert_null(r->p);
	}
}

static void a_table_without_the_needed_functions_is_refused(void **state)
{
	struct rig *r = *state;
	struct sl_pipeline_ops ops = r->ops;
	r->o.ops = &ops;
	ops.build = NULL;
	assert_int_equal(sl_pipeline_new(&r->p, &r->o, &r->err), SL_EINVAL);
	ops = r->ops;
	ops.version = 2;
	assert_int_equal(sl_pipeline_new(&r->p, &r->o, &r->err), SL_EINVAL);
	assert_int_equal(sl_pipeline_new(&r->p, NULL, &r->err), SL_EINVAL);
	r->o.ops = NULL;
	assert_int_equal(sl_pipeline_new(&r->p, &r->o, &r->err), SL_EINVAL);
	r->o.ops = &r->ops;
}

static void the_defaults_are_those_of_the_specification(void **state)
{
	struct rig *r = *state;
	struct sl_pipeline_stats s = {.struct_size = sizeof(s)};
	rig_new(r);
	assert_int_equal(sl_pipeline_get_stats(r->p, &s), 0);
	assert_int_equal(s.workers, 4);
	assert_int_equal(s.window, 4 + 8);
}

static void a_handle_runs_once(void **state)
{
	struct rig *r = *state;
	assert_int_equal(rig_run(r), 0);
	assert_int_equal(sl_pipeline_run(r->p, NULL, &r->err), SL_EINVAL);
	assert_int_equal(r->n_commits, 6);
}

static void a_handle_does_not_work_in_a_forked_child(void **state)
{
	struct rig *r = *state;
	rig_new(r);
	pid_t child = fork();
	if (child == 0) {
		struct sl_pipeline_stats s = {.struct_size = sizeof(s)};
		bool ok = sl_pipeline_run(r->p, NULL, NULL) == SL_EFORKED &&
			  sl_pipeline_get_stats(r->p, &s) == SL_EFORKED;
		sl_pipeline_free(r->p);
		_exit(ok ? 0 : 1);
	}
	int status = 0;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(every_whole_partition_is_built_stored_and_committed),
		CASE(an_empty_source_commits_nothing_and_succeeds),
		CASE(runs_of_any_length_give_the_same_partitions),
		CASE(a_table_of_next_build_and_commit_is_enough),
		CASE(input_that_begins_within_a_partition_keeps_the_boundaries),
		CASE(the_highest_number_ends_its_partition),
		CASE(an_unfinished_partition_waits_for_a_run_that_sees_it_whole),
		CASE(a_final_end_commits_the_short_partition_and_the_next_run_fills_up_to_the_boundary),
		CASE(an_error_of_the_source_commits_what_was_whole_before_it),
		CASE(input_at_or_below_the_checkpoint_is_skipped),
		CASE(input_that_lies_wholly_below_the_checkpoint_commits_nothing),
		CASE(input_that_begins_past_the_checkpoint_has_a_gap),
		CASE(a_run_on_both_sides_of_the_checkpoint_is_refused),
		CASE(a_gap_stops_the_run_at_its_place),
		CASE(a_repetition_and_a_step_back_stop_the_run),
		CASE(the_order_is_checked_below_the_checkpoint_too),
		CASE(a_run_that_is_no_range_or_crosses_a_boundary_is_refused),
		CASE(long_words_for_a_place_are_cut_and_not_overrun),
		CASE(a_bad_option_is_named),
		CASE(a_table_without_the_needed_functions_is_refused),
		CASE(the_defaults_are_those_of_the_specification),
		CASE(a_handle_runs_once),
		CASE(a_handle_does_not_work_in_a_forked_child),
	};
	return cmocka_run_group_tests_name("pipeline", tests, NULL, NULL);
}
