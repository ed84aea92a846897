/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping on a word of memory: many followers of one flush wake with one call and take no lock. */
#ifndef SL_WAL_FUTEX_H
#define SL_WAL_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

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
