/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is left of a snapshot, as a snapshot of its own: entries all of whose blocks are there. A hard link goes with
 * the file it names; a folder whose own entry is lost, but not what is in it, comes back as a plain one.
 *
 * It is made as a create makes one (F3, F5): by a session, and without counting on packs that a mark has named.
 */
#include "backup/check/repair.h"
#include "base/sha256.h"

#include <sluice/version.h>

struct rewriting {
	struct bk_repair *r;
	const char *id; /* of the old snapshot */
	struct bk_session *session;
	struct bk_index *index; /* that a create would have */
	struct bk_store *store;
	struct bk_manifest_writer *writer;
	struct bk_walk walk; /* over everything that is there */
	struct bk_reader *reader;
	struct bk_seen *linked; /* hashes of paths that are in, of files with several names */
	struct sl__buf folder;  /* path of the innermost folder that is open */
	bool missing;           /* of the entry at hand */
	struct sl_err err;
	uint64_t entries, files, bytes, lost;
};

/* ---- is everything there? ---- */

/* A block that only marked packs have is copied: who counts on it must not count on them. */
static int keep_block(struct rewriting *w, const struct bk_ref *ref, struct sl_err *err)
{
	const uint8_t *bytes = NULL;
	int rc = sl__bk_index_find(w->index, &ref->id, NULL, err);
	if (rc != SL_ENOENT)
		return rc;
	rc = sl__bk_read_block(w->reader, &ref->id, ref->len, &bytes, err);
	return rc == 0 ? sl__bk_store_block(w->store, 0, &(struct bk_block){&ref->id, bytes, ref->len}, NULL, err) : rc;
}

static int look_at_ref(const struct bk_ref *ref, void *ctx)
{
	struct rewriting *w = ctx;
	int rc = keep_block(w, ref, &w->err);
	if (rc == SL_ENOENT || rc == SL_ECORRUPT) {
		w->missing = true;
		return 1; /* no need to look at the others */
	}
	return rc;
}

static int is_whole(struct rewriting *w, const struct bk_entry *e, struct sl_err *err)
{
	w->missing = false;
	int rc = sl__bk_entry_all_refs(w->walk.lists, e, look_at_ref, w, &w->err);
	if (w->missing || rc == SL_ENOENT || rc == SL_ECORRUPT)
		return 0;
	if (rc != 0 && err != NULL)
		*err = w->err;
	return rc == 0 ? 1 : rc;
}

static int hash_path(const char *path, size_t len, struct bk_id *out, struct sl_err *err)
{
	return sl__sha256(path, len, out->b, err);
}

static int has_target(struct rewriting *w, const struct bk_entry *e, struct sl_err *err)
{
	struct bk_id id;
	int rc = hash_path(e->target, e->target_len, &id, err);
	return rc == 0 ? sl__bk_seen_has(w->linked, &id) : rc;
}

/* ---- into the new manifest ---- */

static int open_folder(struct rewriting *w, const char *path, size_t len, struct sl_err *err)
{
	sl__buf_clear(&w->folder);
	return sl__buf_append(&w->folder, path, len) == 0 ? 0 : sl__no_memory(err, "repair");
}

static bool is_open(const struct rewriting *w, const char *path, size_t len)
{
	size_t n = w->folder.len;
	return len == 0 ||
	       (n >= len && memcmp(w->folder.data, path, len) == 0 && (n == len || w->folder.data[len] == '/'));
}

/* The folders of a path whose own entries are lost. */
static int make_folders(struct rewriting *w, const char *path, size_t len, struct sl_err *err)
{
	int rc = 0;
	for (size_t at = 1; at < len && rc == 0; at++) {
		if (path[at] != '/' || is_open(w, path, at))
			continue;
		char *name = sl__calloc(&w->r->b->env, at + 1, 1);
		if (name == NULL)
			return sl__no_memory(err, "repair");
		memcpy(name, path, at);
		const struct bk_entry folder = {
			.type = SL_BACKUP_DIR, .path = name, .path_len = at, .mode = 0700, .nlink = 1};
		rc = sl__bk_manifest_add(w->writer, &folder, err);
		sl__free(&w->r->b->env, name);
		w->entries++;
		if (rc == 0)
			rc = open_folder(w, path, at, err);
	}
	return rc;
}

static int note_link(struct rewriting *w, const struct bk_entry *e, struct sl_err *err)
{
	struct bk_id id;
	if (e->type == SL_BACKUP_DIR || e->nlink < 2)
		return 0;
	int rc = hash_path(e->path, e->path_len, &id, err);
	return rc == 0 && sl__bk_seen_add(w->linked, &id) < 0 ? sl__no_memory(err, "repair") : rc;
}

static int keep_entry(struct rewriting *w, const struct bk_entry *e, struct sl_err *err)
{
	int rc = make_folders(w, e->path, e->path_len, err);
	if (rc == 0)
		rc = sl__bk_manifest_add(w->writer, e, err);
	if (rc == 0)
		rc = note_link(w, e, err);
	if (rc == 0 && e->type == SL_BACKUP_DIR)
		rc = open_folder(w, e->path, e->path_len, err);
	w->entries++;
	w->files += e->type == SL_BACKUP_FILE;
	w->bytes += e->type == SL_BACKUP_FILE ? e->size : 0;
	return rc;
}

static int lose_entry(struct rewriting *w, const struct bk_entry *e, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	char object[SL_DRIVER_NAME_BYTES] = "snapshots/";
	memcpy(object + strlen(object), w->id, BK_NAME_HEX);
	(void)sl_err_set(&why, SL_ECORRUPT, "the file is lost: not all of its blocks are there");
	w->lost++;
	return sl__bk_findings_add(&w->r->f, SL_BACKUP_FAULT_MISSING_BLOCK, false, object, w->id, e->path, &why, err);
}

static int judge_entry(const struct bk_entry *e, void *ctx, struct sl_err *err)
{
	struct rewriting *w = ctx;
	int rc = e->type == SL_BACKUP_HARDLINK ? has_target(w, e, err) : is_whole(w, e, err);
	if (rc < 0)
		return rc;
	return rc == 1 ? keep_entry(w, e, err) : lose_entry(w, e, err);
}

static int rewrite_block(struct rewriting *w, const struct bk_ref *ref, struct sl_err *err)
{
	struct sl_err why = SL_ERR_INIT;
	char object[BK_HEX_BYTES];
	int rc = sl__bk_walk_block(&w->walk, ref, judge_entry, w, &why);
	if (rc == 0)
		return 0;
	if (rc != SL_ENOENT && rc != SL_ECORRUPT) {
		if (err != NULL)
			*err = why;
		return rc;
	}
	sl__bk_hex(ref->id.b, BK_ID_BYTES, object);
	return sl__bk_findings_add(&w->r->f, SL_BACKUP_FAULT_MISSING_BLOCK, false, object, w->id, NULL, &why, err);
}

/* ---- and published ---- */

static int publish(struct rewriting *w, const struct bk_snapshot *old, struct sl_err *err)
{
	const struct sl_env *env = &w->r->b->env;
	struct bk_snapshot s = {.info = old->info};
	char *json = NULL;
	size_t len = 0;
	const char **tags = sl__calloc(env, old->info.tags_n + 1, sizeof(*tags));
	if (tags == NULL)
		return sl__no_memory(err, "repair");
	if (old->info.tags_n > 0)
		memcpy(tags, old->info.tags, old->info.tags_n * sizeof(*tags));
	tags[old->info.tags_n] = "repaired";
	s.info.tags = tags;
	s.info.tags_n = old->info.tags_n + 1;
	s.info.parent = w->id;
	s.info.entries = w->entries;
	s.info.files = w->files;
	s.info.bytes = w->bytes;
	s.info.problems += w->lost;
	s.info.version = sl_version();
	int rc = sl__bk_manifest_finish(w->writer, &s.manifest, &s.manifest_n, err);
	if (rc == 0)
		rc = sl__bk_store_finish(w->store, err);
	if (rc == 0)
		rc = sl__bk_snapshot_json(env, &s, &json, &len, err);
	if (rc == 0)
		rc = sl__bk_session_publish(w->session, json, len, err);
	sl__free(env, json);
	sl__free(env, s.manifest);
	sl__free(env, tags);
	return rc;
}

static int set_up(struct rewriting *w, const struct bk_view *view, struct sl_err *err)
{
	struct sl_backup *b = w->r->b;
	sl__buf_init(&w->folder, &b->env);
	int rc = sl__bk_session_begin(b, &w->session, err);
	if (rc == 0)
		rc = sl__bk_index_for_writing(b, &w->session->seen, &w->index, err);
	if (rc == 0)
		rc = sl__bk_store_new(&w->store, b, w->index, 1, err);
	if (rc == 0)
		rc = sl__bk_manifest_writer_new(&w->writer, b, w->store, 0, err);
	if (rc == 0)
		rc = sl__bk_walk_init(&w->walk, b, view->index, NULL, NULL, NULL, err);
	if (rc == 0)
		rc = sl__bk_reader_new(&w->reader, b, view->index, err);
	if (rc == 0)
		rc = sl__bk_seen_new(&w->linked, &b->env, err);
	return rc;
}

static void tear_down(struct rewriting *w)
{
	sl__bk_manifest_writer_free(w->writer);
	sl__bk_store_free(w->store);
	sl__bk_index_free(w->index);
	sl__bk_session_end(w->session);
	sl__bk_walk_fini(&w->walk);
	sl__bk_reader_free(w->reader);
	sl__bk_seen_free(w->linked);
	sl__buf_fini(&w->folder);
}

int sl__bk_rewrite_snapshot(struct bk_repair *r, const struct bk_view *view, const struct bk_snapshot *s,
			    const char *id, uint64_t *kept, struct sl_err *err)
{
	struct rewriting w = {.r = r, .id = id};
	int rc = set_up(&w, view, err);
	for (size_t i = 0; i < s->manifest_n && rc == 0; i++)
		rc = rewrite_block(&w, &s->manifest[i], err);
	if (rc == 0 && w.entries > 0)
		rc = publish(&w, s, err);
	tear_down(&w);
	if (rc != 0)
		return sl_err_wrap(err, rc, "repair: snapshot %.8s", id);
	r->out.files_lost += w.lost;
	*kept = w.entries;
	return 0;
}
