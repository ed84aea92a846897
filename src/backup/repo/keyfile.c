/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys/<id>: the master key, wrapped. One line of JSON that has exactly one form:
 *
 *   {"version":1,"kdf":"argon2id","passes":3,"memory_bytes":48234496,"salt":"<32 hex>","wrapped":"<144 hex>",
 *    "check":"<64 hex>"}
 *
 * without the break. "wrapped" is the master key sealed (kind key) by what Argon2id makes of passphrase and salt;
 * "check" (crypt.c) distinguishes damage from a wrong passphrase, without the work of Argon2id.
 */
#include <errno.h>
#include <jansson.h>
#include <sodium.h>

#include "backup/repo/crypt.h"
#include "backup/repo/keyring.h"

#define SALT_BYTES crypto_pwhash_argon2id_SALTBYTES
#define WRAPPED_BYTES (32 + BK_SEAL_ENCRYPTED)
#define KEY_JSON_MAX 1024u

_Static_assert(SALT_BYTES == 16, "as documented");

struct wrapped {
	uint64_t passes, memory_bytes;
	uint8_t salt[SALT_BYTES], sealed[WRAPPED_BYTES];
};

/* The keys that wrap: the repository's id, and the data key derived from the passphrase. */
static int derive_kek(const struct bk_keys *keys, const struct wrapped *w, const struct bk_passphrase *p,
		      struct bk_keys *kek, struct sl_err *err)
{
	memset(kek, 0, sizeof(*kek));
	memcpy(kek->repository, keys->repository, sizeof(kek->repository));
	kek->encrypted = true;
	if (sodium_init() < 0)
		return sl_err_set(err, SL_EINTERNAL, "libsodium failed to start");
	if (crypto_pwhash_argon2id(kek->data, sizeof(kek->data), p->len != 0 ? p->bytes : "", p->len, w->salt,
				   w->passes, (size_t)w->memory_bytes, crypto_pwhash_argon2id_ALG_ARGON2ID13) == 0)
		return 0;
	return sl_err_set(err, SL_ENOMEM, "Argon2id: no %llu MiB of memory for the repository's key",
			  (unsigned long long)w->memory_bytes >> 20);
}

static int format_key(const struct sl_env *env, const struct wrapped *w, char **text, struct sl_err *err)
{
	char salt[2 * SALT_BYTES + 1], sealed[2 * WRAPPED_BYTES + 1];
	sl__bk_hex(w->salt, sizeof(w->salt), salt);
	sl__bk_hex(w->sealed, sizeof(w->sealed), sealed);
	char *body = sl__asprintf(env,
				  "{\"version\":%d,\"kdf\":\"argon2id\",\"passes\":%llu,\"memory_bytes\":%llu,"
				  "\"salt\":\"%s\",\"wrapped\":\"%s\"",
				  BK_VERSION, (unsigned long long)w->passes, (unsigned long long)w->memory_bytes, salt,
				  sealed);
	if (body == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for the JSON of a key");
	int rc = sl__bk_checked_text(env, body, text, err);
	sl__free(env, body);
	return rc;
}

int sl__bk_key_wrap(const struct sl_env *env, const struct bk_keys *keys, const struct bk_passphrase *p, char **json,
		    struct sl_err *err)
{
	struct wrapped w = {.passes = BK_KDF_PASSES, .memory_bytes = BK_KDF_MEMORY};
	struct bk_keys kek;
	int rc = env->rand->fill(w.salt, sizeof(w.salt), env->rand_ctx);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "draw a random salt");
	rc = derive_kek(keys, &w, p, &kek, err);
	if (rc == 0)
		rc = sl__bk_seal(&(struct bk_seal){.env = env, .keys = &kek, .kind = BK_KIND_KEY}, keys->master,
				 sizeof(keys->master), w.sealed, err);
	sl__bk_keys_wipe(&kek);
	if (rc != 0)
		return rc;
	return format_key(env, &w, json, err);
}

static int key_damaged(struct sl_err *err, const char *why)
{
	return sl_err_set(err, SL_ECORRUPT, "the repository's key is damaged: %s", why);
}

/* What parses must also be what format_key would write: nothing else, in no other form. */
static int parse_key(const struct sl_env *env, const char *json, size_t len, struct wrapped *w, struct sl_err *err)
{
	if (len > KEY_JSON_MAX || !sl__bk_text_is_checked(json, len))
		return key_damaged(err, "its checksum does not match");
	json_t *o = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
	bool later = json_integer_value(json_object_get(o, "version")) > BK_VERSION;
	const json_t *passes = json_object_get(o, "passes"), *memory = json_object_get(o, "memory_bytes");
	const char *salt = json_string_value(json_object_get(o, "salt"));
	const char *sealed = json_string_value(json_object_get(o, "wrapped"));
	bool good = !later && json_is_integer(passes) && json_is_integer(memory) && salt != NULL && sealed != NULL;
	if (good) {
		w->passes = (uint64_t)json_integer_value(passes);
		w->memory_bytes = (uint64_t)json_integer_value(memory);
		good = sl__bk_unhex(salt, w->salt, sizeof(w->salt)) &&
		       sl__bk_unhex(sealed, w->sealed, sizeof(w->sealed));
	}
	json_decref(o);
	if (later)
		return sl_err_set(err, SL_EUNSUPPORTED, "the repository's key is of a later version: upgrade");
	if (!good)
		return key_damaged(err, "not the JSON of a key");
	char *text = NULL;
	int rc = format_key(env, w, &text, err);
	if (rc != 0)
		return rc;
	good = strlen(text) == len && memcmp(text, json, len) == 0;
	sl__free(env, text);
	if (!good)
		return key_damaged(err, "not the JSON of a key");
	if (w->passes < crypto_pwhash_argon2id_OPSLIMIT_MIN || w->passes > BK_KDF_PASSES_MAX ||
	    w->memory_bytes < crypto_pwhash_argon2id_MEMLIMIT_MIN || w->memory_bytes > BK_KDF_MEMORY_MAX)
		return key_damaged(err, "it asks for more than 64 passes or 1 GiB of memory, or for none");
	return 0;
}

int sl__bk_is_key(struct sl_backup *b, const char *text, size_t len, struct sl_err *err)
{
	struct wrapped w;
	return parse_key(&b->env, text, len, &w, err);
}

int sl__bk_key_unwrap(const struct sl_env *env, struct bk_keys *keys, struct bk_bytes json,
		      const struct bk_passphrase *p, struct sl_err *err)
{
	struct wrapped w;
	struct bk_keys kek;
	uint8_t *master;
	size_t sealed_len = sizeof(w.sealed);
	int rc = parse_key(env, json.at, json.len, &w, err);
	if (rc != 0)
		return rc;
	rc = derive_kek(keys, &w, p, &kek, err);
	if (rc != 0)
		return rc;
	if (sl__bk_unseal(&(struct bk_seal){.keys = &kek, .kind = BK_KIND_KEY}, w.sealed, &sealed_len, &master, NULL) !=
	    0)
		rc = sl_err_set(err, SL_EKEY, "the passphrase does not open the repository's key");
	sl__bk_keys_wipe(&kek);
	if (rc != 0)
		return rc;
	struct bk_keys opened = {.encrypted = true};
	memcpy(opened.repository, keys->repository, sizeof(opened.repository));
	memcpy(opened.master, master, sizeof(opened.master));
	sodium_memzero(w.sealed, sizeof(w.sealed));
	rc = sl__bk_keys_derive(&opened, err);
	if (rc == 0)
		*keys = opened;
	sl__bk_keys_wipe(&opened);
	return rc;
}
