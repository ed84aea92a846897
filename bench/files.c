/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch folders and files, time, and bytes that do not compress. */
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

void fill_random(void *buf, size_t n, uint64_t seed)
{
	unsigned char *p = buf;
	uint64_t x = seed * 0x9E3779B97F4A7C15ULL + 1;
	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = (unsigned char)(x >> 24);
	}
}

int make_dir(char *out, size_t size, const char *dir, const char *name, struct sl_err *err)
{
	int n = snprintf(out, size, "%s/%s", dir, name);
	if (n < 0 || (size_t)n >= size)
		return sl_err_set(err, SL_EINVAL, "path too long: %s", dir);
	remove_tree(out);
	if (mkdir(out, 0700) != 0)
		return sl_err_set_errno(err, errno, "mkdir %s", out);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

void remove_tree(const char *dir)
{
	(void)nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int write_zeros(int fd, uint64_t bytes, struct sl_err *err)
{
	size_t chunk = 1 << 20;
	char *zeros = calloc(1, chunk);
	if (zeros == NULL)
		return sl_err_set(err, SL_ENOMEM, "zeros");
	int rc = 0;
	for (uint64_t at = 0; rc == 0 && at < bytes; at += chunk)
		if (pwrite(fd, zeros, chunk, (off_t)at) != (ssize_t)chunk)
			rc = sl_err_set_errno(err, errno, "write zeros");
	free(zeros);
	if (rc == 0 && fsync(fd) != 0)
		rc = sl_err_set_errno(err, errno, "fsync");
	return rc;
}
