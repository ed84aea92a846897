/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is not on the path of a job from its start to its end, once for both stores: schedules, pauses, the audit trail,
 * and everything that is only read. A store says how a statement is run (struct sl__cold_ops), with its texts in
 * cold_sql.h, and begins its handle with a struct sl__cold_store, by which the slots here know it.
 *
 * Thread safety: as jobs/store/ops.h says. Ownership: rows and what is read of them live for the callback that sees them.
 */
#ifndef SL_JOBS_STORE_COLD_H
#define SL_JOBS_STORE_COLD_H

#include "base/buf.h"
#include "jobs/store/cold_sql.h"
#include "jobs/store/slots.h"

enum sl__cold_stmt {
#define COLD_NUMBER_OF(name, text) SL__COLD_##name,
	SL__COLD_STATEMENTS(COLD_NUMBER_OF)
#undef COLD_NUMBER_OF
		SL__COLD_COUNT
};

enum sl__cold_kind {
	SL__COLD_INT,
	SL__COLD_BOOL,
	SL__COLD_TEXT,
	SL__COLD_TIME,  /* i: Unix milliseconds */
	SL__COLD_IDS,   /* n of uint64_t; at most one list in a query */
	SL__COLD_TEXTS, /* n strings; none is NULL */
	SL__COLD_CLAIM, /* 16 bytes */
	SL__COLD_NOW    /* the store's clock; not a parameter where the database has its own */
};
struct sl__cold_value {
	enum sl__cold_kind kind;
	int64_t i;
	const void *p;
	size_t n;
};
#define COLD_INT(x) ((struct sl__cold_value){.kind = SL__COLD_INT, .i = (int64_t)(x)})
#define COLD_BOOL(x) ((struct sl__cold_value){.kind = SL__COLD_BOOL, .i = (x)})
#define COLD_TEXT(x) ((struct sl__cold_value){.kind = SL__COLD_TEXT, .p = (x)})
#define COLD_TIME(x) ((struct sl__cold_value){.kind = SL__COLD_TIME, .i = (x)})
#define COLD_IDS(x, count) ((struct sl__cold_value){.kind = SL__COLD_IDS, .p = (x), .n = (count)})
#define COLD_TEXTS(x, count) ((struct sl__cold_value){.kind = SL__COLD_TEXTS, .p = (x), .n = (count)})
#define COLD_CLAIM(x) ((struct sl__cold_value){.kind = SL__COLD_CLAIM, .p = (x)})
#define COLD_NOW ((struct sl__cold_value){.kind = SL__COLD_NOW})

struct sl__cold_ops;
struct sl__cold_row {
	const struct sl__cold_ops *ops;
	void *result;
	int at;
};
/* 0, or what ends the query. */
typedef int sl__cold_row_fn(const struct sl__cold_row *row, void *ctx);

struct sl__cold_query {
	enum sl__cold_stmt stmt;
	const char *sql; /* not NULL: this instead of stmt, planned for its values */
	const struct sl__cold_value *values;
	size_t n_values;
	sl__cold_row_fn *row; /* NULL: it has no rows */
	void *ctx;
};
#define COLD_VALUES(...)                                                                                               \
	.values = (const struct sl__cold_value[]){__VA_ARGS__},                                                        \
	.n_values = sizeof((const struct sl__cold_value[]){__VA_ARGS__}) / sizeof(struct sl__cold_value)

struct sl__cold_ops {
	size_t answer_bytes; /* an answer with events ends when their payloads have reached this; 0: never */
	/* Run n queries, which see the same moment, in the caller's transaction or in none. */
	int (*read)(void *store, sl_store_tx *tx, const struct sl__cold_query *queries, size_t n, struct sl_err *err);
	/* Run one, or none (NULL), in a transaction with the audit records of scope. *n: rows that it changed. must_change: with no such
	 * row nothing happens, and SL_ENOENT is returned without a text. */
	int (*change)(void *store, const struct sl__cold_query *query, const struct sl_store_scope *scope,
		      bool must_change, size_t *n, struct sl_err *err);
	/* Columns, from 0; a NULL is 0 or NULL. */
	int64_t (*number)(const struct sl__cold_row *row, int column);
	int64_t (*time_ms)(const struct sl__cold_row *row, int column);
	const char *(*text)(const struct sl__cold_row *row, int column);
	const void *(*bytes)(const struct sl__cold_row *row, int column, size_t *n);
};

struct sl__cold_store {
	const struct sl__cold_ops *ops;
	const struct sl_env *env;
};

static inline int64_t sl__cold_number(const struct sl__cold_row *row, int column)
{
	return row->ops->number(row, column);
}
static inline uint64_t sl__cold_id(const struct sl__cold_row *row, int column)
{
	return (uint64_t)row->ops->number(row, column);
}
static inline const char *sl__cold_text(const struct sl__cold_row *row, int column)
{
	return row->ops->text(row, column);
}
static inline int64_t sl__cold_time_ms(const struct sl__cold_row *row, int column)
{
	return row->ops->time_ms(row, column);
}

/* A row of jobs or chains, with the columns of GET_JOB (but for from_http) and GET_CHAIN. */
struct sl_job sl__cold_job(const struct sl__cold_row *row);
struct sl_chain sl__cold_chain(const struct sl__cold_row *row);

/* As the time of a prune step: no key keeps its chain. */
#define SL__NO_KEYS_MS INT64_C(253402300799000)
/* Part of a prune: marks of streams that are older than that, and of which nothing is left. */
int sl__cold_prune_marks(struct sl__cold_store *s, int64_t before_ms, struct sl_err *err);

/* The transaction of a scope; NULL: none. */
static inline sl_store_tx *sl__scope_tx(const struct sl_store_scope *scope)
{
	return scope != NULL ? scope->tx : NULL;
}
/* Report to scope, which may be NULL, as may its members. */
void sl__report_note(const struct sl_store_scope *scope, enum sl_note_kind kind, const char *type, uint64_t id,
		     enum sl_lost_reason reason);
void sl__report_change(const struct sl_store_scope *scope, enum sl_change_kind kind, uint64_t id, uint64_t chain_id,
		       const char *type);

/* A settle has put its job of this type back, for now or for later. */
void sl__report_put_back(const struct sl_store_scope *scope, const struct sl_settle *s, const char *type, bool later);

/* ---- the slots that are here ---- */
#define COLD_DECLARE_SLOT(slot) SL__STORE_SLOT(sl__cold_, slot);
SL__COLD_SLOTS(COLD_DECLARE_SLOT)
#undef COLD_DECLARE_SLOT

#endif
