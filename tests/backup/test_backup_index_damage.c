/* SPDX-License-Identifier: Apache-2.0 */
/* Index files with every bit flipped, cut, or made by an attacker who can make every checksum right. */
#include "backup/index_kit.h"
#include "base/crc64nvme.h"

/* What loading it and looking for all of n blocks comes to: 0, or the first error. Nothing wrong is ever found. */
static int use(struct index_kit *t, uint64_t n)
{
	struct bk_index *x = NULL;
	struct sl_err err = SL_ERR_INIT;
	int rc = sl__bk_index_load(&x, &(struct bk_index_from){&t->env, &t->keys, &t->driver, NULL, NULL, NULL}, &err);
	for (uint64_t i = 0; rc == 0 && i < n; i++) {
		struct bk_id id = kit_id(i);
		rc = sl__bk_index_find(x, &id, NULL, &err);
		if (rc == 0)
			index_kit_assert_found(t, x, i);
	}
	if (rc != 0 && rc != SL_ENOENT)
		assert_non_null(strstr(err.msg, "index/")); /* says which file */
	sl__bk_index_free(x);
	return rc;
}

static void every_flipped_bit_of_an_index_is_found(SL_UNUSED void **state)
{
	for (int which = 0; which < 2; which++) {
		struct index_kit t;
		index_kit_begin(&t, which);
		index_kit_put(&t, 0, 5, 1000, 1000);
		struct mem_object *o = &t.mem.objects[0];
		for (size_t bit = 0; bit < 8 * o->len; bit++) {
			o->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_int_equal(use(&t, 5), SL_ECORRUPT);
			o->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		assert_int_equal(use(&t, 5), 0);
		index_kit_end(&t);
	}
}

static void an_index_that_was_cut_is_refused(SL_UNUSED void **state)
{
	struct index_kit t;
	index_kit_begin(&t, 1);
	index_kit_put(&t, 0, 5, 1000, 1000);
	struct mem_object *o = &t.mem.objects[0];
	size_t whole = o->len;
	for (o->len = 0; o->len < whole; o->len++)
		assert_int_equal(use(&t, 5), SL_ECORRUPT);
	assert_int_equal(use(&t, 5), 0);
	index_kit_end(&t);
}

static void a_segment_of_another_place_or_file_is_refused(SL_UNUSED void **state)
{
	for (int which = 0; which < 2; which++) {
		struct index_kit t;
		index_kit_begin(&t, which);
		index_kit_put(&t, 0, 3000, 1000, 4000);
		index_kit_put(&t, 0, 3000, 1000, 4000); /* the same entries, sealed once more */
		struct mem_object *a = &t.mem.objects[0], *b = &t.mem.objects[1];
		size_t stride = BK_INDEX_SEGMENT_BYTES + sl__bk_seal_bytes(&t.keys);
		size_t first = a->len - 3000 * BK_INDEX_ENTRY - 3 * sl__bk_seal_bytes(&t.keys);
		assert_int_equal(use(&t, 3000), 0);
		uint8_t *kept = malloc(stride), aad[BK_SEGMENT_AAD], *opened;
		for (uint32_t number = 2; number-- > 0;) { /* bound to its number, not only to its order */
			size_t len = stride;
			memcpy(kept, a->bytes + first, stride);
			sl__bk_segment_aad(a->bytes, number, aad);
			assert_int_equal(
				sl__bk_unseal(&(struct bk_seal){NULL, &t.keys, BK_KIND_INDEX_SEGMENT, aad, sizeof(aad)},
					      kept, &len, &opened, NULL),
				number == 0 ? 0 : SL_ECORRUPT);
		}
		memcpy(kept, a->bytes + first, stride);
		memcpy(a->bytes + first, b->bytes + first, stride); /* of the other file */
		assert_int_equal(use(&t, 3000), SL_ECORRUPT);
		memcpy(a->bytes + first, kept, stride);
		memcpy(a->bytes + first, a->bytes + first + stride, stride); /* of the next segment */
		assert_int_equal(use(&t, 3000), SL_ECORRUPT);
		memcpy(a->bytes + first, kept, stride);
		memcpy(a->bytes, b->bytes, first); /* header and head of the other file */
		assert_int_equal(use(&t, 3000), SL_ECORRUPT);
		free(kept);
		index_kit_end(&t);
	}
}

/* ---- made on purpose, in a plain repository ---- */

struct forged {
	struct index_kit t;
	uint8_t *bytes; /* header, seal, packs, fences, seal, entries */
	uint8_t *head, *entries;
	uint32_t packs, n_entries;
	size_t *len;
};

#define FORGED_ENTRIES 5u

static void forge_begin(struct forged *f)
{
	index_kit_begin(&f->t, 0);
	index_kit_put(&f->t, 0, FORGED_ENTRIES, 1000, 1000);
	f->bytes = f->t.mem.objects[0].bytes;
	f->len = &f->t.mem.objects[0].len;
	f->packs = 1;
	f->n_entries = FORGED_ENTRIES;
	f->head = f->bytes + BK_INDEX_HEADER + BK_SEAL_PLAIN;
	f->entries = f->head + 32 + 2 * BK_INDEX_FENCE + BK_SEAL_PLAIN;
}

/* Make all sums right again, use it, and clean up. */
static int forge_use(struct forged *f)
{
	const struct bk_keys *keys = &f->t.keys;
	uint8_t aad[BK_SEGMENT_AAD];
	sl__put64(f->bytes + 56, sl__crc64nvme(0, f->bytes, 56));
	assert_int_equal(sl__bk_seal(&(struct bk_seal){&f->t.env, keys, BK_KIND_INDEX_HEAD, f->bytes, BK_INDEX_BOUND},
				     f->head, 32 + 2 * BK_INDEX_FENCE, f->head - BK_SEAL_PLAIN, NULL),
			 0);
	sl__bk_segment_aad(f->bytes, 0, aad);
	assert_int_equal(sl__bk_seal(&(struct bk_seal){&f->t.env, keys, BK_KIND_INDEX_SEGMENT, aad, sizeof(aad)},
				     f->entries, FORGED_ENTRIES * BK_INDEX_ENTRY, f->entries - BK_SEAL_PLAIN, NULL),
			 0);
	int rc = use(&f->t, FORGED_ENTRIES);
	index_kit_end(&f->t);
	return rc;
}

static void an_index_with_all_sums_made_anew_is_read(SL_UNUSED void **state)
{
	struct forged f;
	forge_begin(&f);
	f.bytes[30] ^= 1; /* of the random part */
	assert_int_equal(forge_use(&f), 0);
}

#define REFUSE(change)                                                                                                 \
	do {                                                                                                           \
		struct forged f;                                                                                       \
		forge_begin(&f);                                                                                       \
		change;                                                                                                \
		int rc = forge_use(&f);                                                                                \
		if (rc != SL_ECORRUPT)                                                                                 \
			fail_msg("%s: %d", #change, rc);                                                               \
	} while (0)

static void headers_that_lie_are_refused(SL_UNUSED void **state)
{
	REFUSE(f.bytes[0] ^= 1);
	REFUSE(f.bytes[8] ^= 1);            /* another repository */
	REFUSE(sl__put32(f.bytes + 40, 0)); /* packs */
	REFUSE(sl__put32(f.bytes + 40, 2));
	REFUSE(sl__put32(f.bytes + 40, 6));
	REFUSE(sl__put32(f.bytes + 40, UINT32_MAX));
	REFUSE(sl__put32(f.bytes + 44, 0)); /* entries */
	REFUSE(sl__put32(f.bytes + 44, 4));
	REFUSE(sl__put32(f.bytes + 44, 6));
	REFUSE(sl__put32(f.bytes + 44, UINT32_MAX));
	REFUSE(sl__put32(f.bytes + 44, BK_INDEX_ENTRIES_MAX + 1));
	REFUSE(sl__put32(f.bytes + 48, 1)); /* of a segment */
	REFUSE(sl__put32(f.bytes + 48, 0));
	REFUSE(sl__put32(f.bytes + 52, 1)); /* reserved */
	REFUSE(--*f.len);
}

static uint8_t *field(struct forged *f, uint32_t entry, size_t offset)
{
	return f->entries + (size_t)entry * BK_INDEX_ENTRY + offset;
}

static void swap_entries(struct forged *f, uint32_t a, uint32_t b)
{
	uint8_t kept[BK_INDEX_ENTRY];
	memcpy(kept, field(f, a, 0), sizeof(kept));
	memcpy(field(f, a, 0), field(f, b, 0), sizeof(kept));
	memcpy(field(f, b, 0), kept, sizeof(kept));
}

static void entries_that_lie_are_refused(SL_UNUSED void **state)
{
	REFUSE(f.head[32] ^= 1);                        /* the first fence */
	REFUSE(f.head[32 + BK_INDEX_FENCE] ^= 1);       /* the last one */
	REFUSE(memset(f.head + 32, 0, BK_INDEX_FENCE)); /* before all */
	REFUSE(memset(f.head + 32 + BK_INDEX_FENCE, 0xFF, BK_INDEX_FENCE));
	REFUSE(swap_entries(&f, 1, 2)); /* out of order */
	REFUSE(swap_entries(&f, 0, 4));
	REFUSE(sl__put32(field(&f, 3, 32), 1));                    /* a pack that is not there */
	REFUSE(sl__put32(field(&f, 3, 36), 0));                    /* in the pack's header */
	REFUSE(sl__put32(field(&f, 3, 36), UINT32_MAX));           /* behind every pack */
	REFUSE(sl__put32(field(&f, 3, 40), UINT32_MAX));           /* stored */
	REFUSE(sl__put32(field(&f, 3, 40), 1));                    /* less than a seal */
	REFUSE(sl__put32(field(&f, 3, 44), BK_FRAME_RAW_MAX + 1)); /* raw */
	REFUSE(sl__put32(field(&f, 3, 44), UINT32_MAX));
	REFUSE(sl__put32(field(&f, 3, 48), 5000)); /* past the frame's end */
	REFUSE(sl__put32(field(&f, 3, 48), UINT32_MAX));
	REFUSE(sl__put32(field(&f, 3, 52), 5000));
	REFUSE(sl__put32(field(&f, 3, 52), UINT32_MAX));
}

/* A file of several segments, with sums that are right for what is in it. */
static int use_segments(uint32_t packs, uint32_t n, void (*change)(uint8_t *entries, uint32_t n))
{
	struct index_kit t;
	index_kit_begin(&t, 0);
	uint32_t segments = sl__bk_segments(n);
	size_t head = (size_t)packs * BK_ID_BYTES + ((size_t)segments + 1) * BK_INDEX_FENCE;
	size_t len = BK_INDEX_HEADER + head + ((size_t)segments + 1) * BK_SEAL_PLAIN + (size_t)n * BK_INDEX_ENTRY;
	uint8_t *file = calloc(1, len), *at = file + BK_INDEX_HEADER, *fence = at + BK_SEAL_PLAIN + packs * BK_ID_BYTES;
	uint8_t *entries = calloc(n, BK_INDEX_ENTRY);
	struct bk_place place = index_kit_place(&t.keys, 1);
	for (uint32_t i = 0; i < n; i++) {
		struct bk_id id = {.b = {(uint8_t)(i >> 8), (uint8_t)i}};
		sl__bk_entry_write(entries + (size_t)i * BK_INDEX_ENTRY, &id, 0, &place);
		if (i % BK_INDEX_SEGMENT == 0 || i == n - 1)
			memcpy(fence + (size_t)(i == n - 1 ? segments : i / BK_INDEX_SEGMENT) * BK_INDEX_FENCE, id.b,
			       BK_INDEX_FENCE);
	}
	if (change != NULL)
		change(entries, n);
	memcpy(file, BK_INDEX_MAGIC, 8);
	memcpy(file + 8, t.keys.repository, BK_NAME_BYTES);
	sl__put32(file + 40, packs);
	sl__put32(file + 44, n);
	sl__put32(file + 48, BK_INDEX_SEGMENT);
	sl__put64(file + BK_INDEX_BOUND, sl__crc64nvme(0, file, BK_INDEX_BOUND));
	assert_int_equal(sl__bk_seal(&(struct bk_seal){&t.env, &t.keys, BK_KIND_INDEX_HEAD, file, BK_INDEX_BOUND},
				     at + BK_SEAL_PLAIN, head, at, NULL),
			 0);
	at += BK_SEAL_PLAIN + head;
	for (uint32_t i = 0; i < segments; i++) {
		uint8_t aad[BK_SEGMENT_AAD];
		size_t bytes = (size_t)sl__bk_segment_entries(n, i) * BK_INDEX_ENTRY;
		sl__bk_segment_aad(file, i, aad);
		assert_int_equal(
			sl__bk_seal(&(struct bk_seal){&t.env, &t.keys, BK_KIND_INDEX_SEGMENT, aad, sizeof(aad)},
				    entries + (size_t)i * BK_INDEX_SEGMENT_BYTES, bytes, at, NULL),
			0);
		at += bytes + BK_SEAL_PLAIN;
	}
	assert_int_equal(t.driver.ops->put(t.driver.driver,
					   "index/0123456789012345678901234567890123456789012345678901234567890123",
					   file, len, SL_DRIVER_NEW, NULL),
			 0);
	struct bk_index *x = NULL;
	int rc = sl__bk_index_load(&x, &(struct bk_index_from){&t.env, &t.keys, &t.driver, NULL, NULL, NULL}, NULL);
	if (rc == 0)
		rc = sl__bk_index_read_all(x, NULL, NULL, NULL);
	sl__bk_index_free(x);
	free(file);
	free(entries);
	index_kit_end(&t);
	return rc;
}

/* The last id of the first segment beyond the first of the second. */
static void overreach(uint8_t *entries, SL_UNUSED uint32_t n)
{
	entries[(size_t)(BK_INDEX_SEGMENT - 1) * BK_INDEX_ENTRY] = 0xFF;
}

static void a_segment_that_goes_beyond_the_next_is_refused(SL_UNUSED void **state)
{
	assert_int_equal(use_segments(1, 3 * BK_INDEX_SEGMENT, NULL), 0);
	assert_int_equal(use_segments(1, 3 * BK_INDEX_SEGMENT, overreach), SL_ECORRUPT);
}

static void more_packs_than_entries_are_refused(SL_UNUSED void **state)
{
	assert_int_equal(use_segments(3, 3, NULL), 0);
	assert_int_equal(use_segments(4, 3, NULL), SL_ECORRUPT);
}

static int count_damaged(const char *name, const struct sl_err *err, void *ctx)
{
	assert_int_equal(strncmp(name, "index/", 6), 0);
	assert_int_equal(err->code, SL_ECORRUPT);
	++*(int *)ctx;
	return 0;
}

static void a_damaged_file_can_be_reported_and_skipped(SL_UNUSED void **state)
{
	struct index_kit t;
	struct bk_index *x = NULL;
	int reported = 0;
	index_kit_begin(&t, 1);
	index_kit_put(&t, 0, 100, 1000, 1000);
	index_kit_put(&t, 100, 200, 1000, 1000);
	t.mem.objects[0].bytes[70] ^= 1;
	assert_int_equal(
		sl__bk_index_load(
			&x, &(struct bk_index_from){&t.env, &t.keys, &t.driver, NULL, count_damaged, &reported}, NULL),
		0);
	assert_int_equal(reported, 1);
	assert_int_equal(sl__bk_index_files(x), 1);
	index_kit_assert_missing(x, 50);
	index_kit_assert_found(&t, x, 150);
	sl__bk_index_free(x);
	t.mem.objects[0].bytes[70] ^= 1;
	t.mem.objects[0].bytes[t.mem.objects[0].len - 1] ^= 1; /* in a segment */
	x = index_kit_load(&t);
	assert_int_equal(sl__bk_index_read_all(x, count_damaged, &reported, NULL), 0);
	assert_int_equal(reported, 2);
	index_kit_assert_missing(x, 50);
	index_kit_assert_found(&t, x, 150);
	sl__bk_index_free(x);
	index_kit_end(&t);
}

static void objects_that_are_no_index_files_are_left_alone(SL_UNUSED void **state)
{
	struct index_kit t;
	index_kit_begin(&t, 0);
	index_kit_put(&t, 0, 10, 1000, 1000);
	assert_int_equal(t.driver.ops->put(t.driver.driver, "index/note", "x", 1, SL_DRIVER_NEW, NULL), 0);
	assert_int_equal(use(&t, 10), 0);
	index_kit_end(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_flipped_bit_of_an_index_is_found),
		cmocka_unit_test(an_index_that_was_cut_is_refused),
		cmocka_unit_test(a_segment_of_another_place_or_file_is_refused),
		cmocka_unit_test(an_index_with_all_sums_made_anew_is_read),
		cmocka_unit_test(headers_that_lie_are_refused),
		cmocka_unit_test(entries_that_lie_are_refused),
		cmocka_unit_test(a_segment_that_goes_beyond_the_next_is_refused),
		cmocka_unit_test(more_packs_than_entries_are_refused),
		cmocka_unit_test(a_damaged_file_can_be_reported_and_skipped),
		cmocka_unit_test(objects_that_are_no_index_files_are_left_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
