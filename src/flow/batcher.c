/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Item bytes lie one after the other in buf. While a batch fills, spans hold only lengths, since buf may move as it
 * grows; take sets the pointers.
 */
#include "flow/batcher.h"

#define DEFAULT_ITEMS 50
#define DEFAULT_BYTES (256 * 1024)
#define DEFAULT_WAIT_MS 100
#define MAX_ITEMS (1 << 20)
#define MAX_BYTES ((int64_t)1 << 30)

int sl__batcher_init(struct sl__batcher *b, const struct sl_env *env, const struct sl__batcher_opts *opts,
		     struct sl_err *err)
{
	struct sl__batcher_opts o = opts != NULL ? *opts : (struct sl__batcher_opts){0};
	if (o.max_items < 0 || o.max_items > MAX_ITEMS)
		return sl_err_set(err, SL_EINVAL, "max_items: %d is not 1 to %d", (int)o.max_items, MAX_ITEMS);
	if (o.max_bytes < 0 || o.max_bytes > MAX_BYTES)
		return sl_err_set(err, SL_EINVAL, "max_bytes: %lld is not 1 to %lld", (long long)o.max_bytes,
				  (long long)MAX_BYTES);
	if (o.max_wait_ms < 0 && o.max_wait_ms != SL_NONE && o.max_wait_ms != SL_UNLIMITED)
		return sl_err_set(err, SL_EINVAL, "max_wait_ms: %lld is negative", (long long)o.max_wait_ms);
	int64_t wait_ms = o.max_wait_ms != 0 ? o.max_wait_ms : DEFAULT_WAIT_MS, wait_ns = 0;
	if (wait_ms == SL_UNLIMITED ||
	    (wait_ms != SL_NONE && __builtin_mul_overflow(wait_ms, (int64_t)1000000, &wait_ns)))
		wait_ns = SL_FOREVER;
	*b = (struct sl__batcher){
		.env = env,
		.max_items = o.max_items != 0 ? (size_t)o.max_items : DEFAULT_ITEMS,
		.max_bytes = o.max_bytes != 0 ? (size_t)o.max_bytes : DEFAULT_BYTES,
		.max_wait_ns = wait_ns,
	};
	return 0;
}

void sl__batch_fini(struct sl__batch *batch, const struct sl_env *env)
{
	if (batch->spans != NULL)
		sl__free(env, batch->spans - batch->start_span);
	sl__free(env, batch->buf);
	*batch = (struct sl__batch){0};
}

void sl__batcher_fini(struct sl__batcher *b)
{
	if (b->env != NULL)
		sl__batch_fini(&b->fill, b->env);
}

/* Doubles from `first` up to at least `need`; `need` itself when that overflows. */
static size_t doubled_cap(size_t cap, size_t need, size_t first)
{
	size_t n = cap != 0 ? cap : first;
	while (n < need)
		if (__builtin_mul_overflow(n, (size_t)2, &n))
			return need;
	return n;
}

static bool is_full(const struct sl__batcher *b)
{
	return b->fill.n >= b->max_items || b->fill.bytes >= b->max_bytes;
}

int sl__batcher_add(struct sl__batcher *b, int64_t now_ns, const void *data, size_t len)
{
	struct sl__batch *f = &b->fill;
	/* Written without a sum that could overflow. */
	if (f->n > 0 && (is_full(b) || len > b->max_bytes - f->bytes))
		return SL_EFULL;
	if (f->n == f->cap_spans) {
		size_t cap = SL_MIN(doubled_cap(f->cap_spans, f->n + 1, 16), b->max_items);
		struct sl__span *spans = sl__realloc(b->env, f->spans, cap * sizeof(*spans));
		if (spans == NULL)
			return SL_ENOMEM;
		f->spans = spans;
		f->cap_spans = cap;
	}
	size_t need = f->bytes + len;
	if (need > f->cap_bytes || f->buf == NULL) {
		size_t cap = need > b->max_bytes ? need : SL_MIN(doubled_cap(f->cap_bytes, need, 4096), b->max_bytes);
		char *buf = sl__realloc(b->env, f->buf, cap);
		if (buf == NULL)
			return SL_ENOMEM;
		f->buf = buf;
		f->cap_bytes = cap;
	}
	if (len > 0)
		memcpy(f->buf + f->bytes, data, len);
	f->spans[f->n++] = (struct sl__span){.len = len};
	f->bytes += len;
	if (f->n == 1)
		f->oldest_ns = now_ns;
	return sl__batcher_due(b, now_ns) ? SL__BATCH_READY : 0;
}

int64_t sl__batcher_deadline(const struct sl__batcher *b)
{
	int64_t at;
	if (b->fill.n == 0 || __builtin_add_overflow(b->fill.oldest_ns, b->max_wait_ns, &at))
		return SL_FOREVER;
	return b->max_wait_ns == SL_FOREVER ? SL_FOREVER : at;
}

bool sl__batcher_due(const struct sl__batcher *b, int64_t now_ns)
{
	if (b->fill.n == 0)
		return false;
	int64_t at = sl__batcher_deadline(b);
	return is_full(b) || (at != SL_FOREVER && now_ns >= at);
}

void sl__batcher_take(struct sl__batcher *b, struct sl__batch *to)
{
	assert(to->n == 0);
	if (to->spans != NULL)
		to->spans -= to->start_span;
	struct sl__batch empty = {
		.spans = to->spans, .cap_spans = to->cap_spans, .buf = to->buf, .cap_bytes = to->cap_bytes};
	/* One huge item must not keep its memory for ever. */
	if (empty.cap_bytes > b->max_bytes) {
		sl__free(b->env, empty.buf);
		empty.buf = NULL;
		empty.cap_bytes = 0;
	}
	*to = b->fill;
	b->fill = empty;
	const char *at = to->buf;
	for (size_t i = 0; i < to->n; i++) {
		to->spans[i].data = at;
		at += to->spans[i].len;
	}
}

void sl__batch_drop(struct sl__batch *batch, size_t n)
{
	assert(n <= batch->n);
	for (size_t i = 0; i < n; i++)
		batch->bytes -= batch->spans[i].len;
	if (n == 0)
		return;
	batch->spans += n;
	batch->start_span += n;
	batch->n -= n;
}
