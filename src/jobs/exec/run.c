/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One command, from its start to its last event.
 *
 * The attempt's thread sleeps until the minder has put something into the spool, reads it, and collects events for a
 * few milliseconds, so that a short command costs one append and a chatty one few. After every append that succeeded
 * the spool's header records how far the log has come; when the worker is killed between the two, the recovery finds it
 * out by reading the log.
 *
 * R1  The header is in the spool before the minder gets the message to start.
 * R2  The header gets its DONE flag only after the last events are durable. They are durable before the attempt is
 *     ended, or, where the worker waits for their ticket, before the job is settled: a slot can start its next command
 *     meanwhile.
 * R3  When a batch needs several flushes, each part is written to the header before the next is submitted: a part that
 *     is in the log may be sent and archived before the rest is retried, and could not be found there any more.
 * R4  When an append fails, the command is ended, everything is captured, and the spool is left to a recovery.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jobs/exec/priv.h"

#include "base/child.h"

#define GATHER_NS ((int64_t)10 * 1000000)       /* events wait this long for others */
#define GATHER_START_NS ((int64_t)50 * 1000000) /* when the start is the only event */
#define BATCH_BYTES ((size_t)512 * 1024)
#define BATCH_EVENTS 4096
#define PUNCH_BYTES ((uint64_t)4 << 20) /* of the spool, consumed, are freed together */
#define KEEP_BYTES ((uint64_t)1 << 20)  /* a spool that grew larger is cut before it is used again */
#define RESCUE_NS ((int64_t)2000 * 1000000)
#define MINDER_SLACK_NS ((int64_t)10000 * 1000000) /* then a minder that does not respond is killed */
#define SETTLE_CHECK_MS 100                        /* how often a running attempt checks those that have ended */
#define NOWHERE (UINT64_MAX / 2)

struct follow {
	sl_exec *x;
	const struct sl__exec_ops *ops;
	sl_attempt *attempt;
	struct sl__minder *m;
	struct sl__capture *capture;
	struct sl__spool_header header;
	struct sl__spool_reader reader;
	int pipes[SL__STREAMS]; /* read ends of our own, for the death of the minder */
	int abort_fd;
	bool ended;       /* the minder reported it, or is dead */
	bool aborted;     /* the attempt is, and the command is being ended */
	bool terminating; /* the minder got the message to end the command */
	bool minder_killed;
	int64_t pending_ns; /* when the oldest event in the batch was made */
	int64_t give_up_ns; /* when the minder must have ended it */
	uint64_t punched;
	bool settles; /* the last events are submitted, with this ticket */
	struct sl_wal_ticket ticket;
	int failed; /* the code of `failure`; 0: none */
	struct sl_err failure;
};

/* ---- start ---- */

static int open_spool(struct follow *f, const struct sl_job *job, struct sl_err *err)
{
	sl_exec *x = f->x;
	struct sl__minder_shared *sh = f->m->shared;
	if (atomic_load(&sh->end) > KEEP_BYTES) {
		int rc = SL__IO(&x->env, truncate, f->m->spool, 0);
		if (rc < 0)
			return sl_err_set_errno(err, -rc, "cut %s", f->m->path);
	}
	sl__lock(&x->mu);
	uint32_t salt = (uint32_t)(sl__prng_next(&x->prng) >> 32);
	sl__unlock(&x->mu);
	f->header = (struct sl__spool_header){.salt = salt,
					      .job_id = job->id,
					      .attempt = job->attempt,
					      .claim = f->ops->claim(f->attempt),
					      .incarnation = x->incarnation,
					      .sequence = atomic_load(&x->sequence),
					      .max_line_bytes = (uint64_t)x->max_line_bytes,
					      .resume.offset = SL__SPOOL_START};
	uint8_t bytes[SL__SPOOL_HEADER + SL_WAL_SEALED_KEY_BYTES];
	size_t n = SL__SPOOL_HEADER;
	sh->sealed = x->sealed;
	if (x->sealed) {
		/* A key of this attempt, kept next to the header. */
		int rc = x->env.rand->fill(sh->key, sizeof(sh->key), x->env.rand_ctx);
		if (rc != 0)
			return sl_err_set_errno(err, -rc, "draw a key for %s", f->m->path);
		rc = sl_wal_seal_key(x->events, sh->key, bytes + SL__SPOOL_KEY_AT, err);
		if (rc != 0)
			return rc;
		atomic_store(&sh->n_sealed, 0);
		f->header.flags = SL__SPOOL_SEALED;
		f->reader.key = sh->key;
		n += SL_WAL_SEALED_KEY_BYTES;
	}
	sh->salt = salt;
	sh->kill_grace_ms = x->kill_grace_ms;
	atomic_store(&sh->end, SL__SPOOL_START);
	atomic_store(&sh->consumed, SL__SPOOL_START);
	atomic_store(&sh->want_poke, 0);
	atomic_store(&sh->stalled, 0);
	atomic_store(&sh->chunk_len, 0);
	f->punched = SL__SPOOL_START;
	f->reader.env = &x->env;
	f->reader.fd = f->m->spool;
	f->reader.salt = salt;
	f->reader.at = SL__SPOOL_START;
	sl__spool_put_header(bytes, &f->header);
	int rc = sl__pwrite_full(&x->env, f->m->spool, bytes, n, 0);
	return rc < 0 ? sl_err_set_errno(err, -rc, "write %s", f->m->path) : 0;
}

/* stdin with the text, then the write ends, then the read ends, which do not block. On failure nothing is open. */
static int make_descriptors(const sl_exec *x, const char *text, int fds[SL__MINDER_FDS], struct sl_err *err)
{
	int rc = 0;
	memset(fds, 0xFF, sizeof(*fds) * SL__MINDER_FDS); /* -1 each */
	fds[0] = sl__child_input("sluice-input", text, strlen(text));
	if (fds[0] < 0)
		return sl_err_set_errno(err, -fds[0], "input of a command");
	for (int i = 0; i < SL__STREAMS && rc == 0; i++) {
		int pair[2];
		if (pipe2(pair, O_CLOEXEC) != 0) {
			rc = sl_err_set_errno(err, errno, "pipe of a command");
			break;
		}
		fds[1 + i] = pair[1];
		fds[4 + i] = pair[0];
		(void)fcntl(pair[0], F_SETFL, O_NONBLOCK);
		/* A command that opens /dev/stdout needs permission for the pipe, which is this user's. Only a process
		 * that may read /proc/<pid>/fd of the command reaches it. */
		if (x->user != NULL)
			(void)fchmod(pair[1], 0666);
	}
	if (rc != 0)
		sl__exec_close_all(fds, SL__MINDER_FDS);
	return rc;
}

/* Everything up to the message that starts it. SL_ECLOSED: this minder is dead, try another. */
static int start_command(struct follow *f, const struct sl_job *job, struct sl_err *err)
{
	const char *text = "";
	int fds[SL__MINDER_FDS];
	int rc = sl__launch_prepare(f->x, f->m->shared, job, &text, err);
	if (rc == 0)
		rc = open_spool(f, job, err); /* R1 */
	if (rc == 0)
		rc = make_descriptors(f->x, text, fds, err);
	if (rc != 0)
		return rc;
	bool sent = sl__minder_run(f->m, fds);
	memcpy(f->pipes, fds + 4, sizeof(f->pipes));
	sl__exec_close_all(fds, 4);
	if (sent)
		return 0;
	sl__exec_close_all(f->pipes, SL__STREAMS);
	return sl_err_set(err, SL_ECLOSED, "a minder process has died");
}

/* ---- the log ---- */

/* R3. If the header cannot be written, a recovery only reads more of the log. */
static void save_part(size_t n, uint64_t last, void *ctx)
{
	struct follow *f = ctx;
	sl__capture_note_part(f->capture, n, &f->header);
	f->header.sequence = last;
	sl__exec_saw(f->x, last);
	(void)!sl__minder_write_header(f->x, f->m, &f->header, NULL);
}

static int append_batch(struct follow *f, bool last, struct sl_err *err)
{
	struct sl__capture *c = f->capture;
	uint64_t sequence = f->header.sequence;
	const struct sl__event_log to = {f->x->events, save_part, f};
	int rc = sl__event_batch_append(&c->batch, &to, &sequence, err);
	if (rc != 0)
		return rc;
	sl__capture_note(c, &f->header);
	f->header.sequence = sequence;
	f->header.flags |= last ? SL__SPOOL_DONE : 0;
	sl__exec_saw(f->x, sequence);
	/* If the header cannot be written, a recovery only reads more of the log, unless it is the last. */
	rc = sl__minder_write_header(f->x, f->m, &f->header, err);
	if (rc != 0 && last)
		return rc;
	for (size_t i = 0; f->x->tap != NULL && i < c->batch.n; i++) {
		struct sl_event event;
		sl__event_batch_get(&c->batch, i, &event);
		f->x->tap(&event, f->x->tap_ctx);
	}
	sl__event_batch_clear(&c->batch);
	/* Free what is consumed. Where a filesystem has no holes, the spool only stays longer. */
	uint64_t consumed = f->header.resume.offset;
	if (!last && consumed >= f->punched + PUNCH_BYTES) {
		(void)fallocate(f->m->spool, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)f->punched,
				(off_t)(consumed - f->punched));
		f->punched = consumed;
	}
	return 0;
}

/* ---- following ---- */

static void terminate_command(struct follow *f)
{
	if (f->terminating)
		return;
	f->terminating = true;
	sl__minder_send(f->m, 'T');
	f->give_up_ns = sl__exec_now_ns() + f->x->kill_grace_ms * 1000000 + MINDER_SLACK_NS;
}

/* R4. Nothing is read any more, so that all room is the minder's. The worker is notified before the command has ended:
 * until then it would claim more. */
static void stop_following(struct follow *f, int rc, const struct sl_err *why)
{
	if (f->failed == 0) {
		f->failed = rc;
		f->failure = *why;
		if (f->ops->unlogged != NULL)
			f->ops->unlogged(f->attempt, why);
	}
	atomic_store(&f->m->shared->consumed, NOWHERE);
	if (!f->ended)
		terminate_command(f);
}

static void flush_batch(struct follow *f)
{
	struct sl_err why = SL_ERR_INIT;
	int rc = append_batch(f, false, &why);
	if (rc != 0)
		stop_following(f, rc, &why);
}

/* Read what the minder has written so far. */
static void consume_spool(struct follow *f)
{
	struct sl__minder_shared *sh = f->m->shared;
	struct sl__event_batch *batch = &f->capture->batch;
	f->reader.limit = atomic_load_explicit(&sh->end, memory_order_acquire);
	while (f->failed == 0 && f->reader.at < f->reader.limit) {
		struct sl_err why = SL_ERR_INIT;
		struct sl__frame frame;
		bool was_empty = batch->n == 0;
		int rc = sl__spool_next(&f->reader, &frame);
		if (rc < 0)
			rc = sl_err_set_errno(&why, -rc, "read %s", f->m->path);
		else if (rc == 0)
			rc = sl_err_set(&why, SL_ECORRUPT, "%s: a frame is damaged at %llu", f->m->path,
					(unsigned long long)f->reader.at);
		else
			rc = sl__capture_frame(f->capture, &frame, &why);
		if (rc != 0) {
			stop_following(f, rc, &why);
			break;
		}
		if (was_empty && batch->n > 0 && frame.kind != SL__FRAME_STARTED)
			f->pending_ns = sl__exec_now_ns();
		if (batch->bytes.len >= BATCH_BYTES || batch->n >= BATCH_EVENTS)
			flush_batch(f);
	}
	if (f->failed == 0)
		atomic_store(&sh->consumed, f->reader.at);
	if (atomic_exchange(&sh->stalled, 0) != 0)
		sl__minder_send(f->m, 'C');
}

/* When the batch is to be appended; also when to check for the start of the command, which is not signalled. */
static int64_t flush_at(const struct follow *f)
{
	const struct sl__capture *c = f->capture;
	if (f->failed != 0)
		return SL_FOREVER;
	if (c->batch.n == 0)
		return f->reader.at == SL__SPOOL_START ? f->pending_ns + GATHER_START_NS : SL_FOREVER;
	bool only_start = c->batch.n == 1 && c->place.position[SL__STDOUT] + c->place.position[SL__STDERR] == 0;
	return f->pending_ns + (only_start ? GATHER_START_NS : GATHER_NS);
}

/* Sleep until there is something to do: output, the end, an abort or a deadline. */
static void wait_for_event(struct follow *f)
{
	struct sl__minder_shared *sh = f->m->shared;
	struct pollfd p[2] = {{.fd = f->m->ctl, .events = POLLIN},
			      {.fd = f->aborted ? -1 : f->abort_fd, .events = POLLIN}};
	/* While events gather, only the end is worth waking up for. */
	if (f->capture->batch.n == 0 && f->failed == 0) {
		atomic_store(&sh->want_poke, 1);
		if (atomic_load(&sh->end) > f->reader.at)
			return;
	}
	int64_t give_up_ns = f->minder_killed ? SL_FOREVER : f->give_up_ns;
	int64_t at = SL_MIN(flush_at(f), give_up_ns);
	int64_t timeout_ms = atomic_load(&f->x->n_settling) > 0 ? SETTLE_CHECK_MS : -1;
	if (at != SL_FOREVER) {
		int64_t left = SL_MIN(SL_MAX((at - sl__exec_now_ns() + 999999) / 1000000, 0), INT32_MAX);
		timeout_ms = timeout_ms < 0 ? left : SL_MIN(timeout_ms, left);
	}
	if (poll(p, 2, (int)timeout_ms) < 0)
		return;
	if (p[0].revents != 0) {
		char what = 0;
		ssize_t got = recv(f->m->ctl, &what, 1, MSG_DONTWAIT);
		if (got == 1 && what == 'E')
			f->ended = true;
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
			f->ended = f->m->dead = true;
	}
	if (p[1].revents != 0) {
		f->aborted = true;
		terminate_command(f);
	}
	/* The minder is stopped, or blocked by a failing disk: after its death this can continue. */
	if (sl__exec_now_ns() >= give_up_ns && !f->ended) {
		(void)kill(f->m->pid, SIGKILL);
		f->minder_killed = true;
	}
}

/* ---- the end ---- */

/* The error event for an end that the frames do not show; NULL: none. */
static const char *describe_end(const struct follow *f, char out[256])
{
	const struct sl__capture *c = f->capture;
	if (c->failed)
		(void)snprintf(out, 256, "cannot %s: %s",
			       c->spawn_step == SL__SPAWN_CHDIR  ? "change to its folder"
			       : c->spawn_step == SL__SPAWN_EXEC ? "execute it"
			       : c->spawn_step == SL__SPAWN_USER ? "change to its user"
								 : "start it",
			       strerrordesc_np((int)c->spawn_errno));
	else if (f->m->dead)
		(void)snprintf(out, 256, "the command's minder process died; the command was killed");
	else if (f->aborted)
		(void)snprintf(out, 256, "the attempt was aborted: %s",
			       sl_abort_reason_name(f->ops->aborted(f->attempt)));
	else if (!c->exited)
		(void)snprintf(out, 256, "no space for the spool: the end of the output is lost");
	else
		return NULL;
	return out;
}

static int finish_command(struct follow *f, struct sl_err *err)
{
	struct sl__event_batch *batch = &f->capture->batch;
	const struct sl__event_log to = {f->x->events, save_part, f};
	char text[256];
	int rc;
	if (f->m->dead) {
		/* End the command, and read what the pipes still hold into the spool. */
		struct sl__pump pump = {.shared = f->m->shared, .spool = f->m->spool};
		int64_t until = sl__exec_now_ns() + RESCUE_NS;
		pid_t pid = atomic_load(&f->m->shared->pid);
		memcpy(pump.pipes, f->pipes, sizeof(pump.pipes));
		if (pid > 0)
			(void)kill(-pid, SIGKILL);
		rc = sl__pump_rescue(&pump);
		while (rc == 0 && sl__pump_open(&pump) && sl__exec_now_ns() < until) {
			struct pollfd p[SL__STREAMS];
			for (int i = 0; i < SL__STREAMS; i++)
				p[i] = (struct pollfd){.fd = pump.pipes[i], .events = POLLIN};
			(void)poll(p, SL__STREAMS, 100);
			for (int i = 0; i < SL__STREAMS && rc == 0; i++)
				if (pump.pipes[i] >= 0)
					rc = sl__pump_read(&pump, (enum sl__stream)i, NULL);
		}
		memcpy(f->pipes, pump.pipes, sizeof(f->pipes));
	}
	sl__exec_close_all(f->pipes, SL__STREAMS);
	consume_spool(f);
	if (f->failed != 0) {
		if (err != NULL)
			*err = f->failure;
		return f->failed;
	}
	rc = sl__capture_end(f->capture, describe_end(f, text), err);
	if (rc != 0)
		return rc;
	/* The last events: the worker waits for them before it settles the job, or we do (R2). */
	if (f->ops->emitted == NULL || f->x->tap != NULL || batch->n == 0)
		return append_batch(f, true, err);
	rc = sl__event_batch_submit(batch, &to, &f->ticket, err);
	if (rc != 0)
		return rc;
	rc = f->ops->emitted(f->attempt, &f->ticket, err);
	if (rc != 0) {
		/* A recovery reads what is in the log: nothing may be pending. */
		(void)!sl_wal_wait(f->x->events, &f->ticket, SL_UNLIMITED, NULL);
		return rc;
	}
	sl__capture_note(f->capture, &f->header);
	f->settles = true;
	return 0;
}

static void show_progress(const char *json, void *ctx)
{
	struct follow *f = ctx;
	/* A progress that cannot be stored is no reason to fail: its event is in the log. */
	(void)!f->ops->progress(f->attempt, json, NULL);
}

int sl__exec_run(sl_exec *x, const struct sl__exec_ops *ops, sl_attempt *attempt, struct sl__exec_result *r,
		 struct sl_err *err)
{
	struct follow f = {.x = x,
			   .ops = ops,
			   .attempt = attempt,
			   .capture = &r->capture,
			   .pipes = {-1, -1, -1},
			   .give_up_ns = SL_FOREVER};
	const struct sl_job *job = ops->job(attempt);
	/* Minders that were killed while idle are found one by one, and a new one is alive. */
	int rc = SL_ECLOSED;
	for (int tries = 0; rc == SL_ECLOSED && tries < 1000; tries++) {
		rc = sl__minder_acquire(x, &f.m, err);
		if (rc == 0)
			rc = start_command(&f, job, err);
		if (rc == SL_ECLOSED) {
			sl__minder_release(x, f.m);
			f.m = NULL;
		}
	}
	sl__capture_init(&r->capture, &x->env, &f.header);
	if (rc != 0) {
		if (f.m != NULL)
			sl__minder_release(x, f.m);
		return rc;
	}
	f.abort_fd = ops->abort_fd(attempt, NULL);
	r->capture.on_progress = show_progress;
	r->capture.ctx = &f;
	f.reader.buf = sl__alloc(&x->env, SL__SPOOL_BUF);
	if (f.reader.buf == NULL || f.abort_fd < 0) {
		(void)sl_err_set(&f.failure, SL_ENOMEM, "follow a command: no memory, or no descriptor");
		stop_following(&f, SL_ENOMEM, &f.failure);
	}
	f.pending_ns = sl__exec_now_ns();
	while (!f.ended) {
		consume_spool(&f);
		if (sl__exec_now_ns() >= flush_at(&f)) {
			if (r->capture.batch.n > 0)
				flush_batch(&f);
			f.pending_ns = sl__exec_now_ns();
		}
		wait_for_event(&f);
		if (atomic_load(&x->n_settling) > 0)
			sl__minder_settled(x, false);
	}
	rc = finish_command(&f, err);
	r->reported = f.failed != 0;
	r->aborted = f.aborted;
	r->minder_died = f.m->dead;
	r->capture.on_progress = NULL;
	r->capture.ctx = NULL;
	sl__free(&x->env, f.reader.buf);
	if (rc != 0)
		sl__minder_retire(x, f.m);
	else if (f.settles)
		sl__minder_settle(x, f.m, &f.ticket, &f.header);
	else
		sl__minder_release(x, f.m);
	return rc;
}
