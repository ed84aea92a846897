/* SPDX-License-Identifier: Apache-2.0 */
/* Sent and failed: settled in the index at once, on disk with the next flush. */
#include "wal/handle.h"

/* Mark only what is pending: the last word on a settled record stays. */
int sl__wal_settle(sl_wal *w, uint64_t first, uint64_t last, uint8_t status)
{
	while (first <= last) {
		const struct wal_entry *entry = sl__wal_index_next(&w->index, first);
		if (entry == NULL || entry->sequence > last)
			return 0;
		uint64_t run_first = entry->sequence, run_last = run_first;
		while (run_last < last && sl__wal_index_is_pending(&w->index, run_last + 1))
			run_last++;
		/* Both or neither. */
		if (sl__wal_ranges_reserve(&w->failed) != 0 ||
		    sl__wal_ranges_set(&w->marks, run_first, run_last, status) != 0)
			return SL_ENOMEM;
		if (status == SL_WAL_FAILED)
			(void)!sl__wal_ranges_set(&w->failed, run_first, run_last, status);
		uint64_t n = sl__wal_index_settle(&w->index, run_first, run_last, status, NULL);
		sl_counter_add(status == SL_WAL_FAILED ? w->metrics.failed : w->metrics.sent, n);
		if (w->marks_since_ns == 0) {
			w->marks_since_ns = sl__mono_ns(&w->env);
			sl__signal(&w->helper_cv);
		}
		if (w->room_waiters > 0)
			sl__broadcast(&w->room_cv);
		sl__wal_archive_poke(w);
		first = run_last + 1;
	}
	return 0;
}

uint64_t sl__wal_count_failed(const sl_wal *w)
{
	uint64_t from = w->n_segments > 0 ? w->segments[0].first : w->active_first, n = 0;
	for (size_t i = 0; from != 0 && i < w->failed.n; i++) {
		uint64_t first = SL_MAX(from, w->failed.v[i].first), last = w->failed.v[i].last;
		if (first <= last)
			n += last - first + 1 - sl__wal_ranges_count(&w->holes, first, last);
	}
	return n;
}

static int mark_range(sl_wal *w, uint64_t first, uint64_t last, uint8_t status, struct sl_err *err)
{
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	sl__lock(&w->mu);
	rc = sl__wal_usable(w, err);
	if (rc == 0 && (first < 1 || first > last || last > w->durable_seq))
		rc = sl_err_set(err, SL_EINVAL, "mark %llu to %llu of %s: the log ends at sequence %llu",
				(unsigned long long)first, (unsigned long long)last, w->path,
				(unsigned long long)w->durable_seq);
	if (rc == 0 && (rc = sl__wal_settle(w, first, last, status)) != 0)
		rc = sl_err_set(err, rc, "mark %s: out of memory", w->path);
	sl__unlock(&w->mu);
	return rc;
}

int sl_wal_mark_sent(sl_wal *w, uint64_t first, uint64_t last, struct sl_err *err)
{
	return mark_range(w, first, last, SL_WAL_SENT, err);
}

int sl_wal_mark_failed(sl_wal *w, uint64_t first, uint64_t last, struct sl_err *err)
{
	return mark_range(w, first, last, SL_WAL_FAILED, err);
}

int sl__wal_flush_marks(sl_wal *w, struct sl_err *err)
{
	/* A flush takes this many along; those that come meanwhile may wait. */
	sl__lock(&w->mu);
	size_t rounds = w->marks.n / (WAL_BATCH_MARKS / WAL_MARK_BYTES - 1) + 1;
	sl__unlock(&w->mu);
	for (size_t i = 0; i < rounds; i++) {
		int rc = sl__wal_flush_now(w, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}
