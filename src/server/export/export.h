/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exports in the server: the events of its store become partitions of a dataset, as `sluice export` makes them, for as
 * long as the server runs; and any dataset in the same folder can be inspected and verified.
 *
 * One thread runs the export and restarts it when it ends, with a growing pause; each verification has its own thread.
 * An export that fails does not make the server less ready: the events stay in the store, and are exported when the cause
 * is fixed. Of several servers that share a catalog, the one that holds the dataset's lease exports and the others wait
 * for it.
 *
 * Guarantees
 *  - Every event has one row, in the order of offsets and without a gap. An event that was deleted with its job before
 *    it was exported is a row that has nothing but its offset.
 *  - One verification of a dataset at a time, VERIFICATIONS_MAX in total; findings are kept until the next one.
 * Not guaranteed: that rows of the last, unfinished partition are exported; they wait until it is full.
 *
 * Thread safety: new, start, stop and free by one thread, in this order; the rest from any. Ownership: the core must
 * outlive it.
 */
#ifndef SLUICE_SERVER_EXPORT_H
#define SLUICE_SERVER_EXPORT_H

#include "server/core.h"
#include "server/health.h"

#include <sluice/audit.h>
#include <sluice/catalog.h>
#include <sluice/export.h>
#include <sluice/parquet.h>

enum srv_export_state {
	SRV_EXPORT_IDLE = 0,    /* not started, or stopped */
	SRV_EXPORT_RUNNING = 1, /* this server exports */
	SRV_EXPORT_WAITING = 2, /* another process holds the dataset's lease */
	SRV_EXPORT_FAILED = 3   /* it will be started again */
};
const char *srv_export_state_name(enum srv_export_state state); /* "running" */

struct srv_export_status {
	enum srv_export_state state;
	int64_t since_ms;    /* Unix */
	int64_t next_try_ms; /* Unix; 0: none is planned */
	uint64_t starts, failures;
	char error[256];     /* why it failed or waits; "": nothing */
	uint64_t checkpoint; /* of this run; 0: none yet */
	uint64_t newest;     /* offset of the store's newest event; 0: none is known */
};

/* What a verification said. */
#define SRV_FINDINGS_KEPT 100
struct srv_finding {
	enum sl_audit_fault fault;
	uint64_t event;
	char *path, *text;
};
struct srv_verification {
	char dataset[SL_DATASET_NAME_MAX + 1];
	bool running;
	int64_t started_ms, ended_ms; /* Unix; 0: not yet */
	uint64_t done_bytes, total_bytes;
	struct srv_finding findings[SRV_FINDINGS_KEPT]; /* the first of them */
	size_t n_findings;
	uint64_t faults, notes;        /* reported so far, including those that are not kept */
	struct sl_audit_result result; /* when it has ended */
	struct sl_err err;             /* code 0: it came to its end */
};

struct srv_exports;

/* NULL in *out when no folder is configured. */
int srv_exports_new(struct srv_exports **out, struct srv_core *core, struct sl_err *err);
int srv_exports_start(struct srv_exports *x, struct sl_err *err);
/* What was taken in is committed, within the deadline; verifications end where they are. NULL is allowed. */
void srv_exports_stop(struct srv_exports *x, int64_t deadline_ms);
void srv_exports_free(struct srv_exports *x); /* NULL is allowed */

void srv_exports_status(struct srv_exports *x, struct srv_export_status *out);
srv_check_fn srv_check_export; /* ctx: struct srv_exports */
/* How far the dataset is, by this server's export or another's: 0 while that is not known. For the retention. */
uint64_t srv_exports_checkpoint(void *exports);

/* The catalog, opened for one question; 0 and NULL in *out while the first run has not made its file. The caller closes
 * it. create: also the tables of one in a database. */
int srv_exports_catalog(struct srv_exports *x, enum sl_switch create, sl_catalog **out, struct sl_err *err);

/* Begin one. SL_EEXIST: one of this dataset is running; SL_EFULL: as many as may be are running;
 * SL_EUNAVAIL: the server stops. */
int srv_verify_start(struct srv_exports *x, const char *dataset, struct sl_err *err);
/* Call fn with the last verification of a dataset, under the lock: it must be quick. false: there was no
 * verification. */
typedef void srv_verification_fn(const struct srv_verification *v, void *ctx);
bool srv_verify_look(struct srv_exports *x, const char *dataset, srv_verification_fn *fn, void *ctx);

/* ---- feed.c: the rows of the export ---- */
extern const struct sl_parquet_column srv_feed_columns[];
extern const size_t srv_feed_n_columns;
/* Events from `next` on, for sl_export_opts.rows; ctx: struct srv_core. */
sl_export_rows_fn srv_feed_rows;

#endif
