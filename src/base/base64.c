/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 and hexadecimal: one encoder and one decoder of each for the library, the server and the command. */
#include "base/base64.h"

size_t sl__base64_encode(char *to, const void *data, size_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint8_t *p = data;
	char *out = to;
	for (; n >= 3; n -= 3, p += 3) {
		uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
		*out++ = digits[bits >> 18];
		*out++ = digits[bits >> 12 & 63];
		*out++ = digits[bits >> 6 & 63];
		*out++ = digits[bits & 63];
	}
	if (n > 0) {
		uint32_t bits = (uint32_t)p[0] << 16 | (n > 1 ? (uint32_t)p[1] << 8 : 0);
		*out++ = digits[bits >> 18];
		*out++ = digits[bits >> 12 & 63];
		*out++ = n > 1 ? digits[bits >> 6 & 63] : '=';
		*out++ = '=';
	}
	return (size_t)(out - to);
}

int sl__base64_append(struct sl__buf *b, const void *data, size_t n)
{
	int rc = sl__buf_reserve(b, SL__BASE64_LEN(n));
	if (rc != 0 || n == 0)
		return rc;
	b->len += sl__base64_encode(b->data + b->len, data, n);
	b->data[b->len] = '\0';
	return 0;
}

static int value_of_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+' || c == '-')
		return 62;
	return c == '/' || c == '_' ? 63 : -1;
}

ssize_t sl__base64_decode(void *to, const char *text, size_t n)
{
	uint8_t *out = to;
	uint32_t bits = 0;
	size_t have = 0, len = 0;
	while (n > 0 && text[n - 1] == '=')
		n--;
	for (size_t i = 0; i < n; i++) {
		int d = value_of_digit(text[i]);
		if (d < 0)
			return -1;
		bits = bits << 6 | (uint32_t)d;
		have += 6;
		if (have >= 8) {
			have -= 8;
			out[len++] = (uint8_t)(bits >> have);
		}
	}
	return n % 4 != 1 ? (ssize_t)len : -1;
}

static int value_of_hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool sl__unhex(const char *text, size_t len, void *out, size_t n)
{
	uint8_t *to = out;
	if (len != 2 * n)
		return false;
	for (size_t i = 0; i < len; i++)
		if (value_of_hex(text[i]) < 0)
			return false;
	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)(value_of_hex(text[2 * i]) << 4 | value_of_hex(text[2 * i + 1]));
	return true;
}
