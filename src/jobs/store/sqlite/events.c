/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_events: each stream has a mark, up to which everything was taken or skipped; the offset counts all rows. Both
 * move in the transaction that inserts, so offsets have no gaps and follow the order of commits.
 */
#include <stdio.h>

#include "jobs/store/event_admit.h"
#include "jobs/store/sqlite/store.h"

static void keep_stream_owner(struct sl__event_stream *stream, const char *owner)
{
	(void)snprintf(stream->owner, sizeof(stream->owner), "%s", owner != NULL ? owner : "");
}

static int read_mark(struct sq_op *op, struct sl__event_stream *stream)
{
	sqlite3_stmt *s;
	struct sl__event_mark *mark = &stream->mark;
	int rc = SQ_ROW(op, SQ_MARK_GET, &s, SQ_TEXT(stream->name), SQ_INT(stream->incarnation));
	if (rc > 0) {
		mark->sequence = sl__sqlite_u64(s, 0);
		mark->has_crc = sqlite3_column_type(s, 1) != SQLITE_NULL;
		mark->crc = mark->has_crc ? sl__sqlite_u64(s, 1) : 0;
		stream->found = true;
		keep_stream_owner(stream, sl__sqlite_text(s, 2));
	}
	(void)sqlite3_reset(s);
	if (rc != 0)
		return SL_MIN(rc, 0);
	rc = SQ_ROW(op, SQ_MARK_OWNER, &s, SQ_TEXT(stream->name));
	stream->has_others = rc > 0;
	if (rc > 0)
		keep_stream_owner(stream, sl__sqlite_text(s, 0));
	(void)sqlite3_reset(s);
	return SL_MIN(rc, 0);
}

/* What is new of the events, compared with what is there. */
static int admit(struct sq_op *op, struct sl__event_admission *a)
{
	const struct sl_event_row *last = NULL;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < a->n_streams; i++)
		rc = read_mark(op, &a->streams[i]);
	if (rc == 0)
		rc = sl__events_admit(a, op->err);
	/* An event that is known already must be the same. One whose row was deleted cannot be compared. */
	for (size_t i = 0; rc == 0 && i < a->n_known; i++) {
		const struct sl_event_row *e = a->known[i];
		sqlite3_stmt *s;
		rc = SQ_ROW(op, SQ_EVENT_CRC, &s, SQ_TEXT(e->stream), SQ_INT(e->incarnation), SQ_INT(e->sequence));
		if (rc > 0)
			rc = sl__sqlite_u64(s, 0) == e->crc ? 0 : sl__event_conflict(e->stream, e->sequence, op->err);
		(void)sqlite3_reset(s);
	}
	/* What the claims of the new events are worth. Those of one attempt mostly come in a row. */
	for (size_t i = 0; rc == 0 && i < a->n_fresh; i++) {
		const struct sl_event_row *e = a->fresh[i];
		enum sl__claim_standing *standing = &a->standings[e - a->events];
		if (e->job_id == 0)
			continue;
		if (last != NULL && sl__event_same_claim(last, e))
			*standing = a->standings[last - a->events];
		else
			rc = sl__sq_claim_standing(op, e->job_id, e->attempt, &e->claim, standing);
		last = e;
	}
	return rc;
}

static int append_events(struct sq_op *op, struct sl__event_admission *a)
{
	sqlite3_stmt *s;
	int rc = sl__sqlite_row(op->c, SQ_OFFSET_GET, NULL, 0, &s, op->err);
	if (rc == 0)
		rc = sl_err_set(op->err, SL_ECORRUPT, "%s has lost its counter of events", op->store->path);
	uint64_t offset = rc > 0 ? sl__sqlite_u64(s, 0) : 0;
	(void)sqlite3_reset(s);
	if (rc > 0)
		rc = admit(op, a);
	for (size_t i = 0; rc == 0 && i < a->n_fresh; i++) {
		const struct sl_event_row *e = a->fresh[i];
		bool keeps = sl__event_keeps_job(a, e);
		offset++;
		rc = SQ_RUN(op, SQ_EVENT_PUT, SQ_INT(offset), SQ_TEXT(e->stream), SQ_INT(e->incarnation),
			    SQ_INT(e->sequence), SQ_INT(e->crc), SQ_INT_OR_NULL(keeps ? e->job_id : 0),
			    SQ_INT_OR_NULL(keeps ? e->attempt : 0), SQ_INT(e->type), SQ_INT(sl__event_is_late(a, e)),
			    SQ_INT(sq_us(e->ts_ms)), SQ_BLOB(e->payload, e->payload_len), SQ_INT(e->partial));
	}
	for (size_t i = 0; rc == 0 && i < a->n_streams; i++) {
		const struct sl__event_stream *stream = &a->streams[i];
		rc = SQ_RUN(op, SQ_MARK_PUT, SQ_TEXT(stream->name), SQ_INT(stream->incarnation),
			    SQ_INT(stream->mark.sequence), stream->mark.has_crc ? SQ_INT(stream->mark.crc) : SQ_NULL,
			    SQ_INT(op->now_us), stream->own ? SQ_TEXT(stream->owner) : SQ_NULL);
		if (rc == 0 && stream->adopted)
			rc = SQ_RUN(op, SQ_MARK_ADOPT, SQ_TEXT(stream->name), SQ_TEXT(stream->owner));
	}
	sl__events_audit(a);
	for (size_t i = 0; rc == 0 && i < a->n_records; i++)
		rc = sl__sq_audit(op, &a->records[i]);
	if (rc == 0 && a->n_fresh > 0)
		rc = SQ_RUN(op, SQ_OFFSET_PUT, SQ_INT(offset));
	return rc;
}

int sl__sq_events_append(void *store, const struct sl_event_row *events, size_t n, struct sl_event_mark *marks,
			 size_t n_marks, size_t *n_new, struct sl_err *err)
{
	struct sq_store *s = store;
	struct sq_op op;
	struct sl__event_admission a = {.events = events, .n = n, .marks = marks, .n_marks = n_marks};
	int rc = sl__events_init(&a, &s->env, err);
	if (rc == 0)
		rc = sl__sq_op_begin(&op, s, SQ_DURABLE, NULL, err);
	if (rc == 0)
		rc = sl__sq_op_end(&op, append_events(&op, &a));
	if (rc == 0)
		sl__events_return_marks(&a);
	if (rc == 0 && n_new != NULL)
		*n_new = a.n_fresh;
	sl__events_fini(&a, &s->env);
	return rc;
}
