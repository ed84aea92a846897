/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a stream of bytes is cut into blocks: FastCDC with a keyed gear table and two masks (harder before the average,
 * easier after it). The same bytes with the same key and sizes give the same cuts, whatever the reads were.
 *
 * Thread safety: read-only after init.
 */
#ifndef SL_BACKUP_CHUNKER_H
#define SL_BACKUP_CHUNKER_H

#include "backup/repo/crypt.h"

struct bk_chunker {
	uint64_t gear[256], gear2[256]; /* gear2: shifted by one, for two bytes per step */
	uint64_t mask_small, mask_large;
	uint32_t min, avg, max;
};

/* SL_EINVAL: sizes are not powers of two with 4 KiB <= min < avg < max <= BK_CHUNK_MAX. */
SL_MUST_CHECK int sl__bk_chunker_init(struct bk_chunker *c, const struct bk_keys *keys,
				      const struct bk_chunk_sizes *sizes, struct sl_err *err);
/* The length of the first block of n bytes; all of them when n <= min. A block that ends where the bytes do is certain
 * only when it has max bytes, or when the stream ends there. */
size_t sl__bk_chunk(const struct bk_chunker *c, const uint8_t *bytes, size_t n);

#endif
