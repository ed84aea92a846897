/* SPDX-License-Identifier: Apache-2.0 */
/* Ids in an array that grows; sorting it drops what is there twice. */
#include "jobs/store/id_set.h"

#include <stdlib.h>

#include "base/base.h"
#include "base/compare.h"
#include "base/env.h"

int sl__id_set_add(struct sl__id_set *set, uint64_t id, struct sl_err *err)
{
	uint64_t *ids = sl__grow(set->env, set->ids, set->n, &set->cap, sizeof(*ids));
	if (ids == NULL)
		return sl__no_memory(err, "a list of ids");
	set->ids = ids;
	ids[set->n++] = id;
	return 0;
}

void sl__id_set_sort(struct sl__id_set *set)
{
	size_t kept = 0;
	if (set->n > 0)
		qsort(set->ids, set->n, sizeof(*set->ids), sl__compare_u64);
	for (size_t i = 0; i < set->n; i++)
		if (i == 0 || set->ids[i] != set->ids[i - 1])
			set->ids[kept++] = set->ids[i];
	set->n = kept;
}

void sl__id_set_fini(struct sl__id_set *set)
{
	sl__free(set->env, set->ids);
}
