/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power loss under repositories (F3). Two processes store blocks and publish snapshots on a crash filesystem; some of
 * them are cut off before their sync or their index, and what they leave is used by the next. For points of the history
 * states that a loss could leave are rebuilt, and in all of them:
 *
 *  1. Every snapshot that was published is there.
 *  2. Every block of every snapshot that is there is read back right, and an index file names it: no pack has to be
 *     taken in for it.
 *
 * SLUICE_CRASH_STATES=N: how many states; the other variables are in support/crashloop.h.
 */
#include "backup/repo_kit.h"
#include "support/crashloop.h"

#define ROUNDS 4
#define NUMBERS 24
#define STATES_PER_POINT 6

struct published {
	char id[BK_NAME_HEX];
	size_t point;
};

struct run {
	struct crashfs *fs;
	uint64_t rnd, seed;
	uint64_t numbers[NUMBERS]; /* of short blocks */
	struct published published[ROUNDS];
	int n;
};

static uint64_t next_random(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static void choose_numbers(struct run *r)
{
	uint8_t bytes[REPO_BLOCK_MAX];
	int found = 0;
	for (uint64_t i = 0; found < NUMBERS; i++) {
		size_t len = repo_block(i, bytes, sizeof(bytes));
		if (len > 8 && len < 1000)
			r->numbers[found++] = i;
	}
}

/* ---- a run ---- */

enum { NOT_CUT, BEFORE_SYNC, BEFORE_INDEX };
struct cut {
	uint64_t where; /* one of these */
	bool finishing;
};

static int cut_off(struct bad_driver *b, enum bad_op op, const char *name, void *ctx)
{
	const struct cut *c = ctx;
	(void)b;
	if (!c->finishing)
		return 0;
	if (c->where == BEFORE_SYNC && op == BAD_SYNC)
		return SL_EIO;
	return c->where == BEFORE_INDEX && op == BAD_PUT && strncmp(name, "index/", 6) == 0 ? SL_EIO : 0;
}

/* Store some blocks; refs get them. */
static int store_some(struct run *r, struct repo *repo, struct bk_index *index, struct cut *cut, struct bk_ref *refs,
		      size_t *n)
{
	struct bk_store *s;
	uint8_t bytes[REPO_BLOCK_MAX];
	assert_int_equal(sl__bk_store_new(&s, repo->b, index, 2, NULL), 0);
	for (int i = 0; i < NUMBERS; i++) {
		if (next_random(&r->rnd) % 3 == 0)
			continue;
		struct bk_ref *ref = &refs[(*n)++];
		ref->id = repo_block_id(repo->b, r->numbers[i]);
		ref->len = (uint32_t)repo_block(r->numbers[i], bytes, sizeof(bytes));
		assert_int_equal(
			sl__bk_store_block(s, i % 2, &(struct bk_block){&ref->id, bytes, ref->len}, NULL, NULL), 0);
	}
	cut->finishing = true;
	int rc = sl__bk_store_finish(s, NULL);
	cut->finishing = false;
	sl__bk_store_free(s);
	return rc;
}

static void publish(struct run *r, struct repo *repo, struct bk_session *session, struct bk_ref *refs, size_t n)
{
	const char *const paths[] = {"/data"};
	struct bk_snapshot s = {.info = {.struct_size = sizeof(s.info),
					 .host = "host",
					 .parent = "",
					 .paths = paths,
					 .n_paths = 1,
					 .version = "test"},
				.manifest = refs,
				.n_manifest = n};
	char *json;
	size_t len;
	assert_int_equal(sl__bk_snapshot_json(&repo->b->env, &s, &json, &len, NULL), 0);
	assert_int_equal(sl__bk_session_publish(session, json, len, NULL), 0);
	sl__free(&repo->b->env, json);
	memcpy(r->published[r->n].id, session->id, BK_NAME_HEX);
	r->published[r->n++].point = crashfs_point(r->fs);
}

static void round_of(struct run *r, struct repo *repo)
{
	struct bk_session *session;
	struct bk_index *index;
	struct bk_ref refs[NUMBERS];
	struct cut cut = {.where = next_random(&r->rnd) % 3};
	size_t n = 0;
	repo->bad.hook = cut_off;
	repo->bad.hook_ctx = &cut;
	assert_int_equal(sl__bk_session_begin(repo->b, &session, NULL), 0);
	assert_int_equal(sl__bk_index_for_writing(repo->b, &session->seen, &index, NULL), 0);
	if (store_some(r, repo, index, &cut, refs, &n) == 0)
		publish(r, repo, session, refs, n);
	sl__bk_index_free(index);
	sl__bk_session_end(session);
}

static void run_begin(struct run *r, uint64_t seed)
{
	struct repo repos[2];
	*r = (struct run){.fs = crashfs_new(), .seed = seed, .rnd = seed * 0x9E3779B97F4A7C15u + 1};
	struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = r->fs};
	choose_numbers(r);
	repo_make(&repos[0], &env);
	repo_place(&repos[1], &env);
	repos[1].b = NULL;
	assert_int_equal(sl_backup_open(&repos[1].b, &repos[1].d, &repos[1].opts, NULL), 0);
	crashfs_settle(r->fs);
	for (int i = 0; i < ROUNDS; i++)
		round_of(r, &repos[next_random(&r->rnd) % 2]);
	repo_free(&repos[1]);
	repo_free(&repos[0]);
}

/* ---- what is there ---- */

static bool is_there(const struct bk_id *pack, void *ctx)
{
	return sl__bk_ids_has(ctx, pack);
}

/* By index files alone. */
static const char *judge_snapshot(sl_backup *b, struct bk_index *index, const char *id)
{
	struct bk_snapshot s;
	struct bk_reader *reader;
	const uint8_t *bytes;
	const char *why = NULL;
	if (sl__bk_snapshot_load(b, id, &s, NULL) != 0)
		return "a snapshot cannot be read";
	assert_int_equal(sl__bk_reader_new(&reader, b, index, NULL), 0);
	for (size_t i = 0; why == NULL && i < s.n_manifest; i++)
		if (sl__bk_read_block(reader, &s.manifest[i].id, s.manifest[i].len, &bytes, NULL) != 0)
			why = "a block of a snapshot is missing";
	sl__bk_reader_free(reader);
	sl__bk_snapshot_fini(&b->env, &s);
	return why;
}

static const char *judge_all(const struct run *r, sl_backup *b, size_t point)
{
	struct bk_ids packs;
	struct bk_index *index;
	char(*ids)[BK_NAME_HEX];
	size_t n;
	const char *why = NULL;
	assert_int_equal(sl__bk_list_packs(b, &packs, NULL, NULL, NULL), 0);
	assert_int_equal(
		sl__bk_index_load(&index,
				  &(struct bk_index_from){&b->env, &b->keys, &b->driver, is_there, NULL, &packs}, NULL),
		0);
	assert_int_equal(sl__bk_snapshot_ids(b, &ids, &n, NULL), 0);
	for (size_t i = 0; why == NULL && i < n; i++)
		why = judge_snapshot(b, index, ids[i]);
	for (int i = 0; why == NULL && i < r->n && r->published[i].point <= point; i++) {
		bool found = false;
		for (size_t k = 0; k < n; k++)
			found |= strcmp(ids[k], r->published[i].id) == 0;
		why = found ? NULL : "a published snapshot is gone";
	}
	sl__free(&b->env, ids);
	sl__bk_index_free(index);
	sl__bk_ids_fini(&b->env, &packs);
	return why;
}

static const char *judge(const void *run, struct crashfs *state, size_t point)
{
	const struct run *r = run;
	struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = state};
	struct sl_driver_local_opts driver_opts = {SL_DRIVER_LOCAL_OPTS_INIT, .env = &env};
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .env = &env};
	sl_driver d;
	sl_backup *b;
	assert_int_equal(sl_driver_local_open(&d, "/repo", &driver_opts, NULL), 0);
	assert_int_equal(sl_backup_open(&b, &d, &opts, NULL), 0);
	const char *why = judge_all(r, b, point);
	sl_backup_close(b);
	sl_driver_close(&d);
	return why;
}

static void a_power_loss_leaves_no_snapshot_without_its_blocks(void **state)
{
	struct crashloop l = crashloop_begin("SLUICE_CRASH_STATES", NULL);
	(void)state;
	do {
		struct run r;
		run_begin(&r, l.seed);
		crashloop_judge(&l, r.fs, STATES_PER_POINT, judge, &r);
		crashfs_free(r.fs);
	} while (crashloop_continues(&l));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_power_loss_leaves_no_snapshot_without_its_blocks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
