/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the SQLite sink: its connection, its batches, and the handle around them (sqlite.c says how they go
 * together).
 *
 * Thread safety: what touches the connection is for the holder of `lock`; cancelled and classify from any thread.
 * Ownership: the handle owns all of it.
 */
#ifndef SL_SINK_SQLITE_H
#define SL_SINK_SQLITE_H

#include "base/thread.h"
#include "db/sqlite_lock.h"
#include "flow/join.h"
#include "sink/ranges.h"
#include "sink/sqlite_rows.h"

enum {
	SL__SINKQ_BEGIN,
	SL__SINKQ_COMMIT,
	SL__SINKQ_VERSION,
	SL__SINKQ_LOAD,  /* is this run the one that may write? */
	SL__SINKQ_RANGE, /* record what a transaction has written */
	SL__SINKQ_COUNT
}; /* of db */

struct sl__sqlite_sink {
	struct sl_env env;
	struct sl_sink_opts opts;
	char *path, *target;
	struct sl__sqlite_lock lock;
	struct sl__join join; /* who leads gets the lock */

	/* Of the holder of `lock`. */
	struct sl__sqlite db; /* db.db NULL: not connected */
	struct sl__inserts inserts;
	uint8_t *present; /* bits of a row's columns */
	size_t present_cap;
	uint64_t dev, ino; /* of the file that is connected to */
	bool log_mode;     /* the database has a write-ahead log */
	size_t max_values; /* in one statement */
	int64_t busy_until_ns;
	struct sl__load load;      /* its `done` is also read by lanes, its `dead` is under mu */
	struct sl__ranges written; /* of the batch at hand */

	/* Under mu. */
	sl__mutex mu;
	sl__cond hurry; /* it was cancelled */
	bool cancelled;
	sqlite3 *running; /* to interrupt; NULL: not connected */
};

/* ---- the connection (sqlite_connect.c) ---- */

/* What an error means for the batch, beyond what its code says by itself. Returns what a write is to return. */
int sl__sqlite_sink_classify(struct sl__sqlite_sink *s, int code, struct sl_err *err);
/* Wait for the lock as long as a statement may take, or until it is cancelled. */
SL_MUST_CHECK int sl__sqlite_sink_lock(struct sl__sqlite_sink *s, struct sl_err *err);
/* From now on the connection waits up to the statement timeout for programs that do not know the lock. */
void sl__sqlite_sink_start_waiting(struct sl__sqlite_sink *s);
/* Connect unless it is connected to the file that has the name now. */
SL_MUST_CHECK int sl__sqlite_sink_connect(struct sl__sqlite_sink *s, struct sl_err *err);
void sl__sqlite_sink_disconnect(struct sl__sqlite_sink *s);
/* The version of the schema in this transaction. */
SL_MUST_CHECK int sl__sqlite_sink_version(struct sl__sqlite_sink *s, int64_t *version, struct sl_err *err);

/* The statement for such rows of the shape, prepared if need be (sqlite_table.c). SL_ECONFIG: the table does not take
 * it. */
SL_MUST_CHECK int sl__sqlite_get_insert(struct sl__sqlite_sink *s, const struct sl__shape *shape,
					struct sl__insert what, sqlite3_stmt **out, struct sl_err *err);

/* ---- loads (sqlite_load.c) ---- */

int sl__sqlite_load_begin(void *ctx, const char *input, bool again, struct sl_sink_loaded *out, struct sl_err *err);
int sl__sqlite_load_dead(void *ctx, const struct sl_input_range *range);
int sl__sqlite_load_end(void *ctx, bool finished, struct sl_err *err);
/* At the beginning of a transaction: this run may write, and what it has written is known. */
SL_MUST_CHECK int sl__sqlite_load_enter(struct sl__sqlite_sink *s, struct sl_err *err);
/* Record `written`, and in its transaction. */
SL_MUST_CHECK int sl__sqlite_load_put(struct sl__sqlite_sink *s, struct sl__ranges *ranges, struct sl_err *err);
/* Record what became dead letters. On failure of the transaction they must be given back. */
SL_MUST_CHECK int sl__sqlite_load_put_dead(struct sl__sqlite_sink *s, struct sl__ranges *taken, struct sl_err *err);
void sl__sqlite_load_give_back(struct sl__sqlite_sink *s, struct sl__ranges *taken);

/* ---- batches (sqlite_write.c) ---- */

/* The write of sl_sink_ops; a lane is a struct sl__sqlite_rows. */
SL_MUST_CHECK int sl__sqlite_sink_write(void *ctx, void *lane, const struct sl_sink_batch *batch,
					struct sl_sink_reply *reply, struct sl_err *err);

#endif
