/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A column chunk: the values of one column in one row group.
 *
 *      rows with NULLs ─▶ dense values ─▶ which encoding? ─▶ [dictionary page] ─▶ pages of levels and values
 *
 * The encoding is chosen by the size it would have before compression, which is a function of the values:
 *  - integers: DELTA_BINARY_PACKED, a dictionary or PLAIN, the smallest; no dictionary is tried where the differences
 *    need so little that it cannot win;
 *  - byte arrays: a dictionary when it takes less than three quarters of PLAIN, else DELTA_LENGTH_BYTE_ARRAY: the
 *    lengths stand together and the text is not cut up by them, which zstd packs tighter, and faster;
 *  - others: a dictionary when it takes less than three quarters of PLAIN; bool always PLAIN.
 * With a dictionary, bounds and UTF-8 are inspected in its distinct values only.
 *
 * A page is compressed, gets its header in front, and goes to the callback in one piece.
 */
#include <zstd_errors.h>

#include "parquet/bounds.h"
#include "parquet/crc32.h"
#include "parquet/delta.h"
#include "parquet/thrift.h"
#include "parquet/writer.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are copied as they lie in memory");

struct chunk_job {
	sl_parquet_writer *w;
	const struct sl_parquet_column *column;
	struct sl__chunk *chunk;
	const uint8_t *nulls; /* of the rows; NULL: none of them is NULL */
	size_t rows;
	const void *values; /* dense */
	size_t n;           /* of them */
	size_t width;       /* bytes of one in PLAIN; 0: byte array */
	enum pq_encoding encoding;
	unsigned index_bits;
	struct sl__bounds bounds;
};

static int no_column_memory(struct sl_err *err, size_t bytes)
{
	return sl_err_set(err, SL_ENOMEM, "parquet: out of memory for %zu bytes of a column", bytes);
}

static size_t count_nulls(const uint8_t *nulls, size_t n)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += nulls[i] != 0;
	return count;
}

/* ---- dense values ---- */

/* Entries of 1, 4, 8 and 16 bytes get their own loop by being inlined with that size. */
static inline __attribute__((always_inline)) void squeeze(char *to, const char *from, const uint8_t *nulls, size_t n,
							  size_t entry)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		memcpy(to + kept * entry, from + i * entry, entry);
		kept += nulls[i] == 0;
	}
}

/* The values without NULLs: the caller's own array if there are none, else a copy in w->dense. */
static int make_dense(struct chunk_job *j, const struct sl_parquet_values *v, struct sl_err *err)
{
	size_t entry = sl__pq_entry_bytes(j->column), nulls = v->nulls != NULL ? count_nulls(v->nulls, j->rows) : 0;

	j->chunk->nulls = (int64_t)nulls;
	j->values = v->values;
	j->n = j->rows - nulls;
	if (nulls == 0)
		return 0;
	j->nulls = v->nulls;
	/* One entry more: squeeze writes before it knows. */
	sl__buf_clear(&j->w->dense);
	if (sl__buf_reserve(&j->w->dense, (j->n + 1) * entry) != 0)
		return no_column_memory(err, (j->n + 1) * entry);
	char *to = j->w->dense.data;
	if (entry == 1)
		squeeze(to, v->values, v->nulls, j->rows, 1);
	else if (entry == 4)
		squeeze(to, v->values, v->nulls, j->rows, 4);
	else if (entry == 8)
		squeeze(to, v->values, v->nulls, j->rows, 8);
	else if (entry == 16)
		squeeze(to, v->values, v->nulls, j->rows, 16);
	else
		squeeze(to, v->values, v->nulls, j->rows, entry);
	j->values = to;
	return 0;
}

/* ---- UTF-8 ---- */

/* Bounds and UTF-8 of n entries. */
static int add_bounds_checked(struct chunk_job *j, const void *values, size_t n, struct sl_err *err)
{
	const struct sl_parquet_bytes *v = values, *dense = j->values;
	bool bad = false;

	if (j->column->kind == SL_PARQUET_STRING && j->w->check_utf8)
		for (size_t i = 0; i < n && !bad; i++)
			bad = !sl__pq_is_utf8(v[i]);
	if (SL_LIKELY(!bad)) {
		sl__bounds_add(&j->bounds, j->column, values, n);
		return 0;
	}

	/* Find the row of the first bad value, for the message. */
	uint64_t row = 0, first = j->w->rows - (uint64_t)j->rows;
	for (size_t i = 0; row < j->rows; row++) {
		if (j->nulls != NULL && j->nulls[row] != 0)
			continue;
		if (!sl__pq_is_utf8(dense[i++]))
			break;
	}
	return sl_err_set(err, SL_EDATA, "parquet: row %llu, column '%.100s': not UTF-8",
			  (unsigned long long)(first + row), j->column->name);
}

/* ---- a page of the file ---- */

#define HEADER_ROOM 64 /* before the compressed page, so that both go out in one piece; a header has about 30 bytes */

/* Level 3 looks for matches of five bytes. In hexadecimal, base 32 and the like these are everywhere, by chance, and
 * cost more to encode than they save: with matches of seven bytes and more such a page is smaller, and packed nine times
 * as fast (measured: 64 hexadecimal digits, 105 and 916 MB/s). Which is better is tried with the beginning of a chunk.
 */
#define LONG_MATCH 7
#define SAMPLE_BYTES (64u << 10)

static size_t pack_sample(sl_parquet_writer *w, int min_match)
{
	(void)ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_minMatch, min_match);
	return ZSTD_compress2(w->zstd, w->packed.data, w->packed.cap, w->page.data, SAMPLE_BYTES);
}

/* The page as the file holds it, into w->packed after HEADER_ROOM. */
static int pack_page(sl_parquet_writer *w, size_t *n, struct sl_err *err)
{
	size_t bound = w->zstd_level != 0 ? ZSTD_compressBound(w->page.len) : w->page.len;

	sl__buf_clear(&w->packed);
	if (sl__buf_reserve(&w->packed, HEADER_ROOM + bound) != 0)
		return sl_err_set(err, SL_ENOMEM, "parquet: out of memory for a page of %zu bytes", bound);
	if (w->zstd_level == 0) {
		if (w->page.len > 0)
			memcpy(w->packed.data + HEADER_ROOM, w->page.data, w->page.len);
		*n = w->page.len;
		return 0;
	}
	/* Choose the length of matches once per chunk, at its first page that is large enough to decide. */
	if (!w->match_chosen && w->page.len >= 2 * SAMPLE_BYTES) {
		size_t standard = pack_sample(w, 0), longer = pack_sample(w, LONG_MATCH);
		if (ZSTD_isError(longer) || (!ZSTD_isError(standard) && standard < longer))
			(void)ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_minMatch, 0);
		w->match_chosen = true;
	}
	*n = ZSTD_compress2(w->zstd, w->packed.data + HEADER_ROOM, bound, w->page.data, w->page.len);
	if (ZSTD_isError(*n))
		return sl_err_set(err, ZSTD_getErrorCode(*n) == ZSTD_error_memory_allocation ? SL_ENOMEM : SL_EINTERNAL,
				  "parquet: zstd: %s", ZSTD_getErrorName(*n));
	return 0;
}

struct page_out {
	enum pq_page kind;
	enum pq_encoding encoding;
	size_t values; /* with NULLs */
};

/* Compress w->page, and write it after its header. */
static int emit_page(sl_parquet_writer *w, struct sl__chunk *c, struct page_out page, struct sl_err *err)
{
	struct sl__thrift_out t = {.buf = &w->header};
	size_t packed = 0;

	if (w->page.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "parquet: out of memory for a page");
	if (w->page.len > INT32_MAX)
		return sl_err_set(err, SL_ETOOBIG, "parquet: a page of %zu bytes", w->page.len);
	int rc = pack_page(w, &packed, err);
	if (rc != 0)
		return rc;

	/* PageHeader */
	sl__buf_clear(&w->header);
	sl__thrift_i32(&t, 1, (int32_t)page.kind);
	sl__thrift_i32(&t, 2, (int32_t)w->page.len);
	sl__thrift_i32(&t, 3, (int32_t)packed);
	sl__thrift_i32(&t, 4, (int32_t)sl__crc32(0, w->packed.data + HEADER_ROOM, packed));
	sl__thrift_begin(&t, page.kind == PQ_DATA_PAGE ? 5 : 7);
	sl__thrift_i32(&t, 1, (int32_t)page.values);
	sl__thrift_i32(&t, 2, (int32_t)page.encoding);
	if (page.kind == PQ_DATA_PAGE) {
		sl__thrift_i32(&t, 3, PQ_RLE);
		sl__thrift_i32(&t, 4, PQ_RLE);
	}
	sl__thrift_end(&t);
	(void)sl__buf_append(&w->header, "", 1);
	if (w->header.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "parquet: out of memory for a page's header");

	size_t header = w->header.len;
	assert(header <= HEADER_ROOM);
	if (page.kind == PQ_DICTIONARY_PAGE)
		c->dictionary_offset = (int64_t)w->offset;
	else if (c->data_offset < 0)
		c->data_offset = (int64_t)w->offset;
	c->bytes += (int64_t)(header + packed);
	c->uncompressed_bytes += (int64_t)(header + w->page.len);
	c->encodings |= 1u << page.encoding;
	char *from = w->packed.data + HEADER_ROOM - header;
	memcpy(from, w->header.data, header);
	return sl__writer_emit(w, from, header + packed, err);
}

/* ---- the encoding ---- */

/* The encoding with the fewest bytes. Where that is a dictionary, it is in w->dictionary, its indices in w->index. */
static int choose_encoding(struct chunk_job *j, struct sl_err *err)
{
	sl_parquet_writer *w = j->w;
	const struct sl_parquet_bytes *v = j->values;
	size_t plain = j->n * (j->width != 0 ? j->width : 4), delta = SIZE_MAX, dictionary = SIZE_MAX;
	enum pq_encoding other = j->width == 0 ? PQ_DELTA_LENGTH_BYTE_ARRAY : PQ_PLAIN;

	for (size_t i = 0; j->width == 0 && i < j->n; i++)
		plain += v[i].len;
	size_t least = plain / 4 * 3;
	if (j->n > 1 && sl__pq_is_integer(sl__pq_physical(j->column))) {
		delta = sl__delta_bytes(j->values, j->n, (unsigned)j->width);
		if (delta < least) {
			other = PQ_DELTA_BINARY_PACKED;
			least = delta;
		}
	}
	/* An index has at least one bit; below two, the differences are as good. */
	bool possible = w->dictionary_bytes != 0 && j->column->dictionary != SL_OFF &&
			j->column->kind != SL_PARQUET_BOOL && j->n > 1;
	if (possible && delta > j->n / 4) {
		const struct sl__dict_values values = {j->values, j->n, j->width};
		sl__buf_clear(&w->index);
		if (sl__buf_reserve(&w->index, j->n * sizeof(uint32_t)) != 0)
			return no_column_memory(err, j->n * sizeof(uint32_t));
		int rc = sl__dict_build(&w->dictionary, &values, (size_t)w->dictionary_bytes,
					(uint32_t *)(void *)w->index.data);
		if (rc < 0)
			return no_column_memory(err, (size_t)w->dictionary_bytes);
		if (rc == 1) { /* some readers do not accept an index of no bits */
			j->index_bits = SL_MAX(1u, sl__bit_width(w->dictionary.count - 1));
			dictionary = w->dictionary.page.len + j->n * j->index_bits / 8;
		}
	}
	j->encoding = dictionary < least ? PQ_RLE_DICTIONARY : other;
	return 0;
}

/* ---- pages ---- */

/* The dictionary page, and the bounds of its values, which are those of the chunk. */
static int write_dictionary(struct chunk_job *j, struct sl_err *err)
{
	sl_parquet_writer *w = j->w;
	const struct page_out out = {PQ_DICTIONARY_PAGE, PQ_PLAIN, w->dictionary.count};
	const void *values = w->dictionary.page.data;

	/* Byte arrays are checked as entries. They are not put into w->views: the column's own values may be there. */
	if (j->width == 0) {
		size_t bytes = (size_t)w->dictionary.count * sizeof(struct sl_parquet_bytes);
		sl__buf_clear(&w->page);
		if (sl__buf_reserve(&w->page, bytes) != 0)
			return no_column_memory(err, bytes);
		struct sl_parquet_bytes *v = (struct sl_parquet_bytes *)(void *)w->page.data;
		for (uint32_t i = 0; i < w->dictionary.count; i++)
			v[i] = sl__dict_bytes(&w->dictionary, i);
		values = v;
	}
	int rc = add_bounds_checked(j, values, w->dictionary.count, err);
	if (rc != 0)
		return rc;
	/* The page borrows the dictionary's bytes; bounds still point into them afterwards. */
	struct sl__buf page = w->page;
	w->page = w->dictionary.page;
	rc = emit_page(w, j->chunk, out, err);
	w->page = page;
	return rc;
}

/* The lengths as DELTA_BINARY_PACKED, then all bytes. */
static int put_delta_length(sl_parquet_writer *w, const struct sl_parquet_bytes *v, size_t n)
{
	size_t bytes = 0;

	sl__buf_clear(&w->index);
	if (sl__buf_reserve(&w->index, n * sizeof(int32_t)) != 0)
		return SL_ENOMEM;
	int32_t *lengths = (int32_t *)(void *)w->index.data;
	for (size_t i = 0; i < n; i++) {
		lengths[i] = (int32_t)v[i].len;
		bytes += v[i].len;
	}
	sl__delta_put(&w->page, lengths, n, sizeof(*lengths));
	if (sl__buf_reserve(&w->page, bytes) != 0)
		return SL_ENOMEM;
	char *out = w->page.data + w->page.len;
	for (size_t i = 0; i < n; i++) {
		if (v[i].len > 0)
			memcpy(out, v[i].data, v[i].len);
		out += v[i].len;
	}
	w->page.len += bytes;
	*out = '\0';
	return 0;
}

/* Values [at, at + n) after the levels. */
static int put_values(struct chunk_job *j, size_t at, size_t n)
{
	sl_parquet_writer *w = j->w;
	size_t entry = sl__pq_entry_bytes(j->column);
	const char *values = (const char *)j->values + at * entry;
	const struct sl_parquet_bytes *arrays = (const struct sl_parquet_bytes *)(const void *)values;
	uint8_t bits = (uint8_t)j->index_bits;

	switch (j->encoding) {
	case PQ_RLE_DICTIONARY:
		(void)sl__buf_append(&w->page, &bits, 1);
		sl__hybrid_put(&w->page, (const uint32_t *)(void *)w->index.data + at, n, j->index_bits);
		return w->page.failed;
	case PQ_DELTA_BINARY_PACKED:
		sl__delta_put(&w->page, values, n, (unsigned)j->width);
		return w->page.failed;
	case PQ_DELTA_LENGTH_BYTE_ARRAY:
		return put_delta_length(w, arrays, n);
	default:
		break;
	}

	/* PLAIN: a length and bytes, a bit per bool, or the values as they are in memory. */
	if (j->width == 0) {
		for (size_t i = 0; i < n; i++) {
			(void)sl__buf_put32(&w->page, arrays[i].len);
			(void)sl__buf_append(&w->page, arrays[i].data, arrays[i].len);
		}
	} else if (j->column->kind != SL_PARQUET_BOOL) {
		(void)sl__buf_append(&w->page, values, n * entry);
	} else if (sl__buf_reserve(&w->page, n / 8 + 1) == 0) {
		uint8_t *out = (uint8_t *)w->page.data + w->page.len;
		memset(out, 0, n / 8 + 1);
		for (size_t i = 0; i < n; i++)
			out[i / 8] = (uint8_t)(out[i / 8] | (values[i] != 0) << i % 8);
		w->page.len += (n + 7) / 8;
	}
	return w->page.failed;
}

/* The page that begins at *row and at dense value *at; both move past it. */
static int write_page(struct chunk_job *j, size_t *row, size_t *at, struct sl_err *err)
{
	sl_parquet_writer *w = j->w;
	const struct sl_parquet_bytes *v = j->values;
	size_t left = j->rows - *row, width = j->encoding == PQ_RLE_DICTIONARY ? 4 : j->width, bytes = 0, m = 0;

	/* How many rows it has. */
	if (width != 0)
		m = SL_MIN(left, SL_MAX(PQ_PAGE_BYTES / width, 1));
	for (size_t i = *at; width == 0 && m < left && bytes < PQ_PAGE_BYTES; m++)
		bytes += 4 + (j->nulls == NULL || j->nulls[*row + m] == 0 ? v[i++].len : 0);
	const uint8_t *null_flags = j->nulls != NULL ? j->nulls + *row : NULL;
	size_t nulls = null_flags != NULL ? count_nulls(null_flags, m) : 0, n = m - nulls;

	const char *values = (const char *)j->values + *at * sl__pq_entry_bytes(j->column);
	int rc = j->encoding != PQ_RLE_DICTIONARY ? add_bounds_checked(j, values, n, err) : 0;
	if (rc != 0)
		return rc;
	sl__buf_clear(&w->page);
	if (j->column->nullable) { /* definition levels: their length in four bytes, then 1 for a value, 0 for NULL */
		(void)sl__buf_put32(&w->page, 0);
		if (nulls == 0) {
			sl__hybrid_run(&w->page, 1, m, 1);
		} else {
			sl__buf_clear(&w->levels);
			if (sl__buf_reserve(&w->levels, m * sizeof(uint32_t)) != 0)
				return no_column_memory(err, m * sizeof(uint32_t));
			uint32_t *level = (uint32_t *)(void *)w->levels.data;
			for (size_t i = 0; i < m; i++)
				level[i] = null_flags[i] == 0;
			sl__hybrid_put(&w->page, level, m, 1);
		}
		if (w->page.failed == 0)
			sl__put32(w->page.data, (uint32_t)(w->page.len - 4));
	}
	if (w->page.failed != 0 || (n > 0 && put_values(j, *at, n) != 0))
		return no_column_memory(err, w->page.len);
	/* A page without values is PLAIN: nothing at all. */
	const struct page_out out = {PQ_DATA_PAGE, n == 0 ? PQ_PLAIN : j->encoding, m};
	*row += m;
	*at += n;
	return emit_page(w, j->chunk, out, err);
}

int sl__chunk_write(sl_parquet_writer *w, size_t column, const struct sl_parquet_values *v, struct sl__group *g,
		    struct sl_err *err)
{
	struct sl__chunk *c = &g->chunks[column];
	struct chunk_job j = {.w = w, .column = &w->columns[column], .chunk = c, .rows = (size_t)g->rows};
	struct sl__bounds_out b;

	*c = (struct sl__chunk){.dictionary_offset = -1, .data_offset = -1};
	w->match_chosen = false;
	if (w->zstd != NULL)
		(void)ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_minMatch, 0);
	j.width = sl__pq_plain_bytes(j.column);
	int rc = make_dense(&j, v, err);
	if (rc == 0)
		rc = choose_encoding(&j, err);
	if (rc == 0 && j.encoding == PQ_RLE_DICTIONARY)
		rc = write_dictionary(&j, err);
	for (size_t row = 0, at = 0; rc == 0 && row < j.rows;)
		rc = write_page(&j, &row, &at, err);
	if (j.column->nullable)
		c->encodings |= 1u << PQ_RLE;
	if (rc != 0 || !sl__bounds_get(&j.bounds, j.column, &b))
		return rc;

	/* Keep the bounds for the footer. */
	c->bounds = sl__alloc(&w->env, (size_t)b.len[0] + b.len[1] + 1);
	if (c->bounds == NULL)
		return no_column_memory(err, (size_t)b.len[0] + b.len[1]);
	c->min_len = b.len[0];
	c->max_len = b.len[1];
	if (b.len[0] > 0)
		memcpy(c->bounds, b.data[0], b.len[0]);
	if (b.len[1] > 0)
		memcpy(c->bounds + b.len[0], b.data[1], b.len[1]);
	return 0;
}
