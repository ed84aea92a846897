/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/events/events.h"

#define SPLIT_BYTES ((size_t)32 * 1024) /* a larger batch may need more than one flush */

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
	memcpy(&end, b->ends.data + i * sizeof(end), sizeof(end));
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
	rc = sl__buf_append(&b->ends, &end, sizeof(end));
	assert(rc == 0);
	b->n++;
	return rc;
}

static struct sl_wal_span span_of(const struct sl__event_batch *b, size_t i)
{
	size_t start = i > 0 ? end_of(b, i - 1) : 0;
	return (struct sl_wal_span){b->bytes.data + start, end_of(b, i) - start};
}

static int make_spans(struct sl__event_batch *b, struct sl_err *err)
{
	sl__buf_clear(&b->spans);
	for (size_t i = 0; i < b->n; i++) {
		struct sl_wal_span span = span_of(b, i);
		(void)sl__buf_append(&b->spans, &span, sizeof(span));
	}
	return b->spans.failed != 0 ? sl_err_set(err, SL_ENOMEM, "append events: out of memory") : 0;
}

/* What goes with one flush is in the log as a whole or not at all. It is waited for before the next part is handed
 * over: it could fail, and the next succeed; a recovery takes what is in the log for the first of all. */
int sl__event_batch_submit(struct sl__event_batch *b, sl_wal *log, sl__event_part_fn *on_part, void *ctx,
			   struct sl_wal_ticket *ticket, struct sl_err *err)
{
	size_t done = 0, n = 0;
	int rc = make_spans(b, err);
	const struct sl_wal_span *spans = (const struct sl_wal_span *)(const void *)b->spans.data;
	while (rc == 0 && done < b->n) {
		if (done > 0)
			rc = sl_wal_wait(log, ticket, SL_UNLIMITED, err);
		if (rc == 0 && done > 0)
			on_part(done, ticket->sequence, ctx);
		if (rc == 0)
			rc = sl_wal_submit_many(log, spans + done, b->n - done, ticket, &n, err);
		done += n;
	}
	return rc;
}

int sl__event_batch_append(struct sl__event_batch *b, sl_wal *log, sl__event_part_fn *on_part, void *ctx,
			   uint64_t *last, struct sl_err *err)
{
	struct sl_wal_ticket ticket;
	uint64_t first = 0;
	size_t done = 0;
	int rc;
	if (b->n == 0)
		return 0;
	/* Many flushes: the parts are told of as they get durable. */
	if (b->bytes.len > SPLIT_BYTES) {
		rc = sl__event_batch_submit(b, log, on_part, ctx, &ticket, err);
		if (rc == 0)
			rc = sl_wal_wait(log, &ticket, SL_UNLIMITED, err);
		if (rc == 0)
			*last = ticket.sequence;
		return rc;
	}
	rc = make_spans(b, err);
	if (rc == 0)
		rc = sl_wal_append_many(log, (const struct sl_wal_span *)(const void *)b->spans.data, b->n, &first,
					&done, err);
	if (rc == 0)
		*last = first + b->n - 1;
	else if (done > 0)
		on_part(done, first + done - 1, ctx);
	return rc;
}

void sl__event_batch_get(const struct sl__event_batch *b, size_t i, struct sl_event *out)
{
	struct sl_wal_span span = span_of(b, i);
	int rc = sl_event_decode(span.data, span.len, out, NULL);
	assert(rc == 0);
	(void)rc;
}
