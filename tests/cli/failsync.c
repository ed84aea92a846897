/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk whose syncs fail: linked into the command with --wrap, it fails fdatasync and fsync of files that end in .wal:
 * the Nth one when SLUICE_FAIL_SYNC is a number, every one while the file that it names exists otherwise.
 */
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int __real_fdatasync(int fd);
int __real_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);

static _Atomic unsigned long calls;

static int is_log(int fd)
{
	char link[64], path[PATH_MAX];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path));
	return n > 4 && memcmp(path + n - 4, ".wal", 4) == 0;
}

static int fails(int fd)
{
	const char *plan = getenv("SLUICE_FAIL_SYNC");

	if (!plan || !is_log(fd))
		return 0;
	return strchr(plan, '/') ? access(plan, F_OK) == 0 : ++calls == strtoul(plan, NULL, 10);
}

int __wrap_fdatasync(int fd)
{
	if (fails(fd)) {
		errno = EIO;
		return -1;
	}
	return __real_fdatasync(fd);
}

int __wrap_fsync(int fd)
{
	if (fails(fd)) {
		errno = EIO;
		return -1;
	}
	return __real_fsync(fd);
}
