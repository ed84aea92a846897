/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that looks at the repository: see backup.h. It opens it for each look, so that a disk can be unmounted in
 * between and another passphrase counts. A look makes a whole new picture, which takes the place of the old one at
 * once; when it fails the old one stays, beside the reason.
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

#define STOP_AGAIN_MS 50 /* a call that begins forgets a stop that came before */

struct picture {
	struct sl_backup_stats stats;
	int64_t read_ms, newest_ms;
	char *items[SRV_SNAPSHOTS_KEPT]; /* JSON; the newest snapshots, as a ring */
	uint64_t snapshots, damaged_total;
	struct srv_out damaged_out;
	char *list, *damaged;      /* JSON arrays */
	struct srv_backups *owner; /* while it is made */
};

struct srv_backups {
	struct srv_core *core;
	struct srv_checker *checker;
	pthread_t thread;
	bool started;
	sl__mutex mu; /* guards all below */
	sl__cond wake;
	bool stop, ended;
	sl_backup *open;         /* while it is looked at and may be stopped */
	struct picture *picture; /* NULL: none yet */
	char error[256];
	sl_gauge *up, *newest, *snapshots;
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
		struct picture *p = calloc(1, sizeof(*p));
		struct sl_err err = SL_ERR_INIT;
		int rc = p == NULL ? sl_err_set(&err, SL_ENOMEM, "out of memory") : 0;
		if (rc == 0) {
			p->owner = b;
			p->stats.struct_size = sizeof(p->stats);
			rc = look_into(b, p, &err);
		}
		const char *error = rc != 0 ? err.msg : NULL;
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

struct srv_checker *srv_backups_checker(struct srv_backups *b)
{
	return b->checker;
}

static int add_metrics(struct srv_backups *b, struct sl_err *err)
{
	sl_metrics *m = b->core->metrics;
	int rc = sl_metrics_gauge(m, "sluice_server_backup_up", "1 when the repository of backups could be read.", NULL,
				  0, &b->up, err);
	rc = rc != 0 ? rc
		     : sl_metrics_gauge(m, "sluice_server_backup_newest_timestamp_seconds",
					"When the newest snapshot was made; 0: there is none.", NULL, 0, &b->newest,
					err);
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
