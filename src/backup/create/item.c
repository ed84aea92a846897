/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items: entries on their way into the manifest, each with its own memory (create.h), and what a file has in addition to
 * its bytes: extended attributes, and where its data is.
 *
 * ACLs are extended attributes: the kernel shows them as system.posix_acl_access and …_default. A file system that has
 * no information about holes reports that all of a file is data.
 */
#include <errno.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backup/create/create.h"

/* A file that changed so shortly before the start may change again without a new time: file systems count in ticks, and
 * clocks of other machines are wrong. */
#define FRESH_MS 3000

struct bk_item *sl__bk_item_new(const struct sl_env *env, const char *path, size_t path_len, const char *target,
				size_t target_len)
{
	size_t bytes = sizeof(struct bk_item) + path_len + 1 + target_len + 1;
	struct bk_item *item = sl__alloc(env, bytes);
	if (item == NULL)
		return NULL;
	memset(item, 0, sizeof(*item));
	item->bytes = bytes;
	item->e.path = item->text;
	item->e.path_len = path_len;
	memcpy(item->text, path, path_len);
	item->text[path_len] = '\0';
	if (target != NULL) {
		char *at = item->text + path_len + 1;
		item->e.target = at;
		item->e.target_len = target_len;
		memcpy(at, target, target_len);
		at[target_len] = '\0';
	}
	return item;
}

void sl__bk_item_free(const struct sl_env *env, struct bk_item *item)
{
	if (item == NULL)
		return;
	sl__free(env, item->copy);
	sl__free(env, item->xattrs);
	sl__free(env, item->extents);
	sl__free(env, item->refs);
	sl__free(env, item);
}

struct bk_item *sl__bk_item_copy(const struct sl_env *env, const struct bk_entry *e)
{
	struct bk_item *item = sl__bk_item_new(env, "", 0, NULL, 0);
	size_t bytes;
	if (item == NULL)
		return NULL;
	struct bk_entry *copy = sl__bk_entry_copy(env, e, NULL, &bytes);
	if (copy == NULL) {
		sl__bk_item_free(env, item);
		return NULL;
	}
	item->e = *copy;
	item->copy = copy;
	item->bytes += bytes;
	return item;
}

enum sl_backup_type sl__bk_type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return SL_BACKUP_FILE;
	case S_IFDIR:
		return SL_BACKUP_DIR;
	case S_IFLNK:
		return SL_BACKUP_SYMLINK;
	case S_IFIFO:
		return SL_BACKUP_FIFO;
	case S_IFCHR:
		return SL_BACKUP_CHAR;
	case S_IFBLK:
		return SL_BACKUP_BLOCK;
	default:
		return (enum sl_backup_type)0;
	}
}

bool sl__bk_entry_from_stat(const struct bk_create *c, struct bk_entry *e, const struct stat *st)
{
	e->type = sl__bk_type_of(st->st_mode);
	e->mode = st->st_mode & 07777;
	e->uid = st->st_uid;
	e->gid = st->st_gid;
	e->mtime = st->st_mtim;
	e->ctime = st->st_ctim;
	e->dev = st->st_dev;
	e->ino = st->st_ino;
	e->nlink = st->st_nlink;
	e->size = e->type == SL_BACKUP_FILE ? (uint64_t)st->st_size : 0;
	e->rdev = e->type == SL_BACKUP_CHAR || e->type == SL_BACKUP_BLOCK ? st->st_rdev : 0;
	/* Compared in seconds first: those of a file may not fit into milliseconds. */
	int64_t since_ms = c->started_ms - FRESH_MS, since_s = since_ms / 1000;
	bool fresh =
		e->ctime.tv_sec != since_s ? e->ctime.tv_sec > since_s : e->ctime.tv_nsec / 1000000 >= since_ms % 1000;
	e->flags = fresh ? BK_ENTRY_FRESH : 0;
	return e->type != 0;
}

/* ---- extended attributes ---- */

/* The attributes of one file, read in one piece of memory: the array, the names as the kernel listed them, the values.
 */
struct xattr_reading {
	const struct sl_env *env;
	int fd;                   /* of the file; -1: by path */
	char path[64 + NAME_MAX]; /* through a descriptor of its folder: links and O_PATH have no other way */
	const char *names;
	size_t names_len;
};

static ssize_t list_xattrs(const struct xattr_reading *r, char *buf, size_t n)
{
	ssize_t got = r->fd >= 0 ? flistxattr(r->fd, buf, n) : llistxattr(r->path, buf, n);
	return got >= 0 ? got : -errno;
}

static int compare_xattrs(const void *a, const void *b)
{
	return strcmp(((const struct bk_xattr *)a)->name, ((const struct bk_xattr *)b)->name);
}

/* With `room` bytes for the values. 0 or a negative errno; -ERANGE: they need more. */
static int read_xattrs_into(const struct xattr_reading *r, struct bk_item *item, size_t room)
{
	size_t count = 0, n = 0, used = 0;
	for (size_t i = 0; i < r->names_len; i++)
		count += r->names[i] == '\0';
	size_t bytes = count * sizeof(struct bk_xattr) + r->names_len + room;
	char *memory = sl__alloc(r->env, bytes + 1);
	if (memory == NULL)
		return -ENOMEM;
	struct bk_xattr *array = (void *)memory;
	char *names = memory + count * sizeof(*array);
	uint8_t *values = (uint8_t *)names + r->names_len;
	memcpy(names, r->names, r->names_len);
	for (const char *name = names; name < names + r->names_len; name += strlen(name) + 1) {
		void *to = values + used;
		ssize_t got = r->fd >= 0 ? fgetxattr(r->fd, name, to, room - used)
					 : lgetxattr(r->path, name, to, room - used);
		int rc = got < 0 ? -errno : 0;
		if (got > 0 && used == room)
			rc = -ERANGE; /* without room, the kernel returns the length and copies nothing */
		if (rc == -ENODATA)
			continue; /* removed since it was listed */
		if (rc != 0) {
			sl__free(r->env, memory);
			return rc;
		}
		array[n++] = (struct bk_xattr){name, to, (uint32_t)got};
		used += (size_t)got;
	}
	if (n > 0)
		qsort(array, n, sizeof(*array), compare_xattrs);
	item->xattrs = memory;
	item->e.xattrs = array;
	item->e.n_xattrs = n;
	item->bytes += bytes;
	return 0;
}

int sl__bk_xattrs_read(const struct sl_env *env, struct bk_item *item, int fd, int dir, const char *name)
{
	struct xattr_reading r = {.env = env, .fd = fd};
	char names[1024], *more = NULL;
	sl__free(env, item->xattrs);
	item->xattrs = NULL;
	item->e.xattrs = NULL;
	item->e.n_xattrs = 0;
	if (fd < 0)
		(void)snprintf(r.path, sizeof(r.path), "/proc/self/fd/%d/%s", dir, name);

	/* The names. */
	ssize_t n = list_xattrs(&r, names, sizeof(names));
	if (n == 0 || n == -ENOTSUP || n == -ENODATA)
		return 0;
	r.names = names;
	if (n == -ERANGE) {
		more = sl__alloc(env, XATTR_LIST_MAX);
		if (more == NULL)
			return -ENOMEM;
		r.names = more;
		n = list_xattrs(&r, more, XATTR_LIST_MAX);
	}

	/* The values. Most are short: more room is tried only when it is needed. */
	int rc = n < 0 ? (int)n : -ERANGE;
	r.names_len = n < 0 ? 0 : (size_t)n;
	for (size_t room = 1024; n >= 0 && rc == -ERANGE && room <= BK_XATTRS_MAX; room *= 4)
		rc = read_xattrs_into(&r, item, room);
	sl__free(env, more);
	return n >= 0 && rc == -ERANGE ? -E2BIG : rc;
}

/* ---- holes ---- */

static void drop_extents(const struct sl_env *env, struct bk_item *item)
{
	sl__free(env, item->extents);
	item->extents = NULL;
	item->e.extents = NULL;
	item->e.n_extents = 0;
	item->e.flags &= (uint8_t)~BK_ENTRY_SPARSE;
}

int sl__bk_extents_read(const struct sl_env *env, struct bk_item *item, int fd)
{
	uint64_t at = 0, size = item->e.size;
	size_t cap = 0;
	drop_extents(env, item);
	while (at < size) {
		/* The next range of data; without information about holes it is all the rest. */
		off_t data = lseek(fd, (off_t)at, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			break;
		off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
		bool known = data >= 0 && hole >= 0;
		uint64_t start = known ? (uint64_t)data : at, end = known ? SL_MIN((uint64_t)hole, size) : size;
		if (start >= size)
			break;
		if (item->e.n_extents == BK_EXTENTS_MAX - 1)
			end = size;
		struct bk_extent *grown = sl__grow(env, item->extents, item->e.n_extents, &cap, sizeof(*grown));
		if (grown == NULL)
			return -ENOMEM;
		item->extents = grown;
		item->extents[item->e.n_extents++] = (struct bk_extent){start, end - start};
		at = end;
	}
	if (item->e.n_extents == 1 && item->extents[0].offset == 0 && item->extents[0].length == size) {
		drop_extents(env, item);
		return 0;
	}
	item->e.extents = item->extents;
	item->e.flags |= BK_ENTRY_SPARSE;
	item->bytes += cap * sizeof(*item->extents);
	return 0;
}
