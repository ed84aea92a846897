/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/budget.h"
#include "support/crashloop.h"

struct crashloop crashloop_begin(const char *count_variable, const char *of)
{
	return (struct crashloop){.seed = test_number("SLUICE_SEED", 1),
				  .of = of,
				  .want = count_variable != NULL ? test_number(count_variable, 0) : 0,
				  .until = seconds_now() + test_seconds(1)};
}

static void say_of(const struct crashloop *l)
{
	printf("# %s%s", l->of != NULL ? l->of : "", l->of != NULL ? ": " : "");
}

void crashloop_judge(struct crashloop *l, const struct crashfs *fs, size_t per_point, crash_judge_fn *judge,
		     const void *run)
{
	for (size_t point = 0; point <= crashfs_point(fs); point++)
		for (size_t k = 0; k < crashfs_states(fs, point, per_point); k++, l->states++) {
			struct crashfs *state = crashfs_crash(fs, point, k, per_point, l->seed, NULL);
			const char *why = judge(run, state, point);
			if (why != NULL) {
				say_of(l);
				printf("SLUICE_SEED=%llu, point %zu, state %zu\n", (unsigned long long)l->seed, point,
				       k);
				crashfs_print_log(fs, point, stdout);
				crashfs_print_tree(state, stdout);
				fail_msg("%s", why);
			}
			crashfs_free(state);
		}
}

bool crashloop_continues(struct crashloop *l)
{
	l->seed++;
	l->runs++;
	if (l->want != 0 ? l->states < l->want : seconds_now() < l->until)
		return true;
	say_of(l);
	printf("%zu states of %llu runs\n", l->states, (unsigned long long)l->runs);
	return false;
}
