/* SPDX-License-Identifier: Apache-2.0 */
/* An order and the job that ships it, in one transaction of the program's own SQLite connection: both, or neither. */
#include <sluice/jobs.h>
#include <sqlite3.h>
#include <stdio.h>

static int print(const struct sl_job *job, void *ctx)
{
	(void)ctx;
	return printf("%s %s is %s\n", job->type, job->input, sl_job_status_name(job->status)) < 0;
}

static int place_order(sl_jobs *client, sqlite3 *db, const char *sql, const char *input, struct sl_err *err)
{
	const struct sl_new_chain chain = {.job = {.type = "ship", .input = input}};
	struct sl_started started;
	sl_tx *tx;
	if (sl_jobs_join(client, db, &tx, err) != 0) /* begins the transaction */
		return err->code;
	if (sl_jobs_enqueue(client, tx, &chain, &started, err) == 0) {
		if (sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK)
			return sl_tx_commit(tx, err);
		printf("refused: %s\n", sqlite3_errmsg(db));
	}
	sl_tx_rollback(tx); /* the job goes with the order */
	return err->code;
}

int main(void)
{
	struct sl_err err = SL_ERR_INIT;
	sl_store store = {0};
	sl_jobs *client = NULL;
	sqlite3 *db = NULL;
	const struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .store = &store};

	if (sl_store_open(&store, "sqlite:shop.db", NULL, &err) == 0 && sl_jobs_open(&client, &opts, &err) == 0 &&
	    sqlite3_open("shop.db", &db) == SQLITE_OK &&
	    sqlite3_exec(db, "CREATE TABLE IF NOT EXISTS orders(id INTEGER PRIMARY KEY)", NULL, NULL, NULL) ==
		    SQLITE_OK &&
	    place_order(client, db, "INSERT INTO orders VALUES (7)", "{\"order\": 7}", &err) == 0 &&
	    place_order(client, db, "INSERT INTO orders VALUES (7)", "{\"order\": 7, \"again\": true}", &err) == 0)
		(void)!sl_jobs_list(client, NULL, print, NULL, &err);
	if (err.code != 0)
		fprintf(stderr, "%s\n", err.msg);
	sqlite3_close(db);
	sl_jobs_close(client);
	sl_store_close(&store);
	return err.code != 0;
}
