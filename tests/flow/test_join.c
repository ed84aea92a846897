/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes that are served together: one leads, the others are done by it or lead in their turn. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "flow/join.h"
#include "support/budget.h"
#include "support/vclock.h"

#define LANES 8

struct lane {
	struct sl__join_entry entry; /* first */
	struct sl__join *join;
	pthread_t thread;
	int work, answer; /* the answer is twice the work, whichever thread does it */
	bool led;
};

static void do_work(struct sl__join_entry *e)
{
	struct lane *l = (struct lane *)e;
	l->answer = 2 * l->work;
}

static void join_init(struct sl__join *j)
{
	static struct sl_env env;
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	sl__join_init(j, &env);
}

/* Lead for itself alone, should it have to. */
static void *enter_once(void *arg)
{
	struct lane *l = arg;
	l->led = sl__join_enter(l->join, &l->entry);
	if (l->led) {
		struct sl__join_entry *own = &l->entry;
		do_work(own);
		sl__join_end(l->join, &own, 1);
	}
	return NULL;
}

static void start(struct lane *lanes, size_t n, struct sl__join *j)
{
	for (size_t i = 0; i < n; i++) {
		lanes[i] = (struct lane){.join = j, .work = (int)i + 1};
		assert_int_equal(pthread_create(&lanes[i].thread, NULL, enter_once, &lanes[i]), 0);
	}
}

static struct sl__join_entry *await_next(struct sl__join *j)
{
	struct sl__join_entry *e;
	while ((e = sl__join_next(j)) == NULL)
		(void)sched_yield();
	return e;
}

static void those_that_come_while_one_leads_are_done_by_it(void **state)
{
	struct lane leader = {.work = 100}, lanes[LANES];
	struct sl__join_entry *done[LANES + 1] = {&leader.entry};
	struct sl__join j;
	(void)state;
	join_init(&j);
	assert_true(sl__join_enter(&j, &leader.entry));
	assert_null(sl__join_next(&j));
	start(lanes, LANES, &j);
	for (size_t i = 1; i <= LANES; i++)
		do_work(done[i] = await_next(&j));
	assert_null(sl__join_next(&j));
	sl__join_end(&j, done, LANES + 1);
	for (size_t i = 0; i < LANES; i++) {
		assert_int_equal(pthread_join(lanes[i].thread, NULL), 0);
		assert_false(lanes[i].led);
		assert_int_equal(lanes[i].answer, 2 * lanes[i].work);
	}
	sl__join_fini(&j);
}

static void those_that_were_not_taken_lead_in_their_turn(void **state)
{
	struct lane leader = {.work = 100}, lanes[LANES];
	struct sl__join_entry *done[2] = {&leader.entry};
	struct sl__join j;
	size_t led = 0;
	(void)state;
	join_init(&j);
	assert_true(sl__join_enter(&j, &leader.entry));
	start(lanes, LANES, &j);
	do_work(done[1] = await_next(&j));
	sl__join_end(&j, done, 2);
	for (size_t i = 0; i < LANES; i++) {
		assert_int_equal(pthread_join(lanes[i].thread, NULL), 0);
		assert_int_equal(lanes[i].answer, 2 * lanes[i].work);
		led += lanes[i].led;
	}
	assert_int_equal(led, LANES - 1);
	sl__join_fini(&j);
}

/* ---- gathering ---- */

struct gathering {
	struct sl__join *join;
	size_t taken; /* after its own */
};

static void *lead_gathered(void *arg)
{
	struct gathering *g = arg;
	struct lane own = {.work = 100};
	struct sl__join_entry *done[LANES + 1] = {&own.entry};
	assert_true(sl__join_enter(g->join, &own.entry));
	sl__join_gather(g->join, 3);
	for (g->taken = 0; g->taken < LANES && (done[g->taken + 1] = sl__join_next(g->join)) != NULL; g->taken++)
		do_work(done[g->taken + 1]);
	sl__join_end(g->join, done, g->taken + 1);
	return NULL;
}

static void a_leader_waits_for_as_many_as_the_last_time_but_not_for_long(void **state)
{
	struct vclock clock;
	struct sl_env env, given = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &clock};
	struct lane leader = {.work = 100}, lanes[2];
	struct sl__join_entry *done[3] = {&leader.entry};
	struct sl__join j;
	struct gathering g = {.join = &j};
	pthread_t thread;
	(void)state;
	vclock_init(&clock);
	assert_int_equal(sl__env_init(&env, &given, NULL), 0);
	sl__join_init(&j, &env);

	/* The first time none is waited for. Three are done, in 3 s. */
	assert_true(sl__join_enter(&j, &leader.entry));
	sl__join_gather(&j, 3);
	start(lanes, 2, &j);
	do_work(done[1] = await_next(&j));
	do_work(done[2] = await_next(&j));
	vclock_advance_ms(&clock, 3000);
	sl__join_end(&j, done, 3);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(pthread_join(lanes[i].thread, NULL), 0);

	/* The next leader waits for two others, and takes both. */
	assert_int_equal(pthread_create(&thread, NULL, lead_gathered, &g), 0);
	vclock_await_waiters(&clock, 1);
	start(lanes, 2, &j);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(g.taken, 2);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(pthread_join(lanes[i].thread, NULL), 0);

	/* When none comes, it waits for a third of the time that the last ones took. */
	j.took_ns = 3000000000;
	assert_int_equal(pthread_create(&thread, NULL, lead_gathered, &g), 0);
	vclock_await_waiters(&clock, 1);
	vclock_advance_ms(&clock, 999);
	vclock_await_settled(&clock, 1);
	vclock_advance_ms(&clock, 1);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(g.taken, 0);

	/* It was alone, and does not wait again. */
	j.took_ns = 3000000000;
	(void)lead_gathered(&g);
	sl__join_fini(&j);
	vclock_fini(&clock);
}

/* ---- many at once ---- */

struct crowd {
	struct sl__join join;
	double until;
	_Atomic int inside, leads, entries;
	_Atomic bool together; /* two led at a time */
};

static void lead_some(struct crowd *c, struct lane *l, unsigned turn)
{
	struct sl__join_entry *done[4] = {&l->entry}, *e;
	size_t n = 1;
	if (atomic_fetch_add(&c->inside, 1) != 0)
		c->together = true;
	while (n < 1 + turn % 4 && (e = sl__join_next(&c->join)) != NULL)
		done[n++] = e;
	for (size_t i = 0; i < n; i++)
		do_work(done[i]);
	c->leads++;
	atomic_fetch_sub(&c->inside, 1);
	sl__join_end(&c->join, done, n);
}

static void *crowd_lane(void *arg)
{
	struct crowd *c = arg;
	for (unsigned i = 0; i < 100 || seconds_now() < c->until; i++) {
		struct lane l = {.work = (int)i};
		if (sl__join_enter(&c->join, &l.entry))
			lead_some(c, &l, i);
		if (l.answer != 2 * l.work)
			return arg;
		c->entries++;
	}
	return NULL;
}

static void every_entry_of_many_lanes_is_done_once_and_one_leads_at_a_time(void **state)
{
	struct crowd c = {.until = seconds_now() + test_seconds(1)};
	pthread_t threads[LANES];
	(void)state;
	join_init(&c.join);
	for (size_t i = 0; i < LANES; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, crowd_lane, &c), 0);
	for (size_t i = 0; i < LANES; i++) {
		void *wrong;
		assert_int_equal(pthread_join(threads[i], &wrong), 0);
		assert_null(wrong);
	}
	assert_false(c.together);
	print_message("# %d entries, %d leads\n", c.entries, c.leads);
	sl__join_fini(&c.join);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(those_that_come_while_one_leads_are_done_by_it),
		cmocka_unit_test(those_that_were_not_taken_lead_in_their_turn),
		cmocka_unit_test(a_leader_waits_for_as_many_as_the_last_time_but_not_for_long),
		cmocka_unit_test(every_entry_of_many_lanes_is_done_once_and_one_leads_at_a_time),
	};
	return cmocka_run_group_tests_name("join", tests, NULL, NULL);
}
