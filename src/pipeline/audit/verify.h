/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verification, in phases that share one state: the event files, the catalog, the order of events, the head, the tree
 * of files, and then every file, in parallel.
 *
 * Nothing is locked, and an export or a backfill may run meanwhile. It does, for each partition and in this order:
 *
 *	file renamed → catalog transaction (partition, event, dataset) → event file → delivered_files
 *
 * and a head is made from the event files. Verification reads against that order, so that what it has read claims
 * nothing which what it reads afterwards cannot have:
 *
 *	head, delivered_files → event files → the catalog, in one snapshot → the tree and the files
 *
 *  1. What the head or delivered_files says is in the event files.
 *  2. What is in the event files is in the snapshot. What the snapshot has beyond them is backlog.
 *  3. Dataset, events and partitions of the snapshot agree: a transaction wrote them.
 *  4. Every file of the snapshot's events is in its place. A file beyond them is one that no event of the snapshot
 *     names yet, and holds no sequence that one of them holds.
 *
 * A phase returns 0 to continue, SL__VERIFY_STOP when enough was found (or the caller's callback said so), or a negative
 * SL_E… for what kept it from looking. What is wrong with the export is never an error here, always a finding.
 *
 * Thread safety: only verify_files has threads, and they see the state without changing it.
 */
#ifndef SL_PIPELINE_AUDIT_VERIFY_H
#define SL_PIPELINE_AUDIT_VERIFY_H

#include "base/buf.h"
#include "pipeline/audit/event.h"
#include <sluice/catalog.h>

#define SL__VERIFY_STOP 1

/* An event that could be read. */
struct sl__verify_entry {
	uint64_t number, start, end, rows, bad_rows, holes, bytes;
	uint8_t hash[SL_AUDIT_HASH_BYTES], sha256[SL_AUDIT_HASH_BYTES];
	enum sl_audit_type type;
	bool in_files;     /* false: only in the catalog so far */
	char *path;        /* relative to dir; ours */
	char *hole_ranges; /* as in the event, or the text whose hash that has; ours */
};

struct sl__verify {
	struct sl_env env;
	struct sl_audit_verify_opts opts;
	const char *dir, *dataset;
	struct sl_audit_result result;
	int callback_rc; /* what the caller's callback ended it with */

	struct sl__verify_entry *entries; /* in the order of the chain */
	size_t n, cap;
	size_t *by_start, *by_path; /* numbers of entries, sorted; by_start has late ones after all others */
	size_t n_late;
	/* What all events say alike, from the first. */
	bool has_common;
	uint64_t partition_size;
	char sequence_column[256];
	uint8_t schema_sha256[SL_AUDIT_HASH_BYTES];
	struct sl__audit_chain chain;
	uint64_t file_events; /* lines in the event files, damaged ones too */
	bool torn;            /* the last file ends in the middle of a line; reported when the catalog has been asked */
	char torn_file[64];
	bool has_folder;
	bool undefined; /* the catalog's row is that of a lease: no run has come so far as to say what the dataset is */

	/* What was read before the event files. */
	sl_catalog *catalog; /* NULL with catalog_why.code 0: no catalog */
	struct sl_err catalog_why;
	uint64_t delivered; /* events that the catalog says are in the files */
	char head[SL_AUDIT_HEAD_BYTES];
	size_t head_len;
	struct sl_err head_why;
};

/* Report a finding or a note. path is relative to dir; "" is dir itself; NULL: text alone says where. */
SL_MUST_CHECK int sl__verify_report(struct sl__verify *v, enum sl_audit_fault fault, uint64_t event, const char *path,
				    const char *fmt, ...) SL_PRINTF(5, 6);
/* Keep the event. 0 or SL_ENOMEM. */
SL_MUST_CHECK int sl__verify_add(struct sl__verify *v, const struct sl_audit_event *event, bool in_files,
				 struct sl_err *err);
/* Does the event agree with the others on what they have in common? Reports when not. */
SL_MUST_CHECK int sl__verify_common(struct sl__verify *v, const struct sl_audit_event *event, const char *path);

/* Is this the text of holes that an event has, or whose hash it has? */
bool sl__verify_same_holes(const char *text, const char *of_event);

/* SL_ENOENT: there is no such dataset. */
int sl__verify_nothing(const struct sl__verify *v, struct sl_err *err);

SL_MUST_CHECK int sl__verify_events(struct sl__verify *v, struct sl_err *err);
SL_MUST_CHECK int sl__verify_catalog(struct sl__verify *v, struct sl_err *err);
/* Sorts as well: before tree and files. */
SL_MUST_CHECK int sl__verify_order(struct sl__verify *v, struct sl_err *err);
/* How many of by_start begin at or before the sequence; late rows do not count. */
size_t sl__verify_at(const struct sl__verify *v, uint64_t sequence);
SL_MUST_CHECK int sl__verify_head(struct sl__verify *v, struct sl_err *err);
SL_MUST_CHECK int sl__verify_tree(struct sl__verify *v, struct sl_err *err);
SL_MUST_CHECK int sl__verify_files(struct sl__verify *v, struct sl_err *err);

#endif
