/* SPDX-License-Identifier: Apache-2.0 */
/* Every implementation of the checksum against the published check values and against the definition, bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/crc64nvme.h"

#define MAX_LEN 1100
#define MAX_ALIGN 64

/* The definition: one bit at a time. */
static uint64_t reference(uint64_t crc, const unsigned char *p, size_t n)
{
	uint64_t c = ~crc;
	for (size_t i = 0; i < n; i++) {
		c ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			c = c >> 1 ^ (0x9A6C9329AC4BC9B5 & -(c & 1));
	}
	return ~c;
}

static uint64_t next_random(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static void fill_random(unsigned char *p, size_t n)
{
	uint64_t s = 0x243F6A8885A308D3;
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(next_random(&s) >> 32);
}

static uint64_t crc_of(enum sl__crc64_impl impl, const char *text, size_t n)
{
	uint64_t crc = 0;
	assert_true(sl__crc64nvme_impl(impl, &crc, text, n));
	return crc;
}

static bool supported(enum sl__crc64_impl impl)
{
	uint64_t crc = 0;
	return sl__crc64nvme_impl(impl, &crc, "", 0);
}

static void the_published_check_values_come_out(void **state)
{
	(void)state;
	static const char zeros[4096];
	for (int i = 0; i < SL__CRC64_IMPL_COUNT; i++) {
		enum sl__crc64_impl impl = (enum sl__crc64_impl)i;
		printf("# %s: %s\n", sl__crc64nvme_impl_name(impl), supported(impl) ? "tested" : "not on this machine");
		if (!supported(impl))
			continue;
		assert_int_equal(crc_of(impl, "123456789", 9), 0xAE8B14860A799888);
		assert_int_equal(crc_of(impl, "hello world!", 12), 0xD9160D1FA8E418E3);
		assert_int_equal(crc_of(impl, zeros, sizeof(zeros)), 0x6482D367EB22B64E);
	}
	assert_int_equal(sl__crc64nvme(0, "123456789", 9), 0xAE8B14860A799888);
	assert_int_equal(sl__crc64nvme(0, zeros, sizeof(zeros)), 0x6482D367EB22B64E);
}

static void no_bytes_change_nothing(void **state)
{
	(void)state;
	assert_int_equal(sl__crc64nvme(0, NULL, 0), 0);
	assert_int_equal(sl__crc64nvme(0x123456789ABCDEF0, "", 0), 0x123456789ABCDEF0);
}

static void the_table_is_there_everywhere_and_unknown_numbers_nowhere(void **state)
{
	(void)state;
	assert_true(supported(SL__CRC64_TABLE));
	uint64_t crc = 42;
	assert_false(sl__crc64nvme_impl(SL__CRC64_IMPL_COUNT, &crc, "x", 1));
	assert_int_equal(crc, 42);
}

static void every_length_at_every_alignment_agrees_with_the_definition(void **state)
{
	(void)state;
	static unsigned char data[MAX_ALIGN + MAX_LEN];
	fill_random(data, sizeof(data));
	for (size_t align = 0; align < MAX_ALIGN; align++) {
		const unsigned char *p = data + align;
		uint64_t expected = 0x0123456789ABCDEF * (align + 1); /* a start that is not 0 */
		uint64_t start = expected;
		for (size_t n = 0; n <= MAX_LEN; n++) {
			for (int i = 0; i < SL__CRC64_IMPL_COUNT; i++) {
				uint64_t crc = start;
				if (sl__crc64nvme_impl((enum sl__crc64_impl)i, &crc, p, n) && crc != expected)
					fail_msg("%s differs at length %zu, alignment %zu",
						 sl__crc64nvme_impl_name((enum sl__crc64_impl)i), n, align);
			}
			assert_int_equal(sl__crc64nvme(start, p, n), expected);
			if (n < MAX_LEN)
				expected = reference(expected, p + n, 1);
		}
	}
}

static void no_byte_outside_the_input_is_read(void **state)
{
	(void)state;
	/* Exactly n bytes on the heap: a sanitizer sees a read beyond either end. */
	for (size_t n = 1; n <= 300; n++) {
		unsigned char *exact = malloc(n);
		assert_non_null(exact);
		fill_random(exact, n);
		for (int i = 0; i < SL__CRC64_IMPL_COUNT; i++) {
			uint64_t crc = 0;
			if (sl__crc64nvme_impl((enum sl__crc64_impl)i, &crc, exact, n))
				assert_int_equal(crc, reference(0, exact, n));
		}
		free(exact);
	}
}

static void any_split_gives_the_same_result(void **state)
{
	(void)state;
	enum { SIZE = 1 << 16 };
	static unsigned char data[SIZE];
	fill_random(data, SIZE);
	uint64_t whole = reference(0, data, SIZE), s = 0x9E3779B97F4A7C15;
	for (int round = 0; round < 200; round++) {
		uint64_t mixed = 0;
		size_t limit = (size_t)1 << (round % 14);
		for (size_t at = 0, n; at < SIZE; at += n) {
			n = next_random(&s) % (limit + 1);
			n = SL_MIN(n, SIZE - at);
			enum sl__crc64_impl impl = (enum sl__crc64_impl)(next_random(&s) % SL__CRC64_IMPL_COUNT);
			if (!sl__crc64nvme_impl(impl, &mixed, data + at, n))
				mixed = sl__crc64nvme(mixed, data + at, n);
		}
		assert_int_equal(mixed, whole);
	}
}

static void every_flipped_bit_of_a_record_is_noticed(void **state)
{
	(void)state;
	unsigned char data[284];
	fill_random(data, sizeof(data));
	uint64_t whole = sl__crc64nvme(0, data, sizeof(data));
	for (size_t bit = 0; bit < sizeof(data) * 8; bit++) {
		data[bit / 8] ^= (unsigned char)(1 << bit % 8);
		assert_int_not_equal(sl__crc64nvme(0, data, sizeof(data)), whole);
		data[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_published_check_values_come_out),
		cmocka_unit_test(no_bytes_change_nothing),
		cmocka_unit_test(the_table_is_there_everywhere_and_unknown_numbers_nowhere),
		cmocka_unit_test(every_length_at_every_alignment_agrees_with_the_definition),
		cmocka_unit_test(no_byte_outside_the_input_is_read),
		cmocka_unit_test(any_split_gives_the_same_result),
		cmocka_unit_test(every_flipped_bit_of_a_record_is_noticed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
