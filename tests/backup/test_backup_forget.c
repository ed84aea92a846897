/* SPDX-License-Identifier: Apache-2.0 */
/* Forget: which snapshots the rules keep. Times are given as days and hours of a calendar that begins on a Monday. */
#include "backup/care_kit.h"
#include "backup/prune/forget.h"

#define HOUR_MS INT64_C(3600000)
#define DAY_MS INT64_C(86400000)
#define MONDAY INT64_C(1704067200000) /* 2024-01-01, 00:00 UTC */

static const struct care_file files[] = {{.path = "f", .seed = 7, .len = 10}};

struct world {
	struct shelf shelf;
	sl_backup *b;
	char reported[4096]; /* "name:rules " of those that stay, oldest first within a group… as they are reported */
};

static void begin(struct world *w)
{
	memset(w, 0, sizeof(*w));
	shelf_init(&w->shelf);
	w->b = care_new(&w->shelf, false);
}

static void end(struct world *w)
{
	sl_backup_close(w->b);
	shelf_fini(&w->shelf);
}

static void make_of(struct world *w, struct care_snapshot s, char id[SL_BACKUP_ID_BYTES])
{
	struct sl_err err = SL_ERR_INIT;
	s.files = files;
	s.n = SL_COUNT(files);
	if (care_make(w->b, &s, id, &err) != 0)
		fail_msg("make: %s", err.msg);
}

static void make_at(struct world *w, int64_t ms)
{
	make_of(w, (struct care_snapshot){.time_ms = MONDAY + ms}, NULL);
}

/* Hours since the first Monday, and the rules, of all that stay. */
static int note(const struct sl_backup_snapshot *s, bool keeps, const char *rules, void *ctx)
{
	struct world *w = ctx;
	size_t len = strlen(w->reported);
	if (keeps)
		snprintf(w->reported + len, sizeof(w->reported) - len, "%lld %s; ",
			 (long long)((s->time_ms - MONDAY) / HOUR_MS), rules);
	return 0;
}

static uint64_t forget(struct world *w, struct sl_backup_forget_opts opts)
{
	struct sl_err err = SL_ERR_INIT;
	uint64_t removed = 0;
	w->reported[0] = '\0';
	opts.struct_size = sizeof(opts);
	opts.on_decision = note;
	opts.ctx = w;
	if (sl_backup_forget(w->b, &opts, &removed, &err) != 0)
		fail_msg("forget: %s", err.msg);
	return removed;
}

static void without_a_rule_nothing_is_forgotten(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	make_at(&w, 0);
	struct sl_backup_forget_opts none = {SL_BACKUP_FORGET_OPTS_INIT},
				     bad = {SL_BACKUP_FORGET_OPTS_INIT, .keep_last = 1, .keep_daily = -1};
	assert_int_equal(sl_backup_forget(w.b, &none, NULL, NULL), SL_EINVAL);
	assert_int_equal(sl_backup_forget(w.b, NULL, NULL, NULL), SL_EINVAL);
	assert_int_equal(sl_backup_forget(w.b, &bad, NULL, NULL), SL_EINVAL);
	assert_int_equal(care_snapshots(w.b), 1);
	end(&w);
}

static void the_last_ones_are_kept(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	for (int i = 0; i < 5; i++)
		make_at(&w, i * HOUR_MS);
	assert_int_equal(forget(&w, (struct sl_backup_forget_opts){.keep_last = 2}), 3);
	assert_string_equal(w.reported, "4 last; 3 last; ");
	assert_int_equal(care_snapshots(w.b), 2);
	end(&w);
}

static void of_each_hour_day_week_month_and_year_the_newest_is_kept(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	make_at(&w, 0);
	make_at(&w, HOUR_MS / 2);
	make_at(&w, 23 * HOUR_MS);
	make_at(&w, DAY_MS);
	make_at(&w, 6 * DAY_MS);   /* Sunday of the first week */
	make_at(&w, 7 * DAY_MS);   /* Monday of the second */
	make_at(&w, 31 * DAY_MS);  /* February */
	make_at(&w, 366 * DAY_MS); /* the next year */
	make_at(&w, -HOUR_MS);     /* the year before, still the last week of it */
	const struct sl_backup_forget_opts dry = {.dry_run = SL_ON};
	struct sl_backup_forget_opts o = dry;
	o.keep_hourly = 20;
	assert_int_equal(forget(&w, o), 1);
	o = dry;
	o.keep_daily = 20;
	(void)forget(&w, o);
	assert_string_equal(w.reported, "8784 daily; 744 daily; 168 daily; 144 daily; 24 daily; 23 daily; -1 daily; ");
	o = dry;
	o.keep_weekly = 20;
	(void)forget(&w, o);
	assert_string_equal(w.reported, "8784 weekly; 744 weekly; 168 weekly; 144 weekly; -1 weekly; ");
	o = dry;
	o.keep_monthly = 20;
	(void)forget(&w, o);
	assert_string_equal(w.reported, "8784 monthly; 744 monthly; 168 monthly; -1 monthly; ");
	o = dry;
	o.keep_yearly = 2;
	(void)forget(&w, o);
	assert_string_equal(w.reported, "8784 yearly; 744 yearly; ");
	assert_int_equal(care_snapshots(w.b), 9);
	end(&w);
}

static void a_snapshot_that_several_rules_keep_names_them_all(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	make_at(&w, 0);
	make_at(&w, DAY_MS);
	(void)forget(&w, (struct sl_backup_forget_opts){.keep_last = 1, .keep_daily = 2, .keep_yearly = 1});
	assert_string_equal(w.reported, "24 last, daily, yearly; 0 daily; ");
	end(&w);
}

static void hosts_and_paths_are_judged_by_themselves(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	make_of(&w, (struct care_snapshot){.time_ms = MONDAY}, NULL);
	make_of(&w, (struct care_snapshot){.time_ms = MONDAY + HOUR_MS, .host = "there"}, NULL);
	make_of(&w, (struct care_snapshot){.time_ms = MONDAY + 2 * HOUR_MS, .root = "/etc"}, NULL);
	make_of(&w, (struct care_snapshot){.time_ms = MONDAY + 3 * HOUR_MS}, NULL);
	assert_int_equal(forget(&w, (struct sl_backup_forget_opts){.keep_last = 1}), 1);
	assert_string_equal(w.reported, "3 last; 2 last; 1 last; ");
	assert_int_equal(forget(&w, (struct sl_backup_forget_opts){.keep_last = 1, .host = "there"}), 0);
	assert_string_equal(w.reported, "1 last; ");
	assert_int_equal(forget(&w, (struct sl_backup_forget_opts){.keep_last = 1, .path = "/etc"}), 0);
	assert_string_equal(w.reported, "2 last; ");
	end(&w);
}

static void tags_keep_and_select(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	const char *gold = "gold";
	make_of(&w, (struct care_snapshot){.time_ms = MONDAY, .tag = "gold"}, NULL);
	make_of(&w, (struct care_snapshot){.time_ms = MONDAY + HOUR_MS, .tag = "tin"}, NULL);
	make_of(&w, (struct care_snapshot){.time_ms = MONDAY + 2 * HOUR_MS}, NULL);
	assert_int_equal(forget(&w, (struct sl_backup_forget_opts){.keep_last = 5, .tag = "tin"}), 0);
	assert_string_equal(w.reported, "1 last; ");
	assert_int_equal(forget(&w, (struct sl_backup_forget_opts){.keep_tags = &gold, .n_keep_tags = 1}), 2);
	assert_string_equal(w.reported, "0 tag; ");
	end(&w);
}

/* A rule that keeps nothing of a group would take the last copy away. */
static void rules_never_take_the_last_snapshot_of_a_group(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	const char *gold = "gold";
	make_at(&w, 0);
	make_at(&w, HOUR_MS);
	assert_int_equal(forget(&w, (struct sl_backup_forget_opts){.keep_tags = &gold, .n_keep_tags = 1}), 1);
	assert_string_equal(w.reported, "1 newest; ");
	end(&w);
}

static void one_that_is_named_is_forgotten_also_when_it_is_the_last_or_damaged(void **state)
{
	(void)state;
	struct world w;
	char one[SL_BACKUP_ID_BYTES], name[SL_DRIVER_NAME_BYTES];
	begin(&w);
	make_of(&w, (struct care_snapshot){.time_ms = MONDAY}, one);
	snprintf(name, sizeof(name), "snapshots/%s", one);
	shelf_find(&w.shelf, name)->bytes[50] ^= 4;
	snprintf(name, sizeof(name), "copies/snapshots/%s", one);
	shelf_find(&w.shelf, name)->bytes[50] ^= 4;
	struct sl_backup_forget_opts rules = {SL_BACKUP_FORGET_OPTS_INIT, .keep_last = 1};
	assert_int_equal(sl_backup_forget(w.b, &rules, NULL, NULL), SL_ECORRUPT);
	one[6] = '\0'; /* a beginning is enough */
	const char *names[] = {one};
	assert_int_equal(forget(&w, (struct sl_backup_forget_opts){.snapshots = names, .n_snapshots = 1}), 1);
	assert_int_equal(care_snapshots(w.b), 0);
	end(&w);
}

static void one_of_a_later_version_is_forgotten_by_its_name_and_stops_rules(void **state)
{
	(void)state;
	struct world w;
	static const char id[] = "0123456789abcdef0123456789abcdef", later[] = "{\"version\":2,\"something\":\"new\"}";
	begin(&w);
	assert_int_equal(sl__bk_put_sealed(w.b, &(struct bk_object){"snapshots", id, BK_KIND_SNAPSHOT},
					   (struct bk_bytes){later, strlen(later)}, SL_DRIVER_NEW, NULL),
			 0);
	struct sl_backup_forget_opts rules = {SL_BACKUP_FORGET_OPTS_INIT, .keep_last = 1};
	assert_int_equal(sl_backup_forget(w.b, &rules, NULL, NULL), SL_EUNSUPPORTED);
	const char *names[] = {id};
	assert_int_equal(forget(&w, (struct sl_backup_forget_opts){.snapshots = names, .n_snapshots = 1}), 1);
	assert_int_equal(shelf_count(&w.shelf, "snapshots/"), 0);
	end(&w);
}

/* Another one forgets the same at the same time. */
static void forget_before(const char *what, const char *name, void *ctx)
{
	struct shelf *s = ctx;
	if (strcmp(what, "remove") == 0 && strncmp(name, "snapshots/", 10) == 0)
		assert_true(shelf_drop(s, name));
}

static void one_that_another_has_forgotten_meanwhile_is_forgotten(void **state)
{
	(void)state;
	struct world w;
	char one[SL_BACKUP_ID_BYTES], two[SL_BACKUP_ID_BYTES];
	begin(&w);
	make_of(&w, (struct care_snapshot){.time_ms = MONDAY}, one);
	make_of(&w, (struct care_snapshot){.time_ms = MONDAY + DAY_MS}, two);
	const char *names[] = {one, two};
	w.shelf.gate = forget_before;
	w.shelf.gate_ctx = &w.shelf;
	assert_int_equal(forget(&w, (struct sl_backup_forget_opts){.snapshots = names, .n_snapshots = 2}), 2);
	w.shelf.gate = NULL;
	assert_int_equal(shelf_count(&w.shelf, "snapshots/"), 0);
	end(&w);
}

/* One set of paths that begins as another one is not the same set. */
static void a_set_of_paths_that_begins_as_another_is_judged_by_itself(void **state)
{
	(void)state;
	const char *paths[] = {"/a", "/b"};
	struct bk_forget_item items[2] = {{.paths = paths, .n_paths = 1}, {.paths = paths, .n_paths = 2}};
	const struct sl_backup_forget_opts opts = {SL_BACKUP_FORGET_OPTS_INIT, .keep_last = 1};
	items[0].snapshot.info.host = items[1].snapshot.info.host = "h";
	items[1].snapshot.info.time_ms = 5;
	assert_true(sl__bk_forget_compare(&items[0], &items[1]) < 0);
	assert_true(sl__bk_forget_compare(&items[1], &items[0]) > 0);
	sl__bk_forget_decide(items, 2, &opts);
	assert_true(items[0].keeps && items[1].keeps);
}

static int refuse(const struct sl_backup_snapshot *s, bool keeps, const char *rules, void *ctx)
{
	(void)s;
	(void)keeps;
	(void)rules;
	(void)ctx;
	return SL_ECANCELLED;
}

static void a_caller_that_says_no_keeps_everything(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	make_at(&w, 0);
	make_at(&w, 1);
	struct sl_backup_forget_opts opts = {SL_BACKUP_FORGET_OPTS_INIT, .keep_last = 1, .on_decision = refuse};
	assert_int_equal(sl_backup_forget(w.b, &opts, NULL, NULL), SL_ECANCELLED);
	assert_int_equal(care_snapshots(w.b), 2);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_rule_nothing_is_forgotten),
		cmocka_unit_test(the_last_ones_are_kept),
		cmocka_unit_test(of_each_hour_day_week_month_and_year_the_newest_is_kept),
		cmocka_unit_test(a_snapshot_that_several_rules_keep_names_them_all),
		cmocka_unit_test(hosts_and_paths_are_judged_by_themselves),
		cmocka_unit_test(tags_keep_and_select),
		cmocka_unit_test(rules_never_take_the_last_snapshot_of_a_group),
		cmocka_unit_test(one_that_is_named_is_forgotten_also_when_it_is_the_last_or_damaged),
		cmocka_unit_test(one_of_a_later_version_is_forgotten_by_its_name_and_stops_rules),
		cmocka_unit_test(one_that_another_has_forgotten_meanwhile_is_forgotten),
		cmocka_unit_test(a_set_of_paths_that_begins_as_another_is_judged_by_itself),
		cmocka_unit_test(a_caller_that_says_no_keeps_everything),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
