/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the body of a PublishJobEvents; the first says in which form. What is taken is in order and within what
 * a store can keep, memory stays within its bound, and an event that is refused is one of the request.
 */
#include <stdint.h>
#include <string.h>

#include "must.h"
#include "server/ingest/ingest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t touch(const struct sl_event_row *row)
{
	const uint8_t *bytes = row->payload;
	size_t sum = 0;
	for (size_t i = 0; i < row->payload_len; i++)
		sum += bytes[i];
	return sum;
}

static void check(const struct srv_publish *p)
{
	uint64_t before = 0;
	size_t sum = 0;
	MUST(p->stream[0] != '\0' && strlen(p->stream) < SRV_STREAM_BYTES && p->key_len <= sizeof(p->key));
	for (size_t i = 0; i < p->n; i++) {
		const struct sl_event_row *row = &p->rows[i];
		MUST(row->sequence > before && row->sequence <= INT64_MAX && row->type > 0 && row->attempt >= 0);
		MUST(row->job_id <= INT64_MAX && (row->job_id != 0 || row->attempt == 0));
		MUST(row->incarnation == p->incarnation && row->stream == p->stream && row->payload != NULL);
		/* As SQLite keeps it. */
		MUST(row->ts_ms <= INT64_MAX / 1000 && row->ts_ms >= INT64_MIN / 1000);
		before = row->sequence;
		sum += touch(row);
	}
	before = 0;
	for (size_t i = 0; i < p->n_skipped; i++) {
		MUST(p->skipped[i].first > before && p->skipped[i].last >= p->skipped[i].first);
		before = p->skipped[i].last;
	}
	(void)sum;
}

static int parse(struct srv_publish *p, const uint8_t *data, size_t size, struct sl_err *err)
{
	return data[0] % 2 == 0 ? srv_publish_proto(p, data + 1, size - 1, err)
				: srv_publish_json(p, data + 1, size - 1, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sl_err err = SL_ERR_INIT;
	if (size == 0)
		return 0;
	struct srv_publish *p = srv_publish_new(size - 1);
	MUST(p != NULL);
	int rc = parse(p, data, size, &err);
	MUST(p->bytes <= p->bytes_max);
	MUST(rc == 0 || (err.code == rc && err.msg[0] != '\0'));
	MUST(rc == 0 || rc == SL_EDATA || rc == SL_EREFUSED || rc == SL_ETOOBIG || rc == SL_ENOMEM);
	if (rc == 0)
		check(p);
	srv_publish_unref(p);
	return 0;
}
