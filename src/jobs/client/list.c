/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading: jobs, chains, attempts, events, counts, schedules, leases, workers, errors and streams.
 *
 * A store calls back from inside its statement, where it must not be called again; so rows are copied first and passed
 * to the caller afterwards, a page at a time, each page bounded in rows and bytes. A listing of several pages is not a
 * snapshot: rows that change meanwhile are seen as they are when their page is read, and no id is seen twice.
 */
#include <stdlib.h>

#include "base/compare.h"
#include "jobs/client/client.h"

#define LIMIT_DEFAULT 100
#define LIMIT_MAX 10000
#define PAGE_ROWS 500
/* Longer data is not in the page: it is read with its row alone, so that a page of large rows costs little more than
 * one of them. */
#define INLINE_BYTES (64u << 10)
#define ERROR_SCAN_MAX 100000
#define ERROR_GROUPS_MAX 1000
#define LEASES_PAGE 1000

/* ---- one row ---- */

/* A copy of the job or chain, in *out. */
static int copy_first(sl_jobs *client, bool chain, uint64_t id, void **out, struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	struct sl__copy copy = {.env = &client->home.env};
	const char *what = chain ? "chain" : "job";
	int rc = sl__home_check(&client->home, err);
	if (rc != 0)
		return rc;
	rc = chain ? store->ops->get_chain(store->ctx, NULL, id, sl__copy_chain, &copy, err)
		   : store->ops->get_job(store->ctx, NULL, id, sl__copy_job, &copy, err);
	if (rc == SL_ENOMEM)
		(void)sl_err_set(err, rc, "%s %llu: no memory", what, (unsigned long long)id);
	if (rc == 0 && copy.data == NULL)
		rc = sl_err_set(err, SL_ENOENT, "no %s %llu", what, (unsigned long long)id);
	if (rc != 0) {
		sl__free(copy.env, copy.data);
		return rc;
	}
	*out = copy.data;
	return 0;
}

int sl_jobs_get(sl_jobs *client, uint64_t id, struct sl_job **out, struct sl_err *err)
{
	void *copy;
	int rc = copy_first(client, false, id, &copy, err);
	if (rc == 0)
		*out = copy;
	return rc;
}

int sl_jobs_get_chain(sl_jobs *client, uint64_t id, struct sl_chain **out, struct sl_err *err)
{
	void *copy;
	int rc = copy_first(client, true, id, &copy, err);
	if (rc == 0)
		*out = copy;
	return rc;
}

void sl_job_release(sl_jobs *client, struct sl_job *job)
{
	sl__free(&client->home.env, job);
}

void sl_chain_release(sl_jobs *client, struct sl_chain *chain)
{
	sl__free(&client->home.env, chain);
}

/* ---- many rows ---- */

enum listed { JOBS, CHAINS, EVENTS, ATTEMPTS, COUNTS, SCHEDULES, LEASES, ERRORS, STREAMS };

/* What to list, from where on, and the caller's function for each row. */
struct listing {
	sl_jobs *client;
	enum listed what;
	struct sl_job_filter filter; /* of jobs and chains */
	uint64_t id, after;          /* of events and attempts */
	uint64_t reached;            /* of jobs and chains: how far the last page went */
	uint32_t data_max_bytes;     /* as the caller gave it */
	const uint8_t *after_claim;  /* of leases */
	const struct sl_error_filter *errors;
	const struct sl_event_stream *after_stream;
	union {
		sl_job_fn *job;
		sl_chain_fn *chain;
		sl_event_row_fn *event;
		sl_attempt_record_fn *attempt;
		sl_job_count_fn *count;
		sl_cron_fn *cron;
		sl_lease_fn *lease;
		sl_error_group_fn *error;
		sl_event_stream_fn *stream;
	} fn;
	void *ctx;
};

/* Read the next page of at most `limit` rows; a full one ends early. */
static int read_list_page(struct listing *l, uint32_t limit, struct sl__rows *rows, struct sl_err *err)
{
	const struct sl_store_ops *ops = l->client->home.store.ops;
	void *store = l->client->home.store.ctx;
	int rc = SL_EINVAL;
	l->filter.limit = limit;
	l->filter.reached = &l->reached;
	l->filter.data_max_bytes = l->data_max_bytes != 0 ? SL_MIN(l->data_max_bytes, INLINE_BYTES) : INLINE_BYTES;
	switch (l->what) {
	case JOBS:
		rc = ops->list_jobs(store, &l->filter, sl__rows_job, rows, err);
		break;
	case CHAINS:
		rc = ops->list_chains(store, &l->filter, sl__rows_chain, rows, err);
		break;
	case EVENTS:
		rc = ops->events_read(store, l->id, l->after, limit, sl__rows_event, rows, err);
		break;
	case ATTEMPTS:
		rc = ops->attempts(store, l->id, sl__rows_attempt, rows, err);
		break;
	case COUNTS:
		rc = ops->counts(store, sl__rows_count, rows, err);
		break;
	case SCHEDULES:
		rc = ops->cron_list(store, sl__rows_cron, rows, err);
		break;
	case LEASES:
		rc = ops->leases(store, l->after_claim, limit, sl__rows_lease, rows, err);
		break;
	case ERRORS:
		rc = ops->errors(store, l->errors, sl__rows_error, rows, err);
		break;
	case STREAMS:
		rc = ops->event_streams(store, l->after_stream, limit, sl__rows_stream, rows, err);
		break;
	}
	if (rc == SL__ROWS_FULL && rows->full)
		return 0;
	if (rc == SL_ENOMEM && rows->no_memory)
		(void)sl_err_set(err, rc, "list: no memory for the next row");
	return rc;
}

/* Whether a value is not in the page although the caller wants it. */
static bool is_left_out(const struct listing *l, const char *json)
{
	return json != NULL && *json == '\0' && (l->data_max_bytes == 0 || l->data_max_bytes > INLINE_BYTES);
}

static const char *bounded(const struct listing *l, const char *json)
{
	return l->data_max_bytes != 0 && json != NULL && strlen(json) > l->data_max_bytes ? "" : json;
}

/* Pass a job to the caller, with its large data read now. One that was deleted since the page was read is skipped. */
static int pass_job(const struct listing *l, const struct sl_job *job, struct sl_err *err)
{
	struct sl_job *whole = NULL;
	if (!is_left_out(l, job->input) && !is_left_out(l, job->output) && !is_left_out(l, job->progress))
		return l->fn.job(job, l->ctx);
	int rc = sl_jobs_get(l->client, job->id, &whole, err);
	if (rc != 0)
		return rc == SL_ENOENT ? 0 : rc;
	whole->input = bounded(l, whole->input);
	whole->output = bounded(l, whole->output);
	whole->progress = bounded(l, whole->progress);
	rc = l->fn.job(whole, l->ctx);
	sl_job_release(l->client, whole);
	return rc;
}

/* The same for a chain. */
static int show_chain(const struct listing *l, const struct sl_chain *chain, struct sl_err *err)
{
	struct sl_chain *whole = NULL;
	if (!is_left_out(l, chain->input) && !is_left_out(l, chain->output))
		return l->fn.chain(chain, l->ctx);
	int rc = sl_jobs_get_chain(l->client, chain->id, &whole, err);
	if (rc != 0)
		return rc == SL_ENOENT ? 0 : rc;
	whole->input = bounded(l, whole->input);
	whole->output = bounded(l, whole->output);
	rc = l->fn.chain(whole, l->ctx);
	sl_chain_release(l->client, whole);
	return rc;
}

/* Pass one row to the caller. */
static int show_row(const struct listing *l, const void *row, struct sl_err *err)
{
	switch (l->what) {
	case JOBS:
		return pass_job(l, row, err);
	case CHAINS:
		return show_chain(l, row, err);
	case EVENTS:
		return l->fn.event(row, l->ctx);
	case ATTEMPTS:
		return l->fn.attempt(row, l->ctx);
	case COUNTS:
		return l->fn.count(row, l->ctx);
	case SCHEDULES:
		return l->fn.cron(row, l->ctx);
	case LEASES:
		return l->fn.lease(row, l->ctx);
	case ERRORS:
		return l->fn.error(row, l->ctx);
	case STREAMS:
		return l->fn.stream(row, l->ctx);
	}
	return SL_EINVAL;
}

static int check_at_most(const char *what, uint32_t given, uint32_t most, struct sl_err *err)
{
	if (given <= most)
		return 0;
	return sl_err_set(err, SL_EINVAL, "%s is %u; it must be at most %u, with a cursor for the rest", what, given,
			  most);
}

/* Pass up to `limit` rows (0: LIMIT_DEFAULT) to the caller. Jobs, chains and events are read page by page; everything
 * else is short and comes as one page. */
static int list_pages(struct listing *l, uint32_t limit, struct sl_err *err)
{
	bool paged = l->what == JOBS || l->what == CHAINS || l->what == EVENTS;
	int rc = check_at_most("limit", limit, LIMIT_MAX, err);
	if (rc == 0)
		rc = sl__home_check(&l->client->home, err);
	if (limit == 0)
		limit = LIMIT_DEFAULT;
	for (uint32_t left = limit; rc == 0;) {
		struct sl__rows rows;
		uint32_t asked = paged ? SL_MIN(left, PAGE_ROWS) : left;
		sl__rows_init(&rows, &l->client->home.env);
		rc = read_list_page(l, asked, &rows, err);
		for (const struct sl__row *row = rows.first; rc == 0 && row != NULL; row = row->next)
			rc = show_row(l, row->data, err);
		bool more = paged && (rows.full || rows.n == asked);
		left -= SL_MIN(left, (uint32_t)rows.n);
		l->filter.after = l->after = rows.last_id;
		sl__rows_fini(&rows);
		if (!more || left == 0)
			break;
	}
	return rc;
}

static int check_type_names(const char *const *types, size_t n, struct sl_err *err)
{
	for (size_t i = 0; i < n; i++) {
		int rc = sl__job_name_check(types[i], "types", err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int check_filter(const struct listing *l, struct sl_err *err)
{
	int rc = check_at_most("limit", l->filter.limit, LIMIT_MAX, err);
	if (rc != 0)
		return rc;
	if ((l->filter.statuses & ~(((1u << SL_JOB_STATE_COUNT) - 1) << 1)) != 0)
		return sl_err_set(err, SL_EINVAL, "statuses: a bit is not one of 1u << SL_JOB_…");
	if (l->filter.blocked_by_job != 0 && l->what != CHAINS)
		return sl_err_set(err, SL_EINVAL, "blocked_by_job lists chains, not jobs");
	return check_type_names(l->filter.types, l->filter.n_types, err);
}

static int list_filtered(struct listing *l, const struct sl_job_filter *filter, struct sl_err *err)
{
	if (filter != NULL && filter->struct_size == 0)
		return sl_err_set(err, SL_EINVAL, "filter: struct_size is 0; use SL_JOB_FILTER_INIT");
	sl__opts_copy(&l->filter, sizeof(l->filter), filter);
	uint64_t *reached = l->filter.reached;
	l->data_max_bytes = l->filter.data_max_bytes;
	int rc = check_filter(l, err);
	if (rc == 0)
		rc = list_pages(l, l->filter.limit, err);
	if (reached != NULL)
		*reached = l->reached;
	return rc;
}

int sl_jobs_list(sl_jobs *client, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	struct listing l = {.client = client, .what = JOBS, .fn.job = fn, .ctx = ctx};
	return list_filtered(&l, filter, err);
}

int sl_jobs_list_chains(sl_jobs *client, const struct sl_job_filter *filter, sl_chain_fn *fn, void *ctx,
			struct sl_err *err)
{
	struct listing l = {.client = client, .what = CHAINS, .fn.chain = fn, .ctx = ctx};
	return list_filtered(&l, filter, err);
}

int sl_jobs_events(sl_jobs *client, uint64_t job_id, uint64_t after, uint32_t limit, sl_event_row_fn *fn, void *ctx,
		   struct sl_err *err)
{
	struct listing l = {.client = client, .what = EVENTS, .id = job_id, .after = after, .fn.event = fn, .ctx = ctx};
	return list_pages(&l, limit, err);
}

int sl_jobs_attempts(sl_jobs *client, uint64_t id, sl_attempt_record_fn *fn, void *ctx, struct sl_err *err)
{
	struct listing l = {.client = client, .what = ATTEMPTS, .id = id, .fn.attempt = fn, .ctx = ctx};
	return list_pages(&l, 0, err);
}

int sl_jobs_counts(sl_jobs *client, sl_job_count_fn *fn, void *ctx, struct sl_err *err)
{
	struct listing l = {.client = client, .what = COUNTS, .fn.count = fn, .ctx = ctx};
	return list_pages(&l, 0, err);
}

int sl_jobs_cron_list(sl_jobs *client, sl_cron_fn *fn, void *ctx, struct sl_err *err)
{
	struct listing l = {.client = client, .what = SCHEDULES, .fn.cron = fn, .ctx = ctx};
	return list_pages(&l, 0, err);
}

int sl_jobs_leases(sl_jobs *client, const uint8_t after[16], uint32_t limit, sl_lease_fn *fn, void *ctx,
		   struct sl_err *err)
{
	struct listing l = {.client = client, .what = LEASES, .after_claim = after, .fn.lease = fn, .ctx = ctx};
	return list_pages(&l, limit, err);
}

int sl_jobs_errors(sl_jobs *client, const struct sl_error_filter *filter, sl_error_group_fn *fn, void *ctx,
		   struct sl_err *err)
{
	struct sl_error_filter f;
	struct listing l = {.client = client, .what = ERRORS, .errors = &f, .fn.error = fn, .ctx = ctx};
	if (filter != NULL && filter->struct_size == 0)
		return sl_err_set(err, SL_EINVAL, "filter: struct_size is 0; use SL_ERROR_FILTER_INIT");
	sl__opts_copy(&f, sizeof(f), filter);
	int rc = check_at_most("scan", f.scan, ERROR_SCAN_MAX, err);
	if (rc == 0)
		rc = check_at_most("limit", f.limit, ERROR_GROUPS_MAX, err);
	if (rc == 0)
		rc = check_type_names(f.types, f.n_types, err);
	if (rc != 0)
		return rc;
	return list_pages(&l, 0, err);
}

int sl_jobs_event_streams(sl_jobs *client, const struct sl_event_stream *after, uint32_t limit, sl_event_stream_fn *fn,
			  void *ctx, struct sl_err *err)
{
	struct listing l = {.client = client, .what = STREAMS, .after_stream = after, .fn.stream = fn, .ctx = ctx};
	return list_pages(&l, limit, err);
}

/* ---- workers ---- */

static int by_worker(const void *a, const void *b)
{
	const struct sl_lease *const *l = a, *const *r = b;
	return strcmp((*l)->worker, (*r)->worker);
}

/* Add n leases of one worker. types has room for the types of all of them. */
static void add_leases(struct sl_worker_info *w, const struct sl_lease *const *leases, size_t n, const char **types)
{
	size_t n_types = 0;
	w->leases = n;
	for (size_t i = 0; i < n; i++) {
		w->jobs += leases[i]->n_jobs;
		w->oldest_claimed_ms =
			i == 0 ? leases[i]->claimed_ms : SL_MIN(w->oldest_claimed_ms, leases[i]->claimed_ms);
		w->until_ms = i == 0 ? leases[i]->until_ms : SL_MIN(w->until_ms, leases[i]->until_ms);
		for (size_t t = 0; t < leases[i]->n_types; t++)
			types[n_types++] = leases[i]->types[t];
	}
	if (w->seen_ms != 0)
		return; /* it says itself what it serves */
	/* Each type once, in order. */
	qsort(types, n_types, sizeof(*types), sl__compare_texts);
	w->types = types;
	for (size_t i = 0; i < n_types; i++)
		if (w->n_types == 0 || strcmp(types[w->n_types - 1], types[i]) != 0)
			types[w->n_types++] = types[i];
}

/* What the worker reports. Its list of types, which is this copy's own, is cut into pieces; types has room for them. */
static struct sl_worker_info reported(const struct sl_heartbeat *h, const char **types)
{
	struct sl_worker_info w = {.worker = h->worker,
				   .types = types,
				   .seen_ms = h->seen_ms,
				   .started_ms = h->started_ms,
				   .host = h->host,
				   .version = h->version,
				   .pid = h->pid,
				   .slots = (uint32_t)h->slots,
				   .error = h->error,
				   .error_ms = h->error_ms};
	char *rest = (char *)(uintptr_t)h->types;
	for (const char *type; (type = strsep(&rest, ",")) != NULL;)
		types[w.n_types++] = type;
	return w;
}

/* All leases, and all heartbeats in the order of their workers. */
static int read_reports(sl_jobs *client, struct sl__rows *leases, struct sl__rows *heartbeats, struct sl_err *err)
{
	struct listing l = {.client = client, .what = LEASES};
	const sl_store *store = &client->home.store;
	uint8_t last[16];
	size_t before;
	int rc;
	do {
		before = leases->n;
		rc = read_list_page(&l, LEASES_PAGE, leases, err);
		if (rc == 0 && leases->n > before) {
			const struct sl_lease *lease = sl__rows_newest(leases);
			memcpy(last, lease->claim, sizeof(last));
			l.after_claim = last;
		}
	} while (rc == 0 && leases->n - before >= LEASES_PAGE);
	if (rc != 0 || store->ops->heartbeats == NULL)
		return rc;
	rc = store->ops->heartbeats(store->ctx, sl__rows_heartbeat, heartbeats, err);
	if (rc == SL_ENOMEM && heartbeats->no_memory)
		(void)sl_err_set(err, rc, "list: no memory for the next worker");
	return rc;
}

int sl_jobs_workers(sl_jobs *client, sl_worker_info_fn *fn, void *ctx, struct sl_err *err)
{
	const struct sl_env *env = &client->home.env;
	struct sl__rows rows, heartbeats;
	size_t n = 0, n_types = 0;
	int rc = sl__home_check(&client->home, err);
	if (rc != 0)
		return rc;
	sl__rows_init(&rows, env);
	sl__rows_init(&heartbeats, env);
	rc = read_reports(client, &rows, &heartbeats, err);
	/* Both in the order of workers. */
	for (const struct sl__row *row = rows.first; row != NULL; row = row->next)
		n_types += ((const struct sl_lease *)row->data)->n_types;
	for (const struct sl__row *row = heartbeats.first; row != NULL; row = row->next)
		n_types += strlen(((const struct sl_heartbeat *)row->data)->types) / 2 + 1;
	const struct sl_lease **leases = sl__calloc(env, SL_MAX(rows.n, 1), sizeof(*leases));
	const char **types = sl__calloc(env, SL_MAX(n_types, 1), sizeof(*types));
	if (rc == 0 && (leases == NULL || types == NULL))
		rc = sl_err_set(err, SL_ENOMEM, "no memory for the leases of all workers");
	for (const struct sl__row *row = rows.first; rc == 0 && row != NULL; row = row->next)
		leases[n++] = row->data;
	if (n > 0)
		qsort(leases, n, sizeof(*leases), by_worker);
	/* Each worker once, from whichever list has it first. */
	const struct sl__row *next = heartbeats.first;
	for (size_t from = 0, to; rc == 0 && (from < n || next != NULL); from = to) {
		const struct sl_heartbeat *h = next != NULL ? next->data : NULL;
		int order = h == NULL ? 1 : from == n ? -1 : strcmp(h->worker, leases[from]->worker);
		struct sl_worker_info w = order <= 0 ? reported(h, types) : (struct sl_worker_info){0};
		to = from;
		if (order >= 0) {
			for (to = from + 1; to < n && by_worker(&leases[from], &leases[to]) == 0;)
				to++;
			w.worker = leases[from]->worker;
			add_leases(&w, leases + from, to - from, types + w.n_types);
		}
		next = order <= 0 ? next->next : next;
		rc = fn(&w, ctx);
	}
	sl__free(env, types);
	sl__free(env, leases);
	sl__rows_fini(&heartbeats);
	sl__rows_fini(&rows);
	return rc;
}
