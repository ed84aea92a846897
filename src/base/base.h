/* SPDX-License-Identifier: Apache-2.0 */
/* What every file of the library may use: cleanup, lock annotations, little-endian access, small arithmetic. */
#ifndef SL_BASE_BASE_H
#define SL_BASE_BASE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <sluice/err.h>

#define SL_CLEANUP(fn) __attribute__((cleanup(fn)))
#define SL_UNUSED __attribute__((unused))
#define SL_NOINLINE __attribute__((noinline))
#define SL_LIKELY(x) __builtin_expect(!!(x), 1)
#define SL_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SL_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* clang's thread-safety analysis; the mutex type is sl__mutex of base/thread.h. */
#if defined(__clang__)
#define SL_TSA(x) __attribute__((x))
#else
#define SL_TSA(x)
#endif
#define SL_REQUIRES(...) SL_TSA(requires_capability(__VA_ARGS__))
#define SL_ACQUIRE(...) SL_TSA(acquire_capability(__VA_ARGS__))
#define SL_RELEASE(...) SL_TSA(release_capability(__VA_ARGS__))
#define SL_EXCLUDES(...) SL_TSA(locks_excluded(__VA_ARGS__))
#define SL_NO_TSA SL_TSA(no_thread_safety_analysis)

#define SL_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SL_MAX(a, b) ((a) > (b) ? (a) : (b))

/* Sets "what: out of memory" and returns SL_ENOMEM. */
int sl__no_memory(struct sl_err *err, const char *what);

/* The value of a field that a caller's shorter struct may not have: options grow at their end. */
#define SL_OPT_HAS(opts, field)                                                                                        \
	((opts) != NULL && offsetof(__typeof__(*(opts)), field) + sizeof((opts)->field) <= (opts)->struct_size)

/* Copy a caller's versioned struct (first field struct_size) into a full-size zeroed one. */
static inline void sl__opts_copy(void *to, size_t to_size, const void *from)
{
	memset(to, 0, to_size);
	if (from != NULL) {
		size_t from_size;
		memcpy(&from_size, from, sizeof(from_size));
		memcpy(to, from, SL_MIN(from_size, to_size));
	}
	memcpy(to, &to_size, sizeof(to_size));
}

/* The opposite, of a result: out (may be NULL) is the caller's, perhaps shorter, and says afterwards what was filled. A
 * struct_size of 0 there means all of it. */
static inline void sl__result_copy(void *out, const void *result, size_t result_size)
{
	size_t size;
	if (out == NULL)
		return;
	memcpy(&size, out, sizeof(size));
	size = size != 0 ? SL_MIN(size, result_size) : result_size;
	memcpy(out, result, size);
	memcpy(out, &size, sizeof(size));
}

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define SL__LE16(x) (x)
#define SL__LE32(x) (x)
#define SL__LE64(x) (x)
#else
#define SL__LE16(x) __builtin_bswap16(x)
#define SL__LE32(x) __builtin_bswap32(x)
#define SL__LE64(x) __builtin_bswap64(x)
#endif

/* 2n hexadecimal digits, without a NUL. Returns where they end. */
static inline char *sl__hex(char *to, const void *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *b = bytes;
	for (size_t i = 0; i < n; i++) {
		*to++ = digits[b[i] >> 4];
		*to++ = digits[b[i] & 15];
	}
	return to;
}

static inline uint32_t sl__get32(const void *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return SL__LE32(v);
}
static inline uint64_t sl__get64(const void *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof(v));
	return SL__LE64(v);
}
static inline void sl__put32(void *p, uint32_t v)
{
	v = SL__LE32(v);
	memcpy(p, &v, sizeof(v));
}
static inline void sl__put64(void *p, uint64_t v)
{
	v = SL__LE64(v);
	memcpy(p, &v, sizeof(v));
}

#endif
