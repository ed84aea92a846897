/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit log: a line of JSON for every mutation that was asked for, with who asked, from where, for what, and what
 * became of it.
 *
 * Guarantee: the line is written before the answer leaves, so it survives the death of the process; it is synced to
 * disk within a second (srv_audit_sync, by the ticker), so power loss may take the last second: a sync per line would
 * make every mutation wait for the disk twice. A line that cannot be written closes the server to mutations until one
 * can be (srv_audit_ready). The file is 0600 and only ever appended to; reopening (SIGHUP) lets it be rotated.
 *
 * Thread safety: every function from any thread.
 */
#ifndef SLUICE_SERVER_AUDIT_H
#define SLUICE_SERVER_AUDIT_H

#include "http.h"

#include <stdbool.h>

typedef struct srv_audit srv_audit;

int srv_audit_open(srv_audit **out, const char *path, struct sl_err *err);
void srv_audit_close(srv_audit *a);
int srv_audit_reopen(srv_audit *a, struct sl_err *err);
/* Whether a line can be written: after a failure, by trying again. */
bool srv_audit_ready(srv_audit *a);
/* Append the line of an object; takes the reference. */
int srv_audit_write(srv_audit *a, json_t *line, struct sl_err *err);
/* Append whole lines, in one write. */
int srv_audit_put(srv_audit *a, const char *lines, size_t len, struct sl_err *err);
int srv_audit_sync(srv_audit *a, struct sl_err *err);
/* The last lines, at most limit, newest first: an array of objects (new reference). */
int srv_audit_tail(srv_audit *a, size_t limit, json_t **out, struct sl_err *err);

#endif
