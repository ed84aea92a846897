/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a recovery that change files: keep a copy of damaged bytes, declare holes, cut and replace. */
#include "wal/repair.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "wal/segs.h"

#define COPY_PIECE ((size_t)256 * 1024)

/* ---- a file that is being written: a buffer in front of pwrite ---- */

struct writer {
	const struct sl_env *env;
	int fd;
	uint64_t at;
	uint8_t *buf;
	size_t fill;
};

static int writer_init(struct writer *out, const struct sl_env *env, int fd, uint64_t at)
{
	*out = (struct writer){.env = env, .fd = fd, .at = at, .buf = sl__alloc(env, COPY_PIECE)};
	return out->buf != NULL ? 0 : -ENOMEM;
}

static int writer_flush(struct writer *out)
{
	int rc = sl__pwrite_full(out->env, out->fd, out->buf, out->fill, out->at);
	out->at += out->fill;
	out->fill = 0;
	return rc;
}

static int writer_add(struct writer *out, const uint8_t *p, size_t n)
{
	while (n > 0) {
		if (out->fill == COPY_PIECE) {
			int rc = writer_flush(out);
			if (rc < 0)
				return rc;
		}
		size_t take = SL_MIN(n, COPY_PIECE - out->fill);
		memcpy(out->buf + out->fill, p, take);
		out->fill += take;
		p += take;
		n -= take;
	}
	return 0;
}

static int copy_range(struct writer *out, int from_fd, uint64_t offset, uint64_t length)
{
	uint8_t *piece = sl__alloc(out->env, COPY_PIECE);
	int rc = piece != NULL ? 0 : -ENOMEM;
	while (rc == 0 && length > 0) {
		size_t want = (size_t)SL_MIN(length, (uint64_t)COPY_PIECE);
		ssize_t got = sl__pread_full(out->env, from_fd, piece, want, offset);
		if (got <= 0) {
			rc = (int)got;
			break;
		}
		rc = writer_add(out, piece, (size_t)got);
		offset += (uint64_t)got;
		length -= (uint64_t)got;
	}
	sl__free(out->env, piece);
	return rc;
}

/* ---- aside ---- */

/* Does the file at path hold exactly these bytes of fd? */
static bool holds_bytes(const struct sl_env *env, const char *path, int fd, uint64_t offset, uint64_t length)
{
	uint8_t a[4096], b[4096];
	struct sl_io_stat st;
	int other = SL__IO(env, open, path, O_RDONLY | O_NOFOLLOW, 0);
	if (other < 0)
		return false;
	bool same = SL__IO(env, fstat, other, &st) == 0 && st.size == length;
	for (uint64_t done = 0; same && done < length;) {
		size_t n = (size_t)SL_MIN(length - done, (uint64_t)sizeof(a));
		same = sl__pread_full(env, fd, a, n, offset + done) == (ssize_t)n &&
		       sl__pread_full(env, other, b, n, done) == (ssize_t)n && memcmp(a, b, n) == 0;
		done += n;
	}
	(void)SL__IO(env, close, other);
	return same;
}

static int write_copy(const struct sl_env *env, const char *path, int fd, uint64_t offset, uint64_t length)
{
	int to = SL__IO(env, open, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (to < 0)
		return to;
	struct writer out;
	int rc = writer_init(&out, env, to, 0);
	if (rc == 0)
		rc = copy_range(&out, fd, offset, length);
	if (rc == 0)
		rc = writer_flush(&out);
	if (rc == 0)
		rc = SL__IO(env, sync, to);
	sl__free(env, out.buf);
	(void)SL__IO(env, close, to);
	if (rc < 0)
		(void)SL__IO(env, unlink, path);
	return rc;
}

/* base, or base.2, base.3 … */
static char *numbered(const struct sl_env *env, const char *base, unsigned n)
{
	return n < 2 ? sl__strdup(env, base) : sl__asprintf(env, "%s.%u", base, n);
}

/* Move temp to the first free name; drop it when the bytes are there already. */
static int publish_aside(const sl_wal *w, const char *temp, const char *base, int fd, uint64_t offset, uint64_t length)
{
	for (unsigned n = 1; n < 10000; n++) {
		char *path = numbered(&w->env, base, n);
		if (path == NULL)
			return -ENOMEM;
		int rc = SL__IO(&w->env, rename, temp, path, 1);
		bool same = rc == -EEXIST && holds_bytes(&w->env, path, fd, offset, length);
		sl__free(&w->env, path);
		if (same)
			rc = SL__IO(&w->env, unlink, temp);
		if (rc != -EEXIST)
			return rc == 0 ? sl__sync_dir(&w->env, w->dir) : rc;
	}
	return -EEXIST;
}

int sl__wal_set_aside(const sl_wal *w, int fd, const char *name, const char *kind, uint64_t offset, uint64_t length,
		      struct sl_err *err)
{
	uint64_t salt = 0;
	int rc = w->env.rand->fill(&salt, sizeof(salt), w->env.rand_ctx);
	char *base = sl__asprintf(&w->env, "%s/%s.%s-%llu", w->dir, name, kind, (unsigned long long)offset);
	char *temp = sl__asprintf(&w->env, "%s/%s.wal.tmp-%016llx", w->dir, w->id, (unsigned long long)salt);
	if (base == NULL || temp == NULL)
		rc = -ENOMEM;
	if (rc == 0)
		rc = write_copy(&w->env, temp, fd, offset, length);
	if (rc == 0)
		rc = publish_aside(w, temp, base, fd, offset, length);
	int code = 0;
	if (rc < 0)
		code = sl_err_set_errno(err, -rc, "set damaged bytes of %s aside", name);
	else
		sl__log(&w->env, SL_LOG_WARN, "wal", "bytes quarantined", SL__F_STR("file", sl__basename(base)),
			SL__F_U64("bytes", length));
	sl__free(&w->env, base);
	sl__free(&w->env, temp);
	return code;
}

int sl__wal_move_aside(const sl_wal *w, const char *path, const char *suffix, struct sl_err *err)
{
	char *base = sl__asprintf(&w->env, "%s.%s", path, suffix);
	int rc = base != NULL ? -EEXIST : -ENOMEM;
	for (unsigned n = 1; rc == -EEXIST && n < 10000; n++) {
		char *to = numbered(&w->env, base, n);
		rc = to != NULL ? SL__IO(&w->env, rename, path, to, 1) : -ENOMEM;
		if (rc == 0)
			sl__log(&w->env, SL_LOG_WARN, "wal", "file quarantined", SL__F_STR("file", sl__basename(to)));
		sl__free(&w->env, to);
	}
	sl__free(&w->env, base);
	return rc < 0 ? sl_err_set_errno(err, -rc, "move %s aside", path) : 0;
}

/* ---- rewriting a segment ---- */

struct rewrite {
	sl_wal *w;
	const struct wal_source *src;
	int from;   /* the segment as it is */
	char *temp; /* the new one */
	int to;
	struct writer out;
	struct wal_header header;
};

static int rewrite_begin(struct rewrite *rw, sl_wal *w, const struct wal_source *src, bool active, struct sl_err *err)
{
	*rw = (struct rewrite){.w = w, .src = src, .from = -1, .to = -1, .header = src->header};
	rw->from = active ? w->fd : SL__IO(&w->env, open, src->path, O_RDONLY | O_NOFOLLOW, 0);
	if (rw->from < 0)
		return sl_err_set_errno(err, -rw->from, "open %s", src->path);
	int rc = sl__wal_make_temp(&w->env, w->dir, w->id, rw->header, (struct wal_renewal){0, 0}, 0, &rw->temp,
				   &rw->to, err);
	if (rc == 0 && writer_init(&rw->out, &w->env, rw->to, WAL_HEADER_BYTES) < 0)
		rc = sl_err_set(err, SL_ENOMEM, "rewrite %s: no memory", src->path);
	return rc;
}

/* Sync the new file and move it over the old one. */
static int rewrite_commit(struct rewrite *rw, bool active, struct sl_err *err)
{
	const struct sl_env *env = &rw->w->env;
	int rc = writer_flush(&rw->out);
	if (rc == 0)
		rc = SL__IO(env, sync, rw->to);
	if (rc == 0)
		rc = SL__IO(env, rename, rw->temp, rw->src->path, 0);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "rewrite %s", rw->src->path);
	sl__free(env, rw->temp);
	rw->temp = NULL;
	if (active) {
		/* The new file is locked already; the old one's lock goes with it. */
		(void)SL__IO(env, close, rw->w->fd);
		rw->w->fd = rw->to;
		rw->to = -1;
	}
	rc = sl__sync_dir(env, rw->w->dir);
	return rc < 0 ? sl_err_set_errno(err, -rc, "sync the folder of %s", rw->src->path) : 0;
}

static void rewrite_end(struct rewrite *rw, bool active)
{
	const struct sl_env *env = &rw->w->env;
	sl__free(env, rw->out.buf);
	if (rw->temp != NULL)
		(void)SL__IO(env, unlink, rw->temp);
	sl__free(env, rw->temp);
	sl__close_fd(env, &rw->to);
	if (!active)
		sl__close_fd(env, &rw->from);
}

/* One step of the walk: keep a record, set damage aside. 1: the end. */
static int salvage_step(struct rewrite *rw, struct wal_walk *walk, struct wal_reader *r, struct sl_err *err)
{
	struct wal_item item;
	size_t got;
	int rc = 0;
	switch (sl__wal_walk_next(walk, &item, err)) {
	case WAL_STEP_RECORD: {
		const uint8_t *p = sl__wal_view(r, item.offset, item.record.total, &got);
		rc = p == NULL ? -r->error : writer_add(&rw->out, p, got);
		return rc < 0 ? sl_err_set_errno(err, -rc, "rewrite %s", rw->src->path) : 0;
	}
	case WAL_STEP_DAMAGE:
		return sl__wal_set_aside(rw->w, rw->from, rw->src->name, "damaged", item.offset, item.length, err);
	case WAL_STEP_END:
		if (item.length > 0)
			rc = sl__wal_set_aside(rw->w, rw->from, rw->src->name, "damaged", item.offset, item.length,
					       err);
		return rc != 0 ? rc : 1;
	case WAL_STEP_ERROR:
	default:
		return sl_err_set_errno(err, r->error, "rewrite %s: read", rw->src->path);
	}
}

static int add_hole(struct rewrite *rw, uint64_t first, uint64_t last, struct sl_err *err)
{
	uint8_t mark[WAL_MARK_BYTES];
	if (first == 0)
		return 0;
	size_t n = sl__wal_encode_mark(mark, first, last, SL_WAL_FAILED, sl__real_ms(&rw->w->env));
	int rc = writer_add(&rw->out, mark, n);
	return rc < 0 ? sl_err_set_errno(err, -rc, "rewrite %s", rw->src->path) : 0;
}

int sl__wal_declare(sl_wal *w, struct wal_source *active, const struct wal_hole *hole, struct sl_err *err)
{
	uint8_t mark[WAL_MARK_BYTES];
	size_t n = sl__wal_encode_mark(mark, hole->first, hole->last, SL_WAL_FAILED, sl__real_ms(&w->env));
	int rc = 0;
	if (active->torn > 0) {
		int code = sl__wal_set_aside(w, w->fd, active->name, "torn", active->end, active->torn, err);
		if (code != 0)
			return code;
		rc = SL__IO(&w->env, truncate, w->fd, active->end);
		active->torn = 0;
	}
	if (rc == 0)
		rc = sl__pwrite_full(&w->env, w->fd, mark, n, active->end);
	if (rc == 0)
		rc = SL__IO(&w->env, sync, w->fd);
	active->end += n;
	return rc < 0 ? sl_err_set_errno(err, -rc, "declare a hole in %s", w->path) : 0;
}

int sl__wal_salvage(sl_wal *w, const struct wal_source *src, bool active, const struct wal_hole *holes, size_t n_holes,
		    struct sl_err *err)
{
	struct rewrite rw;
	struct wal_reader r;
	struct wal_walk walk;
	int rc = rewrite_begin(&rw, w, src, active, err);
	if (rc == 0) {
		sl__wal_reader_init(&r, &w->env, rw.from, src->file_size);
		sl__wal_walk_init(&walk, &r, src->before);
		do
			rc = salvage_step(&rw, &walk, &r, err);
		while (rc == 0);
		sl__wal_reader_fini(&r);
		rc = rc == 1 ? 0 : rc;
		for (size_t i = 0; i < n_holes && rc == 0; i++)
			rc = add_hole(&rw, holes[i].first, holes[i].last, err);
		if (rc == 0)
			rc = rewrite_commit(&rw, active, err);
	}
	rewrite_end(&rw, active);
	return rc;
}

int sl__wal_cut(sl_wal *w, const struct wal_source *src, bool active, uint64_t offset, uint64_t hole_first,
		uint64_t hole_last, struct sl_err *err)
{
	struct rewrite rw;
	int rc = rewrite_begin(&rw, w, src, active, err);
	if (rc == 0 && src->end + src->torn > offset)
		rc = sl__wal_set_aside(w, rw.from, src->name, "damaged", offset, src->end + src->torn - offset, err);
	if (rc == 0) {
		int io = copy_range(&rw.out, rw.from, WAL_HEADER_BYTES, offset - WAL_HEADER_BYTES);
		rc = io < 0 ? sl_err_set_errno(err, -io, "rewrite %s", src->path)
			    : add_hole(&rw, hole_first, hole_last, err);
	}
	if (rc == 0)
		rc = rewrite_commit(&rw, active, err);
	rewrite_end(&rw, active);
	return rc;
}

int sl__wal_replace(sl_wal *w, const struct wal_source *active, struct wal_header h, const struct wal_hole *hole,
		    struct sl_err *err)
{
	struct rewrite rw;
	struct wal_source fresh = *active;
	fresh.header = h;
	int rc = rewrite_begin(&rw, w, &fresh, true, err);
	if (rc == 0 && active->file_size > 0)
		rc = sl__wal_set_aside(w, rw.from, active->name, "damaged", 0, active->file_size, err);
	if (rc == 0)
		rc = add_hole(&rw, hole->first, hole->last, err);
	if (rc == 0)
		rc = rewrite_commit(&rw, true, err);
	rewrite_end(&rw, true);
	return rc;
}

int sl__wal_fix_header(const sl_wal *w, const struct wal_source *src, struct wal_header h, struct sl_err *err)
{
	uint8_t header[WAL_HEADER_BYTES];
	int fd = SL__IO(&w->env, open, src->path, O_RDWR | O_NOFOLLOW, 0);
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "open %s", src->path);
	int code = sl__wal_set_aside(w, fd, src->name, "damaged", 0, WAL_HEADER_BYTES, err);
	if (code == 0) {
		sl__wal_header_encode(header, h);
		int rc = sl__pwrite_full(&w->env, fd, header, sizeof(header), 0);
		if (rc == 0)
			rc = SL__IO(&w->env, sync, fd);
		if (rc < 0)
			code = sl_err_set_errno(err, -rc, "repair the header of %s", src->path);
	}
	(void)SL__IO(&w->env, close, fd);
	return code;
}

/* ---- a new incarnation ---- */

static int add_renumbered(struct rewrite *rw, const struct sl_wal_record *rec, uint64_t sequence, struct sl_err *err)
{
	sl_wal *w = rw->w;
	uint8_t nonce[WAL_NONCE_BYTES];
	uint32_t len = (uint32_t)(rec->payload_len + (w->key != NULL ? WAL_SEAL_BYTES : 0));
	uint8_t *bytes = sl__alloc(&w->env, len + WAL_FRAME_BYTES);
	int rc = bytes == NULL ? -ENOMEM : w->key != NULL ? sl__wal_draw_nonce(&w->env, nonce) : 0;
	if (rc == 0) {
		sl__wal_begin(bytes, sequence, SL_WAL_PENDING, rec->timestamp_ms, len);
		struct wal_seal_ctx at = {w->id, rw->header.incarnation, sequence, rec->timestamp_ms};
		if (w->key != NULL)
			sl__wal_seal_payload(w->key, &at, nonce, bytes + WAL_BODY_OFFSET, rec->payload,
					     rec->payload_len);
		else if (len > 0)
			memcpy(bytes + WAL_BODY_OFFSET, rec->payload, len);
		sl__wal_seal(bytes, len);
		rc = writer_add(&rw->out, bytes, len + WAL_FRAME_BYTES);
	}
	sl__free(&w->env, bytes);
	return rc < 0 ? sl_err_set_errno(err, -rc, "rewrite %s", w->path) : 0;
}

static int copy_pending(struct rewrite *rw, struct sl_err *err)
{
	sl_wal *w = rw->w;
	uint64_t from = 0, sequence = 0;
	for (;;) {
		sl__lock(&w->mu);
		const struct wal_entry *next = sl__wal_index_next(&w->index, from);
		struct wal_entry entry = next != NULL ? *next : (struct wal_entry){0};
		sl__unlock(&w->mu);
		if (next == NULL)
			return 0;
		struct sl_wal_record rec;
		uint8_t *owned;
		int rc = sl__wal_read_entry(w, &entry, &rec, &owned, err);
		if (rc == 0) {
			rc = add_renumbered(rw, &rec, ++sequence, err);
			sl__free(&w->env, owned);
		}
		if (rc != 0)
			return rc;
		from = entry.sequence + 1;
	}
}

int sl__wal_reincarnate(sl_wal *w, struct sl_err *err)
{
	struct rewrite rw = {.w = w, .from = -1, .to = -1, .header = {.version = w->key != NULL ? 2 : 1}};
	struct wal_source src = {.path = w->path, .name = sl__basename(w->path)};
	char kind[16];
	rw.src = &src;
	(void)snprintf(kind, sizeof(kind), "old-%06x", w->header.incarnation);
	int rc = sl__wal_draw_incarnation(&w->env, rw.header.version, &rw.header.incarnation);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "new incarnation of %s: randomness", w->path);
	rc = sl__wal_make_temp(&w->env, w->dir, w->id, rw.header, (struct wal_renewal){0, 0}, 0, &rw.temp, &rw.to, err);
	if (rc == 0 && writer_init(&rw.out, &w->env, rw.to, WAL_HEADER_BYTES) < 0)
		rc = sl_err_set(err, SL_ENOMEM, "rewrite %s: no memory", w->path);
	if (rc == 0)
		rc = copy_pending(&rw, err);
	if (rc == 0)
		rc = sl__wal_set_aside(w, w->fd, src.name, kind, 0, w->end, err);
	if (rc == 0)
		rc = rewrite_commit(&rw, true, err);
	rewrite_end(&rw, true);
	return rc;
}
