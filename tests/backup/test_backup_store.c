/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of blocks into a repository: once each, by several lanes, the index last; and under a driver that misbehaves
 * by a seed: either everything that was given is there and found, or the store says what is wrong and no index names
 * what is not there.
 *
 *   SLUICE_TEST_SECONDS=N   so long for the seeds (default 1)
 *   SLUICE_SEED=S           start with this seed
 */
#include "backup/repo_kit.h"
#include "support/budget.h"
#include "support/crashfs.h"
#include "support/fault.h"
#include <errno.h>
#include <pthread.h>

static struct bk_store *new_store(struct repo *r, struct bk_index *index, int lanes)
{
	struct bk_store *s;
	struct sl_err err = SL_ERR_INIT;
	if (sl__bk_store_new(&s, r->b, index, lanes, &err) != 0)
		fail_msg("%s", err.msg);
	return s;
}

static struct bk_index *read_index(struct repo *r)
{
	struct bk_index *x;
	struct sl_err err = SL_ERR_INIT;
	if (sl__bk_index_for_reading(r->b, &x, &err) != 0)
		fail_msg("%s", err.msg);
	return x;
}

/* All of these can be read, or the code of the first that cannot. */
static int read_all(struct repo *r, uint64_t first, uint64_t n, struct sl_err *err)
{
	struct bk_index *x = read_index(r);
	struct bk_reader *reader;
	assert_int_equal(sl__bk_reader_new(&reader, r->b, x, NULL), 0);
	int rc = 0;
	for (uint64_t i = 0; rc == 0 && i < n; i++)
		rc = repo_read_block(r, reader, first + i, err);
	sl__bk_reader_free(reader);
	sl__bk_index_free(x);
	return rc;
}

static uint64_t count_packs(struct repo *r)
{
	struct bk_ids ids;
	assert_int_equal(sl__bk_list_packs(r->b, &ids, NULL, NULL, NULL), 0);
	uint64_t n = ids.n;
	sl__bk_ids_fini(&r->b->env, &ids);
	return n;
}

static int count_pack(const struct bk_id *pack, bool usable, void *ctx)
{
	uint64_t *n = ctx;
	(void)pack;
	n[0]++;
	n[1] += !usable;
	return 0;
}

/* ---- storing ---- */

static void blocks_are_read_back_after_finish(void **state)
{
	struct repo r;
	struct bk_store_stats st;
	struct sl_err err = SL_ERR_INIT;
	bool is_new = false;
	(void)state;
	repo_make(&r, NULL);
	struct bk_store *s = new_store(&r, NULL, 2);
	for (uint64_t i = 0; i < 300; i++) {
		assert_int_equal(repo_store_block(&r, s, (int)(i % 2), i, &is_new, &err), 0);
		assert_true(is_new);
		assert_int_equal(repo_store_block(&r, s, (int)((i + 1) % 2), i, &is_new, &err), 0);
		assert_false(is_new);
	}
	assert_int_equal(sl__bk_store_finish(s, &err), 0);
	sl__bk_store_stats(s, &st);
	assert_int_equal(st.new_blocks, 300);
	assert_int_equal(st.known_blocks, 300);
	assert_int_equal(st.new_bytes, st.known_bytes);
	assert_int_equal(st.backlog_bytes, 0);
	sl__bk_store_free(s);
	struct sl_backup_stats all = {.struct_size = sizeof(all)};
	assert_int_equal(sl_backup_get_stats(r.b, &all, NULL), 0);
	assert_int_equal(all.blocks, 300);
	assert_int_equal(all.index_files, 1);
	assert_true(all.packs > 3);
	assert_true(st.physical_bytes > all.pack_bytes); /* and the index */
	repo_reopen(&r);
	assert_int_equal(read_all(&r, 0, 300, &err), 0);
	repo_free(&r);
}

static void what_the_repository_has_is_not_stored_again(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	struct bk_id ids[60];
	bool missing[60], is_new;
	(void)state;
	repo_make(&r, NULL);
	repo_store(&r, 0, 40);
	uint64_t packs = count_packs(&r);
	struct bk_index *x = read_index(&r);
	struct bk_store *s = new_store(&r, x, 1);
	for (uint64_t i = 0; i < 60; i++)
		ids[i] = repo_block_id(r.b, i);
	assert_int_equal(sl__bk_store_missing(s, ids, 60, missing, &err), 0);
	for (uint64_t i = 0; i < 60; i++)
		assert_int_equal(missing[i], i >= 40);
	for (uint64_t i = 0; i < 40; i++) {
		assert_int_equal(repo_store_block(&r, s, 0, i, &is_new, &err), 0);
		assert_false(is_new);
	}
	assert_int_equal(sl__bk_store_finish(s, &err), 0);
	sl__bk_store_free(s);
	assert_int_equal(count_packs(&r), packs);
	assert_int_equal(repo_count(&r.d, "index", NULL), 1);
	s = new_store(&r, x, 1);
	assert_int_equal(sl__bk_store_put_always(s, 0, &(struct bk_block){&ids[0], "", 0}, 1, &err),
			 0); /* as repack does */
	assert_int_equal(sl__bk_store_finish(s, &err), 0);
	sl__bk_store_free(s);
	assert_int_equal(count_packs(&r), packs + 1);
	sl__bk_index_free(x);
	repo_free(&r);
}

struct order {
	bool index_put, synced_last;
	int64_t packs;
	const char *wrong;
};

/* F3: nothing but the index is put after the sync. */
static int watch_order(struct bad_driver *b, enum bad_op op, const char *name, void *ctx)
{
	struct order *o = ctx;
	(void)pthread_mutex_lock(&b->mu);
	if (op == BAD_SCHEDULE_PUT) {
		o->packs++;
		o->synced_last = false;
		if (o->index_put)
			o->wrong = "a pack after the index";
	} else if (op == BAD_SYNC)
		o->synced_last = true;
	else if (op == BAD_PUT && strncmp(name, "index/", 6) == 0) {
		o->index_put = true;
		if (!o->synced_last)
			o->wrong = "an index before the sync";
	}
	(void)pthread_mutex_unlock(&b->mu);
	return 0;
}

static void the_index_is_put_after_the_sync_of_all_packs(void **state)
{
	struct repo r;
	struct order o = {.wrong = NULL};
	(void)state;
	repo_make(&r, NULL);
	r.bad.hook = watch_order;
	r.bad.hook_ctx = &o;
	r.bad.delay = true;
	repo_store(&r, 0, 200);
	assert_true(o.index_put && o.packs > 3);
	assert_null(o.wrong);
	repo_free(&r);
}

/* ---- lanes, and drivers that misbehave ---- */

#define LANES 4
#define EACH 60

struct lane {
	struct repo *r;
	struct bk_store *s;
	int number, code;
	pthread_t thread;
};

/* Half of a lane's blocks are its own, half are everybody's. */
static void *run_lane(void *arg)
{
	struct lane *l = arg;
	for (uint64_t i = 0; l->code == 0 && i < EACH; i++) {
		uint64_t number = i % 2 == 0 ? 1000 + i : (uint64_t)(2000 + l->number * EACH) + i;
		l->code = repo_store_block(l->r, l->s, l->number, number, NULL, NULL);
	}
	return NULL;
}

/* What finish said, or the lane that failed. */
static int run_lanes(struct repo *r, struct sl_err *err)
{
	struct lane lanes[LANES];
	int rc = 0;
	struct bk_store *s = new_store(r, NULL, LANES);
	for (int i = 0; i < LANES; i++) {
		lanes[i] = (struct lane){.r = r, .s = s, .number = i};
		assert_int_equal(pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]), 0);
	}
	for (int i = 0; i < LANES; i++) {
		assert_int_equal(pthread_join(lanes[i].thread, NULL), 0);
		rc = rc != 0 ? rc : lanes[i].code;
	}
	int finished = sl__bk_store_finish(s, err);
	assert_true(rc == 0 || finished != 0); /* a lane that failed is no success of the whole */
	sl__bk_store_free(s);
	return finished;
}

static void expect_lanes(struct repo *r)
{
	struct bk_index *x = read_index(r);
	struct bk_reader *reader;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl__bk_reader_new(&reader, r->b, x, NULL), 0);
	for (int lane = 0; lane < LANES; lane++)
		for (uint64_t i = 0; i < EACH; i++) {
			uint64_t number = i % 2 == 0 ? 1000 + i : (uint64_t)(2000 + lane * EACH) + i;
			if (repo_read_block(r, reader, number, &err) != 0)
				fail_msg("%s", err.msg);
		}
	assert_int_equal(sl__bk_index_entries(x), EACH / 2 + LANES * EACH / 2);
	sl__bk_reader_free(reader);
	sl__bk_index_free(x);
}

/* No index file names a pack that is not there. */
static void expect_no_dangling_index(struct repo *r)
{
	struct bk_index *x = read_index(r);
	uint64_t counts[2] = {0, 0};
	assert_int_equal(sl__bk_index_packs(x, count_pack, counts), 0);
	assert_int_equal(counts[1], 0);
	sl__bk_index_free(x);
}

static void misbehave(struct bad_driver *b, uint64_t seed)
{
	b->rnd = seed;
	b->refuse_share = seed % 3 == 0 ? 40 : 0;
	b->throttle_share = seed % 5 == 0 ? 60 : 0;
	b->fail_share = seed % 2 == 0 ? (unsigned)(seed % 7) * 20 : 0;
	b->deny_share = seed % 7 == 0 ? 60 : 0;
	b->poison_share = seed % 11 == 0 ? 20 : 0;
	b->lie_share = seed % 13 == 0 ? 30 : 0;
	b->tear_share = seed % 17 == 0 ? 30 : 0;
	b->delay = seed % 2 == 1;
	b->inside = seed % 4 == 0;
	b->shards = seed % 3 == 1;
}

static void a_bad_driver_gets_everything_stored_or_the_store_says_so(void **state)
{
	double until = seconds_now() + test_seconds(1);
	uint64_t seed = test_number("SLUICE_SEED", 1), runs = 0, good = 0;
	(void)state;
	do {
		struct repo r;
		struct sl_err err = SL_ERR_INIT;
		struct crashfs *fs = crashfs_new(); /* memory: syncs cost nothing */
		struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
		crashfs_record(fs, false);
		repo_make(&r, &env);
		r.b->opts.max_retry_attempts = 4;
		misbehave(&r.bad, seed);
		int rc = run_lanes(&r, &err);
		bool lied = r.bad.lies + r.bad.torn != 0;
		if (rc == 0 ? lied : err.code != rc)
			fail_msg("SLUICE_SEED=%llu: %d, %s", (unsigned long long)seed, rc, err.msg);
		if (rc != 0 && !lied && r.bad.poisoned + r.bad.failures + r.bad.refused + r.bad.denied == 0)
			fail_msg("SLUICE_SEED=%llu: nothing was wrong, but %s", (unsigned long long)seed, err.msg);
		repo_reopen(&r);
		if (rc == 0)
			expect_lanes(&r);
		else
			expect_no_dangling_index(&r);
		good += rc == 0;
		repo_free(&r);
		crashfs_free(fs);
		seed++;
		runs++;
	} while (seconds_now() < until);
	printf("# %llu seeds, %llu of them ended well\n", (unsigned long long)runs, (unsigned long long)good);
	assert_true(runs < 20 || (good > 0 && good < runs));
}

static void a_driver_that_lies_is_found_out(void **state)
{
	(void)state;
	for (int tear = 0; tear < 2; tear++) {
		struct repo r;
		struct sl_err err = SL_ERR_INIT;
		repo_make(&r, NULL);
		r.bad.lie_share = tear ? 0 : 256;
		r.bad.tear_share = tear ? 256 : 0;
		assert_int_equal(run_lanes(&r, &err), SL_EIO);
		assert_non_null(strstr(err.msg, "packs/"));
		assert_int_equal(repo_count(&r.d, "index", NULL), 0);
		repo_free(&r);
	}
}

static void attempts_that_are_used_up_end_the_store_with_the_drivers_error(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	repo_make(&r, NULL);
	r.b->opts.max_retry_attempts = 3;
	r.bad.fail_share = 256;
	assert_int_equal(run_lanes(&r, &err), SL_EIO);
	assert_non_null(strstr(err.msg, "failed by the test"));
	assert_true(r.bad.failures >= 3);
	assert_int_equal(repo_count(&r.d, "index", NULL), 0);
	repo_free(&r);
}

/* A driver that completes nothing until the lanes wait for it: then they are stopped. */
struct hold {
	pthread_mutex_t mu;
	sl_driver_done_fn *done[64];
	void *ctx[64];
	int n;
	bool fails; /* at once, from now on */
	struct sl_driver_ops ops;
	sl_driver under;
	struct repo *r;
};

static int hold_put(void *driver, const char *name, const void *bytes, size_t len, sl_driver_done_fn *done, void *ctx,
		    struct sl_err *err)
{
	struct hold *h = driver;
	(void)name, (void)bytes, (void)len;
	(void)pthread_mutex_lock(&h->mu);
	bool fails = h->fails;
	if (!fails) {
		h->done[h->n] = done;
		h->ctx[h->n++] = ctx;
	}
	(void)pthread_mutex_unlock(&h->mu);
	return fails ? sl_err_set(err, SL_EIO, "too late") : 0;
}

static void *stop_when_held(void *arg)
{
	struct hold *h = arg;
	struct sl_backup_progress p = {.struct_size = sizeof(p)};
	for (int held = 0; held == 0;) { /* more than the backlog's limit */
		(void)pthread_mutex_lock(&h->mu);
		held = h->n;
		(void)pthread_mutex_unlock(&h->mu);
		(void)sched_yield();
	}
	sl_backup_stop(h->r->b);
	sl_backup_get_progress(h->r->b, &p);
	return NULL;
}

static void *answer_all(void *arg)
{
	struct hold *h = arg;
	struct sl_err err = SL_ERR_INIT;
	(void)sl_err_set(&err, SL_EIO, "too late");
	(void)pthread_mutex_lock(&h->mu);
	h->fails = true;
	(void)pthread_mutex_unlock(&h->mu);
	for (int i = 0; i < h->n; i++)
		h->done[i](&err, h->ctx[i]);
	return NULL;
}

static void a_stop_ends_those_who_wait_for_the_driver(void **state)
{
	struct repo r;
	struct hold h = {.n = 0};
	struct sl_err err = SL_ERR_INIT;
	pthread_t stopper, answerer;
	int rc = 0;
	(void)state;
	repo_make(&r, NULL);
	h.r = &r;
	h.ops = *r.d.ops;
	h.ops.schedule_put = hold_put;
	h.ops.is_shard_ready = NULL;
	h.ops.wait_for_any_shard_ready = NULL;
	h.ops.driver_buffered_bytes = NULL;
	h.ops.on_concurrency_limit_changed = NULL;
	(void)pthread_mutex_init(&h.mu, NULL);
	sl_driver real = r.b->driver;
	r.b->driver = (sl_driver){.ops = &h.ops, .driver = &h};
	struct bk_store *s = new_store(&r, NULL, 1);
	assert_int_equal(pthread_create(&stopper, NULL, stop_when_held, &h), 0);
	for (uint64_t i = 0; rc == 0 && i < 10000; i++)
		rc = repo_store_block(&r, s, 0, i, NULL, &err);
	assert_int_equal(rc, SL_ECANCELLED);
	assert_int_equal(pthread_join(stopper, NULL), 0);
	assert_int_equal(pthread_create(&answerer, NULL, answer_all, &h), 0);
	assert_int_equal(sl__bk_store_finish(s, &err), SL_ECANCELLED);
	sl__bk_store_free(s);
	assert_int_equal(pthread_join(answerer, NULL), 0);
	r.b->driver = real;
	repo_free(&r);
}

static void a_store_that_was_stopped_accepts_no_more_blocks(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	(void)state;
	repo_make(&r, NULL);
	struct bk_store *s = new_store(&r, NULL, 1);
	assert_int_equal(repo_store_block(&r, s, 0, 1, NULL, &err), 0);
	sl_backup_stop(r.b);
	assert_int_equal(repo_store_block(&r, s, 0, 2, NULL, &err), SL_ECANCELLED);
	assert_int_equal(sl__bk_store_finish(s, &err), SL_ECANCELLED);
	sl__bk_store_free(s);
	assert_int_equal(repo_count(&r.d, "index", NULL), 0);
	repo_free(&r);
}

/* ---- what an interrupted one leaves ---- */

static void packs_without_an_index_are_taken_in(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	char name[SL_DRIVER_NAME_BYTES], whole[SL_DRIVER_NAME_BYTES + 8];
	struct bk_marks seen = {.n = 0};
	struct bk_index *x;
	bool is_new;
	(void)state;
	repo_make(&r, NULL);
	repo_store(&r, 0, 100);
	assert_int_equal(repo_count(&r.d, "index", name), 1);
	(void)snprintf(whole, sizeof(whole), "index/%s", name);
	assert_int_equal(r.d.ops->remove(r.d.driver, whole, NULL), 0);
	assert_int_equal(read_all(&r, 0, 100, &err), 0); /* without writing anything */
	assert_int_equal(repo_count(&r.d, "index", NULL), 0);
	int64_t syncs = r.bad.calls[BAD_SYNC];
	assert_int_equal(sl__bk_index_for_writing(r.b, &seen, &x, &err), 0);
	assert_int_equal(repo_count(&r.d, "index", NULL), 1);
	assert_int_equal(r.bad.calls[BAD_SYNC], syncs + 1);
	struct bk_store *s = new_store(&r, x, 1);
	for (uint64_t i = 0; i < 100; i++) {
		assert_int_equal(repo_store_block(&r, s, 0, i, &is_new, &err), 0);
		assert_false(is_new);
	}
	assert_int_equal(sl__bk_store_finish(s, &err), 0);
	sl__bk_store_free(s);
	sl__bk_index_free(x);
	repo_free(&r);
}

/* F5 */
static void a_create_does_not_count_on_packs_of_marks_it_has_seen(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	struct bk_ids packs;
	struct bk_marks seen;
	struct bk_index *x;
	char mark[BK_NAME_HEX];
	bool is_new;
	(void)state;
	repo_make(&r, NULL);
	repo_store(&r, 0, 50);
	assert_int_equal(sl__bk_list_packs(r.b, &packs, NULL, NULL, &err), 0);
	assert_int_equal(sl__bk_mark_put(r.b, &packs, mark, &err), 0);
	assert_int_equal(sl__bk_marks_load(r.b, &seen, &err), 0);
	assert_int_equal(sl__bk_index_for_writing(r.b, &seen, &x, &err), 0);
	struct bk_store *s = new_store(&r, x, 1);
	for (uint64_t i = 0; i < 50; i++) {
		assert_int_equal(repo_store_block(&r, s, 0, i, &is_new, &err), 0);
		assert_true(is_new);
	}
	assert_int_equal(sl__bk_store_finish(s, &err), 0);
	sl__bk_store_free(s);
	sl__bk_index_free(x);
	for (size_t i = 0; i < packs.n; i++) { /* as a prune does then */
		char name[SL_DRIVER_NAME_BYTES];
		sl__bk_pack_name(&packs.ids[i], name);
		assert_int_equal(r.d.ops->remove(r.d.driver, name, NULL), 0);
	}
	assert_int_equal(read_all(&r, 0, 50, &err), 0);
	sl__bk_marks_fini(&r.b->env, &seen);
	sl__bk_ids_fini(&r.b->env, &packs);
	repo_free(&r);
}

static void damaged_indexes_and_packs_are_skipped(void **state)
{
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	char name[SL_DRIVER_NAME_BYTES], whole[SL_DRIVER_NAME_BYTES + 8];
	struct bk_ids packs;
	uint64_t *sizes;
	(void)state;
	repo_make(&r, NULL);
	repo_store(&r, 0, 100);
	assert_int_equal(repo_count(&r.d, "index", name), 1);
	(void)snprintf(whole, sizeof(whole), "index/%s", name);
	repo_damage(&r.d, whole, 20);
	assert_int_equal(read_all(&r, 0, 100, &err), 0);
	assert_int_equal(sl__bk_list_packs(r.b, &packs, &sizes, NULL, &err), 0);
	sl__bk_pack_name(&packs.ids[0], whole);
	repo_damage(&r.d, whole, (size_t)sizes[0] - 10);
	sl__bk_index_free(read_index(&r));
	assert_int_not_equal(read_all(&r, 0, 100, &err), 0);
	sl__free(&r.b->env, sizes);
	sl__bk_ids_fini(&r.b->env, &packs);
	repo_free(&r);
}

static void note_stray(const char *name, void *ctx)
{
	(void)strcat(strcat(ctx, name), " ");
}

static void names_that_are_no_packs_are_strays(void **state)
{
	struct repo r;
	char strays[512] = "";
	struct bk_ids packs;
	(void)state;
	repo_make(&r, NULL);
	repo_store(&r, 0, 5);
	assert_int_equal(r.d.ops->put(r.d.driver, "packs/stray", "x", 1, SL_DRIVER_NEW, NULL), 0);
	assert_int_equal(r.d.ops->put(r.d.driver, "packs/00/short", "x", 1, SL_DRIVER_NEW, NULL), 0);
	assert_int_equal(r.d.ops->put(r.d.driver,
				      "packs/00/"
				      "ff00000000000000000000000000000000000000000000000000000000000000",
				      "x", 1, SL_DRIVER_NEW, NULL),
			 0);
	assert_int_equal(sl__bk_list_packs(r.b, &packs, NULL, &(struct bk_strays){note_stray, strays}, NULL), 0);
	assert_int_equal(packs.n, 1);
	assert_non_null(strstr(strays, "packs/stray "));
	assert_non_null(strstr(strays, "packs/00/short "));
	assert_non_null(strstr(strays, "packs/00/ff0"));
	sl__bk_ids_fini(&r.b->env, &packs);
	repo_free(&r);
}

/* ---- full disks, failing memory ---- */

static void a_full_disk_is_reported_and_what_was_written_is_used_later(void **state)
{
	struct crashfs *fs = crashfs_new();
	struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	struct bk_marks seen = {.n = 0};
	struct bk_index *x;
	(void)state;
	repo_make(&r, &env);
	r.b->opts.max_retry_attempts = 2;
	crashfs_quota(fs, crashfs_used(fs) + 3000000);
	assert_int_equal(run_lanes(&r, &err), SL_ENOSPC);
	assert_non_null(strstr(err.msg, "No space left"));
	assert_int_equal(repo_count(&r.d, "index", NULL), 0);
	uint64_t packs = count_packs(&r);
	assert_true(packs > 0);
	crashfs_quota(fs, SIZE_MAX);
	repo_reopen(&r);
	assert_int_equal(sl__bk_index_for_writing(r.b, &seen, &x, &err), 0);
	assert_true(sl__bk_index_entries(x) > 0);
	sl__bk_index_free(x);
	assert_int_equal(run_lanes(&r, &err), 0);
	repo_free(&r);
	crashfs_free(fs);
}

/* A create, without files: session, index, blocks, snapshot. */
static int create_like(struct repo *r, struct sl_err *err)
{
	struct bk_session *session;
	struct bk_index *index = NULL;
	struct bk_store *s = NULL;
	int rc = sl__bk_session_begin(r->b, &session, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_index_for_writing(r->b, &session->seen, &index, err);
	if (rc == 0)
		rc = sl__bk_store_new(&s, r->b, index, 1, err);
	for (uint64_t i = 0; rc == 0 && i < 8; i++)
		rc = repo_store_block(r, s, 0, i, NULL, err);
	if (rc == 0)
		rc = sl__bk_store_finish(s, err);
	sl__bk_store_free(s);
	sl__bk_index_free(index);
	if (rc == 0)
		rc = sl__bk_session_publish(session, "{}", 2, err);
	sl__bk_session_end(session);
	return rc;
}

/* Whether a call was left to fail. */
static bool fail_call(int64_t n, unsigned ops, int errnum)
{
	struct crashfs *fs = crashfs_new();
	struct sl_env base = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	struct fault f;
	struct repo r;
	struct sl_err err = SL_ERR_INIT;
	crashfs_record(fs, false);
	fault_init(&f, &base);
	struct sl_env env = fault_env(&f, NULL);
	repo_make(&r, &env);
	r.b->opts.max_retry_attempts = 1;
	fault_arm_io(&f, n, FAULT_ONCE, errnum, ops);
	int rc = create_like(&r, &err);
	fault_disarm(&f);
	bool injected = fault_io_failed(&f) != 0;
	assert_int_equal(rc, err.code);
	assert_true(rc == 0 || injected);
	repo_reopen(&r);
	int snapshots = repo_count(&r.d, "snapshots", NULL);
	assert_true(snapshots == 1 || rc != 0);
	if (snapshots == 1) /* 1 with an error: the last sync failed */
		assert_int_equal(read_all(&r, 0, 8, &err), 0);
	expect_no_dangling_index(&r);
	repo_free(&r);
	assert_int_equal(fault_open_fds(&f), 0);
	assert_int_equal(fault_live_allocs(&f), 0);
	fault_fini(&f);
	crashfs_free(fs);
	return injected;
}

static void every_failing_call_is_reported_and_leaves_no_snapshot_without_its_blocks(void **state)
{
	unsigned many = FAULT_OP(FAULT_LIST) | FAULT_OP(FAULT_STAT); /* of which some are enough */
	int64_t n = 1, lists = 0;
	(void)state;
	while (fail_call(n, FAULT_ALL_OPS & ~many, n % 2 == 0 ? EIO : ENOSPC))
		n++;
	for (int64_t at = 1; fail_call(at, many, EIO); at += 61)
		lists++;
	printf("# %lld calls failed, one after another, and %lld looks\n", (long long)n - 1, (long long)lists);
}

static void every_failing_allocation_is_reported_and_nothing_is_left(void **state)
{
	struct fault f;
	int64_t n = 1;
	(void)state;
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, NULL);
	for (bool injected = true; injected; n++) {
		struct repo r;
		struct sl_err err = SL_ERR_INIT;
		struct bk_store *s = NULL;
		sl_backup *b;
		repo_make(&r, NULL);
		struct sl_backup_opts opts = r.opts;
		opts.env = &env;
		assert_int_equal(sl_backup_open(&b, &r.d, &opts, NULL), 0);
		sl_backup *real = r.b;
		r.b = b;
		struct bk_id id = repo_block_id(b, 5);
		uint8_t bytes[REPO_BLOCK_MAX];
		size_t len = repo_block(5, bytes, sizeof(bytes));
		fault_arm_mem(&f, n, FAULT_ONCE);
		int rc = sl__bk_store_new(&s, b, NULL, 2, &err);
		if (rc == 0)
			rc = sl__bk_store_block(s, 0, &(struct bk_block){&id, bytes, len}, NULL, &err);
		if (rc == 0)
			rc = sl__bk_store_finish(s, &err);
		fault_disarm(&f);
		injected = fault_mem_failed(&f) != 0;
		sl__bk_store_free(s);
		assert_true(rc == 0 || (injected && rc == SL_ENOMEM && err.code == rc));
		sl_backup_close(b);
		r.b = real;
		assert_int_equal(fault_live_allocs(&f), 0);
		if (rc == 0)
			assert_int_equal(read_all(&r, 5, 1, &err), 0);
		repo_free(&r);
	}
	fault_fini(&f);
	printf("# %lld allocations failed, one after another\n", (long long)n - 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_are_read_back_after_finish),
		cmocka_unit_test(what_the_repository_has_is_not_stored_again),
		cmocka_unit_test(the_index_is_put_after_the_sync_of_all_packs),
		cmocka_unit_test(a_bad_driver_gets_everything_stored_or_the_store_says_so),
		cmocka_unit_test(a_driver_that_lies_is_found_out),
		cmocka_unit_test(attempts_that_are_used_up_end_the_store_with_the_drivers_error),
		cmocka_unit_test(a_stop_ends_those_who_wait_for_the_driver),
		cmocka_unit_test(a_store_that_was_stopped_accepts_no_more_blocks),
		cmocka_unit_test(packs_without_an_index_are_taken_in),
		cmocka_unit_test(a_create_does_not_count_on_packs_of_marks_it_has_seen),
		cmocka_unit_test(damaged_indexes_and_packs_are_skipped),
		cmocka_unit_test(names_that_are_no_packs_are_strays),
		cmocka_unit_test(a_full_disk_is_reported_and_what_was_written_is_used_later),
		cmocka_unit_test(every_failing_call_is_reported_and_leaves_no_snapshot_without_its_blocks),
		cmocka_unit_test(every_failing_allocation_is_reported_and_nothing_is_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
