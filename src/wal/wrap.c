/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys that are kept next to an encrypted log, sealed with the log's own: nonce 24 | ciphertext 32 | tag 16. They are
 * sealed as a payload of the sequence 0, which no record has, of incarnation 0: a log that is made again under its name
 * opens them.
 */
#include "wal/crypt.h"
#include "wal/handle.h"
#include <sluice/wal_files.h>

_Static_assert(SL_WAL_SEALED_KEY_BYTES == SL_WAL_KEY_BYTES + WAL_SEAL_BYTES, "a sealed key");

static int check_has_key(const sl_wal *w, struct sl_err *err)
{
	return w->key != NULL ? 0 : sl_err_set(err, SL_ENOENT, "%s: the log has no key", w->path);
}

int sl_wal_seal_key(const sl_wal *w, const uint8_t key[SL_WAL_KEY_BYTES], uint8_t sealed[SL_WAL_SEALED_KEY_BYTES],
		    struct sl_err *err)
{
	const struct wal_seal_ctx at = {.stream = w->id};
	const struct sl_wal_span payload = {key, SL_WAL_KEY_BYTES};
	uint8_t nonce[WAL_NONCE_BYTES];
	int rc = check_has_key(w, err);
	if (rc != 0)
		return rc;
	rc = sl__wal_draw_nonce(&w->env, nonce);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "%s: draw a nonce", w->path);
	sl__wal_seal_payload(w->key, &at, nonce, &payload, sealed);
	return 0;
}

int sl_wal_open_key(const sl_wal *w, const uint8_t sealed[SL_WAL_SEALED_KEY_BYTES], uint8_t key[SL_WAL_KEY_BYTES],
		    struct sl_err *err)
{
	const struct wal_seal_ctx at = {.stream = w->id};
	int rc = check_has_key(w, err);
	if (rc != 0)
		return rc;
	rc = sl__wal_open_payload(w->key, &at, key, sealed, SL_WAL_SEALED_KEY_BYTES);
	if (rc != 0)
		return sl_err_set(err, rc, "%s: this key was sealed with another one, or changed", w->path);
	return 0;
}
