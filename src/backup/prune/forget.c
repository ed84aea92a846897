/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forget removes snapshots and nothing else: prune frees what only they needed. All decisions are made and reported
 * before the first snapshot is removed.
 *
 * A rule visits the snapshots of a group, newest first, and keeps the first of each hour, day, … until it has kept as
 * many as its option says. All times are UTC, so that a machine's time zone never decides what is removed; weeks begin
 * on Monday (ISO 8601).
 */
#include "backup/prune/forget.h"
#include "backup/helpers.h"
#include "backup/repo/twins.h"
#include "base/compare.h"
#include "base/time.h"

#include <stdio.h>
#include <stdlib.h>

#define HOUR_MS INT64_C(3600000)
#define DAY_MS INT64_C(86400000)

struct forgetting {
	struct sl_backup *b;
	struct sl_backup_forget_opts opts;
	struct bk_forget_item *items;
	size_t n;
};

/* ---- rules ---- */

enum period { SNAPSHOT, HOUR, DAY, WEEK, MONTH, YEAR };

/* The number of the period that contains a time; of SNAPSHOT each snapshot is its own. */
static int64_t period_of(enum period period, int64_t ms)
{
	struct tm tm = sl__utc(sl__floor_div(ms, 1000));
	switch (period) {
	case SNAPSHOT:
		return 0;
	case HOUR:
		return sl__floor_div(ms, HOUR_MS);
	case DAY:
		return sl__floor_div(ms, DAY_MS);
	case WEEK: /* day 0, 1970-01-01, was a Thursday */
		return sl__floor_div(sl__floor_div(ms, DAY_MS) + 3, 7);
	case MONTH:
		return (int64_t)tm.tm_year * 12 + tm.tm_mon;
	case YEAR:
		return tm.tm_year;
	}
	return 0;
}

static void keep_item(struct bk_forget_item *item, const char *rule)
{
	size_t len = strlen(item->rules);
	(void)snprintf(item->rules + len, sizeof(item->rules) - len, "%s%s", len > 0 ? ", " : "", rule);
	item->keeps = true;
}

static bool has_text(const char *const *texts, size_t n, const char *text)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(texts[i], text) == 0)
			return true;
	return false;
}

static void decide_group(struct bk_forget_item *items, size_t n, const struct sl_backup_forget_opts *o)
{
	struct {
		const char *name;
		enum period period;
		int32_t left;
		bool began;
		int64_t last; /* period that was kept */
	} rules[] = {
		{.name = "last", .period = SNAPSHOT, .left = o->keep_last},
		{.name = "hourly", .period = HOUR, .left = o->keep_hourly},
		{.name = "daily", .period = DAY, .left = o->keep_daily},
		{.name = "weekly", .period = WEEK, .left = o->keep_weekly},
		{.name = "monthly", .period = MONTH, .left = o->keep_monthly},
		{.name = "yearly", .period = YEAR, .left = o->keep_yearly},
	};
	bool any = false;
	for (size_t i = 0; i < n; i++) {
		const struct sl_backup_snapshot *s = &items[i].snapshot.info;
		for (size_t r = 0; r < SL_COUNT(rules); r++) {
			int64_t period = period_of(rules[r].period, s->time_ms);
			if (rules[r].left <= 0 ||
			    (rules[r].period != SNAPSHOT && rules[r].began && period == rules[r].last))
				continue;
			keep_item(&items[i], rules[r].name);
			rules[r].began = true;
			rules[r].last = period;
			rules[r].left--;
		}
		for (size_t k = 0; k < o->n_keep_tags; k++) {
			if (!has_text(s->tags, s->n_tags, o->keep_tags[k]))
				continue;
			keep_item(&items[i], "tag");
			break;
		}
		any = any || items[i].keeps;
	}
	/* No rule removes the last copy of something; to remove it, name the snapshot. */
	if (!any)
		keep_item(&items[0], "newest");
}

/* ---- groups ---- */

static int compare_groups(const struct bk_forget_item *a, const struct bk_forget_item *b)
{
	int order = strcmp(a->snapshot.info.host, b->snapshot.info.host);
	for (size_t i = 0; order == 0 && i < a->n_paths && i < b->n_paths; i++)
		order = strcmp(a->paths[i], b->paths[i]);
	if (order == 0)
		order = (a->n_paths > b->n_paths) - (a->n_paths < b->n_paths);
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

/* ---- options and snapshots ---- */

static int set_forget_opts(struct sl_backup_forget_opts *o, const struct sl_backup_forget_opts *in, struct sl_err *err)
{
	sl__opts_copy(o, sizeof(*o), in);
	const struct {
		const char *name;
		int32_t value;
	} rules[] = {
		{"keep_last", o->keep_last},     {"keep_hourly", o->keep_hourly},   {"keep_daily", o->keep_daily},
		{"keep_weekly", o->keep_weekly}, {"keep_monthly", o->keep_monthly}, {"keep_yearly", o->keep_yearly},
	};
	bool any = o->n_keep_tags > 0 || o->n_snapshots > 0;
	for (size_t i = 0; i < SL_COUNT(rules); i++) {
		if (rules[i].value < 0)
			return sl_err_set(err, SL_EINVAL, "forget: %s is %d; give 0 or more", rules[i].name,
					  (int)rules[i].value);
		any = any || rules[i].value > 0;
	}
	return any ? 0 : sl_err_set(err, SL_EINVAL, "forget: give a rule for what to keep, or the snapshots to forget");
}

static void item_fini(const struct sl_env *env, struct bk_forget_item *item)
{
	sl__free(env, item->paths);
	sl__bk_snapshot_fini(env, &item->snapshot);
}

/* ---- which snapshots ---- */

static int add_item(struct forgetting *f, const char *id, struct sl_err *err)
{
	struct bk_forget_item *item = &f->items[f->n];
	memcpy(item->id, id, BK_NAME_HEX);
	int rc = sl__bk_snapshot_load(f->b, id, &item->snapshot, err);
	if (rc == SL_ENOENT) /* another process has forgotten it since */
		return 0;
	if (rc != 0)
		return rc;
	const struct sl_backup_forget_opts *o = &f->opts;
	const struct sl_backup_snapshot *s = &item->snapshot.info;
	bool selected = (o->host == NULL || strcmp(o->host, s->host) == 0) &&
			(o->tag == NULL || has_text(s->tags, s->n_tags, o->tag)) &&
			(o->path == NULL || has_text(s->paths, s->n_paths, o->path));
	if (o->n_snapshots == 0 && !selected) {
		item_fini(&f->b->env, item);
		*item = (struct bk_forget_item){.keeps = false};
		return 0;
	}
	f->n++;
	/* Its paths, sorted: equal sets of paths make a group. */
	item->paths = sl__calloc(&f->b->env, s->n_paths + 1, sizeof(*item->paths));
	if (item->paths == NULL)
		return sl__no_memory(err, "forget");
	if (s->n_paths > 0)
		memcpy(item->paths, s->paths, s->n_paths * sizeof(*item->paths));
	qsort(item->paths, s->n_paths, sizeof(*item->paths), sl__compare_texts);
	for (size_t i = 0; i < s->n_paths; i++)
		if (item->n_paths == 0 || strcmp(item->paths[item->n_paths - 1], item->paths[i]) != 0)
			item->paths[item->n_paths++] = item->paths[i];
	return 0;
}

/* A snapshot that is named is removed even if it cannot be read: only its name is used. */
static int select_by_name(struct forgetting *f, struct sl_err *err)
{
	f->items = sl__calloc(&f->b->env, f->opts.n_snapshots + 1, sizeof(*f->items));
	if (f->items == NULL)
		return sl__no_memory(err, "forget");
	for (size_t i = 0; i < f->opts.n_snapshots; i++) {
		char id[SL_BACKUP_ID_BYTES];
		struct sl_err why = SL_ERR_INIT;
		bool known = false;
		int rc = sl__bk_resolve(f->b, f->opts.snapshots[i], id, err);
		if (rc != 0)
			return rc;
		for (size_t k = 0; k < f->n && !known; k++)
			known = strcmp(f->items[k].id, id) == 0;
		if (known)
			continue;
		rc = add_item(f, id, &why);
		if (rc == SL_ECORRUPT || rc == SL_EUNSUPPORTED) {
			struct sl_backup_snapshot *info = &f->items[f->n++].snapshot.info;
			*info = (struct sl_backup_snapshot){
				.struct_size = sizeof(*info), .host = "", .parent = "", .version = ""};
		} else if (rc != 0) {
			return sl__bk_result(rc, &why, err);
		}
	}
	return 0;
}

static int select_by_rules(struct forgetting *f, struct sl_err *err)
{
	const struct sl_env *env = &f->b->env;
	char(*ids)[BK_NAME_HEX] = NULL;
	size_t n = 0;
	int rc = sl__bk_snapshot_ids(f->b, &ids, &n, err);
	if (rc != 0)
		return rc;
	f->items = sl__calloc(env, n + 1, sizeof(*f->items));
	if (f->items == NULL)
		rc = sl__no_memory(err, "forget");
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = add_item(f, ids[i], err);
	sl__free(env, ids);
	if (rc != 0)
		return rc;
	qsort(f->items, f->n, sizeof(*f->items), sl__bk_forget_compare);
	sl__bk_forget_decide(f->items, f->n, &f->opts);
	return 0;
}

/* ---- report and remove ---- */

static int remove_snapshot(struct sl_backup *b, const char *id, struct sl_err *err)
{
	char name[SL_DRIVER_NAME_BYTES] = "snapshots/";
	memcpy(name + strlen(name), id, BK_NAME_HEX);
	/* The copy first: alone it would count as the snapshot. And again afterwards, because another process may have
	 * put it back from the first object (T2). */
	int rc = sl__bk_snapshot_remove_copy(b, id, err);
	if (rc == 0)
		rc = sl__bk_remove(b, name, err);
	if (rc == 0)
		rc = sl__bk_snapshot_remove_copy(b, id, err);
	return rc;
}

static void fini_forgetting(struct forgetting *f)
{
	for (size_t i = 0; i < f->n; i++)
		item_fini(&f->b->env, &f->items[i]);
	sl__free(&f->b->env, f->items);
}

int sl_backup_forget(sl_backup *b, const struct sl_backup_forget_opts *opts, uint64_t *removed, struct sl_err *err)
{
	struct forgetting f SL_CLEANUP(fini_forgetting) = {.b = b};
	if (removed != NULL)
		*removed = 0;
	int rc = sl__bk_begin(b, "forget", err);
	if (rc == 0)
		rc = set_forget_opts(&f.opts, opts, err);
	if (rc != 0)
		return rc;
	rc = f.opts.n_snapshots > 0 ? select_by_name(&f, err) : select_by_rules(&f, err);
	for (size_t i = 0; i < f.n && rc == 0 && f.opts.on_decision != NULL; i++) {
		struct sl_backup_snapshot info = f.items[i].snapshot.info;
		info.id = f.items[i].id;
		rc = f.opts.on_decision(&info, f.items[i].keeps, f.items[i].rules, f.opts.ctx);
		if (rc != 0)
			return sl_err_set(err, rc, "forget: ended by the caller; nothing was removed");
	}
	for (size_t i = 0; i < f.n && rc == 0; i++) {
		if (f.items[i].keeps)
			continue;
		rc = sl__bk_check_stop(b, err);
		if (rc == 0 && f.opts.dry_run != SL_ON)
			rc = remove_snapshot(b, f.items[i].id, err);
		if (rc == 0 && removed != NULL)
			++*removed;
	}
	return rc;
}
