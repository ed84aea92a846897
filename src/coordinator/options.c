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
	if (o->scaling.workers_min == 0 && o->scaling.workers_max == 0)
		o->scaling.workers_min = o->scaling.workers_max = o->workers;
	else if (o->scaling.workers_min == 0)
		o->scaling.workers_min = SL_MIN(o->workers, o->scaling.workers_max);
	else if (o->scaling.workers_max == 0)
		o->scaling.workers_max = SL_MAX(o->workers, o->scaling.workers_min);
	o->scaling.up_ms = sl__or_default(o->scaling.up_ms, 100);
	o->scaling.down_ms = sl__or_default(o->scaling.down_ms, 5000);
	o->retry.batches = (int32_t)sl__or_default(o->retry.batches, SL_MAX(2 * o->scaling.workers_max, 4));
	/* the target */
	o->breaker.failures = (int32_t)sl__or_default(o->breaker.failures, 5);
	o->breaker.open_max_ms = sl__or_default(o->breaker.open_max_ms, SL_MAX(o->breaker.open_ms, 30000));
	o->breaker.open_ms = sl__or_default(o->breaker.open_ms, SL_MIN(1000, o->breaker.open_max_ms));
	o->retry.give_up_after_ms = sl__or_default(o->retry.give_up_after_ms, SL_UNLIMITED);
	if (o->rate.reduce_factor == 0)
		o->rate.reduce_factor = 0.5;
	if (o->retry.classify_retryable == NULL)
		o->retry.classify_retryable = sl_default_retry_classifier;
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
		{"scaling.workers_max", o->scaling.workers_max, 1, WORKERS_MAX},
		{"scaling.workers_min", o->scaling.workers_min, 1, o->scaling.workers_max},
		{"scaling.up_ms", o->scaling.up_ms, 1, SPAN_MAX_MS},
		{"scaling.down_ms", o->scaling.down_ms, 1, SPAN_MAX_MS},
		{"breaker.open_ms", o->breaker.open_ms, 1, SPAN_MAX_MS},
		{"breaker.open_max_ms", o->breaker.open_max_ms, o->breaker.open_ms, SPAN_MAX_MS},
		{"retry.batches", o->retry.batches, 1, 1 << 20},
		{"items.kind", o->items.kind, SL_ITEM_BYTES, SL_ITEM_POINTERS},
		{"overflow_strategy", o->overflow_strategy, SL_OVERFLOW_BLOCK, SL_OVERFLOW_ERROR},
		{"adaptive", o->adaptive, SL_DEFAULT, SL_OFF},
		{"per_key_order", o->per_key_order, SL_DEFAULT, SL_OFF},
		{"rate.by_watermark", o->rate.by_watermark, SL_DEFAULT, SL_OFF},
	};
	int rc = sl__check_ranges("coordinator", rows, SL_COUNT(rows), err);
	if (rc != 0)
		return rc;
	if (o->retry.give_up_after_ms != SL_UNLIMITED &&
	    (o->retry.give_up_after_ms < 1 || o->retry.give_up_after_ms > SPAN_MAX_MS))
		return sl_err_set(err, SL_EINVAL,
				  "coordinator: retry.give_up_after_ms is %lld; give 1 to %lld, or SL_UNLIMITED",
				  (long long)o->retry.give_up_after_ms, (long long)SPAN_MAX_MS);
	if (o->breaker.failures < 1 && o->breaker.failures != SL_UNLIMITED)
		return sl_err_set(err, SL_EINVAL,
				  "coordinator: breaker.failures is %d; give 1 or more, or SL_UNLIMITED",
				  (int)o->breaker.failures);
	/* Written so that a NaN is refused too. */
	if (o->rate.items != 0 && !(o->rate.items >= 1e-6 && o->rate.items <= 1e9))
		return sl_err_set(err, SL_EINVAL, "coordinator: rate.items is %g; give 0.000001 to 10^9 a second",
				  o->rate.items);
	if (o->rate.bytes != 0 && !(o->rate.bytes >= 1e-6 && o->rate.bytes <= 1e9))
		return sl_err_set(err, SL_EINVAL, "coordinator: rate.bytes is %g; give 0.000001 to 10^9 a second",
				  o->rate.bytes);
	if (!(o->rate.reduce_factor > 0 && o->rate.reduce_factor < 1))
		return sl_err_set(err, SL_EINVAL, "coordinator: rate.reduce_factor is %g; give a value between 0 and 1",
				  o->rate.reduce_factor);
	if (o->rate.by_watermark == SL_ON && o->rate.items == 0 && o->rate.bytes == 0)
		return sl_err_set(err, SL_EINVAL, "coordinator: rate.by_watermark needs rate.items or rate.bytes");
	return 0;
}

static int check_parts(const struct sl_coordinator_opts *o, const sl_sink *sink, struct sl_err *err)
{
	if (sink == NULL || sink->ops == NULL || sink->ops->write == NULL || sink->ops->name == NULL)
		return sl_err_set(err, SL_EINVAL, "coordinator: the sink has no write function or no name");
	if (sink->ops->version != SL_SINK_VERSION)
		return sl_err_set(err, SL_EINVAL, "coordinator: the sink's table has version %d, not %d",
				  sink->ops->version, SL_SINK_VERSION);
	if (o->unwritten.dead_letters == NULL && o->unwritten.on_dead == NULL)
		return sl_err_set(err, SL_EINVAL,
				  "coordinator: give unwritten.dead_letters or unwritten.on_dead, for items that the "
				  "sink never accepts");
	if (o->items.kind == SL_ITEM_BYTES &&
	    (o->items.copy != NULL || o->items.free != NULL || o->items.encode != NULL || o->items.decode != NULL))
		return sl_err_set(err, SL_EINVAL,
				  "coordinator: items.copy, .free, .encode and .decode are for SL_ITEM_POINTERS");
	bool stored = o->wal != NULL || o->spill_wal != NULL || o->unwritten.dead_letters != NULL;
	if (o->items.kind == SL_ITEM_POINTERS && stored && o->items.encode == NULL)
		return sl_err_set(err, SL_EINVAL,
				  "coordinator: pointer items with a log or dead letters need items.encode");
	if (o->items.kind == SL_ITEM_POINTERS && (o->wal != NULL || o->spill_wal != NULL) && o->items.decode == NULL)
		return sl_err_set(err, SL_EINVAL, "coordinator: pointer items with a log need items.decode");
	if (o->wal != NULL && o->wal == o->spill_wal)
		return sl_err_set(err, SL_EINVAL, "coordinator: wal and spill_wal are the same log; give two");
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
	given = o.retry.policy;
	int rc = check_parts(&o, sink, err);
	if (rc != 0)
		return rc;
	fill_defaults(&o);
	rc = check_values(&o, err);
	if (rc != 0)
		return rc;
	rc = sl_retry_resolve(&given, SL_RETRY_COORDINATOR, &o.retry.policy, err);
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
