/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thrift's compact protocol, as much of it as Parquet's headers and footer need: a writer into a buffer, whose failure
 * (no memory) sticks in the buffer, and a reader over bytes, whose failure sticks in the reader.
 *
 * Reading guarantees: never outside the bytes; structs nest at most THRIFT_DEPTH deep, also those that are skipped;
 * a list says no more elements than bytes are left, so that a caller may allocate for them.
 *
 * Thread safety: one thread at a time. Ownership: both borrow their bytes.
 */
#ifndef SL_PARQUET_THRIFT_H
#define SL_PARQUET_THRIFT_H

#include "base/buf.h"
#include "parquet/format.h"

#define THRIFT_DEPTH 16

/* ---- writing ---- */
struct sl__thrift_out {
	struct sl__buf *buf;
	int depth;
	int last[THRIFT_DEPTH]; /* the id of the last field of each open struct */
};

void sl__thrift_varint(struct sl__buf *b, uint64_t v);
void sl__thrift_i32(struct sl__thrift_out *t, int id, int32_t v);
void sl__thrift_i64(struct sl__thrift_out *t, int id, int64_t v);
void sl__thrift_i16(struct sl__thrift_out *t, int id, int16_t v);
void sl__thrift_bool(struct sl__thrift_out *t, int id, bool v);
void sl__thrift_binary(struct sl__thrift_out *t, int id, const void *p, size_t n);
void sl__thrift_string(struct sl__thrift_out *t, int id, const char *s);
void sl__thrift_list(struct sl__thrift_out *t, int id, size_t n, enum thrift_type type);
/* A struct in a field; and one that is an element of a list. Both end with end. */
void sl__thrift_begin(struct sl__thrift_out *t, int id);
void sl__thrift_begin_element(struct sl__thrift_out *t);
void sl__thrift_end(struct sl__thrift_out *t);

static inline uint64_t sl__zigzag(int64_t v)
{
	return (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
}
static inline int64_t sl__unzigzag(uint64_t v)
{
	return (int64_t)(v >> 1 ^ (~(v & 1) + 1));
}

/* ---- reading ---- */
struct sl__thrift_in {
	const uint8_t *at, *end;
	const char *bad; /* NULL, or what is wrong: every later call gives zeros */
	int depth;
	int last[THRIFT_DEPTH];
};

struct sl__thrift_field {
	int id;
	enum thrift_type type; /* THRIFT_STOP: the struct ends */
};

uint64_t sl__thrift_get_varint(struct sl__thrift_in *t);
/* The next field of the open struct; its value must be taken, or skipped, before the next call. */
struct sl__thrift_field sl__thrift_next(struct sl__thrift_in *t);
/* A value of a field or list of that type; another type is bad. */
int64_t sl__thrift_get_int(struct sl__thrift_in *t, enum thrift_type type);
/* Points into the input. */
const uint8_t *sl__thrift_get_binary(struct sl__thrift_in *t, enum thrift_type type, size_t *n);
/* The number of elements, which must be of that type. */
size_t sl__thrift_get_list(struct sl__thrift_in *t, enum thrift_type type, enum thrift_type element);
/* Enter the struct that is the value of the field or element, until its THRIFT_STOP has been read by next. */
void sl__thrift_enter(struct sl__thrift_in *t, enum thrift_type type);
void sl__thrift_skip(struct sl__thrift_in *t, enum thrift_type type);
/* Remember what is wrong, unless something was already. */
void sl__thrift_fail(struct sl__thrift_in *t, const char *why);

#endif
