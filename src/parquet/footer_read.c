/* SPDX-License-Identifier: Apache-2.0 */
/* FileMetaData: what footer_write.c writes, and of other files what has the same meaning. */
#include "base/utf8.h"
#include "parquet/reader.h"
#include "parquet/thrift.h"

struct parse {
	sl_parquet_reader *r;
	struct sl__thrift_in t;
	struct sl_err *err;
	int rc; /* of what is not Thrift's: SL_ENOMEM, SL_EUNSUPPORTED, SL_ECORRUPT */
	bool schema, rows, groups;
	uint64_t group_rows; /* of all groups so far */
};

static void fail_footer(struct parse *p, int rc, const char *why, const char *name)
{
	if (p->rc == 0 && p->t.bad == NULL)
		p->rc = sl_err_set(p->err, rc, "parquet: footer: %s%s%.100s%s", why, name != NULL ? " '" : "",
				   name != NULL ? name : "", name != NULL ? "'" : "");
	sl__thrift_fail(&p->t, "stopped");
}

/* Texts are kept with a NUL after: each takes at least one byte in the footer for its length, so that there is room.
 */
static const char *take_footer_text(struct parse *p, enum thrift_type type)
{
	size_t n = 0;
	const uint8_t *from = sl__thrift_get_binary(&p->t, type, &n);
	char *to = p->r->text + p->r->text_used;

	if (from == NULL)
		return "";
	memcpy(to, from, n);
	to[n] = '\0';
	if (strlen(to) != n || !sl__utf8_valid(to))
		fail_footer(p, SL_ECORRUPT, "a text that is not UTF-8, or has a NUL in it", NULL);
	p->r->text_used += n + 1;
	return to;
}

/* ---- the schema ---- */

struct element {
	const char *name;
	int64_t type, length, repetition, children, converted, scale, precision;
	int logical; /* field of the union; 0: none */
	int64_t logical_a, logical_b;
	bool utc, is_signed;
	int unit;
};

/* The one member of the union; the first two fields of those that have any. */
static void read_logical(struct parse *p, struct element *e, enum thrift_type type)
{
	struct sl__thrift_field f;

	sl__thrift_enter(&p->t, type);
	while ((f = sl__thrift_next(&p->t)).type != THRIFT_STOP) {
		e->logical = f.id;
		sl__thrift_enter(&p->t, f.type);
		while ((f = sl__thrift_next(&p->t)).type != THRIFT_STOP) {
			bool boolean = f.type == THRIFT_TRUE || f.type == THRIFT_FALSE;
			if (e->logical == PQ_LOGICAL_DECIMAL && f.id == 1) {
				e->logical_a = sl__thrift_get_int(&p->t, f.type);
			} else if (e->logical == PQ_LOGICAL_DECIMAL && f.id == 2) {
				e->logical_b = sl__thrift_get_int(&p->t, f.type);
			} else if (e->logical == PQ_LOGICAL_TIMESTAMP && f.id == 1 && boolean) {
				e->utc = f.type == THRIFT_TRUE;
			} else if (e->logical == PQ_LOGICAL_TIMESTAMP && f.id == 2) { /* the unit, another union */
				sl__thrift_enter(&p->t, f.type);
				for (e->unit = 0; (f = sl__thrift_next(&p->t)).type != THRIFT_STOP; e->unit = f.id)
					sl__thrift_skip(&p->t, f.type);
			} else if (e->logical == PQ_LOGICAL_INTEGER && f.id == 2 && boolean) {
				e->is_signed = f.type == THRIFT_TRUE;
			} else if (e->logical == PQ_LOGICAL_INTEGER && f.id == 1 && f.type == THRIFT_BYTE &&
				   p->t.at < p->t.end) {
				e->logical_a = *p->t.at++;
			} else {
				sl__thrift_skip(&p->t, f.type);
			}
		}
	}
}

static struct element read_schema_element(struct parse *p)
{
	struct element e = {.name = "", .type = -1, .converted = PQ_CONV_NONE};
	struct sl__thrift_field f;
	int64_t *numbers[] = {[1] = &e.type,      [2] = &e.length, [3] = &e.repetition, [5] = &e.children,
			      [6] = &e.converted, [7] = &e.scale,  [8] = &e.precision,  [9] = NULL};

	sl__thrift_enter(&p->t, THRIFT_STRUCT);
	while ((f = sl__thrift_next(&p->t)).type != THRIFT_STOP) {
		if (f.id == 4)
			e.name = take_footer_text(p, f.type);
		else if (f.id == 10)
			read_logical(p, &e, f.type);
		else if (f.id > 0 && (size_t)f.id < SL_COUNT(numbers) && numbers[f.id] != NULL)
			*numbers[f.id] = sl__thrift_get_int(&p->t, f.type);
		else
			sl__thrift_skip(&p->t, f.type);
	}
	return e;
}

/* logicalType wins over converted_type; 0 when what it says is none of our kinds. */
static enum sl_parquet_kind integer_kind(const struct element *e, bool wide, struct sl_parquet_column *c)
{
	enum sl_parquet_kind plain = wide ? SL_PARQUET_INT64 : SL_PARQUET_INT32;

	if (e->logical == PQ_LOGICAL_INTEGER)
		return e->is_signed && e->logical_a == (wide ? 64 : 32) ? plain : 0;
	if (e->logical == PQ_LOGICAL_TIMESTAMP && wide && e->unit >= 1 && e->unit <= 3) {
		c->local = !e->utc;
		c->unit = e->unit == 1 ? SL_PARQUET_MILLIS : e->unit == 2 ? SL_PARQUET_MICROS : SL_PARQUET_NANOS;
		return SL_PARQUET_TIMESTAMP;
	}
	bool decimal = e->logical == PQ_LOGICAL_DECIMAL || (e->logical == 0 && e->converted == PQ_CONV_DECIMAL);
	if (decimal && wide) {
		c->scale = (int32_t)(e->logical != 0 ? e->logical_a : e->scale);
		c->precision = (int32_t)(e->logical != 0 ? e->logical_b : e->precision);
		return SL_PARQUET_DECIMAL;
	}
	if (e->logical == PQ_LOGICAL_DATE || (e->logical == 0 && e->converted == PQ_CONV_DATE))
		return wide ? 0 : SL_PARQUET_DATE;
	if (e->logical != 0)
		return 0;
	if (e->converted == PQ_CONV_NONE || e->converted == (wide ? PQ_CONV_INT_64 : PQ_CONV_INT_32))
		return plain;
	if (wide && (e->converted == PQ_CONV_TIMESTAMP_MILLIS || e->converted == PQ_CONV_TIMESTAMP_MICROS)) {
		c->unit = e->converted == PQ_CONV_TIMESTAMP_MILLIS ? SL_PARQUET_MILLIS : SL_PARQUET_MICROS;
		return SL_PARQUET_TIMESTAMP;
	}
	return 0;
}

static void read_column(struct parse *p, struct sl_parquet_column *c)
{
	struct element e = read_schema_element(p);

	*c = (struct sl_parquet_column){.name = e.name, .nullable = e.repetition == 1};
	if (p->t.bad != NULL)
		return;
	if (e.children != 0 || e.repetition < 0 || e.repetition > 1) {
		fail_footer(p, SL_EUNSUPPORTED, "nested or repeated column", e.name);
		return;
	}

	bool bare = e.logical == 0 && e.converted == PQ_CONV_NONE;
	if (e.type == PQ_INT32 || e.type == PQ_INT64) {
		c->kind = integer_kind(&e, e.type == PQ_INT64, c);
	} else if (e.type == PQ_BYTE_ARRAY &&
		   (e.logical == PQ_LOGICAL_STRING || (e.logical == 0 && e.converted == PQ_CONV_UTF8))) {
		c->kind = SL_PARQUET_STRING;
	} else if (bare) {
		static const enum sl_parquet_kind kinds[] = {[PQ_BOOLEAN] = SL_PARQUET_BOOL,
							     [PQ_FLOAT] = SL_PARQUET_FLOAT,
							     [PQ_DOUBLE] = SL_PARQUET_DOUBLE,
							     [PQ_BYTE_ARRAY] = SL_PARQUET_BINARY,
							     [PQ_FIXED] = SL_PARQUET_FIXED};
		if (e.type >= 0 && (size_t)e.type < SL_COUNT(kinds))
			c->kind = kinds[e.type];
	}
	if (e.type == PQ_FIXED)
		c->length = (int32_t)e.length;
	if (c->kind == 0)
		fail_footer(p, SL_EUNSUPPORTED, "the type of column", e.name);
	else if (c->kind == SL_PARQUET_FIXED && (c->length < 1 || c->length > PQ_FIXED_MAX))
		fail_footer(p, SL_EUNSUPPORTED, "the length of column", e.name);
	else if (c->kind == SL_PARQUET_DECIMAL &&
		 (c->precision < 1 || c->precision > 18 || c->scale < 0 || c->scale > c->precision))
		fail_footer(p, SL_ECORRUPT, "the precision of column", e.name);
}

/* The root, and after it the columns: only flat schemas have a meaning here. */
static void read_schema(struct parse *p, enum thrift_type type)
{
	sl_parquet_reader *r = p->r;
	size_t n = sl__thrift_get_list(&p->t, type, THRIFT_STRUCT);

	if (p->schema || n == 0) {
		fail_footer(p, SL_ECORRUPT, "no schema, or more than one", NULL);
		return;
	}
	struct element root = read_schema_element(p);
	if (n == 1 || n - 1 > PQ_COLUMNS_MAX)
		fail_footer(p, SL_EUNSUPPORTED, "no columns, or too many", NULL);
	if (p->t.bad != NULL)
		return;
	r->columns = sl__calloc(&r->env, n, sizeof(*r->columns));
	if (r->columns == NULL) {
		fail_footer(p, SL_ENOMEM, "out of memory for columns", NULL);
		return;
	}
	for (size_t i = 0; i + 1 < n && p->t.bad == NULL; i++)
		read_column(p, &r->columns[i]);
	r->n_columns = n - 1;
	if (root.children != (int64_t)(n - 1))
		fail_footer(p, SL_ECORRUPT, "the number of columns is wrong", NULL);
	p->schema = true;
}

/* ---- row groups ---- */

struct chunk_place {
	int64_t values, dictionary, data, bytes, unpacked, type, codec;
	const uint8_t *min, *max;
	size_t min_len, max_len;
};

static void read_chunk_meta(struct parse *p, struct chunk_place *at, struct sl__rchunk *c, const char *name,
			    enum thrift_type type)
{
	struct sl__thrift_field f;
	int64_t *numbers[] = {[1] = &at->type,  [4] = &at->codec, [5] = &at->values,     [6] = &at->unpacked,
			      [7] = &at->bytes, [9] = &at->data,  [11] = &at->dictionary};

	sl__thrift_enter(&p->t, type);
	while ((f = sl__thrift_next(&p->t)).type != THRIFT_STOP) {
		if (f.id == 2) { /* encodings */
			for (size_t n = sl__thrift_get_list(&p->t, f.type, THRIFT_I32); n > 0 && p->t.bad == NULL;
			     n--) {
				int64_t e = sl__thrift_get_int(&p->t, THRIFT_I32);
				if (e >= 0 && e < 32)
					c->info.encodings |= 1u << e;
			}
		} else if (f.id == 3) {
			/* One element: flat columns have no longer path. */
			size_t n = sl__thrift_get_list(&p->t, f.type, THRIFT_BINARY), len = 0;
			const uint8_t *part = n == 1 ? sl__thrift_get_binary(&p->t, THRIFT_BINARY, &len) : NULL;

			if (part == NULL || len != strlen(name) || memcmp(part, name, len) != 0)
				fail_footer(p, SL_ECORRUPT, "a column chunk is not of its column", name);
		} else if (f.id == 12) { /* statistics */
			sl__thrift_enter(&p->t, f.type);
			while ((f = sl__thrift_next(&p->t)).type != THRIFT_STOP) {
				if (f.id == 3)
					c->info.nulls = sl__thrift_get_int(&p->t, f.type);
				else if (f.id == 5)
					at->max = sl__thrift_get_binary(&p->t, f.type, &at->max_len);
				else if (f.id == 6)
					at->min = sl__thrift_get_binary(&p->t, f.type, &at->min_len);
				else
					sl__thrift_skip(&p->t, f.type);
			}
		} else if (f.id > 0 && (size_t)f.id < SL_COUNT(numbers) && numbers[f.id] != NULL) {
			*numbers[f.id] = sl__thrift_get_int(&p->t, f.type);
		} else {
			sl__thrift_skip(&p->t, f.type);
		}
	}
}

static void read_chunk(struct parse *p, struct sl__rchunk *c, const struct sl_parquet_column *column)
{
	struct chunk_place at = {.values = -1, .data = -1, .bytes = -1, .unpacked = -1, .type = -1, .codec = -1};
	struct sl__thrift_field f;

	*c = (struct sl__rchunk){.info.nulls = -1};
	sl__thrift_enter(&p->t, THRIFT_STRUCT);
	while ((f = sl__thrift_next(&p->t)).type != THRIFT_STOP) {
		if (f.id == 1 || f.id == 8 || f.id == 9)
			fail_footer(p, SL_EUNSUPPORTED, "another file or encryption for column", column->name);
		else if (f.id == 3)
			read_chunk_meta(p, &at, c, column->name, f.type);
		else
			sl__thrift_skip(&p->t, f.type);
	}
	if (p->t.bad != NULL)
		return;
	/* Where it lies. */
	/* Some writers put 0 for "no dictionary". */
	int64_t start = at.dictionary > 0 && at.dictionary < at.data ? at.dictionary : at.data;
	uint64_t end = p->r->file_bytes - PQ_TAIL_BYTES - p->r->footer_bytes;

	if (at.type != (int64_t)sl__pq_physical(column))
		fail_footer(p, SL_ECORRUPT, "another type in the chunk than in the schema of column", column->name);
	else if (at.codec != PQ_UNCOMPRESSED && at.codec != PQ_ZSTD)
		fail_footer(p, SL_EUNSUPPORTED, "the compression of column", column->name);
	else if (at.values < 0 || at.bytes < 0 || at.unpacked < 0 || start < PQ_MAGIC_BYTES || (uint64_t)start > end ||
		 (uint64_t)at.bytes > end - (uint64_t)start || c->info.nulls < -1 || c->info.nulls > at.values)
		fail_footer(p, SL_ECORRUPT, "the place of column", column->name);
	if (p->t.bad != NULL)
		return;
	c->codec = (enum pq_codec)at.codec;
	c->info.compressed = at.codec == PQ_ZSTD;
	c->info.rows = (uint64_t)at.values;
	c->info.offset = (uint64_t)start;
	c->info.bytes = (uint64_t)at.bytes;
	c->info.uncompressed_bytes = (uint64_t)at.unpacked;

	/* Bounds, if there are two of them, have the length of a value. */
	size_t plain = sl__pq_plain_bytes(column);
	if (at.min == NULL || at.max == NULL)
		return;
	if (at.min_len > UINT32_MAX || at.max_len > UINT32_MAX ||
	    (plain != 0 && (at.min_len != plain || at.max_len != plain))) {
		fail_footer(p, SL_ECORRUPT, "the bounds of column", column->name);
		return;
	}
	c->info.has_bounds = true;
	c->info.min = (struct sl_parquet_bytes){(const char *)at.min, (uint32_t)at.min_len};
	c->info.max = (struct sl_parquet_bytes){(const char *)at.max, (uint32_t)at.max_len};
}

/* A row group: a chunk of every column, each with as many values as the group has rows. */
static void read_group(struct parse *p)
{
	sl_parquet_reader *r = p->r;
	struct sl__thrift_field f;
	int64_t rows = -1;
	bool columns = false;

	if (r->n_groups == r->groups_cap) {
		size_t cap = r->groups_cap == 0 ? 4 : r->groups_cap * 2;
		struct sl__rchunk *more = sl__realloc(&r->env, r->chunks, cap * r->n_columns * sizeof(*more));
		if (more == NULL) {
			fail_footer(p, SL_ENOMEM, "out of memory for row groups", NULL);
			return;
		}
		r->chunks = more;
		r->groups_cap = cap;
	}
	struct sl__rchunk *chunks = &r->chunks[r->n_groups * r->n_columns];
	sl__thrift_enter(&p->t, THRIFT_STRUCT);
	while ((f = sl__thrift_next(&p->t)).type != THRIFT_STOP) {
		if (f.id == 1) {
			size_t n = sl__thrift_get_list(&p->t, f.type, THRIFT_STRUCT);
			if (n != r->n_columns)
				fail_footer(p, SL_ECORRUPT, "a row group with another number of columns", NULL);
			for (size_t i = 0; i < n && p->t.bad == NULL; i++)
				read_chunk(p, &chunks[i], &r->columns[i]);
			columns = true;
		} else if (f.id == 3) {
			rows = sl__thrift_get_int(&p->t, f.type);
		} else {
			sl__thrift_skip(&p->t, f.type);
		}
	}
	for (size_t i = 0; i < r->n_columns && columns && p->t.bad == NULL; i++)
		if (chunks[i].info.rows != (uint64_t)rows)
			fail_footer(p, SL_ECORRUPT, "another number of values than rows in column", r->columns[i].name);
	if (!columns || rows < 0)
		fail_footer(p, SL_ECORRUPT, "a row group without columns or rows", NULL);
	r->n_groups++;
	p->group_rows += (uint64_t)rows;
}

/* ---- the rest ---- */

/* Pairs of key and value; only the first list of them is kept. */
static void read_metadata(struct parse *p, enum thrift_type type)
{
	sl_parquet_reader *r = p->r;
	struct sl__thrift_field f;
	size_t n = sl__thrift_get_list(&p->t, type, THRIFT_STRUCT);

	if (n == 0 || r->metadata != NULL)
		return;
	r->metadata = sl__calloc(&r->env, n, sizeof(*r->metadata));
	if (r->metadata == NULL)
		fail_footer(p, SL_ENOMEM, "out of memory for metadata", NULL);
	for (size_t i = 0; i < n && p->t.bad == NULL; i++) {
		struct sl_parquet_pair *pair = &r->metadata[i];
		*pair = (struct sl_parquet_pair){"", NULL};
		sl__thrift_enter(&p->t, THRIFT_STRUCT);
		while ((f = sl__thrift_next(&p->t)).type != THRIFT_STOP) {
			if (f.id == 1)
				pair->key = take_footer_text(p, f.type);
			else if (f.id == 2)
				pair->value = take_footer_text(p, f.type);
			else
				sl__thrift_skip(&p->t, f.type);
		}
	}
	r->n_metadata = n;
}

int sl__footer_parse(sl_parquet_reader *r, struct sl_err *err)
{
	const uint8_t *from = (const uint8_t *)r->footer;
	struct parse p = {.r = r, .err = err, .t = {.at = from, .end = from + r->footer_bytes}};
	struct sl__thrift_field f;

	r->created_by = "";
	while ((f = sl__thrift_next(&p.t)).type != THRIFT_STOP) {
		if (f.id == 2) {
			read_schema(&p, f.type);
		} else if (f.id == 3) {
			int64_t rows = sl__thrift_get_int(&p.t, f.type);
			p.rows = rows >= 0;
			r->rows = (uint64_t)rows;
		} else if (f.id == 4) {
			size_t n = sl__thrift_get_list(&p.t, f.type, THRIFT_STRUCT);
			if (!p.schema || p.groups)
				fail_footer(&p, SL_ECORRUPT, "row groups before the schema, or twice", NULL);
			for (size_t i = 0; i < n && p.t.bad == NULL; i++)
				read_group(&p);
			p.groups = true;
		} else if (f.id == 5) {
			read_metadata(&p, f.type);
		} else if (f.id == 6) {
			r->created_by = take_footer_text(&p, f.type);
		} else if (f.id == 8) {
			fail_footer(&p, SL_EUNSUPPORTED, "the file is encrypted", NULL);
		} else {
			sl__thrift_skip(&p.t, f.type);
		}
	}
	if (p.rc != 0)
		return p.rc;
	if (p.t.bad != NULL)
		return sl_err_set(err, SL_ECORRUPT, "parquet: footer: %s", p.t.bad);
	if (!p.schema || !p.rows || !p.groups)
		return sl_err_set(err, SL_ECORRUPT,
				  "parquet: footer: the schema, the rows or the row groups are missing");
	if (p.group_rows != r->rows)
		return sl_err_set(err, SL_ECORRUPT, "parquet: footer: %llu rows, but %llu in its row groups",
				  (unsigned long long)r->rows, (unsigned long long)p.group_rows);
	return 0;
}
