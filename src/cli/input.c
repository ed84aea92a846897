/* SPDX-License-Identifier: Apache-2.0 */
/* Lines or frames from a stream of bytes, with bounded memory; in memory or a temporary file when all are needed
 * first. */
#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_BUFFER = 256 * 1024, FRAME_HEADER = 4 };

void input_init(struct input *in, int fd, bool frames, size_t max_record)
{
	memset(in, 0, sizeof(*in));
	in->fd = fd;
	in->frames = frames;
	in->max_record = max_record;
}

void input_fini(struct input *in)
{
	free(in->buf);
	in->buf = NULL;
}

/* Give out `len` bytes that begin `skip` bytes in, and step over `whole` bytes. */
static enum input_step give(struct input *in, size_t skip, size_t len, size_t whole, struct input_record *out)
{
	out->data = in->buf + in->start + skip;
	out->len = len;
	out->offset = in->offset;
	out->number = ++in->number;
	in->start += whole;
	in->offset += whole;
	in->scanned = 0;
	return INPUT_RECORD;
}

static enum input_step next_line(struct input *in, struct input_record *out, struct sl_err *err)
{
	size_t have = in->end - in->start;
	const char *from = in->buf + in->start;
	const char *newline = have > in->scanned ? memchr(from + in->scanned, '\n', have - in->scanned) : NULL;
	size_t len = newline != NULL ? (size_t)(newline - from) : have;

	/* Bytes that were searched once are not searched again when more has come. */
	in->scanned = have;
	if (len > in->max_record) {
		sl_err_set(err, SL_ETOOBIG, "line %" PRIu64 " is longer than the maximum record size (%zu bytes)",
			   in->number + 1, in->max_record);
		return INPUT_FAILED;
	}
	if (newline != NULL)
		return give(in, 0, len, len + 1, out);
	/* The last line may lack its newline. */
	if (!in->eof)
		return INPUT_NEED;
	return have ? give(in, 0, have, have, out) : INPUT_END;
}

static enum input_step next_frame(struct input *in, struct input_record *out, struct sl_err *err)
{
	const unsigned char *p = (const unsigned char *)in->buf + in->start;
	size_t have = in->end - in->start;
	size_t len = 0;

	if (have >= FRAME_HEADER)
		len = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;

	/* Before it is read: a wrong length must not make the buffer grow. */
	if (len > in->max_record) {
		sl_err_set(err, SL_ETOOBIG,
			   "the frame at offset %" PRIu64 " has %zu bytes, more than the maximum record size (%zu)",
			   in->offset, len, in->max_record);
		return INPUT_FAILED;
	}
	if (have >= FRAME_HEADER && have - FRAME_HEADER >= len)
		return give(in, FRAME_HEADER, len, FRAME_HEADER + len, out);
	if (!in->eof)
		return INPUT_NEED;
	if (!have)
		return INPUT_END;
	sl_err_set(err, SL_EDATA, "the frame at offset %" PRIu64 " is cut off: the input ends %zu bytes into it",
		   in->offset, have);
	return INPUT_FAILED;
}

enum input_step input_next(struct input *in, struct input_record *out, struct sl_err *err)
{
	if (in->buf == NULL)
		return in->eof ? INPUT_END : INPUT_NEED;
	return in->frames ? next_frame(in, out, err) : next_line(in, out, err);
}

bool input_ready(const struct input *in)
{
	struct pollfd p = {.fd = in->fd, .events = POLLIN};

	return poll(&p, 1, 0) != 0; /* hang-up and errors too: the read will show */
}

void input_wait(const struct input *in, int wake_fd)
{
	struct pollfd p[2] = {{.fd = in->fd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};

	(void)poll(p, 2, -1);
}

int input_fill(struct input *in, struct sl_err *err)
{
	/* The buffer never grows past one largest record with its frame and a byte more, which is what it takes to see
	 * that a line is too long. */
	size_t limit = in->max_record + FRAME_HEADER + 1;
	size_t cap = in->cap ? in->cap * 2 : FIRST_BUFFER;
	char *grown;
	ssize_t got;

	/* Move what is left to the front; grow only when it fills the whole buffer. */
	if (in->start > 0) {
		memmove(in->buf, in->buf + in->start, in->end - in->start);
		in->end -= in->start;
		in->start = 0;
	}
	if (in->end >= in->cap) {
		if (cap > limit)
			cap = limit > in->cap ? limit : in->cap + 1;
		grown = realloc(in->buf, cap);
		if (grown == NULL)
			return sl_err_set(err, SL_ENOMEM, "out of memory for a line of %zu bytes", in->cap);
		in->buf = grown;
		in->cap = cap;
	}
	/* A signal or a descriptor that has nothing yet is not an error: the caller waits again. */
	got = read(in->fd, in->buf + in->end, in->cap - in->end);
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (got < 0)
		return sl_err_set_errno(err, errno, "read standard input");
	in->end += (size_t)got;
	in->eof = got == 0;
	return 0;
}

/* ---- records that are kept ---- */

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

	return dir != NULL && *dir ? dir : "/var/tmp"; /* not /tmp, which is often memory */
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
	/* A write may take less than all, on a disk that is nearly full. */
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

	/* Past the limit everything goes to the file, in order; one large record goes there directly. */
	if (s->used + n > MEMORY_BYTES) {
		rc = write_out(s, s->buf, s->used, err);
		s->used = 0;
		if (rc != 0)
			return rc;
		if (n > MEMORY_BYTES)
			return write_out(s, data, n, err);
	}
	while (cap < s->used + n)
		cap *= 2;
	if (cap != s->cap) {
		grown = realloc(s->buf, cap);
		if (grown == NULL)
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
	/* A frame, as input_next reads it back: 4 bytes of length, little-endian, and the bytes. */
	int rc = put_bytes(s, header, sizeof(header), err);

	if (rc == 0)
		rc = put_bytes(s, data, n, err);
	return rc;
}

int spool_read(struct spool *s, struct input *in, size_t max_record, struct sl_err *err)
{
	int rc;

	input_init(in, s->fd, 1, max_record);
	/* All in memory: hand over the buffer. Otherwise write the rest and begin at the start of the file. */
	if (s->fd < 0) {
		in->buf = s->buf;
		in->cap = in->end = s->used;
		in->eof = true;
		s->buf = NULL;
		s->used = s->cap = 0;
		return 0;
	}
	rc = write_out(s, s->buf, s->used, err);
	s->used = 0;
	if (rc == 0 && lseek(s->fd, 0, SEEK_SET) < 0)
		rc = sl_err_set_errno(err, errno, "read a temporary file in %s (TMPDIR)", folder());
	return rc;
}
