/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The specification's test with everything that is real: workers that finish Parquet files in any order; the files, the
 * rows of the catalog and the chain of audit events are those of one worker that finishes them one after the other.
 */
#include <pthread.h>

#include "base/base.h"
#include "base/env.h"
#include "pipeline/export_rig.h"

#define PARTITIONS 8
#define SIZE 50

struct turns {
	pthread_mutex_t mu;
	pthread_cond_t changed;
	size_t order[PARTITIONS]; /* numbers of partitions, as they are to finish */
	size_t at;
};

/* The last step of a worker waits for its partition's turn. */
static void in_turn(const char *step, uint64_t start, void *ctx)
{
	struct turns *t = ctx;
	if (strcmp(step, "folder_synced") != 0)
		return;
	pthread_mutex_lock(&t->mu);
	while (t->order[t->at] != start / SIZE)
		pthread_cond_wait(&t->changed, &t->mu);
	t->at++;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->mu);
}

static char *export_in(struct export_rig *x, const char *to, struct turns *t)
{
	struct sl_err err = SL_ERR_INIT;
	export_rig_to(x, to);
	struct sl_export_opts o = export_rig_opts(x);
	o.perf.workers = t != NULL ? PARTITIONS : 1;
	o.on_step = t != NULL ? in_turn : NULL;
	o.on_step_ctx = t;
	if (export_rig_run(&o, NULL, &err) != 0)
		fail_msg("%s", err.msg);
	export_rig_assert_verified(x, true);
	return export_rig_look(x, NULL);
}

static void assert_order_does_not_matter(struct export_rig *x, struct turns *t, const char *must_be)
{
	t->at = 0;
	char *is = export_in(x, "shuffled", t);
	assert_int_equal(t->at, PARTITIONS);
	export_rig_assert_same(is, must_be, "out of order");
	free(is);
}

static void out_of_order_worker_completion_still_produces_ordered_PAS_chain(void **state)
{
	struct export_rig x;
	struct turns t = {.mu = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
	struct sl__prng prng = {.s = 7};
	(void)state;
	export_rig_init(&x, ".csv", 17, PARTITIONS * SIZE - 17);
	char *must_be = export_in(&x, "one", NULL);
	for (size_t i = 0; i < PARTITIONS; i++)
		t.order[i] = PARTITIONS - 1 - i;
	assert_order_does_not_matter(&x, &t, must_be);
	for (int run = 0; run < 30; run++) {
		for (size_t i = PARTITIONS - 1; i > 0; i--) {
			size_t k = sl__prng_next(&prng) % (i + 1), swap = t.order[i];
			t.order[i] = t.order[k];
			t.order[k] = swap;
		}
		assert_order_does_not_matter(&x, &t, must_be);
	}
	free(must_be);
	export_rig_fini(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(out_of_order_worker_completion_still_produces_ordered_PAS_chain),
	};
	return cmocka_run_group_tests_name("export, order", tests, NULL, NULL);
}
