/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock that every writer and every checkpoint of one SQLite file holds: an exclusive flock on "<file>-lock", and
 * before it a queue of the threads of this process, first come, first served. Debian 12's SQLite (3.40) may lose
 * frames when several connections write and checkpoint at once; under this lock they never do.
 *
 * The kernel drops the lock with its process, so a killed holder blocks no other process. A holder that is stopped
 * blocks everybody until their deadlines. Who waits for another process sleeps in the kernel, in a helper thread that
 * is made when it is first needed; it can be left behind there when a deadline passes. Not guaranteed: an order between
 * processes stricter than the kernel's.
 *
 * Thread safety: every function from any thread; a holder may release on another thread than it acquired on.
 * Ownership: the lock is free of the database's connections; close it when no thread holds or wants it.
 */
#ifndef SL_DB_SQLITE_LOCK_H
#define SL_DB_SQLITE_LOCK_H

#include "base/thread.h"

struct sl__sqlite_lock_waiter;

enum sl__keeper_state {
	SL__KEEPER_IDLE = 0,
	SL__KEEPER_WANTED = 1, /* the helper thread sleeps in flock, or is about to */
	SL__KEEPER_GOT = 2,    /* it has the lock for a waiting thread */
	SL__KEEPER_FAILED = 3  /* flock failed: keeper_errno */
};

struct sl__sqlite_lock {
	const struct sl_env *env;
	char *path;
	int fd; /* of the real table; -1 when closed */
	sl__mutex mu;
	bool held; /* by a thread of this process, also while that waits for the flock */
	struct sl__sqlite_lock_waiter *first, *last;
	/* The helper. While its state is not idle no other thread may touch the flock: both would own the same one. */
	enum sl__keeper_state keeper;
	bool keeper_awaited; /* false: its waiter gave up, the flock is to be given back */
	int keeper_errno;
	bool keeper_started, stopping;
	pthread_t keeper_thread;
	sl__cond keeper_wake, keeper_done;
};

/* path: the database's real name. SL_EACCES and the like when the lock file cannot be made. */
SL_MUST_CHECK int sl__sqlite_lock_open(struct sl__sqlite_lock *l, const struct sl_env *env, const char *path,
				       struct sl_err *err);
void sl__sqlite_lock_close(struct sl__sqlite_lock *l);
/* SL_EAGAIN when it was not to be had within timeout_ms (SL_UNLIMITED: waits for ever). SL_EUNAVAIL when the file
 * system has no locks to give (ENOLCK): no process need hold it then. */
SL_MUST_CHECK int sl__sqlite_lock_acquire(struct sl__sqlite_lock *l, int64_t timeout_ms, struct sl_err *err);
void sl__sqlite_lock_release(struct sl__sqlite_lock *l);

#endif
