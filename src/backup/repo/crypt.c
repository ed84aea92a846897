/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seals and derived keys (docs/formats/backup.md).
 *
 *   encrypted   nonce 24 | ciphertext, as long as the bytes | tag 16        XChaCha20-Poly1305, data key
 *   plain       u64 CRC-64/NVME of associated data and bytes | bytes
 *
 * The associated data are the kind (one byte), the repository's id (16) and what the caller binds in besides: an object
 * of one kind, or of another repository, never opens as something else. Nonces are random: with 192 bits of them one
 * key serves any number of seals. A plain seal is against accidents only; a stronger sum would cost a create a
 * twentieth of its time and tell a forger nothing that he could not make himself.
 */
#include "backup/repo/crypt.h"

#include <sodium.h>

#include "base/crc64nvme.h"

#define NONCE_BYTES crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define TAG_BYTES crypto_aead_xchacha20poly1305_ietf_ABYTES
#define AAD_FIXED (1 + BK_NAME_BYTES)
#define AAD_MAX (AAD_FIXED + BK_AAD_MAX)

_Static_assert(NONCE_BYTES + TAG_BYTES == BK_SEAL_ENCRYPTED, "what sealing adds");
_Static_assert(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == 32 && crypto_kdf_KEYBYTES == 32, "keys of 32 bytes");

int sl__bk_keys_derive(struct bk_keys *keys, struct sl_err *err)
{
	static const char context[crypto_kdf_CONTEXTBYTES + 1] = "SLBACKUP";

	if (sodium_init() < 0)
		return sl_err_set(err, SL_EINTERNAL, "libsodium does not start");
	if (!keys->encrypted) {
		sl__bk_keys_wipe(keys);
		return 0;
	}
	/* These cannot fail: all lengths are in range. */
	(void)crypto_kdf_derive_from_key(keys->data, sizeof(keys->data), 1, context, keys->master);
	(void)crypto_kdf_derive_from_key(keys->id, sizeof(keys->id), 2, context, keys->master);
	(void)crypto_kdf_derive_from_key(keys->gear, sizeof(keys->gear), 3, context, keys->master);
	return 0;
}

void sl__bk_keys_wipe(struct bk_keys *keys)
{
	sodium_memzero(keys->master, sizeof(keys->master));
	sodium_memzero(keys->data, sizeof(keys->data));
	sodium_memzero(keys->id, sizeof(keys->id));
	sodium_memzero(keys->gear, sizeof(keys->gear));
}

struct associated {
	uint8_t data[AAD_MAX];
	size_t len;
};

static void associate(struct associated *ad, const struct bk_keys *keys, enum bk_kind kind, const void *aad,
		      size_t aad_len)
{
	assert(aad_len <= BK_AAD_MAX);
	ad->data[0] = (uint8_t)kind;
	memcpy(ad->data + 1, keys->repository, BK_NAME_BYTES);
	if (aad_len != 0)
		memcpy(ad->data + AAD_FIXED, aad, aad_len);
	ad->len = AAD_FIXED + aad_len;
}

static uint64_t checksum(const struct associated *ad, const void *bytes, size_t len)
{
	return sl__crc64nvme(sl__crc64nvme(0, ad->data, ad->len), bytes, len);
}

static void seal_plain(const struct associated *ad, const void *bytes, size_t len, uint8_t *out)
{
	uint8_t *body = out + BK_SEAL_PLAIN;
	if (len != 0 && bytes != body)
		memmove(body, bytes, len);
	sl__put64(out, checksum(ad, body, len));
}

int sl__bk_seal(const struct sl_env *env, const struct bk_keys *keys, enum bk_kind kind, const void *aad,
		size_t aad_len, const void *bytes, size_t len, uint8_t *out, struct sl_err *err)
{
	struct associated ad;
	associate(&ad, keys, kind, aad, aad_len);
	if (!keys->encrypted) {
		seal_plain(&ad, bytes, len, out);
		return 0;
	}
	int rc = env->rand->fill(out, NONCE_BYTES, env->rand_ctx);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "draw a random nonce");
	uint8_t *body = out + NONCE_BYTES;
	struct bk_aead a = {.key = keys->data, .nonce = out, .ad = ad.data, .ad_len = ad.len};
	rc = sl__bk_aead_encrypt(&a, len != 0 ? bytes : body, len, body); /* no bytes may be NULL */
	return rc == 0 ? 0 : sl_err_set(err, rc, "libcrypto refused to encrypt %zu bytes", len);
}

static int refuse(struct sl_err *err, const char *why)
{
	return sl_err_set(err, SL_ECORRUPT, "damaged: %s", why);
}

int sl__bk_unseal(const struct bk_keys *keys, enum bk_kind kind, const void *aad, size_t aad_len, uint8_t *sealed,
		  size_t len, uint8_t **bytes, size_t *bytes_len, struct sl_err *err)
{
	struct associated ad;
	if (len < sl__bk_seal_bytes(keys))
		return refuse(err, "shorter than its seal");
	associate(&ad, keys, kind, aad, aad_len);
	uint8_t *body = sealed + sl__bk_seal_front(keys);
	size_t body_len = len - sl__bk_seal_bytes(keys);
	if (keys->encrypted) {
		struct bk_aead a = {.key = keys->data, .nonce = sealed, .ad = ad.data, .ad_len = ad.len};
		if (sl__bk_aead_decrypt(&a, body, body_len) != 0)
			return refuse(err, "its seal does not open with the repository's key");
	} else if (sl__get64(sealed) != checksum(&ad, body, body_len)) {
		return refuse(err, "its checksum is another one");
	}
	*bytes = body;
	*bytes_len = body_len;
	return 0;
}

void sl__bk_hex(const void *bytes, size_t n, char *out)
{
	*sl__hex(out, bytes, n) = '\0';
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool sl__bk_unhex(const char *text, void *out, size_t n)
{
	if (strnlen(text, 2 * n + 1) != 2 * n)
		return false;
	for (size_t i = 0; i < 2 * n; i++)
		if (digit(text[i]) < 0)
			return false;
	uint8_t *b = out;
	for (size_t i = 0; i < n; i++)
		b[i] = (uint8_t)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
	return true;
}
