/* SPDX-License-Identifier: Apache-2.0 */
/* The server and the workers of the demo as child processes, and the folder that they share. */
#include "cli/demo/proc.h"

#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MS 60000 /* for the server to print its address */
#define SIGNAL_MS 20    /* for a signal to arrive */
#define LINE_BYTES 512  /* of a process's log that are shown at most */

static int failed(struct cli *cli, const char *what, int error)
{
	cli_say(cli, SL_LOG_ERROR, "%s: %s", what, strerror(error));
	return EXIT_INTERNAL;
}

int demoproc_place_make(struct cli *cli, struct demoproc_place *p, const char *dir, const char *script)
{
	const char *base = getenv("TMPDIR");
	char *whole = NULL;
	int error = 0;
	FILE *f;

	/* A folder that is named must be new: the demo removes or leaves whole folders. */
	if (dir != NULL) {
		/* A new folder, by its whole path: the processes may be elsewhere. */
		p->stays = true;
		if (mkdir(dir, 0700) || (whole = realpath(dir, NULL)) == NULL)
			error = errno;
		else if (strlen(whole) >= sizeof(p->dir))
			error = ENAMETOOLONG;
		else
			(void)snprintf(p->dir, sizeof(p->dir), "%s", whole);
		free(whole);
		if (error) {
			(void)failed(cli, dir, error);
			return sl_err_exit_code(SL_ECREATE);
		}
	} else {
		if (base == NULL || *base != '/' || strlen(base) > sizeof(p->dir) - sizeof("/sluice-demo-XXXXXX"))
			base = "/tmp";
		(void)snprintf(p->dir, sizeof(p->dir), "%s/sluice-demo-XXXXXX", base);
		if (mkdtemp(p->dir) == NULL)
			return failed(cli, p->dir, errno);
	}
	(void)snprintf(p->script, sizeof(p->script), "%s/step.sh", p->dir);
	(void)snprintf(p->ledger, sizeof(p->ledger), "%s/ledger", p->dir);
	(void)snprintf(p->wal, sizeof(p->wal), "%s/wal", p->dir);
	(void)snprintf(p->store, sizeof(p->store), "%s/sluice.db", p->dir);
	(void)snprintf(p->store_url, sizeof(p->store_url), "sqlite:%s", p->store);
	f = fopen(p->script, "we");
	if (f == NULL || fputs(script, f) < 0 || fclose(f) || chmod(p->script, 0700))
		return failed(cli, p->script, errno);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	return remove(path);
}

void demoproc_place_remove(const struct demoproc_place *p)
{
	if (p->dir[0] && !p->stays)
		(void)nftw(p->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* In the child, which has only this thread: nothing here allocates or locks. */
static _Noreturn void become(pid_t parent, const char *log, int out_fd, char *const argv[], char *const env[])
{
	int in = open("/dev/null", O_RDONLY), err = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	sigset_t none;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* also one that is stopped */
	(void)setpgid(0, 0);                    /* Ctrl-C is for the demo, which ends the others in order */
	sl__signals_default(); /* the demo's are not those of a server, which starts with none blocked */
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (getppid() == parent && in >= 0 && err >= 0 && dup2(in, 0) == 0 && dup2(err, 2) == 2 &&
	    dup2(out_fd >= 0 ? out_fd : 2, 1) == 1) {
		(void)close(in);
		(void)close(err);
		(void)execve("/proc/self/exe", argv, env);
	}
	_exit(EXIT_INTERNAL);
}

/* This program with argv, under the name that out has; its standard error goes to <dir>/<name>.log. out_fd: its
 * standard output, or -1. */
static int start_process(struct cli *cli, const struct demoproc_place *p, struct demoproc *out, char *const argv[],
			 int out_fd)
{
	char home[192], store[224], ledger[192], log[192];
	size_t n = 0, used = 0;
	pid_t parent = getpid();
	char **env;
	int error;

	/* Our environment without SLUICE_…, so that no other settings get in, and with those of the demo. */
	while (environ[n] != NULL)
		n++;
	env = calloc(n + 4, sizeof(*env));
	if (env == NULL)
		return failed(cli, out->name, ENOMEM);
	for (size_t i = 0; i < n; i++) {
		if (strncmp(environ[i], "SLUICE_", 7) != 0 && strncmp(environ[i], "HOME=", 5) != 0)
			env[used++] = environ[i];
	}
	(void)sprintf(home, "HOME=%s", p->dir);
	(void)sprintf(store, "SLUICE_STORE=%s", p->store_url);
	(void)sprintf(ledger, "LEDGER=%s", p->ledger);
	env[used++] = home;
	env[used++] = store;
	env[used] = ledger;
	(void)snprintf(log, sizeof(log), "%s/%s.log", p->dir, out->name);
	/* The strings of env live in this frame; the child replaces itself before it ends. */
	out->pid = fork();
	error = errno;
	if (out->pid == 0)
		become(parent, log, out_fd, argv, env);
	free(env);
	if (out->pid > 0)
		return 0;
	out->pid = 0;
	return failed(cli, out->name, error);
}

static void read_last_line(const struct demoproc_place *place, const char *name, char last[LINE_BYTES])
{
	char path[192], line[LINE_BYTES];
	FILE *f;

	(void)snprintf(last, LINE_BYTES, "the command printed nothing");
	(void)snprintf(path, sizeof(path), "%s/%s.log", place->dir, name);
	f = fopen(path, "re");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		memcpy(last, line, LINE_BYTES);
	}
	if (f != NULL)
		(void)fclose(f);
}

void demoproc_report_end(struct cli *cli, const struct demoproc_place *place, const struct demoproc *p)
{
	char last[LINE_BYTES];

	read_last_line(place, p->name, last);
	cli_say(cli, SL_LOG_ERROR, "%s failed (%s %d): %s; see %s", p->name,
		WIFSIGNALED(p->status) ? "signal" : "exit code",
		WIFSIGNALED(p->status) ? WTERMSIG(p->status) : WEXITSTATUS(p->status), last, place->dir);
}

int demoproc_server(struct cli *cli, const struct demoproc_place *p, struct demoproc *out, const char *listen)
{
	char data[160], address[96], line[128] = "", last[LINE_BYTES];
	char *argv[] = {(char[]){"sluice"}, (char[]){"server"}, data, address, NULL};
	struct pollfd ready = {.events = POLLIN};
	const char *colon = NULL;
	int fds[2], rc, status;

	(void)snprintf(out->name, sizeof(out->name), "server");
	(void)snprintf(data, sizeof(data), "--data=%s", p->dir);
	(void)snprintf(address, sizeof(address), "--listen=%.60s", listen);
	if (pipe2(fds, O_CLOEXEC))
		return failed(cli, "a pipe", errno);
	rc = start_process(cli, p, out, argv, fds[1]);
	(void)close(fds[1]);
	/* It prints "http://127.0.0.1:7070/". */
	ready.fd = fds[0];
	if (rc == 0 && poll(&ready, 1, ANSWER_MS) > 0 && read(fds[0], line, sizeof(line) - 1) > 0)
		colon = strrchr(line, ':');
	out->port = colon != NULL ? atoi(colon + 1) : 0;
	(void)close(fds[0]);
	if (rc != 0 || out->port)
		return rc;
	/* The last line of its log is why. */
	(void)kill(out->pid, SIGTERM);
	status = demoproc_wait(out);
	read_last_line(p, out->name, last);
	cli_say(cli, SL_LOG_ERROR, "the server did not start: %s", last);
	return WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : EXIT_INTERNAL;
}

int demoproc_worker(struct cli *cli, const struct demoproc_place *p, struct demoproc *out, const char *server,
		    int64_t lease_ms)
{
	char id[64], to[96], wal[192], step[192], join[192], lease[64];
	char *argv[] = {(char[]){"sluice"},
			(char[]){"worker"},
			id,
			to,
			wal,
			step,
			join,
			lease,
			(char[]){"--slots=4"},
			(char[]){"--retry-delay=100ms"},
			NULL};

	(void)snprintf(id, sizeof(id), "--id=%s", out->name);
	(void)snprintf(to, sizeof(to), "--server=%s", server);
	(void)snprintf(wal, sizeof(wal), "--wal=%s", p->wal);
	(void)snprintf(step, sizeof(step), "--type=step=%s", p->script);
	(void)snprintf(join, sizeof(join), "--type=join=%s", p->script);
	(void)snprintf(lease, sizeof(lease), "--lease=%lldms", (long long)lease_ms);
	return start_process(cli, p, out, argv, -1);
}

/* Does the process hold the flock of this file? */
static bool holds(pid_t pid, const char *path)
{
	FILE *f = fopen("/proc/locks", "re");
	struct stat st;
	char line[256], kind[16];
	bool found = false;

	if (stat(path, &st))
		st.st_ino = 0;
	/* A line for each lock: its kind, its owner, and the inode of its file. */
	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
		unsigned long long inode;
		int owner;

		if (sscanf(line, "%*s %15s %*s %*s %d %*x:%*x:%llu", kind, &owner, &inode) == 3)
			found = strcmp(kind, "FLOCK") == 0 && owner == pid && inode == (unsigned long long)st.st_ino;
	}
	if (f != NULL)
		(void)fclose(f);
	return found;
}

void demoproc_stop(const struct demoproc *p, const struct demoproc_place *place)
{
	char lock[192];

	(void)snprintf(lock, sizeof(lock), "%s-lock", place->store);
	/* Stop it, check, and let it run on if it has the lock. */
	while (p->pid) {
		(void)kill(p->pid, SIGSTOP);
		(void)poll(NULL, 0, SIGNAL_MS);
		if (!holds(p->pid, lock))
			return;
		(void)kill(p->pid, SIGCONT);
		(void)poll(NULL, 0, SIGNAL_MS);
	}
}

void demoproc_resume(const struct demoproc *p)
{
	if (p->pid)
		(void)kill(p->pid, SIGCONT);
}

void demoproc_kill(struct demoproc *p)
{
	if (p->pid)
		(void)kill(p->pid, SIGKILL);
	(void)demoproc_wait(p);
}

void demoproc_ask_to_end(const struct demoproc *p)
{
	if (p->pid)
		(void)kill(p->pid, SIGTERM);
}

int demoproc_wait(struct demoproc *p)
{
	int status = 0;

	if (!p->pid)
		return 0;
	(void)sl__child_wait(p->pid, &status);
	p->pid = 0;
	p->status = status;
	return status;
}
