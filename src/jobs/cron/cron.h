/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurring schedules in the syntax of cron, in UTC: when the next tick is, and firing what is due.
 *
 * Guarantee: a tick is enqueued once over all processes, since the store moves the schedule on in the transaction that
 * enqueues, and only from the tick that it was at. Catch-up: with catch_up 0 all ticks missed in a pause are enqueued
 * as one, with 1 each of them, at most SL__CRON_CATCH_UP a turn. Not guaranteed: that a tick is punctual; it is fired
 * by a worker's turn after it was due.
 *
 * Thread safety: no state here; any thread.
 */
#ifndef SL_JOBS_CRON_H
#define SL_JOBS_CRON_H

#include "base/env.h"
#include "jobs/store/ops.h"

#define SL__CRON_CATCH_UP 1000

/* Bit i: the value i is in the field. */
struct sl__cron_spec {
	uint64_t minutes; /* 0-59 */
	uint32_t hours;   /* 0-23 */
	uint32_t days;    /* 1-31 */
	uint16_t months;  /* 1-12 */
	uint8_t weekdays; /* 0-6, Sunday is 0 */
	bool either_day;  /* both day fields are restricted: one that matches is enough */
};

/* SL_EDATA with the column that is wrong. */
SL_MUST_CHECK int sl__cron_parse(const char *spec, struct sl__cron_spec *out, struct sl_err *err);
/* The first tick after after_ms. SL_ENOENT when no date matches (30 February); no text. */
SL_MUST_CHECK int sl__cron_after(const struct sl__cron_spec *spec, int64_t after_ms, int64_t *next_ms);

struct sl__cron_turn {
	uint32_t fired;  /* ticks that this turn enqueued */
	uint32_t broken; /* schedules with a spec that cannot be read; logged */
	int64_t next_ms; /* when the next tick is due, by the store's clock (<= now: immediately); -1: no schedule */
};

/*
 * Fire what is due at now_ms of the store's clock (0: ask the store). Each tick is its own transaction; scope is
 * called for them as they happen, so send its effects whatever this returns. *out is filled in any case; after a
 * failure it holds what was done so far, and the rest stays due.
 */
SL_MUST_CHECK int sl__cron_turn(const struct sl_env *env, const sl_store *store, int64_t now_ms,
				const struct sl_store_scope *scope, struct sl__cron_turn *out, struct sl_err *err);

#endif
