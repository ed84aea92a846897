/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is this still the process that made the handle? One load instead of a system call: the guard is a page that the
 * kernel hands to a forked child as zeros (MADV_WIPEONFORK). Where the kernel cannot do that, the process id is
 * compared.
 *
 * Thread safety: sl__forked from any thread. Ownership: the guard owns its page until fini.
 */
#ifndef SL_BASE_FORK_GUARD_H
#define SL_BASE_FORK_GUARD_H

#include <sys/types.h>

#include "base/base.h"

struct sl__fork_guard {
	const unsigned char *page; /* its first byte is 1 in the process that made it; NULL: compare pid */
	pid_t pid;
};

/* Cannot fail: without a page it compares process ids. */
void sl__fork_guard_init(struct sl__fork_guard *g);
/* A guard that was never made is allowed. */
void sl__fork_guard_fini(struct sl__fork_guard *g);
bool sl__forked_slow(const struct sl__fork_guard *g);

static inline bool sl__forked(const struct sl__fork_guard *g)
{
	return SL_LIKELY(g->page != NULL) ? g->page[0] == 0 : sl__forked_slow(g);
}

#endif
