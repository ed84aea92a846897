/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/thrift.h"

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
static void field(struct sl__thrift_out *t, int id, enum thrift_type type)
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
	field(t, id, THRIFT_I16);
	sl__thrift_varint(t->buf, sl__zigzag(v));
}

void sl__thrift_i32(struct sl__thrift_out *t, int id, int32_t v)
{
	field(t, id, THRIFT_I32);
	sl__thrift_varint(t->buf, sl__zigzag(v));
}

void sl__thrift_i64(struct sl__thrift_out *t, int id, int64_t v)
{
	field(t, id, THRIFT_I64);
	sl__thrift_varint(t->buf, sl__zigzag(v));
}

void sl__thrift_bool(struct sl__thrift_out *t, int id, bool v)
{
	field(t, id, v ? THRIFT_TRUE : THRIFT_FALSE);
}

void sl__thrift_binary(struct sl__thrift_out *t, int id, const void *p, size_t n)
{
	field(t, id, THRIFT_BINARY);
	sl__thrift_varint(t->buf, n);
	(void)sl__buf_append(t->buf, p, n);
}

void sl__thrift_string(struct sl__thrift_out *t, int id, const char *s)
{
	sl__thrift_binary(t, id, s, strlen(s));
}

void sl__thrift_list(struct sl__thrift_out *t, int id, size_t n, enum thrift_type type)
{
	field(t, id, THRIFT_LIST);
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
	field(t, id, THRIFT_STRUCT);
	sl__thrift_begin_element(t);
}

void sl__thrift_end(struct sl__thrift_out *t)
{
	put_byte(t->buf, THRIFT_STOP);
	t->depth--;
}
