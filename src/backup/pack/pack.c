/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builder of packs. A block's bytes are copied once, into the open solid frame, or not at all, when the block is a
 * frame of its own; a frame is compressed straight into the image, behind the room for its seal, sealed in place, and
 * taken into the image's SHA-256 while it is still in the processor's cache.
 *
 *   image: header | frame | frame | …            (len bytes; the directory and the tail come with take)
 *   solid: the bytes of small blocks that wait for their frame to be full; open_blocks are these blocks
 *
 * The image has room for pack_bytes and what may come on top before the caller takes it: one frame of the largest
 * block, and the open one. Pages that are not needed are never touched.
 */
#include "backup/pack/pack.h"
#include "backup/repo/broken.h"

#include <zstd.h>
#include <zstd_errors.h>

#include "base/crc64nvme.h"
#include "base/sha256.h"

#define ZSTD_FLAG 0x80000000u
#define DIRECTORY_FIXED 8u
#define DIRECTORY_FRAME 16u
#define DIRECTORY_BLOCK 36u

struct frame {
	uint32_t offset, stored;
	uint32_t raw; /* with ZSTD_FLAG */
	uint32_t blocks;
};

struct blocks {
	struct bk_pack_block *items;
	size_t n, cap;
};

struct bk_pack {
	struct sl_env env;
	const struct bk_keys *keys;
	size_t pack_bytes;
	ZSTD_CCtx *zstd;
	struct bk_images *images; /* or NULL */
	uint8_t *image;           /* NULL: nothing is in the pack */
	size_t len, cap;          /* of the image */
	struct sl__sha256 sha;    /* of the image's len bytes; begun when there is an image */
	struct blocks blocks;     /* of the frames that are in the image, in their order */
	struct frame *frames;
	size_t frames_n, frames_cap;
	uint8_t *solid; /* BK_FRAME_BYTES */
	size_t solid_len;
	struct blocks open_blocks; /* their places lack the frame */
	uint64_t raw_bytes;
};

static bool set_one(ZSTD_CCtx *zstd, ZSTD_cParameter parameter, int value)
{
	return !ZSTD_isError(ZSTD_CCtx_setParameter(zstd, parameter, value));
}

/* The default is level 2 with the window of a whole frame: on system files it takes a little more than half of the time
 * of level 3 and loses 3 % of size. Its table stays in a processor's own cache. */
static bool set_level(ZSTD_CCtx *zstd, int level)
{
	if (level != BK_LEVEL_DEFAULT)
		return set_one(zstd, ZSTD_c_compressionLevel, level);
	return set_one(zstd, ZSTD_c_compressionLevel, 2) && set_one(zstd, ZSTD_c_strategy, ZSTD_fast) &&
	       set_one(zstd, ZSTD_c_windowLog, 21) && set_one(zstd, ZSTD_c_hashLog, 16) &&
	       set_one(zstd, ZSTD_c_minMatch, 6);
}

int sl__bk_pack_new(struct bk_pack **out, const struct sl_env *env, const struct bk_keys *keys, int level,
		    size_t pack_bytes, struct sl_err *err)
{
	if (pack_bytes == 0 || pack_bytes > BK_PACK_BYTES_MAX / 2)
		return sl_err_set(err, SL_EINVAL, "packs of %zu bytes: want 1 to %u", pack_bytes,
				  BK_PACK_BYTES_MAX / 2);
	struct bk_pack *p = sl__calloc(env, 1, sizeof(*p));
	if (p == NULL)
		return sl__no_memory(err, "a pack of blocks");
	p->env = *env;
	p->keys = keys;
	p->pack_bytes = pack_bytes;
	p->solid = sl__alloc(env, BK_FRAME_BYTES);
	p->zstd = ZSTD_createCCtx();
	int rc = p->solid != NULL && p->zstd != NULL ? 0 : sl__no_memory(err, "a pack of blocks");
	if (rc == 0 && !set_level(p->zstd, level))
		rc = sl_err_set(err, SL_EINVAL, "no zstd level %d", level);
	if (rc != 0) {
		sl__bk_pack_free(p);
		return rc;
	}
	*out = p;
	return 0;
}

void sl__bk_pack_use_images(struct bk_pack *p, struct bk_images *images)
{
	p->images = images;
}

void sl__bk_pack_free(struct bk_pack *p)
{
	if (p == NULL)
		return;
	struct sl_env env = p->env;
	sl__sha256_drop(&p->sha);
	(void)ZSTD_freeCCtx(p->zstd);
	sl__bk_image_free(&env, p->images, p->image);
	sl__free(&env, p->blocks.items);
	sl__free(&env, p->open_blocks.items);
	sl__free(&env, p->frames);
	sl__free(&env, p->solid);
	sl__free(&env, p);
}

void sl__bk_pack_image_fini(const struct sl_env *env, struct bk_pack_image *image)
{
	sl__bk_image_free(env, NULL, image->bytes);
	sl__free(env, image->blocks);
	memset(image, 0, sizeof(*image));
}

static int room_for_blocks(struct bk_pack *p, struct blocks *b, size_t more, struct sl_err *err)
{
	if (b->cap - b->n >= more)
		return 0;
	size_t cap = SL_MAX(SL_MAX(2 * b->cap, b->n + more), (size_t)64);
	struct bk_pack_block *items = sl__realloc(&p->env, b->items, cap * sizeof(*items));
	if (items == NULL)
		return sl__no_memory(err, "a pack of blocks");
	b->items = items;
	b->cap = cap;
	return 0;
}

static int room_for_frame(struct bk_pack *p, struct sl_err *err)
{
	if (p->frames_n < p->frames_cap)
		return 0;
	size_t cap = SL_MAX(2 * p->frames_cap, (size_t)32);
	struct frame *frames = sl__realloc(&p->env, p->frames, cap * sizeof(*frames));
	if (frames == NULL)
		return sl__no_memory(err, "a pack of blocks");
	p->frames = frames;
	p->frames_cap = cap;
	return 0;
}

static int begin_image(struct bk_pack *p, struct sl_err *err)
{
	if (p->image != NULL)
		return 0;
	p->cap = BK_PACK_HEADER + p->pack_bytes + ZSTD_compressBound(BK_CHUNK_MAX) +
		 ZSTD_compressBound(BK_FRAME_BYTES) + 3 * BK_SEAL_MAX;
	p->image = sl__bk_image_alloc(&p->env, p->images, p->cap);
	if (p->image == NULL)
		return sl__no_memory(err, "a pack of blocks");
	memcpy(p->image, BK_PACK_MAGIC, 8);
	memcpy(p->image + 8, p->keys->repository, BK_NAME_BYTES);
	int rc = p->env.rand->fill(p->image + 8 + BK_NAME_BYTES, BK_NAME_BYTES, p->env.rand_ctx); /* F6 */
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "draw what makes a pack's name unique");
	if (BK_BROKEN(BK_BREAK_SAME_NAMES))
		memset(p->image + 8 + BK_NAME_BYTES, 0, BK_NAME_BYTES);
	p->len = BK_PACK_HEADER;
	rc = sl__sha256_begin(&p->sha, err);
	return rc != 0 ? rc : sl__sha256_update(&p->sha, p->image, p->len, err);
}

/* The image's bytes when it is closed now, without the open frame. */
static size_t closed_len(const struct bk_pack *p)
{
	return p->len + DIRECTORY_FIXED + p->frames_n * DIRECTORY_FRAME +
	       (p->blocks.n + p->open_blocks.n) * DIRECTORY_BLOCK + sl__bk_seal_bytes(p->keys) + BK_PACK_TAIL;
}

/* The frame's contents at body: compressed, or as they are when that is not less. */
static int fill_frame(struct bk_pack *p, uint8_t *body, const void *raw, size_t n, struct frame *f, struct sl_err *err)
{
	size_t room = p->cap - (size_t)(body - p->image);
	size_t len = ZSTD_compress2(p->zstd, body, room, raw, n);
	if (ZSTD_isError(len) && ZSTD_getErrorCode(len) == ZSTD_error_memory_allocation)
		return sl__no_memory(err, "a pack of blocks");
	f->raw = (uint32_t)n | ZSTD_FLAG;
	if (ZSTD_isError(len) || len >= n) {
		if (n != 0)
			memcpy(body, raw, n);
		len = n;
		f->raw = (uint32_t)n;
	}
	f->stored = (uint32_t)(len + sl__bk_seal_bytes(p->keys));
	return 0;
}

/* Put a frame of these blocks, whose places lack it, at the image's end. */
static int put_frame(struct bk_pack *p, const void *raw, size_t n, const struct bk_pack_block *blocks, size_t blocks_n,
		     struct sl_err *err)
{
	struct frame f = {.blocks = (uint32_t)blocks_n};
	int rc = begin_image(p, err);
	if (rc == 0)
		rc = room_for_frame(p, err);
	if (rc == 0)
		rc = room_for_blocks(p, &p->blocks, blocks_n, err);
	if (rc != 0)
		return rc;
	uint8_t *at = p->image + p->len, *body = at + sl__bk_seal_front(p->keys);
	f.offset = (uint32_t)p->len;
	rc = fill_frame(p, body, raw, n, &f, err);
	if (rc == 0)
		rc = sl__bk_seal(&p->env, p->keys, BK_KIND_FRAME, NULL, 0, body, f.stored - sl__bk_seal_bytes(p->keys),
				 at, err);
	if (rc == 0)
		rc = sl__sha256_update(&p->sha, at, f.stored, err);
	if (rc != 0)
		return rc;
	p->len += f.stored;
	p->frames[p->frames_n++] = f;
	for (size_t i = 0; i < blocks_n; i++) {
		struct bk_pack_block *b = &p->blocks.items[p->blocks.n++];
		*b = blocks[i];
		b->place.frame_offset = f.offset;
		b->place.frame_stored = f.stored;
		b->place.frame_raw = (uint32_t)n;
		b->place.zstd = (f.raw & ZSTD_FLAG) != 0;
	}
	return 0;
}

static int close_solid(struct bk_pack *p, struct sl_err *err)
{
	if (p->open_blocks.n == 0)
		return 0;
	int rc = put_frame(p, p->solid, p->solid_len, p->open_blocks.items, p->open_blocks.n, err);
	p->solid_len = 0;
	p->open_blocks.n = 0;
	return rc;
}

static int add_small(struct bk_pack *p, struct bk_pack_block *b, const void *bytes, size_t len, struct sl_err *err)
{
	int rc = 0;
	if (p->solid_len + len > BK_FRAME_BYTES || p->open_blocks.n == BK_FRAME_BLOCKS_MAX)
		rc = close_solid(p, err);
	if (rc == 0)
		rc = room_for_blocks(p, &p->open_blocks, 1, err);
	if (rc != 0)
		return rc;
	b->place.offset = (uint32_t)p->solid_len;
	if (len != 0)
		memcpy(p->solid + p->solid_len, bytes, len);
	p->solid_len += len;
	p->open_blocks.items[p->open_blocks.n++] = *b;
	return 0;
}

int sl__bk_pack_add(struct bk_pack *p, const struct bk_id *id, const void *bytes, size_t len, bool *full,
		    struct sl_err *err)
{
	struct bk_pack_block b = {.id = *id, .place = {.length = (uint32_t)len}};
	if (len > BK_CHUNK_MAX)
		return sl_err_set(err, SL_EINVAL, "a block of %zu bytes: at most %u", len, BK_CHUNK_MAX);
	int rc = len < BK_SOLID_BELOW ? add_small(p, &b, bytes, len, err) : put_frame(p, bytes, len, &b, 1, err);
	if (rc != 0)
		return rc;
	p->raw_bytes += len;
	*full = closed_len(p) >= p->pack_bytes;
	return 0;
}

static void write_directory(const struct bk_pack *p, uint8_t *at)
{
	sl__put32(at, (uint32_t)p->frames_n);
	sl__put32(at + 4, (uint32_t)p->blocks.n);
	at += DIRECTORY_FIXED;
	for (size_t i = 0; i < p->frames_n; i++, at += DIRECTORY_FRAME) {
		sl__put32(at, p->frames[i].offset);
		sl__put32(at + 4, p->frames[i].stored);
		sl__put32(at + 8, p->frames[i].raw);
		sl__put32(at + 12, p->frames[i].blocks);
	}
	for (size_t i = 0; i < p->blocks.n; i++, at += DIRECTORY_BLOCK) {
		memcpy(at, p->blocks.items[i].id.b, BK_ID_BYTES);
		sl__put32(at + BK_ID_BYTES, p->blocks.items[i].place.length);
	}
}

/* Directory and tail behind the frames; the image is whole afterwards. */
static int close_image(struct bk_pack *p, struct sl_err *err)
{
	size_t whole = closed_len(p), directory = whole - p->len - BK_PACK_TAIL;
	if (whole > p->cap) {
		uint8_t *image = sl__bk_image_alloc(&p->env, NULL, whole);
		if (image == NULL)
			return sl__no_memory(err, "a pack of blocks");
		memcpy(image, p->image, p->len);
		sl__bk_image_free(&p->env, p->images, p->image);
		p->image = image;
		p->cap = whole;
	}
	uint8_t *at = p->image + p->len, *body = at + sl__bk_seal_front(p->keys), *tail = at + directory;
	write_directory(p, body);
	int rc = sl__bk_seal(&p->env, p->keys, BK_KIND_DIRECTORY, NULL, 0, body, directory - sl__bk_seal_bytes(p->keys),
			     at, err);
	if (rc != 0)
		return rc;
	sl__put32(tail, (uint32_t)directory);
	sl__put32(tail + 4, 0);
	sl__put64(tail + 8, sl__crc64nvme(0, at, directory));
	memcpy(tail + 16, BK_PACK_END, 8);
	p->len = whole;
	return sl__sha256_update(&p->sha, at, directory + BK_PACK_TAIL, err);
}

int sl__bk_pack_take(struct bk_pack *p, struct bk_pack_image *out, struct sl_err *err)
{
	struct bk_pack_image image = {.bytes = NULL};
	int rc = close_solid(p, err);
	if (rc == 0 && p->image != NULL) {
		rc = close_image(p, err);
		if (rc == 0)
			rc = sl__sha256_final(&p->sha, image.name.b, err);
		if (rc == 0) {
			image.bytes = p->image;
			image.len = p->len;
			image.blocks = p->blocks.items;
			image.blocks_n = p->blocks.n;
			image.raw_bytes = p->raw_bytes;
			p->image = NULL;
			p->blocks = (struct blocks){.items = NULL};
			p->len = p->cap = p->frames_n = 0;
			p->raw_bytes = 0;
		}
	}
	if (rc == 0)
		*out = image;
	return rc;
}
