/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forget removes snapshots, and nothing else: what only they needed is prune's. All decisions are made and told before
 * the first one is removed.
 */
#include "backup/prune/forget.h"
#include "backup/repo/twins.h"

#include <stdlib.h>

struct forgetting {
	struct sl_backup *b;
	struct sl_backup_forget_opts opts;
	struct bk_forget_item *items;
	size_t n;
};

static int check_opts(struct sl_backup_forget_opts *o, const struct sl_backup_forget_opts *in, struct sl_err *err)
{
	sl__opts_copy(o, sizeof(*o), in);
	const struct {
		const char *name;
		int32_t value;
	} rules[] = {
		{"keep_last", o->keep_last},     {"keep_hourly", o->keep_hourly},   {"keep_daily", o->keep_daily},
		{"keep_weekly", o->keep_weekly}, {"keep_monthly", o->keep_monthly}, {"keep_yearly", o->keep_yearly},
	};
	bool any = o->keep_tags_n > 0 || o->snapshots_n > 0;
	for (size_t i = 0; i < SL_COUNT(rules); i++) {
		if (rules[i].value < 0)
			return sl_err_set(err, SL_EINVAL, "forget: %s is %d: want 0 or more", rules[i].name,
					  (int)rules[i].value);
		any = any || rules[i].value > 0;
	}
	return any ? 0 : sl_err_set(err, SL_EINVAL, "forget: give a rule of what to keep, or the snapshots to forget");
}

static int compare_texts(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int sort_paths(const struct sl_env *env, struct bk_forget_item *item)
{
	const struct sl_backup_snapshot *s = &item->snapshot.info;
	item->paths = sl__calloc(env, s->paths_n + 1, sizeof(*item->paths));
	if (item->paths == NULL)
		return SL_ENOMEM;
	if (s->paths_n > 0)
		memcpy(item->paths, s->paths, s->paths_n * sizeof(*item->paths));
	qsort(item->paths, s->paths_n, sizeof(*item->paths), compare_texts);
	for (size_t i = 0; i < s->paths_n; i++)
		if (item->paths_n == 0 || strcmp(item->paths[item->paths_n - 1], item->paths[i]) != 0)
			item->paths[item->paths_n++] = item->paths[i];
	return 0;
}

static void item_fini(const struct sl_env *env, struct bk_forget_item *item)
{
	sl__free(env, item->paths);
	sl__bk_snapshot_fini(env, &item->snapshot);
}

static void forgetting_fini(struct forgetting *f)
{
	for (size_t i = 0; i < f->n; i++)
		item_fini(&f->b->env, &f->items[i]);
	sl__free(&f->b->env, f->items);
}

/* ---- which are looked at ---- */

static bool has_text(const char *const *texts, size_t n, const char *text)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(texts[i], text) == 0)
			return true;
	return false;
}

static bool is_looked_at(const struct sl_backup_forget_opts *o, const struct sl_backup_snapshot *s)
{
	return (o->host == NULL || strcmp(o->host, s->host) == 0) &&
	       (o->tag == NULL || has_text(s->tags, s->tags_n, o->tag)) &&
	       (o->path == NULL || has_text(s->paths, s->paths_n, o->path));
}

static int add_item(struct forgetting *f, const char *id, struct sl_err *err)
{
	struct bk_forget_item *item = &f->items[f->n];
	memcpy(item->id, id, BK_NAME_HEX);
	int rc = sl__bk_snapshot_load(f->b, id, &item->snapshot, err);
	if (rc == SL_ENOENT) /* somebody else has forgotten it meanwhile */
		return 0;
	if (rc != 0)
		return rc;
	if (f->opts.snapshots_n == 0 && !is_looked_at(&f->opts, &item->snapshot.info)) {
		item_fini(&f->b->env, item);
		*item = (struct bk_forget_item){.keeps = false};
		return 0;
	}
	f->n++;
	return sort_paths(&f->b->env, item) == 0 ? 0 : sl__no_memory(err, "forget");
}

static int by_rules(struct forgetting *f, struct sl_err *err)
{
	char(*ids)[BK_NAME_HEX] = NULL;
	size_t n = 0;
	int rc = sl__bk_snapshot_ids(f->b, &ids, &n, err);
	if (rc == 0) {
		f->items = sl__calloc(&f->b->env, n + 1, sizeof(*f->items));
		rc = f->items != NULL ? 0 : sl__no_memory(err, "forget");
	}
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = add_item(f, ids[i], err);
	sl__free(&f->b->env, ids);
	if (rc != 0)
		return rc;
	qsort(f->items, f->n, sizeof(*f->items), sl__bk_forget_compare);
	sl__bk_forget_decide(f->items, f->n, &f->opts);
	return 0;
}

/* One that is named is removed also when it cannot be read: nothing of it is looked at but the name. */
static int add_named(struct forgetting *f, const char *name, struct sl_err *err)
{
	char id[SL_BACKUP_ID_BYTES];
	struct sl_err why = SL_ERR_INIT;
	int rc = sl__bk_resolve(f->b, name, id, err);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < f->n; i++)
		if (strcmp(f->items[i].id, id) == 0)
			return 0;
	rc = add_item(f, id, &why);
	if (rc == SL_ECORRUPT || rc == SL_EUNSUPPORTED) {
		struct bk_forget_item *item = &f->items[f->n++];
		item->snapshot.info = (struct sl_backup_snapshot){
			.struct_size = sizeof(item->snapshot.info), .host = "", .parent = "", .version = ""};
		rc = 0;
	}
	if (rc != 0 && err != NULL)
		*err = why;
	return rc;
}

static int by_name(struct forgetting *f, struct sl_err *err)
{
	f->items = sl__calloc(&f->b->env, f->opts.snapshots_n + 1, sizeof(*f->items));
	int rc = f->items != NULL ? 0 : sl__no_memory(err, "forget");
	for (size_t i = 0; i < f->opts.snapshots_n && rc == 0; i++)
		rc = add_named(f, f->opts.snapshots[i], err);
	return rc;
}

/* ---- and what becomes of them ---- */

static int tell(const struct forgetting *f, struct sl_err *err)
{
	for (size_t i = 0; i < f->n && f->opts.on_decision != NULL; i++) {
		struct sl_backup_snapshot info = f->items[i].snapshot.info;
		info.id = f->items[i].id;
		int rc = f->opts.on_decision(&info, f->items[i].keeps, f->items[i].rules, f->opts.ctx);
		if (rc != 0)
			return sl_err_set(err, rc, "forget: ended by the caller; nothing was removed");
	}
	return 0;
}

static int remove_items(const struct forgetting *f, uint64_t *removed, struct sl_err *err)
{
	const sl_driver *d = &f->b->driver;
	for (size_t i = 0; i < f->n; i++) {
		char name[SL_DRIVER_NAME_BYTES] = "snapshots/";
		if (f->items[i].keeps)
			continue;
		memcpy(name + strlen(name), f->items[i].id, BK_NAME_HEX);
		int rc = sl__bk_check_stop(f->b, err);
		/* The copy goes first: alone it would count. And once more, for whoever has put it meanwhile by the
		 * first (T2). */
		bool dry = f->opts.dry_run == SL_ON;
		if (rc == 0 && !dry)
			rc = sl__bk_snapshot_remove_copy(f->b, f->items[i].id, err);
		if (rc == 0 && !dry)
			rc = d->ops->remove(d->driver, name, err);
		if ((rc == 0 || rc == SL_ENOENT) && !dry)
			rc = sl__bk_snapshot_remove_copy(f->b, f->items[i].id, err);
		if (rc != 0)
			return rc;
		++*removed;
	}
	return 0;
}

int sl_backup_forget(sl_backup *b, const struct sl_backup_forget_opts *opts, uint64_t *removed, struct sl_err *err)
{
	struct forgetting f = {.b = b};
	uint64_t count = 0;
	int rc = sl__bk_begin(b, "forget", err);
	if (rc == 0)
		rc = check_opts(&f.opts, opts, err);
	if (rc == 0)
		rc = f.opts.snapshots_n > 0 ? by_name(&f, err) : by_rules(&f, err);
	if (rc == 0)
		rc = tell(&f, err);
	if (rc == 0)
		rc = remove_items(&f, &count, err);
	if (removed != NULL)
		*removed = count;
	forgetting_fini(&f);
	return rc;
}
