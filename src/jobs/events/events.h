/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events on their way into a log: encoded one after the other in one buffer, appended together.
 *
 * Thread safety: one thread at a time. Ownership: the batch owns its bytes; env and the log are borrowed.
 */
#ifndef SL_JOBS_EVENTS_H
#define SL_JOBS_EVENTS_H

#include "base/buf.h"
#include <sluice/events.h>

/* Append the encoded event to the buffer. SL_EINVAL, SL_ETOOBIG, SL_ENOMEM. */
SL_MUST_CHECK int sl__event_pack(struct sl__buf *out, const struct sl_event *event, struct sl_err *err);

struct sl__event_batch {
	struct sl__buf bytes;   /* the records */
	struct sl__buf entries; /* where each record ends, and its event */
	struct sl__buf spans;   /* built by append */
	size_t n;
};

void sl__event_batch_init(struct sl__event_batch *b, const struct sl_env *env);
void sl__event_batch_fini(struct sl__event_batch *b);
void sl__event_batch_clear(struct sl__event_batch *b);
/* Copies the event. SL_ENOMEM; SL_ETOOBIG. The batch is unchanged on failure. */
SL_MUST_CHECK int sl__event_batch_add(struct sl__event_batch *b, const struct sl_event *event, struct sl_err *err);
/* The first n events are durable, the last of them with this sequence; those after them are not yet, and may never be:
 * the log may send and remove the first ones before the others are retried. */
typedef void sl__event_part_fn(size_t n, uint64_t last, void *ctx);
struct sl__event_log {
	sl_wal *log;
	sl__event_part_fn *on_part; /* called for what is durable before the rest is, or when the rest fails */
	void *ctx;
};
/* Append all of it, durably; *last is then the sequence of the last one. */
SL_MUST_CHECK int sl__event_batch_append(struct sl__event_batch *b, const struct sl__event_log *to, uint64_t *last,
					 struct sl_err *err);
/* Submit all of it without waiting for the last part, whose ticket is *ticket. After a failure nothing is pending: each
 * event is in the log, and was reported to on_part, or is not. */
SL_MUST_CHECK int sl__event_batch_submit(struct sl__event_batch *b, const struct sl__event_log *to,
					 struct sl_wal_ticket *ticket, struct sl_err *err);
/* Event i as it was added; its data points into the batch. */
void sl__event_batch_get(const struct sl__event_batch *b, size_t i, struct sl_event *out);

#endif
