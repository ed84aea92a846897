/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What status records have said: sorted, disjoint ranges of sequences, the last word on each. Sent in order, they merge
 * into one range. Not thread-safe.
 */
#ifndef SL_WAL_RANGES_H
#define SL_WAL_RANGES_H

#include "base/env.h"
#include <sluice/wal.h>

struct wal_status_range {
	uint64_t first, last;
	uint8_t status; /* SL_WAL_SENT or SL_WAL_FAILED */
};

struct wal_ranges {
	const struct sl_env *env;
	struct wal_status_range *v;
	size_t n, cap;
};

void sl__wal_ranges_init(struct wal_ranges *r, const struct sl_env *env);
void sl__wal_ranges_fini(struct wal_ranges *r);
/* The next set cannot fail. */
SL_MUST_CHECK int sl__wal_ranges_reserve(struct wal_ranges *r);
/* Overwrite first..last with status. SL_ENOMEM leaves r as it was. */
SL_MUST_CHECK int sl__wal_ranges_set(struct wal_ranges *r, uint64_t first, uint64_t last, uint8_t status);
/* The status of one sequence; SL_WAL_PENDING when nothing was said of it. */
uint8_t sl__wal_ranges_get(const struct wal_ranges *r, uint64_t sequence);
/* Does one status-3 range (or several that touch) cover all of first..last? */
bool sl__wal_ranges_failed_covers(const struct wal_ranges *r, uint64_t first, uint64_t last);
/* The end of the status-3 range that holds sequence, 0 when none does. */
uint64_t sl__wal_ranges_failed_end(const struct wal_ranges *r, uint64_t sequence);
/* The status-3 range that reaches up to just before sequence, cut there; 0, 0 without one. */
struct sl_wal_range sl__wal_ranges_failed_before(const struct wal_ranges *r, uint64_t sequence);
/* How many of first..last are in a range, of whatever status. */
uint64_t sl__wal_ranges_count(const struct wal_ranges *r, uint64_t first, uint64_t last);
/* Forget the ranges that end before sequence. */
void sl__wal_ranges_drop_below(struct wal_ranges *r, uint64_t sequence);

#endif
