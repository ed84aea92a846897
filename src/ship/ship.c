/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sl_ship: lines of files and streams, through a log, to a Sluice server or a sink.
 *
 *   files, rotated or not ─▶ lines ─▶ group ─▶ log (durable: now they count as read) ─▶ sender ─▶ server or sink
 *        follow.h                     log.h, state.h                                    send.h
 *
 * The thread of sl_ship_run reads and appends; the log's own thread delivers.
 *
 * Invariants
 *  1. Whenever the process dies, every line is in the log once or will be read again; state.h says why.
 *  2. While the log accepts nothing (its disk or its backlog is full), nothing is read.
 *  3. Nothing wakes the process while nothing happens.
 *  4. `stop` and `wake` are all that other threads and signal handlers touch.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/options.h"
#include "flow/new.h"
#include "ship/follow.h"
#include "ship/send.h"

enum {
	FULL_AGAIN_MS = 200,    /* between two attempts to append to a full log */
	AFTER_STOP_MS = 5000,   /* to deliver what was read before a stop */
	RECORD_MARK_MS = 10000, /* at least, to record in the log what was delivered */
	RETRY_CHECK_MS = 500,   /* the sender pauses after a failure, and nothing wakes this thread then */
	FLUSH_TIMEOUT_MS = 30000,
	OWN_FDS = 3
};
#define TIME_MAX_MS INT64_C(31536000000)

struct sl_ship {
	struct sl_env env; /* first: sl__flow_new */
	struct ship_send to;
	struct ship_log log;
	struct ship_follow from;
	struct pollfd *fds;
	_Atomic bool stop;
	bool stopping; /* a stop was acted upon: stop_fd is not polled any more */
	int full;      /* code of why the log accepts nothing, so that it is logged once; 0: it does */
	bool sending, ran;
	int stop_fd, reopen_fd;
	int64_t flush_timeout_ms, give_up_after_ms;
	sl_ship_progress_fn *on_progress;
	void *ctx;
};

static int64_t now_ms(const sl_ship *s)
{
	return sl__mono_ns(&s->env) / 1000000;
}

/* ---- waiting ---- */

static bool is_stop_requested(sl_ship *s)
{
	struct pollfd fd = {.fd = s->stop_fd, .events = POLLIN};

	if (!s->stop && s->stop_fd > 0 && poll(&fd, 1, 0) > 0)
		s->stop = true;
	return s->stop;
}

static void drain(int fd)
{
	char bytes[512];

	while (read(fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes)) {
	}
}

/* Milliseconds until the target has taken nothing for give_up_after_ms; -1: it takes lines, or is waited for. */
static int64_t patience_ms(const sl_ship *s, const struct ship_progress *p)
{
	if (s->give_up_after_ms == 0 || !p->trouble.code)
		return -1;
	return SL_MAX(s->give_up_after_ms - p->failing_ms, 0);
}

/* Wait until something happens, or timeout_ms. reading: also for something to read. A stop that was requested before
 * ends the wait, unless it was acted upon (s->stopping). */
static void wait_for_event(sl_ship *s, int64_t timeout_ms, bool reading)
{
	struct ship_progress p = sl__ship_send_get(&s->to);
	int64_t patience = patience_ms(s, &p);
	size_t n = OWN_FDS;
	int wait = -1, rc;

	s->fds[0] = (struct pollfd){.fd = s->stopping || s->stop_fd <= 0 ? -1 : s->stop_fd, .events = POLLIN};
	s->fds[1] = (struct pollfd){.fd = s->reopen_fd > 0 ? s->reopen_fd : -1, .events = POLLIN};
	s->fds[2] = (struct pollfd){.fd = s->to.wake, .events = POLLIN};
	if (reading)
		n += sl__ship_follow_fds(&s->from, s->fds + n, &wait);
	if (timeout_ms >= 0 && (wait < 0 || timeout_ms < wait))
		wait = (int)SL_MIN(timeout_ms, INT_MAX);
	if (patience >= 0 && (wait < 0 || patience < wait))
		wait = (int)SL_MIN(patience, INT_MAX);
	rc = poll(s->fds, n, wait);
	if (rc > 0 && s->fds[1].revents) {
		drain(s->reopen_fd);
		sl__ship_follow_reopen(&s->from);
	}
	if (rc > 0 && s->fds[2].revents)
		drain(s->to.wake);
	if (reading && rc >= 0)
		sl__ship_follow_polled(&s->from, s->fds + OWN_FDS, n - OWN_FDS);
	if (s->on_progress != NULL)
		s->on_progress(s, s->ctx);
}

/* ---- reading ---- */

/* A full log may have room later. Logged once. */
static void report_full(sl_ship *s, const struct sl_err *why)
{
	if (s->full == why->code)
		return;
	s->full = why->code;
	if (why->code == SL_EFULL)
		sl__log_text(&s->env, SL_LOG_WARN, "ship",
			     "the log is full of lines that wait for %s; reading continues when it accepts some",
			     s->to.target);
	else
		sl__log_text(&s->env, SL_LOG_WARN, "ship", "%s; reading continues when there is space", why->msg);
}

/* The stream is stopped for good when the receiver has other lines under these sequences. A target that refuses the
 * token or the address will not accept it later: on the first contact that is an error, later after give_up_after_ms.
 * One that is unavailable is waited for from the start. */
static int check_target(sl_ship *s, struct sl_err *err)
{
	struct ship_progress p = sl__ship_send_get(&s->to);
	int why = p.trouble.code, rc = sl_wal_sender_error(s->log.wal, err);
	bool wrong = why == SL_EACCES || why == SL_ECONFIG || why == SL_ENOENT;

	if (rc != 0)
		return sl_err_wrap(err, rc, "%.64s", s->log.id);
	rc = wrong ? SL_ECONFIG : SL_EUNAVAIL;
	if (wrong && !p.answered)
		return sl_err_set(err, rc, "%.100s accepted no line: %.130s", s->to.target, p.trouble.msg);
	if (patience_ms(s, &p) == 0)
		return sl_err_set(err, rc, "%.90s accepted no line for %" PRId64 " s: %.110s", s->to.target,
				  p.failing_ms / 1000, p.trouble.msg);
	return 0;
}

/* Until the input has ended, or a stop. */
static int read_all(sl_ship *s, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	char count[SHIP_COUNT_BYTES];
	bool more = false, any = false;

	while (!is_stop_requested(s)) {
		int rc = sl__ship_log_flush(&s->log, &why); /* what the log did not accept before */

		if (rc == 0)
			rc = sl__ship_follow_read(&s->from, &more, &why);
		if (rc == 0)
			rc = sl__ship_log_flush(&s->log, &why);
		if (rc == SL_EFULL || rc == SL_ENOSPC) {
			report_full(s, &why);
		} else {
			if (rc != 0) {
				if (err != NULL)
					*err = why;
				return rc;
			} else {
				if (s->full)
					sl__log_text(&s->env, SL_LOG_INFO, "ship", "the log accepts lines again");
				s->full = 0;
			}
		}
		rc = check_target(s, err);
		if (rc != 0 || (!s->full && sl__ship_follow_over(&s->from)))
			return rc;
		if (s->full)
			wait_for_event(s, FULL_AGAIN_MS, false);
		else
			wait_for_event(s,
				       more                                     ? 0
				       : sl__ship_send_get(&s->to).trouble.code ? RETRY_CHECK_MS
										: -1,
				       true);
	}

	/* After a stop. What was read of a file can be read again; what was read of a pipe, also a line without its end,
	 * is nowhere else. */
	why = (struct sl_err)SL_ERR_INIT;
	int rc = sl__ship_follow_end_streams(&s->from, &any, &why);

	if (rc == 0 && any)
		rc = sl__ship_log_flush(&s->log, &why);
	if (rc == 0)
		return 0;
	if (err != NULL)
		*err = why;
	return sl_err_set(err, rc, "%.150s; %s that had been read did not fit; lines of a pipe are lost", why.msg,
			  sl__ship_count(count, s->log.n - s->log.done));
}

/* ---- the end ---- */

/* The target's mark arrives before the log has recorded it. */
static bool is_delivered(sl_ship *s)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};

	return sl_wal_get_stats(s->log.wal, &stats, NULL) || stats.pending == 0 ||
	       sl__ship_send_get(&s->to).mark >= stats.last_sequence;
}

/* Until all is delivered; given up after a stop, or when nothing was delivered for flush_timeout_ms. */
static int await_delivery(sl_ship *s, struct sl_err *err)
{
	int64_t now = now_ms(s), moved = now, began = now;
	uint64_t before = sl__ship_send_get(&s->to).delivered;

	s->stopping = is_stop_requested(s);
	while (!is_delivered(s)) {
		int64_t left = s->flush_timeout_ms - (now - moved);
		struct ship_progress p;
		int rc;

		if (is_stop_requested(s) && !s->stopping)
			break; /* the first one, after the end of the input: the rest is safe */
		if (s->stopping)
			left = SL_MIN(left, AFTER_STOP_MS - (now - began));
		if (left <= 0)
			break;
		if (sl__ship_send_get(&s->to).trouble.code)
			left = SL_MIN(left, RETRY_CHECK_MS);
		wait_for_event(s, left, false);
		now = now_ms(s);
		p = sl__ship_send_get(&s->to);
		if (p.delivered != before)
			moved = now;
		before = p.delivered;
		rc = check_target(s, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int sl_ship_run(sl_ship *s, struct sl_err *err)
{
	struct sl_ship_stats stats = {.struct_size = sizeof(stats)};
	struct sl_err failed = SL_ERR_INIT;
	char count[SHIP_COUNT_BYTES];
	int64_t deadline_ms;
	int rc, stopped;

	if (s->ran)
		return sl_err_set(err, SL_EINVAL, "sl_ship_run was called before");
	s->ran = true;
	rc = read_all(s, &failed);
	if (rc == 0)
		rc = await_delivery(s, &failed);
	/* When all is delivered, it only has to be recorded; where the mark was of another log's lines, ours are sent
	 * now. */
	deadline_ms = is_delivered(s) ? SL_MAX(s->flush_timeout_ms, (int64_t)RECORD_MARK_MS) : 0;
	stopped = sl_wal_sender_stop(s->log.wal, deadline_ms, rc != 0 ? NULL : &failed);
	s->sending = false;
	if (rc == 0 && stopped != SL_EPENDING)
		rc = stopped;
	if (rc == 0)
		rc = sl_ship_get_stats(s, &stats, &failed);
	if (rc != 0) {
		if (err != NULL)
			*err = failed;
		return rc;
	}
	if (stats.pending)
		return sl_err_set(err, SL_EPENDING, "%s left in %.80s/%.40s.wal for the next run%s%.80s",
				  sl__ship_count(count, stats.pending), s->log.dir, s->log.id,
				  stats.trouble.code ? ": " : "", stats.trouble.code ? stats.trouble.msg : "");
	if (s->stop && !s->from.follow && !sl__ship_follow_over(&s->from))
		return sl_err_set(err, SL_ECANCELLED, "stopped before the end of the input");
	return 0;
}

void sl_ship_stop(sl_ship *s)
{
	uint64_t one = 1;
	int saved = errno;

	s->stop = true;
	(void)!write(s->to.wake, &one, sizeof(one));
	errno = saved;
}

/* ---- open and close ---- */

static int check_opts(const struct sl_ship_opts *o, struct sl_err *err)
{
	const struct sl__range ranges[] = {
		{"max_pending_bytes", o->max_pending_bytes, 0, INT64_MAX},
		{"flush_timeout_ms", o->flush_timeout_ms, SL_NONE, TIME_MAX_MS},
		{"give_up_after_ms", o->give_up_after_ms, 0, TIME_MAX_MS},
		{"input", o->input, SL_SHIP_LINES, SL_SHIP_JSON},
		{"body", o->body, SL_HTTP_JSON_LINES, SL_HTTP_CLOUD_EVENTS},
	};

	if (o->to == NULL)
		return sl_err_set(err, SL_EINVAL, "to: missing");
	if (o->wal_dir == NULL)
		return sl_err_set(err, SL_EINVAL, "wal_dir: missing");
	if (o->paths == NULL || !o->n_paths)
		return sl_err_set(err, SL_EINVAL, "paths: give at least one");
	if (o->stream != NULL && strlen(o->stream) >= sizeof(((struct ship_log *)0)->id))
		return sl_err_set(err, SL_EINVAL, "stream: the name is too long");
	return sl__check_ranges("ship", ranges, SL_COUNT(ranges), err);
}

/* Also of a handle that is not completely open. */
int sl_ship_close(sl_ship *s, struct sl_err *err)
{
	int rc = 0;

	if (s == NULL)
		return 0;
	if (s->sending)
		rc = sl_wal_sender_stop(s->log.wal, 0, NULL); /* what is pending stays in the log */
	sl__ship_follow_close(&s->from);
	rc = sl__ship_log_close(&s->log, err);
	sl__ship_send_close(&s->to);
	sl__free(&s->env, s->fds);
	sl__flow_free(s);
	return rc;
}

int sl_ship_open(sl_ship **out, const struct sl_ship_opts *opts, struct sl_err *err)
{
	struct sl_ship_opts o;
	int rc;

	sl__opts_copy(&o, sizeof(o), opts);
	rc = check_opts(&o, err);
	if (rc != 0)
		return rc;
	sl_ship *s = sl__flow_new(sizeof(*s), o.env, "ship", &rc, err);

	if (s == NULL)
		return rc;
	*s = (struct sl_ship){.env = s->env,
			      .to.wake = -1,
			      .stop_fd = o.stop_fd,
			      .reopen_fd = o.reopen_fd,
			      .flush_timeout_ms = o.flush_timeout_ms == SL_NONE
							  ? 0
							  : sl__or_default(o.flush_timeout_ms, FLUSH_TIMEOUT_MS),
			      .give_up_after_ms = o.give_up_after_ms,
			      .on_progress = o.on_progress,
			      .ctx = o.ctx};
	rc = sl__ship_send_open(&s->to, &s->env, &o, err);
	if (rc != 0)
		goto fail;
	rc = sl__ship_send_check(&s->to, err);
	if (rc != 0)
		goto fail;
	rc = sl__ship_log_open(&s->log, &s->env, &o, s->to.target, err);
	if (rc != 0)
		goto fail;
	rc = sl__ship_follow_open(&s->from, &s->env, &s->log, &o, err);
	if (rc != 0)
		goto fail;
	s->fds = sl__calloc(&s->env, sl__ship_follow_fds_max(&s->from) + OWN_FDS, sizeof(*s->fds));
	if (s->fds == NULL) {
		rc = sl__no_memory(err, "ship");
		goto fail;
	}
	rc = sl__ship_send_start(&s->to, s->log.wal, s->log.id, s->log.pending, err);
	if (rc != 0)
		goto fail;
	s->sending = true;
	*out = s;
	return 0;
fail:
	(void)!sl_ship_close(s, NULL);
	return rc;
}

/* ---- statistics ---- */

int sl_ship_get_stats(sl_ship *s, struct sl_ship_stats *out, struct sl_err *err)
{
	struct sl_wal_stats wal = {.struct_size = sizeof(wal)};
	struct ship_progress p = sl__ship_send_get(&s->to);
	int rc = sl_wal_get_stats(s->log.wal, &wal, err);

	if (rc != 0)
		return rc;
	struct sl_ship_stats stats = {.read = s->log.lines,
				      .delivered = p.delivered,
				      .pending = wal.pending,
				      .refused = wal.parked,
				      .cut = s->from.cut,
				      .trouble = p.trouble};

	sl__result_copy(out, &stats, sizeof(stats));
	return 0;
}

const char *sl_ship_target(const sl_ship *s)
{
	return s->to.target;
}

const char *sl_ship_stream(const sl_ship *s)
{
	return s->log.id;
}
