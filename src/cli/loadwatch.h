/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a person sees of a load while it runs, shown by a thread of its own, so that it goes on while the load waits for
 * its target: rows, rows a second, what is queued, what is tried again, dead letters; and after the first signal what
 * the command is doing.
 *
 * Thread safety: the main thread calls. Ownership: the coordinator stays the caller's; it must live until
 * loadwatch_end.
 */
#ifndef SLUICE_CLI_LOADWATCH_H
#define SLUICE_CLI_LOADWATCH_H

#include "watch.h"

#include <sluice/coordinator.h>
#include <stdatomic.h>

struct loadwatch {
	struct watch watch;
	uint64_t total_bytes;        /* of all inputs; 0: not known */
	_Atomic uint64_t taken, bad; /* bytes of the inputs; records that are none */
	pthread_mutex_t mu;          /* guards what follows */
	sl_coordinator *c;           /* of the input that is read now; NULL: none */
	uint64_t written, dead;      /* of the inputs before it */
	int told;
};

/* 0, or an exit code after a line on stderr. watch_stop(&w->watch) ends it. */
int loadwatch_start(struct loadwatch *w, struct cli *cli, uint64_t total_bytes);
void loadwatch_begin(struct loadwatch *w, sl_coordinator *c);
/* The coordinator is about to go; it has ended so many. */
void loadwatch_end(struct loadwatch *w, uint64_t written, uint64_t dead);

#endif
