/* SPDX-License-Identifier: Apache-2.0 */
/* Statuses by sequence: sorted ranges that do not overlap. */
#include "wal/ranges.h"

void sl__wal_ranges_init(struct wal_ranges *r, const struct sl_env *env)
{
	*r = (struct wal_ranges){.env = env};
}

void sl__wal_ranges_fini(struct wal_ranges *r)
{
	sl__free(r->env, r->v);
	*r = (struct wal_ranges){.env = r->env};
}

/* The first range that ends at or after sequence. */
static size_t range_lower(const struct wal_ranges *r, uint64_t sequence)
{
	size_t lo = 0, hi = r->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (r->v[mid].last < sequence)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Replace the ranges from..to-1 by n others. There is room. */
static void splice(struct wal_ranges *r, size_t from, size_t to, const struct wal_status_range *with, size_t n)
{
	memmove(r->v + from + n, r->v + to, (r->n - to) * sizeof(*r->v));
	if (n != 0)
		memcpy(r->v + from, with, n * sizeof(*with));
	r->n = r->n - (to - from) + n;
}

int sl__wal_ranges_reserve(struct wal_ranges *r)
{
	if (r->n + 2 <= r->cap)
		return 0;
	size_t cap = r->cap != 0 ? r->cap * 2 : 8;
	struct wal_status_range *v = sl__realloc(r->env, r->v, cap * sizeof(*v));
	if (v == NULL)
		return SL_ENOMEM;
	r->v = v;
	r->cap = cap;
	return 0;
}

int sl__wal_ranges_set(struct wal_ranges *r, uint64_t first, uint64_t last, uint8_t status)
{
	if (sl__wal_ranges_reserve(r) != 0)
		return SL_ENOMEM;
	struct wal_status_range add = {first, last, status};
	struct wal_status_range parts[3];
	size_t n = 0;
	/* Begin one to the left, so that a neighbour that touches is merged. */
	size_t from = range_lower(r, first > 1 ? first - 1 : first), to = from;
	for (; to < r->n && r->v[to].first <= last + 1; to++) {
		struct wal_status_range old = r->v[to];
		if (old.status == status) {
			add.first = SL_MIN(add.first, old.first);
			add.last = SL_MAX(add.last, old.last);
			continue;
		}
		if (old.first < first)
			parts[n++] = (struct wal_status_range){old.first, SL_MIN(old.last, first - 1), old.status};
	}
	parts[n++] = add;
	if (to > from) {
		struct wal_status_range right = r->v[to - 1];
		if (right.status != status && right.last > last)
			parts[n++] = (struct wal_status_range){SL_MAX(right.first, last + 1), right.last, right.status};
	}
	splice(r, from, to, parts, n);
	return 0;
}

uint8_t sl__wal_ranges_get(const struct wal_ranges *r, uint64_t sequence)
{
	size_t i = range_lower(r, sequence);
	return i < r->n && r->v[i].first <= sequence ? r->v[i].status : (uint8_t)SL_WAL_PENDING;
}

bool sl__wal_ranges_failed_covers(const struct wal_ranges *r, uint64_t first, uint64_t last)
{
	size_t i = range_lower(r, first);
	return i < r->n && r->v[i].status == SL_WAL_FAILED && r->v[i].first <= first && r->v[i].last >= last;
}

uint64_t sl__wal_ranges_failed_end(const struct wal_ranges *r, uint64_t sequence)
{
	size_t i = range_lower(r, sequence);
	bool inside = i < r->n && r->v[i].first <= sequence && r->v[i].status == SL_WAL_FAILED;
	return inside ? r->v[i].last : 0;
}

struct sl_wal_range sl__wal_ranges_failed_before(const struct wal_ranges *r, uint64_t sequence)
{
	size_t i = sequence > 1 ? range_lower(r, sequence - 1) : r->n;
	bool found = i < r->n && r->v[i].status == SL_WAL_FAILED && r->v[i].first < sequence;
	return found ? (struct sl_wal_range){r->v[i].first, sequence - 1} : (struct sl_wal_range){0, 0};
}

uint64_t sl__wal_ranges_count(const struct wal_ranges *r, uint64_t first, uint64_t last)
{
	uint64_t n = 0;
	for (size_t i = range_lower(r, first); i < r->n && r->v[i].first <= last; i++)
		n += SL_MIN(last, r->v[i].last) - SL_MAX(first, r->v[i].first) + 1;
	return n;
}

void sl__wal_ranges_drop_below(struct wal_ranges *r, uint64_t sequence)
{
	size_t n = range_lower(r, sequence);
	if (n != 0)
		splice(r, 0, n, NULL, 0);
}
