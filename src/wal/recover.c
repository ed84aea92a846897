/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery. A survey reads every segment (recover_survey.c); damage is repaired in new files
 * (repair.c), and the survey is made again until it finds nothing to repair; then the state of the handle is taken from
 * it.
 *
 * V1  Nothing is changed before the whole log was read, and nothing at all with SL_WAL_REFUSE.
 * V2  The next sequence is above every sequence that the log mentions, in data and in status records, so that one that
 *     was ever delivered is not given again.
 * V3  Damage behind which no data record follows may have held numbers that were delivered: as many as could fit are
 *     declared missing, before the damaged bytes are quarantined.
 * V4  The active file and the folder are synced before the first append or send: what a power loss could still take
 * away must not be delivered under its number.
 */
#include "wal/recover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "wal/repair.h"

#define MAX_ROUNDS 10

/* ---- repairing ---- */

static bool not_a_log(const struct wal_source *src)
{
	return src->header_state == WAL_HEADER_BAD && src->records == 0 && src->marks == 0 && !src->missing;
}

/* The header that a damaged one must have had: its own with one bit mended, else that of a neighbour, else a new one.
 */
static int right_header(struct wal_recovery *r, size_t i, struct wal_header *h, struct sl_err *err)
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
				  "%s: the header of this encrypted log is damaged beyond repair, and with it the "
				  "incarnation that its records are sealed for; restore the first 16 bytes from a copy",
				  r->sources[i].path);
	h->version = 1;
	int rc = sl__wal_draw_incarnation(&r->w->env, h->version, &h->incarnation);
	return rc < 0 ? sl_err_set_errno(err, -rc, "repair %s: randomness", r->sources[i].path) : 0;
}

/* V3. How many records may have been in damaged bytes behind which no data record tells? Each takes 32 bytes at least.
 */
static struct wal_gap tail_hole(const struct wal_recovery *r)
{
	if (r->tail_bytes == 0)
		return (struct wal_gap){0, 0};
	uint64_t most = (r->tail_bytes + WAL_FRAME_BYTES - 1) / WAL_FRAME_BYTES;
	uint64_t last = r->tail_first > WAL_MAX_SEQUENCE - most ? WAL_MAX_SEQUENCE : r->tail_first + most - 1;
	return (struct wal_gap){r->tail_first, last};
}

/* V3. The active file is no log any more, but there are sealed segments: what it held is lost, and its numbers must not
 * be given again. A header is synced before a file gets its name, so this is damage, not a file that was never
 * finished. A new one with the hole declared takes its place in one step. */
static int replace_active(struct wal_recovery *r, struct sl_err *err)
{
	const struct wal_source *active = &r->sources[r->n - 1];
	struct wal_header h;
	if (r->tail_bytes == 0)
		r->tail_first = r->last + 1;
	/* The length of a file that was cut short is unknown: as long as a segment may be. */
	r->tail_bytes += active->too_short ? (uint64_t)r->w->opts.segment_bytes + WAL_MAX_RECORD : active->file_size;
	struct wal_gap hole = tail_hole(r);
	int rc = right_header(r, r->n - 1, &h, err);
	if (rc != 0)
		return rc;
	return sl__wal_replace(r->w, active, h, &(struct wal_hole){hole.first, hole.last}, err);
}

/* Files that are no log at all, and segments of another incarnation, leave; so do damaged headers. *again: look anew.
 */
static int repair_files(struct wal_recovery *r, bool *again, struct sl_err *err)
{
	sl_wal *w = r->w;
	int rc = 0;
	bool declared = false;
	struct wal_source *active = &r->sources[r->n - 1];
	if (not_a_log(active)) {
		*again = true;
		return replace_active(r, err);
	}
	for (size_t i = 0; i < r->n && rc == 0; i++) {
		struct wal_source *src = &r->sources[i];
		struct wal_header h;
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
			struct wal_gap hole = tail_hole(r);
			if (hole.first != 0 && !declared && active->header_state == WAL_HEADER_OK &&
			    active->damage == 0) {
				declared = true;
				rc = sl__wal_declare(w, active, &(struct wal_hole){hole.first, hole.last}, err);
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

static bool needs_repair(const struct wal_recovery *r)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->sources[i].damage > 0 || (r->sources[i].header_state != WAL_HEADER_OK && !r->sources[i].missing))
			return true;
	return false;
}

/* Holes that only the damage tells of go to disk before the damaged bytes leave: with the active file when that is the
 * one to be rewritten, and so first of all; else at the end of it. */
static int salvage_all(struct wal_recovery *r, bool *again, struct sl_err *err)
{
	int rc = 0;
	size_t active = r->n - 1;
	const struct wal_gap at_tail = tail_hole(r);
	const struct wal_hole holes[2] = {{r->front.first, r->front.last}, {at_tail.first, at_tail.last}};
	for (size_t i = 0; i < 2 && rc == 0 && r->sources[active].damage == 0 && needs_repair(r); i++)
		if (holes[i].first != 0)
			rc = sl__wal_declare(r->w, &r->sources[active], &holes[i], err);
	for (size_t i = r->n; i > 0 && rc == 0; i--) {
		const struct wal_source *src = &r->sources[i - 1];
		if (src->damage == 0)
			continue;
		*again = true;
		rc = sl__wal_salvage(r->w, src, i - 1 == active, holes, i - 1 == active ? 2 : 0, err);
	}
	return rc;
}

/* The specification's way: everything after the first damage is quarantined; its numbers are declared as a hole
 * first. */
static int truncate_at_damage(struct wal_recovery *r, bool *again, struct sl_err *err)
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
	sl__log(&w->env, SL_LOG_WARN, "wal", "log cut at the first damage; good records after it are quarantined too",
		SL__F_STR("segment", src->name), SL__F_U64("offset", r->cut_offset), SL__F_U64("first_cut", hole_first),
		SL__F_U64("last_cut", top));
	int rc = sl__wal_cut(w, src, active, r->cut_offset, hole_first, top, err);
	for (size_t i = r->cut_segment + 1; i < r->n && rc == 0; i++)
		rc = sl__wal_move_aside(w, r->sources[i].path, "damaged-0", err);
	if (!active)
		sl__close_fd(&w->env, &w->fd);
	return rc;
}

static int refuse_foreign(const struct wal_recovery *r, struct sl_err *err)
{
	const struct wal_source *active = &r->sources[r->n - 1];
	if (!not_a_log(active) || r->n > 1)
		return 0;
	if (active->file_size == 0)
		return sl_err_set(err, SL_ECORRUPT, "%s is empty, not a log; remove it to begin a new one", r->w->path);
	return sl_err_set(err, SL_ECORRUPT, "%s is not a log: no header and no record in it", r->w->path);
}

static int undeclared_gap(const struct wal_recovery *r, struct sl_err *err)
{
	for (size_t i = 0; i < r->n_gaps; i++)
		if (!sl__wal_ranges_failed_covers(&r->statuses, r->gaps[i].first, r->gaps[i].last))
			return sl_err_set(err, SL_ECORRUPT,
					  "%s: sequences %llu to %llu are missing; sluice wal recover declares them",
					  r->w->path, (unsigned long long)r->gaps[i].first,
					  (unsigned long long)r->gaps[i].last);
	return 0;
}

static int repair_round(struct wal_recovery *r, bool *again, struct sl_err *err)
{
	*again = false;
	int rc = refuse_foreign(r, err);
	if (rc != 0)
		return rc;
	if (r->w->opts.on_corruption == SL_WAL_REFUSE) {
		if (needs_repair(r)) {
			if (err != NULL)
				*err = r->first_damage;
			return r->first_damage.code != 0 ? r->first_damage.code
							 : sl_err_set(err, SL_ECORRUPT, "%s is damaged", r->w->path);
		}
		return undeclared_gap(r, err);
	}
	rc = repair_files(r, again, err);
	if (rc != 0 || *again)
		return rc;
	if (r->w->opts.on_corruption == SL_WAL_TRUNCATE)
		return truncate_at_damage(r, again, err);
	return salvage_all(r, again, err);
}

/* ---- taking over ---- */

/* A hole that was declared before the first record. What was archived from there leaves no declaration. */
static int take_front_hole(struct wal_recovery *r)
{
	uint64_t first = 0;
	for (size_t i = 0; i < r->n && first == 0; i++)
		first = r->sources[i].first;
	struct sl_wal_range hole = sl__wal_ranges_failed_before(&r->statuses, first);
	return hole.last != 0 ? sl__wal_ranges_set(&r->w->holes, hole.first, hole.last, SL_WAL_FAILED) : 0;
}

/* Sequences that are not there: declared ones become holes; new ones are declared with the first flush. */
static int take_holes(struct wal_recovery *r)
{
	sl_wal *w = r->w;
	int rc = take_front_hole(r);
	if (rc == 0 && r->top > r->last)
		rc = sl__wal_recover_gap(r, r->last + 1, r->top);
	for (size_t i = 0; i < r->n_gaps && rc == 0; i++) {
		uint64_t first = r->gaps[i].first, last = r->gaps[i].last;
		rc = sl__wal_ranges_set(&w->holes, first, last, SL_WAL_FAILED);
		if (rc == 0 && !sl__wal_ranges_failed_covers(&r->statuses, first, last))
			rc = sl__wal_ranges_set(&w->marks, first, last, SL_WAL_FAILED);
	}
	return rc;
}

static int take_segments(struct wal_recovery *r)
{
	sl_wal *w = r->w;
	w->n_segments = 0;
	w->sealed_records = w->sealed_bytes = 0;
	w->segments = sl__calloc(&w->env, r->n, sizeof(*w->segments));
	if (w->segments == NULL)
		return SL_ENOMEM;
	w->cap_segments = r->n;
	for (size_t i = 0; i + 1 < r->n; i++) {
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
	return 0;
}

static int take_statuses(struct wal_recovery *r)
{
	sl_wal *w = r->w;
	for (size_t i = 0; i < r->statuses.n; i++) {
		const struct wal_status_range *s = &r->statuses.v[i];
		(void)sl__wal_index_settle(&r->index, s->first, s->last, s->status, NULL);
		if (s->status == SL_WAL_FAILED && sl__wal_ranges_set(&w->failed, s->first, s->last, s->status) != 0)
			return SL_ENOMEM;
	}
	sl__wal_index_fini(&w->index);
	w->index = r->index;
	w->index.env = &w->env;
	sl__wal_index_init(&r->index, &w->env);
	return 0;
}

/* What was written last and not to its end goes aside. Without room for that it stays where it is until something is to
 * be written there: what the log has can be read, delivered and settled meanwhile, and may make room. */
static int settle_torn(sl_wal *w, const struct wal_source *src, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	int code = sl__wal_set_aside(w, w->fd, src->name, "torn", src->end, src->torn, &why);
	if (code == SL_ENOSPC) {
		w->torn = src->torn;
		w->cut_needed = true;
		sl__log(&w->env, SL_LOG_WARN, "wal", "no room to set the torn tail aside; it stays until there is",
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
static int settle_active(struct wal_recovery *r, struct sl_err *err)
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

/* An encrypted log is tried with the last record: a wrong key must not add records that the right one cannot read. */
static int try_key(struct wal_recovery *r, struct sl_err *err)
{
	struct sl_wal_record rec;
	uint8_t *owned;
	if (r->w->key == NULL || r->sealed_sample.sequence == 0)
		return 0;
	int rc = sl__wal_read_entry(r->w, &r->sealed_sample, &rec, &owned, err);
	if (rc == 0)
		sl__free(&r->w->env, owned);
	return rc;
}

static int take_over(struct wal_recovery *r, struct sl_err *err)
{
	sl_wal *w = r->w;
	int rc = take_holes(r);
	if (rc == 0)
		rc = take_segments(r);
	if (rc == 0)
		rc = take_statuses(r);
	if (rc != 0)
		return sl_err_set(err, rc, "recover %s: no memory", w->path);
	w->next_seq = SL_MAX(r->top, r->last) + 1;
	w->durable_seq = w->next_seq - 1;
	if (r->n == 1 && r->last == 0 && r->top == 0)
		w->next_seq = 1;
	rc = settle_active(r, err);
	return rc != 0 ? rc : try_key(r, err);
}

static void remove_temps(const struct wal_recovery *r)
{
	for (size_t i = 0; i < r->files.n_temps; i++) {
		char *path = sl__asprintf(&r->w->env, "%s/%s", r->w->dir, r->files.temps[i]);
		if (path != NULL)
			(void)SL__IO(&r->w->env, unlink, path);
		sl__free(&r->w->env, path);
	}
}

static int one_round(struct wal_recovery *r, bool *again, struct sl_err *err)
{
	sl_wal *w = r->w;
	int rc = w->fd < 0 ? sl__wal_acquire(w, r->hooks, err) : 0;
	if (rc == 0)
		rc = sl__wal_recover_survey(r, err);
	if (rc == 0)
		rc = repair_round(r, again, err);
	if (r->round == 0 && rc == 0) {
		w->damaged_ranges = r->damaged;
		w->torn_bytes = r->sources[r->n - 1].torn;
	}
	if (rc == 0 && !*again) {
		remove_temps(r);
		rc = take_over(r, err);
	}
	sl__wal_recover_forget(r);
	return rc;
}

static int recover_rounds(struct wal_recovery *r, struct sl_err *err)
{
	bool again = true;
	int rc = 0;
	for (r->round = 0; rc == 0 && again; r->round++) {
		if (r->round == MAX_ROUNDS)
			return sl_err_set(err, SL_EINTERNAL, "%s is still damaged after %d repairs", r->w->path,
					  r->round);
		rc = one_round(r, &again, err);
	}
	return rc;
}

int sl__wal_recover_state(sl_wal *w, const struct wal_open_hooks *hooks, struct sl_err *err)
{
	struct wal_recovery r = {.w = w, .hooks = hooks};
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
	struct wal_recovery fresh = {.w = w, .hooks = &(struct wal_open_hooks){.must_exist = true}};
	rc = recover_rounds(&fresh, err);
	w->damaged_ranges = damaged;
	w->torn_bytes = torn;
	return rc;
}
