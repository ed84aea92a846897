/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/env.h"
#include "base/histogram.h"

static void the_buckets_cover_every_value_once(void **state)
{
	(void)state;
	assert_int_equal(sl__hist_low(0), 0);
	for (size_t i = 0; i + 1 < SL__HIST_BUCKETS; i++) {
		assert_true(sl__hist_low(i) <= sl__hist_high(i));
		assert_int_equal(sl__hist_low(i + 1), sl__hist_high(i) + 1);
		assert_int_equal(sl__hist_index(sl__hist_low(i)), i);
		assert_int_equal(sl__hist_index(sl__hist_high(i)), i);
	}
	assert_int_equal(sl__hist_index(UINT64_MAX), SL__HIST_BUCKETS - 1);
	assert_int_equal(sl__hist_high(SL__HIST_BUCKETS - 1), UINT64_MAX);
}

static void small_values_have_a_bucket_of_their_own(void **state)
{
	(void)state;
	for (uint64_t v = 0; v <= 16; v++) {
		assert_int_equal(sl__hist_low(sl__hist_index(v)), v);
		assert_int_equal(sl__hist_high(sl__hist_index(v)), v);
	}
}

static void every_power_of_two_is_an_exact_upper_bound(void **state)
{
	(void)state;
	for (int bit = 0; bit < 64; bit++)
		assert_int_equal(sl__hist_high(sl__hist_index((uint64_t)1 << bit)), (uint64_t)1 << bit);
}

static void a_bucket_is_at_most_an_eighth_wide(void **state)
{
	(void)state;
	for (size_t i = 1; i < SL__HIST_BUCKETS; i++)
		assert_true(sl__hist_high(i) - sl__hist_low(i) < sl__hist_low(i) / 8 + 1);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x, y;
	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return (x > y) - (x < y);
}

static void check_quantiles(const uint64_t *sorted, size_t n, const struct sl__hist_view *view)
{
	static const double qs[] = {-1, 0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1, 2};
	for (size_t i = 0; i < SL_COUNT(qs); i++) {
		double q = qs[i] < 0 ? 0 : qs[i] > 1 ? 1 : qs[i], exact = q * (double)n;
		size_t rank = (size_t)exact + ((double)(size_t)exact < exact);
		double truth = (double)sorted[rank > 0 ? rank - 1 : 0];
		double said = (double)sl__hist_quantile(view, qs[i]);
		if (said < truth * (1 - 0.0625) || said > truth * (1 + 0.0625))
			fail_msg("quantile %g of %zu: %.0f instead of %.0f", qs[i], n, said, truth);
	}
}

static void quantiles_are_within_the_stated_error(void **state)
{
	(void)state;
	enum { MOST = 20000 };
	static uint64_t values[MOST];
	struct sl__prng random = {42};
	for (int shape = 0; shape < 4; shape++) {
		for (size_t n = 1; n <= MOST; n = n * 3 + 1) {
			static struct sl__hist hist;
			struct sl__hist_view view;
			uint64_t sum = 0;
			memset(&hist, 0, sizeof(hist));
			for (size_t i = 0; i < n; i++) {
				uint64_t r = sl__prng_next(&random);
				values[i] = shape == 0   ? r % 1000000
					    : shape == 1 ? r >> (r & 63)
					    : shape == 2 ? 1000 + r % 3
							 : r;
				sum += values[i];
				sl__hist_add(&hist, values[i]);
			}
			qsort(values, n, sizeof(values[0]), by_value);
			sl__hist_read(&hist, &view);
			assert_int_equal(view.count, n);
			assert_int_equal(view.sum, sum);
			check_quantiles(values, n, &view);
		}
	}
}

static void an_empty_histogram_has_quantile_zero(void **state)
{
	(void)state;
	static const struct sl__hist_view empty;
	assert_int_equal(sl__hist_quantile(&empty, 0.5), 0);
	struct sl__hist_view one = {.count = 1};
	one.buckets[sl__hist_index(7)] = 1;
	assert_int_equal(sl__hist_quantile(&one, NAN), 7); /* not a number is taken as 0 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_buckets_cover_every_value_once),
		cmocka_unit_test(small_values_have_a_bucket_of_their_own),
		cmocka_unit_test(every_power_of_two_is_an_exact_upper_bound),
		cmocka_unit_test(a_bucket_is_at_most_an_eighth_wide),
		cmocka_unit_test(quantiles_are_within_the_stated_error),
		cmocka_unit_test(an_empty_histogram_has_quantile_zero),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
