/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completions. A write's id is the number of its attempt and the index of its slot; it is never given again, so a
 * second completion is known however late it comes.
 */
#include "writer/writer.h"

void sl__wslots_append(struct sl__wslots *list, struct sl__wslot *slot)
{
	slot->next = NULL;
	if (list->last != NULL)
		list->last->next = slot;
	else
		list->first = slot;
	list->last = slot;
}

struct sl__wslot *sl__wslots_pop(struct sl__wslots *list)
{
	struct sl__wslot *slot = list->first;
	if (slot == NULL)
		return NULL;
	list->first = slot->next;
	if (list->first == NULL)
		list->last = NULL;
	return slot;
}

void sl__writer_ended(sl_writer *w, struct sl__wslot *slot, const struct sl_err *err)
{
	slot->out = false;
	slot->err.code = 0;
	if (err != NULL)
		slot->err = *err;
	sl__wslots_append(&w->completed, slot);
	sl__writer_stir(w);
}

int sl_writer_complete(struct sl_write write, const struct sl_err *err)
{
	sl_writer *w = write.writer;
	if (sl__forked(&w->guard))
		return SL_EFORKED;
	uint64_t number = write.id >> SL__WRITER_SLOT_BITS;
	uint64_t index = write.id & ((1u << SL__WRITER_SLOT_BITS) - 1);
	int rc = 0;
	(void)atomic_fetch_add_explicit(&w->completing, 1, memory_order_relaxed);
	sl__lock(&w->mu);
	if (number == 0 || number > w->issued || index >= (uint64_t)w->o.max_concurrent_writes)
		rc = SL_EINVAL;
	else if (w->slots[index].id != write.id || !w->slots[index].out)
		rc = SL_EDUPLICATE;
	else
		sl__writer_ended(w, &w->slots[index], err);
	sl__unlock(&w->mu);
	(void)atomic_fetch_sub_explicit(&w->completing, 1, memory_order_release); /* the last touch */
	return rc;
}

int sl_writer_shard_ready(sl_writer *w, const char *shard_key, size_t key_len)
{
	if (sl__forked(&w->guard))
		return SL_EFORKED;
	sl__shards_recheck(w->shards, shard_key, key_len);
	sl__lock(&w->mu);
	sl__writer_stir(w);
	sl__unlock(&w->mu);
	return 0;
}
