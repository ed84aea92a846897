/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of ids of chains or jobs: added in any order and more than once, then sorted, each once.
 *
 * Thread safety: one thread at a time. Ownership: initialise with {.env = …}; fini frees the ids.
 */
#ifndef SL_JOBS_STORE_ID_SET_H
#define SL_JOBS_STORE_ID_SET_H

#include "jobs/store/ops.h"

struct sl__id_set {
	const struct sl_env *env;
	uint64_t *ids;
	size_t n, cap;
};
SL_MUST_CHECK int sl__id_set_add(struct sl__id_set *set, uint64_t id, struct sl_err *err);
/* Put the ids in order, and drop what is there twice. */
void sl__id_set_sort(struct sl__id_set *set);
void sl__id_set_fini(struct sl__id_set *set);

#endif
