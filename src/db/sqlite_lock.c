/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two steps: the queue of this process, then the flock.
 *
 * flock has no deadline, so only the attempt that does not wait is made on the caller's thread. When another process
 * has the lock, the helper thread sleeps in flock and the caller on a condition. When the caller's deadline passes
 * first, the helper stays in flock: the next caller finds it there and waits for it instead of asking anew.
 *
 *   IDLE ──wanted──▶ WANTED ──flock succeeded, awaited──▶ GOT ──────taken──▶ IDLE
 *                       ├─────flock failed, awaited─────▶ FAILED ───read──▶ IDLE
 *                       └─────flock returned, not awaited: unlock─────────▶ IDLE
 */
#include "db/sqlite_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

struct sl__sqlite_lock_waiter {
	struct sl__sqlite_lock_waiter *next;
	sl__cond cond;
	bool granted;
};

int sl__sqlite_lock_open(struct sl__sqlite_lock *l, const struct sl_env *env, const char *path, struct sl_err *err)
{
	memset(l, 0, sizeof(*l));
	l->env = env;
	l->fd = -1;
	l->path = sl__asprintf(env, "%s-lock", path);
	if (l->path == NULL)
		return sl_err_set(err, SL_ENOMEM, "%s: out of memory", path);
	/* SQLite works on real files, and so does its lock. */
	l->fd = sl__io_real.open(l->path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600, NULL);
	if (l->fd < 0) {
		int rc = sl_err_set_errno(err, -l->fd, "open the lock file %s", l->path);
		sl__free(env, l->path);
		l->path = NULL;
		return rc;
	}
	sl__mutex_init(&l->mu);
	sl__cond_init(&l->keeper_wake);
	sl__cond_init(&l->keeper_done);
	return 0;
}

void sl__sqlite_lock_close(struct sl__sqlite_lock *l)
{
	if (l->path == NULL)
		return;
	sl__lock(&l->mu);
	assert(!l->held && l->first == NULL);
	l->stopping = true;
	bool started = l->keeper_started;
	sl__signal(&l->keeper_wake);
	/* In flock the helper hears nothing but this; elsewhere it cannot be cancelled and sees `stopping`. */
	if (started && l->keeper == SL__KEEPER_WANTED)
		(void)pthread_cancel(l->keeper_thread);
	sl__unlock(&l->mu);
	if (started)
		(void)pthread_join(l->keeper_thread, NULL);
	(void)sl__io_real.close(l->fd, NULL);
	sl__cond_fini(&l->keeper_done);
	sl__cond_fini(&l->keeper_wake);
	sl__mutex_fini(&l->mu);
	sl__free(l->env, l->path);
	l->path = NULL;
}

/* ---- between processes ---- */

static int flock_retry(int fd, int how)
{
	int rc;
	do
		rc = flock(fd, how);
	while (rc != 0 && errno == EINTR);
	if (rc != 0)
		return -errno;
	return 0;
}

/* The only place where the helper may be cancelled: nothing but the kernel knows of the lock yet, and closing the
 * descriptor gives it back. No frame on this stack has a local whose address is taken, so nothing is left poisoned for
 * the address sanitizer when the stack is unwound. */
static int flock_cancellable(int fd)
{
	(void)pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	(void)pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	int rc = flock_retry(fd, LOCK_EX);
	(void)pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	return rc;
}

static void *keeper_main(void *arg)
{
	struct sl__sqlite_lock *l = arg;
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	sl__lock(&l->mu);
	while (!l->stopping) {
		if (l->keeper != SL__KEEPER_WANTED) {
			(void)sl__wait(l->env, &l->keeper_wake, &l->mu, SL_FOREVER);
			continue;
		}
		sl__unlock(&l->mu);
		int rc = flock_cancellable(l->fd);
		sl__lock(&l->mu);
		if (l->keeper_awaited) {
			l->keeper = rc == 0 ? SL__KEEPER_GOT : SL__KEEPER_FAILED;
			l->keeper_errno = -rc;
			sl__broadcast(&l->keeper_done);
			continue;
		}
		(void)flock_retry(l->fd, LOCK_UN);
		l->keeper = SL__KEEPER_IDLE;
	}
	sl__unlock(&l->mu);
	return NULL;
}

static int flock_error(const struct sl__sqlite_lock *l, int sys_errno, struct sl_err *err)
{
	if (sys_errno != ENOLCK)
		return sl_err_set_errno(err, sys_errno, "lock %s", l->path);
	int rc = sl_err_set(
		err, SL_EUNAVAIL,
		"lock %s: no locks available; its file system must support flock (on NFS: start its lock service)",
		l->path);
	if (err != NULL)
		err->sys_errno = sys_errno;
	return rc;
}

static int lock_file(struct sl__sqlite_lock *l, int64_t deadline_ns, struct sl_err *err) SL_REQUIRES(l->mu)
{
	if (l->keeper == SL__KEEPER_IDLE) {
		int rc = flock_retry(l->fd, LOCK_EX | LOCK_NB);
		if (rc == 0)
			return 0;
		if (rc != -EWOULDBLOCK)
			return flock_error(l, -rc, err);
	}

	/* Another process has it: the helper waits in flock. */
	if (!l->keeper_started) {
		int rc = sl__thread_start(&l->keeper_thread, "sl-sqlite-lock", keeper_main, l);
		if (rc != 0)
			return sl__thread_error(err, rc, "lock", l->path);
		l->keeper_started = true;
	}
	l->keeper_awaited = true;
	if (l->keeper == SL__KEEPER_IDLE)
		l->keeper = SL__KEEPER_WANTED;
	sl__signal(&l->keeper_wake);
	while (l->keeper == SL__KEEPER_WANTED)
		if (!sl__wait(l->env, &l->keeper_done, &l->mu, deadline_ns) && l->keeper == SL__KEEPER_WANTED) {
			l->keeper_awaited = false;
			return sl_err_set(err, SL_EAGAIN, "%s is locked by another process; try again", l->path);
		}
	int rc = l->keeper == SL__KEEPER_GOT ? 0 : flock_error(l, l->keeper_errno, err);
	l->keeper = SL__KEEPER_IDLE;
	return rc;
}

/* ---- inside the process ---- */

static void leave_queue(struct sl__sqlite_lock *l, struct sl__sqlite_lock_waiter *w) SL_REQUIRES(l->mu)
{
	struct sl__sqlite_lock_waiter *before = NULL;
	for (struct sl__sqlite_lock_waiter *at = l->first; at != w; at = at->next)
		before = at;
	if (before != NULL)
		before->next = w->next;
	else
		l->first = w->next;
	if (l->last == w)
		l->last = before;
}

/* The next in the queue gets it, if there is one. */
static void pass_on(struct sl__sqlite_lock *l) SL_REQUIRES(l->mu)
{
	struct sl__sqlite_lock_waiter *w = l->first;
	l->held = w != NULL;
	if (w == NULL)
		return;
	leave_queue(l, w);
	w->granted = true;
	sl__signal(&w->cond);
}

static bool enter(struct sl__sqlite_lock *l, int64_t deadline_ns) SL_REQUIRES(l->mu)
{
	if (!l->held) {
		l->held = true;
		return true;
	}
	struct sl__sqlite_lock_waiter w = {.next = NULL};
	sl__cond_init(&w.cond);
	if (l->last != NULL)
		l->last->next = &w;
	else
		l->first = &w;
	l->last = &w;
	while (!w.granted)
		if (!sl__wait(l->env, &w.cond, &l->mu, deadline_ns))
			break;
	if (!w.granted)
		leave_queue(l, &w);
	sl__cond_fini(&w.cond);
	return w.granted;
}

int sl__sqlite_lock_acquire(struct sl__sqlite_lock *l, int64_t timeout_ms, struct sl_err *err)
{
	int64_t deadline_ns = sl__deadline_ns(l->env, timeout_ms);
	sl__lock(&l->mu);
	int rc = 0;
	if (!enter(l, deadline_ns)) {
		rc = sl_err_set(err, SL_EAGAIN, "another transaction of this process is open for too long; try again");
	} else {
		rc = lock_file(l, deadline_ns, err);
		if (rc != 0)
			pass_on(l);
	}
	sl__unlock(&l->mu);
	return rc;
}

void sl__sqlite_lock_release(struct sl__sqlite_lock *l)
{
	sl__lock(&l->mu);
	assert(l->held);
	(void)flock_retry(l->fd, LOCK_UN);
	pass_on(l);
	sl__unlock(&l->mu);
}
