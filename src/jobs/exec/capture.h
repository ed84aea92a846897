/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From frames to events: output is split into lines, descriptor 3 is parsed, the start and the end become events. The
 * same code runs for a living command and over the spool of a dead worker.
 *
 * Guarantee: the events are a function of the frames alone, whatever their sizes: a line is one event, without its
 * newline; a line longer than max_line_bytes is cut into events of that length, all but the last marked partial; a
 * last line without a newline is partial too. Bytes are kept as they are. An event has the position of its first byte
 * in its stream, so those of one stream are in strictly ascending order, and one that is in a log already is
 * recognised.
 *
 * Thread safety: one thread at a time. Ownership: env is borrowed.
 */
#ifndef SL_JOBS_EXEC_CAPTURE_H
#define SL_JOBS_EXEC_CAPTURE_H

#include "jobs/events/events.h"
#include "jobs/exec/protocol.h"
#include "jobs/exec/spool.h"

struct sl__capture_stream {
	struct sl__buf line;          /* of the line that has not ended */
	uint64_t next;                /* the position of the stream's next byte */
	struct sl__spool_place since; /* the frame in which that line began */
	bool skipping;                /* of descriptor 3: the line was too long; `line` is empty until it ends */
};

struct sl__capture {
	const struct sl_env *env;
	uint64_t job_id; /* the token */
	int32_t attempt;
	struct sl_claim_id claim;
	uint64_t max_line_bytes;
	struct sl__capture_stream streams[SL__STREAMS];
	struct sl__spool_place place;  /* of the next frame */
	uint64_t skip_to[SL__STREAMS]; /* bytes before are skipped */
	uint64_t known[SL__STREAMS];   /* events that begin before are in the log: they are not made again */
	uint32_t flags;                /* SL__SPOOL_STARTED, SL__SPOOL_EXITED: so are these */
	struct sl__protocol protocol;
	struct sl__event_batch batch; /* what was made; the user empties it */
	/* Called with every progress, NUL-terminated. May be NULL. */
	void (*on_progress)(const char *json, void *ctx);
	void *ctx;
	/* What the frames contained so far. */
	bool exited, failed;
	int64_t last_ts_ms;
	bool signalled; /* exit_value is a signal, else an exit code */
	uint32_t exit_value;
	uint32_t spawn_errno, spawn_step;
	char last_stderr[128]; /* the last line that is not empty, for the error's text: UTF-8 */
};

/* Continue at the header's resume. */
void sl__capture_init(struct sl__capture *c, const struct sl_env *env, const struct sl__spool_header *h);
void sl__capture_fini(struct sl__capture *c);
/* Events go to the batch. SL_ENOMEM. */
SL_MUST_CHECK int sl__capture_frame(struct sl__capture *c, const struct sl__frame *frame, struct sl_err *err);
/* No frame comes any more: the lines that have not ended are events now, then error (NULL: none), then the exit. An
 * attempt has one such error at most: its position is past everything that descriptor 3 can have caused. */
SL_MUST_CHECK int sl__capture_end(struct sl__capture *c, const char *error, struct sl_err *err);
/* Write to the header that all that was made so far is in the log. */
void sl__capture_note(const struct sl__capture *c, struct sl__spool_header *h);
/* Write to the header that the first n events of the batch are in the log, and the others not. */
void sl__capture_note_part(const struct sl__capture *c, size_t n, struct sl__spool_header *h);
/* An event of this attempt is in the log: do not make it again. */
void sl__capture_known(struct sl__capture *c, const struct sl_event *event);

#endif
