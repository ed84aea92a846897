/* SPDX-License-Identifier: Apache-2.0 */
/* An entry into bytes; manifest.h draws them. Room for all of it is made first, so nothing fails in the middle. */
#include "backup/manifest/manifest.h"

enum { VARINT_MAX = 10 };

static uint8_t *put_varint(uint8_t *p, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		*p++ = (uint8_t)(v | 0x80);
	*p++ = (uint8_t)v;
	return p;
}

static uint8_t *put_zigzag(uint8_t *p, int64_t v)
{
	return put_varint(p, ((uint64_t)v << 1) ^ (uint64_t)(v >> 63));
}

static uint8_t *put_time(uint8_t *p, struct timespec t)
{
	return put_varint(put_zigzag(p, t.tv_sec), (uint64_t)t.tv_nsec);
}

static uint8_t *put_bytes(uint8_t *p, const void *bytes, size_t n)
{
	p = put_varint(p, n);
	if (n > 0)
		memcpy(p, bytes, n);
	return p + n;
}

static size_t room_for(const struct bk_entry *e)
{
	size_t n = 6 + 20 * VARINT_MAX + e->path_len + e->target_len;
	for (size_t i = 0; i < e->xattrs_n; i++)
		n += 2 * VARINT_MAX + strlen(e->xattrs[i].name) + e->xattrs[i].len;
	return n + e->extents_n * 2 * VARINT_MAX + e->refs_n * (BK_ID_BYTES + VARINT_MAX);
}

static uint8_t *put_attributes(uint8_t *p, const struct bk_entry *e)
{
	p = put_varint(p, e->mode);
	p = put_varint(p, e->uid);
	p = put_varint(p, e->gid);
	p = put_time(p, e->mtime);
	p = put_time(p, e->ctime);
	p = put_varint(p, e->dev);
	p = put_varint(p, e->ino);
	p = put_varint(p, e->nlink);
	p = put_varint(p, e->size);
	p = put_varint(p, e->rdev);
	if (e->type == SL_BACKUP_SYMLINK || e->type == SL_BACKUP_HARDLINK)
		p = put_bytes(p, e->target, e->target_len);
	p = put_varint(p, e->xattrs_n);
	for (size_t i = 0; i < e->xattrs_n; i++) {
		p = put_bytes(p, e->xattrs[i].name, strlen(e->xattrs[i].name));
		p = put_bytes(p, e->xattrs[i].value, e->xattrs[i].len);
	}
	return p;
}

static uint8_t *put_contents(uint8_t *p, const struct bk_entry *e)
{
	if ((e->flags & BK_ENTRY_SPARSE) != 0) {
		uint64_t end = 0;
		p = put_varint(p, e->extents_n);
		for (size_t i = 0; i < e->extents_n; i++) {
			p = put_varint(p, e->extents[i].offset - end);
			p = put_varint(p, e->extents[i].length);
			end = e->extents[i].offset + e->extents[i].length;
		}
	}
	p = put_varint(p, e->refs_n);
	for (size_t i = 0; i < e->refs_n; i++) {
		memcpy(p, e->refs[i].id.b, BK_ID_BYTES);
		p = put_varint(p + BK_ID_BYTES, e->refs[i].len);
	}
	return p;
}

int sl__bk_entry_encode(struct sl__buf *buf, const struct bk_entry *e, const char *previous, size_t previous_len,
			struct sl_err *err)
{
	const char *wrong = sl__bk_entry_wrong(e);
	if (wrong != NULL)
		return sl_err_set(err, SL_EINVAL, "%.160s: %s", e->path, wrong);
	if (sl__buf_reserve(buf, room_for(e)) != 0)
		return sl_err_set(err, SL_ENOMEM, "no memory for the entry of %.160s", e->path);
	size_t shared = 0, most = SL_MIN(previous_len, e->path_len);
	while (shared < most && previous[shared] == e->path[shared])
		shared++;
	uint8_t *begin = (uint8_t *)buf->data + buf->len, *p = begin + 4;
	*p++ = (uint8_t)e->type;
	*p++ = e->flags;
	p = put_varint(p, shared);
	p = put_bytes(p, e->path + shared, e->path_len - shared);
	p = put_attributes(p, e);
	if (e->type == SL_BACKUP_FILE)
		p = put_contents(p, e);
	size_t n = (size_t)(p - begin) - 4;
	if (n > BK_ENTRY_MAX)
		return sl_err_set(err, SL_EINVAL, "%.160s: its entry is too long", e->path);
	sl__put32(begin, (uint32_t)n);
	buf->len += n + 4;
	buf->data[buf->len] = '\0';
	return 0;
}
