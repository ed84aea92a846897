/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog's handle and leases, for the files of this folder.
 *
 * Locks: a lease's mutex is held only for its own fields, never over a call of the database.
 */
#ifndef SL_PIPELINE_AUDIT_CATALOG_H
#define SL_PIPELINE_AUDIT_CATALOG_H

#include "base/buf.h"
#include "base/fork_guard.h"
#include "pipeline/audit/catalog_db.h"

struct sl_catalog {
	struct sl_env env;
	struct sl__fork_guard fork_guard;
	const struct sl__cat_ops *ops;
	void *db;
	char *producer, *producer_version;
	bool frozen; /* reads are calls of this transaction */
	struct sl__cat_tx snapshot;
};

#define CAT_HOLDER_BYTES 128

struct sl_catalog_lease {
	struct sl_catalog *catalog;
	char dataset[SL_DATASET_NAME_MAX + 1];
	uint64_t fence;
	int64_t ttl_ms;
	void *guard; /* of the database */
	bool has_guard;
	sl__mutex mu;
	sl__cond wake;
	bool lost;                      /* under mu: another took it */
	char lost_to[CAT_HOLDER_BYTES]; /* under mu; "" when that is not known */
	bool stopping;                  /* under mu */
	bool has_thread;
	pthread_t thread;
};

/* A dataset's row, as statements with CAT_DATASET_COLUMNS give it; texts live for the row. */
struct sl__cat_dataset {
	struct sl_dataset d;
	const char *schema_sha256, *head_hash; /* hexadecimal, "" before there is one */
	bool damaged;                          /* a value is not of its column's type; it reads as "" or UINT64_MAX */
};
void sl__cat_read_dataset(const struct sl__cat_row *row, struct sl__cat_dataset *out);
/* The same of CAT_PARTITION_COLUMNS. false: a value is not readable. */
bool sl__cat_read_partition(const struct sl__cat_row *row, struct sl_catalog_partition *out);
const char *sl__cat_type_name(enum sl_audit_type type);

SL_MUST_CHECK int sl__catalog_check(const struct sl_catalog *c, struct sl_err *err);
/* One call in a transaction its own. */
SL_MUST_CHECK int sl__catalog_once(struct sl_catalog *c, enum sl__cat_kind kind, struct sl__cat_call *call,
				   struct sl_err *err);
/* From here on all reads see the catalog as it is at the first of them, whatever is committed meanwhile, until thaw. For a
 * handle that one thread has for itself; nothing is written with it in between. */
SL_MUST_CHECK int sl__catalog_freeze(struct sl_catalog *c, struct sl_err *err);
void sl__catalog_thaw(struct sl_catalog *c);
/* Events with the id column, which a row has next to the text. */
typedef int sl__cat_event_fn(uint64_t number, const char *event, const char *id, void *ctx);
struct sl__event_walk {
	const char *dataset;
	uint64_t after, limit; /* limit 0: all */
	sl_catalog_event_fn *fn;
	sl__cat_event_fn *with_id; /* not NULL: called instead of fn */
	void *ctx;
};
SL_MUST_CHECK int sl__catalog_walk_events(struct sl_catalog *c, const struct sl__event_walk *w, struct sl_err *err);
/* The lease is lost: note it, find out to whom, and say so. Returns SL_ESTALE. */
int sl__lease_lost(struct sl_catalog_lease *lease, struct sl_err *err);
/* Everything up to event number n is in the files, or at the endpoint. SL_ESTALE. */
SL_MUST_CHECK int sl__catalog_mark(struct sl_catalog *c, struct sl_catalog_lease *lease, bool endpoint, uint64_t n,
				   struct sl_err *err);
/* As sl_catalog_partitions, of all partitions or of those with holes. */
struct sl__partition_walk {
	const char *dataset;
	uint64_t from, limit; /* limit 0: all */
	bool with_holes;      /* only those with holes that were committed since since_ms, Unix milliseconds */
	int64_t since_ms;
	sl_catalog_partition_fn *fn;
	void *ctx;
};
SL_MUST_CHECK int sl__catalog_walk_partitions(sl_catalog *c, const struct sl__partition_walk *w, struct sl_err *err);

#endif
