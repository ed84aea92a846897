/* SPDX-License-Identifier: Apache-2.0 */
/* Symbolic links, fifos, devices and further names of files: made under a temporary name, then renamed, or in the stage
 * (T2). */
#include "backup/restore/target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK_LANE 99 /* hard links are made by one thread, when the lanes have ended */

static mode_t kind_of(enum sl_backup_type type)
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

static int make_node(const struct bk_folder *f, const char *temp, const struct bk_entry *e)
{
	if (e->type == SL_BACKUP_SYMLINK)
		return symlinkat(e->target, f->fd, temp);
	return mknodat(f->fd, temp, kind_of(e->type) | 0600, e->type == SL_BACKUP_FIFO ? 0 : (dev_t)e->rdev);
}

/* It is opened by name, so it is looked at first: somebody else may write to a folder that was there before. */
static int open_node(const struct bk_folder *f, const char *temp, const struct bk_entry *e, struct sl_err *err)
{
	struct stat st;
	int fd = openat(f->fd, temp, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0) {
		int why = errno;
		if (fd >= 0)
			(void)close(fd);
		return sl_err_set_errno(err, why, "open %.150s", e->path);
	}
	if ((st.st_mode & S_IFMT) == kind_of(e->type) && st.st_nlink == 1 && st.st_uid == f->target->uid)
		return fd;
	(void)close(fd);
	return sl_err_set(err, SL_EDATA, "%.150s was exchanged while it was restored", e->path);
}

int sl__bk_target_node(struct bk_folder *folder, int lane, const struct bk_entry *e, const char *name,
		       enum bk_there there, bk_not_set_fn *not_set, void *ctx, struct sl_err *err)
{
	char temp[BK_TEMP_BYTES];
	bool staged = folder->target->staged;
	const char *made = staged ? name : temp;
	sl__bk_temp_name(folder->target, lane, temp);
	if (make_node(folder, made, e) != 0)
		return sl_err_set_errno(err, errno, "make %.150s", e->path);
	int fd = open_node(folder, made, e, err);
	if (fd < 0) {
		(void)unlinkat(folder->fd, made, 0);
		return fd;
	}
	sl__bk_target_attributes(folder->target, fd, true, e, not_set, ctx);
	(void)close(fd);
	return staged ? 0 : sl__bk_target_publish(folder, temp, e, name, there, err);
}

/* What stands where the link belongs. */
static int look_at_name(struct bk_folder *to, const struct bk_entry *e, const char *name, const struct stat *file,
			enum bk_there *there, struct sl_err *err)
{
	struct stat st;
	*there = BK_THERE_NOT;
	if (fstatat(to->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? 0 : sl_err_set_errno(err, errno, "look at %.150s", e->path);
	bool left = to->target->unsure && S_ISREG(st.st_mode) && st.st_mtim.tv_sec == file->st_mtim.tv_sec;
	/* What an earlier run restored by this name alone, a file of its own, is taken for the snapshot's as any is. */
	bool alone = S_ISREG(st.st_mode) && st.st_size == file->st_size && st.st_mtim.tv_sec == file->st_mtim.tv_sec &&
		     st.st_mtim.tv_nsec == file->st_mtim.tv_nsec;
	if (st.st_dev == file->st_dev && st.st_ino == file->st_ino)
		*there = BK_THERE_SAME;
	else if (!S_ISDIR(st.st_mode) && (to->target->overwrite || left || alone))
		*there = BK_THERE_REPLACE;
	else
		return sl_err_set(err, SL_EEXIST, "%.150s is there already and is not the snapshot's", e->path);
	return 0;
}

int sl__bk_target_link(struct bk_folder *from, const char *from_name, struct bk_folder *to, const struct bk_entry *e,
		       const char *name, bool *linked, struct sl_err *err)
{
	struct stat file;
	enum bk_there there;
	char temp[BK_TEMP_BYTES];
	*linked = false;
	if (fstatat(from->fd, from_name, &file, AT_SYMLINK_NOFOLLOW) != 0)
		return sl_err_set_errno(err, errno, "link %.100s to %.100s", e->path, e->target);
	if (S_ISDIR(file.st_mode))
		return sl_err_set(err, SL_EDATA, "%.100s: is to be linked to the folder %.100s", e->path, e->target);
	int rc = look_at_name(to, e, name, &file, &there, err);
	if (rc != 0 || there == BK_THERE_SAME)
		return rc;
	sl__bk_temp_name(to->target, LINK_LANE, temp);
	if (linkat(from->fd, from_name, to->fd, temp, 0) != 0)
		return sl_err_set_errno(err, errno, "link %.100s to %.100s", e->path, e->target);
	*linked = true;
	return sl__bk_target_publish(to, temp, e, name, there, err);
}
