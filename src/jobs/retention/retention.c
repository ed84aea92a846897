/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that deletes what is too old: see <sluice/retention.h>.
 *
 *   look ─▶ read limits, turn and checkpoints ─▶ take the turn ─▶ chains ─▶ events ─▶ marks ─▶ sleep
 *               └── another process has the turn, or everything is kept for ever ──────────────────────────────▶ ┘
 *
 * R1  A pass is a series of steps of the store, each a short transaction. After a step the thread pauses PAUSE_FACTOR
 *     times as long as the step took, so it uses at most a twentieth of the time, also of the time in which the store is
 *     locked.
 * R2  A pass goes up in the order of ids, or of offsets, and ends where everything is too young. The next one continues
 *     there. What was skipped is found by a full pass, which begins anew; full passes use a hundredth of the time.
 * R3  The turn is a row of the store with the time at which it ends. It is kept while the thread works, and given back at
 *     the end, so that another process takes over at once, or after TURN_MS when this one died.
 * R4  Times are those of the store, but for pauses and sleeps.
 */
#include <stdio.h>

#include "base/options.h"
#include "base/thread.h"
#include "jobs/store/ops.h"
#include <sluice/retention.h>

#define DAY_MS INT64_C(86400000)
#define LONGEST_MS (36500 * DAY_MS)
#define LOOK_LEAST_MS 1000
#define LOOK_MOST_MS 60000
#define TURN_MS 180000 /* three of the longest looks */
#define PAUSE_FACTOR 19
#define PAUSE_MOST_MS INT64_C(60000)
#define FULL_FACTOR 100
#define SILENT_MS (90 * DAY_MS) /* of a stream without events, and of an export */
#define SUPERSEDED_LEAST_MS DAY_MS
#define MARKS_EVERY_MS INT64_C(3600000)
#define EXPORT_EVERY_MS INT64_C(3600000)
#define STEP_CHAINS 250
#define STEP_SCAN 2000
#define STEP_EVENTS 2000
#define STEP_MARKS 500
#define NS_OF_MS 1000000

enum limit { COMPLETED, FAILED, EVENTS, LINES, LIMITS };
static const int64_t defaults[LIMITS] = {7 * DAY_MS, 90 * DAY_MS, 30 * DAY_MS, 30 * DAY_MS};

/* One of the two passes. */
struct pass {
	uint64_t after;
	int64_t full_ns; /* when it may begin anew */
	int64_t busy_ns; /* of the full pass that runs */
	bool full;
};

struct sl_retention_thread {
	struct sl_env env;
	sl_store store;
	char holder[40];
	char *export_name; /* NULL: none */
	sl_retention_checkpoint_fn *checkpoint;
	void *checkpoint_ctx;
	uint64_t confirmed; /* the checkpoint that the store has from here */
	int64_t confirmed_ns;
	pthread_t thread;
	struct sl_retention_row given; /* limits that are not in the store yet */
	bool unwritten;
	struct pass chains, events;
	int64_t marks_ns; /* when marks may be deleted again */
	struct sl_retention_turn turn;
	uint64_t deleted_chains, deleted_events; /* not logged yet */
	int64_t limits[LIMITS];                  /* 0: for ever */
	int failed;                              /* the last error that was logged; 0: none */
	sl__mutex mu;
	sl__cond wake;
	bool stop; /* mu */
};

/* ---- limits ---- */

/* As the store has them: 0 for ever, -1 not given. */
static int64_t stored_limit(int64_t ms)
{
	if (ms == SL_UNLIMITED)
		return 0;
	return ms == 0 ? -1 : ms;
}

static void effective_limits(const struct sl_retention_row *row, int64_t out[LIMITS])
{
	const int64_t stored[LIMITS] = {row->completed_ms, row->failed_ms, row->events_ms, row->lines_ms};
	for (int i = 0; i < LIMITS; i++)
		out[i] = stored[i] < 0 ? defaults[i] : stored[i];
}

static int check_limits(const struct sl_retention *keep, struct sl_err *err)
{
	const struct sl__range rows[] = {{"completed_ms", keep->completed_ms, 0, LONGEST_MS},
					 {"failed_ms", keep->failed_ms, 0, LONGEST_MS},
					 {"events_ms", keep->events_ms, 0, LONGEST_MS},
					 {"lines_ms", keep->lines_ms, 0, LONGEST_MS}};
	for (size_t i = 0; i < SL_COUNT(rows); i++) {
		int rc = rows[i].value == SL_UNLIMITED ? 0 : sl__check_ranges("retention", &rows[i], 1, err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* A tenth of the shortest. 0: everything is kept for ever. */
static int64_t look_every_ms(const int64_t limits[LIMITS])
{
	int64_t shortest = 0;
	for (int i = 0; i < LIMITS; i++)
		if (limits[i] > 0 && (shortest == 0 || limits[i] < shortest))
			shortest = limits[i];
	return shortest == 0 ? 0 : SL_MAX(LOOK_LEAST_MS, SL_MIN(shortest / 10, LOOK_MOST_MS));
}

static int64_t before_ms(int64_t now_ms, int64_t limit_ms)
{
	return limit_ms == 0 ? 0 : SL_MAX(now_ms - limit_ms, 0);
}

/* ---- steps ---- */

/* Sleep until then. false: it is to end. */
static bool sleep_until(sl_retention_thread *t, int64_t until_ns)
{
	sl__lock(&t->mu);
	while (!t->stop && sl__mono_ns(&t->env) < until_ns)
		(void)sl__wait(&t->env, &t->wake, &t->mu, until_ns);
	bool stop = t->stop;
	sl__unlock(&t->mu);
	return !stop;
}

/* The pause after a step. A step that stalled once does not stop the thread for long. */
static bool rest_after(sl_retention_thread *t, int64_t took_ns)
{
	int64_t pause_ns = SL_MIN(took_ns * PAUSE_FACTOR, PAUSE_MOST_MS * NS_OF_MS);
	return sleep_until(t, sl__mono_ns(&t->env) + pause_ns);
}

/* Write what was deleted, and keep the turn. SL_ELOCKED: it is another's. */
static int keep_turn(sl_retention_thread *t, struct sl_err *err)
{
	int64_t now_ms = 0;
	int rc = t->store.ops->now_ms(t->store.ctx, &now_ms, err);
	if (rc != 0)
		return rc;
	t->turn.holder = t->holder;
	t->turn.now_ms = now_ms;
	t->turn.until_ms = now_ms + TURN_MS;
	rc = t->store.ops->retention_turn(t->store.ctx, &t->turn, err);
	if (rc == 0)
		t->turn.events = 0;
	return rc;
}

/* Read what may have changed since the last step. SL_ELOCKED: the turn is another's. */
static int go_on(sl_retention_thread *t, struct sl_prune_step *step, struct sl_err *err)
{
	struct sl_retention_row row;
	int64_t now_ms = 0;
	int rc = t->store.ops->now_ms(t->store.ctx, &now_ms, err);
	if (rc == 0)
		rc = t->store.ops->retention_read(t->store.ctx, before_ms(now_ms, SILENT_MS), &row, err);
	if (rc != 0)
		return rc;
	if (strcmp(row.holder, t->holder) != 0)
		return SL_ELOCKED;
	step->exported = row.exports ? row.exported : UINT64_MAX;
	return now_ms > t->turn.until_ms - TURN_MS / 2 ? keep_turn(t, err) : 0;
}

typedef int step_fn(void *store, struct sl_prune_step *step, struct sl_err *err);

/* The steps of a pass, until its end, with their pauses. SL_ECANCELLED: the thread is to end. */
static int run_pass(sl_retention_thread *t, struct pass *pass, step_fn *run, struct sl_prune_step step,
		    struct sl_err *err)
{
	int64_t now = sl__mono_ns(&t->env);
	if (now >= pass->full_ns)
		*pass = (struct pass){.full = true, .full_ns = SL_FOREVER};
	step.after = pass->after;
	do {
		int64_t began = sl__mono_ns(&t->env);
		int rc = run(t->store.ctx, &step, err);
		now = sl__mono_ns(&t->env);
		int64_t took = now - began;
		pass->busy_ns += took;
		if (rc != 0)
			return rc;
		pass->after = step.after;
		t->deleted_chains += step.chains;
		t->deleted_events += step.events;
		t->turn.events += pass == &t->events ? step.events : 0;
		if (!rest_after(t, took))
			return SL_ECANCELLED;
		/* A long pass keeps its turn, and heeds an export that has begun since. */
		if (!step.end)
			rc = go_on(t, &step, err);
		if (rc != 0)
			return rc;
	} while (!step.end);
	if (pass->full) {
		pass->full_ns = sl__mono_ns(&t->env) + pass->busy_ns * FULL_FACTOR;
		pass->full = false;
		pass->busy_ns = 0;
	}
	return 0;
}

static int delete_marks(sl_retention_thread *t, int64_t now_ms, struct sl_err *err)
{
	/* Marks of logs that a newer one has replaced go with the last events that such a log may have had. */
	int64_t kept = t->limits[EVENTS] == 0 || t->limits[LINES] == 0 ? SILENT_MS
								       : SL_MAX(t->limits[EVENTS], t->limits[LINES]);
	kept = SL_MIN(SL_MAX(kept, SUPERSEDED_LEAST_MS), SILENT_MS);
	struct sl_prune_step step = {.superseded_before_ms = before_ms(now_ms, kept),
				     .silent_before_ms = before_ms(now_ms, SILENT_MS),
				     .limit = STEP_MARKS};
	if (sl__mono_ns(&t->env) < t->marks_ns)
		return 0;
	while (!step.end) {
		int64_t began = sl__mono_ns(&t->env);
		int rc = t->store.ops->retain_marks(t->store.ctx, &step, err);
		int64_t now = sl__mono_ns(&t->env);
		if (rc != 0)
			return rc;
		if (!rest_after(t, now - began))
			return SL_ECANCELLED;
	}
	t->marks_ns = sl__mono_ns(&t->env) + MARKS_EVERY_MS * NS_OF_MS;
	return 0;
}

/* ---- a look ---- */

/* Confirm our export: when its checkpoint has changed, and now and then, so that it counts. One that was made anew begins
 * below the last. */
static int confirm_export(sl_retention_thread *t, int64_t now_ms, struct sl_err *err)
{
	uint64_t checkpoint = t->checkpoint != NULL ? t->checkpoint(t->checkpoint_ctx) : 0;
	int64_t now = sl__mono_ns(&t->env);
	if (t->export_name == NULL ||
	    (checkpoint == t->confirmed && t->confirmed_ns != 0 && now - t->confirmed_ns < EXPORT_EVERY_MS * NS_OF_MS))
		return 0;
	int rc = t->store.ops->retention_export(t->store.ctx, t->export_name, checkpoint, now_ms, err);
	if (rc != 0)
		return rc;
	t->confirmed = checkpoint;
	t->confirmed_ns = now;
	return 0;
}

/* What this process puts into the store: its limits, once, and how far its export is. */
static int write_own(sl_retention_thread *t, int64_t *now_ms, struct sl_err *err)
{
	int rc = t->unwritten ? t->store.ops->retention_limits(t->store.ctx, &t->given, err) : 0;
	if (rc == 0)
		t->unwritten = false;
	if (rc == 0)
		rc = t->store.ops->now_ms(t->store.ctx, now_ms, err);
	if (rc != 0)
		return rc;
	return confirm_export(t, *now_ms, err);
}

/* *every_ms: until the next look. */
static int look(sl_retention_thread *t, int64_t *every_ms, struct sl_err *err)
{
	struct sl_retention_row row;
	int64_t now_ms = 0;
	int rc = write_own(t, &now_ms, err);
	if (rc == 0)
		rc = t->store.ops->retention_read(t->store.ctx, before_ms(now_ms, SILENT_MS), &row, err);
	if (rc != 0)
		return rc;
	effective_limits(&row, t->limits);
	*every_ms = look_every_ms(t->limits);
	bool others = strcmp(row.holder, t->holder) != 0;
	if (*every_ms == 0 || (others && row.until_ms >= now_ms))
		return 0;
	t->turn.until_ms = row.until_ms;
	if (others || row.until_ms < now_ms + TURN_MS / 2)
		rc = keep_turn(t, err);
	if (rc != 0)
		return rc;

	const struct sl_prune_step step = {.completed_before_ms = before_ms(now_ms, t->limits[COMPLETED]),
					   .failed_before_ms = before_ms(now_ms, t->limits[FAILED]),
					   .events_before_ms = before_ms(now_ms, t->limits[EVENTS]),
					   .lines_before_ms = before_ms(now_ms, t->limits[LINES]),
					   .now_ms = now_ms,
					   .events_for_ever = t->limits[EVENTS] == 0,
					   .lines_for_ever = t->limits[LINES] == 0,
					   .exported = row.exports ? row.exported : UINT64_MAX,
					   .scan = STEP_SCAN,
					   .limit = STEP_CHAINS,
					   .n_events = STEP_EVENTS};
	if (t->limits[COMPLETED] != 0 || t->limits[FAILED] != 0)
		rc = run_pass(t, &t->chains, t->store.ops->retain_chains, step, err);
	if (rc == 0 && (t->limits[EVENTS] != 0 || t->limits[LINES] != 0))
		rc = run_pass(t, &t->events, t->store.ops->retain_events, step, err);
	if (rc == 0)
		rc = delete_marks(t, now_ms, err);
	if (rc == 0 && t->turn.events > 0)
		rc = keep_turn(t, err);
	if (rc == 0 && (t->deleted_chains > 0 || t->deleted_events > 0)) {
		sl__log(&t->env, SL_LOG_INFO, "retention", "deleted old chains and events",
			SL__F_U64("chains", t->deleted_chains), SL__F_U64("events", t->deleted_events));
		t->deleted_chains = t->deleted_events = 0;
	}
	return rc;
}

static void *retention_main(void *arg)
{
	sl_retention_thread *t = arg;
	int64_t sleep_ns = 0;
	while (sleep_until(t, sl__mono_ns(&t->env) + sleep_ns)) {
		struct sl_err err = SL_ERR_INIT;
		int64_t every_ms = 0, began = sl__mono_ns(&t->env);
		int rc = look(t, &every_ms, &err);
		if (rc == SL_ECANCELLED || rc == SL_ELOCKED)
			rc = 0;
		/* A store that is unavailable is reported by others. */
		if (rc != 0 && rc != t->failed && rc != SL_EUNAVAIL)
			sl__log(&t->env, SL_LOG_WARN, "retention",
				"old chains and events could not be deleted; retrying", SL__F_STR("error", err.msg));
		t->failed = rc;
		every_ms = every_ms == 0 || rc != 0 ? LOOK_MOST_MS : every_ms;
		sleep_ns = SL_MAX(every_ms * NS_OF_MS - (sl__mono_ns(&t->env) - began), 0);
	}
	/* Give the turn back, with what was deleted since it was last written. */
	t->turn.holder = t->holder;
	t->turn.until_ms = 0;
	int rc = t->store.ops->now_ms(t->store.ctx, &t->turn.now_ms, NULL);
	struct sl_retention_row row;
	if (rc == 0)
		rc = t->store.ops->retention_read(t->store.ctx, 0, &row, NULL);
	if (rc == 0 && strcmp(row.holder, t->holder) == 0)
		rc = t->store.ops->retention_turn(t->store.ctx, &t->turn, NULL);
	(void)rc;
	return NULL;
}

/* ---- from outside ---- */

static void free_thread(sl_retention_thread *t)
{
	const struct sl_env env = t->env;
	sl__cond_fini(&t->wake);
	sl__mutex_fini(&t->mu);
	sl__free(&env, t->export_name);
	sl__free(&env, t);
}

int sl_retention_start(sl_retention_thread **out, const struct sl_retention_opts *opts, struct sl_err *err)
{
	struct sl_retention_opts o;
	struct sl_err why = SL_ERR_INIT;
	struct sl_env env;
	uint64_t random[2];
	int64_t now_ms = 0;
	sl__opts_copy(&o, sizeof(o), opts);
	int rc = sl__env_init(&env, o.env, err);
	if (rc == 0)
		rc = check_limits(&o.keep, err);
	if (rc != 0)
		return rc;
	if (o.store == NULL)
		return sl_err_set(err, SL_EINVAL, "retention: store is missing");
	if (o.store->ops->retention_turn == NULL)
		return sl_err_set(err, SL_EUNSUPPORTED, "retention: the store %s has none", o.store->ops->name);
	sl_retention_thread *t = sl__calloc(&env, 1, sizeof(*t));
	if (t == NULL)
		return sl__no_memory(err, "retention");
	t->env = env;
	t->store = *o.store;
	t->checkpoint = o.checkpoint;
	t->checkpoint_ctx = o.checkpoint_ctx;
	sl__mutex_init(&t->mu);
	sl__cond_init(&t->wake);
	if (o.export_name != NULL) {
		t->export_name = sl__strdup(&env, o.export_name);
		rc = t->export_name == NULL ? sl__no_memory(err, "retention") : 0;
	}
	if (rc == 0)
		rc = env.rand->fill(random, sizeof(random), env.rand_ctx) != 0
			     ? sl_err_set(err, SL_EIO, "retention: no random bytes")
			     : 0;
	(void)snprintf(t->holder, sizeof(t->holder), "%016llx%016llx", (unsigned long long)random[0],
		       (unsigned long long)random[1]);
	t->given = (struct sl_retention_row){.completed_ms = stored_limit(o.keep.completed_ms),
					     .failed_ms = stored_limit(o.keep.failed_ms),
					     .events_ms = stored_limit(o.keep.events_ms),
					     .lines_ms = stored_limit(o.keep.lines_ms)};
	t->unwritten = t->given.completed_ms >= 0 || t->given.failed_ms >= 0 || t->given.events_ms >= 0 ||
		       t->given.lines_ms >= 0;
	/* A store that is unavailable now is tried again by the thread. */
	if (rc == 0)
		rc = write_own(t, &now_ms, &why);
	if (rc != 0 && sl_err_retryable(&why))
		rc = 0;
	else if (rc != 0 && why.code != 0 && err != NULL)
		*err = why;
	if (rc == 0) {
		int failed = sl__thread_start(&t->thread, "sl-retention", retention_main, t);
		if (failed != 0)
			rc = sl__thread_error(err, failed, "retention", "a store");
	}
	if (rc != 0) {
		free_thread(t);
		return rc;
	}
	*out = t;
	return 0;
}

void sl_retention_stop(sl_retention_thread *t)
{
	if (t == NULL)
		return;
	sl__lock(&t->mu);
	t->stop = true;
	sl__broadcast(&t->wake);
	sl__unlock(&t->mu);
	(void)pthread_join(t->thread, NULL);
	free_thread(t);
}

int sl_retention_get(const sl_store *store, struct sl_retention_status *out, struct sl_err *err)
{
	struct sl_retention_row row;
	int64_t now_ms = 0, limits[LIMITS];
	if (store->ops->retention_read == NULL)
		return sl_err_set(err, SL_EUNSUPPORTED, "retention: the store %s has none", store->ops->name);
	int rc = store->ops->now_ms(store->ctx, &now_ms, err);
	if (rc == 0)
		rc = store->ops->retention_read(store->ctx, before_ms(now_ms, SILENT_MS), &row, err);
	if (rc != 0)
		return rc;
	effective_limits(&row, limits);
	for (int i = 0; i < LIMITS; i++)
		limits[i] = limits[i] == 0 ? SL_UNLIMITED : limits[i];
	const struct sl_retention_status full = {.struct_size = sizeof(full),
						 .keep = {SL_RETENTION_INIT, .completed_ms = limits[COMPLETED],
							  .failed_ms = limits[FAILED], .events_ms = limits[EVENTS],
							  .lines_ms = limits[LINES]},
						 .active = row.until_ms >= now_ms,
						 .deleted_ms = row.deleted_ms,
						 .chains = row.chains,
						 .completed_jobs = row.completed,
						 .failed_jobs = row.failed,
						 .events = row.events,
						 .exports = row.exports,
						 .exported = row.exported};
	sl__result_copy(out, &full, sizeof(full));
	return 0;
}
