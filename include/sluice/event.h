/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of jobs as plain data: what a store keeps of them, and whom a stream of them belongs to. <sluice/events.h>
 * encodes and delivers them.
 *
 * Thread safety: these are plain values; the functions here have no state.
 * Ownership: strings and payloads belong to the code that made the struct; in a callback they live until it returns.
 */
#ifndef SLUICE_EVENT_H
#define SLUICE_EVENT_H

#include <sluice/job.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sl_event_type {
	SL_EVENT_STARTED = 1,
	SL_EVENT_STDOUT = 2, /* a line, without its newline */
	SL_EVENT_STDERR = 3,
	SL_EVENT_PROGRESS = 4, /* JSON */
	SL_EVENT_EXITED = 5,   /* JSON: {"code":…} or {"signal":…} */
	SL_EVENT_ERROR = 6,    /* text */
	SL_EVENT_LOG = 7       /* what a C handler emits: any bytes */
};
/* "started", "stdout" …; "unknown". */
SL_API const char *sl_event_type_name(enum sl_event_type type);

/* One row of job_events. Key: (stream, incarnation, sequence). */
struct sl_event_row {
	uint64_t offset; /* gapless, in order of commit; filled by the store */
	const char *stream;
	uint32_t incarnation;
	uint64_t sequence;
	uint64_t crc;
	uint64_t job_id; /* 0: none */
	int32_t attempt; /* 0: none */
	enum sl_event_type type;
	struct sl_claim_id claim; /* of the attempt, as its worker had it; given to the store, never read back */
	/* Not of the attempt that runs, or that was the last: an earlier one, or a claim that the attempt never had.
	 * Also when there is no such job; then job_id and attempt are 0. Filled by the store. */
	bool late;
	bool partial; /* of output: its line continues in the next event of this stream of the attempt, or was not
			ended by a newline */
	int64_t ts_ms;
	const void *payload;
	size_t payload_len;
};

/* How far a stream of events was taken. */
struct sl_event_stream {
	const char *stream;
	uint32_t incarnation;
	uint64_t mark;   /* the last sequence */
	int64_t last_ms; /* ts_ms of the newest of its events that is kept; 0: none is */
};

typedef int sl_event_row_fn(const struct sl_event_row *event, void *ctx);
typedef int sl_event_stream_fn(const struct sl_event_stream *stream, void *ctx);

/* Whom a stream belongs to is decided by the store: the first token that writes to a name owns it, under any
 * incarnation. */
struct sl_event_writer {
	const char *token; /* its name; at most SL_EVENT_OWNER_MAX bytes. NULL: none (a server without tokens) */
	bool any_stream;   /* true: it may also write to streams of others (an administrator) */
	bool adopts;       /* true: it becomes the owner of a stream that no token created */
	/* Who writes, for the audit trail; its action and detail are filled by the store. What is out of the ordinary
	 * (skipped sequences, another's stream, a new owner or incarnation, forged claims) is recorded in the
	 * transaction that takes the events. NULL: nothing is. */
	const struct sl_audit_record *record;
	uint64_t reserved[2];
};
#define SL_EVENT_OWNER_MAX 64

#ifdef __cplusplus
}
#endif
#endif
