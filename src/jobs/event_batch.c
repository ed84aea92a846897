/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/events.h"

void sl__event_batch_init(struct sl__event_batch *b, const struct sl_env *env)
{
	sl__buf_init(&b->bytes, env);
	sl__buf_init(&b->ends, env);
	sl__buf_init(&b->spans, env);
	b->n = 0;
}

void sl__event_batch_fini(struct sl__event_batch *b)
{
	sl__buf_fini(&b->bytes);
	sl__buf_fini(&b->ends);
	sl__buf_fini(&b->spans);
	b->n = 0;
}

void sl__event_batch_clear(struct sl__event_batch *b)
{
	sl__buf_clear(&b->bytes);
	sl__buf_clear(&b->ends);
	b->n = 0;
}

static size_t end_of(const struct sl__event_batch *b, size_t i)
{
	size_t end;
	memcpy(&end, b->ends.data + i * sizeof end, sizeof end);
	return end;
}

int sl__event_batch_add(struct sl__event_batch *b, const struct sl_event *event, struct sl_err *err)
{
	int rc = sl__buf_reserve(&b->ends, sizeof(size_t));
	if (rc == 0)
		rc = sl__event_pack(&b->bytes, event, err);
	else
		(void)sl_err_set(err, rc, "collect events: out of memory");
	if (rc != 0)
		return rc;
	size_t end = b->bytes.len;
	rc = sl__buf_append(&b->ends, &end, sizeof end);
	assert(rc == 0);
	b->n++;
	return rc;
}

static struct sl_wal_span span_of(const struct sl__event_batch *b, size_t i)
{
	size_t start = i > 0 ? end_of(b, i - 1) : 0;
	return (struct sl_wal_span){b->bytes.data + start, end_of(b, i) - start};
}

int sl__event_batch_append(struct sl__event_batch *b, sl_wal *log, uint64_t *last, size_t *n_durable,
			   struct sl_err *err)
{
	uint64_t first = 0;
	size_t done = 0;
	*n_durable = 0;
	if (b->n == 0)
		return 0;
	sl__buf_clear(&b->spans);
	for (size_t i = 0; i < b->n; i++) {
		struct sl_wal_span span = span_of(b, i);
		(void)sl__buf_append(&b->spans, &span, sizeof span);
	}
	if (b->spans.failed != 0)
		return sl_err_set(err, SL_ENOMEM, "append events: out of memory");
	int rc = sl_wal_append_many(log, (const struct sl_wal_span *)(const void *)b->spans.data, b->n, &first, &done,
				    err);
	*n_durable = rc == 0 ? b->n : done;
	if (*n_durable > 0 && last != NULL)
		*last = first + *n_durable - 1;
	return rc;
}

/* A flush is in the log as a whole or not at all, so its last ticket speaks for all of it. Before a record goes with
 * another flush, the one before is waited for: it could fail, and the next succeed. */
int sl__event_batch_submit(struct sl__event_batch *b, sl_wal *log, struct sl_wal_ticket *ticket, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < b->n; i++) {
		struct sl_wal_span span = span_of(b, i);
		struct sl_wal_ticket before = *ticket;
		rc = sl_wal_submit(log, span.data, span.len, ticket, err);
		if (rc != 0)
			*ticket = before;
		else if (i > 0 && before.batch != ticket->batch)
			rc = sl_wal_wait(log, &before, SL_UNLIMITED, err);
		if (rc != 0 && i > 0)
			(void)!sl_wal_wait(log, ticket, SL_UNLIMITED, NULL);
	}
	return rc;
}

void sl__event_batch_get(const struct sl__event_batch *b, size_t i, struct sl_event *out)
{
	struct sl_wal_span span = span_of(b, i);
	int rc = sl_event_decode(span.data, span.len, out, NULL);
	assert(rc == 0);
	(void)rc;
}
