/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a pack of a plain repository. Nothing may crash; what is reported of a directory is within bounds and in
 * order; a frame that opens has exactly the promised bytes; what a builder makes of blocks reads back the same.
 *
 * The first byte says what the rest is: the end of a pack, a directory whose sums are corrected (so that the code
 * after their check is reached), the contents of a frame, blocks for a builder.
 */
#include <string.h>

#include "backup/pack/pack.h"
#include "base/crc64nvme.h"
#include "base/sha256.h"
#include "must.h"

#define ROOM (1u << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sl_env env;
static struct bk_keys keys;
static struct bk_pack *pack;     /* one for all inputs: making it takes longer than using it */
static struct bk_opener *opener; /* so does this */

struct told {
	uint64_t pack_size;
	uint32_t frame_offset, frame_end, in_frame; /* of the last block */
	size_t blocks;
};

static int tell(const struct bk_id *id, const struct bk_place *p, void *ctx)
{
	struct told *t = ctx;
	(void)id;
	MUST(p->frame_offset >= BK_PACK_HEADER && p->frame_raw <= BK_FRAME_RAW_MAX);
	MUST((uint64_t)p->frame_offset + p->frame_stored + BK_PACK_TAIL < t->pack_size);
	MUST((uint64_t)p->offset + p->length <= p->frame_raw);
	if (t->blocks != 0 && p->frame_offset == t->frame_offset)
		MUST(p->offset == t->in_frame); /* without a gap */
	else
		MUST(p->offset == 0 && p->frame_offset == (t->blocks != 0 ? t->frame_end : BK_PACK_HEADER));
	t->frame_offset = p->frame_offset;
	t->frame_end = p->frame_offset + p->frame_stored;
	t->in_frame = p->offset + p->length;
	t->blocks++;
	return 0;
}

/* The last n bytes of a pack of pack_size. */
static int directory(const uint8_t *end, size_t n, uint64_t pack_size)
{
	struct told t = {.pack_size = pack_size};
	struct sl_err err = SL_ERR_INIT;
	uint8_t *copy = malloc(n + 1);
	MUST(copy != NULL);
	memcpy(copy, end, n);
	struct bk_pack_end last = {.bytes = copy, .n = n, .pack_size = pack_size};
	int rc = sl__bk_directory_read(&keys, &last, tell, &t, &err);
	MUST(rc == 0 || (rc == SL_ECORRUPT && err.code == rc && t.blocks == 0) ||
	     (rc == SL_EAGAIN && last.need > n && last.need <= pack_size));
	free(copy);
	return rc;
}

static void any_end(const uint8_t *data, size_t size)
{
	if (size < 4)
		return;
	uint64_t pack_size = SL_MAX((uint64_t)sl__get32(data), (uint64_t)size - 4);
	(void)directory(data + 4, size - 4, pack_size);
}

/* The first two bytes say how long the frames are; the rest is a directory with right sums. */
static void right_sums(const uint8_t *data, size_t size)
{
	if (size < 2)
		return;
	size_t frames = (size_t)data[0] << 8 | data[1], body = size - 2, sealed = body + BK_SEAL_PLAIN;
	size_t len = BK_PACK_HEADER + frames + sealed + BK_PACK_TAIL;
	uint8_t *whole = calloc(1, len), *at = whole + BK_PACK_HEADER + frames;
	MUST(whole != NULL);
	memcpy(whole, BK_PACK_MAGIC, 8);
	memcpy(whole + 8, keys.repository, BK_NAME_BYTES);
	MUST(sl__bk_seal(&(struct bk_seal){&env, &keys, BK_KIND_DIRECTORY, NULL, 0}, data + 2, body, at, NULL) == 0);
	sl__put32(at + sealed, (uint32_t)sealed);
	sl__put64(at + sealed + 8, sl__crc64nvme(0, at, sealed));
	memcpy(at + sealed + 16, BK_PACK_END, 8);
	MUST(directory(whole, len, len) != SL_EAGAIN);
	free(whole);
}

static void frame(const uint8_t *data, size_t size)
{
	static uint8_t sealed[ROOM], out[ROOM + 1];
	if (size < 3 || size - 3 + BK_SEAL_PLAIN > ROOM)
		return;
	struct bk_place p = {.frame_raw = (uint32_t)data[0] << 8 | data[1],
			     .frame_stored = (uint32_t)(size - 3 + BK_SEAL_PLAIN),
			     .zstd = (data[2] & 1) != 0};
	MUST(sl__bk_seal(&(struct bk_seal){&env, &keys, BK_KIND_FRAME, NULL, 0}, data + 3, size - 3, sealed, NULL) ==
	     0);
	out[p.frame_raw] = 0xA5;
	int rc = sl__bk_frame_open(opener, &p, sealed, out, NULL);
	MUST(rc == 0 || rc == SL_ECORRUPT);
	MUST(out[p.frame_raw] == 0xA5);
	if (rc == 0 && !p.zstd)
		MUST(memcmp(out, data + 3, p.frame_raw) == 0);
}

struct reading {
	const struct bk_pack_image *image;
	const uint8_t *bytes; /* all blocks, without gaps: all are small, and come back in their order */
	size_t at;
};

static int read_block(const struct bk_id *id, const struct bk_place *p, void *ctx)
{
	struct reading *r = ctx;
	struct bk_id want;
	uint8_t *stored = malloc(p->frame_stored), *out = malloc((size_t)p->frame_raw + 1);
	MUST(stored != NULL && out != NULL);
	memcpy(stored, r->image->bytes + p->frame_offset, p->frame_stored);
	MUST(sl__bk_frame_open(opener, p, stored, out, NULL) == 0);
	MUST(memcmp(out + p->offset, r->bytes + r->at, p->length) == 0);
	MUST(sl__sha256(r->bytes + r->at, p->length, want.b, NULL) == 0);
	MUST(memcmp(&want, id, sizeof(want)) == 0);
	r->at += p->length;
	free(stored);
	free(out);
	return 0;
}

/* The first 16 bytes are lengths of blocks, in turn; the rest is their bytes. */
static void build(const uint8_t *data, size_t size)
{
	struct bk_pack_image image;
	bool full = false;
	if (size < 17)
		return;
	struct reading r = {.image = &image, .bytes = data + 16};
	for (size_t at = 16, i = 0; at < size && i < 24; i++) {
		size_t len = SL_MIN((size_t)data[i % 16], size - at);
		struct bk_id id;
		MUST(sl__sha256(data + at, len, id.b, NULL) == 0);
		MUST(sl__bk_pack_add(pack, &(struct bk_block){&id, data + at, len}, &full, NULL) == 0 && !full);
		at += len;
	}
	MUST(sl__bk_pack_take(pack, &image, NULL) == 0 && image.n_blocks != 0);
	for (size_t i = 0; i < image.n_blocks; i++)
		MUST(read_block(&image.blocks[i].id, &image.blocks[i].place, &r) == 0);
	MUST(directory(image.bytes, image.len, image.len) == 0);
	sl__bk_pack_image_fini(&env, &image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	MUST(sl__env_init(&env, NULL, NULL) == 0);
	MUST(sl__bk_keys_derive(&keys, NULL) == 0);
	MUST(pack != NULL ||
	     sl__bk_pack_new(&pack, &env, &(struct bk_pack_opts){.keys = &keys, .level = 1, .pack_bytes = 1u << 20},
			     NULL) == 0);
	MUST(opener != NULL || sl__bk_opener_new(&opener, &env, &keys, NULL) == 0);
	switch (data[0] % 8) {
	case 0:
		any_end(data + 1, size - 1);
		break;
	case 1:
		right_sums(data + 1, size - 1);
		break;
	case 2:
		build(data + 1, size - 1);
		break;
	case 3:
	case 4:
		frame(data + 1, size - 1);
		break;
	default:
		right_sums(data + 1, size - 1);
	}
	return 0;
}
