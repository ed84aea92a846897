/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for the end of a chain on a separate thread, so that the main thread reacts to signals immediately.
 *
 * Thread safety: the main thread calls; chain, rc and err are its own after waiting_join. Ownership: free chain with
 * sl_chain_release.
 */
#ifndef SLUICE_CLI_WAITING_H
#define SLUICE_CLI_WAITING_H

#include "cli.h"

#include <pthread.h>
#include <sluice/jobs.h>

struct waiting {
	sl_jobs *client;
	uint64_t chain_id;
	int64_t timeout_ms;
	struct sl_chain *chain; /* filled when rc is 0 */
	struct sl_err err;
	int rc;      /* of sl_jobs_wait */
	int over[2]; /* the reading end sees the end of file when the wait is over */
	pthread_t thread;
};

/* 0, or an exit code after a line on stderr. */
int waiting_start(struct waiting *w, struct cli *cli, sl_jobs *client, uint64_t chain_id, int64_t timeout_ms);
enum waiting_end { WAITING_SIGNAL, WAITING_OVER, WAITING_READABLE };
/* Which comes first: a signal, the end of the wait, or something to read from fd (-1: none). */
enum waiting_end waiting_until_signal_or(struct waiting *w, int fd);
void waiting_join(struct waiting *w);
/* End the process in the middle of a wait, with this code: the thread cannot be called back, so nothing is closed. */
_Noreturn void waiting_abandon(struct cli *cli, int code);

#endif
