/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of the log, against docs/formats/wal.md and a second implementation of the CRC. */
#include "box.h"

static const uint8_t foreign_header[16] = "ARWAL001\x01\0\0";

/* A log of two records as a program would write it that knows only the format. */
static size_t foreign_log(uint8_t *out)
{
	memcpy(out, foreign_header, 16);
	size_t n = 16;
	n += box_record(out + n, 1, 1, 1704067200000, "one", 3);
	n += box_record(out + n, 2, 1, 1704067200001, "two", 3);
	return n;
}

static void the_crc_of_the_test_is_the_published_one(void **state)
{
	(void)state;
	assert_true(box_crc64("123456789", 9) == 0xAE8B14860A799888ULL);
	assert_true(box_crc64("hello world!", 12) == 0xD9160D1FA8E418E3ULL);
}

static void a_record_is_the_payload_and_32_bytes(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	(void)box_append(w, "hello world!");
	(void)box_append(w, "");
	box_close(&b, w);
	size_t n;
	const uint8_t *p = box_bytes(&b, BOX_PATH, &n);
	assert_int_equal(n, 16 + 44 + 32 + 32); /* trimmed: only the record of the close after the last one */
	assert_memory_equal(p, "ARWAL001\x01\0\0\0", 12);
	int64_t time_ms;
	memcpy(&time_ms, p + 32, 8);
	uint8_t expected[64];
	size_t size = box_record(expected, 1, 1, time_ms, "hello world!", 12);
	assert_memory_equal(p + 16, expected, size);
	memcpy(&time_ms, p + 60 + 16, 8);
	size = box_record(expected, 2, 1, time_ms, "", 0);
	assert_memory_equal(p + 60, expected, size);
	box_fini(&b);
}

static uint8_t crc8(const uint8_t *p, size_t n)
{
	uint8_t crc = 0;
	for (size_t i = 0; i < n; i++) {
		crc ^= p[i];
		for (int k = 0; k < 8; k++)
			crc = (uint8_t)(crc << 1) ^ ((crc & 0x80) != 0 ? 0x07 : 0);
	}
	return crc;
}

static void the_header_holds_an_incarnation_and_its_crc8(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	assert_int_equal(crc8((const uint8_t *)"123456789", 9), 0xF4);
	uint32_t seen[8];
	for (int i = 0; i < 8; i++) {
		sl_wal *w = box_open(&b);
		seen[i] = box_stats(w).incarnation;
		box_close(&b, w);
		size_t n;
		const uint8_t *p = box_bytes(&b, BOX_PATH, &n);
		assert_true(seen[i] != 0 && seen[i] < 1U << 24);
		assert_int_equal(p[12] | p[13] << 8 | p[14] << 16, seen[i]);
		assert_int_equal(p[15], crc8(p, 15));
		assert_int_not_equal(p[15], 0);
		assert_true(i == 0 || seen[i] != seen[i - 1]);
		assert_int_equal(crashfs_io.unlink(BOX_PATH, b.fs), 0);
	}
	box_fini(&b);
}

static void a_foreign_log_is_read_and_continued_as_incarnation_0(void **state)
{
	(void)state;
	struct box b;
	uint8_t log[256];
	box_init(&b);
	crashfs_mkdir(b.fs, BOX_DIR);
	crashfs_put(b.fs, BOX_PATH, log, foreign_log(log));
	assert_scan(&b, BOX_PATH, "1=one 2=two");
	sl_wal *w = box_open(&b);
	assert_int_equal(box_stats(w).incarnation, 0);
	assert_int_equal(box_append(w, "three"), 3);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=one 2=two 3=three");
	size_t n;
	assert_memory_equal(box_bytes(&b, BOX_PATH, &n), foreign_header, 16);
	box_fini(&b);
}

static void a_status_record_is_a_range_with_its_first_sequence_as_payload(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	for (int i = 0; i < 5; i++)
		(void)box_append(w, "x");
	assert_int_equal(sl_wal_mark_sent(w, 2, 4, NULL), 0);
	box_close(&b, w);
	size_t n;
	const uint8_t *p = box_bytes(&b, BOX_PATH, &n);
	const uint8_t *mark = p + 16 + 5 * 33;
	assert_int_equal(n, (size_t)(mark - p) + 40 + 32);
	int64_t time_ms;
	uint64_t first = 2;
	memcpy(&time_ms, mark + 16, 8);
	uint8_t expected[64];
	assert_memory_equal(mark, expected, box_record(expected, 4, 2, time_ms, &first, 8));
	box_fini(&b);
}

static void a_single_mark_has_an_empty_payload(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	(void)box_append(w, "x");
	(void)box_append(w, "y");
	assert_int_equal(sl_wal_mark_failed(w, 2, 2, NULL), 0);
	box_close(&b, w);
	size_t n;
	const uint8_t *p = box_bytes(&b, BOX_PATH, &n);
	assert_int_equal(n, 16 + 2 * 33 + 32 + 32);
	assert_int_equal(p[16 + 66 + 12], 3);
	assert_scan(&b, BOX_PATH, "1=x 2=y!");
	box_fini(&b);
}

static void status_records_of_another_program_are_obeyed_the_last_one_wins(void **state)
{
	(void)state;
	struct box b;
	uint8_t log[512];
	uint64_t first = 1;
	box_init(&b);
	crashfs_mkdir(b.fs, BOX_DIR);
	size_t n = foreign_log(log);
	n += box_record(log + n, 2, 3, 5, &first, 8);
	n += box_record(log + n, 2, 2, 6, "", 0);
	crashfs_put(b.fs, BOX_PATH, log, n);
	assert_scan(&b, BOX_PATH, "1=one! 2=two*");
	sl_wal *w = box_open(&b);
	assert_int_equal(box_stats(w).pending, 0);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=one! 2=two*");
	box_fini(&b);
}

static void zeros_after_the_last_record_are_the_end(void **state)
{
	(void)state;
	struct box b;
	uint8_t log[4096] = {0};
	box_init(&b);
	crashfs_mkdir(b.fs, BOX_DIR);
	(void)foreign_log(log);
	crashfs_put(b.fs, BOX_PATH, log, sizeof(log));
	assert_scan(&b, BOX_PATH, "1=one 2=two");
	sl_wal *w = box_open(&b);
	assert_int_equal(box_stats(w).torn_bytes, 0);
	assert_int_equal(box_append(w, "three"), 3);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=one 2=two 3=three");
	box_fini(&b);
}

static void a_later_version_is_refused_and_left_alone(void **state)
{
	(void)state;
	struct box b;
	uint8_t log[256];
	sl_wal *w;
	box_init(&b);
	crashfs_mkdir(b.fs, BOX_DIR);
	size_t n = foreign_log(log);
	log[8] = 7; /* not one flipped bit away from 1 or 2 */
	crashfs_put(b.fs, BOX_PATH, log, n);
	int rc = box_try_open(&b, &w);
	assert_true(rc == SL_EUNSUPPORTED);
	size_t now;
	assert_memory_equal(box_bytes(&b, BOX_PATH, &now), log, n);
	assert_int_equal(now, n);
	box_fini(&b);
}

static void a_file_that_is_not_a_log_is_refused_and_left_alone(void **state)
{
	(void)state;
	struct box b;
	sl_wal *w;
	const char text[] = "Dear diary, today I was mistaken for a write-ahead log. It will not happen again.";
	box_init(&b);
	crashfs_mkdir(b.fs, BOX_DIR);
	crashfs_put(b.fs, BOX_PATH, text, sizeof(text));
	assert_int_equal(box_try_open(&b, &w), SL_ECORRUPT);
	assert_scan(&b, BOX_PATH, "ECORRUPT");
	size_t n;
	assert_memory_equal(box_bytes(&b, BOX_PATH, &n), text, sizeof(text));
	box_fini(&b);
}

static void nonzero_reserved_bytes_are_damage(void **state)
{
	(void)state;
	struct box b;
	uint8_t log[512];
	box_init(&b);
	crashfs_mkdir(b.fs, BOX_DIR);
	size_t n = foreign_log(log);
	size_t at = n;
	n += box_record(log + n, 3, 1, 5, "three", 5);
	log[at + 13] = 1;
	uint64_t crc = box_crc64(log + at + 4, 25);
	memcpy(log + at + 29, &crc, 8); /* the CRC is right; the record is not */
	n += box_record(log + n, 4, 1, 5, "four", 4);
	crashfs_put(b.fs, BOX_PATH, log, n);
	assert_scan(&b, BOX_PATH, "1=one 2=two <damage 86+37 miss 3-3> 4=four");
	box_fini(&b);
}

static void the_largest_record_is_16_mib_and_one_more_byte_is_too_big(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	char *big = calloc(1, SL_WAL_MAX_PAYLOAD + 1);
	assert_non_null(big);
	struct sl_err err = SL_ERR_INIT;
	uint64_t sequence = 0;
	assert_int_equal(sl_wal_append(w, big, SL_WAL_MAX_PAYLOAD + 1, &sequence, &err), SL_ETOOBIG);
	assert_int_equal(sl_wal_append(w, big, SL_WAL_MAX_PAYLOAD, &sequence, &err), 0);
	assert_int_equal(sequence, 1);
	box_close(&b, w);
	size_t n;
	(void)box_bytes(&b, BOX_PATH, &n);
	assert_int_equal(n, 16 + 16 * 1024 * 1024 + 32);
	w = box_open(&b);
	struct sl_wal_record r;
	assert_int_equal(sl_wal_read(w, 1, &r, NULL), 0);
	assert_int_equal(r.payload_len, SL_WAL_MAX_PAYLOAD);
	sl_wal_record_free(w, &r);
	box_close(&b, w);
	free(big);
	box_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_crc_of_the_test_is_the_published_one),
		cmocka_unit_test(a_record_is_the_payload_and_32_bytes),
		cmocka_unit_test(the_header_holds_an_incarnation_and_its_crc8),
		cmocka_unit_test(a_foreign_log_is_read_and_continued_as_incarnation_0),
		cmocka_unit_test(a_status_record_is_a_range_with_its_first_sequence_as_payload),
		cmocka_unit_test(a_single_mark_has_an_empty_payload),
		cmocka_unit_test(status_records_of_another_program_are_obeyed_the_last_one_wins),
		cmocka_unit_test(zeros_after_the_last_record_are_the_end),
		cmocka_unit_test(a_later_version_is_refused_and_left_alone),
		cmocka_unit_test(a_file_that_is_not_a_log_is_refused_and_left_alone),
		cmocka_unit_test(nonzero_reserved_bytes_are_damage),
		cmocka_unit_test(the_largest_record_is_16_mib_and_one_more_byte_is_too_big),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
