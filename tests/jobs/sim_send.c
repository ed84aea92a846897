/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a log of the simulation into the store: the plan, the replies and the backoff of src/wal/sender*.c in a few
 * lines, around the real sender of events. What arrives is held against R14 to R17.
 */
#include "jobs/sim_priv.h"

#include <stdlib.h>

#include "jobs/events.h"

#define SEND_MAX 8

struct batch {
	struct sl_wal_record records[SEND_MAX];
	struct sl_wal_range skipped[SEND_MAX];
	size_t n, n_skipped;
};

static void look(struct sim *sim, const struct sim_event *ev);

void sim_send_poke(struct sim *sim, struct sim_log *log)
{
	if (log->holder < 0 || log->sending || log->planned || log->halted)
		return;
	int64_t at = sim->now_ns + sim_range(sim, 0, 2000) * 1000;
	log->planned = true;
	sim_at(sim, at > log->retry_at_ns ? at : log->retry_at_ns, look, &sim->workers[log->holder])->which =
		(uint64_t)log->opening << 16 | (uint64_t)log->index;
}

/* ---- the plan: B1 to B3 of src/wal/sender_batch.c ---- */

static size_t sendable(const struct sim *sim, const struct sim_log *log)
{
	return sim->opts.wrong == SIM_WRONG_EARLY ? log->n : log->durable;
}

static void skip(struct batch *b, uint64_t sequence)
{
	if (b->n_skipped > 0 && b->skipped[b->n_skipped - 1].last + 1 == sequence)
		b->skipped[b->n_skipped - 1].last = sequence;
	else
		b->skipped[b->n_skipped++] = (struct sl_wal_range){sequence, sequence};
}

/* True: the refused record is next, and to be set aside. */
static bool plan(const struct sim *sim, const struct sim_log *log, struct batch *b)
{
	size_t room = log->limit != 0 ? log->limit : (size_t)sim->k.send_batch;
	b->n = b->n_skipped = 0;
	for (uint64_t at = log->mark + 1; at <= sendable(sim, log) && b->n < room && b->n_skipped < SEND_MAX; at++) {
		const struct sim_record *r = &log->records[at - 1];
		if (r->parked) {
			skip(b, at);
			continue;
		}
		if (at == log->refused)
			return b->n == 0;
		b->records[b->n++] = (struct sl_wal_record){
			.sequence = at, .payload = r->bytes, .payload_len = r->len, .crc = r->crc};
	}
	while (b->n > 0 && b->n_skipped > 0 && b->skipped[b->n_skipped - 1].first > b->records[b->n - 1].sequence)
		b->n_skipped--;
	return false;
}

/* ---- replies: src/wal/sender_step.c ---- */

static void back_off(struct sim *sim, struct sim_log *log)
{
	int64_t ms = (int64_t)10 << (log->failures < 7 ? log->failures : 7);
	log->failures++;
	log->retry_at_ns = sim->now_ns + sim_range(sim, ms / 2, ms) * SIM_MS;
}

static void halt(struct sim *sim, struct sim_log *log)
{
	sim_trace(sim, "the sender of %s is stopped by a conflict", log->stream->name);
	log->halted = log->conflicted = true;
	if (log->swept)
		log->holder = -1;
}

static void park(struct sim *sim, struct sim_log *log, uint64_t sequence)
{
	struct sim_record *r = &log->records[sequence - 1];
	struct sim_line *line = &sim->lines[r->line];
	sim_trace(sim, "record %llu of %s is set aside", (unsigned long long)sequence, log->stream->name);
	if (!line->bad)
		sim_fail(sim, "R14: line %u is good and was set aside", r->line);
	r->parked = line->parked = true;
	sim->report->parked++;
	log->refused = 0;
	log->limit = 0;
	log->failures = 0;
}

static void refuse(struct sim *sim, struct sim_log *log, const struct batch *b, uint64_t named)
{
	if (b->n == 0)
		back_off(sim, log);
	else if (named != 0)
		log->refused = named;
	else if (b->n == 1)
		log->refused = b->records[0].sequence;
	else {
		log->limit = b->n / 2;
		log->suspects = b->records[b->n - 1].sequence;
	}
}

/* What counts as sent is gone from a log that trusts. */
static bool goes_back(const struct sim *sim)
{
	return sim->opts.wrong != SIM_WRONG_NO_WAY_BACK && sim->opts.wrong != SIM_WRONG_TRUST;
}

static void accept(struct sim *sim, struct sim_log *log, uint64_t mark)
{
	bool moved = !log->mark_known || mark != log->mark;
	if (!goes_back(sim) && log->mark_known && mark < log->mark) {
		back_off(sim, log);
		return;
	}
	if (mark > sendable(sim, log)) {
		halt(sim, log);
		return;
	}
	log->mark = mark;
	log->mark_known = true;
	if (mark >= log->refused)
		log->refused = 0;
	if (mark >= log->suspects)
		log->limit = 0;
	if (moved)
		log->failures = 0;
	else
		back_off(sim, log);
}

static void handle(struct sim *sim, struct sim_log *log, const struct batch *b, int rc,
		   const struct sl_wal_reply *reply)
{
	if (rc == 0)
		accept(sim, log, reply->mark);
	else if (rc == SL_EREFUSED)
		refuse(sim, log, b, reply->refused);
	else if (rc == SL_ECONFLICT && sim->opts.wrong != SIM_WRONG_GO_ON)
		halt(sim, log);
	else if (sim->opts.wrong == SIM_WRONG_TRUST && b->n > 0)
		log->mark = b->records[b->n - 1].sequence;
	else if (sim->opts.wrong == SIM_WRONG_PARK && b->n > 0 && log->failures > 0)
		log->refused = b->records[0].sequence;
	else
		back_off(sim, log);
}

/* ---- one send ---- */

static void send_once(struct sim_fiber *f, void *arg)
{
	struct sim *sim = f->sim;
	struct sim_log *log = arg;
	uint32_t opening = log->opening;
	struct batch b = {.n = 0};
	struct sl_wal_reply reply = {.mark = log->mark};
	struct sl_err err = SL_ERR_INIT;
	sl_event_sender *sender;
	sl_store store = sim_fiber_store(f);
	if (log->mark_known && plan(sim, log, &b)) {
		park(sim, log, log->refused);
		sim_send_poke(sim, log);
		return;
	}
	if (b.n + b.n_skipped == 0 && (log->mark_known || log->durable == 0)) {
		log->complete = log->swept && log->n == log->durable;
		if (log->complete)
			log->holder = -1;
		return;
	}
	const struct sl_wal_batch batch = {.stream = log->stream->name,
					   .incarnation = 1,
					   .records = b.records,
					   .n_records = b.n,
					   .skipped = b.skipped,
					   .n_skipped = b.n_skipped};
	if (sl_event_sender_new(&sender, &store, &sim->env, NULL) != 0)
		abort();
	f->log = log->index;
	f->stopped = log->met_conflict;
	log->sending = true;
	int rc = sl_event_sender_ops()->send(&batch, &reply, &err, sender);
	sl_event_sender_free(sender);
	if (f->dead || log->opening != opening || log->holder != f->worker)
		return;
	log->sending = false;
	log->met_conflict = rc == SL_ECONFLICT;
	handle(sim, log, &b, rc, &reply);
	sim_send_poke(sim, log);
}

static void look(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker < 0)
		return;
	struct sim_worker *w = &sim->workers[ev->worker];
	struct sim_log *log = sim->logs[ev->which & 0xffff];
	if (log->holder != w->index || log->opening != ev->which >> 16)
		return;
	log->planned = false;
	if (!log->sending && !log->halted)
		sim_fiber_start(sim, w, send_once, log);
}

/* ---- R14 to R17 ---- */

static bool is_gone(struct sim *sim, uint64_t job_id)
{
	struct memstore_row job = {.gone = 0};
	if (job_id != 0)
		memstore_row(sim->ms, job_id, &job);
	return job.gone;
}

/* What a call must come to, by what the store has of the stream. The events of a job that is gone went with it. */
static int judge(struct sim *sim, const struct sim_stream *s, const struct sim_call *c, uint64_t skip_to, size_t *n_new)
{
	uint64_t mark = s->mark;
	*n_new = 0;
	for (size_t i = 0; i < c->n_rows; i++) {
		const struct sl_event_row *row = &c->rows[i];
		if (row->sequence > mark + 1 && skip_to >= row->sequence - 1)
			mark = row->sequence - 1;
		if (row->sequence > mark + 1)
			return SL_EGAP;
		if (row->sequence == mark + 1) {
			mark++;
			++*n_new;
			continue;
		}
		const struct sim_taken *t = row->sequence <= s->cap ? &s->taken[row->sequence - 1] : NULL;
		/* The mark keeps the CRC of its event also when that is gone. */
		if (t != NULL && t->there && t->crc != row->crc &&
		    (!is_gone(sim, t->job_id) || row->sequence == s->mark))
			return SL_ECONFLICT;
	}
	return 0;
}

/* What comes after its job has gone stays: nobody removes that any more. */
static void take(struct sim *sim, struct sim_stream *s, const struct sl_event_row *row, uint32_t line)
{
	size_t cap = s->cap;
	while (row->sequence > cap)
		cap = cap * 2 + 16;
	if (cap != s->cap) {
		s->taken = realloc(s->taken, cap * sizeof *s->taken);
		if (s->taken == NULL)
			abort();
		memset(s->taken + s->cap, 0, (cap - s->cap) * sizeof *s->taken);
		s->cap = cap;
	}
	s->taken[row->sequence - 1] = (struct sim_taken){.crc = row->crc,
							 .job_id = is_gone(sim, row->job_id) ? 0 : row->job_id,
							 .offset = row->offset,
							 .line = line,
							 .there = true};
}

struct reading {
	struct sim *sim;
	struct sim_log *log;
	size_t n;
};

static struct sim_line *line_of(struct sim *sim, const struct sl_event_row *row)
{
	char text[16] = "";
	if (row->payload_len < sizeof text)
		memcpy(text, row->payload, row->payload_len);
	unsigned long i = strtoul(text[0] == '!' ? text + 1 : text, NULL, 10);
	return i < sim->n_lines ? &sim->lines[i] : NULL;
}

static bool is_late(struct sim *sim, const struct sl_event_row *row)
{
	struct memstore_row job;
	if (row->job_id == 0)
		return true;
	memstore_row(sim->ms, row->job_id, &job);
	return job.gone || row->attempt < (job.leases > 0 ? (int32_t)job.fence : job.attempt);
}

/* Has the row the job and attempt of the line? One whose job is gone has none. */
static bool is_of(struct sim *sim, const struct sl_event_row *row, const struct sim_line *line)
{
	struct memstore_row job;
	if (row->job_id != 0)
		return line->job_id == row->job_id && line->attempt == row->attempt;
	memstore_row(sim->ms, line->job_id, &job);
	return job.gone;
}

/* A row that is new. */
static int on_new(const struct sl_event_row *row, void *ctx)
{
	struct reading *r = ctx;
	struct sim *sim = r->sim;
	struct sim_line *line = line_of(sim, row);
	unsigned long long offset = row->offset, sequence = row->sequence;
	r->n++;
	if (row->offset != sim->last_offset + 1)
		sim_fail(sim, "R15: offset %llu follows %llu", offset, (unsigned long long)sim->last_offset);
	else if (strcmp(row->stream, r->log->stream->name) != 0 || row->sequence <= r->log->stream->mark)
		sim_fail(sim, "R15: offset %llu holds %llu of %s, which has %llu", offset, sequence, row->stream,
			 (unsigned long long)r->log->stream->mark);
	else if (line == NULL || !is_of(sim, row, line))
		sim_fail(sim, "R14: offset %llu is a line that nobody wrote so", offset);
	else if (++line->stored > 1)
		sim_fail(sim, "R14: sequence %llu of %s is stored a second time", sequence, row->stream);
	else if (row->late != is_late(sim, row))
		sim_fail(sim, "R16: the event at offset %llu is %s", offset, row->late ? "not late" : "late");
	sim->report->stored++;
	sim->report->late_events += row->late != 0;
	sim->last_offset = row->offset;
	r->log->stream->mark = row->sequence;
	if (line != NULL)
		take(sim, r->log->stream, row, (uint32_t)(line - sim->lines));
	return 0;
}

/* What the store has of the stream from this sequence on is lost with it. */
static void forget(struct sim *sim, struct sim_stream *s, uint64_t from)
{
	for (uint64_t seq = from; seq <= s->mark && seq <= s->cap; seq++)
		if (s->taken[seq - 1].there) {
			struct sim_line *line = &sim->lines[s->taken[seq - 1].line];
			line->stored = 0;
			line->lost = true;
			s->taken[seq - 1].there = false;
			sim->report->store_lost++;
		}
	s->mark = from - 1;
}

void sim_lose_events(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	uint64_t after = (uint64_t)sim_range(sim, (int64_t)(sim->last_offset / 2), (int64_t)sim->last_offset);
	if (sim->calm)
		return;
	sim_trace(sim, "the store loses its events behind offset %llu", (unsigned long long)after);
	for (struct sim_stream *s = sim->streams; s != NULL; s = s->next) {
		uint64_t from = 0;
		for (uint64_t seq = s->cap; seq > 0; seq--)
			if (s->taken[seq - 1].there && s->taken[seq - 1].offset > after &&
			    !is_gone(sim, s->taken[seq - 1].job_id))
				from = seq;
		if (from != 0)
			forget(sim, s, from);
	}
	memstore_lose_events(sim->ms, after);
	sim->last_offset = after;
	sim->restores++;
}

static void check_sent_durable(struct sim *sim, const struct sim_log *log, const struct sim_call *c)
{
	for (size_t i = 0; i < c->n_rows; i++) {
		const struct sim_line *line = line_of(sim, &c->rows[i]);
		if (line != NULL && !line->durable)
			sim_fail(sim, "R14: sequence %llu of %s is stored before the log has it",
				 (unsigned long long)c->rows[i].sequence, log->stream->name);
	}
}

void sim_check_appended(struct sim *sim, const struct sim_call *c)
{
	struct sim_log *log = sim->logs[c->log];
	struct reading r = {.sim = sim, .log = log};
	size_t n_new = 0;
	int expected = c->applied_rc == SL_EDATA ? SL_EDATA : judge(sim, log->stream, c, c->skip_to, &n_new);
	if (c->stopped_before)
		sim_fail(sim, "R17: the sender of %s goes on after a conflict", log->stream->name);
	if (expected == SL_ECONFLICT && c->applied_rc != SL_ECONFLICT)
		sim_fail(sim, "R17: another CRC of %s is not noticed", log->stream->name);
	else if (expected != c->applied_rc)
		sim_fail(sim, "R14: events of %s: %s, and not %s", log->stream->name, sl_err_name(c->applied_rc),
			 sl_err_name(expected));
	sim->report->conflicts += c->applied_rc == SL_ECONFLICT;
	check_sent_durable(sim, log, c);
	if (sim->store.ops->events_read(sim->store.ctx, 0, sim->last_offset, UINT32_MAX, on_new, &r, NULL) != 0)
		sim_fail(sim, "events could not be read");
	size_t made = c->applied_rc == 0 ? n_new : 0;
	if (r.n != made || (c->applied_rc == 0 && c->n_new != made))
		sim_fail(sim, "R14: %zu events of %s are new, %zu were stored, %zu told", made, log->stream->name, r.n,
			 c->n_new);
	if (c->applied_rc != 0)
		return;
	sim->report->resent += c->n_rows - made;
	if (log->stream->mark < c->skip_to)
		log->stream->mark = c->skip_to;
	if (c->mark.mark != log->stream->mark)
		sim_fail(sim, "R14: the mark of %s is told as %llu, and is %llu", log->stream->name,
			 (unsigned long long)c->mark.mark, (unsigned long long)log->stream->mark);
}

void sim_check_durable(struct sim *sim, const struct sl_settle *s)
{
	for (uint32_t i = 0; i < sim->n_lines; i++) {
		const struct sim_line *line = &sim->lines[i];
		if (line->job_id == s->id && line->fence == s->fence && !line->durable)
			sim_fail(sim, "R14: job %llu completes, and its line %u is not durable",
				 (unsigned long long)s->id, i);
	}
}

static int on_kept(const struct sl_event_row *row, void *ctx)
{
	struct reading *r = ctx;
	struct sim_line *line = line_of(r->sim, row);
	if (line != NULL)
		line->found = true;
	r->n++;
	return 0;
}

/* All logs are at rest. One that is put away after all was sent does not send again what the store lost: its archive
 * has that. */
void sim_check_events(struct sim *sim)
{
	struct reading r = {.sim = sim};
	if (sim->store.ops->events_read(sim->store.ctx, 0, 0, UINT32_MAX, on_kept, &r, NULL) != 0)
		sim_fail(sim, "events could not be read");
	for (int i = 0; i < sim->n_logs; i++) {
		const struct sim_log *log = sim->logs[i];
		for (size_t k = 0; k < log->n && !log->unreliable && !log->conflicted; k++) {
			const struct sim_line *line = &sim->lines[log->records[k].line];
			if (line->durable && !line->parked && line->stored == 0 && !(line->lost && log->complete))
				sim_fail(sim, "R14: sequence %zu of %s was never stored", k + 1, log->stream->name);
		}
	}
	for (uint32_t i = 0; i < sim->n_lines; i++) {
		const struct sim_line *line = &sim->lines[i];
		struct memstore_row job;
		memstore_row(sim->ms, line->job_id, &job);
		if (line->stored > 0 && !line->found && !job.gone)
			sim_fail(sim, "R14: line %u was stored and is not there any more", i);
	}
}
