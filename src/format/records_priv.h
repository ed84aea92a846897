/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of records inside: records.c has what all formats share and JSON lines, records_csv.c where a CSV
 * record ends. One buffer holds what was read and is not consumed yet:
 *
 *	  consumed      |  the record at hand, scanned up to scan.at  |  not inspected  |  free
 *	0               head                                                            tail   cap
 *
 * Invariants:
 *	1. A byte is scanned once, however short the reads are: scan.at is kept over reads. Only a record that turns out
 *	   to be wrongly quoted is inspected again, for its first line end.
 *	2. What is decided about a record depends on its first max + 2 bytes and on where the input ends, never on how
 *	   much happens to be in the buffer: nothing after these bytes is inspected before it is decided.
 *	3. Records that were returned point into the buffer (or, at most one a call, into `first`): the buffer is moved
 *	   or filled only by a call that has given none.
 */
#ifndef SL_FORMAT_RECORDS_PRIV_H
#define SL_FORMAT_RECORDS_PRIV_H

#include "base/env.h"
#include <sluice/records.h>

#define SL__FIRST_BYTES 4096                 /* reported of a record that is too long */
#define SL__INFER_BYTES ((size_t)16 << 20)   /* inspected by infer */
#define SL__INFER_COLUMNS_MAX ((size_t)2000) /* members of JSON; PostgreSQL has 1,600 columns, SQLite 2,000 */
#define SL__PADDING 16                       /* after cap: loads of sixteen bytes may reach there */

enum sl__scan_state {
	SL__SCAN_PLAIN = 0, /* CSV outside quotes */
	SL__SCAN_QUOTED,    /* CSV inside quotes */
	SL__SCAN_QUOTE,     /* CSV after a quote inside quotes: its end, or the first of two */
	SL__SCAN_RETURN,    /* CSV after a carriage return: half of a line end */
	SL__SCAN_LINE       /* up to the next line end, whatever comes: JSON, and CSV that is wrongly quoted */
};

struct sl__scan {
	size_t at; /* bytes of the record that were scanned */
	size_t delimiters;
	enum sl__scan_state state;
	bool odd;    /* a NUL or bytes beyond ASCII may be in it */
	bool quoted; /* a quoted field was begun: there may be line ends inside */
	const char *bad;
};

/* What infer has returned; lives as long as the reader. */
struct sl__inferred {
	struct sl__inferred *before;
	struct sl_column columns[];
};

struct sl_records {
	struct sl_env env;
	sl_records_read_fn *read;
	void *ctx;
	bool csv, header;
	char delimiter;
	char *null_text;
	bool words; /* NaN and the infinities are reals */
	size_t max_record_bytes, buffer_bytes;

	char *buf;
	size_t cap, head, tail;
	bool eof;              /* there is nothing after tail */
	bool begun;            /* the byte order mark was checked for */
	bool shrink;           /* infer has made the buffer large */
	bool no_check;         /* skip: the caller does not see these records */
	uint64_t offset, line; /* of head */
	struct sl__scan scan;

	bool discarding;                 /* the record is too long: look for its line end */
	uint64_t long_offset, long_line; /* where it began */
	size_t first_len;                /* of what is kept of it */
	bool first_given;                /* a record of this call points to `first` */
	char first[SL__FIRST_BYTES + 1]; /* one more, to see whether a carriage return is its last byte */

	bool header_read;
	char *names_text;
	const char **names; /* NULL: no header */
	size_t n_names;
	struct sl__inferred *inferred;
};

enum sl__took { SL__TOOK_RECORD, SL__TOOK_NOTHING /* more bytes are needed */, SL__TOOK_END };

/* The next record of what is in the buffer. */
enum sl__took sl__records_take(sl_records *r, struct sl_record *out);
/* Drop what is before byte `keep` of the buffer, make room (`most` bytes at most in all), read once. */
SL_MUST_CHECK int sl__records_fill(sl_records *r, size_t keep, size_t most, struct sl_err *err);

/* Scan record[scan->at .. n). true: it ends at the line end at scan->at. false: it continues after n. */
bool sl__csv_scan(struct sl__scan *scan, const char *record, size_t n, char delimiter);
bool sl__line_scan(struct sl__scan *scan, const char *record, size_t n);

/* Why this complete record is bad; NULL: it is not. n_columns 0: any number of fields. */
const char *sl__csv_fault(const struct sl__scan *scan, const char *record, size_t len, size_t n_columns);
/* Only blanks: no record. */
bool sl__jsonl_blank(const char *record, size_t len);

/* Set names from the header record; SL_EDATA says what is wrong with it. */
SL_MUST_CHECK int sl__csv_names(sl_records *r, const struct sl_record *header, struct sl_err *err);
/* The header, if there is one to read. 0 with names NULL: the input has none. */
SL_MUST_CHECK int sl__records_header(sl_records *r, struct sl_err *err);

#endif
