/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a worker: its lane of the sink, and the loop that writes batches. */
#include "coordinator/coordinator.h"

void sl__worker_detach(struct sl__worker *w)
{
	const sl_sink *sink = &w->c->sink;
	if (w->attached && sink->ops->detach != NULL)
		sink->ops->detach(sink->ctx, w->lane);
	w->attached = false;
}

/* Write segment after segment until nothing is left of the batch, or it has to wait. */
static void work_on(sl_coordinator *c, struct sl__worker *w, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	while (b->n_segments > 0) {
		if (SL_UNLIKELY(c->halted)) {
			sl__put_left(c, b);
			return;
		}
		enum sl__step step = SL_UNLIKELY(sl__top(b)->dead) ? sl__bury(c, w, b) : sl__write(c, w, b);
		if (step == SL__STEP_GONE)
			return;
	}
	sl__settle_batch(c, b, false);
	sl__put_free(c, b);
}

void sl__worker_main(unsigned index, void *ctx)
{
	sl_coordinator *c = ctx;
	struct sl__worker *w = &c->workers[index];
	struct sl__batch *b;
	sl__lock(&c->mu);
	if (index >= c->n_first)
		sl__wait_parked(c);
	while ((b = sl__pick(c, w)) != NULL)
		work_on(c, w, b);
	sl__unlock(&c->mu);
	sl__worker_detach(w);
}
