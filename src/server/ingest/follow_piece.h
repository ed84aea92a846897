/* SPDX-License-Identifier: Apache-2.0 */
/* A piece of a stream of server-sent events: the text of one read of a job's events. Whoever holds one has a reference;
 * the count belongs to the hub's lock (follow.c). */
#ifndef SLUICE_SERVER_FOLLOW_PIECE_H
#define SLUICE_SERVER_FOLLOW_PIECE_H

#include "server/core.h"

#include <stdbool.h>

struct srv_piece {
	struct srv_piece *next;
	unsigned refs; /* hub's lock */
	uint64_t after, upto;
	size_t len;
	char text[];
};

/* A piece with events behind `after`, with one reference; NULL: there is none, or it could not be had (*rc). *more:
 * there may be others. upto 0: no bound. */
struct srv_piece *srv_piece_read(const struct srv_core *core, uint64_t job_id, uint64_t after, uint64_t upto,
				 bool *more, int *rc);
void srv_piece_drop(struct srv_piece *p); /* NULL is allowed */

#endif
