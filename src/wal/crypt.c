/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sealed payload (docs/formats/wal.md):
 *
 *   nonce 24 | ciphertext as long as the payload | tag 16
 *
 * The associated data are the bytes of the stream's id, then incarnation u32, sequence u64 and timestamp i64, little-
 * endian. The numbers have a fixed size and come last, so that no two places have the same associated data. Nonces are
 * random: with 192 bits of them one key serves any number of records.
 */
#include "wal/crypt.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define TAG_BYTES crypto_aead_xchacha20poly1305_ietf_ABYTES
#define KEY_BYTES crypto_aead_xchacha20poly1305_ietf_KEYBYTES
#define KEY_TEXT_MAX (2 * KEY_BYTES + 2) /* hexadecimal, with a newline of either kind */
#define ID_MAX 255u                      /* a file name */

_Static_assert(WAL_NONCE_BYTES == crypto_aead_xchacha20poly1305_ietf_NPUBBYTES, "a nonce");
_Static_assert(WAL_NONCE_BYTES + TAG_BYTES == WAL_SEAL_BYTES, "what sealing adds");

struct wal_key {
	struct sl_env env; /* for reading the file */
	uint8_t bytes[KEY_BYTES];
};

static int bad_key(struct sl_err *err, const char *path, const char *why)
{
	return sl_err_set(err, SL_EKEY, "key file %s: %s", path, why);
}

/* Exactly 32 bytes, or 64 hexadecimal digits with at most one newline. */
static bool parse_wal_key(uint8_t out[KEY_BYTES], const uint8_t *text, size_t n)
{
	if (n == KEY_BYTES) {
		memcpy(out, text, KEY_BYTES);
		return true;
	}
	if (n > 0 && text[n - 1] == '\n')
		n--;
	if (n > 0 && text[n - 1] == '\r')
		n--;
	size_t len = 0;
	return n == 2 * KEY_BYTES && sodium_hex2bin(out, KEY_BYTES, (const char *)text, n, NULL, &len, NULL) == 0 &&
	       len == KEY_BYTES;
}

static int read_key(struct wal_key *key, int fd, const char *path, struct sl_err *err)
{
	struct sl_io_stat st;
	int rc = SL__IO(&key->env, fstat, fd, &st);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "key file %s: stat", path);
	if (!S_ISREG(st.mode))
		return bad_key(err, path, "is not a regular file");
	if ((st.mode & 077) != 0)
		return bad_key(err, path, "is readable by other users; run chmod 600 on it");
	uint8_t text[KEY_TEXT_MAX + 1];
	ssize_t got = sl__pread_full(&key->env, fd, text, sizeof(text), 0);
	if (got < 0)
		rc = sl_err_set_errno(err, (int)-got, "key file %s: read", path);
	else if (!parse_wal_key(key->bytes, text, (size_t)got))
		rc = bad_key(err, path, "does not hold 32 raw bytes or 64 hexadecimal digits");
	sodium_memzero(text, sizeof(text));
	return rc;
}

int sl__wal_key_load(struct wal_key **out, const struct sl_env *env, const char *path, struct sl_err *err)
{
	if (sodium_init() < 0)
		return sl_err_set(err, SL_EINTERNAL, "libsodium failed to start");
	/* A separate page, which forked children get as zeros and core dumps leave out: the process that starts the
	 * commands of a worker is such a child. */
	struct wal_key *key = mmap(NULL, sizeof(*key), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (key == MAP_FAILED)
		return sl_err_set(err, SL_ENOMEM, "key file %s: out of memory", path);
	(void)madvise(key, sizeof(*key), MADV_WIPEONFORK);
	(void)madvise(key, sizeof(*key), MADV_DONTDUMP);
	key->env = *env;
	/* Without O_NONBLOCK a pipe of that name would hold us up. */
	int fd = SL__IO(env, open, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	int rc;
	switch (fd) {
	/* A key file that is missing or not ours to read is a wrong key; a failing disk or process is not. */
	case -ENOENT:
	case -ENOTDIR:
		rc = bad_key(err, path, "does not exist");
		break;
	case -ELOOP:
		rc = bad_key(err, path, "is a symbolic link; give the file that it points to");
		break;
	case -EACCES:
	case -EPERM:
		rc = bad_key(err, path, "no permission to read it");
		break;
	default:
		rc = fd < 0 ? sl_err_set_errno(err, -fd, "key file %s: open", path) : read_key(key, fd, path, err);
	}
	if (fd >= 0)
		(void)SL__IO(env, close, fd);
	if (rc != 0) {
		sl__wal_key_free(key);
		return rc;
	}
	*out = key;
	return 0;
}

void sl__wal_key_free(struct wal_key *key)
{
	if (key == NULL)
		return;
	sodium_memzero(key, sizeof(*key));
	(void)munmap(key, sizeof(*key));
}

struct associated {
	uint8_t data[ID_MAX + 20];
	size_t len;
};

static void associate(struct associated *ad, const struct wal_seal_ctx *at)
{
	size_t n = strlen(at->stream);
	assert(n <= ID_MAX);
	n = SL_MIN(n, (size_t)ID_MAX);
	memcpy(ad->data, at->stream, n);
	sl__put32(ad->data + n, at->incarnation);
	sl__put64(ad->data + n + 4, at->sequence);
	sl__put64(ad->data + n + 12, (uint64_t)at->timestamp_ms);
	ad->len = n + 20;
}

int sl__wal_draw_nonce(const struct sl_env *env, uint8_t nonce[WAL_NONCE_BYTES])
{
	return env->rand->fill(nonce, WAL_NONCE_BYTES, env->rand_ctx);
}

void sl__wal_seal_payload(const struct wal_key *key, const struct wal_seal_ctx *at,
			  const uint8_t nonce[WAL_NONCE_BYTES], const struct sl_wal_span *payload, uint8_t *out)
{
	struct associated ad;
	associate(&ad, at);
	memcpy(out, nonce, WAL_NONCE_BYTES);
	/* Encryption cannot fail. A payload of no bytes may be NULL. */
	(void)crypto_aead_xchacha20poly1305_ietf_encrypt(out + WAL_NONCE_BYTES, NULL,
							 payload->len != 0 ? payload->data : out, payload->len, ad.data,
							 ad.len, NULL, nonce, key->bytes);
}

int sl__wal_open_payload(const struct wal_key *key, const struct wal_seal_ctx *at, uint8_t *out, const uint8_t *sealed,
			 size_t len)
{
	if (len < WAL_SEAL_BYTES)
		return SL_EKEY;
	struct associated ad;
	associate(&ad, at);
	/* A room of no bytes may be NULL; libsodium then only checks the tag, which is all there is to do. */
	if (crypto_aead_xchacha20poly1305_ietf_decrypt(len > WAL_SEAL_BYTES ? out : NULL, NULL, NULL,
						       sealed + WAL_NONCE_BYTES, len - WAL_NONCE_BYTES, ad.data, ad.len,
						       sealed, key->bytes) != 0)
		return SL_EKEY;
	return 0;
}
