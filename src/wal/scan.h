/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading logs on disk without changing them: one pass collects what status records say, a second hands out records
 * with their effective status and the damage between them.
 */
#ifndef SL_WAL_SCAN_H
#define SL_WAL_SCAN_H

#include "wal/crypt.h"
#include "wal/survey.h"

#include <sluice/wal_files.h>

struct wal_scan {
	const struct sl_env *env;
	const struct wal_key *key; /* NULL: payloads stay sealed */
	sl_wal_record_fn *on_record;
	sl_wal_damage_fn *on_damage;
	void *ctx;
	int (*on_progress)(uint64_t done, uint64_t total, void *ctx);
	bool quiet; /* damage is ignored: a live log, whose tail is being written */
};

/* All segments of a stream. *stats may be NULL. */
SL_MUST_CHECK int sl__wal_scan_stream(const struct wal_scan *scan, const char *dir, const char *id,
				      struct sl_wal_stats *stats, struct sl_err *err);

#endif
