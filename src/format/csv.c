/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of CSV records: in the usual case sixteen bytes at a time, with quotes from field to field. */
#include "format/csv.h"
#include "format/text.h"

static int wrong(struct sl__csv *s, const char *at, const char *why)
{
	s->at = at;
	s->why = why;
	return -1;
}

/* The first delimiter, quote or line end. */
static const char *plain_field_end(const char *p, const char *end, char delimiter)
{
#if SL__SSE2
	for (; end - p >= 16; p += 16) {
		__m128i v = sl__load16(p);
		__m128i stop = _mm_or_si128(sl__equal16(v, '\n'), sl__equal16(v, '\r'));
		stop = _mm_or_si128(stop, _mm_or_si128(sl__equal16(v, '"'), sl__equal16(v, delimiter)));
		unsigned m = sl__mask16(stop);
		if (m != 0)
			return p + __builtin_ctz(m);
	}
#endif
	while (p < end && *p != delimiter && *p != '"' && *p != '\n' && *p != '\r')
		p++;
	return p;
}

/* from[0..n) with single quotes for its doubled ones. */
static size_t undouble(char *to, const char *from, size_t n)
{
	const char *end = from + n;
	char *at = to;
	while (from < end) {
		const char *quote = memchr(from, '"', (size_t)(end - from));
		size_t k = (size_t)((quote != NULL ? quote + 1 : end) - from);
		memcpy(at, from, k);
		at += k;
		from += quote != NULL ? k + 1 : k;
	}
	return (size_t)(at - to);
}

int sl__csv_next(struct sl__csv *s, struct sl__csv_field *f)
{
	const char *next; /* the byte after the field: its delimiter, or the end of the record */
	if (!s->more)
		return 0;
	if (s->at == s->end || *s->at != '"') {
		next = plain_field_end(s->at, s->end, s->delimiter);
		if (next < s->end && *next != s->delimiter)
			return wrong(s, next,
				     *next == '"' ? "a quote inside an unquoted field" : "a line end outside quotes");
		*f = (struct sl__csv_field){.text = s->at, .len = (size_t)(next - s->at)};
	} else {
		/* The field ends at the first quote that is not doubled. */
		const char *from = s->at + 1, *quote = from;
		size_t doubled = 0;
		while ((quote = memchr(quote, '"', (size_t)(s->end - quote))) != NULL && quote + 1 < s->end &&
		       quote[1] == '"') {
			doubled++;
			quote += 2;
		}
		if (quote == NULL)
			return wrong(s, s->at, "the quote is not closed");
		next = quote + 1;
		if (next < s->end && *next != s->delimiter)
			return wrong(s, next, "text after a closing quote");
		*f = (struct sl__csv_field){.text = from, .len = (size_t)(quote - from), .quoted = true};
		if (doubled > 0) {
			if ((s->need_memory = s->scratch == NULL))
				return -1;
			f->text = s->scratch;
			f->len = undouble(s->scratch, from, f->len);
			s->scratch += f->len;
		}
	}
	s->more = next < s->end;
	s->at = s->more ? next + 1 : next;
	return 1;
}

/* ---- the usual record ---- */

struct cut {
	const char *field; /* where the one at hand begins */
	struct sl__field *fields;
	size_t n, max;
};

static inline bool cut_at(struct cut *c, const char *end)
{
	if (c->n == c->max)
		return false;
	c->fields[c->n++] =
		(struct sl__field){.text = c->field, .len = (size_t)(end - c->field), .kind = SL__FIELD_TEXT};
	c->field = end + 1;
	return true;
}

static bool cut_bytes(struct cut *c, const char *p, const char *end, char delimiter)
{
	for (; p < end; p++) {
		if ((signed char)*p <= 0 || *p == '"' || *p == '\n' || *p == '\r')
			return false;
		if (*p == delimiter && !cut_at(c, p))
			return false;
	}
	return true;
}

#if SL__SSE2
/* The sixteen bytes at p, of which those whose bit is in `which` count. */
static inline bool cut_16(struct cut *c, const char *p, char delimiter, unsigned which)
{
	__m128i v = sl__load16(p);
	__m128i stop = _mm_or_si128(_mm_or_si128(sl__equal16(v, '\n'), sl__equal16(v, '\r')), sl__equal16(v, '"'));
	if (SL_UNLIKELY(sl__mask16(_mm_or_si128(stop, sl__odd16(v))) != 0))
		return false;
	for (unsigned m = sl__mask16(sl__equal16(v, delimiter)) & which; m != 0; m &= m - 1)
		if (!cut_at(c, p + __builtin_ctz(m)))
			return false;
	return true;
}

static bool cut_all(struct cut *c, const char *p, const char *end, char delimiter)
{
	if (end - p < 16)
		return cut_bytes(c, p, end, delimiter);
	for (; end - p >= 16; p += 16)
		if (!cut_16(c, p, delimiter, 0xFFFF))
			return false;
	/* The last sixteen once more, without those that were seen. */
	return p == end || cut_16(c, end - 16, delimiter, 0xFFFFu << (16 - (end - p)));
}
#else
static bool cut_all(struct cut *c, const char *p, const char *end, char delimiter)
{
	return cut_bytes(c, p, end, delimiter);
}
#endif

size_t sl__csv_cut(const char *record, size_t len, char delimiter, struct sl__field *fields, size_t n)
{
	struct cut c = {.field = record, .fields = fields, .max = n};
	if (!cut_all(&c, record, record + len, delimiter) || !cut_at(&c, record + len))
		return 0;
	return c.n;
}

/* ---- the usual record, with its line end still to be found ---- */

/* The line end at `at`; a carriage return before it belongs to it, and was cut as a part of the last field. */
static size_t cut_end(struct cut *c, const char *start, const char *at, size_t *line, size_t *used)
{
	const char *end = at > c->field && at[-1] == '\r' ? at - 1 : at;
	*used = (size_t)(at - start) + 1;
	*line = (size_t)(end - start);
	return cut_at(c, end) ? c->n : 0;
}

/* Only a carriage return right before a line end is none of the record's bytes. */
static inline bool is_line_end(const char *p, const char *end)
{
	return *p == '\n' || (*p == '\r' && end - p > 1 && p[1] == '\n');
}

static size_t cut_line_bytes(struct cut *c, const char *start, const char *p, const char *end, char delimiter,
			     size_t *line, size_t *used)
{
	for (; p < end; p++) {
		if (is_line_end(p, end))
			return cut_end(c, start, *p == '\n' ? p : p + 1, line, used);
		if ((signed char)*p <= 0 || *p == '"' || *p == '\r')
			return 0;
		if (*p == delimiter && !cut_at(c, p))
			return 0;
	}
	return 0;
}

#if SL__SSE2
size_t sl__csv_cut_line(const char *text, size_t len, char delimiter, struct sl__field *fields, size_t n, size_t *line,
			size_t *used)
{
	struct cut c = {.field = text, .fields = fields, .max = n};
	const char *p = text, *end = text + len;
	for (; end - p >= 16; p += 16) {
		__m128i v = sl__load16(p);
		__m128i odd = _mm_or_si128(sl__equal16(v, '"'), sl__odd16(v));
		__m128i line_end = _mm_or_si128(sl__equal16(v, '\n'), sl__equal16(v, '\r'));
		unsigned stop = sl__mask16(_mm_or_si128(odd, line_end));
		unsigned before = (stop & -stop) - 1; /* all of them when nothing stops */
		for (unsigned m = sl__mask16(sl__equal16(v, delimiter)) & before; m != 0; m &= m - 1)
			if (!cut_at(&c, p + __builtin_ctz(m)))
				return 0;
		if (stop == 0)
			continue;
		p += __builtin_ctz(stop);
		return is_line_end(p, end) ? cut_end(&c, text, *p == '\n' ? p : p + 1, line, used) : 0;
	}
	return cut_line_bytes(&c, text, p, end, delimiter, line, used);
}
#else
size_t sl__csv_cut_line(const char *text, size_t len, char delimiter, struct sl__field *fields, size_t n, size_t *line,
			size_t *used)
{
	struct cut c = {.field = text, .fields = fields, .max = n};
	return cut_line_bytes(&c, text, text, text + len, delimiter, line, used);
}
#endif
