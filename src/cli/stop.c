/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of SIGINT, SIGTERM, SIGHUP and SIGBUS, and the pipes that they write to. */
#include "stop.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static atomic_int requested; /* signals so far; lock-free: good in a handler, and for threads that read it */
static atomic_int first;     /* the number of the first one */
static atomic_int patient;   /* the second one asks, too; the third ends the command */
static int pipe_fds[2] = {-1, -1};
static int reload_fds[2] = {-1, -1};
static char bus_line[1002];

static void on_signal(int number);

static void make_action(struct sigaction *stop)
{
	memset(stop, 0, sizeof(*stop));
	stop->sa_handler = on_signal;
	stop->sa_flags = (int)SA_RESETHAND; /* and no SA_RESTART: a blocked read returns */
	sigemptyset(&stop->sa_mask);
}

static void on_signal(int number)
{
	int saved = errno;
	struct sigaction again;
	ssize_t ignored;

	if (++requested == 1) {
		first = number;
		if (patient) {
			make_action(&again);
			(void)sigaction(number, &again, NULL);
		}
	}
	/* The pipe closes the gap between reading the flag and going to sleep in poll. A full pipe is fine. */
	ignored = write(pipe_fds[1], "", 1);
	(void)ignored;
	errno = saved;
}

/* A signal that the parent had ignored (nohup, a background job) stays ignored. */
static int take_over(int number, const struct sigaction *stop)
{
	struct sigaction old;

	if (sigaction(number, NULL, &old))
		return -1;
	return old.sa_handler == SIG_IGN ? 0 : sigaction(number, stop, NULL);
}

int stop_install(void)
{
	struct sigaction stop, ignore;

	if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK))
		return errno;
	/* Reset after the first signal, so that a second one ends the process as the system does. */
	make_action(&stop);
	memset(&ignore, 0, sizeof(ignore));
	ignore.sa_handler = SIG_IGN;
	if (take_over(SIGINT, &stop) || take_over(SIGTERM, &stop) || sigaction(SIGPIPE, &ignore, NULL) ||
	    sigaction(SIGXFSZ, &ignore, NULL))
		return errno;
	return 0;
}

int stop_on_hangup(void)
{
	struct sigaction stop;

	make_action(&stop);
	return take_over(SIGHUP, &stop) ? errno : 0;
}

bool stop_requested(void)
{
	return requested != 0;
}

int stop_signal(void)
{
	return first;
}

int stop_count(void)
{
	return requested;
}

void stop_ask_twice(void)
{
	patient = 1;
}

int stop_fd(void)
{
	return pipe_fds[0];
}

static void on_bus(int number)
{
	ssize_t ignored = write(STDERR_FILENO, bus_line, strlen(bus_line));

	(void)number;
	(void)ignored;
	_exit(EXIT_OUTPUT); /* the thread has nowhere to continue */
}

int stop_report_bus(const char *line)
{
	struct sigaction bus;

	(void)snprintf(bus_line, sizeof(bus_line), "%.1000s\n", line);
	memset(&bus, 0, sizeof(bus));
	bus.sa_handler = on_bus;
	sigemptyset(&bus.sa_mask);
	return sigaction(SIGBUS, &bus, NULL) ? errno : 0;
}

static void on_hangup(int number)
{
	int saved = errno;
	ssize_t ignored;

	(void)number;
	ignored = write(reload_fds[1], "", 1);
	(void)ignored;
	errno = saved;
}

int reload_install(void)
{
	struct sigaction hangup;

	if (pipe2(reload_fds, O_CLOEXEC | O_NONBLOCK))
		return errno;
	memset(&hangup, 0, sizeof(hangup));
	hangup.sa_handler = on_hangup;
	sigemptyset(&hangup.sa_mask);
	return sigaction(SIGHUP, &hangup, NULL) ? errno : 0;
}

int reload_requested(void)
{
	char many[64];
	int any = 0;

	while (read(reload_fds[0], many, sizeof(many)) > 0)
		any = 1;
	return any;
}

int reload_fd(void)
{
	return reload_fds[0];
}
