/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealing payloads at rest (format version 2): XChaCha20-Poly1305 with a random 24-byte nonce per record. A data
 * record's payload is nonce | ciphertext | 16-byte tag; the associated data are stream id, incarnation, sequence and
 * timestamp, so that a record can be neither moved nor passed off as another. Status records are not sealed.
 *
 * Thread safety: a key is read-only after load. Ownership: sl__wal_key_free wipes it.
 */
#ifndef SL_WAL_CRYPT_H
#define SL_WAL_CRYPT_H

#include "base/env.h"
#include <sluice/wal.h>

#define WAL_SEAL_BYTES 40u /* what sealing adds to a payload */

struct wal_key;

/* 32 raw bytes, or 64 hexadecimal characters with an optional newline; the file must not be readable by others (mode
 * & 077) and not a link. SL_EKEY says what is wrong, never the key. */
SL_MUST_CHECK int sl__wal_key_load(struct wal_key **out, const struct sl_env *env, const char *path,
				   struct sl_err *err);
void sl__wal_key_free(struct wal_key *key);

struct wal_seal_ctx {
	const char *stream;
	uint32_t incarnation;
	uint64_t sequence;
	int64_t timestamp_ms;
};
#define WAL_NONCE_BYTES 24u
/* A random nonce; drawn before a place in the log is taken, so that sealing itself cannot fail. 0 or a negative errno.
 */
SL_MUST_CHECK int sl__wal_draw_nonce(const struct sl_env *env, uint8_t nonce[WAL_NONCE_BYTES]);
/* out has room for payload->len + WAL_SEAL_BYTES: nonce, ciphertext, tag. */
void sl__wal_seal_payload(const struct wal_key *key, const struct wal_seal_ctx *at,
			  const uint8_t nonce[WAL_NONCE_BYTES], const struct sl_wal_span *payload, uint8_t *out);
/* Open in place or elsewhere: out has room for len - WAL_SEAL_BYTES (out may be sealed + 24 only when equal memory is
 * meant; otherwise no overlap). SL_EKEY: wrong key or tampered. */
SL_MUST_CHECK int sl__wal_open_payload(const struct wal_key *key, const struct wal_seal_ctx *at, uint8_t *out,
				       const uint8_t *sealed, size_t len);

#endif
