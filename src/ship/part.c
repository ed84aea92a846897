/* SPDX-License-Identifier: Apache-2.0 */
/* One open file or stream of sl_ship: its bytes as lines in the group. follow.h has the rules. */
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/fnv.h"
#include "ship/follow.h"

enum { CHUNK = 256 << 10 };

struct ship_part *sl__ship_part_new(const struct sl_env *env, int fd, const struct ship_place *place)
{
	struct ship_part *p = sl__calloc(env, 1, sizeof(*p));
	ssize_t n;

	if (p == NULL)
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
		      (p->tail_len && sl__fnv(p->tail, p->tail_len) != place->tail) ||
		      (p->head_len && sl__fnv(p->head, p->head_len) != place->head);
	return p;
}

void sl__ship_part_free(struct ship_follow *f, struct ship_part *p)
{
	if (p == NULL)
		return;
	sl__ship_watch_remove(f, p);
	if (p->fd > STDERR_FILENO)
		(void)close(p->fd);
	sl__free(f->env, p->data);
	sl__free(f->env, p);
}

/* ---- lines ---- */

/* Only the form counts: integers may have any size. */
static bool is_json_object(const char *data, size_t n)
{
	size_t i = 0;

	while (i < n && (data[i] == ' ' || data[i] == '\t' || data[i] == '\r'))
		i++;
	if (i == n || data[i] != '{')
		return false;
	json_t *j = json_loadb(data, n, JSON_DECODE_INT_AS_REAL, NULL);
	bool is = json_is_object(j);

	json_decref(j);
	return is;
}

/* Put a text of the file into the group, as a line. ended: its newline follows, and goes with it. */
static int add_line(struct ship_follow *f, struct ship_part *p, struct sl_wal_span text, bool ended, struct sl_err *err)
{
	const char *data = text.data;
	size_t taken = text.len + ended;
	struct ship_line line = {.place = p->place,
				 .at = p->offset,
				 .end = p->offset + taken,
				 .data = data,
				 .len = text.len,
				 .partial = !ended,
				 .type = SL_EVENT_STDOUT,
				 .ts_ms = sl__real_ms(f->env)};
	size_t n = SL_MIN(taken, (size_t)SHIP_SAMPLE), kept;

	if (f->json && !line.partial && is_json_object(data, text.len))
		line.type = SL_EVENT_LOG;
	int rc = sl__ship_log_add(f->log, &line, err);

	if (rc != 0)
		return rc;
	/* The bytes before the next line, for comparing them later. */
	kept = SL_MIN(p->tail_len, SHIP_SAMPLE - n);
	memmove(p->tail, p->tail + p->tail_len - kept, kept);
	memcpy(p->tail + kept, data + taken - n, n);
	p->tail_len = kept + n;
	p->offset += taken;
	return 0;
}

/* All complete lines of the buffer, and pieces of one that is too long. */
static int add_lines(struct ship_follow *f, struct ship_part *p, struct sl_err *err)
{
	size_t at = 0;
	int rc = 0;

	while (rc == 0 && at < p->n) {
		size_t room = p->n - at < SHIP_LINE_MAX + 1 ? p->n - at : SHIP_LINE_MAX + 1;
		const char *newline = memchr(p->data + at + p->scanned, '\n', room - p->scanned);
		size_t len = newline != NULL ? (size_t)(newline - (p->data + at)) : SHIP_LINE_MAX;

		if (newline == NULL && room <= SHIP_LINE_MAX) {
			p->scanned = room;
			break;
		}
		f->cut += newline == NULL;
		rc = add_line(f, p, (struct sl_wal_span){p->data + at, len}, newline != NULL, err);
		at += rc != 0 ? 0 : len + (newline != NULL);
		p->scanned = 0;
	}
	if (at)
		memmove(p->data, p->data + at, p->n - at);
	p->n -= at;
	return rc;
}

int sl__ship_part_end(struct ship_follow *f, struct ship_part *p, struct sl_err *err)
{
	int rc = add_lines(f, p, err);

	if (rc == 0 && p->n)
		rc = add_line(f, p, (struct sl_wal_span){p->data, p->n}, false, err);
	if (rc == 0)
		p->n = p->scanned = 0;
	return rc;
}

/* ---- bytes ---- */

static bool has_bytes(int fd, const char *bytes, size_t n, uint64_t at)
{
	char found[SHIP_SAMPLE];

	return n == 0 || (pread(fd, found, n, (off_t)at) == (ssize_t)n && memcmp(found, bytes, n) == 0);
}

/* After a read, so that a truncation before it is seen: are the first bytes of the file, those before the place, and
 * those before what was read, still the same? */
static bool is_still_there(const struct ship_part *p)
{
	size_t last = SL_MIN(p->n, (size_t)SHIP_SAMPLE), first = p->offset + p->n > 0 ? p->head_len : 0;
	struct stat st;

	return !p->replaced && fstat(p->fd, &st) == 0 && (uint64_t)st.st_size >= p->offset + p->n &&
	       has_bytes(p->fd, p->head, first, 0) && has_bytes(p->fd, p->tail, p->tail_len, p->offset - p->tail_len) &&
	       has_bytes(p->fd, p->data + p->n - last, last, p->offset + p->n - last);
}

/* Keep the first bytes in the place. true: these are the first bytes that were ever read of it. */
static bool note_head(struct ship_follow *f, struct ship_part *p)
{
	struct ship_place *place = sl__ship_state_find(&f->log->state, p->place);
	size_t begin = (size_t)p->offset, before = p->head_len, n;

	if (p->head_len == SHIP_SAMPLE || p->offset > p->head_len || place == NULL)
		return false;
	n = SL_MIN(p->n, SHIP_SAMPLE - begin);
	memcpy(p->head + begin, p->data, n);
	p->head_len = begin + n;
	place->head_len = (uint32_t)p->head_len;
	place->head = sl__fnv(p->head, p->head_len);
	return before == 0 && p->head_len > 0;
}

static int resize(struct ship_follow *f, struct ship_part *p, size_t cap)
{
	char *data = sl__realloc(f->env, p->data, cap);

	if (data == NULL)
		return SL_ENOMEM;
	p->data = data;
	p->cap = cap;
	return 0;
}

int sl__ship_part_read(struct ship_follow *f, struct ship_source *s, struct ship_part *p, struct sl_err *err)
{
	size_t cap = p->cap ? p->cap : CHUNK;
	ssize_t got;
	int rc;

	while (cap - p->n < CHUNK)
		cap *= 2;
	if (cap != p->cap && resize(f, p, cap))
		return sl__no_memory(err, s->given);
	do
		got = s->stream ? read(p->fd, p->data + p->n, p->cap - p->n)
				: pread(p->fd, p->data + p->n, p->cap - p->n, (off_t)(p->offset + p->n));
	while (got < 0 && errno == EINTR && !s->stream);
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return SHIP_EOF;
	if (got < 0)
		return sl_err_set_errno(err, errno, "%.200s", s->given);
	if (!s->stream && !is_still_there(p))
		return SHIP_TRUNCATED;
	/* The first read of a file has no bytes before it to compare: a truncation in the middle of it, after which the
	 * file grows immediately, would join an old beginning to a new end. If the first bytes are unchanged, there was
	 * none. */
	if (!s->stream && p->offset + p->n == 0 &&
	    !has_bytes(p->fd, p->data, SL_MIN((size_t)got, (size_t)SHIP_SAMPLE), 0))
		return SHIP_MORE; /* from its new beginning */
	p->n += (size_t)got;
	p->eof = got == 0;
	if (!s->stream && note_head(f, p) && !p->old)
		return SHIP_FIRST;
	if (!s->stream && p->eof && !p->old && p->head_len == 0 && !p->found_empty) {
		p->found_empty = true;
		return SHIP_FIRST;
	}
	rc = add_lines(f, p, err);
	/* A buffer that a long line made large is not kept for short ones. */
	if (p->cap > 4 * CHUNK && p->n < CHUNK)
		(void)resize(f, p, CHUNK);
	if (rc != 0)
		return rc;
	return got == 0 ? SHIP_EOF : SHIP_MORE;
}
