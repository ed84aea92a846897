/* SPDX-License-Identifier: Apache-2.0 */
/* Items: entries on their way into the manifest, each with its own memory (create.h). */
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
	sl__free(env, item->xattrs);
	sl__free(env, item->extents);
	sl__free(env, item->refs);
	sl__free(env, item);
}

static bool copy_xattrs(const struct sl_env *env, struct bk_item *item, const struct bk_entry *e)
{
	size_t n = e->xattrs_n * sizeof(*e->xattrs);
	for (size_t i = 0; i < e->xattrs_n; i++)
		n += strlen(e->xattrs[i].name) + 1 + e->xattrs[i].len;
	if (e->xattrs_n == 0)
		return true;
	char *memory = sl__alloc(env, n);
	if (memory == NULL)
		return false;
	struct bk_xattr *array = (void *)memory;
	char *at = memory + e->xattrs_n * sizeof(*array);
	for (size_t i = 0; i < e->xattrs_n; i++) {
		size_t name = strlen(e->xattrs[i].name) + 1, len = e->xattrs[i].len;
		memcpy(at, e->xattrs[i].name, name);
		if (len > 0)
			memcpy(at + name, e->xattrs[i].value, len);
		array[i] = (struct bk_xattr){at, (uint8_t *)at + name, (uint32_t)len};
		at += name + len;
	}
	item->xattrs = memory;
	item->e.xattrs = array;
	item->bytes += n;
	return true;
}

struct bk_item *sl__bk_item_copy(const struct sl_env *env, const struct bk_entry *e)
{
	struct bk_item *item = sl__bk_item_new(env, e->path, e->path_len, e->target, e->target_len);
	if (item == NULL)
		return NULL;
	struct bk_entry own = item->e;
	size_t extents_bytes = e->extents_n * sizeof(*e->extents), refs_bytes = e->refs_n * sizeof(*e->refs);
	item->e = *e;
	item->e.path = own.path;
	item->e.target = own.target;
	item->e.xattrs = NULL;
	item->e.extents = NULL;
	item->e.refs = NULL;
	bool copied = copy_xattrs(env, item, e);
	if (copied && e->extents_n > 0) {
		item->extents = sl__alloc(env, extents_bytes);
		copied = item->extents != NULL;
		if (copied)
			memcpy(item->extents, e->extents, extents_bytes);
		item->e.extents = item->extents;
		item->bytes += extents_bytes;
	}
	if (copied && e->refs_n == 1) {
		item->one = e->refs[0];
		item->e.refs = &item->one;
	} else if (copied && e->refs_n > 1) {
		item->refs = sl__alloc(env, refs_bytes);
		copied = item->refs != NULL;
		if (copied)
			memcpy(item->refs, e->refs, refs_bytes);
		item->e.refs = item->refs;
		item->bytes += refs_bytes;
	}
	if (copied)
		return item;
	sl__bk_item_free(env, item);
	return NULL;
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
