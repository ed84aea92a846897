/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator's sink: publishes into the store's events.
 *
 * A batch of publishes of many streams is one transaction, as long as none of them has ranges to skip. When the store
 * does not like something in it, each publish is taken by itself, so that one stream's trouble is its own:
 *
 *   a gap             the answer is the mark, and the sender goes back there
 *   a conflict        the answer says so, and the sender stops
 *   another's stream  the answer is 403
 *   refused data      row by row: the first that is refused is named in the answer, those before it are taken
 *   no store          the requests are answered with 503; the items stay with the coordinator, which tries again: when
 *                     the sender has sent them again meanwhile, the store takes them once. A store that takes others
 *                     meanwhile is available: then only the senders of these are answered
 *
 * Invariant: a publish that is settled has its answer, and is never handed to the store again.
 */
#include "server/ingest/ingest.h"

#include "base/base.h"

#include <stdlib.h>
#include <string.h>

#define RUN_ITEMS 64       /* in one transaction: the stores look for a stream's mark in a list */
#define ONE_BY_ONE SL_EGAP /* any of those that is_theirs knows */
#define ALONE_MS 1000      /* that a sender waits whose publish is not taken while others are */

/* What one worker of the coordinator needs to write a run of publishes. */
struct lane {
	struct srv_ingest *in;
	struct sl_event_row *rows;
	size_t cap;
	struct sl_event_mark marks[RUN_ITEMS];
};

static int attach_ingest_lane(void *sink, void **lane, struct sl_err *err)
{
	struct lane *l = calloc(1, sizeof(*l));
	if (l == NULL)
		return sl__no_memory(err, "ingest");
	l->in = sink;
	*lane = l;
	return 0;
}

static void detach_ingest_lane(void *sink, void *lane)
{
	struct lane *l = lane;
	(void)sink;
	free(l->rows);
	free(l);
}

/* ---- how a publish ended ---- */

static void settle_publish(struct srv_publish *p, int rc, struct sl_wal_mark mark, const char *why)
{
	p->settled = true;
	p->rc = rc;
	p->mark = mark;
	(void)snprintf(p->why, sizeof(p->why), "%s", why);
	srv_heard_of(p->ingest->heard, p->stream, p->incarnation, p->last, sl__real_ms(p->ingest->env));
	if (rc == 0)
		srv_follow_poke(p->ingest->follow, p->rows, p->n);
}

/* Is it about what was sent, rather than about the store? */
static bool is_theirs(int rc)
{
	return rc == SL_EGAP || rc == SL_ECONFLICT || rc == SL_EDATA || rc == SL_ETOOBIG || rc == SL_EREFUSED ||
	       rc == SL_EACCES;
}

/* ---- one by one ---- */

/* Something in it is refused: which row? Those before it are taken. */
static int take_rows(struct srv_ingest *in, struct srv_publish *p, struct sl_err *err)
{
	struct sl_wal_mark mark = {0};
	for (size_t i = 0; i < p->n; i++) {
		const struct sl_event_row *row = &p->rows[i];
		struct sl_wal_mark taken = i == 0 ? p->after : (struct sl_wal_mark){0};
		size_t n_ranges = 0; /* before this row */
		while (n_ranges < p->n_skipped && p->skipped[n_ranges].last < row->sequence)
			n_ranges++;
		int rc = sl_events_take(in->core->store, p->stream, p->incarnation, &p->writer, row, 1, p->skipped,
					n_ranges, &taken, err);
		if (rc != 0 && !is_theirs(rc))
			return rc;
		if (rc != 0) {
			p->refused = row->sequence;
			settle_publish(p, rc == SL_ECONFLICT || rc == SL_EACCES ? rc : SL_EREFUSED, mark, err->msg);
			return 0;
		}
		mark = taken;
		if (mark.sequence < row->sequence)
			break;
	}
	settle_publish(p, 0, mark, "");
	return 0;
}

static int take_publish(struct srv_ingest *in, struct srv_publish *p, struct sl_err *err)
{
	struct sl_wal_mark mark = p->after;
	int rc = sl_events_take(in->core->store, p->stream, p->incarnation, &p->writer, p->rows, p->n, p->skipped,
				p->n_skipped, &mark, err);
	if (rc == SL_ECONFLICT || rc == SL_EACCES)
		settle_publish(p, rc, (struct sl_wal_mark){0}, err->msg);
	else if (is_theirs(rc) && p->n == 0) /* there is no event to refuse: it is not for what was sent */
		settle_publish(p, SL_EAGAIN, (struct sl_wal_mark){0}, err->msg);
	else if (is_theirs(rc))
		return take_rows(in, p, err);
	else if (rc == 0)
		settle_publish(p, 0, mark, "");
	return p->settled ? 0 : rc;
}

/* ---- together ---- */

static struct srv_publish *publish_at(const struct sl_sink_batch *batch, size_t i)
{
	/* Items are ours; the sink's table has them const. */
	return (struct srv_publish *)(uintptr_t)batch->items[i].data;
}

static bool is_unskipped(const struct srv_publish *p)
{
	return p->n > 0 && p->n_skipped == 0 && !p->settled;
}

/* Is there another token's publish of the stream in the run? They would share a mark, and so a writer. */
static bool is_mixed(const struct sl_sink_batch *batch, size_t first, size_t i)
{
	const struct srv_publish *p = publish_at(batch, i);
	for (; first < i; first++) {
		const struct srv_publish *other = publish_at(batch, first);
		if (strcmp(other->stream, p->stream) == 0 && strcmp(other->record.actor, p->record.actor) != 0)
			return true;
	}
	return false;
}

/* Two of one stream share a mark. */
static struct sl_event_mark *mark_of(struct lane *l, size_t *n, const struct srv_publish *p)
{
	for (size_t i = 0; i < *n; i++)
		if (l->marks[i].incarnation == p->incarnation && strcmp(l->marks[i].stream, p->stream) == 0)
			return &l->marks[i];
	l->marks[*n] = (struct sl_event_mark){.stream = p->stream, .incarnation = p->incarnation, .writer = &p->writer};
	if (p->after.kind == SL_WAL_MARK_RECORD) {
		l->marks[*n].after = p->after.sequence;
		l->marks[*n].after_crc = p->after.crc;
	}
	return &l->marks[(*n)++];
}

/* Write the publishes from first to end in one transaction; each ends with the mark of its stream. */
static int append_run(struct lane *l, const struct sl_sink_batch *batch, size_t first, size_t end, struct sl_err *err)
{
	const sl_store *store = l->in->core->store;
	size_t n = 0, n_marks = 0;
	for (size_t i = first; i < end; i++)
		n += publish_at(batch, i)->n;
	if (n > l->cap) {
		struct sl_event_row *rows = realloc(l->rows, n * sizeof(*rows));
		if (rows == NULL)
			return sl_err_set(err, SL_ENOMEM, "ingest: out of memory");
		l->rows = rows;
		l->cap = n;
	}
	n = 0;
	for (size_t i = first; i < end; i++) {
		const struct srv_publish *p = publish_at(batch, i);
		if (p->n > 0)
			memcpy(l->rows + n, p->rows, p->n * sizeof(*p->rows));
		n += p->n;
		(void)mark_of(l, &n_marks, p);
	}
	int rc = store->ops->events_append(store->ctx, l->rows, n, l->marks, n_marks, NULL, err);
	for (size_t i = first; rc == 0 && i < end; i++) {
		const struct sl_event_mark *m = mark_of(l, &n_marks, publish_at(batch, i));
		settle_publish(
			publish_at(batch, i), 0,
			(struct sl_wal_mark){m->mark, m->crc, m->has_crc ? SL_WAL_MARK_RECORD : SL_WAL_MARK_SKIPPED},
			"");
	}
	return rc;
}

/* The run of plain publishes that begins with `first`; *end is after it. */
static int take_publishes(struct lane *l, const struct sl_sink_batch *batch, size_t first, size_t *end,
			  struct sl_err *err)
{
	size_t last = first;
	while (last < batch->n && last - first < RUN_ITEMS && is_unskipped(publish_at(batch, last)) &&
	       !is_mixed(batch, first, last))
		last++;
	*end = last > first ? last : first + 1;
	int rc = last - first > 1 ? append_run(l, batch, first, last, err) : ONE_BY_ONE;
	for (size_t i = first; is_theirs(rc) && i < *end; i++) {
		int one = publish_at(batch, i)->settled ? 0 : take_publish(l->in, publish_at(batch, i), err);
		if (one != 0)
			rc = one;
	}
	return is_theirs(rc) ? 0 : rc;
}

/* The store seems to be unavailable. If it took other publishes since these failed first, it is not: then only the
 * senders of these are answered. */
static void tell_away(struct srv_ingest *in, const struct sl_sink_batch *batch)
{
	uint64_t now = atomic_load(&in->successes) + 1;
	bool alone = false;
	for (size_t i = 0; i < batch->n; i++) {
		struct srv_publish *p = publish_at(batch, i);
		alone |= p->away_at != 0 && p->away_at < now;
		p->away_at = p->away_at != 0 ? p->away_at : now;
	}
	if (!alone) {
		srv_wait_away(in);
		return;
	}
	for (size_t i = 0; i < batch->n; i++)
		if (!publish_at(batch, i)->settled)
			srv_wait_unheard(publish_at(batch, i), ALONE_MS, "the store did not accept the events");
}

static int write_publishes(void *ctx, void *lane, const struct sl_sink_batch *batch, struct sl_sink_reply *reply,
			   struct sl_err *err)
{
	struct srv_ingest *in = ctx;
	struct sl_err own;
	bool poison = false, written = false;
	int rc = 0;
	err = err != NULL ? err : &own;
	/* Runs of plain publishes share a transaction; the others get one each. */
	for (size_t i = 0; rc == 0 && i < batch->n;)
		rc = take_publishes(lane, batch, i, &i, err);
	for (size_t i = 0; i < batch->n; i++) {
		poison |= publish_at(batch, i)->settled && publish_at(batch, i)->rc != 0;
		written |= publish_at(batch, i)->settled && publish_at(batch, i)->rc == 0;
	}
	if (rc == 0 || written)
		(void)atomic_fetch_add(&in->successes, 1);
	if (rc == 0)
		srv_wait_back(in);
	if (rc == 0 && !poison)
		return 0;
	/* The outcome of each publish that ended, also when the batch as a whole failed. */
	for (size_t i = 0; i < batch->n; i++) {
		const struct srv_publish *p = publish_at(batch, i);
		if (p->settled)
			reply->outcomes[i] = p->rc == 0 ? SL_SINK_WRITTEN : SL_SINK_POISON;
	}
	if (rc == 0) {
		rc = sl_err_set(err, SL_EREFUSED, "ingest: an event was refused");
		err->error_class = SL_CLASS_POISON;
	} else if (err->error_class == SL_CLASS_FATAL) {
		tell_away(in, batch);
	} else if (err->error_class != SL_CLASS_THROTTLED) {
		/* What is wrong with the store is not wrong with an item. */
		err->error_class = SL_CLASS_TRANSIENT;
	}
	return rc;
}

static const char *sink_target(void *ctx)
{
	(void)ctx;
	return "job_events";
}

const struct sl_sink_ops srv_ingest_sink = {
	.version = SL_SINK_VERSION,
	.name = "job_events",
	.attach = attach_ingest_lane,
	.detach = detach_ingest_lane,
	.write = write_publishes,
	.target = sink_target,
};
