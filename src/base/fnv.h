/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FNV-1a: distinguishes things that were not made to look alike.
 *
 * Thread safety: no state.
 */
#ifndef SL_BASE_FNV_H
#define SL_BASE_FNV_H

#include <stddef.h>
#include <stdint.h>

#define SL__FNV_INIT UINT64_C(0xcbf29ce484222325)

/* Continue a hash, which begins with SL__FNV_INIT. */
static inline uint64_t sl__fnv_add(uint64_t h, const void *data, size_t n)
{
	const unsigned char *p = data;
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return h;
}

static inline uint64_t sl__fnv(const void *data, size_t n)
{
	return sl__fnv_add(SL__FNV_INIT, data, n);
}

#endif
