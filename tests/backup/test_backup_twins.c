/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What opens a repository is there twice (backup/repo/twins.h): either of config and its copy may be damaged or lost, and
 * either of a key and its copy; and a changed passphrase leaves no old key in either of them, even if another
 * process repairs at the same time.
 */
#include "backup/care_kit.h"
#include "backup/repo/config.h"
#include "backup/repo/keyring.h"
#include "backup/repo_kit.h"
#include "support/crashfs.h"

#define CONFIG_COPY "copies/config"

struct world {
	struct shelf shelf;
	sl_backup *b;
	char first[SL_DRIVER_NAME_BYTES], copy[SL_DRIVER_NAME_BYTES]; /* of the key */
};

static bool is_in(const char *name, const char *folder)
{
	return strncmp(name, folder, strlen(folder)) == 0;
}

static void begin(struct world *w, bool encrypted)
{
	shelf_init(&w->shelf);
	w->b = care_new(&w->shelf, encrypted);
	for (size_t i = 0; i < w->shelf.n; i++)
		if (is_in(w->shelf.objects[i].name, "keys/"))
			(void)snprintf(w->first, sizeof(w->first), "%s", w->shelf.objects[i].name);
	if (encrypted)
		sl__bk_copy_name(w->first, w->copy);
}

static void end(struct world *w)
{
	sl_backup_close(w->b);
	shelf_fini(&w->shelf);
}

static int try_open(struct shelf *s, const char *passphrase)
{
	const sl_driver d = shelf_driver(s);
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .passphrase = passphrase,
				      .passphrase_len = passphrase != NULL ? strlen(passphrase) : 0};
	sl_backup *b = NULL;
	int rc = sl_backup_open(&b, &d, &opts, NULL);
	sl_backup_close(b);
	return rc;
}

static void damage(struct shelf *s, const char *name)
{
	struct shelf_object *o = shelf_find(s, name);
	assert_non_null(o);
	o->bytes[o->len / 2] ^= 4;
}

static bool are_same(struct shelf *s, const char *a, const char *b)
{
	const struct shelf_object *x = shelf_find(s, a), *y = shelf_find(s, b);
	return x != NULL && y != NULL && x->len == y->len && memcmp(x->bytes, y->bytes, x->len) == 0;
}

struct reported {
	const char *object;
	int faults, notes; /* about the object */
	int others;
};

static int note(const struct sl_backup_finding *f, void *ctx)
{
	struct reported *t = ctx;
	bool it = strcmp(f->object, t->object) == 0;
	t->faults += it && !f->harmless;
	t->notes += it && f->harmless;
	t->others += !it;
	return 0;
}

static uint64_t repair(struct world *w)
{
	struct sl_backup_repaired r = {.struct_size = sizeof(r)};
	struct sl_err err = SL_ERR_INIT;
	if (sl_backup_repair(w->b, NULL, NULL, &r, &err) != 0)
		fail_msg("repair: %s", err.msg);
	return r.copies_repaired;
}

/* Check reports this object and no other, repair fixes it, and then both are right and the same. */
static void repairs(struct world *w, const char *object, bool harmless, const char *a, const char *b)
{
	struct reported t = {.object = object};
	assert_int_equal(care_check(w->b, note, &t, NULL), harmless ? 0 : SL_ECORRUPT);
	assert_int_equal(t.faults, !harmless);
	assert_int_equal(t.notes, harmless);
	assert_int_equal(t.others, 0);
	assert_int_equal(repair(w), 1);
	assert_true(are_same(&w->shelf, a, b));
	care_assert_right(w->b);
	assert_int_equal(repair(w), 0);
	assert_int_equal(shelf_count(&w->shelf, "damaged/"), 0);
}

/* ---- config ---- */

static void a_config_that_is_damaged_or_lost_is_read_from_its_copy_and_put_back(void **state)
{
	(void)state;
	struct world w;
	begin(&w, false);
	assert_true(are_same(&w.shelf, BK_CONFIG, CONFIG_COPY));
	damage(&w.shelf, BK_CONFIG);
	assert_int_equal(try_open(&w.shelf, NULL), 0);
	repairs(&w, BK_CONFIG, false, BK_CONFIG, CONFIG_COPY);
	assert_true(shelf_drop(&w.shelf, BK_CONFIG));
	assert_int_equal(try_open(&w.shelf, NULL), 0);
	repairs(&w, BK_CONFIG, false, BK_CONFIG, CONFIG_COPY);
	w.shelf.unreadable = BK_CONFIG; /* the storage does not give it */
	assert_int_equal(try_open(&w.shelf, NULL), 0);
	w.shelf.unreadable = NULL;
	end(&w);
}

static void a_copy_of_the_config_that_is_damaged_or_lost_is_made_anew(void **state)
{
	(void)state;
	struct world w;
	begin(&w, false);
	damage(&w.shelf, CONFIG_COPY);
	repairs(&w, CONFIG_COPY, false, BK_CONFIG, CONFIG_COPY);
	assert_true(shelf_drop(&w.shelf, CONFIG_COPY)); /* as a repository of before has it */
	assert_int_equal(try_open(&w.shelf, NULL), 0);
	repairs(&w, CONFIG_COPY, true, BK_CONFIG, CONFIG_COPY);
	end(&w);
}

static void a_copy_of_another_config_is_reported_and_replaced(void **state)
{
	(void)state;
	struct world w, other;
	begin(&w, false);
	begin(&other, false);
	const struct shelf_object *o = shelf_find(&other.shelf, CONFIG_COPY);
	const sl_driver d = shelf_driver(&w.shelf);
	assert_int_equal(d.ops->put(d.driver, CONFIG_COPY, o->bytes, o->len, SL_DRIVER_REPLACE, NULL), 0);
	repairs(&w, CONFIG_COPY, false, BK_CONFIG, CONFIG_COPY);
	assert_false(are_same(&w.shelf, BK_CONFIG, "nothing"));
	end(&other);
	end(&w);
}

static void without_a_right_config_nothing_opens_and_nothing_is_made(void **state)
{
	(void)state;
	struct world w;
	begin(&w, false);
	const sl_driver d = shelf_driver(&w.shelf);
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .encrypt = SL_OFF};
	damage(&w.shelf, BK_CONFIG);
	damage(&w.shelf, CONFIG_COPY);
	assert_int_equal(try_open(&w.shelf, NULL), SL_ECORRUPT);
	assert_true(shelf_drop(&w.shelf, BK_CONFIG));
	assert_int_equal(try_open(&w.shelf, NULL), SL_ECORRUPT);
	assert_int_equal(sl_backup_init(&d, &opts, NULL), SL_EEXIST); /* a copy is there: it was a repository */
	assert_true(shelf_drop(&w.shelf, CONFIG_COPY));
	assert_int_equal(try_open(&w.shelf, NULL), SL_ENOENT);
	end(&w);
}

/* The winner's copy stays: who comes second puts none. */
static void an_init_that_comes_second_leaves_the_copies_of_the_first(void **state)
{
	(void)state;
	struct world w;
	begin(&w, true);
	const sl_driver d = shelf_driver(&w.shelf);
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .passphrase = "other", .passphrase_len = 5};
	assert_int_equal(sl_backup_init(&d, &opts, NULL), SL_EEXIST);
	assert_true(are_same(&w.shelf, BK_CONFIG, CONFIG_COPY));
	assert_int_equal(shelf_count(&w.shelf, "copies/keys/"), 1);
	end(&w);
}

/* ---- keys ---- */

static void the_only_key_that_is_damaged_or_lost_is_read_from_its_copy_and_put_back(void **state)
{
	(void)state;
	struct world w;
	begin(&w, true);
	damage(&w.shelf, w.first);
	assert_int_equal(try_open(&w.shelf, CARE_PASSPHRASE), 0);
	assert_int_equal(try_open(&w.shelf, "wrong"), SL_EKEY);
	repairs(&w, w.first, false, w.first, w.copy);
	assert_true(shelf_drop(&w.shelf, w.first));
	assert_int_equal(try_open(&w.shelf, CARE_PASSPHRASE), 0);
	repairs(&w, w.first, false, w.first, w.copy);
	w.shelf.unreadable = w.first;
	assert_int_equal(try_open(&w.shelf, CARE_PASSPHRASE), 0);
	w.shelf.unreadable = NULL;
	end(&w);
}

static void a_damaged_key_opens_by_its_copy_even_next_to_another_right_one(void **state)
{
	(void)state;
	struct world w;
	char id[BK_NAME_HEX];
	begin(&w, true);
	assert_int_equal(sl__bk_keyring_add(w.b, &(struct bk_passphrase){"second", 6}, id, NULL), 0);
	damage(&w.shelf, w.first);
	assert_int_equal(try_open(&w.shelf, CARE_PASSPHRASE), 0);
	repairs(&w, w.first, false, w.first, w.copy);
	end(&w);
}

static void a_copy_of_a_key_that_is_damaged_or_lost_is_made_anew(void **state)
{
	(void)state;
	struct world w;
	begin(&w, true);
	damage(&w.shelf, w.copy);
	repairs(&w, w.copy, false, w.first, w.copy);
	assert_true(shelf_drop(&w.shelf, w.copy));
	repairs(&w, w.copy, true, w.first, w.copy);
	end(&w);
}

static void a_repository_of_before_opens_and_repair_makes_its_copies(void **state)
{
	(void)state;
	struct world w;
	struct sl_backup_checked out = {.struct_size = sizeof(out)};
	begin(&w, true);
	assert_true(shelf_drop(&w.shelf, CONFIG_COPY) && shelf_drop(&w.shelf, w.copy));
	assert_int_equal(try_open(&w.shelf, CARE_PASSPHRASE), 0);
	assert_int_equal(care_check(w.b, NULL, NULL, &out), 0);
	assert_int_equal(out.harmless, 2);
	assert_int_equal(repair(&w), 2);
	assert_true(are_same(&w.shelf, w.first, w.copy) && are_same(&w.shelf, BK_CONFIG, CONFIG_COPY));
	care_assert_right(w.b);
	end(&w);
}

static void a_key_that_is_damaged_in_both_places_is_put_aside_and_goes_with_a_change(void **state)
{
	(void)state;
	struct world w;
	static const char *const names[] = {"keys/00000000000000000000000000000000",
					    "copies/keys/00000000000000000000000000000000"};
	begin(&w, true);
	const sl_driver d = shelf_driver(&w.shelf);
	for (size_t i = 0; i < SL_COUNT(names); i++)
		assert_int_equal(d.ops->put(d.driver, names[i], "{}", 2, SL_DRIVER_NEW, NULL), 0);
	struct reported t = {.object = names[0]};
	assert_int_equal(care_check(w.b, note, &t, NULL), SL_ECORRUPT);
	assert_int_equal(t.faults, 1);
	assert_int_equal(t.others, 1);
	assert_int_equal(repair(&w), 0);
	assert_int_equal(shelf_count(&w.shelf, "damaged/"), 2);
	care_assert_right(w.b);
	assert_int_equal(sl_backup_change_passphrase(w.b, "new", 3, NULL), 0);
	assert_int_equal(shelf_count(&w.shelf, "damaged/"), 0);
	end(&w);
}

/* ---- later versions ---- */

static void put_checked(struct world *w, const char *name, const char *body)
{
	const sl_driver d = shelf_driver(&w->shelf);
	char *text;
	assert_int_equal(sl__bk_checked_text(&w->b->env, body, &text, NULL), 0);
	assert_int_equal(d.ops->put(d.driver, name, text, strlen(text), SL_DRIVER_REPLACE, NULL), 0);
	sl__free(&w->b->env, text);
}

/* Its copy is older, and nothing to go by. */
static void an_object_of_a_later_version_is_neither_skipped_nor_replaced(void **state)
{
	(void)state;
	struct world w;
	begin(&w, true);
	put_checked(&w, w.first, "{\"version\":2,\"something\":\"new\"");
	struct reported t = {.object = w.first};
	assert_int_equal(care_check(w.b, note, &t, NULL), SL_ECORRUPT);
	assert_int_equal(t.faults, 1);
	assert_int_equal(try_open(&w.shelf, CARE_PASSPHRASE), SL_EUNSUPPORTED);
	assert_int_equal(repair(&w), 0);
	assert_int_equal(try_open(&w.shelf, CARE_PASSPHRASE), SL_EUNSUPPORTED);
	end(&w);
	begin(&w, false);
	put_checked(&w, BK_CONFIG, "{\"version\":2,\"something\":\"new\"");
	assert_int_equal(try_open(&w.shelf, NULL), SL_EUNSUPPORTED);
	assert_int_equal(repair(&w), 0);
	assert_false(are_same(&w.shelf, BK_CONFIG, CONFIG_COPY));
	end(&w);
}

/* ---- a changed passphrase ---- */

/* Objects that hold the key with the old name's id, wherever. */
static size_t count_old(struct shelf *s, const char *old)
{
	const char *id = old + strlen("keys/");
	size_t n = 0;
	for (size_t i = 0; i < s->n; i++)
		n += strstr(s->objects[i].name, id) != NULL;
	return n;
}

/* Cut off behind each of its changes: one of the two passphrases opens it; the old one does not once it is gone from
 * keys/, though its copy is still there, and repair removes that. */
static void a_change_that_is_cut_off_leaves_one_that_opens_and_none_by_a_copy_alone(void **state)
{
	(void)state;
	int64_t at = 1;
	bool copy_alone = false, cut = true;
	for (; cut; at++) {
		struct world w;
		begin(&w, true);
		w.shelf.changes = 0;
		w.shelf.fail_at = at;
		w.shelf.fail_code = SL_EIO;
		w.shelf.for_ever = true;
		int rc = sl_backup_change_passphrase(w.b, "new", 3, NULL);
		cut = w.shelf.changes >= at;
		w.shelf.fail_at = 0;
		bool old = try_open(&w.shelf, CARE_PASSPHRASE) == 0, new = try_open(&w.shelf, "new") == 0;
		assert_true(old || new);
		assert_int_equal(rc == 0, !cut);
		assert_int_equal(old, shelf_find(&w.shelf, w.first) != NULL);
		if (rc == 0)
			assert_int_equal(count_old(&w.shelf, w.first), 0);
		if (!old && shelf_find(&w.shelf, w.copy) != NULL) {
			copy_alone = true;
			repairs(&w, w.copy, true, BK_CONFIG, CONFIG_COPY);
			assert_int_equal(count_old(&w.shelf, w.first), 0);
		}
		end(&w);
	}
	assert_true(copy_alone);
	print_message("# cut off behind each of %lld changes\n", (long long)at - 2);
}

/* Another who does something at one of our calls about keys. Not before gets: before what comes next is as good, and
 * every way costs two Argon2id. */
struct beside {
	struct world *w;
	sl_backup *other;
	int64_t at, calls;
	void (*run)(struct beside *b);
};

static void pass(const char *what, const char *name, void *ctx)
{
	struct beside *b = ctx;
	if (strcmp(what, "get") == 0 || strstr(name, "keys") == NULL || ++b->calls != b->at)
		return;
	void (*gate)(const char *, const char *, void *) = b->w->shelf.gate;
	b->w->shelf.gate = NULL;
	b->run(b);
	b->w->shelf.gate = gate;
}

static void repair_beside(struct beside *b)
{
	assert_int_equal(sl_backup_repair(b->other, NULL, NULL, NULL, NULL), 0);
}

static void change_beside(struct beside *b)
{
	assert_int_equal(sl_backup_change_passphrase(b->other, "new", 3, NULL), 0);
}

/* What makes a repair put the old key: one of its two places is wrong. */
static void hurt(struct world *w, bool first)
{
	if (first)
		damage(&w->shelf, w->first);
	else
		assert_true(shelf_drop(&w->shelf, w->copy));
}

/* `main` runs, and the other one as a whole at its at-th call; 0 when it makes fewer calls. */
static int64_t interleave(const struct shelf *made, sl_backup *ours, struct world *w, bool first, int64_t at,
			  bool repairs)
{
	struct beside b = {.w = w, .other = ours, .at = at, .run = repairs ? change_beside : repair_beside};
	shelf_copy(&w->shelf, made);
	hurt(w, first);
	w->shelf.gate = pass;
	w->shelf.gate_ctx = &b;
	int rc = repairs ? sl_backup_repair(w->b, NULL, NULL, NULL, NULL)
			 : sl_backup_change_passphrase(w->b, "new", 3, NULL);
	w->shelf.gate = NULL;
	assert_int_equal(rc, 0);
	if (b.calls < at && repairs)
		return 0;
	if (count_old(&w->shelf, w->first) != 0)
		fail_msg("the old key came back: %s hurt, call %lld of a %s", first ? "first" : "copy", (long long)at,
			 repairs ? "repair" : "change");
	assert_int_equal(shelf_count(&w->shelf, "keys/"), 1);
	return b.calls < at ? 0 : at;
}

static void a_repair_during_a_change_brings_no_old_key_back(void **state)
{
	(void)state;
	struct world w;
	struct shelf made;
	int64_t runs = 0;
	begin(&w, true);
	w.shelf.has_lock = false; /* the other one runs inside of our call */
	shelf_init(&made);
	shelf_copy(&made, &w.shelf);
	sl_backup *other = care_open(&w.shelf);
	for (int i = 0; i < 4; i++)
		for (int64_t at = 1; interleave(&made, other, &w, i % 2 == 0, at, i / 2 == 0) != 0; at++)
			runs++;
	print_message("# %lld ways to interleave them\n", (long long)runs);
	sl_backup_close(other);
	shelf_fini(&made);
	end(&w);
}

/* ---- power loss ---- */

/* Keys that can be read, in either place; of the old one, all there is. */
static void count_keys(sl_backup *b, const char *old, int *right, int *of_old)
{
	static const char *const folders[] = {BK_KEYS, BK_KEY_COPIES};
	for (size_t f = 0; f < SL_COUNT(folders); f++) {
		struct bk_listed *listed = NULL;
		size_t n = 0;
		assert_int_equal(sl__bk_list_names(b, folders[f], &listed, &n, NULL), 0);
		for (size_t i = 0; i < n; i++) {
			char name[SL_DRIVER_NAME_BYTES];
			struct bk_twin t;
			(void)snprintf(name, sizeof(name), "%s/%s", folders[f], listed[i].id);
			assert_int_equal(sl__bk_twin_load(b, name, sl__bk_is_key, &t, NULL), 0);
			*right += t.rc == 0;
			*of_old += strcmp(listed[i].id, old) == 0;
			sl__bk_twin_fini(b, &t);
		}
		sl__free(&b->env, listed);
	}
}

static void judge(struct crashfs *lost, const char *old, bool made, bool changed)
{
	struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = lost};
	struct sl_driver_local_opts driver_opts = {SL_DRIVER_LOCAL_OPTS_INIT, .env = &env, .create = SL_ON};
	struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .env = &env};
	struct sl_backup b = {.opts = opts}; /* for objects only: to open it takes too long for every state */
	int right = 0, of_old = 0;
	assert_int_equal(sl__env_init(&b.env, &env, NULL), 0);
	assert_int_equal(sl_driver_local_open(&b.driver, "/repo", &driver_opts, NULL), 0);
	int rc = sl_backup_is_encrypted(&b.driver, &opts, NULL);
	count_keys(&b, old, &right, &of_old);
	if (rc != 1 && (made || rc != SL_ENOENT))
		fail_msg("the config: %d", rc);
	if (rc == 1 && right == 0)
		fail_msg("a config, and no key");
	if (changed && of_old != 0)
		fail_msg("the passphrase was changed, and the old key is there");
	sl_driver_close(&b.driver);
}

static void a_power_loss_leaves_a_right_config_and_key_and_none_that_was_removed(void **state)
{
	(void)state;
	struct crashfs *fs = crashfs_new();
	struct sl_env env = {SL_ENV_INIT, .io = &crashfs_io, .io_ctx = fs};
	struct repo r;
	char old[SL_DRIVER_NAME_BYTES], copy[2 * SL_DRIVER_NAME_BYTES];
	size_t states = 0;
	repo_place(&r, &env);
	r.opts.encrypt = SL_ON;
	r.opts.passphrase = "old";
	r.opts.passphrase_len = 3;
	assert_int_equal(sl_backup_init(&r.d, &r.opts, NULL), 0);
	size_t made = crashfs_point(fs);
	assert_int_equal(repo_count(&r.d, BK_KEYS, old), 1);
	assert_int_equal(sl_backup_open(&r.b, &r.d, &r.opts, NULL), 0);
	/* A repair of all four: two firsts, two copies. */
	(void)snprintf(copy, sizeof(copy), BK_KEY_COPIES "/%s", old);
	repo_damage(&r.d, copy, 20);
	repo_damage(&r.d, BK_CONFIG, 20);
	assert_int_equal(sl_backup_repair(r.b, NULL, NULL, NULL, NULL), 0);
	repo_damage(&r.d, copy + strlen("copies/"), 20);
	repo_damage(&r.d, CONFIG_COPY, 20);
	assert_int_equal(sl_backup_repair(r.b, NULL, NULL, NULL, NULL), 0);
	assert_int_equal(sl_backup_change_passphrase(r.b, "new", 3, NULL), 0);
	size_t changed = crashfs_point(fs);
	for (size_t point = 0; point <= changed; point++)
		for (size_t k = 0; k < crashfs_states(fs, point, 8); k++, states++) {
			struct crashfs *lost = crashfs_crash(fs, point, k, 8, 1, NULL);
			judge(lost, old, point >= made, point >= changed);
			crashfs_free(lost);
		}
	print_message("# %zu states\n", states);
	repo_free(&r);
	crashfs_free(fs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_config_that_is_damaged_or_lost_is_read_from_its_copy_and_put_back),
		cmocka_unit_test(a_copy_of_the_config_that_is_damaged_or_lost_is_made_anew),
		cmocka_unit_test(a_copy_of_another_config_is_reported_and_replaced),
		cmocka_unit_test(without_a_right_config_nothing_opens_and_nothing_is_made),
		cmocka_unit_test(an_init_that_comes_second_leaves_the_copies_of_the_first),
		cmocka_unit_test(the_only_key_that_is_damaged_or_lost_is_read_from_its_copy_and_put_back),
		cmocka_unit_test(a_damaged_key_opens_by_its_copy_even_next_to_another_right_one),
		cmocka_unit_test(a_copy_of_a_key_that_is_damaged_or_lost_is_made_anew),
		cmocka_unit_test(a_repository_of_before_opens_and_repair_makes_its_copies),
		cmocka_unit_test(a_key_that_is_damaged_in_both_places_is_put_aside_and_goes_with_a_change),
		cmocka_unit_test(an_object_of_a_later_version_is_neither_skipped_nor_replaced),
		cmocka_unit_test(a_change_that_is_cut_off_leaves_one_that_opens_and_none_by_a_copy_alone),
		cmocka_unit_test(a_repair_during_a_change_brings_no_old_key_back),
		cmocka_unit_test(a_power_loss_leaves_a_right_config_and_key_and_none_that_was_removed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
