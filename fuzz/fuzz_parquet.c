/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a Parquet file, or as the pages of one column in a file whose footer and headers are right (a CRC would
 * keep most inputs out): nothing outside of the bytes is touched, memory stays within its limit, and what can be read
 * can be written and then reads back as the same values.
 */
#include <stdlib.h>

#include "must.h"
#include "parquet/column.h"
#include "parquet/thrift.h"

#define MAX_CHUNK (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sl_env env;

/* ---- a file around pages ---- */

struct pages {
	struct sl_parquet_column column;
	enum pq_encoding encoding;
	uint32_t rows, entries; /* of the data page and of the dictionary */
	const uint8_t *dictionary, *data;
	size_t dictionary_n, data_n;
};

static void put_page(struct sl__buf *b, enum pq_page kind, const uint8_t *body, size_t n, uint32_t values,
		     enum pq_encoding encoding)
{
	struct sl__thrift_out t = {.buf = b};

	sl__thrift_i32(&t, 1, (int32_t)kind);
	sl__thrift_i32(&t, 2, (int32_t)n);
	sl__thrift_i32(&t, 3, (int32_t)n);
	sl__thrift_begin(&t, kind == PQ_DATA_PAGE ? 5 : 7);
	sl__thrift_i32(&t, 1, (int32_t)values);
	sl__thrift_i32(&t, 2, (int32_t)encoding);
	sl__thrift_end(&t);
	MUST(sl__buf_append(b, "", 1) == 0);
	MUST(sl__buf_append(b, body, n) == 0);
}

static void put_schema(struct sl__thrift_out *t, const struct sl_parquet_column *c)
{
	sl__thrift_list(t, 2, 2, THRIFT_STRUCT);
	sl__thrift_begin_element(t);
	sl__thrift_string(t, 4, "schema");
	sl__thrift_i32(t, 5, 1);
	sl__thrift_end(t);
	sl__thrift_begin_element(t);
	sl__thrift_i32(t, 1, (int32_t)sl__pq_physical(c));
	sl__thrift_i32(t, 2, c->length);
	sl__thrift_i32(t, 3, c->nullable);
	sl__thrift_string(t, 4, "c");
	if (c->kind == SL_PARQUET_STRING)
		sl__thrift_i32(t, 6, PQ_CONV_UTF8);
	sl__thrift_end(t);
}

static void put_group(struct sl__thrift_out *t, const struct pages *p, size_t bytes)
{
	sl__thrift_list(t, 4, 1, THRIFT_STRUCT);
	sl__thrift_begin_element(t);
	sl__thrift_list(t, 1, 1, THRIFT_STRUCT);
	sl__thrift_begin_element(t);
	sl__thrift_begin(t, 3);
	sl__thrift_i32(t, 1, (int32_t)sl__pq_physical(&p->column));
	sl__thrift_list(t, 3, 1, THRIFT_BINARY);
	sl__thrift_varint(t->buf, 1);
	MUST(sl__buf_append(t->buf, "c", 1) == 0);
	sl__thrift_i32(t, 4, PQ_UNCOMPRESSED);
	sl__thrift_i64(t, 5, p->rows);
	sl__thrift_i64(t, 6, (int64_t)bytes);
	sl__thrift_i64(t, 7, (int64_t)bytes);
	sl__thrift_i64(t, 9, PQ_MAGIC_BYTES);
	sl__thrift_end(t);
	sl__thrift_end(t);
	sl__thrift_i64(t, 2, (int64_t)bytes);
	sl__thrift_i64(t, 3, p->rows);
	sl__thrift_end(t);
}

static void put_file(struct sl__buf *b, const struct pages *p)
{
	struct sl__thrift_out t = {.buf = b};

	MUST(sl__buf_append(b, PQ_MAGIC, PQ_MAGIC_BYTES) == 0);
	if (p->dictionary_n > 0)
		put_page(b, PQ_DICTIONARY_PAGE, p->dictionary, p->dictionary_n, p->entries, PQ_PLAIN);
	put_page(b, PQ_DATA_PAGE, p->data, p->data_n, p->rows, p->encoding);
	size_t end = b->len;
	sl__thrift_i32(&t, 1, 1);
	put_schema(&t, &p->column);
	sl__thrift_i64(&t, 3, p->rows);
	put_group(&t, p, end - PQ_MAGIC_BYTES);
	MUST(sl__buf_append(b, "", 1) == 0);
	MUST(sl__buf_put32(b, (uint32_t)(b->len - end)) == 0);
	MUST(sl__buf_append(b, PQ_MAGIC, PQ_MAGIC_BYTES) == 0);
}

/* kind, encoding, rows, entries, bytes of the dictionary (two of each number), the dictionary, the page. */
static bool take_pages(struct pages *p, const uint8_t *d, size_t n)
{
	static const enum sl_parquet_kind kinds[] = {SL_PARQUET_BOOL,   SL_PARQUET_INT32,  SL_PARQUET_INT64,
						     SL_PARQUET_FLOAT,  SL_PARQUET_DOUBLE, SL_PARQUET_STRING,
						     SL_PARQUET_BINARY, SL_PARQUET_FIXED};

	if (n < 8)
		return false;
	*p = (struct pages){
		.column = {.name = "c", .kind = kinds[d[0] & 7], .nullable = d[0] >> 3 & 1, .length = 1 + (d[0] >> 4)},
		.encoding = (enum pq_encoding)(d[1] & 15),
		.rows = d[2] | (uint32_t)d[3] << 8,
		.entries = d[4] | (uint32_t)d[5] << 8};
	size_t dictionary = d[6] | (size_t)d[7] << 8;
	p->dictionary = d + 8;
	p->dictionary_n = SL_MIN(dictionary, n - 8);
	p->data = d + 8 + p->dictionary_n;
	p->data_n = n - 8 - p->dictionary_n;
	return true;
}

/* ---- what is read is written and read again ---- */

static int append(const void *bytes, size_t n, struct sl_err *err, void *ctx)
{
	(void)err;
	return sl__buf_append(ctx, bytes, n);
}

static void compare(const struct sl_parquet_column *c, const struct sl_parquet_values *a,
		    const struct sl_parquet_values *b, size_t n)
{
	size_t entry = sl__pq_entry_bytes(c);

	for (size_t i = 0; i < n; i++) {
		const char *x = (const char *)a->values + i * entry, *y = (const char *)b->values + i * entry;
		bool null = a->nulls != NULL && a->nulls[i] != 0;
		MUST(null == (b->nulls != NULL && b->nulls[i] != 0));
		if (sl__pq_physical(c) == PQ_BYTE_ARRAY) {
			const struct sl_parquet_bytes *s = (const void *)x, *t = (const void *)y;
			MUST(s->len == t->len && (s->len == 0 || memcmp(s->data, t->data, s->len) == 0));
		} else {
			MUST(memcmp(x, y, entry) == 0);
		}
	}
}

static void again(const struct sl_parquet_column *c, const struct sl_parquet_values *v, size_t n)
{
	struct sl_parquet_writer_opts opts = {SL_PARQUET_WRITER_OPTS_INIT, .check_utf8 = SL_OFF, .zstd_level = SL_NONE,
					      .row_group_rows = n > 0 ? (int64_t)n : 1,
					      .row_group_bytes = INT64_C(1) << 31};
	struct sl_parquet_column column = *c;
	struct sl_parquet_values got;
	sl_parquet_writer *w = NULL;
	sl_parquet_reader *r = NULL;
	struct sl__buf file;

	column.name = "c"; /* names of the input may be empty */
	sl__buf_init(&file, &env);
	MUST(sl_parquet_writer_new(&w, &column, 1, &opts, append, &file, NULL) == 0);
	MUST(sl_parquet_writer_put(w, v, n, NULL) == 0);
	MUST(sl_parquet_writer_finish(w, NULL) == 0);
	sl_parquet_writer_free(w);
	MUST(sl_parquet_reader_open_memory(&r, file.data, file.len, NULL, NULL) == 0);
	if (n > 0) {
		MUST(sl_parquet_reader_read(r, 0, 0, &got, NULL) == 0);
		compare(c, v, &got, n);
	}
	sl_parquet_reader_close(r);
	sl__buf_fini(&file);
}

static void read_file(const char *bytes, size_t n)
{
	struct sl_parquet_reader_opts opts = {SL_PARQUET_READER_OPTS_INIT, .max_chunk_bytes = MAX_CHUNK};
	struct sl_parquet_info info = {.struct_size = sizeof(info)};
	struct sl_parquet_chunk chunk = {.struct_size = sizeof(chunk)};
	struct sl_parquet_values v;
	struct sl_err err = SL_ERR_INIT;
	sl_parquet_reader *r = NULL;
	int rc = sl_parquet_reader_open_memory(&r, bytes, n, &opts, &err);

	MUST(rc == 0 || ((rc == SL_ECORRUPT || rc == SL_EUNSUPPORTED || rc == SL_ETOOBIG) && err.msg[0] != '\0'));
	if (rc != 0)
		return;
	sl_parquet_reader_get_info(r, &info);
	for (size_t g = 0; g < info.row_groups && g < 8; g++) {
		for (size_t c = 0; c < info.n_columns && c < 16; c++) {
			MUST(sl_parquet_reader_get_chunk(r, g, c, &chunk, NULL) == 0);
			rc = sl_parquet_reader_read(r, g, c, &v, &err);
			MUST(rc == 0 || rc == SL_ECORRUPT || rc == SL_EUNSUPPORTED || rc == SL_ETOOBIG);
			if (rc == 0)
				again(&info.columns[c], &v, (size_t)chunk.rows);
		}
	}
	rc = sl_parquet_reader_check(r, &err);
	MUST(rc == 0 || rc == SL_ECORRUPT || rc == SL_EUNSUPPORTED || rc == SL_ETOOBIG);
	sl_parquet_reader_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pages p;
	struct sl__buf made;

	MUST(sl__env_init(&env, NULL, NULL) == 0);
	if (size == 0)
		return 0;
	sl__buf_init(&made, &env);
	if (data[0] == 'P')
		MUST(sl__buf_append(&made, data, size) == 0);
	else if (take_pages(&p, data + 1, size - 1))
		put_file(&made, &p);
	if (made.len > 0) {
		char *file = malloc(made.len); /* ends where its memory ends */
		MUST(file != NULL);
		memcpy(file, made.data, made.len);
		read_file(file, made.len);
		free(file);
	}
	sl__buf_fini(&made);
	return 0;
}
