/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bare disk, as one writer can use it: records of our size (payload and frame) one after the other into a file of
 * zeros that were really written, each one synced before the next. Two ways; the report takes the faster one. At the
 * end of the file it starts again at the beginning.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define FILE_BYTES ((uint64_t)64 << 20)
#define BLOCK ((size_t)4096)

struct raw {
	int fd;
	uint64_t at;          /* where the next record goes */
	unsigned char *block; /* direct: the block that `at` is in, and room for a record after it */
};

static int raw_open(void **state, const struct place *place, int flags, struct sl_err *err)
{
	char path[4096];
	(void)snprintf(path, sizeof(path), "%s/raw", place->dir);
	struct raw *raw = calloc(1, sizeof(*raw));
	if (raw == NULL)
		return sl_err_set(err, SL_ENOMEM, "raw");
	raw->block = aligned_alloc(BLOCK, 4 * BLOCK);
	raw->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	*state = raw;
	if (raw->fd < 0 || raw->block == NULL)
		return sl_err_set_errno(err, errno, "open %s", path);
	memset(raw->block, 0, 4 * BLOCK);
	if (place->record_bytes + BENCH_FRAME_BYTES > 2 * BLOCK)
		return sl_err_set(err, SL_ETOOBIG, "record");
	int rc = write_zeros(raw->fd, FILE_BYTES, err);
	if (rc != 0)
		return rc;
	close(raw->fd);
	raw->fd = open(path, O_RDWR | O_CLOEXEC | flags);
	return raw->fd >= 0 ? 0 : sl_err_set_errno(err, errno, "open %s", path);
}

static int open_buffered(void **state, const struct place *place, struct sl_err *err)
{
	return raw_open(state, place, 0, err);
}

static int open_direct(void **state, const struct place *place, struct sl_err *err)
{
	return raw_open(state, place, O_DIRECT | O_DSYNC, err);
}

static int raw_worker_open(void **worker, void *state, struct sl_err *err)
{
	(void)err;
	*worker = state;
	return 0;
}

static void raw_worker_close(void *worker)
{
	(void)worker;
}

static int append_buffered(void *worker, const void *payload, size_t n, struct sl_err *err)
{
	struct raw *raw = worker;
	size_t len = n + BENCH_FRAME_BYTES;
	memcpy(raw->block + BENCH_FRAME_BYTES, payload, n);
	if (raw->at + len > FILE_BYTES)
		raw->at = 0;
	if (pwrite(raw->fd, raw->block, len, (off_t)raw->at) != (ssize_t)len)
		return sl_err_set_errno(err, errno, "pwrite");
	if (fdatasync(raw->fd) != 0)
		return sl_err_set_errno(err, errno, "fdatasync");
	raw->at += len;
	return 0;
}

/* Whole blocks only: the last one, when not full, is written again with the next record. */
static int append_direct(void *worker, const void *payload, size_t n, struct sl_err *err)
{
	struct raw *raw = worker;
	size_t len = n + BENCH_FRAME_BYTES;
	if (raw->at + len > FILE_BYTES)
		raw->at = 0;
	size_t fill = raw->at % BLOCK, end = fill + len, span = (end + BLOCK - 1) / BLOCK * BLOCK;
	memcpy(raw->block + fill + BENCH_FRAME_BYTES, payload, n);
	memset(raw->block + end, 0, span - end);
	if (pwrite(raw->fd, raw->block, span, (off_t)(raw->at - fill)) != (ssize_t)span)
		return sl_err_set_errno(err, errno, "pwrite");
	if (end >= BLOCK)
		memcpy(raw->block, raw->block + end / BLOCK * BLOCK, end % BLOCK);
	raw->at += len;
	return 0;
}

static void raw_close(void *state)
{
	struct raw *raw = state;
	if (raw->fd >= 0)
		close(raw->fd);
	free(raw->block);
	free(raw);
}

const struct contender contender_raw_fdatasync = {
	.name = "raw-fdatasync",
	.settings = "pwrite and fdatasync into 64 MiB of written zeros, one writer",
	.is_raw = true,
	.open = open_buffered,
	.worker_open = raw_worker_open,
	.append = append_buffered,
	.worker_close = raw_worker_close,
	.close = raw_close,
};

const struct contender contender_raw_direct = {
	.name = "raw-direct",
	.settings = "pwrite of whole 4 KiB blocks with O_DIRECT|O_DSYNC into 64 MiB of written zeros, one writer",
	.is_raw = true,
	.open = open_direct,
	.worker_open = raw_worker_open,
	.append = append_direct,
	.worker_close = raw_worker_close,
	.close = raw_close,
};
