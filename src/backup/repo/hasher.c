/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block ids (F1). Looking an algorithm up and keying an HMAC cost more than hashing a small file, so both are done
 * once per hasher.
 */
#include <openssl/evp.h>
#include <openssl/params.h>

#include "backup/repo/crypt.h"

struct bk_hasher {
	struct sl_env env;
	EVP_MD *md;        /* plain: SHA-256 */
	EVP_MD_CTX *plain; /* NULL in an encrypted repository */
	EVP_MAC *hmac;
	EVP_MAC_CTX *keyed; /* NULL in a plain repository */
};

static int refused(struct sl_err *err)
{
	return sl_err_set(err, SL_EINTERNAL, "libcrypto refused to compute a block's id");
}

static int set_up_plain(struct bk_hasher *h, struct sl_err *err)
{
	h->md = EVP_MD_fetch(NULL, "SHA2-256", NULL);
	h->plain = EVP_MD_CTX_new();
	return h->md != NULL && h->plain != NULL ? 0 : refused(err);
}

static int set_up_keyed(struct bk_hasher *h, const struct bk_keys *keys, struct sl_err *err)
{
	char digest[] = "SHA2-256";
	const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0), OSSL_PARAM_construct_end()};

	h->hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	h->keyed = h->hmac != NULL ? EVP_MAC_CTX_new(h->hmac) : NULL;
	if (h->keyed == NULL || EVP_MAC_init(h->keyed, keys->id, sizeof(keys->id), params) != 1)
		return refused(err);
	return 0;
}

int sl__bk_hasher_new(struct bk_hasher **out, const struct sl_env *env, const struct bk_keys *keys, struct sl_err *err)
{
	struct bk_hasher *h = sl__calloc(env, 1, sizeof(*h));
	if (h == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for the hasher of blocks");
	h->env = *env;
	int rc = keys->encrypted ? set_up_keyed(h, keys, err) : set_up_plain(h, err);
	if (rc != 0) {
		sl__bk_hasher_free(h);
		return rc;
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
		return refused(err);
	*out = id;
	return 0;
}
