/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk (walk.h): a stack of folders, each with its sorted names and the position in them. A folder deep in the stack
 * may have lost its descriptor to the limit; it is opened again by its path when its turn comes, and must be the same
 * one.
 */
#include "backup/create/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "backup/create/source_vfs.h"
#include "backup/manifest/manifest.h"
#include "base/compare.h"

struct folder {
	int fd; /* -1: closed because of the limit */
	dev_t dev;
	ino_t ino;
	size_t path_len; /* of its path, in walk->path */
	char *names;     /* one after the other, each with its NUL */
	size_t names_len, names_cap;
	const char **order; /* sorted */
	size_t n, at, cap;
	struct database {
		const char *name;
		bool only_shm; /* of its journals only the -shm is left out */
	} * databases;
	size_t n_databases, cap_databases;
};

struct walk {
	const struct sl_env *env;
	const struct bk_walk_opts *o;
	int root; /* descriptor of the root folder */
	const struct bk_root *in;
	dev_t dev; /* of the current root */
	struct sl__buf path;
	struct sl__buf given, absolute; /* made of path for patterns with slashes */
	struct folder *stack;
	size_t depth, cap;
	size_t open;       /* folders with a descriptor */
	size_t first_open; /* the lowest of them, or lower */
};

static void report_problem(struct walk *w, int errnum, const char *what)
{
	struct sl_err err = SL_ERR_INIT;
	if (w->o->problem == NULL)
		return;
	bool vanished = errnum == ENOENT || errnum == ESTALE || errnum == ENOTDIR || errnum == ELOOP;
	(void)sl_err_set_errno(&err, errnum, "%s /%.160s", what, sl__buf_str(&w->path));
	w->o->problem(vanished ? SL_BACKUP_VANISHED : SL_BACKUP_UNREADABLE, sl__buf_str(&w->path), &err, w->o->ctx);
}

/* ---- the names of a folder ---- */

struct listing {
	struct walk *w;
	struct folder *f;
};

static int add_folder_name(const char *name, void *ctx)
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

/* ---- the stack ---- */

static void close_folder(struct walk *w, struct folder *f)
{
	w->open -= f->fd >= 0;
	sl__bk_tree_close(&f->fd);
}

static void pop_folder(struct walk *w)
{
	struct folder *f = &w->stack[--w->depth];
	close_folder(w, f);
	sl__free(w->env, f->names);
	sl__free(w->env, f->order);
	sl__free(w->env, f->databases);
}

/* The walk owns fd, also on failure. */
static int push_folder(struct walk *w, int fd, const struct stat *st, struct sl_err *err)
{
	/* Keep to the limit of descriptors. */
	if (w->open >= BK_WALK_FDS) {
		w->first_open = SL_MIN(w->first_open, w->depth);
		while (w->first_open < w->depth && w->stack[w->first_open].fd < 0)
			w->first_open++;
		if (w->first_open < w->depth)
			close_folder(w, &w->stack[w->first_open]);
	}
	struct folder *grown = sl__grow(w->env, w->stack, w->depth, &w->cap, sizeof(*grown));
	if (grown == NULL) {
		sl__bk_tree_close(&fd);
		return sl__no_memory(err, "walk the tree");
	}
	w->stack = grown;
	struct folder *f = &w->stack[w->depth++];
	*f = (struct folder){.fd = fd, .dev = st->st_dev, .ino = st->st_ino, .path_len = w->path.len};
	w->open++;

	/* Its names, sorted. */
	struct listing l = {w, f};
	int rc = sl__bk_tree_list(fd, add_folder_name, &l);
	f->order = rc == SL_ENOMEM ? NULL : sl__alloc(w->env, SL_MAX(f->n, (size_t)1) * sizeof(*f->order));
	if (f->order == NULL)
		return sl__no_memory(err, "walk the tree");
	const char *at = f->names;
	for (size_t i = 0; i < f->n; i++) {
		f->order[i] = at;
		at += strlen(at) + 1;
	}
	qsort(f->order, f->n, sizeof(*f->order), sl__compare_texts);
	if (rc != 0)
		report_problem(w, -rc, "list the folder");
	return 0;
}

/* False: it no longer exists, or another folder is in its place. */
static bool reopen_folder(struct walk *w, struct folder *f)
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
		report_problem(w, -rc, "reopen the folder");
		return false;
	}
	f->fd = fd;
	w->open++;
	w->first_open = SL_MIN(w->first_open, (size_t)(f - w->stack));
	return true;
}

/* ---- one name ---- */

static const char *const journals[] = {"-wal", "-shm", "-journal"};

/* Is it a journal of a database that was visited before? That one sorts before it. */
static bool is_excluded(const struct folder *f, const char *name)
{
	size_t n = strlen(name);
	for (size_t i = 0; f->n_databases > 0 && i < SL_COUNT(journals); i++) {
		size_t k = strlen(journals[i]);
		if (n <= k || strcmp(name + n - k, journals[i]) != 0)
			continue;
		for (size_t d = f->n_databases; d-- > 0;) {
			const struct database *db = &f->databases[d];
			if (strncmp(db->name, name, n - k) != 0 || db->name[n - k] != '\0')
				continue;
			return (!db->only_shm || strcmp(journals[i], "-shm") == 0) && sl__bk_is_journal(f->fd, name);
		}
	}
	return false;
}

/* Is a -wal or -journal next to a database? f: its folder, whose names are known; NULL: ask the system. */
static bool has_journal(const struct folder *f, int dir, const char *name)
{
	char other[NAME_MAX + 16];
	const char *key = other;
	struct stat st;
	for (size_t i = 0; i < SL_COUNT(journals); i += 2) {
		(void)snprintf(other, sizeof(other), "%s%s", name, journals[i]);
		if (f == NULL ? fstatat(dir, other, &st, AT_SYMLINK_NOFOLLOW) == 0
			      : f->n > 0 && bsearch(&key, f->order, f->n, sizeof(*f->order), sl__compare_texts) != NULL)
			return true;
	}
	return false;
}

/* A folder: visited, then entered. It belongs to the stack when 0 returns. */
static int visit_folder(struct walk *w, struct bk_visit *v, struct sl_err *err)
{
	v->fd = sl__bk_tree_open_in(v->dir, v->name, O_RDONLY | O_DIRECTORY, v->st.st_uid);
	if (v->fd < 0) {
		report_problem(w, -v->fd, "open the folder");
		if (v->fd == -ENOENT || v->fd == -ENOTDIR || v->fd == -ELOOP)
			return 0;
		v->fd = -1;
	}
	int rc = w->o->visit(v, err, w->o->ctx);
	if (rc != 0 || v->fd < 0 || (w->o->one_file_system && v->st.st_dev != w->dev)) {
		sl__bk_tree_close(&v->fd);
		return rc;
	}
	return push_folder(w, v->fd, &v->st, err);
}

/* f is the top of the stack; it may move when a folder is entered. */
static int visit_name(struct walk *w, struct folder *f, const char *name, struct sl_err *err)
{
	w->path.len = f->path_len;
	if (f->path_len > 0)
		(void)sl__buf_append(&w->path, "/", 1);
	if (sl__buf_str_append(&w->path, name) != 0)
		return sl__no_memory(err, "walk the tree");

	/* Is it excluded? A pattern with a slash needs its path, as the caller gave it and absolute. */
	const struct bk_excludes *x = w->o->excludes;
	if (x->n > 0 && x->any_whole) {
		sl__buf_clear(&w->given);
		sl__buf_clear(&w->absolute);
		(void)sl__buf_printf(&w->absolute, "/%s", w->path.data);
		size_t n = strlen(w->in->path);
		bool slash = w->in->given[0] == '/' && w->in->given[1] == '\0';
		(void)sl__buf_printf(&w->given, "%s%s%s", w->in->given, n == 0 && !slash ? "/" : "",
				     w->path.data + (slash && n > 0 ? n + 1 : n));
	}
	if (sl__bk_excluded(x, name, sl__buf_str(&w->given), sl__buf_str(&w->absolute)) || is_excluded(f, name))
		return 0;

	struct bk_visit v = {.path = w->path.data, .path_len = w->path.len, .dir = f->fd, .name = name, .fd = -1};
	if (w->path.len >= BK_PATH_MAX) {
		report_problem(w, ENAMETOOLONG, "visit");
		return 0;
	}
	if (fstatat(f->fd, name, &v.st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0) {
		report_problem(w, errno, "stat");
		return 0;
	}
	if (S_ISDIR(v.st.st_mode))
		return visit_folder(w, &v, err);
	v.has_journal = sl__bk_maybe_database(&v.st) && has_journal(f, f->fd, name);
	int rc = w->o->visit(&v, err, w->o->ctx);
	if (rc != 0 || (!v.leave_out_journal && !v.leave_out_shm))
		return rc;
	/* A database: remember it, because its journals follow. */
	struct database *grown = sl__grow(w->env, f->databases, f->n_databases, &f->cap_databases, sizeof(*grown));
	if (grown == NULL)
		return sl__no_memory(err, "walk the tree");
	f->databases = grown;
	f->databases[f->n_databases++] = (struct database){name, !v.leave_out_journal};
	return 0;
}

/* ---- roots ---- */

/* Visit the folders above a root, so that restore can create them; not those that were visited for the root before. One
 * that cannot be opened is visited with its attributes alone. */
static int visit_above(struct walk *w, const char *path, const char *before, struct sl_err *err)
{
	size_t visited = 0;
	for (size_t i = 0; before != NULL && path[i] != '\0' && path[i] == before[i]; i++)
		if (path[i] == '/')
			visited = i;
	int rc = 0;
	for (const char *slash = strchr(path, '/'); rc == 0 && slash != NULL; slash = strchr(slash + 1, '/')) {
		size_t n = (size_t)(slash - path);
		if (n <= visited)
			continue;
		sl__buf_clear(&w->path);
		if (sl__buf_append(&w->path, path, n) != 0)
			return sl__no_memory(err, "walk the tree");
		struct bk_visit v = {.path = w->path.data, .path_len = n, .dir = -1, .fd = -1};
		v.name = sl__basename(v.path);
		if (fstatat(w->root, v.path, &v.st, AT_SYMLINK_NOFOLLOW) != 0)
			return sl_err_set_errno(err, errno, "stat the folder /%.160s", v.path);
		int fd = sl__bk_tree_open(w->root, v.path, n, O_RDONLY | O_DIRECTORY, v.st.st_uid);
		v.fd = fd >= 0 ? fd : -1;
		rc = w->o->visit(&v, err, w->o->ctx);
		sl__bk_tree_close(&v.fd);
	}
	return rc;
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
	int fd SL_CLEANUP(sl__bk_tree_close) = above == 0 ? sl__bk_tree_open_in(w->root, ".", flags, (uid_t)-1) : -1;
	if (above > 0) {
		w->path.data[above] = '\0';
		fd = sl__bk_tree_open(w->root, w->path.data, above, flags, (uid_t)-1);
		w->path.data[above] = '/';
	}
	if (fd < 0 || fstat(fd, &st) != 0)
		return sl_err_set_errno(err, fd < 0 ? -fd : errno, "open the folder of /%.160s", path);
	w->dev = st.st_dev;
	if (path[0] == '\0') {
		int root = fd;
		fd = -1; /* it belongs to the stack */
		return push_folder(w, root, &st, err);
	}

	/* The root itself is a name in that folder. */
	struct bk_visit v = {.path = w->path.data, .path_len = w->path.len, .dir = fd, .fd = -1};
	v.name = sl__basename(v.path);
	if (fstatat(fd, v.name, &v.st, AT_SYMLINK_NOFOLLOW) != 0)
		return sl_err_set_errno(err, errno, "cannot back up /%.160s", v.path);
	if (S_ISDIR(v.st.st_mode)) {
		w->dev = v.st.st_dev;
		return visit_folder(w, &v, err);
	}
	v.has_journal = sl__bk_maybe_database(&v.st) && has_journal(NULL, fd, v.name);
	return w->o->visit(&v, err, w->o->ctx);
}

static void fini_walk(struct walk *w)
{
	while (w->depth > 0)
		pop_folder(w);
	sl__free(w->env, w->stack);
	sl__buf_fini(&w->path);
	sl__buf_fini(&w->given);
	sl__buf_fini(&w->absolute);
	sl__bk_tree_close(&w->root);
}

int sl__bk_walk(const struct sl_env *env, const struct bk_walk_opts *opts, struct sl_err *err)
{
	struct walk w SL_CLEANUP(fini_walk) = {.env = env, .o = opts, .root = sl__bk_tree_root()};
	const char *before = NULL;
	sl__buf_init(&w.path, env);
	sl__buf_init(&w.given, env);
	sl__buf_init(&w.absolute, env);
	if (w.root < 0)
		return sl_err_set_errno(err, -w.root, "open the root folder");
	for (size_t i = 0; i < opts->roots->n; i++) {
		w.in = &opts->roots->roots[i];
		int rc = visit_above(&w, w.in->path, before, err);
		if (rc == 0)
			rc = enter_root(&w, w.in->path, err);
		while (rc == 0 && w.depth > 0) {
			struct folder *f = &w.stack[w.depth - 1];
			w.path.len = f->path_len;
			if (w.path.data != NULL)
				w.path.data[f->path_len] = '\0';
			if (f->at == f->n || !reopen_folder(&w, f))
				pop_folder(&w);
			else
				rc = visit_name(&w, f, f->order[f->at++], err);
		}
		if (rc != 0)
			return rc;
		before = w.in->path;
	}
	return 0;
}

/* ---- the paths of a create: made absolute and real, sorted, without those inside others ---- */

/* 0 or a negative errno. */
static int real_path(const char *path, char out[PATH_MAX])
{
	struct stat st;
	char folder[PATH_MAX];
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return realpath(path, out) != NULL ? 0 : -errno;
	if (lstat(path, &st) != 0)
		return -errno;

	/* The real name of the folder, then the last component as it is: a link to a file is backed up as a link. */
	size_t n = sl__bk_trimmed_length(path), base = n;
	while (base > 0 && path[base - 1] != '/')
		base--;
	if (n >= sizeof(folder))
		return -ENAMETOOLONG;
	memcpy(folder, base > 0 ? path : ".", base > 0 ? base : 1);
	folder[base > 0 ? base : 1] = '\0';
	if (realpath(folder, out) == NULL)
		return -errno;
	size_t len = strcmp(out, "/") == 0 ? 0 : strlen(out);
	if (len + 1 + (n - base) >= PATH_MAX)
		return -ENAMETOOLONG;
	out[len] = '/';
	memcpy(out + len + 1, path + base, n - base);
	out[len + 1 + (n - base)] = '\0';
	return 0;
}

static void root_fini(const struct sl_env *env, struct bk_root *r)
{
	sl__free(env, r->path);
	sl__free(env, r->given);
}

static int compare_roots(const void *a, const void *b)
{
	const struct bk_root *x = a, *y = b;
	return sl__bk_path_compare(x->path, strlen(x->path), y->path, strlen(y->path));
}

int sl__bk_roots_init(struct bk_roots *out, const struct sl_env *env, const char *const *paths, size_t n,
		      struct sl_err *err)
{
	struct bk_roots r = {NULL, 0};
	if (paths == NULL || n == 0)
		return sl_err_set(err, SL_EINVAL, "paths: no path is given");
	r.roots = sl__calloc(env, n, sizeof(*r.roots));
	int rc = r.roots == NULL ? sl__no_memory(err, "create a snapshot") : 0;
	while (rc == 0 && r.n < n) {
		const char *path = paths[r.n];
		struct bk_root *root = &r.roots[r.n++];
		char real[PATH_MAX];
		if (path == NULL || path[0] == '\0') {
			rc = sl_err_set(err, SL_EINVAL, "paths: a path is empty");
			break;
		}
		rc = real_path(path, real);
		if (rc != 0) {
			rc = sl_err_set_errno(err, -rc, "cannot back up %.160s", path);
			break;
		}
		root->path = sl__strdup(env, real + 1);
		root->given = sl__strdup(env, path);
		if (root->path == NULL || root->given == NULL)
			rc = sl__no_memory(err, "create a snapshot");
		else
			root->given[sl__bk_trimmed_length(path)] = '\0';
	}
	if (rc != 0) {
		sl__bk_roots_fini(env, &r);
		return rc;
	}
	/* Sorted, what is inside another root directly follows it. */
	qsort(r.roots, r.n, sizeof(*r.roots), compare_roots);
	size_t kept = 0;
	for (size_t i = 0; i < r.n; i++) {
		const char *path = r.roots[i].path, *outer = kept > 0 ? r.roots[kept - 1].path : NULL;
		size_t len = outer != NULL ? strlen(outer) : 0;
		if (outer != NULL &&
		    (len == 0 || (strncmp(path, outer, len) == 0 && (path[len] == '\0' || path[len] == '/'))))
			root_fini(env, &r.roots[i]);
		else
			r.roots[kept++] = r.roots[i];
	}
	r.n = kept;
	*out = r;
	return 0;
}

void sl__bk_roots_fini(const struct sl_env *env, struct bk_roots *r)
{
	for (size_t i = 0; i < r->n; i++)
		root_fini(env, &r->roots[i]);
	sl__free(env, r->roots);
	*r = (struct bk_roots){NULL, 0};
}
