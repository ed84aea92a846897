/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rule looks at a group from its newest snapshot on and keeps the first of each hour, day, … until it has kept as
 * many as it is told. All in UTC, so that a machine's zone never decides what is removed; weeks begin on Monday (ISO
 * 8601).
 */
#include <stdio.h>
#include <time.h>

#include "backup/prune/forget.h"

#define HOUR_MS INT64_C(3600000)
#define DAY_MS INT64_C(86400000)

static int64_t floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}

static int64_t day_of(int64_t ms)
{
	return floor_div(ms, DAY_MS);
}

static struct tm civil(int64_t ms)
{
	time_t seconds = (time_t)floor_div(ms, 1000);
	struct tm tm;
	memset(&tm, 0, sizeof(tm));
	(void)gmtime_r(&seconds, &tm);
	return tm;
}

static int64_t each_hour(int64_t ms)
{
	return floor_div(ms, HOUR_MS);
}

/* Day 0, 1970-01-01, was a Thursday. */
static int64_t each_week(int64_t ms)
{
	return floor_div(day_of(ms) + 3, 7);
}

static int64_t each_month(int64_t ms)
{
	struct tm tm = civil(ms);
	return (int64_t)tm.tm_year * 12 + tm.tm_mon;
}

static int64_t each_year(int64_t ms)
{
	return civil(ms).tm_year;
}

struct rule {
	const char *name;
	int64_t (*period)(int64_t ms); /* NULL: each snapshot is one of its own */
	int32_t left;
	bool began;
	int64_t last; /* period that was kept */
};

static void keep(struct bk_forget_item *item, const char *rule)
{
	size_t len = strlen(item->rules);
	(void)snprintf(item->rules + len, sizeof(item->rules) - len, "%s%s", len > 0 ? ", " : "", rule);
	item->keeps = true;
}

static void apply(struct rule *r, struct bk_forget_item *item)
{
	if (r->left <= 0)
		return;
	int64_t period = r->period != NULL ? r->period(item->snapshot.info.time_ms) : 0;
	if (r->period != NULL && r->began && period == r->last)
		return;
	keep(item, r->name);
	r->began = true;
	r->last = period;
	r->left--;
}

static bool has_tag(const struct sl_backup_snapshot *s, const struct sl_backup_forget_opts *o)
{
	for (size_t i = 0; i < s->tags_n; i++)
		for (size_t k = 0; k < o->keep_tags_n; k++)
			if (strcmp(s->tags[i], o->keep_tags[k]) == 0)
				return true;
	return false;
}

static void decide_group(struct bk_forget_item *items, size_t n, const struct sl_backup_forget_opts *o)
{
	struct rule rules[] = {
		{.name = "last", .left = o->keep_last},
		{.name = "hourly", .period = each_hour, .left = o->keep_hourly},
		{.name = "daily", .period = day_of, .left = o->keep_daily},
		{.name = "weekly", .period = each_week, .left = o->keep_weekly},
		{.name = "monthly", .period = each_month, .left = o->keep_monthly},
		{.name = "yearly", .period = each_year, .left = o->keep_yearly},
	};
	bool any = false;
	for (size_t i = 0; i < n; i++) {
		for (size_t r = 0; r < SL_COUNT(rules); r++)
			apply(&rules[r], &items[i]);
		if (has_tag(&items[i].snapshot.info, o))
			keep(&items[i], "tag");
		any = any || items[i].keeps;
	}
	/* No rule takes the last copy of something away; who means it names the snapshot. */
	if (!any)
		keep(&items[0], "newest");
}

/* ---- groups ---- */

static int compare_groups(const struct bk_forget_item *a, const struct bk_forget_item *b)
{
	int order = strcmp(a->snapshot.info.host, b->snapshot.info.host);
	for (size_t i = 0; order == 0 && i < a->paths_n && i < b->paths_n; i++)
		order = strcmp(a->paths[i], b->paths[i]);
	if (order == 0)
		order = (a->paths_n > b->paths_n) - (a->paths_n < b->paths_n);
	return order;
}

int sl__bk_forget_compare(const void *a, const void *b)
{
	const struct bk_forget_item *x = a, *y = b;
	int order = compare_groups(x, y);
	if (order == 0)
		order = (x->snapshot.info.time_ms < y->snapshot.info.time_ms) -
			(x->snapshot.info.time_ms > y->snapshot.info.time_ms);
	return order != 0 ? order : strcmp(x->id, y->id);
}

void sl__bk_forget_decide(struct bk_forget_item *items, size_t n, const struct sl_backup_forget_opts *opts)
{
	for (size_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && compare_groups(&items[i], &items[end]) == 0;)
			end++;
		decide_group(items + i, end - i, opts);
	}
}
