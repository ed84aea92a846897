/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of pending records: where each lies and how old it is, in order of sequence. 32 bytes a record, in pages;
 * settled records leave at the front and cost nothing. Not thread-safe: the log's lock guards it.
 */
#ifndef SL_WAL_INDEX_H
#define SL_WAL_INDEX_H

#include "base/env.h"
#include <sluice/wal.h>

struct wal_entry {
	uint64_t sequence;
	uint64_t offset; /* in its segment */
	int64_t timestamp_ms;
	uint32_t total; /* bytes in the file */
	uint8_t status; /* SL_WAL_PENDING until settled */
};

#define WAL_INDEX_PAGE 128u

struct wal_index {
	const struct sl_env *env;
	struct wal_entry **pages;
	size_t n_pages, cap_pages; /* pages in use, room in the array */
	size_t head;               /* entries of pages[0] that were dropped */
	size_t count;              /* entries from head on */
	size_t reserved;           /* entries promised by reserve and not yet added */
	struct wal_entry *spare;   /* one page kept, so that a steady flow does not allocate */
	uint64_t pending, pending_bytes;
};

void sl__wal_index_init(struct wal_index *x, const struct sl_env *env);
void sl__wal_index_fini(struct wal_index *x);
/* Make sure that n more adds cannot fail; unreserve gives back what was not used. */
SL_MUST_CHECK int sl__wal_index_reserve(struct wal_index *x, size_t n);
void sl__wal_index_unreserve(struct wal_index *x, size_t n);
/* Uses one reserved place. entry->sequence is above all others; its status is SL_WAL_PENDING. */
void sl__wal_index_add(struct wal_index *x, const struct wal_entry *entry);
/* Settle the pending entries in first..last; returns how many, and their bytes. Settled ones at the front are dropped.
 */
uint64_t sl__wal_index_settle(struct wal_index *x, uint64_t first, uint64_t last, uint8_t status, uint64_t *bytes);
/* The first pending entry at or behind sequence, or NULL. Valid until the next change. */
const struct wal_entry *sl__wal_index_next(const struct wal_index *x, uint64_t sequence);
bool sl__wal_index_is_pending(const struct wal_index *x, uint64_t sequence);
/* Bytes of memory that the index holds. */
size_t sl__wal_index_bytes(const struct wal_index *x);

#endif
