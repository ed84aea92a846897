/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs of the simulation: a list of records of which a prefix is durable. Handlers submit events (the real encoding),
 * flushes make them durable or fail, a killed worker leaves what it had written, and another one, or the next of its
 * name, opens that and continues. The rules are those of <sluice/wal.h>: a flush that fails takes everything with it
 * that was submitted before its failure, and those sequences are given again; what is durable stays.
 */
#include "jobs/sim_priv.h"

#include <stdlib.h>

#include "base/crc64nvme.h"
#include "jobs/events/events.h"

/* ---- records ---- */

static void *grown(void *items, size_t n, size_t *cap, size_t size)
{
	if (n < *cap)
		return items;
	*cap = *cap * 2 + 16;
	void *p = realloc(items, *cap * size);
	if (p == NULL)
		abort();
	return p;
}

static void add_record(struct sim *sim, struct sim_log *log, const void *bytes, size_t len, uint32_t line)
{
	void *copy = sim_keep(sim, len);
	memcpy(copy, bytes, len);
	log->records = grown(log->records, log->n, &log->cap, sizeof(*log->records));
	log->records[log->n++] = (struct sim_record){.bytes = copy,
						     .len = len,
						     .crc = sl__crc64nvme(0, bytes, len),
						     .line = line,
						     .flush = log->open_flush,
						     .before = log->state};
}

static void all_durable(struct sim *sim, struct sim_log *log, size_t n)
{
	for (; log->durable < n; log->durable++)
		sim->lines[log->records[log->durable].line].durable = true;
}

/* Discard the records after the first n, as if they had never been submitted. */
static void cut(struct sim *sim, struct sim_log *log, size_t n)
{
	for (size_t i = n; i < log->n; i++)
		sim->lines[log->records[i].line].gone = true;
	sim->report->lost_lines += log->n - n;
	log->n = n;
	if (log->durable > n)
		log->durable = n;
}

/* ---- flushes ---- */

static void begin_flush(struct sim *sim, const struct sim_event *ev);

static void plan_flush(struct sim *sim, struct sim_log *log)
{
	if (log->flush_planned || log->running_flush != 0)
		return;
	log->flush_planned = true;
	sim_at(sim, sim->now_ns + sim_range(sim, 0, 500) * 1000, begin_flush, &sim->workers[log->holder])->which =
		(uint64_t)log->index;
}

static void fail_flush(struct sim *sim, struct sim_log *log)
{
	for (uint32_t b = log->running_flush; b <= log->open_flush; b++)
		log->outcomes[b] = 2;
	log->open_flush++;
	cut(sim, log, log->durable);
	sim_trace(sim, "the log %s fails to sync", log->state.stream->name);
}

/* Lanes that waited for it continue. */
static void wake_lanes(struct sim *sim, struct sim_worker *w)
{
	for (int i = 0; i < sim->k.lanes; i++)
		if (w->lanes[i].flushing) {
			w->lanes[i].flushing = false;
			sim_send_todo(sim, w, &w->lanes[i]);
		}
}

static void end_flush(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0)
		return;
	struct sim_worker *w = &sim->workers[ev->worker];
	struct sim_log *log = sim->logs[ev->which];
	if (log->holder != w->index || log->life != w->life)
		return;
	if (sim_fault(sim, sim->k.fail_flush)) {
		fail_flush(sim, log);
	} else {
		size_t n = log->durable;
		while (n < log->n && log->records[n].flush <= log->running_flush)
			n++;
		all_durable(sim, log, n);
		log->outcomes[log->running_flush] = 1;
	}
	log->running_flush = 0;
	if (log->n > log->durable)
		plan_flush(sim, log);
	sim_send_poke(sim, log);
	if (log == w->log)
		wake_lanes(sim, w);
}

static void begin_flush(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0)
		return;
	struct sim_worker *w = &sim->workers[ev->worker];
	struct sim_log *log = sim->logs[ev->which];
	if (log->holder != w->index || log->life != w->life)
		return;
	log->flush_planned = false;
	log->running_flush = log->open_flush++;
	int64_t takes = sim_range(sim, 50, 3000) * 1000;
	if (sim_fault(sim, sim->k.slow_flush))
		takes = sim_range(sim, 10, 800) * SIM_MS;
	sim_at(sim, sim->now_ns + takes, end_flush, w)->which = ev->which;
}

/* ---- emitting, as worker/log.c and the batches of exec ---- */

static uint32_t new_line(struct sim *sim, uint64_t job_id, uint64_t fence, int32_t attempt)
{
	sim->report->lines++;
	sim->lines[sim->n_lines] = (struct sim_line){
		.job_id = job_id, .fence = fence, .attempt = attempt, .bad = sim_fault(sim, sim->k.bad_line)};
	return sim->n_lines++;
}

/* A line that the store refuses is an event with a payload that it does not like, or no event at all. */
static void add_line(struct sim *sim, struct sim_log *log, struct sl__event_batch *b, struct sl_event *event,
		     uint32_t line)
{
	char text[16];
	bool bad = sim->lines[line].bad;
	sim->lines[line].claim = event->claim;
	if (bad && sim_chance(sim, 500)) {
		add_record(sim, log, "\xff\xff", 2, line);
		return;
	}
	event->data = text;
	event->len = (size_t)snprintf(text, sizeof(text), "%s%u", bad ? "!" : "", line);
	sl__event_batch_clear(b);
	if (sl__event_batch_add(b, event, NULL) != 0)
		abort();
	add_record(sim, log, b->bytes.data, b->bytes.len, line);
}

static void emit_into(struct sim *sim, struct sim_log *log, struct sl_event *event, uint64_t fence, int64_t n)
{
	struct sl__event_batch batch;
	sl__event_batch_init(&batch, &sim->env);
	for (; n > 0 && sim->n_lines < SIM_LINES; n--)
		add_line(sim, log, &batch, event, new_line(sim, event->job_id, fence, event->attempt));
	sl__event_batch_fini(&batch);
	plan_flush(sim, log);
}

/* The ticket of a run: sequence is its first flush, batch its last. */
void sim_emit(struct sim *sim, struct sim_worker *w, struct sl__run *run)
{
	struct sim_log *log = w->log;
	if (log->open_flush + 2 >= SIM_FLUSHES)
		return;
	struct sl_event event = {.type = SL_EVENT_STDOUT,
				 .job_id = run->id,
				 .attempt = run->attempt,
				 .claim = run->claim->id,
				 .ts_ms = sim->now_ns / SIM_MS};
	emit_into(sim, log, &event, run->fence, sim_range(sim, 1, 3));
	if (run->ticket.batch == 0)
		run->ticket.sequence = log->open_flush;
	run->ticket.batch = log->open_flush;
}

enum sim_flushed sim_flushed(const struct sim_worker *w, const struct sl__run *run)
{
	if (run->ticket.batch == 0)
		return SIM_FLUSH_OK;
	for (uint64_t b = run->ticket.sequence; b <= run->ticket.batch; b++)
		if (w->log->outcomes[b] != 1)
			return w->log->outcomes[b] == 2 ? SIM_FLUSH_FAILED : SIM_FLUSH_WAIT;
	return SIM_FLUSH_OK;
}

bool sim_await_events(struct sim *sim, struct sim_worker *w, struct sim_conv *conv)
{
	const struct sl__todo *todo = &conv->todo;
	if (sim->opts.wrong == SIM_WRONG_NO_WAIT)
		return true;
	for (size_t i = 0; i < todo->n_runs; i++)
		if (sim_flushed(w, todo->runs[i]) == SIM_FLUSH_WAIT) {
			conv->flushing = true;
			return false;
		}
	for (size_t i = 0; i < todo->n_runs; i++) {
		struct sl__run *run = todo->runs[i];
		enum sim_flushed outcome = sim_flushed(w, run);
		run->ticket = (struct sl_wal_ticket){0};
		if (outcome == SIM_FLUSH_FAILED && run->kind != SL_SETTLE_RELEASE)
			sl__core_refuse(w->core, run, true, "the events of the attempt");
	}
	return true;
}

/* ---- opening and leaving ---- */

static struct sim_log *new_log(struct sim *sim, const struct sim_log *copy_of)
{
	struct sim_log *log = sim_alloc(sizeof(*log));
	char name[16];
	log->index = sim->n_logs;
	(void)snprintf(name, sizeof(name), "log-%d", sim->n_logs);
	if (copy_of != NULL)
		log->state = copy_of->state;
	else
		log->state.stream = sim_new_stream(sim, name);
	log->holder = -1;
	log->open_flush = 1;
	return sim->logs[sim->n_logs++] = log;
}

/* Opening syncs what is there; what the sender knew is asked anew. */
static void hold(struct sim *sim, struct sim_log *log, const struct sim_worker *w, bool sweep)
{
	sim_trace(sim, "%s opens %s/%u: %zu records", w->id, log->state.stream->name, log->state.stream->incarnation,
		  log->n);
	log->holder = w->index;
	log->life = w->life;
	log->opening++;
	log->swept = sweep;
	all_durable(sim, log, log->n);
	for (uint32_t b = 1; b <= log->open_flush; b++)
		log->outcomes[b] = 1;
	log->open_flush++;
	log->running_flush = 0;
	log->flush_planned = log->sending = log->planned = log->mark_known = false;
	log->mark = log->refused = log->suspects = log->probe = 0;
	log->met_conflict = NULL;
	log->compared = (struct sl_wal_mark){0};
	log->failures = log->n_untried = 0;
	log->limit = 0;
	log->retry_at_ns = 0;
	sim_send_poke(sim, log);
}

static struct sim_log *left_by(struct sim *sim, int worker)
{
	for (int i = sim->n_logs - 1; i >= 0; i--)
		if (sim->logs[i]->holder < 0 && !sim->logs[i]->complete && sim->logs[i]->owner == worker)
			return sim->logs[i];
	return NULL;
}

/* A second machine comes up with a copy of what another one writes to. */
static struct sim_log *copied_log(struct sim *sim)
{
	struct sim_log *of = sim->n_logs > 0 ? sim->logs[sim_range(sim, 0, sim->n_logs - 1)] : NULL;
	if (of == NULL || of->complete || sim->n_logs == SIM_LOGS || !sim_fault(sim, sim->k.copy))
		return NULL;
	struct sim_log *log = new_log(sim, of);
	for (size_t i = 0; i < of->durable; i++) {
		log->records = grown(log->records, log->n, &log->cap, sizeof(*log->records));
		log->records[log->n++] = of->records[i];
	}
	sim_trace(sim, "there is a copy of %s with %zu records", of->state.stream->name, log->n);
	sim->report->copies++;
	return log;
}

void sim_log_open(struct sim *sim, struct sim_worker *w)
{
	struct sim_log *log = sim_chance(sim, sim->k.reopen) ? left_by(sim, w->index) : copied_log(sim);
	if (log == NULL && sim->n_logs < SIM_LOGS)
		log = new_log(sim, NULL);
	w->log = log;
	if (log == NULL)
		return;
	log->owner = w->index;
	hold(sim, log, w, false);
}

/* A copy from before some of its records comes in its place, with what the log knew then: all between record n and the
 * next, or nothing of that. */
static void put_back(struct sim *sim, struct sim_log *log)
{
	size_t n = (size_t)sim_range(sim, 0, (int64_t)log->n);
	bool late = n == 0 || sim_chance(sim, 500);
	size_t parks = late ? n : n - 1;
	if (n < log->n || !late)
		log->state = log->records[parks].before;
	for (size_t i = 0; i < n; i++)
		log->records[i].parked = log->records[i].parked && log->records[i].parked_at <= parks;
	sim_trace(sim, "%s is put back to %zu of %zu records, incarnation %u, acknowledged up to %llu",
		  log->state.stream->name, n, log->n, log->state.stream->incarnation,
		  (unsigned long long)log->state.acked);
	sim->report->rollbacks++;
	cut(sim, log, n);
}

static void leave(struct sim *sim, struct sim_log *log, bool in_order)
{
	log->holder = -1;
	if (in_order) {
		all_durable(sim, log, log->n);
		log->complete = log->n > 0 && log->mark_known && log->mark == log->n;
		return;
	}
	cut(sim, log, (size_t)sim_range(sim, (int64_t)log->durable, (int64_t)log->n));
	if (log->n > 0 && sim_chance(sim, 500)) /* acknowledgements are written with a later flush */
		log->state.acked = log->records[log->n - 1].before.acked;
	if (sim_fault(sim, sim->k.put_back))
		put_back(sim, log);
}

void sim_log_left(struct sim *sim, const struct sim_worker *w)
{
	for (int i = 0; i < sim->n_logs; i++)
		if (sim->logs[i]->holder == w->index && sim->logs[i]->life == w->life)
			leave(sim, sim->logs[i], w->stopping && !sim->over);
}

/* ---- what the dead left ---- */

/* A recovery has something to say of the attempt that spoke last. */
static void add_reason(struct sim *sim, struct sim_log *log)
{
	if (log->n == 0 || log->open_flush + 2 >= SIM_FLUSHES || !sim_chance(sim, 300))
		return;
	const struct sim_line *last = &sim->lines[log->records[log->n - 1].line];
	struct sl_event event = {
		.type = SL_EVENT_ERROR, .job_id = last->job_id, .attempt = last->attempt, .claim = last->claim};
	emit_into(sim, log, &event, 0, 1);
}

static void leave_early(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0)
		return;
	struct sim_worker *w = &sim->workers[ev->worker];
	struct sim_log *log = sim->logs[ev->which & 0xffff];
	if (sim->calm || log->holder != w->index || log->opening != ev->which >> 16)
		return;
	sim_trace(sim, "%s has no more time for %s", w->id, log->state.stream->name);
	leave(sim, log, true);
}

static void sweep(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	struct sim_worker *w = &sim->workers[sim_range(sim, 0, sim->k.n_workers - 1)];
	sim_at(sim, sim->now_ns + sim_range(sim, 500, 5000) * SIM_MS, sweep, NULL);
	if (!w->alive || w->stopping || w->paused_until_ns > sim->now_ns || sim->opts.wrong == SIM_WRONG_NO_RECOVERY)
		return;
	for (int i = 0; i < sim->n_logs; i++) {
		struct sim_log *log = sim->logs[i];
		if (log->holder >= 0 || log->complete)
			continue;
		hold(sim, log, w, true);
		add_reason(sim, log);
		sim->report->recovered++;
		if (sim_fault(sim, 300))
			sim_at(sim, sim->now_ns + sim_range(sim, 0, 3000) * SIM_MS, leave_early, w)->which =
				(uint64_t)log->opening << 16 | (uint64_t)i;
	}
}

void sim_plan_logs(struct sim *sim)
{
	sim->lines = sim_alloc(SIM_LINES * sizeof(*sim->lines));
	sim_at(sim, sim_range(sim, 500, 5000) * SIM_MS, sweep, NULL);
	for (int i = 0; i < sim->k.n_losses; i++)
		sim_at(sim, sim_range(sim, 0, sim->k.chaos_ms) * SIM_MS, sim_lose_events, NULL);
}

bool sim_logs_at_rest(const struct sim *sim)
{
	for (int i = 0; i < sim->n_logs; i++) {
		const struct sim_log *log = sim->logs[i];
		bool sent = log->holder >= 0 && log->n == log->durable && log->mark_known && log->mark == log->n;
		if (!log->complete && !sent && log->n > 0)
			return false;
	}
	return true;
}

void sim_reopen_logs(struct sim *sim)
{
	for (int i = 0; i < sim->n_logs; i++)
		if (sim->logs[i]->holder >= 0)
			hold(sim, sim->logs[i], &sim->workers[sim->logs[i]->holder], sim->logs[i]->swept);
}

void sim_free_logs(struct sim *sim)
{
	for (int i = 0; i < sim->n_logs; i++) {
		free(sim->logs[i]->records);
		free(sim->logs[i]);
	}
	while (sim->streams != NULL) {
		struct sim_stream *next = sim->streams->next;
		free(sim->streams->taken);
		free(sim->streams);
		sim->streams = next;
	}
	free(sim->lines);
}
