/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handle of <sluice/backup.h>, and what all calls on a repository share: its objects by kind, the packs that
 * are there, sessions and marks, blocks read through a cache of frames.
 *
 * Thread safety: a struct sl_backup belongs to the thread of the running call, but for `stopping` and `progress`.
 * A struct bk_reader belongs to one thread.
 */
#ifndef SL_BACKUP_REPO_H
#define SL_BACKUP_REPO_H

#include <stdatomic.h>

#include "backup/create/chunker.h"
#include "backup/pack/index.h"
#include "base/fork_guard.h"
#include "base/thread.h"
#include <sluice/backup_care.h>

struct sl_backup {
	struct sl_env env;
	sl_driver driver;
	struct sl_backup_opts opts; /* defaults filled in; without the passphrase */
	struct bk_keys keys;
	struct bk_chunker chunker;
	struct sl__fork_guard guard;
	atomic_bool stopping; /* set by sl_backup_stop, cleared when a call begins */
	sl__mutex mu;         /* of progress */
	struct sl_backup_progress progress;
};

/* Every public call begins with it: fork guard, stopping and progress reset. */
SL_MUST_CHECK int sl__bk_begin(struct sl_backup *b, const char *phase, struct sl_err *err);
/* SL_ECANCELLED once sl_backup_stop was called. To be asked at least once per file and per frame. */
SL_MUST_CHECK int sl__bk_check_stop(struct sl_backup *b, struct sl_err *err);

/* ---- objects ---- */

/* The bytes of an object in fresh memory, with a NUL after them. */
struct bk_opened {
	uint8_t *memory; /* sl__free */
	const char *text;
	size_t len;
};
SL_MUST_CHECK int sl__bk_get_all(struct sl_backup *b, const char *name, size_t max, struct bk_opened *out,
				 struct sl_err *err);                            /* SL_ETOOBIG above max. SL_ENOENT. */
void sl__bk_pack_name(const struct bk_id *pack, char out[SL_DRIVER_NAME_BYTES]); /* packs/3f/3fa2… */
/* A random id of BK_NAME_HEX characters. */
SL_MUST_CHECK int sl__bk_new_name(const struct sl_env *env, char out[BK_NAME_HEX], struct sl_err *err);
bool sl__bk_is_name(const char *text);

/* An object <folder>/<id> that is sealed, the id bound in. SL_ECORRUPT names it. */
struct bk_object {
	const char *folder, *id;
	enum bk_kind kind;
};
SL_MUST_CHECK int sl__bk_get_sealed(struct sl_backup *b, const struct bk_object *object, size_t max,
				    struct bk_opened *out, struct sl_err *err);
SL_MUST_CHECK int sl__bk_put_sealed(struct sl_backup *b, const struct bk_object *object, struct bk_bytes bytes,
				    enum sl_driver_put how, struct sl_err *err);
/* It may be gone already. */
SL_MUST_CHECK int sl__bk_remove(struct sl_backup *b, const char *name, struct sl_err *err);

/* The objects of a folder whose names are random ids, sorted; others are skipped. sl__free. */
struct bk_listed {
	char id[BK_NAME_HEX];
	struct sl_driver_stat stat;
};
SL_MUST_CHECK int sl__bk_list_names(struct sl_backup *b, const char *folder, struct bk_listed **out, size_t *n,
				    struct sl_err *err);

/* A set of ids: packs that are there, that are marked for deletion, …. Sorted after the last add. */
struct bk_ids {
	struct bk_id *ids;
	size_t n, cap;
};
void sl__bk_ids_fini(const struct sl_env *env, struct bk_ids *s);
SL_MUST_CHECK int sl__bk_ids_add(const struct sl_env *env, struct bk_ids *s, const struct bk_id *id);
void sl__bk_ids_sort(struct bk_ids *s);                                              /* and remove duplicates */
const struct bk_id *sl__bk_ids_find(const struct bk_ids *s, const struct bk_id *id); /* or NULL */
bool sl__bk_ids_has(const struct bk_ids *s, const struct bk_id *id);

/* All packs by the driver's list, sorted; sizes (may be NULL; sl__free) in the same order. Names that are not packs' are
 * reported as strays (may be NULL). */
struct bk_strays {
	void (*fn)(const char *name, void *ctx); /* may be NULL */
	void *ctx;
};
SL_MUST_CHECK int sl__bk_list_packs(struct sl_backup *b, struct bk_ids *out, uint64_t **sizes,
				    const struct bk_strays *strays, struct sl_err *err);

/* A pack and its blocks, in the order of their places. The caller frees blocks (sl__free), also after a failure. */
struct bk_pack_blocks {
	struct bk_id pack;
	uint64_t size;
	struct bk_pack_block *blocks;
	size_t n, cap;
};
/* Add the blocks of p->pack (p->size bytes) that its directory lists, which is read from the pack's end. */
SL_MUST_CHECK int sl__bk_directory_blocks(struct sl_backup *b, struct bk_pack_blocks *p, struct sl_err *err);
SL_MUST_CHECK int sl__bk_pack_blocks_add(const struct sl_env *env, struct bk_pack_blocks *p, const struct bk_id *id,
					 const struct bk_place *place);

/* ---- marks: marks/<id>, sealed; JSON: {"version":1,"packs":["…"]} ---- */
struct bk_mark {
	char id[BK_NAME_HEX];
	struct bk_ids packs;
};
struct bk_marks {
	struct bk_mark *marks;
	size_t n;
};
/* A mark that is listed and then not there is skipped: its packs are gone (F4). A damaged one is SL_ECORRUPT with
 * its name. */
SL_MUST_CHECK int sl__bk_marks_load(struct sl_backup *b, struct bk_marks *out, struct sl_err *err);
/* Marks that are in neither known nor newer are added to newer, after the others; when there are none, this is one
 * listing. *vanished: one was listed and is not there, and what it named is unknown. On failure newer has what was
 * added before. */
SL_MUST_CHECK int sl__bk_marks_newer(struct sl_backup *b, const struct bk_marks *known, struct bk_marks *newer,
				     bool *vanished, struct sl_err *err);
void sl__bk_marks_fini(const struct sl_env *env, struct bk_marks *m);
bool sl__bk_marks_have(const struct bk_marks *m, const struct bk_id *pack);
SL_MUST_CHECK int sl__bk_mark_put(struct sl_backup *b, const struct bk_ids *packs, char id[BK_NAME_HEX],
				  struct sl_err *err);

/*
 * ---- sessions: sessions/<id>, sealed ----
 *
 * JSON: {"version":1,"host":…,"pid":…,"started_ms":…,"ready":true,"seen":[mark ids]}
 *
 * begin: put it with "ready":false, then load the marks, then update it with what was seen. Only then may the packs be
 * listed and the index be loaded. A session that is not ready has seen nothing. The heartbeat puts it again every minute
 * from its own thread; when that finds it gone, the session is lost.
 */
#define BK_HEARTBEAT_MS 60000

struct bk_beat;

struct bk_session {
	struct sl_backup *b;
	char id[BK_NAME_HEX]; /* the snapshot's, once it is published */
	struct bk_marks seen;
	int64_t started_ms;
	bool published;
	struct bk_beat *beat;
};
SL_MUST_CHECK int sl__bk_session_begin(struct sl_backup *b, struct bk_session **out, struct sl_err *err);
/* Put the sealed snapshot into the session object and rename it to snapshots/<id>. SL_EAGAIN: a prune removed the
 * session. Ends the session in any case; sl__bk_session_end frees s. */
SL_MUST_CHECK int sl__bk_session_publish(struct bk_session *s, const void *json, size_t len, struct sl_err *err);
/* The code of a failure of what the session does, or SL_EAGAIN when the reason may be that a prune removed the
 * session: what it relied on, and what it stored, may then have been deleted. NULL is allowed. */
SL_MUST_CHECK int sl__bk_session_why(struct bk_session *s, int rc, struct sl_err *err);
/* Remove it when it was not published, and free. NULL is allowed. */
void sl__bk_session_end(struct bk_session *s);

struct bk_session_info {
	char id[BK_NAME_HEX];
	int64_t mtime_ms;
	bool ready;
	char (*seen)[BK_NAME_HEX];
	size_t n_seen;
};
typedef int bk_session_fn(const struct bk_session_info *info, void *ctx);
/* One that cannot be read is reported as not ready. */
SL_MUST_CHECK int sl__bk_sessions_each(struct sl_backup *b, bk_session_fn *fn, void *ctx, struct sl_err *err);

/* ---- snapshots ---- */
struct bk_ref { /* a block and its length */
	struct bk_id id;
	uint32_t len;
};
struct bk_snapshot {
	struct sl_backup_snapshot info; /* its strings live as long as this */
	struct bk_ref *manifest;        /* the blocks of the manifest stream, in order */
	size_t n_manifest;
	void *json; /* keeps the strings */
};
SL_MUST_CHECK int sl__bk_snapshot_load(struct sl_backup *b, const char *id, struct bk_snapshot *out,
				       struct sl_err *err);
/* What load does with the opened bytes; for fuzzers. */
SL_MUST_CHECK int sl__bk_snapshot_parse(const struct sl_env *env, const char *id, struct bk_bytes json,
					struct bk_snapshot *out, struct sl_err *err);
void sl__bk_snapshot_fini(const struct sl_env *env, struct bk_snapshot *s);
/* The JSON that publish takes, in fresh memory (sl__free); out->info gives the values, id and struct_size are not used.
 */
SL_MUST_CHECK int sl__bk_snapshot_json(const struct sl_env *env, const struct bk_snapshot *s, char **json, size_t *len,
				       struct sl_err *err);
/* The ids of all snapshots, sorted by name. free with sl__free. */
SL_MUST_CHECK int sl__bk_snapshot_ids(struct sl_backup *b, char (**ids)[BK_NAME_HEX], size_t *n, struct sl_err *err);

/* sl_backup_resolve inside of a call that has begun. */
SL_MUST_CHECK int sl__bk_resolve(struct sl_backup *b, const char *name, char id[SL_BACKUP_ID_BYTES],
				 struct sl_err *err);

/* ---- reading blocks ---- */
struct bk_reader;
/* Several readers share an index; each caches the frames it opened last (4). When a pack is gone (a prune has copied
 * what was needed of it), a reader loads its own index and looks again. */
SL_MUST_CHECK int sl__bk_reader_new(struct bk_reader **out, struct sl_backup *b, struct bk_index *index,
				    struct sl_err *err);
void sl__bk_reader_free(struct bk_reader *r); /* NULL is allowed */
/* The bytes of a block, compared with its id; valid until the next call. Where it is damaged, or the storage cannot
 * read it, another pack that has it is read. SL_ENOENT: no usable pack has it (err says which block); SL_ECORRUPT:
 * damaged in all of them. */
SL_MUST_CHECK int sl__bk_read_block(struct bk_reader *r, const struct bk_id *id, uint32_t expected_len,
				    const uint8_t **bytes, struct sl_err *err);

/* The index of everything that is there, for reading: packs that exist, marked for deletion or not; packs that are in no
 * index are taken in from their directories. Index files and packs that are damaged are skipped, and logged. */
SL_MUST_CHECK int sl__bk_index_for_reading(struct sl_backup *b, struct bk_index **out, struct sl_err *err);
/* The same without index files that are damaged anywhere, for a caller that has met one: all of the index is read. */
SL_MUST_CHECK int sl__bk_index_around_damage(struct sl_backup *b, struct bk_index **out, struct sl_err *err);
/* The same for a create (F3, F5): without packs that a mark of seen has named, and without those that are shorter than
 * the index says. Packs that are in no index, left by an interrupted create, are synced and put into an index file
 * first, so that a snapshot may rely on them. */
SL_MUST_CHECK int sl__bk_index_for_writing(struct sl_backup *b, const struct bk_marks *seen, struct bk_index **out,
					   struct sl_err *err);

#endif
