/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job events: what an attempt reports, as records of a log and rows of job_events. One record is one event is one
 * row. The encoding is the protobuf message JobEvent of proto/sluice/v1/events.proto.
 *
 * Thread safety: the functions here have no state but the senders, each of which serves one log at a time.
 * Ownership: an encoded event is the caller's, to be freed by sl_event_free; a decoded one points into its record.
 * Strings in options are copied; a store must outlive its senders.
 */
#ifndef SLUICE_EVENTS_H
#define SLUICE_EVENTS_H

#include <sluice/event.h>
#include <sluice/wal.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An event that is decoded or to be encoded. The token (job, attempt, claim) says which attempt speaks. */
struct sl_event {
	enum sl_event_type type;
	uint64_t job_id;
	int32_t attempt;
	struct sl_claim_id claim;
	int64_t ts_ms;
	uint64_t position; /* of output: where its first byte stood in the attempt's captured output */
	bool partial;      /* true: a line that was cut because it was too long, or not ended by a newline */
	const void *data;
	size_t len;
};

/* Encode into fresh memory of env (NULL: malloc); free with sl_event_free. SL_ETOOBIG past the size of a log record. */
SL_API SL_MUST_CHECK int sl_event_encode(const struct sl_event *event, const struct sl_env *env, void **out,
					 size_t *len, struct sl_err *err);
/* out->data points into record. SL_EDATA when it is not a JobEvent. */
SL_API SL_MUST_CHECK int sl_event_decode(const void *record, size_t len, struct sl_event *out, struct sl_err *err);
SL_API void sl_event_free(const struct sl_env *env, void *encoded);

/*
 * What a receiver does with a batch: take rows of one stream, in order, with ranges that will never come before or
 * between them (in order, too). *mark: before, where the sender takes the store to be, with the CRC of the sender's
 * record (kind SL_WAL_MARK_UNKNOWN: it does not say); afterwards, the store's durable mark of the stream. That is below
 * what was given when the store lacks what comes before; the sender goes back there. Errors as of the store's
 * events_append, SL_ECONFLICT where the store has other records of this stream; rows before the one that failed may
 * have been taken. writer NULL: this process, which may write to all streams; SL_EACCES: the stream belongs to another
 * token, and nothing was taken.
 */
SL_API SL_MUST_CHECK int sl_events_take(const sl_store *store, const char *stream, uint32_t incarnation,
					const struct sl_event_writer *writer, const struct sl_event_row *rows, size_t n,
					const struct sl_wal_range *skipped, size_t n_skipped, struct sl_wal_mark *mark,
					struct sl_err *err);

/* A `send` adapter that writes a log of events into a store's job_events. A record that is not a JobEvent is refused.
 * Pass the table to sl_wal_sender_start with the result as ctx; free it after sl_wal_sender_stop. */
typedef struct sl_event_sender sl_event_sender;
SL_API SL_MUST_CHECK int sl_event_sender_new(sl_event_sender **out, const sl_store *store, const struct sl_env *env,
					     struct sl_err *err);
SL_API void sl_event_sender_free(sl_event_sender *sender);
/* Call taken for each batch that the store has committed, with a row for each of its records, on the thread of the log's
 * sender and without locks: for followers in this process. The rows are valid during the call. Set it before
 * sl_wal_sender_start. */
typedef void sl_events_taken_fn(const struct sl_wal_batch *batch, const struct sl_event_row *rows, void *ctx);
SL_API void sl_event_sender_on_taken(sl_event_sender *sender, sl_events_taken_fn *taken, void *ctx);
SL_API const struct sl_wal_sender *sl_event_sender_ops(void);

/*
 * The same for a Sluice server, over HTTP: each batch is one PublishJobEvents, and the server's durable mark is the
 * answer. A running request ends at once when the log is stopped. Asked to wait (429, or 503 with Retry-After), the
 * sender waits; a server that is unreachable, rejects the token or has no such address is retried for ever; a record
 * that it refuses by its sequence is parked. Only an answer of a Sluice server acknowledges, refuses or halts: those of
 * proxies and portals are failures to be tried again.
 */
typedef struct sl_event_http_sender sl_event_http_sender;
struct sl_event_http_opts {
	size_t struct_size; /* SL_EVENT_HTTP_OPTS_INIT fills it */
	const struct sl_env *env;
	const char *url;        /* of the server: http://… or https://…, with a path when the server is below one */
	const char *token_file; /* its first line is the bearer token; read again when that is refused */
	const char *ca_file;    /* PEM, instead of the system's */
	int64_t timeout_ms;     /* of a request; default 30,000 */
	int64_t connect_timeout_ms; /* default 10,000 */
	const char *target;         /* the id of the store that the log is for, 32 hexadecimal characters: a server on
				       another store takes nothing. NULL: any */
	const char *token;          /* the bearer token itself, for what is in no file; not with token_file */
};
#define SL_EVENT_HTTP_OPTS_INIT .struct_size = sizeof(struct sl_event_http_opts)
/* Connects to nothing yet. SL_EINVAL names the option; SL_ENOENT, SL_EACCES, SL_ECONFIG: of the token or CA file. */
SL_API SL_MUST_CHECK int sl_event_http_sender_new(sl_event_http_sender **out, const struct sl_event_http_opts *opts,
						  struct sl_err *err);
SL_API void sl_event_http_sender_free(sl_event_http_sender *sender); /* NULL is allowed */
SL_API const struct sl_wal_sender *sl_event_http_sender_ops(void);
/* Ask the server for the id of its store: the folder of logs that are for it, <wal_dir>/<id>. Not while a log is sent
 * with this sender. SL_EUNAVAIL, SL_ETIMEDOUT, SL_EACCES, SL_ECONFIG (no Sluice server there) … */
SL_API SL_MUST_CHECK int sl_event_http_sender_target(sl_event_http_sender *sender, char out[33], struct sl_err *err);

#ifdef __cplusplus
}
#endif
#endif
