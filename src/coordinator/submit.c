/* SPDX-License-Identifier: Apache-2.0 */
/* Submitting items: one, or many. */
#include "coordinator/coordinator.h"

#define CHUNK 64 /* items that are made ready on the stack */

static int submit_one(sl_coordinator *c, const struct sl_item *item, int64_t timeout_ms)
{
	struct sl__queue_item q;
	size_t pushed = 0;
	int rc = c->logs ? sl__await_fed(c, timeout_ms) : 0;
	if (rc == 0 && c->o.wal != NULL)
		return sl__durable_submit(c, item, 1, timeout_ms, &pushed);
	if (rc == 0)
		rc = sl__item_make(c, item, &q);
	if (rc != 0)
		return rc;
	rc = sl__queue_push_item(c->queue, q, timeout_ms);
	if (rc != 0)
		sl__item_unmake(c, &q);
	return rc;
}

int sl_coordinator_submit(sl_coordinator *c, const void *item, size_t len, int64_t timeout_ms)
{
	if (SL_UNLIKELY(sl__forked(&c->guard)))
		return SL_EFORKED;
	timeout_ms = timeout_ms < 0 ? SL_UNLIMITED : timeout_ms;
	if (SL_LIKELY(c->raw)) {
		if (SL_UNLIKELY(len > c->item_max))
			return SL_ETOOBIG;
		return sl__queue_push_item(c->queue, sl__queue_item((void *)(uintptr_t)item, len, SL__ITEM_RAW),
					   timeout_ms);
	}
	return submit_one(c, &(struct sl_item){.data = item, .len = len}, timeout_ms);
}

int64_t sl__left_ms(const sl_coordinator *c, int64_t deadline_ns)
{
	if (deadline_ns == SL_FOREVER)
		return SL_UNLIMITED;
	int64_t left_ns = deadline_ns - sl__mono_ns(&c->env);
	return left_ns > 0 ? (left_ns + SL__NS_PER_MS - 1) / SL__NS_PER_MS : 0;
}

/* Make up to CHUNK items at a time ready and push them. Those that did not go in are unmade. */
static int submit_chunks(sl_coordinator *c, const struct sl_item *items, size_t n, int64_t timeout_ms, size_t *accepted)
{
	struct sl__queue_item q[CHUNK];
	int64_t deadline_ns = timeout_ms > 0 ? sl__deadline_ns(&c->env, timeout_ms) : SL_FOREVER;
	size_t max = c->item_max;
	bool raw = c->raw;
	while (*accepted < n) {
		int refused = 0, rc = 0;
		size_t made = 0, pushed = 0, most = SL_MIN(n - *accepted, CHUNK);
		for (; made < most; made++) {
			const struct sl_item *in = &items[*accepted + made];
			bool plain = (in->key_len | in->position | in->range.end | (uintptr_t)in->done) == 0 &&
				     in->len <= max;
			if (SL_LIKELY(raw && plain))
				q[made] = sl__queue_item((void *)(uintptr_t)in->data, in->len, SL__ITEM_RAW);
			else if ((refused = sl__item_make(c, in, &q[made])) != 0)
				break;
		}
		if (made > 0)
			rc = sl__queue_push_many(c->queue, q, made,
						 timeout_ms > 0 ? sl__left_ms(c, deadline_ns) : timeout_ms, &pushed);
		for (size_t i = pushed; i < made; i++)
			sl__item_unmake(c, &q[i]);
		*accepted += pushed;
		if (rc != 0)
			return rc;
		if (refused != 0)
			return refused;
	}
	return 0;
}

int sl_coordinator_submit_many(sl_coordinator *c, const struct sl_item *items, size_t n, int64_t timeout_ms,
			       size_t *accepted)
{
	size_t unused;
	accepted = accepted != NULL ? accepted : &unused;
	*accepted = 0;
	if (sl__forked(&c->guard))
		return SL_EFORKED;
	timeout_ms = timeout_ms < 0 ? SL_UNLIMITED : timeout_ms;
	if (n == 1) {
		int one = submit_one(c, items, timeout_ms);
		*accepted = one == 0;
		return one;
	}
	int rc = c->logs ? sl__await_fed(c, timeout_ms) : 0;
	if (rc != 0)
		return rc;
	rc = c->o.wal != NULL ? sl__durable_submit(c, items, n, timeout_ms, accepted)
			      : submit_chunks(c, items, n, timeout_ms, accepted);
	/* The time ran out between two chunks: that is not a full queue. */
	return rc == SL_EFULL && timeout_ms > 0 && c->o.overflow_strategy == SL_OVERFLOW_BLOCK ? SL_ETIMEDOUT : rc;
}
