/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool of minders. One is forked when an attempt finds none idle, so there are as many as attempts ever ran at the
 * same time; the one that was used last is used first. Each has one spool for its life.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jobs/exec/priv.h"

#include "base/child.h"

#define NAME_TRIES 100

static void free_minder(sl_exec *x, struct sl__minder *m)
{
	if (m->ctl >= 0)
		(void)close(m->ctl);
	/* Another part of the program may have reaped it. */
	if (m->pid > 0)
		(void)sl__child_wait(m->pid, NULL);
	sl__close_fd(&x->env, &m->spool);
	if (m->shared != NULL)
		(void)munmap(m->shared, sizeof(*m->shared));
	sl__free(&x->env, m->path);
	sl__free(&x->env, m);
}

void sl__minder_end(sl_exec *x, struct sl__minder *m)
{
	/* While it is still locked: then it is not taken for one that is to be recovered. */
	if (m->path != NULL && m->spool >= 0)
		(void)SL__IO(&x->env, unlink, m->path);
	free_minder(x, m);
}

static struct sl__minder *pop_idle(sl_exec *x, bool *many)
{
	sl__lock(&x->mu);
	struct sl__minder *m = x->idle;
	if (m != NULL) {
		x->idle = m->next;
		x->running++;
	}
	*many = atomic_load(&x->n_settling) > x->running + 1;
	sl__unlock(&x->mu);
	return m;
}

/* Shared memory, a spool, a socket, and the process. After a failure the caller ends m. */
static int start_minder(sl_exec *x, struct sl__minder *m, struct sl_err *err)
{
	int pair[2];
	void *p = mmap(NULL, sizeof(*m->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		       0);
	if (p == MAP_FAILED)
		return sl_err_set_errno(err, errno, "start a minder: mmap");
	m->shared = p;
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
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "lock %s", m->path);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return sl_err_set_errno(err, errno, "start a minder: socketpair");
	m->ctl = pair[0];
	m->pid = fork();
	int why = errno;
	if (m->pid == 0) {
		const struct sl__minder_start start = {.shared = m->shared,
						       .area = &x->env_area,
						       .user = x->user,
						       .ctl = pair[1],
						       .spool = m->spool,
						       .parent = x->pid};
		sl__minder_main(&start);
	}
	(void)close(pair[1]);
	return m->pid < 0 ? sl_err_set_errno(err, why, "start a minder: fork") : 0;
}

int sl__minder_acquire(sl_exec *x, struct sl__minder **out, struct sl_err *err)
{
	bool many;
	*out = pop_idle(x, &many);
	if (*out == NULL && atomic_load(&x->n_settling) > 0) {
		/* Twice as many as run is enough: then the disk is what limits. */
		sl__minder_settled(x, many);
		*out = pop_idle(x, &many);
	}
	if (*out != NULL)
		return 0;
	struct sl__minder *m = sl__calloc(&x->env, 1, sizeof(*m));
	if (m == NULL)
		return sl_err_set(err, SL_ENOMEM, "start a minder: out of memory");
	m->ctl = m->spool = -1;
	int rc = start_minder(x, m, err);
	if (rc != 0) {
		sl__minder_end(x, m);
		return rc;
	}
	sl__lock(&x->mu);
	x->running++;
	sl__unlock(&x->mu);
	*out = m;
	return 0;
}

static void make_idle(sl_exec *x, struct sl__minder *m)
{
	if (m->dead) {
		sl__minder_end(x, m);
		return;
	}
	sl__lock(&x->mu);
	m->next = x->idle;
	x->idle = m;
	sl__unlock(&x->mu);
}

void sl__minder_release(sl_exec *x, struct sl__minder *m)
{
	make_idle(x, m);
	sl__lock(&x->mu);
	x->running--;
	sl__unlock(&x->mu);
}

static void retire_minder(sl_exec *x, struct sl__minder *m)
{
	struct sl__retired *r = sl__calloc(&x->env, 1, sizeof(*r));
	if (r != NULL) {
		r->path = m->path;
		m->path = NULL;
		sl__lock(&x->mu);
		r->next = x->retired;
		x->retired = r;
		x->retry_retired_ns = sl__exec_now_ns() + 1000000000;
		sl__unlock(&x->mu);
	}
	/* Without memory for that the spool stays too, and is recovered when the log is opened next. */
	free_minder(x, m);
}

void sl__minder_retire(sl_exec *x, struct sl__minder *m)
{
	retire_minder(x, m);
	sl__lock(&x->mu);
	x->running--;
	sl__unlock(&x->mu);
}

/* ---- settling ---- */

static void add_settling(sl_exec *x, struct sl__minder *m)
{
	sl__lock(&x->mu);
	m->next = x->settling;
	x->settling = m;
	(void)atomic_fetch_add(&x->n_settling, 1);
	sl__unlock(&x->mu);
}

void sl__minder_settled(sl_exec *x, bool wait)
{
	sl__lock(&x->mu);
	struct sl__minder *next, *m = x->settling;
	x->settling = NULL;
	atomic_store(&x->n_settling, 0);
	sl__unlock(&x->mu);
	for (; m != NULL; m = next) {
		struct sl_err err = SL_ERR_INIT;
		next = m->next;
		int rc = sl_wal_wait(x->events, &m->ticket, wait ? SL_UNLIMITED : 0, &err);
		if (rc == SL_ETIMEDOUT) {
			add_settling(x, m);
			continue;
		}
		if (rc == 0) {
			sl__exec_saw(x, m->ticket.sequence);
			m->header.flags |= SL__SPOOL_DONE;
			rc = sl__minder_write_header(x, m, &m->header, &err);
		}
		if (rc == 0)
			make_idle(x, m);
		else
			retire_minder(x, m);
	}
}

void sl__minder_settle(sl_exec *x, struct sl__minder *m, const struct sl_wal_ticket *ticket,
		       const struct sl__spool_header *header)
{
	m->ticket = *ticket;
	m->header = *header;
	add_settling(x, m);
	sl__lock(&x->mu);
	bool last = --x->running == 0;
	sl__unlock(&x->mu);
	if (last)
		sl__minder_settled(x, true);
}

void sl__exec_saw(sl_exec *x, uint64_t sequence)
{
	uint64_t known = atomic_load(&x->sequence);
	while (known < sequence && !atomic_compare_exchange_weak(&x->sequence, &known, sequence))
		;
}

int sl__minder_write_header(const sl_exec *x, const struct sl__minder *m, const struct sl__spool_header *header,
			    struct sl_err *err)
{
	uint8_t bytes[SL__SPOOL_HEADER];
	sl__spool_put_header(bytes, header);
	int rc = sl__pwrite_full(&x->env, m->spool, bytes, sizeof(bytes), 0);
	return rc < 0 ? sl_err_set_errno(err, -rc, "write %s", m->path) : 0;
}

/* ---- messages ---- */

bool sl__minder_run(struct sl__minder *m, const int fds[SL__MINDER_FDS])
{
	char what = 'R';
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int) * SL__MINDER_FDS)];
	} control = {.bytes = {0}};
	struct iovec iov = {&what, 1};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
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

void sl__minder_send(struct sl__minder *m, char what)
{
	(void)send(m->ctl, &what, 1, MSG_NOSIGNAL);
}
