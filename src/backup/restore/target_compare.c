/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a file in the target have the contents of the snapshot's file? Size and time agree already, but disks corrupt
 * data silently. Its bytes are hashed where the snapshot has blocks and compared with their ids, so that only lists of
 * blocks are read from the repository. Where the snapshot has holes the file must have zeros.
 */
#include "backup/restore/entries.h"
#include "backup/restore/target.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { DIFFERS = 1 };

struct comparing {
	struct bk_comparer *c;
	struct bk_cursor at;
	int fd;
	struct sl_err *err;
};

void sl__bk_comparer_fini(struct bk_comparer *c)
{
	if (c->b == NULL)
		return;
	sl__bk_hasher_free(c->hasher);
	sl__free(&c->b->env, c->block);
	*c = (struct bk_comparer){.b = NULL};
}

/* False: the bytes cannot be read, or the file has become shorter. */
static bool read_fully(int fd, uint8_t *bytes, size_t len, uint64_t offset)
{
	while (len > 0) {
		struct iovec v = {.iov_base = bytes, .iov_len = len};
		ssize_t n = preadv(fd, &v, 1, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		bytes += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return true;
}

/* Are all bytes zero? */
static bool is_hole(int fd, uint64_t from, uint64_t to)
{
	static const uint8_t zeros[16384];
	uint8_t bytes[sizeof(zeros)];
	while (from < to) {
		off_t data = lseek(fd, (off_t)from, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			return true;
		from = data < 0 ? from : (uint64_t)data;
		if (from >= to)
			return true;
		size_t n = (size_t)SL_MIN(to - from, (uint64_t)sizeof(bytes));
		if (!read_fully(fd, bytes, n, from) || memcmp(bytes, zeros, n) != 0)
			return false;
		from += n;
	}
	return true;
}

/* Read the next len bytes of the file's contents, without its holes. */
static bool read_contents(struct comparing *x, size_t len)
{
	for (size_t got = 0; got < len;) {
		uint64_t before = x->at.offset;
		if (sl__bk_cursor_next(&x->at, NULL) != 0 || !is_hole(x->fd, before, x->at.offset))
			return false;
		size_t n = (size_t)SL_MIN(x->at.left, (uint64_t)(len - got));
		if (!read_fully(x->fd, x->c->block + got, n, x->at.offset))
			return false;
		got += n;
		x->at.offset += n;
		x->at.left -= n;
	}
	return true;
}

static int compare_block(const struct bk_ref *ref, void *ctx)
{
	struct comparing *x = ctx;
	struct bk_id is;
	int rc = sl__bk_check_stop(x->c->b, x->err);
	if (rc != 0)
		return rc;
	if (ref->len > BK_CHUNK_MAX || !read_contents(x, ref->len))
		return DIFFERS;
	rc = sl__bk_hash(x->c->hasher, x->c->block, ref->len, &is, x->err);
	return rc == 0 && memcmp(&is, &ref->id, sizeof(is)) != 0 ? DIFFERS : rc;
}

int sl__bk_target_compare(struct bk_comparer *c, const struct bk_placing *p, struct bk_reader *lists, bool *same,
			  struct sl_err *err)
{
	const struct bk_entry *e = p->e;
	struct sl_backup *b = c->b;
	struct comparing x = {.c = c, .err = err};
	struct stat st;
	int rc = 0;
	*same = e->size == 0; /* it need not even be readable */
	if (*same)
		return 0;
	if (c->hasher == NULL)
		rc = sl__bk_hasher_new(&c->hasher, &b->env, &b->keys, err);
	if (rc != 0)
		return rc;
	if (c->block == NULL)
		c->block = sl__alloc(&b->env, BK_CHUNK_MAX);
	if (c->block == NULL)
		return sl__no_memory(err, "compare a file");
	x.fd = openat(p->folder->fd, p->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (x.fd < 0)
		return 0; /* a file that this user may not read is not known to be the same */
	if (fstat(x.fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == e->size) {
		sl__bk_cursor_init(&x.at, e);
		rc = sl__bk_entry_refs(lists, e, compare_block, &x, err);
		bool sparse = (e->flags & BK_ENTRY_SPARSE) != 0;
		*same = rc == 0 && x.at.left == 0 && (!sparse || is_hole(x.fd, x.at.offset, e->size));
	}
	(void)close(x.fd);
	return rc == DIFFERS ? 0 : rc;
}
