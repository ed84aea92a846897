/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The committer: takes what the sequencer lets out, one partition after the other, and commits it. A commit that fails
 * in a way that may pass is tried again in place: nothing may overtake it.
 */
#include "pipeline/pipeline.h"

struct tries {
	struct sl__retry_state state;
	int64_t give_up_ns;
	enum sl_pipeline_stop seen; /* what was asked for at the last look */
	uint32_t in_drain;          /* tries since a drain was asked for */
	uint32_t in_vain;           /* tries, one after the other, that needed a person */
	struct sl__prng *prng;
};

/* How long to wait before the next attempt; SL_NONE: give up. What is unavailable is waited for. What cannot be written,
 * or is refused, gets as many attempts as any other step. A drain restarts the delays and bounds the attempts. */
static int64_t next_delay(sl_pipeline *p, struct tries *t, const struct sl_err *err)
{
	const bool unlimited = p->o.retry_attempts == SL_UNLIMITED;
	const uint32_t most = (uint32_t)p->o.retry_attempts;
	const enum sl_err_class class = err->error_class;
	bool may_pass = class == SL_CLASS_TRANSIENT || class == SL_CLASS_THROTTLED || class == SL_CLASS_FATAL;
	if (!may_pass || p->o.commit_patience_ms == SL_NONE)
		return SL_NONE;
	if (sl_err_retryable(err))
		t->in_vain = 0;
	else if (!unlimited && ++t->in_vain >= most)
		return SL_NONE;

	enum sl_pipeline_stop stop = sl_pipeline_stopping(p);
	if (stop != t->seen)
		t->state = (struct sl__retry_state){0};
	t->seen = stop;
	if (stop != SL_PIPELINE_GO && !unlimited && ++t->in_drain > most)
		return SL_NONE;

	struct sl_err e = *err;
	if (class != SL_CLASS_THROTTLED)
		e.error_class = SL_CLASS_TRANSIENT;
	struct sl__retry_decision d = sl__retry_decide(&p->commit, &t->state, &e, true, t->prng);
	return sl__deadline_ns(&p->env, d.delay_ms) > t->give_up_ns ? SL_NONE : d.delay_ms;
}

static int commit_task(sl_pipeline *p, struct sl__task *t, struct sl__prng *prng, struct sl_err *err)
{
	struct tries tries = {.give_up_ns = sl__deadline_ns(&p->env, p->o.commit_patience_ms), .prng = prng};
	for (t->part.attempt = 1; !sl__pipeline_abandoned(p, t->ordinal); t->part.attempt++) {
		sl__pipeline_step(p, "before_commit", t);
		int rc = p->o.ops->commit(&t->part, t->out, t->ref, err, p->o.ctx);
		if (rc == 0)
			return 0;
		sl__pipeline_complete_err(err, rc);
		int64_t delay_ms = next_delay(p, &tries, err);
		if (delay_ms == SL_NONE)
			return sl_err_wrap(err, err->code, "partition %llu to %llu, attempt %u: commit",
					   (unsigned long long)t->part.start, (unsigned long long)t->part.end,
					   t->part.attempt);
		sl__lock(&p->mu);
		p->stats.commit_retries++;
		sl__unlock(&p->mu);
		sl_counter_add(p->metrics.commit_retries, 1);
		sl__pipeline_log_retry(p, t, "commit", delay_ms, err);
		if (!sl__pipeline_pause(p, t->ordinal, delay_ms, tries.seen))
			break;
	}
	return sl_err_set(err, SL_ECANCELLED, "the flow was cancelled");
}

void sl__committer_main(unsigned index, void *ctx)
{
	sl_pipeline *p = ctx;
	struct sl_err *err = &p->error;
	struct sl__prng prng;
	struct sl__element e;
	int rc;
	(void)index;
	sl__prng_init(&prng, &p->env);
	while ((rc = sl__sequencer_next(p->sequencer, &e, SL_UNLIMITED, err)) == 0) {
		struct sl__task *t = e.ptr;
		rc = commit_task(p, t, &prng, err);
		sl__pipeline_unlist(p, t);
		if (rc != 0) {
			if (rc != SL_ECANCELLED || !sl__pipeline_abandoned(p, t->ordinal))
				sl__pipeline_fail(p, t->ordinal, err);
			sl__sequencer_cancel(p->sequencer);
			sl__task_free(p, t);
			break;
		}
		sl_histogram_observe(p->metrics.lag, (uint64_t)SL_MAX(sl__mono_ns(&p->env) - t->stored_ns, 0));
		sl_counter_add(p->metrics.committed, 1);
		sl__lock(&p->mu);
		p->stats.committed++;
		p->stats.has_last = true;
		p->stats.last = t->part.end;
		p->stats.next = t->part.end + 1;
		sl__unlock(&p->mu);
		sl__pipeline_step(p, "committed", t);
		sl__task_free(p, t);
	}
	/* A failure may carry any code, also the one that means the end. */
	p->rc = rc != SL_ECLOSED || atomic_load(&p->failed) ? rc : 0;
	while (sl__sequencer_take(p->sequencer, &e)) {
		sl__pipeline_unlist(p, e.ptr);
		sl__task_free(p, e.ptr);
	}
	atomic_store(&p->done, true);
	sl__pipeline_wake(p);
}
