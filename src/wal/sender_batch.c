/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the next batch holds. The receiver takes only what continues its mark, so the plan begins at mark + 1 and
 * covers every sequence from there:
 *
 *      mark | skipped | record | record | skipped | record |    …
 *           parked or   pending, or     only between
 *           a hole      sent before     records
 *
 * B1  A sequence is skipped only when it is a declared hole or its letter is durable in the dead letters.
 *     Sequences before a new incarnation are skipped, too: they were acknowledged under an earlier one.
 * B2  A record that was settled as sent and is above the mark is sent again: the receiver lost it. Where it lies, only
 *     the files know; a walk over them fills `replay`.
 * B3  A batch has at least one record or range, and at most batch_records and batch_bytes, but for one larger record.
 */
#include "wal/reader.h"
#include "wal/sender.h"

int sl__wal_sender_alloc(sl_wal *w, struct wal_sender_state *s)
{
	s->cap = (size_t)SL_MIN(w->opts.batch_records, SENDER_MAX_RECORDS);
	s->entries = sl__calloc(&w->env, s->cap, sizeof(*s->entries));
	s->records = sl__calloc(&w->env, s->cap, sizeof(*s->records));
	s->owned = sl__calloc(&w->env, s->cap, sizeof(*s->owned));
	return s->entries != NULL && s->records != NULL && s->owned != NULL ? 0 : SL_ENOMEM;
}

void sl__wal_sender_release(sl_wal *w, struct wal_sender_state *s)
{
	sl__free(&w->env, s->entries);
	sl__free(&w->env, s->records);
	sl__free(&w->env, s->owned);
	sl__free(&w->env, s->replay);
}

/* ---- planning ---- */

static bool add_skipped(struct wal_sender_state *s, uint64_t first, uint64_t last)
{
	struct sl_wal_range *before = s->n_skipped > 0 ? &s->skipped[s->n_skipped - 1] : NULL;
	if (before != NULL && before->last + 1 == first) {
		before->last = last;
		return true;
	}
	if (s->n_skipped == SENDER_MAX_SKIPPED)
		return false;
	s->skipped[s->n_skipped++] = (struct sl_wal_range){first, last};
	return true;
}

/* Where the record lies: in the index while it is pending, else in what was looked up for sending again. */
static const struct wal_entry *find_entry(const sl_wal *w, const struct wal_sender_state *s, uint64_t sequence)
	SL_REQUIRES(w->mu)
{
	const struct wal_entry *entry = sl__wal_index_next(&w->index, sequence);
	if (entry != NULL && entry->sequence == sequence)
		return entry;
	size_t lo = 0, hi = s->n_replay;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (s->replay[mid].sequence < sequence)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < s->n_replay && s->replay[lo].sequence == sequence ? &s->replay[lo] : NULL;
}

/* Ranges after the last record belong to the next batch. */
static void drop_trailing_ranges(struct wal_sender_state *s)
{
	uint64_t last = s->entries[s->n - 1].sequence;
	while (s->n_skipped > 0 && s->skipped[s->n_skipped - 1].first > last)
		s->n_skipped--;
}

enum sender_work sl__wal_sender_plan(sl_wal *w, struct wal_sender_state *s)
{
	s->n = s->n_skipped = 0;
	if (w->renewing.incarnation != 0)
		return SENDER_RENEW;
	if (s->probe != 0)
		return SENDER_PROBE;
	if (!s->mark_known)
		return w->durable_seq > 0 ? SENDER_ASK : SENDER_NOTHING;
	size_t room = s->limit != 0 ? SL_MIN(s->limit, s->cap) : s->cap;
	uint64_t bytes = 0;
	for (uint64_t at = s->mark + 1; at <= w->durable_seq && s->n < room;) {
		if (at < w->renewed.first) { /* went under an earlier incarnation */
			if (!add_skipped(s, at, w->renewed.first - 1))
				break;
			at = w->renewed.first;
			continue;
		}
		uint64_t end = sl__wal_ranges_failed_end(&w->failed, at);
		if (end == 0)
			end = sl__wal_ranges_failed_end(&w->holes, at);
		if (end != 0) {
			if (!add_skipped(s, at, SL_MIN(end, w->durable_seq)))
				break;
			at = end + 1;
			continue;
		}
		const struct wal_entry *entry = find_entry(w, s, at);
		if (entry == NULL) {
			s->find_from = at;
			if (s->n == 0)
				return SENDER_FIND;
			break;
		}
		if (s->n > 0 && (at == s->refusal.sequence || bytes + entry->total > (uint64_t)w->opts.batch_bytes))
			break;
		s->entries[s->n++] = *entry;
		if (at == s->refusal.sequence)
			return SENDER_PARK;
		bytes += entry->total;
		at++;
	}
	if (s->n > 0)
		drop_trailing_ranges(s);
	return s->n > 0 || s->n_skipped > 0 ? SENDER_SEND : SENDER_NOTHING;
}

/* ---- reading ---- */

int sl__wal_sender_read(sl_wal *w, struct wal_sender_state *s, struct sl_err *err)
{
	for (s->n_read = 0; s->n_read < s->n; s->n_read++) {
		size_t i = s->n_read;
		struct sl_err why = SL_ERR_INIT;
		int rc = sl__wal_read_entry(w, &s->entries[i], &s->records[i], &s->owned[i], &why);
		if (rc != 0 && i == 0) {
			if (err != NULL)
				*err = why;
			return rc;
		}
		if (rc != 0) {
			/* Send what could be read; the next plan begins with this one. */
			s->n = i;
			drop_trailing_ranges(s);
			break;
		}
	}
	return 0;
}

void sl__wal_sender_drop(sl_wal *w, struct wal_sender_state *s)
{
	for (size_t i = 0; i < s->n_read; i++)
		sl__free(&w->env, s->owned[i]);
	s->n_read = 0;
}

/* ---- settled records, from the files ---- */

int sl__wal_sender_crc(sl_wal *w, uint64_t sequence, uint64_t *crc, struct sl_err *err)
{
	sl__lock(&w->mu);
	const struct wal_entry *pending = sl__wal_index_next(&w->index, sequence);
	struct wal_entry entry = pending != NULL ? *pending : (struct wal_entry){0};
	sl__unlock(&w->mu);
	if (entry.sequence == sequence) {
		struct wal_stored stored;
		int rc = sl__wal_read_stored(w, &entry, &stored, err);
		if (rc == 0) {
			*crc = stored.record.crc;
			sl__free(&w->env, stored.bytes);
		}
		return rc;
	}
	/* Only the segment that holds it is read: what its status is does not matter here. */
	int fd, rc = sl__wal_open_segment_of(w, sequence, &fd, err);
	if (rc != 0)
		return rc;
	struct wal_reader r;
	struct wal_walk walk;
	struct wal_item item;
	enum wal_step step;
	sl__wal_reader_init(&r, &w->env, fd, UINT64_MAX);
	sl__wal_walk_init(&walk, &r, 0);
	do
		step = sl__wal_walk_next(&walk, &item, err);
	while (step == WAL_STEP_DAMAGE ||
	       (step == WAL_STEP_RECORD && (item.record.status != SL_WAL_PENDING || item.record.sequence < sequence)));
	if (step == WAL_STEP_ERROR)
		rc = sl_err_set_errno(err, r.error, "read %s", w->path);
	else if (step != WAL_STEP_RECORD || item.record.sequence != sequence)
		rc = SL_ENOENT;
	else
		*crc = item.record.crc;
	sl__wal_reader_fini(&r);
	(void)SL__IO(&w->env, close, fd);
	return rc;
}

struct finding {
	struct wal_sender_state *s;
	uint64_t before; /* the first pending record, or one past the last */
	uint64_t found;  /* the first record that is there; 0: none */
};

#define FOUND_ENOUGH 1

static int on_found(const struct sl_wal_record *record, void *ctx)
{
	struct finding *f = ctx;
	struct wal_sender_state *s = f->s;
	if (record->sequence >= f->before || s->n_replay == SENDER_REPLAY)
		return FOUND_ENOUGH;
	if (f->found == 0)
		f->found = record->sequence;
	if (record->status == SL_WAL_FAILED)
		return 0; /* parked meanwhile: the next plan skips it */
	s->replay[s->n_replay++] = (struct wal_entry){.sequence = record->sequence,
						      .offset = record->offset,
						      .timestamp_ms = record->timestamp_ms,
						      .total = (uint32_t)record->length + 4,
						      .status = SL_WAL_SENT};
	return 0;
}

int sl__wal_sender_find(sl_wal *w, struct wal_sender_state *s, struct sl_err *err)
{
	sl__lock(&w->mu);
	const struct wal_entry *pending = sl__wal_index_next(&w->index, s->find_from);
	struct finding f = {.s = s, .before = pending != NULL ? pending->sequence : w->durable_seq + 1};
	sl__unlock(&w->mu);
	s->n_replay = 0;
	if (s->replay == NULL)
		s->replay = sl__calloc(&w->env, SENDER_REPLAY, sizeof(*s->replay));
	if (s->replay == NULL)
		return sl_err_set(err, SL_ENOMEM, "send %s: out of memory", w->path);
	int rc = sl_wal_iterate(w, s->find_from, on_found, &f, err);
	if (rc < 0)
		return rc;
	if (f.found == s->find_from)
		return 0;
	unsigned long long first = s->find_from, last = (f.found != 0 ? f.found : f.before) - 1;
	return sl_err_set(
		err, SL_ECONFLICT,
		"the receiver of %.64s lost records %llu to %llu, which the log no longer has: restore it from "
		"a later backup, or restart the stream with sluice wal recover --new-incarnation",
		w->id, first, last);
}
