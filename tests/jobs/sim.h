/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulation of jobs in one thread and virtual time: clients, workers (the real core of src/jobs/core.h) and a store
 * in memory, with everything that goes wrong between them drawn from a seed. The same seed gives the same run.
 *
 * What goes wrong: requests and answers are lost, requests are applied after the worker gave up on them, the store is
 * away for a while, asks to try again, refuses data; workers pause beyond their leases, are killed, are stopped; their
 * clocks and the store's jump; notifications are lost, doubled and late. Clients start chains with keys, delays and
 * blockers, cancel, redrive, trigger, complete and remove them, and pause types meanwhile. Handlers complete, continue
 * (also behind children that they started), fail, ask for a later time, settle in a transaction of their own, run past
 * their lease, obey an abort or not.
 *
 * Rules, checked after each change of the store or as they are broken, R9 and R10 at the end:
 *  R1. At most one completion of a job is accepted; a completed job keeps its status, output and next job.
 *  R2. What is claimed was live and unblocked, and is in one lease only; a claim's (job, fence) was never claimed
 *      before, and starts one handler at most.
 *  R3. A live job is in exactly one place: blocked with an open blocker, ready, scheduled, or under a lease. None is
 *      lost, at any moment.
 *  R4. A completed job has an output or a next job, never both and never none; the next job is there at once.
 *  R5. A blocked job opens when its last open blocker completes, in that moment, and once.
 *  R6. The fence never goes back, and every change of a job's status but an opening moves it.
 *  R7. A failed or cancelled job goes on only by a redrive.
 *  R8. A handler starts only while its attempts last, and, with true clocks, while its lease does.
 *  R9. When the faults end, every job comes to its end or stays behind a blocker that will not complete; the workers
 *      have nothing left, and nothing changes any more.
 *  R10. Then, with a notifier, a new job is claimed within 1.5 s of its time by workers that had nothing to do:
 * polling, which would come later, does not hide a wake-up that is missing. R11. A handler is told that its job is lost
 * when its worker is. What it has done is not thrown away: the end of an attempt is settled or refused, unless the data
 * is refused or a stop ran out of time.
 */
#ifndef TESTS_SIM_H
#define TESTS_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "support/memstore.h"

struct sim_opts {
	uint64_t seed;
	enum memstore_break broken; /* the store breaks this promise */
	bool trace;                 /* every step as a "# " line on stdout */
};

struct sim_report {
	bool failed;
	char why[256]; /* the rule, and what broke it */
	uint64_t steps, jobs, completions, reaped, lost_answers, late_applies, kills, pauses;
	int64_t virtual_ms;
};

void sim_run(const struct sim_opts *opts, struct sim_report *report);

#endif
