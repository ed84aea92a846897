/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Defining a dataset, and committing its partitions.
 *
 *	BEGIN; the dataset's row by name and fence, locked; the partition at or before the range's end
 *	    … is it taken? does it continue? then the event …
 *	partition row, event row, dataset row; COMMIT
 *
 *  1. What is read is locked (PostgreSQL: the row; SQLite: the file), so nothing changes between the two halves.
 *  2. Partitions of a dataset never overlap, so only the one that begins last at or before the end can be in the way.
 *     Late rows lie in a hole of that one, and overlap no others that are late: of those, too, only the last counts.
 *  3. A partition that is there with the same contents is a redo: nothing is written.
 */
#include <inttypes.h>

#include "base/base64.h"
#include "base/sha256.h"
#include "pipeline/audit/catalog.h"
#include "pipeline/audit/event.h"
#include "pipeline/holes.h"
#include "pipeline/partition.h"

/* What the first half has read. */
struct state {
	bool found;
	uint64_t partition_size, events, start, checkpoint;
	char sequence_column[256];
	uint8_t schema_sha256[SL_AUDIT_HASH_BYTES], head[SL_AUDIT_HASH_BYTES];
	const struct sl_dataset *wanted; /* of define */
	const char *differs;             /* from wanted: the field */
	uint64_t first, last;            /* of commit: the range */
	bool in_hole;                    /* it lies in a hole of the partition at or before its end */
	bool has_other;                  /* a partition at or before the end; of late rows, others that are late */
	struct sl_catalog_partition other;
	char other_path[SL__AUDIT_PATH_MAX + 1];
};

static int note_committed_dataset(const struct sl__cat_row *row, struct sl_err *err, void *ctx)
{
	struct state *s = ctx;
	struct sl__cat_dataset d;
	sl__cat_read_dataset(row, &d);
	s->found = true;
	s->partition_size = d.d.partition_size;
	s->events = d.d.events;
	s->start = d.d.start;
	s->checkpoint = d.d.checkpoint;
	memcpy(s->head, d.d.head, sizeof(s->head));
	if (s->wanted != NULL) {
		if (d.d.partition_size != s->wanted->partition_size)
			s->differs = "partition_size";
		else if (strcmp(d.d.sequence_column, s->wanted->sequence_column) != 0)
			s->differs = "sequence_column";
		else if (strcmp(d.d.schema, s->wanted->schema) != 0)
			s->differs = "schema";
	}
	size_t n = strlen(d.d.sequence_column);
	if (d.damaged || n >= sizeof(s->sequence_column) ||
	    (s->partition_size != 0 &&
	     !sl__unhex(d.schema_sha256, strlen(d.schema_sha256), s->schema_sha256, sizeof(s->schema_sha256))) ||
	    (s->events != 0 && strlen(d.head_hash) != 2 * sizeof(s->head)))
		return sl_err_set(err, SL_ECORRUPT, "the catalog's row of dataset %s is damaged", d.d.name);
	memcpy(s->sequence_column, d.d.sequence_column, n + 1);
	return 0;
}

/* The partition in whose holes late rows must lie. */
static int note_holes(const struct sl__cat_row *row, struct sl_err *err, void *ctx)
{
	struct state *s = ctx;
	struct sl_catalog_partition p;
	if (!sl__cat_read_partition(row, &p))
		return sl_err_set(err, SL_ECORRUPT, "the catalog's row of the partition from %" PRIu64 " is damaged",
				  p.start);
	s->in_hole = sl__holes_contain(p.hole_ranges, s->first, s->last);
	return 0;
}

static int note_partition(const struct sl__cat_row *row, struct sl_err *err, void *ctx)
{
	struct state *s = ctx;
	if (!sl__cat_read_partition(row, &s->other) || strlen(s->other.path) >= sizeof(s->other_path))
		return sl_err_set(err, SL_ECORRUPT, "the catalog's row of the partition from %" PRIu64 " is damaged",
				  s->other.start);
	memcpy(s->other_path, s->other.path, strlen(s->other.path) + 1);
	s->other.path = s->other_path;
	s->other.hole_ranges =
		NULL; /* the row is gone with this call; what differs there differs in the count or the file */
	s->has_other = true;
	return 0;
}

static struct sl__cat_call lock_call(const struct sl_catalog_lease *lease, struct state *s)
{
	return (struct sl__cat_call){.stmt = CAT_DATASET_LOCK,
				     .values = {CAT_TEXT(lease->dataset), CAT_INT(lease->fence)},
				     .n = 2,
				     .fn = note_committed_dataset,
				     .ctx = s};
}

/* ---- defining ---- */

int sl_catalog_define(sl_catalog *c, sl_catalog_lease *lease, const struct sl_dataset *dataset, struct sl_err *err)
{
	struct sl__cat_tx tx;
	struct sl_dataset d;
	uint8_t hash[SL__SHA256_BYTES];
	char hex[SL__SHA256_HEX];
	sl__opts_copy(&d, sizeof(d), dataset);
	struct state s = {.wanted = &d};
	struct sl__cat_call lock = lock_call(lease, &s);
	int rc = sl__catalog_check(c, err);
	if (rc != 0)
		return rc;
	if (d.partition_size < 1 || d.partition_size > SL__SEQUENCE_MAX)
		return sl_err_set(err, SL_EINVAL, "partition_size: must be at least 1");
	if (d.sequence_column == NULL || d.sequence_column[0] == '\0' || strlen(d.sequence_column) > 255)
		return sl_err_set(err, SL_EINVAL, "sequence_column: must have 1 to 255 bytes");
	if (d.schema == NULL)
		return sl_err_set(err, SL_EINVAL, "schema: missing");
	if ((rc = sl_catalog_lease_check(lease, err)) != 0)
		return rc;
	if ((rc = sl__sha256(d.schema, strlen(d.schema), hash, err)) != 0)
		return rc;
	sl__sha256_hex(hash, hex);
	struct sl__cat_call put = {.stmt = CAT_DATASET_DEFINE,
				   .values = {CAT_INT(d.partition_size), CAT_TEXT(d.sequence_column),
					      CAT_TEXT(d.schema), CAT_TEXT(hex), CAT_TEXT(lease->dataset),
					      CAT_INT(lease->fence)},
				   .n = 6};
	if ((rc = c->ops->begin(c->db, CAT_DURABLE, &tx, err)) != 0)
		return rc;
	rc = c->ops->call(&tx, &lock, 1, false, err);
	if (rc == 0 && s.found && s.differs != NULL && s.events == 0)
		rc = c->ops->call(&tx, &put, 1, true, err);
	else if (rc == 0 && s.found && s.differs != NULL)
		rc = sl_err_set(err, SL_ECONFLICT, "dataset %s has another %s than before; use another name",
				lease->dataset, s.differs);
	c->ops->end(&tx);
	return rc == 0 && !s.found ? sl__lease_lost(lease, err) : rc;
}

/* ---- committing ---- */

/* 1: it is there already; 0: it may be written. */
static int check_fits(const struct state *s, const struct sl_catalog_partition *p, const char *dataset,
		      struct sl_err *err)
{
	const struct sl_catalog_partition *o = &s->other;
	if (s->partition_size == 0)
		return sl_err_set(err, SL_EINVAL, "dataset %s is not defined", dataset);
	if (s->has_other && o->end >= p->start) {
		if (o->start == p->start && o->end == p->end && o->rows == p->rows && o->bad_rows == p->bad_rows &&
		    o->holes == p->holes && o->bytes == p->bytes &&
		    memcmp(o->sha256, p->sha256, sizeof(o->sha256)) == 0 && strcmp(o->path, p->path) == 0)
			return 1;
		return sl_err_set(err, SL_ECONFLICT,
				  "dataset %s: %" PRIu64 "-%" PRIu64 " is committed with other contents as %s", dataset,
				  o->start, o->end, o->path);
	}
	if (p->type == SL_AUDIT_LATE && !s->in_hole)
		return sl_err_set(err, SL_EINVAL, "dataset %s: %" PRIu64 " to %" PRIu64 " were not recorded as a hole",
				  dataset, p->start, p->end);
	if (p->type == SL_AUDIT_BACKFILL && (s->events == 0 || p->end >= s->checkpoint))
		return sl_err_set(err, SL_EINVAL, "dataset %s: a backfill lies below the checkpoint", dataset);
	if (p->type == SL_AUDIT_PARTITION && s->events != 0 && p->start != s->checkpoint + 1)
		return sl_err_set(err, SL_EGAP,
				  "dataset %s: the partition %" PRIu64 "-%" PRIu64
				  " does not follow the checkpoint %" PRIu64,
				  dataset, p->start, p->end, s->checkpoint);
	return 0;
}

/* The second half: partition, event and dataset row, and the commit. */
static int write_catalog_rows(struct sl__cat_tx *tx, const struct sl_catalog_lease *lease, const struct state *s,
			      const struct sl_catalog_partition *p, struct sl_err *err)
{
	struct sl_catalog *c = lease->catalog;
	char ranges[SL__HOLES_EVENT_BYTES], text[SL_AUDIT_EVENT_BYTES], id[160];
	char sha256[SL__SHA256_HEX], head[SL__SHA256_HEX];
	const char *name = lease->dataset;

	/* The event. */
	size_t len;
	const char *holes = p->hole_ranges != NULL ? p->hole_ranges : "";
	if (!sl__holes_ok(holes, p->start, p->end, p->holes))
		return sl_err_set(err, SL_EINVAL, "partition: hole_ranges are not the %" PRIu64 " holes", p->holes);
	int rc = sl__holes_for_event(holes, ranges, err);
	if (rc != 0)
		return rc;
	struct sl_audit_event e = {.struct_size = sizeof(e),
				   .type = p->type,
				   .number = s->events + 1,
				   .dataset = lease->dataset,
				   .sequence_column = s->sequence_column,
				   .partition_size = s->partition_size,
				   .start = p->start,
				   .end = p->end,
				   .path = p->path,
				   .rows = p->rows,
				   .bad_rows = p->bad_rows,
				   .holes = p->holes,
				   .hole_ranges = ranges,
				   .bytes = p->bytes,
				   .producer = lease->catalog->producer,
				   .producer_version = lease->catalog->producer_version};
	memcpy(e.sha256, p->sha256, sizeof(p->sha256));
	memcpy(e.schema_sha256, s->schema_sha256, sizeof(s->schema_sha256));
	if (s->events != 0)
		memcpy(e.prev_hash, s->head, sizeof(s->head));
	(void)sl_audit_event_id(&e, id);
	if ((rc = sl_audit_event_format(&e, text, &len, err)) != 0)
		return rc;

	/* The rows. */
	sl__sha256_hex(p->sha256, sha256);
	sl__sha256_hex(e.hash, head);
	uint64_t start = s->events == 0 ? p->start : SL_MIN(s->start, p->start);
	uint64_t checkpoint = s->events == 0 ? p->end : SL_MAX(s->checkpoint, p->end);
	struct sl__cat_call calls[] = {
		{.stmt = CAT_PARTITION_PUT,
		 .values = {CAT_TEXT(name), CAT_INT(p->start), CAT_INT(p->end), CAT_TEXT(sl__cat_type_name(p->type)),
			    CAT_INT(p->rows), CAT_INT(p->bad_rows), CAT_INT(p->bytes), CAT_TEXT(sha256),
			    CAT_TEXT(p->path), CAT_INT(e.number), CAT_INT(p->holes), CAT_TEXT(holes),
			    CAT_INT(sl__real_ms(&c->env))},
		 .n = 13},
		{.stmt = CAT_EVENT_PUT,
		 .values = {CAT_TEXT(name), CAT_INT(e.number), CAT_TEXT(id), CAT_TEXT(text)},
		 .n = 4},
		{.stmt = CAT_DATASET_ADVANCE,
		 .values = {CAT_INT(e.number), CAT_INT(start), CAT_INT(checkpoint), CAT_TEXT(head), CAT_INT(p->rows),
			    CAT_INT(p->bad_rows), CAT_INT(p->bytes), CAT_TEXT(name), CAT_INT(lease->fence)},
		 .n = 9}};
	return c->ops->call(tx, calls, SL_COUNT(calls), true, err);
}

int sl_catalog_commit(sl_catalog *c, sl_catalog_lease *lease, const struct sl_catalog_partition *partition,
		      bool *is_new, struct sl_err *err)
{
	struct sl_catalog_partition p;
	struct sl__cat_tx tx;
	sl__opts_copy(&p, sizeof(p), partition);
	int rc = sl__catalog_check(c, err);
	if (rc != 0)
		return rc;
	if (p.path == NULL)
		return sl_err_set(err, SL_EINVAL, "path: missing");
	if (p.end > SL__SEQUENCE_MAX || p.bytes > INT64_MAX || p.rows > INT64_MAX || p.bad_rows > INT64_MAX)
		return sl_err_set(err, SL_EINVAL, "partition: a number is too large");
	if ((rc = sl_catalog_lease_check(lease, err)) != 0)
		return rc;

	/* The first half: lock the dataset, and read what is in the way. */
	bool late = p.type == SL_AUDIT_LATE;
	struct state s = {.first = p.start, .last = p.end};
	struct sl__cat_call calls[] = {lock_call(lease, &s),
				       {.stmt = CAT_PARTITION_AT,
					.values = {CAT_TEXT(lease->dataset), CAT_INT(p.end)},
					.n = 2,
					.fn = late ? note_holes : note_partition,
					.ctx = &s},
				       {.stmt = CAT_LATE_AT,
					.values = {CAT_TEXT(lease->dataset), CAT_INT(p.end)},
					.n = 2,
					.fn = note_partition,
					.ctx = &s}};
	if ((rc = c->ops->begin(c->db, CAT_DURABLE, &tx, err)) != 0)
		return rc;
	rc = c->ops->call(&tx, calls, late ? 3 : 2, false, err);
	if (rc == 0 && s.found)
		rc = check_fits(&s, &p, lease->dataset, err);
	if (rc == 0 && s.found)
		rc = write_catalog_rows(&tx, lease, &s, &p, err);
	c->ops->end(&tx);
	if (rc == 0 && !s.found)
		return sl__lease_lost(lease, err);
	if (rc >= 0 && is_new != NULL)
		*is_new = rc == 0;
	return SL_MIN(rc, 0);
}

int sl__catalog_mark(struct sl_catalog *c, struct sl_catalog_lease *lease, bool endpoint, uint64_t n,
		     struct sl_err *err)
{
	struct sl__cat_call mark = {.stmt = endpoint ? CAT_MARK_ENDPOINT : CAT_MARK_FILES,
				    .values = {CAT_INT(n), CAT_TEXT(lease->dataset), CAT_INT(lease->fence)},
				    .n = 3};
	int rc = sl_catalog_lease_check(lease, err);
	if (rc == 0)
		rc = sl__catalog_once(c, CAT_RELAXED, &mark, err);
	return rc == 0 && mark.changed == 0 ? sl__lease_lost(lease, err) : rc;
}
