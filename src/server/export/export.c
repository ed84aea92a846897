/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that exports: see export.h.
 *
 *            ┌────────────── the pause is over ─────────────┐
 *            ▼                                              │
 *   idle ─▶ running ── the lease is another's ─▶ waiting ───┤
 *            │  └───── anything else ──────────▶ failed ────┘
 *            └── stop ─▶ idle
 *
 * A run: sl_export_run asks srv_feed_rows (feed.c) for the events after the checkpoint of the dataset. On a stop the run
 * drains, and the next one continues with what it left.
 */
#include "server/export/export.h"

#include "base/thread.h"
#include "base/time.h"
#include "server/config/config.h"
#include "server/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_PAUSE_MS 1000
#define LONGEST_PAUSE_MS 60000
#define LEASE_PAUSE_MS 1000 /* before the lease is requested again */
#define SETTLED_MS 500      /* a run of this age is reported as running */
#define GOOD_RUN_MS 60000   /* a run of this length resets the pause */

/*
 * Verifications of datasets in the background: one per dataset, and at most VERIFICATIONS_MAX at the same time. The last
 * one of each dataset is kept with its findings, for DATASETS_KEPT datasets.
 */
#define VERIFICATIONS_MAX 2
#define DATASETS_KEPT 32
#define BUSY_MS 5000

struct task {
	struct srv_exports *exports;
	struct srv_verification v; /* with the lock */
	pthread_t thread;
	bool joinable;
};

struct srv_exports {
	struct srv_core *core;
	char *catalog_url; /* never NULL */
	pthread_t thread;
	bool started;
	sl__mutex mu; /* guards all below */
	sl__cond wake;
	bool stop, ended; /* ended: the thread is past its last run */
	struct srv_export_status status;
	uint64_t committed; /* the checkpoint, also of an export by another process */
	sl_export *run;     /* that stop ends, or NULL */
	int64_t begun_ms;
	sl_gauge *up, *checkpoint, *lag;
	sl_counter *starts, *failures;
	struct task *tasks[DATASETS_KEPT];
};

/* ---- one verification, on its thread or on those of the library that verify ---- */

static int keep_audit_finding(const struct sl_audit_finding *f, void *ctx)
{
	struct task *t = ctx;
	struct srv_finding copy = {.fault = f->fault,
				   .event = f->event,
				   .path = strdup(f->path != NULL ? f->path : ""),
				   .text = strdup(f->text != NULL ? f->text : "")};
	sl__lock(&t->exports->mu);
	int rc = t->exports->stop ? SL_ECANCELLED : copy.path == NULL || copy.text == NULL ? SL_ENOMEM : 0;
	t->v.notes += f->fault < SL_AUDIT_MISSING;
	t->v.faults += f->fault >= SL_AUDIT_MISSING;
	bool keep = rc == 0 && t->v.n_findings < SRV_FINDINGS_KEPT;
	if (keep)
		t->v.findings[t->v.n_findings++] = copy;
	sl__unlock(&t->exports->mu);
	if (!keep) {
		free(copy.path);
		free(copy.text);
	}
	return rc;
}

static int on_verify_progress(uint64_t done_bytes, uint64_t total_bytes, void *ctx)
{
	struct task *t = ctx;
	sl__lock(&t->exports->mu);
	t->v.done_bytes = done_bytes;
	t->v.total_bytes = total_bytes;
	int rc = t->exports->stop ? SL_ECANCELLED : 0;
	sl__unlock(&t->exports->mu);
	return rc;
}

static void *verify_main(void *arg)
{
	struct task *t = arg;
	struct srv_exports *x = t->exports;
	struct sl_audit_result result = {.struct_size = sizeof(result)};
	struct sl_err err = SL_ERR_INIT;
	struct sl_audit_verify_opts opts = {SL_AUDIT_VERIFY_OPTS_INIT,
					    .env = x->core->env,
					    .threads = (int)x->core->config->export_events_verify_threads,
					    .all = SL_ON,
					    .catalog = x->catalog_url,
					    .on_finding = keep_audit_finding,
					    .on_progress = on_verify_progress,
					    .ctx = t};
	int rc = sl_audit_verify(x->core->config->export_events_dir, t->v.dataset, &opts, &result, &err);
	if (rc != 0 && err.code == 0)
		(void)sl_err_set(&err, rc, "%s", sl_err_text(rc));
	sl__lock(&x->mu);
	t->v.result = result;
	t->v.err = rc != 0 ? err : (struct sl_err)SL_ERR_INIT;
	t->v.ended_ms = sl__clock_real_ms();
	t->v.running = false;
	sl__unlock(&x->mu);
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
	free(t);
}

int srv_verify_start(struct srv_exports *x, const char *dataset, struct sl_err *err)
{
	struct task *fresh = calloc(1, sizeof(*fresh)), *old = NULL;
	if (fresh == NULL)
		return sl__no_memory(err, "verification");
	fresh->exports = x;
	fresh->v.running = true;
	fresh->v.started_ms = sl__clock_real_ms();
	(void)snprintf(fresh->v.dataset, sizeof(fresh->v.dataset), "%s", dataset);

	/* The slot of the dataset, else a free one, else that of the verification that ended first. There is always
	 * one: fewer run at the same time than there are slots. */
	struct task **slot = NULL;
	size_t n_running = 0;
	bool known = false;
	sl__lock(&x->mu);
	for (size_t i = 0; i < DATASETS_KEPT; i++) {
		struct task **at = &x->tasks[i];
		bool running = *at != NULL && (*at)->v.running;
		n_running += running;
		if (*at != NULL && strcmp((*at)->v.dataset, dataset) == 0) {
			known = true;
			slot = at;
		}
		if (known || running)
			continue;
		if (slot == NULL || (*slot != NULL && (*at == NULL || (*at)->v.ended_ms < (*slot)->v.ended_ms)))
			slot = at;
	}

	/* Start it, unless too much is running. */
	int rc = 0;
	if (x->stop) {
		rc = sl_err_set(err, SL_EUNAVAIL, "the server is stopping");
	} else if (*slot != NULL && (*slot)->v.running) {
		rc = sl_err_set(err, SL_EEXIST, "a verification of '%s' is already running", dataset);
	} else if (n_running >= VERIFICATIONS_MAX) {
		rc = sl_err_set(err, SL_EFULL, "%d verifications are already running", VERIFICATIONS_MAX);
		err->retry_after_ms = BUSY_MS;
	} else if ((rc = sl__thread_start(&fresh->thread, "sl-verify", verify_main, fresh)) != 0) {
		rc = sl__thread_error(err, rc, "verify", "the server");
	} else {
		fresh->joinable = true;
		old = *slot;
		*slot = fresh;
	}
	sl__unlock(&x->mu);
	free_task(rc != 0 ? fresh : old);
	return rc;
}

bool srv_verify_look(struct srv_exports *x, const char *dataset, srv_verification_fn *fn, void *ctx)
{
	bool found = false;
	sl__lock(&x->mu);
	for (size_t i = 0; i < DATASETS_KEPT && !found; i++) {
		found = x->tasks[i] != NULL && strcmp(x->tasks[i]->v.dataset, dataset) == 0;
		if (found)
			fn(&x->tasks[i]->v, ctx);
	}
	sl__unlock(&x->mu);
	return found;
}

const char *srv_export_state_name(enum srv_export_state state)
{
	static const char *const names[] = {"idle", "running", "waiting", "failed"};
	return names[state];
}

/* ---- one run ---- */

int srv_exports_catalog(struct srv_exports *x, enum sl_switch create, sl_catalog **out, struct sl_err *err)
{
	struct sl_catalog_opts opts = {SL_CATALOG_OPTS_INIT, .env = x->core->env, .create = create};
	/* A file is missing until the first run has made it; a database has a catalog, or says that it has not. */
	bool there = strncmp(x->catalog_url, "sqlite:", 7) != 0 || access(x->catalog_url + 7, F_OK) == 0 ||
		     (errno != ENOENT && errno != ENOTDIR);
	*out = NULL;
	return there ? sl_catalog_open(out, x->catalog_url, &opts, err) : 0;
}

static int note_checkpoint(const struct sl_dataset *d, void *ctx)
{
	*(uint64_t *)ctx = d->events > 0 ? d->checkpoint : 0;
	return 0;
}

/* With the lock: it is at work, and has not just been begun to find the dataset taken or the disk full. */
static void note_running(struct srv_exports *x)
{
	if (x->status.state == SRV_EXPORT_RUNNING)
		return;
	x->status.state = SRV_EXPORT_RUNNING;
	x->status.since_ms = sl__clock_real_ms();
	x->status.next_try_ms = 0;
	x->status.starts++;
	x->status.error[0] = '\0';
	sl_counter_add(x->starts, 1);
	sl_gauge_set(x->up, 1);
}

static void on_export_progress(const struct sl_export_progress *p, void *ctx)
{
	struct srv_exports *x = ctx;
	sl__lock(&x->mu);
	note_running(x);
	x->status.checkpoint = p->checkpoint;
	x->committed = SL_MAX(x->committed, p->checkpoint);
	sl__unlock(&x->mu);
	sl_gauge_set(x->checkpoint, (double)p->checkpoint);
}

/* Where the dataset ends; 0: there is no catalog yet, and the first run creates it. */
static int read_checkpoint(struct srv_exports *x, uint64_t *out, struct sl_err *err)
{
	bool sqlite = strncmp(x->catalog_url, "sqlite:", 7) == 0;
	sl_catalog *c = NULL;
	*out = 0;
	int rc = srv_exports_catalog(x, sqlite ? SL_OFF : SL_ON, &c, err);
	if (rc == SL_EUNAVAIL && sqlite)
		return 0; /* another process is creating it; starting at the first event is right too, only slower */
	if (rc != 0 || c == NULL)
		return rc;
	rc = sl_catalog_datasets(c, x->core->config->export_events_dataset, note_checkpoint, out, err);
	sl_catalog_close(c);
	return rc == SL_ENOENT ? 0 : rc;
}

/* Export until it fails or is stopped. */
static int export_until_end(struct srv_exports *x, struct sl_err *err)
{
	struct sl_export_result result = {.struct_size = sizeof(result)};
	sl_export *run = NULL;
	uint64_t checkpoint = 0;
	int rc = read_checkpoint(x, &checkpoint, err);
	if (rc != 0)
		return rc;
	sl__lock(&x->mu);
	x->committed = SL_MAX(x->committed, checkpoint);
	sl__unlock(&x->mu);
	const struct srv_config *c = x->core->config;
	struct sl_export_opts opts = {SL_EXPORT_OPTS_INIT,
				      .env = x->core->env,
				      .from = "job_events",
				      .rows = srv_feed_rows,
				      .rows_ctx = x->core,
				      .to = c->export_events_dir,
				      .dataset = c->export_events_dataset,
				      .catalog = x->catalog_url,
				      .sequence = "offset",
				      .partition_size = c->export_events_partition_size,
				      .columns = srv_feed_columns,
				      .n_columns = srv_feed_n_columns,
				      .zstd_level = (int32_t)c->export_events_zstd_level,
				      .perf = {.workers = (int32_t)c->perf_workers,
					       .queue_size = (int32_t)c->perf_queue_size,
					       .retry_attempts = (int32_t)c->perf_retry_attempts,
					       .retry_backoff_ms = c->perf_retry_backoff_ms},
				      .final = SL_OFF,
				      .audit_endpoint = c->export_events_audit_endpoint,
				      .audit_token_file = c->export_events_audit_token_file,
				      .audit_ca_file = c->export_events_audit_ca_file,
				      .on_progress = on_export_progress,
				      .on_progress_ctx = x};
	rc = sl_export_new(&run, &opts, err);
	if (rc != 0)
		return rc;

	/* From now on srv_exports_stop ends it. */
	sl__lock(&x->mu);
	bool stopped = x->stop;
	if (!stopped) {
		x->run = run;
		x->begun_ms = sl__clock_ms();
		x->status.checkpoint = checkpoint;
		sl_gauge_set(x->checkpoint, (double)checkpoint);
	}
	sl__unlock(&x->mu);
	if (!stopped) {
		rc = sl_export_run(run, &result, err);
		sl__lock(&x->mu);
		x->run = NULL;
		sl__unlock(&x->mu);
		sl_gauge_set(x->up, 0);
	}
	sl_export_free(run);
	return rc;
}

/* ---- the thread ---- */

static void *exports_main(void *arg)
{
	struct srv_exports *x = arg;
	int64_t pause_ms = FIRST_PAUSE_MS;
	sl__lock(&x->mu);
	while (!x->stop) {
		struct sl_err err = SL_ERR_INIT;
		int64_t begun = sl__clock_ms();
		sl__unlock(&x->mu);
		int rc = export_until_end(x, &err);
		sl__lock(&x->mu);
		if (x->stop)
			break;
		if (rc == 0)
			rc = sl_err_set(&err, SL_EINTERNAL, "the export ended without an error");

		/* Record why it ended. */
		bool waits = rc == SL_ELOCKED;
		enum srv_export_state state = waits ? SRV_EXPORT_WAITING : SRV_EXPORT_FAILED;
		bool repeated = x->status.state == state && strcmp(x->status.error, err.msg) == 0;
		if (sl__clock_ms() - begun > GOOD_RUN_MS)
			pause_ms = FIRST_PAUSE_MS;
		int64_t wait_ms = waits ? LEASE_PAUSE_MS : pause_ms;
		if (x->status.state != state)
			x->status.since_ms = sl__clock_real_ms();
		x->status.state = state;
		x->status.failures += !waits;
		x->status.next_try_ms = sl__clock_real_ms() + wait_ms;
		(void)snprintf(x->status.error, sizeof(x->status.error), "%s",
			       err.msg[0] != '\0' ? err.msg : sl_err_text(rc));
		sl__unlock(&x->mu);
		if (!waits)
			sl_counter_add(x->failures, 1);
		if (!repeated) /* the same reason is logged once */
			sl__log(x->core->env, waits ? SL_LOG_INFO : SL_LOG_ERROR, "export",
				waits ? "another process exports to the dataset; waiting and retrying"
				      : "export ended; restarting it",
				SL__F_STR("dataset", x->core->config->export_events_dataset),
				SL__F_STR("error", err.msg));

		/* Pause before the next run. */
		int64_t until = sl__clock_ms() + wait_ms;
		sl__lock(&x->mu);
		while (!x->stop && sl__wait_until_ms(&x->wake, &x->mu, until))
			;
		if (!waits)
			pause_ms = pause_ms * 2 < LONGEST_PAUSE_MS ? pause_ms * 2 : LONGEST_PAUSE_MS;
	}
	x->ended = true;
	x->status.state = SRV_EXPORT_IDLE;
	sl__broadcast(&x->wake);
	sl__unlock(&x->mu);
	return NULL;
}

/* ---- from outside ---- */

void srv_exports_status(struct srv_exports *x, struct srv_export_status *out)
{
	sl__lock(&x->mu);
	if (x->run != NULL && sl__clock_ms() - x->begun_ms >= SETTLED_MS)
		note_running(x);
	*out = x->status;
	sl__unlock(&x->mu);
}

uint64_t srv_exports_checkpoint(void *exports)
{
	struct srv_exports *x = exports;
	sl__lock(&x->mu);
	uint64_t committed = x->committed;
	sl__unlock(&x->mu);
	return committed;
}

/* Called once per second by the thread of the health checks; it also measures the lag. */
enum srv_verdict srv_check_export(char *why, size_t size, void *ctx)
{
	struct srv_exports *x = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct srv_export_status s;
	srv_exports_status(x, &s);
	const sl_store *store = x->core->store;
	uint64_t newest = 0;
	if (store->ops->events_newest(store->ctx, &newest, &err) == 0) {
		/* The newest events may have been deleted since they were exported. */
		newest = SL_MAX(newest, SL_MAX(s.newest, s.checkpoint));
		sl__lock(&x->mu);
		x->status.newest = newest;
		sl__unlock(&x->mu);
		sl_gauge_set(x->lag, (double)(newest - s.checkpoint));
	}
	if (s.state != SRV_EXPORT_FAILED)
		return SRV_FINE;
	(void)snprintf(why, size, "%s", s.error);
	return SRV_AILING;
}

/* ---- its life ---- */

int srv_exports_new(struct srv_exports **out, struct srv_core *core, struct sl_err *err)
{
	const struct srv_config *c = core->config;
	*out = NULL;
	if (c->export_events_dir == NULL)
		return 0;
	struct srv_exports *x = calloc(1, sizeof(*x));
	if (x == NULL)
		return sl__no_memory(err, "export");
	x->core = core;
	sl__mutex_init(&x->mu);
	sl__cond_init(&x->wake);
	int rc = sl_dataset_check_name(c->export_events_dataset, err);
	if (rc != 0)
		rc = sl_err_wrap(err, SL_ECONFIG, "export_events.dataset");
	else if (c->export_events_catalog != NULL)
		x->catalog_url = strdup(c->export_events_catalog);
	else if (asprintf(&x->catalog_url, "sqlite:%s/_catalog.db", c->export_events_dir) < 0)
		x->catalog_url = NULL;
	if (rc == 0 && x->catalog_url == NULL)
		rc = sl__no_memory(err, "export");
	const struct srv_metric metrics[] = {
		{"sluice_server_export_up", "1 if this server is exporting its events.", .gauge = &x->up},
		{"sluice_server_export_checkpoint", "Sequence of the last exported event.", .gauge = &x->checkpoint},
		{"sluice_server_export_lag_events", "Events not yet exported.", .gauge = &x->lag},
		{"sluice_server_export_starts_total", "Starts of the export.", .counter = &x->starts},
		{"sluice_server_export_failures_total", "Failed exports; each is restarted.", .counter = &x->failures},
	};
	if (rc == 0)
		rc = srv_metrics_make(core->metrics, metrics, SL_COUNT(metrics), err);
	if (rc != 0)
		srv_exports_free(x);
	else
		*out = x;
	return rc;
}

int srv_exports_start(struct srv_exports *x, struct sl_err *err)
{
	if (x == NULL)
		return 0;
	int failed = sl__thread_start(&x->thread, "sl-export", exports_main, x);
	x->started = failed == 0;
	return failed != 0 ? sl__thread_error(err, failed, "export", "the server") : 0;
}

/* With the lock: x->run lives as long as it is held. */
static void end_run(struct srv_exports *x, enum sl_export_stop_mode mode)
{
	if (x->run != NULL)
		sl_export_stop(x->run, mode);
	sl__broadcast(&x->wake);
}

void srv_exports_stop(struct srv_exports *x, int64_t deadline_ms)
{
	if (x == NULL)
		return;
	/* Verifications end where they are; none is added from now on. */
	sl__lock(&x->mu);
	x->stop = true;
	sl__unlock(&x->mu);
	for (size_t i = 0; i < DATASETS_KEPT; i++)
		if (x->tasks[i] != NULL && x->tasks[i]->joinable) {
			(void)pthread_join(x->tasks[i]->thread, NULL);
			x->tasks[i]->joinable = false;
		}
	if (!x->started)
		return;
	int64_t until = sl__clock_ms() + deadline_ms;
	sl__lock(&x->mu);
	end_run(x, SL_EXPORT_DRAIN);
	while (!x->ended && sl__wait_until_ms(&x->wake, &x->mu, until))
		;
	if (!x->ended)
		end_run(x, SL_EXPORT_NOW);
	sl__unlock(&x->mu);
	(void)pthread_join(x->thread, NULL);
	x->started = false;
}

void srv_exports_free(struct srv_exports *x)
{
	if (x == NULL)
		return;
	srv_exports_stop(x, 0);
	for (size_t i = 0; i < DATASETS_KEPT; i++)
		free_task(x->tasks[i]);
	sl__cond_fini(&x->wake);
	sl__mutex_fini(&x->mu);
	free(x->catalog_url);
	free(x);
}
