/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog of exported datasets: which partitions there are, what their files hold, how far the export has come, and
 * the chain of audit events. A SQLite file (sqlite:FILE) or a PostgreSQL database (postgres://…).
 *
 * Guarantees
 *  - A commit is one durable transaction: the partition's row, its audit event and the checkpoint are there together or
 *    not at all. Committing the same partition again changes nothing; other contents for it are SL_ECONFLICT.
 *  - Events are numbered from 1 without a gap and each holds the hash of the one before it (<sluice/audit.h>).
 *  - One writer per dataset: a lease with a fence number. With SQLite the lease ends with its process; with PostgreSQL
 *    it expires when it was not renewed for ttl_ms. A holder that has lost it cannot commit any more (SL_ESTALE).
 *  - Delivering events (the outbox) never blocks a commit.
 * Not guaranteed: that an event is delivered to an endpoint only once. Its id is stable, so that a receiver can
 * recognise it.
 *
 * Thread safety: all functions on an open catalog may be called from any thread, except close, which must be the last
 * call. Callbacks run on the caller's thread without locks and may use the catalog. A handle does not work in a forked
 * child (SL_EFORKED). Ownership: everything passed in is copied; what a callback sees lives for the call; leases and
 * outboxes end before their catalog.
 *
 * docs/formats/catalog.md has the tables.
 */
#ifndef SLUICE_CATALOG_H
#define SLUICE_CATALOG_H

#include <sluice/audit.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_catalog sl_catalog;
typedef struct sl_catalog_lease sl_catalog_lease;
typedef struct sl_outbox sl_outbox;

struct sl_catalog_opts {
	size_t struct_size;
	const struct sl_env *env;
	enum sl_switch create;        /* make what is missing; off: it must be there, and is only read; default on */
	const char *schema;           /* PostgreSQL: where the tables lie; default "sluice" */
	int64_t busy_ms;              /* SQLite: how long another process's transaction is waited for; default 10 s */
	int64_t connect_timeout_ms;   /* PostgreSQL; default 5 s */
	int64_t statement_timeout_ms; /* PostgreSQL; default 30 s */
	const char *producer;         /* what events name as their producer; default "sluice" */
	const char *producer_version; /* default: this library's */
};
#define SL_CATALOG_OPTS_INIT .struct_size = sizeof(struct sl_catalog_opts)

/* SL_EINVAL (a URL of another kind, a field), SL_EUNAVAIL (not there with create off; the database is unavailable:
 * retryable), SL_EUNSUPPORTED (made by a later version), SL_ECORRUPT … *out is untouched on failure. */
SL_API SL_MUST_CHECK int sl_catalog_open(sl_catalog **out, const char *url, const struct sl_catalog_opts *opts,
					 struct sl_err *err);
SL_API void sl_catalog_close(sl_catalog *c); /* NULL is allowed */

/* ---- the lease of a dataset ---- */

struct sl_catalog_lease_opts {
	size_t struct_size;
	const char *holder; /* shown to others that find it taken; default "HOST pid N" */
	int64_t ttl_ms;     /* PostgreSQL: time from its last renewal to its expiry; default 30 s, at least 1 s */
};
#define SL_CATALOG_LEASE_OPTS_INIT .struct_size = sizeof(struct sl_catalog_lease_opts)

/*
 * Take the lease of a dataset, which need not exist yet. Names match [A-Za-z0-9][A-Za-z0-9._-]* and have at most 100
 * bytes (SL_EINVAL). SL_ELOCKED names the holder. A thread of the lease renews it where it can expire.
 */
SL_API SL_MUST_CHECK int sl_catalog_lease_acquire(sl_catalog *c, const char *dataset,
						  const struct sl_catalog_lease_opts *opts, sl_catalog_lease **out,
						  struct sl_err *err);
/* Give it back. NULL is allowed. */
SL_API void sl_catalog_lease_release(sl_catalog_lease *lease);
/* 0 while it is held, as far as is known here; SL_ESTALE once it is known to be lost. */
SL_API SL_MUST_CHECK int sl_catalog_lease_check(sl_catalog_lease *lease, struct sl_err *err);
/* Greater than that of every earlier holder. */
SL_API uint64_t sl_catalog_lease_fence(const sl_catalog_lease *lease);

/* ---- what is exported ---- */

struct sl_dataset {
	size_t struct_size;
	const char *name;
	uint64_t partition_size;     /* boundaries are floor(sequence / size) */
	const char *sequence_column; /* at most 255 bytes */
	const char *schema;          /* the columns, as text of the exporter's; the catalog only compares it */
	/* Filled when read, ignored by define: */
	uint64_t events;                   /* committed; 0: the rest is 0 as well */
	uint64_t start, checkpoint;        /* the first and the last committed sequence */
	uint64_t partitions;               /* as many as events */
	uint64_t rows, bad_rows, bytes;    /* of all partitions */
	uint8_t head[SL_AUDIT_HASH_BYTES]; /* hash of the last event */
	uint64_t delivered_files;          /* events 1 … N are in the event files; what is missing is backlog */
	uint64_t delivered_endpoint;       /* events 1 … N were accepted by the endpoint */
	const char *holder;                /* of the lease when it was last taken; NULL: it was given back */
	uint64_t fence;
};

/*
 * Say what the dataset is, under its lease: partition_size, sequence_column and schema. While nothing is committed the
 * last definition holds; afterwards they must be the same (SL_ECONFLICT names the field).
 */
SL_API SL_MUST_CHECK int sl_catalog_define(sl_catalog *c, sl_catalog_lease *lease, const struct sl_dataset *dataset,
					   struct sl_err *err);

struct sl_catalog_partition {
	size_t struct_size;
	enum sl_audit_type type; /* default SL_AUDIT_PARTITION */
	uint64_t start, end;     /* sequences, both in it */
	uint64_t rows;           /* in the file */
	uint64_t bad_rows;       /* diverted */
	uint64_t holes; /* sequences that the source does not have; rows + bad_rows + holes is end - start + 1 */
	uint64_t bytes; /* of the file */
	uint8_t sha256[SL_AUDIT_HASH_BYTES];
	const char *path;        /* relative to the export's folder, "NAME/partition-…/part-….parquet" */
	const char *hole_ranges; /* the holes in ascending order, "17,20-25"; NULL, as "": none */
	/* Filled when read, ignored by commit: */
	uint64_t event; /* the number of its event */
};

/*
 * Catalog row, audit event and checkpoint in one transaction, durable when 0 returns. *is_new (may be NULL): false when
 * it was committed before with the same contents. On a lost connection the outcome may be unknown: commit again.
 *
 * SL_AUDIT_PARTITION continues the dataset: start is checkpoint + 1, or anything for the first (SL_EGAP).
 * SL_AUDIT_BACKFILL lies below the checkpoint and overlaps nothing. SL_AUDIT_LATE lies in one hole of a committed
 * partition and overlaps nothing else that is late (SL_EINVAL). SL_ECONFLICT: the range is taken by a partition with
 * other contents. SL_EINVAL: crosses a boundary, counts that do not add up, a path that leads elsewhere, a dataset
 * that is not defined. SL_ESTALE: the lease is lost.
 */
SL_API SL_MUST_CHECK int sl_catalog_commit(sl_catalog *c, sl_catalog_lease *lease,
					   const struct sl_catalog_partition *partition, bool *is_new,
					   struct sl_err *err);

/* ---- reading; a callback returns 0 to continue, another value stops the walk and becomes its result ---- */

typedef int sl_dataset_fn(const struct sl_dataset *dataset, void *ctx);
typedef int sl_catalog_partition_fn(const struct sl_catalog_partition *partition, void *ctx);
/* event: the canonical text, without a line end. */
typedef int sl_catalog_event_fn(uint64_t number, const char *event, size_t len, void *ctx);

/* By name; name NULL: all that are defined, else that one (SL_ENOENT). */
SL_API SL_MUST_CHECK int sl_catalog_datasets(sl_catalog *c, const char *name, sl_dataset_fn *fn, void *ctx,
					     struct sl_err *err);
/* Partitions with start >= from in the order of start, at most limit (0: all). Late rows come after the partition whose
 * holes they lie in; of two with the same start, the one that was committed first. */
SL_API SL_MUST_CHECK int sl_catalog_partitions(sl_catalog *c, const char *dataset, uint64_t from, uint64_t limit,
					       sl_catalog_partition_fn *fn, void *ctx, struct sl_err *err);
/* Events after number `after` in order, at most limit (0: all). */
SL_API SL_MUST_CHECK int sl_catalog_events(sl_catalog *c, const char *dataset, uint64_t after, uint64_t limit,
					   sl_catalog_event_fn *fn, void *ctx, struct sl_err *err);

/* ---- the outbox: committed events go out, in order, at least once ---- */

struct sl_outbox_opts {
	size_t struct_size;
	const char *dir; /* the export's folder: events go to DIR/NAME/_audit/events-<number>.jsonl; NULL: no files */
	int64_t file_bytes;     /* a new file past this; default 16 MiB */
	const char *endpoint;   /* also POST them there as JSON lines; NULL: nowhere */
	const char *token_file; /* bearer token for the endpoint */
	const char *ca_file;    /* PEM */
	int64_t timeout_ms;     /* of a request; default 30 s */
	int64_t retry_ms;       /* the first wait after a failure, doubled up to 60 s; default 1 s */
	/* Called on the outbox's thread, without locks, at "before_outbox" and "outbox_written" (the files are synced).
	 */
	void (*on_step)(const char *step, uint64_t event, void *ctx);
	void *on_step_ctx;
};
#define SL_OUTBOX_OPTS_INIT .struct_size = sizeof(struct sl_outbox_opts)

/*
 * Start delivering on a separate thread, first what was left over. A torn last line, which a crash in the middle of a
 * write leaves, is cut off; lines that are there are never written again. A file that holds other events than the
 * catalog is SL_ECONFLICT from drain, and nothing is appended to it. The lease must outlive the outbox.
 */
SL_API SL_MUST_CHECK int sl_outbox_start(sl_catalog *c, sl_catalog_lease *lease, const struct sl_outbox_opts *opts,
					 sl_outbox **out, struct sl_err *err);
/* Wake the outbox: events were committed. Cheap; from any thread. */
SL_API void sl_outbox_wake(sl_outbox *o);
/* Wait until everything committed so far is delivered, at most timeout_ms (SL_UNLIMITED; SL_NONE: only try once).
 * SL_ETIMEDOUT, or the error that stands in the way. */
SL_API SL_MUST_CHECK int sl_outbox_drain(sl_outbox *o, int64_t timeout_ms, struct sl_err *err);
/* Ends a request that is under way; what is not delivered stays in the catalog. NULL is allowed. */
SL_API void sl_outbox_stop(sl_outbox *o);

#ifdef __cplusplus
}
#endif
#endif
