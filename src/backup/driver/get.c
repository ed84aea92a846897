/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a local repository. A restore reads many frames of few packs, so descriptors are kept open. A get
 * at offset 0 opens the object anew: what reads an object from its beginning sees what has the name now, also when
 * another process has put it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "backup/driver/local.h"

static struct local_cached *find_cached(struct local *l, const char *name) SL_REQUIRES(l->mu)
{
	for (size_t i = 0; i < LOCAL_CACHE; i++) {
		struct local_cached *c = &l->cache[i];
		if (c->fd >= 0 && !c->stale && strcmp(c->name, name) == 0)
			return c;
	}
	return NULL;
}

/* Take a name's descriptor out of use; one that is not in use is the caller's to close. */
static int forget_cached(struct local *l, const char *name) SL_REQUIRES(l->mu)
{
	struct local_cached *c = find_cached(l, name);
	if (c == NULL)
		return -1;
	c->stale = true;
	int fd = c->users == 0 ? c->fd : -1;
	if (fd >= 0)
		c->fd = -1;
	return fd;
}

void sl__bk_local_drop_cached(struct local *l, const char *name)
{
	sl__lock(&l->mu);
	int fd = forget_cached(l, name);
	sl__unlock(&l->mu);
	sl__close_fd(&l->env, &fd);
}

/* Keep the descriptor for others; NULL: all places are in use, and it is the caller's. */
static struct local_cached *keep_cached(struct local *l, const char *name, int fd)
{
	int to_close = -1;
	struct local_cached *best = NULL;
	sl__lock(&l->mu);
	int old = forget_cached(l, name);
	/* A free place, or the one that was unused for the longest time. */
	for (size_t i = 0; i < LOCAL_CACHE; i++) {
		struct local_cached *c = &l->cache[i];
		if (c->users == 0 && (best == NULL || c->fd < 0 || (best->fd >= 0 && c->used < best->used)))
			best = c;
	}
	if (best != NULL) {
		to_close = best->fd;
		*best = (struct local_cached){.fd = fd, .users = 1, .used = ++l->ticks};
		memcpy(best->name, name, strlen(name) + 1);
	}
	sl__unlock(&l->mu);
	sl__close_fd(&l->env, &old);
	sl__close_fd(&l->env, &to_close);
	return best;
}

int sl__bk_local_get(void *driver, const char *name, uint64_t offset, void *buf, size_t len, size_t *got,
		     struct sl_err *err)
{
	struct local *l = driver;
	struct local_cached *c = NULL;
	int own = -1, stale = -1; /* descriptors to close */
	int rc = sl__bk_local_check(l, name, err);
	if (rc != 0)
		return rc;
	if (offset != 0) {
		sl__lock(&l->mu);
		c = find_cached(l, name);
		if (c != NULL) {
			c->users++;
			c->used = ++l->ticks;
		}
		sl__unlock(&l->mu);
	}
	if (c == NULL) { /* O_NONBLOCK: a pipe of that name must not block */
		char path[LOCAL_PATH_BYTES];
		sl__bk_local_path(l, name, path);
		own = SL__IO(&l->env, open, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
		if (own < 0)
			return sl_err_set_errno(err, -own, "repository %s: open %s", l->root, name);
		c = keep_cached(l, name, own);
	}
	ssize_t n = sl__pread_full(&l->env, c != NULL ? c->fd : own, buf, len, offset);
	if (c != NULL) {
		own = -1;
		sl__lock(&l->mu);
		if (--c->users == 0 && c->stale) {
			stale = c->fd;
			c->fd = -1;
		}
		sl__unlock(&l->mu);
	}
	sl__close_fd(&l->env, &stale);
	sl__close_fd(&l->env, &own);
	if (n < 0)
		return sl_err_set_errno(err, (int)-n, "repository %s: read %s", l->root, name);
	*got = (size_t)n;
	return 0;
}

static int stat_object(const struct local *l, const char *name, struct sl_driver_stat *out)
{
	char path[LOCAL_PATH_BYTES];
	struct sl_io_stat st;
	sl__bk_local_path(l, name, path);
	int rc = SL__IO(&l->env, stat, path, &st);
	if (rc == 0 && !S_ISREG(st.mode))
		rc = -ENOENT; /* a folder, a link: no object */
	if (rc == 0)
		*out = (struct sl_driver_stat){.size = st.size, .mtime_ms = st.mtime_ms};
	return rc;
}

/* What stat has returned is covered by the next sync, whichever process has put it. */
int sl__bk_local_stat(void *driver, const char *name, struct sl_driver_stat *out, struct sl_err *err)
{
	struct local *l = driver;
	struct sl_driver_stat st;
	char folder[SL_DRIVER_NAME_BYTES];
	int rc = sl__bk_local_check(l, name, err);
	if (rc != 0)
		return rc;
	rc = stat_object(l, name, &st);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "repository %s: stat %s", l->root, name);
	sl__bk_local_folder_of(name, folder);
	rc = sl__bk_local_need_folder(l, folder, LOCAL_SEEN, err);
	if (rc == 0)
		rc = sl__bk_local_mark_folder(l, folder, err);
	if (rc == 0)
		*out = st;
	return rc;
}

struct listing {
	const struct local *l;
	const char *folder;
	sl_driver_list_fn *fn;
	void *ctx;
	struct sl_err *err;
	int result; /* of a walk that was ended */
};

static int list_one(const char *file, void *ctx)
{
	struct listing *s = ctx;
	char name[SL_DRIVER_NAME_BYTES + 256];
	struct sl_driver_stat st;
	size_t folder_len = strlen(s->folder), n = strlen(file);
	if (folder_len + 1 + n >= sizeof(name))
		return 0;
	memcpy(name, s->folder, folder_len);
	name[folder_len] = '/';
	memcpy(name + folder_len + 1, file, n + 1);
	const char *whole = folder_len == 0 ? name + 1 : name;
	if (!sl__bk_driver_name_ok(whole))
		return 0;
	int rc = stat_object(s->l, whole, &st);
	if (rc == -ENOENT)
		return 0; /* no object, or removed meanwhile */
	s->result = rc < 0 ? sl_err_set_errno(s->err, -rc, "repository %s: stat %s", s->l->root, whole)
			   : s->fn(file, &st, s->ctx);
	return s->result != 0;
}

int sl__bk_local_list(void *driver, const char *folder, sl_driver_list_fn *fn, void *ctx, struct sl_err *err)
{
	struct local *l = driver;
	struct listing s = {.l = l, .folder = folder, .fn = fn, .ctx = ctx, .err = err};
	char path[LOCAL_PATH_BYTES];
	int rc = sl__bk_local_check(l, folder[0] != '\0' ? folder : "root", err);
	if (rc != 0)
		return rc;
	sl__bk_local_path(l, folder, path);
	rc = SL__IO(&l->env, list, path, list_one, &s);
	if (rc < 0 && rc != -ENOENT)
		return sl_err_set_errno(err, -rc, "repository %s: list folder %s", l->root, folder);
	return s.result;
}
