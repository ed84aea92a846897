/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Space ahead of the log, rotation, and the helper thread.
 *
 *      header | records … | 0 0 0 0 … 0 | 0 0 0 …
 *                         ^ end         ^ ready_end    ^ being prepared
 *
 * A write into space that is already zeroed on disk spares the filesystem's metadata commit, which is half of a sync's
 * cost; fallocate alone does not (unwritten extents must be converted). So the helper writes real zeros ahead, in
 * pieces that double. It does not sync them: a second stream of syncs to the disk costs the leader more than one flush
 * in many that carries a piece of zeros along, and an error of theirs comes out where it is noticed, in the leader's
 * sync.
 *
 * S1  Only the preparer writes past ready_end while `preparing` is set; a leader that must go past it claims
 *     the place first.
 * S2  Zeros may be lost by a power loss as long as no record follows them; then they are not needed.
 *
 * Rotation: the new file is made and synced under a temporary name, then the active one is trimmed (which syncs it) and
 * renamed to its sealed name, the folder synced, the new one renamed into place, the folder synced. Each state between
 * is recovered: without an active file, open makes one that continues the newest sealed segment.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "wal/handle.h"
#include "wal/repair.h"
#include "wal/segs.h"

#define PREPARE_START ((int64_t)64 * 1024)
#define PREPARE_PIECE ((int64_t)1024 * 1024)
#define SUBMIT_LINGER_NS ((int64_t)500000)
#define MARKS_LINGER_NS ((int64_t)1000000000)

static const uint8_t zeros[64 * 1024];

static int write_zeros(const struct sl_env *env, int fd, uint64_t from, uint64_t to)
{
	while (from < to) {
		size_t n = (size_t)SL_MIN((uint64_t)sizeof(zeros), to - from);
		int rc = sl__pwrite_full(env, fd, zeros, n, from);
		if (rc < 0)
			return rc;
		from += n;
	}
	return 0;
}

/* ---- creating ---- */

int sl__wal_make_temp(const sl_wal *w, const struct wal_new_file *f, char **out_path, int *out_fd, struct sl_err *err)
{
	const struct sl_env *env = &w->env;
	uint64_t salt = 0;
	int rc = env->rand->fill(&salt, sizeof(salt), env->rand_ctx);
	char *path = sl__asprintf(env, "%s/%s.wal.tmp-%016llx", w->dir, w->id, (unsigned long long)salt);
	if (path == NULL)
		return sl_err_set(err, SL_ENOMEM, "create %s.wal: out of memory", w->id);
	/* The header, and the incarnation that records are sent under: the segment that holds it now will be archived.
	 */
	uint8_t head[WAL_HEADER_BYTES + WAL_RENEWAL_BYTES];
	size_t n = WAL_HEADER_BYTES;
	sl__wal_header_encode(head, f->header);
	if (f->renewed.incarnation != 0)
		n += sl__wal_encode_renewal(head + n, f->renewed, sl__real_ms(env));
	int fd = rc < 0 ? rc : SL__IO(env, open, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd >= 0) {
		rc = SL__IO(env, lock, fd);
		if (rc == 0)
			rc = sl__pwrite_full(env, fd, head, n, 0);
		if (rc == 0 && f->n_zeros > 0 && write_zeros(env, fd, n, n + f->n_zeros) < 0)
			/* Zeros are a convenience: without space for them, start without. */
			rc = SL__IO(env, truncate, fd, n);
		/* One sync for all of it. */
		if (rc == 0)
			rc = SL__IO(env, sync, fd);
		if (rc == 0) {
			*out_path = path;
			*out_fd = fd;
			return 0;
		}
		(void)SL__IO(env, close, fd);
		(void)SL__IO(env, unlink, path);
		fd = rc;
	}
	int code = sl_err_set_errno(err, -fd, "create a file for %s.wal in %s", w->id, w->dir);
	sl__free(env, path);
	return sl__wal_create_code(code, err);
}

int sl__wal_create_active(const sl_wal *w, const struct wal_new_file *f, bool replace, int *out_fd, struct sl_err *err)
{
	char *temp;
	int fd, code = sl__wal_make_temp(w, f, &temp, &fd, err);
	if (code != 0)
		return code;
	int rc = SL__IO(&w->env, rename, temp, w->path, !replace);
	if (rc < 0) {
		code = sl_err_set_errno(err, -rc, "create %s", w->path);
		(void)SL__IO(&w->env, unlink, temp);
		(void)SL__IO(&w->env, close, fd);
	} else {
		*out_fd = fd;
	}
	sl__free(&w->env, temp);
	return code;
}

/* ---- trimming and rotating ---- */

static void hold_prepare(sl_wal *w)
{
	sl__lock(&w->mu);
	w->hold_prepare++;
	while (w->preparing)
		(void)sl__wait(&w->env, &w->prepare_cv, &w->mu, SL_FOREVER);
	sl__unlock(&w->mu);
}

static void release_prepare(sl_wal *w)
{
	sl__lock(&w->mu);
	w->hold_prepare--;
	sl__unlock(&w->mu);
}

int sl__wal_trim(sl_wal *w, struct sl_err *err)
{
	hold_prepare(w);
	if (w->torn > 0) {
		struct wal_bytes torn = {w->fd, w->end, w->torn};
		int kept = sl__wal_quarantine(w, torn, sl__basename(w->path), "torn", err);
		if (kept != 0) {
			release_prepare(w);
			return kept;
		}
		w->torn = 0;
	}
	int rc = SL__IO(&w->env, truncate, w->fd, w->end);
	bool cut = rc == 0;
	if (cut)
		rc = SL__IO(&w->env, datasync, w->fd);
	sl__lock(&w->mu);
	w->hold_prepare--;
	w->cut_needed = rc < 0;
	if (rc == 0)
		w->ready_end = w->end;
	sl__unlock(&w->mu);
	if (rc == 0)
		return 0;
	int code = sl_err_set_errno(err, -rc, "cut %s to %llu bytes", w->path, (unsigned long long)w->end);
	return cut ? SL_EPOISONED : code;
}

static void adopt_new_active(sl_wal *w, int fd, const struct wal_new_file *next)
{
	/* The file begins with its header and perhaps a record. Zeros follow, as many as there was room for. */
	uint64_t end = WAL_HEADER_BYTES + (next->renewed.incarnation != 0 ? WAL_RENEWAL_BYTES : 0);
	uint64_t n_zeros = next->n_zeros;
	struct sl_io_stat st;
	if (n_zeros > 0 && SL__IO(&w->env, fstat, fd, &st) == 0)
		n_zeros = st.size - SL_MIN(end, st.size);
	sl__lock(&w->mu);
	w->segments[w->n_segments++] = (struct wal_segment){.first = w->active_first,
							    .last = w->active_last,
							    .bytes = w->end,
							    .records = w->active_records,
							    .version = w->header.version};
	w->sealed_records += w->active_records;
	w->sealed_bytes += w->end;
	int old = w->fd;
	w->fd = fd;
	w->header.version = next->header.version; /* the incarnation stays: it is read without the lock */
	w->end = end;
	w->ready_end = end + n_zeros;
	w->active_first = w->active_last = w->active_records = 0;
	w->prepare_after = 0;
	w->cut_needed = false;
	w->prepared_total += n_zeros;
	w->want_archive = true;
	sl__signal(&w->helper_cv);
	sl__unlock(&w->mu);
	(void)SL__IO(&w->env, close, old);
}

/* The two renames. After the first, a failure leaves the folder in an unknown state. */
static int swap_names(sl_wal *w, const char *sealed, const char *temp, struct sl_err *err)
{
	int rc = SL__IO(&w->env, rename, w->path, sealed, 1);
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "rotate: rename %s to %s", w->path, sealed);
	rc = sl__sync_dir(&w->env, w->dir);
	if (rc == 0)
		rc = SL__IO(&w->env, rename, temp, w->path, 1);
	if (rc == 0)
		rc = sl__sync_dir(&w->env, w->dir);
	if (rc < 0) {
		(void)sl_err_set_errno(err, -rc, "rotate %s", w->path);
		return SL_EPOISONED;
	}
	return 0;
}

int sl__wal_rotate(sl_wal *w, struct sl_err *err)
{
	char *temp = NULL, *sealed = sl__wal_file_path(&w->env, w->dir, w->id, w->active_first);
	struct wal_new_file next = {.header = w->header, .renewed = w->renewed};
	int fd = -1, rc = 0;
	if (sealed == NULL)
		return sl_err_set(err, SL_ENOMEM, "rotate %s: out of memory", w->path);
	if (w->key != NULL)
		next.header.version = 2;
	if (w->opts.prepare_max_bytes > 0)
		next.n_zeros = (uint64_t)SL_MIN(w->opts.prepare_max_bytes, 4 * PREPARE_START);
	hold_prepare(w);
	/* A place for the segment that is sealed. */
	sl__lock(&w->mu);
	struct wal_segment *grown = sl__grow(&w->env, w->segments, w->n_segments, &w->cap_segments, sizeof(*grown));
	if (grown != NULL)
		w->segments = grown;
	else
		rc = sl_err_set(err, SL_ENOMEM, "rotate %s: out of memory", w->path);
	sl__unlock(&w->mu);
	if (rc == 0)
		rc = sl__wal_make_temp(w, &next, &temp, &fd, err);
	if (rc == 0)
		rc = sl__wal_trim(w, err);
	/* A reader goes by names: it must not meet the new file under the active name while the handle still means the
	 * old one by it. */
	sl__lock(&w->read_mu);
	if (rc == 0)
		rc = swap_names(w, sealed, temp, err);
	if (rc == 0) {
		adopt_new_active(w, fd, &next);
	} else if (temp != NULL) {
		if (rc != SL_EPOISONED)
			(void)SL__IO(&w->env, unlink, temp);
		(void)SL__IO(&w->env, close, fd);
	}
	sl__unlock(&w->read_mu);
	release_prepare(w);
	sl__free(&w->env, temp);
	sl__free(&w->env, sealed);
	return rc;
}

/* ---- zeros ahead ---- */

int sl__wal_give_back(sl_wal *w, struct sl_err *err)
{
	sl__lock(&w->mu);
	w->prepare_after = w->end + (uint64_t)PREPARE_PIECE;
	sl__unlock(&w->mu);
	return sl__wal_trim(w, err);
}

void sl__wal_await_prepared(sl_wal *w, uint64_t end)
{
	sl__lock(&w->mu);
	while (w->preparing && end > w->ready_end)
		(void)sl__wait(&w->env, &w->prepare_cv, &w->mu, SL_FOREVER);
	/* S1: claim what follows the zeros, so that a preparation that begins now begins after it. */
	if (w->helper_runs)
		w->ready_end = SL_MAX(w->ready_end, end);
	sl__unlock(&w->mu);
}

static int64_t first_piece(const sl_wal *w)
{
	return SL_MIN(PREPARE_START, w->opts.prepare_max_bytes);
}

void sl__wal_maybe_prepare(sl_wal *w)
{
	if (!w->helper_runs || w->opts.prepare_max_bytes <= 0 || w->preparing || w->poisoned ||
	    w->end < w->prepare_after)
		return;
	if (w->prepare_bytes == 0)
		w->prepare_bytes = first_piece(w);
	if (w->ready_end - w->end >= (uint64_t)w->prepare_bytes / 2 || w->end >= (uint64_t)w->opts.segment_bytes)
		return;
	w->want_prepare = true;
	sl__signal(&w->helper_cv);
}

void sl__wal_prepare_inline(sl_wal *w, uint64_t end)
{
	if (w->helper_runs || w->opts.prepare_max_bytes <= 0 || end <= w->ready_end || w->end < w->prepare_after)
		return;
	if (w->prepare_bytes == 0)
		w->prepare_bytes = first_piece(w);
	uint64_t to = end + (uint64_t)w->prepare_bytes;
	uint64_t from = SL_MAX(w->ready_end, w->end);
	if (write_zeros(&w->env, w->fd, from, to) < 0) {
		(void)SL__IO(&w->env, truncate, w->fd, from);
		w->prepare_after = w->end + (uint64_t)PREPARE_PIECE;
		return;
	}
	sl__lock(&w->mu);
	w->prepared_total += to - w->ready_end;
	w->ready_end = to;
	w->prepare_bytes = SL_MIN(w->prepare_bytes * 2, w->opts.prepare_max_bytes);
	sl__unlock(&w->mu);
}

static void helper_prepare(sl_wal *w) SL_REQUIRES(w->mu)
{
	w->want_prepare = false;
	if (w->poisoned || w->hold_prepare > 0 || w->end < w->prepare_after)
		return;
	w->preparing = true;
	uint64_t from = w->ready_end, to = from + (uint64_t)SL_MIN(w->prepare_bytes, PREPARE_PIECE);
	sl__unlock(&w->mu);
	/* Through a separate descriptor. The active file cannot be renamed meanwhile (S1). */
	int fd = SL__IO(&w->env, open, w->path, O_WRONLY | O_NOFOLLOW, 0), rc = fd;
	if (fd >= 0) {
		rc = write_zeros(&w->env, fd, from, to);
		if (rc < 0) /* give back what a full disk needs more; only the preparer writes there (S1) */
			(void)SL__IO(&w->env, truncate, fd, from);
		(void)SL__IO(&w->env, close, fd);
	}
	sl__lock(&w->mu);
	w->preparing = false;
	if (rc == 0) {
		w->ready_end = to;
		w->prepared_total += to - from;
		w->prepare_bytes = SL_MIN(w->prepare_bytes * 2, w->opts.prepare_max_bytes);
	} else {
		w->prepare_after = w->end + (uint64_t)PREPARE_PIECE;
	}
	sl__broadcast(&w->prepare_cv);
	if (rc == 0)
		sl__wal_maybe_prepare(w);
}

/* ---- the helper ---- */

static void *helper_main(void *arg)
{
	sl_wal *w = arg;
	bool ticked = false;
	sl__lock(&w->mu);
	while (!w->helper_stop) {
		int64_t marks_due = w->marks_since_ns != 0 ? w->marks_since_ns + MARKS_LINGER_NS : SL_FOREVER;
		int64_t tick_due = w->want_flush ? INT64_MIN : w->ticking ? w->tick_at_ns : SL_FOREVER;
		int64_t next = w->poisoned ? SL_FOREVER : SL_MIN(marks_due, tick_due);
		int64_t now = next != SL_FOREVER ? sl__mono_ns(&w->env) : 0;
		/* Turns, so that neither a storm of submits nor much space to prepare holds the other up. */
		bool tick = next != SL_FOREVER && now >= tick_due && !(ticked && w->want_prepare);
		ticked = tick;
		if (tick && w->want_flush) {
			sl__wal_flush_orphans(w);
		} else if (tick) {
			/* Submitted records that no thread waits for. Those who submit and then wait lead themselves and
			 * save a switch of threads, so the helper only checks now and then while records are being
			 * submitted, and flushes a batch that it met before. One who polls the descriptor does not lead:
			 * then it flushes immediately (above). */
			if (w->tick_id == w->batch_id) {
				w->ticking = w->batch[w->batch_id % 2].n > 0;
				sl__wal_flush_orphans(w);
			}
			w->tick_id = w->batch_id;
			w->tick_at_ns = sl__mono_ns(&w->env) + SUBMIT_LINGER_NS;
		} else if (w->want_prepare) {
			helper_prepare(w);
		} else if (next != SL_FOREVER && now >= marks_due) {
			struct sl_err err = SL_ERR_INIT;
			w->marks_since_ns = 0;
			sl__unlock(&w->mu);
			if (sl__wal_flush_now(w, &err) != 0)
				sl__log(&w->env, SL_LOG_WARN, "wal", "could not write the marks of sent records",
					SL__F_STR("log", w->path), SL__F_STR("error", err.msg));
			sl__lock(&w->mu);
		} else if (w->want_archive) {
			w->want_archive = false;
			sl__unlock(&w->mu);
			sl__wal_archive_in_background(w);
			sl__lock(&w->mu);
		} else {
			(void)sl__wait(&w->env, &w->helper_cv, &w->mu, next);
		}
	}
	sl__unlock(&w->mu);
	return NULL;
}

int sl__wal_helper_start(sl_wal *w, struct sl_err *err)
{
	if (w->opts.background == SL_OFF)
		return 0;
	w->helper_runs = true;
	int rc = sl__thread_start(&w->helper, "sl-wal-helper", helper_main, w);
	if (rc < 0) {
		w->helper_runs = false;
		return sl__thread_error(err, rc, "helper", w->path);
	}
	return 0;
}

void sl__wal_helper_stop(sl_wal *w)
{
	if (!w->helper_runs)
		return;
	sl__lock(&w->mu);
	w->helper_stop = true;
	sl__signal(&w->helper_cv);
	sl__unlock(&w->mu);
	(void)pthread_join(w->helper, NULL);
	sl__wal_archive_join(w);
	w->helper_runs = false;
}
