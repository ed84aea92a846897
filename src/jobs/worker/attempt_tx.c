/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions of attempts. Each one locks the job's row first (guard), so that a takeover waits for its end or has
 * happened before; the settle inside compares the fence once more, in the statement that updates the row.
 */
#include "jobs/worker/worker.h"

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

/* A transaction in which the job is known to be ours. */
static int begin_guarded(struct sl_attempt *a, sl_tx **out, struct sl_err *err)
{
	const sl_store *store = &a->w->home.store;
	enum sl_lost_reason lost = SL_LOST_NOT;
	sl_tx *tx;
	int rc = sl__tx_begin(&a->w->home, NULL, &tx, err);
	if (rc != 0)
		return rc;
	sl__tx_keep(tx);
	set_in_tx(a, true);
	rc = store->ops->guard(store->ctx, sl__tx_store(tx), a->run->id, a->run->fence, &lost, err);
	if (rc == 0 && lost == SL_LOST_NOT) {
		*out = tx;
		return 0;
	}
	roll_back(a, tx);
	return rc != 0 ? rc : sl__attempt_lost(a, lost, err);
}

static int aborted(const struct sl_attempt *a, struct sl_err *err)
{
	enum sl_abort_reason reason = sl_attempt_aborted(a);
	if (reason == SL_ABORT_NONE)
		return 0;
	return sl_err_set(err, SL_ECANCELLED, "job %llu: the attempt was aborted: %s", (unsigned long long)a->run->id,
			  sl_abort_reason_name(reason));
}

int sl_attempt_prepare(sl_attempt *a, enum sl_prepare_mode mode, sl_tx_fn *fn, void *ctx, struct sl_err *err)
{
	sl_tx *tx = NULL;
	if (mode != SL_ATOMIC && mode != SL_STAGED)
		return sl_err_set(err, SL_EINVAL, "prepare: mode must be SL_STAGED or SL_ATOMIC");
	if (mode == SL_STAGED && fn == NULL)
		return sl_err_set(err, SL_EINVAL, "prepare: a staged transaction needs fn");
	if (a->ended || a->tx != NULL)
		return sl_err_set(err, SL_EINVAL, "prepare: %s",
				  a->ended ? "the end of this attempt was declared before"
					   : "a transaction is open already");
	int rc = aborted(a, err);
	if (rc == 0)
		rc = begin_guarded(a, &tx, err);
	if (rc != 0)
		return rc;
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

/* ---- the settle inside ---- */

/* Notes go with the transaction, and to our own core once it has committed, also without a notifier. */
struct inside {
	const struct sl_store_listen *outer;
	struct sl__notes notes;
};

static void hear_note(const struct sl_note *note, void *ctx)
{
	struct inside *in = ctx;
	sl__notes_add(&in->notes, note);
	if (in->outer->note != NULL)
		in->outer->note(note, in->outer->ctx);
}

static void hear_change(const struct sl_change *change, void *ctx)
{
	struct inside *in = ctx;
	in->outer->change(change, in->outer->ctx);
}

static enum sl_settle_kind kind_of(enum sl__ending ending)
{
	switch (ending) {
	case SL__END_CONTINUE:
		return SL_SETTLE_CONTINUE;
	case SL__END_FAIL:
		return SL_SETTLE_FAIL;
	case SL__END_RESCHEDULE:
		return SL_SETTLE_RESCHEDULE;
	default:
		return SL_SETTLE_COMPLETE;
	}
}

static int settle(struct sl_attempt *a, sl_tx *tx, struct inside *in, enum sl_lost_reason *lost, struct sl_err *err)
{
	sl_worker *w = a->w;
	const sl_store *store = &w->home.store;
	struct sl_settle s;
	struct sl_settle_result result = {.lost = SL_LOST_NOT};
	in->outer = sl__tx_listen(tx, NULL, 0);
	const struct sl_store_listen listen = {
		.note = hear_note, .change = in->outer->change != NULL ? hear_change : NULL, .ctx = in};
	sl__lock(&w->mu);
	a->run->kind = kind_of(a->ending);
	sl__core_settle_inside(w->core, a->run, a->run->kind, &s);
	s.progress = a->progress != NULL ? a->progress->data : NULL;
	sl__unlock(&w->mu);
	int rc = store->ops->exchange(store->ctx, sl__tx_store(tx), &s, 1, &result, NULL, NULL, NULL, NULL, &listen,
				      err);
	*lost = result.lost;
	return rc;
}

static void settled(struct sl_attempt *a, struct inside *in)
{
	sl_worker *w = a->w;
	int64_t now = sl__mono_ns(&w->home.env);
	a->settled = true;
	a->run->ended_ns = now;
	sl__tell_settled(w, a->run, a->run->kind, SL_LOST_NOT);
	sl__lock(&w->mu);
	for (size_t i = 0; i < in->notes.n; i++)
		sl__core_note(w->core, &in->notes.notes[i], now);
	sl__worker_wake(w, now);
	sl__unlock(&w->mu);
}

int sl__attempt_settle(struct sl_attempt *a, sl_tx *tx, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	struct inside in;
	enum sl_lost_reason lost = SL_LOST_NOT;
	sl__notes_init(&in.notes, &a->w->home.env);
	int rc = a->w->events != NULL ? sl__emit_wait(a->w, &a->ticket, &why) : 0;
	bool unlogged = rc != 0;
	if (rc == 0)
		rc = settle(a, tx, &in, &lost, &why);
	if (rc == 0 && lost == SL_LOST_NOT) {
		/* When the answer of a commit is lost, the attempt fails, and the fence refuses its retry if it was
		 * done. */
		rc = sl__tx_commit(tx, &why);
		set_in_tx(a, false);
	} else {
		roll_back(a, tx);
	}
	if (rc == 0 && lost == SL_LOST_NOT)
		settled(a, &in);
	sl__notes_fini(&in.notes);
	if (rc != 0)
		return unlogged ? sl__attempt_unlogged(a, &why, err) : sl__attempt_break(a, &why, true, err);
	return lost == SL_LOST_NOT ? 0 : sl__attempt_lost(a, lost, err);
}
