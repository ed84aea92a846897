/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dead letters: a folder of append-only, checksummed files that keeps what could not be delivered, with why, so that a
 * person can list it, read it and redrive it.
 *
 * Guarantees
 *  - When put returns 0, the letter survives kill -9 and power loss; when ack returns 0, so does the acknowledgement.
 *  - An id is never given twice in a folder, also when letters were removed or damaged in between.
 *  - A damaged letter is noticed, skipped, counted and kept on disk; every good one around it is still there. A
 *    torn tail is kept as <file>.torn-<offset> when it is trimmed.
 *  - The folder stays within max_bytes, apart from acknowledgements (56 bytes each), which are always taken.
 * Not guaranteed: that a put which failed left nothing; after a failed sync its letter may be there, and be put twice.
 *
 * Thread safety: all functions on an open handle may be called from any thread at once, except close, which must be the
 * last call. Callbacks run on the caller's thread without locks and may use the handle. One process writes at a time (a
 * lock that ends with the process; the others get SL_ELOCKED); readers need none. A handle does not work in a forked
 * child (SL_EFORKED). Ownership: everything passed in is copied; what a callback sees lives for the call.
 *
 * docs/formats/dead_letter.md has the bytes.
 */
#ifndef SLUICE_DEAD_LETTER_H
#define SLUICE_DEAD_LETTER_H

#include <sluice/adapter/env.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_dlq sl_dlq;

enum sl_dlq_on_full {
	SL_DLQ_REFUSE = 0,     /* put fails with SL_EFULL (default) */
	SL_DLQ_DROP_OLDEST = 1 /* the oldest file goes, with a log record and the drop callback */
};

/* How the item is stored. Zero is what programs put; the log puts sealed records of encrypted logs. */
enum sl_dlq_encoding {
	SL_DLQ_PLAIN = 0, /* as it was given */
	SL_DLQ_SEALED = 1 /* a sealed record of a log; sl_wal_open_letter (<sluice/wal_files.h>) opens it */
};

struct sl_dlq_letter {
	size_t struct_size; /* SL_DLQ_LETTER_INIT fills it */
	uint64_t id;        /* given by put, from 1, never reused in a folder */
	const char *source; /* "wal:job-7", "load:bars.csv" …, at most 255 bytes; NULL is "" */
	uint64_t position;  /* sequence, line or offset in the source; 0: none */
	const char *error;  /* text, cut at 4 KiB */
	int code;           /* SL_E… */
	enum sl_err_class error_class;
	uint32_t attempts;
	int64_t first_failed_ms, last_failed_ms; /* Unix milliseconds; 0 in put: now */
	const char *target;                      /* where it was going, without secrets; at most 4 KiB; NULL is "" */
	const void *item;
	size_t item_len;               /* at most 64 MiB */
	bool acknowledged;             /* redriven or purged by a person */
	enum sl_dlq_encoding encoding; /* of the item */
};
#define SL_DLQ_LETTER_INIT .struct_size = sizeof(struct sl_dlq_letter)

/* Return 0 to continue; another value stops the walk and becomes its result (but see redrive). */
typedef int sl_dlq_fn(const struct sl_dlq_letter *letter, void *ctx);
/* Letters first_id … last_id are gone; n of them were not acknowledged. */
typedef void sl_dlq_drop_fn(uint64_t first_id, uint64_t last_id, uint64_t unacknowledged, void *ctx);

struct sl_dlq_opts {
	size_t struct_size;
	const struct sl_env *env;
	int64_t max_bytes;  /* of the folder; default 1 GiB; SL_UNLIMITED */
	int64_t file_bytes; /* a new file past this; default 16 MiB, 4 KiB to 1 GiB, at most an eighth of max_bytes */
	enum sl_dlq_on_full on_full;
	sl_dlq_drop_fn *on_drop; /* called by put's thread, without locks */
	void *on_drop_ctx;
	enum sl_switch read_only; /* on: no lock, no change; put, ack and purge fail; default off */
};
#define SL_DLQ_OPTS_INIT .struct_size = sizeof(struct sl_dlq_opts)

/*
 * Makes dir (0700) unless read_only. A writer trims torn tails and syncs what it found before it returns. SL_EINVAL
 * (names the field), SL_ELOCKED, SL_EUNSUPPORTED (a later format version), SL_ENOENT (read_only), SL_EIO … *out is
 * untouched on failure. A read_only handle sees at each call what was written meanwhile.
 */
SL_API SL_MUST_CHECK int sl_dlq_open(sl_dlq **out, const char *dir, const struct sl_dlq_opts *opts, struct sl_err *err);
/* Writes a record of the close, so that damage to the last letter is not taken for a torn write. NULL is allowed. */
SL_API void sl_dlq_close(sl_dlq *q);

/* Durable when 0 returns; *id may be NULL. letter->id and acknowledged are ignored. SL_EINVAL, SL_ETOOBIG, SL_EFULL;
 * SL_ENOSPC (usable again when there is space); SL_EPOISONED (an earlier sync or write failed: close and open). */
SL_API SL_MUST_CHECK int sl_dlq_put(sl_dlq *q, const struct sl_dlq_letter *letter, uint64_t *id, struct sl_err *err);
/* Visit unacknowledged letters (all: also the others) in order of id; those put during the walk are not seen. */
SL_API SL_MUST_CHECK int sl_dlq_list(sl_dlq *q, bool all, sl_dlq_fn *fn, void *ctx, struct sl_err *err);
/* One letter, acknowledged or not. SL_ENOENT also when it was damaged or removed. */
SL_API SL_MUST_CHECK int sl_dlq_show(sl_dlq *q, uint64_t id, sl_dlq_fn *fn, void *ctx, struct sl_err *err);
/* Mark as dealt with, durably. Idempotent, also when the letter's file is gone since. Files whose letters are all
 * acknowledged are removed, unless they have damage. SL_ENOENT: never given, or damaged. */
SL_API SL_MUST_CHECK int sl_dlq_ack(sl_dlq *q, uint64_t id, struct sl_err *err);
/* Redrive every unacknowledged letter: fn returns 0 when the item was accepted durably at its target, and the
 * letter is acknowledged, durably, before the next one; otherwise it stays and the walk continues. SL_ECANCELLED from
 * fn stops it and is returned. The outputs (may be NULL) are written in any case. SL_EAGAIN: another redrive is
 * running.
 */
SL_API SL_MUST_CHECK int sl_dlq_redrive(sl_dlq *q, sl_dlq_fn *fn, void *ctx, uint64_t *done, uint64_t *failed,
					struct sl_err *err);
/* Acknowledge everything that last failed before before_ms and remove what is done with. 0: remove everything, also
 * damaged files and torn tails. *purged (may be NULL): letters that had not been acknowledged. */
SL_API SL_MUST_CHECK int sl_dlq_purge(sl_dlq *q, int64_t before_ms, uint64_t *purged, struct sl_err *err);

struct sl_dlq_stats {
	size_t struct_size;
	uint64_t letters, unacknowledged, damaged, files;
	uint64_t bytes;    /* as found on disk, with torn tails */
	int64_t oldest_ms; /* last_failed_ms of the first unacknowledged letter; 0: none */
};
/* A snapshot of the counts. struct_size must be set. */
SL_API SL_MUST_CHECK int sl_dlq_get_stats(sl_dlq *q, struct sl_dlq_stats *out, struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
