/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A create reads the marks again before it publishes (F7). In each test another process forgets what the create counts
 * on and prunes, after everything that the create has asked the repository and before this recheck; and then a prune
 * that waits for no session deletes what was marked, which the library's own never does.
 */
#include "backup/create_kit.h"
#include "backup/repo/repo.h"
#include "backup/shelf.h"
#include "support/budget.h"
#include "support/fault.h"

enum when { MARKED, DELETED, ELSEWHERE, NOTHING };

struct world {
	struct ck k;
	struct shelf mem;
	sl_driver handle;
	sl_backup *other; /* of the one who prunes */
	char first[SL_BACKUP_ID_BYTES];
	enum when what;
	int looks;        /* lists of marks/ since the create began */
	atomic_int calls; /* after the last of them; packs are put by other threads */
	bool delete_late; /* what is marked is deleted just before the create publishes */
	int64_t fail_at;  /* of the changes after the recheck, this one fails */
};

static void delete_marked(struct world *w)
{
	struct bk_marks marks = {.n = 0};
	assert_int_equal(sl__bk_marks_load(w->other, &marks, NULL), 0);
	for (size_t i = 0; i < marks.n; i++)
		for (size_t j = 0; j < marks.marks[i].packs.n; j++) {
			char name[SL_DRIVER_NAME_BYTES];
			sl__bk_pack_name(&marks.marks[i].packs.ids[j], name);
			(void)shelf_drop(&w->mem, name);
		}
	sl__bk_marks_fini(&w->other->env, &marks);
}

static void forget_and_prune(struct world *w)
{
	const char *id = w->first;
	const struct sl_backup_forget_opts forget = {SL_BACKUP_FORGET_OPTS_INIT, .snapshots = &id, .n_snapshots = 1};
	struct sl_backup_pruned out = {.struct_size = sizeof(out)};
	assert_int_equal(sl_backup_forget(w->other, &forget, NULL, NULL), 0);
	assert_int_equal(sl_backup_prune(w->other, NULL, &out, NULL), 0);
	assert_true(out.packs_marked > 0);
	assert_int_equal(out.packs_deleted, 0);
}

/* Marks a pack that the create does not know. */
static void mark_elsewhere(struct world *w)
{
	struct bk_id id = {.b = {1, 2, 3}};
	const struct bk_ids ids = {.ids = &id, .n = 1};
	char mark[BK_NAME_HEX];
	assert_int_equal(sl__bk_mark_put(w->other, &ids, mark, NULL), 0);
}

/* The first list of marks is that of the beginning. */
static void step_in(const char *what, const char *name, void *ctx)
{
	struct world *w = ctx;
	atomic_fetch_add(&w->calls, 1);
	if (w->delete_late && strcmp(what, "rename") == 0) {
		w->mem.gate = NULL;
		delete_marked(w);
	}
	if (strcmp(what, "list") != 0 || strcmp(name, "marks") != 0)
		return;
	atomic_store(&w->calls, 0);
	if (++w->looks != 2 || w->what == NOTHING)
		return;
	w->mem.gate = NULL;
	if (w->what == ELSEWHERE)
		mark_elsewhere(w);
	else
		forget_and_prune(w);
	if (w->what == DELETED)
		delete_marked(w);
	w->mem.gate = step_in;
	w->mem.changes = 0;
	w->mem.fail_at = w->fail_at;
	w->mem.fail_code = SL_EIO;
}

/* A first snapshot of a tree, of which the second one needs everything but one file. */
static void begin(struct world *w, const struct sl_env *env)
{
	memset(w, 0, sizeof(*w));
	ck_begin(&w->k, env);
	sl_backup_close(w->k.b);
	w->k.b = NULL;
	shelf_init(&w->mem);
	w->handle = shelf_driver(&w->mem);
	w->k.opts.max_retry_attempts = 1;
	assert_int_equal(sl_backup_init(&w->handle, &w->k.opts, &w->k.err), 0);
	assert_int_equal(sl_backup_open(&w->k.b, &w->handle, &w->k.opts, &w->k.err), 0);
	struct sl_backup_opts opts = w->k.opts;
	opts.env = NULL;
	assert_int_equal(sl_backup_open(&w->other, &w->handle, &opts, &w->k.err), 0);
	ck_mkdir(&w->k, "d");
	ck_text(&w->k, "d/a", "a text");
	ck_write_seed(&w->k, "big", 700000, 1);
	ck_create_ok(&w->k);
	memcpy(w->first, w->k.made.id, sizeof(w->first));
	ck_text(&w->k, "new", "of the second one");
}

static int create(struct world *w, enum when what)
{
	w->what = what;
	w->looks = 0;
	w->mem.gate_ctx = w;
	w->mem.gate = step_in;
	int rc = ck_create(&w->k);
	w->mem.gate = NULL;
	return rc;
}

static void end(struct world *w)
{
	sl_backup_close(w->other);
	sl_backup_close(w->k.b);
	w->k.b = NULL;
	shelf_fini(&w->mem);
	ck_end(&w->k);
}

static void what_was_marked_meanwhile_is_stored_again_before_publishing(void **state)
{
	(void)state;
	struct world w;
	begin(&w, NULL);
	w.delete_late = true;
	assert_int_equal(create(&w, MARKED), 0);
	assert_true(w.k.made.new_bytes > 700000); /* it says what it has stored */
	assert_true(w.k.made.physical_bytes > 0);
	assert_int_equal(shelf_count(&w.mem, "snapshots/"), 1);
	ck_check(&w.k);
	ck_restore_and_compare(&w.k);
	end(&w);
}

static void what_was_marked_and_is_gone_publishes_nothing(void **state)
{
	(void)state;
	struct world w;
	begin(&w, NULL);
	assert_int_equal(create(&w, DELETED), SL_EAGAIN);
	assert_non_null(strstr(w.k.err.msg, "run it again"));
	assert_int_equal(shelf_count(&w.mem, "snapshots/"), 0);
	assert_int_equal(shelf_count(&w.mem, "sessions/"), 0);
	ck_create_ok(&w.k);
	ck_check(&w.k);
	ck_restore_and_compare(&w.k);
	end(&w);
}

/* After the recheck come the two calls that publish, and the two for the snapshot's copy. */
static void without_a_newer_mark_the_recheck_is_one_listing(void **state)
{
	(void)state;
	struct world w;
	begin(&w, NULL);
	assert_int_equal(create(&w, NOTHING), 0);
	assert_int_equal(w.looks, 2);
	assert_int_equal(atomic_load(&w.calls), 4);
	forget_and_prune(&w); /* marks that the session has seen are not newer */
	assert_int_equal(create(&w, NOTHING), 0);
	assert_int_equal(w.looks, 2);
	assert_int_equal(atomic_load(&w.calls), 4);
	end(&w);
}

static void a_mark_of_packs_that_it_does_not_count_on_is_read_and_no_more(void **state)
{
	(void)state;
	struct world w;
	begin(&w, NULL);
	assert_int_equal(create(&w, ELSEWHERE), 0);
	assert_int_equal(w.looks, 2);
	assert_int_equal(atomic_load(&w.calls), 5);
	end(&w);
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	struct world w;
	struct fault f;
	struct shelf before;
	const struct sl_env beneath = ck_env();
	fault_init(&f, &beneath);
	const struct sl_env env = fault_env(&f, &beneath);
	begin(&w, &env);
	shelf_init(&before);
	shelf_copy(&before, &w.mem);
	w.delete_late = true;
	int64_t n = 1, failed = 1;
	for (double end_s = seconds_now() + test_seconds(3); failed != 0 && seconds_now() < end_s; n++) {
		shelf_copy(&w.mem, &before);
		int64_t live = fault_live_allocs(&f);
		fault_arm_mem(&f, n, FAULT_ONCE);
		int rc = create(&w, MARKED);
		fault_disarm(&f);
		failed = fault_mem_failed(&f);
		assert_int_equal(fault_live_allocs(&f), live);
		assert_true(rc == 0 || rc == SL_ENOMEM);
		if (rc == 0)
			ck_check(&w.k);
	}
	print_message("# %d allocations failed\n", (int)n - 2);
	shelf_fini(&before);
	end(&w);
	assert_int_equal(fault_live_allocs(&f), 0);
	fault_fini(&f);
}

static void every_change_after_the_recheck_may_fail(void **state)
{
	(void)state;
	struct world w;
	struct shelf before;
	int64_t n = 0, failed = 1;
	begin(&w, NULL);
	w.delete_late = true;
	shelf_init(&before);
	shelf_copy(&before, &w.mem);
	while (failed != 0) {
		shelf_copy(&w.mem, &before);
		w.fail_at = ++n;
		int rc = create(&w, MARKED);
		failed = w.mem.changes >= n;
		w.mem.fail_at = 0;
		assert_true(rc == 0 || rc == SL_EIO);
		assert_int_equal(shelf_count(&w.mem, "snapshots/"), rc == 0);
		if (rc == 0)
			ck_check(&w.k);
	}
	assert_true(n > 4); /* a pack, an index file, the session, its rename */
	print_message("# %d changes failed\n", (int)n - 1);
	shelf_fini(&before);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_marked_meanwhile_is_stored_again_before_publishing),
		cmocka_unit_test(what_was_marked_and_is_gone_publishes_nothing),
		cmocka_unit_test(without_a_newer_mark_the_recheck_is_one_listing),
		cmocka_unit_test(a_mark_of_packs_that_it_does_not_count_on_is_read_and_no_more),
		cmocka_unit_test(every_allocation_may_fail),
		cmocka_unit_test(every_change_after_the_recheck_may_fail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
