/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sink/contract_kit.h"
#include "support/budget.h"
#include "support/fault.h"

/* ---- order, whole batches ---- */

static void everything_is_written_in_order(void **state)
{
	const struct sink_fixture *f = *state;
	struct sink_delivery d = {.secret = f->secret};
	struct sink_run r;
	sl_sink sink = open_sink(f, NULL);
	void *lane = sink_attach(&sink);
	sink_run_make(&r, f, 1, 1000);
	for (size_t at = 0; at < r.n; at += 100)
		assert_int_equal(sink_deliver(&sink, lane, r.items + at, 100, &d), 0);
	assert_int_equal(d.writes, 10);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	sink_expect(f, 1, r.n, NULL, true, true);
	sink_run_fini(&r);
	sink_delivery_fini(&d);
}

static void batches_of_one_and_of_thousands_are_written(void **state)
{
	static const size_t sizes[] = {1, 5000, 1, 1777, 2};
	const struct sink_fixture *f = *state;
	struct sink_delivery d = {.secret = f->secret};
	struct sink_run r;
	sl_sink sink = open_sink(f, NULL);
	void *lane = sink_attach(&sink);
	sink_run_make(&r, f, 1, 1 + 5000 + 1 + 1777 + 2);
	for (size_t i = 0, at = 0; i < sizeof(sizes) / sizeof(sizes[0]); at += sizes[i++])
		assert_int_equal(sink_deliver(&sink, lane, r.items + at, sizes[i], &d), 0);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	sink_expect(f, 1, r.n, NULL, true, true);
	sink_run_fini(&r);
	sink_delivery_fini(&d);
}

static void what_was_written_is_there_before_the_sink_is_closed(void **state)
{
	const struct sink_fixture *f = *state;
	struct sink_delivery d = {.secret = f->secret};
	struct sink_run r;
	sl_sink sink = open_sink(f, NULL);
	void *lane = sink_attach(&sink);
	sink_run_make(&r, f, 1, 3);
	assert_int_equal(sink_deliver(&sink, lane, r.items, 3, &d), 0);
	sink_expect(f, 1, 3, NULL, true, true);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	sink_run_fini(&r);
	sink_delivery_fini(&d);
}

static void a_target_that_was_written_before_is_written_behind(void **state)
{
	const struct sink_fixture *f = *state;
	struct sink_delivery d = {.secret = f->secret};
	struct sink_run r;
	sink_run_make(&r, f, 1, 60);
	for (size_t i = 0; i < 3; i++) {
		sl_sink sink = open_sink(f, NULL);
		void *lane = sink_attach(&sink);
		assert_int_equal(sink_deliver(&sink, lane, r.items + i * 20, 20, &d), 0);
		sink_detach(&sink, lane);
		sl_sink_close(&sink);
	}
	sink_expect(f, 1, 60, NULL, true, true);
	sink_run_fini(&r);
	sink_delivery_fini(&d);
}

static void a_lane_can_be_attached_again_after_detach(void **state)
{
	const struct sink_fixture *f = *state;
	struct sink_delivery d = {.secret = f->secret};
	struct sink_run r;
	sl_sink sink = open_sink(f, NULL);
	sink_run_make(&r, f, 1, 50);
	for (size_t i = 0; i < 50; i += 10) {
		void *lane = sink_attach(&sink), *idle = sink_attach(&sink);
		assert_int_equal(sink_deliver(&sink, lane, r.items + i, 10, &d), 0);
		sink_detach(&sink, lane);
		sink_detach(&sink, idle);
	}
	sl_sink_close(&sink);
	sink_expect(f, 1, 50, NULL, true, true);
	sink_run_fini(&r);
	sink_delivery_fini(&d);
}

/* ---- poison ---- */

static void deliver_with_poison(const struct sink_fixture *f, size_t n, const size_t *bad, size_t n_bad)
{
	struct sink_delivery d = {.secret = f->secret};
	struct sink_ids expected = {0};
	struct sink_run r;
	sl_sink sink = open_sink(f, NULL);
	void *lane = sink_attach(&sink);
	sink_run_make(&r, f, 1, n);
	for (size_t i = 0; i < n_bad; i++) {
		sink_run_poison(&r, f, bad[i]);
		sink_ids_add(&expected, bad[i] + 1);
	}
	assert_int_equal(sink_deliver(&sink, lane, r.items, n, &d), 0);
	assert_int_equal(d.dead.n, n_bad);
	for (size_t i = 0; i < n_bad; i++)
		assert_true(sink_ids_have(&d.dead, expected.at[i]));
	assert_int_equal(d.dead_as.error_class, SL_CLASS_POISON);
	assert_int_not_equal(d.dead_as.msg[0], '\0');
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	sink_expect(f, 1, n, &expected, true, true);
	sink_ids_fini(&expected);
	sink_run_fini(&r);
	sink_delivery_fini(&d);
}

static void a_poison_item_alone_is_refused(void **state)
{
	const struct sink_fixture *f = *state;
	const size_t bad[] = {17};
	deliver_with_poison(f, 50, bad, 1);
}

static void a_batch_of_one_poison_item_is_refused(void **state)
{
	const struct sink_fixture *f = *state;
	const size_t bad[] = {0};
	deliver_with_poison(f, 1, bad, 1);
}

static void poison_first_last_and_side_by_side_is_found(void **state)
{
	const struct sink_fixture *f = *state;
	const size_t bad[] = {0, 30, 31, 49};
	deliver_with_poison(f, 50, bad, 4);
}

static void a_batch_of_poison_alone_leaves_nothing(void **state)
{
	const struct sink_fixture *f = *state;
	const size_t bad[] = {0, 1, 2, 3, 4};
	deliver_with_poison(f, 5, bad, 5);
}

/* ---- away ---- */

static void an_unavailable_target_is_fatal_and_takes_everything_when_it_is_back(void **state)
{
	const struct sink_fixture *f = *state;
	struct sink_delivery d = {.secret = f->secret};
	struct sink_run r;
	sl_sink sink = open_sink(f, NULL);
	void *lane = sink_attach(&sink);
	sink_run_make(&r, f, 1, 90);
	assert_int_equal(sink_deliver(&sink, lane, r.items, 30, &d), 0);
	f->break_target(f->ctx);
	for (int i = 0; i < 3; i++) {
		assert_int_not_equal(sink_deliver(&sink, lane, r.items + 30, 30, &d), 0);
		assert_int_equal(d.err.error_class, SL_CLASS_FATAL);
		assert_int_not_equal(d.err.msg[0], '\0');
	}
	f->mend_target(f->ctx);
	assert_int_equal(sink_deliver(&sink, lane, r.items + 30, 30, &d), 0);
	assert_int_equal(sink_deliver(&sink, lane, r.items + 60, 30, &d), 0);
	assert_int_equal(d.dead.n, 0);
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	sink_expect(f, 1, 90, NULL, !f->may_repeat, !f->may_repeat);
	sink_run_fini(&r);
	sink_delivery_fini(&d);
}

/* ---- cancel ---- */

struct stuck {
	const sl_sink *sink;
	void *lane;
	struct sink_run run;
	int rc;
	struct sl_err err;
};

static void *write_and_hang(void *arg)
{
	struct stuck *s = arg;
	struct sl_sink_reply reply;
	uint8_t outcomes[8];
	s->rc = sink_write(s->sink, s->lane, s->run.items, 3, &reply, outcomes, &s->err);
	return NULL;
}

static void cancel_makes_a_write_that_hangs_return(void **state)
{
	const struct sink_fixture *f = *state;
	struct stuck s = {.err = SL_ERR_INIT};
	pthread_t thread;
	sl_sink sink = open_sink(f, NULL);
	s.sink = &sink;
	s.lane = sink_attach(&sink);
	sink_run_make(&s.run, f, 1, 3);
	f->hang(f->ctx);
	assert_int_equal(pthread_create(&thread, NULL, write_and_hang, &s), 0);
	if (f->await_hang != NULL)
		f->await_hang(f->ctx);
	assert_non_null(sink.ops->cancel);
	sink.ops->cancel(sink.ctx);
	assert_int_equal(pthread_join(thread, NULL), 0); /* the suite's timeout says when it does not */
	assert_int_not_equal(s.rc, 0);
	assert_int_not_equal(s.err.msg[0], '\0');
	/* Later ones return as well. */
	(void)write_and_hang(&s);
	assert_int_not_equal(s.rc, 0);
	f->let_go(f->ctx);
	sink_detach(&sink, s.lane);
	sl_sink_close(&sink);
	sink_run_fini(&s.run);
}

/* ---- memory ---- */

/* Open, attach and write with memory that fails; then, with the same sink where there is one, without failures. */
static int deliver_starved(const struct sink_fixture *f, struct fault *fault, const struct sink_run *r, int64_t nth)
{
	struct sink_delivery d = {.secret = f->secret};
	struct sl_env env = fault_env(fault, NULL);
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink = {0};
	void *lane = NULL;
	bool attached = false;
	fault_arm_mem(fault, nth, FAULT_ONCE);
	int rc = f->open(&sink, &env, &err, f->ctx);
	if (rc == 0) {
		rc = try_attach(&sink, &lane, &err);
		attached = rc == 0;
	}
	if (rc == 0)
		rc = sink_deliver(&sink, lane, r->items, r->n, &d);
	else
		assert_int_not_equal(err.msg[0], '\0');
	assert_int_equal(d.dead.n, 0); /* lack of memory is no item's fault */
	fault_disarm(fault);
	int failed = fault_mem_failed(fault) != 0;
	if (rc != 0) {
		assert_true(failed);
		if (sink.ops == NULL)
			assert_int_equal(f->open(&sink, &env, &err, f->ctx), 0);
		if (!attached)
			lane = sink_attach(&sink);
		attached = true;
		assert_int_equal(sink_deliver(&sink, lane, r->items, r->n, &d), 0);
	}
	sink_detach(&sink, lane);
	sl_sink_close(&sink);
	sink_delivery_fini(&d);
	return failed;
}

static void an_allocation_that_fails_loses_nothing(void **state)
{
	const struct sink_fixture *f = *state;
	struct fault fault;
	size_t round = 0;
	int failed;
	fault_init(&fault, NULL);
	do {
		struct sink_run r;
		sink_run_make(&r, f, 1 + round * 20, 20);
		failed = deliver_starved(f, &fault, &r, (int64_t)++round);
		assert_int_equal(fault_live_allocs(&fault), 0);
		assert_true(fault_open_fds(&fault) == 0);
		sink_run_fini(&r);
	} while (failed);
	print_message("# %zu allocations failed one by one\n", round - 1);
	fault_fini(&fault);
	sink_expect(f, 1, round * 20, NULL, !f->may_repeat, !f->may_repeat);
}

/* ---- what people see ---- */

static void the_target_is_named_without_secrets(void **state)
{
	const struct sink_fixture *f = *state;
	sl_sink sink = open_sink(f, NULL);
	assert_non_null(sl_sink_target(&sink));
	assert_int_not_equal(sl_sink_target(&sink)[0], '\0');
	assert_non_null(sink.ops->name);
	if (f->secret != NULL)
		assert_null(strstr(sl_sink_target(&sink), f->secret));
	sl_sink_close(&sink);
	assert_null(sink.ops);
	sl_sink_close(&sink); /* zeroed */
	sl_sink_close(NULL);
}

/* ---- lanes at once ---- */

struct lanes {
	const struct sink_fixture *f;
	const sl_sink *sink;
	_Atomic uint64_t next; /* the first id that no lane has */
	_Atomic uint64_t dead, writes;
	double until;
};

#define LANE_BATCH 40

static void *write_on_a_lane(void *arg)
{
	struct lanes *l = arg;
	void *lane = sink_attach(l->sink);
	do {
		struct sink_delivery d = {.secret = l->f->secret};
		struct sink_run r;
		uint64_t first = atomic_fetch_add(&l->next, LANE_BATCH);
		sink_run_make(&r, l->f, first, LANE_BATCH);
		if (l->f->poison_item != NULL)
			sink_run_poison(&r, l->f, (size_t)(first / LANE_BATCH) % LANE_BATCH);
		assert_int_equal(sink_deliver(l->sink, lane, r.items, r.n, &d), 0);
		atomic_fetch_add(&l->dead, d.dead.n);
		atomic_fetch_add(&l->writes, d.writes);
		sink_run_fini(&r);
		sink_delivery_fini(&d);
	} while (seconds_now() < l->until);
	sink_detach(l->sink, lane);
	return NULL;
}

static void many_lanes_write_at_once(void **state)
{
	const struct sink_fixture *f = *state;
	struct lanes l = {.f = f, .next = 1, .until = seconds_now() + test_seconds(1)};
	pthread_t threads[64];
	int n = f->max_lanes != 0 ? f->max_lanes : 8;
	sl_sink sink = open_sink(f, NULL);
	l.sink = &sink;
	for (int i = 0; i < n; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, write_on_a_lane, &l), 0);
	for (int i = 0; i < n; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	sl_sink_close(&sink);
	uint64_t batches = (l.next - 1) / LANE_BATCH;
	print_message("# %d lanes: %llu items in %llu writes, %llu refused\n", n, (unsigned long long)(l.next - 1),
		      (unsigned long long)l.writes, (unsigned long long)l.dead);
	assert_int_equal(l.dead, f->poison_item != NULL ? batches : 0);
	struct sink_ids dead = {0};
	for (uint64_t b = 0; f->poison_item != NULL && b < batches; b++) {
		uint64_t first = 1 + b * LANE_BATCH;
		sink_ids_add(&dead, first + (first / LANE_BATCH) % LANE_BATCH);
	}
	sink_expect(f, 1, (size_t)(l.next - 1), &dead, false, !f->may_repeat);
	sink_ids_fini(&dead);
}

/* ---- the suite ---- */

static int set_up(void **state)
{
	const struct sink_fixture *f = *state;
	return f->set_up != NULL ? f->set_up(f->ctx) : 0;
}

static int tear_down(void **state)
{
	const struct sink_fixture *f = *state;
	if (f->tear_down != NULL)
		f->tear_down(f->ctx);
	return 0;
}

static bool is_way(const char *ways[], const char *name)
{
	for (; ways != NULL && *ways != NULL; ways++)
		if (strcmp(*ways, name) == 0)
			return true;
	return false;
}

enum sink_contract_part sink_contract_part(int argc, char **argv, const char *ways[])
{
	int i = 1;
	enum sink_contract_part part = SINK_CONTRACT_PLAIN;
	if (i < argc && strcmp(argv[i], "threads") == 0) {
		part = SINK_CONTRACT_THREADS;
		i++;
	}
	if (i < argc && is_way(ways, argv[i]))
		i++;
	if (i == argc)
		return part;
	print_message("Bail out! no part or way %s\n", argv[i]);
	exit(64);
}

int sink_contract_run(const struct sink_fixture *f, enum sink_contract_part part)
{
	struct CMUnitTest all[32];
	size_t n = 0;
#define ADD(applies, test)                                                                                             \
	do {                                                                                                           \
		if (applies)                                                                                           \
			all[n++] = (struct CMUnitTest){#test, test, set_up, tear_down, fixture_state(f)};              \
	} while (0)
	if (part == SINK_CONTRACT_THREADS) {
		ADD(1, many_lanes_write_at_once);
		ADD(f->hang != NULL, cancel_makes_a_write_that_hangs_return);
	} else {
		ADD(1, everything_is_written_in_order);
		ADD(1, batches_of_one_and_of_thousands_are_written);
		ADD(1, what_was_written_is_there_before_the_sink_is_closed);
		ADD(1, a_target_that_was_written_before_is_written_behind);
		ADD(1, a_lane_can_be_attached_again_after_detach);
		ADD(f->poison_item != NULL, a_poison_item_alone_is_refused);
		ADD(f->poison_item != NULL, a_batch_of_one_poison_item_is_refused);
		ADD(f->poison_item != NULL, poison_first_last_and_side_by_side_is_found);
		ADD(f->poison_item != NULL, a_batch_of_poison_alone_leaves_nothing);
		ADD(f->break_target != NULL, an_unavailable_target_is_fatal_and_takes_everything_when_it_is_back);
		ADD(f->hang != NULL, cancel_makes_a_write_that_hangs_return);
		ADD(1, an_allocation_that_fails_loses_nothing);
		ADD(1, the_target_is_named_without_secrets);
	}
#undef ADD
	return _cmocka_run_group_tests(f->name, all, n, NULL, NULL);
}
