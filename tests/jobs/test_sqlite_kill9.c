/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several processes on one SQLite file, killed with SIGKILL at any moment and replaced. Each starts chains, claims,
 * completes, continues, retries, fails, cancels, renews, reaps and prunes, and reports through a pipe what the store
 * acknowledged. At the end nothing of that is missing, no job was completed twice, the file is sound, and what was left
 * in leases of the dead can be reaped and completed.
 *
 *   SLUICE_TEST_SECONDS=N   instead of 2 s
 *   SLUICE_KILL_SEED=S      other moments
 */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "jobs/sqlite_place.h"
#include "jobs/store/ops.h"

#define PROCESSES 10
#define BATCH 8
#define LEASE_MS 50
#define IDS_MAX (1u << 20)

/* Small, so that a write to the pipe is whole or not there. */
struct report {
	char kind; /* 'S' started, 'C' completed, 'N' continued, 'T' the wait of an exchange, in id as ns */
	uint64_t id;
};

static uint64_t next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static int64_t mono_ns(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* ---- a process ---- */

struct process {
	sl_store s;
	uint64_t seed;
	struct sl_err err;
	struct sl_settle settles[BATCH];
	struct sl_settle_result results[BATCH];
	size_t n, n_claimed;
	struct sl_claim_id claim;
	uint64_t mine[64]; /* chains that this process started */
	size_t n_mine;
};

static void report(char kind, uint64_t id)
{
	struct report r;
	memset(&r, 0, sizeof(r));
	r.kind = kind;
	r.id = id;
	if (write(1, &r, sizeof(r)) != sizeof(r))
		_exit(2);
}

static void must(struct process *p, int rc, const char *what)
{
	if (rc == 0)
		return;
	fprintf(stderr, "# %s: %s\n", what, p->err.msg);
	_exit(3);
}

static void start_some(struct process *p)
{
	struct sl_new_chain chains[4];
	struct sl_started out[4];
	size_t n = 1 + next_random(&p->seed) % 4;
	memset(chains, 0, sizeof(chains));
	for (size_t i = 0; i < n; i++) {
		chains[i].job.type = next_random(&p->seed) % 2 ? "a" : "b";
		chains[i].job.priority = (int32_t)(next_random(&p->seed) % 3);
		chains[i].job.delay_ms = next_random(&p->seed) % 4 == 0 ? 1 : 0;
	}
	must(p, p->s.ops->start(p->s.ctx, chains, n, NULL, out, &p->err), "start");
	for (size_t i = 0; i < n; i++) {
		report('S', out[i].chain_id);
		p->mine[p->n_mine++ % 64] = out[i].chain_id;
	}
}

static int take(const struct sl_claimed_job *job, void *ctx)
{
	static const struct sl_new_job next = {.type = "b"};
	static const enum sl_settle_kind kinds[] = {SL_SETTLE_COMPLETE, SL_SETTLE_COMPLETE,   SL_SETTLE_COMPLETE,
						    SL_SETTLE_COMPLETE, SL_SETTLE_CONTINUE,   SL_SETTLE_RETRY,
						    SL_SETTLE_FAIL,     SL_SETTLE_RESCHEDULE, SL_SETTLE_RELEASE};
	struct process *p = ctx;
	struct sl_settle *t = &p->settles[p->n_claimed++];
	*t = (struct sl_settle){.kind = kinds[next_random(&p->seed) % (sizeof(kinds) / sizeof(*kinds))],
				.id = job->id,
				.chain_id = job->chain_id,
				.fence = job->fence,
				.claim = p->claim,
				.worker = "w",
				.started_ms = 1,
				.output = "{\"done\":true}",
				.error = "no",
				.next = &next};
	return 0;
}

static void report_settled(const struct sl_settle *settles, const struct sl_settle_result *results, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (results[i].lost == SL_LOST_NOT && settles[i].kind == SL_SETTLE_COMPLETE)
			report('C', settles[i].id);
		else if (results[i].lost == SL_LOST_NOT && settles[i].kind == SL_SETTLE_CONTINUE)
			report('N', results[i].next_id);
}

static void exchange(struct process *p)
{
	struct sl_claim_type types[] = {{.type = "a", .limit = 4, .free = 4}, {.type = "b", .limit = 6, .free = 6}};
	struct sl_settle settles[BATCH];
	size_t n = p->n;
	memcpy(settles, p->settles, sizeof(settles));
	if (n > 0)
		settles[n - 1].last_of_claim = 1;
	for (size_t i = 0; i < 2; i++) {
		uint64_t r = next_random(&p->seed);
		memcpy(p->claim.bytes + 8 * i, &r, 8);
	}
	struct sl_claim_request request = {.claim = p->claim,
					   .worker = "w",
					   .types = types,
					   .n_types = 2,
					   .free = BATCH,
					   .limit = 1 + (uint32_t)(next_random(&p->seed) % BATCH),
					   .lease_ms = LEASE_MS};
	struct sl_claim_reply reply;
	int64_t began = mono_ns();
	p->n_claimed = 0;
	must(p,
	     p->s.ops->exchange(p->s.ctx,
				&(struct sl_exchange){.settles = settles,
						      .n_settles = n,
						      .results = p->results,
						      .request = &request,
						      .reply = &reply,
						      .claimed = take,
						      .claimed_ctx = p},
				NULL, &p->err),
	     "exchange");
	p->n = p->n_claimed;
	report_settled(settles, p->results, n);
	report('T', (uint64_t)(mono_ns() - began));
}

static void renew(struct process *p)
{
	uint64_t ids[BATCH], fences[BATCH];
	for (size_t i = 0; i < p->n; i++) {
		ids[i] = p->settles[i].id;
		fences[i] = p->settles[i].fence;
	}
	struct sl_renewal r = {.claim = p->claim, .lease_ms = LEASE_MS, .ids = ids, .fences = fences, .n = p->n};
	must(p, p->s.ops->renew(p->s.ctx, &r, 1, NULL, NULL, &p->err), "renew");
}

static void steer(struct process *p)
{
	uint64_t chain = p->mine[next_random(&p->seed) % 64];
	size_t n;
	if (chain == 0)
		return;
	bool cancel = next_random(&p->seed) % 2;
	must(p,
	     (cancel ? p->s.ops->cancel : p->s.ops->redrive)(p->s.ctx, (struct sl_ids){&chain, 1}, NULL, &n, &p->err),
	     "steer");
}

static _Noreturn void process_main(const char *path, uint64_t seed)
{
	struct process *p = calloc(1, sizeof(*p));
	p->seed = (seed ^ 0xD1B54A32D192ED03) * 0x9E3779B97F4A7C15; /* not the watcher's own sequence */
	must(p, sl_store_sqlite_open(&p->s, path, NULL, &p->err), "open");
	for (;;) {
		struct sl_reaped reaped;
		uint64_t what = next_random(&p->seed) % 16;
		if (what < 5)
			start_some(p);
		else if (what < 12)
			exchange(p);
		else if (what < 13)
			must(p, p->s.ops->reap(p->s.ctx, NULL, 0, 16, &reaped, NULL, &p->err), "reap");
		else if (what < 14)
			renew(p);
		else if (what < 15)
			steer(p);
		else if (next_random(&p->seed) % 8 == 0) {
			sl_store_close(&p->s);
			must(p, sl_store_sqlite_open(&p->s, path, NULL, &p->err), "open again");
		}
	}
}

/* ---- the watcher ---- */

struct watched {
	pid_t pid;
	int from;
	uint32_t budget; /* reports until it is killed */
	struct report part;
	size_t got; /* bytes of part */
};

struct watcher {
	struct sqlite_place *place;
	uint64_t seed;
	struct watched procs[PROCESSES];
	uint8_t *known; /* by id: 1 acknowledged, 2 completed */
	uint64_t n_started, n_completed, n_twice, n_kills, n_exchanges;
	int64_t worst_ns;
};

static void spawn(struct watcher *w, size_t i)
{
	int out[2];
	char seed[32];
	(void)snprintf(seed, sizeof(seed), "%llu", (unsigned long long)next_random(&w->seed));
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (dup2(out[1], 1) == 1)
			(void)execl("/proc/self/exe", "test_sqlite_kill9", "work", w->place->path, seed, (char *)NULL);
		_exit(126);
	}
	close(out[1]);
	w->procs[i] =
		(struct watched){.pid = pid, .from = out[0], .budget = 1 + (uint32_t)(next_random(&w->seed) % 150)};
}

static void take_report(struct watcher *w, const struct report *r)
{
	if (r->kind == 'T') {
		w->n_exchanges++;
		w->worst_ns = (int64_t)r->id > w->worst_ns ? (int64_t)r->id : w->worst_ns;
		return;
	}
	assert_true(r->id > 0 && r->id < IDS_MAX);
	if (r->kind != 'C') {
		w->known[r->id] |= 1;
		w->n_started++;
		return;
	}
	w->n_twice += (w->known[r->id] & 2) != 0;
	w->known[r->id] |= 2;
	w->n_completed++;
}

/* 0: the other end is closed. */
static bool read_reports(struct watcher *w, struct watched *p)
{
	ssize_t n = read(p->from, (char *)&p->part + p->got, sizeof(p->part) - p->got);
	if (n <= 0)
		return false;
	p->got += (size_t)n;
	if (p->got == sizeof(p->part)) {
		take_report(w, &p->part);
		p->got = 0;
		p->budget -= p->budget > 0;
	}
	return true;
}

static void kill_one(struct watcher *w, size_t i)
{
	struct watched *p = &w->procs[i];
	int status;
	(void)kill(p->pid, SIGKILL);
	/* What it had written before is still in the pipe. */
	while (read_reports(w, p))
		;
	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	if (!WIFSIGNALED(status))
		fail_msg("a process ended by itself: status %d", status);
	close(p->from);
	w->n_kills++;
}

static void watch(struct watcher *w, int64_t until_ns)
{
	while (mono_ns() < until_ns || w->n_completed == 0) {
		struct pollfd fds[PROCESSES];
		for (size_t i = 0; i < PROCESSES; i++)
			fds[i] = (struct pollfd){.fd = w->procs[i].from, .events = POLLIN};
		assert_true(poll(fds, PROCESSES, -1) > 0);
		for (size_t i = 0; i < PROCESSES; i++) {
			if (fds[i].revents != 0 && (!read_reports(w, &w->procs[i]) || w->procs[i].budget == 0)) {
				kill_one(w, i);
				spawn(w, i);
			}
		}
	}
	for (size_t i = 0; i < PROCESSES; i++)
		kill_one(w, i);
}

/* ---- afterwards ---- */

static int64_t tomorrow_ms(void *ctx)
{
	struct timespec t;
	(void)ctx;
	(void)clock_gettime(CLOCK_REALTIME, &t);
	return (t.tv_sec + 86400) * 1000LL;
}

static int64_t real_mono_ns(void *ctx)
{
	(void)ctx;
	return mono_ns();
}

static int real_wait(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t deadline_ns, void *ctx)
{
	struct timespec t = {deadline_ns / 1000000000, deadline_ns % 1000000000};
	(void)ctx;
	return deadline_ns == SL_FOREVER ? pthread_cond_wait(cond, mu) : pthread_cond_timedwait(cond, mu, &t);
}

/* With all leases run out, everything that is left can be reaped and completed. */
static void drain(struct watcher *w)
{
	static const struct sl_clock clock = {SL_CLOCK_VERSION, real_mono_ns, tomorrow_ms, real_wait};
	struct sl_env env = {SL_ENV_INIT, .clock = &clock};
	struct sl_store_opts opts = {SL_STORE_OPTS_INIT, .env = &env};
	struct process p;
	struct sl_reaped reaped = {.more = 1};
	uint32_t all = 0;
	memset(&p, 0, sizeof(p));
	p.seed = w->seed;
	assert_int_equal(sl_store_sqlite_open(&p.s, w->place->path, &opts, &p.err), 0);
	while (reaped.more) {
		assert_int_equal(p.s.ops->reap(p.s.ctx, NULL, 0, 100, &reaped, NULL, &p.err), 0);
		all += reaped.n;
	}
	for (;;) {
		struct sl_claim_type types[] = {{.type = "a", .limit = BATCH, .free = BATCH},
						{.type = "b", .limit = BATCH, .free = BATCH}};
		struct sl_settle settles[BATCH];
		struct sl_claim_reply reply;
		size_t n = p.n_claimed;
		uint64_t r = next_random(&p.seed);
		memcpy(settles, p.settles, sizeof(settles));
		for (size_t i = 0; i < n; i++) {
			settles[i].kind = SL_SETTLE_COMPLETE;
			settles[i].last_of_claim = i + 1 == n;
		}
		memcpy(p.claim.bytes, &r, 8);
		struct sl_claim_request request = {.claim = p.claim,
						   .worker = "w",
						   .types = types,
						   .n_types = 2,
						   .free = BATCH,
						   .limit = BATCH,
						   .lease_ms = 60000};
		p.n_claimed = 0;
		assert_int_equal(p.s.ops->exchange(p.s.ctx,
						   &(struct sl_exchange){.settles = settles,
									 .n_settles = n,
									 .results = p.results,
									 .request = &request,
									 .reply = &reply,
									 .claimed = take,
									 .claimed_ctx = &p},
						   NULL, &p.err),
				 0);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(p.results[i].lost, SL_LOST_NOT);
		if (n == 0 && p.n_claimed == 0)
			break;
	}
	printf("# reaped %u jobs of the dead\n", all);
	struct sl_outstanding left;
	assert_int_equal(p.s.ops->outstanding(p.s.ctx, NULL, 0, &left, &p.err), 0);
	assert_int_equal(left.due + left.retrying + left.running + left.scheduled + left.blocked, 0);
	sl_store_close(&p.s);
}

static int find_missing(const struct sl_job *job, void *ctx)
{
	uint8_t *known = ctx;
	if (job->id < IDS_MAX && (known[job->id] & 2) && job->status != SL_JOB_COMPLETED)
		fail_msg("job %llu was completed, and is %s", (unsigned long long)job->id,
			 sl_job_status_name(job->status));
	if (job->id < IDS_MAX)
		known[job->id] |= 4;
	return 0;
}

static void check_acknowledged(struct watcher *w)
{
	sl_store s;
	struct sl_err err = SL_ERR_INIT;
	struct sl_job_filter filter = {.ascending = true, .limit = 10000};
	assert_int_equal(sl_store_sqlite_open(&s, w->place->path, NULL, &err), 0);
	for (; filter.after < IDS_MAX; filter.after += 5000) {
		struct sl_job_filter page = filter;
		assert_int_equal(s.ops->list_jobs(s.ctx, &page, find_missing, w->known, &err), 0);
	}
	sl_store_close(&s);
	for (uint32_t id = 0; id < IDS_MAX; id++)
		if ((w->known[id] & 3) != 0 && (w->known[id] & 4) == 0)
			fail_msg("job %u was acknowledged, and is not there", id);
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : otherwise;
}

static void processes_that_are_killed_lose_nothing_and_complete_nothing_twice(void **state)
{
	struct sqlite_place place;
	struct watcher w = {.place = &place};
	(void)state;
	w.seed = number_from("SLUICE_KILL_SEED", 88172645463325252u);
	w.known = calloc(IDS_MAX, 1);
	assert_non_null(w.known);
	assert_int_equal(sqlite_place_init(&place), 0);
	fflush(stdout);
	int64_t until_ns = mono_ns() + (int64_t)number_from("SLUICE_TEST_SECONDS", 2) * 1000000000;
	for (size_t i = 0; i < PROCESSES; i++)
		spawn(&w, i);
	watch(&w, until_ns);
	printf("# %llu kills; acknowledged: %llu jobs, %llu completions; %llu exchanges, the slowest %lld ms\n",
	       (unsigned long long)w.n_kills, (unsigned long long)w.n_started, (unsigned long long)w.n_completed,
	       (unsigned long long)w.n_exchanges, (long long)(w.worst_ns / 1000000));
	assert_int_equal(w.n_twice, 0);
	const char *wrong = sqlite_wrong(place.path);
	if (wrong != NULL)
		fail_msg("%s", wrong);
	check_acknowledged(&w);
	drain(&w);
	wrong = sqlite_wrong(place.path);
	if (wrong != NULL)
		fail_msg("after the drain: %s", wrong);
	sqlite_place_fini(&place);
	free(w.known);
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "work") == 0)
		process_main(argv[2], strtoull(argv[3], NULL, 10));
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(processes_that_are_killed_lose_nothing_and_complete_nothing_twice),
	};
	return cmocka_run_group_tests_name("sqlite kill -9", tests, NULL, NULL);
}
