/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of a name that the walk tells: taken over from the parent, made into an entry here and now, or handed to
 * the workers to be read.
 */
#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "backup/create/contents.h"
#include "backup/create/database.h"

void sl__bk_create_walk_problem(enum sl_backup_problem problem, const char *path, const struct sl_err *err, void *ctx)
{
	sl__bk_create_problem(ctx, problem, path, err);
}

static void report(struct bk_create *c, const struct bk_visit *v, int errnum, const char *what)
{
	struct sl_err err = SL_ERR_INIT;
	(void)sl_err_set_errno(&err, errnum, "%s /%.160s", what, v->path);
	sl__bk_create_problem(c, errnum == ENOENT ? SL_BACKUP_VANISHED : SL_BACKUP_UNREADABLE, v->path, &err);
}

/* ---- taken over ---- */

/* F5: every block must be in a pack that counts. Asked in bulk, and only when there are packs that do not. */
struct asking {
	struct bk_create *c;
	struct bk_id ids[256];
	bool missing[256];
	size_t n;
	bool any_missing;
	struct sl_err *err;
};

static int ask(struct asking *a)
{
	int rc = a->n > 0 ? sl__bk_store_missing(a->c->store, a->ids, a->n, a->missing, a->err) : 0;
	for (size_t i = 0; rc == 0 && i < a->n; i++)
		a->any_missing |= a->missing[i];
	a->n = 0;
	return rc;
}

static int add_id(const struct bk_ref *ref, void *ctx)
{
	struct asking *a = ctx;
	int rc = a->n == SL_COUNT(a->ids) ? ask(a) : 0;
	if (rc == 0)
		a->ids[a->n++] = ref->id;
	return rc;
}

/* A list of blocks that only one pack has any more gets into a second one, as the blocks of the manifest do. */
static int double_lists(struct bk_create *c, const struct bk_entry *e, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; i < e->refs_n && rc == 0; i++) {
		const uint8_t *bytes = NULL;
		rc = sl__bk_read_block(c->lists, &e->refs[i].id, e->refs[i].len, &bytes, err);
		if (rc == 0)
			rc = sl__bk_store_metadata(c->store, c->b->opts.threads,
						   &(struct bk_block){&e->refs[i].id, bytes, e->refs[i].len}, NULL,
						   err);
	}
	return rc;
}

static int blocks_count(struct bk_create *c, const struct bk_entry *e, bool *all, struct sl_err *err)
{
	struct asking a = {.c = c, .err = err};
	*all = true;
	if (!c->check_parent || e->refs_n == 0)
		return 0;
	int rc = sl__bk_entry_all_refs(c->lists, e, add_id, &a, err);
	if (rc == 0)
		rc = ask(&a);
	if (rc == 0 && !a.any_missing && (e->flags & BK_ENTRY_LISTS) != 0)
		rc = double_lists(c, e, err);
	*all = rc == 0 && !a.any_missing;
	return rc == SL_ENOENT || rc == SL_ECORRUPT ? 0 : rc; /* a list is not to be had: read the file */
}

/* 1: it went into the manifest as the parent has it; 0: it must be looked at. */
static int take_over(struct bk_create *c, struct bk_visit *v, const struct bk_entry *parent, struct bk_link *link,
		     struct sl_err *err)
{
	bool all;
	if (parent == NULL || c->o.force == SL_ON || !sl__bk_parent_same(c->parent, parent, &v->st))
		return 0;
	if (v->has_journal && c->o.sqlite != SL_OFF)
		return 0; /* what a database's journal holds does not show in its file */
	if ((parent->flags & BK_ENTRY_SQLITE) != 0 && c->o.sqlite == SL_OFF)
		return 0; /* a copy through SQLite was asked not to be made, and its journals belong to the file */
	int rc = blocks_count(c, parent, &all, err);
	if (rc != 0 || !all)
		return rc;
	struct bk_entry e = *parent;
	e.dev = v->st.st_dev;
	e.nlink = v->st.st_nlink;
	if (e.type == SL_BACKUP_FILE) {
		v->leave_out_journal = (e.flags & BK_ENTRY_SQLITE) != 0;
		atomic_fetch_add(&c->counts.files_unchanged, 1);
		atomic_fetch_add(&c->counts.bytes_done, e.size);
	}
	rc = sl__bk_window_entry(c, &e, link, err);
	return rc != 0 ? rc : 1;
}

/* ---- made here ---- */

static int read_xattrs(struct bk_create *c, const struct bk_visit *v, struct bk_item *item, struct sl_err *err)
{
	int rc = 0;
	if (v->fd >= 0 || v->dir >= 0)
		rc = sl__bk_xattrs_read(&c->b->env, item, v->fd, v->dir, v->name);
	if (rc == -ENOMEM)
		return sl__no_memory(err, "the entries of a snapshot");
	if (rc != 0) {
		item->e.flags |= BK_ENTRY_FRESH; /* it is not complete: the next snapshot tries again */
		report(c, v, -rc, "read the attributes of");
	}
	return 0;
}

static struct bk_item *new_item(struct bk_create *c, const struct bk_visit *v, const char *target, size_t target_len)
{
	struct bk_item *item = sl__bk_item_new(&c->b->env, v->path, v->path_len, target, target_len);
	if (item == NULL)
		return NULL;
	(void)sl__bk_entry_from_stat(c, &item->e, &v->st);
	item->owed = S_ISREG(v->st.st_mode) ? (uint64_t)v->st.st_size : 0;
	item->maybe_sparse = S_ISREG(v->st.st_mode) && v->st.st_blocks * 512 < v->st.st_size;
	return item;
}

/* Complete with its attributes: into the window. */
static int add_done(struct bk_create *c, const struct bk_visit *v, struct bk_item *item, struct bk_link *link,
		    struct sl_err *err)
{
	if (item == NULL)
		return sl__no_memory(err, "the entries of a snapshot");
	item->link = link;
	int rc = read_xattrs(c, v, item, err);
	if (rc != 0) {
		sl__bk_item_free(&c->b->env, item);
		return rc;
	}
	return sl__bk_window_add(c, item, false, err);
}

static int visit_symlink(struct bk_create *c, const struct bk_visit *v, struct bk_link *link, struct sl_err *err)
{
	char target[PATH_MAX + 1];
	ssize_t n = readlinkat(v->dir, v->name, target, sizeof(target));
	if (n <= 0 || n == sizeof(target)) {
		report(c, v, n < 0 ? errno : ENAMETOOLONG, "read the link");
		return link != NULL && sl__bk_link_left(c, link, false, NULL) != 0
			       ? sl__no_memory(err, "the entries of a snapshot")
			       : 0;
	}
	return add_done(c, v, new_item(c, v, target, (size_t)n), link, err);
}

/* Another name of something that was met before: which one it links to is known when it leaves the window. */
static int visit_other_name(struct bk_create *c, const struct bk_visit *v, struct bk_link *link, struct sl_err *err)
{
	struct bk_item *item = new_item(c, v, NULL, 0);
	if (item == NULL)
		return sl__no_memory(err, "the entries of a snapshot");
	item->e.type = SL_BACKUP_HARDLINK;
	item->e.size = item->e.rdev = 0;
	item->link = link;
	return sl__bk_window_add(c, item, false, err);
}

/* ---- files ---- */

static int visit_file(struct bk_create *c, struct bk_visit *v, bool known, struct bk_link *link, struct sl_err *err)
{
	struct bk_item *item = new_item(c, v, NULL, 0);
	if (item == NULL)
		return sl__no_memory(err, "the entries of a snapshot");
	item->known = known;
	item->link = link;
	bool copied = false;
	int rc = 0;
	if (c->o.sqlite != SL_OFF && sl__bk_maybe_database(&v->st))
		rc = sl__bk_create_database(c, v, item, &copied, err);
	if (rc == 0 && (copied || v->st.st_size == 0)) {
		/* Not opened: who closes an empty file that is about to become a database lets go of its locks. */
		rc = read_xattrs(c, v, item, err);
		if (rc == 0)
			return sl__bk_window_add(c, item, false, err);
	}
	if (rc == 0)
		return sl__bk_window_add(c, item, true, err);
	sl__bk_item_free(&c->b->env, item);
	return rc;
}

/* A database that was copied ahead of everything else; those that the walk has passed are gone from the tree. */
static struct bk_item *copied_ahead(struct bk_create *c, const struct bk_visit *v)
{
	while (c->databases != NULL) {
		struct bk_item *item = c->databases;
		int order = sl__bk_path_compare(item->e.path, item->e.path_len, v->path, v->path_len);
		if (order > 0)
			return NULL;
		c->databases = item->next;
		item->next = NULL;
		if (order == 0 && S_ISREG(v->st.st_mode))
			return item;
		sl__bk_item_free(&c->b->env, item);
	}
	return NULL;
}

static int visit_kind(struct bk_create *c, struct bk_visit *v, const struct bk_entry *parent, struct bk_link *link,
		      struct sl_err *err)
{
	struct bk_item *ahead = copied_ahead(c, v);
	if (ahead != NULL) {
		ahead->known = parent != NULL;
		ahead->link = link;
		v->leave_out_journal = (ahead->e.flags & BK_ENTRY_SQLITE) != 0;
		v->leave_out_shm = true; /* as in sl__bk_create_database */
		return sl__bk_window_add(c, ahead, false, err);
	}
	int rc = take_over(c, v, parent, link, err);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	if (S_ISREG(v->st.st_mode))
		return visit_file(c, v, parent != NULL, link, err);
	if (S_ISLNK(v->st.st_mode))
		return visit_symlink(c, v, link, err);
	return add_done(c, v, new_item(c, v, NULL, 0), link, err);
}

/* ---- names ---- */

static int note(struct bk_create *c, const struct bk_visit *v, struct sl_err *err)
{
	atomic_fetch_add(&c->counts.seen, 1);
	if (S_ISREG(v->st.st_mode))
		atomic_fetch_add(&c->counts.seen_bytes, (uint64_t)v->st.st_size);
	if (++c->ticks % 1024 == 0)
		sl__bk_create_progress(c);
	return sl__bk_check_stop(c->b, err);
}

static int skip(struct bk_create *c, const struct bk_visit *v)
{
	struct sl_err err = SL_ERR_INIT;
	(void)sl_err_set(&err, SL_EUNSUPPORTED, "/%.160s is a %s: these are not backed up", v->path,
			 S_ISSOCK(v->st.st_mode) ? "socket" : "file of an unknown kind");
	sl__bk_create_problem(c, SL_BACKUP_SKIPPED, v->path, &err);
	return 0;
}

int sl__bk_create_visit(struct bk_visit *v, void *ctx, struct sl_err *err)
{
	struct bk_create *c = ctx;
	struct bk_entry kind = {0};
	const struct bk_entry *parent = NULL;
	struct bk_link *link = NULL;
	bool first = true;
	int rc = note(c, v, err);
	if (rc != 0)
		return rc;
	if (!sl__bk_entry_from_stat(c, &kind, &v->st))
		return skip(c, v);
	if (!S_ISDIR(v->st.st_mode) && v->st.st_nlink > 1) {
		link = sl__bk_links_meet(c, &v->st, &first);
		if (link == NULL)
			return sl__no_memory(err, "the entries of a snapshot");
	}
	if (!first)
		return visit_other_name(c, v, link, err);
	if (c->parent != NULL)
		rc = sl__bk_parent_find(c->parent, v->path, v->path_len, &parent, err);
	return rc == 0 ? visit_kind(c, v, parent, link, err) : rc;
}

int sl__bk_create_visit_databases(struct bk_visit *v, void *ctx, struct sl_err *err)
{
	struct bk_create *c = ctx;
	bool copied = false;
	int rc = sl__bk_check_stop(c->b, err);
	if (rc != 0 || !sl__bk_maybe_database(&v->st))
		return rc;
	struct bk_item *item = new_item(c, v, NULL, 0);
	if (item == NULL)
		return sl__no_memory(err, "the entries of a snapshot");
	rc = sl__bk_create_database(c, v, item, &copied, err);
	if (rc == 0 && copied)
		rc = read_xattrs(c, v, item, err);
	if (rc != 0 || !copied) {
		sl__bk_item_free(&c->b->env, item);
		return rc;
	}
	if (c->databases_last != NULL && c->databases != NULL)
		c->databases_last->next = item;
	else
		c->databases = item;
	c->databases_last = item;
	return 0;
}
