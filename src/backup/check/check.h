/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What check and repair share: findings, and packs verified on several threads.
 *
 * Thread safety: as the functions say; everything else on the thread of the call.
 */
#ifndef SL_BACKUP_CHECK_H
#define SL_BACKUP_CHECK_H

#include "backup/check/pack.h"
#include "backup/repo/twins.h"

/* ---- findings ---- */

#define BK_FINDINGS_FILES 10000u /* files that are named; further ones are counted */

struct bk_finding {
	struct sl_backup_finding x;
	char *text; /* its strings */
};
/* Kept until they are reported: what a concurrent prune made look wrong is checked again first. */
struct bk_findings {
	const struct sl_env *env;
	struct bk_finding *items;
	size_t n, cap;
	uint64_t unnamed; /* files beyond BK_FINDINGS_FILES */
	uint64_t faults, harmless;
	const char *snapshot; /* that sl__bk_findings_take names, or NULL */
};
void sl__bk_findings_fini(struct bk_findings *f);
/* Add a copy of x. An object that was found before, for the same reason, is not added again. */
SL_MUST_CHECK int sl__bk_findings_add(struct bk_findings *f, const struct sl_backup_finding *x, struct sl_err *err);
/* The same as a callback; ctx is a struct bk_findings, which names the snapshot. */
bk_damaged_fn sl__bk_findings_take;
/* The same of an object that is needed and damaged. */
SL_MUST_CHECK int sl__bk_findings_damaged(struct bk_findings *f, enum sl_backup_fault fault, const char *object,
					  const struct sl_err *why, struct sl_err *err);
/* Report them in order and free them; the counts stay. A value of fn other than 0 ends it and is the result. */
SL_MUST_CHECK int sl__bk_findings_report(struct bk_findings *f, sl_backup_finding_fn *fn, void *ctx,
					 struct sl_err *err);

/* Find marks that are damaged; quarantine: rename each of them to damaged/. */
SL_MUST_CHECK int sl__bk_check_marks(struct sl_backup *b, bool quarantine, struct bk_findings *f, struct sl_err *err);

/* ---- packs ---- */

enum bk_verdict_state {
	BK_PACK_RIGHT,
	BK_PACK_DAMAGED,      /* its directory is intact */
	BK_PACK_NO_DIRECTORY, /* what the index has of it may still be intact */
	BK_PACK_UNREADABLE,   /* the storage fails to read it: not damage that repair could judge, but nothing can be
				 restored from it */
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
	bool skip_unreadable; /* report a pack that the storage fails to read and continue; else it ends the call */
	/* A pack that is damaged or unreadable. One call at a time, on any thread. */
	int (*on_wrong)(uint32_t pack, const struct sl_err *why, struct sl_err *err, void *ctx);
	void *ctx;
	/* the result */
	struct bk_verdict *verdicts; /* by pack number */
	struct bk_bad_block *bad;    /* blocks that are damaged in a pack */
	size_t n_bad, cap_bad;
	struct bk_ids unreadable; /* packs that the storage fails to read */
	uint64_t blocks, bytes;   /* verified */
	/* shared by the threads */
	sl__mutex mu;
	uint32_t next;
	int rc;
	struct sl_err err;
};
SL_MUST_CHECK int sl__bk_verify_packs(struct bk_verify *v, struct sl_err *err);
void sl__bk_verify_fini(struct bk_verify *v);
/* The bad blocks as bits by ordinal of a view; NULL when out of memory (err is filled). */
uint64_t *sl__bk_verify_bits(const struct bk_verify *v, const struct bk_view *view, struct sl_err *err);
/* Fill p with what the index has of a pack; the caller frees p->blocks, also after a failure. */
SL_MUST_CHECK int sl__bk_indexed_blocks(const struct bk_view *view, uint32_t pack, struct bk_pack_blocks *p,
					struct sl_err *err);
/* Find index files that do not agree with the directories of the packs that they name. */
SL_MUST_CHECK int sl__bk_check_agreement(const struct bk_verify *v, struct bk_findings *f, struct sl_err *err);

#endif
