/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a recovery that change files: keep a copy of damaged bytes, declare holes, cut and replace. */
#include "wal/repair.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "wal/segs.h"

#define COPY_PIECE ((size_t)256 * 1024)
#define MAX_NUMBER 10000u /* of quarantined files of one name */

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

static int copy_bytes(struct writer *out, struct wal_bytes from)
{
	uint8_t *piece = sl__alloc(out->env, COPY_PIECE);
	int rc = piece != NULL ? 0 : -ENOMEM;
	while (rc == 0 && from.length > 0) {
		size_t want = (size_t)SL_MIN(from.length, (uint64_t)COPY_PIECE);
		ssize_t got = sl__pread_full(out->env, from.fd, piece, want, from.offset);
		if (got <= 0) {
			rc = (int)got;
			break;
		}
		rc = writer_add(out, piece, (size_t)got);
		from.offset += (uint64_t)got;
		from.length -= (uint64_t)got;
	}
	sl__free(out->env, piece);
	return rc;
}

/* ---- quarantine ---- */

/* Does the file at path hold exactly these bytes? */
static bool holds_bytes(const struct sl_env *env, const char *path, struct wal_bytes bytes)
{
	uint8_t a[4096], b[4096];
	struct sl_io_stat st;
	int other = SL__IO(env, open, path, O_RDONLY | O_NOFOLLOW, 0);
	if (other < 0)
		return false;
	bool same = SL__IO(env, fstat, other, &st) == 0 && st.size == bytes.length;
	for (uint64_t done = 0; same && done < bytes.length;) {
		size_t n = (size_t)SL_MIN(bytes.length - done, (uint64_t)sizeof(a));
		same = sl__pread_full(env, bytes.fd, a, n, bytes.offset + done) == (ssize_t)n &&
		       sl__pread_full(env, other, b, n, done) == (ssize_t)n && memcmp(a, b, n) == 0;
		done += n;
	}
	(void)SL__IO(env, close, other);
	return same;
}

static int write_copy(const struct sl_env *env, const char *path, struct wal_bytes bytes)
{
	int to = SL__IO(env, open, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (to < 0)
		return to;
	struct writer out;
	int rc = writer_init(&out, env, to, 0);
	if (rc == 0)
		rc = copy_bytes(&out, bytes);
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

int sl__wal_quarantine(const sl_wal *w, struct wal_bytes bytes, const char *name, const char *kind, struct sl_err *err)
{
	uint64_t salt = 0;
	int rc = w->env.rand->fill(&salt, sizeof(salt), w->env.rand_ctx);
	char *base = sl__asprintf(&w->env, "%s/%s.%s-%llu", w->dir, name, kind, (unsigned long long)bytes.offset);
	char *temp = sl__asprintf(&w->env, "%s/%s.wal.tmp-%016llx", w->dir, w->id, (unsigned long long)salt);
	if (base == NULL || temp == NULL)
		rc = -ENOMEM;
	if (rc == 0)
		rc = write_copy(&w->env, temp, bytes);
	/* Move the copy to the first free name; drop it when the bytes are there already. */
	bool taken = rc == 0;
	for (unsigned n = 1; taken && n < MAX_NUMBER; n++) {
		char *path = numbered(&w->env, base, n);
		rc = path != NULL ? SL__IO(&w->env, rename, temp, path, 1) : -ENOMEM;
		if (rc == -EEXIST && holds_bytes(&w->env, path, bytes))
			rc = SL__IO(&w->env, unlink, temp);
		taken = rc == -EEXIST;
		sl__free(&w->env, path);
	}
	if (rc == 0)
		rc = sl__sync_dir(&w->env, w->dir);
	int code = 0;
	if (rc < 0)
		code = sl_err_set_errno(err, -rc, "quarantine damaged bytes of %s", name);
	else
		sl__log(&w->env, SL_LOG_WARN, "wal", "bytes quarantined", SL__F_STR("file", sl__basename(base)),
			SL__F_U64("bytes", bytes.length));
	sl__free(&w->env, base);
	sl__free(&w->env, temp);
	return code;
}

int sl__wal_move_aside(const sl_wal *w, const char *path, const char *suffix, struct sl_err *err)
{
	char *base = sl__asprintf(&w->env, "%s.%s", path, suffix);
	int rc = base != NULL ? -EEXIST : -ENOMEM;
	for (unsigned n = 1; rc == -EEXIST && n < MAX_NUMBER; n++) {
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
	bool active; /* it is the active file: its descriptor is the handle's */
	int from;    /* the segment as it is */
	char *temp;  /* the new one */
	int to;
	struct writer out;
	struct wal_header header;
};

static int rewrite_begin(struct rewrite *rw, sl_wal *w, const struct wal_source *src, struct sl_err *err)
{
	*rw = (struct rewrite){
		.w = w, .src = src, .active = src->named_first == 0, .from = -1, .to = -1, .header = src->header};
	rw->from = rw->active ? w->fd : SL__IO(&w->env, open, src->path, O_RDONLY | O_NOFOLLOW, 0);
	if (rw->from < 0)
		return sl_err_set_errno(err, -rw->from, "open %s", src->path);
	int rc = sl__wal_make_temp(w, &(struct wal_new_file){.header = rw->header}, &rw->temp, &rw->to, err);
	if (rc == 0 && writer_init(&rw->out, &w->env, rw->to, WAL_HEADER_BYTES) < 0)
		rc = sl_err_set(err, SL_ENOMEM, "rewrite %s: out of memory", src->path);
	return rc;
}

/* Sync the new file and move it over the old one. */
static int rewrite_commit(struct rewrite *rw, struct sl_err *err)
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
	if (rw->active) {
		/* The new file is locked already; the old one's lock goes with it. */
		(void)SL__IO(env, close, rw->w->fd);
		rw->w->fd = rw->to;
		rw->to = -1;
	}
	rc = sl__sync_dir(env, rw->w->dir);
	return rc < 0 ? sl_err_set_errno(err, -rc, "sync the folder of %s", rw->src->path) : 0;
}

static void rewrite_end(struct rewrite *rw)
{
	const struct sl_env *env = &rw->w->env;
	sl__free(env, rw->out.buf);
	if (rw->temp != NULL)
		(void)SL__IO(env, unlink, rw->temp);
	sl__free(env, rw->temp);
	sl__close_fd(env, &rw->to);
	if (!rw->active)
		sl__close_fd(env, &rw->from);
}

static int add_declared_hole(struct rewrite *rw, struct sl_wal_range hole, struct sl_err *err)
{
	uint8_t mark[WAL_MARK_BYTES];
	if (hole.first == 0)
		return 0;
	size_t n = sl__wal_encode_mark(mark, hole.first, hole.last, SL_WAL_FAILED, sl__real_ms(&rw->w->env));
	int rc = writer_add(&rw->out, mark, n);
	return rc < 0 ? sl_err_set_errno(err, -rc, "rewrite %s", rw->src->path) : 0;
}

int sl__wal_declare(sl_wal *w, struct wal_source *active, struct sl_wal_range hole, struct sl_err *err)
{
	uint8_t mark[WAL_MARK_BYTES];
	size_t n = sl__wal_encode_mark(mark, hole.first, hole.last, SL_WAL_FAILED, sl__real_ms(&w->env));
	int rc = 0;
	if (active->torn > 0) {
		struct wal_bytes torn = {w->fd, active->end, active->torn};
		int code = sl__wal_quarantine(w, torn, active->name, "torn", err);
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

int sl__wal_salvage(sl_wal *w, const struct wal_source *src, const struct sl_wal_range *holes, size_t n_holes,
		    struct sl_err *err)
{
	struct rewrite rw;
	struct wal_reader r;
	struct wal_walk walk;
	int rc = rewrite_begin(&rw, w, src, err);
	sl__wal_reader_init(&r, &w->env, rw.from, src->file_size);
	sl__wal_walk_init(&walk, &r, src->before);
	/* Keep the records and quarantine the damage. */
	for (bool ended = false; rc == 0 && !ended;) {
		struct wal_item item;
		enum wal_step step = sl__wal_walk_next(&walk, &item, err);
		ended = step == WAL_STEP_END;
		if (step == WAL_STEP_RECORD) {
			size_t got;
			const uint8_t *p = sl__wal_view(&r, item.offset, item.record.total, &got);
			int io = p == NULL ? -r.error : writer_add(&rw.out, p, got);
			if (io < 0)
				rc = sl_err_set_errno(err, -io, "rewrite %s", src->path);
		} else if (step == WAL_STEP_DAMAGE || (ended && item.length > 0)) {
			struct wal_bytes damaged = {rw.from, item.offset, item.length};
			rc = sl__wal_quarantine(w, damaged, src->name, "damaged", err);
		} else if (!ended) {
			rc = sl_err_set_errno(err, r.error, "rewrite %s: read", src->path);
		}
	}
	sl__wal_reader_fini(&r);
	for (size_t i = 0; i < n_holes && rc == 0; i++)
		rc = add_declared_hole(&rw, holes[i], err);
	if (rc == 0)
		rc = rewrite_commit(&rw, err);
	rewrite_end(&rw);
	return rc;
}

int sl__wal_cut(sl_wal *w, const struct wal_source *src, uint64_t offset, struct sl_wal_range hole, struct sl_err *err)
{
	struct rewrite rw;
	int rc = rewrite_begin(&rw, w, src, err);
	struct wal_bytes kept = {rw.from, WAL_HEADER_BYTES, offset - WAL_HEADER_BYTES};
	if (rc == 0 && src->end + src->torn > offset) {
		struct wal_bytes cut_off = {rw.from, offset, src->end + src->torn - offset};
		rc = sl__wal_quarantine(w, cut_off, src->name, "damaged", err);
	}
	if (rc == 0) {
		int io = copy_bytes(&rw.out, kept);
		rc = io < 0 ? sl_err_set_errno(err, -io, "rewrite %s", src->path) : add_declared_hole(&rw, hole, err);
	}
	if (rc == 0)
		rc = rewrite_commit(&rw, err);
	rewrite_end(&rw);
	return rc;
}

int sl__wal_replace(sl_wal *w, const struct wal_source *active, struct wal_header h, struct sl_wal_range hole,
		    struct sl_err *err)
{
	struct rewrite rw;
	struct wal_source fresh = *active;
	fresh.header = h;
	int rc = rewrite_begin(&rw, w, &fresh, err);
	struct wal_bytes all = {rw.from, 0, active->file_size};
	if (rc == 0 && all.length > 0)
		rc = sl__wal_quarantine(w, all, active->name, "damaged", err);
	if (rc == 0)
		rc = add_declared_hole(&rw, hole, err);
	if (rc == 0)
		rc = rewrite_commit(&rw, err);
	rewrite_end(&rw);
	return rc;
}

int sl__wal_fix_header(const sl_wal *w, const struct wal_source *src, struct wal_header h, struct sl_err *err)
{
	uint8_t header[WAL_HEADER_BYTES];
	int fd = SL__IO(&w->env, open, src->path, O_RDWR | O_NOFOLLOW, 0);
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "open %s", src->path);
	int code = sl__wal_quarantine(w, (struct wal_bytes){fd, 0, WAL_HEADER_BYTES}, src->name, "damaged", err);
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

/* The pending records, numbered from 1. */
static int copy_pending(struct rewrite *rw, struct sl_err *err)
{
	sl_wal *w = rw->w;
	uint64_t from = 0;
	for (uint64_t sequence = 1;; sequence++) {
		sl__lock(&w->mu);
		const struct wal_entry *next = sl__wal_index_next(&w->index, from);
		struct wal_entry entry = next != NULL ? *next : (struct wal_entry){0};
		sl__unlock(&w->mu);
		if (next == NULL)
			return 0;
		from = entry.sequence + 1;
		struct sl_wal_record rec;
		uint8_t *owned, nonce[WAL_NONCE_BYTES];
		int rc = sl__wal_read_entry(w, &entry, &rec, &owned, err);
		if (rc != 0)
			return rc;
		uint32_t len = (uint32_t)(rec.payload_len + (w->key != NULL ? WAL_SEAL_BYTES : 0));
		uint8_t *bytes = sl__alloc(&w->env, len + WAL_FRAME_BYTES);
		rc = bytes == NULL ? -ENOMEM : w->key != NULL ? sl__wal_draw_nonce(&w->env, nonce) : 0;
		if (rc == 0) {
			struct wal_seal_ctx at = {w->id, rw->header.incarnation, sequence, rec.timestamp_ms};
			struct sl_wal_span payload = {rec.payload, rec.payload_len};
			sl__wal_begin(bytes, sequence, SL_WAL_PENDING, rec.timestamp_ms, len);
			if (w->key != NULL)
				sl__wal_seal_payload(w->key, &at, nonce, &payload, bytes + WAL_BODY_OFFSET);
			else if (len > 0)
				memcpy(bytes + WAL_BODY_OFFSET, rec.payload, len);
			sl__wal_seal(bytes, len);
			rc = writer_add(&rw->out, bytes, len + WAL_FRAME_BYTES);
		}
		sl__free(&w->env, bytes);
		sl__free(&w->env, owned);
		if (rc < 0)
			return sl_err_set_errno(err, -rc, "rewrite %s", w->path);
	}
}

int sl__wal_reincarnate(sl_wal *w, struct sl_err *err)
{
	struct wal_source src = {.path = w->path, .name = sl__basename(w->path)};
	struct rewrite rw;
	char kind[16];
	(void)snprintf(kind, sizeof(kind), "old-%06x", w->header.incarnation);
	src.header.version = w->key != NULL ? 2 : 1;
	int rc = sl__wal_draw_incarnation(&w->env, src.header.version, &src.header.incarnation);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "new incarnation of %s: random bytes", w->path);
	rc = rewrite_begin(&rw, w, &src, err);
	if (rc == 0)
		rc = copy_pending(&rw, err);
	if (rc == 0)
		rc = sl__wal_quarantine(w, (struct wal_bytes){w->fd, 0, w->end}, src.name, kind, err);
	if (rc == 0)
		rc = rewrite_commit(&rw, err);
	rewrite_end(&rw);
	return rc;
}
