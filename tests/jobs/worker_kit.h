/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of the worker stand on: a store in memory and virtual time (or SQLite in real time), with hooks that make
 * its answers fail; a notifier; a client; an observer whose observations can be awaited; and a gate that handlers wait
 * at until the test opens it. The worker's time is virtual, and moves when the test says so; waiting for a thing to
 * happen is real, and ends the test with a failure after a minute.
 */
#ifndef TESTS_WORKER_KIT_H
#define TESTS_WORKER_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "jobs/sqlite_place.h"
#include "support/expect.h"
#include "support/memstore.h"
#include "support/vclock.h"
#include <sluice/metrics.h>
#include <sluice/worker.h>

#define KIT_KINDS (SL_OBSERVE_CHAIN_COMPLETED + 1)

struct wkit {
	struct vclock clock;
	struct sl_env env; /* of store and worker: virtual time, or real with SQLite */
	struct memstore *ms;
	struct sqlite_place place;
	sl_store real;           /* as it is */
	struct sl_store_ops ops; /* with hooks */
	sl_store store;          /* what workers get */
	sl_notify notify;
	int no_notify; /* 1: workers get none */
	sl_job_types *types;
	sl_metrics *metrics;
	sl_jobs *client; /* on the plain store, in real time */

	pthread_mutex_t mu;
	pthread_cond_t changed;
	int seen[KIT_KINDS];
	struct sl_observation last[KIT_KINDS]; /* its strings and its err are not kept, but: */
	char last_worker[KIT_KINDS][64];
	char last_error[KIT_KINDS][SL_ERR_MSG_BYTES];
	/* hooks; under mu */
	int exchanges, renews, reaps; /* calls */
	size_t most_settles;          /* in one exchange */
	int away;                     /* 1: exchange, renew and reap fail */
	int renew_away;
	int lose_answers;   /* that many exchanges happen, and fail */
	const char *poison; /* an exchange with this in an output, or an error, is refused */
	char warned[2048];  /* the worker's log: messages of warnings and errors, and what they say of the error */
	/* the gate; under mu */
	int arrived, open, inside, most_inside, left;
};

int wkit_memory(void **state);
int wkit_sqlite(void **state);
int wkit_gone(void **state);

/* Options with one type and the kit's parts; processors must outlive the call to wkit_worker. */
struct sl_worker_opts wkit_opts(struct wkit *k, const struct sl_processor *p, size_t n);
/* Made and started. */
sl_worker *wkit_worker(struct wkit *k, const struct sl_worker_opts *opts);
/* Stop without a hurry and free. */
void wkit_end(sl_worker *w);

uint64_t wkit_start(struct wkit *k, const char *type, const char *input);
/* Wait until the chain has ended; its status. */
enum sl_job_status wkit_wait(struct wkit *k, uint64_t chain);
/* Read the job; free with sl_chain_release(k->client, …). */
struct sl_job *wkit_job(struct wkit *k, uint64_t id);
int wkit_attempts(struct wkit *k, uint64_t id, enum sl_attempt_outcome outcome);

/* Wait until this has been observed n times in all. */
void wkit_await(struct wkit *k, enum sl_observe_kind kind, int n);
int wkit_seen(struct wkit *k, enum sl_observe_kind kind);
void wkit_advance(struct wkit *k, int64_t ms);
/* Move time on in steps, each when the worker has done all that it can, until it was observed n times; at most max_ms.
 */
void wkit_step(struct wkit *k, enum sl_observe_kind kind, int n, int64_t step_ms, int64_t max_ms);
/* Set a field that hooks read. */
#define WKIT_SET(k, field, value)                                                                                      \
	do {                                                                                                           \
		pthread_mutex_lock(&(k)->mu);                                                                          \
		(k)->field = (value);                                                                                  \
		pthread_cond_broadcast(&(k)->changed);                                                                 \
		pthread_mutex_unlock(&(k)->mu);                                                                        \
	} while (0)
int wkit_get(struct wkit *k, const int *field);
/* Does the worker's log say so? */
int wkit_warned(struct wkit *k, const char *text);
/* Wait until *field is at least n. */
void wkit_await_field(struct wkit *k, const int *field, int n);

/* Handlers; ctx is the kit. */
int wkit_noop(sl_attempt *a, struct sl_err *err, void *ctx);
int wkit_gate(sl_attempt *a, struct sl_err *err, void *ctx);  /* waits until k->open, then completes with true */
int wkit_abort(sl_attempt *a, struct sl_err *err, void *ctx); /* arrives, waits for its abort, returns 0 */
int wkit_fail(sl_attempt *a, struct sl_err *err, void *ctx);  /* fails: "it broke" */
/* For a handler of the test's own: one more has arrived (inside), one more has left. */
void wkit_arrive(struct wkit *k);
void wkit_leave(struct wkit *k);
void wkit_pass(struct wkit *k); /* wait until it is open */

#endif
