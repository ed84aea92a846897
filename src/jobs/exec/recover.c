/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends what a dead worker has left in its spools to its log, once.
 *
 *   1. Every spool is locked: its minder, which ends the command after the worker's death, is gone then.
 *   2. The log is read, from the lowest sequence that any header names: events of these attempts that it contains are
 *      known (the worker died between an append and the header, or an earlier recovery did).
 *   3. Frames are read from the header's position on, and what is not known is appended, in the order in which a living
 *      worker would have done it. After each append the header is updated.
 *   4. The spool is removed; in the end the folder is synced, before anything that was appended can leave the log.
 *
 * Dying anywhere in between and beginning again gives the same log:
 *
 * X1  The events in the log are always the first of an attempt's order (capture.c, Q1).
 * X2  Each is recognised by its stream and position, or by being the only one of its type.
 * X3  The folder of a removed spool is synced before the log may go. A spool that a power loss brings back after its
 *     log was archived would look like one that was never recovered.
 *
 * Spools whose log is gone: a log that is completed while a spool cannot be recovered (a full disk, a spool that cannot
 * be read) is sent and archived; its spools stay, and a sweep, which goes by logs, would never find them. So their log
 * is created again, empty and under the same name. It is an orphan like any other then, and gets what the headers of
 * the spools do not have in a log yet.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "jobs/exec/priv.h"

#define SUFFIX ".spool"
#define LOCK_WAIT_MS 5000
#define LOCK_STEP_MS 10
#define BATCH_BYTES ((size_t)512 * 1024)

static const char worker_died[] = "the worker died; the command was killed";
static const char was_late[] = "appending this output failed at first; the attempt failed because of that";

struct orphan {
	char *path;
	int fd;
	bool live; /* has something to recover; false: only to be removed, or left alone (fd -1) */
	struct sl__spool_header header;
	uint8_t key[SL_WAL_KEY_BYTES]; /* of an encrypted one */
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

/* The length of a spool's name without its suffix; 0: not a spool. */
static size_t stem_of(const char *name)
{
	size_t n = strlen(name), tail = strlen(SUFFIX);
	return n > tail && strcmp(name + n - tail, SUFFIX) == 0 ? n - tail : 0;
}

static int add_spool_path(struct recovery *r, const char *path)
{
	struct orphan *grown = sl__grow(&r->env, r->orphans, r->n, &r->cap, sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	r->orphans = grown;
	struct orphan *o = &r->orphans[r->n];
	*o = (struct orphan){.fd = -1, .path = sl__strdup(&r->env, path)};
	if (o->path == NULL)
		return -ENOMEM;
	r->n++;
	return 0;
}

static int add_spool(const char *name, void *ctx)
{
	struct recovery *r = ctx;
	if (stem_of(name) == 0)
		return 0;
	char *path = sl__asprintf(&r->env, "%s/%s", r->dir, name);
	int rc = path != NULL ? add_spool_path(r, path) : -ENOMEM;
	sl__free(&r->env, path);
	return rc;
}

/* Until the minder is gone. */
static int lock_spool(const struct recovery *r, const struct orphan *o, int64_t until_ns, struct sl_err *err)
{
	const struct sl_env *env = &r->env;
	sl__mutex mu;
	sl__cond never;
	int rc;
	sl__mutex_init(&mu);
	sl__cond_init(&never);
	while ((rc = SL__IO(env, lock, o->fd)) == -EWOULDBLOCK && sl__mono_ns(env) < until_ns) {
		int64_t next = sl__deadline_ns(env, LOCK_STEP_MS);
		sl__lock(&mu);
		while (sl__mono_ns(env) < next && sl__wait(env, &never, &mu, next))
			;
		sl__unlock(&mu);
	}
	sl__cond_fini(&never);
	sl__mutex_fini(&mu);
	if (rc == -EWOULDBLOCK)
		return sl_err_set(err, SL_ELOCKED, "%s: its minder is still running", o->path);
	return rc < 0 ? sl_err_set_errno(err, -rc, "lock %s", o->path) : 0;
}

static int read_spool_header(const struct recovery *r, struct orphan *o, struct sl_err *err)
{
	uint8_t bytes[SL__SPOOL_HEADER];
	ssize_t got = sl__pread_full(&r->env, o->fd, bytes, sizeof(bytes), 0);
	if (got < 0)
		return sl_err_set_errno(err, (int)-got, "read %s", o->path);
	if (got == 0) /* died before the first attempt, or between two */
		return 0;
	int rc = got == sizeof(bytes) ? sl__spool_get_header(bytes, &o->header) : SL_EDATA;
	if (rc == SL_EDATA) {
		/* Not a spool, or one that a power loss has damaged: it cannot be used, but is kept for inspection. */
		char *aside = sl__asprintf(&r->env, "%s.damaged", o->path);
		if (aside == NULL)
			return sl_err_set(err, SL_ENOMEM, "recover %s: out of memory", o->path);
		rc = SL__IO(&r->env, rename, o->path, aside, 0);
		if (rc < 0)
			rc = sl_err_set_errno(err, -rc, "rename %s", o->path);
		else
			sl__log(&r->env, SL_LOG_ERROR, "exec", "quarantined a damaged spool", SL__F_STR("file", aside));
		sl__free(&r->env, aside);
		sl__close_fd(&r->env, &o->fd);
		return rc;
	}
	if (rc != 0)
		return sl_err_set(err, rc, "%s: a spool of a later version", o->path);
	if ((o->header.flags & SL__SPOOL_DONE) == 0 && (o->header.flags & SL__SPOOL_SEALED) != 0) {
		uint8_t sealed[SL_WAL_SEALED_KEY_BYTES];
		got = sl__pread_full(&r->env, o->fd, sealed, sizeof(sealed), SL__SPOOL_KEY_AT);
		if (got < 0)
			return sl_err_set_errno(err, (int)-got, "read %s", o->path);
		rc = got == sizeof(sealed) ? sl_wal_open_key(r->log, sealed, o->key, err) : SL_EKEY;
		if (rc != 0)
			return sl_err_set(err, SL_EKEY,
					  "%s is encrypted, and not with the key of this log; give the key file of the "
					  "worker that wrote it",
					  o->path);
	}
	o->live = (o->header.flags & SL__SPOOL_DONE) == 0;
	if (o->live)
		sl__capture_init(&o->capture, &r->env, &o->header);
	return 0;
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
static int find_known(const struct sl_wal_record *record, void *ctx)
{
	const struct recovery *r = ctx;
	struct sl_event event;
	if (sl_event_decode(record->payload, record->payload_len, &event, NULL) != 0)
		return 0;
	for (size_t low = 0, high = r->n; low < high;) {
		size_t mid = low + (high - low) / 2;
		struct orphan *o = &r->orphans[mid];
		int order =
			o->live ? compare_token(event.job_id, &event.claim, o->header.job_id, &o->header.claim) : -1;
		if (order == 0) {
			sl__capture_known(&o->capture, &event);
			break;
		}
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return 0;
}

/* ---- appending ---- */

/* Its sequence stays: then the log is read from there again, so this need not succeed. */
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

static void save_recovered(size_t n, uint64_t last, void *ctx)
{
	struct appending *a = ctx;
	(void)last;
	a->n = n;
	sl__capture_note_part(&a->o->capture, n, &a->o->header);
	write_header(a->r, a->o);
}

static int append_events(struct recovery *r, struct orphan *o, struct sl_err *err)
{
	struct appending a = {.r = r, .o = o};
	const struct sl__event_log to = {r->log, save_recovered, &a};
	uint64_t last;
	int rc = sl__event_batch_append(&o->capture.batch, &to, &last, err);
	r->appended += rc == 0 ? o->capture.batch.n : a.n;
	if (rc != 0)
		return rc;
	sl__event_batch_clear(&o->capture.batch);
	sl__capture_note(&o->capture, &o->header);
	write_header(r, o);
	return 0;
}

static int replay_spool(struct recovery *r, struct orphan *o, uint8_t *buf, struct sl_err *err)
{
	struct sl__spool_reader reader = {.env = &r->env,
					  .fd = o->fd,
					  .salt = o->header.salt,
					  .at = o->header.resume.offset,
					  .limit = UINT64_MAX,
					  .buf = buf,
					  .key = (o->header.flags & SL__SPOOL_SEALED) != 0 ? o->key : NULL};
	struct sl__frame frame;
	int rc, n = 0;
	while ((rc = sl__spool_next(&reader, &frame)) > 0) {
		n++;
		rc = sl__capture_frame(&o->capture, &frame, err);
		if (rc == 0 && o->capture.batch.bytes.len >= BATCH_BYTES)
			rc = append_events(r, o, err);
		if (rc != 0)
			return rc;
	}
	if (rc < 0)
		return sl_err_set_errno(err, -rc, "read %s", o->path);
	/* Nothing was ever started: no event. */
	if (n == 0 && o->header.resume.offset == SL__SPOOL_START)
		return 0;
	if (o->capture.last_ts_ms == 0)
		o->capture.last_ts_ms = sl__real_ms(&r->env);
	rc = sl__capture_end(&o->capture, r->why, err);
	if (rc != 0)
		return rc;
	return append_events(r, o, err);
}

static void free_recovery(struct recovery *r)
{
	for (size_t i = 0; i < r->n; i++) {
		struct orphan *o = &r->orphans[i];
		if (o->live)
			sl__capture_fini(&o->capture);
		sl__close_fd(&r->env, &o->fd);
		sl__free(&r->env, o->path);
		explicit_bzero(o->key, sizeof(o->key));
	}
	sl__free(&r->env, r->orphans);
}

/* Recover all spools that were added. */
static int recover_spools(struct recovery *r, struct sl_err *err)
{
	struct sl_wal_stats stats = {.struct_size = sizeof(stats)};
	uint64_t from = UINT64_MAX;
	int64_t lock_until = sl__deadline_ns(&r->env, LOCK_WAIT_MS);
	int rc;
	/* Open, lock and read all spools. One that fails is left alone, and the first failure is kept. */
	for (size_t i = 0; i < r->n; i++) {
		struct orphan *o = &r->orphans[i];
		struct sl_err why = SL_ERR_INIT;
		o->fd = SL__IO(&r->env, open, o->path, O_RDWR | O_NOFOLLOW, 0);
		if (o->fd == -ENOENT)
			continue;
		if (o->fd < 0)
			rc = sl_err_set_errno(&why, -o->fd, "open %s", o->path);
		else
			rc = lock_spool(r, o, lock_until, &why);
		if (rc == 0)
			rc = read_spool_header(r, o, &why);
		if (rc == 0)
			continue;
		sl__close_fd(&r->env, &o->fd);
		if (r->first_rc == 0) {
			r->first_rc = rc;
			r->first = why;
		}
	}

	rc = sl_wal_get_stats(r->log, &stats, err);
	if (rc != 0)
		return rc;
	qsort(r->orphans, r->n, sizeof(*r->orphans), compare_orphans);
	for (size_t i = 0; i < r->n && r->orphans[i].live; i++) {
		const struct sl__spool_header *h = &r->orphans[i].header;
		/* Of another incarnation: its numbers mean nothing here. */
		bool same = h->incarnation == stats.incarnation && h->sequence <= stats.last_sequence;
		from = SL_MIN(from, same ? h->sequence + 1 : 0);
	}
	rc = from <= stats.last_sequence ? sl_wal_iterate(r->log, from, find_known, r, err) : 0;
	if (rc != 0)
		return rc;

	uint8_t *buf = sl__alloc(&r->env, SL__SPOOL_BUF);
	if (buf == NULL)
		return sl_err_set(err, SL_ENOMEM, "recover %s: out of memory", r->dir);
	for (size_t i = 0; rc == 0 && i < r->n; i++) {
		struct orphan *o = &r->orphans[i];
		if (o->fd < 0)
			continue;
		rc = o->live ? replay_spool(r, o, buf, err) : 0;
		int gone = rc == 0 ? SL__IO(&r->env, unlink, o->path) : 0;
		if (gone < 0 && gone != -ENOENT)
			rc = sl_err_set_errno(err, -gone, "remove %s", o->path);
	}
	sl__free(&r->env, buf);
	if (rc != 0)
		return rc;
	rc = r->n > 0 ? sl__sync_dir(&r->env, r->dir) : 0; /* X3 */
	if (rc < 0 && rc != -ENOENT)
		return sl_err_set_errno(err, -rc, "sync %s", r->dir);
	if (r->first_rc != 0 && err != NULL)
		*err = r->first;
	return r->first_rc;
}

int sl_exec_recover(sl_wal *events, const char *spool_dir, const struct sl_env *env, uint64_t *n, struct sl_err *err)
{
	struct recovery r = {.log = events, .dir = spool_dir, .why = worker_died};
	int rc = sl__env_init(&r.env, env, err);
	if (rc != 0)
		return rc;
	rc = SL__IO(&r.env, list, spool_dir, add_spool, &r);
	if (rc < 0 && rc != -ENOENT)
		rc = sl_err_set_errno(err, -rc, "list %s", spool_dir);
	else
		rc = r.n > 0 ? recover_spools(&r, err) : 0;
	if (n != NULL)
		*n = r.appended;
	free_recovery(&r);
	/* Removed only when it is empty; struct sl_io has no call for it. */
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

/* ---- spools that this process could not recover ---- */

void sl__exec_retry_retired(sl_exec *x, bool now)
{
	int64_t clock = sl__exec_now_ns();
	sl__lock(&x->mu);
	struct sl__retired *next, *list = now || clock >= x->retry_retired_ns ? x->retired : NULL;
	if (list != NULL) {
		x->retired = NULL;
		x->retry_retired_ns = clock + 1000000000;
	}
	sl__unlock(&x->mu);
	for (; list != NULL; list = next) {
		struct recovery r = {.env = x->env, .log = x->events, .dir = x->spool_dir, .why = was_late};
		struct sl_err err = SL_ERR_INIT;
		next = list->next;
		int rc = add_spool_path(&r, list->path) != 0 ? sl_err_set(&err, SL_ENOMEM, "out of memory")
							     : recover_spools(&r, &err);
		free_recovery(&r);
		if (rc == 0) {
			sl__free(&x->env, list->path);
			sl__free(&x->env, list);
			continue;
		}
		sl__log(&x->env, SL_LOG_WARN, "exec", "cannot append the output of an attempt yet",
			SL__F_STR("spool", list->path), SL__F_STR("error", err.msg));
		sl__lock(&x->mu);
		list->next = x->retired;
		x->retired = list;
		sl__unlock(&x->mu);
	}
}

/* ---- spools without a log ---- */

struct lost {
	const struct sl_env *env;
	const struct sl_wal_opts *opts;
	uint64_t made;
	int first_rc; /* of a folder that could not be handled, while the others were */
	struct sl_err first;
};

static int find_spool(const char *name, void *ctx)
{
	bool *found = ctx;
	*found = stem_of(name) > 0;
	return *found ? 1 : 0;
}

/* Create the log of <dir>/<id>.spool again, if that has spools and no log. */
static int restore_log(struct lost *l, const char *folder, const char *id, struct sl_err *err)
{
	bool found = false;
	int rc = SL__IO(l->env, list, folder, find_spool, &found);
	if (rc < 0)
		return rc == -ENOENT || rc == -ENOTDIR ? 0 : sl_err_set_errno(err, -rc, "list %s", folder);
	/* Only now: a log is there before its folder is, and a living worker keeps it. */
	char *path = sl__asprintf(l->env, "%s/%s.wal", l->opts->wal_dir, id);
	int fd = path != NULL ? SL__IO(l->env, open, path, O_RDONLY, 0) : -ENOMEM;
	sl__free(l->env, path);
	if (fd >= 0) {
		sl__close_fd(l->env, &fd);
		return 0;
	}
	if (fd != -ENOENT)
		return sl_err_set_errno(err, -fd, "find the log of %s", folder);
	if (!found) {
		/* Removed only when it is empty; struct sl_io has no call for it. */
		(void)rmdir(folder);
		return 0;
	}
	sl_wal *w = NULL;
	rc = sl_wal_open(&w, id, l->opts, err);
	if (rc == SL_ELOCKED) /* another process creates it just now, and sweeps it */
		return 0;
	if (rc == 0)
		rc = sl_wal_close(w, err);
	if (rc != 0)
		return rc;
	l->made++;
	sl__log(l->env, SL_LOG_WARN, "exec", "recovering output whose log is gone",
		SL__F_STR("folder", l->opts->wal_dir), SL__F_STR("stream", id));
	return 0;
}

static int check_folder(const char *name, void *ctx)
{
	struct lost *l = ctx;
	struct sl_err err = SL_ERR_INIT;
	size_t stem = stem_of(name);
	if (stem == 0)
		return 0;
	char *folder = sl__asprintf(l->env, "%s/%s", l->opts->wal_dir, name);
	char *id = sl__asprintf(l->env, "%.*s", (int)stem, name);
	int rc = folder != NULL && id != NULL ? restore_log(l, folder, id, &err)
					      : sl_err_set(&err, SL_ENOMEM, "lost spools: out of memory");
	sl__free(l->env, folder);
	sl__free(l->env, id);
	if (rc != 0 && l->first_rc == 0) {
		l->first_rc = rc;
		l->first = err;
	}
	return 0;
}

int sl_exec_find_lost(const struct sl_wal_opts *opts, uint64_t *n, struct sl_err *err)
{
	struct sl_wal_opts o;
	struct sl_env env;
	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__env_init(&env, o.env, err);
	if (rc != 0)
		return rc;
	if (o.wal_dir == NULL || o.wal_dir[0] == '\0')
		return sl_err_set(err, SL_EINVAL, "wal_dir: is missing");
	o.background = SL_OFF;
	struct lost l = {.env = &env, .opts = &o};
	rc = SL__IO(&env, list, o.wal_dir, check_folder, &l);
	if (n != NULL)
		*n = l.made;
	if (rc < 0 && rc != -ENOENT)
		return sl_err_set_errno(err, -rc, "list %s", o.wal_dir);
	if (l.first_rc != 0 && err != NULL)
		*err = l.first;
	return l.first_rc;
}
