/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Varints as in protobuf: seven bits a byte, the lowest first, and the top bit says that more follow. At most ten bytes.
 *
 * Thread safety: no state.
 */
#ifndef SL_BASE_VARINT_H
#define SL_BASE_VARINT_H

#include "base/buf.h"

static inline void sl__varint_put(struct sl__buf *b, uint64_t v)
{
	unsigned char bytes[10];
	size_t n = 0;
	for (; v >= 0x80; v >>= 7)
		bytes[n++] = (unsigned char)(v | 0x80);
	bytes[n++] = (unsigned char)v;
	(void)sl__buf_append(b, bytes, n);
}

/* Read one, and move *at past it. false: it does not end before `end`, or after ten bytes. */
static inline bool sl__varint_get(const unsigned char **at, const unsigned char *end, uint64_t *v)
{
	*v = 0;
	for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
		unsigned char byte = *(*at)++;
		*v |= (uint64_t)(byte & 0x7F) << shift;
		if (byte < 0x80)
			return true;
	}
	return false;
}

#endif
