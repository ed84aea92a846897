/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order within keys. All items of a key that are outside the queue are one list, in order of their submission; the
 * first n_held of them are in one batch, its holder, and the others wait aside:
 *
 *     key ─▶ box ─▶ box ─▶ box ─▶ box
 *            └ in the holder ┘     └ aside, for the next batch
 *
 *  K1  A key has one holder at most, so no two batches with it are ever written at the same time or out of order.
 *  K2  One worker at a time takes items out of the queue and sorts them here, so that lists grow in the queue's order.
 *  K3  When the last of the first n_held has ended, the key is free: gone, or ready for a batch when others wait.
 *  K4  The state of a key lives in its first box, and moves when that one ends; nothing is allocated here.
 *  K5  A ready key has no holder: none of its boxes ends while it is in the list of ready keys.
 */
#include "coordinator/coordinator.h"

/* ---- the table ---- */

static uint64_t hash_of(const sl_coordinator *c, const struct sl__box *box)
{
	uint64_t h = c->keys.seed ^ 0xCBF29CE484222325;
	for (size_t i = 0; i < box->key_len; i++)
		h = (h ^ (unsigned char)box->tail[i]) * 0x100000001B3;
	h ^= h >> 32;
	h *= 0x9E3779B97F4A7C15;
	return h ^ h >> 29;
}

static bool same_key(const struct sl__box *a, const struct sl__box *b)
{
	return a->key_len == b->key_len && memcmp(a->tail, b->tail, a->key_len) == 0;
}

/* The pointer that points to the first box of the key, or that should. */
static struct sl__box **place_of(sl_coordinator *c, const struct sl__box *box, uint64_t hash) SL_REQUIRES(c->mu)
{
	struct sl__box **at = &c->keys.buckets[hash & (c->keys.n_buckets - 1)];
	while (*at != NULL && ((*at)->key_state.hash != hash || !same_key(*at, box)))
		at = &(*at)->key_state.chain;
	return at;
}

int sl__keys_init(sl_coordinator *c)
{
	struct sl__prng prng;
	c->keys.n_buckets = 64;
	while (c->keys.n_buckets < (size_t)c->o.capacity && c->keys.n_buckets < (size_t)1 << 20)
		c->keys.n_buckets *= 2;
	sl__prng_init(&prng, &c->env);
	c->keys.seed = sl__prng_next(&prng);
	c->keys.buckets = sl__calloc(&c->env, c->keys.n_buckets, sizeof(*c->keys.buckets));
	return c->keys.buckets != NULL ? 0 : SL_ENOMEM;
}

/* ---- into a batch, or aside ---- */

/* true: it goes with b. */
static bool admit(sl_coordinator *c, struct sl__batch *b, struct sl__box *box) SL_REQUIRES(c->mu)
{
	uint64_t hash = hash_of(c, box);
	struct sl__box **at = place_of(c, box, hash), *first = *at;
	if (first == NULL) {
		box->key_state = (struct sl__key){.last = box, .holder = b, .n_held = 1, .hash = hash};
		box->prev = box->next = NULL;
		*at = box;
		return true;
	}
	struct sl__key *key = &first->key_state;
	box->prev = key->last;
	box->next = NULL;
	box->prev->next = box;
	key->last = box;
	if (key->holder == b) {
		assert(key->n_aside == 0); /* all of b came out of the queue just now (K2) */
		key->n_held++;
		return true;
	}
	key->n_aside++;
	c->keys.n_aside++;
	return false;
}

void sl__keys_admit(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	size_t kept = 0;
	for (size_t i = 0; i < b->n; i++) {
		struct sl__box *box = b->items[i].ptr;
		box->at = b->first + i;
		box->at_ns = b->items[i].at_ns;
		if (box->key_len == 0 || admit(c, b, box))
			b->items[kept++] = b->items[i];
	}
	sl__batch_begin(b, kept);
}

/* ---- ready keys ---- */

static struct sl__queue_item item_of(struct sl__box *box)
{
	struct sl__queue_item item = sl__queue_item(box, box->len, SL__ITEM_BOX);
	item.at_ns = box->at_ns;
	return item;
}

void sl__keys_take_ready(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	size_t n = 0;
	while (c->keys.ready != NULL && n < c->batch_size) {
		struct sl__box *first = c->keys.ready;
		struct sl__key *key = &first->key_state;
		c->keys.ready = key->ready_next;
		key->holder = b;
		for (struct sl__box *box = first; box != NULL && n < c->batch_size; box = box->next) {
			b->items[n++] = item_of(box);
			key->n_held++;
			key->n_aside--;
			c->keys.n_aside--;
		}
	}
	sl__batch_begin(b, n);
}

/* ---- out again ---- */

/* Take box out of its key's list. When it is the first, the key's state moves to the next one, or the key goes with it
 * (K4). Returns the key's first box after that, NULL: none. */
static struct sl__box *unlink_box(sl_coordinator *c, struct sl__box *first, struct sl__box *box) SL_REQUIRES(c->mu)
{
	if (first->key_state.last == box)
		first->key_state.last = box->prev;
	if (box->next != NULL)
		box->next->prev = box->prev;
	if (box->prev != NULL) {
		box->prev->next = box->next;
		return first;
	}
	struct sl__box **at = place_of(c, box, box->key_state.hash);
	assert(*at == box);
	if (box->next != NULL) {
		box->next->key_state = box->key_state;
		*at = box->next;
	} else {
		*at = box->key_state.chain;
	}
	return box->next;
}

static struct sl__box *first_of(sl_coordinator *c, struct sl__box *box) SL_REQUIRES(c->mu)
{
	return box->prev == NULL ? box : *place_of(c, box, hash_of(c, box));
}

void sl__keys_end(sl_coordinator *c, struct sl__box *box) SL_REQUIRES(c->mu)
{
	if (box->key_len == 0)
		return;
	struct sl__box *first = first_of(c, box);
	assert(first->key_state.n_held > 0);
	first->key_state.n_held--;
	first = unlink_box(c, first, box);
	if (first == NULL || first->key_state.n_held > 0)
		return;
	/* The key is free, and others wait: it is ready for a batch (K3). */
	first->key_state.holder = NULL;
	first->key_state.ready_next = NULL;
	if (c->keys.ready == NULL)
		c->keys.ready = first;
	else
		c->keys.ready_last->key_state.ready_next = first;
	c->keys.ready_last = first;
}

void sl__keys_moved(sl_coordinator *c, struct sl__batch *b) SL_REQUIRES(c->mu)
{
	for (size_t i = b->lo; i < b->n; i++) {
		struct sl__box *box = b->items[i].ptr;
		if (box->key_len > 0)
			first_of(c, box)->key_state.holder = b;
	}
}

bool sl__keys_shared(const struct sl__batch *b)
{
	size_t end = b->segments[b->n_segments - 1].end;
	for (size_t i = b->lo; i < end; i++) {
		const struct sl__box *box = b->items[i].ptr;
		for (size_t k = end; k < b->n && box->key_len > 0; k++)
			if (same_key(box, b->items[k].ptr))
				return true;
	}
	return false;
}

/* ---- stop ---- */

size_t sl__keys_take_aside(sl_coordinator *c, struct sl__queue_item *out, size_t max) SL_REQUIRES(c->mu)
{
	size_t n = 0;
	c->keys.ready = c->keys.ready_last = NULL; /* no worker takes them any more */
	for (size_t i = 0; i < c->keys.n_buckets && n < max && c->keys.n_aside > 0; i++) {
		struct sl__box **at = &c->keys.buckets[i];
		while (*at != NULL && n < max) {
			if ((*at)->key_state.n_aside == 0) {
				at = &(*at)->key_state.chain;
				continue;
			}
			/* The first box of this key that no batch holds. */
			struct sl__box *first = *at, *box = first;
			for (size_t k = 0; k < first->key_state.n_held; k++)
				box = box->next;
			first->key_state.n_aside--;
			c->keys.n_aside--;
			(void)unlink_box(c, first, box);
			out[n++] = item_of(box);
		}
	}
	return n;
}
