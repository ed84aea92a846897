/* SPDX-License-Identifier: Apache-2.0 */
/* P7 and P8: what is needed of packs that go is copied, and only then are they marked (I4). */
#include "backup/check/pack.h"
#include "backup/prune/prune.h"

struct copying {
	struct bk_prune *p;
	struct bk_store *store;
	struct bk_scanner *scanner;
	uint32_t pack; /* at hand */
};

static int wants(const struct bk_id *id, void *ctx, struct sl_err *err)
{
	struct copying *c = ctx;
	return sl__bk_is_chosen(&c->p->choice, id, c->pack, err);
}

/* How many of the places that were chosen for a block are in packs that stay. */
static int count_staying(struct bk_prune *p, const struct bk_id *id, int *n, struct sl_err *err)
{
	struct bk_choice *c = &p->choice;
	int rc = sl__bk_view_ordinals(&p->view, id, &c->ordinals, err);
	*n = 0;
	for (size_t i = 0; i < c->ordinals.n && rc == 0; i++) {
		uint64_t at = c->ordinals.at[i];
		*n += sl__bk_bit(c->chosen, at) && !p->copy[p->view.pack_of[at]];
	}
	return rc;
}

static int store_block(const struct bk_id *id, const uint8_t *bytes, uint32_t len, void *ctx, struct sl_err *err)
{
	struct copying *c = ctx;
	int copies = 1, staying = 0, rc = 0;
	if (sl__bk_seen_has(c->p->metadata, id)) {
		rc = count_staying(c->p, id, &staying, err);
		copies = SL_MAX(BK_METADATA_COPIES - staying, 1);
	}
	return rc == 0 ? sl__bk_store_put_always(c->store, 0, &(struct bk_block){id, bytes, len}, copies, err) : rc;
}

/* Metadata that one pack has gets into a second one. */
static int copy_single(struct copying *c, struct sl_err *err)
{
	struct bk_prune *p = c->p;
	struct bk_reader *reader = NULL;
	int rc = p->single.n > 0 ? sl__bk_reader_new(&reader, p->b, p->view.index, err) : 0;
	for (size_t i = 0; i < p->single.n && rc == 0; i++) {
		const struct bk_ref *ref = &p->single.refs[i];
		const uint8_t *bytes = NULL;
		rc = sl__bk_read_block(reader, &ref->id, ref->len, &bytes, err);
		if (rc == 0) /* when its pack was copied, this store has it twice already */
			rc = sl__bk_store_put_always(c->store, 0, &(struct bk_block){&ref->id, bytes, ref->len}, 1,
						     err);
	}
	sl__bk_reader_free(reader);
	return rc;
}

static int copy_pack(struct copying *c, uint32_t number, struct sl_err *err)
{
	struct bk_view *v = &c->p->view;
	struct bk_pack_block *blocks = NULL;
	size_t n = 0;
	c->pack = number;
	int rc = sl__bk_directory_blocks(v->b, &v->packs.ids[number], v->sizes[number], &blocks, &n, err);
	const struct bk_scan scan = {.wants = wants, .block = store_block, .ctx = c};
	if (rc == 0)
		rc = sl__bk_scan(c->scanner, &v->packs.ids[number], v->sizes[number], blocks, n, &scan, err);
	sl__free(&v->b->env, blocks);
	return rc;
}

static void count_done(struct bk_prune *p, uint64_t total)
{
	sl__lock(&p->b->mu);
	p->b->progress.packs_total = total;
	p->b->progress.packs += total > 0 && p->b->progress.packs < total;
	sl__unlock(&p->b->mu);
}

static int copy_packs(struct copying *c, uint64_t total, struct sl_err *err)
{
	struct bk_prune *p = c->p;
	int rc = 0;
	for (uint32_t i = 0; i < p->view.packs.n && rc == 0; i++) {
		if (!p->copy[i])
			continue;
		rc = copy_pack(c, i, err);
		count_done(p, total);
	}
	return rc;
}

int sl__bk_prune_copy(struct bk_prune *p, struct sl_err *err)
{
	struct copying c = {.p = p};
	uint64_t total = 0;
	for (size_t i = 0; i < p->view.packs.n; i++)
		total += p->copy[i];
	if (total == 0 && p->single.n == 0)
		return 0;
	int rc = sl__bk_store_new(&c.store, p->b, NULL, 1, err);
	if (rc == 0)
		rc = sl__bk_scanner_new(&c.scanner, p->b, err);
	if (rc == 0)
		rc = copy_packs(&c, total, err);
	if (rc == 0)
		rc = copy_single(&c, err);
	if (rc == 0)
		rc = sl__bk_store_finish(c.store, err);
	sl__bk_store_free(c.store);
	sl__bk_scanner_free(c.scanner);
	p->copied = rc == 0;
	return rc != 0 ? sl_err_wrap(err, rc, "prune: copy what is still needed (nothing was removed)") : 0;
}

int sl__bk_prune_condemn(struct bk_prune *p, struct sl_err *err)
{
	struct bk_ids packs = {.n = 0};
	char id[BK_NAME_HEX];
	int rc = 0;
	for (size_t i = 0; i < p->view.packs.n && rc == 0; i++)
		if (p->condemn[i] && sl__bk_ids_add(&p->b->env, &packs, &p->view.packs.ids[i]) != 0)
			rc = sl_err_set(err, SL_ENOMEM, "prune: out of memory");
	sl__bk_ids_sort(&packs);
	if (rc == 0 && packs.n > 0)
		rc = sl__bk_mark_put(p->b, &packs, id, err);
	sl__bk_ids_fini(&p->b->env, &packs);
	return rc;
}
