/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of a manifest: what is valid, the same for writers and readers, and how they are encoded (manifest.h). */
#include "backup/manifest/manifest.h"

enum { VARINT_MAX = 10 };

/* ---- rules ---- */

/* A slash sorts before every other byte, so that a folder is followed by what is in it. */
static inline int path_rank(char c)
{
	return c == '/' ? 0 : 1 + (unsigned char)c;
}

int sl__bk_path_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t n = SL_MIN(a_len, b_len), i = 0;
	while (i < n && a[i] == b[i])
		i++;
	if (i < n)
		return path_rank(a[i]) - path_rank(b[i]);
	return (a_len > b_len) - (a_len < b_len);
}

static const char *wrong_path(const char *path, size_t len)
{
	if (len == 0 || len >= BK_PATH_MAX)
		return "a path that is empty or too long";
	if (memchr(path, '\0', len) != NULL)
		return "a path with a NUL";
	for (size_t start = 0; start <= len;) {
		const char *slash = memchr(path + start, '/', len - start), *name = path + start;
		size_t end = slash != NULL ? (size_t)(slash - path) : len, n = end - start;
		if (n == 0)
			return "a path with an empty component";
		if ((n == 1 && name[0] == '.') || (n == 2 && name[0] == '.' && name[1] == '.'))
			return "a path with \".\" or \"..\"";
		start = end + 1;
	}
	return NULL;
}

static const char *wrong_type(const struct bk_entry *e)
{
	bool device = e->type == SL_BACKUP_CHAR || e->type == SL_BACKUP_BLOCK;
	bool link = e->type == SL_BACKUP_SYMLINK || e->type == SL_BACKUP_HARDLINK;
	if (e->type < SL_BACKUP_FILE || e->type > SL_BACKUP_BLOCK)
		return "an unknown type";
	if (e->flags > 2 * BK_ENTRY_FRESH - 1)
		return "unknown flags";
	if (e->mode > 07777)
		return "a mode with more than permissions";
	if (e->mtime.tv_nsec < 0 || e->mtime.tv_nsec >= BK_SECOND_NS || e->ctime.tv_nsec < 0 ||
	    e->ctime.tv_nsec >= BK_SECOND_NS)
		return "a time with more than a second of nanoseconds";
	if (!device && e->rdev != 0)
		return "a device number on something else";
	if (e->type != SL_BACKUP_FILE &&
	    ((e->flags & ~BK_ENTRY_FRESH) != 0 || e->size != 0 || e->n_extents != 0 || e->n_refs != 0))
		return "contents of something that is not a file";
	/* Links, and only links, have a target. */
	if (!link)
		return e->target_len != 0 ? "a target of something that is not a link" : NULL;
	if (e->target_len == 0 || e->target_len >= BK_PATH_MAX || memchr(e->target, '\0', e->target_len) != NULL)
		return "a link without a usable target";
	if (e->type == SL_BACKUP_SYMLINK)
		return NULL;
	if (sl__bk_path_compare(e->target, e->target_len, e->path, e->path_len) >= 0)
		return "a hard link to something that does not come before it";
	return wrong_path(e->target, e->target_len);
}

uint64_t sl__bk_entry_data_bytes(const struct bk_entry *e)
{
	if ((e->flags & BK_ENTRY_SPARSE) == 0)
		return e->size;
	uint64_t total = 0;
	for (size_t i = 0; i < e->n_extents; i++)
		total += e->extents[i].length;
	return total;
}

/* Extents and references. */
static const char *wrong_contents(const struct bk_entry *e)
{
	uint64_t end = 0, total = 0;
	if (e->n_extents > BK_EXTENTS_MAX || (e->n_extents > 0 && (e->flags & BK_ENTRY_SPARSE) == 0))
		return "extents of a file without extents";
	for (size_t i = 0; i < e->n_extents; i++) {
		const struct bk_extent *x = &e->extents[i];
		if (x->offset < end || x->length == 0 || x->offset > e->size || x->length > e->size - x->offset)
			return "extents that overlap or leave the file";
		end = x->offset + x->length;
	}
	bool lists = (e->flags & BK_ENTRY_LISTS) != 0;
	if (lists && (e->n_refs == 0 || e->n_refs > BK_LIST_BLOCKS_MAX))
		return "too few or too many list blocks";
	if (!lists && e->n_refs > BK_LIST_REFS)
		return "too many blocks without a list";
	for (size_t i = 0; i < e->n_refs; i++) {
		uint32_t len = e->refs[i].len;
		if (lists && (len == 0 || len % BK_LIST_REF_BYTES != 0 || len > BK_LIST_REFS * BK_LIST_REF_BYTES))
			return "a list block of a wrong length";
		if (!lists && (len == 0 || len > BK_CHUNK_MAX))
			return "a block of a wrong length";
		total += len;
	}
	return !lists && total != sl__bk_entry_data_bytes(e) ? "blocks that are not as long as the file" : NULL;
}

const char *sl__bk_entry_wrong(const struct bk_entry *e)
{
	const char *wrong = wrong_path(e->path, e->path_len);
	uint64_t total = 0;
	if (wrong == NULL)
		wrong = wrong_type(e);
	if (wrong != NULL)
		return wrong;
	for (size_t i = 0; i < e->n_xattrs; i++) {
		const struct bk_xattr *x = &e->xattrs[i];
		if (x->name[0] == '\0' || (i > 0 && strcmp(x[-1].name, x->name) >= 0))
			return "attributes that are not in order";
		total += strlen(x->name) + x->len;
		if (total > BK_XATTRS_MAX)
			return "too many attributes";
	}
	return wrong_contents(e);
}

/* ---- copies of entries ---- */

/* The size of a piece of a copy: the next one is aligned. */
static size_t aligned(size_t n)
{
	return (n + 7) & ~(size_t)7;
}

/* Append a piece to a copy. */
static void *append_piece(uint8_t **at, const void *bytes, size_t n)
{
	uint8_t *p = *at;
	if (n > 0)
		memcpy(p, bytes, n);
	*at += aligned(n);
	return p;
}

struct bk_entry *sl__bk_entry_copy(const struct sl_env *env, const struct bk_entry *e, const char *path, size_t *bytes)
{
	const char *name = path != NULL ? path : e->path;
	size_t path_len = path != NULL ? strlen(path) : e->path_len;
	size_t n = aligned(sizeof(*e)) + aligned(path_len + 1) + aligned(e->target_len + 1) +
		   aligned(e->n_xattrs * sizeof(e->xattrs[0])) + aligned(e->n_extents * sizeof(e->extents[0])) +
		   aligned(e->n_refs * sizeof(e->refs[0]));
	for (size_t i = 0; i < e->n_xattrs; i++)
		n += aligned(strlen(e->xattrs[i].name) + 1) + aligned(e->xattrs[i].len);
	uint8_t *at = sl__alloc(env, n);
	if (at == NULL)
		return NULL;
	struct bk_entry *copy = append_piece(&at, e, sizeof(*e));
	struct bk_xattr *xattrs = append_piece(&at, e->xattrs, e->n_xattrs * sizeof(e->xattrs[0]));
	copy->xattrs = xattrs;
	copy->extents = append_piece(&at, e->extents, e->n_extents * sizeof(e->extents[0]));
	copy->refs = append_piece(&at, e->refs, e->n_refs * sizeof(e->refs[0]));
	copy->path = append_piece(&at, name, path_len + 1);
	copy->path_len = path_len;
	copy->target = e->target != NULL ? append_piece(&at, e->target, e->target_len + 1) : NULL;
	for (size_t i = 0; i < e->n_xattrs; i++) {
		xattrs[i].name = append_piece(&at, e->xattrs[i].name, strlen(e->xattrs[i].name) + 1);
		xattrs[i].value = append_piece(&at, e->xattrs[i].value, e->xattrs[i].len);
	}
	*bytes = n;
	return copy;
}

/* ---- encoding: room for all of it is made first, so nothing fails in the middle ---- */

static uint8_t *put_entry_varint(uint8_t *p, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		*p++ = (uint8_t)(v | 0x80);
	*p++ = (uint8_t)v;
	return p;
}

static uint8_t *put_entry_time(uint8_t *p, struct timespec t)
{
	int64_t sec = t.tv_sec;
	return put_entry_varint(put_entry_varint(p, ((uint64_t)sec << 1) ^ (uint64_t)(sec >> 63)), (uint64_t)t.tv_nsec);
}

static uint8_t *put_entry_bytes(uint8_t *p, const void *bytes, size_t n)
{
	p = put_entry_varint(p, n);
	if (n > 0)
		memcpy(p, bytes, n);
	return p + n;
}

int sl__bk_entry_encode(struct sl__buf *buf, const struct bk_entry *e, const char *previous, size_t previous_len,
			struct sl_err *err)
{
	const char *wrong = sl__bk_entry_wrong(e);
	if (wrong != NULL)
		return sl_err_set(err, SL_EINVAL, "%.160s: %s", e->path, wrong);
	size_t room = 6 + 20 * VARINT_MAX + e->path_len + e->target_len;
	for (size_t i = 0; i < e->n_xattrs; i++)
		room += 2 * VARINT_MAX + strlen(e->xattrs[i].name) + e->xattrs[i].len;
	room += e->n_extents * 2 * VARINT_MAX + e->n_refs * (BK_ID_BYTES + VARINT_MAX);
	if (sl__buf_reserve(buf, room) != 0)
		return sl_err_set(err, SL_ENOMEM, "no memory for the entry of %.160s", e->path);
	size_t shared = 0, most = SL_MIN(previous_len, e->path_len);
	while (shared < most && previous[shared] == e->path[shared])
		shared++;
	uint8_t *begin = (uint8_t *)buf->data + buf->len, *p = begin + 4;
	*p++ = (uint8_t)e->type;
	*p++ = e->flags;
	p = put_entry_varint(p, shared);
	p = put_entry_bytes(p, e->path + shared, e->path_len - shared);
	p = put_entry_varint(p, e->mode);
	p = put_entry_varint(p, e->uid);
	p = put_entry_varint(p, e->gid);
	p = put_entry_time(p, e->mtime);
	p = put_entry_time(p, e->ctime);
	p = put_entry_varint(p, e->dev);
	p = put_entry_varint(p, e->ino);
	p = put_entry_varint(p, e->nlink);
	p = put_entry_varint(p, e->size);
	p = put_entry_varint(p, e->rdev);
	if (e->type == SL_BACKUP_SYMLINK || e->type == SL_BACKUP_HARDLINK)
		p = put_entry_bytes(p, e->target, e->target_len);
	p = put_entry_varint(p, e->n_xattrs);
	for (size_t i = 0; i < e->n_xattrs; i++) {
		p = put_entry_bytes(p, e->xattrs[i].name, strlen(e->xattrs[i].name));
		p = put_entry_bytes(p, e->xattrs[i].value, e->xattrs[i].len);
	}
	if (e->type == SL_BACKUP_FILE && (e->flags & BK_ENTRY_SPARSE) != 0) {
		uint64_t end = 0;
		p = put_entry_varint(p, e->n_extents);
		for (size_t i = 0; i < e->n_extents; i++) {
			p = put_entry_varint(p, e->extents[i].offset - end);
			p = put_entry_varint(p, e->extents[i].length);
			end = e->extents[i].offset + e->extents[i].length;
		}
	}
	if (e->type == SL_BACKUP_FILE)
		p = put_entry_varint(p, e->n_refs);
	for (size_t i = 0; i < e->n_refs && e->type == SL_BACKUP_FILE; i++) {
		memcpy(p, e->refs[i].id.b, BK_ID_BYTES);
		p = put_entry_varint(p + BK_ID_BYTES, e->refs[i].len);
	}
	size_t n = (size_t)(p - begin) - 4;
	if (n > BK_ENTRY_MAX)
		return sl_err_set(err, SL_EINVAL, "%.160s: its entry is too long", e->path);
	sl__put32(begin, (uint32_t)n);
	buf->len += n + 4;
	buf->data[buf->len] = '\0';
	return 0;
}
