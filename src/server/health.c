/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The health thread, its checks and the routes that show them: see health.h.
 *
 * readyz answers from the results of the last round and never runs a check itself. It reports 503 when that round is
 * too old, since the thread then hangs in a check.
 */
#include "server/health.h"
#include "base/buf.h"
#include "base/thread.h"
#include "base/time.h"
#include "server/ingest/ingest.h"
#include "server/metrics.h"

#include <sluice/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_CHECKS = 8, WHY_BYTES = 200 };
#define LOOK_EVERY_MS 1000
#define LOOK_OLD_MS 5000 /* the last good look is then too long ago */

struct check {
	const char *name;
	srv_check_fn *fn;
	void *ctx;
	enum srv_verdict verdict;
	char why[WHY_BYTES];
};

/* mu guards everything below it; checks run without it. */
struct srv_health {
	struct srv_core *core;
	const struct srv_systemd *systemd;
	pthread_t thread;
	bool has_thread;
	sl__mutex mu;
	sl__cond wake;
	struct check checks[MAX_CHECKS];
	size_t n;
	int64_t looked_ms; /* the end of the last look; 0: never */
	bool draining, stop;
};

/* ---- looking ---- */

/* Any answer about any job shows that the store reads; that there is no such job is as good as the job. A store that
 * only reads is of no use: requests that change something would all fail. */
static enum srv_verdict check_store(char *why, size_t size, void *ctx)
{
	struct srv_core *core = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct sl_job *job = NULL;
	int rc = sl_jobs_get(core->jobs, 1, &job, &err);
	sl_job_release(core->jobs, job);
	if (rc == SL_ENOENT)
		rc = 0;
	if (rc == 0 && core->store->ops->check_writable != NULL)
		rc = core->store->ops->check_writable(core->store->ctx, &err);
	if (rc == 0)
		return SRV_FINE;
	(void)snprintf(why, size, "%s", err.msg);
	return SRV_NOT_READY;
}

enum srv_verdict srv_check_ingest(char *why, size_t size, void *ctx)
{
	struct srv_pulse *p = ctx;
	struct sl_coordinator_health c = {.struct_size = sizeof(c)};
	int64_t now = sl__clock_ms();
	uint64_t ended;
	if (sl_coordinator_get_health(p->ingest->coordinator, &c)) {
		(void)snprintf(why, size, "the coordinator is closed");
		return SRV_NOT_READY;
	}
	ended = c.written + c.dead_letters + c.dropped + c.returned + c.failures;
	if (ended != p->ended || !p->moved_ms || c.queue_size + c.in_flight + c.retrying == 0)
		p->moved_ms = now;
	p->ended = ended;
	if (c.breaker == SL_BREAKER_OPEN) {
		(void)snprintf(why, size, "the breaker is open: %.120s", c.last_error.msg);
		return SRV_NOT_READY;
	}
	if (now - p->moved_ms > p->stuck_ms) {
		(void)snprintf(why, size, "nothing was written for %lld s", (long long)(now - p->moved_ms) / 1000);
		return SRV_STUCK;
	}
	return SRV_FINE;
}

static enum srv_verdict run_checks(struct srv_health *h)
{
	enum srv_verdict worst = SRV_FINE;
	size_t n;
	sl__lock(&h->mu);
	n = h->n;
	sl__unlock(&h->mu);
	for (size_t i = 0; i < n; i++) {
		struct check *c = &h->checks[i];
		char why[WHY_BYTES] = "";
		enum srv_verdict verdict = c->fn(why, sizeof(why), c->ctx);
		sl__lock(&h->mu);
		c->verdict = verdict;
		memcpy(c->why, why, sizeof(why));
		sl__unlock(&h->mu);
		worst = verdict > worst ? verdict : worst;
	}
	sl__lock(&h->mu);
	h->looked_ms = sl__clock_ms();
	sl__unlock(&h->mu);
	return worst;
}

static void *health_main(void *arg)
{
	struct srv_health *h = arg;
	int64_t watchdog_ms = h->systemd != NULL ? h->systemd->watchdog_ms : 0;
	int64_t pause_ms = watchdog_ms >= 3 ? SL_MIN(watchdog_ms / 3, LOOK_EVERY_MS) : LOOK_EVERY_MS;
	sl__lock(&h->mu);
	while (!h->stop) {
		int64_t next = sl__clock_ms() + pause_ms;
		enum srv_verdict verdict;
		sl__unlock(&h->mu);
		verdict = run_checks(h);
		if (watchdog_ms > 0 && verdict != SRV_STUCK)
			srv_systemd_notify(h->systemd, "WATCHDOG=1");
		sl__lock(&h->mu);
		while (!h->stop && sl__clock_ms() < next)
			(void)sl__wait_until_ms(&h->wake, &h->mu, next);
	}
	sl__unlock(&h->mu);
	return NULL;
}

/* ---- routes ---- */

static void livez(srv_request *r, void *ctx)
{
	(void)ctx;
	srv_bytes(r, 200, "text/plain; charset=utf-8", "alive\n", 6);
}

static void readyz(srv_request *r, void *ctx)
{
	struct srv_health *h = ctx;
	const char *why = NULL;
	json_t *checks = json_array();
	bool ready = true;
	/* Reasons may name hosts, files and what a database said: they are for tokens that may read, not for every
	 * client that can connect. */
	bool reasons = srv_role(r) >= SRV_READ;
	sl__lock(&h->mu);
	for (size_t i = 0; i < h->n; i++) {
		const struct check *c = &h->checks[i];
		ready &= c->verdict < SRV_NOT_READY;
		json_array_append_new(checks,
				      json_pack("{s:s, s:b, s:s*}", "name", c->name, "ok", c->verdict == SRV_FINE,
						"why", c->verdict == SRV_FINE || !reasons ? NULL : c->why));
	}
	if (h->draining)
		why = "the server is stopping";
	else if (sl__clock_ms() - h->looked_ms > LOOK_OLD_MS)
		why = "the last query of the store has not returned yet";
	sl__unlock(&h->mu);
	ready &= why == NULL;
	srv_json(r, ready ? 200 : 503, json_pack("{s:b, s:s*, s:o}", "ready", ready, "why", why, "checks", checks));
}

static int add_text(const char *data, size_t n, void *ctx)
{
	return sl__buf_append(ctx, data, n);
}

static void show_metrics(srv_request *r, void *ctx)
{
	struct srv_health *h = ctx;
	struct sl_err err = SL_ERR_INIT;
	struct sl__buf text = {.env = &sl__env_real};
	if (sl_metrics_render(h->core->metrics, add_text, &text, &err))
		srv_fail(r, &err);
	else
		srv_bytes(r, 200, "text/plain; version=0.0.4; charset=utf-8", sl__buf_str(&text), text.len);
	sl__buf_fini(&text);
}

int srv_health_add_routes(srv_http *http, struct srv_health *h, struct sl_err *err)
{
	static const struct srv_route routes[] = {
		{"GET", "/livez", SRV_PUBLIC, SRV_QUICK, livez, NULL},
		{"GET", "/readyz", SRV_PUBLIC, SRV_QUICK, readyz, NULL},
		{"GET", "/metrics", SRV_READ, 0, show_metrics, NULL},
	};

	return srv_http_add(http, routes, SL_COUNT(routes), h, err);
}

/* ---- its life ---- */

static double resident_bytes(void *ctx)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");
	(void)ctx;
	if (f != NULL && fscanf(f, "%*s %ld", &pages) != 1)
		pages = 0;
	if (f != NULL)
		(void)fclose(f);
	return (double)pages * 4096;
}

int srv_health_new(struct srv_health **out, struct srv_core *core, struct sl_err *err)
{
	struct srv_health *h = calloc(1, sizeof(*h));
	if (h == NULL)
		return sl__no_memory(err, "health");
	h->core = core;
	sl__mutex_init(&h->mu);
	sl__cond_init(&h->wake);
	/* Numbers of the process that every collector expects. */
	sl_gauge *info, *memory, *start;
	const struct srv_metric metrics[] = {
		{"sluice_build_info", "Version of the server; always 1.", &info, NULL, {"version", sl_version()}},
		{"process_resident_memory_bytes", "Resident memory size in bytes.", .gauge = &memory},
		{"process_start_time_seconds", "Start time of the process since unix epoch in seconds.",
		 .gauge = &start},
	};
	int rc = srv_metrics_make(core->metrics, metrics, SL_COUNT(metrics), err);
	if (rc == 0) {
		sl_gauge_set(info, 1);
		sl_gauge_set(start, (double)time(NULL));
		rc = sl_gauge_attach(memory, resident_bytes, NULL, err);
	}
	if (rc == 0)
		rc = srv_health_add_check(h, "store", check_store, core, err);
	if (rc != 0) {
		srv_health_free(h);
		return rc;
	}
	*out = h;
	return 0;
}

int srv_health_add_check(struct srv_health *h, const char *name, srv_check_fn *fn, void *ctx, struct sl_err *err)
{
	int rc = 0;
	sl__lock(&h->mu);
	if (h->n == MAX_CHECKS)
		rc = sl_err_set(err, SL_EFULL, "more than %d checks", MAX_CHECKS);
	else
		h->checks[h->n++] = (struct check){.name = name, .fn = fn, .ctx = ctx};
	sl__unlock(&h->mu);
	return rc;
}

int srv_health_start(struct srv_health *h, const struct srv_systemd *systemd, struct sl_err *err)
{
	int failed;
	h->systemd = systemd;
	(void)run_checks(h);
	failed = sl__thread_start(&h->thread, "sl-health", health_main, h);
	h->has_thread = failed == 0;
	return failed != 0 ? sl__thread_error(err, failed, "health", "the server") : 0;
}

void srv_health_drain(struct srv_health *h)
{
	sl__lock(&h->mu);
	h->draining = true;
	sl__unlock(&h->mu);
}

void srv_health_stop(struct srv_health *h)
{
	if (h == NULL || !h->has_thread)
		return;
	sl__lock(&h->mu);
	h->stop = true;
	sl__broadcast(&h->wake);
	sl__unlock(&h->mu);
	(void)pthread_join(h->thread, NULL);
	h->has_thread = false;
}

void srv_health_free(struct srv_health *h)
{
	if (h == NULL)
		return;
	srv_health_stop(h);
	sl__cond_fini(&h->wake);
	sl__mutex_fini(&h->mu);
	free(h);
}
