/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a partition begins and ends, and what its file is called. The boundaries are floor(sequence / size): they
 * depend on nothing else, so they never drift, whatever the input begins with and wherever a run was cut off.
 *
 * Thread safety: no state.
 */
#ifndef SL_PIPELINE_PARTITION_H
#define SL_PIPELINE_PARTITION_H

#include "base/base.h"
#include <sluice/pipeline.h>

/* The last sequence that a partition can hold. */
#define SL__SEQUENCE_MAX SL_SEQUENCE_MAX

/* The number of the partition that holds sequence; size is at least 1. */
static inline uint64_t sl__partition_number(uint64_t sequence, uint64_t size)
{
	return sequence / size;
}

/* The last sequence of the partition that holds sequence, at most SL__SEQUENCE_MAX. */
uint64_t sl__partition_end(uint64_t sequence, uint64_t size);

#define SL__PARTITION_NAME_BYTES 128

/*
 * The file of the sequences start … end (both in one partition), relative to the dataset's folder (no key=value, which
 * readers would take for a column):
 *	partition-00000000000000000017/part-00000000000004250000-00000000000004499999.parquet
 * Names sort as the sequences do. The number is floor(start / size). Late rows are next to the file of the partition in
 * whose holes they have appeared: part-…-…-late.parquet.
 */
void sl__partition_name(uint64_t start, uint64_t end, uint64_t size, bool late, char out[SL__PARTITION_NAME_BYTES]);

#endif
