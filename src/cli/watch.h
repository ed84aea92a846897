/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread next to a long call of the library on the main thread: it checks the work ten times
 * a second where a bar is shown, once a second elsewhere, and as soon as a signal comes; what it sees there, shows and
 * makes the work do is up to the owner.
 *
 * Thread safety: the main thread calls; check runs on the thread of the watch.
 */
#ifndef SLUICE_CLI_WATCH_H
#define SLUICE_CLI_WATCH_H

#include "progress.h"

#include <pthread.h>

typedef void watch_fn(void *ctx);

struct watch {
	struct cli *cli;
	struct progress progress;
	int64_t started_ms; /* monotonic */
	watch_fn *check;
	void *ctx;
	int over; /* an eventfd: readable when the thread is to end */
	pthread_t thread;
};

/* prints: 1 when the command writes to standard output meanwhile. 0, or an exit code after a line on stderr. */
int watch_start(struct watch *w, struct cli *cli, bool prints, watch_fn *check, void *ctx);
/* Nothing is shown any more when it returns. */
void watch_stop(struct watch *w);
int64_t watch_ms(const struct watch *w); /* since the start */

#endif
