/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/options.h"
#include "pipeline/pipeline.h"

#define SPAN_MAX_MS ((int64_t)365 * 24 * 3600 * 1000) /* keeps sums of times far from overflow */
#define PARTITION_SIZE_MAX ((uint64_t)1 << 48)
#define NAME_BYTES_MAX 100

static void fill_defaults(struct sl_pipeline_opts *o)
{
	o->workers = (int32_t)sl__or_default(o->workers, 4);
	o->queue_size = (int32_t)sl__or_default(o->queue_size, 8);
	o->retry_attempts = (int32_t)sl__or_default(o->retry_attempts, 3);
	o->retry_backoff_ms = sl__or_default(o->retry_backoff_ms, 1000);
	o->window = (int32_t)sl__or_default(o->window, (int64_t)o->workers + o->queue_size);
	o->queue_bytes = sl__or_default(o->queue_bytes, SL_UNLIMITED);
	o->commit_patience_ms = sl__or_default(o->commit_patience_ms, SL_UNLIMITED);
}

static int check_sizes(const struct sl_pipeline_opts *o, struct sl_err *err)
{
	const struct sl__range rows[] = {
		{"workers", o->workers, 1, 256},
		{"queue_size", o->queue_size, 1, 65536},
		{"window", o->window, 1, 1 << 20},
		{"queue_bytes", o->queue_bytes == SL_UNLIMITED ? 1 : o->queue_bytes, 1, INT64_MAX},
		{"retry_attempts", o->retry_attempts == SL_UNLIMITED ? 1 : o->retry_attempts, 1, INT32_MAX},
		{"retry_backoff_ms", o->retry_backoff_ms == SL_NONE ? 1 : o->retry_backoff_ms, 1, SPAN_MAX_MS},
		{"commit_patience_ms", o->commit_patience_ms < 0 ? 1 : o->commit_patience_ms, 1, SPAN_MAX_MS},
		{"begin", o->begin, SL_PIPELINE_ANYWHERE, SL_PIPELINE_AT},
		{"final", o->final, SL_DEFAULT, SL_OFF},
		{"keep_output", o->keep_output, SL_DEFAULT, SL_OFF},
	};
	int rc = sl__check_ranges("pipeline", rows, SL_COUNT(rows), err);
	if (rc == 0 && (o->partition_size == 0 || o->partition_size > PARTITION_SIZE_MAX))
		rc = sl_err_set(err, SL_EINVAL, "pipeline: partition_size is %llu; give 1 to %llu",
				(unsigned long long)o->partition_size, (unsigned long long)PARTITION_SIZE_MAX);
	if (rc == 0 && o->first > SL_SEQUENCE_MAX)
		rc = sl_err_set(err, SL_EINVAL, "pipeline: first is %llu, above the highest number",
				(unsigned long long)o->first);
	if (rc == 0 && o->commit_patience_ms < SL_UNLIMITED)
		rc = sl_err_set(err, SL_EINVAL,
				"pipeline: commit_patience_ms is %lld; give 1 or more, SL_NONE or SL_UNLIMITED",
				(long long)o->commit_patience_ms);
	return rc;
}

static int check_ops(const struct sl_pipeline_ops *ops, struct sl_err *err)
{
	if (ops == NULL || ops->version != SL_PIPELINE_OPS_VERSION)
		return sl_err_set(err, SL_EINVAL, "pipeline: ops is missing or of another version");
	if (ops->next == NULL || ops->build == NULL || ops->commit == NULL)
		return sl_err_set(err, SL_EINVAL, "pipeline: ops needs next, build and commit");
	return 0;
}

static int fill_retry(sl_pipeline *p, struct sl_err *err)
{
	struct sl_retry_policy given = {.max_attempts = p->o.retry_attempts, .first_ms = p->o.retry_backoff_ms};
	int rc = sl_retry_resolve(&p->retry, &given, SL_RETRY_PIPELINE, err);
	p->commit = p->retry;
	p->commit.max_attempts = SL_UNLIMITED;
	return rc;
}

int sl__pipeline_options(sl_pipeline *p, const struct sl_pipeline_opts *opts, struct sl_err *err)
{
	struct sl_pipeline_opts *o = &p->o;
	sl__opts_copy(o, sizeof(*o), opts);
	if (o->name == NULL)
		o->name = "pipeline";
	if (o->name[0] == '\0' || strlen(o->name) > NAME_BYTES_MAX)
		return sl_err_set(err, SL_EINVAL, "pipeline: name is empty or longer than %d bytes", NAME_BYTES_MAX);
	(void)snprintf(p->name, sizeof(p->name), "%s", o->name);
	o->name = p->name;
	fill_defaults(o);
	int rc = check_sizes(o, err);
	if (rc == 0)
		rc = check_ops(o->ops, err);
	if (rc == 0)
		rc = fill_retry(p, err);
	return rc;
}
