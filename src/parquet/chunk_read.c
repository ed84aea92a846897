/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A column chunk into values: entries one after the other as the public header gives them, NULLs as zeros. A page's
 * values are decoded densely to where its rows begin, and then moved apart from the last to the first, which never
 * overwrites one that has still to be moved.
 *
 * A page has a header with a CRC, and bytes that may be compressed.
 */
#include "parquet/crc32.h"
#include "parquet/delta.h"
#include "parquet/reader.h"
#include "parquet/thrift.h"

struct page {
	enum pq_page kind;
	enum pq_encoding encoding;
	size_t values;    /* with NULLs */
	size_t bytes;     /* unpacked */
	size_t packed;    /* in the file, without the header */
	const char *data; /* packed */
};

struct read_job {
	sl_parquet_reader *r;
	const struct sl_parquet_column *column;
	const struct sl__rchunk *chunk;
	struct sl__held *held;
	size_t entry;      /* bytes */
	size_t rows, row;  /* all; decoded so far */
	uint64_t budget;   /* bytes that may still be taken for this chunk */
	size_t dictionary; /* entries; 0: none */
	bool has_dictionary, any_null;
	const char *why;
};

static int corrupt(struct read_job *j, const char *why)
{
	j->why = why;
	return SL_ECORRUPT;
}

void sl__held_release(sl_parquet_reader *r, struct sl__held *h)
{
	for (size_t i = 0; i < h->n_pages; i++)
		sl__free(&r->env, h->pages[i]);
	h->n_pages = 0;
}

struct page_header {
	int64_t kind, bytes, packed, crc, values, encoding, levels;
	bool has_crc, has_body;
};

static void read_page_header(struct sl__thrift_in *t, struct page_header *h)
{
	struct sl__thrift_field f;
	int64_t *numbers[] = {[1] = &h->kind, [2] = &h->bytes, [3] = &h->packed, [4] = &h->crc};

	*h = (struct page_header){
		.kind = -1, .bytes = -1, .packed = -1, .values = -1, .encoding = -1, .levels = PQ_RLE};
	while ((f = sl__thrift_next(t)).type != THRIFT_STOP) {
		if (f.id >= 1 && f.id <= 4) {
			*numbers[f.id] = sl__thrift_get_int(t, f.type);
			h->has_crc = h->has_crc || f.id == 4;
			continue;
		}
		if (!(f.id == 5 && h->kind == PQ_DATA_PAGE) && !(f.id == 7 && h->kind == PQ_DICTIONARY_PAGE)) {
			sl__thrift_skip(t, f.type);
			continue;
		}
		/* DataPageHeader or DictionaryPageHeader: the first two fields are alike. */
		h->has_body = true;
		sl__thrift_enter(t, f.type);
		while ((f = sl__thrift_next(t)).type != THRIFT_STOP) {
			if (f.id == 1)
				h->values = sl__thrift_get_int(t, f.type);
			else if (f.id == 2)
				h->encoding = sl__thrift_get_int(t, f.type);
			else if (f.id == 3 && f.type == THRIFT_I32)
				h->levels = sl__thrift_get_int(t, f.type);
			else
				sl__thrift_skip(t, f.type);
		}
	}
}

/* The header of the page at in, checked with its CRC; in moves after the page. *why says what is wrong. */
static int next_page(struct sl__bytes_in *in, struct page *p, const char **why)
{
	struct sl__thrift_in t = {.at = in->at, .end = in->end};
	struct page_header h;

	read_page_header(&t, &h);
	*why = NULL;
	if (t.bad != NULL) {
		*why = t.bad;
	} else if (h.kind == PQ_DATA_PAGE_V2) {
		*why = "a data page of version 2, which is not supported";
		return SL_EUNSUPPORTED;
	} else if (h.kind != PQ_DATA_PAGE && h.kind != PQ_DICTIONARY_PAGE && h.kind != PQ_INDEX_PAGE) {
		*why = "a page of an unknown kind";
	} else if (h.bytes < 0 || h.packed < 0 || h.packed > t.end - t.at) {
		*why = "a page's size is wrong";
	} else if (h.kind != PQ_INDEX_PAGE && (!h.has_body || h.values < 0 || h.encoding < 0 || h.encoding > 31)) {
		*why = "a page's header is incomplete";
	}
	if (*why != NULL)
		return SL_ECORRUPT;
	*p = (struct page){.kind = (enum pq_page)h.kind,
			   .encoding = (enum pq_encoding)h.encoding,
			   .values = (size_t)h.values,
			   .bytes = (size_t)h.bytes,
			   .packed = (size_t)h.packed,
			   .data = (const char *)t.at};
	in->at = t.at + h.packed;
	if (h.has_crc && (uint32_t)h.crc != sl__crc32(0, p->data, p->packed)) {
		*why = "its CRC is wrong";
		return SL_ECORRUPT;
	}
	if (h.kind == PQ_DATA_PAGE && h.levels != PQ_RLE) {
		*why = "levels that are not RLE";
		return SL_EUNSUPPORTED;
	}
	return 0;
}

static int reserve_buffer(struct read_job *j, struct sl__buf *b, size_t n)
{
	sl__buf_clear(b);
	j->why = "out of memory";
	return sl__buf_reserve(b, n);
}

/* Byte arrays point into their page: it is held until the column is read again. */
static int unpack_page(struct read_job *j, const struct page *p, struct sl__bytes_in *in)
{
	struct sl__held *h = j->held;
	const struct sl_env *env = &j->r->env;
	char *to;

	if (p->bytes > j->budget) {
		j->why = "it is larger than max_chunk_bytes allows";
		return SL_ETOOBIG;
	}
	if (sl__pq_physical(j->column) == PQ_BYTE_ARRAY) {
		j->why = "out of memory";
		char **pages = sl__grow(env, h->pages, h->n_pages, &h->pages_cap, sizeof(*pages));
		if (pages == NULL)
			return SL_ENOMEM;
		h->pages = pages;
		to = sl__alloc(env, p->bytes + 1);
		if (to == NULL)
			return SL_ENOMEM;
		h->pages[h->n_pages++] = to;
		j->budget -= p->bytes;
	} else {
		int rc = reserve_buffer(j, &j->r->page, p->bytes);
		if (rc != 0)
			return rc;
		to = j->r->page.data;
	}
	*in = (struct sl__bytes_in){(const uint8_t *)to, (const uint8_t *)to + p->bytes};
	if (j->chunk->codec == PQ_UNCOMPRESSED) {
		if (p->packed != p->bytes)
			return corrupt(j, "its sizes differ without compression");
		if (p->bytes > 0)
			memcpy(to, p->data, p->bytes);
		return 0;
	}
	if (j->r->zstd == NULL && (j->r->zstd = ZSTD_createDCtx()) == NULL) {
		j->why = "out of memory for zstd";
		return SL_ENOMEM;
	}
	size_t n = ZSTD_decompressDCtx(j->r->zstd, to, p->bytes, p->data, p->packed);
	if (ZSTD_isError(n))
		return corrupt(j, ZSTD_getErrorName(n));
	return n == p->bytes ? 0 : corrupt(j, "it is shorter than its header declares");
}

/* ---- encodings: n values to `out` ---- */

static int get_plain(struct read_job *j, struct sl__bytes_in *in, void *out, size_t n)
{
	static const char too_few[] = "it holds fewer values than it declares";
	size_t left = (size_t)(in->end - in->at);

	if (j->column->kind == SL_PARQUET_BOOL) {
		if ((n + 7) / 8 > left)
			return corrupt(j, too_few);
		for (size_t i = 0; i < n; i++)
			((uint8_t *)out)[i] = in->at[i / 8] >> i % 8 & 1;
	} else if (sl__pq_physical(j->column) == PQ_BYTE_ARRAY) {
		struct sl_parquet_bytes *arrays = out;
		for (size_t i = 0; i < n; i++, left = (size_t)(in->end - in->at)) {
			uint32_t len = left >= 4 ? sl__get32(in->at) : UINT32_MAX;
			if (left < 4 || len > left - 4)
				return corrupt(j, too_few);
			arrays[i] = (struct sl_parquet_bytes){(const char *)in->at + 4, len};
			in->at += 4 + len;
		}
	} else {
		if (n > left / j->entry)
			return corrupt(j, too_few);
		memcpy(out, in->at, n * j->entry);
	}
	return 0;
}

/* Entries of 4, 8 and 16 bytes get a loop of their own. */
static inline __attribute__((always_inline)) void gather(char *out, const char *from, const uint32_t *index, size_t n,
							 size_t entry)
{
	for (size_t i = 0; i < n; i++)
		memcpy(out + i * entry, from + index[i] * entry, entry);
}

static int get_values(struct read_job *j, enum pq_encoding encoding, struct sl__bytes_in *in, void *out, size_t n)
{
	enum pq_physical type = sl__pq_physical(j->column);

	if (n == 0)
		return 0;
	if (encoding == PQ_PLAIN)
		return get_plain(j, in, out, n);
	if (encoding == PQ_RLE_DICTIONARY || encoding == PQ_PLAIN_DICTIONARY) {
		sl_parquet_reader *r = j->r;

		if (j->dictionary == 0 || in->at == in->end)
			return corrupt(j, "it has no dictionary, or no indices");
		unsigned width = *in->at++;
		int rc = reserve_buffer(j, &r->index, n * sizeof(uint32_t));
		if (rc != 0)
			return rc;
		uint32_t *index = (uint32_t *)(void *)r->index.data;
		if (sl__hybrid_get(in, index, n, width, (uint32_t)(j->dictionary - 1)) != 0)
			return corrupt(j, "its indices are damaged");
		if (j->entry == 4)
			gather(out, r->dictionary.data, index, n, 4);
		else if (j->entry == 8)
			gather(out, r->dictionary.data, index, n, 8);
		else if (j->entry == 16)
			gather(out, r->dictionary.data, index, n, 16);
		else
			gather(out, r->dictionary.data, index, n, j->entry);
		return 0;
	}
	if (encoding == PQ_DELTA_BINARY_PACKED && sl__pq_is_integer(type))
		return sl__delta_get(in, out, n, (unsigned)j->entry) == 0 ? 0
									  : corrupt(j, "its differences are damaged");
	if (encoding == PQ_DELTA_LENGTH_BYTE_ARRAY && type == PQ_BYTE_ARRAY) {
		struct sl_parquet_bytes *arrays = out;
		int rc = reserve_buffer(j, &j->r->index, n * sizeof(int32_t));

		if (rc != 0)
			return rc;
		int32_t *lengths = (int32_t *)(void *)j->r->index.data;
		if (sl__delta_get(in, lengths, n, sizeof(*lengths)) != 0)
			return corrupt(j, "its lengths are damaged");
		for (size_t i = 0; i < n; i++) {
			if (lengths[i] < 0 || (size_t)lengths[i] > (size_t)(in->end - in->at))
				return corrupt(j, "it holds fewer bytes than its lengths declare");
			arrays[i] = (struct sl_parquet_bytes){(const char *)in->at, (uint32_t)lengths[i]};
			in->at += lengths[i];
		}
		return 0;
	}
	j->why = "an encoding that this reader does not support";
	return SL_EUNSUPPORTED;
}

/* ---- pages ---- */

static int take_data(struct read_job *j, const struct page *p)
{
	uint8_t *nulls = (uint8_t *)j->held->nulls.data + j->row;
	char *out = j->held->values.data + j->row * j->entry;
	struct sl__bytes_in in;
	size_t n = 0;

	if (p->values > j->rows - j->row)
		return corrupt(j, "more values than the row group has rows");
	int rc = unpack_page(j, p, &in);
	if (rc != 0)
		return rc;

	/* Levels of the rows into nulls; n: how many are not NULL. */
	n = p->values;
	if (j->column->nullable) {
		size_t left = (size_t)(in.end - in.at);
		uint32_t len = left >= 4 ? sl__get32(in.at) : 0;
		if (left < 4 || len > left - 4)
			return corrupt(j, "its levels are longer than it");
		struct sl__bytes_in levels = {in.at + 4, in.at + 4 + len};
		in.at += 4 + len;
		if ((rc = reserve_buffer(j, &j->r->index, n * sizeof(uint32_t))) != 0)
			return rc;
		uint32_t *level = (uint32_t *)(void *)j->r->index.data;
		if (sl__hybrid_get(&levels, level, p->values, 1, 1) != 0)
			return corrupt(j, "its levels are damaged");
		for (size_t i = 0; i < p->values; i++) {
			nulls[i] = level[i] == 0;
			n -= nulls[i];
		}
	}
	if ((rc = get_values(j, p->encoding, &in, out, n)) != 0)
		return rc;

	/* Move the values apart, from the last to the first, with zeros for NULLs. */
	j->any_null = j->any_null || n < p->values;
	for (size_t i = p->values, k = n; n < p->values && i > 0; i--) {
		if (nulls[i - 1] != 0)
			memset(out + (i - 1) * j->entry, 0, j->entry);
		else if (--k != i - 1)
			memcpy(out + (i - 1) * j->entry, out + k * j->entry, j->entry);
	}
	j->row += p->values;
	return 0;
}

/* PLAIN, first in the chunk, once. */
static int take_dictionary(struct read_job *j, const struct page *p)
{
	struct sl__bytes_in in;
	size_t least = sl__pq_physical(j->column) == PQ_BYTE_ARRAY ? 4 : j->entry;

	if (j->has_dictionary || j->row > 0 || j->column->kind == SL_PARQUET_BOOL)
		return corrupt(j, "a dictionary where none may be");
	if (p->encoding != PQ_PLAIN && p->encoding != PQ_PLAIN_DICTIONARY)
		return corrupt(j, "a dictionary that is not PLAIN");
	if (p->values > p->bytes / least)
		return corrupt(j, "it holds fewer values than it declares");
	if (p->values * j->entry > j->budget) {
		j->why = "its dictionary is larger than max_chunk_bytes allows";
		return SL_ETOOBIG;
	}
	j->budget -= p->values * j->entry;
	int rc = unpack_page(j, p, &in);
	if (rc == 0)
		rc = reserve_buffer(j, &j->r->dictionary, p->values * j->entry);
	if (rc == 0)
		rc = get_plain(j, &in, j->r->dictionary.data, p->values);
	j->has_dictionary = true;
	j->dictionary = p->values;
	return rc;
}

/* ---- the chunk ---- */

/* Room for the entries, the nulls and the levels of all rows, and the bytes of the chunk. */
static int prepare_chunk(struct read_job *j, struct sl__bytes_in *in, struct sl_err *err)
{
	sl_parquet_reader *r = j->r;
	const struct sl_parquet_chunk *info = &j->chunk->info;
	size_t n = (size_t)info->bytes;
	uint64_t room = 0;

	if (__builtin_mul_overflow(info->rows, j->entry + 1 + sizeof(uint32_t), &room) || room > j->budget)
		return sl_err_set(err, SL_ETOOBIG, "%llu rows are more than max_chunk_bytes allows",
				  (unsigned long long)info->rows);
	j->budget -= room;
	j->rows = (size_t)info->rows;
	if (reserve_buffer(j, &j->held->values, j->rows * j->entry) != 0 ||
	    reserve_buffer(j, &j->held->nulls, j->rows) != 0)
		return sl_err_set(err, SL_ENOMEM, "out of memory for %zu rows", j->rows);

	const char *from = r->memory != NULL ? r->memory + info->offset : NULL;
	if (r->memory == NULL) {
		if (info->bytes > r->max_chunk_bytes)
			return sl_err_set(err, SL_ETOOBIG, "%zu bytes are more than max_chunk_bytes allows", n);
		if (reserve_buffer(j, &r->raw, n) != 0)
			return sl_err_set(err, SL_ENOMEM, "out of memory for %zu bytes", n);
		int rc = n > 0 ? r->read(r->raw.data, n, info->offset, err, r->read_ctx) : 0;
		if (rc != 0)
			return rc;
		from = r->raw.data;
	}
	*in = (struct sl__bytes_in){(const uint8_t *)from, (const uint8_t *)from + n};
	return 0;
}

int sl__chunk_read(sl_parquet_reader *r, size_t group, size_t column, struct sl_parquet_values *out, struct sl_err *err)
{
	struct read_job j = {.r = r,
			     .column = &r->columns[column],
			     .chunk = &r->chunks[group * r->n_columns + column],
			     .held = &r->held[column],
			     .budget = r->max_chunk_bytes};
	struct sl__bytes_in in = {0};
	struct page p;
	size_t page = 0;

	j.entry = sl__pq_entry_bytes(j.column);
	sl__held_release(r, j.held);
	int rc = prepare_chunk(&j, &in, err);
	if (rc != 0)
		return sl_err_wrap(err, rc, "parquet: row group %zu, column '%.60s'", group, j.column->name);
	for (; in.at < in.end; page++) {
		rc = next_page(&in, &p, &j.why);
		if (rc == 0 && p.kind == PQ_DICTIONARY_PAGE)
			rc = take_dictionary(&j, &p);
		else if (rc == 0 && p.kind == PQ_DATA_PAGE)
			rc = take_data(&j, &p);
		if (rc != 0)
			break;
	}
	if (rc == 0 && j.row != j.rows)
		rc = corrupt(&j, "fewer values than the row group has rows");
	if (rc != 0)
		return sl_err_set(err, rc, "parquet: row group %zu, column '%.60s', page %zu: %s", group,
				  j.column->name, page, j.why);
	*out = (struct sl_parquet_values){j.held->values.data, j.any_null ? (const uint8_t *)j.held->nulls.data : NULL};
	return 0;
}
