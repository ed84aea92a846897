/* SPDX-License-Identifier: Apache-2.0 */
/* The memory store, seen from outside: its leases, its failed jobs by their errors, its streams. */
#include <stdlib.h>

#include "support/memstore_priv.h"

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

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
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
	qsort(types, shown.n_types, sizeof(*types), by_name);
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
	g->last_ms = g->first_ms = job->ended_ms;
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
		if (job == NULL || job->status != SL_JOB_FAILED)
			continue;
		reached = ++looked == scan ? id : 0;
		if (f->n_types > 0 && !mem_has(f->types, f->n_types, job->type))
			continue;
		struct sl_error_group *g = group_of(ms, &groups, job);
		g->count++;
		g->first_ms = job->ended_ms < g->first_ms ? job->ended_ms : g->first_ms;
		g->last_ms = job->ended_ms > g->last_ms ? job->ended_ms : g->last_ms;
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
