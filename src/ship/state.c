/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state as fields of protobuf messages; state.h has the format. A key is the number of a field and its type. What
 * is written here is read by later versions: numbers and types never change.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/fnv.h"
#include "base/varint.h"
#include "ship/state.h"

/* ---- places ---- */

void sl__ship_state_fini(struct ship_state *s)
{
	for (size_t i = 0; i < s->n; i++)
		sl__free(s->env, s->places[i].path);
	sl__free(s->env, s->places);
	*s = (struct ship_state){.env = s->env};
}

struct ship_place *sl__ship_state_find(const struct ship_state *s, uint64_t id)
{
	for (size_t i = s->n; i-- > 0;)
		if (s->places[i].id == id)
			return &s->places[i];
	return NULL;
}

static struct ship_place *append_place(struct ship_state *s, const char *path, size_t len)
{
	struct ship_place *grown = sl__grow(s->env, s->places, s->n, &s->cap, sizeof(*grown));

	if (grown == NULL)
		return NULL;
	s->places = grown;
	char *copy = sl__alloc(s->env, len + 1);

	if (copy == NULL)
		return NULL;
	memcpy(copy, path, len);
	copy[len] = '\0';
	s->places[s->n] = (struct ship_place){.path = copy};
	return &s->places[s->n++];
}

struct ship_place *sl__ship_state_add(struct ship_state *s, const char *path)
{
	struct ship_place *p = append_place(s, path, strlen(path));

	if (p != NULL)
		p->id = ++s->last_id;
	return p;
}

void sl__ship_state_drop(struct ship_state *s, uint64_t id)
{
	struct ship_place *p = sl__ship_state_find(s, id);

	if (p == NULL)
		return;
	sl__free(s->env, p->path);
	memmove(p, p + 1, (size_t)(s->places + s->n - (p + 1)) * sizeof(*p));
	s->n--;
}

struct ship_place *sl__ship_state_move_last(struct ship_state *s, uint64_t id)
{
	struct ship_place *p = sl__ship_state_find(s, id), moved;

	if (p == NULL)
		return NULL;
	moved = *p;
	memmove(p, p + 1, (size_t)(s->places + s->n - (p + 1)) * sizeof(*p));
	s->places[s->n - 1] = moved;
	return &s->places[s->n - 1];
}

size_t sl__ship_state_size(const struct ship_state *s)
{
	SL_CLEANUP(sl__buf_fini) struct sl__buf b = {.env = s->env};

	sl__ship_encode_snapshot(&b, s);
	return b.failed ? SIZE_MAX : b.len;
}

struct ship_step sl__ship_step_of(const struct ship_line *line)
{
	size_t ended = line->end - line->at > line->len; /* by a newline, which is not part of the line */
	size_t n = line->len < SHIP_SAMPLE - ended ? line->len : SHIP_SAMPLE - ended;
	char last[SHIP_SAMPLE];

	memcpy(last, line->data + line->len - n, n);
	if (ended)
		last[n] = '\n';
	return (struct ship_step){line->place, line->end, sl__fnv(last, n + ended), (uint32_t)(n + ended)};
}

void sl__ship_apply(struct ship_state *s, const struct ship_step *step)
{
	struct ship_place *p = sl__ship_state_find(s, step->place);

	if (p == NULL)
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

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static size_t encode_varint(unsigned char *to, uint64_t value)
{
	size_t n = 0;

	do {
		to[n++] = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
		value >>= 7;
	} while (value);
	return n;
}

/* Failures to append stick in the buffer and are checked once at the end. */
static void put_number_field(struct sl__buf *b, unsigned field, uint64_t value)
{
	unsigned char bytes[20];
	size_t n = encode_varint(bytes, field << 3 | VARINT);

	(void)sl__buf_append(b, bytes, n + encode_varint(bytes + n, value));
}

static void put_fixed(struct sl__buf *b, unsigned field, uint64_t value)
{
	unsigned char bytes[18];
	size_t n = encode_varint(bytes, field << 3 | FIXED64);

	(void)sl__buf_append(b, bytes, n);
	(void)sl__buf_put64(b, value);
}

static void put_bytes_field(struct sl__buf *b, unsigned field, const void *data, size_t len)
{
	unsigned char bytes[20];
	size_t n = encode_varint(bytes, field << 3 | BYTES);

	(void)sl__buf_append(b, bytes, n + encode_varint(bytes + n, len));
	(void)sl__buf_append(b, data, len);
}

/* A message as a field of b, with its failure. */
static void put_message(struct sl__buf *b, unsigned field, const struct sl__buf *message)
{
	put_bytes_field(b, field, message->data, message->len);
	if (message->failed)
		b->failed = message->failed;
}

/* The state without its key and length. */
static void put_state(struct sl__buf *b, const struct ship_state *s)
{
	put_fixed(b, SNAP_TARGET, s->target);
	put_number_field(b, SNAP_LAST_ID, s->last_id);
	for (size_t i = 0; i < s->n; i++) {
		const struct ship_place *p = &s->places[i];
		SL_CLEANUP(sl__buf_fini) struct sl__buf file = {.env = s->env};

		put_bytes_field(&file, FILE_PATH, p->path, strlen(p->path));
		put_number_field(&file, FILE_ID, p->id);
		put_number_field(&file, FILE_DEV, p->dev);
		put_number_field(&file, FILE_INO, p->ino);
		put_number_field(&file, FILE_OFFSET, p->offset);
		put_number_field(&file, FILE_SINCE, (uint64_t)p->since_ns);
		put_number_field(&file, FILE_HEAD_LEN, p->head_len);
		put_fixed(&file, FILE_HEAD, p->head);
		put_number_field(&file, FILE_TAIL_LEN, p->tail_len);
		put_fixed(&file, FILE_TAIL, p->tail);
		if (p->done) {
			put_number_field(&file, FILE_DONE, 1);
			put_number_field(&file, FILE_BORN, (uint64_t)p->born_ns);
		}
		put_message(b, SNAP_FILE, &file);
	}
}

void sl__ship_encode_snapshot(struct sl__buf *b, const struct ship_state *s)
{
	SL_CLEANUP(sl__buf_fini) struct sl__buf state = {.env = s->env};

	put_state(&state, s);
	put_message(b, FIELD_SNAPSHOT, &state);
}

int sl__ship_encode(struct sl__buf *b, const struct ship_state *s, const struct ship_line *line, uint64_t sequence,
		    struct sl_err *err)
{
	struct sl_event event = {.type = line->type,
				 .ts_ms = line->ts_ms,
				 .position = line->at,
				 .partial = line->partial,
				 .data = line->data,
				 .len = line->len};
	const struct ship_place *p = sl__ship_state_find(s, line->place);
	const char *path = p != NULL ? p->path : "";
	SL_CLEANUP(sl__buf_fini) struct sl__buf place = {.env = s->env};
	void *record = NULL;
	size_t n = 0;
	int rc = sl_event_encode(&event, s->env, &record, &n, err);

	if (rc != 0)
		return rc;
	(void)sl__buf_append(b, record, n);
	sl_event_free(s->env, record);
	put_number_field(&place, PLACE_SEQUENCE, sequence);
	put_bytes_field(&place, PLACE_PATH, path, strlen(path));
	put_number_field(&place, PLACE_ID, line->place);
	put_number_field(&place, PLACE_END, line->end);
	put_message(b, FIELD_PLACE, &place);
	return b->failed ? sl__no_memory(err, "line") : 0;
}

/* ---- reading ---- */

struct reader {
	const unsigned char *at, *end;
};

struct field {
	unsigned number, type;
	uint64_t value;            /* of a number; the length of bytes */
	const unsigned char *data; /* of bytes */
};

/* false: the end, or not a message from here on. A field of bytes points into the message. */
static bool get_field(struct reader *r, struct field *f)
{
	uint64_t key;

	if (r->at == r->end || !sl__varint_get(&r->at, r->end, &key))
		return false;
	*f = (struct field){.number = (unsigned)(key >> 3), .type = (unsigned)(key & 7)};
	if (f->type == VARINT)
		return sl__varint_get(&r->at, r->end, &f->value);
	if (f->type == FIXED64 || f->type == FIXED32) {
		size_t n = f->type == FIXED64 ? 8 : 4;

		if ((size_t)(r->end - r->at) < n)
			return false;
		for (size_t i = 0; i < n; i++)
			f->value |= (uint64_t)*r->at++ << (8 * i);
		return true;
	}
	if (f->type != BYTES || !sl__varint_get(&r->at, r->end, &f->value) || f->value > (uint64_t)(r->end - r->at))
		return false;
	f->data = r->at;
	r->at += f->value;
	return true;
}

/* The message that a field of bytes holds; an empty one for a field that is missing. */
static struct reader reader_of(const struct field *f)
{
	return (struct reader){f->data, f->data != NULL ? f->data + f->value : NULL};
}

/* A place of a snapshot. One that makes no sense is skipped. */
static int read_place_of_file(struct ship_state *s, struct reader r)
{
	struct ship_place p = {.id = 0};
	const struct field *path = NULL;
	struct field f, kept;

	while (get_field(&r, &f)) {
		if (f.number == FILE_PATH && f.type == BYTES) {
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
		p.done = p.done || (f.number == FILE_DONE && f.value != 0);
		p.born_ns = f.number == FILE_BORN ? (int64_t)f.value : p.born_ns;
	}
	if (path == NULL || p.head_len > SHIP_SAMPLE || p.tail_len > SHIP_SAMPLE || p.tail_len > p.offset)
		return 0;
	struct ship_place *to = append_place(s, (const char *)path->data, (size_t)path->value);

	if (to == NULL)
		return SL_ENOMEM;
	p.path = to->path;
	*to = p;
	return 0;
}

static int read_state(struct ship_state *s, struct reader r)
{
	uint64_t sequence = s->sequence;
	struct field f;
	int rc = 0;

	sl__ship_state_fini(s);
	s->sequence = sequence;
	while (rc == 0 && get_field(&r, &f)) {
		s->target = f.number == SNAP_TARGET ? f.value : s->target;
		s->last_id = f.number == SNAP_LAST_ID ? f.value : s->last_id;
		if (f.number == SNAP_FILE && f.type == BYTES)
			rc = read_place_of_file(s, reader_of(&f));
	}
	return rc;
}

/* The two fields of a record, empty when they are not there. */
static void find_fields(const struct sl_wal_record *record, struct field *place, struct field *snapshot)
{
	const unsigned char *data = record->payload;
	struct reader r = {data, data + record->payload_len};
	struct field f;

	*place = *snapshot = (struct field){0};
	while (get_field(&r, &f)) {
		if (f.type == BYTES && f.number == FIELD_PLACE)
			*place = f;
		if (f.type == BYTES && f.number == FIELD_SNAPSHOT)
			*snapshot = f;
	}
}

struct recovery {
	struct ship_state *s;
	uint64_t pending;
	struct sl_err *err;
};

static int recover_record(const struct sl_wal_record *record, void *ctx)
{
	struct recovery *r = ctx;
	struct field place, snapshot, f;
	struct sl_event event;
	struct ship_line line = {0};
	uint64_t named = 0;
	struct ship_step step;
	int rc;

	if (record->status == SL_WAL_PENDING && !r->pending)
		r->pending = record->sequence;
	if (record->sequence <= r->s->sequence)
		return 0; /* the copy has it */
	find_fields(record, &place, &snapshot);
	struct reader of_place = reader_of(&place);

	while (get_field(&of_place, &f)) {
		named = f.number == PLACE_SEQUENCE ? f.value : named;
		line.place = f.number == PLACE_ID ? f.value : line.place;
		line.end = f.number == PLACE_END ? f.value : line.end;
	}
	if (named == 0 || named != record->sequence)
		return 0; /* not the record that it names */
	rc = snapshot.data != NULL ? read_state(r->s, reader_of(&snapshot)) : 0;
	if (rc != 0)
		return sl__no_memory(r->err, "places of files");
	rc = sl_event_decode(record->payload, record->payload_len, &event, r->err);
	if (rc != 0)
		return rc;
	line.at = event.position;
	line.data = event.data != NULL ? event.data : "";
	line.len = event.len;
	step = sl__ship_step_of(&line);
	sl__ship_apply(r->s, &step);
	r->s->sequence = record->sequence;
	return 0;
}

int sl__ship_decode(const struct sl_wal_record *record, struct ship_record *out, struct sl_err *err)
{
	struct field place, snapshot, f;
	struct sl_event event;
	int rc = sl_event_decode(record->payload, record->payload_len, &event, err);

	if (rc != 0)
		return rc;
	*out = (struct ship_record){.event = event};
	find_fields(record, &place, &snapshot);
	struct reader r = reader_of(&place);

	while (get_field(&r, &f))
		if (f.number == PLACE_PATH && f.type == BYTES) {
			out->path = (const char *)f.data;
			out->path_len = (size_t)f.value;
		}
	return 0;
}

/* ---- the copy next to the log ---- */

enum { COPY_MAX = SHIP_SNAPSHOT_MAX * 2 };

/* A copy that is torn, damaged or of another log is ignored. */
static int decode_copy(struct ship_state *s, const char *data, size_t n, uint32_t incarnation)
{
	struct reader r = {(const unsigned char *)data, (const unsigned char *)data + n};
	uint64_t sequence = 0, of = 0;
	struct field f = {0};

	while (get_field(&r, &f)) {
		sequence = f.number == SNAP_SEQUENCE ? f.value : sequence;
		of = f.number == SNAP_INCARNATION ? f.value : of;
	}
	if (f.number != SNAP_HASH || n < 9 || r.at != r.end || f.value != sl__fnv(data, n - 9) || of != incarnation)
		return 0;
	r.at = (const unsigned char *)data;
	if (read_state(s, r))
		return SL_ENOMEM;
	s->sequence = sequence;
	return 0;
}

static int read_copy(struct ship_state *s, const char *path, uint32_t incarnation, struct sl_err *err)
{
	int fd = SL__IO(s->env, open, path, O_RDONLY | O_NOFOLLOW, 0), rc = 0;

	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "%s", path);
	char *data = sl__alloc(s->env, COPY_MAX);
	ssize_t n = data != NULL ? sl__pread_full(s->env, fd, data, COPY_MAX, 0) : 0;

	if (n < 0)
		rc = sl_err_set_errno(err, (int)-n, "%s", path);
	else if (data == NULL || (n > 0 && decode_copy(s, data, (size_t)n, incarnation)))
		rc = sl__no_memory(err, path);
	sl__free(s->env, data);
	sl__close_fd(s->env, &fd);
	return rc;
}

int sl__ship_recover(struct ship_state *s, sl_wal *w, const char *copy, uint64_t *first_pending, struct sl_err *err)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	struct recovery r = {.s = s, .err = err};
	int rc = sl_wal_get_stats(w, &stats, err);

	if (rc != 0)
		return rc;
	rc = read_copy(s, copy, stats.incarnation, err);
	if (rc != 0)
		return rc;
	if (s->sequence > stats.last_sequence) /* of a log that lost its end: the lines are read again */
		sl__ship_state_fini(s);
	rc = sl_wal_iterate(w, 0, recover_record, &r, err);
	if (rc == 0)
		*first_pending = r.pending ? r.pending : stats.last_sequence + 1;
	return rc;
}

int sl__ship_save(const struct ship_state *s, sl_wal *w, const char *copy, struct sl_err *err)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	SL_CLEANUP(sl__buf_fini) struct sl__buf b = {.env = s->env};
	char temporary[PATH_MAX];
	int rc = sl_wal_get_stats(w, &stats, err);

	if (rc != 0 || s->sequence == 0)
		return rc;
	put_state(&b, s);
	put_number_field(&b, SNAP_SEQUENCE, s->sequence);
	put_number_field(&b, SNAP_INCARNATION, stats.incarnation);
	put_fixed(&b, SNAP_HASH, sl__fnv(b.data, b.len)); /* the last: over all before it */
	if (b.failed)
		return sl__no_memory(err, copy);
	if ((size_t)snprintf(temporary, sizeof(temporary), "%s.new", copy) >= sizeof(temporary))
		return sl_err_set_errno(err, ENAMETOOLONG, "%s", copy);

	/* A new file takes the name when it is complete. */
	int fd = SL__IO(s->env, open, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return sl_err_set_errno(err, -fd, "%s", copy);
	int failed = sl__pwrite_full(s->env, fd, b.data, b.len, 0);

	if (!failed)
		failed = SL__IO(s->env, sync, fd);
	if (!failed)
		failed = SL__IO(s->env, rename, temporary, copy, 0);
	sl__close_fd(s->env, &fd);
	if (failed)
		(void)SL__IO(s->env, unlink, temporary);
	return failed ? sl_err_set_errno(err, -failed, "%s", copy) : 0;
}
