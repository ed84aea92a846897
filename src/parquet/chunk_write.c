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
 */
#include "parquet/bounds.h"
#include "parquet/delta.h"
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

static int no_memory(struct sl_err *err, size_t bytes)
{
	return sl_err_set(err, SL_ENOMEM, "parquet: no memory for %zu bytes of a column", bytes);
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
		return no_memory(err, (j->n + 1) * entry);
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
static int check_values(struct chunk_job *j, const void *values, size_t n, struct sl_err *err)
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

/* ---- the encoding ---- */

/* Bytes with a dictionary, which is in w->dictionary then; SIZE_MAX: a dictionary is not possible. */
static int dictionary_bytes(struct chunk_job *j, size_t *bytes, struct sl_err *err)
{
	sl_parquet_writer *w = j->w;

	*bytes = SIZE_MAX;
	if (w->dictionary_bytes == 0 || j->column->dictionary == SL_OFF || j->column->kind == SL_PARQUET_BOOL ||
	    j->n <= 1)
		return 0;
	sl__buf_clear(&w->index);
	if (sl__buf_reserve(&w->index, j->n * sizeof(uint32_t)) != 0)
		return no_memory(err, j->n * sizeof(uint32_t));
	const struct sl__dict_values values = {j->values, j->n, j->width};
	int rc =
		sl__dict_build(&w->dictionary, &values, (size_t)w->dictionary_bytes, (uint32_t *)(void *)w->index.data);
	if (rc < 0)
		return no_memory(err, (size_t)w->dictionary_bytes);
	if (rc == 0)
		return 0;
	/* Some readers do not accept an index of no bits. */
	j->index_bits = SL_MAX(1u, sl__bit_width(w->dictionary.count - 1));
	*bytes = w->dictionary.page.len + j->n * j->index_bits / 8;
	return 0;
}

static int choose_encoding(struct chunk_job *j, struct sl_err *err)
{
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
	if (delta > j->n / 4) {
		int rc = dictionary_bytes(j, &dictionary, err);
		if (rc != 0)
			return rc;
	}
	j->encoding = dictionary < least ? PQ_RLE_DICTIONARY : other;
	return 0;
}

/* ---- pages ---- */

static int write_dictionary(struct chunk_job *j, struct sl_err *err)
{
	sl_parquet_writer *w = j->w;
	const struct sl__page_out out = {PQ_DICTIONARY_PAGE, PQ_PLAIN, w->dictionary.count};
	const void *values = w->dictionary.page.data;

	/* Byte arrays are checked as entries. They are not put into w->views: the column's own values may be there. */
	if (j->width == 0) {
		size_t bytes = (size_t)w->dictionary.count * sizeof(struct sl_parquet_bytes);
		sl__buf_clear(&w->page);
		if (sl__buf_reserve(&w->page, bytes) != 0)
			return no_memory(err, bytes);
		struct sl_parquet_bytes *v = (struct sl_parquet_bytes *)(void *)w->page.data;
		for (uint32_t i = 0; i < w->dictionary.count; i++)
			v[i] = sl__dict_bytes(&w->dictionary, i);
		values = v;
	}
	int rc = check_values(j, values, w->dictionary.count, err);
	if (rc != 0)
		return rc;
	/* The page borrows the dictionary's bytes; bounds still point into them afterwards. */
	struct sl__buf page = w->page;
	w->page = w->dictionary.page;
	rc = sl__page_write(w, j->chunk, out, err);
	w->page = page;
	return rc;
}

/* Definition levels of m rows: their length in four bytes, then 1 for a value and 0 for NULL. */
static int put_levels(struct chunk_job *j, const uint8_t *nulls, size_t m, bool any)
{
	sl_parquet_writer *w = j->w;

	if (!j->column->nullable)
		return 0;
	size_t at = w->page.len;
	(void)sl__buf_put32(&w->page, 0);
	if (!any) {
		sl__hybrid_run(&w->page, 1, m, 1);
	} else {
		sl__buf_clear(&w->levels);
		if (sl__buf_reserve(&w->levels, m * sizeof(uint32_t)) != 0)
			return SL_ENOMEM;
		uint32_t *level = (uint32_t *)(void *)w->levels.data;
		for (size_t i = 0; i < m; i++)
			level[i] = nulls[i] == 0;
		sl__hybrid_put(&w->page, level, m, 1);
	}
	if (w->page.failed != 0)
		return w->page.failed;
	sl__put32(w->page.data + at, (uint32_t)(w->page.len - at - 4));
	return 0;
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
	int rc = j->encoding != PQ_RLE_DICTIONARY ? check_values(j, values, n, err) : 0;
	if (rc != 0)
		return rc;
	sl__buf_clear(&w->page);
	if (put_levels(j, null_flags, m, nulls > 0) != 0 || (n > 0 && put_values(j, *at, n) != 0))
		return no_memory(err, w->page.len);
	/* A page without values is PLAIN: nothing at all. */
	const struct sl__page_out out = {PQ_DATA_PAGE, n == 0 ? PQ_PLAIN : j->encoding, m};
	*row += m;
	*at += n;
	return sl__page_write(w, j->chunk, out, err);
}

int sl__chunk_write(sl_parquet_writer *w, size_t column, const struct sl_parquet_values *v, struct sl__group *g,
		    struct sl_err *err)
{
	struct sl__chunk *c = &g->chunks[column];
	struct chunk_job j = {.w = w, .column = &w->columns[column], .chunk = c, .rows = (size_t)g->rows};
	struct sl__bounds_out b;

	*c = (struct sl__chunk){.dictionary_offset = -1, .data_offset = -1};
	sl__page_new_chunk(w);
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
		return no_memory(err, (size_t)b.len[0] + b.len[1]);
	c->min_len = b.len[0];
	c->max_len = b.len[1];
	if (b.len[0] > 0)
		memcpy(c->bounds, b.data[0], b.len[0]);
	if (b.len[1] > 0)
		memcpy(c->bounds + b.len[0], b.data[1], b.len[1]);
	return 0;
}
