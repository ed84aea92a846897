/* SPDX-License-Identifier: Apache-2.0 */
/* Dead letters whose bytes were changed: nothing wrong is shown, nothing good is lost, no id is given twice. */
#include "letterbox.h"

#include <errno.h>

#include "base/crc64nvme.h"

#define HEADER 80
#define FRAME_AND_TEXT (91 + 4 + 13 + 8) /* a letter of letterbox_letter without its item */
#define ACK 56
#define CLOSE 40

/* 1=one 2=two! 3=three 4=four; an acknowledgement; 5=five; the close */
struct sample {
	uint8_t bytes[2048];
	size_t n;
	size_t begin[8]; /* of each record, and the end */
};

static const char *const items[] = {"one", "two", "three", "four", NULL, "five"};

static void make_sample(struct letterbox *b, struct sample *s)
{
	sl_dlq *q = letterbox_open(b);
	size_t at = HEADER;
	for (size_t i = 0; i < 6; i++) {
		s->begin[i] = at;
		if (items[i] == NULL)
			assert_int_equal(sl_dlq_ack(q, 2, &b->err), 0);
		else
			letterbox_put(b, q, items[i]);
		at += items[i] == NULL ? ACK : FRAME_AND_TEXT + strlen(items[i]);
	}
	s->begin[6] = at;
	s->begin[7] = at += CLOSE;
	sl_dlq_close(q);
	const uint8_t *bytes = letterbox_bytes(b, BOX_FIRST, &s->n);
	assert_int_equal(s->n, at);
	memcpy(s->bytes, bytes, s->n);
}

/* What must be listed when the records from..to are gone. */
static const char *expected(char out[128], size_t from, size_t to)
{
	out[0] = '\0';
	bool acked = !(from <= 4 && 4 <= to);
	for (size_t i = 0, id = 1; i < 6; i++) {
		if (items[i] == NULL)
			continue;
		if (i < from || i > to)
			(void)snprintf(out + strlen(out), 128 - strlen(out), "%s%zu=%s%s", out[0] ? " " : "", id,
				       items[i], id == 2 && acked ? "!" : "");
		id++;
	}
	return out;
}

static struct letterbox *fresh(struct letterbox *b)
{
	crashfs_free(b->fs);
	letterbox_on(b, crashfs_new());
	crashfs_record(b->fs, false);
	b->warnings = 0;
	return b;
}

static void put_and_look_again(struct letterbox *b, sl_dlq *q, uint64_t above)
{
	char want[64];
	uint64_t id = letterbox_put(b, q, "put after");
	assert_true(id > above);
	sl_dlq_close(q);
	q = letterbox_open(b);
	(void)snprintf(want, sizeof(want), "%llu=put after", (unsigned long long)id);
	const char *list = letterbox_list(b, q, 0);
	assert_non_null(strstr(list, want));
	assert_string_equal(list + strlen(list) - strlen(want), want);
	sl_dlq_close(q);
}

static void every_flipped_bit_costs_at_most_the_record_it_is_in(void **state)
{
	struct letterbox *b = *state;
	struct sample s;
	make_sample(b, &s);
	for (size_t bit = 0; bit < s.n * 8; bit++) {
		char want[128];
		size_t record = 0;
		while (record < 7 && s.begin[record + 1] <= bit / 8)
			record++;
		bool header = bit / 8 < HEADER;
		letterbox_write(fresh(b), BOX_FIRST, s.bytes, s.n);
		letterbox_flip(b, BOX_FIRST, bit);
		sl_dlq *q = letterbox_open(b);
		assert_letters(b, q, header ? expected(want, 9, 9) : expected(want, record, record));
		if (!header) {
			uint64_t damaged = letterbox_stats(b, q).damaged;
			assert_int_equal(damaged, record < 6);
			assert_int_equal(letterbox_count(b, ".torn-"), record == 6);
			assert_true(b->warnings > 0);
		}
		put_and_look_again(b, q, 5);
	}
	printf("# %zu bits\n", s.n * 8);
}

static void every_cut_keeps_what_is_before_it(void **state)
{
	struct letterbox *b = *state;
	struct sample s;
	make_sample(b, &s);
	for (size_t size = HEADER; size <= s.n; size++) {
		char want[128], torn[64];
		size_t whole = 0;
		while (whole < 7 && s.begin[whole + 1] <= size)
			whole++;
		letterbox_write(fresh(b), BOX_FIRST, s.bytes, size);
		sl_dlq *q = letterbox_open(b);
		assert_letters(b, q, expected(want, whole, 9));
		assert_int_equal(letterbox_stats(b, q).damaged, 0);
		(void)snprintf(torn, sizeof(torn), BOX_FIRST ".torn-%zu", s.begin[whole]);
		if (size > s.begin[whole]) {
			size_t n;
			const uint8_t *kept = letterbox_bytes(b, torn, &n);
			assert_int_equal(n, size - s.begin[whole]);
			assert_memory_equal(kept, s.bytes + s.begin[whole], n);
		} else {
			assert_int_equal(letterbox_count(b, ".torn-"), 0);
		}
		put_and_look_again(b, q, size > s.begin[whole] ? whole : 0);
	}
	/* Shorter than a header: nothing to say about it, but it is kept and the folder works. */
	for (size_t size = 0; size < HEADER; size++) {
		letterbox_write(fresh(b), BOX_FIRST, s.bytes, size);
		sl_dlq *q = letterbox_open(b);
		put_and_look_again(b, q, 1);
		assert_true(letterbox_has(b, BOX_FIRST));
	}
}

static void garbage_over_any_stretch_costs_only_what_it_covers(void **state)
{
	struct letterbox *b = *state;
	struct sample s;
	struct sl__prng rng = {.s = 7};
	make_sample(b, &s);
	for (int round = 0; round < 3000; round++) {
		char want[128];
		uint8_t bytes[2048];
		size_t at = HEADER + sl__prng_next(&rng) % (s.n - HEADER);
		size_t len = 1 + sl__prng_next(&rng) % 400, end = SL_MIN(at + len, s.n);
		size_t from = 0, to = 0;
		memcpy(bytes, s.bytes, s.n);
		for (size_t i = at; i < end; i++)
			bytes[i] ^= (uint8_t)(1 + sl__prng_next(&rng) % 255);
		while (s.begin[from + 1] <= at)
			from++;
		while (s.begin[to + 1] < end)
			to++;
		letterbox_write(fresh(b), BOX_FIRST, bytes, s.n);
		sl_dlq *q = letterbox_open(b);
		assert_letters(b, q, expected(want, from, to));
		put_and_look_again(b, q, 5);
	}
}

static void dead_letters_survive_the_loss_of_both_headers_and_the_first_record(void **state)
{
	struct letterbox *b = *state;
	struct sample s;
	char want[128];
	make_sample(b, &s);
	memset(s.bytes, 0xA5, s.begin[0]);
	letterbox_write(fresh(b), BOX_FIRST, s.bytes, s.n);
	sl_dlq *q = letterbox_open(b);
	assert_letters(b, q, expected(want, 9, 9));
	assert_int_equal(letterbox_stats(b, q).damaged, 1);
	assert_int_equal(sl_dlq_ack(q, 4, &b->err), 0); /* the salt was learnt from the letters */
	put_and_look_again(b, q, 5);

	memset(s.bytes, 0xA5, s.begin[1]);
	letterbox_write(fresh(b), BOX_FIRST, s.bytes, s.n);
	q = letterbox_open(b);
	assert_letters(b, q, expected(want, 0, 0));
	put_and_look_again(b, q, 5);
}

static void the_image_of_a_dead_letter_inside_an_item_is_never_taken_for_one(void **state)
{
	struct letterbox *b = *state;
	struct sample s;
	make_sample(b, &s);
	/* Another folder with another salt; the item is a whole dead-letter file. */
	fresh(b);
	sl_dlq *q = letterbox_open(b);
	struct sl_dlq_letter letter = letterbox_letter("");
	letter.item = s.bytes;
	letter.item_len = s.n;
	assert_int_equal(sl_dlq_put(q, &letter, NULL, &b->err), 0);
	letterbox_put(b, q, "after");
	sl_dlq_close(q);
	letterbox_flip(b, BOX_FIRST, (HEADER + 3) * 8);
	q = letterbox_open(b);
	assert_letters(b, q, "2=after");
	sl_dlq_close(q);
}

static void the_id_of_a_damaged_last_dead_letter_is_not_given_again(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q = letterbox_open(b);
	letterbox_put(b, q, "one");
	letterbox_put(b, q, "two");
	letterbox_put(b, q, "three");
	/* A good acknowledgement follows the damaged dead letter: it is no torn tail. */
	assert_int_equal(sl_dlq_ack(q, 1, &b->err), 0);
	sl_dlq_close(q);
	letterbox_flip(b, BOX_FIRST, (HEADER + 2 * (FRAME_AND_TEXT + 3) + 20) * 8);
	q = letterbox_open(b);
	assert_letters(b, q, "1=one! 2=two");
	assert_int_equal(sl_dlq_ack(q, 3, &b->err), 0); /* of the past; nothing to do */
	put_and_look_again(b, q, 3);
}

/* Every letter before a clean close was complete: what is wrong with the last one is damage, and no write that a crash
 * tore. */
static void a_damaged_last_dead_letter_of_a_closed_file_is_damage_and_no_torn_tail(void **state)
{
	struct letterbox *b = *state;
	const size_t last = HEADER + FRAME_AND_TEXT + 3;
	for (size_t bit = last * 8; bit < (last + FRAME_AND_TEXT + 3) * 8; bit++) {
		sl_dlq *q = letterbox_open(fresh(b));
		letterbox_put(b, q, "one");
		letterbox_put(b, q, "two");
		sl_dlq_close(q);
		letterbox_flip(b, BOX_FIRST, bit);
		q = letterbox_open(b);
		assert_letters(b, q, "1=one");
		assert_int_equal(letterbox_stats(b, q).damaged, 1);
		assert_int_equal(letterbox_count(b, ".torn-"), 0);
		put_and_look_again(b, q, 2);
	}
}

static void a_damaged_last_dead_letter_of_a_file_that_is_full_is_damage_and_no_torn_tail(void **state)
{
	struct letterbox *b = *state;
	sl_dlq *q, *reader;
	b->opts.file_bytes = 4096;
	q = letterbox_open(b);
	letterbox_put_n(b, q, 5, 1000); /* three are in the first file */
	letterbox_flip(b, BOX_FIRST, (HEADER + 2 * (FRAME_AND_TEXT + 1000) + 500) * 8);
	b->opts.read_only = SL_ON;
	reader = letterbox_open(b);
	assert_int_equal(letterbox_stats(b, reader).damaged, 1);
	assert_int_equal(letterbox_stats(b, reader).letters, 4);
	sl_dlq_close(reader);
	b->opts.read_only = SL_DEFAULT;
	sl_dlq_close(q);
}

static void two_damaged_neighbours_count_as_two(void **state)
{
	struct letterbox *b = *state;
	struct sample s;
	make_sample(b, &s);
	letterbox_flip(b, BOX_FIRST, (s.begin[1] + 50) * 8);
	letterbox_flip(b, BOX_FIRST, (s.begin[2] + 50) * 8);
	sl_dlq *q = letterbox_open(b);
	assert_int_equal(letterbox_stats(b, q).damaged, 2);
	assert_int_equal(letterbox_stats(b, q).letters, 3);
	sl_dlq_close(q);
}

static void a_damaged_file_stays_until_everything_is_purged(void **state)
{
	struct letterbox *b = *state;
	struct sample s;
	make_sample(b, &s);
	letterbox_flip(b, BOX_FIRST, (s.begin[0] + 40) * 8);
	sl_dlq *q = letterbox_open(b);
	assert_int_equal(sl_dlq_ack(q, 1, &b->err), SL_ENOENT);
	for (uint64_t id = 2; id <= 5; id++)
		assert_int_equal(sl_dlq_ack(q, id, &b->err), 0);
	assert_true(letterbox_has(b, BOX_FIRST));
	assert_int_equal(sl_dlq_purge(q, INT64_MAX, NULL, &b->err), 0);
	assert_true(letterbox_has(b, BOX_FIRST));
	assert_int_equal(sl_dlq_purge(q, 0, NULL, &b->err), 0);
	assert_false(letterbox_has(b, BOX_FIRST));
	assert_int_equal(letterbox_stats(b, q).damaged, 0);
	put_and_look_again(b, q, 5);
}

static void damage_that_comes_while_the_folder_is_open_is_skipped(void **state)
{
	struct letterbox *b = *state;
	struct sample s;
	make_sample(b, &s);
	sl_dlq *q = letterbox_open(b);
	letterbox_flip(b, BOX_FIRST, (s.begin[2] + 90) * 8);
	assert_waiting(b, q, "1=one 4=four 5=five");
	assert_int_equal(letterbox_stats(b, q).damaged, 1);
	assert_int_equal(letterbox_stats(b, q).letters, 4);
	sl_dlq_close(q);
}

static void a_tail_is_quarantined_once_however_often_it_takes(void **state)
{
	struct letterbox *b = *state;
	struct sample s;
	sl_dlq *q = NULL;
	make_sample(b, &s);
	letterbox_cut(b, BOX_FIRST, s.begin[6] - 1);
	for (int i = 0; i < 3; i++) {
		fault_arm_io(&b->fault, 1, FAULT_ONCE, EIO, FAULT_OP(FAULT_TRUNCATE));
		assert_int_equal(letterbox_try_open(b, &q), SL_EIO);
	}
	fault_disarm(&b->fault);
	q = letterbox_open(b);
	assert_int_equal(letterbox_count(b, ".torn-"), 1);
	/* Another tail at the same place is kept beside it. */
	assert_int_equal(sl_dlq_ack(q, 4, &b->err), 0);
	sl_dlq_close(q);
	letterbox_cut(b, BOX_FIRST, s.begin[5] + ACK - 1);
	q = letterbox_open(b);
	assert_int_equal(letterbox_count(b, ".torn-"), 2);
	assert_int_equal(sl_dlq_purge(q, 0, NULL, &b->err), 0);
	assert_int_equal(letterbox_count(b, ".torn-"), 0);
	sl_dlq_close(q);
}

static void zeros_at_the_end_are_trimmed_without_a_copy(void **state)
{
	struct letterbox *b = *state;
	struct sample s;
	char want[128];
	size_t n;
	make_sample(b, &s);
	letterbox_cut(b, BOX_FIRST, s.n + 300);
	sl_dlq *q = letterbox_open(b);
	assert_letters(b, q, expected(want, 9, 9));
	assert_int_equal(letterbox_count(b, ".torn-"), 0);
	(void)letterbox_bytes(b, BOX_FIRST, &n);
	assert_int_equal(n, s.n);
	put_and_look_again(b, q, 5);
}

static void without_space_for_its_copy_a_tail_stays_in_place(void **state)
{
	struct letterbox *b = *state;
	struct sample s;
	char want[128];
	make_sample(b, &s);
	letterbox_cut(b, BOX_FIRST, s.begin[6] - 10);
	crashfs_quota(b->fs, s.begin[6] - 10);
	sl_dlq *q = letterbox_open(b);
	assert_letters(b, q, expected(want, 5, 5));
	assert_int_equal(letterbox_count(b, ".torn-"), 0);
	assert_int_equal(letterbox_stats(b, q).damaged, 1);
	crashfs_quota(b->fs, SIZE_MAX);
	assert_int_equal(sl_dlq_ack(q, 1, &b->err), 0); /* is appended after the tail */
	put_and_look_again(b, q, 5);
	q = letterbox_open(b);
	assert_non_null(strstr(letterbox_list(b, q, 1), "1=one! 2=two!"));
	sl_dlq_close(q);
}

static void a_copy_under_another_name_does_not_double_its_dead_letters(void **state)
{
	struct letterbox *b = *state;
	struct sample s;
	char want[128];
	make_sample(b, &s);
	letterbox_write(b, "/letters/00000040.dlq", s.bytes, s.n);
	sl_dlq *q = letterbox_open(b);
	assert_letters(b, q, expected(want, 9, 9));
	assert_true(b->warnings > 0);
	put_and_look_again(b, q, 40);
	assert_true(letterbox_has(b, "/letters/00000040.dlq"));
	/* A lower name, where the ids would fit. */
	b->opts.file_bytes = 4096;
	q = letterbox_open(fresh(b));
	letterbox_put_n(b, q, 6, 1000);
	sl_dlq_close(q);
	size_t n;
	uint8_t copy[4096];
	const uint8_t *bytes = letterbox_bytes(b, "/letters/00000004.dlq", &n);
	memcpy(copy, bytes, n);
	letterbox_write(b, "/letters/00000003.dlq", copy, n);
	q = letterbox_open(b);
	assert_int_equal(letterbox_stats(b, q).letters, 6);
	sl_dlq_close(q);
}

/* Letters of the smallest size fill the ids that their offsets allow; the jump over a lost one needs a new file. */
static void the_jump_over_lost_ids_never_loses_the_dead_letters_after_it(void **state)
{
	struct letterbox *b = *state;
	struct sl_dlq_letter smallest = {SL_DLQ_LETTER_INIT};
	for (size_t cut = 1; cut < 91; cut++) {
		sl_dlq *q = letterbox_open(fresh(b));
		uint64_t id = 0;
		for (int i = 0; i < 3; i++)
			assert_int_equal(sl_dlq_put(q, &smallest, NULL, &b->err), 0);
		sl_dlq_close(q);
		letterbox_cut(b, BOX_FIRST, HEADER + 3 * 91 - cut);
		q = letterbox_open(b);
		for (int i = 0; i < 3; i++)
			assert_int_equal(sl_dlq_put(q, &smallest, &id, &b->err), 0);
		assert_true(id > 5);
		sl_dlq_close(q);
		q = letterbox_open(b);
		assert_int_equal(letterbox_stats(b, q).letters, 5);
		assert_int_equal(letterbox_stats(b, q).damaged, 0);
		sl_dlq_close(q);
	}
}

/* The search for the next record goes through the file in windows of 256 KiB. */
static void a_dead_letter_across_two_windows_of_the_search_is_found(void **state)
{
	struct letterbox *b = *state;
	for (size_t k = 0; k < 12; k++) {
		size_t next = HEADER + 1 + 256 * 1024 - 10 + k; /* where the second letter begins */
		sl_dlq *q = letterbox_open(fresh(b));
		letterbox_put_n(b, q, 1, next - HEADER - FRAME_AND_TEXT);
		letterbox_put(b, q, "found");
		sl_dlq_close(q);
		letterbox_flip(b, BOX_FIRST, (HEADER + 9) * 8);
		q = letterbox_open(b);
		assert_letters(b, q, "2=found");
		sl_dlq_close(q);
	}
}

static void a_later_version_is_left_alone(void **state)
{
	struct letterbox *b = *state;
	struct sample s;
	make_sample(b, &s);
	sl_dlq *q = NULL;
	for (int copy = 0; copy < 2; copy++) {
		uint8_t *p = s.bytes + copy * 40;
		sl__put32(p + 8, 2);
		sl__put64(p + 32, sl__crc64nvme(0, p, 32));
	}
	letterbox_write(fresh(b), BOX_FIRST, s.bytes, s.n);
	assert_int_equal(letterbox_try_open(b, &q), SL_EUNSUPPORTED);
	size_t n;
	assert_memory_equal(letterbox_bytes(b, BOX_FIRST, &n), s.bytes, s.n);
}

static void what_is_not_ours_is_left_alone_and_what_was_being_made_is_removed(void **state)
{
	struct letterbox *b = *state;
	struct sample s;
	make_sample(b, &s);
	static const char *const others[] = {"/letters/notes.txt",
					     "/letters/1.dlq",
					     "/letters/000000002.dlq",
					     "/letters/99999999999999999999.dlq",
					     "/letters/18446744073709551615.dlq",
					     "/letters/00000000.dlq",
					     "/letters/-0000001.dlq"};
	for (size_t i = 0; i < SL_COUNT(others); i++)
		letterbox_write(b, others[i], s.bytes, s.n);
	letterbox_write(b, "/letters/00000006.dlq.tmp", s.bytes, 10);
	sl_dlq *q = letterbox_open(b);
	assert_int_equal(letterbox_stats(b, q).files, 1);
	assert_int_equal(letterbox_stats(b, q).bytes, s.n);
	assert_int_equal(letterbox_put(b, q, "next"), 6);
	sl_dlq_close(q);
	for (size_t i = 0; i < SL_COUNT(others); i++)
		assert_true(letterbox_has(b, others[i]));
	assert_false(letterbox_has(b, "/letters/00000006.dlq.tmp"));
}

/* clang-format off */
/* The example of docs/formats/dead_letter.md. */
static const uint8_t example[254] = {
	0x53, 0x4c, 0x44, 0x4c, 0x51, 0x30, 0x30, 0x31, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
	0x97, 0x31, 0x6d, 0xcc, 0xf3, 0x9d, 0xf8, 0x14, 0x53, 0x4c, 0x44, 0x4c, 0x51, 0x30, 0x30, 0x31,
	0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x97, 0x31, 0x6d, 0xcc, 0xf3, 0x9d, 0xf8, 0x14,
	0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x76, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00,
	0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x88, 0x20, 0xb8, 0xff, 0x00, 0x00, 0x00, 0x00,
	0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xe8, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0xd0, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xee, 0xff, 0xff, 0xff, 0x03, 0x00, 0x00, 0x00,
	0x03, 0x00, 0x04, 0x00, 0x0d, 0x00, 0x08, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
	0x74, 0x65, 0x73, 0x74, 0x00, 0x6e, 0x6f, 0x20, 0x73, 0x75, 0x63, 0x68, 0x20, 0x74, 0x61, 0x62,
	0x6c, 0x65, 0x00, 0x73, 0x71, 0x6c, 0x69, 0x74, 0x65, 0x3a, 0x78, 0x00, 0x68, 0x69, 0x03, 0xa1,
	0x95, 0x05, 0xd2, 0x75, 0x64, 0x86, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x38, 0x00,
	0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xda, 0x73,
	0x8f, 0x5e, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x68,
	0xe5, 0xcf, 0x8b, 0x01, 0x00, 0x00, 0xd4, 0xad, 0xab, 0xee, 0xb5, 0x79, 0x2d, 0x51,
};
/* clang-format on */

static int example_salt(void *buf, size_t n, void *ctx)
{
	(void)ctx;
	assert_int_equal(n, 8);
	sl__put64(buf, 0x1122334455667788);
	return 0;
}

static void the_example_of_the_format_page_is_read_and_written(void **state)
{
	struct letterbox *b = *state;
	static const struct sl_rand rand = {.version = SL_RAND_VERSION, .fill = example_salt};
	letterbox_write(b, BOX_FIRST, example, sizeof(example));
	sl_dlq *q = letterbox_open(b);
	assert_letters(b, q, "1=hi!");
	sl_dlq_close(q);

	fresh(b);
	b->env.rand = &rand;
	q = letterbox_open(b);
	letterbox_put(b, q, "hi");
	/* Without a successor the file stays, though its letter is dealt with. */
	fault_arm_io(&b->fault, 1, FAULT_FROM, ENOSPC, FAULT_OP(FAULT_RENAME));
	assert_int_equal(sl_dlq_ack(q, 1, &b->err), 0);
	fault_disarm(&b->fault);
	sl_dlq_close(q);
	size_t n;
	const uint8_t *bytes = letterbox_bytes(b, BOX_FIRST, &n);
	assert_int_equal(n, sizeof(example));
	assert_memory_equal(bytes, example, n);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, letterbox_setup, letterbox_teardown)
	const struct CMUnitTest tests[] = {
		T(every_flipped_bit_costs_at_most_the_record_it_is_in),
		T(every_cut_keeps_what_is_before_it),
		T(garbage_over_any_stretch_costs_only_what_it_covers),
		T(dead_letters_survive_the_loss_of_both_headers_and_the_first_record),
		T(the_image_of_a_dead_letter_inside_an_item_is_never_taken_for_one),
		T(the_id_of_a_damaged_last_dead_letter_is_not_given_again),
		T(a_damaged_last_dead_letter_of_a_closed_file_is_damage_and_no_torn_tail),
		T(a_damaged_last_dead_letter_of_a_file_that_is_full_is_damage_and_no_torn_tail),
		T(two_damaged_neighbours_count_as_two),
		T(a_damaged_file_stays_until_everything_is_purged),
		T(damage_that_comes_while_the_folder_is_open_is_skipped),
		T(a_tail_is_quarantined_once_however_often_it_takes),
		T(zeros_at_the_end_are_trimmed_without_a_copy),
		T(without_space_for_its_copy_a_tail_stays_in_place),
		T(a_copy_under_another_name_does_not_double_its_dead_letters),
		T(the_jump_over_lost_ids_never_loses_the_dead_letters_after_it),
		T(a_dead_letter_across_two_windows_of_the_search_is_found),
		T(a_later_version_is_left_alone),
		T(what_is_not_ours_is_left_alone_and_what_was_being_made_is_removed),
		T(the_example_of_the_format_page_is_read_and_written),
	};
	return cmocka_run_group_tests_name("dead_letter_damage", tests, NULL, NULL);
}
