/* SPDX-License-Identifier: Apache-2.0 */
/* sl_backup_ls and sl_backup_cat: the entries of a snapshot, and the contents of one file with holes as zeros. */
#include "backup/restore/entries.h"

#define ZEROS_BYTES (64u << 10)

/* A snapshot that is open for reading its entries. */
struct snapshot_reading {
	struct sl_backup *b;
	struct bk_snapshot snapshot;
	struct bk_index *index;
	struct bk_reader *reader; /* of the manifest */
	struct bk_manifest_reader *entries;
};

/* Begins the call (sl__bk_begin). Must be closed in any case. */
static int reading_open(struct snapshot_reading *l, const char *snapshot, const char *phase, struct sl_err *err)
{
	struct sl_backup *b = l->b;
	char id[SL_BACKUP_ID_BYTES];
	int rc = sl__bk_begin(b, phase, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_resolve(b, snapshot, id, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_snapshot_load(b, id, &l->snapshot, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_index_for_reading(b, &l->index, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_reader_new(&l->reader, b, l->index, err);
	if (rc != 0)
		return rc;
	return sl__bk_manifest_reader_new(&l->entries, b, &l->snapshot, l->reader, err);
}

static void reading_close(struct snapshot_reading *l)
{
	sl__bk_manifest_reader_free(l->entries);
	sl__bk_reader_free(l->reader);
	sl__bk_index_free(l->index);
	sl__bk_snapshot_fini(&l->b->env, &l->snapshot);
}

/* 1 and the next entry; 0: the end; or a negative SL_E…. */
static int next_entry(struct snapshot_reading *l, struct bk_entry *e, struct sl_err *err)
{
	int rc = sl__bk_check_stop(l->b, err);
	if (rc != 0)
		return rc;
	return sl__bk_manifest_next(l->entries, e, err);
}

/* ---- ls ---- */

int sl_backup_ls(sl_backup *b, const char *snapshot, const char *below, sl_backup_entry_fn *fn, void *ctx,
		 struct sl_err *err)
{
	if (b == NULL || snapshot == NULL || fn == NULL)
		return sl_err_set(err, SL_EINVAL, "ls: no handle, snapshot or callback");
	struct bk_select select SL_CLEANUP(sl__bk_select_fini) = {.env = &b->env};
	struct snapshot_reading l SL_CLEANUP(reading_close) = {.b = b};
	struct bk_entry e;
	int rc = sl__bk_select_init(&select, &b->env, &below, below != NULL ? 1 : 0, err);
	if (rc == 0)
		rc = reading_open(&l, snapshot, "ls", err);
	if (rc != 0)
		return rc;
	while ((rc = next_entry(&l, &e, err)) == 1) {
		if (sl__bk_select(&select, e.path, e.path_len) != BK_IS_SELECTED) {
			if (select.paths[0].met) /* entries are sorted: no more can follow */
				return 0;
			continue;
		}
		const struct sl_backup_entry entry = {.struct_size = sizeof(entry),
						      .type = e.type,
						      .path = e.path,
						      .mode = e.mode,
						      .uid = e.uid,
						      .gid = e.gid,
						      .mtime_s = e.mtime.tv_sec,
						      .mtime_ns = (uint32_t)e.mtime.tv_nsec,
						      .size = e.size,
						      .target = e.target,
						      .rdev = e.rdev,
						      .xattrs = (uint32_t)e.n_xattrs};
		rc = fn(&entry, ctx);
		if (rc != 0)
			return rc;
	}
	return rc < 0 ? rc : sl__bk_select_all_met(&select, l.snapshot.info.id, err);
}

/* ---- cat ---- */

/* The contents of a file, passed to the caller. */
struct cat_output {
	struct sl_backup *b;
	struct bk_reader *blocks;
	struct bk_cursor at;
	uint8_t *zeros;
	sl_backup_bytes_fn *fn;
	void *ctx;
	struct sl_err *err;
};

static int cat_hole(struct cat_output *o, uint64_t bytes)
{
	while (bytes > 0) {
		size_t n = (size_t)SL_MIN(bytes, (uint64_t)ZEROS_BYTES);
		int rc = sl__bk_check_stop(o->b, o->err);
		if (rc == 0)
			rc = o->fn(o->zeros, n, o->ctx);
		if (rc != 0)
			return rc;
		bytes -= n;
	}
	return 0;
}

static int cat_block(const struct bk_ref *ref, void *ctx)
{
	struct cat_output *o = ctx;
	const uint8_t *bytes;
	size_t len = ref->len;
	int rc = sl__bk_check_stop(o->b, o->err);
	if (rc == 0)
		rc = sl__bk_read_block(o->blocks, &ref->id, ref->len, &bytes, o->err);
	while (rc == 0 && len > 0) {
		uint64_t before = o->at.offset;
		rc = sl__bk_cursor_next(&o->at, o->err);
		if (rc == 0)
			rc = cat_hole(o, o->at.offset - before);
		if (rc != 0)
			break;
		size_t n = (size_t)SL_MIN(o->at.left, (uint64_t)len);
		rc = o->fn(bytes, n, o->ctx);
		bytes += n;
		len -= n;
		o->at.offset += n;
		o->at.left -= n;
	}
	return rc;
}

/* The entry of this path, searched from the beginning. SL_ENOENT. Valid until the next call. */
static int find_path(struct snapshot_reading *l, const char *path, size_t len, struct bk_entry *e, struct sl_err *err)
{
	sl__bk_manifest_reader_free(l->entries);
	l->entries = NULL;
	int rc = sl__bk_manifest_reader_new(&l->entries, l->b, &l->snapshot, l->reader, err);
	if (rc != 0)
		return rc;
	while ((rc = next_entry(l, e, err)) == 1) {
		int order = sl__bk_path_compare(e->path, e->path_len, path, len);
		if (order == 0)
			return 0;
		if (order > 0)
			break;
	}
	if (rc < 0)
		return rc;
	return sl_err_set(err, SL_ENOENT, "the snapshot %s has no %.150s", l->snapshot.info.id, path);
}

/* The file of this path; a hard link is followed to its file, which precedes it in the snapshot, so there is no loop. */
static int find_file(struct snapshot_reading *l, const struct bk_select_path *path, struct bk_entry *e,
		     struct sl_err *err)
{
	int rc = find_path(l, path->path, path->len, e, err);
	if (rc == 0 && e->type == SL_BACKUP_HARDLINK) {
		char *target = sl__strdup(&l->b->env, e->target);
		rc = target != NULL ? find_path(l, target, strlen(target), e, err)
				    : sl__no_memory(err, "follow a hard link");
		sl__free(&l->b->env, target);
	}
	if (rc == 0 && e->type != SL_BACKUP_FILE)
		return sl_err_set(err, SL_EINVAL, "%.150s is not a file", path->path);
	return rc;
}

static void fini_output(struct cat_output *o)
{
	sl__bk_reader_free(o->blocks);
	sl__free(&o->b->env, o->zeros);
}

/* Hand the bytes of a file to the callback. */
static int cat_file(struct cat_output *o, struct bk_index *index, const struct bk_entry *e)
{
	sl__bk_cursor_init(&o->at, e);
	o->zeros = sl__calloc(&o->b->env, 1, ZEROS_BYTES);
	if (o->zeros == NULL)
		return sl_err_set(o->err, SL_ENOMEM, "read %.150s: out of memory", e->path);
	int rc = sl__bk_reader_new(&o->blocks, o->b, index, o->err);
	if (rc != 0)
		return rc;
	rc = sl__bk_entry_refs(o->blocks, e, cat_block, o, o->err);
	if (rc != 0)
		return rc;
	rc = sl__bk_cursor_end(&o->at, o->err);
	if (rc != 0 || (e->flags & BK_ENTRY_SPARSE) == 0)
		return rc;
	return cat_hole(o, e->size - o->at.offset);
}

int sl_backup_cat(sl_backup *b, const char *snapshot, const char *path, sl_backup_bytes_fn *fn, void *ctx,
		  struct sl_err *err)
{
	if (b == NULL || snapshot == NULL || path == NULL || fn == NULL)
		return sl_err_set(err, SL_EINVAL, "cat: no handle, snapshot, path or callback");
	struct bk_select select SL_CLEANUP(sl__bk_select_fini) = {.env = &b->env};
	struct snapshot_reading l SL_CLEANUP(reading_close) = {.b = b};
	struct cat_output out SL_CLEANUP(fini_output) = {.b = b, .fn = fn, .ctx = ctx, .err = err};
	struct bk_entry e;
	int rc = sl__bk_select_init(&select, &b->env, &path, 1, err);
	if (rc != 0)
		return rc;
	if (select.n == 0)
		return sl_err_set(err, SL_EINVAL, "cat: the path is empty");
	rc = reading_open(&l, snapshot, "cat", err);
	if (rc != 0)
		return rc;
	rc = find_file(&l, &select.paths[0], &e, err);
	if (rc != 0)
		return rc;
	return cat_file(&out, l.index, &e);
}
