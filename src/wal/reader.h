/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading one segment from front to end: a window over the file (or over memory), and a walk that yields records,
 * damaged ranges and the end. The walk changes nothing; what to do about damage is the caller's matter.
 *
 * Thread safety: one thread per reader and walk.
 */
#ifndef SL_WAL_READER_H
#define SL_WAL_READER_H

#include "base/env.h"
#include "wal/format.h"

struct wal_reader {
	const struct sl_env *env;
	int fd;         /* not owned; -1: memory */
	uint64_t size;  /* of the file, or where the caller wants reading to stop */
	uint8_t *buf;   /* the window; owned unless in memory */
	size_t cap;     /* of buf */
	size_t len;     /* bytes in the window */
	uint64_t start; /* file offset of the window */
	int error;      /* errno of a failed read (a read error is not corruption) */
};

void sl__wal_reader_init(struct wal_reader *r, const struct sl_env *env, int fd, uint64_t size);
void sl__wal_reader_init_memory(struct wal_reader *r, const struct sl_env *env, const void *data, size_t size);
void sl__wal_reader_fini(struct wal_reader *r);
/* The bytes from offset: *got of them, min(want, what the file has). Valid until the next view. NULL with r->error set
 * when reading failed or there is no memory. */
const uint8_t *sl__wal_view(struct wal_reader *r, uint64_t offset, size_t want, size_t *got);

enum wal_step {
	WAL_STEP_ERROR = -1,
	WAL_STEP_RECORD,
	WAL_STEP_DAMAGE, /* a range that is not a record, with a valid record after it */
	WAL_STEP_END     /* the log ends at offset; length bytes of an unfinished write may follow, then zeros */
};

struct wal_item {
	uint64_t offset;
	uint64_t length;          /* of the damage, or of the torn tail (0: a clean end) */
	struct wal_record record; /* WAL_STEP_RECORD; the payload lives until the next step */
	const char *reason;       /* of damage or torn tail */
	uint64_t expected_crc, actual_crc;
};

struct wal_walk {
	struct wal_reader *r;
	uint64_t pos;
	uint64_t last;     /* the highest data sequence so far, of this and earlier segments; 0: none */
	uint64_t data_end; /* one past the last byte that is not zero, once it was looked for; 0: not yet */
};

/* Start after the header. last: the highest data sequence of the segments before. */
void sl__wal_walk_init(struct wal_walk *w, struct wal_reader *r, uint64_t last);
enum wal_step sl__wal_walk_next(struct wal_walk *w, struct wal_item *item, struct sl_err *err);

#endif
