/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The footer: FileMetaData in Thrift's compact protocol, its length in four bytes, the magic. Field numbers are those
 * of parquet.thrift; docs/formats/parquet.md goes through them.
 */
#include "parquet/thrift.h"
#include "parquet/writer.h"

#define VERSION 2 /* of the format: nanoseconds and delta encodings are of version 2 */

/* The older form of the logical type, for readers that do not know the newer one. */
static int32_t converted_type(const struct sl_parquet_column *c)
{
	switch (c->kind) {
	case SL_PARQUET_STRING:
		return PQ_CONV_UTF8;
	case SL_PARQUET_DATE:
		return PQ_CONV_DATE;
	case SL_PARQUET_DECIMAL:
		return PQ_CONV_DECIMAL;
	case SL_PARQUET_TIMESTAMP:
		if (c->local) /* the converted types are of UTC */
			return PQ_CONV_NONE;
		return c->unit == SL_PARQUET_MILLIS   ? PQ_CONV_TIMESTAMP_MILLIS
		       : c->unit == SL_PARQUET_MICROS ? PQ_CONV_TIMESTAMP_MICROS
						      : PQ_CONV_NONE;
	default:
		return PQ_CONV_NONE;
	}
}

static void empty_struct(struct sl__thrift_out *t, int id)
{
	sl__thrift_begin(t, id);
	sl__thrift_end(t);
}

static void put_schema_column(struct sl__thrift_out *t, const struct sl_parquet_column *c)
{
	int32_t converted = converted_type(c);

	sl__thrift_begin_element(t);
	sl__thrift_i32(t, 1, (int32_t)sl__pq_physical(c));
	if (c->kind == SL_PARQUET_FIXED)
		sl__thrift_i32(t, 2, c->length);
	sl__thrift_i32(t, 3, c->nullable ? 1 : 0);
	sl__thrift_string(t, 4, c->name);
	if (converted != PQ_CONV_NONE)
		sl__thrift_i32(t, 6, converted);
	if (c->kind == SL_PARQUET_DECIMAL) {
		sl__thrift_i32(t, 7, c->scale);
		sl__thrift_i32(t, 8, c->precision);
	}
	if (c->kind == SL_PARQUET_STRING || c->kind == SL_PARQUET_DATE) {
		sl__thrift_begin(t, 10); /* the logical type */
		empty_struct(t, c->kind == SL_PARQUET_STRING ? PQ_LOGICAL_STRING : PQ_LOGICAL_DATE);
		sl__thrift_end(t);
	} else if (c->kind == SL_PARQUET_DECIMAL) {
		sl__thrift_begin(t, 10);
		sl__thrift_begin(t, PQ_LOGICAL_DECIMAL);
		sl__thrift_i32(t, 1, c->scale);
		sl__thrift_i32(t, 2, c->precision);
		sl__thrift_end(t);
		sl__thrift_end(t);
	} else if (c->kind == SL_PARQUET_TIMESTAMP) {
		sl__thrift_begin(t, 10);
		sl__thrift_begin(t, PQ_LOGICAL_TIMESTAMP);
		sl__thrift_bool(t, 1, !c->local);
		sl__thrift_begin(t, 2);
		empty_struct(t, c->unit == SL_PARQUET_MILLIS ? 1 : c->unit == SL_PARQUET_MICROS ? 2 : 3);
		sl__thrift_end(t);
		sl__thrift_end(t);
		sl__thrift_end(t);
	}
	sl__thrift_end(t);
}

static void put_row_groups(struct sl__thrift_out *t, const sl_parquet_writer *w)
{
	sl__thrift_list(t, 4, w->n_groups, THRIFT_STRUCT);
	for (size_t g = 0; g < w->n_groups; g++) {
		const struct sl__group *group = &w->groups[g];

		sl__thrift_begin_element(t);
		sl__thrift_list(t, 1, w->n_columns, THRIFT_STRUCT);
		for (size_t i = 0; i < w->n_columns; i++) {
			const struct sl_parquet_column *column = &w->columns[i];
			const struct sl__chunk *c = &group->chunks[i];
			sl__thrift_begin_element(t);
			sl__thrift_i64(t, 2, 0); /* file_offset: deprecated, 0 as the format asks */
			sl__thrift_begin(t, 3);
			sl__thrift_i32(t, 1, (int32_t)sl__pq_physical(column));
			sl__thrift_list(t, 2, (size_t)__builtin_popcount(c->encodings), THRIFT_I32);
			for (int e = 0; e < 32; e++)
				if (c->encodings >> e & 1)
					sl__thrift_varint(t->buf, sl__zigzag(e));
			sl__thrift_list(t, 3, 1, THRIFT_BINARY);
			sl__thrift_varint(t->buf, strlen(column->name));
			(void)sl__buf_str_append(t->buf, column->name);
			sl__thrift_i32(t, 4, w->zstd_level != 0 ? PQ_ZSTD : PQ_UNCOMPRESSED);
			sl__thrift_i64(t, 5, group->rows);
			sl__thrift_i64(t, 6, c->uncompressed_bytes);
			sl__thrift_i64(t, 7, c->bytes);
			sl__thrift_i64(t, 9, c->data_offset);
			if (c->dictionary_offset >= 0)
				sl__thrift_i64(t, 11, c->dictionary_offset);

			sl__thrift_begin(t, 12); /* statistics */
			sl__thrift_i64(t, 3, c->nulls);
			if (c->bounds != NULL) {
				sl__thrift_binary(t, 5, c->bounds + c->min_len, c->max_len);
				sl__thrift_binary(t, 6, c->bounds, c->min_len);
				sl__thrift_bool(t, 7, true);
				sl__thrift_bool(t, 8, true);
			}
			sl__thrift_end(t);
			sl__thrift_end(t);
			sl__thrift_end(t);
		}
		sl__thrift_i64(t, 2, group->uncompressed_bytes);
		sl__thrift_i64(t, 3, group->rows);
		sl__thrift_i64(t, 5, group->offset);
		sl__thrift_i64(t, 6, group->bytes);
		if (g <= INT16_MAX)
			sl__thrift_i16(t, 7, (int16_t)g);
		sl__thrift_end(t);
	}
}

int sl__footer_write(sl_parquet_writer *w, struct sl_err *err)
{
	struct sl__thrift_out out = {.buf = &w->page}, *t = &out;

	sl__buf_clear(&w->page);
	sl__thrift_i32(t, 1, VERSION);
	sl__thrift_list(t, 2, w->n_columns + 1, THRIFT_STRUCT); /* the schema: its root, and the columns */
	sl__thrift_begin_element(t);
	sl__thrift_string(t, 4, "schema");
	sl__thrift_i32(t, 5, (int32_t)w->n_columns);
	sl__thrift_end(t);
	for (size_t i = 0; i < w->n_columns; i++)
		put_schema_column(t, &w->columns[i]);
	sl__thrift_i64(t, 3, (int64_t)w->rows);
	put_row_groups(t, w);
	if (w->n_metadata > 0)
		sl__thrift_list(t, 5, w->n_metadata, THRIFT_STRUCT);
	for (size_t i = 0; i < w->n_metadata; i++) {
		sl__thrift_begin_element(t);
		sl__thrift_string(t, 1, w->metadata[i].key);
		if (w->metadata[i].value != NULL)
			sl__thrift_string(t, 2, w->metadata[i].value);
		sl__thrift_end(t);
	}
	sl__thrift_string(t, 6, w->created_by);
	/* The order of each column's bounds: that of its type. Arrow ignores bounds without it. */
	sl__thrift_list(t, 7, w->n_columns, THRIFT_STRUCT);
	for (size_t i = 0; i < w->n_columns; i++) {
		sl__thrift_begin_element(t);
		empty_struct(t, 1);
		sl__thrift_end(t);
	}
	(void)sl__buf_append(&w->page, "", 1);

	size_t n = w->page.len;
	if (n > INT32_MAX)
		return sl_err_set(err, SL_ETOOBIG, "parquet: a footer of %zu bytes", n);
	(void)sl__buf_put32(&w->page, (uint32_t)n);
	(void)sl__buf_append(&w->page, PQ_MAGIC, PQ_MAGIC_BYTES);
	if (w->page.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "parquet: out of memory for the footer");
	return sl__writer_emit(w, w->page.data, w->page.len, err);
}
