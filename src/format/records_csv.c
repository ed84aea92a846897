/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where CSV records end, and their header. Outside quotes sixteen bytes are inspected in one step, for line ends and
 * quotes; delimiters are counted on the way. Inside quotes only the next quote matters.
 *
 *	PLAIN ──quote after a delimiter───▶ QUOTED ──quote──▶ QUOTE ──quote──▶ QUOTED
 *	  ▲  │                                                  │
 *	  │  └──CR──▶ RETURN ──LF──▶ (end)  ◀──CR─ ─ ─ ─ ─ ─ ─ ─┤──LF──▶ (end)
 *	  └──────────────────────────────────────delimiter──────┘──else──▶ LINE: bad, it ends at its first line
 */
#include <stdlib.h>

#include "base/compare.h"
#include "format/csv.h"
#include "format/records_priv.h"
#include "format/text.h"

struct plain {
	size_t delimiters;
	bool odd;
};

#if SL__SSE2
static inline size_t count_bits(unsigned m)
{
	m = m - ((m >> 1) & 0x5555);
	m = (m & 0x3333) + ((m >> 2) & 0x3333);
	m = (m + (m >> 4)) & 0x0F0F;
	return (m + (m >> 8)) & 0x1F;
}
#endif

/* The first line end, carriage return or quote in p[0..n), or n. Up to SL__PADDING bytes after n are inspected. */
static size_t plain_csv_length(const char *p, size_t n, char delimiter, struct plain *seen)
{
#if SL__SSE2
	for (size_t i = 0; i < n; i += 16) {
		__m128i v = sl__load16(p + i);
		__m128i stops =
			_mm_or_si128(_mm_or_si128(sl__equal16(v, '\n'), sl__equal16(v, '\r')), sl__equal16(v, '"'));
		unsigned in = n - i >= 16 ? 0xFFFFu : 0xFFFFu >> (16 - (n - i));
		unsigned stop = sl__mask16(stops) & in;
		unsigned before = stop != 0 ? (stop & -stop) - 1 : in;
		seen->odd |= (sl__mask16(sl__odd16(v)) & before) != 0;
		seen->delimiters += count_bits(sl__mask16(sl__equal16(v, delimiter)) & before);
		if (stop != 0)
			return i + (size_t)__builtin_ctz(stop);
	}
#else
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '\n' || p[i] == '\r' || p[i] == '"')
			return i;
		seen->odd |= (signed char)p[i] <= 0;
		seen->delimiters += p[i] == delimiter;
	}
#endif
	return n;
}

/* From s->at outside quotes to what ends that. true: the record ends. */
static bool scan_plain(struct sl__scan *s, const char *record, size_t n, char delimiter)
{
	struct plain seen = {.delimiters = s->delimiters, .odd = s->odd};
	s->at += plain_csv_length(record + s->at, n - s->at, delimiter, &seen);
	s->delimiters = seen.delimiters;
	s->odd = seen.odd;
	if (s->at == n)
		return false;
	char c = record[s->at];
	if (c == '\n')
		return true;
	if (c == '\r') {
		s->state = SL__SCAN_RETURN;
	} else if (s->at == 0 || record[s->at - 1] == delimiter) {
		s->state = SL__SCAN_QUOTED;
		s->quoted = true;
	} else {
		s->bad = "a quote inside an unquoted field";
	}
	s->at++;
	return false;
}

bool sl__csv_scan(struct sl__scan *s, const char *record, size_t n, char delimiter)
{
	while (s->at < n) {
		char c = record[s->at];
		switch (s->state) {
		case SL__SCAN_PLAIN:
			if (scan_plain(s, record, n, delimiter))
				return true;
			break;
		case SL__SCAN_QUOTED: {
			const char *quote = memchr(record + s->at, '"', n - s->at);
			s->at = quote != NULL ? (size_t)(quote - record) + 1 : n;
			if (quote != NULL)
				s->state = SL__SCAN_QUOTE;
			break;
		}
		case SL__SCAN_QUOTE:
			if (c == '\n')
				return true;
			s->at++;
			if (c == '"') {
				s->state = SL__SCAN_QUOTED;
			} else if (c == delimiter) {
				s->state = SL__SCAN_PLAIN;
				s->delimiters++;
			} else if (c == '\r') {
				s->state = SL__SCAN_RETURN;
			} else {
				*s = (struct sl__scan){.state = SL__SCAN_LINE, .bad = "text after a closing quote"};
			}
			break;
		case SL__SCAN_RETURN:
			if (c == '\n')
				return true;
			s->bad = "a carriage return outside quotes";
			s->state = SL__SCAN_PLAIN;
			break;
		case SL__SCAN_LINE:
			return sl__line_scan(s, record, n);
		}
	}
	return false;
}

const char *sl__csv_fault(const struct sl__scan *s, const char *record, size_t len, size_t n_columns)
{
	size_t at;
	const char *fault = s->odd || s->quoted ? sl__text_fault(record, len, &at) : NULL;
	if (fault != NULL)
		return fault;
	if (n_columns == 0 || s->delimiters + 1 == n_columns)
		return NULL;
	return s->delimiters + 1 < n_columns ? "fewer fields than the header has" : "more fields than the header has";
}

/* ---- the header ---- */

int sl__csv_names(sl_records *r, const struct sl_record *header, struct sl_err *err)
{
	if (header->bad != NULL)
		return sl_err_set(err, SL_EDATA, "the header (line %llu): %s", (unsigned long long)header->line,
				  header->bad);

	/* Count the fields; each needs its text and a NUL. */
	struct sl__csv s = sl__csv_of(header->data, header->len, r->delimiter);
	struct sl__csv_field f;
	size_t n = 0;
	int rc = 0;
	char *scratch = sl__alloc(&r->env, header->len); /* not empty: an empty line is not a record */
	s.scratch = scratch;
	for (struct sl__csv count = s; scratch != NULL && sl__csv_next(&count, &f) > 0;)
		n++;
	char *text = scratch != NULL ? sl__alloc(&r->env, header->len + n) : NULL, *to = text;
	const char **names = text != NULL ? sl__calloc(&r->env, 2 * n, sizeof(*names)) : NULL;
	if (names == NULL) {
		rc = sl_err_set(err, SL_ENOMEM, "out of memory for a header of %zu columns", n);
		goto done;
	}
	for (size_t i = 0; sl__csv_next(&s, &f) > 0; i++) {
		names[i] = to;
		memcpy(to, f.text, f.len);
		to[f.len] = '\0';
		to += f.len + 1;
	}

	/* Every name is there once. The second half of the array is only needed for that. */
	const char **sorted = names + n;
	memcpy(sorted, names, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), sl__compare_texts);
	if (sorted[0][0] == '\0')
		rc = sl_err_set(err, SL_EDATA, "the header has a column without a name");
	for (size_t i = 1; rc == 0 && i < n; i++)
		if (strcmp(sorted[i - 1], sorted[i]) == 0)
			rc = sl_err_set(err, SL_EDATA, "duplicate column \"%.100s\" in the header", sorted[i]);
	if (rc == 0) {
		r->names_text = text;
		r->names = names;
		r->n_names = n;
	}
done:
	sl__free(&r->env, scratch);
	if (rc != 0) {
		sl__free(&r->env, text);
		sl__free(&r->env, names);
	}
	return rc;
}
