/* SPDX-License-Identifier: Apache-2.0 */
/*
 * P7 to P11: what is needed of packs that go is copied, and only then are they marked, and packs of earlier marks
 * deleted (I4).
 *
 * An index file that is removed has been merged into one that is durable. A pack that a create made since P5 is in its
 * own index file, which this run has not loaded and does not touch. At worst a pack is in no index file for a while;
 * readers then index it from its directory.
 */
#include <stdio.h>

#include "backup/check/pack.h"
#include "backup/prune/prune.h"

/* ---- P7 ---- */

struct pack_copying {
	struct bk_prune *p;
	struct bk_store *store;
	struct bk_scanner *scanner;
	uint32_t pack; /* the current one */
};

/* 1: the copy of the block in this pack is a chosen one. */
static int copy_wants(const struct bk_id *id, struct sl_err *err, void *ctx)
{
	struct pack_copying *c = ctx;
	struct bk_choice *choice = &c->p->choice;
	struct bk_ordinals *o = &choice->ordinals;
	int rc = sl__bk_view_ordinals(choice->view, id, o, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < o->n; i++)
		if (choice->view->pack_of[o->at[i]] == c->pack && sl__bk_bit(choice->chosen, o->at[i]))
			return 1;
	return 0;
}

static int copy_block(const struct bk_id *id, const uint8_t *bytes, uint32_t len, struct sl_err *err, void *ctx)
{
	struct pack_copying *c = ctx;
	struct bk_prune *p = c->p;
	int copies = 1;
	if (sl__bk_seen_has(p->metadata, id)) {
		/* Two packs should contain it: the chosen ones that stay, and new ones. */
		struct bk_choice *choice = &p->choice;
		int staying = 0;
		int rc = sl__bk_view_ordinals(&p->view, id, &choice->ordinals, err);
		if (rc != 0)
			return rc;
		for (size_t i = 0; i < choice->ordinals.n; i++) {
			uint64_t at = choice->ordinals.at[i];
			staying += sl__bk_bit(choice->chosen, at) && !p->copy[p->view.pack_of[at]];
		}
		copies = SL_MAX(BK_METADATA_COPIES - staying, 1);
	}
	return sl__bk_store_put_always(c->store, 0, &(struct bk_block){id, bytes, len}, copies, err);
}

int sl__bk_prune_copy(struct bk_prune *p, struct sl_err *err)
{
	struct pack_copying c = {.p = p};
	const struct bk_scan scan = {.wants = copy_wants, .block = copy_block, .ctx = &c};
	struct bk_reader *reader = NULL;
	uint64_t total = 0;
	for (size_t i = 0; i < p->view.packs.n; i++)
		total += p->copy[i];
	if (total == 0 && p->single.n == 0)
		return 0;
	int rc = sl__bk_store_new(&c.store, p->b, NULL, 1, err);
	if (rc == 0)
		rc = sl__bk_scanner_new(&c.scanner, p->b, err);

	/* What is needed of packs that go. */
	for (uint32_t i = 0; i < p->view.packs.n && rc == 0; i++) {
		struct bk_pack_blocks blocks = {.pack = p->view.packs.ids[i], .size = p->view.sizes[i]};
		if (!p->copy[i])
			continue;
		c.pack = i;
		rc = sl__bk_directory_blocks(p->b, &blocks, err);
		if (rc == 0)
			rc = sl__bk_scan(c.scanner, &blocks, &scan, err);
		sl__free(&p->b->env, blocks.blocks);
		sl__lock(&p->b->mu);
		p->b->progress.packs_total = total;
		p->b->progress.packs += p->b->progress.packs < total;
		sl__unlock(&p->b->mu);
	}

	/* Metadata that only one pack contains, into a second one. */
	if (rc == 0 && p->single.n > 0)
		rc = sl__bk_reader_new(&reader, p->b, p->view.index, err);
	for (size_t i = 0; i < p->single.n && rc == 0; i++) {
		const struct bk_ref *ref = &p->single.refs[i];
		const uint8_t *bytes = NULL;
		rc = sl__bk_read_block(reader, &ref->id, ref->len, &bytes, err);
		if (rc == 0) /* when its pack was copied, this store has it twice already */
			rc = sl__bk_store_put_always(c.store, 0, &(struct bk_block){&ref->id, bytes, ref->len}, 1, err);
	}
	sl__bk_reader_free(reader);
	if (rc == 0)
		rc = sl__bk_store_finish(c.store, err);
	sl__bk_store_free(c.store);
	sl__bk_scanner_free(c.scanner);
	p->copied = rc == 0;
	if (rc != 0)
		return sl_err_wrap(err, rc, "prune: copy what is still needed (nothing was removed)");
	return 0;
}

/* ---- P8 ---- */

int sl__bk_prune_mark(struct bk_prune *p, struct sl_err *err)
{
	struct bk_ids packs = {.n = 0};
	char id[BK_NAME_HEX];
	int rc = 0;
	for (size_t i = 0; i < p->view.packs.n && rc == 0; i++)
		if (p->to_mark[i] && sl__bk_ids_add(&p->b->env, &packs, &p->view.packs.ids[i]) != 0)
			rc = sl__no_memory(err, "prune");
	sl__bk_ids_sort(&packs);
	if (rc == 0 && packs.n > 0)
		rc = sl__bk_mark_put(p->b, &packs, id, err);
	sl__bk_ids_fini(&p->b->env, &packs);
	return rc;
}

/* ---- P9 ---- */

struct index_merge {
	const struct bk_prune *p;
	const struct bk_view *view;
	/* Names of index files that were put: a merged one may have the same bytes as one that existed. */
	char (*put)[SL_DRIVER_NAME_BYTES];
	size_t n_put;
};

static int note_put_file(const char *name, void *ctx)
{
	struct index_merge *m = ctx;
	char(*grown)[SL_DRIVER_NAME_BYTES] = sl__realloc(&m->p->b->env, m->put, (m->n_put + 1) * sizeof(*grown));
	if (grown == NULL)
		return SL_ENOMEM;
	m->put = grown;
	(void)snprintf(m->put[m->n_put++], SL_DRIVER_NAME_BYTES, "%s", name);
	return 0;
}

static bool pack_stays(const struct bk_id *pack, void *ctx)
{
	const struct index_merge *m = ctx;
	uint32_t number = sl__bk_view_pack(&m->p->view, pack);
	if (m->p->live && sl__bk_ids_has(&m->view->unindexed, pack)) /* of a running session, see plan.c */
		return false;
	return number != BK_NO_PACK ? !m->p->due[number] : sl__bk_view_pack(m->view, pack) != BK_NO_PACK;
}

/* Put one index without the packs to delete, then remove the files that it replaces. */
static int merge_index(struct bk_prune *p, const struct bk_view *v, struct sl_err *err)
{
	struct bk_index_builder *builder = NULL;
	struct index_merge m = {.p = p, .view = v};
	int rc = sl__bk_index_builder_new(&builder, &p->b->env, &p->b->keys, err);
	if (rc == 0)
		rc = sl__bk_index_builder_index(builder, v->index, pack_stays, &m, err);
	if (rc == 0)
		rc = sl__bk_index_builder_put(builder, &p->b->driver,
					      &(struct bk_index_put){.on_name = note_put_file, .ctx = &m}, err);
	if (rc == SL_ENOMEM)
		rc = sl__no_memory(err, "prune");
	sl__bk_index_builder_free(builder);
	for (size_t i = 0; i < sl__bk_index_files(v->index) && rc == 0; i++) {
		const char *name = sl__bk_index_name(v->index, i);
		bool keep = name[0] == '\0';
		for (size_t k = 0; k < m.n_put && !keep; k++)
			keep = strcmp(m.put[k], name) == 0;
		if (!keep)
			rc = sl__bk_remove(p->b, name, err);
	}
	sl__free(&p->b->env, m.put);
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
		return merge_index(p, &p->view, err);
	struct bk_view fresh = {.b = NULL}; /* with the packs of P7 */
	sl__bk_choice_fini(&p->choice);     /* no more choices are made, and two indexes would need twice the memory */
	sl__bk_view_drop_index(&p->view);
	int rc = sl__bk_view_load(p->b, &fresh, NULL, err);
	if (rc == 0)
		rc = merge_index(p, &fresh, err);
	sl__bk_view_fini(&fresh);
	return rc;
}

/* ---- P10, P11 ---- */

static int remove_due_packs(struct bk_prune *p, struct sl_err *err)
{
	for (size_t i = 0; i < p->view.packs.n; i++) {
		char name[SL_DRIVER_NAME_BYTES];
		if (!p->due[i])
			continue;
		sl__bk_pack_name(&p->view.packs.ids[i], name);
		int rc = sl__bk_check_stop(p->b, err);
		if (rc == 0)
			rc = sl__bk_remove(p->b, name, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* Remove marks of which no pack is left: all were deleted now, or were gone in P5. */
static int remove_done_marks(struct bk_prune *p, struct sl_err *err)
{
	for (size_t i = 0; i < p->old.n; i++) {
		const struct bk_ids *packs = &p->old.marks[i].packs;
		char name[SL_DRIVER_NAME_BYTES] = "marks/";
		bool done = true;
		for (size_t k = 0; k < packs->n && done; k++) {
			uint32_t number = sl__bk_view_pack(&p->view, &packs->ids[k]);
			done = number == BK_NO_PACK || p->due[number];
		}
		if (!done)
			continue;
		memcpy(name + strlen(name), p->old.marks[i].id, BK_NAME_HEX);
		int rc = sl__bk_remove(p->b, name, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int sl__bk_prune_delete(struct bk_prune *p, struct sl_err *err)
{
	int rc = remove_due_packs(p, err);
	if (rc == 0)
		rc = remove_done_marks(p, err);
	return rc;
}
