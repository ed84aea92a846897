/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seals, derived keys, block ids and checked texts (docs/formats/backup.md).
 *
 *   encrypted   nonce 24 | ciphertext, as long as the bytes | tag 16        XChaCha20-Poly1305, data key
 *   plain       u64 CRC-64/NVME of associated data and bytes | bytes
 *
 * The associated data are the kind (one byte), the repository's id (16) and what the caller binds in besides: an object
 * of one kind, or of another repository, never opens as something else. Nonces are random: with 192 bits of them one
 * key serves any number of seals. A plain seal is against accidents only; a stronger sum would cost a create a
 * twentieth of its time and would not stop a forger, who could compute it too.
 *
 * XChaCha20-Poly1305 is libsodium's, for long texts libcrypto's, which uses wider registers: a third of the time. Both
 * give the same bytes: XChaCha20 is ChaCha20 with a key that HChaCha20 makes of the key and the nonce's first 16 bytes,
 * and with four zeros and the nonce's last 8 as its nonce. Where libcrypto has no memory or does not offer the cipher,
 * libsodium does the work.
 *
 * Block ids (F1): looking an algorithm up and keying an HMAC cost more than hashing a small file, so both are done once
 * per hasher.
 *
 * A checked text is a JSON object in one line whose last member "check" is the SHA-256 of all bytes before `,"check"`.
 * For what is read before there is a key: config and wrapped keys.
 */
#include "backup/repo/crypt.h"

#include <openssl/evp.h>
#include <openssl/params.h>
#include <sodium.h>

#include "base/crc64nvme.h"
#include "base/sha256.h"
#include "base/simd.h"

#define NONCE_BYTES crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define TAG_BYTES crypto_aead_xchacha20poly1305_ietf_ABYTES
#define AAD_FIXED (1 + BK_NAME_BYTES)
#define AAD_MAX (AAD_FIXED + BK_AAD_MAX)
#define LONG_TEXT (8u << 10)    /* below, setting libcrypto up costs more than it gains */
#define PIECE ((size_t)1 << 30) /* libcrypto counts in int */

_Static_assert(NONCE_BYTES + TAG_BYTES == BK_SEAL_ENCRYPTED, "what sealing adds");
_Static_assert(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == 32 && crypto_kdf_KEYBYTES == 32, "keys of 32 bytes");

/* ---- keys ---- */

int sl__bk_keys_derive(struct bk_keys *keys, struct sl_err *err)
{
	static const char context[crypto_kdf_CONTEXTBYTES + 1] = "SLBACKUP";

	if (sodium_init() < 0)
		return sl_err_set(err, SL_EINTERNAL, "libsodium failed to start");
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

/* ---- seals ---- */

struct associated {
	uint8_t data[AAD_MAX];
	size_t len;
};

static void bind_to_object(const struct bk_seal *as, struct associated *ad)
{
	assert(as->aad_len <= BK_AAD_MAX);
	ad->data[0] = (uint8_t)as->kind;
	memcpy(ad->data + 1, as->keys->repository, BK_NAME_BYTES);
	if (as->aad_len != 0)
		memcpy(ad->data + AAD_FIXED, as->aad, as->aad_len);
	ad->len = AAD_FIXED + as->aad_len;
}

/* XChaCha20-Poly1305 by libcrypto. Encrypting, to (len + tag; may be text) gets the text and its tag; decrypting, the tag
 * follows the text. 1, 0: it failed, -1: libcrypto cannot do it, and nothing was changed. */
struct cipher {
	const uint8_t *key, *nonce; /* 32 bytes, 24 bytes */
	const struct associated *ad;
	bool encrypt;
};
static int cipher_long(const struct cipher *x, const uint8_t *text, size_t len, uint8_t *to)
{
	uint8_t key[crypto_core_hchacha20_OUTPUTBYTES], nonce[12] = {0}, rest[TAG_BYTES];
	int n;
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	if (c == NULL)
		return -1;
	(void)crypto_core_hchacha20(key, x->nonce, x->key, NULL); /* cannot fail */
	memcpy(nonce + 4, x->nonce + crypto_core_hchacha20_INPUTBYTES, 8);
	bool good = EVP_CipherInit_ex(c, EVP_chacha20_poly1305(), NULL, key, nonce, x->encrypt) == 1 &&
		    EVP_CipherUpdate(c, NULL, &n, x->ad->data, (int)x->ad->len) == 1;
	sodium_memzero(key, sizeof(key));
	if (!good) {
		EVP_CIPHER_CTX_free(c);
		return -1;
	}
	if (!x->encrypt)
		memcpy(rest, text + len, TAG_BYTES);
	good = x->encrypt || EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, rest) == 1;
	for (size_t at = 0; good && at < len;) {
		int piece = (int)SL_MIN(len - at, PIECE), did = 0;
		good = EVP_CipherUpdate(c, to + at, &did, text + at, piece) == 1 && did == piece;
		at += (size_t)piece;
	}
	good = good && EVP_CipherFinal_ex(c, rest, &n) == 1 &&
	       (!x->encrypt || EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, to + len) == 1);
	EVP_CIPHER_CTX_free(c);
	sl__simd_clear();
	return good;
}

int sl__bk_seal(const struct bk_seal *as, const void *bytes, size_t len, uint8_t *out, struct sl_err *err)
{
	struct associated ad;
	bind_to_object(as, &ad);
	if (!as->keys->encrypted) {
		uint8_t *body = out + BK_SEAL_PLAIN;
		if (len != 0 && bytes != body)
			memmove(body, bytes, len);
		sl__put64(out, sl__crc64nvme(sl__crc64nvme(0, ad.data, ad.len), body, len));
		return 0;
	}
	int rc = as->env->rand->fill(out, NONCE_BYTES, as->env->rand_ctx);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "draw a random nonce");
	uint8_t *body = out + NONCE_BYTES;
	const uint8_t *text = len != 0 ? bytes : body; /* no bytes may be NULL */
	const struct cipher x = {.key = as->keys->data, .nonce = out, .ad = &ad, .encrypt = true};
	int done = len >= LONG_TEXT ? cipher_long(&x, text, len, body) : -1;
	if (done < 0) /* this cannot fail */
		(void)crypto_aead_xchacha20poly1305_ietf_encrypt(body, NULL, text, len, ad.data, ad.len, NULL, out,
								 as->keys->data);
	return done != 0 ? 0 : sl_err_set(err, SL_EINTERNAL, "libcrypto refused to encrypt %zu bytes", len);
}

int sl__bk_unseal(const struct bk_seal *as, uint8_t *sealed, size_t *len, uint8_t **bytes, struct sl_err *err)
{
	const struct bk_keys *keys = as->keys;
	struct associated ad;
	if (*len < sl__bk_seal_bytes(keys))
		return sl_err_set(err, SL_ECORRUPT, "damaged: shorter than its seal");
	bind_to_object(as, &ad);
	uint8_t *body = sealed + sl__bk_seal_front(keys);
	size_t body_len = *len - sl__bk_seal_bytes(keys);
	if (keys->encrypted) {
		const struct cipher x = {.key = keys->data, .nonce = sealed, .ad = &ad};
		int good = body_len >= LONG_TEXT ? cipher_long(&x, body, body_len, body) : -1;
		if (good < 0)
			good = crypto_aead_xchacha20poly1305_ietf_decrypt(body, NULL, NULL, body, body_len + TAG_BYTES,
									  ad.data, ad.len, sealed, keys->data) == 0;
		if (good == 0)
			return sl_err_set(err, SL_ECORRUPT,
					  "damaged: its seal does not open with the repository's key");
	} else if (sl__get64(sealed) != sl__crc64nvme(sl__crc64nvme(0, ad.data, ad.len), body, body_len)) {
		return sl_err_set(err, SL_ECORRUPT, "damaged: its checksum does not match");
	}
	*bytes = body;
	*len = body_len;
	return 0;
}

/* ---- block ids ---- */

struct bk_hasher {
	struct sl_env env;
	EVP_MD *md;        /* plain: SHA-256 */
	EVP_MD_CTX *plain; /* NULL in an encrypted repository */
	EVP_MAC *hmac;
	EVP_MAC_CTX *keyed; /* NULL in a plain repository */
};

int sl__bk_hasher_new(struct bk_hasher **out, const struct sl_env *env, const struct bk_keys *keys, struct sl_err *err)
{
	char digest[] = "SHA2-256";
	const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0), OSSL_PARAM_construct_end()};
	bool good;
	struct bk_hasher *h = sl__calloc(env, 1, sizeof(*h));
	if (h == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for the hasher of blocks");
	h->env = *env;
	if (keys->encrypted) {
		h->hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
		h->keyed = h->hmac != NULL ? EVP_MAC_CTX_new(h->hmac) : NULL;
		good = h->keyed != NULL && EVP_MAC_init(h->keyed, keys->id, sizeof(keys->id), params) == 1;
	} else {
		h->md = EVP_MD_fetch(NULL, "SHA2-256", NULL);
		h->plain = EVP_MD_CTX_new();
		good = h->md != NULL && h->plain != NULL;
	}
	if (!good) {
		sl__bk_hasher_free(h);
		return sl_err_set(err, SL_EINTERNAL, "libcrypto cannot compute block ids");
	}
	*out = h;
	return 0;
}

void sl__bk_hasher_free(struct bk_hasher *h)
{
	if (h == NULL)
		return;
	EVP_MD_CTX_free(h->plain);
	EVP_MD_free(h->md);
	EVP_MAC_CTX_free(h->keyed); /* wipes the key */
	EVP_MAC_free(h->hmac);
	struct sl_env env = h->env;
	sl__free(&env, h);
}

int sl__bk_hash(struct bk_hasher *h, const void *bytes, size_t len, struct bk_id *out, struct sl_err *err)
{
	struct bk_id id;
	bool good;
	if (h->keyed != NULL) /* without a key: the same one again */
		good = EVP_MAC_init(h->keyed, NULL, 0, NULL) == 1 && EVP_MAC_update(h->keyed, bytes, len) == 1 &&
		       EVP_MAC_final(h->keyed, id.b, NULL, sizeof(id.b)) == 1;
	else
		good = EVP_DigestInit_ex2(h->plain, h->md, NULL) == 1 && EVP_DigestUpdate(h->plain, bytes, len) == 1 &&
		       EVP_DigestFinal_ex(h->plain, id.b, NULL) == 1;
	if (!good)
		return sl_err_set(err, SL_EINTERNAL, "libcrypto failed to compute a block's id");
	*out = id;
	return 0;
}

/* ---- texts ---- */

void sl__bk_hex(const void *bytes, size_t n, char *out)
{
	*sl__hex(out, bytes, n) = '\0';
}

#define CHECK_FRONT ",\"check\":\""
#define CHECK_END "\"}"
#define CHECK_FRONT_BYTES (sizeof(CHECK_FRONT) - 1)
#define CHECK_END_BYTES (sizeof(CHECK_END) - 1)
#define CHECK_BYTES (CHECK_FRONT_BYTES + 64 + CHECK_END_BYTES) /* from CHECK_FRONT to the end */

static int hash_checked_text(const char *text, size_t n, char hex[SL__SHA256_HEX], struct sl_err *err)
{
	uint8_t sum[SL__SHA256_BYTES];
	int rc = sl__sha256(text, n, sum, err);
	if (rc == 0)
		sl__sha256_hex(sum, hex);
	return rc;
}

int sl__bk_checked_text(const struct sl_env *env, const char *body, char **text, struct sl_err *err)
{
	char hex[SL__SHA256_HEX];
	int rc = hash_checked_text(body, strlen(body), hex, err);
	if (rc != 0)
		return rc;
	char *whole = sl__asprintf(env, "%s" CHECK_FRONT "%s" CHECK_END, body, hex);
	if (whole == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for a line of JSON");
	*text = whole;
	return 0;
}

bool sl__bk_text_is_checked(const char *text, size_t len)
{
	char hex[SL__SHA256_HEX];
	if (len < CHECK_BYTES)
		return false;
	const char *at = text + len - CHECK_BYTES;
	return hash_checked_text(text, len - CHECK_BYTES, hex, NULL) == 0 &&
	       memcmp(at, CHECK_FRONT, CHECK_FRONT_BYTES) == 0 && memcmp(at + CHECK_FRONT_BYTES, hex, 64) == 0 &&
	       memcmp(text + len - CHECK_END_BYTES, CHECK_END, CHECK_END_BYTES) == 0;
}
