/* SPDX-License-Identifier: Apache-2.0 */
/* The syntax and calendar of schedules, against a matcher that walks minute by minute, and firing what is due. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "jobs/cron/cron.h"
#include "support/budget.h"
#include "support/fault.h"
#include "support/memstore.h"
#include "support/vclock.h"
#include <sluice/jobs.h>

#define MINUTE_MS INT64_C(60000)

static int64_t utc(int year, int month, int day, int hour, int minute)
{
	struct tm tm = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_hour = hour, .tm_min = minute};
	return (int64_t)timegm(&tm) * 1000;
}

static void assert_next(const char *spec, int64_t after, int64_t expected)
{
	struct sl_err err = SL_ERR_INIT;
	int64_t next = 0;
	if (sl_cron_next(spec, after, &next, &err) != 0)
		fail_msg("%s", err.msg);
	if (next != expected)
		fail_msg("%s after %" PRId64 ": %" PRId64 " instead of %" PRId64, spec, after, next, expected);
}

/* ---- the calendar ---- */

static void the_next_tick_is_after_the_time_and_not_at_it(void **state)
{
	(void)state;
	assert_next("* * * * *", utc(2026, 1, 1, 0, 0), utc(2026, 1, 1, 0, 1));
	assert_next("* * * * *", utc(2026, 1, 1, 0, 0) - 1, utc(2026, 1, 1, 0, 0));
	assert_next("30 4 * * *", utc(2026, 1, 1, 4, 30), utc(2026, 1, 2, 4, 30));
	assert_next("0 0 * * *", utc(2026, 12, 31, 23, 59), utc(2027, 1, 1, 0, 0));
	assert_next("* * * * *", -5, 0);
}

static void lists_ranges_steps_and_names_select_values(void **state)
{
	(void)state;
	int64_t from = utc(2026, 3, 2, 10, 7); /* a Monday */
	assert_next("5,10,15 * * * *", from, utc(2026, 3, 2, 10, 10));
	assert_next("*/20 * * * *", from, utc(2026, 3, 2, 10, 20));
	assert_next("8-59/25 * * * *", from, utc(2026, 3, 2, 10, 8));
	assert_next("0 9-17/4 * * *", from, utc(2026, 3, 2, 13, 0));
	assert_next("0 0 1 apr *", from, utc(2026, 4, 1, 0, 0));
	assert_next("0 0 * JAN,Jul *", from, utc(2026, 7, 1, 0, 0));
	assert_next("0 0 * * Fri-sun", from, utc(2026, 3, 6, 0, 0));
	assert_next("0 0 * * 7", from, utc(2026, 3, 8, 0, 0));
	assert_next("0 0 * * 0", from, utc(2026, 3, 8, 0, 0));
	assert_next("  0\t0  *  *   WED  ", from, utc(2026, 3, 4, 0, 0));
}

static void shortcuts_stand_for_their_fields(void **state)
{
	(void)state;
	int64_t from = utc(2026, 3, 2, 10, 7);
	assert_next("@yearly", from, utc(2027, 1, 1, 0, 0));
	assert_next("@annually", from, utc(2027, 1, 1, 0, 0));
	assert_next("@monthly", from, utc(2026, 4, 1, 0, 0));
	assert_next("@weekly", from, utc(2026, 3, 8, 0, 0));
	assert_next("@daily", from, utc(2026, 3, 3, 0, 0));
	assert_next("@midnight", from, utc(2026, 3, 3, 0, 0));
	assert_next("@hourly", from, utc(2026, 3, 2, 11, 0));
}

static void two_restricted_day_fields_need_one_match_and_a_star_needs_both(void **state)
{
	(void)state;
	int64_t from = utc(2026, 3, 2, 0, 0);                     /* a Monday */
	assert_next("0 0 13 * FRI", from, utc(2026, 3, 6, 0, 0)); /* the next Friday, before the 13th */
	assert_next("0 0 4 * FRI", from, utc(2026, 3, 4, 0, 0));  /* the 4th, before the next Friday */
	assert_next("0 0 * * FRI", from, utc(2026, 3, 6, 0, 0));
	assert_next("0 0 13 * *", from, utc(2026, 3, 13, 0, 0));
	assert_next("0 0 */15 * MON", from, utc(2026, 3, 16, 0, 0)); /* 1, 16 or 31, and a Monday */
	assert_next("0 0 1-31 * FRI", from, utc(2026, 3, 3, 0, 0));  /* every day, though no star */
}

static void leap_days_come_in_leap_years_only(void **state)
{
	(void)state;
	assert_next("0 12 29 2 *", utc(2026, 1, 1, 0, 0), utc(2028, 2, 29, 12, 0));
	assert_next("0 12 29 2 *", utc(2028, 2, 29, 12, 0), utc(2032, 2, 29, 12, 0));
	assert_next("0 0 29 2 *", utc(2096, 3, 1, 0, 0), utc(2104, 2, 29, 0, 0)); /* 2100 is none */
	assert_next("0 0 29 2 *", utc(1996, 3, 1, 0, 0), utc(2000, 2, 29, 0, 0)); /* 2000 is one */
	/* The rarest of all: 29 February on a Sunday, over 2100. */
	assert_next("0 0 29 2 */7", utc(2088, 3, 1, 0, 0), utc(2128, 2, 29, 0, 0));
}

static void a_date_that_never_comes_is_not_found(void **state)
{
	(void)state;
	static const char *const never[] = {"0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "* * 30-31 FEB *"};
	for (size_t i = 0; i < SL_COUNT(never); i++) {
		struct sl_err err = SL_ERR_INIT;
		int64_t next = 77;
		assert_int_equal(sl_cron_next(never[i], utc(2026, 1, 1, 0, 0), &next, &err), SL_ENOENT);
		assert_int_equal(next, 77);
		assert_non_null(strstr(err.msg, never[i]));
	}
	int64_t next;
	assert_int_equal(sl_cron_next("@daily", INT64_MAX, &next, NULL), SL_ENOENT);
}

static void what_is_no_schedule_is_refused_with_its_place(void **state)
{
	(void)state;
	static const char *const bad[][2] = {
		{"", "column 1: minute: missing"},
		{"* * * *", "column 8: day of week: missing"},
		{"* * * * * *", "column 11: end"},
		{"60 * * * *", "column 1: minute: out of range"},
		{"* 24 * * *", "column 3: hour: out of range"},
		{"* * 0 * *", "column 5: day of month: out of range"},
		{"* * * 13 *", "column 7: month: out of range"},
		{"* * * * 8", "column 9: day of week: out of range"},
		{"99999999999999999999 * * * *", "column 1: minute: out of range"},
		{"5-3 * * * *", "column 1: minute: the range ends"},
		{"* * * * FRI-MON", "column 9: day of week: the range ends"},
		{"*/0 * * * *", "column 3: minute: a step"},
		{"*/ * * * *", "column 3: minute: a step"},
		{"*/61 * * * *", "column 3: minute: a step"},
		{"5/10 * * * *", "column 2: minute: a step needs"},
		{"1, * * * *", "column 3: minute: expected a number"},
		{"1,,2 * * * *", "column 3: minute: expected a number"},
		{"-1 * * * *", "column 1: minute: expected a number"},
		{"1-2-3 * * * *", "column 4: minute"},
		{"MON * * * *", "column 1: minute: expected a number"},
		{"* * * MON *", "column 7: month"},
		{"* * * JANUARY *", "column 10: month"},
		{"a b c d e", "column 1"},
		{"@often", "column 1: shortcut"},
		{"@daily ", "column 1: shortcut"},
	};
	for (size_t i = 0; i < SL_COUNT(bad); i++) {
		struct sl_err err = SL_ERR_INIT;
		int64_t next;
		int rc = sl_cron_next(bad[i][0], 0, &next, &err);
		if (rc != SL_EDATA || strstr(err.msg, bad[i][1]) == NULL)
			fail_msg("\"%s\": %d %s", bad[i][0], rc, err.msg);
	}
}

/* ---- against a matcher that knows no tricks ---- */

struct set {
	bool in[64];
	bool star;
	char text[200];
};

struct random_spec {
	struct set minute, hour, day, month, weekday;
	char text[1024];
};

/* Some items: the text and, by itself, the set that it means. */
static void random_set(struct sl__prng *p, struct set *s, int low, int high)
{
	int n = (int)(sl__prng_next(p) % 3) + 1;
	size_t used = 0;
	*s = (struct set){.star = false};
	for (int i = 0; i < n; i++) {
		int a = low + (int)(sl__prng_next(p) % (uint64_t)(high - low + 1));
		int b = a + (int)(sl__prng_next(p) % (uint64_t)(high - a + 1));
		int step = 1 + (int)(sl__prng_next(p) % 12);
		step = SL_MIN(step, high);
		int kind = (int)(sl__prng_next(p) % 5);
		const char *comma = i > 0 ? "," : "";
		if (kind >= 3) {
			a = low;
			b = high;
		}
		if (kind == 0)
			b = a;
		step = kind == 0 || kind == 1 || kind == 3 ? 1 : step;
		if (i == 0)
			s->star = kind >= 3;
		for (int v = a; v <= b; v += step)
			s->in[v] = true;
		char item[32];
		if (kind == 0)
			(void)snprintf(item, sizeof(item), "%d", a);
		else if (kind == 1)
			(void)snprintf(item, sizeof(item), "%d-%d", a, b);
		else if (kind == 2)
			(void)snprintf(item, sizeof(item), "%d-%d/%d", a, b, step);
		else if (kind == 3)
			(void)snprintf(item, sizeof(item), "*");
		else
			(void)snprintf(item, sizeof(item), "*/%d", step);
		used += (size_t)snprintf(s->text + used, sizeof(s->text) - used, "%s%s", comma, item);
	}
}

static void random_spec(struct sl__prng *p, struct random_spec *r)
{
	random_set(p, &r->minute, 0, 59);
	random_set(p, &r->hour, 0, 23);
	random_set(p, &r->day, 1, 31);
	random_set(p, &r->month, 1, 12);
	random_set(p, &r->weekday, 0, 7);
	r->weekday.in[0] |= r->weekday.in[7];
	(void)snprintf(r->text, sizeof(r->text), "%s %s %s %s %s", r->minute.text, r->hour.text, r->day.text,
		       r->month.text, r->weekday.text);
}

static bool matches(const struct random_spec *r, const struct tm *tm)
{
	bool day = r->day.in[tm->tm_mday], weekday = r->weekday.in[tm->tm_wday];
	bool either = !r->day.star && !r->weekday.star;
	return r->minute.in[tm->tm_min] && r->hour.in[tm->tm_hour] && r->month.in[tm->tm_mon + 1] &&
	       (either ? day || weekday : day && weekday);
}

/* Every minute after `after` in turn; -1: none within the years. libc's calendar, asked once an hour. */
static int64_t walk(const struct random_spec *r, int64_t after, int years, uint64_t *minutes)
{
	int64_t at = (after / MINUTE_MS + 1) * MINUTE_MS, end = at + years * (int64_t)366 * 86400000;
	struct tm tm = {.tm_min = 60};
	for (; at < end; at += MINUTE_MS, tm.tm_min++) {
		if (tm.tm_min == 60) {
			time_t seconds = (time_t)(at / 1000);
			assert_non_null(gmtime_r(&seconds, &tm));
		}
		(*minutes)++;
		if (matches(r, &tm))
			return at;
	}
	return -1;
}

static void a_walk_over_every_minute_finds_the_same_ticks(void **state)
{
	(void)state;
	const char *given = getenv("SLUICE_TEST_SEED");
	uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : 1, n = 0, ticks = 0, minutes = 0;
	int64_t until = sl__clock_real.mono_ns(NULL) + (int64_t)(test_seconds(2) * 1e9);
	do {
		struct sl__prng prng = {seed + n};
		struct random_spec r;
		random_spec(&prng, &r);
		int64_t at = (int64_t)(sl__prng_next(&prng) % (uint64_t)utc(2110, 1, 1, 0, 0));
		for (int i = 0; i < 5; i++, ticks++) {
			int64_t expected = walk(&r, at, 5, &minutes), next = -1;
			int rc = sl_cron_next(r.text, at, &next, NULL);
			bool same = expected >= 0
					    ? rc == 0 && next == expected
					    : rc == SL_ENOENT || (rc == 0 && next >= at + 5 * (int64_t)366 * 86400000);
			if (!same)
				fail_msg("seed %" PRIu64 ": \"%s\" after %" PRId64 ": %" PRId64 " instead of %" PRId64,
					 seed + n, r.text, at, next, expected);
			if (expected < 0)
				break;
			at = expected;
		}
		n++;
	} while (sl__clock_real.mono_ns(NULL) < until);
	printf("# %" PRIu64 " schedules, %" PRIu64 " ticks, %" PRIu64 " minutes walked\n", n, ticks, minutes);
}

/* ---- firing ---- */

struct world {
	struct vclock clock;
	struct sl_env env;
	struct memstore *ms;
	sl_store store;
	sl_jobs *client;
	int cut; /* calls of cron_fire that fail from now on */
};

static enum memstore_fault cut_fire(const char *op, void *ctx)
{
	struct world *w = ctx;
	if (strcmp(op, "cron_fire") != 0 || w->cut == 0)
		return MEMSTORE_OK;
	w->cut--;
	return MEMSTORE_FAIL_BEFORE;
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	vclock_init(&w->clock);
	w->clock.real_offset_ms = utc(2026, 3, 2, 10, 7) - 1000;
	struct sl_env env = {SL_ENV_INIT, .clock = &vclock_table, .clock_ctx = &w->clock};
	assert_int_equal(sl__env_init(&w->env, &env, NULL), 0);
	w->ms = memstore_new(&env);
	memstore_set_faults(w->ms, cut_fire, w);
	w->store = memstore_handle(w->ms);
	struct sl_jobs_opts opts = {SL_JOBS_OPTS_INIT, .env = &env, .store = &w->store};
	assert_int_equal(sl_jobs_open(&w->client, &opts, NULL), 0);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;
	sl_jobs_close(w->client);
	memstore_free(w->ms);
	vclock_fini(&w->clock);
	free(w);
	return 0;
}

static void put(struct world *w, const char *name, const char *spec, int catch_up)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_cron cron = {
		SL_CRON_INIT, .name = name, .spec = spec, .type = "report", .input = "[1]", .catch_up = catch_up,
	};
	if (sl_jobs_cron_put(w->client, &cron, &err) != 0)
		fail_msg("%s", err.msg);
}

static struct sl__cron_turn turn(struct world *w)
{
	struct sl__cron_turn out;
	struct sl_err err = SL_ERR_INIT;
	if (sl__cron_turn(&w->env, &w->store, 0, NULL, &out, &err) != 0)
		fail_msg("%s", err.msg);
	return out;
}

static int count_job(const struct sl_job *job, void *ctx)
{
	assert_string_equal(job->type, "report");
	assert_string_equal(job->input, "[1]");
	(*(int *)ctx)++;
	return 0;
}

static int jobs_made(struct world *w)
{
	int n = 0;
	struct sl_job_filter all = {SL_JOB_FILTER_INIT, .limit = 10000};
	assert_int_equal(sl_jobs_list(w->client, &all, count_job, &n, NULL), 0);
	return n;
}

static void nothing_is_fired_before_its_time_and_the_turn_says_when(void **state)
{
	struct world *w = *state;
	assert_int_equal(turn(w).next_ms, -1);
	put(w, "hourly", "@hourly", 0);
	put(w, "soon", "10 * * * *", 0);
	struct sl__cron_turn t = turn(w);
	assert_int_equal(t.fired, 0);
	assert_int_equal(t.next_ms, utc(2026, 3, 2, 10, 10));
	assert_int_equal(jobs_made(w), 0);
}

static void a_due_tick_is_enqueued_once_however_often_one_looks(void **state)
{
	struct world *w = *state;
	put(w, "soon", "10 * * * *", 0);
	vclock_advance_ms(&w->clock, 3 * MINUTE_MS);
	struct sl__cron_turn t = turn(w);
	assert_int_equal(t.fired, 1);
	assert_int_equal(t.next_ms, utc(2026, 3, 2, 11, 10));
	assert_int_equal(turn(w).fired, 0);
	assert_int_equal(jobs_made(w), 1);
}

static void ticks_missed_in_a_pause_are_enqueued_as_one(void **state)
{
	struct world *w = *state;
	put(w, "minutely", "* * * * *", 0);
	vclock_advance_ms(&w->clock, 100 * MINUTE_MS);
	struct sl__cron_turn t = turn(w);
	assert_int_equal(t.fired, 1);
	assert_int_equal(t.next_ms, utc(2026, 3, 2, 11, 48));
	assert_int_equal(jobs_made(w), 1);
}

static void with_catch_up_each_missed_tick_is_enqueued_a_thousand_a_turn(void **state)
{
	struct world *w = *state;
	put(w, "minutely", "* * * * *", 1);
	vclock_advance_ms(&w->clock, 1500 * MINUTE_MS);
	struct sl__cron_turn t = turn(w);
	assert_int_equal(t.fired, 1000);
	assert_int_equal(t.next_ms, utc(2026, 3, 2, 10, 8) + 1000 * MINUTE_MS); /* in the past: come back at once */
	t = turn(w);
	assert_int_equal(t.fired, 500);
	assert_int_equal(t.next_ms, utc(2026, 3, 2, 10, 8) + 1500 * MINUTE_MS);
	assert_int_equal(jobs_made(w), 1500);
}

/* A store on which another process is always a little quicker. */
static struct memstore *rival_of;
static int beaten_fire(void *store, const struct sl_cron *seen, int64_t next_ms, bool *fired, struct sl_started *out,
		       const struct sl_store_scope *scope, struct sl_err *err)
{
	sl_store real = memstore_handle(rival_of);
	bool first;
	assert_int_equal(real.ops->cron_fire(store, seen, next_ms, &first, out, scope, err), 0);
	assert_int_equal(first, 1);
	return real.ops->cron_fire(store, seen, next_ms, fired, out, scope, err);
}

static void a_paused_schedule_enqueues_nothing_and_goes_on_with_the_next_tick(void **state)
{
	struct world *w = *state;
	struct sl_cron cron = {SL_CRON_INIT,     .name = "c",      .spec = "* * * * *",
			       .type = "report", .catch_up = true, .paused = true};
	struct sl_err err = SL_ERR_INIT;
	if (sl_jobs_cron_put(w->client, &cron, &err) != 0)
		fail_msg("%s", err.msg);
	vclock_advance_ms(&w->clock, 10 * MINUTE_MS);
	struct sl__cron_turn t = turn(w);
	assert_int_equal(t.fired, 0);
	assert_int_equal(t.next_ms, -1);
	put(w, "c", "* * * * *", true);
	assert_int_equal(turn(w).fired, 0); /* what it has missed stays missed */
	vclock_advance_ms(&w->clock, MINUTE_MS);
	assert_int_equal(turn(w).fired, 1);
}

static void a_tick_that_another_process_was_quicker_with_is_left_to_it(void **state)
{
	struct world *w = *state;
	put(w, "minutely", "* * * * *", 1);
	vclock_advance_ms(&w->clock, 3 * MINUTE_MS);
	struct sl_store_ops ops = *w->store.ops;
	ops.cron_fire = beaten_fire;
	rival_of = w->ms;
	sl_store beaten = {.ops = &ops, .ctx = w->store.ctx};
	struct sl__cron_turn t;
	assert_int_equal(sl__cron_turn(&w->env, &beaten, 0, NULL, &t, NULL), 0);
	assert_int_equal(t.fired, 0);
	assert_int_equal(t.next_ms, utc(2026, 3, 2, 10, 11));
	assert_int_equal(jobs_made(w), 1);
}

static void an_unavailable_store_leaves_the_tick_due(void **state)
{
	struct world *w = *state;
	put(w, "a", "* * * * *", 0);
	put(w, "b", "* * * * *", 0);
	vclock_advance_ms(&w->clock, MINUTE_MS);
	w->cut = 1;
	struct sl__cron_turn t;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl__cron_turn(&w->env, &w->store, 0, NULL, &t, &err), SL_EUNAVAIL);
	assert_non_null(strstr(err.msg, "schedule a"));
	assert_int_equal(t.fired, 0);
	assert_int_equal(t.next_ms, utc(2026, 3, 2, 10, 8));
	assert_int_equal(turn(w).fired, 2);
}

static void a_schedule_that_cannot_be_read_does_not_stop_the_others(void **state)
{
	struct world *w = *state;
	struct sl_cron odd = {
		SL_CRON_INIT, .name = "odd", .spec = "every day", .type = "report", .input = "[1]", .next_ms = 1,
	};
	assert_int_equal(w->store.ops->cron_put(w->store.ctx, &odd, NULL, NULL), 0);
	put(w, "good", "* * * * *", 0);
	vclock_advance_ms(&w->clock, MINUTE_MS);
	struct sl__cron_turn t = turn(w);
	assert_int_equal(t.broken, 1);
	assert_int_equal(t.fired, 1);
}

static void a_turn_without_memory_fires_nothing_and_leaks_nothing(void **state)
{
	struct world *w = *state;
	struct fault f;
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, &w->env);
	put(w, "a", "* * * * *", 0);
	put(w, "b", "* * * * *", 0);
	vclock_advance_ms(&w->clock, MINUTE_MS);
	struct sl__cron_turn t;
	int64_t n = 1;
	for (;; n++) {
		fault_arm_mem(&f, n, FAULT_ONCE);
		int rc = sl__cron_turn(&env, &w->store, 0, NULL, &t, NULL);
		fault_disarm(&f);
		assert_int_equal(fault_live_allocs(&f), 0);
		if (fault_mem_failed(&f) == 0) {
			assert_int_equal(rc, 0);
			break;
		}
		assert_int_equal(rc, SL_ENOMEM);
		assert_int_equal(t.fired, 0);
	}
	assert_int_equal(n, 3);
	assert_int_equal(t.fired, 2);
	fault_fini(&f);
}

static void a_schedule_is_checked_when_it_is_put(void **state)
{
	struct world *w = *state;
	static const struct {
		struct sl_cron cron;
		int code;
		const char *text;
	} cases[] = {
		{{SL_CRON_INIT, .spec = "@daily", .type = "t"}, SL_EINVAL, "name is missing"},
		{{SL_CRON_INIT, .name = "n", .type = "t"}, SL_EINVAL, "spec is missing"},
		{{SL_CRON_INIT, .name = "n", .spec = "@daily"}, SL_EINVAL, "type is missing"},
		{{SL_CRON_INIT, .name = "n", .spec = "x", .type = "t"}, SL_EDATA, "column 1"},
		{{SL_CRON_INIT, .name = "n", .spec = "0 0 30 2 *", .type = "t"}, SL_ENOENT, "no such date"},
		{{SL_CRON_INIT, .name = "n", .spec = "@daily", .type = "t", .input = "{"}, SL_EDATA, "input: line 1"},
	};
	for (size_t i = 0; i < SL_COUNT(cases); i++) {
		struct sl_err err = SL_ERR_INIT;
		int rc = sl_jobs_cron_put(w->client, &cases[i].cron, &err);
		if (rc != cases[i].code || strstr(err.msg, cases[i].text) == NULL)
			fail_msg("case %zu: %d %s", i, rc, err.msg);
	}
	assert_int_equal(turn(w).next_ms, -1);
	assert_int_equal(sl_jobs_cron_remove(w->client, "n", NULL), SL_ENOENT);
}

#define IN_WORLD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_next_tick_is_after_the_time_and_not_at_it),
		cmocka_unit_test(lists_ranges_steps_and_names_select_values),
		cmocka_unit_test(shortcuts_stand_for_their_fields),
		cmocka_unit_test(two_restricted_day_fields_need_one_match_and_a_star_needs_both),
		cmocka_unit_test(leap_days_come_in_leap_years_only),
		cmocka_unit_test(a_date_that_never_comes_is_not_found),
		cmocka_unit_test(what_is_no_schedule_is_refused_with_its_place),
		cmocka_unit_test(a_walk_over_every_minute_finds_the_same_ticks),
		IN_WORLD(nothing_is_fired_before_its_time_and_the_turn_says_when),
		IN_WORLD(a_due_tick_is_enqueued_once_however_often_one_looks),
		IN_WORLD(ticks_missed_in_a_pause_are_enqueued_as_one),
		IN_WORLD(a_paused_schedule_enqueues_nothing_and_goes_on_with_the_next_tick),
		IN_WORLD(with_catch_up_each_missed_tick_is_enqueued_a_thousand_a_turn),
		IN_WORLD(a_tick_that_another_process_was_quicker_with_is_left_to_it),
		IN_WORLD(an_unavailable_store_leaves_the_tick_due),
		IN_WORLD(a_schedule_that_cannot_be_read_does_not_stop_the_others),
		IN_WORLD(a_turn_without_memory_fires_nothing_and_leaks_nothing),
		IN_WORLD(a_schedule_is_checked_when_it_is_put),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
