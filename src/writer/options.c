/* SPDX-License-Identifier: Apache-2.0 */
#include "writer/writer.h"

#include "base/options.h"

#define SPAN_MAX_MS ((int64_t)365 * 24 * 3600 * 1000) /* keeps sums of times far from overflow */
#define CONCURRENCY_MAX 4096
#define BACKLOG_MAX ((int64_t)1 << 60) /* keeps sums of bytes far from overflow */
#define NAME_MAX_BYTES 200

static void fill(struct sl_writer_opts *o)
{
	o->max_concurrent_writes = (int32_t)sl__or_default(o->max_concurrent_writes, 16);
	o->backlog_limit_bytes = sl__or_default(o->backlog_limit_bytes, (int64_t)256 << 20);
	o->backlog_clear_bytes = sl__or_default(o->backlog_clear_bytes, o->backlog_limit_bytes / 2);
	if (o->backlog_clear_bytes == SL_NONE)
		o->backlog_clear_bytes = 0;
	o->backlog_limit_blocks = sl__or_default(o->backlog_limit_blocks, 65536);
	o->window_ms = sl__or_default(o->window_ms, 1000);
	o->cooldown_ms = sl__or_default(o->cooldown_ms, 5000);
	o->cooldown_step = (int32_t)sl__or_default(o->cooldown_step, 1);
	o->log_interval_ms = sl__or_default(o->log_interval_ms, 5000);
	if (o->log_interval_ms == SL_NONE)
		o->log_interval_ms = 0;
}

static int check_numbers(const struct sl_writer_opts *o, struct sl_err *err)
{
	const struct sl__range rows[] = {
		{"hash_form", o->hash_form, SL_WRITER_HASH_TEXT, SL_WRITER_HASH_BINARY},
		{"max_concurrent_writes", o->max_concurrent_writes, 1, CONCURRENCY_MAX},
		{"backlog_limit_bytes", o->backlog_limit_bytes, 1, BACKLOG_MAX},
		{"backlog_clear_bytes", o->backlog_clear_bytes, 0, o->backlog_limit_bytes},
		{"backlog_limit_blocks", o->backlog_limit_blocks, 1, BACKLOG_MAX},
		{"window_ms", o->window_ms, 1, SPAN_MAX_MS},
		{"cooldown_ms", o->cooldown_ms, 1, SPAN_MAX_MS},
		{"cooldown_step", o->cooldown_step, 1, CONCURRENCY_MAX},
		{"log_interval_ms", o->log_interval_ms, 0, SPAN_MAX_MS},
		{"loop_debug", o->loop_debug, SL_DEFAULT, SL_OFF},
	};
	return sl__check_ranges("writer", rows, SL_COUNT(rows), err);
}

static int check_driver(const struct sl_writer_driver_ops *ops, struct sl_err *err)
{
	if (ops == NULL || ops->schedule_write == NULL || ops->name == NULL)
		return sl_err_set(err, SL_EINVAL, "writer: the driver has no schedule_write or no name");
	if (ops->version != SL_WRITER_DRIVER_VERSION)
		return sl_err_set(err, SL_EINVAL, "writer: the driver's table has version %d, not %d", ops->version,
				  SL_WRITER_DRIVER_VERSION);
	return 0;
}

int sl__writer_options(struct sl_writer_opts *out, const struct sl_writer_opts *opts,
		       const struct sl_writer_driver_ops *ops, struct sl_err *err)
{
	struct sl_writer_opts o;
	if (opts != NULL && opts->struct_size == 0)
		return sl_err_set(err, SL_EINVAL, "writer: struct_size is 0; use SL_WRITER_OPTS_INIT");
	sl__opts_copy(&o, sizeof(o), opts);
	fill(&o);
	int rc = check_driver(ops, err);
	if (rc == 0)
		rc = check_numbers(&o, err);
	if (rc == 0 && o.name != NULL && (o.name[0] == '\0' || strlen(o.name) > NAME_MAX_BYTES))
		rc = sl_err_set(err, SL_EINVAL, "writer: name has %zu bytes; give 1 to %d", strlen(o.name),
				NAME_MAX_BYTES);
	if (rc == 0 && o.max_retry_attempts < 0 && o.max_retry_attempts != SL_UNLIMITED)
		rc = sl_err_set(err, SL_EINVAL, "writer: max_retry_attempts is %d; give 1 or more, or SL_UNLIMITED",
				(int)o.max_retry_attempts);
	struct sl_retry_policy given = o.retry_policy;
	if (o.max_retry_attempts != 0)
		given.max_attempts = o.max_retry_attempts;
	if (rc == 0)
		rc = sl_retry_resolve(&o.retry_policy, &given, SL_RETRY_WRITER, err);
	if (rc == 0)
		*out = o;
	return rc;
}
