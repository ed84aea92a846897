/* SPDX-License-Identifier: Apache-2.0 */
/* The heap of batches that wait: by itself, since a wrong order would only make a coordinator slow. */
#include "coordinator/kit.h"

#include "coordinator/coordinator.h"

#define BATCHES 200

static uint32_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 33);
}

/* Batches go in and out, from the front or from anywhere, and the front is always the earliest. */
static void the_earliest_batch_is_in_front_whatever_goes_in_and_out(void **state)
{
	static struct sl__batch batches[BATCHES];
	struct sl__batch *at[BATCHES], *out[BATCHES];
	(void)state;
	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct sl__heap h = {.at = at};
		uint64_t random = seed;
		size_t n_out = BATCHES, items = 0;
		for (size_t i = 0; i < BATCHES; i++)
			out[i] = &batches[i];
		for (int step = 0; step < 2000; step++) {
			if (n_out > 0 && (h.n == 0 || next_random(&random) % 3 != 0)) {
				struct sl__batch *b = out[--n_out];
				b->due_ns = next_random(&random) % 50;
				b->n = 1 + next_random(&random) % 9;
				items += b->n;
				sl__heap_push(&h, b);
			} else {
				size_t i = next_random(&random) % 2 == 0 ? 0 : next_random(&random) % h.n;
				struct sl__batch *expected = h.at[i];
				struct sl__batch *b = i == 0 ? sl__heap_pop(&h) : sl__heap_remove(&h, i);
				assert_ptr_equal(b, expected);
				items -= b->n;
				out[n_out++] = b;
			}
			assert_int_equal(h.n, BATCHES - n_out);
			assert_int_equal(h.items, items);
			for (size_t i = 1; i < h.n; i++)
				assert_true(h.at[0]->due_ns <= h.at[i]->due_ns);
		}
		for (int64_t last = 0; h.n > 0; last = out[n_out++]->due_ns) {
			out[n_out] = sl__heap_pop(&h);
			assert_true(out[n_out]->due_ns >= last);
		}
		assert_null(sl__heap_pop(&h));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_earliest_batch_is_in_front_whatever_goes_in_and_out),
	};
	return cmocka_run_group_tests_name("coordinator_heap", tests, NULL, NULL);
}
