/* SPDX-License-Identifier: Apache-2.0 */
/* Starting chains: keys, then jobs. */
#include "jobs/store/sqlite/store.h"

#define BULK_MIN 16

int sl__sq_start_one(struct sq_op *op, const struct sl_new_chain *chain, uint64_t id, struct sl_started *out)
{
	sqlite3_stmt *s;
	int rc = chain->key != NULL ? SQ_ROW(op, SQ_KEY_GET, &s, SQ_TEXT(chain->key), SQ_INT(op->now_us)) : 0;
	if (rc < 0)
		return rc;
	if (rc > 0) { /* another chain has the key */
		*out = (struct sl_started){.chain_id = sl__sqlite_u64(s, 0), .deduplicated = true};
		(void)sqlite3_reset(s);
		return 0;
	}
	rc = sl__sq_insert_job(op, id, id, 0, chain->key, &chain->job);
	if (rc == 0 && chain->key != NULL) {
		int64_t until_us = chain->window_ms > 0 ? op->now_us + sq_us(chain->window_ms) : 0;
		rc = SQ_RUN(op, SQ_KEY_PUT, SQ_TEXT(chain->key), SQ_INT(id), SQ_INT(chain->scope),
			    SQ_INT_OR_NULL(until_us));
	}
	if (rc == 0)
		*out = (struct sl_started){.chain_id = id};
	return rc;
}

/* The ids of n chains from first on that are new, as the record's. */
static int audit_started(struct sq_op *op, const struct sl_audit_record *record, const struct sl_started *started,
			 size_t n)
{
	struct sl_audit_record full = *record;
	uint64_t *ids = sl__calloc(&op->store->env, n, sizeof(*ids));
	if (ids == NULL)
		return sl_err_set(op->err, SL_ENOMEM, "no memory for the audit record");
	full.n_chains = 0;
	for (size_t i = 0; i < n; i++)
		if (!started[i].deduplicated)
			ids[full.n_chains++] = started[i].chain_id;
	full.chains = ids;
	int rc = sl__sq_audit(op, &full);
	sl__free(&op->store->env, ids);
	return rc;
}

/* n chains, which the records stand for in turn. */
static int start_audited(struct sq_op *op, const struct sl_new_chain *chains, size_t n, uint64_t first,
			 struct sl_started *out)
{
	int rc = 0;
	for (size_t at = 0; rc == 0 && at < n && op->n_audit > 0; op->audit++, op->n_audit--) {
		size_t some = op->audit->n_chains > 0 ? SL_MIN(op->audit->n_chains, n - at) : n - at;
		op->from_http = op->audit->via == SL_VIA_HTTP;
		for (size_t i = at; rc == 0 && i < at + some; i++)
			rc = sl__sq_start_one(op, &chains[i], first + i, &out[i]);
		if (rc == 0)
			rc = audit_started(op, op->audit, out + at, some);
		at += some;
		if (rc == 0 && at < n && op->n_audit == 1)
			rc = sl_err_set(op->err, SL_EINVAL, "start: the audit records cover %zu of %zu chains", at, n);
	}
	op->n_audit = 0;
	return rc;
}

int sl__sq_start(void *store, const struct sl_new_chain *chains, size_t n, const struct sl_store_scope *scope,
		 struct sl_started *out, struct sl_err *err)
{
	struct sq_op op;
	uint64_t first = 0;
	if (n == 0)
		return 0;
	int rc = sl__sq_op_begin(&op, store, SQ_DURABLE, scope, err);
	if (rc != 0)
		return rc;
	/* One statement that fills the queue from the new rows costs a third of one per job. */
	op.defer_ready = n >= BULK_MIN;
	/* A key that is taken leaves a hole in the ids, nothing more. */
	rc = sl__sq_new_ids(&op, n, &first);
	if (rc == 0 && op.n_audit > 0)
		rc = start_audited(&op, chains, n, first, out);
	else
		for (size_t i = 0; rc == 0 && i < n; i++)
			rc = sl__sq_start_one(&op, &chains[i], first + i, &out[i]);
	if (rc == 0 && op.defer_ready)
		rc = SQ_RUN(&op, SQ_READY_PUT_NEW, SQ_INT(first), SQ_INT(first + n), SQ_INT(op.now_us));
	return sl__sq_op_end(&op, rc);
}
