/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/prune/prune.h"

#define REPACK_PERCENT 70
#define MERGE_SMALL 16
#define SILENCE_MS INT64_C(86400000)
#define SILENCE_MIN_MS INT64_C(60000)

static int fill_opts(struct bk_prune *p, const struct sl_backup_prune_opts *opts, struct sl_err *err)
{
	struct sl_backup_prune_opts *o = &p->opts;
	sl__opts_copy(o, sizeof(*o), opts);
	if (o->repack_percent == 0)
		o->repack_percent = REPACK_PERCENT;
	if (o->session_silence_ms == 0)
		o->session_silence_ms = SILENCE_MS;
	if (o->repack_percent != SL_NONE && (o->repack_percent < 1 || o->repack_percent > 100))
		return sl_err_set(err, SL_EINVAL, "prune: repack_percent is %d: want 1 to 100, or SL_NONE",
				  (int)o->repack_percent);
	if (o->merge_small == 0)
		o->merge_small = MERGE_SMALL;
	if (o->merge_small != SL_NONE && o->merge_small < 2)
		return sl_err_set(err, SL_EINVAL, "prune: merge_small is %d: want at least 2, or SL_NONE",
				  (int)o->merge_small);
	if (o->session_silence_ms < SILENCE_MIN_MS)
		return sl_err_set(err, SL_EINVAL, "prune: session_silence_ms is %lld: want at least %lld",
				  (long long)o->session_silence_ms, (long long)SILENCE_MIN_MS);
	p->dry = o->dry_run == SL_ON;
	return 0;
}

static void prune_fini(struct bk_prune *p)
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
	sl__free(env, p->condemn);
	sl__free(env, p->copy);
	sl__free(env, p->needed);
	sl__free(env, p->contents);
}

/* P1 to P5: what there is, in the order that the proof needs. */
static int look(struct bk_prune *p, struct sl_err *err)
{
	struct sl_backup *b = p->b;
	int rc = sl__bk_marks_load(b, &p->old, err);
	if (rc == 0)
		rc = sl__bk_prune_sessions(p, err);
	if (rc == 0)
		rc = sl__bk_snapshot_ids(b, &p->snapshots, &p->snapshots_n, err);
	if (rc == 0)
		rc = sl__bk_marks_load(b, &p->all, err);
	if (rc == 0)
		rc = sl__bk_view_load(b, &p->view, NULL, err);
	return rc;
}

static int act(struct bk_prune *p, struct sl_err *err)
{
	int rc = sl__bk_prune_copy(p, err);
	if (rc == 0)
		rc = sl__bk_prune_condemn(p, err);
	if (rc == 0)
		rc = sl__bk_prune_index(p, err);
	if (rc == 0)
		rc = sl__bk_prune_delete(p, err);
	return rc;
}

static int prune(struct bk_prune *p, struct sl_err *err)
{
	int rc = look(p, err);
	if (rc == 0)
		rc = sl__bk_prune_choose(p, err);
	if (rc == 0)
		rc = sl__bk_prune_plan(p, err);
	if (rc == 0 && !p->dry)
		rc = act(p, err);
	return rc;
}

/* Where the driver has a lock, two prunes do not do the same work twice; they are as safe without (I3). */
static int prune_locked(struct bk_prune *p, struct sl_err *err)
{
	const sl_driver *d = &p->b->driver;
	void *lock = NULL;
	if (d->ops->lock == NULL || p->dry)
		return prune(p, err);
	int rc = d->ops->lock(d->driver, "prune", &lock, err);
	if (rc == SL_ELOCKED)
		return sl_err_set(err, SL_ELOCKED, "prune: another prune or repair of this repository runs");
	if (rc != 0)
		return sl_err_wrap(err, rc, "prune: lock the repository");
	rc = prune(p, err);
	d->ops->unlock(d->driver, lock);
	return rc;
}

int sl_backup_prune(sl_backup *b, const struct sl_backup_prune_opts *opts, struct sl_backup_pruned *out,
		    struct sl_err *err)
{
	int rc = sl__bk_begin(b, "prune", err);
	if (rc != 0)
		return rc;
	struct bk_prune p = {.b = b};
	rc = fill_opts(&p, opts, err);
	if (rc == 0)
		rc = prune_locked(&p, err);
	if (rc == 0 && out != NULL) {
		size_t size = out->struct_size;
		memcpy(out, &p.out, SL_MIN(size, sizeof(p.out)));
		out->struct_size = size;
	}
	prune_fini(&p);
	return rc;
}
