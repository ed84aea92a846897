/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exec sink: a program that gets each batch on its standard input, one record per line, and answers with its exit code.
 *
 *   0         written                        75        not now: again later, and counted
 *   65        an item of it is refused       69, 126, 127  unavailable: everything is kept
 *   others, a signal, no end within timeout_ms: as 75
 *
 * The environment has SLUICE_BATCH_ID (the same when the same batch is tried again) and SLUICE_BATCH_ITEMS.
 * The exit code decides, whether or not the program has read its input.
 *
 * One run of a program:
 *  - It leads a process group, with no descriptor of this process but 0, 1 and 2, default signal actions
 *    and nothing blocked. It is killed when the thread that started it dies.
 *  - Its input is a file of memory and not a pipe: it has all of it before it starts, however this process ends, and a
 *    program that does not read it blocks no other and raises no SIGPIPE.
 *  - Its standard output is that of this process; the end of its standard error is kept.
 *  - When the run returns, the program has ended and is reaped. Programs that it started in turn have ended only if the
 *    run was cut short.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/child.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "format/row.h"
#include "sink/sink.h"

#define TIMEOUT_MS 30000
#define EXIT_DATA 65
#define EXIT_AWAY 69
#define EXIT_NOT_NOW 75
#define OWN_SETTINGS 2
#define GRACE_MS 2000 /* from SIGTERM to SIGKILL */
#define POLL_MS 20    /* without a pidfd the end is polled for */
#define CANNOT_START 127

struct exec_sink {
	struct sl_env env;
	struct sl_sink_opts opts;
	char *command, *target;
	char *shell[4];
	char *const *argv; /* of opts, or shell; argv[0] is looked for in PATH */
	char **settings;   /* of the environment when the sink was opened; followed by room for our own */
	size_t n_settings;
	int cancel; /* an eventfd: readable for ever once cancelled */
};

struct lane {
	struct sl__buf text;
	char **envp;
	char id[64], items[64];
};

/* ---- one run of a program ---- */

#define TAIL_BYTES 512 /* bytes of standard error that are kept */

enum exec_end {
	EXEC_EXITED,    /* by itself: status says how */
	EXEC_TIMED_OUT, /* ended because its time was over */
	EXEC_CANCELLED, /* ended because `cancel` became readable */
	EXEC_LOST       /* other code has reaped it: how it ended is unknown */
};

struct exec_result {
	enum exec_end end;
	int status; /* as of waitpid */
	char tail[TAIL_BYTES + 1];
	size_t tail_len;
};

struct run {
	const struct exec_sink *sink;
	char *const *envp;
	struct exec_result *out;
	int input;    /* the file of memory */
	int err[2];   /* its standard error */
	int start[2]; /* closed by a successful exec; else the errno */
	int pidfd;    /* -1: the kernel gives none */
	pid_t pid;
	int64_t deadline_ns;
	bool cut_short; /* SIGTERM or SIGKILL was sent */
};

static int64_t exec_now_ns(void)
{
	return sl__clock_real.mono_ns(NULL);
}

static void close_own(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

static int make_pipe(int fds[2])
{
	int raw[2];
	if (pipe2(raw, O_CLOEXEC) != 0)
		return -errno;
	fds[0] = sl__child_lift(raw[0]);
	fds[1] = sl__child_lift(raw[1]);
	return fds[0] < 0 || fds[1] < 0 ? -EMFILE : 0;
}

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
		(void)execvpe(r->sink->argv[0], r->sink->argv, r->envp);
	}
	why = errno;
	(void)!write(r->start[1], &why, sizeof(why));
	_exit(CANNOT_START);
}

static SL_NOINLINE pid_t start_child(const struct run *r)
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
	r->pid = start_child(r);
	if (r->pid < 0)
		why = errno;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	close_own(&r->start[1]);
	close_own(&r->err[1]);
	if (r->pid < 0)
		return -why;
	ssize_t got;
	do
		got = read(r->start[0], &why, sizeof(why));
	while (got < 0 && errno == EINTR);
	if (got != (ssize_t)sizeof(why))
		return 0;
	(void)sl__child_wait(r->pid, NULL);
	r->pid = -1;
	return -why;
}

/* Read what is there now, and keep the last TAIL_BYTES bytes. */
static void read_stderr(struct run *r)
{
	struct exec_result *out = r->out;
	char buf[TAIL_BYTES];
	for (;;) {
		ssize_t got = read(r->err[0], buf, sizeof(buf));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EAGAIN)
			return;
		if (got <= 0)
			break;
		size_t n = (size_t)got, keep = SL_MIN(out->tail_len, TAIL_BYTES - n);
		memmove(out->tail, out->tail + out->tail_len - keep, keep);
		memcpy(out->tail + keep, buf, n);
		out->tail_len = keep + n;
		out->tail[out->tail_len] = '\0';
	}
	close_own(&r->err[0]);
}

static void cut_short(struct run *r, enum exec_end end, int number)
{
	if (r->out->end == EXEC_EXITED)
		r->out->end = end;
	r->cut_short = true;
	(void)kill(-r->pid, number);
	(void)kill(-r->pid, SIGCONT); /* one that is stopped could not end */
	r->deadline_ns = number == SIGTERM ? exec_now_ns() + (int64_t)GRACE_MS * 1000000 : SL_FOREVER;
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
				     {.fd = killed ? -1 : r->sink->cancel, .events = POLLIN}};
		int64_t left = -1;
		if (r->deadline_ns != SL_FOREVER) {
			left = (r->deadline_ns - exec_now_ns() + 999999) / 1000000;
			left = SL_MIN(SL_MAX(left, 0), INT32_MAX);
		}
		if (r->pidfd < 0)
			left = left < 0 ? POLL_MS : SL_MIN(left, POLL_MS);
		if (poll(p, SL_COUNT(p), (int)left) < 0)
			continue;
		if (p[1].revents != 0)
			read_stderr(r);
		if (p[2].revents != 0)
			cut_short(r, EXEC_CANCELLED, SIGKILL);
		else if (exec_now_ns() >= r->deadline_ns)
			cut_short(r, EXEC_TIMED_OUT, r->cut_short ? SIGKILL : SIGTERM);
	}
	if (r->cut_short)
		(void)kill(-r->pid, SIGKILL); /* what is left of the group */
	if (sl__child_wait(r->pid, &r->out->status) != 0 && r->out->end == EXEC_EXITED)
		r->out->end = EXEC_LOST;
	if (r->err[0] >= 0)
		read_stderr(r);
}

/* 0 or a negative errno; the descriptors are the caller's to close. */
static int prepare_and_spawn(struct run *r, const struct lane *l)
{
	r->input = sl__child_input("sluice-batch", l->text.data, l->text.len);
	if (r->input < 0)
		return r->input;
	int rc = make_pipe(r->err);
	if (rc != 0)
		return rc;
	rc = make_pipe(r->start);
	if (rc != 0)
		return rc;
	return fcntl(r->err[0], F_SETFL, O_NONBLOCK) == 0 ? spawn(r) : -errno;
}

/* SL_EUNAVAIL: it cannot be started (not there, not allowed); SL_EAGAIN, SL_ENOMEM: not now. */
static int run_program(const struct exec_sink *s, const struct lane *l, struct exec_result *out, struct sl_err *err)
{
	struct run r = {
		.sink = s, .envp = l->envp, .out = out, .input = -1, .err = {-1, -1}, .start = {-1, -1}, .pidfd = -1};
	int64_t timeout_ms = s->opts.timeout_ms; /* SL_UNLIMITED allowed */
	*out = (struct exec_result){.end = EXEC_EXITED};
	r.deadline_ns = timeout_ms < 0 ? SL_FOREVER : exec_now_ns() + SL_MIN(timeout_ms, INT32_MAX) * 1000000;
	int rc = prepare_and_spawn(&r, l);
	if (rc == 0) {
		close_own(&r.input);
		r.pidfd = (int)syscall(SYS_pidfd_open, r.pid, 0);
		follow(&r);
	}
	int *const fds[] = {&r.input, &r.err[0], &r.err[1], &r.start[0], &r.start[1], &r.pidfd};
	for (size_t i = 0; i < SL_COUNT(fds); i++)
		close_own(fds[i]);
	if (rc == 0)
		return 0;
	if (rc == -EAGAIN)
		return sl_err_set(err, SL_EAGAIN, "exec: the system's limit of processes is reached");
	if (rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || rc == -ENOSPC)
		return sl_err_set(err, SL_ENOMEM, "exec: start %s: %s", s->argv[0], strerror(-rc));
	return sl_err_set(err, SL_EUNAVAIL, "exec: %s cannot be started: %s", s->argv[0], strerror(-rc));
}

/* ---- lanes ---- */

static void exec_detach(void *ctx, void *lane)
{
	struct exec_sink *s = ctx;
	struct lane *l = lane;
	sl__buf_fini(&l->text);
	sl__free(&s->env, l->envp);
	sl__free(&s->env, l);
}

static int exec_attach(void *ctx, void **lane, struct sl_err *err)
{
	struct exec_sink *s = ctx;
	struct lane *l = sl__calloc(&s->env, 1, sizeof(*l));
	if (l == NULL)
		return sl__no_memory(err, "exec");
	sl__buf_init(&l->text, &s->env);
	l->envp = sl__calloc(&s->env, s->n_settings + OWN_SETTINGS + 1, sizeof(*l->envp));
	if (l->envp == NULL) {
		exec_detach(s, l);
		return sl__no_memory(err, "exec");
	}
	for (size_t i = 0; i < s->n_settings; i++)
		l->envp[i] = s->settings[i];
	l->envp[s->n_settings] = l->id;
	l->envp[s->n_settings + 1] = l->items;
	*lane = l;
	return 0;
}

/* ---- the answer ---- */

/* A failure, with the end of standard error as one line: printable, valid UTF-8, line ends as " | ". */
static int exec_failed(const struct exec_result *r, int code, enum sl_err_class error_class, const char *how,
		       struct sl_err *err)
{
	char line[200];
	const size_t cap = sizeof(line);
	size_t end = r->tail_len, n = 0;
	while (end > 0 && (unsigned char)r->tail[end - 1] <= ' ')
		end--;
	size_t start = end > cap / 2 ? end - cap / 2 : 0;
	while (start > 0 && start < end && ((unsigned char)r->tail[start] & 0xC0) == 0x80)
		start++;
	for (size_t i = start; i < end && n + 5 < cap;) {
		size_t len = sl__utf8_length(r->tail + i);
		unsigned char c = (unsigned char)r->tail[i];
		if (c == '\n')
			n += (size_t)snprintf(line + n, cap - n, " | ");
		else if (len == 0 || c < ' ' || c == 0x7F)
			line[n++] = len == 0 ? '?' : ' ';
		else
			n = (size_t)((char *)mempcpy(line + n, r->tail + i, len) - line);
		i += len == 0 ? 1 : len;
	}
	line[n] = '\0';
	(void)sl_err_set(err, code, "exec: %s%s%s", how, n > 0 ? ": " : "", line);
	return sl__sink_class(err, code, error_class);
}

/* What the end of the program means. */
static int exec_answer(const struct exec_sink *s, const struct exec_result *r, struct sl_err *err)
{
	char how[64];
	if (r->end == EXEC_TIMED_OUT)
		return exec_failed(r, SL_ETIMEDOUT, SL_CLASS_TRANSIENT, "timed out (timeout_ms)", err);
	if (r->end == EXEC_CANCELLED)
		return exec_failed(r, SL_ECANCELLED, SL_CLASS_TRANSIENT, "cancelled", err);
	if (r->end == EXEC_LOST)
		return exec_failed(r, SL_EAGAIN, SL_CLASS_TRANSIENT,
				   "the exit status is unknown: this process ignores SIGCHLD or reaps all children",
				   err);
	if (!WIFEXITED(r->status)) {
		(void)snprintf(how, sizeof(how), "ended by signal %d", WTERMSIG(r->status));
		return exec_failed(r, SL_EAGAIN, SL_CLASS_TRANSIENT, how, err);
	}
	int code = WEXITSTATUS(r->status);
	if (code == 0) {
		if (r->tail_len > 0)
			sl__log(&s->env, SL_LOG_DEBUG, "exec", "standard error of the program",
				SL__F_STR("text", r->tail));
		return 0;
	}
	(void)snprintf(how, sizeof(how), "exit code %d", code);
	if (code == EXIT_DATA)
		return exec_failed(r, SL_EREFUSED, SL_CLASS_POISON, how, err);
	if (code == EXIT_AWAY || code == 126 || code == 127)
		return exec_failed(r, SL_EUNAVAIL, SL_CLASS_FATAL, how, err);
	return exec_failed(r, SL_EAGAIN, SL_CLASS_TRANSIENT, how, err);
}

static int exec_write_batch(void *ctx, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			    struct sl_err *err)
{
	struct exec_sink *s = ctx;
	struct lane *l = lane;
	struct sl__buf *text = &l->text;
	/* The input: a record per line. Outside of strings a line end in JSON is white space; in CSV it is inside of
	 * quotes. */
	sl__buf_clear(text);
	for (size_t i = 0; i < batch->n; i++) {
		const struct sl_sink_item *item = &batch->items[i];
		size_t start = text->len;
		bool lines = s->opts.format == SL_ROWS_JSON && memchr(item->data, '\n', item->len) != NULL;
		int rc = lines ? sl__json_check_value(item->data, item->len, false, err) : 0;
		if (rc == SL_EDATA)
			reply->culprit = i;
		if (rc != 0)
			return rc;
		(void)sl__buf_append(text, item->data, item->len);
		(void)sl__buf_append(text, "\n", 1);
		if (text->failed != 0)
			return sl__no_memory(err, "exec");
		for (char *p = text->data + start; lines && p < text->data + text->len - 1; p++)
			if (*p == '\n')
				*p = ' ';
	}
	/* The environment. */
	int n = snprintf(l->id, sizeof(l->id), "SLUICE_BATCH_ID=");
	*sl__hex(l->id + n, batch->id, sizeof(batch->id)) = '\0';
	(void)snprintf(l->items, sizeof(l->items), "SLUICE_BATCH_ITEMS=%zu", batch->n);
	/* The program. */
	struct exec_result result = {.end = EXEC_CANCELLED};
	struct pollfd cancelled = {.fd = s->cancel, .events = POLLIN};
	if (poll(&cancelled, 1, 0) <= 0) {
		int rc = run_program(s, l, &result, err);
		if (rc != 0)
			return rc;
	}
	return exec_answer(s, &result, err);
}

static void exec_cancel(void *ctx)
{
	struct exec_sink *s = ctx;
	uint64_t one = 1;
	(void)!write(s->cancel, &one, sizeof(one));
}

/* ---- the handle ---- */

static const char *exec_target(void *ctx)
{
	return ((struct exec_sink *)ctx)->target;
}

static void exec_close(void *ctx)
{
	struct exec_sink *s = ctx;
	struct sl_env env = s->env;
	for (size_t i = 0; i < s->n_settings; i++)
		sl__free(&env, s->settings[i]);
	sl__free(&env, s->settings);
	if (s->cancel >= 0)
		(void)close(s->cancel);
	sl__sink_free_opts(&s->opts, &env);
	sl__free(&env, s->target);
	sl__free(&env, s->command);
	sl__free(&env, s);
}

static const struct sl_sink_ops exec_ops = {.version = SL_SINK_VERSION,
					    .name = "exec",
					    .attach = exec_attach,
					    .detach = exec_detach,
					    .write = exec_write_batch,
					    .cancel = exec_cancel,
					    .close = exec_close,
					    .target = exec_target};

/* Copy the options and the environment, and choose what to run. */
static int build_exec_sink(struct exec_sink *s, const char *command, const struct sl_sink_opts *opts,
			   struct sl_err *err)
{
	static char sh[] = "/bin/sh", dash_c[] = "-c";
	size_t n = 0;
	int rc = sl__sink_copy_opts(&s->opts, opts, &s->env, err);
	if (rc != 0)
		return rc;
	if (s->opts.timeout_ms == 0)
		s->opts.timeout_ms = TIMEOUT_MS;
	/* The environment as it is now. */
	while (environ != NULL && environ[n] != NULL)
		n++;
	s->command = sl__strdup(&s->env, command != NULL ? command : "");
	s->settings = sl__calloc(&s->env, n + 1, sizeof(*s->settings));
	if (s->command == NULL || s->settings == NULL)
		return sl__no_memory(err, "exec");
	for (size_t i = 0; i < n; i++) {
		if (strncmp(environ[i], "SLUICE_BATCH_", 13) == 0)
			continue;
		s->settings[s->n_settings] = sl__strdup(&s->env, environ[i]);
		if (s->settings[s->n_settings] == NULL)
			return sl__no_memory(err, "exec");
		s->n_settings++;
	}
	s->cancel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->cancel < 0)
		return sl_err_set_errno(err, errno, "exec: eventfd");
	/* The program: argv, or the command by way of a shell. execve does not change the strings. */
	union {
		const char *const *in;
		char *const *out;
	} argv = {.in = s->opts.argv};
	bool named = s->command[0] != '\0';
	if (argv.in != NULL && (argv.in[0] == NULL || argv.in[0][0] == '\0'))
		return sl_err_set(err, SL_EINVAL, "exec: argv names no program");
	if ((argv.in != NULL) == named)
		return sl_err_set(err, SL_EINVAL, "exec: missing command; give exec:COMMAND or argv, not both");
	s->shell[0] = sh;
	s->shell[1] = dash_c;
	s->shell[2] = s->command;
	s->argv = named ? s->shell : argv.out;
	s->target = sl__asprintf(&s->env, "exec:%s", named ? s->command : argv.in[0]);
	return s->target != NULL ? 0 : sl__no_memory(err, "exec");
}

int sl_sink_exec_open(sl_sink *out, const char *command, const struct sl_sink_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	int rc = sl__sink_check_opts(opts, SL__SINK_ROWS | SL__SINK_EXEC, "exec:", &env, err);
	if (rc != 0)
		return rc;
	struct exec_sink *s = sl__calloc(&env, 1, sizeof(*s));
	if (s == NULL)
		return sl__no_memory(err, "exec");
	s->env = env;
	s->cancel = -1;
	rc = build_exec_sink(s, command, opts, err);
	if (rc != 0)
		exec_close(s);
	else
		*out = (sl_sink){.ops = &exec_ops, .ctx = s};
	return rc;
}
