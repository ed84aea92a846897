/* SPDX-License-Identifier: Apache-2.0 */
/* Refused records as dead letters: what was sealed in the log is sealed there, and opens with the log's key only. */
#include <stdio.h>

#include "base/base.h"
#include "box.h"
#include <sluice/dead_letter.h>

#define KEY "/key"
#define OTHER_KEY "/other"

/* Takes everything but one record. */
struct picky {
	uint64_t refuses;
};

static int send_to_picky(const struct sl_wal_batch *b, struct sl_wal_reply *reply, struct sl_err *err, void *ctx)
{
	const struct picky *p = ctx;
	for (size_t i = 0; i < b->n_skipped; i++)
		reply->mark = SL_MAX(reply->mark, b->skipped[i].last);
	for (size_t i = 0; i < b->n_records; i++) {
		if (b->records[i].sequence == p->refuses) {
			reply->refused = p->refuses;
			return sl_err_set(err, SL_EREFUSED, "not this one");
		}
		reply->mark = SL_MAX(reply->mark, b->records[i].sequence);
	}
	return 0;
}

static const struct sl_wal_sender picky_table = {.version = SL_WAL_SENDER_VERSION, .send = send_to_picky};

static void put_key(struct box *b, const char *path, uint8_t byte)
{
	uint8_t key[32];
	memset(key, byte, sizeof(key));
	crashfs_put(b->fs, path, key, sizeof(key));
}

/* A copy of a letter that outlives the walk. */
struct kept {
	struct sl_dlq_letter letter;
	char source[64];
	uint8_t item[512];
	size_t n;
};

static int keep(const struct sl_dlq_letter *letter, void *ctx)
{
	struct kept *k = ctx;
	k->n++;
	k->letter = *letter;
	assert_true(letter->item_len <= sizeof(k->item) && strlen(letter->source) < sizeof(k->source));
	(void)snprintf(k->source, sizeof(k->source), "%s", letter->source);
	if (letter->item_len > 0)
		memcpy(k->item, letter->item, letter->item_len);
	k->letter.source = k->source;
	k->letter.item = k->item;
	return 0;
}

static void letter_of(struct box *b, const char *dir, struct kept *out)
{
	struct sl_dlq_opts opts = {SL_DLQ_OPTS_INIT, .env = &b->e.env, .read_only = SL_ON};
	sl_dlq *q = NULL;
	memset(out, 0, sizeof(*out));
	assert_int_equal(sl_dlq_open(&q, dir, &opts, &b->err), 0);
	assert_int_equal(sl_dlq_list(q, false, keep, out, &b->err), 0);
	sl_dlq_close(q);
	assert_int_equal(out->n, 1);
}

/* The letter of record 2 of a log with three, the second of which is text. */
static void park(struct box *b, const char *text, struct kept *out)
{
	struct picky p = {.refuses = 2};
	box_init(b);
	put_key(b, KEY, 1);
	put_key(b, OTHER_KEY, 2);
	b->opts.key_file = KEY;
	sl_wal *w = box_open(b);
	(void)box_append(w, "one");
	(void)box_append(w, text);
	(void)box_append(w, "three");
	assert_int_equal(sl_wal_sender_start(w, &picky_table, &p, &b->err), 0);
	assert_int_equal(sl_wal_sender_stop(w, SL_UNLIMITED, &b->err), 0);
	box_close(b, w);
	letter_of(b, "/w/s.dead", out);
}

/* The opened item as text, or NULL with b->err. */
static const char *opened(struct box *b, const struct sl_dlq_letter *letter, const char *key_file)
{
	static char text[600];
	size_t len = 12345;
	memset(&b->err, 0, sizeof(b->err));
	int rc = sl_wal_open_letter(letter, key_file, &b->e.env, text, &len, &b->err);
	assert_int_equal(rc, b->err.code);
	if (rc != 0) {
		assert_int_equal(len, 12345);
		return NULL;
	}
	assert_true(len <= letter->item_len);
	text[len] = '\0';
	return text;
}

static void a_sealed_record_is_sealed_in_its_letter_and_opens_with_the_key(void **state)
{
	(void)state;
	struct box b;
	struct kept k;
	size_t n;
	park(&b, "a secret payload", &k);
	const uint8_t *file = box_bytes(&b, "/w/s.dead/00000001.dlq", &n);
	assert_null(memmem(file, n, "secret", 6));
	assert_int_equal(k.letter.encoding, SL_DLQ_SEALED);
	assert_string_equal(k.letter.source, "wal:s");
	assert_int_equal(k.letter.position, 2);
	assert_string_equal(opened(&b, &k.letter, KEY), "a secret payload");
	assert_null(opened(&b, &k.letter, NULL));
	assert_int_equal(b.err.code, SL_EKEY);
	assert_non_null(strstr(b.err.msg, "sealed"));
	assert_null(opened(&b, &k.letter, OTHER_KEY));
	assert_int_equal(b.err.code, SL_EKEY);
	assert_null(opened(&b, &k.letter, "/none"));
	assert_int_equal(b.err.code, SL_EKEY);
	box_fini(&b);
}

static void an_empty_sealed_record_comes_back_empty(void **state)
{
	(void)state;
	struct box b;
	struct kept k;
	park(&b, "", &k);
	assert_int_equal(k.letter.encoding, SL_DLQ_SEALED);
	assert_string_equal(opened(&b, &k.letter, KEY), "");
	box_fini(&b);
}

static void a_sealed_item_is_a_log_that_dump_reads(void **state)
{
	(void)state;
	struct box b;
	struct kept k;
	park(&b, "a secret payload", &k);
	crashfs_mkdir(b.fs, "/x");
	crashfs_put(b.fs, "/x/s.wal", k.letter.item, k.letter.item_len);
	assert_scan(&b, "/x/s.wal", "2=a secret payload");
	box_fini(&b);
}

static void no_bit_of_a_sealed_letter_can_be_changed(void **state)
{
	(void)state;
	struct box b;
	struct kept k;
	park(&b, "a secret payload", &k);
	for (size_t bit = 0; bit < k.letter.item_len * 8; bit++) {
		k.item[bit / 8] ^= (uint8_t)(1U << bit % 8);
		assert_null(opened(&b, &k.letter, KEY));
		assert_true(b.err.code == SL_EDATA || b.err.code == SL_EKEY);
		/* With a right CRC it is the seal that notices, unless it was only the CRC. */
		size_t total = k.letter.item_len - 16;
		uint64_t was, crc = box_crc64(k.item + 16 + 4, total - 12);
		memcpy(&was, k.item + 16 + total - 8, 8);
		memcpy(k.item + 16 + total - 8, &crc, 8);
		if (bit / 8 < 16 + total - 8)
			assert_null(opened(&b, &k.letter, KEY));
		memcpy(k.item + 16 + total - 8, &was, 8);
		k.item[bit / 8] ^= (uint8_t)(1U << bit % 8);
	}
	assert_string_equal(opened(&b, &k.letter, KEY), "a secret payload");
	box_fini(&b);
}

static void a_sealed_letter_belongs_to_its_stream_and_place(void **state)
{
	(void)state;
	struct box b;
	struct kept k;
	park(&b, "a secret payload", &k);
	struct sl_dlq_letter moved = k.letter;
	moved.source = "wal:other";
	assert_null(opened(&b, &moved, KEY));
	assert_int_equal(b.err.code, SL_EKEY);
	static const char *const no_logs[] = {"load:s", "wal:", "wal:a/b", "", NULL};
	for (size_t i = 0; i < SL_COUNT(no_logs); i++) {
		moved.source = no_logs[i];
		assert_null(opened(&b, &moved, KEY));
		assert_int_equal(b.err.code, SL_EDATA);
	}
	moved = k.letter;
	moved.position = 3;
	assert_null(opened(&b, &moved, KEY));
	assert_int_equal(b.err.code, SL_EDATA);
	for (size_t n = 0; n < k.letter.item_len; n++) {
		moved = k.letter;
		moved.item_len = n;
		assert_null(opened(&b, &moved, KEY));
		assert_int_equal(b.err.code, SL_EDATA);
	}
	box_fini(&b);
}

static void a_plain_letter_needs_no_key(void **state)
{
	(void)state;
	struct box b;
	struct picky p = {.refuses = 1};
	struct kept k;
	box_init(&b);
	sl_wal *w = box_open(&b);
	(void)box_append(w, "plain");
	assert_int_equal(sl_wal_sender_start(w, &picky_table, &p, &b.err), 0);
	assert_int_equal(sl_wal_sender_stop(w, SL_UNLIMITED, &b.err), 0);
	box_close(&b, w);
	letter_of(&b, "/w/s.dead", &k);
	assert_int_equal(k.letter.encoding, SL_DLQ_PLAIN);
	assert_memory_equal(k.letter.item, "plain", 5);
	assert_string_equal(opened(&b, &k.letter, NULL), "plain");
	box_fini(&b);
}

static void a_record_from_before_the_key_is_parked_as_plain_as_it_lay(void **state)
{
	(void)state;
	struct box b;
	struct picky p = {.refuses = 1};
	struct kept k;
	box_init(&b);
	sl_wal *w = box_open(&b);
	(void)box_append(w, "plain");
	box_close(&b, w);
	put_key(&b, KEY, 1);
	b.opts.key_file = KEY;
	w = box_open(&b);
	(void)box_append(w, "sealed");
	assert_int_equal(sl_wal_sender_start(w, &picky_table, &p, &b.err), 0);
	assert_int_equal(sl_wal_sender_stop(w, SL_UNLIMITED, &b.err), 0);
	box_close(&b, w);
	letter_of(&b, "/w/s.dead", &k);
	assert_int_equal(k.letter.encoding, SL_DLQ_PLAIN);
	assert_string_equal(opened(&b, &k.letter, KEY), "plain");
	box_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sealed_record_is_sealed_in_its_letter_and_opens_with_the_key),
		cmocka_unit_test(an_empty_sealed_record_comes_back_empty),
		cmocka_unit_test(a_sealed_item_is_a_log_that_dump_reads),
		cmocka_unit_test(no_bit_of_a_sealed_letter_can_be_changed),
		cmocka_unit_test(a_sealed_letter_belongs_to_its_stream_and_place),
		cmocka_unit_test(a_plain_letter_needs_no_key),
		cmocka_unit_test(a_record_from_before_the_key_is_parked_as_plain_as_it_lay),
	};
	return cmocka_run_group_tests_name("letter", tests, NULL, NULL);
}
