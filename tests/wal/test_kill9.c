/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 of a real process on the real disk. A child appends from several threads, with rotation, marks, tickets and a
 * sender, and reports each acknowledged and each delivered record through a pipe; it is killed at a random moment; the
 * parent opens the log and compares: nothing acknowledged is lost, nothing is there that was not submitted, nothing
 * that was delivered has changed.
 *
 *   SLUICE_KILL_CYCLES=N   N kills, instead of a few seconds' worth
 *   SLUICE_KILL_SEED=S     other moments
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/budget.h"
#include "support/walmodel.h"

#define THREADS 4
#define CYCLES_PER_LOG 8

/* A line on the pipe: small, so that a write is whole or not there. */
struct report {
	uint64_t kind; /* 'A' acknowledged, 'D' delivered, 'S' started */
	uint64_t sequence, id;
};

/* Payload numbers: cycle, thread and a counter, so that the parent knows what could have been submitted. */
static uint64_t make_id(uint64_t cycle, uint64_t thread, uint64_t n)
{
	return (cycle + 1) << 32 | thread << 24 | n;
}

/* ---- the child ---- */

struct child {
	sl_wal *w;
	int pipe;
	uint64_t cycle;
	uint64_t mark; /* of the receiver in this process */
};

struct worker {
	struct child *c;
	uint64_t thread;
};

static void tell(const struct child *c, uint64_t kind, uint64_t sequence, uint64_t id)
{
	struct report r = {kind, sequence, id};
	if (write(c->pipe, &r, sizeof(r)) != sizeof(r))
		_exit(3);
}

static void append_tickets(struct worker *x, uint64_t *n)
{
	uint8_t payload[WALMODEL_MAX_PAYLOAD];
	struct sl_wal_ticket t[8];
	uint64_t id[8];
	for (size_t i = 0; i < 8; i++) {
		id[i] = make_id(x->c->cycle, x->thread, ++*n);
		if (sl_wal_submit(x->c->w, payload, walmodel_payload(id[i], payload), &t[i], NULL) != 0)
			_exit(4);
	}
	for (size_t i = 0; i < 8; i++) {
		if (sl_wal_wait(x->c->w, &t[i], SL_UNLIMITED, NULL) != 0)
			_exit(5);
		tell(x->c, 'A', t[i].sequence, id[i]);
	}
}

static void *append_for_ever(void *arg)
{
	struct worker *x = arg;
	uint8_t payload[WALMODEL_MAX_PAYLOAD];
	for (uint64_t n = 0;;) {
		if (x->thread == 1) {
			append_tickets(x, &n);
			continue;
		}
		uint64_t id = make_id(x->c->cycle, x->thread, ++n), sequence = 0;
		if (sl_wal_append(x->c->w, payload, walmodel_payload(id, payload), &sequence, NULL) != 0)
			_exit(6);
		tell(x->c, 'A', sequence, id);
	}
	return NULL;
}

/* Takes everything, and says so before it answers. */
static int send_to_parent(const struct sl_wal_batch *b, struct sl_wal_reply *reply, struct sl_err *err, void *ctx)
{
	struct child *c = ctx;
	(void)err;
	for (size_t i = 0; i < b->n_skipped; i++)
		if (b->skipped[i].first <= c->mark + 1 && b->skipped[i].last > c->mark)
			c->mark = b->skipped[i].last;
	for (size_t i = 0; i < b->n_records; i++) {
		if (b->records[i].sequence != c->mark + 1)
			continue;
		tell(c, 'D', b->records[i].sequence, walmodel_id_of(b->records[i].payload, b->records[i].payload_len));
		c->mark = b->records[i].sequence;
	}
	reply->mark = c->mark;
	return 0;
}

static void child_main(const char *dir, int pipe, uint64_t cycle, uint64_t mark)
{
	static const struct sl_wal_sender sender = {.version = SL_WAL_SENDER_VERSION, .send = send_to_parent};
	static struct child c;
	static struct worker workers[THREADS];
	struct sl_err err = SL_ERR_INIT;
	c = (struct child){.pipe = pipe, .cycle = cycle, .mark = mark};
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .wal_dir = dir, .segment_bytes = 64 * 1024,
				   .archive_on_complete = SL_OFF, .max_pending_bytes = SL_UNLIMITED};
	if (sl_wal_open(&c.w, "s", &opts, &err) != 0) {
		fprintf(stderr, "child: %s\n", err.msg);
		_exit(7);
	}
	tell(&c, 'S', 0, 0);
	if (cycle % 2 == 0 && sl_wal_sender_start(c.w, &sender, &c, &err) != 0)
		_exit(8);
	for (uint64_t i = 0; i < THREADS; i++) {
		pthread_t t;
		workers[i] = (struct worker){&c, i};
		if (pthread_create(&t, NULL, append_for_ever, &workers[i]) != 0)
			_exit(9);
	}
	for (;;)
		pause();
}

/* ---- the parent ---- */

struct known {
	uint64_t *acked; /* by sequence: the payload number, 0 when not acknowledged */
	uint64_t *delivered;
	size_t cap;
	uint64_t mark;
};

struct totals {
	uint64_t cycles, acked, delivered, found, kills_while_open;
};

static void note(struct known *k, const struct report *r)
{
	while (r->sequence >= k->cap) {
		size_t cap = k->cap != 0 ? k->cap * 2 : 4096;
		k->acked = realloc(k->acked, cap * sizeof(*k->acked));
		k->delivered = realloc(k->delivered, cap * sizeof(*k->delivered));
		assert_true(k->acked != NULL && k->delivered != NULL);
		memset(k->acked + k->cap, 0, (cap - k->cap) * sizeof(*k->acked));
		memset(k->delivered + k->cap, 0, (cap - k->cap) * sizeof(*k->delivered));
		k->cap = cap;
	}
	uint64_t *at = r->kind == 'A' ? &k->acked[r->sequence] : &k->delivered[r->sequence];
	if (*at != 0 && *at != r->id)
		fail_msg("sequence %llu was given to two payloads", (unsigned long long)r->sequence);
	*at = r->id;
	if (r->kind == 'D' && r->sequence > k->mark)
		k->mark = r->sequence;
}

static uint64_t next_random(uint64_t *s)
{
	uint64_t z = *s += 0x9E3779B97F4A7C15ULL;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
	return z ^ (z >> 31);
}

static bool read_report(int fd, struct report *r)
{
	ssize_t got;
	do
		got = read(fd, r, sizeof(*r));
	while (got < 0 && errno == EINTR);
	assert_true(got == 0 || got == sizeof(*r));
	return got != 0;
}

static int64_t now_ns(void)
{
	struct timespec t;
	assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &t), 0);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool readable_before(int fd, int64_t moment_ns)
{
	int64_t left = moment_ns - now_ns();
	struct timespec t = {.tv_nsec = (long)left};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return left > 0 && ppoll(&p, 1, &t, NULL) == 1;
}

/* Kill it after a random number of reports and a little more: moments in the middle of a flush are as likely as
 * others. */
static void run_child(const char *dir, uint64_t cycle, struct known *k, uint64_t *rng, struct totals *t)
{
	int fds[2];
	assert_int_equal(pipe(fds), 0);
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(fds[0]);
		child_main(dir, fds[1], cycle, k->mark);
	}
	close(fds[1]);
	uint64_t after = next_random(rng) % 400, seen = 0;
	struct report r;
	if (next_random(rng) % 8 == 0)
		after = 0; /* while it recovers */
	while (seen < after && read_report(fds[0], &r)) {
		seen++;
		if (r.kind != 'S')
			note(k, &r);
	}
	/* Until the moment of the kill, which is drawn, it is listened to. */
	int64_t moment = now_ns() + (int64_t)(next_random(rng) % 2000000);
	while (readable_before(fds[0], moment) && read_report(fds[0], &r)) {
		seen++;
		if (r.kind != 'S')
			note(k, &r);
	}
	assert_int_equal(kill(pid, SIGKILL), 0);
	while (read_report(fds[0], &r)) {
		seen++;
		if (r.kind != 'S')
			note(k, &r);
	}
	close(fds[0]);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status))
		fail_msg("the child ended by itself with %d", WEXITSTATUS(status));
	t->kills_while_open += seen > 0;
}

struct check {
	const struct known *k;
	uint64_t cycle, next, found;
	uint64_t last_of[CYCLES_PER_LOG + 1][THREADS]; /* the last counter of each thread: submits keep their order */
};

static int check_record(const struct sl_wal_record *r, void *ctx)
{
	struct check *c = ctx;
	uint64_t id = walmodel_id_of(r->payload, r->payload_len);
	unsigned long long sequence = r->sequence;
	if (id == 0)
		fail_msg("record %llu has a payload that was never submitted", sequence);
	uint64_t cycle = (id >> 32) - 1, thread = id >> 24 & 0xff, n = id & 0xffffff;
	if (cycle > c->cycle || thread >= THREADS)
		fail_msg("record %llu has a payload of cycle %llu, thread %llu", sequence, (unsigned long long)cycle,
			 (unsigned long long)thread);
	if (r->sequence != c->next++)
		fail_msg("record %llu comes where %llu is due", sequence, (unsigned long long)c->next - 1);
	if (n <= c->last_of[cycle][thread])
		fail_msg("record %llu is out of its thread's order", sequence);
	c->last_of[cycle][thread] = n;
	if (r->sequence < c->k->cap) {
		if (c->k->acked[r->sequence] != 0 && c->k->acked[r->sequence] != id)
			fail_msg("record %llu was acknowledged with another payload", sequence);
		if (c->k->delivered[r->sequence] != 0 && c->k->delivered[r->sequence] != id)
			fail_msg("record %llu was delivered with another payload", sequence);
	}
	c->found++;
	return 0;
}

static void check_log(const char *dir, uint64_t cycle, const struct known *k, struct totals *t)
{
	struct sl_err err = SL_ERR_INIT;
	sl_wal *w = NULL;
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .wal_dir = dir, .segment_bytes = 64 * 1024,
				   .archive_on_complete = SL_OFF, .max_pending_bytes = SL_UNLIMITED};
	if (sl_wal_open(&w, "s", &opts, &err) != 0)
		fail_msg("does not open: %s", err.msg);
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	assert_int_equal(sl_wal_get_stats(w, &st, &err), 0);
	if (st.damaged_ranges != 0)
		fail_msg("%llu damaged ranges after a kill", (unsigned long long)st.damaged_ranges);
	struct check c = {.k = k, .cycle = cycle, .next = 1};
	if (sl_wal_iterate(w, 0, check_record, &c, &err) != 0)
		fail_msg("cannot be read: %s", err.msg);
	for (uint64_t i = c.next; i < k->cap; i++)
		if (k->acked[i] != 0 || k->delivered[i] != 0)
			fail_msg("record %llu was %s and is lost", (unsigned long long)i,
				 k->acked[i] != 0 ? "acknowledged" : "delivered");
	assert_int_equal(sl_wal_close(w, &err), 0);
	t->found = c.found;
}

/* One log through some kills; the next begins anew, so that reading it all each time stays cheap. */
static void some_kills(uint64_t cycles, uint64_t *rng, struct totals *t)
{
	char dir[] = "kill9-XXXXXX", command[64];
	struct known k = {0};
	assert_non_null(mkdtemp(dir));
	for (uint64_t cycle = 0; cycle < cycles; cycle++) {
		run_child(dir, cycle, &k, rng, t);
		check_log(dir, cycle, &k, t);
		t->cycles++;
	}
	for (size_t i = 0; i < k.cap; i++) {
		t->acked += k.acked[i] != 0;
		t->delivered += k.delivered[i] != 0;
	}
	free(k.acked);
	free(k.delivered);
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	assert_int_equal(system(command), 0);
}

static void a_killed_process_loses_and_invents_nothing(void **state)
{
	(void)state;
	uint64_t want = test_number("SLUICE_KILL_CYCLES", 0), seed = test_number("SLUICE_KILL_SEED", 1), rng = seed;
	double until = seconds_now() + test_seconds(4);
	struct totals t = {0};
	/* On a slow machine the time may be over before anything was delivered. */
	while (want != 0 ? t.cycles < want : seconds_now() < until || t.acked == 0 || t.delivered == 0) {
		uint64_t left = want != 0 ? want - t.cycles : CYCLES_PER_LOG;
		some_kills(left < CYCLES_PER_LOG ? left : CYCLES_PER_LOG, &rng, &t);
	}
	printf("# %llu kills (%llu of an open log), seed %llu: %llu records acknowledged, %llu delivered, 0 lost, 0 "
	       "invented\n",
	       (unsigned long long)t.cycles, (unsigned long long)t.kills_while_open, (unsigned long long)seed,
	       (unsigned long long)t.acked, (unsigned long long)t.delivered);
	assert_true(t.acked > 0 && t.delivered > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_process_loses_and_invents_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
