/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One input of a load: its records through a coordinator. A coordinator for each, so that a dead letter names its file
 * and line. What must stay true:
 *  1. Every record of the input is accepted by the coordinator or in the dead letters before the place behind it is
 *     noted (loadplace.h); so a run that is cut off is taken up without a loss.
 *  2. After the first signal nothing more is read, and what was read is written; with a log it may stay there instead
 *     while the target is away. The second signal ends the command by itself, whatever it does.
 */
#include "load.h"
#include "stop.h"
#include "waiting.h"

#include <inttypes.h>
#include <poll.h>

enum { CHUNK = 1024, FIRST_BYTES = 4096, LOOK_EVERY_MS = 100, ROOM_EVERY_MS = 5, QUEUE_BYTES = 64 << 20 };

/* ---- records that are none ---- */

/* Durable before reading goes on. Of what is too long only the beginning is kept; the code tells (dlq redrive must not
 * take it for the record). */
static int put_bad(struct load *l, const struct sl_record *r, const char *why, int code)
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
	return sl_dlq_put(l->dead, &letter, NULL, &err) ? cli_fail(l->cli, &err, opt_str(l->args, "dead-letters")) : 0;
}

/* More than a line end is missing from what is kept of it. */
static int is_cut(const struct sl_record *r)
{
	return r->end - r->offset > r->len + 2;
}

/* ---- rows ---- */

/* What was taken could not be written for now, and is safe in the log. */
static int may_leave(const struct load *l, const struct sl_coordinator_health *h)
{
	return stop_requested() && l->place.wal && h->breaker != SL_BREAKER_CLOSED;
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
		poll(&stop, stop_requested() ? 0 : 1, ROOM_EVERY_MS);
	}
	*n = fit;
	return 0;
}

/* The log takes less than a record may have. */
static int put_too_long(struct load *l, const struct sl_item *item)
{
	struct sl_record r = {.data = item->data, .len = item->len, .line = item->position};

	return put_bad(l, &r, "longer than a record of the log may be", SL_ETOOBIG);
}

/* Hand n rows over, however long the target takes. */
static int submit(struct load *l, const struct sl_item *items, size_t n)
{
	struct sl_err err = SL_ERR_INIT;
	size_t done = 0, now;

	while (done < n) {
		size_t fit = n - done;
		int rc = wait_for_room(l, items + done, &fit);

		if (rc)
			return rc;
		rc = sl_coordinator_submit_many(l->c, items + done, fit, l->place.wal ? LOOK_EVERY_MS : SL_UNLIMITED,
						&now);
		done += now;
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

static int take_chunk(struct load *l, const struct sl_record *records, size_t n)
{
	struct sl_item items[CHUNK];
	size_t good = 0;
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		const struct sl_record *r = &records[i];

		if (!r->bad)
			items[good++] = (struct sl_item){.data = r->data, .len = r->len, .position = r->line};
		else if ((rc = put_bad(l, r, r->bad, is_cut(r) ? SL_ETOOBIG : SL_EDATA)))
			return rc;
	}
	rc = submit(l, items, good);
	if (rc)
		return rc;
	l->read += n;
	l->watch.taken += records[n - 1].end - records[0].offset;
	return loadplace_note(&l->place, l->cli, records, n);
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
		if (n == 0)
			return 0;
		rc = take_chunk(l, records, n);
		if (rc)
			return rc;
	}
}

/* ---- the coordinator ---- */

static int start_coordinator(struct load *l)
{
	const struct parsed *a = l->args;
	int64_t interval = opt_num(a, "flush-interval");
	struct sl_coordinator_opts opts = {SL_COORDINATOR_OPTS_INIT,
					   .env = &l->cli->env,
					   .name = l->source,
					   .target = l->target,
					   .capacity = opt_num(a, "batch-size") * 2 * opt_num(a, "workers"),
					   .workers = (int32_t)opt_num(a, "workers"),
					   .batch_size = (int32_t)opt_num(a, "batch-size"),
					   .flush_interval_ms = interval ? interval : SL_NONE,
					   .overflow_strategy = (enum sl_overflow)opt_num(a, "overflow"),
					   .rate_items = (double)opt_num(a, "rate"),
					   .max_bytes = QUEUE_BYTES,
					   .dead_letters = l->dead,
					   .wal = l->place.wal};
	struct sl_err err = SL_ERR_INIT;

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
	int rc, leave = 0;

	while (!leave && sl_coordinator_flush(l->c, LOOK_EVERY_MS) == SL_ETIMEDOUT)
		leave = sl_coordinator_get_health(l->c, &h) == 0 && may_leave(l, &h);
	rc = sl_coordinator_stop(l->c, leave ? 0 : SL_UNLIMITED, &report, &err);
	add_report(l, &report);
	if (rc == SL_EPENDING && leave)
		rc = EXIT_INTERRUPTED;
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
	l->watch.taken += l->place.end;
	if (!l->since_ms || l->place.started_ms < l->since_ms)
		l->since_ms = l->place.started_ms;
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

int load_rows(struct load *l)
{
	int rc = skip_done(l), drained;

	rc = rc ? rc : start_coordinator(l);
	if (rc)
		return rc;
	rc = read_rows(l);
	drained = drain(l);
	return rc ? rc : drained;
}
