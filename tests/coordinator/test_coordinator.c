/* SPDX-License-Identifier: Apache-2.0 */
/* Submitting items, writing them, stopping. Failures are in test_coordinator_failures.c. */
#include <sys/wait.h>
#include <unistd.h>

#include "coordinator/kit.h"
#include "support/fault.h"
#include <sluice/metrics.h>

#define OPTS(...) ((struct sl_coordinator_opts){__VA_ARGS__})
#define OTHERS 2 /* threads beside the workers that wait on the clock: the keeper, the notifier */

/* ---- writing ---- */

static void what_is_submitted_is_written(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1, .batch_size = 10));
	kit_submit(k, 1, 100);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, 100);
	for (uintptr_t i = 0; i < 100; i++)
		assert_int_equal(k->written[i], i + 1);
	struct sl_coordinator_health h = kit_health(k);
	assert_int_equal(h.accepted, 100);
	assert_int_equal(h.written, 100);
	assert_int_equal(h.workers_alive, 1);
	kit_finish(k, 0);
	assert_int_equal(k->attached, 1);
	assert_int_equal(k->detached, 1);
	assert_int_equal(k->cancelled, 0);
}

static void bytes_are_copied_and_written(void **state)
{
	struct kit *k = *state;
	k->bytes = true;
	kit_new(k, OPTS(.workers = 3, .batch_size = 7));
	kit_submit(k, 1, 1000);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	uint64_t sum = 0;
	for (size_t i = 0; i < k->n_written; i++)
		sum += k->written[i];
	assert_int_equal(k->n_written, 1000);
	assert_int_equal(sum, 1000 * 1001 / 2);
	kit_finish(k, 0);
}

static int expect_extras(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			 struct sl_err *err)
{
	(void)number;
	(void)reply;
	(void)err;
	for (size_t i = 0; i < batch->n; i++) {
		const struct sl_sink_item *item = &batch->items[i];
		uintptr_t v = kit_value(k, item->data);
		bool extras = v % 2 == 0;
		assert_int_equal(item->position, extras ? v * 10 : 0);
		assert_int_equal(item->key_len, extras ? 3 : 0);
		assert_true(extras ? memcmp(item->key, "abc", 3) == 0 : item->key == NULL);
	}
	return 0;
}

static void keys_and_positions_reach_the_sink_and_stick_to_their_item(void **state)
{
	struct kit *k = *state;
	size_t accepted;
	char key[4] = "abc";
	k->script = expect_extras;
	kit_new(k, OPTS(.workers = 1, .batch_size = 4));
	for (int round = 0; round < 3; round++) {
		struct sl_item items[8];
		for (uintptr_t i = 0; i < 8; i++)
			items[i] = (struct sl_item){.data = ITEM(i + 1)};
		for (uintptr_t i = 1; i < 8; i += 2) {
			items[i].key = key;
			items[i].key_len = 3;
			items[i].position = (i + 1) * 10;
		}
		assert_int_equal(sl_coordinator_submit_many(k->c, items, 8, SL_UNLIMITED, &accepted), 0);
		assert_int_equal(accepted, 8);
		assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
		kit_submit(k, 1, 1); /* without, where one with extras was */
		kit_submit(k, 3, 3);
		assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	}
	assert_int_equal(k->n_written, 30);
	kit_finish(k, 0);
}

static void an_idle_worker_writes_at_once(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 2, .batch_size = 100, .flush_interval_ms = 60000));
	kit_await_calm(k, 2 + OTHERS);
	kit_submit(k, 1, 1);
	kit_await_written(k, 1); /* no time has passed */
	kit_finish(k, 0);
}

static void under_load_a_batch_closes_by_size_or_by_age(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 2, .batch_size = 4, .flush_interval_ms = 50));
	kit_hold_first(k);
	kit_await_calm(k, 1 + OTHERS);
	kit_submit(k, 2, 4);
	/* Three of four: the other worker waits for the fourth, or for 50 ms. */
	vclock_advance_ms(&k->clock, 49);
	kit_await_calm(k, 1 + OTHERS);
	assert_int_equal(kit_count_writes(k), 1);
	vclock_advance_ms(&k->clock, 1);
	kit_await_in_write(k, 2);
	kit_release(k, 1);
	kit_await_calm(k, 1 + OTHERS);
	kit_submit(k, 5, 8); /* a full batch does not wait */
	kit_await_writes(k, 3);
	kit_release_all(k);
	kit_finish(k, 0);
	assert_int_equal(k->writes[1].n, 3);
	assert_int_equal(k->writes[2].n, 4);
}

static void a_flush_does_not_wait_for_batches_to_grow(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 2, .batch_size = 100, .flush_interval_ms = 60000));
	kit_hold_first(k);
	kit_await_calm(k, 1 + OTHERS);
	kit_submit(k, 2, 3);
	kit_release_all(k);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, 3);
	kit_finish(k, 0);
}

struct flush_call {
	struct kit *k;
	int64_t timeout_ms;
	int rc;
	pthread_t thread;
};

static void *flush_main(void *arg)
{
	struct flush_call *f = arg;
	f->rc = sl_coordinator_flush(f->k->c, f->timeout_ms);
	return NULL;
}

static void start_flush(struct flush_call *f, struct kit *k, int64_t timeout_ms)
{
	*f = (struct flush_call){.k = k, .timeout_ms = timeout_ms, .rc = 99};
	assert_int_equal(pthread_create(&f->thread, NULL, flush_main, f), 0);
}

static void a_flush_waits_for_what_came_before_it_and_no_more(void **state)
{
	struct kit *k = *state;
	struct flush_call f;
	kit_new(k, OPTS(.workers = 2, .batch_size = 1, .flush_interval_ms = SL_NONE));
	kit_hold(k);
	kit_submit(k, 1, 2);
	kit_await_in_write(k, 2);
	start_flush(&f, k, SL_UNLIMITED);
	kit_await_calm(k, 1 + OTHERS);
	kit_submit(k, 3, 3); /* after it: it must not wait for this one, which stays in the sink */
	kit_release(k, 2);
	pthread_join(f.thread, NULL);
	assert_int_equal(f.rc, 0);
	assert_int_equal(kit_health(k).written, 2);
	kit_release_all(k);
	kit_finish(k, 0);
}

static void a_flush_gives_up_at_its_deadline(void **state)
{
	struct kit *k = *state;
	struct flush_call f;
	kit_new(k, OPTS(.workers = 1));
	assert_int_equal(sl_coordinator_flush(k->c, 0), 0); /* nothing to wait for */
	kit_hold_first(k);
	assert_int_equal(sl_coordinator_flush(k->c, 0), SL_ETIMEDOUT);
	start_flush(&f, k, 10);
	kit_await_calm(k, 1 + OTHERS);
	vclock_advance_ms(&k->clock, 10);
	pthread_join(f.thread, NULL);
	assert_int_equal(f.rc, SL_ETIMEDOUT);
	kit_release_all(k);
	kit_finish(k, 0);
}

static void a_batch_is_limited_in_bytes_and_a_larger_item_is_written_alone(void **state)
{
	struct kit *k = *state;
	struct sl_item items[6];
	size_t accepted;
	static const size_t lens[] = {30, 30, 60, 250, 40, 50};
	kit_new(k, OPTS(.workers = 1, .batch_bytes = 100));
	kit_hold(k);
	kit_submit(k, 100, 100); /* so that the others go out of the queue together */
	kit_await_in_write(k, 1);
	for (uintptr_t i = 0; i < 6; i++)
		items[i] = (struct sl_item){.data = ITEM(i + 1), .len = lens[i]};
	assert_int_equal(sl_coordinator_submit_many(k->c, items, 6, SL_UNLIMITED, &accepted), 0);
	kit_release_all(k);
	kit_finish(k, 0);
	assert_int_equal(kit_count_writes(k), 5);
	assert_int_equal(k->writes[1].n, 2);
	assert_int_equal(k->writes[2].n, 1);
	assert_int_equal(k->writes[3].n, 1);
	assert_int_equal(k->writes[4].n, 2);
	for (uintptr_t i = 1; i <= 6; i++)
		assert_int_equal(k->written[i], i);
}

/* ---- intake ---- */

/* One worker holds one item in the sink, and the queue is full of capacity items. */
static void fill(struct kit *k, uintptr_t capacity)
{
	kit_hold_first(k);
	kit_submit(k, 2, capacity + 1);
}

static void a_full_queue_refuses_who_does_not_wait(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1, .capacity = 3));
	fill(k, 3);
	assert_int_equal(sl_coordinator_submit(k->c, ITEM(9), 0, 0), SL_EFULL);
	struct sl_item item = {.data = ITEM(9)};
	assert_int_equal(sl_coordinator_submit_many(k->c, &item, 1, 0, NULL), SL_EFULL);
	kit_release_all(k);
	kit_finish(k, 0);
	assert_int_equal(k->n_written, 4);
}

struct submit_call {
	struct kit *k;
	int64_t timeout_ms;
	size_t n, accepted;
	int rc;
	pthread_t thread;
};

static void *submit_main(void *arg)
{
	struct submit_call *s = arg;
	struct sl_item items[200];
	for (uintptr_t i = 0; i < s->n; i++)
		items[i] = (struct sl_item){.data = ITEM(1000 + i)};
	s->rc = s->n == 1 ? sl_coordinator_submit(s->k->c, items[0].data, 0, s->timeout_ms)
			  : sl_coordinator_submit_many(s->k->c, items, s->n, s->timeout_ms, &s->accepted);
	return NULL;
}

static void start_submit(struct submit_call *s, struct kit *k, size_t n, int64_t timeout_ms)
{
	*s = (struct submit_call){.k = k, .n = n, .timeout_ms = timeout_ms, .rc = 99};
	assert_int_equal(pthread_create(&s->thread, NULL, submit_main, s), 0);
}

static void a_full_queue_makes_submitters_wait_until_there_is_room(void **state)
{
	struct kit *k = *state;
	struct submit_call s;
	kit_new(k, OPTS(.workers = 1, .capacity = 3));
	fill(k, 3);
	start_submit(&s, k, 1, SL_UNLIMITED);
	kit_await_calm(k, 1 + OTHERS);
	kit_release_all(k);
	pthread_join(s.thread, NULL);
	assert_int_equal(s.rc, 0);
	kit_finish(k, 0);
	assert_int_equal(k->n_written, 5);
}

static void a_timed_submit_gives_up_and_keeps_its_item(void **state)
{
	struct kit *k = *state;
	struct submit_call s;
	kit_new(k, OPTS(.workers = 1, .capacity = 3));
	fill(k, 3);
	start_submit(&s, k, 1, 20);
	kit_await_calm(k, 1 + OTHERS);
	vclock_advance_ms(&k->clock, 20);
	pthread_join(s.thread, NULL);
	assert_int_equal(s.rc, SL_ETIMEDOUT);
	kit_release_all(k);
	kit_finish(k, 0);
	assert_int_equal(k->n_written, 4);
}

static void many_items_are_submitted_in_parts_and_the_accepted_number_is_returned(void **state)
{
	struct kit *k = *state;
	struct submit_call s;
	kit_new(k, OPTS(.workers = 1, .capacity = 100));
	kit_hold_first(k);
	start_submit(&s, k, 200, 30);
	kit_await_calm(k, 1 + OTHERS);
	vclock_advance_ms(&k->clock, 30);
	pthread_join(s.thread, NULL);
	assert_int_equal(s.rc, SL_ETIMEDOUT);
	assert_int_equal(s.accepted, 100);
	kit_release_all(k);
	kit_finish(k, 0);
	assert_int_equal(k->n_written, 101);
	assert_int_equal(k->written[100], 1099);
}

static void the_oldest_item_is_dropped_and_reported(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1, .capacity = 3, .overflow_strategy = SL_OVERFLOW_DROP_OLDEST));
	fill(k, 3);
	kit_submit(k, 5, 6);
	assert_int_equal(k->n_dropped, 2);
	assert_int_equal(k->dropped[0], 2);
	assert_int_equal(k->dropped[1], 3);
	kit_check_equation(k);
	kit_release_all(k);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(kit_health(k).dropped, 2);
	kit_finish(k, 0);
	assert_int_equal(k->n_written, 4); /* the one in flight was not touched */
}

static void a_full_queue_is_an_error_when_that_was_asked_for(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1, .capacity = 3, .overflow_strategy = SL_OVERFLOW_ERROR));
	fill(k, 3);
	assert_int_equal(sl_coordinator_submit(k->c, ITEM(9), 0, SL_UNLIMITED), SL_EFULL);
	kit_release_all(k);
	kit_finish(k, 0);
}

static void an_item_above_max_bytes_is_refused(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1, .max_bytes = 100));
	assert_int_equal(sl_coordinator_submit(k->c, ITEM(9), 101, SL_UNLIMITED), SL_ETOOBIG);
	assert_int_equal(sl_coordinator_submit(k->c, ITEM(9), 100, SL_UNLIMITED), 0);
	struct sl_item items[3] = {{.data = ITEM(1), .len = 5}, {.data = ITEM(2), .len = 101}, {.data = ITEM(3)}};
	size_t accepted;
	assert_int_equal(sl_coordinator_submit_many(k->c, items, 3, SL_UNLIMITED, &accepted), SL_ETOOBIG);
	assert_int_equal(accepted, 1);
	kit_finish(k, 0);
	assert_int_equal(k->n_written, 2);
}

static void a_key_has_at_most_255_bytes(void **state)
{
	struct kit *k = *state;
	char key[256] = "";
	struct sl_item item = {.data = ITEM(1), .key = key, .key_len = sizeof(key)};
	kit_new(k, OPTS(.workers = 1));
	assert_int_equal(sl_coordinator_submit_many(k->c, &item, 1, 0, NULL), SL_EINVAL);
	item.key_len = 255;
	assert_int_equal(sl_coordinator_submit_many(k->c, &item, 1, 0, NULL), 0);
	kit_finish(k, 0);
}

static void watermarks_are_reported_once_per_crossing_and_alternate(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1, .capacity = 10, .batch_size = 1, .flush_interval_ms = SL_NONE));
	kit_hold_first(k);
	kit_submit(k, 2, 8); /* seven wait */
	assert_false(kit_health(k).backpressure);
	kit_submit(k, 9, 9);
	kit_await_marks(k, 1);
	assert_true(kit_health(k).backpressure);
	kit_submit(k, 10, 10);
	kit_release_all(k);
	kit_await_marks(k, 2);
	kit_finish(k, 0);
	assert_int_equal(k->n_marks, 2);
	assert_memory_equal(k->marks, "HL", 2);
}

/* ---- calls that wait ---- */

struct stop_call {
	struct kit *k;
	int64_t drain_ms;
	struct sl_coordinator_report r;
	struct sl_err err;
	int rc;
	atomic_bool done;
	pthread_t thread;
};

static void *stop_main(void *arg)
{
	struct stop_call *s = arg;
	s->r.struct_size = sizeof(s->r);
	s->rc = sl_coordinator_stop(s->k->c, s->drain_ms, &s->r, &s->err);
	atomic_store(&s->done, true);
	return NULL;
}

/* Let time pass until it has returned. */
static void finish_stop(struct stop_call *s)
{
	while (!atomic_load(&s->done))
		(void)vclock_advance_to_next(&s->k->clock);
	pthread_join(s->thread, NULL);
}

static void start_stop(struct stop_call *s, struct kit *k, int64_t drain_ms)
{
	*s = (struct stop_call){.k = k, .drain_ms = drain_ms, .rc = 99};
	assert_int_equal(pthread_create(&s->thread, NULL, stop_main, s), 0);
}

/* ---- ownership ---- */

struct owner {
	atomic_int copied, freed;
	bool no_memory;
};

static void *copy_number(const void *item, size_t len, void *ctx)
{
	struct owner *o = ctx;
	(void)len;
	if (o->no_memory)
		return NULL;
	atomic_fetch_add(&o->copied, 1);
	uintptr_t *copy = malloc(sizeof(*copy));
	*copy = *(const uintptr_t *)item;
	return copy;
}

static void free_number(void *item, void *ctx)
{
	struct owner *o = ctx;
	atomic_fetch_add(&o->freed, 1);
	free(item);
}

static int copy_written(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			struct sl_err *err)
{
	(void)k;
	(void)number;
	(void)reply;
	(void)err;
	for (size_t i = 0; i < batch->n; i++)
		assert_int_equal(*(const uintptr_t *)batch->items[i].data, 7);
	return 0;
}

static void with_item_copy_the_caller_keeps_his_own(void **state)
{
	struct kit *k = *state;
	struct owner o = {0};
	uintptr_t mine = 7;
	k->script = copy_written;
	kit_new(k, OPTS(.workers = 1, .items.copy = copy_number, .items.free = free_number, .items.ctx = &o));
	assert_int_equal(sl_coordinator_submit(k->c, &mine, sizeof(mine), SL_UNLIMITED), 0);
	struct sl_item item = {.data = &mine, .done = kit_done, .done_ctx = k};
	assert_int_equal(sl_coordinator_submit_many(k->c, &item, 1, SL_UNLIMITED, NULL), 0);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	mine = 8;
	o.no_memory = true;
	assert_int_equal(sl_coordinator_submit(k->c, &mine, sizeof(mine), SL_UNLIMITED), SL_ENOMEM);
	kit_finish(k, 0);
	assert_int_equal(o.copied, 2);
	assert_int_equal(o.freed, 2);
	assert_int_equal(k->ends[SL_ITEM_WRITTEN], 1);
}

static void a_refused_copy_is_freed_and_a_refused_pointer_stays_the_callers(void **state)
{
	struct kit *k = *state;
	struct owner o = {0};
	uintptr_t mine = 7;
	k->script = copy_written;
	kit_new(k, OPTS(.workers = 1, .capacity = 1, .items.copy = copy_number, .items.free = free_number,
			.items.ctx = &o));
	kit_hold(k);
	assert_int_equal(sl_coordinator_submit(k->c, &mine, sizeof(mine), SL_UNLIMITED), 0);
	kit_await_in_write(k, 1);
	assert_int_equal(sl_coordinator_submit(k->c, &mine, sizeof(mine), SL_UNLIMITED), 0);
	assert_int_equal(sl_coordinator_submit(k->c, &mine, sizeof(mine), 0), SL_EFULL);
	assert_int_equal(o.copied, 3);
	assert_int_equal(o.freed, 1);
	kit_release_all(k);
	kit_finish(k, 0);
	assert_int_equal(o.freed, 3);
}

static void a_pointer_is_freed_once_when_its_item_has_ended(void **state)
{
	struct kit *k = *state;
	struct owner o = {0};
	k->script = copy_written;
	kit_new(k, OPTS(.workers = 1, .items.free = free_number, .items.ctx = &o));
	for (int i = 0; i < 10; i++) {
		uintptr_t seven = 7;
		void *item = copy_number(&seven, 0, &o);
		assert_int_equal(sl_coordinator_submit(k->c, item, sizeof(seven), SL_UNLIMITED), 0);
	}
	kit_finish(k, 0);
	assert_int_equal(o.freed, 10);
}

static void a_returned_pointer_belongs_to_who_took_it(void **state)
{
	struct kit *k = *state;
	struct owner o = {0};
	uintptr_t seven = 7, *in_flight = copy_number(&seven, 0, &o), *waiting = copy_number(&seven, 0, &o);
	kit_new(k, OPTS(.workers = 1, .items.free = free_number, .items.ctx = &o));
	kit_hold(k);
	assert_int_equal(sl_coordinator_submit(k->c, in_flight, 8, SL_UNLIMITED), 0);
	kit_await_in_write(k, 1);
	assert_int_equal(sl_coordinator_submit(k->c, waiting, 8, SL_UNLIMITED), 0);
	struct stop_call s;
	start_stop(&s, k, 0);
	kit_await_cancelled(k);
	kit_release_all(k);
	pthread_join(s.thread, NULL);
	assert_int_equal(s.rc, SL_EPENDING);
	assert_int_equal(o.freed, 1);
	assert_int_equal(k->n_returned, 1);
	assert_ptr_equal((void *)k->returned[0], waiting);
	free(waiting);
	assert_int_equal(sl_coordinator_free(k->c), 0);
	k->c = NULL;
}

/* ---- stop ---- */

static int stop(struct kit *k, int64_t drain_ms, struct sl_coordinator_report *r, struct sl_err *err)
{
	*r = (struct sl_coordinator_report){.struct_size = sizeof(*r)};
	return sl_coordinator_stop(k->c, drain_ms, r, err);
}

static void a_stop_writes_what_is_there_and_refuses_what_comes(void **state)
{
	struct kit *k = *state;
	struct sl_coordinator_report r;
	kit_new(k, OPTS(.workers = 2, .batch_size = 10, .flush_interval_ms = 60000));
	kit_submit(k, 1, 35);
	assert_int_equal(sl_coordinator_free(k->c), SL_EINVAL);
	assert_int_equal(stop(k, SL_UNLIMITED, &r, NULL), 0);
	assert_int_equal(r.accepted, 35);
	assert_int_equal(r.written, 35);
	assert_int_equal(sl_coordinator_submit(k->c, ITEM(1), 0, SL_UNLIMITED), SL_ECLOSED);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(stop(k, 0, &r, NULL), 0); /* again */
	assert_int_equal(r.written, 35);
	assert_int_equal(kit_health(k).workers_alive, 0);
	assert_int_equal(sl_coordinator_free(k->c), 0);
	k->c = NULL;
}

static void when_the_time_is_up_the_sink_is_cancelled_and_the_rest_given_back(void **state)
{
	struct kit *k = *state;
	struct stop_call s;
	struct flush_call f;
	k->script = kit_fail_cancelled;
	kit_new(k, OPTS(.workers = 1, .batch_size = 5));
	kit_submit(k, 1, 1);
	kit_await_in_write(k, 1);
	kit_submit(k, 2, 20);
	start_flush(&f, k, SL_UNLIMITED);
	kit_await_calm(k, 1 + OTHERS);
	start_stop(&s, k, 100);
	kit_await_calm(k, 2 + OTHERS);
	assert_int_equal(k->cancelled, 0);
	vclock_advance_ms(&k->clock, 100);
	pthread_join(s.thread, NULL);
	pthread_join(f.thread, NULL);
	assert_int_equal(s.rc, SL_EPENDING);
	assert_int_equal(s.r.returned, 20);
	assert_int_equal(k->n_returned, 20);
	assert_int_equal(k->cancelled, 1);
	assert_int_equal(f.rc, SL_ECLOSED);
	assert_int_equal(sl_coordinator_free(k->c), 0);
	k->c = NULL;
}

static void a_sink_that_never_returns_makes_stop_say_so_and_the_handle_stays_valid(void **state)
{
	struct kit *k = *state;
	struct stop_call s;
	struct sl_coordinator_report r;
	kit_new(k, OPTS(.workers = 2, .batch_size = 3, .flush_interval_ms = SL_NONE));
	kit_hold_first(k);
	kit_submit(k, 2, 2);
	kit_await_in_write(k, 2);
	kit_submit(k, 3, 7);
	start_stop(&s, k, 100);
	kit_await_calm(k, 1 + OTHERS);
	vclock_advance_ms(&k->clock, 99);
	assert_int_equal(k->cancelled, 0);
	finish_stop(&s); /* and a moment for the cancelled writes to come back */
	assert_int_equal(k->cancelled, 1);
	assert_int_equal(s.rc, SL_ETIMEDOUT);
	assert_int_equal(s.r.unknown, 2);
	assert_int_equal(s.r.returned, 5);
	assert_int_equal(k->n_returned, 5);
	assert_non_null(strstr(s.err.msg, "2 items"));
	assert_int_equal(sl_coordinator_free(k->c), SL_ETIMEDOUT);
	kit_check_equation(k);
	kit_release_all(k);
	assert_int_equal(stop(k, SL_UNLIMITED, &r, NULL), SL_EPENDING); /* because of those that were given back */
	assert_int_equal(r.unknown, 0);
	assert_int_equal(r.written, 2);
	assert_int_equal(sl_coordinator_free(k->c), 0);
	k->c = NULL;
}

static void without_a_place_for_them_stop_refuses_to_lose_items(void **state)
{
	struct kit *k = *state;
	struct sl_err err = SL_ERR_INIT;
	struct sl_coordinator_report r;
	kit_new(k, OPTS(.workers = 1, .batch_size = 5, .unwritten.returned_ctx = k)); /* no on_returned */
	kit_hold_first(k);
	kit_submit(k, 2, 20);
	assert_int_equal(stop(k, 0, &r, &err), SL_EPENDING);
	assert_non_null(strstr(err.msg, "20 items"));
	assert_int_equal(k->cancelled, 0);
	assert_int_equal(sl_coordinator_submit(k->c, ITEM(1), 0, SL_UNLIMITED), SL_ECLOSED);
	assert_int_equal(sl_coordinator_free(k->c), SL_EINVAL);
	kit_release_all(k); /* workers continue */
	assert_int_equal(stop(k, SL_UNLIMITED, &r, &err), 0);
	assert_int_equal(r.written, 20);
	assert_int_equal(sl_coordinator_free(k->c), 0);
	k->c = NULL;
}

static void every_item_reports_how_it_ended(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1, .capacity = 2, .overflow_strategy = SL_OVERFLOW_DROP_OLDEST));
	kit_hold(k);
	for (uintptr_t i = 1; i <= 5; i++) {
		struct sl_item item = {.data = ITEM(i), .done = kit_done, .done_ctx = k};
		assert_int_equal(sl_coordinator_submit_many(k->c, &item, 1, SL_UNLIMITED, NULL), 0);
		if (i == 1)
			kit_await_in_write(k, 1);
	}
	struct stop_call s;
	start_stop(&s, k, 0);
	kit_await_cancelled(k);
	kit_release_all(k);
	pthread_join(s.thread, NULL);
	assert_int_equal(s.rc, SL_EPENDING);
	assert_int_equal(k->ends[SL_ITEM_WRITTEN], 1);
	assert_int_equal(k->ends[SL_ITEM_DROPPED], 2);
	assert_int_equal(k->ends[SL_ITEM_RETURNED], 2);
	assert_int_equal(sl_coordinator_free(k->c), 0);
	k->c = NULL;
}

static void blocked_submitters_are_let_go_by_stop(void **state)
{
	struct kit *k = *state;
	struct submit_call s;
	struct stop_call t;
	kit_new(k, OPTS(.workers = 1, .capacity = 3));
	fill(k, 3);
	start_submit(&s, k, 1, SL_UNLIMITED);
	kit_await_calm(k, 1 + OTHERS);
	start_stop(&t, k, SL_UNLIMITED);
	pthread_join(s.thread, NULL);
	assert_int_equal(s.rc, SL_ECLOSED);
	kit_release_all(k);
	pthread_join(t.thread, NULL);
	assert_int_equal(t.rc, 0);
	assert_int_equal(t.r.written, 4);
	assert_int_equal(sl_coordinator_free(k->c), 0);
	k->c = NULL;
}

/* ---- the rest ---- */

static void a_forked_child_is_refused(void **state)
{
	struct kit *k = *state;
	kit_new(k, OPTS(.workers = 1));
	kit_submit(k, 1, 1);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct sl_coordinator_health h = {.struct_size = sizeof(h)};
		struct sl_item item = {.data = ITEM(1)};
		size_t accepted;
		bool right = sl_coordinator_submit(k->c, ITEM(1), 0, SL_UNLIMITED) == SL_EFORKED &&
			     sl_coordinator_submit_many(k->c, &item, 1, 0, NULL) == SL_EFORKED &&
			     sl_coordinator_submit_many(k->c, &item, 1, 0, &accepted) == SL_EFORKED &&
			     sl_coordinator_flush(k->c, 0) == SL_EFORKED &&
			     sl_coordinator_get_health(k->c, &h) == SL_EFORKED &&
			     sl_coordinator_stop(k->c, 0, NULL, NULL) == SL_EFORKED &&
			     sl_coordinator_reduce_tokens(k->c) == SL_EFORKED &&
			     sl_coordinator_free(k->c) == SL_EFORKED;
		_exit(right ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	kit_finish(k, 0);
}

struct bad_option {
	const char *name;
	struct sl_coordinator_opts opts;
};

static void no_dead(const struct sl_item *item, const struct sl_err *err, uint32_t attempts, void *ctx)
{
	(void)item;
	(void)err;
	(void)attempts;
	(void)ctx;
}

static void a_bad_option_is_refused_by_name(void **state)
{
	struct kit *k = *state;
	const struct bad_option rows[] = {
		{"capacity", OPTS(.capacity = -3)},
		{"workers", OPTS(.workers = 257)},
		{"batch_size", OPTS(.batch_size = 1000001)},
		{"flush_interval_ms", OPTS(.flush_interval_ms = -7)},
		{"high_watermark", OPTS(.capacity = 10, .backpressure.high_watermark = 11)},
		{"low_watermark",
		 OPTS(.capacity = 10, .backpressure.high_watermark = 5, .backpressure.low_watermark = 6)},
		{"max_attempts", OPTS(.retry.policy.max_attempts = -9)},
		{"max_bytes", OPTS(.max_bytes = -5)},
		{"batch_bytes", OPTS(.batch_bytes = -5)},
		{"scaling.workers_min", OPTS(.scaling.workers_min = 5, .scaling.workers_max = 4)},
		{"scaling.up_ms", OPTS(.scaling.up_ms = -1)},
		{"breaker.failures", OPTS(.breaker.failures = -1)},
		{"breaker.open_max_ms", OPTS(.breaker.open_ms = 10, .breaker.open_max_ms = 9)},
		{"retry.batches", OPTS(.retry.batches = -1)},
		{"rate.items", OPTS(.rate.items = -1)},
		{"rate.bytes", OPTS(.rate.bytes = 1e30)},
		{"rate.reduce_factor", OPTS(.rate.reduce_factor = 1)},
		{"rate.by_watermark", OPTS(.rate.by_watermark = SL_ON)},
		{"items.copy", OPTS(.items.copy = copy_number)},
		{"overflow_strategy", OPTS(.overflow_strategy = 9)},
		{"items.kind", OPTS(.items.kind = 2)},
		{"per_key_order", OPTS(.per_key_order = 3)},
		{"name", OPTS(.name = "")},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct sl_err err = SL_ERR_INIT;
		struct sl_coordinator_opts opts = rows[i].opts;
		opts.struct_size = sizeof(opts);
		opts.unwritten.on_dead = no_dead;
		assert_int_equal(sl_coordinator_new(&k->c, &k->sink, &opts, &err), SL_EINVAL);
		if (strstr(err.msg, rows[i].name) == NULL)
			print_error("%s is not in: %s\n", rows[i].name, err.msg);
		assert_non_null(strstr(err.msg, rows[i].name));
	}
	struct sl_err err = SL_ERR_INIT;
	struct sl_coordinator_opts opts = {.struct_size = sizeof(opts)};
	assert_int_equal(sl_coordinator_new(&k->c, &k->sink, &opts, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "dead_letters"));
	assert_int_equal(sl_coordinator_new(&k->c, &k->sink, NULL, &err), SL_EINVAL);
	assert_null(k->c);
}

static void the_classifier_knows_the_specifications_keywords(void **state)
{
	struct sl_err err = {.code = SL_EINTERNAL, .msg = "Connection reset"};
	(void)state;
	assert_int_equal(sl_default_retry_classifier(&err, NULL), SL_CLASS_TRANSIENT);
	(void)snprintf(err.msg, sizeof(err.msg), "no such column");
	assert_int_equal(sl_default_retry_classifier(&err, NULL), SL_CLASS_POISON);
	err.error_class = SL_CLASS_FATAL;
	assert_int_equal(sl_default_retry_classifier(&err, NULL), SL_CLASS_FATAL);
}

static int find_lines(const char *data, size_t n, void *ctx)
{
	static const char *const lines[] = {
		"sluice_sink_writes_total{coordinator=\"bars\",sink=\"kit\",status=\"success\"} 1\n",
		"sluice_sink_writes_total{coordinator=\"bars\",sink=\"kit\",status=\"failure\"} 1\n",
		"sluice_sink_write_latency_seconds_count{coordinator=\"bars\",sink=\"kit\"} 2\n",
		"sluice_coordinator_queue_depth{coordinator=\"bars\"} 0\n",
		"sluice_coordinator_worker_errors_total{coordinator=\"bars\"} 1\n",
		"sluice_coordinator_items_dropped_total{coordinator=\"bars\"} 0\n",
		"sluice_coordinator_items_dead_total{coordinator=\"bars\"} 1\n",
		"sluice_coordinator_oldest_age_seconds{coordinator=\"bars\"} 0\n",
		"sluice_coordinator_breaker_open{coordinator=\"bars\"} 0\n",
		"sluice_coordinator_workers{coordinator=\"bars\"} 1\n",
		"sluice_coordinator_retries_total{coordinator=\"bars\"} 0\n",
		"sluice_coordinator_batch_items_count{coordinator=\"bars\"} 2\n",
	};
	int *found = ctx;
	char *text = strndup(data, n);
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		if (strstr(text, lines[i]) == NULL)
			print_error("no %s", lines[i]);
		*found += strstr(text, lines[i]) != NULL;
	}
	free(text);
	return 0;
}

static int poison_first(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			struct sl_err *err)
{
	(void)k;
	(void)batch;
	(void)reply;
	return number == 1 ? kit_fail(err, SL_CLASS_POISON) : 0;
}

static void metrics_have_the_specifications_names(void **state)
{
	struct kit *k = *state;
	sl_metrics *m;
	int found = 0;
	assert_int_equal(sl_metrics_new(&m, NULL, NULL), 0);
	k->env.metrics = m;
	k->script = poison_first;
	/* Another one in the same process has its own. */
	kit_new(k, OPTS(.workers = 1, .name = "trades"));
	sl_coordinator *other = k->c;
	kit_new(k, OPTS(.workers = 1, .name = "bars"));
	kit_submit(k, 1, 1);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	kit_submit(k, 2, 2);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(sl_metrics_render(m, find_lines, &found, NULL), 0);
	assert_int_equal(found, 12);
	kit_finish(k, 0);
	k->c = other;
	kit_finish(k, 0);
	sl_metrics_free(m);
}

/* The kit with byte strings, and a coordinator whose memory f can fail. */
static void fault_kit(struct kit *k, struct fault *f)
{
	fault_init(f, &k->env);
	k->env = fault_env(f, &k->env);
	k->bytes = true;
}

static void without_memory_nothing_is_made_and_nothing_leaks(void **state)
{
	struct kit *k = *state;
	struct fault f;
	fault_kit(k, &f);
	for (int64_t n = 1;; n++) {
		struct sl_err err = SL_ERR_INIT;
		struct sl_coordinator_opts opts = {
			SL_COORDINATOR_OPTS_INIT, .env = &k->env,  .unwritten.on_dead = no_dead,
			.per_key_order = SL_ON,   .rate.items = 1, .rate.bytes = 1};
		sl_coordinator *c = NULL;
		fault_arm_mem(&f, n, FAULT_ONCE);
		int rc = sl_coordinator_new(&c, &k->sink, &opts, &err);
		fault_disarm(&f);
		if (rc == 0) {
			assert_int_equal(sl_coordinator_stop(c, 0, NULL, NULL), 0);
			assert_int_equal(sl_coordinator_free(c), 0);
		} else {
			assert_int_equal(rc, SL_ENOMEM);
			assert_null(c);
		}
		assert_int_equal(fault_live_allocs(&f), 0);
		if (fault_mem_failed(&f) == 0)
			break;
	}
	fault_fini(&f);
}

static void a_refused_item_leaves_no_memory_behind(void **state)
{
	struct kit *k = *state;
	struct fault f;
	fault_kit(k, &f);
	kit_new(k, OPTS(.workers = 1, .capacity = 1));
	kit_hold_first(k);
	kit_submit(k, 2, 2);
	uint64_t v = 3;
	struct sl_item items[2] = {{.data = &v, .len = sizeof(v)}, {.data = &v, .len = sizeof(v), .position = 3}};
	size_t accepted;
	int64_t before = fault_live_allocs(&f);
	assert_int_equal(sl_coordinator_submit(k->c, &v, sizeof(v), 0), SL_EFULL);
	assert_int_equal(sl_coordinator_submit_many(k->c, &items[1], 1, 0, NULL), SL_EFULL);
	assert_int_equal(sl_coordinator_submit_many(k->c, items, 2, 0, &accepted), SL_EFULL);
	assert_int_equal(accepted, 0);
	assert_int_equal(fault_live_allocs(&f), before);
	kit_release_all(k);
	kit_finish(k, 0);
	assert_int_equal(fault_live_allocs(&f), 0);
	fault_fini(&f);
}

static void a_submit_without_memory_is_refused_and_can_be_repeated(void **state)
{
	struct kit *k = *state;
	struct fault f;
	fault_kit(k, &f);
	kit_new(k, OPTS(.workers = 1));
	uint64_t v = 1;
	struct sl_item item = {.data = &v, .len = sizeof(v), .position = 3};
	fault_arm_mem(&f, 1, FAULT_FROM);
	assert_int_equal(sl_coordinator_submit(k->c, &v, sizeof(v), SL_UNLIMITED), SL_ENOMEM);
	assert_int_equal(sl_coordinator_submit_many(k->c, &item, 1, 0, NULL), SL_ENOMEM);
	fault_disarm(&f);
	assert_int_equal(sl_coordinator_submit(k->c, &v, sizeof(v), SL_UNLIMITED), 0);
	assert_int_equal(sl_coordinator_submit(k->c, NULL, 0, SL_UNLIMITED), 0); /* no bytes need none */
	k->bytes = false;
	kit_finish(k, 0);
	assert_int_equal(k->n_written, 2);
	assert_int_equal(fault_live_allocs(&f), 0);
	fault_fini(&f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, kit_set_up, kit_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_submitted_is_written),
		TEST(bytes_are_copied_and_written),
		TEST(keys_and_positions_reach_the_sink_and_stick_to_their_item),
		TEST(an_idle_worker_writes_at_once),
		TEST(under_load_a_batch_closes_by_size_or_by_age),
		TEST(a_flush_does_not_wait_for_batches_to_grow),
		TEST(a_flush_waits_for_what_came_before_it_and_no_more),
		TEST(a_flush_gives_up_at_its_deadline),
		TEST(a_batch_is_limited_in_bytes_and_a_larger_item_is_written_alone),
		TEST(a_full_queue_refuses_who_does_not_wait),
		TEST(a_full_queue_makes_submitters_wait_until_there_is_room),
		TEST(a_timed_submit_gives_up_and_keeps_its_item),
		TEST(many_items_are_submitted_in_parts_and_the_accepted_number_is_returned),
		TEST(the_oldest_item_is_dropped_and_reported),
		TEST(a_full_queue_is_an_error_when_that_was_asked_for),
		TEST(an_item_above_max_bytes_is_refused),
		TEST(a_key_has_at_most_255_bytes),
		TEST(watermarks_are_reported_once_per_crossing_and_alternate),
		TEST(with_item_copy_the_caller_keeps_his_own),
		TEST(a_refused_copy_is_freed_and_a_refused_pointer_stays_the_callers),
		TEST(a_pointer_is_freed_once_when_its_item_has_ended),
		TEST(a_returned_pointer_belongs_to_who_took_it),
		TEST(a_stop_writes_what_is_there_and_refuses_what_comes),
		TEST(when_the_time_is_up_the_sink_is_cancelled_and_the_rest_given_back),
		TEST(a_sink_that_never_returns_makes_stop_say_so_and_the_handle_stays_valid),
		TEST(without_a_place_for_them_stop_refuses_to_lose_items),
		TEST(every_item_reports_how_it_ended),
		TEST(blocked_submitters_are_let_go_by_stop),
		TEST(a_forked_child_is_refused),
		TEST(a_bad_option_is_refused_by_name),
		TEST(the_classifier_knows_the_specifications_keywords),
		TEST(metrics_have_the_specifications_names),
		TEST(without_memory_nothing_is_made_and_nothing_leaks),
		TEST(a_refused_item_leaves_no_memory_behind),
		TEST(a_submit_without_memory_is_refused_and_can_be_repeated),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
