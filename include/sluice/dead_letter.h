/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dead letters: a folder of append-only, checksummed files that keeps what could not be delivered, with why, so that a
 * person can list it, read it and drive it again. A letter is durable when put returns.
 *
 * Thread safety: put, list, show, ack and stats may be called from any thread. One process writes at a time (a lock;
 * the others get SL_ELOCKED); readers need none. Ownership: everything passed in is copied; what a callback sees lives
 * for the call.
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

struct sl_dlq_letter {
	uint64_t id;        /* given by put, from 1, never reused in a folder */
	const char *source; /* "wal:job-7", "load:bars.csv" …, at most 255 bytes */
	uint64_t position;  /* sequence, line or offset in the source; 0: none */
	const char *error;  /* text, cut at 4 KiB */
	int code;           /* SL_E… */
	enum sl_err_class error_class;
	uint32_t attempts;
	int64_t first_failed_ms, last_failed_ms; /* Unix milliseconds */
	const char *target;                      /* where it was going, without secrets; may be empty */
	const void *item;
	size_t item_len;  /* at most 64 MiB */
	int acknowledged; /* re-driven or purged by a person */
};

typedef int sl_dlq_fn(const struct sl_dlq_letter *letter, void *ctx);
typedef void sl_dlq_drop_fn(uint64_t first_id, uint64_t last_id, uint64_t unacknowledged, void *ctx);

struct sl_dlq_opts {
	size_t struct_size;
	const struct sl_env *env;
	int64_t max_bytes;  /* of the folder; default 1 GiB; SL_UNLIMITED */
	int64_t file_bytes; /* a new file past this; default 16 MiB */
	enum sl_dlq_on_full on_full;
	sl_dlq_drop_fn *on_drop; /* called by put's thread, without locks */
	void *on_drop_ctx;
	enum sl_switch read_only; /* on: no lock, no change; put, ack and purge fail; default off */
};
#define SL_DLQ_OPTS_INIT .struct_size = sizeof(struct sl_dlq_opts)

/* Makes dir (0700) unless read_only. A torn last letter is trimmed; a damaged one is passed over and counted. */
SL_API SL_MUST_CHECK int sl_dlq_open(sl_dlq **out, const char *dir, const struct sl_dlq_opts *opts, struct sl_err *err);
SL_API void sl_dlq_close(sl_dlq *q);

/* Durable when 0 returns; *id may be NULL. letter->id and acknowledged are ignored. */
SL_API SL_MUST_CHECK int sl_dlq_put(sl_dlq *q, const struct sl_dlq_letter *letter, uint64_t *id, struct sl_err *err);
/* Visit unacknowledged letters (all: also the others) in order of id. fn may not call q. */
SL_API SL_MUST_CHECK int sl_dlq_list(sl_dlq *q, int all, sl_dlq_fn *fn, void *ctx, struct sl_err *err);
/* One letter. SL_ENOENT. */
SL_API SL_MUST_CHECK int sl_dlq_show(sl_dlq *q, uint64_t id, sl_dlq_fn *fn, void *ctx, struct sl_err *err);
/* Mark as dealt with, durably. Idempotent. Files whose letters are all acknowledged are removed. SL_ENOENT. */
SL_API SL_MUST_CHECK int sl_dlq_ack(sl_dlq *q, uint64_t id, struct sl_err *err);
/* Drive every unacknowledged letter again: fn returns 0 when the item was accepted durably at its target, and the
 * letter is acknowledged; otherwise it stays and the walk goes on (stop with SL_ECANCELLED). Outputs may be NULL. */
SL_API SL_MUST_CHECK int sl_dlq_redrive(sl_dlq *q, sl_dlq_fn *fn, void *ctx, uint64_t *done, uint64_t *failed,
					struct sl_err *err);
/* Acknowledge everything that last failed before before_ms (0: everything) and remove what is empty. */
SL_API SL_MUST_CHECK int sl_dlq_purge(sl_dlq *q, int64_t before_ms, uint64_t *purged, struct sl_err *err);

struct sl_dlq_stats {
	size_t struct_size;
	uint64_t letters, unacknowledged, damaged, files;
	uint64_t bytes; /* as found on disk */
	int64_t oldest_ms;
};
SL_API SL_MUST_CHECK int sl_dlq_get_stats(sl_dlq *q, struct sl_dlq_stats *out, struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
