/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading. A store calls back from inside its statement, where nobody may call it again; so rows are copied first and
 * shown afterwards, a page at a time, each bounded in rows and bytes. A listing of several pages is not a snapshot:
 * what changes meanwhile is seen as it is when its page is read, and no id twice.
 */
#include "jobs/client/client.h"
#include "jobs/client/copy.h"

#define LIMIT_DEFAULT 100
#define LIMIT_MAX 10000
#define PAGE_ROWS 500
/* Longer data is not in the page: it is read with its row alone, so that a page of large rows costs little more than
 * one of them. */
#define INLINE_BYTES (64u << 10)

/* ---- one ---- */

struct copied {
	const struct sl_env *env;
	void *copy;
};

static int keep_job(const struct sl_job *job, void *ctx)
{
	struct copied *c = ctx;
	c->copy = sl__copy_job(c->env, job);
	return c->copy != NULL ? 0 : SL_ENOMEM;
}

static int keep_chain(const struct sl_chain *chain, void *ctx)
{
	struct copied *c = ctx;
	c->copy = sl__copy_chain(c->env, chain);
	return c->copy != NULL ? 0 : SL_ENOMEM;
}

/* The end of a get: hand over the copy, or say why there is none. */
static int got(struct copied *c, int rc, uint64_t id, const char *what, void *out, struct sl_err *err)
{
	if (rc == SL_ENOMEM)
		(void)sl_err_set(err, rc, "%s %llu: no memory", what, (unsigned long long)id);
	if (rc == 0 && c->copy == NULL)
		rc = sl_err_set(err, SL_ENOENT, "%s %llu: there is none", what, (unsigned long long)id);
	if (rc == 0)
		memcpy(out, &c->copy, sizeof(c->copy));
	else
		sl__free(c->env, c->copy);
	return rc;
}

int sl_jobs_get(sl_jobs *client, uint64_t id, struct sl_job **out, struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	struct copied c = {.env = &client->home.env};
	int rc = sl__home_check(&client->home, err);
	if (rc != 0)
		return rc;
	rc = store->ops->get_job(store->ctx, NULL, id, keep_job, &c, err);
	return got(&c, rc, id, "job", out, err);
}

int sl_jobs_get_chain(sl_jobs *client, uint64_t id, struct sl_chain **out, struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	struct copied c = {.env = &client->home.env};
	int rc = sl__home_check(&client->home, err);
	if (rc != 0)
		return rc;
	rc = store->ops->get_chain(store->ctx, NULL, id, keep_chain, &c, err);
	return got(&c, rc, id, "chain", out, err);
}

void sl_jobs_free(sl_jobs *client, void *job_or_chain)
{
	if (job_or_chain != NULL)
		sl__free(&client->home.env, job_or_chain);
}

/* ---- many ---- */

/* What a listing shows: how to read a page of it, and how to call the user with a row. */
struct listing {
	sl_jobs *client;
	struct sl_job_filter filter;
	uint64_t id, after;      /* of events */
	uint64_t reached;        /* of jobs and chains: how far the last page looked */
	uint32_t data_max_bytes; /* as the caller gave it */
	int (*read)(struct listing *l, uint32_t limit, struct sl__rows *rows, struct sl_err *err);
	int (*show)(const struct listing *l, const void *row);
	union {
		sl_job_fn *job;
		sl_chain_fn *chain;
		sl_attempt_record_fn *attempt;
		sl_job_count_fn *count;
		sl_cron_fn *cron;
		sl_event_row_fn *event;
	} fn;
	void *ctx;
	struct sl_err *err; /* of the caller, for show */
};

static int read_page(struct listing *l, uint32_t limit, struct sl__rows *rows, struct sl_err *err)
{
	sl__rows_init(rows, &l->client->home.env);
	int rc = l->read(l, limit, rows, err);
	if (rc == SL__ROWS_FULL && rows->full)
		rc = 0;
	if (rc == SL_ENOMEM && rows->no_memory)
		(void)sl_err_set(err, rc, "list: no memory for the next row");
	return rc;
}

/* Show up to `limit` rows (0: one page, whatever is in it). */
static int list(struct listing *l, uint32_t limit, struct sl_err *err)
{
	int rc = sl__home_check(&l->client->home, err);
	l->err = err;
	for (uint32_t left = limit; rc == 0;) {
		struct sl__rows rows;
		uint32_t asked = SL_MIN(left, PAGE_ROWS);
		rc = read_page(l, asked, &rows, err);
		for (const struct sl__row *row = rows.first; rc == 0 && row != NULL; row = row->next)
			rc = l->show(l, row->data);
		bool more = limit != 0 && (rows.full || rows.n == asked);
		left -= SL_MIN(left, (uint32_t)rows.n);
		l->filter.after = l->after = rows.last_id;
		sl__rows_fini(&rows);
		if (!more || left == 0)
			break;
	}
	return rc;
}

static int check_limit(uint32_t given, uint32_t *limit, struct sl_err *err)
{
	*limit = given != 0 ? given : LIMIT_DEFAULT;
	if (*limit <= LIMIT_MAX)
		return 0;
	return sl_err_set(err, SL_EINVAL, "limit is %u; it must be at most %d, with a cursor for the rest", given,
			  LIMIT_MAX);
}

static int check_filter(const struct sl_job_filter *f, bool chains, struct sl_err *err)
{
	for (size_t i = 0; i < f->n_types; i++) {
		int rc = sl__job_name_check(f->types[i], "types", err);
		if (rc != 0)
			return rc;
	}
	if ((f->statuses & ~(((1u << SL_JOB_STATUS_COUNT) - 1) << 1)) != 0)
		return sl_err_set(err, SL_EINVAL, "statuses: a bit that is none of 1u << SL_JOB_…");
	if (f->blocked_by_job != 0 && !chains)
		return sl_err_set(err, SL_EINVAL, "blocked_by_job lists chains, not jobs");
	return 0;
}

static int list_filtered(struct listing *l, const struct sl_job_filter *filter, bool chains, struct sl_err *err)
{
	uint32_t limit;
	if (filter != NULL)
		l->filter = *filter;
	l->data_max_bytes = l->filter.data_max_bytes;
	int rc = check_limit(l->filter.limit, &limit, err);
	if (rc == 0)
		rc = check_filter(&l->filter, chains, err);
	if (rc == 0)
		rc = list(l, limit, err);
	if (filter != NULL && filter->reached != NULL)
		*filter->reached = l->reached;
	return rc;
}

static int read_jobs(struct listing *l, uint32_t limit, struct sl__rows *rows, struct sl_err *err)
{
	const sl_store *store = &l->client->home.store;
	l->filter.limit = limit;
	l->filter.reached = &l->reached;
	l->filter.data_max_bytes = l->data_max_bytes != 0 ? SL_MIN(l->data_max_bytes, INLINE_BYTES) : INLINE_BYTES;
	return store->ops->list_jobs(store->ctx, &l->filter, sl__rows_job, rows, err);
}

/* Whether a value is missing that the caller wants. */
static bool is_left_out(const struct listing *l, const char *json)
{
	return json != NULL && *json == '\0' && (l->data_max_bytes == 0 || l->data_max_bytes > INLINE_BYTES);
}

static const char *bounded(const struct listing *l, const char *json)
{
	return l->data_max_bytes != 0 && json != NULL && strlen(json) > l->data_max_bytes ? "" : json;
}

static int show_job(const struct listing *l, const void *row)
{
	const struct sl_job *job = row;
	struct sl_job *whole = NULL;
	if (!is_left_out(l, job->input) && !is_left_out(l, job->output) && !is_left_out(l, job->progress))
		return l->fn.job(job, l->ctx);
	int rc = sl_jobs_get(l->client, job->id, &whole, l->err);
	if (rc == SL_ENOENT)
		return 0; /* deleted since the page was read */
	if (rc != 0)
		return rc;
	whole->input = bounded(l, whole->input);
	whole->output = bounded(l, whole->output);
	whole->progress = bounded(l, whole->progress);
	rc = l->fn.job(whole, l->ctx);
	sl_jobs_free(l->client, whole);
	return rc;
}

int sl_jobs_list(sl_jobs *client, const struct sl_job_filter *filter, sl_job_fn *fn, void *ctx, struct sl_err *err)
{
	struct listing l = {.client = client, .read = read_jobs, .show = show_job, .fn.job = fn, .ctx = ctx};
	return list_filtered(&l, filter, false, err);
}

static int read_chains(struct listing *l, uint32_t limit, struct sl__rows *rows, struct sl_err *err)
{
	const sl_store *store = &l->client->home.store;
	l->filter.limit = limit;
	l->filter.reached = &l->reached;
	l->filter.data_max_bytes = l->data_max_bytes != 0 ? SL_MIN(l->data_max_bytes, INLINE_BYTES) : INLINE_BYTES;
	return store->ops->list_chains(store->ctx, &l->filter, sl__rows_chain, rows, err);
}

static int show_chain(const struct listing *l, const void *row)
{
	const struct sl_chain *chain = row;
	struct sl_chain *whole = NULL;
	if (!is_left_out(l, chain->input) && !is_left_out(l, chain->output))
		return l->fn.chain(chain, l->ctx);
	int rc = sl_jobs_get_chain(l->client, chain->id, &whole, l->err);
	if (rc == SL_ENOENT)
		return 0;
	if (rc != 0)
		return rc;
	whole->input = bounded(l, whole->input);
	whole->output = bounded(l, whole->output);
	rc = l->fn.chain(whole, l->ctx);
	sl_jobs_free(l->client, whole);
	return rc;
}

int sl_jobs_list_chains(sl_jobs *client, const struct sl_job_filter *filter, sl_chain_fn *fn, void *ctx,
			struct sl_err *err)
{
	struct listing l = {.client = client, .read = read_chains, .show = show_chain, .fn.chain = fn, .ctx = ctx};
	return list_filtered(&l, filter, true, err);
}

static int read_events(struct listing *l, uint32_t limit, struct sl__rows *rows, struct sl_err *err)
{
	const sl_store *store = &l->client->home.store;
	return store->ops->events_read(store->ctx, l->id, l->after, limit, sl__rows_event, rows, err);
}

static int show_event(const struct listing *l, const void *row)
{
	return l->fn.event(row, l->ctx);
}

int sl_jobs_events(sl_jobs *client, uint64_t job_id, uint64_t after, uint32_t limit, sl_event_row_fn *fn, void *ctx,
		   struct sl_err *err)
{
	struct listing l = {.client = client,
			    .id = job_id,
			    .after = after,
			    .read = read_events,
			    .show = show_event,
			    .fn.event = fn,
			    .ctx = ctx};
	uint32_t n;
	int rc = check_limit(limit, &n, err);
	return rc != 0 ? rc : list(&l, n, err);
}

static int read_attempts(struct listing *l, uint32_t limit, struct sl__rows *rows, struct sl_err *err)
{
	const sl_store *store = &l->client->home.store;
	(void)limit;
	return store->ops->attempts(store->ctx, l->id, sl__rows_attempt, rows, err);
}

static int show_attempt(const struct listing *l, const void *row)
{
	return l->fn.attempt(row, l->ctx);
}

int sl_jobs_attempts(sl_jobs *client, uint64_t id, sl_attempt_record_fn *fn, void *ctx, struct sl_err *err)
{
	struct listing l = {
		.client = client, .id = id, .read = read_attempts, .show = show_attempt, .fn.attempt = fn, .ctx = ctx};
	return list(&l, 0, err);
}

static int read_counts(struct listing *l, uint32_t limit, struct sl__rows *rows, struct sl_err *err)
{
	const sl_store *store = &l->client->home.store;
	(void)limit;
	return store->ops->counts(store->ctx, sl__rows_count, rows, err);
}

static int show_count(const struct listing *l, const void *row)
{
	return l->fn.count(row, l->ctx);
}

int sl_jobs_counts(sl_jobs *client, sl_job_count_fn *fn, void *ctx, struct sl_err *err)
{
	struct listing l = {.client = client, .read = read_counts, .show = show_count, .fn.count = fn, .ctx = ctx};
	return list(&l, 0, err);
}

static int read_crons(struct listing *l, uint32_t limit, struct sl__rows *rows, struct sl_err *err)
{
	const sl_store *store = &l->client->home.store;
	(void)limit;
	return store->ops->cron_list(store->ctx, sl__rows_cron, rows, err);
}

static int show_cron(const struct listing *l, const void *row)
{
	return l->fn.cron(row, l->ctx);
}

int sl_jobs_cron_list(sl_jobs *client, sl_cron_fn *fn, void *ctx, struct sl_err *err)
{
	struct listing l = {.client = client, .read = read_crons, .show = show_cron, .fn.cron = fn, .ctx = ctx};
	return list(&l, 0, err);
}
