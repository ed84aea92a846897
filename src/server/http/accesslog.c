/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The access log: see accesslog.h. Lines are formatted into one buffer under the lock. A buffer without room for another
 * line is written first, with the lock held, so that lines stay whole and in order. Lines that could not be written are
 * counted, and the next line reports how many.
 */
#include "server/http/accesslog.h"
#include "base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)64 * 1024)
#define LINE_BYTES ((size_t)2048)

struct srv_accesslog {
	sl__mutex mu;
	int fd;
	enum sl_log_format format;
	size_t len;
	uint64_t lost; /* lines that could not be written */
	char buf[BUFFER_BYTES];
};

int srv_accesslog_new(srv_accesslog **out, int fd, enum sl_log_format format, struct sl_err *err)
{
	srv_accesslog *a = malloc(sizeof(*a));
	if (a == NULL)
		return sl_err_set(err, SL_ENOMEM, "access log");
	sl__mutex_init(&a->mu);
	a->fd = fd;
	a->format = format;
	a->len = 0;
	a->lost = 0;
	*out = a;
	return 0;
}

void srv_accesslog_free(srv_accesslog *a)
{
	if (a == NULL)
		return;
	srv_accesslog_flush(a);
	sl__mutex_fini(&a->mu);
	free(a);
}

/* a->mu held. */
static void flush_lines(srv_accesslog *a)
{
	for (size_t at = 0; at < a->len;) {
		ssize_t n = write(a->fd, a->buf + at, a->len - at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			for (; at < a->len; at++)
				a->lost += a->buf[at] == '\n';
			break;
		}
		at += (size_t)n;
	}
	a->len = 0;
}

void srv_accesslog_flush(srv_accesslog *a)
{
	sl__lock(&a->mu);
	flush_lines(a);
	sl__unlock(&a->mu);
}

void srv_accesslog_add(srv_accesslog *a, int64_t time_ms, const struct sl_log_field fields[SRV_ACCESS_FIELDS])
{
	struct sl_log_field all[SRV_ACCESS_FIELDS + 1];
	struct sl_log_record record = {
		.level = SL_LOG_INFO, .time_ms = time_ms, .component = "access", .message = "request", .fields = all};
	memcpy(all, fields, SRV_ACCESS_FIELDS * sizeof(*fields));
	sl__lock(&a->mu);
	all[SRV_ACCESS_FIELDS] = (struct sl_log_field){.key = "lost", .kind = SL_LOG_U64, .num = a->lost};
	record.n_fields = SRV_ACCESS_FIELDS + (a->lost > 0);
	a->lost = 0;
	if (a->len + LINE_BYTES > BUFFER_BYTES)
		flush_lines(a);
	a->len += sl_log_format(&record, a->format, a->buf + a->len, LINE_BYTES - 1);
	a->buf[a->len++] = '\n';
	sl__unlock(&a->mu);
}
