/* SPDX-License-Identifier: Apache-2.0 */
#include "shipstate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* FNV-1a: tells files apart that were not made to look alike. */
uint64_t ship_hash(const void *data, size_t n)
{
	const unsigned char *p = data;
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* ---- places ---- */

void ship_state_fini(struct ship_state *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->places[i].path);
	free(s->places);
	*s = (struct ship_state){.places = NULL};
}

struct ship_place *ship_state_find(const struct ship_state *s, uint64_t id)
{
	for (size_t i = s->n; i-- > 0;)
		if (s->places[i].id == id)
			return &s->places[i];
	return NULL;
}

static struct ship_place *append_place(struct ship_state *s, const char *path, size_t len)
{
	char *copy = strndup(path, len);
	struct ship_place *grown = s->places;

	if (copy && s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 8;

		grown = realloc(s->places, cap * sizeof(*grown));
		if (grown) {
			s->places = grown;
			s->cap = cap;
		}
	}
	if (!copy || !grown) {
		free(copy);
		return NULL;
	}
	s->places[s->n] = (struct ship_place){.path = copy};
	return &s->places[s->n++];
}

struct ship_place *ship_state_add(struct ship_state *s, const char *path)
{
	struct ship_place *p = append_place(s, path, strlen(path));

	if (p)
		p->id = ++s->last_id;
	return p;
}

void ship_state_drop(struct ship_state *s, uint64_t id)
{
	struct ship_place *p = ship_state_find(s, id);

	if (!p)
		return;
	free(p->path);
	memmove(p, p + 1, (size_t)(s->places + s->n - (p + 1)) * sizeof(*p));
	s->n--;
}

struct ship_place *ship_state_move_last(struct ship_state *s, uint64_t id)
{
	struct ship_place *p = ship_state_find(s, id), moved;

	if (!p)
		return NULL;
	moved = *p;
	memmove(p, p + 1, (size_t)(s->places + s->n - (p + 1)) * sizeof(*p));
	s->places[s->n - 1] = moved;
	return &s->places[s->n - 1];
}

size_t ship_state_size(const struct ship_state *s)
{
	struct ship_buf b = {NULL, 0, 0, 0};
	size_t n;

	ship_encode_snapshot(&b, s);
	n = b.failed ? SIZE_MAX : b.n;
	ship_buf_fini(&b);
	return n;
}

struct ship_step ship_step_of(const struct ship_line *line)
{
	size_t ended = line->end - line->at > line->len; /* by a newline, which is no part of the line */
	size_t n = line->len < SHIP_SAMPLE - ended ? line->len : SHIP_SAMPLE - ended;
	char last[SHIP_SAMPLE];

	memcpy(last, line->data + line->len - n, n);
	if (ended)
		last[n] = '\n';
	return (struct ship_step){line->place, line->end, ship_hash(last, n + ended), (uint32_t)(n + ended)};
}

void ship_apply(struct ship_state *s, const struct ship_step *step)
{
	struct ship_place *p = ship_state_find(s, step->place);

	if (!p)
		return;
	p->offset = step->end;
	p->tail_len = step->tail_len;
	p->tail = step->tail;
}

/* ---- writing ---- */

enum { FIELD_SNAPSHOT = 14, FIELD_PLACE = 15 };
enum { PLACE_SEQUENCE = 1, PLACE_PATH = 2, PLACE_ID = 3, PLACE_END = 4 };
enum { SNAP_TARGET = 1, SNAP_LAST_ID = 2, SNAP_FILE = 3, SNAP_SEQUENCE = 4, SNAP_INCARNATION = 5, SNAP_HASH = 6 };
enum {
	FILE_PATH = 1,
	FILE_ID = 2,
	FILE_DEV = 3,
	FILE_INO = 4,
	FILE_OFFSET = 5,
	FILE_SINCE = 6,
	FILE_HEAD_LEN = 7,
	FILE_HEAD = 8,
	FILE_TAIL_LEN = 9,
	FILE_TAIL = 10,
	FILE_DONE = 11,
	FILE_BORN = 12
};

static void put_file(struct ship_buf *b, const struct ship_place *p)
{
	struct ship_buf file = {NULL, 0, 0, 0};

	ship_put_bytes(&file, FILE_PATH, p->path, strlen(p->path));
	ship_put_number(&file, FILE_ID, p->id);
	ship_put_number(&file, FILE_DEV, p->dev);
	ship_put_number(&file, FILE_INO, p->ino);
	ship_put_number(&file, FILE_OFFSET, p->offset);
	ship_put_number(&file, FILE_SINCE, (uint64_t)p->since_ns);
	ship_put_number(&file, FILE_HEAD_LEN, p->head_len);
	ship_put_fixed(&file, FILE_HEAD, p->head);
	ship_put_number(&file, FILE_TAIL_LEN, p->tail_len);
	ship_put_fixed(&file, FILE_TAIL, p->tail);
	if (p->done) {
		ship_put_number(&file, FILE_DONE, 1);
		ship_put_number(&file, FILE_BORN, (uint64_t)p->born_ns);
	}
	ship_put_bytes(b, SNAP_FILE, file.data, file.n);
	b->failed |= file.failed;
	ship_buf_fini(&file);
}

/* Without its key and length. */
static void put_state(struct ship_buf *b, const struct ship_state *s)
{
	ship_put_fixed(b, SNAP_TARGET, s->target);
	ship_put_number(b, SNAP_LAST_ID, s->last_id);
	for (size_t i = 0; i < s->n; i++)
		put_file(b, &s->places[i]);
}

void ship_encode_snapshot(struct ship_buf *b, const struct ship_state *s)
{
	struct ship_buf state = {NULL, 0, 0, 0};

	put_state(&state, s);
	ship_put_bytes(b, FIELD_SNAPSHOT, state.data, state.n);
	b->failed |= state.failed;
	ship_buf_fini(&state);
}

static void put_place(struct ship_buf *b, const char *path, const struct ship_line *line, uint64_t sequence)
{
	struct ship_buf place = {NULL, 0, 0, 0};

	ship_put_number(&place, PLACE_SEQUENCE, sequence);
	ship_put_bytes(&place, PLACE_PATH, path, strlen(path));
	ship_put_number(&place, PLACE_ID, line->place);
	ship_put_number(&place, PLACE_END, line->end);
	ship_put_bytes(b, FIELD_PLACE, place.data, place.n);
	b->failed |= place.failed;
	ship_buf_fini(&place);
}

int ship_encode(struct ship_buf *b, const struct ship_state *s, const struct ship_line *line, uint64_t sequence,
		const struct sl_env *env, struct sl_err *err)
{
	struct sl_event event = {.type = line->type,
				 .ts_ms = line->ts_ms,
				 .position = line->at,
				 .partial = line->partial,
				 .data = line->data,
				 .len = line->len};
	const struct ship_place *p = ship_state_find(s, line->place);
	void *record = NULL;
	size_t n = 0;
	int rc = sl_event_encode(&event, env, &record, &n, err);

	if (rc)
		return rc;
	ship_buf_add(b, record, n);
	sl_event_free(env, record);
	put_place(b, p ? p->path : "", line, sequence);
	return b->failed ? sl_err_set(err, SL_ENOMEM, "out of memory") : 0;
}

/* ---- reading ---- */

static int read_file(struct ship_state *s, struct ship_reader r)
{
	struct ship_place p = {.id = 0};
	const struct ship_field *path = NULL;
	struct ship_field f, kept;

	while (ship_get_field(&r, &f)) {
		if (f.number == FILE_PATH && f.type == SHIP_BYTES) {
			kept = f;
			path = &kept;
		}
		p.id = f.number == FILE_ID ? f.value : p.id;
		p.dev = f.number == FILE_DEV ? f.value : p.dev;
		p.ino = f.number == FILE_INO ? f.value : p.ino;
		p.offset = f.number == FILE_OFFSET ? f.value : p.offset;
		p.since_ns = f.number == FILE_SINCE ? (int64_t)f.value : p.since_ns;
		p.head_len = f.number == FILE_HEAD_LEN ? (uint32_t)f.value : p.head_len;
		p.head = f.number == FILE_HEAD ? f.value : p.head;
		p.tail_len = f.number == FILE_TAIL_LEN ? (uint32_t)f.value : p.tail_len;
		p.tail = f.number == FILE_TAIL ? f.value : p.tail;
		p.done |= f.number == FILE_DONE && f.value != 0;
		p.born_ns = f.number == FILE_BORN ? (int64_t)f.value : p.born_ns;
	}
	if (!path || p.head_len > SHIP_SAMPLE || p.tail_len > SHIP_SAMPLE || p.tail_len > p.offset)
		return 0;
	struct ship_place *to = append_place(s, (const char *)path->data, (size_t)path->value);

	if (!to)
		return SL_ENOMEM;
	p.path = to->path;
	*to = p;
	return 0;
}

static int read_state(struct ship_state *s, struct ship_reader r)
{
	uint64_t sequence = s->sequence;
	struct ship_field f;
	int rc = 0;

	ship_state_fini(s);
	s->sequence = sequence;
	while (!rc && ship_get_field(&r, &f)) {
		s->target = f.number == SNAP_TARGET ? f.value : s->target;
		s->last_id = f.number == SNAP_LAST_ID ? f.value : s->last_id;
		if (f.number == SNAP_FILE && f.type == SHIP_BYTES)
			rc = read_file(s, ship_reader_of(&f));
	}
	return rc;
}

/* The two fields of a record, empty when they are not there. */
static void find_fields(const struct sl_wal_record *record, struct ship_field *place, struct ship_field *snapshot)
{
	const unsigned char *data = record->payload;
	struct ship_reader r = {data, data + record->payload_len};
	struct ship_field f;

	*place = *snapshot = (struct ship_field){0};
	while (ship_get_field(&r, &f)) {
		if (f.type == SHIP_BYTES && f.number == FIELD_PLACE)
			*place = f;
		if (f.type == SHIP_BYTES && f.number == FIELD_SNAPSHOT)
			*snapshot = f;
	}
}

/* The number and the new place of a file, when the record is the one that it says it is. */
static int read_place(const struct ship_field *place, uint64_t sequence, struct ship_line *out)
{
	struct ship_reader r = ship_reader_of(place);
	uint64_t named = 0;
	struct ship_field f;

	while (place->data && ship_get_field(&r, &f)) {
		named = f.number == PLACE_SEQUENCE ? f.value : named;
		out->place = f.number == PLACE_ID ? f.value : out->place;
		out->end = f.number == PLACE_END ? f.value : out->end;
	}
	return named != 0 && named == sequence;
}

struct recovery {
	struct ship_state *s;
	uint64_t pending;
	struct sl_err *err;
};

static int recover_record(const struct sl_wal_record *record, void *ctx)
{
	struct recovery *r = ctx;
	struct ship_field place, snapshot;
	struct sl_event event;
	struct ship_line line = {0};
	struct ship_step step;
	int rc;

	if (record->status == SL_WAL_PENDING && !r->pending)
		r->pending = record->sequence;
	if (record->sequence <= r->s->sequence)
		return 0; /* the copy knew it */
	find_fields(record, &place, &snapshot);
	if (!read_place(&place, record->sequence, &line))
		return 0;
	rc = snapshot.data ? read_state(r->s, ship_reader_of(&snapshot)) : 0;
	if (rc)
		return sl_err_set(r->err, rc, "out of memory");
	rc = sl_event_decode(record->payload, record->payload_len, &event, r->err);
	if (rc)
		return rc;
	line.at = event.position;
	line.data = event.data ? event.data : "";
	line.len = event.len;
	step = ship_step_of(&line);
	ship_apply(r->s, &step);
	r->s->sequence = record->sequence;
	return 0;
}

int ship_decode(const struct sl_wal_record *record, struct ship_record *out, struct sl_err *err)
{
	struct ship_field place, snapshot, f;
	struct sl_event event;
	int rc = sl_event_decode(record->payload, record->payload_len, &event, err);

	if (rc)
		return rc;
	*out = (struct ship_record){.event = event};
	find_fields(record, &place, &snapshot);
	struct ship_reader r = ship_reader_of(&place);

	while (place.data && ship_get_field(&r, &f))
		if (f.number == PLACE_PATH && f.type == SHIP_BYTES) {
			out->path = (const char *)f.data;
			out->path_len = (size_t)f.value;
		}
	return 0;
}

/* ---- the copy beside the log ---- */

enum { COPY_MAX = SHIP_SNAPSHOT_MAX * 2 };

static void encode_copy(struct ship_buf *b, const struct ship_state *s, uint32_t incarnation)
{
	put_state(b, s);
	ship_put_number(b, SNAP_SEQUENCE, s->sequence);
	ship_put_number(b, SNAP_INCARNATION, incarnation);
	ship_put_fixed(b, SNAP_HASH, ship_hash(b->data, b->n)); /* the last: over all before it */
}

/* A copy that is torn, damaged or of another log says nothing. */
static int decode_copy(struct ship_state *s, const char *data, size_t n, uint32_t incarnation)
{
	struct ship_reader r = {(const unsigned char *)data, (const unsigned char *)data + n};
	uint64_t sequence = 0, of = 0;
	struct ship_field f = {0};

	while (ship_get_field(&r, &f)) {
		sequence = f.number == SNAP_SEQUENCE ? f.value : sequence;
		of = f.number == SNAP_INCARNATION ? f.value : of;
	}
	if (f.number != SNAP_HASH || n < 9 || r.at != r.end || f.value != ship_hash(data, n - 9) || of != incarnation)
		return 0;
	r.at = (const unsigned char *)data;
	if (read_state(s, r))
		return SL_ENOMEM;
	s->sequence = sequence;
	return 0;
}

static int read_copy(struct ship_state *s, const char *path, uint32_t incarnation, struct sl_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), rc = 0;
	char *data = fd >= 0 ? malloc(COPY_MAX) : NULL;
	ssize_t n = data ? pread(fd, data, COPY_MAX, 0) : 0;

	if (n < 0 || (fd < 0 && errno != ENOENT))
		rc = sl_err_set_errno(err, errno, "%s", path);
	else if ((fd >= 0 && !data) || (n > 0 && decode_copy(s, data, (size_t)n, incarnation)))
		rc = sl_err_set(err, SL_ENOMEM, "out of memory");
	free(data);
	if (fd >= 0)
		(void)close(fd);
	return rc;
}

int ship_recover(struct ship_state *s, sl_wal *w, const char *copy, uint64_t *first_pending, struct sl_err *err)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct recovery r = {.s = s, .err = err};
	int rc = sl_wal_get_stats(w, &stats, err);

	rc = rc ? rc : read_copy(s, copy, stats.incarnation, err);
	if (!rc && s->sequence > stats.last_sequence) /* of a log that lost its end: the lines are read again */
		ship_state_fini(s);
	rc = rc ? rc : sl_wal_iterate(w, 0, recover_record, &r, err);
	if (!rc)
		*first_pending = r.pending ? r.pending : stats.last_sequence + 1;
	return rc;
}

static int write_all(int fd, const char *data, size_t n)
{
	while (n > 0) {
		ssize_t done = write(fd, data, n);

		if (done < 0 && errno != EINTR)
			return errno;
		data += done > 0 ? done : 0;
		n -= done > 0 ? (size_t)done : 0;
	}
	return 0;
}

int ship_save(const struct ship_state *s, sl_wal *w, const char *copy, struct sl_err *err)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct ship_buf b = {NULL, 0, 0, 0};
	char temporary[PATH_MAX];
	int fd = -1, failed = 0, rc = sl_wal_get_stats(w, &stats, err);

	if (rc || s->sequence == 0)
		return rc;
	encode_copy(&b, s, stats.incarnation);
	if (b.failed || (size_t)snprintf(temporary, sizeof(temporary), "%s.new", copy) >= sizeof(temporary))
		failed = b.failed ? ENOMEM : ENAMETOOLONG;
	if (!failed && (fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600)) < 0)
		failed = errno;
	failed = failed ? failed : write_all(fd, b.data, b.n);
	if (!failed && (fsync(fd) || rename(temporary, copy)))
		failed = errno;
	if (fd >= 0)
		(void)close(fd);
	if (fd >= 0 && failed)
		(void)unlink(temporary);
	ship_buf_fini(&b);
	return failed ? sl_err_set_errno(err, failed, "%s", copy) : 0;
}
