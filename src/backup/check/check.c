/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check: does everything that a snapshot needs exist, and is it intact? Check changes nothing and takes no lock; a prune
 * or a forget may run at the same time. What looks missing is checked again in a fresh view when packs have been added
 * or removed since: a block that a prune has copied from one pack to another is not missing.
 */
#include <stdio.h>

#include "backup/check/repair.h"
#include "backup/helpers.h"
#include "backup/repo/config.h"
#include "backup/repo/keyring.h"

#define ROUNDS_MAX 10
#define MARKS "marks"
#define MARK_MAX (256u << 20)

struct checking {
	struct sl_backup *b;
	struct sl_backup_check_opts opts;
	struct bk_findings f;
	struct sl_err *err;
	bool no_memory;     /* a callback without a result could not add a finding */
	const char *folder; /* that check_object_name is listing */
	struct bk_view view;
	struct bk_verify verify;
	struct sl_backup_checked out;
};

/* ---- findings: collected first, reported at the end ---- */

static void drop_items(struct bk_findings *f)
{
	for (size_t i = 0; i < f->n; i++)
		sl__free(f->env, f->items[i].text);
	sl__free(f->env, f->items);
	f->items = NULL;
	f->n = f->cap = 0;
}

void sl__bk_findings_fini(struct bk_findings *f)
{
	if (f->env != NULL)
		drop_items(f);
	*f = (struct bk_findings){.env = f->env};
}

/* Copy a string to *at and advance it. */
static const char *copy_finding_text(char **at, const char *text)
{
	if (text == NULL)
		return NULL;
	char *copy = *at;
	size_t size = strlen(text) + 1;
	memcpy(copy, text, size);
	*at += size;
	return copy;
}

/* A view that is loaded again finds the same damage again. */
static bool is_known_finding(const struct bk_findings *f, const struct sl_backup_finding *x)
{
	for (size_t i = 0; i < f->n; i++) {
		const struct sl_backup_finding *k = &f->items[i].x;
		if (k->fault == x->fault && k->path == NULL && k->snapshot == NULL &&
		    strcmp(k->object, x->object) == 0 && strcmp(k->reason.msg, x->reason.msg) == 0)
			return true;
	}
	return false;
}

int sl__bk_findings_add(struct bk_findings *f, const struct sl_backup_finding *x, struct sl_err *err)
{
	if (x->path == NULL && x->snapshot == NULL && is_known_finding(f, x))
		return 0;
	f->faults += !x->harmless;
	f->harmless += x->harmless != 0;
	if (x->path != NULL && f->n >= BK_FINDINGS_FILES) {
		f->unnamed++;
		return 0;
	}
	struct bk_finding *grown = sl__grow(f->env, f->items, f->n, &f->cap, sizeof(*grown));
	if (grown == NULL)
		return sl__no_memory(err, "findings");
	f->items = grown;
	size_t size = strlen(x->object) + 1 + (x->snapshot != NULL ? strlen(x->snapshot) + 1 : 0) +
		      (x->path != NULL ? strlen(x->path) + 1 : 0);
	char *text = sl__alloc(f->env, size), *at = text;
	if (text == NULL)
		return sl__no_memory(err, "findings");
	struct bk_finding *item = &f->items[f->n++];
	*item = (struct bk_finding){.x = *x, .text = text};
	item->x.struct_size = sizeof(item->x);
	item->x.object = copy_finding_text(&at, x->object);
	item->x.snapshot = copy_finding_text(&at, x->snapshot);
	item->x.path = copy_finding_text(&at, x->path);
	return 0;
}

int sl__bk_findings_take(const struct sl_backup_finding *x, struct sl_err *err, void *ctx)
{
	struct bk_findings *f = ctx;
	struct sl_backup_finding of_snapshot = *x;
	of_snapshot.snapshot = f->snapshot;
	return sl__bk_findings_add(f, &of_snapshot, err);
}

int sl__bk_findings_damaged(struct bk_findings *f, enum sl_backup_fault fault, const char *object,
			    const struct sl_err *why, struct sl_err *err)
{
	const struct sl_backup_finding x = {.fault = fault, .object = object, .reason = *why};
	return sl__bk_findings_add(f, &x, err);
}

int sl__bk_findings_report(struct bk_findings *f, sl_backup_finding_fn *fn, void *ctx, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; i < f->n && fn != NULL && rc == 0; i++)
		rc = fn(&f->items[i].x, ctx);
	if (rc == 0 && f->unnamed > 0 && fn != NULL) {
		struct sl_backup_finding more = {
			.struct_size = sizeof(more), .fault = SL_BACKUP_FAULT_MISSING_BLOCK, .object = ""};
		(void)sl_err_set(&more.reason, SL_ECORRUPT, "%llu more files are affected",
				 (unsigned long long)f->unnamed);
		rc = fn(&more, ctx);
	}
	drop_items(f);
	f->unnamed = 0;
	if (rc != 0)
		return sl_err_set(err, rc, "ended by the caller");
	return 0;
}

/* ---- single objects ---- */

int sl__bk_check_marks(struct sl_backup *b, bool quarantine, struct bk_findings *f, struct sl_err *err)
{
	struct bk_listed *listed = NULL;
	size_t n = 0;
	int rc = sl__bk_list_names(b, MARKS, &listed, &n, err);
	for (size_t i = 0; i < n && rc == 0; i++) {
		char name[SL_DRIVER_NAME_BYTES];
		struct sl_err why = SL_ERR_INIT;
		struct bk_opened o = {.memory = NULL};
		(void)snprintf(name, sizeof(name), MARKS "/%s", listed[i].id);
		int opened = sl__bk_get_sealed(b, &(struct bk_object){MARKS, listed[i].id, BK_KIND_MARK}, MARK_MAX, &o,
					       &why);
		if (opened == 0) {
			sl__free(&b->env, o.memory);
		} else if (opened == SL_ECORRUPT || opened == SL_ETOOBIG) {
			rc = sl__bk_findings_damaged(f, SL_BACKUP_FAULT_MARK, name, &why, err);
			if (rc == 0 && quarantine)
				rc = sl__bk_put_aside(b, name, err);
		} else if (opened != SL_ENOENT) {
			rc = sl__bk_result(opened, &why, err);
		}
	}
	sl__free(&b->env, listed);
	return rc;
}

/* A name that no object of a repository has. */
static void add_stray(const char *name, void *ctx)
{
	struct checking *c = ctx;
	struct sl_backup_finding x = {.fault = SL_BACKUP_FAULT_STRAY, .harmless = true, .object = name};
	(void)sl_err_set(&x.reason, SL_EDATA, "not an object of a repository");
	if (sl__bk_findings_add(&c->f, &x, c->err) != 0)
		c->no_memory = true;
}

static int check_object_name(const char *name, SL_UNUSED const struct sl_driver_stat *stat, void *ctx)
{
	struct checking *c = ctx;
	struct bk_id id;
	char whole[SL_DRIVER_NAME_BYTES];
	bool fits = strcmp(c->folder, "index") == 0     ? sl__bk_unhex(name, id.b, sizeof(id.b))
		    : strcmp(c->folder, BK_COPIES) == 0 ? strcmp(name, BK_CONFIG) == 0
							: sl__bk_is_name(name);
	(void)snprintf(whole, sizeof(whole), "%s/%s", c->folder, name);
	if (!fits)
		add_stray(whole, c);
	return 0;
}

/* ---- the view and its packs ---- */

static int add_index_damage(const char *name, const struct sl_err *why, void *ctx)
{
	struct checking *c = ctx;
	return sl__bk_findings_damaged(&c->f, SL_BACKUP_FAULT_INDEX, name, why, c->err);
}

int sl__bk_ignore_directory_damage(SL_UNUSED const struct bk_id *pack, SL_UNUSED const struct sl_err *why,
				   SL_UNUSED void *ctx)
{
	return 0;
}

/* Load the view, or replace it by a fresh one. */
static int load_check_view(struct checking *c, struct sl_err *err)
{
	const struct bk_view_watch watch = {.stray = add_stray,
					    .index_damaged = add_index_damage,
					    .directory_damaged = sl__bk_ignore_directory_damage,
					    .ctx = c};
	struct bk_view fresh = {.b = NULL};
	c->err = err;
	int rc = sl__bk_view_load(c->b, &fresh, &watch, err);
	if (rc == 0 && c->no_memory) {
		sl__bk_view_fini(&fresh);
		rc = SL_ENOMEM;
	}
	if (rc != 0)
		return rc;
	sl__bk_view_fini(&c->view);
	c->view = fresh;
	return 0;
}

static int add_wrong_pack(uint32_t pack, const struct sl_err *why, struct sl_err *err, void *ctx)
{
	struct checking *c = ctx;
	char name[SL_DRIVER_NAME_BYTES];
	sl__bk_pack_name(&c->verify.view->packs.ids[pack], name);
	return sl__bk_findings_damaged(&c->f, SL_BACKUP_FAULT_PACK, name, why, err);
}

static int check_packs(struct checking *c, struct sl_err *err)
{
	const struct bk_view *view = &c->view;
	c->verify = (struct bk_verify){.b = c->b,
				       .view = view,
				       .read_data = c->opts.read_data == SL_ON,
				       .skip_unreadable = true,
				       .on_wrong = add_wrong_pack,
				       .ctx = c};
	int rc = sl__bk_verify_packs(&c->verify, err);
	if (rc == 0)
		rc = sl__bk_check_agreement(&c->verify, &c->f, err);
	c->out.packs = view->packs.n;
	c->out.blocks = c->verify.blocks;
	c->out.bytes = c->verify.bytes;
	for (size_t i = 0; i < view->unindexed.n && rc == 0; i++) {
		char name[SL_DRIVER_NAME_BYTES];
		struct sl_backup_finding x = {.fault = SL_BACKUP_FAULT_UNINDEXED, .harmless = true, .object = name};
		sl__bk_pack_name(&view->unindexed.ids[i], name);
		(void)sl_err_set(&x.reason, SL_ENOENT, "no index names it; the next create or prune indexes it");
		rc = sl__bk_findings_add(&c->f, &x, err);
	}
	return rc;
}

/* ---- snapshots: what each of them needs ---- */

struct snapshot_check {
	const struct bk_view *view;
	struct bk_choice choice;
	struct bk_findings f; /* of this round */
	bool missing;         /* something may only have moved since the view was loaded */
};

static int check_needed_block(const struct bk_ref *ref, const char *path, bool metadata, struct sl_err *err, void *ctx)
{
	struct snapshot_check *s = ctx;
	const struct bk_view *v = s->view;
	char object[SL_DRIVER_NAME_BYTES];
	struct sl_backup_finding x = {.object = object};
	int rc = sl__bk_choose(&s->choice, &ref->id, metadata ? BK_METADATA_COPIES : 1, err);
	if (rc == 1 && metadata) {
		x.fault = SL_BACKUP_FAULT_ONE_COPY;
		x.harmless = true;
		sl__bk_hex(ref->id.b, BK_ID_BYTES, object);
		(void)sl_err_set(&x.reason, SL_ENOENT,
				 "only one pack contains this metadata block; repair and prune copy it");
		return sl__bk_findings_add(&s->f, &x, err);
	}
	if (rc != SL_ENOENT)
		return rc > 0 ? 0 : rc;

	/* No intact place: is there a pack that contains the block, though damaged, or none at all? */
	const struct bk_ordinals *o = &s->choice.ordinals; /* of the last choice */
	const char *what = path != NULL ? "the file" : "the list of files";
	size_t i = 0;
	while (i < o->n && v->pack_of[o->at[i]] == BK_NO_PACK)
		i++;
	if (i < o->n) {
		x.fault = SL_BACKUP_FAULT_PACK;
		sl__bk_pack_name(&v->packs.ids[v->pack_of[o->at[i]]], object);
		(void)sl_err_set(&x.reason, SL_ECORRUPT, "a block of %s is damaged", what);
	} else {
		x.fault = SL_BACKUP_FAULT_MISSING_BLOCK;
		sl__bk_hex(ref->id.b, BK_ID_BYTES, object);
		(void)sl_err_set(&x.reason, SL_ECORRUPT, "a block of %s is in no pack", what);
	}
	x.snapshot = s->f.snapshot;
	x.path = path;
	s->missing = true;

	/* A file may have many blocks in one damaged pack: report it once. */
	const struct sl_backup_finding *last = s->f.n > 0 ? &s->f.items[s->f.n - 1].x : NULL;
	if (last != NULL && path != NULL && last->path != NULL && strcmp(last->path, path) == 0 &&
	    last->snapshot != NULL && strcmp(last->snapshot, x.snapshot) == 0 && strcmp(last->object, object) == 0)
		return 1;
	rc = sl__bk_findings_add(&s->f, &x, err);
	if (rc != 0)
		return rc;
	return 1;
}

static int add_unread_block(const struct bk_ref *ref, const char *path, const struct sl_err *why, struct sl_err *err,
			    void *ctx)
{
	struct snapshot_check *s = ctx;
	char object[SL_DRIVER_NAME_BYTES];
	const struct sl_backup_finding x = {.fault = SL_BACKUP_FAULT_MISSING_BLOCK,
					    .object = object,
					    .snapshot = s->f.snapshot,
					    .path = path,
					    .reason = *why};
	if (ref != NULL)
		sl__bk_hex(ref->id.b, BK_ID_BYTES, object);
	else
		(void)snprintf(object, sizeof(object), "snapshots/%s", s->f.snapshot);
	s->missing = true;
	int rc = sl__bk_findings_add(&s->f, &x, err);
	if (rc != 0)
		return rc;
	return 1;
}

static int check_one_snapshot(struct checking *c, struct snapshot_check *s, struct bk_walk *walk, struct sl_err *err)
{
	struct bk_care care = {.fn = sl__bk_findings_take, .ctx = &s->f};
	struct bk_snapshot snapshot = {.manifest = NULL};
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_snapshot_care(c->b, s->f.snapshot, &care, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_snapshot_load(c->b, s->f.snapshot, &snapshot, &why);
	if (rc == SL_ENOENT || rc == SL_ECORRUPT || rc == SL_EUNSUPPORTED)
		return 0; /* forgotten since; or reported above */
	if (rc != 0)
		return sl__bk_result(rc, &why, err);
	rc = sl__bk_walk_snapshot(walk, &snapshot, err);
	sl__bk_snapshot_fini(&c->b->env, &snapshot);
	return rc;
}

/* One round over all snapshots. */
static int check_all_snapshots(struct checking *c, struct snapshot_check *s, struct sl_err *err)
{
	const struct sl_env *env = &c->b->env;
	struct bk_walk walk = {.b = c->b, .need = check_needed_block, .unread = add_unread_block, .ctx = s};
	char(*ids)[BK_NAME_HEX] = NULL;
	size_t n = 0;
	uint64_t *bad = sl__bk_verify_bits(&c->verify, &c->view, err);
	if (bad == NULL)
		return SL_ENOMEM;
	s->view = &c->view;
	int rc = sl__bk_choice_init(&s->choice, &c->view, NULL, bad, err);
	if (rc == 0)
		rc = sl__bk_walk_init(&walk, c->view.index, err);
	if (rc == 0)
		rc = sl__bk_snapshot_ids(c->b, &ids, &n, err);
	for (size_t i = 0; i < n && rc == 0; i++) {
		s->f.snapshot = ids[i];
		rc = check_one_snapshot(c, s, &walk, err);
	}
	c->out.snapshots = n;
	s->f.snapshot = NULL;
	sl__free(env, ids);
	sl__bk_walk_fini(&walk);
	sl__bk_choice_fini(&s->choice);
	sl__free(env, bad);
	return rc;
}

struct missing_packs {
	struct checking *c;
	bool harmless;
	struct sl_err *err;
};

static int add_missing_pack(const struct bk_id *pack, bool usable, void *ctx)
{
	const struct missing_packs *m = ctx;
	char name[SL_DRIVER_NAME_BYTES];
	struct sl_backup_finding x = {.fault = SL_BACKUP_FAULT_MISSING_PACK, .harmless = m->harmless, .object = name};
	if (usable)
		return 0;
	sl__bk_pack_name(pack, name);
	(void)sl_err_set(&x.reason, SL_ENOENT, "the index names it, but it does not exist%s",
			 m->harmless ? "; no data is lost with it" : "");
	return sl__bk_findings_add(&m->c->f, &x, m->err);
}

static int check_snapshots(struct checking *c, struct sl_err *err)
{
	const struct sl_env *env = &c->b->env;
	struct snapshot_check s;
	int rc = 0;
	for (int round = 1;; round++) {
		s = (struct snapshot_check){.f.env = env};
		rc = check_all_snapshots(c, &s, err);
		if (rc != 0 || !s.missing || round >= ROUNDS_MAX)
			break;

		/* Have packs been added or removed since the view was loaded? */
		const struct bk_ids *then = &c->view.packs;
		struct bk_ids now = {.n = 0};
		rc = sl__bk_list_packs(c->b, &now, NULL, NULL, err);
		bool same =
			now.n == then->n && (now.n == 0 || memcmp(now.ids, then->ids, now.n * sizeof(*now.ids)) == 0);
		sl__bk_ids_fini(env, &now);
		if (rc != 0 || same)
			break;

		/* Then check again in a fresh view, without reporting what the first load has reported. */
		struct checking quiet = {.b = c->b, .f.env = env};
		sl__bk_findings_fini(&s.f);
		rc = load_check_view(&quiet, err);
		sl__bk_findings_fini(&quiet.f);
		if (rc != 0)
			return rc;
		sl__bk_view_fini(&c->view);
		c->view = quiet.view;
	}
	for (size_t i = 0; i < s.f.n && rc == 0; i++)
		rc = sl__bk_findings_add(&c->f, &s.f.items[i].x, err);
	c->f.unnamed += s.f.unnamed;
	c->f.faults += s.f.unnamed;
	sl__bk_findings_fini(&s.f);
	if (rc != 0)
		return rc;
	struct missing_packs m = {.c = c, .harmless = !s.missing, .err = err};
	return sl__bk_index_packs(c->view.index, add_missing_pack, &m);
}

static int check_everything(struct checking *c, struct sl_err *err)
{
	static const char *const folders[] = {MARKS,   BK_COPIES, BK_KEY_COPIES, BK_SNAPSHOT_COPIES,
					      "index", BK_KEYS,   "sessions",    "snapshots"};

	/* Config, keys, marks; and strays in all folders except that of packs, which loading the view reports. */
	struct bk_care care = {.fn = sl__bk_findings_take, .ctx = &c->f};
	int rc = sl__bk_config_care(c->b, &care, err);
	if (rc == 0)
		rc = sl__bk_keyring_care(c->b, &care, err);
	if (rc == 0)
		rc = sl__bk_check_marks(c->b, false, &c->f, err);
	for (size_t i = 0; i < SL_COUNT(folders) && rc == 0; i++) {
		c->folder = folders[i];
		rc = c->b->driver.ops->list(c->b->driver.driver, folders[i], check_object_name, c, err);
	}
	if (rc != 0)
		return rc;
	rc = load_check_view(c, err);
	if (rc == 0)
		rc = check_packs(c, err);
	if (rc == 0)
		rc = check_snapshots(c, err);
	return rc;
}

int sl_backup_check(sl_backup *b, const struct sl_backup_check_opts *opts, struct sl_backup_checked *out,
		    struct sl_err *err)
{
	int rc = sl__bk_begin(b, "check", err);
	if (rc != 0)
		return rc;
	struct checking c = {.b = b, .f.env = &b->env, .verify.b = b, .err = err};
	sl__opts_copy(&c.opts, sizeof(c.opts), opts);
	rc = check_everything(&c, err);
	sl__bk_verify_fini(&c.verify);
	sl__bk_view_fini(&c.view);
	if (rc == 0) {
		c.out.harmless = c.f.harmless;
		c.out.findings = c.f.faults + c.f.harmless;
		rc = sl__bk_findings_report(&c.f, c.opts.on_finding, c.opts.ctx, err);
	}
	sl__bk_findings_fini(&c.f);
	if (rc != 0)
		return rc;
	sl__result_copy(out, &c.out, sizeof(c.out));
	if (c.out.findings == c.out.harmless)
		return 0;
	return sl_err_set(err, SL_ECORRUPT, "check: %llu things are damaged or missing; see sluice backup repair",
			  (unsigned long long)(c.out.findings - c.out.harmless));
}
