/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records that the receiver refused, as dead letters. What was sealed in the log stays sealed: such a letter's item is
 * a small separate log, a header of version 2 and the record as it was stored, and says so by its encoding. The
 * stream that it is sealed for is the letter's source.
 *
 * Thread safety: as a handle's functions; no lock is held. Ownership: sl__free for the bytes of a stored record.
 */
#ifndef SL_WAL_LETTER_H
#define SL_WAL_LETTER_H

#include "wal/sender.h"

/* A record as it lies in its segment. */
struct wal_stored {
	uint8_t *bytes;           /* all of it, in fresh memory */
	struct wal_record record; /* points into bytes; the payload as stored */
	uint32_t version;         /* of its segment: 2, and the payload is sealed */
};

/* Read the record of entry without opening its payload (read.c). SL_ECORRUPT when it fails its CRC. No mu. */
SL_MUST_CHECK int sl__wal_read_stored(sl_wal *w, const struct wal_entry *entry, struct wal_stored *out,
				      struct sl_err *err);
/* The letter is durable when 0 returns. */
SL_MUST_CHECK int sl__wal_put_letter(sl_wal *w, const struct wal_stored *stored, const struct sender_refusal *why,
				     struct sl_err *err);

#endif
