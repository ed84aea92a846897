/* SPDX-License-Identifier: Apache-2.0 */
/* The handle of a local repository: opening, names of objects, locks. */
#include "backup/driver/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#define THREADS_MAX 64
#define ROOT_MAX                                                                                                       \
	(LOCAL_PATH_BYTES - SL_DRIVER_NAME_BYTES - 300) /* a name that list composes is longer than an object's */

struct lock {
	int fd;
};

/* ---- names ---- */

bool sl__bk_driver_name_ok(const char *name)
{
	const char *component = name;
	for (const char *p = name;; p++) {
		bool ok = (*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '.' || *p == '-';
		if (!ok && *p != '/' && *p != '\0')
			return false;
		if (*p == '\0' || *p == '/') {
			size_t n = (size_t)(p - component);
			if (n == 0 || (n == 1 && component[0] == '.') || (n == 2 && memcmp(component, "..", 2) == 0))
				return false;
			component = p + 1;
		}
		if (*p == '\0')
			return (size_t)(p - name) < SL_DRIVER_NAME_BYTES;
	}
}

int sl__bk_local_check(const struct local *l, const char *name, struct sl_err *err)
{
	size_t n = strlen(LOCAL_TMP);
	if (sl__forked(&l->guard))
		return sl_err_set(err, SL_EFORKED, "repository %s: opened by another process: open it again", l->root);
	bool in_tmp = strncmp(name, LOCAL_TMP, n) == 0 && (name[n] == '\0' || name[n] == '/');
	if (!sl__bk_driver_name_ok(name) || in_tmp)
		return sl_err_set(err, SL_EINVAL, "repository %s: invalid object name \"%.200s\"", l->root, name);
	return 0;
}

int sl__bk_local_check_change(struct local *l, const char *name, struct sl_err *err)
{
	int rc = sl__bk_local_check(l, name, err);
	if (rc != 0)
		return rc;
	sl__lock(&l->mu);
	bool broken = l->broken;
	sl__unlock(&l->mu);
	if (!broken)
		return 0;
	rc = sl_err_set(err, SL_EPOISONED, "repository %s: an earlier sync failed: check the disk and open it again",
			l->root);
	if (err != NULL)
		err->error_class = SL_CLASS_POISON; /* no retry helps */
	return rc;
}

void sl__bk_local_path(const struct local *l, const char *name, char out[LOCAL_PATH_BYTES])
{
	int n = snprintf(out, LOCAL_PATH_BYTES, name[0] != '\0' ? "%s/%s" : "%s", l->root, name);
	assert(n > 0 && n < LOCAL_PATH_BYTES); /* open has bounded the root */
	(void)n;
}

void sl__bk_local_folder_of(const char *name, char out[SL_DRIVER_NAME_BYTES])
{
	const char *slash = strrchr(name, '/');
	(void)snprintf(out, SL_DRIVER_NAME_BYTES, "%.*s", slash != NULL ? (int)(slash - name) : 0, name);
}

/* ---- locks ---- */

static int acquire_lock(void *driver, const char *name, void **out, struct sl_err *err)
{
	struct local *l = driver;
	char file[SL_DRIVER_NAME_BYTES + 16], path[LOCAL_PATH_BYTES];
	int rc = sl__bk_local_check_change(l, name, err);
	if (rc == 0)
		rc = sl__bk_local_need_folder(l, LOCAL_TMP, LOCAL_MADE, err);
	if (rc != 0)
		return rc;
	/* Lock files stay: removing one could take it from a process that has just opened it. */
	(void)snprintf(file, sizeof(file), LOCAL_TMP "/" LOCAL_LOCK_PREFIX "%s", name);
	for (char *p = file + strlen(LOCAL_TMP "/"); *p != '\0'; p++)
		if (*p == '/')
			*p = '_'; /* in no name, so different names stay different */
	sl__bk_local_path(l, file, path);
	struct lock *lock = sl__calloc(&l->env, 1, sizeof(*lock));
	if (lock == NULL)
		return sl_err_set(err, SL_ENOMEM, "repository %s: lock %s: out of memory", l->root, name);
	lock->fd = SL__IO(&l->env, open, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
	rc = lock->fd < 0 ? lock->fd : SL__IO(&l->env, lock, lock->fd);
	if (rc == 0) {
		*out = lock;
		return 0;
	}
	sl__close_fd(&l->env, &lock->fd);
	sl__free(&l->env, lock);
	return sl_err_set_errno(err, -rc, "repository %s: lock %s", l->root, name);
}

static void release_lock(void *driver, void *held)
{
	struct local *l = driver;
	struct lock *lock = held;
	sl__close_fd(&l->env, &lock->fd);
	sl__free(&l->env, lock);
}

/* ---- open, close ---- */

/* Half-built handles too. */
static void destroy_local(struct local *l)
{
	struct sl_env env = l->env;
	sl__pool_free(l->pool);
	assert(l->first == NULL);
	for (size_t i = 0; i < LOCAL_CACHE; i++)
		sl__close_fd(&env, &l->cache[i].fd);
	sl__free(&env, l->folders);
	sl__free(&env, l->root);
	sl__cond_fini(&l->more);
	sl__mutex_fini(&l->starting);
	sl__mutex_fini(&l->mu);
	sl__fork_guard_fini(&l->guard);
	sl__free(&env, l);
}

/* In a forked child there are no threads to join and the descriptors are the parent's as well: nothing is touched. */
static void close_driver(void *driver)
{
	struct local *l = driver;
	if (!sl__forked(&l->guard))
		destroy_local(l);
}

static const struct sl_driver_ops local_ops = {
	.version = SL_DRIVER_VERSION,
	.name = "local",
	.schedule_put = sl__bk_local_schedule_put,
	.put = sl__bk_local_put,
	.get = sl__bk_local_get,
	.stat = sl__bk_local_stat,
	.list = sl__bk_local_list,
	.rename = sl__bk_local_rename,
	.remove = sl__bk_local_remove,
	.sync = sl__bk_local_sync,
	.now_ms = sl__bk_local_now_ms,
	.lock = acquire_lock,
	.unlock = release_lock,
	.close = close_driver,
};

int sl_driver_local_open(sl_driver *out, const char *path, const struct sl_driver_local_opts *opts, struct sl_err *err)
{
	struct sl_driver_local_opts o;
	struct sl_env env;
	sl__opts_copy(&o, sizeof(o), opts);
	if (path == NULL || path[0] == '\0' || strlen(path) > ROOT_MAX)
		return sl_err_set(err, SL_EINVAL, "local driver: path: give 1 to %d bytes", ROOT_MAX);
	int rc = sl_check_local_path("repository", path, err);
	if (rc != 0)
		return rc;
	if (o.threads < 0 || o.threads > THREADS_MAX)
		return sl_err_set(err, SL_EINVAL, "local driver: threads: give 1 to %d", THREADS_MAX);
	if ((unsigned)o.create > SL_OFF)
		return sl_err_set(err, SL_EINVAL, "local driver: create: not a switch");
	rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;

	/* Create the folder if asked to, and check that it is a folder. */
	rc = o.create == SL_ON ? sl__mkdirs(&env, path) : 0;
	if (rc == -ENOSPC || rc == -EDQUOT || rc == -EIO || rc == -ENOMEM) /* may pass */
		return sl_err_set_errno(err, -rc, "repository %s: make the folder", path);
	if (rc < 0)
		return sl_err_set(err, SL_ECREATE, "cannot create the folder %.150s: %s", path, strerror(-rc));
	int fd = SL__IO(&env, open, path, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return sl_err_set_errno(err, -fd, "repository %s: open the folder", path);
	(void)SL__IO(&env, close, fd);

	struct local *l = sl__calloc(&env, 1, sizeof(*l));
	if (l == NULL)
		return sl_err_set(err, SL_ENOMEM, "repository %s: out of memory", path);
	l->env = env;
	l->threads = o.threads != 0 ? (unsigned)o.threads : 2;
	for (size_t i = 0; i < LOCAL_CACHE; i++)
		l->cache[i].fd = -1;
	sl__mutex_init(&l->mu);
	sl__mutex_init(&l->starting);
	sl__cond_init(&l->more);
	sl__prng_init(&l->prng, &env);
	sl__fork_guard_init(&l->guard);
	l->root = sl__strdup(&env, path);
	if (l->root == NULL) {
		destroy_local(l);
		return sl_err_set(err, SL_ENOMEM, "repository %s: out of memory", path);
	}
	*out = (sl_driver){.ops = &local_ops, .driver = l};
	return 0;
}

void sl_driver_close(sl_driver *driver)
{
	if (driver == NULL || driver->ops == NULL)
		return;
	driver->ops->close(driver->driver);
	*driver = (sl_driver){.ops = NULL};
}
