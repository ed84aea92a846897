/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs: blocks in compressed, sealed frames, with a directory at the end. A builder belongs to a worker: blocks are
 * added until the pack is full; the finished image is one object.
 *
 *   header | frame | frame | … | sealed directory | tail
 *   directory  u32 frames, u32 blocks; per frame u32 offset, stored, raw (top bit: zstd), blocks;
 *              per block id[32], u32 length
 *   frame      sealed: the blocks one after the other, as zstd or, when that is not less, as they are
 *
 * Thread safety: one thread at a time per handle. Ownership: take hands the image over; keys are borrowed.
 */
#ifndef SL_BACKUP_PACK_H
#define SL_BACKUP_PACK_H

#include "backup/repo/crypt.h"
#include "base/thread.h"

/* Where a block is. */
struct bk_place {
	uint32_t frame_offset, frame_stored; /* in the pack; stored: as in the file, with its seal */
	uint32_t frame_raw;                  /* bytes when opened and decompressed */
	uint32_t offset, length;             /* of the block in these */
	bool zstd;
};

/* The least size of a pack that has it: after its frames there is always a tail. */
static inline uint64_t sl__bk_place_end(const struct bk_place *p)
{
	return (uint64_t)p->frame_offset + p->frame_stored + BK_PACK_TAIL;
}

#define BK_IMAGE_ALIGN 4096u

/* Images' memory that waits to be used again: the system would make every page of a new one anew. Any thread. */
struct bk_image_head;
struct bk_images {
	sl__mutex mu;
	struct bk_image_head *spare;
	size_t n;
};
void sl__bk_images_init(struct bk_images *images);
void sl__bk_images_fini(struct bk_images *images, const struct sl_env *env); /* all of them are given back */
/* Memory that begins at a multiple of BK_IMAGE_ALIGN, so that a driver can write it around the page cache. images may
 * be NULL: nothing is kept. NULL without memory. */
uint8_t *sl__bk_image_alloc(const struct sl_env *env, struct bk_images *images, size_t cap);
void sl__bk_image_free(const struct sl_env *env, struct bk_images *images, uint8_t *bytes); /* NULL is allowed */

/* A block that is to be stored. */
struct bk_block {
	const struct bk_id *id;
	const void *bytes;
	size_t len;
};

struct bk_pack; /* a builder */

struct bk_pack_image {
	uint8_t *bytes; /* free with sl__bk_image_free */
	size_t len;
	struct bk_id name; /* SHA-256 of bytes */
	/* the blocks in order, for the index: id and place */
	struct bk_pack_block {
		struct bk_id id;
		struct bk_place place;
	} * blocks; /* free with sl__free */
	size_t n_blocks;
	uint64_t raw_bytes; /* of all blocks */
};
void sl__bk_pack_image_fini(const struct sl_env *env, struct bk_pack_image *image);

struct bk_pack_opts {
	const struct bk_keys *keys;
	int level;
	size_t pack_bytes;
	struct bk_images
		*images; /* the memory of images is taken from there, and outlives the builder; NULL: allocated */
};
SL_MUST_CHECK int sl__bk_pack_new(struct bk_pack **out, const struct sl_env *env, const struct bk_pack_opts *opts,
				  struct sl_err *err);
void sl__bk_pack_free(struct bk_pack *p); /* NULL is allowed */
/* The bytes are copied. *full: what is in it has reached pack_bytes, take it before the next add. length 0 to
 * BK_CHUNK_MAX. SL_ENOMEM; on failure the builder is not to be used any more. */
SL_MUST_CHECK int sl__bk_pack_add(struct bk_pack *p, const struct bk_block *block, bool *full, struct sl_err *err);
/* Close what is in it and hand the image over; the builder is empty afterwards. n_blocks 0: nothing was in it, bytes is
 * NULL. */
SL_MUST_CHECK int sl__bk_pack_take(struct bk_pack *p, struct bk_pack_image *out, struct sl_err *err);

/* What a builder may have written: nothing is larger compressed than as it is, and nothing larger than the bound. */
bool sl__bk_frame_sizes_ok(const struct bk_keys *keys, uint32_t stored, uint32_t raw, bool zstd);

struct bk_opener; /* keys, which are borrowed, and a decompression context */
SL_MUST_CHECK int sl__bk_opener_new(struct bk_opener **out, const struct sl_env *env, const struct bk_keys *keys,
				    struct sl_err *err);
void sl__bk_opener_free(struct bk_opener *o); /* NULL is allowed */
/* Open a frame as it stands in the file: `stored` is overwritten. out has room for place->frame_raw, which the caller
 * has bounded (BK_FRAME_RAW_MAX is checked here too). SL_ECORRUPT. */
SL_MUST_CHECK int sl__bk_frame_open(struct bk_opener *o, const struct bk_place *place, uint8_t *stored, uint8_t *out,
				    struct sl_err *err);

/*
 * Read the directory of a pack of which the last n bytes are given (overwritten). SL_EAGAIN with need set: give the
 * last `need` bytes. fn gets every block in order. Everything is checked before: bounds, overlaps, sums, and the header
 * when all of the pack is given; SL_ECORRUPT. What fn returns other than 0 ends it and becomes the result.
 */
typedef int bk_directory_fn(const struct bk_id *id, const struct bk_place *place, void *ctx);
struct bk_pack_end {
	uint8_t *bytes;
	size_t n;
	uint64_t pack_size;
	size_t need; /* set with SL_EAGAIN */
};
SL_MUST_CHECK int sl__bk_directory_read(const struct bk_keys *keys, struct bk_pack_end *last, bk_directory_fn *fn,
					void *ctx, struct sl_err *err);

#endif
