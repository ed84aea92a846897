/* SPDX-License-Identifier: Apache-2.0 */
#include "server/passphrase.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int bad(struct sl_err *err, const char *path, const char *why)
{
	return sl_err_set(err, SL_EKEY, "passphrase file %.150s: %s", path, why);
}

static int check_file(int fd, const char *path, struct sl_err *err)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return bad(err, path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return bad(err, path, "not a regular file");
	if ((st.st_mode & 077) != 0)
		return bad(err, path, "others may read it: chmod 600");
	return 0;
}

/* One byte more than fits tells that there is more. */
static int read_all(int fd, char *buf, size_t size, size_t *len)
{
	for (*len = 0; *len < size;) {
		ssize_t n = read(fd, buf + *len, size - *len);
		if (n < 0 && errno != EINTR)
			return errno;
		if (n == 0)
			return 0;
		*len += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int read_fd(int fd, const char *path, char *buf, size_t size, size_t *len, struct sl_err *err)
{
	int rc = check_file(fd, path, err), failed;
	if (rc != 0)
		return rc;
	failed = read_all(fd, buf, size, len);
	if (failed != 0)
		return bad(err, path, strerror(failed));
	if (*len == size)
		return bad(err, path, "too long for a passphrase");
	if (*len > 0 && buf[*len - 1] == '\n')
		--*len;
	if (*len > 0 && buf[*len - 1] == '\r')
		--*len;
	return *len == 0 ? bad(err, path, "empty") : 0;
}

int srv_passphrase_read(const char *path, char out[SRV_PASSPHRASE_BYTES], size_t *len, struct sl_err *err)
{
	/* Without O_NONBLOCK a pipe of that name would hold us up. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	size_t n = 0;
	if (fd < 0)
		return bad(err, path, errno == ELOOP ? "is a symbolic link" : strerror(errno));
	int rc = read_fd(fd, path, out, SRV_PASSPHRASE_BYTES, &n, err);
	(void)close(fd);
	if (rc != 0)
		explicit_bzero(out, SRV_PASSPHRASE_BYTES);
	else
		*len = n;
	return rc;
}
