/* SPDX-License-Identifier: Apache-2.0 */
/* Opening an index file and searching it; index_file.h describes its format. */
#include "backup/pack/index_file.h"

#include "base/crc64nvme.h"

static int file_damaged(struct sl_err *err, const struct bk_index_file *f, const char *why)
{
	return sl_err_set(err, SL_ECORRUPT, "%s is damaged: %s", f->name, why);
}

void sl__bk_entry_write(uint8_t entry[BK_INDEX_ENTRY], const struct bk_id *id, uint32_t pack,
			const struct bk_place *place)
{
	memcpy(entry, id->b, BK_ID_BYTES);
	sl__put32(entry + 32, pack);
	sl__put32(entry + 36, place->frame_offset);
	sl__put32(entry + 40, place->frame_stored);
	sl__put32(entry + 44, place->frame_raw | (place->zstd ? BK_INDEX_ZSTD : 0));
	sl__put32(entry + 48, place->offset);
	sl__put32(entry + 52, place->length);
}

void sl__bk_entry_place(const uint8_t entry[BK_INDEX_ENTRY], struct bk_place *place)
{
	uint32_t raw = sl__get32(entry + 44);
	*place = (struct bk_place){.frame_offset = sl__get32(entry + 36),
				   .frame_stored = sl__get32(entry + 40),
				   .frame_raw = raw & ~BK_INDEX_ZSTD,
				   .offset = sl__get32(entry + 48),
				   .length = sl__get32(entry + 52),
				   .zstd = (raw & BK_INDEX_ZSTD) != 0};
}

void sl__bk_segment_aad(const uint8_t header[BK_INDEX_HEADER], uint32_t segment, uint8_t out[BK_SEGMENT_AAD])
{
	memcpy(out, header, BK_INDEX_BOUND);
	sl__put32(out + BK_INDEX_BOUND, segment);
}

void sl__bk_index_file_free(const struct sl_env *env, struct bk_index_file *f)
{
	if (f == NULL)
		return;
	sl__free(env, f->packs);
	sl__free(env, f->usable);
	sl__free(env, f->fences);
	sl__free(env, f->segments);
	sl__free(env, f->ready);
	sl__free(env, f);
}

int sl__bk_index_file_tables(const struct sl_env *env, struct bk_index_file *f, struct sl_err *err)
{
	f->packs = sl__calloc(env, f->n_packs, sizeof(*f->packs));
	f->usable = sl__calloc(env, f->n_packs, sizeof(*f->usable));
	f->fences = sl__calloc(env, (size_t)f->n_segments + 1, sizeof(*f->fences));
	f->ready = sl__calloc(env, f->n_segments, sizeof(*f->ready));
	f->segments = sl__alloc(env, f->stride * f->n_segments);
	return f->packs != NULL && f->usable != NULL && f->fences != NULL && f->ready != NULL && f->segments != NULL
		       ? 0
		       : sl__no_memory(err, "an index");
}

/* Exactly len bytes, or the object is damaged. */
static int read_exactly(const struct bk_index_file *f, uint64_t offset, void *buf, size_t len, struct sl_err *err)
{
	size_t got = 0;
	int rc = f->driver->ops->get(f->driver->driver, f->name, offset, buf, len, &got, err);
	if (rc == 0 && got != len)
		rc = file_damaged(err, f, "it ends too early");
	return rc;
}

static size_t head_bytes(const struct bk_index_file *f)
{
	return (size_t)f->n_packs * BK_ID_BYTES + ((size_t)f->n_segments + 1) * BK_INDEX_FENCE;
}

static int read_index_header(struct bk_index *x, struct bk_index_file *f, uint64_t size, struct sl_err *err)
{
	const uint8_t *h = f->header;
	uint64_t seal = sl__bk_seal_bytes(x->keys);
	if (size < BK_INDEX_HEADER)
		return file_damaged(err, f, "too short");
	int rc = read_exactly(f, 0, f->header, BK_INDEX_HEADER, err);
	if (rc != 0)
		return rc;
	f->n_packs = sl__get32(h + 40);
	f->n_entries = sl__get32(h + 44);
	if (memcmp(h, BK_INDEX_MAGIC, 8) != 0 || sl__get64(h + BK_INDEX_BOUND) != sl__crc64nvme(0, h, BK_INDEX_BOUND))
		return file_damaged(err, f, "its header");
	if (memcmp(h + 8, x->keys->repository, BK_NAME_BYTES) != 0)
		return file_damaged(err, f, "it is of another repository");
	if (sl__get32(h + 48) != BK_INDEX_SEGMENT || sl__get32(h + 52) != 0 || f->n_entries == 0 ||
	    f->n_entries > BK_INDEX_ENTRIES_MAX || f->n_packs == 0 || f->n_packs > f->n_entries)
		return file_damaged(err, f, "its numbers");
	f->n_segments = sl__bk_segments(f->n_entries);
	if (BK_INDEX_HEADER + head_bytes(f) + seal * (1 + (uint64_t)f->n_segments) +
		    (uint64_t)f->n_entries * BK_INDEX_ENTRY !=
	    size)
		return file_damaged(err, f, "its length");
	f->front = sl__bk_seal_front(x->keys);
	f->stride = BK_INDEX_SEGMENT_BYTES + (size_t)seal;
	return 0;
}

/* The sealed head: packs and fences. */
static int read_index_head(struct bk_index *x, struct bk_index_file *f, struct sl_err *err)
{
	const struct bk_seal as = {
		.keys = x->keys, .kind = BK_KIND_INDEX_HEAD, .aad = f->header, .aad_len = BK_INDEX_BOUND};
	size_t sealed = head_bytes(f) + sl__bk_seal_bytes(x->keys);
	uint8_t *bytes, *buf = sl__alloc(&x->env, sealed);
	if (buf == NULL)
		return sl__no_memory(err, "an index");
	int rc = read_exactly(f, BK_INDEX_HEADER, buf, sealed, err);
	if (rc == 0 && sl__bk_unseal(&as, buf, &sealed, &bytes, NULL) != 0)
		rc = file_damaged(err, f, "its head");
	if (rc == 0) {
		memcpy(f->packs, bytes, (size_t)f->n_packs * BK_ID_BYTES);
		bytes += (size_t)f->n_packs * BK_ID_BYTES;
		for (uint32_t i = 0; i <= f->n_segments; i++) {
			f->fences[i] = sl__bk_fence(bytes + (size_t)i * BK_INDEX_FENCE);
			if (i > 0 && f->fences[i] < f->fences[i - 1])
				rc = file_damaged(err, f, "its order");
		}
	}
	sl__free(&x->env, buf);
	return rc;
}

int sl__bk_index_file_open(struct bk_index_file **out, struct bk_index *x, const char *name, uint64_t size,
			   struct sl_err *err)
{
	struct bk_index_file *f = sl__calloc(&x->env, 1, sizeof(*f));
	if (f == NULL)
		return sl__no_memory(err, "an index");
	assert(strlen(name) < sizeof(f->name));
	memcpy(f->name, name, strlen(name) + 1);
	f->driver = x->driver;
	int rc = read_index_header(x, f, size, err);
	if (rc == 0)
		rc = sl__bk_index_file_tables(&x->env, f, err);
	if (rc == 0)
		rc = read_index_head(x, f, err);
	if (rc == 0)
		*out = f;
	else
		sl__bk_index_file_free(&x->env, f);
	return rc;
}

static int read_segment(struct bk_index *x, struct bk_index_file *f, uint32_t segment, struct sl_err *err)
{
	uint8_t aad[BK_SEGMENT_AAD], *at = f->segments + f->stride * segment, *bytes;
	size_t seal = sl__bk_seal_bytes(x->keys);
	size_t sealed = (size_t)sl__bk_segment_entries(f->n_entries, segment) * BK_INDEX_ENTRY + seal;
	uint64_t offset = BK_INDEX_HEADER + head_bytes(f) + seal + (uint64_t)f->stride * segment;
	int rc = read_exactly(f, offset, at, sealed, err);
	if (rc != 0)
		return rc;
	const struct bk_seal as = {.keys = x->keys, .kind = BK_KIND_INDEX_SEGMENT, .aad = aad, .aad_len = sizeof(aad)};
	sl__bk_segment_aad(f->header, segment, aad);
	if (sl__bk_unseal(&as, at, &sealed, &bytes, NULL) != 0)
		return file_damaged(err, f, "the seal of a segment");

	/* Everything that looking up and reading blocks relies on. */
	const uint8_t *last = bytes + (size_t)(sl__bk_segment_entries(f->n_entries, segment) - 1) * BK_INDEX_ENTRY;
	bool ends = segment + 1 == f->n_segments;
	bool ok = sl__bk_fence(bytes) == f->fences[segment] && sl__bk_fence(last) <= f->fences[segment + 1] &&
		  (!ends || sl__bk_fence(last) == f->fences[segment + 1]);
	for (const uint8_t *e = bytes; e <= last && ok; e += BK_INDEX_ENTRY) {
		struct bk_place p;
		sl__bk_entry_place(e, &p);
		ok = sl__get32(e + 32) < f->n_packs && p.frame_offset >= BK_PACK_HEADER &&
		     sl__bk_frame_sizes_ok(x->keys, p.frame_stored, p.frame_raw, p.zstd) &&
		     (uint64_t)p.frame_offset + p.frame_stored <= BK_PACK_BYTES_MAX &&
		     (uint64_t)p.offset + p.length <= p.frame_raw &&
		     (e == bytes || memcmp(e - BK_INDEX_ENTRY, e, BK_ID_BYTES) <= 0);
	}
	return ok ? 0 : file_damaged(err, f, "the entries of a segment");
}

int sl__bk_index_segment(struct bk_index *x, struct bk_index_file *f, uint32_t segment, const uint8_t **entries,
			 struct sl_err *err)
{
	int rc = 0;
	if (!atomic_load_explicit(&f->ready[segment], memory_order_acquire)) {
		sl__mutex *mu = &x->reading[segment % BK_INDEX_LOCKS];
		sl__lock(mu);
		if (!atomic_load_explicit(&f->ready[segment], memory_order_relaxed)) {
			rc = atomic_load(&f->gone) ? SL_ENOENT : read_segment(x, f, segment, err);
			if (rc == 0)
				atomic_store_explicit(&f->ready[segment], 1, memory_order_release);
		}
		sl__unlock(mu);
	}
	if (rc == 0)
		*entries = f->segments + f->stride * segment + f->front;
	return rc;
}

/* Without memory for that it stays as it is. */
void sl__bk_index_file_forget(struct bk_index *x, struct bk_index_file *f)
{
	uint8_t *fresh = f->name[0] != '\0' ? sl__alloc(&x->env, f->stride * f->n_segments) : NULL;
	if (fresh == NULL)
		return;
	sl__free(&x->env, f->segments);
	f->segments = fresh;
	for (uint32_t s = 0; s < f->n_segments; s++)
		atomic_store(&f->ready[s], 0);
}

int sl__bk_index_file_search(struct bk_index *x, struct bk_index_file *f, const struct bk_index_search *search,
			     struct sl_err *err)
{
	const struct bk_id *id = search->id;
	uint64_t fence = sl__bk_fence(id->b);
	if (fence < f->fences[0] || fence > f->fences[f->n_segments])
		return 0;
	/* The first segment that may hold the fence: the last one that begins below it. */
	uint32_t low = 0, high = f->n_segments; /* fences[low - 1] < fence <= fences[high] */
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		if (f->fences[mid] < fence)
			low = mid + 1;
		else
			high = mid;
	}
	uint32_t first = low > 0 ? low - 1 : 0;
	/* Entries of one id may continue in the next segment. */
	for (uint32_t s = first; s < f->n_segments && (s == first || f->fences[s] <= fence); s++) {
		uint32_t n = sl__bk_segment_entries(f->n_entries, s);
		const uint8_t *entries;
		int rc = sl__bk_index_segment(x, f, s, &entries, err);
		if (rc != 0)
			return rc;
		/* From the first entry that is not below the id. */
		uint32_t i = 0, end = n;
		while (i < end) {
			uint32_t mid = i + (end - i) / 2;
			if (memcmp(entries + (size_t)mid * BK_INDEX_ENTRY, id->b, BK_ID_BYTES) < 0)
				i = mid + 1;
			else
				end = mid;
		}
		for (; i < n; i++) {
			const uint8_t *e = entries + (size_t)i * BK_INDEX_ENTRY;
			if (memcmp(e, id->b, BK_ID_BYTES) != 0)
				return 0;
			rc = search->fn(f, f->first_ordinal + (uint64_t)s * BK_INDEX_SEGMENT + i, e, search->ctx);
			if (rc != 0)
				return rc;
		}
	}
	return 0;
}
