/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window of a create (src/backup/create/window.c): however far the walk could run ahead of those who read, what
 * waits in memory has a bound. The walk and the one worker are this thread: where the walk waits, by the clock of the
 * test, the worker does one file.
 */
#include "backup/care_kit.h"
#include "backup/create/create.h"

#define WINDOW_BYTES (4u << 20)
#define ITEMS 200u
#define PATH_BYTES 60000u /* 200 of these are three windows */

struct walk {
	struct sl_env plain; /* its clock really waits */
	struct bk_create c;
	size_t waits, most;
	size_t fail_at; /* the worker fails at this wait; 0: never */
};

/* Everything in the queue is the worker's, which does the first. */
static void work(struct walk *w)
{
	w->waits++;
	w->most = SL_MAX(w->most, w->c.window_bytes);
	w->c.queue = w->c.queue_last = NULL;
	if (w->waits == w->fail_at) {
		w->c.failed = sl_err_set(&w->c.failure, SL_EIO, "the disk is on fire");
		return;
	}
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

static int try_add(struct walk *w, unsigned number, struct sl_err *err)
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
	return sl__bk_window_add(&w->c, item, true, err);
}

static void begin(struct walk *w, struct shelf *shelf)
{
	static const struct sl_clock clock = {
		.version = SL_CLOCK_VERSION, .mono_ns = mono_ns, .real_ms = real_ms, .wait = wait_or_work};
	*w = (struct walk){.waits = 0};
	assert_int_equal(sl__env_init(&w->plain, NULL, NULL), 0);
	shelf_init(shelf);
	w->c.b = care_new(shelf, false);
	w->c.b->env.clock = &clock;
	w->c.b->env.clock_ctx = w;
	sl__mutex_init(&w->c.mu);
	sl__cond_init(&w->c.work);
	sl__cond_init(&w->c.done);
	assert_int_equal(sl__bk_store_new(&w->c.store, w->c.b, NULL, 1, NULL), 0);
	assert_int_equal(sl__bk_manifest_writer_new(&w->c.manifest, w->c.b, w->c.store, 0, NULL), 0);
}

static void end(struct walk *w, struct shelf *shelf)
{
	sl__bk_manifest_writer_free(w->c.manifest);
	sl__bk_store_free(w->c.store);
	sl__cond_fini(&w->c.work);
	sl__cond_fini(&w->c.done);
	sl__mutex_fini(&w->c.mu);
	w->c.b->env = w->plain;
	sl_backup_close(w->c.b);
	shelf_fini(shelf);
}

static void what_waits_for_the_manifest_has_a_bound_in_bytes(void **state)
{
	(void)state;
	struct walk w;
	struct shelf shelf;
	struct bk_ref *refs = NULL;
	size_t n = 0;
	begin(&w, &shelf);
	for (unsigned i = 0; i < ITEMS; i++) {
		assert_int_equal(try_add(&w, i, NULL), 0);
		if (w.c.window_bytes > WINDOW_BYTES)
			fail_msg("%zu bytes wait behind file %u", w.c.window_bytes, i);
	}
	assert_true(w.waits > 0);
	assert_true(w.most <= WINDOW_BYTES + sizeof(struct bk_item) + PATH_BYTES + 2);
	assert_int_equal(sl__bk_window_shrink(&w.c, 0, NULL), 0);
	assert_null(w.c.first);
	assert_int_equal(w.c.window_bytes, 0);
	assert_int_equal(atomic_load(&w.c.counts.entries), ITEMS);
	assert_int_equal(sl__bk_manifest_finish(w.c.manifest, &refs, &n, NULL), 0); /* in the order of their paths */
	print_message("# %zu waits, %zu bytes at most\n", w.waits, w.most);
	sl__free(&w.c.b->env, refs);
	end(&w, &shelf);
}

/* A worker that fails while the walk waits for it: the walk ends with its error, in the middle and at the end, and what
 * still waits is given back. */
static void what_a_worker_failed_with_ends_the_walk(void **state)
{
	(void)state;
	for (size_t fail_at = 1; fail_at <= 3; fail_at++) {
		struct walk w;
		struct shelf shelf;
		struct sl_err err = SL_ERR_INIT;
		int rc = 0;
		begin(&w, &shelf);
		w.fail_at = fail_at;
		for (unsigned i = 0; i < ITEMS && rc == 0; i++)
			rc = try_add(&w, i, &err);
		assert_int_equal(rc, SL_EIO);
		assert_non_null(strstr(err.msg, "on fire"));
		assert_non_null(w.c.first);
		assert_int_equal(sl__bk_window_shrink(&w.c, 0, &err), SL_EIO);
		assert_int_equal(atomic_load(&w.c.counts.entries), fail_at - 1); /* those that were read before */
		sl__bk_window_fini(&w.c);
		assert_null(w.c.first);
		end(&w, &shelf);

		/* and one that fails after the last file */
		begin(&w, &shelf);
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(try_add(&w, i, &err), 0);
		w.fail_at = fail_at;
		assert_int_equal(sl__bk_window_shrink(&w.c, 0, &err), SL_EIO);
		assert_int_equal(atomic_load(&w.c.counts.entries), fail_at - 1);
		sl__bk_window_fini(&w.c);
		end(&w, &shelf);
	}
}

/* Entries that need no reading keep their place after those that do, and are written right away when nothing waits. */
static void entries_are_written_in_order_no_matter_which_thread_reads_them(void **state)
{
	(void)state;
	struct walk w;
	struct shelf shelf;
	struct sl_err err = SL_ERR_INIT;
	const struct bk_entry first = {.type = SL_BACKUP_DIR, .path = "0", .path_len = 1, .nlink = 1};
	const struct bk_entry last = {.type = SL_BACKUP_DIR, .path = "y", .path_len = 1, .nlink = 1};
	const struct bk_entry wrong = {.type = SL_BACKUP_DIR, .path = "z/../y", .path_len = 6, .nlink = 1};
	begin(&w, &shelf);
	assert_int_equal(sl__bk_window_entry(&w.c, &first, NULL, &err), 0);
	assert_int_equal(atomic_load(&w.c.counts.entries), 1);
	assert_int_equal(try_add(&w, 5, &err), 0);
	assert_int_equal(sl__bk_window_entry(&w.c, &last, NULL, &err), 0);
	assert_int_equal(atomic_load(&w.c.counts.entries), 1); /* after the file that is not read yet */
	assert_int_equal(sl__bk_window_shrink(&w.c, 0, &err), 0);
	assert_int_equal(atomic_load(&w.c.counts.entries), 3);
	assert_int_equal(atomic_load(&w.c.counts.files), 1);
	/* What the manifest does not take ends it, at once and after a wait. */
	assert_int_equal(sl__bk_window_entry(&w.c, &wrong, NULL, &err), SL_EINVAL);
	assert_int_equal(try_add(&w, 6, &err), 0);
	assert_int_equal(sl__bk_window_entry(&w.c, &wrong, NULL, &err), 0);
	assert_int_equal(sl__bk_window_shrink(&w.c, 0, &err), SL_EINVAL);
	sl__bk_window_fini(&w.c);
	end(&w, &shelf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_waits_for_the_manifest_has_a_bound_in_bytes),
		cmocka_unit_test(what_a_worker_failed_with_ends_the_walk),
		cmocka_unit_test(entries_are_written_in_order_no_matter_which_thread_reads_them),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
