/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to systemd: one datagram each, sent without blocking for long. See notify_systemd.h. */
#include "server/notify_systemd.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

void srv_systemd_init(struct srv_systemd *s)
{
	const struct timeval patience = {.tv_usec = 250000};
	const char *name = getenv("NOTIFY_SOCKET"), *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	size_t n = name != NULL ? strlen(name) : 0;
	memset(s, 0, sizeof(*s));
	s->fd = -1;
	/* A path, or a name in the abstract space that begins with '@'. */
	if (n >= 2 && n < sizeof(s->to.sun_path) && (name[0] == '/' || name[0] == '@')) {
		s->to.sun_family = AF_UNIX;
		memcpy(s->to.sun_path, name, n + 1);
		if (name[0] == '@')
			s->to.sun_path[0] = '\0';
		s->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (name[0] == '/'));
		s->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	}
	if (s->fd >= 0) {
		/* A receiver that does not read does not block us for long. */
		(void)setsockopt(s->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
		if (usec != NULL && (pid == NULL || strtoll(pid, NULL, 10) == (long long)getpid()))
			s->watchdog_ms = strtoll(usec, NULL, 10) / 1000;
	}
	(void)unsetenv("NOTIFY_SOCKET");
	(void)unsetenv("WATCHDOG_USEC");
	(void)unsetenv("WATCHDOG_PID");
}

void srv_systemd_fini(struct srv_systemd *s)
{
	if (s->fd >= 0)
		(void)close(s->fd);
	s->fd = -1;
}

void srv_systemd_notify(const struct srv_systemd *s, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int n;
	if (s->fd < 0)
		return;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n > 0)
		(void)!sendto(s->fd, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1, MSG_NOSIGNAL,
			      (const struct sockaddr *)&s->to, s->to_len);
}

void srv_systemd_notify_reloading(const struct srv_systemd *s)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	srv_systemd_notify(s, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
}
