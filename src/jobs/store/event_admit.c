/* SPDX-License-Identifier: Apache-2.0 */
/* Which events of a batch a store takes, by the marks of their streams: the same rules for every store. */
#include "jobs/store/event_admit.h"

#include <inttypes.h>
#include <stdio.h>

static struct sl__event_stream *find(const struct sl__event_admission *a, const char *name, uint32_t incarnation)
{
	for (size_t i = 0; i < a->n_streams; i++)
		if (a->streams[i].incarnation == incarnation && strcmp(a->streams[i].name, name) == 0)
			return &a->streams[i];
	return NULL;
}

static void add(struct sl__event_admission *a, const char *name, uint32_t incarnation)
{
	if (find(a, name, incarnation) == NULL)
		a->streams[a->n_streams++] = (struct sl__event_stream){.name = name, .incarnation = incarnation};
}

int sl__events_init(struct sl__event_admission *a, const struct sl_env *env, struct sl_err *err)
{
	a->streams = sl__calloc(env, a->n + a->n_marks + 1, sizeof(*a->streams));
	a->fresh = sl__calloc(env, a->n + 1, sizeof(*a->fresh));
	a->known = sl__calloc(env, a->n + 1, sizeof(*a->known));
	a->standings = sl__calloc(env, a->n + 1, sizeof(*a->standings));
	a->records = sl__calloc(env, a->n_marks + 1, sizeof(*a->records));
	a->details = sl__calloc(env, a->n_marks + 1, sizeof(*a->details));
	if (a->streams == NULL || a->fresh == NULL || a->known == NULL || a->standings == NULL || a->records == NULL ||
	    a->details == NULL)
		return sl_err_set(err, SL_ENOMEM, "events: out of memory");
	for (size_t i = 0; i < a->n_marks; i++)
		add(a, a->marks[i].stream, a->marks[i].incarnation);
	for (size_t i = 0; i < a->n; i++)
		add(a, a->events[i].stream, a->events[i].incarnation);
	return 0;
}

void sl__events_fini(struct sl__event_admission *a, const struct sl_env *env)
{
	sl__free(env, a->streams);
	sl__free(env, a->fresh);
	sl__free(env, a->known);
	sl__free(env, a->standings);
	sl__free(env, a->records);
	sl__free(env, a->details);
}

struct sl__event_stream *sl__events_stream(const struct sl__event_admission *a, const char *name, uint32_t incarnation)
{
	struct sl__event_stream *stream = find(a, name, incarnation);
	assert(stream != NULL);
	return stream;
}

static void note_skip(struct sl__event_stream *stream, uint64_t first, uint64_t last)
{
	if (stream->skip_first == 0)
		stream->skip_first = first;
	stream->skip_last = last;
}

static int admit_one(struct sl__event_admission *a, const struct sl_event_row *event, struct sl_err *err)
{
	struct sl__event_stream *stream = sl__events_stream(a, event->stream, event->incarnation);
	struct sl__event_mark *mark = &stream->mark;
	int rc = sl__event_mark_known(mark, event, err);
	if (rc != 0)
		return rc;
	if (event->sequence <= mark->sequence) {
		a->known[a->n_known++] = event;
		return 0;
	}
	if (event->sequence != mark->sequence + 1) {
		/* How far the caller lets the stream skip: its own mark, or 0. */
		uint64_t skip = 0;
		for (size_t i = 0; i < a->n_marks; i++)
			if (a->marks[i].incarnation == event->incarnation &&
			    strcmp(a->marks[i].stream, event->stream) == 0)
				skip = SL_MAX(skip, a->marks[i].mark);
		if (skip < event->sequence - 1)
			return sl_err_set(err, SL_EGAP, "stream %.100s is at %llu; event %llu does not follow",
					  event->stream, (unsigned long long)mark->sequence,
					  (unsigned long long)event->sequence);
		note_skip(stream, mark->sequence + 1, event->sequence - 1);
	}
	sl__event_mark_take(mark, event);
	a->fresh[a->n_fresh++] = event;
	return 0;
}

/* Whose stream is it, and may the writer add to it? */
static int admit_writer(struct sl__event_stream *stream, const struct sl_event_writer *writer, struct sl_err *err)
{
	bool is_new = !stream->found && !stream->has_others, has_owner = stream->owner[0] != '\0';
	stream->own = !stream->found && has_owner; /* a new incarnation has the owner of the others */
	if (writer == NULL || (is_new && writer->token == NULL))
		return 0;
	if (writer->token != NULL && has_owner && strcmp(stream->owner, writer->token) == 0)
		return 0;
	if (writer->token != NULL && (is_new || (!has_owner && writer->adopts))) {
		if (strlen(writer->token) > SL_EVENT_OWNER_MAX)
			return sl_err_set(err, SL_EINVAL, "stream %.100s: the token's name is too long", stream->name);
		(void)snprintf(stream->owner, sizeof(stream->owner), "%s", writer->token);
		stream->own = true;
		stream->adopted = !is_new;
		return 0;
	}
	if (!writer->any_stream)
		return sl_err_set(err, SL_EACCES, "stream %.100s belongs to %s", stream->name,
				  has_owner ? "another token" : "no token: it was created without one");
	/* Without tokens there is no other's. */
	stream->foreign = writer->token != NULL || has_owner;
	return 0;
}

int sl__events_admit(struct sl__event_admission *a, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < a->n_marks; i++) {
		struct sl__event_stream *stream = sl__events_stream(a, a->marks[i].stream, a->marks[i].incarnation);
		/* Two incarnations in one call: the owner that the earlier one has got is that of the other too. */
		for (size_t k = 0; k < i; k++) {
			const struct sl__event_stream *earlier =
				sl__events_stream(a, a->marks[k].stream, a->marks[k].incarnation);
			if (earlier == stream || strcmp(earlier->name, stream->name) != 0)
				continue;
			stream->has_others = true;
			memcpy(stream->owner, earlier->owner, sizeof(stream->owner));
		}
		rc = admit_writer(stream, a->marks[i].writer, err);
	}
	for (size_t i = 0; rc == 0 && i < a->n_marks; i++)
		rc = sl__event_mark_check(&sl__events_stream(a, a->marks[i].stream, a->marks[i].incarnation)->mark,
					  &a->marks[i], err);
	for (size_t i = 0; rc == 0 && i < a->n; i++)
		rc = admit_one(a, &a->events[i], err);
	for (size_t i = 0; rc == 0 && i < a->n_marks; i++) {
		struct sl__event_stream *stream = sl__events_stream(a, a->marks[i].stream, a->marks[i].incarnation);
		if (a->marks[i].mark > stream->mark.sequence)
			note_skip(stream, stream->mark.sequence + 1, a->marks[i].mark);
		sl__event_mark_skip(&stream->mark, a->marks[i].mark);
	}
	return rc;
}

void sl__events_audit(struct sl__event_admission *a)
{
	for (size_t i = 0; i < a->n_marks; i++) {
		const struct sl_event_writer *writer = a->marks[i].writer;
		const struct sl__event_stream *s;
		if (writer == NULL || writer->record == NULL)
			continue;
		s = sl__events_stream(a, a->marks[i].stream, a->marks[i].incarnation);
		size_t forged = 0; /* new events of the stream that name a job which never had their claim */
		for (size_t k = 0; k < a->n_fresh; k++) {
			const struct sl_event_row *e = a->fresh[k];
			forged += e->job_id != 0 && a->standings[e - a->events] <= SL__CLAIM_FORGED &&
				  e->incarnation == s->incarnation && strcmp(e->stream, s->name) == 0;
		}
		bool restarted = !s->found && s->has_others;
		if (s->skip_first == 0 && !s->adopted && !s->foreign && !restarted && forged == 0)
			continue;
		/* A stream's name has nothing that JSON escapes. */
		char *json = a->details[a->n_records].json;
		size_t size = sizeof(a->details->json);
		int n = snprintf(json, size, "{\"stream\":\"%s\",\"incarnation\":%" PRIu32, s->name, s->incarnation);
		if (s->skip_first != 0)
			n += snprintf(json + n, size - (size_t)n, ",\"skipped\":[\"%" PRIu64 "\",\"%" PRIu64 "\"]",
				      s->skip_first, s->skip_last);
		if (forged > 0)
			n += snprintf(json + n, size - (size_t)n, ",\"without_claim\":%zu", forged);
		(void)snprintf(json + n, size - (size_t)n, "%s%s%s}", restarted ? ",\"new_incarnation\":true" : "",
			       s->adopted ? ",\"new_owner\":true" : "", s->foreign ? ",\"foreign\":true" : "");
		a->records[a->n_records] = *writer->record;
		a->records[a->n_records].action = "events.publish";
		a->records[a->n_records++].detail = json;
	}
}

void sl__events_return_marks(const struct sl__event_admission *a)
{
	for (size_t i = 0; i < a->n_marks; i++)
		sl__event_mark_return(&sl__events_stream(a, a->marks[i].stream, a->marks[i].incarnation)->mark,
				      &a->marks[i]);
}

bool sl__event_keeps_job(const struct sl__event_admission *a, const struct sl_event_row *event)
{
	return event->job_id == 0 || a->standings[event - a->events] != SL__CLAIM_NO_JOB;
}

bool sl__event_is_late(const struct sl__event_admission *a, const struct sl_event_row *event)
{
	return event->job_id != 0 && a->standings[event - a->events] != SL__CLAIM_LATEST;
}

bool sl__event_same_claim(const struct sl_event_row *x, const struct sl_event_row *y)
{
	return x->job_id == y->job_id && x->attempt == y->attempt &&
	       memcmp(&x->claim, &y->claim, sizeof(x->claim)) == 0;
}
