/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upper parts of the vector registers. Code that uses them is to clear them when it is done; libcrypto's ChaCha20
 * does not. From then on each SSE instruction waits for what its register held before as well: compression, SHA-256
 * and copies of this thread become slower, some by half, until they are cleared.
 */
#ifndef SL_BASE_SIMD_H
#define SL_BASE_SIMD_H

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx"), noinline, unused)) static void sl__simd_clear_avx(void)
{
	_mm256_zeroupper();
}

static inline void sl__simd_clear(void)
{
	if (__builtin_cpu_supports("avx"))
		sl__simd_clear_avx();
}
#else
static inline void sl__simd_clear(void)
{
}
#endif

#endif
