/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repair of config, keys, marks, packs and the index, in the order of repair.h. Snapshots are in repair_snapshots.c.
 */
#include "backup/check/repair.h"
#include "backup/repo/config.h"
#include "backup/repo/keyring.h"

#include <stdio.h>

#define NAMES_MAX 100 /* that one object may take in damaged/ */

int sl__bk_put_aside(struct sl_backup *b, const char *name, struct sl_err *err)
{
	const char *base = sl__basename(name);
	const char *slash = strchr(name, '/');
	int folder = slash != NULL ? (int)(slash - name) : 0;
	int rc = SL_EEXIST;
	for (int i = 1; i <= NAMES_MAX && rc == SL_EEXIST; i++) {
		char to[SL_DRIVER_NAME_BYTES], suffix[16] = "";
		if (i > 1)
			(void)snprintf(suffix, sizeof(suffix), "-%d", i);
		(void)snprintf(to, sizeof(to), "damaged/%.*s-%s%s", folder, name, base, suffix);
		rc = b->driver.ops->rename(b->driver.driver, name, to, err);
	}
	return rc == SL_ENOENT ? 0 : rc;
}

/* ---- the view ---- */

static int note_bad_index_file(const char *name, const struct sl_err *why, void *ctx)
{
	struct bk_repair *r = ctx;
	const struct sl_env *env = &r->b->env;
	char(*grown)[SL_DRIVER_NAME_BYTES] = sl__realloc(env, r->bad_files, (r->n_bad_files + 1) * sizeof(*grown));
	if (grown == NULL)
		return SL_ENOMEM;
	r->bad_files = grown;
	(void)snprintf(r->bad_files[r->n_bad_files++], SL_DRIVER_NAME_BYTES, "%s", name);
	r->reindex = true;
	return sl__bk_findings_damaged(&r->f, SL_BACKUP_FAULT_INDEX, name, why, NULL);
}

static int note_missing_pack(const struct bk_id *pack, bool usable, void *ctx)
{
	struct bk_repair *r = ctx;
	char name[SL_DRIVER_NAME_BYTES];
	struct sl_err why = SL_ERR_INIT;
	if (usable)
		return 0;
	r->reindex = true;
	sl__bk_pack_name(pack, name);
	(void)sl_err_set(&why, SL_ENOENT, "the index names it, but it does not exist");
	return sl__bk_findings_damaged(&r->f, SL_BACKUP_FAULT_MISSING_PACK, name, &why, NULL);
}

/* ---- packs: keep what is intact in damaged ones ---- */

struct pack_salvage {
	struct bk_repair *r;
	struct bk_store *store;
	struct bk_scanner *scanner;
	struct bk_ordinals ordinals;
	uint64_t kept, lost; /* blocks of the current pack */
};

/* Only blocks that no intact pack contains. */
static int salvage_wants(const struct bk_id *id, struct sl_err *err, void *ctx)
{
	struct pack_salvage *k = ctx;
	const struct bk_repair *r = k->r;
	int rc = sl__bk_view_ordinals(&r->view, id, &k->ordinals, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < k->ordinals.n; i++) {
		uint32_t pack = r->view.pack_of[k->ordinals.at[i]];
		if (pack != BK_NO_PACK && r->verify.verdicts[pack].state == BK_PACK_RIGHT)
			return 0;
	}
	return 1;
}

static int salvage_block(const struct bk_id *id, const uint8_t *bytes, uint32_t len, struct sl_err *err, void *ctx)
{
	struct pack_salvage *k = ctx;
	k->kept++;
	return sl__bk_store_put_always(k->store, 0, &(struct bk_block){id, bytes, len}, 1, err);
}

static int count_lost_block(SL_UNUSED const struct bk_id *id, SL_UNUSED const struct sl_err *why,
			    SL_UNUSED struct sl_err *err, void *ctx)
{
	struct pack_salvage *k = ctx;
	k->lost++;
	return 0;
}

static void fini_salvage(struct pack_salvage *k)
{
	sl__bk_store_free(k->store);
	sl__bk_scanner_free(k->scanner);
	sl__free(&k->r->b->env, k->ordinals.at);
}

static int salvage_packs(struct bk_repair *r, struct sl_err *err)
{
	const struct sl_env *env = &r->b->env;
	struct pack_salvage k SL_CLEANUP(fini_salvage) = {.r = r};
	const struct bk_scan scan = {
		.wants = salvage_wants, .block = salvage_block, .bad = count_lost_block, .ctx = &k};
	int rc = sl__bk_store_new(&k.store, r->b, NULL, 1, err);
	if (rc == 0)
		rc = sl__bk_scanner_new(&k.scanner, r->b, err);
	if (rc != 0)
		return rc;
	for (uint32_t i = 0; i < r->view.packs.n; i++) {
		struct bk_pack_blocks p = {.pack = r->view.packs.ids[i], .size = r->view.sizes[i]};
		enum bk_verdict_state state = r->verify.verdicts[i].state;
		if (state != BK_PACK_DAMAGED && state != BK_PACK_NO_DIRECTORY)
			continue;
		k.kept = k.lost = 0;
		rc = state == BK_PACK_NO_DIRECTORY ? sl__bk_indexed_blocks(&r->view, i, &p, err)
						   : sl__bk_directory_blocks(r->b, &p, err);
		if (rc == 0)
			rc = sl__bk_scan(k.scanner, &p, &scan, err);
		sl__free(env, p.blocks);
		if (rc == 0 && sl__bk_ids_add(env, &r->damaged, &p.pack) != 0)
			rc = sl__no_memory(err, "repair");
		r->out.blocks_kept += k.kept;
		r->out.blocks_lost += k.lost;
		bool nothing_left = k.kept == 0 && (k.lost > 0 || p.n == 0); /* else it is kept, here or elsewhere */
		r->out.packs_rewritten += !nothing_left;
		r->out.packs_lost += nothing_left;
		if (rc != 0)
			return rc;
	}
	sl__bk_ids_sort(&r->damaged);
	return sl__bk_store_finish(k.store, err);
}

static int note_wrong_pack(uint32_t pack, const struct sl_err *why, struct sl_err *err, void *ctx)
{
	struct bk_repair *r = ctx;
	char name[SL_DRIVER_NAME_BYTES];
	r->reindex = true;
	sl__bk_pack_name(&r->view.packs.ids[pack], name);
	return sl__bk_findings_damaged(&r->f, SL_BACKUP_FAULT_PACK, name, why, err);
}

/* ---- the index, rebuilt ---- */

static int count_index_file(SL_UNUSED const char *name, void *ctx)
{
	struct bk_repair *r = ctx;
	r->out.indexes_rebuilt++;
	return 0;
}

/* Put a new index of all intact packs. */
static int put_new_index(struct bk_repair *r, struct sl_err *err)
{
	struct bk_index_builder *builder = NULL;
	struct bk_ids packs = {.n = 0};
	uint64_t *sizes = NULL;
	int rc = sl__bk_index_builder_new(&builder, &r->b->env, &r->b->keys, err);
	if (rc == 0)
		rc = sl__bk_list_packs(r->b, &packs, &sizes, NULL, err);
	for (size_t i = 0; i < packs.n && rc == 0; i++) {
		struct bk_pack_blocks p = {.pack = packs.ids[i], .size = sizes[i]};
		if (sl__bk_ids_has(&r->damaged, &p.pack))
			continue;
		rc = sl__bk_check_stop(r->b, err);
		if (rc == 0)
			rc = sl__bk_directory_blocks(r->b, &p, err);
		if (rc == 0)
			rc = sl__bk_index_builder_pack(builder, &p.pack, p.blocks, p.n, err);
		sl__free(&r->b->env, p.blocks);
		if (rc == SL_ENOENT)
			rc = 0;
	}
	if (rc == 0)
		rc = sl__bk_index_builder_put(builder, &r->b->driver,
					      &(struct bk_index_put){.on_name = count_index_file, .ctx = r}, err);
	sl__bk_ids_fini(&r->b->env, &packs);
	sl__free(&r->b->env, sizes);
	sl__bk_index_builder_free(builder);
	return rc;
}

static int repair_index(struct bk_repair *r, struct sl_err *err)
{
	if (!r->reindex)
		return 0;
	int rc = put_new_index(r, err);

	/* The new index is durable: remove the old files. Names of index files are never reused (each contains a random
	 * number), so none of the old ones is a new one. */
	for (size_t i = 0; i < r->n_bad_files && rc == 0; i++)
		rc = sl__bk_put_aside(r->b, r->bad_files[i], err);
	for (size_t i = 0; i < sl__bk_index_files(r->view.index) && rc == 0; i++) {
		const char *name = sl__bk_index_name(r->view.index, i);
		if (name[0] != '\0')
			rc = sl__bk_remove(r->b, name, err);
	}
	for (size_t i = 0; i < r->damaged.n && rc == 0; i++) {
		char name[SL_DRIVER_NAME_BYTES];
		sl__bk_pack_name(&r->damaged.ids[i], name);
		rc = sl__bk_put_aside(r->b, name, err);
	}
	return rc;
}

/* ---- the steps ---- */

static int repair_all(struct bk_repair *r, struct sl_err *err)
{
	const struct bk_view_watch watch = {
		.index_damaged = note_bad_index_file, .directory_damaged = sl__bk_ignore_directory_damage, .ctx = r};
	struct bk_care care = {.fn = sl__bk_findings_take, .ctx = &r->f, .repair = true};

	/* Config, keys and marks. */
	int rc = sl__bk_config_care(r->b, &care, err);
	if (rc == 0)
		rc = sl__bk_keyring_care(r->b, &care, err);
	r->out.copies_repaired = care.repaired;
	if (rc == 0)
		rc = sl__bk_check_marks(r->b, true, &r->f, err);
	if (rc != 0)
		return rc;

	/* What packs and index there are. */
	rc = sl__bk_view_load(r->b, &r->view, &watch, err);
	if (rc == 0)
		rc = sl__bk_index_packs(r->view.index, note_missing_pack, r);
	if (rc == SL_ENOMEM)
		return sl__no_memory(err, "repair");
	if (rc != 0)
		return rc;

	/* Read every pack, and keep what is intact in damaged ones. */
	uint64_t before = r->f.faults;
	r->verify = (struct bk_verify){
		.b = r->b, .view = &r->view, .read_data = true, .on_wrong = note_wrong_pack, .ctx = r};
	rc = sl__bk_verify_packs(&r->verify, err);
	if (rc != 0)
		return rc;
	bool damaged = r->f.faults > before;
	before = r->f.faults;
	rc = sl__bk_check_agreement(&r->verify, &r->f, err);
	r->reindex = r->reindex || r->f.faults > before;
	if (rc == 0 && damaged)
		rc = salvage_packs(r, err);
	if (rc == 0)
		rc = repair_index(r, err);
	if (rc == 0)
		rc = sl__bk_repair_snapshots(r, err);
	return rc;
}

int sl_backup_repair(sl_backup *b, sl_backup_finding_fn *on_finding, void *ctx, struct sl_backup_repaired *out,
		     struct sl_err *err)
{
	int rc = sl__bk_begin(b, "repair", err);
	if (rc != 0)
		return rc;
	const sl_driver *d = &b->driver;
	struct bk_repair r = {.b = b, .f.env = &b->env, .verify.b = b};
	void *lock = NULL;

	/* The lock keeps out prunes, which would judge by what is being quarantined. */
	if (d->ops->lock != NULL)
		rc = d->ops->lock(d->driver, "prune", &lock, err);
	if (rc == SL_ELOCKED) {
		rc = sl_err_set(err, SL_ELOCKED, "repair: a prune or another repair of this repository is running");
	} else if (rc != 0) {
		rc = sl_err_wrap(err, rc, "repair: lock the repository");
	} else {
		rc = repair_all(&r, err);
		if (d->ops->lock != NULL)
			d->ops->unlock(d->driver, lock);
	}

	/* Findings are reported in any case. */
	int reported = sl__bk_findings_report(&r.f, on_finding, ctx, rc == 0 ? err : NULL);
	if (rc == 0)
		rc = reported;
	sl__result_copy(out, &r.out, sizeof(r.out));
	sl__bk_verify_fini(&r.verify);
	sl__bk_view_fini(&r.view);
	sl__bk_ids_fini(&b->env, &r.damaged);
	sl__free(&b->env, r.bad_files);
	sl__bk_findings_fini(&r.f);
	return rc;
}
