/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builder of index files. It gathers entries, with its own numbers of packs. Then the sorted entries are laid out
 * file by file, where the packs that a file names are numbered anew. How long the head is shows only when all entries of
 * the file are known, so an image is filled from its middle:
 *
 *   | … | header | head | segment | segment | …
 *       ^ start         ^ segments_at, after room for all packs
 */
#include "backup/pack/index_build.h"

#include "base/crc64nvme.h"
#include "base/sha256.h"

#define NO_PACK UINT32_MAX

/* ---- gathering ---- */

int sl__bk_index_builder_new(struct bk_index_builder **out, const struct sl_env *env, const struct bk_keys *keys,
			     struct sl_err *err)
{
	struct bk_index_builder *b = sl__calloc(env, 1, sizeof(*b));
	if (b == NULL)
		return sl__no_memory(err, "build an index");
	b->env = *env;
	b->keys = keys;
	b->file_entries = BK_INDEX_FILE_ENTRIES;
	sl__mutex_init(&b->mu);
	sl__bk_sort_init(&b->sort, &b->env);
	*out = b;
	return 0;
}

void sl__bk_index_builder_free(struct bk_index_builder *b)
{
	if (b == NULL)
		return;
	struct sl_env env = b->env;
	sl__bk_index_builder_clear(b);
	sl__mutex_fini(&b->mu);
	sl__free(&env, b);
}

void sl__bk_index_builder_clear(struct bk_index_builder *b)
{
	sl__bk_sort_fini(&b->sort);
	sl__free(&b->env, b->packs);
	sl__free(&b->env, b->slots);
	b->packs = NULL;
	b->slots = NULL;
	b->n_packs = 0;
	b->n_slots = 0;
}

/* Where the pack is in the table of slots, or the free slot for it. */
static uint32_t *pack_slot(const struct bk_index_builder *b, const struct bk_id *pack)
{
	size_t i = (size_t)sl__get64(pack->b) & (b->n_slots - 1);
	while (b->slots[i] != 0 && memcmp(&b->packs[b->slots[i] - 1], pack, sizeof(*pack)) != 0)
		i = (i + 1) & (b->n_slots - 1);
	return &b->slots[i];
}

int sl__bk_index_builder_number(struct bk_index_builder *b, const struct bk_id *pack, uint32_t *number,
				struct sl_err *err)
{
	/* Half of the slots stay free, and packs has room for one more. */
	if ((size_t)b->n_packs + 1 > b->n_slots / 2) {
		size_t n = SL_MAX(2 * b->n_slots, (size_t)64);
		struct bk_id *packs = sl__realloc(&b->env, b->packs, n / 2 * sizeof(*packs));
		if (packs == NULL)
			return sl__no_memory(err, "build an index");
		b->packs = packs;
		uint32_t *slots = sl__calloc(&b->env, n, sizeof(*slots));
		if (slots == NULL)
			return sl__no_memory(err, "build an index");
		sl__free(&b->env, b->slots);
		b->slots = slots;
		b->n_slots = n;
		for (uint32_t i = 0; i < b->n_packs; i++)
			*pack_slot(b, &b->packs[i]) = i + 1;
	}
	uint32_t *slot = pack_slot(b, pack);
	if (*slot == 0) {
		b->packs[b->n_packs++] = *pack;
		*slot = b->n_packs;
	}
	*number = *slot - 1;
	return 0;
}

int sl__bk_index_builder_pack(struct bk_index_builder *b, const struct bk_id *pack, const struct bk_pack_block *blocks,
			      size_t n, struct sl_err *err)
{
	uint32_t number;
	sl__lock(&b->mu);
	int rc = sl__bk_index_builder_number(b, pack, &number, err);
	for (size_t i = 0; rc == 0 && i < n; i++) {
		uint8_t entry[BK_INDEX_ENTRY];
		sl__bk_entry_write(entry, &blocks[i].id, number, &blocks[i].place);
		rc = sl__bk_sort_add(&b->sort, entry, err);
	}
	sl__unlock(&b->mu);
	return rc;
}

uint64_t sl__bk_index_builder_entries(const struct bk_index_builder *b)
{
	return b->sort.total;
}

int sl__bk_index_builder_file(struct bk_index_builder *b, struct bk_index *x, struct bk_index_file *f,
			      const uint32_t *numbers, struct sl_err *err)
{
	for (uint32_t s = 0; s < f->n_segments; s++) {
		const uint8_t *e;
		int rc = sl__bk_index_segment(x, f, s, &e, err);
		uint32_t n = sl__bk_segment_entries(f->n_entries, s);
		for (uint32_t i = 0; rc == 0 && i < n; i++, e += BK_INDEX_ENTRY) {
			uint8_t entry[BK_INDEX_ENTRY];
			uint32_t number = numbers[sl__get32(e + 32)];
			if (number == UINT32_MAX)
				continue;
			memcpy(entry, e, sizeof(entry));
			sl__put32(entry + 32, number);
			rc = sl__bk_sort_add(&b->sort, entry, err);
		}
		if (rc != 0)
			return rc;
	}
	return 0;
}

int sl__bk_index_builder_index(struct bk_index_builder *b, struct bk_index *x, bk_index_keep_fn *keep, void *ctx,
			       struct sl_err *err)
{
	int rc = 0;
	sl__lock(&b->mu);
	for (struct bk_index_file *f = atomic_load(&x->first); rc == 0 && f != NULL; f = atomic_load(&f->next)) {
		uint32_t *numbers = sl__calloc(&b->env, f->n_packs, sizeof(*numbers));
		if (numbers == NULL)
			rc = sl__no_memory(err, "build an index");
		for (uint32_t i = 0; rc == 0 && i < f->n_packs; i++) {
			numbers[i] = UINT32_MAX;
			if (keep(&f->packs[i], ctx))
				rc = sl__bk_index_builder_number(b, &f->packs[i], &numbers[i], err);
		}
		if (rc == 0)
			rc = sl__bk_index_builder_file(b, x, f, numbers, err);
		sl__free(&b->env, numbers);
	}
	sl__unlock(&b->mu);
	return rc;
}

/* ---- index files ---- */

/* The entries in order, each once by id and pack. */
struct entry_stream {
	struct bk_sort *sort;
	uint8_t entry[BK_INDEX_ENTRY]; /* that comes next */
	bool begun, have;
};

struct index_image {
	struct bk_index_builder *b;
	uint8_t *bytes;
	size_t segments_at, stride, front, seal;
	uint32_t n_entries, n_packs;
	uint32_t *locals;    /* per pack of the builder: its number in the file, or NO_PACK */
	struct bk_id *packs; /* of the file */
	size_t start, end;   /* the object */
};

static int advance(struct entry_stream *s, struct sl_err *err)
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

static uint8_t *image_entry(const struct index_image *m, uint32_t i)
{
	return m->bytes + m->segments_at + i / BK_INDEX_SEGMENT * m->stride + m->front +
	       (size_t)(i % BK_INDEX_SEGMENT) * BK_INDEX_ENTRY;
}

/* Entries until the file is full or none is left. */
static int fill_image(struct index_image *m, struct entry_stream *s, struct sl_err *err)
{
	int rc = 0;
	m->n_entries = m->n_packs = 0;
	for (uint32_t i = 0; i < m->b->n_packs; i++)
		m->locals[i] = NO_PACK;
	while (rc == 0 && s->have && m->n_entries < m->b->file_entries) {
		uint8_t *e = image_entry(m, m->n_entries++);
		memcpy(e, s->entry, BK_INDEX_ENTRY);
		uint32_t number = sl__get32(e + 32);
		if (m->locals[number] == NO_PACK) {
			m->packs[m->n_packs] = m->b->packs[number];
			m->locals[number] = m->n_packs++;
		}
		sl__put32(e + 32, m->locals[number]);
		rc = advance(s, err);
	}
	return rc;
}

/* Header and head before the segments, and everything sealed in place. */
static int seal_image(struct index_image *m, struct sl_err *err)
{
	const struct bk_index_builder *b = m->b;
	const struct sl_env *env = &b->env;
	uint32_t segments = sl__bk_segments(m->n_entries);
	size_t head = (size_t)m->n_packs * BK_ID_BYTES + ((size_t)segments + 1) * BK_INDEX_FENCE;
	m->start = m->segments_at - head - m->seal - BK_INDEX_HEADER;
	m->end = m->segments_at + (size_t)m->n_entries * BK_INDEX_ENTRY + segments * m->seal;
	/* The header. */
	uint8_t *h = m->bytes + m->start, *at = h + BK_INDEX_HEADER, *body = at + m->front;
	memcpy(h, BK_INDEX_MAGIC, 8);
	memcpy(h + 8, b->keys->repository, BK_NAME_BYTES);
	int rc = env->rand->fill(h + 24, 16, env->rand_ctx);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "draw the random part of an index");
	sl__put32(h + 40, m->n_packs);
	sl__put32(h + 44, m->n_entries);
	sl__put32(h + 48, BK_INDEX_SEGMENT);
	sl__put32(h + 52, 0);
	sl__put64(h + BK_INDEX_BOUND, sl__crc64nvme(0, h, BK_INDEX_BOUND));
	/* The head: packs, then fences. */
	uint8_t *fence = body + (size_t)m->n_packs * BK_ID_BYTES;
	memcpy(body, m->packs, (size_t)m->n_packs * BK_ID_BYTES);
	for (uint32_t i = 0; i < m->n_entries; i += BK_INDEX_SEGMENT, fence += BK_INDEX_FENCE)
		memcpy(fence, image_entry(m, i), BK_INDEX_FENCE);
	memcpy(fence, image_entry(m, m->n_entries - 1), BK_INDEX_FENCE);
	struct bk_seal as = {env, b->keys, BK_KIND_INDEX_HEAD, h, BK_INDEX_BOUND};
	rc = sl__bk_seal(&as, body, head, at, err);
	/* The segments. */
	at = m->bytes + m->segments_at;
	for (uint32_t s = 0; rc == 0 && s < segments; s++, at += m->stride) {
		uint8_t aad[BK_SEGMENT_AAD];
		sl__bk_segment_aad(h, s, aad);
		as = (struct bk_seal){env, b->keys, BK_KIND_INDEX_SEGMENT, aad, sizeof(aad)};
		rc = sl__bk_seal(&as, at + m->front, (size_t)sl__bk_segment_entries(m->n_entries, s) * BK_INDEX_ENTRY,
				 at, err);
	}
	return rc;
}

static void fini_image(struct index_image *m)
{
	sl__free(&m->b->env, m->bytes);
	sl__free(&m->b->env, m->locals);
	sl__free(&m->b->env, m->packs);
	sl__bk_index_builder_clear(m->b);
}

int sl__bk_index_builder_put(struct bk_index_builder *b, const sl_driver *driver, struct bk_index_put *put,
			     struct sl_err *err)
{
	struct entry_stream s = {.sort = &b->sort};
	if (b->sort.total == 0)
		return 0;
	struct index_image m SL_CLEANUP(fini_image) = {
		.b = b, .seal = sl__bk_seal_bytes(b->keys), .front = sl__bk_seal_front(b->keys)};

	/* Room for the largest file that the builder can give. */
	uint32_t segments = sl__bk_segments((uint32_t)SL_MIN(b->sort.total, (uint64_t)b->file_entries));
	m.stride = BK_INDEX_SEGMENT_BYTES + m.seal;
	m.segments_at =
		BK_INDEX_HEADER + m.seal + (size_t)b->n_packs * BK_ID_BYTES + ((size_t)segments + 1) * BK_INDEX_FENCE;
	m.bytes = sl__alloc(&b->env, m.segments_at + segments * m.stride);
	m.locals = sl__calloc(&b->env, b->n_packs, sizeof(*m.locals));
	m.packs = sl__calloc(&b->env, b->n_packs, sizeof(*m.packs));
	if (m.bytes == NULL || m.locals == NULL || m.packs == NULL)
		return sl__no_memory(err, "write an index");
	int rc = advance(&s, err);
	while (rc == 0 && s.have) {
		uint8_t sum[SL__SHA256_BYTES];
		char name[SL_DRIVER_NAME_BYTES] = "index/";
		rc = fill_image(&m, &s, err);
		if (rc == 0)
			rc = seal_image(&m, err);
		size_t len = m.end - m.start;
		if (rc == 0)
			rc = sl__sha256(m.bytes + m.start, len, sum, err);
		if (rc != 0)
			return rc;
		sl__bk_hex(sum, sizeof(sum), name + strlen(name));
		rc = driver->ops->put(driver->driver, name, m.bytes + m.start, len, SL_DRIVER_NEW, err);
		if (rc != 0)
			return sl_err_wrap(err, rc, "put %s", name);
		if (put != NULL)
			put->bytes += len;
		if (put != NULL && put->on_name != NULL)
			rc = put->on_name(name, put->ctx);
	}
	return rc;
}

int sl__bk_index_file_make(struct bk_index_file **out, const struct sl_env *env, struct bk_index_builder *b,
			   struct sl_err *err)
{
	if (b->sort.total > UINT32_MAX - BK_INDEX_SEGMENT)
		return sl_err_set(err, SL_ETOOBIG, "an index of more than 2^32 blocks");
	struct entry_stream s = {.sort = &b->sort};
	uint32_t n = 0;
	struct bk_index_file *f = sl__calloc(env, 1, sizeof(*f));
	if (f == NULL)
		return sl__no_memory(err, "write an index");
	f->n_packs = b->n_packs;
	f->n_segments = sl__bk_segments((uint32_t)b->sort.total);
	f->stride = BK_INDEX_SEGMENT_BYTES;
	int rc = sl__bk_index_file_tables(env, f, err);
	if (rc == 0)
		rc = advance(&s, err);
	for (; rc == 0 && s.have; n++) {
		if (n % BK_INDEX_SEGMENT == 0)
			f->fences[n / BK_INDEX_SEGMENT] = sl__bk_fence(s.entry);
		memcpy(f->segments + (size_t)n * BK_INDEX_ENTRY, s.entry, BK_INDEX_ENTRY);
		rc = advance(&s, err);
	}
	if (rc == 0) {
		/* All its segments are there; the tables have room for them. */
		f->n_entries = n;
		f->n_segments = sl__bk_segments(n);
		f->fences[f->n_segments] = sl__bk_fence(f->segments + (size_t)(n - 1) * BK_INDEX_ENTRY);
		memcpy(f->packs, b->packs, (size_t)b->n_packs * sizeof(*f->packs));
		memset(f->usable, true, f->n_packs);
		for (uint32_t i = 0; i < f->n_segments; i++)
			atomic_init(&f->ready[i], 1);
	}
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
