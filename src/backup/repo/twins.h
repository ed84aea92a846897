/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is needed to open anything else is there twice, byte by byte the same: config and copies/config, keys/<id> and
 * copies/keys/<id>. Each text has its own checksum, which shows which of the two is right. Snapshots are there
 * twice too (snapshots/<id>, copies/snapshots/<id>), each with its own seal.
 *
 *  T1  The first is put before its copy, and removed before it. So a copy without a first is either what is left of
 *      something lost, or what an interrupted removal has left. Of a snapshot the copy is removed before the first
 *      (and, by T2, once more after it), and put only after it: a copy without a first is what is left of something
 *      lost, and counts.
 *  T2  A process that puts one of the two from the other checks afterwards whether that one is still there, and removes
 *      what it has put when it is not. A process that removes both checks afterwards whether one of them came back. So
 *      no process brings back what another removes at the same time, and no lock is needed for it.
 */
#ifndef SL_BACKUP_TWINS_H
#define SL_BACKUP_TWINS_H

#include "backup/repo/repo.h"

#define BK_COPIES "copies"
#define BK_SNAPSHOT_COPIES BK_COPIES "/snapshots"
#define BK_TWIN_MAX 4096u /* bytes of either */

enum { BK_FIRST, BK_COPY };

struct bk_twin {
	char name[SL_DRIVER_NAME_BYTES];
	int rc;            /* 0, SL_ENOENT, SL_ECORRUPT, SL_EUNSUPPORTED; SL_EIO only where the other is right */
	struct sl_err why; /* of another rc than 0 */
	uint8_t *text;     /* when rc is 0 */
	size_t len;
};

/* Is the text right? 0, SL_ECORRUPT or SL_EUNSUPPORTED. */
typedef int bk_twin_fn(struct sl_backup *b, const char *text, size_t len, struct sl_err *err);

void sl__bk_copy_name(const char *name, char out[SL_DRIVER_NAME_BYTES]);
/* One of them; its rc says how it is, and the result is 0, SL_EIO or another failure. */
SL_MUST_CHECK int sl__bk_twin_load(struct sl_backup *b, const char *name, bk_twin_fn *is_right, struct bk_twin *out,
				   struct sl_err *err);
/* Both of a name. SL_EIO of one is only a failure when the other is not right. To be freed in any case. */
SL_MUST_CHECK int sl__bk_twins_load(struct sl_backup *b, const char *name, bk_twin_fn *is_right, struct bk_twin out[2],
				    struct sl_err *err);
void sl__bk_twin_fini(struct sl_backup *b, struct bk_twin *t); /* zeroed is allowed */
void sl__bk_twins_fini(struct sl_backup *b, struct bk_twin t[2]);
bool sl__bk_twins_same(const struct bk_twin t[2]); /* both are right, and the same */

/* Put the wrong one from the right one (T2). */
SL_MUST_CHECK int sl__bk_twin_repair(struct sl_backup *b, const struct bk_twin t[2], int right, struct sl_err *err);

/* What check reports of them and repair fixes. */
typedef int bk_damaged_fn(const struct sl_backup_finding *x, struct sl_err *err, void *ctx);
struct bk_care {
	bk_damaged_fn *fn; /* 0 to continue */
	void *ctx;
	bool repair;
	uint64_t repaired; /* objects */
};
/* Report both as they are, and put what is missing or damaged from the other. An object of a later version is reported
 * and left alone; one that is lost in both places is reported. */
SL_MUST_CHECK int sl__bk_twins_care(struct sl_backup *b, enum sl_backup_fault fault, struct bk_twin t[2],
				    struct bk_care *care, struct sl_err *err);

/* ---- of a snapshot (snapshot.c) ---- */

/* The same for both objects of a snapshot; one that is gone in both places was forgotten meanwhile. */
SL_MUST_CHECK int sl__bk_snapshot_care(struct sl_backup *b, const char *id, struct bk_care *care, struct sl_err *err);
/* After the first, which is published. A failure is logged: the snapshot is there. */
void sl__bk_snapshot_put_copy(struct sl_backup *b, const char *id, const void *json, size_t len);
/* Before the first is removed. */
SL_MUST_CHECK int sl__bk_snapshot_remove_copy(struct sl_backup *b, const char *id, struct sl_err *err);

#endif
