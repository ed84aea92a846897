/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crash states of one run after another, each made from a seed: every point of its history, and of every point the
 * states that a loss of power could leave. A state that the judge refuses fails the test, with the seed, the point and
 * the state to see it again, the history and the tree.
 *
 *   struct crashloop l = crashloop_begin("SLUICE_CRASH_STATES", NULL);
 *   do {
 *           run_begin(&r, l.seed);
 *           crashloop_judge(&l, r.fs, STATES_PER_POINT, judge, &r);
 *           run_end(&r);
 *   } while (crashloop_continues(&l));
 *
 *   SLUICE_TEST_SECONDS=N   so long (default 1)
 *   SLUICE_SEED=S           start with this seed
 */
#ifndef TESTS_SUPPORT_CRASHLOOP_H
#define TESTS_SUPPORT_CRASHLOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "support/crashfs.h"

struct crashloop {
	uint64_t seed;  /* of the run that is to be made */
	const char *of; /* what is crashed, for messages; NULL: nothing more to say than the test's name */
	uint64_t runs;
	size_t states, want; /* want 0: until then */
	double until;
};

/* NULL, or what is wrong with the state that a loss at that point left. */
typedef const char *crash_judge_fn(const void *run, struct crashfs *state, size_t point);

/* count_variable: holds how many states instead of how long; or NULL. */
struct crashloop crashloop_begin(const char *count_variable, const char *of);
void crashloop_judge(struct crashloop *l, const struct crashfs *fs, size_t per_point, crash_judge_fn *judge,
		     const void *run);
/* Another run, from the next seed? Says what was reached when not. */
bool crashloop_continues(struct crashloop *l);

#endif
