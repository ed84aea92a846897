/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a manifest: the entries of a snapshot out of its blocks, and the blocks of an entry.
 *
 * Each block of a manifest begins with a complete path and ends with a complete entry. References in list blocks are
 * copied out in pieces, and the list is read again for the next piece: the reader's bytes are gone once fn has read a
 * block with it.
 */
#include "backup/manifest/manifest.h"

enum { PIECE = 256 }; /* references */

/* ---- entries ---- */

struct bk_manifest_reader {
	struct sl_backup *b;
	const struct bk_snapshot *snapshot;
	struct bk_reader *reader;
	struct bk_entry_scratch *scratch;
	struct sl__buf buf;  /* a copy of the block: the reader's bytes are gone when the caller reads with it */
	size_t at;           /* in it */
	size_t next;         /* block */
	struct sl__buf path; /* of the entry before */
	bool was_dir;        /* the entry before */
};

int sl__bk_manifest_reader_new(struct bk_manifest_reader **out, struct sl_backup *b, const struct bk_snapshot *snapshot,
			       struct bk_reader *reader, struct sl_err *err)
{
	struct bk_manifest_reader *r = sl__calloc(&b->env, 1, sizeof(*r));
	if (r == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory to read a manifest");
	r->b = b;
	r->snapshot = snapshot;
	r->reader = reader;
	sl__buf_init(&r->buf, &b->env);
	sl__buf_init(&r->path, &b->env);
	int rc = sl__bk_entry_scratch_new(&r->scratch, &b->env);
	if (rc != 0) {
		sl__bk_manifest_reader_free(r);
		return sl_err_set(err, rc, "no memory to read a manifest");
	}
	*out = r;
	return 0;
}

void sl__bk_manifest_reader_free(struct bk_manifest_reader *r)
{
	if (r == NULL)
		return;
	sl__bk_entry_scratch_free(r->scratch);
	sl__buf_fini(&r->buf);
	sl__buf_fini(&r->path);
	sl__free(&r->b->env, r);
}

/* Without naming the snapshot in errors. */
static int next_manifest_entry(struct bk_manifest_reader *r, struct bk_entry *e, struct sl_err *err)
{
	size_t used;
	/* The next block that has an entry. */
	while (r->at == r->buf.len) {
		const uint8_t *bytes;
		if (r->next == r->snapshot->n_manifest)
			return 0;
		const struct bk_ref *ref = &r->snapshot->manifest[r->next];
		int rc = sl__bk_read_block(r->reader, &ref->id, ref->len, &bytes, err);
		if (rc != 0)
			return rc;
		sl__buf_clear(&r->buf);
		if (sl__buf_append(&r->buf, bytes, ref->len) != 0)
			return sl_err_set(err, SL_ENOMEM, "no memory to read a manifest");
		r->at = 0;
		r->next++;
	}
	bool first = r->at == 0;
	struct bk_entry_bytes from = {.bytes = {r->buf.data + r->at, r->buf.len - r->at}, .previous = {"", 0}};
	if (!first)
		from.previous = (struct bk_bytes){sl__buf_str(&r->path), r->path.len};
	int rc = sl__bk_entry_decode(r->scratch, &from, e, &used, err);
	if (rc == SL_EAGAIN)
		return sl_err_set(err, SL_ECORRUPT, "the last entry of a block is truncated");
	if (rc != 0)
		return rc;
	r->at += used;
	if (r->path.len > 0 && sl__bk_path_compare(r->path.data, r->path.len, e->path, e->path_len) >= 0)
		return sl_err_set(err, SL_ECORRUPT, "%.120s: not in order", e->path);

	/* Its folder is the entry before it, or one that this one is in too: then it was checked. */
	const char *slash = memrchr(e->path, '/', e->path_len);
	size_t folder = slash != NULL ? (size_t)(slash - e->path) : 0;
	if (folder > 0 && (r->path.len < folder || memcmp(r->path.data, e->path, folder) != 0 ||
			   !(r->path.len == folder ? r->was_dir : r->path.data[folder] == '/')))
		return sl_err_set(err, SL_ECORRUPT, "%.120s: its folder does not come before it", e->path);
	sl__buf_clear(&r->path);
	if (sl__buf_append(&r->path, e->path, e->path_len) != 0)
		return sl_err_set(err, SL_ENOMEM, "no memory to read a manifest");
	r->was_dir = e->type == SL_BACKUP_DIR;
	return 1;
}

int sl__bk_manifest_next(struct bk_manifest_reader *r, struct bk_entry *e, struct sl_err *err)
{
	int rc = next_manifest_entry(r, e, err);
	return rc < 0 ? sl_err_wrap(err, rc, "snapshot %s: manifest", r->snapshot->info.id) : rc;
}

/* ---- the blocks of a file ---- */

struct ref_walk {
	struct bk_reader *reader;
	const struct bk_entry *e;
	bk_ref_fn *fn;
	void *ctx;
	uint64_t bytes; /* of contents, so far */
};

static int walk_list(struct ref_walk *w, const struct bk_ref *list, struct sl_err *err)
{
	struct bk_ref refs[PIECE];
	size_t all = list->len / BK_LIST_REF_BYTES, n = 0;
	for (size_t first = 0; first < all; first += n) {
		const uint8_t *bytes;
		int rc = sl__bk_read_block(w->reader, &list->id, list->len, &bytes, err);
		if (rc != 0)
			return sl_err_wrap(err, rc, "%.120s", w->e->path);
		n = SL_MIN((size_t)PIECE, all - first);
		for (size_t i = 0; i < n; i++) {
			const uint8_t *at = bytes + (first + i) * BK_LIST_REF_BYTES;
			memcpy(refs[i].id.b, at, BK_ID_BYTES);
			refs[i].len = sl__get32(at + BK_ID_BYTES);
			if (refs[i].len == 0 || refs[i].len > BK_CHUNK_MAX)
				return sl_err_set(err, SL_ECORRUPT, "%.120s: a list with a block of %u bytes",
						  w->e->path, refs[i].len);
		}
		for (size_t i = 0; i < n; i++) {
			w->bytes += refs[i].len;
			rc = w->fn(&refs[i], w->ctx);
			if (rc != 0)
				return rc;
		}
	}
	return 0;
}

static int walk_refs(struct ref_walk *w, bool lists_too, struct sl_err *err)
{
	bool lists = (w->e->flags & BK_ENTRY_LISTS) != 0;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < w->e->n_refs; i++) {
		if (!lists || lists_too)
			rc = w->fn(&w->e->refs[i], w->ctx);
		if (rc == 0 && lists)
			rc = walk_list(w, &w->e->refs[i], err);
	}
	if (rc == 0 && lists && w->bytes != sl__bk_entry_data_bytes(w->e))
		return sl_err_set(err, SL_ECORRUPT, "%.120s: lists of blocks that are not as long as the file",
				  w->e->path);
	return rc;
}

int sl__bk_entry_refs(struct bk_reader *reader, const struct bk_entry *e, bk_ref_fn *fn, void *ctx, struct sl_err *err)
{
	struct ref_walk w = {reader, e, fn, ctx, 0};
	return walk_refs(&w, false, err);
}

int sl__bk_entry_all_refs(struct bk_reader *reader, const struct bk_entry *e, bk_ref_fn *fn, void *ctx,
			  struct sl_err *err)
{
	struct ref_walk w = {reader, e, fn, ctx, 0};
	return walk_refs(&w, true, err);
}
