/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One index file, inside of the index's own files (docs/formats/backup.md).
 *
 *   header, BK_INDEX_HEADER bytes: magic 8 | repository 16 | random 16 | u32 packs | u32 entries | u32 entries of a
 *   segment | u32 0 | u64 CRC-64/NVME of what is before
 *   head, sealed with the header's first 56 bytes bound in: the packs' ids, a fence for each segment, a last fence
 *   segments, each sealed with the same and its number bound in: entries sorted by id
 *
 * A fence is the first 8 bytes of the first id of a segment, the last one those of the last id of the file. All lengths
 * follow from the header's numbers; a file of another length is damaged.
 */
#ifndef SL_BACKUP_INDEX_FILE_H
#define SL_BACKUP_INDEX_FILE_H

#include <stdatomic.h>

#include "backup/pack/index.h"
#include "base/thread.h"

#define BK_INDEX_HEADER 64u
/* How much of the header is bound in: not its CRC, with which all of it would cancel out in another CRC. */
#define BK_INDEX_BOUND 56u
#define BK_INDEX_FILE_ENTRIES (1u << 19) /* that a builder puts into a file: 28 MiB */
#define BK_INDEX_ENTRIES_MAX (1u << 24)  /* that a reader takes from one */
#define BK_INDEX_SEGMENT_BYTES (BK_INDEX_SEGMENT * BK_INDEX_ENTRY)
#define BK_INDEX_FENCE 8u
#define BK_INDEX_ZSTD 0x80000000u
#define BK_INDEX_LOCKS 16u

struct bk_index_file {
	_Atomic(struct bk_index_file *) next, next_asked;
	char name[SL_DRIVER_NAME_BYTES]; /* "index/…"; empty: only in memory */
	const sl_driver *driver;         /* that has the object */
	uint8_t header[BK_INDEX_HEADER];
	uint32_t n_packs, n_entries, n_segments;
	uint64_t first_ordinal; /* of its first entry */
	struct bk_id *packs;
	bool *usable;
	uint64_t *fences;       /* n_segments + 1, as numbers that compare as the ids do */
	uint8_t *segments;      /* stride bytes each; pages that no look-up needed are never touched */
	size_t stride, front;   /* the entries of a segment begin at its front */
	_Atomic uint8_t *ready; /* per segment: it is read, and checked */
	atomic_bool gone;       /* the object was removed: what is not read yet is to be found in other files */
	bool gathered;          /* what may be used of it is in the index's front */
};

struct bk_index {
	struct sl_env env;
	const struct bk_keys *keys;
	const sl_driver *driver;
	_Atomic(struct bk_index_file *) first; /* files are only ever added, at the end */
	struct bk_index_file *last;
	size_t n_files;
	uint64_t entries;
	/* For find: the entries of many small files in one that is in memory (the front, index.c), and the other files. */
	struct bk_index_file *front; /* NULL: there are not many */
	_Atomic(struct bk_index_file *) asked;
	struct bk_index_file *last_asked;
	atomic_bool front_made;
	sl__mutex refreshing;              /* adding files while others look up */
	sl__mutex reading[BK_INDEX_LOCKS]; /* of segments, by their number */
};

static inline uint64_t sl__bk_fence(const uint8_t *id)
{
	uint64_t v;
	memcpy(&v, id, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	v = __builtin_bswap64(v);
#endif
	return v;
}

static inline uint32_t sl__bk_segments(uint32_t entries)
{
	return (entries + BK_INDEX_SEGMENT - 1) / BK_INDEX_SEGMENT;
}

/* Entries of a segment of the file. */
static inline uint32_t sl__bk_segment_entries(uint32_t entries, uint32_t segment)
{
	return SL_MIN(entries - segment * BK_INDEX_SEGMENT, BK_INDEX_SEGMENT);
}

void sl__bk_entry_write(uint8_t entry[BK_INDEX_ENTRY], const struct bk_id *id, uint32_t pack,
			const struct bk_place *place);
void sl__bk_entry_place(const uint8_t entry[BK_INDEX_ENTRY], struct bk_place *place);
/* Header and segment number: what a segment is bound to. */
#define BK_SEGMENT_AAD (BK_INDEX_BOUND + 4u)
void sl__bk_segment_aad(const uint8_t header[BK_INDEX_HEADER], uint32_t segment, uint8_t out[BK_SEGMENT_AAD]);

/* Read header and head of an object of size bytes. SL_ENOENT: it is not there any more; SL_ECORRUPT. */
SL_MUST_CHECK int sl__bk_index_file_open(struct bk_index_file **out, struct bk_index *x, const char *name,
					 uint64_t size, struct sl_err *err);
void sl__bk_index_file_free(const struct sl_env *env, struct bk_index_file *f);
/* Room for the tables of n_packs, n_segments, …, which are set; nothing is in them. */
SL_MUST_CHECK int sl__bk_index_file_tables(const struct sl_env *env, struct bk_index_file *f, struct sl_err *err);

/* The entries of a segment, read when it was not before. SL_ENOENT: the object is gone. */
SL_MUST_CHECK int sl__bk_index_segment(struct bk_index *x, struct bk_index_file *f, uint32_t segment,
				       const uint8_t **entries, struct sl_err *err);
/* Back to what it was before anything was read, for its memory. Not during look-ups. */
void sl__bk_index_file_forget(struct bk_index *x, struct bk_index_file *f);
/* Every entry of an id; a value other than 0 of fn ends it and becomes the result. */
typedef int bk_index_visit_fn(const struct bk_index_file *f, uint64_t ordinal, const uint8_t *entry, void *ctx);
struct bk_index_search {
	const struct bk_id *id;
	bk_index_visit_fn *fn;
	void *ctx;
};
SL_MUST_CHECK int sl__bk_index_file_search(struct bk_index *x, struct bk_index_file *f,
					   const struct bk_index_search *search, struct sl_err *err);
/* All that a builder holds, in memory; the builder is empty afterwards. It must hold something. */
SL_MUST_CHECK int sl__bk_index_file_make(struct bk_index_file **out, const struct sl_env *env,
					 struct bk_index_builder *b, struct sl_err *err);
/* At the end of the index, which owns it then. */
void sl__bk_index_append(struct bk_index *x, struct bk_index_file *f);

#endif
