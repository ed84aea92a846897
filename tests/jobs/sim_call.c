/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls to the store: copied when they are sent, applied some time later, answered some time after that. In between
 * everything can be lost.
 *
 *   fate            applied             the worker hears
 *   ─────────────   ─────────────────   ─────────────────────────────
 *   fine            soon                the result, a bit later
 *   lost request    never               SL_EUNAVAIL
 *   lost answer     soon                SL_EUNAVAIL, perhaps after a part of the callbacks
 *   late            after the answer    SL_EUNAVAIL
 *   again           never               SL_EAGAIN
 *   refused         never               SL_EDATA (poison)
 */
#include "jobs/sim_priv.h"

#include <stdlib.h>

/* ---- copies ---- */

static const char *keep_text(struct sim_call *c, const char *text)
{
	if (text == NULL)
		return NULL;
	char *copy = strdup(text);
	if (copy == NULL)
		abort();
	c->texts[c->n_texts++] = copy;
	return copy;
}

static const void *keep_bytes(struct sim_call *c, const void *data, size_t n)
{
	char *copy = sim_alloc(n);
	if (n > 0)
		memcpy(copy, data, n);
	c->texts[c->n_texts++] = copy;
	return copy;
}

static void keep_settle(struct sim_call *c, size_t i, const struct sl_settle *s)
{
	struct sl_settle *mine = &c->settles[i];
	*mine = *s;
	mine->worker = keep_text(c, s->worker);
	mine->output = keep_text(c, s->output);
	mine->error = keep_text(c, s->error);
	mine->progress = keep_text(c, s->progress);
	if (s->kind != SL_SETTLE_CONTINUE)
		return;
	struct sl_new_job next = *s->next;
	next.type = keep_text(c, next.type);
	next.input = keep_text(c, next.input);
	next.blockers = keep_bytes(c, next.blockers, next.n_blockers * sizeof(*next.blockers));
	mine->next = keep_bytes(c, &next, sizeof(next));
}

static struct sim_call *new_call(enum sim_call_kind kind, const struct sim_worker *w, int who, size_t n_settles)
{
	struct sim_call *c = sim_alloc(sizeof(*c));
	c->kind = kind;
	c->worker = w->index;
	c->life = w->life;
	c->who = who;
	c->n_settles = n_settles;
	c->texts = c->few_texts;
	if (n_settles == 0)
		return c;
	c->settles = sim_alloc(n_settles * sizeof(*c->settles));
	c->results = sim_alloc(n_settles * sizeof(*c->results));
	c->texts = sim_alloc((n_settles * 8 + 8) * sizeof(*c->texts));
	return c;
}

struct sim_call *sim_call_of(struct sim_fiber *f, enum sim_call_kind kind)
{
	return new_call(kind, &f->sim->workers[f->worker], 0, 0);
}

struct sim_call *sim_call_by(const struct sim_worker *w, enum sim_call_kind kind)
{
	return new_call(kind, w, 0, 0);
}

const char *sim_call_text(struct sim_call *c, const char *text)
{
	return keep_text(c, text);
}

const void *sim_call_bytes(struct sim_call *c, const void *data, size_t n)
{
	return keep_bytes(c, data, n);
}

static void keep_request(struct sim_call *c, const struct sl_claim_request *r)
{
	c->claims = true;
	c->request = *r;
	c->request.worker = keep_text(c, r->worker);
	c->request.types = keep_bytes(c, r->types, r->n_types * sizeof(*r->types)); /* the names are constant */
}

static void keep_renewals(struct sim_call *c, const struct sl__todo *todo)
{
	c->n_renewals = todo->n_renewals;
	c->renewals = sim_alloc(todo->n_renewals * sizeof(*c->renewals));
	c->texts = sim_alloc((todo->n_renewals * 2 + 1) * sizeof(*c->texts));
	for (size_t i = 0; i < todo->n_renewals; i++) {
		const struct sl_renewal *r = &todo->renewals[i];
		c->renewals[i] = *r;
		c->renewals[i].ids = keep_bytes(c, r->ids, r->n * sizeof(*r->ids));
		c->renewals[i].fences = keep_bytes(c, r->fences, r->n * sizeof(*r->fences));
	}
}

static void let_go(struct sim_call *c)
{
	if (--c->refs > 0)
		return;
	for (size_t i = 0; i < c->n_texts; i++)
		free(c->texts[i]);
	if (c->texts != c->few_texts)
		free(c->texts);
	free(c->settles);
	free(c->results);
	free(c->renewals);
	free(c->claimed);
	free(c->lost);
	free(c->notes);
	free(c->crons);
	free(c);
}

/* ---- applying ---- */

static void *more(void *items, size_t n, size_t size)
{
	if ((n & (n - 1)) != 0 && n != 0)
		return items;
	void *p = realloc(items, (n == 0 ? 1 : n * 2) * size);
	if (p == NULL)
		abort();
	return p;
}

static void on_note(const struct sl_note *note, void *ctx)
{
	struct sim_call *c = ctx;
	c->notes = more(c->notes, c->n_notes, sizeof(*c->notes));
	c->notes[c->n_notes++] = *note;
}

static int on_claimed(const struct sl_claimed_job *job, void *ctx)
{
	struct sim_call *c = ctx;
	c->claimed = more(c->claimed, c->n_claimed, sizeof(*c->claimed));
	c->claimed[c->n_claimed++].job = *job;
	return 0;
}

static void on_lost(uint64_t id, uint64_t fence, enum sl_lost_reason reason, void *ctx)
{
	struct sim_call *c = ctx;
	c->lost = more(c->lost, c->n_lost, sizeof(*c->lost));
	c->lost[c->n_lost++] = (struct sim_lost){id, fence, reason};
}

static int on_cron(const struct sl_cron *cron, void *ctx)
{
	struct sim_call *c = ctx;
	c->crons = more(c->crons, c->n_crons, sizeof(*c->crons));
	c->crons[c->n_crons++] = *cron; /* strings are the store's */
	return 0;
}

static void apply_fire(struct sim *sim, struct sim_call *c, const struct sl_store_scope *scope)
{
	size_t rows = memstore_rows(sim->ms);
	c->applied_rc =
		sim->store.ops->cron_fire(sim->store.ctx, &c->seen, c->next_ms, &c->fired, &c->started, scope, &c->err);
	sim_trace(sim, "  schedule %s, tick %lld: %s", c->seen.name, (long long)c->seen.next_ms,
		  c->fired ? "fired" : "not at it");
	sim_check_fired(sim, c, rows);
}

static bool is_bad(const struct sl_event_row *row)
{
	return row->payload_len > 0 && *(const char *)row->payload == '!';
}

static void apply_append(struct sim *sim, struct sim_call *c)
{
	if (c->restores != sim->restores) { /* a restored server knows nothing of the connection */
		c->applied_rc = sl_err_set(&c->err, SL_EUNAVAIL, "the connection is lost");
		return;
	}
	for (size_t i = 0; i < c->n_rows && c->applied_rc == 0; i++)
		if (is_bad(&c->rows[i])) {
			c->applied_rc = sl_err_set(&c->err, SL_EDATA, "row %zu is refused", i);
			c->err.error_class = SL_CLASS_POISON;
		}
	if (c->applied_rc == 0)
		c->applied_rc = sim->store.ops->events_append(sim->store.ctx, c->rows, c->n_rows, &c->mark, 1,
							      &c->n_new, &c->err);
	sim_trace(sim, "  events of %s/%u: %zu from %llu: %s, %zu new, mark %llu", c->mark.stream, c->mark.incarnation,
		  c->n_rows, (unsigned long long)(c->n_rows > 0 ? c->rows[0].sequence : 0),
		  c->applied_rc == 0 ? "taken" : c->err.msg, c->n_new, (unsigned long long)c->mark.mark);
	sim_check_appended(sim, c);
}

static void apply_exchange(struct sim *sim, struct sim_call *c, const struct sl_store_scope *scope)
{
	c->applied_rc = sim->store.ops->exchange(sim->store.ctx,
						 &(struct sl_exchange){.settles = c->settles,
								       .n_settles = c->n_settles,
								       .results = c->results,
								       .request = c->claims ? &c->request : NULL,
								       .reply = &c->reply,
								       .claimed = on_claimed,
								       .claimed_ctx = c},
						 scope, &c->err);
	if (c->applied_rc != 0) {
		sim_trace(sim, "  the store refuses: %s", c->err.msg);
		return;
	}
	if (c->claims)
		sim_trace(sim, "  asked for %u of %s (%zu types); due in %lld, expiry in %lld", c->request.limit,
			  c->request.types[0].type, c->request.n_types, (long long)c->reply.next_due_in_ms,
			  (long long)c->reply.next_expiry_in_ms);
	for (size_t i = 0; i < c->n_settles; i++)
		sim_check_settled(sim, &c->settles[i], &c->results[i]);
	for (size_t i = 0; i < c->n_claimed; i++)
		sim_check_claimed(sim, &c->claimed[i].job, c->request.again != 0);
}

/* What was not asked to change a job may still have done so: then the next check finds it. */
static bool changes_jobs(const struct sim_call *c)
{
	return c->kind == SIM_EXCHANGE ? c->n_settles + c->n_claimed > 0
				       : c->kind == SIM_INSIDE || c->kind == SIM_REAP || c->kind == SIM_CRON_FIRE ||
						 c->kind == SIM_HAND_OVER;
}

static void apply(struct sim *sim, const struct sim_event *ev)
{
	static const char *const names[] = {"exchange",  "settle inside", "renew",     "reap",      "cron",
					    "hand over", "now",           "cron_list", "cron_fire", "events_append"};
	struct sim_call *c = ev->ptr;
	const struct sl_store_scope scope = {.note = on_note, .ctx = c};
	sim->handing -= c->kind == SIM_HAND_OVER;
	if (sim->over) {
		let_go(c);
		return;
	}
	sim_trace(sim, "store: %s of w%d.%u, %zu settles", names[c->kind], c->worker, c->life, c->n_settles);
	switch (c->kind) {
	case SIM_EXCHANGE:
	case SIM_INSIDE:
		apply_exchange(sim, c, &scope);
		break;
	case SIM_RENEW:
		c->applied_rc = sim->store.ops->renew(sim->store.ctx, c->renewals, c->n_renewals, on_lost, c, &c->err);
		break;
	case SIM_REAP:
		c->applied_rc = sim->store.ops->reap(sim->store.ctx, sim->workers[c->worker].reap_types, SIM_TYPES,
						     SIM_REAP_LIMIT, &c->reaped, &scope, &c->err);
		sim->report->reaped += c->reaped.n;
		break;
	case SIM_CRON:
		break;
	case SIM_HAND_OVER:
		sim_apply_handed(sim, c, &scope);
		break;
	case SIM_NOW:
		c->applied_rc = sim->store.ops->now_ms(sim->store.ctx, &c->now_ms, &c->err);
		break;
	case SIM_CRON_LIST:
		c->applied_rc = sim->store.ops->cron_list(sim->store.ctx, on_cron, c, &c->err);
		break;
	case SIM_CRON_FIRE:
		apply_fire(sim, c, &scope);
		break;
	case SIM_APPEND:
		apply_append(sim, c);
		break;
	}
	if (changes_jobs(c))
		sim_check(sim, names[c->kind]);
	let_go(c);
}

/* ---- answering ---- */

static void fail_with(struct sim_call *c, int rc)
{
	c->rc = rc;
	(void)sl_err_set(&c->err, rc, "simulated");
	c->err.error_class = rc == SL_EDATA ? SL_CLASS_POISON : rc == SL_EAGAIN ? SL_CLASS_TRANSIENT : SL_CLASS_FATAL;
}

static void answer(struct sim *sim, const struct sim_event *ev)
{
	struct sim_call *c = ev->ptr;
	sim->handing -= c->kind == SIM_HAND_OVER;
	if (ev->worker < 0)
		fail_with(c, SL_EUNAVAIL);
	if (c->rc == 0)
		c->rc = c->applied_rc;
	if (c->fiber != NULL) {
		c->fiber->dead = ev->worker < 0;
		sim_fiber_resume(c->fiber);
	} else if (ev->worker >= 0) { /* it is still there */
		if (c->rc == 0)
			sim_publish(sim, c->notes, c->n_notes);
		if (c->kind == SIM_HAND_OVER)
			sim_handed(sim, &sim->workers[c->worker], c);
		else if (c->kind == SIM_INSIDE)
			sim_slot_answered(sim, &sim->workers[c->worker], c);
		else
			sim_answered(sim, &sim->workers[c->worker], c);
	}
	let_go(c);
}

static void schedule(struct sim *sim, struct sim_call *c, int64_t apply_ns, int64_t answer_ns)
{
	c->refs = (apply_ns >= 0) + 1;
	if (apply_ns >= 0)
		sim_at(sim, sim->now_ns + apply_ns, apply, NULL)->ptr = c;
	sim_at(sim, sim->now_ns + answer_ns, answer, &sim->workers[c->worker])->ptr = c;
}

/* A job whose data the store will not take, a few times over. */
static bool is_refused(struct sim *sim, const struct sim_call *c)
{
	if (c->kind != SIM_EXCHANGE || c->n_settles == 0)
		return false;
	if (sim->poisoned == 0 && sim_fault(sim, sim->k.poison)) {
		sim->poisoned = (uint32_t)sim_range(sim, 1, 8);
		sim->poisoned_id = c->settles[sim_range(sim, 0, (int64_t)c->n_settles - 1)].id;
	}
	for (size_t i = 0; i < c->n_settles && sim->poisoned > 0; i++)
		if (c->settles[i].id == sim->poisoned_id) {
			sim->poisoned--;
			return true;
		}
	return false;
}

void sim_call_send(struct sim *sim, struct sim_call *c)
{
	int64_t there = sim_range(sim, 50, 3000) * 1000, back = sim_range(sim, 50, 3000) * 1000;
	int64_t long_time = sim_range(sim, 1, 1500) * SIM_MS;
	if (sim_fault(sim, 30)) /* a slow one */
		there += long_time;
	if (c->kind == SIM_HAND_OVER && sim_fault(sim, 60)) /* the process that starts the job is slow to report it */
		back += long_time;
	if (sim->now_ns < sim->away_until_ns || sim_fault(sim, sim->k.lose_request)) {
		fail_with(c, SL_EUNAVAIL);
		schedule(sim, c, -1, sim_chance(sim, 500) ? back : long_time);
	} else if (sim_fault(sim, sim->k.again)) {
		fail_with(c, SL_EAGAIN);
		schedule(sim, c, -1, there + back);
	} else if (is_refused(sim, c)) {
		fail_with(c, SL_EDATA);
		schedule(sim, c, -1, there + back);
	} else if (sim_fault(sim, sim->k.lose_answer)) {
		sim->report->lost_answers++;
		fail_with(c, SL_EUNAVAIL);
		schedule(sim, c, there, there + back);
	} else if (sim_fault(sim, sim->k.apply_late)) {
		sim->report->late_applies++;
		fail_with(c, SL_EUNAVAIL);
		schedule(sim, c, there + back + long_time, there + back);
	} else {
		schedule(sim, c, there, there + back);
	}
}

void sim_send_todo(struct sim *sim, struct sim_worker *w, struct sim_conv *conv)
{
	static const enum sim_call_kind kinds[] = {[SL__TODO_EXCHANGE] = SIM_EXCHANGE,
						   [SL__TODO_RENEW] = SIM_RENEW,
						   [SL__TODO_REAP] = SIM_REAP,
						   [SL__TODO_CRON] = SIM_CRON};
	struct sl__todo *todo = &conv->todo;
	if (todo->kind == SL__TODO_EXCHANGE && w->log != NULL && !sim_await_events(sim, w, conv))
		return;
	if (todo->kind == SL__TODO_CRON && sim->k.n_crons > 0) {
		sim_cron_turn(sim, w);
		return;
	}
	struct sim_call *c =
		new_call(kinds[todo->kind], w, conv->who, todo->kind == SL__TODO_EXCHANGE ? todo->n_runs : 0);
	for (size_t i = 0; i < c->n_settles; i++) {
		struct sl_settle s;
		sl__core_settle(w->core, todo->runs[i], &s);
		keep_settle(c, i, &s);
	}
	if (c->kind == SIM_EXCHANGE && todo->claim != NULL)
		keep_request(c, &todo->request);
	if (c->kind == SIM_RENEW)
		keep_renewals(c, todo);
	sim_call_send(sim, c);
}

void sim_send_settle(struct sim *sim, struct sim_worker *w, int slot, const struct sl_settle *settle)
{
	struct sim_call *c = new_call(SIM_INSIDE, w, slot, 1);
	keep_settle(c, 0, settle);
	sim_call_send(sim, c);
}

/* ---- notifications ---- */

static void deliver(struct sim *sim, const struct sim_event *ev)
{
	if (ev->worker >= 0)
		sim_deliver_note(sim, &sim->workers[ev->worker], ev->ptr);
	free(ev->ptr);
}

void sim_publish(struct sim *sim, const struct sl_note *notes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (int w = 0; w < sim->k.n_workers && sim->k.notes; w++)
			for (int copies = sim_fault(sim, sim->k.lose_note)     ? 0
					  : sim_fault(sim, sim->k.double_note) ? 2
									       : 1;
			     copies > 0 && sim->workers[w].alive; copies--) {
				struct sl_note *note = sim_alloc(sizeof(*note));
				*note = notes[i];
				sim_at(sim, sim->now_ns + sim_range(sim, 10, 20000) * 1000, deliver, &sim->workers[w])
					->ptr = note;
			}
}

static void hear(const struct sl_note *note, void *ctx)
{
	struct sim_hearing *h = ctx;
	if (h->n < sizeof(h->notes) / sizeof(h->notes[0]))
		h->notes[h->n++] = *note;
}

const struct sl_store_scope *sim_hear(struct sim_hearing *h)
{
	h->n = 0;
	h->scope = (struct sl_store_scope){.note = hear, .ctx = h};
	return &h->scope;
}
