/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One input of a load: its records through a coordinator. A coordinator for each, so that a dead letter names its file
 * and line.
 *
 * Invariants
 *  1. Every record of the input is accepted by the coordinator or in the dead letters before the place after it is
 *     noted (place.h); so a run that is cut off is resumed without a loss.
 *  2. After a stop nothing more is read, and what was read is written; with a log it may stay there instead while the
 *     target is unavailable.
 *  3. A target that refuses the first rows, or takes none for give_up_after_ms, ends the load with the reason; what was
 *     read and not written stays in the log, or is counted as left.
 */
#include <inttypes.h>
#include <string.h>

#include "load/load.h"

enum { CHUNK = 1024, FIRST_BYTES = 4096, CHECK_EVERY_MS = 100, QUEUE_BYTES = 64 << 20 };

/* ---- bad records ---- */

/* Its dead letter is durable. Without memory it is not recorded: the next run would find it dead once more. */
static void record_dead(sl_load *l, const struct sl_input_range *range)
{
	if (l->resume.on && range->end)
		(void)l->sink.ops->load_dead(l->sink.ctx, range);
}

/* Durable before reading continues. Of what is too long only the beginning is kept; the code says so (dlq redrive must
 * not mistake it for the record). */
static int put_bad(sl_load *l, const struct sl_record *r, const struct sl_input_range *range, int code,
		   struct sl_err *err)
{
	struct sl_dlq_letter letter = {
		SL_DLQ_LETTER_INIT,  .source = l->source, .position = r->line,
		.error = r->bad,     .code = code,        .error_class = SL_CLASS_POISON,
		.target = l->target, .item = r->data,     .item_len = r->len,
	};
	int rc;

	if (code == SL_ETOOBIG && letter.item_len > FIRST_BYTES)
		letter.item_len = FIRST_BYTES;
	l->bad++;
	rc = sl_dlq_put(l->dead, &letter, NULL, err);
	if (rc != 0)
		return rc;
	record_dead(l, range);
	return 0;
}

/* ---- a target that is not waited for ---- */

/* Another run of the same load may write now, and this one not any more. */
static bool is_taken_over(const sl_load *l, const struct sl_coordinator_health *h)
{
	return l->resume.on && h->breaker != SL_BREAKER_CLOSED && h->last_error.code == SL_ELOCKED;
}

enum { CONTACTS = 2, GRACE_MS = 5000 };

/* The code of why the target is not waited for any longer, or 0. A single row may be what the target answers with an
 * error about all of them: at the first contact the second batch decides, and only when no other is in flight; later
 * the coordinator, which gives up a little earlier. */
static int check_given_up(sl_load *l)
{
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};
	int64_t limit = l->delivery.retry.give_up_after_ms > 0 ? l->delivery.retry.give_up_after_ms : 0;
	const char *target = sl_sink_target(&l->sink);
	bool first;
	int rc;

	if (l->gave_up.code || sl_coordinator_get_health(l->c, &h) || !h.failing_ms)
		return l->gave_up.code;
	if (is_taken_over(l, &h)) /* see may_leave */
		return 0;
	first = h.last_error.error_class == SL_CLASS_FATAL && l->total.written + h.written == 0 &&
		h.failures >= CONTACTS && h.in_flight == 0;
	if (!first && (!limit || h.failing_ms < limit + SL_MIN(limit / 10, GRACE_MS)))
		return 0;
	rc = h.last_error.code == SL_EACCES || h.last_error.code == SL_ECONFIG ? SL_ECONFIG : SL_EUNAVAIL;
	if (first)
		return sl_err_set(&l->gave_up, rc, "%.100s accepted no row: %.130s", target, h.last_error.msg);
	return sl_err_set(&l->gave_up, rc, "%.90s accepted no row for %" PRId64 " s: %.110s", target,
			  h.failing_ms / 1000, h.last_error.msg);
}

/* What was accepted could not be written for now, and is safe in the log or not recorded: the next run writes it. */
static bool may_leave(sl_load *l, const struct sl_coordinator_health *h)
{
	return (sl__load_is_stopped(l) && (l->place.wal != NULL || l->resume.on) && h->breaker != SL_BREAKER_CLOSED) ||
	       is_taken_over(l, h);
}

/* While rows wait for the target: SL_ECANCELLED when they may be left, the reason when it was given up, else 0. */
static int check_waiting(sl_load *l)
{
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};

	if (sl_coordinator_get_health(l->c, &h) == 0 && may_leave(l, &h))
		return SL_ECANCELLED;
	return check_given_up(l);
}

/* ---- rows ---- */

/* Hand n rows over, however long the target takes. What finds no room in time is not in the log either. */
static int submit_rows(sl_load *l, const struct sl_item *items, size_t n, struct sl_err *err)
{
	size_t done = 0, now = 0;
	int rc = 0;

	while (rc == 0 && done < n) {
		rc = sl_coordinator_submit_many(l->c, items + done, n - done, CHECK_EVERY_MS, &now);
		done += now;
		if (rc == SL_ETIMEDOUT) {
			rc = check_waiting(l);
		} else if (rc == SL_ETOOBIG) { /* the log takes less than a record may have */
			const struct sl_item *item = &items[done++];
			struct sl_record r = {.data = item->data,
					      .len = item->len,
					      .line = item->position,
					      .bad = "longer than a record of the log may be"};

			rc = put_bad(l, &r, &item->range, SL_ETOOBIG, err);
		} else {
			if (rc != 0) {
				rc = sl_err_set(err, rc, "%.120s: line %" PRIu64 " was not accepted: %s", l->in.name,
						items[done].position, sl_err_text(rc));
			}
		}
	}
	/* Read, and accepted by nothing: for the next run to read again. */
	sl__lock(&l->mu);
	l->total.returned += n - done;
	sl__unlock(&l->mu);
	return rc;
}

/* Is the record written, dead, or in the log, by an earlier run? *what may also say that it is another record. */
static bool is_done(sl_load *l, const struct sl_record *r, struct sl_input_range *range, enum load_resume_what *what)
{
	*what = LOAD_RESUME_NEW;
	*range = (struct sl_input_range){.end = 0};
	if (!l->resume.on)
		return false;
	*what = sl__load_resume_next(&l->resume, r, range);
	if (*what >= LOAD_RESUME_CHANGED)
		return true;
	if (*what == LOAD_RESUME_DONE) {
		l->skipped++;
		return true;
	}
	if (r->end >= l->place.end && r->offset < l->place.end && !sl__load_place_is_at(&l->place, r))
		*what = LOAD_RESUME_CHANGED;
	return r->end <= l->place.end || sl__load_resume_is_logged(&l->resume, range) || *what == LOAD_RESUME_CHANGED;
}

static int take_chunk(sl_load *l, const struct sl_record *records, size_t n, struct sl_err *err)
{
	struct sl_item items[CHUNK];
	uint64_t keys[CHUNK];
	size_t good = 0;
	bool flush = false;
	int rc;

	for (size_t i = 0; i < n; i++) {
		const struct sl_record *r = &records[i];
		struct sl_input_range range;
		enum load_resume_what what;

		if (is_done(l, r, &range, &what)) {
			if (what >= LOAD_RESUME_CHANGED)
				return sl__load_changed(l, what, err);
			continue;
		}
		l->read++;
		if (r->bad != NULL) {
			/* More than a line end is missing from what is kept of one that is too long. */
			bool cut = r->end - r->offset > r->len + 2;

			rc = put_bad(l, r, &range, cut ? SL_ETOOBIG : SL_EDATA, err);
			if (rc != 0)
				return rc;
			continue;
		}
		/* The key of the row, so that the last row of a key wins. A key that only the database can compare may
		 * be any other's: everything before it is written first, and from there on all rows go one after the
		 * other. */
		keys[good] = 0;
		rc = l->key_lane != NULL && !l->one_key
			     ? l->sink.ops->key(l->sink.ctx, l->key_lane, r->data, r->len, &keys[good], err)
			     : 0;
		if (rc != 0)
			return rc;
		flush = l->key_lane != NULL && !l->one_key && keys[good] == 0;
		l->one_key = l->one_key || flush;
		if (flush) {
			rc = submit_rows(l, items, good, err);
			while (rc == 0 && sl_coordinator_flush(l->c, CHECK_EVERY_MS) == SL_ETIMEDOUT)
				rc = check_waiting(l);
			if (rc != 0)
				return rc;
			keys[0] = keys[good];
			good = 0;
		}
		items[good] = (struct sl_item){.data = r->data, .len = r->len, .position = r->line, .range = range};
		if (l->key_lane != NULL) {
			items[good].key = &keys[good];
			items[good].key_len = sizeof(keys[good]);
		}
		good++;
	}
	rc = submit_rows(l, items, good, err);
	if (rc != 0)
		return rc;
	l->bytes_read += records[n - 1].end - records[0].offset;
	return records[n - 1].end > l->place.end ? sl__load_place_note(&l->place, records, n, err) : 0;
}

/* Until the input ends, a stop or a failure. */
static int read_rows(sl_load *l, struct sl_err *err)
{
	struct sl_record records[CHUNK];
	size_t n;

	for (;;) {
		int rc = sl__load_is_stopped(l) ? SL_ECANCELLED
						: sl_records_next(l->in.records, records, CHUNK, &n, err);

		if (rc != 0)
			return sl__load_input_failed(&l->in, rc, err);
		if (n == 0 && l->resume.on &&
		    (sl__load_resume_end(&l->resume) == LOAD_RESUME_CHANGED || l->resume.begin < l->place.end))
			return sl__load_changed(l, LOAD_RESUME_CHANGED, err);
		if (n == 0)
			return 0;
		rc = take_chunk(l, records, n, err);
		if (rc != 0)
			return rc;
	}
}

/* ---- the coordinator ---- */

static void on_high(void *ctx)
{
	sl__log_text(&((sl_load *)ctx)->env, SL_LOG_INFO, "load",
		     "backpressure begins: rows reached the high watermark");
}

static void on_low(void *ctx)
{
	sl__log_text(&((sl_load *)ctx)->env, SL_LOG_INFO, "load",
		     "backpressure ends: rows are below the low watermark");
}

static void on_dead(const struct sl_item *item, const struct sl_err *err, uint32_t attempts, void *ctx)
{
	(void)err;
	(void)attempts;
	record_dead(ctx, &item->range);
}

/* It is counted, and not recorded: the next run writes it. */
static void on_returned(const struct sl_item *item, void *ctx)
{
	(void)item;
	(void)ctx;
}

static int start_coordinator(sl_load *l, struct sl_err *err)
{
	struct sl_coordinator_opts opts = l->delivery;
	sl_coordinator *c = NULL;
	int rc;

	opts.env = &l->env;
	opts.name = l->source;
	opts.unwritten.target = l->target;
	opts.backpressure.on_high = on_high;
	opts.backpressure.on_low = on_low;
	opts.backpressure.ctx = l;
	opts.unwritten.on_returned = on_returned;
	opts.max_bytes = QUEUE_BYTES;
	opts.unwritten.dead_letters = l->dead;
	opts.unwritten.on_dead = on_dead;
	opts.unwritten.dead_ctx = l;
	opts.wal = l->place.wal;
	l->one_key = l->left = false;
	if (l->to.opts.n_on_conflict > 0 && l->sink.ops->key != NULL) {
		uint64_t first;

		opts.per_key_order = SL_ON;
		rc = l->sink.ops->attach(l->sink.ctx, &l->key_lane, err);
		/* So that it knows the table before anything is read. */
		if (rc == 0)
			rc = l->sink.ops->key(l->sink.ctx, l->key_lane, "", 0, &first, err);
		if (rc != 0)
			return rc;
	}
	rc = sl_coordinator_new(&c, &l->sink, &opts, err);
	if (rc != 0)
		return rc;
	sl__lock(&l->mu);
	l->c = c;
	sl__unlock(&l->mu);
	return 0;
}

/* Everything that was accepted ends as written or dead, however long that takes, or stays in the log. */
static int drain_coordinator(sl_load *l, struct sl_err *err)
{
	struct sl_coordinator_report report = {.struct_size = sizeof(report)};
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};
	bool leave = l->gave_up.code != 0;
	sl_coordinator *c = l->c;
	int rc;

	while (!leave && sl_coordinator_flush(c, CHECK_EVERY_MS) == SL_ETIMEDOUT)
		leave = (sl_coordinator_get_health(c, &h) == 0 && may_leave(l, &h)) || check_given_up(l);
	rc = sl_coordinator_stop(c, leave ? 0 : SL_UNLIMITED, &report, err);
	sl__lock(&l->mu);
	l->c = NULL;
	l->total.accepted += report.accepted;
	l->total.written += report.written;
	l->total.dead += report.dead;
	l->total.dropped += report.dropped;
	l->total.returned += report.returned + report.unknown;
	sl__unlock(&l->mu);
	l->left = leave;
	if (leave && is_taken_over(l, &h))
		rc = sl_err_set(err, SL_ELOCKED,
				"%.120s: another run of the same load has taken over; this run stopped", l->in.name);
	else if (rc == SL_EPENDING && leave)
		rc = l->gave_up.code ? l->gave_up.code : SL_ECANCELLED;
	if (sl_coordinator_free(c)) { /* a write has not returned */
		l->stuck = true;
		if (rc == 0)
			rc = sl_err_set(err, SL_EINTERNAL, "a write to the target has not returned");
	}
	return rc;
}

/* Skip what an earlier run has taken. */
static int skip_done(sl_load *l, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	int rc;

	if (!l->place.end)
		return 0;
	sl__log_text(&l->env, SL_LOG_INFO, "load", "%s: resuming at byte %" PRIu64 ", where an earlier run stopped",
		     l->in.name, l->place.end);
	if (!l->since_ms || l->place.started_ms < l->since_ms)
		l->since_ms = l->place.started_ms;
	if (l->resume.on) /* the table's records decide, and what they do not have is in the log: see is_done */
		return 0;
	l->bytes_read += l->place.end;
	rc = sl__load_place_skip(&l->place, l->in.records, &why);
	if (rc == SL_EDATA && !sl__load_is_stopped(l))
		return sl_err_set(
			err, rc,
			"%.50s has changed since an earlier run began to load it; restore it, or remove %.120s",
			l->in.name, l->place.path);
	if (rc != 0 && err != NULL)
		*err = why;
	if (rc != 0)
		return sl__load_input_failed(&l->in, rc, err);
	return 0;
}

int sl__load_rows(sl_load *l, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	int rc = skip_done(l, err), drained;

	if (rc == 0 && l->resume.on && l->place.wal != NULL)
		rc = sl__load_resume_read_log(&l->resume, l->place.wal, err);
	if (rc == 0)
		rc = start_coordinator(l, err);
	if (rc == 0) {
		rc = read_rows(l, err);
		drained = drain_coordinator(l, &why);
		/* The reason that is most specific wins: a target that was given up, or another run. */
		if (l->gave_up.code && (rc == 0 || rc == l->gave_up.code)) {
			rc = l->gave_up.code;
			why = l->gave_up;
		} else if (drained == SL_ELOCKED || rc == 0) {
			rc = drained;
		} else {
			why.code = 0;
		}
		if (rc != 0 && why.code && err != NULL)
			*err = why;
	}
	if (l->stuck) /* a write still uses the sink */
		return rc;
	/* What is kept for one input only. */
	if (l->key_lane != NULL && l->sink.ops->detach != NULL)
		l->sink.ops->detach(l->sink.ctx, l->key_lane);
	l->key_lane = NULL;
	sl__load_resume_fini(&l->resume);
	return rc;
}
