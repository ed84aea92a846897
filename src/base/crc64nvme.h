/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-64/NVME: reflected, polynomial 0xAD93D23594C93659, init and xorout all ones. "123456789" gives AE8B14860A799888.
 * Chosen at run time: carry-less multiplication 256 or 128 bits wide, or tables. All give the same result for any
 * split.
 */
#ifndef SL_BASE_CRC64NVME_H
#define SL_BASE_CRC64NVME_H

#include <stddef.h>
#include <stdint.h>

/* Continue crc (0 to begin) over n bytes. */
uint64_t sl__crc64nvme(uint64_t crc, const void *data, size_t n);

#endif
