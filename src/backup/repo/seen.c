/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of ids for many threads, small in memory: shards by the id's first byte, each with a lock, its ids in chunks
 * that never move, and a hash table of their 32-bit numbers that doubles when it is seven eighths full.
 *
 * For each id: 32 bytes for itself, 4.6 to 9.2 of the table, and 4.6 of the old table in the shard that is growing.
 */
#include "backup/pack/index.h"
#include "base/thread.h"

#define SHARDS 64u
#define CHUNK 128u /* ids */
#define FIRST_SLOTS 64u

struct seen_shard {
	sl__mutex mu;
	struct bk_id **chunks;
	size_t cap_chunks;
	uint32_t *slots; /* number + 1, or 0 */
	size_t n_slots;  /* a power of two */
	uint32_t n;
};

struct bk_seen {
	struct sl_env env;
	struct seen_shard shards[SHARDS];
};

int sl__bk_seen_new(struct bk_seen **out, const struct sl_env *env, struct sl_err *err)
{
	struct bk_seen *s = sl__calloc(env, 1, sizeof(*s));
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a set of blocks");
	s->env = *env;
	for (size_t i = 0; i < SHARDS; i++)
		sl__mutex_init_busy(&s->shards[i].mu);
	*out = s;
	return 0;
}

void sl__bk_seen_free(struct bk_seen *s)
{
	if (s == NULL)
		return;
	struct sl_env env = s->env;
	for (size_t i = 0; i < SHARDS; i++) {
		struct seen_shard *h = &s->shards[i];
		for (size_t c = 0; c < ((size_t)h->n + CHUNK - 1) / CHUNK; c++)
			sl__free(&env, h->chunks[c]);
		sl__free(&env, h->chunks);
		sl__free(&env, h->slots);
		sl__mutex_fini(&h->mu);
	}
	sl__free(&env, s);
}

static const struct bk_id *id_at(const struct seen_shard *h, uint32_t number)
{
	return &h->chunks[number / CHUNK][number % CHUNK];
}

/* Where id is in the table, or the free slot for it. The shard took the first byte; bytes 8 to 15 are as even. */
static uint32_t *seen_slot(const struct seen_shard *h, const struct bk_id *id)
{
	size_t i = (size_t)sl__get64(id->b + 8) & (h->n_slots - 1);
	while (h->slots[i] != 0 && memcmp(id_at(h, h->slots[i] - 1), id, sizeof(*id)) != 0)
		i = (i + 1) & (h->n_slots - 1);
	return &h->slots[i];
}

static int add_seen(const struct sl_env *env, struct seen_shard *h, const struct bk_id *id) SL_REQUIRES(h->mu)
{
	if (h->n_slots != 0 && *seen_slot(h, id) != 0)
		return 0;
	if (((size_t)h->n + 1) * 8 > h->n_slots * 7) {
		/* Room in the table for one more. */
		size_t n_slots = SL_MAX(2 * h->n_slots, (size_t)FIRST_SLOTS);
		uint32_t *slots = sl__calloc(env, n_slots, sizeof(*slots));
		if (slots == NULL)
			return SL_ENOMEM;
		for (uint32_t i = 0; i < h->n; i++) {
			size_t at = (size_t)sl__get64(id_at(h, i)->b + 8) & (n_slots - 1);
			while (slots[at] != 0)
				at = (at + 1) & (n_slots - 1);
			slots[at] = i + 1;
		}
		sl__free(env, h->slots);
		h->slots = slots;
		h->n_slots = n_slots;
	}
	/* Room for one more id. */
	size_t c = h->n / CHUNK;
	if (h->n % CHUNK == 0) {
		if (h->n == UINT32_MAX - CHUNK + 1)
			return SL_ENOMEM;
		struct bk_id **chunks = sl__grow(env, h->chunks, c, &h->cap_chunks, sizeof(struct bk_id *));
		if (chunks == NULL)
			return SL_ENOMEM;
		h->chunks = chunks;
		h->chunks[c] = sl__alloc(env, CHUNK * sizeof(struct bk_id));
		if (h->chunks[c] == NULL)
			return SL_ENOMEM;
	}
	h->chunks[c][h->n % CHUNK] = *id;
	h->n++;
	*seen_slot(h, id) = h->n;
	return 1;
}

int sl__bk_seen_add(struct bk_seen *s, const struct bk_id *id)
{
	struct seen_shard *h = &s->shards[id->b[0] % SHARDS];
	sl__lock(&h->mu);
	int rc = add_seen(&s->env, h, id);
	sl__unlock(&h->mu);
	return rc;
}

bool sl__bk_seen_has(struct bk_seen *s, const struct bk_id *id)
{
	struct seen_shard *h = &s->shards[id->b[0] % SHARDS];
	sl__lock(&h->mu);
	bool has = h->n_slots != 0 && *seen_slot(h, id) != 0;
	sl__unlock(&h->mu);
	return has;
}

uint64_t sl__bk_seen_count(struct bk_seen *s)
{
	uint64_t n = 0;
	for (size_t i = 0; i < SHARDS; i++) {
		sl__lock(&s->shards[i].mu);
		n += s->shards[i].n;
		sl__unlock(&s->shards[i].mu);
	}
	return n;
}
