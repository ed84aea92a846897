/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which block is in which pack: index files, each sorted by block id, looked up without reading them whole.
 *
 *   header (64 bytes) | sealed head: pack ids, then the first 8 bytes of the first id of each segment | sealed segments
 *
 * A segment (BK_INDEX_SEGMENT entries) is read, opened and kept when a look-up first needs it: memory is at most
 * BK_INDEX_ENTRY bytes for each entry, and little before it is needed. A file that a prune removes meanwhile does no
 * harm: what took its place is found then.
 *
 * Thread safety: find from any number of threads at the same time; the others one at a time and not during find. Ownership: an
 * index owns what it loaded; keys, env and driver are borrowed.
 */
#ifndef SL_BACKUP_INDEX_H
#define SL_BACKUP_INDEX_H

#include "backup/pack/pack.h"
#include <sluice/adapter/driver.h>

struct bk_index; /* all index files of a repository */

struct bk_found {
	struct bk_id pack;
	struct bk_place place;
};

/* Whether blocks of this pack may be used (it exists, is not marked for deletion); called once per pack and file while
 * loading. */
typedef bool bk_pack_usable_fn(const struct bk_id *pack, void *ctx);
typedef int bk_index_damaged_fn(const char *name, const struct sl_err *err, void *ctx);

/* Where an index is loaded from. */
struct bk_index_from {
	const struct sl_env *env;
	const struct bk_keys *keys;
	const sl_driver *driver;
	bk_pack_usable_fn *usable;       /* NULL: all are */
	bk_index_damaged_fn *on_damaged; /* NULL: a damaged file ends the loading */
	void *ctx;                       /* of both */
};
/* List and open the index files. One that is damaged is SL_ECORRUPT with its name, or, with on_damaged, reported and
 * skipped; one that vanished meanwhile leads to another listing. */
SL_MUST_CHECK int sl__bk_index_load(struct bk_index **out, const struct bk_index_from *from, struct sl_err *err);
void sl__bk_index_free(struct bk_index *x); /* NULL is allowed */

/* 0 and *out (may be NULL), or SL_ENOENT (err is not filled then), or what reading a segment returned. Of several
 * usable places the first found. */
SL_MUST_CHECK int sl__bk_index_find(struct bk_index *x, const struct bk_id *id, struct bk_found *out,
				    struct sl_err *err);

/* Every usable place of a block, of each pack one, at most n of them. Returns how many are in out, or a negative SL_E….
 * For a caller that found the first one damaged: it searches every file. */
SL_MUST_CHECK int sl__bk_index_places(struct bk_index *x, const struct bk_id *id, struct bk_found *out, size_t n,
				      struct sl_err *err);

uint64_t sl__bk_index_entries(const struct bk_index *x); /* with doubles */
size_t sl__bk_index_files(const struct bk_index *x);
/* Every entry, file after file, in their order; ordinal counts from 0 over all files (for bitmaps). */
typedef int bk_index_entry_fn(uint64_t ordinal, const struct bk_id *id, const struct bk_found *found, void *ctx);
SL_MUST_CHECK int sl__bk_index_each(struct bk_index *x, bk_index_entry_fn *fn, void *ctx, struct sl_err *err);
/* The same without keeping what was read, and for a file with damage without the segments that are: *damaged is set
 * then. SL_EAGAIN: a file was removed meanwhile, load again. Not during find. */
SL_MUST_CHECK int sl__bk_index_scan(struct bk_index *x, bk_index_entry_fn *fn, void *ctx, bool *damaged,
				    struct sl_err *err);
/* The ordinals of a block's entries, usable or not, at most n of them. Returns how many there are, or a negative
 * SL_E…. */
SL_MUST_CHECK int sl__bk_index_ordinals(struct bk_index *x, const struct bk_id *id, uint64_t *out, size_t n,
					struct sl_err *err);
/* Each pack that a file names, once per file; usable as decided at loading. */
typedef int bk_index_pack_fn(const struct bk_id *pack, bool usable, void *ctx);
SL_MUST_CHECK int sl__bk_index_packs(struct bk_index *x, bk_index_pack_fn *fn, void *ctx);
/* The names ("index/…") of the files that are loaded, in order, and how many entries each has. */
const char *sl__bk_index_name(const struct bk_index *x, size_t i);
uint64_t sl__bk_index_file_entries(const struct bk_index *x, size_t i);
/* Read every segment now, so that later calls read nothing and ordinals stay as they are. A file with a damaged one is
 * reported to on_damaged and dropped with all its entries (NULL: SL_ECORRUPT). SL_EAGAIN: a file was removed meanwhile,
 * load again. Not during find. */
SL_MUST_CHECK int sl__bk_index_read_all(struct bk_index *x, bk_index_damaged_fn *on_damaged, void *ctx,
					struct sl_err *err);

/*
 * Making index files. Entries come in any order, pack by pack, from any thread. More than 64 Ki of them are sorted by
 * way of an unnamed temporary file (of TMPDIR), so that memory need not hold them.
 */
struct bk_index_builder;
SL_MUST_CHECK int sl__bk_index_builder_new(struct bk_index_builder **out, const struct sl_env *env,
					   const struct bk_keys *keys, struct sl_err *err);
void sl__bk_index_builder_free(struct bk_index_builder *b); /* NULL is allowed */
SL_MUST_CHECK int sl__bk_index_builder_pack(struct bk_index_builder *b, const struct bk_id *pack,
					    const struct bk_pack_block *blocks, size_t n, struct sl_err *err);
uint64_t sl__bk_index_builder_entries(const struct bk_index_builder *b);
/* Sort and put the object(s), durable when 0 returns (at most 2^19 entries a file, which are in memory for it); entries
 * of the same id and pack are one. Nothing is put when there is no entry. put may be NULL. The builder is empty
 * afterwards, also when it failed. Not during the others. */
struct bk_index_put {
	int (*on_name)(const char *name, void *ctx); /* gets each "index/…"; may be NULL */
	void *ctx;
	uint64_t bytes; /* what was put is added */
};
SL_MUST_CHECK int sl__bk_index_builder_put(struct bk_index_builder *b, const sl_driver *driver,
					   struct bk_index_put *put, struct sl_err *err);

/* All entries of an index whose pack keep says true to, for merging files; keep is called once per pack and file. */
typedef bool bk_index_keep_fn(const struct bk_id *pack, void *ctx);
SL_MUST_CHECK int sl__bk_index_builder_index(struct bk_index_builder *b, struct bk_index *x, bk_index_keep_fn *keep,
					     void *ctx, struct sl_err *err);
/* What the builder holds becomes one more file of the index, all usable, that is stored nowhere (its name is ""): packs
 * that no index file has. The builder is empty afterwards. Not during find. */
SL_MUST_CHECK int sl__bk_index_take_in(struct bk_index *x, struct bk_index_builder *b, struct sl_err *err);

/* ---- blocks that this run has met: a set of ids, at most 48 bytes each; from any number of threads ---- */
struct bk_seen;
SL_MUST_CHECK int sl__bk_seen_new(struct bk_seen **out, const struct sl_env *env, struct sl_err *err);
void sl__bk_seen_free(struct bk_seen *s);
/* 1: it is new and was added; 0: it was there; SL_ENOMEM. */
int sl__bk_seen_add(struct bk_seen *s, const struct bk_id *id);
bool sl__bk_seen_has(struct bk_seen *s, const struct bk_id *id);
uint64_t sl__bk_seen_count(struct bk_seen *s);

#endif
