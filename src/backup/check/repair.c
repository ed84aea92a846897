/* SPDX-License-Identifier: Apache-2.0 */
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

/* ---- config, keys and marks ---- */

static int object_damaged(enum sl_backup_fault fault, bool harmless, const char *object, const struct sl_err *why,
			  void *ctx, struct sl_err *err)
{
	struct bk_repair *r = ctx;
	return sl__bk_findings_add(&r->f, fault, harmless, object, NULL, NULL, why, err);
}

static int mark_damaged(enum sl_backup_fault fault, bool harmless, const char *object, const struct sl_err *why,
			void *ctx, struct sl_err *err)
{
	struct bk_repair *r = ctx;
	int rc = object_damaged(fault, harmless, object, why, ctx, err);
	return rc == 0 ? sl__bk_put_aside(r->b, object, err) : rc;
}

static int repair_objects(struct bk_repair *r, struct sl_err *err)
{
	struct bk_care care = {.fn = object_damaged, .ctx = r, .mend = true};
	int rc = sl__bk_config_care(r->b, &care, err);
	if (rc == 0)
		rc = sl__bk_keyring_care(r->b, &care, err);
	r->out.copies_mended = care.mended;
	return rc == 0 ? sl__bk_check_marks(r->b, mark_damaged, r, err) : rc;
}

/* ---- what there is ---- */

static int index_damaged(const char *name, const struct sl_err *why, void *ctx)
{
	struct bk_repair *r = ctx;
	const struct sl_env *env = &r->b->env;
	char(*grown)[SL_DRIVER_NAME_BYTES] = sl__realloc(env, r->bad_files, (r->bad_files_n + 1) * sizeof(*grown));
	if (grown == NULL)
		return SL_ENOMEM;
	r->bad_files = grown;
	(void)snprintf(r->bad_files[r->bad_files_n++], SL_DRIVER_NAME_BYTES, "%s", name);
	r->reindex = true;
	return sl__bk_findings_add(&r->f, SL_BACKUP_FAULT_INDEX, false, name, NULL, NULL, why, NULL);
}

static int directory_damaged(const struct bk_id *pack, const struct sl_err *why, void *ctx)
{
	(void)pack;
	(void)why;
	(void)ctx;
	return 0; /* verify tells */
}

static int pack_gone(const struct bk_id *pack, bool usable, void *ctx)
{
	struct bk_repair *r = ctx;
	char name[SL_DRIVER_NAME_BYTES];
	struct sl_err why = SL_ERR_INIT;
	if (usable)
		return 0;
	r->reindex = true;
	sl__bk_pack_name(pack, name);
	(void)sl_err_set(&why, SL_ENOENT, "the index names it, and it is not there");
	return sl__bk_findings_add(&r->f, SL_BACKUP_FAULT_MISSING_PACK, false, name, NULL, NULL, &why, NULL);
}

static int look(struct bk_repair *r, struct sl_err *err)
{
	const struct bk_view_watch watch = {
		.index_damaged = index_damaged, .directory_damaged = directory_damaged, .ctx = r};
	int rc = sl__bk_view_load(r->b, &r->view, &watch, err);
	if (rc == 0)
		rc = sl__bk_index_packs(r->view.index, pack_gone, r);
	return rc == SL_ENOMEM ? sl_err_set(err, rc, "repair: out of memory") : rc;
}

static int repair(struct bk_repair *r, struct sl_err *err)
{
	int rc = repair_objects(r, err);
	if (rc == 0)
		rc = look(r, err);
	if (rc == 0)
		rc = sl__bk_repair_packs(r, err);
	if (rc == 0)
		rc = sl__bk_repair_index(r, err);
	if (rc == 0)
		rc = sl__bk_repair_snapshots(r, err);
	return rc;
}

/* A prune beside it would judge by what is being put aside. */
static int repair_locked(struct bk_repair *r, struct sl_err *err)
{
	const sl_driver *d = &r->b->driver;
	void *lock = NULL;
	if (d->ops->lock == NULL)
		return repair(r, err);
	int rc = d->ops->lock(d->driver, "prune", &lock, err);
	if (rc == SL_ELOCKED)
		return sl_err_set(err, SL_ELOCKED, "repair: a prune or another repair of this repository runs");
	if (rc != 0)
		return sl_err_wrap(err, rc, "repair: lock the repository");
	rc = repair(r, err);
	d->ops->unlock(d->driver, lock);
	return rc;
}

static void repair_fini(struct bk_repair *r)
{
	sl__bk_verify_fini(&r->verify);
	sl__bk_view_fini(&r->view);
	sl__bk_ids_fini(&r->b->env, &r->damaged);
	sl__free(&r->b->env, r->bad_files);
	sl__bk_findings_fini(&r->f);
}

int sl_backup_repair(sl_backup *b, sl_backup_finding_fn *on_finding, void *ctx, struct sl_backup_repaired *out,
		     struct sl_err *err)
{
	int rc = sl__bk_begin(b, "repair", err);
	if (rc != 0)
		return rc;
	struct bk_repair r = {.b = b, .f.env = &b->env, .verify.b = b};
	rc = repair_locked(&r, err);
	struct sl_err told_err = SL_ERR_INIT;
	int told = sl__bk_findings_tell(&r.f, on_finding, ctx, &told_err); /* what was found is told in any case */
	if (rc == 0 && told != 0 && err != NULL)
		*err = told_err;
	rc = rc != 0 ? rc : told;
	if (out != NULL) {
		size_t size = out->struct_size;
		memcpy(out, &r.out, SL_MIN(size, sizeof(r.out)));
		out->struct_size = size;
	}
	repair_fini(&r);
	return rc;
}
