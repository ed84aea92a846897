/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prune inside: what one run knows, and its steps in their order.
 *
 * The order is the protocol (see backup/repo/format.h for F1 to F6):
 *
 *   P1  load the marks ("old"): only what they name may be deleted by this run
 *   P2  list the sessions; remove the silent ones; a mark that a live session has not seen waits
 *   P3  list the snapshots
 *   P4  load the marks again ("all"): what they name is no place for a block that stays
 *   P5  list the packs, load the index
 *   P6  walk the snapshots: choose a place for every block that is needed, and a second one, in another pack, for those
 *       of metadata; stop when one is missing or unreadable
 *   P7  copy what is needed of marked packs, of those that are hardly used, and of many small ones, and metadata that
 *       is in one pack only, into new packs; durable, and indexed
 *   P8  put a mark for what is not needed any more; durable
 *   P9  put an index without the packs that go, remove the index files that it replaces
 *   P10 remove packs that are in an old mark that does not wait, and of which nothing was chosen in P6
 *   P11 remove the marks all of whose packs are gone
 *
 * Why no snapshot ever misses a block, whatever creates and other prunes run beside, and wherever any of them dies:
 *
 *  I1  Once marked, a pack is never a place that somebody counts on anew: not for a session that has seen the mark
 * (F5), not for a prune that loaded it in P4. So marks only grow, until their packs are gone. I2  A session S counts,
 * for each block, on a pack that no mark it has seen names (its anchor), or that it made. A run that deletes S's anchor
 * has loaded the anchor's mark in P1. S has not seen it, so S was not alive in P2: it was published before P3 (sessions
 * are listed first, and publishing is a rename), and the run knows its snapshot; or it was removed, and can never
 * publish. (Had S begun after P2, it would have seen the mark, or found the pack gone.) I3  A run that deletes a pack
 * and knows snapshot S has for each block of S a place that it chose in P6 or made in P7 (the next anchor). No mark
 * named it in P4, so its mark, if there ever is one, came later; a run that deletes it has loaded that mark in P1,
 * later still, knows S, and has an anchor of its own. The P4 of these runs grow strictly, and there are only so many
 * runs: the last anchor stays. This needs no lock between prunes, however long one of them stood still in the middle.
 *  I4  What a run puts is durable before it removes what it replaces: new packs before the mark (P7, P8), the new index
 *      before the old files (P9), packs before their mark (P10, P11). A run that dies leaves at worst packs that no
 *      index names, two index files, or a mark with packs that are gone; each is what the next run begins with.
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
	size_t silent_n;
	bool live; /* there is a session that is alive */
	char (*snapshots)[BK_NAME_HEX];
	size_t snapshots_n;
	struct bk_view view;
	uint64_t *bad; /* by ordinal, a bit: of a pack that is shorter than the index says */
	struct bk_choice choice;
	struct bk_seen *metadata; /* blocks that are to be in two packs */
	struct bk_refs single;    /* of these, the ones that are in one */
	/* by pack number */
	bool *marked;                /* by any mark */
	bool *due;                   /* to be deleted by this run */
	bool *condemn;               /* to be marked by this run */
	bool *copy;                  /* what was chosen of it is copied */
	uint64_t *needed, *contents; /* raw bytes of chosen blocks, and of all */
	bool copied;                 /* there are new packs */
	struct sl_backup_pruned out;
};

SL_MUST_CHECK int sl__bk_prune_sessions(struct bk_prune *p, struct sl_err *err); /* P2 */
SL_MUST_CHECK int sl__bk_prune_silent(struct bk_prune *p, struct sl_err *err);   /* of it: remove */
SL_MUST_CHECK int sl__bk_prune_choose(struct bk_prune *p, struct sl_err *err);   /* P6 */
SL_MUST_CHECK int sl__bk_prune_plan(struct bk_prune *p, struct sl_err *err);
SL_MUST_CHECK int sl__bk_prune_copy(struct bk_prune *p, struct sl_err *err);    /* P7 */
SL_MUST_CHECK int sl__bk_prune_condemn(struct bk_prune *p, struct sl_err *err); /* P8 */
SL_MUST_CHECK int sl__bk_prune_index(struct bk_prune *p, struct sl_err *err);   /* P9 */
SL_MUST_CHECK int sl__bk_prune_delete(struct bk_prune *p, struct sl_err *err);  /* P10, P11 */

#endif
