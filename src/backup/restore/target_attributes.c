/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attributes of a restored file, in the one order that works: the owner first (changing it removes set-id bits and
 * capabilities), extended attributes while this user may still write (access lists change the mode), the mode, the
 * time. What is right already is not set again, because each is a change on disk.
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
struct attribute_setting {
	struct bk_target *t;
	int fd;
	bool is_path;  /* calls that need an open file go through proc */
	char proc[32]; /* "/proc/self/fd/7" */
	const struct bk_entry *e;
};

static void report_not_set(const struct attribute_setting *s, int why, const char *what)
{
	struct sl_err err = SL_ERR_INIT;
	(void)sl_err_set_errno(&err, why, "set %.60s of %.150s", what, s->e->path);
	if (s->t->not_set != NULL)
		s->t->not_set(s->e, &err, s->t->not_set_ctx);
}

static bool starts_with(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

static void set_xattrs(const struct attribute_setting *s)
{
	bool access = false, by_default = false, stripped = false;
	for (size_t i = 0; i < s->e->xattrs_n; i++) {
		const struct bk_xattr *x = &s->e->xattrs[i];
		char what[80];
		if (starts_with(x->name, "security.") || starts_with(x->name, "trusted.")) {
			bool set = strcmp(x->name, "security.capability") == 0 ? s->t->capability : s->t->security;
			stripped |= !set;
			if (!set)
				continue;
		}
		access |= strcmp(x->name, ACL_ACCESS) == 0;
		by_default |= strcmp(x->name, ACL_DEFAULT) == 0;
		if ((s->is_path ? setxattr(s->proc, x->name, x->value, x->len, 0)
				: fsetxattr(s->fd, x->name, x->value, x->len, 0)) == 0)
			continue;
		int why = errno;
		(void)snprintf(what, sizeof(what), "the attribute %.50s", x->name);
		report_not_set(s, why, what);
	}
	if (stripped)
		atomic_fetch_add(&s->t->security_stripped, 1);
	/* Remove access lists that the folder has passed on and the snapshot does not have. */
	if (!atomic_load(&s->t->inherits))
		return;
	if (!access && s->e->type != SL_BACKUP_SYMLINK)
		(void)(s->is_path ? removexattr(s->proc, ACL_ACCESS) : fremovexattr(s->fd, ACL_ACCESS));
	if (!by_default && s->e->type == SL_BACKUP_DIR)
		(void)(s->is_path ? removexattr(s->proc, ACL_DEFAULT) : fremovexattr(s->fd, ACL_DEFAULT));
}

void sl__bk_target_attributes(struct bk_target *t, int fd, bool is_path, const struct bk_entry *e)
{
	struct attribute_setting s = {.t = t, .fd = fd, .is_path = is_path, .e = e};
	struct stat now;
	(void)snprintf(s.proc, sizeof(s.proc), "/proc/self/fd/%d", fd);
	if (fstat(fd, &now) != 0) /* nothing is known: set everything */
		now = (struct stat){.st_uid = ~e->uid, .st_gid = ~e->gid};

	bool had_owner = now.st_uid == e->uid && now.st_gid == e->gid, owned = had_owner;
	if (!owned && t->owner) {
		owned = fchownat(fd, "", e->uid, e->gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) == 0;
		if (!owned)
			report_not_set(&s, errno, "the owner");
	}

	if (e->xattrs_n > 0 || atomic_load(&t->inherits))
		set_xattrs(&s);

	/* Set-id bits only for the owner that the snapshot names. */
	mode_t mode = e->mode & 07777;
	bool is_link = e->type == SL_BACKUP_SYMLINK;
	if (!is_link && (mode & (S_ISUID | S_ISGID)) != 0 && (!t->set_id || !owned)) {
		mode &= (mode_t) ~(S_ISUID | S_ISGID);
		atomic_fetch_add(&t->set_id_stripped, 1);
	}
	/* An access list changes the mode, and changing the owner removes bits of it. */
	bool is_set = (now.st_mode & 07777) == mode && had_owner && e->xattrs_n == 0 && !atomic_load(&t->inherits);
	if (!is_link && !is_set && (is_path ? chmod(s.proc, mode) : fchmod(fd, mode)) != 0)
		report_not_set(&s, errno, "the mode");

	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, e->mtime};
	if ((is_path ? utimensat(fd, "", times, AT_EMPTY_PATH) : futimens(fd, times)) != 0)
		report_not_set(&s, errno, "the time");
}
