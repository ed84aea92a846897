/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 of a real worker process with commands at work, at random moments, and of the recovery after it. Afterwards
 * every line whose write had returned in a command is in the log once, in order, nothing else is, and no command lives.
 *
 *   SLUICE_TEST_SECONDS=N   instead of a few seconds
 *   SLUICE_KILL_SEED=S      other moments
 */
#include "execbox.h"
#include "support/budget.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 3
#define JOBS_PER_CYCLE 1000

static const char *counter; /* the path of the command */
static struct sl__prng prng;

static uint64_t random_below(uint64_t n)
{
	return sl__prng_next(&prng) % n;
}

/* ---- the worker ---- */

struct runner {
	struct execbox *b;
	uint64_t first;
	int report;
	struct sl__prng prng;
};

static void *runner_main(void *arg)
{
	struct runner *r = arg;
	for (uint64_t i = 0; i < JOBS_PER_CYCLE; i++) {
		char input[512];
		struct fake f;
		struct sl_err err = SL_ERR_INIT;
		/* Some are short, some run until they are killed. */
		uint64_t id = r->first + i, lines = sl__prng_next(&r->prng) % (i % 3 == 0 ? 5 : 3000);
		if (sl__prng_next(&r->prng) % 5 == 0)
			lines = UINT64_MAX;
		(void)snprintf(input, sizeof(input), "{\"argv\":[\"%s\",\"%s/side-%llu\",\"%llu\"]}", counter,
			       r->b->dir, (unsigned long long)id, (unsigned long long)lines);
		fake_init(&f, id, input);
		int rc = sl__exec_process(r->b->exec, &fake_ops, fake_attempt(&f), &err);
		fake_fini(&f);
		if (rc != 0)
			(void)fprintf(stderr, "# job %llu: %s\n", (unsigned long long)id, err.msg);
		if (rc != 0 || write(r->report, &id, sizeof(id)) != sizeof(id))
			_exit(5);
	}
	return NULL;
}

static _Noreturn void worker_main(struct execbox *b, uint64_t cycle, int report)
{
	pthread_t threads[THREADS];
	struct runner runners[THREADS];
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	execbox_open_log(b);
	execbox_exec(b, NULL);
	for (uint64_t i = 0; i < THREADS; i++) {
		runners[i] = (struct runner){
			b, (cycle * THREADS + i) * JOBS_PER_CYCLE + 1, report, {random_below(UINT64_MAX)}};
		if (pthread_create(&threads[i], NULL, runner_main, &runners[i]) != 0)
			_exit(6);
	}
	for (int i = 0; i < THREADS; i++)
		(void)pthread_join(threads[i], NULL);
	_exit(0);
}

/* Kill it when it has not ended within us microseconds. 0: it was killed; else its exit code. */
static int kill_within(pid_t pid, uint64_t us)
{
	int status;
	struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000 * 1000)};
	struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
	assert_true(end.fd >= 0);
	(void)ppoll(&end, 1, &t, NULL);
	(void)close(end.fd);
	(void)kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? 0 : WEXITSTATUS(status) + 256;
}

/* ---- the recovery ---- */

/* A minder that was being forked when the worker died has the log's lock too, until it comes to close it. */
static void await_log(struct execbox *b)
{
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .wal_dir = b->dir, .archive_dir = b->dir,
				   .archive_on_complete = SL_OFF};
	int rc = SL_ELOCKED;
	for (int i = 0; rc == SL_ELOCKED && i < 60000; i++) {
		rc = sl_wal_open(&b->log, "w", &opts, &b->err);
		if (rc == SL_ELOCKED)
			(void)poll(NULL, 0, 1);
	}
	if (rc != 0)
		fail_msg("%s", b->err.msg);
}

static _Noreturn void recovery_main(struct execbox *b)
{
	struct sl_err err = SL_ERR_INIT;
	await_log(b);
	int rc = sl_exec_recover(b->log, b->spool, NULL, NULL, &err);
	(void)sl_wal_close(b->log, NULL);
	_exit(rc == 0 ? 0 : 7);
}

static uint64_t kill_recoveries(struct execbox *b)
{
	uint64_t kills = 0;
	while (random_below(4) != 0) {
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			recovery_main(b);
		kills += kill_within(pid, random_below(8000)) == 0;
	}
	return kills;
}

/* ---- looking ---- */

struct seen {
	uint64_t job, out, err, progress, started, exited, errors;
};

struct look {
	struct seen *jobs;
	size_t n, cap;
	uint64_t from; /* ids from here on */
};

static struct seen *seen_of(struct look *l, uint64_t job)
{
	for (size_t i = l->n; i > 0; i--)
		if (l->jobs[i - 1].job == job)
			return &l->jobs[i - 1];
	if (l->n == l->cap) {
		l->cap = l->cap != 0 ? l->cap * 2 : 64;
		l->jobs = realloc(l->jobs, l->cap * sizeof(*l->jobs));
		assert_non_null(l->jobs);
	}
	l->jobs[l->n] = (struct seen){.job = job};
	return &l->jobs[l->n++];
}

static void expect_line(const struct sl_event *e, char letter, uint64_t number)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "%c %llu", letter, (unsigned long long)number);
	if ((int)e->len != n || memcmp(e->data, text, e->len) != 0 || e->partial)
		fail_msg("job %llu: \"%.*s\"%s instead of \"%s\"", (unsigned long long)e->job_id, (int)e->len,
			 (const char *)e->data, e->partial ? "+" : "", text);
}

static int on_record(const struct sl_wal_record *record, void *ctx)
{
	struct look *l = ctx;
	struct sl_event e;
	assert_int_equal(sl_event_decode(record->payload, record->payload_len, &e, NULL), 0);
	if (e.job_id < l->from)
		return 0;
	struct seen *s = seen_of(l, e.job_id);
	if (s->exited != 0)
		fail_msg("job %llu: an event after the last", (unsigned long long)e.job_id);
	switch (e.type) {
	case SL_EVENT_STARTED:
		assert_int_equal(s->started++, 0);
		break;
	case SL_EVENT_STDOUT:
		expect_line(&e, 'o', ++s->out);
		break;
	case SL_EVENT_STDERR:
		expect_line(&e, 'e', ++s->err);
		break;
	case SL_EVENT_PROGRESS:
		s->progress++;
		break;
	case SL_EVENT_EXITED:
		s->exited++;
		break;
	case SL_EVENT_ERROR:
		assert_int_equal(s->errors++, 0);
		break;
	default:
		fail_msg("an event of type %d", e.type);
	}
	return 0;
}

static bool is_alive(pid_t pid)
{
	char path[64], name[32] = "";
	(void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	FILE *f = fopen(path, "r");
	bool found = f != NULL && fgets(name, sizeof(name), f) != NULL && strncmp(name, "exec_counter", 12) == 0;
	if (f != NULL)
		(void)fclose(f);
	return found;
}

/* Compare what the commands of the cycle know with what the log has. Returns how many commands there were. */
static uint64_t check_cycle(struct execbox *b, uint64_t cycle)
{
	struct look l = {.from = cycle * THREADS * JOBS_PER_CYCLE + 1};
	uint64_t commands = 0;
	assert_int_equal(sl_wal_iterate(b->log, 0, on_record, &l, &b->err), 0);
	for (size_t i = 0; i < l.n; i++) {
		const struct seen *s = &l.jobs[i];
		uint64_t done[3] = {0};
		char path[256];
		(void)snprintf(path, sizeof(path), "%s/side-%llu", b->dir, (unsigned long long)s->job);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0) /* killed before it came to anything */
			continue;
		assert_int_equal(read(fd, done, sizeof(done)) >= 0, 1);
		(void)close(fd);
		(void)unlink(path);
		commands++;
		if (s->out < done[1] || s->out > done[1] + 1 || s->err < done[2] || s->err > done[2] + 1)
			fail_msg("job %llu: %llu and %llu lines were written, %llu and %llu are in the log",
				 (unsigned long long)s->job, (unsigned long long)done[1], (unsigned long long)done[2],
				 (unsigned long long)s->out, (unsigned long long)s->err);
		assert_int_equal(s->started, 1);
		assert_true(s->exited == 1);
		assert_false(is_alive((pid_t)done[0]));
	}
	free(l.jobs);
	return commands;
}

/* Of a command that the log knows nothing of there is no trace either. */
static void check_no_side_files(struct execbox *b)
{
	char command[256];
	(void)snprintf(command, sizeof(command), "ls %s | grep -c side-", b->dir);
	FILE *f = popen(command, "r");
	int n = -1;
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &n), 1);
	(void)pclose(f);
	assert_int_equal(n, 0);
}

static void nothing_is_lost_or_doubled_when_workers_and_recoveries_are_killed(void **state)
{
	(void)state;
	const char *seed = getenv("SLUICE_KILL_SEED");
	double end = seconds_now() + test_seconds(3);
	uint64_t cycles = 0, commands = 0, kills = 0, longest_us = 60000;
	struct execbox b;
	prng.s = seed != NULL ? strtoull(seed, NULL, 10) : 1;
	execbox_init(&b);
	execbox_close_log(&b);
	while (commands == 0 || seconds_now() < end) {
		int fds[2];
		assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			worker_main(&b, cycles, fds[1]);
		(void)close(fds[1]);
		assert_int_equal(kill_within(pid, 2000 + random_below(longest_us)), 0);
		(void)close(fds[0]);
		kills += kill_recoveries(&b);
		await_log(&b);
		int rc;
		do /* a minder may take longer to end its command than the recovery waits */
			rc = sl_exec_recover(b.log, b.spool, NULL, NULL, &b.err);
		while (rc == SL_ELOCKED);
		if (rc != 0)
			fail_msg("%s", b.err.msg);
		commands += check_cycle(&b, cycles++);
		if (commands == 0) /* a machine on which none starts so soon */
			longest_us += longest_us / 2;
		check_no_side_files(&b);
		assert_int_equal(execbox_spools(&b), 0);
		execbox_close_log(&b);
	}
	print_message("# %llu workers killed with %llu commands, %llu recoveries killed\n", (unsigned long long)cycles,
		      (unsigned long long)commands, (unsigned long long)kills);
	execbox_fini(&b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_lost_or_doubled_when_workers_and_recoveries_are_killed),
	};
	if (argc != 2) {
		(void)fprintf(stderr, "usage: %s PATH-OF-EXEC-COUNTER\n", argv[0]);
		return 64;
	}
	counter = argv[1];
	return cmocka_run_group_tests_name("exec kill9", tests, NULL, NULL);
}
