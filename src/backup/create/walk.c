/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stack of folders, each with its names sorted and how far it has come. A folder that lies deep in the stack may have
 * lost its descriptor to the limit; it is opened anew by its path when its turn comes again, and must be the same one.
 */
#include "backup/create/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "backup/create/source_vfs.h"
#include "backup/manifest/manifest.h"

struct folder {
	int fd; /* -1: closed for the limit */
	dev_t dev;
	ino_t ino;
	size_t path_len; /* of its path, in walk->path */
	char *names;     /* one behind the other, each with its NUL */
	size_t names_len, names_cap;
	const char **order; /* sorted */
	size_t n, at, cap;
	struct database {
		const char *name;
		bool only_shm; /* of its journals is left out */
	} * databases;
	size_t databases_n, databases_cap;
};

struct walk {
	const struct sl_env *env;
	const struct bk_walk_opts *o;
	int root; /* descriptor of the root folder */
	const struct bk_root *in;
	dev_t dev; /* of the root that is walked */
	struct sl__buf path;
	struct sl__buf given, absolute; /* made of path for patterns with slashes */
	struct folder *stack;
	size_t depth, cap;
	size_t open;       /* folders with a descriptor */
	size_t first_open; /* the lowest of them, or lower */
};

static void problem(struct walk *w, int errnum, const char *what)
{
	struct sl_err err = SL_ERR_INIT;
	bool vanished = errnum == ENOENT || errnum == ESTALE || errnum == ENOTDIR || errnum == ELOOP;
	(void)sl_err_set_errno(&err, errnum, "%s /%.160s", what, sl__buf_str(&w->path));
	w->o->problem(vanished ? SL_BACKUP_VANISHED : SL_BACKUP_UNREADABLE, sl__buf_str(&w->path), &err, w->o->ctx);
}

/* ---- the names of a folder ---- */

struct listing {
	struct walk *w;
	struct folder *f;
};

static int add_name(const char *name, void *ctx)
{
	struct listing *l = ctx;
	size_t n = strlen(name) + 1;
	if (l->f->names_len + n > l->f->names_cap) {
		size_t cap = SL_MAX(l->f->names_cap * 2, l->f->names_len + n + 1024);
		char *more = sl__realloc(l->w->env, l->f->names, cap);
		if (more == NULL)
			return SL_ENOMEM;
		l->f->names = more;
		l->f->names_cap = cap;
	}
	memcpy(l->f->names + l->f->names_len, name, n);
	l->f->names_len += n;
	l->f->n++;
	return 0;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int sort_names(struct walk *w, struct folder *f)
{
	f->order = sl__alloc(w->env, SL_MAX(f->n, (size_t)1) * sizeof(*f->order));
	if (f->order == NULL)
		return SL_ENOMEM;
	const char *at = f->names;
	for (size_t i = 0; i < f->n; i++) {
		f->order[i] = at;
		at += strlen(at) + 1;
	}
	qsort(f->order, f->n, sizeof(*f->order), by_bytes);
	return 0;
}

static bool has_name(const struct folder *f, const char *name)
{
	return f->n > 0 && bsearch(&name, f->order, f->n, sizeof(*f->order), by_bytes) != NULL;
}

/* ---- the stack ---- */

static void close_one(struct walk *w, struct folder *f)
{
	w->open -= f->fd >= 0;
	sl__bk_tree_close(&f->fd);
}

static void pop(struct walk *w)
{
	struct folder *f = &w->stack[--w->depth];
	close_one(w, f);
	sl__free(w->env, f->names);
	sl__free(w->env, f->order);
	sl__free(w->env, f->databases);
}

static void keep_to_limit(struct walk *w)
{
	if (w->open < BK_WALK_FDS)
		return;
	w->first_open = SL_MIN(w->first_open, w->depth);
	while (w->first_open < w->depth && w->stack[w->first_open].fd < 0)
		w->first_open++;
	if (w->first_open < w->depth)
		close_one(w, &w->stack[w->first_open]);
}

/* On success, and on failure too, fd is the walk's. */
static int push(struct walk *w, int fd, const struct stat *st, struct sl_err *err)
{
	keep_to_limit(w);
	if (w->depth == w->cap) {
		size_t cap = SL_MAX((size_t)16, w->cap * 2);
		struct folder *more = sl__realloc(w->env, w->stack, cap * sizeof(*more));
		if (more == NULL) {
			sl__bk_tree_close(&fd);
			return sl__no_memory(err, "walk the tree");
		}
		w->stack = more;
		w->cap = cap;
	}
	struct folder *f = &w->stack[w->depth++];
	*f = (struct folder){.fd = fd, .dev = st->st_dev, .ino = st->st_ino, .path_len = w->path.len};
	w->open++;
	struct listing l = {w, f};
	int rc = sl__bk_tree_list(fd, add_name, &l);
	if (rc == SL_ENOMEM || sort_names(w, f) != 0)
		return sl__no_memory(err, "walk the tree");
	if (rc != 0)
		problem(w, -rc, "list the folder");
	return 0;
}

/* False: it is not there any more, or another one is. */
static bool reopen(struct walk *w, struct folder *f)
{
	struct stat st;
	if (f->fd >= 0)
		return true;
	int fd = sl__bk_tree_open(w->root, sl__buf_str(&w->path), w->path.len, O_RDONLY | O_DIRECTORY, (uid_t)-1);
	int rc = fd < 0 ? fd : 0;
	if (rc == 0 && (fstat(fd, &st) != 0 || st.st_dev != f->dev || st.st_ino != f->ino)) {
		sl__bk_tree_close(&fd);
		rc = -ESTALE;
	}
	if (rc != 0) {
		problem(w, -rc, "come back to the folder");
		return false;
	}
	f->fd = fd;
	w->open++;
	w->first_open = SL_MIN(w->first_open, (size_t)(f - w->stack));
	return true;
}

/* ---- one name ---- */

static int set_path(struct walk *w, size_t folder_len, const char *name)
{
	w->path.len = folder_len;
	if (folder_len > 0)
		(void)sl__buf_append(&w->path, "/", 1);
	return sl__buf_str_append(&w->path, name);
}

static bool is_excluded(struct walk *w, const char *name)
{
	if (w->o->excludes->n == 0)
		return false;
	if (w->o->excludes->any_whole) {
		sl__buf_clear(&w->given);
		sl__buf_clear(&w->absolute);
		(void)sl__buf_printf(&w->absolute, "/%s", w->path.data);
		size_t n = strlen(w->in->path);
		bool slash = w->in->given[0] == '/' && w->in->given[1] == '\0';
		(void)sl__buf_printf(&w->given, "%s%s%s", w->in->given, n == 0 && !slash ? "/" : "",
				     w->path.data + (slash && n > 0 ? n + 1 : n));
	}
	return sl__bk_excluded(w->o->excludes, name, sl__buf_str(&w->given), sl__buf_str(&w->absolute));
}

static const char *const journals[] = {"-wal", "-shm", "-journal"};

/* Is it named like a journal of a database that was told already? That one sorts before it. */
static bool is_named_so(const struct folder *f, const char *name)
{
	size_t n = strlen(name);
	for (size_t i = 0; f->databases_n > 0 && i < SL_COUNT(journals); i++) {
		size_t k = strlen(journals[i]);
		if (n <= k || strcmp(name + n - k, journals[i]) != 0)
			continue;
		for (size_t d = f->databases_n; d-- > 0;)
			if (strncmp(f->databases[d].name, name, n - k) == 0 && f->databases[d].name[n - k] == '\0')
				return !f->databases[d].only_shm || strcmp(journals[i], "-shm") == 0;
	}
	return false;
}

static bool is_left_out(const struct folder *f, const char *name)
{
	return is_named_so(f, name) && sl__bk_is_journal(f->fd, name);
}

static bool has_journal(const struct folder *f, const char *name)
{
	char other[NAME_MAX + 16];
	for (size_t i = 0; i < SL_COUNT(journals); i += 2) {
		(void)snprintf(other, sizeof(other), "%s%s", name, journals[i]);
		if (has_name(f, other))
			return true;
	}
	return false;
}

static int note_database(struct walk *w, struct folder *f, const struct bk_visit *v, struct sl_err *err)
{
	if (!v->leave_out_journal && !v->leave_out_shm)
		return 0;
	if (f->databases_n == f->databases_cap) {
		size_t cap = SL_MAX((size_t)8, f->databases_cap * 2);
		struct database *more = sl__realloc(w->env, f->databases, cap * sizeof(*more));
		if (more == NULL)
			return sl__no_memory(err, "walk the tree");
		f->databases = more;
		f->databases_cap = cap;
	}
	f->databases[f->databases_n++] = (struct database){v->name, !v->leave_out_journal};
	return 0;
}

/* A folder: told, then entered. It belongs to the stack when 0 returns. */
static int visit_folder(struct walk *w, struct bk_visit *v, struct sl_err *err)
{
	v->fd = sl__bk_tree_open_in(v->dir, v->name, O_RDONLY | O_DIRECTORY, v->st.st_uid);
	if (v->fd < 0) {
		problem(w, -v->fd, "open the folder");
		if (v->fd == -ENOENT || v->fd == -ENOTDIR || v->fd == -ELOOP)
			return 0;
		v->fd = -1;
	}
	int rc = w->o->visit(v, w->o->ctx, err);
	if (rc != 0 || v->fd < 0 || (w->o->one_file_system && v->st.st_dev != w->dev)) {
		sl__bk_tree_close(&v->fd);
		return rc;
	}
	return push(w, v->fd, &v->st, err);
}

static int visit_name(struct walk *w, size_t at, const char *name, struct sl_err *err)
{
	struct folder *f = &w->stack[at];
	if (set_path(w, f->path_len, name) != 0)
		return sl__no_memory(err, "walk the tree");
	if (is_excluded(w, name) || is_left_out(f, name))
		return 0;
	struct bk_visit v = {.path = w->path.data, .path_len = w->path.len, .dir = f->fd, .name = name, .fd = -1};
	if (w->path.len >= BK_PATH_MAX)
		return problem(w, ENAMETOOLONG, "go on to"), 0;
	if (fstatat(f->fd, name, &v.st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0)
		return problem(w, errno, "look at"), 0;
	if (S_ISDIR(v.st.st_mode))
		return visit_folder(w, &v, err);
	v.has_journal = sl__bk_maybe_database(&v.st) && has_journal(f, name);
	int rc = w->o->visit(&v, w->o->ctx, err);
	return rc == 0 ? note_database(w, &w->stack[at], &v, err) : rc;
}

static int walk_stack(struct walk *w, struct sl_err *err)
{
	int rc = 0;
	while (rc == 0 && w->depth > 0) {
		struct folder *f = &w->stack[w->depth - 1];
		w->path.len = f->path_len;
		if (w->path.data != NULL)
			w->path.data[f->path_len] = '\0';
		if (f->at == f->n || !reopen(w, f))
			pop(w);
		else
			rc = visit_name(w, w->depth - 1, f->order[f->at++], err);
	}
	return rc;
}

/* ---- roots ---- */

/* How many bytes of path lead to folders that were told for the root before. */
static size_t told_before(const char *path, const char *before)
{
	size_t told = 0;
	for (size_t i = 0; before != NULL && path[i] != '\0' && path[i] == before[i]; i++)
		if (path[i] == '/')
			told = i;
	return told;
}

/* The folders above a root, so that restore can make them. What cannot be opened is told by its attributes alone. */
static int visit_above(struct walk *w, const char *path, size_t told, struct sl_err *err)
{
	int rc = 0;
	for (const char *slash = strchr(path, '/'); rc == 0 && slash != NULL; slash = strchr(slash + 1, '/')) {
		size_t n = (size_t)(slash - path);
		if (n <= told)
			continue;
		sl__buf_clear(&w->path);
		if (sl__buf_append(&w->path, path, n) != 0)
			return sl__no_memory(err, "walk the tree");
		struct bk_visit v = {.path = w->path.data, .path_len = n, .dir = -1, .fd = -1};
		v.name = sl__basename(v.path);
		if (fstatat(w->root, v.path, &v.st, AT_SYMLINK_NOFOLLOW) != 0)
			return sl_err_set_errno(err, errno, "look at the folder /%.160s", v.path);
		int fd = sl__bk_tree_open(w->root, v.path, n, O_RDONLY | O_DIRECTORY, v.st.st_uid);
		v.fd = fd >= 0 ? fd : -1;
		rc = w->o->visit(&v, w->o->ctx, err);
		sl__bk_tree_close(&v.fd);
	}
	return rc;
}

static bool journal_exists(int dir, const char *name)
{
	char other[NAME_MAX + 16];
	struct stat st;
	for (size_t i = 0; i < SL_COUNT(journals); i += 2) {
		(void)snprintf(other, sizeof(other), "%s%s", name, journals[i]);
		if (fstatat(dir, other, &st, AT_SYMLINK_NOFOLLOW) == 0)
			return true;
	}
	return false;
}

/* The root itself: a name of the folder above it. */
static int visit_root(struct walk *w, int dir, struct sl_err *err)
{
	struct bk_visit v = {.path = w->path.data, .path_len = w->path.len, .dir = dir, .fd = -1};
	v.name = sl__basename(v.path);
	if (fstatat(dir, v.name, &v.st, AT_SYMLINK_NOFOLLOW) != 0)
		return sl_err_set_errno(err, errno, "cannot back up /%.160s", v.path);
	w->dev = v.st.st_dev;
	if (S_ISDIR(v.st.st_mode))
		return visit_folder(w, &v, err);
	v.has_journal = sl__bk_maybe_database(&v.st) && journal_exists(dir, v.name);
	return w->o->visit(&v, w->o->ctx, err);
}

static int enter_root(struct walk *w, const char *path, struct sl_err *err)
{
	const char *slash = strrchr(path, '/');
	size_t above = slash != NULL ? (size_t)(slash - path) : 0;
	struct stat st;
	sl__buf_clear(&w->path);
	if (sl__buf_str_append(&w->path, path) != 0)
		return sl__no_memory(err, "walk the tree");
	int flags = (path[0] == '\0' ? O_RDONLY : O_PATH) | O_DIRECTORY;
	int fd = above == 0 ? sl__bk_tree_open_in(w->root, ".", flags, (uid_t)-1) : -1;
	if (above > 0) {
		w->path.data[above] = '\0';
		fd = sl__bk_tree_open(w->root, w->path.data, above, flags, (uid_t)-1);
		w->path.data[above] = '/';
	}
	if (fd < 0 || fstat(fd, &st) != 0)
		return sl_err_set_errno(err, fd < 0 ? -fd : errno, "open the folder of /%.160s", path);
	w->dev = st.st_dev;
	if (path[0] == '\0')
		return push(w, fd, &st, err);
	int rc = visit_root(w, fd, err);
	sl__bk_tree_close(&fd);
	return rc;
}

static int walk_roots(struct walk *w, struct sl_err *err)
{
	const char *before = NULL;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < w->o->roots->n; i++) {
		w->in = &w->o->roots->roots[i];
		rc = visit_above(w, w->in->path, told_before(w->in->path, before), err);
		if (rc == 0)
			rc = enter_root(w, w->in->path, err);
		if (rc == 0)
			rc = walk_stack(w, err);
		before = w->in->path;
	}
	return rc;
}

int sl__bk_walk(const struct sl_env *env, const struct bk_walk_opts *opts, struct sl_err *err)
{
	struct walk w = {.env = env, .o = opts};
	w.root = sl__bk_tree_root();
	if (w.root < 0)
		return sl_err_set_errno(err, -w.root, "open the root folder");
	sl__buf_init(&w.path, env);
	sl__buf_init(&w.given, env);
	sl__buf_init(&w.absolute, env);
	int rc = walk_roots(&w, err);
	while (w.depth > 0)
		pop(&w);
	sl__free(env, w.stack);
	sl__buf_fini(&w.path);
	sl__buf_fini(&w.given);
	sl__buf_fini(&w.absolute);
	sl__bk_tree_close(&w.root);
	return rc;
}
