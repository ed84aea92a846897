/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a name that the walk visits: taken over from the parent, made into an entry here, or queued for the
 * workers. SQLite databases are copied here, on the caller's thread.
 */
#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "backup/create/create.h"
#include "backup/create/sqlite_copy.h"

static void report_visit(struct bk_create *c, const struct bk_visit *v, int errnum, const char *what)
{
	struct sl_err err = SL_ERR_INIT;
	(void)sl_err_set_errno(&err, errnum, "%s /%.160s", what, v->path);
	sl__bk_create_problem(errnum == ENOENT ? SL_BACKUP_VANISHED : SL_BACKUP_UNREADABLE, v->path, &err, c);
}

/* ---- taken over ---- */

/* F5: every block must be in a pack to rely on. Looked up in bulk, and only when there are packs not to rely on. */
struct block_lookup {
	struct bk_create *c;
	struct bk_id ids[256];
	bool missing[256];
	size_t n;
	bool any_missing;
	struct sl_err *err;
};

static int look_up_blocks(struct block_lookup *a)
{
	int rc = a->n > 0 ? sl__bk_store_missing(a->c->store, a->ids, a->n, a->missing, a->err) : 0;
	for (size_t i = 0; rc == 0 && i < a->n; i++)
		a->any_missing |= a->missing[i];
	a->n = 0;
	return rc;
}

static int add_lookup(const struct bk_ref *ref, void *ctx)
{
	struct block_lookup *a = ctx;
	int rc = a->n == SL_COUNT(a->ids) ? look_up_blocks(a) : 0;
	if (rc == 0)
		a->ids[a->n++] = ref->id;
	return rc;
}

/* 1: the parent's entry was added to the window; 0: the file must be read. */
static int take_from_parent(struct bk_create *c, struct bk_visit *v, const struct bk_entry *parent,
			    struct bk_link *link, struct sl_err *err)
{
	struct block_lookup a = {.c = c, .err = err};
	int rc = 0;
	if (parent == NULL || c->o.force == SL_ON || !sl__bk_parent_same(c->parent, parent, &v->st))
		return 0;
	if (v->has_journal && c->o.sqlite != SL_OFF)
		return 0; /* what the journal of a database holds does not show in its file */
	if ((parent->flags & BK_ENTRY_SQLITE) != 0 && c->o.sqlite == SL_OFF)
		return 0; /* a copy through SQLite is not wanted, and its journals belong to the file */

	/* Do all its blocks exist in packs to rely on? */
	if (c->check_parent && parent->n_refs > 0) {
		rc = sl__bk_entry_all_refs(c->lists, parent, add_lookup, &a, err);
		if (rc == 0)
			rc = look_up_blocks(&a);
		/* A list of blocks that only one pack still contains gets into a second one, as manifest blocks do. */
		bool lists = !a.any_missing && (parent->flags & BK_ENTRY_LISTS) != 0;
		for (size_t i = 0; i < parent->n_refs && rc == 0 && lists; i++) {
			const struct bk_ref *ref = &parent->refs[i];
			const uint8_t *bytes = NULL;
			rc = sl__bk_read_block(c->lists, &ref->id, ref->len, &bytes, err);
			if (rc == 0)
				rc = sl__bk_store_metadata(c->store, c->b->opts.threads,
							   &(struct bk_block){&ref->id, bytes, ref->len}, NULL, err);
		}
	}
	if (rc == SL_ENOENT || rc == SL_ECORRUPT || (rc == 0 && a.any_missing))
		return 0; /* a block is missing, or a list cannot be read: read the file */
	if (rc != 0)
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
	if (rc != 0)
		return rc;
	return 1;
}

/* ---- SQLite databases ---- */

/* Store it as it is, perhaps in the middle of a change: reported, and never taken over by a later snapshot. */
static int store_database_file(struct bk_create *c, struct bk_item *item, struct bk_sqlite_file *file,
			       const struct sl_err *reason, struct sl_err *err)
{
	struct bk_source source = {.read = sl__bk_sqlite_file_read, .ctx = file};
	struct sl_err why = *reason;
	/* Of a database that is damaged itself, the file is all that can be kept. */
	bool damaged = why.code == SL_ECORRUPT;
	(void)sl_err_wrap(&why, why.code, "cannot be copied as a database, is kept as a file");
	sl__bk_create_problem(damaged ? SL_BACKUP_CHANGED : SL_BACKUP_AS_FILE, item->e.path, &why, c);
	item->e.flags |= BK_ENTRY_CHANGED;
	int rc = sl__bk_contents_stream(c->own, item, &source, err);
	if (rc != 0 || source.error == 0)
		return rc;
	(void)sl_err_set_errno(&why, -source.error, "read /%.160s", item->e.path);
	sl__bk_create_problem(SL_BACKUP_UNREADABLE, item->e.path, &why, c);
	item->gone = true;
	return 0;
}

/* If this is an SQLite database, copy it: its contents are complete, *copied is set, and its journals are left out. If
 * it cannot be copied, that is reported and it is read as a file: *copied is set, too, but the journals stay. */
static int copy_database(struct bk_create *c, struct bk_visit *v, struct bk_item *item, bool *copied,
			 struct sl_err *err)
{
	struct bk_sqlite_file *file = NULL;
	struct sl_err why = SL_ERR_INIT;
	int fd = -1;
	int rc = sl__bk_sqlite_file_open(&file, &c->b->env, v->dir, v->name);
	if (rc == -ENOMEM)
		return sl_err_set(err, SL_ENOMEM, "read /%.160s: out of memory", v->path);
	if (rc != 0)
		return 0; /* the worker that opens it reports why it cannot be read */
	if (!sl__bk_sqlite_file_is_database(file)) {
		sl__bk_sqlite_file_close(file);
		return 0;
	}
	*copied = true;
	rc = sl__bk_sqlite_copy(c->b, v->dir, v->name, &fd, &why);
	if (rc == 0) {
		/* The bytes of the copy are the contents of the file. */
		struct bk_source source = {.read = sl__bk_read_fd, .ctx = &fd};
		struct sl_io_stat st;
		v->leave_out_journal = true;
		rc = sl__io_real.fstat(fd, &st, NULL);
		if (rc != 0) {
			rc = sl_err_set_errno(err, -rc, "stat the copy of /%.160s", item->e.path);
		} else {
			item->e.size = st.size;
			item->e.flags |= BK_ENTRY_SQLITE;
			rc = sl__bk_contents_stream(c->own, item, &source, err);
			if (rc == 0 && source.error != 0)
				rc = sl_err_set_errno(err, -source.error, "read the copy of /%.160s", item->e.path);
		}
		(void)sl__io_real.close(fd, NULL);
	} else if (rc == SL_ECANCELLED) {
		if (err != NULL)
			*err = why;
	} else {
		v->leave_out_shm = true; /* reading it means closing it, which would release its locks */
		rc = store_database_file(c, item, file, &why, err);
	}
	sl__bk_sqlite_file_close(file);
	return rc;
}

/* ---- made here ---- */

static int read_item_xattrs(struct bk_create *c, const struct bk_visit *v, struct bk_item *item, struct sl_err *err)
{
	int rc = 0;
	if (v->fd >= 0 || v->dir >= 0)
		rc = sl__bk_xattrs_read(&c->b->env, item, v->fd, v->dir, v->name);
	if (rc == -ENOMEM)
		return sl__no_memory(err, "create a snapshot");
	if (rc != 0) {
		item->e.flags |= BK_ENTRY_FRESH; /* incomplete: the next snapshot tries again */
		report_visit(c, v, -rc, "read the attributes of");
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

/* Anything but a regular file. */
static int visit_other(struct bk_create *c, const struct bk_visit *v, struct bk_link *link, struct sl_err *err)
{
	char target[PATH_MAX + 1];
	ssize_t n = 0;
	bool is_link = S_ISLNK(v->st.st_mode);
	if (is_link) {
		n = readlinkat(v->dir, v->name, target, sizeof(target));
		if (n <= 0 || n == sizeof(target)) {
			report_visit(c, v, n < 0 ? errno : ENAMETOOLONG, "read the link");
			if (link != NULL && sl__bk_link_left(c, link, false, NULL) != 0)
				return sl__no_memory(err, "create a snapshot");
			return 0;
		}
	}
	struct bk_item *item = new_item(c, v, is_link ? target : NULL, (size_t)n);
	if (item == NULL)
		return sl__no_memory(err, "create a snapshot");
	item->link = link;
	int rc = read_item_xattrs(c, v, item, err);
	if (rc != 0) {
		sl__bk_item_free(&c->b->env, item);
		return rc;
	}
	return sl__bk_window_add(c, item, false, err);
}

/* A database that was copied before everything else; those that the walk has passed no longer exist in the tree. */
static struct bk_item *copied_before(struct bk_create *c, const struct bk_visit *v)
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

/* ---- names ---- */

/* The first name of something. */
static int visit_first_name(struct bk_create *c, struct bk_visit *v, struct bk_link *link, struct sl_err *err)
{
	const struct bk_entry *parent = NULL;
	int rc = c->parent != NULL ? sl__bk_parent_find(c->parent, v->path, v->path_len, &parent, err) : 0;
	if (rc != 0)
		return rc;
	struct bk_item *item = copied_before(c, v);
	if (item != NULL) {
		item->known = parent != NULL;
		item->link = link;
		v->leave_out_journal = (item->e.flags & BK_ENTRY_SQLITE) != 0;
		v->leave_out_shm = true; /* as in copy_database */
		return sl__bk_window_add(c, item, false, err);
	}
	rc = take_from_parent(c, v, parent, link, err);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	if (!S_ISREG(v->st.st_mode))
		return visit_other(c, v, link, err);

	/* A file that is new, or has changed. */
	item = new_item(c, v, NULL, 0);
	if (item == NULL)
		return sl__no_memory(err, "create a snapshot");
	item->known = parent != NULL;
	item->link = link;
	bool copied = false;
	if (c->o.sqlite != SL_OFF && sl__bk_maybe_database(&v->st))
		rc = copy_database(c, v, item, &copied, err);
	/* An empty file is not opened: closing one that is about to become a database would release its locks. */
	bool complete = copied || v->st.st_size == 0;
	if (rc == 0 && complete)
		rc = read_item_xattrs(c, v, item, err);
	if (rc != 0) {
		sl__bk_item_free(&c->b->env, item);
		return rc;
	}
	return sl__bk_window_add(c, item, !complete, err);
}

int sl__bk_create_visit(struct bk_visit *v, struct sl_err *err, void *ctx)
{
	struct bk_create *c = ctx;
	struct bk_link *link = NULL;
	bool first = true;
	atomic_fetch_add(&c->counts.seen, 1);
	if (S_ISREG(v->st.st_mode))
		atomic_fetch_add(&c->counts.seen_bytes, (uint64_t)v->st.st_size);
	if (++c->ticks % 1024 == 0)
		sl__bk_create_progress(c);
	int rc = sl__bk_check_stop(c->b, err);
	if (rc != 0)
		return rc;
	if (sl__bk_type_of(v->st.st_mode) == 0) {
		struct sl_err why = SL_ERR_INIT;
		(void)sl_err_set(&why, SL_EUNSUPPORTED, "/%.160s is a %s: these are not backed up", v->path,
				 S_ISSOCK(v->st.st_mode) ? "socket" : "file of an unknown type");
		sl__bk_create_problem(SL_BACKUP_SKIPPED, v->path, &why, c);
		return 0;
	}
	if (!S_ISDIR(v->st.st_mode) && v->st.st_nlink > 1) {
		link = sl__bk_links_meet(c, &v->st, &first);
		if (link == NULL)
			return sl__no_memory(err, "create a snapshot");
	}
	if (first)
		return visit_first_name(c, v, link, err);
	/* Another name of something that was met before: which one it links to is known when it leaves the window. */
	struct bk_item *item = new_item(c, v, NULL, 0);
	if (item == NULL)
		return sl__no_memory(err, "create a snapshot");
	item->e.type = SL_BACKUP_HARDLINK;
	item->e.size = item->e.rdev = 0;
	item->link = link;
	return sl__bk_window_add(c, item, false, err);
}

int sl__bk_create_visit_databases(struct bk_visit *v, struct sl_err *err, void *ctx)
{
	struct bk_create *c = ctx;
	bool copied = false;
	int rc = sl__bk_check_stop(c->b, err);
	if (rc != 0 || !sl__bk_maybe_database(&v->st))
		return rc;
	struct bk_item *item = new_item(c, v, NULL, 0);
	if (item == NULL)
		return sl__no_memory(err, "create a snapshot");
	rc = copy_database(c, v, item, &copied, err);
	if (rc == 0 && copied)
		rc = read_item_xattrs(c, v, item, err);
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
