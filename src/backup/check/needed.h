/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a repository contains, and what its snapshots need of it: the basis of check, repair and prune.
 *
 * A view is what was there when it was loaded: packs, the index, and packs that no index file names, indexed from their
 * directories. A walk visits snapshots manifest block by manifest block, each block once, however many snapshots share
 * it. A choice selects one place for each block that is needed.
 *
 * Memory: 4 bytes and a bit per index entry, in addition to the index itself; independent of the number of snapshots.
 * Thread safety: one thread at a time; a loaded view may be read by several. Ownership: a view owns its index.
 */
#ifndef SL_BACKUP_NEEDED_H
#define SL_BACKUP_NEEDED_H

#include "backup/manifest/manifest.h"

#define BK_NO_PACK UINT32_MAX

/* ---- view ---- */

/* What loading a view reports. Each may be NULL: a stray is then ignored, damage fails the load. */
struct bk_view_watch {
	void (*stray)(const char *name, void *ctx);
	bk_index_damaged_fn *index_damaged;
	/* The directory of a pack that is not in the index. */
	int (*directory_damaged)(const struct bk_id *pack, const struct sl_err *err, void *ctx);
	void *ctx;
};

struct bk_view {
	struct sl_backup *b;
	struct bk_ids packs;     /* that exist; the number of a pack is its position here */
	uint64_t *sizes;         /* of packs */
	struct bk_ids unindexed; /* packs that no index file names */
	struct bk_index *index;
	uint64_t entries;  /* of the index, duplicates included */
	uint32_t *pack_of; /* by ordinal: the number of the pack that contains it; BK_NO_PACK: the pack is gone */
};

/* Packs are listed before the index is loaded: a pack that was made in between is not in the view. */
SL_MUST_CHECK int sl__bk_view_load(struct sl_backup *b, struct bk_view *out, const struct bk_view_watch *watch,
				   struct sl_err *err);
void sl__bk_view_fini(struct bk_view *v); /* zeroed is allowed */
/* Free the index and its entries; the packs stay. */
void sl__bk_view_drop_index(struct bk_view *v);
uint32_t sl__bk_view_pack(const struct bk_view *v, const struct bk_id *pack); /* its number, or BK_NO_PACK */
/* All ordinals of a block; grown as needed (sl__free). */
struct bk_ordinals {
	uint64_t *at;
	size_t n, cap;
};
SL_MUST_CHECK int sl__bk_view_ordinals(const struct bk_view *v, const struct bk_id *id, struct bk_ordinals *o,
				       struct sl_err *err);

/* ---- walk ---- */

/* A block that a snapshot needs. path: of the file, or NULL for the manifest itself. metadata: of the manifest, or a
 * list of blocks, which two packs should contain. 0: it exists; 1: it is missing, continue with the next one; negative:
 * end the walk with this code. */
typedef int bk_need_fn(const struct bk_ref *ref, const char *path, bool metadata, struct sl_err *err, void *ctx);
/* A manifest block (ref), or a list of blocks of the file at path, that cannot be read. Returns as above, but not 0. */
typedef int bk_unread_fn(const struct bk_ref *ref, const char *path, const struct sl_err *why, struct sl_err *err,
			 void *ctx);

struct bk_walk {
	/* set by the caller before init */
	struct sl_backup *b;
	bk_need_fn *need;
	bk_unread_fn *unread; /* NULL: a block that cannot be read ends the walk */
	void *ctx;
	/* internal */
	struct bk_reader *manifests, *lists;
	struct bk_seen *walked; /* manifest blocks that need nothing that is missing */
	struct bk_entry_scratch *scratch;
	struct sl__buf previous; /* path */
};
SL_MUST_CHECK int sl__bk_walk_init(struct bk_walk *w, struct bk_index *index, struct sl_err *err);
void sl__bk_walk_fini(struct bk_walk *w); /* before or after init */
/* Visit everything that this snapshot needs, except manifest blocks that an earlier walk found complete. */
SL_MUST_CHECK int sl__bk_walk_snapshot(struct bk_walk *w, const struct bk_snapshot *s, struct sl_err *err);
/* Visit the entries of one manifest block; fn returns 0 to continue. */
typedef int bk_walk_entry_fn(const struct bk_entry *e, struct sl_err *err, void *ctx);
SL_MUST_CHECK int sl__bk_walk_block(struct bk_walk *w, const struct bk_ref *ref, bk_walk_entry_fn *fn, void *ctx,
				    struct sl_err *err);

/* Blocks, in no order. */
struct bk_refs {
	struct bk_ref *refs; /* sl__free */
	size_t n, cap;
};
SL_MUST_CHECK int sl__bk_refs_add(const struct sl_env *env, struct bk_refs *s, const struct bk_ref *ref);

/* ---- choice ---- */

/* One place for each block that is needed, two for a metadata block: a bit by ordinal. Of several places the one in the
 * first pack by number is chosen, and one in a pack to avoid only when no other pack contains the block. */
struct bk_choice {
	const struct bk_view *view;
	const bool *avoid;   /* by pack number; may be NULL */
	const uint64_t *bad; /* by ordinal, a bit: never chosen; may be NULL */
	uint64_t *chosen;    /* by ordinal, a bit */
	struct bk_ordinals ordinals;
};
SL_MUST_CHECK int sl__bk_choice_init(struct bk_choice *c, const struct bk_view *view, const bool *avoid,
				     const uint64_t *bad, struct sl_err *err);
void sl__bk_choice_fini(struct bk_choice *c);
#define BK_METADATA_COPIES 2
/* Choose places for this block, in up to `copies` packs. Returns how many were chosen; SL_ENOENT (err is not filled):
 * no pack contains it. */
SL_MUST_CHECK int sl__bk_choose(struct bk_choice *c, const struct bk_id *id, int copies, struct sl_err *err);

static inline bool sl__bk_bit(const uint64_t *bits, uint64_t i)
{
	return (bits[i / 64] >> (i % 64) & 1) != 0;
}
static inline void sl__bk_set_bit(uint64_t *bits, uint64_t i)
{
	bits[i / 64] |= UINT64_C(1) << (i % 64);
}
static inline uint64_t *sl__bk_bits(const struct sl_env *env, uint64_t n) /* zeroed; NULL when out of memory */
{
	return sl__calloc(env, (size_t)(n / 64 + 1), sizeof(uint64_t));
}

#endif
