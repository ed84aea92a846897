/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A circuit breaker: while a target is unavailable, only one probe at a time calls it.
 *
 *               failures in a row,
 *               or one FATAL outcome                          open_ms passed (checked at the next call)
 *     CLOSED ──────────────────────────────▶ OPEN ──────────────────────────────────────▶ HALF_OPEN
 *       ▲                                     ▲                                              │  │
 *       │                                     └──── a probe failed, or its permit expired ───┘  │
 *       └───────────────────────────── a probe succeeded ───────────────────────────────────────┘
 *
 *     state      acquire                               a failure (of a permit of this state)
 *     CLOSED     always                                counts; opens at a threshold; FATAL opens at once
 *     OPEN       SL_EAGAIN until the time has come     (there are no permits of this state)
 *     HALF_OPEN  one permit at a time                  opens again, for twice as long, up to open_max_ms
 *
 * Guarantees: a permit is a token of the state in which it was given. A report for a permit of an earlier state, or for
 * a probe that has expired, changes nothing: a late answer neither closes nor opens. A probe whose holder never reports
 * expires after probe_ms and counts as failed, so the breaker cannot stay half-open for ever.
 * Not guaranteed: that a holder has stopped when its permit expires.
 *
 * Thread safety: every function from any thread at once, but sl__breaker_free, which must be the last call.
 * Ownership: permits are values.
 */
#ifndef SL_FLOW_BREAKER_H
#define SL_FLOW_BREAKER_H

#include "base/env.h"

typedef struct sl__breaker sl__breaker;

enum sl__breaker_state { SL__BREAKER_CLOSED = 0, SL__BREAKER_OPEN = 1, SL__BREAKER_HALF_OPEN = 2 };

struct sl__breaker_opts {
	const struct sl_env *env;      /* copied; NULL: the real one */
	uint32_t consecutive_failures; /* in a row that open it; 0: 5; UINT32_MAX: not by this */
	int64_t open_ms;               /* the first time; 0: 1000 */
	int64_t open_max_ms;           /* 0: 30,000, at least open_ms */
	int64_t probe_ms;              /* until a probe's permit expires; 0: 30,000 */
};

/* Opaque to callers; report it exactly once. */
struct sl__breaker_permit {
	uint64_t generation; /* of the state that gave it */
	uint64_t probe_id;   /* 0: not a probe */
};

enum sl__breaker_outcome {
	SL__BREAKER_OK = 0,
	SL__BREAKER_FAILED = 1, /* a transient failure */
	SL__BREAKER_FATAL = 2,  /* the target refuses everything or is unavailable: opens immediately */
	SL__BREAKER_NEUTRAL = 3 /* says nothing about the target (poison, throttled, cancelled): gives a probe back */
};

struct sl__breaker_stats {
	enum sl__breaker_state state;
	uint32_t failures_in_a_row;
	uint64_t opened;   /* times */
	uint64_t refused;  /* acquires */
	uint64_t ignored;  /* reports of old permits */
	int64_t opened_ns; /* when it left CLOSED (monotonic); 0 when closed */
};

SL_MUST_CHECK int sl__breaker_new(sl__breaker **out, const struct sl__breaker_opts *opts, struct sl_err *err);
/* NULL allowed. */
void sl__breaker_free(sl__breaker *b);

/* 0 and a permit; SL_EAGAIN without waiting; then *retry_ns (NULL allowed) is the monotonic time at which to ask again
 * (when open: its end; when half-open: the expiry of the probe; a report may change it earlier). */
SL_MUST_CHECK int sl__breaker_try_acquire(sl__breaker *b, struct sl__breaker_permit *permit, int64_t *retry_ns);
/* What came of it. Returns false when the permit was too old to count. */
bool sl__breaker_report(sl__breaker *b, struct sl__breaker_permit permit, enum sl__breaker_outcome outcome);

/* The state now. OPEN turns HALF_OPEN by an acquire, not by looking. */
enum sl__breaker_state sl__breaker_state(sl__breaker *b);

void sl__breaker_stats(sl__breaker *b, struct sl__breaker_stats *out);

#endif
