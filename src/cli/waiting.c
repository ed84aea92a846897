/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for the end of a chain on a separate thread. */
#include "waiting.h"

#include "base/thread.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static void *wait_for_end(void *arg)
{
	struct waiting *w = arg;

	w->rc = sl_jobs_wait(w->client, w->chain_id, w->timeout_ms, &w->chain, &w->err);
	/* The end of file on the pipe wakes the main thread, whatever it polls besides. */
	(void)close(w->over[1]);
	return NULL;
}

int waiting_start(struct waiting *w, struct cli *cli, sl_jobs *client, uint64_t chain_id, int64_t timeout_ms)
{
	int rc;

	*w = (struct waiting){
		.client = client, .chain_id = chain_id, .timeout_ms = timeout_ms, .err = SL_ERR_INIT, .over = {-1, -1}};
	/* A pipe and a thread; after a failure neither is left. */
	rc = pipe2(w->over, O_CLOEXEC) ? errno : -sl__thread_start(&w->thread, "wait", wait_for_end, w);
	if (rc == 0)
		return 0;
	for (int i = 0; i < 2; i++) {
		if (w->over[i] >= 0)
			(void)close(w->over[i]);
	}
	cli_say(cli, SL_LOG_ERROR, "wait: %s", strerror(rc));
	return EXIT_INTERNAL;
}

enum waiting_end waiting_until_signal_or(struct waiting *w, int fd)
{
	struct pollfd fds[3] = {{.fd = w->over[0], .events = POLLIN},
				{.fd = stop_fd(), .events = POLLIN},
				{.fd = fd, .events = POLLIN}};

	/* poll also returns for a signal that came before it: the descriptor of signals stays readable. */
	while (!stop_requested() && poll(fds, 3, -1) <= 0) {
	}
	/* The end of the wait wins: there is a result to print. */
	if ((fds[0].revents & (POLLIN | POLLHUP)) != 0)
		return WAITING_OVER;
	return stop_requested() ? WAITING_SIGNAL : fds[2].revents != 0 ? WAITING_READABLE : WAITING_OVER;
}

void waiting_join(struct waiting *w)
{
	(void)pthread_join(w->thread, NULL);
	(void)close(w->over[0]);
}

void waiting_abandon(struct cli *cli, int code)
{
	_exit(cli_finish(cli, code));
}
