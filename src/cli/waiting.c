/* SPDX-License-Identifier: Apache-2.0 */
#include "waiting.h"

#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static void *wait_for_end(void *arg)
{
	struct waiting *w = arg;

	w->rc = sl_jobs_wait(w->client, w->chain_id, w->timeout_ms, &w->chain, &w->err);
	(void)close(w->over[1]);
	return NULL;
}

/* Signals are the main thread's, which has to wake from its poll. */
static int start_thread(struct waiting *w)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&w->thread, NULL, wait_for_end, w);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

int waiting_start(struct waiting *w, struct cli *cli, sl_jobs *client, uint64_t chain_id, int64_t timeout_ms)
{
	int rc;

	*w = (struct waiting){
		.client = client, .chain_id = chain_id, .timeout_ms = timeout_ms, .err = SL_ERR_INIT, .over = {-1, -1}};
	rc = pipe2(w->over, O_CLOEXEC) ? errno : start_thread(w);
	if (!rc)
		return 0;
	for (int i = 0; i < 2; i++) {
		if (w->over[i] >= 0)
			(void)close(w->over[i]);
	}
	cli_say(cli, SL_LOG_ERROR, "wait: %s", strerror(rc));
	return EXIT_INTERNAL;
}

int waiting_until_signal(struct waiting *w)
{
	struct pollfd fds[2] = {{.fd = w->over[0], .events = POLLIN}, {.fd = stop_fd(), .events = POLLIN}};

	while (!stop_requested() && poll(fds, 2, -1) <= 0) {
	}
	return (fds[0].revents & (POLLIN | POLLHUP)) != 0 || !stop_requested();
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
