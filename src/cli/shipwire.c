/* SPDX-License-Identifier: Apache-2.0 */
#include "shipwire.h"

#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

void ship_buf_add(struct ship_buf *b, const void *data, size_t n)
{
	size_t cap = b->cap ? b->cap : 4096;
	char *grown;

	while (!b->failed && cap - b->n < n)
		cap *= 2;
	if (!b->failed && cap != b->cap) {
		grown = realloc(b->data, cap);
		if (grown) {
			b->data = grown;
			b->cap = cap;
		}
		b->failed = !grown;
	}
	if (b->failed || n == 0)
		return;
	memcpy(b->data + b->n, data, n);
	b->n += n;
}

void ship_buf_fini(struct ship_buf *b)
{
	free(b->data);
	*b = (struct ship_buf){.data = NULL};
}

static size_t put_varint(unsigned char *to, uint64_t value)
{
	size_t n = 0;

	do {
		to[n++] = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
		value >>= 7;
	} while (value);
	return n;
}

void ship_put_number(struct ship_buf *b, unsigned field, uint64_t value)
{
	unsigned char bytes[20];
	size_t n = put_varint(bytes, field << 3 | SHIP_VARINT);

	ship_buf_add(b, bytes, n + put_varint(bytes + n, value));
}

void ship_put_fixed(struct ship_buf *b, unsigned field, uint64_t value)
{
	unsigned char bytes[18];
	size_t n = put_varint(bytes, field << 3 | SHIP_FIXED64);

	for (int i = 0; i < 8; i++)
		bytes[n++] = (unsigned char)(value >> (8 * i));
	ship_buf_add(b, bytes, n);
}

void ship_put_bytes(struct ship_buf *b, unsigned field, const void *data, size_t len)
{
	unsigned char bytes[20];
	size_t n = put_varint(bytes, field << 3 | SHIP_BYTES);

	ship_buf_add(b, bytes, n + put_varint(bytes + n, len));
	ship_buf_add(b, data, len);
}

/* ---- reading ---- */

static int get_varint(struct ship_reader *r, uint64_t *out)
{
	*out = 0;
	for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
		*out |= (uint64_t)(*r->at & 0x7f) << shift;
		if (!(*r->at++ & 0x80))
			return 1;
	}
	return 0;
}

static int get_fixed(struct ship_reader *r, size_t n, uint64_t *out)
{
	if ((size_t)(r->end - r->at) < n)
		return 0;
	*out = 0;
	for (size_t i = 0; i < n; i++)
		*out |= (uint64_t)*r->at++ << (8 * i);
	return 1;
}

/* 1: a field; 0: the end, or not a message from here on. */
int ship_get_field(struct ship_reader *r, struct ship_field *f)
{
	uint64_t key;

	if (r->at == r->end || !get_varint(r, &key))
		return 0;
	*f = (struct ship_field){.number = (unsigned)(key >> 3), .type = (unsigned)(key & 7)};
	if (f->type == SHIP_VARINT)
		return get_varint(r, &f->value);
	if (f->type == SHIP_FIXED64 || f->type == SHIP_FIXED32)
		return get_fixed(r, f->type == SHIP_FIXED64 ? 8 : 4, &f->value);
	if (f->type != SHIP_BYTES || !get_varint(r, &f->value) || f->value > (uint64_t)(r->end - r->at))
		return 0;
	f->data = r->at;
	r->at += f->value;
	return 1;
}

struct ship_reader ship_reader_of(const struct ship_field *f)
{
	return (struct ship_reader){f->data, f->data ? f->data + f->value : NULL};
}
