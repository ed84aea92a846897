/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Audit events inside the library: the canonical text, what a name and a path may be, and the order of a chain.
 *
 * Thread safety: no state.
 */
#ifndef SL_PIPELINE_AUDIT_EVENT_H
#define SL_PIPELINE_AUDIT_EVENT_H

#include "base/buf.h"
#include <sluice/audit.h>

#define SL__AUDIT_PATH_MAX 512
#define SL__AUDIT_FOLDER "_audit"

/* Is this a path below the dataset's folder that can be trusted to stay there? "NAME/…", no part that is empty or
 * begins with a dot or an underscore (readers of Parquet skip those), printable UTF-8, at most SL__AUDIT_PATH_MAX
 * bytes. */
SL_MUST_CHECK bool sl__audit_path_ok(const char *dataset, const char *path);

/* ---- a chain, event after event ---- */

struct sl__audit_chain {
	uint64_t events;
	uint8_t head[SL_AUDIT_HASH_BYTES];
};
/* Does the event continue the chain by its number and the hash before it? SL_ECORRUPT says why not. On success the
 * chain ends with it. */
SL_MUST_CHECK int sl__audit_chain_add(struct sl__audit_chain *chain, const struct sl_audit_event *event,
				      struct sl_err *err);

/* ---- scanning of canonical text, shared with heads ---- */

struct sl__audit_scan {
	const char *at, *end;
	char *storage, *storage_end;
	const char *why; /* NULL: all is well so far; else what was expected */
};
void sl__audit_scan_literal(struct sl__audit_scan *s, const char *literal);
/* A JSON string into storage. Returns "" after a failure. */
const char *sl__audit_scan_string(struct sl__audit_scan *s, const char *why);
/* A number as a JSON string. */
uint64_t sl__audit_scan_u64(struct sl__audit_scan *s, const char *why);
/* Hexadecimal digits between quotes: n bytes. */
void sl__audit_scan_hex(struct sl__audit_scan *s, uint8_t *out, size_t n, const char *why);

#endif
