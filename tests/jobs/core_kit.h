/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the worker's decisions share; they play the threads and the store. */
#ifndef TESTS_CORE_KIT_H
#define TESTS_CORE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "jobs/worker/core.h"

#define MS ((int64_t)1000000)

/* What the keeper, or else the reaper, or else the scheduler has to do. */
static inline void core_keep(struct sl__core *core, int64_t now, struct sl__todo *keeper)
{
	static const int order[] = {SL__KEEPER, SL__REAPER, SL__SCHEDULER};
	int64_t wake_ns = SL_FOREVER;
	for (size_t i = 0; i < 3; i++) {
		keeper->who = order[i];
		sl__core_next(core, now, keeper);
		wake_ns = SL_MIN(wake_ns, keeper->wake_ns);
		if (i > 0 && keeper->kind == SL__TODO_END)
			keeper->kind = SL__TODO_SLEEP;
		if (keeper->kind != SL__TODO_SLEEP)
			return;
	}
	keeper->wake_ns = wake_ns;
}

#endif
