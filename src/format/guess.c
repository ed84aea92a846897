/* SPDX-License-Identifier: Apache-2.0 */
/* What a value may be. guess.h has the rules. */
#include "format/guess.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "format/row.h"

#define DIGITS_SURE 15      /* a double reproduces every decimal of this many digits */
#define DIGITS_MOST 17      /* a double prints at most this many */
#define NUMERIC_SCALE 16000 /* places before and after the point that PostgreSQL's numeric has for sure */

/* ---- numbers ---- */

struct decimal {
	char digits[DIGITS_MOST + 1]; /* without leading and trailing zeros; complete when n is at most DIGITS_MOST */
	int64_t n;                    /* how many there are */
	int64_t exponent;             /* the value is digits * 10^exponent */
	bool integer;                 /* neither a point nor an exponent was written */
};

struct cursor {
	const char *at, *end;
};

static inline bool at_digit(const struct cursor *c)
{
	return c->at < c->end && *c->at >= '0' && *c->at <= '9';
}

static inline bool pass(struct cursor *c, char wanted)
{
	bool there = c->at < c->end && *c->at == wanted;
	c->at += there;
	return there;
}

/* Digits that stand here; their number. Zeros are put into d only when another digit follows them. */
static int64_t take_digits(struct cursor *c, struct decimal *d, int64_t *zeros)
{
	const char *from = c->at;
	for (; at_digit(c); c->at++) {
		if (*c->at == '0') {
			*zeros += d->n > 0;
			continue;
		}
		for (; *zeros > 0; --*zeros, d->n++)
			if (d->n < DIGITS_MOST)
				d->digits[d->n] = '0';
		if (d->n < DIGITS_MOST)
			d->digits[d->n] = *c->at;
		d->n++;
	}
	return c->at - from;
}

/* Does the double of digits * 10^exponent print these digits? Written without a point, which locales change. */
static bool double_keeps(const struct decimal *d)
{
	char text[64];
	if (d->n == 0)
		return true;
	if (d->n > DIGITS_MOST)
		return false;
	(void)snprintf(text, sizeof(text), "%.*se%lld", (int)d->n, d->digits, (long long)d->exponent);
	double v = strtod(text, NULL);
	if (!isfinite(v))
		return false;
	if (d->n <= DIGITS_SURE && isnormal(v))
		return true;
	(void)snprintf(text, sizeof(text), "%.*e", (int)d->n - 1, v);
	const char *p = text;
	for (int64_t i = 0; i < d->n; p++)
		if (*p >= '0' && *p <= '9' && *p != d->digits[i++])
			return false;
	return true;
}

static unsigned guess_number(const char *text, size_t len)
{
	struct decimal d = {.integer = true};
	struct cursor c = {text, text + len};
	int64_t zeros = 0, after_point = 0;

	/* JSON's grammar of numbers. */
	(void)pass(&c, '-');
	bool zero_first = c.at < c.end && *c.at == '0';
	int64_t before_point = take_digits(&c, &d, &zeros);
	if (before_point == 0 || (zero_first && before_point > 1))
		return 0;
	if (pass(&c, '.')) {
		d.integer = false;
		if ((after_point = take_digits(&c, &d, &zeros)) == 0)
			return 0;
	}
	d.exponent = zeros - after_point;
	if (pass(&c, 'e') || pass(&c, 'E')) {
		int64_t e = 0;
		bool negative = pass(&c, '-');
		if (!negative)
			(void)pass(&c, '+');
		if (!at_digit(&c))
			return 0;
		for (; at_digit(&c); c.at++)
			e = SL_MIN(e * 10 + (*c.at - '0'), NUMERIC_SCALE * 2);
		d.exponent += negative ? -e : e;
		d.integer = false;
	}
	if (c.at != c.end)
		return 0;

	/* As what it can be read. */
	if (d.exponent + d.n > NUMERIC_SCALE || d.exponent < -NUMERIC_SCALE)
		return 0;
	unsigned kinds = SL__KIND(SL_COLUMN_NUMERIC);
	if (d.integer) {
		/* Does it fit in 64 bits? Counted downwards, since there is one more negative number. */
		int64_t v = 0;
		bool negative = text[0] == '-';
		for (size_t i = negative; i < len; i++)
			if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, text[i] - '0', &v))
				return kinds;
		if (!negative && v == INT64_MIN)
			return kinds;
		kinds |= SL__KIND(SL_COLUMN_INTEGER);
	}
	return double_keeps(&d) ? kinds | SL__KIND(SL_COLUMN_REAL) : kinds;
}

/* ---- times ---- */

/* Exactly n digits with a value in [low, high]. */
static bool take_number(struct cursor *c, int n, unsigned low, unsigned high, unsigned *value)
{
	unsigned v = 0;
	for (int i = 0; i < n; i++, c->at++) {
		if (!at_digit(c))
			return false;
		v = v * 10 + (unsigned)(*c->at - '0');
	}
	if (value != NULL)
		*value = v;
	return v >= low && v <= high;
}

static unsigned guess_time(const char *text, size_t len)
{
	struct cursor c = {text, text + len};
	static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	unsigned year, month;
	if (!take_number(&c, 4, 1, 9999, &year) || !pass(&c, '-') || !take_number(&c, 2, 1, 12, &month) ||
	    !pass(&c, '-'))
		return 0;
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
	if (!take_number(&c, 2, 1, month == 2 && leap ? 29 : days[month - 1], NULL))
		return 0;
	if (c.at == c.end)
		return SL__KINDS_TIME;

	/* hh:mm[:ss[.ffffff]]; digits after the sixth of a fraction must be zeros */
	if (!pass(&c, 'T') && !pass(&c, ' '))
		return 0;
	if (!take_number(&c, 2, 0, 23, NULL) || !pass(&c, ':') || !take_number(&c, 2, 0, 59, NULL))
		return 0;
	if (pass(&c, ':')) {
		if (!take_number(&c, 2, 0, 59, NULL))
			return 0;
		if (pass(&c, '.')) {
			const char *from = c.at;
			for (; at_digit(&c); c.at++)
				if (c.at - from >= 6 && *c.at != '0')
					return 0;
			if (c.at == from)
				return 0;
		}
	}

	/* no zone, Z, or hours and optionally minutes east or west */
	if (c.at < c.end && !pass(&c, 'Z')) {
		if ((!pass(&c, '+') && !pass(&c, '-')) || !take_number(&c, 2, 0, 15, NULL))
			return 0;
		if (c.at < c.end) {
			(void)pass(&c, ':');
			if (!take_number(&c, 2, 0, 59, NULL))
				return 0;
		}
	}
	return c.at == c.end ? SL__KIND(SL_COLUMN_TIMESTAMP) : 0;
}

/* ---- all ---- */

static bool is_word(const char *text, size_t len, const char *word)
{
	return len == strlen(word) && memcmp(text, word, len) == 0;
}

unsigned sl__guess(const char *text, size_t len, unsigned asked)
{
	unsigned kinds = 0;
	if (len == 0)
		return 0;
	if ((asked & SL__KINDS_NUMBER) != 0)
		kinds |= guess_number(text, len);
	if ((asked & SL__KINDS_TIME) != 0)
		kinds |= guess_time(text, len);
	if ((asked & SL__KIND(SL_COLUMN_BOOLEAN)) != 0 && (is_word(text, len, "true") || is_word(text, len, "false")))
		kinds |= SL__KIND(SL_COLUMN_BOOLEAN);
	if ((asked & SL__KIND(SL_COLUMN_JSON)) != 0 && (text[0] == '{' || text[0] == '[') &&
	    sl__json_check_value(text, len, false, NULL) == 0)
		kinds |= SL__KIND(SL_COLUMN_JSON);
	return kinds & asked;
}

enum sl_column_kind sl__guess_column(unsigned kinds, bool seen)
{
	/* The narrowest first: what is an integer can also be read as a real, and a date as a timestamp. */
	static const enum sl_column_kind order[] = {SL_COLUMN_INTEGER, SL_COLUMN_REAL, SL_COLUMN_NUMERIC,
						    SL_COLUMN_BOOLEAN, SL_COLUMN_DATE, SL_COLUMN_TIMESTAMP,
						    SL_COLUMN_JSON};
	for (size_t i = 0; seen && i < SL_COUNT(order); i++)
		if ((kinds & SL__KIND(order[i])) != 0)
			return order[i];
	return SL_COLUMN_TEXT;
}
