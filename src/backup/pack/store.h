/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How new blocks get into the repository: builders of packs, one per worker, in front of one block writer
 * (<sluice/writer.h>), in front of the driver.
 *
 *   worker: sl__bk_store_block ─▶ pack builder ─▶ full ─▶ sl_writer_enqueue_block(name, image) ─▶ driver schedule_put
 *                                                             └ backpressure: the worker waits
 * A block that the store was given is in the repository when finish has returned 0, and not before: finish closes all
 * packs, waits for the writer, syncs the driver, then puts the index.
 *
 * Thread safety: each lane belongs to one thread; progress from any.
 */
#ifndef SL_BACKUP_STORE_H
#define SL_BACKUP_STORE_H

#include "backup/repo/repo.h"
#include <sluice/writer.h>

struct bk_store;

/* lanes: how many workers. index: what is there already, for asking which blocks are missing; NULL: nothing is (repair,
 * prune decide themselves and call sl__bk_store_put_always). Index and b must outlive the store. */
SL_MUST_CHECK int sl__bk_store_new(struct bk_store **out, struct sl_backup *b, struct bk_index *index, int lanes,
				   struct sl_err *err);
/* NULL is allowed. Without finish before: everything is cancelled. */
void sl__bk_store_free(struct bk_store *s);

/* Store a block unless the repository or this store has it. *is_new (may be NULL). The bytes are copied when they are
 * needed. May wait for the writer; returns the writer's error when that has failed, SL_ECANCELLED when stopped. */
SL_MUST_CHECK int sl__bk_store_block(struct bk_store *s, int lane, const struct bk_block *block, bool *is_new,
				     struct sl_err *err);
/* The same for a block of metadata (of a manifest, or a list of blocks), which is in two packs: no pack that is lost,
 * and no damaged byte, costs it. Stored until two packs have it. */
SL_MUST_CHECK int sl__bk_store_metadata(struct bk_store *s, int lane, const struct bk_block *block, bool *is_new,
					struct sl_err *err);
/* Which of several blocks the repository misses: missing[i] is set. */
SL_MUST_CHECK int sl__bk_store_missing(struct bk_store *s, const struct bk_id *ids, size_t n, bool *missing,
				       struct sl_err *err);
/* Also when the repository has it; into `copies` packs, 1 or 2 (once per store). */
SL_MUST_CHECK int sl__bk_store_put_always(struct bk_store *s, int lane, const struct bk_block *block, int copies,
					  struct sl_err *err);
/* After all lanes have ended; on one thread. */
SL_MUST_CHECK int sl__bk_store_finish(struct bk_store *s, struct sl_err *err);

/* The packs that were handed to the writer; after finish. */
SL_MUST_CHECK int sl__bk_store_packs(struct bk_store *s, bk_index_pack_fn *fn, void *ctx);

struct bk_store_stats {
	uint64_t new_blocks, known_blocks, new_bytes, known_bytes;
	uint64_t physical_bytes; /* of packs that are written, and of the index */
	uint64_t backlog_bytes;
	uint32_t concurrency, max_concurrency;
	bool backpressure;
};
void sl__bk_store_stats(struct bk_store *s, struct bk_store_stats *out);

#endif
