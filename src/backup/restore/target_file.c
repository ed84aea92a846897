/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files, symbolic links, fifos, devices and hard links: written under a temporary name and renamed when they are
 * complete, or written in the stage (T2); what exists in their place; and the attributes of all of them.
 */
#include "backup/restore/target.h"
#include "base/compare.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ACL_ACCESS "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"
#define LINK_LANE 99 /* hard links are created by one thread, when the lanes have ended */

static void temp_name(const struct bk_target *t, int lane, char out[BK_TEMP_BYTES])
{
	(void)snprintf(out, BK_TEMP_BYTES, BK_TEMP_PREFIX "%s-%d", t->run, lane);
}

/* ---- attributes ---- */

/* In the one order that works: the owner first (changing it removes set-id bits and capabilities), extended attributes
 * while this user may still write (access lists change the mode), the mode, the time. What is right already is not set
 * again, because each is a change on disk. */

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

static void set_xattrs(const struct attribute_setting *s)
{
	bool access = false, by_default = false, stripped = false;
	for (size_t i = 0; i < s->e->n_xattrs; i++) {
		const struct bk_xattr *x = &s->e->xattrs[i];
		char what[80];
		if (sl__starts_with(x->name, "security.") || sl__starts_with(x->name, "trusted.")) {
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

	if (e->n_xattrs > 0 || atomic_load(&t->inherits))
		set_xattrs(&s);

	/* Set-id bits only for the owner that the snapshot names. */
	mode_t mode = e->mode & 07777;
	bool is_link = e->type == SL_BACKUP_SYMLINK;
	if (!is_link && (mode & (S_ISUID | S_ISGID)) != 0 && (!t->set_id || !owned)) {
		mode &= (mode_t) ~(S_ISUID | S_ISGID);
		atomic_fetch_add(&t->set_id_stripped, 1);
	}
	/* An access list changes the mode, and changing the owner removes bits of it. */
	bool is_set = (now.st_mode & 07777) == mode && had_owner && e->n_xattrs == 0 && !atomic_load(&t->inherits);
	if (!is_link && !is_set && (is_path ? chmod(s.proc, mode) : fchmod(fd, mode)) != 0)
		report_not_set(&s, errno, "the mode");

	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, e->mtime};
	if ((is_path ? utimensat(fd, "", times, AT_EMPTY_PATH) : futimens(fd, times)) != 0)
		report_not_set(&s, errno, "the time");
}

/* ---- what is in an entry's place ---- */

/* A file system that keeps whole seconds returns them without a fraction. */
static bool same_time(const struct stat *st, struct timespec mtime)
{
	return st->st_mtim.tv_sec == mtime.tv_sec && (st->st_mtim.tv_nsec == mtime.tv_nsec || st->st_mtim.tv_nsec == 0);
}

static bool is_the_entry(const struct bk_placing *p, const struct stat *st)
{
	const struct bk_entry *e = p->e;
	char target[4096];
	ssize_t n;
	switch (e->type) {
	case SL_BACKUP_FILE:
		return S_ISREG(st->st_mode) && (uint64_t)st->st_size == e->size && same_time(st, e->mtime) &&
		       !p->folder->target->unsure;
	case SL_BACKUP_SYMLINK:
		if (!S_ISLNK(st->st_mode))
			return false;
		n = readlinkat(p->folder->fd, p->name, target, sizeof(target));
		return n >= 0 && (size_t)n == e->target_len && memcmp(target, e->target, (size_t)n) == 0;
	case SL_BACKUP_FIFO:
		return S_ISFIFO(st->st_mode);
	case SL_BACKUP_CHAR:
		return S_ISCHR(st->st_mode) && st->st_rdev == e->rdev;
	case SL_BACKUP_BLOCK:
		return S_ISBLK(st->st_mode) && st->st_rdev == e->rdev;
	default:
		return false;
	}
}

int sl__bk_target_find(struct bk_placing *p, struct sl_err *err)
{
	const struct bk_target *t = p->folder->target;
	struct stat st;
	p->there = BK_THERE_NOT;
	if (fstatat(p->folder->fd, p->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? 0 : sl_err_set_errno(err, errno, "stat %.150s", p->e->path);
	if (S_ISDIR(st.st_mode)) {
		(void)sl_err_set(err, SL_EEXIST,
				 "%.150s: a folder is where a file should be; remove it or choose another target",
				 p->e->path);
		if (err != NULL)
			err->sys_errno = EISDIR; /* overwriting does not help */
		return SL_EEXIST;
	}
	/* After a crash of the machine, an incomplete file of an earlier restore looks like a complete one. */
	bool incomplete = t->unsure && S_ISREG(st.st_mode) && same_time(&st, p->e->mtime);
	if (is_the_entry(p, &st))
		p->there = BK_THERE_SAME;
	else if (t->overwrite || incomplete)
		p->there = BK_THERE_REPLACE;
	else
		return sl_err_set(err, SL_EEXIST,
				  "%.150s exists and is not the snapshot's; ask to overwrite, or choose another target",
				  p->e->path);
	return 0;
}

/* ---- rename ---- */

/* On file systems without RENAME_NOREPLACE an existing file is noticed, unless it is created at this very moment. */
int sl__bk_rename_new(int from, const char *name, int to, const char *new_name)
{
	struct stat st;
	if (renameat2(from, name, to, new_name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL)
		return -1;
	if (fstatat(to, new_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? renameat(from, name, to, new_name) : -1;
	errno = EEXIST;
	return -1;
}

/* Give temp its name, in one step. */
static int rename_to_place(const struct bk_placing *p, const char *temp, struct sl_err *err)
{
	int fd = p->folder->fd;
	int rc = p->there == BK_THERE_NOT ? sl__bk_rename_new(fd, temp, fd, p->name) : renameat(fd, temp, fd, p->name);
	if (rc == 0)
		return 0;
	int why = errno;
	(void)unlinkat(fd, temp, 0);
	if (why == EEXIST)
		return sl_err_set(err, SL_EEXIST, "%.150s appeared while it was restored", p->e->path);
	return sl_err_set_errno(err, why, "rename %.150s to its name", p->e->path);
}

/* ---- regular files ---- */

/* The name under which it is written. */
static const char *written_name(const struct bk_file *file)
{
	return file->p->folder->target->staged ? file->p->name : file->temp;
}

int sl__bk_file_begin(struct bk_file *file, const struct bk_placing *p, struct sl_err *err)
{
	const struct bk_target *t = p->folder->target;
	const struct bk_entry *e = p->e;
	file->p = p;
	if (!t->staged)
		temp_name(t, p->lane, file->temp);
	/* With its own mode when it has its owner from the beginning: then usually nothing is left to be set. */
	mode_t mode = t->uid == e->uid && t->gid == e->gid ? e->mode & 0777 : 0600;
	file->fd =
		openat(p->folder->fd, written_name(file), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	return file->fd >= 0 ? 0 : sl_err_set_errno(err, errno, "create %.150s", e->path);
}

int sl__bk_file_write(struct bk_file *file, const void *bytes, size_t len, uint64_t offset, struct sl_err *err)
{
	const uint8_t *at = bytes;
	while (len > 0) {
		struct iovec v = {.iov_base = (void *)(uintptr_t)at, .iov_len = len};
		ssize_t n = pwritev(file->fd, &v, 1, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return sl_err_set_errno(err, n < 0 ? errno : EIO, "write %.150s", file->p->e->path);
		at += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int sl__bk_file_keep(struct bk_file *file, struct sl_err *err)
{
	struct bk_folder *f = file->p->folder;
	const struct bk_entry *e = file->p->e;
	if ((e->flags & BK_ENTRY_SPARSE) != 0 && ftruncate(file->fd, (off_t)e->size) != 0) {
		int why = errno;
		sl__bk_file_drop(file);
		if (why == EFBIG || why == EINVAL)
			return sl_err_set(err, SL_ETOOBIG, "%.150s: %llu bytes are more than this file system allows",
					  e->path, (unsigned long long)e->size);
		return sl_err_set_errno(err, why, "set the length of %.150s to %llu bytes", e->path,
					(unsigned long long)e->size);
	}
	sl__bk_target_attributes(f->target, file->fd, false, e);
	int closed = close(file->fd);
	file->fd = -1;
	if (closed != 0 && errno != EINTR) {
		int why = errno;
		(void)unlinkat(f->fd, written_name(file), 0);
		return sl_err_set_errno(err, why, "close %.150s", e->path);
	}
	return f->target->staged ? 0 : rename_to_place(file->p, file->temp, err);
}

void sl__bk_file_drop(struct bk_file *file)
{
	if (file->fd < 0)
		return;
	(void)close(file->fd);
	file->fd = -1;
	(void)unlinkat(file->p->folder->fd, written_name(file), 0);
}

/* ---- symbolic links, fifos, devices ---- */

static mode_t mode_of_type(enum sl_backup_type type)
{
	switch (type) {
	case SL_BACKUP_SYMLINK:
		return S_IFLNK;
	case SL_BACKUP_FIFO:
		return S_IFIFO;
	case SL_BACKUP_CHAR:
		return S_IFCHR;
	case SL_BACKUP_BLOCK:
		return S_IFBLK;
	default:
		return 0;
	}
}

int sl__bk_target_node(const struct bk_placing *p, struct sl_err *err)
{
	struct bk_target *t = p->folder->target;
	const struct bk_entry *e = p->e;
	char temp[BK_TEMP_BYTES];
	temp_name(t, p->lane, temp);
	const char *name = t->staged ? p->name : temp;
	int rc = e->type == SL_BACKUP_SYMLINK ? symlinkat(e->target, p->folder->fd, name)
					      : mknodat(p->folder->fd, name, mode_of_type(e->type) | 0600,
							e->type == SL_BACKUP_FIFO ? 0 : (dev_t)e->rdev);
	if (rc != 0)
		return sl_err_set_errno(err, errno, "create %.150s", e->path);

	/* It is opened by name, so it is checked: another user may write to a folder that existed before. */
	struct stat st;
	int fd = openat(p->folder->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0)
		rc = sl_err_set_errno(err, errno, "open %.150s", e->path);
	else if ((st.st_mode & S_IFMT) != mode_of_type(e->type) || st.st_nlink != 1 || st.st_uid != t->uid)
		rc = sl_err_set(err, SL_EDATA, "%.150s was exchanged while it was restored", e->path);
	if (rc != 0) {
		if (fd >= 0)
			(void)close(fd);
		(void)unlinkat(p->folder->fd, name, 0);
		return rc;
	}
	sl__bk_target_attributes(t, fd, true, e);
	(void)close(fd);
	return t->staged ? 0 : rename_to_place(p, temp, err);
}

/* ---- hard links ---- */

int sl__bk_target_link(struct bk_folder *from, const char *from_name, struct bk_placing *p, bool *linked,
		       struct sl_err *err)
{
	const struct bk_entry *e = p->e;
	const struct bk_target *t = p->folder->target;
	struct stat file, st;
	char temp[BK_TEMP_BYTES];
	*linked = false;
	if (fstatat(from->fd, from_name, &file, AT_SYMLINK_NOFOLLOW) != 0)
		return sl_err_set_errno(err, errno, "link %.100s to %.100s", e->path, e->target);
	if (S_ISDIR(file.st_mode))
		return sl_err_set(err, SL_EDATA, "cannot link %.100s to the folder %.100s", e->path, e->target);

	/* What is in its place? */
	p->there = BK_THERE_NOT;
	if (fstatat(p->folder->fd, p->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		bool same_second = S_ISREG(st.st_mode) && st.st_mtim.tv_sec == file.st_mtim.tv_sec;
		/* A separate file that an earlier run restored under this name alone counts as the snapshot's. */
		bool alone = same_second && st.st_size == file.st_size && st.st_mtim.tv_nsec == file.st_mtim.tv_nsec;
		if (st.st_dev == file.st_dev && st.st_ino == file.st_ino)
			return 0;
		if (S_ISDIR(st.st_mode) || !(t->overwrite || (t->unsure && same_second) || alone))
			return sl_err_set(err, SL_EEXIST, "%.150s exists and is not the snapshot's", e->path);
		p->there = BK_THERE_REPLACE;
	} else if (errno != ENOENT) {
		return sl_err_set_errno(err, errno, "stat %.150s", e->path);
	}
	temp_name(t, LINK_LANE, temp);
	if (linkat(from->fd, from_name, p->folder->fd, temp, 0) != 0)
		return sl_err_set_errno(err, errno, "link %.100s to %.100s", e->path, e->target);
	*linked = true;
	return rename_to_place(p, temp, err);
}
