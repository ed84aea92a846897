/* SPDX-License-Identifier: Apache-2.0 */
/* Archives by name: <segment>.zst, and where that is taken <segment>[.<incarnation>][-N].zst. */
#ifndef SL_WAL_ARCHIVE_H
#define SL_WAL_ARCHIVE_H

#include "base/base.h"

/* Is this the name (no folder) of an archive? *id_len is the length of the stream's id in front. */
bool sl__wal_archive_name(const char *name, size_t *id_len);
/* Of an archive that is being written: .<archive>.tmp-<hexadecimal>. *id_at is where the id begins. */
bool sl__wal_archive_temp_name(const char *name, const char **id_at, size_t *id_len);

#endif
