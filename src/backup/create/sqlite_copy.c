/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy is made inside one read transaction, in steps, so that it is consistent and can still be cancelled. In WAL
 * mode no writer waits for it; with a rollback journal writers wait until it is done, as they do for any reader. The
 * transaction ends with the copy, before anything of it is stored.
 *
 * Nothing is written to the database or its folder: source_vfs.c describes how.
 */
#include "backup/create/sqlite_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "backup/create/source_vfs.h"
#include "backup/repo/repo.h"
#include "db/sqlite.h"

#define BUSY_MS 10000
/* Programs that open and close the database may spoil an attempt without keeping any lock. */
enum { STEP_PAGES = 2048, ATTEMPTS = 5 };

/* ---- a file through SQLite ---- */

struct bk_sqlite_file {
	const struct sl_env *env;
	const char *name; /* made by sqlite3_create_filename */
	sqlite3_file *file;
};

int sl__bk_sqlite_file_open(struct bk_sqlite_file **out, const struct sl_env *env, int dir, const char *name)
{
	sqlite3_vfs *vfs = sl__bk_source_vfs();
	char path[BK_SOURCE_NAME_BYTES];
	if (vfs == NULL)
		return -ENOSYS;
	struct bk_sqlite_file *f = sl__calloc(env, 1, sizeof(*f));
	if (f == NULL)
		return -ENOMEM;
	f->env = env;
	sl__bk_source_name(path, dir, name);
	f->file = sl__calloc(env, 1, (size_t)vfs->szOsFile);
	f->name = sqlite3_create_filename(path, "", "", 0, NULL);
	int rc = -ENOMEM, flags;
	if (f->file != NULL && f->name != NULL)
		rc = vfs->xOpen(vfs, f->name, f->file, SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB, &flags) == SQLITE_OK
			     ? 0
			     : -EIO;
	if (rc != 0)
		sl__bk_sqlite_file_close(f);
	else
		*out = f;
	return rc;
}

void sl__bk_sqlite_file_close(struct bk_sqlite_file *f)
{
	if (f == NULL)
		return;
	if (f->file != NULL && f->file->pMethods != NULL)
		(void)f->file->pMethods->xClose(f->file);
	sqlite3_free_filename(f->name);
	sl__free(f->env, f->file);
	sl__free(f->env, f);
}

ssize_t sl__bk_sqlite_file_read(void *buf, size_t n, uint64_t offset, void *file)
{
	sqlite3_file *f = ((struct bk_sqlite_file *)file)->file;
	sqlite3_int64 size = 0;
	if (f->pMethods->xFileSize(f, &size) != SQLITE_OK)
		return -EIO;
	if (offset >= (uint64_t)size)
		return 0;
	n = (size_t)SL_MIN((uint64_t)SL_MIN(n, (size_t)1 << 30), (uint64_t)size - offset);
	return f->pMethods->xRead(f, buf, (int)n, (sqlite3_int64)offset) == SQLITE_OK ? (ssize_t)n : -EIO;
}

bool sl__bk_sqlite_file_is_database(struct bk_sqlite_file *f)
{
	char head[16];
	return sl__bk_sqlite_file_read(head, sizeof(head), 0, f) == sizeof(head) &&
	       memcmp(head, "SQLite format 3", sizeof(head)) == 0;
}

/* ---- the copy ---- */

struct copy_target {
	char path[4096];
	int fd; /* for reading it afterwards */
	struct sl__sqlite db;
};

static int open_copy_target(struct copy_target *t, const struct sl_env *env, struct sl_err *err)
{
	const char *dir = secure_getenv("TMPDIR");
	uint64_t number;
	int rc = env->rand->fill(&number, sizeof(number), env->rand_ctx);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "choose the name of a temporary file");
	if (dir == NULL || dir[0] == '\0')
		dir = "/var/tmp";
	int n = snprintf(t->path, sizeof(t->path), "%s/sluice-copy-%016llx", dir, (unsigned long long)number);
	if (n < 0 || (size_t)n >= sizeof(t->path))
		return sl_err_set(err, SL_EINVAL, "TMPDIR is too long");
	t->fd = sl__io_real.open(t->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600, NULL);
	if (t->fd < 0)
		return sl_err_set_errno(err, -t->fd, "open the temporary file %s (TMPDIR)", t->path);
	/* Its name is removed as soon as SQLite has it open, so that nothing is left behind, whatever happens. */
	t->db.env = env;
	int got = sqlite3_open_v2(t->path, &t->db.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, "unix-none");
	(void)sl__io_real.unlink(t->path, NULL);
	if (got != SQLITE_OK)
		return sl__sqlite_fail(&t->db, got, t->path, err);
	return sl__sqlite_exec(&t->db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-1024", err);
}

static int copy_pages(struct sl_backup *b, struct sl__sqlite *from, struct sl__sqlite *to, struct sl_err *err)
{
	sqlite3_backup *copy = sqlite3_backup_init(to->db, "main", from->db, "main");
	if (copy == NULL)
		return sl__sqlite_fail(to, sqlite3_errcode(to->db), "begin the copy", err);
	int got = SQLITE_OK, rc = 0;
	while (rc == 0 && got == SQLITE_OK) {
		got = sqlite3_backup_step(copy, STEP_PAGES);
		rc = sl__bk_check_stop(b, err);
	}
	int ended = sqlite3_backup_finish(copy);
	if (rc != 0)
		return rc;
	if (got != SQLITE_DONE || ended != SQLITE_OK)
		return sl__sqlite_fail(to, got != SQLITE_DONE ? got : ended, "copy the database", err);
	return 0;
}

static bool is_plain_in_uri(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' || c == '.';
}

/* Open the database of this name in a folder, and begin the read transaction. */
static int open_copy_source(struct sl__sqlite *from, int dir, const char *name, struct sl_err *err)
{
	char path[BK_SOURCE_NAME_BYTES], uri[1024];
	sqlite3_vfs *vfs = sl__bk_source_vfs();
	if (vfs == NULL)
		return sl_err_set(err, SL_EUNSUPPORTED, "SQLite cannot read it without writing to it");
	/* The name as a URI; a name has 255 bytes at most. */
	char *at = uri + snprintf(uri, sizeof(uri), "file:");
	sl__bk_source_name(path, dir, name);
	for (const char *c = path; *c != '\0'; c++)
		at += snprintf(at, 4, is_plain_in_uri(*c) ? "%c" : "%%%02X", (unsigned char)*c);
	(void)snprintf(at, sizeof(uri) - (size_t)(at - uri), "?readonly_shm=1");
	int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX |
		    SQLITE_OPEN_PRIVATECACHE;
	int got = sqlite3_open_v2(uri, &from->db, flags, vfs->zName);
	if (got != SQLITE_OK)
		return sl__sqlite_fail(from, got, name, err);
	(void)sqlite3_extended_result_codes(from->db, 1);
	(void)sqlite3_busy_timeout(from->db, BUSY_MS);
	(void)sqlite3_db_config(from->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	(void)sqlite3_db_config(from->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	(void)sqlite3_db_config(from->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	return sl__sqlite_exec(from,
			       "PRAGMA query_only=1; PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0;"
			       "PRAGMA cache_size=-1024; BEGIN; SELECT count(*) FROM sqlite_master",
			       err);
}

int sl__bk_sqlite_copy(struct sl_backup *b, int dir, const char *name, int *fd, struct sl_err *err)
{
	bool again = true; /* another attempt may succeed */
	int rc = 0;
	for (int i = 0; again && i < ATTEMPTS; i++) {
		struct sl__sqlite from = {.db = NULL, .env = &b->env};
		struct copy_target to = {.fd = -1};
		again = false;
		rc = open_copy_source(&from, dir, name, err);
		if (rc != 0) {
			int got = from.db != NULL ? sqlite3_extended_errcode(from.db) : SQLITE_OK;
			/* A program opened it, began a change or ended one at the wrong moment? */
			again = got == SQLITE_READONLY_ROLLBACK || got == SQLITE_READONLY_RECOVERY ||
				got == SQLITE_READONLY_CANTINIT || (got & 0xff) == SQLITE_CANTOPEN ||
				got == SQLITE_IOERR_SHORT_READ;
			/* SQLite reports that it may not write, which is not wanted here. */
			if (got == SQLITE_READONLY_ROLLBACK)
				rc = sl_err_set(
					err, SL_EAGAIN,
					"a program ended in the middle of a change, which its journal can undo");
		}
		if (rc == 0)
			rc = open_copy_target(&to, &b->env, err);
		if (rc == 0)
			rc = copy_pages(b, &from, &to.db, err);
		if (rc == 0 && sl__bk_source_disturbed(from.db)) {
			again = true;
			rc = sl_err_set(err, SL_EAGAIN, "another program opened it during the copy");
		}
		sl__sqlite_rollback(&from);
		sl__sqlite_close(&from);
		if (to.db.env != NULL)
			sl__sqlite_close(&to.db);
		if (rc == 0)
			*fd = to.fd;
		else if (to.fd >= 0)
			(void)sl__io_real.close(to.fd, NULL);
	}
	return rc;
}
