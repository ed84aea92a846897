/* SPDX-License-Identifier: Apache-2.0 */
/* What a new job, a new chain and an output must be like before a store sees them. */
#include <stdlib.h>

#include "base/utf8.h"
#include "jobs/client/types.h"

#define FEW_BLOCKERS 32

int sl__job_name_check(const char *name, const char *field, struct sl_err *err)
{
	size_t n = name != NULL ? strnlen(name, SL__JOB_TYPE_BYTES + 1) : 0;
	size_t good = n == 0 ? 0 : strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-");
	if (n == 0)
		return sl_err_set(err, SL_EINVAL, "%s is missing", field);
	if (n > SL__JOB_TYPE_BYTES)
		return sl_err_set(err, SL_EINVAL, "%s: longer than %d bytes", field, SL__JOB_TYPE_BYTES);
	if (good < n)
		return sl_err_set(err, SL_EINVAL, "%s: byte %zu is none of [A-Za-z0-9._:/-]", field, good + 1);
	return 0;
}

static int check_time(int64_t ms, const char *field, struct sl_err *err)
{
	if (ms >= 0 && ms <= SL__JOB_TIME_MAX_MS)
		return 0;
	return sl_err_set(err, SL_EINVAL, "%s is %lld; it must be 0 to %lld", field, (long long)ms,
			  (long long)SL__JOB_TIME_MAX_MS);
}

static int check_schedule(const struct sl_new_job *job, struct sl_err *err)
{
	if (job->at_ms != 0 && job->delay_ms != 0)
		return sl_err_set(err, SL_EINVAL, "at_ms and delay_ms exclude each other");
	int rc = check_time(job->at_ms, "at_ms", err);
	return rc != 0 ? rc : check_time(job->delay_ms, "delay_ms", err);
}

static int compare_ids(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* The id that is there twice in a sorted array; 0: none. An id of 0 is told by the caller. */
static uint64_t twice(const uint64_t *sorted, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (sorted[i] == sorted[i - 1])
			return sorted[i];
	return 0;
}

static int check_blockers(const struct sl_new_job *job, const struct sl_env *env, struct sl_err *err)
{
	uint64_t few[FEW_BLOCKERS], *sorted = few;
	size_t n = job->n_blockers;
	if (n == 0)
		return 0;
	if (job->blockers == NULL)
		return sl_err_set(err, SL_EINVAL, "blockers is NULL and n_blockers is %zu", n);
	for (size_t i = 0; i < n; i++)
		if (job->blockers[i] == 0 || job->blockers[i] > INT64_MAX)
			return sl_err_set(err, SL_EINVAL, "blockers[%zu] is no id of a chain", i);
	if (n > FEW_BLOCKERS && (sorted = sl__calloc(env, n, sizeof(*sorted))) == NULL)
		return sl_err_set(err, SL_ENOMEM, "blockers: no memory for %zu", n);
	memcpy(sorted, job->blockers, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_ids);
	uint64_t id = twice(sorted, n);
	if (sorted != few)
		sl__free(env, sorted);
	return id == 0 ? 0 : sl_err_set(err, SL_EINVAL, "blockers: chain %llu is given twice", (unsigned long long)id);
}

static int check_trace(const char *trace, struct sl_err *err)
{
	size_t n = 0;
	if (trace == NULL)
		return 0;
	while (trace[n] > 0x20 && trace[n] < 0x7F)
		n++;
	if (trace[n] == '\0' && n >= 1 && n <= SL__JOB_TRACE_BYTES)
		return 0;
	return sl_err_set(err, SL_EINVAL, "traceparent: it must be 1 to %d printable ASCII characters",
			  SL__JOB_TRACE_BYTES);
}

/* The type's own opinion. A callback that fails without a text still names the field. */
static int ask(sl_job_validate_fn *validate, const char *type, const char *json, const char *field, void *ctx,
	       struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	int rc = validate(type, json, &why, ctx);
	if (rc == 0)
		return 0;
	if (rc > 0 || why.code == 0)
		(void)sl_err_set(&why, SL_EDATA, "%s",
				 why.msg[0] != '\0' ? why.msg : "refused by the type's validation");
	if (err != NULL)
		*err = why;
	return sl_err_wrap(err, why.code, "%s", field);
}

static int check_input(const struct sl_job_type *type, const struct sl_new_job *job, struct sl_err *err)
{
	int rc = sl__job_json_check(job->input, "input", err);
	if (rc != 0 || type == NULL || type->validate_input == NULL)
		return rc;
	return ask(type->validate_input, job->type, job->input, "input", type->validate_ctx, err);
}

int sl__new_job_check(const sl_job_types *types, const struct sl_env *env, const struct sl_new_job *in,
		      struct sl_new_job *out, struct sl_err *err)
{
	struct sl_new_job job = *in;
	int rc = sl__job_name_check(job.type, "type", err);
	if (rc != 0)
		return rc;
	const struct sl_job_type *type = sl__job_types_given(types, job.type);
	if (types != NULL && type == NULL)
		return sl_err_set(err, SL_EINVAL, "type: %s is not in the registry", job.type);
	if (job.input == NULL)
		job.input = "null";
	if (job.priority == 0 && type != NULL)
		job.priority = type->priority;
	if (job.priority == SL_PRIORITY_ZERO)
		job.priority = 0;
	rc = check_schedule(&job, err);
	if (rc == 0)
		rc = check_trace(job.traceparent, err);
	if (rc == 0)
		rc = check_blockers(&job, env, err);
	if (rc == 0)
		rc = check_input(type, &job, err);
	if (rc == 0)
		*out = job;
	return rc;
}

static int check_key(const struct sl_new_chain *chain, struct sl_err *err)
{
	if ((unsigned)chain->scope > SL_DEDUP_ANY)
		return sl_err_set(err, SL_EINVAL, "scope is %d; it is not an sl_dedup_scope", (int)chain->scope);
	int rc = check_time(chain->window_ms, "window_ms", err);
	if (rc != 0)
		return rc;
	if (chain->key == NULL)
		return chain->window_ms == 0 ? 0 : sl_err_set(err, SL_EINVAL, "window_ms needs a key");
	size_t n = strnlen(chain->key, SL__JOB_KEY_BYTES + 1);
	if (n == 0 || n > SL__JOB_KEY_BYTES)
		return sl_err_set(err, SL_EINVAL, "key: it must be 1 to %d bytes", SL__JOB_KEY_BYTES);
	if (!sl__utf8_valid(chain->key))
		return sl_err_set(err, SL_EDATA, "key: invalid UTF-8");
	return 0;
}

int sl__new_chain_check(const sl_job_types *types, const struct sl_env *env, const struct sl_new_chain *in,
			struct sl_new_chain *out, struct sl_err *err)
{
	struct sl_new_chain chain = *in;
	int rc = check_key(&chain, err);
	if (rc == 0)
		rc = sl__new_job_check(types, env, &in->job, &chain.job, err);
	if (rc == 0)
		*out = chain;
	return rc;
}

int sl__job_output_check(const sl_job_types *types, const char *type, const char *output, struct sl_err *err)
{
	const char *json = output != NULL ? output : "null";
	int rc = sl__job_json_check(json, "output", err);
	const struct sl_job_type *given = rc == 0 ? sl__job_types_given(types, type) : NULL;
	if (given == NULL || given->validate_output == NULL)
		return rc;
	return ask(given->validate_output, type, json, "output", given->validate_ctx, err);
}
