/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growable byte buffer for building text or binary. A failure sticks: what does not fit in memory is not appended, in
 * whole, and every later append does nothing and returns the same code, so that a builder may make many calls and look
 * once, at the end. After the bytes there is always a NUL that `len` does not count.
 *
 * Thread safety: one thread at a time. Ownership: the buffer owns its bytes until fini, or until take hands them over;
 * env is borrowed and must outlive the buffer.
 */
#ifndef SL_BASE_BUF_H
#define SL_BASE_BUF_H

#include "base/env.h"

struct sl__buf {
	const struct sl_env *env;
	char *data; /* NULL before the first byte; use sl__buf_str for text */
	size_t len; /* bytes in use */
	size_t cap; /* bytes allocated: 0, or more than len */
	int failed; /* 0, or SL_ENOMEM */
};

void sl__buf_init(struct sl__buf *b, const struct sl_env *env);
/* Frees; the buffer is then as after init. */
void sl__buf_fini(struct sl__buf *b);
/* Forget the bytes and a failure, keep the memory. */
void sl__buf_clear(struct sl__buf *b);

/* Make room for n more bytes, so that appending them cannot fail. 0 or SL_ENOMEM. */
int sl__buf_reserve(struct sl__buf *b, size_t n);
/* data must not point into the buffer; it may be NULL when n is 0. */
int sl__buf_append(struct sl__buf *b, const void *data, size_t n);
int sl__buf_str_append(struct sl__buf *b, const char *text);
int sl__buf_printf(struct sl__buf *b, const char *fmt, ...) SL_PRINTF(2, 3);
int sl__buf_vprintf(struct sl__buf *b, const char *fmt, va_list args) SL_PRINTF(2, 0);
/* Little-endian. */
int sl__buf_put32(struct sl__buf *b, uint32_t v);
int sl__buf_put64(struct sl__buf *b, uint64_t v);

/* The bytes as a string: never NULL, valid until the next call that changes the buffer. */
static inline const char *sl__buf_str(const struct sl__buf *b)
{
	return b->data != NULL ? b->data : "";
}
/* Hand the bytes over (free with sl__free); the buffer is empty afterwards. NULL when it has failed or never held a
 * byte. */
char *sl__buf_take(struct sl__buf *b);

#endif
