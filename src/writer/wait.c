/* SPDX-License-Identifier: Apache-2.0 */
/* Backpressure, the error state, the end of the loop, and the calls that wait for them. */
#include <errno.h>
#include <sys/eventfd.h>

#include "writer/writer.h"

/* ---- descriptors ---- */

static bool event_holds(const sl_writer *w, enum sl_writer_event event) SL_REQUIRES(w->mu)
{
	bool ended = w->phase == SL__WRITER_ENDED;
	return event == SL_WRITER_ENDED ? ended : !w->pressed || w->failed || ended;
}

/* Make each descriptor readable exactly while its event holds. */
static void update_descriptors(sl_writer *w) SL_REQUIRES(w->mu)
{
	for (unsigned i = 0; i < SL_COUNT(w->fds); i++) {
		eventfd_t n;
		if (w->fds[i] < 0)
			continue;
		(void)eventfd_read(w->fds[i], &n);
		if (event_holds(w, (enum sl_writer_event)i))
			(void)eventfd_write(w->fds[i], 1);
	}
}

int sl_writer_fd(sl_writer *w, enum sl_writer_event event, struct sl_err *err)
{
	if (sl__forked(&w->guard))
		return sl_err_set(err, SL_EFORKED, "writer: used in a forked child");
	if ((unsigned)event >= SL_COUNT(w->fds))
		return sl_err_set(err, SL_EINVAL, "writer %s: %d is not an sl_writer_event", w->name, (int)event);
	int error = 0;
	sl__lock(&w->mu);
	if (w->fds[event] < 0) {
		w->fds[event] = eventfd(event_holds(w, event), EFD_CLOEXEC | EFD_NONBLOCK);
		error = w->fds[event] < 0 ? errno : 0;
	}
	int fd = w->fds[event];
	sl__unlock(&w->mu);
	return fd >= 0 ? fd : sl_err_set_errno(err, error, "writer %s: make a descriptor", w->name);
}

/* ---- backpressure ---- */

static uint64_t backlog_bytes(const sl_writer *w) SL_REQUIRES(w->mu)
{
	uint64_t own = w->queued_bytes + w->in_flight_bytes;
	return w->buffered > UINT64_MAX - own ? UINT64_MAX : own + w->buffered;
}

void sl__writer_press(sl_writer *w)
{
	uint64_t bytes = backlog_bytes(w), blocks = w->queued_blocks + w->in_flight_blocks;
	uint64_t limit = (uint64_t)w->o.backlog_limit_bytes, limit_blocks = (uint64_t)w->o.backlog_limit_blocks;
	if (!w->pressed && (bytes > limit || blocks > limit_blocks)) {
		w->pressed = true;
		update_descriptors(w);
	} else if (w->pressed && bytes <= (uint64_t)w->o.backlog_clear_bytes && blocks <= limit_blocks / 2) {
		w->pressed = false;
		sl__broadcast(&w->clear);
		update_descriptors(w);
	}
}

/* Without pressure one block may come, however large. */
bool sl__writer_overfull(const sl_writer *w, size_t len)
{
	uint64_t bytes = backlog_bytes(w), most = 2 * (uint64_t)w->o.backlog_limit_bytes;
	uint64_t blocks = w->queued_blocks + w->in_flight_blocks;
	return w->pressed && (bytes > most || len > most - bytes || blocks >= 2 * (uint64_t)w->o.backlog_limit_blocks);
}

static int copy_error(const sl_writer *w, struct sl_err *err) SL_REQUIRES(w->mu)
{
	if (!w->failed)
		return 0;
	if (err != NULL)
		*err = w->error;
	return w->error.code;
}

int sl_writer_wait_for_backpressure_clear(sl_writer *w, int64_t timeout_ms, struct sl_err *err)
{
	if (sl__forked(&w->guard))
		return sl_err_set(err, SL_EFORKED, "writer: used in a forked child");
	int64_t until = sl__deadline_ns(&w->env, timeout_ms);
	bool in_time = timeout_ms != 0;
	sl__lock(&w->mu);
	bool own = sl__writer_is_loop(w);
	while (!event_holds(w, SL_WRITER_CLEAR) && in_time && !own)
		in_time = sl__wait(&w->env, &w->clear, &w->mu, until);
	int rc = copy_error(w, err);
	if (rc == 0 && !event_holds(w, SL_WRITER_CLEAR))
		rc = own ? sl_err_set(err, SL_EINVAL, "writer %s: a callback waits for its own thread", w->name)
			 : sl_err_set(err, SL_ETIMEDOUT, "writer %s: timed out waiting for backpressure to clear",
				      w->name);
	sl__unlock(&w->mu);
	return rc;
}

/* ---- the error state and the end ---- */

void sl__writer_fail(sl_writer *w, const struct sl_err *error)
{
	if (w->failed)
		return;
	w->failed = true;
	w->error = *error;
	sl__broadcast(&w->clear);
	update_descriptors(w);
	sl__writer_stir(w);
}

void sl__writer_end(sl_writer *w)
{
	w->phase = SL__WRITER_ENDED;
	w->has_loop = false;
	sl__broadcast(&w->clear);
	sl__broadcast(&w->over);
	update_descriptors(w);
}

int sl_writer_signal_done(sl_writer *w)
{
	if (sl__forked(&w->guard))
		return SL_EFORKED;
	sl__lock(&w->mu);
	w->done = true;
	sl__writer_stir(w);
	sl__unlock(&w->mu);
	return 0;
}

int sl_writer_cancel(sl_writer *w, const struct sl_err *reason)
{
	struct sl_err error = SL_ERR_INIT;
	if (sl__forked(&w->guard))
		return SL_EFORKED;
	if (reason != NULL && reason->code < 0)
		error = *reason;
	else
		(void)sl_err_set(&error, SL_ECANCELLED, "writer %s: cancelled", w->name);
	sl__lock(&w->mu);
	if (w->phase != SL__WRITER_ENDED)
		sl__writer_fail(w, &error);
	sl__unlock(&w->mu);
	return 0;
}

int sl_writer_error(sl_writer *w, struct sl_err *err)
{
	if (sl__forked(&w->guard))
		return sl_err_set(err, SL_EFORKED, "writer: used in a forked child");
	sl__lock(&w->mu);
	int rc = copy_error(w, err);
	sl__unlock(&w->mu);
	return rc;
}

/* ---- run, start, join ---- */

static int begin_run(sl_writer *w, struct sl_err *err)
{
	if (sl__forked(&w->guard))
		return sl_err_set(err, SL_EFORKED, "writer: used in a forked child");
	sl__lock(&w->mu);
	bool fresh = w->phase == SL__WRITER_NEW;
	if (fresh)
		w->phase = SL__WRITER_RUNNING;
	sl__unlock(&w->mu);
	return fresh ? 0 : sl_err_set(err, SL_EINVAL, "writer %s: already run or started", w->name);
}

int sl_writer_run(sl_writer *w, struct sl_err *err)
{
	int rc = begin_run(w, err);
	if (rc != 0)
		return rc;
	sl__writer_loop(w);
	return sl_writer_error(w, err);
}

static void *writer_main(void *arg)
{
	sl__writer_loop(arg);
	return NULL;
}

int sl_writer_start(sl_writer *w, struct sl_err *err)
{
	int rc = begin_run(w, err);
	if (rc != 0)
		return rc;
	/* The thread needs mu to begin, so no caller can see it end before own_thread is set. */
	sl__lock(&w->mu);
	int error = sl__thread_start(&w->thread, w->name, writer_main, w);
	w->own_thread = error == 0;
	if (error != 0)
		w->phase = SL__WRITER_NEW;
	sl__unlock(&w->mu);
	return error == 0 ? 0 : sl__thread_error(err, error, "loop", w->name);
}

int sl_writer_join(sl_writer *w, int64_t timeout_ms, struct sl_err *err)
{
	if (sl__forked(&w->guard))
		return sl_err_set(err, SL_EFORKED, "writer: used in a forked child");
	int64_t until = sl__deadline_ns(&w->env, timeout_ms);
	bool in_time = timeout_ms != 0;
	int rc = 0;
	sl__lock(&w->mu);
	if (w->phase == SL__WRITER_NEW)
		rc = sl_err_set(err, SL_EINVAL, "writer %s: not run or started", w->name);
	else if (sl__writer_is_loop(w))
		rc = sl_err_set(err, SL_EINVAL, "writer %s: a callback waits for its own thread", w->name);
	while (rc == 0 && w->phase == SL__WRITER_RUNNING && in_time)
		in_time = sl__wait(&w->env, &w->over, &w->mu, until);
	if (rc == 0 && w->phase == SL__WRITER_RUNNING)
		rc = sl_err_set(err, SL_ETIMEDOUT, "writer %s: not finished; %llu writes are in flight", w->name,
				(unsigned long long)w->in_flight_blocks);
	/* The loop has ended: its thread is joined once. */
	bool mine = rc == 0 && w->own_thread && !w->joined;
	if (rc == 0) {
		w->joined = true;
		rc = copy_error(w, err);
	}
	sl__unlock(&w->mu);
	if (mine)
		(void)pthread_join(w->thread, NULL);
	return rc;
}
