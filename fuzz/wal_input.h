/* SPDX-License-Identifier: Apache-2.0 */
/* From the fuzzer's bytes to a log: right headers and checksums where asked for, so that the code after their check is
 * reached. */
#ifndef FUZZ_WAL_INPUT_H
#define FUZZ_WAL_INPUT_H

#include <string.h>

#include "must.h"
#include "support/walmodel.h"
#include "wal/format.h"

enum input_flags {
	INPUT_HEADER = 1,  /* lay a right header over the first 16 bytes */
	INPUT_RECORDS = 2, /* make fields and checksums right wherever the lengths lead */
	INPUT_FOREIGN = 4, /* a header without an incarnation */
	INPUT_SECOND = 8   /* the second half is the active file, the first a sealed segment */
};

static inline void fix_header(uint8_t *p, size_t n, unsigned flags)
{
	if ((flags & INPUT_HEADER) != 0 && n >= WAL_HEADER_BYTES)
		sl__wal_header_encode(p, (struct wal_header){1, (flags & INPUT_FOREIGN) != 0 ? 0 : 0x123456});
}

/* Sequences are made small, so that some continue each other. Every eighth record keeps its own CRC. */
static inline void fix_records(uint8_t *p, size_t n, unsigned flags, uint64_t *sequence)
{
	size_t at = WAL_HEADER_BYTES;
	while ((flags & INPUT_RECORDS) != 0 && n > at && n - at >= WAL_FRAME_BYTES) {
		uint8_t *r = p + at;
		uint32_t payload = sl__get32(r) % 64, room = (uint32_t)(n - at) - WAL_FRAME_BYTES;
		uint8_t how = r[5];
		payload = payload < room ? payload : room;
		uint8_t status = (how & 3) == 0 ? (uint8_t)(2 + (how >> 2 & 1)) : 1;
		if (status == 1)
			*sequence += 1 + (how % 16 == 5);
		uint64_t named = status == 1 ? *sequence : 1 + r[4] % 16;
		if (status != 1)
			payload = payload >= 8 ? 8 : 0;
		if (how % 32 == 7)
			named = r[6]; /* any */
		sl__wal_begin(r, named, status, r[17], payload);
		if (status != 1 && payload == 8)
			sl__put64(r + WAL_BODY_OFFSET, 1 + r[WAL_BODY_OFFSET] % 8);
		if (how % 8 != 6)
			sl__wal_seal(r, payload);
		at += payload + WAL_FRAME_BYTES;
	}
}

#endif
