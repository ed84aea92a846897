/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quarantining damage. Nothing is thrown away: bytes that leave a log are kept next to it, synced, before they leave.
 * Every step can be repeated after a crash.
 */
#ifndef SL_WAL_REPAIR_H
#define SL_WAL_REPAIR_H

#include "wal/handle.h"
#include "wal/survey.h"

struct wal_bytes {
	int fd;
	uint64_t offset, length;
};
/* Keep a copy of the bytes as <dir>/<name>.<kind>-<offset>, synced with its folder. The same bytes under that name
 * already are enough; other bytes get ".2", ".3" … after the name. */
SL_MUST_CHECK int sl__wal_quarantine(const sl_wal *w, struct wal_bytes bytes, const char *name, const char *kind,
				     struct sl_err *err);
/* Rename a whole file to <path>.<suffix> (".2" … when taken). The folder is synced before recovery ends (V4), or before
 * a new file takes the name; one that comes back until then is moved again. */
SL_MUST_CHECK int sl__wal_move_aside(const sl_wal *w, const char *path, const char *suffix, struct sl_err *err);
/* Below, a hole is a range of sequences that are not there, none when its first is 0, and a source without named_first
 * is the active file: what replaces it also replaces w->fd. */
/* Rewrite the segment without its damaged ranges, which are quarantined, and with the holes declared at its end. */
SL_MUST_CHECK int sl__wal_salvage(sl_wal *w, const struct wal_source *src, const struct sl_wal_range *holes,
				  size_t n_holes, struct sl_err *err);
/* Declare a hole at the end of the active file, synced, and move active->end past it. A torn tail is quarantined first.
 */
SL_MUST_CHECK int sl__wal_declare(sl_wal *w, struct wal_source *active, struct sl_wal_range hole, struct sl_err *err);
/* Cut the segment at offset; the hole is declared in place of what was there. */
SL_MUST_CHECK int sl__wal_cut(sl_wal *w, const struct wal_source *src, uint64_t offset, struct sl_wal_range hole,
			      struct sl_err *err);
/* Put a new active file with header h and the hole in the place of one whose bytes, all of them, are quarantined. */
SL_MUST_CHECK int sl__wal_replace(sl_wal *w, const struct wal_source *active, struct wal_header h,
				  struct sl_wal_range hole, struct sl_err *err);
/* Put a sound header over a damaged one. */
SL_MUST_CHECK int sl__wal_fix_header(const sl_wal *w, const struct wal_source *src, struct wal_header h,
				     struct sl_err *err);
/* Restart the stream: a new active file with the pending records, numbered from 1, under a new incarnation. The old
 * active file is kept as <name>.old-<incarnation>; sealed segments are moved aside by the recovery that must follow. */
SL_MUST_CHECK int sl__wal_reincarnate(sl_wal *w, struct sl_err *err);

#endif
