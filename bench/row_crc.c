/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-64/NVME over a buffer far larger than the cache, against nothing but reading the same buffer on one core: wide
 * loads, xor'ed into independent accumulators so that no addition chain slows them.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/crc64nvme.h"
#include "bench.h"

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx2"))) static uint64_t read_wide(const void *data, size_t n)
{
	const __m256i *p = data;
	__m256i a = _mm256_setzero_si256(), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
	for (size_t i = 0; i + 8 <= n / sizeof *p; i += 8) {
		a = _mm256_xor_si256(a, _mm256_loadu_si256(p + i));
		b = _mm256_xor_si256(b, _mm256_loadu_si256(p + i + 1));
		c = _mm256_xor_si256(c, _mm256_loadu_si256(p + i + 2));
		d = _mm256_xor_si256(d, _mm256_loadu_si256(p + i + 3));
		e = _mm256_xor_si256(e, _mm256_loadu_si256(p + i + 4));
		f = _mm256_xor_si256(f, _mm256_loadu_si256(p + i + 5));
		g = _mm256_xor_si256(g, _mm256_loadu_si256(p + i + 6));
		h = _mm256_xor_si256(h, _mm256_loadu_si256(p + i + 7));
	}
	a = _mm256_xor_si256(_mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d)),
			     _mm256_xor_si256(_mm256_xor_si256(e, f), _mm256_xor_si256(g, h)));
	uint64_t parts[4];
	_mm256_storeu_si256((__m256i *)parts, a);
	return parts[0] ^ parts[1] ^ parts[2] ^ parts[3];
}
#endif

static uint64_t read_words(const void *data, size_t n)
{
	const uint64_t *p = data;
	uint64_t a = 0, b = 0, c = 0, d = 0;
	for (size_t i = 0; i + 4 <= n / sizeof *p; i += 4) {
		a ^= p[i];
		b ^= p[i + 1];
		c ^= p[i + 2];
		d ^= p[i + 3];
	}
	return a ^ b ^ c ^ d;
}

static uint64_t read_plain(const void *data, size_t n)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2"))
		return read_wide(data, n);
#endif
	return read_words(data, n);
}

static uint64_t checksum(const void *data, size_t n)
{
	return sl__crc64nvme(0, data, n);
}

/* Bytes per second of fn over the buffer; the result is used so that nothing is left out. */
static double speed(uint64_t (*fn)(const void *, size_t), const void *data, size_t n)
{
	static volatile uint64_t sink;
	uint64_t begin = now_ns();
	sink = sink ^ fn(data, n);
	return (double)n * 1e9 / (double)(now_ns() - begin);
}

static void row_crc_line(struct report *r, const double *crc, const double *plain, int rounds)
{
	struct line l = {.unit = "x", .floor = 0.6, .goal = 0.8};
	double ratios[MAX_ROUNDS];
	for (int i = 0; i < rounds; i++)
		ratios[i] = crc[i] / plain[i];
	l.value = median(ratios, rounds);
	l.ours_rate = median(crc, rounds);
	l.peer_rate = median(plain, rounds);
	(void)snprintf(l.work, sizeof l.work, "CRC-64/NVME beyond the cache");
	(void)snprintf(l.ours, sizeof l.ours, "%.1f GB/s", l.ours_rate / 1e9);
	(void)snprintf(l.against, sizeof l.against, "plain read %.1f GB/s", l.peer_rate / 1e9);
	report_line(r, &l);
}

void row_crc(struct report *r, const struct settings *s)
{
	double crc[MAX_ROUNDS], plain[MAX_ROUNDS];
	size_t n = s->crc_bytes;
	void *data = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED) {
		fprintf(r->details, "\nno memory for the checksum's buffer\n");
		return;
	}
	(void)madvise(data, n, MADV_HUGEPAGE);
	fill_random(data, n, 1);
	int rounds = s->rounds * 2 < MAX_ROUNDS ? s->rounds * 2 : MAX_ROUNDS;
	for (int i = 0; i < rounds; i++) {
		crc[i] = speed(checksum, data, n);
		plain[i] = speed(read_plain, data, n);
	}
	row_crc_line(r, crc, plain, rounds);
	munmap(data, n);
}
