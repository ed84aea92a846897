/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The asynchronous sender: what the other files of the log may ask of it, and the state that its files share.
 *
 *   sender.c         start, stop, the thread
 *   sender_step.c    sending a batch, replies, parking
 *   sender_batch.c   what the next batch holds
 *   letter.c         dead letters
 *
 * Thread safety: the functions need mu. Of the state, what is above the line is guarded by mu, the rest is the
 * thread's.
 */
#ifndef SL_WAL_SENDER_H
#define SL_WAL_SENDER_H

#include "wal/handle.h"

enum sender_phase { SENDER_IDLE, SENDER_RUNNING, SENDER_STOPPING };

#define SENDER_MAX_RECORDS 65536 /* of a batch, whatever batch_records says */
#define SENDER_MAX_SKIPPED 64u   /* ranges in a batch */
#define SENDER_MAX_UNTRIED 3u    /* new incarnations in a row: a receiver that has a conflict for each is broken */
#define SENDER_REPLAY 16384u     /* settled records looked up at a time: each time reads the whole log */

/* A record that the receiver will never take. */
struct sender_refusal {
	uint64_t sequence; /* 0: none */
	uint32_t attempts;
	int64_t first_ms, last_ms;
	bool parked; /* its letter is durable */
	struct sl_err why;
};

enum sender_work {
	SENDER_NOTHING,
	SENDER_ASK,   /* an empty batch, to learn the mark */
	SENDER_SEND,  /* the planned batch */
	SENDER_PARK,  /* the refused record, which is the next one */
	SENDER_FIND,  /* settled records that the receiver does not have: look them up in the files */
	SENDER_PROBE, /* the last acknowledged record once more: does the receiver still have it? */
	SENDER_RENEW  /* a new incarnation is to be written to the log before anything is sent under it */
};

struct wal_sender_state {
	/* ---- guarded by mu ---- */
	enum sender_phase phase;
	enum sl_wal_sender_state show;
	bool thread_done, in_send;
	int64_t stop_at_ns;  /* STOPPING: no send begins after this */
	uint64_t stop_after; /* STOPPING: what was pending when stop was called */
	sl__cond done_cv;    /* the thread has ended, or stop_at_ns moved */
	bool mark_known;
	uint64_t mark;               /* the receiver's last answer */
	struct sl_wal_mark compared; /* the last mark that was found to be of this log; kind UNKNOWN: none */
	uint32_t n_untried;          /* new incarnations in a row under which nothing was taken */
	uint64_t probe;              /* SENDER_PROBE; 0: none */
	struct sl_err probe_why;     /* how log and receiver differ */
	struct sl_err halt;          /* code 0: not halted */
	struct sl_err trouble;       /* the last failure, for stop's report; code 0: none */
	/* ---- fixed while the thread runs ---- */
	const struct sl_wal_sender *table;
	void *ctx;
	pthread_t thread;
	/* ---- the thread's own ---- */
	bool finished;
	struct sl__prng prng;
	uint32_t failures; /* in a row */
	int64_t retry_at_ns;
	int64_t linger_until_ns; /* SL_FOREVER: no batch waits for more */
	size_t limit;      /* records of the next batch, while one that was refused is searched; 0: as configured */
	uint64_t suspects; /* the search ends after this sequence */
	struct sender_refusal refusal;
	struct wal_entry *replay; /* settled records that are to be sent again, in order; SENDER_REPLAY places, made
				     when needed */
	size_t n_replay;
	uint64_t find_from; /* SENDER_FIND */
	/* the planned batch */
	size_t cap;
	struct wal_entry *entries;
	struct sl_wal_record *records;
	uint8_t **owned;
	size_t n, n_read; /* planned, and read into memory */
	struct sl_wal_range skipped[SENDER_MAX_SKIPPED];
	size_t n_skipped;
};

/* ---- sender.c ---- */
bool sl__wal_sender_idle(const sl_wal *w) SL_REQUIRES(w->mu);

/* ---- sender_step.c ---- */
/* Do one piece of work and settle what it brought; mu is released meanwhile. */
void sl__wal_sender_do(sl_wal *w, enum sender_work work) SL_REQUIRES(w->mu);
/* Wait for better times. */
void sl__wal_sender_no_memory(sl_wal *w) SL_REQUIRES(w->mu);

/* ---- sender_batch.c ---- */
SL_MUST_CHECK int sl__wal_sender_alloc(sl_wal *w, struct wal_sender_state *s);
void sl__wal_sender_release(sl_wal *w, struct wal_sender_state *s);
/* What to do next; for SEND and PARK, entries and skipped are filled. */
enum sender_work sl__wal_sender_plan(sl_wal *w, struct wal_sender_state *s) SL_REQUIRES(w->mu);
/* Read the planned records. When some cannot be read, the batch is those before; when the first cannot, its error. */
SL_MUST_CHECK int sl__wal_sender_read(sl_wal *w, struct wal_sender_state *s, struct sl_err *err);
void sl__wal_sender_drop(sl_wal *w, struct wal_sender_state *s);
/* The CRC of a record, pending or settled. SL_ENOENT: it is not in the files. */
SL_MUST_CHECK int sl__wal_sender_crc(sl_wal *w, uint64_t sequence, uint64_t *crc, struct sl_err *err);
/* Look up settled records from find_from on. SL_ECONFLICT when that one is no longer in the files. */
SL_MUST_CHECK int sl__wal_sender_find(sl_wal *w, struct wal_sender_state *s, struct sl_err *err);

/* ---- letter.c: records that the receiver refused, as dead letters ---- */
/* What was sealed in the log stays sealed: the item of such a dead letter is a small separate log, a header of version 2
 * and the record as it was stored, and its encoding marks it so. The stream that it is sealed for is its source. No mu.
 */
/* A record as it lies in its segment. */
struct wal_stored {
	uint8_t *bytes;           /* all of it, in fresh memory */
	struct wal_record record; /* points into bytes; the payload as stored */
	uint32_t version;         /* of its segment: 2, and the payload is sealed */
};

/* Read the record of entry without opening its payload (read.c). SL_ECORRUPT when it fails its CRC. No mu. */
SL_MUST_CHECK int sl__wal_read_stored(sl_wal *w, const struct wal_entry *entry, struct wal_stored *out,
				      struct sl_err *err);
/* The dead letter is durable when 0 returns. */
SL_MUST_CHECK int sl__wal_put_letter(sl_wal *w, const struct wal_stored *stored, const struct sender_refusal *why,
				     struct sl_err *err);

#endif
