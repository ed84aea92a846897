/* SPDX-License-Identifier: Apache-2.0 */
/* What the four classes of errors mean; splitting, dead letters, the breaker, the limiter, the rate. */
#include <errno.h>

#include "coordinator/kit.h"
#include "support/fault.h"

#define OPTS(...) ((struct sl_coordinator_opts){__VA_ARGS__})
#define OTHERS 2 /* threads beside the workers that wait on the clock: the keeper, the notifier */

static const struct sl_retry_policy steady = {
	.max_attempts = 3, .first_ms = 100, .cap_ms = 1000, .jitter = SL_JITTER_OFF};

/* The sink's batches of a test whose items must go out together: one item holds the worker first. */
static void submit_together(struct kit *k, uintptr_t n)
{
	kit_hold(k);
	kit_submit(k, 1000, 1000);
	kit_await_in_write(k, 1);
	kit_submit(k, 1, n);
	kit_release_all(k);
}

/* Let time pass until everything has ended. */
static void run_until_ended(struct kit *k)
{
	while (sl_coordinator_flush(k->c, 0) != 0)
		(void)vclock_advance_to_next(&k->clock);
}

/* ---- transient ---- */

static int fail_twice(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		      struct sl_err *err)
{
	(void)k;
	(void)batch;
	(void)reply;
	return number <= 2 ? kit_fail(err, SL_CLASS_TRANSIENT) : 0;
}

static void a_transient_failure_is_tried_again_after_the_policys_delay(void **state)
{
	struct kit *k = *state;
	k->script = fail_twice;
	kit_new(k, OPTS(.workers = 1, .retry.policy = steady));
	kit_submit(k, 1, 3);
	kit_await_writes(k, 1);
	kit_await_calm(k, 1 + OTHERS);
	size_t n = k->writes[0].n;
	assert_int_equal(kit_health(k).retrying, n);
	kit_check_equation(k);
	vclock_advance_ms(&k->clock, 99);
	kit_await_calm(k, 1 + OTHERS);
	assert_int_equal(kit_health(k).retrying, n);
	assert_int_equal(kit_health(k).oldest_age_ms, 99);
	vclock_advance_ms(&k->clock, 1);
	kit_await_writes(k, 2);
	run_until_ended(k);
	assert_int_equal(k->n_written, 3);
	assert_int_equal(k->n_dead, 0);
	struct sl_coordinator_health h = kit_health(k);
	assert_int_equal(h.failures, 2);
	assert_int_equal(h.last_error.error_class, SL_CLASS_TRANSIENT);
	kit_finish(k, 0);
}

static int fail_value_1(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			struct sl_err *err)
{
	(void)number;
	(void)reply;
	for (size_t i = 0; i < batch->n; i++)
		if (kit_value(k, batch->items[i].data) == 1)
			return kit_fail(err, SL_CLASS_TRANSIENT);
	return 0;
}

static void when_the_attempts_are_used_up_only_the_item_that_fails_alone_is_dead(void **state)
{
	struct kit *k = *state;
	k->script = fail_value_1;
	kit_new(k, OPTS(.workers = 1, .retry.policy = steady, .batch_size = 4));
	submit_together(k, 4);
	run_until_ended(k);
	assert_int_equal(k->n_dead, 1);
	assert_int_equal(k->dead[0], 1);
	assert_int_equal(k->dead_attempts[0], 3 + 1 + 3); /* with 2, 3 and 4; with 2; alone */
	assert_int_equal(k->dead_err.code, SL_EUNAVAIL);
	kit_check_equation(k);
	kit_finish(k, 0);
	assert_int_equal(k->n_written, 1 + 3);
}

static void a_failed_batch_keeps_no_worker_from_the_others(void **state)
{
	struct kit *k = *state;
	k->script = fail_value_1;
	kit_new(k, OPTS(.workers = 1, .retry.policy = steady, .batch_size = 1, .flush_interval_ms = SL_NONE));
	kit_submit(k, 1, 10);
	kit_await_written(k, 9); /* and no time has passed */
	assert_int_equal(kit_health(k).retrying, 1);
	run_until_ended(k);
	assert_int_equal(k->n_dead, 1);
	kit_finish(k, 0);
}

static void failed_batches_are_bounded_and_then_nothing_more_is_taken_out(void **state)
{
	struct kit *k = *state;
	k->script = kit_fail_transient;
	kit_new(k, OPTS(.workers = 1, .retry.policy = steady, .batch_size = 2, .retry.batches = 3,
			.breaker.failures = SL_UNLIMITED, .adaptive = SL_OFF));
	kit_submit(k, 1, 20);
	kit_await_writes(k, 3);
	kit_await_calm(k, 1 + OTHERS);
	struct sl_coordinator_health h = kit_health(k);
	assert_int_equal(kit_count_writes(k), 3);
	assert_true(h.retrying <= 6);
	assert_int_equal(h.in_flight, 0);
	assert_int_equal(h.queue_size, 20 - h.retrying);
	kit_set_script(k, NULL);
	run_until_ended(k);
	assert_int_equal(k->n_written, 20);
	kit_finish(k, 0);
}

static void batches_become_due_in_the_order_of_their_times(void **state)
{
	struct kit *k = *state;
	struct sl_retry_policy policy = steady;
	policy.max_attempts = SL_UNLIMITED;
	k->script = kit_fail_transient;
	kit_new(k, OPTS(.workers = 1, .retry.policy = policy, .batch_size = 1, .retry.batches = 8,
			.flush_interval_ms = SL_NONE, .breaker.failures = SL_UNLIMITED, .adaptive = SL_OFF));
	for (uintptr_t i = 1; i <= 5; i++) {
		kit_submit(k, i, i);
		kit_await_writes(k, (int)i);
		kit_await_calm(k, 1 + OTHERS);
		vclock_advance_ms(&k->clock, 7);
	}
	kit_set_script(k, NULL);
	run_until_ended(k);
	for (uintptr_t i = 1; i <= 5; i++)
		assert_int_equal(k->written[i - 1], i);
	kit_finish(k, 0);
}

/* ---- throttled ---- */

static int throttle_first(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			  struct sl_err *err)
{
	(void)k;
	(void)batch;
	(void)reply;
	if (number > 10)
		return 0;
	err->retry_after_ms = 0;
	int rc = kit_fail(err, SL_CLASS_THROTTLED);
	err->retry_after_ms = 700;
	return rc;
}

static void a_throttled_batch_waits_as_long_as_requested_and_is_not_charged(void **state)
{
	struct kit *k = *state;
	k->script = throttle_first;
	kit_new(k, OPTS(.workers = 1, .retry.policy = steady));
	kit_submit(k, 1, 1);
	for (int i = 1; i <= 10; i++) {
		kit_await_writes(k, i);
		kit_await_calm(k, 1 + OTHERS);
		vclock_advance_ms(&k->clock, 699);
		kit_await_calm(k, 1 + OTHERS);
		assert_int_equal(kit_count_writes(k), i);
		vclock_advance_ms(&k->clock, 1);
	}
	kit_await_written(k, 1);
	assert_int_equal(kit_health(k).breaker, SL_BREAKER_CLOSED);
	kit_finish(k, 0);
	assert_int_equal(k->n_dead, 0);
}

/* ---- poison ---- */

/* Items divisible by 10 are poison. mode: how the sink says so. */
enum { SILENT, CULPRIT, OUTCOMES, OUTCOMES_TRANSIENT };

static int poison_tens(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		       struct sl_err *err)
{
	int mode = *(int *)k->script_ctx;
	bool any = false;
	(void)number;
	for (size_t i = 0; i < batch->n; i++) {
		if (kit_value(k, batch->items[i].data) % 10 != 0 || kit_value(k, batch->items[i].data) == 1000)
			continue;
		any = true;
		if (mode == CULPRIT && reply->culprit == SL_SINK_NO_CULPRIT)
			reply->culprit = i;
		if (mode >= OUTCOMES)
			reply->outcomes[i] = SL_SINK_POISON;
	}
	return !any ? 0 : kit_fail(err, mode == OUTCOMES_TRANSIENT ? SL_CLASS_TRANSIENT : SL_CLASS_POISON);
}

static void poison_is_isolated(struct kit *k, int mode, size_t batch_size, uintptr_t n)
{
	k->script = poison_tens;
	k->script_ctx = &mode;
	kit_new(k, OPTS(.workers = 1, .batch_size = (int32_t)batch_size, .retry.policy = steady));
	submit_together(k, n);
	run_until_ended(k);
	assert_int_equal(k->n_dead, n / 10);
	assert_int_equal(k->n_written, 1 + n - n / 10);
	uintptr_t last = 0;
	for (size_t i = 1; i < k->n_written; i++) {
		assert_true(k->written[i] > last); /* in order, in spite of the splits */
		last = k->written[i];
	}
	for (uintptr_t i = 0; i < n / 10; i++)
		assert_int_equal(k->dead[i] % 10, 0);
	assert_int_equal(kit_health(k).breaker, SL_BREAKER_CLOSED);
	kit_check_equation(k);
	kit_finish(k, 0);
}

static void a_poison_item_is_found_by_halving(void **state)
{
	poison_is_isolated(*state, SILENT, 64, 64);
}

static void a_named_culprit_goes_alone_and_the_rest_is_written_in_order(void **state)
{
	struct kit *k = *state;
	poison_is_isolated(k, CULPRIT, 64, 64);
	/* Of [1 … 64]: 64 fail at 10, [1 … 9] are written, [11 … 64] fail at 20, and so on. */
	assert_int_equal(kit_count_writes(k), 1 + 6 + 7);
}

static void items_that_the_sink_answers_for_are_believed(void **state)
{
	struct kit *k = *state;
	poison_is_isolated(k, OUTCOMES, 64, 64);
	assert_int_equal(k->n_writes, 1 + 2); /* what is left is tried again as one */
}

static void items_named_beside_a_transient_failure_are_dead_and_the_rest_is_tried_again(void **state)
{
	struct kit *k = *state;
	poison_is_isolated(k, OUTCOMES_TRANSIENT, 64, 64);
	assert_int_equal(k->n_writes, 1 + 2);
}

static int all_poison(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		      struct sl_err *err)
{
	(void)k;
	(void)number;
	int mode = *(int *)k->script_ctx;
	if (mode == CULPRIT)
		reply->culprit = batch->n > 1 ? batch->n - 2 : 0;
	return kit_fail(err, SL_CLASS_POISON);
}

static void see_all_dead(struct kit *k, int mode)
{
	k->script = all_poison;
	k->script_ctx = &mode;
	kit_new(k, OPTS(.workers = 1, .batch_size = 300));
	kit_submit(k, 1, 300);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_dead, 300);
	kit_finish(k, 0);
}

static void a_batch_of_nothing_but_poison_is_all_dead(void **state)
{
	see_all_dead(*state, SILENT);
}

/* Culprits that leave a piece behind each time would need more segments than there are. */
static void culprits_near_the_end_of_a_large_batch_are_all_found(void **state)
{
	see_all_dead(*state, CULPRIT);
}

static int write_half(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		      struct sl_err *err)
{
	(void)k;
	if (number != 2)
		return 0;
	for (size_t i = 0; i < batch->n; i += 2)
		reply->outcomes[i] = SL_SINK_WRITTEN;
	return kit_fail(err, SL_CLASS_TRANSIENT);
}

static void items_that_are_in_the_target_in_spite_of_a_failure_are_not_written_again(void **state)
{
	struct kit *k = *state;
	k->script = write_half;
	kit_new(k, OPTS(.workers = 1, .batch_size = 10, .retry.policy = steady));
	submit_together(k, 10);
	run_until_ended(k);
	assert_int_equal(kit_count_writes(k), 3);
	assert_int_equal(k->writes[2].n, 5);
	for (uintptr_t i = 0; i < 5; i++)
		assert_int_equal(k->written[1 + i], 2 * i + 2);
	assert_int_equal(kit_health(k).written, 11);
	kit_finish(k, 0);
}

static int written_and_poison(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			      struct sl_err *err)
{
	(void)k;
	if (number != 2)
		return 0;
	for (size_t i = 0; i < batch->n; i++)
		reply->outcomes[i] = i % 2 == 0 ? SL_SINK_WRITTEN : SL_SINK_POISON;
	return kit_fail(err, SL_CLASS_POISON);
}

static void a_batch_that_was_answered_for_in_whole_is_done(void **state)
{
	struct kit *k = *state;
	k->script = written_and_poison;
	kit_new(k, OPTS(.workers = 1, .batch_size = 10));
	submit_together(k, 10);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(kit_count_writes(k), 2);
	assert_int_equal(kit_health(k).written, 6);
	assert_int_equal(k->n_dead, 5);
	kit_finish(k, 0);
}

static int note_ids(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		    struct sl_err *err)
{
	(void)k;
	(void)batch;
	(void)reply;
	if (number == 2 || number == 3)
		return kit_fail(err, SL_CLASS_TRANSIENT);
	return number == 4 ? kit_fail(err, SL_CLASS_POISON) : 0;
}

static void the_id_of_a_batch_stays_over_its_tries_and_changes_with_a_split(void **state)
{
	struct kit *k = *state;
	struct sl_retry_policy policy = steady;
	policy.max_attempts = 9;
	k->script = note_ids;
	kit_new(k, OPTS(.workers = 1, .batch_size = 4, .retry.policy = policy));
	submit_together(k, 4);
	run_until_ended(k);
	assert_int_equal(kit_count_writes(k), 6);
	assert_memory_not_equal(k->writes[0].id, k->writes[1].id, 16);
	for (uint32_t i = 1; i <= 3; i++) {
		assert_memory_equal(k->writes[i].id, k->writes[1].id, 16);
		assert_int_equal(k->writes[i].tries, i - 1);
	}
	assert_memory_not_equal(k->writes[4].id, k->writes[3].id, 16);
	assert_memory_not_equal(k->writes[5].id, k->writes[4].id, 16);
	assert_int_equal(k->writes[4].tries, 0);
	kit_finish(k, 0);
}

/* ---- classifying ---- */

static int fail_without_class(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			      struct sl_err *err)
{
	(void)k;
	(void)batch;
	(void)reply;
	err->code = SL_EINTERNAL;
	(void)snprintf(err->msg, sizeof(err->msg), "%s", number == 1 ? "temporary trouble" : "wrong shape");
	return SL_EINTERNAL;
}

static void an_error_without_a_class_is_classified_by_its_words(void **state)
{
	struct kit *k = *state;
	k->script = fail_without_class;
	kit_new(k, OPTS(.workers = 1, .retry.policy = steady));
	kit_submit(k, 1, 1);
	kit_await_writes(k, 1);
	kit_await_calm(k, 1 + OTHERS);
	assert_int_equal(kit_health(k).retrying, 1);
	run_until_ended(k);
	assert_int_equal(kit_count_writes(k), 2);
	assert_int_equal(k->n_dead, 1);
	kit_finish(k, 0);
}

static enum sl_err_class all_is_poison(const struct sl_err *err, void *ctx)
{
	(void)err;
	(void)ctx;
	return SL_CLASS_POISON;
}

static void the_users_classifier_decides_where_the_sink_did_not(void **state)
{
	struct kit *k = *state;
	k->script = fail_without_class;
	kit_new(k, OPTS(.workers = 1, .retry.classify_retryable = all_is_poison));
	kit_submit(k, 1, 1);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(kit_count_writes(k), 1);
	assert_int_equal(k->n_dead, 1);
	kit_finish(k, 0);
}

static int say_nothing(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		       struct sl_err *err)
{
	(void)k;
	(void)batch;
	(void)reply;
	(void)err;
	return number == 1 ? SL_ETIMEDOUT : 0;
}

static void a_sink_that_only_returns_a_code_is_understood(void **state)
{
	struct kit *k = *state;
	k->script = say_nothing;
	kit_new(k, OPTS(.workers = 1, .retry.policy = steady));
	kit_submit(k, 1, 1);
	run_until_ended(k);
	assert_int_equal(k->n_written, 1);
	assert_int_equal(kit_health(k).last_error.code, SL_ETIMEDOUT);
	kit_finish(k, 0);
}

/* ---- the breaker ---- */

static void an_unavailable_target_opens_the_breaker_charges_nothing_and_is_probed_by_one_batch(void **state)
{
	struct kit *k = *state;
	k->script = kit_fail_fatal;
	kit_new(k, OPTS(.workers = 4, .retry.policy = steady, .batch_size = 2, .flush_interval_ms = SL_NONE));
	kit_submit(k, 1, 1);
	kit_await_writes(k, 1);
	kit_await_calm(k, 4 + OTHERS);
	assert_int_equal(kit_health(k).breaker, SL_BREAKER_OPEN);
	assert_int_equal(kit_count_writes(k), 1); /* the first one was enough */
	kit_submit(k, 2, 100);
	int before = k->n_writes;
	/* 1 s, 2 s, 4 s … up to 30 s: one probe each. */
	static const int64_t pauses[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000};
	for (size_t i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++) {
		kit_await_calm(k, 4 + OTHERS);
		vclock_advance_ms(&k->clock, pauses[i] - 1);
		kit_await_calm(k, 4 + OTHERS);
		assert_int_equal(kit_count_writes(k), before + (int)i);
		kit_check_equation(k);
		vclock_advance_ms(&k->clock, 1);
		kit_await_writes(k, before + (int)i + 1);
	}
	kit_await_calm(k, 4 + OTHERS);
	kit_set_script(k, NULL);
	vclock_advance_ms(&k->clock, 30000);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(kit_health(k).breaker, SL_BREAKER_CLOSED);
	assert_int_equal(kit_health(k).written, 100);
	assert_int_equal(k->n_dead, 0);
	kit_finish(k, 0);
}

static void failures_in_a_row_open_the_breaker_and_those_while_it_is_open_are_not_charged(void **state)
{
	struct kit *k = *state;
	k->script = kit_fail_transient;
	kit_new(k, OPTS(.workers = 1, .retry.policy = steady, .breaker.failures = 2, .breaker.open_ms = 500,
			.breaker.open_max_ms = 500));
	kit_submit(k, 1, 1);
	kit_await_writes(k, 1);
	while (kit_count_writes(k) < 10) /* more often than there are attempts */
		(void)vclock_advance_to_next(&k->clock);
	kit_await_calm(k, 1 + OTHERS);
	assert_int_equal(k->n_dead, 0);
	assert_int_not_equal(kit_health(k).breaker, SL_BREAKER_CLOSED);
	kit_set_script(k, NULL);
	run_until_ended(k);
	assert_int_equal(k->n_written, 1);
	kit_finish(k, 0);
}

static void new_items_wait_while_the_breaker_is_open(void **state)
{
	struct kit *k = *state;
	k->script = kit_fail_transient;
	kit_new(k, OPTS(.workers = 2, .retry.policy = steady, .batch_size = 1, .flush_interval_ms = SL_NONE,
			.breaker.failures = 1));
	kit_submit(k, 1, 1);
	kit_await_writes(k, 1); /* it opened; item 1 waits in the heap for 100 ms */
	kit_await_calm(k, 2 + OTHERS);
	kit_set_script(k, NULL);
	kit_submit(k, 2, 2);
	kit_await_calm(k, 2 + OTHERS);
	assert_int_equal(kit_count_writes(k), 1); /* no worker writes while it is open */
	vclock_advance_ms(&k->clock, 1000);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, 2);
	kit_finish(k, 0);
}

static int fail_attach;

static int attach_or_not(void *sink, void **lane, struct sl_err *err)
{
	(void)sink;
	*lane = sink;
	return fail_attach-- > 0 ? kit_fail(err, SL_CLASS_FATAL) : 0;
}

static void a_lane_that_cannot_be_attached_is_a_failed_write(void **state)
{
	struct kit *k = *state;
	fail_attach = 3;
	k->ops.attach = attach_or_not;
	kit_new(k, OPTS(.workers = 1));
	kit_submit(k, 1, 5);
	run_until_ended(k);
	assert_int_equal(k->n_written, 5);
	assert_int_equal(kit_health(k).failures, 3);
	kit_finish(k, 0);
}

/* ---- the limiter ---- */

static void the_concurrency_is_halved_when_the_target_struggles_and_rises_step_by_step(void **state)
{
	struct kit *k = *state;
	k->script = fail_value_1;
	kit_new(k, OPTS(.workers = 4, .retry.policy = steady, .batch_size = 1, .flush_interval_ms = SL_NONE,
			.breaker.failures = SL_UNLIMITED));
	kit_submit(k, 1, 1);
	kit_await_writes(k, 1);
	kit_await_calm(k, 4 + OTHERS);
	assert_int_equal(kit_health(k).concurrency, 2);
	kit_set_script(k, NULL);
	kit_hold(k);
	kit_submit(k, 2, 10);
	kit_await_in_write(k, 2);
	kit_await_calm(k, 2 + OTHERS); /* the other two wait, although there is work */
	assert_int_equal(k->in_write, 2);
	vclock_advance_ms(&k->clock, 5000);
	kit_await_in_write(k, 3);
	kit_await_calm(k, 1 + OTHERS);
	vclock_advance_ms(&k->clock, 5000);
	kit_await_in_write(k, 4);
	kit_release_all(k);
	kit_finish(k, 0);
	assert_int_equal(k->max_in_write, 4);
}

/* ---- the rate ---- */

/* When each write was, and how large. One at a time: the kit's clock moves only when all wait. */
struct timed_write {
	int64_t at_ns;
	size_t n;
};
static struct timed_write timed[KIT_WRITES];
static atomic_int n_timed;

static int note_time(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		     struct sl_err *err)
{
	(void)number, (void)reply, (void)err;
	size_t size = 0;
	for (size_t i = 0; i < batch->n; i++)
		size += k->bytes ? batch->items[i].len : 1;
	int64_t now_ns = k->clock.now_ns;
	timed[atomic_fetch_add(&n_timed, 1)] = (struct timed_write){now_ns, size};
	return 0;
}

/* No second has more than limit, and it takes about as long as the rate says. */
static void see_rate(struct kit *k, size_t limit, size_t total, double outage)
{
	int64_t begin_ns = k->clock.now_ns;
	while (sl_coordinator_flush(k->c, 0) != 0) {
		(void)vclock_advance_to_next(&k->clock);
		kit_settle(k);
	}
	for (int i = 0; i < n_timed; i++) {
		size_t sum = 0;
		for (int j = i; j < n_timed && timed[j].at_ns < timed[i].at_ns + 1000000000; j++)
			sum += timed[j].n;
		assert_true(sum <= limit);
	}
	double seconds = (double)(k->clock.now_ns - begin_ns) / 1e9;
	assert_true(seconds <= 1.1 * (double)total / (double)limit + 0.2 + outage);
	kit_finish(k, 0);
}

static void the_rate_is_a_bound_in_every_second(void **state)
{
	static const int rates[] = {1, 7, 23, 100, 101, 1999};
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		struct kit *k = *state;
		n_timed = 0;
		k->script = note_time;
		kit_new(k, OPTS(.workers = 2, .scaling.workers_max = 2, .batch_size = 500, .rate.items = rates[i],
				.capacity = 10000, .flush_interval_ms = SL_NONE));
		kit_submit(k, 1, 4 * (uintptr_t)rates[i]);
		see_rate(k, (size_t)rates[i], 4 * (size_t)rates[i], 0);
		(void)kit_tear_down(state);
		(void)kit_set_up(state);
	}
}

/* Small batches cost what they hold. */
static void the_rate_is_reached_with_small_batches(void **state)
{
	struct kit *k = *state;
	n_timed = 0;
	k->script = note_time;
	kit_new(k, OPTS(.workers = 2, .scaling.workers_max = 2, .batch_size = 3, .rate.items = 1000, .capacity = 10000,
			.flush_interval_ms = SL_NONE));
	kit_submit(k, 1, 2000);
	see_rate(k, 1000, 2000, 0);
}

static int64_t away_until_ns;

static int note_time_and_be_away(struct kit *k, int number, const struct sl_sink_batch *batch,
				 struct sl_sink_reply *reply, struct sl_err *err)
{
	(void)note_time(k, number, batch, reply, err);
	return timed[n_timed - 1].at_ns < away_until_ns ? kit_fail(err, SL_CLASS_FATAL) : 0;
}

/* Those that wait for the breaker do not go all together when it closes. */
static void the_rate_is_a_bound_after_an_outage_too(void **state)
{
	struct kit *k = *state;
	n_timed = 0;
	away_until_ns = k->clock.now_ns + 3000000000;
	k->script = note_time_and_be_away;
	kit_new(k, OPTS(.workers = 8, .scaling.workers_max = 8, .batch_size = 20, .rate.items = 100, .capacity = 10000,
			.flush_interval_ms = SL_NONE));
	kit_submit(k, 1, 1000);
	see_rate(k, 100, 1000, 10);
}

static void the_rate_in_bytes_is_one_too(void **state)
{
	struct kit *k = *state;
	n_timed = 0;
	k->bytes = true;
	k->script = note_time;
	kit_new(k, OPTS(.workers = 2, .scaling.workers_max = 2, .batch_size = 500, .rate.bytes = 800,
			.flush_interval_ms = SL_NONE));
	kit_submit(k, 1, 400);
	see_rate(k, 800, 3200, 0);
}

static void tokens_are_reduced_and_restored(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1, .rate.items = 1600, .rate.reduce_factor = 0.25));
	assert_int_equal((int)kit_health(k).rate_items, 1600);
	assert_int_equal(sl_coordinator_reduce_tokens(k->c), 0);
	assert_int_equal((int)kit_health(k).rate_items, 400);
	assert_int_equal(sl_coordinator_reduce_tokens(k->c), 0);
	assert_int_equal(sl_coordinator_reduce_tokens(k->c), 0);
	assert_int_equal((int)kit_health(k).rate_items, 100); /* a sixteenth, not below */
	assert_int_equal(sl_coordinator_restore_tokens(k->c), 0);
	assert_int_equal((int)kit_health(k).rate_items, 1600);
	kit_finish(k, 0);
}

static void without_a_rate_there_is_nothing_to_reduce(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1));
	assert_int_equal(sl_coordinator_reduce_tokens(k->c), SL_EINVAL);
	assert_int_equal(sl_coordinator_restore_tokens(k->c), SL_EINVAL);
	kit_finish(k, 0);
}

static void the_marks_can_drive_the_rate(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1, .capacity = 10, .rate.items = 1000, .rate.by_watermark = SL_ON, .batch_size = 1,
			.flush_interval_ms = SL_NONE));
	kit_hold(k);
	kit_submit(k, 1, 9);
	kit_await_marks(k, 1);
	assert_int_equal((int)kit_health(k).rate_items, 500);
	kit_release_all(k);
	run_until_ended(k);
	kit_await_marks(k, 2);
	assert_int_equal((int)kit_health(k).rate_items, 1000);
	kit_finish(k, 0);
}

static void a_worker_that_waits_for_the_rate_is_let_go_by_stop(void **state)
{
	struct kit *k = *state;
	struct sl_coordinator_report r = {.struct_size = sizeof(r)};
	kit_new(k, OPTS(.workers = 1, .batch_size = 10, .rate.items = 1, .flush_interval_ms = SL_NONE));
	kit_submit(k, 1, 20);
	kit_await_calm(k, 1 + OTHERS);
	assert_int_equal(sl_coordinator_stop(k->c, 0, &r, NULL), SL_EPENDING);
	assert_int_equal(r.written + r.returned, 20);
	assert_int_equal(r.unknown, 0);
	assert_int_equal(sl_coordinator_free(k->c), 0);
	k->c = NULL;
}

/* ---- dead letters ---- */

static int encode_number(const void *item, size_t len, const void **out, size_t *out_len, void *ctx)
{
	static _Thread_local char text[24];
	(void)len;
	(void)ctx;
	*out_len = (size_t)snprintf(text, sizeof(text), "%ju", (uintmax_t)(uintptr_t)item);
	*out = text;
	return 0;
}

static int check_dead_letter(const struct sl_dlq_letter *letter, void *ctx)
{
	int *n = ctx;
	assert_string_equal(letter->source, "bars");
	assert_string_equal(letter->target, "kit:target");
	assert_string_equal(letter->error, "the test makes this fail");
	assert_int_equal(letter->error_class, SL_CLASS_POISON);
	assert_int_equal(letter->code, SL_EUNAVAIL);
	assert_int_equal(letter->position, 77);
	assert_int_equal(letter->attempts, 1);
	assert_int_equal(letter->first_failed_ms, 1700000000000);
	assert_int_equal(letter->item_len, 2);
	assert_memory_equal(letter->item, "42", 2);
	++*n;
	return 0;
}

static void a_dead_letter_has_the_item_the_error_the_attempts_and_the_times(void **state)
{
	struct kit *k = *state;
	char dir[] = "/tmp/sluice-test-XXXXXX";
	sl_dlq *q;
	int n = 0, mode = SILENT;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(sl_dlq_open(&q, dir, NULL, NULL), 0);
	k->script = all_poison;
	k->script_ctx = &mode;
	kit_new(k, OPTS(.workers = 1, .name = "bars", .unwritten.dead_letters = q, .items.encode = encode_number));
	struct sl_item item = {.data = ITEM(42), .position = 77, .done = kit_done, .done_ctx = k};
	assert_int_equal(sl_coordinator_submit_many(k->c, &item, 1, 0, NULL), 0);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->ends[SL_ITEM_DEAD], 1);
	assert_int_equal(k->n_dead, 1); /* and on_dead was called, too */
	assert_int_equal(sl_dlq_list(q, true, check_dead_letter, &n, NULL), 0);
	assert_int_equal(n, 1);
	kit_finish(k, 0);
	sl_dlq_close(q);
	char command[64];
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	assert_int_equal(system(command), 0);
}

static int count_letters(const struct sl_dlq_letter *letter, void *ctx)
{
	(void)letter;
	++*(int *)ctx;
	return 0;
}

static void while_the_dead_letters_have_no_space_the_item_waits_and_nothing_is_lost(void **state)
{
	struct kit *k = *state;
	char dir[] = "/tmp/sluice-test-XXXXXX";
	struct fault f;
	sl_dlq *q;
	int n = 0, mode = SILENT;
	assert_non_null(mkdtemp(dir));
	fault_init(&f, NULL);
	struct sl_env disk = fault_env(&f, NULL);
	struct sl_dlq_opts opts = {SL_DLQ_OPTS_INIT, .env = &disk};
	assert_int_equal(sl_dlq_open(&q, dir, &opts, NULL), 0);
	k->script = poison_tens;
	k->script_ctx = &mode;
	kit_new(k, OPTS(.workers = 1, .batch_size = 5, .unwritten.dead_letters = q, .items.encode = encode_number,
			.retry.policy = steady));
	fault_arm_io(&f, 1, FAULT_FROM, ENOSPC, FAULT_OP(FAULT_PWRITE));
	kit_submit(k, 8, 12);
	while (fault_io_failed(&f) < 10) { /* more often than there are attempts */
		(void)vclock_advance_to_next(&k->clock);
		kit_check_equation(k);
	}
	assert_int_equal(kit_health(k).dead_letters, 0);
	assert_int_equal(kit_health(k).last_error.code, SL_ENOSPC);
	kit_check_equation(k);
	fault_disarm(&f);
	run_until_ended(k);
	assert_int_equal(kit_health(k).dead_letters, 1);
	assert_int_equal(k->n_written, 4);
	assert_int_equal(sl_dlq_list(q, true, count_letters, &n, NULL), 0);
	assert_int_equal(n, 1);
	kit_finish(k, 0);
	sl_dlq_close(q);
	fault_fini(&f);
	char command[64];
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	assert_int_equal(system(command), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, kit_set_up, kit_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_transient_failure_is_tried_again_after_the_policys_delay),
		TEST(when_the_attempts_are_used_up_only_the_item_that_fails_alone_is_dead),
		TEST(a_failed_batch_keeps_no_worker_from_the_others),
		TEST(failed_batches_are_bounded_and_then_nothing_more_is_taken_out),
		TEST(batches_become_due_in_the_order_of_their_times),
		TEST(a_throttled_batch_waits_as_long_as_requested_and_is_not_charged),
		TEST(a_poison_item_is_found_by_halving),
		TEST(a_named_culprit_goes_alone_and_the_rest_is_written_in_order),
		TEST(items_that_the_sink_answers_for_are_believed),
		TEST(items_named_beside_a_transient_failure_are_dead_and_the_rest_is_tried_again),
		TEST(a_batch_of_nothing_but_poison_is_all_dead),
		TEST(culprits_near_the_end_of_a_large_batch_are_all_found),
		TEST(items_that_are_in_the_target_in_spite_of_a_failure_are_not_written_again),
		TEST(a_batch_that_was_answered_for_in_whole_is_done),
		TEST(the_id_of_a_batch_stays_over_its_tries_and_changes_with_a_split),
		TEST(an_error_without_a_class_is_classified_by_its_words),
		TEST(the_users_classifier_decides_where_the_sink_did_not),
		TEST(a_sink_that_only_returns_a_code_is_understood),
		TEST(an_unavailable_target_opens_the_breaker_charges_nothing_and_is_probed_by_one_batch),
		TEST(failures_in_a_row_open_the_breaker_and_those_while_it_is_open_are_not_charged),
		TEST(new_items_wait_while_the_breaker_is_open),
		TEST(a_lane_that_cannot_be_attached_is_a_failed_write),
		TEST(the_concurrency_is_halved_when_the_target_struggles_and_rises_step_by_step),
		TEST(the_rate_is_a_bound_in_every_second),
		TEST(the_rate_is_reached_with_small_batches),
		TEST(the_rate_is_a_bound_after_an_outage_too),
		TEST(the_rate_in_bytes_is_one_too),
		TEST(tokens_are_reduced_and_restored),
		TEST(without_a_rate_there_is_nothing_to_reduce),
		TEST(the_marks_can_drive_the_rate),
		TEST(a_worker_that_waits_for_the_rate_is_let_go_by_stop),
		TEST(a_dead_letter_has_the_item_the_error_the_attempts_and_the_times),
		TEST(while_the_dead_letters_have_no_space_the_item_waits_and_nothing_is_lost),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
