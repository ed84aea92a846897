/* SPDX-License-Identifier: Apache-2.0 */
/* Folders below the target: opened, created, and cleared of what an interrupted run has left (T1, T3). */
#include "backup/restore/target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PIECE 4000u /* bytes of a path per system call; the kernel accepts up to 4,095 */

void sl__bk_folder_init(struct bk_folder *f, struct bk_target *t)
{
	*f = (struct bk_folder){.target = t, .fd = -1};
	sl__buf_init(&f->path, t->env);
}

void sl__bk_folder_fini(struct bk_folder *f)
{
	if (f->target == NULL)
		return;
	if (f->fd >= 0)
		(void)close(f->fd);
	f->fd = -1;
	sl__buf_fini(&f->path);
}

static int folder_error(const char *path, size_t len, int why, struct sl_err *err)
{
	int shown = (int)SL_MIN(len, 150u);
	if (why == ELOOP || why == EXDEV)
		return sl_err_set(err, SL_EDATA,
				  "%.*s: a symbolic link is in the way; remove it or choose another target", shown,
				  path);
	if (why == ENOTDIR)
		return sl_err_set(err, SL_EDATA, "%.*s: a file is where a folder should be", shown, path);
	return sl_err_set_errno(err, why, "open the folder %.*s", shown, path);
}

/* Paths longer than the kernel accepts are opened in pieces, each beneath the last. */
int sl__bk_open_path(const struct bk_target *t, const char *path, size_t len, uint64_t flags)
{
	char piece[PIECE + 1];
	int at = t->base;
	for (;;) {
		/* Up to a slash, or all of it. 0: a component is longer than any name. */
		size_t n = SL_MIN(len, (size_t)PIECE);
		while (n > 0 && n < len && path[n] != '/')
			n--;
		bool last = n == len;
		if (n == 0)
			errno = ENAMETOOLONG;
		memcpy(piece, path, n);
		piece[n] = '\0';
		int fd = n == 0 ? -1 : sl__bk_open_beneath(at, piece, (last ? flags : O_PATH) | O_DIRECTORY);
		int why = errno;
		if (at != t->base)
			(void)close(at);
		errno = why;
		if (fd < 0 || last)
			return fd;
		at = fd;
		path += n + 1;
		len -= n + 1;
	}
}

int sl__bk_folder_enter(struct bk_folder *f, const char *path, size_t len, struct sl_err *err)
{
	struct bk_target *t = f->target;
	if (f->fd >= 0 && f->path.len == len && memcmp(sl__buf_str(&f->path), path, len) == 0)
		return 0;
	int rc = len > 0 ? sl__bk_target_path_check(path, len, err) : 0;
	if (rc != 0)
		return rc;
	if (f->fd >= 0)
		(void)close(f->fd);
	f->fd = -1;
	sl__buf_clear(&f->path);
	if (sl__buf_append(&f->path, path, len) != 0)
		return sl__no_memory(err, "open a folder");
	int fd = len > 0 ? sl__bk_open_path(t, path, len, O_RDONLY)
			 : openat(t->base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	f->is_path = fd < 0 && errno == EACCES && len > 0;
	if (f->is_path)
		fd = sl__bk_open_path(t, path, len, O_PATH);
	if (fd < 0)
		return folder_error(path, len, errno, err);
	f->fd = fd;
	return 0;
}

void sl__bk_folder_take_over(struct bk_folder *f)
{
	const struct dirent *d;
	char own[BK_TEMP_BYTES];
	int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	if (dir == NULL) {
		if (fd >= 0)
			(void)close(fd);
		return;
	}
	if (fgetxattr(fd, "system.posix_acl_default", NULL, 0) > 0)
		f->target->inherits = true;
	(void)snprintf(own, sizeof(own), BK_TEMP_PREFIX "%s-", f->target->run);
	while ((d = readdir(dir)) != NULL) {
		if (strncmp(d->d_name, BK_TEMP_PREFIX, strlen(BK_TEMP_PREFIX)) == 0 &&
		    strncmp(d->d_name, own, strlen(own)) != 0)
			(void)unlinkat(f->fd, d->d_name, 0);
	}
	(void)closedir(dir);
}

int sl__bk_folder_make(struct bk_folder *f, const char *path, size_t len, bool *made, struct sl_err *err)
{
	size_t parent = sl__bk_path_parent(path, len), start = parent > 0 ? parent + 1 : 0;
	int shown = (int)SL_MIN(len, 150u);
	char name[256];
	struct stat st;
	*made = false;
	int rc = sl__bk_target_path_check(path, len, err);
	if (rc != 0)
		return rc;
	if (len - start >= sizeof(name))
		return sl_err_set_errno(err, ENAMETOOLONG, "create the folder %.*s", shown, path);
	memcpy(name, path + start, len - start);
	name[len - start] = '\0';
	rc = sl__bk_folder_enter(f, path, parent, err);
	if (rc != 0)
		return rc;

	*made = mkdirat(f->fd, name, 0700) == 0;
	if (*made)
		return 0;
	if (errno != EEXIST)
		return sl_err_set_errno(err, errno, "create the folder %.*s", shown, path);

	/* What exists in its place? */
	if (fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return sl_err_set_errno(err, errno, "stat %.*s", shown, path);
	if (S_ISLNK(st.st_mode))
		return folder_error(path, len, ELOOP, err);
	if (!S_ISDIR(st.st_mode)) {
		if (!f->target->overwrite)
			return sl_err_set(err, SL_EEXIST, "%.*s: a file is where a folder should be", shown, path);
		if (unlinkat(f->fd, name, 0) != 0 || mkdirat(f->fd, name, 0700) != 0)
			return sl_err_set_errno(err, errno, "replace %.*s by a folder", shown, path);
		*made = true;
		return 0;
	}
	/* Make it writable for this user; at the end it gets the mode that the snapshot has. */
	int fd = sl__bk_open_beneath(f->fd, name, O_PATH | O_DIRECTORY);
	if (fd >= 0 && f->target->uid != 0 && fstat(fd, &st) == 0 && st.st_uid == f->target->uid &&
	    (st.st_mode & 0700) != 0700) {
		char proc[64];
		(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
		(void)chmod(proc, (st.st_mode & 07777) | 0700);
	}
	if (fd >= 0)
		(void)close(fd);
	rc = sl__bk_folder_enter(f, path, len, err);
	if (rc == 0)
		sl__bk_folder_take_over(f);
	return rc;
}
