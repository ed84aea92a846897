/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records out of a stream: the buffer, and what is the same for all formats. records_priv.h has the invariants.
 *
 * How a record ends:
 *
 *	scan ──line end──────────────────────────────▶ complete: judged, returned
 *	  │
 *	  ├─ wrongly quoted, or the input or max + 2 bytes end inside it and it may span lines
 *	  │      └▶ bad: it ends at its first line end (state LINE, scanned from its start)
 *	  └─ max + 2 bytes without a line end
 *	         └▶ too long: bytes are dropped up to the next line end; the first 4 KiB are kept
 */
#include "base/crc64nvme.h"
#include "format/json.h"
#include "format/records_priv.h"
#include "format/row.h"

#define MAX_RECORD_BYTES ((int64_t)64 << 20)
#define MAX_BUFFER_BYTES ((int64_t)1 << 30)

static const char too_long[] = "longer than the maximum record size";
static const char open_quote[] = "an unclosed quote";

/* ---- construction ---- */

int sl_records_new(sl_records **out, sl_records_read_fn *read, void *ctx, const struct sl_records_opts *opts,
		   struct sl_err *err)
{
	struct sl_records_opts o;
	struct sl_env env;
	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	const char *bad = NULL;
	if (read == NULL)
		bad = "read";
	else if (o.format != SL_ROWS_JSON && o.format != SL_ROWS_CSV)
		bad = "format";
	else if ((unsigned)o.header > SL_OFF)
		bad = "header";
	else if (o.max_record_bytes < 0 || o.max_record_bytes > MAX_RECORD_BYTES)
		bad = "max_record_bytes";
	else if (o.buffer_bytes < 0 || o.buffer_bytes > MAX_BUFFER_BYTES)
		bad = "buffer_bytes";
	else if (o.delimiter < 0 || o.delimiter == '"' || o.delimiter == '\n' || o.delimiter == '\r')
		bad = "delimiter";
	if (bad != NULL)
		return sl_err_set(err, SL_EINVAL, "records: %s: out of range", bad);

	sl_records *r = sl__calloc(&env, 1, sizeof(*r));
	if (r == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a reader of records");
	r->env = env;
	r->read = read;
	r->ctx = ctx;
	r->csv = o.format == SL_ROWS_CSV;
	r->header = r->csv && o.header != SL_OFF;
	r->delimiter = o.delimiter != 0 ? o.delimiter : ',';
	r->max_record_bytes = o.max_record_bytes != 0 ? (size_t)o.max_record_bytes : (size_t)16 << 20;
	r->buffer_bytes = o.buffer_bytes != 0 ? (size_t)o.buffer_bytes : (size_t)256 << 10;
	r->line = 1;
	r->words = o.words == SL_ON;
	r->null_text = sl__strdup(&env, o.null_text != NULL ? o.null_text : "");
	if (r->null_text == NULL) {
		sl_records_free(r);
		return sl_err_set(err, SL_ENOMEM, "out of memory for a reader of records");
	}
	*out = r;
	return 0;
}

void sl_records_free(sl_records *r)
{
	if (r == NULL)
		return;
	struct sl_env env = r->env;
	for (struct sl__inferred *i = r->inferred, *before; i != NULL; i = before) {
		before = i->before;
		sl__free(&env, i);
	}
	sl__free(&env, r->names);
	sl__free(&env, r->names_text);
	sl__free(&env, r->null_text);
	sl__free(&env, r->buf);
	sl__free(&env, r);
}

/* ---- the buffer ---- */

static int resize(sl_records *r, size_t cap, struct sl_err *err)
{
	char *buf = sl__realloc(&r->env, r->buf, cap + SL__PADDING);
	if (buf == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a buffer of %zu bytes for records", cap);
	if (r->buf == NULL)
		memset(buf + cap, 0, SL__PADDING);
	r->buf = buf;
	r->cap = cap;
	return 0;
}

int sl__records_fill(sl_records *r, size_t keep, size_t most, struct sl_err *err)
{
	int rc = 0;
	if (keep > 0) {
		memmove(r->buf, r->buf + keep, r->tail - keep);
		r->head -= keep;
		r->tail -= keep;
	}

	/* Make room. */
	if (r->shrink && r->tail < r->buffer_bytes) {
		r->shrink = false;
		if (r->cap > r->buffer_bytes)
			(void)resize(r, r->buffer_bytes, NULL); /* without memory it stays large */
	}
	if (r->buf == NULL) {
		rc = resize(r, r->buffer_bytes, err);
	} else if (r->tail == r->cap) {
		assert(r->cap < most); /* a full buffer holds a record that is too long */
		rc = resize(r, SL_MIN(r->cap * 2, most), err);
	}
	if (rc != 0)
		return rc;

	size_t room = r->cap - r->tail;
	int64_t got = r->read(r->buf + r->tail, room, err, r->ctx);
	if (got < 0)
		return (int)got;
	if ((uint64_t)got > room)
		return sl_err_set(err, SL_EINVAL, "records: read returned %lld bytes where %zu were requested",
				  (long long)got, room);
	r->tail += (size_t)got;
	r->eof = got == 0;
	return 0;
}

/* ---- JSON lines: a record is a line with a JSON object ---- */

bool sl__line_scan(struct sl__scan *s, const char *record, size_t n)
{
	const char *line_end = memchr(record + s->at, '\n', n - s->at);
	s->at = line_end != NULL ? (size_t)(line_end - record) : n;
	return line_end != NULL;
}

bool sl__jsonl_blank(const char *record, size_t len)
{
	size_t i = 0;
	while (i < len && (record[i] == ' ' || record[i] == '\t' || record[i] == '\r'))
		i++;
	return i == len;
}

static const char *json_object_fault(const char *record, size_t len)
{
	struct sl__json s = sl__json_of(record, len);
	struct sl__json_value v;
	if (!sl__json_open(&s))
		return s.why;
	s = sl__json_of(record, len);
	return sl__json_value(&s, &v) && sl__json_finish(&s) ? NULL : s.why;
}

/* ---- one record ---- */

/* Move past n bytes that contain this many line ends. */
static void consume(sl_records *r, size_t n, uint64_t line_ends)
{
	r->head += n;
	r->offset += n;
	r->line += line_ends;
	r->scan = (struct sl__scan){.state = r->csv ? SL__SCAN_PLAIN : SL__SCAN_LINE};
}

/* Return the record at head, which is raw bytes long without its line end. false: it is an empty line. */
static bool give_record(sl_records *r, size_t raw, bool line_end, struct sl_record *out)
{
	const char *data = r->buf + r->head;
	size_t len = raw > 0 && data[raw - 1] == '\r' ? raw - 1 : raw;
	size_t bytes = raw + line_end;
	uint64_t lines = line_end;
	if (r->scan.quoted && r->scan.state != SL__SCAN_LINE) { /* there may be line ends inside quotes */
		lines = 0;
		for (const char *p = data, *end = p + bytes; (p = memchr(p, '\n', (size_t)(end - p))) != NULL; p++)
			lines++;
	}
	bool empty = len == 0 || (!r->csv && sl__jsonl_blank(data, len));
	if (!empty) {
		const char *bad = r->scan.bad;
		if (len > r->max_record_bytes)
			bad = too_long;
		else if (bad == NULL && !r->no_check)
			bad = r->csv ? sl__csv_fault(&r->scan, data, len, r->n_names) : json_object_fault(data, len);
		*out = (struct sl_record){.data = data,
					  .len = bad == too_long ? SL_MIN(len, SL__FIRST_BYTES) : len,
					  .line = r->line,
					  .offset = r->offset,
					  .end = r->offset + bytes,
					  .bad = bad};
	}
	consume(r, bytes, lines);
	return !empty;
}

/* Too long: over everything up to its line end, keeping what it began with. */
static enum sl__took discard(sl_records *r, struct sl_record *out)
{
	const char *p = r->buf + r->head;
	size_t n = r->tail - r->head;
	const char *line_end = n > 0 ? memchr(p, '\n', n) : NULL;
	size_t raw = line_end != NULL ? (size_t)(line_end - p) : n;
	size_t kept = SL_MIN(raw, sizeof(r->first) - r->first_len);
	if (kept > 0)
		memcpy(r->first + r->first_len, p, kept);
	r->first_len += kept;
	consume(r, raw + (line_end != NULL), line_end != NULL);
	if (line_end == NULL && !r->eof)
		return SL__TOOK_NOTHING;
	size_t len = r->first_len;
	if (len < sizeof(r->first) && r->first[len - 1] == '\r')
		len--;
	*out = (struct sl_record){.data = r->first,
				  .len = SL_MIN(len, SL__FIRST_BYTES),
				  .line = r->long_line,
				  .offset = r->long_offset,
				  .end = r->offset,
				  .bad = too_long};
	r->discarding = false;
	r->first_given = true;
	return SL__TOOK_RECORD;
}

enum sl__took sl__records_take(sl_records *r, struct sl_record *out)
{
	const size_t most = r->max_record_bytes + 2;
	if (!r->begun) { /* a byte order mark is not a part of the first record */
		size_t n = SL_MIN(r->tail - r->head, (size_t)3);
		bool is_mark = n > 0 && memcmp(r->buf + r->head, "\xEF\xBB\xBF", n) == 0;
		if (n < 3 && !r->eof && (is_mark || n == 0))
			return SL__TOOK_NOTHING;
		consume(r, is_mark && n == 3 ? 3 : 0, 0);
		r->begun = true;
	}
	/* What is wrongly quoted ends at its first line end: it is scanned again from its start, in state LINE. */
	for (;;) {
		if (r->discarding)
			return discard(r, out);
		const char *record = r->buf + r->head;
		size_t n = SL_MIN(r->tail - r->head, most);
		bool ends = false;
		if (n > 0 && r->scan.state == SL__SCAN_LINE)
			ends = sl__line_scan(&r->scan, record, n);
		else if (n > 0)
			ends = sl__csv_scan(&r->scan, record, n, r->delimiter);

		bool in_quotes = r->scan.state == SL__SCAN_QUOTED;
		if (ends) {
			if (give_record(r, r->scan.at, true, out))
				return SL__TOOK_RECORD;
		} else if (n == most && r->scan.quoted && r->scan.state != SL__SCAN_LINE) {
			r->scan = (struct sl__scan){.state = SL__SCAN_LINE, .bad = in_quotes ? open_quote : too_long};
		} else if (n == most) {
			r->discarding = true;
			r->long_offset = r->offset;
			r->long_line = r->line;
			r->first_len = 0;
		} else if (!r->eof) {
			return SL__TOOK_NOTHING;
		} else if (n == 0) {
			return SL__TOOK_END;
		} else if (in_quotes) {
			r->scan = (struct sl__scan){.state = SL__SCAN_LINE, .bad = open_quote};
		} else if (give_record(r, n, false, out)) {
			return SL__TOOK_RECORD;
		}
	}
}

/* ---- the handle ---- */

/* One record, or *got false at the end. */
static int take_one(sl_records *r, struct sl_record *out, bool *got, struct sl_err *err)
{
	for (;;) {
		enum sl__took took = sl__records_take(r, out);
		*got = took == SL__TOOK_RECORD;
		if (took != SL__TOOK_NOTHING)
			return 0;
		int rc = sl__records_fill(r, r->head, SL_MAX(r->cap, r->max_record_bytes + 2), err);
		if (rc != 0)
			return rc;
	}
}

int sl__records_header(sl_records *r, struct sl_err *err)
{
	struct sl_record header;
	bool got;
	if (!r->header || r->names != NULL)
		return 0;
	if (r->header_read)
		return sl_err_set(err, SL_EDATA, "the header is invalid");
	int rc = take_one(r, &header, &got, err);
	if (rc != 0 || !got)
		return rc;
	rc = sl__csv_names(r, &header, err);
	if (rc == SL_ENOMEM) { /* put it back, to be read again */
		r->head -= (size_t)(header.end - header.offset);
		r->offset = header.offset;
		r->line = header.line;
	}
	r->header_read = rc != SL_ENOMEM;
	return rc;
}

int sl_records_columns(sl_records *r, const char *const **names, size_t *n, struct sl_err *err)
{
	int rc = sl__records_header(r, err);
	if (rc != 0)
		return rc;
	if (r->names == NULL)
		return sl_err_set(err, SL_EDATA, "%s",
				  r->header ? "the input is empty; a header is required" : "no header");
	*names = r->names;
	*n = r->n_names;
	return 0;
}

int sl_records_next(sl_records *r, struct sl_record *out, size_t max, size_t *n, struct sl_err *err)
{
	size_t count = 0;
	bool got;
	if (max == 0)
		return sl_err_set(err, SL_EINVAL, "records: max: must be at least 1");
	int rc = sl__records_header(r, err);
	if (rc != 0)
		return rc;
	r->first_given = false;
	if ((rc = take_one(r, &out[0], &got, err)) != 0)
		return rc;
	if (got)
		for (count = 1; count < max && !r->first_given; count++)
			if (sl__records_take(r, &out[count]) != SL__TOOK_RECORD)
				break;
	*n = count;
	return 0;
}

int sl_records_skip(sl_records *r, uint64_t offset, struct sl_err *err)
{
	struct sl_record record;
	bool got = true;
	int rc = sl__records_header(r, err);
	if (rc != 0 || offset == 0 || offset == r->offset)
		return rc;
	r->no_check = true;
	record.end = r->offset;
	while (rc == 0 && got && record.end < offset)
		rc = take_one(r, &record, &got, err);
	r->no_check = false;
	if (rc != 0)
		return rc;
	if (!got)
		return sl_err_set(err, SL_EDATA, "the input has fewer than %llu bytes: it has changed",
				  (unsigned long long)offset);
	if (record.end != offset)
		return sl_err_set(err, SL_EDATA, "no record ends at byte %llu: the input has changed",
				  (unsigned long long)offset);
	return 0;
}

/* The offset is mixed in, and the result once more, so that sums of hashes notice records that changed places. */
uint64_t sl_record_hash(const struct sl_record *record)
{
	uint64_t h = sl__crc64nvme(0, record->data, record->len) ^ (record->offset + 1) * UINT64_C(0x9E3779B97F4A7C15);
	h = (h ^ (h >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	h = (h ^ (h >> 27)) * UINT64_C(0x94D049BB133111EB);
	return h ^ (h >> 31);
}
