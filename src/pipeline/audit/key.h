/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys that sign heads (Ed25519). A secret key is never in an error, a log record or an argument; it is wiped from
 * memory when it is dropped.
 *
 * Thread safety: no state. Ownership: a key that was loaded is dropped.
 */
#ifndef SL_PIPELINE_AUDIT_KEY_H
#define SL_PIPELINE_AUDIT_KEY_H

#include "base/env.h"
#include <sluice/audit.h>

struct sl__audit_key {
	uint8_t secret[64];
	uint8_t public_key[SL_AUDIT_PUBLIC_KEY_BYTES];
};
/* The file must be regular, no link, and closed to others (mode & 077). SL_EKEY says what is wrong. */
SL_MUST_CHECK int sl__audit_key_load(struct sl__audit_key *key, const struct sl_env *env, const char *path,
				     struct sl_err *err);
void sl__audit_key_drop(struct sl__audit_key *key);

/* The 32 bytes of a key file's text: "sluice-ed25519-secret:" or "-public:", 64 hexadecimal digits, a line end or not.
 */
SL_MUST_CHECK bool sl__audit_key_parse(const char *text, size_t len, bool secret, uint8_t out[32]);

#endif
