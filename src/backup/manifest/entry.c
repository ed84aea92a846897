/* SPDX-License-Identifier: Apache-2.0 */
/* What an entry of a manifest may be; writers and readers hold to the same rules. */
#include "backup/manifest/manifest.h"

/* A slash sorts before every other byte, so that a folder is followed by what is in it. */
static inline int rank(char c)
{
	return c == '/' ? 0 : 1 + (unsigned char)c;
}

int sl__bk_path_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t n = SL_MIN(a_len, b_len), i = 0;
	while (i < n && a[i] == b[i])
		i++;
	if (i < n)
		return rank(a[i]) - rank(b[i]);
	return (a_len > b_len) - (a_len < b_len);
}

static bool is_dots(const char *name, size_t n)
{
	return (n == 1 && name[0] == '.') || (n == 2 && name[0] == '.' && name[1] == '.');
}

static const char *wrong_path(const char *path, size_t len)
{
	if (len == 0 || len >= BK_PATH_MAX)
		return "a path that is empty or too long";
	if (memchr(path, '\0', len) != NULL)
		return "a path with a NUL";
	for (size_t start = 0; start <= len;) {
		const char *slash = memchr(path + start, '/', len - start);
		size_t end = slash != NULL ? (size_t)(slash - path) : len;
		if (end == start)
			return "a path with an empty component";
		if (is_dots(path + start, end - start))
			return "a path with \".\" or \"..\"";
		start = end + 1;
	}
	return NULL;
}

static const char *wrong_target(const struct bk_entry *e)
{
	bool link = e->type == SL_BACKUP_SYMLINK || e->type == SL_BACKUP_HARDLINK;
	if (!link)
		return e->target_len != 0 ? "a target of something that is no link" : NULL;
	if (e->target_len == 0 || e->target_len >= BK_PATH_MAX || memchr(e->target, '\0', e->target_len) != NULL)
		return "a link without a usable target";
	if (e->type == SL_BACKUP_SYMLINK)
		return NULL;
	if (sl__bk_path_compare(e->target, e->target_len, e->path, e->path_len) >= 0)
		return "a hard link to something that does not come before it";
	return wrong_path(e->target, e->target_len);
}

static const char *wrong_xattrs(const struct bk_entry *e)
{
	uint64_t total = 0;
	for (size_t i = 0; i < e->xattrs_n; i++) {
		const struct bk_xattr *x = &e->xattrs[i];
		if (x->name[0] == '\0' || (i > 0 && strcmp(x[-1].name, x->name) >= 0))
			return "attributes that are not in order";
		total += strlen(x->name) + x->len;
		if (total > BK_XATTRS_MAX)
			return "too many attributes";
	}
	return NULL;
}

static const char *wrong_extents(const struct bk_entry *e)
{
	uint64_t end = 0;
	if (e->extents_n > BK_EXTENTS_MAX || (e->extents_n > 0 && (e->flags & BK_ENTRY_SPARSE) == 0))
		return "extents of a file that has none";
	for (size_t i = 0; i < e->extents_n; i++) {
		const struct bk_extent *x = &e->extents[i];
		if (x->offset < end || x->length == 0 || x->offset > e->size || x->length > e->size - x->offset)
			return "extents that overlap or leave the file";
		end = x->offset + x->length;
	}
	return NULL;
}

uint64_t sl__bk_entry_data_bytes(const struct bk_entry *e)
{
	if ((e->flags & BK_ENTRY_SPARSE) == 0)
		return e->size;
	uint64_t total = 0;
	for (size_t i = 0; i < e->extents_n; i++)
		total += e->extents[i].length;
	return total;
}

static const char *wrong_lists(const struct bk_entry *e)
{
	if (e->refs_n == 0 || e->refs_n > BK_LIST_BLOCKS_MAX)
		return "too few or too many list blocks";
	for (size_t i = 0; i < e->refs_n; i++)
		if (e->refs[i].len == 0 || e->refs[i].len % BK_LIST_REF_BYTES != 0 ||
		    e->refs[i].len > BK_LIST_REFS * BK_LIST_REF_BYTES)
			return "a list block of a wrong length";
	return NULL;
}

static const char *wrong_refs(const struct bk_entry *e)
{
	if ((e->flags & BK_ENTRY_LISTS) != 0)
		return wrong_lists(e);
	uint64_t total = 0;
	if (e->refs_n > BK_LIST_REFS)
		return "too many blocks without a list";
	for (size_t i = 0; i < e->refs_n; i++) {
		if (e->refs[i].len == 0 || e->refs[i].len > BK_CHUNK_MAX)
			return "a block of a wrong length";
		total += e->refs[i].len;
	}
	return total != sl__bk_entry_data_bytes(e) ? "blocks that are not as long as the file" : NULL;
}

static const char *wrong_kind(const struct bk_entry *e)
{
	bool device = e->type == SL_BACKUP_CHAR || e->type == SL_BACKUP_BLOCK;
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
		return "a device's number on something else";
	if (e->type == SL_BACKUP_FILE)
		return NULL;
	if ((e->flags & ~BK_ENTRY_FRESH) != 0 || e->size != 0 || e->extents_n != 0 || e->refs_n != 0)
		return "contents of something that is no file";
	return NULL;
}

const char *sl__bk_entry_wrong(const struct bk_entry *e)
{
	const char *(*const rules[])(const struct bk_entry *) = {wrong_kind, wrong_target, wrong_xattrs, wrong_extents,
								 wrong_refs};
	const char *wrong = wrong_path(e->path, e->path_len);
	for (size_t i = 0; wrong == NULL && i < SL_COUNT(rules); i++)
		wrong = rules[i](e);
	return wrong;
}
