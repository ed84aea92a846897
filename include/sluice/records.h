/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records out of a stream of bytes: CSV as in RFC 4180 (quotes, embedded line ends, CRLF, a header, a byte order mark),
 * or JSON lines. Finds where records begin and end, reports the line of each, and guesses the types of columns.
 *
 * Guarantees: every byte of the input is in exactly one record, the header, or between records; a bad record (too long,
 * an open quote, invalid UTF-8, not an object, another number of fields than the header has) is reported as such, with
 * its line, and reading continues after it. Memory is bounded by max_record_bytes and one buffer, whatever the input
 * holds. Empty lines are skipped. Not guaranteed: that values fit a table; the sink finds that.
 *
 * After a wrong quote the rest of the input cannot be split for certain. A record whose quote is not closed within
 * max_record_bytes, or closed and followed by text, ends at its first line, and reading continues there, so that one
 * stray quote costs one record. A quote or a carriage return inside of an unquoted field makes the record bad, no more.
 * (psql reads a"b"c as abc; here no value appears that was not written.)
 *
 * Thread safety: one thread at a time per handle. Ownership: records live until the next call on the handle.
 */
#ifndef SLUICE_RECORDS_H
#define SLUICE_RECORDS_H

#include <sluice/sink.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_records sl_records;

/* Read up to n bytes; the count, 0 at the end, or a negative SL_E… with err filled. */
typedef int64_t sl_records_read_fn(void *buf, size_t n, struct sl_err *err, void *ctx);

struct sl_records_opts {
	size_t struct_size; /* SL_RECORDS_OPTS_INIT fills it */
	const struct sl_env *env;
	enum sl_row_format format;
	enum sl_switch header;    /* CSV: the first record names the columns; default on */
	int64_t max_record_bytes; /* default 16 MiB; at most 64 MiB */
	int64_t buffer_bytes;     /* default 256 KiB */
	char delimiter;           /* default ',' */
	const char *null_text;    /* for infer; default "" */
	enum sl_switch words;     /* for infer: NaN, Infinity and -Infinity are reals, not texts; default off */
};
#define SL_RECORDS_OPTS_INIT .struct_size = sizeof(struct sl_records_opts)

struct sl_record {
	const char *data; /* without its line end; of a record that was too long, its first 4 KiB */
	size_t len;
	uint64_t line;   /* physical line on which it begins; the first line of the input is 1 */
	uint64_t offset; /* byte at which it begins */
	uint64_t end;    /* byte after its line end: where the next begins */
	const char *bad; /* NULL: good; else why it is not */
};

/* Make a reader of records; nothing is read yet. SL_EINVAL names the field. *out is untouched on failure. */
SL_API SL_MUST_CHECK int sl_records_new(sl_records **out, sl_records_read_fn *read, void *ctx,
					const struct sl_records_opts *opts, struct sl_err *err);
SL_API void sl_records_free(sl_records *r); /* NULL is allowed */

/* The columns of a CSV header, read if need be; unquoted. They live as long as r. SL_EDATA: no header, an empty or
 * doubled name, a bad record; sl_records_next then fails as well. */
SL_API SL_MUST_CHECK int sl_records_columns(sl_records *r, const char *const **names, size_t *n, struct sl_err *err);

/* The next 1 to max records. *n 0: the end. A failed read gives the records before it first; the next call
 * continues. */
SL_API SL_MUST_CHECK int sl_records_next(sl_records *r, struct sl_record *out, size_t max, size_t *n,
					 struct sl_err *err);

/* A hash of a record and of where it begins, for struct sl_input_range. It detects changed input, not tampering. */
SL_API uint64_t sl_record_hash(const struct sl_record *record);

/* Skip everything before byte `offset`, which must be where a record ends. Skipped lines are counted. SL_EDATA:
 * the input is shorter, or no record ends there: it is not the input it was. */
SL_API SL_MUST_CHECK int sl_records_skip(sl_records *r, uint64_t offset, struct sl_err *err);

/*
 * Guess the columns from the good records ahead (at most max_records, and what fits 16 MiB) without consuming them. A
 * column gets the first of these kinds as which all its values can be read without a loss; NULLs say nothing, and a
 * column without a value is text:
 *	integer    64 bits; 007 and +5 are text
 *	real       a double gives back every digit, as of 190.25; numeric: the other numbers
 *	boolean    true, false
 *	date       2024-02-29; timestamp: 2024-02-29T15:04:05.123456+01:00, also with a blank for the T, without zone,
 *	           seconds or fraction; a fraction beyond microseconds is text
 *	JSON       objects and arrays
 * JSON strings are read as dates and timestamps only ("42" is text). JSON lines: the union of the members, in order of
 * first appearance (SL_EDATA: more than 2,000). CSV without a header: c1, c2 … as the first record has fields. not_null
 * is 0: later records may have NULLs. *out belongs to r and lives until it is freed. A read that returns
 * SL_EAGAIN, there is nothing for now, ends the guess once there is a record; before that it is SL_EAGAIN, and the
 * next call continues.
 */
SL_API SL_MUST_CHECK int sl_records_infer(sl_records *r, size_t max_records, const struct sl_column **out, size_t *n,
					  struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
