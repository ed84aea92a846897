/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group commit: threads that want the same thing one after the other, and may as well have it together. The first one
 * leads, and does for those that come meanwhile what it does for itself.
 *
 *   enter ─▶ no leader: lead ─▶ gather ─▶ next, next, … ─▶ end: all that were taken are done, another may lead
 *        └─▶ a leader exists: wait until it has done it, or for the turn to lead
 *
 * Guarantees: one thread leads at a time; an entry is taken once; those that wait are taken in the order in which they
 * came. What the leader wrote into an entry is seen by its thread.
 * Not guaranteed: an end to the wait. It lasts as long as those that lead before.
 *
 * Two others share no code with it. In the log's group commit (src/wal/commit.c) a follower encodes its record into the
 * buffer of the leader, and all of a batch fail together; here every entry keeps its own work and its own answer, the
 * leader decides for each one whether it takes it along, and a refused row ends one entry only. Requests of the server
 * (src/server/http/gather.c) wait in its queue without a thread.
 *
 * Thread safety: enter from any thread; gather, next and end from the one that leads. Ownership: an entry is its
 * thread's, and must stay until enter returns, or end for the leader's own.
 */
#ifndef SL_FLOW_JOIN_H
#define SL_FLOW_JOIN_H

#include "base/thread.h"

struct sl__join_entry {
	struct sl__join_entry *next;
	bool done;
};

struct sl__join {
	const struct sl_env *env;
	sl__mutex mu;
	sl__cond moved;    /* one is done, or the lead is free */
	sl__cond gathered; /* as many wait as the leader waits for */
	struct sl__join_entry *first, *last;
	size_t n_waiting, expected;
	int64_t began_ns, took_ns;
	bool led;
};

void sl__join_init(struct sl__join *j, const struct sl_env *env);
void sl__join_fini(struct sl__join *j);
/* true: the caller leads, and its entry is the first of those that it takes. false: another thread has done it. */
SL_MUST_CHECK bool sl__join_enter(struct sl__join *j, struct sl__join_entry *e);
/* For the leader, before its first next: wait for as many as were there the last time, for at most 1/part of the time
 * that those took. They had their answers together, and may come again together. One that is alone never waits. */
void sl__join_gather(struct sl__join *j, unsigned part);
/* For the leader: the one that waits longest, to be done as well. NULL: none waits. */
struct sl__join_entry *sl__join_next(struct sl__join *j);
/* The leader has done these n. */
void sl__join_end(struct sl__join *j, struct sl__join_entry *const *done, size_t n);

#endif
