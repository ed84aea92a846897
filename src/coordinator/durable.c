/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The logs. A record of the log is one item:
 *
 *     version (1)  │ position, begin, end of the range: varints │ its hash, 8 bytes when end is not 0 │
 *     length of the key, varint │ key │ bytes
 *
 * (docs/formats/coordinator.md). A submit reserves room in the queue, appends, and pushes: what it accepted is in the
 * log, and what the queue has no room for is not. What ends is marked there, and what is not marked at the next start is
 * fed into the queue again, ahead of everything new. A mark may be lost by a crash, a record never: an item is written at
 * least once.
 *
 *  D1  An item that a submit refused is not in the log; or, when the coordinator was stopped after its append, it is
 *      marked as failed, durably, before the submit returns.
 *  D2  A record is marked only after its item has ended: written, or its letter durable, or dropped.
 */
#include "base/varint.h"
#include "coordinator/coordinator.h"

#define VERSION 1
#define CHUNK 64                /* items spilled at a time; stop.c gives no more */
#define APPEND_ITEMS 1024       /* under one flush of the log: a flush for every 64 took three times as long */
#define APPEND_BYTES (4u << 20) /* the same: no item is added to more */
#define MEMORY_WAIT_MS 100      /* before the feeder asks for memory again */

/* ---- the record ---- */

static int put_item_record(const sl_coordinator *c, struct sl__buf *b, const struct sl_item *item)
{
	const void *bytes;
	size_t len;
	int rc = sl__item_bytes(c, item, &bytes, &len);
	if (rc != 0)
		return rc;
	(void)sl__buf_append(b, "\x01", 1);
	sl__varint_put(b, item->position);
	sl__varint_put(b, item->range.begin);
	sl__varint_put(b, item->range.end);
	if (item->range.end != 0) {
		uint8_t hash[8];
		sl__put64(hash, item->range.hash);
		(void)sl__buf_append(b, hash, sizeof(hash));
	}
	sl__varint_put(b, item->key_len);
	(void)sl__buf_append(b, item->key, item->key_len);
	return sl__buf_append(b, bytes, len);
}

static int get_record(const void *payload, size_t n, struct sl_item *out)
{
	const unsigned char *at = payload, *end = at + n;
	struct sl_input_range range = {0, 0, 0};
	uint64_t position, key_len;
	if (n == 0 || *at++ != VERSION || !sl__varint_get(&at, end, &position) ||
	    !sl__varint_get(&at, end, &range.begin) || !sl__varint_get(&at, end, &range.end))
		return SL_EDATA;
	if (range.end != 0) {
		if (end - at < 8)
			return SL_EDATA;
		range.hash = sl__get64(at);
		at += 8;
	}
	if (!sl__varint_get(&at, end, &key_len) || key_len > UINT8_MAX || key_len > (size_t)(end - at))
		return SL_EDATA;
	*out = (struct sl_item){.data = at + key_len,
				.len = (size_t)(end - at) - key_len,
				.key = key_len > 0 ? at : NULL,
				.key_len = key_len,
				.position = position,
				.range = range};
	return 0;
}

/* ---- marks ---- */

void sl__durable_mark(const sl_coordinator *c, const struct sl__queue_item *items, size_t n, bool sent)
{
	for (size_t i = 0, next; i < n; i = next) {
		const struct sl__box *box = sl__box_of(&items[i]);
		next = i + 1;
		if (box == NULL || box->log == NULL)
			continue;
		uint64_t last = box->sequence;
		for (; next < n; next++, last++) {
			const struct sl__box *more = sl__box_of(&items[next]);
			if (more == NULL || more->log != box->log || more->sequence != last + 1)
				break;
		}
		struct sl_err err = SL_ERR_INIT;
		uint64_t first = box->sequence;
		int rc = sent ? sl_wal_mark_sent(box->log, first, last, &err)
			      : sl_wal_mark_failed(box->log, first, last, &err);
		if (rc != 0)
			sl__log(&c->env, SL_LOG_WARN, "coordinator",
				"could not mark items in the log; they may be written again",
				SL__F_STR("name", c->name), SL__F_U64("first", first), SL__F_U64("last", last),
				SL__F_STR("error", err.msg));
	}
}

/* ---- submit ---- */

struct chunk {
	struct sl__queue_item q[APPEND_ITEMS];
	struct sl_wal_span spans[APPEND_ITEMS];
	size_t ends[APPEND_ITEMS]; /* of the records in bytes */
	struct sl__buf bytes;
	size_t n, n_pushed;
	struct sl__queue_room room;
};

/* Make items and their records ready; stops at the first that cannot be, with why. */
static int fill_chunk(sl_coordinator *c, struct chunk *k, const struct sl_item *items, size_t n)
{
	int rc = 0;
	sl__buf_clear(&k->bytes);
	for (k->n = 0; k->n < n && k->n < APPEND_ITEMS && k->bytes.len < APPEND_BYTES; k->n++) {
		size_t before = k->bytes.len;
		if ((rc = sl__item_make(c, &items[k->n], &k->q[k->n])) != 0)
			break;
		if ((rc = put_item_record(c, &k->bytes, &items[k->n])) != 0) {
			sl__item_unmake(c, &k->q[k->n]);
			k->bytes.failed = 0;
			k->bytes.len = before;
			break;
		}
		k->ends[k->n] = k->bytes.len;
	}
	for (size_t i = 0; i < k->n; i++) {
		size_t begin = i > 0 ? k->ends[i - 1] : 0;
		k->spans[i] = (struct sl_wal_span){k->bytes.data + begin, k->ends[i] - begin};
	}
	return rc;
}

/* Reserve room for the first of the items, waiting for it where the options say so. What drops the oldest has room. */
static int reserve_room(sl_coordinator *c, struct chunk *k, const struct sl_item *items, size_t n, int64_t timeout_ms)
{
	size_t asked = 0, bytes = 0;
	k->room = (struct sl__queue_room){0};
	if (c->o.overflow_strategy == SL_OVERFLOW_DROP_OLDEST)
		return 0;
	for (; asked < n && asked < APPEND_ITEMS && bytes < APPEND_BYTES && items[asked].len <= c->item_max; asked++) {
		k->q[asked] = sl__queue_item(NULL, items[asked].len, SL__ITEM_BOX);
		bytes += items[asked].len;
	}
	return asked > 0 ? sl__queue_reserve(c->queue, k->q, asked, timeout_ms, &k->room) : 0;
}

/* Reserve room, append a chunk to the log, then push it; k->n_pushed of its items went in. */
static int submit_chunk(sl_coordinator *c, struct chunk *k, const struct sl_item *items, size_t n, int64_t timeout_ms)
{
	struct sl_err err = SL_ERR_INIT;
	uint64_t first = 0;
	size_t durable = 0;
	k->n_pushed = 0;
	int rc = reserve_room(c, k, items, n, timeout_ms);
	if (rc != 0)
		return rc;
	bool has_room = k->room.n > 0;
	/* Without one: all of them where the oldest are dropped; else the first is refused, and nothing is appended. */
	int refused = fill_chunk(c, k, items, has_room ? k->room.n : n);
	if (k->n > 0)
		rc = sl_wal_append_many(c->o.wal, k->spans, k->n, &first, &durable, &err);
	if (rc != 0)
		sl__log(&c->env, SL_LOG_WARN, "coordinator", "append to the log failed", SL__F_STR("name", c->name),
			SL__F_STR("error", err.msg));
	else
		durable = k->n;
	for (size_t i = 0; i < durable; i++) {
		struct sl__box *box = k->q[i].ptr;
		box->log = c->o.wal;
		box->sequence = first + i;
	}
	int closed = 0;
	if (has_room) {
		closed = sl__queue_push_reserved(c->queue, k->q, durable, &k->room);
		k->n_pushed = closed == 0 ? durable : 0;
	} else if (durable > 0) {
		closed = sl__queue_push_many(c->queue, k->q, durable, timeout_ms, &k->n_pushed);
	}
	if (closed != 0)
		rc = closed;
	/* D1 */
	if (closed != 0 && k->n_pushed < durable) {
		sl__durable_mark(c, &k->q[k->n_pushed], durable - k->n_pushed, false);
		int synced = sl_wal_sync(c->o.wal, &err);
		if (synced != 0) {
			sl__log(&c->env, SL_LOG_ERROR, "coordinator",
				"refused items may still be written after a restart", SL__F_STR("name", c->name),
				SL__F_U64("items", durable - k->n_pushed), SL__F_STR("error", err.msg));
			rc = synced;
		}
	}
	for (size_t i = k->n_pushed; i < k->n; i++)
		sl__item_unmake(c, &k->q[i]);
	if (rc != 0)
		return rc;
	return refused;
}

int sl__durable_submit(sl_coordinator *c, const struct sl_item *items, size_t n, int64_t timeout_ms, size_t *accepted)
{
	struct chunk *k = sl__alloc(&c->env, sizeof(*k));
	if (k == NULL)
		return SL_ENOMEM;
	int64_t deadline_ns = timeout_ms > 0 ? sl__deadline_ns(&c->env, timeout_ms) : SL_FOREVER;
	int rc = 0;
	sl__buf_init(&k->bytes, &c->env);
	while (rc == 0 && *accepted < n) {
		int64_t ms = timeout_ms > 0 ? sl__left_ms(c, deadline_ns) : timeout_ms;
		rc = submit_chunk(c, k, items + *accepted, n - *accepted, ms);
		*accepted += k->n_pushed;
	}
	sl__buf_fini(&k->bytes);
	sl__free(&c->env, k);
	return rc;
}

/* ---- feeding ---- */

int sl__await_fed(sl_coordinator *c, int64_t timeout_ms)
{
	if (SL_LIKELY(!atomic_load_explicit(&c->feeding, memory_order_acquire)))
		return 0;
	int64_t deadline_ns = timeout_ms < 0 ? SL_FOREVER : sl__deadline_ns(&c->env, timeout_ms);
	bool in_time = true;
	sl__lock(&c->mu);
	while (atomic_load(&c->feeding) && !c->closed && in_time)
		in_time = timeout_ms != 0 && sl__wait(&c->env, &c->fed, &c->mu, deadline_ns);
	int rc = c->closed ? SL_ECLOSED : !atomic_load(&c->feeding) ? 0 : timeout_ms == 0 ? SL_EFULL : SL_ETIMEDOUT;
	sl__unlock(&c->mu);
	return rc;
}

struct feed {
	sl_coordinator *c;
	sl_wal *log;
	uint64_t fed, strange;
};

static int box_record(const sl_coordinator *c, struct sl_item *item, struct sl__queue_item *q)
{
	if (c->o.items.kind == SL_ITEM_BYTES)
		return sl__item_box(c, item, NULL, item->len, q);
	void *pointer = NULL;
	size_t len = 0;
	int rc = c->o.items.decode(item->data, item->len, &pointer, &len, c->o.items.ctx);
	if (rc != 0)
		return SL_EDATA;
	item->data = pointer;
	item->len = len;
	rc = sl__item_box(c, item, pointer, 0, q);
	if (rc != 0 && c->o.items.free != NULL)
		c->o.items.free(pointer, c->o.items.ctx);
	return rc;
}

/* Wait a little for memory; false when there is no time left for that. */
static bool wait_for_memory(sl_coordinator *c)
{
	sl__lock(&c->mu);
	int64_t until_ns = sl__deadline_ns(&c->env, MEMORY_WAIT_MS);
	while (!c->halted && !c->unfed && sl__wait(&c->env, &c->fed, &c->mu, until_ns))
		continue;
	bool more_time = !c->halted && !c->unfed;
	sl__unlock(&c->mu);
	return more_time;
}

static int feed_one(const struct sl_wal_record *record, void *ctx)
{
	struct feed *f = ctx;
	sl_coordinator *c = f->c;
	struct sl_item item;
	struct sl__queue_item q;
	size_t pushed;
	if (record->status != SL_WAL_PENDING)
		return 0;
	int rc = get_record(record->payload, record->payload_len, &item);
	struct sl_item original = item;
	while (rc == 0 && (rc = box_record(c, &item, &q)) == SL_ENOMEM && wait_for_memory(c)) {
		item = original;
		rc = 0;
	}
	if (rc == SL_EDATA) {
		f->strange++;
		return 0;
	}
	if (rc != 0)
		return rc;
	struct sl__box *box = q.ptr;
	box->log = f->log;
	box->sequence = record->sequence;
	rc = sl__queue_push_waiting(c->queue, &q, 1, SL_UNLIMITED, &pushed);
	if (rc != 0)
		sl__item_free(c, &q, false);
	else
		f->fed++;
	return rc;
}

static void feed_log(sl_coordinator *c, sl_wal *log)
{
	struct sl_err err = SL_ERR_INIT;
	struct feed f = {.c = c, .log = log};
	if (log == NULL)
		return;
	int rc = sl_wal_iterate(log, 0, feed_one, &f, &err);
	if (rc != 0 && rc != SL_ECLOSED)
		sl__log(&c->env, SL_LOG_ERROR, "coordinator", "could not read the log to its end",
			SL__F_STR("name", c->name), SL__F_STR("error", err.msg));
	if (f.strange > 0)
		sl__log(&c->env, SL_LOG_ERROR, "coordinator", "records that are not items stay in the log",
			SL__F_STR("name", c->name), SL__F_U64("records", f.strange));
	if (f.fed > 0)
		sl__log(&c->env, SL_LOG_INFO, "coordinator", "queued items of an earlier run",
			SL__F_STR("name", c->name), SL__F_U64("items", f.fed));
}

static void *feeder_main(void *arg)
{
	sl_coordinator *c = arg;
	feed_log(c, c->o.spill_wal);
	feed_log(c, c->o.wal);
	sl__lock(&c->mu);
	atomic_store_explicit(&c->feeding, false, memory_order_release);
	sl__broadcast(&c->fed);
	sl__broadcast(&c->settled);
	sl__unlock(&c->mu);
	return NULL;
}

int sl__durable_pending(const sl_coordinator *c, uint64_t *n, struct sl_err *err)
{
	sl_wal *const logs[] = {c->o.wal, c->o.spill_wal};
	*n = 0;
	for (size_t i = 0; i < SL_COUNT(logs); i++) {
		struct sl_wal_stats s = {.struct_size = sizeof(s)};
		int rc = logs[i] != NULL ? sl_wal_get_stats(logs[i], &s, err) : 0;
		if (rc != 0)
			return rc;
		*n += s.pending;
	}
	return 0;
}

int sl__durable_start(sl_coordinator *c, struct sl_err *err)
{
	uint64_t pending;
	int rc = sl__durable_pending(c, &pending, err);
	if (rc != 0 || pending == 0)
		return rc;
	atomic_store(&c->feeding, true);
	rc = sl__thread_start(&c->feeder, c->name, feeder_main, c);
	if (rc != 0)
		return sl__thread_error(err, rc, "feeder", c->name);
	c->feeder_runs = true;
	return 0;
}

/* ---- spilling ---- */

int sl__durable_spill(sl_coordinator *c, const struct sl__queue_item *items, size_t n, struct sl_err *err)
{
	struct sl_wal_span spans[CHUNK];
	size_t ends[CHUNK];
	struct sl__buf bytes;
	size_t fresh = 0;
	int rc = 0;
	assert(n <= CHUNK);
	sl__buf_init(&bytes, &c->env);
	for (size_t i = 0; i < n && rc == 0; i++) {
		const struct sl__box *box = sl__box_of(&items[i]);
		struct sl_item item = sl__item_view(&items[i]);
		if (box != NULL && box->log != NULL)
			continue; /* it is in a log already, and stays there */
		rc = put_item_record(c, &bytes, &item);
		ends[fresh++] = bytes.len;
	}
	for (size_t i = 0; i < fresh && rc == 0; i++) {
		size_t begin = i > 0 ? ends[i - 1] : 0;
		spans[i] = (struct sl_wal_span){bytes.data + begin, ends[i] - begin};
	}
	if (rc != 0)
		rc = sl_err_set(err, rc, "spill: %s", sl_err_text(rc));
	else if (fresh > 0)
		rc = sl_wal_append_many(c->o.spill_wal, spans, fresh, NULL, NULL, err);
	sl__buf_fini(&bytes);
	return rc;
}
