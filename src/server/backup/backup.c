/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads that read and check the repository: see backup.h. Each reading opens it, so that a disk can be unmounted in
 * between and another passphrase counts. A look makes a whole new picture, which takes the place of the old one at
 * once; when it fails the old one stays, with the reason.
 */
#include "server/backup/backup.h"

#include "base/thread.h"
#include "base/time.h"
#include "server/config/config.h"
#include "server/http/out.h"
#include "server/metrics.h"
#include "server/passphrase.h"

#include <stdlib.h>
#include <string.h>

#define STOP_AGAIN_MS 50 /* a call that begins forgets a stop that came before */

struct srv_backups {
	struct srv_core *core;
	pthread_t thread, check_thread;
	bool started;
	sl__mutex mu; /* guards all below */
	sl__cond wake;
	bool stop, ended;
	sl_backup *open;         /* while it is read and may be stopped */
	struct picture *picture; /* NULL: none yet */
	char error[256];
	sl_gauge *up, *newest, *snapshots;
	/* A check of the repository in the background, one at a time. What it found is kept until the next one begins. */
	struct srv_backup_check *check; /* NULL: there was none */
	sl_backup *checked;             /* the handle that checks, while it may be stopped and asked */
	bool check_joinable;
};

/* ---- the repository of the configuration ---- */

struct repository {
	sl_driver driver;
	sl_backup *backup;
};

/* One that is closed is allowed. */
static void close_repository(struct repository *r)
{
	sl_backup_close(r->backup);
	sl_driver_close(&r->driver);
	r->backup = NULL;
}

static int open_repository(struct repository *r, const struct srv_core *core, struct sl_err *err)
{
	struct sl_driver_local_opts local = {SL_DRIVER_LOCAL_OPTS_INIT, .env = core->env};
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .env = core->env, .threads = 1};
	char passphrase[SRV_PASSPHRASE_BYTES];
	*r = (struct repository){.backup = NULL};
	int rc = sl_driver_local_open(&r->driver, core->config->backup_repo, &local, err);
	int encrypted = rc == 0 ? sl_backup_is_encrypted(&r->driver, &opts, err) : rc;
	const char *path = core->config->backup_passphrase_file;
	if (path == NULL)
		path = getenv("SLUICE_PASSPHRASE_FILE");
	/* A configured passphrase means an encrypted repository: the library then refuses a plain one, whose
	 * config may have been tampered with. */
	bool configured = path != NULL && *path != '\0';
	if (encrypted < 0) {
		rc = encrypted;
	} else if (configured) {
		rc = srv_passphrase_read(path, passphrase, &opts.passphrase_len, err);
		opts.passphrase = passphrase;
	} else if (encrypted > 0) {
		rc = sl_err_set(err, SL_EKEY, "the repository is encrypted: set backup.passphrase_file");
	}
	if (rc == 0)
		rc = sl_backup_open(&r->backup, &r->driver, &opts, err);
	explicit_bzero(passphrase, sizeof(passphrase));
	if (rc != 0)
		close_repository(r);
	return rc;
}

/* ---- a check ---- */

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

/* One call at a time. */
static int keep_backup_finding(const struct sl_backup_finding *f, void *ctx)
{
	struct srv_backups *b = ctx;
	bool failed = false;
	struct srv_backup_finding copy = {.fault = f->fault, .harmless = f->harmless};
	copy.object = copy_of(f->object != NULL ? f->object : "", &failed);
	copy.snapshot = copy_of(f->snapshot, &failed);
	copy.path = copy_of(f->path, &failed);
	copy.text = copy_of(f->reason.msg, &failed);
	sl__lock(&b->mu);
	struct srv_backup_check *k = b->check;
	k->harmless += copy.harmless;
	k->faults += !copy.harmless;
	bool keep = !failed && k->n_findings < SRV_BACKUP_FINDINGS_KEPT;
	if (keep)
		k->findings[k->n_findings++] = copy;
	int rc = b->stop ? SL_ECANCELLED : failed ? SL_ENOMEM : 0;
	sl__unlock(&b->mu);
	if (!keep)
		free_finding(&copy);
	return rc;
}

/* *place is the open handle from now on, or NULL again. */
static void set_handle(struct srv_backups *b, sl_backup **place, sl_backup *backup)
{
	sl__lock(&b->mu);
	*place = backup;
	sl__unlock(&b->mu);
}

static void *check_main(void *arg)
{
	struct srv_backups *b = arg;
	struct sl_backup_checked result = {.struct_size = sizeof(result)};
	struct sl_err err = SL_ERR_INIT;
	sl__lock(&b->mu);
	bool read_data = b->check->read_data;
	sl__unlock(&b->mu);
	struct sl_backup_check_opts opts = {SL_BACKUP_CHECK_OPTS_INIT, .read_data = read_data ? SL_ON : SL_OFF,
					    .on_finding = keep_backup_finding, .ctx = b};
	struct repository r;
	int rc = open_repository(&r, b->core, &err);
	if (rc == 0) {
		set_handle(b, &b->checked, r.backup);
		rc = sl_backup_check(r.backup, &opts, &result, &err);
		set_handle(b, &b->checked, NULL);
		close_repository(&r);
	}
	/* What it found says more. */
	if (rc == SL_ECORRUPT && result.findings > result.harmless)
		rc = 0;
	if (rc != 0 && err.code == 0)
		(void)sl_err_set(&err, rc, "%s", sl_err_text(rc));
	sl__lock(&b->mu);
	b->check->result = result;
	b->check->err = rc != 0 ? err : (struct sl_err)SL_ERR_INIT;
	b->check->ended_ms = sl__clock_real_ms();
	b->check->running = false;
	sl__broadcast(&b->wake);
	sl__unlock(&b->mu);
	return NULL;
}

static void free_check(struct srv_backup_check *k)
{
	for (size_t i = 0; k != NULL && i < k->n_findings; i++)
		free_finding(&k->findings[i]);
	free(k);
}

int srv_backups_check_start(struct srv_backups *b, bool read_data, struct sl_err *err)
{
	struct srv_backup_check *fresh = calloc(1, sizeof(*fresh)), *old = NULL;
	if (fresh == NULL)
		return sl__no_memory(err, "check");
	fresh->running = true;
	fresh->read_data = read_data;
	fresh->started_ms = sl__clock_real_ms();
	int rc = 0;
	sl__lock(&b->mu);
	if (b->stop) {
		rc = sl_err_set(err, SL_EUNAVAIL, "the server is stopping");
	} else if (b->check != NULL && b->check->running) {
		rc = sl_err_set(err, SL_EEXIST, "the repository is already being checked");
	} else {
		if (b->check_joinable)
			(void)pthread_join(b->check_thread, NULL); /* past its last use of the lock */
		old = b->check;
		b->check = fresh;
		rc = sl__thread_start(&b->check_thread, "sl-check", check_main, b);
		b->check_joinable = rc == 0;
		if (rc != 0) {
			b->check = old;
			rc = sl__thread_error(err, rc, "check", "the server");
		}
	}
	sl__unlock(&b->mu);
	free_check(rc != 0 ? fresh : old);
	return rc;
}

bool srv_backups_check_look(struct srv_backups *b, srv_backup_check_fn *fn, void *ctx)
{
	sl__lock(&b->mu);
	bool found = b->check != NULL;
	if (found) {
		b->check->progress = (struct sl_backup_progress){.struct_size = sizeof(b->check->progress)};
		if (b->checked != NULL)
			sl_backup_get_progress(b->checked, &b->check->progress);
		fn(b->check, ctx);
	}
	sl__unlock(&b->mu);
	return found;
}

/* ---- a picture ---- */

struct picture {
	struct sl_backup_stats stats;
	int64_t read_ms, newest_ms;
	char *items[SRV_SNAPSHOTS_KEPT]; /* JSON; the newest snapshots, as a ring */
	uint64_t snapshots, damaged_total;
	struct srv_out damaged_out;
	char *list, *damaged;      /* JSON arrays */
	struct srv_backups *owner; /* while it is made */
};

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
static char *take_out_text(struct srv_out *o)
{
	char *text = o->text.failed ? NULL : strdup(sl__buf_str(&o->text));
	srv_out_free(o);
	return text;
}

static bool is_stopping(struct srv_backups *b)
{
	sl__lock(&b->mu);
	bool stop = b->stop;
	sl__unlock(&b->mu);
	return stop;
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
	srv_out_strs(&o, "paths", s->paths, s->n_paths);
	srv_out_strs(&o, "tags", s->tags, s->n_tags);
	SRV_FIELD(&o, "entries", int, (int64_t)s->entries);
	SRV_FIELD(&o, "files", int, (int64_t)s->files);
	SRV_FIELD(&o, "bytes", int, (int64_t)s->bytes);
	SRV_FIELD(&o, "new_bytes", int, (int64_t)s->new_bytes);
	SRV_FIELD(&o, "physical_bytes", int, (int64_t)s->physical_bytes);
	SRV_FIELD(&o, "problems", int, (int64_t)s->problems);
	SRV_FIELD(&o, "took_ms", int, (int64_t)s->took_ms);
	srv_out_close(&o, '}');
	char *text = take_out_text(&o);
	if (text == NULL)
		return SL_ENOMEM;
	char **at = &p->items[p->snapshots++ % SRV_SNAPSHOTS_KEPT];
	free(*at);
	*at = text;
	p->newest_ms = s->time_ms;
	return is_stopping(p->owner) ? SL_ECANCELLED : 0;
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
	return is_stopping(p->owner) ? SL_ECANCELLED : 0;
}

static int fill_picture(struct picture *p, sl_backup *backup, struct sl_err *err)
{
	srv_out_open(&p->damaged_out, '[');
	int rc = sl_backup_list(backup, add_snapshot, add_damaged, p, err);
	if (rc != 0)
		return err->code != 0 ? rc : sl_err_set(err, rc, "%s", sl_err_text(rc));
	srv_out_close(&p->damaged_out, ']');
	p->damaged = take_out_text(&p->damaged_out);
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
	p->list = take_out_text(&o);
	rc = sl_backup_get_stats(backup, &p->stats, err);
	if (rc == 0 && (p->list == NULL || p->damaged == NULL))
		rc = sl__no_memory(err, "backups");
	p->read_ms = sl__clock_real_ms();
	return rc;
}

/* ---- a look ---- */

static void *backups_main(void *arg)
{
	struct srv_backups *b = arg;
	bool stop;
	do {
		/* Read the repository into a new picture, without the lock. */
		struct picture *p = calloc(1, sizeof(*p));
		struct sl_err err = SL_ERR_INIT;
		struct repository r;
		int rc = p != NULL ? open_repository(&r, b->core, &err) : sl__no_memory(&err, "backups");
		if (rc == 0) {
			p->owner = b;
			p->stats.struct_size = sizeof(p->stats);
			set_handle(b, &b->open, r.backup);
			rc = fill_picture(p, r.backup, &err);
			set_handle(b, &b->open, NULL);
			close_repository(&r);
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

		/* Wait for the next look. */
		int64_t until = sl__clock_ms() + b->core->config->backup_refresh_interval_ms;
		sl__lock(&b->mu);
		while (!b->stop && sl__wait_until_ms(&b->wake, &b->mu, until))
			;
		stop = b->stop;
		sl__unlock(&b->mu);
	} while (!stop);
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

int srv_backups_new(struct srv_backups **out, struct srv_core *core, struct sl_err *err)
{
	if (core->config->backup_repo == NULL)
		return 0;
	struct srv_backups *b = calloc(1, sizeof(*b));
	if (b == NULL)
		return sl__no_memory(err, "backups");
	b->core = core;
	sl__mutex_init(&b->mu);
	sl__cond_init(&b->wake);
	const struct srv_metric metrics[] = {
		{"sluice_server_backup_up", "1 if the backup repository could be read.", .gauge = &b->up},
		{"sluice_server_backup_newest_timestamp_seconds", "Time of the newest snapshot; 0 without a snapshot.",
		 .gauge = &b->newest},
		{"sluice_server_backup_snapshots", "Snapshots in the repository.", .gauge = &b->snapshots},
	};
	int rc = srv_metrics_make(core->metrics, metrics, SL_COUNT(metrics), err);
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
	int failed = sl__thread_start(&b->thread, "sl-backups", backups_main, b);
	b->started = failed == 0;
	return failed != 0 ? sl__thread_error(err, failed, "backup", "the server") : 0;
}

void srv_backups_stop(struct srv_backups *b)
{
	if (b == NULL)
		return;
	sl__lock(&b->mu);
	b->stop = true;
	sl__broadcast(&b->wake);
	while ((b->started && !b->ended) || (b->check != NULL && b->check->running)) {
		if (b->open != NULL)
			sl_backup_stop(b->open);
		if (b->checked != NULL)
			sl_backup_stop(b->checked);
		(void)sl__wait_until_ms(&b->wake, &b->mu, sl__clock_ms() + STOP_AGAIN_MS);
	}
	sl__unlock(&b->mu);
	if (b->started)
		(void)pthread_join(b->thread, NULL);
	if (b->check_joinable)
		(void)pthread_join(b->check_thread, NULL);
	b->started = b->check_joinable = false;
}

void srv_backups_free(struct srv_backups *b)
{
	if (b == NULL)
		return;
	srv_backups_stop(b);
	free_check(b->check);
	free_picture(b->picture);
	sl__cond_fini(&b->wake);
	sl__mutex_fini(&b->mu);
	free(b);
}
