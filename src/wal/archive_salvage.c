/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading an archive that may be damaged. libzstd drops what a call has produced when that call fails, so the decoder
 * gets one block at a time:
 *
 *      | magic, header | 3 | block … | 3 | block … | … | checksum |  next frame
 *
 * S1  What came out of the blocks before a bad one is kept. A block is at most 128 KiB of content.
 * S2  Nothing is read after a bad block: the blocks that follow in its frame need it. A frame whose checksum alone is
 *     wrong was read to its end, so reading continues with the next one. A frame is never searched for by its magic: a
 *     payload may hold a frame with records that were never in this log.
 * S3  A frame whose last block or checksum is missing is cut off, also when the cut is between two blocks.
 */
#include "wal/archive_zst.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "wal/format.h"

#define BLOCK_MAX_BYTES ((size_t)128 * 1024)
#define BLOCK_HEADER_BYTES 3u
#define FRAME_HEADER_MAX_BYTES 18u
#define HINT_MAX_BYTES ((uint64_t)64 * 1024 * 1024) /* a frame's own content size is believed up to here */
#define DAMAGE_MAX 256u                             /* after that many damaged places the rest is not read */

struct salvage {
	const struct sl_env *env;
	const char *path;
	ZSTD_DStream *stream;
	int fd;
	uint8_t *in; /* one block */
	struct wal_zst_content *out;
	size_t cap; /* of out->data */
	/* Of the content: in out->data, all of it, or what follows the bytes in out->fd. */
	size_t held;
};

static int no_salvage_memory(const struct salvage *s, struct sl_err *err)
{
	return sl_err_set(err, SL_ENOMEM, "archive %s: out of memory", s->path);
}

static int add_damage(struct salvage *s, struct wal_zst_damage damage, const char *reason, struct sl_err *err)
{
	struct wal_zst_content *c = s->out;
	struct wal_zst_damage *grown = sl__realloc(s->env, c->damage, (c->n_damage + 1) * sizeof(*grown));
	if (grown == NULL)
		return no_salvage_memory(s, err);
	(void)snprintf(damage.reason, sizeof(damage.reason), "%s", reason);
	c->damage = grown;
	c->damage[c->n_damage++] = damage;
	return 0;
}

/* ---- content ---- */

/* Move what is held into a temporary file without a name. Zeros are not written: the file has them as a hole. */
static int spill(struct salvage *s, struct sl_err *err)
{
	struct wal_zst_content *c = s->out;
	if (c->fd < 0) {
		const char *dir = getenv("TMPDIR");
		dir = dir != NULL && dir[0] == '/' ? dir : "/tmp";
		int fd = SL__IO(s->env, open, dir, O_TMPFILE | O_RDWR, 0600);
		if (fd < 0)
			return sl_err_set_errno(err, -fd,
						"archive %s: create a temporary file in %s for its long contents",
						s->path, dir);
		c->fd = fd;
	}
	int rc = 0;
	bool zero = s->held == 0 || (c->data[0] == 0 && memcmp(c->data, c->data + 1, s->held - 1) == 0);
	if (!zero)
		rc = sl__pwrite_full(s->env, c->fd, c->data, s->held, c->size - s->held);
	if (rc == 0)
		rc = SL__IO(s->env, truncate, c->fd, c->size);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "archive %s: write its contents to a temporary file", s->path);
	s->held = 0;
	return 0;
}

static int make_content_room(struct salvage *s, size_t n, struct sl_err *err)
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
		return no_salvage_memory(s, err);
	c->data = grown;
	s->cap = want;
	return 0;
}

/* Decode n bytes of s->in and append what comes out. *left is libzstd's result: an error code when the bytes are bad,
 * 0 at the end of a frame, else how many bytes it would like next. */
static int decode_block(struct salvage *s, size_t n, size_t *left, struct sl_err *err)
{
	ZSTD_inBuffer from = {.src = s->in, .size = n};
	ZSTD_outBuffer to;
	do {
		int rc = make_content_room(s, BLOCK_MAX_BYTES + 1, err);
		if (rc != 0)
			return rc;
		to = (ZSTD_outBuffer){.dst = s->out->data + s->held, .size = s->cap - s->held};
		*left = ZSTD_decompressStream(s->stream, &to, &from);
		if (ZSTD_isError(*left))
			return ZSTD_getErrorCode(*left) == ZSTD_error_memory_allocation ? no_salvage_memory(s, err) : 0;
		s->out->size += to.pos;
		s->held += to.pos;
	} while (from.pos < from.size || to.pos == to.size);
	return 0;
}

/* ---- frames ---- */

static int read_archive(struct salvage *s, uint64_t at, size_t want, size_t *got, struct sl_err *err)
{
	ssize_t n = sl__pread_full(s->env, s->fd, s->in, want, at);
	if (n < 0)
		return sl_err_set_errno(err, (int)-n, "archive %s: read at %llu", s->path, (unsigned long long)at);
	*got = (size_t)n;
	return 0;
}

/* Read the frame at *at, whose size as its header has it is frame_size, and move *at past it. Damage that nothing can
 * be read after (S2) leaves *at at UINT64_MAX. */
static int read_frame(struct salvage *s, uint64_t *at, unsigned long long frame_size, struct sl_err *err)
{
	uint64_t start = s->out->size;
	size_t left = BLOCK_HEADER_BYTES;
	bool has_size = frame_size != ZSTD_CONTENTSIZE_UNKNOWN && frame_size != ZSTD_CONTENTSIZE_ERROR;
	int rc = 0;
	if (start == 0 && has_size)
		rc = make_content_room(s, (size_t)SL_MIN(frame_size, HINT_MAX_BYTES) + BLOCK_MAX_BYTES + 1, err);
	(void)ZSTD_DCtx_reset(s->stream, ZSTD_reset_session_only);
	while (rc == 0 && left != 0) {
		/* libzstd would like the header of the next block together with a block. Fewer bytes than it asks for
		 * keep the two apart: an error in the header would cost the block (S1). */
		size_t got = 0, want = left > BLOCK_HEADER_BYTES ? left - BLOCK_HEADER_BYTES : left;
		rc = read_archive(s, *at, SL_MIN(want, BLOCK_MAX_BYTES), &got, err);
		if (rc == 0 && got > 0)
			rc = decode_block(s, got, &left, err);
		if (rc != 0)
			return rc;
		if (got > 0 && !ZSTD_isError(left)) {
			*at += got;
			continue;
		}
		struct wal_zst_damage damage = {.at = *at, .content = s->out->size};
		uint64_t have = s->out->size - start;
		/* A size that was damaged itself is not worth reporting. */
		if (has_size && frame_size <= WAL_ZST_MAX_BYTES && frame_size > have)
			damage.length = frame_size - have;
		const char *reason = got == 0 ? "cut off" : ZSTD_getErrorName(left);
		/* The archive of another program, or a damaged header. Frames before it are worth reading all the same. */
		if (got > 0 && start == 0 && ZSTD_getErrorCode(left) == ZSTD_error_frameParameter_windowTooLarge)
			return sl_err_set(
				err, SL_EUNSUPPORTED,
				"archive %s: the header is damaged, or needs more memory than any archive of sluice",
				s->path);
		if (got > 0 && ZSTD_getErrorCode(left) == ZSTD_error_checksum_wrong) {
			damage.content = start;
			damage.length = have;
			reason = "the checksum of the frame does not match its contents";
			*at += got;
		} else {
			*at = UINT64_MAX;
		}
		return add_damage(s, damage, reason, err);
	}
	return rc;
}

static int read_frames(struct salvage *s, struct sl_err *err)
{
	uint64_t at = 0;
	while (at != UINT64_MAX) {
		size_t got = 0;
		int rc = read_archive(s, at, FRAME_HEADER_MAX_BYTES, &got, err);
		if (rc != 0)
			return rc;
		uint32_t magic = got >= 4 ? sl__get32(s->in) : 0;
		bool is_frame =
			magic == ZSTD_MAGICNUMBER || (magic & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START;
		if (at == 0 && !is_frame)
			return sl_err_set(err, SL_ECORRUPT, "archive %s: %s", s->path,
					  got == 0 ? "is empty" : "does not begin with a zstd header");
		if (got == 0)
			return 0;
		struct wal_zst_damage here = {.at = at, .content = s->out->size};
		if (!is_frame)
			return add_damage(s, here, "no frame begins here", err);
		if (s->out->n_damage >= DAMAGE_MAX)
			return add_damage(s, here, "too much damage before this point; the rest was not read", err);
		rc = read_frame(s, &at, ZSTD_getFrameContentSize(s->in, got), err);
		if (rc != 0)
			return rc;
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
	int rc = s.in == NULL || s.stream == NULL ? no_salvage_memory(&s, err) : make_content_room(&s, 1, err);
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
