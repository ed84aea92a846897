/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog against the events: every event row, every partition row and the dataset's row must say what the files
 * say. Events that the catalog has and the files do not are backlog when the outbox had not marked them as written
 * before the files were read, and then their partitions are verified from the catalog's word.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sha256.h"
#include "pipeline/audit/catalog.h"
#include "pipeline/audit/verify.h"
#include "pipeline/holes.h"

struct row_key {
	char text[SL_DATASET_NAME_MAX + 96];
};

static int report_row(struct sl__verify *v, uint64_t event, const char *table, const char *key, const char *what)
{
	return sl__verify_report(v, SL_AUDIT_CATALOG, event, NULL, "catalog, %s %s: %s", table, key, what);
}

static const char *row_key_text(struct row_key *k, const char *dataset, uint64_t n)
{
	(void)snprintf(k->text, sizeof(k->text), "%s/%" PRIu64, dataset, n);
	return k->text;
}

/* ---- the dataset's row ---- */

struct dataset_copy {
	bool found, damaged;
	struct sl_dataset d;
	char sequence_column[256], schema_sha256[80], head_hash[80];
	uint8_t computed[SL__SHA256_BYTES]; /* of the schema */
};

static int copy_dataset(const struct sl__cat_row *row, struct sl_err *err, void *ctx)
{
	struct dataset_copy *c = ctx;
	struct sl__cat_dataset d;
	sl__cat_read_dataset(row, &d);
	c->found = true;
	c->damaged = d.damaged;
	c->d = d.d;
	(void)snprintf(c->sequence_column, sizeof(c->sequence_column), "%.255s", d.d.sequence_column);
	(void)snprintf(c->schema_sha256, sizeof(c->schema_sha256), "%.79s", d.schema_sha256);
	(void)snprintf(c->head_hash, sizeof(c->head_hash), "%.79s", d.head_hash);
	return sl__sha256(d.d.schema, strlen(d.d.schema), c->computed, err);
}

/* What of the dataset's row is not what the events say; NULL: nothing. */
static const char *wrong_dataset(const struct sl__verify *v, const struct dataset_copy *c)
{
	const struct sl_dataset *d = &c->d;
	char hex[SL__SHA256_HEX];
	if (v->has_common) {
		if (d->partition_size != v->partition_size)
			return "partition_size is not that of the events";
		if (strcmp(c->sequence_column, v->sequence_column) != 0)
			return "sequence_column is not that of the events";
		sl__sha256_hex(v->schema_sha256, hex);
		if (strcmp(c->schema_sha256, hex) != 0)
			return "schema_sha256 is not that of the events";
		if (memcmp(c->computed, v->schema_sha256, sizeof(c->computed)) != 0)
			return "schema_text does not have the hash in the events";
		sl__sha256_hex(v->chain.head, hex);
		if (strcmp(c->head_hash, hex) != 0)
			return "head_hash is not that of the last event";
	}
	uint64_t start = v->n > 0 ? v->entries[0].start : 0, checkpoint = 0, rows = 0, bad_rows = 0, bytes = 0;
	for (size_t i = 0; i < v->n; i++) {
		const struct sl__verify_entry *e = &v->entries[i];
		start = SL_MIN(start, e->start);
		checkpoint = SL_MAX(checkpoint, e->end);
		rows += e->rows;
		bad_rows += e->bad_rows;
		bytes += e->bytes;
	}
	if (d->events != v->chain.events)
		return "events is not the number of events";
	if (d->start != start)
		return "first_sequence is not that of the first partition";
	if (d->checkpoint != checkpoint)
		return "checkpoint is not the end of the last partition";
	if (d->rows != rows || d->bad_rows != bad_rows || d->bytes != bytes)
		return "row_count, bad_row_count or byte_count is not the sum of the partitions";
	if (d->delivered_files > d->events || d->delivered_endpoint > d->events)
		return "delivered_files or delivered_endpoint is more than there are events";
	return c->damaged ? "a value is not of the type that was written" : NULL;
}

/* ---- events ---- */

struct compare {
	struct sl__verify *v;
	struct sl_err *err;
	size_t at;         /* of entries, up to which all were compared */
	size_t n_files;    /* entries of the files come first */
	uint64_t next;     /* number that is expected */
	uint64_t in_files; /* the last number there */
	uint64_t backlog;
	int rc;
};

static const struct sl__verify_entry *event_of_row(struct compare *c, uint64_t number)
{
	const struct sl__verify *v = c->v;
	while (c->at < c->n_files && v->entries[c->at].number < number)
		c->at++;
	return c->at < c->n_files && v->entries[c->at].number == number ? &v->entries[c->at] : NULL;
}

/* An event that is in the catalog only. */
static int take_backlog(struct compare *c, const struct sl_audit_event *e)
{
	struct sl__verify *v = c->v;
	struct sl_err why = SL_ERR_INIT;
	char folder[SL_DATASET_NAME_MAX + 16];
	int rc = 0;
	c->backlog += e->number > v->delivered;
	if (e->number <= v->delivered) {
		(void)snprintf(folder, sizeof(folder), "%s/" SL__AUDIT_FOLDER, v->dataset);
		rc = sl__verify_report(v, SL_AUDIT_EVENT, e->number, folder,
				       "event %" PRIu64 " was written to the files but is missing there", e->number);
	}
	if (rc == 0 && sl__audit_chain_add(&v->chain, e, &why) != 0)
		rc = sl__verify_report(v, SL_AUDIT_LINK, e->number, NULL,
				       "catalog, sluice_audit_event %s/%" PRIu64 ": %s", v->dataset, e->number,
				       why.msg);
	if (rc == 0)
		rc = sl__verify_common(v, e, NULL);
	if (rc != 0)
		return rc;
	return sl__verify_add(v, e, false, c->err);
}

static int compare_event_row(uint64_t number, const char *text, const char *id, void *ctx)
{
	struct compare *c = ctx;
	struct sl__verify *v = c->v;
	struct sl_audit_event e;
	struct sl_err why = SL_ERR_INIT;
	struct row_key key;
	char storage[SL_AUDIT_EVENT_BYTES], want[160];
	static const char table[] = "sluice_audit_event";
	(void)row_key_text(&key, v->dataset, number);
	if (number > INT64_MAX) {
		c->rc = report_row(v, 0, table, id, "number is not a number");
		return c->rc != 0 ? SL__VERIFY_STOP : 0;
	}
	/* After the files the chain reports what is missing. */
	for (; c->rc == 0 && c->next < number && c->next <= c->in_files; c->next++) {
		struct row_key missing;
		c->rc = report_row(v, c->next, table, row_key_text(&missing, v->dataset, c->next),
				   "the row is missing");
	}
	c->next = number + 1;
	if (c->rc != 0)
		return SL__VERIFY_STOP;
	if (sl_audit_event_parse(text, strlen(text), &e, storage, &why) != 0) {
		c->rc = report_row(v, number, table, key.text, why.msg);
	} else if (e.number != number) {
		c->rc = report_row(v, number, table, key.text, "number is not that of the event");
	} else if (strcmp(id, sl_audit_event_id(&e, want)) != 0) {
		c->rc = report_row(v, number, table, key.text, "id is not that of the event");
	} else if (number > v->file_events) {
		c->rc = take_backlog(c, &e);
	} else if (event_of_row(c, number) == NULL) {
		/* In the files it could not be read, which was reported: the catalog's copy stands for it. */
		(void)!sl__audit_chain_add(&v->chain, &e, NULL);
		c->rc = sl__verify_add(v, &e, false, c->err);
	} else if (memcmp(event_of_row(c, number)->hash, e.hash, sizeof(e.hash)) != 0) {
		c->rc = report_row(v, number, table, key.text, "it is not the event of the files");
	}
	return c->rc != 0 ? SL__VERIFY_STOP : 0;
}

static int order_by_number(const void *a, const void *b)
{
	const struct sl__verify_entry *x = a, *y = b;
	return x->number < y->number ? -1 : x->number > y->number;
}

static int check_events(struct sl__verify *v, struct sl_catalog *cat, struct sl_err *err)
{
	struct compare c = {.v = v, .err = err, .n_files = v->n, .next = 1, .in_files = v->chain.events};
	struct row_key key;
	if (v->n > 0) /* lines may have changed places */
		qsort(v->entries, v->n, sizeof(*v->entries), order_by_number);
	const struct sl__event_walk walk = {.dataset = v->dataset, .with_id = compare_event_row, .ctx = &c};
	int rc = sl__catalog_walk_events(cat, &walk, err);
	if (rc == SL__VERIFY_STOP)
		rc = c.rc;
	if (v->n > c.n_files)
		qsort(v->entries, v->n, sizeof(*v->entries), order_by_number);
	for (; rc == 0 && c.next <= c.in_files; c.next++)
		rc = report_row(v, c.next, "sluice_audit_event", row_key_text(&key, v->dataset, c.next),
				"the row is missing");
	if (rc == 0 && c.backlog > 0)
		rc = sl__verify_report(v, SL_AUDIT_NOTE_BACKLOG, 0, v->dataset,
				       "%" PRIu64 " events of the catalog are not in the files yet", c.backlog);
	return rc;
}

/* ---- partitions ---- */

struct partitions {
	struct sl__verify *v;
	size_t *by_start; /* entries */
	size_t at;
	int rc;
};

static const char *wrong_partition(const struct sl_catalog_partition *p, const struct sl__verify_entry *e)
{
	if (p->end != e->end)
		return "last_sequence is not that of the event";
	if (p->type != e->type)
		return "type is not that of the event";
	if (p->rows != e->rows || p->bad_rows != e->bad_rows)
		return "row_count or bad_row_count is not that of the event";
	if (p->holes != e->holes)
		return "hole_count is not that of the event";
	if (!sl__verify_same_holes(p->hole_ranges, e->hole_ranges))
		return "holes is not that of the event";
	if (p->bytes != e->bytes)
		return "byte_count is not that of the event";
	if (memcmp(p->sha256, e->sha256, sizeof(p->sha256)) != 0)
		return "sha256 is not that of the event, or type is none";
	if (strcmp(p->path, e->path) != 0)
		return "path is not that of the event";
	return p->event != e->number ? "event is not its number" : NULL;
}

static int missing_before(struct partitions *p, uint64_t start, bool all)
{
	struct sl__verify *v = p->v;
	struct row_key key;
	for (; p->rc == 0 && p->at < v->n; p->at++) {
		const struct sl__verify_entry *e = &v->entries[p->by_start[p->at]];
		if (!all && e->start >= start)
			break;
		p->rc = report_row(v, e->number, "sluice_partition", row_key_text(&key, v->dataset, e->start),
				   "the row is missing");
	}
	return p->rc;
}

static int compare_partition(const struct sl_catalog_partition *row, void *ctx)
{
	struct partitions *p = ctx;
	struct sl__verify *v = p->v;
	struct row_key key;
	if (missing_before(p, row->start, false) != 0)
		return SL__VERIFY_STOP;
	struct sl__verify_entry *e = p->at < v->n ? &v->entries[p->by_start[p->at]] : NULL;
	if (e == NULL || e->start != row->start) {
		p->rc = report_row(v, row->event, "sluice_partition", row_key_text(&key, v->dataset, row->start),
				   "no event names this partition");
		return p->rc != 0 ? SL__VERIFY_STOP : 0;
	}
	p->at++;
	const char *wrong = wrong_partition(row, e);
	if (wrong != NULL) {
		p->rc = report_row(v, e->number, "sluice_partition", row_key_text(&key, v->dataset, row->start), wrong);
	} else if (sl__holes_hashed(e->hole_ranges)) { /* the event has only the hash of this text */
		char *own = sl__strdup(&v->env, row->hole_ranges);
		if (own != NULL) {
			sl__free(&v->env, e->hole_ranges);
			e->hole_ranges = own;
		}
		p->rc = own != NULL ? 0 : SL_ENOMEM;
	}
	return p->rc != 0 ? SL__VERIFY_STOP : 0;
}

static int order_by_start(const void *a, const void *b, void *ctx)
{
	const struct sl__verify_entry *entries = ctx;
	const struct sl__verify_entry *x = &entries[*(const size_t *)a], *y = &entries[*(const size_t *)b];
	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

static int check_partitions(struct sl__verify *v, struct sl_catalog *cat, struct sl_err *err)
{
	struct partitions p = {.v = v, .by_start = sl__calloc(&v->env, v->n, sizeof(*p.by_start))};
	if (p.by_start == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for the order of partitions");
	for (size_t i = 0; i < v->n; i++)
		p.by_start[i] = i;
	if (v->n > 0)
		qsort_r(p.by_start, v->n, sizeof(*p.by_start), order_by_start, v->entries);
	int rc = sl_catalog_partitions(cat, v->dataset, 0, 0, compare_partition, &p, err);
	if (rc == SL__VERIFY_STOP)
		rc = p.rc;
	if (rc == SL_ENOMEM)
		rc = sl_err_set(err, SL_ENOMEM, "out of memory for the holes of a partition");
	if (rc == 0)
		rc = missing_before(&p, 0, true);
	sl__free(&v->env, p.by_start);
	return rc;
}

/* ---- together ---- */

static int torn_tail(struct sl__verify *v, const struct dataset_copy *d)
{
	char path[SL_DATASET_NAME_MAX + 80];
	if (!v->torn)
		return 0;
	(void)snprintf(path, sizeof(path), "%s/" SL__AUDIT_FOLDER "/%s", v->dataset, v->torn_file);
	bool unsynced = d->found && v->delivered <= v->file_events && d->d.events > v->file_events;
	return sl__verify_report(v, unsynced ? SL_AUDIT_NOTE_UNCOMMITTED : SL_AUDIT_EVENT, 0, path,
				 "the last line is torn%s", unsynced ? "; the next export completes it" : "");
}

static int check_all(struct sl__verify *v, struct sl_catalog *cat, struct sl_err *err)
{
	struct dataset_copy d = {.found = false};
	struct sl__cat_call get = {
		.stmt = CAT_DATASET_GET, .values = {CAT_TEXT(v->dataset)}, .n = 1, .fn = copy_dataset, .ctx = &d};
	int rc = sl__catalog_once(cat, CAT_READ, &get, err);
	if (rc != 0)
		return rc;
	v->undefined = d.found && d.d.partition_size == 0 && d.d.events == 0;
	if (!d.found && v->file_events == 0 && !v->has_folder)
		return sl__verify_nothing(v, err);
	if (!d.found)
		return report_row(v, 0, "sluice_dataset", v->dataset, "the row is missing");
	v->result.catalog_checked = true;
	if ((rc = torn_tail(v, &d)) != 0)
		return rc;
	if ((rc = check_events(v, cat, err)) != 0)
		return rc;
	if ((rc = check_partitions(v, cat, err)) != 0)
		return rc;
	const char *wrong = wrong_dataset(v, &d);
	if (!v->has_common) /* nothing is committed: what lies there is named by the dataset's size */
		v->partition_size = d.d.partition_size;
	return wrong != NULL ? report_row(v, 0, "sluice_dataset", v->dataset, wrong) : 0;
}

int sl__verify_catalog(struct sl__verify *v, struct sl_err *err)
{
	const struct dataset_copy none = {.found = false};
	struct sl_err why = v->catalog_why;
	int rc = why.code;
	if (rc == 0 && v->catalog == NULL) {
		if (v->file_events == 0 && !v->torn)
			return sl_err_set(err, SL_ENOENT, "no events of dataset %s below %.150s", v->dataset, v->dir);
		return torn_tail(v, &none);
	}
	if (rc == 0)
		rc = sl__catalog_freeze(v->catalog, &why);
	if (rc == 0) {
		rc = check_all(v, v->catalog, &why);
		sl__catalog_thaw(v->catalog);
	}
	sl_catalog_close(v->catalog);
	v->catalog = NULL;
	if (rc == SL_ECORRUPT)
		return sl__verify_report(v, SL_AUDIT_CATALOG, 0, NULL, "catalog: %s", why.msg);
	if (rc < 0 && err != NULL)
		*err = why;
	return rc;
}
