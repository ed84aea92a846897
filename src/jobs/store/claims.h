/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a store keeps of a claim after its lease is gone: a hash, so that who reads the tables cannot pass for the
 * worker. The first eight bytes of the SHA-256 of the claim id, big-endian and signed, as PostgreSQL's
 * sha256(uuid_send(claim)) gives them too.
 */
#ifndef SL_JOBS_STORE_CLAIMS_H
#define SL_JOBS_STORE_CLAIMS_H

#include "jobs/store/ops.h"

/* Settles come in batches of few claims: the last one is remembered. Zero-initialise. */
struct sl__claim_hash {
	struct sl_claim_id claim;
	int64_t hash;
	bool known;
};

/* How an event's claim relates to its job. */
enum sl__claim_standing {
	SL__CLAIM_NO_JOB = 0, /* there is no such job */
	SL__CLAIM_FORGED = 1, /* this attempt of the job never had this claim */
	SL__CLAIM_OLD = 2,    /* genuine; a later attempt has begun, or another one completed the job */
	SL__CLAIM_LATEST = 3  /* genuine, and of the attempt that runs, or of the last one there was */
};

SL_MUST_CHECK int sl__claim_hash(struct sl__claim_hash *cache, const struct sl_claim_id *claim, int64_t *out,
				 struct sl_err *err);

#endif
