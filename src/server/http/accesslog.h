/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The access log: a line per request in logfmt or JSON. Lines are buffered and written by the thread that fills the
 * buffer, and by the ticker every quarter of a second, so that a request costs no system call; a killed process loses
 * what was gathered. What cannot be written is counted and said, never waited for longer than the descriptor takes.
 *
 * Thread safety: every function from any thread.
 */
#ifndef SLUICE_SERVER_ACCESSLOG_H
#define SLUICE_SERVER_ACCESSLOG_H

#include "server/http/http.h"

typedef struct srv_accesslog srv_accesslog;

int srv_accesslog_new(srv_accesslog **out, int fd, enum sl_log_format format, struct sl_err *err);
void srv_accesslog_free(srv_accesslog *a);
#define SRV_ACCESS_FIELDS 8
/* One line: the fields of a request, followed by how many lines before it could not be written. */
void srv_accesslog_add(srv_accesslog *a, int64_t time_ms, const struct sl_log_field fields[SRV_ACCESS_FIELDS]);
void srv_accesslog_flush(srv_accesslog *a);

#endif
