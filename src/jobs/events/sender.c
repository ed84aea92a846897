/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends a log of events into a store's job_events.
 *
 * The records of a batch go in as few calls as skipped ranges allow: a range between two records splits the batch,
 * because a mark means "skip everything up to here". A range is skipped only when the store's mark has reached its
 * beginning: a store that was restored from a backup and lacks older records must get those first, so its mark is
 * returned and the sender resumes there.
 */
#include "base/env.h"
#include "jobs/store/ops.h"
#include <sluice/events.h>

struct sl_event_sender {
	struct sl_env env;
	sl_store store;
	struct sl_event_row *rows;
	size_t cap;
	sl_events_taken_fn *taken; /* NULL: none */
	void *taken_ctx;
};

/* One stretch of a batch: first comes what is skipped, then the rows. */
struct stretch {
	uint64_t skip_first, skip_last; /* 0: none */
	size_t first, n;                /* of the rows */
};

/* ---- rows of one stream into the store ---- */

struct incoming {
	const sl_store *store;
	const char *stream;
	uint32_t incarnation;
	const struct sl_event_writer *writer;
	const struct sl_event_row *rows;
	struct sl_wal_mark after; /* where the sender assumes the store to be */
};

/* Append the rows of a stretch and skip its range; NULL: only read the mark. */
static int append_rows(const struct incoming *t, const struct stretch *x, struct sl_wal_mark *mark, struct sl_err *err)
{
	struct sl_event_mark m = {.stream = t->stream,
				  .incarnation = t->incarnation,
				  .mark = x != NULL ? x->skip_last : 0,
				  .writer = t->writer};
	if (t->after.kind == SL_WAL_MARK_RECORD) {
		m.after = t->after.sequence;
		m.after_crc = t->after.crc;
	}
	int rc = t->store->ops->events_append(t->store->ctx, x != NULL ? t->rows + x->first : NULL,
					      x != NULL ? x->n : 0, &m, 1, NULL, err);
	if (rc == 0)
		*mark = (struct sl_wal_mark){m.mark, m.crc, m.has_crc ? SL_WAL_MARK_RECORD : SL_WAL_MARK_SKIPPED};
	return rc;
}

struct stream_search {
	const char *stream;
	uint32_t incarnation;
	bool found;
};

static int compare_stream(const struct sl_event_stream *s, void *ctx)
{
	struct stream_search *search = ctx;
	search->found = s->incarnation == search->incarnation && strcmp(s->stream, search->stream) == 0;
	return 0;
}

int sl_events_take(const sl_store *store, const char *stream, uint32_t incarnation,
		   const struct sl_event_writer *writer, const struct sl_event_row *rows, size_t n,
		   const struct sl_wal_range *skipped, size_t n_skipped, struct sl_wal_mark *mark, struct sl_err *err)
{
	const struct incoming t = {store, stream, incarnation, writer, rows, *mark};
	struct sl_wal_mark reached = {0};
	bool lags = false; /* the store lacks what comes before; its mark is in `reached` */
	size_t i = 0, k = 0;
	int rc;
	/* A call that brings nothing asks for the mark. It creates no stream, which would belong to its writer. */
	if (n == 0 && n_skipped == 0 && incarnation > 0 && store->ops->event_streams != NULL) {
		struct stream_search search = {.stream = stream, .incarnation = incarnation};
		const struct sl_event_stream before = {.stream = stream, .incarnation = incarnation - 1};
		rc = store->ops->event_streams(store->ctx, &before, 1, compare_stream, &search, err);
		if (rc != 0)
			return rc;
		if (!search.found) {
			*mark = (struct sl_wal_mark){0, 0, SL_WAL_MARK_SKIPPED};
			return 0;
		}
	}
	do {
		/* The stretch that begins with row i and range k. Ranges that touch each other are one. */
		struct stretch x = {.first = i};
		for (; k < n_skipped && (i == n || skipped[k].first < rows[i].sequence); k++) {
			if (x.skip_last != 0 && skipped[k].first > x.skip_last + 1)
				break;
			if (x.skip_last == 0)
				x.skip_first = SL_MAX(skipped[k].first, 1);
			x.skip_last = SL_MAX(x.skip_last, skipped[k].last);
		}
		for (; i < n && (k == n_skipped || rows[i].sequence < skipped[k].first); i++)
			x.n++;

		if (x.skip_last != 0) {
			rc = append_rows(&t, NULL, &reached, err);
			lags = rc == 0 && reached.sequence < x.skip_first - 1;
			if (rc != 0 || lags)
				break;
		}
		rc = append_rows(&t, &x, &reached, err);
		if (rc == SL_EGAP) {
			lags = true;
			rc = append_rows(&t, NULL, &reached, err);
		}
	} while (rc == 0 && !lags && (i < n || k < n_skipped));
	if (rc == 0)
		*mark = reached;
	return rc;
}

/* ---- the sender ---- */

static int send_to_store(const struct sl_wal_batch *batch, struct sl_wal_reply *reply, struct sl_err *err, void *ctx)
{
	sl_event_sender *s = ctx;
	reply->refused = 0;
	if (batch->n_records > s->cap) {
		struct sl_event_row *rows = sl__realloc(&s->env, s->rows, batch->n_records * sizeof(*rows));
		if (rows == NULL)
			return sl_err_set(err, SL_ENOMEM, "send events: out of memory");
		s->rows = rows;
		s->cap = batch->n_records;
	}
	for (size_t i = 0; i < batch->n_records; i++) {
		const struct sl_wal_record *record = &batch->records[i];
		struct sl_event event;
		if (sl_event_decode(record->payload, record->payload_len, &event, err) != 0) {
			reply->refused = record->sequence;
			if (err != NULL)
				err->code = SL_EREFUSED;
			return SL_EREFUSED;
		}
		s->rows[i] = (struct sl_event_row){.stream = batch->stream,
						   .incarnation = batch->incarnation,
						   .sequence = record->sequence,
						   .crc = record->crc,
						   .job_id = event.job_id,
						   .attempt = event.attempt,
						   .claim = event.claim,
						   .type = event.type,
						   .partial = event.partial,
						   .ts_ms = event.ts_ms,
						   .payload = event.data,
						   .payload_len = event.len};
	}
	struct sl_wal_mark mark = batch->after;
	int rc = sl_events_take(&s->store, batch->stream, batch->incarnation, NULL, s->rows, batch->n_records,
				batch->skipped, batch->n_skipped, &mark, err);
	/* Data that the database refuses: the log finds the record by halving the batch. */
	if (rc == SL_EDATA || rc == SL_ETOOBIG) {
		if (err != NULL)
			err->code = SL_EREFUSED;
		return SL_EREFUSED;
	}
	if (rc != 0)
		return rc;
	reply->mark = mark.sequence;
	reply->mark_crc = mark.crc;
	reply->mark_kind = mark.kind;
	/* A store that lacks what comes before has not taken all of it, and gets the batch again. */
	if (s->taken != NULL && batch->n_records > 0 && mark.sequence >= s->rows[batch->n_records - 1].sequence)
		s->taken(batch, s->rows, s->taken_ctx);
	return 0;
}

const struct sl_wal_sender *sl_event_sender_ops(void)
{
	static const struct sl_wal_sender ops = {.version = SL_WAL_SENDER_VERSION, .send = send_to_store};
	return &ops;
}

int sl_event_sender_new(sl_event_sender **out, const sl_store *store, const struct sl_env *env, struct sl_err *err)
{
	struct sl_env e;
	if (store == NULL || store->ops == NULL || store->ops->version != SL_STORE_VERSION)
		return sl_err_set(err, SL_EINVAL, "store: missing, or a table of another version");
	int rc = sl__env_init(&e, env, err);
	if (rc != 0)
		return rc;
	sl_event_sender *s = sl__calloc(&e, 1, sizeof(*s));
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "event sender: out of memory");
	s->env = e;
	s->store = *store;
	*out = s;
	return 0;
}

void sl_event_sender_on_taken(sl_event_sender *sender, sl_events_taken_fn *taken, void *ctx)
{
	sender->taken = taken;
	sender->taken_ctx = ctx;
}

void sl_event_sender_free(sl_event_sender *sender)
{
	if (sender == NULL)
		return;
	struct sl_env env = sender->env;
	sl__free(&env, sender->rows);
	sl__free(&env, sender);
}
