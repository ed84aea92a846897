/* SPDX-License-Identifier: Apache-2.0 */
/* SQLite databases in the tree. */
#include "backup/create/database.h"

#include <errno.h>

#include "backup/create/contents.h"
#include "backup/create/sqlite_copy.h"

static ssize_t read_fd(void *source, void *buf, size_t n, uint64_t offset)
{
	return sl__io_real.pread(*(int *)source, buf, n, offset, NULL);
}

/* The copy's bytes are the file's. */
static int store_copy(struct bk_create *c, struct bk_item *item, int fd, struct sl_err *err)
{
	struct sl_io_stat st;
	int broken = 0;
	int rc = sl__io_real.fstat(fd, &st, NULL);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "look at the copy of /%.160s", item->e.path);
	item->e.size = st.size;
	item->e.flags |= BK_ENTRY_SQLITE;
	rc = sl__bk_contents_stream(c->own, item, read_fd, &fd, &broken, err);
	return rc == 0 && broken != 0 ? sl_err_set_errno(err, -broken, "read the copy of /%.160s", item->e.path) : rc;
}

/* As it stands, perhaps in the middle of a change: told, and never taken over by a later snapshot. */
static int store_as_file(struct bk_create *c, struct bk_item *item, struct bk_sqlite_file *file,
			 const struct sl_err *reason, struct sl_err *err)
{
	struct sl_err why = *reason;
	int broken = 0;
	/* Of one that is damaged itself, the file is all there is to have. */
	bool damaged = why.code == SL_ECORRUPT;
	(void)sl_err_wrap(&why, why.code, "cannot be copied as a database, is kept as a file");
	sl__bk_create_problem(c, damaged ? SL_BACKUP_CHANGED : SL_BACKUP_AS_FILE, item->e.path, &why);
	item->e.flags |= BK_ENTRY_CHANGED;
	int rc = sl__bk_contents_stream(c->own, item, sl__bk_sqlite_file_read, file, &broken, err);
	if (rc == 0 && broken != 0) {
		(void)sl_err_set_errno(&why, -broken, "read /%.160s", item->e.path);
		sl__bk_create_problem(c, SL_BACKUP_UNREADABLE, item->e.path, &why);
		item->gone = true;
	}
	return rc;
}

static int copy(struct bk_create *c, struct bk_visit *v, struct bk_item *item, struct bk_sqlite_file *file,
		struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	int fd = -1;
	int rc = sl__bk_sqlite_copy(c->b, v->dir, v->name, &fd, &why);
	if (rc == SL_ECANCELLED) {
		if (err != NULL)
			*err = why;
		return rc;
	}
	if (rc != 0) {
		v->leave_out_shm = true; /* to read it would be to close it, and with that to let go of its locks */
		return store_as_file(c, item, file, &why, err);
	}
	v->leave_out_journal = true;
	rc = store_copy(c, item, fd, err);
	(void)sl__io_real.close(fd, NULL);
	return rc;
}

int sl__bk_create_database(struct bk_create *c, struct bk_visit *v, struct bk_item *item, bool *copied,
			   struct sl_err *err)
{
	struct bk_sqlite_file *file = NULL;
	int rc = sl__bk_sqlite_file_open(&file, &c->b->env, v->dir, v->name);
	if (rc == -ENOMEM)
		rc = sl_err_set(err, SL_ENOMEM, "no memory to look at /%.160s", v->path);
	else if (rc != 0)
		rc = 0; /* the worker that opens it says why it cannot be read */
	else if (sl__bk_sqlite_file_is_database(file)) {
		*copied = true;
		rc = copy(c, v, item, file, err);
	}
	sl__bk_sqlite_file_close(file);
	return rc;
}
