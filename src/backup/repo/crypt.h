/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids, seals and keys of a repository.
 *
 * A master key (32 random bytes) is wrapped by a key that Argon2id makes of the passphrase; from it libsodium's
 * crypto_kdf derives the data key (seals), the id key (block ids) and the gear key (chunker). A plain repository has
 * none of them: ids are SHA-256, seals are checksums, the gear table comes of a fixed seed.
 *
 * Thread safety: a struct bk_keys is read-only after setup; a struct bk_hasher belongs to one thread.
 */
#ifndef SL_BACKUP_CRYPT_H
#define SL_BACKUP_CRYPT_H

#include "backup/repo/format.h"
#include "base/base64.h"

#define BK_SEAL_ENCRYPTED 40u /* what sealing adds: 24 nonce, 16 tag */
#define BK_SEAL_PLAIN 8u      /* CRC-64/NVME */
#define BK_SEAL_MAX 40u
#define BK_AAD_MAX 128u /* bytes that a caller may bind in */

#define BK_KDF_PASSES 3u
#define BK_KDF_MEMORY (46u << 20)
#define BK_KDF_PASSES_MAX 64u
#define BK_KDF_MEMORY_MAX (1u << 30)

struct bk_bytes {
	const void *at;
	size_t len;
};

struct bk_keys {
	uint8_t repository[BK_NAME_BYTES];
	bool encrypted;
	uint8_t master[32], data[32], id[32], gear[32]; /* zero in a plain repository */
};

/* Derive the others from master; a plain repository needs only `repository`. */
SL_MUST_CHECK int sl__bk_keys_derive(struct bk_keys *keys, struct sl_err *err);
void sl__bk_keys_wipe(struct bk_keys *keys);

/* The JSON of keys/<id>: the master key wrapped by the passphrase. Argon2id with 46 MiB and 3 passes. The repository's
 * id is bound in. unwrap needs keys->repository and fills and derives the rest. SL_EKEY: the passphrase is wrong, or
 * the key is another repository's; SL_ECORRUPT: the JSON is damaged, or asks for more than 1 GiB or 64 passes;
 * SL_EUNSUPPORTED: of a later version. */
struct bk_passphrase {
	const void *bytes;
	size_t len;
};
SL_MUST_CHECK int sl__bk_key_wrap(const struct sl_env *env, const struct bk_keys *keys, const struct bk_passphrase *p,
				  char **json, struct sl_err *err); /* free with sl__free */
SL_MUST_CHECK int sl__bk_key_unwrap(const struct sl_env *env, struct bk_keys *keys, struct bk_bytes json,
				    const struct bk_passphrase *p, struct sl_err *err);

/* body is a JSON object without its closing brace; *text (sl__free) has a last member "check" after it. */
SL_MUST_CHECK int sl__bk_checked_text(const struct sl_env *env, const char *body, char **text, struct sl_err *err);
/* Whether nothing has changed since. */
bool sl__bk_text_is_checked(const char *text, size_t len);

static inline size_t sl__bk_seal_bytes(const struct bk_keys *keys)
{
	return keys->encrypted ? BK_SEAL_ENCRYPTED : BK_SEAL_PLAIN;
}
/* Where the bytes are in what is sealed. */
static inline size_t sl__bk_seal_front(const struct bk_keys *keys)
{
	return keys->encrypted ? 24u : BK_SEAL_PLAIN;
}
/* What bytes are sealed with. */
struct bk_seal {
	const struct sl_env *env; /* for the nonce; not needed to open */
	const struct bk_keys *keys;
	enum bk_kind kind;
	const void *aad; /* bound in besides kind and repository; at most BK_AAD_MAX bytes, may be NULL */
	size_t aad_len;
};
/* out has room for len + sl__bk_seal_bytes. The bytes may already be at out + sl__bk_seal_front: then they are sealed in
 * place. */
SL_MUST_CHECK int sl__bk_seal(const struct bk_seal *as, const void *bytes, size_t len, uint8_t *out,
			      struct sl_err *err);
/* Opens *len sealed bytes in place: *bytes, *len of them, is what was sealed. SL_ECORRUPT: damaged, forged or of another
 * kind; sealed must not be used then. */
SL_MUST_CHECK int sl__bk_unseal(const struct bk_seal *as, uint8_t *sealed, size_t *len, uint8_t **bytes,
				struct sl_err *err);

/* Block ids, with what is costly to set up made once. */
struct bk_hasher;
SL_MUST_CHECK int sl__bk_hasher_new(struct bk_hasher **out, const struct sl_env *env, const struct bk_keys *keys,
				    struct sl_err *err);
void sl__bk_hasher_free(struct bk_hasher *h); /* NULL is allowed */
SL_MUST_CHECK int sl__bk_hash(struct bk_hasher *h, const void *bytes, size_t len, struct bk_id *out,
			      struct sl_err *err);

void sl__bk_hex(const void *bytes, size_t n, char *out); /* 2n characters and a NUL, lower case */
/* Exactly 2n characters; false when text is anything else. */
static inline bool sl__bk_unhex(const char *text, void *out, size_t n)
{
	return sl__unhex(text, strnlen(text, 2 * n + 1), out, n);
}

#endif
