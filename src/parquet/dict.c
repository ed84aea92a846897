/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open hash table with linear probing, at most half full. A slot has the hash next to the index, so that a value is
 * compared with one of the dictionary only when 32 bits agree, and the table grows without inspecting values.
 */
#include "parquet/dict.h"

#define FIRST_SLOTS 1024
#define PROBES_MAX 256   /* in a half-full table with a good hash, 256 in a row do not happen */
#define CHECK_EVERY 4096 /* values after which it is asked whether they repeat at all */

#define INLINE static inline __attribute__((always_inline))

struct key {
	const char *data;
	size_t len;
	uint32_t hash;
};

void sl__dict_init(struct sl__dict *d, const struct sl_env *env)
{
	*d = (struct sl__dict){0};
	sl__buf_init(&d->page, env);
	sl__buf_init(&d->offsets, env);
}

void sl__dict_fini(struct sl__dict *d)
{
	sl__buf_fini(&d->page);
	sl__buf_fini(&d->offsets);
	sl__free(d->page.env, d->slots);
	d->slots = NULL;
	d->n_slots = 0;
}

/* Both halves of the 128-bit product, so that every bit of both factors matters. */
INLINE uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;
	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

#define K0 0x9E3779B97F4A7C15u
#define K1 0xD1B54A32D192ED03u

INLINE uint32_t hash_bytes(const char *p, size_t n)
{
	uint64_t h = n * K0;

	if (n < 8) {
		uint64_t v = 0;
		if (n >= 4)
			v = sl__get32(p) | (uint64_t)sl__get32(p + n - 4) << 32;
		else if (n > 0)
			v = (uint64_t)(uint8_t)p[0] << 16 | (uint64_t)(uint8_t)p[n / 2] << 8 | (uint8_t)p[n - 1];
		return (uint32_t)(mix(h ^ v, K1) >> 32);
	}
	size_t i = 0;
	for (; i + 16 <= n; i += 16)
		h = mix(sl__get64(p + i) ^ K1, sl__get64(p + i + 8) ^ h);
	if (i + 8 <= n)
		h = mix(sl__get64(p + i) ^ K1, h ^ K0);
	return (uint32_t)(mix(h ^ sl__get64(p + n - 8), K1) >> 32);
}

INLINE struct key key_at(const void *values, size_t i, size_t width)
{
	struct key k;

	if (width == 0) {
		const struct sl_parquet_bytes *v = (const struct sl_parquet_bytes *)values + i;
		k.data = v->data, k.len = v->len;
	} else {
		k.data = (const char *)values + i * width, k.len = width;
	}
	if (width == 4)
		k.hash = (uint32_t)(mix(sl__get32(k.data) ^ K0, K1) >> 32);
	else if (width == 8)
		k.hash = (uint32_t)(mix(sl__get64(k.data) ^ K0, K1) >> 32);
	else
		k.hash = hash_bytes(k.data, k.len);
	return k;
}

INLINE bool is_value(const struct sl__dict *d, uint32_t i, const struct key *k, size_t width)
{
	if (width == 4)
		return sl__get32(d->page.data + (size_t)i * 4) == sl__get32(k->data);
	if (width == 8)
		return sl__get64(d->page.data + (size_t)i * 8) == sl__get64(k->data);
	if (width != 0)
		return memcmp(d->page.data + i * width, k->data, width) == 0;
	struct sl_parquet_bytes have = sl__dict_bytes(d, i);
	return have.len == k->len && (k->len == 0 || memcmp(have.data, k->data, k->len) == 0);
}

static int resize_slots(struct sl__dict *d, size_t n)
{
	uint64_t *slots = sl__calloc(d->page.env, n, sizeof(*slots));

	if (slots == NULL)
		return SL_ENOMEM;
	for (size_t i = 0; i < d->n_slots; i++) {
		if (d->slots[i] == 0)
			continue;
		size_t at = (size_t)(d->slots[i] >> 32) & (n - 1);
		while (slots[at] != 0)
			at = (at + 1) & (n - 1);
		slots[at] = d->slots[i];
	}
	sl__free(d->page.env, d->slots);
	d->slots = slots;
	d->n_slots = n;
	return 0;
}

/* 1: added; 0: no room within max_bytes; SL_ENOMEM. */
static int add_dict_value(struct sl__dict *d, const struct key *k, size_t width, size_t max_bytes, size_t slot)
{
	uint32_t at = (uint32_t)d->page.len;
	uint8_t len[4];

	if (k->len + 4 > max_bytes || d->page.len + k->len + 4 > max_bytes)
		return 0;
	if (width == 0) {
		sl__put32(len, (uint32_t)k->len);
		(void)sl__buf_append(&d->page, len, sizeof(len));
		(void)sl__buf_append(&d->offsets, &at, sizeof(at));
	}
	(void)sl__buf_append(&d->page, k->data, k->len);
	if (d->page.failed != 0 || d->offsets.failed != 0)
		return SL_ENOMEM;
	d->slots[slot] = (uint64_t)k->hash << 32 | ++d->count;
	if (d->count > d->n_slots / 2 && resize_slots(d, d->n_slots * 4) != 0)
		return SL_ENOMEM;
	return 1;
}

/* As add_dict_value; *index is set when 1 returns. */
INLINE int find_or_add_value(struct sl__dict *d, const struct key *k, size_t width, size_t max_bytes, uint32_t *index)
{
	size_t mask = d->n_slots - 1, at = k->hash & mask;

	for (size_t probes = 0; probes < PROBES_MAX; probes++, at = (at + 1) & mask) {
		uint64_t slot = d->slots[at];
		if (slot == 0) {
			*index = d->count;
			return add_dict_value(d, k, width, max_bytes, at);
		}
		if (slot >> 32 == k->hash && is_value(d, (uint32_t)slot - 1, k, width)) {
			*index = (uint32_t)slot - 1;
			return 1;
		}
	}
	return 0;
}

/* width is v->width; a constant, so that the loop is compiled for it. */
INLINE int dict_fill(struct sl__dict *d, const struct sl__dict_values *v, size_t width, size_t max_bytes,
		     uint32_t *index)
{
	uint64_t n = v->n;

	for (size_t i = 0; i < n; i++) {
		struct key k = key_at(v->values, i, width);
		int rc = find_or_add_value(d, &k, width, max_bytes, &index[i]);
		if (rc != 1)
			return rc;
		/* Of m values count are distinct: will those of all n pay? Drawn evenly from n, m values would have
		 * m^2 / 2n repetitions; with fewer, more than 0.6 n of n are distinct. */
		uint64_t m = i + 1;
		if (m % CHECK_EVERY == 0 && (uint64_t)d->count * 2 * n > m * (2 * n - m))
			return 0;
	}
	return 1;
}

int sl__dict_build(struct sl__dict *d, const struct sl__dict_values *v, size_t max_bytes, uint32_t *index)
{
	sl__buf_clear(&d->page);
	sl__buf_clear(&d->offsets);
	d->count = 0;
	if (d->n_slots == FIRST_SLOTS) {
		memset(d->slots, 0, d->n_slots * sizeof(*d->slots));
	} else { /* a large table of the last chunk would be cleared for nothing */
		sl__free(d->page.env, d->slots);
		d->slots = NULL;
		d->n_slots = 0;
		int rc = resize_slots(d, FIRST_SLOTS);
		if (rc != 0)
			return rc;
	}
	switch (v->width) {
	case 0:
		return dict_fill(d, v, 0, max_bytes, index);
	case 4:
		return dict_fill(d, v, 4, max_bytes, index);
	case 8:
		return dict_fill(d, v, 8, max_bytes, index);
	default:
		return dict_fill(d, v, v->width, max_bytes, index);
	}
}
