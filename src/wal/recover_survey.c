/* SPDX-License-Identifier: Apache-2.0 */
/* The survey of a recovery: records, statuses, gaps and damage of every segment, and the telling of damage once it is
 * known which sequences it took. */
#include "wal/recover.h"

/* ---- telling of damage ---- */

static void tell_pending(struct wal_recovery *r)
{
	if (!r->has_pending)
		return;
	r->has_pending = false;
	const struct sl_wal_damage *d = &r->pending;
	if (r->first_damage.code == 0 && !d->torn_tail)
		(void)sl_err_set(&r->first_damage, SL_ECORRUPT,
				 "%s: damaged at offset %llu (%s); recover it with --on-corruption=salvage", d->segment,
				 (unsigned long long)d->offset, d->reason);
	if (r->round > 0)
		return;
	if (!d->torn_tail) /* a torn tail is not damage; it is logged when it is trimmed */
		sl__log(&r->w->env, SL_LOG_ERROR, "wal",
			d->first_missing != 0
				? "damage found; the missing records are damaged or were never acknowledged"
				: "damage found",
			SL__F_STR("segment", d->segment), SL__F_U64("offset", d->offset),
			SL__F_U64("length", d->length), SL__F_STR("reason", d->reason),
			SL__F_HEX("expected_crc", d->expected_crc), SL__F_HEX("actual_crc", d->actual_crc),
			SL__F_U64("first_missing", d->first_missing), SL__F_U64("last_missing", d->last_missing));
	if (r->hooks->on_damage != NULL)
		(void)r->hooks->on_damage(d, r->hooks->ctx);
}

static void hold_damage(struct wal_recovery *r, const struct wal_find *find, const char *reason)
{
	tell_pending(r);
	r->has_pending = true;
	r->pending = (struct sl_wal_damage){.segment = r->sources[find->segment].name,
					    .offset = find->item->offset,
					    .length = find->kind == WAL_FOUND_GAP ? 0 : find->item->length,
					    .reason = reason,
					    .expected_crc = find->item->expected_crc,
					    .actual_crc = find->item->actual_crc,
					    .torn_tail = find->kind == WAL_FOUND_TORN};
}

/* ---- what the survey finds ---- */

int sl__wal_recover_gap(struct wal_recovery *r, uint64_t first, uint64_t last)
{
	if (r->n_gaps == r->cap_gaps) {
		size_t cap = r->cap_gaps != 0 ? r->cap_gaps * 2 : 8;
		struct wal_gap *grown = sl__realloc(&r->w->env, r->gaps, cap * sizeof(*grown));
		if (grown == NULL)
			return SL_ENOMEM;
		r->gaps = grown;
		r->cap_gaps = cap;
	}
	r->gaps[r->n_gaps++] = (struct wal_gap){first, last};
	return 0;
}

static int take_record(struct wal_recovery *r, const struct wal_find *find)
{
	const struct wal_record *rec = &find->item->record;
	if (rec->status == WAL_STATUS_RENEWAL) {
		/* It names the first record to come after it, which may not be there yet. */
		r->top = SL_MAX(r->top, rec->sequence - 1);
		r->renewed = (struct wal_renewal){sl__get32(rec->payload) & 0xFFFFFF, rec->sequence};
		r->renewed_in = find->segment;
		return 0;
	}
	r->top = SL_MAX(r->top, rec->sequence);
	if (rec->status == WAL_STATUS_CLOSED) {
		r->closed_in = find->segment;
		r->closed_end = find->item->offset + rec->total;
		r->tail_bytes = 0; /* it bounds what damage before it may have held */
		return 0;
	}
	if (rec->status != SL_WAL_PENDING)
		return sl__wal_ranges_set(&r->statuses, rec->first, rec->sequence, rec->status);
	struct wal_entry entry = {.sequence = rec->sequence,
				  .offset = find->item->offset,
				  .timestamp_ms = rec->timestamp_ms,
				  .total = rec->total,
				  .status = SL_WAL_PENDING};
	r->last = rec->sequence;
	r->tail_bytes = 0;
	if (r->sources[find->segment].header.version == 2)
		r->sealed_sample = entry;
	int rc = sl__wal_index_reserve(&r->index, 1);
	if (rc == 0)
		sl__wal_index_add(&r->index, &entry);
	return rc;
}

static void note_damage(struct wal_recovery *r, const struct wal_find *find, const char *reason)
{
	if (r->cut_offset == 0 && find->kind != WAL_FOUND_HEADER) {
		r->cut_segment = find->segment;
		r->cut_offset = find->item->offset;
	}
	r->damaged++;
	hold_damage(r, find, reason);
}

static int on_find(const struct wal_find *find, struct sl_err *err, void *ctx)
{
	struct wal_recovery *r = ctx;
	int rc = 0;
	switch (find->kind) {
	case WAL_FOUND_RECORD:
		if (r->has_pending && find->item->record.status == WAL_STATUS_CLOSED && r->pending.first_missing == 0 &&
		    find->item->record.sequence > r->last) {
			r->pending.first_missing = r->last + 1;
			r->pending.last_missing = find->item->record.sequence;
		}
		tell_pending(r);
		rc = take_record(r, find);
		break;
	case WAL_FOUND_DAMAGE:
		note_damage(r, find, find->item->reason);
		r->tail_first = SL_MAX(r->last + 1, r->sources[find->segment].named_first);
		r->tail_bytes += find->item->length;
		break;
	case WAL_FOUND_HEADER:
		note_damage(r, find, find->item->reason);
		break;
	case WAL_FOUND_TORN:
		hold_damage(r, find, find->item->reason);
		break;
	case WAL_FOUND_GAP:
		if (r->last == 0)
			r->front = (struct wal_gap){find->gap_first, find->gap_last};
		rc = sl__wal_recover_gap(r, find->gap_first, find->gap_last);
		if (r->has_pending && !r->pending.torn_tail) {
			r->pending.first_missing = find->gap_first;
			r->pending.last_missing = find->gap_last;
		}
		break;
	}
	if (rc != 0)
		return sl_err_set(err, rc, "recover %s: no memory", r->w->path);
	return 0;
}

/* ---- one survey ---- */

void sl__wal_recover_forget(struct wal_recovery *r)
{
	const struct sl_env *env = &r->w->env;
	for (size_t i = 0; i < r->n; i++)
		sl__free(env, r->paths != NULL ? r->paths[i] : NULL);
	sl__free(env, r->paths);
	sl__free(env, r->sources);
	sl__free(env, r->gaps);
	sl__wal_files_free(&r->files, env);
	sl__wal_index_fini(&r->index);
	sl__wal_ranges_fini(&r->statuses);
	r->paths = NULL;
	r->sources = NULL;
	r->gaps = NULL;
	r->n = r->n_gaps = r->cap_gaps = 0;
}

static int list_sources(struct wal_recovery *r, struct sl_err *err)
{
	sl_wal *w = r->w;
	int rc = sl__wal_files_list(&r->files, &w->env, w->dir, w->id, err);
	if (rc != 0)
		return rc;
	size_t n = r->files.n_sealed + 1;
	r->sources = sl__calloc(&w->env, n, sizeof(*r->sources));
	r->paths = sl__calloc(&w->env, n, sizeof(*r->paths));
	if (r->sources == NULL || r->paths == NULL)
		return sl_err_set(err, SL_ENOMEM, "recover %s: no memory", w->path);
	r->n = n;
	for (size_t i = 0; i < n; i++) {
		uint64_t first = i + 1 < n ? r->files.sealed[i] : 0;
		r->paths[i] = sl__wal_file_path(&w->env, w->dir, w->id, first);
		if (r->paths[i] == NULL)
			return sl_err_set(err, SL_ENOMEM, "recover %s: no memory", w->path);
		r->sources[i] = (struct wal_source){.path = r->paths[i],
						    .name = sl__basename(r->paths[i]),
						    .fd = first == 0 ? w->fd : -1,
						    .size = UINT64_MAX,
						    .named_first = first};
	}
	return 0;
}

int sl__wal_recover_survey(struct wal_recovery *r, struct sl_err *err)
{
	sl_wal *w = r->w;
	sl__wal_index_init(&r->index, &w->env);
	sl__wal_ranges_init(&r->statuses, &w->env);
	r->top = r->last = r->damaged = r->cut_offset = r->tail_bytes = 0;
	r->sealed_sample = (struct wal_entry){0};
	r->front = (struct wal_gap){0, 0};
	r->renewed = (struct wal_renewal){0, 0};
	r->closed_end = 0;
	int rc = list_sources(r, err);
	if (rc == 0)
		rc = sl__wal_survey(&w->env, r->sources, r->n, on_find, r, err);
	tell_pending(r);
	return rc;
}
