/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the order in which workers finish: the commits are in order, and what waits for them stays in the window. */
#include <sched.h>

#include "base/base.h"
#include "base/env.h"
#include "pipeline/rig.h"

/* ---- workers that finish in a given order ---- */

struct turns {
	const size_t *order; /* partition numbers, in the order in which they are to finish */
	size_t n, at;
};

/* Wait for this partition's turn. Every partition must have its own worker. */
static int finish_in_turn(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	struct turns *t = r->own;
	(void)err;
	rig_lock(r);
	while (t->order[t->at] != p->number)
		rig_wait(r);
	t->at++;
	rig_tell(r);
	rig_unlock(r);
	return 0;
}

static bool next_permutation(size_t *a, size_t n)
{
	size_t i = n - 1, j = n - 1;
	while (i > 0 && a[i - 1] >= a[i])
		i--;
	if (i == 0)
		return false;
	while (a[j] <= a[i - 1])
		j--;
	size_t swap = a[i - 1];
	a[i - 1] = a[j];
	a[j] = swap;
	for (j = n - 1; i < j; i++, j--) {
		swap = a[i];
		a[i] = a[j];
		a[j] = swap;
	}
	return true;
}

static void run_in_order(struct rig *r, const size_t *order, size_t n)
{
	struct turns t = {.order = order, .n = n};
	r->own = &t;
	r->on_store = finish_in_turn;
	r->n_commits = 0;
	r->to = n * r->o.partition_size - 1;
	r->o.workers = (int32_t)n;
	assert_int_equal(rig_run(r), 0);
	assert_int_equal(t.at, n);
	rig_assert_chain(r, 0, r->to, r->o.partition_size);
}

static void all_720_orders_of_6_partitions_give_the_same_chain(void **state)
{
	struct rig *r = *state;
	size_t order[6] = {0, 1, 2, 3, 4, 5}, runs = 0;
	r->run = 10;
	do {
		run_in_order(r, order, 6);
		runs++;
	} while (next_permutation(order, 6));
	assert_int_equal(runs, 720);
}

/* The specification's test. The last finishes first. */
static void out_of_order_worker_completion_still_produces_ordered_PAS_chain(void **state)
{
	struct rig *r = *state;
	const size_t order[] = {7, 3, 6, 1, 5, 2, 4, 0};
	r->run = 10;
	run_in_order(r, order, SL_COUNT(order));
	for (size_t i = 0; i < SL_COUNT(order); i++)
		assert_int_equal(r->commits[i].start, 10 * i);
}

/* ---- random orders of 1,000: as soon as every worker holds a partition, one of them by lot may finish ---- */

#define LOT_WORKERS 32
#define LOT_PARTITIONS 1000

struct lot {
	struct sl__prng prng;
	uint64_t held[LOT_WORKERS];
	size_t n_held, finished;
	uint64_t chosen; /* may leave; UINT64_MAX: none */
	uint64_t finished_in_order;
	uint64_t last;
};

static void draw(struct lot *l)
{
	size_t expected = SL_MIN(LOT_WORKERS, LOT_PARTITIONS - l->finished);
	if (l->n_held == expected && expected > 0)
		l->chosen = l->held[sl__prng_next(&l->prng) % expected];
}

static int finish_by_lot(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	struct lot *l = r->own;
	(void)err;
	rig_lock(r);
	l->held[l->n_held++] = p->number;
	l->chosen = UINT64_MAX;
	draw(l);
	rig_tell(r);
	while (l->chosen != p->number)
		rig_wait(r);
	for (size_t i = 0; i < l->n_held; i++)
		if (l->held[i] == p->number)
			l->held[i] = l->held[--l->n_held];
	l->finished++;
	l->finished_in_order += p->number > l->last;
	l->last = p->number;
	l->chosen = UINT64_MAX;
	draw(l);
	rig_tell(r);
	rig_unlock(r);
	return 0;
}

static void random_orders_of_1000_partitions_give_the_same_chain(void **state)
{
	struct rig *r = *state;
	r->o.partition_size = 3;
	r->run = 3;
	r->to = 3 * LOT_PARTITIONS - 1;
	r->o.workers = LOT_WORKERS;
	r->o.window = LOT_PARTITIONS; /* so that no thread waits for anything but the lot */
	r->on_store = finish_by_lot;
	for (uint64_t seed = 1; seed <= 3; seed++) {
		struct lot l = {.prng = {.s = seed}, .chosen = UINT64_MAX};
		r->own = &l;
		r->n_commits = 0;
		assert_int_equal(rig_run(r), 0);
		rig_assert_chain(r, 0, r->to, 3);
		/* the lot did its work: about half of the steps go back */
		assert_in_range(l.finished_in_order, 200, 800);
	}
}

/* ---- a slow first partition ---- */

struct gate {
	bool open;
};

static int first_waits(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err)
{
	struct gate *g = r->own;
	(void)err;
	rig_lock(r);
	while (p->number == 0 && !g->open)
		rig_wait(r);
	rig_unlock(r);
	return 0;
}

static void open_gate(struct rig *r)
{
	rig_lock(r);
	((struct gate *)r->own)->open = true;
	rig_tell(r);
	rig_unlock(r);
}

/* Until everything but the gate's worker waits for it: the dispatcher, the committer, the other workers. */
static void await_standstill(struct rig *r, uint64_t dispatched, int waiters)
{
	struct sl_pipeline_stats s = {.struct_size = sizeof(s)};
	int outputs;
	do {
		vclock_await_waiters(&r->clock, waiters);
		sched_yield();
		assert_int_equal(sl_pipeline_get_stats(r->p, &s), 0);
		rig_lock(r);
		outputs = r->live_outputs;
		rig_unlock(r);
	} while (s.dispatched < dispatched || s.queue_depth < s.window - s.workers || s.window_used < s.window - 1 ||
		 s.workers_busy > 1 || outputs < (int)(s.window - 1 + s.workers - 1));
}

static void a_slow_first_partition_with_a_thousand_after_it_stays_in_the_window(void **state)
{
	struct rig *r = *state;
	struct gate g = {false};
	struct sl_pipeline_stats s = {.struct_size = sizeof(s)};
	r->own = &g;
	r->on_build = first_waits;
	r->run = 10;
	r->to = 10 * 1001 - 1;
	rig_start(r);
	/* 0 is held; 1 … 11 fill the window of 12; 12 … 14 are finished in the workers' hands; 15 … 22 are queued; the
	 * dispatcher holds 23. */
	await_standstill(r, 24, 5);
	assert_int_equal(sl_pipeline_get_stats(r->p, &s), 0);
	assert_int_equal(s.dispatched, 24);
	assert_int_equal(s.window_used, 11);
	assert_int_equal(s.queue_depth, 8);
	assert_int_equal(s.committed, 0);
	assert_int_equal(s.workers_busy, 1);
	rig_lock(r);
	assert_int_equal(r->live_outputs, 11 + 3);
	assert_int_equal(r->live_elements, 1 + 8 + 1);
	rig_unlock(r);
	vclock_advance_ms(&r->clock, 5000);
	assert_int_equal(sl_pipeline_get_stats(r->p, &s), 0);
	assert_int_equal(s.commit_lag_ms, 5000);
	assert_true(s.utilisation > 0.24 && s.utilisation < 0.26);
	open_gate(r);
	assert_int_equal(rig_join(r), 0);
	rig_assert_chain(r, 0, r->to, 10);
	assert_in_range(r->live_outputs_max, 14, 12 + 4 + 1);
	assert_in_range(r->live_elements_max, 10, 4 + 8 + 1 + 1);
	assert_int_equal(r->stats.window_used_max <= 12, 1);
}

static void the_bytes_that_wait_are_bounded_and_a_larger_partition_goes_alone(void **state)
{
	struct rig *r = *state;
	struct gate g = {false};
	struct sl_pipeline_stats s = {.struct_size = sizeof(s)};
	r->own = &g;
	r->on_build = first_waits;
	r->run = 10;
	r->to = 99;
	r->o.workers = 1;
	r->bytes = 1000;
	r->o.queue_bytes = 2500;
	rig_start(r);
	do {
		sched_yield();
		assert_int_equal(sl_pipeline_get_stats(r->p, &s), 0);
	} while (s.dispatched < 4); /* one in the worker, two wait, the fourth finds no room */
	assert_int_equal(s.queue_depth, 2);
	assert_int_equal(s.queue_bytes, 2000);
	open_gate(r);
	assert_int_equal(rig_join(r), 0);
	rig_assert_chain(r, 0, 99, 10);
	r->bytes = 5000;
	r->n_commits = 0;
	assert_int_equal(rig_run(r), 0);
	rig_assert_chain(r, 0, 99, 10);
}

/* ---- metrics ---- */

static double gauge(sl_metrics *m, const char *name, const char *help)
{
	sl_gauge *g = NULL;
	assert_int_equal(sl_metrics_gauge(m, name, help, NULL, 0, &g, NULL), 0);
	return sl_gauge_value(g);
}

static int append_text(const char *data, size_t n, void *ctx)
{
	char *text = ctx;
	size_t len = strlen(text);
	assert_true(len + n < 16384);
	memcpy(text + len, data, n);
	text[len + n] = '\0';
	return 0;
}

static void assert_line(const char *text, const char *line)
{
	const char *at = strstr(text, line);
	if (at == NULL || (at[strlen(line)] != '\n'))
		fail_msg("no line \"%s\" in\n%s", line, text);
}

static void metrics_show_queue_workers_window_and_lag(void **state)
{
	struct rig *r = *state;
	struct gate g = {false};
	char text[16384] = "";
	sl_metrics *m = NULL;
	assert_int_equal(sl_metrics_new(&m, NULL, NULL), 0);
	r->env.metrics = m;
	r->own = &g;
	r->on_build = first_waits;
	r->run = 10;
	r->to = 10 * 100 - 1;
	rig_start(r);
	await_standstill(r, 24, 5);
	vclock_advance_ms(&r->clock, 2000);
	assert_int_equal(sl_metrics_render(m, append_text, text, NULL), 0);
	assert_line(text, "sluice_pipeline_queue_depth 8");
	assert_line(text, "sluice_pipeline_workers_busy 1");
	assert_line(text, "sluice_pipeline_workers 4");
	assert_line(text, "sluice_pipeline_window_used 11");
	assert_line(text, "sluice_pipeline_commit_lag_oldest_seconds 2");
	open_gate(r);
	assert_int_equal(rig_join(r), 0);
	text[0] = '\0';
	assert_int_equal(sl_metrics_render(m, append_text, text, NULL), 0);
	assert_line(text, "sluice_pipeline_queue_depth 0");
	assert_line(text, "sluice_pipeline_workers 0");
	assert_line(text, "sluice_pipeline_partitions_total{status=\"committed\"} 100");
	assert_line(text, "sluice_pipeline_commit_lag_seconds_count 100");
	assert_line(text, "sluice_pipeline_retries_total{step=\"store\"} 0");
	sl_pipeline_free(r->p);
	r->p = NULL;
	assert_true(gauge(m, "sluice_pipeline_workers", "Workers of running pipelines.") == 0);
	sl_metrics_free(m);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(all_720_orders_of_6_partitions_give_the_same_chain),
		CASE(out_of_order_worker_completion_still_produces_ordered_PAS_chain),
		CASE(random_orders_of_1000_partitions_give_the_same_chain),
		CASE(a_slow_first_partition_with_a_thousand_after_it_stays_in_the_window),
		CASE(the_bytes_that_wait_are_bounded_and_a_larger_partition_goes_alone),
		CASE(metrics_show_queue_workers_window_and_lag),
	};
	return cmocka_run_group_tests_name("pipeline order", tests, NULL, NULL);
}
