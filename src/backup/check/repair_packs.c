/* SPDX-License-Identifier: Apache-2.0 */
/* Packs: what is right in damaged ones is kept. And the index, made anew. */
#include "backup/check/repair.h"

#include <stdio.h>

struct keeping {
	struct bk_repair *r;
	struct bk_store *store;
	struct bk_scanner *scanner;
	struct bk_ordinals ordinals;
	uint64_t kept, lost; /* of the pack at hand */
};

/* 1: a pack that is right has the block too. */
static int is_elsewhere(struct keeping *k, const struct bk_id *id, struct sl_err *err)
{
	const struct bk_repair *r = k->r;
	int rc = sl__bk_view_ordinals(&r->view, id, &k->ordinals, err);
	for (size_t i = 0; i < k->ordinals.n && rc == 0; i++) {
		uint32_t pack = r->view.pack_of[k->ordinals.at[i]];
		rc = pack != BK_NO_PACK && r->verify.verdicts[pack].state == BK_PACK_RIGHT;
	}
	return rc;
}

static int wants(const struct bk_id *id, void *ctx, struct sl_err *err)
{
	int rc = is_elsewhere(ctx, id, err);
	return rc < 0 ? rc : !rc;
}

static int keep_block(const struct bk_id *id, const uint8_t *bytes, uint32_t len, void *ctx, struct sl_err *err)
{
	struct keeping *k = ctx;
	k->kept++;
	return sl__bk_store_put_always(k->store, 0, &(struct bk_block){id, bytes, len}, 1, err);
}

static int lose_block(const struct bk_id *id, const struct sl_err *why, void *ctx, struct sl_err *err)
{
	struct keeping *k = ctx;
	(void)id;
	(void)why;
	(void)err;
	k->lost++;
	return 0;
}

static int blocks_of(struct bk_repair *r, uint32_t pack, struct bk_pack_block **blocks, size_t *n, struct sl_err *err)
{
	if (r->verify.verdicts[pack].state == BK_PACK_NO_DIRECTORY)
		return sl__bk_indexed_blocks(&r->view, pack, blocks, n, err);
	return sl__bk_directory_blocks(r->b, &r->view.packs.ids[pack], r->view.sizes[pack], blocks, n, err);
}

static int keep_of_pack(struct keeping *k, uint32_t pack, struct sl_err *err)
{
	struct bk_repair *r = k->r;
	struct bk_pack_block *blocks = NULL;
	size_t n = 0;
	const struct bk_scan scan = {.wants = wants, .block = keep_block, .bad = lose_block, .ctx = k};
	k->kept = k->lost = 0;
	int rc = blocks_of(r, pack, &blocks, &n, err);
	if (rc == 0)
		rc = sl__bk_scan(k->scanner, &r->view.packs.ids[pack], r->view.sizes[pack], blocks, n, &scan, err);
	sl__free(&r->b->env, blocks);
	if (rc == 0 && sl__bk_ids_add(&r->b->env, &r->damaged, &r->view.packs.ids[pack]) != 0)
		rc = sl__no_memory(err, "repair");
	r->out.blocks_kept += k->kept;
	r->out.blocks_lost += k->lost;
	bool nothing_left = k->kept == 0 && (k->lost > 0 || n == 0); /* else it is kept, here or elsewhere */
	r->out.packs_rewritten += !nothing_left;
	r->out.packs_lost += nothing_left;
	return rc;
}

static int keep_what_is_right(struct bk_repair *r, struct sl_err *err)
{
	struct keeping k = {.r = r};
	int rc = sl__bk_store_new(&k.store, r->b, NULL, 1, err);
	if (rc == 0)
		rc = sl__bk_scanner_new(&k.scanner, r->b, err);
	for (uint32_t i = 0; i < r->view.packs.n && rc == 0; i++) {
		enum bk_verdict_state state = r->verify.verdicts[i].state;
		if (state == BK_PACK_DAMAGED || state == BK_PACK_NO_DIRECTORY)
			rc = keep_of_pack(&k, i, err);
	}
	sl__bk_ids_sort(&r->damaged);
	if (rc == 0)
		rc = sl__bk_store_finish(k.store, err);
	sl__bk_store_free(k.store);
	sl__bk_scanner_free(k.scanner);
	sl__free(&r->b->env, k.ordinals.at);
	return rc;
}

static int pack_wrong(uint32_t pack, const struct sl_err *why, void *ctx, struct sl_err *err)
{
	struct bk_repair *r = ctx;
	char name[SL_DRIVER_NAME_BYTES];
	const struct sl_err reason = *why; /* may be err itself */
	r->reindex = true;
	sl__bk_pack_name(&r->view.packs.ids[pack], name);
	return sl__bk_findings_add(&r->f, SL_BACKUP_FAULT_PACK, false, name, NULL, NULL, &reason, err);
}

int sl__bk_repair_packs(struct bk_repair *r, struct sl_err *err)
{
	uint64_t before = r->f.faults;
	r->verify =
		(struct bk_verify){.b = r->b, .view = &r->view, .read_data = true, .on_wrong = pack_wrong, .ctx = r};
	int rc = sl__bk_verify_packs(&r->verify, err);
	bool damaged = r->f.faults > before;
	before = r->f.faults;
	if (rc == 0)
		rc = sl__bk_check_agreement(&r->verify, &r->f, err);
	r->reindex = r->reindex || r->f.faults > before;
	return rc == 0 && damaged ? keep_what_is_right(r, err) : rc;
}

/* ---- the index ---- */

static int index_packs(struct bk_repair *r, struct bk_index_builder *builder, struct sl_err *err)
{
	struct bk_ids packs = {.n = 0};
	uint64_t *sizes = NULL;
	int rc = sl__bk_list_packs(r->b, &packs, &sizes, NULL, NULL, err);
	for (size_t i = 0; i < packs.n && rc == 0; i++) {
		struct bk_pack_block *blocks = NULL;
		size_t n = 0;
		if (sl__bk_ids_has(&r->damaged, &packs.ids[i]))
			continue;
		rc = sl__bk_check_stop(r->b, err);
		if (rc == 0)
			rc = sl__bk_directory_blocks(r->b, &packs.ids[i], sizes[i], &blocks, &n, err);
		if (rc == 0)
			rc = sl__bk_index_builder_pack(builder, &packs.ids[i], blocks, n, err);
		sl__free(&r->b->env, blocks);
		if (rc == SL_ENOENT)
			rc = 0;
	}
	sl__bk_ids_fini(&r->b->env, &packs);
	sl__free(&r->b->env, sizes);
	return rc;
}

static int count_file(const char *name, void *ctx)
{
	struct bk_repair *r = ctx;
	(void)name;
	r->out.indexes_rebuilt++;
	return 0;
}

/* Names of index files are never given twice (a random number is in each), so none of the old ones is a new one. */
static int remove_replaced(struct bk_repair *r, struct sl_err *err)
{
	const sl_driver *d = &r->b->driver;
	int rc = 0;
	for (size_t i = 0; i < r->bad_files_n && rc == 0; i++)
		rc = sl__bk_put_aside(r->b, r->bad_files[i], err);
	for (size_t i = 0; i < sl__bk_index_files(r->view.index) && rc == 0; i++) {
		const char *name = sl__bk_index_name(r->view.index, i);
		if (name[0] == '\0')
			continue;
		rc = d->ops->remove(d->driver, name, err);
		if (rc == SL_ENOENT)
			rc = 0;
	}
	return rc;
}

int sl__bk_repair_index(struct bk_repair *r, struct sl_err *err)
{
	struct bk_index_builder *builder = NULL;
	if (!r->reindex)
		return 0;
	int rc = sl__bk_index_builder_new(&builder, &r->b->env, &r->b->keys, err);
	if (rc == 0)
		rc = index_packs(r, builder, err);
	if (rc == 0)
		rc = sl__bk_index_builder_put(builder, &r->b->driver, count_file, r, NULL, err);
	sl__bk_index_builder_free(builder);
	if (rc == 0)
		rc = remove_replaced(r, err);
	for (size_t i = 0; i < r->damaged.n && rc == 0; i++) {
		char name[SL_DRIVER_NAME_BYTES];
		sl__bk_pack_name(&r->damaged.ids[i], name);
		rc = sl__bk_put_aside(r->b, name, err);
	}
	return rc;
}
