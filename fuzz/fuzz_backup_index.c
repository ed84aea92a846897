/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an index file of a plain repository. Nothing may crash; what loads keeps its promises: every entry that
 * is shown is found under its id, with a place that keeps its bounds, in the order of ids; merging a good file gives
 * the same entries again.
 *
 * The first byte says what the rest is: a whole file, or numbers, pack ids and entries that are put into a file whose
 * sums are right (so that the code after their check is reached), with the fences made to fit, or not.
 */
#include <string.h>

#include "backup/pack/index_file.h"
#include "base/crc64nvme.h"
#include "must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sl_env env;
static struct bk_keys keys;

/* A driver of one object. */
struct shelf {
	const uint8_t *bytes;
	size_t len;
	uint8_t *put;
	size_t put_len;
};
#define OBJECT "0000000000000000000000000000000000000000000000000000000000000000"

static int shelf_list(void *driver, const char *folder, sl_driver_list_fn *fn, void *ctx, struct sl_err *err)
{
	struct shelf *s = driver;
	struct sl_driver_stat st = {.size = s->len};
	(void)err;
	MUST(strcmp(folder, "index") == 0);
	return fn(OBJECT, &st, ctx);
}

static int shelf_get(void *driver, const char *name, uint64_t offset, void *buf, size_t len, size_t *got,
		     struct sl_err *err)
{
	struct shelf *s = driver;
	(void)err;
	MUST(strcmp(name, "index/" OBJECT) == 0);
	*got = offset < s->len ? SL_MIN(len, s->len - (size_t)offset) : 0;
	if (*got != 0)
		memcpy(buf, s->bytes + offset, *got);
	return 0;
}

static int shelf_put(void *driver, const char *name, const void *bytes, size_t len, enum sl_driver_put how,
		     struct sl_err *err)
{
	struct shelf *s = driver;
	(void)name, (void)how, (void)err;
	MUST(s->put == NULL && (s->put = malloc(len)) != NULL);
	memcpy(s->put, bytes, len);
	s->put_len = len;
	return 0;
}

struct shown {
	struct bk_index *x;
	struct bk_id last;
	uint64_t n;
};

static int show(uint64_t ordinal, const struct bk_id *id, const struct bk_found *found, void *ctx)
{
	struct shown *s = ctx;
	struct bk_found same;
	const struct bk_place *p = &found->place;
	MUST(ordinal == s->n++);
	MUST(memcmp(&s->last, id, sizeof(*id)) <= 0);
	MUST(p->frame_raw <= BK_FRAME_RAW_MAX && (uint64_t)p->offset + p->length <= p->frame_raw);
	MUST((uint64_t)p->frame_offset + p->frame_stored <= BK_PACK_BYTES_MAX);
	MUST(sl__bk_index_find(s->x, id, &same, NULL) == 0);
	s->last = *id;
	return 0;
}

static bool keep(const struct bk_id *pack, void *ctx)
{
	(void)pack, (void)ctx;
	return true;
}

/* How many entries it has; 0: it was refused. */
static uint64_t use(const uint8_t *bytes, size_t len, int rounds)
{
	static const struct sl_driver_ops ops = {
		.version = SL_DRIVER_VERSION, .list = shelf_list, .get = shelf_get, .put = shelf_put};
	struct shelf shelf = {.bytes = bytes, .len = len};
	sl_driver driver = {.ops = &ops, .driver = &shelf};
	struct shown s = {.n = 0};
	struct sl_err err = SL_ERR_INIT;
	int rc = sl__bk_index_load(&s.x, &(struct bk_index_from){&env, &keys, &driver, NULL, NULL, NULL}, &err);
	MUST(rc == 0 || (rc == SL_ECORRUPT && err.code == rc));
	if (rc != 0)
		return 0;
	rc = sl__bk_index_each(s.x, show, &s, &err);
	MUST(rc == 0 || (rc == SL_ECORRUPT && err.code == rc));
	uint64_t n = rc == 0 ? s.n : 0;
	MUST(rc != 0 || n == sl__bk_index_entries(s.x));
	if (n != 0 && rounds > 0) {
		struct bk_index_builder *b = NULL;
		MUST(sl__bk_index_builder_new(&b, &env, &keys, NULL) == 0);
		MUST(sl__bk_index_builder_index(b, s.x, keep, NULL, NULL) == 0);
		MUST(sl__bk_index_builder_put(b, &driver, NULL, NULL) == 0);
		sl__bk_index_builder_free(b);
		uint64_t again = use(shelf.put, shelf.put_len, rounds - 1);
		MUST(again != 0 && again <= n); /* doubles are one */
		free(shelf.put);
	}
	sl__bk_index_free(s.x);
	return n;
}

/* How many packs, a wrong number of entries, the packs' ids, a wrong fence; then entries. */
static void right_sums(const uint8_t *data, size_t size)
{
	if (size < 4 + BK_INDEX_ENTRY)
		return;
	uint32_t packs = 1 + data[0] % 8, n = (uint32_t)((size - 4) / BK_INDEX_ENTRY), segments = sl__bk_segments(n);
	const uint8_t *entries = data + 4;
	size_t head = (size_t)packs * BK_ID_BYTES + ((size_t)segments + 1) * BK_INDEX_FENCE;
	size_t len = BK_INDEX_HEADER + head + (1 + (size_t)segments) * BK_SEAL_PLAIN + (size_t)n * BK_INDEX_ENTRY;
	uint8_t *file = calloc(1, len), *at = file + BK_INDEX_HEADER, *body = at + BK_SEAL_PLAIN;
	MUST(file != NULL);
	memcpy(file, BK_INDEX_MAGIC, 8);
	memcpy(file + 8, keys.repository, BK_NAME_BYTES);
	sl__put32(file + 40, packs);
	sl__put32(file + 44, n + (data[1] == 255));
	sl__put32(file + 48, BK_INDEX_SEGMENT);
	sl__put64(file + BK_INDEX_BOUND, sl__crc64nvme(0, file, BK_INDEX_BOUND));
	for (uint32_t i = 0; i < packs; i++)
		body[(size_t)i * BK_ID_BYTES] = (uint8_t)(data[2] + i);
	for (uint32_t i = 0; i < segments; i++)
		memcpy(body + packs * BK_ID_BYTES + (size_t)i * BK_INDEX_FENCE,
		       entries + (size_t)i * BK_INDEX_SEGMENT * BK_INDEX_ENTRY, BK_INDEX_FENCE);
	memcpy(body + head - BK_INDEX_FENCE, entries + (size_t)(n - 1) * BK_INDEX_ENTRY, BK_INDEX_FENCE);
	if ((data[3] & 1) != 0)
		body[head - 1 - data[3] % BK_INDEX_FENCE] ^= data[3];
	MUST(sl__bk_seal(&(struct bk_seal){&env, &keys, BK_KIND_INDEX_HEAD, file, BK_INDEX_BOUND}, body, head, at,
			 NULL) == 0);
	at += head + BK_SEAL_PLAIN;
	for (uint32_t i = 0; i < segments; i++) {
		uint8_t aad[BK_SEGMENT_AAD];
		size_t bytes = (size_t)sl__bk_segment_entries(n, i) * BK_INDEX_ENTRY;
		sl__bk_segment_aad(file, i, aad);
		MUST(sl__bk_seal(&(struct bk_seal){&env, &keys, BK_KIND_INDEX_SEGMENT, aad, sizeof(aad)},
				 entries + (size_t)i * BK_INDEX_SEGMENT_BYTES, bytes, at, NULL) == 0);
		at += bytes + BK_SEAL_PLAIN;
	}
	(void)use(file, len, 2);
	free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	MUST(sl__env_init(&env, NULL, NULL) == 0);
	MUST(sl__bk_keys_derive(&keys, NULL) == 0);
	if (data[0] % 2 == 0)
		(void)use(data + 1, size - 1, 2);
	else
		right_sums(data + 1, size - 1);
	return 0;
}
