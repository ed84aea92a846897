/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to PostgreSQL: a pool that connects again by itself, parameters in binary, statements sent through one
 * pipeline with one Sync, errors as SL_E… codes with their class.
 *
 * Every connection has tcp_user_timeout, keepalives, connect_timeout and statement_timeout, so that a partition ends in
 * an error; the server's end has the same, so that it ends in a rollback there, and not in locks that are held for
 hours. A password never gets into an error text. Not guaranteed: that a connection out of the pool is alive; one
 * that the server has closed while it was idle is replaced, one that dies later gives SL_EUNAVAIL.
 *
 * Thread safety: the pool from any thread; a connection, a pipe and parameters belong to one thread at a time.
 * Ownership: what take gives goes back with put. Results of a pipe live until its end or next run.
 */
#ifndef SL_DB_POSTGRES_H
#define SL_DB_POSTGRES_H

#include <libpq-fe.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/thread.h"

struct sl__pg_opts {
	const struct sl_env *env;
	const char *conninfo;    /* a URL, or key=value pairs */
	const char *application; /* application_name, unless the conninfo has one */
	const char *settings;    /* SQL to run on each new connection, or NULL; not through a pooler */
	int64_t connect_timeout_ms;
	int64_t statement_timeout_ms;   /* SL_UNLIMITED: none */
	int64_t transaction_timeout_ms; /* how long the server waits for a transaction's next statement; 0: for ever */
};

/* Between two statements of a transaction of ours lies a round trip. When it takes longer, the process has stopped or
 * the network has parted, and the locks of that transaction would hold everybody else up. */
#define SL__PG_TRANSACTION_TIMEOUT_MS 10000
static inline int64_t sl__pg_transaction_timeout_ms(int64_t statement_timeout_ms)
{
	return statement_timeout_ms > 0 ? SL_MIN(statement_timeout_ms, (int64_t)SL__PG_TRANSACTION_TIMEOUT_MS)
					: SL__PG_TRANSACTION_TIMEOUT_MS;
}

/* ---- connecting ---- */

#define SL__PG_STATEMENTS 64

/* A statement that is prepared on a connection when it is first used there. */
struct sl__pg_stmt {
	unsigned index;   /* unique on its connections; from SL__PG_STATEMENTS on it is never prepared */
	const char *name; /* for the server and for errors */
	const char *sql;
};

struct sl__pg_conn {
	PGconn *pg;
	const struct sl_env *env;
	uint64_t prepared;        /* a bit per statement */
	unsigned forgot;          /* how often the server has not known what was prepared */
	bool foreign;             /* the caller's: nothing is prepared there */
	bool pooled;              /* through a pooler, which may change sessions under us: neither there */
	bool held;                /* taken by sl__pg_take_held */
	struct sl__pg_conn *next; /* in the pool's list */
};

/* Says that the conninfo cannot be understood (SL_EINVAL), without repeating any of it. */
SL_MUST_CHECK int sl__pg_check_conninfo(const char *conninfo, struct sl_err *err);
/* On success the caller owns *out (PQfinish). */
SL_MUST_CHECK int sl__pg_connect(PGconn **out, const struct sl__pg_opts *opts, struct sl_err *err);
/* The same into conn->pg, and whether a pooler stands between into conn->pooled; the rest of *conn is the caller's. */
SL_MUST_CHECK int sl__pg_open(struct sl__pg_conn *conn, const struct sl__pg_opts *opts, struct sl_err *err);

/* ---- pool ---- */

typedef struct sl__pg_pool sl__pg_pool;
/* Connects with the first take. Strings are copied. */
SL_MUST_CHECK int sl__pg_pool_new(sl__pg_pool **out, const struct sl__pg_opts *opts, unsigned max, struct sl_err *err);
/* All connections must be back. NULL is allowed. */
void sl__pg_pool_free(sl__pg_pool *pool);
/* An idle, living connection outside of a transaction. Waits while all are taken, at most wait_ms (SL_EAGAIN). */
SL_MUST_CHECK int sl__pg_take(sl__pg_pool *pool, struct sl__pg_conn **out, struct sl_err *err);
/* The same for who keeps it for a transaction of unknown length. One connection, when there is more than one, is never
 * given away so: a caller with a transaction may need another call, and leases are renewed meanwhile. */
SL_MUST_CHECK int sl__pg_take_held(sl__pg_pool *pool, struct sl__pg_conn **out, struct sl_err *err);
/* A connection that is not idle or not alive is closed instead of kept. NULL is allowed. */
void sl__pg_put(sl__pg_pool *pool, struct sl__pg_conn *conn);
/* How many connections were found dead: the server may have gone down and come back when it has grown. */
uint64_t sl__pg_deaths(sl__pg_pool *pool);

/* What every transaction of ours on a PostgreSQL connection begins with, so that adapters know one from another. */
#define SL__PG_TX_MAGIC 0x70677478u
struct sl__pg_tx {
	uint32_t magic;
	struct sl__pg_conn *conn;
};

/* ---- errors ---- */

/* Fill err from a failed result (res may be NULL: the connection's message) and return its code. "what: message". */
int sl__pg_error(struct sl_err *err, const PGconn *pg, const PGresult *res, const char *what);
/* The code of an SQLSTATE; *error_class is set. */
int sl__pg_code(const char *sqlstate, enum sl_err_class *error_class);

/* ---- parameters, in binary ---- */

enum sl__pg_oid {
	SL__PG_BOOL = 16,
	SL__PG_BYTEA = 17,
	SL__PG_INT8 = 20,
	SL__PG_INT4 = 23,
	SL__PG_TEXT = 25,
	SL__PG_TIMESTAMPTZ = 1184,
	SL__PG_INTERVAL = 1186,
	SL__PG_UUID = 2950
};

#define SL__PG_PARAMS 32

struct sl__pg_params {
	struct sl__buf data;
	int n;
	struct {
		size_t at;
		int len; /* -1: NULL */
	} p[SL__PG_PARAMS];
	size_t array_at; /* of the array that is being filled */
};

void sl__pg_params_init(struct sl__pg_params *p, const struct sl_env *env);
void sl__pg_params_fini(struct sl__pg_params *p);
/* Forget the values and a failure, keep the memory. */
void sl__pg_params_clear(struct sl__pg_params *p);
#define SL__PG_PARAMS_LOCAL(name, env)                                                                                 \
	struct sl__pg_params name SL_CLEANUP(sl__pg_params_fini);                                                      \
	sl__pg_params_init(&name, env)

/* One more parameter. Failures stick and are returned when it is sent. */
void sl__pg_add_null(struct sl__pg_params *p);
void sl__pg_add_bool(struct sl__pg_params *p, bool v);
void sl__pg_add_int4(struct sl__pg_params *p, int32_t v);
void sl__pg_add_int8(struct sl__pg_params *p, int64_t v);
void sl__pg_add_text(struct sl__pg_params *p, const char *s);   /* NULL is NULL */
void sl__pg_add_time(struct sl__pg_params *p, int64_t unix_ms); /* 0 is NULL */
void sl__pg_add_interval(struct sl__pg_params *p, int64_t ms);
void sl__pg_add_uuid(struct sl__pg_params *p, const uint8_t bytes[16]);

/* An array: begin with the number of elements, then exactly that many of one kind. */
void sl__pg_add_array(struct sl__pg_params *p, enum sl__pg_oid element, size_t n);
void sl__pg_el_bool(struct sl__pg_params *p, bool v);
void sl__pg_el_int4(struct sl__pg_params *p, int32_t v);
void sl__pg_el_int8(struct sl__pg_params *p, int64_t v);
void sl__pg_el_text(struct sl__pg_params *p, const char *s);
void sl__pg_el_bytes(struct sl__pg_params *p, const void *data, size_t n);
void sl__pg_el_time(struct sl__pg_params *p, int64_t unix_ms);
void sl__pg_el_interval(struct sl__pg_params *p, int64_t ms); /* 0 is NULL */
void sl__pg_el_uuid(struct sl__pg_params *p, const uint8_t bytes[16]);
/* Whole arrays. */
void sl__pg_add_ids(struct sl__pg_params *p, const uint64_t *ids, size_t n);
void sl__pg_add_texts(struct sl__pg_params *p, const char *const *texts, size_t n);

/* ---- results, in binary; NULL reads as 0 or NULL ---- */

bool sl__pg_is_null(const PGresult *r, int row, int column);
bool sl__pg_bool(const PGresult *r, int row, int column);
int32_t sl__pg_int4(const PGresult *r, int row, int column);
int64_t sl__pg_int8(const PGresult *r, int row, int column);
const char *sl__pg_text(const PGresult *r, int row, int column);
int64_t sl__pg_time_ms(const PGresult *r, int row, int column);

/* ---- statements in one round trip ---- */

#define SL__PG_PIPE_MAX 16

/*
 * Statements that are sent together, followed by one Sync. Outside of a transaction they are one transaction:
 * all of them happen, or none.
 */
struct sl__pg_pipe {
	struct sl__pg_conn *conn;
	int n;                                /* statements */
	int n_queued;                         /* with the prepares before them */
	bool is_prepare[SL__PG_PIPE_MAX * 2]; /* per queued command */
	unsigned prepares[SL__PG_PIPE_MAX * 2];
	const char *names[SL__PG_PIPE_MAX]; /* per statement, for errors */
	PGresult *results[SL__PG_PIPE_MAX];
	int failed;    /* sticks until the run */
	int failed_at; /* after a run: the number of the statement that failed; -1: none */
};

void sl__pg_pipe_init(struct sl__pg_pipe *pipe, struct sl__pg_conn *conn);
/* Clear the results. The pipe may be used again. */
void sl__pg_pipe_end(struct sl__pg_pipe *pipe);
/* Queue a statement; returns its number, by which its result is found after the run. params NULL: none. They may be
 * reused at once. */
int sl__pg_send(struct sl__pg_pipe *pipe, const struct sl__pg_stmt *stmt, const struct sl__pg_params *params);
/* The same for a statement that is used once, or planned anew each time. */
int sl__pg_send_sql(struct sl__pg_pipe *pipe, const char *sql, const struct sl__pg_params *params);
/* Sync and read everything. On failure the results are gone, and the connection is idle again when it lives. */
SL_MUST_CHECK int sl__pg_run(struct sl__pg_pipe *pipe, struct sl_err *err);
/*
 * The same, and after the Sync the statement `then` with its own: a transaction that begins when the first has ended,
 * whether that was committed or not. Both are sent before an answer is read. What returns is the first one's; *done
 * says whether the second happened, as far as is known. Outside of transactions only.
 */
SL_MUST_CHECK int sl__pg_run_then(struct sl__pg_pipe *pipe, const struct sl__pg_stmt *then,
				  const struct sl__pg_params *params, bool *done, struct sl_err *err);
static inline const PGresult *sl__pg_result(const struct sl__pg_pipe *pipe, int statement)
{
	return pipe->results[statement];
}

/* Simple statements without parameters or rows ("BEGIN"). */
SL_MUST_CHECK int sl__pg_exec(struct sl__pg_conn *conn, const char *sql, struct sl_err *err);
/* The same where a failure changes nothing: undoing what the server undoes anyway when the connection is gone. */
void sl__pg_exec_quietly(struct sl__pg_conn *conn, const char *sql);

#endif
