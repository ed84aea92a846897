/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading packs: frames and directories.
 *
 * A frame is opened by its seal, then by zstd with an output of exactly the promised size.
 *
 * The directory is read from the pack's end. It is trusted only when everything fits, to the byte: the frames lie one
 * after the other from the header to the directory, the blocks of each fill it exactly, and the counts give the
 * directory's own length. So there is no overlap, no hole, and no count that makes us allocate memory.
 */
#include <zstd.h>

#include "backup/pack/pack.h"
#include "base/crc64nvme.h"

#define ZSTD_FLAG 0x80000000u
#define FIXED 8u
#define FRAME 16u
#define BLOCK 36u

/* ---- frames ---- */

struct bk_opener {
	struct sl_env env;
	const struct bk_keys *keys;
	ZSTD_DCtx *zstd;
};

int sl__bk_opener_new(struct bk_opener **out, const struct sl_env *env, const struct bk_keys *keys, struct sl_err *err)
{
	struct bk_opener *o = sl__calloc(env, 1, sizeof(*o));
	if (o != NULL) {
		o->env = *env;
		o->keys = keys;
		o->zstd = ZSTD_createDCtx();
	}
	if (o == NULL || o->zstd == NULL) {
		sl__bk_opener_free(o);
		return sl_err_set(err, SL_ENOMEM, "no memory to decompress blocks");
	}
	*out = o;
	return 0;
}

void sl__bk_opener_free(struct bk_opener *o)
{
	if (o == NULL)
		return;
	(void)ZSTD_freeDCtx(o->zstd);
	struct sl_env env = o->env;
	sl__free(&env, o);
}

bool sl__bk_frame_sizes_ok(const struct bk_keys *keys, uint32_t stored, uint32_t raw, bool zstd)
{
	size_t seal = sl__bk_seal_bytes(keys);
	return raw <= BK_FRAME_RAW_MAX && stored >= seal && (zstd ? stored - seal < raw : stored - seal == raw);
}

int sl__bk_frame_open(struct bk_opener *o, const struct bk_place *place, uint8_t *stored, uint8_t *out,
		      struct sl_err *err)
{
	const struct bk_seal as = {.keys = o->keys, .kind = BK_KIND_FRAME};
	uint8_t *bytes;
	size_t len = place->frame_stored;
	if (!sl__bk_frame_sizes_ok(o->keys, place->frame_stored, place->frame_raw, place->zstd))
		return sl_err_set(err, SL_ECORRUPT, "a frame of impossible sizes: %u bytes stored, %u raw",
				  place->frame_stored, place->frame_raw);
	int rc = sl__bk_unseal(&as, stored, &len, &bytes, err);
	if (rc != 0)
		return rc;
	if (!place->zstd) {
		if (len != 0)
			memcpy(out, bytes, len);
		return 0;
	}
	size_t got = ZSTD_decompressDCtx(o->zstd, out, place->frame_raw, bytes, len);
	if (ZSTD_isError(got))
		return sl_err_set(err, SL_ECORRUPT, "a frame does not decompress: %s", ZSTD_getErrorName(got));
	if (got != place->frame_raw)
		return sl_err_set(err, SL_ECORRUPT, "a frame decompresses to %zu bytes instead of %u", got,
				  place->frame_raw);
	return 0;
}

/* ---- directories ---- */

struct directory {
	const uint8_t *frames, *blocks;
	uint32_t n_frames, n_blocks;
	uint64_t end; /* of the frames in the pack */
};

static int directory_damaged(struct sl_err *err, const char *why)
{
	return sl_err_set(err, SL_ECORRUPT, "a pack's directory is damaged: %s", why);
}

/* NULL, or what is wrong. */
static const char *check_frames(const struct directory *d, const struct bk_keys *keys)
{
	uint64_t at = BK_PACK_HEADER, blocks = 0;
	for (uint32_t i = 0; i < d->n_frames; i++) {
		const uint8_t *row = d->frames + (size_t)i * FRAME;
		uint32_t stored = sl__get32(row + 4), flagged = sl__get32(row + 8), n = sl__get32(row + 12);
		uint32_t raw = flagged & ~ZSTD_FLAG;
		if (sl__get32(row) != at || !sl__bk_frame_sizes_ok(keys, stored, raw, flagged != raw))
			return "the offset or size of a frame";
		/* The blocks of the frame: their number is in its row, their sum is its raw size. */
		if (n == 0 || n > BK_FRAME_BLOCKS_MAX || n > d->n_blocks - blocks)
			return "a frame's number of blocks";
		uint64_t sum = 0;
		for (uint64_t k = blocks; k < blocks + n; k++)
			sum += sl__get32(d->blocks + k * BLOCK + BK_ID_BYTES);
		if (sum != raw)
			return "the blocks of a frame do not fill it";
		at += stored;
		blocks += n;
	}
	return at == d->end && blocks == d->n_blocks ? NULL : "its sums";
}

static int each_block(const struct directory *d, bk_directory_fn *fn, void *ctx)
{
	const uint8_t *block = d->blocks;
	for (uint32_t i = 0; i < d->n_frames; i++) {
		const uint8_t *row = d->frames + (size_t)i * FRAME;
		uint32_t flagged = sl__get32(row + 8), n = sl__get32(row + 12);
		struct bk_place place = {.frame_offset = sl__get32(row),
					 .frame_stored = sl__get32(row + 4),
					 .frame_raw = flagged & ~ZSTD_FLAG,
					 .zstd = (flagged & ZSTD_FLAG) != 0};
		for (uint32_t k = 0; k < n; k++, block += BLOCK) {
			struct bk_id id;
			memcpy(id.b, block, sizeof(id.b));
			place.length = sl__get32(block + BK_ID_BYTES);
			int rc = fn(&id, &place, ctx);
			if (rc != 0)
				return rc;
			place.offset += place.length;
		}
	}
	return 0;
}

int sl__bk_directory_read(const struct bk_keys *keys, struct bk_pack_end *last, bk_directory_fn *fn, void *ctx,
			  struct sl_err *err)
{
	const struct bk_seal as = {.keys = keys, .kind = BK_KIND_DIRECTORY};
	uint8_t *end = last->bytes;
	size_t n = last->n;
	uint64_t pack_size = last->pack_size;
	struct directory d;
	uint8_t *bytes;
	size_t len;
	if (pack_size < BK_PACK_HEADER + BK_PACK_TAIL + sl__bk_seal_bytes(keys) + FIXED ||
	    pack_size > BK_PACK_BYTES_MAX)
		return sl_err_set(err, SL_ECORRUPT, "invalid pack size: %llu bytes", (unsigned long long)pack_size);
	assert(n <= pack_size);
	if (n < BK_PACK_TAIL) {
		last->need = BK_PACK_TAIL;
		return SL_EAGAIN;
	}
	/* The header, when all of the pack is given. */
	if (n == pack_size && memcmp(end, BK_PACK_MAGIC, 8) != 0)
		return sl_err_set(err, SL_ECORRUPT, "not a pack, or its header is damaged");
	if (n == pack_size && memcmp(end + 8, keys->repository, BK_NAME_BYTES) != 0)
		return sl_err_set(err, SL_ECORRUPT, "a pack of another repository, or its header is damaged");
	/* The tail: the length of the sealed directory before it. */
	const uint8_t *tail = end + n - BK_PACK_TAIL;
	uint32_t sealed = sl__get32(tail);
	if (memcmp(tail + 16, BK_PACK_END, 8) != 0 || sl__get32(tail + 4) != 0)
		return directory_damaged(err, "its end mark");
	if (sealed < sl__bk_seal_bytes(keys) + FIXED || sealed > pack_size - BK_PACK_HEADER - BK_PACK_TAIL)
		return directory_damaged(err, "its length");
	if (n < sealed + BK_PACK_TAIL) {
		last->need = sealed + BK_PACK_TAIL;
		return SL_EAGAIN;
	}
	/* The directory itself. */
	uint8_t *at = end + n - BK_PACK_TAIL - sealed;
	if (sl__get64(tail + 8) != sl__crc64nvme(0, at, sealed))
		return directory_damaged(err, "its checksum does not match");
	len = sealed;
	int rc = sl__bk_unseal(&as, at, &len, &bytes, err);
	if (rc != 0)
		return sl_err_wrap(err, rc, "a pack's directory");
	if (len < FIXED)
		return directory_damaged(err, "too short");
	d.n_frames = sl__get32(bytes);
	d.n_blocks = sl__get32(bytes + 4);
	if (FIXED + (uint64_t)d.n_frames * FRAME + (uint64_t)d.n_blocks * BLOCK != len)
		return directory_damaged(err, "its length");
	d.frames = bytes + FIXED;
	d.blocks = d.frames + (size_t)d.n_frames * FRAME;
	d.end = pack_size - BK_PACK_TAIL - sealed;
	const char *wrong = check_frames(&d, keys);
	return wrong != NULL ? directory_damaged(err, wrong) : each_block(&d, fn, ctx);
}
