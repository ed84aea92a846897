/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks of a file. References in list blocks are copied out in pieces, and the list is read again for the next
 * piece: the reader's bytes are gone once fn has read a block with it.
 */
#include "backup/manifest/manifest.h"

enum { PIECE = 256 };

struct walk {
	struct bk_reader *reader;
	const struct bk_entry *e;
	bk_ref_fn *fn;
	void *ctx;
	uint64_t bytes; /* of contents, so far */
};

static int read_piece(struct walk *w, const struct bk_ref *list, size_t first, struct bk_ref *out, size_t *n,
		      struct sl_err *err)
{
	const uint8_t *bytes;
	int rc = sl__bk_read_block(w->reader, &list->id, list->len, &bytes, err);
	if (rc != 0)
		return sl_err_wrap(err, rc, "%.120s", w->e->path);
	*n = SL_MIN((size_t)PIECE, list->len / BK_LIST_REF_BYTES - first);
	for (size_t i = 0; i < *n; i++) {
		const uint8_t *at = bytes + (first + i) * BK_LIST_REF_BYTES;
		memcpy(out[i].id.b, at, BK_ID_BYTES);
		out[i].len = sl__get32(at + BK_ID_BYTES);
		if (out[i].len == 0 || out[i].len > BK_CHUNK_MAX)
			return sl_err_set(err, SL_ECORRUPT, "%.120s: a list with a block of %u bytes", w->e->path,
					  out[i].len);
	}
	return 0;
}

static int walk_list(struct walk *w, const struct bk_ref *list, struct sl_err *err)
{
	struct bk_ref refs[PIECE];
	size_t all = list->len / BK_LIST_REF_BYTES, n = 0;
	int rc = 0;
	for (size_t first = 0; rc == 0 && first < all; first += n) {
		rc = read_piece(w, list, first, refs, &n, err);
		for (size_t i = 0; rc == 0 && i < n; i++) {
			w->bytes += refs[i].len;
			rc = w->fn(&refs[i], w->ctx);
		}
	}
	return rc;
}

static int walk_refs(struct walk *w, bool lists_too, struct sl_err *err)
{
	bool lists = (w->e->flags & BK_ENTRY_LISTS) != 0;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < w->e->refs_n; i++) {
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
	struct walk w = {reader, e, fn, ctx, 0};
	return walk_refs(&w, false, err);
}

int sl__bk_entry_all_refs(struct bk_reader *reader, const struct bk_entry *e, bk_ref_fn *fn, void *ctx,
			  struct sl_err *err)
{
	struct walk w = {reader, e, fn, ctx, 0};
	return walk_refs(&w, true, err);
}
