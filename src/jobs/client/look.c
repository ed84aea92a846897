/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking from outside: leases, workers, errors, streams. As in list.c, rows are copied while the store calls back and
 * shown afterwards; none of these lists is long.
 */
#include <stdlib.h>

#include "jobs/client/client.h"
#include "jobs/client/copy.h"

#define LIMIT_DEFAULT 100
#define LIMIT_MAX 10000
#define SCAN_MAX 100000
#define GROUPS_MAX 1000
#define LEASES_PAGE 1000

static int check_at_most(const char *what, uint32_t given, uint32_t most, struct sl_err *err)
{
	if (given <= most)
		return 0;
	return sl_err_set(err, SL_EINVAL, "%s is %u; it must be at most %u, with a cursor for the rest", what, given,
			  most);
}

/* Why there is no row: the store's error, unless a copy had no memory. */
static int read_error(const struct sl__rows *rows, int rc, struct sl_err *err)
{
	if (rc == SL_ENOMEM && rows->no_memory)
		(void)sl_err_set(err, rc, "list: no memory for the next row");
	return rc;
}

/* ---- leases ---- */

static int read_leases(sl_jobs *client, const uint8_t *after, uint32_t limit, struct sl__rows *rows, struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	return read_error(rows, store->ops->leases(store->ctx, after, limit, sl__rows_lease, rows, err), err);
}

int sl_jobs_leases(sl_jobs *client, const uint8_t after[16], uint32_t limit, sl_lease_fn *fn, void *ctx,
		   struct sl_err *err)
{
	struct sl__rows rows;
	int rc = sl__home_check(&client->home, err);
	if (rc == 0)
		rc = check_at_most("limit", limit, LIMIT_MAX, err);
	if (rc != 0)
		return rc;
	sl__rows_init(&rows, &client->home.env);
	rc = read_leases(client, after, limit != 0 ? limit : LIMIT_DEFAULT, &rows, err);
	for (const struct sl__row *row = rows.first; rc == 0 && row != NULL; row = row->next)
		rc = fn(row->data, ctx);
	sl__rows_fini(&rows);
	return rc;
}

/* ---- workers ---- */

static int by_worker(const void *a, const void *b)
{
	const struct sl_lease *const *l = a, *const *r = b;
	return strcmp((*l)->worker, (*r)->worker);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Every lease, page by page, in one list of rows. */
static int read_all_leases(sl_jobs *client, struct sl__rows *rows, struct sl_err *err)
{
	const uint8_t *after = NULL;
	uint8_t last[16];
	for (;;) {
		size_t before = rows->n;
		int rc = read_leases(client, after, LEASES_PAGE, rows, err);
		if (rc != 0 || rows->n - before < LEASES_PAGE)
			return rc;
		const struct sl_lease *lease = sl__rows_newest(rows);
		memcpy(last, lease->claim, sizeof(last));
		after = last;
	}
}

/* The types of n leases, each once, in order; *n_types. NULL without memory. */
static const char **types_of(const struct sl_env *env, const struct sl_lease *const *leases, size_t n, size_t *n_types)
{
	size_t all = 0, kept = 0;
	for (size_t i = 0; i < n; i++)
		all += leases[i]->n_types;
	const char **types = sl__calloc(env, SL_MAX(all, 1), sizeof(*types));
	if (types == NULL)
		return NULL;
	all = 0;
	for (size_t i = 0; i < n; i++)
		for (size_t t = 0; t < leases[i]->n_types; t++)
			types[all++] = leases[i]->types[t];
	qsort(types, all, sizeof(*types), by_name);
	for (size_t i = 0; i < all; i++)
		if (kept == 0 || strcmp(types[kept - 1], types[i]) != 0)
			types[kept++] = types[i];
	*n_types = kept;
	return types;
}

/* n leases of one worker. */
static int show_worker(const struct sl_env *env, const struct sl_lease *const *leases, size_t n, sl_worker_info_fn *fn,
		       void *ctx, struct sl_err *err)
{
	struct sl_worker_info w = {.worker = leases[0]->worker,
				   .leases = n,
				   .oldest_claimed_ms = leases[0]->claimed_ms,
				   .until_ms = leases[0]->until_ms};
	const char **types = types_of(env, leases, n, &w.n_types);
	if (types == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for the types of a worker");
	for (size_t i = 0; i < n; i++) {
		w.jobs += leases[i]->n_jobs;
		w.oldest_claimed_ms = SL_MIN(w.oldest_claimed_ms, leases[i]->claimed_ms);
		w.until_ms = SL_MIN(w.until_ms, leases[i]->until_ms);
	}
	w.types = types;
	int rc = fn(&w, ctx);
	sl__free(env, types);
	return rc;
}

static int show_workers(const struct sl_env *env, const struct sl__rows *rows, sl_worker_info_fn *fn, void *ctx,
			struct sl_err *err)
{
	const struct sl_lease **leases = sl__calloc(env, SL_MAX(rows->n, 1), sizeof(*leases));
	size_t n = 0;
	int rc = 0;
	if (leases == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for the leases of all workers");
	for (const struct sl__row *row = rows->first; row != NULL; row = row->next)
		leases[n++] = row->data;
	qsort(leases, n, sizeof(*leases), by_worker);
	for (size_t from = 0, to; rc == 0 && from < n; from = to) {
		for (to = from + 1; to < n && by_worker(&leases[from], &leases[to]) == 0;)
			to++;
		rc = show_worker(env, leases + from, to - from, fn, ctx, err);
	}
	sl__free(env, leases);
	return rc;
}

int sl_jobs_workers(sl_jobs *client, sl_worker_info_fn *fn, void *ctx, struct sl_err *err)
{
	struct sl__rows rows;
	int rc = sl__home_check(&client->home, err);
	if (rc != 0)
		return rc;
	sl__rows_init(&rows, &client->home.env);
	rc = read_all_leases(client, &rows, err);
	if (rc == 0)
		rc = show_workers(&client->home.env, &rows, fn, ctx, err);
	sl__rows_fini(&rows);
	return rc;
}

/* ---- errors and streams ---- */

int sl_jobs_errors(sl_jobs *client, const struct sl_error_filter *filter, sl_error_group_fn *fn, void *ctx,
		   struct sl_err *err)
{
	static const struct sl_error_filter all = {0};
	const sl_store *store = &client->home.store;
	const struct sl_error_filter *f = filter != NULL ? filter : &all;
	struct sl__rows rows;
	int rc = sl__home_check(&client->home, err);
	rc = rc != 0 ? rc : check_at_most("scan", f->scan, SCAN_MAX, err);
	rc = rc != 0 ? rc : check_at_most("limit", f->limit, GROUPS_MAX, err);
	for (size_t i = 0; rc == 0 && i < f->n_types; i++)
		rc = sl__job_name_check(f->types[i], "types", err);
	if (rc != 0)
		return rc;
	sl__rows_init(&rows, &client->home.env);
	rc = read_error(&rows, store->ops->errors(store->ctx, f, sl__rows_error, &rows, err), err);
	for (const struct sl__row *row = rows.first; rc == 0 && row != NULL; row = row->next)
		rc = fn(row->data, ctx);
	sl__rows_fini(&rows);
	return rc;
}

int sl_jobs_event_streams(sl_jobs *client, const struct sl_event_stream *after, uint32_t limit, sl_event_stream_fn *fn,
			  void *ctx, struct sl_err *err)
{
	const sl_store *store = &client->home.store;
	struct sl__rows rows;
	int rc = sl__home_check(&client->home, err);
	rc = rc != 0 ? rc : check_at_most("limit", limit, LIMIT_MAX, err);
	if (rc != 0)
		return rc;
	sl__rows_init(&rows, &client->home.env);
	rc = store->ops->event_streams(store->ctx, after, limit != 0 ? limit : LIMIT_DEFAULT, sl__rows_stream, &rows,
				       err);
	rc = read_error(&rows, rc, err);
	for (const struct sl__row *row = rows.first; rc == 0 && row != NULL; row = row->next)
		rc = fn(row->data, ctx);
	sl__rows_fini(&rows);
	return rc;
}
