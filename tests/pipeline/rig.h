/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline for tests: a source of numbers, a build that hashes them, a store, and a commit that writes a hash chain,
 * each with a hook of the test's; everything that is handed over is allocated, counted and must be given back.
 */
#ifndef TESTS_PIPELINE_RIG_H
#define TESTS_PIPELINE_RIG_H

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

#include "base/sha256.h"
#include "support/fault.h"
#include "support/vclock.h"
#include <sluice/metrics.h>
#include <sluice/pipeline.h>

#define RIG_COMMITS 4096

struct rig;
/* 0, or an error: what the step is to return. Called without a lock. */
typedef int rig_hook(struct rig *r, const struct sl_pipeline_partition *p, struct sl_err *err);

struct rig_commit {
	uint64_t start, end;
	uint8_t chain[SL__SHA256_BYTES];
};

struct rig {
	struct vclock clock;
	struct fault fault;
	struct sl_env env; /* virtual clock, counted memory, the log below */
	struct sl_pipeline_opts o;
	struct sl_pipeline_ops ops;
	sl_pipeline *p;
	struct sl_pipeline_stats stats; /* of the last run */
	struct sl_err err;
	int rc;
	pthread_t thread;

	/* the source: the script when there is one, else from … to in runs of `run` numbers */
	const struct sl_pipeline_element *script;
	size_t n_script, given;
	uint64_t from, to, run, at;
	bool at_begun;
	int end_rc;        /* what next returns at the end; SL_PIPELINE_END by default */
	bool wait_at_end;  /* next waits for the stop descriptor before it ends */
	atomic_int at_end; /* next has come to the end */
	size_t bytes;      /* of each element */
	atomic_int interrupts;

	rig_hook *on_build, *on_store, *on_commit;
	sl_pipeline_step_fn *on_step;
	void *own; /* the test's */

	pthread_mutex_t mu;
	pthread_cond_t changed;
	struct rig_commit commits[RIG_COMMITS];
	size_t n_commits;
	uint64_t builds, stores, tries; /* calls; tries: of commit */
	int live_elements, live_outputs, live_refs, live_states;
	int live_elements_max, live_outputs_max;
	int committing; /* commits that run at once, must be 0 or 1 */
	bool overlapped;

	uint64_t warnings, errors; /* log records */
	char last_record[1024];    /* of a warning or an error */
};

/* Defaults: partitions of 10, 0 … 59, single numbers. */
void rig_init(struct rig *r);
/* Nothing may be left over. */
void rig_fini(struct rig *r);
int rig_setup(void **state);
int rig_teardown(void **state);

/* A handle from r->o; frees the one before. */
void rig_new(struct rig *r);
/* New handle, run, result in rc, err, stats; everything was given back. Returns rc. */
int rig_run(struct rig *r);
/* The same on a thread. */
void rig_start(struct rig *r);
int rig_join(struct rig *r);
/* Run again after what was committed, from the beginning of the source. */
int rig_resume(struct rig *r);

/* The commits so far are those of from … to, cut by size, in order, with the chain that follows from it. */
void rig_assert_chain(struct rig *r, uint64_t from, uint64_t to, uint64_t size);

/* Under r->mu. */
void rig_lock(struct rig *r);
void rig_unlock(struct rig *r);
void rig_wait(struct rig *r); /* until rig_tell */
void rig_tell(struct rig *r);

#endif
