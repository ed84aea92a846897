/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read a pack from front to back: every frame is opened once, every block is compared with its id, and optionally all
 * bytes of the file with its name. Used by check, by repair (which keeps what is intact) and by prune (which copies
 * what is needed).
 *
 * Memory: one frame as stored and one opened. Thread safety: a scanner belongs to one thread.
 */
#ifndef SL_BACKUP_CHECK_PACK_H
#define SL_BACKUP_CHECK_PACK_H

#include "backup/check/needed.h"

struct bk_scanner;

struct bk_scan {
	/* 1: this block is wanted, 0: it is not, negative: end the scan. A frame without a wanted block is not read,
	 * unless `whole`. NULL: all are wanted. */
	int (*wants)(const struct bk_id *id, struct sl_err *err, void *ctx);
	/* A block that is intact (F1); the bytes are valid until it returns. NULL: only verify. */
	int (*block)(const struct bk_id *id, const uint8_t *bytes, uint32_t len, struct sl_err *err, void *ctx);
	/* A damaged block. NULL: it ends the scan. */
	int (*bad)(const struct bk_id *id, const struct sl_err *why, struct sl_err *err, void *ctx);
	void *ctx;
	bool whole; /* read everything and compare the file with its name (F2); SL_ECORRUPT comes at the end */
};

SL_MUST_CHECK int sl__bk_scanner_new(struct bk_scanner **out, struct sl_backup *b, struct sl_err *err);
void sl__bk_scanner_free(struct bk_scanner *s); /* NULL is allowed */
/* The blocks of p are those of the pack's directory, or of the index. */
SL_MUST_CHECK int sl__bk_scan(struct bk_scanner *s, const struct bk_pack_blocks *p, const struct bk_scan *scan,
			      struct sl_err *err);

#endif
