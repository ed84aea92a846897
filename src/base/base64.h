/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 as in RFC 4648, and hexadecimal digits. Thread safety: all. Ownership: buffers are the caller's. */
#ifndef SL_BASE_BASE64_H
#define SL_BASE_BASE64_H

#include "base/buf.h"

/* Characters that n bytes become, padding included. */
#define SL__BASE64_LEN(n) (((n) + 2) / 3 * 4)
/* Room that text of n characters may need when it is decoded. */
#define SL__BASE64_DECODED_MAX(n) ((n) / 4 * 3 + 3)

/* Append n bytes in the standard alphabet, padded. 0 or SL_ENOMEM. */
int sl__base64_append(struct sl__buf *b, const void *data, size_t n);
/* Decode either alphabet, with or without padding. Returns the number of bytes, or -1 when text is not base64. */
ssize_t sl__base64_decode(void *to, const char *text, size_t n);

/* The n bytes that lower-case hexadecimal digits stand for; false, and out as it was, when text is anything else
 * than 2n of them. (sl__hex of base/base.h is the opposite.) */
SL_MUST_CHECK bool sl__unhex(const char *text, size_t len, void *out, size_t n);

#endif
