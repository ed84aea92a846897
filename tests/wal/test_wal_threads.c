/* SPDX-License-Identifier: Apache-2.0 */
/* Everything at once on one log: appenders, tickets, many at a time, readers, marks, a sender, archiving; for a while
 * (SLUICE_TEST_SECONDS, default 2), under TSan too. Then everything is counted. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/env.h"
#include "support/budget.h"
#include "support/walmodel.h"

#define SHARERS 16

struct stage {
	sl_wal *w;
	atomic_int_fast64_t end_ns; /* of the run */
	pthread_mutex_t mu;
	pthread_cond_t sent; /* after each batch */
	atomic_uint_fast64_t acked, read, batches, delivered;
	atomic_uint_fast64_t by_sequence[1 << 20]; /* payload number that was acknowledged under a sequence */
	uint64_t mark;
	bool appends_only;
	atomic_uint_fast64_t queued; /* records of append_in_two_halves that wait for a flush, or had theirs */
	atomic_int wrong;
};

static int64_t now_ns(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* On a slow machine the time may be over before everybody had a turn. */
static bool is_over(const struct stage *s)
{
	return now_ns() >= s->end_ns && (s->appends_only || (s->delivered > 0 && s->read > 0));
}

struct actor {
	struct stage *s;
	uint64_t number;
	pthread_t thread;
};

static void acknowledge(struct stage *s, uint64_t sequence, uint64_t id)
{
	if (sequence < sizeof(s->by_sequence) / sizeof(s->by_sequence[0]) &&
	    atomic_exchange(&s->by_sequence[sequence], id) != 0)
		s->wrong = __LINE__; /* given twice */
	s->acked++;
}

static void *append_alone(void *arg)
{
	struct actor *a = arg;
	uint8_t payload[WALMODEL_MAX_PAYLOAD];
	for (uint64_t n = 1; !is_over(a->s); n++) {
		uint64_t id = a->number << 40 | n, sequence = 0;
		if (sl_wal_append(a->s->w, payload, walmodel_payload(id, payload), &sequence, NULL) != 0)
			a->s->wrong = __LINE__;
		else
			acknowledge(a->s, sequence, id);
	}
	return NULL;
}

static void *append_tickets(void *arg)
{
	struct actor *a = arg;
	uint8_t payload[WALMODEL_MAX_PAYLOAD];
	struct sl_wal_ticket t[32];
	uint64_t id[32];
	for (uint64_t n = 1; !is_over(a->s);) {
		for (size_t i = 0; i < 32; i++) {
			id[i] = a->number << 40 | n++;
			if (sl_wal_submit(a->s->w, payload, walmodel_payload(id[i], payload), &t[i], NULL) != 0)
				a->s->wrong = __LINE__;
		}
		for (size_t i = 0; i < 32; i++) {
			int rc = i % 4 == 0 ? sl_wal_wait(a->s->w, &t[i], 60000, NULL)
					    : sl_wal_wait(a->s->w, &t[i], SL_UNLIMITED, NULL);
			if (rc != 0)
				a->s->wrong = __LINE__;
			else
				acknowledge(a->s, t[i].sequence, id[i]);
		}
		if (sl_wal_sync(a->s->w, NULL) != 0)
			a->s->wrong = __LINE__;
	}
	return NULL;
}

static void *append_together(void *arg)
{
	struct actor *a = arg;
	static _Thread_local uint8_t payload[5][WALMODEL_MAX_PAYLOAD];
	struct sl_wal_span spans[5];
	for (uint64_t n = 1; !is_over(a->s); n += 5) {
		for (size_t i = 0; i < 5; i++)
			spans[i] = (struct sl_wal_span){payload[i],
							walmodel_payload(a->number << 40 | (n + i), payload[i])};
		uint64_t first = 0;
		if (sl_wal_append_many(a->s->w, spans, 5, &first, NULL, NULL) != 0) {
			a->s->wrong = __LINE__;
			continue;
		}
		for (size_t i = 0; i < 5; i++)
			acknowledge(a->s, first + i, a->number << 40 | (n + i));
	}
	return NULL;
}

struct reading {
	struct stage *s;
	uint64_t last;
};

static int check_order(const struct sl_wal_record *r, void *ctx)
{
	struct reading *x = ctx;
	if (r->sequence <= x->last || walmodel_id_of(r->payload, r->payload_len) == 0)
		x->s->wrong = __LINE__;
	x->last = r->sequence;
	x->s->read++;
	return is_over(x->s) ? 1 : 0;
}

static void *read_all(void *arg)
{
	struct actor *a = arg;
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	while (!is_over(a->s)) {
		struct reading x = {.s = a->s};
		struct sl_err err = SL_ERR_INIT;
		int rc = sl_wal_iterate(a->s->w, 0, check_order, &x, &err);
		if (rc < 0) {
			printf("# iterate: %s\n", err.msg);
			a->s->wrong = __LINE__;
		}
		if (sl_wal_get_stats(a->s->w, &st, NULL) != 0)
			a->s->wrong = __LINE__;
		struct sl_wal_record r;
		rc = sl_wal_read(a->s->w, x.last, &r, NULL);
		if (rc == 0)
			sl_wal_record_free(a->s->w, &r);
		else if (rc != SL_ENOENT) /* archived meanwhile */
			a->s->wrong = __LINE__;
	}
	return NULL;
}

static int take(const struct sl_wal_batch *b, struct sl_wal_reply *reply, struct sl_err *err, void *ctx)
{
	struct stage *s = ctx;
	pthread_mutex_lock(&s->mu);
	uint64_t number = ++s->batches;
	pthread_cond_signal(&s->sent);
	pthread_mutex_unlock(&s->mu);
	if (number % 7 == 0)
		return sl_err_set(err, SL_EUNAVAIL, "now and then");
	for (size_t i = 0; i < b->n_records; i++) {
		if (b->records[i].sequence != s->mark + 1)
			s->wrong = __LINE__;
		s->mark = b->records[i].sequence;
		s->delivered++;
	}
	reply->mark = s->mark;
	return 0;
}

/* Or for the end of the run. */
static void await_batches(struct stage *s, uint64_t n)
{
	struct timespec end = {.tv_sec = (time_t)(s->end_ns / 1000000000), .tv_nsec = (long)(s->end_ns % 1000000000)};
	pthread_mutex_lock(&s->mu);
	while (s->batches < n && pthread_cond_clockwait(&s->sent, &s->mu, CLOCK_MONOTONIC, &end) == 0)
		;
	pthread_mutex_unlock(&s->mu);
}

static void *start_and_stop(void *arg)
{
	static const struct sl_wal_sender table = {.version = SL_WAL_SENDER_VERSION, .send = take};
	struct actor *a = arg;
	while (!is_over(a->s)) {
		if (sl_wal_sender_start(a->s->w, &table, a->s, NULL) != 0)
			a->s->wrong = __LINE__;
		await_batches(a->s, a->s->batches + 10);
		int rc = sl_wal_sender_stop(a->s->w, 5, NULL);
		if (rc != 0 && rc != SL_EPENDING)
			a->s->wrong = __LINE__;
	}
	return NULL;
}

static void remove_tree(const char *dir)
{
	char command[64];
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	assert_int_equal(system(command), 0);
}

struct counting {
	struct stage *s;
	uint64_t found, first, last;
};

static int count(const struct sl_wal_record *r, void *ctx)
{
	struct counting *c = ctx;
	uint64_t id = walmodel_id_of(r->payload, r->payload_len);
	if (c->found == 0)
		c->first = r->sequence;
	else if (r->sequence != c->last + 1)
		c->s->wrong = __LINE__;
	c->last = r->sequence;
	c->found++;
	if (r->sequence < sizeof(c->s->by_sequence) / sizeof(c->s->by_sequence[0]) &&
	    c->s->by_sequence[r->sequence] != id)
		c->s->wrong = __LINE__;
	return 0;
}

static void all_at_once(bool archive)
{
	static void *(*const acts[])(void *) = {append_alone, append_alone,   append_alone,   append_alone,
						append_alone, append_tickets, append_tickets, append_together,
						read_all,     start_and_stop};
	char dir[] = "threads-XXXXXX", archives[32];
	assert_non_null(mkdtemp(dir));
	(void)snprintf(archives, sizeof(archives), "%s/a", dir);
	struct stage *s = calloc(1, sizeof(*s));
	assert_non_null(s);
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT,
				   .wal_dir = dir,
				   .archive_dir = archives,
				   .segment_bytes = 256 * 1024,
				   .archive_on_complete = archive ? SL_ON : SL_OFF,
				   .max_pending_bytes = SL_UNLIMITED,
				   .retry_backoff = {.first_ms = 1, .cap_ms = 2}};
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl_wal_open(&s->w, "s", &opts, &err), 0);
	assert_int_equal(pthread_mutex_init(&s->mu, NULL), 0);
	assert_int_equal(pthread_cond_init(&s->sent, NULL), 0);
	s->end_ns = now_ns() + (int64_t)(test_seconds(2) * 1e9);
	struct actor actors[sizeof(acts) / sizeof(acts[0])];
	for (uint64_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
		actors[i] = (struct actor){.s = s, .number = i + 1};
		assert_int_equal(pthread_create(&actors[i].thread, NULL, acts[i], &actors[i]), 0);
	}
	for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
		pthread_join(actors[i].thread, NULL);
	struct counting c = {.s = s};
	if (!archive)
		assert_int_equal(sl_wal_iterate(s->w, 0, count, &c, &err), 0);
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	assert_int_equal(sl_wal_get_stats(s->w, &st, &err), 0);
	assert_int_equal(st.last_sequence, s->acked);
	assert_int_equal(sl_wal_close(s->w, &err), 0);
	assert_int_equal(s->wrong, 0); /* or the line where it went wrong */
	assert_int_equal(sl_wal_open(&s->w, "s", &opts, &err), 0);
	c = (struct counting){.s = s};
	assert_int_equal(sl_wal_iterate(s->w, 0, count, &c, &err), 0);
	assert_int_equal(s->wrong, 0); /* or the line where it went wrong */
	assert_int_equal(c.last, s->acked);
	if (!archive)
		assert_int_equal(c.found, s->acked);
	assert_int_equal(sl_wal_close(s->w, &err), 0);
	printf("# %llu appended in %llu flushes, %llu delivered, %llu read meanwhile, %llu segments\n",
	       (unsigned long long)s->acked, (unsigned long long)st.flushes, (unsigned long long)s->delivered,
	       (unsigned long long)s->read, (unsigned long long)st.segments);
	assert_true(s->delivered > 0 && s->read > 0);
	remove_tree(dir);
	pthread_cond_destroy(&s->sent);
	pthread_mutex_destroy(&s->mu);
	free(s);
}

static void appenders_tickets_readers_and_a_sender_at_once(void **state)
{
	(void)state;
	all_at_once(false);
}

static void the_same_while_settled_segments_are_archived(void **state)
{
	(void)state;
	all_at_once(true);
}

/* A disk on which a sync takes until everybody has a record that waits for one: a real disk may be faster. */
static int sync_when_all_are_here(int fd, void *ctx)
{
	struct stage *s = ctx;
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	while (s->queued > 0 && !is_over(s) && sl_wal_get_stats(s->w, &st, NULL) == 0 &&
	       s->queued < st.flushed_records + SHARERS)
		sched_yield();
	return sl__io_real.datasync(fd, NULL);
}

/* An append in two halves: between them it counts its record as queued. */
static void *append_in_two_halves(void *arg)
{
	struct actor *a = arg;
	uint8_t payload[WALMODEL_MAX_PAYLOAD];
	for (uint64_t n = 1; !is_over(a->s); n++) {
		uint64_t id = a->number << 40 | n;
		struct sl_wal_ticket t;
		int rc = sl_wal_submit(a->s->w, payload, walmodel_payload(id, payload), &t, NULL);
		a->s->queued++;
		rc = rc != 0 ? rc : sl_wal_wait(a->s->w, &t, SL_UNLIMITED, NULL);
		if (rc != 0)
			a->s->wrong = __LINE__;
		else
			acknowledge(a->s, t.sequence, id);
	}
	return NULL;
}

/* Producers that wait share flushes: that is what makes them fast. */
static void appenders_share_flushes(void **state)
{
	(void)state;
	char dir[] = "threads-XXXXXX";
	assert_non_null(mkdtemp(dir));
	struct stage *s = calloc(1, sizeof(*s));
	assert_non_null(s);
	struct sl_io io = sl__io_real;
	io.datasync = sync_when_all_are_here;
	struct sl_env env = {SL_ENV_INIT, .io = &io, .io_ctx = s};
	struct sl_wal_opts opts = {SL_WAL_OPTS_INIT, .env = &env, .wal_dir = dir};
	s->end_ns = INT64_MAX;
	s->appends_only = true;
	assert_int_equal(sl_wal_open(&s->w, "s", &opts, NULL), 0);
	struct actor actors[SHARERS];
	for (uint64_t i = 0; i < SHARERS; i++) {
		actors[i] = (struct actor){.s = s, .number = i + 1};
		assert_int_equal(pthread_create(&actors[i].thread, NULL, append_in_two_halves, &actors[i]), 0);
	}
	while (s->acked < 2000 && !s->wrong)
		sched_yield();
	s->end_ns = 0;
	for (size_t i = 0; i < SHARERS; i++)
		pthread_join(actors[i].thread, NULL);
	struct sl_wal_stats st = {.struct_size = sizeof(st)};
	assert_int_equal(sl_wal_get_stats(s->w, &st, NULL), 0);
	assert_int_equal(sl_wal_close(s->w, NULL), 0);
	printf("# %d appenders: %llu records in %llu flushes\n", SHARERS, (unsigned long long)st.flushed_records,
	       (unsigned long long)st.flushes);
	assert_int_equal(st.flushed_records, s->acked);
	assert_true(st.flushes * 2 < st.flushed_records);
	assert_int_equal(s->wrong, 0); /* or the line where it went wrong */
	remove_tree(dir);
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(appenders_tickets_readers_and_a_sender_at_once),
		cmocka_unit_test(the_same_while_settled_segments_are_archived),
		cmocka_unit_test(appenders_share_flushes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
