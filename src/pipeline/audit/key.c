/* SPDX-License-Identifier: Apache-2.0 */
/* Key files: loaded, checked for permissions, and generated. */
#include "pipeline/audit/key.h"
#include "base/base64.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/stat.h>

#include "pipeline/audit/event.h"

#define SECRET_PREFIX "sluice-ed25519-secret:"
#define PUBLIC_PREFIX "sluice-ed25519-public:"
#define TEXT_BYTES 128 /* a key file has fewer */

_Static_assert(crypto_sign_SECRETKEYBYTES == sizeof((struct sl__audit_key *)0)->secret, "a secret key");
_Static_assert(crypto_sign_PUBLICKEYBYTES == SL_AUDIT_PUBLIC_KEY_BYTES, "a public key");
_Static_assert(crypto_sign_BYTES == SL_AUDIT_SIGNATURE_BYTES, "a signature");
_Static_assert(crypto_sign_SEEDBYTES == 32, "a seed");

static int bad_audit_key(struct sl_err *err, const char *path, const char *why)
{
	return sl_err_set(err, SL_EKEY, "key file %.160s: %s", path, why);
}

bool sl__audit_key_parse(const char *text, size_t len, bool secret, uint8_t out[32])
{
	const char *prefix = secret ? SECRET_PREFIX : PUBLIC_PREFIX;
	size_t n = strlen(prefix);
	if (len > 0 && text[len - 1] == '\n')
		len--;
	return len > n && memcmp(text, prefix, n) == 0 && sl__unhex(text + n, len - n, out, 32);
}

static int load_audit_key(const struct sl_env *env, const char *path, bool secret, uint8_t out[32], struct sl_err *err)
{
	struct sl_io_stat st;
	char text[TEXT_BYTES];
	if (sodium_init() < 0)
		return sl_err_set(err, SL_EINTERNAL, "libsodium failed to start");
	/* Without O_NONBLOCK a pipe of that name would hold us up. */
	int fd = SL__IO(env, open, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | (secret ? O_NOFOLLOW : 0), 0);
	if (fd == -ENOENT || fd == -ENOTDIR)
		return bad_audit_key(err, path, "does not exist");
	if (fd == -ELOOP)
		return bad_audit_key(err, path, "is a symbolic link; give the file that it points to");
	if (fd == -EACCES || fd == -EPERM)
		return bad_audit_key(err, path, "no permission to read it");
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "key file %.160s: open", path);
	int rc = SL__IO(env, fstat, fd, &st);
	if (rc < 0) {
		rc = sl_err_set_errno(err, -rc, "key file %.160s: stat", path);
	} else if (!S_ISREG(st.mode)) {
		rc = bad_audit_key(err, path, "is not a regular file");
	} else if (secret && (st.mode & 077) != 0) {
		rc = bad_audit_key(err, path, "is readable by other users; run chmod 600 on it");
	} else {
		ssize_t n = sl__pread_full(env, fd, text, sizeof(text), 0);
		if (n < 0)
			rc = sl_err_set_errno(err, (int)-n, "key file %.160s: read", path);
		else if (!sl__audit_key_parse(text, (size_t)n, secret, out))
			rc = bad_audit_key(err, path,
					   secret ? "is not a secret key of 'sluice audit keygen'"
						  : "is not a public key of 'sluice audit keygen'");
		sodium_memzero(text, sizeof(text));
	}
	sl__close_fd(env, &fd);
	return rc;
}

int sl__audit_key_load(struct sl__audit_key *key, const struct sl_env *env, const char *path, struct sl_err *err)
{
	uint8_t seed[32];
	memset(key, 0, sizeof(*key));
	int rc = load_audit_key(env, path, true, seed, err);
	if (rc == 0)
		(void)crypto_sign_seed_keypair(key->public_key, key->secret, seed);
	sodium_memzero(seed, sizeof(seed));
	return rc;
}

void sl__audit_key_drop(struct sl__audit_key *key)
{
	sodium_memzero(key, sizeof(*key));
}

int sl_audit_public_key_load(const char *path, const struct sl_env *env, uint8_t out[SL_AUDIT_PUBLIC_KEY_BYTES],
			     struct sl_err *err)
{
	struct sl_env full;
	int rc = sl__env_init(&full, env, err);
	if (rc != 0)
		return rc;
	return load_audit_key(&full, path, false, out, err);
}

/* ---- making ---- */

static int put_key_file(const struct sl_env *env, const char *path, mode_t mode, const char *text, struct sl_err *err)
{
	int fd = SL__IO(env, open, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
	/* A folder that is not there or does not let us in: another name is needed, not another try. */
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -EACCES || fd == -EPERM || fd == -EROFS || fd == -ENAMETOOLONG)
		return sl_err_set(err, SL_ECREATE, "key file %.160s: create: %s", path, strerror(-fd));
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "key file %.160s: create", path);
	int rc = sl__pwrite_full(env, fd, text, strlen(text), 0);
	if (rc == 0)
		rc = SL__IO(env, sync, fd);
	(void)SL__IO(env, close, fd);
	if (rc == 0)
		return 0;
	(void)SL__IO(env, unlink, path);
	return sl_err_set_errno(err, -rc, "key file %.160s: write", path);
}

/* Both files, durably, or neither. */
static int put_key_files(const struct sl_env *env, const char *path, const uint8_t seed[32], const uint8_t *public_key,
			 struct sl_err *err)
{
	char text[TEXT_BYTES], hex[65];
	char *public_path = sl__asprintf(env, "%s.pub", path), *dir = sl__dirname(env, path);
	int rc = public_path == NULL || dir == NULL ? sl_err_set(err, SL_ENOMEM, "out of memory for a key") : 0;
	if (rc != 0)
		goto out;
	sodium_bin2hex(hex, sizeof(hex), seed, 32);
	(void)snprintf(text, sizeof(text), SECRET_PREFIX "%s\n", hex);
	rc = put_key_file(env, path, 0600, text, err);
	sodium_memzero(hex, sizeof(hex));
	sodium_memzero(text, sizeof(text));
	if (rc != 0)
		goto out;
	sodium_bin2hex(hex, sizeof(hex), public_key, 32);
	(void)snprintf(text, sizeof(text), PUBLIC_PREFIX "%s\n", hex);
	if ((rc = put_key_file(env, public_path, 0644, text, err)) == 0) {
		int synced = sl__sync_dir(env, dir);
		if (synced != 0) {
			rc = sl_err_set_errno(err, -synced, "key file %.160s: sync its folder", path);
			(void)SL__IO(env, unlink, public_path);
		}
	}
	if (rc != 0)
		(void)SL__IO(env, unlink, path);
out:
	sl__free(env, public_path);
	sl__free(env, dir);
	return rc;
}

int sl_audit_keygen(const char *path, const struct sl_env *env, uint8_t public_key[SL_AUDIT_PUBLIC_KEY_BYTES],
		    struct sl_err *err)
{
	struct sl_env full;
	struct sl__audit_key key;
	uint8_t seed[32];
	int rc = sl__env_init(&full, env, err);
	if (rc != 0)
		return rc;
	if (sodium_init() < 0)
		return sl_err_set(err, SL_EINTERNAL, "libsodium failed to start");
	rc = full.rand->fill(seed, sizeof(seed), full.rand_ctx);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "random bytes for a key");
	(void)crypto_sign_seed_keypair(key.public_key, key.secret, seed);
	rc = put_key_files(&full, path, seed, key.public_key, err);
	if (rc == 0)
		memcpy(public_key, key.public_key, sizeof(key.public_key));
	sodium_memzero(seed, sizeof(seed));
	sl__audit_key_drop(&key);
	return rc;
}
