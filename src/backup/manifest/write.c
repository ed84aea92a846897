/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a manifest: entries one after the other into blocks of the store. Whether a block ends before an entry is
 * decided by the entry's path alone, once the block has BLOCK_MIN bytes: the same tree is cut at the same places, whatever has changed
 * in its files, and a new or removed name moves the cuts around it only.
 */
#include "backup/manifest/manifest.h"

#define BLOCK_MIN (64u << 10)
#define BLOCK_MAX (1u << 20)
#define CUT_MASK (UINT64_C(1023) << 54) /* one path of 1,024: about 120 KB of entries */

struct bk_manifest_writer {
	struct sl_backup *b;
	struct bk_store *store;
	int lane;
	struct bk_hasher *hasher;
	struct sl__buf buf; /* what is not stored yet, from `start` on */
	size_t start;
	struct sl__buf path; /* of the entry before */
	struct bk_ref *refs;
	size_t n_refs, cap_refs;
};

int sl__bk_manifest_writer_new(struct bk_manifest_writer **out, struct sl_backup *b, struct bk_store *store, int lane,
			       struct sl_err *err)
{
	struct bk_manifest_writer *w = sl__calloc(&b->env, 1, sizeof(*w));
	if (w == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for the manifest");
	w->b = b;
	w->store = store;
	w->lane = lane;
	sl__buf_init(&w->buf, &b->env);
	sl__buf_init(&w->path, &b->env);
	int rc = sl__bk_hasher_new(&w->hasher, &b->env, &b->keys, err);
	if (rc != 0)
		sl__bk_manifest_writer_free(w);
	else
		*out = w;
	return rc;
}

void sl__bk_manifest_writer_free(struct bk_manifest_writer *w)
{
	if (w == NULL)
		return;
	sl__bk_hasher_free(w->hasher);
	sl__buf_fini(&w->buf);
	sl__buf_fini(&w->path);
	sl__free(&w->b->env, w->refs);
	sl__free(&w->b->env, w);
}

static int store_manifest_block(struct bk_manifest_writer *w, struct sl_err *err)
{
	struct bk_id id;
	size_t len = w->buf.len;
	int rc = sl__bk_hash(w->hasher, w->buf.data, len, &id, err);
	if (rc == 0)
		rc = sl__bk_store_metadata(w->store, w->lane, &(struct bk_block){&id, w->buf.data, len}, NULL, err);
	sl__buf_clear(&w->buf);
	sl__buf_clear(&w->path); /* a block's first entry shares nothing */
	if (rc != 0)
		return rc;
	struct bk_ref *more = sl__grow(&w->b->env, w->refs, w->n_refs, &w->cap_refs, sizeof(*more));
	if (more == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for the manifest's blocks");
	w->refs = more;
	w->refs[w->n_refs++] = (struct bk_ref){id, (uint32_t)len};
	return 0;
}

int sl__bk_manifest_add(struct bk_manifest_writer *w, const struct bk_entry *e, struct sl_err *err)
{
	bool cut = w->buf.len >= BLOCK_MAX;
	int rc = 0;
	if (w->buf.len >= BLOCK_MIN && !cut) {
		uint64_t h = 0;
		for (size_t i = 0; i < e->path_len; i++)
			h = (h << 1) + w->b->chunker.gear[(unsigned char)e->path[i]];
		cut = (h & CUT_MASK) == 0;
	}
	if (cut)
		rc = store_manifest_block(w, err);
	size_t before = w->buf.len;
	if (rc == 0)
		rc = sl__bk_entry_encode(&w->buf, e, sl__buf_str(&w->path), w->path.len, err);
	if (rc == 0 && w->buf.len > BK_CHUNK_MAX) {
		/* A huge entry begins its own block. */
		w->buf.len = before;
		rc = store_manifest_block(w, err);
		if (rc == 0)
			rc = sl__bk_entry_encode(&w->buf, e, "", 0, err);
	}
	if (rc != 0)
		return rc;
	sl__buf_clear(&w->path);
	return sl__buf_append(&w->path, e->path, e->path_len) != 0
		       ? sl_err_set(err, SL_ENOMEM, "no memory for the manifest")
		       : 0;
}

int sl__bk_manifest_finish(struct bk_manifest_writer *w, struct bk_ref **refs, size_t *n, struct sl_err *err)
{
	int rc = w->buf.len > 0 ? store_manifest_block(w, err) : 0;
	if (rc != 0)
		return rc;
	*refs = w->refs;
	*n = w->n_refs;
	w->refs = NULL;
	w->n_refs = w->cap_refs = 0;
	return 0;
}
