/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scanner of JSON. The library has jansson, and does not use it here: a number must stay the text that it was
 * (jansson makes doubles of decimals, and refuses integers beyond 64 bits), a nested value must stay its text, and a
 * row must cost nanoseconds, so nothing is built.
 *
 * Strings are searched sixteen bytes at a time for the first byte that is not a plain character. Nested values are
 * walked without recursion: a bit per level says whether it is an object.
 */
#include "format/json.h"
#include "format/text.h"

static bool json_wrong(struct sl__json *s, const char *why)
{
	s->why = why;
	return false;
}

static inline void skip_blanks(struct sl__json *s)
{
	while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
		s->at++;
}

/* The byte at hand; NUL at the end, which no JSON has where it is asked for. */
static inline char peek(const struct sl__json *s)
{
	return s->at < s->end ? *s->at : '\0';
}

/* ---- strings ---- */

/* The first byte that is a quote, a backslash, a control character or not ASCII. */
static inline const char *plain_string_end(const char *p, const char *end)
{
#if SL__SSE2
	for (; end - p >= 16; p += 16) {
		__m128i v = sl__load16(p);
		__m128i odd = _mm_or_si128(sl__equal16(v, '"'), sl__equal16(v, '\\'));
		odd = _mm_or_si128(odd, _mm_cmplt_epi8(v, _mm_set1_epi8(0x20)));
		unsigned m = sl__mask16(odd);
		if (m != 0)
			return p + __builtin_ctz(m);
	}
#endif
	while (p < end && (signed char)*p >= 0x20 && *p != '"' && *p != '\\')
		p++;
	return p;
}

/* The four digits of \uXXXX at p, or -1. */
static int hex4(const char *p, const char *end)
{
	int v = 0;
	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int c = p[i] | 0x20;
		if (sl__is_digit(p[i]))
			v = v * 16 + (p[i] - '0');
		else if (c >= 'a' && c <= 'f')
			v = v * 16 + (c - 'a' + 10);
		else
			return -1;
	}
	return v;
}

static inline bool is_high_surrogate(int unit)
{
	return unit >= 0xD800 && unit <= 0xDBFF;
}

static inline bool is_low_surrogate(int unit)
{
	return unit >= 0xDC00 && unit <= 0xDFFF;
}

/* The escape at s->at, which is a backslash. A high surrogate must be followed by the escape of a low one. */
static bool scan_escape(struct sl__json *s)
{
	const char *p = s->at;
	char c = s->end - p < 2 ? '\0' : p[1];
	if (c != 'u') {
		if (c == '\0' || strchr("\"\\/bfnrt", c) == NULL)
			return json_wrong(s, "invalid escape");
		s->at += 2;
		return true;
	}
	int unit = hex4(p + 2, s->end);
	if (unit < 0)
		return json_wrong(s, "\\u needs four hexadecimal digits");
	if (is_low_surrogate(unit))
		return json_wrong(s, "a lone surrogate is not a character");
	if (is_high_surrogate(unit)) {
		if (s->end - p < 12 || p[6] != '\\' || p[7] != 'u' || !is_low_surrogate(hex4(p + 8, s->end)))
			return json_wrong(s, "a lone surrogate is not a character");
		s->at = p + 12;
		return true;
	}
	s->at = p + 6;
	return true;
}

bool sl__json_string(struct sl__json *s, struct sl__json_value *v)
{
	if (peek(s) != '"')
		return json_wrong(s, "a string is expected");
	const char *from = ++s->at;
	v->escaped = false;
	for (;;) {
		s->at = plain_string_end(s->at, s->end);
		if (s->at == s->end)
			return json_wrong(s, "the text ends inside a string");
		unsigned char c = (unsigned char)*s->at;
		if (c == '"')
			break;
		if (c == '\\') {
			v->escaped = true;
			if (!scan_escape(s))
				return false;
		} else if (c < 0x20) {
			return json_wrong(s, "a control character must be escaped");
		} else {
			size_t n = sl__utf8_length_n(s->at, (size_t)(s->end - s->at));
			if (n == 0)
				return json_wrong(s, "invalid UTF-8");
			s->at += n;
		}
	}
	v->kind = SL__FIELD_TEXT;
	v->text = from;
	v->len = (size_t)(s->at++ - from);
	return true;
}

/* Write the character of the escape at *from, which was checked before, as UTF-8. Returns its length. */
static size_t unescape_one(char *to, const char **from, const char *end)
{
	static const char letters[] = "bfnrt", values[] = "\b\f\n\r\t";
	char c = (*from)[1];
	if (c != 'u') {
		const char *letter = strchr(letters, c);
		*to = letter != NULL ? values[letter - letters] : c;
		*from += 2;
		return 1;
	}
	int unit = hex4(*from + 2, end);
	*from += 6;
	if (is_high_surrogate(unit)) {
		unit = 0x10000 + ((unit - 0xD800) << 10) + (hex4(*from + 2, end) - 0xDC00);
		*from += 6;
	}
	unsigned u = (unsigned)unit;
	if (u < 0x80) {
		to[0] = (char)u;
		return 1;
	}
	size_t n = u < 0x800 ? 2 : u < 0x10000 ? 3 : 4;
	for (size_t i = n - 1; i > 0; i--, u >>= 6)
		to[i] = (char)(0x80 | (u & 0x3F));
	to[0] = (char)((0xF00 >> n) | u);
	return n;
}

size_t sl__json_unescape(char *to, const char *from, size_t n, bool *has_nul)
{
	const char *end = from + n;
	char *at = to;
	*has_nul = false;
	while (from < end) {
		const char *backslash = memchr(from, '\\', (size_t)(end - from));
		size_t plain = (size_t)((backslash != NULL ? backslash : end) - from);
		memcpy(at, from, plain);
		at += plain;
		from += plain;
		if (from < end) {
			size_t k = unescape_one(at, &from, end);
			*has_nul |= k == 1 && *at == '\0';
			at += k;
		}
	}
	return (size_t)(at - to);
}

/* ---- numbers and words ---- */

static bool scan_digits(struct sl__json *s)
{
	const char *from = s->at;
	while (s->at < s->end && sl__is_digit(*s->at))
		s->at++;
	return s->at > from || json_wrong(s, "a digit is expected");
}

static bool scan_word(struct sl__json *s, const char *word, size_t n)
{
	if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
		return json_wrong(s, "a value is expected");
	s->at += n;
	return true;
}

/* A value that is no object or array. */
static bool scan_scalar(struct sl__json *s, struct sl__json_value *v)
{
	v->text = s->at;
	switch (peek(s)) {
	case '"':
		return sl__json_string(s, v);
	case 't':
		v->kind = SL__FIELD_TRUE;
		return scan_word(s, "true", 4);
	case 'f':
		v->kind = SL__FIELD_FALSE;
		return scan_word(s, "false", 5);
	case 'n':
		v->kind = SL__FIELD_NULL;
		return scan_word(s, "null", 4);
	default:
		break;
	}

	/* A number, or nothing that is one. */
	if (s->at == s->end)
		return json_wrong(s, "the text ends where a value is expected");
	if (*s->at != '-' && !sl__is_digit(*s->at))
		return json_wrong(s, "a value is expected");
	v->kind = SL__FIELD_NUMBER;
	if (*s->at == '-')
		s->at++;
	if (peek(s) == '0')
		s->at++;
	else if (!scan_digits(s))
		return false;
	if (peek(s) == '.') {
		s->at++;
		if (!scan_digits(s))
			return false;
	}
	if (peek(s) == 'e' || peek(s) == 'E') {
		s->at++;
		if (peek(s) == '+' || peek(s) == '-')
			s->at++;
		return scan_digits(s);
	}
	return true;
}

/* ---- nested values ---- */

struct nest {
	uint64_t objects[SL__JSON_DEPTH_MAX / 64]; /* a bit per level: 1 is an object, 0 an array */
	unsigned depth;
};

static bool enter(struct sl__json *s, struct nest *n)
{
	if (s->depth + n->depth >= s->depth_max)
		return json_wrong(s, "nested too deeply");
	uint64_t bit = (uint64_t)1 << (n->depth % 64);
	uint64_t *word = &n->objects[n->depth / 64];
	if (n->depth % 64 == 0)
		*word = 0;
	*word = *s->at == '{' ? *word | bit : *word & ~bit;
	n->depth++;
	s->at++;
	return true;
}

static inline bool in_object(const struct nest *n)
{
	unsigned level = n->depth - 1;
	return (n->objects[level / 64] >> (level % 64) & 1) != 0;
}

static inline char closer(const struct nest *n)
{
	return in_object(n) ? '}' : ']';
}

static bool scan_nested(struct sl__json *s)
{
	struct nest n; /* words of it are set as they are entered */
	struct sl__json_value ignored;
	n.depth = 0;
	if (!enter(s, &n))
		return false;
	for (bool fresh = true; n.depth > 0;) {
		skip_blanks(s);
		if (fresh && s->at < s->end && *s->at == closer(&n)) {
			s->at++;
			n.depth--;
		} else {
			if (in_object(&n) && !(sl__json_string(s, &ignored) && sl__json_colon(s)))
				return false;
			if ((fresh = peek(s) == '{' || peek(s) == '[')) {
				if (!enter(s, &n))
					return false;
				continue;
			}
			if (!scan_scalar(s, &ignored))
				return false;
		}
		fresh = false;
		/* After a value: leave what ends here, up to a comma. */
		for (; n.depth > 0; n.depth--, s->at++) {
			skip_blanks(s);
			if (peek(s) == ',') {
				s->at++;
				break;
			}
			if (s->at == s->end || *s->at != closer(&n))
				return json_wrong(s,
						  in_object(&n) ? "',' or '}' is expected" : "',' or ']' is expected");
		}
	}
	return true;
}

bool sl__json_value(struct sl__json *s, struct sl__json_value *v)
{
	skip_blanks(s);
	v->escaped = false;
	v->text = s->at;
	char c = peek(s);
	if (c == '{' || c == '[') {
		v->kind = SL__FIELD_JSON;
		if (!scan_nested(s))
			return false;
	} else if (!scan_scalar(s, v)) {
		return false;
	}
	if (v->kind != SL__FIELD_TEXT)
		v->len = (size_t)(s->at - v->text);
	return true;
}

/* ---- an object, member by member ---- */

bool sl__json_open(struct sl__json *s)
{
	skip_blanks(s);
	if (peek(s) != '{')
		return json_wrong(s, "an object is expected");
	s->at++;
	s->depth++;
	return true;
}

int sl__json_more(struct sl__json *s, bool first)
{
	skip_blanks(s);
	if (peek(s) == '}') {
		s->at++;
		s->depth--;
		return 0;
	}
	if (!first) {
		if (peek(s) != ',') {
			(void)json_wrong(s, "',' or '}' is expected");
			return -1;
		}
		s->at++;
		skip_blanks(s);
	}
	return 1;
}

bool sl__json_colon(struct sl__json *s)
{
	skip_blanks(s);
	if (peek(s) != ':')
		return json_wrong(s, "':' is expected");
	s->at++;
	skip_blanks(s);
	return true;
}

bool sl__json_finish(struct sl__json *s)
{
	skip_blanks(s);
	return s->at == s->end || json_wrong(s, "unexpected text after the value");
}

int sl__json_wrong(const struct sl__json *s, struct sl_err *err)
{
	return sl_err_set(err, SL_EDATA, "JSON, byte %zu: %s", (size_t)(s->at - s->start) + 1, s->why);
}

int sl__json_check_value(const void *text, size_t len, bool object, struct sl_err *err)
{
	struct sl__json s = sl__json_of(len > 0 ? text : "", len);
	struct sl__json_value v;
	skip_blanks(&s);
	if (object && peek(&s) != '{')
		(void)json_wrong(&s, "an object is expected");
	else if (sl__json_value(&s, &v) && sl__json_finish(&s))
		return 0;
	return sl__json_wrong(&s, err);
}
