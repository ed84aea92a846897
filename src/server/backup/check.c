/* SPDX-License-Identifier: Apache-2.0 */
/* A check of the repository in the background, one at a time, on a handle of its own. What it found is kept until the
 * next one begins. */
#include "base/thread.h"
#include "base/time.h"
#include "server/backup/backup.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STOP_AGAIN_MS 50 /* a call that begins forgets a stop that came before */

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

static void *thread_main(void *arg)
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
		(void)pthread_join(c->thread, NULL); /* past its last look at the lock */
	*old = c->check;
	c->check = fresh;
	int failed = sl__thread_start(&c->thread, "sl-check", thread_main, c);
	c->joinable = failed == 0;
	if (failed == 0)
		return 0;
	c->check = *old;
	return sl__thread_error(err, failed, "check", "the server");
}

int srv_backups_check_start(struct srv_backups *b, bool read_data, struct sl_err *err)
{
	struct srv_checker *c = srv_backups_checker(b);
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
	struct srv_checker *c = srv_backups_checker(b);
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

int srv_checker_new(struct srv_checker **out, struct srv_core *core, struct sl_err *err)
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

void srv_checker_stop(struct srv_checker *c)
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

void srv_checker_free(struct srv_checker *c)
{
	if (c == NULL)
		return;
	srv_checker_stop(c);
	free_check(c->check);
	sl__cond_fini(&c->ended);
	sl__mutex_fini(&c->mu);
	free(c);
}
