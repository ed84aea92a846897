/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repair of snapshots: which ones miss something, and what becomes of them.
 *
 * What is left of a snapshot is published as a new one: the entries whose blocks all exist. A hard link is kept or lost
 * with the file it names. A folder whose own entry is lost, but not what is in it, comes back as a plain folder.
 *
 * The new snapshot is made as a create makes one (F3, F5): in a session, and without relying on packs that a mark
 * names.
 */
#include "backup/check/repair.h"
#include "backup/helpers.h"
#include "base/sha256.h"

#include <sluice/version.h>
#include <stdio.h>

struct snapshot_repair {
	struct bk_repair *r;
	struct bk_view view; /* after packs and index were repaired */
	struct bk_choice choice;
	struct bk_walk walk;
	bool missing;           /* something that the current snapshot needs */
	struct bk_refs single;  /* metadata blocks that only one pack contains */
	struct bk_store *store; /* for a second copy of these */
	struct bk_reader *reader;
	char (*ids)[BK_NAME_HEX];
	size_t n_ids;
};

/* The rewriting of one snapshot. */
struct rewriting {
	struct bk_repair *r;
	const char *id; /* of the old snapshot */
	struct bk_session *session;
	struct bk_index *index; /* that a create would use */
	struct bk_store *store;
	struct bk_manifest_writer *writer;
	struct bk_walk walk; /* over everything that exists */
	struct bk_reader *reader;
	struct bk_seen *linked; /* hashes of the paths of kept files that have several names */
	struct sl__buf folder;  /* path of the innermost open folder */
	bool missing;           /* a block of the current entry */
	struct sl_err err;
	uint64_t entries, files, bytes, lost;
};

/* ---- does everything that an entry needs exist? ---- */

/* A block that only marked packs contain is copied: the new snapshot must not rely on them. */
static int keep_ref(const struct bk_ref *ref, void *ctx)
{
	struct rewriting *w = ctx;
	const uint8_t *bytes = NULL;
	int rc = sl__bk_index_find(w->index, &ref->id, NULL, &w->err);
	if (rc == SL_ENOENT) {
		rc = sl__bk_read_block(w->reader, &ref->id, ref->len, &bytes, &w->err);
		if (rc == 0)
			rc = sl__bk_store_block(w->store, 0, &(struct bk_block){&ref->id, bytes, ref->len}, NULL,
						&w->err);
	}
	if (rc != SL_ENOENT && rc != SL_ECORRUPT)
		return rc;
	w->missing = true;
	return 1; /* the others need not be read */
}

/* ---- the new manifest ---- */

static int enter_folder(struct rewriting *w, const char *path, size_t len, struct sl_err *err)
{
	sl__buf_clear(&w->folder);
	return sl__buf_append(&w->folder, path, len) == 0 ? 0 : sl__no_memory(err, "repair");
}

/* Add the folders of a path whose own entries are lost. */
static int add_lost_folders(struct rewriting *w, const char *path, size_t len, struct sl_err *err)
{
	const struct sl_env *env = &w->r->b->env;
	for (size_t at = 1; at < len; at++) {
		const struct sl__buf *open = &w->folder;
		if (path[at] != '/' || (open->len >= at && memcmp(open->data, path, at) == 0 &&
					(open->len == at || open->data[at] == '/')))
			continue;
		char *name = sl__calloc(env, at + 1, 1);
		if (name == NULL)
			return sl__no_memory(err, "repair");
		memcpy(name, path, at);
		const struct bk_entry folder = {
			.type = SL_BACKUP_DIR, .path = name, .path_len = at, .mode = 0700, .nlink = 1};
		int rc = sl__bk_manifest_add(w->writer, &folder, err);
		sl__free(env, name);
		w->entries++;
		if (rc == 0)
			rc = enter_folder(w, path, at, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int rewrite_entry(const struct bk_entry *e, struct sl_err *err, void *ctx)
{
	struct rewriting *w = ctx;
	struct bk_id id;
	int rc = 0;

	/* Does everything that it needs exist? */
	w->missing = false;
	if (e->type == SL_BACKUP_HARDLINK) {
		rc = sl__sha256(e->target, e->target_len, id.b, err);
		w->missing = rc == 0 && !sl__bk_seen_has(w->linked, &id);
	} else {
		rc = sl__bk_entry_all_refs(w->walk.lists, e, keep_ref, w, &w->err);
		w->missing = w->missing || rc == SL_ENOENT || rc == SL_ECORRUPT;
		if (w->missing)
			rc = 0;
		else if (rc != 0 && err != NULL)
			*err = w->err;
	}
	if (rc != 0)
		return rc;
	if (w->missing) {
		char object[SL_DRIVER_NAME_BYTES];
		struct sl_backup_finding x = {
			.fault = SL_BACKUP_FAULT_MISSING_BLOCK, .object = object, .snapshot = w->id, .path = e->path};
		(void)snprintf(object, sizeof(object), "snapshots/%s", w->id);
		(void)sl_err_set(&x.reason, SL_ECORRUPT, "the file is lost: some of its blocks are missing");
		w->lost++;
		return sl__bk_findings_add(&w->r->f, &x, err);
	}

	/* Then it is kept. */
	rc = add_lost_folders(w, e->path, e->path_len, err);
	if (rc == 0)
		rc = sl__bk_manifest_add(w->writer, e, err);
	if (rc != 0)
		return rc;
	w->entries++;
	w->files += e->type == SL_BACKUP_FILE;
	w->bytes += e->type == SL_BACKUP_FILE ? e->size : 0;
	if (e->type == SL_BACKUP_DIR)
		return enter_folder(w, e->path, e->path_len, err);
	if (e->nlink < 2)
		return 0;
	rc = sl__sha256(e->path, e->path_len, id.b, err);
	if (rc != 0)
		return rc;
	return sl__bk_seen_add(w->linked, &id) < 0 ? sl__no_memory(err, "repair") : 0;
}

static int publish_rewritten(struct rewriting *w, const struct bk_snapshot *old, struct sl_err *err)
{
	const struct sl_env *env = &w->r->b->env;
	struct bk_snapshot s = {.info = old->info};
	char *json = NULL;
	size_t len = 0;
	const char **tags = sl__calloc(env, old->info.n_tags + 1, sizeof(*tags));
	if (tags == NULL)
		return sl__no_memory(err, "repair");
	if (old->info.n_tags > 0)
		memcpy(tags, old->info.tags, old->info.n_tags * sizeof(*tags));
	tags[old->info.n_tags] = "repaired";
	s.info.tags = tags;
	s.info.n_tags = old->info.n_tags + 1;
	s.info.parent = w->id;
	s.info.entries = w->entries;
	s.info.files = w->files;
	s.info.bytes = w->bytes;
	s.info.problems += w->lost;
	s.info.version = sl_version();
	int rc = sl__bk_manifest_finish(w->writer, &s.manifest, &s.n_manifest, err);
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

static int open_rewriting(struct rewriting *w, struct bk_index *existing, struct sl_err *err)
{
	struct sl_backup *b = w->r->b;
	int rc = sl__bk_session_begin(b, &w->session, err);
	if (rc == 0)
		rc = sl__bk_index_for_writing(b, &w->session->seen, &w->index, err);
	if (rc == 0)
		rc = sl__bk_store_new(&w->store, b, w->index, 1, err);
	if (rc == 0)
		rc = sl__bk_manifest_writer_new(&w->writer, b, w->store, 0, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_walk_init(&w->walk, existing, err);
	if (rc == 0)
		rc = sl__bk_reader_new(&w->reader, b, existing, err);
	if (rc == 0)
		rc = sl__bk_seen_new(&w->linked, &b->env, err);
	return rc;
}

static void close_rewriting(struct rewriting *w)
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

/* Publish what is left of a snapshot. *kept: its entries; when 0, nothing is published. */
static int rewrite_snapshot(struct snapshot_repair *m, const struct bk_snapshot *s, const char *id, uint64_t *kept,
			    struct sl_err *err)
{
	struct sl_backup *b = m->r->b;
	struct rewriting w SL_CLEANUP(close_rewriting) = {.r = m->r, .id = id, .walk.b = b};
	sl__buf_init(&w.folder, &b->env);
	int rc = open_rewriting(&w, m->view.index, err);
	for (size_t i = 0; i < s->n_manifest && rc == 0; i++) {
		struct sl_err why = SL_ERR_INIT;
		rc = sl__bk_walk_block(&w.walk, &s->manifest[i], rewrite_entry, &w, &why);
		if (rc == SL_ENOENT || rc == SL_ECORRUPT) {
			char object[BK_HEX_BYTES];
			const struct sl_backup_finding x = {.fault = SL_BACKUP_FAULT_MISSING_BLOCK,
							    .object = object,
							    .snapshot = id,
							    .reason = why};
			sl__bk_hex(s->manifest[i].id.b, BK_ID_BYTES, object);
			rc = sl__bk_findings_add(&m->r->f, &x, err);
		} else if (rc != 0 && err != NULL) {
			*err = why;
		}
	}
	if (rc == 0 && w.entries > 0)
		rc = publish_rewritten(&w, s, err);
	if (rc != 0)
		return sl_err_wrap(err, rc, "repair: snapshot %.8s", id);
	m->r->out.files_lost += w.lost;
	*kept = w.entries;
	return 0;
}

/* ---- snapshots that miss something ---- */

/* Quarantine a snapshot. Its copy is removed before, else it would count as the snapshot. why: it is lost. */
static int quarantine_snapshot(struct snapshot_repair *m, const char *id, const struct sl_err *why, struct sl_err *err)
{
	char name[SL_DRIVER_NAME_BYTES];
	struct sl_backup_finding x = {.fault = SL_BACKUP_FAULT_SNAPSHOT, .object = name, .snapshot = id};
	int rc = 0;
	(void)snprintf(name, sizeof(name), "snapshots/%s", id);
	if (why != NULL) {
		x.reason = *why;
		rc = sl__bk_findings_add(&m->r->f, &x, err);
	}
	if (rc == 0)
		rc = sl__bk_snapshot_remove_copy(m->r->b, id, err);
	if (rc == 0)
		rc = sl__bk_put_aside(m->r->b, name, err);
	if (why != NULL)
		m->r->out.snapshots_lost += rc == 0;
	return rc;
}

/* 1: an earlier repair died after it published the copy of this snapshot, and before it quarantined the old one. */
static int has_repaired_copy(struct snapshot_repair *m, const char *id, struct sl_err *err)
{
	for (size_t i = 0; i < m->n_ids; i++) {
		struct bk_snapshot s = {.manifest = NULL};
		int rc = sl__bk_snapshot_load(m->r->b, m->ids[i], &s, err);
		bool tagged = false;
		for (size_t k = 0; k < s.info.n_tags && rc == 0; k++)
			tagged = tagged || strcmp(s.info.tags[k], "repaired") == 0;
		bool found = tagged && s.info.parent != NULL && strcmp(s.info.parent, id) == 0;
		sl__bk_snapshot_fini(&m->r->b->env, &s);
		if (found)
			return 1;
		if (rc != 0 && rc != SL_ENOENT && rc != SL_ECORRUPT && rc != SL_EUNSUPPORTED)
			return rc;
	}
	return 0;
}

static int repair_snapshot(struct snapshot_repair *m, const char *id, struct sl_err *err)
{
	struct bk_snapshot s = {.manifest = NULL};
	struct sl_err why = SL_ERR_INIT;
	struct bk_care care = {.fn = sl__bk_findings_take, .ctx = &m->r->f, .repair = true};
	int rc = sl__bk_snapshot_care(m->r->b, id, &care, err);
	m->r->out.copies_repaired += care.repaired;
	if (rc != 0)
		return rc;
	rc = sl__bk_snapshot_load(m->r->b, id, &s, &why);
	if (rc == SL_ECORRUPT)
		return quarantine_snapshot(m, id, &why, err);
	if (rc == SL_ENOENT || rc == SL_EUNSUPPORTED) /* forgotten since; or of a later version, which is left alone */
		return 0;
	if (rc != 0) {
		return sl__bk_result(rc, &why, err);
	}
	m->missing = false;
	rc = sl__bk_walk_snapshot(&m->walk, &s, err);
	if (rc == 0 && m->missing) {
		/* Replace it by what is left of it. */
		uint64_t kept = 1;
		rc = has_repaired_copy(m, id, err);
		if (rc == 0)
			rc = rewrite_snapshot(m, &s, id, &kept, err);
		if (rc >= 0 && kept == 0) {
			(void)sl_err_set(&why, SL_ECORRUPT, "nothing of it is left");
			rc = quarantine_snapshot(m, id, &why, err);
		} else if (rc >= 0) {
			m->r->out.snapshots_rewritten++;
			rc = quarantine_snapshot(m, id, NULL, err);
		}
	}
	sl__bk_snapshot_fini(&m->r->b->env, &s);
	return rc;
}

/* ---- all snapshots ---- */

static int repair_needs_block(const struct bk_ref *ref, SL_UNUSED const char *path, bool metadata, struct sl_err *err,
			      void *ctx)
{
	struct snapshot_repair *m = ctx;
	int rc = sl__bk_choose(&m->choice, &ref->id, metadata ? BK_METADATA_COPIES : 1, err);
	if (rc == SL_ENOENT) {
		m->missing = true;
		return 1;
	}
	if (rc == 1 && metadata && sl__bk_refs_add(&m->r->b->env, &m->single, ref) != 0)
		return sl__no_memory(err, "repair");
	return rc > 0 ? 0 : rc;
}

static int note_unread_block(SL_UNUSED const struct bk_ref *ref, SL_UNUSED const char *path,
			     SL_UNUSED const struct sl_err *why, SL_UNUSED struct sl_err *err, void *ctx)
{
	struct snapshot_repair *m = ctx;
	m->missing = true;
	return 1;
}

/* Put metadata that only one pack contains into a second one. What cannot be read is reported as missing elsewhere. */
static int double_metadata(struct snapshot_repair *m, struct sl_err *err)
{
	struct sl_backup *b = m->r->b;
	uint64_t doubled = 0;
	int rc = sl__bk_store_new(&m->store, b, NULL, 1, err);
	if (rc == 0)
		rc = sl__bk_reader_new(&m->reader, b, m->view.index, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < m->single.n; i++) {
		const struct bk_ref *ref = &m->single.refs[i];
		const uint8_t *bytes = NULL;
		rc = sl__bk_read_block(m->reader, &ref->id, ref->len, &bytes, err);
		if (rc == SL_ENOENT || rc == SL_ECORRUPT)
			continue;
		if (rc == 0)
			rc = sl__bk_store_put_always(m->store, 0, &(struct bk_block){&ref->id, bytes, ref->len}, 1,
						     err);
		if (rc != 0)
			return rc;
		doubled++;
	}
	rc = sl__bk_store_finish(m->store, err);
	m->r->out.copies_repaired += rc == 0 ? doubled : 0;
	return rc;
}

static void fini_snapshot_repair(struct snapshot_repair *m)
{
	sl__bk_reader_free(m->reader);
	sl__bk_store_free(m->store);
	sl__free(&m->r->b->env, m->ids);
	sl__free(&m->r->b->env, m->single.refs);
	sl__bk_walk_fini(&m->walk);
	sl__bk_choice_fini(&m->choice);
	sl__bk_view_fini(&m->view);
}

int sl__bk_repair_snapshots(struct bk_repair *r, struct sl_err *err)
{
	struct snapshot_repair m SL_CLEANUP(fini_snapshot_repair) = {.r = r};
	m.walk = (struct bk_walk){.b = r->b, .need = repair_needs_block, .unread = note_unread_block, .ctx = &m};
	int rc = sl__bk_view_load(r->b, &m.view, NULL, err);
	if (rc == 0)
		rc = sl__bk_choice_init(&m.choice, &m.view, NULL, NULL, err);
	if (rc == 0)
		rc = sl__bk_walk_init(&m.walk, m.view.index, err);
	if (rc != 0)
		return rc;
	rc = sl__bk_snapshot_ids(r->b, &m.ids, &m.n_ids, err);
	for (size_t i = 0; i < m.n_ids && rc == 0; i++)
		rc = repair_snapshot(&m, m.ids[i], err);
	if (rc == 0 && m.single.n > 0)
		rc = double_metadata(&m, err);
	return rc;
}
