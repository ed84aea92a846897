/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values in the server's binary format: big-endian numbers, times as microseconds since 2000-01-01 UTC, arrays as
 *
 *	int32 dimensions (0 or 1) | int32 has nulls | int32 element type | int32 length | int32 first index (1)
 *	then each element as int32 length (-1: NULL) and its bytes
 *
 * Parameters are written one after the other into a buffer that may move, so they are kept as offsets.
 */
#include <endian.h>
#include <limits.h>

#include "db/postgres.h"

#define EPOCH_2000_US INT64_C(946684800000000)

void sl__pg_params_init(struct sl__pg_params *p, const struct sl_env *env)
{
	sl__buf_init(&p->data, env);
	p->n = 0;
	p->array_at = 0;
}

void sl__pg_params_fini(struct sl__pg_params *p)
{
	sl__buf_fini(&p->data);
	p->n = 0;
}

void sl__pg_params_clear(struct sl__pg_params *p)
{
	sl__buf_clear(&p->data);
	p->n = 0;
}

static void put32(struct sl__buf *b, uint32_t v)
{
	uint32_t be = htobe32(v);
	(void)sl__buf_append(b, &be, sizeof(be));
}

static void put64(struct sl__buf *b, uint64_t v)
{
	uint64_t be = htobe64(v);
	(void)sl__buf_append(b, &be, sizeof(be));
}

/* Saturates instead of overflowing: the server then refuses the time. */
static uint64_t ms_to_us(int64_t ms)
{
	int64_t us;
	if (__builtin_mul_overflow(ms, (int64_t)1000, &us))
		us = ms > 0 ? INT64_MAX : INT64_MIN;
	return (uint64_t)us;
}

static uint64_t time_us(int64_t unix_ms)
{
	int64_t us;
	if (__builtin_sub_overflow((int64_t)ms_to_us(unix_ms), EPOCH_2000_US, &us))
		us = unix_ms > 0 ? INT64_MAX - 1 : INT64_MIN + 1;
	return (uint64_t)us;
}

/* ---- single values ---- */

static void begin(struct sl__pg_params *p)
{
	assert(p->n < SL__PG_PARAMS);
	p->p[p->n].at = p->data.len;
}

static void end(struct sl__pg_params *p)
{
	size_t len = p->data.len - p->p[p->n].at;
	if (len > INT_MAX)
		p->data.failed = SL_ENOMEM;
	p->p[p->n++].len = (int)len;
}

void sl__pg_add_null(struct sl__pg_params *p)
{
	begin(p);
	p->p[p->n++].len = -1;
}

void sl__pg_add_bool(struct sl__pg_params *p, bool v)
{
	begin(p);
	(void)sl__buf_append(&p->data, v ? "\1" : "\0", 1);
	end(p);
}

void sl__pg_add_int4(struct sl__pg_params *p, int32_t v)
{
	begin(p);
	put32(&p->data, (uint32_t)v);
	end(p);
}

void sl__pg_add_int8(struct sl__pg_params *p, int64_t v)
{
	begin(p);
	put64(&p->data, (uint64_t)v);
	end(p);
}

void sl__pg_add_text(struct sl__pg_params *p, const char *s)
{
	if (s == NULL) {
		sl__pg_add_null(p);
		return;
	}
	begin(p);
	(void)sl__buf_str_append(&p->data, s);
	end(p);
}

void sl__pg_add_time(struct sl__pg_params *p, int64_t unix_ms)
{
	if (unix_ms == 0) {
		sl__pg_add_null(p);
		return;
	}
	begin(p);
	put64(&p->data, time_us(unix_ms));
	end(p);
}

void sl__pg_add_interval(struct sl__pg_params *p, int64_t ms)
{
	begin(p);
	put64(&p->data, ms_to_us(ms));
	put64(&p->data, 0); /* days and months */
	end(p);
}

void sl__pg_add_uuid(struct sl__pg_params *p, const uint8_t bytes[16])
{
	begin(p);
	(void)sl__buf_append(&p->data, bytes, 16);
	end(p);
}

/* ---- arrays: the last parameter grows while elements are added ---- */

void sl__pg_add_array(struct sl__pg_params *p, enum sl__pg_oid element, size_t n)
{
	begin(p);
	put32(&p->data, n > 0 ? 1 : 0);
	put32(&p->data, 1);
	put32(&p->data, (uint32_t)element);
	if (n > 0) {
		put32(&p->data, (uint32_t)n);
		put32(&p->data, 1);
	}
	if (n > INT_MAX / 8)
		p->data.failed = SL_ENOMEM;
	end(p);
}

static void grow_array(struct sl__pg_params *p)
{
	p->n--;
	end(p);
}

static void el_null(struct sl__pg_params *p)
{
	put32(&p->data, UINT32_MAX);
	grow_array(p);
}

void sl__pg_el_bool(struct sl__pg_params *p, bool v)
{
	put32(&p->data, 1);
	(void)sl__buf_append(&p->data, v ? "\1" : "\0", 1);
	grow_array(p);
}

void sl__pg_el_int4(struct sl__pg_params *p, int32_t v)
{
	put32(&p->data, 4);
	put32(&p->data, (uint32_t)v);
	grow_array(p);
}

void sl__pg_el_int8(struct sl__pg_params *p, int64_t v)
{
	put32(&p->data, 8);
	put64(&p->data, (uint64_t)v);
	grow_array(p);
}

void sl__pg_el_bytes(struct sl__pg_params *p, const void *data, size_t n)
{
	if (n > INT_MAX)
		p->data.failed = SL_ENOMEM;
	put32(&p->data, (uint32_t)n);
	(void)sl__buf_append(&p->data, data, n);
	grow_array(p);
}

void sl__pg_el_text(struct sl__pg_params *p, const char *s)
{
	if (s == NULL)
		el_null(p);
	else
		sl__pg_el_bytes(p, s, strlen(s));
}

void sl__pg_el_time(struct sl__pg_params *p, int64_t unix_ms)
{
	if (unix_ms == 0) {
		el_null(p);
		return;
	}
	put32(&p->data, 8);
	put64(&p->data, time_us(unix_ms));
	grow_array(p);
}

void sl__pg_el_interval(struct sl__pg_params *p, int64_t ms)
{
	if (ms == 0) {
		el_null(p);
		return;
	}
	put32(&p->data, 16);
	put64(&p->data, ms_to_us(ms));
	put64(&p->data, 0);
	grow_array(p);
}

void sl__pg_el_uuid(struct sl__pg_params *p, const uint8_t bytes[16])
{
	sl__pg_el_bytes(p, bytes, 16);
}

void sl__pg_add_ids(struct sl__pg_params *p, const uint64_t *ids, size_t n)
{
	sl__pg_add_array(p, SL__PG_INT8, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_int8(p, (int64_t)ids[i]);
}

void sl__pg_add_texts(struct sl__pg_params *p, const char *const *texts, size_t n)
{
	sl__pg_add_array(p, SL__PG_TEXT, n);
	for (size_t i = 0; i < n; i++)
		sl__pg_el_text(p, texts[i]);
}

/* ---- results ---- */

bool sl__pg_is_null(const PGresult *r, int row, int column)
{
	return PQgetisnull(r, row, column) == 1;
}

bool sl__pg_bool(const PGresult *r, int row, int column)
{
	return !sl__pg_is_null(r, row, column) && PQgetvalue(r, row, column)[0] != 0;
}

/* Also of a smallint. */
int32_t sl__pg_int4(const PGresult *r, int row, int column)
{
	if (sl__pg_is_null(r, row, column))
		return 0;
	const char *v = PQgetvalue(r, row, column);
	uint32_t wide;
	uint16_t narrow;
	if (PQgetlength(r, row, column) == 2) {
		memcpy(&narrow, v, sizeof(narrow));
		return (int16_t)be16toh(narrow);
	}
	memcpy(&wide, v, sizeof(wide));
	return (int32_t)be32toh(wide);
}

int64_t sl__pg_int8(const PGresult *r, int row, int column)
{
	if (sl__pg_is_null(r, row, column))
		return 0;
	uint64_t v;
	memcpy(&v, PQgetvalue(r, row, column), sizeof(v));
	return (int64_t)be64toh(v);
}

const char *sl__pg_text(const PGresult *r, int row, int column)
{
	return sl__pg_is_null(r, row, column) ? NULL : PQgetvalue(r, row, column);
}

/* Rounded down, also before 1970. */
int64_t sl__pg_time_ms(const PGresult *r, int row, int column)
{
	if (sl__pg_is_null(r, row, column))
		return 0;
	int64_t us = sl__pg_int8(r, row, column) + EPOCH_2000_US;
	return us >= 0 ? us / 1000 : -((-us + 999) / 1000);
}
