/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the jobs of one claim from the rows of a store, and reports the claim as a whole. */
#include "jobs/store/lease_rows.h"

#include <stdlib.h>

void sl__lease_rows_init(struct sl__lease_rows *rows, const struct sl_env *env, sl_lease_fn *fn, void *ctx)
{
	*rows = (struct sl__lease_rows){.fn = fn, .ctx = ctx};
	sl__buf_init(&rows->worker, env);
	sl__buf_init(&rows->ids, env);
	sl__buf_init(&rows->names, env);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void keep_type(struct sl__lease_rows *rows, const char *type)
{
	const char *at = sl__buf_str(&rows->names);
	for (size_t i = 0; i < rows->lease.n_types; i++, at += strlen(at) + 1)
		if (strcmp(at, type) == 0)
			return;
	(void)sl__buf_append(&rows->names, type, strlen(type) + 1);
	rows->lease.n_types++;
}

/* Show what was collected, and begin anew. */
static int show(struct sl__lease_rows *rows, struct sl_err *err)
{
	struct sl_lease *lease = &rows->lease;
	const struct sl_env *env = rows->ids.env;
	bool failed = rows->worker.failed != 0 || rows->ids.failed != 0 || rows->names.failed != 0;
	const char **types = failed ? NULL : sl__calloc(env, lease->n_types, sizeof(*types));
	if (types == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for the jobs of a lease");
	const char *at = sl__buf_str(&rows->names);
	for (size_t i = 0; i < lease->n_types; i++, at += strlen(at) + 1)
		types[i] = at;
	qsort(types, lease->n_types, sizeof(*types), by_name);
	lease->types = types;
	lease->worker = sl__buf_str(&rows->worker);
	lease->jobs = (const uint64_t *)(const void *)rows->ids.data;
	int rc = rows->fn(lease, rows->ctx);
	sl__free(env, types);
	sl__buf_clear(&rows->worker);
	sl__buf_clear(&rows->ids);
	sl__buf_clear(&rows->names);
	*lease = (struct sl_lease){0};
	return rc;
}

int sl__lease_rows_add(struct sl__lease_rows *rows, const struct sl_lease *row, uint64_t job, const char *type,
		       struct sl_err *err)
{
	struct sl_lease *lease = &rows->lease;
	int rc = 0;
	if (lease->n_jobs > 0 && memcmp(lease->claim, row->claim, sizeof(row->claim)) != 0)
		rc = show(rows, err);
	if (rc != 0)
		return rc;
	if (lease->n_jobs == 0) {
		*lease = *row;
		lease->n_types = 0;
		(void)sl__buf_str_append(&rows->worker, row->worker != NULL ? row->worker : "");
	}
	(void)sl__buf_append(&rows->ids, &job, sizeof(job));
	lease->n_jobs++;
	keep_type(rows, type);
	return 0;
}

int sl__lease_rows_end(struct sl__lease_rows *rows, int rc, struct sl_err *err)
{
	if (rc == 0 && rows->lease.n_jobs > 0)
		rc = show(rows, err);
	sl__buf_fini(&rows->worker);
	sl__buf_fini(&rows->ids);
	sl__buf_fini(&rows->names);
	return rc;
}
