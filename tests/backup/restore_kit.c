/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/restore_kit.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <time.h>
#include <unistd.h>

#include "backup/restore/target.h"

#define SECRET "not to be touched"

const char *rk_path(const struct rk *k, const char *path, char out[512])
{
	(void)snprintf(out, 512, "%s/%s", k->dir, path);
	return out;
}

void rk_write(const struct rk *k, const char *path, const char *text)
{
	char full[512];
	FILE *f = fopen(rk_path(k, path, full), "we");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
	assert_int_equal(fclose(f), 0);
}

static void open_builders(struct rk *k)
{
	assert_int_equal(sl__bk_hasher_new(&k->hasher, &k->env, &k->b->keys, NULL), 0);
	assert_int_equal(
		sl__bk_pack_new(&k->pack, &k->env,
				&(struct bk_pack_opts){.keys = &k->b->keys, .level = 3, .pack_bytes = 8u << 20}, NULL),
		0);
	assert_int_equal(sl__bk_index_builder_new(&k->index, &k->env, &k->b->keys, NULL), 0);
	sl__buf_init(&k->block, &k->env);
}

static void open_backup(struct rk *k, const struct sl_env *env, int threads)
{
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .env = env, .threads = threads};
	assert_int_equal(sl_backup_open(&k->b, &k->driver, &opts, &k->err), 0);
}

void rk_begin(struct rk *k, const struct sl_env *env, const char *passphrase)
{
	const char *tmp = getenv("TMPDIR");
	memset(k, 0, sizeof(*k));
	assert_int_equal(sl__env_init(&k->env, NULL, NULL), 0);
	(void)snprintf(k->dir, sizeof(k->dir), "%.150s/sl-restore-XXXXXX", tmp != NULL ? tmp : "/tmp");
	assert_non_null(mkdtemp(k->dir));
	(void)snprintf(k->repo, sizeof(k->repo), "%s/repo", k->dir);
	(void)snprintf(k->to, sizeof(k->to), "%s/to", k->dir);
	(void)snprintf(k->outside, sizeof(k->outside), "%s/outside", k->dir);
	assert_int_equal(mkdir(k->outside, 0755), 0);
	rk_write(k, "outside/secret", SECRET);
	struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	assert_int_equal(utimensat(AT_FDCWD, k->outside, old, 0), 0);
	struct sl_driver_local_opts local = {SL_DRIVER_LOCAL_OPTS_INIT, .create = SL_ON};
	assert_int_equal(sl_driver_local_open(&k->driver, k->repo, &local, NULL), 0);
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT,
				      .env = env,
				      .passphrase = passphrase,
				      .passphrase_len = passphrase != NULL ? strlen(passphrase) : 0,
				      .encrypt = passphrase != NULL ? SL_ON : SL_OFF,
				      .threads = 2};
	assert_int_equal(sl_backup_init(&k->driver, &opts, &k->err), 0);
	assert_int_equal(sl_backup_open(&k->b, &k->driver, &opts, &k->err), 0);
	open_builders(k);
}

void rk_reopen(struct rk *k, const struct sl_env *env, int threads)
{
	sl_backup_close(k->b);
	k->b = NULL;
	open_backup(k, env, threads);
}

static int remove_one(const char *path, SL_UNUSED const struct stat *st, SL_UNUSED int type, SL_UNUSED struct FTW *ftw)
{
	return remove(path);
}

void rk_end(struct rk *k)
{
	sl__bk_hasher_free(k->hasher);
	sl__bk_pack_free(k->pack);
	sl__bk_index_builder_free(k->index);
	sl__buf_fini(&k->block);
	sl_backup_close(k->b);
	sl_driver_close(&k->driver);
	(void)nftw(k->dir, remove_one, 32, FTW_DEPTH | FTW_PHYS);
}

/* ---- making a snapshot ---- */

struct bk_ref rk_block(struct rk *k, const void *bytes, size_t len)
{
	struct bk_ref ref = {.len = (uint32_t)len};
	bool full;
	assert_int_equal(sl__bk_hash(k->hasher, bytes, len, &ref.id, NULL), 0);
	assert_int_equal(sl__bk_pack_add(k->pack, &(struct bk_block){&ref.id, bytes, len}, &full, NULL), 0);
	return ref;
}

static void put_varint(struct sl__buf *b, uint64_t v)
{
	do {
		uint8_t byte = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		(void)sl__buf_append(b, &byte, 1);
		v >>= 7;
	} while (v > 0);
}

static void put_zigzag(struct sl__buf *b, int64_t v)
{
	put_varint(b, ((uint64_t)v << 1) ^ (uint64_t)(v >> 63));
}

static void put_bytes(struct sl__buf *b, const void *bytes, size_t n)
{
	put_varint(b, n);
	(void)sl__buf_append(b, bytes, n);
}

static void put_contents(struct sl__buf *b, const struct bk_entry *e)
{
	uint64_t end = 0;
	if ((e->flags & BK_ENTRY_SPARSE) != 0) {
		put_varint(b, e->n_extents);
		for (size_t i = 0; i < e->n_extents; i++) {
			put_varint(b, e->extents[i].offset - end);
			put_varint(b, e->extents[i].length);
			end = e->extents[i].offset + e->extents[i].length;
		}
	}
	put_varint(b, e->n_refs);
	for (size_t i = 0; i < e->n_refs; i++) {
		(void)sl__buf_append(b, e->refs[i].id.b, BK_ID_BYTES);
		put_varint(b, e->refs[i].len);
	}
}

static void put_entry(struct sl__buf *b, const struct bk_entry *e)
{
	const uint8_t head[2] = {(uint8_t)e->type, e->flags};
	const uint64_t numbers[] = {e->dev, e->ino, e->nlink, e->size, e->rdev};
	(void)sl__buf_append(b, head, 2);
	put_varint(b, 0);
	put_bytes(b, e->path, e->path_len);
	put_varint(b, e->mode);
	put_varint(b, e->uid);
	put_varint(b, e->gid);
	put_zigzag(b, e->mtime.tv_sec);
	put_varint(b, (uint64_t)e->mtime.tv_nsec);
	put_zigzag(b, e->ctime.tv_sec);
	put_varint(b, (uint64_t)e->ctime.tv_nsec);
	for (size_t i = 0; i < SL_COUNT(numbers); i++)
		put_varint(b, numbers[i]);
	if (e->type == SL_BACKUP_SYMLINK || e->type == SL_BACKUP_HARDLINK)
		put_bytes(b, e->target, e->target_len);
	put_varint(b, e->n_xattrs);
	for (size_t i = 0; i < e->n_xattrs; i++) {
		put_bytes(b, e->xattrs[i].name, strlen(e->xattrs[i].name));
		put_bytes(b, e->xattrs[i].value, e->xattrs[i].len);
	}
	if (e->type == SL_BACKUP_FILE)
		put_contents(b, e);
}

void rk_add(struct rk *k, const struct bk_entry *e)
{
	struct sl__buf one;
	sl__buf_init(&one, &k->env);
	put_entry(&one, e);
	if (k->block.len + one.len + 4 > BK_CHUNK_MAX)
		rk_cut(k);
	(void)sl__buf_put32(&k->block, (uint32_t)one.len);
	assert_int_equal(sl__buf_append(&k->block, one.data, one.len), 0);
	sl__buf_fini(&one);
}

void rk_cut(struct rk *k)
{
	if (k->block.len == 0)
		return;
	assert_true(k->n_manifest < RK_REFS);
	k->manifest[k->n_manifest++] = rk_block(k, k->block.data, k->block.len);
	sl__buf_clear(&k->block);
}

static void put_pack(struct rk *k)
{
	struct bk_pack_image image;
	char name[SL_DRIVER_NAME_BYTES];
	assert_int_equal(sl__bk_pack_take(k->pack, &image, NULL), 0);
	if (image.n_blocks == 0)
		return;
	sl__bk_pack_name(&image.name, name);
	assert_int_equal(k->driver.ops->put(k->driver.driver, name, image.bytes, image.len, SL_DRIVER_NEW, NULL), 0);
	assert_int_equal(sl__bk_index_builder_pack(k->index, &image.name, image.blocks, image.n_blocks, NULL), 0);
	assert_int_equal(sl__bk_index_builder_put(k->index, &k->driver, NULL, NULL), 0);
	sl__bk_pack_image_fini(&k->env, &image);
	sl__bk_index_builder_free(k->index);
	k->index = NULL;
	assert_int_equal(sl__bk_index_builder_new(&k->index, &k->env, &k->b->keys, NULL), 0);
}

const char *rk_publish(struct rk *k)
{
	struct bk_session *session = NULL;
	char *json = NULL;
	size_t len;
	rk_cut(k);
	put_pack(k);
	struct bk_snapshot s = {.info = {.host = "h", .parent = "", .version = "0", .time_ms = 1},
				.manifest = k->manifest,
				.n_manifest = k->n_manifest};
	assert_int_equal(sl__bk_snapshot_json(&k->env, &s, &json, &len, NULL), 0);
	assert_int_equal(sl__bk_session_begin(k->b, &session, &k->err), 0);
	memcpy(k->id, session->id, sizeof(k->id));
	assert_int_equal(sl__bk_session_publish(session, json, len, &k->err), 0);
	sl__bk_session_end(session);
	sl__free(&k->env, json);
	k->n_manifest = 0;
	return k->id;
}

/* ---- entries ---- */

static struct bk_entry entry(enum sl_backup_type type, const char *path)
{
	return (struct bk_entry){.type = type,
				 .path = path,
				 .path_len = strlen(path),
				 .mode = type == SL_BACKUP_DIR ? 0755 : 0644,
				 .uid = geteuid(),
				 .gid = getegid(),
				 .mtime = {RK_MTIME_S, 123456789},
				 .nlink = 1};
}

struct bk_entry rk_dir(const char *path)
{
	return entry(SL_BACKUP_DIR, path);
}

struct bk_entry rk_file(struct rk *k, const char *path, const void *bytes, size_t len)
{
	struct bk_entry e = entry(SL_BACKUP_FILE, path);
	e.size = len;
	if (len == 0)
		return e;
	assert_true(k->n_refs < RK_REFS && len <= BK_CHUNK_MAX);
	k->refs[k->n_refs] = rk_block(k, bytes, len);
	e.refs = &k->refs[k->n_refs++];
	e.n_refs = 1;
	return e;
}

struct bk_entry rk_text(struct rk *k, const char *path, const char *text)
{
	return rk_file(k, path, text, strlen(text));
}

struct bk_entry rk_link(enum sl_backup_type type, const char *path, const char *target)
{
	struct bk_entry e = entry(type, path);
	e.target = target;
	e.target_len = strlen(target);
	return e;
}

struct bk_entry rk_node(enum sl_backup_type type, const char *path)
{
	return entry(type, path);
}

/* ---- restoring ---- */

static void on_problem(enum sl_backup_problem problem, const char *path, const struct sl_err *err, void *ctx)
{
	struct rk *k = ctx;
	if (k->n_problems == SL_COUNT(k->problems))
		return;
	struct rk_problem *p = &k->problems[k->n_problems++];
	p->problem = problem;
	p->code = err->code;
	(void)snprintf(p->path, sizeof(p->path), "%s", path);
	(void)snprintf(p->msg, sizeof(p->msg), "%s", err->msg);
}

struct sl_backup_restore_opts rk_opts(struct rk *k)
{
	return (struct sl_backup_restore_opts){SL_BACKUP_RESTORE_OPTS_INIT, .to = k->to, .on_problem = on_problem,
					       .ctx = k};
}

int rk_restore_with(struct rk *k, const struct sl_backup_restore_opts *opts)
{
	k->n_problems = 0;
	k->err = (struct sl_err)SL_ERR_INIT;
	memset(&k->result, 0xee, sizeof(k->result));
	k->result.struct_size = sizeof(k->result);
	int rc = sl_backup_restore(k->b, k->id, opts, &k->result, &k->err);
	assert_int_equal(rc, rc != 0 ? k->err.code : 0);
	assert_int_equal(rk_leftovers(k), 0);
	return rc;
}

int rk_restore(struct rk *k)
{
	struct sl_backup_restore_opts opts = rk_opts(k);
	return rk_restore_with(k, &opts);
}

const struct rk_problem *rk_problem_of(const struct rk *k, const char *path)
{
	for (size_t i = 0; i < k->n_problems; i++)
		if (strcmp(k->problems[i].path, path) == 0)
			return &k->problems[i];
	return NULL;
}

/* ---- checking the result ---- */

bool rk_exists(const struct rk *k, const char *path)
{
	char full[1024];
	struct stat st;
	(void)snprintf(full, sizeof(full), "%s/%s", k->to, path);
	return lstat(full, &st) == 0;
}

struct stat rk_stat(const struct rk *k, const char *path)
{
	char full[1024];
	struct stat st;
	(void)snprintf(full, sizeof(full), "%s/%s", k->to, path);
	assert_int_equal(lstat(full, &st), 0);
	return st;
}

char *rk_read(const struct rk *k, const char *path, size_t *len)
{
	char full[1024];
	(void)snprintf(full, sizeof(full), "%s/%s", k->to, path);
	FILE *f = fopen(full, "re");
	if (f == NULL)
		return NULL;
	struct stat st;
	assert_int_equal(fstat(fileno(f), &st), 0);
	char *bytes = malloc((size_t)st.st_size + 1);
	assert_non_null(bytes);
	*len = fread(bytes, 1, (size_t)st.st_size, f);
	assert_int_equal(*len, st.st_size);
	bytes[*len] = '\0';
	(void)fclose(f);
	return bytes;
}

void rk_expect(const struct rk *k, const char *path, const char *text)
{
	size_t len;
	char *bytes = rk_read(k, path, &len);
	assert_non_null(bytes);
	assert_string_equal(bytes, text);
	free(bytes);
}

static int leftovers; /* nftw has no context */

static int count_leftover(const char *path, SL_UNUSED const struct stat *st, SL_UNUSED int type, struct FTW *ftw)
{
	leftovers += strncmp(path + ftw->base, BK_TEMP_PREFIX, strlen(BK_TEMP_PREFIX)) == 0;
	return 0;
}

int rk_leftovers(const struct rk *k)
{
	leftovers = 0;
	(void)nftw(k->to, count_leftover, 32, FTW_PHYS);
	return leftovers;
}

void rk_expect_outside_untouched(const struct rk *k)
{
	char full[512], text[64] = "";
	struct stat st;
	assert_int_equal(lstat(k->outside, &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, 1000);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(lstat(rk_path(k, "outside/secret", full), &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(st.st_nlink, 1);
	FILE *f = fopen(full, "re");
	assert_non_null(f);
	size_t n = fread(text, 1, sizeof(text) - 1, f);
	(void)fclose(f);
	assert_int_equal(n, strlen(SECRET));
	assert_string_equal(text, SECRET);
}
