/* SPDX-License-Identifier: Apache-2.0 */
/* Partition boundaries and names: what every run, resumed or not, must agree on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pipeline/partition.h"

static void a_partition_ends_before_the_next_multiple_of_its_size(void **state)
{
	(void)state;
	assert_int_equal(sl__partition_end(0, 1), 0);
	assert_int_equal(sl__partition_end(0, 1000), 999);
	assert_int_equal(sl__partition_end(999, 1000), 999);
	assert_int_equal(sl__partition_end(1000, 1000), 1999);
	assert_int_equal(sl__partition_end(1234, 1000), 1999);
}

static void the_last_partition_ends_where_sequences_do(void **state)
{
	(void)state;
	assert_int_equal(sl__partition_end(SL__SEQUENCE_MAX, 1000), SL__SEQUENCE_MAX);
	assert_int_equal(sl__partition_end(5, UINT64_MAX), SL__SEQUENCE_MAX);
	assert_int_equal(sl__partition_end(SL__SEQUENCE_MAX - 1, 1), SL__SEQUENCE_MAX - 1);
}

static void names_are_padded_so_that_they_sort_as_the_sequences_do(void **state)
{
	char name[SL__PARTITION_NAME_BYTES], largest[SL__PARTITION_NAME_BYTES];

	(void)state;
	sl__partition_name(4250000, 4499999, 250000, false, name);
	assert_string_equal(name,
			    "partition-00000000000000000017/part-00000000000004250000-00000000000004499999.parquet");
	sl__partition_name(UINT64_MAX, UINT64_MAX, 1, false, largest);
	assert_int_equal(strlen(largest), strlen(name));
	assert_true(strcmp(name, largest) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_partition_ends_before_the_next_multiple_of_its_size),
		cmocka_unit_test(the_last_partition_ends_where_sequences_do),
		cmocka_unit_test(names_are_padded_so_that_they_sort_as_the_sequences_do),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
