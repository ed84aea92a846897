/* SPDX-License-Identifier: Apache-2.0 */
/* The hash by which stores remember which claim an attempt had. */
#include "jobs/store/claims.h"

#include <string.h>

#include "base/sha256.h"

int sl__claim_hash(struct sl__claim_hash *cache, const struct sl_claim_id *claim, int64_t *out, struct sl_err *err)
{
	uint8_t digest[SL__SHA256_BYTES];
	if (!cache->known || memcmp(&cache->claim, claim, sizeof(*claim)) != 0) {
		int rc = sl__sha256(claim->bytes, sizeof(claim->bytes), digest, err);
		if (rc != 0)
			return rc;
		uint64_t hash = 0;
		for (size_t i = 0; i < 8; i++)
			hash = hash << 8 | digest[i];
		*cache = (struct sl__claim_hash){.claim = *claim, .hash = (int64_t)hash, .known = true};
	}
	*out = cache->hash;
	return 0;
}
