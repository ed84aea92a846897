/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events on their way into a log: encoded one behind the other in one buffer, appended together.
 *
 * Thread safety: one thread at a time. Ownership: the batch owns its bytes; env and the log are borrowed.
 */
#ifndef SL_JOBS_EVENTS_H
#define SL_JOBS_EVENTS_H

#include "base/buf.h"
#include <sluice/events.h>

/* Put the encoded event behind what is in the buffer. SL_EINVAL, SL_ETOOBIG, SL_ENOMEM. */
SL_MUST_CHECK int sl__event_pack(struct sl__buf *out, const struct sl_event *event, struct sl_err *err);

struct sl__event_batch {
	struct sl__buf bytes; /* the records */
	struct sl__buf ends;  /* size_t each: where record i ends */
	struct sl__buf spans; /* built by append */
	size_t n;
};

void sl__event_batch_init(struct sl__event_batch *b, const struct sl_env *env);
void sl__event_batch_fini(struct sl__event_batch *b);
void sl__event_batch_clear(struct sl__event_batch *b);
/* Copies the event. SL_ENOMEM; SL_ETOOBIG. The batch is unchanged on failure. */
SL_MUST_CHECK int sl__event_batch_add(struct sl__event_batch *b, const struct sl_event *event, struct sl_err *err);
/* Append all of it, durably; on failure *n_durable of the first are in the log. *last (may be NULL): the sequence of
 * the last one that is durable, unchanged when none is. */
SL_MUST_CHECK int sl__event_batch_append(struct sl__event_batch *b, sl_wal *log, uint64_t *last, size_t *n_durable,
					 struct sl_err *err);
/* Hand all of it over without waiting; *ticket: the last one's. On failure none of it is on its way any more: each is
 * in the log, or is not. */
SL_MUST_CHECK int sl__event_batch_submit(struct sl__event_batch *b, sl_wal *log, struct sl_wal_ticket *ticket,
					 struct sl_err *err);
/* Event i as it was added; its data points into the batch. */
void sl__event_batch_get(const struct sl__event_batch *b, size_t i, struct sl_event *out);

#endif
