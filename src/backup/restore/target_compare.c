/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a file that stands in the target has the contents of the snapshot's, though size and time say so already:
 * bits of a disk rot without a word. Its bytes are hashed where the snapshot has blocks, and compared with their ids;
 * so nothing is read of the repository but lists of blocks. Where the snapshot has holes there must be zeros.
 */
#include "backup/restore/target.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { DIFFERS = 1 };

struct comparing {
	struct bk_comparer *c;
	const struct bk_entry *e;
	int fd;
	uint64_t offset; /* of the next byte in the file */
	uint64_t left;   /* bytes of the extent, or of the file */
	size_t extent;   /* the next one */
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

static int prepare(struct bk_comparer *c, struct sl_err *err)
{
	struct sl_backup *b = c->b;
	if (c->hasher == NULL) {
		int rc = sl__bk_hasher_new(&c->hasher, &b->env, &b->keys, err);
		if (rc != 0)
			return rc;
	}
	if (c->block == NULL)
		c->block = sl__alloc(&b->env, BK_CHUNK_MAX);
	return c->block != NULL ? 0 : sl_err_set(err, SL_ENOMEM, "compare a file: out of memory");
}

/* False: they cannot be read, or the file has become shorter. */
static bool read_all(int fd, uint8_t *bytes, size_t len, uint64_t offset)
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
		if (!read_all(fd, bytes, n, from) || memcmp(bytes, zeros, n) != 0)
			return false;
		from += n;
	}
	return true;
}

static bool next_extent(struct comparing *x)
{
	while (x->left == 0) {
		if (x->extent >= x->e->extents_n)
			return false;
		const struct bk_extent *next = &x->e->extents[x->extent++];
		if (next->offset < x->offset || !is_hole(x->fd, x->offset, next->offset))
			return false;
		x->offset = next->offset;
		x->left = next->length;
	}
	return true;
}

static bool read_block(struct comparing *x, size_t len)
{
	for (size_t at = 0; at < len;) {
		if (x->left == 0 && !next_extent(x))
			return false;
		size_t n = (size_t)SL_MIN(x->left, (uint64_t)(len - at));
		if (!read_all(x->fd, x->c->block + at, n, x->offset))
			return false;
		at += n;
		x->offset += n;
		x->left -= n;
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
	if (ref->len > BK_CHUNK_MAX || !read_block(x, ref->len))
		return DIFFERS;
	rc = sl__bk_hash(x->c->hasher, x->c->block, ref->len, &is, x->err);
	return rc == 0 && memcmp(&is, &ref->id, sizeof(is)) != 0 ? DIFFERS : rc;
}

static int compare_contents(struct comparing *x, struct bk_reader *lists)
{
	bool sparse = (x->e->flags & BK_ENTRY_SPARSE) != 0;
	x->left = sparse ? 0 : x->e->size;
	int rc = sl__bk_entry_refs(lists, x->e, compare_block, x, x->err);
	if (rc != 0)
		return rc;
	return x->left == 0 && (!sparse || is_hole(x->fd, x->offset, x->e->size)) ? 0 : DIFFERS;
}

int sl__bk_target_compare(struct bk_comparer *c, struct bk_folder *f, const char *name, const struct bk_entry *e,
			  struct bk_reader *lists, bool *same, struct sl_err *err)
{
	struct stat st;
	struct comparing x = {.c = c, .e = e, .err = err};
	*same = e->size == 0; /* nor need it be readable */
	int rc = *same ? 0 : prepare(c, err);
	if (rc != 0 || *same)
		return rc;
	x.fd = openat(f->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (x.fd < 0)
		return 0; /* what this user may not read is not known to be the same */
	if (fstat(x.fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == e->size) {
		rc = compare_contents(&x, lists);
		*same = rc == 0;
	}
	(void)close(x.fd);
	return rc == DIFFERS ? 0 : rc;
}
