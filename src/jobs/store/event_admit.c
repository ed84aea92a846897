/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/store/event_admit.h"

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
	a->streams = sl__calloc(env, a->n + a->n_marks + 1, sizeof *a->streams);
	a->fresh = sl__calloc(env, a->n + 1, sizeof *a->fresh);
	a->known = sl__calloc(env, a->n + 1, sizeof *a->known);
	a->standings = sl__calloc(env, a->n + 1, sizeof *a->standings);
	if (a->streams == NULL || a->fresh == NULL || a->known == NULL || a->standings == NULL)
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
}

struct sl__event_stream *sl__events_stream(const struct sl__event_admission *a, const char *name, uint32_t incarnation)
{
	struct sl__event_stream *stream = find(a, name, incarnation);
	assert(stream != NULL);
	return stream;
}

/* How far the caller lets the stream skip: its own mark, or 0. */
static uint64_t skip_of(const struct sl__event_admission *a, const struct sl_event_row *event)
{
	uint64_t skip = 0;
	for (size_t i = 0; i < a->n_marks; i++)
		if (a->marks[i].incarnation == event->incarnation && strcmp(a->marks[i].stream, event->stream) == 0)
			skip = SL_MAX(skip, a->marks[i].mark);
	return skip;
}

static int admit_one(struct sl__event_admission *a, const struct sl_event_row *event, struct sl_err *err)
{
	struct sl__event_mark *mark = &sl__events_stream(a, event->stream, event->incarnation)->mark;
	int rc = sl__event_mark_known(mark, event, err);
	if (rc != 0)
		return rc;
	if (event->sequence <= mark->sequence) {
		a->known[a->n_known++] = event;
		return 0;
	}
	if (event->sequence != mark->sequence + 1 && skip_of(a, event) < event->sequence - 1)
		return sl_err_set(err, SL_EGAP, "stream %.100s is at %llu; event %llu does not follow", event->stream,
				  (unsigned long long)mark->sequence, (unsigned long long)event->sequence);
	sl__event_mark_take(mark, event);
	a->fresh[a->n_fresh++] = event;
	return 0;
}

int sl__events_admit(struct sl__event_admission *a, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < a->n_marks; i++)
		rc = sl__event_mark_check(&sl__events_stream(a, a->marks[i].stream, a->marks[i].incarnation)->mark,
					  &a->marks[i], err);
	for (size_t i = 0; rc == 0 && i < a->n; i++)
		rc = admit_one(a, &a->events[i], err);
	for (size_t i = 0; rc == 0 && i < a->n_marks; i++)
		sl__event_mark_skip(&sl__events_stream(a, a->marks[i].stream, a->marks[i].incarnation)->mark,
				    a->marks[i].mark);
	return rc;
}

void sl__events_tell(const struct sl__event_admission *a)
{
	for (size_t i = 0; i < a->n_marks; i++)
		sl__event_mark_tell(&sl__events_stream(a, a->marks[i].stream, a->marks[i].incarnation)->mark,
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
	return x->job_id == y->job_id && x->attempt == y->attempt && memcmp(&x->claim, &y->claim, sizeof x->claim) == 0;
}
