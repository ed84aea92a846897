/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows: one record of CSV or JSON taken apart into the fields of given columns, and put together again.
 *
 * Guarantees: nothing is interpreted beyond what the format says: numbers stay the text they were (64-bit integers and
 * decimals exactly), nested JSON stays text. JSON is checked as RFC 8259 says (UTF-8, depth at most 256, one value and
 * nothing after it). A record that is wrong gives SL_EDATA with class poison and says where.
 * The usual case allocates nothing and copies nothing: fields point into the record, except strings with escapes.
 *
 * Thread safety: a reader belongs to one thread. Ownership: fields live until the next read or the end of the record.
 */
#ifndef SL_FORMAT_ROW_H
#define SL_FORMAT_ROW_H

#include "base/buf.h"
#include <sluice/adapter/env.h>

enum sl__field_kind {
	SL__FIELD_ABSENT = 0, /* JSON: no such member; CSV: the record was short (only where that is allowed) */
	SL__FIELD_NULL = 1,   /* JSON null; an unquoted CSV field equal to null_text */
	SL__FIELD_TEXT = 2,   /* a JSON string, unescaped; any other CSV field, unquoted */
	SL__FIELD_NUMBER = 3, /* JSON only: its text */
	SL__FIELD_TRUE = 4,
	SL__FIELD_FALSE = 5,
	SL__FIELD_JSON = 6 /* an object or array: its text */
};

struct sl__field {
	const char *text;
	size_t len;
	enum sl__field_kind kind;
	bool has_nul; /* the text contains a NUL character (JSON \u0000): few targets take that */
};

struct sl__row_opts {
	const struct sl_env *env;
	bool csv;
	const char *const *columns; /* names of the fields that read gives, in their order; borrowed */
	size_t n_columns;
	const char *null_text; /* CSV; NULL: "" */
	char delimiter;        /* CSV; 0: ',' */
};

struct sl__row_reader;
SL_MUST_CHECK int sl__row_reader_new(struct sl__row_reader **out, const struct sl__row_opts *opts, struct sl_err *err);
void sl__row_reader_free(struct sl__row_reader *r); /* NULL is allowed */

/* Fill fields[n_columns]. CSV: field i is column i; SL_EDATA when their number differs, for invalid UTF-8, a NUL, and
 * what format/csv.h calls a fault. JSON: by name; SL_EDATA for a member without a column, or a repeated one. SL_ENOMEM
 * is the only failure that is not the record's. After a failure the fields say nothing. */
SL_MUST_CHECK int sl__row_read(struct sl__row_reader *r, const void *record, size_t len, struct sl__field *fields,
			       struct sl_err *err);

/* sl__row_next: it was an empty line, no record. */
#define SL__ROW_BLANK 1

/* Text that begins with a record whose end is not known yet: its line end, or the end of the text. */
struct sl__row_line {
	const char *text;
	size_t left;      /* bytes of text, more than 0; SL__ROW_PADDING after them must be readable */
	size_t len, used; /* out: of the record, without and with its line end */
};
#define SL__ROW_PADDING 16

/*
 * Read the record that line->text begins with. len and used are set whatever is returned but SL_ENOMEM. 0,
 * SL__ROW_BLANK, or as sl__row_read. Where records end is as in <sluice/records.h>, but for a quote that is not closed
 * within the text: then it is SL_EDATA and the record is the first line.
 */
SL_MUST_CHECK int sl__row_next(struct sl__row_reader *r, struct sl__row_line *line, struct sl__field *fields,
			       struct sl_err *err);

/* {"a":1,"b":"x"} on one line: fields without their ABSENT ones. CSV text becomes JSON strings. Failures stick in buf.
 */
void sl__row_put_json(struct sl__buf *buf, const char *const *columns, const struct sl__field *fields, size_t n);
/* A CSV record without a line end; quotes where needed; NULL and ABSENT as an empty field, an empty text as "". The
 * caller refuses a field with has_nul first: a NUL has no place in CSV. */
void sl__row_put_csv(struct sl__buf *buf, const struct sl__field *fields, size_t n);
/* A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void sl__put_json_string(struct sl__buf *buf, const char *text, size_t len);

/* JSON as it is, but on one line: outside strings a line end is white space, and inside there are none. */
void sl__put_json_line(struct sl__buf *buf, const char *text, size_t len);

/* Is this one JSON value (object: only an object will do), and nothing else? SL_EDATA says where not. */
SL_MUST_CHECK int sl__json_check_value(const void *text, size_t len, bool object, struct sl_err *err);

#endif
