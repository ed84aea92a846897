/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every key with something inside or out has a shard, found through a hash table. A shard is in one of four places:
 *
 *             something is due                  take reaches it
 *     IDLE ────────────────────▶ RING (at the end) ─────────▶ ASKED ── ready: one item leaves ──▶ RING or IDLE
 *                                  ▲                            │
 *                                  └── recheck ──── PARKED ◀────┘ not ready
 *
 * ASKED belongs to the take that asks the gate, without the lock; no other thread moves or frees it meanwhile. A recheck
 * that happens while the gate is asked must not be lost: it changes `epoch`, and the shard goes to the ring again.
 *
 * Waiting items of all shards stand in one pairing heap by (not_before, order), linked through the items themselves, so
 * that putting an item back needs no memory. When due they move to their shard's `ahead` list, which leaves before its
 * `line`.
 *
 * A shard is freed when it is IDLE with nothing waiting and nothing out.
 */
#include "flow/shards.h"

#define MIN_TABLE 64

enum place { IDLE, RING, ASKED, PARKED };

struct fifo {
	struct sl__shard_item *first, *last;
};

struct sl__shard {
	struct sl__shard *chain;       /* in the table */
	struct sl__shard *prev, *next; /* in the ring, or parked */
	uint64_t hash;
	enum place place;
	struct fifo ahead, line;
	uint64_t waiting, out;
	size_t key_len;
	uint8_t key[];
};

struct ring {
	struct sl__shard *first, *last;
	uint64_t n;
};

struct sl__shards {
	struct sl_env env;
	sl__shards_ready_fn *ready;
	void *ctx;
	sl__mutex mu;
	struct sl__shard **table;
	size_t n_table; /* a power of two */
	uint64_t seed;
	struct ring ring, parked;
	struct sl__shard_item *heap;
	uint64_t epoch, order;
	struct sl__shards_stats stats;
};

/* ---- lists ---- */

static void fifo_push(struct fifo *f, struct sl__shard_item *item)
{
	item->next = NULL;
	if (f->last != NULL)
		f->last->next = item;
	else
		f->first = item;
	f->last = item;
}

static struct sl__shard_item *fifo_pop(struct fifo *f)
{
	struct sl__shard_item *item = f->first;
	if (item == NULL)
		return NULL;
	f->first = item->next;
	if (f->first == NULL)
		f->last = NULL;
	return item;
}

static void ring_append(struct ring *r, struct sl__shard *shard)
{
	shard->prev = r->last;
	shard->next = NULL;
	if (r->last != NULL)
		r->last->next = shard;
	else
		r->first = shard;
	r->last = shard;
	r->n++;
}

static void ring_remove(struct ring *r, struct sl__shard *shard)
{
	if (shard->prev != NULL)
		shard->prev->next = shard->next;
	else
		r->first = shard->next;
	if (shard->next != NULL)
		shard->next->prev = shard->prev;
	else
		r->last = shard->prev;
	r->n--;
}

/* ---- the heap of waiting items: a pairing heap, children linked by `next` ---- */

static bool before(const struct sl__shard_item *a, const struct sl__shard_item *b)
{
	return a->not_before_ns != b->not_before_ns ? a->not_before_ns < b->not_before_ns : a->order < b->order;
}

static struct sl__shard_item *heap_join(struct sl__shard_item *a, struct sl__shard_item *b)
{
	if (a == NULL || b == NULL)
		return a != NULL ? a : b;
	if (before(b, a)) {
		struct sl__shard_item *swap = a;
		a = b;
		b = swap;
	}
	b->next = a->child;
	a->child = b;
	return a;
}

/* Join the children in pairs from the left, then the pairs from the right: O(log n) amortised. */
static struct sl__shard_item *heap_remove_min(struct sl__shard_item **heap)
{
	struct sl__shard_item *min = *heap, *pairs = NULL, *rest = min->child;
	while (rest != NULL) {
		struct sl__shard_item *a = rest, *b = a->next;
		rest = b != NULL ? b->next : NULL;
		a->next = NULL;
		if (b != NULL)
			b->next = NULL;
		a = heap_join(a, b);
		a->next = pairs;
		pairs = a;
	}
	struct sl__shard_item *root = NULL;
	while (pairs != NULL) {
		struct sl__shard_item *after = pairs->next;
		pairs->next = NULL;
		root = heap_join(root, pairs);
		pairs = after;
	}
	*heap = root;
	return min;
}

/* ---- the table of keys ---- */

static uint64_t hash_key(const sl__shards *s, const void *key, size_t len)
{
	uint64_t h = s->seed;
	for (size_t i = 0; i < len; i++)
		h = (h ^ ((const uint8_t *)key)[i]) * 0x100000001B3ULL;
	h ^= h >> 32;
	h *= 0x9E3779B97F4A7C15ULL;
	return h ^ h >> 29;
}

static struct sl__shard **slot_of(const sl__shards *s, uint64_t hash)
{
	return &s->table[hash & (s->n_table - 1)];
}

static struct sl__shard *find_shard(const sl__shards *s, const void *key, size_t len) SL_REQUIRES(s->mu)
{
	uint64_t hash = hash_key(s, key, len);
	struct sl__shard *shard = *slot_of(s, hash);
	while (shard != NULL &&
	       (shard->hash != hash || shard->key_len != len || (len > 0 && memcmp(shard->key, key, len) != 0)))
		shard = shard->chain;
	return shard;
}

/* Follow the number of keys. Without memory the chains only get longer, or the table stays large. */
static void resize_table(sl__shards *s, size_t n) SL_REQUIRES(s->mu)
{
	struct sl__shard **old = s->table;
	size_t n_old = s->n_table;
	struct sl__shard **table = sl__calloc(&s->env, n, sizeof(*table));
	if (table == NULL)
		return;
	s->table = table;
	s->n_table = n;
	for (size_t i = 0; i < n_old; i++) {
		for (struct sl__shard *shard = old[i], *after; shard != NULL; shard = after) {
			struct sl__shard **slot = slot_of(s, shard->hash);
			after = shard->chain;
			shard->chain = *slot;
			*slot = shard;
		}
	}
	sl__free(&s->env, old);
}

static struct sl__shard *find_or_add(sl__shards *s, const void *key, size_t len) SL_REQUIRES(s->mu)
{
	struct sl__shard *shard = find_shard(s, key, len);
	if (shard != NULL)
		return shard;
	shard = sl__calloc(&s->env, 1, sizeof(*shard) + len);
	if (shard == NULL)
		return NULL;
	if (s->stats.keys >= s->n_table)
		resize_table(s, s->n_table * 2);
	shard->hash = hash_key(s, key, len);
	shard->key_len = len;
	if (len > 0)
		memcpy(shard->key, key, len);
	struct sl__shard **slot = slot_of(s, shard->hash);
	shard->chain = *slot;
	*slot = shard;
	s->stats.keys++;
	return shard;
}

/* ---- where a shard belongs ---- */

static bool has_due(const struct sl__shard *shard)
{
	return shard->ahead.first != NULL || shard->line.first != NULL;
}

/* Something became due, or the shard is not ASKED any more. */
static void place(sl__shards *s, struct sl__shard *shard) SL_REQUIRES(s->mu)
{
	if (shard->place != IDLE)
		return;
	if (has_due(shard)) {
		ring_append(&s->ring, shard);
		shard->place = RING;
	} else if (shard->waiting == 0 && shard->out == 0) {
		struct sl__shard **p = slot_of(s, shard->hash);
		while (*p != shard)
			p = &(*p)->chain;
		*p = shard->chain;
		sl__free(&s->env, shard);
		s->stats.keys--;
		if (s->n_table > MIN_TABLE && s->stats.keys < s->n_table / 8)
			resize_table(s, s->n_table / 2);
	}
}

static void move_due(sl__shards *s, int64_t now) SL_REQUIRES(s->mu)
{
	while (s->heap != NULL && s->heap->not_before_ns <= now) {
		struct sl__shard_item *item = heap_remove_min(&s->heap);
		fifo_push(&item->shard->ahead, item);
		item->shard->waiting--;
		s->stats.waiting--;
		place(s, item->shard);
	}
}

/* An item goes inside: into the heap until its time, or to the end of `fifo` when it is due now. */
static void put_inside(sl__shards *s, struct sl__shard_item *item, struct fifo *fifo, int64_t not_before_ns)
	SL_REQUIRES(s->mu)
{
	s->stats.items++;
	s->stats.bytes += item->bytes;
	if (not_before_ns != 0) {
		item->not_before_ns = not_before_ns;
		item->order = s->order++;
		item->child = item->next = NULL;
		item->shard->waiting++;
		s->stats.waiting++;
		s->heap = heap_join(s->heap, item);
	} else {
		fifo_push(fifo, item);
	}
	place(s, item->shard);
}

/* ---- the functions ---- */

int sl__shards_new(sl__shards **out, const struct sl_env *env, sl__shards_ready_fn *ready, void *ctx,
		   struct sl_err *err)
{
	sl__shards *s = sl__calloc(env, 1, sizeof(*s));
	struct sl__shard **table = sl__calloc(env, MIN_TABLE, sizeof(struct sl__shard *));
	if (s == NULL || table == NULL) {
		sl__free(env, s);
		sl__free(env, table);
		return sl_err_set(err, SL_ENOMEM, "shards: out of memory");
	}
	struct sl__prng rng;
	sl__prng_init(&rng, env);
	s->env = *env;
	s->ready = ready;
	s->ctx = ctx;
	s->table = table;
	s->n_table = MIN_TABLE;
	s->seed = sl__prng_next(&rng);
	sl__mutex_init(&s->mu);
	*out = s;
	return 0;
}

void sl__shards_free(sl__shards *s)
{
	if (s == NULL)
		return;
	struct sl_env env = s->env;
	for (size_t i = 0; i < s->n_table; i++) {
		for (struct sl__shard *shard = s->table[i], *after; shard != NULL; shard = after) {
			after = shard->chain;
			sl__free(&env, shard);
		}
	}
	sl__mutex_fini(&s->mu);
	sl__free(&env, s->table);
	sl__free(&env, s);
}

int sl__shards_push(sl__shards *s, const void *key, size_t key_len, struct sl__shard_item *item, int64_t not_before_ns)
{
	if (key_len > SL__SHARD_MAX_KEY)
		return SL_EINVAL;
	sl__lock(&s->mu);
	struct sl__shard *shard = find_or_add(s, key, key_len);
	if (shard != NULL) {
		item->shard = shard;
		put_inside(s, item, &shard->line, not_before_ns);
	}
	sl__unlock(&s->mu);
	return shard != NULL ? 0 : SL_ENOMEM;
}

static struct sl__shard_item *pop_due(sl__shards *s, struct sl__shard *shard) SL_REQUIRES(s->mu)
{
	struct sl__shard_item *item = fifo_pop(&shard->ahead);
	if (item == NULL)
		item = fifo_pop(&shard->line);
	if (item != NULL) {
		s->stats.items--;
		s->stats.bytes -= item->bytes;
		s->stats.out++;
		item->shard->out++;
	}
	return item;
}

struct sl__shard_item *sl__shards_take(sl__shards *s)
{
	struct sl__shard_item *item = NULL;
	sl__lock(&s->mu);
	if (s->heap != NULL)
		move_due(s, sl__mono_ns(&s->env));
	/* Each at most once: one that comes back to the end because of a recheck has to wait for the next call. */
	for (uint64_t left = s->ring.n; item == NULL && left > 0 && s->ring.n > 0; left--) {
		struct sl__shard *shard = s->ring.first;
		uint64_t epoch = s->epoch;
		bool ready = true;
		ring_remove(&s->ring, shard);
		/* Ask the gate about this shard, without the lock. Its items may be taken meanwhile. */
		shard->place = ASKED;
		if (s->ready != NULL) {
			sl__unlock(&s->mu);
			ready = s->ready(shard->key, shard->key_len, s->ctx);
			sl__lock(&s->mu);
		}
		if (ready)
			item = pop_due(s, shard);
		shard->place = IDLE;
		if (!ready && epoch == s->epoch && has_due(shard)) {
			shard->place = PARKED;
			ring_append(&s->parked, shard);
		} else {
			place(s, shard);
		}
	}
	sl__unlock(&s->mu);
	return item;
}

void sl__shards_retry(sl__shards *s, struct sl__shard_item *item, int64_t not_before_ns)
{
	sl__lock(&s->mu);
	s->stats.out--;
	item->shard->out--;
	put_inside(s, item, &item->shard->ahead, not_before_ns);
	sl__unlock(&s->mu);
}

void sl__shards_done(sl__shards *s, struct sl__shard_item *item)
{
	sl__lock(&s->mu);
	struct sl__shard *shard = item->shard;
	s->stats.out--;
	shard->out--;
	item->shard = NULL;
	place(s, shard);
	sl__unlock(&s->mu);
}

struct sl__shard_item *sl__shards_take_any(sl__shards *s)
{
	struct sl__shard_item *item = NULL;
	sl__lock(&s->mu);
	move_due(s, SL_FOREVER);
	struct sl__shard *shard = s->ring.first != NULL ? s->ring.first : s->parked.first;
	/* One that is being asked right now is its asker's; everything else is here. */
	if (shard != NULL) {
		item = pop_due(s, shard);
		/* With nothing due any more, neither ring nor parking is a place for it. */
		if (!has_due(shard)) {
			ring_remove(shard->place == RING ? &s->ring : &s->parked, shard);
			shard->place = IDLE;
			place(s, shard);
		}
	}
	sl__unlock(&s->mu);
	return item;
}

static void unpark(sl__shards *s, struct sl__shard *shard) SL_REQUIRES(s->mu)
{
	ring_remove(&s->parked, shard);
	shard->place = IDLE;
	place(s, shard);
}

void sl__shards_recheck(sl__shards *s, const void *key, size_t key_len)
{
	sl__lock(&s->mu);
	s->epoch++;
	if (key != NULL) {
		struct sl__shard *shard = find_shard(s, key, key_len);
		if (shard != NULL && shard->place == PARKED)
			unpark(s, shard);
	} else {
		while (s->parked.first != NULL)
			unpark(s, s->parked.first);
	}
	sl__unlock(&s->mu);
}

const void *sl__shard_key(const struct sl__shard_item *item, size_t *len)
{
	if (len != NULL)
		*len = item->shard->key_len;
	return item->shard->key;
}

int64_t sl__shards_next_due(sl__shards *s)
{
	sl__lock(&s->mu);
	int64_t due = s->heap != NULL ? s->heap->not_before_ns : SL_FOREVER;
	sl__unlock(&s->mu);
	return due;
}

void sl__shards_get_stats(sl__shards *s, struct sl__shards_stats *out)
{
	sl__lock(&s->mu);
	*out = s->stats;
	out->not_ready = s->parked.n;
	sl__unlock(&s->mu);
}
