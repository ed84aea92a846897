/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/thrift.h"

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

bool sl__thrift_get_bool(struct sl__thrift_in *t, struct sl__thrift_field f)
{
	if (f.type != THRIFT_TRUE && f.type != THRIFT_FALSE)
		sl__thrift_fail(t, "a bool is of another type");
	return f.type == THRIFT_TRUE;
}

const uint8_t *sl__thrift_get_binary(struct sl__thrift_in *t, enum thrift_type type, size_t *n)
{
	*n = 0;
	if (type != THRIFT_BINARY)
		sl__thrift_fail(t, "a text is of another type");
	uint64_t len = sl__thrift_get_varint(t);
	if (len > (uint64_t)(t->end - t->at))
		sl__thrift_fail(t, "a text is longer than what is left");
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
		sl__thrift_fail(t, "a list is longer than what is left");
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

static void skip_value(struct sl__thrift_in *t, unsigned type, int depth);

static void skip_list(struct sl__thrift_in *t, int depth)
{
	unsigned element = 0;

	for (size_t n = list_header(t, &element); n > 0 && t->bad == NULL; n--) {
		/* A bool has a byte its own in a list. */
		if (element == THRIFT_TRUE || element == THRIFT_FALSE)
			skip_bytes(t, 1);
		else
			skip_value(t, element, depth);
	}
}

static void skip_struct(struct sl__thrift_in *t, int depth)
{
	while (t->bad == NULL) {
		unsigned byte = get_byte(t);
		if ((byte & 15) == THRIFT_STOP)
			return;
		if (byte >> 4 == 0)
			(void)sl__thrift_get_varint(t);
		skip_value(t, byte & 15, depth);
	}
}

static void skip_value(struct sl__thrift_in *t, unsigned type, int depth)
{
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
		skip_list(t, depth + 1);
		break;
	case THRIFT_STRUCT:
		skip_struct(t, depth + 1);
		break;
	default: /* Parquet has no maps */
		sl__thrift_fail(t, "an unknown type");
	}
}

void sl__thrift_skip(struct sl__thrift_in *t, enum thrift_type type)
{
	skip_value(t, type, t->depth);
}
