/* SPDX-License-Identifier: Apache-2.0 */
/* What open and recover make of a log that was cut, torn or damaged. Offsets: the header has 16 bytes, a record its
 * payload + 32, so the records of log_of_five begin at 16, 49, 82, 115 and 148 and end at 181. */
#include <errno.h>

#include "box.h"
#include "support/fault.h"

#define RECORD_AT(i) (16 + 33 * ((size_t)(i)-1))

static void log_of_five(struct box *b)
{
	box_init(b);
	sl_wal *w = box_open(b);
	for (const char *p = "abcde"; *p != '\0'; p++) {
		char text[2] = {*p, '\0'};
		(void)box_append(w, text);
	}
	box_close(b, w);
	assert_scan(b, BOX_PATH, "1=a 2=b 3=c 4=d 5=e");
}

/* Of its fifth record only these bytes were written. */
static void log_with_torn_tail(struct box *b, uint8_t tail[20])
{
	size_t n;
	log_of_five(b);
	memcpy(tail, box_bytes(b, BOX_PATH, &n) + RECORD_AT(5), 20);
	box_cut(b, BOX_PATH, RECORD_AT(5) + 20);
	assert_scan(b, BOX_PATH, "1=a 2=b 3=c 4=d <torn 148+20>");
}

static void a_torn_tail_is_trimmed_and_quarantined(void **state)
{
	(void)state;
	struct box b;
	size_t n;
	uint8_t tail[20];
	log_with_torn_tail(&b, tail);
	sl_wal *w = box_open(&b);
	assert_int_equal(box_stats(w).torn_bytes, 20);
	assert_int_equal(box_stats(w).damaged_ranges, 0);
	assert_memory_equal(box_bytes(&b, BOX_PATH ".torn-148", &n), tail, 20);
	assert_int_equal(box_append(w, "f"), 5); /* never acknowledged, so its number is free */
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=a 2=b 3=c 4=d 5=f");
	box_fini(&b);
}

/* The log on a full disk: what it has can be had, and what is torn stays until there is room for it elsewhere. */
static void a_torn_tail_on_a_full_disk_waits_for_room(void **state)
{
	(void)state;
	struct box b;
	size_t n;
	uint8_t tail[20];
	log_with_torn_tail(&b, tail);
	crashfs_quota(b.fs, 0);
	sl_wal *w = box_open(&b);
	assert_int_equal(box_stats(w).torn_bytes, 20);
	assert_int_equal(box_stats(w).pending, 4);
	assert_int_equal(sl_wal_append(w, "f", 1, NULL, &b.err), SL_ENOSPC);
	assert_int_equal(sl_wal_archive(w, "/a", true, &b.err), SL_ENOSPC);
	assert_int_equal(sl_wal_close(w, &b.err), SL_ENOSPC);
	assert_scan(&b, BOX_PATH, "1=a 2=b 3=c 4=d <torn 148+20>");
	w = box_open(&b);
	assert_int_equal(sl_wal_append(w, "f", 1, NULL, &b.err), SL_ENOSPC);
	crashfs_quota(b.fs, SIZE_MAX);
	assert_int_equal(box_append(w, "g"), 5);
	assert_memory_equal(box_bytes(&b, BOX_PATH ".torn-148", &n), tail, 20);
	assert_int_equal(n, 20);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=a 2=b 3=c 4=d 5=g");
	box_fini(&b);
}

static void a_tail_torn_inside_prepared_zeros_is_trimmed(void **state)
{
	(void)state;
	struct box b;
	log_of_five(&b);
	box_cut(&b, BOX_PATH, RECORD_AT(5) + 20);
	box_cut(&b, BOX_PATH, 4096); /* grows it with zeros */
	sl_wal *w = box_open(&b);
	assert_true(box_stats(w).torn_bytes > 0);
	assert_int_equal(box_append(w, "f"), 5);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=a 2=b 3=c 4=d 5=f");
	box_fini(&b);
}

/* A log is never in place before its header is: such a file is not ours, or was cut by hand. */
static void a_file_shorter_than_its_header_is_refused_and_left_alone(void **state)
{
	(void)state;
	for (size_t size = 0; size < 16; size++) {
		struct box b;
		sl_wal *w;
		size_t n;
		log_of_five(&b);
		box_cut(&b, BOX_PATH, size);
		assert_int_equal(box_try_open(&b, &w), SL_ECORRUPT);
		(void)box_bytes(&b, BOX_PATH, &n);
		assert_int_equal(n, size);
		assert_int_equal(box_count(&b, BOX_DIR, ""), 1);
		box_fini(&b);
	}
}

static void salvage_keeps_the_good_records_and_the_damaged_bytes(void **state)
{
	(void)state;
	struct box b;
	log_of_five(&b);
	box_flip(&b, BOX_PATH, (RECORD_AT(3) + 24) * 8);
	size_t n;
	uint8_t damaged[33];
	memcpy(damaged, box_bytes(&b, BOX_PATH, &n) + RECORD_AT(3), sizeof(damaged));
	assert_scan(&b, BOX_PATH, "1=a 2=b <damage 82+33 miss 3-3> 4=d 5=e");
	sl_wal *w = box_open(&b);
	assert_int_equal(box_stats(w).damaged_ranges, 1);
	assert_int_equal(box_stats(w).holes, 1);
	assert_int_equal(box_append(w, "f"), 6);
	box_close(&b, w);
	assert_memory_equal(box_bytes(&b, BOX_PATH ".damaged-82", &n), damaged, sizeof(damaged));
	assert_int_equal(n, sizeof(damaged));
	assert_scan(&b, BOX_PATH, "1=a 2=b <hole 3-3> 4=d 5=e 6=f");
	box_fini(&b);
}

static void a_declared_hole_is_no_damage_the_next_time(void **state)
{
	(void)state;
	struct box b;
	log_of_five(&b);
	box_flip(&b, BOX_PATH, (RECORD_AT(2) + 24) * 8);
	box_close(&b, box_open(&b));
	size_t n, again;
	const uint8_t *p = box_bytes(&b, BOX_PATH, &n);
	uint8_t *copy = malloc(n);
	assert_non_null(copy);
	memcpy(copy, p, n);
	sl_wal *w = box_open(&b);
	struct sl_wal_stats st = box_stats(w);
	assert_int_equal(st.damaged_ranges, 0);
	assert_int_equal(st.holes, 1);
	assert_int_equal(st.records, 4);
	assert_int_equal(st.pending, 4);
	box_close(&b, w);
	assert_memory_equal(box_bytes(&b, BOX_PATH, &again), copy, n);
	assert_int_equal(again, n);
	free(copy);
	assert_int_equal(box_count(&b, BOX_DIR, ".damaged-"), 1);
	box_fini(&b);
}

static void several_damaged_ranges_are_each_quarantined(void **state)
{
	(void)state;
	struct box b;
	log_of_five(&b);
	box_flip(&b, BOX_PATH, (RECORD_AT(1) + 24) * 8);
	box_flip(&b, BOX_PATH, (RECORD_AT(3) + 5) * 8);
	sl_wal *w = box_open(&b);
	assert_int_equal(box_stats(w).damaged_ranges, 2);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "<hole 1-1> 2=b <hole 3-3> 4=d 5=e");
	assert_true(box_has(&b, BOX_PATH ".damaged-16"));
	assert_true(box_has(&b, BOX_PATH ".damaged-82"));
	box_fini(&b);
}

static void a_damaged_length_does_not_hide_the_records_behind(void **state)
{
	(void)state;
	for (int bit = 0; bit < 32; bit++) {
		struct box b;
		log_of_five(&b);
		box_flip(&b, BOX_PATH, RECORD_AT(2) * 8 + (size_t)bit);
		box_close(&b, box_open(&b));
		assert_scan(&b, BOX_PATH, "1=a <hole 2-2> 3=c 4=d 5=e");
		box_fini(&b);
	}
}

/* A length that is wrong may lead exactly to a later record, or to the end: what lies between is not given up. */
static void a_wrong_length_that_leads_to_a_later_record_hides_nothing(void **state)
{
	(void)state;
	for (uint32_t records = 2; records <= 4; records++) {
		struct box b;
		uint32_t length = 33 * records - 4;
		log_of_five(&b);
		box_poke(&b, BOX_PATH, RECORD_AT(2), &length, 4);
		assert_scan(&b, BOX_PATH, "1=a <damage 49+33 miss 2-2> 3=c 4=d 5=e");
		box_close(&b, box_open(&b));
		assert_scan(&b, BOX_PATH, "1=a <hole 2-2> 3=c 4=d 5=e");
		box_fini(&b);
	}
}

static void truncate_cuts_at_the_first_damage_and_sets_the_rest_aside(void **state)
{
	(void)state;
	struct box b;
	log_of_five(&b);
	box_flip(&b, BOX_PATH, (RECORD_AT(3) + 24) * 8);
	b.opts.on_corruption = SL_WAL_TRUNCATE;
	sl_wal *w = box_open(&b);
	box_close(&b, w);
	assert_memory_equal(box_scan(&b, BOX_PATH), "1=a 2=b", 7);
	assert_null(strstr(box_scan(&b, BOX_PATH), "4=d"));
	size_t n;
	(void)box_bytes(&b, BOX_PATH ".damaged-82", &n);
	assert_int_equal(n, 3 * 33 + 32);
	box_fini(&b);
}

/* The sequences that were cut off may have been acknowledged or delivered: they are not given again. */
static void truncate_does_not_give_the_lost_sequences_again(void **state)
{
	(void)state;
	struct box b;
	log_of_five(&b);
	sl_wal *w = box_open(&b);
	uint32_t before = box_stats(w).incarnation;
	box_close(&b, w);
	box_flip(&b, BOX_PATH, (RECORD_AT(3) + 24) * 8);
	b.opts.on_corruption = SL_WAL_TRUNCATE;
	w = box_open(&b);
	uint64_t next = box_append(w, "f");
	assert_true(next > 5 || box_stats(w).incarnation != before);
	box_close(&b, w);
	box_fini(&b);
}

struct seen_damage {
	size_t n, with_crcs;
	uint64_t first_missing, last_missing;
};

static int on_damage(const struct sl_wal_damage *d, void *ctx)
{
	struct seen_damage *seen = ctx;
	if (d->torn_tail || d->declared)
		return 0;
	seen->n++;
	seen->with_crcs += d->expected_crc != 0 && d->actual_crc != 0 && d->expected_crc != d->actual_crc;
	seen->first_missing = d->first_missing;
	seen->last_missing = d->last_missing;
	return 0;
}

/* Every bit of the last data record of a log that was closed: none passes as the torn tail of a crash. */
static void damage_of_the_last_record_of_a_closed_log_is_no_torn_tail(void **state)
{
	(void)state;
	static const enum sl_wal_on_corruption modes[] = {SL_WAL_REFUSE, SL_WAL_SALVAGE, SL_WAL_TRUNCATE};
	for (size_t bit = RECORD_AT(5) * 8; bit < RECORD_AT(6) * 8; bit++)
		for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
			struct box b;
			sl_wal *w = NULL;
			struct seen_damage seen = {0};
			struct sl_wal_stats st = {.struct_size = sizeof(st)};
			log_of_five(&b);
			box_flip(&b, BOX_PATH, bit);
			struct sl_wal_scan_opts scan = {SL_WAL_SCAN_OPTS_INIT, .env = b.opts.env,
							.on_damage = on_damage, .ctx = &seen};
			assert_int_equal(sl_wal_scan(BOX_PATH, &scan, &st, &b.err), 0);
			assert_int_equal(st.damaged_ranges, 1);
			assert_int_equal(seen.n, 1);
			assert_int_equal(seen.first_missing, 5);
			assert_int_equal(seen.last_missing, 5);
			if (bit >= (RECORD_AT(5) + 24) * 8) /* the payload and the CRC itself */
				assert_int_equal(seen.with_crcs, 1);
			b.opts.on_corruption = modes[i];
			int rc = box_try_open(&b, &w);
			assert_int_equal(rc, modes[i] == SL_WAL_REFUSE ? SL_ECORRUPT : 0);
			assert_int_equal(box_count(&b, BOX_DIR, "torn"), 0);
			if (rc == 0) {
				assert_int_equal(box_count(&b, BOX_DIR, "damaged-148"), 1); /* quarantined */
				assert_int_equal(box_append(w, "f"), 6);                    /* 5 is not given again */
				box_close(&b, w);
				assert_scan(&b, BOX_PATH, "1=a 2=b 3=c 4=d <hole 5-5> 6=f");
			}
			box_fini(&b);
		}
}

/* A close is recognised by its own record; what happens to that costs no data and no number. */
static void damage_of_the_record_of_a_close_costs_nothing(void **state)
{
	(void)state;
	for (size_t bit = RECORD_AT(6) * 8; bit < (RECORD_AT(6) + 32) * 8; bit++) {
		struct box b;
		log_of_five(&b);
		box_flip(&b, BOX_PATH, bit);
		sl_wal *w = box_open(&b);
		assert_int_equal(box_append(w, "f"), 6);
		box_close(&b, w);
		assert_scan(&b, BOX_PATH, "1=a 2=b 3=c 4=d 5=e 6=f");
		box_fini(&b);
	}
}

static void closing_again_writes_nothing(void **state)
{
	(void)state;
	struct box b;
	size_t n, now;
	log_of_five(&b);
	(void)box_bytes(&b, BOX_PATH, &n);
	assert_int_equal(n, RECORD_AT(6) + 32);
	for (int i = 0; i < 3; i++) {
		box_close(&b, box_open(&b));
		(void)box_bytes(&b, BOX_PATH, &now);
		assert_int_equal(now, n);
	}
	box_cut(&b, BOX_PATH, RECORD_AT(6)); /* as a crash leaves it */
	box_close(&b, box_open(&b));
	(void)box_bytes(&b, BOX_PATH, &now);
	assert_int_equal(now, n);
	box_fini(&b);
}

static void refuse_changes_nothing(void **state)
{
	(void)state;
	struct box b;
	sl_wal *w;
	log_of_five(&b);
	box_flip(&b, BOX_PATH, (RECORD_AT(3) + 24) * 8);
	size_t n, now;
	uint8_t before[256];
	memcpy(before, box_bytes(&b, BOX_PATH, &n), 213);
	b.opts.on_corruption = SL_WAL_REFUSE;
	assert_int_equal(box_try_open(&b, &w), SL_ECORRUPT);
	assert_memory_equal(box_bytes(&b, BOX_PATH, &now), before, n);
	assert_int_equal(now, n);
	assert_int_equal(box_count(&b, BOX_DIR, ""), 1);
	box_fini(&b);
}

static void refuse_lets_a_torn_tail_pass(void **state)
{
	(void)state;
	struct box b;
	log_of_five(&b);
	box_cut(&b, BOX_PATH, RECORD_AT(5) + 3);
	b.opts.on_corruption = SL_WAL_REFUSE;
	box_close(&b, box_open(&b));
	assert_scan(&b, BOX_PATH, "1=a 2=b 3=c 4=d");
	box_fini(&b);
}

static void a_flipped_header_bit_is_repaired(void **state)
{
	(void)state;
	for (size_t bit = 0; bit < 128; bit++) {
		struct box b;
		log_of_five(&b);
		size_t n;
		uint8_t header[16];
		memcpy(header, box_bytes(&b, BOX_PATH, &n), 16);
		box_flip(&b, BOX_PATH, bit);
		struct sl_wal_stats st = {.struct_size = sizeof(st)};
		struct sl_wal_scan_opts scan = {SL_WAL_SCAN_OPTS_INIT, .env = &b.e.env};
		assert_int_equal(sl_wal_scan(BOX_PATH, &scan, &st, &b.err), 0);
		assert_int_equal(st.records, 5);
		assert_true(st.damaged_ranges >= 1);
		box_close(&b, box_open(&b));
		assert_memory_equal(box_bytes(&b, BOX_PATH, &n), header, 16);
		assert_scan(&b, BOX_PATH, "1=a 2=b 3=c 4=d 5=e");
		box_fini(&b);
	}
}

static void a_header_beyond_repair_gets_a_new_incarnation(void **state)
{
	(void)state;
	struct box b;
	log_of_five(&b);
	sl_wal *w = box_open(&b);
	uint32_t old = box_stats(w).incarnation;
	box_close(&b, w);
	box_flip(&b, BOX_PATH, 12 * 8);
	box_flip(&b, BOX_PATH, 13 * 8 + 3);
	box_flip(&b, BOX_PATH, 15 * 8 + 5);
	w = box_open(&b);
	assert_int_not_equal(box_stats(w).incarnation, 0);
	assert_int_not_equal(box_stats(w).incarnation, old);
	assert_int_equal(box_append(w, "f"), 6);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=a 2=b 3=c 4=d 5=e 6=f");
	box_fini(&b);
}

/* Segments of 4 KiB and records of 500 bytes: eight in each. */
static void log_of_segments(struct box *b, size_t records)
{
	box_init(b);
	b->opts.segment_bytes = 4096;
	sl_wal *w = box_open(b);
	box_append_n(w, records, 500);
	box_close(b, w);
}

static void a_header_beyond_repair_takes_the_incarnation_of_the_sealed_segments(void **state)
{
	(void)state;
	struct box b;
	log_of_segments(&b, 20);
	sl_wal *w = box_open(&b);
	uint32_t old = box_stats(w).incarnation;
	box_close(&b, w);
	box_flip(&b, BOX_PATH, 12 * 8);
	box_flip(&b, BOX_PATH, 13 * 8 + 3);
	box_flip(&b, BOX_PATH, 15 * 8 + 5);
	w = box_open(&b);
	assert_int_equal(box_stats(w).incarnation, old);
	box_close(&b, w);
	box_fini(&b);
}

static void a_log_without_one_sound_header_stays_one_log(void **state)
{
	(void)state;
	static const char *const paths[] = {BOX_PATH, BOX_PATH ".1"};
	struct box b;
	log_of_segments(&b, 12);
	for (size_t i = 0; i < 2; i++) {
		box_flip(&b, paths[i], 12 * 8);
		box_flip(&b, paths[i], 13 * 8 + 3);
		box_flip(&b, paths[i], 15 * 8 + 5);
	}
	sl_wal *w = box_open(&b);
	assert_int_equal(box_stats(w).records, 12);
	assert_int_equal(box_append(w, "x"), 13);
	box_close(&b, w);
	assert_int_equal(box_count(&b, BOX_DIR, ".old-"), 0);
	box_fini(&b);
}

static void damage_in_a_sealed_segment_is_salvaged_in_its_place(void **state)
{
	(void)state;
	struct box b;
	log_of_segments(&b, 20);
	assert_true(box_has(&b, BOX_PATH ".1"));
	box_flip(&b, BOX_PATH ".1", (16 + 532 + 100) * 8);
	sl_wal *w = box_open(&b);
	struct sl_wal_stats st = box_stats(w);
	assert_int_equal(st.damaged_ranges, 1);
	assert_int_equal(st.records, 19);
	assert_int_equal(box_append(w, "x"), 21);
	box_close(&b, w);
	assert_true(box_has(&b, BOX_PATH ".1.damaged-548"));
	assert_non_null(strstr(box_scan(&b, BOX_PATH), "1=xxx~ <hole 2-2> 3=xxx~"));
	box_fini(&b);
}

static void damage_at_the_end_of_a_sealed_segment_is_a_hole_not_a_torn_tail(void **state)
{
	(void)state;
	struct box b;
	log_of_segments(&b, 20);
	size_t n;
	(void)box_bytes(&b, BOX_PATH ".1", &n);
	box_flip(&b, BOX_PATH ".1", (n - 4) * 8);
	sl_wal *w = box_open(&b);
	struct sl_wal_stats st = box_stats(w);
	assert_int_equal(st.records, 19);
	assert_int_equal(st.holes, 1);
	assert_int_equal(box_append(w, "x"), 21);
	box_close(&b, w);
	w = box_open(&b);
	assert_int_equal(box_stats(w).damaged_ranges, 0);
	box_close(&b, w);
	box_fini(&b);
}

static void a_missing_sealed_segment_is_noticed_and_declared(void **state)
{
	(void)state;
	struct box b;
	log_of_segments(&b, 30);
	assert_true(box_count(&b, BOX_DIR, ".wal.") >= 3);
	/* The middle one. The first may be gone by right: archived. */
	char path[64] = "";
	for (uint64_t first = 2; path[0] == '\0'; first++) {
		char name[64];
		(void)snprintf(name, sizeof(name), BOX_PATH ".%llu", (unsigned long long)first);
		if (box_has(&b, name))
			memcpy(path, name, sizeof(path));
	}
	assert_int_equal(crashfs_io.unlink(path, b.fs), 0);
	assert_non_null(strstr(box_scan(&b, BOX_PATH), "miss"));
	sl_wal *w = box_open(&b);
	assert_true(box_stats(w).holes > 0);
	assert_int_equal(box_append(w, "x"), 31);
	box_close(&b, w);
	w = box_open(&b);
	assert_int_equal(box_stats(w).damaged_ranges, 0);
	box_close(&b, w);
	box_fini(&b);
}

static void a_missing_active_file_is_created_again_and_numbering_continues(void **state)
{
	(void)state;
	struct box b;
	log_of_segments(&b, 20);
	sl_wal *w = box_open(&b);
	uint32_t incarnation = box_stats(w).incarnation;
	uint64_t last = box_stats(w).last_sequence;
	box_close(&b, w);
	assert_int_equal(last, 20);
	assert_int_equal(crashfs_io.unlink(BOX_PATH, b.fs), 0);
	w = box_open(&b);
	uint64_t next = box_append(w, "x");
	assert_true(next > 8 && next <= 21);
	assert_int_equal(box_stats(w).incarnation, incarnation);
	box_close(&b, w);
	box_fini(&b);
}

/* A payload that holds whole valid records, as a log that is shipped through a log does. */
static size_t nested_payload(uint8_t *out, uint64_t sequence, size_t records)
{
	size_t n = 0;
	for (size_t i = 0; i < records; i++)
		n += box_record(out + n, sequence + i, 1, 1704067200000, "inner", 5);
	return n;
}

static void records_inside_a_payload_are_not_records(void **state)
{
	(void)state;
	struct box b;
	uint8_t inner[256];
	size_t n = nested_payload(inner, 2, 5);
	box_init(&b);
	sl_wal *w = box_open(&b);
	assert_int_equal(box_append(w, "a"), 1);
	assert_int_equal(sl_wal_append(w, inner, n, NULL, NULL), 0);
	assert_int_equal(box_append(w, "c"), 3);
	assert_int_equal(box_append(w, "d"), 4);
	box_close(&b, w);
	assert_non_null(strstr(box_scan(&b, BOX_PATH), "3=c 4=d"));
	/* Damage in the record before: the chain of real records reaches further than the one inside. */
	box_flip(&b, BOX_PATH, (RECORD_AT(1) + 24) * 8);
	w = box_open(&b);
	struct sl_wal_record r;
	assert_int_equal(sl_wal_read(w, 2, &r, &b.err), 0);
	assert_int_equal(r.payload_len, n);
	sl_wal_record_free(w, &r);
	assert_int_equal(sl_wal_read(w, 3, &r, &b.err), 0);
	assert_memory_equal(r.payload, "c", 1);
	sl_wal_record_free(w, &r);
	box_close(&b, w);
	box_fini(&b);
}

static void damage_to_the_outer_record_does_not_set_the_inner_ones_free(void **state)
{
	(void)state;
	struct box b;
	uint8_t inner[256];
	size_t n = nested_payload(inner, 2, 5);
	box_init(&b);
	sl_wal *w = box_open(&b);
	assert_int_equal(box_append(w, "a"), 1);
	assert_int_equal(sl_wal_append(w, inner, n, NULL, NULL), 0);
	assert_int_equal(box_append(w, "c"), 3);
	assert_int_equal(box_append(w, "d"), 4);
	box_close(&b, w);
	/* Its CRC: the own length is tried first and leads to the next real record. */
	box_flip(&b, BOX_PATH, (RECORD_AT(2) + 24 + n) * 8);
	w = box_open(&b);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=a <hole 2-2> 3=c 4=d");
	box_fini(&b);
}

static void a_read_error_is_not_corruption(void **state)
{
	(void)state;
	struct box b;
	struct fault f;
	sl_wal *w = NULL;
	log_of_five(&b);
	size_t n, now;
	uint8_t before[256];
	memcpy(before, box_bytes(&b, BOX_PATH, &n), 213);
	fault_init(&f, &b.e.env);
	struct sl_env env = fault_env(&f, &b.e.env);
	b.opts.env = &env;
	int64_t failed = 1;
	for (int64_t i = 1; failed != 0; i++) {
		fault_arm_io(&f, i, FAULT_ONCE, EIO, FAULT_OP(FAULT_PREAD));
		int rc = sl_wal_open(&w, "s", &b.opts, &b.err);
		fault_disarm(&f);
		failed = fault_io_failed(&f);
		if (failed != 0)
			assert_int_equal(rc, SL_EIO);
		else
			box_close(&b, w);
		assert_memory_equal(box_bytes(&b, BOX_PATH, &now), before, n);
		assert_int_equal(now, n);
		assert_int_equal(box_count(&b, BOX_DIR, ""), 1);
	}
	assert_int_equal(fault_open_fds(&f), 0);
	assert_int_equal(fault_live_allocs(&f), 0);
	fault_fini(&f);
	box_fini(&b);
}

struct log_seen {
	bool offset, expected, actual;
};

static void see_log(const struct sl_log_record *record, void *ctx)
{
	struct log_seen *seen = ctx;
	for (size_t i = 0; i < record->n_fields; i++) {
		seen->offset |= strcmp(record->fields[i].key, "offset") == 0 && record->fields[i].num == 82;
		seen->expected |= strcmp(record->fields[i].key, "expected_crc") == 0 && record->fields[i].num != 0;
		seen->actual |= strcmp(record->fields[i].key, "actual_crc") == 0 && record->fields[i].num != 0;
	}
}

static void the_log_line_of_damage_has_offset_and_both_crcs(void **state)
{
	(void)state;
	struct box b;
	struct log_seen seen = {0};
	log_of_five(&b);
	box_flip(&b, BOX_PATH, (RECORD_AT(3) + 24) * 8);
	struct sl_env env = b.e.env;
	env.log = see_log;
	env.log_ctx = &seen;
	b.opts.env = &env;
	box_close(&b, box_open(&b));
	assert_true(seen.offset && seen.expected && seen.actual);
	box_fini(&b);
}

static int count_damage(const struct sl_wal_damage *damage, void *ctx)
{
	size_t *n = ctx;
	*n += !damage->declared;
	assert_int_equal(damage->offset, RECORD_AT(3));
	assert_int_equal(damage->length, 33);
	assert_int_equal(damage->first_missing, 3);
	assert_int_equal(damage->last_missing, 3);
	assert_true(damage->expected_crc != damage->actual_crc);
	return 0;
}

static void recover_reports_the_damage_and_twice_is_the_same_as_once(void **state)
{
	(void)state;
	struct box b;
	log_of_five(&b);
	box_flip(&b, BOX_PATH, (RECORD_AT(3) + 24) * 8);
	size_t n = 0;
	struct sl_wal_recover_opts opts = {SL_WAL_RECOVER_OPTS_INIT, .wal = &b.opts, .on_damage = count_damage,
					   .ctx = &n};
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	assert_int_equal(sl_wal_recover(BOX_PATH, &opts, &st, &b.err), 0);
	assert_int_equal(n, 1);
	assert_int_equal(st.damaged_ranges, 1);
	assert_int_equal(st.records, 4);
	size_t files = box_count(&b, BOX_DIR, "");
	opts.on_damage = NULL;
	assert_int_equal(sl_wal_recover(BOX_PATH, &opts, &st, &b.err), 0);
	assert_int_equal(st.damaged_ranges, 0);
	assert_int_equal(st.records, 4);
	assert_int_equal(st.holes, 1);
	assert_int_equal(box_count(&b, BOX_DIR, ""), files);
	assert_int_equal(sl_wal_recover("/w/none.wal", &opts, &st, &b.err), SL_ENOENT);
	assert_int_equal(sl_wal_recover("/w/none", &opts, &st, &b.err), SL_EINVAL);
	box_fini(&b);
}

static void a_new_incarnation_sends_the_pending_records_again(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	uint32_t old = box_stats(w).incarnation;
	for (int i = 0; i < 4; i++)
		(void)box_append(w, "xxxx");
	assert_int_equal(sl_wal_mark_sent(w, 1, 2, NULL), 0);
	box_close(&b, w);
	struct sl_wal_recover_opts opts = {SL_WAL_RECOVER_OPTS_INIT, .wal = &b.opts, .new_incarnation = true};
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	assert_int_equal(sl_wal_recover(BOX_PATH, &opts, &st, &b.err), 0);
	assert_int_not_equal(st.incarnation, old);
	assert_int_not_equal(st.incarnation, 0);
	assert_int_equal(st.pending, 2);
	w = box_open(&b);
	assert_int_equal(box_stats(w).incarnation, st.incarnation);
	assert_int_equal(box_stats(w).pending, 2);
	box_close(&b, w);
	box_fini(&b);
}

static void what_a_crash_left_under_a_temporary_name_is_removed(void **state)
{
	(void)state;
	struct box b;
	log_of_five(&b);
	crashfs_put(b.fs, BOX_PATH ".tmp-abc", "half a header", 13);
	crashfs_put(b.fs, "/w/t.wal.tmp-abc", "of another log", 14);
	box_close(&b, box_open(&b));
	assert_false(box_has(&b, BOX_PATH ".tmp-abc"));
	assert_true(box_has(&b, "/w/t.wal.tmp-abc"));
	assert_scan(&b, BOX_PATH, "1=a 2=b 3=c 4=d 5=e");
	box_fini(&b);
}

static void numbering_continues_when_everything_was_sent(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	b.opts.segment_bytes = 4096;
	b.opts.archive_on_complete = SL_ON;
	uint64_t next = 1;
	for (int i = 0; i < 6; i++) {
		sl_wal *w = box_open(&b);
		for (int k = 0; k < 5; k++)
			assert_int_equal(box_append(w, "a record of some length, so that segments fill up a little"),
					 next++);
		box_append_n(w, 5, 500);
		next += 5;
		assert_int_equal(sl_wal_mark_sent(w, 1, next - 1, NULL), 0);
		box_close(&b, w);
	}
	box_fini(&b);
}

static void sent_records_stay_sent_after_a_restart(void **state)
{
	(void)state;
	struct box b;
	log_of_five(&b);
	sl_wal *w = box_open(&b);
	assert_int_equal(sl_wal_mark_sent(w, 1, 3, NULL), 0);
	assert_int_equal(sl_wal_mark_failed(w, 5, 5, NULL), 0);
	box_close(&b, w);
	assert_scan(&b, BOX_PATH, "1=a* 2=b* 3=c* 4=d 5=e!");
	w = box_open(&b);
	struct sl_wal_stats st = box_stats(w);
	assert_int_equal(st.pending, 1);
	assert_int_equal(st.sent, 3);
	assert_int_equal(st.failed, 1);
	box_close(&b, w);
	box_fini(&b);
}

/* Garbage, or nothing at all, in the place of the active file. */
static void the_numbers_of_a_destroyed_active_file_are_not_given_again(void **state)
{
	(void)state;
	for (int empty = 0; empty < 2; empty++) {
		struct box b;
		log_of_segments(&b, 20);
		size_t n;
		uint8_t garbage[4096];
		(void)box_bytes(&b, BOX_PATH, &n);
		memset(garbage, 0xA5, sizeof(garbage));
		crashfs_put(b.fs, BOX_PATH, garbage, empty ? 0 : n);
		for (int again = 0; again < 2; again++) {
			sl_wal *w = box_open(&b);
			assert_true(box_append(w, "new") > 20);
			box_close(&b, w);
		}
		if (!empty)
			assert_true(box_has(&b, BOX_PATH ".damaged-0"));
		box_fini(&b);
	}
}

/* A lost sector near the front and a torn tail: every record between is on one chain, which is followed once. Followed
 * from each of its records, this test does not end. */
static void damage_before_many_records_and_a_torn_tail_is_searched_once(void **state)
{
	(void)state;
	struct box b;
	box_init(&b);
	sl_wal *w = box_open(&b);
	for (int i = 0; i < 60; i++) {
		struct sl_wal_span spans[1000];
		for (size_t k = 0; k < 1000; k++)
			spans[k] = (struct sl_wal_span){"0123456789", 10};
		assert_int_equal(sl_wal_append_many(w, spans, 1000, NULL, NULL, &b.err), 0);
	}
	box_close(&b, w);
	size_t n;
	const uint8_t *bytes = box_bytes(&b, BOX_PATH, &n);
	uint8_t *copy = malloc(n);
	assert_non_null(copy);
	memcpy(copy, bytes, n);
	memset(copy + 1024, 0, 512);
	crashfs_put(b.fs, BOX_PATH, copy, n - 20);
	free(copy);
	w = box_open(&b);
	assert_true(box_stats(w).records > 59900);
	box_close(&b, w);
	box_fini(&b);
}

static void numbers_end_before_they_overflow(void **state)
{
	(void)state;
	struct box b;
	uint8_t log[256] = "ARWAL001\1";
	box_init(&b);
	crashfs_mkdir(b.fs, BOX_DIR);
	size_t n = 16 + box_record(log + 16, (uint64_t)INT64_MAX - 2, 1, 1704067200000, "last", 4);
	crashfs_put(b.fs, BOX_PATH, log, n);
	sl_wal *w = box_open(&b);
	int rc = 0;
	for (int i = 0; i < 3 && rc == 0; i++)
		rc = sl_wal_append(w, "more", 4, NULL, &b.err);
	assert_int_equal(rc, SL_EFULL);
	uint64_t records = box_stats(w).records;
	box_close(&b, w);
	w = box_open(&b);
	assert_int_equal(box_stats(w).records, records);
	box_close(&b, w);
	box_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_torn_tail_is_trimmed_and_quarantined),
		cmocka_unit_test(a_torn_tail_on_a_full_disk_waits_for_room),
		cmocka_unit_test(a_tail_torn_inside_prepared_zeros_is_trimmed),
		cmocka_unit_test(a_file_shorter_than_its_header_is_refused_and_left_alone),
		cmocka_unit_test(salvage_keeps_the_good_records_and_the_damaged_bytes),
		cmocka_unit_test(a_declared_hole_is_no_damage_the_next_time),
		cmocka_unit_test(several_damaged_ranges_are_each_quarantined),
		cmocka_unit_test(a_damaged_length_does_not_hide_the_records_behind),
		cmocka_unit_test(a_wrong_length_that_leads_to_a_later_record_hides_nothing),
		cmocka_unit_test(truncate_cuts_at_the_first_damage_and_sets_the_rest_aside),
		cmocka_unit_test(truncate_does_not_give_the_lost_sequences_again),
		cmocka_unit_test(damage_of_the_last_record_of_a_closed_log_is_no_torn_tail),
		cmocka_unit_test(damage_of_the_record_of_a_close_costs_nothing),
		cmocka_unit_test(closing_again_writes_nothing),
		cmocka_unit_test(refuse_changes_nothing),
		cmocka_unit_test(refuse_lets_a_torn_tail_pass),
		cmocka_unit_test(a_flipped_header_bit_is_repaired),
		cmocka_unit_test(a_header_beyond_repair_gets_a_new_incarnation),
		cmocka_unit_test(a_header_beyond_repair_takes_the_incarnation_of_the_sealed_segments),
		cmocka_unit_test(a_log_without_one_sound_header_stays_one_log),
		cmocka_unit_test(damage_in_a_sealed_segment_is_salvaged_in_its_place),
		cmocka_unit_test(damage_at_the_end_of_a_sealed_segment_is_a_hole_not_a_torn_tail),
		cmocka_unit_test(a_missing_sealed_segment_is_noticed_and_declared),
		cmocka_unit_test(a_missing_active_file_is_created_again_and_numbering_continues),
		cmocka_unit_test(records_inside_a_payload_are_not_records),
		cmocka_unit_test(damage_to_the_outer_record_does_not_set_the_inner_ones_free),
		cmocka_unit_test(a_read_error_is_not_corruption),
		cmocka_unit_test(the_log_line_of_damage_has_offset_and_both_crcs),
		cmocka_unit_test(recover_reports_the_damage_and_twice_is_the_same_as_once),
		cmocka_unit_test(a_new_incarnation_sends_the_pending_records_again),
		cmocka_unit_test(what_a_crash_left_under_a_temporary_name_is_removed),
		cmocka_unit_test(numbering_continues_when_everything_was_sent),
		cmocka_unit_test(sent_records_stay_sent_after_a_restart),
		cmocka_unit_test(the_numbers_of_a_destroyed_active_file_are_not_given_again),
		cmocka_unit_test(damage_before_many_records_and_a_torn_tail_is_searched_once),
		cmocka_unit_test(numbers_end_before_they_overflow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
