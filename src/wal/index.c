/* SPDX-License-Identifier: Apache-2.0 */
/* The index of records that are not settled: pages of entries in the order of their sequences. */
#include "wal/index.h"

_Static_assert(sizeof(struct wal_entry) <= 40, "at most 40 bytes per pending record");

void sl__wal_index_init(struct wal_index *x, const struct sl_env *env)
{
	*x = (struct wal_index){.env = env};
}

void sl__wal_index_fini(struct wal_index *x)
{
	for (size_t i = 0; i < x->n_pages; i++)
		sl__free(x->env, x->pages[i]);
	sl__free(x->env, x->spare);
	sl__free(x->env, x->pages);
	*x = (struct wal_index){.env = x->env};
}

static struct wal_entry *index_entry(const struct wal_index *x, size_t i)
{
	size_t at = x->head + i;
	return &x->pages[at / WAL_INDEX_PAGE][at % WAL_INDEX_PAGE];
}

int sl__wal_index_reserve(struct wal_index *x, size_t n)
{
	while (x->head + x->count + x->reserved + n > x->n_pages * WAL_INDEX_PAGE) {
		struct wal_entry **pages = sl__grow(x->env, x->pages, x->n_pages, &x->cap_pages, sizeof(*pages));
		if (pages == NULL)
			return SL_ENOMEM;
		x->pages = pages;
		struct wal_entry *page = x->spare;
		x->spare = NULL;
		if (page == NULL)
			page = sl__alloc(x->env, WAL_INDEX_PAGE * sizeof(*page));
		if (page == NULL)
			return SL_ENOMEM;
		x->pages[x->n_pages++] = page;
	}
	x->reserved += n;
	return 0;
}

void sl__wal_index_unreserve(struct wal_index *x, size_t n)
{
	assert(n <= x->reserved);
	x->reserved -= n;
}

void sl__wal_index_add(struct wal_index *x, const struct wal_entry *entry)
{
	assert(x->reserved > 0);
	assert(x->count == 0 || index_entry(x, x->count - 1)->sequence < entry->sequence);
	x->reserved--;
	*index_entry(x, x->count++) = *entry;
	x->pending++;
	x->pending_bytes += entry->total;
}

/* The first entry at or after sequence. Without holes it is found immediately. */
static size_t index_lower(const struct wal_index *x, uint64_t sequence)
{
	if (x->count == 0 || sequence <= index_entry(x, 0)->sequence)
		return 0;
	uint64_t guess = sequence - index_entry(x, 0)->sequence;
	size_t lo = 0, hi = x->count;
	if (guess < x->count && index_entry(x, (size_t)guess)->sequence == sequence)
		return (size_t)guess;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (index_entry(x, mid)->sequence < sequence)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

uint64_t sl__wal_index_settle(struct wal_index *x, uint64_t first, uint64_t last, uint8_t status, uint64_t *bytes)
{
	uint64_t n = 0, sum = 0;
	for (size_t i = index_lower(x, first); i < x->count && index_entry(x, i)->sequence <= last; i++) {
		struct wal_entry *entry = index_entry(x, i);
		if (entry->status != SL_WAL_PENDING)
			continue;
		entry->status = status;
		n++;
		sum += entry->total;
	}
	x->pending -= n;
	x->pending_bytes -= sum;
	if (bytes != NULL)
		*bytes = sum;
	/* Settled entries at the front leave, and with them whole pages. */
	while (x->count > 0 && index_entry(x, 0)->status != SL_WAL_PENDING) {
		x->head++;
		x->count--;
	}
	size_t n_gone = x->head / WAL_INDEX_PAGE;
	if (n_gone == 0)
		return n;
	for (size_t i = 0; i < n_gone; i++) {
		if (x->spare == NULL)
			x->spare = x->pages[i];
		else
			sl__free(x->env, x->pages[i]);
	}
	memmove(x->pages, x->pages + n_gone, (x->n_pages - n_gone) * sizeof(struct wal_entry *));
	x->n_pages -= n_gone;
	x->head -= n_gone * WAL_INDEX_PAGE;
	return n;
}

const struct wal_entry *sl__wal_index_next(const struct wal_index *x, uint64_t sequence)
{
	for (size_t i = index_lower(x, sequence); i < x->count; i++)
		if (index_entry(x, i)->status == SL_WAL_PENDING)
			return index_entry(x, i);
	return NULL;
}

bool sl__wal_index_is_pending(const struct wal_index *x, uint64_t sequence)
{
	const struct wal_entry *entry = sl__wal_index_next(x, sequence);
	return entry != NULL && entry->sequence == sequence;
}

size_t sl__wal_index_bytes(const struct wal_index *x)
{
	size_t pages = x->n_pages + (x->spare != NULL);
	return pages * WAL_INDEX_PAGE * sizeof(struct wal_entry) + x->cap_pages * sizeof(struct wal_entry *);
}
