/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group commit, as append.c (who reserves places and waits) sees commit.c (who leads flushes).
 */
#ifndef SL_WAL_COMMIT_H
#define SL_WAL_COMMIT_H

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wal/handle.h"

#define WAL_LEADER_SLEEPS 0x80000000u /* in wal_batch.writers */

/* The batch that takes reservations. */
struct wal_batch *sl__wal_current(sl_wal *w) SL_REQUIRES(w->mu);
/* Has batch id, of slot b, reached its end, well or badly? No lock. */
bool sl__wal_ended(const struct wal_batch *b, uint64_t id);
/* 0, or why the batch, which has ended, is not in the log. */
SL_MUST_CHECK int sl__wal_outcome(sl_wal *w, uint64_t id, struct sl_err *err) SL_EXCLUDES(w->mu);
/* A flush of submitted records failed and no caller has got the error yet: returns it, once. */
SL_MUST_CHECK int sl__wal_unheard(sl_wal *w, struct sl_err *err) SL_EXCLUDES(w->mu);
/* Flush b, whose leader the caller is (b->has_leader). mu is released meanwhile; when it returns, b has ended. */
void sl__wal_lead(sl_wal *w, struct wal_batch *b, uint64_t id) SL_REQUIRES(w->mu);
/* Sleep until batch id has ended; someone else leads it. */
void sl__wal_follow(struct wal_batch *b, uint64_t id);
/* Lead batch id when it has no leader, else follow it. */
void sl__wal_drive(sl_wal *w, uint64_t id) SL_RELEASE(w->mu);

/* ---- sleeping on a word of memory: many followers of one flush wake with one call and take no lock ---- */

/* Sleep while *word is value. Spurious returns are possible. */
static inline void sl__futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	(void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static inline void sl__futex_wake_all(_Atomic uint32_t *word)
{
	(void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#endif
