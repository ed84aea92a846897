/* SPDX-License-Identifier: Apache-2.0 */
/* Several workers with many slots on one store, in real time, with jobs that fail, continue, wait and are cancelled,
 * and workers that come and go: in the end every chain has ended, and no job was completed twice. */
#include "jobs/worker_kit.h"
#include "support/budget.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_JOBS 200000
#define WORKERS 3

struct storm {
	struct wkit *k;
	_Atomic unsigned char completed[MAX_JOBS];
	_Atomic unsigned long runs, completions, twice, cancels, stops;
	_Atomic int over;
	unsigned long chains;
};

static struct storm storm;

static void observe(const struct sl_observation *o, void *ctx)
{
	struct storm *s = ctx;
	if (o->kind != SL_OBSERVE_JOB_COMPLETED || o->worker == NULL || o->id >= MAX_JOBS)
		return;
	s->completions++;
	if (s->completed[o->id]++ > 0)
		s->twice++;
}

/* What becomes of a job is in its number: most complete, some fail at first, continue, come later, or fail for good. */
static int any_fate(sl_attempt *a, struct sl_err *err, void *ctx)
{
	struct storm *s = ctx;
	const struct sl_job *job = sl_attempt_job(a);
	unsigned long turn = s->runs++;
	if (sl_attempt_aborted(a) != SL_ABORT_NONE)
		return 0;
	switch (turn % 13) {
	case 1:
		return sl_err_set(err, SL_EIO, "not this time");
	case 3:
		return sl_attempt_reschedule_in(a, 1, err);
	case 5:
		return job->prev_id == 0 && job->id == job->chain_id
			       ? sl_attempt_continue(a, &(struct sl_new_job){.type = "storm", .input = "2"}, err)
			       : 0;
	case 7: {
		int rc = sl_attempt_prepare(a, SL_ATOMIC, NULL, NULL, err);
		return rc != 0 ? rc : sl_attempt_complete(a, "\"atomic\"", err);
	}
	case 9:
		return sl_attempt_progress(a, "0.5", err);
	case 11:
		return sl_attempt_complete(a, "[\"an output that does not fit where short ones are kept\"]", err);
	default:
		return 0;
	}
}

static sl_worker *worker(struct storm *s, int index)
{
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "storm", .process = any_fate, .ctx = s,
				       .retry = {.first_ms = 1, .cap_ms = 5}};
	char id[16];
	(void)snprintf(id, sizeof(id), "w%d", index);
	struct sl_worker_opts opts = wkit_opts(s->k, &p, 1);
	opts.worker_id = id;
	opts.observe = observe;
	opts.observe_ctx = s;
	opts.slots = 1 + index * 3;
	opts.lanes = 1 + index % 2;
	opts.claim_batch = 1 << (index * 3);
	opts.poll_interval_ms = 50;
	opts.lease_ms = 2000;
	return wkit_worker(s->k, &opts);
}

/* A worker that is stopped and made anew, over and over. */
static void *come_and_go(void *ctx)
{
	struct storm *s = ctx;
	for (int i = 0; !s->over; i++) {
		sl_worker *w = worker(s, i % WORKERS);
		struct sl_worker_stats stats = {.struct_size = sizeof(stats)};
		do
			sl_worker_get_stats(w, &stats);
		while (stats.claimed < 20 && !s->over);
		int rc = sl_worker_stop(w, i % 2 == 0 ? 0 : SL_UNLIMITED, NULL);
		if (rc != 0 && rc != SL_ETIMEDOUT)
			abort();
		s->stops++;
		sl_worker_free(w);
	}
	return NULL;
}

static void *cancel_some(void *ctx)
{
	struct storm *s = ctx;
	for (uint64_t id = 7; !s->over; id += 17) {
		size_t n = 0;
		int rc = sl_jobs_cancel(s->k->client, NULL, &id, 1, &n, NULL);
		s->cancels += rc == 0 ? n : 0;
		if (rc == SL_ENOENT && id > 17)
			id -= 17; /* not there yet */
	}
	return NULL;
}

static void start_some(struct storm *s, double until, unsigned long most)
{
	struct sl_new_chain chains[20];
	struct sl_started out[20];
	for (int i = 0; i < 20; i++)
		chains[i] = (struct sl_new_chain){.job = {.type = "storm", .input = "1", .priority = i % 3}};
	while (seconds_now() < until && s->chains < most) {
		OK(sl_jobs_enqueue_many(s->k->client, NULL, chains, 20, out, &err));
		s->chains += 20;
	}
}

struct sums {
	unsigned long ended, open, completed;
};

static int sum(const struct sl_job_count *c, void *ctx)
{
	struct sums *sums = ctx;
	if (c->status >= SL_JOB_COMPLETED)
		sums->ended += c->count;
	else
		sums->open += c->count;
	sums->completed += c->status == SL_JOB_COMPLETED ? c->count : 0;
	return 0;
}

static void weather(struct wkit *k, unsigned long most)
{
	struct storm *s = &storm;
	memset(s, 0, sizeof(*s));
	s->k = k;
	sl_worker *w[WORKERS];
	pthread_t goer, canceller;
	for (int i = 0; i < WORKERS; i++)
		w[i] = worker(s, i);
	pthread_create(&goer, NULL, come_and_go, s);
	pthread_create(&canceller, NULL, cancel_some, s);
	start_some(s, seconds_now() + test_seconds(1), most);
	s->over = 1;
	pthread_join(goer, NULL);
	pthread_join(canceller, NULL);
	OK(sl_worker_drain(w[0], 240000, &err));
	for (int i = 0; i < WORKERS; i++)
		wkit_end(w[i]);
	struct sums sums = {0};
	OK(sl_jobs_counts(k->client, sum, &sums, &err));
	printf("# %lu chains, %lu jobs, %lu attempts, %lu completions, %lu cancelled, %lu stops\n", s->chains,
	       sums.ended, s->runs, s->completions, s->cancels, s->stops);
	assert_int_equal(sums.open, 0);
	assert_int_equal(s->twice, 0);
	assert_true(sums.ended >= s->chains);
	assert_int_equal(s->completions, sums.completed);
}

static void in_a_storm_on_sqlite_every_chain_ends_and_nothing_completes_twice(void **state)
{
	struct wkit *k = *state;
	weather(k, MAX_JOBS / 4);
	const char *wrong = sqlite_wrong(k->place.path);
	if (wrong != NULL)
		fail_msg("%s", wrong);
}

static void in_a_storm_in_memory_every_chain_ends_and_nothing_completes_twice(void **state)
{
	struct wkit *k = *state;
	weather(k, 400); /* its loops go over all rows */
}

static int memory_in_real_time(void **state)
{
	int rc = wkit_memory(state);
	struct wkit *k = *state;
	sl_jobs_close(k->client);
	memstore_free(k->ms);
	k->env.clock = NULL;
	k->ms = memstore_new(&k->env);
	k->real = memstore_handle(k->ms);
	k->store.ctx = k->real.ctx;
	const struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &k->real, .notify = &k->notify};
	OK(sl_jobs_open(&k->client, &opts, &err));
	return rc;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(in_a_storm_on_sqlite_every_chain_ends_and_nothing_completes_twice,
						wkit_sqlite, wkit_gone),
		cmocka_unit_test_setup_teardown(in_a_storm_in_memory_every_chain_ends_and_nothing_completes_twice,
						memory_in_real_time, wkit_gone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
