/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a job event: what our reader takes, protobuf-c takes too, and they agree; encoding it again and reading
 * that gives the same event. What only ours refuses must have a reason that protobuf-c does not check.
 */
#include <stdint.h>
#include <string.h>

#include <events.pb-c.h>

#include <sluice/events.h>

#include "must.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(const struct sl_event *a, const struct sl_event *b)
{
	MUST(a->type == b->type && a->job_id == b->job_id && a->attempt == b->attempt && a->ts_ms == b->ts_ms);
	MUST(a->position == b->position && a->partial == b->partial && a->len == b->len);
	MUST(memcmp(&a->claim, &b->claim, sizeof(a->claim)) == 0);
	MUST(a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static void again(const struct sl_event *e)
{
	void *bytes = NULL;
	size_t len = 0;
	struct sl_event back;
	MUST(sl_event_encode(e, NULL, &bytes, &len, NULL) == 0);
	MUST(sl_event_decode(bytes, len, &back, NULL) == 0);
	same(e, &back);
	sl_event_free(NULL, bytes);
}

/* Of a field that is there twice the last one wins. Of two tokens protobuf-c makes one in its own way: they are
 * compared when the message is as short as it can be. */
static void compare(const struct sl_event *e, const Sluice__V1__JobEvent *m, size_t size)
{
	MUST((int)e->type == (int)m->type && e->ts_ms == m->ts_ms && e->position == m->position);
	MUST(e->partial == (m->partial != 0) && e->len == m->data.len);
	MUST(e->len == 0 || memcmp(e->data, m->data.data, e->len) == 0);
	if (m->token != NULL && sluice__v1__job_event__get_packed_size(m) == size)
		MUST(e->job_id == m->token->job_id && e->attempt == m->token->attempt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sl_event e;
	struct sl_err err = SL_ERR_INIT;
	int rc = sl_event_decode(data, size, &e, &err);
	MUST(rc == 0 || (rc == SL_EDATA && err.msg[0] != '\0'));
	if (rc != 0)
		return 0;
	MUST(e.len == 0 || ((const uint8_t *)e.data >= data && (const uint8_t *)e.data + e.len <= data + size));
	again(&e);
	Sluice__V1__JobEvent *m = sluice__v1__job_event__unpack(NULL, size, data);
	if (m != NULL) {
		compare(&e, m, size);
		sluice__v1__job_event__free_unpacked(m, NULL);
	}
	return 0;
}
