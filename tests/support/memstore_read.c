/* SPDX-License-Identifier: Apache-2.0 */
/* The memory store, read: single jobs, listings, counts; and its events. */
#include <stdlib.h>

#include "base/compare.h"
#include "support/memstore_priv.h"

enum sl_job_status mem_status(struct memstore *ms, const struct mem_job *job)
{
	return mem_lease_of(ms, job) != NULL ? SL_JOB_RUNNING : job->status;
}

static bool waits_for_time(struct memstore *ms, const struct mem_job *job)
{
	return job->place == MEM_SCHED && job->scheduled_ms > mem_now(ms);
}

static enum sl_job_status state_of(struct memstore *ms, const struct mem_job *job)
{
	enum sl_job_status status = mem_status(ms, job);
	if (status != SL_JOB_PENDING)
		return status;
	if (!waits_for_time(ms, job))
		return SL_JOB_READY;
	return job->charged > 0 ? SL_JOB_RETRYING : SL_JOB_SCHEDULED;
}

static void show_job(struct memstore *ms, const struct mem_job *job, bool data, struct sl_job *out)
{
	const struct mem_lease *lease = mem_lease_of(ms, job);
	*out = (struct sl_job){.id = job->id,
			       .chain_id = job->chain_id,
			       .prev_id = job->prev_id,
			       .next_id = job->next_id,
			       .type = job->type,
			       .status = lease != NULL ? SL_JOB_RUNNING : job->status,
			       .attempt = lease != NULL ? (int32_t)job->fence : job->attempt,
			       .charged = job->charged,
			       .priority = job->priority,
			       .input = data ? job->input : NULL,
			       .output = data ? job->output : NULL,
			       .error = job->error,
			       .progress = data ? job->progress : NULL,
			       .key = job->key,
			       .traceparent = job->traceparent,
			       .leased_by = lease != NULL ? lease->worker : job->leased_by,
			       .created_ms = job->created_ms,
			       .scheduled_ms = job->scheduled_ms,
			       .started_ms = lease != NULL ? lease->since_ms : job->started_ms,
			       .ended_ms = job->ended_ms,
			       .leased_until_ms = lease != NULL ? lease->until_ms : 0,
			       .state = state_of(ms, job)};
	mem_blockers(ms, job->id, &out->blockers_open);
}

static void show_chain(struct memstore *ms, const struct mem_job *head, bool data, struct sl_chain *out)
{
	const struct mem_job *last = mem_job(ms, head->last_id);
	*out = (struct sl_chain){.id = head->id,
				 .last_id = last->id,
				 .type = head->type,
				 .at_type = last->type,
				 .status = mem_status(ms, last),
				 .input = data ? head->input : NULL,
				 .output = data ? last->output : NULL,
				 .error = last->error,
				 .key = head->key,
				 .created_ms = head->created_ms,
				 .ended_ms = last->ended_ms,
				 .state = state_of(ms, last)};
}

int mem_get_job(void *store, sl_store_tx *tx, uint64_t id, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, tx, "get_job", err);
	if (rc != 0)
		return rc;
	const struct mem_job *job = mem_job(ms, id);
	if (job != NULL) {
		struct sl_job shown;
		show_job(ms, job, true, &shown);
		rc = fn(&shown, ctx);
	} else {
		rc = sl_err_set(err, SL_ENOENT, "job %llu: not found", (unsigned long long)id);
	}
	return mem_leave(ms, tx, rc, err);
}

int mem_get_chain(void *store, sl_store_tx *tx, uint64_t id, sl_chain_fn *fn, void *ctx, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, tx, "get_chain", err);
	if (rc != 0)
		return rc;
	const struct mem_job *head = mem_chain(ms, id);
	if (head != NULL) {
		struct sl_chain shown;
		show_chain(ms, head, true, &shown);
		rc = fn(&shown, ctx);
	} else {
		rc = sl_err_set(err, SL_ENOENT, "chain %llu: not found", (unsigned long long)id);
	}
	return mem_leave(ms, tx, rc, err);
}

/* ---- listings ---- */

static bool waits_for(struct memstore *ms, uint64_t job_id, uint64_t chain_id)
{
	MEM_EACH(ms->s.edges, struct mem_edge, edge)
	if (!edge->gone && edge->job_id == job_id && edge->chain_id == chain_id)
		return true;
	return false;
}

static bool fits(const struct sl_job_filter *f, const char *type, enum sl_job_status status, enum sl_job_status state,
		 const char *key, int64_t created_ms)
{
	return (f->n_types == 0 || mem_has(f->types, f->n_types, type)) &&
	       (f->statuses == 0 || (f->statuses & (1u << status | 1u << state)) != 0) &&
	       (f->key == NULL || (key != NULL && strcmp(f->key, key) == 0)) && created_ms >= f->created_from_ms &&
	       (f->created_to_ms == 0 || created_ms < f->created_to_ms);
}

static bool has_text(const char *in, const char *text)
{
	return in != NULL && strstr(in, text) != NULL;
}

/* What is inside: of a chain, its first job's key and input and its last job's end. */
static bool fits_content(const struct sl_job_filter *f, const char *key, const char *input, const char *output,
			 const char *error, int64_t ended_ms)
{
	if (f->text != NULL && !has_text(input, f->text) && !has_text(output, f->text) && !has_text(error, f->text) &&
	    !has_text(key, f->text))
		return false;
	error = error != NULL ? error : "";
	if (f->error != NULL &&
	    (mem_error_line(error) != strlen(f->error) || memcmp(error, f->error, strlen(f->error)) != 0))
		return false;
	bool by_end = f->ended_from_ms != 0 || f->ended_to_ms != 0;
	return !by_end ||
	       (ended_ms != 0 && ended_ms >= f->ended_from_ms && (f->ended_to_ms == 0 || ended_ms < f->ended_to_ms));
}

static uint32_t list_limit(const struct sl_job_filter *f)
{
	uint32_t limit = f->limit == 0 ? 100 : f->limit;
	return limit > 10000 ? 10000 : limit;
}

/* The id after `id` in the order of the filter; 0 at the end. id 0 begins. */
static uint64_t step(struct memstore *ms, const struct sl_job_filter *f, uint64_t id)
{
	if (f->ascending)
		return id < ms->s.jobs.n ? id + 1 : 0;
	return id == 0 || id > ms->s.jobs.n ? ms->s.jobs.n : id - 1;
}

/* What a key, a chain or a blocker finds is not bounded. */
static bool bounded(const struct sl_job_filter *f)
{
	return f->scan != 0 && f->key == NULL && f->chain_id == 0 && f->blocks == 0;
}

/* Whether nothing is left after this id. */
static bool at_end(struct memstore *ms, const struct sl_job_filter *f, uint64_t id)
{
	return id == 0 || (f->ascending ? id >= ms->s.jobs.n : id == 1);
}

static const char *data_of(const struct sl_job_filter *f, const char *json)
{
	return f->data_max_bytes != 0 && json != NULL && strlen(json) > f->data_max_bytes ? "" : json;
}

int mem_list_jobs(void *store, const struct sl_job_filter *f, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "list_jobs", err);
	if (rc != 0)
		return rc;
	uint32_t n = 0, looked = 0;
	uint64_t reached = 0;
	for (uint64_t id = step(ms, f, f->after); id != 0 && n < list_limit(f) && rc == 0;
	     id = id == 1 && !f->ascending ? 0 : step(ms, f, id)) {
		const struct mem_job *job = mem_job(ms, id);
		if (bounded(f) && looked++ == f->scan)
			break;
		reached = id;
		if (job == NULL ||
		    !fits(f, job->type, mem_status(ms, job), state_of(ms, job), job->key, job->created_ms) ||
		    (f->chain_id != 0 && job->chain_id != f->chain_id) ||
		    (f->blocks != 0 && !waits_for(ms, id, f->blocks)) ||
		    !fits_content(f, job->key, job->input, job->output, job->error, job->ended_ms))
			continue;
		struct sl_job shown;
		show_job(ms, job, !f->without_data, &shown);
		shown.input = data_of(f, shown.input);
		shown.output = data_of(f, shown.output);
		shown.progress = data_of(f, shown.progress);
		rc = fn(&shown, ctx);
		n++;
	}
	if (f->reached != NULL)
		*f->reached = at_end(ms, f, reached) && n < list_limit(f) ? 0 : reached;
	return mem_leave(ms, NULL, rc, err);
}

static int list_blockers(struct memstore *ms, const struct sl_job_filter *f, sl_chain_fn *fn, void *ctx)
{
	uint32_t n = 0;
	bool passed = f->after == 0;
	int rc = 0;
	MEM_EACH(ms->s.edges, struct mem_edge, edge)
	{
		if (edge->gone || edge->job_id != f->blocked_by_job)
			continue;
		const struct mem_job *head = mem_chain(ms, edge->chain_id);
		if (passed && head != NULL && n < list_limit(f) && rc == 0) {
			struct sl_chain shown;
			show_chain(ms, head, !f->without_data, &shown);
			shown.input = data_of(f, shown.input);
			shown.output = data_of(f, shown.output);
			if (!fits(f, shown.type, shown.status, shown.state, shown.key, shown.created_ms))
				continue;
			rc = fn(&shown, ctx);
			n++;
		}
		passed = passed || edge->chain_id == f->after;
	}
	return rc;
}

static bool chain_waits_for(struct memstore *ms, uint64_t chain_id, uint64_t blocker)
{
	MEM_EACH(ms->s.edges, struct mem_edge, edge)
	if (!edge->gone && edge->chain_id == blocker && mem_job(ms, edge->job_id) != NULL &&
	    mem_job(ms, edge->job_id)->chain_id == chain_id)
		return true;
	return false;
}

static int list_heads(struct memstore *ms, const struct sl_job_filter *f, sl_chain_fn *fn, void *ctx)
{
	uint32_t n = 0, looked = 0;
	uint64_t reached = 0;
	int rc = 0;
	for (uint64_t id = step(ms, f, f->after); id != 0 && n < list_limit(f) && rc == 0;
	     id = id == 1 && !f->ascending ? 0 : step(ms, f, id)) {
		const struct mem_job *head = mem_chain(ms, id);
		if (bounded(f) && looked++ == f->scan)
			break;
		reached = id;
		if (head == NULL || (f->chain_id != 0 && id != f->chain_id))
			continue;
		struct sl_chain shown;
		show_chain(ms, head, true, &shown);
		if (!fits(f, shown.type, shown.status, shown.state, shown.key, shown.created_ms) ||
		    !fits_content(f, shown.key, shown.input, shown.output, shown.error, shown.ended_ms) ||
		    (f->blocks != 0 && !chain_waits_for(ms, id, f->blocks)))
			continue;
		show_chain(ms, head, !f->without_data, &shown);
		shown.input = data_of(f, shown.input);
		shown.output = data_of(f, shown.output);
		rc = fn(&shown, ctx);
		n++;
	}
	if (f->reached != NULL)
		*f->reached = at_end(ms, f, reached) && n < list_limit(f) ? 0 : reached;
	return rc;
}

int mem_list_chains(void *store, const struct sl_job_filter *f, sl_chain_fn *fn, void *ctx, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "list_chains", err);
	if (rc != 0)
		return rc;
	rc = f->blocked_by_job != 0 ? list_blockers(ms, f, fn, ctx) : list_heads(ms, f, fn, ctx);
	return mem_leave(ms, NULL, rc, err);
}

/* The attempt that the job's row and lease name: the one that runs, or the one that completed. */
static bool present_attempt(struct memstore *ms, const struct mem_job *job, struct sl_attempt_record *out)
{
	const struct mem_lease *lease = mem_lease_of(ms, job);
	if (lease != NULL) {
		*out = (struct sl_attempt_record){.attempt = (int32_t)job->fence,
						  .outcome = SL_ATTEMPT_RUNNING,
						  .worker = lease->worker,
						  .started_ms = lease->since_ms};
		return true;
	}
	*out = (struct sl_attempt_record){.attempt = job->attempt,
					  .outcome = SL_ATTEMPT_COMPLETED,
					  .worker = job->leased_by,
					  .started_ms = job->started_ms,
					  .ended_ms = job->ended_ms};
	return job->status == SL_JOB_COMPLETED && job->by_worker;
}

int mem_attempts(void *store, uint64_t job_id, sl_attempt_record_fn *fn, void *ctx, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "attempts", err);
	if (rc != 0)
		return rc;
	const struct mem_job *job = mem_job(ms, job_id);
	if (job == NULL)
		rc = sl_err_set(err, SL_ENOENT, "job %llu: not found", (unsigned long long)job_id);
	for (size_t i = 0; i < ms->s.attempts.n && rc == 0; i++) {
		const struct mem_attempt *a = MEM_AT(ms->s.attempts, struct mem_attempt, i);
		if (a->job_id == job_id)
			rc = fn(&a->rec, ctx);
	}
	struct sl_attempt_record present;
	if (rc == 0 && present_attempt(ms, job, &present))
		rc = fn(&present, ctx);
	return mem_leave(ms, NULL, rc, err);
}

/* ---- counts ---- */

static void count_job(struct memstore *ms, const struct mem_job *job, struct sl_job_count *c)
{
	c->count++;
	if (c->status == SL_JOB_PENDING) {
		c->due += !waits_for_time(ms, job);
		c->retrying += state_of(ms, job) == SL_JOB_RETRYING;
		if (c->oldest_due_ms == 0 && !waits_for_time(ms, job)) /* jobs are in the order of their ids */
			c->oldest_due_ms = job->scheduled_ms > job->created_ms ? job->scheduled_ms : job->created_ms;
	}
	if (mem_live(job) && (c->oldest_ms == 0 || job->created_ms < c->oldest_ms))
		c->oldest_ms = job->created_ms;
}

static struct sl_job_count *add_row(struct memstore *ms, struct mem_vec *rows, const char *type,
				    enum sl_job_status status)
{
	struct sl_job_count *row = mem_push(rows);
	row->type = type;
	row->status = status;
	row->paused = mem_paused(ms, type);
	return row;
}

static struct sl_job_count *count_row(struct memstore *ms, struct mem_vec *rows, const struct mem_job *job)
{
	enum sl_job_status status = mem_status(ms, job);
	MEM_EACH(*rows, struct sl_job_count, row)
	if (row->status == status && strcmp(row->type, job->type) == 0)
		return row;
	return add_row(ms, rows, job->type, status);
}

/* A paused type without jobs has a row all the same. */
static void add_paused(struct memstore *ms, struct mem_vec *rows)
{
	for (size_t i = 0; i < ms->s.paused.n; i++) {
		const char *type = *MEM_AT(ms->s.paused, const char *, i);
		bool found = false;
		MEM_EACH(*rows, struct sl_job_count, row)
		found = found || strcmp(row->type, type) == 0;
		if (!found)
			(void)add_row(ms, rows, type, SL_JOB_PENDING);
	}
}

int mem_counts(void *store, sl_job_count_fn *fn, void *ctx, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "counts", err);
	if (rc != 0)
		return rc;
	struct mem_vec rows = {.size = sizeof(struct sl_job_count)};
	MEM_EACH(ms->s.jobs, struct mem_job, job)
	if (!job->gone)
		count_job(ms, job, count_row(ms, &rows, job));
	add_paused(ms, &rows);
	for (size_t i = 0; i < rows.n && rc == 0; i++)
		rc = fn(MEM_AT(rows, struct sl_job_count, i), ctx);
	free(rows.items);
	return mem_leave(ms, NULL, rc, err);
}

int mem_outstanding(void *store, const char *const *types, size_t n_types, struct sl_outstanding *out,
		    struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "outstanding", err);
	if (rc != 0)
		return rc;
	*out = (struct sl_outstanding){0};
	MEM_EACH(ms->s.jobs, struct mem_job, job)
	{
		if (job->gone || !mem_live(job) || !mem_has(types, n_types, job->type))
			continue;
		if (job->status == SL_JOB_BLOCKED)
			out->blocked++;
		else if (mem_lease_of(ms, job) != NULL)
			out->running++;
		else if (!waits_for_time(ms, job))
			out->due++;
		else if (job->charged > 0)
			out->retrying++;
		else
			out->scheduled++;
	}
	return mem_leave(ms, NULL, 0, err);
}

/* ---- events ---- */

static struct mem_mark *find_mark(struct memstore *ms, const char *stream, uint32_t incarnation, bool make)
{
	MEM_EACH(ms->s.marks, struct mem_mark, mark)
	if (mark->incarnation == incarnation && strcmp(mark->stream, stream) == 0)
		return mark;
	if (!make)
		return NULL;
	struct mem_mark *mark = mem_push(&ms->s.marks);
	mark->stream = mem_str(ms, stream);
	mark->incarnation = incarnation;
	return mark;
}

static const struct sl_event_row *find_event(struct memstore *ms, const struct sl_event_row *like)
{
	MEM_EACH(ms->s.events, struct sl_event_row, event)
	if (event->sequence == like->sequence && event->incarnation == like->incarnation &&
	    strcmp(event->stream, like->stream) == 0)
		return event;
	return NULL;
}

/* Had this attempt of the job this claim? */
static bool is_genuine(struct memstore *ms, const struct mem_job *job, const struct sl_event_row *event)
{
	const struct mem_lease *lease = mem_lease_of(ms, job);
	size_t n = sizeof(event->claim);
	if (lease != NULL && event->attempt == (int32_t)job->fence && memcmp(&lease->claim, &event->claim, n) == 0)
		return true;
	if (job->by_worker && event->attempt == job->attempt && memcmp(&job->claim, &event->claim, n) == 0)
		return true;
	MEM_EACH(ms->s.attempts, struct mem_attempt, a)
	if (a->job_id == job->id && a->rec.attempt == event->attempt && memcmp(&a->claim, &event->claim, n) == 0)
		return true;
	return false;
}

static bool is_late(struct memstore *ms, const struct sl_event_row *event)
{
	if (event->job_id == 0 || ms->broken == MEMSTORE_EVENTS_NEVER_LATE)
		return false;
	const struct mem_job *job = mem_job(ms, event->job_id);
	return job == NULL || !is_genuine(ms, job, event) ||
	       event->attempt != (mem_lease_of(ms, job) != NULL ? (int32_t)job->fence : job->attempt);
}

static void take_event(struct memstore *ms, const struct sl_event_row *event)
{
	struct sl_event_row *row = mem_push(&ms->s.events);
	*row = *event;
	row->offset = ms->s.next_offset++;
	row->stream = mem_str(ms, event->stream);
	row->payload = mem_keep(ms, event->payload, event->payload_len);
	row->late = is_late(ms, event);
	if (event->job_id != 0 && mem_job(ms, event->job_id) == NULL)
		row->job_id = 0, row->attempt = 0; /* a job that is made later does not find it in its log */
}

/* One event against its stream's mark: dropped, taken, or the reason why neither. */
static int append_event(struct memstore *ms, const struct sl_event_row *event, size_t *n_new, struct sl_err *err)
{
	struct mem_mark *mark = find_mark(ms, event->stream, event->incarnation, true);
	if (event->sequence <= mark->mark && ms->broken != MEMSTORE_EVENTS_TWICE) {
		const struct sl_event_row *known = find_event(ms, event);
		if (event->sequence == mark->mark && mark->has_crc && mark->crc != event->crc &&
		    ms->broken != MEMSTORE_EVENTS_ANY_CRC)
			return sl_err_set(err, SL_ECONFLICT, "stream %s: the mark %llu has another CRC", event->stream,
					  (unsigned long long)event->sequence);
		ms->s.next_offset += ms->broken == MEMSTORE_EVENTS_OFFSETS;
		if (known != NULL && known->crc != event->crc && ms->broken != MEMSTORE_EVENTS_ANY_CRC)
			return sl_err_set(err, SL_ECONFLICT, "stream %s: sequence %llu has another CRC", event->stream,
					  (unsigned long long)event->sequence);
		return 0;
	}
	if (event->sequence > mark->mark + 1)
		return sl_err_set(err, SL_EGAP, "stream %s: sequence %llu after %llu", event->stream,
				  (unsigned long long)event->sequence, (unsigned long long)mark->mark);
	mark->mark = event->sequence > mark->mark ? event->sequence : mark->mark;
	mark->crc = event->crc;
	mark->has_crc = true;
	++*n_new;
	if (ms->broken == MEMSTORE_EVENTS_LOST && ++ms->torn % 8 == 0)
		return 0;
	take_event(ms, event);
	return 0;
}

/* Whose stream is it, whatever its incarnation, and may the writer add to it? */
static int check_owner(struct memstore *ms, const struct sl_event_mark *given, struct sl_err *err)
{
	const struct sl_event_writer *w = given->writer;
	const struct mem_mark *known = NULL;
	MEM_EACH(ms->s.marks, struct mem_mark, mark)
	if (strcmp(mark->stream, given->stream) == 0)
		known = mark;
	const char *owner = known != NULL ? known->owner : w != NULL && w->token != NULL ? mem_str(ms, w->token) : NULL;
	if (known != NULL && owner == NULL && w != NULL && w->token != NULL && w->adopts)
		owner = mem_str(ms, w->token);
	bool own = w == NULL || w->any_stream || (w->token != NULL && owner != NULL && strcmp(owner, w->token) == 0) ||
		   (known == NULL && w->token == NULL);
	if (!own)
		return sl_err_set(err, SL_EACCES, "stream %s belongs to another token", given->stream);
	(void)find_mark(ms, given->stream, given->incarnation, true);
	MEM_EACH(ms->s.marks, struct mem_mark, mark)
	if (strcmp(mark->stream, given->stream) == 0)
		mark->owner = owner;
	return 0;
}

static int append_all(struct memstore *ms, const struct sl_event_row *events, size_t n, struct sl_event_mark *marks,
		      size_t n_marks, size_t *n_new, struct sl_err *err)
{
	for (size_t j = 0; j < n_marks; j++) {
		int rc = check_owner(ms, &marks[j], err);
		if (rc != 0)
			return rc;
		const struct mem_mark *mark = find_mark(ms, marks[j].stream, marks[j].incarnation, true);
		if (marks[j].after != 0 && marks[j].after == mark->mark && mark->has_crc &&
		    marks[j].after_crc != mark->crc && ms->broken != MEMSTORE_EVENTS_ANY_CRC)
			return sl_err_set(err, SL_ECONFLICT, "stream %s: the mark %llu has another CRC",
					  marks[j].stream, (unsigned long long)mark->mark);
	}
	for (size_t i = 0; i < n; i++) {
		/* A skip counts only where the events do not fill it themselves. */
		struct mem_mark *mark = find_mark(ms, events[i].stream, events[i].incarnation, true);
		for (size_t j = 0; j < n_marks; j++)
			if (marks[j].incarnation == events[i].incarnation &&
			    strcmp(marks[j].stream, events[i].stream) == 0 && events[i].sequence > mark->mark + 1 &&
			    marks[j].mark >= events[i].sequence - 1) {
				mark->mark = events[i].sequence - 1;
				mark->has_crc = false;
			}
		int rc = append_event(ms, &events[i], n_new, err);
		if (rc != 0)
			return rc;
	}
	for (size_t j = 0; j < n_marks; j++) {
		struct mem_mark *mark = find_mark(ms, marks[j].stream, marks[j].incarnation, true);
		if (marks[j].mark > mark->mark) {
			mark->mark = marks[j].mark;
			mark->has_crc = false;
		}
		mark->at_ms = mem_now(ms);
		marks[j].mark = mark->mark;
		marks[j].crc = mark->has_crc ? mark->crc : 0;
		marks[j].has_crc = mark->has_crc;
	}
	return 0;
}

int mem_events_append(void *store, const struct sl_event_row *events, size_t n, struct sl_event_mark *marks,
		      size_t n_marks, size_t *n_new, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "events_append", err);
	if (rc != 0)
		return rc;
	struct mem_state before;
	size_t taken = 0;
	mem_snapshot(&before, &ms->s);
	rc = append_all(ms, events, n, marks, n_marks, &taken, err);
	if (rc != 0)
		mem_restore(&ms->s, &before);
	else
		mem_discard(&before);
	for (size_t i = 0; rc == 0 && i < n_marks; i++) {
		struct mem_mark_was *was = mem_push(&ms->marks_were);
		was->offset = ms->s.next_offset - 1;
		was->mark = *find_mark(ms, marks[i].stream, marks[i].incarnation, true);
	}
	if (rc == 0 && n_new != NULL)
		*n_new = taken;
	return mem_leave(ms, NULL, rc, err);
}

uint64_t memstore_lose_events(struct memstore *ms, uint64_t after)
{
	size_t n = 0;
	ms->s.marks.n = 0;
	while (n < ms->marks_were.n && MEM_AT(ms->marks_were, struct mem_mark_was, n)->offset <= after) {
		const struct mem_mark *was = &MEM_AT(ms->marks_were, struct mem_mark_was, n++)->mark;
		*find_mark(ms, was->stream, was->incarnation, true) = *was;
	}
	ms->marks_were.n = n;
	after = n > 0 ? MEM_AT(ms->marks_were, struct mem_mark_was, n - 1)->offset : 0;
	while (ms->s.events.n > 0 && MEM_AT(ms->s.events, struct sl_event_row, ms->s.events.n - 1)->offset > after)
		ms->s.events.n--;
	ms->s.next_offset = after + 1;
	return after;
}

bool memstore_mark(struct memstore *ms, const char *stream, uint32_t incarnation, uint64_t *sequence, uint64_t *crc)
{
	const struct mem_mark *mark = find_mark(ms, stream, incarnation, false);
	*sequence = mark != NULL ? mark->mark : 0;
	*crc = mark != NULL && mark->has_crc ? mark->crc : 0;
	return mark != NULL && mark->has_crc;
}

int mem_events_read(void *store, uint64_t job_id, uint64_t after, uint32_t limit, sl_event_row_fn *fn, void *ctx,
		    struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "events_read", err);
	if (rc != 0)
		return rc;
	uint32_t n = 0;
	for (size_t i = 0; i < ms->s.events.n && n < limit && rc == 0; i++) {
		const struct sl_event_row *event = MEM_AT(ms->s.events, struct sl_event_row, i);
		if (event->offset <= after || (job_id != 0 && event->job_id != job_id))
			continue;
		rc = fn(event, ctx);
		n++;
	}
	return mem_leave(ms, NULL, rc, err);
}

int mem_events_newest(void *store, uint64_t *offset, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "events_newest", err);
	if (rc != 0)
		return rc;
	*offset = 0;
	for (size_t i = 0; i < ms->s.events.n; i++) {
		const struct sl_event_row *event = MEM_AT(ms->s.events, struct sl_event_row, i);
		if (event->offset > *offset)
			*offset = event->offset;
	}
	return mem_leave(ms, NULL, 0, err);
}

/* ---- leases ---- */

static int by_claim(const void *a, const void *b)
{
	const struct mem_lease *const *l = a, *const *r = b;
	return memcmp((*l)->claim.bytes, (*r)->claim.bytes, 16);
}

static int by_id(const void *a, const void *b)
{
	uint64_t l = *(const uint64_t *)a, r = *(const uint64_t *)b;
	return l < r ? -1 : l > r;
}

/* The jobs that are still under the lease, and their types. *rc: what fn returned. */
static bool show_lease(struct memstore *ms, const struct mem_lease *lease, sl_lease_fn *fn, void *ctx, int *rc)
{
	uint64_t *ids = calloc(lease->n + 1, sizeof(*ids));
	const char **types = calloc(lease->n + 1, sizeof(*types));
	struct sl_lease shown = {.worker = lease->worker,
				 .types = types,
				 .jobs = ids,
				 .claimed_ms = lease->since_ms,
				 .until_ms = lease->until_ms};
	memcpy(shown.claim, lease->claim.bytes, 16);
	for (size_t i = 0; i < lease->n; i++) {
		const struct mem_job *job = mem_job(ms, lease->ids[i]);
		if (job == NULL || job->fence != lease->fences[i] || mem_lease_of(ms, job) != lease)
			continue;
		ids[shown.n_jobs++] = job->id;
		if (!mem_has(types, shown.n_types, job->type))
			types[shown.n_types++] = job->type;
	}
	qsort(ids, shown.n_jobs, sizeof(*ids), by_id);
	qsort(types, shown.n_types, sizeof(*types), sl__compare_texts);
	if (shown.n_jobs > 0)
		*rc = fn(&shown, ctx);
	free(ids);
	free(types);
	return shown.n_jobs > 0;
}

int mem_leases(void *store, const uint8_t after[16], uint32_t limit, sl_lease_fn *fn, void *ctx, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "leases", err);
	if (rc != 0)
		return rc;
	const struct mem_lease **sorted = calloc(ms->s.leases.n + 1, sizeof(*sorted));
	size_t n = 0;
	uint32_t shown = 0;
	MEM_EACH(ms->s.leases, struct mem_lease, lease)
	if (after == NULL || memcmp(lease->claim.bytes, after, 16) > 0)
		sorted[n++] = lease;
	qsort(sorted, n, sizeof(*sorted), by_claim);
	for (size_t i = 0; i < n && shown < limit && rc == 0; i++)
		shown += show_lease(ms, sorted[i], fn, ctx, &rc);
	free(sorted);
	return mem_leave(ms, NULL, rc, err);
}

/* ---- errors ---- */

size_t mem_error_line(const char *error)
{
	size_t n = 0, chars = 0;
	for (; error[n] != '\0' && error[n] != '\n'; n++) {
		bool begins = ((unsigned char)error[n] & 0xc0) != 0x80;
		if (begins && ++chars > SL_ERROR_LINE_CHARS)
			break;
	}
	return n;
}

static struct sl_error_group *group_of(struct memstore *ms, struct mem_vec *groups, const struct mem_job *job)
{
	const char *error = job->error != NULL ? job->error : "";
	size_t n = mem_error_line(error);
	MEM_EACH(*groups, struct sl_error_group, g)
	if (strcmp(g->type, job->type) == 0 && strlen(g->error) == n && memcmp(g->error, error, n) == 0)
		return g;
	struct sl_error_group *g = mem_push(groups);
	char *line = mem_room(ms, n + 1);
	memcpy(line, error, n);
	line[n] = '\0';
	g->type = job->type;
	g->error = line;
	g->sample_id = job->id;
	g->first_ms = INT64_MAX;
	return g;
}

static int by_size(const void *a, const void *b)
{
	const struct sl_error_group *l = a, *r = b;
	if (l->count != r->count)
		return l->count > r->count ? -1 : 1;
	return l->sample_id > r->sample_id ? -1 : 1;
}

int mem_errors(void *store, const struct sl_error_filter *f, sl_error_group_fn *fn, void *ctx, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "errors", err);
	if (rc != 0)
		return rc;
	struct mem_vec groups = {.size = sizeof(struct sl_error_group)};
	uint32_t looked = 0, scan = f->scan == 0 ? 10000 : f->scan, limit = f->limit == 0 ? 100 : f->limit;
	uint64_t reached = 0;
	for (uint64_t id = f->after == 0 ? ms->s.jobs.n : f->after - 1; id > 0 && looked < scan; id--) {
		const struct mem_job *job = mem_job(ms, id);
		bool again = job != NULL && job->status == SL_JOB_PENDING && job->charged > 0 && job->error != NULL;
		if (job == NULL || (job->status != SL_JOB_FAILED && !again))
			continue;
		reached = ++looked == scan ? id : 0;
		if (f->n_types > 0 && !mem_has(f->types, f->n_types, job->type))
			continue;
		struct sl_error_group *g = group_of(ms, &groups, job);
		int64_t first_ms = job->ended_ms, last_ms = job->ended_ms;
		for (size_t i = 0; again && i < ms->s.attempts.n; i++) {
			const struct mem_attempt *a = MEM_AT(ms->s.attempts, struct mem_attempt, i);
			if (a->job_id != id || a->rec.outcome != SL_ATTEMPT_FAILED)
				continue;
			first_ms = first_ms == 0 ? a->rec.ended_ms : first_ms;
			last_ms = a->rec.ended_ms;
		}
		g->count++;
		g->retrying += again;
		g->first_ms = first_ms < g->first_ms ? first_ms : g->first_ms;
		g->last_ms = last_ms > g->last_ms ? last_ms : g->last_ms;
	}
	if (groups.n > 0)
		qsort(groups.items, groups.n, groups.size, by_size);
	for (size_t i = 0; i < groups.n && i < limit && rc == 0; i++)
		rc = fn(MEM_AT(groups, struct sl_error_group, i), ctx);
	free(groups.items);
	if (f->reached != NULL)
		*f->reached = reached;
	return mem_leave(ms, NULL, rc, err);
}

/* ---- streams ---- */

static int compare_streams(const char *stream, uint32_t incarnation, const char *other, uint32_t other_incarnation)
{
	int c = strcmp(stream, other);
	return c != 0 ? c : (incarnation > other_incarnation) - (incarnation < other_incarnation);
}

static int by_stream(const void *a, const void *b)
{
	const struct sl_event_stream *l = a, *r = b;
	return compare_streams(l->stream, l->incarnation, r->stream, r->incarnation);
}

int mem_event_streams(void *store, const struct sl_event_stream *after, uint32_t limit, sl_event_stream_fn *fn,
		      void *ctx, struct sl_err *err)
{
	struct memstore *ms = store;
	int rc = mem_enter(ms, NULL, "event_streams", err);
	if (rc != 0)
		return rc;
	struct sl_event_stream *all = calloc(ms->s.marks.n + 1, sizeof(*all));
	size_t n = 0;
	MEM_EACH(ms->s.marks, struct mem_mark, mark)
	{
		if (after != NULL &&
		    compare_streams(mark->stream, mark->incarnation, after->stream, after->incarnation) <= 0)
			continue;
		all[n] = (struct sl_event_stream){
			.stream = mark->stream, .incarnation = mark->incarnation, .mark = mark->mark};
		uint64_t last = 0;
		MEM_EACH(ms->s.events, struct sl_event_row, event)
		if (event->sequence > last && event->incarnation == mark->incarnation &&
		    strcmp(event->stream, mark->stream) == 0) {
			last = event->sequence;
			all[n].last_ms = event->ts_ms;
		}
		n++;
	}
	qsort(all, n, sizeof(*all), by_stream);
	for (size_t i = 0; i < n && i < limit && rc == 0; i++)
		rc = fn(&all[i], ctx);
	free(all);
	return mem_leave(ms, NULL, rc, err);
}
