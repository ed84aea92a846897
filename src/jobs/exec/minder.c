/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The minder's process, and the pump that moves what pipes hold into a spool.
 *
 * After the fork the process closes everything that it does not need, above all the worker's log, whose lock must end
 * with the worker. Descriptors in it: 0 to 4 are all its end of the socket (so that none of the command's numbers is
 * ever taken), 5 is the spool, 6 the worker's pidfd.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jobs/exec/minder.h"

#include "base/child.h"
#include "base/thread.h"

#define CTL 4
#define SPOOL 5
#define CHECK_MS 100    /* how often to check what is not signalled */
#define LEASH_FD 240    /* in the command: out of the way of what scripts open */
#define EBB_MS 2        /* longest wait for the exit after a pipe was closed */
#define GIVE_UP_MS 1000 /* longest wait for space after the end of an attempt that must end */

struct minder {
	struct sl__minder_shared *shared;
	struct sl__pump pump;
	const struct sl__exec_user *user; /* of the commands; NULL: the same */
	char folder[PATH_MAX];            /* the working folder, by its path, for commands of another user */
	pid_t self;
	int worker;  /* pidfd, or -1 */
	int command; /* pidfd, or -1 */
	pid_t pid;
	int leash[2];       /* a pipe: its read end is the command's, its write end here; -1: closed */
	bool orphan;        /* the worker is gone */
	bool terminating;   /* the worker wants it to end */
	bool exited;        /* the command has, and is not reaped */
	bool full;          /* the spool has no space */
	bool ebbing;        /* a pipe was closed: most likely the command is about to exit */
	uint64_t signalled; /* the end of the spool that the worker was sent a 'D' for */
	int64_t kill_at_ns, linger_until_ns;
};

/* ---- the pump ---- */

int sl__pump_write(struct sl__pump *p, enum sl__frame_kind kind, const void *payload, size_t n)
{
	struct sl__minder_shared *sh = p->shared;
	uint8_t frame[SL__SPOOL_FRAME];
	union {
		const void *in;
		void *out;
	} bytes = {payload};
	struct iovec iov[2] = {{frame, sizeof(frame)}, {bytes.out, n}};
	uint64_t end = atomic_load_explicit(&sh->end, memory_order_relaxed);
	struct sl__frame f = {
		.kind = kind, .offset = end, .ts_ms = sl__clock_real.real_ms(NULL), .data = payload, .len = n};
	if (sh->sealed) {
		uint8_t nonce[SL__SPOOL_NONCE] = {0};
		sl__put64(nonce, atomic_fetch_add(&sh->n_sealed, 1));
		sl__spool_seal(sh->sealed_chunk, sh->key, nonce, sh->salt, &f);
		n += SL__SPOOL_SEAL;
		f.data = sh->sealed_chunk;
		f.len = n;
		iov[1] = (struct iovec){sh->sealed_chunk, n};
	}
	sl__spool_put_frame(frame, sh->salt, &f);
	for (uint64_t offset = end; iov[0].iov_len + iov[1].iov_len > 0;) {
		ssize_t put = pwritev(p->spool, iov, 2, (off_t)offset);
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put < 0 ? errno : ENOSPC;
		offset += (uint64_t)put;
		for (int i = 0; i < 2; i++) {
			size_t of_this = SL_MIN((size_t)put, iov[i].iov_len);
			iov[i].iov_base = (char *)iov[i].iov_base + of_this;
			iov[i].iov_len -= of_this;
			put -= (ssize_t)of_this;
		}
	}
	atomic_store_explicit(&sh->end, end + sizeof(frame) + n, memory_order_release);
	return 0;
}

int sl__pump_rescue(struct sl__pump *p)
{
	struct sl__minder_shared *sh = p->shared;
	uint32_t n = atomic_load(&sh->chunk_len);
	if (n == 0)
		return 0;
	/* When the end has moved, the chunk is in the spool already. */
	int rc = 0;
	if (atomic_load(&sh->chunk_at) == atomic_load(&sh->end))
		rc = sl__pump_write(p, (enum sl__frame_kind)atomic_load(&sh->chunk_kind), sh->chunk, n);
	if (rc == 0)
		atomic_store(&sh->chunk_len, 0);
	return rc;
}

int sl__pump_read(struct sl__pump *p, enum sl__stream stream, size_t *n)
{
	struct sl__minder_shared *sh = p->shared;
	if (n != NULL)
		*n = 0;
	int rc = sl__pump_rescue(p);
	if (rc != 0 || p->pipes[stream] < 0)
		return rc;
	atomic_store(&sh->chunk_kind, (uint32_t)SL__FRAME_STDOUT + (uint32_t)stream);
	atomic_store(&sh->chunk_at, atomic_load(&sh->end));
	uint32_t len = 0;
	while (len < SL__SPOOL_CHUNK) {
		ssize_t got = read(p->pipes[stream], sh->chunk + len, SL__SPOOL_CHUNK - len);
		if (got < 0 && errno == EINTR)
			continue;
		if (got == 0 || (got < 0 && errno != EAGAIN)) {
			(void)close(p->pipes[stream]);
			p->pipes[stream] = -1;
		}
		if (got <= 0)
			break;
		len += (uint32_t)got;
		atomic_store(&sh->chunk_len, len);
	}
	if (n != NULL)
		*n = len;
	return sl__pump_rescue(p);
}

bool sl__pump_open(const struct sl__pump *p)
{
	return p->pipes[SL__STDOUT] >= 0 || p->pipes[SL__STDERR] >= 0 || p->pipes[SL__CONTROL] >= 0;
}

/* ---- the command ---- */

/* In the child of a vfork: the minder sleeps, and what is written to the shared memory is seen by it. */
static _Noreturn void become_command(const struct minder *m, const int fds[4])
{
	struct sl__minder_shared *sh = m->shared;
	sigset_t none;
	int why = 0, leash = m->leash[0];
	sh->spawn_step = SL__SPAWN_SETUP;
	if (m->user != NULL ? setsid() < 0 : setpgid(0, 0) != 0)
		goto fail;
	sh->spawn_step = SL__SPAWN_USER;
	if (m->user != NULL && !sl__exec_user_become(m->user))
		goto fail;
	sh->spawn_step = SL__SPAWN_SETUP;
	/* After the change of the user, which resets this signal. The leash reaches only processes of the user that
	 * sets it. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		goto fail;
	if (getppid() != m->self)
		_exit(127); /* it died before the signal was set */
	for (int i = 0; i < 4; i++)
		if (dup2(fds[i], i) < 0)
			goto fail;
	/* M4. Once the last copy of the pipe's other end is gone, the kernel sends SIGKILL to the group that this
	 * process leads, whichever of its processes still has the leash. Nothing but its descriptor stays open from 4
	 * on. */
	if (fcntl(leash, F_SETOWN, -getpid()) != 0 || fcntl(leash, F_SETSIG, SIGKILL) != 0 ||
	    fcntl(leash, F_SETFL, O_RDONLY | O_ASYNC) != 0)
		goto fail;
	int keep = dup2(leash, LEASH_FD) >= 0 ? LEASH_FD : dup2(leash, 4);
	if (keep < 0)
		goto fail;
	if (keep > 4)
		(void)close_range(4, (unsigned)keep - 1, 0);
	(void)close_range((unsigned)keep + 1, ~0U, 0);
	/* Another user starts in the minder's folder only where it can go there by its path, and in the root folder
	 * otherwise: an inherited working folder would be a way around the permissions of the folders above it. */
	sh->spawn_step = SL__SPAWN_CHDIR;
	if (sh->cwd != NULL ? chdir(sh->cwd) != 0 : m->user != NULL && chdir(m->folder) != 0 && chdir("/") != 0)
		goto fail;
	sh->spawn_step = SL__SPAWN_EXEC;
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	for (const char *const *path = sh->paths; *path != NULL; path++) {
		(void)execve(*path, sh->argv, sh->envp);
		/* As execvp: a missing file is skipped, one without permission is remembered. */
		if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
			goto fail;
		if (why == 0 || errno == EACCES)
			why = errno;
	}
	errno = why;
fail:
	sh->spawn_errno = errno;
	_exit(127);
}

static SL_NOINLINE pid_t vfork_command(const struct minder *m, const int fds[4])
{
	struct sl__minder_shared *sh = m->shared;
	sh->spawn_errno = 0;
	sh->spawn_step = SL__SPAWN_FORK;
	pid_t pid = vfork();
	if (pid == 0)
		become_command(m, fds);
	if (pid < 0)
		sh->spawn_errno = errno;
	return pid;
}

/* false: it could not be started, and why is in shared memory. */
static bool spawn_command(struct minder *m, const int fds[4])
{
	int status = 0;
	if (pipe2(m->leash, O_CLOEXEC) != 0) {
		m->leash[0] = m->leash[1] = -1;
		m->shared->spawn_step = SL__SPAWN_SETUP;
		m->shared->spawn_errno = errno;
		return false;
	}
	pid_t pid = vfork_command(m, fds);
	(void)close(m->leash[0]);
	m->leash[0] = -1;
	if (m->shared->spawn_errno != 0) {
		if (pid >= 0)
			(void)sl__child_wait(pid, &status);
		return false;
	}
	m->pid = pid;
	atomic_store(&m->shared->pid, pid);
	m->command = (int)syscall(SYS_pidfd_open, pid, 0);
	return true;
}

static void kill_group(const struct minder *m, int number)
{
	if (m->pid > 0)
		(void)kill(-m->pid, number);
}

/* ---- the worker ---- */

static void send_to_worker(const struct minder *m, char what)
{
	if (!m->orphan)
		(void)send(CTL, &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void worker_is_gone(struct minder *m)
{
	m->orphan = true;
	kill_group(m, SIGKILL);
}

static void read_from_worker(struct minder *m)
{
	char what = 0;
	ssize_t got = recv(CTL, &what, 1, MSG_DONTWAIT);
	if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
		worker_is_gone(m);
	if (got != 1 || what != 'T' || m->terminating)
		return;
	m->terminating = true;
	m->kill_at_ns = sl__exec_now_ns() + m->shared->kill_grace_ms * 1000000;
	kill_group(m, SIGTERM);
	kill_group(m, SIGCONT); /* a stopped one could not end */
}

/* Is there room in the spool? Without a worker there is no limit: what the pipes hold is all that comes. */
static bool has_room(const struct minder *m)
{
	struct sl__minder_shared *sh = m->shared;
	if (m->orphan || atomic_load(&sh->end) - atomic_load(&sh->consumed) < SL__BACKLOG_MAX)
		return true;
	atomic_store(&sh->stalled, 1);
	/* Checked again: the worker reads `stalled` after it has consumed. */
	bool room = atomic_load(&sh->end) - atomic_load(&sh->consumed) < SL__BACKLOG_MAX;
	if (room)
		atomic_store(&sh->stalled, 0);
	return room;
}

/* ---- an attempt ---- */

enum { POLL_CTL, POLL_WORKER, POLL_COMMAND, POLL_PIPES, POLL_COUNT = POLL_PIPES + SL__STREAMS };

/* Poll for the worker, the command and the pipes. */
static void wait_for_input(struct minder *m, struct pollfd p[POLL_COUNT])
{
	bool reading = !m->full && has_room(m) && !m->ebbing;
	p[POLL_CTL] = (struct pollfd){.fd = m->orphan ? -1 : CTL, .events = POLLIN};
	p[POLL_WORKER] = (struct pollfd){.fd = m->orphan ? -1 : m->worker, .events = POLLIN};
	p[POLL_COMMAND] = (struct pollfd){.fd = m->exited ? -1 : m->command, .events = POLLIN};
	for (int i = 0; i < SL__STREAMS; i++)
		p[POLL_PIPES + i] = (struct pollfd){.fd = reading ? m->pump.pipes[i] : -1, .events = POLLIN};
	int64_t at = SL_MIN(m->kill_at_ns, m->linger_until_ns);
	int64_t timeout_ms = -1;
	if (at != SL_FOREVER)
		timeout_ms = SL_MIN(SL_MAX((at - sl__exec_now_ns() + 999999) / 1000000, 0), INT32_MAX);
	/* Not signalled: space in the spool, the end of a command for which there was no pidfd. */
	if (m->full || (m->command < 0 && !m->exited))
		timeout_ms = timeout_ms < 0 ? CHECK_MS : SL_MIN(timeout_ms, CHECK_MS);
	if (poll(p, POLL_COUNT, m->ebbing ? EBB_MS : (int)timeout_ms) < 0)
		for (int i = 0; i < POLL_COUNT; i++)
			p[i].revents = 0;
	if (m->ebbing)
		for (int i = 0; i < SL__STREAMS; i++)
			p[POLL_PIPES + i].revents = POLLIN;
	m->ebbing = false;
}

/* The last frame, as long as it makes sense to wait for space. */
static void write_last(struct minder *m, enum sl__frame_kind kind, uint32_t a, uint32_t b)
{
	uint8_t payload[8];
	sl__put32(payload, a);
	sl__put32(payload + 4, b);
	for (int64_t left = GIVE_UP_MS; left > 0;) {
		if (sl__pump_rescue(&m->pump) == 0 && sl__pump_write(&m->pump, kind, payload, sizeof(payload)) == 0)
			return;
		struct pollfd p = {.fd = m->orphan ? -1 : CTL, .events = POLLIN};
		(void)poll(&p, 1, CHECK_MS);
		if (p.revents != 0)
			read_from_worker(m);
		if (m->orphan || m->terminating)
			left -= CHECK_MS;
	}
}

/* From the start of the command until its pipes are empty. */
static void mind_command(struct minder *m)
{
	struct pollfd p[POLL_COUNT];
	while (!m->exited || ((sl__pump_open(&m->pump) || m->full) && sl__exec_now_ns() < m->linger_until_ns)) {
		wait_for_input(m, p);
		if (p[POLL_CTL].revents != 0)
			read_from_worker(m);
		if (p[POLL_WORKER].revents != 0)
			worker_is_gone(m);
		siginfo_t info = {0}; /* does not reap */
		if (p[POLL_COMMAND].revents != 0 ||
		    (m->command < 0 && waitid(P_PID, (id_t)m->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		     info.si_pid == m->pid))
			m->exited = true;
		if (m->full)
			m->full = sl__pump_rescue(&m->pump) != 0;
		for (int i = 0; i < SL__STREAMS && !m->full; i++) {
			bool open = m->pump.pipes[i] >= 0;
			if (open && p[POLL_PIPES + i].revents != 0)
				m->full = sl__pump_read(&m->pump, (enum sl__stream)i, NULL) != 0;
			/* A command that exits closes its descriptors one by one: reading all of them once is cheaper
			 * than three times, so the next thing to wait for is its end, for EBB_MS. */
			m->ebbing |= open && m->pump.pipes[i] < 0 && !m->exited;
		}
		int64_t now = sl__exec_now_ns();
		if (now >= m->kill_at_ns) {
			kill_group(m, SIGKILL);
			m->kill_at_ns = SL_FOREVER;
		}
		/* While the spool has no room it is not the command's fault that the pipes stay open. */
		bool patient = m->exited && (m->full || !has_room(m)) && !m->orphan && !m->terminating;
		if (patient)
			m->linger_until_ns = SL_FOREVER;
		else if (m->exited && m->linger_until_ns == SL_FOREVER)
			m->linger_until_ns = now + (int64_t)(m->full ? GIVE_UP_MS : SL__LINGER_MS) * 1000000;
		/* Only output is signalled: the worker checks for the start itself, and gets an 'E' for the end. */
		uint64_t end = atomic_load(&m->shared->end);
		if (end != m->signalled && atomic_exchange(&m->shared->want_poke, 0) != 0) {
			m->signalled = end;
			send_to_worker(m, 'D');
		}
	}
	kill_group(m, SIGKILL);
	/* What is in the pipes now, and not what a process that left the group continues to write. */
	for (int i = 0; i < SL__STREAMS; i++) {
		size_t n = 1;
		for (size_t sum = 0; n > 0 && sum < SL__BACKLOG_MAX && m->pump.pipes[i] >= 0; sum += n)
			if (sl__pump_read(&m->pump, (enum sl__stream)i, &n) != 0)
				return;
	}
}

static void run_under_minder(struct minder *m, const int fds[SL__MINDER_FDS])
{
	uint8_t number[4];
	int status = 0;
	m->pid = 0;
	m->terminating = m->exited = m->full = m->ebbing = false;
	m->command = -1;
	m->kill_at_ns = m->linger_until_ns = SL_FOREVER;
	for (int i = 0; i < SL__STREAMS; i++)
		m->pump.pipes[i] = fds[4 + i];
	bool started = spawn_command(m, fds);
	for (int i = 0; i < 4; i++)
		(void)close(fds[i]);
	if (started) {
		sl__put32(number, (uint32_t)m->pid);
		m->full = sl__pump_write(&m->pump, SL__FRAME_STARTED, number, sizeof(number)) != 0;
		m->signalled = atomic_load(&m->shared->end);
		mind_command(m);
		(void)sl__child_wait(m->pid, &status);
		atomic_store(&m->shared->pid, 0);
		if (m->command >= 0)
			(void)close(m->command);
	}
	/* Where a vfork is a fork (under a sanitizer), a start that failed shows only after the end. */
	if (!started || m->shared->spawn_errno != 0)
		write_last(m, SL__FRAME_FAILED, (uint32_t)m->shared->spawn_errno, (uint32_t)m->shared->spawn_step);
	else if (WIFSIGNALED(status))
		write_last(m, SL__FRAME_EXITED, 1, (uint32_t)WTERMSIG(status));
	else
		write_last(m, SL__FRAME_EXITED, 0, (uint32_t)WEXITSTATUS(status));
	sl__exec_close_all(m->leash, SL_COUNT(m->leash));
	sl__exec_close_all(m->pump.pipes, SL__STREAMS);
	send_to_worker(m, 'E');
}

/* ---- the process ---- */

/* 1: fds are filled; 0: another message; -1: the worker is gone. */
static int wait_for_run(int fds[SL__MINDER_FDS])
{
	char what = 0;
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int) * SL__MINDER_FDS)];
	} control;
	struct iovec iov = {&what, 1};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t got = recvmsg(CTL, &msg, MSG_CMSG_CLOEXEC);
	if (got == 0 || (got < 0 && errno != EINTR))
		return -1;
	const struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
	if (got != 1 || what != 'R' || head == NULL || head->cmsg_len != CMSG_LEN(sizeof(int) * SL__MINDER_FDS))
		return 0;
	memcpy(fds, CMSG_DATA(head), sizeof(int) * SL__MINDER_FDS);
	return 1;
}

void sl__minder_find_environment(const struct sl_env *env, struct sl__env_area *out)
{
	char text[1024], *at;
	unsigned long start = 0, end = 0;
	*out = (struct sl__env_area){NULL, 0};
	int fd = SL__IO(env, open, "/proc/self/stat", O_RDONLY, 0);
	ssize_t n = fd >= 0 ? sl__pread_full(env, fd, text, sizeof(text) - 1, 0) : 0;
	sl__close_fd(env, &fd);
	text[SL_MAX(n, 0)] = '\0';
	/* Fields are counted after the name, which may contain anything; these are numbers 50 and 51. */
	at = strrchr(text, ')');
	for (int field = 2; at != NULL && field < 50; field++) {
		at = strchr(at, ' ');
		at = at != NULL ? at + 1 : NULL;
	}
	if (at != NULL && sscanf(at, "%lu %lu", &start, &end) == 2 && start != 0 && end > start)
		*out = (struct sl__env_area){(void *)start, end - start};
}

void sl__minder_main(const struct sl__minder_start *start)
{
	struct minder m = {.shared = start->shared,
			   .pump = {.shared = start->shared, .spool = SPOOL, .pipes = {-1, -1, -1}},
			   .user = start->user};
	int fds[SL__MINDER_FDS], what;
	sl__signals_default();
	/* Out of the worker's group: a signal for all of that must not reach the minder too. */
	(void)setpgid(0, 0);
	(void)prctl(PR_SET_NAME, "sluice-minder");
	/* A command can read /proc/<its parent>/environ and, of the same user, its memory. The minder needs no
	 * variables. */
	(void)prctl(PR_SET_DUMPABLE, 0);
	if (start->area->start != NULL)
		explicit_bzero(start->area->start, start->area->len);
	int ctl = fcntl(start->ctl, F_DUPFD_CLOEXEC, 10), spool = fcntl(start->spool, F_DUPFD_CLOEXEC, 10);
	for (int i = 0; i <= CTL; i++)
		if (ctl < 0 || dup3(ctl, i, O_CLOEXEC) < 0)
			_exit(1);
	if (spool < 0 || dup3(spool, SPOOL, O_CLOEXEC) < 0 || close_range(SPOOL + 1, ~0U, 0) != 0)
		_exit(1);
	/* The system call: the library's function may allocate memory. */
	if (syscall(SYS_getcwd, m.folder, sizeof(m.folder)) <= 0 || m.folder[0] != '/')
		(void)strcpy(m.folder, "/");
	m.self = getpid();
	m.worker = (int)syscall(SYS_pidfd_open, start->parent, 0);
	if (getppid() != start->parent)
		_exit(0);
	while (!m.orphan && (what = wait_for_run(fds)) >= 0)
		if (what == 1)
			run_under_minder(&m, fds);
	_exit(0);
}
