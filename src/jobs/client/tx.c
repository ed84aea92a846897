/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions and the effects that they collect, and the observer of changes.
 *
 * T1  Effects are sent after the commit that made them durable, or, on a caller's open transaction, as a part of it.
 * T2  What was collected after a savepoint is cut when it is rolled back to.
 * T3  A transaction is ended exactly once: `open` is NULL afterwards, and what is left only holds effects.
 */
#include "jobs/client/tx.h"

#include <unistd.h>

/* ---- the observer ---- */

void sl__observe(const struct sl__observer *o, const struct sl_observation *observation)
{
	assert((unsigned)observation->kind < SL__OBSERVE_COUNT);
	sl_counter_add(o->counters[observation->kind], 1);
	if (o->fn == NULL)
		return;
	struct sl_observation full = *observation;
	full.worker = o->worker;
	o->fn(&full, o->ctx);
}

/* ---- home ---- */

int sl__home_init(struct sl__home *home, const struct sl__home_opts *opts, struct sl_err *err)
{
	const sl_store *store = opts->store;
	const sl_notify *notify = opts->notify;
	*home = (struct sl__home){.what = opts->what, .pid = getpid(), .notify = notify};
	if (store == NULL || store->ops == NULL)
		return sl_err_set(err, SL_EINVAL, "%s options: store is missing", home->what);
	if (store->ops->version != SL_STORE_VERSION)
		return sl_err_set(err, SL_EINVAL, "%s options: store is a table of version %d; this library needs %d",
				  home->what, store->ops->version, SL_STORE_VERSION);
	if (notify != NULL && (notify->ops == NULL || notify->ops->version != SL_NOTIFY_VERSION))
		return sl_err_set(err, SL_EINVAL, "%s options: notify is not a table of version %d", home->what,
				  SL_NOTIFY_VERSION);
	home->store = *store;
	int rc = sl__env_init(&home->env, opts->env, err);
	if (rc != 0)
		return rc;
	struct sl__observer *o = &home->observer;
	*o = (struct sl__observer){.fn = opts->observe,
				   .ctx = opts->observe_ctx,
				   .worker = opts->worker,
				   .counts = home->env.metrics != NULL};
	for (int kind = SL_OBSERVE_NONE + 1; o->counts && kind < SL__OBSERVE_COUNT; kind++) {
		struct sl_metric_label label = {"kind", sl_observe_name((enum sl_observe_kind)kind)};
		rc = sl_metrics_counter(home->env.metrics, "sluice_job_observations_total",
					"Changes of state of jobs, attempts, leases and workers.", &label, 1,
					&o->counters[kind], err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int sl__home_check(const struct sl__home *home, struct sl_err *err)
{
	if (home->pid == getpid())
		return 0;
	return sl_err_set(err, SL_EFORKED, "this %s was opened by process %d; a forked child must open its own",
			  home->what, (int)home->pid);
}

/* ---- effects ---- */

static void collect_note(const struct sl_note *note, void *ctx)
{
	struct sl__effects *fx = ctx;
	sl__notes_add(&fx->notes, note);
}

static void collect_change(const struct sl_change *change, void *ctx)
{
	struct sl__effects *fx = ctx;
	if (fx->n == fx->cap) {
		bool from_inline = fx->changes == fx->inline_changes;
		struct sl_change *grown =
			sl__grow(&fx->home->env, from_inline ? NULL : fx->changes, fx->n, &fx->cap, sizeof(*grown));
		if (grown == NULL) {
			fx->lost++;
			return;
		}
		if (from_inline)
			memcpy(grown, fx->inline_changes, sizeof(fx->inline_changes));
		fx->changes = grown;
	}
	fx->changes[fx->n] = *change;
	fx->changes[fx->n++].type = sl__notes_name(&fx->notes, change->type);
}

void sl__effects_init(struct sl__effects *fx, const struct sl__home *home)
{
	*fx = (struct sl__effects){.home = home, .changes = fx->inline_changes, .cap = SL__EFFECTS_INLINE};
	sl__notes_init(&fx->notes, &home->env);
	fx->scope.note = home->notify != NULL ? collect_note : NULL;
	fx->scope.change = sl__observer_listens(&home->observer) ? collect_change : NULL;
	fx->scope.ctx = fx;
}

void sl__effects_send(struct sl__effects *fx)
{
	static const enum sl_observe_kind kinds[] = {
		[SL_CHANGE_CREATED] = SL_OBSERVE_JOB_CREATED,
		[SL_CHANGE_BLOCKED] = SL_OBSERVE_JOB_BLOCKED,
		[SL_CHANGE_UNBLOCKED] = SL_OBSERVE_JOB_UNBLOCKED,
		[SL_CHANGE_SCHEDULED] = SL_OBSERVE_JOB_SCHEDULED,
		[SL_CHANGE_REAPED] = SL_OBSERVE_JOB_REAPED,
		[SL_CHANGE_CANCELLED] = SL_OBSERVE_JOB_CANCELLED,
		[SL_CHANGE_DELETED] = SL_OBSERVE_JOB_DELETED,
		[SL_CHANGE_CHAIN_COMPLETED] = SL_OBSERVE_CHAIN_COMPLETED,
		[SL_CHANGE_COMPLETED] = SL_OBSERVE_JOB_COMPLETED,
		[SL_CHANGE_FAILED] = SL_OBSERVE_JOB_FAILED,
	};
	sl__notes_publish(&fx->notes, fx->home->notify);
	for (size_t i = 0; i < fx->n; i++) {
		const struct sl_change *change = &fx->changes[i];
		struct sl_err failed = SL_ERR_INIT;
		if ((size_t)change->kind == 0 || (size_t)change->kind >= SL_COUNT(kinds))
			continue;
		if (change->kind == SL_CHANGE_FAILED)
			(void)sl_err_set(&failed, SL_ECANCELLED, "failed from outside");
		const struct sl_observation observation = {.kind = kinds[change->kind],
							   .type = change->type,
							   .id = change->id,
							   .chain_id = change->chain_id,
							   .duration_ns = -1,
							   .err = failed.code != 0 ? &failed : NULL};
		sl__observe(&fx->home->observer, &observation);
	}
	if (fx->lost > 0)
		sl__log(&fx->home->env, SL_LOG_WARN, "jobs", "no memory for observations", SL__F_U64("lost", fx->lost));
	fx->n = 0;
	fx->lost = 0;
}

void sl__effects_fini(struct sl__effects *fx)
{
	if (fx->changes != fx->inline_changes)
		sl__free(&fx->home->env, fx->changes);
	fx->changes = fx->inline_changes;
	fx->n = 0;
	fx->cap = SL__EFFECTS_INLINE;
	sl__notes_fini(&fx->notes);
}

void sl__effects_end(struct sl__effects *fx, bool happened)
{
	if (happened)
		sl__effects_send(fx);
	sl__effects_fini(fx);
}

/* ---- transactions ---- */

/* What had been collected when a savepoint was made. */
struct savepoint {
	struct savepoint *below;
	size_t n_notes, n_changes;
	char name[];
};

struct sl_tx {
	const struct sl__home *home;
	sl_store_tx *open; /* NULL once it is committed and its notifications wait for sl_tx_notify */
	bool joined;       /* on the caller's connection */
	bool kept;         /* an attempt's */
	bool notify_after;
	struct savepoint *savepoints; /* the innermost first */
	struct sl__effects fx;
};

int sl__tx_begin(const struct sl__home *home, void *native, bool kept, sl_tx **out, struct sl_err *err)
{
	const struct sl_store_ops *ops = home->store.ops;
	int rc = sl__home_check(home, err);
	if (rc != 0)
		return rc;
	sl_tx *tx = sl__calloc(&home->env, 1, sizeof(*tx));
	if (tx == NULL)
		return sl_err_set(err, SL_ENOMEM, "begin a transaction: no memory");
	tx->home = home;
	tx->joined = native != NULL;
	tx->kept = kept;
	rc = tx->joined ? ops->join(home->store.ctx, native, &tx->open, err)
			: ops->begin(home->store.ctx, &tx->open, err);
	if (rc != 0) {
		sl__free(&home->env, tx);
		return rc;
	}
	sl__effects_init(&tx->fx, home);
	tx->fx.scope.tx = tx->open;
	*out = tx;
	return 0;
}

sl_store_tx *sl__tx_store(sl_tx *tx)
{
	return tx->open;
}

const struct sl_store_scope *sl__tx_scope(sl_tx *tx, const struct sl_audit_record *audit, size_t n)
{
	tx->fx.scope.audit = audit;
	tx->fx.scope.n_audit = n;
	return &tx->fx.scope;
}

int sl__tx_check(const sl_tx *tx, const struct sl__home *home, struct sl_err *err)
{
	if (tx->home->store.ops != home->store.ops || tx->home->store.ctx != home->store.ctx)
		return sl_err_set(err, SL_EINVAL, "the transaction belongs to another store than the %s", home->what);
	if (tx->open == NULL)
		return sl_err_set(err, SL_EINVAL, "the transaction has been committed; only its notification is left");
	return sl__home_check(tx->home, err);
}

/* Forget the savepoints inside of `down_to`; NULL: all. */
static void pop_savepoints(sl_tx *tx, const struct savepoint *down_to)
{
	while (tx->savepoints != down_to) {
		struct savepoint *s = tx->savepoints;
		tx->savepoints = s->below;
		sl__free(&tx->home->env, s);
	}
}

static void free_client_tx(sl_tx *tx, bool send)
{
	pop_savepoints(tx, NULL);
	sl__effects_end(&tx->fx, send);
	sl__free(&tx->home->env, tx);
}

int sl__tx_commit(sl_tx *tx, struct sl_err *err)
{
	const sl_notify *notify = tx->home->notify;
	struct sl__notes *notes = &tx->fx.notes;
	int rc = sl__home_check(tx->home, err);
	if (rc != 0)
		return rc;
	/* T1: on the caller's connection its COMMIT may come later than this call, so the notifications become a part
	 * of the transaction where the notifier can do that. */
	if (tx->joined && !tx->notify_after && notify != NULL && notify->ops->publish_in != NULL && notes->n > 0) {
		rc = notify->ops->publish_in(notify->ctx, tx->open, notes->notes, notes->n, err);
		if (rc != 0) {
			sl__tx_rollback(tx);
			return rc;
		}
		sl__notes_clear(notes);
	}
	rc = tx->home->store.ops->commit(tx->open, err);
	tx->open = NULL;
	if (rc == 0 && tx->notify_after)
		return 0;
	free_client_tx(tx, rc == 0);
	return rc;
}

void sl__tx_rollback(sl_tx *tx)
{
	if (tx == NULL || sl__home_check(tx->home, NULL) != 0)
		return;
	if (tx->open != NULL)
		tx->home->store.ops->rollback(tx->open);
	free_client_tx(tx, false);
}

/* ---- the public interface ---- */

void *sl_tx_native(sl_tx *tx)
{
	return sl__tx_check(tx, tx->home, NULL) == 0 ? tx->home->store.ops->native(tx->open) : NULL;
}

/* Is the transaction open and the name valid? *found, unless it is NULL, is the savepoint, which must exist. */
static int check_savepoint(const sl_tx *tx, const char *name, struct savepoint **found, struct sl_err *err)
{
	int rc = sl__tx_check(tx, tx->home, err);
	if (rc != 0)
		return rc;
	size_t n = name != NULL ? strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789") : 0;
	if (n == 0 || n > 63 || name[n] != '\0' || (name[0] >= '0' && name[0] <= '9'))
		return sl_err_set(err, SL_EINVAL,
				  "invalid savepoint name: use 1 to 63 of [a-z0-9_], not beginning with a digit");
	if (found == NULL)
		return 0;
	struct savepoint *s = tx->savepoints;
	while (s != NULL && strcmp(s->name, name) != 0)
		s = s->below;
	*found = s;
	return s != NULL ? 0 : sl_err_set(err, SL_EINVAL, "no savepoint %s in this transaction", name);
}

int sl_tx_savepoint(sl_tx *tx, const char *name, struct sl_err *err)
{
	int rc = check_savepoint(tx, name, NULL, err);
	if (rc != 0)
		return rc;
	size_t n = strlen(name) + 1;
	struct savepoint *s = sl__alloc(&tx->home->env, sizeof(*s) + n);
	if (s == NULL)
		return sl_err_set(err, SL_ENOMEM, "savepoint %s: no memory", name);
	*s = (struct savepoint){.below = tx->savepoints, .n_notes = tx->fx.notes.n, .n_changes = tx->fx.n};
	memcpy(s->name, name, n);
	rc = tx->home->store.ops->savepoint(tx->open, name, err);
	if (rc == 0)
		tx->savepoints = s;
	else
		sl__free(&tx->home->env, s);
	return rc;
}

int sl_tx_release(sl_tx *tx, const char *name, struct sl_err *err)
{
	struct savepoint *s;
	int rc = check_savepoint(tx, name, &s, err);
	if (rc != 0)
		return rc;
	rc = tx->home->store.ops->release_savepoint(tx->open, name, err);
	if (rc != 0)
		return rc;
	pop_savepoints(tx, s->below);
	return 0;
}

/* T2. */
int sl_tx_rollback_to(sl_tx *tx, const char *name, struct sl_err *err)
{
	struct savepoint *s;
	int rc = check_savepoint(tx, name, &s, err);
	if (rc != 0)
		return rc;
	rc = tx->home->store.ops->rollback_to(tx->open, name, err);
	if (rc != 0)
		return rc;
	pop_savepoints(tx, s);
	sl__notes_cut(&tx->fx.notes, s->n_notes);
	tx->fx.n = SL_MIN(tx->fx.n, s->n_changes);
	return 0;
}

int sl_tx_commit(sl_tx *tx, struct sl_err *err)
{
	if (tx->kept)
		return sl_err_set(err, SL_EINVAL, "an attempt's transaction is committed by the end of the attempt");
	int rc = sl__tx_check(tx, tx->home, err);
	if (rc != 0)
		return rc;
	return sl__tx_commit(tx, err);
}

void sl_tx_rollback(sl_tx *tx)
{
	if (tx != NULL && !tx->kept)
		sl__tx_rollback(tx);
}

void sl_tx_notify_after(sl_tx *tx)
{
	tx->notify_after = tx->joined;
}

void sl_tx_notify(sl_tx *tx)
{
	if (tx == NULL || tx->open != NULL || sl__home_check(tx->home, NULL) != 0)
		return;
	free_client_tx(tx, true);
}
