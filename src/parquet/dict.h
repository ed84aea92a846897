/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dictionary of a column chunk: the distinct values in the order of their first appearance, as the dictionary page
 * holds them (PLAIN), and an index for each value. What comes out depends on the values alone: the hash has no seed,
 * and a set of values that is made to collide is given up rather than searched, after a fixed number of steps.
 *
 * Thread safety: one thread at a time. Ownership: the dictionary owns its page and its table, and keeps their memory
 * from one chunk to the next; nothing of the caller's values is referred to after build.
 */
#ifndef SL_PARQUET_DICT_H
#define SL_PARQUET_DICT_H

#include <sluice/parquet.h>

#include "base/buf.h"

struct sl__dict {
	struct sl__buf page;    /* the distinct values, PLAIN */
	struct sl__buf offsets; /* uint32_t each: where the length of a byte array stands in the page */
	uint64_t *slots;        /* high half: hash; low half: index + 1, or 0 for an empty slot */
	size_t n_slots;         /* power of two, or 0 */
	uint32_t count;         /* distinct values */
};

void sl__dict_init(struct sl__dict *d, const struct sl_env *env);
void sl__dict_fini(struct sl__dict *d);

struct sl__dict_values {
	const void *values;
	size_t n;
	size_t width; /* bytes of one; 0: struct sl_parquet_bytes */
};

/*
 * Look up all values and put their indices into index.
 * 1: the dictionary is there; 0: given up, since it would have more than max_bytes, or nearly every value is a new one;
 * SL_ENOMEM.
 */
SL_MUST_CHECK int sl__dict_build(struct sl__dict *d, const struct sl__dict_values *v, size_t max_bytes,
				 uint32_t *index);

/* A byte array of the dictionary; points into the page. */
static inline struct sl_parquet_bytes sl__dict_bytes(const struct sl__dict *d, uint32_t i)
{
	uint32_t at = ((const uint32_t *)(const void *)d->offsets.data)[i];
	return (struct sl_parquet_bytes){d->page.data + at + 4, sl__get32(d->page.data + at)};
}

#endif
