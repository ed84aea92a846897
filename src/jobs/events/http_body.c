/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch of a log as a PublishJobEventsRequest. A record is a packed JobEvent already, so that its bytes go into the
 * message as they are: only what is around them is written here.
 */
#include "jobs/events/http.h"

#define KEY(number, wire) ((uint64_t)(number) << 3 | (wire))
enum { VARINT = 0, FIXED64 = 1, BYTES = 2 };
#define VARINT_MAX 10

static size_t varint_size(uint64_t v)
{
	size_t n = 1;
	for (; v > 0x7F; v >>= 7)
		n++;
	return n;
}

static void put_varint(struct sl__buf *b, uint64_t v)
{
	uint8_t bytes[VARINT_MAX];
	size_t n = 0;
	for (; v > 0x7F; v >>= 7)
		bytes[n++] = (uint8_t)(v | 0x80);
	bytes[n++] = (uint8_t)v;
	(void)sl__buf_append(b, bytes, n);
}

static void put_number(struct sl__buf *b, uint64_t key, uint64_t v)
{
	if (v == 0)
		return;
	put_varint(b, key);
	put_varint(b, v);
}

static void put_bytes(struct sl__buf *b, uint64_t key, const void *data, size_t n)
{
	put_varint(b, key);
	put_varint(b, n);
	(void)sl__buf_append(b, data, n);
}

/* LoggedEvent: sequence = 1, crc = 2, event = 3. */
static void put_event(struct sl__buf *b, const struct sl_wal_record *r)
{
	size_t n = 1 + varint_size(r->sequence) + 1 + 8 + 1 + varint_size(r->payload_len) + r->payload_len;
	put_varint(b, KEY(4, BYTES));
	put_varint(b, n);
	size_t start = b->len;
	put_number(b, KEY(1, VARINT), r->sequence);
	put_varint(b, KEY(2, FIXED64));
	(void)sl__buf_put64(b, r->crc);
	put_bytes(b, KEY(3, BYTES), r->payload, r->payload_len);
	assert(b->failed != 0 || b->len - start == n);
	(void)start;
}

/* SequenceRange: first = 1, last = 2. */
static void put_range(struct sl__buf *b, const struct sl_wal_range *r)
{
	put_varint(b, KEY(5, BYTES));
	put_varint(b, (r->first != 0 ? 1 + varint_size(r->first) : 0) + (r->last != 0 ? 1 + varint_size(r->last) : 0));
	put_number(b, KEY(1, VARINT), r->first);
	put_number(b, KEY(2, VARINT), r->last);
}

static int check(const struct sl_wal_batch *batch, uint64_t *refused, struct sl_err *err)
{
	for (size_t i = 0; i < batch->n_records; i++) {
		const struct sl_wal_record *r = &batch->records[i];
		struct sl_event event;
		if (sl_event_decode(r->payload, r->payload_len, &event, err) == 0)
			continue;
		*refused = r->sequence;
		if (err != NULL)
			err->code = SL_EREFUSED;
		return SL_EREFUSED;
	}
	return 0;
}

int sl__event_http_body(struct sl__buf *out, const struct sl_wal_batch *batch, uint64_t *refused, struct sl_err *err)
{
	int rc = check(batch, refused, err);
	if (rc != 0)
		return rc;
	sl__buf_clear(out);
	put_bytes(out, KEY(2, BYTES), batch->stream, strlen(batch->stream));
	put_number(out, KEY(3, VARINT), batch->incarnation);
	for (size_t i = 0; i < batch->n_records; i++)
		put_event(out, &batch->records[i]);
	for (size_t i = 0; i < batch->n_skipped; i++)
		put_range(out, &batch->skipped[i]);
	put_number(out, KEY(6, VARINT), batch->last_sequence);
	if (batch->after.kind == SL_WAL_MARK_RECORD && batch->after.sequence != 0) {
		put_number(out, KEY(7, VARINT), batch->after.sequence);
		put_varint(out, KEY(8, FIXED64));
		(void)sl__buf_put64(out, batch->after.crc);
	}
	return out->failed != 0 ? sl_err_set(err, SL_ENOMEM, "publish events: out of memory") : 0;
}
