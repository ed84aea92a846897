/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A turn reads the schedules, copies those that are due, and fires them one tick at a time. The store refuses a tick
 * that is no longer the next one, and a schedule that was replaced since. Then another process fires this schedule, and
 * the turn leaves it to that process.
 */
#include "jobs/cron/cron.h"

#include "jobs/client/types.h"

struct due {
	struct due *next;
	struct sl__cron_spec spec;
	struct sl_cron seen; /* name, spec, catch_up and the tick, next_ms */
	char text[];         /* name and spec */
};

struct survey {
	const struct sl_env *env;
	int64_t now_ms;
	struct due *first, **last;
	struct sl__cron_turn *turn;
};

static void sooner(struct sl__cron_turn *turn, int64_t ms)
{
	if (turn->next_ms < 0 || ms < turn->next_ms)
		turn->next_ms = ms;
}

/* Copy a schedule that is due. */
static int collect_due(const struct sl_cron *cron, void *ctx)
{
	struct survey *s = ctx;
	struct sl__cron_spec spec;
	struct sl_err err = SL_ERR_INIT;
	if (cron->paused)
		return 0;
	if (sl__cron_parse(cron->spec, &spec, &err) != 0) {
		s->turn->broken++;
		sl__log(s->env, SL_LOG_WARN, "jobs", "skipping a schedule with an invalid spec",
			SL__F_STR("name", cron->name), SL__F_STR("error", err.msg));
		return 0;
	}
	if (cron->next_ms > s->now_ms) {
		sooner(s->turn, cron->next_ms);
		return 0;
	}
	size_t n = strlen(cron->name) + 1, n_spec = strlen(cron->spec) + 1;
	struct due *due = sl__alloc(s->env, sizeof(*due) + n + n_spec);
	if (due == NULL)
		return SL_ENOMEM;
	*due = (struct due){.spec = spec,
			    .seen = {.name = due->text,
				     .spec = due->text + n,
				     .catch_up = cron->catch_up,
				     .next_ms = cron->next_ms}};
	memcpy(due->text, cron->name, n);
	memcpy(due->text + n, cron->spec, n_spec);
	*s->last = due;
	s->last = &due->next;
	return 0;
}

/* Fire the ticks of one schedule up to now. */
static int fire_due(struct survey *s, const sl_store *store, const struct due *due, const struct sl_store_scope *scope,
		    struct sl_err *err)
{
	struct sl_cron seen = due->seen;
	bool fired = true;
	for (int i = 0; i < SL__CRON_CATCH_UP && fired && seen.next_ms <= s->now_ms; i++) {
		struct sl_started started;
		int64_t next;
		if (sl__cron_after(&due->spec, seen.catch_up ? seen.next_ms : s->now_ms, &next) != 0)
			next = SL__JOB_TIME_MAX_MS; /* the calendar ends here */
		int rc = store->ops->cron_fire(store->ctx, &seen, next, &fired, &started, scope, err);
		if (rc != 0)
			return sl_err_wrap(err, rc, "schedule %s", seen.name);
		s->turn->fired += fired ? 1 : 0;
		seen.next_ms = next;
	}
	if (!fired && sl__cron_after(&due->spec, s->now_ms, &seen.next_ms) != 0)
		return 0;
	sooner(s->turn, seen.next_ms);
	return 0;
}

/* A schedule that fails does not stop the others, a store that is unavailable does. The first error is returned. */
static int fire_all(struct survey *s, const sl_store *store, const struct sl_store_scope *scope, struct sl_err *err)
{
	int rc = 0;
	for (const struct due *due = s->first; due != NULL; due = due->next) {
		int one = rc;
		if (rc != SL_EUNAVAIL)
			one = fire_due(s, store, due, scope, rc == 0 ? err : NULL);
		if (one != 0)
			sooner(s->turn, due->seen.next_ms);
		if (rc == 0)
			rc = one;
	}
	return rc;
}

int sl__cron_turn(const struct sl_env *env, const sl_store *store, int64_t now_ms, const struct sl_store_scope *scope,
		  struct sl__cron_turn *out, struct sl_err *err)
{
	struct survey s = {.env = env, .now_ms = now_ms, .turn = out};
	s.last = &s.first;
	*out = (struct sl__cron_turn){.next_ms = -1};
	int rc = now_ms == 0 ? store->ops->now_ms(store->ctx, &s.now_ms, err) : 0;
	if (rc != 0)
		return rc;
	rc = store->ops->cron_list(store->ctx, collect_due, &s, err);
	if (rc == SL_ENOMEM)
		(void)sl_err_set(err, rc, "schedules: no memory");
	if (rc == 0)
		rc = fire_all(&s, store, scope, err);
	for (struct due *due = s.first, *next; due != NULL; due = next) {
		next = due->next;
		sl__free(env, due);
	}
	return rc;
}
