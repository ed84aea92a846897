/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The write-ahead log: a durable, ordered stream of records on local disk, with an asynchronous sender that delivers
 * them to a receiver for as long as it takes.
 *
 * Guarantees
 *  - When append or wait returns 0, the record survives kill -9 and power loss.
 *  - Sequences start at 1 and grow by exactly 1; a sequence that was ever acknowledged or delivered is never given to
 *    another payload of the same (id, incarnation).
 *  - Damage is noticed (CRC-64/NVME), reported and quarantined; good records after it are kept.
 *  - A record ends acknowledged by the receiver, or parked in the dead letters, or pending in the log.
 * Not guaranteed: exactly-once delivery by itself (the receiver must be idempotent by stream, incarnation, sequence),
 * and durability on hardware that lies about flushes.
 *
 * Thread safety: all functions on an open handle may be called from any thread at once, except close, which must be
 * the last call. A handle does not work in a forked child (SL_EFORKED).
 * Ownership: payloads are copied before a call returns; strings in options are copied.
 *
 * Files: <dir>/<id>.wal is active, <dir>/<id>.wal.<first sequence> are sealed segments. docs/formats/wal.md has the
 * bytes. <sluice/wal_files.h> reads, recovers and archives them without a handle.
 *
 * Names of the specification: NewWAL is sl_wal_open and WALConfig struct sl_wal_opts; Append, Start, Stop and Archive are
 * sl_wal_append, sl_wal_sender_start, sl_wal_sender_stop and sl_wal_archive; an EventSender is a struct sl_wal_sender;
 * RecordPending, RecordSent and RecordFailed are SL_WAL_PENDING, SL_WAL_SENT and SL_WAL_FAILED. The EventBatcher is part
 * of the worker, which appends a batch by sl_wal_append_many.
 */
#ifndef SLUICE_WAL_H
#define SLUICE_WAL_H

#include <sluice/adapter/env.h>
#include <sluice/retry.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_WAL_MAX_PAYLOAD ((size_t)16 * 1024 * 1024 - 32) /* a record is at most 16 MiB with its 32 bytes of frame */

typedef struct sl_wal sl_wal;

enum sl_wal_status { SL_WAL_PENDING = 1, SL_WAL_SENT = 2, SL_WAL_FAILED = 3 };

enum sl_wal_on_corruption {
	SL_WAL_SALVAGE = 0,  /* quarantine the damage, keep every good record, declare the hole (default) */
	SL_WAL_TRUNCATE = 1, /* cut the log at the first damage; the bytes cut off are quarantined */
	SL_WAL_REFUSE = 2    /* change nothing and fail with SL_ECORRUPT */
};

enum sl_wal_on_full {
	SL_WAL_FULL_AUTO = 0,  /* block while a sender runs, else fail with SL_EFULL (default) */
	SL_WAL_FULL_BLOCK = 1, /* wait for room */
	SL_WAL_FULL_ERROR = 2  /* fail with SL_EFULL at once */
};

/* Called by sl_wal_sweep with each orphan that it has opened, before anything of it is sent: to append what belongs to
 * it and still lies elsewhere. path is its active file. An error leaves the log as it is, for a later sweep. */
typedef int sl_wal_orphan_fn(sl_wal *w, const char *path, struct sl_err *err, void *ctx);

struct sl_wal_opts {
	size_t struct_size; /* SL_WAL_OPTS_INIT fills it */
	const struct sl_env *env;
	const char *wal_dir;                  /* default ~/.sluice/wal; made with mode 0700 when missing */
	const char *archive_dir;              /* default ~/.sluice/archive */
	int32_t retention_days;               /* of archives; default 30; SL_UNLIMITED */
	int64_t flush_interval_ms;            /* the longest the sender sleeps while records are pending; default 100 */
	struct sl_retry_policy retry_backoff; /* of the sender; zero fields from SL_RETRY_WAL */
	enum sl_switch archive_on_complete;   /* sl_wal_complete and sealed, settled segments; default on */
	int32_t archive_level;                /* zstd; default 3 */
	int64_t segment_bytes;                /* seal past this; default 64 MiB; at least 4 KiB */
	int64_t max_pending_bytes;            /* bound of the backlog; default 1 GiB; SL_UNLIMITED */
	enum sl_wal_on_full on_full;
	int32_t batch_records; /* per send; default 50 */
	int64_t batch_bytes;   /* per send; default 256 KiB; one larger record goes alone */
	enum sl_wal_on_corruption on_corruption;
	const char *key_file;        /* 32 raw or 64 hexadecimal bytes, mode 0600; new logs are encrypted (version 2) */
	const char *dead_letter_dir; /* default <wal_dir>/<id>.dead */
	/* A helper thread prepares space ahead, flushes submitted records that no caller waits for and writes sent
	 * marks; off: all of that happens inside calls, and submitted records are flushed by wait, append, sync or
	 * close. */
	enum sl_switch background;
	int64_t prepare_max_bytes;   /* zeros written ahead at most; default 4 MiB; SL_NONE: never ahead */
	sl_wal_orphan_fn *on_orphan; /* of sl_wal_sweep only; e.g. sl_exec_recover_orphan of <sluice/exec.h> */
	void *on_orphan_ctx;
	int64_t linger_ms; /* a batch that could take more waits this long for it; default 0, at most 10,000 */
	/* on: instead of being archived, sealed segments that are settled are removed, and so is everything by
	 * sl_wal_complete. For logs that only bridge a crash. Default off. */
	enum sl_switch discard_settled;
};
#define SL_WAL_OPTS_INIT .struct_size = sizeof(struct sl_wal_opts)

/*
 * Open the log of stream id, creating or recovering it; id matches [A-Za-z0-9_-][A-Za-z0-9._-]* and has no ".wal".
 * When 0 returns, the log and its directory entry are synced and *out owns the log's lock. Errors: SL_EINVAL (names the
 * field), SL_ELOCKED (another process or handle has it), SL_ECORRUPT (REFUSE, or not a log), SL_EKEY, SL_EUNSUPPORTED
 * (a later format version), SL_EIO … *out is untouched on failure.
 */
SL_API SL_MUST_CHECK int sl_wal_open(sl_wal **out, const char *id, const struct sl_wal_opts *opts, struct sl_err *err);

/* Flush what was submitted, stop the sender if it runs (without a final flush of pending records), write the sent
 * marks, trim the file and release everything. Returns the first error, but w is gone in any case. NULL is allowed. */
SL_API int sl_wal_close(sl_wal *w, struct sl_err *err);

/*
 * Append a record. Durable when 0 returns; *sequence (may be NULL) is its number. On failure it is not in the log and
 * will not appear after a recovery. SL_ETOOBIG; SL_ENOSPC (usable again when there is space); SL_EFULL (backlog);
 * SL_EPOISONED (a sync failed earlier: sl_wal_reopen, or close and open again).
 */
SL_API SL_MUST_CHECK int sl_wal_append(sl_wal *w, const void *payload, size_t len, uint64_t *sequence,
				       struct sl_err *err);

/*
 * Make a log that failed usable again, if that is possible now; all users of the handle continue with it. 0: it
 * takes records. A poisoned log is checked, cut to its last durable record and synced; a disk that was full must have
 * room for the next flush. Tickets of flushes that failed stay failed. Harmless on a log that works. Errors: as append;
 * SL_ECORRUPT when acknowledged records are damaged (close and open again recovers the others).
 */
SL_API SL_MUST_CHECK int sl_wal_reopen(sl_wal *w, struct sl_err *err);

struct sl_wal_span {
	const void *data;
	size_t len;
};

/* Append n records, in order and consecutively numbered from *first_sequence. All are durable when 0 returns; on
 * failure *n_durable (may be NULL) says how many of the first are; the others are not
 * in the log. */
SL_API SL_MUST_CHECK int sl_wal_append_many(sl_wal *w, const struct sl_wal_span *records, size_t n,
					    uint64_t *first_sequence, size_t *n_durable, struct sl_err *err);

/* A record on its way to disk. Plain values: copy freely, nothing to free. */
struct sl_wal_ticket {
	uint64_t sequence;
	uint64_t batch; /* internal: which flush carries it */
};

/* Hand a record over without waiting. The order of submits is the order of sequences. May block when the buffers of two
 * flushes are full. The sequence is final only once the ticket succeeded: a flush that
 * fails takes all records submitted before its failure with it, and their numbers are given to later ones. */
SL_API SL_MUST_CHECK int sl_wal_submit(sl_wal *w, const void *payload, size_t len, struct sl_wal_ticket *ticket,
				       struct sl_err *err);
/* Hand as many of the first of n records over as fit one flush, *n_submitted, at least one: they are in the log all or
 * none. *ticket is of the last of them. When the order matters, wait for it before the others follow: records of a
 * later flush may get into the log after those of an earlier one did not. */
SL_API SL_MUST_CHECK int sl_wal_submit_many(sl_wal *w, const struct sl_wal_span *records, size_t n,
					    struct sl_wal_ticket *ticket, size_t *n_submitted, struct sl_err *err);
/* 0: durable. SL_ETIMEDOUT: not yet (timeout_ms 0 asks without waiting, SL_UNLIMITED waits). Others: that record is not
 * in the log. SL_ESTALE: the outcome is no longer known (4,096 separate failures ago). */
SL_API SL_MUST_CHECK int sl_wal_wait(sl_wal *w, const struct sl_wal_ticket *ticket, int64_t timeout_ms,
				     struct sl_err *err);
/* Wait until all that was submitted before this call is durable. */
SL_API SL_MUST_CHECK int sl_wal_sync(sl_wal *w, struct sl_err *err);
/* A descriptor for poll(2): readable after a flush ended, until sl_wal_fd_clear. Belongs to w. Made on the first call;
 * needs the background thread. Negative SL_E… on failure. */
SL_API int sl_wal_fd(sl_wal *w, struct sl_err *err);
SL_API void sl_wal_fd_clear(sl_wal *w);

struct sl_wal_record {
	uint64_t sequence;
	enum sl_wal_status status; /* the effective one */
	int64_t timestamp_ms;      /* Unix milliseconds of the append */
	const void *payload;       /* decrypted; lives until the callback or call returns */
	size_t payload_len;
	uint64_t offset;     /* in its segment */
	uint64_t length;     /* the Length field: bytes in the file after itself */
	uint64_t crc;        /* of the record as stored */
	const char *segment; /* file name, without its folder */
};

/* Return 0 to continue; another value stops the walk and becomes its result. */
typedef int sl_wal_record_fn(const struct sl_wal_record *record, void *ctx);

/* Visit data records from `from` (0: the first) that are durable now, in order. Does not block appends. fn may use w.
 * Records whose segments were archived are not visited. */
SL_API SL_MUST_CHECK int sl_wal_iterate(sl_wal *w, uint64_t from, sl_wal_record_fn *fn, void *ctx, struct sl_err *err);
/* One record, with a copy of its payload: release it with sl_wal_record_free. SL_ENOENT. */
SL_API SL_MUST_CHECK int sl_wal_read(sl_wal *w, uint64_t sequence, struct sl_wal_record *out, struct sl_err *err);
SL_API void sl_wal_record_free(sl_wal *w, struct sl_wal_record *record); /* one that sl_wal_read filled */

/* Mark first..last as sent or failed. Rides the next flush: a crash may forget it, never the records. Marking what is
 * not pending changes nothing. SL_EINVAL for a range that was never appended. */
SL_API SL_MUST_CHECK int sl_wal_mark_sent(sl_wal *w, uint64_t first, uint64_t last, struct sl_err *err);
SL_API SL_MUST_CHECK int sl_wal_mark_failed(sl_wal *w, uint64_t first, uint64_t last, struct sl_err *err);

/* ---- the asynchronous sender ---- */

struct sl_wal_range {
	uint64_t first, last;
};

/* How far a receiver is: a sequence, and the CRC of the record that it took under it. */
enum sl_wal_mark_kind {
	SL_WAL_MARK_UNKNOWN = 0, /* the receiver keeps no CRCs: crc is not compared */
	SL_WAL_MARK_RECORD = 1,  /* crc is that of the record with this sequence */
	SL_WAL_MARK_SKIPPED = 2  /* the sequence was skipped: there is no record of it */
};
struct sl_wal_mark {
	uint64_t sequence; /* 0: nothing yet */
	uint64_t crc;      /* of SL_WAL_MARK_RECORD */
	enum sl_wal_mark_kind kind;
};

struct sl_wal_batch {
	const char *stream;
	uint32_t incarnation;
	const struct sl_wal_record *records; /* in order */
	size_t n_records;
	/* Sequences before or between the records that will never come (parked, or a declared hole): the receiver moves
	 * its mark over them. In order. */
	const struct sl_wal_range *skipped;
	size_t n_skipped;
	uint64_t last_sequence; /* the newest durable record of the log: records after the receiver's mark wait */
	/* The receiver's mark as the sender knows it, with the CRC of the log's own record. A receiver that is at the
	 * same sequence with another CRC has other records, and answers SL_ECONFLICT. */
	struct sl_wal_mark after;
};

struct sl_wal_reply {
	uint64_t mark;     /* the receiver's durable high-water mark of this stream and incarnation, after this batch */
	uint64_t mark_crc; /* with SL_WAL_MARK_RECORD: of the record at the mark, as the receiver took it */
	enum sl_wal_mark_kind mark_kind;
	uint64_t refused; /* with SL_EREFUSED: the record that it will never take, 0 when it did not say which */
};

#define SL_WAL_SENDER_VERSION 1

/*
 * What the user supplies to deliver records. send is called on the sender's thread, with no lock held, one batch at a
 * time per log. It returns 0 with reply->mark; SL_EREFUSED when the receiver refuses a record for good; SL_ECONFLICT
 * when the receiver knows a sequence with another CRC; anything else is retried with backoff for ever (an
 * err->retry_after_ms is honoured). A batch may be empty of records: then it asks for the mark or reports skipped
 * ranges. cancel (may be NULL) asks a running send to return soon; called from stop, from another thread.
 *
 * A mark that is above the log's end, or whose CRC is not that of the log's record, and SL_ECONFLICT mean that receiver
 * and log differ: the log was restored from a backup, or copied. The sender then begins a new incarnation of the
 * stream, logs that, and sends everything after the last acknowledged record under it. Before that it may send this
 * record once more, alone: where the receiver lost it and has another one instead, everything that the log has is sent.
 * It halts only when the receiver reports a conflict for several new incarnations in a row.
 */
struct sl_wal_sender {
	int version; /* SL_WAL_SENDER_VERSION */
	int (*send)(const struct sl_wal_batch *batch, struct sl_wal_reply *reply, struct sl_err *err, void *ctx);
	void (*cancel)(void *ctx);
};

/* Start delivering. SL_EINVAL when a sender runs already. The table and ctx must live until stop or close returned. */
SL_API SL_MUST_CHECK int sl_wal_sender_start(sl_wal *w, const struct sl_wal_sender *sender, void *ctx,
					     struct sl_err *err);
/* Try to deliver what is pending for up to deadline_ms (0: only end the running send; SL_UNLIMITED), then stop the
 * sender. What is unsent stays pending. 0 when nothing is pending, SL_EPENDING otherwise; idempotent; usable again with
 * start. Appends keep working. */
SL_API SL_MUST_CHECK int sl_wal_sender_stop(sl_wal *w, int64_t deadline_ms, struct sl_err *err);
/* The stream is complete: stop with a final flush, and with archive_on_complete and nothing pending, archive it. */
SL_API SL_MUST_CHECK int sl_wal_complete(sl_wal *w, int64_t deadline_ms, struct sl_err *err);

/* Archive the log, whose sender must be stopped, as sl_wal_archive_path of <sluice/wal_files.h> does: on success w only
 * takes close. dir NULL: archive_dir. */
SL_API SL_MUST_CHECK int sl_wal_archive(sl_wal *w, const char *dir, bool include_pending, struct sl_err *err);

/* ---- statistics ---- */

enum sl_wal_sender_state {
	SL_WAL_SENDER_STOPPED = 0,
	SL_WAL_SENDER_RUNNING = 1,
	SL_WAL_SENDER_WAITING = 2, /* for a retry */
	SL_WAL_SENDER_HALTED = 3   /* by a conflict: see sl_wal_sender_error */
};

struct sl_wal_stats {
	size_t struct_size;
	uint64_t records, pending, sent, failed; /* data records in the files that are there now */
	uint64_t holes;                          /* sequences declared missing */
	uint64_t bytes;                          /* logical bytes of all segments */
	uint64_t pending_bytes;                  /* payload and frame of pending records */
	uint64_t first_sequence, last_sequence;  /* 0: none */
	uint64_t segments;
	uint32_t incarnation;      /* 0: a foreign log */
	uint32_t format_version;   /* 1, or 2 when encrypted */
	int64_t oldest_pending_ms; /* its timestamp; 0: none pending */
	uint64_t damaged_ranges;   /* found by the scan that made this (open or scan) */
	uint64_t torn_bytes;       /* trimmed or trimmable tail */
	/* of an open handle only: */
	uint64_t flushes, flushed_records, prepared_bytes, index_bytes;
	enum sl_wal_sender_state sender_state;
	uint64_t mark;             /* the receiver's last answer */
	uint64_t parked;           /* records that the sender of this handle moved to the dead letters */
	uint32_t sent_incarnation; /* what receivers see: incarnation, unless the sender began a new one */
};
/* A snapshot of the counts. struct_size must be set. */
SL_API SL_MUST_CHECK int sl_wal_get_stats(sl_wal *w, struct sl_wal_stats *out, struct sl_err *err);
/* Where the sender is halted (SL_ECONFLICT), *err says why; 0 otherwise. */
SL_API int sl_wal_sender_error(sl_wal *w, struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
