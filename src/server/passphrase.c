/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a passphrase from a file: see passphrase.h. */
#include "server/passphrase.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int unusable(struct sl_err *err, const char *path, const char *why)
{
	return sl_err_set(err, SL_EKEY, "passphrase file %.150s: %s", path, why);
}

/* The passphrase of an open file into out; *len is its length. */
static int read_passphrase_fd(int fd, const char *path, char out[SRV_PASSPHRASE_BYTES], size_t *len, struct sl_err *err)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return unusable(err, path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return unusable(err, path, "is not a regular file");
	if ((st.st_mode & 077) != 0)
		return unusable(err, path, "is readable by other users; run chmod 600 on it");
	/* A file that fills the buffer is too long. */
	for (*len = 0; *len < SRV_PASSPHRASE_BYTES;) {
		ssize_t n = read(fd, out + *len, SRV_PASSPHRASE_BYTES - *len);
		if (n < 0 && errno != EINTR)
			return unusable(err, path, strerror(errno));
		if (n == 0)
			break;
		*len += n > 0 ? (size_t)n : 0;
	}
	if (*len == SRV_PASSPHRASE_BYTES)
		return unusable(err, path, "is too long for a passphrase");
	if (*len > 0 && out[*len - 1] == '\n')
		--*len;
	if (*len > 0 && out[*len - 1] == '\r')
		--*len;
	return *len == 0 ? unusable(err, path, "empty") : 0;
}

int srv_passphrase_read(const char *path, char out[SRV_PASSPHRASE_BYTES], size_t *len, struct sl_err *err)
{
	/* Without O_NONBLOCK a pipe of that name would hold us up. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	size_t n = 0;
	if (fd < 0)
		return unusable(err, path, errno == ELOOP ? "is a symbolic link" : strerror(errno));
	int rc = read_passphrase_fd(fd, path, out, &n, err);
	(void)close(fd);
	if (rc != 0)
		explicit_bzero(out, SRV_PASSPHRASE_BYTES);
	else
		*len = n;
	return rc;
}
