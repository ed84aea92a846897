/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a restored file has besides its bytes, in the one order that works: the owner first (it takes set-id bits and
 * capabilities away), attributes while this user may still write (access lists change the mode), the mode, the time.
 */
#include "backup/restore/target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ACL_ACCESS "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"

/* One file or folder whose attributes are being set. */
struct setting {
	struct bk_target *t;
	int fd;
	bool is_path;  /* calls that need an open file go through proc */
	char proc[32]; /* "/proc/self/fd/7" */
	const struct bk_entry *e;
	struct stat now; /* as it was found: what is right already is not set again, each is a change on disk */
	bk_not_set_fn *not_set;
	void *ctx;
};

static void complain(const struct setting *s, int why, const char *what)
{
	struct sl_err err = SL_ERR_INIT;
	(void)sl_err_set_errno(&err, why, "set %.60s of %.150s", what, s->e->path);
	s->not_set(s->e, &err, s->ctx);
}

/* Whether the file now belongs to whom the snapshot says, and may keep set-id bits. */
static bool set_owner(const struct setting *s)
{
	const struct bk_entry *e = s->e;
	if (s->now.st_uid == e->uid && s->now.st_gid == e->gid)
		return true;
	if (!s->t->owner)
		return false;
	if (fchownat(s->fd, "", e->uid, e->gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) == 0)
		return true;
	complain(s, errno, "the owner");
	return false;
}

static bool begins(const char *name, const char *with)
{
	return strncmp(name, with, strlen(with)) == 0;
}

static int set_one(const struct setting *s, const char *name, const void *value, size_t len)
{
	return s->is_path ? setxattr(s->proc, name, value, len, 0) : fsetxattr(s->fd, name, value, len, 0);
}

/* What the folder has handed down and the snapshot does not have. */
static void drop_inherited(const struct setting *s, const char *name)
{
	if (atomic_load(&s->t->inherits))
		(void)(s->is_path ? removexattr(s->proc, name) : fremovexattr(s->fd, name));
}

static void set_xattrs(const struct setting *s)
{
	bool access = false, by_default = false, stripped = false;
	for (size_t i = 0; i < s->e->xattrs_n; i++) {
		const struct bk_xattr *x = &s->e->xattrs[i];
		char what[80];
		if (begins(x->name, "security.") || begins(x->name, "trusted.")) {
			bool set = strcmp(x->name, "security.capability") == 0 ? s->t->capability : s->t->security;
			stripped |= !set;
			if (!set)
				continue;
		}
		access |= strcmp(x->name, ACL_ACCESS) == 0;
		by_default |= strcmp(x->name, ACL_DEFAULT) == 0;
		if (set_one(s, x->name, x->value, x->len) == 0)
			continue;
		int why = errno;
		(void)snprintf(what, sizeof(what), "the attribute %.50s", x->name);
		complain(s, why, what);
	}
	if (stripped)
		atomic_fetch_add(&s->t->security_stripped, 1);
	if (!access && s->e->type != SL_BACKUP_SYMLINK)
		drop_inherited(s, ACL_ACCESS);
	if (!by_default && s->e->type == SL_BACKUP_DIR)
		drop_inherited(s, ACL_DEFAULT);
}

static void set_mode(const struct setting *s, bool owned)
{
	mode_t mode = s->e->mode & 07777;
	if (s->e->type == SL_BACKUP_SYMLINK)
		return;
	if ((mode & (S_ISUID | S_ISGID)) != 0 && (!s->t->set_id || !owned)) {
		mode &= (mode_t) ~(S_ISUID | S_ISGID);
		atomic_fetch_add(&s->t->set_id_stripped, 1);
	}
	/* An access list changes the mode, another owner takes bits of it away. */
	if ((s->now.st_mode & 07777) == mode && s->now.st_uid == s->e->uid && s->now.st_gid == s->e->gid &&
	    s->e->xattrs_n == 0 && !atomic_load(&s->t->inherits))
		return;
	if ((s->is_path ? chmod(s->proc, mode) : fchmod(s->fd, mode)) != 0)
		complain(s, errno, "the mode");
}

static void set_time(const struct setting *s)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, s->e->mtime};
	if ((s->is_path ? utimensat(s->fd, "", times, AT_EMPTY_PATH) : futimens(s->fd, times)) != 0)
		complain(s, errno, "the time");
}

void sl__bk_target_attributes(struct bk_target *t, int fd, bool is_path, const struct bk_entry *e,
			      bk_not_set_fn *not_set, void *ctx)
{
	struct setting s = {.t = t, .fd = fd, .is_path = is_path, .e = e, .not_set = not_set, .ctx = ctx};
	(void)snprintf(s.proc, sizeof(s.proc), "/proc/self/fd/%d", fd);
	if (fstat(fd, &s.now) != 0) /* nothing is known: set everything */
		s.now = (struct stat){.st_uid = ~e->uid, .st_gid = ~e->gid};
	bool owned = set_owner(&s);
	if (e->xattrs_n > 0 || atomic_load(&t->inherits))
		set_xattrs(&s);
	set_mode(&s, owned);
	set_time(&s);
}
