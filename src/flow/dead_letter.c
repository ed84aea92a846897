/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dead letters: options, opening, closing, what every call begins and ends with, statistics. dead_letter.h has the
 * invariants and says what is in which file.
 */
#include "flow/dead_letter.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define DEFAULT_MAX_BYTES ((int64_t)1 << 30)
#define DEFAULT_FILE_BYTES ((int64_t)16 << 20)
#define MIN_FILE_BYTES ((int64_t)4096)
#define MAX_FILE_BYTES ((int64_t)1 << 30)

/* ---- open and close ---- */

static double show_waiting(void *ctx)
{
	return (double)atomic_load(&((sl_dlq *)ctx)->waiting_now);
}

static double show_bytes(void *ctx)
{
	return (double)atomic_load(&((sl_dlq *)ctx)->bytes_now);
}

static int attach_metrics(sl_dlq *q, struct sl_err *err)
{
	sl_metrics *m = q->env.metrics;
	sl_gauge *waiting = NULL, *bytes = NULL;
	if (m == NULL || q->read_only)
		return 0;
	int rc =
		sl_metrics_counter(m, "sluice_dead_letter_puts_total", "Dead letters written.", NULL, 0, &q->puts, err);
	if (rc != 0)
		return rc;
	rc = sl_metrics_counter(m, "sluice_dead_letter_dropped_total",
				"Unacknowledged dead letters dropped to stay within max_bytes.", NULL, 0, &q->drops,
				err);
	if (rc != 0)
		return rc;
	rc = sl_metrics_gauge(m, "sluice_dead_letter_unacknowledged", "Dead letters not yet acknowledged.", NULL, 0,
			      &waiting, err);
	if (rc != 0)
		return rc;
	rc = sl_metrics_gauge(m, "sluice_dead_letter_size_bytes", "Size of the dead letters on disk.", NULL, 0, &bytes,
			      err);
	if (rc != 0)
		return rc;
	rc = sl_gauge_attach(waiting, show_waiting, q, err);
	if (rc != 0)
		return rc;
	q->waiting_gauge = waiting;
	rc = sl_gauge_attach(bytes, show_bytes, q, err);
	if (rc == 0)
		q->bytes_gauge = bytes;
	return rc;
}

static void update_gauges(sl_dlq *q) SL_REQUIRES(q->mu)
{
	uint64_t waiting = 0;
	if (q->waiting_gauge == NULL)
		return;
	for (size_t i = 0; i < q->n_files; i++)
		waiting += q->files[i].unacked;
	atomic_store(&q->waiting_now, waiting);
	atomic_store(&q->bytes_now, q->bytes);
}

static void free_handle(sl_dlq *q)
{
	/* In a forked child the registry's lock may be held by a thread that does not exist. */
	if (q->pid == getpid()) {
		if (q->waiting_gauge != NULL)
			sl_gauge_detach(q->waiting_gauge, show_waiting, q);
		if (q->bytes_gauge != NULL)
			sl_gauge_detach(q->bytes_gauge, show_bytes, q);
	}
	sl__close_fd(&q->env, &q->active_fd);
	sl__close_fd(&q->env, &q->lock_fd);
	for (size_t i = 0; i < q->n_files; i++)
		sl__dl_file_fini(&q->files[i], &q->env);
	sl__mutex_fini(&q->mu);
	struct sl_env env = q->env;
	sl__free(&env, q->files);
	sl__free(&env, q->buf);
	sl__free(&env, q->path);
	sl__free(&env, q->dir);
	sl__free(&env, q);
}

void sl_dlq_close(sl_dlq *q)
{
	if (q == NULL)
		return;
	if (q->pid == getpid()) {
		/* The letters are durable in any case: without the close record, bit rot in the last one passes as a
		 * torn write (I6). */
		struct sl_err why = SL_ERR_INIT;
		sl__lock(&q->mu);
		if (!q->read_only && !q->poisoned && sl__dl_end_newest(q, &why) != 0)
			sl__log(&q->env, SL_LOG_WARN, "dead_letter", "failed to append the close record",
				SL__F_STR("dir", q->dir), SL__F_STR("error", why.msg));
		sl__unlock(&q->mu);
	}
	free_handle(q);
}

static sl_dlq *new_dlq(const struct sl_env *env, const char *dir, const struct sl_dlq_opts *o)
{
	sl_dlq *q = sl__calloc(env, 1, sizeof(*q));
	if (q == NULL)
		return NULL;
	q->env = *env;
	q->pid = getpid();
	q->lock_fd = q->active_fd = -1;
	q->next_id = 1;
	sl__mutex_init(&q->mu);
	q->dir_len = strlen(dir);
	q->dir = sl__strdup(env, dir);
	q->path = sl__alloc(env, q->dir_len + 258);
	if (q->dir == NULL || q->path == NULL) {
		free_handle(q);
		return NULL;
	}
	memcpy(q->path, dir, q->dir_len);
	int64_t file_bytes = o->file_bytes != 0 ? o->file_bytes : DEFAULT_FILE_BYTES;
	int64_t max_bytes = o->max_bytes != 0 ? o->max_bytes : DEFAULT_MAX_BYTES;
	/* Space comes back a file at a time: keep the files small against the bound. */
	if (max_bytes != SL_UNLIMITED)
		file_bytes = SL_MIN(file_bytes, SL_MAX(max_bytes / 8, MIN_FILE_BYTES));
	q->max_bytes = max_bytes == SL_UNLIMITED ? UINT64_MAX : (uint64_t)max_bytes;
	q->file_bytes = (uint64_t)file_bytes;
	q->on_full = o->on_full;
	q->on_drop = o->on_drop;
	q->on_drop_ctx = o->on_drop_ctx;
	q->read_only = o->read_only == SL_ON;
	return q;
}

static int take_lock(sl_dlq *q, struct sl_err *err) SL_REQUIRES(q->mu)
{
	int rc = sl__mkdirs(&q->env, q->dir);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "create the folder %s", q->dir);
	q->lock_fd = SL__IO(&q->env, open, sl__dl_path(q, "lock"), O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
	if (q->lock_fd < 0)
		return sl_err_set_errno(err, -q->lock_fd, "open %s", q->path);
	rc = SL__IO(&q->env, lock, q->lock_fd);
	if (rc == -EWOULDBLOCK)
		return sl_err_set(err, SL_ELOCKED, "dead letters %s: in use by another process", q->dir);
	if (rc != 0)
		return sl_err_set_errno(err, -rc, "lock %s", q->path);
	return 0;
}

int sl_dlq_open(sl_dlq **out, const char *dir, const struct sl_dlq_opts *opts, struct sl_err *err)
{
	struct sl_dlq_opts o;
	struct sl_env env;
	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	if (o.max_bytes < 0 && o.max_bytes != SL_UNLIMITED)
		return sl_err_set(err, SL_EINVAL, "max_bytes: %lld is negative", (long long)o.max_bytes);
	if (o.file_bytes != 0 && (o.file_bytes < MIN_FILE_BYTES || o.file_bytes > MAX_FILE_BYTES))
		return sl_err_set(err, SL_EINVAL, "file_bytes: %lld is out of range; give %lld to %lld",
				  (long long)o.file_bytes, (long long)MIN_FILE_BYTES, (long long)MAX_FILE_BYTES);
	if (o.on_full != SL_DLQ_REFUSE && o.on_full != SL_DLQ_DROP_OLDEST)
		return sl_err_set(err, SL_EINVAL, "on_full: %d is not an sl_dlq_on_full", (int)o.on_full);
	if (dir == NULL || dir[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "dir: empty");
	rc = sl_check_local_path("dead letters", dir, err);
	if (rc != 0)
		return rc;
	sl_dlq *q = new_dlq(&env, dir, &o);
	if (q == NULL)
		return sl_err_set(err, SL_ENOMEM, "dead letters %s: out of memory", dir);
	rc = attach_metrics(q, err);
	if (rc == 0) {
		sl__lock(&q->mu);
		rc = q->read_only ? 0 : take_lock(q, err);
		if (rc == 0)
			rc = sl__dl_load(q, err);
		if (rc == 0)
			update_gauges(q);
		sl__unlock(&q->mu);
	}
	if (rc == 0)
		*out = q;
	else
		free_handle(q);
	return rc;
}

/* ---- what every call begins and ends with ---- */

int sl__dl_enter(sl_dlq *q, enum sl__dl_purpose purpose, struct sl_err *err) SL_NO_TSA
{
	if (q->pid != getpid())
		return sl_err_set(err, SL_EFORKED, "dead letters %s: opened before a fork", q->dir);
	sl__lock(&q->mu);
	int rc = 0;
	if (purpose == SL__DL_READ && q->read_only)
		rc = sl__dl_load(q, err);
	else if (purpose == SL__DL_WRITE && q->read_only)
		rc = sl_err_set(err, SL_EACCES, "dead letters %s: opened read-only", q->dir);
	else if (purpose == SL__DL_WRITE && q->poisoned)
		rc = sl_err_set(err, SL_EPOISONED, "dead letters %s: an I/O call failed earlier; open it again",
				q->dir);
	if (rc != 0)
		sl__unlock(&q->mu);
	return rc;
}

void sl__dl_leave(sl_dlq *q)
{
	update_gauges(q);
	sl__unlock(&q->mu);
}

/* ---- statistics ---- */

int sl_dlq_get_stats(sl_dlq *q, struct sl_dlq_stats *out, struct sl_err *err)
{
	struct sl_dlq_stats s = {0};
	int rc = sl__dl_enter(q, SL__DL_READ, err);
	if (rc != 0)
		return rc;
	rc = sl__dl_recount(q, err);
	if (rc == 0)
		rc = sl__dl_oldest(q, &s.oldest_ms, err);
	for (size_t i = 0; i < q->n_files; i++) {
		s.letters += q->files[i].letters;
		s.unacknowledged += q->files[i].unacked;
		s.damaged += q->files[i].damaged;
	}
	s.files = q->n_files;
	s.bytes = q->bytes;
	sl__dl_leave(q);
	if (rc == 0)
		sl__result_copy(out, &s, sizeof(s));
	return rc;
}
