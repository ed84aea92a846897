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
 * In zstd each write is one frame with a checksum: frames are followed by their block headers from the beginning, and
 * those that lie in the tail are decoded. The first that is cut off, or fails, was torn.
 */
#include <errno.h>
#include <zstd.h>

#include "sink/file_out.h"

#define CHUNK ((size_t)256 << 10)

struct tail {
	const struct sl_env *env;
	int fd;
	const char *path;
	uint64_t size;
	uint8_t *chunk; /* CHUNK bytes */
};

static int read_failed(const struct tail *t, ssize_t rc, struct sl_err *err)
{
	return sl_err_set_errno(err, (int)-rc, "read %s", t->path);
}

/* ---- text ---- */

struct text_scan {
	uint64_t good; /* after the last record end so far */
	bool csv, quoted, stop;
};

static void scan_lines(struct text_scan *s, const uint8_t *data, size_t n, uint64_t offset)
{
	const uint8_t *nul = memchr(data, '\0', n);
	size_t len = nul != NULL ? (size_t)(nul - data) : n;
	const uint8_t *end = memrchr(data, '\n', len);
	if (end != NULL)
		s->good = offset + (uint64_t)(end - data) + 1;
	s->stop = nul != NULL;
}

static void scan_csv(struct text_scan *s, const uint8_t *data, size_t n, uint64_t offset)
{
	for (size_t i = 0; i < n && !s->stop; i++) {
		s->stop = data[i] == '\0';
		s->quoted ^= data[i] == '"';
		if (data[i] == '\n' && !s->quoted)
			s->good = offset + i + 1;
	}
}

static int scan_text(const struct tail *t, bool csv, uint64_t from, uint64_t *good, struct sl_err *err)
{
	struct text_scan s = {.csv = csv, .good = from};
	for (uint64_t at = from; at < t->size && !s.stop;) {
		size_t want = (size_t)SL_MIN((uint64_t)CHUNK, t->size - at);
		ssize_t got = sl__pread_full(t->env, t->fd, t->chunk, want, at);
		if (got < 0)
			return read_failed(t, got, err);
		if (got == 0)
			break;
		(csv ? scan_csv : scan_lines)(&s, t->chunk, (size_t)got, at);
		at += (uint64_t)got;
	}
	*good = s.good;
	return 0;
}

static int lines_tail(const struct tail *t, uint64_t *good, struct sl_err *err)
{
	uint64_t from = t->size > SL__FILE_TAIL_MAX ? t->size - SL__FILE_TAIL_MAX : 0;
	int rc = scan_text(t, false, from, good, err);
	/* No line ends in the tail: not a file of ours; where does one end at all? */
	return rc == 0 && from > 0 && *good == from ? scan_text(t, false, 0, good, err) : rc;
}

/* ---- zstd ---- */

/* 1: n bytes at offset; 0: the file is too short. */
static int read_exactly(const struct tail *t, void *out, size_t n, uint64_t offset, struct sl_err *err)
{
	if (offset > t->size || t->size - offset < n)
		return 0;
	ssize_t got = sl__pread_full(t->env, t->fd, out, n, offset);
	return got < 0 ? read_failed(t, got, err) : (size_t)got == n;
}

/* Bytes of a frame header after its magic, by its descriptor (RFC 8878, 3.1.1.1). */
static size_t header_bytes(uint8_t descriptor)
{
	static const size_t id_bytes[] = {0, 1, 2, 4}, size_bytes[] = {0, 2, 4, 8};
	bool single = (descriptor & 0x20) != 0;
	size_t size = size_bytes[descriptor >> 6] + (descriptor >> 6 == 0 && single ? 1u : 0u);
	return (size_t)(single ? 1 : 2) + id_bytes[descriptor & 3] + size;
}

/* The end of the blocks that begin at `at`. 1, or 0 when the file ends first or there are none such. */
static int skip_blocks(const struct tail *t, uint64_t *at, struct sl_err *err)
{
	for (bool last = false; !last;) {
		uint8_t head[3];
		int rc = read_exactly(t, head, sizeof(head), *at, err);
		if (rc <= 0)
			return rc;
		uint32_t word = (uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16;
		uint32_t type = word >> 1 & 3, size = word >> 3;
		if (type == 3 || size > ZSTD_BLOCKSIZE_MAX)
			return 0;
		last = (word & 1) != 0;
		*at += sizeof(head) + (type == 1 ? 1 : size);
	}
	return *at <= t->size;
}

/* 1: a whole frame, as far as its headers say, ends at *end; 0: none begins here. */
static int skip_frame(const struct tail *t, uint64_t at, uint64_t *end, struct sl_err *err)
{
	uint8_t head[8];
	int rc = read_exactly(t, head, sizeof(head), at, err);
	if (rc <= 0)
		return rc;
	uint32_t magic = sl__get32(head);
	if ((magic & 0xfffffff0u) == 0x184D2A50u) { /* skippable */
		*end = at + 8 + sl__get32(head + 4);
		return *end <= t->size;
	}
	if (magic != ZSTD_MAGICNUMBER)
		return 0;
	*end = at + 4 + header_bytes(head[4]);
	rc = skip_blocks(t, end, err);
	*end += (head[4] & 4) != 0 ? 4 : 0; /* the checksum */
	return rc <= 0 ? rc : *end <= t->size;
}

/* 1: the frame decodes, and its checksum holds; 0: it does not. */
static int frame_decodes(const struct tail *t, ZSTD_DStream *stream, void *sunk, uint64_t at, uint64_t end,
			 struct sl_err *err)
{
	size_t left = 1;
	(void)ZSTD_initDStream(stream);
	while (at < end && left != 0) {
		size_t want = (size_t)SL_MIN((uint64_t)CHUNK, end - at);
		ssize_t got = sl__pread_full(t->env, t->fd, t->chunk, want, at);
		if (got < 0)
			return read_failed(t, got, err);
		if ((size_t)got < want)
			return 0;
		ZSTD_inBuffer in = {t->chunk, want, 0};
		while (in.pos < in.size && left != 0) {
			ZSTD_outBuffer out = {sunk, CHUNK, 0};
			left = ZSTD_decompressStream(stream, &out, &in);
			if (ZSTD_isError(left))
				return 0;
		}
		at += in.pos;
	}
	return left == 0 && at == end;
}

static int follow_frames(const struct tail *t, ZSTD_DStream *stream, void *sunk, uint64_t *good, struct sl_err *err)
{
	uint64_t tail = t->size > SL__FILE_TAIL_MAX ? t->size - SL__FILE_TAIL_MAX : 0, end = 0;
	int rc = 1;
	for (*good = 0; *good < t->size; *good = end) {
		rc = skip_frame(t, *good, &end, err);
		if (rc == 1 && end > tail)
			rc = frame_decodes(t, stream, sunk, *good, end, err);
		if (rc <= 0)
			break;
	}
	return rc < 0 ? rc : 0;
}

static int zstd_tail(const struct tail *t, uint64_t *good, struct sl_err *err)
{
	ZSTD_DStream *stream = ZSTD_createDStream();
	void *sunk = sl__alloc(t->env, CHUNK);
	int rc = stream != NULL && sunk != NULL ? follow_frames(t, stream, sunk, good, err)
						: sl_err_set(err, SL_ENOMEM, "%s: out of memory", t->path);
	sl__free(t->env, sunk);
	(void)ZSTD_freeDStream(stream);
	return rc;
}

int sl__file_tail(const struct sl_env *env, int fd, const char *path, enum sl__file_kind kind, uint64_t size,
		  uint64_t *good, struct sl_err *err)
{
	struct tail t = {.env = env, .fd = fd, .path = path, .size = size, .chunk = sl__alloc(env, CHUNK)};
	if (t.chunk == NULL)
		return sl_err_set(err, SL_ENOMEM, "%s: out of memory", path);
	int rc = kind == SL__FILE_LINES ? lines_tail(&t, good, err)
		 : kind == SL__FILE_CSV ? scan_text(&t, true, 0, good, err)
					: zstd_tail(&t, good, err);
	sl__free(env, t.chunk);
	return rc;
}

/* ---- the beginning ---- */

/* The first len bytes of the first frame, or fewer. */
static size_t decode_start(const uint8_t *packed, size_t n, void *out, size_t len)
{
	ZSTD_DStream *stream = ZSTD_createDStream();
	ZSTD_inBuffer in = {packed, n, 0};
	ZSTD_outBuffer text = {out, len, 0};
	while (stream != NULL && in.pos < in.size && text.pos < text.size) {
		size_t before = in.pos + text.pos;
		if (ZSTD_isError(ZSTD_decompressStream(stream, &text, &in)) || in.pos + text.pos == before)
			break;
	}
	(void)ZSTD_freeDStream(stream);
	return text.pos;
}

int sl__file_begins(const struct sl_env *env, int fd, const char *path, enum sl__file_kind kind, const char *text,
		    size_t len, struct sl_err *err)
{
	size_t room = kind == SL__FILE_ZSTD ? ZSTD_compressBound(len) + 1024 : len;
	uint8_t *raw = sl__alloc(env, room), *plain = sl__alloc(env, len);
	ssize_t got = raw != NULL && plain != NULL ? sl__pread_full(env, fd, raw, room, 0) : -ENOMEM;
	size_t n = got > 0 ? (size_t)got : 0;
	if (n > 0 && kind == SL__FILE_ZSTD)
		n = decode_start(raw, n, plain, len);
	else if (n > 0)
		memcpy(plain, raw, n);
	int same = got >= 0 && n >= len && memcmp(plain, text, len) == 0;
	sl__free(env, plain);
	sl__free(env, raw);
	return got < 0 ? sl_err_set_errno(err, (int)-got, "read %s", path) : same;
}
