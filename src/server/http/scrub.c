/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What calls leave behind that had a token in hand. Wiping the buffers is not enough: copying and enciphering go
 * through the vector registers, and the first call of a function that is bound lazily (jansson's are) saves all of them
 * onto the stack, where they stay until something else comes to lie there.
 */
#include "server/http/internal.h"

#include <sodium.h>

/* Requests were seen to reach 8 KiB below the network thread's loop, a TLS handshake included. */
#define STACK_BYTES ((size_t)16 * 1024)

#if defined(__x86_64__)
/* Every vector register is the caller's to save, so that nothing is lost; a compiler that uses the upper sixteen by
 * itself keeps nothing in them across a call either. */
static __attribute__((noinline)) void clear_registers(void)
{
	if (__builtin_cpu_supports("avx512f"))
		__asm__ volatile("vpxorq %zmm16, %zmm16, %zmm16\n\tvpxorq %zmm17, %zmm17, %zmm17\n\t"
				 "vpxorq %zmm18, %zmm18, %zmm18\n\tvpxorq %zmm19, %zmm19, %zmm19\n\t"
				 "vpxorq %zmm20, %zmm20, %zmm20\n\tvpxorq %zmm21, %zmm21, %zmm21\n\t"
				 "vpxorq %zmm22, %zmm22, %zmm22\n\tvpxorq %zmm23, %zmm23, %zmm23\n\t"
				 "vpxorq %zmm24, %zmm24, %zmm24\n\tvpxorq %zmm25, %zmm25, %zmm25\n\t"
				 "vpxorq %zmm26, %zmm26, %zmm26\n\tvpxorq %zmm27, %zmm27, %zmm27\n\t"
				 "vpxorq %zmm28, %zmm28, %zmm28\n\tvpxorq %zmm29, %zmm29, %zmm29\n\t"
				 "vpxorq %zmm30, %zmm30, %zmm30\n\tvpxorq %zmm31, %zmm31, %zmm31");
	if (!__builtin_cpu_supports("avx"))
		__asm__ volatile("pxor %%xmm0, %%xmm0\n\tpxor %%xmm1, %%xmm1\n\tpxor %%xmm2, %%xmm2\n\t"
				 "pxor %%xmm3, %%xmm3\n\tpxor %%xmm4, %%xmm4\n\tpxor %%xmm5, %%xmm5\n\t"
				 "pxor %%xmm6, %%xmm6\n\tpxor %%xmm7, %%xmm7\n\tpxor %%xmm8, %%xmm8\n\t"
				 "pxor %%xmm9, %%xmm9\n\tpxor %%xmm10, %%xmm10\n\tpxor %%xmm11, %%xmm11\n\t"
				 "pxor %%xmm12, %%xmm12\n\tpxor %%xmm13, %%xmm13\n\tpxor %%xmm14, %%xmm14\n\t"
				 "pxor %%xmm15, %%xmm15" ::
					 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
					   "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
	else
		__asm__ volatile("vzeroall" ::
					 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
					   "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}
#else
#if __has_attribute(zero_call_used_regs)
__attribute__((zero_call_used_regs("all")))
#endif
static __attribute__((noinline)) void
clear_registers(void)
{
	__asm__ volatile("");
}
#endif

/* Not inlined: its frame is to lie below everything that its caller's callees have used. */
static __attribute__((noinline)) void clear_stack(void)
{
	char below[STACK_BYTES];
	sodium_memzero(below, sizeof(below));
}

void srv_scrub(void)
{
	clear_stack();
	clear_registers();
}
