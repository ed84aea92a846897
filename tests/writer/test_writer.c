/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The specification's "Inputs and dependencies", "Queue model", "Scheduling behavior" and "Output guarantees", line by
 * line; test_writer_failures.c and test_writer_pressure.c hold the rest.
 *
 *   enqueue(hash, bytes)                          bytes_are_copied, bytes_are_handed_over_without_a_copy
 *   isShardReady(shardKey)                        a_shard_that_is_not_ready_is_skipped
 *   waitForAnyShardReady()                        the_driver_waits_when_nothing_queued_is_ready
 *   scheduleWrite(hash, bytes)                    a_write_may_complete_inside_the_call_or_from_any_thread
 *   shard key hash[0..4) when available           the_shard_key_is_the_beginning_of_the_hash
 *   per-shard buckets, rotating shard keys        blocks_of_a_shard_go_in_order_and_the_shards_take_turns
 *   runs until done, queue and in-flight empty    the_loop_ends_when_done_and_nothing_is_queued_or_in_flight
 *   queue empty, writes in flight: drain          the_loop_ends_when_done_and_nothing_is_queued_or_in_flight
 *   schedule while inFlight < target              no_more_than_target_writes_are_in_flight
 *   nothing scheduled, in flight: drain one       no_more_than_target_writes_are_in_flight
 *   nothing scheduled: wait, short polling        a_missed_ready_signal_costs_100_ms
 *   attempted at least once, until success        every_enqueued_block_is_written
 *   FIFO within a shard bucket                    blocks_of_a_shard_go_in_order_and_the_shards_take_turns
 */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/fault.h"
#include "writer/kit.h"

static void assert_order(struct kit *k, int first, const char *expected)
{
	char *order = kit_order(k, first);
	assert_string_equal(order, expected);
	free(order);
}

/* ---- the queue ---- */

static void every_enqueued_block_is_written(void **state)
{
	struct kit *k = *state;
	k->at_once = true;
	kit_start(k);
	for (int i = 0; i < 500; i++) {
		char hash[16];
		(void)snprintf(hash, sizeof(hash), "%04x%04x", i * 7919 % 97, i);
		kit_enqueue(k, hash, 10);
	}
	assert_int_equal(kit_finish(k), 0);
	assert_int_equal(k->n_written, 500);
	assert_int_equal(k->n_writes, 500);
	assert_int_equal(k->physical, 5000);
	struct sl_writer_stats s = kit_stats(k);
	assert_int_equal(s.enqueued, 500);
	assert_int_equal(s.written, 500);
	assert_int_equal(s.physical_bytes, 5000);
}

static void blocks_of_a_shard_go_in_order_and_the_shards_take_turns(void **state)
{
	struct kit *k = *state;
	k->at_once = true;
	kit_new(k);
	const char *hashes[] = {"aaaa1", "aaaa2", "aaaa3", "bbbb1", "bbbb2", "cccc1"};
	for (size_t i = 0; i < 6; i++)
		kit_enqueue(k, hashes[i], 1);
	assert_int_equal(sl_writer_signal_done(k->w), 0);
	assert_int_equal(sl_writer_run(k->w, NULL), 0);
	assert_order(k, 0, "aaaa1 bbbb1 cccc1 aaaa2 bbbb2 aaaa3");
}

static void the_shard_key_is_the_beginning_of_the_hash(void **state)
{
	struct kit *k = *state;
	k->at_once = true;
	kit_start(k);
	kit_enqueue(k, "0123456789abcdef", 1);
	kit_enqueue(k, "0123", 1);
	kit_enqueue(k, "01", 1);
	assert_int_equal(k->n_asked, 3);
	assert_string_equal(k->asked[0], "0123");
	assert_string_equal(k->asked[1], "0123");
	assert_string_equal(k->asked[2], "01");
}

static void the_shard_key_of_a_binary_hash_is_its_first_four_digits(void **state)
{
	struct kit *k = *state;
	k->at_once = true;
	k->opts.hash_form = SL_WRITER_HASH_BINARY;
	kit_start(k);
	kit_enqueue(k, "\xA3\x0F\xFF\xFF", 1);
	kit_enqueue(k, "\x5C", 1);
	assert_int_equal(k->n_asked, 2);
	assert_string_equal(k->asked[0], "a30f");
	assert_string_equal(k->asked[1], "5c");
}

static void a_hash_without_bytes_or_too_long_is_refused(void **state)
{
	struct kit *k = *state;
	struct sl_err err = SL_ERR_INIT;
	char hash[256];
	memset(hash, 'a', sizeof(hash));
	kit_new(k);
	assert_int_equal(sl_writer_enqueue(k->w, hash, 0, "x", 1, &err), SL_EINVAL);
	assert_int_equal(sl_writer_enqueue(k->w, hash, 256, "x", 1, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "hash_len is 256"));
	assert_int_equal(sl_writer_enqueue(k->w, hash, 255, "x", 1, &err), 0);
}

/* ---- scheduling ---- */

static void no_more_than_target_writes_are_in_flight(void **state)
{
	struct kit *k = *state;
	char hash[16];
	kit_start(k);
	for (int i = 0; i < 20; i++) {
		(void)snprintf(hash, sizeof(hash), "%04x", i);
		kit_enqueue(k, hash, 1);
	}
	assert_int_equal(k->n_writes, 16);
	assert_int_equal(kit_stats(k).in_flight_blocks, 16);
	kit_complete(k, 3, NULL);
	assert_int_equal(k->n_writes, 17);
	kit_complete(k, 0, NULL);
	kit_complete(k, 16, NULL);
	assert_int_equal(k->n_writes, 19);
	assert_int_equal(kit_finish(k), 0);
	assert_int_equal(k->n_written, 20);
}

static void the_loop_ends_when_done_and_nothing_is_queued_or_in_flight(void **state)
{
	struct kit *k = *state;
	struct sl_err err = SL_ERR_INIT;
	k->opts.max_concurrent_writes = 1;
	kit_start(k);
	assert_int_equal(sl_writer_join(k->w, 0, &err), SL_ETIMEDOUT); /* empty, but not done */
	kit_enqueue(k, "aaaa1", 1);
	kit_enqueue(k, "aaaa2", 1);
	assert_int_equal(sl_writer_signal_done(k->w), 0);
	assert_int_equal(sl_writer_signal_done(k->w), 0);
	kit_quiet(k);
	assert_int_equal(sl_writer_join(k->w, 0, &err), SL_ETIMEDOUT); /* one queued, one in flight */
	kit_complete(k, 0, NULL);
	assert_int_equal(sl_writer_join(k->w, 0, &err), SL_ETIMEDOUT); /* the queue is empty, one in flight */
	assert_int_equal(sl_writer_enqueue(k->w, "aaaa3", 5, "x", 1, &err), SL_ECLOSED);
	kit_complete(k, 1, NULL);
	assert_int_equal(sl_writer_join(k->w, SL_UNLIMITED, &err), 0);
	assert_int_equal(k->n_written, 2);
}

static void a_shard_that_is_not_ready_is_skipped(void **state)
{
	struct kit *k = *state;
	k->at_once = true;
	kit_block_shard(k, "aaaa", true);
	kit_start(k);
	kit_enqueue(k, "aaaa1", 1);
	kit_enqueue(k, "aaaa2", 1);
	int asked = k->n_asked;
	for (int i = 0; i < 50; i++)
		kit_enqueue(k, i % 2 ? "bbbb" : "cccc", 1);
	assert_int_equal(k->n_written, 50);
	for (int i = asked; i < k->n_asked; i++) /* and costs the others nothing, not even a question */
		assert_string_not_equal(k->asked[i], "aaaa");
	kit_block_shard(k, "aaaa", false);
	assert_int_equal(sl_writer_shard_ready(k->w, "aaaa", 4), 0);
	kit_quiet(k);
	assert_order(k, 50, "aaaa1 aaaa2");
}

static void a_missed_ready_signal_costs_100_ms(void **state)
{
	struct kit *k = *state;
	kit_block_shard(k, "aaaa", true);
	kit_start(k);
	kit_enqueue(k, "aaaa1", 1);
	kit_block_shard(k, "aaaa", false);
	kit_pass_ms(k, 99);
	assert_int_equal(k->n_writes, 0);
	kit_pass_ms(k, 1);
	assert_int_equal(k->n_writes, 1);
	/* also while others are in flight */
	kit_block_shard(k, "bbbb", true);
	kit_enqueue(k, "bbbb1", 1);
	kit_block_shard(k, "bbbb", false);
	kit_pass_ms(k, 100);
	assert_int_equal(k->n_writes, 2);
}

/* Every write moves the clock, and brings the next block: the loop never comes to sleep. */
static int keep_busy(struct kit *k, int number, struct sl_err *err)
{
	(void)err;
	assert_int_equal(sl_writer_complete(k->writes[number - 1].write, NULL), 0);
	vclock_advance_ms(&k->clock, 30);
	if (number == 2)
		kit_block_shard(k, "aaaa", false);
	if (number < 20)
		assert_int_equal(sl_writer_enqueue(k->w, "bbbb", 4, "x", 1, NULL), 0);
	return 0;
}

static void a_busy_loop_asks_again_too(void **state)
{
	struct kit *k = *state;
	kit_block_shard(k, "aaaa", true);
	kit_start(k);
	kit_enqueue(k, "aaaa1", 1);
	k->script = keep_busy;
	kit_enqueue(k, "bbbb", 1);
	int at = kit_find(k, "aaaa1", 1);
	assert_in_range(at, 2, 10);
}

static bool wait_for_any(void *driver, int64_t timeout_ms)
{
	struct kit *k = driver;
	pthread_mutex_lock(&k->mu);
	assert_true(k->driver_waits < 64);
	k->driver_wait_ms[k->driver_waits++] = timeout_ms;
	bool ready = k->driver_waits >= 3;
	pthread_mutex_unlock(&k->mu);
	if (ready)
		kit_block_shard(k, "aaaa", false); /* and its word counts at once */
	else
		vclock_advance_ms(&k->clock, timeout_ms);
	return ready;
}

static void the_driver_waits_when_nothing_queued_is_ready(void **state)
{
	struct kit *k = *state;
	k->ops.wait_for_any_shard_ready = wait_for_any;
	k->at_once = true;
	kit_block_shard(k, "aaaa", true);
	kit_new(k);
	kit_enqueue(k, "aaaa1", 1);
	assert_int_equal(sl_writer_signal_done(k->w), 0);
	assert_int_equal(sl_writer_run(k->w, NULL), 0);
	assert_int_equal(k->driver_waits, 3);
	for (int i = 0; i < 3; i++)
		assert_in_range(k->driver_wait_ms[i], 1, 100);
	assert_int_equal(k->n_written, 1);
}

static void the_driver_does_not_wait_while_writes_are_in_flight(void **state)
{
	struct kit *k = *state;
	k->ops.wait_for_any_shard_ready = wait_for_any;
	kit_block_shard(k, "aaaa", true);
	kit_new(k);
	kit_enqueue(k, "bbbb1", 1);
	kit_enqueue(k, "aaaa1", 1);
	assert_int_equal(sl_writer_start(k->w, NULL), 0);
	kit_quiet(k);
	assert_int_equal(k->driver_waits, 0);
	assert_int_equal(k->n_writes, 1);
}

static void an_idle_writer_sleeps_for_ever(void **state)
{
	struct kit *k = *state;
	kit_start(k);
	assert_int_equal(vclock_advance_to_next(&k->clock), 0);
	kit_enqueue(k, "aaaa1", 1);
	kit_complete(k, 0, NULL);
	assert_int_equal(vclock_advance_to_next(&k->clock), 0);
}

/* ---- completions ---- */

static void *complete_first(void *arg)
{
	struct kit *k = arg;
	assert_int_equal(sl_writer_complete(k->writes[0].write, NULL), 0);
	return NULL;
}

static void a_write_may_complete_inside_the_call_or_from_any_thread(void **state)
{
	struct kit *k = *state;
	pthread_t thread;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 7);
	assert_int_equal(pthread_create(&thread, NULL, complete_first, k), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	kit_quiet(k);
	assert_int_equal(k->n_written, 1);
	k->at_once = true;
	kit_enqueue(k, "aaaa2", 7);
	assert_int_equal(k->n_written, 2);
	assert_int_equal(k->physical, 14);
}

static void a_second_completion_is_refused(void **state)
{
	struct kit *k = *state;
	struct sl_err bad = kit_error(SL_CLASS_TRANSIENT, "late");
	k->opts.max_concurrent_writes = 1;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 7);
	struct sl_write write = k->writes[0].write, never = write;
	kit_complete(k, 0, NULL);
	assert_int_equal(sl_writer_complete(write, &bad), SL_EDUPLICATE);
	kit_enqueue(k, "aaaa2", 7); /* in the same slot */
	assert_int_equal(sl_writer_complete(write, NULL), SL_EDUPLICATE);
	kit_quiet(k);
	assert_int_equal(k->n_written, 1);
	assert_int_equal(kit_stats(k).in_flight_blocks, 1);
	never.id += UINT64_C(1000) << 16;
	assert_int_equal(sl_writer_complete(never, NULL), SL_EINVAL);
	never.id = 0;
	assert_int_equal(sl_writer_complete(never, NULL), SL_EINVAL);
	never.id = write.id | 0xFFFF;
	assert_int_equal(sl_writer_complete(never, NULL), SL_EINVAL);
	assert_int_equal(kit_stats(k).failures, 0);
}

static int refuse_first(struct kit *k, int number, struct sl_err *err)
{
	if (number == 1)
		return sl_err_set(err, SL_EAGAIN, "not now");
	if (number == 2) { /* completed, and an error all the same */
		assert_int_equal(sl_writer_complete(k->writes[1].write, NULL), 0);
		return SL_EIO;
	}
	return 0;
}

static void a_write_that_the_driver_refuses_is_a_failed_attempt(void **state)
{
	struct kit *k = *state;
	k->script = refuse_first;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 7);
	assert_int_equal(kit_stats(k).failures, 1);
	assert_int_equal(kit_stats(k).in_flight_blocks, 0);
	assert_int_equal(sl_writer_complete(k->writes[0].write, NULL), SL_EDUPLICATE);
	kit_pass_ms(k, 2000);
	assert_int_equal(k->n_writes, 2);
	assert_int_equal(k->writes[1].attempt, 2);
	assert_int_equal(k->n_written, 1); /* the completion came first and stands */
	assert_int_equal(kit_stats(k).failures, 1);
}

/* ---- memory ---- */

static void bytes_are_copied(void **state)
{
	struct kit *k = *state;
	char hash[] = "aaaa1", bytes[] = "block";
	kit_new(k);
	assert_int_equal(sl_writer_enqueue(k->w, hash, 5, bytes, 5, NULL), 0);
	memset(hash, 'x', 5);
	memset(bytes, 'x', 5);
	assert_int_equal(sl_writer_start(k->w, NULL), 0);
	kit_quiet(k);
	assert_string_equal(k->writes[0].hash, "aaaa1");
	assert_memory_equal(k->writes[0].bytes, "block", 5);
}

static void on_release(const struct sl_writer_block *block)
{
	struct kit *k = block->ctx;
	pthread_mutex_lock(&k->mu);
	assert_int_equal(k->n_written + k->n_unwritten, ++k->released); /* after its result was reported */
	pthread_mutex_unlock(&k->mu);
}

static void bytes_are_handed_over_without_a_copy(void **state)
{
	struct kit *k = *state;
	static const char bytes[] = "block";
	const struct sl_writer_block block = {
		.hash = "aaaa1", .hash_len = 5, .bytes = bytes, .len = 5, .release = on_release, .ctx = k};
	kit_start(k);
	assert_int_equal(sl_writer_enqueue_block(k->w, &block, NULL), 0);
	kit_quiet(k);
	assert_ptr_equal(k->writes[0].bytes, bytes);
	assert_int_equal(k->released, 0);
	kit_complete(k, 0, NULL);
	assert_int_equal(k->released, 1);
	/* also when it is not written, and not when it was refused */
	assert_int_equal(sl_writer_enqueue_block(k->w, &block, NULL), 0);
	assert_int_equal(sl_writer_cancel(k->w, NULL), 0);
	assert_int_equal(sl_writer_enqueue_block(k->w, &block, NULL), SL_ECANCELLED);
	kit_quiet(k);
	struct sl_err bad = kit_error(SL_CLASS_TRANSIENT, "away");
	if (k->n_writes == 2)
		kit_complete(k, 1, &bad);
	assert_int_equal(sl_writer_join(k->w, SL_UNLIMITED, NULL), SL_ECANCELLED);
	assert_int_equal(k->released, 2);
	assert_int_equal(k->n_unwritten, 1);
}

/* ---- the handle ---- */

static int wait_in_callback(struct kit *k, int number, struct sl_err *err)
{
	(void)number, (void)err;
	k->driver_waits = sl_writer_join(k->w, SL_UNLIMITED, NULL);
	struct sl_writer_stats s = kit_stats(k);
	assert_int_equal(s.backpressure, 1);
	k->n_limits = sl_writer_wait_for_backpressure_clear(k->w, SL_UNLIMITED, NULL) == SL_EINVAL;
	return 0;
}

static void a_callback_that_waits_for_its_own_thread_gets_an_error(void **state)
{
	struct kit *k = *state;
	k->script = wait_in_callback;
	k->opts.backlog_limit_bytes = 1;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 7);
	assert_int_equal(k->driver_waits, SL_EINVAL);
	assert_int_equal(k->n_limits, 1);
}

static bool no_threads;
int __real_sl__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg);
int __wrap_sl__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg);

int __wrap_sl__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg)
{
	return no_threads ? -EAGAIN : __real_sl__thread_start(out, name, fn, arg);
}

static void without_a_thread_it_can_be_started_again(void **state)
{
	struct kit *k = *state;
	struct sl_err err = SL_ERR_INIT;
	k->at_once = true;
	kit_new(k);
	kit_enqueue(k, "aaaa1", 7);
	no_threads = true;
	assert_int_equal(sl_writer_start(k->w, &err), SL_EAGAIN);
	no_threads = false;
	assert_int_equal(sl_writer_start(k->w, &err), 0);
	assert_int_equal(kit_finish(k), 0);
	assert_int_equal(k->n_written, 1);
}

static void it_runs_once(void **state)
{
	struct kit *k = *state;
	struct sl_err err = SL_ERR_INIT;
	kit_new(k);
	assert_int_equal(sl_writer_join(k->w, SL_UNLIMITED, &err), SL_EINVAL);
	assert_int_equal(sl_writer_start(k->w, &err), 0);
	assert_int_equal(sl_writer_start(k->w, &err), SL_EINVAL);
	assert_int_equal(sl_writer_run(k->w, &err), SL_EINVAL);
	assert_int_equal(sl_writer_free(k->w), SL_EPENDING);
}

static void a_writer_that_never_ran_reports_its_blocks_when_it_is_freed(void **state)
{
	struct kit *k = *state;
	kit_new(k);
	kit_enqueue(k, "aaaa1", 7);
	kit_enqueue(k, "bbbb1", 7);
	assert_int_equal(sl_writer_free(k->w), 0);
	k->w = NULL;
	assert_int_equal(k->n_unwritten, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(k->unwritten[i].reason.code, SL_ECANCELLED);
		assert_non_null(strstr(k->unwritten[i].reason.msg, "freed before it was run"));
		assert_int_equal(k->unwritten[i].attempts, 0);
	}
	assert_string_not_equal(k->unwritten[0].hash, k->unwritten[1].hash);
}

static void a_wrong_option_is_named(void **state)
{
	struct kit *k = *state;
	const struct {
		struct sl_writer_opts opts;
		const char *name;
	} rows[] = {
		{{SL_WRITER_OPTS_INIT, .max_concurrent_writes = -1}, "max_concurrent_writes"},
		{{SL_WRITER_OPTS_INIT, .max_concurrent_writes = 4097}, "max_concurrent_writes"},
		{{SL_WRITER_OPTS_INIT, .backlog_limit_bytes = 10, .backlog_clear_bytes = 11}, "backlog_clear_bytes"},
		{{SL_WRITER_OPTS_INIT, .backlog_limit_blocks = -5}, "backlog_limit_blocks"},
		{{SL_WRITER_OPTS_INIT, .max_retry_attempts = -7}, "max_retry_attempts"},
		{{SL_WRITER_OPTS_INIT, .retry_policy.multiplier = 0.5}, "multiplier"},
		{{SL_WRITER_OPTS_INIT, .window_ms = -1}, "window_ms"},
		{{SL_WRITER_OPTS_INIT, .name = ""}, "name"},
		{{.max_concurrent_writes = 1}, "struct_size"},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct sl_err err = SL_ERR_INIT;
		assert_int_equal(sl_writer_new(&k->w, &k->ops, k, &rows[i].opts, &err), SL_EINVAL);
		assert_non_null(strstr(err.msg, rows[i].name));
		assert_null(k->w);
	}
	struct sl_writer_driver_ops ops = k->ops;
	ops.version = 9;
	assert_int_equal(sl_writer_new(&k->w, &ops, k, NULL, NULL), SL_EINVAL);
	ops = (struct sl_writer_driver_ops){.version = SL_WRITER_DRIVER_VERSION, .name = "x"};
	assert_int_equal(sl_writer_new(&k->w, &ops, k, NULL, NULL), SL_EINVAL);
}

static int use_in_child(struct kit *k)
{
	struct sl_writer_stats s = {.struct_size = sizeof(s)};
	return sl_writer_enqueue(k->w, "a", 1, "x", 1, NULL) == SL_EFORKED &&
	       sl_writer_complete(k->writes[0].write, NULL) == SL_EFORKED &&
	       sl_writer_wait_for_backpressure_clear(k->w, 0, NULL) == SL_EFORKED &&
	       sl_writer_signal_done(k->w) == SL_EFORKED && sl_writer_cancel(k->w, NULL) == SL_EFORKED &&
	       sl_writer_join(k->w, 0, NULL) == SL_EFORKED && sl_writer_error(k->w, NULL) == SL_EFORKED &&
	       sl_writer_shard_ready(k->w, NULL, 0) == SL_EFORKED && sl_writer_get_stats(k->w, &s) == SL_EFORKED &&
	       sl_writer_fd(k->w, SL_WRITER_CLEAR, NULL) == SL_EFORKED && sl_writer_run(k->w, NULL) == SL_EFORKED &&
	       sl_writer_free(k->w) == SL_EFORKED;
}

static void a_forked_child_is_refused_and_the_parent_keeps_working(void **state)
{
	struct kit *k = *state;
	int status;
	kit_start(k);
	kit_enqueue(k, "aaaa1", 1);
	pid_t child = fork();
	if (child == 0)
		_exit(use_in_child(k) ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(kit_finish(k), 0);
	assert_int_equal(k->n_written, 1);
}

/* Fail the Nth allocation of: new, some blocks, a retry, the end. What enqueue accepted is written; the rest is the
 * caller's. */
static int run_with_faults(struct kit *k, struct fault *f)
{
	struct sl_env env = fault_env(f, &k->env);
	struct sl_err err = SL_ERR_INIT;
	int accepted = 0;
	k->opts.env = &env;
	k->opts.ctx = k;
	k->n_written = k->n_writes = 0;
	int rc = sl_writer_new(&k->w, &k->ops, k, &k->opts, &err);
	if (rc != 0) {
		assert_int_equal(rc, SL_ENOMEM);
		assert_null(k->w);
		return 0;
	}
	for (int i = 0; i < 200; i++) {
		char hash[16];
		(void)snprintf(hash, sizeof(hash), "%04x", i);
		rc = sl_writer_enqueue(k->w, hash, 4, hash, 4, &err);
		assert_true(rc == 0 || rc == SL_ENOMEM);
		accepted += rc == 0;
	}
	assert_int_equal(sl_writer_signal_done(k->w), 0);
	assert_int_equal(sl_writer_run(k->w, &err), 0);
	assert_int_equal(k->n_written, accepted);
	assert_int_equal(sl_writer_free(k->w), 0);
	k->w = NULL;
	return accepted;
}

static void every_allocation_may_fail(void **state)
{
	struct kit *k = *state;
	struct fault f;
	int64_t n = 1;
	k->at_once = true;
	k->ops.driver_buffered_bytes = NULL;
	k->opts.on_metrics = NULL;
	fault_init(&f, NULL);
	for (;; n++) {
		fault_arm_mem(&f, n, FAULT_ONCE);
		int accepted = run_with_faults(k, &f);
		bool failed = fault_mem_failed(&f) > 0;
		fault_disarm(&f);
		assert_int_equal(fault_live_allocs(&f), 0);
		if (!failed) {
			assert_int_equal(accepted, 200);
			break;
		}
	}
	print_message("# %d allocations failed in turn\n", (int)n - 1);
	assert_true(n > 200);
	fault_fini(&f);
}

static void what_was_written_leaves_no_memory_behind(void **state)
{
	struct kit *k = *state;
	struct fault f;
	k->at_once = true;
	k->opts.on_metrics = NULL;
	fault_init(&f, NULL);
	k->env = fault_env(&f, &k->env);
	kit_start(k);
	int64_t before = fault_live_allocs(&f);
	for (int i = 0; i < 1000; i++) {
		char hash[16];
		(void)snprintf(hash, sizeof(hash), "%04x", i);
		kit_enqueue(k, hash, 10);
	}
	assert_int_equal(k->n_written, 1000);
	assert_int_equal(fault_live_allocs(&f), before);
	assert_int_equal(kit_finish(k), 0);
	assert_int_equal(sl_writer_free(k->w), 0);
	k->w = NULL;
	assert_int_equal(fault_live_allocs(&f), 0);
	fault_fini(&f);
}

#define T(name) cmocka_unit_test_setup_teardown(name, kit_set_up, kit_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_enqueued_block_is_written),
		T(blocks_of_a_shard_go_in_order_and_the_shards_take_turns),
		T(the_shard_key_is_the_beginning_of_the_hash),
		T(the_shard_key_of_a_binary_hash_is_its_first_four_digits),
		T(a_hash_without_bytes_or_too_long_is_refused),
		T(no_more_than_target_writes_are_in_flight),
		T(the_loop_ends_when_done_and_nothing_is_queued_or_in_flight),
		T(a_shard_that_is_not_ready_is_skipped),
		T(a_missed_ready_signal_costs_100_ms),
		T(a_busy_loop_asks_again_too),
		T(the_driver_waits_when_nothing_queued_is_ready),
		T(the_driver_does_not_wait_while_writes_are_in_flight),
		T(an_idle_writer_sleeps_for_ever),
		T(a_write_may_complete_inside_the_call_or_from_any_thread),
		T(a_second_completion_is_refused),
		T(a_write_that_the_driver_refuses_is_a_failed_attempt),
		T(bytes_are_copied),
		T(bytes_are_handed_over_without_a_copy),
		T(a_callback_that_waits_for_its_own_thread_gets_an_error),
		T(without_a_thread_it_can_be_started_again),
		T(it_runs_once),
		T(a_writer_that_never_ran_reports_its_blocks_when_it_is_freed),
		T(a_wrong_option_is_named),
		T(a_forked_child_is_refused_and_the_parent_keeps_working),
		T(every_allocation_may_fail),
		T(what_was_written_leaves_no_memory_behind),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
