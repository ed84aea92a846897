/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a coordinator: defaults, and checks that name the field that is wrong. */
#include "coordinator/coordinator.h"

#include "base/options.h"

#include <math.h>

#define SPAN_MAX_MS ((int64_t)365 * 24 * 3600 * 1000) /* keeps sums of times far from overflow */
#define WORKERS_MAX 256
#define BATCH_SIZE_MAX 1000000
#define CAPACITY_MAX ((int64_t)1 << 32)
#define NAME_MAX_BYTES 200 /* a dead letter's source has 255 */

static void fill_defaults(struct sl_coordinator_opts *o)
{
	o->capacity = sl__or_default(o->capacity, 10000);
	o->workers = (int32_t)sl__or_default(o->workers, 4);
	o->batch_size = (int32_t)sl__or_default(o->batch_size, 500);
	o->flush_interval_ms = sl__or_default(o->flush_interval_ms, 250);
	if (o->flush_interval_ms == SL_NONE)
		o->flush_interval_ms = 0;
	o->max_bytes = sl__or_default(o->max_bytes, (int64_t)64 << 20);
	o->batch_bytes = sl__or_default(o->batch_bytes, (int64_t)8 << 20);
	if (o->max_bytes == SL_UNLIMITED)
		o->max_bytes = INT64_MAX;
	if (o->batch_bytes == SL_UNLIMITED)
		o->batch_bytes = INT64_MAX;
	/* workers */
	if (o->workers_min == 0 && o->workers_max == 0)
		o->workers_min = o->workers_max = o->workers;
	else if (o->workers_min == 0)
		o->workers_min = SL_MIN(o->workers, o->workers_max);
	else if (o->workers_max == 0)
		o->workers_max = SL_MAX(o->workers, o->workers_min);
	o->scale_up_ms = sl__or_default(o->scale_up_ms, 100);
	o->scale_down_ms = sl__or_default(o->scale_down_ms, 5000);
	o->retry_batches = (int32_t)sl__or_default(o->retry_batches, SL_MAX(2 * o->workers_max, 4));
	/* the target */
	o->breaker_failures = (int32_t)sl__or_default(o->breaker_failures, 5);
	o->breaker_open_max_ms = sl__or_default(o->breaker_open_max_ms, SL_MAX(o->breaker_open_ms, 30000));
	o->breaker_open_ms = sl__or_default(o->breaker_open_ms, SL_MIN(1000, o->breaker_open_max_ms));
	o->give_up_after_ms = sl__or_default(o->give_up_after_ms, SL_UNLIMITED);
	if (o->reduce_factor == 0)
		o->reduce_factor = 0.5;
	if (o->classify_retryable == NULL)
		o->classify_retryable = sl_default_retry_classifier;
}

static int check_values(const struct sl_coordinator_opts *o, struct sl_err *err)
{
	const struct sl__range rows[] = {
		{"capacity", o->capacity, 1, CAPACITY_MAX},
		{"workers", o->workers, 1, WORKERS_MAX},
		{"batch_size", o->batch_size, 1, BATCH_SIZE_MAX},
		{"flush_interval_ms", o->flush_interval_ms, 0, SPAN_MAX_MS},
		{"max_bytes", o->max_bytes, 1, INT64_MAX},
		{"batch_bytes", o->batch_bytes, 1, INT64_MAX},
		{"workers_max", o->workers_max, 1, WORKERS_MAX},
		{"workers_min", o->workers_min, 1, o->workers_max},
		{"scale_up_ms", o->scale_up_ms, 1, SPAN_MAX_MS},
		{"scale_down_ms", o->scale_down_ms, 1, SPAN_MAX_MS},
		{"breaker_open_ms", o->breaker_open_ms, 1, SPAN_MAX_MS},
		{"breaker_open_max_ms", o->breaker_open_max_ms, o->breaker_open_ms, SPAN_MAX_MS},
		{"retry_batches", o->retry_batches, 1, 1 << 20},
		{"item_kind", o->item_kind, SL_ITEM_BYTES, SL_ITEM_POINTERS},
		{"overflow_strategy", o->overflow_strategy, SL_OVERFLOW_BLOCK, SL_OVERFLOW_ERROR},
		{"adaptive", o->adaptive, SL_DEFAULT, SL_OFF},
		{"per_key_order", o->per_key_order, SL_DEFAULT, SL_OFF},
		{"rate_by_watermark", o->rate_by_watermark, SL_DEFAULT, SL_OFF},
	};
	int rc = sl__check_ranges("coordinator", rows, SL_COUNT(rows), err);
	if (rc != 0)
		return rc;
	if (o->give_up_after_ms != SL_UNLIMITED && (o->give_up_after_ms < 1 || o->give_up_after_ms > SPAN_MAX_MS))
		return sl_err_set(err, SL_EINVAL,
				  "coordinator: give_up_after_ms is %lld; give 1 to %lld, or SL_UNLIMITED",
				  (long long)o->give_up_after_ms, (long long)SPAN_MAX_MS);
	if (o->breaker_failures < 1 && o->breaker_failures != SL_UNLIMITED)
		return sl_err_set(err, SL_EINVAL,
				  "coordinator: breaker_failures is %d; give 1 or more, or SL_UNLIMITED",
				  (int)o->breaker_failures);
	/* Written so that a NaN is refused too. */
	if (o->rate_items != 0 && !(o->rate_items >= 1e-6 && o->rate_items <= 1e9))
		return sl_err_set(err, SL_EINVAL, "coordinator: rate_items is %g; give 0.000001 to 10^9 a second",
				  o->rate_items);
	if (o->rate_bytes != 0 && !(o->rate_bytes >= 1e-6 && o->rate_bytes <= 1e9))
		return sl_err_set(err, SL_EINVAL, "coordinator: rate_bytes is %g; give 0.000001 to 10^9 a second",
				  o->rate_bytes);
	if (!(o->reduce_factor > 0 && o->reduce_factor < 1))
		return sl_err_set(err, SL_EINVAL, "coordinator: reduce_factor is %g; give a value between 0 and 1",
				  o->reduce_factor);
	if (o->rate_by_watermark == SL_ON && o->rate_items == 0 && o->rate_bytes == 0)
		return sl_err_set(err, SL_EINVAL, "coordinator: rate_by_watermark needs rate_items or rate_bytes");
	return 0;
}

static int check_parts(const struct sl_coordinator_opts *o, const sl_sink *sink, struct sl_err *err)
{
	if (sink == NULL || sink->ops == NULL || sink->ops->write == NULL || sink->ops->name == NULL)
		return sl_err_set(err, SL_EINVAL, "coordinator: the sink has no write function or no name");
	if (sink->ops->version != SL_SINK_VERSION)
		return sl_err_set(err, SL_EINVAL, "coordinator: the sink's table has version %d, not %d",
				  sink->ops->version, SL_SINK_VERSION);
	if (o->dead_letters == NULL && o->on_dead == NULL)
		return sl_err_set(err, SL_EINVAL,
				  "coordinator: give dead_letters or on_dead: some items may never be taken");
	if (o->item_kind == SL_ITEM_BYTES &&
	    (o->item_copy != NULL || o->item_free != NULL || o->item_encode != NULL || o->item_decode != NULL))
		return sl_err_set(
			err, SL_EINVAL,
			"coordinator: item_copy, item_free, item_encode and item_decode are for SL_ITEM_POINTERS");
	bool stored = o->wal != NULL || o->spill_wal != NULL || o->dead_letters != NULL;
	if (o->item_kind == SL_ITEM_POINTERS && stored && o->item_encode == NULL)
		return sl_err_set(err, SL_EINVAL,
				  "coordinator: pointer items with a log or dead letters need item_encode");
	if (o->item_kind == SL_ITEM_POINTERS && (o->wal != NULL || o->spill_wal != NULL) && o->item_decode == NULL)
		return sl_err_set(err, SL_EINVAL, "coordinator: pointer items with a log need item_decode");
	if (o->wal != NULL && o->wal == o->spill_wal)
		return sl_err_set(err, SL_EINVAL, "coordinator: wal and spill_wal are the same log");
	if (o->name != NULL && (o->name[0] == '\0' || strlen(o->name) > NAME_MAX_BYTES))
		return sl_err_set(err, SL_EINVAL, "coordinator: name has %zu bytes; give 1 to %d", strlen(o->name),
				  NAME_MAX_BYTES);
	return 0;
}

int sl__coordinator_options(struct sl_coordinator_opts *out, const struct sl_coordinator_opts *opts,
			    const sl_sink *sink, struct sl_err *err)
{
	if (opts != NULL && opts->struct_size == 0)
		return sl_err_set(err, SL_EINVAL, "coordinator: struct_size is 0; use SL_COORDINATOR_OPTS_INIT");
	struct sl_coordinator_opts o;
	struct sl_retry_policy given;
	sl__opts_copy(&o, sizeof(o), opts);
	given = o.retry_policy;
	int rc = check_parts(&o, sink, err);
	if (rc != 0)
		return rc;
	fill_defaults(&o);
	rc = check_values(&o, err);
	if (rc != 0)
		return rc;
	rc = sl_retry_resolve(&o.retry_policy, &given, SL_RETRY_COORDINATOR, err);
	if (rc == 0)
		*out = o;
	return rc;
}

enum sl_err_class sl_default_retry_classifier(const struct sl_err *err, SL_UNUSED void *ctx)
{
	struct sl_err copy = *err;
	(void)sl__retry_classify_default(&copy);
	return copy.error_class;
}
