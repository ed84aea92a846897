/* SPDX-License-Identifier: Apache-2.0 */
#include "shiprow.h"

#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CONTROLS_MAX = 4 << 20 };
enum { STREAM, INCARNATION, SEQUENCE, TS, FILE_NAME, PARTIAL, LINE, LINE_B64, EVENT };

const struct sl_column shiprow_columns[SHIPROW_COLUMNS] = {[STREAM] = {"stream", SL_COLUMN_TEXT, 1},
							   [INCARNATION] = {"incarnation", SL_COLUMN_INTEGER, 1},
							   [SEQUENCE] = {"sequence", SL_COLUMN_INTEGER, 1},
							   [TS] = {"ts", SL_COLUMN_TIMESTAMP, 1},
							   [FILE_NAME] = {"file", SL_COLUMN_TEXT, 0},
							   [PARTIAL] = {"partial", SL_COLUMN_BOOLEAN, 1},
							   [LINE] = {"line", SL_COLUMN_TEXT, 0},
							   [LINE_B64] = {"line_b64", SL_COLUMN_TEXT, 0},
							   [EVENT] = {"event", SL_COLUMN_JSON, 0}};

unsigned shiprow_members(const char *const *names, size_t n, const char **unknown)
{
	unsigned members = n ? 0 : (1U << SHIPROW_COLUMNS) - 1;

	for (size_t i = 0; i < n; i++) {
		int k = 0;

		while (k < SHIPROW_COLUMNS && strcmp(names[i], shiprow_columns[k].name))
			k++;
		if (k == SHIPROW_COLUMNS) {
			*unknown = names[i];
			return 0;
		}
		members |= 1U << k;
	}
	return members;
}

/* ---- text ---- */

/* The length of the UTF-8 character at s, 0 when it is none. Surrogates and longer forms than needed are none. */
static size_t utf8(const unsigned char *s, size_t n)
{
	size_t len = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3 : 4;
	unsigned second = n > 1 ? s[1] : 0;

	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4 || n < len)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && second < 0xa0) || (s[0] == 0xed && second > 0x9f) || (s[0] == 0xf0 && second < 0x90) ||
	    (s[0] == 0xf4 && second > 0x8f))
		return 0;
	return len;
}

/* A NUL is a character that databases do not take. Of controls a long line may not have too many: each is six
 * characters in JSON, and sinks take rows of 64 MiB. */
static int is_text(const char *data, size_t n)
{
	const unsigned char *s = (const unsigned char *)data;
	size_t controls = 0;

	for (size_t i = 0, len; i < n; i += len) {
		len = utf8(s + i, n - i);
		if (len == 0 || s[i] == 0)
			return 0;
		controls += s[i] < 0x20;
	}
	return controls <= CONTROLS_MAX;
}

static void put_escape(struct ship_buf *b, unsigned char c)
{
	static const char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
	const char *found = strchr(plain, c);
	char text[8];
	int n = found ? snprintf(text, sizeof(text), "\\%c", letters[found - plain])
		      : snprintf(text, sizeof(text), "\\u%04x", c);

	ship_buf_add(b, text, (size_t)n);
}

/* What must be escaped is rare: the rest is copied in runs. */
static void put_string(struct ship_buf *b, const char *data, size_t n)
{
	size_t from = 0;

	ship_buf_add(b, "\"", 1);
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)data[i];

		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		ship_buf_add(b, data + from, i - from);
		put_escape(b, c);
		from = i + 1;
	}
	ship_buf_add(b, data + from, n - from);
	ship_buf_add(b, "\"", 1);
}

static void put_b64(struct ship_buf *b, const char *data, size_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *s = (const unsigned char *)data;

	ship_buf_add(b, "\"", 1);
	for (size_t i = 0; i < n; i += 3) {
		unsigned three = (unsigned)s[i] << 16 | (i + 1 < n ? (unsigned)s[i + 1] << 8 : 0) |
				 (i + 2 < n ? (unsigned)s[i + 2] : 0);
		char four[4] = {digits[three >> 18], digits[three >> 12 & 63],
				i + 1 < n ? digits[three >> 6 & 63] : '=', i + 2 < n ? digits[three & 63] : '='};

		ship_buf_add(b, four, sizeof(four));
	}
	ship_buf_add(b, "\"", 1);
}

/* ---- members ---- */

/* "name": of a member that is wanted. */
static int begin(struct ship_buf *b, unsigned members, int which)
{
	const char *name = shiprow_columns[which].name;

	if (!(members & 1U << which))
		return 0;
	ship_buf_add(b, b->data[b->n - 1] == '{' ? "" : ",", b->data[b->n - 1] == '{' ? 0 : 1);
	put_string(b, name, strlen(name));
	ship_buf_add(b, ":", 1);
	return !b->failed;
}

static void put_number(struct ship_buf *b, unsigned members, int which, uint64_t value)
{
	char text[24];
	int n = snprintf(text, sizeof(text), "%" PRIu64, value);

	if (begin(b, members, which))
		ship_buf_add(b, text, (size_t)n);
}

static void put_text(struct ship_buf *b, unsigned members, int which, const char *data, size_t n)
{
	if (begin(b, members, which))
		put_string(b, data, n);
}

static void put_line(struct ship_buf *b, unsigned members, const struct sl_event *e)
{
	if (e->type == SL_EVENT_LOG && members & 1U << EVENT) {
		if (begin(b, members, EVENT)) /* it was read as JSON before it came into the log */
			ship_buf_add(b, e->data, e->len);
	} else if (is_text(e->data, e->len)) {
		put_text(b, members, LINE, e->data, e->len);
	} else if (begin(b, members, LINE_B64)) {
		put_b64(b, e->data, e->len);
	}
}

static void put_file(struct ship_buf *b, unsigned members, const struct ship_record *r)
{
	if (!r->path || !r->path_len || (r->path_len == 1 && r->path[0] == '-'))
		return;
	if (is_text(r->path, r->path_len))
		put_text(b, members, FILE_NAME, r->path, r->path_len);
}

int shiprow_write(struct ship_buf *b, unsigned members, const struct sl_wal_batch *batch,
		  const struct sl_wal_record *record, struct sl_err *err)
{
	struct ship_record r;
	char ts[TEXT_TIME_BYTES];
	int rc = ship_decode(record, &r, err);

	if (rc)
		return rc;
	if (!r.event.data)
		r.event.data = "";
	ship_buf_add(b, "{", 1);
	if (b->failed)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	put_text(b, members, STREAM, batch->stream, strlen(batch->stream));
	put_number(b, members, INCARNATION, batch->incarnation);
	put_number(b, members, SEQUENCE, record->sequence);
	(void)text_time(ts, r.event.ts_ms);
	put_text(b, members, TS, ts, strlen(ts));
	put_file(b, members, &r);
	if (begin(b, members, PARTIAL))
		ship_buf_add(b, r.event.partial ? "true" : "false", r.event.partial ? 4 : 5);
	put_line(b, members, &r.event);
	ship_buf_add(b, "}", 1);
	return b->failed ? sl_err_set(err, SL_ENOMEM, "out of memory") : 0;
}
