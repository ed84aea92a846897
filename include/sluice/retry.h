/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The retry policy that all parts share: how often, how long to wait, and how much chance to mix in.
 *
 * The delay before attempt n + 1, after n attempts have failed, is first_ms * multiplier^(n-1), cut at cap_ms, and then
 * spread by the jitter. Safe for any n.
 *
 * The specifications have a name of their own for each field:
 *
 *     here          coordinator           log               pipeline           jobs              block writer
 *     max_attempts  max_attempts          (unlimited)       retry_attempts     (unlimited)       maxRetryAttempts
 *     first_ms      initial_backoff_ms    InitialInterval   retry_backoff_ms   initialDelayMs
 *     cap_ms        max_backoff_ms        MaxInterval                          maxDelayMs
 *     multiplier    backoff_multiplier    Multiplier                           multiplier
 *     jitter        jitter
 *
 * Thread safety: these are plain values; the functions here have no state. Ownership: nothing points to anything.
 */
#ifndef SLUICE_RETRY_H
#define SLUICE_RETRY_H

#include <sluice/err.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sl_jitter {
	SL_JITTER_DEFAULT = 0, /* what the preset says */
	SL_JITTER_OFF = 1,     /* exactly the delay */
	SL_JITTER_HALF = 2,    /* 50–100 % of the delay */
	SL_JITTER_AROUND = 3   /* ±50 % of the delay */
};

/* Zero in a field: the value of the preset that the part documents. */
struct sl_retry_policy {
	int32_t max_attempts; /* the first try counts; SL_UNLIMITED */
	int64_t first_ms;     /* SL_NONE: no delay */
	int64_t cap_ms;
	double multiplier;
	enum sl_jitter jitter;
};

enum sl_retry_preset {
	SL_RETRY_COORDINATOR = 0, /* 5 attempts, 50 ms to 2 s, 50–100 % */
	SL_RETRY_WAL = 1,         /* unlimited, 1 s to 60 s, ±50 % */
	SL_RETRY_PIPELINE = 2,    /* 3 attempts, 1 s to 60 s, ±50 % */
	SL_RETRY_JOBS = 3,        /* unlimited, 10 s to 300 s, no jitter */
	SL_RETRY_WRITER = 4       /* 5 attempts, 2 s to 30 s, ±50 % */
};

/* The preset's policy, every field filled. */
SL_API struct sl_retry_policy sl_retry_preset(enum sl_retry_preset preset);

/* Fill the zero fields of policy (NULL: all of them) from the preset into *out. SL_EINVAL names a field that is out of
 * range: max_attempts < 1, a delay < 0, a cap below the first delay, a multiplier below 1 or not finite. A first delay
 * above the preset's cap, given alone, lifts the cap; a cap below the preset's first delay, given alone, lowers it. */
SL_API SL_MUST_CHECK int sl_retry_resolve(const struct sl_retry_policy *policy, enum sl_retry_preset preset,
					  struct sl_retry_policy *out, struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
