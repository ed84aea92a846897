/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of the coordinator: a virtual clock, and a sink whose writes do what a test says and are written down.
 *
 * A write goes: wait while `hold` is set and its number was not released; ask `script` (NULL: 0); on success note the
 * items. Items of the kit are numbers in pointers, or 8 bytes (KIT_BYTES).
 */
#ifndef TESTS_COORDINATOR_KIT_H
#define TESTS_COORDINATOR_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/vclock.h"
#include <sluice/coordinator.h>

#define ITEM(n) ((void *)(uintptr_t)(n))
#define KIT_WRITES 4096

struct kit;
/* What a write returns; called without a lock. number counts calls from 1. */
typedef int kit_script(struct kit *k, int number, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
		       struct sl_err *err);

struct kit_write {
	size_t n;
	uintptr_t first;
	int rc;
	uint8_t id[16];
	uint32_t tries;
	int ordered;
};

struct kit {
	struct vclock clock;
	struct sl_env env;
	struct sl_sink_ops ops;
	sl_sink sink;
	sl_coordinator *c;
	kit_script *script;
	void *script_ctx;
	bool bytes;      /* items are 8 bytes */
	int workers_max; /* as given to kit_new; the fixed number of workers when only that was given */

	pthread_mutex_t mu;
	pthread_cond_t changed;
	bool hold;         /* writes wait in the sink … */
	int let_go;        /* … but for those with a number up to this */
	int in_write;      /* threads in the sink now */
	atomic_int n_held; /* that wait there */
	int max_in_write;
	int n_writes;
	int attached, detached, cancelled;
	struct kit_write writes[KIT_WRITES];
	uintptr_t *written; /* values, in order */
	size_t n_written, cap_written;
	/* callbacks */
	uintptr_t dead[1024], dropped[1024], returned[65536];
	uint32_t dead_attempts[1024];
	struct sl_err dead_err;
	int n_dead, n_dropped, n_returned;
	char marks[64];
	int n_marks;
	int ends[8]; /* by enum sl_item_end */
	int freed, copied;
};

int kit_set_up(void **state);
int kit_tear_down(void **state); /* stops what is still there */
/* Make a coordinator with the kit's clock, sink and callbacks; opts without env. */
void kit_new(struct kit *k, struct sl_coordinator_opts opts);
uintptr_t kit_value(const struct kit *k, const void *data);

/* Wait for what threads do; these block until it is so. */
void kit_await_writes(struct kit *k, int n);   /* writes that have begun */
void kit_await_in_write(struct kit *k, int n); /* threads in the sink at this moment */
void kit_await_written(struct kit *k, size_t n);
void kit_await_dead(struct kit *k, int n);
void kit_await_marks(struct kit *k, int n);
void kit_await_cancelled(struct kit *k);
/* Block until this many threads wait on the clock. One that was just woken counts until it runs: as a barrier before
 * time moves on, this is for threads that were seen at work a moment ago. */
void kit_await_calm(struct kit *k, int waiters);
/* Wait until every thread waits on the clock, or in the sink, and every thread that was signalled has acted on it.
 * Without this, time moves on while a thread that has work gets no processor. The test must have set the number of
 * workers. */
void kit_settle(struct kit *k);
void kit_pass(struct kit *k);        /* move time to the next deadline, then settle */
int kit_count_writes(struct kit *k); /* that have begun so far */
/* While writes may run. */
void kit_set_script(struct kit *k, kit_script *script);
void kit_hold(struct kit *k);
void kit_hold_first(struct kit *k);     /* from now on, and submit 1: it is in the sink when this returns */
void kit_release(struct kit *k, int n); /* let the next n through, in the order in which they began */
void kit_release_all(struct kit *k);

void kit_submit(struct kit *k, uintptr_t first, uintptr_t last); /* one by one; must be accepted */
struct sl_coordinator_health kit_health(struct kit *k);
/* accepted = written + dead + dropped + returned + queue + in flight + retrying, now. */
void kit_check_equation(struct kit *k);
/* Stop with time enough, and free. */
void kit_finish(struct kit *k, int rc);

/* Fill err with a class and return a code. */
int kit_fail(struct sl_err *err, enum sl_err_class error_class);
/* Writes that fail, always, … */
kit_script kit_fail_transient, kit_fail_fatal, kit_fail_poison;
/* … and, as transient, once the sink was cancelled, which they wait for. */
kit_script kit_fail_cancelled;

sl_item_done_fn kit_done; /* ctx is the kit */

#endif
