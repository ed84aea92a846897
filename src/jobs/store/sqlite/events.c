/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_events: each stream has a mark, up to which everything was taken or skipped; the offset counts all rows. Both
 * move in the transaction that inserts, so offsets have no gaps and follow the order of commits.
 */
#include <inttypes.h>

#include "jobs/store/sqlite/store.h"

static int read_mark(struct sq_op *op, const struct sl_event_mark *m, uint64_t *mark)
{
	sqlite3_stmt *s;
	int rc = SQ_ROW(op, SQ_MARK_GET, &s, SQ_TEXT(m->stream), SQ_INT(m->incarnation));
	*mark = rc > 0 ? sl__sqlite_u64(s, 0) : 0;
	(void)sqlite3_reset(s);
	return SL_MIN(rc, 0);
}

static struct sl_event_mark *mark_of(struct sl_event_mark *marks, size_t n, const struct sl_event_row *e)
{
	for (size_t i = 0; i < n; i++)
		if (marks[i].incarnation == e->incarnation && strcmp(marks[i].stream, e->stream) == 0)
			return &marks[i];
	return NULL;
}

/* An event that is known already must be the same. One whose row was deleted cannot be compared. */
static int check_known(struct sq_op *op, const struct sl_event_row *e)
{
	sqlite3_stmt *s;
	int rc = SQ_ROW(op, SQ_EVENT_CRC, &s, SQ_TEXT(e->stream), SQ_INT(e->incarnation), SQ_INT(e->sequence));
	if (rc > 0)
		rc = sl__sqlite_u64(s, 0) == e->crc
			     ? 0
			     : sl_err_set(op->err, SL_ECONFLICT,
					  "event %" PRIu64 " of stream %s is known with another content", e->sequence,
					  e->stream);
	(void)sqlite3_reset(s);
	return rc;
}

/* Is it of an attempt that is not the job's last? Then the job is gone or counts more starts than it. */
static int is_late(struct sq_op *op, const struct sl_event_row *e, bool *late)
{
	struct sq_row row;
	*late = false;
	if (e->job_id == 0 || e->attempt == 0)
		return 0;
	int rc = sl__sq_row_get(op, e->job_id, &row);
	if (rc < 0)
		return rc;
	*late = rc == 0 || row.attempt > e->attempt;
	return 0;
}

static int insert_event(struct sq_op *op, const struct sl_event_row *e, uint64_t offset)
{
	bool late;
	int rc = is_late(op, e, &late);
	return rc != 0 ? rc
		       : SQ_RUN(op, SQ_EVENT_PUT, SQ_INT(offset), SQ_TEXT(e->stream), SQ_INT(e->incarnation),
				SQ_INT(e->sequence), SQ_INT(e->crc), SQ_INT_OR_NULL(e->job_id),
				SQ_INT_OR_NULL(e->attempt), SQ_INT(e->type), SQ_INT(late), SQ_INT(sq_us(e->ts_ms)),
				SQ_BLOB(e->payload, e->payload_len), SQ_INT(e->partial != 0));
}

/* mark: of the event's stream, moved. */
static int take_event(struct sq_op *op, const struct sl_event_row *e, uint64_t *mark, uint64_t *offset)
{
	if (e->sequence <= *mark)
		return check_known(op, e);
	if (e->sequence != *mark + 1)
		return sl_err_set(op->err, SL_EGAP, "stream %s is at %" PRIu64 "; event %" PRIu64 " does not follow",
				  e->stream, *mark, e->sequence);
	int rc = insert_event(op, e, *offset + 1);
	if (rc == 0) {
		++*mark;
		++*offset;
	}
	return rc;
}

static int read_offset(struct sq_op *op, uint64_t *offset)
{
	sqlite3_stmt *s;
	int rc = sl__sqlite_row(op->c, SQ_OFFSET_GET, NULL, 0, &s, op->err);
	if (rc == 0)
		rc = sl_err_set(op->err, SL_ECORRUPT, "%s has lost its counter of events", op->store->path);
	*offset = rc > 0 ? sl__sqlite_u64(s, 0) : 0;
	(void)sqlite3_reset(s);
	return SL_MIN(rc, 0);
}

/* reached[i] goes with marks[i]; the caller's marks change only after the commit. */
static int append(struct sq_op *op, const struct sl_event_row *events, size_t n, struct sl_event_mark *marks,
		  size_t n_marks, uint64_t *reached, size_t *n_new)
{
	uint64_t first = 0, offset = 0;
	int rc = read_offset(op, &first);
	offset = first;
	for (size_t i = 0; rc == 0 && i < n_marks; i++) {
		rc = read_mark(op, &marks[i], &reached[i]);
		reached[i] = SL_MAX(reached[i], marks[i].mark);
	}
	for (size_t i = 0; rc == 0 && i < n; i++) {
		struct sl_event_mark *m = mark_of(marks, n_marks, &events[i]);
		rc = m == NULL ? sl_err_set(op->err, SL_EINVAL, "no mark was given for stream %s", events[i].stream)
			       : take_event(op, &events[i], &reached[m - marks], &offset);
	}
	for (size_t i = 0; rc == 0 && i < n_marks; i++)
		rc = SQ_RUN(op, SQ_MARK_PUT, SQ_TEXT(marks[i].stream), SQ_INT(marks[i].incarnation),
			    SQ_INT(reached[i]));
	if (rc == 0 && offset != first)
		rc = SQ_RUN(op, SQ_OFFSET_PUT, SQ_INT(offset));
	*n_new = (size_t)(offset - first);
	return rc;
}

int sl__sq_events_append(void *store, const struct sl_event_row *events, size_t n, struct sl_event_mark *marks,
			 size_t n_marks, size_t *n_new, struct sl_err *err)
{
	struct sq_store *s = store;
	struct sq_op op;
	size_t fresh = 0;
	uint64_t *reached = sl__calloc(&s->env, SL_MAX(n_marks, 1), sizeof *reached);
	if (reached == NULL)
		return sl_err_set(err, SL_ENOMEM, "no memory for the marks of events");
	int rc = sl__sq_begin(&op, s, NULL, SQ_DURABLE, NULL, err);
	if (rc == 0)
		rc = sl__sq_end(&op, append(&op, events, n, marks, n_marks, reached, &fresh));
	for (size_t i = 0; rc == 0 && i < n_marks; i++)
		marks[i].mark = reached[i];
	if (rc == 0 && n_new != NULL)
		*n_new = fresh;
	sl__free(&s->env, reached);
	return rc;
}

int sl__sq_events_read(void *store, uint64_t job_id, uint64_t after, uint32_t limit, sl_event_row_fn *fn, void *ctx,
		       struct sl_err *err)
{
	struct sl__sqlite *c;
	sqlite3_stmt *s = NULL;
	int rc = sl__sq_read_begin(store, NULL, &c, err);
	if (rc != 0)
		return rc;
	rc = job_id == 0 ? sl__sqlite_bind(c, SQ_EVENTS_ALL, SQ_VALUES(SQ_INT(after), SQ_INT(limit)), &s, err)
			 : sl__sqlite_bind(c, SQ_EVENTS_OF, SQ_VALUES(SQ_INT(after), SQ_INT(limit), SQ_INT(job_id)), &s,
					   err);
	while (rc == 0 && (rc = sl__sqlite_step(c, s, err)) > 0) {
		struct sl_event_row e = {
			.offset = sl__sqlite_u64(s, 0),
			.stream = sl__sqlite_text(s, 1),
			.incarnation = (uint32_t)sl__sqlite_i64(s, 2),
			.sequence = sl__sqlite_u64(s, 3),
			.crc = sl__sqlite_u64(s, 4),
			.job_id = sl__sqlite_u64(s, 5),
			.attempt = sqlite3_column_int(s, 6),
			.type = sqlite3_column_int(s, 7),
			.late = sqlite3_column_int(s, 8),
			.ts_ms = sl__sqlite_i64(s, 9) / 1000,
			.payload = sqlite3_column_blob(s, 10),
			.payload_len = (size_t)sqlite3_column_bytes(s, 10),
			.partial = sqlite3_column_int(s, 11),
		};
		rc = fn(&e, ctx);
	}
	(void)sqlite3_reset(s);
	sl__sq_read_end(store, NULL, c);
	return rc;
}
