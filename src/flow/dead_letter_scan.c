/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading one dead-letter file, and finding the way past damage.
 *
 * Records are reached by their lengths from the header. Where one is not good, every later place where the salt stands
 * is tried (every byte, while the salt is unknown because both copies of the header are damaged), until a good record
 * is found: from there the walk by lengths continues. Damage with a good record after it is a gap; damage with none is
 * the tail, most often a write that a crash tore. A clean close leaves a record after the last letter (I6), so bit rot
 * in that letter is a gap: counted, reported and kept, and not trimmed as torn. Length and CRC alone do not show it: a
 * power loss may leave a file as long as it should be with parts of the last write missing.
 *
 * A record is good when its frame and its CRC are right and it fits: a letter's id is above the one before and within
 * I4; an acknowledgement speaks of ids that came before it; the id of a close record is above them.
 */
#include "flow/dead_letter.h"

#include <errno.h>

#define WINDOW ((size_t)256 * 1024)

/* ---- the window ---- */

void sl__dl_reader_set(struct sl__dl_reader *r, int fd, uint64_t limit)
{
	r->fd = fd;
	r->limit = limit;
	r->have = 0;
}

void sl__dl_reader_fini(struct sl__dl_reader *r)
{
	if (r->env != NULL)
		sl__free(r->env, r->buf);
	r->buf = NULL;
	r->cap = r->have = 0;
}

int sl__dl_peek(struct sl__dl_reader *r, uint64_t offset, size_t n, const uint8_t **out)
{
	assert(offset <= r->limit && n <= r->limit - offset);
	if (r->have == 0 || offset < r->at || offset + n > r->at + r->have) {
		size_t want = (size_t)SL_MIN((uint64_t)SL_MAX(n, WINDOW), r->limit - offset);
		size_t cap = SL_MAX(want, (size_t)1);
		r->have = 0;
		/* One huge letter must not keep its memory while small ones are read. */
		if (cap > r->cap || (r->cap > 16 * WINDOW && cap <= r->cap / 2)) {
			sl__free(r->env, r->buf);
			r->cap = 0;
			r->buf = sl__alloc(r->env, cap);
			if (r->buf == NULL)
				return -ENOMEM;
			r->cap = cap;
		}
		ssize_t got = sl__pread_full(r->env, r->fd, r->buf, want, offset);
		if (got < 0)
			return (int)got;
		r->at = offset;
		r->have = (size_t)got;
		if (r->have < n)
			return -ESTALE;
	}
	*out = r->buf + (offset - r->at);
	return 0;
}

/* ---- the index ---- */

int sl__dl_index_reserve(struct sl__dl_file *f, const struct sl_env *env, uint64_t id)
{
	size_t need = (size_t)(id - f->first_id) + 1;
	if (need <= f->cap_index)
		return 0;
	size_t cap = SL_MAX(need, f->cap_index + f->cap_index / 2 + 16);
	uint32_t *index = sl__realloc(env, f->index, cap * sizeof(*index));
	if (index == NULL)
		return SL_ENOMEM;
	f->index = index;
	f->cap_index = cap;
	return 0;
}

void sl__dl_index_add(struct sl__dl_file *f, uint64_t id, uint64_t offset)
{
	size_t at = (size_t)(id - f->first_id);
	assert(at >= f->n_index && at < f->cap_index && offset < SL__DL_IS_ACKED);
	memset(f->index + f->n_index, 0, (at - f->n_index) * sizeof(*f->index));
	f->index[at] = (uint32_t)offset;
	f->n_index = at + 1;
	f->letters++;
	f->unacked++;
	f->close_due = true;
}

void sl__dl_index_ack(struct sl__dl_file *f, uint64_t first, uint64_t last)
{
	for (uint64_t id = first; id <= last; id++) {
		uint32_t *entry = &f->index[id - f->first_id];
		if (*entry == 0 || (*entry & SL__DL_IS_ACKED) != 0)
			continue;
		*entry |= SL__DL_IS_ACKED;
		f->unacked--;
	}
}

void sl__dl_file_fini(struct sl__dl_file *f, const struct sl_env *env)
{
	sl__free(env, f->index);
	f->index = NULL;
	f->n_index = f->cap_index = 0;
}

/* ---- the scan ---- */

struct scan {
	struct sl__dl_file *f;
	struct sl__dl_reader *r;
	bool salt_known;
	uint64_t off;
	uint64_t gap_at;     /* where the damage that is being crossed began */
	uint64_t gap_frames; /* damaged records in it, as far as frames show; 0: not in damage */
};

enum verdict { GOOD, BAD_FRAME, BAD_BODY };

/* Does the record follow from what came before it? */
static bool record_fits(const struct scan *s, const uint8_t *p, const struct sl__dl_frame *frame)
{
	const struct sl__dl_file *f = s->f;
	struct sl_dlq_letter letter;
	uint64_t last = sl__dl_ack_last(p);
	if (frame->type == SL__DL_ACKED)
		return frame->id >= f->first_id && last >= frame->id && last - f->first_id < f->n_index;
	if (frame->id < f->first_id + f->n_index) /* the lowest id that may come */
		return false;
	return frame->type == SL__DL_CLOSED ||
	       (sl__dl_get_letter(p, frame, &letter) &&
		frame->id - f->first_id <= (s->off - SL__DL_HEADER) / SL__DL_LETTER_MIN);
}

/* Judge the record at s->off; *p is its bytes when GOOD. 0 or a negative errno. */
static int judge(struct scan *s, enum verdict *verdict, struct sl__dl_frame *frame, const uint8_t **p)
{
	*verdict = BAD_FRAME;
	uint64_t left = s->r->limit - s->off;
	if (left < SL__DL_FRAME)
		return 0;
	int rc = sl__dl_peek(s->r, s->off, SL__DL_FRAME, p);
	if (rc != 0)
		return rc;
	if (s->salt_known && sl__get64(*p) != s->f->salt)
		return 0;
	if (!sl__dl_get_frame(*p, frame) || frame->length > left)
		return 0;
	rc = sl__dl_peek(s->r, s->off, frame->length, p);
	if (rc != 0)
		return rc;
	*verdict = sl__dl_whole(*p, frame) && record_fits(s, *p, frame) ? GOOD : BAD_BODY;
	return 0;
}

/* Move s->off to the next place where a record may begin, or to the limit. */
static int skip_to_candidate(struct scan *s)
{
	uint8_t salt[8];
	s->off++;
	if (!s->salt_known)
		return 0;
	sl__put64(salt, s->f->salt);
	while (s->r->limit - s->off >= SL__DL_FRAME) {
		size_t n = (size_t)SL_MIN(s->r->limit - s->off, (uint64_t)WINDOW);
		const uint8_t *p;
		int rc = sl__dl_peek(s->r, s->off, n, &p);
		if (rc != 0)
			return rc;
		const uint8_t *hit = memmem(p, n, salt, sizeof(salt));
		if (hit != NULL) {
			s->off += (uint64_t)(hit - p);
			return 0;
		}
		s->off += n - (sizeof(salt) - 1);
	}
	s->off = s->r->limit;
	return 0;
}

static int take_record(struct scan *s, const struct sl__dl_frame *frame, const uint8_t *p)
{
	struct sl__dl_file *f = s->f;
	if (s->gap_frames > 0) {
		/* The damage ends here. */
		f->damaged += s->gap_frames;
		f->damaged_tail += s->off - s->gap_at;
		sl__log(s->r->env, SL_LOG_WARN, "dead_letter", "damaged dead letters skipped",
			SL__F_U64("file", f->first_id), SL__F_U64("offset", s->gap_at),
			SL__F_U64("bytes", s->off - s->gap_at), SL__F_U64("letters", s->gap_frames));
		s->gap_frames = 0;
	}
	f->salt = frame->salt;
	s->salt_known = true;
	if (frame->type == SL__DL_ACKED) {
		sl__dl_index_ack(f, frame->id, sl__dl_ack_last(p));
	} else if (frame->type == SL__DL_CLOSED) {
		f->close_due = false;
	} else {
		if (sl__dl_index_reserve(f, s->r->env, frame->id) != 0)
			return -ENOMEM;
		sl__dl_index_add(f, frame->id, s->off);
		f->damaged_tail = 0; /* what was lost before has lower ids */
	}
	s->off += frame->length;
	return 0;
}

static int walk_records(struct scan *s)
{
	while (s->off < s->r->limit) {
		enum verdict verdict;
		struct sl__dl_frame frame;
		const uint8_t *p;
		int rc = judge(s, &verdict, &frame, &p);
		if (rc == 0 && verdict == GOOD) {
			rc = take_record(s, &frame, p);
		} else if (rc == 0) {
			if (s->gap_frames == 0)
				s->gap_at = s->off;
			if (s->gap_frames == 0 || verdict == BAD_BODY)
				s->gap_frames++;
			rc = skip_to_candidate(s);
		}
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Nothing in it can be used, or it is not ours: log that, keep it, never write to it. */
static void mark_opaque(struct scan *s, uint64_t size, uint64_t *tail)
{
	struct sl__dl_file *f = s->f;
	f->opaque = true;
	f->damaged = 1;
	f->damaged_tail = size;
	*tail = size;
	sl__log(s->r->env, SL_LOG_WARN, "dead_letter",
		"not a dead-letter file, or all of it is damaged; left unchanged", SL__F_U64("file", f->first_id),
		SL__F_U64("bytes", size));
}

int sl__dl_scan(struct sl__dl_file *f, struct sl__dl_reader *r, uint64_t size, uint64_t *tail, struct sl_err *err)
{
	struct scan s = {.f = f, .r = r, .off = SL__DL_HEADER};
	f->size = size;
	if (size < SL__DL_HEADER || size > SL__DL_MAX_FILE) {
		mark_opaque(&s, size, tail);
		return 0;
	}
	/* The salt is known when a copy of the header is good. */
	const uint8_t *p = NULL;
	size_t n = (size_t)SL_MIN(r->limit, (uint64_t)SL__DL_HEADER);
	int rc = sl__dl_peek(r, 0, n, &p);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "read the header");
	rc = sl__dl_get_header(p, n, f->first_id, &f->salt);
	if (rc == SL_EUNSUPPORTED)
		return sl_err_set(err, rc, "written by a later version of sluice");
	s.salt_known = rc == 0;
	/* A good header that belongs to another name: a copy or a renamed file. Reading it would double its letters. */
	f->opaque = rc == SL_EDATA;
	bool header = s.salt_known;
	rc = f->opaque ? 0 : walk_records(&s);
	if (rc == -ESTALE)
		return sl_err_set(err, SL_ESTALE, "cut back while it was read");
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "read at %llu", (unsigned long long)s.off);
	if (f->opaque || !s.salt_known) {
		mark_opaque(&s, size, tail);
		return 0;
	}
	f->damaged += !header;
	*tail = s.gap_frames != 0 ? s.gap_at : size;
	f->damaged_tail += size - *tail;
	return 0;
}

int sl__dl_read_letter(const struct sl__dl_file *f, struct sl__dl_reader *r, uint32_t entry, struct sl_dlq_letter *out,
		       struct sl_err *err)
{
	uint64_t off = entry & ~SL__DL_IS_ACKED;
	struct sl__dl_frame frame;
	const uint8_t *p;
	if (r->limit < off + SL__DL_FRAME)
		return sl_err_set(err, SL_ECORRUPT, "dead letter at %llu: truncated", (unsigned long long)off);
	int rc = sl__dl_peek(r, off, SL__DL_FRAME, &p);
	bool good = rc == 0 && sl__dl_get_frame(p, &frame) && frame.salt == f->salt && frame.type == SL__DL_LETTER &&
		    frame.length <= r->limit - off;
	if (good) {
		rc = sl__dl_peek(r, off, frame.length, &p);
		good = rc == 0 && sl__dl_whole(p, &frame) && sl__dl_get_letter(p, &frame, out);
	}
	if (rc == -ESTALE)
		return sl_err_set(err, SL_ESTALE, "dead letter at %llu: truncated", (unsigned long long)off);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "read the dead letter at %llu", (unsigned long long)off);
	if (!good)
		return sl_err_set(err, SL_ECORRUPT, "dead letter at %llu: damaged", (unsigned long long)off);
	out->acknowledged = (entry & SL__DL_IS_ACKED) != 0;
	return 0;
}
