/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a stream of events is in a store: the sequence up to which everything was taken or skipped, and the CRC of
 * the event with that sequence, which stays when the event is pruned. Two logs that have the same stream, incarnation
 * and sequence are distinguished by it. All stores admit events by these rules.
 *
 * Thread safety: no state.
 */
#ifndef SL_JOBS_STORE_EVENT_MARK_H
#define SL_JOBS_STORE_EVENT_MARK_H

#include "base/base.h"
#include "jobs/store/ops.h"

struct sl__event_mark {
	uint64_t sequence, crc;
	bool has_crc; /* false: the sequence was skipped, or is 0 */
};

static inline int sl__event_conflict(const char *stream, uint64_t sequence, struct sl_err *err)
{
	return sl_err_set(err, SL_ECONFLICT, "stream %.100s: the store has another record %llu", stream,
			  (unsigned long long)sequence);
}

/* Does the sender's idea of the mark fit what the store has? */
static inline int sl__event_mark_check(const struct sl__event_mark *m, const struct sl_event_mark *given,
				       struct sl_err *err)
{
	if (given->after == 0 || given->after != m->sequence || !m->has_crc || given->after_crc == m->crc)
		return 0;
	return sl__event_conflict(given->stream, given->after, err);
}

/* An event at or below the mark: at the mark it must be the same, whether its row is still there or not. */
static inline int sl__event_mark_known(const struct sl__event_mark *m, const struct sl_event_row *event,
				       struct sl_err *err)
{
	if (event->sequence != m->sequence || !m->has_crc || event->crc == m->crc)
		return 0;
	return sl__event_conflict(event->stream, event->sequence, err);
}

static inline void sl__event_mark_take(struct sl__event_mark *m, const struct sl_event_row *event)
{
	*m = (struct sl__event_mark){event->sequence, event->crc, true};
}

static inline void sl__event_mark_skip(struct sl__event_mark *m, uint64_t to)
{
	if (to > m->sequence)
		*m = (struct sl__event_mark){.sequence = to};
}

static inline void sl__event_mark_return(const struct sl__event_mark *m, struct sl_event_mark *out)
{
	out->mark = m->sequence;
	out->crc = m->crc;
	out->has_crc = m->has_crc;
}

#endif
