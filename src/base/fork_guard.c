/* SPDX-License-Identifier: Apache-2.0 */
/* Detects that a handle is used in a forked child. See fork_guard.h. */
#include "base/fork_guard.h"

#include <sys/mman.h>
#include <unistd.h>

static size_t page_size(void)
{
	long n = sysconf(_SC_PAGESIZE);
	return n > 0 ? (size_t)n : 4096;
}

void sl__fork_guard_init(struct sl__fork_guard *g)
{
	*g = (struct sl__fork_guard){.pid = getpid()};
	unsigned char *page = mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return;
	if (madvise(page, page_size(), MADV_WIPEONFORK) != 0) {
		(void)munmap(page, page_size());
		return;
	}
	page[0] = 1;
	g->page = page;
}

void sl__fork_guard_fini(struct sl__fork_guard *g)
{
	if (g->page != NULL)
		(void)munmap((void *)(uintptr_t)g->page, page_size());
	g->page = NULL;
}

bool sl__forked_slow(const struct sl__fork_guard *g)
{
	return g->pid != getpid();
}
