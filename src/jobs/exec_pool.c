/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Minders. One is forked when an attempt finds none idle, so there are as many as attempts ever ran at once; the one
 * that was used last is used first. Each has one spool for its life.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jobs/exec_priv.h"

#define NAME_TRIES 100

static int make_spool(sl_exec *x, struct sl__minder *m, struct sl_err *err)
{
	for (int i = 0; i < NAME_TRIES; i++) {
		sl__lock(&x->mu);
		uint64_t number = sl__prng_next(&x->prng);
		sl__unlock(&x->mu);
		sl__free(&x->env, m->path);
		m->path = sl__asprintf(&x->env, "%s/%016llx.spool", x->spool_dir, (unsigned long long)number);
		if (m->path == NULL)
			return sl_err_set(err, SL_ENOMEM, "spool of a command: out of memory");
		m->spool = SL__IO(&x->env, open, m->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
		if (m->spool != -EEXIST)
			break;
	}
	if (m->spool < 0)
		return sl_err_set_errno(err, -m->spool, "create %s", m->path);
	int rc = SL__IO(&x->env, lock, m->spool);
	return rc < 0 ? sl_err_set_errno(err, -rc, "lock %s", m->path) : 0;
}

static int fork_minder(sl_exec *x, struct sl__minder *m, struct sl_err *err)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return sl_err_set_errno(err, errno, "start a minder: socketpair");
	m->ctl = pair[0];
	m->pid = fork();
	int why = errno;
	if (m->pid == 0)
		sl__minder_main(m->shared, pair[1], m->spool, x->pid);
	(void)close(pair[1]);
	return m->pid < 0 ? sl_err_set_errno(err, why, "start a minder: fork") : 0;
}

static int make_minder(sl_exec *x, struct sl__minder *m, struct sl_err *err)
{
	void *p = mmap(NULL, sizeof *m->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		       0);
	if (p == MAP_FAILED)
		return sl_err_set_errno(err, errno, "start a minder: mmap");
	m->shared = p;
	int rc = make_spool(x, m, err);
	return rc != 0 ? rc : fork_minder(x, m, err);
}

static void end_process(struct sl__minder *m)
{
	if (m->ctl >= 0)
		(void)close(m->ctl);
	m->ctl = -1;
	/* Somebody else in the program may have reaped it. */
	while (m->pid > 0 && waitpid(m->pid, NULL, 0) < 0 && errno == EINTR)
		;
	m->pid = 0;
}

static void free_minder(sl_exec *x, struct sl__minder *m)
{
	end_process(m);
	sl__close_fd(&x->env, &m->spool);
	if (m->shared != NULL)
		(void)munmap(m->shared, sizeof *m->shared);
	sl__free(&x->env, m->path);
	sl__free(&x->env, m);
}

void sl__minder_discard(sl_exec *x, struct sl__minder *m)
{
	/* While it is still locked: nobody takes it for one that is to be recovered. */
	if (m->path != NULL && m->spool >= 0)
		(void)SL__IO(&x->env, unlink, m->path);
	free_minder(x, m);
}

int sl__minder_acquire(sl_exec *x, struct sl__minder **out, struct sl_err *err)
{
	sl__lock(&x->mu);
	struct sl__minder *m = x->idle;
	if (m != NULL)
		x->idle = m->next;
	sl__unlock(&x->mu);
	if (m == NULL) {
		m = sl__calloc(&x->env, 1, sizeof *m);
		if (m == NULL)
			return sl_err_set(err, SL_ENOMEM, "start a minder: out of memory");
		m->ctl = m->spool = -1;
		int rc = make_minder(x, m, err);
		if (rc != 0) {
			sl__minder_discard(x, m);
			return rc;
		}
	}
	*out = m;
	return 0;
}

void sl__minder_release(sl_exec *x, struct sl__minder *m)
{
	if (m->dead) {
		sl__minder_discard(x, m);
		return;
	}
	sl__lock(&x->mu);
	m->next = x->idle;
	x->idle = m;
	sl__unlock(&x->mu);
}

void sl__minder_retire(sl_exec *x, struct sl__minder *m)
{
	struct sl__retired *r = sl__calloc(&x->env, 1, sizeof *r);
	if (r != NULL) {
		r->path = m->path;
		m->path = NULL;
		sl__lock(&x->mu);
		r->next = x->retired;
		x->retired = r;
		x->retry_retired_ns = sl__clock_real.mono_ns(NULL) + 1000000000;
		sl__unlock(&x->mu);
	}
	/* Without memory for that the spool stays too, for whoever opens the log next. */
	free_minder(x, m);
}

bool sl__minder_run(struct sl__minder *m, const int fds[SL__MINDER_FDS])
{
	char what = 'R';
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int) * SL__MINDER_FDS)];
	} control = {.bytes = {0}};
	struct iovec iov = {&what, 1};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int) * SL__MINDER_FDS);
	memcpy(CMSG_DATA(head), fds, sizeof(int) * SL__MINDER_FDS);
	ssize_t sent;
	do
		sent = sendmsg(m->ctl, &msg, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	m->dead = sent != 1;
	return !m->dead;
}

void sl__minder_tell(struct sl__minder *m, char what)
{
	(void)send(m->ctl, &what, 1, MSG_NOSIGNAL);
}
