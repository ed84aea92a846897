/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spools whose log is gone. A log that is completed while a spool could not be brought in (a full disk, a spool that
 * could not be read) is sent and archived; its spools stay, and a sweep, which goes by logs, would pass them over for
 * ever. So their log is made again, empty and under the same name: it is an orphan like any other then, and what the
 * headers of the spools call unknown is appended to it (exec/recover.c).
 *
 * What must stay true: whoever removes a spool syncs its folder before the log may go. A spool that a power loss
 * brought back behind its log's archive would be taken for one that was never brought in.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "jobs/exec/priv.h"

#define SUFFIX ".spool"

struct lost {
	const struct sl_env *env;
	const struct sl_wal_opts *opts;
	uint64_t made;
	int first_rc; /* of one that could not be helped, while the others were */
	struct sl_err first;
};

static bool is_spool(const char *name, size_t *stem)
{
	size_t n = strlen(name), tail = strlen(SUFFIX);
	*stem = n > tail ? n - tail : 0;
	return n > tail && strcmp(name + *stem, SUFFIX) == 0;
}

static int on_spool(const char *name, void *ctx)
{
	size_t stem;
	*(bool *)ctx = is_spool(name, &stem);
	return *(bool *)ctx ? 1 : 0;
}

/* 1: <dir>/<id>.wal is there, 0: it is not; a negative errno. */
static int has_log(const struct lost *l, const char *id)
{
	char *path = sl__asprintf(l->env, "%s/%s.wal", l->opts->wal_dir, id);
	if (path == NULL)
		return -ENOMEM;
	int fd = SL__IO(l->env, open, path, O_RDONLY, 0);
	sl__free(l->env, path);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	(void)SL__IO(l->env, close, fd);
	return 1;
}

static int make_log(struct lost *l, const char *id, struct sl_err *err)
{
	sl_wal *w = NULL;
	int rc = sl_wal_open(&w, id, l->opts, err);
	if (rc == SL_ELOCKED) /* another one makes it just now, and sweeps it */
		return 0;
	if (rc == 0)
		rc = sl_wal_close(w, err);
	if (rc == 0) {
		l->made++;
		sl__log(l->env, SL_LOG_WARN, "exec", "output was left behind by a log that is gone; it is brought in",
			SL__F_STR("folder", l->opts->wal_dir), SL__F_STR("stream", id));
	}
	return rc;
}

static int look_into(struct lost *l, const char *folder, const char *id, struct sl_err *err)
{
	bool found = false;
	int rc = SL__IO(l->env, list, folder, on_spool, &found);
	if (rc < 0)
		return rc == -ENOENT || rc == -ENOTDIR ? 0 : sl_err_set_errno(err, -rc, "list %s", folder);
	/* Only now: a log is there before its folder is, and a living worker keeps it. */
	rc = has_log(l, id);
	if (rc != 0)
		return rc < 0 ? sl_err_set_errno(err, -rc, "look for the log of %s", folder) : 0;
	if (found)
		return make_log(l, id, err);
	/* Goes only when it is empty; the table has no call for it. */
	(void)rmdir(folder);
	return 0;
}

static int on_folder(const char *name, void *ctx)
{
	struct lost *l = ctx;
	struct sl_err err = SL_ERR_INIT;
	size_t stem;
	if (!is_spool(name, &stem))
		return 0;
	char *folder = sl__asprintf(l->env, "%s/%s", l->opts->wal_dir, name);
	char *id = sl__asprintf(l->env, "%.*s", (int)stem, name);
	int rc = folder != NULL && id != NULL ? look_into(l, folder, id, &err)
					      : sl_err_set(&err, SL_ENOMEM, "lost spools: out of memory");
	sl__free(l->env, folder);
	sl__free(l->env, id);
	if (rc != 0 && l->first_rc == 0) {
		l->first_rc = rc;
		l->first = err;
	}
	return 0;
}

int sl_exec_find_lost(const struct sl_wal_opts *opts, uint64_t *n, struct sl_err *err)
{
	struct sl_wal_opts o;
	struct sl_env env;
	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	if (o.wal_dir == NULL || o.wal_dir[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "wal_dir: is missing");
	o.background = SL_OFF;
	struct lost l = {.env = &env, .opts = &o};
	rc = SL__IO(&env, list, o.wal_dir, on_folder, &l);
	if (n != NULL)
		*n = l.made;
	if (rc < 0 && rc != -ENOENT)
		return sl_err_set_errno(err, -rc, "list %s", o.wal_dir);
	if (l.first_rc != 0 && err != NULL)
		*err = l.first;
	return l.first_rc;
}
