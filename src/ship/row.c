/* SPDX-License-Identifier: Apache-2.0 */
/* Rows: made from records, and found again in a file of rows. */
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/time.h"
#include "format/row.h"
#include "format/text.h"
#include "ship/row.h"

enum { CONTROLS_MAX = 4 << 20, BLOCK = 1 << 20 };
#define LOOK_BACK ((off_t)256 << 20) /* before that, what a crash could repeat has long been delivered */
enum { STREAM, INCARNATION, SEQUENCE, TS, FILE_NAME, PARTIAL, LINE, LINE_B64, EVENT };

const struct sl_column sl__ship_row_columns[SHIP_ROW_COLUMNS] = {[STREAM] = {"stream", SL_COLUMN_TEXT, 1},
								 [INCARNATION] = {"incarnation", SL_COLUMN_INTEGER, 1},
								 [SEQUENCE] = {"sequence", SL_COLUMN_INTEGER, 1},
								 [TS] = {"ts", SL_COLUMN_TIMESTAMP, 1},
								 [FILE_NAME] = {"file", SL_COLUMN_TEXT, 0},
								 [PARTIAL] = {"partial", SL_COLUMN_BOOLEAN, 1},
								 [LINE] = {"line", SL_COLUMN_TEXT, 0},
								 [LINE_B64] = {"line_b64", SL_COLUMN_TEXT, 0},
								 [EVENT] = {"event", SL_COLUMN_JSON, 0}};

unsigned sl__ship_row_members(const char *const *names, size_t n, const char **unknown)
{
	unsigned members = n ? 0 : (1U << SHIP_ROW_COLUMNS) - 1;

	for (size_t i = 0; i < n; i++) {
		int k = 0;

		while (k < SHIP_ROW_COLUMNS && strcmp(names[i], sl__ship_row_columns[k].name) != 0)
			k++;
		if (k == SHIP_ROW_COLUMNS) {
			*unknown = names[i];
			return 0;
		}
		members |= 1U << k;
	}
	return members;
}

/* ---- writing ---- */

/* Databases refuse a NUL in text. A long line may not have too many control characters: each takes six characters in
 * JSON, and sinks accept rows of up to 64 MiB. */
static bool is_text(const char *data, size_t n)
{
	size_t at, controls = 0;

	if (sl__text_fault(data, n, &at) != NULL)
		return false;
	for (size_t i = 0; i < n; i++)
		controls += (unsigned char)data[i] < 0x20;
	return controls <= CONTROLS_MAX;
}

/* A row in the making. */
struct row {
	struct sl__buf *b;
	unsigned members;
	bool started; /* a member was written */
};

/* Write "name": of a member. false: it is not wanted. */
static bool put_name(struct row *r, int which)
{
	if (!(r->members & 1U << which))
		return false;
	(void)sl__buf_printf(r->b, "%s\"%s\":", r->started ? "," : "", sl__ship_row_columns[which].name);
	r->started = true;
	return true;
}

static void put_row_number(struct row *r, int which, uint64_t value)
{
	if (put_name(r, which))
		(void)sl__buf_printf(r->b, "%" PRIu64, value);
}

static void put_row_text(struct row *r, int which, const char *data, size_t n)
{
	if (put_name(r, which))
		sl__put_json_string(r->b, data, n);
}

static void put_row_time(struct row *r, int64_t unix_ms)
{
	char text[SL__TIME_BYTES];
	/* A damaged record or a wrong clock may have any time: outside of the calendar it is written as a number. */
	if (unix_ms < SL__TIME_MIN_MS || unix_ms > SL__TIME_MAX_MS)
		(void)snprintf(text, sizeof(text), "%lld", (long long)unix_ms);
	else
		(void)sl__time_text(text, unix_ms);
	put_row_text(r, TS, text, strlen(text));
}

int sl__ship_row_write(struct sl__buf *b, unsigned members, const struct sl_wal_batch *batch,
		       const struct sl_wal_record *record, struct sl_err *err)
{
	struct row r = {.b = b, .members = members};
	struct ship_record decoded;
	const struct sl_event *e = &decoded.event;
	int rc = sl__ship_decode(record, &decoded, err);
	bool from_file;

	if (rc != 0)
		return rc;
	const char *data = e->data != NULL ? e->data : "";

	(void)sl__buf_append(b, "{", 1);
	put_row_text(&r, STREAM, batch->stream, strlen(batch->stream));
	put_row_number(&r, INCARNATION, batch->incarnation);
	put_row_number(&r, SEQUENCE, record->sequence);
	put_row_time(&r, e->ts_ms);
	from_file = decoded.path != NULL && decoded.path_len && !(decoded.path_len == 1 && decoded.path[0] == '-');
	if (from_file && is_text(decoded.path, decoded.path_len))
		put_row_text(&r, FILE_NAME, decoded.path, decoded.path_len);
	if (put_name(&r, PARTIAL))
		(void)sl__buf_str_append(b, e->partial ? "true" : "false");
	if (e->type == SL_EVENT_LOG && members & 1U << EVENT) {
		(void)put_name(&r, EVENT);
		(void)sl__buf_append(b, data, e->len); /* it was parsed before it came into the log */
	} else if (is_text(data, e->len)) {
		put_row_text(&r, LINE, data, e->len);
	} else if (put_name(&r, LINE_B64)) {
		(void)sl__buf_append(b, "\"", 1);
		(void)sl__base64_append(b, data, e->len);
		(void)sl__buf_append(b, "\"", 1);
	}
	(void)sl__buf_append(b, "}", 1);
	return b->failed ? sl__no_memory(err, "row") : 0;
}

/* ---- the last row of a file ---- */

/* The sequence of a row of this stream; 0: it is another one's. */
static uint64_t sequence_of(const char *row, size_t n, const char *stream, uint32_t incarnation)
{
	json_t *j = json_loadb(row, n, 0, NULL);
	const char *id = json_string_value(json_object_get(j, "stream"));
	uint64_t sequence = 0;

	if (id != NULL && strcmp(id, stream) == 0 &&
	    json_integer_value(json_object_get(j, "incarnation")) == incarnation)
		sequence = (uint64_t)json_integer_value(json_object_get(j, "sequence"));
	json_decref(j);
	return sequence;
}

/* The rows of a stream are in order, so the last one has its highest sequence. The file is read from its end backwards,
 * a block at a time. A row that a crash has torn does not count; the sink quarantines it when it opens the file. */
static struct ship_last_row search_back(const struct sl_env *env, int fd, off_t size, const char *stream,
					uint32_t incarnation)
{
	SL_CLEANUP(sl__buf_fini) struct sl__buf b = {.env = env}; /* the file from `from` on: rows not yet checked */
	off_t from = size, stop = size > LOOK_BACK ? size - LOOK_BACK : 0;
	struct ship_last_row last = {.sequence = 0};

	while (from > stop) {
		size_t more = (size_t)SL_MIN(from - stop, (off_t)BLOCK);
		const char *end;

		if (sl__buf_reserve(&b, more))
			return last;
		memmove(b.data + more, b.data, b.len);
		if (pread(fd, b.data, more, from - (off_t)more) != (ssize_t)more)
			return last;
		from -= (off_t)more;
		b.len += more;
		/* Every complete row in it, the last first. What is before the first newline waits for the next block. */
		for (end = memrchr(b.data, '\n', b.len); end; end = memrchr(b.data, '\n', (size_t)(end - b.data))) {
			const char *before = memrchr(b.data, '\n', (size_t)(end - b.data));
			const char *row = before != NULL ? before + 1 : b.data;

			if (before != NULL || from == 0)
				last.sequence = sequence_of(row, (size_t)(end - row), stream, incarnation);
			b.len = (size_t)(end - b.data) + 1;
			if (!last.sequence)
				continue;
			last.len = (size_t)(end - row);
			last.row = sl__alloc(env, last.len + 1);
			if (last.row != NULL)
				memcpy(last.row, row, last.len);
			else
				last.sequence = 0;
			return last;
		}
	}
	return last;
}

struct ship_last_row sl__ship_row_last(const struct sl_env *env, const char *path, const char *stream,
				       uint32_t incarnation)
{
	struct ship_last_row last = {.sequence = 0};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return last;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		last = search_back(env, fd, st.st_size, stream, incarnation);
	(void)close(fd);
	return last;
}
