/* SPDX-License-Identifier: Apache-2.0 */
/* From pipes into a spool. Async-signal-safe: the minder runs it after a fork. */
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "jobs/exec/minder.h"

static void advance(struct iovec *iov, size_t n)
{
	iov->iov_base = (char *)iov->iov_base + n;
	iov->iov_len -= n;
}

/* Both at the offset, one behind the other, or a positive errno. */
static int write_all(int fd, struct iovec iov[2], uint64_t offset)
{
	while (iov[0].iov_len + iov[1].iov_len > 0) {
		ssize_t put = pwritev(fd, iov, 2, (off_t)offset);
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put < 0 ? errno : ENOSPC;
		offset += (uint64_t)put;
		size_t of_first = SL_MIN((size_t)put, iov[0].iov_len);
		advance(&iov[0], of_first);
		advance(&iov[1], (size_t)put - of_first);
	}
	return 0;
}

int sl__pump_write(struct sl__pump *p, enum sl__frame_kind kind, const void *payload, size_t n)
{
	struct sl__minder_shared *sh = p->shared;
	uint8_t frame[SL__SPOOL_FRAME];
	union {
		const void *in;
		void *out;
	} bytes = {payload};
	struct iovec iov[2] = {{frame, sizeof(frame)}, {bytes.out, n}};
	uint64_t end = atomic_load_explicit(&sh->end, memory_order_relaxed);
	sl__spool_put_frame(frame, sh->salt, kind, payload, n, sl__clock_real.real_ms(NULL));
	int rc = write_all(p->spool, iov, end);
	if (rc == 0)
		atomic_store_explicit(&sh->end, end + sizeof(frame) + n, memory_order_release);
	return rc;
}

int sl__pump_rescue(struct sl__pump *p)
{
	struct sl__minder_shared *sh = p->shared;
	uint32_t n = atomic_load(&sh->chunk_len);
	if (n == 0)
		return 0;
	/* When the end has moved on, the chunk is in the spool already. */
	int rc = 0;
	if (atomic_load(&sh->chunk_at) == atomic_load(&sh->end))
		rc = sl__pump_write(p, (enum sl__frame_kind)atomic_load(&sh->chunk_kind), sh->chunk, n);
	if (rc == 0)
		atomic_store(&sh->chunk_len, 0);
	return rc;
}

static void close_pipe(struct sl__pump *p, enum sl__stream stream)
{
	(void)close(p->pipes[stream]);
	p->pipes[stream] = -1;
}

int sl__pump_read(struct sl__pump *p, enum sl__stream stream, size_t *n)
{
	struct sl__minder_shared *sh = p->shared;
	if (n != NULL)
		*n = 0;
	int rc = sl__pump_rescue(p);
	if (rc != 0 || p->pipes[stream] < 0)
		return rc;
	atomic_store(&sh->chunk_kind, (uint32_t)SL__FRAME_STDOUT + (uint32_t)stream);
	atomic_store(&sh->chunk_at, atomic_load(&sh->end));
	uint32_t len = 0;
	while (len < SL__SPOOL_CHUNK) {
		ssize_t got = read(p->pipes[stream], sh->chunk + len, SL__SPOOL_CHUNK - len);
		if (got < 0 && errno == EINTR)
			continue;
		if (got == 0 || (got < 0 && errno != EAGAIN))
			close_pipe(p, stream);
		if (got <= 0)
			break;
		len += (uint32_t)got;
		atomic_store(&sh->chunk_len, len);
	}
	if (n != NULL)
		*n = len;
	return sl__pump_rescue(p);
}

bool sl__pump_open(const struct sl__pump *p)
{
	return p->pipes[SL__STDOUT] >= 0 || p->pipes[SL__STDERR] >= 0 || p->pipes[SL__CONTROL] >= 0;
}

void sl__pump_close(struct sl__pump *p)
{
	for (size_t i = 0; i < SL__STREAMS; i++)
		if (p->pipes[i] >= 0)
			close_pipe(p, (enum sl__stream)i);
}
