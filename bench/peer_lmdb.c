/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LMDB as it is by default, fully durable: a write transaction per record with MDB_APPEND under an integer key. It
 * admits one writer at a time; the threads queue for its lock.
 */
#include <lmdb.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define MAP_BYTES ((size_t)32 << 30) /* address space, not disk */

struct lm {
	MDB_env *env;
	MDB_dbi dbi;
	size_t next; /* guarded by the write transaction */
};

static int lm_fail(int rc, const char *what, struct sl_err *err)
{
	return sl_err_set(err, SL_EIO, "lmdb: %s: %s", what, mdb_strerror(rc));
}

static int lm_open_table(struct lm *l)
{
	MDB_txn *txn;
	int rc = mdb_txn_begin(l->env, NULL, 0, &txn);
	if (rc != 0)
		return rc;
	rc = mdb_dbi_open(txn, NULL, MDB_INTEGERKEY, &l->dbi);
	if (rc == 0)
		return mdb_txn_commit(txn);
	mdb_txn_abort(txn);
	return rc;
}

static int lm_open(void **state, const struct place *place, struct sl_err *err)
{
	struct lm *l = calloc(1, sizeof(*l));
	if (l == NULL)
		return sl_err_set(err, SL_ENOMEM, "lmdb");
	*state = l;
	int rc = mdb_env_create(&l->env);
	if (rc == 0)
		rc = mdb_env_set_mapsize(l->env, MAP_BYTES);
	if (rc == 0)
		rc = mdb_env_open(l->env, place->dir, 0, 0600);
	if (rc == 0)
		rc = lm_open_table(l);
	return rc == 0 ? 0 : lm_fail(rc, "open", err);
}

static int lm_worker_open(void **worker, void *state, struct sl_err *err)
{
	(void)err;
	*worker = state;
	return 0;
}

static void lm_worker_close(void *worker)
{
	(void)worker;
}

static int lm_append(void *worker, const void *payload, size_t n, struct sl_err *err)
{
	struct lm *l = worker;
	MDB_txn *txn;
	int rc = mdb_txn_begin(l->env, NULL, 0, &txn);
	if (rc != 0)
		return lm_fail(rc, "begin", err);
	size_t sequence = l->next + 1;
	MDB_val key = {.mv_size = sizeof(sequence), .mv_data = &sequence}, data = {.mv_size = n};
	rc = mdb_put(txn, l->dbi, &key, &data, MDB_APPEND | MDB_RESERVE);
	if (rc != 0) {
		mdb_txn_abort(txn);
		return lm_fail(rc, "put", err);
	}
	memcpy(data.mv_data, payload, n);
	l->next = sequence;
	rc = mdb_txn_commit(txn);
	return rc == 0 ? 0 : lm_fail(rc, "commit", err);
}

static void lm_close(void *state)
{
	struct lm *l = state;
	if (l->env != NULL)
		mdb_env_close(l->env);
	free(l);
}

const struct contender contender_lmdb = {
	.name = "lmdb",
	.settings = "default durability, one write transaction with MDB_APPEND per record",
	.open = lm_open,
	.worker_open = lm_worker_open,
	.append = lm_append,
	.worker_close = lm_worker_close,
	.close = lm_close,
};
