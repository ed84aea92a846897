/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls on the tree that is backed up. They bypass the environment's table on purpose: that table works with
 * names of files, and a tree that changes during the walk must be held by descriptors.
 */
#include "backup/create/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

int sl__bk_tree_root(void)
{
	int fd = openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd >= 0 ? fd : -errno;
}

void sl__bk_tree_close(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

/* The user that the program was started as, without a system call. A process that has changed its user since then tries
 * O_NOATIME in vain, or changes the time of access. */
static uid_t started_as(void)
{
	return (uid_t)getauxval(AT_EUID);
}

/* A user who is not the owner and has no right to O_NOATIME would get EPERM: then the time of access changes, as with any
 * other reader. */
int sl__bk_tree_open_in(int dir, const char *name, int flags, uid_t owner)
{
	flags |= O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	uid_t me = started_as();
	int fd = -1;
	if ((flags & O_PATH) == 0 && (me == 0 || me == owner))
		fd = openat(dir, name, flags | O_NOATIME);
	if (fd < 0 && ((flags & O_PATH) != 0 || (me != 0 && me != owner) || errno == EPERM))
		fd = openat(dir, name, flags);
	return fd >= 0 ? fd : -errno;
}

/* Without openat2 (an old kernel, a sandbox) a folder that became a link since would be followed; the caller compares
 * device and inode with what the walk saw. */
static int open_beneath(int dir, const char *path, int flags, uid_t owner)
{
	struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY),
			       .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	uid_t me = started_as();
	if ((flags & O_PATH) != 0)
		how.flags &= O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	bool quiet = (flags & O_PATH) == 0 && (me == 0 || me == owner);
	how.flags |= quiet ? O_NOATIME : 0;
	long fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));
	if (fd < 0 && errno == EPERM && quiet) {
		how.flags &= ~(uint64_t)O_NOATIME;
		fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));
	}
	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		return sl__bk_tree_open_in(dir, path, flags, owner);
	return fd >= 0 ? (int)fd : -errno;
}

/* A path that is too long for one call is opened in pieces that end at a slash. */
int sl__bk_tree_open(int root, const char *path, size_t len, int flags, uid_t owner)
{
	char piece[PATH_MAX];
	int dir = root;
	while (len >= sizeof(piece)) {
		const char *slash = memrchr(path, '/', sizeof(piece) - 1);
		if (slash == NULL)
			return -ENAMETOOLONG;
		size_t n = (size_t)(slash - path);
		memcpy(piece, path, n);
		piece[n] = '\0';
		int next = open_beneath(dir, piece, O_PATH | O_DIRECTORY, owner);
		if (dir != root)
			sl__bk_tree_close(&dir);
		if (next < 0)
			return next;
		dir = next;
		path = slash + 1;
		len -= n + 1;
	}
	int fd = open_beneath(dir, path, flags, owner);
	if (dir != root)
		sl__bk_tree_close(&dir);
	return fd;
}

int sl__bk_tree_list(int fd, bk_tree_name_fn *fn, void *ctx)
{
	union {
		struct dirent64 one; /* for its alignment */
		char bytes[32768];
	} buf;
	for (;;) {
		long n = syscall(SYS_getdents64, fd, buf.bytes, sizeof(buf.bytes));
		if (n <= 0)
			return n == 0 ? 0 : -errno;
		for (long at = 0; at < n;) {
			const struct dirent64 *d = (const void *)(buf.bytes + at);
			at += d->d_reclen;
			if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
				continue;
			int rc = fn(d->d_name, ctx);
			if (rc != 0)
				return rc;
		}
	}
}
