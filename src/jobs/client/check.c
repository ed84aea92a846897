/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a new job, a new chain and an output must be like before a store sees them.
 *
 * JSON is only scanned, never built, since stores keep it byte for byte: numbers of any size pass, and a text of many
 * megabytes costs no memory. format/json.h has the rules.
 */
#include <stdlib.h>

#include "base/utf8.h"
#include "format/json.h"
#include "jobs/client/types.h"

#define FEW_BLOCKERS 32
#define JSON_DEPTH_MAX 1000

int sl__job_name_check(const char *name, const char *field, struct sl_err *err)
{
	size_t n = name != NULL ? strnlen(name, SL__JOB_TYPE_BYTES + 1) : 0;
	size_t good = n == 0 ? 0 : strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-");
	if (n == 0)
		return sl_err_set(err, SL_EINVAL, "%s is missing", field);
	if (n > SL__JOB_TYPE_BYTES)
		return sl_err_set(err, SL_EINVAL, "%s: longer than %d bytes", field, SL__JOB_TYPE_BYTES);
	if (good < n)
		return sl_err_set(err, SL_EINVAL, "%s: character %zu is not allowed; use letters, digits and . _ : / -",
				  field, good + 1);
	return 0;
}

int sl__job_json_check(const char *json, const char *field, struct sl_err *err)
{
	size_t len = strnlen(json, SL__JOB_JSON_BYTES + 1);
	if (len > SL__JOB_JSON_BYTES)
		return sl_err_set(err, SL_ETOOBIG, "%s: more than %zu MiB of JSON; store it elsewhere and name it",
				  field, SL__JOB_JSON_BYTES >> 20);
	struct sl__json s = sl__json_of(json, len);
	struct sl__json_value ignored;
	s.depth_max = JSON_DEPTH_MAX;
	if (sl__json_value(&s, &ignored) && sl__json_finish(&s))
		return 0;
	/* Lines and columns count from 1; a column is a character. */
	size_t line = 1, column = 1;
	for (const char *c = json; c < s.at; c++) {
		if (*c == '\n') {
			line++;
			column = 1;
		} else if (((unsigned char)*c & 0xC0) != 0x80) {
			column++;
		}
	}
	return sl_err_set(err, SL_EDATA, "%s: line %zu, column %zu: %s", field, line, column, s.why);
}

static int check_time(int64_t ms, const char *field, struct sl_err *err)
{
	if (ms >= 0 && ms <= SL__JOB_TIME_MAX_MS)
		return 0;
	return sl_err_set(err, SL_EINVAL, "%s is %lld; it must be 0 to %lld", field, (long long)ms,
			  (long long)SL__JOB_TIME_MAX_MS);
}

static int compare_blockers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
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
			return sl_err_set(err, SL_EINVAL, "blockers[%zu] is not a chain id", i);
	if (n > FEW_BLOCKERS && (sorted = sl__calloc(env, n, sizeof(*sorted))) == NULL)
		return sl_err_set(err, SL_ENOMEM, "blockers: no memory for %zu", n);
	memcpy(sorted, job->blockers, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_blockers);
	uint64_t twice = 0;
	for (size_t i = 1; i < n && twice == 0; i++)
		twice = sorted[i] == sorted[i - 1] ? sorted[i] : 0;
	if (sorted != few)
		sl__free(env, sorted);
	if (twice == 0)
		return 0;
	return sl_err_set(err, SL_EINVAL, "blockers: chain %llu is given twice", (unsigned long long)twice);
}

/* The type's own validation. A callback that fails without a text still names the field. */
static int validate_json(const struct sl_job_type *type, sl_job_validate_fn *validate, const char *json,
			 const char *field, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	int rc = validate != NULL ? validate(type->name, json, &why, type->validate_ctx) : 0;
	if (rc == 0)
		return 0;
	if (rc > 0 || why.code == 0)
		(void)sl_err_set(&why, SL_EDATA, "%s",
				 why.msg[0] != '\0' ? why.msg : "refused by the type's validation");
	if (err != NULL)
		*err = why;
	return sl_err_wrap(err, why.code, "%s", field);
}

int sl__new_job_check(const sl_job_types *types, const struct sl_env *env, const struct sl_new_job *in,
		      struct sl_new_job *out, struct sl_err *err)
{
	struct sl_new_job job = *in;
	int rc = sl__job_name_check(job.type, "type", err);
	if (rc != 0)
		return rc;
	const struct sl_job_type *type = sl__job_types_given(types, job.type);
	if (type == NULL && sl__job_types_closed(types))
		return sl_err_set(err, SL_EINVAL, "type: %s is not in the registry", job.type);
	if (job.input == NULL)
		job.input = "null";
	if (job.priority == 0 && type != NULL)
		job.priority = type->priority;
	if (job.priority == SL_PRIORITY_ZERO)
		job.priority = 0;
	/* When it runs. */
	if (job.at_ms != 0 && job.delay_ms != 0)
		return sl_err_set(err, SL_EINVAL, "at_ms and delay_ms exclude each other");
	rc = check_time(job.at_ms, "at_ms", err);
	if (rc == 0)
		rc = check_time(job.delay_ms, "delay_ms", err);
	if (rc != 0)
		return rc;
	if (job.traceparent != NULL) {
		size_t n = 0;
		while (job.traceparent[n] > 0x20 && job.traceparent[n] < 0x7F)
			n++;
		if (job.traceparent[n] != '\0' || n < 1 || n > SL__JOB_TRACE_BYTES)
			return sl_err_set(err, SL_EINVAL, "traceparent: it must be 1 to %d printable ASCII characters",
					  SL__JOB_TRACE_BYTES);
	}
	rc = check_blockers(&job, env, err);
	if (rc == 0)
		rc = sl__job_json_check(job.input, "input", err);
	if (rc == 0 && type != NULL)
		rc = validate_json(type, type->validate_input, job.input, "input", err);
	if (rc != 0)
		return rc;
	*out = job;
	return 0;
}

int sl__new_chain_check(const sl_job_types *types, const struct sl_env *env, const struct sl_new_chain *in,
			struct sl_new_chain *out, struct sl_err *err)
{
	struct sl_new_chain chain = *in;
	if ((unsigned)chain.scope > SL_DEDUP_ANY)
		return sl_err_set(err, SL_EINVAL, "scope is %d; it is not an sl_dedup_scope", (int)chain.scope);
	int rc = check_time(chain.window_ms, "window_ms", err);
	if (rc != 0)
		return rc;
	if (chain.key == NULL && chain.window_ms != 0)
		return sl_err_set(err, SL_EINVAL, "window_ms needs a key");
	if (chain.key != NULL) {
		size_t n = strnlen(chain.key, SL__JOB_KEY_BYTES + 1);
		if (n == 0 || n > SL__JOB_KEY_BYTES)
			return sl_err_set(err, SL_EINVAL, "key: it must be 1 to %d bytes", SL__JOB_KEY_BYTES);
		if (!sl__utf8_valid(chain.key))
			return sl_err_set(err, SL_EDATA, "key: invalid UTF-8");
	}
	rc = sl__new_job_check(types, env, &in->job, &chain.job, err);
	if (rc != 0)
		return rc;
	*out = chain;
	return 0;
}

int sl__job_output_check(const sl_job_types *types, const char *type, const char *output, struct sl_err *err)
{
	const char *json = output != NULL ? output : "null";
	int rc = sl__job_json_check(json, "output", err);
	if (rc != 0)
		return rc;
	const struct sl_job_type *given = sl__job_types_given(types, type);
	return given != NULL ? validate_json(given, given->validate_output, json, "output", err) : 0;
}
