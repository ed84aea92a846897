/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of byte ranges of an input, and the state of a load that the sinks with tables share. */
#include "sink/ranges.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/varint.h"
#include "sink/sink.h"

void sl__ranges_init(struct sl__ranges *r, const struct sl_env *env)
{
	*r = (struct sl__ranges){.env = env};
}

void sl__ranges_fini(struct sl__ranges *r)
{
	if (r->env != NULL)
		sl__free(r->env, r->at);
	*r = (struct sl__ranges){.env = r->env};
}

void sl__ranges_clear(struct sl__ranges *r)
{
	r->n = 0;
	r->hash = r->rows = 0;
}

static int push(struct sl__ranges *r, const struct sl_input_range *range)
{
	struct sl_input_range *at = sl__grow(r->env, r->at, r->n, &r->cap, sizeof(*at));
	if (at == NULL)
		return SL_ENOMEM;
	r->at = at;
	r->at[r->n++] = *range;
	return 0;
}

int sl__ranges_add(struct sl__ranges *r, const struct sl_input_range *range)
{
	struct sl_input_range *last = r->n > 0 ? &r->at[r->n - 1] : NULL;
	struct sl_input_range plain = {.begin = range->begin, .end = range->end};
	if (last != NULL && last->end == range->begin)
		last->end = range->end;
	else if (push(r, &plain) != 0)
		return SL_ENOMEM;
	r->hash += range->hash;
	return 0;
}

int sl__ranges_add_all(struct sl__ranges *r, const struct sl__ranges *from)
{
	for (size_t i = 0; i < from->n; i++)
		if (sl__ranges_add(r, &from->at[i]) != 0)
			return SL_ENOMEM;
	r->hash += from->hash;
	r->rows += from->rows;
	return 0;
}

static int by_begin(const void *a, const void *b)
{
	uint64_t x = ((const struct sl_input_range *)a)->begin, y = ((const struct sl_input_range *)b)->begin;
	return x < y ? -1 : x > y;
}

void sl__ranges_sort(struct sl__ranges *r)
{
	size_t kept = 0;
	bool sorted = true;
	for (size_t i = 1; i < r->n && sorted; i++)
		sorted = r->at[i - 1].begin <= r->at[i].begin;
	if (!sorted)
		qsort(r->at, r->n, sizeof(*r->at), by_begin);
	for (size_t i = 0; i < r->n; i++) {
		if (kept > 0 && r->at[i].begin <= r->at[kept - 1].end)
			r->at[kept - 1].end = SL_MAX(r->at[kept - 1].end, r->at[i].end);
		else
			r->at[kept++] = r->at[i];
	}
	r->n = kept;
}

bool sl__ranges_has(const struct sl__ranges *r, uint64_t begin)
{
	size_t lo = 0, hi = r->n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (r->at[mid].end <= begin)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < r->n && r->at[lo].begin <= begin;
}

uint64_t sl__ranges_end(const struct sl__ranges *r)
{
	return r->n > 0 ? r->at[r->n - 1].end : 0;
}

/* ---- the row ---- */

void sl__ranges_put_parts(const struct sl__ranges *r, struct sl__buf *out)
{
	for (size_t i = 0; i < r->n && r->n > 1; i++) {
		if (i > 0)
			sl__varint_put(out, r->at[i].begin - r->at[i - 1].end);
		sl__varint_put(out, r->at[i].end - r->at[i].begin);
	}
}

int sl__ranges_get_row(struct sl__ranges *r, struct sl_input_range row, const void *parts, size_t n, struct sl_err *err)
{
	uint64_t first = row.begin, last = row.end;
	const uint8_t *at = parts, *end = n > 0 ? at + n : at;
	struct sl_input_range range = {.begin = first, .end = n > 0 ? first : last};
	int rc = n == 0 ? sl__ranges_add(r, &range) : 0;
	while (rc == 0 && at < end) {
		uint64_t length, gap = 0;
		if (!sl__varint_get(&at, end, &length) || length > last - range.begin)
			break;
		range.end = range.begin + length;
		rc = sl__ranges_add(r, &range);
		if (at == end || !sl__varint_get(&at, end, &gap) || gap > last - range.end)
			break;
		range.begin = range.end + gap;
	}
	if (rc != 0)
		return sl_err_set(err, rc, "out of memory for the records of a load");
	if (at != end || range.end != last || first > last)
		return sl_err_set(err, SL_ECORRUPT, "the records of this load are damaged; load it with --again");
	return 0;
}

/* ---- a load ---- */

void sl__load_init(struct sl__load *l, const struct sl_env *env)
{
	*l = (struct sl__load){.doubt = false};
	sl__ranges_init(&l->done, env);
	sl__ranges_init(&l->late, env);
	sl__ranges_init(&l->dead, env);
}

void sl__load_fini(struct sl__load *l)
{
	sl__ranges_fini(&l->done);
	sl__ranges_fini(&l->late);
	sl__ranges_fini(&l->dead);
	l->id[0] = l->tried[0] = '\0';
	l->doubt = false;
}

void sl__load_new_id(const struct sl_env *env, char out[SL__LOAD_ID_BYTES])
{
	struct sl__prng prng;
	sl__prng_init(&prng, env);
	uint64_t high = sl__prng_next(&prng), low = sl__prng_next(&prng);
	(void)snprintf(out, SL__LOAD_ID_BYTES, "%016llx%016llx", (unsigned long long)high, (unsigned long long)low);
}

int sl__load_dead(struct sl__load *l, const struct sl_input_range *range)
{
	return push(&l->dead, range);
}

void sl__load_drop_dead(struct sl__load *l)
{
	size_t kept = 0;
	for (size_t i = 0; i < l->dead.n; i++)
		if (!sl__ranges_has(&l->late, l->dead.at[i].begin))
			l->dead.at[kept++] = l->dead.at[i];
	l->dead.n = kept;
}

void sl__load_show(const struct sl__load *l, struct sl_sink_loaded *out)
{
	size_t size = out->struct_size;
	*out = (struct sl_sink_loaded){.struct_size = size,
				       .ranges = l->done.at,
				       .n_ranges = l->done.n,
				       .hash = l->done.hash,
				       .rows = l->done.rows,
				       .started_ms = l->started_ms,
				       .finished = l->finished};
}

int sl__load_taken_over(struct sl_err *err)
{
	(void)sl_err_set(err, SL_ELOCKED, "another run of the same load has taken over");
	return sl__sink_class(err, SL_ELOCKED, SL_CLASS_FATAL);
}
