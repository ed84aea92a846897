/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One suite for every job store: what jobs/store/ops.h promises, as tests. A store's test program fills a
 * struct contract_fixture and calls store_contract_run; each test gets its own empty place.
 *
 *	int main(int argc, char **argv)
 *	{
 *		struct contract_fixture f = {.name = "sqlite", .set_up = …, .open = …, .close = …, …};
 *		return store_contract_run(&f, store_contract_part(argc, argv));
 *	}
 *
 * and in meson.build, twice: suite ['unit'] without arguments, suite ['threads', 'unit'] with args: ['threads'] (link
 * with contract_lib and support_lib). One program prints one TAP plan.
 *
 * Where the header leaves something open the suite settles it:
 *  C1. Claimed jobs are given in the order (priority, id); a flagged (reaped) job comes first and alone.
 *  C2. limit 1 charges in the claim; two or more jobs in a claim are not charged. What was charged in the claim is
 *      given back by RESCHEDULE and RELEASE.
 *  C3. The reason of a stale settle, guard, progress or renewal is read off the job's row: gone NOT_FOUND, completed
 *      (also by another worker, also continued) COMPLETED, cancelled CANCELLED, everything else TAKEN.
 *  C4. JOB_SCHEDULED: for each type of which a job became claimable or was given a time for the first time (start,
 *      continuation, unblock: also when delayed, so that sleepers learn of the new time), and by retry without delay,
 *      release, reap, redrive, trigger and resume. Optional for a retry or reschedule with a delay.
 *      OWNERSHIP_LOST: only for jobs under a lease (expired or not): reap TAKEN, cancel CANCELLED, complete_chain
 *      COMPLETED, remove NOT_FOUND. CHAIN_ENDED: watched chains only, once.
 *  C5. list_chains with blocked_by_job: in the order in which the blockers were given; `after` is the last chain seen.
 *  C6. next_expiry_in_ms is 0 when a lease has run out already and waits to be reaped.
 *  C7. cancel, redrive, trigger, remove: SL_ENOENT for an unknown chain, and then nothing is changed.
 *  C8. redrive of a job that was cancelled while blocked: blocked again while a blocker is open, pending otherwise;
 *      refused when an open one is gone. Of chains in one call that have one key, none is redriven.
 *  C9. prune keeps a chain that is a blocker, done or not, of a job that has not ended: its handler may ask for the
 *      outputs.
 *  C10. events_append with no events but marks: skips, and returns the marks.
 *  C11. outstanding: due, retrying (waits for a later time, attempt above 0), scheduled (waits for a later time,
 *       attempt 0), running and blocked are disjoint.
 *  C12. An operation that fails inside a caller's transaction changes nothing there, and the transaction stays
 *       usable.
 *  C13. A claim that took a flagged job alone while more could be claimed has next_due_in_ms 0: the claimer must not
 *       sleep.
 *  C14. An offer is taken once. A job handed to a worker that does not answer comes back like any expired lease:
 *       uncharged.
 *  C15. A job shows the error of its last failed attempt until it completes, in whatever way. Its attempt, start and
 *       worker are those of the last attempt; a settle without a start makes none, and changes only the worker.
 */
#ifndef TESTS_STORE_CONTRACT_H
#define TESTS_STORE_CONTRACT_H

#include "jobs/store/ops.h"

struct contract_fixture {
	const char *name;
	/* Before each test: an empty place (a file, a schema). 0, or the test fails. NULL: nothing to do. */
	int (*set_up)(void *ctx);
	void (*tear_down)(void *ctx);
	/* A handle on that place, with the schema up to date. Called again within a test, also by other threads at
	 * once, for further handles on the same data ("processes"). 0 or a negative SL_E…. */
	int (*open)(sl_store *out, void *ctx);
	void (*close)(sl_store *store, void *ctx);
	/* Move the store's clock. NULL: it is real, and the suite asks it until the time has passed. */
	void (*advance_ms)(int64_t ms, void *ctx);
	/* The wall clock is set: forwards, or back by a negative number. NULL: the test has no power over it. */
	void (*step_ms)(int64_t ms, void *ctx);
	/* A connection of the caller's for `join`, idle. NULL: join is not tested. exec runs SQL that gives no rows;
	 * begin_first: the caller may have begun its own transaction before it joins. */
	int (*native_open)(void **out, void *ctx);
	int (*native_exec)(void *native, const char *sql, void *ctx);
	void (*native_close)(void *native, void *ctx);
	int begin_first;
	/* Make the database unavailable: every connection of the store is cut (or the next call fails as if so). The
	 * suite expects SL_EUNAVAIL or success from calls after that, and success in the end. NULL: not tested. */
	void (*cut)(void *ctx);
	/* 1: an exchange is over when its answer is here. A claim that its callback then refuses is given back, but
	 * what was settled along with it stays. */
	int exchange_is_final;
	size_t big_output_bytes; /* the largest output that is tried; 0: 10,000,000 */
	void *ctx;
};

enum contract_part {
	CONTRACT_ALL = 0,
	CONTRACT_PLAIN = 1,  /* one thread */
	CONTRACT_THREADS = 2 /* races, boxed by SLUICE_TEST_SECONDS */
};

/* From the arguments of main: none is CONTRACT_PLAIN; "threads", "all". */
enum contract_part store_contract_part(int argc, char **argv);
/* Run the tests as one cmocka group. The number of failed tests. */
int store_contract_run(const struct contract_fixture *fixture, enum contract_part part);

#endif
