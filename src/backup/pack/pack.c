/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builder of packs. A block's bytes are copied once, into the open solid frame, or not at all, when the block is its
 * own frame; a frame is compressed straight into the image, after the room for its seal, sealed in place, and added to
 * the image's SHA-256 while it is still in the processor's cache.
 *
 *   image: header | frame | frame | …            (len bytes; the directory and the tail come with take)
 *   solid: the bytes of small blocks that wait for their frame to be full; open_blocks are these blocks
 *
 * The image has room for pack_bytes and what may come on top before the caller takes it: one frame of the largest
 * block, and the open one. Pages that are not needed are never touched.
 *
 * A head lies right before the bytes of an image, in the room that aligning them leaves anyway:
 *
 *   memory … | head | bytes, at a multiple of BK_IMAGE_ALIGN
 */
#include "backup/pack/pack.h"

#include <zstd.h>
#include <zstd_errors.h>

#include "base/crc64nvme.h"
#include "base/sha256.h"

#define ZSTD_FLAG 0x80000000u
#define DIRECTORY_FIXED 8u
#define DIRECTORY_FRAME 16u
#define DIRECTORY_BLOCK 36u
#define SPARE_MAX 2u /* images that wait to be used again; more are freed */

/* ---- memory of images ---- */

struct bk_image_head {
	void *memory; /* as it was allocated */
	size_t cap;   /* of the bytes */
	struct bk_image_head *next;
};

static struct bk_image_head *head_of(uint8_t *bytes)
{
	return (struct bk_image_head *)(void *)bytes - 1;
}

void sl__bk_images_init(struct bk_images *images)
{
	sl__mutex_init(&images->mu);
	images->spare = NULL;
	images->n = 0;
}

void sl__bk_images_fini(struct bk_images *images, const struct sl_env *env)
{
	while (images->spare != NULL) {
		struct bk_image_head *head = images->spare;
		images->spare = head->next;
		sl__free(env, head->memory);
	}
	sl__mutex_fini(&images->mu);
}

uint8_t *sl__bk_image_alloc(const struct sl_env *env, struct bk_images *images, size_t cap)
{
	if (images != NULL) {
		sl__lock(&images->mu);
		struct bk_image_head *spare = images->spare;
		bool fits = spare != NULL && spare->cap >= cap;
		if (fits) {
			images->spare = spare->next;
			images->n--;
		}
		sl__unlock(&images->mu);
		if (fits)
			return (uint8_t *)(spare + 1);
	}
	uint8_t *memory = sl__alloc(env, sizeof(struct bk_image_head) + BK_IMAGE_ALIGN + cap);
	if (memory == NULL)
		return NULL;
	uint8_t *bytes = memory + sizeof(struct bk_image_head);
	bytes += (BK_IMAGE_ALIGN - (uintptr_t)bytes % BK_IMAGE_ALIGN) % BK_IMAGE_ALIGN;
	*head_of(bytes) = (struct bk_image_head){.memory = memory, .cap = cap};
	return bytes;
}

void sl__bk_image_free(const struct sl_env *env, struct bk_images *images, uint8_t *bytes)
{
	if (bytes == NULL)
		return;
	struct bk_image_head *head = head_of(bytes);
	bool kept = false;
	if (images != NULL) {
		sl__lock(&images->mu);
		kept = images->n < SPARE_MAX;
		if (kept) {
			head->next = images->spare;
			images->spare = head;
			images->n++;
		}
		sl__unlock(&images->mu);
	}
	if (!kept)
		sl__free(env, head->memory);
}

/* ---- the builder ---- */

struct pack_frame {
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
	struct pack_frame *frames;
	size_t n_frames, cap_frames;
	uint8_t *solid; /* BK_FRAME_BYTES */
	size_t solid_len;
	struct blocks open_blocks; /* their places lack the frame */
	uint64_t raw_bytes;
};

int sl__bk_pack_new(struct bk_pack **out, const struct sl_env *env, const struct bk_pack_opts *opts, struct sl_err *err)
{
	/* The default is level 2 with the window of a whole frame: on system files it takes a little more than half of
	 * the time of level 3 and loses 3 % of size. Its table stays in a processor's own cache. */
	static const struct {
		ZSTD_cParameter name;
		int value;
	} defaults[] = {{ZSTD_c_compressionLevel, 2},
			{ZSTD_c_strategy, ZSTD_fast},
			{ZSTD_c_windowLog, 21},
			{ZSTD_c_hashLog, 16},
			{ZSTD_c_minMatch, 6}};
	if (opts->pack_bytes == 0 || opts->pack_bytes > BK_PACK_BYTES_MAX / 2)
		return sl_err_set(err, SL_EINVAL, "packs of %zu bytes; give 1 to %u", opts->pack_bytes,
				  BK_PACK_BYTES_MAX / 2);
	struct bk_pack *p = sl__calloc(env, 1, sizeof(*p));
	if (p == NULL)
		return sl__no_memory(err, "a pack of blocks");
	p->env = *env;
	p->keys = opts->keys;
	p->pack_bytes = opts->pack_bytes;
	p->images = opts->images;
	p->solid = sl__alloc(env, BK_FRAME_BYTES);
	p->zstd = ZSTD_createCCtx();
	int rc = p->solid != NULL && p->zstd != NULL ? 0 : sl__no_memory(err, "a pack of blocks");
	bool set = true;
	if (rc == 0 && opts->level != BK_LEVEL_DEFAULT)
		set = !ZSTD_isError(ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_compressionLevel, opts->level));
	for (size_t i = 0; i < SL_COUNT(defaults) && rc == 0 && opts->level == BK_LEVEL_DEFAULT; i++)
		set = set && !ZSTD_isError(ZSTD_CCtx_setParameter(p->zstd, defaults[i].name, defaults[i].value));
	if (rc == 0 && !set)
		rc = sl_err_set(err, SL_EINVAL, "no zstd level %d", opts->level);
	if (rc != 0) {
		sl__bk_pack_free(p);
		return rc;
	}
	*out = p;
	return 0;
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
		return sl_err_set_errno(err, -rc, "random bytes for the name of a pack");
	p->len = BK_PACK_HEADER;
	rc = sl__sha256_begin(&p->sha, err);
	if (rc == 0)
		rc = sl__sha256_update(&p->sha, p->image, p->len, err);
	return rc;
}

/* The image's bytes when it is closed now, without the open frame. */
static size_t closed_len(const struct bk_pack *p)
{
	return p->len + DIRECTORY_FIXED + p->n_frames * DIRECTORY_FRAME +
	       (p->blocks.n + p->open_blocks.n) * DIRECTORY_BLOCK + sl__bk_seal_bytes(p->keys) + BK_PACK_TAIL;
}

/* Append a frame of these blocks, whose places lack it, to the image. */
static int append_frame(struct bk_pack *p, const void *raw, size_t n, const struct blocks *blocks, struct sl_err *err)
{
	const struct bk_seal as = {.env = &p->env, .keys = p->keys, .kind = BK_KIND_FRAME};
	int rc = begin_image(p, err);
	if (rc == 0)
		rc = room_for_blocks(p, &p->blocks, blocks->n, err);
	if (rc != 0)
		return rc;
	struct pack_frame *frames = sl__grow(&p->env, p->frames, p->n_frames, &p->cap_frames, sizeof(*frames));
	if (frames == NULL)
		return sl__no_memory(err, "a pack of blocks");
	p->frames = frames;
	/* The contents: compressed, or as they are when that is not less. */
	uint8_t *at = p->image + p->len, *body = at + sl__bk_seal_front(p->keys);
	size_t len = ZSTD_compress2(p->zstd, body, p->cap - (size_t)(body - p->image), raw, n);
	if (ZSTD_isError(len) && ZSTD_getErrorCode(len) == ZSTD_error_memory_allocation)
		return sl__no_memory(err, "a pack of blocks");
	bool zstd = !ZSTD_isError(len) && len < n;
	if (!zstd && n != 0)
		memcpy(body, raw, n);
	if (!zstd)
		len = n;
	struct pack_frame f = {.offset = (uint32_t)p->len,
			       .stored = (uint32_t)(len + sl__bk_seal_bytes(p->keys)),
			       .raw = (uint32_t)n | (zstd ? ZSTD_FLAG : 0),
			       .blocks = (uint32_t)blocks->n};
	rc = sl__bk_seal(&as, body, len, at, err);
	if (rc == 0)
		rc = sl__sha256_update(&p->sha, at, f.stored, err);
	if (rc != 0)
		return rc;
	p->len += f.stored;
	p->frames[p->n_frames++] = f;
	for (size_t i = 0; i < blocks->n; i++) {
		struct bk_pack_block *b = &p->blocks.items[p->blocks.n++];
		*b = blocks->items[i];
		b->place.frame_offset = f.offset;
		b->place.frame_stored = f.stored;
		b->place.frame_raw = (uint32_t)n;
		b->place.zstd = zstd;
	}
	return 0;
}

static int close_solid(struct bk_pack *p, struct sl_err *err)
{
	if (p->open_blocks.n == 0)
		return 0;
	int rc = append_frame(p, p->solid, p->solid_len, &p->open_blocks, err);
	p->solid_len = 0;
	p->open_blocks.n = 0;
	return rc;
}

int sl__bk_pack_add(struct bk_pack *p, const struct bk_block *block, bool *full, struct sl_err *err)
{
	size_t len = block->len;
	struct bk_pack_block b = {.id = *block->id, .place = {.length = (uint32_t)len}};
	const struct blocks one = {.items = &b, .n = 1};
	int rc = 0;
	if (len > BK_CHUNK_MAX)
		return sl_err_set(err, SL_EINVAL, "a block of %zu bytes: at most %u", len, BK_CHUNK_MAX);
	if (len >= BK_SOLID_BELOW) {
		rc = append_frame(p, block->bytes, len, &one, err);
	} else { /* into the open frame */
		if (p->solid_len + len > BK_FRAME_BYTES || p->open_blocks.n == BK_FRAME_BLOCKS_MAX)
			rc = close_solid(p, err);
		if (rc == 0)
			rc = room_for_blocks(p, &p->open_blocks, 1, err);
		if (rc == 0) {
			b.place.offset = (uint32_t)p->solid_len;
			if (len != 0)
				memcpy(p->solid + p->solid_len, block->bytes, len);
			p->solid_len += len;
			p->open_blocks.items[p->open_blocks.n++] = b;
		}
	}
	if (rc != 0)
		return rc;
	p->raw_bytes += len;
	*full = closed_len(p) >= p->pack_bytes;
	return 0;
}

/* Directory and tail after the frames; the image is whole afterwards. */
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
	const struct bk_seal as = {.env = &p->env, .keys = p->keys, .kind = BK_KIND_DIRECTORY};
	uint8_t *at = p->image + p->len, *body = at + sl__bk_seal_front(p->keys), *tail = at + directory, *row = body;
	sl__put32(row, (uint32_t)p->n_frames);
	sl__put32(row + 4, (uint32_t)p->blocks.n);
	row += DIRECTORY_FIXED;
	for (size_t i = 0; i < p->n_frames; i++, row += DIRECTORY_FRAME) {
		sl__put32(row, p->frames[i].offset);
		sl__put32(row + 4, p->frames[i].stored);
		sl__put32(row + 8, p->frames[i].raw);
		sl__put32(row + 12, p->frames[i].blocks);
	}
	for (size_t i = 0; i < p->blocks.n; i++, row += DIRECTORY_BLOCK) {
		memcpy(row, p->blocks.items[i].id.b, BK_ID_BYTES);
		sl__put32(row + BK_ID_BYTES, p->blocks.items[i].place.length);
	}
	int rc = sl__bk_seal(&as, body, directory - sl__bk_seal_bytes(p->keys), at, err);
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
	if (rc != 0)
		return rc;
	if (p->image != NULL) {
		rc = close_image(p, err);
		if (rc == 0)
			rc = sl__sha256_final(&p->sha, image.name.b, err);
		if (rc != 0)
			return rc;
		image.bytes = p->image;
		image.len = p->len;
		image.blocks = p->blocks.items;
		image.n_blocks = p->blocks.n;
		image.raw_bytes = p->raw_bytes;
		p->image = NULL;
		p->blocks = (struct blocks){.items = NULL};
		p->len = p->cap = p->n_frames = 0;
		p->raw_bytes = 0;
	}
	*out = image;
	return 0;
}
