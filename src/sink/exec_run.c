/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input goes through a file of memory and not through a pipe: the program has all of it before it starts, however
 * this process ends, and one that does not read it blocks no other and raises no SIGPIPE.
 */
#include "sink/exec_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"

#define GRACE_MS 2000 /* from SIGTERM to SIGKILL */
#define POLL_MS 20    /* without a pidfd the end is polled for */
#define CANNOT_START 127

struct run {
	const struct sl__exec_program *program;
	struct sl__exec_result *out;
	int input;    /* the file of memory */
	int err[2];   /* its standard error */
	int start[2]; /* closed by a successful exec; else the errno */
	int pidfd;    /* -1: the kernel gives none */
	pid_t pid;
	int64_t deadline_ns;
	bool cut_short; /* SIGTERM or SIGKILL was sent */
};

static int64_t now_ns(void)
{
	return sl__clock_real.mono_ns(NULL);
}

static void shut(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

/* Away from 0, 1 and 2, which a host may have closed: there the program's own are put. */
static int lift(int fd)
{
	if (fd < 0 || fd > 2)
		return fd;
	int high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	int why = errno;
	(void)close(fd);
	errno = why;
	return high;
}

static int make_pipe(int fds[2])
{
	int raw[2];
	if (pipe2(raw, O_CLOEXEC) != 0)
		return -errno;
	fds[0] = lift(raw[0]);
	fds[1] = lift(raw[1]);
	return fds[0] < 0 || fds[1] < 0 ? -EMFILE : 0;
}

/* ---- input ---- */

static int make_input(struct run *r, const void *data, size_t len)
{
	r->input = lift(memfd_create("sluice-batch", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (r->input < 0)
		return -errno;
	for (const char *p = data; len > 0;) {
		ssize_t put = write(r->input, p, len);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -errno;
		p += put;
		len -= (size_t)put;
	}
	(void)fcntl(r->input, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
	return lseek(r->input, 0, SEEK_SET) == 0 ? 0 : -errno;
}

/* ---- starting ---- */

/* In the child of a vfork: only calls that are safe there. */
static _Noreturn void become(const struct run *r, pid_t parent)
{
	sigset_t none;
	int why;
	(void)setpgid(0, 0);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(CANNOT_START); /* it died before the signal was set */
	sl__signals_default();
	(void)close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	if (dup2(r->input, 0) >= 0 && dup2(r->err[1], 2) >= 0) {
		(void)sigemptyset(&none);
		(void)sigprocmask(SIG_SETMASK, &none, NULL);
		(void)execvpe(r->program->argv[0], r->program->argv, r->program->envp);
	}
	why = errno;
	(void)!write(r->start[1], &why, sizeof(why));
	_exit(CANNOT_START);
}

static SL_NOINLINE pid_t start(const struct run *r)
{
	pid_t parent = getpid(), pid = vfork();
	if (pid == 0)
		become(r, parent);
	return pid;
}

/* 0, or the errno with which it was not started. */
static int spawn(struct run *r)
{
	sigset_t all, old;
	int why = 0;
	/* No handler of the host may run in the child while it shares our memory. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r->pid = start(r);
	if (r->pid < 0)
		why = errno;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	shut(&r->start[1]);
	shut(&r->err[1]);
	if (r->pid < 0)
		return -why;
	ssize_t got;
	do
		got = read(r->start[0], &why, sizeof(why));
	while (got < 0 && errno == EINTR);
	if (got != (ssize_t)sizeof(why))
		return 0;
	while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR)
		;
	r->pid = -1;
	return -why;
}

/* ---- its end ---- */

/* Read what is there now, and keep the last SL__EXEC_TAIL bytes. */
static void read_stderr(struct run *r)
{
	struct sl__exec_result *out = r->out;
	char buf[SL__EXEC_TAIL];
	for (;;) {
		ssize_t got = read(r->err[0], buf, sizeof(buf));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EAGAIN)
			return;
		if (got <= 0)
			break;
		size_t n = (size_t)got, keep = SL_MIN(out->tail_len, SL__EXEC_TAIL - n);
		memmove(out->tail, out->tail + out->tail_len - keep, keep);
		memcpy(out->tail + keep, buf, n);
		out->tail_len = keep + n;
		out->tail[out->tail_len] = '\0';
	}
	shut(&r->err[0]);
}

static void cut_short(struct run *r, enum sl__exec_end end, int number)
{
	if (r->out->end == SL__EXEC_EXITED)
		r->out->end = end;
	r->cut_short = true;
	(void)kill(-r->pid, number);
	(void)kill(-r->pid, SIGCONT); /* one that is stopped could not end */
	r->deadline_ns = number == SIGTERM ? now_ns() + (int64_t)GRACE_MS * 1000000 : SL_FOREVER;
}

/* Wait for its end and reap it. */
static void follow(struct run *r)
{
	for (;;) {
		/* It stays a zombie, and the number of its group its own, until it is reaped. */
		siginfo_t info = {0};
		int rc = waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT);
		if ((rc == 0 && info.si_pid == r->pid) || (rc != 0 && errno == ECHILD))
			break;
		bool killed = r->cut_short && r->deadline_ns == SL_FOREVER;
		struct pollfd p[] = {{.fd = r->pidfd, .events = POLLIN},
				     {.fd = r->err[0], .events = POLLIN},
				     {.fd = killed ? -1 : r->program->cancel, .events = POLLIN}};
		int64_t left = -1;
		if (r->deadline_ns != SL_FOREVER) {
			left = (r->deadline_ns - now_ns() + 999999) / 1000000;
			left = SL_MIN(SL_MAX(left, 0), INT32_MAX);
		}
		if (r->pidfd < 0)
			left = left < 0 ? POLL_MS : SL_MIN(left, POLL_MS);
		if (poll(p, SL_COUNT(p), (int)left) < 0)
			continue;
		if (p[1].revents != 0)
			read_stderr(r);
		if (p[2].revents != 0)
			cut_short(r, SL__EXEC_CANCELLED, SIGKILL);
		else if (now_ns() >= r->deadline_ns)
			cut_short(r, SL__EXEC_TIMED_OUT, r->cut_short ? SIGKILL : SIGTERM);
	}
	if (r->cut_short)
		(void)kill(-r->pid, SIGKILL); /* what is left of the group */
	pid_t got;
	do
		got = waitpid(r->pid, &r->out->status, 0);
	while (got < 0 && errno == EINTR);
	if (got < 0 && r->out->end == SL__EXEC_EXITED)
		r->out->end = SL__EXEC_LOST;
	if (r->err[0] >= 0)
		read_stderr(r);
}

/* ---- all of it ---- */

int sl__exec_run_program(const struct sl__exec_program *p, const void *input, size_t len, struct sl__exec_result *out,
			 struct sl_err *err)
{
	struct run r = {.program = p, .out = out, .input = -1, .err = {-1, -1}, .start = {-1, -1}, .pidfd = -1};
	*out = (struct sl__exec_result){.end = SL__EXEC_EXITED};
	r.deadline_ns = p->timeout_ms < 0 ? SL_FOREVER : now_ns() + SL_MIN(p->timeout_ms, INT32_MAX) * 1000000;
	int rc = make_input(&r, input, len);
	if (rc == 0)
		rc = make_pipe(r.err);
	if (rc == 0)
		rc = make_pipe(r.start);
	if (rc == 0 && fcntl(r.err[0], F_SETFL, O_NONBLOCK) != 0)
		rc = -errno;
	if (rc == 0)
		rc = spawn(&r);
	if (rc == 0) {
		shut(&r.input);
		r.pidfd = (int)syscall(SYS_pidfd_open, r.pid, 0);
		follow(&r);
	}
	int *const fds[] = {&r.input, &r.err[0], &r.err[1], &r.start[0], &r.start[1], &r.pidfd};
	for (size_t i = 0; i < SL_COUNT(fds); i++)
		shut(fds[i]);
	if (rc == 0)
		return 0;
	if (rc == -EAGAIN)
		return sl_err_set(err, SL_EAGAIN, "exec: the system has no room for another process");
	if (rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || rc == -ENOSPC)
		return sl_err_set(err, SL_ENOMEM, "exec: start %s: %s", p->argv[0], strerror(-rc));
	return sl_err_set(err, SL_EUNAVAIL, "exec: %s cannot be started: %s", p->argv[0], strerror(-rc));
}
