/* SPDX-License-Identifier: Apache-2.0 */
/* The set of blocks that a run has met, and look-ups from several threads at once. */
#include <pthread.h>

#include "backup/index_kit.h"
#include "support/fault.h"

static void an_id_is_new_once(SL_UNUSED void **state)
{
	struct sl_env env = kit_env();
	struct bk_seen *s = NULL;
	assert_int_equal(sl__bk_seen_new(&s, &env, NULL), 0);
	for (uint64_t i = 0; i < 100000; i++) {
		struct bk_id id = kit_id(i), other = kit_id(i + (1u << 30));
		assert_false(sl__bk_seen_has(s, &id));
		assert_int_equal(sl__bk_seen_add(s, &id), 1);
		assert_int_equal(sl__bk_seen_add(s, &id), 0);
		assert_true(sl__bk_seen_has(s, &id));
		assert_false(sl__bk_seen_has(s, &other));
	}
	for (uint64_t i = 0; i < 100000; i++) {
		struct bk_id id = kit_id(i);
		assert_int_equal(sl__bk_seen_add(s, &id), 0);
	}
	assert_int_equal(sl__bk_seen_count(s), 100000);
	sl__bk_seen_free(s);
}

static void ids_that_differ_in_one_bit_are_two(SL_UNUSED void **state)
{
	struct sl_env env = kit_env();
	struct bk_seen *s = NULL;
	struct bk_id id = kit_id(7);
	assert_int_equal(sl__bk_seen_new(&s, &env, NULL), 0);
	assert_int_equal(sl__bk_seen_add(s, &id), 1);
	for (size_t bit = 0; bit < 256; bit++) {
		struct bk_id other = id;
		other.b[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(sl__bk_seen_add(s, &other), 1);
	}
	assert_int_equal(sl__bk_seen_count(s), 257);
	sl__bk_seen_free(s);
}

/* Bytes that the set has from the allocator, at most at any moment. */
struct counted {
	size_t now, peak;
};

static void *counted_resize(void *p, size_t size, void *ctx)
{
	struct counted *c = ctx;
	size_t *head = p != NULL ? (size_t *)p - 2 : NULL, old = head != NULL ? *head : 0;
	size_t *grown = malloc(size + 16); /* never in place: both count */
	assert_non_null(grown);
	*grown = size;
	c->now += size;
	c->peak = SL_MAX(c->peak, c->now);
	if (head != NULL) {
		memcpy(grown + 2, p, SL_MIN(old, size));
		c->now -= old;
		free(head);
	}
	return grown + 2;
}

static void *counted_alloc(size_t size, void *ctx)
{
	return counted_resize(NULL, size, ctx);
}

static void counted_release(void *p, void *ctx)
{
	struct counted *c = ctx;
	if (p == NULL)
		return;
	c->now -= *((size_t *)p - 2);
	free((size_t *)p - 2);
}

static void an_id_costs_at_most_48_bytes_at_any_size(SL_UNUSED void **state)
{
	static const struct sl_mem mem = {SL_MEM_VERSION, counted_alloc, counted_resize, counted_release};
	struct counted c = {0};
	struct sl_env env = kit_env();
	struct bk_seen *s = NULL;
	double worst = 0;
	env.mem = &mem;
	env.mem_ctx = &c;
	assert_int_equal(sl__bk_seen_new(&s, &env, NULL), 0);
	for (uint64_t i = 0; i < 1000000; i++) {
		struct bk_id id = kit_id(i);
		c.peak = c.now;
		assert_int_equal(sl__bk_seen_add(s, &id), 1);
		if (i > 50000) /* below, what is not full yet counts more */
			worst = SL_MAX(worst, (double)c.peak / (double)(i + 1));
	}
	print_message("# at most %.1f bytes an id\n", worst);
	assert_true(worst <= 48);
	sl__bk_seen_free(s);
	assert_int_equal(c.now, 0);
}

static void an_add_without_memory_changes_nothing(SL_UNUSED void **state)
{
	struct fault f;
	fault_init(&f, NULL);
	struct sl_env base = fault_env(&f, NULL), env;
	struct bk_seen *s = NULL;
	uint64_t failed = 0;
	assert_int_equal(sl__env_init(&env, &base, NULL), 0);
	fault_arm_mem(&f, 1, FAULT_ONCE);
	assert_int_equal(sl__bk_seen_new(&s, &env, NULL), SL_ENOMEM);
	fault_disarm(&f);
	assert_int_equal(sl__bk_seen_new(&s, &env, NULL), 0);
	for (uint64_t i = 0; i < 30000; i++) {
		struct bk_id id = kit_id(i);
		int rc;
		for (int64_t n = 1;; n++) { /* each allocation of this add, until it needs none that fails */
			fault_arm_mem(&f, n, FAULT_ONCE);
			rc = sl__bk_seen_add(s, &id);
			fault_disarm(&f);
			if (rc != SL_ENOMEM)
				break;
			failed++;
			assert_false(sl__bk_seen_has(s, &id));
			assert_int_equal(sl__bk_seen_count(s), i);
		}
		assert_int_equal(rc, 1);
	}
	assert_true(failed > 300);
	sl__bk_seen_free(s);
	assert_int_equal(fault_live_allocs(&f), 0);
	fault_fini(&f);
}

/* ---- several threads ---- */

#define THREADS 4
#define SHARED 40000u

struct crowd {
	struct index_kit t;
	struct bk_seen *seen;
	struct bk_index *index;
	uint64_t added[THREADS];
	uint64_t number; /* of the thread that takes it */
	pthread_mutex_t mu;
};

static uint64_t my_number(struct crowd *c)
{
	(void)pthread_mutex_lock(&c->mu);
	uint64_t mine = c->number++;
	(void)pthread_mutex_unlock(&c->mu);
	return mine;
}

/* All threads add the same ids, each in another order. */
static void *add_all(void *arg)
{
	struct crowd *c = arg;
	uint64_t mine = my_number(c);
	for (uint64_t i = 0; i < SHARED; i++) {
		struct bk_id id = kit_id((i * (2 * mine + 7) + mine * 1000) % SHARED);
		int rc = sl__bk_seen_add(c->seen, &id);
		if (rc < 0)
			abort();
		c->added[mine] += (uint64_t)rc;
	}
	return NULL;
}

static void *find_all(void *arg)
{
	struct crowd *c = arg;
	uint64_t mine = my_number(c);
	for (uint64_t i = 0; i < SHARED; i++) {
		uint64_t number = (i * (2 * mine + 7) + mine * 1000) % SHARED;
		struct bk_id id = kit_id(number), other = kit_id(number + (1u << 30)), pack;
		struct bk_found found;
		pack = index_kit_pack(number / INDEX_KIT_PACK);
		if (sl__bk_index_find(c->index, &id, &found, NULL) != 0 ||
		    memcmp(&found.pack, &pack, sizeof(pack)) != 0 ||
		    found.place.frame_offset != index_kit_place(&c->t.keys, number).frame_offset ||
		    sl__bk_index_find(c->index, &other, NULL, NULL) != SL_ENOENT)
			abort();
	}
	return NULL;
}

static void run_crowd(struct crowd *c, void *(*fn)(void *))
{
	pthread_t threads[THREADS];
	c->number = 0;
	(void)pthread_mutex_init(&c->mu, NULL);
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, fn, c), 0);
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	(void)pthread_mutex_destroy(&c->mu);
}

static void of_threads_that_add_one_id_exactly_one_hears_that_it_is_new(SL_UNUSED void **state)
{
	struct crowd c = {.number = 0};
	index_kit_begin(&c.t, 0);
	assert_int_equal(sl__bk_seen_new(&c.seen, &c.t.env, NULL), 0);
	run_crowd(&c, add_all);
	uint64_t sum = 0;
	for (size_t i = 0; i < THREADS; i++)
		sum += c.added[i];
	assert_int_equal(sum, SHARED);
	assert_int_equal(sl__bk_seen_count(c.seen), SHARED);
	sl__bk_seen_free(c.seen);
	index_kit_end(&c.t);
}

static bool all_packs(SL_UNUSED const struct bk_id *pack, SL_UNUSED void *ctx)
{
	return true;
}

/* Merge all files into new ones, while the others look up. */
static void *look_up_or_merge(void *arg)
{
	struct crowd *c = arg;
	if (my_number(c) != THREADS - 1)
		return find_all(arg);
	struct bk_index *x = index_kit_load(&c->t);
	struct bk_index_builder *b = NULL;
	if (sl__bk_index_builder_new(&b, &c->t.env, &c->t.keys, NULL) != 0)
		abort();
	b->file_entries = 15000;
	if (sl__bk_index_builder_index(b, x, all_packs, NULL, NULL) != 0 ||
	    sl__bk_index_builder_put(b, &c->t.driver, NULL, NULL) != 0)
		abort();
	for (size_t i = 0; i < sl__bk_index_files(x); i++)
		if (c->t.driver.ops->remove(c->t.driver.driver, sl__bk_index_name(x, i), NULL) != 0)
			abort();
	sl__bk_index_builder_free(b);
	sl__bk_index_free(x);
	return NULL;
}

static void threads_look_up_at_once_while_files_are_read_for_the_first_time(SL_UNUSED void **state)
{
	for (int i = 0; i < 4; i++) {
		struct crowd c = {.number = 0};
		bool merging = i % 2 == 1;
		index_kit_begin(&c.t, merging);
		index_kit_put(&c.t, 0, SHARED, 10000, i < 2 ? 12000 : 2000); /* few files, or many that are gathered */
		c.index = index_kit_load(&c.t);
		run_crowd(&c, merging ? look_up_or_merge : find_all);
		sl__bk_index_free(c.index);
		index_kit_end(&c.t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_id_is_new_once),
		cmocka_unit_test(ids_that_differ_in_one_bit_are_two),
		cmocka_unit_test(an_id_costs_at_most_48_bytes_at_any_size),
		cmocka_unit_test(an_add_without_memory_changes_nothing),
		cmocka_unit_test(of_threads_that_add_one_id_exactly_one_hears_that_it_is_new),
		cmocka_unit_test(threads_look_up_at_once_while_files_are_read_for_the_first_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
