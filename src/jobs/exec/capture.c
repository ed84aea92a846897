/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns frames into events.
 *
 * Q1  An event of a stream is made when its last byte is known: a newline, one byte more than max_line_bytes, or the
 *     end. So more frames only add events after those that were made, and the events in a log are always the first of
 *     this order.
 * Q2  `since` of a line that has not ended is the frame in which it began. Reading again from the earliest of those has
 *     every byte that is still needed. Of each stream, what comes before `consumed`, where that line began, is skipped
 *     byte by byte: the frame to begin with may lie in the middle of lines that are finished.
 * Q3  From `consumed` on, lines are cut where they were cut the first time, so an event that is in the log already, but
 *     not in the header, has the same position and is dropped.
 */
#include <stdio.h>

#include "jobs/exec/capture.h"

#include "base/utf8.h"

void sl__capture_init(struct sl__capture *c, const struct sl_env *env, const struct sl__spool_header *h)
{
	*c = (struct sl__capture){.env = env,
				  .job_id = h->job_id,
				  .attempt = h->attempt,
				  .claim = h->claim,
				  .max_line_bytes = h->max_line_bytes,
				  .place = h->resume,
				  .flags = h->flags & (SL__SPOOL_STARTED | SL__SPOOL_EXITED)};
	memcpy(c->skip_to, h->consumed, sizeof(c->skip_to));
	memcpy(c->known, h->known, sizeof(c->known));
	for (size_t i = 0; i < SL__STREAMS; i++) {
		sl__buf_init(&c->streams[i].line, env);
		c->streams[i].next = h->resume.position[i];
	}
	c->streams[SL__CONTROL].skipping = (h->flags & SL__SPOOL_SKIPPING) != 0;
	sl__protocol_init(&c->protocol, env);
	sl__event_batch_init(&c->batch, env);
}

void sl__capture_fini(struct sl__capture *c)
{
	for (size_t i = 0; i < SL__STREAMS; i++)
		sl__buf_fini(&c->streams[i].line);
	sl__protocol_fini(&c->protocol);
	sl__event_batch_fini(&c->batch);
}

/* ---- events ---- */

/* An event of the attempt, at the time of the last frame. */
static struct sl_event event_of(const struct sl__capture *c, enum sl_event_type type, const void *data, size_t len)
{
	return (struct sl_event){.type = type,
				 .job_id = c->job_id,
				 .attempt = c->attempt,
				 .claim = c->claim,
				 .ts_ms = c->last_ts_ms,
				 .data = data,
				 .len = len};
}

/* The start or the exit: made once. */
static int add_once(struct sl__capture *c, uint32_t flag, const struct sl_event *event, struct sl_err *err)
{
	if ((c->flags & flag) != 0)
		return 0;
	int rc = sl__event_batch_add(&c->batch, event, err);
	if (rc == 0)
		c->flags |= flag;
	return rc;
}

/* An event of a stream, unless it is in the log already. */
static int add_at(struct sl__capture *c, enum sl__stream stream, uint64_t start, struct sl_event *event,
		  struct sl_err *err)
{
	if (start < c->known[stream])
		return 0;
	event->position = start;
	return sl__event_batch_add(&c->batch, event, err);
}

/* A copy for people: what is not UTF-8 or would move the cursor becomes '?'. */
static void keep_last_stderr(struct sl__capture *c, const char *line, size_t len)
{
	char text[sizeof(c->last_stderr)];
	size_t n = SL_MIN(len, sizeof(text) - 1), out = 0;
	memcpy(text, line, n);
	text[n] = '\0';
	for (size_t i = 0; i < n;) {
		size_t step = sl__utf8_length(text + i);
		if (step == 0 && len > n && n - i < 4)
			break; /* cut in the middle of a character */
		if (step <= 1) {
			char ch = text[i++];
			c->last_stderr[out++] = step == 0 || (unsigned char)ch < ' ' || ch == 0x7F ? '?' : ch;
			continue;
		}
		memcpy(c->last_stderr + out, text + i, step);
		out += step;
		i += step;
	}
	c->last_stderr[out] = '\0';
}

static int add_bad_line(struct sl__capture *c, uint64_t start, const struct sl__said *said, struct sl_err *err)
{
	struct sl_event event = event_of(c, SL_EVENT_ERROR, said->bad, strlen(said->bad));
	return add_at(c, SL__CONTROL, start, &event, err);
}

/* ---- lines ---- */

/* The line of a stream is complete (or it is the end of everything). */
static int finish_line(struct sl__capture *c, enum sl__stream stream, bool partial, struct sl_err *err)
{
	struct sl__capture_stream *s = &c->streams[stream];
	const char *text = sl__buf_str(&s->line);
	uint64_t start = s->next - s->line.len;
	struct sl__said said = {0};
	int rc = 0;
	if (stream != SL__CONTROL) {
		enum sl_event_type type = stream == SL__STDOUT ? SL_EVENT_STDOUT : SL_EVENT_STDERR;
		struct sl_event event = event_of(c, type, text, s->line.len);
		event.partial = partial;
		if (stream == SL__STDERR && s->line.len > 0)
			keep_last_stderr(c, text, s->line.len);
		rc = add_at(c, stream, start, &event, err);
	} else if (sl__protocol_line(&c->protocol, text, s->line.len, &said) != 0) {
		rc = sl_err_set(err, SL_ENOMEM, "descriptor 3: out of memory");
	} else if (said.bad[0] != '\0') {
		rc = add_bad_line(c, start, &said, err);
	} else if (said.progress != NULL) {
		struct sl_event event = event_of(c, SL_EVENT_PROGRESS, said.progress, said.progress_len);
		rc = add_at(c, SL__CONTROL, start, &event, err);
		if (rc == 0 && c->on_progress != NULL) {
			char *json = sl__asprintf(c->env, "%.*s", (int)said.progress_len, said.progress);
			if (json != NULL)
				c->on_progress(json, c->ctx);
			sl__free(c->env, json);
		}
	}
	sl__buf_clear(&s->line);
	return rc;
}

/* Add n bytes without a newline to the line of a stream. Full pieces are cut off while more is known to follow: at
 * least one byte stays. A line of descriptor 3 that is too long is a bad line immediately, and the rest is skipped. */
static int extend_line(struct sl__capture *c, enum sl__stream stream, const char *data, size_t n, struct sl_err *err)
{
	struct sl__capture_stream *s = &c->streams[stream];
	if (s->skipping) {
		s->next += n;
		return 0;
	}
	while (n > 0) {
		size_t part = n;
		if (stream != SL__CONTROL) {
			if (s->line.len >= c->max_line_bytes) {
				int rc = finish_line(c, stream, true, err);
				if (rc != 0)
					return rc;
			}
			part = SL_MIN((size_t)c->max_line_bytes - s->line.len, n);
		}
		if (s->line.len == 0)
			s->since = c->place;
		s->next += part;
		if (sl__buf_append(&s->line, data, part) != 0)
			return sl_err_set(err, SL_ENOMEM, "output of a command: out of memory");
		data += part;
		n -= part;
	}
	if (stream != SL__CONTROL || s->line.len <= SL__CONTROL_LINE_MAX)
		return 0;
	struct sl__said said;
	sl__protocol_overlong(&c->protocol, &said);
	int rc = add_bad_line(c, s->next - s->line.len, &said, err);
	s->skipping = true;
	sl__buf_fini(&s->line);
	return rc;
}

/* The bytes of a frame, line by line. */
static int feed_stream(struct sl__capture *c, enum sl__stream stream, const struct sl__frame *frame, struct sl_err *err)
{
	const char *p = (const char *)frame->data, *end = p + frame->len;
	struct sl__capture_stream *s = &c->streams[stream];
	if (s->next < c->skip_to[stream]) {
		uint64_t skip = SL_MIN((uint64_t)frame->len, c->skip_to[stream] - s->next);
		s->next += skip;
		p += skip;
	}
	while (p < end) {
		const char *newline = memchr(p, '\n', (size_t)(end - p));
		size_t n = (size_t)((newline != NULL ? newline : end) - p);
		int rc = extend_line(c, stream, p, n, err);
		if (rc != 0)
			return rc;
		p += n;
		if (newline == NULL)
			break;
		/* The end of a line, also of one that was skipped. */
		rc = s->skipping ? 0 : finish_line(c, stream, false, err);
		s->skipping = false;
		s->next++;
		p++;
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* ---- frames ---- */

int sl__capture_frame(struct sl__capture *c, const struct sl__frame *frame, struct sl_err *err)
{
	int rc = 0;
	c->last_ts_ms = frame->ts_ms;
	switch (frame->kind) {
	case SL__FRAME_STARTED: {
		char text[32];
		int n = snprintf(text, sizeof(text), "{\"pid\":%u}", sl__get32(frame->data));
		struct sl_event event = event_of(c, SL_EVENT_STARTED, text, (size_t)n);
		rc = add_once(c, SL__SPOOL_STARTED, &event, err);
		break;
	}
	case SL__FRAME_STDOUT:
	case SL__FRAME_STDERR:
	case SL__FRAME_CONTROL:
		rc = feed_stream(c, (enum sl__stream)(frame->kind - SL__FRAME_STDOUT), frame, err);
		break;
	case SL__FRAME_EXITED:
		c->exited = true;
		c->signalled = sl__get32(frame->data) != 0;
		c->exit_value = sl__get32(frame->data + 4);
		break;
	case SL__FRAME_FAILED:
		c->failed = true;
		c->spawn_errno = sl__get32(frame->data);
		c->spawn_step = sl__get32(frame->data + 4);
		break;
	}
	/* The exit's event is made at the end, after the lines that have not ended: until then a recovery must read its
	 * frame, which is the last. */
	c->place.offset =
		frame->offset + (frame->kind == SL__FRAME_EXITED ? 0 : SL__SPOOL_FRAME + frame->len + frame->seal);
	for (size_t i = 0; i < SL__STREAMS; i++)
		c->place.position[i] = c->streams[i].next;
	return rc;
}

int sl__capture_end(struct sl__capture *c, const char *error, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < SL__STREAMS; i++)
		if (c->streams[i].line.len > 0)
			rc = finish_line(c, (enum sl__stream)i, true, err);
	if (rc == 0 && error != NULL && (c->flags & SL__SPOOL_EXITED) == 0) {
		struct sl_event event = event_of(c, SL_EVENT_ERROR, error, strlen(error));
		rc = add_at(c, SL__CONTROL, c->streams[SL__CONTROL].next, &event, err);
	}
	if (rc != 0 || !c->exited)
		return rc;
	char text[32];
	int n = !c->signalled ? snprintf(text, sizeof(text), "{\"code\":%u}", c->exit_value)
			      : snprintf(text, sizeof(text), "{\"signal\":%u}", c->exit_value);
	struct sl_event event = event_of(c, SL_EVENT_EXITED, text, (size_t)n);
	return add_once(c, SL__SPOOL_EXITED, &event, err);
}

/* ---- what is in the log ---- */

void sl__capture_note(const struct sl__capture *c, struct sl__spool_header *h)
{
	const struct sl__spool_place *first = &c->place;
	h->flags = (h->flags & (SL__SPOOL_DONE | SL__SPOOL_SEALED)) | c->flags;
	if (c->streams[SL__CONTROL].skipping)
		h->flags |= SL__SPOOL_SKIPPING;
	for (size_t i = 0; i < SL__STREAMS; i++) {
		const struct sl__capture_stream *s = &c->streams[i];
		if (s->line.len > 0 && s->since.offset < first->offset)
			first = &s->since;
		h->consumed[i] = s->next - s->line.len;
	}
	h->resume = *first;
}

/* What an event that is in the log makes known: its flag, or where the events of its stream continue. */
static void mark_known(const struct sl_event *event, uint32_t *flags, uint64_t known[SL__STREAMS])
{
	enum sl__stream stream = SL__CONTROL;
	switch (event->type) {
	case SL_EVENT_STARTED:
		*flags |= SL__SPOOL_STARTED;
		return;
	case SL_EVENT_EXITED:
		*flags |= SL__SPOOL_EXITED;
		return;
	case SL_EVENT_STDOUT:
		stream = SL__STDOUT;
		break;
	case SL_EVENT_STDERR:
		stream = SL__STDERR;
		break;
	case SL_EVENT_PROGRESS:
	case SL_EVENT_ERROR:
		break;
	default:
		return; /* of the handler around the command: not ours */
	}
	known[stream] = SL_MAX(known[stream], event->position + 1);
}

void sl__capture_note_part(const struct sl__capture *c, size_t n, struct sl__spool_header *h)
{
	struct sl_event event;
	for (size_t i = 0; i < n; i++) {
		sl__event_batch_get(&c->batch, i, &event);
		mark_known(&event, &h->flags, h->known);
	}
}

void sl__capture_known(struct sl__capture *c, const struct sl_event *event)
{
	mark_known(event, &c->flags, c->known);
}
