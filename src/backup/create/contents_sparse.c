/* SPDX-License-Identifier: Apache-2.0 */
/* Where a file has data. A file system that cannot tell says that all of it is data. */
#include <errno.h>
#include <unistd.h>

#include "backup/create/contents.h"

static int add_extent(const struct sl_env *env, struct bk_item *item, size_t *cap, uint64_t offset, uint64_t length)
{
	if (item->e.extents_n == *cap) {
		size_t want = SL_MAX((size_t)8, *cap * 2);
		struct bk_extent *more = sl__realloc(env, item->extents, want * sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		item->extents = more;
		*cap = want;
	}
	item->extents[item->e.extents_n++] = (struct bk_extent){offset, length};
	return 0;
}

static void forget(const struct sl_env *env, struct bk_item *item)
{
	sl__free(env, item->extents);
	item->extents = NULL;
	item->e.extents = NULL;
	item->e.extents_n = 0;
	item->e.flags &= (uint8_t)~BK_ENTRY_SPARSE;
}

/* The next stretch of data from `at` on; false: there is none. *whole: it cannot be told, so all the rest is data. */
static bool next_data(int fd, uint64_t at, uint64_t size, uint64_t *start, uint64_t *end, bool *whole)
{
	off_t data = lseek(fd, (off_t)at, SEEK_DATA);
	if (data < 0 && errno == ENXIO)
		return false;
	off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
	*whole = data < 0 || hole < 0;
	*start = *whole ? at : (uint64_t)data;
	*end = *whole ? size : SL_MIN((uint64_t)hole, size);
	return *start < size;
}

int sl__bk_extents_read(const struct sl_env *env, struct bk_item *item, int fd)
{
	uint64_t at = 0, size = item->e.size, start, end;
	size_t cap = 0;
	bool whole = false;
	forget(env, item);
	while (at < size && !whole && next_data(fd, at, size, &start, &end, &whole)) {
		if (item->e.extents_n == BK_EXTENTS_MAX - 1)
			end = size;
		if (add_extent(env, item, &cap, start, end - start) != 0)
			return -ENOMEM;
		at = end;
	}
	if (item->e.extents_n == 1 && item->extents[0].offset == 0 && item->extents[0].length == size) {
		forget(env, item);
		return 0;
	}
	item->e.extents = item->extents;
	item->e.flags |= BK_ENTRY_SPARSE;
	item->bytes += cap * sizeof(*item->extents);
	return 0;
}
