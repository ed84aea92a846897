/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check and repair inside: packs verified on several threads, and the findings of what is wrong.
 *
 * Thread safety: as the functions say; everything else on the thread of the call.
 */
#ifndef SL_BACKUP_CHECK_H
#define SL_BACKUP_CHECK_H

#include "backup/check/pack.h"
#include "backup/repo/twins.h"

/* ---- findings ---- */

#define BK_FINDINGS_FILES 10000u /* files that are named; those behind are counted */

struct bk_finding {
	enum sl_backup_fault fault;
	bool harmless;
	char *object, *snapshot, *path; /* the last two may be NULL */
	struct sl_err reason;
};
/* Kept until they are told: what a prune at work made look wrong is looked at again first. */
struct bk_findings {
	const struct sl_env *env;
	struct bk_finding *items;
	size_t n, cap;
	uint64_t unnamed; /* files beyond BK_FINDINGS_FILES */
	uint64_t faults, harmless;
};
void sl__bk_findings_fini(struct bk_findings *f);
SL_MUST_CHECK int sl__bk_findings_add(struct bk_findings *f, enum sl_backup_fault fault, bool harmless,
				      const char *object, const char *snapshot, const char *path,
				      const struct sl_err *reason, struct sl_err *err);
/* Tell them in order and forget them; the counts stay. Another value of fn ends it and becomes the result. */
SL_MUST_CHECK int sl__bk_findings_tell(struct bk_findings *f, sl_backup_finding_fn *fn, void *ctx, struct sl_err *err);

/* ---- single objects ---- */

/* Marks that are damaged. */
SL_MUST_CHECK int sl__bk_check_marks(struct sl_backup *b, bk_damaged_fn *fn, void *ctx, struct sl_err *err);
/* Names that no object of a repository has, in the folders of all but packs (their listing tells). */
SL_MUST_CHECK int sl__bk_check_strays(struct sl_backup *b, void (*stray)(const char *name, void *ctx), void *ctx,
				      struct sl_err *err);

/* ---- packs ---- */

enum bk_verdict_state {
	BK_PACK_RIGHT,
	BK_PACK_DAMAGED,      /* its directory is right */
	BK_PACK_NO_DIRECTORY, /* what the index knows of it may still be right */
	BK_PACK_UNREADABLE,   /* the storage does not give it: no damage that repair could judge, but nothing to restore
				 from */
	BK_PACK_GONE          /* deleted since it was listed */
};
struct bk_verdict {
	enum bk_verdict_state state;
	uint32_t blocks;
	uint64_t sum; /* over the directory's blocks and places, in any order */
};
struct bk_bad_block {
	struct bk_id pack, id;
};

struct bk_verify {
	struct sl_backup *b;
	const struct bk_view *view;
	bool read_data;       /* every byte; else directories only */
	bool pass_unreadable; /* a pack that the storage does not give is told; else it ends everything */
	/* A pack that is not right. One call at a time, on any thread. */
	int (*on_wrong)(uint32_t pack, const struct sl_err *why, void *ctx, struct sl_err *err);
	void *ctx;
	/* the result */
	struct bk_verdict *verdicts; /* by pack number */
	struct bk_bad_block *bad;    /* blocks that are not right where they are */
	size_t bad_n, bad_cap;
	uint64_t blocks, bytes; /* looked at */
	/* between the threads */
	sl__mutex mu;
	uint32_t next;
	int rc;
	struct sl_err err;
};
SL_MUST_CHECK int sl__bk_verify_packs(struct bk_verify *v, struct sl_err *err);
void sl__bk_verify_fini(struct bk_verify *v);
/* The bad blocks as bits by ordinal of a view; NULL without memory (err is filled). */
uint64_t *sl__bk_verify_bits(const struct bk_verify *v, const struct bk_view *view, struct sl_err *err);
/* What the index says of a pack, in the order of its places; fresh memory. */
SL_MUST_CHECK int sl__bk_indexed_blocks(const struct bk_view *view, uint32_t pack, struct bk_pack_block **blocks,
					size_t *n, struct sl_err *err);
/* How a block and its place count in a verdict's sum. */
uint64_t sl__bk_place_sum(const struct bk_id *id, const struct bk_place *place);

/* Does each index file say of a pack what its directory says? */
SL_MUST_CHECK int sl__bk_check_agreement(const struct bk_verify *v, struct bk_findings *f, struct sl_err *err);

/* ---- snapshots ---- */

/* Every snapshot, with all it needs; findings of what is missing. *missing: something may only have moved since the
 * view was loaded. */
SL_MUST_CHECK int sl__bk_check_snapshots(struct sl_backup *b, const struct bk_view *view,
					 const struct bk_verify *verify, struct bk_findings *f, uint64_t *snapshots,
					 bool *missing, struct sl_err *err);

#endif
