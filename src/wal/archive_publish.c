/* SPDX-License-Identifier: Apache-2.0 */
/* One segment becomes an archive: a name that is free or holds it already, the file, its folder. */
#include "wal/archive.h"

#include <fcntl.h>
#include <stdio.h>

#include "wal/archive_zst.h"

#define MAX_VARIANTS 10000

static int no_publish_memory(const struct wal_publication *p, struct sl_err *err)
{
	return sl_err_set(err, SL_ENOMEM, "archive %s: out of memory", p->segment);
}

/* Find the name for it: *out is in fresh memory. *there: that name holds all its bytes already. */
static int choose_name(const struct wal_publication *p, char **out, bool *there, struct sl_err *err)
{
	bool named = false;
	for (unsigned n = 1; n <= MAX_VARIANTS; n++) {
		enum wal_zst_match match = WAL_ZST_DIFFERS;
		char incarnation[16] = "", number[16] = "";
		if (named)
			(void)snprintf(incarnation, sizeof(incarnation), ".%06x", p->incarnation & 0xFFFFFFu);
		if (n > 1)
			(void)snprintf(number, sizeof(number), "-%u", n);
		char *path = sl__asprintf(p->env, "%s/%s%s%s.zst", p->dir, p->segment, incarnation, number);
		if (path == NULL)
			return no_publish_memory(p, err);
		struct sl_err why = SL_ERR_INIT;
		int rc = sl__wal_zst_compare(p->env, path, p->fd, p->bytes, &match, &why);
		if (rc == SL_ENOENT || (rc == 0 && match == WAL_ZST_HOLDS)) {
			*there = rc == 0;
			*out = path;
			return 0;
		}
		sl__free(p->env, path);
		if (rc != 0) {
			if (err != NULL)
				*err = why;
			return rc;
		}
		if (n == 1 && !named && match == WAL_ZST_STRANGER) {
			named = true;
			n = 0;
		}
	}
	return sl_err_set(err, SL_EEXIST, "archive %s: every name in %s is taken", p->segment, p->dir);
}

/* Write the archive and move it to path. SL_EEXIST: the name was taken meanwhile. */
static int write_archive(const struct wal_publication *p, const char *path, struct sl_err *err)
{
	struct sl__prng prng;
	int fd = -1;
	sl__prng_init(&prng, p->env);
	char *temp = sl__asprintf(p->env, "%s/.%s.zst.tmp-%016llx", p->dir, p->segment,
				  (unsigned long long)sl__prng_next(&prng));
	if (temp == NULL)
		return no_publish_memory(p, err);
	int code = sl__wal_zst_write(p->env, p->fd, p->bytes, temp, p->level, &fd, err);
	if (code == 0) {
		int rc = SL__IO(p->env, rename, temp, path, 1);
		if (rc < 0) {
			code = sl_err_set_errno(err, -rc, "archive %s: rename to %s", p->segment, path);
			(void)SL__IO(p->env, unlink, temp);
		}
		(void)SL__IO(p->env, close, fd);
	}
	sl__free(p->env, temp);
	return code;
}

static int publish_once(const struct wal_publication *p, struct sl_err *err)
{
	char *path = NULL;
	bool there = false;
	int rc = choose_name(p, &path, &there, err);
	if (rc != 0)
		return rc;
	int code = there ? 0 : write_archive(p, path, err);
	if (there) {
		/* It may not be on disk yet: its writer may have been interrupted. */
		int fd = SL__IO(p->env, open, path, O_RDONLY | O_NOFOLLOW, 0);
		rc = fd < 0 ? fd : SL__IO(p->env, sync, fd);
		if (fd >= 0)
			(void)SL__IO(p->env, close, fd);
		if (rc < 0)
			code = sl_err_set_errno(err, -rc, "archive %s: sync", path);
	}
	if (code == 0 && (rc = sl__sync_dir(p->env, p->dir)) < 0)
		code = sl_err_set_errno(err, -rc, "archive %s: sync the folder", path);
	sl__free(p->env, path);
	return code;
}

int sl__wal_publish(const struct wal_publication *p, struct sl_err *err)
{
	int rc = SL_EEXIST;
	for (int tries = 0; tries < 10 && rc == SL_EEXIST; tries++)
		rc = publish_once(p, err);
	return rc;
}
