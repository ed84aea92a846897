/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events as text: a line of output that was cut into several events is one line again. While such a line is open, what
 * else its attempt says waits until it has ended, so that nothing stands in the middle of it; a line is ended by its
 * last piece, the exit of its command, or another attempt that speaks. Up to JOINER_HELD_BYTES can wait; then the line
 * is broken off.
 *
 * Thread safety: none. Ownership: joiner_end frees what waits; events are borrowed.
 */
#ifndef SLUICE_CLI_JOINER_H
#define SLUICE_CLI_JOINER_H

#include "out.h"

#include <sluice/job.h>

#define JOINER_HELD_BYTES ((size_t)64 << 20)

struct joiner_held;

struct joiner {
	struct out *out;
	int all;    /* also starts, exits, progress and errors, in brackets */
	int escape; /* control characters: the output goes to a terminal */
	/* The line that is open; type 0: none. */
	uint64_t job;
	int32_t attempt, type;
	struct joiner_held *first, **last; /* what waits for its end */
	size_t held_bytes;
};

void joiner_init(struct joiner *j, struct out *out, int all, int escape);
void joiner_put(struct joiner *j, const struct sl_event_row *event);
/* Nothing more will come: end what is open, print what waits. */
void joiner_end(struct joiner *j);

#endif
