/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <stdatomic.h>

#include "flow/shards.h"
#include "support/budget.h"
#include "support/fault.h"
#include "support/vclock.h"

#define MS 1000000LL

struct block {
	struct sl__shard_item item; /* first */
	char name[16];
};

struct fixture {
	struct vclock clock;
	struct fault fault;
	struct sl_env env;
	sl__shards *s;
	struct block blocks[64];
	size_t n;
	char not_ready[64]; /* keys, one letter each */
	unsigned asked;
	bool recheck_when_asked;
	char text[512];
};

static bool gate(const void *key, size_t key_len, void *ctx)
{
	struct fixture *x = ctx;
	assert_int_equal(key_len, 1);
	x->asked++;
	if (x->recheck_when_asked)
		sl__shards_recheck(x->s, key, key_len);
	return strchr(x->not_ready, *(const char *)key) == NULL;
}

static int setup(void **state)
{
	struct fixture *x = calloc(1, sizeof(*x));
	vclock_init(&x->clock);
	fault_init(&x->fault, NULL);
	struct sl_env base = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &x->clock};
	struct sl_env env = fault_env(&x->fault, &base);
	assert_int_equal(sl__env_init(&x->env, &env, NULL), 0);
	assert_int_equal(sl__shards_new(&x->s, &x->env, gate, x, NULL), 0);
	*state = x;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *x = *state;
	sl__shards_free(x->s);
	assert_int_equal(fault_live_allocs(&x->fault), 0);
	fault_fini(&x->fault);
	vclock_fini(&x->clock);
	free(x);
	return 0;
}

static struct block *push_at(struct fixture *x, const char *name, int64_t not_before_ns)
{
	struct block *b = &x->blocks[x->n++];
	(void)snprintf(b->name, sizeof(b->name), "%s", name);
	b->item.bytes = 10;
	assert_int_equal(sl__shards_push(x->s, name, 1, &b->item, not_before_ns), 0);
	return b;
}

/* The first letter of a name is its key. */
static void push(struct fixture *x, const char *names)
{
	char name[3] = "";
	for (; *names != '\0'; names += names[2] == ' ' ? 3 : 2) {
		memcpy(name, names, 2);
		push_at(x, name, 0);
	}
}

static int64_t in_ms(struct fixture *x, int64_t ms)
{
	return sl__mono_ns(&x->env) + ms * MS;
}

/* Take until nothing is to be had; done at once. "a1 b1 a2" */
static const char *taken(struct fixture *x)
{
	struct sl__shard_item *item;
	x->text[0] = '\0';
	while ((item = sl__shards_take(x->s)) != NULL) {
		const struct block *b = (const struct block *)item;
		size_t used = strlen(x->text);
		(void)snprintf(x->text + used, sizeof(x->text) - used, "%s%s", used > 0 ? " " : "", b->name);
		sl__shards_done(x->s, item);
	}
	return x->text;
}

static struct sl__shards_stats stats(struct fixture *x)
{
	struct sl__shards_stats s;
	sl__shards_get_stats(x->s, &s);
	return s;
}

/* ---- order ---- */

static void within_a_key_items_leave_as_they_came(void **state)
{
	struct fixture *x = *state;
	push(x, "a1 a2 a3 a4");
	assert_string_equal(taken(x), "a1 a2 a3 a4");
}

static void the_turn_goes_round_the_keys(void **state)
{
	struct fixture *x = *state;
	push(x, "a1 a2 a3 a4 b1 c1 c2");
	assert_string_equal(taken(x), "a1 b1 c1 a2 c2 a3 a4");
}

static void a_new_key_waits_for_its_turn_and_a_served_one_goes_after_it(void **state)
{
	struct fixture *x = *state;
	push(x, "a1 a2 a3 b1 b2");
	struct sl__shard_item *item = sl__shards_take(x->s);
	assert_string_equal(((struct block *)item)->name, "a1");
	push(x, "c1 c2");
	assert_string_equal(taken(x), "b1 a2 c1 b2 a3 c2");
	sl__shards_done(x->s, item);
}

static void no_key_is_served_twice_while_another_waits(void **state)
{
	struct fixture *x = *state;
	enum { KEYS = 50, EACH = 20 };
	struct sl__shard_item *items = calloc(KEYS * EACH, sizeof(*items));
	unsigned served[KEYS] = {0}, left[KEYS];
	sl__shards *s = NULL;
	assert_int_equal(sl__shards_new(&s, &x->env, NULL, NULL, NULL), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		left[i] = 1 + i * 7 % EACH;
		for (unsigned j = 0; j < left[i]; j++)
			assert_int_equal(sl__shards_push(s, &i, sizeof(i), &items[i * EACH + j], 0), 0);
	}
	struct sl__shard_item *item;
	while ((item = sl__shards_take(s)) != NULL) {
		unsigned key;
		size_t len;
		memcpy(&key, sl__shard_key(item, &len), sizeof(key));
		assert_int_equal(len, sizeof(key));
		assert_ptr_equal(item, &items[key * EACH + served[key]]);
		for (unsigned other = 0; other < KEYS; other++)
			assert_true(served[other] == left[other] || served[other] >= served[key]);
		served[key]++;
		sl__shards_done(s, item);
	}
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(served[i], left[i]);
	sl__shards_free(s);
	free(items);
}

/* ---- the gate ---- */

static void a_key_that_is_not_ready_is_skipped_and_asked_once(void **state)
{
	struct fixture *x = *state;
	strcpy(x->not_ready, "ac");
	push(x, "a1 a2 b1 b2 b3 c1 d1");
	assert_string_equal(taken(x), "b1 d1 b2 b3");
	assert_int_equal(x->asked, 6); /* b three times, the others once */
	assert_int_equal(stats(x).not_ready, 2);
	strcpy(x->not_ready, "");
	assert_string_equal(taken(x), ""); /* no change was signalled */
	sl__shards_recheck(x->s, "c", 1);
	assert_string_equal(taken(x), "c1");
	sl__shards_recheck(x->s, "x", 1);
	assert_string_equal(taken(x), "");
	push(x, "a3"); /* a push says nothing about readiness */
	assert_string_equal(taken(x), "");
	sl__shards_recheck(x->s, NULL, 0);
	assert_string_equal(taken(x), "a1 a2 a3");
	assert_int_equal(stats(x).not_ready, 0);
}

static void a_recheck_while_the_gate_is_asked_is_not_lost(void **state)
{
	struct fixture *x = *state;
	strcpy(x->not_ready, "a");
	push(x, "a1");
	x->recheck_when_asked = true;
	assert_null(sl__shards_take(x->s)); /* asked once, not for ever */
	assert_int_equal(x->asked, 1);
	x->recheck_when_asked = false;
	strcpy(x->not_ready, "");
	assert_string_equal(taken(x), "a1"); /* without another recheck */
}

struct pushing {
	sl__shards *s;
	struct sl__shard_item more;
	bool pushed;
};

static bool push_in_gate(const void *key, size_t key_len, void *ctx)
{
	struct pushing *p = ctx;
	(void)key;
	(void)key_len;
	if (!p->pushed)
		assert_int_equal(sl__shards_push(p->s, "k", 1, &p->more, 0), 0);
	p->pushed = true;
	return true;
}

static void the_gate_is_asked_without_a_lock(void **state)
{
	struct fixture *x = *state;
	struct pushing p = {0};
	struct sl__shard_item first = {0};
	assert_int_equal(sl__shards_new(&p.s, &x->env, push_in_gate, &p, NULL), 0);
	assert_int_equal(sl__shards_push(p.s, "k", 1, &first, 0), 0);
	assert_ptr_equal(sl__shards_take(p.s), &first);
	assert_ptr_equal(sl__shards_take(p.s), &p.more);
	assert_null(sl__shards_take(p.s));
	sl__shards_free(p.s);
}

/* ---- times ---- */

static void an_item_that_waits_holds_up_no_other_and_goes_ahead_when_due(void **state)
{
	struct fixture *x = *state;
	push(x, "a1 a2 b1");
	struct sl__shard_item *a1 = sl__shards_take(x->s);
	sl__shards_retry(x->s, a1, in_ms(x, 100));
	assert_int_equal(stats(x).waiting, 1);
	assert_int_equal(sl__shards_next_due(x->s), in_ms(x, 100));
	assert_string_equal(taken(x), "b1 a2"); /* its own key continues too */
	push(x, "a3 b2");
	vclock_advance_ns(&x->clock, 100 * MS - 1);
	push(x, "a4");
	struct sl__shard_item *item = sl__shards_take(x->s);
	assert_string_equal(((struct block *)item)->name, "a3");
	sl__shards_done(x->s, item);
	vclock_advance_ns(&x->clock, 1);
	assert_string_equal(taken(x), "b2 a1 a4");
	assert_int_equal(sl__shards_next_due(x->s), SL_FOREVER);
}

static void items_that_become_due_together_leave_by_time_and_then_as_they_came(void **state)
{
	struct fixture *x = *state;
	int64_t base = in_ms(x, 0);
	push_at(x, "a3", base + 30 * MS);
	push_at(x, "a1", base + 10 * MS);
	push_at(x, "a2", base + 20 * MS);
	push_at(x, "a4", base + 30 * MS);
	push_at(x, "a5", base + 30 * MS);
	push(x, "a9");
	assert_string_equal(taken(x), "a9");
	push(x, "a8");
	vclock_advance_ms(&x->clock, 50);
	assert_string_equal(taken(x), "a1 a2 a3 a4 a5 a8");
}

static void an_immediate_retry_goes_ahead_of_its_key_only(void **state)
{
	struct fixture *x = *state;
	push(x, "a1 a2 b1");
	struct sl__shard_item *a1 = sl__shards_take(x->s);
	sl__shards_retry(x->s, a1, 0);
	assert_string_equal(taken(x), "b1 a1 a2");
}

static void thousands_of_waiting_items_come_in_the_order_of_their_times(void **state)
{
	struct fixture *x = *state;
	enum { N = 20000 };
	struct sl__shard_item *items = calloc(N, sizeof(*items));
	struct sl__prng rng = {.s = 5};
	sl__shards *s = NULL;
	int64_t base = in_ms(x, 0), last = 0;
	assert_int_equal(sl__shards_new(&s, &x->env, NULL, NULL, NULL), 0);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(
			sl__shards_push(s, &i, 1, &items[i], base + (int64_t)(sl__prng_next(&rng) % 1000) * MS), 0);
	size_t seen = 0;
	for (int ms = 0; ms <= 1000; ms++) {
		struct sl__shard_item *item;
		while ((item = sl__shards_take(s)) != NULL) {
			assert_true(item->not_before_ns >= last && item->not_before_ns <= in_ms(x, 0));
			last = item->not_before_ns;
			seen++;
			sl__shards_done(s, item);
		}
		vclock_advance_ms(&x->clock, 1);
	}
	assert_int_equal(seen, N);
	sl__shards_free(s);
	free(items);
}

/* ---- accounts and memory ---- */

static void items_and_bytes_are_accounted_for(void **state)
{
	struct fixture *x = *state;
	push(x, "a1 a2 b1");
	push_at(x, "c1", in_ms(x, 10));
	struct sl__shards_stats s = stats(x);
	assert_int_equal(s.items, 4);
	assert_int_equal(s.bytes, 40);
	assert_int_equal(s.keys, 3);
	assert_int_equal(s.waiting, 1);
	struct sl__shard_item *item = sl__shards_take(x->s), *again = sl__shards_take(x->s);
	s = stats(x);
	assert_int_equal(s.items, 2);
	assert_int_equal(s.bytes, 20);
	assert_int_equal(s.out, 2);
	sl__shards_retry(x->s, again, in_ms(x, 5));
	s = stats(x);
	assert_int_equal(s.items, 3);
	assert_int_equal(s.waiting, 2);
	assert_int_equal(s.out, 1);
	sl__shards_done(x->s, item);
	vclock_advance_ms(&x->clock, 10);
	taken(x);
	s = stats(x);
	assert_int_equal(s.items + s.bytes + s.out + s.waiting + s.keys + s.not_ready, 0);
}

static void empty_keys_cost_nothing(void **state)
{
	struct fixture *x = *state;
	enum { KEYS = 100000 };
	struct sl__shard_item *items = calloc(KEYS, sizeof(*items));
	sl__shards *s = NULL;
	assert_int_equal(sl__shards_new(&s, &x->env, NULL, NULL, NULL), 0);
	int64_t before = fault_live_allocs(&x->fault);
	for (int round = 0; round < 2; round++) {
		for (unsigned i = 0; i < KEYS; i++)
			assert_int_equal(sl__shards_push(s, &i, sizeof(i), &items[i], 0), 0);
		fault_arm_mem(&x->fault, 0, FAULT_ONCE); /* counts from here */
		for (unsigned i = 0; i < KEYS; i++) {
			struct sl__shard_item *item = sl__shards_take(s);
			assert_ptr_equal(item, &items[i]);
			sl__shards_done(s, item);
		}
		/* The table halves itself on the way: from 2^17 slots to 2^6. */
		assert_int_equal(x->fault.mem_plan.calls, 11);
		assert_null(sl__shards_take(s));
		struct sl__shards_stats st;
		sl__shards_get_stats(s, &st);
		assert_int_equal(st.keys, 0);
		assert_int_equal(fault_live_allocs(&x->fault), before);
	}
	sl__shards_free(s);
	free(items);
}

static bool count_and_refuse(const void *key, size_t key_len, void *ctx)
{
	(void)key_len;
	++*(unsigned *)ctx;
	return *(const unsigned *)key == 0;
}

static void a_hundred_thousand_keys_that_are_not_ready_are_asked_once_each(void **state)
{
	struct fixture *x = *state;
	enum { KEYS = 100000 };
	struct sl__shard_item *items = calloc(KEYS + 1000, sizeof(*items));
	unsigned asked = 0;
	sl__shards *s = NULL;
	assert_int_equal(sl__shards_new(&s, &x->env, count_and_refuse, &asked, NULL), 0);
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(sl__shards_push(s, &i, sizeof(i), &items[i], 0), 0);
	for (unsigned i = 0, zero = 0; i < 1000; i++)
		assert_int_equal(sl__shards_push(s, &zero, sizeof(zero), &items[KEYS + i], 0), 0);
	for (unsigned i = 0; i < 1001; i++) {
		struct sl__shard_item *item = sl__shards_take(s);
		assert_non_null(item);
		sl__shards_done(s, item);
	}
	assert_null(sl__shards_take(s));
	assert_int_equal(asked, KEYS - 1 + 1001);
	struct sl__shard_item *item;
	unsigned back = 0;
	while ((item = sl__shards_take_any(s)) != NULL) {
		sl__shards_done(s, item);
		back++;
	}
	assert_int_equal(back, KEYS - 1);
	sl__shards_free(s);
	free(items);
}

static void a_push_without_memory_changes_nothing_and_a_retry_needs_none(void **state)
{
	struct fixture *x = *state;
	sl__shards *none = NULL;
	for (int64_t n = 1; n <= 2; n++) {
		fault_arm_mem(&x->fault, n, FAULT_ONCE);
		assert_int_equal(sl__shards_new(&none, &x->env, gate, x, NULL), SL_ENOMEM);
	}
	push(x, "a1");
	struct sl__shard_item *a1 = sl__shards_take(x->s), extra = {0};
	fault_arm_mem(&x->fault, 1, FAULT_FROM);
	assert_int_equal(sl__shards_push(x->s, "z", 1, &extra, 0), SL_ENOMEM);
	assert_int_equal(stats(x).keys, 1);
	sl__shards_retry(x->s, a1, in_ms(x, 1)); /* its key is still there for it */
	vclock_advance_ms(&x->clock, 1);
	assert_string_equal(taken(x), "a1");
	/* A table that cannot grow only gets slower. */
	enum { KEYS = 500 };
	struct sl__shard_item *items = calloc(KEYS, sizeof(*items));
	for (unsigned i = 0; i < KEYS; i++) {
		fault_arm_mem(&x->fault, 2, FAULT_ONCE);
		uint8_t key = (uint8_t)(i % 250 + 1);
		assert_int_equal(sl__shards_push(x->s, &key, 1, &items[i], 0), 0);
	}
	fault_disarm(&x->fault);
	for (unsigned i = 0; i < KEYS; i++)
		sl__shards_done(x->s, sl__shards_take(x->s));
	assert_int_equal(stats(x).keys, 0);
	free(items);
}

static void keys_may_be_empty_and_must_not_be_huge(void **state)
{
	struct fixture *x = *state;
	sl__shards *s = NULL;
	struct sl__shard_item a = {0}, b = {0}, c = {0};
	char key[256] = {0};
	assert_int_equal(sl__shards_new(&s, &x->env, NULL, NULL, NULL), 0);
	assert_int_equal(sl__shards_push(s, NULL, 0, &a, 0), 0);
	assert_int_equal(sl__shards_push(s, key, 255, &b, 0), 0);
	assert_int_equal(sl__shards_push(s, key, 256, &c, 0), SL_EINVAL);
	assert_ptr_equal(sl__shards_take(s), &a);
	assert_ptr_equal(sl__shards_take(s), &b);
	sl__shards_free(s);
}

static void giving_up_gets_everything_back(void **state)
{
	struct fixture *x = *state;
	strcpy(x->not_ready, "b");
	push(x, "a1 a2 b1 b2 c1");
	push_at(x, "d1", in_ms(x, 1000));
	push_at(x, "a0", in_ms(x, 2000));
	struct sl__shard_item *item = sl__shards_take(x->s); /* a1 */
	sl__shards_done(x->s, item);
	sl__shards_done(x->s, sl__shards_take(x->s)); /* asks b, gives c1 */
	char seen[64] = "";
	while ((item = sl__shards_take_any(x->s)) != NULL) {
		strcat(seen, ((struct block *)item)->name);
		sl__shards_done(x->s, item);
	}
	assert_int_equal(strlen(seen), 10);
	assert_non_null(strstr(seen, "a0a2"));
	assert_non_null(strstr(seen, "b1b2"));
	assert_non_null(strstr(seen, "d1"));
	assert_int_equal(stats(x).keys, 0);
	assert_int_equal(stats(x).bytes, 0);
}

/* ---- threads ---- */

#define PRODUCERS 3
#define TAKERS 3
#define MAX_ITEMS (1 << 17)

struct load {
	struct sl__shard_item item; /* first */
	unsigned key, attempts;
};

struct crowd {
	sl__shards *s;
	struct sl_env env;
	int64_t end_ns;
	struct load *loads;
	atomic_uint_fast64_t next, pushed, done, retried, asked;
	atomic_bool producing;
};

static bool flicker(const void *key, size_t key_len, void *ctx)
{
	struct crowd *c = ctx;
	(void)key;
	(void)key_len;
	return atomic_fetch_add(&c->asked, 1) % 7 != 0;
}

static void *produce(void *arg)
{
	struct crowd *c = arg;
	struct sl__prng rng = {.s = (uint64_t)(uintptr_t)&rng};
	while (sl__mono_ns(&c->env) < c->end_ns) {
		uint64_t i = atomic_fetch_add(&c->next, 1);
		if (i >= MAX_ITEMS)
			break;
		struct load *l = &c->loads[i];
		l->key = (unsigned)(sl__prng_next(&rng) % 200);
		l->item.bytes = 1;
		assert_int_equal(sl__shards_push(c->s, &l->key, sizeof(l->key), &l->item, 0), 0);
		atomic_fetch_add(&c->pushed, 1);
	}
	return NULL;
}

static void *take(void *arg)
{
	struct crowd *c = arg;
	struct sl__prng rng = {.s = (uint64_t)(uintptr_t)&rng};
	while (atomic_load(&c->producing) || atomic_load(&c->done) < atomic_load(&c->pushed)) {
		struct load *l = (struct load *)sl__shards_take(c->s);
		if (l == NULL) {
			sl__shards_recheck(c->s, NULL, 0);
			continue;
		}
		l->attempts++; /* ours alone while it is out: TSan would say so */
		if (sl__prng_next(&rng) % 4 == 0) {
			int64_t at = sl__prng_next(&rng) % 2 == 0 ? 0 : sl__mono_ns(&c->env) + 20000;
			atomic_fetch_add(&c->retried, 1);
			sl__shards_retry(c->s, &l->item, at);
			continue;
		}
		sl__shards_done(c->s, &l->item);
		atomic_fetch_add(&c->done, 1);
	}
	return NULL;
}

static void every_item_is_dealt_with_once_under_many_threads(void **state)
{
	struct fixture *x = *state;
	struct crowd c = {.env = x->env, .loads = calloc(MAX_ITEMS, sizeof(*c.loads)), .producing = true};
	c.env.clock = &sl__clock_real;
	c.end_ns = sl__mono_ns(&c.env) + (int64_t)(test_seconds(1) * 1e9);
	assert_int_equal(sl__shards_new(&c.s, &c.env, flicker, &c, NULL), 0);
	pthread_t producers[PRODUCERS], takers[TAKERS];
	for (size_t i = 0; i < TAKERS; i++)
		assert_int_equal(pthread_create(&takers[i], NULL, take, &c), 0);
	for (size_t i = 0; i < PRODUCERS; i++)
		assert_int_equal(pthread_create(&producers[i], NULL, produce, &c), 0);
	for (size_t i = 0; i < PRODUCERS; i++)
		pthread_join(producers[i], NULL);
	atomic_store(&c.producing, false);
	for (size_t i = 0; i < TAKERS; i++)
		pthread_join(takers[i], NULL);
	struct sl__shards_stats st;
	sl__shards_get_stats(c.s, &st);
	assert_int_equal(st.items + st.bytes + st.out + st.keys + st.waiting + st.not_ready, 0);
	uint64_t attempts = 0;
	for (uint64_t i = 0; i < c.pushed; i++) {
		assert_true(c.loads[i].attempts > 0);
		attempts += c.loads[i].attempts;
	}
	assert_int_equal(attempts, c.pushed + c.retried);
	assert_int_equal(c.done, c.pushed);
	printf("# %llu items, %llu retries\n", (unsigned long long)c.pushed, (unsigned long long)c.retried);
	sl__shards_free(c.s);
	free(c.loads);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(within_a_key_items_leave_as_they_came),
		T(the_turn_goes_round_the_keys),
		T(a_new_key_waits_for_its_turn_and_a_served_one_goes_after_it),
		T(no_key_is_served_twice_while_another_waits),
		T(a_key_that_is_not_ready_is_skipped_and_asked_once),
		T(a_recheck_while_the_gate_is_asked_is_not_lost),
		T(the_gate_is_asked_without_a_lock),
		T(an_item_that_waits_holds_up_no_other_and_goes_ahead_when_due),
		T(items_that_become_due_together_leave_by_time_and_then_as_they_came),
		T(an_immediate_retry_goes_ahead_of_its_key_only),
		T(thousands_of_waiting_items_come_in_the_order_of_their_times),
		T(items_and_bytes_are_accounted_for),
		T(empty_keys_cost_nothing),
		T(a_hundred_thousand_keys_that_are_not_ready_are_asked_once_each),
		T(a_push_without_memory_changes_nothing_and_a_retry_needs_none),
		T(keys_may_be_empty_and_must_not_be_huge),
		T(giving_up_gets_everything_back),
		T(every_item_is_dealt_with_once_under_many_threads),
	};
	return cmocka_run_group_tests_name("shards", tests, NULL, NULL);
}
