/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions: of a pooled connection, or of the caller's. */
#include <stdio.h>

#include "jobs/store/postgres/store.h"

static sl_store_tx *new_tx(struct pg_store *s, struct sl_err *err)
{
	sl_store_tx *tx = sl__calloc(&s->env, 1, sizeof(*tx));
	if (tx == NULL)
		(void)sl_err_set(err, SL_ENOMEM, "postgres: begin: out of memory");
	else
		*tx = (sl_store_tx){.pg = {.magic = SL__PG_TX_MAGIC}, .store = s};
	return tx;
}

/* Let go of everything but the transaction itself. */
static void pg_free_tx(sl_store_tx *tx)
{
	struct pg_store *s = tx->store;
	if (tx->pg.conn != &tx->joined)
		sl__pg_put(s->pool, tx->pg.conn);
	sl__free(&s->env, tx);
}

#define PLANNER_DEFAULT(name, value) "SET LOCAL " #name " TO DEFAULT;"
/* The caller's own SQL is planned as usual, and the caller may take as long between two statements as it needs. */
static const char begin_relaxed[] =
	"BEGIN; SET LOCAL idle_in_transaction_session_timeout TO DEFAULT;" SL__PG_PLANNER(PLANNER_DEFAULT);

int sl__pg_begin(void *store, sl_store_tx **out, struct sl_err *err)
{
	struct pg_store *s = store;
	sl_store_tx *tx = new_tx(s, err);
	if (tx == NULL)
		return SL_ENOMEM;
	int rc = sl__pg_take_held(s->pool, &tx->pg.conn, err);
	if (rc == 0)
		rc = sl__pg_exec(tx->pg.conn, begin_relaxed, err);
	if (rc != 0) {
		pg_free_tx(tx);
		return rc;
	}
	tx->ours = true;
	*out = tx;
	return 0;
}

int sl__pg_join(void *store, void *native, sl_store_tx **out, struct sl_err *err)
{
	struct pg_store *s = store;
	PGconn *pg = native;
	PGTransactionStatusType status = PQtransactionStatus(pg);
	if (PQpipelineStatus(pg) != PQ_PIPELINE_OFF || (status != PQTRANS_IDLE && status != PQTRANS_INTRANS))
		return sl_err_set(
			err, SL_EINVAL,
			"postgres: join: the connection is busy, in pipeline mode or in a failed transaction");
	sl_store_tx *tx = new_tx(s, err);
	if (tx == NULL)
		return SL_ENOMEM;
	tx->joined = (struct sl__pg_conn){.pg = pg, .env = &s->env, .foreign = true};
	tx->pg.conn = &tx->joined;
	tx->ours = status == PQTRANS_IDLE;
	int rc = tx->ours ? sl__pg_exec(tx->pg.conn, "BEGIN", err) : 0;
	if (rc != 0) {
		pg_free_tx(tx);
		return rc;
	}
	*out = tx;
	return 0;
}

void *sl__pg_native(sl_store_tx *tx)
{
	return tx->pg.conn->pg;
}

/* verb name, for a name that needs no quoting. */
static int named(sl_store_tx *tx, const char *verb, const char *name, struct sl_err *err)
{
	char sql[128];
	size_t n = strlen(name);
	if (n == 0 || n > 63 || strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789") != n ||
	    (name[0] >= '0' && name[0] <= '9'))
		return sl_err_set(err, SL_EINVAL, "postgres: savepoint: the name must match [a-z_][a-z0-9_]*");
	(void)snprintf(sql, sizeof(sql), "%s \"%s\"", verb, name);
	return sl__pg_exec(tx->pg.conn, sql, err);
}

int sl__pg_savepoint(sl_store_tx *tx, const char *name, struct sl_err *err)
{
	return named(tx, "SAVEPOINT", name, err);
}

int sl__pg_release_savepoint(sl_store_tx *tx, const char *name, struct sl_err *err)
{
	return named(tx, "RELEASE SAVEPOINT", name, err);
}

int sl__pg_rollback_to(sl_store_tx *tx, const char *name, struct sl_err *err)
{
	return named(tx, "ROLLBACK TO SAVEPOINT", name, err);
}

/* A COMMIT of a failed transaction is answered by ROLLBACK, without an error. */
int sl__pg_commit(sl_store_tx *tx, struct sl_err *err)
{
	int rc = 0;
	if (tx->ours) {
		PGresult *res = PQexec(tx->pg.conn->pg, "COMMIT");
		if (PQresultStatus(res) != PGRES_COMMAND_OK)
			rc = sl__pg_error(err, tx->pg.conn->pg, res, "commit");
		else if (strcmp(PQcmdStatus(res), "COMMIT") != 0)
			rc = sl_err_set(err, SL_EINVAL,
					"postgres: commit: a statement in it had failed; it was rolled back");
		PQclear(res);
	}
	pg_free_tx(tx);
	return rc;
}

void sl__pg_rollback(sl_store_tx *tx)
{
	if (tx->ours && PQstatus(tx->pg.conn->pg) == CONNECTION_OK)
		sl__pg_exec_quietly(tx->pg.conn, "ROLLBACK");
	pg_free_tx(tx);
}
