/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Archives. A segment goes in these steps, and a crash between any two loses nothing:
 *
 *   1  DIR/.<segment>.zst.tmp-<random>: compressed, synced, read back       (a crash leaves a temporary file, which the
 *   2  renamed to a name that is free, DIR synced                            next archive of this stream removes)
 *   3  the segment is removed, its folder synced                            (a crash before leaves both: the next
 *                                                                            archive finds the content there,
 *                                                                            continues)
 *
 * A1  Nothing is removed before an archive that holds all its bytes is on disk under its own name.
 * A2  No archive is ever replaced. A name that is taken by another content is left alone.
 * A3  Of a whole log, everything is published before anything is removed.
 * A4  Numbering never restarts under one incarnation: the active file is removed last, and until then it holds data or
 *     a status record that mentions a sequence above all others. So the newest sealed segment of a live log
 *     stays while the active file has no data, and before a whole log goes, such a file gets such a record.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "wal/archive_zst.h"
#include "wal/segs.h"
#include "wal/sender.h"

#define RETRY_MS 60000 /* after an archive of a settled segment failed */
#define MAX_VARIANTS 10000
#define MAX_RACES 10

/* ---- one segment ---- */

/* A file of the log that becomes an archive. */
struct publication {
	const sl_wal *w;
	const char *dir;     /* exists */
	const char *segment; /* file name, without its folder */
	struct wal_zst_source from;
};

/* Find the name for it: *out is in fresh memory. *there: that name holds all its bytes already. */
static int choose_archive_name(const struct publication *p, char **out, bool *there, struct sl_err *err)
{
	const struct sl_env *env = &p->w->env;
	bool with_incarnation = false;
	for (unsigned n = 1; n <= MAX_VARIANTS; n++) {
		enum wal_zst_match match = WAL_ZST_DIFFERS;
		char incarnation[16] = "", number[16] = "";
		if (with_incarnation)
			(void)snprintf(incarnation, sizeof(incarnation), ".%06x", p->w->header.incarnation & 0xFFFFFFu);
		if (n > 1)
			(void)snprintf(number, sizeof(number), "-%u", n);
		char *path = sl__asprintf(env, "%s/%s%s%s.zst", p->dir, p->segment, incarnation, number);
		if (path == NULL)
			return sl_err_set(err, SL_ENOMEM, "archive %s: out of memory", p->segment);
		struct sl_err why = SL_ERR_INIT;
		int rc = sl__wal_zst_compare(&p->from, path, &match, &why);
		if (rc == SL_ENOENT || (rc == 0 && match == WAL_ZST_HOLDS)) {
			*there = rc == 0;
			*out = path;
			return 0;
		}
		sl__free(env, path);
		if (rc != 0) {
			if (err != NULL)
				*err = why;
			return rc;
		}
		if (n == 1 && !with_incarnation && match == WAL_ZST_STRANGER) {
			with_incarnation = true;
			n = 0;
		}
	}
	return sl_err_set(err, SL_EEXIST, "archive %s: every name in %s is taken; move old archives elsewhere",
			  p->segment, p->dir);
}

/* Steps 1 and 2 up to the sync of the folder. SL_EEXIST: the name was taken meanwhile. */
static int write_archive(const struct publication *p, const char *path, struct sl_err *err)
{
	const struct sl_env *env = &p->w->env;
	struct sl__prng prng;
	int fd = -1;
	sl__prng_init(&prng, env);
	char *temp = sl__asprintf(env, "%s/.%s.zst.tmp-%016llx", p->dir, p->segment,
				  (unsigned long long)sl__prng_next(&prng));
	if (temp == NULL)
		return sl_err_set(err, SL_ENOMEM, "archive %s: out of memory", p->segment);
	int code = sl__wal_zst_write(&p->from, temp, p->w->opts.archive_level, &fd, err);
	if (code == 0) {
		int rc = SL__IO(env, rename, temp, path, 1);
		if (rc < 0) {
			code = sl_err_set_errno(err, -rc, "archive %s: rename to %s", p->segment, path);
			(void)SL__IO(env, unlink, temp);
		}
		(void)SL__IO(env, close, fd);
	}
	sl__free(env, temp);
	return code;
}

/* When 0 returns, an archive that holds the segment's bytes is in dir, synced with its name, and was read back. One
 * that was there already is enough; no other is touched. */
static int publish_archive(const struct publication *p, struct sl_err *err)
{
	const struct sl_env *env = &p->w->env;
	int code = SL_EEXIST;
	for (int tries = 0; tries < MAX_RACES && code == SL_EEXIST; tries++) {
		char *path = NULL;
		bool there = false;
		code = choose_archive_name(p, &path, &there, err);
		if (code != 0)
			continue;
		int rc = 0;
		if (there) {
			/* It may not be on disk yet: its writer may have been interrupted. */
			int fd = SL__IO(env, open, path, O_RDONLY | O_NOFOLLOW, 0);
			rc = fd < 0 ? fd : SL__IO(env, sync, fd);
			if (fd >= 0)
				(void)SL__IO(env, close, fd);
			if (rc < 0)
				code = sl_err_set_errno(err, -rc, "archive %s: sync", path);
		} else {
			code = write_archive(p, path, err);
		}
		if (code == 0 && (rc = sl__sync_dir(env, p->dir)) < 0)
			code = sl_err_set_errno(err, -rc, "archive %s: sync the folder", path);
		sl__free(env, path);
	}
	return code;
}

static int publish_sealed(const sl_wal *w, const struct wal_segment *seg, const char *dir, struct sl_err *err)
{
	char *path = sl__wal_file_path(&w->env, w->dir, w->id, seg->first);
	if (path == NULL)
		return sl_err_set(err, SL_ENOMEM, "archive %s: out of memory", w->path);
	int rc, fd = SL__IO(&w->env, open, path, O_RDONLY | O_NOFOLLOW, 0);
	if (fd < 0) {
		rc = sl_err_set_errno(err, -fd, "archive %s: open", path);
	} else {
		struct publication p = {
			.w = w, .dir = dir, .segment = sl__basename(path), .from = {&w->env, fd, seg->bytes}};
		rc = publish_archive(&p, err);
		(void)SL__IO(&w->env, close, fd);
	}
	sl__free(&w->env, path);
	return rc;
}

/* Step 3. */
static int remove_file(const sl_wal *w, const char *path, struct sl_err *err)
{
	int rc = SL__IO(&w->env, unlink, path);
	if (rc == -ENOENT)
		rc = 0;
	if (rc == 0)
		rc = sl__sync_dir(&w->env, w->dir);
	return rc < 0 ? sl_err_set_errno(err, -rc, "remove %s, which was archived", path) : 0;
}

static int remove_sealed(const sl_wal *w, const struct wal_segment *seg, struct sl_err *err)
{
	char *path = sl__wal_file_path(&w->env, w->dir, w->id, seg->first);
	if (path == NULL)
		return sl_err_set(err, SL_ENOMEM, "archive %s: out of memory", w->path);
	int rc = remove_file(w, path, err);
	sl__free(&w->env, path);
	return rc;
}

/* ---- what a crash left ---- */

struct temps {
	const sl_wal *w;
	const char *dir;
	char *names[16]; /* more wait for the next time */
	size_t n;
};

static int on_temp(const char *name, void *ctx)
{
	struct temps *t = ctx;
	const char *id_at;
	size_t id_len;
	if (!sl__wal_archive_temp_name(name, &id_at, &id_len) || id_len != strlen(t->w->id) ||
	    memcmp(id_at, t->w->id, id_len) != 0)
		return 0;
	char *path = sl__asprintf(&t->w->env, "%s/%s", t->dir, name);
	if (path == NULL)
		return 1;
	t->names[t->n++] = path;
	return t->n == SL_COUNT(t->names);
}

static int make_archive_dir(const sl_wal *w, const char *dir, struct sl_err *err)
{
	int rc = sl_check_local_path("archive folder", dir, err);
	if (rc != 0)
		return rc;
	rc = sl__mkdirs(&w->env, dir);
	if (rc < 0)
		return sl__wal_create_code(sl_err_set_errno(err, -rc, "archive %s: create %s", w->path, dir), err);
	struct temps t = {.w = w, .dir = dir};
	/* Leftovers are harmless: what cannot be removed now is removed later. */
	(void)SL__IO(&w->env, list, dir, on_temp, &t);
	for (size_t i = 0; i < t.n; i++) {
		/* One that is locked is being written: a log of the same id in another folder may go to the same
		 * archive. */
		int fd = SL__IO(&w->env, open, t.names[i], O_RDWR | O_NOFOLLOW, 0);
		if (fd >= 0 && SL__IO(&w->env, lock, fd) == 0)
			(void)SL__IO(&w->env, unlink, t.names[i]);
		if (fd >= 0)
			(void)SL__IO(&w->env, close, fd);
		sl__free(&w->env, t.names[i]);
	}
	return 0;
}

/* ---- a whole log ---- */

static int keep_record_status(const struct sl_wal_record *record, void *ctx)
{
	*(enum sl_wal_status *)ctx = record->status;
	return 0;
}

static int may_archive(sl_wal *w, bool include_pending, struct sl_err *err) SL_REQUIRES(w->mu)
{
	int rc = sl__wal_usable(w, err);
	if (rc != 0)
		return rc;
	if (!sl__wal_sender_idle(w))
		return sl_err_set(err, SL_EINVAL, "archive %s: stop its sender first", w->path);
	if (w->index.pending > 0 && !include_pending)
		return sl_err_set(err, SL_EPENDING, "archive %s: %llu records are pending", w->path,
				  (unsigned long long)w->index.pending);
	return 0;
}

/* [leader, no mu] Publish everything, then remove it. w->archived is set once something may be gone. */
static int archive_log(sl_wal *w, const char *dir, struct sl_err *err)
{
	/* A torn end is quarantined before its file goes. */
	int rc = w->torn > 0 ? sl__wal_plain_code(sl__wal_trim(w, err), err) : 0;
	if (rc != 0)
		return rc;
	/* A4. A status record that repeats the status of the last sequence. A pending one has none to repeat: then the
	 * sequence after it is declared a hole. Either way the meaning of no record changes. */
	uint8_t mark[WAL_MARK_BYTES];
	uint32_t n_mark = 0;
	if (w->active_first == 0 && w->n_segments > 0) {
		enum sl_wal_status status = SL_WAL_FAILED; /* of a hole, which the walk does not show */
		uint64_t sequence = w->durable_seq;
		rc = sl_wal_iterate(w, sequence, keep_record_status, &status, err);
		if (rc != 0)
			return rc;
		if (status == SL_WAL_PENDING) {
			sequence++;
			status = SL_WAL_FAILED;
		}
		n_mark = sl__wal_encode_mark(mark, sequence, sequence, (uint8_t)status, sl__real_ms(&w->env));
	}
	/* Publish every segment, and the active file. */
	if (w->opts.discard_settled != SL_ON) {
		struct publication active = {
			.w = w, .dir = dir, .segment = sl__basename(w->path), .from = {&w->env, w->fd, w->end}};
		rc = make_archive_dir(w, dir, err);
		for (size_t i = 0; i < w->n_segments && rc == 0; i++)
			rc = publish_sealed(w, &w->segments[i], dir, err);
		if (rc == 0)
			rc = publish_archive(&active, err);
	}
	if (rc != 0)
		return rc;
	sl__lock(&w->mu);
	w->archived = true;
	w->hold_prepare++; /* for good: the path may soon name another log's file */
	sl__unlock(&w->mu);
	if (n_mark > 0) {
		rc = w->cut_needed ? sl__wal_plain_code(sl__wal_trim(w, err), err) : 0;
		if (rc != 0)
			return rc;
		rc = sl__pwrite_full(&w->env, w->fd, mark, n_mark, w->end);
		if (rc == 0)
			rc = SL__IO(&w->env, datasync, w->fd);
		if (rc < 0)
			return sl_err_set_errno(err, -rc, "archive %s: write", w->path);
	}
	for (size_t i = 0; i < w->n_segments; i++) {
		rc = remove_sealed(w, &w->segments[i], err);
		if (rc != 0)
			return rc;
	}
	return remove_file(w, w->path, err);
}

int sl_wal_archive(sl_wal *w, const char *dir, bool include_pending, struct sl_err *err)
{
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	sl__lock(&w->mu);
	rc = may_archive(w, include_pending, err);
	sl__unlock(&w->mu);
	if (rc == 0)
		rc = sl__wal_flush_marks(w, err);
	if (rc != 0)
		return rc;
	sl__lock(&w->mu);
	while (w->archiving)
		(void)sl__wait(&w->env, &w->lead_cv, &w->mu, SL_FOREVER);
	w->archiving = true;
	sl__wal_begin_exclusive(w);
	rc = may_archive(w, include_pending, err);
	sl__unlock(&w->mu);
	if (rc == 0)
		rc = archive_log(w, dir != NULL ? dir : w->opts.archive_dir, err);
	sl__lock(&w->mu);
	w->archiving = false;
	sl__wal_end_exclusive(w);
	sl__broadcast(&w->room_cv);
	sl__unlock(&w->mu);
	return rc;
}

int sl_wal_archive_path(const char *path, const char *dir, bool include_pending, const struct sl_wal_opts *opts,
			struct sl_err *err)
{
	struct sl_env env;
	struct sl_wal_opts o;
	char *wal_dir, *id;
	sl_wal *w = NULL;
	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__env_init(&env, o.env, err);
	if (rc == 0)
		rc = sl__wal_split_path(&env, path, &wal_dir, &id, err);
	if (rc != 0)
		return rc;
	o.wal_dir = wal_dir;
	o.key_file = NULL; /* payloads stay as they are */
	o.background = SL_OFF;
	rc = sl__wal_open_with(&w, id, &o, &(struct wal_open_hooks){.must_exist = true, .keyless = true}, err);
	if (rc == 0) {
		rc = sl_wal_archive(w, dir, include_pending, err);
		if (rc == 0)
			rc = sl_wal_close(w, err);
		else
			(void)sl_wal_close(w, NULL);
	}
	sl__free(&env, wal_dir);
	sl__free(&env, id);
	return rc;
}

int sl_wal_complete(sl_wal *w, int64_t deadline_ms, struct sl_err *err)
{
	int rc = sl_wal_sender_stop(w, deadline_ms, err);
	if (rc != 0 || (w->opts.archive_on_complete == SL_OFF && w->opts.discard_settled != SL_ON))
		return rc;
	return sl_wal_archive(w, NULL, false, err);
}

/* ---- settled segments of a live log ---- */

/* Is the oldest sealed segment settled, and is there data after it (A4)? */
static bool oldest_is_due(const sl_wal *w) SL_REQUIRES(w->mu)
{
	if (w->n_segments == 0 || w->poisoned || w->closed || w->archived)
		return false;
	if (w->opts.archive_on_complete == SL_OFF && w->opts.discard_settled != SL_ON)
		return false;
	uint64_t last = w->segments[0].last;
	const struct wal_entry *pending = sl__wal_index_next(&w->index, 0);
	if (pending != NULL && pending->sequence <= last)
		return false;
	/* Records above the mark may be asked for again: their segments must stay. */
	if (!sl__wal_sender_idle(w) && (w->sender->mark_known ? w->sender->mark : 0) < last)
		return false;
	bool data = w->active_first != 0;
	for (size_t i = 1; i < w->n_segments && !data; i++)
		data = w->segments[i].records > 0;
	return data;
}

void sl__wal_archive_poke(sl_wal *w)
{
	if (!w->helper_runs || w->want_archive || w->archiving || !oldest_is_due(w) ||
	    sl__mono_ns(&w->env) < w->archive_after_ns)
		return;
	w->want_archive = true;
	sl__signal(&w->helper_cv);
}

/* The caller has set w->archiving. */
static void archive_while_due(sl_wal *w) SL_REQUIRES(w->mu)
{
	while (oldest_is_due(w) && !w->helper_stop) {
		struct wal_segment seg = w->segments[0];
		struct sl_err err = SL_ERR_INIT;
		sl__unlock(&w->mu);
		bool keep = w->opts.discard_settled != SL_ON;
		int rc = sl__wal_flush_marks(w, &err);
		if (rc == 0 && keep)
			rc = make_archive_dir(w, w->opts.archive_dir, &err);
		if (rc == 0 && keep)
			rc = publish_sealed(w, &seg, w->opts.archive_dir, &err);
		if (rc == 0)
			rc = remove_sealed(w, &seg, &err);
		if (rc != 0)
			sl__log(&w->env, SL_LOG_WARN, "wal", "could not archive a fully sent segment yet; retrying",
				SL__F_STR("log", w->path), SL__F_U64("first", seg.first), SL__F_STR("error", err.msg));
		sl__lock(&w->mu);
		if (rc != 0) {
			w->archive_after_ns = sl__deadline_ns(&w->env, RETRY_MS);
			break;
		}
		w->sealed_records -= seg.records;
		w->sealed_bytes -= seg.bytes;
		sl__wal_ranges_drop_below(&w->holes, seg.last + 1);
		sl__wal_ranges_drop_below(&w->failed, seg.last + 1);
		memmove(w->segments, w->segments + 1, --w->n_segments * sizeof(*w->segments));
	}
	w->archiving = false;
	sl__broadcast(&w->lead_cv);
}

/* Is it time, and no other thread archiving? Then the caller archives. */
static bool begin_archiving(sl_wal *w) SL_REQUIRES(w->mu)
{
	if (w->archiving || sl__mono_ns(&w->env) < w->archive_after_ns || !oldest_is_due(w))
		return false;
	w->archiving = true;
	return true;
}

void sl__wal_archive_settled(sl_wal *w)
{
	sl__lock(&w->mu);
	if (begin_archiving(w))
		archive_while_due(w);
	sl__unlock(&w->mu);
}

/* ---- a separate thread: compressing takes longer than the helper may be busy ---- */

static void *archiver_main(void *arg)
{
	sl_wal *w = arg;
	sl__lock(&w->mu);
	archive_while_due(w);
	sl__unlock(&w->mu);
	return NULL;
}

void sl__wal_archive_join(sl_wal *w)
{
	if (w->archiver_runs)
		(void)pthread_join(w->archiver, NULL);
	w->archiver_runs = false;
}

void sl__wal_archive_in_background(sl_wal *w)
{
	sl__lock(&w->mu);
	bool mine = begin_archiving(w);
	sl__unlock(&w->mu);
	if (!mine)
		return;
	sl__wal_archive_join(w); /* the last one has ended: its thread has little left to do */
	w->archiver_runs = sl__thread_start(&w->archiver, "sl-wal-archive", archiver_main, w) == 0;
	if (!w->archiver_runs)
		(void)archiver_main(w);
}
