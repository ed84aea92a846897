/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that watches long work of the main thread. */
#include "watch.h"

#include "base/thread.h"
#include "base/time.h"
#include "stop.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { BAR_MS = 100, LINE_MS = 1000 };

static void *run(void *arg)
{
	struct watch *w = arg;
	struct pollfd fds[2] = {{.fd = w->over, .events = POLLIN}, {.fd = stop_fd(), .events = POLLIN}};

	while (!fds[0].revents) {
		/* The descriptor of signals stays readable after the first one: from then on they are queried in
		 * turns. Read before the check, so that one that comes during it ends the next poll. */
		bool stopping = stop_requested();

		w->check(w->ctx);
		fds[1].fd = stopping ? -1 : stop_fd();
		(void)poll(fds, 2, w->progress.form == PROGRESS_BAR || stopping ? BAR_MS : LINE_MS);
	}
	return NULL;
}

int watch_start(struct watch *w, struct cli *cli, bool prints, watch_fn *check, void *ctx)
{
	int rc;

	*w = (struct watch){.cli = cli, .started_ms = sl__clock_ms(), .check = check, .ctx = ctx};
	progress_start(&w->progress, cli, prints);
	w->over = eventfd(0, EFD_CLOEXEC);
	/* The descriptor that ends the thread, then the thread. */
	rc = w->over < 0 ? errno : -sl__thread_start(&w->thread, "watch", run, w);
	if (rc == 0)
		return 0;
	if (w->over >= 0)
		close(w->over);
	cli_say(cli, SL_LOG_ERROR, "progress: %s", strerror(rc));
	return EXIT_INTERNAL;
}

void watch_stop(struct watch *w)
{
	uint64_t one = 1;
	ssize_t ignored = write(w->over, &one, sizeof(one));

	(void)ignored;
	pthread_join(w->thread, NULL);
	close(w->over);
	progress_end(&w->progress);
}

int64_t watch_ms(const struct watch *w)
{
	return sl__clock_ms() - w->started_ms;
}
