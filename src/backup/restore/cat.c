/* SPDX-License-Identifier: Apache-2.0 */
/* sl_backup_cat: the contents of one file, holes as zeros. */
#include "backup/restore/select.h"
#include "backup/restore/view.h"

#define ZEROS_BYTES (64u << 10)

/* The contents of a file on their way to the caller. */
struct pouring {
	struct sl_backup *b;
	struct bk_reader *blocks;
	const struct bk_entry *e;
	uint64_t offset; /* of the next byte in the file */
	uint64_t left;   /* bytes of blocks that come there: of the extent, or of the file */
	size_t extent;   /* the next one */
	uint8_t *zeros;
	sl_backup_bytes_fn *fn;
	void *ctx;
	struct sl_err *err;
};

static int disagrees(const struct pouring *p)
{
	return sl_err_set(p->err, SL_ECORRUPT, "%.150s: its blocks and its size do not agree", p->e->path);
}

static int pour_hole(struct pouring *p, uint64_t to)
{
	while (p->offset < to) {
		size_t n = (size_t)SL_MIN(to - p->offset, (uint64_t)ZEROS_BYTES);
		int rc = sl__bk_check_stop(p->b, p->err);
		if (rc == 0)
			rc = p->fn(p->zeros, n, p->ctx);
		if (rc != 0)
			return rc;
		p->offset += n;
	}
	return 0;
}

static int next_extent(struct pouring *p)
{
	const struct bk_entry *e = p->e;
	int rc = 0;
	while (rc == 0 && p->left == 0) {
		if (p->extent >= e->extents_n)
			return disagrees(p);
		const struct bk_extent *x = &e->extents[p->extent++];
		if (x->offset < p->offset || x->offset > e->size || x->length > e->size - x->offset)
			return disagrees(p);
		rc = pour_hole(p, x->offset);
		p->left = x->length;
	}
	return rc;
}

static int pour_block(const struct bk_ref *ref, void *ctx)
{
	struct pouring *p = ctx;
	const uint8_t *bytes;
	size_t len = ref->len;
	int rc = sl__bk_check_stop(p->b, p->err);
	if (rc == 0)
		rc = sl__bk_read_block(p->blocks, &ref->id, ref->len, &bytes, p->err);
	while (rc == 0 && len > 0) {
		rc = p->left == 0 ? next_extent(p) : 0;
		if (rc != 0)
			break;
		size_t n = (size_t)SL_MIN(p->left, (uint64_t)len);
		rc = p->fn(bytes, n, p->ctx);
		bytes += n;
		len -= n;
		p->offset += n;
		p->left -= n;
	}
	return rc;
}

static int pour(struct pouring *p)
{
	bool sparse = (p->e->flags & BK_ENTRY_SPARSE) != 0;
	p->left = sparse ? 0 : p->e->size;
	int rc = sl__bk_entry_refs(p->blocks, p->e, pour_block, p, p->err);
	if (rc != 0)
		return rc;
	if (p->left != 0 || (sparse && p->extent != p->e->extents_n))
		return disagrees(p);
	return sparse ? pour_hole(p, p->e->size) : 0;
}

/* A hard link is followed to its file, which comes before it, so never in a circle. */
static int find_file(struct bk_view *l, const char *path, size_t len, struct bk_entry *e, struct sl_err *err)
{
	int rc = sl__bk_view_find(l, path, len, e, err);
	if (rc == 0 && e->type == SL_BACKUP_HARDLINK) {
		char *target = sl__strdup(&l->b->env, e->target);
		if (target == NULL)
			return sl_err_set(err, SL_ENOMEM, "no memory for the target of a link");
		rc = sl__bk_view_find(l, target, strlen(target), e, err);
		sl__free(&l->b->env, target);
	}
	if (rc == 0 && e->type != SL_BACKUP_FILE)
		rc = sl_err_set(err, SL_EINVAL, "%.150s is not a file", path);
	return rc;
}

static int pour_file(struct bk_view *l, const struct bk_entry *e, sl_backup_bytes_fn *fn, void *ctx, struct sl_err *err)
{
	struct pouring p = {.b = l->b, .e = e, .fn = fn, .ctx = ctx, .err = err};
	p.zeros = sl__calloc(&l->b->env, 1, ZEROS_BYTES);
	int rc = p.zeros != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "no memory for the contents of %.150s", e->path);
	if (rc == 0)
		rc = sl__bk_reader_new(&p.blocks, l->b, l->index, err);
	if (rc == 0)
		rc = pour(&p);
	sl__bk_reader_free(p.blocks);
	sl__free(&l->b->env, p.zeros);
	return rc;
}

int sl_backup_cat(sl_backup *b, const char *snapshot, const char *path, sl_backup_bytes_fn *fn, void *ctx,
		  struct sl_err *err)
{
	struct bk_view l;
	struct bk_select select;
	struct bk_entry e;
	if (b == NULL || snapshot == NULL || path == NULL || fn == NULL)
		return sl_err_set(err, SL_EINVAL, "cat: no handle, snapshot, path or callback");
	int rc = sl__bk_select_init(&select, &b->env, &path, 1, err);
	if (rc != 0)
		return rc;
	if (select.n == 0)
		return sl_err_set(err, SL_EINVAL, "cat: the path is empty");
	rc = sl__bk_view_open(&l, b, snapshot, "cat", err);
	if (rc == 0)
		rc = find_file(&l, select.paths[0].path, select.paths[0].len, &e, err);
	if (rc == 0)
		rc = pour_file(&l, &e, fn, ctx, err);
	sl__bk_view_close(&l);
	sl__bk_select_fini(&select);
	return rc;
}
