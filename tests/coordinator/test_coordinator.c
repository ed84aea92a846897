/* SPDX-License-Identifier: Apache-2.0 */
/* What is promised about handing items over, writing them and ending. Failures have their own file. */
#include "coordinator/kit.h"

static void what_is_submitted_is_written(void **state)
{
	struct kit *k = *state;
	kit_new(k, (struct sl_coordinator_opts){.workers = 1, .batch_size = 10});
	kit_submit(k, 1, 100);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	assert_int_equal(k->n_written, 100);
	for (uintptr_t i = 0; i < 100; i++)
		assert_int_equal(k->written[i], i + 1);
	struct sl_coordinator_health h = kit_health(k);
	assert_int_equal(h.accepted, 100);
	assert_int_equal(h.written, 100);
	kit_finish(k, 0);
}

static void bytes_are_copied_and_written(void **state)
{
	struct kit *k = *state;
	k->bytes = true;
	kit_new(k, (struct sl_coordinator_opts){.workers = 3, .batch_size = 7});
	kit_submit(k, 1, 1000);
	assert_int_equal(sl_coordinator_flush(k->c, SL_UNLIMITED), 0);
	uint64_t sum = 0;
	for (size_t i = 0; i < k->n_written; i++)
		sum += k->written[i];
	assert_int_equal(k->n_written, 1000);
	assert_int_equal(sum, 1000 * 1001 / 2);
	kit_finish(k, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_submitted_is_written, kit_set_up, kit_tear_down),
		cmocka_unit_test_setup_teardown(bytes_are_copied_and_written, kit_set_up, kit_tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
