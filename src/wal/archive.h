/* SPDX-License-Identifier: Apache-2.0 */
/* Archives by name: <segment>.zst, and where that is taken <segment>[.<incarnation>][-N].zst. No state. */
#ifndef SL_WAL_ARCHIVE_H
#define SL_WAL_ARCHIVE_H

#include "base/env.h"

/* Is this the name (no folder) of an archive? *id_len is the length of the stream's id in front. */
bool sl__wal_archive_name(const char *name, size_t *id_len);
/* Of an archive that is being written: .<archive>.tmp-<hexadecimal>. *id_at is where the id begins. */
bool sl__wal_archive_temp_name(const char *name, const char **id_at, size_t *id_len);

struct wal_publication {
	const struct sl_env *env;
	const char *dir;     /* exists */
	const char *segment; /* file name, without its folder */
	uint32_t incarnation;
	int level;
	int fd; /* of the segment */
	uint64_t bytes;
};
/* When 0 returns, an archive that holds the segment's bytes is in dir, synced with its name, and was read back. One
 * that was there already is enough; no other is touched. */
SL_MUST_CHECK int sl__wal_publish(const struct wal_publication *p, struct sl_err *err);

/* Is it what a recovery put aside: <segment>.torn-<offset>, .damaged-<offset> or .old-<incarnation>, perhaps with .N?
 */
bool sl__wal_quarantine_name(const char *name);

#endif
