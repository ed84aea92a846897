/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/partition.h"

#include <inttypes.h>
#include <stdio.h>

uint64_t sl__partition_end(uint64_t sequence, uint64_t size)
{
	uint64_t left = size - 1 - sequence % size;

	return sequence >= SL__SEQUENCE_MAX - SL_MIN(left, SL__SEQUENCE_MAX) ? SL__SEQUENCE_MAX : sequence + left;
}

static void put_name(uint64_t start, uint64_t end, uint64_t size, const char *late, char *out)
{
	(void)snprintf(out, SL__PARTITION_NAME_BYTES,
		       "partition-%020" PRIu64 "/part-%020" PRIu64 "-%020" PRIu64 "%s.parquet",
		       sl__partition_number(start, size), start, end, late);
}

void sl__partition_name(uint64_t start, uint64_t end, uint64_t size, char out[SL__PARTITION_NAME_BYTES])
{
	put_name(start, end, size, "", out);
}

void sl__late_name(uint64_t start, uint64_t end, uint64_t size, char out[SL__PARTITION_NAME_BYTES])
{
	put_name(start, end, size, "-late", out);
}
