/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/create/contents.h"

#include <errno.h>
#include <fcntl.h>

#define BUF_BYTES (BK_CHUNK_MAX + (1u << 20)) /* a fill has at least one whole block of a large file */
#define WHOLE_BYTES (1u << 20) /* of whole files at once: what was read is still in the cache when it is stored */
enum { PIECES = 256 };

struct bk_contents {
	struct bk_create *c;
	int lane;
	struct bk_hasher *hasher;
	uint8_t *buf;
	size_t used; /* by pieces of whole files */
	/* blocks that are not stored yet: whose they are, their bytes in the buffer, their ids when they are hashed */
	struct bk_item *items[PIECES];
	struct piece {
		const uint8_t *bytes;
		size_t len;
	} pieces[PIECES];
	struct bk_id ids[PIECES];
	bool missing[PIECES];
	size_t n;
	/* of the large file that is being read: its list blocks so far */
	struct bk_ref *lists;
	size_t lists_n, lists_cap;
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

static int grow_refs(const struct sl_env *env, struct bk_ref **refs, size_t *cap, size_t n)
{
	if (n < *cap)
		return 0;
	size_t want = SL_MAX((size_t)16, *cap * 2);
	struct bk_ref *more = sl__realloc(env, *refs, want * sizeof(*more));
	if (more == NULL)
		return SL_ENOMEM;
	*refs = more;
	*cap = want;
	return 0;
}

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
	size_t n = item->e.refs_n, len = n * BK_LIST_REF_BYTES;
	struct bk_id id;
	bool is_new = false;
	if (x->list == NULL)
		x->list = sl__alloc(env, BK_LIST_REFS * BK_LIST_REF_BYTES);
	if (x->list == NULL || grow_refs(env, &x->lists, &x->lists_cap, x->lists_n) != 0)
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
	x->lists[x->lists_n++] = (struct bk_ref){id, (uint32_t)len};
	item->e.refs_n = 0;
	return 0;
}

static int add_ref(struct bk_contents *x, struct bk_item *item, const struct bk_id *id, uint32_t len,
		   struct sl_err *err)
{
	struct bk_entry *e = &item->e;
	if (e->refs_n == 0 && item->refs == NULL) {
		item->one = (struct bk_ref){*id, len};
		e->refs = &item->one;
		e->refs_n = 1;
		return 0;
	}
	int rc = e->refs_n == BK_LIST_REFS ? spill_list(x, item, err) : 0;
	if (rc != 0)
		return rc;
	bool was_one = item->refs == NULL;
	if (grow_refs(&x->c->b->env, &item->refs, &item->refs_cap, e->refs_n) != 0)
		return sl__no_memory(err, "read files");
	if (was_one)
		item->refs[0] = item->one;
	item->refs[e->refs_n++] = (struct bk_ref){*id, len};
	e->refs = item->refs;
	return 0;
}

/* A file that needed list blocks has only these. */
static int finish_lists(struct bk_contents *x, struct bk_item *item, struct sl_err *err)
{
	if (x->lists_n == 0)
		return 0;
	int rc = item->e.refs_n > 0 ? spill_list(x, item, err) : 0;
	if (rc != 0)
		return rc;
	sl__free(&x->c->b->env, item->refs);
	item->refs = x->lists;
	item->refs_cap = x->lists_cap;
	item->e.refs = item->refs;
	item->e.refs_n = x->lists_n;
	item->e.flags |= BK_ENTRY_LISTS;
	x->lists = NULL;
	x->lists_n = x->lists_cap = 0;
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
	bk_source_fn *read;
	void *source;
	size_t have;   /* bytes in the buffer */
	size_t extent; /* of a sparse file; the next byte is at `at` of it */
	uint64_t at;   /* in the extent, or in the file */
	bool ended;    /* everything was read */
	int broken;
};

static bool is_sparse(const struct stream *s)
{
	return (s->item->e.flags & BK_ENTRY_SPARSE) != 0;
}

/* The source ended before the file's size: what was read is the file now. */
static void cut_short(struct stream *s)
{
	struct bk_item *item = s->item;
	s->ended = true;
	item->e.flags |= BK_ENTRY_CHANGED;
	if (!is_sparse(s)) {
		item->e.size = s->at;
		return;
	}
	item->extents[s->extent].length = s->at;
	item->e.size = item->extents[s->extent].offset + s->at;
	item->e.extents_n = s->extent + (s->at > 0);
}

/* Where the next bytes are and how many lie together there; 0: no more. */
static uint64_t next_place(struct stream *s, uint64_t *offset)
{
	const struct bk_entry *e = &s->item->e;
	*offset = s->at;
	if (!is_sparse(s))
		return e->size - s->at;
	while (s->extent < e->extents_n && s->at == e->extents[s->extent].length) {
		s->extent++;
		s->at = 0;
	}
	if (s->extent == e->extents_n)
		return 0;
	*offset = e->extents[s->extent].offset + s->at;
	return e->extents[s->extent].length - s->at;
}

static void fill(struct stream *s)
{
	size_t before = s->have;
	while (!s->ended && s->broken == 0 && s->have < BUF_BYTES) {
		uint64_t offset, left = next_place(s, &offset);
		if (left == 0) {
			s->ended = true;
			break;
		}
		size_t want = (size_t)SL_MIN(left, (uint64_t)(BUF_BYTES - s->have));
		ssize_t n = s->read(s->source, s->x->buf + s->have, want, offset);
		if (n < 0) {
			s->broken = (int)n;
		} else if (n == 0) {
			cut_short(s);
		} else {
			s->have += (size_t)n;
			s->at += (size_t)n;
		}
	}
	count_read(s->x, s->item, s->have - before);
}

/* Cut what is certain: all of it at the end, else no block that ends with the buffer and could be longer. */
static int cut(struct stream *s, struct sl_err *err)
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

int sl__bk_contents_stream(struct bk_contents *x, struct bk_item *item, bk_source_fn *read, void *source, int *broken,
			   struct sl_err *err)
{
	struct stream s = {.x = x, .item = item, .read = read, .source = source};
	int rc = sl__bk_contents_flush(x, err);
	x->lists_n = 0;
	while (rc == 0 && s.broken == 0 && !(s.ended && s.have == 0)) {
		rc = sl__bk_check_stop(x->c->b, err);
		if (rc == 0)
			fill(&s);
		if (rc == 0 && s.broken == 0)
			rc = cut(&s, err);
		sl__bk_create_progress(x->c);
	}
	*broken = s.broken;
	return rc == 0 && s.broken == 0 ? finish_lists(x, item, err) : rc;
}

/* ---- files ---- */

static ssize_t read_fd(void *source, void *buf, size_t n, uint64_t offset)
{
	return sl__io_real.pread(*(int *)source, buf, n, offset, NULL);
}

static void give_up(struct bk_contents *x, struct bk_item *item, int errnum, const char *what)
{
	struct sl_err err = SL_ERR_INIT;
	bool vanished = errnum == ENOENT || errnum == ENOTDIR || errnum == ELOOP || errnum == ESTALE;
	(void)sl_err_set_errno(&err, errnum, "%s /%.160s", what, item->e.path);
	sl__bk_create_problem(x->c, vanished ? SL_BACKUP_VANISHED : SL_BACKUP_UNREADABLE, item->e.path, &err);
	item->gone = true;
}

static bool is_as_seen(const struct bk_entry *e, const struct stat *st)
{
	return S_ISREG(st->st_mode) && e->ino == st->st_ino && e->dev == st->st_dev &&
	       e->size == (uint64_t)st->st_size && sl__bk_same_time(e->mtime, st->st_mtim) &&
	       sl__bk_same_time(e->ctime, st->st_ctim);
}

/* 0, or SL_ENOMEM; attributes that cannot be read are reported, and the file is kept without them. */
static int read_xattrs(struct bk_contents *x, struct bk_item *item, int fd, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_xattrs_read(&x->c->b->env, item, fd, -1, NULL);
	if (rc == -ENOMEM)
		return sl__no_memory(err, "read files");
	if (rc != 0) {
		item->e.flags |= BK_ENTRY_FRESH; /* it is not complete: the next snapshot tries again */
		(void)sl_err_set_errno(&why, -rc, "read the attributes of /%.160s", item->e.path);
		sl__bk_create_problem(x->c, SL_BACKUP_UNREADABLE, item->e.path, &why);
	}
	return 0;
}

/* Into the buffer with all its blocks: a repository of small ones may have too many of them for that. */
static bool is_whole(const struct bk_contents *x, const struct bk_item *item)
{
	return item->e.size < WHOLE_BYTES && item->e.size / x->c->b->chunker.min < PIECES && !item->maybe_sparse;
}

/* Room for a whole file in the buffer, behind those that are there. */
static int make_room(struct bk_contents *x, size_t size, struct sl_err *err)
{
	size_t blocks = size / x->c->b->chunker.min + 1;
	bool fits = x->used + size < WHOLE_BYTES && x->n + blocks <= PIECES;
	return fits ? 0 : sl__bk_contents_flush(x, err);
}

static void add_whole(struct bk_contents *x, struct bk_item *item, const uint8_t *bytes, size_t size)
{
	x->used += size;
	for (size_t at = 0, n; at < size; at += n) {
		n = sl__bk_chunk(&x->c->b->chunker, bytes + at, size - at);
		add_piece(x, item, bytes + at, n);
	}
}

/* In one read, and the look afterwards shows what the walk saw: then nothing has changed since. *done is false when it
 * does not. One byte more than the file has is asked for, so that the end shows. */
static int read_whole(struct bk_contents *x, struct bk_item *item, int fd, bool *done, struct sl_err *err)
{
	size_t size = (size_t)item->e.size;
	struct stat st;
	int rc = make_room(x, size, err);
	if (rc != 0)
		return rc;
	uint8_t *at = x->buf + x->used;
	ssize_t n = sl__io_real.pread(fd, at, size + 1, 0, NULL);
	if (n < 0 || (size_t)n != size)
		return 0;
	rc = read_xattrs(x, item, fd, err);
	if (rc != 0 || fstat(fd, &st) != 0 || !is_as_seen(&item->e, &st))
		return rc;
	*done = true;
	count_read(x, item, size);
	add_whole(x, item, at, size);
	return 0;
}

static void report_changed(struct bk_contents *x, struct bk_item *item)
{
	struct sl_err why = SL_ERR_INIT;
	item->e.flags |= BK_ENTRY_CHANGED;
	(void)sl_err_set(&why, SL_EAGAIN, "/%.160s changed while it was read", item->e.path);
	sl__bk_create_problem(x->c, SL_BACKUP_CHANGED, item->e.path, &why);
}

/* Any file, with a look before and one after. */
static int read_any(struct bk_contents *x, struct bk_item *item, int fd, struct sl_err *err)
{
	struct stat st;
	int broken = 0;
	if (fstat(fd, &st) != 0)
		return give_up(x, item, errno, "look at"), 0;
	if (!S_ISREG(st.st_mode))
		return give_up(x, item, ESTALE, "another kind of file is now at"), 0;
	(void)sl__bk_entry_from_stat(x->c, &item->e, &st);
	struct bk_entry before = item->e;
	if ((uint64_t)st.st_blocks * 512 < (uint64_t)st.st_size && sl__bk_extents_read(&x->c->b->env, item, fd) != 0)
		return sl__no_memory(err, "read files");
	int rc = sl__bk_contents_stream(x, item, read_fd, &fd, &broken, err);
	if (rc == 0)
		rc = read_xattrs(x, item, fd, err);
	if (rc != 0)
		return rc;
	if (broken != 0)
		return give_up(x, item, -broken, "read"), 0;
	if (fstat(fd, &st) != 0 || !is_as_seen(&before, &st) || (item->e.flags & BK_ENTRY_CHANGED) != 0)
		report_changed(x, item);
	return 0;
}

int sl__bk_contents_file(struct bk_contents *x, struct bk_item *item, struct sl_err *err)
{
	bool done = false;
	int rc = sl__bk_check_stop(x->c->b, err);
	if (rc != 0)
		return rc;
	int fd = sl__bk_tree_open(x->c->root, item->e.path, item->e.path_len, O_RDONLY, item->e.uid);
	if (fd < 0) {
		give_up(x, item, -fd, "open");
		return 0;
	}
	if (is_whole(x, item))
		rc = read_whole(x, item, fd, &done, err);
	if (rc == 0 && !done)
		rc = read_any(x, item, fd, err);
	sl__bk_tree_close(&fd);
	return rc;
}
