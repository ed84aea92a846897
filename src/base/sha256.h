/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 through OpenSSL's libcrypto, which uses the processor's instructions where it has them.
 *
 * Thread safety: a state belongs to one thread at a time. Ownership: a state that was begun must be ended, by final or
 * by drop.
 */
#ifndef SL_BASE_SHA256_H
#define SL_BASE_SHA256_H

#include "base/base.h"

#define SL__SHA256_BYTES 32
#define SL__SHA256_HEX 65 /* with the NUL */

struct sl__sha256 {
	void *md; /* NULL: not begun */
};

/* SL_ENOMEM; SL_EINTERNAL when libcrypto has no SHA-256. */
SL_MUST_CHECK int sl__sha256_begin(struct sl__sha256 *h, struct sl_err *err);
/* data may be NULL when n is 0. */
SL_MUST_CHECK int sl__sha256_update(struct sl__sha256 *h, const void *data, size_t n, struct sl_err *err);
SL_MUST_CHECK int sl__sha256_final(struct sl__sha256 *h, uint8_t out[SL__SHA256_BYTES], struct sl_err *err);
/* Without a result. NULL-safe, idempotent. */
void sl__sha256_drop(struct sl__sha256 *h);

/* All at once. */
SL_MUST_CHECK int sl__sha256(const void *data, size_t n, uint8_t out[SL__SHA256_BYTES], struct sl_err *err);

/* Lower-case hexadecimal, NUL-terminated. */
void sl__sha256_hex(const uint8_t digest[SL__SHA256_BYTES], char out[SL__SHA256_HEX]);

#endif
