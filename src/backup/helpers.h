/* SPDX-License-Identifier: Apache-2.0 */
/* Small helpers of all parts of a backup: arrays that grow, results that carry a reason, results for callers. */
#ifndef SL_BACKUP_HELPERS_H
#define SL_BACKUP_HELPERS_H

#include <string.h>

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

/* End a call with rc; when that is an error, *err (may be NULL) becomes why. */
static inline int sl__bk_result(int rc, const struct sl_err *why, struct sl_err *err)
{
	if (rc != 0 && err != NULL)
		*err = *why;
	return rc;
}

#endif
