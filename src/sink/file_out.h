/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a file sink: opened, repaired, appended to, rotated.
 *
 * Guarantees: what append was given is in the file, synced, when it returns 0; otherwise nothing of it stays (it is cut
 * off immediately, or before the next append). After a crash, opening leaves whole records only; what was torn is moved to
 * PATH.torn-NNN, not deleted. A file that another process holds is refused. A file that was renamed or removed
 * (logrotate) is left alone, and a new one begun.
 * Not guaranteed: several processes on one file; rotation of a file to which nothing is appended.
 *
 * Thread safety: one thread at a time. Ownership: strings are borrowed and must outlive the struct.
 */
#ifndef SL_SINK_FILE_OUT_H
#define SL_SINK_FILE_OUT_H

#include "base/env.h"

enum sl__file_kind {
	SL__FILE_LINES = 0, /* a record ends with its line */
	SL__FILE_CSV = 1,   /* a record ends with a line outside of quotes */
	SL__FILE_ZSTD = 2   /* a record is in a whole frame */
};

/*
 * Between two syncs at most this many bytes are written. So what a crash can tear lies in this many bytes before the
 * end of the file, and only those are searched for it (CSV and zstd have to be followed from their beginning).
 */
#define SL__FILE_RECORD_MAX ((size_t)64 << 20)
#define SL__FILE_PIECE ((size_t)8 << 20) /* a longer batch is written in pieces */
#define SL__FILE_TAIL_MAX (SL__FILE_RECORD_MAX + 2 * SL__FILE_PIECE)

struct sl__file_out {
	const struct sl_env *env;
	const char *path;
	enum sl__file_kind kind;
	const char *header; /* written at the beginning of every file; NULL: none */
	size_t header_len;
	const char *header_text; /* the same, not compressed: what a file that is there must begin with */
	size_t header_text_len;
	int64_t rotate_bytes, rotate_ms; /* 0: never */

	int fd;            /* -1: not open now */
	bool moved;        /* the last file has another name now; the folder is not synced since */
	bool suspect;      /* an append has failed: there may be something after `end` */
	uint64_t dev, ino; /* of the open file */
	uint64_t end;      /* everything before it is whole and synced */
	int64_t born_ms;   /* Unix ms: its first record, or its last change when it was found */
};

/* Open, or create, the file, and repair it. Idempotent. */
SL_MUST_CHECK int sl__file_out_open(struct sl__file_out *f, struct sl_err *err);
void sl__file_out_close(struct sl__file_out *f);
/* Append n bytes: at most SL__FILE_TAIL_MAX. Rotates before when it is time. */
SL_MUST_CHECK int sl__file_out_append(struct sl__file_out *f, const void *data, size_t n, struct sl_err *err);

/* file_tail.c: where the last whole record of the open file of `size` bytes ends. SL_EIO and the like; SL_ENOMEM. */
SL_MUST_CHECK int sl__file_tail(const struct sl__file_out *f, uint64_t size, uint64_t *good, struct sl_err *err);
/* Does the file begin with this text? 1 or 0, or a negative SL_E…. */
SL_MUST_CHECK int sl__file_begins(const struct sl__file_out *f, const char *text, size_t len, struct sl_err *err);

#endif
