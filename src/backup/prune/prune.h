/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a prune, and its steps in their order.
 *
 * The order is the protocol (see backup/repo/format.h for F1 to F6):
 *
 *   P1  load the marks ("old"): only packs that they name may be deleted by this run
 *   P2  list the sessions; remove the silent ones; a mark that a live session has not seen waits
 *   P3  list the snapshots
 *   P4  load the marks again ("all"): a block that stays must not be in a pack that they name
 *   P5  list the packs, load the index
 *   P6  walk the snapshots: choose a place for every block that is needed, and a second one, in another pack, for
 *       metadata blocks; stop when one is missing or unreadable
 *   P7  copy what is needed of marked packs, of sparsely used ones and of many small ones, and metadata that only one
 *       pack contains, into new packs; durable, and indexed
 *   P8  put a mark that names the packs that are no longer needed; durable
 *   P9  put an index without the packs to delete, remove the index files that it replaces
 *   P10 remove packs that an old mark names that does not wait, and of which nothing was chosen in P6
 *   P11 remove the marks all of whose packs are gone
 *
 * Why no snapshot ever misses a block, whatever creates and other prunes run at the same time, and wherever any of them
 * dies:
 *
 *  I1  Once marked, a pack is never relied on anew: not by a session that has seen the mark (F5), not by a prune that
 *      loaded it in P4. So marks only grow, until their packs are gone.
 *  I2  A session S relies, for each block, on a pack that no mark it has seen names (its anchor), or that it made. A run
 *      that deletes S's anchor has loaded the anchor's mark in P1. S has not seen it, so S was not alive in P2: it was
 *      published before P3 (sessions are listed first, and publishing is a rename), and the run includes its snapshot;
 *      or it was removed, and can never publish. (Had S begun after P2, it would have seen the mark, or found the pack
 *      gone.)
 *  I3  A run that deletes a pack and includes snapshot S has for each block of S a place that it chose in P6 or made in
 *      P7 (the next anchor). No mark named it in P4, so its mark, if there ever is one, came later; a run that deletes
 *      it has loaded that mark in P1, later still, includes S, and has its own anchor. The P4 of these runs grow
 *      strictly, and the number of runs is finite: the last anchor stays. This needs no lock between prunes, however
 *      long one of them was paused in the middle.
 *  I4  What a run puts is durable before it removes what it replaces: new packs before the mark (P7, P8), the new index
 *      before the old files (P9), packs before their mark (P10, P11). A run that dies leaves at worst packs that no
 *      index names, two index files, or a mark with packs that are gone; the next run starts from any of these.
 */
#ifndef SL_BACKUP_PRUNE_H
#define SL_BACKUP_PRUNE_H

#include "backup/check/needed.h"

struct bk_prune {
	struct sl_backup *b;
	struct sl_backup_prune_opts opts; /* defaults filled in */
	bool dry;
	struct bk_marks old, all;
	bool *waits;                 /* by mark of old */
	char (*silent)[BK_NAME_HEX]; /* sessions to remove */
	size_t n_silent;
	bool live; /* a session is alive */
	char (*snapshots)[BK_NAME_HEX];
	size_t n_snapshots;
	struct bk_view view;
	uint64_t *bad; /* by ordinal, a bit: of a pack that is shorter than the index says */
	struct bk_choice choice;
	struct bk_seen *metadata; /* blocks that two packs should contain */
	struct bk_refs single;    /* of these, the ones that only one pack contains */
	/* by pack number */
	bool *marked;                /* by any mark */
	bool *due;                   /* to be deleted by this run */
	bool *to_mark;               /* to be marked by this run */
	bool *copy;                  /* what was chosen of it is copied */
	uint64_t *needed, *contents; /* raw bytes of chosen blocks, and of all */
	bool copied;                 /* new packs were made */
	struct sl_backup_pruned out;
};

SL_MUST_CHECK int sl__bk_prune_choose(struct bk_prune *p, struct sl_err *err); /* P6 */
SL_MUST_CHECK int sl__bk_prune_plan(struct bk_prune *p, struct sl_err *err);   /* what to copy, mark and delete */
SL_MUST_CHECK int sl__bk_prune_copy(struct bk_prune *p, struct sl_err *err);   /* P7 */
SL_MUST_CHECK int sl__bk_prune_mark(struct bk_prune *p, struct sl_err *err);   /* P8 */
SL_MUST_CHECK int sl__bk_prune_index(struct bk_prune *p, struct sl_err *err);  /* P9 */
SL_MUST_CHECK int sl__bk_prune_delete(struct bk_prune *p, struct sl_err *err); /* P10, P11 */

#endif
