/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery. A survey reads every segment and changes nothing; damage is repaired in new files (repair.c), and the
 * survey is made again until it finds nothing to repair; then the state of the handle is taken from it.
 *
 * V1  Nothing is changed before the whole log was read, and nothing at all with SL_WAL_REFUSE.
 * V2  The next sequence is above every sequence that the log mentions, in data and in status records, so that one that
 *     was ever delivered is not given again.
 * V3  Damage after which no data record follows may have held numbers that were delivered: as many as could fit are
 *     declared missing, before the damaged bytes are quarantined.
 * V4  The active file and the folder are synced before the first append or send: what a power loss could still take
 *     away must not be delivered under its number.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "wal/handle.h"
#include "wal/repair.h"
#include "wal/segs.h"
#include "wal/survey.h"

#define MAX_ROUNDS 10

struct recovery {
	sl_wal *w;
	const struct wal_open_hooks *hooks;
	int round;
	struct wal_files files;
	struct wal_source *sources;
	char **paths;
	size_t n; /* sources: sealed ones, then the active one */
	struct wal_index index;
	struct wal_ranges statuses;
	struct sl_wal_range *gaps;
	size_t n_gaps, cap_gaps;
	struct sl_wal_range front;  /* taken by damage before the first record of all: only a declaration keeps it */
	uint64_t top;               /* the highest sequence that is mentioned anywhere */
	uint64_t last;              /* the highest data sequence */
	uint64_t damaged;           /* ranges, gaps and headers */
	uint64_t tail_bytes;        /* damaged bytes with no data record after them */
	uint64_t tail_first;        /* the first sequence that they may have held */
	size_t cut_segment;         /* the first damage */
	uint64_t cut_offset;        /* of it; 0: none */
	struct wal_renewal renewed; /* the last one */
	size_t renewed_in;          /* its segment */
	size_t closed_in;           /* the segment of the last record of a clean close */
	uint64_t closed_end;        /* where that ends; 0: none */
	struct wal_entry sealed_sample; /* the last encrypted record, to try the key on */
	struct sl_wal_damage pending;   /* reported once it is known which sequences are missing */
	bool has_pending;
	struct sl_err first_damage;
};

/* ---- the survey: damage is reported once it is known which sequences it took ---- */

static void report_pending(struct recovery *r)
{
	if (!r->has_pending)
		return;
	r->has_pending = false;
	const struct sl_wal_damage *d = &r->pending;
	if (r->first_damage.code == 0 && !d->torn_tail)
		(void)sl_err_set(
			&r->first_damage, SL_ECORRUPT,
			"%s: damaged at offset %llu (%s); recover it with sluice wal recover --on-corruption=salvage",
			d->segment, (unsigned long long)d->offset, d->reason);
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

static void hold_damage(struct recovery *r, const struct wal_find *find)
{
	if (find->kind != WAL_FOUND_TORN) {
		r->damaged++;
		if (r->cut_offset == 0 && find->kind != WAL_FOUND_HEADER) {
			r->cut_segment = find->segment;
			r->cut_offset = find->item->offset;
		}
	}
	report_pending(r);
	r->has_pending = true;
	r->pending = (struct sl_wal_damage){.segment = r->sources[find->segment].name,
					    .offset = find->item->offset,
					    .length = find->item->length,
					    .reason = find->item->reason,
					    .expected_crc = find->item->expected_crc,
					    .actual_crc = find->item->actual_crc,
					    .torn_tail = find->kind == WAL_FOUND_TORN};
}

/* Sequences that are missing. SL_ENOMEM. */
static int add_gap(struct recovery *r, uint64_t first, uint64_t last)
{
	struct sl_wal_range *grown = sl__grow(&r->w->env, r->gaps, r->n_gaps, &r->cap_gaps, sizeof(*grown));
	if (grown == NULL)
		return SL_ENOMEM;
	r->gaps = grown;
	r->gaps[r->n_gaps++] = (struct sl_wal_range){first, last};
	return 0;
}

static int take_found_record(struct recovery *r, const struct wal_find *find)
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

static int on_find(const struct wal_find *find, struct sl_err *err, void *ctx)
{
	struct recovery *r = ctx;
	int rc = 0;
	switch (find->kind) {
	case WAL_FOUND_RECORD:
		if (r->has_pending && find->item->record.status == WAL_STATUS_CLOSED && r->pending.first_missing == 0 &&
		    find->item->record.sequence > r->last) {
			r->pending.first_missing = r->last + 1;
			r->pending.last_missing = find->item->record.sequence;
		}
		report_pending(r);
		rc = take_found_record(r, find);
		break;
	case WAL_FOUND_DAMAGE:
		hold_damage(r, find);
		r->tail_first = SL_MAX(r->last + 1, r->sources[find->segment].named_first);
		r->tail_bytes += find->item->length;
		break;
	case WAL_FOUND_HEADER:
	case WAL_FOUND_TORN:
		hold_damage(r, find);
		break;
	case WAL_FOUND_GAP:
		if (r->last == 0)
			r->front = (struct sl_wal_range){find->gap_first, find->gap_last};
		rc = add_gap(r, find->gap_first, find->gap_last);
		if (r->has_pending && !r->pending.torn_tail) {
			r->pending.first_missing = find->gap_first;
			r->pending.last_missing = find->gap_last;
		}
		break;
	}
	if (rc != 0)
		return sl_err_set(err, rc, "recover %s: out of memory", r->w->path);
	return 0;
}

/* Read every segment; what is found is in r, and reported to its hooks. What an earlier survey found is forgotten. */
static int survey_log(struct recovery *r, struct sl_err *err)
{
	sl_wal *w = r->w;
	sl__wal_index_init(&r->index, &w->env);
	sl__wal_ranges_init(&r->statuses, &w->env);
	r->top = r->last = r->damaged = r->cut_offset = r->tail_bytes = 0;
	r->sealed_sample = (struct wal_entry){0};
	r->front = (struct sl_wal_range){0, 0};
	r->renewed = (struct wal_renewal){0, 0};
	r->closed_end = 0;
	/* The sources: sealed segments, then the active file. */
	int rc = sl__wal_files_list(&r->files, &w->env, w->dir, w->id, err);
	if (rc != 0)
		return rc;
	size_t n = r->files.n_sealed + 1;
	r->sources = sl__calloc(&w->env, n, sizeof(*r->sources));
	r->paths = sl__calloc(&w->env, n, sizeof(*r->paths));
	if (r->sources == NULL || r->paths == NULL)
		return sl_err_set(err, SL_ENOMEM, "recover %s: out of memory", w->path);
	r->n = n;
	for (size_t i = 0; i < n; i++) {
		uint64_t first = i + 1 < n ? r->files.sealed[i] : 0;
		r->paths[i] = sl__wal_file_path(&w->env, w->dir, w->id, first);
		if (r->paths[i] == NULL)
			return sl_err_set(err, SL_ENOMEM, "recover %s: out of memory", w->path);
		r->sources[i] = (struct wal_source){.path = r->paths[i],
						    .name = sl__basename(r->paths[i]),
						    .fd = first == 0 ? w->fd : -1,
						    .size = UINT64_MAX,
						    .named_first = first};
	}
	struct wal_survey survey = {.env = &w->env, .sources = r->sources, .n = n, .fn = on_find, .ctx = r};
	rc = sl__wal_survey(&survey, err);
	report_pending(r);
	return rc;
}

/* ---- repairing ---- */

static bool not_a_log(const struct wal_source *src)
{
	return src->header_state == WAL_HEADER_BAD && src->records == 0 && src->marks == 0 && !src->missing;
}

/* The header that a damaged one must have had: its own with one bit repaired, else that of a neighbour, else a new one.
 */
static int right_header(struct recovery *r, size_t i, struct wal_header *h, struct sl_err *err)
{
	*h = r->sources[i].header;
	if (r->sources[i].header_state == WAL_HEADER_REPAIRABLE)
		return 0;
	for (size_t k = r->n; k > 0; k--)
		if (r->sources[k - 1].header_state <= WAL_HEADER_REPAIRABLE) {
			*h = r->sources[k - 1].header;
			return 0;
		}
	/* Sealed payloads are bound to the incarnation: under a new one they would never open again. */
	if (r->w->key != NULL)
		return sl_err_set(err, SL_ECORRUPT,
				  "%s: the header of this encrypted log is damaged beyond repair, with the incarnation "
				  "that its records are sealed for; restore the first 16 bytes from a copy",
				  r->sources[i].path);
	h->version = 1;
	int rc = sl__wal_draw_incarnation(&r->w->env, h->version, &h->incarnation);
	return rc < 0 ? sl_err_set_errno(err, -rc, "repair %s: random bytes", r->sources[i].path) : 0;
}

/* V3. How many records may have been in damaged bytes after which no data record comes? Each takes 32 bytes at least.
 */
static struct sl_wal_range tail_hole(const struct recovery *r)
{
	if (r->tail_bytes == 0)
		return (struct sl_wal_range){0, 0};
	uint64_t most = (r->tail_bytes + WAL_FRAME_BYTES - 1) / WAL_FRAME_BYTES;
	uint64_t last = r->tail_first > WAL_MAX_SEQUENCE - most ? WAL_MAX_SEQUENCE : r->tail_first + most - 1;
	return (struct sl_wal_range){r->tail_first, last};
}

/* Files that are no log at all, and segments of another incarnation, leave; so do damaged headers. *again: survey again.
 */
static int repair_files(struct recovery *r, bool *again, struct sl_err *err)
{
	sl_wal *w = r->w;
	int rc = 0;
	bool declared = false;
	struct wal_source *active = &r->sources[r->n - 1];
	struct wal_header h;
	if (not_a_log(active)) {
		/* V3. There are sealed segments: what the active file held is lost, and its numbers must not be given
		 * again. A header is synced before a file gets its name, so this is damage, not a file that was never
		 * finished. A new one with the hole declared takes its place in one step. The length of a file that was
		 * cut short is unknown: as long as a segment may be. */
		*again = true;
		if (r->tail_bytes == 0)
			r->tail_first = r->last + 1;
		r->tail_bytes +=
			active->too_short ? (uint64_t)w->opts.segment_bytes + WAL_MAX_RECORD : active->file_size;
		rc = right_header(r, r->n - 1, &h, err);
		if (rc == 0)
			rc = sl__wal_replace(w, active, h, tail_hole(r), err);
		return rc;
	}
	for (size_t i = 0; i < r->n && rc == 0; i++) {
		struct wal_source *src = &r->sources[i];
		char suffix[16];
		(void)snprintf(suffix, sizeof(suffix), "old-%06x", src->header.incarnation & 0xFFFFFF);
		bool stale = i + 1 < r->n && src->header_state == WAL_HEADER_OK &&
			     active->header_state == WAL_HEADER_OK &&
			     src->header.incarnation != active->header.incarnation;
		if (src->missing || (src->header_state == WAL_HEADER_OK && !stale))
			continue;
		*again = true;
		if (stale) {
			rc = sl__wal_move_aside(w, src->path, suffix, err);
		} else if (not_a_log(src)) {
			struct sl_wal_range hole = tail_hole(r);
			if (hole.first != 0 && !declared && active->header_state == WAL_HEADER_OK &&
			    active->damage == 0) {
				declared = true;
				rc = sl__wal_declare(w, active, hole, err);
			}
			if (rc == 0)
				rc = sl__wal_move_aside(w, src->path, "damaged-0", err);
		} else {
			rc = right_header(r, i, &h, err);
			if (rc == 0)
				rc = sl__wal_fix_header(w, src, h, err);
			/* Where a new incarnation was drawn, the other segments of this log must get the same one. */
			src->header = h;
			src->header_state = WAL_HEADER_OK;
		}
	}
	return rc;
}

static bool needs_repair(const struct recovery *r)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->sources[i].damage > 0 || (r->sources[i].header_state != WAL_HEADER_OK && !r->sources[i].missing))
			return true;
	return false;
}

/* The specification's way: everything after the first damage is quarantined; its numbers are declared as a hole
 * first. */
static int truncate_at_damage(struct recovery *r, bool *again, struct sl_err *err)
{
	sl_wal *w = r->w;
	if (r->cut_offset == 0)
		return 0;
	struct wal_source *src = &r->sources[r->cut_segment];
	bool active = r->cut_segment + 1 == r->n;
	uint64_t kept = src->before;
	for (size_t i = 0; i < r->index.count; i++) {
		const struct wal_entry *entry = sl__wal_index_next(&r->index, kept + 1);
		if (entry == NULL || entry->sequence > src->last || entry->offset >= r->cut_offset)
			break;
		kept = entry->sequence;
	}
	uint64_t top = SL_MAX(r->top, tail_hole(r).last);
	uint64_t hole_first = top > kept ? kept + 1 : 0;
	*again = true;
	sl__log(&w->env, SL_LOG_WARN, "wal", "log cut at the first damage; valid records after it are quarantined too",
		SL__F_STR("segment", src->name), SL__F_U64("offset", r->cut_offset), SL__F_U64("first_cut", hole_first),
		SL__F_U64("last_cut", top));
	int rc = sl__wal_cut(w, src, r->cut_offset, (struct sl_wal_range){hole_first, top}, err);
	for (size_t i = r->cut_segment + 1; i < r->n && rc == 0; i++)
		rc = sl__wal_move_aside(w, r->sources[i].path, "damaged-0", err);
	if (!active)
		sl__close_fd(&w->env, &w->fd);
	return rc;
}

static int repair_round(struct recovery *r, bool *again, struct sl_err *err)
{
	const char *path = r->w->path;
	struct wal_source *active = &r->sources[r->n - 1];
	*again = false;
	if (not_a_log(active) && r->n == 1 && active->file_size == 0)
		return sl_err_set(err, SL_ECORRUPT, "%s is empty; remove it to start a new log", path);
	if (not_a_log(active) && r->n == 1)
		return sl_err_set(err, SL_ECORRUPT, "%s is not a log: no valid header or record", path);
	if (r->w->opts.on_corruption == SL_WAL_REFUSE) {
		if (needs_repair(r)) {
			if (r->first_damage.code == 0)
				return sl_err_set(err, SL_ECORRUPT, "%s is damaged", path);
			if (err != NULL)
				*err = r->first_damage;
			return r->first_damage.code;
		}
		for (size_t i = 0; i < r->n_gaps; i++) {
			struct sl_wal_range gap = r->gaps[i];
			if (!sl__wal_ranges_failed_covers(&r->statuses, gap.first, gap.last))
				return sl_err_set(err, SL_ECORRUPT,
						  "%s: sequences %llu to %llu are missing; declare them a hole with "
						  "sluice wal recover",
						  path, (unsigned long long)gap.first, (unsigned long long)gap.last);
		}
		return 0;
	}
	int rc = repair_files(r, again, err);
	if (rc != 0 || *again)
		return rc;
	if (r->w->opts.on_corruption == SL_WAL_TRUNCATE)
		return truncate_at_damage(r, again, err);
	/* Holes that only the damage shows go to disk before the damaged bytes leave: with the active file when that is
	 * the one to be rewritten, and so first of all; else at the end of it. */
	const struct sl_wal_range holes[2] = {r->front, tail_hole(r)};
	for (size_t i = 0; i < 2 && rc == 0 && active->damage == 0 && needs_repair(r); i++)
		if (holes[i].first != 0)
			rc = sl__wal_declare(r->w, active, holes[i], err);
	for (size_t i = r->n; i > 0 && rc == 0; i--) {
		const struct wal_source *src = &r->sources[i - 1];
		if (src->damage == 0)
			continue;
		*again = true;
		rc = sl__wal_salvage(r->w, src, holes, i == r->n ? 2 : 0, err);
	}
	return rc;
}

/* ---- taking over ---- */

/* Sequences that are not there: declared ones become holes; new ones are declared with the first flush. */
static int take_holes(struct recovery *r)
{
	sl_wal *w = r->w;
	/* A hole that was declared before the first record. What was archived from there leaves no declaration. */
	uint64_t first_record = 0;
	for (size_t i = 0; i < r->n && first_record == 0; i++)
		first_record = r->sources[i].first;
	struct sl_wal_range front = sl__wal_ranges_failed_before(&r->statuses, first_record);
	int rc = front.last != 0 ? sl__wal_ranges_set(&w->holes, front.first, front.last, SL_WAL_FAILED) : 0;
	if (rc == 0 && r->top > r->last)
		rc = add_gap(r, r->last + 1, r->top);
	for (size_t i = 0; i < r->n_gaps && rc == 0; i++) {
		uint64_t first = r->gaps[i].first, last = r->gaps[i].last;
		rc = sl__wal_ranges_set(&w->holes, first, last, SL_WAL_FAILED);
		if (rc == 0 && !sl__wal_ranges_failed_covers(&r->statuses, first, last))
			rc = sl__wal_ranges_set(&w->marks, first, last, SL_WAL_FAILED);
	}
	return rc;
}

/* What was written last and not to its end is quarantined. Without room for that it stays where it is until something is to
 * be written there: what the log has can be read, delivered and settled meanwhile, and may make room. */
static int settle_torn(sl_wal *w, const struct wal_source *src, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	struct wal_bytes torn = {w->fd, src->end, src->torn};
	int code = sl__wal_quarantine(w, torn, src->name, "torn", &why);
	if (code == SL_ENOSPC) {
		w->torn = src->torn;
		w->cut_needed = true;
		sl__log(&w->env, SL_LOG_WARN, "wal", "disk full: the torn tail is not quarantined and stays in the log",
			SL__F_STR("segment", src->name), SL__F_STR("error", why.msg));
		return 0;
	}
	if (code != 0) {
		if (err != NULL)
			*err = why;
		return code;
	}
	int rc = SL__IO(&w->env, truncate, w->fd, src->end);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "trim the torn tail of %s", w->path);
	w->ready_end = w->end;
	sl__log(&w->env, SL_LOG_WARN, "wal", "torn tail trimmed", SL__F_STR("segment", src->name),
		SL__F_U64("offset", src->end), SL__F_U64("bytes", src->torn));
	return 0;
}

/* V4 */
static int settle_active(struct recovery *r, struct sl_err *err)
{
	sl_wal *w = r->w;
	const struct wal_source *src = &r->sources[r->n - 1];
	w->header = src->header;
	w->end = src->end;
	w->ready_end = SL_MAX(src->file_size, src->end);
	w->active_first = src->first;
	w->active_last = src->last;
	w->active_records = src->records;
	w->clean_end = r->closed_end != 0 && r->closed_in + 1 == r->n && r->closed_end == src->end ? src->end : 0;
	/* A new incarnation goes into each segment: the one that declares it is archived some day. */
	w->renewed = r->renewed;
	w->renewing = (struct wal_renewal){0, 0};
	if (r->renewed.incarnation != 0 && r->renewed_in + 1 < r->n)
		w->renewing = r->renewed;
	int code = src->torn > 0 ? settle_torn(w, src, err) : 0;
	if (code != 0)
		return code;
	int rc = SL__IO(&w->env, sync, w->fd);
	if (rc == 0)
		rc = sl__sync_dir(&w->env, w->dir);
	return rc < 0 ? sl_err_set_errno(err, -rc, "sync %s", w->path) : 0;
}

static int take_over_survey(struct recovery *r, struct sl_err *err)
{
	sl_wal *w = r->w;
	int rc = take_holes(r);
	w->n_segments = 0;
	w->sealed_records = w->sealed_bytes = 0;
	w->segments = sl__calloc(&w->env, r->n, sizeof(*w->segments));
	w->cap_segments = w->segments != NULL ? r->n : 0;
	if (rc == 0 && w->segments == NULL)
		rc = SL_ENOMEM;
	for (size_t i = 0; i + 1 < r->n && rc == 0; i++) {
		const struct wal_source *src = &r->sources[i];
		if (src->missing)
			continue;
		w->segments[w->n_segments++] = (struct wal_segment){.first = src->named_first,
								    .last = src->last,
								    .bytes = src->end,
								    .records = src->records,
								    .version = src->header.version};
		w->sealed_records += src->records;
		w->sealed_bytes += src->end;
	}
	for (size_t i = 0; i < r->statuses.n && rc == 0; i++) {
		const struct wal_status_range *s = &r->statuses.v[i];
		(void)sl__wal_index_settle(&r->index, s->first, s->last, s->status, NULL);
		if (s->status == SL_WAL_FAILED)
			rc = sl__wal_ranges_set(&w->failed, s->first, s->last, s->status);
	}
	if (rc != 0)
		return sl_err_set(err, rc, "recover %s: out of memory", w->path);
	sl__wal_index_fini(&w->index);
	w->index = r->index;
	w->index.env = &w->env;
	sl__wal_index_init(&r->index, &w->env);
	w->next_seq = SL_MAX(r->top, r->last) + 1;
	w->durable_seq = w->next_seq - 1;
	if (r->n == 1 && r->last == 0 && r->top == 0)
		w->next_seq = 1;
	rc = settle_active(r, err);
	if (rc != 0 || w->key == NULL || r->sealed_sample.sequence == 0)
		return rc;
	/* An encrypted log is tried with the last record: a wrong key must not add records that the right one cannot
	 * read. */
	struct sl_wal_record rec;
	uint8_t *owned = NULL;
	rc = sl__wal_read_entry(w, &r->sealed_sample, &rec, &owned, err);
	if (rc == 0)
		sl__free(&w->env, owned);
	return rc;
}

/* Survey and repair until a survey finds nothing to repair, then take the state from that one. */
static int recover_rounds(struct recovery *r, struct sl_err *err)
{
	sl_wal *w = r->w;
	bool again = true;
	int rc = 0;
	for (r->round = 0; rc == 0 && again; r->round++) {
		if (r->round == MAX_ROUNDS)
			return sl_err_set(err, SL_EINTERNAL, "%s is still damaged after %d repairs", w->path, r->round);
		if (w->fd < 0)
			rc = sl__wal_acquire(w, r->hooks, err);
		if (rc == 0)
			rc = survey_log(r, err);
		if (rc == 0)
			rc = repair_round(r, &again, err);
		if (rc == 0 && r->round == 0) {
			w->damaged_ranges = r->damaged;
			w->torn_bytes = r->sources[r->n - 1].torn;
		}
		if (rc == 0 && !again) {
			for (size_t i = 0; i < r->files.n_temps; i++) {
				char *path = sl__asprintf(&w->env, "%s/%s", w->dir, r->files.temps[i]);
				if (path != NULL)
					(void)SL__IO(&w->env, unlink, path);
				sl__free(&w->env, path);
			}
			rc = take_over_survey(r, err);
		}
		/* Free what this survey found. */
		for (size_t i = 0; i < r->n; i++)
			sl__free(&w->env, r->paths != NULL ? r->paths[i] : NULL);
		sl__free(&w->env, r->paths);
		sl__free(&w->env, r->sources);
		sl__free(&w->env, r->gaps);
		sl__wal_files_free(&r->files, &w->env);
		sl__wal_index_fini(&r->index);
		sl__wal_ranges_fini(&r->statuses);
		r->paths = NULL;
		r->sources = NULL;
		r->gaps = NULL;
		r->n = r->n_gaps = r->cap_gaps = 0;
	}
	return rc;
}

int sl__wal_recover_state(sl_wal *w, const struct wal_open_hooks *hooks, struct sl_err *err)
{
	struct recovery r = {.w = w, .hooks = hooks};
	int rc = recover_rounds(&r, err);
	if (rc != 0 || !hooks->new_incarnation)
		return rc;
	rc = sl__wal_reincarnate(w, err);
	if (rc != 0)
		return rc;
	sl__free(&w->env, w->segments);
	w->segments = NULL;
	w->n_segments = 0;
	sl__wal_ranges_fini(&w->marks);
	sl__wal_ranges_fini(&w->holes);
	sl__wal_ranges_fini(&w->failed);
	sl__close_fd(&w->env, &w->read_fd);
	uint64_t damaged = w->damaged_ranges, torn = w->torn_bytes;
	struct recovery fresh = {.w = w, .hooks = &(struct wal_open_hooks){.must_exist = true}};
	rc = recover_rounds(&fresh, err);
	w->damaged_ranges = damaged;
	w->torn_bytes = torn;
	return rc;
}
