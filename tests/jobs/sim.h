/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulation of jobs in one thread and virtual time: clients, workers (the real core of src/jobs/worker/core.h, the real
 * turns of cron.h, the real sender of events) and a store in memory, with everything that goes wrong between them drawn
 * from a seed. The same seed gives the same run. Half of the seeds are about jobs alone, a quarter has schedules, and
 * three in eight have workers whose handlers write events to a log. In one of five, whatever it is about, clients start
 * jobs in the processes of workers, which offer to run them; in two of seven, chains are failed from outside.
 *
 * What goes wrong: requests and answers are lost, requests are applied after the worker gave up on them, the store is
 * unavailable for a while, asks for a retry, refuses data; workers pause beyond their leases, are killed, are stopped;
 * their clocks and the store's jump; notifications are lost, doubled and late. Clients start chains with keys, delays
 * and blockers, cancel, redrive, trigger, complete and remove them, put and remove schedules, and pause types
 * meanwhile. Handlers complete, continue (also after children that they started), fail, ask for a later time, settle in
 * their own transaction, run past their lease, obey an abort or not. Logs lose what was not synced, fail to sync, are
 * left by killed workers and found by others, are put back from a copy that is too old, or are written to twice after a
 * machine was copied; the store loses its last events in a restore. All of that together, too.
 *
 * Rules, checked after each change of the store or as they are broken, R9, R10 and the ends of R12 and R14 at the end:
 *  R1. At most one completion of a job is accepted; a completed job keeps its status, output and next job.
 *  R2. What is claimed was live and unblocked, and is in one lease only; a claim's (job, fence) was never claimed
 *      before, and starts one handler at most.
 *  R3. A live job is in exactly one place: blocked with an open blocker, ready, scheduled, or under a lease. None is
 *      lost, at any moment.
 *  R4. A completed job has an output or a next job, never both and never none; the next job is there at once.
 *  R5. A blocked job opens when its last open blocker completes, in that moment, and once.
 *  R6. The fence never goes back, and every change of a job's status but an opening moves it.
 *  R7. A failed or cancelled job continues, or ends in another way, only by a redrive.
 *  R8. A handler starts only while its attempts last, and, with true clocks, while its lease does.
 *  R9. When the faults end, every job ends, or stays blocked by a job that will not complete; the workers have nothing
 *      left, and nothing changes any more.
 *  R10. Then, with a notifier, a new job is claimed within 1.5 s of its time by workers that had nothing to do:
 *       polling, which would come later, does not hide a wake-up that is missing.
 *  R11. A handler is notified that its job is lost when its worker is. What it has done is not discarded: the end of an
 *       attempt is settled or refused, unless the data is refused or a stop ran out of time.
 *  R12. A tick of a schedule makes one job, in one transaction, whichever process fires it and however often; what is
 *       fired is a tick of its spec. Once the faults have ended, a tick is fired within 2 s.
 *  R13. With catch-up every tick is fired, in order. Without, only ticks that the clock of the process that fired had
 *       passed are left out; with true clocks none of them is made up for later.
 *  R14. A line that the log has taken and still has is in job_events, whatever was sent again, killed, recovered, put
 *       back or copied, and once under an incarnation of its stream. A job completes after its lines are durable. Only
 *       what the store refuses for good is parked.
 *  R15. Offsets have no gap and follow the order of commits; within a stream they follow its sequences.
 *  R16. An event of an attempt before the job's last, or of a job that is gone, is marked late, and no other is.
 *  R17. Another CRC under a known sequence, or at the mark that the sender relies on, is refused as a conflict, and
 *       nothing is stored. After that the sender sends nothing more under this incarnation, but the last record that
 *       was acknowledged, to learn whether the store still has it.
 *  R18. An offer is taken once, and only while it stands: not when its worker has taken it back or is gone.
 *  R19. Once everything is at rest, workers stand by: what is started beside one is handed to it, without any note.
 *  R20. No two handlers of a job start with the same attempt number.
 *  R21. A job that may run once starts once, whatever dies or stops, unless it asked for another run or is redriven.
 */
#ifndef TESTS_SIM_H
#define TESTS_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "support/memstore.h"

/* A rule broken outside of the store, for tests of the checks. */
enum sim_wrong {
	SIM_RIGHT = 0,
	SIM_WRONG_CATCH_UP,    /* turns take the policy of a schedule for the other one */
	SIM_WRONG_NO_TURN,     /* no worker fires */
	SIM_WRONG_SPEC,        /* a turn moves the schedule a minute too far */
	SIM_WRONG_NO_WAIT,     /* jobs settle before their events are durable */
	SIM_WRONG_EARLY,       /* events are sent before they are durable */
	SIM_WRONG_TRUST,       /* a send that was not answered counts as done */
	SIM_WRONG_NO_WAY_BACK, /* a sender does not go back to what the store has lost */
	SIM_WRONG_CONTINUE,    /* a conflict does not stop the sender */
	SIM_WRONG_ANY_MARK,    /* a mark is trusted, whatever its CRC */
	SIM_WRONG_NO_PROBE,    /* after a conflict only what is pending is sent, whatever the store lost */
	SIM_WRONG_PARK,        /* a record is parked because the store was unavailable */
	SIM_WRONG_NO_RECOVERY, /* no worker recovers the logs of dead workers */
	SIM_WRONG_OFFER_TWICE, /* an offer that is taken stays in the list */
	SIM_WRONG_OFFER_LEFT,  /* a worker that ends leaves its offer in the list */
	SIM_WRONG_NO_OFFER     /* no worker offers */
};

struct sim_opts {
	uint64_t seed;
	enum memstore_break broken; /* the store breaks this promise */
	enum sim_wrong wrong;
	bool trace; /* every step as a "# " line on stdout */
};

/* What happened: the field and its words. */
#define SIM_COUNTS(X)                                                                                                  \
	X(jobs, "jobs")                                                                                                \
	X(completions, "completions")                                                                                  \
	X(reaped, "reaped")                                                                                            \
	X(lost_answers, "answers lost")                                                                                \
	X(late_applies, "applied late")                                                                                \
	X(kills, "kills")                                                                                              \
	X(pauses, "pauses")                                                                                            \
	X(offers, "offers")                                                                                            \
	X(taken, "of them taken")                                                                                      \
	X(handed, "jobs handed over")                                                                                  \
	X(failed_outside, "failed from outside")                                                                       \
	X(failed_leased, "of them under a lease")                                                                      \
	X(turns, "turns of schedules")                                                                                 \
	X(ticks, "ticks fired")                                                                                        \
	X(races, "ticks that another had fired")                                                                       \
	X(left_out, "ticks left out in pauses")                                                                        \
	X(lines, "events")                                                                                             \
	X(stored, "stored")                                                                                            \
	X(resent, "sent again")                                                                                        \
	X(late_events, "late")                                                                                         \
	X(lost_lines, "lost before their sync")                                                                        \
	X(store_lost, "lost by the store")                                                                             \
	X(parked, "parked")                                                                                            \
	X(rollbacks, "logs put back")                                                                                  \
	X(copies, "logs copied")                                                                                       \
	X(renewals, "new incarnations")                                                                                \
	X(doubled, "stored under two of them")                                                                         \
	X(conflicts, "conflicts")                                                                                      \
	X(recovered, "logs recovered")                                                                                 \
	X(steps, "steps")                                                                                              \
	X(virtual_s, "s of virtual time")

struct sim_report {
	bool failed;
	char why[256]; /* the rule, and what broke it */
#define X(name, words) uint64_t name;
	SIM_COUNTS(X)
#undef X
};

void sim_run(const struct sim_opts *opts, struct sim_report *report);

#endif
