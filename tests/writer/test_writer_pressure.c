/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The specification's "Backpressure behavior" and "Metrics and logging", line by line:
 *
 *   backlog = queued + inFlight + driverBuffered  the_backlog_is_queued_and_in_flight_and_driver_buffered
 *   starts above backlogLimitBytes                backpressure_starts_above_the_limit_and_clears_at_clear
 *   clears at or below backlogClearBytes          backpressure_starts_above_the_limit_and_clears_at_clear
 *   waitForBackpressureClear() blocks             a_reader_is_blocked_until_it_clears
 *   waiters are released on error                 an_error_releases_who_waits_for_backpressure
 *   onMetrics whenever counters change            every_change_of_a_counter_is_reported_in_order
 *   handlePhysicalBytes only on success           physical_bytes_are_counted_on_success_only
 *   written % 512 == 0, throttled by logInterval  queue_statistics_are_logged_every_512_blocks_and_not_too_often
 *   loop debug: reason, counters                  the_loop_logs_the_reason_for_each_pass
 */
#include <poll.h>

#include "writer/kit.h"
#include <sluice/metrics.h>

static int clear_now(struct kit *k)
{
	return sl_writer_wait_for_backpressure_clear(k->w, 0, NULL);
}

static bool readable(struct kit *k, enum sl_writer_event event)
{
	struct pollfd p = {.fd = sl_writer_fd(k->w, event, NULL), .events = POLLIN};
	assert_true(p.fd >= 0);
	return poll(&p, 1, 0) == 1;
}

/* ---- backpressure ---- */

static void backpressure_starts_above_the_limit_and_clears_at_clear(void **state)
{
	struct kit *k = *state;
	k->opts.backlog_limit_bytes = 100;
	k->opts.max_concurrent_writes = 2;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 30);
	kit_enqueue(k, "aaaa2", 20);
	kit_enqueue(k, "aaaa3", 50);
	assert_int_equal(clear_now(k), 0); /* at the limit, not above */
	kit_enqueue(k, "aaaa4", 1);
	assert_int_equal(clear_now(k), SL_ETIMEDOUT);
	assert_int_equal(kit_stats(k).backpressure, 1);
	kit_complete(k, 0, NULL);
	assert_int_equal(clear_now(k), SL_ETIMEDOUT); /* 71: below the limit, above half */
	kit_complete(k, 1, NULL);
	assert_int_equal(clear_now(k), SL_ETIMEDOUT); /* 51 */
	kit_complete(k, 3, NULL);
	assert_int_equal(clear_now(k), 0); /* 50 */
	assert_int_equal(kit_stats(k).backpressure, 0);
}

static void the_defaults_are_256_MiB_and_half(void **state)
{
	struct kit *k = *state;
	const size_t mib = 1 << 20;
	static const char byte[1];
	struct sl_writer_block b = {.hash = "aaaa", .hash_len = 4, .bytes = byte, .len = 128 * mib};
	kit_start(k); /* the bytes are handed over and never read here */
	assert_int_equal(sl_writer_enqueue_block(k->w, &b, NULL), 0);
	assert_int_equal(sl_writer_enqueue_block(k->w, &b, NULL), 0);
	assert_int_equal(clear_now(k), 0);
	b.len = 1;
	assert_int_equal(sl_writer_enqueue_block(k->w, &b, NULL), 0);
	kit_quiet(k);
	assert_int_equal(clear_now(k), SL_ETIMEDOUT);
	kit_complete(k, 0, NULL);
	assert_int_equal(clear_now(k), SL_ETIMEDOUT);
	kit_complete(k, 2, NULL);
	assert_int_equal(clear_now(k), 0);
}

static void the_backlog_is_queued_and_in_flight_and_driver_buffered(void **state)
{
	struct kit *k = *state;
	k->opts.backlog_limit_bytes = 100;
	k->opts.backlog_clear_bytes = 40;
	k->opts.max_concurrent_writes = 1;
	k->buffered = 41;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 30);
	assert_int_equal(clear_now(k), 0); /* 41 buffered, 30 in flight */
	kit_enqueue(k, "aaaa2", 30);
	assert_int_equal(clear_now(k), SL_ETIMEDOUT); /* and 30 queued */
	kit_complete(k, 0, NULL);
	kit_complete(k, 1, NULL);
	assert_int_equal(clear_now(k), SL_ETIMEDOUT); /* 41 buffered */
	pthread_mutex_lock(&k->mu);
	k->buffered = 40; /* without a signal */
	pthread_mutex_unlock(&k->mu);
	kit_pass_ms(k, 99);
	assert_int_equal(clear_now(k), SL_ETIMEDOUT);
	kit_pass_ms(k, 1);
	assert_int_equal(clear_now(k), 0);
}

static void many_tiny_blocks_are_a_backlog_too(void **state)
{
	struct kit *k = *state;
	k->opts.backlog_limit_blocks = 10;
	kit_start(k);
	for (int i = 0; i < 10; i++)
		kit_enqueue(k, "aaaa", 0);
	assert_int_equal(clear_now(k), 0);
	kit_enqueue(k, "aaaa", 0);
	assert_int_equal(clear_now(k), SL_ETIMEDOUT);
	for (int i = 0; i < 5; i++)
		kit_complete(k, i, NULL);
	assert_int_equal(clear_now(k), SL_ETIMEDOUT);
	kit_complete(k, 5, NULL);
	assert_int_equal(clear_now(k), 0);
}

static void who_does_not_listen_is_refused_at_twice_the_limit(void **state)
{
	struct kit *k = *state;
	struct sl_err err = SL_ERR_INIT;
	static char bytes[500];
	k->opts.backlog_limit_bytes = 100;
	k->opts.backlog_limit_blocks = 4;
	kit_start(k);
	kit_enqueue(k, "aaaa", 100);
	kit_enqueue(k, "aaaa", 99);
	assert_int_equal(sl_writer_enqueue(k->w, "aaaa", 4, bytes, 2, &err), SL_EFULL);
	assert_int_equal(sl_err_retryable(&err), 1);
	kit_enqueue(k, "aaaa", 1);
	kit_complete(k, 0, NULL);
	kit_complete(k, 1, NULL);
	kit_complete(k, 2, NULL);
	kit_enqueue(k, "aaaa", 500); /* one block alone may be of any size */
	kit_complete(k, 3, NULL);
	for (int i = 0; i < 8; i++)
		kit_enqueue(k, "aaaa", 0);
	assert_int_equal(sl_writer_enqueue(k->w, "aaaa", 4, bytes, 0, &err), SL_EFULL);
	assert_int_equal(kit_stats(k).enqueued, 12);
}

struct waiter {
	struct kit *k;
	int64_t timeout_ms;
	int rc;
	pthread_t thread;
};

static void *wait_main(void *arg)
{
	struct waiter *x = arg;
	x->rc = sl_writer_wait_for_backpressure_clear(x->k->w, x->timeout_ms, NULL);
	return NULL;
}

static void start_waiters(struct kit *k, struct waiter *waiters, int n, int64_t timeout_ms)
{
	for (int i = 0; i < n; i++) {
		waiters[i] = (struct waiter){.k = k, .timeout_ms = timeout_ms, .rc = 99};
		assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_main, &waiters[i]), 0);
	}
	vclock_await_waiters(&k->clock, n + 1); /* they, and the loop */
}

static void join_waiters(struct waiter *waiters, int n, int rc)
{
	for (int i = 0; i < n; i++) {
		assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
		assert_int_equal(waiters[i].rc, rc);
	}
}

static void a_reader_is_blocked_until_it_clears(void **state)
{
	struct kit *k = *state;
	struct waiter waiters[3];
	k->opts.backlog_limit_bytes = 10;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 11);
	start_waiters(k, waiters, 3, SL_UNLIMITED);
	for (int i = 0; i < 3; i++)
		assert_int_equal(waiters[i].rc, 99);
	kit_complete(k, 0, NULL);
	join_waiters(waiters, 3, 0);
}

static void a_reader_may_wait_for_a_while_only(void **state)
{
	struct kit *k = *state;
	struct waiter waiter;
	k->opts.backlog_limit_bytes = 10;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 11);
	start_waiters(k, &waiter, 1, 250);
	vclock_advance_ms(&k->clock, 250);
	join_waiters(&waiter, 1, SL_ETIMEDOUT);
}

static void an_error_releases_who_waits_for_backpressure(void **state)
{
	struct kit *k = *state;
	struct waiter waiters[3];
	struct sl_err poison = kit_error(SL_CLASS_POISON, "no");
	k->opts.backlog_limit_bytes = 100;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 150);
	kit_enqueue(k, "aaaa2", 11);
	start_waiters(k, waiters, 3, SL_UNLIMITED);
	kit_complete(k, 1, &poison); /* the other is still in flight: the backlog is above the limit */
	join_waiters(waiters, 3, SL_EIO);
	assert_int_equal(kit_stats(k).in_flight_bytes, 150);
	assert_int_equal(sl_writer_join(k->w, 0, NULL), SL_ETIMEDOUT);
}

static void the_descriptors_are_readable_while_what_they_stand_for_is_so(void **state)
{
	struct kit *k = *state;
	k->opts.backlog_limit_bytes = 10;
	kit_start(k);
	assert_true(readable(k, SL_WRITER_CLEAR));
	assert_false(readable(k, SL_WRITER_ENDED));
	kit_enqueue(k, "aaaa1", 11);
	assert_false(readable(k, SL_WRITER_CLEAR));
	kit_complete(k, 0, NULL);
	assert_true(readable(k, SL_WRITER_CLEAR));
	assert_true(readable(k, SL_WRITER_CLEAR)); /* asking takes nothing away */
	kit_enqueue(k, "aaaa1", 11);
	assert_false(readable(k, SL_WRITER_CLEAR));
	assert_int_equal(sl_writer_cancel(k->w, NULL), 0);
	assert_true(readable(k, SL_WRITER_CLEAR));
	assert_false(readable(k, SL_WRITER_ENDED));
	kit_complete(k, 1, NULL);
	assert_true(readable(k, SL_WRITER_ENDED));
	assert_int_equal(sl_writer_fd(k->w, (enum sl_writer_event)2, NULL), SL_EINVAL);
}

/* ---- metrics ---- */

static void assert_metrics(struct kit *k, int i, uint64_t queued, uint64_t in_flight, uint64_t buffered)
{
	assert_true(i < k->n_metrics);
	assert_int_equal(k->metrics[i].queued, queued);
	assert_int_equal(k->metrics[i].in_flight, in_flight);
	assert_int_equal(k->metrics[i].buffered, buffered);
}

static void every_change_of_a_counter_is_reported_in_order(void **state)
{
	struct kit *k = *state;
	k->opts.max_concurrent_writes = 1;
	kit_start(k);
	assert_int_equal(k->n_metrics, 0);
	kit_enqueue(k, "aaaa1", 5);
	assert_metrics(k, 0, 5, 0, 0);
	assert_metrics(k, 1, 0, 5, 0);
	kit_enqueue(k, "aaaa2", 7);
	assert_metrics(k, 2, 7, 5, 0);
	pthread_mutex_lock(&k->mu);
	k->buffered = 3;
	pthread_mutex_unlock(&k->mu);
	kit_complete(k, 0, NULL);
	assert_metrics(k, 3, 7, 0, 3);
	assert_metrics(k, 4, 0, 7, 3);
	struct sl_err bad = kit_error(SL_CLASS_TRANSIENT, "away");
	kit_complete(k, 1, &bad);
	assert_metrics(k, 5, 7, 0, 3); /* queued again */
	pthread_mutex_lock(&k->mu);
	k->buffered = 0;
	pthread_mutex_unlock(&k->mu);
	kit_pass_ms(k, 100);
	assert_metrics(k, 6, 7, 0, 0);
	kit_pass_ms(k, 1900);
	assert_metrics(k, 7, 0, 7, 0);
	kit_complete(k, 2, NULL);
	assert_metrics(k, 8, 0, 0, 0);
	assert_int_equal(k->n_metrics, 9); /* and nothing that was no change */
	assert_int_equal(kit_finish(k), 0);
	assert_int_equal(k->n_metrics, 9);
}

/* The third call completes the first two: both are settled in one go. */
static int complete_two(struct kit *k, int number, struct sl_err *err)
{
	struct sl_err bad = kit_error(SL_CLASS_TRANSIENT, "away");
	(void)err;
	if (number == 3) {
		assert_int_equal(sl_writer_complete(k->writes[0].write, NULL), 0);
		assert_int_equal(sl_writer_complete(k->writes[1].write, &bad), 0);
	}
	return 0;
}

static void a_success_and_a_failure_are_two_changes(void **state)
{
	struct kit *k = *state;
	k->script = complete_two;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 1);
	kit_enqueue(k, "bbbb1", 2);
	kit_enqueue(k, "cccc1", 4);
	assert_metrics(k, 5, 0, 7, 0);
	assert_metrics(k, 6, 0, 6, 0);
	assert_metrics(k, 7, 2, 4, 0);
	assert_int_equal(k->n_metrics, 8);
}

static void physical_bytes_are_counted_on_success_only(void **state)
{
	struct kit *k = *state;
	struct sl_err bad = kit_error(SL_CLASS_TRANSIENT, "away");
	kit_start(k);
	kit_enqueue(k, "aaaa1", 5);
	assert_int_equal(k->n_physical, 0); /* not when it is scheduled */
	kit_complete(k, 0, &bad);
	assert_int_equal(k->n_physical, 0);
	kit_pass_ms(k, 2000);
	kit_complete(k, 1, NULL);
	assert_int_equal(k->n_physical, 1);
	assert_int_equal(k->physical, 5);
}

static char *render(sl_metrics *m);

static void the_registry_has_what_it_does(void **state)
{
	struct kit *k = *state;
	sl_metrics *m;
	assert_int_equal(sl_metrics_new(&m, NULL, NULL), 0);
	k->env.metrics = m;
	k->opts.backlog_limit_bytes = 10;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 11);
	struct sl_err bad = kit_error(SL_CLASS_TRANSIENT, "away");
	kit_complete(k, 0, &bad);
	kit_pass_ms(k, 2000);
	kit_complete(k, 1, NULL);
	kit_enqueue(k, "aaaa2", 20);
	char *text = render(m);
	static const char *const lines[] = {
		"sluice_writer_blocks_written_total{driver=\"kit\"} 1\n",
		"sluice_writer_physical_bytes_total{driver=\"kit\"} 11\n",
		"sluice_writer_failures_total{driver=\"kit\"} 1\n",
		"sluice_writer_retries_total{driver=\"kit\"} 1\n",
		"sluice_writer_in_flight_bytes{driver=\"kit\"} 20\n",
		"sluice_writer_queued_bytes{driver=\"kit\"} 0\n",
		"sluice_writer_driver_buffered_bytes{driver=\"kit\"} 0\n",
		"sluice_writer_target_concurrent_writes{driver=\"kit\"} 8\n",
		"sluice_writer_backpressure{driver=\"kit\"} 1\n",
		"sluice_writer_write_latency_seconds_count{driver=\"kit\"} 1\n",
	};
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		if (strstr(text, lines[i]) == NULL)
			fail_msg("%s is not in\n%s", lines[i], text);
	free(text);
	assert_int_equal(sl_writer_cancel(k->w, NULL), 0);
	assert_int_equal(kit_finish(k), SL_ECANCELLED);
	assert_int_equal(sl_writer_free(k->w), 0);
	k->w = NULL;
	text = render(m); /* nothing of the writer is asked any more */
	assert_non_null(strstr(text, "sluice_writer_backpressure{driver=\"kit\"} 0\n"));
	free(text);
	sl_metrics_free(m);
}

static int append(const char *data, size_t n, void *ctx)
{
	char **text = ctx;
	size_t len = *text != NULL ? strlen(*text) : 0;
	*text = realloc(*text, len + n + 1);
	assert_non_null(*text);
	memcpy(*text + len, data, n);
	(*text)[len + n] = '\0';
	return 0;
}

static char *render(sl_metrics *m)
{
	char *text = NULL;
	assert_int_equal(sl_metrics_render(m, append, &text, NULL), 0);
	assert_non_null(text);
	return text;
}

/* ---- log ---- */

static void write_blocks(struct kit *k, int n)
{
	for (int i = 0; i < n; i++)
		kit_enqueue(k, "aaaa", 2);
}

static void queue_statistics_are_logged_every_512_blocks_and_not_too_often(void **state)
{
	struct kit *k = *state;
	k->at_once = true;
	k->opts.on_metrics = NULL;
	kit_start(k);
	write_blocks(k, 511);
	assert_int_equal(kit_logged(k, "msg=queue"), 0);
	write_blocks(k, 1);
	assert_int_equal(kit_logged(k, "msg=queue written=512 physical_bytes=1024 queued_blocks=0 queued_bytes=0 "
				       "in_flight_bytes=0 driver_buffered_bytes=0 failures=0 concurrency=16 "
				       "max_concurrency=16"),
			 1);
	kit_pass_ms(k, 4999);
	write_blocks(k, 512);
	assert_int_equal(kit_logged(k, "msg=queue"), 1);
	kit_pass_ms(k, 1);
	write_blocks(k, 511);
	assert_int_equal(kit_logged(k, "msg=queue"), 1);
	write_blocks(k, 1);
	assert_int_equal(kit_logged(k, "msg=queue written=1536"), 1);
}

static void the_loop_logs_the_reason_for_each_pass(void **state)
{
	struct kit *k = *state;
	k->opts.loop_debug = SL_ON;
	k->env.log_level = SL_LOG_DEBUG;
	kit_block_shard(k, "bbbb", true);
	kit_start(k);
	assert_int_equal(kit_logged(k, "msg=loop"), 0); /* idle */
	kit_enqueue(k, "bbbb1", 3);
	assert_int_equal(kit_logged(k, "reason=wait-shard-ready queued_blocks=1 queued_bytes=3 in_flight_bytes=0 "
				       "concurrency=16 max_concurrency=16"),
			 1);
	kit_enqueue(k, "aaaa1", 4);
	assert_int_equal(kit_logged(k, "reason=scheduled queued_blocks=1 queued_bytes=3 in_flight_bytes=4"), 1);
	assert_int_equal(kit_logged(k, "reason=drain-inflight queued_blocks=1 queued_bytes=3 in_flight_bytes=4"), 1);
}

static void the_loop_is_silent_unless_asked(void **state)
{
	struct kit *k = *state;
	k->env.log_level = SL_LOG_DEBUG;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 4);
	assert_int_equal(kit_logged(k, "msg=loop"), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, kit_set_up, kit_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(backpressure_starts_above_the_limit_and_clears_at_clear),
		T(the_defaults_are_256_MiB_and_half),
		T(the_backlog_is_queued_and_in_flight_and_driver_buffered),
		T(many_tiny_blocks_are_a_backlog_too),
		T(who_does_not_listen_is_refused_at_twice_the_limit),
		T(a_reader_is_blocked_until_it_clears),
		T(a_reader_may_wait_for_a_while_only),
		T(an_error_releases_who_waits_for_backpressure),
		T(the_descriptors_are_readable_while_what_they_stand_for_is_so),
		T(every_change_of_a_counter_is_reported_in_order),
		T(a_success_and_a_failure_are_two_changes),
		T(physical_bytes_are_counted_on_success_only),
		T(the_registry_has_what_it_does),
		T(queue_statistics_are_logged_every_512_blocks_and_not_too_often),
		T(the_loop_logs_the_reason_for_each_pass),
		T(the_loop_is_silent_unless_asked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
