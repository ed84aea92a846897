/* SPDX-License-Identifier: Apache-2.0 */
/* Starting chains: keys, then jobs. */
#include "jobs/store/sqlite/store.h"

#define BULK_MIN 16

/* 1: the key is taken, and *out says by which chain. */
static int find_key(struct sq_op *op, const struct sl_new_chain *chain, struct sl_started *out)
{
	sqlite3_stmt *s;
	int rc = SQ_ROW(op, SQ_KEY_GET, &s, SQ_TEXT(chain->key), SQ_INT(op->now_us));
	if (rc <= 0)
		return rc;
	*out = (struct sl_started){.chain_id = sl__sqlite_u64(s, 0), .deduplicated = 1};
	(void)sqlite3_reset(s);
	return 1;
}

static int put_key(struct sq_op *op, const struct sl_new_chain *chain, uint64_t id)
{
	int64_t until_us = chain->window_ms > 0 ? op->now_us + sq_us(chain->window_ms) : 0;
	return SQ_RUN(op, SQ_KEY_PUT, SQ_TEXT(chain->key), SQ_INT(id), SQ_INT(chain->scope), SQ_INT_OR_NULL(until_us));
}

int sl__sq_start_one(struct sq_op *op, const struct sl_new_chain *chain, uint64_t id, struct sl_started *out)
{
	int rc = chain->key != NULL ? find_key(op, chain, out) : 0;
	if (rc != 0)
		return rc < 0 ? rc : 0;
	rc = sl__sq_insert_job(op, id, id, 0, chain->key, &chain->job);
	if (rc == 0 && chain->key != NULL)
		rc = put_key(op, chain, id);
	if (rc == 0)
		*out = (struct sl_started){.chain_id = id};
	return rc;
}

int sl__sq_start(void *store, sl_store_tx *tx, const struct sl_new_chain *chains, size_t n, struct sl_started *out,
		 const struct sl_store_listen *listen, struct sl_err *err)
{
	struct sq_op op;
	uint64_t first = 0;
	if (n == 0)
		return 0;
	int rc = sl__sq_begin(&op, store, tx, SQ_DURABLE, listen, err);
	if (rc != 0)
		return rc;
	/* One statement that fills the queue from the new rows costs a third of one per job. */
	op.defer_ready = n >= BULK_MIN;
	/* A key that is taken leaves a hole in the ids, nothing more. */
	rc = sl__sq_new_ids(&op, n, &first);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = sl__sq_start_one(&op, &chains[i], first + i, &out[i]);
	if (rc == 0 && op.defer_ready)
		rc = SQ_RUN(&op, SQ_READY_PUT_NEW, SQ_INT(first), SQ_INT(first + n), SQ_INT(op.now_us));
	return sl__sq_end(&op, rc);
}
