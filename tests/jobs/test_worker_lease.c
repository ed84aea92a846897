/* SPDX-License-Identifier: Apache-2.0 */
/* Leases, aborts, stops and stores that misbehave, on the store in memory and in virtual time. */
#include <string.h>
#include <unistd.h>

#include "jobs/worker_kit.h"
#include "support/quiet.h"

static int echo(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)ctx;
	return sl_attempt_complete(a, sl_attempt_job(a)->input, err);
}

static int fast_then_slow(sl_attempt *a, struct sl_err *err, void *ctx)
{
	if (strcmp(sl_attempt_job(a)->input, "\"slow\"") == 0)
		return wkit_gate(a, err, ctx);
	return 0;
}

/* A worker whose handler for a job of type "t" has begun. */
static sl_worker *worker_at_work(struct wkit *k, sl_process_fn *process, void *ctx, uint64_t *id)
{
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = process, .ctx = ctx};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t started = wkit_start(k, "t", "1");
	if (id != NULL)
		*id = started;
	wkit_await_field(k, &k->arrived, 1);
	return w;
}

static struct sl_worker_stats stats_of(sl_worker *w)
{
	struct sl_worker_stats stats = {.struct_size = sizeof(stats)};
	sl_worker_get_stats(w, &stats);
	return stats;
}

/* ---- leases and aborts ---- */

static void a_lease_is_renewed_while_its_handler_runs(void **state)
{
	struct wkit *k = *state;
	uint64_t id;
	sl_worker *w = worker_at_work(k, wkit_gate, k, &id);
	for (int i = 1; i <= 10; i++) {
		wkit_advance(k, 30000);
		wkit_await(k, SL_OBSERVE_LEASE_RENEWED, i);
	}
	struct sl_job *job = wkit_job(k, id);
	assert_int_equal(job->status, SL_JOB_RUNNING);
	assert_true(job->leased_until_ms > k->clock.now_ns / 1000000 + k->clock.real_offset_ms);
	sl_job_release(k->client, job);
	WKIT_SET(k, open, 1);
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	assert_int_equal(wkit_get(k, &k->arrived), 1);
	wkit_end(w);
}

struct aborted {
	struct wkit *k;
	enum sl_abort_reason reason;
	int readable;
};

static int note_abort(sl_attempt *a, struct sl_err *err, void *ctx)
{
	struct aborted *ab = ctx;
	if (wkit_get(ab->k, &ab->k->arrived) > 0)
		return sl_attempt_fail(a, "again", err);
	int fd = sl_attempt_abort_fd(a, err);
	assert_true(fd >= 0);
	assert_int_equal(sl_attempt_aborted(a), SL_ABORT_NONE);
	assert_int_equal(sl_attempt_wait_abort(a, 0), SL_ABORT_NONE);
	wkit_arrive(ab->k);
	enum sl_abort_reason reason = sl_attempt_wait_abort(a, SL_UNLIMITED);
	uint64_t n = 0;
	ab->readable = read(fd, &n, sizeof(n)) == sizeof(n);
	assert_int_equal(sl_attempt_complete(a, "1", NULL), SL_ECANCELLED);
	ab->reason = reason;
	wkit_leave(ab->k);
	return 0;
}

/* Start a job, wait for its handler, do something to the chain, and see with what reason the handler is aborted. */
static enum sl_abort_reason abort_by(struct wkit *k, void (*act)(struct wkit *, uint64_t), int readable)
{
	struct aborted ab = {.k = k};
	uint64_t id;
	sl_worker *w = worker_at_work(k, note_abort, &ab, &id);
	act(k, id);
	wkit_await_field(k, &k->left, 1);
	wkit_await(k, SL_OBSERVE_ATTEMPT_ABORTED, 1);
	wkit_end(w);
	assert_int_equal(ab.readable, readable);
	assert_int_equal(wkit_seen(k, SL_OBSERVE_ATTEMPT_COMPLETED), 0);
	return ab.reason;
}

static void cancel_it(struct wkit *k, uint64_t id)
{
	size_t n = 0;
	OK(sl_jobs_cancel(k->client, NULL, &id, 1, &n, &err));
}

static void complete_it(struct wkit *k, uint64_t id)
{
	OK(sl_jobs_complete(k->client, NULL, id, "\"outside\"", &err));
}

static void fail_it(struct wkit *k, uint64_t id)
{
	OK(sl_jobs_fail(k->client, NULL, id, "from outside", &err));
}

static void delete_it(struct wkit *k, uint64_t id)
{
	size_t n = 0;
	OK(sl_jobs_delete(k->client, NULL, &id, 1, false, &n, &err));
}

static void a_cancelled_job_aborts_its_handler_at_once(void **state)
{
	struct wkit *k = *state;
	assert_int_equal(abort_by(k, cancel_it, 1), SL_ABORT_CANCELLED);
	assert_int_equal(wkit_seen(k, SL_OBSERVE_LEASE_LOST), 1);
}

static void a_job_completed_from_outside_aborts_its_handler_at_once(void **state)
{
	assert_int_equal(abort_by(*state, complete_it, 1), SL_ABORT_ALREADY_COMPLETED);
}

static void a_job_failed_from_outside_aborts_its_handler_at_once(void **state)
{
	struct wkit *k = *state;
	assert_int_equal(abort_by(k, fail_it, 1), SL_ABORT_ALREADY_FAILED);
	assert_string_equal(sl_abort_reason_name(SL_ABORT_ALREADY_FAILED), "already_failed");
	assert_int_equal(wkit_seen(k, SL_OBSERVE_LEASE_LOST), 1);
}

static void a_deleted_job_aborts_its_handler_at_once(void **state)
{
	assert_int_equal(abort_by(*state, delete_it, 1), SL_ABORT_NOT_FOUND);
}

static void store_becomes_unavailable(struct wkit *k, uint64_t id)
{
	(void)id;
	WKIT_SET(k, away, 1);
	wkit_advance(k, 30000);
	wkit_await_field(k, &k->renews, 1);
	wkit_advance(k, 28000); /* 2 s before the lease ends by the store's clock */
	wkit_await_field(k, &k->left, 1);
	WKIT_SET(k, away, 0);
	wkit_advance(k, 5000);
}

static void a_lease_that_cannot_be_renewed_aborts_before_it_ends(void **state)
{
	struct wkit *k = *state;
	assert_int_equal(abort_by(k, store_becomes_unavailable, 1), SL_ABORT_ERROR);
	assert_true(wkit_seen(k, SL_OBSERVE_WORKER_ERROR) > 0);
}

static int note_late(sl_attempt *a, struct sl_err *err, void *ctx)
{
	struct wkit *k = ctx;
	wkit_arrive(k);
	if (wkit_get(k, &k->arrived) > 1) {
		wkit_leave(k);
		return sl_attempt_complete(a, "\"second\"", err);
	}
	assert_int_equal(sl_attempt_wait_abort(a, SL_UNLIMITED), SL_ABORT_TIMEOUT);
	wkit_leave(k);
	wkit_pass(k); /* it takes its time to obey */
	return 0;
}

static void a_timeout_aborts_and_the_attempt_fails_once_the_handler_is_back(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t",        .process = note_late,
				       .ctx = k,          .timeout_ms = 3000, .slots = 1};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	opts.slots = 2;
	sl_worker *w = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "1");
	wkit_await_field(k, &k->arrived, 1);
	wkit_advance(k, 3000);
	wkit_await_field(k, &k->left, 1);
	/* It keeps its job and its lease for as long as it runs. */
	wkit_advance(k, 27000);
	wkit_await(k, SL_OBSERVE_LEASE_RENEWED, 1);
	wkit_advance(k, 30000);
	wkit_await(k, SL_OBSERVE_LEASE_RENEWED, 2);
	assert_int_equal(wkit_get(k, &k->arrived), 1);
	WKIT_SET(k, open, 1);
	wkit_await(k, SL_OBSERVE_ATTEMPT_FAILED, 1);
	assert_non_null(strstr(k->last_error[SL_OBSERVE_ATTEMPT_FAILED], "timeout"));
	quiet_await();
	wkit_advance(k, 11000);
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	wkit_end(w);
}

static void a_worker_that_lost_its_lease_cannot_complete(void **state)
{
	struct wkit *k = *state;
	struct aborted ab = {.k = k};
	const struct sl_processor first = {SL_PROCESSOR_INIT, .type = "t", .process = note_abort, .ctx = &ab};
	const struct sl_processor second = {SL_PROCESSOR_INIT, .type = "t", .process = echo};
	struct sl_worker_opts opts = wkit_opts(k, &first, 1);
	sl_worker *w1 = wkit_worker(k, &opts);
	uint64_t id = wkit_start(k, "t", "\"in\"");
	wkit_await_field(k, &k->arrived, 1);
	WKIT_SET(k, away, 1);
	wkit_advance(k, 59000);
	wkit_await_field(k, &k->left, 1);
	assert_int_equal(ab.reason, SL_ABORT_ERROR);
	wkit_advance(k, 2000);
	struct sl_worker_opts opts2 = wkit_opts(k, &second, 1);
	opts2.worker_id = "w2";
	opts2.store = &k->real;
	sl_worker *w2 = wkit_worker(k, &opts2);
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	struct sl_job *job = wkit_job(k, id);
	assert_string_equal(job->output, "\"in\"");
	sl_job_release(k->client, job);
	assert_int_equal(wkit_attempts(k, id, SL_ATTEMPT_REAPED), 1);
	WKIT_SET(k, away, 0);
	wkit_advance(k, 5000);
	OK(sl_worker_stop(w1, SL_UNLIMITED, &err));
	struct sl_worker_stats stats = stats_of(w1);
	assert_int_equal(stats.released, 0);
	assert_int_equal(stats.lost, 1);
	sl_worker_free(w1);
	wkit_end(w2);
}

static void a_stalled_worker_learns_from_the_store_why_it_lost_its_job(void **state)
{
	struct wkit *k = *state;
	struct aborted ab = {.k = k};
	const struct sl_processor first = {SL_PROCESSOR_INIT, .type = "t", .process = note_abort, .ctx = &ab};
	struct sl_worker_opts opts = wkit_opts(k, &first, 1);
	opts.notify = NULL;
	uint64_t id = wkit_start(k, "t", "1");
	sl_worker *w1 = wkit_worker(k, &opts);
	wkit_await_field(k, &k->arrived, 1);
	size_t n;
	OK(k->real.ops->cancel(k->real.ctx, (struct sl_ids){&id, 1}, NULL, &n, &err));
	wkit_advance(k, 100000); /* past the lease in one step: neither renewal nor clock came in time */
	wkit_await_field(k, &k->left, 1);
	assert_int_equal(ab.reason, SL_ABORT_CANCELLED);
	wkit_end(w1);
}

/* ---- stopping ---- */

struct pending {
	int n;
};

static int count_pending(const struct sl_job *job, void *ctx)
{
	((struct pending *)ctx)->n += job->status == SL_JOB_PENDING;
	return 0;
}

/* Opens the gate when four jobs are back in the queue, while the handler is still inside. */
static void *open_when_released(void *kit)
{
	struct wkit *k = kit;
	struct pending p;
	do {
		p.n = 0;
		if (sl_jobs_list(k->client, &(struct sl_job_filter){SL_JOB_FILTER_INIT, .limit = 100}, count_pending,
				 &p, NULL) != 0)
			break;
	} while (p.n < 4);
	WKIT_SET(k, open, 1);
	return NULL;
}

static void a_stop_lets_handlers_finish_and_gives_back_the_rest_at_once(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = fast_then_slow, .ctx = k};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	wkit_start(k, "t", "1");
	sl_worker *w = wkit_worker(k, &opts);
	wkit_await(k, SL_OBSERVE_JOB_COMPLETED, 1);
	struct sl_new_chain chains[5];
	struct sl_started out[5];
	for (int i = 0; i < 5; i++)
		chains[i] = (struct sl_new_chain){.job = {.type = "t", .input = i == 0 ? "\"slow\"" : "1"}};
	OK(sl_jobs_enqueue_many(k->client, NULL, chains, 5, out, &err));
	wkit_await_field(k, &k->arrived, 1);
	wkit_await(k, SL_OBSERVE_JOB_ACQUIRED, 6);
	REFUSED(sl_worker_start(w, &err), SL_EINVAL, "started before");
	pthread_t opener;
	pthread_create(&opener, NULL, open_when_released, k);
	OK(sl_worker_stop(w, SL_UNLIMITED, &err));
	pthread_join(opener, NULL);
	OK(sl_worker_stop(w, 0, &err));
	struct sl_worker_stats stats = stats_of(w);
	assert_int_equal(stats.completed, 2);
	assert_int_equal(stats.released, 4);
	for (int i = 1; i < 5; i++) {
		struct sl_job *job = wkit_job(k, out[i].chain_id);
		assert_int_equal(job->status, SL_JOB_PENDING);
		assert_int_equal(job->attempt, 0);
		sl_job_release(k->client, job);
	}
	sl_worker_free(w);
}

static void a_stop_past_its_deadline_aborts_and_gives_back_uncharged(void **state)
{
	struct wkit *k = *state;
	struct aborted ab = {.k = k};
	uint64_t id;
	sl_worker *w = worker_at_work(k, note_abort, &ab, &id);
	REFUSED(sl_worker_stop(w, 0, &err), SL_ETIMEDOUT, "1 attempts");
	assert_int_equal(ab.reason, SL_ABORT_SHUTDOWN);
	struct sl_job *job = wkit_job(k, id);
	assert_int_equal(job->status, SL_JOB_PENDING);
	assert_int_equal(job->charged, 0);
	sl_job_release(k->client, job);
	sl_worker_free(w);
}

static void a_stop_without_its_store_ends_and_says_so(void **state)
{
	struct wkit *k = *state;
	uint64_t id;
	sl_worker *w = worker_at_work(k, wkit_gate, k, &id);
	WKIT_SET(k, away, 1);
	WKIT_SET(k, open, 1);
	wkit_await_field(k, &k->left, 1);
	REFUSED(sl_worker_stop(w, 0, &err), SL_EUNAVAIL, "1 jobs");
	sl_worker_free(w);
	struct sl_job *job = wkit_job(k, id);
	assert_int_equal(job->status, SL_JOB_RUNNING);
	sl_job_release(k->client, job);
}

static int stop_self(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)a;
	(void)err;
	assert_int_equal(sl_worker_stop(*(sl_worker **)ctx, 0, NULL), SL_EINVAL);
	return 0;
}

static void a_handler_cannot_stop_its_own_worker(void **state)
{
	struct wkit *k = *state;
	sl_worker *w = NULL;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = stop_self, .ctx = &w};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	w = wkit_worker(k, &opts);
	assert_int_equal(wkit_wait(k, wkit_start(k, "t", "1")), SL_JOB_COMPLETED);
	wkit_end(w);
}

/* ---- a store that misbehaves ---- */

static void settles_are_kept_while_the_store_is_unavailable(void **state)
{
	struct wkit *k = *state;
	uint64_t id;
	sl_worker *w = worker_at_work(k, wkit_gate, k, &id);
	WKIT_SET(k, away, 1);
	WKIT_SET(k, open, 1);
	wkit_step(k, SL_OBSERVE_WORKER_ERROR, 6, 1000, 25000);
	quiet_await();
	struct sl_worker_stats stats = stats_of(w);
	assert_int_equal(stats.connected, 0);
	WKIT_SET(k, away, 0);
	wkit_step(k, SL_OBSERVE_JOB_COMPLETED, 1, 1000, 10000);
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	wkit_end(w);
}

static void a_lost_answer_is_asked_for_again_and_nothing_happens_twice(void **state)
{
	struct wkit *k = *state;
	sl_worker *w = worker_at_work(k, wkit_gate, k, NULL);
	WKIT_SET(k, lose_answers, 1);
	WKIT_SET(k, open, 1);
	wkit_step(k, SL_OBSERVE_JOB_COMPLETED, 1, 1000, 10000);
	quiet_await();
	struct sl_worker_stats stats = stats_of(w);
	assert_int_equal(stats.lost, 0);
	assert_int_equal(stats.completed, 1);
	assert_int_equal(wkit_get(k, &k->arrived), 1);
	wkit_end(w);
}

static int fail_at_the_gate(sl_attempt *a, struct sl_err *err, void *ctx)
{
	(void)a;
	wkit_arrive(ctx);
	wkit_pass(ctx);
	wkit_leave(ctx);
	return sl_err_set(err, SL_EIO, "it broke");
}

/* The other one has nothing to do, and would look again after a minute. */
static void a_retry_is_known_to_others_when_the_worker_that_waits_for_it_goes(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = fail_at_the_gate, .ctx = k};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *first = worker_at_work(k, fail_at_the_gate, k, NULL);
	sl_worker *second = wkit_worker(k, &opts);
	while (stats_of(second).exchanges == 0)
		continue;
	WKIT_SET(k, open, 1);
	wkit_await(k, SL_OBSERVE_ATTEMPT_FAILED, 1);
	wkit_end(first);
	wkit_step(k, SL_OBSERVE_ATTEMPT_FAILED, 2, 1000, 15000); /* its retry is due after 10 s */
	wkit_end(second);
}

/* ---- observers that stop their worker ---- */

struct stopper {
	struct wkit *k;
	sl_worker *w;
	enum sl_observe_kind at; /* the observation on which it stops */
	int rc, calls;
};

static void stop_on(const struct sl_observation *o, void *ctx)
{
	struct stopper *s = ctx;
	if (o->kind == s->at && s->w != NULL) {
		struct sl_err err = SL_ERR_INIT;
		int rc = sl_worker_stop(s->w, 0, &err);
		pthread_mutex_lock(&s->k->mu);
		s->rc = rc;
		pthread_mutex_unlock(&s->k->mu);
		sl_worker_free(s->w); /* neither */
	}
	pthread_mutex_lock(&s->k->mu);
	s->calls += o->kind == s->at;
	s->k->seen[o->kind]++;
	pthread_cond_broadcast(&s->k->changed);
	pthread_mutex_unlock(&s->k->mu);
}

/* On a lane, on the thread that stops, and (with a lease that is renewed) on the keeper. */
static void an_observer_cannot_stop_its_own_worker(void **state)
{
	struct wkit *k = *state;
	static const enum sl_observe_kind kinds[] = {SL_OBSERVE_JOB_COMPLETED, SL_OBSERVE_JOB_ACQUIRED,
						     SL_OBSERVE_WORKER_STOPPING, SL_OBSERVE_LEASE_RENEWED};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		struct stopper s = {.k = k, .at = kinds[i]};
		const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_gate, .ctx = k};
		struct sl_worker_opts opts = wkit_opts(k, &p, 1);
		sl_worker *w = NULL;
		opts.observe = stop_on;
		opts.observe_ctx = &s;
		int before = wkit_seen(k, kinds[i]), arrived = wkit_get(k, &k->arrived);
		WKIT_SET(k, open, 0);
		OK(sl_worker_new(&w, &opts, &err));
		s.w = w;
		OK(sl_worker_start(w, &err));
		uint64_t id = wkit_start(k, "t", "1");
		wkit_await_field(k, &k->arrived, arrived + 1);
		if (kinds[i] == SL_OBSERVE_LEASE_RENEWED)
			wkit_step(k, kinds[i], before + 1, 10000, 60000);
		WKIT_SET(k, open, 1);
		assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
		OK(sl_worker_stop(w, SL_UNLIMITED, &err));
		assert_true(wkit_seen(k, kinds[i]) > before);
		assert_int_equal(wkit_get(k, &s.rc), SL_EINVAL);
		sl_worker_free(w);
	}
}

static void a_failure_whose_answer_was_lost_is_known_for_our_own(void **state)
{
	struct wkit *k = *state;
	sl_worker *w = worker_at_work(k, fail_at_the_gate, k, NULL);
	WKIT_SET(k, lose_answers, 1);
	WKIT_SET(k, open, 1);
	wkit_step(k, SL_OBSERVE_ATTEMPT_FAILED, 1, 100, 5000);
	quiet_await();
	struct sl_worker_stats stats = stats_of(w);
	assert_int_equal(stats.lost, 0);
	assert_int_equal(stats.retried, 1);
	assert_int_equal(wkit_seen(k, SL_OBSERVE_LEASE_LOST), 0);
	wkit_end(w);
}

static void jobs_of_a_claim_whose_answer_was_lost_do_not_wait_for_their_lease(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	uint64_t id = wkit_start(k, "t", "1");
	WKIT_SET(k, lose_answers, 1);
	sl_worker *w = wkit_worker(k, &opts);
	wkit_await(k, SL_OBSERVE_WORKER_ERROR, 1);
	wkit_step(k, SL_OBSERVE_JOB_COMPLETED, 1, 20, 30000); /* and the lease is of 60 s */
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	wkit_end(w);
}

static int poison_some(sl_attempt *a, struct sl_err *err, void *ctx)
{
	wkit_arrive(ctx);
	wkit_pass(ctx);
	return sl_attempt_complete(a, sl_attempt_job(a)->input, err);
}

static void one_refused_output_does_not_fail_its_batch_mates(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = poison_some, .ctx = k,
				       .retry = {.max_attempts = 1}};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	opts.slots = 8;
	k->poison = "arsenic";
	uint64_t ids[8];
	for (int i = 0; i < 8; i++)
		ids[i] = wkit_start(k, "t", i == 3 ? "\"arsenic\"" : "1");
	sl_worker *w = wkit_worker(k, &opts);
	wkit_await_field(k, &k->arrived, 8);
	WKIT_SET(k, open, 1);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(wkit_wait(k, ids[i]), i == 3 ? SL_JOB_FAILED : SL_JOB_COMPLETED);
		struct sl_job *job = wkit_job(k, ids[i]);
		assert_int_equal(job->attempt, 1);
		if (i == 3)
			assert_string_equal(job->error, "the store does not take this");
		sl_job_release(k->client, job);
	}
	wkit_end(w);
	assert_true(wkit_warned(k, "the store refused the end of an attempt"));
	assert_true(wkit_warned(k, "the store does not take this"));
	assert_false(wkit_warned(k, "does not answer"));
}

static void an_unavailable_store_is_logged_as_not_answering(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_noop};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	WKIT_SET(k, away, 1);
	sl_worker *w = wkit_worker(k, &opts);
	wkit_await_field(k, &k->exchanges, 1);
	WKIT_SET(k, away, 0);
	uint64_t id = wkit_start(k, "t", "1");
	wkit_step(k, SL_OBSERVE_JOB_COMPLETED, 1, 20, 30000);
	assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
	wkit_end(w);
	assert_true(wkit_warned(k, "the store does not answer"));
	assert_false(wkit_warned(k, "refused"));
}

static int times_warned(struct wkit *k, const char *text)
{
	int n = 0;
	pthread_mutex_lock(&k->mu);
	for (const char *at = k->warned; (at = strstr(at, text)) != NULL; at++)
		n++;
	pthread_mutex_unlock(&k->mu);
	return n;
}

static void an_outage_is_logged_once_however_many_requests_fail(void **state)
{
	struct wkit *k = *state;
	const struct sl_processor p = {SL_PROCESSOR_INIT, .type = "t", .process = wkit_gate, .ctx = k,
				       .lease_ms = 600000};
	struct sl_worker_opts opts = wkit_opts(k, &p, 1);
	sl_worker *w = wkit_worker(k, &opts);
	for (int outage = 1; outage <= 2; outage++) {
		uint64_t id = wkit_start(k, "t", "1");
		wkit_await_field(k, &k->arrived, outage);
		WKIT_SET(k, away, 1);
		/* Renewals, reaps and exchanges fail, many times. */
		wkit_step(k, SL_OBSERVE_WORKER_ERROR, 30 * outage, 1000, 599000);
		assert_int_equal(times_warned(k, "does not answer"), outage);
		WKIT_SET(k, away, 0);
		WKIT_SET(k, open, 1);
		wkit_step(k, SL_OBSERVE_JOB_COMPLETED, outage, 1000, 60000);
		assert_int_equal(wkit_wait(k, id), SL_JOB_COMPLETED);
		WKIT_SET(k, open, 0);
		/* It is over when all that failed has been answered: also the reap. */
		wkit_advance(k, 6000);
		quiet_await();
	}
	wkit_end(w);
	assert_int_equal(times_warned(k, "does not answer"), 2);
	assert_int_equal(times_warned(k, "level=warn"), 2);
}

#define T(name) cmocka_unit_test_setup_teardown(name, wkit_memory, wkit_gone)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_lease_is_renewed_while_its_handler_runs),
		T(a_cancelled_job_aborts_its_handler_at_once),
		T(a_job_completed_from_outside_aborts_its_handler_at_once),
		T(a_job_failed_from_outside_aborts_its_handler_at_once),
		T(a_deleted_job_aborts_its_handler_at_once),
		T(a_lease_that_cannot_be_renewed_aborts_before_it_ends),
		T(a_timeout_aborts_and_the_attempt_fails_once_the_handler_is_back),
		T(a_worker_that_lost_its_lease_cannot_complete),
		T(a_stalled_worker_learns_from_the_store_why_it_lost_its_job),
		T(a_stop_lets_handlers_finish_and_gives_back_the_rest_at_once),
		T(a_stop_past_its_deadline_aborts_and_gives_back_uncharged),
		T(a_stop_without_its_store_ends_and_says_so),
		T(a_handler_cannot_stop_its_own_worker),
		T(an_observer_cannot_stop_its_own_worker),
		T(a_retry_is_known_to_others_when_the_worker_that_waits_for_it_goes),
		T(settles_are_kept_while_the_store_is_unavailable),
		T(a_lost_answer_is_asked_for_again_and_nothing_happens_twice),
		T(a_failure_whose_answer_was_lost_is_known_for_our_own),
		T(jobs_of_a_claim_whose_answer_was_lost_do_not_wait_for_their_lease),
		T(one_refused_output_does_not_fail_its_batch_mates),
		T(an_unavailable_store_is_logged_as_not_answering),
		T(an_outage_is_logged_once_however_many_requests_fail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
