/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that reads the repository: see backup.h. It opens it for each reading, so that a disk can be unmounted in
 * between and another passphrase counts. A look makes a whole new picture, which takes the place of the old one at
 * once; when it fails the old one stays, with the reason.
 */
#include "server/backup/backup.h"

#include "base/thread.h"
#include "base/time.h"
#include "server/api/api.h"
#include "server/config/config.h"
#include "server/health.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STOP_AGAIN_MS 50 /* a call that begins forgets a stop that came before */

/* A check of the repository in the background, one at a time, on a separate handle. What it found is kept until the
 * next one begins. */

struct srv_backups {
	struct srv_core *core;
	struct srv_checker *checker;
	pthread_t thread;
	bool started;
	sl__mutex mu; /* guards all below */
	sl__cond wake;
	bool stop, ended;
	sl_backup *open;         /* while it is read and may be stopped */
	struct picture *picture; /* NULL: none yet */
	char error[256];
	sl_gauge *up, *newest, *snapshots;
};

struct srv_checker {
	struct srv_core *core;
	sl__mutex mu; /* guards all below */
	sl__cond ended;
	struct srv_backup_check *check; /* NULL: there was none */
	sl_backup *open;                /* the handle that checks, while it may be stopped and asked */
	pthread_t thread;
	bool joinable, stop;
};

/* ---- what it says; one call at a time ---- */

static char *copy_of(const char *text, bool *failed)
{
	char *copy = text != NULL ? strdup(text) : NULL;
	*failed |= text != NULL && copy == NULL;
	return copy;
}

static void free_finding(struct srv_backup_finding *f)
{
	free(f->object);
	free(f->snapshot);
	free(f->path);
	free(f->text);
}

static int on_finding(const struct sl_backup_finding *f, void *ctx)
{
	struct srv_checker *c = ctx;
	bool failed = false;
	struct srv_backup_finding copy = {.fault = (int)f->fault, .harmless = f->harmless != 0};
	copy.object = copy_of(f->object != NULL ? f->object : "", &failed);
	copy.snapshot = copy_of(f->snapshot, &failed);
	copy.path = copy_of(f->path, &failed);
	copy.text = copy_of(f->reason.msg, &failed);
	sl__lock(&c->mu);
	struct srv_backup_check *k = c->check;
	k->harmless += copy.harmless;
	k->faults += !copy.harmless;
	bool keep = !failed && k->n_findings < SRV_BACKUP_FINDINGS_KEPT;
	if (keep)
		k->findings[k->n_findings++] = copy;
	int rc = c->stop ? SL_ECANCELLED : failed ? SL_ENOMEM : 0;
	sl__unlock(&c->mu);
	if (!keep)
		free_finding(&copy);
	return rc;
}

/* ---- its thread ---- */

static void set_open(struct srv_checker *c, sl_backup *backup)
{
	sl__lock(&c->mu);
	c->open = backup;
	sl__unlock(&c->mu);
}

static int check(struct srv_checker *c, bool read_data, struct sl_backup_checked *result, struct sl_err *err)
{
	struct sl_backup_check_opts opts = {SL_BACKUP_CHECK_OPTS_INIT, .read_data = read_data ? SL_ON : SL_OFF,
					    .on_finding = on_finding, .ctx = c};
	struct srv_repository r;
	int rc = srv_repository_open(&r, c->core, err);
	if (rc != 0)
		return rc;
	set_open(c, r.backup);
	rc = sl_backup_check(r.backup, &opts, result, err);
	set_open(c, NULL);
	srv_repository_close(&r);
	/* What it found says more. */
	return rc == SL_ECORRUPT && result->findings > result->harmless ? 0 : rc;
}

static void *check_main(void *arg)
{
	struct srv_checker *c = arg;
	struct sl_backup_checked result = {.struct_size = sizeof(result)};
	struct sl_err err = SL_ERR_INIT;
	sl__lock(&c->mu);
	bool read_data = c->check->read_data;
	sl__unlock(&c->mu);
	int rc = check(c, read_data, &result, &err);
	if (rc != 0 && err.code == 0)
		(void)sl_err_set(&err, rc, "%s", sl_err_text(rc));
	sl__lock(&c->mu);
	c->check->result = result;
	c->check->err = rc != 0 ? err : (struct sl_err)SL_ERR_INIT;
	c->check->ended_ms = sl__clock_real_ms();
	c->check->running = false;
	sl__broadcast(&c->ended);
	sl__unlock(&c->mu);
	return NULL;
}

/* ---- one at a time ---- */

static void free_check(struct srv_backup_check *k)
{
	for (size_t i = 0; k != NULL && i < k->n_findings; i++)
		free_finding(&k->findings[i]);
	free(k);
}

/* With the lock; *old is what it takes the place of. */
static int begin(struct srv_checker *c, struct srv_backup_check *fresh, struct srv_backup_check **old,
		 struct sl_err *err)
{
	if (c->stop)
		return sl_err_set(err, SL_EUNAVAIL, "the server stops");
	if (c->check != NULL && c->check->running)
		return sl_err_set(err, SL_EEXIST, "a check of the repository is under way");
	if (c->joinable)
		(void)pthread_join(c->thread, NULL); /* past its last use of the lock */
	*old = c->check;
	c->check = fresh;
	int failed = sl__thread_start(&c->thread, "sl-check", check_main, c);
	c->joinable = failed == 0;
	if (failed == 0)
		return 0;
	c->check = *old;
	return sl__thread_error(err, failed, "check", "the server");
}

int srv_backups_check_start(struct srv_backups *b, bool read_data, struct sl_err *err)
{
	struct srv_checker *c = b->checker;
	struct srv_backup_check *fresh = calloc(1, sizeof(*fresh)), *old = NULL;
	if (fresh == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	fresh->running = true;
	fresh->read_data = read_data;
	fresh->started_ms = sl__clock_real_ms();
	sl__lock(&c->mu);
	int rc = begin(c, fresh, &old, err);
	sl__unlock(&c->mu);
	free_check(rc != 0 ? fresh : old);
	return rc;
}

bool srv_backups_check_look(struct srv_backups *b, srv_backup_check_fn *fn, void *ctx)
{
	struct srv_checker *c = b->checker;
	sl__lock(&c->mu);
	bool found = c->check != NULL;
	if (found) {
		c->check->progress = (struct sl_backup_progress){.struct_size = sizeof(c->check->progress)};
		if (c->open != NULL)
			sl_backup_get_progress(c->open, &c->check->progress);
		fn(c->check, ctx);
	}
	sl__unlock(&c->mu);
	return found;
}

/* ---- the whole ---- */

static int srv_checker_new(struct srv_checker **out, struct srv_core *core, struct sl_err *err)
{
	struct srv_checker *c = calloc(1, sizeof(*c));
	if (c == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	c->core = core;
	sl__mutex_init(&c->mu);
	sl__cond_init(&c->ended);
	*out = c;
	return 0;
}

static void srv_checker_stop(struct srv_checker *c)
{
	sl__lock(&c->mu);
	c->stop = true;
	while (c->check != NULL && c->check->running) {
		if (c->open != NULL)
			sl_backup_stop(c->open);
		(void)sl__wait_until_ms(&c->ended, &c->mu, sl__clock_ms() + STOP_AGAIN_MS);
	}
	sl__unlock(&c->mu);
	if (c->joinable)
		(void)pthread_join(c->thread, NULL);
	c->joinable = false;
}

static void srv_checker_free(struct srv_checker *c)
{
	if (c == NULL)
		return;
	srv_checker_stop(c);
	free_check(c->check);
	sl__cond_fini(&c->ended);
	sl__mutex_fini(&c->mu);
	free(c);
}

struct picture {
	struct sl_backup_stats stats;
	int64_t read_ms, newest_ms;
	char *items[SRV_SNAPSHOTS_KEPT]; /* JSON; the newest snapshots, as a ring */
	uint64_t snapshots, damaged_total;
	struct srv_out damaged_out;
	char *list, *damaged;      /* JSON arrays */
	struct srv_backups *owner; /* while it is made */
};

/* ---- a picture ---- */

static void free_picture(struct picture *p)
{
	if (p == NULL)
		return;
	for (size_t i = 0; i < SRV_SNAPSHOTS_KEPT; i++)
		free(p->items[i]);
	srv_out_free(&p->damaged_out);
	free(p->list);
	free(p->damaged);
	free(p);
}

/* What was written, as a string; NULL without memory. */
static char *text_of(struct srv_out *o)
{
	char *text = o->text.failed ? NULL : strdup(sl__buf_str(&o->text));
	srv_out_free(o);
	return text;
}

static bool stops(struct srv_backups *b)
{
	sl__lock(&b->mu);
	bool stop = b->stop;
	sl__unlock(&b->mu);
	return stop;
}

static void out_list(struct srv_out *o, const char *name, const char *const *items, size_t n)
{
	srv_out_name(o, name);
	srv_out_open(o, '[');
	for (size_t i = 0; i < n; i++)
		srv_out_str(o, items[i]);
	srv_out_close(o, ']');
}

/* In the order of their time: the ring ends up with the newest. */
static int add_snapshot(const struct sl_backup_snapshot *s, void *ctx)
{
	struct picture *p = ctx;
	struct srv_out o = {0};
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "id", str, s->id);
	SRV_FIELD(&o, "time", time, s->time_ms);
	SRV_FIELD(&o, "host", str, s->host);
	out_list(&o, "paths", s->paths, s->paths_n);
	out_list(&o, "tags", s->tags, s->tags_n);
	SRV_FIELD(&o, "entries", int, (int64_t)s->entries);
	SRV_FIELD(&o, "files", int, (int64_t)s->files);
	SRV_FIELD(&o, "bytes", int, (int64_t)s->bytes);
	SRV_FIELD(&o, "new_bytes", int, (int64_t)s->new_bytes);
	SRV_FIELD(&o, "physical_bytes", int, (int64_t)s->physical_bytes);
	SRV_FIELD(&o, "problems", int, (int64_t)s->problems);
	SRV_FIELD(&o, "took_ms", int, (int64_t)s->took_ms);
	srv_out_close(&o, '}');
	char *text = text_of(&o);
	if (text == NULL)
		return SL_ENOMEM;
	char **at = &p->items[p->snapshots++ % SRV_SNAPSHOTS_KEPT];
	free(*at);
	*at = text;
	p->newest_ms = s->time_ms;
	return stops(p->owner) ? SL_ECANCELLED : 0;
}

static int add_damaged(const char *id, const struct sl_err *why, void *ctx)
{
	struct picture *p = ctx;
	if (p->damaged_total++ < SRV_DAMAGED_KEPT) {
		srv_out_open(&p->damaged_out, '{');
		SRV_FIELD(&p->damaged_out, "id", str, id);
		SRV_FIELD(&p->damaged_out, "error", str, why->msg);
		srv_out_close(&p->damaged_out, '}');
	}
	return stops(p->owner) ? SL_ECANCELLED : 0;
}

static int fill(struct picture *p, sl_backup *backup, struct sl_err *err)
{
	srv_out_open(&p->damaged_out, '[');
	int rc = sl_backup_list(backup, add_snapshot, add_damaged, p, err);
	if (rc != 0)
		return err->code != 0 ? rc : sl_err_set(err, rc, "%s", sl_err_text(rc));
	srv_out_close(&p->damaged_out, ']');
	p->damaged = text_of(&p->damaged_out);
	struct srv_out o = {0};
	uint64_t n = p->snapshots < SRV_SNAPSHOTS_KEPT ? p->snapshots : SRV_SNAPSHOTS_KEPT;
	srv_out_open(&o, '[');
	for (uint64_t i = 1; i <= n; i++) {
		char **item = &p->items[(p->snapshots - i) % SRV_SNAPSHOTS_KEPT];
		srv_out_raw(&o, *item);
		free(*item);
		*item = NULL;
	}
	srv_out_close(&o, ']');
	p->list = text_of(&o);
	rc = sl_backup_get_stats(backup, &p->stats, err);
	if (rc == 0 && (p->list == NULL || p->damaged == NULL))
		rc = sl_err_set(err, SL_ENOMEM, "out of memory");
	p->read_ms = sl__clock_real_ms();
	return rc;
}

/* ---- a look ---- */

static void may_be_stopped(struct srv_backups *b, sl_backup *backup)
{
	sl__lock(&b->mu);
	b->open = backup;
	sl__unlock(&b->mu);
}

static int look_into(struct srv_backups *b, struct picture *p, struct sl_err *err)
{
	struct srv_repository r;
	int rc = srv_repository_open(&r, b->core, err);
	if (rc != 0)
		return rc;
	may_be_stopped(b, r.backup);
	rc = fill(p, r.backup, err);
	may_be_stopped(b, NULL);
	srv_repository_close(&r);
	return rc;
}

/* False: it is to end. */
static bool wait_for_next(struct srv_backups *b)
{
	int64_t until = sl__clock_ms() + b->core->config->backup_refresh_interval_ms;
	sl__lock(&b->mu);
	while (!b->stop && sl__wait_until_ms(&b->wake, &b->mu, until))
		;
	bool goes_on = !b->stop;
	sl__unlock(&b->mu);
	return goes_on;
}

static void *thread_main(void *arg)
{
	struct srv_backups *b = arg;
	do {
		/* Read the repository into a new picture, without the lock. */
		struct picture *p = calloc(1, sizeof(*p));
		struct sl_err err = SL_ERR_INIT;
		int rc = p == NULL ? sl_err_set(&err, SL_ENOMEM, "out of memory") : 0;
		if (rc == 0) {
			p->owner = b;
			p->stats.struct_size = sizeof(p->stats);
			rc = look_into(b, p, &err);
		}
		const char *error = rc != 0 ? err.msg : NULL;
		/* Publish it; after a failure the old picture stays, with the reason. */
		struct picture *old = p;
		sl__lock(&b->mu);
		if (error == NULL) {
			old = b->picture;
			b->picture = p;
		}
		(void)snprintf(b->error, sizeof(b->error), "%s", error != NULL ? error : "");
		sl__unlock(&b->mu);
		sl_gauge_set(b->up, error == NULL);
		if (error == NULL) {
			sl_gauge_set(b->newest, (double)p->newest_ms / 1000);
			sl_gauge_set(b->snapshots, (double)p->snapshots);
		}
		free_picture(old);
	} while (wait_for_next(b));
	sl__lock(&b->mu);
	b->ended = true;
	sl__broadcast(&b->wake);
	sl__unlock(&b->mu);
	return NULL;
}

/* ---- the whole ---- */

void srv_backups_look(struct srv_backups *b, srv_backups_view_fn *fn, void *ctx)
{
	struct srv_backups_view view = {.repo = b->core->config->backup_repo, .items = "[]", .damaged = "[]"};
	sl__lock(&b->mu);
	const struct picture *p = b->picture;
	if (p != NULL) {
		view.read_ms = p->read_ms;
		view.stats = p->stats;
		view.newest_ms = p->newest_ms;
		view.snapshots = p->snapshots;
		view.items = p->list;
		view.damaged = p->damaged;
		view.damaged_total = p->damaged_total;
	}
	memcpy(view.error, b->error, sizeof(view.error));
	fn(&view, ctx);
	sl__unlock(&b->mu);
}

static int add_metrics(struct srv_backups *b, struct sl_err *err)
{
	sl_metrics *m = b->core->metrics;
	int rc = sl_metrics_gauge(m, "sluice_server_backup_up", "1 when the repository of backups could be read.", NULL,
				  0, &b->up, err);
	rc = rc != 0 ? rc
		     : sl_metrics_gauge(m, "sluice_server_backup_newest_timestamp_seconds",
					"When the newest snapshot was made; 0: no snapshot.", NULL, 0, &b->newest, err);
	return rc != 0 ? rc
		       : sl_metrics_gauge(m, "sluice_server_backup_snapshots", "Snapshots in the repository.", NULL, 0,
					  &b->snapshots, err);
}

int srv_backups_new(struct srv_backups **out, struct srv_core *core, struct sl_err *err)
{
	if (core->config->backup_repo == NULL)
		return 0;
	struct srv_backups *b = calloc(1, sizeof(*b));
	if (b == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	b->core = core;
	sl__mutex_init(&b->mu);
	sl__cond_init(&b->wake);
	int rc = add_metrics(b, err);
	rc = rc != 0 ? rc : srv_checker_new(&b->checker, core, err);
	if (rc != 0)
		srv_backups_free(b);
	else
		*out = b;
	return rc;
}

int srv_backups_start(struct srv_backups *b, struct sl_err *err)
{
	if (b == NULL)
		return 0;
	int rc = sl__thread_start(&b->thread, "sl-backups", thread_main, b);
	b->started = rc == 0;
	return rc != 0 ? sl__thread_error(err, rc, "backup", "the server") : 0;
}

void srv_backups_stop(struct srv_backups *b)
{
	if (b == NULL)
		return;
	if (b->checker != NULL)
		srv_checker_stop(b->checker);
	if (!b->started)
		return;
	sl__lock(&b->mu);
	b->stop = true;
	sl__broadcast(&b->wake);
	while (!b->ended) {
		if (b->open != NULL)
			sl_backup_stop(b->open);
		(void)sl__wait_until_ms(&b->wake, &b->mu, sl__clock_ms() + STOP_AGAIN_MS);
	}
	sl__unlock(&b->mu);
	(void)pthread_join(b->thread, NULL);
	b->started = false;
}

void srv_backups_free(struct srv_backups *b)
{
	if (b == NULL)
		return;
	srv_backups_stop(b);
	srv_checker_free(b->checker);
	free_picture(b->picture);
	sl__cond_fini(&b->wake);
	sl__mutex_fini(&b->mu);
	free(b);
}
