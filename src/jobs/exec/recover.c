/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a dead worker has left in its spools goes into its log, once.
 *
 *   1. Every spool is locked: its minder, which ends the command after the worker's death, is gone then.
 *   2. The log is read, from the lowest sequence that any header names: events of these attempts that stand there are
 *      known (the worker died between an append and the header, or an earlier recovery did).
 *   3. Frames are read from where the header says, and what is not known is appended, in the order in which a living
 *      worker would have done it. After each append the header is told.
 *   4. The spool is removed; in the end the folder is synced, before anything that was appended can leave the log.
 *
 * Dying anywhere in between and beginning again gives the same log: X1 the events in the log are always the first of an
 * attempt's order (exec/capture.c, Q1), and X2 each is recognised by its stream and position, or by being the only one
 * of its type.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jobs/exec/priv.h"

#define SUFFIX ".spool"
#define LOCK_WAIT_MS 5000
#define LOCK_STEP_MS 10
#define BATCH_BYTES ((size_t)512 * 1024)

static const char worker_died[] = "the worker died; the command was killed";
static const char was_late[] = "the log did not take this output at first; the attempt failed because of that";

struct orphan {
	char *path;
	int fd;
	bool live; /* has something to recover; false: only to be removed, or left alone (fd -1) */
	struct sl__spool_header header;
	struct sl__capture capture;
};

struct recovery {
	struct sl_env env;
	sl_wal *log;
	const char *dir;
	const char *why;
	struct orphan *orphans;
	size_t n, cap;
	uint64_t appended;
	int first_rc; /* of one that could not be helped, while the others were */
	struct sl_err first;
};

/* ---- finding them ---- */

static int add_path(struct recovery *r, const char *path)
{
	if (r->n == r->cap) {
		size_t cap = r->cap != 0 ? r->cap * 2 : 16;
		struct orphan *grown = sl__realloc(&r->env, r->orphans, cap * sizeof(*grown));
		if (grown == NULL)
			return -ENOMEM;
		r->orphans = grown;
		r->cap = cap;
	}
	struct orphan *o = &r->orphans[r->n];
	*o = (struct orphan){.fd = -1, .path = sl__strdup(&r->env, path)};
	if (o->path == NULL)
		return -ENOMEM;
	r->n++;
	return 0;
}

static int on_name(const char *name, void *ctx)
{
	struct recovery *r = ctx;
	size_t n = strlen(name), tail = strlen(SUFFIX);
	if (n <= tail || strcmp(name + n - tail, SUFFIX) != 0)
		return 0;
	char *path = sl__asprintf(&r->env, "%s/%s", r->dir, name);
	int rc = path != NULL ? add_path(r, path) : -ENOMEM;
	sl__free(&r->env, path);
	return rc;
}

static void trouble(struct recovery *r, int rc, const struct sl_err *err)
{
	if (r->first_rc == 0) {
		r->first_rc = rc;
		r->first = *err;
	}
}

static void pause_a_little(const struct sl_env *env)
{
	sl__mutex mu;
	sl__cond never;
	sl__mutex_init(&mu);
	sl__cond_init(&never);
	int64_t until = sl__deadline_ns(env, LOCK_STEP_MS);
	sl__lock(&mu);
	while (sl__mono_ns(env) < until && sl__wait(env, &never, &mu, until))
		;
	sl__unlock(&mu);
	sl__cond_fini(&never);
	sl__mutex_fini(&mu);
}

static int lock_it(const struct recovery *r, const struct orphan *o, int64_t until_ns, struct sl_err *err)
{
	for (;;) {
		int rc = SL__IO(&r->env, lock, o->fd);
		if (rc != -EWOULDBLOCK)
			return rc < 0 ? sl_err_set_errno(err, -rc, "lock %s", o->path) : 0;
		if (sl__mono_ns(&r->env) >= until_ns)
			return sl_err_set(err, SL_ELOCKED, "%s: its minder still runs", o->path);
		pause_a_little(&r->env);
	}
}

/* Not a spool, or one that a power loss has damaged: nobody can use it, but somebody may want to look at it. */
static int set_aside(const struct recovery *r, struct orphan *o, struct sl_err *err)
{
	char *aside = sl__asprintf(&r->env, "%s.damaged", o->path);
	if (aside == NULL)
		return sl_err_set(err, SL_ENOMEM, "recover %s: out of memory", o->path);
	int rc = SL__IO(&r->env, rename, o->path, aside, 0);
	if (rc < 0)
		rc = sl_err_set_errno(err, -rc, "rename %s", o->path);
	else
		sl__log(&r->env, SL_LOG_ERROR, "exec", "a spool cannot be read and is set aside",
			SL__F_STR("file", aside));
	sl__free(&r->env, aside);
	sl__close_fd(&r->env, &o->fd);
	return rc;
}

static int look_at(const struct recovery *r, struct orphan *o, struct sl_err *err)
{
	uint8_t bytes[SL__SPOOL_HEADER];
	ssize_t got = sl__pread_full(&r->env, o->fd, bytes, sizeof(bytes), 0);
	if (got < 0)
		return sl_err_set_errno(err, (int)-got, "read %s", o->path);
	if (got == 0) /* died before the first attempt, or between two */
		return 0;
	int rc = got == sizeof(bytes) ? sl__spool_get_header(bytes, &o->header) : SL_EDATA;
	if (rc == SL_EDATA)
		return set_aside(r, o, err);
	if (rc != 0)
		return sl_err_set(err, rc, "%s: a spool of a later version", o->path);
	o->live = (o->header.flags & SL__SPOOL_DONE) == 0;
	if (o->live)
		sl__capture_init(&o->capture, &r->env, &o->header);
	return 0;
}

static void open_all(struct recovery *r)
{
	int64_t until = sl__deadline_ns(&r->env, LOCK_WAIT_MS);
	for (size_t i = 0; i < r->n; i++) {
		struct orphan *o = &r->orphans[i];
		struct sl_err err = SL_ERR_INIT;
		o->fd = SL__IO(&r->env, open, o->path, O_RDWR | O_NOFOLLOW, 0);
		if (o->fd == -ENOENT)
			continue;
		int rc = o->fd < 0 ? sl_err_set_errno(&err, -o->fd, "open %s", o->path) : lock_it(r, o, until, &err);
		if (rc == 0)
			rc = look_at(r, o, &err);
		if (rc != 0) {
			trouble(r, rc, &err);
			sl__close_fd(&r->env, &o->fd);
		}
	}
}

/* ---- what the log has ---- */

static int compare_token(uint64_t job_a, const struct sl_claim_id *a, uint64_t job_b, const struct sl_claim_id *b)
{
	if (job_a != job_b)
		return job_a < job_b ? -1 : 1;
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

static int compare_orphans(const void *x, const void *y)
{
	const struct orphan *a = x, *b = y;
	if (a->live != b->live)
		return a->live ? -1 : 1;
	return compare_token(a->header.job_id, &a->header.claim, b->header.job_id, &b->header.claim);
}

/* Orphans are sorted, the live ones first. A token is there once: a job starts once under a claim. */
static struct orphan *find(const struct recovery *r, const struct sl_event *event)
{
	size_t low = 0, high = r->n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		struct orphan *o = &r->orphans[mid];
		int order =
			o->live ? compare_token(event->job_id, &event->claim, o->header.job_id, &o->header.claim) : -1;
		if (order == 0)
			return o;
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return NULL;
}

static int on_record(const struct sl_wal_record *record, void *ctx)
{
	struct sl_event event;
	if (sl_event_decode(record->payload, record->payload_len, &event, NULL) != 0)
		return 0;
	struct orphan *o = find(ctx, &event);
	if (o != NULL)
		sl__capture_known(&o->capture, &event);
	return 0;
}

static int read_log(struct recovery *r, struct sl_err *err)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	uint64_t from = UINT64_MAX;
	int rc = sl_wal_get_stats(r->log, &stats, err);
	if (rc != 0)
		return rc;
	qsort(r->orphans, r->n, sizeof(*r->orphans), compare_orphans);
	for (size_t i = 0; i < r->n && r->orphans[i].live; i++) {
		const struct sl__spool_header *h = &r->orphans[i].header;
		/* Of another incarnation: its numbers mean nothing here. */
		bool same = h->incarnation == stats.incarnation && h->sequence <= stats.last_sequence;
		from = SL_MIN(from, same ? h->sequence + 1 : 0);
	}
	return from <= stats.last_sequence ? sl_wal_iterate(r->log, from, on_record, r, err) : 0;
}

/* ---- bringing them in ---- */

/* Its sequence stays: then the log is read from there again, and this needs not even succeed. */
static void write_header(const struct recovery *r, const struct orphan *o)
{
	uint8_t bytes[SL__SPOOL_HEADER];
	sl__spool_put_header(bytes, &o->header);
	(void)sl__pwrite_full(&r->env, o->fd, bytes, sizeof(bytes), 0);
}

struct appending {
	struct recovery *r;
	struct orphan *o;
	size_t n; /* durable of the batch */
};

static void on_part(size_t n, uint64_t last, void *ctx)
{
	struct appending *a = ctx;
	(void)last;
	a->n = n;
	sl__capture_note_part(&a->o->capture, n, &a->o->header);
	write_header(a->r, a->o);
}

static int append(struct recovery *r, struct orphan *o, struct sl_err *err)
{
	struct appending a = {.r = r, .o = o};
	uint64_t last;
	int rc = sl__event_batch_append(&o->capture.batch, r->log, on_part, &a, &last, err);
	r->appended += rc == 0 ? o->capture.batch.n : a.n;
	if (rc != 0)
		return rc;
	sl__event_batch_clear(&o->capture.batch);
	sl__capture_note(&o->capture, &o->header);
	write_header(r, o);
	return 0;
}

static int replay(struct recovery *r, struct orphan *o, uint8_t *buf, struct sl_err *err)
{
	struct sl__spool_reader reader = {.env = &r->env,
					  .fd = o->fd,
					  .salt = o->header.salt,
					  .at = o->header.resume.offset,
					  .limit = UINT64_MAX,
					  .buf = buf};
	struct sl__frame frame;
	int rc, n = 0;
	while ((rc = sl__spool_next(&reader, &frame)) > 0) {
		n++;
		rc = sl__capture_frame(&o->capture, &frame, err);
		if (rc == 0 && o->capture.batch.bytes.len >= BATCH_BYTES)
			rc = append(r, o, err);
		if (rc != 0)
			return rc;
	}
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "read %s", o->path);
	/* Nothing was ever started: there is nothing to tell. */
	if (n == 0 && o->header.resume.offset == SL__SPOOL_START)
		return 0;
	if (o->capture.last_ts_ms == 0)
		o->capture.last_ts_ms = sl__real_ms(&r->env);
	rc = sl__capture_end(&o->capture, r->why, err);
	return rc == 0 ? append(r, o, err) : rc;
}

static int bring_in(struct recovery *r, struct sl_err *err)
{
	uint8_t *buf = sl__alloc(&r->env, SL__SPOOL_BUF);
	if (buf == NULL)
		return sl_err_set(err, SL_ENOMEM, "recover %s: out of memory", r->dir);
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < r->n; i++) {
		struct orphan *o = &r->orphans[i];
		if (o->fd < 0)
			continue;
		rc = o->live ? replay(r, o, buf, err) : 0;
		int gone = rc == 0 ? SL__IO(&r->env, unlink, o->path) : 0;
		if (gone < 0 && gone != -ENOENT)
			rc = sl_err_set_errno(err, -gone, "remove %s", o->path);
	}
	sl__free(&r->env, buf);
	return rc;
}

static void free_all(struct recovery *r)
{
	for (size_t i = 0; i < r->n; i++) {
		struct orphan *o = &r->orphans[i];
		if (o->live)
			sl__capture_fini(&o->capture);
		sl__close_fd(&r->env, &o->fd);
		sl__free(&r->env, o->path);
	}
	sl__free(&r->env, r->orphans);
}

static int sync_folder(const struct recovery *r, struct sl_err *err)
{
	int rc = r->n > 0 ? sl__sync_dir(&r->env, r->dir) : 0;
	return rc < 0 && rc != -ENOENT ? sl_err_set_errno(err, -rc, "sync %s", r->dir) : 0;
}

/* All that were added. */
static int recover(struct recovery *r, struct sl_err *err)
{
	open_all(r);
	int rc = read_log(r, err);
	if (rc == 0)
		rc = bring_in(r, err);
	if (rc == 0)
		rc = sync_folder(r, err);
	if (rc == 0 && r->first_rc != 0) {
		rc = r->first_rc;
		if (err != NULL)
			*err = r->first;
	}
	return rc;
}

int sl_exec_recover(sl_wal *events, const char *spool_dir, const struct sl_env *env, uint64_t *n, struct sl_err *err)
{
	struct recovery r = {.log = events, .dir = spool_dir, .why = worker_died};
	int rc = sl__env_init(&r.env, env, err);
	if (rc != 0)
		return rc;
	rc = SL__IO(&r.env, list, spool_dir, on_name, &r);
	if (rc < 0 && rc != -ENOENT)
		rc = sl_err_set_errno(err, -rc, "list %s", spool_dir);
	else
		rc = r.n > 0 ? recover(&r, err) : 0;
	if (n != NULL)
		*n = r.appended;
	free_all(&r);
	/* Goes only when it is empty; the table has no call for it. */
	if (rc == 0)
		(void)rmdir(spool_dir);
	return rc;
}

int sl_exec_recover_orphan(sl_wal *w, const char *path, struct sl_err *err, void *env)
{
	struct sl_env e;
	size_t n = strlen(path), tail = strlen(".wal");
	int rc = sl__env_init(&e, env, err);
	if (rc != 0)
		return rc;
	if (n <= tail || strcmp(path + n - tail, ".wal") != 0)
		return sl_err_set(err, SL_EINVAL, "%.150s: a log is named <id>.wal", path);
	char *dir = sl__asprintf(&e, "%.*s" SUFFIX, (int)(n - tail), path);
	if (dir == NULL)
		return sl_err_set(err, SL_ENOMEM, "recover %.150s: out of memory", path);
	rc = sl_exec_recover(w, dir, env, NULL, err);
	sl__free(&e, dir);
	return rc;
}

/* ---- spools that this process could not bring in ---- */

static struct sl__retired *take_retired(sl_exec *x, bool now)
{
	int64_t clock = sl__clock_real.mono_ns(NULL);
	sl__lock(&x->mu);
	struct sl__retired *list = now || clock >= x->retry_retired_ns ? x->retired : NULL;
	if (list != NULL) {
		x->retired = NULL;
		x->retry_retired_ns = clock + 1000000000;
	}
	sl__unlock(&x->mu);
	return list;
}

static void put_back(sl_exec *x, struct sl__retired *one)
{
	sl__lock(&x->mu);
	one->next = x->retired;
	x->retired = one;
	sl__unlock(&x->mu);
}

void sl__exec_retry_retired(sl_exec *x, bool now)
{
	struct sl__retired *next, *list = take_retired(x, now);
	for (; list != NULL; list = next) {
		struct recovery r = {.env = x->env, .log = x->events, .dir = x->spool_dir, .why = was_late};
		struct sl_err err = SL_ERR_INIT;
		next = list->next;
		int rc = add_path(&r, list->path) != 0 ? sl_err_set(&err, SL_ENOMEM, "out of memory")
						       : recover(&r, &err);
		free_all(&r);
		if (rc != 0) {
			sl__log(&x->env, SL_LOG_WARN, "exec", "the output of an attempt could not be appended yet",
				SL__F_STR("spool", list->path), SL__F_STR("error", err.msg));
			put_back(x, list);
			continue;
		}
		sl__free(&x->env, list->path);
		sl__free(&x->env, list);
	}
}
