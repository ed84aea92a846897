/* SPDX-License-Identifier: Apache-2.0 */
/*
 * P9 to P11. An index file that is removed has been merged into one that is durable. A pack that a create made since P5
 * is in an index file of its own that this run does not know and does not touch; at worst a pack is for a while in no
 * index file, which everybody who reads takes in from its directory.
 */
#include <stdio.h>

#include "backup/prune/prune.h"

/* Names of index files that were put: a merged one may be the same, byte by byte, as one that was there. */
struct names {
	const struct sl_env *env;
	char (*at)[SL_DRIVER_NAME_BYTES];
	size_t n;
};

static int keep_name(const char *name, void *ctx)
{
	struct names *names = ctx;
	char(*grown)[SL_DRIVER_NAME_BYTES] = sl__realloc(names->env, names->at, (names->n + 1) * sizeof(*grown));
	if (grown == NULL)
		return SL_ENOMEM;
	names->at = grown;
	(void)snprintf(names->at[names->n++], SL_DRIVER_NAME_BYTES, "%s", name);
	return 0;
}

static bool has_name(const struct names *names, const char *name)
{
	for (size_t i = 0; i < names->n; i++)
		if (strcmp(names->at[i], name) == 0)
			return true;
	return false;
}

/* Of packs that a view has and that do not go. */
struct keeping {
	const struct bk_prune *p;
	const struct bk_view *view;
};

static bool stays(const struct bk_id *pack, void *ctx)
{
	const struct keeping *k = ctx;
	uint32_t number = sl__bk_view_pack(&k->p->view, pack);
	if (k->p->live && sl__bk_ids_has(&k->view->unindexed, pack)) /* of a session at work, see plan_unmarked */
		return false;
	return number != BK_NO_PACK ? !k->p->due[number] : sl__bk_view_pack(k->view, pack) != BK_NO_PACK;
}

static int remove_replaced(struct bk_prune *p, const struct bk_view *v, const struct names *put, struct sl_err *err)
{
	const sl_driver *d = &p->b->driver;
	int rc = 0;
	for (size_t i = 0; i < sl__bk_index_files(v->index) && rc == 0; i++) {
		const char *name = sl__bk_index_name(v->index, i);
		if (name[0] == '\0' || has_name(put, name))
			continue;
		rc = d->ops->remove(d->driver, name, err);
		if (rc == SL_ENOENT)
			rc = 0;
	}
	return rc;
}

static int merge(struct bk_prune *p, const struct bk_view *v, struct sl_err *err)
{
	struct bk_index_builder *builder = NULL;
	struct names put = {.env = &p->b->env};
	struct keeping k = {.p = p, .view = v};
	int rc = sl__bk_index_builder_new(&builder, &p->b->env, &p->b->keys, err);
	if (rc == 0)
		rc = sl__bk_index_builder_index(builder, v->index, stays, &k, err);
	if (rc == 0)
		rc = sl__bk_index_builder_put(builder, &p->b->driver, keep_name, &put, NULL, err);
	if (rc == SL_ENOMEM)
		rc = sl_err_set(err, SL_ENOMEM, "prune: out of memory");
	sl__bk_index_builder_free(builder);
	if (rc == 0)
		rc = remove_replaced(p, v, &put, err);
	sl__free(&p->b->env, put.at);
	return rc;
}

int sl__bk_prune_index(struct bk_prune *p, struct sl_err *err)
{
	size_t files = 0;
	for (size_t i = 0; i < sl__bk_index_files(p->view.index); i++)
		files += sl__bk_index_name(p->view.index, i)[0] != '\0';
	bool stale = files > 1 || p->copied || (p->view.unindexed.n > 0 && !p->live);
	for (size_t i = 0; i < p->view.packs.n; i++)
		stale = stale || p->due[i];
	if (!stale)
		return 0;
	if (!p->copied)
		return merge(p, &p->view, err);
	struct bk_view fresh = {.b = NULL}; /* with the packs of P7 */
	sl__bk_choice_fini(&p->choice);     /* nobody chooses any more, and two indexes would be twice the memory */
	sl__bk_view_drop_index(&p->view);
	int rc = sl__bk_view_load(p->b, &fresh, NULL, err);
	if (rc == 0)
		rc = merge(p, &fresh, err);
	sl__bk_view_fini(&fresh);
	return rc;
}

/* ---- P10, P11 ---- */

static int remove_packs(struct bk_prune *p, struct sl_err *err)
{
	const sl_driver *d = &p->b->driver;
	int rc = 0;
	for (size_t i = 0; i < p->view.packs.n && rc == 0; i++) {
		char name[SL_DRIVER_NAME_BYTES];
		if (!p->due[i])
			continue;
		sl__bk_pack_name(&p->view.packs.ids[i], name);
		rc = sl__bk_check_stop(p->b, err);
		if (rc == 0)
			rc = d->ops->remove(d->driver, name, err);
		if (rc == SL_ENOENT)
			rc = 0;
	}
	return rc;
}

/* A mark of which no pack is left: all were deleted now, or were gone in P5. */
static bool is_done(const struct bk_prune *p, const struct bk_mark *mark)
{
	for (size_t i = 0; i < mark->packs.n; i++) {
		uint32_t number = sl__bk_view_pack(&p->view, &mark->packs.ids[i]);
		if (number != BK_NO_PACK && !p->due[number])
			return false;
	}
	return true;
}

static int remove_marks(struct bk_prune *p, struct sl_err *err)
{
	const sl_driver *d = &p->b->driver;
	int rc = 0;
	for (size_t i = 0; i < p->old.n && rc == 0; i++) {
		char name[SL_DRIVER_NAME_BYTES] = "condemned/";
		if (!is_done(p, &p->old.marks[i]))
			continue;
		memcpy(name + strlen(name), p->old.marks[i].id, BK_NAME_HEX);
		rc = d->ops->remove(d->driver, name, err);
		if (rc == SL_ENOENT)
			rc = 0;
	}
	return rc;
}

int sl__bk_prune_delete(struct bk_prune *p, struct sl_err *err)
{
	int rc = remove_packs(p, err);
	if (rc == 0)
		rc = remove_marks(p, err);
	return rc;
}
