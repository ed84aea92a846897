/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer over SQLite's "unix" files. The file that "unix" opens is used as it is, followed by its own table of methods:
 *
 *   [ what "unix" keeps | methods: those of "unix" except the ones below | no_shm ]
 *
 *   the database    opened for reading
 *   -journal        never opened. SQLite asks whether it exists. If it does, and no transaction is open, the database is
 *                   in the middle of a change, and SQLite gives up because it may not write
 *   -wal            opened for reading; empty (/dev/null) when it does not exist
 *   -shm            opened for reading when it exists. If it does not, no program has the database open in WAL mode, and
 *                   SQLite gets the error that it gets for a -shm that cannot be relied on. It then builds an index of
 *                   the log in its own memory. The shared lock on the database that it holds keeps the -shm of any
 *                   program that comes later from being removed, so that it shows afterwards whether one came
 *
 * As root, "unix" gives a -shm to the owner of the database whenever it opens one, and it waits for a writer when the
 * file is a pipe. Both are system calls that can be replaced; ours do what the system's do, except in calls from here.
 */
#include "backup/create/source_vfs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backup/create/walk.h"
#include "base/env.h"

struct own {
	sqlite3_io_methods methods;
	const sqlite3_io_methods *below;
	const char *name; /* SQLite's, valid as long as the file is open */
	bool no_shm;      /* none existed when it was needed */
};

static sqlite3_vfs source;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local bool in_source;

static sqlite3_vfs *base_vfs(void)
{
	return source.pAppData;
}

static struct own *own_of(sqlite3_file *f)
{
	return (struct own *)((char *)f + ((base_vfs()->szOsFile + 15) & ~15));
}

/* ---- system calls ---- */

static int open_source_file(const char *path, int flags, int mode)
{
	if (!in_source)
		return openat(AT_FDCWD, path, flags, mode);
	flags |= O_NONBLOCK | O_NOCTTY;
	int fd = openat(AT_FDCWD, path, flags | O_NOATIME, mode); /* allowed only for the owner */
	return fd >= 0 || errno != EPERM ? fd : openat(AT_FDCWD, path, flags, mode);
}

static int keep_owner(int fd, uid_t uid, gid_t gid)
{
	return in_source ? 0 : fchown(fd, uid, gid);
}

/* ---- files next to a database ---- */

static bool is_regular(const char *path)
{
	struct stat st;
	return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool ends_with(const char *name, const char *end)
{
	size_t n = strlen(name), k = strlen(end);
	return n > k && memcmp(name + n - k, end, k) == 0;
}

/* The first bytes of a -journal or -wal, which are never locked: 1 to 8 of them, 0 for an empty file, or a negative
 * errno. */
static int first_bytes(const char *path, uint8_t out[8])
{
	int fd SL_CLEANUP(sl__bk_tree_close) = sl__bk_tree_open_in(AT_FDCWD, path, O_RDONLY, (uid_t)-1);
	return fd < 0 ? fd : (int)sl__io_real.pread(fd, out, 8, 0, NULL);
}

/* Does it hold changes? Only these exist for SQLite. One that cannot be read counts as one. */
static bool holds_changes(const char *path)
{
	static const uint8_t journal[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
	static const uint8_t log[4] = {0x37, 0x7f, 0x06, 0x82}; /* the last bit: the order of bytes in checksums */
	uint8_t head[8] = {0};
	if (!is_regular(path))
		return false;
	int n = first_bytes(path, head);
	if (n < 0)
		return n != -ENOENT && n != -ELOOP;
	if (ends_with(path, "-journal"))
		return n == 8 && memcmp(head, journal, 8) == 0;
	head[3] &= 0xfe;
	return n >= 4 && memcmp(head, log, 4) == 0;
}

bool sl__bk_is_journal(int dir, const char *name)
{
	char path[BK_SOURCE_NAME_BYTES];
	struct stat st;
	sl__bk_source_name(path, dir, name);
	if (lstat(path, &st) != 0)
		return errno == ENOENT;
	if (!S_ISREG(st.st_mode))
		return false;
	/* Not opened: closing it would release the locks that this process may have on it. */
	if (ends_with(name, "-shm"))
		return st.st_size > 0 && st.st_size % 32768 == 0;
	if (holds_changes(path))
		return true;
	/* As it is between transactions: empty, its beginning zeroed, or removed since it was listed. */
	static const uint8_t zeros[8];
	uint8_t head[8];
	int n = first_bytes(path, head);
	return n == -ENOENT || n == 0 || (n == 8 && memcmp(head, zeros, 8) == 0);
}

/* ---- files ---- */

static bool shm_exists(const struct own *o)
{
	char path[BK_SOURCE_NAME_BYTES + 8];
	(void)snprintf(path, sizeof(path), "%s-shm", o->name);
	return is_regular(path);
}

static int shm_map(sqlite3_file *f, int region, int bytes, int extend, void volatile **out)
{
	struct own *o = own_of(f);
	if (!o->no_shm && region == 0)
		o->no_shm = !shm_exists(o);
	*out = NULL;
	if (o->no_shm)
		return SQLITE_READONLY_CANTINIT;
	in_source = true;
	int rc = o->below->xShmMap(f, region, bytes, extend, out);
	in_source = false;
	return rc;
}

static int shm_lock(sqlite3_file *f, int offset, int n, int flags)
{
	struct own *o = own_of(f);
	return o->no_shm ? SQLITE_OK : o->below->xShmLock(f, offset, n, flags);
}

static int shm_unmap(sqlite3_file *f, SL_UNUSED int remove)
{
	return own_of(f)->below->xShmUnmap(f, 0);
}

static int no_write(SL_UNUSED sqlite3_file *f, SL_UNUSED const void *bytes, SL_UNUSED int n,
		    SL_UNUSED sqlite3_int64 offset)
{
	return SQLITE_READONLY;
}

static int no_truncate(SL_UNUSED sqlite3_file *f, SL_UNUSED sqlite3_int64 size)
{
	return SQLITE_READONLY;
}

static int source_open(SL_UNUSED sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out)
{
	bool log = (flags & SQLITE_OPEN_WAL) != 0;
	f->pMethods = NULL;
	if (name == NULL || (!log && ((flags & SQLITE_OPEN_MAIN_DB) == 0 || !is_regular(name))))
		return SQLITE_CANTOPEN;
	const char *path = log && !is_regular(name) ? "/dev/null" : name;
	flags &= ~(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_EXCLUSIVE | SQLITE_OPEN_DELETEONCLOSE);
	in_source = true;
	int rc = base_vfs()->xOpen(base_vfs(), path, f, flags | SQLITE_OPEN_READONLY, out);
	in_source = false;
	if (rc != SQLITE_OK || f->pMethods == NULL)
		return rc;
	struct own *o = own_of(f);
	*o = (struct own){.methods = *f->pMethods, .below = f->pMethods, .name = name};
	o->methods.xWrite = no_write;
	o->methods.xTruncate = no_truncate;
	o->methods.xShmMap = shm_map;
	o->methods.xShmLock = shm_lock;
	o->methods.xShmUnmap = shm_unmap;
	f->pMethods = &o->methods;
	if (out != NULL)
		*out = (*out & ~SQLITE_OPEN_READWRITE) | SQLITE_OPEN_READONLY;
	return rc;
}

static int source_delete(SL_UNUSED sqlite3_vfs *vfs, SL_UNUSED const char *name, SL_UNUSED int sync)
{
	return SQLITE_IOERR_DELETE;
}

static int source_access(SL_UNUSED sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
	*out = flags == SQLITE_ACCESS_EXISTS && holds_changes(name);
	return SQLITE_OK;
}

/* Names are complete, and must not be resolved: they begin with a link to a folder. */
static int source_full(SL_UNUSED sqlite3_vfs *vfs, const char *name, int n, char *out)
{
	return snprintf(out, (size_t)n, "%s", name) < n ? SQLITE_OK : SQLITE_CANTOPEN;
}

/* ---- the layer ---- */

static void register_source_vfs(void)
{
	sqlite3_vfs *unix_files = sqlite3_vfs_find("unix");
	if (unix_files == NULL || unix_files->iVersion < 3 || unix_files->xSetSystemCall == NULL)
		return;
	if (unix_files->xSetSystemCall(unix_files, "open", (sqlite3_syscall_ptr)open_source_file) != SQLITE_OK ||
	    unix_files->xSetSystemCall(unix_files, "fchown", (sqlite3_syscall_ptr)keep_owner) != SQLITE_OK)
		return;
	source = *unix_files;
	source.pNext = NULL;
	source.zName = "sluice-source";
	source.pAppData = unix_files;
	source.szOsFile = ((unix_files->szOsFile + 15) & ~15) + (int)sizeof(struct own);
	source.xOpen = source_open;
	source.xDelete = source_delete;
	source.xAccess = source_access;
	source.xFullPathname = source_full;
	if (sqlite3_vfs_register(&source, 0) != SQLITE_OK)
		source.zName = NULL;
}

sqlite3_vfs *sl__bk_source_vfs(void)
{
	(void)sqlite3_initialize();
	(void)pthread_once(&once, register_source_vfs);
	return source.zName != NULL ? &source : NULL;
}

void sl__bk_source_name(char out[BK_SOURCE_NAME_BYTES], int dir, const char *name)
{
	(void)snprintf(out, BK_SOURCE_NAME_BYTES, "/proc/self/fd/%d/%s", dir, name);
}

bool sl__bk_source_disturbed(sqlite3 *db)
{
	sqlite3_file *f = NULL;
	if (sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &f) != SQLITE_OK || f == NULL ||
	    f->pMethods == NULL)
		return true;
	return own_of(f)->no_shm && shm_exists(own_of(f));
}
