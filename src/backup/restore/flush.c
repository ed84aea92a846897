/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing back while files are still being made. The kernel by itself waits until there is a lot to write or some
 * seconds have passed, so that all of a restore would be left to the sync at its end, with idle processors. A thread of
 * its own syncs the file system whenever the lanes have made FLUSH_BYTES more; the last sync finds little left.
 *
 * A failed sync is told once for a descriptor, and what it has lost is lost: it ends the restore.
 */
#include "backup/restore/restore.h"

#define FLUSH_BYTES (96u << 20)
#define BLOCK_BYTES 4096u /* what a small file costs beside its contents */

static void flush_loop(unsigned index, void *ctx)
{
	struct bk_restore *r = ctx;
	struct sl_err err = SL_ERR_INIT;
	int rc = 0;
	(void)index;
	sl__lock(&r->mu);
	while (rc == 0 && r->failed.code == 0) {
		if (r->unflushed < FLUSH_BYTES) {
			if (r->flushed_all)
				break;
			(void)sl__wait(r->env, &r->written, &r->mu, SL_FOREVER);
			continue;
		}
		r->unflushed = 0;
		sl__unlock(&r->mu);
		rc = sl__bk_target_flush(&r->target, &err);
		sl__lock(&r->mu);
	}
	sl__unlock(&r->mu);
	if (rc != 0)
		(void)sl__bk_restore_fail(r, rc, &err);
}

static void wake(void *ctx)
{
	struct bk_restore *r = ctx;
	sl__lock(&r->mu);
	r->flushed_all = true;
	sl__signal(&r->written);
	sl__unlock(&r->mu);
}

int sl__bk_flush_start(struct bk_restore *r, struct sl_err *err)
{
	return sl__pool_start(&r->flusher, r->env, "sl-restore-sync", 1, flush_loop, wake, r, err);
}

void sl__bk_flush_stop(struct bk_restore *r)
{
	sl__pool_free(r->flusher);
	r->flusher = NULL;
}

void sl__bk_flush_wrote(struct bk_restore *r, uint64_t bytes)
{
	sl__lock(&r->mu);
	r->unflushed += BLOCK_BYTES + bytes;
	if (r->unflushed >= FLUSH_BYTES)
		sl__signal(&r->written);
	sl__unlock(&r->mu);
}
