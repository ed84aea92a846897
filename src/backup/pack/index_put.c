/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a builder to index files: the sorted entries are laid out file by file, where the packs that a file names are
 * counted anew. How long the head is shows only when all entries of the file are known, so an image is filled from its
 * middle:
 *
 *   | … | header | head | segment | segment | …
 *       ^ start         ^ segments_at, behind room for all packs
 */
#include "backup/pack/index_build.h"

#include "base/crc64nvme.h"
#include "base/sha256.h"

#define NO_PACK UINT32_MAX

/* The entries in order, each once by id and pack. */
struct stream {
	struct bk_sort *sort;
	uint8_t entry[BK_INDEX_ENTRY]; /* that comes next */
	bool begun, have;
};

struct image {
	const struct bk_index_builder *b;
	uint8_t *bytes;
	size_t segments_at, stride, front, seal;
	uint32_t entries_n, packs_n;
	uint32_t *locals;    /* per pack of the builder: its number in the file, or NO_PACK */
	struct bk_id *packs; /* of the file */
	size_t start, end;   /* the object */
};

static int advance(struct stream *s, struct sl_err *err)
{
	const uint8_t *next = NULL;
	int rc;
	do
		rc = sl__bk_sort_next(s->sort, &next, err);
	while (rc > 0 && s->begun && memcmp(s->entry, next, BK_ID_BYTES + 4) == 0);
	if (rc < 0)
		return rc;
	s->begun = true;
	s->have = rc > 0;
	if (s->have)
		memcpy(s->entry, next, sizeof(s->entry));
	return 0;
}

static void image_fini(struct image *m)
{
	sl__free(&m->b->env, m->bytes);
	sl__free(&m->b->env, m->locals);
	sl__free(&m->b->env, m->packs);
}

/* Room for the largest file that the builder can give. */
static int image_init(struct image *m, const struct bk_index_builder *b, struct sl_err *err)
{
	uint32_t entries = (uint32_t)SL_MIN(b->sort.total, (uint64_t)b->file_entries);
	uint32_t segments = sl__bk_segments(entries), packs = b->packs_n;
	m->b = b;
	m->seal = sl__bk_seal_bytes(b->keys);
	m->front = sl__bk_seal_front(b->keys);
	m->stride = BK_INDEX_SEGMENT_BYTES + m->seal;
	m->segments_at =
		BK_INDEX_HEADER + m->seal + (size_t)packs * BK_ID_BYTES + ((size_t)segments + 1) * BK_INDEX_FENCE;
	m->bytes = sl__alloc(&b->env, m->segments_at + segments * m->stride);
	m->locals = sl__calloc(&b->env, packs, sizeof(*m->locals));
	m->packs = sl__calloc(&b->env, packs, sizeof(*m->packs));
	return m->bytes != NULL && m->locals != NULL && m->packs != NULL ? 0 : sl__no_memory(err, "write an index");
}

static uint8_t *entry_at(const struct image *m, uint32_t i)
{
	return m->bytes + m->segments_at + i / BK_INDEX_SEGMENT * m->stride + m->front +
	       (size_t)(i % BK_INDEX_SEGMENT) * BK_INDEX_ENTRY;
}

static uint32_t local_pack(struct image *m, uint32_t number)
{
	if (m->locals[number] == NO_PACK) {
		m->packs[m->packs_n] = m->b->packs[number];
		m->locals[number] = m->packs_n++;
	}
	return m->locals[number];
}

/* Entries until the file is full or none is left. */
static int fill(struct image *m, struct stream *s, struct sl_err *err)
{
	int rc = 0;
	m->entries_n = m->packs_n = 0;
	for (uint32_t i = 0; i < m->b->packs_n; i++)
		m->locals[i] = NO_PACK;
	while (rc == 0 && s->have && m->entries_n < m->b->file_entries) {
		uint8_t *e = entry_at(m, m->entries_n++);
		memcpy(e, s->entry, BK_INDEX_ENTRY);
		sl__put32(e + 32, local_pack(m, sl__get32(e + 32)));
		rc = advance(s, err);
	}
	return rc;
}

static int write_header(struct image *m, uint8_t *h, struct sl_err *err)
{
	const struct sl_env *env = &m->b->env;
	memcpy(h, BK_INDEX_MAGIC, 8);
	memcpy(h + 8, m->b->keys->repository, BK_NAME_BYTES);
	int rc = env->rand->fill(h + 24, 16, env->rand_ctx);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "draw the random part of an index");
	sl__put32(h + 40, m->packs_n);
	sl__put32(h + 44, m->entries_n);
	sl__put32(h + 48, BK_INDEX_SEGMENT);
	sl__put32(h + 52, 0);
	sl__put64(h + BK_INDEX_BOUND, sl__crc64nvme(0, h, BK_INDEX_BOUND));
	return 0;
}

static void write_head(const struct image *m, uint8_t *at)
{
	memcpy(at, m->packs, (size_t)m->packs_n * BK_ID_BYTES);
	at += (size_t)m->packs_n * BK_ID_BYTES;
	for (uint32_t i = 0; i < m->entries_n; i += BK_INDEX_SEGMENT, at += BK_INDEX_FENCE)
		memcpy(at, entry_at(m, i), BK_INDEX_FENCE);
	memcpy(at, entry_at(m, m->entries_n - 1), BK_INDEX_FENCE);
}

/* Header and head before the segments, and everything sealed in place. */
static int seal(struct image *m, struct sl_err *err)
{
	const struct bk_index_builder *b = m->b;
	uint32_t segments = sl__bk_segments(m->entries_n);
	size_t head = (size_t)m->packs_n * BK_ID_BYTES + ((size_t)segments + 1) * BK_INDEX_FENCE;
	m->start = m->segments_at - head - m->seal - BK_INDEX_HEADER;
	m->end = m->segments_at + (size_t)m->entries_n * BK_INDEX_ENTRY + segments * m->seal;
	uint8_t *header = m->bytes + m->start, *at = header + BK_INDEX_HEADER;
	int rc = write_header(m, header, err);
	if (rc != 0)
		return rc;
	write_head(m, at + m->front);
	rc = sl__bk_seal(&b->env, b->keys, BK_KIND_INDEX_HEAD, header, BK_INDEX_BOUND, at + m->front, head, at, err);
	at = m->bytes + m->segments_at;
	for (uint32_t s = 0; rc == 0 && s < segments; s++, at += m->stride) {
		uint8_t aad[BK_SEGMENT_AAD];
		sl__bk_segment_aad(header, s, aad);
		rc = sl__bk_seal(&b->env, b->keys, BK_KIND_INDEX_SEGMENT, aad, sizeof(aad), at + m->front,
				 (size_t)sl__bk_segment_entries(m->entries_n, s) * BK_INDEX_ENTRY, at, err);
	}
	return rc;
}

static int put(const struct image *m, const sl_driver *driver, bk_index_name_fn *names, void *ctx, uint64_t *bytes,
	       struct sl_err *err)
{
	uint8_t sum[SL__SHA256_BYTES];
	char name[SL_DRIVER_NAME_BYTES] = "index/";
	size_t len = m->end - m->start;
	int rc = sl__sha256(m->bytes + m->start, len, sum, err);
	if (rc != 0)
		return rc;
	sl__bk_hex(sum, sizeof(sum), name + strlen(name));
	rc = driver->ops->put(driver->driver, name, m->bytes + m->start, len, SL_DRIVER_NEW, err);
	if (rc != 0)
		return sl_err_wrap(err, rc, "put %s", name);
	if (bytes != NULL)
		*bytes += len;
	return names != NULL ? names(name, ctx) : 0;
}

int sl__bk_index_builder_put(struct bk_index_builder *b, const sl_driver *driver, bk_index_name_fn *names, void *ctx,
			     uint64_t *bytes, struct sl_err *err)
{
	struct image m = {.b = b};
	struct stream s = {.sort = &b->sort};
	if (b->sort.total == 0)
		return 0;
	int rc = image_init(&m, b, err);
	if (rc == 0)
		rc = advance(&s, err);
	while (rc == 0 && s.have) {
		rc = fill(&m, &s, err);
		if (rc == 0)
			rc = seal(&m, err);
		if (rc == 0)
			rc = put(&m, driver, names, ctx, bytes, err);
	}
	image_fini(&m);
	sl__bk_index_builder_clear(b);
	return rc;
}

/* The same entries, in memory, as a file that has all its segments. */
static int fill_file(struct bk_index_builder *b, struct bk_index_file *f, struct sl_err *err)
{
	struct stream s = {.sort = &b->sort};
	uint32_t n = 0;
	int rc = advance(&s, err);
	for (; rc == 0 && s.have; n++) {
		if (n % BK_INDEX_SEGMENT == 0)
			f->fences[n / BK_INDEX_SEGMENT] = sl__bk_fence(s.entry);
		memcpy(f->segments + (size_t)n * BK_INDEX_ENTRY, s.entry, BK_INDEX_ENTRY);
		rc = advance(&s, err);
	}
	if (rc != 0)
		return rc;
	f->entries_n = n;
	f->segments_n = sl__bk_segments(n);
	f->fences[f->segments_n] = sl__bk_fence(f->segments + (size_t)(n - 1) * BK_INDEX_ENTRY);
	memcpy(f->packs, b->packs, (size_t)b->packs_n * sizeof(*f->packs));
	memset(f->usable, true, f->packs_n);
	for (uint32_t i = 0; i < f->segments_n; i++)
		atomic_init(&f->ready[i], 1);
	return 0;
}

int sl__bk_index_file_make(struct bk_index_file **out, const struct sl_env *env, struct bk_index_builder *b,
			   struct sl_err *err)
{
	if (b->sort.total > UINT32_MAX - BK_INDEX_SEGMENT)
		return sl_err_set(err, SL_ETOOBIG, "an index of more than 2^32 blocks");
	struct bk_index_file *f = sl__calloc(env, 1, sizeof(*f));
	if (f == NULL)
		return sl__no_memory(err, "write an index");
	f->packs_n = b->packs_n;
	f->segments_n = sl__bk_segments((uint32_t)b->sort.total);
	f->stride = BK_INDEX_SEGMENT_BYTES;
	int rc = sl__bk_index_file_tables(env, f, err);
	if (rc == 0)
		rc = fill_file(b, f, err);
	sl__bk_index_builder_clear(b);
	if (rc == 0)
		*out = f;
	else
		sl__bk_index_file_free(env, f);
	return rc;
}

int sl__bk_index_take_in(struct bk_index *x, struct bk_index_builder *b, struct sl_err *err)
{
	struct bk_index_file *f;
	if (b->sort.total == 0)
		return 0;
	int rc = sl__bk_index_file_make(&f, &x->env, b, err);
	if (rc == 0)
		sl__bk_index_append(x, f);
	return rc;
}
