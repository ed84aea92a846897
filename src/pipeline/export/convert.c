/* SPDX-License-Identifier: Apache-2.0 */
/* Text to values. convert.h has the rules. */
#include "pipeline/export/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char no_integer[] = "not an integer";
static const char too_large[] = "the number is too large";
static const char no_number[] = "not a number";
static const char no_time[] = "not a valid time";
static const char no_date[] = "not a valid date";

static inline bool is_decimal_digit(char c)
{
	return (unsigned)(c - '0') < 10;
}

/* ---- integers ---- */

const char *sl__to_int64(const char *text, size_t len, int64_t *out)
{
	const char *p = text, *end = text + len;
	bool negative = len > 0 && *p == '-';
	p += negative;
	if (p == end)
		return no_integer;
	int64_t v = 0;
	if (SL_UNLIKELY(end - p > 18)) { /* counted downwards, where there is one more; less digits cannot overflow */
		for (; p < end; p++) {
			if (!is_decimal_digit(*p))
				return no_integer;
			if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, *p - '0', &v))
				return too_large;
		}
		if (!negative && v == INT64_MIN)
			return too_large;
		*out = negative ? v : -v;
		return NULL;
	}
	for (; p < end; p++) {
		unsigned digit = (unsigned)(*p - '0');
		if (SL_UNLIKELY(digit > 9))
			return no_integer;
		v = v * 10 + digit;
	}
	*out = negative ? -v : v;
	return NULL;
}

const char *sl__to_int32(const char *text, size_t len, int32_t *out)
{
	int64_t v;
	const char *why = sl__to_int64(text, len, &v);
	if (why != NULL)
		return why;
	if (v < INT32_MIN || v > INT32_MAX)
		return too_large;
	*out = (int32_t)v;
	return NULL;
}

/* ---- decimals and doubles ---- */

#define DIGITS_KEPT                                                                                                    \
	800 /* no decimal with more significant digits decides how a double is rounded, but for being                  \
	     * above or below: a last digit that is not zero says so */

struct decimal {
	const char *at, *end;
	bool negative;
	char digits[DIGITS_KEPT + 1]; /* without leading zeros */
	size_t n;
	bool more;        /* digits that are not zero were left out */
	int64_t exponent; /* the value is digits * 10^exponent */
};

static size_t take_decimal_digits(struct decimal *d, bool fraction)
{
	const char *from = d->at;
	for (; d->at < d->end && is_decimal_digit(*d->at); d->at++) {
		if (d->n == DIGITS_KEPT) {
			d->more |= *d->at != '0';
			d->exponent += !fraction;
			continue;
		}
		d->exponent -= fraction;
		if (d->n > 0 || *d->at != '0')
			d->digits[d->n++] = *d->at;
	}
	return (size_t)(d->at - from);
}

static bool take_char(struct decimal *d, char c)
{
	bool there = d->at < d->end && *d->at == c;
	d->at += there;
	return there;
}

static bool take_decimal(struct decimal *d, const char *text, size_t len)
{
	d->at = text;
	d->end = text + len;
	d->n = 0;
	d->exponent = 0;
	d->more = false;
	d->negative = take_char(d, '-');
	if (take_decimal_digits(d, false) == 0)
		return false;
	if (take_char(d, '.') && take_decimal_digits(d, true) == 0)
		return false;
	if (take_char(d, 'e') || take_char(d, 'E')) {
		int64_t e = 0;
		bool negative = take_char(d, '-');
		if (!negative)
			(void)take_char(d, '+');
		const char *from = d->at;
		for (; d->at < d->end && is_decimal_digit(*d->at); d->at++)
			e = SL_MIN(e * 10 + (*d->at - '0'), 1000000);
		if (d->at == from)
			return false;
		d->exponent += negative ? -e : e;
	}
	return d->at == d->end;
}

static bool take_special_double(const char *text, size_t len, double *out)
{
	static const struct {
		const char *word;
		double value;
	} words[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};
	for (size_t i = 0; i < SL_COUNT(words); i++)
		if (strlen(words[i].word) == len && memcmp(words[i].word, text, len) == 0) {
			*out = words[i].value;
			return true;
		}
	return false;
}

/* Digits and an exponent in a form that no locale changes. */
static void put_plainly(const struct decimal *d, char *out, size_t n)
{
	(void)snprintf(out, n, "%s%.*s%se%lld", d->negative ? "-" : "", d->n > 0 ? (int)d->n : 1,
		       d->n > 0 ? d->digits : "0", d->more ? "1" : "", (long long)(d->exponent - d->more));
}

const char *sl__to_double(const char *text, size_t len, double *out)
{
	static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
					1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
	struct decimal d;
	if (!take_decimal(&d, text, len))
		return take_special_double(text, len, out) ? NULL : no_number;

	/* Small numbers: both factors are exact in a double, so that one rounding is left, the right one. */
	if (d.n <= 15 && d.exponent >= -22 && d.exponent <= 22) {
		uint64_t v = 0;
		for (size_t i = 0; i < d.n; i++)
			v = v * 10 + (uint64_t)(d.digits[i] - '0');
		double m = (double)v;
		m = d.exponent < 0 ? m / powers[-d.exponent] : m * powers[d.exponent];
		*out = d.negative ? -m : m;
		return NULL;
	}
	char plain[DIGITS_KEPT + 40];
	put_plainly(&d, plain, sizeof(plain));
	double v = strtod(plain, NULL);
	if (isinf(v))
		return too_large;
	*out = v;
	return NULL;
}

const char *sl__to_float(const char *text, size_t len, float *out)
{
	struct decimal d;
	char plain[DIGITS_KEPT + 40];
	double word;
	if (!take_decimal(&d, text, len)) {
		if (!take_special_double(text, len, &word))
			return no_number;
		*out = (float)word;
		return NULL;
	}
	put_plainly(&d, plain, sizeof(plain));
	float v = strtof(plain, NULL); /* rounded once: by way of a double it would be twice */
	if (isinf(v))
		return too_large;
	*out = v;
	return NULL;
}

/* digits * 10^exponent * 10^scale, which must be an integer of at most `precision` digits. */
const char *sl__to_decimal(const char *text, size_t len, int32_t precision, int32_t scale, int64_t *out)
{
	struct decimal d;
	int64_t v = 0;
	if (!take_decimal(&d, text, len))
		return no_number;
	while (d.n > 0 && d.digits[d.n - 1] == '0' && !d.more) {
		d.n--;
		d.exponent++;
	}
	if (d.n == 0) {
		*out = 0;
		return NULL;
	}
	int64_t shift = d.exponent + scale;
	if (d.more || shift < 0)
		return "more digits after the decimal point than the column has";
	if ((int64_t)d.n + shift > precision)
		return too_large;
	for (size_t i = 0; i < d.n; i++)
		v = v * 10 + (d.digits[i] - '0');
	for (; shift > 0; shift--)
		v *= 10;
	*out = d.negative ? -v : v;
	return NULL;
}

/* ---- booleans ---- */

const char *sl__to_bool(const char *text, size_t len, uint8_t *out)
{
	static const char words[][6] = {"false", "f", "0", "true", "t", "1"};
	for (size_t i = 0; i < SL_COUNT(words); i++)
		if (strlen(words[i]) == len && memcmp(words[i], text, len) == 0) {
			*out = i >= 3;
			return NULL;
		}
	return "neither true nor false";
}

/* ---- times ---- */

struct cursor {
	const char *at, *end;
};

/* Two digits below limit; -1: not there. */
static inline int two(struct cursor *c, int limit)
{
	if (c->end - c->at < 2 || !is_decimal_digit(c->at[0]) || !is_decimal_digit(c->at[1]))
		return -1;
	int v = (c->at[0] - '0') * 10 + (c->at[1] - '0');
	c->at += 2;
	return v < limit ? v : -1;
}

static inline bool next_is(struct cursor *c, char wanted)
{
	bool there = c->at < c->end && *c->at == wanted;
	c->at += there;
	return there;
}

/* Days since 1970-01-01. bc: the year is one before Christ; there is no year 0, which is 1 BC here. */
static bool take_date(struct cursor *c, bool bc, int64_t *days)
{
	static const int8_t month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	int century = two(c, 100), year = two(c, 100);
	if (century < 0 || year < 0)
		return false;
	year += century * 100;
	for (int more = 0; more < 3 && c->at < c->end && is_decimal_digit(*c->at);
	     more++) /* PostgreSQL: up to 5874897 */
		year = year * 10 + (*c->at++ - '0');
	if (year < 1 || !next_is(c, '-'))
		return false;
	if (bc)
		year = 1 - year;
	int month = two(c, 13);
	if (month < 1 || !next_is(c, '-'))
		return false;
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
	int day = two(c, (month == 2 && leap ? 29 : month_days[month - 1]) + 1);
	if (day < 1)
		return false;

	/* By eras of 400 years that begin in March, so that the leap day is the last of its year. */
	year -= month <= 2;
	int era = (year >= 0 ? year : year - 399) / 400, of_era = year - era * 400;
	int of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
	*days = (int64_t)era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
	return true;
}

/* 1: infinity, -1: -infinity, 0: neither. */
static int infinity_of(const char *text, size_t len)
{
	bool negative = len == 9 && *text == '-';
	return (len == 8 || negative) && memcmp(text + negative, "infinity", 8) == 0 ? negative ? -1 : 1 : 0;
}

/* Take " BC" off the end. */
static bool pass_bc(size_t len, const char *text, struct cursor *c)
{
	bool bc = len > 3 && memcmp(text + len - 3, " BC", 3) == 0;
	c->end -= bc ? 3 : 0;
	return bc;
}

const char *sl__to_date(const char *text, size_t len, int32_t *out)
{
	struct cursor c = {text, text + len};
	int64_t days;
	int infinite = infinity_of(text, len);
	if (infinite != 0) {
		*out = infinite * INT32_MAX;
		return NULL;
	}
	bool bc = pass_bc(len, text, &c);
	if (!take_date(&c, bc, &days) || c.at != c.end)
		return no_date;
	*out = (int32_t)days;
	return NULL;
}

/* hh:mm[:ss[.fraction]]: seconds of the day, and the fraction in units of 10^-places. NULL or why not. */
static const char *take_clock(struct cursor *c, int places, int64_t *seconds, int64_t *fraction)
{
	int64_t v = 0;
	int n = 0, hour = two(c, 24);
	if (hour < 0 || !next_is(c, ':'))
		return no_time;
	int minute = two(c, 60), second = 0;
	if (minute < 0)
		return no_time;
	if (next_is(c, ':') && (second = two(c, 60)) < 0)
		return no_time;
	if (next_is(c, '.')) {
		const char *from = c->at;
		for (; c->at < c->end && is_decimal_digit(*c->at); c->at++) {
			if (n == places && *c->at != '0')
				return "the time is more precise than the column";
			if (n < places) {
				v = v * 10 + (*c->at - '0');
				n++;
			}
		}
		if (c->at == from)
			return no_time;
	}
	for (; n < places; n++)
		v *= 10;
	*seconds = (hour * 60 + minute) * 60 + second;
	*fraction = v;
	return NULL;
}

/* Seconds east of UTC. */
static bool take_zone(struct cursor *c, int64_t *east)
{
	*east = 0;
	if (c->at == c->end || next_is(c, 'Z') || next_is(c, 'z'))
		return true;
	bool west = next_is(c, '-');
	if (!west && !next_is(c, '+'))
		return false;
	int hours = two(c, 24), minutes = 0;
	if (hours < 0)
		return false;
	if (c->at < c->end) {
		(void)next_is(c, ':');
		if ((minutes = two(c, 60)) < 0)
			return false;
	}
	*east = (hours * 60 + minutes) * 60 * (west ? -1 : 1);
	return true;
}

const char *sl__to_timestamp(const char *text, size_t len, const struct sl_parquet_column *column,
			     struct sl__time_memo *memo, int64_t *out)
{
	static const int64_t per_second[] = {
		[SL_PARQUET_MICROS] = 1000000, [SL_PARQUET_MILLIS] = 1000, [SL_PARQUET_NANOS] = 1000000000};
	static const int places[] = {[SL_PARQUET_MICROS] = 6, [SL_PARQUET_MILLIS] = 3, [SL_PARQUET_NANOS] = 9};
	struct cursor c = {text, text + len};
	int64_t days, seconds = 0, east = 0, fraction = 0, v;
	if (SL_UNLIKELY(len == 8 || len == 9)) { /* shorter than any date */
		int infinite = infinity_of(text, len);
		if (infinite == 0)
			return no_time;
		*out = infinite * INT64_MAX;
		return NULL;
	}

	/* The day is mostly the one before. */
	bool bc = pass_bc(len, text, &c);
	if (!bc && c.end - c.at >= 10 && memcmp(c.at, memo->date, 10) == 0) {
		c.at += 10;
		days = memo->days;
	} else {
		if (!take_date(&c, bc, &days))
			return no_time;
		if (!bc && c.at - text == 10) {
			memcpy(memo->date, text, 10);
			memo->days = days;
		}
	}
	if (c.at < c.end) {
		if (!next_is(&c, 'T') && !next_is(&c, ' ') && !next_is(&c, 't'))
			return no_time;
		const char *why = take_clock(&c, places[column->unit], &seconds, &fraction);
		if (why != NULL)
			return why;
		if (column->local && c.at < c.end)
			return "a time with a time zone in a column without one";
		if (!take_zone(&c, &east) || c.at != c.end)
			return no_time;
	}
	/* Only nanoseconds can exceed 64 bits: they end in 2262. The fraction counts towards the time's own second,
	 * also before 1970. */
	if (__builtin_mul_overflow(days * 86400 + seconds - east, per_second[column->unit], &v) ||
	    __builtin_add_overflow(v, fraction, &v))
		return "the time is outside the range of the column";
	*out = v;
	return NULL;
}

/* ---- bytes ---- */

static int hex_digit_of_cell(char c)
{
	if (is_decimal_digit(c))
		return c - '0';
	int letter = (c | 0x20) - 'a';
	return letter >= 0 && letter < 6 ? letter + 10 : -1;
}

bool sl__from_hex(const char *text, size_t len, char *out)
{
	for (size_t i = 0; i + 1 < len; i += 2) {
		int high = hex_digit_of_cell(text[i]), low = hex_digit_of_cell(text[i + 1]);
		if (high < 0 || low < 0)
			return false;
		out[i / 2] = (char)(high * 16 + low);
	}
	return len % 2 == 0;
}
