/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time, as a table that a test may replace: a virtual clock moves only when the test advances it, and its `wait`
 * returns when the condition is signalled or virtual time has passed.
 *
 * Thread safety: all three functions are called from several threads at once.
 * Ownership: the table and its ctx are the caller's, and outlive every handle that was opened with them.
 */
#ifndef SLUICE_ADAPTER_CLOCK_H
#define SLUICE_ADAPTER_CLOCK_H

#include <pthread.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_CLOCK_VERSION 1
#define SL_FOREVER INT64_MAX /* a deadline that never comes */

struct sl_clock {
	int version;                   /* SL_CLOCK_VERSION */
	int64_t (*mono_ns)(void *ctx); /* never goes back; only differences mean something */
	int64_t (*real_ms)(void *ctx); /* Unix milliseconds; may jump */
	/* Called with mu held; waits for cond or until mono_ns() >= deadline_ns (SL_FOREVER: no deadline) and returns
	 * with mu held: 0, or ETIMEDOUT when the deadline has passed. Spurious returns of 0 are allowed. cond was made
	 * for CLOCK_MONOTONIC. */
	int (*wait)(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t deadline_ns, void *ctx);
};

#ifdef __cplusplus
}
#endif
#endif
