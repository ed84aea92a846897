/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-64/NVME: reflected, polynomial 0xAD93D23594C93659, init and xorout all ones. "123456789" gives AE8B14860A799888.
 * Chosen at run time: carry-less multiplication 256 or 128 bits wide, or tables. All give the same result for any
 * split.
 *
 * Thread safety: no state; call from anywhere.
 */
#ifndef SL_BASE_CRC64NVME_H
#define SL_BASE_CRC64NVME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Continue crc (0 to begin) over n bytes. data may be NULL when n is 0. */
uint64_t sl__crc64nvme(uint64_t crc, const void *data, size_t n);

/* For tests and benchmarks: one implementation by number. */
enum sl__crc64_impl {
	SL__CRC64_TABLE = 0,   /* eight bytes a step, anywhere */
	SL__CRC64_PCLMUL = 1,  /* 128-bit carry-less multiplication */
	SL__CRC64_VPCLMUL = 2, /* 256-bit */
	SL__CRC64_IMPL_COUNT = 3
};
const char *sl__crc64nvme_impl_name(enum sl__crc64_impl impl);
/* false, and *crc untouched, when this processor does not have it. */
bool sl__crc64nvme_impl(enum sl__crc64_impl impl, uint64_t *crc, const void *data, size_t n);

#endif
