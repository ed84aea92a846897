/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk follows lengths from the header. A record reached so is valid by its own fields and CRC, and a data record
 * must also be numbered above the one before. At the first bytes that are neither a record nor the zeros that end a
 * log, the walk searches for the next record:
 *
 *      … | record | ##### damaged ##### | record | record | 0 0 0 0 …
 *                 ^ p                   ^ q
 *
 * R1  The damaged record's own length is tried first: when a chain of records begins right after it, that is q. When
 *     the log ends exactly there, the damaged record was the last one. But when records lie without a gap from
 *     somewhere after p exactly to that place, it is the length that is wrong, and the first of these is q.
 * R2  Otherwise every byte after p is a candidate. It must look like a record whose sequence fits (data: above the
 *     last one), with a right CRC, and the chain that begins there must reach further than any other candidate's:
 *     a payload may itself hold log bytes, and a chain inside a payload ends where the payload does.
 * R3  Without a candidate, the rest is a torn tail.
 */
#include "wal/reader.h"

#include <errno.h>

#include "base/crc64nvme.h"

#define WINDOW_BYTES ((size_t)512 * 1024)

void sl__wal_reader_init(struct wal_reader *r, const struct sl_env *env, int fd, uint64_t size)
{
	*r = (struct wal_reader){.env = env, .fd = fd, .size = size};
}

void sl__wal_reader_init_memory(struct wal_reader *r, const struct sl_env *env, const void *data, size_t size)
{
	*r = (struct wal_reader){.env = env, .fd = -1, .size = size, .len = size};
	r->buf = (uint8_t *)(uintptr_t)data; /* never written: the window covers everything */
}

void sl__wal_reader_fini(struct wal_reader *r)
{
	if (r->fd >= 0)
		sl__free(r->env, r->buf);
	r->buf = NULL;
}

/* Move the window so that it begins at offset and has room for want bytes, keeping bytes that are already in memory. */
static bool refill_reader(struct wal_reader *r, uint64_t offset, size_t want)
{
	size_t keep = 0, cap = SL_MAX(want, WINDOW_BYTES);
	if (cap > r->cap) {
		uint8_t *fresh = sl__alloc(r->env, cap);
		if (fresh == NULL) {
			r->error = ENOMEM;
			return false;
		}
		if (r->len != 0)
			memcpy(fresh, r->buf, r->len);
		sl__free(r->env, r->buf);
		r->buf = fresh;
		r->cap = cap;
	}
	if (offset >= r->start && offset < r->start + r->len) {
		keep = (size_t)(r->start + r->len - offset);
		memmove(r->buf, r->buf + (offset - r->start), keep);
	}
	r->start = offset;
	r->len = keep;
	size_t room = (size_t)SL_MIN((uint64_t)(r->cap - keep), r->size - offset - keep);
	ssize_t got = sl__pread_full(r->env, r->fd, r->buf + keep, room, offset + keep);
	if (got < 0) {
		r->error = (int)-got;
		return false;
	}
	r->len += (size_t)got;
	if ((size_t)got < room)
		r->size = offset + r->len; /* the file became shorter under us */
	return true;
}

const uint8_t *sl__wal_view(struct wal_reader *r, uint64_t offset, size_t want, size_t *got)
{
	static const uint8_t nothing[1] = {0};
	*got = 0;
	if (offset >= r->size)
		return nothing;
	if (want > r->size - offset)
		want = (size_t)(r->size - offset);
	if (offset < r->start || offset + want > r->start + r->len) {
		if (r->fd < 0 || !refill_reader(r, offset, want))
			return NULL;
		if (offset + want > r->start + r->len)
			want = (size_t)(r->start + r->len - offset);
	}
	*got = want;
	return r->buf + (offset - r->start);
}

void sl__wal_walk_init(struct wal_walk *w, struct wal_reader *r, uint64_t last)
{
	*w = (struct wal_walk){.r = r, .pos = WAL_HEADER_BYTES, .last = last};
}

enum probe { PROBE_ERROR = -1, PROBE_NO = 0, PROBE_YES = 1 };

/* What lies at an offset. */
struct probed {
	struct wal_record record; /* of a valid one */
	enum wal_check check;     /* why it is not */
	uint64_t expected_crc, actual_crc;
};

/* Is there a valid record at offset? */
static enum probe probe_record(struct wal_reader *r, uint64_t offset, struct probed *out)
{
	size_t got;
	out->check = WAL_BAD_LENGTH;
	out->expected_crc = out->actual_crc = 0;
	const uint8_t *p = sl__wal_view(r, offset, WAL_FRAME_BYTES, &got);
	if (p == NULL)
		return PROBE_ERROR;
	uint32_t total = got < WAL_FRAME_BYTES ? 0 : sl__wal_total(p, r->size - offset);
	if (total == 0) {
		if (got >= 4 && sl__wal_total(p, UINT64_MAX) != 0)
			out->check = WAL_CUT_SHORT;
		return PROBE_NO;
	}
	p = sl__wal_view(r, offset, total, &got);
	if (p == NULL)
		return PROBE_ERROR;
	if (got < total)
		return PROBE_NO;
	out->check = sl__wal_check(p, total, &out->record, &out->actual_crc);
	out->expected_crc = sl__get64(p + total - 8);
	return out->check == WAL_VALID ? PROBE_YES : PROBE_NO;
}

/* The first offset from `from` on that holds a byte other than zero; r->size without one. */
static enum probe skip_zeros(struct wal_reader *r, uint64_t from, uint64_t *at)
{
	while (from < r->size) {
		size_t got, i = 0;
		const uint8_t *p = sl__wal_view(r, from, (size_t)64 * 1024, &got);
		if (p == NULL)
			return PROBE_ERROR;
		if (got == 0)
			break;
		if (got >= 16 && p[0] == 0 && memcmp(p, p + 1, got - 1) == 0)
			i = got;
		while (i < got && p[i] == 0)
			i++;
		from += i;
		if (i < got)
			break;
	}
	*at = SL_MIN(from, r->size);
	return PROBE_YES;
}

/* One past the last byte after from that is not zero; from when all are zero. */
static enum probe last_nonzero(struct wal_reader *r, uint64_t from, uint64_t *end)
{
	*end = from;
	while (from < r->size) {
		size_t got;
		const uint8_t *p = sl__wal_view(r, from, (size_t)64 * 1024, &got);
		if (p == NULL)
			return PROBE_ERROR;
		if (got == 0)
			break;
		for (size_t i = got; i > 0; i--)
			if (p[i - 1] != 0) {
				*end = from + i;
				break;
			}
		from += got;
	}
	return PROBE_YES;
}

/* Does a record fit after data sequence `last`? Status records are about any sequence. */
static bool sequence_fits(const struct wal_record *rec, uint64_t last)
{
	return rec->status != SL_WAL_PENDING || rec->sequence > last;
}

/* Follow records from q as long as they begin before limit; *end is where the chain stops (q itself when no
 * record follows). */
static enum probe follow_chain(struct wal_reader *r, uint64_t q, uint64_t last, uint64_t limit, uint64_t *end)
{
	*end = q;
	while (q < limit) {
		struct probed at;
		enum probe found = probe_record(r, q, &at);
		if (found == PROBE_ERROR)
			return found;
		if (found == PROBE_NO || !sequence_fits(&at.record, last))
			break;
		if (at.record.status == SL_WAL_PENDING)
			last = at.record.sequence;
		*end = q += at.record.total;
	}
	return PROBE_YES;
}

/* Cheap check of a candidate before its CRC is computed. */
static bool looks_like_record(const uint8_t *p, uint64_t avail, uint64_t last)
{
	if (sl__wal_total(p, avail) == 0 || sl__wal_check_fields(p) != WAL_VALID)
		return false;
	return p[12] != SL_WAL_PENDING || sl__get64(p + 4) > last;
}

/*
 * A search over every byte. Records inside a chain that was followed are not followed again: they end where it ends.
 * What is followed in addition is bounded, so that a payload made to look like many records cannot hold a recovery up:
 * past the bound the best chain so far is taken.
 */
struct search {
	uint64_t at;                 /* the next byte to try */
	uint64_t cursor, cursor_end; /* the next record of the chain that was followed last, and that chain's end */
	uint64_t work, budget;       /* bytes */
};

static void search_init(struct search *s, uint64_t from, uint64_t bytes)
{
	*s = (struct search){.at = from, .budget = bytes * 64 + 4 * (uint64_t)WAL_MAX_RECORD};
}

/* Move to the next byte before limit that looks like a record worth following. NO: none left. */
static enum probe search_next(struct wal_walk *w, struct search *s, uint64_t limit, uint32_t *total)
{
	while (s->at + WAL_FRAME_BYTES <= limit && s->work <= s->budget) {
		size_t got, i = 0;
		const uint8_t *bytes = sl__wal_view(w->r, s->at, WINDOW_BYTES / 2, &got);
		if (bytes == NULL)
			return PROBE_ERROR;
		size_t n = (size_t)SL_MIN((uint64_t)got, limit - s->at);
		while (i + WAL_FRAME_BYTES <= n && !looks_like_record(bytes + i, limit - (s->at + i), w->last))
			i++;
		s->at += i;
		if (i + WAL_FRAME_BYTES > n) {
			if (i == 0)
				break;
			continue;
		}
		*total = sl__wal_total(bytes + i, limit - s->at);
		if (s->at != s->cursor || s->at >= s->cursor_end)
			return PROBE_YES;
		s->cursor += *total;
		s->at++;
	}
	return PROBE_NO;
}

/* Follow the chain at s->at, remember it, and step on. */
static enum probe search_follow(struct wal_walk *w, struct search *s, uint32_t total, uint64_t limit, uint64_t *end)
{
	enum probe found = follow_chain(w->r, s->at, w->last, limit, end);
	s->work += *end - s->at + total;
	if (s->at >= s->cursor_end && *end > s->at) {
		s->cursor = s->at + total;
		s->cursor_end = *end;
	}
	s->at++;
	return found;
}

/* R2. The start of the chain that reaches furthest, of all that begin after p. */
static enum probe scan_for_chain(struct wal_walk *w, uint64_t p, uint64_t data_end, uint64_t *q)
{
	uint64_t best_end = 0, limit = SL_MIN(data_end + 8, w->r->size);
	struct search s;
	search_init(&s, p + 1, limit - p);
	for (;;) {
		uint32_t total;
		uint64_t end;
		enum probe found = search_next(w, &s, limit, &total);
		if (found != PROBE_YES)
			return found == PROBE_NO && best_end != 0 ? PROBE_YES : found;
		uint64_t start = s.at;
		if (search_follow(w, &s, total, UINT64_MAX, &end) == PROBE_ERROR)
			return PROBE_ERROR;
		if (end > start && end > best_end) {
			best_end = end;
			*q = start;
			if (end >= data_end)
				return PROBE_YES; /* nothing can reach further */
		}
	}
}

/* R1. The first of the records that lead from after p exactly to next, when it is the length itself that is damaged.
 * Records inside a payload cannot: the last bytes before next are the CRC of the record around them. */
static enum probe chain_inside(struct wal_walk *w, uint64_t p, uint64_t next, uint64_t *q)
{
	struct search s;
	search_init(&s, p + 1, next - p);
	for (;;) {
		uint32_t total;
		uint64_t end;
		enum probe found = search_next(w, &s, next, &total);
		if (found != PROBE_YES)
			return found;
		*q = s.at;
		found = search_follow(w, &s, total, next, &end);
		if (found == PROBE_ERROR || end == next)
			return found;
	}
}

static enum wal_step set_read_error(struct wal_walk *w, struct sl_err *err)
{
	(void)sl_err_set_errno(err, w->r->error, "read at %llu", (unsigned long long)w->pos);
	return WAL_STEP_ERROR;
}

static enum wal_step resync(struct wal_walk *w, struct wal_item *item, struct sl_err *err)
{
	uint64_t p = w->pos, q = 0, next = 0;
	/* Searched for once: a log with many damaged places would otherwise be read to its end for each. */
	if (w->data_end == 0 && last_nonzero(w->r, p, &w->data_end) == PROBE_ERROR)
		return set_read_error(w, err);
	uint64_t data_end = w->data_end;
	/* R1. Where does the damaged record's own length lead? To a record, or to the end of the log? */
	size_t got;
	const uint8_t *bytes = sl__wal_view(w->r, p, 4, &got);
	if (bytes == NULL)
		return set_read_error(w, err);
	uint32_t total = got < 4 ? 0 : sl__wal_total(bytes, w->r->size - p);
	enum probe found = PROBE_NO;
	bool at_end = false;
	if (total != 0) {
		uint64_t end;
		next = p + total;
		/* The last eight bytes of a record are its CRC: hardly ever all zero. */
		at_end = data_end <= next && data_end > next - 8;
		if (follow_chain(w->r, next, w->last, UINT64_MAX, &end) == PROBE_ERROR)
			return set_read_error(w, err);
		found = end > next ? PROBE_YES : PROBE_NO;
	}
	q = next;
	if (found == PROBE_YES || at_end) {
		uint64_t inside = 0;
		enum probe hidden = chain_inside(w, p, next, &inside);
		if (hidden != PROBE_NO) {
			found = hidden;
			q = inside;
		}
	} else {
		found = scan_for_chain(w, p, data_end, &q);
	}
	if (found == PROBE_ERROR)
		return set_read_error(w, err);
	item->offset = p;
	if (found == PROBE_NO) {
		item->length = data_end - p;
		return WAL_STEP_END;
	}
	item->length = q - p;
	w->pos = q;
	return WAL_STEP_DAMAGE;
}

enum wal_step sl__wal_walk_next(struct wal_walk *w, struct wal_item *item, struct sl_err *err)
{
	struct probed at = {.check = WAL_VALID};
	enum probe found = probe_record(w->r, w->pos, &at);
	if (found == PROBE_ERROR)
		return set_read_error(w, err);
	*item = (struct wal_item){
		.offset = w->pos, .record = at.record, .expected_crc = at.expected_crc, .actual_crc = at.actual_crc};
	if (found == PROBE_YES && sequence_fits(&item->record, w->last)) {
		w->pos += item->record.total;
		if (item->record.status == SL_WAL_PENDING)
			w->last = item->record.sequence;
		return WAL_STEP_RECORD;
	}
	item->reason =
		found == PROBE_YES ? "the sequence does not follow the one before" : sl__wal_check_text(at.check);
	uint64_t nonzero;
	if (skip_zeros(w->r, w->pos, &nonzero) == PROBE_ERROR)
		return set_read_error(w, err);
	if (nonzero >= w->r->size) {
		item->reason = NULL;
		return WAL_STEP_END;
	}
	return resync(w, item, err);
}
