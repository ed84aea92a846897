/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One input of a load: its records through a coordinator. A coordinator for each, so that a dead letter names its file
 * and line. What must stay true:
 *  1. Every record of the input is accepted by the coordinator or in the dead letters before the place behind it is
 *     noted (loadplace.h); so a run that is cut off is taken up without a loss.
 *  2. After the first signal nothing more is read, and what was read is written; with a log it may stay there instead
 *     while the target is away. The second signal ends the command by itself, whatever it does.
 *  3. A target that refuses the first rows, or takes none for --give-up-after, ends the command with 69 or 78 and the
 *     reason; what was read and not written stays in the log, or is counted as left.
 */
#include "load.h"
#include "stop.h"
#include "waiting.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>

enum { CHUNK = 1024, FIRST_BYTES = 4096, LOOK_EVERY_MS = 100, ROOM_EVERY_MS = 5, QUEUE_BYTES = 64 << 20 };

/* ---- records that are none ---- */

/* Its letter is durable. Without memory it is not recorded: the next run would find it dead once more. */
static void note_dead(struct load *l, const struct sl_input_range *range)
{
	if (l->resume.on && range->end)
		(void)l->sink.ops->load_dead(l->sink.ctx, range);
}

/* Durable before reading goes on. Of what is too long only the beginning is kept; the code tells (dlq redrive must not
 * take it for the record). */
static int put_bad(struct load *l, const struct sl_record *r, const struct sl_input_range *range, const char *why,
		   int code)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_dlq_letter letter = {.source = l->source,
				       .position = r->line,
				       .error = why,
				       .code = code,
				       .error_class = SL_CLASS_POISON,
				       .target = l->target,
				       .item = r->data,
				       .item_len = r->len};

	if (code == SL_ETOOBIG && letter.item_len > FIRST_BYTES)
		letter.item_len = FIRST_BYTES;
	l->bad++;
	l->watch.bad++;
	if (sl_dlq_put(l->dead, &letter, NULL, &err))
		return cli_fail(l->cli, &err, opt_str(l->args, "dead-letters"));
	note_dead(l, range);
	return 0;
}

/* More than a line end is missing from what is kept of it. */
static int is_cut(const struct sl_record *r)
{
	return r->end - r->offset > r->len + 2;
}

/* ---- a target that is not waited for ---- */

/* Another run of the same load may write now, and this one not any more. */
static int is_taken_over(const struct load *l, const struct sl_coordinator_health *h)
{
	return l->resume.on && h->breaker != SL_BREAKER_CLOSED && h->last_error.code == SL_ELOCKED;
}

enum { CONTACTS = 2, GRACE_MS = 5000 };

/* How the command ends, or 0. A single row may be what the target answers with an error that speaks of all: at the
 * first contact the second batch decides, and only when no other is in flight; later the coordinator, which gives up a
 * little earlier. */
static int gives_up(struct load *l)
{
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};
	int64_t limit = opt_num(l->args, "give-up-after");
	const char *target = sl_sink_target(&l->sink);
	int first;

	if (l->gave_up || sl_coordinator_get_health(l->c, &h) || !h.failing_ms)
		return l->gave_up;
	if (is_taken_over(l, &h)) /* may_leave knows that */
		return 0;
	first = h.last_error.error_class == SL_CLASS_FATAL && l->total.written + h.written == 0 &&
		h.failures >= CONTACTS && h.in_flight == 0;
	if (!first && (!limit || h.failing_ms < limit + (limit / 10 < GRACE_MS ? limit / 10 : GRACE_MS)))
		return 0;
	if (first)
		cli_say(l->cli, SL_LOG_ERROR, "%s took no row: %s", target, h.last_error.msg);
	else
		cli_say(l->cli, SL_LOG_ERROR, "%s took no row for %" PRId64 " s: %s", target, h.failing_ms / 1000,
			h.last_error.msg);
	l->gave_up = sl_err_exit_code(h.last_error.code == SL_EACCES || h.last_error.code == SL_ECONFIG ? SL_ECONFIG
													: SL_EUNAVAIL);
	return l->gave_up;
}

/* ---- rows ---- */

/* What was taken could not be written for now, and is safe in the log or not recorded: the next run writes it. */
static int may_leave(const struct load *l, const struct sl_coordinator_health *h)
{
	return (stop_requested() && (l->place.wal || l->resume.on) && h->breaker != SL_BREAKER_CLOSED) ||
	       is_taken_over(l, h);
}

/* How many of n items the queue has room for. */
static size_t room_for(const struct sl_coordinator_health *h, const struct sl_item *items, size_t n)
{
	uint64_t room = h->capacity > h->queue_size ? h->capacity - h->queue_size : 0, bytes = h->queue_bytes;
	size_t fit = 0;

	for (; fit < n && fit < room; fit++) {
		bytes += items[fit].len;
		if (bytes > QUEUE_BYTES && bytes > items[fit].len)
			break;
	}
	return fit;
}

/* With a log, a submit that found no room would have written to it in vain, and one that waits for ever could not be
 * called back while the target is away. *n becomes what there is room for. */
static int wait_for_room(struct load *l, const struct sl_item *items, size_t *n)
{
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};
	struct pollfd stop = {.fd = stop_fd(), .events = POLLIN};
	size_t fit;

	if (!l->place.wal || opt_num(l->args, "overflow") != SL_OVERFLOW_BLOCK)
		return 0;
	while (sl_coordinator_get_health(l->c, &h) == 0 && (fit = room_for(&h, items, *n)) == 0) {
		if (may_leave(l, &h))
			return EXIT_INTERRUPTED;
		if (gives_up(l))
			return l->gave_up;
		poll(&stop, stop_requested() ? 0 : 1, ROOM_EVERY_MS);
	}
	*n = fit;
	return 0;
}

/* The log takes less than a record may have. */
static int put_too_long(struct load *l, const struct sl_item *item)
{
	struct sl_record r = {.data = item->data, .len = item->len, .line = item->position};

	return put_bad(l, &r, &item->range, "longer than a record of the log may be", SL_ETOOBIG);
}

/* Hand n rows over, however long the target takes. */
static int submit(struct load *l, const struct sl_item *items, size_t n)
{
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};
	struct sl_err err = SL_ERR_INIT;
	size_t done = 0, now;

	while (done < n) {
		size_t fit = n - done;
		int rc = wait_for_room(l, items + done, &fit);

		if (rc)
			return rc;
		rc = sl_coordinator_submit_many(l->c, items + done, fit, LOOK_EVERY_MS, &now);
		done += now;
		if (rc == SL_ETIMEDOUT && sl_coordinator_get_health(l->c, &h) == 0 && may_leave(l, &h))
			return EXIT_INTERRUPTED;
		if (rc == SL_ETIMEDOUT && gives_up(l))
			return l->gave_up;
		if (rc == SL_ETOOBIG) {
			rc = put_too_long(l, &items[done++]);
			if (rc)
				return rc;
		} else if (rc && rc != SL_ETIMEDOUT) {
			sl_err_set(&err, rc, "%s: line %" PRIu64 " was not accepted: %s", l->in.name,
				   items[done].position, sl_err_text(rc));
			return cli_fail(l->cli, &err, NULL);
		}
	}
	return 0;
}

/* The key of a row, so that the last row of a key wins. A key that only the database can compare may be any other's:
 * everything before it is written first, and from there on all rows go one after the other. */
static int key_of(struct load *l, const struct sl_record *r, uint64_t *key, int *flush)
{
	struct sl_err err = SL_ERR_INIT;

	*flush = 0;
	*key = 0;
	if (!l->one_key && l->sink.ops->key(l->sink.ctx, l->key_lane, r->data, r->len, key, &err))
		return cli_fail(l->cli, &err, sl_sink_target(&l->sink));
	*flush = !l->one_key && *key == 0;
	l->one_key |= *flush;
	return 0;
}

/* Wait until what was handed over is written or dead. */
static int wait_for_all(struct load *l)
{
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};

	while (sl_coordinator_flush(l->c, LOOK_EVERY_MS) == SL_ETIMEDOUT) {
		if (sl_coordinator_get_health(l->c, &h) == 0 && may_leave(l, &h))
			return EXIT_INTERRUPTED;
		if (gives_up(l))
			return l->gave_up;
	}
	return 0;
}

/* Is the record written, dead, or in the log, by an earlier run? *what may also say that it is another record. */
static int is_done(struct load *l, const struct sl_record *r, struct sl_input_range *range, enum loadresume_what *what)
{
	*what = LOADRESUME_NEW;
	*range = (struct sl_input_range){.end = 0};
	if (!l->resume.on)
		return 0;
	*what = loadresume_next(&l->resume, r, range);
	if (*what >= LOADRESUME_CHANGED)
		return 1;
	if (*what == LOADRESUME_DONE) {
		l->skipped++;
		return 1;
	}
	if (r->end >= l->place.end && r->offset < l->place.end && !loadplace_is_at(&l->place, r))
		*what = LOADRESUME_CHANGED;
	return r->end <= l->place.end || loadresume_is_logged(&l->resume, range) || *what == LOADRESUME_CHANGED;
}

static int take_chunk(struct load *l, const struct sl_record *records, size_t n)
{
	struct sl_item items[CHUNK];
	uint64_t keys[CHUNK];
	size_t good = 0;
	int rc = 0, flush = 0;

	for (size_t i = 0; i < n; i++) {
		const struct sl_record *r = &records[i];
		struct sl_input_range range;
		enum loadresume_what what;

		if (is_done(l, r, &range, &what)) {
			if (what >= LOADRESUME_CHANGED)
				return load_changed(l, what);
			continue;
		}
		l->read++;
		if (r->bad) {
			if ((rc = put_bad(l, r, &range, r->bad, is_cut(r) ? SL_ETOOBIG : SL_EDATA)))
				return rc;
			continue;
		}
		if (l->key_lane && (rc = key_of(l, r, &keys[good], &flush)))
			return rc;
		if (flush) {
			rc = submit(l, items, good);
			rc = rc ? rc : wait_for_all(l);
			if (rc)
				return rc;
			keys[0] = keys[good];
			good = 0;
		}
		items[good] = (struct sl_item){.data = r->data, .len = r->len, .position = r->line, .range = range};
		if (l->key_lane) {
			items[good].key = &keys[good];
			items[good].key_len = sizeof(keys[good]);
		}
		good++;
	}
	rc = submit(l, items, good);
	if (rc)
		return rc;
	l->watch.taken += records[n - 1].end - records[0].offset;
	return records[n - 1].end > l->place.end ? loadplace_note(&l->place, l->cli, records, n) : 0;
}

/* Until the input ends, a signal comes or something fails. */
static int read_rows(struct load *l)
{
	struct sl_record records[CHUNK];
	struct sl_err err = SL_ERR_INIT;
	size_t n;

	for (;;) {
		int rc = stop_requested() ? SL_ECANCELLED : sl_records_next(l->in.records, records, CHUNK, &n, &err);

		if (rc)
			return loadinput_failed(&l->in, &err);
		if (n == 0 && l->resume.on &&
		    (loadresume_end(&l->resume) == LOADRESUME_CHANGED || l->resume.begin < l->place.end))
			return load_changed(l, LOADRESUME_CHANGED);
		if (n == 0)
			return 0;
		rc = take_chunk(l, records, n);
		if (rc)
			return rc;
	}
}

/* ---- the coordinator ---- */

static void on_high(void *ctx)
{
	cli_say(((struct load *)ctx)->cli, SL_LOG_INFO, "backpressure: rows wait, up to the high watermark");
}

static void on_low(void *ctx)
{
	cli_say(((struct load *)ctx)->cli, SL_LOG_INFO, "backpressure is over: below the low watermark");
}

static void on_dead(const struct sl_item *item, const struct sl_err *err, uint32_t attempts, void *ctx)
{
	(void)err;
	(void)attempts;
	note_dead(ctx, &item->range);
}

/* It is counted, and not recorded: the next run writes it. */
static void on_returned(const struct sl_item *item, void *ctx)
{
	(void)item;
	(void)ctx;
}

static int start_coordinator(struct load *l)
{
	const struct parsed *a = l->args;
	int64_t interval = opt_num(a, "flush-interval"), limit = opt_num(a, "give-up-after");
	int64_t capacity = opt_num(a, "capacity"), low = opt_num(a, "low-watermark");
	const char *multiplier = opt_str(a, "backoff-multiplier");
	struct sl_coordinator_opts opts = {
		SL_COORDINATOR_OPTS_INIT,
		.env = &l->cli->env,
		.name = l->source,
		.target = l->target,
		.capacity = capacity ? capacity : opt_num(a, "batch-size") * 2 * opt_num(a, "workers"),
		.workers = (int32_t)opt_num(a, "workers"),
		.batch_size = (int32_t)opt_num(a, "batch-size"),
		.flush_interval_ms = interval ? interval : SL_NONE,
		.high_watermark = opt_num(a, "high-watermark"),
		.low_watermark = opt_given(a, "low-watermark") && !low ? SL_NONE : low,
		.on_backpressure_high = on_high,
		.on_backpressure_low = on_low,
		.backpressure_ctx = l,
		.overflow_strategy = (enum sl_overflow)opt_num(a, "overflow"),
		.retry_policy = {.max_attempts = (int32_t)opt_num(a, "max-attempts"),
				 .first_ms = opt_num(a, "initial-backoff"),
				 .cap_ms = opt_num(a, "max-backoff"),
				 .multiplier = multiplier ? strtod(multiplier, NULL) : 0,
				 .jitter = opt_num(a, "jitter") ? SL_JITTER_OFF : SL_JITTER_DEFAULT},
		.give_up_after_ms = limit ? limit : SL_UNLIMITED,
		.on_returned = on_returned,
		.rate_items = (double)opt_num(a, "rate"),
		.max_bytes = QUEUE_BYTES,
		.dead_letters = l->dead,
		.on_dead = on_dead,
		.dead_ctx = l,
		.wal = l->place.wal};
	struct sl_err err = SL_ERR_INIT;

	l->one_key = l->left = 0;
	if (l->to.opts.n_on_conflict > 0 && l->sink.ops->key) {
		uint64_t first;

		opts.per_key_order = SL_ON;
		if (l->sink.ops->attach(l->sink.ctx, &l->key_lane, &err))
			return cli_fail(l->cli, &err, NULL);
		/* So that it knows the table before anything is read. */
		if (l->sink.ops->key(l->sink.ctx, l->key_lane, "", 0, &first, &err))
			return cli_fail(l->cli, &err, NULL);
	}
	if (sl_coordinator_new(&l->c, &l->sink, &opts, &err))
		return cli_fail(l->cli, &err, NULL);
	loadwatch_begin(&l->watch, l->c);
	return 0;
}

static void add_report(struct load *l, const struct sl_coordinator_report *r)
{
	l->total.accepted += r->accepted;
	l->total.written += r->written;
	l->total.dead += r->dead;
	l->total.dropped += r->dropped;
	l->total.returned += r->returned + r->unknown;
	loadwatch_end(&l->watch, r->written, r->dead);
}

/* Everything that was taken ends as written or dead, however long that takes, or stays in the log. */
static int drain(struct load *l)
{
	struct sl_coordinator_report report = {.struct_size = sizeof(report)};
	struct sl_coordinator_health h = {.struct_size = sizeof(h)};
	struct sl_err err = SL_ERR_INIT;
	int rc, leave;

	leave = l->gave_up != 0;
	while (!leave && sl_coordinator_flush(l->c, LOOK_EVERY_MS) == SL_ETIMEDOUT)
		leave = (sl_coordinator_get_health(l->c, &h) == 0 && may_leave(l, &h)) || gives_up(l);
	rc = sl_coordinator_stop(l->c, leave ? 0 : SL_UNLIMITED, &report, &err);
	add_report(l, &report);
	l->left = leave;
	if (leave && is_taken_over(l, &h))
		cli_say(l->cli, SL_LOG_ERROR, "%s: another run of the same load has taken over; this one has stopped",
			l->in.name);
	if (rc == SL_EPENDING && leave)
		rc = l->gave_up ? l->gave_up : EXIT_INTERRUPTED;
	else if (rc)
		rc = cli_fail(l->cli, &err, NULL);
	if (sl_coordinator_free(l->c)) /* a write has not come back: the process ends under it */
		waiting_abandon(l->cli, rc ? rc : EXIT_INTERNAL);
	l->c = NULL;
	return rc;
}

static int skip_done(struct load *l)
{
	struct sl_err err = SL_ERR_INIT;

	if (!l->place.end)
		return 0;
	cli_say(l->cli, SL_LOG_INFO, "%s: going on at byte %" PRIu64 ", where an earlier run was ended", l->in.name,
		l->place.end);
	if (!l->since_ms || l->place.started_ms < l->since_ms)
		l->since_ms = l->place.started_ms;
	if (l->resume.on) /* the records tell, and what they do not have is in the log: see is_done */
		return 0;
	l->watch.taken += l->place.end;
	if (loadplace_skip(&l->place, l->in.records, &err) == 0)
		return 0;
	if (err.code != SL_EDATA || stop_requested())
		return loadinput_failed(&l->in, &err);
	cli_say(l->cli, SL_LOG_ERROR,
		"%s is not what an earlier run had begun to load: %s; give what it was, or remove %s to load this one "
		"whole",
		l->in.name, err.msg, l->place.path);
	return EXIT_BAD_DATA;
}

/* What is kept for one input only. */
static void forget_keys(struct load *l)
{
	if (l->key_lane && l->sink.ops->detach)
		l->sink.ops->detach(l->sink.ctx, l->key_lane);
	l->key_lane = NULL;
	loadresume_fini(&l->resume);
}

int load_rows(struct load *l)
{
	struct sl_err err = SL_ERR_INIT;
	int rc = skip_done(l), drained;

	if (!rc && l->resume.on && l->place.wal && loadresume_read_log(&l->resume, l->place.wal, &err))
		rc = cli_fail(l->cli, &err, opt_str(l->args, "wal"));
	rc = rc ? rc : start_coordinator(l);
	if (rc) {
		forget_keys(l);
		return rc;
	}
	rc = read_rows(l);
	drained = drain(l);
	forget_keys(l);
	return rc ? rc : drained;
}
