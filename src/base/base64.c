/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 by libsodium, and hexadecimal: once for the library, the server and the command. */
#include "base/base64.h"

#include <sodium.h>

int sl__base64_append(struct sl__buf *b, const void *data, size_t n)
{
	int rc = sl__buf_reserve(b, SL__BASE64_LEN(n)); /* and room for a NUL, which libsodium writes */
	if (rc != 0 || n == 0)
		return rc;
	(void)sodium_bin2base64(b->data + b->len, SL__BASE64_LEN(n) + 1, data, n, sodium_base64_VARIANT_ORIGINAL);
	b->len += SL__BASE64_LEN(n);
	return 0;
}

ssize_t sl__base64_decode(void *to, const char *text, size_t n)
{
	size_t len;
	while (n > 0 && text[n - 1] == '=')
		n--;
	bool url = memchr(text, '-', n) != NULL || memchr(text, '_', n) != NULL;
	int variant = url ? sodium_base64_VARIANT_URLSAFE_NO_PADDING : sodium_base64_VARIANT_ORIGINAL_NO_PADDING;
	return sodium_base642bin(to, SL__BASE64_DECODED_MAX(n), text, n, NULL, &len, NULL, variant) == 0 ? (ssize_t)len
													 : -1;
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
