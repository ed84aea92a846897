/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items that a sink refuses one by one while it takes the rest of their batch, and the reply that says so.
 *
 * A failed write carries one error, so one refused item is reported at a time: the first is remembered and the batch
 * continues without it; at a second one the sink stops. What is before that is written, the first is poison, and from
 * the second on the batch is to be handed over again.
 *
 * Thread safety: one thread at a time. Ownership: plain values.
 */
#ifndef SL_SINK_REFUSAL_H
#define SL_SINK_REFUSAL_H

#include "base/base.h"
#include <sluice/adapter/sink.h>

struct sl__refusals {
	size_t first;      /* SIZE_MAX: none */
	size_t stop;       /* the second, above the first; SIZE_MAX: none */
	struct sl_err err; /* of the first */
};
#define SL__REFUSALS_INIT                                                                                              \
	{                                                                                                              \
		.first = SIZE_MAX, .stop = SIZE_MAX                                                                    \
	}

/* Item i is refused because of err. true: leave it out and continue, up to r->stop; false: stop before it. Items may be
 * refused in any order (some before, some while they are written): the two with the lowest numbers count. */
bool sl__refusals_add(struct sl__refusals *r, size_t i, const struct sl_err *err);
/* Items before `done` are in the target, but for a refused one; rc is 0, or how the rest failed, with err filled.
 * Fills reply and err; returns what write is to return. */
int sl__refusals_reply(const struct sl__refusals *r, size_t done, struct sl_sink_reply *reply, int rc,
		       struct sl_err *err);

#endif
