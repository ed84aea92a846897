/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes. ACLs are among them: the kernel shows these as system.posix_acl_access and …_default. */
#include <errno.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/xattr.h>

#include "backup/create/contents.h"

/* The file by its descriptor, or by a name that leads through one of its folder: O_PATH and links have no other way. */
struct place {
	int fd;
	char path[64 + NAME_MAX];
};

static ssize_t list(const struct place *p, char *buf, size_t n)
{
	ssize_t got = p->fd >= 0 ? flistxattr(p->fd, buf, n) : llistxattr(p->path, buf, n);
	return got >= 0 ? got : -errno;
}

static ssize_t get(const struct place *p, const char *name, void *buf, size_t n)
{
	ssize_t got = p->fd >= 0 ? fgetxattr(p->fd, name, buf, n) : lgetxattr(p->path, name, buf, n);
	return got >= 0 ? got : -errno;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct bk_xattr *)a)->name, ((const struct bk_xattr *)b)->name);
}

/* One block of memory: the array, the names as the kernel listed them, then the values. */
struct gathered {
	struct bk_xattr *array;
	size_t n;
	char *names;
	uint8_t *values;
	size_t used, room;
};

static int get_value(const struct place *p, struct gathered *g, const char *name)
{
	ssize_t n = get(p, name, g->values + g->used, g->room - g->used);
	if (n > 0 && g->used == g->room)
		return -ERANGE; /* without room, the kernel tells the length and copies nothing */
	if (n == -ENODATA)
		return 0; /* removed meanwhile */
	if (n < 0)
		return (int)n;
	g->array[g->n++] = (struct bk_xattr){name, g->values + g->used, (uint32_t)n};
	g->used += (size_t)n;
	return 0;
}

static int get_all(const struct place *p, struct gathered *g, size_t names_len)
{
	int rc = 0;
	for (char *name = g->names; rc == 0 && name < g->names + names_len; name += strlen(name) + 1)
		rc = get_value(p, g, name);
	if (rc == 0 && g->n > 0)
		qsort(g->array, g->n, sizeof(*g->array), by_name);
	return rc;
}

static int gather(const struct sl_env *env, struct bk_item *item, const struct place *p, const char *names, size_t len,
		  size_t room)
{
	size_t n = 0;
	for (size_t i = 0; i < len; i++)
		n += names[i] == '\0';
	char *memory = sl__alloc(env, n * sizeof(struct bk_xattr) + len + room + 1);
	if (memory == NULL)
		return -ENOMEM;
	struct gathered g = {.array = (void *)memory, .names = memory + n * sizeof(struct bk_xattr), .room = room};
	g.values = (uint8_t *)g.names + len;
	memcpy(g.names, names, len);
	int rc = get_all(p, &g, len);
	if (rc != 0) {
		sl__free(env, memory);
		return rc;
	}
	item->xattrs = memory;
	item->e.xattrs = g.array;
	item->e.xattrs_n = g.n;
	item->bytes += n * sizeof(struct bk_xattr) + len + room;
	return 0;
}

/* Most attributes are short; more room is tried only when it is needed. */
static int read_values(const struct sl_env *env, struct bk_item *item, const struct place *p, const char *names,
		       size_t len)
{
	int rc = -ERANGE;
	for (size_t room = 1024; rc == -ERANGE && room <= BK_XATTRS_MAX; room *= 4)
		rc = gather(env, item, p, names, len, room);
	return rc == -ERANGE ? -E2BIG : rc;
}

static int read_long_list(const struct sl_env *env, struct bk_item *item, const struct place *p)
{
	char *names = sl__alloc(env, XATTR_LIST_MAX);
	if (names == NULL)
		return -ENOMEM;
	ssize_t n = list(p, names, XATTR_LIST_MAX);
	int rc = n < 0 ? (int)n : read_values(env, item, p, names, (size_t)n);
	sl__free(env, names);
	return rc;
}

int sl__bk_xattrs_read(const struct sl_env *env, struct bk_item *item, int fd, int dir, const char *name)
{
	struct place p = {.fd = fd};
	char names[1024];
	sl__free(env, item->xattrs);
	item->xattrs = NULL;
	item->e.xattrs = NULL;
	item->e.xattrs_n = 0;
	if (fd < 0)
		(void)snprintf(p.path, sizeof(p.path), "/proc/self/fd/%d/%s", dir, name);
	ssize_t n = list(&p, names, sizeof(names));
	if (n == 0 || n == -ENOTSUP || n == -ENODATA)
		return 0;
	if (n == -ERANGE)
		return read_long_list(env, item, &p);
	return n < 0 ? (int)n : read_values(env, item, &p, names, (size_t)n);
}
