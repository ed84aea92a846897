/* SPDX-License-Identifier: Apache-2.0 */
/* The growable buffer: see buf.h. Capacity at least doubles, so that n appends cost O(n). */
#include "base/buf.h"

#include <stdio.h>

#define FIRST_BYTES 64

void sl__buf_init(struct sl__buf *b, const struct sl_env *env)
{
	*b = (struct sl__buf){.env = env};
}

void sl__buf_fini(struct sl__buf *b)
{
	sl__free(b->env, b->data);
	sl__buf_init(b, b->env);
}

void sl__buf_clear(struct sl__buf *b)
{
	b->len = 0;
	b->failed = 0;
	if (b->data != NULL)
		b->data[0] = '\0';
}

static int buf_failed(struct sl__buf *b)
{
	b->failed = SL_ENOMEM;
	return b->failed;
}

int sl__buf_reserve(struct sl__buf *b, size_t n)
{
	size_t need;
	if (b->failed != 0)
		return b->failed;
	if (n < b->cap - b->len) /* cap > len, or both are 0 */
		return 0;
	if (__builtin_add_overflow(b->len, n, &need) || __builtin_add_overflow(need, (size_t)1, &need))
		return buf_failed(b);
	/* At least twice the old size, so that n appends cost O(n); exactly what is needed where twice would
	 * overflow. */
	size_t cap = b->cap == 0 ? FIRST_BYTES : b->cap;
	while (cap < need)
		if (__builtin_mul_overflow(cap, (size_t)2, &cap))
			cap = need;
	char *data = sl__realloc(b->env, b->data, cap);
	if (data == NULL)
		return buf_failed(b);
	data[b->len] = '\0';
	b->data = data;
	b->cap = cap;
	return 0;
}

int sl__buf_append(struct sl__buf *b, const void *data, size_t n)
{
	int rc = sl__buf_reserve(b, n);
	if (rc != 0 || n == 0)
		return rc;
	memcpy(b->data + b->len, data, n);
	b->len += n;
	b->data[b->len] = '\0';
	return 0;
}

int sl__buf_str_append(struct sl__buf *b, const char *text)
{
	return sl__buf_append(b, text, strlen(text));
}

int sl__buf_put32(struct sl__buf *b, uint32_t v)
{
	v = SL__LE32(v);
	return sl__buf_append(b, &v, sizeof(v));
}

int sl__buf_put64(struct sl__buf *b, uint64_t v)
{
	v = SL__LE64(v);
	return sl__buf_append(b, &v, sizeof(v));
}

int sl__buf_vprintf(struct sl__buf *b, const char *fmt, va_list args)
{
	va_list again;
	va_copy(again, args);
	size_t room = b->cap - b->len;
	int n = vsnprintf(room > 0 ? b->data + b->len : NULL, room, fmt, args);
	int rc = n < 0 ? buf_failed(b) : sl__buf_reserve(b, (size_t)n);
	if (rc == 0) {
		if ((size_t)n >= room)
			(void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
		b->len += (size_t)n;
	} else if (room > 0) {
		b->data[b->len] = '\0'; /* take back what the first try has written */
	}
	va_end(again);
	return rc;
}

int sl__buf_printf(struct sl__buf *b, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	int rc = sl__buf_vprintf(b, fmt, args);
	va_end(args);
	return rc;
}

char *sl__buf_take(struct sl__buf *b)
{
	if (b->failed != 0)
		return NULL;
	char *data = b->data;
	sl__buf_init(b, b->env);
	return data;
}
