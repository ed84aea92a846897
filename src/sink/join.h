/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes that want the same thing one after the other, and may as well have it together: the first one leads, and does
 * for those that come meanwhile what it does for itself.
 *
 *   enter ─▶ no leader: lead ─▶ next, next, … ─▶ end: all that were taken are done, another may lead
 *        └─▶ a leader exists: wait until it has done it, or for the turn to lead
 *
 * Guarantees: one lane leads at a time; an entry is taken once; those that wait are taken in the order in which they
 * came. What the leader wrote into an entry is seen by its lane.
 * Not guaranteed: an end to the wait. It lasts as long as those that lead before.
 *
 * This is not the log's group commit (src/wal/commit.c), and shares no code with it: there a follower encodes its record
 * into the buffer of the leader, and all of a batch fail together. Here every entry keeps its own batch and its own
 * answer, the leader decides for each one whether it takes it along, and a refused row ends one entry only.
 *
 * Thread safety: enter from any thread; next and end from the one that leads. Ownership: an entry is its lane's, and
 * must stay until enter returns, or end for the leader's own.
 */
#ifndef SL_SINK_JOIN_H
#define SL_SINK_JOIN_H

#include "base/thread.h"

struct sl__join_entry {
	struct sl__join_entry *next;
	bool done;
};

struct sl__join {
	const struct sl_env *env;
	sl__mutex mu;
	sl__cond moved; /* one is done, or the lead is free */
	struct sl__join_entry *first, *last;
	bool led;
};

void sl__join_init(struct sl__join *j, const struct sl_env *env);
void sl__join_fini(struct sl__join *j);
/* true: the caller leads, and its entry is the first of those that it takes. false: another lane has done it. */
SL_MUST_CHECK bool sl__join_enter(struct sl__join *j, struct sl__join_entry *e);
/* For the leader: the one that waits longest, to be done as well. NULL: none waits. */
struct sl__join_entry *sl__join_next(struct sl__join *j);
/* The leader has done these n. */
void sl__join_end(struct sl__join *j, struct sl__join_entry *const *done, size_t n);

#endif
