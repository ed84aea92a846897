/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values in PostgreSQL's binary form (the recv functions of its types), as COPY and arrays have them: a length of four
 * bytes, then the value, all big-endian; length -1 is NULL.
 *
 * Rule: SL__FIT_NO only where the server's input function would refuse the text too; SL__FIT_OK only where it would
 * read the same value; everything else is SL__FIT_UNSURE, and the server reads the text itself.
 *
 *   numeric    int16 groups, int16 weight, uint16 sign, uint16 scale, then groups of four decimal digits
 *   date       int32 days since 2000-01-01;   timestamp[tz]   int64 microseconds since then
 *   jsonb      a version byte 1 and the text
 */
#include <math.h>
#include <stdlib.h>

#include "format/text.h"
#include "sink/postgres.h"

struct text {
	const char *p;
	size_t n;
};

static void put_be(char *out, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		out[i] = (char)(v >> (8 * (bytes - 1 - i)));
}

static enum sl__fit put(struct sl__buf *out, const void *data, size_t n)
{
	char head[4];
	if (n > INT32_MAX)
		return SL__FIT_NO;
	put_be(head, n, 4);
	(void)sl__buf_append(out, head, 4);
	(void)sl__buf_append(out, data, n);
	return SL__FIT_OK;
}

static enum sl__fit put_number(struct sl__buf *out, uint64_t v, unsigned bytes)
{
	char all[12];
	put_be(all, bytes, 4);
	put_be(all + 4, v, bytes);
	(void)sl__buf_append(out, all, 4 + bytes);
	return SL__FIT_OK;
}

static enum sl__fit put_null(struct sl__buf *out)
{
	(void)sl__buf_append(out, "\377\377\377\377", 4);
	return SL__FIT_OK;
}

/* Text with blanks around it, or in other bytes than ASCII, may mean something to the server. */
static enum sl__fit not_a_number(struct text t)
{
	for (size_t i = 0; i < t.n; i++)
		if (t.p[i] <= ' ' || t.p[i] > '~')
			return SL__FIT_UNSURE;
	return SL__FIT_NO;
}

/* ---- integers ---- */

static enum sl__fit put_integer(struct sl__buf *out, struct text t, unsigned bytes)
{
	bool minus = t.n > 0 && t.p[0] == '-';
	size_t i = minus || (t.n > 0 && t.p[0] == '+');
	uint64_t v = 0, max = (UINT64_C(1) << (8 * bytes - 1)) - !minus;
	if (i == t.n)
		return not_a_number(t);
	for (; i < t.n; i++) {
		unsigned digit = (unsigned)(t.p[i] - '0');
		if (!sl__is_digit(t.p[i]))
			return not_a_number(t);
		if (v > max / 10 || v * 10 > max - digit)
			return SL__FIT_NO;
		v = v * 10 + digit;
	}
	return put_number(out, minus ? 0 - v : v, bytes);
}

/* ---- floating point ---- */

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
				1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* [+-] digits [. digits] without an exponent, short enough that one division is exact. */
static bool read_short_double(struct text t, double *out)
{
	bool minus = t.n > 0 && t.p[0] == '-', dot = false;
	size_t i = minus || (t.n > 0 && t.p[0] == '+'), digits = 0, behind = 0;
	uint64_t v = 0;
	for (; i < t.n; i++) {
		if (t.p[i] == '.' && !dot) {
			dot = true;
			continue;
		}
		if (!sl__is_digit(t.p[i]) || digits == 15)
			return false;
		v = v * 10 + (unsigned)(t.p[i] - '0');
		digits++;
		behind += dot;
	}
	*out = (minus ? -1.0 : 1.0) * ((double)v / powers[behind]);
	return digits > 0;
}

/* Is it [+-] digits [. digits] [e [+-] digits] with at least one digit before the e? */
static bool is_decimal(struct text t, bool *exponent)
{
	size_t i = t.n > 0 && (t.p[0] == '-' || t.p[0] == '+'), digits = 0;
	for (; i < t.n && sl__is_digit(t.p[i]); i++)
		digits++;
	if (i < t.n && t.p[i] == '.')
		for (i++; i < t.n && sl__is_digit(t.p[i]); i++)
			digits++;
	*exponent = i < t.n && (t.p[i] == 'e' || t.p[i] == 'E');
	if (digits == 0 || !*exponent)
		return digits > 0 && i == t.n;
	i++;
	i += i < t.n && (t.p[i] == '-' || t.p[i] == '+');
	size_t first = i;
	while (i < t.n && sl__is_digit(t.p[i]))
		i++;
	return i > first && i == t.n;
}

/* Words (NaN, Infinity) and hexadecimal are for the server. */
static enum sl__fit not_a_float(struct text t)
{
	bool word = false;
	for (size_t i = 0; i < t.n; i++)
		word = word || t.p[i] == 'n' || t.p[i] == 'N' || t.p[i] == 'x' || t.p[i] == 'X';
	return word ? SL__FIT_UNSURE : not_a_number(t);
}

static enum sl__fit put_float(struct sl__buf *out, struct text t, unsigned bytes, locale_t c)
{
	char copy[64];
	bool exponent;
	double d = 0;
	union {
		double d;
		float f;
		uint64_t u64;
		uint32_t u32;
	} bits = {.u64 = 0};
	if (bytes == 8 && read_short_double(t, &d)) {
		bits.d = d;
		return put_number(out, bits.u64, 8);
	}
	if (!is_decimal(t, &exponent))
		return not_a_float(t);
	if (t.n >= sizeof(copy))
		return SL__FIT_UNSURE;
	memcpy(copy, t.p, t.n);
	copy[t.n] = '\0';
	if (bytes == 8)
		bits.d = strtod_l(copy, NULL, c);
	else
		bits.f = strtof_l(copy, NULL, c);
	/* Overflow and underflow are errors there: let the server say so. */
	double size = fabs(bytes == 8 ? bits.d : (double)bits.f);
	if (!isfinite(size) || size < (bytes == 8 ? 2.3e-308 : 1.2e-38))
		return SL__FIT_UNSURE;
	return put_number(out, bytes == 8 ? bits.u64 : bits.u32, bytes);
}

/* ---- numeric ---- */

#define NUMERIC_DIGITS 400 /* more are for the server */

static enum sl__fit put_numeric(struct sl__buf *out, struct text t)
{
	bool exponent, minus = t.n > 0 && t.p[0] == '-';
	if (!is_decimal(t, &exponent))
		return not_a_float(t);
	if (exponent || t.n > NUMERIC_DIGITS)
		return SL__FIT_UNSURE;
	if (t.p[0] == '-' || t.p[0] == '+')
		t = (struct text){t.p + 1, t.n - 1};
	const char *dot = memchr(t.p, '.', t.n);
	size_t whole = dot != NULL ? (size_t)(dot - t.p) : t.n, scale = dot != NULL ? t.n - whole - 1 : 0;
	/* The groups stand on both sides of the point: fill the first and the last with zeros. */
	size_t before = (whole + 3) / 4, n = before + (scale + 3) / 4, pad = before * 4 - whole;
	uint16_t groups[NUMERIC_DIGITS / 4 + 2];
	for (size_t g = 0; g < n; g++) {
		unsigned v = 0;
		for (size_t k = 0; k < 4; k++) {
			size_t at = g * 4 + k; /* in digits, from the padded left */
			char c = at < pad || at - pad >= whole + scale ? '0' : t.p[at - pad + (at - pad >= whole)];
			v = v * 10 + (unsigned)(c - '0');
		}
		groups[g] = (uint16_t)v;
	}
	size_t first = 0;
	while (first < n && groups[first] == 0)
		first++;
	while (n > first && groups[n - 1] == 0)
		n--;
	char value[8 + 2 * (NUMERIC_DIGITS / 4 + 2)];
	put_be(value, n - first, 2);
	put_be(value + 2, (uint64_t)((int64_t)before - 1 - (int64_t)first), 2);
	put_be(value + 4, minus && n > first ? 0x4000 : 0, 2);
	put_be(value + 6, scale, 2);
	for (size_t g = first; g < n; g++)
		put_be(value + 8 + 2 * (g - first), groups[g], 2);
	if (n == first) /* zero */
		put_be(value + 2, 0, 2);
	return put(out, value, 8 + 2 * (n - first));
}

/* ---- dates and times ---- */

static bool two_digits(const char *p, int *out)
{
	*out = (p[0] - '0') * 10 + (p[1] - '0');
	return sl__is_digit(p[0]) && sl__is_digit(p[1]);
}

/* Days from 2000-01-01 in the Gregorian calendar; years from March on, so that February is last. */
static int64_t days_of(int year, int month, int day)
{
	int64_t y = month > 2 ? year : year - 1, m = month > 2 ? month - 3 : month + 9;
	int64_t days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1;
	return days - 730425; /* the same of 2000-01-01 */
}

static int days_in(int year, int month)
{
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
	return days[month - 1] + (month == 2 && leap);
}

/* YYYY-MM-DD at the beginning of t. */
static bool read_date(struct text t, int64_t *days)
{
	int century, year, month, day;
	if (t.n < 10 || t.p[4] != '-' || t.p[7] != '-' || !two_digits(t.p, &century) || !two_digits(t.p + 2, &year) ||
	    !two_digits(t.p + 5, &month) || !two_digits(t.p + 8, &day))
		return false;
	year += century * 100;
	if (year < 1 || month < 1 || month > 12 || day < 1 || day > days_in(year, month))
		return false;
	*days = days_of(year, month, day);
	return true;
}

/* HH:MM[:SS[.ffffff]] at the beginning; returns how many bytes it has, 0: it is not one. */
static size_t read_clock(struct text t, int64_t *us)
{
	int hour, minute, second = 0;
	if (t.n < 5 || t.p[2] != ':' || !two_digits(t.p, &hour) || !two_digits(t.p + 3, &minute))
		return 0;
	size_t at = 5;
	if (t.n >= 8 && t.p[5] == ':') {
		if (!two_digits(t.p + 6, &second))
			return 0;
		at = 8;
	}
	if (hour > 23 || minute > 59 || second > 59)
		return 0;
	int64_t fraction = 0, unit = 100000;
	if (at == 8 && t.n > 9 && t.p[8] == '.')
		for (at = 9; at < t.n && sl__is_digit(t.p[at]); at++, unit /= 10) {
			if (unit == 0)
				return 0; /* to be rounded */
			fraction += (t.p[at] - '0') * unit;
		}
	*us = ((int64_t)hour * 3600 + minute * 60 + second) * 1000000 + fraction;
	return at;
}

/* Z, +HH, +HHMM or +HH:MM, and nothing after it. */
static bool read_zone(struct text t, int64_t *us)
{
	int hours, minutes = 0;
	*us = 0;
	if (t.n == 0 || (t.n == 1 && (t.p[0] == 'Z' || t.p[0] == 'z')))
		return true;
	if (t.n < 3 || (t.p[0] != '+' && t.p[0] != '-') || !two_digits(t.p + 1, &hours))
		return false;
	size_t at = t.n > 3 && t.p[3] == ':' ? 4 : 3;
	if (t.n != 3 && (t.n != at + 2 || !two_digits(t.p + at, &minutes)))
		return false;
	if (hours > 15 || minutes > 59)
		return false;
	*us = ((int64_t)hours * 60 + minutes) * 60000000 * (t.p[0] == '-' ? -1 : 1);
	return true;
}

static enum sl__fit put_date(struct sl__buf *out, struct text t)
{
	int64_t days;
	return t.n == 10 && read_date(t, &days) ? put_number(out, (uint64_t)days, 4) : SL__FIT_UNSURE;
}

static enum sl__fit put_timestamp(struct sl__buf *out, struct text t, bool zoned)
{
	int64_t days, us = 0, zone = 0;
	if (!read_date(t, &days))
		return SL__FIT_UNSURE;
	if (t.n > 10) {
		size_t n = 0;
		if (t.p[10] == 'T' || t.p[10] == ' ')
			n = read_clock((struct text){t.p + 11, t.n - 11}, &us);
		if (n == 0 || !read_zone((struct text){t.p + 11 + n, t.n - 11 - n}, &zone))
			return SL__FIT_UNSURE;
	}
	return put_number(out, (uint64_t)(days * INT64_C(86400000000) + us - (zoned ? zone : 0)), 8);
}

/* ---- others ---- */

static int hex_of(char c)
{
	if (sl__is_digit(c))
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum sl__fit put_uuid(struct sl__buf *out, struct text t)
{
	char value[16];
	size_t n = 0;
	if (t.n != 36)
		return SL__FIT_UNSURE;
	for (size_t i = 0; i < 36; i += 2) {
		if (i == 8 || i == 13 || i == 18 || i == 23) {
			if (t.p[i] != '-')
				return SL__FIT_UNSURE;
			i++;
		}
		int high = hex_of(t.p[i]), low = hex_of(t.p[i + 1]);
		if (high < 0 || low < 0)
			return SL__FIT_UNSURE;
		value[n++] = (char)(high << 4 | low);
	}
	return put(out, value, 16);
}

static enum sl__fit put_bytes(struct sl__buf *out, struct text t)
{
	if (t.n < 2 || t.p[0] != '\\' || t.p[1] != 'x' || t.n % 2 != 0)
		return SL__FIT_UNSURE;
	size_t start = out->len, n = t.n / 2 - 1;
	if (n > INT32_MAX || sl__buf_reserve(out, 4 + n) != 0)
		return SL__FIT_UNSURE;
	char head[4];
	put_be(head, n, 4);
	(void)sl__buf_append(out, head, 4);
	for (size_t i = 2; i < t.n; i += 2) {
		int high = hex_of(t.p[i]), low = hex_of(t.p[i + 1]);
		if (high < 0 || low < 0) {
			out->len = start;
			return SL__FIT_UNSURE;
		}
		char byte = (char)(high << 4 | low);
		(void)sl__buf_append(out, &byte, 1);
	}
	return SL__FIT_OK;
}

static enum sl__fit put_boolean(struct sl__buf *out, struct text t)
{
	static const struct {
		const char *word;
		uint8_t value;
	} words[] = {{"true", 1}, {"false", 0}, {"t", 1}, {"f", 0}, {"1", 1}, {"0", 0}};
	for (size_t i = 0; i < SL_COUNT(words); i++)
		if (strlen(words[i].word) == t.n && memcmp(words[i].word, t.p, t.n) == 0)
			return put_number(out, words[i].value, 1);
	return SL__FIT_UNSURE;
}

/* The text of a field: true and false have none of their own. */
static struct text text_of(const struct sl__field *f)
{
	if (f->kind == SL__FIELD_TRUE)
		return (struct text){"true", 4};
	if (f->kind == SL__FIELD_FALSE)
		return (struct text){"false", 5};
	return (struct text){f->text, f->len};
}

/* JSON in a column of JSON: a string of a JSON record is a JSON string there; a CSV field is the JSON itself. */
static enum sl__fit put_json(struct sl__buf *out, const struct sl__field *f, bool from_csv, bool version)
{
	struct text t = text_of(f);
	size_t start = out->len;
	if (sl__buf_append(out, "\0\0\0\0\1", version ? 5 : 4) != 0)
		return SL__FIT_OK; /* reported by the buffer */
	if (f->kind == SL__FIELD_TEXT && !from_csv)
		sl__put_json_string(out, t.p, t.n);
	else
		(void)sl__buf_append(out, t.p, t.n);
	if (out->failed == 0)
		put_be(out->data + start, out->len - start - 4, 4);
	return SL__FIT_OK;
}

enum sl__fit sl__pg_put_binary(struct sl__buf *out, enum sl__enc enc, const struct sl__field *f, bool from_csv,
			       locale_t c_locale)
{
	struct text t = text_of(f);
	if (f->kind == SL__FIELD_ABSENT || f->kind == SL__FIELD_NULL)
		return put_null(out);
	switch (enc) {
	case SL__ENC_TEXT:
		return f->has_nul ? SL__FIT_NO : put(out, t.p, t.n);
	case SL__ENC_BOOL:
		return put_boolean(out, t);
	case SL__ENC_INT2:
		return put_integer(out, t, 2);
	case SL__ENC_INT4:
		return put_integer(out, t, 4);
	case SL__ENC_INT8:
		return put_integer(out, t, 8);
	case SL__ENC_FLOAT4:
		return put_float(out, t, 4, c_locale);
	case SL__ENC_FLOAT8:
		return put_float(out, t, 8, c_locale);
	case SL__ENC_NUMERIC:
		return put_numeric(out, t);
	case SL__ENC_DATE:
		return put_date(out, t);
	case SL__ENC_TIMESTAMP:
		return put_timestamp(out, t, false);
	case SL__ENC_TIMESTAMPTZ:
		return put_timestamp(out, t, true);
	case SL__ENC_UUID:
		return put_uuid(out, t);
	case SL__ENC_BYTEA:
		return put_bytes(out, t);
	case SL__ENC_JSON:
		return put_json(out, f, from_csv, false);
	case SL__ENC_JSONB:
		return put_json(out, f, from_csv, true);
	case SL__ENC_OTHER:
		break;
	}
	return SL__FIT_UNSURE;
}

enum sl__fit sl__pg_put_text(struct sl__buf *out, enum sl__enc enc, const struct sl__field *f, bool from_csv)
{
	if (f->kind == SL__FIELD_ABSENT || f->kind == SL__FIELD_NULL)
		return put_null(out);
	if (enc == SL__ENC_JSON || enc == SL__ENC_JSONB)
		return put_json(out, f, from_csv, false);
	struct text t = text_of(f);
	return f->has_nul ? SL__FIT_NO : put(out, t.p, t.n);
}
