/* SPDX-License-Identifier: Apache-2.0 */
/* Records kept in memory, or in a temporary file when there are many. */
#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEMORY_BYTES = 4 * 1024 * 1024, FIRST_BYTES = 4096 };

void spool_init(struct spool *s)
{
	*s = (struct spool){.fd = -1};
}

void spool_fini(struct spool *s)
{
	if (s->fd >= 0)
		close(s->fd);
	free(s->buf);
	spool_init(s);
}

static const char *folder(void)
{
	const char *dir = secure_getenv("TMPDIR");

	return dir && *dir ? dir : "/var/tmp"; /* not /tmp, which is often memory */
}

/* A file that no other process can open and that is gone with its descriptor. */
static int open_unnamed(struct sl_err *err)
{
	int fd = open(folder(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char path[4096];

	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
		/* A file system without unnamed files. */
		if (snprintf(path, sizeof(path), "%s/sluice-lines-XXXXXX", folder()) >= (int)sizeof(path))
			return sl_err_set(err, SL_EIO, "the path of the temporary folder (TMPDIR) is too long");
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0)
			(void)unlink(path);
	}
	return fd >= 0 ? fd : sl_err_set_errno(err, errno, "open a temporary file in %s (TMPDIR)", folder());
}

static int write_out(struct spool *s, const char *data, size_t n, struct sl_err *err)
{
	if (s->fd < 0 && (s->fd = open_unnamed(err)) < 0) {
		int rc = s->fd;

		s->fd = -1;
		return rc;
	}
	while (n > 0) {
		ssize_t done = write(s->fd, data, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return sl_err_set_errno(err, errno, "write a temporary file in %s (TMPDIR)", folder());
		data += done;
		n -= (size_t)done;
	}
	return 0;
}

static int put_bytes(struct spool *s, const void *data, size_t n, struct sl_err *err)
{
	size_t cap = s->cap ? s->cap : FIRST_BYTES;
	char *grown;
	int rc;

	if (s->used + n > MEMORY_BYTES) {
		rc = write_out(s, s->buf, s->used, err);
		s->used = 0;
		if (rc)
			return rc;
		if (n > MEMORY_BYTES)
			return write_out(s, data, n, err);
	}
	while (cap < s->used + n)
		cap *= 2;
	if (cap != s->cap) {
		grown = realloc(s->buf, cap);
		if (!grown)
			return sl_err_set(err, SL_ENOMEM, "out of memory");
		s->buf = grown;
		s->cap = cap;
	}
	if (n > 0)
		memcpy(s->buf + s->used, data, n);
	s->used += n;
	return 0;
}

int spool_add(struct spool *s, const char *data, size_t n, struct sl_err *err)
{
	unsigned char header[4] = {(unsigned char)n, (unsigned char)(n >> 8), (unsigned char)(n >> 16),
				   (unsigned char)(n >> 24)};
	int rc = put_bytes(s, header, sizeof(header), err);

	if (!rc)
		rc = put_bytes(s, data, n, err);
	return rc;
}

int spool_read(struct spool *s, struct input *in, size_t max_record, struct sl_err *err)
{
	int rc;

	input_init(in, s->fd, 1, max_record);
	if (s->fd < 0) {
		input_take(in, s->buf, s->used);
		s->buf = NULL;
		s->used = s->cap = 0;
		return 0;
	}
	rc = write_out(s, s->buf, s->used, err);
	s->used = 0;
	if (!rc && lseek(s->fd, 0, SEEK_SET) < 0)
		rc = sl_err_set_errno(err, errno, "read a temporary file in %s (TMPDIR)", folder());
	return rc;
}
