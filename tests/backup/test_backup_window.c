/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window of a create (src/backup/create_window.c): however far the walk could run ahead of those who read, what
 * waits in memory has a bound. The walk and the one worker are this thread: where the walk waits, by the clock of the
 * test, the worker does one file.
 */
#include "backup/care_kit.h"
#include "backup/create.h"

#define WINDOW_BYTES (4u << 20)
#define ITEMS 200u
#define PATH_BYTES 60000u /* 200 of these are three windows */

struct walk {
	struct sl_env plain; /* its clock really waits */
	struct bk_create c;
	size_t waits, most;
};

/* Everything in the queue is the worker's, which does the first. */
static void work(struct walk *w)
{
	w->waits++;
	w->most = SL_MAX(w->most, w->c.window_bytes);
	w->c.queue = w->c.queue_last = NULL;
	assert_non_null(w->c.first);
	assert_false(atomic_load(&w->c.first->done));
	atomic_store(&w->c.first->done, true);
}

static int wait_or_work(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t deadline_ns, void *ctx)
{
	struct walk *w = ctx;
	if (cond != &w->c.done.c)
		return w->plain.clock->wait(cond, mu, deadline_ns, w->plain.clock_ctx);
	work(w);
	return 0;
}

static int64_t mono_ns(void *ctx)
{
	const struct walk *w = ctx;
	return w->plain.clock->mono_ns(w->plain.clock_ctx);
}

static int64_t real_ms(void *ctx)
{
	const struct walk *w = ctx;
	return w->plain.clock->real_ms(w->plain.clock_ctx);
}

static void add(struct walk *w, unsigned number)
{
	char path[PATH_BYTES + 1];
	memset(path, 'x', PATH_BYTES);
	path[PATH_BYTES] = '\0';
	(void)snprintf(path, 8, "%07u", number);
	path[7] = 'x';
	struct bk_item *item = sl__bk_item_new(&w->c.b->env, path, PATH_BYTES, NULL, 0);
	assert_non_null(item);
	item->e.type = SL_BACKUP_FILE;
	item->e.nlink = 1;
	assert_int_equal(sl__bk_window_add(&w->c, item, true, NULL), 0);
}

static void what_waits_for_the_manifest_has_a_bound_in_bytes(void **state)
{
	(void)state;
	static const struct sl_clock clock = {
		.version = SL_CLOCK_VERSION, .mono_ns = mono_ns, .real_ms = real_ms, .wait = wait_or_work};
	struct walk w = {.waits = 0};
	struct shelf shelf;
	struct bk_ref *refs = NULL;
	size_t n = 0;
	assert_int_equal(sl__env_init(&w.plain, NULL, NULL), 0);
	shelf_init(&shelf);
	w.c.b = care_new(&shelf, false);
	w.c.b->env.clock = &clock;
	w.c.b->env.clock_ctx = &w;
	sl__mutex_init(&w.c.mu);
	sl__cond_init(&w.c.work);
	sl__cond_init(&w.c.done);
	assert_int_equal(sl__bk_store_new(&w.c.store, w.c.b, NULL, 1, NULL), 0);
	assert_int_equal(sl__bk_manifest_writer_new(&w.c.manifest, w.c.b, w.c.store, 0, NULL), 0);
	for (unsigned i = 0; i < ITEMS; i++) {
		add(&w, i);
		if (w.c.window_bytes > WINDOW_BYTES)
			fail_msg("%zu bytes wait behind file %u", w.c.window_bytes, i);
	}
	assert_true(w.waits > 0);
	assert_true(w.most <= WINDOW_BYTES + sizeof(struct bk_item) + PATH_BYTES + 2);
	assert_int_equal(sl__bk_window_drain(&w.c, NULL), 0);
	assert_null(w.c.first);
	assert_int_equal(w.c.window_bytes, 0);
	assert_int_equal(atomic_load(&w.c.counts.entries), ITEMS);
	assert_int_equal(sl__bk_manifest_finish(w.c.manifest, &refs, &n, NULL), 0); /* in the order of their paths */
	print_message("# %zu waits, %zu bytes at most\n", w.waits, w.most);
	sl__free(&w.c.b->env, refs);
	sl__bk_manifest_writer_free(w.c.manifest);
	sl__bk_store_free(w.c.store);
	sl__cond_fini(&w.c.work);
	sl__cond_fini(&w.c.done);
	sl__mutex_fini(&w.c.mu);
	w.c.b->env = w.plain;
	sl_backup_close(w.c.b);
	shelf_fini(&shelf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_waits_for_the_manifest_has_a_bound_in_bytes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
