/* SPDX-License-Identifier: Apache-2.0 */
/* What the stages share: a partition's task, whose elements, output and reference are each released exactly once;
 * failing, waiting for a retry, logging. */
#include <unistd.h>

#include "pipeline/partition.h"
#include "pipeline/pipeline.h"

void sl__pipeline_wake(sl_pipeline *p)
{
	static const uint64_t one = 1;
	/* It fails only when the count is full already, and then the reader wakes as well. */
	ssize_t n = write(p->wake_fd, &one, sizeof(one));
	(void)n;
}

bool sl__pipeline_abandoned(sl_pipeline *p, uint64_t ordinal)
{
	/* Not only by limit: a stop holds from the moment on which it was asked for. */
	if (atomic_load(&p->stop) == SL_PIPELINE_NOW)
		return true;
	sl__lock(&p->mu);
	bool abandoned = ordinal >= p->limit;
	sl__unlock(&p->mu);
	return abandoned;
}

void sl__pipeline_fail(sl_pipeline *p, uint64_t ordinal, const struct sl_err *why)
{
	/* A caller who cancels the run gets no error in the log. */
	bool cancelled = why->code == SL_ECANCELLED;
	sl__log(&p->env, cancelled ? SL_LOG_DEBUG : SL_LOG_ERROR, "pipeline",
		cancelled ? "cancelled; later partitions are not committed"
			  : "failed; later partitions are not committed",
		SL__F_STR("pipeline", p->name), SL__F_STR("cause", why->msg),
		SL__F_STR("code", sl_err_name(why->code)));
	if (!cancelled)
		sl_counter_add(p->metrics.failed, 1);
	sl__lock(&p->mu);
	p->limit = SL_MIN(p->limit, ordinal);
	sl__broadcast(&p->changed);
	sl__unlock(&p->mu);
	atomic_store(&p->failed, true);
	/* Refused only for what the sequencer has let out already: a commit that failed, which its thread knows. */
	(void)!sl__sequencer_fail(p->sequencer, ordinal, ordinal, why, NULL);
	sl__pipeline_wake(p);
}

bool sl__pipeline_pause(sl_pipeline *p, uint64_t ordinal, int64_t delay_ms, enum sl_pipeline_stop seen)
{
	int64_t deadline = sl__deadline_ns(&p->env, delay_ms);
	sl__lock(&p->mu);
	while (ordinal < p->limit && atomic_load(&p->stop) <= (int)seen)
		if (!sl__wait(&p->env, &p->changed, &p->mu, deadline))
			break;
	bool wanted = ordinal < p->limit;
	sl__unlock(&p->mu);
	return wanted;
}

void sl__pipeline_step(sl_pipeline *p, const char *step, const struct sl__task *t)
{
	if (p->o.on_step != NULL)
		p->o.on_step(step, &t->part, p->o.ctx);
}

void sl__pipeline_complete_err(struct sl_err *err, int rc)
{
	if (err->code != rc)
		(void)sl_err_set(err, rc, "%s", sl_err_text(rc));
}

void sl__pipeline_log_retry(sl_pipeline *p, const struct sl__task *t, const char *step, int64_t delay_ms,
			    const struct sl_err *err)
{
	sl__log(&p->env, SL_LOG_WARN, "pipeline", "step failed; retrying", SL__F_STR("pipeline", p->name),
		SL__F_STR("step", step), SL__F_U64("start", t->part.start), SL__F_U64("end", t->part.end),
		SL__F_U64("attempt", t->part.attempt), SL__F_I64("delay_ms", delay_ms), SL__F_STR("cause", err->msg));
}

/* ---- tasks ---- */

bool sl__task_append(sl_pipeline *p, struct sl__task *t, const struct sl_pipeline_element *e)
{
	if (t->part.n_elements == t->cap) {
		size_t cap = t->cap == 0 ? 1 : t->cap * 2;
		struct sl_pipeline_element *elements = sl__realloc(&p->env, t->elements, cap * sizeof(*elements));
		if (elements == NULL)
			return false;
		t->elements = elements;
		t->cap = cap;
	}
	t->elements[t->part.n_elements++] = *e;
	t->part.elements = t->elements;
	t->part.end = e->last;
	t->part.bytes += e->bytes;
	return true;
}

void sl__pipeline_release_element(sl_pipeline *p, struct sl_pipeline_element *e)
{
	if (p->o.ops->release_element != NULL)
		p->o.ops->release_element(e, p->o.ctx);
}

void sl__task_release_elements(sl_pipeline *p, struct sl__task *t)
{
	for (size_t i = 0; i < t->part.n_elements; i++)
		sl__pipeline_release_element(p, &t->elements[i]);
	sl__free(&p->env, t->elements);
	t->elements = NULL;
	t->cap = 0;
	t->part.elements = NULL;
	t->part.n_elements = 0;
}

void sl__task_release_product(sl_pipeline *p, struct sl__task *t)
{
	if (t->ref != NULL && p->o.ops->release_ref != NULL)
		p->o.ops->release_ref(t->ref, p->o.ctx);
	t->ref = NULL;
	if (t->out != NULL && p->o.ops->release_output != NULL)
		p->o.ops->release_output(t->out, p->o.ctx);
	t->out = NULL;
	t->built = false;
}

void sl__task_free(sl_pipeline *p, struct sl__task *t)
{
	if (t == NULL)
		return;
	sl__task_release_product(p, t);
	sl__task_release_elements(p, t);
	sl__free(&p->env, t);
}
