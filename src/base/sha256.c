/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 by libcrypto, which uses the processor's own instructions. See sha256.h. */
#include "base/sha256.h"

#include <openssl/evp.h>

static int sha256_failed(struct sl_err *err)
{
	return sl_err_set(err, SL_EINTERNAL, "libcrypto refused to compute a SHA-256");
}

int sl__sha256_begin(struct sl__sha256 *h, struct sl_err *err)
{
	h->md = EVP_MD_CTX_new();
	if (h->md == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for a SHA-256");
	if (EVP_DigestInit_ex(h->md, EVP_sha256(), NULL) != 1) {
		sl__sha256_drop(h);
		return sha256_failed(err);
	}
	return 0;
}

int sl__sha256_update(struct sl__sha256 *h, const void *data, size_t n, struct sl_err *err)
{
	return n == 0 || EVP_DigestUpdate(h->md, data, n) == 1 ? 0 : sha256_failed(err);
}

int sl__sha256_final(struct sl__sha256 *h, uint8_t out[SL__SHA256_BYTES], struct sl_err *err)
{
	bool good = EVP_DigestFinal_ex(h->md, out, NULL) == 1;

	sl__sha256_drop(h);
	return good ? 0 : sha256_failed(err);
}

void sl__sha256_drop(struct sl__sha256 *h)
{
	if (h != NULL)
		EVP_MD_CTX_free(h->md), h->md = NULL;
}

int sl__sha256(const void *data, size_t n, uint8_t out[SL__SHA256_BYTES], struct sl_err *err)
{
	return EVP_Digest(data, n, out, NULL, EVP_sha256(), NULL) == 1 ? 0 : sha256_failed(err);
}

void sl__sha256_hex(const uint8_t digest[SL__SHA256_BYTES], char out[SL__SHA256_HEX])
{
	*sl__hex(out, digest, SL__SHA256_BYTES) = '\0';
}
