/* SPDX-License-Identifier: Apache-2.0 */
/* Archives as zstd files: streaming reads, and writes that are verified by reading them back. */
#include "wal/archive_zst.h"

#include <errno.h>
#include <fcntl.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/crc64nvme.h"
#include "wal/format.h"

#define CHUNK_BYTES ((size_t)256 * 1024)

static int no_archive_memory(struct sl_err *err, const char *path)
{
	return sl_err_set(err, SL_ENOMEM, "archive %s: out of memory", path);
}

/* ---- reading ---- */

static int fill_input(struct wal_zst *z, struct sl_err *err)
{
	ssize_t got = sl__pread_full(z->env, z->fd, z->in, z->in_cap, z->offset);
	if (got < 0)
		return sl_err_set_errno(err, (int)-got, "archive %s: read at %llu", z->path,
					(unsigned long long)z->offset);
	z->in_pos = 0;
	z->in_len = (size_t)got;
	z->offset += (uint64_t)got;
	z->ended = got == 0;
	return 0;
}

void sl__wal_zst_close(struct wal_zst *z)
{
	(void)ZSTD_freeDStream(z->stream);
	sl__free(z->env, z->in);
	sl__close_fd(z->env, &z->fd);
	z->stream = NULL;
	z->in = NULL;
}

int sl__wal_zst_open(struct wal_zst *z, const struct sl_env *env, const char *path, struct sl_err *err)
{
	*z = (struct wal_zst){.env = env, .path = path, .in_cap = CHUNK_BYTES};
	z->fd = SL__IO(env, open, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	if (z->fd < 0)
		return sl_err_set_errno(err, -z->fd, "archive %s: open", path);
	z->in = sl__alloc(env, z->in_cap);
	z->stream = ZSTD_createDStream();
	int rc = z->in == NULL || z->stream == NULL ? no_archive_memory(err, path) : fill_input(z, err);
	/* The first bytes must be those of a frame. */
	if (rc == 0 && ZSTD_getFrameContentSize(z->in, z->in_len) == ZSTD_CONTENTSIZE_ERROR)
		rc = sl_err_set(err, SL_ECORRUPT, "archive %s: does not begin with a zstd header", path);
	if (rc != 0)
		sl__wal_zst_close(z);
	return rc;
}

int sl__wal_zst_read(struct wal_zst *z, void *out, size_t cap, size_t *got, struct sl_err *err)
{
	ZSTD_outBuffer to = {.dst = out, .size = cap};
	while (to.pos < to.size) {
		/* With no input left a frame may still have content to give; only its decoder shows whether it ended. */
		if (z->in_pos == z->in_len && !z->ended) {
			int rc = fill_input(z, err);
			if (rc != 0)
				return rc;
		}
		if (z->ended && !z->in_frame)
			break;
		size_t had = to.pos;
		ZSTD_inBuffer from = {.src = z->in, .size = z->in_len, .pos = z->in_pos};
		size_t left = ZSTD_decompressStream(z->stream, &to, &from);
		bool moved = to.pos != had || from.pos != z->in_pos;
		z->in_pos = from.pos;
		if (ZSTD_isError(left)) {
			unsigned long long at = z->offset - (z->in_len - z->in_pos);
			if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
				return no_archive_memory(err, z->path);
			if (ZSTD_getErrorCode(left) == ZSTD_error_frameParameter_windowTooLarge)
				return sl_err_set(err, SL_EUNSUPPORTED, "archive %s: needs too much memory at %llu",
						  z->path, at);
			return sl_err_set(err, SL_ECORRUPT, "archive %s: damaged near %llu: %s", z->path, at,
					  ZSTD_getErrorName(left));
		}
		z->in_frame = left != 0;
		if (z->ended && !moved && z->in_frame)
			return sl_err_set(err, SL_ECORRUPT, "archive %s: cut off at %llu", z->path,
					  (unsigned long long)z->offset);
	}
	*got = to.pos;
	return 0;
}

/* ---- writing ---- */

struct compressor {
	const struct sl_env *env;
	const struct wal_zst_source *from;
	const char *path;
	ZSTD_CCtx *ctx;
	uint8_t *in, *out; /* CHUNK_BYTES each */
	int to;            /* the archive */
	uint64_t crc;      /* of the source */
};

/* Read the log piece by piece, compress it and write what comes out. The last piece ends the frame. */
static int compress_log(struct compressor *c, struct sl_err *err)
{
	uint64_t done = 0, written = 0;
	do {
		size_t want = (size_t)SL_MIN((uint64_t)CHUNK_BYTES, c->from->n - done);
		ssize_t got = sl__pread_full(c->env, c->from->fd, c->in, want, done);
		if (got < 0)
			return sl_err_set_errno(err, (int)-got, "archive %s: read the log at %llu", c->path,
						(unsigned long long)done);
		if ((size_t)got < want)
			return sl_err_set(err, SL_EIO, "archive %s: the log ends at %llu, not at %llu", c->path,
					  (unsigned long long)done + (unsigned long long)got,
					  (unsigned long long)c->from->n);
		c->crc = sl__crc64nvme(c->crc, c->in, want);
		done += want;
		bool last = done == c->from->n, ended = false;
		ZSTD_inBuffer from = {.src = c->in, .size = want};
		while (!ended) {
			ZSTD_outBuffer to = {.dst = c->out, .size = CHUNK_BYTES};
			size_t left = ZSTD_compressStream2(c->ctx, &to, &from, last ? ZSTD_e_end : ZSTD_e_continue);
			if (ZSTD_isError(left) && ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
				return no_archive_memory(err, c->path);
			if (ZSTD_isError(left))
				return sl_err_set(err, SL_EINTERNAL, "archive %s: compress: %s", c->path,
						  ZSTD_getErrorName(left));
			int rc = to.pos == 0 ? 0 : sl__pwrite_full(c->env, c->to, c->out, to.pos, written);
			if (rc < 0)
				return sl_err_set_errno(err, -rc, "archive %s: write", c->path);
			written += to.pos;
			ended = last ? left == 0 : from.pos == from.size;
		}
	} while (done < c->from->n);
	return 0;
}

/* Read the new file back: what is thrown away afterwards must be in it. */
static int verify_archive(const struct compressor *c, struct sl_err *err)
{
	struct wal_zst z;
	int rc = sl__wal_zst_open(&z, c->env, c->path, err);
	if (rc != 0)
		return rc;
	uint64_t crc = 0, len = 0;
	size_t got = CHUNK_BYTES;
	while (rc == 0 && got == CHUNK_BYTES) {
		rc = sl__wal_zst_read(&z, c->out, CHUNK_BYTES, &got, err);
		if (rc == 0) {
			crc = sl__crc64nvme(crc, c->out, got);
			len += got;
		}
	}
	sl__wal_zst_close(&z);
	if (rc == 0 && (crc != c->crc || len != c->from->n))
		rc = sl_err_set(err, SL_ECORRUPT,
				"archive %s: verification failed: it does not decompress to what was written", c->path);
	return rc;
}

int sl__wal_zst_write(const struct wal_zst_source *from, const char *path, int level, int *out_fd, struct sl_err *err)
{
	const struct sl_env *env = from->env;
	int to = SL__IO(env, open, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (to < 0)
		return sl_err_set_errno(err, -to, "archive %s: create", path);
	struct compressor c = {.env = env,
			       .from = from,
			       .path = path,
			       .ctx = ZSTD_createCCtx(),
			       .in = sl__alloc(env, CHUNK_BYTES),
			       .out = sl__alloc(env, CHUNK_BYTES),
			       .to = to};
	int io = SL__IO(env, lock, to), rc = 0;
	if (io < 0)
		rc = sl_err_set_errno(err, -io, "archive %s: lock", path);
	else if (c.ctx == NULL || c.in == NULL || c.out == NULL)
		rc = no_archive_memory(err, path);
	else if (ZSTD_isError(ZSTD_CCtx_setParameter(c.ctx, ZSTD_c_compressionLevel, level)) ||
		 ZSTD_isError(ZSTD_CCtx_setParameter(c.ctx, ZSTD_c_checksumFlag, 1)) ||
		 ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(c.ctx, from->n)))
		rc = sl_err_set(err, SL_EINVAL, "archive_level: invalid zstd level %d", level);
	if (rc == 0)
		rc = compress_log(&c, err);
	if (rc == 0 && (io = SL__IO(env, sync, to)) < 0)
		rc = sl_err_set_errno(err, -io, "archive %s: sync", path);
	if (rc == 0)
		rc = verify_archive(&c, err);
	(void)ZSTD_freeCCtx(c.ctx);
	sl__free(env, c.in);
	sl__free(env, c.out);
	if (rc != 0) {
		(void)SL__IO(env, close, to);
		(void)SL__IO(env, unlink, path);
		return rc;
	}
	*out_fd = to;
	return 0;
}

/* ---- comparing ---- */

/* Reads the archive at z to its end even where it differs: a sound one ends with a right checksum. buf has room for
 * CHUNK_BYTES of each. */
static int compare_contents(struct wal_zst *z, const struct wal_zst_source *with, uint8_t *buf, enum wal_zst_match *out,
			    struct sl_err *err)
{
	uint8_t *theirs = buf, *ours = buf + CHUNK_BYTES;
	bool same = true, same_stream = false;
	uint64_t at = 0;
	size_t got = CHUNK_BYTES;
	while (got == CHUNK_BYTES) {
		int rc = sl__wal_zst_read(z, theirs, CHUNK_BYTES, &got, err);
		if (rc != 0)
			return rc;
		size_t want = (size_t)SL_MIN((uint64_t)CHUNK_BYTES, with->n - SL_MIN(at, with->n));
		ssize_t have = sl__pread_full(with->env, with->fd, ours, want, at);
		if (have < 0)
			return sl_err_set_errno(err, (int)-have, "archive %s: read the log", z->path);
		if (at == 0 && got >= WAL_HEADER_BYTES && (size_t)have >= WAL_HEADER_BYTES) {
			struct wal_header a, b;
			same_stream = sl__wal_header_decode(theirs, &a) == WAL_HEADER_OK &&
				      sl__wal_header_decode(ours, &b) == WAL_HEADER_OK &&
				      a.incarnation == b.incarnation;
		}
		if ((size_t)have < want || got < want || memcmp(theirs, ours, want) != 0)
			same = false;
		at += got;
	}
	*out = !same_stream ? WAL_ZST_STRANGER : same && at >= with->n ? WAL_ZST_HOLDS : WAL_ZST_DIFFERS;
	return 0;
}

int sl__wal_zst_compare(const struct wal_zst_source *with, const char *path, enum wal_zst_match *out,
			struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	struct wal_zst z;
	int rc = sl__wal_zst_open(&z, with->env, path, &why);
	if (rc == 0) {
		uint8_t *buf = sl__alloc(with->env, 2 * CHUNK_BYTES);
		rc = buf != NULL ? compare_contents(&z, with, buf, out, &why) : no_archive_memory(&why, path);
		sl__free(with->env, buf);
		sl__wal_zst_close(&z);
	}
	if (rc == 0)
		return 0;
	/* The name may be taken by something else: damaged, a folder, a link, another user's. */
	if (why.code == SL_ECORRUPT || why.code == SL_EUNSUPPORTED || why.code == SL_EACCES ||
	    why.sys_errno == EISDIR) {
		*out = WAL_ZST_STRANGER;
		return 0;
	}
	if (err != NULL)
		*err = why;
	return rc;
}
