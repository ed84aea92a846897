/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Telling systemd how the service is: sd_notify(3) is one datagram to the socket that NOTIFY_SOCKET names, which is no
 * reason for a dependency. Without the variable nothing is sent.
 *
 * Thread safety: srv_systemd_notify from any thread; init and fini from one.
 */
#ifndef SLUICE_SERVER_NOTIFY_SYSTEMD_H
#define SLUICE_SERVER_NOTIFY_SYSTEMD_H

#include <sluice/err.h>
#include <sys/socket.h>
#include <sys/un.h>

struct srv_systemd {
	int fd; /* -1: not started by systemd */
	struct sockaddr_un to;
	socklen_t to_len;
	int64_t watchdog_ms; /* systemd expects a message within this time; 0: no watchdog */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and takes them out of the environment: commands that jobs run
 * must not speak for the service. Before other threads are started. */
void srv_systemd_init(struct srv_systemd *systemd);
void srv_systemd_fini(struct srv_systemd *systemd);
/* "READY=1\nSTATUS=…". A message that cannot be sent is dropped: systemd does not wait for it. */
void srv_systemd_notify(const struct srv_systemd *systemd, const char *fmt, ...) SL_PRINTF(2, 3);
/* RELOADING=1 with the time that the protocol asks for. */
void srv_systemd_notify_reloading(const struct srv_systemd *systemd);

#endif
