/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A partition's file. The order matters, each step being what the next one relies on after a crash:
 *
 *	write .part-….parquet.tmp-<random>, hashing on the way → sync it → rename → sync its folder → (commit)
 *
 * A folder that is new was synced in its parent before. What is left of a run that ended in between is replaced by the
 * rename of the next one, or removed as a temporary file.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "pipeline/export/export.h"

#define WRITEBACK_BYTES ((uint64_t)1 << 20)

/* ---- making one ---- */

int sl__export_mkdirs(const struct sl_env *env, const char *folder, struct sl_err *err)
{
	int rc = sl__mkdirs(env, folder);
	if (rc == 0)
		return 0;
	if (rc == -ENOSPC || rc == -EDQUOT || rc == -EIO || rc == -ENOMEM)
		return sl_err_set_errno(err, -rc, "create %s", folder);
	return sl_err_set(err, SL_ECREATE, "cannot create the folder %.120s: %s", folder, strerror(-rc));
}

int sl__object_new(struct sl__object **out, struct sl_export *e, uint64_t partition_size, const struct sl__object *like,
		   struct sl_err *err)
{
	const struct sl_env *env = &e->env;
	char name[SL__PARTITION_NAME_BYTES];
	struct sl__prng prng;
	struct sl__object *o = sl__calloc(env, 1, sizeof(*o));
	if (o == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a file");
	*o = (struct sl__object){
		.env = env, .start = like->start, .end = like->end, .late = like->late, .fd = -1, .buf = like->buf};
	sl__buf_init(&o->hole_text, env);

	/* Its names: the final one, and a temporary one in the same folder. */
	sl__partition_name(o->start, o->end, partition_size, o->late, name);
	o->name = sl__asprintf(env, "%s/%s", e->o.dataset, name);
	o->path = o->name != NULL ? sl__asprintf(env, "%s/%s", e->o.to, o->name) : NULL;
	o->folder = o->path != NULL ? sl__dirname(env, o->path) : NULL;
	sl__prng_init(&prng, env);
	if (o->folder != NULL)
		o->temp = sl__asprintf(env, "%s/.%s.tmp-%016llx", o->folder, sl__basename(o->path),
				       (unsigned long long)sl__prng_next(&prng));
	int rc = o->temp != NULL ? sl__sha256_begin(&o->hash, err)
				 : sl_err_set(err, SL_ENOMEM, "out of memory for a file");
	if (rc == 0)
		rc = sl__export_mkdirs(env, o->folder, err);
	if (rc == 0) {
		o->fd = SL__IO(env, open, o->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
		o->temp_there = o->fd >= 0;
		if (o->fd < 0)
			rc = sl_err_set_errno(err, -o->fd, "create %s", o->temp);
	}
	if (rc != 0) {
		sl__object_free(o);
		return rc;
	}
	*out = o;
	return 0;
}

void sl__object_free(struct sl__object *o)
{
	if (o == NULL)
		return;
	const struct sl_env *env = o->env;
	sl__close_fd(env, &o->fd);
	if (o->temp_there)
		(void)SL__IO(env, unlink, o->temp);
	sl__sha256_drop(&o->hash);
	sl__buf_fini(&o->hole_text);
	sl__free(env, o->folder);
	sl__free(env, o->temp);
	sl__free(env, o->path);
	sl__free(env, o->name);
	sl__free(env, o);
}

/* ---- writing ---- */

static int write_through(struct sl__object *o, const void *bytes, size_t n, struct sl_err *err)
{
	int rc = sl__sha256_update(&o->hash, bytes, n, err);
	if (rc != 0)
		return rc;
	rc = sl__pwrite_full(o->env, o->fd, bytes, n, o->bytes);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "write %s", o->temp);
	o->bytes += n;
	/* Let the disk begin, so that the sync at the end has little left to write and no worker waits for it. This is
	 * only a hint without a promise, so it needs no slot in the I/O vtable. */
	if (o->bytes - o->hinted >= WRITEBACK_BYTES && o->env->io == &sl__io_real) {
		(void)sync_file_range(o->fd, (off_t)o->hinted, (off_t)(o->bytes - o->hinted), SYNC_FILE_RANGE_WRITE);
		o->hinted = o->bytes;
	}
	return 0;
}

static int flush_object(struct sl__object *o, struct sl_err *err)
{
	size_t n = o->used;
	o->used = 0;
	return n > 0 ? write_through(o, o->buf, n, err) : 0;
}

int sl__object_write(const void *bytes, size_t n, struct sl_err *err, void *object)
{
	struct sl__object *o = object;
	bool large = n > SL__OBJECT_BUF / 2; /* not worth a copy; what was gathered before it is written first */
	if (large || n > SL__OBJECT_BUF - o->used) {
		int rc = flush_object(o, err);
		if (rc != 0)
			return rc;
	}
	if (large)
		return write_through(o, bytes, n, err);
	memcpy(o->buf + o->used, bytes, n);
	o->used += n;
	return 0;
}

int sl__object_finish(struct sl__object *o, struct sl_err *err)
{
	int rc = flush_object(o, err);
	o->buf = NULL;
	if (rc != 0)
		return rc;
	return sl__sha256_final(&o->hash, o->sha256, err);
}

/* ---- bringing it to its place ---- */

int sl__object_store(struct sl__object *o, struct sl_export *e, sl_catalog_lease *lease, struct sl_err *err)
{
	int rc = SL__IO(o->env, datasync, o->fd);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "sync %s", o->temp);
	sl__close_fd(o->env, &o->fd);
	sl__export_step(e, "temp_synced", o->start);
	/* Another holder may have committed this file since: then it is no longer ours to replace. */
	if (lease != NULL && (rc = sl_catalog_lease_check(lease, err)) != 0)
		return rc;
	rc = SL__IO(o->env, rename, o->temp, o->path, 0);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "rename %s", o->temp);
	o->temp_there = false;
	sl__export_step(e, "renamed", o->start);
	rc = sl__sync_dir(o->env, o->folder);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "sync %s", o->folder);
	sl__export_step(e, "folder_synced", o->start);
	return 0;
}

void sl__object_row(struct sl__object *o, struct sl_catalog_partition *out)
{
	*out = (struct sl_catalog_partition){.struct_size = sizeof(*out),
					     .type = o->late ? SL_AUDIT_LATE : SL_AUDIT_PARTITION,
					     .start = o->start,
					     .end = o->end,
					     .rows = o->rows,
					     .bad_rows = o->bad_rows,
					     .holes = o->holes,
					     .hole_ranges = o->hole_text.len > 0 ? sl__buf_str(&o->hole_text) : "",
					     .bytes = o->bytes,
					     .path = o->name};
	memcpy(out->sha256, o->sha256, sizeof(out->sha256));
}

/* ---- what earlier runs left ---- */

struct clean {
	const struct sl_env *env;
	const char *folder;
	uint64_t from;
	int rc;
};

/* Remove a temporary file. */
static int clean_file(const char *name, void *ctx)
{
	struct clean *c = ctx;
	if (strncmp(name, ".part-", 6) != 0 || strstr(name, ".tmp-") == NULL)
		return 0;
	char *path = sl__asprintf(c->env, "%s/%s", c->folder, name);
	int rc = path != NULL ? SL__IO(c->env, unlink, path) : -ENOMEM;
	sl__free(c->env, path);
	return rc == -ENOENT ? 0 : rc;
}

static int clean_partition_folder(const char *name, void *ctx)
{
	struct clean *c = ctx;
	if (strncmp(name, "partition-", 10) != 0 || strtoull(name + 10, NULL, 10) < c->from)
		return 0;
	struct clean inner = {.env = c->env, .folder = sl__asprintf(c->env, "%s/%s", c->folder, name)};
	if (inner.folder == NULL)
		return -ENOMEM;
	int rc = SL__IO(c->env, list, inner.folder, clean_file, &inner);
	sl__free(c->env, (void *)(uintptr_t)inner.folder);
	return rc == -ENOENT || rc == -ENOTDIR ? 0 : rc;
}

int sl__store_clean(struct sl_export *e, uint64_t from_number, struct sl_err *err)
{
	char *folder = sl__asprintf(&e->env, "%s/%s", e->o.to, e->o.dataset);
	if (folder == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a path");
	struct clean c = {.env = &e->env, .folder = folder, .from = from_number};
	int rc = SL__IO(&e->env, list, folder, clean_partition_folder, &c);
	if (rc == -ENOTDIR)
		rc = sl_err_set(err, SL_ECREATE, "cannot create the folder %.120s: %s", folder, strerror(ENOTDIR));
	else if (rc < 0 && rc != -ENOENT)
		rc = sl_err_set_errno(err, -rc, "clean %s", folder);
	else
		rc = 0;
	sl__free(&e->env, folder);
	return rc;
}

/* ---- what lies next to a committed file ---- */

struct sweep {
	struct sl_export *e;
	const char *folder, *keep;
	bool late;
	uint64_t start, end;
};

static bool range_of(const char *name, uint64_t *start, uint64_t *end, bool *late)
{
	int n = 0;
	if (sscanf(name, "part-%20" SCNu64 "-%20" SCNu64 "%n", start, end, &n) != 2 || n == 0)
		return false;
	*late = strcmp(name + n, "-late.parquet") == 0;
	return *late || strcmp(name + n, ".parquet") == 0;
}

static int sweep_file(const char *name, void *ctx)
{
	const struct sweep *s = ctx;
	uint64_t start, end;
	bool late;
	if (strcmp(name, s->keep) == 0 || !range_of(name, &start, &end, &late) || late != s->late || start > s->end ||
	    end < s->start)
		return 0;
	char *path = sl__asprintf(&s->e->env, "%s/%s", s->folder, name);
	int rc = path != NULL ? SL__IO(&s->e->env, unlink, path) : -ENOMEM;
	sl__log(&s->e->env, SL_LOG_WARN, "export", "removed an uncommitted file of an earlier run",
		SL__F_STR("dataset", s->e->o.dataset), SL__F_STR("file", name));
	sl__free(&s->e->env, path);
	return rc;
}

void sl__store_sweep(struct sl_export *e, const char *name, uint64_t start, uint64_t end)
{
	uint64_t of_name;
	char *folder = sl__asprintf(&e->env, "%s/%.*s", e->o.to, (int)(sl__basename(name) - name), name);
	struct sweep s = {.e = e, .folder = folder, .keep = sl__basename(name), .start = start, .end = end};
	if (folder != NULL && range_of(s.keep, &of_name, &of_name, &s.late))
		(void)SL__IO(&e->env, list, folder, sweep_file, &s);
	sl__free(&e->env, folder);
}
