/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events. The first round trip locks the marks of the streams, in order; here each event is then found to be new, known
 * or out of order; the second round trip compares what is known, inserts what is new and moves the marks. Many new ones
 * go by COPY (events_copy.c), which takes two round trips more.
 */
#include "jobs/store/postgres/store.h"

#define COPY_LEAST 50 /* new events */

/* A stream with the mark that the store has, moved on as events are taken. */
struct stream {
	const char *name;
	uint32_t incarnation;
	uint64_t mark;
};

struct append {
	const struct sl_event_row *events;
	size_t n;
	struct sl_event_mark *marks;
	size_t n_marks;
	struct stream *streams;
	size_t n_streams;
	const struct sl_event_row **fresh, **known;
	size_t n_fresh, n_known;
};

static struct stream *find_stream(const struct append *a, const char *name, uint32_t incarnation)
{
	for (size_t i = 0; i < a->n_streams; i++)
		if (a->streams[i].incarnation == incarnation && strcmp(a->streams[i].name, name) == 0)
			return &a->streams[i];
	return NULL;
}

/* One that prepare() has put there. */
static struct stream *stream_of(const struct append *a, const char *name, uint32_t incarnation)
{
	struct stream *stream = find_stream(a, name, incarnation);
	assert(stream != NULL);
	return stream;
}

static void add_stream(struct append *a, const char *name, uint32_t incarnation)
{
	if (find_stream(a, name, incarnation) == NULL)
		a->streams[a->n_streams++] = (struct stream){.name = name, .incarnation = incarnation};
}

static int prepare(struct pg_store *s, struct append *a, struct sl_err *err)
{
	a->streams = sl__calloc(&s->env, a->n + a->n_marks, sizeof *a->streams);
	a->fresh = sl__calloc(&s->env, a->n, sizeof *a->fresh);
	a->known = sl__calloc(&s->env, a->n, sizeof *a->known);
	if (a->streams == NULL || a->fresh == NULL || a->known == NULL)
		return sl_err_set(err, SL_ENOMEM, "postgres: events: out of memory");
	for (size_t i = 0; i < a->n_marks; i++)
		add_stream(a, a->marks[i].stream, a->marks[i].incarnation);
	for (size_t i = 0; i < a->n; i++)
		add_stream(a, a->events[i].stream, a->events[i].incarnation);
	return 0;
}

static void release(struct pg_store *s, struct append *a)
{
	sl__free(&s->env, a->streams);
	sl__free(&s->env, a->fresh);
	sl__free(&s->env, a->known);
}

static void add_streams(struct sl__pg_params *p, const struct append *a)
{
	sl__pg_add_array(p, SL__PG_TEXT, a->n_streams);
	for (size_t i = 0; i < a->n_streams; i++)
		sl__pg_el_text(p, a->streams[i].name);
	sl__pg_add_array(p, SL__PG_INT8, a->n_streams);
	for (size_t i = 0; i < a->n_streams; i++)
		sl__pg_el_int8(p, a->streams[i].incarnation);
}

static int lock_marks(struct pg_call *call, struct append *a, struct sl_err *err)
{
	add_streams(&call->params, a);
	int at = sl__pg_call_send(call, ST_EVENT_MARKS);
	int rc = sl__pg_call_run(call, false, err);
	if (rc != 0)
		return rc;
	const PGresult *res = sl__pg_call_result(call, at);
	for (int i = 0; i < PQntuples(res); i++)
		stream_of(a, sl__pg_text(res, i, 0), (uint32_t)sl__pg_int8(res, i, 1))->mark =
			(uint64_t)sl__pg_int8(res, i, 2);
	sl__pg_pipe_end(&call->pipe);
	return 0;
}

/* How far the caller lets the stream skip: its own mark, or 0. */
static uint64_t skip_of(const struct append *a, const struct sl_event_row *event)
{
	uint64_t skip = 0;
	for (size_t i = 0; i < a->n_marks; i++)
		if (a->marks[i].incarnation == event->incarnation && strcmp(a->marks[i].stream, event->stream) == 0)
			skip = SL_MAX(skip, a->marks[i].mark);
	return skip;
}

/* A skip counts only where the events do not fill it themselves. */
static int sort_events(struct append *a, struct sl_err *err)
{
	for (size_t i = 0; i < a->n; i++) {
		const struct sl_event_row *event = &a->events[i];
		struct stream *stream = stream_of(a, event->stream, event->incarnation);
		if (event->sequence <= stream->mark) {
			a->known[a->n_known++] = event;
			continue;
		}
		if (event->sequence != stream->mark + 1 && skip_of(a, event) < event->sequence - 1)
			return sl_err_set(err, SL_EGAP, "postgres: stream %s: sequence %llu after %llu", event->stream,
					  (unsigned long long)event->sequence, (unsigned long long)stream->mark);
		stream->mark = event->sequence;
		a->fresh[a->n_fresh++] = event;
	}
	for (size_t i = 0; i < a->n_marks; i++) {
		struct stream *stream = stream_of(a, a->marks[i].stream, a->marks[i].incarnation);
		stream->mark = SL_MAX(stream->mark, a->marks[i].mark);
	}
	return 0;
}

#define EACH(list, n, p, oid, add)                                                                                     \
	do {                                                                                                           \
		sl__pg_add_array(p, oid, n);                                                                           \
		for (size_t each = 0; each < (n); each++) {                                                            \
			const struct sl_event_row *e = (list)[each];                                                   \
			add;                                                                                           \
		}                                                                                                      \
	} while (0)

static void add_keys(struct sl__pg_params *p, const struct sl_event_row *const *list, size_t n)
{
	EACH(list, n, p, SL__PG_TEXT, sl__pg_el_text(p, e->stream));
	EACH(list, n, p, SL__PG_INT8, sl__pg_el_int8(p, e->incarnation));
	EACH(list, n, p, SL__PG_INT8, sl__pg_el_int8(p, (int64_t)e->sequence));
}

/* Known events must have the CRC that they had; what retention has removed cannot be compared. */
static int compare_known(struct pg_call *call, const struct append *a, struct sl_err *err)
{
	if (a->n_known == 0)
		return 0;
	add_keys(&call->params, a->known, a->n_known);
	int at = sl__pg_call_send(call, ST_EVENT_KNOWN);
	int rc = sl__pg_call_run(call, false, err);
	if (rc != 0)
		return rc;
	const PGresult *res = sl__pg_call_result(call, at);
	for (int i = 0; i < PQntuples(res); i++) {
		const struct sl_event_row *event = a->known[sl__pg_int4(res, i, 0) - 1];
		if ((uint64_t)sl__pg_int8(res, i, 1) != event->crc)
			return sl_err_set(err, SL_ECONFLICT, "postgres: stream %s: sequence %llu has another CRC",
					  event->stream, (unsigned long long)event->sequence);
	}
	sl__pg_pipe_end(&call->pipe);
	return 0;
}

/* Any number may stand there. The server has no time before 4714 BC, and would refuse the others along with it; 0 would
 * be none. */
int64_t sl__pg_event_ms(const struct sl_event_row *e)
{
	const int64_t first_ms = -INT64_C(210866803200000);
	return e->ts_ms == 0 ? 1 : SL_MAX(e->ts_ms, first_ms);
}

static void send_fresh(struct pg_call *call, const struct append *a)
{
	struct sl__pg_params *p = &call->params;
	add_keys(p, a->fresh, a->n_fresh);
	EACH(a->fresh, a->n_fresh, p, SL__PG_INT8, sl__pg_el_int8(p, (int64_t)e->crc));
	EACH(a->fresh, a->n_fresh, p, SL__PG_INT8, sl__pg_el_int8(p, (int64_t)e->job_id));
	EACH(a->fresh, a->n_fresh, p, SL__PG_INT4, sl__pg_el_int4(p, e->attempt));
	EACH(a->fresh, a->n_fresh, p, SL__PG_INT4, sl__pg_el_int4(p, e->type));
	/* 1 ms after the beginning of time rather than no time at all. */
	EACH(a->fresh, a->n_fresh, p, SL__PG_TIMESTAMPTZ, sl__pg_el_time(p, sl__pg_event_ms(e)));
	EACH(a->fresh, a->n_fresh, p, SL__PG_BYTEA, sl__pg_el_bytes(p, e->payload, e->payload_len));
	EACH(a->fresh, a->n_fresh, p, SL__PG_BOOL, sl__pg_el_bool(p, e->partial != 0));
	sl__pg_add_int8(p, (int64_t)a->n_fresh);
	(void)sl__pg_call_send(call, ST_EVENT_INSERT);
}

static int write_all(struct pg_call *call, const struct append *a, struct sl_err *err)
{
	if (a->n_fresh >= COPY_LEAST) {
		int rc = sl__pg_events_copy(call, a->fresh, a->n_fresh, err);
		if (rc != 0)
			return rc;
	} else if (a->n_fresh > 0) {
		send_fresh(call, a);
	}
	add_streams(&call->params, a);
	sl__pg_add_array(&call->params, SL__PG_INT8, a->n_streams);
	for (size_t i = 0; i < a->n_streams; i++)
		sl__pg_el_int8(&call->params, (int64_t)a->streams[i].mark);
	(void)sl__pg_call_send(call, ST_EVENT_ADVANCE);
	return sl__pg_call_run(call, true, err);
}

int sl__pg_events_append(void *store, const struct sl_event_row *events, size_t n, struct sl_event_mark *marks,
			 size_t n_marks, size_t *n_new, struct sl_err *err)
{
	struct pg_store *s = store;
	struct append a = {.events = events, .n = n, .marks = marks, .n_marks = n_marks};
	struct pg_call call;
	int rc = prepare(s, &a, err);
	if (rc == 0)
		rc = sl__pg_call_open(&call, s, NULL, PG_LONG, err);
	if (rc != 0) {
		release(s, &a);
		return rc;
	}
	rc = lock_marks(&call, &a, err);
	if (rc == 0)
		rc = sort_events(&a, err);
	if (rc == 0)
		rc = compare_known(&call, &a, err);
	if (rc == 0)
		rc = write_all(&call, &a, err);
	for (size_t i = 0; i < n_marks && rc == 0; i++)
		marks[i].mark = stream_of(&a, marks[i].stream, marks[i].incarnation)->mark;
	if (rc == 0 && n_new != NULL)
		*n_new = a.n_fresh;
	sl__pg_call_close(&call);
	release(s, &a);
	return rc;
}

int sl__pg_events_read(void *store, uint64_t job_id, uint64_t after, uint32_t limit, sl_event_row_fn *fn, void *ctx,
		       struct sl_err *err)
{
	struct pg_call call;
	const PGresult *res = NULL;
	int rc = sl__pg_call_open(&call, store, NULL, PG_ONCE, err);
	if (rc != 0)
		return rc;
	if (job_id != 0)
		sl__pg_add_int8(&call.params, (int64_t)job_id);
	sl__pg_add_int8(&call.params, (int64_t)after);
	sl__pg_add_int8(&call.params, limit);
	rc = sl__pg_call_one(&call, job_id != 0 ? ST_EVENTS_OF_JOB : ST_EVENTS_ALL, &res, err);
	for (int i = 0; rc == 0 && i < PQntuples(res); i++) {
		const struct sl_event_row event = {.offset = (uint64_t)sl__pg_int8(res, i, 0),
						   .stream = sl__pg_text(res, i, 1),
						   .incarnation = (uint32_t)sl__pg_int8(res, i, 2),
						   .sequence = (uint64_t)sl__pg_int8(res, i, 3),
						   .crc = (uint64_t)sl__pg_int8(res, i, 4),
						   .job_id = (uint64_t)sl__pg_int8(res, i, 5),
						   .attempt = sl__pg_int4(res, i, 6),
						   .type = sl__pg_int4(res, i, 7),
						   .late = sl__pg_bool(res, i, 8),
						   .ts_ms = sl__pg_time_ms(res, i, 9),
						   .payload = PQgetvalue(res, i, 10),
						   .payload_len = (size_t)PQgetlength(res, i, 10),
						   .partial = sl__pg_bool(res, i, 11)};
		rc = fn(&event, ctx);
	}
	sl__pg_call_close(&call);
	return rc;
}
