/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that wraps another one and misbehaves as configured, from a seed: it refuses, throttles and fails scheduled
 * puts, completes them late, out of order and from other threads, reports success for what it has not stored or has
 * torn, and failure for what it has stored, has shards that are not ready, fails the Nth call, and calls a hook of the
 * test before each call. With nothing set it does what the wrapped driver does, and passes the contract.
 *
 *	struct bad_driver bad;
 *	bad_driver_init(&bad, &under, seed);       takes ownership of the wrapped driver
 *	bad.fail_share = 64;                       a quarter of the scheduled puts
 *	sl_driver d = bad_driver_handle(&bad);
 *	…
 *	bad_driver_fini(&bad);                     closes the wrapped driver
 *
 * Thread safety: as the contract requires; set fields only while nothing runs.
 */
#ifndef TESTS_BACKUP_BAD_DRIVER_H
#define TESTS_BACKUP_BAD_DRIVER_H

#include <pthread.h>
#include <stdbool.h>

#include <sluice/adapter/driver.h>

enum bad_op {
	BAD_SCHEDULE_PUT,
	BAD_PUT,
	BAD_GET,
	BAD_STAT,
	BAD_LIST,
	BAD_RENAME,
	BAD_REMOVE,
	BAD_SYNC,
	BAD_NOW,
	BAD_LOCK,
	BAD_N_OPS
};
#define BAD_OP(op) (1u << (op))
#define BAD_ALL_OPS (BAD_OP(BAD_N_OPS) - 1)

struct bad_driver;
/* Called before each call is made, without locks, on the caller's thread; name is "" for sync and now. Returns 0, or a
 * negative SL_E… that the call returns. It may use the wrapped driver. */
typedef int bad_hook(struct bad_driver *b, enum bad_op op, const char *name, void *ctx);

#define BAD_COMPLETERS 3
#define BAD_AGED_MAX 16

struct bad_job;

struct bad_driver {
	sl_driver under;
	uint64_t rnd;

	/* of scheduled puts, in 256ths; one share after another is tried */
	unsigned refuse_share;   /* schedule_put itself fails: SL_EAGAIN */
	unsigned throttle_share; /* done: class throttled */
	unsigned fail_share;     /* done: SL_EIO, nothing is stored */
	unsigned poison_share;   /* done: class poison */
	unsigned deny_share;     /* stored, but done says SL_EIO */
	unsigned lie_share;      /* nothing is stored, and done says that it is */
	unsigned tear_share;     /* half of the bytes are stored, and done says all is well */
	bool delay;              /* completions come from separate threads, out of order */
	bool inside;             /* … or from inside schedule_put */
	bool shards;             /* shards become ready or not by chance */
	uint64_t buffered;       /* what driver_buffered_bytes says */

	/* the Nth of these calls, from 1, and with fail_on every later one, returns fail_code */
	int64_t fail_at;
	bool fail_on;
	int fail_code;
	unsigned fail_ops; /* which count */

	bad_hook *hook;
	void *hook_ctx;

	int64_t clock_ms; /* added to now_ms of the wrapped driver */
	struct {
		char name[SL_DRIVER_NAME_BYTES];
		int64_t ms;
	} aged[BAD_AGED_MAX]; /* objects that are this much older than in the wrapped driver */
	int n_aged;

	/* what happened */
	pthread_mutex_t mu;
	pthread_cond_t changed;
	int64_t calls[BAD_N_OPS], counted, failed;
	int64_t refused, throttled, failures, poisoned, denied, lies, torn, asked_ready, waited;
	uint32_t concurrency; /* the last limit that was passed to it */
	struct bad_job *jobs;
	size_t n_jobs;
	bool stop;
	pthread_t completers[BAD_COMPLETERS];
	bool started;
};

void bad_driver_init(struct bad_driver *b, const sl_driver *under, uint64_t seed);
void bad_driver_fini(struct bad_driver *b);
/* Closing it does nothing: fini does. */
sl_driver bad_driver_handle(struct bad_driver *b);
/* From now on the object is shown this much older. */
void bad_driver_age(struct bad_driver *b, const char *name, int64_t ms);
const char *bad_op_name(enum bad_op op);

#endif
