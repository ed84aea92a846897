/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two databases after the catalog: transactions, and statements of catalog_sql.h inside them. What the catalog
 * means is in catalog.c and its neighbours, once.
 *
 * Thread safety: a database from any thread; a transaction belongs to one. Ownership: every transaction that was begun
 * is ended; rows live for the callback that sees them.
 */
#ifndef SL_PIPELINE_AUDIT_CATALOG_DB_H
#define SL_PIPELINE_AUDIT_CATALOG_DB_H

#include "base/thread.h"
#include "pipeline/audit/catalog_sql.h"
#include <sluice/catalog.h>

enum sl__cat_stmt {
#define CAT_NUMBER_OF(name, text) CAT_##name,
	CAT_STATEMENTS(CAT_NUMBER_OF)
#undef CAT_NUMBER_OF
		CAT_N_STATEMENTS
};

struct sl__cat_value {
	const char *text; /* NULL: the number */
	int64_t number;
};
#define CAT_TEXT(x) ((struct sl__cat_value){.text = (x)})
#define CAT_INT(x) ((struct sl__cat_value){.number = (int64_t)(x)})
#define CAT_VALUES 13

struct sl__cat_ops;
struct sl__cat_row {
	const struct sl__cat_ops *ops;
	void *result;
	int at;
};
/* 0, or what ends the call. */
typedef int sl__cat_row_fn(const struct sl__cat_row *row, struct sl_err *err, void *ctx);

struct sl__cat_call {
	enum sl__cat_stmt stmt;
	struct sl__cat_value values[CAT_VALUES];
	size_t n;
	sl__cat_row_fn *fn; /* NULL: the statement has no rows, or they do not matter */
	void *ctx;
	int changed; /* rows, afterwards */
};

enum sl__cat_kind {
	CAT_READ,     /* changes nothing */
	CAT_SNAPSHOT, /* the same, and all of its calls see what was there at the first */
	CAT_DURABLE,  /* on disk when its commit returns */
	CAT_RELAXED   /* may be lost with the machine: only for what can be done again */
};
static inline bool sl__cat_changes(enum sl__cat_kind kind)
{
	return kind == CAT_DURABLE || kind == CAT_RELAXED;
}

struct sl__cat_tx {
	void *db;
	void *conn; /* of the database */
	enum sl__cat_kind kind;
	bool begun, committed;
};

struct sl__cat_ops {
	const char *name;
	bool expires; /* leases do, and have to be renewed */
	void (*close)(void *db);
	int (*begin)(void *db, enum sl__cat_kind kind, struct sl__cat_tx *tx, struct sl_err *err);
	/* Run the calls in order, in one round trip. commit: the transaction ends with them. */
	int (*call)(struct sl__cat_tx *tx, struct sl__cat_call *calls, size_t n, bool commit, struct sl_err *err);
	/* What was not committed is undone. */
	void (*end)(struct sl__cat_tx *tx);
	/* What holds a lease next to its row, if anything: *out is for unguard. SL_ELOCKED: another has it. */
	int (*guard)(void *db, const char *dataset, void **out, struct sl_err *err);
	void (*unguard)(void *db, void *guard);
	int64_t (*number)(const struct sl__cat_row *row, int column);   /* negative: it is none; ours never are */
	const char *(*text)(const struct sl__cat_row *row, int column); /* NULL: it is NULL, or no text */
};

static inline int64_t sl__cat_number(const struct sl__cat_row *row, int column)
{
	return row->ops->number(row, column);
}
static inline const char *sl__cat_text(const struct sl__cat_row *row, int column)
{
	return row->ops->text(row, column);
}

/* opts are complete; env outlives the database. */
extern const struct sl__cat_ops sl__cat_sqlite_ops, sl__cat_postgres_ops;
SL_MUST_CHECK int sl__cat_sqlite_open(void **out, const char *path, const struct sl_catalog_opts *opts,
				      const struct sl_env *env, struct sl_err *err);
SL_MUST_CHECK int sl__cat_postgres_open(void **out, const char *url, const struct sl_catalog_opts *opts,
					const struct sl_env *env, struct sl_err *err);

#endif
