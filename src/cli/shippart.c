/* SPDX-License-Identifier: Apache-2.0 */
/* One open file or stream of sluice ship: its bytes as lines in the group. shipfollow.h has the rules. */
#include "server/thread.h"
#include "shipfollow.h"
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 256 << 10 };

struct ship_part *ship_part_new(int fd, const struct ship_place *place)
{
	struct ship_part *p = calloc(1, sizeof(*p));
	ssize_t n;

	if (!p)
		return NULL;
	p->fd = fd;
	p->wd = -1;
	p->place = place->id;
	p->dev = place->dev;
	p->ino = place->ino;
	p->offset = place->offset;
	/* The bytes that were compared, for comparing them again. The file may have been truncated since. */
	n = place->tail_len ? pread(fd, p->tail, place->tail_len, (off_t)(place->offset - place->tail_len)) : 0;
	p->tail_len = n > 0 ? (size_t)n : 0;
	n = place->head_len ? pread(fd, p->head, place->head_len, 0) : 0;
	p->head_len = n > 0 ? (size_t)n : 0;
	p->replaced = p->tail_len != place->tail_len || p->head_len != place->head_len ||
		      (p->tail_len && ship_hash(p->tail, p->tail_len) != place->tail) ||
		      (p->head_len && ship_hash(p->head, p->head_len) != place->head);
	return p;
}

void ship_part_free(struct shipfollow *f, struct ship_part *p)
{
	if (!p)
		return;
	shipwatch_forget(f, p);
	if (p->fd > STDERR_FILENO)
		(void)close(p->fd);
	free(p->data);
	free(p);
}

/* ---- lines ---- */

static int is_object(const char *data, size_t n)
{
	json_t *j;
	size_t i = 0;
	int is;

	while (i < n && strchr(" \t\r", data[i]) && data[i])
		i++;
	if (i == n || data[i] != '{')
		return 0;
	j = json_loadb(data, n, JSON_DECODE_INT_AS_REAL, NULL); /* only its form counts: integers may have any size */
	is = json_is_object(j);
	json_decref(j);
	return is;
}

static int type_of(struct shipfollow *f, const char *data, size_t n, int partial)
{
	if (f->json && !partial && is_object(data, n))
		return SL_EVENT_LOG;
	f->plain += f->json != 0;
	return SL_EVENT_STDOUT;
}

/* What the next line has behind it in the file. */
static void remember(struct ship_part *p, const char *data, size_t n)
{
	size_t from = n > SHIP_SAMPLE ? n - SHIP_SAMPLE : 0, kept;

	data += from;
	n -= from;
	kept = p->tail_len + n > SHIP_SAMPLE ? SHIP_SAMPLE - n : p->tail_len;
	memmove(p->tail, p->tail + p->tail_len - kept, kept);
	memcpy(p->tail + kept, data, n);
	p->tail_len = kept + n;
}

/* taken: bytes of the file that go with the line, with its newline. */
static int ship(struct shipfollow *f, struct ship_part *p, const char *data, size_t len, size_t taken, int partial,
		struct sl_err *err)
{
	struct ship_line line = {.place = p->place,
				 .at = p->offset,
				 .end = p->offset + taken,
				 .data = data,
				 .len = len,
				 .partial = partial,
				 .ts_ms = srv_clock_real_ms()};
	int rc;

	line.type = type_of(f, data, len, partial);
	rc = shiplog_add(f->log, &line, err);
	if (rc)
		return rc;
	remember(p, data, taken);
	p->offset += taken;
	return 0;
}

/* All complete lines of the buffer, and pieces of one that is too long. */
static int ship_lines(struct shipfollow *f, struct ship_part *p, struct sl_err *err)
{
	size_t at = 0;
	int rc = 0;

	while (!rc && at < p->n) {
		size_t room = p->n - at < SHIP_LINE_MAX + 1 ? p->n - at : SHIP_LINE_MAX + 1;
		const char *newline = memchr(p->data + at + p->scanned, '\n', room - p->scanned);
		size_t len = newline ? (size_t)(newline - (p->data + at)) : SHIP_LINE_MAX;

		if (!newline && room <= SHIP_LINE_MAX) {
			p->scanned = room;
			break;
		}
		f->cut += !newline;
		rc = ship(f, p, p->data + at, len, len + (newline != NULL), !newline, err);
		at += rc ? 0 : len + (newline != NULL);
		p->scanned = 0;
	}
	memmove(p->data, p->data + at, p->n - at);
	p->n -= at;
	return rc;
}

int ship_part_end(struct shipfollow *f, struct ship_part *p, struct sl_err *err)
{
	int rc = ship_lines(f, p, err);

	if (!rc && p->n)
		rc = ship(f, p, p->data, p->n, p->n, 1, err);
	if (!rc)
		p->n = p->scanned = 0;
	return rc;
}

/* ---- bytes ---- */

static int make_room(struct ship_part *p)
{
	size_t cap = p->cap ? p->cap : CHUNK;
	char *data;

	while (cap - p->n < CHUNK)
		cap *= 2;
	if (cap == p->cap)
		return 0;
	data = realloc(p->data, cap);
	if (!data)
		return SL_ENOMEM;
	p->data = data;
	p->cap = cap;
	return 0;
}

/* A buffer that a long line made large is not kept for short ones. */
static void shrink(struct ship_part *p)
{
	char *data = p->cap > 4 * CHUNK && p->n < CHUNK ? realloc(p->data, CHUNK) : NULL;

	if (data) {
		p->data = data;
		p->cap = CHUNK;
	}
}

static int has_bytes(int fd, const char *bytes, size_t n, uint64_t at)
{
	char found[SHIP_SAMPLE];

	return n == 0 || (pread(fd, found, n, (off_t)at) == (ssize_t)n && memcmp(found, bytes, n) == 0);
}

/* After a read, so that a truncation before it is seen: are the first bytes of the file, those before the place, and
 * those before what was read, still the same? */
static int still_there(const struct ship_part *p)
{
	size_t last = p->n < SHIP_SAMPLE ? p->n : SHIP_SAMPLE, first = p->offset + p->n > 0 ? p->head_len : 0;
	struct stat st;

	return !p->replaced && fstat(p->fd, &st) == 0 && (uint64_t)st.st_size >= p->offset + p->n &&
	       has_bytes(p->fd, p->head, first, 0) && has_bytes(p->fd, p->tail, p->tail_len, p->offset - p->tail_len) &&
	       has_bytes(p->fd, p->data + p->n - last, last, p->offset + p->n - last);
}

/* The first read of a file has no bytes before it to compare: a truncation in the middle of it, after which the file
 * grows at once, would join an old beginning to a new end. What was read first is still there when there was none. */
static int is_whole(const struct ship_part *p, ssize_t got)
{
	size_t n = got < SHIP_SAMPLE ? (size_t)got : SHIP_SAMPLE;

	return p->offset + p->n > 0 || has_bytes(p->fd, p->data, n, 0);
}

/* 1: these are the first bytes that were ever read of it. */
static int note_head(struct shipfollow *f, struct ship_part *p)
{
	struct ship_place *place = ship_state_find(&f->log->state, p->place);
	size_t begin = (size_t)p->offset, before = p->head_len, n;

	if (p->head_len == SHIP_SAMPLE || p->offset > p->head_len || !place)
		return 0;
	n = p->n < SHIP_SAMPLE - begin ? p->n : SHIP_SAMPLE - begin;
	memcpy(p->head + begin, p->data, n);
	p->head_len = begin + n;
	place->head_len = (uint32_t)p->head_len;
	place->head = ship_hash(p->head, p->head_len);
	return before == 0 && p->head_len > 0;
}

int ship_part_read(struct shipfollow *f, struct ship_source *s, struct ship_part *p, struct sl_err *err)
{
	ssize_t got;
	int rc;

	if (make_room(p))
		return sl_err_set(err, SL_ENOMEM, "%.200s: no memory for a line", s->given);
	do
		got = s->stream ? read(p->fd, p->data + p->n, p->cap - p->n)
				: pread(p->fd, p->data + p->n, p->cap - p->n, (off_t)(p->offset + p->n));
	while (got < 0 && errno == EINTR && !s->stream);
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return SHIP_EOF;
	if (got < 0)
		return sl_err_set_errno(err, errno, "%.200s", s->given);
	if (!s->stream && !still_there(p))
		return SHIP_TRUNCATED;
	if (!s->stream && !is_whole(p, got))
		return SHIP_MORE; /* and from its new beginning */
	p->n += (size_t)got;
	f->bytes += (uint64_t)got;
	p->eof = got == 0;
	if (!s->stream && note_head(f, p) && !p->old)
		return SHIP_FIRST;
	if (!s->stream && p->eof && !p->old && p->head_len == 0 && !p->found_empty) {
		p->found_empty = 1;
		return SHIP_FIRST;
	}
	rc = ship_lines(f, p, err);
	shrink(p);
	return rc ? rc : got == 0 ? SHIP_EOF : SHIP_MORE;
}
