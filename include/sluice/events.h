/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job events: what an attempt has to say, as records of a log and rows of job_events. One record is one event is one
 * row. The encoding is the protobuf message JobEvent of proto/sluice/v1/events.proto.
 *
 * Thread safety: the functions here have no state but the sender, which serves one log.
 */
#ifndef SLUICE_EVENTS_H
#define SLUICE_EVENTS_H

#include <sluice/adapter/store.h>
#include <sluice/wal.h>

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
SL_API const char *sl_event_type_name(int type);

/* An event that is decoded or to be encoded. The token (job, attempt, claim) says which attempt speaks. */
struct sl_event {
	int type; /* enum sl_event_type */
	uint64_t job_id;
	int32_t attempt;
	struct sl_claim_id claim;
	int64_t ts_ms;
	uint64_t position; /* of output: where its first byte stood in the attempt's captured output */
	int partial;       /* 1: a line that was cut because it was too long, or not ended by a newline */
	const void *data;
	size_t len;
};

/* Encode into fresh memory of env (NULL: malloc); free with sl_event_free. SL_ETOOBIG past the size of a log record. */
SL_API SL_MUST_CHECK int sl_event_encode(const struct sl_event *event, const struct sl_env *env, void **out,
					 size_t *len, struct sl_err *err);
/* out->data points into record. SL_EDATA when it is not a JobEvent. */
SL_API SL_MUST_CHECK int sl_event_decode(const void *record, size_t len, struct sl_event *out, struct sl_err *err);
SL_API void sl_event_free(const struct sl_env *env, void *encoded);

/* A `send` adapter that writes a log of events into a store's job_events. A record that is no JobEvent is refused. Pass
 * the table to sl_wal_start with the result as ctx; free it after sl_wal_stop. */
typedef struct sl_event_sender sl_event_sender;
SL_API SL_MUST_CHECK int sl_event_sender_new(sl_event_sender **out, const sl_store *store, const struct sl_env *env,
					     struct sl_err *err);
SL_API void sl_event_sender_free(sl_event_sender *sender);
SL_API const struct sl_wal_sender *sl_event_sender_ops(void);

#ifdef __cplusplus
}
#endif
#endif
