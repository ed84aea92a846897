/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of the store over the last hour, day and week.
 *
 * The thread that counts writes a row every 10 s, with what was counted so far: totals, not differences. Rows are
 * numbered by their bucket and the first one stays, so several servers of one store write one history, and nothing
 * counts twice. Every 5 min the rows of 5 and of 30 min are made from the finer ones, and those that no range shows any
 * more are deleted. A request takes the coarse rows of its range, the finer ones where a coarse one is still missing,
 * and differences for rates: over the step, but at least over a minute.
 */
#include "jobs/store/ops.h"
#include "server/api/api.h"

#include <stdlib.h>
#include <string.h>

#define STEP_S 10
#define MIDDLE_S 300
#define LARGE_S 1800
#define HOUR_S 3600
#define DAY_S (24 * HOUR_S)
#define WEEK_S (7 * DAY_S)
#define RATE_S 60 /* rates cover at least this long */
#define BRIDGED 3 /* cells: a gap between rows that is not longer is none */

/* ---- writing: the thread that counts ---- */

static int roll_up(const sl_store *store, int64_t at_s, struct sl_err *err)
{
	const struct sl_history_roll steps[] = {{MIDDLE_S, STEP_S, at_s, at_s - DAY_S - MIDDLE_S},
						{LARGE_S, MIDDLE_S, at_s, at_s - WEEK_S - MIDDLE_S},
						{STEP_S, 0, at_s, at_s - HOUR_S - MIDDLE_S}};
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < SL_COUNT(steps); i++)
		rc = store->ops->history_roll(store->ctx, &steps[i], err);
	return rc;
}

void srv_history_put(struct srv_history *h, const struct srv_core *core, struct sl_history_row *row)
{
	const sl_store *store = core->store;
	struct sl_err err = SL_ERR_INIT;
	row->step_s = STEP_S;
	row->at_s = row->taken_ms / 1000 - row->taken_ms / 1000 % STEP_S;
	if (row->at_s == h->written_s)
		return;
	int rc = store->ops->history_put(store->ctx, row, &err);
	if (rc == 0 && row->at_s / MIDDLE_S != h->rolled) {
		rc = roll_up(store, row->at_s, &err);
		h->rolled = rc == 0 ? row->at_s / MIDDLE_S : h->rolled;
	}
	if (rc == 0)
		h->written_s = row->at_s;
	if (rc != 0 && !h->failed)
		sl__log(core->env, SL_LOG_WARN, "server", "the history of the charts cannot be written; trying again",
			SL__F_STR("error", err.msg));
	h->failed = rc != 0;
}

/* ---- reading ---- */

struct cell {
	bool known;
	double weight, due, running, p50, p50_weight;
	int64_t p99_ms;
	int64_t taken_ms;
	uint64_t newest_id, completed, failed;
};

struct grid {
	struct cell *cells;
	int64_t from_s, step_s, covered_s;
	size_t n;
};

/* Rows come by time, the coarsest first: what it covers is skipped. */
static int add_history_row(const struct sl_history_row *row, void *ctx)
{
	struct grid *g = ctx;
	size_t i = (size_t)((row->at_s - g->from_s) / g->step_s);
	if (row->at_s < g->covered_s || row->at_s < g->from_s || i >= g->n)
		return 0;
	g->covered_s = row->at_s + row->step_s;
	struct cell *c = &g->cells[i];
	double weight = (double)row->step_s;
	c->known = true;
	c->weight += weight;
	c->due += weight * (double)row->due;
	c->running += weight * (double)row->running;
	if (row->p50_ms >= 0) {
		c->p50 += weight * (double)row->p50_ms;
		c->p50_weight += weight;
	}
	c->p99_ms = SL_MAX(c->p99_ms, row->p99_ms);
	c->taken_ms = row->taken_ms;
	c->newest_id = row->newest_id;
	c->completed = row->completed;
	c->failed = row->failed;
	return 0;
}

/* A server that was late by a bucket or two leaves no hole: the next row stands for them, too. */
static void bridge_gaps(const struct grid *g)
{
	for (size_t i = 1; i < g->n; i++)
		for (size_t k = i + 1; !g->cells[i].known && g->cells[i - 1].known && k < g->n && k < i + BRIDGED; k++)
			if (g->cells[k].known)
				g->cells[i] = g->cells[k];
}

/* The cell against which the rates of cell i are counted; NULL: none is known before it. */
static const struct cell *rate_base(const struct grid *g, size_t i)
{
	const struct cell *base = NULL;
	for (size_t k = i; k-- > 0 && g->cells[k].known;) {
		base = &g->cells[k];
		if (g->cells[i].taken_ms - base->taken_ms >= RATE_S * 1000)
			break;
	}
	return base != NULL && g->cells[i].taken_ms > base->taken_ms ? base : NULL;
}

enum rate_of { COMPLETED, FAILED, ENQUEUED };

static uint64_t total_of(const struct cell *c, enum rate_of of)
{
	return of == COMPLETED ? c->completed : of == FAILED ? c->failed : c->newest_id;
}

static void out_rates(struct srv_out *o, const char *name, const struct grid *g, size_t first, enum rate_of of)
{
	srv_out_begin(o, name, '[');
	for (size_t i = first; i < g->n; i++) {
		const struct cell *c = &g->cells[i], *base = c->known ? rate_base(g, i) : NULL;
		if (base == NULL) {
			srv_out_raw(o, NULL);
			continue;
		}
		uint64_t now = total_of(c, of), then = total_of(base, of);
		double ms = (double)(c->taken_ms - base->taken_ms);
		srv_out_real(o, now > then ? (double)(now - then) * 1000.0 / ms : 0.0);
	}
	srv_out_close(o, ']');
}

enum level_of { DUE, RUNNING, P50, P99 };

static void out_levels(struct srv_out *o, const char *name, const struct grid *g, size_t first, enum level_of of)
{
	srv_out_begin(o, name, '[');
	for (size_t i = first; i < g->n; i++) {
		const struct cell *c = &g->cells[i];
		double weight = of == P50 ? c->p50_weight : c->weight;
		double sum = of == DUE ? c->due : of == RUNNING ? c->running : c->p50;
		if (!c->known || weight <= 0 || (of == P99 && c->p99_ms < 0))
			srv_out_raw(o, NULL);
		else
			srv_out_int(o, of == P99 ? c->p99_ms : (int64_t)(sum / weight + 0.5));
	}
	srv_out_close(o, ']');
}

static void out_history(struct srv_out *o, const struct grid *g, size_t first)
{
	SRV_FIELD(o, "step_s", int, g->step_s);
	SRV_FIELD(o, "from", time, (g->from_s + (int64_t)first * g->step_s) * 1000);
	out_rates(o, "enqueued", g, first, ENQUEUED);
	out_rates(o, "completed", g, first, COMPLETED);
	out_rates(o, "failed", g, first, FAILED);
	out_levels(o, "due", g, first, DUE);
	out_levels(o, "running", g, first, RUNNING);
	out_levels(o, "pickup_p50_ms", g, first, P50);
	out_levels(o, "pickup_p99_ms", g, first, P99);
}

void srv_history_show(srv_request *r, void *ctx)
{
	static const char *const names[] = {"range", NULL};
	static const struct {
		const char *name;
		int64_t span_s, step_s;
	} ranges[] = {{"1h", HOUR_S, STEP_S}, {"24h", DAY_S, MIDDLE_S}, {"7d", WEEK_S, LARGE_S}};
	struct srv_api *api = ctx;
	const sl_store *store = api->core->store;
	struct sl_err err = SL_ERR_INIT;
	struct srv_out o = {0};
	const char *name = srv_query(r, "range");
	int64_t now_ms = 0;
	size_t at = 0;
	if (!srv_in_query(r, names))
		return;
	while (name != NULL && at < SL_COUNT(ranges) && strcmp(ranges[at].name, name) != 0)
		at++;
	if (at == SL_COUNT(ranges)) {
		srv_error(r, 400, "invalid", "range: must be 1h, 24h or 7d");
		return;
	}
	/* The cells that are shown, and those before that the first rates are counted against. */
	int64_t step_s = ranges[at].step_s;
	size_t shown = (size_t)(ranges[at].span_s / step_s), before = (size_t)(RATE_S / step_s + BRIDGED);
	int rc = store->ops->now_ms(store->ctx, &now_ms, &err);
	struct grid g = {.step_s = step_s, .n = shown + before};
	g.from_s = now_ms / 1000 / step_s * step_s - (int64_t)(g.n - 1) * step_s;
	g.cells = calloc(g.n, sizeof(*g.cells));
	if (rc == 0 && g.cells == NULL)
		rc = sl_err_set(&err, SL_ENOMEM, "out of memory");
	for (size_t i = 0; g.cells != NULL && i < g.n; i++)
		g.cells[i].p99_ms = -1;
	if (rc == 0)
		rc = store->ops->history(store->ctx, &(struct sl_history_row){.step_s = step_s, .at_s = g.from_s},
					 add_history_row, &g, &err);
	srv_out_open(&o, '{');
	SRV_FIELD(&o, "range", str, ranges[at].name);
	if (rc == 0) {
		bridge_gaps(&g);
		out_history(&o, &g, before);
	}
	srv_out_close(&o, '}');
	free(g.cells);
	srv_out_answer(r, 200, &o, rc != 0 ? &err : NULL);
}
