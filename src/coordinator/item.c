/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items: what a submit stores in the queue, and the caller's view of it.
 */
#include "coordinator/coordinator.h"

int sl__item_box(const sl_coordinator *c, const struct sl_item *in, const void *pointer, size_t bytes,
		 struct sl__queue_item *out)
{
	if (in->key_len > UINT8_MAX || (in->key == NULL && in->key_len > 0))
		return SL_EINVAL;
	struct sl__box *box = sl__alloc(&c->env, sizeof(*box) + in->key_len + bytes);
	if (box == NULL)
		return SL_ENOMEM;
	*box = (struct sl__box){.len = in->len,
				.position = in->position,
				.range = in->range,
				.done = in->done,
				.done_ctx = in->done_ctx,
				.key_len = (uint8_t)in->key_len};
	char *after = box->tail + in->key_len;
	if (in->key_len > 0)
		memcpy(box->tail, in->key, in->key_len);
	if (bytes > 0)
		memcpy(after, in->data, bytes);
	box->data = c->o.items.kind == SL_ITEM_POINTERS ? pointer : after;
	*out = sl__queue_item(box, in->len, SL__ITEM_BOX);
	return 0;
}

int sl__item_make(const sl_coordinator *c, const struct sl_item *in, struct sl__queue_item *out)
{
	if (in->len > c->item_max)
		return SL_ETOOBIG;
	bool boxed = c->boxes || in->key_len > 0 || in->position != 0 || in->range.end != 0 || in->done != NULL;
	if (c->o.items.kind == SL_ITEM_BYTES) {
		if (boxed)
			return sl__item_box(c, in, NULL, in->len, out);
		void *block = in->len > 0 ? sl__alloc(&c->env, in->len) : NULL;
		if (in->len > 0 && block == NULL)
			return SL_ENOMEM;
		if (in->len > 0)
			memcpy(block, in->data, in->len);
		*out = sl__queue_item(block, in->len, SL__ITEM_BLOCK);
		return 0;
	}
	/* A pointer, or the user's copy of what it points to. */
	void *mine = (void *)(uintptr_t)in->data;
	if (c->o.items.copy != NULL) {
		mine = c->o.items.copy(in->data, in->len, c->o.items.ctx);
		if (mine == NULL)
			return SL_ENOMEM;
	}
	*out = sl__queue_item(mine, in->len, SL__ITEM_RAW);
	int rc = boxed ? sl__item_box(c, in, mine, 0, out) : 0;
	if (rc != 0 && c->o.items.copy != NULL && c->o.items.free != NULL)
		c->o.items.free(mine, c->o.items.ctx);
	return rc;
}

void sl__item_unmake(const sl_coordinator *c, const struct sl__queue_item *q)
{
	struct sl__box *box = sl__box_of(q);
	if (c->o.items.copy != NULL && c->o.items.free != NULL)
		c->o.items.free(box != NULL ? (void *)(uintptr_t)box->data : q->ptr, c->o.items.ctx);
	if (q->tag != SL__ITEM_RAW)
		sl__free(&c->env, q->ptr);
}

struct sl_item sl__item_view(const struct sl__queue_item *q)
{
	const struct sl__box *box = sl__box_of(q);
	if (box == NULL)
		return (struct sl_item){.data = q->ptr, .len = q->bytes};
	return (struct sl_item){.data = box->data,
				.len = box->len,
				.key = box->key_len > 0 ? box->tail : NULL,
				.key_len = box->key_len,
				.position = box->position,
				.range = box->range,
				.done = box->done,
				.done_ctx = box->done_ctx};
}

int sl__item_bytes(const sl_coordinator *c, const struct sl_item *item, const void **out, size_t *len)
{
	if (c->o.items.kind == SL_ITEM_POINTERS)
		return c->o.items.encode(item->data, item->len, out, len, c->o.items.ctx);
	*out = item->data;
	*len = item->len;
	return 0;
}

void sl__item_call_done(const struct sl__queue_item *q, enum sl_item_end end, const struct sl_err *err)
{
	const struct sl__box *box = sl__box_of(q);
	if (box != NULL && box->done != NULL)
		box->done(end, err, box->done_ctx);
}

void sl__item_free(const sl_coordinator *c, const struct sl__queue_item *q, bool keep)
{
	const struct sl__box *box = sl__box_of(q);
	if (c->o.items.kind == SL_ITEM_POINTERS && c->o.items.free != NULL && !keep)
		c->o.items.free(box != NULL ? (void *)(uintptr_t)box->data : q->ptr, c->o.items.ctx);
	if (q->tag != SL__ITEM_RAW)
		sl__free(&c->env, q->ptr);
}
