/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-64/NVME over a buffer far larger than the cache, against nothing but reading the same buffer on one core: wide
 * loads, xor'ed into independent accumulators so that no chain of results slows them. Which way of reading is fastest
 * depends on the machine (fetching ahead or not, one stream or two), so each is tried and the fastest one counts.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/crc64nvme.h"
#include "bench.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

AVX2 static inline uint64_t fold(const __m256i *sums, int n)
{
	uint64_t parts[4];
	__m256i all = sums[0];
	for (int i = 1; i < n; i++)
		all = _mm256_xor_si256(all, sums[i]);
	_mm256_storeu_si256((__m256i *)parts, all);
	return parts[0] ^ parts[1] ^ parts[2] ^ parts[3];
}

AVX2 static uint64_t read_wide(const void *data, size_t n)
{
	const __m256i *p = data;
	__m256i sums[8] = {0};
	for (size_t i = 0; i + 8 <= n / sizeof(*p); i += 8)
		for (int k = 0; k < 8; k++)
			sums[k] = _mm256_xor_si256(sums[k], _mm256_loadu_si256(p + i + k));
	return fold(sums, 8);
}

AVX2 static uint64_t read_ahead(const void *data, size_t n)
{
	const __m256i *p = data;
	__m256i sums[8] = {0};
	for (size_t i = 0; i + 8 <= n / sizeof(*p); i += 8) {
		for (int line = 0; line < 4; line++)
			_mm_prefetch((const char *)(p + i) + 1024 + 64 * line, _MM_HINT_T0);
		for (int k = 0; k < 8; k++)
			sums[k] = _mm256_xor_si256(sums[k], _mm256_loadu_si256(p + i + k));
	}
	return fold(sums, 8);
}

AVX2 static uint64_t read_halves(const void *data, size_t n)
{
	size_t half = n / 2 / sizeof(__m256i);
	const __m256i *p = data, *q = p + half;
	__m256i sums[8] = {0};
	for (size_t i = 0; i + 4 <= half; i += 4)
		for (int k = 0; k < 4; k++) {
			sums[k] = _mm256_xor_si256(sums[k], _mm256_loadu_si256(p + i + k));
			sums[k + 4] = _mm256_xor_si256(sums[k + 4], _mm256_loadu_si256(q + i + k));
		}
	return fold(sums, 8);
}
#endif

static uint64_t read_words(const void *data, size_t n)
{
	const uint64_t *p = data;
	uint64_t a = 0, b = 0, c = 0, d = 0;
	for (size_t i = 0; i + 4 <= n / sizeof(*p); i += 4) {
		a ^= p[i];
		b ^= p[i + 1];
		c ^= p[i + 2];
		d ^= p[i + 3];
	}
	return a ^ b ^ c ^ d;
}

typedef uint64_t pass_fn(const void *data, size_t n);

static uint64_t checksum(const void *data, size_t n)
{
	return sl__crc64nvme(0, data, n);
}

/* The ways of reading that this machine can do. */
static int readers(pass_fn **out)
{
	int n = 0;
	out[n++] = read_words;
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2")) {
		out[n++] = read_wide;
		out[n++] = read_ahead;
		out[n++] = read_halves;
	}
#endif
	return n;
}

/* Bytes per second of fn over the buffer; the result is used so that nothing is left out. */
static double speed(pass_fn *fn, const void *data, size_t n)
{
	static volatile uint64_t sink;
	uint64_t begin = now_ns();
	sink = sink ^ fn(data, n);
	return (double)n * 1e9 / (double)(now_ns() - begin);
}

static void line_crc(struct report *r, const double *crc, const double *plain, int rounds)
{
	struct line l = {
		.row = "crc", .unit = "x", .floor = 0.6, .goal = 0.8, .rate_unit = "bytes/s", .peer = "plain reading"};
	double ratios[MAX_ROUNDS];
	for (int i = 0; i < rounds; i++)
		ratios[i] = crc[i] / plain[i];
	l.value = median(ratios, rounds);
	l.ours_rate = median(crc, rounds);
	l.peer_rate = median(plain, rounds);
	(void)snprintf(l.work, sizeof(l.work), "CRC-64/NVME beyond the cache");
	(void)snprintf(l.ours, sizeof(l.ours), "%.1f GB/s", l.ours_rate / 1e9);
	(void)snprintf(l.against, sizeof(l.against), "plain read %.1f GB/s", l.peer_rate / 1e9);
	report_line(r, &l);
}

/* In each round the checksum and every way of reading go over the buffer once. */
static void compare(struct report *r, const struct settings *s, const void *data, size_t n)
{
	static double crc[MAX_ROUNDS], plain[4][MAX_ROUNDS];
	pass_fn *reader[4];
	int count = readers(reader), best = 0, rounds = s->rounds * 3 < MAX_ROUNDS ? s->rounds * 3 : MAX_ROUNDS;
	for (int i = 0; i < rounds; i++) {
		crc[i] = speed(checksum, data, n);
		for (int k = 0; k < count; k++)
			plain[k][i] = speed(reader[k], data, n);
	}
	for (int k = 1; k < count; k++)
		if (median(plain[k], rounds) > median(plain[best], rounds))
			best = k;
	line_crc(r, crc, plain[best], rounds);
}

void row_crc(struct report *r, const struct settings *s)
{
	size_t n = s->crc_bytes;
	void *data = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED) {
		fprintf(r->details, "\nno memory for the checksum's buffer\n");
		return;
	}
	(void)madvise(data, n, MADV_HUGEPAGE);
	fill_random(data, n, 1);
	compare(r, s, data, n);
	munmap(data, n);
}
