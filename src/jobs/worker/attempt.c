/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a handler declares about its attempt, and its transactions.
 *
 *   nothing yet ──complete, continue, fail, reschedule──▶ declared ──▶ settled with others after the handler returned,
 *        │                                                   │         or at once in a transaction (settle_inside)
 *        │ an abort: declaring is refused from then on       │ an abort comes too late
 *        ▼                                                   ▼
 *     aborted                                             as declared, unless the handler returns an error
 *
 * An output that the type refuses fails the attempt, unless the handler then declares an end that is accepted. A
 * transaction or an event that failed does so for good: what the handler believes to have written is not there.
 */
#include <unistd.h>

#include "jobs/client/types.h"
#include "jobs/worker/worker.h"

#define PROGRESS_NS ((int64_t)1000 * 1000000)

void sl__attempt_begin(struct sl_attempt *a)
{
	const struct sl__run *run = a->run;
	a->job = (struct sl_job){.id = run->id,
				 .chain_id = run->chain_id,
				 .type = a->w->type_names[run->type],
				 .status = SL_JOB_RUNNING,
				 .attempt = run->attempt,
				 .charged = run->charged,
				 .priority = run->priority,
				 .input = run->input,
				 .traceparent = run->traceparent,
				 .leased_by = a->w->id,
				 .created_ms = run->created_ms,
				 .scheduled_ms = run->scheduled_ms,
				 .started_ms = run->started_ms};
	a->ended = a->settled = a->broken = a->unlogged = false;
	a->ending = SL__END_COMPLETE;
	a->failure.code = 0;
	a->tx = NULL;
	a->ticket.batch = 0;
}

/* ---- declaring an end ---- */

static int set_aborted(const sl_attempt *a, struct sl_err *err)
{
	return sl_err_set(err, SL_ECANCELLED, "job %llu: the attempt was aborted: %s", (unsigned long long)a->run->id,
			  sl_abort_reason_name(sl_attempt_aborted(a)));
}

/* From now on the attempt ends so, and no abort undoes it. SL_ECANCELLED after an abort, SL_EINVAL for a second time,
 * the earlier failure of an attempt that is broken. */
static int declare_end(struct sl_attempt *a, enum sl__ending ending, struct sl_err *err)
{
	if (a->broken) {
		if (err != NULL)
			*err = a->failure;
		return a->failure.code;
	}
	if (a->ended)
		return sl_err_set(err, SL_EINVAL, "job %llu: the end of this attempt was declared before",
				  (unsigned long long)a->run->id);
	sl__lock(&a->w->mu);
	bool aborted = a->run->abort != SL_ABORT_NONE;
	a->run->declared = !aborted;
	sl__unlock(&a->w->mu);
	if (aborted)
		return set_aborted(a, err);
	a->ended = true;
	a->ending = ending;
	a->failure.code = 0;
	return 0;
}

int sl__attempt_break(struct sl_attempt *a, const struct sl_err *why, bool for_good, struct sl_err *err)
{
	if (!a->broken)
		a->failure = *why;
	a->broken = a->broken || for_good;
	if (err != NULL)
		*err = *why;
	return why->code;
}

int sl__attempt_unlogged(struct sl_attempt *a, const struct sl_err *why, struct sl_err *err)
{
	if (sl__worker_log_error(why->code)) {
		sl__worker_log_failed(a->w, why);
		a->unlogged = true;
	}
	return sl__attempt_break(a, why, true, err);
}

/* The store says that the job is not ours: fire the signal. SL_ECANCELLED. */
static int lose_attempt(struct sl_attempt *a, enum sl_lost_reason reason, struct sl_err *err)
{
	sl_worker *w = a->w;
	sl__lock(&w->mu);
	a->run->declared = false;
	sl__core_lost(w->core, &(struct sl__loss){a->run->id, a->run->fence, reason}, sl__abort_fire, w);
	sl__unlock(&w->mu);
	return sl_err_set(err, SL_ECANCELLED, "job %llu is not this worker's any more: %s",
			  (unsigned long long)a->run->id, sl_abort_reason_name(sl_attempt_aborted(a)));
}

/* ---- transactions ---- */

static void set_in_tx(struct sl_attempt *a, bool in_tx)
{
	sl__lock(&a->w->mu);
	a->in_tx = in_tx;
	sl__unlock(&a->w->mu);
}

static void roll_back(struct sl_attempt *a, sl_tx *tx)
{
	sl__tx_rollback(tx);
	set_in_tx(a, false);
}

/* Each transaction locks the job's row first (guard), so that a takeover waits for its end or has happened before; the
 * settle inside compares the fence once more, in the statement that updates the row. */
int sl_attempt_prepare(sl_attempt *a, enum sl_prepare_mode mode, sl_tx_fn *fn, void *ctx, struct sl_err *err)
{
	const sl_store *store = &a->w->home.store;
	enum sl_lost_reason lost = SL_LOST_NOT;
	sl_tx *tx;
	if (mode != SL_ATOMIC && mode != SL_STAGED)
		return sl_err_set(err, SL_EINVAL, "prepare: mode must be SL_STAGED or SL_ATOMIC");
	if (mode == SL_STAGED && fn == NULL)
		return sl_err_set(err, SL_EINVAL, "prepare: a staged transaction needs fn");
	if (a->ended)
		return sl_err_set(err, SL_EINVAL, "prepare: the end of this attempt was declared before");
	if (a->tx != NULL)
		return sl_err_set(err, SL_EINVAL, "prepare: a transaction is open already");
	if (sl_attempt_aborted(a) != SL_ABORT_NONE)
		return set_aborted(a, err);
	int rc = sl__tx_begin(&a->w->home, NULL, true, &tx, err);
	if (rc != 0)
		return rc;
	set_in_tx(a, true);
	rc = store->ops->guard(store->ctx, sl__tx_store(tx), a->run->id, a->run->fence, &lost, err);
	if (rc != 0 || lost != SL_LOST_NOT)
		roll_back(a, tx);
	if (rc != 0)
		return rc;
	if (lost != SL_LOST_NOT)
		return lose_attempt(a, lost, err);
	rc = fn != NULL ? fn(tx, err, ctx) : 0;
	if (rc != 0) {
		roll_back(a, tx);
		return rc;
	}
	if (mode == SL_ATOMIC) {
		a->tx = tx;
		return 0;
	}
	rc = sl__tx_commit(tx, err);
	set_in_tx(a, false);
	return rc;
}

sl_tx *sl_attempt_tx(sl_attempt *a)
{
	return a->tx;
}

/* Settle as declared inside the open transaction, if there is one, and commit it. The transaction is gone in any case. */
static int settle_inside(struct sl_attempt *a, struct sl_err *err)
{
	static const enum sl_settle_kind kinds[] = {[SL__END_COMPLETE] = SL_SETTLE_COMPLETE,
						    [SL__END_CONTINUE] = SL_SETTLE_CONTINUE,
						    [SL__END_FAIL] = SL_SETTLE_FAIL,
						    [SL__END_RESCHEDULE] = SL_SETTLE_RESCHEDULE};
	sl_worker *w = a->w;
	const sl_store *store = &w->home.store;
	struct sl_err why = SL_ERR_INIT;
	struct sl_settle_result result = {.lost = SL_LOST_NOT};
	struct sl_settle s;
	struct sl__heard heard;
	sl_tx *tx = a->tx;
	if (tx == NULL)
		return 0;
	a->tx = NULL;
	int rc = w->events != NULL ? sl__emit_wait(w, &a->ticket, &why) : 0;
	if (rc != 0) {
		roll_back(a, tx);
		return sl__attempt_unlogged(a, &why, err);
	}

	/* Notes go with the transaction, and to our own core once it has committed, also without a notifier. */
	sl__heard_init(&heard, w, sl__tx_scope(tx, NULL, 0));
	sl__lock(&w->mu);
	a->run->kind = kinds[a->ending];
	sl__core_settle(w->core, a->run, &s);
	s.progress = a->progress != NULL ? a->progress->data : NULL;
	sl__unlock(&w->mu);
	rc = store->ops->exchange(store->ctx, &(struct sl_exchange){.settles = &s, .n_settles = 1, .results = &result},
				  &heard.scope, &why);
	if (rc == 0 && result.lost == SL_LOST_NOT) {
		sl__heard_pass(&heard);
		/* When the answer of a commit is lost, the attempt fails, and the fence refuses its retry if it was
		 * done. */
		rc = sl__tx_commit(tx, &why);
		set_in_tx(a, false);
	} else {
		roll_back(a, tx);
	}
	if (rc == 0 && result.lost == SL_LOST_NOT) {
		int64_t now = sl__mono_ns(&w->home.env);
		a->settled = true;
		a->run->ended_ns = now;
		sl__report_settled(w, a->run, SL_LOST_NOT);
		sl__lock(&w->mu);
		for (size_t i = 0; i < heard.notes.n; i++)
			sl__core_note(w->core, &heard.notes.notes[i], now);
		sl__worker_wake(w, now);
		sl__unlock(&w->mu);
	}
	sl__notes_fini(&heard.notes);
	if (rc != 0)
		return sl__attempt_break(a, &why, true, err);
	return result.lost == SL_LOST_NOT ? 0 : lose_attempt(a, result.lost, err);
}

/* ---- the ends ---- */

static int check_output(struct sl_attempt *a, const char *output, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	if (output == NULL && !sl__process_of(a->w, a->run)->validates)
		return 0;
	int rc = sl__job_output_check(a->w->types, a->job.type, output, &why);
	if (rc == 0)
		return 0;
	if (why.code == 0) /* a validation that said no without a word */
		(void)sl_err_set(&why, rc, "output: refused by the validation of type %s", a->job.type);
	return sl__attempt_break(a, &why, false, err);
}

int sl_attempt_complete_with(sl_attempt *a, const char *output, sl_tx_fn *fn, void *ctx, struct sl_err *err)
{
	if (a->ended || a->broken || sl_attempt_aborted(a) != SL_ABORT_NONE)
		return declare_end(a, SL__END_COMPLETE, err); /* which says why not */
	int rc = check_output(a, output, err);
	if (rc != 0)
		return rc;
	if (fn != NULL) {
		struct sl_err why = SL_ERR_INIT;
		rc = a->tx == NULL ? sl_attempt_prepare(a, SL_ATOMIC, fn, ctx, &why) : fn(a->tx, &why, ctx);
		if (rc != 0 && why.code == 0)
			(void)sl_err_set(&why, rc, "the completing transaction: %s", sl_err_text(rc));
		/* A half-done transaction must not be completed by a later call. */
		if (rc != 0)
			return sl__attempt_break(a, &why, true, err);
	}
	const char *copy = "null";
	if (output != NULL) {
		size_t n = strlen(output) + 1;
		char *to = n <= sizeof(a->run->text) ? a->run->text : sl__run_memory(a->w, a->run, n);
		if (to == NULL)
			return sl__no_memory(err, "the end of an attempt");
		copy = memcpy(to, output, n);
	}
	rc = declare_end(a, SL__END_COMPLETE, err);
	if (rc != 0)
		return rc;
	a->run->output = copy;
	return settle_inside(a, err);
}

int sl_attempt_complete(sl_attempt *a, const char *output, struct sl_err *err)
{
	return sl_attempt_complete_with(a, output, NULL, NULL, err);
}

int sl_attempt_continue(sl_attempt *a, const struct sl_new_job *next, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	struct sl_new_job full;
	int rc = sl__new_job_check(a->w->types, &a->w->home.env, next, &full, &why);
	for (size_t i = 0; rc == 0 && i < next->n_blockers; i++)
		if (next->blockers[i] == a->run->chain_id)
			rc = sl_err_set(&why, SL_EINVAL,
					"blockers: %llu is the chain of this job, which cannot wait for itself",
					(unsigned long long)next->blockers[i]);
	if (rc != 0)
		return sl__attempt_break(a, &why, false, err);
	if (full.traceparent == NULL)
		full.traceparent = a->run->traceparent;

	/* A copy of the new job in memory of the run. */
	size_t type = strlen(full.type) + 1, input = full.input != NULL ? strlen(full.input) + 1 : 0;
	size_t trace = full.traceparent != NULL ? strlen(full.traceparent) + 1 : 0;
	size_t blockers = full.n_blockers * sizeof(*full.blockers);
	char *at = sl__run_memory(a->w, a->run, sizeof(full) + blockers + type + input + trace);
	if (at == NULL)
		return sl__no_memory(err, "the end of an attempt");
	struct sl_new_job *copy = (void *)at;
	*copy = full;
	at += sizeof(full);
	copy->blockers = blockers != 0 ? memcpy(at, full.blockers, blockers) : NULL;
	at += blockers;
	copy->type = memcpy(at, full.type, type);
	at += type;
	copy->input = input != 0 ? memcpy(at, full.input, input) : NULL;
	at += input;
	copy->traceparent = trace != 0 ? memcpy(at, full.traceparent, trace) : NULL;

	rc = declare_end(a, SL__END_CONTINUE, err);
	if (rc != 0)
		return rc;
	a->run->continued = copy;
	return settle_inside(a, err);
}

int sl_attempt_fail(sl_attempt *a, const char *reason, struct sl_err *err)
{
	int rc = declare_end(a, SL__END_FAIL, err);
	if (rc != 0)
		return rc;
	a->run->error = sl__run_text(a->w, a->run, reason != NULL ? reason : "failed");
	a->run->error_code = SL_EREFUSED;
	return settle_inside(a, err);
}

static int reschedule(sl_attempt *a, int64_t delay_ms, int64_t at_ms, struct sl_err *err)
{
	int rc = declare_end(a, SL__END_RESCHEDULE, err);
	if (rc != 0)
		return rc;
	a->run->delay_ms = delay_ms;
	a->run->at_ms = at_ms;
	return settle_inside(a, err);
}

int sl_attempt_reschedule_in(sl_attempt *a, int64_t delay_ms, struct sl_err *err)
{
	if (delay_ms < 0 || delay_ms > SL__JOB_TIME_MAX_MS)
		return sl_err_set(err, SL_EINVAL, "reschedule: delay_ms is out of range");
	return reschedule(a, delay_ms, 0, err);
}

int sl_attempt_reschedule_at(sl_attempt *a, int64_t at_ms, struct sl_err *err)
{
	if (at_ms < 0 || at_ms > SL__JOB_TIME_MAX_MS)
		return sl_err_set(err, SL_EINVAL, "reschedule: at_ms is out of range");
	return reschedule(a, 0, at_ms, err);
}

/* ---- the end of the handler ---- */

void sl__attempt_returned(struct sl_attempt *a, int rc, const struct sl_err *err)
{
	if (a->tx != NULL) {
		sl__tx_rollback(a->tx);
		a->tx = NULL;
		struct sl_err open;
		(void)sl_err_set(&open, SL_EINVAL, "the handler returned with its transaction open: rolled back");
		if (rc == 0)
			(void)sl__attempt_break(a, &open, true, NULL);
	}
	if (rc == 0 && !a->ended && a->failure.code == 0)
		(void)check_output(a, NULL, NULL);
	if (a->settled)
		return;
	/* What the handler returned counts before what failed in a call of it. */
	const struct sl_err *why = rc != 0 ? err : &a->failure;
	int code = rc != 0 ? rc : a->failure.code;
	if (code == 0)
		return;
	a->run->error = sl__run_text(a->w, a->run, why->msg[0] != '\0' ? why->msg : sl_err_text(code));
	a->run->error_code = code;
	if (a->failure.code == 0)
		a->failure.code = code;
}

enum sl__ending sl__attempt_finish(SL_UNUSED sl_worker *w, struct sl_attempt *a)
{
	struct sl__run *run = a->run;
	if (a->abort_fd >= 0)
		(void)close(a->abort_fd);
	a->abort_fd = -1;
	a->in_tx = false;
	run->ticket = a->ticket;
	if (a->progress != NULL) {
		a->progress->next = run->owned;
		run->owned = a->progress;
		run->progress = a->progress->data;
		a->progress = NULL;
	}
	if (a->settled)
		return SL__END_SETTLED;
	if (a->failure.code != 0) {
		run->declared = false;
		return a->unlogged ? SL__END_UNLOGGED : SL__END_FAILED;
	}
	if (!a->ended) {
		run->declared = run->abort == SL_ABORT_NONE;
		run->output = "null";
	}
	return a->ending;
}

/* ---- reading, and progress ---- */

const struct sl_job *sl_attempt_job(const sl_attempt *a)
{
	return &a->job;
}

const char *sl_attempt_worker_id(const sl_attempt *a)
{
	return a->w->id;
}

struct blockers {
	sl_chain_fn *fn;
	void *ctx;
	uint64_t last;
	uint32_t n;
};

static int each_blocker(const struct sl_chain *chain, void *ctx)
{
	struct blockers *b = ctx;
	b->last = chain->id;
	b->n++;
	return b->fn(chain, b->ctx);
}

int sl_attempt_blockers(sl_attempt *a, sl_chain_fn *fn, void *ctx, struct sl_err *err)
{
	const sl_store *store = &a->w->home.store;
	struct sl_job_filter filter = {.blocked_by_job = a->run->id, .limit = 1000, .ascending = true};
	if (!a->run->has_blockers)
		return 0;
	for (;;) {
		struct blockers b = {.fn = fn, .ctx = ctx};
		int rc = store->ops->list_chains(store->ctx, &filter, each_blocker, &b, err);
		if (rc != 0 || b.n < filter.limit)
			return rc;
		filter.after = b.last;
	}
}

int sl_attempt_progress(sl_attempt *a, const char *json, struct sl_err *err)
{
	sl_worker *w = a->w;
	int rc = sl__job_json_check(json, "progress", err);
	if (rc != 0)
		return rc;
	/* A transaction of ours, also one that fn of a prepare is in, has the job's row: to write it would wait for us.
	 */
	bool now = !a->in_tx && sl__mono_ns(&w->home.env) - a->run->started_ns >= PROGRESS_NS;
	if (now) {
		const sl_store *store = &w->home.store;
		enum sl_lost_reason lost = SL_LOST_NOT;
		rc = store->ops->progress(store->ctx, a->run->id, a->run->fence, json, &lost, NULL);
		if (rc == 0 && lost != SL_LOST_NOT)
			return lose_attempt(a, lost, err);
		if (rc == 0 || rc == SL_ECANCELLED)
			return rc;
	}
	/* Kept for the reaper, or for the settle. */
	size_t n = strlen(json) + 1;
	struct sl__owned *text = sl__alloc(&w->home.env, sizeof(*text) + n);
	if (text == NULL)
		return sl_err_set(err, SL_ENOMEM, "progress: no memory");
	memcpy(text->data, json, n);
	sl__lock(&w->mu);
	struct sl__owned *old = a->progress;
	a->progress = text;
	sl__unlock(&w->mu);
	sl__free(&w->home.env, old);
	return 0;
}
