/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a text one JSON value? RFC 8259 without extensions: UTF-8, no lone surrogate in an escape, nothing behind the
 * value. It is only looked at, never built, since stores keep JSON byte for byte: numbers of any size pass, and a text
 * of many megabytes costs no memory. Each function moves `at` over what it has accepted; a false leaves `at` at the
 * byte that is wrong, and `why` says what was expected there.
 */
#include "base/utf8.h"
#include "jobs/types.h"

#define DEPTH_MAX 1000

struct scan {
	const char *at;
	const char *why;
	int depth;
};

static bool scan_value(struct scan *s);

static bool wrong(struct scan *s, const char *why)
{
	s->why = why;
	return false;
}

static void skip_blanks(struct scan *s)
{
	while (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r')
		s->at++;
}

static bool scan_word(struct scan *s, const char *word)
{
	size_t n = strlen(word);
	if (strncmp(s->at, word, n) != 0)
		return wrong(s, "a value is expected");
	s->at += n;
	return true;
}

static bool scan_digits(struct scan *s)
{
	if (*s->at < '0' || *s->at > '9')
		return wrong(s, "a digit is expected");
	while (*s->at >= '0' && *s->at <= '9')
		s->at++;
	return true;
}

static bool scan_number(struct scan *s)
{
	if (*s->at == '-')
		s->at++;
	if (*s->at == '0')
		s->at++;
	else if (!scan_digits(s))
		return false;
	if (*s->at == '.') {
		s->at++;
		if (!scan_digits(s))
			return false;
	}
	if (*s->at == 'e' || *s->at == 'E') {
		s->at++;
		if (*s->at == '+' || *s->at == '-')
			s->at++;
		if (!scan_digits(s))
			return false;
	}
	return true;
}

/* The four digits of \uXXXX at p, or -1. Nothing behind a NUL is read. */
static int hex4(const char *p)
{
	int v = 0;
	for (int i = 0; i < 4; i++) {
		int c = p[i] | 0x20;
		if (p[i] >= '0' && p[i] <= '9')
			v = v * 16 + (p[i] - '0');
		else if (c >= 'a' && c <= 'f')
			v = v * 16 + (c - 'a' + 10);
		else
			return -1;
	}
	return v;
}

static bool scan_unicode(struct scan *s)
{
	int unit = hex4(s->at + 2);
	if (unit < 0)
		return wrong(s, "\\u needs four hexadecimal digits");
	if (unit >= 0xDC00 && unit <= 0xDFFF)
		return wrong(s, "a lone surrogate is no character");
	size_t n = 6;
	if (unit >= 0xD800 && unit <= 0xDBFF) {
		int low = s->at[6] == '\\' && s->at[7] == 'u' ? hex4(s->at + 8) : -1;
		if (low < 0xDC00 || low > 0xDFFF)
			return wrong(s, "a lone surrogate is no character");
		n = 12;
	}
	s->at += n;
	return true;
}

static bool scan_escape(struct scan *s)
{
	if (s->at[1] == 'u')
		return scan_unicode(s);
	if (s->at[1] == '\0' || strchr("\"\\/bfnrt", s->at[1]) == NULL)
		return wrong(s, "no such escape");
	s->at += 2;
	return true;
}

static bool scan_string(struct scan *s)
{
	if (*s->at != '"')
		return wrong(s, "a string is expected");
	for (s->at++; *s->at != '"';) {
		unsigned char c = (unsigned char)*s->at;
		if (c == '\\') {
			if (!scan_escape(s))
				return false;
		} else if (c < 0x20) {
			return wrong(s, c == '\0' ? "the text ends inside of a string"
						  : "a control character must be escaped");
		} else if (c < 0x80) {
			s->at++;
		} else {
			size_t n = sl__utf8_length(s->at);
			if (n == 0)
				return wrong(s, "invalid UTF-8");
			s->at += n;
		}
	}
	s->at++;
	return true;
}

static bool scan_member(struct scan *s)
{
	if (!scan_string(s))
		return false;
	skip_blanks(s);
	if (*s->at != ':')
		return wrong(s, "':' is expected");
	s->at++;
	return scan_value(s);
}

/* An array or an object: `item` scans what stands between its commas. */
static bool scan_list(struct scan *s, char end, bool (*item)(struct scan *s), const char *why)
{
	if (++s->depth > DEPTH_MAX)
		return wrong(s, "nested too deep");
	s->at++;
	skip_blanks(s);
	if (*s->at != end) {
		for (;;) {
			skip_blanks(s);
			if (!item(s))
				return false;
			skip_blanks(s);
			if (*s->at != ',')
				break;
			s->at++;
		}
		if (*s->at != end)
			return wrong(s, why);
	}
	s->at++;
	s->depth--;
	return true;
}

static bool scan_value(struct scan *s)
{
	skip_blanks(s);
	switch (*s->at) {
	case '{':
		return scan_list(s, '}', scan_member, "',' or '}' is expected");
	case '[':
		return scan_list(s, ']', scan_value, "',' or ']' is expected");
	case '"':
		return scan_string(s);
	case 't':
		return scan_word(s, "true");
	case 'f':
		return scan_word(s, "false");
	case 'n':
		return scan_word(s, "null");
	default:
		if (*s->at == '-' || (*s->at >= '0' && *s->at <= '9'))
			return scan_number(s);
		return wrong(s, *s->at == '\0' ? "the text ends where a value is expected" : "a value is expected");
	}
}

/* Lines and columns count from 1; a column is a character. */
static void place(const char *json, const char *at, size_t *line, size_t *column)
{
	*line = *column = 1;
	for (; json < at; json++) {
		if (*json == '\n') {
			(*line)++;
			*column = 1;
		} else if (((unsigned char)*json & 0xC0) != 0x80) {
			(*column)++;
		}
	}
}

int sl__job_json_check(const char *json, const char *field, struct sl_err *err)
{
	struct scan s = {.at = json};
	if (strnlen(json, SL__JOB_JSON_BYTES + 1) > SL__JOB_JSON_BYTES)
		return sl_err_set(err, SL_ETOOBIG, "%s: more than %zu MiB of JSON; store it elsewhere and name it",
				  field, SL__JOB_JSON_BYTES >> 20);
	bool good = scan_value(&s);
	if (good) {
		skip_blanks(&s);
		good = *s.at == '\0' || wrong(&s, "nothing may stand behind the value");
	}
	if (good)
		return 0;
	size_t line, column;
	place(json, s.at, &line, &column);
	return sl_err_set(err, SL_EDATA, "%s: line %zu, column %zu: %s", field, line, column, s.why);
}
