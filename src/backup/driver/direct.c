/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes around the page cache. A pack is written once and read, if ever, days later: in the page cache it would push
 * out what others need, and the copy into it and the writing back cost more than half as much as hashing the pack.
 *
 * Not every file system does it, and each has its rules. Where it cannot be done nothing is lost: what was not written
 * here is written through the page cache, and one sync covers both.
 */
#include <errno.h>
#include <fcntl.h>

#include "backup/driver/local.h"

/* Only whole pages, from whole pages: what all file systems and devices of today take. */
static bool is_fit(const void *bytes, size_t len)
{
	return len >= LOCAL_DIRECT_MIN && (uintptr_t)bytes % LOCAL_DIRECT_ALIGN == 0;
}

static bool is_refusal(int rc)
{
	return rc == -EINVAL || rc == -EOPNOTSUPP;
}

int sl__bk_local_write_direct(const struct local *l, const char *path, const void *bytes, size_t len, size_t *done)
{
	*done = 0;
	if (!is_fit(bytes, len))
		return 0;
	int fd = SL__IO(&l->env, open, path, O_WRONLY | O_NOFOLLOW | O_DIRECT, 0);
	if (fd < 0)
		return is_refusal(fd) ? 0 : fd;
	size_t whole = len - len % LOCAL_DIRECT_ALIGN, at = 0;
	ssize_t n = 1;
	while (at < whole && n > 0 && at % LOCAL_DIRECT_ALIGN == 0) {
		n = SL__IO(&l->env, pwrite, fd, (const uint8_t *)bytes + at, whole - at, at);
		at += n > 0 ? (size_t)n : 0;
	}
	(void)SL__IO(&l->env, close, fd);
	if (n < 0 && !is_refusal((int)n))
		return (int)n;
	*done = at - at % LOCAL_DIRECT_ALIGN; /* a page that was begun is written again */
	return 0;
}
