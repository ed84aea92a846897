/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 as in gzip (reflected, polynomial 0x04C11DB7, start and end inverted): what Parquet's pages carry. */
#ifndef SL_PARQUET_CRC32_H
#define SL_PARQUET_CRC32_H

#include "base/base.h"

/* Continue from crc (0 at the start). "123456789" gives CBF43926. */
uint32_t sl__crc32(uint32_t crc, const void *data, size_t n);
/* The same by the table alone, for tests and for machines without carry-less multiplication. */
uint32_t sl__crc32_table(uint32_t crc, const void *data, size_t n);

#endif
