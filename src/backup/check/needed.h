/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a repository, and what its snapshots need of it: the ground of check, repair and prune.
 *
 * A view is what was there when it was loaded: packs, index, and packs that no index file names, taken in from their
 * directories. A walk goes over snapshots block by block of their manifests, each block once, however many snapshots
 * have it. A choice names one place for each block that is needed.
 *
 * Memory: 4 bytes and a bit for each entry of the index, besides the index itself; not by the number of snapshots.
 * Thread safety: one thread at a time, but reading a view that is loaded. Ownership: a view owns its index.
 */
#ifndef SL_BACKUP_NEEDED_H
#define SL_BACKUP_NEEDED_H

#include "backup/manifest/manifest.h"

#define BK_NO_PACK UINT32_MAX

/* ---- view ---- */

/* What a view meets that is not as it should be; each may be NULL: passed over (stray), or the load fails. */
struct bk_view_watch {
	void (*stray)(const char *name, void *ctx);
	bk_index_damaged_fn *index_damaged;
	int (*directory_damaged)(const struct bk_id *pack, const struct sl_err *err,
				 void *ctx); /* of one not in the index */
	void *ctx;
};

struct bk_view {
	struct sl_backup *b;
	struct bk_ids packs;     /* that are there; a pack's number is its place here */
	uint64_t *sizes;         /* theirs */
	struct bk_ids unindexed; /* of these, the ones that no index file names */
	struct bk_index *index;
	uint64_t entries;  /* of the index, with doubles */
	uint32_t *pack_of; /* by ordinal: the number of the pack that has it; BK_NO_PACK: it is gone */
};

/* Packs are listed first, the index is loaded then: a pack that was made in between is not in the view. */
SL_MUST_CHECK int sl__bk_view_load(struct sl_backup *b, struct bk_view *out, const struct bk_view_watch *watch,
				   struct sl_err *err);
void sl__bk_view_fini(struct bk_view *v); /* zeroed is allowed */
/* Only the packs stay: there are no entries any more. */
void sl__bk_view_drop_index(struct bk_view *v);
uint32_t sl__bk_view_pack(const struct bk_view *v, const struct bk_id *pack); /* its number, or BK_NO_PACK */
/* All ordinals of a block, in *out (grown as needed, sl__free), *n of them. */
struct bk_ordinals {
	uint64_t *at;
	size_t n, cap;
};
SL_MUST_CHECK int sl__bk_view_ordinals(const struct bk_view *v, const struct bk_id *id, struct bk_ordinals *o,
				       struct sl_err *err);

/* The blocks of a pack as its directory says, in fresh memory (sl__free). */
SL_MUST_CHECK int sl__bk_directory_blocks(struct sl_backup *b, const struct bk_id *pack, uint64_t size,
					  struct bk_pack_block **blocks, size_t *n, struct sl_err *err);

/* ---- walk ---- */

/* A block that a snapshot needs. path: of the file, or NULL for the manifest itself. metadata: of the manifest, or a
 * list of blocks, and so to be in two packs. 0: it is there; 1: it is not, go on with the next; negative: end the walk
 * with it. */
typedef int bk_need_fn(const struct bk_ref *ref, const char *path, bool metadata, void *ctx, struct sl_err *err);
/* A block of the manifest, or a list of blocks of the file at path, that cannot be read. As above, not 0. */
typedef int bk_unread_fn(const struct bk_ref *ref, const char *path, const struct sl_err *why, void *ctx,
			 struct sl_err *err);

struct bk_walk {
	struct sl_backup *b;
	bk_need_fn *need;
	bk_unread_fn *unread;
	void *ctx;
	struct bk_reader *manifests, *lists;
	struct bk_seen *walked; /* blocks of manifests of which everything is there */
	struct bk_entry_scratch *scratch;
	struct sl__buf previous; /* path */
};
/* unread NULL: one that cannot be read ends the walk. */
SL_MUST_CHECK int sl__bk_walk_init(struct bk_walk *w, struct sl_backup *b, struct bk_index *index, bk_need_fn *need,
				   bk_unread_fn *unread, void *ctx, struct sl_err *err);
void sl__bk_walk_fini(struct bk_walk *w); /* zeroed is allowed */
/* Everything that this snapshot needs, but for blocks of manifests of which an earlier walk has found all. */
SL_MUST_CHECK int sl__bk_walk_snapshot(struct bk_walk *w, const struct bk_snapshot *s, struct sl_err *err);
/* The entries of one block of a manifest, which is the caller's; fn: 0 to go on. */
typedef int bk_walk_entry_fn(const struct bk_entry *e, void *ctx, struct sl_err *err);
SL_MUST_CHECK int sl__bk_walk_block(struct bk_walk *w, const struct bk_ref *ref, bk_walk_entry_fn *fn, void *ctx,
				    struct sl_err *err);

/* Blocks, in no order. */
struct bk_refs {
	struct bk_ref *refs; /* sl__free */
	size_t n, cap;
};
SL_MUST_CHECK int sl__bk_refs_add(const struct sl_env *env, struct bk_refs *s, const struct bk_ref *ref);

/* ---- choice ---- */

/* One place for each block that is needed, two for one of metadata: a bit by ordinal. Of several places the first pack
 * by number, and one of a pack to avoid only when there is no other. */
struct bk_choice {
	const struct bk_view *view;
	const bool *avoid;   /* by pack number; may be NULL */
	const uint64_t *bad; /* by ordinal, a bit: not a place at all; may be NULL */
	uint64_t *chosen;    /* by ordinal, a bit */
	struct bk_ordinals ordinals;
};
SL_MUST_CHECK int sl__bk_choice_init(struct bk_choice *c, const struct bk_view *view, const bool *avoid,
				     const uint64_t *bad, struct sl_err *err);
void sl__bk_choice_fini(struct bk_choice *c);
#define BK_METADATA_COPIES 2
/* Choose for this block, in that many packs where there are so many. How many were chosen; SL_ENOENT (err is not
 * filled): no pack has it. */
SL_MUST_CHECK int sl__bk_choose(struct bk_choice *c, const struct bk_id *id, int copies, struct sl_err *err);
/* Is the copy of the block in this pack the chosen one? 1, 0 or a negative SL_E…. */
int sl__bk_is_chosen(struct bk_choice *c, const struct bk_id *id, uint32_t pack, struct sl_err *err);

static inline bool sl__bk_bit(const uint64_t *bits, uint64_t i)
{
	return (bits[i / 64] >> (i % 64) & 1) != 0;
}
static inline void sl__bk_set_bit(uint64_t *bits, uint64_t i)
{
	bits[i / 64] |= UINT64_C(1) << (i % 64);
}
static inline uint64_t *sl__bk_bits(const struct sl_env *env, uint64_t n) /* zeroed; NULL without memory */
{
	return sl__calloc(env, (size_t)(n / 64 + 1), sizeof(uint64_t));
}

#endif
