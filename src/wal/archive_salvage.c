/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading an archive that may be damaged. libzstd forgets what a call had produced before the place where it failed, so
 * this file follows the frames itself (RFC 8878) and hands the decoder one piece at a time:
 *
 *      | magic, header | 3 | block … | 3 | block … | … | checksum |  next frame
 *
 * S1  What came out of the pieces before a bad one is kept. A piece is at most 128 KiB of content.
 * S2  After a bad piece the blocks are only skipped: a block needs those before it. When their headers lead to
 *     the beginning of another frame, reading continues there. A frame is never searched for by its magic: a payload
 *     may hold a frame with records that were never in this log.
 * S3  A frame whose last block and checksum did not come is cut off, also when the cut is between two blocks.
 * S4  The decoder gets a header of our own, with a window that is large enough and without a content size: a damaged
 *     size would cost the whole frame otherwise. It is compared at the end.
 */
#include "wal/archive_zst.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "wal/format.h"

#define BLOCK_MAX_BYTES ((size_t)128 * 1024)
#define HINT_MAX_BYTES ((uint64_t)64 * 1024 * 1024) /* a frame's word for its size is believed up to here */
#define WINDOW_USUAL ((uint64_t)8 * 1024 * 1024)    /* of the levels that an archive may have */
#define WINDOW_MAX ((uint64_t)128 * 1024 * 1024)
#define HEADER_MAX_BYTES 18u
#define DAMAGE_MAX 256u /* behind so much, what follows is not read */

enum block_type { BLOCK_RAW = 0, BLOCK_RLE = 1, BLOCK_COMPRESSED = 2, BLOCK_RESERVED = 3 };

struct frame {
	uint64_t start;         /* in the file */
	uint64_t content_start; /* in the content */
	uint64_t size;          /* of the content, as the header has it; UINT64_MAX: not said */
	uint64_t window;
	size_t header_len;
	bool has_checksum, reserved_bit;
	bool broken; /* S2 */
};

struct salvage {
	const struct sl_env *env;
	const char *path;
	ZSTD_DStream *stream;
	int fd;
	uint8_t *in; /* one piece */
	struct wal_zst_content *out;
	size_t cap; /* of out->data */
	/* Of the content: in out->data, all of it, or what follows the bytes in out->fd. */
	size_t held;
};

static int no_memory(const struct salvage *s, struct sl_err *err)
{
	return sl_err_set(err, SL_ENOMEM, "archive %s: out of memory", s->path);
}

/* ---- what is wrong ---- */

static struct wal_zst_damage *last_damage(struct wal_zst_content *c)
{
	return c->n_damage > 0 ? &c->damage[c->n_damage - 1] : NULL;
}

static int SL_PRINTF(6, 7) add_damage(struct salvage *s, uint64_t at, uint64_t content, uint64_t length,
				      struct sl_err *err, const char *fmt, ...)
{
	struct wal_zst_content *c = s->out;
	struct wal_zst_damage *grown = sl__realloc(s->env, c->damage, (c->n_damage + 1) * sizeof(*grown));
	if (grown == NULL)
		return no_memory(s, err);
	c->damage = grown;
	struct wal_zst_damage *d = &c->damage[c->n_damage++];
	*d = (struct wal_zst_damage){.at = at, .content = content, .length = length};
	va_list args;
	va_start(args, fmt);
	(void)vsnprintf(d->reason, sizeof(d->reason), fmt, args);
	va_end(args);
	return 0;
}

/* The frame gives no more content from here on. */
static int SL_PRINTF(5, 6)
	break_frame(struct salvage *s, struct frame *f, uint64_t at, struct sl_err *err, const char *fmt, ...)
{
	char text[sizeof(last_damage)(s->out)->reason];
	uint64_t have = s->out->size - f->content_start;
	/* A size that was damaged itself is not worth telling. */
	uint64_t missing = f->size <= WAL_ZST_MAX_BYTES && f->size > have ? f->size - have : 0;
	va_list args;
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	f->broken = true;
	return add_damage(s, at, s->out->size, missing, err, "%s", text);
}

/* ---- content ---- */

/* A file without a name. */
static int open_spill(struct salvage *s, struct sl_err *err)
{
	const char *dir = getenv("TMPDIR");
	dir = dir != NULL && dir[0] == '/' ? dir : "/tmp";
	int fd = SL__IO(s->env, open, dir, O_TMPFILE | O_RDWR, 0600);
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "archive %s: its content is long: temporary file in %s", s->path,
					dir);
	s->out->fd = fd;
	return 0;
}

static bool is_zero(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* What is held goes into the file; zeros are left out, and are there all the same. */
static int spill(struct salvage *s, struct sl_err *err)
{
	struct wal_zst_content *c = s->out;
	int rc = c->fd < 0 ? open_spill(s, err) : 0;
	if (rc != 0)
		return rc;
	if (!is_zero(c->data, s->held))
		rc = sl__pwrite_full(s->env, c->fd, c->data, s->held, c->size - s->held);
	if (rc == 0)
		rc = SL__IO(s->env, truncate, c->fd, c->size);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "archive %s: write its content to a temporary file", s->path);
	s->held = 0;
	return 0;
}

static int make_room(struct salvage *s, size_t n, struct sl_err *err)
{
	struct wal_zst_content *c = s->out;
	if (s->cap - s->held >= n)
		return 0;
	if (c->size + n > WAL_ZST_MAX_BYTES)
		return sl_err_set(err, SL_ETOOBIG, "archive %s: more than %llu bytes", s->path,
				  (unsigned long long)WAL_ZST_MAX_BYTES);
	if (s->held + n > WAL_ZST_MEMORY_BYTES)
		return spill(s, err);
	size_t want = (size_t)SL_MIN((uint64_t)SL_MAX(s->cap * 2, s->held + n), WAL_ZST_MEMORY_BYTES);
	uint8_t *grown = sl__realloc(s->env, c->data, want);
	if (grown == NULL)
		return no_memory(s, err);
	c->data = grown;
	s->cap = want;
	return 0;
}

/* Decode one piece; what comes out is appended. 0, an error, or 1: the piece is bad, *why says how. */
static int decode(struct salvage *s, const uint8_t *piece, size_t n, const char **why, struct sl_err *err)
{
	ZSTD_inBuffer from = {.src = piece, .size = n};
	ZSTD_outBuffer to;
	do {
		int rc = make_room(s, BLOCK_MAX_BYTES + 1, err);
		if (rc != 0)
			return rc;
		to = (ZSTD_outBuffer){.dst = s->out->data + s->held, .size = s->cap - s->held};
		size_t left = ZSTD_decompressStream(s->stream, &to, &from);
		if (ZSTD_isError(left) && ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
			return no_memory(s, err);
		if (ZSTD_isError(left)) {
			*why = ZSTD_getErrorName(left);
			return 1;
		}
		s->out->size += to.pos;
		s->held += to.pos;
	} while (from.pos < from.size || to.pos == to.size);
	return 0;
}

/* ---- the bytes of the file ---- */

static int read_at(struct salvage *s, uint64_t at, size_t want, size_t *got, struct sl_err *err)
{
	ssize_t n = sl__pread_full(s->env, s->fd, s->in, want, at);
	if (n < 0)
		return sl_err_set_errno(err, (int)-n, "archive %s: read at %llu", s->path, (unsigned long long)at);
	*got = (size_t)n;
	return 0;
}

static uint64_t get_n(const uint8_t *p, size_t n)
{
	uint64_t v = 0;
	for (size_t i = n; i > 0; i--)
		v = v << 8 | p[i - 1];
	return v;
}

/* false: the n bytes are not all of it. */
static bool parse_header(const uint8_t *p, size_t n, struct frame *f)
{
	static const size_t dict_bytes[] = {0, 1, 2, 4};
	if (n < 5)
		return false;
	uint8_t d = p[4];
	bool single = (d & 0x20) != 0;
	size_t size_bytes = d >> 6 == 0 ? single : (size_t)1 << (d >> 6);
	size_t at = (single ? 5 : 6) + dict_bytes[d & 3];
	f->header_len = at + size_bytes;
	f->has_checksum = (d & 4) != 0;
	f->reserved_bit = (d & 8) != 0;
	if (n < f->header_len)
		return false;
	f->size = size_bytes == 0 ? UINT64_MAX : get_n(p + at, size_bytes) + (size_bytes == 2 ? 256 : 0);
	uint64_t base = single ? 0 : (uint64_t)1 << (10 + (p[5] >> 3));
	f->window = single ? f->size : base + base / 8 * (p[5] & 7);
	return true;
}

/* S4 */
static int begin_frame(struct salvage *s, const struct frame *f, struct sl_err *err)
{
	unsigned log = f->window <= WINDOW_USUAL ? 23 : 27;
	uint8_t header[6] = {0, 0, 0, 0, f->has_checksum ? 4 : 0, (uint8_t)((log - 10) << 3)};
	const char *why = "";
	sl__put32(header, ZSTD_MAGICNUMBER);
	(void)ZSTD_DCtx_reset(s->stream, ZSTD_reset_session_only);
	int rc = decode(s, header, sizeof(header), &why, err);
	return rc > 0 ? sl_err_set(err, SL_EINTERNAL, "archive %s: %s", s->path, why) : rc;
}

/* The block at *at: decode it, or step over it in a broken frame. *at moves behind it, *last says whether it ended the
 * frame. A block that is not there in full leaves *at at UINT64_MAX. */
static int read_block(struct salvage *s, struct frame *f, uint64_t *at, bool *last, struct sl_err *err)
{
	size_t got = 0;
	const char *why = "";
	uint64_t start = *at;
	int rc = read_at(s, start, 3, &got, err);
	if (rc != 0)
		return rc;
	uint32_t head = got == 3 ? (uint32_t)get_n(s->in, 3) : 0;
	enum block_type type = (enum block_type)(head >> 1 & 3);
	size_t size = head >> 3, body = type == BLOCK_RLE ? 1 : size;
	*last = (head & 1) != 0;
	*at = UINT64_MAX;
	if (got < 3)
		return f->broken ? 0 : break_frame(s, f, start + got, err, "cut off");
	if (type == BLOCK_RESERVED || size > BLOCK_MAX_BYTES)
		return f->broken ? 0 : break_frame(s, f, start, err, "no block begins here");
	if (!f->broken && (rc = decode(s, s->in, 3, &why, err)) < 0)
		return rc;
	if (rc > 0)
		rc = break_frame(s, f, start, err, "%s", why);
	if (rc == 0)
		rc = read_at(s, start + 3, body, &got, err);
	if (rc == 0 && !f->broken && got > 0 && (rc = decode(s, s->in, got, &why, err)) > 0)
		rc = break_frame(s, f, start, err, "%s", why);
	if (rc == 0 && got < body)
		return f->broken ? 0 : break_frame(s, f, start + 3 + got, err, "cut off");
	*at = start + 3 + body;
	return rc;
}

/* After the last block. *at moves past the frame. */
static int end_frame(struct salvage *s, struct frame *f, uint64_t *at, struct sl_err *err)
{
	uint64_t start = *at, have = s->out->size - f->content_start;
	size_t got = 0, want = f->has_checksum ? 4 : 0;
	const char *why = "";
	int rc = want > 0 ? read_at(s, start, want, &got, err) : 0;
	if (rc != 0)
		return rc;
	*at = got < want ? UINT64_MAX : start + want;
	if (f->broken)
		return 0;
	if (got < want)
		return break_frame(s, f, start + got, err, "cut off in the checksum");
	if (want > 0 && (rc = decode(s, s->in, want, &why, err)) < 0)
		return rc;
	if (rc > 0)
		return add_damage(s, start, f->content_start, have, err,
				  "the checksum of the frame does not match its content");
	if (f->size != UINT64_MAX && f->size != have)
		return add_damage(s, f->start, f->content_start, have, err, "the frame says %llu bytes and holds %llu",
				  (unsigned long long)f->size, (unsigned long long)have);
	return f->reserved_bit ? add_damage(s, f->start, f->content_start, have, err, "the frame's header is damaged")
			       : 0;
}

/* Is the beginning of a frame at *at? A skippable one is one, too. */
static int frame_at(struct salvage *s, uint64_t at, bool *yes, size_t *got, struct sl_err *err)
{
	int rc = read_at(s, at, HEADER_MAX_BYTES, got, err);
	if (rc != 0)
		return rc;
	uint32_t magic = *got >= 4 ? sl__get32(s->in) : 0;
	*yes = magic == ZSTD_MAGICNUMBER || (magic & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START;
	return 0;
}

/* The frame is well formed, but was made with more window than we give to anybody. */
static bool needs_more_window(struct salvage *s, const struct frame *f, uint64_t end)
{
	size_t got = 0;
	bool next = false;
	return f->broken && f->window > WINDOW_MAX && end != UINT64_MAX && frame_at(s, end, &next, &got, NULL) == 0 &&
	       (next || got == 0);
}

static int read_frame(struct salvage *s, uint64_t *at, size_t got, struct sl_err *err)
{
	struct frame f = {.start = *at, .content_start = s->out->size, .size = UINT64_MAX};
	if (!parse_header(s->in, got, &f)) {
		*at = UINT64_MAX;
		return break_frame(s, &f, f.start + got, err, "cut off in the header of a frame");
	}
	bool last = false;
	int rc = 0;
	if (s->out->size == 0 && f.size != UINT64_MAX)
		rc = make_room(s, (size_t)SL_MIN(f.size, HINT_MAX_BYTES) + BLOCK_MAX_BYTES + 1, err);
	if (rc == 0)
		rc = begin_frame(s, &f, err);
	*at += f.header_len;
	while (rc == 0 && !last && *at != UINT64_MAX)
		rc = read_block(s, &f, at, &last, err);
	if (rc == 0 && *at != UINT64_MAX)
		rc = end_frame(s, &f, at, err);
	if (rc == 0 && needs_more_window(s, &f, *at))
		rc = sl_err_set(err, SL_EUNSUPPORTED, "archive %s: needs too much memory at %llu", s->path,
				(unsigned long long)f.start);
	return rc;
}

static int skip_frame(struct salvage *s, uint64_t *at, size_t got, struct sl_err *err)
{
	uint64_t start = *at, end = got >= 8 ? start + 8 + sl__get32(s->in + 4) : UINT64_MAX;
	size_t n = 0;
	int rc = got >= 8 ? read_at(s, end - 1, 1, &n, err) : 0;
	*at = n == 1 ? end : UINT64_MAX;
	if (rc != 0 || n == 1)
		return rc;
	return add_damage(s, start + got, s->out->size, 0, err, "cut off in a skippable frame");
}

/* What follows a lost beginning of the log must not be taken for its header, and not for its bytes. */
static int fill_header(struct salvage *s, struct sl_err *err)
{
	if (s->out->size >= WAL_HEADER_BYTES)
		return 0;
	int rc = make_room(s, WAL_HEADER_BYTES, err);
	if (rc != 0)
		return rc;
	memset(s->out->data + s->held, 0, WAL_HEADER_BYTES - s->out->size);
	s->held = s->out->size = WAL_HEADER_BYTES;
	return 0;
}

static int read_frames(struct salvage *s, struct sl_err *err)
{
	uint64_t at = 0;
	while (at != UINT64_MAX) {
		bool yes = false;
		size_t got = 0, known = s->out->n_damage;
		int rc = frame_at(s, at, &yes, &got, err);
		if (rc != 0)
			return rc;
		if (at == 0 && !yes)
			return sl_err_set(err, SL_ECORRUPT, "archive %s: %s", s->path,
					  got == 0 ? "is empty" : "does not begin as zstd does");
		if (got == 0)
			return 0;
		bool behind_damage = last_damage(s->out) != NULL && last_damage(s->out)->content == s->out->size;
		if (!yes) /* broken blocks that led nowhere are reported already */
			return behind_damage ? 0 : add_damage(s, at, s->out->size, 0, err, "no frame begins here");
		if (behind_damage && (rc = fill_header(s, err)) != 0)
			return rc;
		rc = sl__get32(s->in) == ZSTD_MAGICNUMBER ? read_frame(s, &at, got, err) : skip_frame(s, &at, got, err);
		if (rc != 0)
			return rc;
		if (known < s->out->n_damage && s->out->n_damage >= DAMAGE_MAX && at != UINT64_MAX)
			return add_damage(s, at, s->out->size, 0, err,
					  "so much damage before that the rest was not read");
	}
	return 0;
}

void sl__wal_zst_content_free(struct wal_zst_content *c, const struct sl_env *env)
{
	sl__free(env, c->data);
	sl__free(env, c->damage);
	if (c->fd >= 0)
		sl__close_fd(env, &c->fd);
	*c = (struct wal_zst_content){.fd = -1};
}

int sl__wal_zst_load(const struct sl_env *env, const char *path, struct wal_zst_content *out, struct sl_err *err)
{
	struct wal_zst_content content = {.fd = -1};
	struct salvage s = {.env = env, .path = path, .out = &content};
	s.fd = SL__IO(env, open, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	if (s.fd < 0)
		return sl_err_set_errno(err, -s.fd, "archive %s: open", path);
	s.in = sl__alloc(env, BLOCK_MAX_BYTES);
	s.stream = ZSTD_createDStream();
	int rc = s.in == NULL || s.stream == NULL ? no_memory(&s, err) : make_room(&s, 1, err);
	if (rc == 0)
		rc = read_frames(&s, err);
	if (rc == 0 && content.fd >= 0) {
		rc = spill(&s, err);
		sl__free(env, content.data);
		content.data = NULL;
	}
	(void)ZSTD_freeDStream(s.stream);
	sl__free(env, s.in);
	sl__close_fd(env, &s.fd);
	if (rc != 0) {
		sl__wal_zst_content_free(&content, env);
		return rc;
	}
	*out = content;
	return 0;
}
