/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of CSV records: in the usual case sixteen bytes at a time, with quotes from field to field. */
#include "format/csv.h"
#include "format/text.h"

static int csv_wrong(struct sl__csv *s, const char *at, const char *why)
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

int sl__csv_next(struct sl__csv *s, struct sl__csv_field *f)
{
	const char *next; /* the byte after the field: its delimiter, or the end of the record */
	if (!s->more)
		return 0;
	if (s->at == s->end || *s->at != '"') {
		next = plain_field_end(s->at, s->end, s->delimiter);
		if (next < s->end && *next != s->delimiter)
			return csv_wrong(s, next,
					 *next == '"' ? "a quote inside an unquoted field"
						      : "a line end outside quotes");
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
			return csv_wrong(s, s->at, "an unclosed quote");
		next = quote + 1;
		if (next < s->end && *next != s->delimiter)
			return csv_wrong(s, next, "text after a closing quote");
		*f = (struct sl__csv_field){.text = from, .len = (size_t)(quote - from), .quoted = true};
		if (doubled > 0) {
			if ((s->need_memory = s->scratch == NULL))
				return -1;
			char *to = s->scratch;
			f->text = to;
			for (const char *stop; from < quote;
			     from = stop) { /* each first quote of two, not the second */
				const char *double_quote = memchr(from, '"', (size_t)(quote - from));
				stop = double_quote != NULL ? double_quote + 2 : quote;
				size_t k = (size_t)(stop - from) - (double_quote != NULL);
				memcpy(to, from, k);
				to += k;
			}
			f->len = (size_t)(to - s->scratch);
			s->scratch = to;
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
#endif

size_t sl__csv_cut(const char *record, size_t len, char delimiter, struct sl__field *fields, size_t n)
{
	struct cut c = {.field = record, .fields = fields, .max = n};
	const char *p = record, *end = record + len;
#if SL__SSE2
	if (len >= 16) {
		for (; end - p >= 16; p += 16)
			if (!cut_16(&c, p, delimiter, 0xFFFF))
				return 0;
		/* The last sixteen once more, without those that were seen. */
		if (p < end && !cut_16(&c, end - 16, delimiter, 0xFFFFu << (16 - (end - p))))
			return 0;
		p = end;
	}
#endif
	for (; p < end; p++) {
		if ((signed char)*p <= 0 || *p == '"' || *p == '\n' || *p == '\r')
			return 0;
		if (*p == delimiter && !cut_at(&c, p))
			return 0;
	}
	return cut_at(&c, end) ? c.n : 0;
}

/* ---- the usual record, with its line end still to be found ---- */

/* The line end at `at`, a line feed or a carriage return before one; it was not cut as a part of the last field. */
static size_t cut_end(struct cut *c, struct sl__row_line *line, const char *at)
{
	const char *feed = *at == '\n' ? at : at + 1;
	const char *end = feed > c->field && feed[-1] == '\r' ? feed - 1 : feed;
	line->used = (size_t)(feed - line->text) + 1;
	line->len = (size_t)(end - line->text);
	return cut_at(c, end) ? c->n : 0;
}

/* Only a carriage return right before a line feed is none of the record's bytes. */
static inline bool is_line_end(const char *p, const char *end)
{
	return *p == '\n' || (*p == '\r' && end - p > 1 && p[1] == '\n');
}

size_t sl__csv_cut_line(struct sl__row_line *line, char delimiter, struct sl__field *fields, size_t n)
{
	struct cut c = {.field = line->text, .fields = fields, .max = n};
	const char *p = line->text, *end = p + line->left;
#if SL__SSE2
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
		return is_line_end(p, end) ? cut_end(&c, line, p) : 0;
	}
#endif
	for (; p < end; p++) {
		if (is_line_end(p, end))
			return cut_end(&c, line, p);
		if ((signed char)*p <= 0 || *p == '"' || *p == '\r')
			return 0;
		if (*p == delimiter && !cut_at(&c, p))
			return 0;
	}
	return 0;
}
