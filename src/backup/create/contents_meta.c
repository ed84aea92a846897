/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file has in addition to its bytes: extended attributes, and where its data is.
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

#include "backup/create/contents.h"
#include "backup/grow.h"

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
	item->e.xattrs_n = n;
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
	item->e.xattrs_n = 0;
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
	item->e.extents_n = 0;
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
		if (item->e.extents_n == BK_EXTENTS_MAX - 1)
			end = size;
		struct bk_extent *grown = sl__bk_grow(env, item->extents, item->e.extents_n, &cap, sizeof(*grown));
		if (grown == NULL)
			return -ENOMEM;
		item->extents = grown;
		item->extents[item->e.extents_n++] = (struct bk_extent){start, end - start};
		at = end;
	}
	if (item->e.extents_n == 1 && item->extents[0].offset == 0 && item->extents[0].length == size) {
		drop_extents(env, item);
		return 0;
	}
	item->e.extents = item->extents;
	item->e.flags |= BK_ENTRY_SPARSE;
	item->bytes += cap * sizeof(*item->extents);
	return 0;
}
