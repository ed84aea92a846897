/* SPDX-License-Identifier: Apache-2.0 */
/*
 * T1  Effects are sent after the commit that made them durable, or, on a caller's open transaction, as a part of it.
 * T2  What was collected after a savepoint is cut when it is rolled back to.
 * T3  A transaction is ended exactly once: `open` is NULL afterwards, and what is left only holds effects.
 */
#include "jobs/client/tx.h"

#include <unistd.h>

/* ---- home ---- */

int sl__home_init(struct sl__home *home, const char *what, const struct sl_env *env, const sl_store *store,
		  const sl_notify *notify, sl_observe_fn *observe, void *ctx, const char *worker, struct sl_err *err)
{
	*home = (struct sl__home){.what = what, .pid = getpid(), .notify = notify};
	if (store == NULL || store->ops == NULL)
		return sl_err_set(err, SL_EINVAL, "%s options: store is missing", what);
	if (store->ops->version != SL_STORE_VERSION)
		return sl_err_set(err, SL_EINVAL, "%s options: store is a table of version %d; this library needs %d",
				  what, store->ops->version, SL_STORE_VERSION);
	if (notify != NULL && (notify->ops == NULL || notify->ops->version != SL_NOTIFY_VERSION))
		return sl_err_set(err, SL_EINVAL, "%s options: notify is a table of another version than %d", what,
				  SL_NOTIFY_VERSION);
	home->store = *store;
	int rc = sl__env_init(&home->env, env, err);
	return rc != 0 ? rc : sl__observer_init(&home->observer, &home->env, observe, ctx, worker, err);
}

int sl__home_check(const struct sl__home *home, struct sl_err *err)
{
	if (home->pid == getpid())
		return 0;
	return sl_err_set(err, SL_EFORKED, "this %s was opened by process %d; a forked child must open its own",
			  home->what, (int)home->pid);
}

/* ---- effects ---- */

static void take_note(const struct sl_note *note, void *ctx)
{
	struct sl__effects *fx = ctx;
	sl__notes_add(&fx->notes, note);
}

static bool grow_changes(struct sl__effects *fx)
{
	bool from_inline = fx->changes == fx->inline_changes;
	struct sl_change *changes =
		sl__realloc(&fx->home->env, from_inline ? NULL : fx->changes, fx->cap * 2 * sizeof(*changes));
	if (changes == NULL)
		return false;
	if (from_inline)
		memcpy(changes, fx->inline_changes, sizeof(fx->inline_changes));
	fx->changes = changes;
	fx->cap *= 2;
	return true;
}

static void take_change(const struct sl_change *change, void *ctx)
{
	struct sl__effects *fx = ctx;
	if (fx->n == fx->cap && !grow_changes(fx)) {
		fx->lost++;
		return;
	}
	fx->changes[fx->n] = *change;
	fx->changes[fx->n++].type = sl__notes_name(&fx->notes, change->type);
}

void sl__effects_init(struct sl__effects *fx, const struct sl__home *home)
{
	*fx = (struct sl__effects){.home = home, .changes = fx->inline_changes, .cap = SL__EFFECTS_INLINE};
	sl__notes_init(&fx->notes, &home->env);
	fx->listen.note = home->notify != NULL ? take_note : NULL;
	fx->listen.change = sl__observer_listens(&home->observer) ? take_change : NULL;
	fx->listen.ctx = fx;
}

static void observe_changes(struct sl__effects *fx)
{
	for (size_t i = 0; i < fx->n; i++)
		sl__observe_change(&fx->home->observer, &fx->changes[i]);
	if (fx->lost > 0)
		sl__log(&fx->home->env, SL_LOG_WARN, "jobs", "no memory for observations", SL__F_U64("lost", fx->lost));
	fx->n = 0;
	fx->lost = 0;
}

void sl__effects_send(struct sl__effects *fx)
{
	sl__notes_publish(&fx->notes, fx->home->notify);
	observe_changes(fx);
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
struct mark {
	struct mark *below;
	size_t n_notes, n_changes;
	char name[];
};

struct sl_tx {
	const struct sl__home *home;
	sl_store_tx *open; /* NULL once it is committed and its notifications wait for sl_tx_notify */
	bool joined;       /* on the caller's connection */
	bool kept;         /* an attempt's */
	bool notify_after;
	struct mark *marks; /* the innermost first */
	struct sl__effects fx;
};

int sl__tx_begin(const struct sl__home *home, void *native, sl_tx **out, struct sl_err *err)
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
	rc = tx->joined ? ops->join(home->store.ctx, native, &tx->open, err)
			: ops->begin(home->store.ctx, &tx->open, err);
	if (rc != 0) {
		sl__free(&home->env, tx);
		return rc;
	}
	sl__effects_init(&tx->fx, home);
	*out = tx;
	return 0;
}

sl_store_tx *sl__tx_store(sl_tx *tx)
{
	return tx->open;
}

const struct sl_store_listen *sl__tx_listen(sl_tx *tx, const struct sl_audit_record *audit, size_t n)
{
	tx->fx.listen.audit = audit;
	tx->fx.listen.n_audit = n;
	return sl__effects_listen(&tx->fx);
}

void sl__tx_keep(sl_tx *tx)
{
	tx->kept = true;
}

int sl__tx_check(const sl_tx *tx, const struct sl__home *home, struct sl_err *err)
{
	if (tx->home->store.ops != home->store.ops || tx->home->store.ctx != home->store.ctx)
		return sl_err_set(err, SL_EINVAL, "the transaction is one of another store than the %s's", home->what);
	if (tx->open == NULL)
		return sl_err_set(err, SL_EINVAL, "the transaction has been committed; only its notification is left");
	return sl__home_check(tx->home, err);
}

static void pop_mark(sl_tx *tx)
{
	struct mark *m = tx->marks;
	tx->marks = m->below;
	sl__free(&tx->home->env, m);
}

static void free_tx(sl_tx *tx, bool send)
{
	while (tx->marks != NULL)
		pop_mark(tx);
	sl__effects_end(&tx->fx, send);
	sl__free(&tx->home->env, tx);
}

/* T1: on a connection that is not ours the caller's COMMIT may come later than this call, so the notes go into the
 * transaction where the notifier can do that. */
static int publish_inside(sl_tx *tx, struct sl_err *err)
{
	const sl_notify *notify = tx->home->notify;
	if (!tx->joined || tx->notify_after || notify == NULL || notify->ops->publish_in == NULL || tx->fx.notes.n == 0)
		return 0;
	int rc = notify->ops->publish_in(notify->ctx, tx->open, tx->fx.notes.notes, tx->fx.notes.n, err);
	if (rc == 0)
		sl__notes_clear(&tx->fx.notes);
	return rc;
}

int sl__tx_commit(sl_tx *tx, struct sl_err *err)
{
	int rc = sl__home_check(tx->home, err);
	if (rc != 0)
		return rc;
	rc = publish_inside(tx, err);
	if (rc != 0) {
		sl__tx_rollback(tx);
		return rc;
	}
	rc = tx->home->store.ops->commit(tx->open, err);
	tx->open = NULL;
	if (rc == 0 && tx->notify_after)
		return 0;
	free_tx(tx, rc == 0);
	return rc;
}

void sl__tx_rollback(sl_tx *tx)
{
	if (tx == NULL || sl__home_check(tx->home, NULL) != 0)
		return;
	if (tx->open != NULL)
		tx->home->store.ops->rollback(tx->open);
	free_tx(tx, false);
}

/* ---- the public face ---- */

static int check_open(const sl_tx *tx, struct sl_err *err)
{
	return sl__tx_check(tx, tx->home, err);
}

void *sl_tx_native(sl_tx *tx)
{
	return check_open(tx, NULL) == 0 ? tx->home->store.ops->native(tx->open) : NULL;
}

static int check_name(const char *name, struct sl_err *err)
{
	size_t n = name != NULL ? strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789") : 0;
	if (n == 0 || n > 63 || name[n] != '\0' || (name[0] >= '0' && name[0] <= '9'))
		return sl_err_set(err, SL_EINVAL, "savepoint: a name is 1 to 63 of [a-z0-9_], not a digit first");
	return 0;
}

static struct mark *find_mark(sl_tx *tx, const char *name)
{
	struct mark *m = tx->marks;
	while (m != NULL && strcmp(m->name, name) != 0)
		m = m->below;
	return m;
}

int sl_tx_savepoint(sl_tx *tx, const char *name, struct sl_err *err)
{
	int rc = check_open(tx, err);
	if (rc == 0)
		rc = check_name(name, err);
	if (rc != 0)
		return rc;
	size_t n = strlen(name) + 1;
	struct mark *m = sl__alloc(&tx->home->env, sizeof(*m) + n);
	if (m == NULL)
		return sl_err_set(err, SL_ENOMEM, "savepoint %s: no memory", name);
	*m = (struct mark){.below = tx->marks, .n_notes = tx->fx.notes.n, .n_changes = tx->fx.n};
	memcpy(m->name, name, n);
	rc = tx->home->store.ops->savepoint(tx->open, name, err);
	if (rc == 0)
		tx->marks = m;
	else
		sl__free(&tx->home->env, m);
	return rc;
}

/* The savepoint of that name, checked; NULL with *rc set. */
static struct mark *known_mark(sl_tx *tx, const char *name, int *rc, struct sl_err *err)
{
	*rc = check_open(tx, err);
	if (*rc == 0)
		*rc = check_name(name, err);
	struct mark *m = *rc == 0 ? find_mark(tx, name) : NULL;
	if (*rc == 0 && m == NULL)
		*rc = sl_err_set(err, SL_EINVAL, "savepoint %s: there is none of that name", name);
	return m;
}

int sl_tx_release(sl_tx *tx, const char *name, struct sl_err *err)
{
	int rc;
	struct mark *m = known_mark(tx, name, &rc, err);
	if (m == NULL)
		return rc;
	rc = tx->home->store.ops->release_savepoint(tx->open, name, err);
	if (rc != 0)
		return rc;
	while (tx->marks != m)
		pop_mark(tx);
	pop_mark(tx);
	return 0;
}

int sl_tx_rollback_to(sl_tx *tx, const char *name, struct sl_err *err)
{
	int rc;
	struct mark *m = known_mark(tx, name, &rc, err);
	if (m == NULL)
		return rc;
	rc = tx->home->store.ops->rollback_to(tx->open, name, err);
	if (rc != 0)
		return rc;
	while (tx->marks != m)
		pop_mark(tx);
	sl__notes_cut(&tx->fx.notes, m->n_notes);
	tx->fx.n = SL_MIN(tx->fx.n, m->n_changes);
	return 0;
}

int sl_tx_commit(sl_tx *tx, struct sl_err *err)
{
	if (tx->kept)
		return sl_err_set(err, SL_EINVAL, "an attempt's transaction is committed by the end of the attempt");
	int rc = check_open(tx, err);
	return rc != 0 ? rc : sl__tx_commit(tx, err);
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
	free_tx(tx, true);
}
