/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that fails the Nth allocation and counts what is still held, for tests of a single file of base. */
#ifndef TESTS_BASE_FAIL_MEM_H
#define TESTS_BASE_FAIL_MEM_H

#include <stdlib.h>

#include <sluice/adapter/env.h>

struct fail_mem {
	int calls;   /* allocations asked for */
	int fail_at; /* this one fails; 0: none */
	int held;    /* not yet released */
};

/* As malloc does, also under a sanitizer that would end the program. */
static inline int fail_mem_refuses(struct fail_mem *m, size_t size)
{
	return ++m->calls == m->fail_at || size > PTRDIFF_MAX;
}

static inline void *fail_mem_alloc(size_t size, void *ctx)
{
	struct fail_mem *m = ctx;
	void *p = fail_mem_refuses(m, size) ? NULL : malloc(size);
	m->held += p != NULL;
	return p;
}

static inline void *fail_mem_resize(void *old, size_t size, void *ctx)
{
	struct fail_mem *m = ctx;
	void *p = fail_mem_refuses(m, size) ? NULL : realloc(old, size);
	m->held += p != NULL && old == NULL;
	return p;
}

static inline void fail_mem_release(void *p, void *ctx)
{
	struct fail_mem *m = ctx;
	m->held -= p != NULL;
	free(p);
}

static const struct sl_mem fail_mem_table = {
	.version = SL_MEM_VERSION, .alloc = fail_mem_alloc, .resize = fail_mem_resize, .release = fail_mem_release};

#endif
