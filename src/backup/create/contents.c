/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files become blocks (create.h). Pieces of the buffer are collected, then hashed, looked up and stored together by a
 * flush. A file with more than BK_LIST_REFS blocks gets list blocks, which hold its references.
 */
#include "backup/create/create.h"

#include <errno.h>
#include <fcntl.h>

#define BUF_BYTES (BK_CHUNK_MAX + (1u << 20)) /* at least one whole block of a large file */
#define WHOLE_BYTES (1u << 20) /* of whole files at a time: what was read is still in the cache when it is stored */
enum { PIECES = 256 };

struct bk_contents {
	struct bk_create *c;
	int lane;
	struct bk_hasher *hasher;
	uint8_t *buf;
	size_t used; /* by pieces of whole files */
	/* blocks that are not stored yet: their items, their bytes in the buffer, their ids once they are hashed */
	struct bk_item *items[PIECES];
	struct piece {
		const uint8_t *bytes;
		size_t len;
	} pieces[PIECES];
	struct bk_id ids[PIECES];
	bool missing[PIECES];
	size_t n;
	/* list blocks of the large file that is being read */
	struct bk_ref *lists;
	size_t n_lists, cap_lists;
	uint8_t *list; /* room for one */
};

int sl__bk_contents_new(struct bk_contents **out, struct bk_create *c, int lane, struct sl_err *err)
{
	struct bk_contents *x = sl__calloc(&c->b->env, 1, sizeof(*x));
	if (x == NULL)
		return sl__no_memory(err, "read files");
	x->c = c;
	x->lane = lane;
	x->buf = sl__alloc(&c->b->env, BUF_BYTES);
	int rc = x->buf == NULL ? sl__no_memory(err, "read files")
				: sl__bk_hasher_new(&x->hasher, &c->b->env, &c->b->keys, err);
	if (rc != 0)
		sl__bk_contents_free(x);
	else
		*out = x;
	return rc;
}

void sl__bk_contents_free(struct bk_contents *x)
{
	if (x == NULL)
		return;
	const struct sl_env *env = &x->c->b->env;
	sl__bk_hasher_free(x->hasher);
	sl__free(env, x->buf);
	sl__free(env, x->lists);
	sl__free(env, x->list);
	sl__free(env, x);
}

/* ---- references ---- */

static void count_block(struct bk_contents *x, bool is_new, size_t len)
{
	struct bk_counts *n = &x->c->counts;
	atomic_fetch_add(is_new ? &n->new_blocks : &n->known_blocks, 1);
	atomic_fetch_add(is_new ? &n->new_bytes : &n->known_bytes, len);
}

/* The references that the item has so far become a list block. */
static int spill_list(struct bk_contents *x, struct bk_item *item, struct sl_err *err)
{
	const struct sl_env *env = &x->c->b->env;
	size_t n = item->e.n_refs, len = n * BK_LIST_REF_BYTES;
	struct bk_id id;
	bool is_new = false;
	if (x->list == NULL)
		x->list = sl__alloc(env, BK_LIST_REFS * BK_LIST_REF_BYTES);
	struct bk_ref *lists = sl__grow(env, x->lists, x->n_lists, &x->cap_lists, sizeof(*lists));
	if (lists != NULL)
		x->lists = lists;
	if (x->list == NULL || lists == NULL)
		return sl__no_memory(err, "read files");
	for (size_t i = 0; i < n; i++) {
		uint8_t *at = x->list + i * BK_LIST_REF_BYTES;
		memcpy(at, item->refs[i].id.b, BK_ID_BYTES);
		sl__put32(at + BK_ID_BYTES, item->refs[i].len);
	}
	int rc = sl__bk_hash(x->hasher, x->list, len, &id, err);
	if (rc == 0)
		rc = sl__bk_store_metadata(x->c->store, x->lane, &(struct bk_block){&id, x->list, len}, &is_new, err);
	if (rc != 0)
		return rc;
	count_block(x, is_new, len);
	x->lists[x->n_lists++] = (struct bk_ref){id, (uint32_t)len};
	item->e.n_refs = 0;
	return 0;
}

static int add_ref(struct bk_contents *x, struct bk_item *item, const struct bk_id *id, uint32_t len,
		   struct sl_err *err)
{
	struct bk_entry *e = &item->e;
	if (e->n_refs == 0 && item->refs == NULL) {
		item->one = (struct bk_ref){*id, len};
		e->refs = &item->one;
		e->n_refs = 1;
		return 0;
	}
	int rc = e->n_refs == BK_LIST_REFS ? spill_list(x, item, err) : 0;
	if (rc != 0)
		return rc;
	bool was_one = item->refs == NULL;
	struct bk_ref *refs = sl__grow(&x->c->b->env, item->refs, e->n_refs, &item->cap_refs, sizeof(*refs));
	if (refs == NULL)
		return sl__no_memory(err, "read files");
	item->refs = refs;
	if (was_one)
		item->refs[0] = item->one;
	item->refs[e->n_refs++] = (struct bk_ref){*id, len};
	e->refs = item->refs;
	return 0;
}

/* ---- blocks ---- */

int sl__bk_contents_flush(struct bk_contents *x, struct sl_err *err)
{
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < x->n; i++)
		rc = sl__bk_hash(x->hasher, x->pieces[i].bytes, x->pieces[i].len, &x->ids[i], err);
	if (rc == 0 && x->n > 0)
		rc = sl__bk_store_missing(x->c->store, x->ids, x->n, x->missing, err);
	for (size_t i = 0; rc == 0 && i < x->n; i++) {
		const struct piece *p = &x->pieces[i];
		bool is_new = false;
		if (x->missing[i])
			rc = sl__bk_store_block(x->c->store, x->lane, &(struct bk_block){&x->ids[i], p->bytes, p->len},
						&is_new, err);
		if (rc == 0)
			rc = add_ref(x, x->items[i], &x->ids[i], (uint32_t)p->len, err);
		count_block(x, is_new, p->len);
	}
	x->n = 0;
	x->used = 0;
	return rc;
}

/* The bytes stay where they are until the next flush. */
static void add_piece(struct bk_contents *x, struct bk_item *item, const uint8_t *bytes, size_t len)
{
	x->items[x->n] = item;
	x->pieces[x->n] = (struct piece){bytes, len};
	x->n++;
}

static void count_read(struct bk_contents *x, struct bk_item *item, size_t n)
{
	uint64_t done = SL_MIN(item->owed, (uint64_t)n);
	item->owed -= done;
	atomic_fetch_add(&x->c->counts.read_bytes, n);
	atomic_fetch_add(&x->c->counts.bytes_done, done);
}

/* ---- a stream of any length ---- */

struct stream {
	struct bk_contents *x;
	struct bk_item *item;
	struct bk_source *source;
	size_t have;   /* bytes in the buffer */
	size_t extent; /* of a sparse file; the next byte is at `at` of it */
	uint64_t at;   /* in the extent, or in the file */
	bool ended;    /* everything was read */
};

static void fill_buffer(struct stream *s)
{
	struct bk_item *item = s->item;
	size_t before = s->have;
	while (!s->ended && s->source->error == 0 && s->have < BUF_BYTES) {
		/* Where the next bytes are, and how many are contiguous there. */
		const struct bk_entry *e = &item->e;
		uint64_t offset = s->at, left = 0;
		if ((e->flags & BK_ENTRY_SPARSE) != 0) {
			while (s->extent < e->n_extents && s->at == e->extents[s->extent].length) {
				s->extent++;
				s->at = 0;
			}
			if (s->extent < e->n_extents) {
				offset = e->extents[s->extent].offset + s->at;
				left = e->extents[s->extent].length - s->at;
			}
		} else {
			left = e->size - s->at;
		}
		if (left == 0) {
			s->ended = true;
			break;
		}
		size_t want = (size_t)SL_MIN(left, (uint64_t)(BUF_BYTES - s->have));
		ssize_t n = s->source->read(s->x->buf + s->have, want, offset, s->source->ctx);
		if (n < 0) {
			s->source->error = (int)n;
		} else if (n > 0) {
			s->have += (size_t)n;
			s->at += (size_t)n;
		} else {
			/* The source ended before the file's size: what was read is the file now. */
			s->ended = true;
			item->e.flags |= BK_ENTRY_CHANGED;
			item->e.size = s->at;
			if ((item->e.flags & BK_ENTRY_SPARSE) != 0) {
				item->extents[s->extent].length = s->at;
				item->e.size = item->extents[s->extent].offset + s->at;
				item->e.n_extents = s->extent + (s->at > 0);
			}
		}
	}
	count_read(s->x, item, s->have - before);
}

/* Cut what is certain: all of it at the end, else no block that ends with the buffer and could be longer. */
static int cut_buffer(struct stream *s, struct sl_err *err)
{
	const struct bk_chunker *chunker = &s->x->c->b->chunker;
	size_t at = 0;
	int rc = 0;
	while (rc == 0 && at < s->have) {
		size_t left = s->have - at, n = sl__bk_chunk(chunker, s->x->buf + at, left);
		if (n == left && n < chunker->max && !s->ended)
			break;
		if (s->x->n == PIECES)
			rc = sl__bk_contents_flush(s->x, err);
		if (rc == 0)
			add_piece(s->x, s->item, s->x->buf + at, n);
		at += n;
	}
	if (rc == 0)
		rc = sl__bk_contents_flush(s->x, err);
	memmove(s->x->buf, s->x->buf + at, s->have - at);
	s->have -= at;
	return rc;
}

int sl__bk_contents_stream(struct bk_contents *x, struct bk_item *item, struct bk_source *source, struct sl_err *err)
{
	struct stream s = {.x = x, .item = item, .source = source};
	source->error = 0;
	int rc = sl__bk_contents_flush(x, err);
	x->n_lists = 0;
	while (rc == 0 && source->error == 0 && !(s.ended && s.have == 0)) {
		rc = sl__bk_check_stop(x->c->b, err);
		if (rc == 0)
			fill_buffer(&s);
		if (rc == 0 && source->error == 0)
			rc = cut_buffer(&s, err);
		sl__bk_create_progress(x->c);
	}
	if (rc != 0 || source->error != 0 || x->n_lists == 0)
		return rc;

	/* A file that needed list blocks refers only to these. */
	if (item->e.n_refs > 0)
		rc = spill_list(x, item, err);
	if (rc != 0)
		return rc;
	sl__free(&x->c->b->env, item->refs);
	item->refs = x->lists;
	item->cap_refs = x->cap_lists;
	item->e.refs = item->refs;
	item->e.n_refs = x->n_lists;
	item->e.flags |= BK_ENTRY_LISTS;
	x->lists = NULL;
	x->n_lists = x->cap_lists = 0;
	return 0;
}

/* ---- files ---- */

ssize_t sl__bk_read_fd(void *buf, size_t n, uint64_t offset, void *fd)
{
	return sl__io_real.pread(*(int *)fd, buf, n, offset, NULL);
}

/* Report why a file is left out. */
static void leave_out(struct bk_contents *x, struct bk_item *item, int errnum, const char *what)
{
	struct sl_err err = SL_ERR_INIT;
	bool vanished = errnum == ENOENT || errnum == ENOTDIR || errnum == ELOOP || errnum == ESTALE;
	(void)sl_err_set_errno(&err, errnum, "%s /%.160s", what, item->e.path);
	sl__bk_create_problem(vanished ? SL_BACKUP_VANISHED : SL_BACKUP_UNREADABLE, item->e.path, &err, x->c);
	item->gone = true;
}

static bool is_same_file(const struct bk_entry *e, const struct stat *st)
{
	return S_ISREG(st->st_mode) && e->ino == st->st_ino && e->dev == st->st_dev &&
	       e->size == (uint64_t)st->st_size && sl__bk_same_time(e->mtime, st->st_mtim) &&
	       sl__bk_same_time(e->ctime, st->st_ctim);
}

/* 0, or SL_ENOMEM; attributes that cannot be read are reported, and the file is kept without them. */
static int read_file_xattrs(struct bk_contents *x, struct bk_item *item, int fd, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_xattrs_read(&x->c->b->env, item, fd, -1, NULL);
	if (rc == -ENOMEM)
		return sl__no_memory(err, "read files");
	if (rc != 0) {
		item->e.flags |= BK_ENTRY_FRESH; /* incomplete: the next snapshot tries again */
		(void)sl_err_set_errno(&why, -rc, "read the attributes of /%.160s", item->e.path);
		sl__bk_create_problem(SL_BACKUP_UNREADABLE, item->e.path, &why, x->c);
	}
	return 0;
}

/* A small file, in one read. When stat afterwards returns what the walk saw, nothing has changed since; *done is false
 * when it does not. One byte more than the file has is requested, so that its end shows. */
static int read_whole(struct bk_contents *x, struct bk_item *item, int fd, bool *done, struct sl_err *err)
{
	const struct bk_chunker *chunker = &x->c->b->chunker;
	size_t size = (size_t)item->e.size;
	struct stat st;
	/* Make room in the buffer, after the files that are there. */
	if (x->used + size >= WHOLE_BYTES || x->n + size / chunker->min + 1 > PIECES) {
		int rc = sl__bk_contents_flush(x, err);
		if (rc != 0)
			return rc;
	}
	uint8_t *at = x->buf + x->used;
	ssize_t n = sl__io_real.pread(fd, at, size + 1, 0, NULL);
	if (n < 0 || (size_t)n != size)
		return 0;
	int rc = read_file_xattrs(x, item, fd, err);
	if (rc != 0 || fstat(fd, &st) != 0 || !is_same_file(&item->e, &st))
		return rc;
	*done = true;
	count_read(x, item, size);
	x->used += size;
	for (size_t from = 0, len; from < size; from += len) {
		len = sl__bk_chunk(chunker, at + from, size - from);
		add_piece(x, item, at + from, len);
	}
	return 0;
}

int sl__bk_contents_file(struct bk_contents *x, struct bk_item *item, struct sl_err *err)
{
	bool done = false;
	struct stat st;
	int rc = sl__bk_check_stop(x->c->b, err);
	if (rc != 0)
		return rc;
	int fd SL_CLEANUP(sl__bk_tree_close) =
		sl__bk_tree_open(x->c->root, item->e.path, item->e.path_len, O_RDONLY, item->e.uid);
	if (fd < 0) {
		leave_out(x, item, -fd, "open");
		return 0;
	}
	/* Whole, unless it has too many blocks for that in a repository with small ones. */
	uint64_t size = item->e.size;
	if (size < WHOLE_BYTES && size / x->c->b->chunker.min < PIECES && !item->maybe_sparse)
		rc = read_whole(x, item, fd, &done, err);
	if (rc != 0 || done)
		return rc;

	/* Else as a stream, with a stat before and one after. */
	if (fstat(fd, &st) != 0) {
		leave_out(x, item, errno, "stat");
		return 0;
	}
	if (!S_ISREG(st.st_mode)) {
		leave_out(x, item, ESTALE, "another type of file is now at");
		return 0;
	}
	(void)sl__bk_entry_from_stat(x->c, &item->e, &st);
	struct bk_entry before = item->e;
	if ((uint64_t)st.st_blocks * 512 < (uint64_t)st.st_size && sl__bk_extents_read(&x->c->b->env, item, fd) != 0)
		return sl__no_memory(err, "read files");
	struct bk_source source = {.read = sl__bk_read_fd, .ctx = &fd};
	rc = sl__bk_contents_stream(x, item, &source, err);
	if (rc == 0)
		rc = read_file_xattrs(x, item, fd, err);
	if (rc != 0)
		return rc;
	if (source.error != 0) {
		leave_out(x, item, -source.error, "read");
	} else if (fstat(fd, &st) != 0 || !is_same_file(&before, &st) || (item->e.flags & BK_ENTRY_CHANGED) != 0) {
		struct sl_err why = SL_ERR_INIT;
		item->e.flags |= BK_ENTRY_CHANGED;
		(void)sl_err_set(&why, SL_EAGAIN, "/%.160s changed while it was read", item->e.path);
		sl__bk_create_problem(SL_BACKUP_CHANGED, item->e.path, &why, x->c);
	}
	return 0;
}
