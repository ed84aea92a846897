/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the constructors of this folder share: an object that begins with its environment.
 *
 * Thread safety: no state. Ownership: the object is freed with sl__flow_free.
 */
#ifndef SL_FLOW_NEW_H
#define SL_FLOW_NEW_H

#include "base/env.h"

/* Spans up to a year keep all sums of times far from overflow. */
#define SL__FLOW_SPAN_MAX_MS ((int64_t)365 * 24 * 3600 * 1000)

/* A zeroed object of `bytes`, which begins with a struct sl_env: a resolved copy of env. NULL: *rc and err say why. */
static inline void *sl__flow_new(size_t bytes, const struct sl_env *env, const char *what, int *rc, struct sl_err *err)
{
	struct sl_env own;
	*rc = sl__env_init(&own, env, err);
	if (*rc != 0)
		return NULL;
	struct sl_env *object = sl__calloc(&own, 1, bytes);
	if (object == NULL)
		*rc = sl__no_memory(err, what);
	else
		*object = own;
	return object;
}

static inline void sl__flow_free(void *object)
{
	struct sl_env env = *(const struct sl_env *)object;
	sl__free(&env, object);
}

#endif
