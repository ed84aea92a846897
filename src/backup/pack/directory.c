/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of a pack, read from the pack's end. It is believed only when everything fits, to the byte: the frames
 * lie one behind the other from the header to the directory, the blocks of each fill it exactly, and the counts give
 * the directory's own length. So there is no overlap, no hole, and nothing that a count could make us allocate.
 */
#include "backup/pack/pack.h"
#include "base/crc64nvme.h"

#define ZSTD_FLAG 0x80000000u
#define FIXED 8u
#define FRAME 16u
#define BLOCK 36u

struct directory {
	const uint8_t *frames, *blocks;
	uint32_t frames_n, blocks_n;
	uint64_t end; /* of the frames in the pack */
};

static int damaged(struct sl_err *err, const char *why)
{
	return sl_err_set(err, SL_ECORRUPT, "a pack's directory is damaged: %s", why);
}

/* The blocks of one frame: their number from its row, their sum its raw size. NULL, or what is wrong. */
static const char *check_blocks(const struct directory *d, uint64_t first, uint32_t n, uint32_t raw)
{
	uint64_t sum = 0;
	if (n == 0 || n > BK_FRAME_BLOCKS_MAX || n > d->blocks_n - first)
		return "a frame's number of blocks";
	for (uint64_t i = first; i < first + n; i++)
		sum += sl__get32(d->blocks + i * BLOCK + BK_ID_BYTES);
	return sum == raw ? NULL : "the blocks of a frame do not fill it";
}

static const char *check_frames(const struct directory *d, const struct bk_keys *keys)
{
	uint64_t at = BK_PACK_HEADER, blocks = 0;
	for (uint32_t i = 0; i < d->frames_n; i++) {
		const uint8_t *row = d->frames + (size_t)i * FRAME;
		uint32_t stored = sl__get32(row + 4), flagged = sl__get32(row + 8), n = sl__get32(row + 12);
		uint32_t raw = flagged & ~ZSTD_FLAG;
		if (sl__get32(row) != at || !sl__bk_frame_sizes_ok(keys, stored, raw, flagged != raw))
			return "where a frame is";
		const char *wrong = check_blocks(d, blocks, n, raw);
		if (wrong != NULL)
			return wrong;
		at += stored;
		blocks += n;
	}
	return at == d->end && blocks == d->blocks_n ? NULL : "its sums";
}

static const char *parse(struct directory *d, const uint8_t *bytes, size_t len)
{
	if (len < FIXED)
		return "too short";
	d->frames_n = sl__get32(bytes);
	d->blocks_n = sl__get32(bytes + 4);
	if (FIXED + (uint64_t)d->frames_n * FRAME + (uint64_t)d->blocks_n * BLOCK != len)
		return "its length";
	d->frames = bytes + FIXED;
	d->blocks = d->frames + (size_t)d->frames_n * FRAME;
	return NULL;
}

static int tell(const struct directory *d, bk_directory_fn *fn, void *ctx)
{
	const uint8_t *block = d->blocks;
	for (uint32_t i = 0; i < d->frames_n; i++) {
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

/* The tail at the end of `end`: the length of the sealed directory before it. */
static int read_tail(const struct bk_keys *keys, const uint8_t *tail, uint64_t pack_size, uint32_t *len,
		     struct sl_err *err)
{
	uint32_t n = sl__get32(tail);
	if (memcmp(tail + 16, BK_PACK_END, 8) != 0 || sl__get32(tail + 4) != 0)
		return damaged(err, "its end mark");
	if (n < sl__bk_seal_bytes(keys) + FIXED || n > pack_size - BK_PACK_HEADER - BK_PACK_TAIL)
		return damaged(err, "its length");
	*len = n;
	return 0;
}

static int check_header(const struct bk_keys *keys, const uint8_t *pack, struct sl_err *err)
{
	if (memcmp(pack, BK_PACK_MAGIC, 8) != 0)
		return sl_err_set(err, SL_ECORRUPT, "not a pack, or its header is damaged");
	if (memcmp(pack + 8, keys->repository, BK_NAME_BYTES) != 0)
		return sl_err_set(err, SL_ECORRUPT, "a pack of another repository, or its header is damaged");
	return 0;
}

int sl__bk_directory_read(const struct bk_keys *keys, uint8_t *end, size_t n, uint64_t pack_size, size_t *need,
			  bk_directory_fn *fn, void *ctx, struct sl_err *err)
{
	struct directory d;
	uint32_t sealed = 0;
	uint8_t *bytes;
	size_t len;
	if (pack_size < BK_PACK_HEADER + BK_PACK_TAIL + sl__bk_seal_bytes(keys) + FIXED ||
	    pack_size > BK_PACK_BYTES_MAX)
		return sl_err_set(err, SL_ECORRUPT, "no pack has %llu bytes", (unsigned long long)pack_size);
	assert(n <= pack_size);
	if (n < BK_PACK_TAIL) {
		*need = BK_PACK_TAIL;
		return SL_EAGAIN;
	}
	int rc = n == pack_size ? check_header(keys, end, err) : 0;
	if (rc == 0)
		rc = read_tail(keys, end + n - BK_PACK_TAIL, pack_size, &sealed, err);
	if (rc != 0)
		return rc;
	if (n < sealed + BK_PACK_TAIL) {
		*need = sealed + BK_PACK_TAIL;
		return SL_EAGAIN;
	}
	uint8_t *at = end + n - BK_PACK_TAIL - sealed;
	if (sl__get64(end + n - BK_PACK_TAIL + 8) != sl__crc64nvme(0, at, sealed))
		return damaged(err, "its checksum is another one");
	rc = sl__bk_unseal(keys, BK_KIND_DIRECTORY, NULL, 0, at, sealed, &bytes, &len, err);
	if (rc != 0)
		return sl_err_wrap(err, rc, "a pack's directory");
	d.end = pack_size - BK_PACK_TAIL - sealed;
	const char *wrong = parse(&d, bytes, len);
	if (wrong == NULL)
		wrong = check_frames(&d, keys);
	return wrong != NULL ? damaged(err, wrong) : tell(&d, fn, ctx);
}
