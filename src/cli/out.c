/* SPDX-License-Identifier: Apache-2.0 */
/* Buffered standard output that remembers its first failure. */
#include "out.h"
#include "base/base64.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void out_init(struct out *out, int fd)
{
	out->fd = fd;
	out->sys_errno = 0;
	out->utc = false;
	out->used = 0;
}

int out_flush(struct out *out)
{
	const char *data = out->buf;
	struct pollfd p = {.fd = out->fd, .events = POLLOUT};

	/* Interrupted writes are repeated, a descriptor that does not block is waited for; all else is final. */
	for (size_t n = out->used; n > 0 && !out->sys_errno;) {
		ssize_t got = write(out->fd, data, n);

		if (got >= 0) {
			data += got;
			n -= (size_t)got;
		} else if (errno == EAGAIN) {
			(void)poll(&p, 1, -1); /* a failure shows in the write that follows */
		} else if (errno != EINTR) {
			out->sys_errno = errno;
		}
	}
	out->used = 0;
	return out->sys_errno;
}

bool out_failed(const struct out *out)
{
	return out->sys_errno != 0;
}

void out_write(struct out *out, const void *data, size_t n)
{
	const char *from = data;

	/* Through the buffer in any case: records are small, and the order stays. */
	while (n > 0 && !out->sys_errno) {
		size_t room = sizeof(out->buf) - out->used;
		size_t part = n < room ? n : room;

		memcpy(out->buf + out->used, from, part);
		out->used += part;
		from += part;
		n -= part;
		if (out->used == sizeof(out->buf))
			(void)out_flush(out);
	}
}

void out_str(struct out *out, const char *text)
{
	out_write(out, text, strlen(text));
}

void out_printf(struct out *out, const char *fmt, ...)
{
	char text[8192];
	va_list ap;
	int n;

	/* A text that does not fit is a bug of the caller, and fails the command. */
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text))
		out->sys_errno = EOVERFLOW; /* never cut in silence */
	else
		out_write(out, text, (size_t)n);
}

void out_b64(struct out *out, const void *data, size_t n)
{
	struct sl__buf text;

	sl__buf_init(&text, &sl__env_real);
	if (sl__base64_append(&text, data, n) == 0)
		out_write(out, text.data, text.len);
	else
		out->sys_errno = ENOMEM;
	sl__buf_fini(&text);
}

static int take_json(const char *text, size_t n, void *ctx)
{
	struct out *out = ctx;

	out_write(out, text, n);
	return out->sys_errno ? -1 : 0;
}

void out_json(struct out *out, json_t *value)
{
	if (value == NULL ||
	    json_dump_callback(value, take_json, out, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15))) {
		if (!out->sys_errno)
			out->sys_errno = ENOMEM;
	}
	json_decref(value);
}

void out_json_line(struct out *out, json_t *value)
{
	out_json(out, value);
	out_str(out, "\n");
}

void out_json_end(struct out *out, json_t *rest)
{
	char *text = json_dumps(rest, JSON_COMPACT | JSON_REAL_PRECISION(15));

	json_decref(rest);
	out_str(out, "],");
	out_str(out, text != NULL ? text + 1 : "}"); /* without its brace: its fields join those that are written */
	out_str(out, "\n");
	free(text);
}
