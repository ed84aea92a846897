/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/partition.h"

#include <inttypes.h>
#include <stdio.h>

uint64_t sl__partition_end(uint64_t sequence, uint64_t size)
{
	uint64_t left = size - 1 - sequence % size;

	return sequence >= SL__SEQUENCE_MAX - SL_MIN(left, SL__SEQUENCE_MAX) ? SL__SEQUENCE_MAX : sequence + left;
}

void sl__partition_name(uint64_t start, uint64_t end, uint64_t size, char out[SL__PARTITION_NAME_BYTES])
{
	(void)snprintf(out, SL__PARTITION_NAME_BYTES,
		       "partition-%020" PRIu64 "/part-%020" PRIu64 "-%020" PRIu64 ".parquet",
		       sl__partition_number(start, size), start, end);
}
