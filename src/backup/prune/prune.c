/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sl_backup_prune: options, the lock, the order of the steps; and P2, the sessions. prune.h describes the protocol.
 */
#include "backup/prune/prune.h"

#define REPACK_PERCENT 70
#define MERGE_SMALL 16
#define SILENCE_MS INT64_C(86400000)
#define SILENCE_MIN_MS INT64_C(60000)

/* ---- P2: which marks a live session may not have seen yet, and which sessions are dead ---- */

struct session_listing {
	struct bk_prune *p;
	int64_t now_ms; /* taken before the list: a session looks younger, if anything */
};

static bool has_seen(const struct bk_session_info *s, const char *mark)
{
	if (!s->ready)
		return false;
	for (size_t i = 0; i < s->n_seen; i++)
		if (strcmp(s->seen[i], mark) == 0)
			return true;
	return false;
}

static int judge_session(const struct bk_session_info *s, void *ctx)
{
	struct session_listing *l = ctx;
	struct bk_prune *p = l->p;
	if (l->now_ms - s->mtime_ms >= p->opts.session_silence_ms) {
		char(*grown)[BK_NAME_HEX] = sl__realloc(&p->b->env, p->silent, (p->n_silent + 1) * sizeof(*grown));
		if (grown == NULL)
			return SL_ENOMEM;
		p->silent = grown;
		memcpy(p->silent[p->n_silent++], s->id, BK_NAME_HEX);
		return 0;
	}
	p->live = true;
	p->out.sessions_live++;
	for (size_t i = 0; i < p->old.n; i++)
		if (!has_seen(s, p->old.marks[i].id))
			p->waits[i] = true;
	return 0;
}

/* A session that no longer exists was published, which P3 will see, or has ended. */
static int remove_silent_sessions(struct bk_prune *p, struct sl_err *err)
{
	const sl_driver *d = &p->b->driver;
	for (size_t i = 0; i < p->n_silent; i++) {
		char name[SL_DRIVER_NAME_BYTES] = "sessions/";
		memcpy(name + strlen(name), p->silent[i], BK_NAME_HEX);
		int rc = p->dry ? 0 : d->ops->remove(d->driver, name, err);
		if (rc != 0 && rc != SL_ENOENT)
			return rc;
		p->out.sessions_removed += rc == 0;
	}
	return 0;
}

static int prune_sessions(struct bk_prune *p, struct sl_err *err)
{
	const sl_driver *d = &p->b->driver;
	struct session_listing l = {.p = p};
	p->waits = sl__calloc(&p->b->env, p->old.n + 1, sizeof(*p->waits));
	if (p->waits == NULL)
		return sl__no_memory(err, "prune");
	int rc = d->ops->now_ms(d->driver, &l.now_ms, err);
	if (rc == 0)
		rc = sl__bk_sessions_each(p->b, judge_session, &l, err);
	if (rc == SL_ENOMEM)
		return sl__no_memory(err, "prune");
	if (rc == 0)
		rc = remove_silent_sessions(p, err);
	return rc;
}

/* ---- all steps ---- */

static int run_prune(struct bk_prune *p, struct sl_err *err)
{
	struct sl_backup *b = p->b;

	/* P1 to P5: what the repository contains, read in the order that the proof needs. */
	int rc = sl__bk_marks_load(b, &p->old, err);
	if (rc != 0)
		return rc;
	rc = prune_sessions(p, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_snapshot_ids(b, &p->snapshots, &p->n_snapshots, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_marks_load(b, &p->all, err);
	if (rc == 0)
		rc = sl__bk_view_load(b, &p->view, NULL, err);
	if (rc != 0)
		return rc;

	/* P6, and what follows from it. */
	rc = sl__bk_prune_choose(p, err);
	if (rc == 0)
		rc = sl__bk_prune_plan(p, err);
	if (rc != 0 || p->dry)
		return rc;

	/* P7 to P11. */
	rc = sl__bk_prune_copy(p, err);
	if (rc == 0)
		rc = sl__bk_prune_mark(p, err);
	if (rc == 0)
		rc = sl__bk_prune_index(p, err);
	if (rc == 0)
		rc = sl__bk_prune_delete(p, err);
	return rc;
}

static void fini_prune(struct bk_prune *p)
{
	const struct sl_env *env = &p->b->env;
	sl__bk_marks_fini(env, &p->old);
	sl__bk_marks_fini(env, &p->all);
	sl__free(env, p->waits);
	sl__free(env, p->silent);
	sl__free(env, p->snapshots);
	sl__bk_choice_fini(&p->choice);
	sl__free(env, p->bad);
	sl__bk_seen_free(p->metadata);
	sl__free(env, p->single.refs);
	sl__bk_view_fini(&p->view);
	sl__free(env, p->marked);
	sl__free(env, p->due);
	sl__free(env, p->to_mark);
	sl__free(env, p->copy);
	sl__free(env, p->needed);
	sl__free(env, p->contents);
}

int sl_backup_prune(sl_backup *b, const struct sl_backup_prune_opts *opts, struct sl_backup_pruned *out,
		    struct sl_err *err)
{
	struct bk_prune p SL_CLEANUP(fini_prune) = {.b = b};
	struct sl_backup_prune_opts *o = &p.opts;
	int rc = sl__bk_begin(b, "prune", err);
	if (rc != 0)
		return rc;
	sl__opts_copy(o, sizeof(*o), opts);
	if (o->repack_percent == 0)
		o->repack_percent = REPACK_PERCENT;
	if (o->session_silence_ms == 0)
		o->session_silence_ms = SILENCE_MS;
	if (o->repack_percent != SL_NONE && (o->repack_percent < 1 || o->repack_percent > 100))
		return sl_err_set(err, SL_EINVAL, "prune: repack_percent is %d; give 1 to 100, or SL_NONE",
				  (int)o->repack_percent);
	if (o->merge_small == 0)
		o->merge_small = MERGE_SMALL;
	if (o->merge_small != SL_NONE && o->merge_small < 2)
		return sl_err_set(err, SL_EINVAL, "prune: merge_small is %d; give at least 2, or SL_NONE",
				  (int)o->merge_small);
	if (o->session_silence_ms < SILENCE_MIN_MS)
		return sl_err_set(err, SL_EINVAL, "prune: session_silence_ms is %lld; give at least %lld",
				  (long long)o->session_silence_ms, (long long)SILENCE_MIN_MS);
	p.dry = o->dry_run == SL_ON;

	/* Where the driver has a lock, two prunes do not do the same work twice; they are as safe without it (I3). */
	const sl_driver *d = &b->driver;
	void *lock = NULL;
	bool locks = d->ops->lock != NULL && !p.dry;
	if (locks)
		rc = d->ops->lock(d->driver, "prune", &lock, err);
	if (rc == SL_ELOCKED)
		return sl_err_set(err, SL_ELOCKED, "prune: another prune or a repair of this repository is running");
	if (rc != 0)
		return sl_err_wrap(err, rc, "prune: lock the repository");
	rc = run_prune(&p, err);
	if (locks)
		d->ops->unlock(d->driver, lock);
	if (rc == 0)
		sl__result_copy(out, &p.out, sizeof(p.out));
	return rc;
}
