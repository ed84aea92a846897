/* SPDX-License-Identifier: Apache-2.0 */
/* Partitions: their boundaries and names (partition.h), and the text of their recorded holes (holes.h). */
#include "pipeline/partition.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"
#include "pipeline/holes.h"

uint64_t sl__partition_end(uint64_t sequence, uint64_t size)
{
	uint64_t left = size - 1 - sequence % size;

	return sequence >= SL__SEQUENCE_MAX - SL_MIN(left, SL__SEQUENCE_MAX) ? SL__SEQUENCE_MAX : sequence + left;
}

void sl__partition_name(uint64_t start, uint64_t end, uint64_t size, bool late, char out[SL__PARTITION_NAME_BYTES])
{
	(void)snprintf(out, SL__PARTITION_NAME_BYTES,
		       "partition-%020" PRIu64 "/part-%020" PRIu64 "-%020" PRIu64 "%s.parquet",
		       sl__partition_number(start, size), start, end, late ? "-late" : "");
}

/* ---- holes ---- */

void sl__holes_put(struct sl__buf *text, uint64_t first, uint64_t last)
{
	const char *comma = text->len > 0 ? "," : "";
	if (first == last)
		(void)sl__buf_printf(text, "%s%" PRIu64, comma, first);
	else
		(void)sl__buf_printf(text, "%s%" PRIu64 "-%" PRIu64, comma, first, last);
}

/* Decimal digits without a leading zero. */
static bool take_hole_number(const char **at, uint64_t *out)
{
	const char *p = *at;
	uint64_t v = 0;
	if (*p < '0' || *p > '9' || (*p == '0' && p[1] >= '0' && p[1] <= '9'))
		return false;
	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return false;
	*at = p;
	*out = v;
	return true;
}

bool sl__holes_next(const char **text, uint64_t *first, uint64_t *last)
{
	const char *p = *text;
	if (!take_hole_number(&p, first))
		return false;
	*last = *first;
	if (*p == '-' && (p++, !take_hole_number(&p, last) || *last <= *first))
		return false;
	if (*p != '\0' && (*p++ != ',' || *p == '\0'))
		return false;
	*text = p;
	return true;
}

bool sl__holes_ok(const char *text, uint64_t start, uint64_t end, uint64_t count)
{
	uint64_t first, last, sum = 0, from = start;
	while (sl__holes_next(&text, &first, &last)) {
		if (first < from || last > end || last > SL__SEQUENCE_MAX)
			return false;
		sum += last - first + 1;
		from = last + 2; /* those that touch would be one */
	}
	return *text == '\0' && sum == count;
}

bool sl__holes_contain(const char *text, uint64_t first, uint64_t last)
{
	uint64_t a, b;
	while (sl__holes_next(&text, &a, &b))
		if (b >= first)
			return a <= first && last <= b;
	return false;
}

bool sl__holes_hashed(const char *text)
{
	size_t n = strlen(SL__HOLES_HASHED);
	return strncmp(text, SL__HOLES_HASHED, n) == 0 && strlen(text) == n + SL__SHA256_HEX - 1 &&
	       strspn(text + n, "0123456789abcdef") == SL__SHA256_HEX - 1;
}

int sl__holes_for_event(const char *text, char out[SL__HOLES_EVENT_BYTES], struct sl_err *err)
{
	uint8_t hash[SL__SHA256_BYTES];
	char hex[SL__SHA256_HEX];
	size_t n = strlen(text);
	if (n <= SL__HOLES_INLINE) {
		memcpy(out, text, n + 1);
		return 0;
	}
	int rc = sl__sha256(text, n, hash, err);
	if (rc != 0)
		return rc;
	sl__sha256_hex(hash, hex);
	(void)snprintf(out, SL__HOLES_EVENT_BYTES, SL__HOLES_HASHED "%s", hex);
	return 0;
}
