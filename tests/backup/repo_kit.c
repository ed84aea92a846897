/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/repo_kit.h"

#define BLOCK_MAX REPO_BLOCK_MAX

void repo_place(struct repo *r, const struct sl_env *env)
{
	struct sl_err err = SL_ERR_INIT;
	sl_driver under;
	memset(r, 0, sizeof(*r));
	assert_int_equal(sl__env_init(&r->env, env, NULL), 0);
	if (env != NULL && env->io != NULL)
		r->path = "/repo";
	else {
		place_make(&r->place);
		r->path = r->place.path;
	}
	struct sl_driver_local_opts opts = {SL_DRIVER_LOCAL_OPTS_INIT, .env = &r->env, .create = SL_ON};
	if (sl_driver_local_open(&under, r->path, &opts, &err) != 0)
		fail_msg("%s", err.msg);
	bad_driver_init(&r->bad, &under, 1);
	r->d = bad_driver_handle(&r->bad);
	r->opts =
		(struct sl_backup_opts){SL_BACKUP_OPTS_INIT,    .env = &r->env,      .encrypt = SL_OFF,
					.pack_bytes = 64 << 10, .retry_first_ms = 1, .backlog_limit_bytes = 256 << 10};
}

static void open_it(struct repo *r)
{
	struct sl_err err = SL_ERR_INIT;
	if (sl_backup_open(&r->b, &r->d, &r->opts, &err) != 0)
		fail_msg("%s", err.msg);
}

void repo_make(struct repo *r, const struct sl_env *env)
{
	struct sl_err err = SL_ERR_INIT;
	repo_place(r, env);
	if (sl_backup_init(&r->d, &r->opts, &err) != 0)
		fail_msg("%s", err.msg);
	open_it(r);
}

void repo_free(struct repo *r)
{
	sl_backup_close(r->b);
	bad_driver_fini(&r->bad);
	if (r->place.path[0] != '\0')
		place_remove(&r->place);
}

void repo_reopen(struct repo *r)
{
	struct sl_err err = SL_ERR_INIT;
	sl_driver under;
	struct sl_driver_local_opts opts = {SL_DRIVER_LOCAL_OPTS_INIT, .env = &r->env};
	sl_backup_close(r->b);
	bad_driver_fini(&r->bad);
	if (sl_driver_local_open(&under, r->path, &opts, &err) != 0)
		fail_msg("%s", err.msg);
	bad_driver_init(&r->bad, &under, 1);
	open_it(r);
}

/* ---- blocks ---- */

static uint64_t mix(uint64_t *s)
{
	uint64_t z = *s += 0x9E3779B97F4A7C15u;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

size_t repo_block(uint64_t number, uint8_t *out, size_t cap)
{
	uint64_t rnd = number + 1;
	bool is_long = mix(&rnd) % 16 == 0; /* so that it gets its own frame, and its own pack */
	size_t n = (size_t)(is_long ? BK_SOLID_BELOW + mix(&rnd) % (BLOCK_MAX - BK_SOLID_BELOW) : mix(&rnd) % 2000);
	assert_true(n <= cap);
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)('0' + (i / 7 + number) % 16);
	for (size_t i = 0; (is_long || number % 2 == 0) && i + 8 <= n; i += 8)
		memcpy(out + i, &(uint64_t){mix(&rnd)}, 8);
	if (n >= 8)
		memcpy(out, &number, 8);
	return n;
}

struct bk_id repo_block_id(sl_backup *b, uint64_t number)
{
	uint8_t bytes[BLOCK_MAX];
	struct bk_hasher *h;
	struct bk_id id;
	size_t n = repo_block(number, bytes, sizeof(bytes));
	assert_int_equal(sl__bk_hasher_new(&h, &b->env, &b->keys, NULL), 0);
	assert_int_equal(sl__bk_hash(h, bytes, n, &id, NULL), 0);
	sl__bk_hasher_free(h);
	return id;
}

int repo_store_block(struct repo *r, struct bk_store *s, int lane, uint64_t number, bool *is_new, struct sl_err *err)
{
	uint8_t bytes[BLOCK_MAX];
	size_t n = repo_block(number, bytes, sizeof(bytes));
	struct bk_id id = repo_block_id(r->b, number);
	return sl__bk_store_block(s, lane, &(struct bk_block){&id, bytes, n}, is_new, err);
}

int repo_read_block(struct repo *r, struct bk_reader *reader, uint64_t number, struct sl_err *err)
{
	uint8_t bytes[BLOCK_MAX];
	const uint8_t *got = NULL;
	size_t n = repo_block(number, bytes, sizeof(bytes));
	struct bk_id id = repo_block_id(r->b, number);
	int rc = sl__bk_read_block(reader, &id, (uint32_t)n, &got, err);
	if (rc == 0)
		assert_memory_equal(got, bytes, n);
	return rc;
}

void repo_store(struct repo *r, uint64_t first, uint64_t n)
{
	struct bk_store *s;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl__bk_store_new(&s, r->b, NULL, 1, &err), 0);
	for (uint64_t i = 0; i < n; i++)
		if (repo_store_block(r, s, 0, first + i, NULL, &err) != 0)
			fail_msg("%s", err.msg);
	if (sl__bk_store_finish(s, &err) != 0)
		fail_msg("%s", err.msg);
	sl__bk_store_free(s);
}

/* ---- snapshots and objects ---- */

int repo_publish(struct repo *r, const char *host, int64_t time_ms, char id[BK_NAME_HEX], struct sl_err *err)
{
	struct bk_session *session;
	const char *const paths[] = {"/data"};
	struct bk_snapshot s = {.info = {.struct_size = sizeof(s.info),
					 .time_ms = time_ms,
					 .host = host,
					 .parent = "",
					 .paths = paths,
					 .n_paths = 1,
					 .version = "test"}};
	char *json = NULL;
	size_t len = 0;
	int rc = sl__bk_session_begin(r->b, &session, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_snapshot_json(&r->b->env, &s, &json, &len, err);
	if (rc == 0)
		rc = sl__bk_session_publish(session, json, len, err);
	if (rc == 0 && id != NULL)
		memcpy(id, session->id, BK_NAME_HEX);
	sl__free(&r->b->env, json);
	sl__bk_session_end(session);
	return rc;
}

struct counted {
	int n;
	char *last;
};

static int count_one(const char *name, const struct sl_driver_stat *stat, void *ctx)
{
	struct counted *c = ctx;
	(void)stat;
	c->n++;
	if (c->last != NULL)
		(void)snprintf(c->last, SL_DRIVER_NAME_BYTES, "%s", name);
	return 0;
}

int repo_count(const sl_driver *d, const char *folder, char last[SL_DRIVER_NAME_BYTES])
{
	struct counted c = {.last = last};
	assert_int_equal(d->ops->list(d->driver, folder, count_one, &c, NULL), 0);
	return c.n;
}

void repo_damage(const sl_driver *d, const char *name, size_t offset)
{
	static uint8_t bytes[4 << 20];
	size_t n = 0;
	assert_int_equal(d->ops->get(d->driver, name, 0, bytes, sizeof(bytes), &n, NULL), 0);
	assert_true(offset < n);
	bytes[offset] ^= 0x10;
	assert_int_equal(d->ops->put(d->driver, name, bytes, n, SL_DRIVER_REPLACE, NULL), 0);
}
