/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment of a handle: I/O, clock, memory, randomness, log and metrics. Every options struct has an `env`
 * field; NULL, and every NULL inside, means the real thing (system calls, CLOCK_MONOTONIC, malloc, getrandom), no log
 * and no metrics.
 *
 * Thread safety: a handle calls the tables from all of its threads, several at once.
 * Ownership: the struct is copied when a handle is opened; the tables, their contexts and the registry must outlive the
 * handle.
 */
#ifndef SLUICE_ADAPTER_ENV_H
#define SLUICE_ADAPTER_ENV_H

#include <sluice/adapter/clock.h>
#include <sluice/adapter/io.h>
#include <sluice/log.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_MEM_VERSION 1

/* As malloc, realloc and free. alloc and resize return NULL on failure; size is never 0; release(NULL) does nothing. */
struct sl_mem {
	int version; /* SL_MEM_VERSION */
	void *(*alloc)(size_t size, void *ctx);
	void *(*resize)(void *p, size_t size, void *ctx);
	void (*release)(void *p, void *ctx);
};

#define SL_RAND_VERSION 1

/* Cryptographically strong bytes. Returns 0 or a negative errno. */
struct sl_rand {
	int version; /* SL_RAND_VERSION */
	int (*fill)(void *buf, size_t n, void *ctx);
};

typedef struct sl_metrics sl_metrics; /* <sluice/metrics.h> */

struct sl_env {
	size_t struct_size; /* sizeof(struct sl_env); SL_ENV_INIT fills it */
	const struct sl_io *io;
	void *io_ctx;
	const struct sl_clock *clock;
	void *clock_ctx;
	const struct sl_mem *mem;
	void *mem_ctx;
	const struct sl_rand *rand;
	void *rand_ctx;
	sl_log_fn *log;
	void *log_ctx;
	enum sl_log_level log_level; /* records below it are not made; 0: SL_LOG_INFO */
	sl_metrics *metrics;
};

#define SL_ENV_INIT .struct_size = sizeof(struct sl_env)

#ifdef __cplusplus
}
#endif
#endif
