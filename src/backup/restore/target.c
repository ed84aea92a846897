/* SPDX-License-Identifier: Apache-2.0 */
/* The target folder itself: opened once, locked, marked, made durable at the end (target.h). */
#include "backup/restore/target.h"
#include "backup/restore/entries.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define BK_MARK_CRASHED "crashed"

int sl__bk_open_beneath(int root, const char *path, uint64_t flags)
{
	struct open_how how = {.flags = flags | O_CLOEXEC,
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

int sl__bk_target_path_check(const char *path, size_t len, struct sl_err *err)
{
	if (len == 0 || len > BK_PATH_MAX || memchr(path, '\0', len) != NULL)
		return sl_err_set(err, SL_EDATA, "a name in the snapshot is empty, too long or not text");
	if (!sl__bk_path_is_plain(path, len))
		return sl_err_set(err, SL_EDATA, "%.150s: this name leads out of its folder; it is refused", path);
	return 0;
}

static bool has_capability(unsigned capability)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
	if (syscall(SYS_capget, &head, data) != 0)
		return geteuid() == 0;
	return (data[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability)) != 0;
}

static bool is_on(enum sl_switch s, bool by_default)
{
	return s == SL_DEFAULT ? by_default : s == SL_ON;
}

static int open_root(struct bk_target *t, const char *to, struct sl_err *err)
{
	t->root = openat(AT_FDCWD, to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->root < 0 && errno == ENOENT) {
		/* Create every folder of the path that is missing. */
		char part[4096];
		size_t len = strlen(to);
		if (len >= sizeof(part))
			return sl_err_set(err, SL_EINVAL, "the name of the target folder is longer than %zu bytes",
					  sizeof(part) - 1);
		for (size_t i = 1; i <= len; i++) {
			if (to[i] != '/' && to[i] != '\0')
				continue;
			memcpy(part, to, i);
			part[i] = '\0';
			if (mkdirat(AT_FDCWD, part, 0700) == 0)
				t->made = t->made != 0 ? t->made : i;
			else if (errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == ENOMEM) /* may pass */
				return sl_err_set_errno(err, errno, "create the target folder %.150s", part);
			else if (errno != EEXIST)
				return sl_err_set(err, SL_ECREATE, "cannot create the target folder %.120s: %s", part,
						  strerror(errno));
		}
		t->root = openat(AT_FDCWD, to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (t->root < 0 && errno == ENOTDIR)
		return sl_err_set(err, SL_ECREATE, "cannot create the target folder %.120s: a file is in the way", to);
	if (t->root < 0)
		return sl_err_set_errno(err, errno, "open the target folder %.150s", to);
	int probe = sl__bk_open_beneath(t->root, ".", O_PATH | O_DIRECTORY);
	if (probe < 0 && errno == ENOSYS)
		return sl_err_set(err, SL_EUNSUPPORTED,
				  "restore needs the system call openat2 (Linux 5.6), which this kernel does not have");
	if (probe < 0)
		return sl_err_set_errno(err, errno, "open the target folder %.150s with openat2", to);
	(void)close(probe);
	if (flock(t->root, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
		return sl_err_set(err, SL_ELOCKED, "another restore writes into %.150s; wait for it", to);
	return 0;
}

static bool folder_is_empty(int folder)
{
	const struct dirent *d;
	bool empty = true;
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	if (dir == NULL) {
		if (fd >= 0)
			(void)close(fd);
		return false;
	}
	while (empty && (d = readdir(dir)) != NULL)
		empty = strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0;
	(void)closedir(dir);
	return empty;
}

int sl__bk_target_open(struct bk_target *t, const struct sl_env *env, const struct sl_backup_restore_opts *opts,
		       bool trusted, struct sl_err *err)
{
	struct sl__prng prng;
	*t = (struct bk_target){.env = env,
				.root = -1,
				.base = -1,
				.overwrite = opts->conflict == SL_BACKUP_OVERWRITE,
				.owner = is_on(opts->owner, has_capability(CAP_CHOWN)),
				.set_id = is_on(opts->set_id, trusted),
				.capability = is_on(opts->security, trusted && has_capability(CAP_SETFCAP)),
				.security = is_on(opts->security, trusted && has_capability(CAP_SYS_ADMIN)),
				.devices = is_on(opts->devices, has_capability(CAP_MKNOD)),
				.devices_asked = opts->devices == SL_OFF,
				.uid = geteuid(),
				.gid = getegid()};
	atomic_init(&t->inherits, false);
	atomic_init(&t->set_id_stripped, 0);
	atomic_init(&t->security_stripped, 0);
	sl__prng_init(&prng, env);
	(void)snprintf(t->run, sizeof(t->run), "%08x", (unsigned)(sl__prng_next(&prng) >> 32));
	int rc = open_root(t, opts->to, err);
	if (rc == 0) {
		t->base = t->root;
		rc = sl__bk_stage_recover(t, err);
	}
	if (rc == 0) {
		t->fresh = folder_is_empty(t->root);
		/* T4. A file system without attributes has no mark: there, a resume after a power loss trusts sizes and
		 * times. */
		char boot[64] = "unknown", seen[64];
		int fd = openat(AT_FDCWD, "/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
		ssize_t n = fd >= 0 ? read(fd, boot, sizeof(boot)) : -1;
		if (fd >= 0)
			(void)close(fd);
		size_t len = n > 0 ? (size_t)n : strlen(boot);
		ssize_t old = fgetxattr(t->root, BK_TARGET_MARK, seen, sizeof(seen));
		t->unsure = old >= 0 && ((size_t)old != len || memcmp(seen, boot, len) != 0);
		if (old < 0 || t->unsure)
			(void)fsetxattr(t->root, BK_TARGET_MARK, t->unsure ? BK_MARK_CRASHED : boot,
					t->unsure ? strlen(BK_MARK_CRASHED) : len, 0);
		rc = t->fresh ? sl__bk_stage_begin(t, err) : 0;
	}
	if (rc != 0)
		sl__bk_target_close(t);
	return rc;
}

void sl__bk_target_unmake(const struct bk_target *t, const char *to)
{
	char part[4096];
	size_t n = strlen(to);
	if (t->made == 0 || n >= sizeof(part))
		return;
	memcpy(part, to, n + 1);
	while (n >= t->made && unlinkat(AT_FDCWD, part, AT_REMOVEDIR) == 0) {
		while (n > 0 && part[n - 1] == '/')
			n--;
		while (n > 0 && part[n - 1] != '/')
			n--;
		while (n > 0 && part[n - 1] == '/')
			n--;
		part[n] = '\0';
	}
}

int sl__bk_target_flush(const struct bk_target *t, struct sl_err *err)
{
	if (syncfs(t->root) == 0)
		return 0;
	int why = errno;
	(void)fsetxattr(t->root, BK_TARGET_MARK, BK_MARK_CRASHED, strlen(BK_MARK_CRASHED), 0);
	return sl_err_set_errno(err, why, "sync the target folder");
}

int sl__bk_target_finish(struct bk_target *t, struct sl_err *err)
{
	int rc = sl__bk_target_flush(t, err);
	if (rc != 0)
		return rc;
	(void)fremovexattr(t->root, BK_TARGET_MARK);
	return 0;
}

void sl__bk_target_close(struct bk_target *t)
{
	/* A run that fails leaves what is complete under its names. If that fails too, the next run recovers it. */
	(void)!sl__bk_stage_publish(t, NULL);
	if (t->root >= 0)
		(void)close(t->root);
	t->root = -1;
}
