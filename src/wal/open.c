/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing. The lock of a log is the lock of its active file, gone with the process that held it.
 *
 * O1  An opener that got the lock checks that the path still names the file it locked: it may have been renamed away.
 * O2  While a rotation has no active file in place, the newest sealed segment is still locked by the rotating process,
 *     so an opener that finds no active file locks that one before it makes a new active file.
 * O3  A new active file is made and locked under a temporary name and moved into place only if the name is free.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "wal/commit.h"
#include "wal/reader.h"
#include "wal/segs.h"
#include "wal/sender.h"

#define FIRST_ZEROS ((uint64_t)32 * 1024)

int sl__wal_check_process(const sl_wal *w, struct sl_err *err)
{
	if (w->pid == getpid())
		return 0;
	return sl_err_set(err, SL_EFORKED, "%s was opened by process %d; open it again in a forked child", w->path,
			  (int)w->pid);
}

/* ---- the lock ---- */

static int locked_error(const char *path, int rc, struct sl_err *err)
{
	if (rc == -EWOULDBLOCK)
		return sl_err_set(err, SL_ELOCKED, "%s is in use by another process or handle", path);
	return sl_err_set_errno(err, -rc, "lock %s", path);
}

/* O2. *fd keeps the lock; the header holds the incarnation that continues. */
static int lock_newest_sealed(sl_wal *w, uint64_t first, struct wal_header *h, int *fd, struct sl_err *err)
{
	uint8_t bytes[WAL_HEADER_BYTES] = {0};
	char *path = sl__wal_file_path(&w->env, w->dir, w->id, first);
	if (path == NULL)
		return sl_err_set(err, SL_ENOMEM, "open %s: out of memory", w->path);
	int code = 0, rc = SL__IO(&w->env, open, path, O_RDWR | O_NOFOLLOW, 0);
	*fd = rc;
	if (rc < 0)
		code = sl_err_set_errno(err, -rc, "open %s", path);
	else if ((rc = SL__IO(&w->env, lock, *fd)) < 0)
		code = locked_error(path, rc, err);
	else if ((rc = (int)sl__pread_full(&w->env, *fd, bytes, sizeof(bytes), 0)) < 0)
		code = sl_err_set_errno(err, -rc, "read %s", path);
	else if (sl__wal_header_decode(bytes, h) > WAL_HEADER_REPAIRABLE)
		*h = (struct wal_header){0, 0};
	if (code != 0)
		sl__close_fd(&w->env, fd);
	sl__free(&w->env, path);
	return code;
}

static int create_first(sl_wal *w, struct wal_header h, struct sl_err *err)
{
	if (h.version == 0) {
		int rc = sl__wal_draw_incarnation(&w->env, w->key != NULL ? 2 : 1, &h.incarnation);
		if (rc < 0)
			return sl_err_set_errno(err, -rc, "create %s: random bytes", w->path);
	}
	if (w->key != NULL)
		h.version = 2;
	else if (h.version == 0)
		h.version = 1;
	struct wal_new_file file = {.header = h};
	if (w->opts.prepare_max_bytes > 0)
		file.n_zeros = SL_MIN(FIRST_ZEROS, (uint64_t)w->opts.prepare_max_bytes);
	int rc = sl__wal_create_active(w, &file, false, &w->fd, err);
	if (rc != 0)
		return rc;
	w->prepared_total += file.n_zeros;
	/* The folder itself may have been made by a process that died before it synced it. */
	char *parent = sl__dirname(&w->env, w->dir);
	int io = parent != NULL ? sl__sync_dir(&w->env, parent) : -ENOMEM;
	sl__free(&w->env, parent);
	if (io == 0 || io == -EACCES)
		return 0;
	sl__close_fd(&w->env, &w->fd);
	return sl_err_set_errno(err, -io, "sync the parent folder of %s", w->dir);
}

/* There is no active file. 1: made; 0: another was quicker, try again; negative: an error. */
static int make_active(sl_wal *w, const struct wal_open_hooks *hooks, struct sl_err *err)
{
	struct wal_files files;
	struct wal_header h = {0, 0};
	int sealed_fd = -1;
	int rc = sl__wal_files_list(&files, &w->env, w->dir, w->id, err);
	if (rc != 0)
		return rc;
	if (files.n_sealed > 0)
		rc = lock_newest_sealed(w, files.sealed[files.n_sealed - 1], &h, &sealed_fd, err);
	else if (hooks->must_exist)
		rc = sl_err_set(err, SL_ENOENT, "%s: no such log", w->path);
	/* The rename that took the active file away may not be on disk yet; a new one must not overtake it. */
	int synced = rc == 0 && files.n_sealed > 0 ? sl__sync_dir(&w->env, w->dir) : 0;
	if (synced < 0)
		rc = sl_err_set_errno(err, -synced, "sync the folder of %s", w->path);
	if (rc == 0)
		rc = create_first(w, h, err);
	sl__close_fd(&w->env, &sealed_fd);
	sl__wal_files_free(&files, &w->env);
	if (rc == SL_EEXIST)
		return 0;
	if (rc != 0)
		return rc;
	return 1;
}

int sl__wal_acquire(sl_wal *w, const struct wal_open_hooks *hooks, struct sl_err *err)
{
	for (int tries = 0; tries < 100; tries++) {
		int fd = SL__IO(&w->env, open, w->path, O_RDWR | O_NOFOLLOW, 0);
		struct sl_io_stat mine, named;
		int io, rc = 0; /* 1: w->fd has it; 0: try again */
		if (fd == -ENOENT)
			rc = make_active(w, hooks, err);
		else if (fd < 0)
			return sl_err_set_errno(err, -fd, "open %s", w->path);
		else if ((io = SL__IO(&w->env, lock, fd)) < 0)
			rc = locked_error(w->path, io, err);
		else if ((io = SL__IO(&w->env, fstat, fd, &mine)) < 0)
			rc = sl_err_set_errno(err, -io, "stat %s", w->path);
		else if (SL__IO(&w->env, stat, w->path, &named) == 0 && named.dev == mine.dev && named.ino == mine.ino)
			rc = 1; /* O1 */
		if (fd >= 0 && rc == 1)
			w->fd = fd;
		else if (fd >= 0)
			(void)SL__IO(&w->env, close, fd);
		if (rc != 0)
			return rc == 1 ? 0 : rc;
	}
	return sl_err_set(err, SL_ELOCKED, "%s is replaced again and again by other processes; try again", w->path);
}

/* ---- building and taking down ---- */

static void free_log(sl_wal *w)
{
	struct sl_env env = w->env;
	sl__wal_metrics_detach(w);
	sl__wal_sender_free(w); /* joins its thread, which uses the locks */
	sl__cond *conds[] = {&w->lead_cv,    &w->gather_cv, &w->room_cv,  &w->done_cv,
			     &w->prepare_cv, &w->helper_cv, &w->sender_cv};
	for (size_t i = 0; i < SL_COUNT(conds); i++)
		sl__cond_fini(conds[i]);
	sl__mutex_fini(&w->mu);
	sl__mutex_fini(&w->read_mu);
	sl__close_fd(&env, &w->fd);
	sl__close_fd(&env, &w->read_fd);
	if (w->event_fd >= 0)
		(void)close(w->event_fd);
	sl__wal_batches_fini(w);
	sl__wal_index_fini(&w->index);
	sl__wal_ranges_fini(&w->marks);
	sl__wal_ranges_fini(&w->flying);
	sl__wal_ranges_fini(&w->holes);
	sl__wal_ranges_fini(&w->failed);
	sl__free(&env, w->segments);
	sl__wal_key_free(w->key);
	sl__wal_opts_free(&env, &w->opts);
	sl__free(&env, w->id);
	sl__free(&env, w->dir);
	sl__free(&env, w->path);
	sl__free(&env, w);
}

static int build_handle(sl_wal **out, const char *id, const struct sl_wal_opts *opts, struct sl_err *err)
{
	struct sl_env env;
	int rc = sl__env_init(&env, SL_OPT_HAS(opts, env) ? opts->env : NULL, err);
	if (rc != 0)
		return rc;
	if (id == NULL || !sl__wal_id_valid(id))
		return sl_err_set(err, SL_EINVAL,
				  "log id '%.100s': use letters, digits, '-', '_' and (not first) '.', without "
				  "\".wal\", at most 192 characters",
				  id != NULL ? id : "(null)");
	sl_wal *w = sl__calloc(&env, 1, sizeof(*w));
	if (w == NULL)
		return sl_err_set(err, SL_ENOMEM, "open %s.wal: out of memory", id);
	w->env = env;
	w->pid = getpid();
	w->fd = w->read_fd = w->event_fd = -1;
	w->gather = env.clock == &sl__clock_real;
	w->flush_ewma_ns = 200000;
	sl__mutex_init(&w->mu);
	sl__mutex_init(&w->read_mu);
	sl__cond *conds[] = {&w->lead_cv,    &w->gather_cv, &w->room_cv,  &w->done_cv,
			     &w->prepare_cv, &w->helper_cv, &w->sender_cv};
	for (size_t i = 0; i < SL_COUNT(conds); i++)
		sl__cond_init(conds[i]);
	sl__wal_index_init(&w->index, &w->env);
	sl__wal_ranges_init(&w->marks, &w->env);
	sl__wal_ranges_init(&w->flying, &w->env);
	sl__wal_ranges_init(&w->holes, &w->env);
	sl__wal_ranges_init(&w->failed, &w->env);
	rc = sl__wal_opts_resolve(&w->opts, opts, &env, err);
	if (rc == 0) {
		w->id = sl__strdup(&env, id);
		w->dir = sl__strdup(&env, w->opts.wal_dir);
		w->path = sl__wal_file_path(&env, w->opts.wal_dir, id, 0);
		if (w->opts.dead_letter_dir == NULL)
			w->opts.dead_letter_dir = sl__asprintf(&env, "%s/%s.dead", w->opts.wal_dir, id);
		if (w->id == NULL || w->dir == NULL || w->path == NULL || w->opts.dead_letter_dir == NULL)
			rc = sl_err_set(err, SL_ENOMEM, "open %s.wal: out of memory", id);
	}
	if (rc == 0 && w->opts.key_file != NULL)
		rc = sl__wal_key_load(&w->key, &env, w->opts.key_file, err);
	if (rc != 0) {
		free_log(w);
		return rc;
	}
	*out = w;
	return 0;
}

/* A key was given for a log that began without: what comes now goes into a sealed segment. */
static int upgrade_version(sl_wal *w, struct sl_err *err)
{
	if (w->key == NULL || w->header.version == 2)
		return 0;
	sl__log(&w->env, SL_LOG_WARN, "wal",
		"an unencrypted log is encrypted from here on; its earlier records stay unencrypted",
		SL__F_STR("log", w->path));
	if (w->active_first != 0)
		return sl__wal_plain_code(sl__wal_rotate(w, err), err);
	struct wal_header h = {.version = 2, .incarnation = w->header.incarnation};
	int fd, rc = sl__wal_create_active(w, &(struct wal_new_file){.header = h}, true, &fd, err);
	if (rc != 0)
		return rc;
	sl__close_fd(&w->env, &w->fd);
	w->fd = fd;
	rc = sl__sync_dir(&w->env, w->dir); /* V4 again: this file was made after the recovery */
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "sync the folder of %s", w->path);
	w->header = h;
	w->end = w->ready_end = WAL_HEADER_BYTES;
	w->renewing = w->renewed; /* it was in the file that is gone */
	return 0;
}

/* The handle is built: lock the log, recover it, and make the handle ready for use. */
static int lock_and_recover(sl_wal *w, const struct wal_open_hooks *hooks, struct sl_err *err)
{
	int rc = hooks->must_exist ? 0 : sl__mkdirs(&w->env, w->dir);
	if (rc < 0)
		return sl_err_set(err, SL_ECREATE, "cannot create the folder %.120s: %s", w->dir, strerror(-rc));
	rc = sl__wal_acquire(w, hooks, err);
	if (rc == 0)
		rc = sl__wal_recover_state(w, hooks, err);
	if (rc != 0)
		return rc;
	bool sealed = w->header.version == 2;
	for (size_t i = 0; i < w->n_segments; i++)
		sealed |= w->segments[i].version == 2;
	if (sealed && w->key == NULL && !hooks->keyless)
		return sl_err_set(err, SL_EKEY, "%s is encrypted; give its key file (key_file, --key-file)", w->path);
	rc = upgrade_version(w, err);
	if (rc == 0)
		rc = sl__wal_batches_init(w, err);
	if (rc != 0)
		return rc;
	/* Holes and a new incarnation found by recovery are queued; they must be on disk before anything new is
	 * numbered after them. */
	if (w->marks.n > 0 || w->renewing.incarnation != 0)
		rc = sl__wal_flush_marks(w, err);
	if (rc == 0)
		rc = sl__wal_metrics_attach(w, err);
	if (rc != 0)
		return rc;
	return sl__wal_helper_start(w, err);
}

int sl__wal_open_with(sl_wal **out, const char *id, const struct sl_wal_opts *opts, const struct wal_open_hooks *hooks,
		      struct sl_err *err)
{
	sl_wal *w = NULL;
	int rc = build_handle(&w, id, opts, err);
	if (rc != 0)
		return rc;
	rc = lock_and_recover(w, hooks, err);
	if (rc != 0) {
		free_log(w);
		return rc;
	}
	*out = w;
	return 0;
}

int sl_wal_open(sl_wal **out, const char *id, const struct sl_wal_opts *opts, struct sl_err *err)
{
	struct wal_open_hooks hooks = {0};
	return sl__wal_open_with(out, id, opts, &hooks, err);
}

/* The file ends where the log ends, with the record of a clean close. clean: everything is on disk. */
static int finish_file(sl_wal *w, bool clean, struct sl_err *err)
{
	if (w->archived || w->poisoned)
		return 0;
	int rc = w->cut_needed ? sl__wal_trim(w, err) : 0;
	if (rc != 0)
		return sl__wal_plain_code(rc, err);
	/* A record at the end shows that all before it was complete, so that a later damage is not taken for the torn
	 * tail of a crash. Without room for it the log is as it was. A foreign log has none: others read it, too. */
	bool closing = clean && w->end != w->clean_end && w->durable_seq != 0 && w->header.incarnation != 0;
	if (closing) {
		uint8_t record[WAL_FRAME_BYTES];
		sl__wal_begin(record, w->durable_seq, WAL_STATUS_CLOSED, sl__real_ms(&w->env), 0);
		sl__wal_seal(record, 0);
		if (sl__pwrite_full(&w->env, w->fd, record, sizeof(record), w->end) == 0)
			w->clean_end = w->end += sizeof(record);
	}
	if (closing || w->ready_end > w->end)
		rc = sl__wal_trim(w, err); /* and syncs */
	return sl__wal_plain_code(rc, err);
}

int sl_wal_close(sl_wal *w, struct sl_err *err)
{
	if (w == NULL)
		return 0;
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	sl__wal_sender_free(w);
	/* The helper and its archiver first: they flush and prepare on their own, and the file is about to be cut. */
	bool helped = w->helper_runs;
	sl__wal_helper_stop(w);
	/* Everything submitted, and the marks, to disk. The first error wins. */
	sl__lock(&w->mu);
	bool dirty = w->batch[w->batch_id % 2].n > 0 || w->marks.n > 0 || w->flushing;
	bool usable = !w->archived && !w->poisoned;
	if (dirty && !usable) /* what is not on disk would stay unreported otherwise */
		rc = sl__wal_usable(w, err);
	sl__unlock(&w->mu);
	if (usable && dirty)
		rc = sl__wal_flush_marks(w, err);
	if (usable && rc == 0)
		rc = sl__wal_unheard(w, err);
	if (rc == 0 && !helped)
		sl__wal_archive_settled(w); /* may flush marks */
	if (rc == 0)
		rc = finish_file(w, true, err);
	else
		(void)finish_file(w, false, NULL);
	sl__lock(&w->mu);
	w->closed = true;
	sl__unlock(&w->mu);
	free_log(w);
	return rc;
}

int sl_wal_recover(const char *path, const struct sl_wal_recover_opts *opts, struct sl_wal_stats *out,
		   struct sl_err *err)
{
	struct sl_wal_recover_opts o;
	struct sl_wal_opts wal;
	struct sl_env env;
	char *dir, *id;
	sl_wal *w = NULL;
	sl__opts_copy(&o, sizeof(o), opts);
	sl__opts_copy(&wal, sizeof(wal), o.wal);
	int rc = sl__env_init(&env, wal.env, err);
	if (rc == 0)
		rc = sl__wal_split_path(&env, path, &dir, &id, err);
	if (rc != 0)
		return rc;
	wal.wal_dir = dir;
	wal.background = SL_OFF;
	struct wal_open_hooks hooks = {.on_damage = o.on_damage,
				       .ctx = o.ctx,
				       .new_incarnation = o.new_incarnation,
				       .must_exist = true,
				       .keyless = !o.new_incarnation};
	rc = sl__wal_open_with(&w, id, &wal, &hooks, err);
	if (rc == 0 && out != NULL)
		rc = sl_wal_get_stats(w, out, err);
	if (rc == 0)
		rc = sl_wal_close(w, err);
	else
		(void)sl_wal_close(w, NULL);
	sl__free(&env, dir);
	sl__free(&env, id);
	return rc;
}

int sl_wal_get_stats(sl_wal *w, struct sl_wal_stats *out, struct sl_err *err)
{
	int rc = sl__wal_check_process(w, err);
	if (rc != 0)
		return rc;
	struct sl_wal_stats s = {.struct_size = sizeof(s)};
	sl__lock(&w->mu);
	s.records = w->sealed_records + w->active_records;
	s.pending = w->index.pending;
	s.failed = sl__wal_count_failed(w);
	s.sent = s.records - s.pending - SL_MIN(s.failed, s.records - s.pending);
	for (size_t i = 0; i < w->holes.n; i++)
		s.holes += w->holes.v[i].last - w->holes.v[i].first + 1;
	s.bytes = w->sealed_bytes + w->end;
	s.pending_bytes = w->index.pending_bytes;
	s.first_sequence = w->n_segments > 0 ? w->segments[0].first : w->active_first;
	s.last_sequence = w->active_last != 0 ? w->active_last
			  : w->n_segments > 0 ? w->segments[w->n_segments - 1].last
					      : 0;
	s.segments = w->n_segments + 1;
	s.incarnation = w->header.incarnation;
	s.sent_incarnation = sl__wal_sent_incarnation(w);
	s.parked = w->n_parked;
	s.format_version = w->header.version;
	const struct wal_entry *oldest = sl__wal_index_next(&w->index, 0);
	s.oldest_pending_ms = oldest != NULL ? oldest->timestamp_ms : 0;
	s.damaged_ranges = w->damaged_ranges;
	s.torn_bytes = w->torn_bytes;
	s.flushes = w->n_flushes;
	s.flushed_records = w->n_flushed_records;
	s.prepared_bytes = w->prepared_total;
	s.index_bytes = sl__wal_index_bytes(&w->index);
	s.sender_state = w->sender != NULL ? w->sender->show : SL_WAL_SENDER_STOPPED;
	s.mark = w->sender != NULL ? w->sender->mark : 0;
	sl__unlock(&w->mu);
	sl__result_copy(out, &s, sizeof(s));
	return 0;
}
