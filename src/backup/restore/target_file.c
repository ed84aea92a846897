/* SPDX-License-Identifier: Apache-2.0 */
/* Regular files: written under a temporary name, renamed when they are whole, or in the stage (T2); and what stands in
 * their place. */
#include "backup/restore/target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

/* A file system that keeps whole seconds gives them back without a rest. */
static bool same_time(const struct stat *st, struct timespec mtime)
{
	return st->st_mtim.tv_sec == mtime.tv_sec && (st->st_mtim.tv_nsec == mtime.tv_nsec || st->st_mtim.tv_nsec == 0);
}

static bool same_link(const struct bk_folder *f, const char *name, const struct bk_entry *e)
{
	char target[4096];
	ssize_t n = readlinkat(f->fd, name, target, sizeof(target));
	return n >= 0 && (size_t)n == e->target_len && memcmp(target, e->target, (size_t)n) == 0;
}

static bool is_same(const struct bk_folder *f, const char *name, const struct bk_entry *e, const struct stat *st)
{
	switch (e->type) {
	case SL_BACKUP_FILE:
		return S_ISREG(st->st_mode) && (uint64_t)st->st_size == e->size && same_time(st, e->mtime) &&
		       !f->target->unsure;
	case SL_BACKUP_SYMLINK:
		return S_ISLNK(st->st_mode) && same_link(f, name, e);
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

int sl__bk_target_look(struct bk_folder *f, const char *name, const struct bk_entry *e, enum bk_there *out,
		       struct sl_err *err)
{
	struct stat st;
	if (fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		if (errno != ENOENT)
			return sl_err_set_errno(err, errno, "look at %.150s", e->path);
		*out = BK_THERE_NOT;
		return 0;
	}
	if (S_ISDIR(st.st_mode)) {
		(void)sl_err_set(err, SL_EEXIST,
				 "%.150s: a folder is where a file should be; remove it or choose another target",
				 e->path);
		if (err != NULL)
			err->sys_errno = EISDIR; /* to overwrite does not help */
		return SL_EEXIST;
	}
	/* After a crash of the machine, what this snapshot's restore has left is not to be told from what is whole. */
	bool left = f->target->unsure && S_ISREG(st.st_mode) && same_time(&st, e->mtime);
	if (is_same(f, name, e, &st))
		*out = BK_THERE_SAME;
	else if (f->target->overwrite || left)
		*out = BK_THERE_REPLACE;
	else
		return sl_err_set(err, SL_EEXIST,
				  "%.150s is there already and is not the snapshot's; ask to overwrite, or choose "
				  "another target",
				  e->path);
	return 0;
}

/* On file systems without RENAME_NOREPLACE what stands there is seen, unless it comes in this very moment. */
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

int sl__bk_target_publish(struct bk_folder *f, const char *temp, const struct bk_entry *e, const char *name,
			  enum bk_there there, struct sl_err *err)
{
	int rc = there == BK_THERE_NOT ? sl__bk_rename_new(f->fd, temp, f->fd, name)
				       : renameat(f->fd, temp, f->fd, name);
	if (rc == 0)
		return 0;
	int why = errno;
	(void)unlinkat(f->fd, temp, 0);
	if (why == EEXIST)
		return sl_err_set(err, SL_EEXIST, "%.150s appeared while it was restored", e->path);
	return sl_err_set_errno(err, why, "rename %.150s to its name", e->path);
}

/* Under which it is written. */
static const char *name_of(const struct bk_file *file)
{
	return file->folder->target->staged ? file->name : file->temp;
}

int sl__bk_file_begin(struct bk_file *file, struct bk_folder *folder, int lane, const struct bk_entry *e,
		      const char *name, struct sl_err *err)
{
	file->folder = folder;
	file->name = name;
	if (!folder->target->staged)
		sl__bk_temp_name(folder->target, lane, file->temp);
	/* With its own mode when it has its owner from the beginning: mostly nothing is left to be set then. */
	const struct bk_target *t = folder->target;
	mode_t mode = t->uid == e->uid && t->gid == e->gid ? e->mode & 0777 : 0600;
	file->fd = openat(folder->fd, name_of(file), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (file->fd < 0)
		return sl_err_set_errno(err, errno, "make %.150s", e->path);
	return 0;
}

int sl__bk_file_write(struct bk_file *file, const struct bk_entry *e, const void *bytes, size_t len, uint64_t offset,
		      struct sl_err *err)
{
	const uint8_t *p = bytes;
	while (len > 0) {
		struct iovec v = {.iov_base = (void *)(uintptr_t)p, .iov_len = len};
		ssize_t n = pwritev(file->fd, &v, 1, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return sl_err_set_errno(err, n < 0 ? errno : EIO, "write %.150s", e->path);
		p += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int sl__bk_file_keep(struct bk_file *file, const struct bk_entry *e, enum bk_there there, bk_not_set_fn *not_set,
		     void *ctx, struct sl_err *err)
{
	struct bk_folder *f = file->folder;
	if ((e->flags & BK_ENTRY_SPARSE) != 0 && ftruncate(file->fd, (off_t)e->size) != 0) {
		int why = errno;
		sl__bk_file_drop(file);
		if (why == EFBIG || why == EINVAL)
			return sl_err_set(err, SL_ETOOBIG, "%.150s: %llu bytes are more than this file system takes",
					  e->path, (unsigned long long)e->size);
		return sl_err_set_errno(err, why, "give %.150s its length of %llu bytes", e->path,
					(unsigned long long)e->size);
	}
	sl__bk_target_attributes(f->target, file->fd, false, e, not_set, ctx);
	int closed = close(file->fd);
	file->fd = -1;
	if (closed != 0 && errno != EINTR) {
		int why = errno;
		(void)unlinkat(f->fd, name_of(file), 0);
		return sl_err_set_errno(err, why, "close %.150s", e->path);
	}
	return f->target->staged ? 0 : sl__bk_target_publish(f, file->temp, e, file->name, there, err);
}

void sl__bk_file_drop(struct bk_file *file)
{
	if (file->fd < 0)
		return;
	(void)close(file->fd);
	file->fd = -1;
	(void)unlinkat(file->folder->fd, name_of(file), 0);
}
