/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers: build and store a partition, try again where it is (after others in the queue it would wait for the
 * window that waits for it), and hand it to the sequencer.
 */
#include <stdio.h>

#include "pipeline/pipeline.h"

struct worker {
	sl_pipeline *p;
	unsigned index;
	bool ready; /* worker_init has succeeded */
	void *state;
	const char *step; /* what the last attempt was doing */
	struct sl__prng prng;
};

/* ---- one attempt ---- */

/* Initialise the worker, build and store, as far as that is not done. w->step is the one that failed. */
static int attempt_steps(struct worker *w, struct sl__task *t, struct sl_err *err)
{
	sl_pipeline *p = w->p;
	const struct sl_pipeline_ops *ops = p->o.ops;
	int rc = 0;
	if (!w->ready && ops->worker_init != NULL) {
		w->step = "worker";
		w->state = NULL;
		rc = ops->worker_init(w->index, &w->state, err, p->o.ctx);
		w->ready = rc == 0;
		if (rc != 0)
			return rc;
	}
	if (!t->built) {
		w->step = "build";
		t->out = NULL;
		rc = ops->build(w->state, &t->part, &t->out, err, p->o.ctx);
		t->built = rc == 0;
		if (rc != 0) {
			t->out = NULL;
			return rc;
		}
		sl__pipeline_step(p, "built", t);
	}
	w->step = "store";
	t->ref = NULL;
	if (ops->store != NULL)
		rc = ops->store(w->state, &t->part, t->out, &t->ref, err, p->o.ctx);
	if (rc != 0) {
		t->ref = NULL;
		if (p->o.keep_output != SL_ON)
			sl__task_release_product(p, t);
		return rc;
	}
	sl__pipeline_step(p, "stored", t);
	return 0;
}

/* ---- again, or for good ---- */

static void fail_partition(struct worker *w, const struct sl__task *t, struct sl_err *err)
{
	char of[24] = "";
	if (w->p->o.retry_attempts != SL_UNLIMITED)
		(void)snprintf(of, sizeof(of), " of %d", (int)w->p->o.retry_attempts);
	(void)sl_err_wrap(err, err->code, "partition %llu to %llu, attempt %u%s: %s", (unsigned long long)t->part.start,
			  (unsigned long long)t->part.end, t->part.attempt, of, w->step);
	sl__pipeline_fail(w->p, t->ordinal, err);
}

/* Build and store, as often as the policy allows. false: abandoned, or failed and reported. */
static bool produce(struct worker *w, struct sl__task *t)
{
	sl_pipeline *p = w->p;
	struct sl__retry_state state = {0};
	for (t->part.attempt = 1; !sl__pipeline_abandoned(p, t->ordinal); t->part.attempt++) {
		struct sl_err err = SL_ERR_INIT;
		int64_t since = sl__mono_ns(&p->env);
		sl__lock(&p->mu);
		p->busy++;
		p->busy_since_sum += since;
		sl__unlock(&p->mu);
		int rc = attempt_steps(w, t, &err);
		int64_t now = sl__mono_ns(&p->env);
		sl__lock(&p->mu);
		p->busy--;
		p->busy_since_sum -= since;
		p->busy_ns += now - since;
		sl__unlock(&p->mu);
		if (rc == 0)
			return true;
		sl__pipeline_complete_err(&err, rc);

		/* Every attempt begins afresh from the elements, so that an I/O error may pass; and a target that is
		 * unavailable is waited for as long as the attempts last, since a run can be resumed. */
		struct sl_err e = err;
		if (e.error_class == SL_CLASS_FATAL || (e.error_class == SL_CLASS_NONE && e.code == SL_EIO))
			e.error_class = SL_CLASS_TRANSIENT;
		struct sl__retry_decision d = sl__retry_decide(&p->retry, &state, &e, true, &w->prng);
		if (d.action != SL__RETRY_AGAIN) {
			fail_partition(w, t, &err);
			return false;
		}
		sl__lock(&p->mu);
		p->stats.retries++;
		sl__unlock(&p->mu);
		sl_counter_add(strcmp(w->step, "store") == 0 ? p->metrics.store_retries : p->metrics.build_retries, 1);
		sl__pipeline_log_retry(p, t, w->step, d.delay_ms, &err);
		if (!sl__pipeline_pause(p, t->ordinal, d.delay_ms, SL_PIPELINE_NOW))
			return false;
	}
	return false;
}

/* ---- to the sequencer ---- */

void sl__pipeline_unlist(sl_pipeline *p, struct sl__task *t)
{
	sl__lock(&p->mu);
	*(t->older != NULL ? &t->older->younger : &p->oldest) = t->younger;
	*(t->younger != NULL ? &t->younger->older : &p->newest) = t->older;
	sl__unlock(&p->mu);
}

/* The committer owns the task once it is in the sequencer; otherwise it is released. */
static void hand_over(struct worker *w, struct sl__task *t)
{
	sl_pipeline *p = w->p;
	struct sl__element e = {.start = t->ordinal, .end = t->ordinal, .ptr = t};
	struct sl_err err = SL_ERR_INIT;
	sl__task_release_elements(p, t);
	sl__lock(&p->mu);
	t->stored_ns = sl__mono_ns(&p->env);
	t->older = p->newest;
	t->younger = NULL;
	if (p->newest != NULL)
		p->newest->younger = t;
	else
		p->oldest = t;
	p->newest = t;
	p->stats.stored++;
	sl__unlock(&p->mu);
	int rc = sl__sequencer_push(p->sequencer, &e, SL_UNLIMITED, &err);
	if (rc == 0)
		return;
	sl__pipeline_unlist(p, t);
	if (rc != SL_ECANCELLED) {
		w->step = "sequencer";
		fail_partition(w, t, &err);
	}
	sl__task_free(p, t);
}

void sl__pipeline_worker_main(unsigned index, void *ctx)
{
	struct worker w = {.p = ctx, .index = index};
	sl_pipeline *p = ctx;
	struct sl__queue_item item;
	size_t n;
	sl__prng_init(&w.prng, &p->env);
	while (sl__queue_pop(p->queue, &item, 1, 0, SL_UNLIMITED, &n) == 0) {
		if (produce(&w, item.ptr))
			hand_over(&w, item.ptr);
		else
			sl__task_free(p, item.ptr);
	}
	if (w.ready && p->o.ops->worker_free != NULL)
		p->o.ops->worker_free(w.state, p->o.ctx);

	/* The last one closes the sequencer. What was released because of a stop is not a gap. */
	sl__lock(&p->mu);
	bool last = --p->workers_left == 0;
	uint64_t ordinals = p->ordinals;
	sl__unlock(&p->mu);
	uint64_t last_ordinal = ordinals - 1;
	if (!last)
		return;
	if (atomic_load(&p->stop) == SL_PIPELINE_NOW)
		sl__sequencer_cancel(p->sequencer);
	sl__sequencer_close(p->sequencer, ordinals > 0 ? &last_ordinal : NULL);
}
