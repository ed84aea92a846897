/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifications of datasets in the background, one of a dataset at a time and VERIFY_AT_ONCE of all. The last one of
 * each dataset is kept with what it found, for DATASETS_KEPT datasets.
 */
#include "server/export/export.h"

#include "base/thread.h"
#include "base/time.h"
#include "server/config/config.h"

#include <stdlib.h>
#include <string.h>

#define VERIFY_AT_ONCE 2
#define DATASETS_KEPT 32
#define BUSY_MS 5000

struct task {
	struct srv_verify *owner;
	struct srv_verification v; /* the owner's lock */
	pthread_t thread;
	bool joinable;
};

struct srv_verify {
	struct srv_exports *exports;
	sl__mutex mu;
	struct task *tasks[DATASETS_KEPT];
	bool stop;
};

/* ---- what one says; on its own thread, or on those that verify ---- */

static int on_finding(const struct sl_audit_finding *f, void *ctx)
{
	struct task *t = ctx;
	struct srv_finding copy = {.fault = (int)f->fault,
				   .event = f->event,
				   .path = strdup(f->path != NULL ? f->path : ""),
				   .text = strdup(f->text != NULL ? f->text : "")};
	sl__lock(&t->owner->mu);
	int rc = t->owner->stop ? SL_ECANCELLED : copy.path == NULL || copy.text == NULL ? SL_ENOMEM : 0;
	t->v.notes += f->fault < SL_AUDIT_MISSING;
	t->v.faults += f->fault >= SL_AUDIT_MISSING;
	bool keep = rc == 0 && t->v.n_findings < SRV_FINDINGS_KEPT;
	if (keep)
		t->v.findings[t->v.n_findings++] = copy;
	sl__unlock(&t->owner->mu);
	if (!keep) {
		free(copy.path);
		free(copy.text);
	}
	return rc;
}

static int on_progress(uint64_t done_bytes, uint64_t total_bytes, void *ctx)
{
	struct task *t = ctx;
	sl__lock(&t->owner->mu);
	t->v.done_bytes = done_bytes;
	t->v.total_bytes = total_bytes;
	int rc = t->owner->stop ? SL_ECANCELLED : 0;
	sl__unlock(&t->owner->mu);
	return rc;
}

static void *thread_main(void *arg)
{
	struct task *t = arg;
	struct srv_exports *x = t->owner->exports;
	struct sl_audit_result result = {.struct_size = sizeof(result)};
	struct sl_err err = SL_ERR_INIT;
	struct sl_audit_verify_opts opts = {SL_AUDIT_VERIFY_OPTS_INIT,
					    .env = srv_exports_core(x)->env,
					    .threads = (int)srv_exports_core(x)->config->export_events_verify_threads,
					    .all = SL_ON,
					    .catalog = srv_exports_catalog_url(x),
					    .on_finding = on_finding,
					    .on_progress = on_progress,
					    .ctx = t};
	int rc = sl_audit_verify(srv_exports_dir(x), t->v.dataset, &opts, &result, &err);
	if (rc != 0 && err.code == 0)
		(void)sl_err_set(&err, rc, "%s", sl_err_text(rc));
	sl__lock(&t->owner->mu);
	t->v.result = result;
	t->v.err = rc != 0 ? err : (struct sl_err)SL_ERR_INIT;
	t->v.ended_ms = sl__clock_real_ms();
	t->v.running = false;
	sl__unlock(&t->owner->mu);
	return NULL;
}

/* ---- tasks ---- */

static void free_task(struct task *t)
{
	if (t == NULL)
		return;
	if (t->joinable)
		(void)pthread_join(t->thread, NULL);
	for (size_t i = 0; i < t->v.n_findings; i++) {
		free(t->v.findings[i].path);
		free(t->v.findings[i].text);
	}
	t->v.n_findings = 0;
	free(t);
}

/* With the lock: the place of the dataset, else a free one, else that of the one which ended first; all can never run
 * at once. */
static struct task **place_of(struct srv_verify *v, const char *dataset)
{
	struct task **best = NULL;
	for (size_t i = 0; i < DATASETS_KEPT; i++) {
		struct task **at = &v->tasks[i];
		if (*at != NULL && strcmp((*at)->v.dataset, dataset) == 0)
			return at;
		if (*at != NULL && (*at)->v.running)
			continue;
		if (best == NULL || (*best != NULL && (*at == NULL || (*at)->v.ended_ms < (*best)->v.ended_ms)))
			best = at;
	}
	return best;
}

static size_t count_running(const struct srv_verify *v)
{
	size_t n = 0;
	for (size_t i = 0; i < DATASETS_KEPT; i++)
		n += v->tasks[i] != NULL && v->tasks[i]->v.running;
	return n;
}

/* With the lock. */
static int begin(struct srv_verify *v, struct task *fresh, struct task **old, struct sl_err *err)
{
	struct task **at = place_of(v, fresh->v.dataset);
	if (v->stop)
		return sl_err_set(err, SL_EUNAVAIL, "the server stops");
	if (*at != NULL && (*at)->v.running)
		return sl_err_set(err, SL_EEXIST, "a verification of '%s' is under way", fresh->v.dataset);
	if (count_running(v) >= VERIFY_AT_ONCE) {
		(void)sl_err_set(err, SL_EFULL, "%d verifications are under way", VERIFY_AT_ONCE);
		err->retry_after_ms = BUSY_MS;
		return SL_EFULL;
	}
	int failed = sl__thread_start(&fresh->thread, "sl-verify", thread_main, fresh);
	if (failed != 0)
		return sl__thread_error(err, failed, "verify", "the server");
	fresh->joinable = true;
	*old = *at;
	*at = fresh;
	return 0;
}

int srv_verify_start(struct srv_exports *x, const char *dataset, struct sl_err *err)
{
	struct srv_verify *v = srv_exports_verify(x);
	struct task *fresh = calloc(1, sizeof(*fresh)), *old = NULL;
	if (fresh == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	fresh->owner = v;
	fresh->v.running = true;
	fresh->v.started_ms = sl__clock_real_ms();
	(void)snprintf(fresh->v.dataset, sizeof(fresh->v.dataset), "%s", dataset);
	sl__lock(&v->mu);
	int rc = begin(v, fresh, &old, err);
	sl__unlock(&v->mu);
	free_task(rc != 0 ? fresh : old);
	return rc;
}

bool srv_verify_look(struct srv_exports *x, const char *dataset, srv_verification_fn *fn, void *ctx)
{
	struct srv_verify *v = srv_exports_verify(x);
	bool found = false;
	sl__lock(&v->mu);
	for (size_t i = 0; i < DATASETS_KEPT && !found; i++) {
		found = v->tasks[i] != NULL && strcmp(v->tasks[i]->v.dataset, dataset) == 0;
		if (found)
			fn(&v->tasks[i]->v, ctx);
	}
	sl__unlock(&v->mu);
	return found;
}

/* ---- the whole ---- */

int srv_verify_new(struct srv_verify **out, struct srv_exports *x, struct sl_err *err)
{
	struct srv_verify *v = calloc(1, sizeof(*v));
	if (v == NULL)
		return sl_err_set(err, SL_ENOMEM, "out of memory");
	v->exports = x;
	sl__mutex_init(&v->mu);
	*out = v;
	return 0;
}

void srv_verify_stop(struct srv_verify *v)
{
	sl__lock(&v->mu);
	v->stop = true;
	sl__unlock(&v->mu);
	/* None is added from now on. */
	for (size_t i = 0; i < DATASETS_KEPT; i++)
		if (v->tasks[i] != NULL && v->tasks[i]->joinable) {
			(void)pthread_join(v->tasks[i]->thread, NULL);
			v->tasks[i]->joinable = false;
		}
}

void srv_verify_free(struct srv_verify *v)
{
	if (v == NULL)
		return;
	srv_verify_stop(v);
	for (size_t i = 0; i < DATASETS_KEPT; i++)
		free_task(v->tasks[i]);
	sl__mutex_fini(&v->mu);
	free(v);
}
