/* SPDX-License-Identifier: Apache-2.0 */
/* A drain finishes what was cut; a stop at once ends at a place from which the next run continues. */
#include <poll.h>
#include <sched.h>
#include <signal.h>

#include "base/base.h"
#include "pipeline/rig.h"

static void assert_text(const char *text, const char *part)
{
	if (strstr(text, part) == NULL)
		fail_msg("\"%s\" is not in: %s", part, text);
}

static bool stop_fd_is_readable(struct rig *r)
{
	struct pollfd look = {.fd = sl_pipeline_stop_fd(r->p), .events = POLLIN};
	return poll(&look, 1, 0) == 1;
}

/* ---- drain ---- */

static void drain_after_dispatching_3(const char *step, const struct sl_pipeline_partition *p, void *ctx)
{
	struct rig *r = ctx;
	if (strcmp(step, "dispatched") == 0 && p->number == 2)
		sl_pipeline_stop(r->p, SL_PIPELINE_DRAIN);
}

static void a_drain_commits_what_was_cut_and_takes_no_more(void **state)
{
	struct rig *r = *state;
	r->on_step = drain_after_dispatching_3;
	r->o.final = SL_ON;
	r->to = 99999;
	assert_int_equal(rig_run(r), 0);
	rig_assert_chain(r, 0, 29, 10);
	assert_int_equal(r->stats.dispatched, 3);
	assert_int_equal(r->stats.stopping, SL_PIPELINE_DRAIN);
	assert_int_equal(atomic_load(&r->interrupts), 1);
	assert_true(stop_fd_is_readable(r));
	r->on_step = NULL;
	r->to = 59;
	assert_int_equal(rig_resume(r), 0);
	rig_assert_chain(r, 0, 59, 10);
}

struct gate {
	atomic_bool open;
};

static int first_waits(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	struct gate *g = r->own;
	(void)err;
	while (p->number == 0 && !atomic_load(&g->open))
		sched_yield();
	return 0;
}

static void await_dispatched(struct rig *r, uint64_t n)
{
	struct sl_pipeline_stats s = {.struct_size = sizeof(s)};
	do {
		sched_yield();
		assert_int_equal(sl_pipeline_get_stats(r->p, &s), 0);
	} while (s.dispatched < n);
}

static void a_drain_while_partitions_are_in_the_window_and_the_queue_commits_them_all(void **state)
{
	struct rig *r = *state;
	struct gate g = {false};
	r->own = &g;
	r->on_build = first_waits;
	r->run = 10;
	r->to = 99999;
	rig_start(r);
	await_dispatched(r, 24);
	sl_pipeline_stop(r->p, SL_PIPELINE_DRAIN);
	atomic_store(&g.open, true);
	assert_int_equal(rig_join(r), 0);
	rig_assert_chain(r, 0, 239, 10);
}

static void a_drain_wakes_a_source_that_waits_and_keeps_its_unfinished_partition_back(void **state)
{
	struct rig *r = *state;
	r->wait_at_end = true;
	r->o.final = SL_ON; /* an end by interruption is not final */
	r->to = 54;
	rig_start(r);
	while (atomic_load(&r->at_end) == 0)
		sched_yield();
	sl_pipeline_stop(r->p, SL_PIPELINE_DRAIN);
	assert_int_equal(rig_join(r), 0);
	rig_assert_chain(r, 0, 49, 10);
}

static void a_source_that_answers_the_interruption_with_an_error_has_drained(void **state)
{
	struct rig *r = *state;
	r->wait_at_end = true;
	r->end_rc = SL_ECANCELLED;
	rig_start(r);
	while (atomic_load(&r->at_end) == 0)
		sched_yield();
	sl_pipeline_stop(r->p, SL_PIPELINE_DRAIN);
	assert_int_equal(rig_join(r), 0);
	rig_assert_chain(r, 0, 59, 10);
}

/* A drain lets retries continue. */
static int fail_once_and_drain(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	if (p->number != 1 || p->attempt > 1)
		return 0;
	sl_pipeline_stop(r->p, SL_PIPELINE_DRAIN);
	return sl_err_set(err, SL_EIO, "once");
}

static void a_drain_waits_for_the_retries_of_what_was_cut(void **state)
{
	struct rig *r = *state;
	r->on_store = fail_once_and_drain;
	r->o.queue_size = 1;
	r->o.workers = 1;
	r->clock.auto_advance = 1;
	r->to = 99999;
	assert_int_equal(rig_run(r), 0);
	assert_true(r->n_commits >= 2);
	rig_assert_chain(r, 0, 10 * r->n_commits - 1, 10);
	assert_int_equal(r->stats.retries, 1);
}

static int catalog_away(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	(void)r;
	return p->number == 1 ? sl_err_set(err, SL_EUNAVAIL, "no catalog") : 0;
}

static void a_drain_with_the_catalog_away_gives_up_after_the_attempts(void **state)
{
	struct rig *r = *state;
	r->on_commit = catalog_away;
	r->wait_at_end = true;
	rig_start(r);
	vclock_await_settled(&r->clock, 1); /* the commit waits for its retry */
	rig_lock(r);
	uint64_t before = r->tries;
	rig_unlock(r);
	sl_pipeline_stop(r->p, SL_PIPELINE_DRAIN);
	for (uint64_t more = 1; more <= 3; more++) { /* the first at once, the others in their time */
		rig_lock(r);
		while (r->tries < before + more)
			rig_wait(r);
		rig_unlock(r);
		vclock_await_settled(&r->clock, 1);
		vclock_advance_ms(&r->clock, 6000);
	}
	assert_int_equal(rig_join(r), SL_EUNAVAIL);
	assert_text(r->err.msg, "partition 10 to 19");
	assert_text(r->err.msg, "commit: no catalog");
	assert_int_equal(r->tries, before + 4);
	rig_assert_chain(r, 0, 9, 10);
	r->on_commit = NULL;
	r->wait_at_end = false;
	assert_int_equal(rig_resume(r), 0);
	rig_assert_chain(r, 0, 59, 10);
}

/* ---- at once ---- */

static int stop_in_commit(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	(void)err;
	if (p->number == 3)
		sl_pipeline_stop(r->p, SL_PIPELINE_NOW);
	return 0;
}

static void an_immediate_stop_keeps_the_running_commit_and_resumes_after_it(void **state)
{
	struct rig *r = *state;
	r->to = 9999;
	r->run = 10;
	for (int i = 0; i < 20; i++) {
		r->n_commits = 0;
		r->o.begin = SL_PIPELINE_ANYWHERE;
		r->on_commit = stop_in_commit;
		assert_int_equal(rig_run(r), SL_ECANCELLED);
		assert_int_equal(r->stats.committed, 4);
		assert_int_equal(r->stats.last, 39);
		rig_assert_chain(r, 0, 39, 10);
		r->on_commit = NULL;
		assert_int_equal(rig_resume(r), 0);
		rig_assert_chain(r, 0, 9999, 10);
	}
}

static void a_stop_at_once_ends_the_wait_for_a_retry(void **state)
{
	struct rig *r = *state;
	r->on_commit = catalog_away;
	rig_start(r);
	vclock_await_settled(&r->clock, 1);
	sl_pipeline_stop(r->p, SL_PIPELINE_NOW);
	assert_int_equal(rig_join(r), SL_ECANCELLED);
	assert_text(r->err.msg, "continues after 9");
	rig_assert_chain(r, 0, 9, 10);
}

static int store_away(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	(void)r;
	(void)p;
	return sl_err_set(err, SL_EIO, "no store");
}

static void a_stop_at_once_ends_every_worker_s_wait_for_a_retry(void **state)
{
	struct rig *r = *state;
	r->on_store = store_away;
	r->to = 9999;
	rig_start(r);
	vclock_await_settled(&r->clock, 4);
	sl_pipeline_stop(r->p, SL_PIPELINE_DRAIN);
	sl_pipeline_stop(r->p, SL_PIPELINE_NOW);
	assert_int_equal(rig_join(r), SL_ECANCELLED);
	assert_text(r->err.msg, "before anything was committed");
	assert_int_equal(r->n_commits, 0);
}

static void a_stop_at_once_wakes_a_source_that_waits(void **state)
{
	struct rig *r = *state;
	r->wait_at_end = true;
	r->to = 54;
	rig_start(r);
	while (atomic_load(&r->at_end) == 0)
		sched_yield();
	sl_pipeline_stop(r->p, SL_PIPELINE_NOW);
	assert_int_equal(rig_join(r), SL_ECANCELLED);
}

static void a_stop_before_the_run_makes_it_end_without_a_commit(void **state)
{
	struct rig *r = *state;
	rig_new(r);
	sl_pipeline_stop(r->p, SL_PIPELINE_DRAIN);
	assert_int_equal(sl_pipeline_run(r->p, NULL, &r->err), 0);
	rig_new(r);
	assert_int_equal(sl_pipeline_stopping(r->p), SL_PIPELINE_GO);
	sl_pipeline_stop(r->p, SL_PIPELINE_NOW);
	sl_pipeline_stop(r->p, SL_PIPELINE_DRAIN);
	assert_int_equal(sl_pipeline_stopping(r->p), SL_PIPELINE_NOW);
	assert_int_equal(sl_pipeline_run(r->p, NULL, &r->err), SL_ECANCELLED);
	assert_int_equal(r->n_commits, 0);
	assert_int_equal(r->builds, 0);
}

/* ---- from a signal handler ---- */

static sl_pipeline *signalled; /* a handler has no other way to know it */

static void on_signal(int sig)
{
	sl_pipeline_stop(signalled, sig == SIGUSR1 ? SL_PIPELINE_DRAIN : SL_PIPELINE_NOW);
}

static void a_signal_handler_may_drain_and_a_second_signal_stops(void **state)
{
	struct rig *r = *state;
	struct gate g = {false};
	struct sigaction action = {.sa_handler = on_signal}, old1, old2;
	sigaction(SIGUSR1, &action, &old1);
	sigaction(SIGUSR2, &action, &old2);
	r->own = &g;
	r->on_build = first_waits;
	r->run = 10;
	r->to = 99999;
	rig_start(r);
	signalled = r->p;
	await_dispatched(r, 24);
	raise(SIGUSR1);
	assert_int_equal(sl_pipeline_stopping(r->p), SL_PIPELINE_DRAIN);
	raise(SIGUSR2);
	assert_int_equal(sl_pipeline_stopping(r->p), SL_PIPELINE_NOW);
	while (atomic_load(&r->interrupts) == 0)
		sched_yield();
	atomic_store(&g.open, true);
	assert_int_equal(rig_join(r), SL_ECANCELLED);
	assert_int_equal(r->n_commits, 0);
	sigaction(SIGUSR1, &old1, NULL);
	sigaction(SIGUSR2, &old2, NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_drain_commits_what_was_cut_and_takes_no_more),
		CASE(a_drain_while_partitions_are_in_the_window_and_the_queue_commits_them_all),
		CASE(a_drain_wakes_a_source_that_waits_and_keeps_its_unfinished_partition_back),
		CASE(a_source_that_answers_the_interruption_with_an_error_has_drained),
		CASE(a_drain_waits_for_the_retries_of_what_was_cut),
		CASE(a_drain_with_the_catalog_away_gives_up_after_the_attempts),
		CASE(an_immediate_stop_keeps_the_running_commit_and_resumes_after_it),
		CASE(a_stop_at_once_ends_the_wait_for_a_retry),
		CASE(a_stop_at_once_ends_every_worker_s_wait_for_a_retry),
		CASE(a_stop_at_once_wakes_a_source_that_waits),
		CASE(a_stop_before_the_run_makes_it_end_without_a_commit),
		CASE(a_signal_handler_may_drain_and_a_second_signal_stops),
	};
	return cmocka_run_group_tests_name("pipeline stop", tests, NULL, NULL);
}
