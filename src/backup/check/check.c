/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check: is everything there that a snapshot needs, and right? It changes nothing and takes no lock; a prune or a
 * forget may run beside it. What looks missing is looked at again in a fresh view when packs have come or gone
 * meanwhile: a block that a prune has copied from one pack to another is not missing.
 */
#include "backup/check/check.h"
#include "backup/repo/config.h"
#include "backup/repo/keyring.h"

#define ROUNDS_MAX 10

struct checking {
	struct sl_backup *b;
	struct sl_backup_check_opts opts;
	struct bk_findings f;
	struct sl_err *err;
	int failed; /* a callback without a result could not keep a finding */
	struct bk_verify verify;
	struct sl_backup_checked out;
};

/* ---- single objects ---- */

static int find_object(struct checking *c, enum sl_backup_fault fault, bool harmless, const char *object,
		       const struct sl_err *why, struct sl_err *err)
{
	return sl__bk_findings_add(&c->f, fault, harmless, object, NULL, NULL, why, err);
}

static void stray(const char *name, void *ctx)
{
	struct checking *c = ctx;
	struct sl_err why = SL_ERR_INIT;
	(void)sl_err_set(&why, SL_EDATA, "it is not an object of a repository");
	if (find_object(c, SL_BACKUP_FAULT_STRAY, true, name, &why, c->err) != 0)
		c->failed = SL_ENOMEM;
}

static int object_damaged(enum sl_backup_fault fault, bool harmless, const char *object, const struct sl_err *why,
			  void *ctx, struct sl_err *err)
{
	return find_object(ctx, fault, harmless, object, why, err);
}

static int check_objects(struct checking *c, struct sl_err *err)
{
	struct bk_care care = {.fn = object_damaged, .ctx = c};
	int rc = sl__bk_config_care(c->b, &care, err);
	if (rc == 0)
		rc = sl__bk_keyring_care(c->b, &care, err);
	if (rc == 0)
		rc = sl__bk_check_marks(c->b, object_damaged, c, err);
	return rc == 0 ? sl__bk_check_strays(c->b, stray, c, err) : rc;
}

/* ---- a view, with what it meets ---- */

static int index_damaged(const char *name, const struct sl_err *why, void *ctx)
{
	struct checking *c = ctx;
	return find_object(c, SL_BACKUP_FAULT_INDEX, false, name, why, c->err);
}

/* Told once, by verify; nothing of it is in the index. */
static int directory_damaged(const struct bk_id *pack, const struct sl_err *why, void *ctx)
{
	(void)pack;
	(void)why;
	(void)ctx;
	return 0;
}

static int load_view(struct checking *c, struct bk_view *view, struct sl_err *err)
{
	const struct bk_view_watch watch = {
		.stray = stray, .index_damaged = index_damaged, .directory_damaged = directory_damaged, .ctx = c};
	c->err = err;
	int rc = sl__bk_view_load(c->b, view, &watch, err);
	return rc != 0 ? rc : c->failed;
}

/* Another view, of what is there now; its own findings were made before. */
static int reload_view(struct checking *c, struct bk_view *view, struct sl_err *err)
{
	struct checking quiet = {.b = c->b, .f.env = &c->b->env};
	struct bk_view fresh = {.b = NULL};
	int rc = load_view(&quiet, &fresh, err);
	sl__bk_findings_fini(&quiet.f);
	if (rc != 0)
		return rc;
	sl__bk_view_fini(view);
	*view = fresh;
	return 0;
}

/* ---- packs ---- */

static int pack_wrong(uint32_t pack, const struct sl_err *why, void *ctx, struct sl_err *err)
{
	struct checking *c = ctx;
	char name[SL_DRIVER_NAME_BYTES];
	const struct sl_err reason = *why; /* may be err itself */
	sl__bk_pack_name(&c->verify.view->packs.ids[pack], name);
	return find_object(c, SL_BACKUP_FAULT_PACK, false, name, &reason, err);
}

static int check_packs(struct checking *c, const struct bk_view *view, struct sl_err *err)
{
	c->verify = (struct bk_verify){.b = c->b,
				       .view = view,
				       .read_data = c->opts.read_data == SL_ON,
				       .pass_unreadable = true,
				       .on_wrong = pack_wrong,
				       .ctx = c};
	int rc = sl__bk_verify_packs(&c->verify, err);
	if (rc == 0)
		rc = sl__bk_check_agreement(&c->verify, &c->f, err);
	c->out.packs = view->packs.n;
	c->out.blocks = c->verify.blocks;
	c->out.bytes = c->verify.bytes;
	return rc;
}

static int tell_unindexed(struct checking *c, const struct bk_view *view, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; i < view->unindexed.n && rc == 0; i++) {
		char name[SL_DRIVER_NAME_BYTES];
		struct sl_err why = SL_ERR_INIT;
		sl__bk_pack_name(&view->unindexed.ids[i], name);
		(void)sl_err_set(&why, SL_ENOENT, "no index names it; the next create or prune takes it in");
		rc = find_object(c, SL_BACKUP_FAULT_UNINDEXED, true, name, &why, err);
	}
	return rc;
}

/* ---- snapshots ---- */

static bool same_ids(const struct bk_ids *a, const struct bk_ids *b)
{
	return a->n == b->n && (a->n == 0 || memcmp(a->ids, b->ids, a->n * sizeof(*a->ids)) == 0);
}

/* 1: packs have come or gone since the view was loaded. */
static int has_moved(struct checking *c, const struct bk_view *view, struct sl_err *err)
{
	struct bk_ids now = {.n = 0};
	int rc = sl__bk_list_packs(c->b, &now, NULL, NULL, NULL, err);
	if (rc == 0)
		rc = !same_ids(&now, &view->packs);
	sl__bk_ids_fini(&c->b->env, &now);
	return rc;
}

struct missing_packs {
	struct checking *c;
	bool harmless;
	struct sl_err *err;
};

static int tell_missing_pack(const struct bk_id *pack, bool usable, void *ctx)
{
	const struct missing_packs *m = ctx;
	char name[SL_DRIVER_NAME_BYTES];
	struct sl_err why = SL_ERR_INIT;
	if (usable)
		return 0;
	sl__bk_pack_name(pack, name);
	(void)sl_err_set(&why, SL_ENOENT,
			 m->harmless ? "the index names it, and it is not there; no data is lost with it"
				     : "the index names it, and it is not there");
	return find_object(m->c, SL_BACKUP_FAULT_MISSING_PACK, m->harmless, name, &why, m->err);
}

static int check_snapshots(struct checking *c, struct bk_view *view, struct sl_err *err)
{
	bool missing = false;
	int rc = 0;
	for (int round = 0; round < ROUNDS_MAX && rc == 0; round++) {
		struct bk_findings found = {.env = &c->b->env};
		missing = false;
		rc = sl__bk_check_snapshots(c->b, view, &c->verify, &found, &c->out.snapshots, &missing, err);
		int moved = rc == 0 && missing && round + 1 < ROUNDS_MAX ? has_moved(c, view, err) : 0;
		if (moved == 1) {
			sl__bk_findings_fini(&found);
			rc = reload_view(c, view, err);
			continue;
		}
		rc = rc != 0 ? rc : moved;
		for (size_t i = 0; i < found.n && rc == 0; i++) {
			const struct bk_finding *x = &found.items[i];
			rc = sl__bk_findings_add(&c->f, x->fault, x->harmless, x->object, x->snapshot, x->path,
						 &x->reason, err);
		}
		c->f.unnamed += found.unnamed;
		c->f.faults += found.unnamed;
		sl__bk_findings_fini(&found);
		break;
	}
	struct missing_packs m = {.c = c, .harmless = !missing, .err = err};
	return rc == 0 ? sl__bk_index_packs(view->index, tell_missing_pack, &m) : rc;
}

static int check(struct checking *c, struct sl_err *err)
{
	struct bk_view view = {.b = NULL};
	int rc = check_objects(c, err);
	if (rc == 0)
		rc = load_view(c, &view, err);
	if (rc == 0)
		rc = check_packs(c, &view, err);
	if (rc == 0)
		rc = tell_unindexed(c, &view, err);
	if (rc == 0)
		rc = check_snapshots(c, &view, err);
	sl__bk_verify_fini(&c->verify);
	sl__bk_view_fini(&view);
	return rc;
}

static int verdict(const struct checking *c, struct sl_err *err)
{
	if (c->out.findings == c->out.harmless)
		return 0;
	return sl_err_set(err, SL_ECORRUPT, "check: %llu things are damaged or missing; see sluice backup repair",
			  (unsigned long long)(c->out.findings - c->out.harmless));
}

int sl_backup_check(sl_backup *b, const struct sl_backup_check_opts *opts, struct sl_backup_checked *out,
		    struct sl_err *err)
{
	int rc = sl__bk_begin(b, "check", err);
	if (rc != 0)
		return rc;
	struct checking c = {.b = b, .f.env = &b->env, .verify.b = b};
	sl__opts_copy(&c.opts, sizeof(c.opts), opts);
	rc = check(&c, err);
	if (rc == 0) {
		c.out.harmless = c.f.harmless;
		c.out.findings = c.f.faults + c.f.harmless;
		rc = sl__bk_findings_tell(&c.f, c.opts.on_finding, c.opts.ctx, err);
	}
	if (rc == 0 && out != NULL) {
		size_t size = out->struct_size;
		memcpy(out, &c.out, SL_MIN(size, sizeof(c.out)));
		out->struct_size = size;
	}
	if (rc == 0)
		rc = verdict(&c, err);
	sl__bk_findings_fini(&c.f);
	return rc;
}
