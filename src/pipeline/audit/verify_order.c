/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of partitions, and the head that was kept elsewhere.
 *
 *  1. Sorted by start, each partition begins where the one before has ended: no gap, no overlap.
 *  2. Of type partition, each begins after everything that was there when it was committed.
 *  3. Late rows lie in a hole of one partition that was committed before them, and overlap no others that are late.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "pipeline/audit/key.h"
#include "pipeline/audit/verify.h"
#include "pipeline/holes.h"

static int by_start(const void *a, const void *b, void *ctx)
{
	const struct sl__verify_entry *entries = ctx;
	const struct sl__verify_entry *x = &entries[*(const size_t *)a], *y = &entries[*(const size_t *)b];
	bool x_late = x->type == SL_AUDIT_LATE, y_late = y->type == SL_AUDIT_LATE;
	if (x_late != y_late)
		return x_late ? 1 : -1;
	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

static int compare_entry_paths(const void *a, const void *b, void *ctx)
{
	const struct sl__verify_entry *entries = ctx;
	return strcmp(entries[*(const size_t *)a].path, entries[*(const size_t *)b].path);
}

static size_t *sorted(struct sl__verify *v, int (*order)(const void *, const void *, void *))
{
	size_t *index = sl__calloc(&v->env, v->n, sizeof(*index));
	if (index == NULL)
		return NULL;
	for (size_t i = 0; i < v->n; i++)
		index[i] = i;
	if (v->n > 0)
		qsort_r(index, v->n, sizeof(*index), order, v->entries);
	return index;
}

size_t sl__verify_at(const struct sl__verify *v, uint64_t sequence)
{
	size_t low = 0, high = v->n - v->n_late;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (v->entries[v->by_start[middle]].start <= sequence)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int sl__verify_order(struct sl__verify *v, struct sl_err *err)
{
	static const char *const types[] = {
		[SL_AUDIT_PARTITION] = "partition", [SL_AUDIT_BACKFILL] = "backfill", [SL_AUDIT_LATE] = "late row"};
	uint64_t checkpoint = 0;
	v->by_start = sorted(v, by_start);
	v->by_path = sorted(v, compare_entry_paths);
	if (v->by_start == NULL || v->by_path == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory for the order of partitions");
	v->n_late = 0;
	for (size_t i = 0; i < v->n; i++)
		v->n_late += v->entries[i].type == SL_AUDIT_LATE;
	size_t n = v->n - v->n_late;
	/* Each begins where the one before has ended. */
	int rc = 0;
	for (size_t i = 1; i < n && rc == 0; i++) {
		const struct sl__verify_entry *before = &v->entries[v->by_start[i - 1]];
		const struct sl__verify_entry *e = &v->entries[v->by_start[i]];
		if (e->start > before->end + 1)
			rc = sl__verify_report(v, SL_AUDIT_GAP, e->number, e->path,
					       "sequences %" PRIu64 " to %" PRIu64 " before it are in no partition",
					       before->end + 1, e->start - 1);
		else if (e->start <= before->end)
			rc = sl__verify_report(v, SL_AUDIT_OVERLAP, e->number, e->path,
					       "sequences from %" PRIu64 " are also in %s", e->start, before->path);
	}
	/* Late rows lie in a hole, and overlap no others that are late. */
	for (size_t i = n; i < v->n && rc == 0; i++) {
		const struct sl__verify_entry *e = &v->entries[v->by_start[i]];
		const struct sl__verify_entry *before = i > n ? &v->entries[v->by_start[i - 1]] : NULL;
		size_t at = sl__verify_at(v, e->start);
		const struct sl__verify_entry *p = at > 0 ? &v->entries[v->by_start[at - 1]] : NULL;
		/* Where the text of the holes is too long for the event and there is no catalog, only their hash is
		 * known: then the files say whether the rows are there twice. */
		bool in_hole =
			p != NULL && p->end >= e->end && p->number < e->number &&
			(sl__holes_hashed(p->hole_ranges) || sl__holes_contain(p->hole_ranges, e->start, e->end));
		if (!in_hole)
			rc = sl__verify_report(v, SL_AUDIT_OVERLAP, e->number, e->path,
					       "%" PRIu64 " to %" PRIu64 " were not recorded as a hole before it",
					       e->start, e->end);
		else if (before != NULL && before->end >= e->start)
			rc = sl__verify_report(v, SL_AUDIT_OVERLAP, e->number, e->path,
					       "sequences from %" PRIu64 " are also in %s", e->start, before->path);
	}
	/* Of type partition, each begins after everything that was there when it was committed. */
	for (size_t i = 0; i < v->n && rc == 0; i++) {
		const struct sl__verify_entry *e = &v->entries[i];
		bool continues = i == 0 || e->start > checkpoint;
		if ((e->type == SL_AUDIT_PARTITION) != continues)
			rc = sl__verify_report(v, SL_AUDIT_LINK, e->number, e->path,
					       "event %" PRIu64 " is a %s, but the checkpoint was %" PRIu64, e->number,
					       types[e->type], checkpoint);
		checkpoint = SL_MAX(checkpoint, e->end);
	}
	return rc;
}

/* ---- the head ---- */

static int report_head(struct sl__verify *v, enum sl_audit_fault fault, uint64_t event, const char *text)
{
	return sl__verify_report(v, fault, event, NULL, "%s: %s", v->opts.checkpoint, text);
}

int sl__verify_head(struct sl__verify *v, struct sl_err *err)
{
	uint8_t key[SL_AUDIT_PUBLIC_KEY_BYTES];
	struct sl_audit_head h;
	struct sl_err why = SL_ERR_INIT;
	bool has_key = v->opts.public_key != NULL;
	int rc = has_key ? sl_audit_public_key_load(v->opts.public_key, &v->env, key, err) : 0;
	if (rc != 0)
		return rc;
	if (v->opts.checkpoint == NULL)
		return has_key ? sl_err_set(err, SL_EINVAL, "a public key needs the file of a head") : 0;
	if (v->head_why.code != 0)
		return err != NULL ? (*err = v->head_why, err->code) : v->head_why.code;
	rc = sl_audit_head_parse(v->head, v->head_len, has_key ? key : NULL, &h, &why);
	if (rc == SL_EKEY || rc == SL_ECORRUPT)
		return report_head(v, rc == SL_EKEY ? SL_AUDIT_SIGNATURE : SL_AUDIT_HEAD, 0, why.msg);
	if (rc != 0)
		return sl_err_set(err, rc, "%s", why.msg);
	v->result.head_checked = true;
	v->result.signature_checked = h.has_signature && has_key;
	/* The event that the head names, and the checkpoint that there was then. */
	const struct sl__verify_entry *e = NULL;
	uint64_t checkpoint = 0;
	if (strcmp(h.dataset, v->dataset) != 0)
		return report_head(v, SL_AUDIT_HEAD, 0, "the head belongs to another dataset");
	for (size_t i = 0; i < v->n && e == NULL; i++)
		if (v->entries[i].number == h.events)
			e = &v->entries[i];
	if (e == NULL && h.events > v->chain.events)
		return sl__verify_report(v, SL_AUDIT_HEAD, h.events, NULL,
					 "%s: the chain had %" PRIu64 " events at this head, and has %" PRIu64
					 " now: its end is missing",
					 v->opts.checkpoint, h.events, v->chain.events);
	if (e == NULL)
		return report_head(v, SL_AUDIT_HEAD, h.events, "the event of the head is no longer in the chain");
	if (memcmp(e->hash, h.event_hash, sizeof(e->hash)) != 0)
		return report_head(v, SL_AUDIT_HEAD, h.events, "the chain differs from the one of this head");
	for (size_t i = 0; i < v->n && v->entries[i].number <= h.events; i++)
		checkpoint = SL_MAX(checkpoint, v->entries[i].end);
	return checkpoint == h.checkpoint
		       ? 0
		       : report_head(v, SL_AUDIT_HEAD, h.events, "the checkpoint of the head is not the chain's");
}
