/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of items, a delivery as a coordinator makes it, and reading the target back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sink/contract_kit.h"

#define ITEM_BYTES 128 /* room for each item's text */

void *fixture_state(const struct sink_fixture *f)
{
	union {
		const struct sink_fixture *in;
		void *out;
	} p = {.in = f};
	return p.out;
}

sl_sink open_sink(const struct sink_fixture *f, const struct sl_env *env)
{
	struct sl_err err = SL_ERR_INIT;
	sl_sink sink = {0};
	if (f->open(&sink, env, &err, f->ctx) != 0)
		fail_msg("open: %s", err.msg);
	assert_int_equal(sink.ops->version, SL_SINK_VERSION);
	return sink;
}

int try_attach(const sl_sink *sink, void **lane, struct sl_err *err)
{
	*lane = sink->ctx;
	return sink->ops->attach != NULL ? sink->ops->attach(sink->ctx, lane, err) : 0;
}

void *sink_attach(const sl_sink *sink)
{
	struct sl_err err = SL_ERR_INIT;
	void *lane = NULL;
	if (try_attach(sink, &lane, &err) != 0)
		fail_msg("attach: %s", err.msg);
	return lane;
}

void sink_detach(const sl_sink *sink, void *lane)
{
	if (sink->ops->detach != NULL)
		sink->ops->detach(sink->ctx, lane);
}

/* ---- ids ---- */

void sink_ids_add(struct sink_ids *ids, uint64_t id)
{
	if (ids->n == ids->cap) {
		ids->cap = ids->cap != 0 ? ids->cap * 2 : 64;
		ids->at = realloc(ids->at, ids->cap * sizeof(*ids->at));
		assert_non_null(ids->at);
	}
	ids->at[ids->n++] = id;
}

void sink_ids_fini(struct sink_ids *ids)
{
	free(ids->at);
	*ids = (struct sink_ids){0};
}

bool sink_ids_have(const struct sink_ids *ids, uint64_t id)
{
	for (size_t i = 0; ids != NULL && i < ids->n; i++)
		if (ids->at[i] == id)
			return true;
	return false;
}

/* ---- runs ---- */

static size_t plain_item(char *out, size_t cap, uint64_t id)
{
	return (size_t)snprintf(out, cap, "{\"id\":%llu,\"body\":\"item %llu\"}", (unsigned long long)id,
				(unsigned long long)id);
}

void sink_run_make(struct sink_run *r, const struct sink_fixture *f, uint64_t first, size_t n)
{
	*r = (struct sink_run){.n = n, .items = calloc(n, sizeof(*r->items)), .text = calloc(n, ITEM_BYTES)};
	assert_non_null(r->items);
	assert_non_null(r->text);
	for (size_t i = 0; i < n; i++) {
		char *text = r->text + i * ITEM_BYTES;
		size_t len = f->item != NULL ? f->item(text, ITEM_BYTES, first + i, f->ctx)
					     : plain_item(text, ITEM_BYTES, first + i);
		assert_true(len < ITEM_BYTES);
		r->items[i] = (struct sl_sink_item){.data = text, .len = len, .position = first + i};
	}
}

void sink_run_poison(struct sink_run *r, const struct sink_fixture *f, size_t i)
{
	char *text = r->text + i * ITEM_BYTES;
	r->items[i].len = f->poison_item(text, ITEM_BYTES, r->items[i].position, f->ctx);
	assert_true(r->items[i].len < ITEM_BYTES);
}

void sink_run_fini(struct sink_run *r)
{
	free(r->items);
	free(r->text);
	*r = (struct sink_run){0};
}

/* ---- one write ---- */

static void check_reply(const struct sl_sink_reply *reply, size_t n, int rc, const struct sl_err *err)
{
	if (rc == 0)
		return;
	assert_int_equal(err->code, rc);
	assert_int_not_equal(err->msg[0], '\0');
	assert_true(reply->culprit == SL_SINK_NO_CULPRIT || reply->culprit < n);
	if (reply->culprit == SL_SINK_NO_CULPRIT)
		return;
	/* A culprit is for batches of which nothing was written. */
	assert_int_equal(err->error_class, SL_CLASS_POISON);
	for (size_t i = 0; i < n; i++)
		assert_int_not_equal(reply->outcomes[i], SL_SINK_WRITTEN);
}

int sink_write(const sl_sink *sink, void *lane, const struct sl_sink_item *items, size_t n, struct sl_sink_reply *reply,
	       uint8_t *outcomes, struct sl_err *err)
{
	static _Atomic uint64_t batches;
	struct sl_sink_batch batch = {.items = items, .n = n, .ordered = true};
	uint64_t id = ++batches;
	memcpy(batch.id, &id, sizeof(id));
	memset(outcomes, SL_SINK_AS_BATCH, n);
	*reply = (struct sl_sink_reply){.outcomes = outcomes, .culprit = SL_SINK_NO_CULPRIT};
	*err = (struct sl_err)SL_ERR_INIT;
	int rc = sink->ops->write(sink->ctx, lane, &batch, reply, err);
	check_reply(reply, n, rc, err);
	return rc;
}

/* ---- a delivery ---- */

static void bury(const struct sl_sink_item *item, struct sink_delivery *d)
{
	sink_ids_add(&d->dead, item->position);
	d->dead_as = d->err;
}

/* Items that are neither written nor dead, in runs of neighbours. */
static int deliver_rest(const sl_sink *sink, void *lane, const struct sl_sink_item *items, size_t n,
			const uint8_t *outcomes, struct sink_delivery *d)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < n;) {
		size_t end = i;
		while (end < n && outcomes[end] == SL_SINK_AS_BATCH)
			end++;
		if (end > i)
			rc = sink_deliver(sink, lane, items + i, end - i, d);
		i = end + 1;
	}
	return rc;
}

static int deliver_halves(const sl_sink *sink, void *lane, const struct sl_sink_item *items, size_t n,
			  struct sink_delivery *d)
{
	int rc = sink_deliver(sink, lane, items, n / 2, d);
	return rc != 0 ? rc : sink_deliver(sink, lane, items + n / 2, n - n / 2, d);
}

/* The batch holds poison. Without a culprit and without outcomes it is halved. */
static int find_poison(const sl_sink *sink, void *lane, const struct sl_sink_item *items, size_t n, uint8_t *outcomes,
		       size_t culprit, struct sink_delivery *d)
{
	bool told = false;
	if (culprit != SL_SINK_NO_CULPRIT)
		outcomes[culprit] = SL_SINK_POISON;
	for (size_t i = 0; i < n; i++) {
		told |= outcomes[i] != SL_SINK_AS_BATCH;
		if (outcomes[i] == SL_SINK_POISON || n == 1)
			bury(&items[i], d);
	}
	if (n == 1)
		return 0;
	return told ? deliver_rest(sink, lane, items, n, outcomes, d) : deliver_halves(sink, lane, items, n, d);
}

int sink_deliver(const sl_sink *sink, void *lane, const struct sl_sink_item *items, size_t n, struct sink_delivery *d)
{
	struct sl_sink_reply reply;
	uint8_t *outcomes = calloc(n, 1);
	assert_non_null(outcomes);
	struct sl_err err;
	d->writes++;
	int rc = sink_write(sink, lane, items, n, &reply, outcomes, &err);
	if (rc != 0) {
		d->err = err;
		if (d->secret != NULL)
			assert_null(strstr(err.msg, d->secret));
		if (err.error_class == SL_CLASS_POISON)
			rc = find_poison(sink, lane, items, n, outcomes, reply.culprit, d);
	}
	free(outcomes);
	return rc;
}

void sink_delivery_fini(struct sink_delivery *d)
{
	sink_ids_fini(&d->dead);
}

/* ---- the target ---- */

static void expect_order(const struct sink_ids *got)
{
	for (size_t i = 1; i < got->n; i++)
		if (got->at[i] <= got->at[i - 1])
			fail_msg("item %llu came behind item %llu", (unsigned long long)got->at[i],
				 (unsigned long long)got->at[i - 1]);
}

void sink_expect(const struct sink_fixture *f, uint64_t first, size_t n, const struct sink_ids *dead, bool in_order,
		 bool once)
{
	if (f->read_back == NULL)
		return;
	struct sink_ids got = {0};
	uint8_t *seen = calloc(n, 1);
	assert_non_null(seen);
	f->read_back(&got, f->ctx);
	for (size_t i = 0; i < got.n; i++) {
		uint64_t at = got.at[i] - first;
		if (at >= n)
			fail_msg("item %llu was never written", (unsigned long long)got.at[i]);
		if (once && seen[at])
			fail_msg("item %llu came twice", (unsigned long long)got.at[i]);
		seen[at] = 1;
	}
	for (size_t i = 0; dead != NULL && i < dead->n; i++) {
		assert_false(seen[dead->at[i] - first]);
		seen[dead->at[i] - first] = 1;
	}
	for (size_t i = 0; i < n; i++)
		if (!seen[i])
			fail_msg("item %llu is missing", (unsigned long long)(first + i));
	if (in_order)
		expect_order(&got);
	free(seen);
	sink_ids_fini(&got);
}
