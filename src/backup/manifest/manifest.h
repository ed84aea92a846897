/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest: what a snapshot holds, as a stream of entries that is cut into blocks by its contents, so that an
 * unchanged tree costs nothing. A cut is always between two entries, and the first entry of a block shares nothing with
 * the path before: each block can be read without the others, so that damage to one costs only its own entries, and
 * what a block needs has to be found out once, however many snapshots have it. Paths are relative, without a leading
 * slash, and strictly ascending when compared component by component (a slash sorts before every other byte), so a
 * folder comes before what is in it.
 *
 *   entry  u32 length of what follows; u8 type; u8 flags;
 *          varint bytes shared with the path before, varint bytes that follow, these bytes;
 *          varints mode, uid, gid; mtime and ctime, each a zigzag varint seconds since 1970 and a varint nanoseconds
 *          after these; varints dev, ino, nlink, size, rdev;
 *          links: varint length, target; varint attributes, each with lengths: name, value;
 *          files: with SPARSE varint extents, each offset after the last one's end, length;
 *                 varint references, each id[32], varint length
 *   flags  LISTS: references are of list blocks, each of up to BK_LIST_REFS times id[32], u32 length;
 *          SPARSE: the blocks hold only the extents, the rest of the file are holes;
 *          CHANGED: while it was read; SQLITE: a copy through SQLite's backup interface;
 *          FRESH: its ctime is so close to the snapshot's start that a later change need not show; never taken over
 *
 * Only files have a size, extents, references, and flags but FRESH; only links a target; only devices rdev. A hard link
 * is another name of an entry before it that is not a folder.
 *
 * A reader checks everything: types, order, folders before what is in them, "..", empty components, lengths, sums of
 * block lengths against sizes.
 * Thread safety: one thread at a time per handle.
 */
#ifndef SL_BACKUP_MANIFEST_H
#define SL_BACKUP_MANIFEST_H

#include "backup/pack/store.h"
#include "backup/repo/repo.h"
#include "base/buf.h"
#include <time.h>

enum { BK_ENTRY_LISTS = 1, BK_ENTRY_SPARSE = 2, BK_ENTRY_CHANGED = 4, BK_ENTRY_SQLITE = 8, BK_ENTRY_FRESH = 16 };
#define BK_ENTRY_MAX (BK_CHUNK_MAX - 4u) /* bytes of an encoded entry after its length: it fits into a block */
#define BK_EXTENTS_MAX 16384u            /* of a sparse file; the last one covers the rest */
#define BK_SECOND_NS 1000000000          /* nanoseconds of a second */
#define BK_LIST_REF_BYTES 36u            /* of a reference in a list block: id, u32 length */

struct bk_extent {
	uint64_t offset, length;
};
struct bk_xattr {
	const char *name; /* NUL-terminated */
	const uint8_t *value;
	uint32_t len;
};
struct bk_entry {
	enum sl_backup_type type;
	uint8_t flags;
	const char *path; /* NUL-terminated, path_len without it */
	size_t path_len;
	uint32_t mode, uid, gid;      /* mode: 07777 */
	struct timespec mtime, ctime; /* seconds of any year; nanoseconds 0 to 999,999,999 */
	uint64_t dev, ino, nlink, size, rdev;
	const char *target; /* NUL-terminated, or NULL */
	size_t target_len;
	const struct bk_xattr *xattrs; /* sorted by name */
	size_t n_xattrs;
	const struct bk_extent *extents;
	size_t n_extents;
	const struct bk_ref *refs; /* of blocks, or of list blocks */
	size_t n_refs;
};

static inline bool sl__bk_same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* NULL, or what is wrong with it ("a path with an empty component"). */
const char *sl__bk_entry_wrong(const struct bk_entry *e);
/* How many bytes of contents the blocks of a file hold: its size, or that of its extents. */
uint64_t sl__bk_entry_data_bytes(const struct bk_entry *e);

/* A copy in one piece of memory (sl__free); path NULL: the entry's own. NULL when out of memory. *bytes: its size. */
struct bk_entry *sl__bk_entry_copy(const struct sl_env *env, const struct bk_entry *e, const char *path, size_t *bytes);

/* <0, 0, >0: the order of paths in a manifest. */
int sl__bk_path_compare(const char *a, size_t a_len, const char *b, size_t b_len);

/* Append the encoding to buf; previous: the path of the entry before ("" at first). For encoding in parallel, give ""
 * as previous: prefix 0 is always right. SL_EINVAL when it would not be read back (the order is not checked). */
SL_MUST_CHECK int sl__bk_entry_encode(struct sl__buf *buf, const struct bk_entry *e, const char *previous,
				      size_t previous_len, struct sl_err *err);

/* A stream of encoded entries into blocks of the store, on one lane. refs: of the manifest's blocks, after finish. */
struct bk_manifest_writer;
SL_MUST_CHECK int sl__bk_manifest_writer_new(struct bk_manifest_writer **out, struct sl_backup *b,
					     struct bk_store *store, int lane, struct sl_err *err);
void sl__bk_manifest_writer_free(struct bk_manifest_writer *w);
SL_MUST_CHECK int sl__bk_manifest_add(struct bk_manifest_writer *w, const struct bk_entry *e, struct sl_err *err);
SL_MUST_CHECK int sl__bk_manifest_finish(struct bk_manifest_writer *w, struct bk_ref **refs, size_t *n,
					 struct sl_err *err); /* refs: sl__free */

/* The entries of a snapshot, one after another. */
struct bk_manifest_reader;
SL_MUST_CHECK int sl__bk_manifest_reader_new(struct bk_manifest_reader **out, struct sl_backup *b,
					     const struct bk_snapshot *snapshot, struct bk_reader *reader,
					     struct sl_err *err);
void sl__bk_manifest_reader_free(struct bk_manifest_reader *r);
/* 1 and *e, which lives until the next call; 0: the end; SL_ECORRUPT names the snapshot. */
int sl__bk_manifest_next(struct bk_manifest_reader *r, struct bk_entry *e, struct sl_err *err);
/* Decode one entry of bytes (for fuzzers and the reader): *used bytes; SL_EAGAIN: more bytes are needed, *used says how
 * many at least. Arrays are put into scratch, which lives as long as the entry is used. */
struct bk_entry_scratch;
struct bk_entry_bytes {
	struct bk_bytes bytes;
	struct bk_bytes previous; /* the path of the entry before it; "" of the first */
};
SL_MUST_CHECK int sl__bk_entry_scratch_new(struct bk_entry_scratch **out, const struct sl_env *env);
void sl__bk_entry_scratch_free(struct bk_entry_scratch *s);
SL_MUST_CHECK int sl__bk_entry_decode(struct bk_entry_scratch *s, const struct bk_entry_bytes *from, struct bk_entry *e,
				      size_t *used, struct sl_err *err);

/* The blocks of a file's contents, lists opened. The entry must live meanwhile; fn may use the same reader. 0 from fn
 * to continue; another value ends it and becomes its result. SL_ECORRUPT when a list is not what the entry says. */
typedef int bk_ref_fn(const struct bk_ref *ref, void *ctx);
SL_MUST_CHECK int sl__bk_entry_refs(struct bk_reader *reader, const struct bk_entry *e, bk_ref_fn *fn, void *ctx,
				    struct sl_err *err);
/* Besides: the list blocks themselves, for those who count what a snapshot needs. */
SL_MUST_CHECK int sl__bk_entry_all_refs(struct bk_reader *reader, const struct bk_entry *e, bk_ref_fn *fn, void *ctx,
					struct sl_err *err);

#endif
