/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow, for everything in a backup that is collected one by one. */
#ifndef SL_BACKUP_GROW_H
#define SL_BACKUP_GROW_H

#include "base/env.h"

/* Room for one more item after n: the array, perhaps moved, and *cap updated. NULL when out of memory; then the old
 * array stays valid. */
static inline void *sl__bk_grow(const struct sl_env *env, void *items, size_t n, size_t *cap, size_t item_bytes)
{
	if (n < *cap)
		return items;
	size_t more = *cap == 0 ? 16 : *cap * 2;
	void *grown = sl__realloc(env, items, more * item_bytes);
	if (grown != NULL)
		*cap = more;
	return grown;
}

#endif
