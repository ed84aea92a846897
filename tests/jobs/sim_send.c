/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a log of the simulation into the store: the plan, the replies and the backoff of src/wal/sender*.c in a few
 * lines, around the real sender of events. What arrives is held against R14 to R17.
 */
#include "jobs/sim_priv.h"

#include <stdlib.h>

#include "jobs/events/events.h"

#define SEND_MAX 8

struct batch {
	struct sl_wal_record records[SEND_MAX];
	struct sl_wal_range skipped[SEND_MAX];
	size_t n, n_skipped;
};

static void look(struct sim *sim, const struct sim_event *ev);

struct sim_stream *sim_new_stream(struct sim *sim, const char *name)
{
	struct sim_stream *stream = sim_alloc(sizeof(*stream));
	(void)snprintf(stream->name, sizeof(stream->name), "%s", name);
	stream->incarnation = ++sim->n_incarnations;
	stream->next = sim->streams;
	return sim->streams = stream;
}

void sim_send_poke(struct sim *sim, struct sim_log *log)
{
	if (log->holder < 0 || log->sending || log->planned)
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

/* True: the refused record is next, and is to be parked. */
static bool plan(const struct sim *sim, const struct sim_log *log, struct batch *b)
{
	size_t room = log->limit != 0 ? log->limit : (size_t)sim->k.send_batch;
	b->n = b->n_skipped = 0;
	for (uint64_t at = log->mark + 1; at <= sendable(sim, log) && b->n < room && b->n_skipped < SEND_MAX; at++) {
		const struct sim_record *r = &log->records[at - 1];
		if (r->parked || at < log->state.first) {
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

/* ---- where log and store differ: T4 of src/wal/sender.c ---- */

static bool is_pending(const struct sim_log *log, uint64_t sequence)
{
	return sequence > log->state.acked && sequence <= log->n && !log->records[sequence - 1].parked;
}

/* lost: the store has not what it acknowledged. All that the log has goes again, and not only what is pending. */
static void renew(struct sim *sim, struct sim_log *log, bool lost)
{
	uint64_t first = lost && sim->opts.wrong != SIM_WRONG_NO_PROBE ? 1 : log->state.acked + 1;
	if (++log->n_untried > 3)
		sim_fail(sim, "R17: %s has a conflict under one incarnation after the other", log->state.stream->name);
	log->state.stream = sim_new_stream(sim, log->state.stream->name);
	log->state.first = first;
	sim_trace(sim, "%s begins incarnation %u with %llu", log->state.stream->name, log->state.stream->incarnation,
		  (unsigned long long)first);
	sim->report->renewals++;
	log->mark_known = false;
	log->mark = log->refused = log->probe = 0;
	log->compared = (struct sl_wal_mark){0};
	log->limit = 0;
}

/* The last record that counts as acknowledged under this incarnation; 0: none. */
static uint64_t last_acknowledged(const struct sim_log *log)
{
	uint64_t at = log->state.acked;
	while (at > 0 && at >= log->state.first && log->records[at - 1].parked)
		at--;
	return at >= log->state.first ? at : 0;
}

static void differ(struct sim *sim, struct sim_log *log, uint64_t mark)
{
	uint64_t last = last_acknowledged(log);
	if (last == 0)
		renew(sim, log, false);
	else if (mark < last)
		renew(sim, log, true);
	else
		log->probe = last;
}

static void probed(struct sim *sim, struct sim_log *log, int rc, const struct sl_wal_reply *reply)
{
	if (rc == SL_ECONFLICT || (rc == 0 && reply->mark < log->probe))
		renew(sim, log, true);
	else if (rc == 0 || rc == SL_EREFUSED)
		renew(sim, log, false);
	else
		back_off(sim, log);
}

static bool is_ours(const struct sim *sim, const struct sim_log *log, const struct sl_wal_reply *reply)
{
	uint64_t mark = reply->mark;
	if (mark > sendable(sim, log))
		return false;
	if (mark == 0 || mark < log->state.first || sim->opts.wrong == SIM_WRONG_ANY_MARK)
		return true;
	if (reply->mark_kind == SL_WAL_MARK_SKIPPED)
		return !is_pending(log, mark);
	return log->records[mark - 1].crc == reply->mark_crc;
}

static void park(struct sim *sim, struct sim_log *log, uint64_t sequence)
{
	struct sim_record *r = &log->records[sequence - 1];
	struct sim_line *line = &sim->lines[r->line];
	sim_trace(sim, "record %llu of %s is parked", (unsigned long long)sequence, log->state.stream->name);
	if (!line->bad)
		sim_fail(sim, "R14: line %u is good and was parked", r->line);
	r->parked = line->parked = true;
	r->parked_at = log->n;
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

static void accept(struct sim *sim, struct sim_log *log, const struct sl_wal_reply *reply)
{
	uint64_t mark = reply->mark;
	bool moved = !log->mark_known || mark != log->mark;
	if (!goes_back(sim) && log->mark_known && mark < log->mark) {
		back_off(sim, log);
		return;
	}
	if (!is_ours(sim, log, reply)) {
		differ(sim, log, mark);
		return;
	}
	if (mark + 1 < log->state.first && log->n_untried == 0 && last_acknowledged(log) != 0) {
		renew(sim, log, true); /* the store was put back to before this incarnation */
		return;
	}
	log->mark = mark;
	log->mark_known = true;
	log->compared = (struct sl_wal_mark){mark, reply->mark_crc, reply->mark_kind};
	if (mark >= log->state.first)
		log->n_untried = 0;
	if (mark > log->state.acked)
		log->state.acked = mark;
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
	if (log->probe != 0)
		probed(sim, log, rc, reply);
	else if (rc == 0)
		accept(sim, log, reply);
	else if (rc == SL_EREFUSED)
		refuse(sim, log, b, reply->refused);
	else if (rc == SL_ECONFLICT && sim->opts.wrong != SIM_WRONG_CONTINUE)
		differ(sim, log, log->mark);
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
	if (log->probe != 0) {
		const struct sim_record *r = &log->records[log->probe - 1];
		b.records[b.n++] = (struct sl_wal_record){
			.sequence = log->probe, .payload = r->bytes, .payload_len = r->len, .crc = r->crc};
	} else if (log->mark_known && plan(sim, log, &b)) {
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
	const struct sl_wal_batch batch = {.stream = log->state.stream->name,
					   .incarnation = log->state.stream->incarnation,
					   .records = b.records,
					   .n_records = b.n,
					   .skipped = b.skipped,
					   .n_skipped = b.n_skipped,
					   .after = log->compared};
	if (sl_event_sender_new(&sender, &store, &sim->env, NULL) != 0)
		abort();
	f->log = log->index;
	f->stopped = log->met_conflict == log->state.stream && log->probe == 0;
	log->sending = true;
	int rc = sl_event_sender_ops()->send(&batch, &reply, &err, sender);
	sl_event_sender_free(sender);
	if (f->dead || log->opening != opening || log->holder != f->worker)
		return;
	log->sending = false;
	if (rc == SL_ECONFLICT)
		log->met_conflict = log->state.stream;
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
	if (!log->sending)
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
	if (c->mark.after != 0 && c->mark.after == mark && s->has_crc && c->mark.after_crc != s->crc)
		return SL_ECONFLICT;
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
		if (row->sequence == s->mark && s->has_crc && s->crc != row->crc)
			return SL_ECONFLICT;
		if (t != NULL && t->there && t->crc != row->crc && !is_gone(sim, t->job_id))
			return SL_ECONFLICT;
	}
	return 0;
}

/* An event that arrives after its job was removed stays: nothing removes it any more. */
static void take(struct sim *sim, struct sim_stream *s, const struct sl_event_row *row, uint32_t line)
{
	size_t cap = s->cap;
	while (row->sequence > cap)
		cap = cap * 2 + 16;
	if (cap != s->cap) {
		s->taken = realloc(s->taken, cap * sizeof(*s->taken));
		if (s->taken == NULL)
			abort();
		memset(s->taken + s->cap, 0, (cap - s->cap) * sizeof(*s->taken));
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
	struct sim_stream *stream;
	size_t n;
};

static struct sim_line *line_of(struct sim *sim, const struct sl_event_row *row)
{
	char text[16] = "";
	if (row->payload_len < sizeof(text))
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
	else if (strcmp(row->stream, r->stream->name) != 0 || row->incarnation != r->stream->incarnation ||
		 row->sequence <= r->stream->mark)
		sim_fail(sim, "R15: offset %llu holds %llu of %s, which has %llu", offset, sequence, row->stream,
			 (unsigned long long)r->stream->mark);
	else if (line == NULL || !is_of(sim, row, line))
		sim_fail(sim, "R14: offset %llu is not a line that was written", offset);
	else if (line->stored++ > 0 && line->incarnation == row->incarnation)
		sim_fail(sim, "R14: sequence %llu of %s is stored a second time", sequence, row->stream);
	else if (row->late != is_late(sim, row))
		sim_fail(sim, "R16: the event at offset %llu is %s", offset, row->late ? "not late" : "late");
	sim->report->stored++;
	sim->report->late_events += row->late;
	sim->last_offset = row->offset;
	r->stream->mark = row->sequence;
	r->stream->crc = row->crc;
	r->stream->has_crc = true;
	if (line != NULL) {
		sim->report->doubled += line->stored > 1;
		line->incarnation = row->incarnation;
		take(sim, r->stream, row, (uint32_t)(line - sim->lines));
	}
	return 0;
}

/* The store loses what it has of the stream after this offset; its mark is an earlier one. */
static void forget(struct sim *sim, struct sim_stream *s, uint64_t after)
{
	for (size_t i = 0; i < s->cap; i++)
		if (s->taken[i].there && s->taken[i].offset > after) {
			struct sim_line *line = &sim->lines[s->taken[i].line];
			line->stored--;
			line->lost = true;
			if (line->incarnation == s->incarnation)
				line->incarnation = 0;
			s->taken[i].there = false;
			sim->report->store_lost++;
		}
	s->has_crc = memstore_mark(sim->ms, s->name, s->incarnation, &s->mark, &s->crc);
}

void sim_lose_events(struct sim *sim, const struct sim_event *ev)
{
	(void)ev;
	uint64_t after = (uint64_t)sim_range(sim, (int64_t)(sim->last_offset / 2), (int64_t)sim->last_offset);
	if (sim->calm)
		return;
	after = memstore_lose_events(sim->ms, after);
	sim_trace(sim, "the store loses its events behind offset %llu", (unsigned long long)after);
	for (struct sim_stream *s = sim->streams; s != NULL; s = s->next)
		forget(sim, s, after);
	sim->last_offset = after;
	sim->restores++;
}

static void check_sent_durable(struct sim *sim, const struct sim_log *log, const struct sim_call *c)
{
	for (size_t i = 0; i < c->n_rows; i++) {
		const struct sim_line *line = line_of(sim, &c->rows[i]);
		if (line != NULL && !line->durable)
			sim_fail(sim, "R14: sequence %llu of %s is stored before the log has it",
				 (unsigned long long)c->rows[i].sequence, log->state.stream->name);
	}
}

void sim_check_appended(struct sim *sim, const struct sim_call *c)
{
	struct sim_log *log = sim->logs[c->log];
	struct sim_stream *stream = sim->streams; /* the log may have begun another one meanwhile */
	while (stream->incarnation != c->mark.incarnation)
		stream = stream->next;
	struct reading r = {.sim = sim, .stream = stream};
	size_t n_new = 0;
	int expected = c->applied_rc == SL_EDATA ? SL_EDATA : judge(sim, stream, c, c->skip_to, &n_new);
	if (c->stopped_before)
		sim_fail(sim, "R17: the sender of %s sends on after a conflict", stream->name);
	if (expected == SL_ECONFLICT && c->applied_rc != SL_ECONFLICT)
		sim_fail(sim, "R17: another CRC of %s is not noticed", stream->name);
	else if (expected != c->applied_rc)
		sim_fail(sim, "R14: events of %s: %s, and not %s", stream->name, sl_err_name(c->applied_rc),
			 sl_err_name(expected));
	sim->report->conflicts += c->applied_rc == SL_ECONFLICT;
	check_sent_durable(sim, log, c);
	if (sim->store.ops->events_read(sim->store.ctx, 0, sim->last_offset, UINT32_MAX, on_new, &r, NULL) != 0)
		sim_fail(sim, "events could not be read");
	size_t made = c->applied_rc == 0 ? n_new : 0;
	if (r.n != made || (c->applied_rc == 0 && c->n_new != made))
		sim_fail(sim, "R14: %zu events of %s are new, %zu were stored, %zu reported", made, stream->name, r.n,
			 c->n_new);
	if (c->applied_rc != 0)
		return;
	sim->report->resent += c->n_rows - made;
	if (stream->mark < c->skip_to) {
		stream->mark = c->skip_to;
		stream->has_crc = false;
	}
	if (c->mark.mark != stream->mark)
		sim_fail(sim, "R14: the mark of %s is reported as %llu, and is %llu", stream->name,
			 (unsigned long long)c->mark.mark, (unsigned long long)stream->mark);
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

/* All logs are at rest. A log that was archived after everything was sent does not send again what the store lost: its
 * archive has that. */
void sim_check_events(struct sim *sim)
{
	struct reading r = {.sim = sim};
	if (sim->store.ops->events_read(sim->store.ctx, 0, 0, UINT32_MAX, on_kept, &r, NULL) != 0)
		sim_fail(sim, "events could not be read");
	for (int i = 0; i < sim->n_logs; i++) {
		const struct sim_log *log = sim->logs[i];
		for (size_t k = 0; k < log->n; k++) {
			const struct sim_line *line = &sim->lines[log->records[k].line];
			if (line->durable && !line->parked && line->stored == 0 && !(line->lost && log->complete))
				sim_fail(sim, "R14: sequence %zu of %s was never stored", k + 1,
					 log->state.stream->name);
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
