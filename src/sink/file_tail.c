/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the whole records of a file end.
 *
 * Of what was written and not synced a crash leaves any part: the file may end early, or be as long as it should be
 * with blocks that were never written, which read as zeros. The sink writes no NUL byte into text, so in text:
 *
 *  1. Everything before the first NUL of the tail was written; what follows is from the same write, or later.
 *  2. The last record end before that NUL, or before the end of the file, is where the file is whole.
 *
 * In zstd each write is one frame with a checksum: libzstd finds the ends of the frames from the beginning of the file,
 * and those that lie in the tail are decoded. The first that is cut off, or fails, was torn. A frame has to fit into
 * memory for that.
 */
#include <errno.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "sink/file_out.h"

#define CHUNK ((size_t)256 << 10)

struct tail {
	const struct sl_env *env;
	int fd;
	const char *path;
	uint64_t size;
	uint8_t *chunk; /* CHUNK bytes */
};

/* ---- text ---- */

/* *good: after the last record end from `from` on. */
static int scan_text(const struct tail *t, bool csv, uint64_t from, uint64_t *good, struct sl_err *err)
{
	bool quoted = false, stop = false;
	*good = from;
	for (uint64_t at = from; at < t->size && !stop;) {
		size_t want = (size_t)SL_MIN((uint64_t)CHUNK, t->size - at);
		ssize_t got = sl__pread_full(t->env, t->fd, t->chunk, want, at);
		if (got < 0)
			return sl_err_set_errno(err, (int)-got, "read %s", t->path);
		if (got == 0)
			break;
		const uint8_t *nul = memchr(t->chunk, '\0', (size_t)got);
		size_t n = nul != NULL ? (size_t)(nul - t->chunk) : (size_t)got;
		const uint8_t *end = csv ? NULL : memrchr(t->chunk, '\n', n);
		if (end != NULL)
			*good = at + (uint64_t)(end - t->chunk) + 1;
		for (size_t i = 0; csv && i < n; i++) {
			quoted ^= t->chunk[i] == '"';
			if (t->chunk[i] == '\n' && !quoted)
				*good = at + i + 1;
		}
		stop = nul != NULL;
		at += (uint64_t)got;
	}
	return 0;
}

/* ---- zstd ---- */

/* Does the frame decode, and does its checksum hold? */
static bool frame_decodes(const struct tail *t, ZSTD_DStream *stream, const uint8_t *frame, size_t n)
{
	ZSTD_inBuffer in = {frame, n, 0};
	size_t left = 1;
	(void)ZSTD_initDStream(stream);
	while (in.pos < in.size && left != 0) {
		ZSTD_outBuffer out = {t->chunk, CHUNK, 0};
		left = ZSTD_decompressStream(stream, &out, &in);
		if (ZSTD_isError(left))
			return false;
	}
	return left == 0 && in.pos == in.size;
}

static int zstd_tail(const struct tail *t, uint64_t *good, struct sl_err *err)
{
	uint64_t tail = t->size > SL__FILE_TAIL_MAX ? t->size - SL__FILE_TAIL_MAX : 0;
	ZSTD_DStream *stream = ZSTD_createDStream();
	size_t cap = CHUNK, first = 0, n = 0; /* buf[first … n) is the file from *good on */
	uint8_t *buf = sl__alloc(t->env, cap);
	int rc = stream == NULL || buf == NULL ? sl__no_memory(err, t->path) : 0;
	*good = 0;
	while (rc == 0 && *good < t->size) {
		size_t frame = ZSTD_findFrameCompressedSize(buf + first, n - first);
		if (!ZSTD_isError(frame)) {
			if (*good + frame > tail && !frame_decodes(t, stream, buf + first, frame))
				break;
			*good += frame;
			first += frame;
			continue;
		}
		bool more = *good + (n - first) < t->size && ZSTD_getErrorCode(frame) == ZSTD_error_srcSize_wrong;
		if (!more)
			break; /* not a frame, or one that is cut off */
		/* Move what is left to the beginning, and read on after that. */
		n -= first;
		memmove(buf, buf + first, n);
		first = 0;
		if (n > cap / 2) {
			uint8_t *larger = sl__realloc(t->env, buf, cap * 2);
			if (larger == NULL) {
				rc = sl__no_memory(err, t->path);
				break;
			}
			buf = larger;
			cap *= 2;
		}
		size_t want = (size_t)SL_MIN((uint64_t)(cap - n), t->size - *good - n);
		ssize_t got = sl__pread_full(t->env, t->fd, buf + n, want, *good + n);
		if (got < 0)
			rc = sl_err_set_errno(err, (int)-got, "read %s", t->path);
		else if ((size_t)got < want)
			break;
		else
			n += want;
	}
	sl__free(t->env, buf);
	(void)ZSTD_freeDStream(stream);
	return rc;
}

int sl__file_tail(const struct sl__file_out *f, uint64_t size, uint64_t *good, struct sl_err *err)
{
	struct tail t = {.env = f->env, .fd = f->fd, .path = f->path, .size = size};
	uint64_t from = size > SL__FILE_TAIL_MAX ? size - SL__FILE_TAIL_MAX : 0;
	int rc;
	t.chunk = sl__alloc(f->env, CHUNK);
	if (t.chunk == NULL)
		return sl__no_memory(err, f->path);
	if (f->kind == SL__FILE_ZSTD) {
		rc = zstd_tail(&t, good, err);
	} else if (f->kind == SL__FILE_CSV) {
		rc = scan_text(&t, true, 0, good, err);
	} else {
		rc = scan_text(&t, false, from, good, err);
		/* No line ends in the tail: not a file of ours. Find any line end. */
		if (rc == 0 && from > 0 && *good == from)
			rc = scan_text(&t, false, 0, good, err);
	}
	sl__free(f->env, t.chunk);
	return rc;
}

/* ---- the beginning ---- */

int sl__file_begins(const struct sl__file_out *f, const char *text, size_t len, struct sl_err *err)
{
	size_t room = f->kind == SL__FILE_ZSTD ? ZSTD_compressBound(len) + 1024 : len;
	uint8_t *raw = sl__alloc(f->env, room), *plain = sl__alloc(f->env, len);
	ssize_t got = raw != NULL && plain != NULL ? sl__pread_full(f->env, f->fd, raw, room, 0) : -ENOMEM;
	size_t n = got > 0 ? (size_t)got : 0;
	if (n > 0 && f->kind == SL__FILE_ZSTD) {
		/* As much of the first frame as it needs. */
		ZSTD_DStream *stream = ZSTD_createDStream();
		ZSTD_inBuffer in = {raw, n, 0};
		ZSTD_outBuffer out = {plain, len, 0};
		while (stream != NULL && in.pos < in.size && out.pos < out.size) {
			size_t before = in.pos + out.pos;
			if (ZSTD_isError(ZSTD_decompressStream(stream, &out, &in)) || in.pos + out.pos == before)
				break;
		}
		(void)ZSTD_freeDStream(stream);
		n = out.pos;
	} else if (n > 0) {
		memcpy(plain, raw, n);
	}
	int same = got >= 0 && n >= len && memcmp(plain, text, len) == 0;
	sl__free(f->env, plain);
	sl__free(f->env, raw);
	return got < 0 ? sl_err_set_errno(err, (int)-got, "read %s", f->path) : same;
}
