/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields of one CSV record (RFC 4180, without its line end), one after the other.
 *
 * Strict where programs differ: text after a closing quote, a quote inside a field that does not begin with one,
 * and a line end outside quotes are faults. psql's \copy would read the first two (a"b"c) as abc; a reported
 * fault is better than a value that was never written.
 *
 * Thread safety: no state but the scanner's. Ownership: fields point into the record, or into `scratch`.
 */
#ifndef SL_FORMAT_CSV_H
#define SL_FORMAT_CSV_H

#include "format/row.h"

struct sl__csv {
	const char *start, *at, *end;
	char delimiter;
	bool more;        /* a field is still to come: every record has one, and one more for every delimiter */
	char *scratch;    /* where fields with doubled quotes go; room for the record's length; may be NULL: then */
	bool need_memory; /* … next fails with this set when it comes to such a field */
	const char *why;
};

struct sl__csv_field {
	const char *text;
	size_t len;
	bool quoted;
};

static inline struct sl__csv sl__csv_of(const void *record, size_t len, char delimiter)
{
	const char *p = record;
	return (struct sl__csv){.start = p, .at = p, .end = p + len, .delimiter = delimiter, .more = true};
}

/* 1: a field; 0: there are no more; -1: `why` says what is wrong at `at`, unless need_memory is set. */
int sl__csv_next(struct sl__csv *s, struct sl__csv_field *f);

/* Cut a record without quotes, line ends and bytes beyond ASCII at its delimiters; n fields at most. The number of
 * them, or 0: it is not such a record, or has more. */
size_t sl__csv_cut(const char *record, size_t len, char delimiter, struct sl__field *fields, size_t n);

/* The same for a record whose end is not known. It must end with a line end; line->len and line->used are set. */
size_t sl__csv_cut_line(struct sl__row_line *line, char delimiter, struct sl__field *fields, size_t n);

#endif
