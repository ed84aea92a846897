/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/text.h"

#include "base/utf8.h"

static inline bool is_ascii(const char *p, size_t n)
{
	uint64_t any = 0;
	size_t i = 0;

	for (; i + 8 <= n; i += 8)
		any |= sl__get64(p + i);
	for (; i < n; i++)
		any |= (uint64_t)(uint8_t)p[i];
	return (any & 0x8080808080808080u) == 0;
}

bool sl__pq_is_utf8(struct sl_parquet_bytes v)
{
	size_t i = 0;
	char last[8] = {0}; /* sl__utf8_length reads up to a NUL */

	if (is_ascii(v.data, v.len))
		return true;
	while (i < v.len) {
		size_t n, left = v.len - i;
		if (left >= 4) {
			n = sl__utf8_length(v.data + i);
		} else {
			memcpy(last, v.data + i, left);
			memset(last + left, 0, sizeof(last) - left);
			n = sl__utf8_length(last);
		}
		if (n == 0)
			return false;
		i += n;
	}
	return true;
}
