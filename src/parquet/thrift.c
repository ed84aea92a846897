/* SPDX-License-Identifier: Apache-2.0 */
/* Thrift's compact protocol, written and read. */
#include "parquet/thrift.h"

/* ---- writing ---- */

static void put_byte(struct sl__buf *b, unsigned v)
{
	uint8_t byte = (uint8_t)v;

	(void)sl__buf_append(b, &byte, 1);
}

void sl__thrift_varint(struct sl__buf *b, uint64_t v)
{
	uint8_t bytes[10];
	size_t n = 0;

	for (; v >= 128; v >>= 7)
		bytes[n++] = (uint8_t)(v | 128);
	bytes[n++] = (uint8_t)v;
	(void)sl__buf_append(b, bytes, n);
}

/* Ids grow within a struct: the short form holds a step of 1 to 15. */
static void put_field_header(struct sl__thrift_out *t, int id, enum thrift_type type)
{
	int step = id - t->last[t->depth];

	if (step > 0 && step < 16) {
		put_byte(t->buf, (unsigned)step << 4 | (unsigned)type);
	} else {
		put_byte(t->buf, type);
		sl__thrift_varint(t->buf, sl__zigzag(id));
	}
	t->last[t->depth] = id;
}

void sl__thrift_i16(struct sl__thrift_out *t, int id, int16_t v)
{
	put_field_header(t, id, THRIFT_I16);
	sl__thrift_varint(t->buf, sl__zigzag(v));
}

void sl__thrift_i32(struct sl__thrift_out *t, int id, int32_t v)
{
	put_field_header(t, id, THRIFT_I32);
	sl__thrift_varint(t->buf, sl__zigzag(v));
}

void sl__thrift_i64(struct sl__thrift_out *t, int id, int64_t v)
{
	put_field_header(t, id, THRIFT_I64);
	sl__thrift_varint(t->buf, sl__zigzag(v));
}

void sl__thrift_bool(struct sl__thrift_out *t, int id, bool v)
{
	put_field_header(t, id, v ? THRIFT_TRUE : THRIFT_FALSE);
}

void sl__thrift_binary(struct sl__thrift_out *t, int id, const void *p, size_t n)
{
	put_field_header(t, id, THRIFT_BINARY);
	sl__thrift_varint(t->buf, n);
	(void)sl__buf_append(t->buf, p, n);
}

void sl__thrift_string(struct sl__thrift_out *t, int id, const char *s)
{
	sl__thrift_binary(t, id, s, strlen(s));
}

void sl__thrift_list(struct sl__thrift_out *t, int id, size_t n, enum thrift_type type)
{
	put_field_header(t, id, THRIFT_LIST);
	if (n < 15) {
		put_byte(t->buf, (unsigned)n << 4 | (unsigned)type);
	} else {
		put_byte(t->buf, 0xF0u | (unsigned)type);
		sl__thrift_varint(t->buf, n);
	}
}

void sl__thrift_begin_element(struct sl__thrift_out *t)
{
	assert(t->depth + 1 < THRIFT_DEPTH);
	t->last[++t->depth] = 0;
}

void sl__thrift_begin(struct sl__thrift_out *t, int id)
{
	put_field_header(t, id, THRIFT_STRUCT);
	sl__thrift_begin_element(t);
}

void sl__thrift_end(struct sl__thrift_out *t)
{
	put_byte(t->buf, THRIFT_STOP);
	t->depth--;
}

/* ---- reading ---- */

void sl__thrift_fail(struct sl__thrift_in *t, const char *why)
{
	if (t->bad == NULL)
		t->bad = why;
	t->at = t->end;
}

static unsigned get_byte(struct sl__thrift_in *t)
{
	if (t->at < t->end)
		return *t->at++;
	sl__thrift_fail(t, "ends too early");
	return 0;
}

uint64_t sl__thrift_get_varint(struct sl__thrift_in *t)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		unsigned byte = get_byte(t);
		v |= (uint64_t)(byte & 127) << shift;
		if (byte < 128)
			return v;
	}
	sl__thrift_fail(t, "a number of more than ten bytes");
	return 0;
}

struct sl__thrift_field sl__thrift_next(struct sl__thrift_in *t)
{
	unsigned byte = get_byte(t), type = byte & 15;

	if (t->bad == NULL && type > THRIFT_STRUCT)
		sl__thrift_fail(t, "an unknown type");
	if (t->bad != NULL || type == THRIFT_STOP) {
		t->depth -= t->depth > 0;
		return (struct sl__thrift_field){0, THRIFT_STOP};
	}
	int64_t id = byte >> 4 != 0 ? t->last[t->depth] + (int64_t)(byte >> 4) : sl__unzigzag(sl__thrift_get_varint(t));
	if (id < 0 || id > INT16_MAX)
		sl__thrift_fail(t, "a field's number is out of range");
	t->last[t->depth] = (int)id;
	return t->bad == NULL ? (struct sl__thrift_field){(int)id, (enum thrift_type)type}
			      : (struct sl__thrift_field){0, THRIFT_STOP};
}

int64_t sl__thrift_get_int(struct sl__thrift_in *t, enum thrift_type type)
{
	if (type != THRIFT_I16 && type != THRIFT_I32 && type != THRIFT_I64) {
		sl__thrift_fail(t, "a number is of another type");
		return 0;
	}
	int64_t v = sl__unzigzag(sl__thrift_get_varint(t));
	if ((type == THRIFT_I32 && v != (int32_t)v) || (type == THRIFT_I16 && v != (int16_t)v))
		sl__thrift_fail(t, "a number is out of its range");
	return t->bad == NULL ? v : 0;
}

const uint8_t *sl__thrift_get_binary(struct sl__thrift_in *t, enum thrift_type type, size_t *n)
{
	*n = 0;
	if (type != THRIFT_BINARY)
		sl__thrift_fail(t, "a text is of another type");
	uint64_t len = sl__thrift_get_varint(t);
	if (len > (uint64_t)(t->end - t->at))
		sl__thrift_fail(t, "a string is longer than the remaining bytes");
	if (t->bad != NULL)
		return NULL;
	const uint8_t *p = t->at;
	t->at += len;
	*n = (size_t)len;
	return p;
}

/* Every element takes at least one byte. */
static size_t list_header(struct sl__thrift_in *t, unsigned *element)
{
	unsigned byte = get_byte(t);
	uint64_t n = byte >> 4 == 15 ? sl__thrift_get_varint(t) : byte >> 4;

	*element = byte & 15;
	if (n > (uint64_t)(t->end - t->at))
		sl__thrift_fail(t, "a list is longer than the remaining bytes");
	return t->bad == NULL ? (size_t)n : 0;
}

size_t sl__thrift_get_list(struct sl__thrift_in *t, enum thrift_type type, enum thrift_type element)
{
	unsigned have = 0;

	if (type != THRIFT_LIST)
		sl__thrift_fail(t, "a list is of another type");
	size_t n = list_header(t, &have);
	if (n > 0 && have != element)
		sl__thrift_fail(t, "a list holds another type");
	return t->bad == NULL ? n : 0;
}

void sl__thrift_enter(struct sl__thrift_in *t, enum thrift_type type)
{
	if (type != THRIFT_STRUCT)
		sl__thrift_fail(t, "a struct is of another type");
	else if (t->depth + 1 >= THRIFT_DEPTH)
		sl__thrift_fail(t, "structs are nested too deep");
	else
		t->last[++t->depth] = 0;
}

static void skip_bytes(struct sl__thrift_in *t, size_t n)
{
	if (n > (size_t)(t->end - t->at))
		sl__thrift_fail(t, "ends too early");
	else
		t->at += n;
}

static void skip_thrift_value(struct sl__thrift_in *t, unsigned type, int depth)
{
	unsigned byte, element = 0;
	size_t n;

	if (depth >= THRIFT_DEPTH) {
		sl__thrift_fail(t, "structs are nested too deep");
		return;
	}
	switch (type) {
	case THRIFT_TRUE:
	case THRIFT_FALSE:
		break;
	case THRIFT_BYTE:
		skip_bytes(t, 1);
		break;
	case THRIFT_I16:
	case THRIFT_I32:
	case THRIFT_I64:
		(void)sl__thrift_get_varint(t);
		break;
	case THRIFT_DOUBLE:
		skip_bytes(t, 8);
		break;
	case THRIFT_BINARY:
		(void)sl__thrift_get_binary(t, THRIFT_BINARY, &n);
		break;
	case THRIFT_LIST:
	case THRIFT_SET:
		for (n = list_header(t, &element); n > 0 && t->bad == NULL; n--) {
			/* A bool in a list has its own byte. */
			if (element == THRIFT_TRUE || element == THRIFT_FALSE)
				skip_bytes(t, 1);
			else
				skip_thrift_value(t, element, depth + 1);
		}
		break;
	case THRIFT_STRUCT:
		while (t->bad == NULL && ((byte = get_byte(t)) & 15) != THRIFT_STOP) {
			if (byte >> 4 == 0)
				(void)sl__thrift_get_varint(t);
			skip_thrift_value(t, byte & 15, depth + 1);
		}
		break;
	default: /* Parquet has no maps */
		sl__thrift_fail(t, "an unknown type");
	}
}

void sl__thrift_skip(struct sl__thrift_in *t, enum thrift_type type)
{
	skip_thrift_value(t, type, t->depth);
}
