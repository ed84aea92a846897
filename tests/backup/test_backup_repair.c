/* SPDX-License-Identifier: Apache-2.0 */
/* Repair, beyond what test_backup_damage.c does to every byte: what goes with a lost file, room that runs out, death.
 */
#include "backup/care_kit.h"
#include "backup/check/repair.h"

/* Contents that are a frame of their own, so that damage to one costs no other. */
#define BIG BK_SOLID_BELOW

static const struct care_file tree[] = {
	{.path = "a"},
	{.path = "a/big", .seed = 1, .len = BIG},
	{.path = "a/link", .seed = 1, .len = BIG, .link = "a/big"},
	{.path = "a/other", .seed = 2, .len = BIG},
	{.path = "b"},
	{.path = "b/small", .seed = 3, .len = 900},
};

struct world {
	struct shelf shelf;
	sl_backup *b;
	char id[SL_BACKUP_ID_BYTES];
};

static void begin(struct world *w)
{
	struct sl_err err = SL_ERR_INIT;
	const struct care_snapshot s = {.files = tree, .n = SL_COUNT(tree), .time_ms = 77, .tag = "gold"};
	shelf_init(&w->shelf);
	w->b = care_new(&w->shelf, false);
	if (care_make(w->b, &s, w->id, &err) != 0)
		fail_msg("make: %s", err.msg);
}

static void end(struct world *w)
{
	sl_backup_close(w->b);
	shelf_fini(&w->shelf);
}

/* Find where a file's bytes begin in a pack: damage the frame of a block. */
struct damaging {
	struct world *w;
	struct bk_id id;
	bool done;
};

static void damage_frame(const struct bk_id *id, const struct bk_place *place, struct damaging *d)
{
	if (memcmp(id, &d->id, sizeof(*id)) != 0)
		return;
	for (size_t i = 0; i < d->w->shelf.n; i++)
		if (strncmp(d->w->shelf.objects[i].name, "packs/", 6) == 0 &&
		    d->w->shelf.objects[i].len > place->frame_offset + place->frame_stored && !d->done) {
			d->w->shelf.objects[i].bytes[place->frame_offset + 50] ^= 1;
			d->done = true;
		}
}

static void damage_file(struct world *w, size_t file)
{
	struct damaging d = {.w = w};
	struct bk_hasher *h = NULL;
	struct bk_ids packs = {.n = 0};
	uint64_t *sizes = NULL;
	uint8_t *bytes = care_bytes(&tree[file]);
	assert_int_equal(sl__bk_hasher_new(&h, &w->b->env, &w->b->keys, NULL), 0);
	assert_int_equal(sl__bk_hash(h, bytes, tree[file].len, &d.id, NULL), 0);
	sl__bk_hasher_free(h);
	free(bytes);
	assert_int_equal(sl__bk_list_packs(w->b, &packs, &sizes, NULL, NULL), 0);
	for (size_t i = 0; i < packs.n; i++) {
		struct bk_pack_blocks p = {.pack = packs.ids[i], .size = sizes[i]};
		assert_int_equal(sl__bk_directory_blocks(w->b, &p, NULL), 0);
		for (size_t k = 0; k < p.n; k++)
			damage_frame(&p.blocks[k].id, &p.blocks[k].place, &d);
		sl__free(&w->b->env, p.blocks);
	}
	assert_true(d.done);
	sl__bk_ids_fini(&w->b->env, &packs);
	sl__free(&w->b->env, sizes);
}

static struct sl_backup_repaired repair(struct world *w)
{
	struct sl_backup_repaired r = {.struct_size = sizeof(r)};
	struct sl_err err = SL_ERR_INIT;
	if (sl_backup_repair(w->b, NULL, NULL, &r, &err) != 0)
		fail_msg("repair: %s", err.msg);
	return r;
}

static int take_info(const struct sl_backup_snapshot *s, void *ctx)
{
	struct world *w = ctx;
	assert_string_equal(s->parent, w->id);
	assert_int_equal(s->time_ms, 77);
	assert_int_equal(s->n_tags, 2);
	assert_string_equal(s->tags[0], "gold");
	assert_string_equal(s->tags[1], "repaired");
	assert_int_equal(s->problems, 2); /* the file that is lost, and its other name */
	memcpy(w->id, s->id, sizeof(w->id));
	return 0;
}

static void a_hard_link_goes_with_the_file_that_is_lost_and_the_rest_stays(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	damage_file(&w, 1);
	struct sl_backup_repaired r = repair(&w);
	assert_int_equal(r.files_lost, 2);
	assert_int_equal(r.blocks_lost, 1);
	assert_int_equal(r.packs_rewritten, 1);
	assert_int_equal(r.snapshots_rewritten, 1);
	assert_int_equal(r.snapshots_lost, 0);
	assert_int_equal(sl_backup_list(w.b, take_info, NULL, &w, NULL), 0);
	assert_int_equal(care_count_right(w.b, w.id, tree, SL_COUNT(tree)), 2);
	assert_int_equal(shelf_count(&w.shelf, "damaged/"), 2);
	care_assert_right(w.b);
	end(&w);
}

static void every_snapshot_that_has_the_lost_file_is_repaired(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	const struct care_snapshot s = {.files = tree, .n = SL_COUNT(tree), .time_ms = 78};
	assert_int_equal(care_make(w.b, &s, NULL, NULL), 0); /* the same manifest, block by block */
	damage_file(&w, 1);
	struct sl_backup_repaired r = repair(&w);
	assert_int_equal(r.snapshots_rewritten, 2);
	assert_int_equal(r.files_lost, 4);
	assert_int_equal(care_snapshots(w.b), 2);
	care_assert_right(w.b);
	end(&w);
}

/* What nothing needs any more may be damaged, and costs nothing but itself. */
static void a_block_that_no_snapshot_needs_costs_no_snapshot(void **state)
{
	(void)state;
	struct world w;
	char second[SL_BACKUP_ID_BYTES];
	begin(&w);
	damage_file(&w, 3);
	const struct care_snapshot s = {.files = &tree[4], .n = 2, .time_ms = 78};
	assert_int_equal(care_make(w.b, &s, second, NULL), 0);
	care_forget(w.b, w.id);
	struct sl_backup_repaired r = repair(&w);
	assert_int_equal(r.blocks_lost, 1);
	assert_int_equal(r.snapshots_rewritten + r.snapshots_lost + r.files_lost, 0);
	care_assert_whole(w.b, second, &tree[4], 2);
	care_assert_right(w.b);
	end(&w);
}

static void a_block_that_is_stored_twice_survives_the_damage_of_one_place(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	/* The same again by one who knows of no index: as two creates at once would do. */
	struct shelf other;
	shelf_init(&other);
	shelf_copy(&other, &w.shelf);
	for (size_t i = 0; i < other.n;) {
		const char *name = other.objects[i].name;
		if (strncmp(name, "config", 6) != 0)
			(void)shelf_drop(&other, name);
		else
			i++;
	}
	sl_backup *b = care_open(&other);
	const struct care_snapshot s = {.files = tree, .n = SL_COUNT(tree), .time_ms = 78};
	assert_int_equal(care_make(b, &s, NULL, NULL), 0);
	sl_backup_close(b);
	damage_file(&w, 1);
	sl_driver d = shelf_driver(&w.shelf);
	for (size_t i = 0; i < other.n; i++)
		if (strcmp(other.objects[i].name, "config") != 0)
			assert_int_equal(d.ops->put(d.driver, other.objects[i].name, other.objects[i].bytes,
						    other.objects[i].len, SL_DRIVER_NEW, NULL),
					 0);
	shelf_fini(&other);
	/* Nothing is lost before the repair, either: check names the pack and no file. */
	care_assert_whole(w.b, w.id, tree, SL_COUNT(tree));
	struct sl_backup_checked checked = {.struct_size = sizeof(checked)};
	assert_int_equal(care_check(w.b, NULL, NULL, &checked), SL_ECORRUPT);
	assert_int_equal(checked.findings - checked.harmless, 1);
	struct sl_backup_repaired r = repair(&w);
	assert_int_equal(r.blocks_lost + r.files_lost + r.snapshots_rewritten, 0);
	care_assert_whole(w.b, w.id, tree, SL_COUNT(tree));
	care_assert_right(w.b);
	end(&w);
}

/* Whatever change fails, once or from then on: another repair does the rest, and no more is lost. */
static int64_t fail_at(int64_t at, bool for_ever, int code)
{
	struct world w;
	begin(&w);
	damage_file(&w, 1);
	w.shelf.changes = 0;
	w.shelf.fail_at = at;
	w.shelf.for_ever = for_ever;
	w.shelf.fail_code = code;
	int rc = sl_backup_repair(w.b, NULL, NULL, NULL, NULL);
	int64_t made = w.shelf.changes;
	w.shelf.fail_at = 0;
	if (made < at)
		assert_int_equal(rc, 0);
	(void)repair(&w);
	care_assert_right(w.b);
	assert_int_equal(care_snapshots(w.b), 1);
	assert_int_equal(sl_backup_list(w.b, take_info, NULL, &w, NULL), 0);
	assert_int_equal(care_count_right(w.b, w.id, tree, SL_COUNT(tree)), 2);
	end(&w);
	return made;
}

static void every_change_may_fail(void **state)
{
	(void)state;
	int64_t n = 1;
	while (fail_at(n, false, SL_EIO) >= n)
		n++;
	assert_true(n > 8);
	for (n = 1; fail_at(n, true, SL_ENOSPC) >= n;)
		n++;
}

static void a_full_disk_stops_creates_prunes_and_repairs_and_loses_nothing(void **state)
{
	(void)state;
	struct world w;
	struct care_file more[] = {{.path = "more", .seed = 50, .len = BIG}};
	const struct care_snapshot s = {.files = more, .n = 1, .time_ms = 99};
	char id[SL_BACKUP_ID_BYTES];
	begin(&w);
	for (size_t room = w.shelf.used; room < w.shelf.used + BIG / 2; room += BIG / 20) {
		w.shelf.room = room;
		assert_int_equal(care_make(w.b, &s, NULL, NULL), SL_ENOSPC);
		int rc = sl_backup_prune(w.b, NULL, NULL, NULL);
		assert_true(rc == 0 || rc == SL_ENOSPC);
		care_assert_whole(w.b, w.id, tree, SL_COUNT(tree));
		care_assert_right(w.b);
		if (w.shelf.room < w.shelf.used)
			break;
	}
	w.shelf.room = w.shelf.used + 100;
	damage_file(&w, 1);
	assert_int_equal(sl_backup_repair(w.b, NULL, NULL, NULL, NULL), SL_ENOSPC);
	w.shelf.room = SIZE_MAX;
	assert_int_equal(care_make(w.b, &s, id, NULL), 0);
	(void)repair(&w);
	care_assert_whole(w.b, id, more, 1);
	care_assert_right(w.b);
	end(&w);
}

static void what_is_put_aside_takes_no_name_that_is_taken(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	const sl_driver d = shelf_driver(&w.shelf);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(d.ops->put(d.driver, "marks/x", "1", 1, SL_DRIVER_NEW, NULL), 0);
		assert_int_equal(sl__bk_put_aside(w.b, "marks/x", NULL), 0);
	}
	assert_int_equal(sl__bk_put_aside(w.b, "marks/x", NULL), 0); /* it is gone */
	assert_non_null(shelf_find(&w.shelf, "damaged/marks-x"));
	assert_non_null(shelf_find(&w.shelf, "damaged/marks-x-2"));
	assert_non_null(shelf_find(&w.shelf, "damaged/marks-x-3"));
	assert_int_equal(shelf_count(&w.shelf, "damaged/"), 3);
	end(&w);
}

/* ---- a part of the manifest ---- */

#define NAMES 30000u /* with long names: no frame has all of the manifest */
#define NAME_BYTES 200u

static void name_file(char *out, uint64_t number)
{
	uint64_t x = number * UINT64_C(0x9e3779b97f4a7c15) + 1;
	int n = snprintf(out, NAME_BYTES, "a/%06u-", (unsigned)number);
	for (size_t i = (size_t)n; i + 1 < NAME_BYTES; i++) {
		x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		out[i] = (char)('a' + (x >> 33) % 26);
	}
	out[NAME_BYTES - 1] = '\0';
}

struct seen {
	uint64_t files, folders;
};

static int see(const struct sl_backup_entry *e, void *ctx)
{
	struct seen *s = ctx;
	s->files += e->type == SL_BACKUP_FILE;
	s->folders += e->type == SL_BACKUP_DIR;
	if (e->type == SL_BACKUP_DIR)
		assert_string_equal(e->path, "a");
	return 0;
}

static int take_id(const struct sl_backup_snapshot *s, void *ctx)
{
	memcpy(ctx, s->id, SL_BACKUP_ID_BYTES);
	return 0;
}

/* The entry of the folder is in the part that is lost, and most of its files are not. */
static void a_folder_whose_entry_is_lost_comes_back_with_the_files_that_are_not(void **state)
{
	(void)state;
	struct world w;
	struct bk_snapshot s = {.manifest = NULL};
	struct bk_index *x = NULL;
	struct bk_found at[4];
	size_t places = 0;
	struct seen seen = {0};
	char name[SL_DRIVER_NAME_BYTES];
	char(*names)[NAME_BYTES] = calloc(NAMES, NAME_BYTES);
	struct care_file *files = calloc(NAMES + 1, sizeof(*files));
	files[0] = (struct care_file){.path = "a"};
	for (size_t i = 0; i < NAMES; i++) {
		name_file(names[i], i);
		files[i + 1] = (struct care_file){.path = names[i], .seed = 5, .len = 0};
	}
	shelf_init(&w.shelf);
	w.b = care_new(&w.shelf, false);
	const struct care_snapshot made = {.files = files, .n = NAMES + 1, .time_ms = 77};
	assert_int_equal(care_make(w.b, &made, w.id, NULL), 0);
	assert_int_equal(sl__bk_snapshot_load(w.b, w.id, &s, NULL), 0);
	assert_int_equal(sl__bk_index_for_reading(w.b, &x, NULL), 0);
	places = (size_t)sl__bk_index_places(x, &s.manifest[0].id, at, SL_COUNT(at), NULL);
	assert_int_equal(places, 2);
	for (size_t i = 0; i < places; i++) {
		sl__bk_pack_name(&at[i].pack, name);
		shelf_find(&w.shelf, name)->bytes[at[i].place.frame_offset + 50] ^= 1;
	}
	(void)repair(&w);
	assert_int_equal(sl_backup_list(w.b, take_id, NULL, w.id, NULL), 0);
	assert_int_equal(sl_backup_ls(w.b, w.id, NULL, see, &seen, NULL), 0);
	assert_int_equal(seen.folders, 1);
	assert_true(seen.files > 0 && seen.files < NAMES);
	care_assert_right(w.b);
	print_message("# %u of %u files are left\n", (unsigned)seen.files, NAMES);
	sl__bk_index_free(x);
	sl__bk_snapshot_fini(&w.b->env, &s);
	free(files);
	free(names);
	end(&w);
}

/* Sealed as it should be, and wrong: of the first pack's blocks the index names one at the place of another. */
static void put_index_that_lies(struct world *w)
{
	struct bk_ids packs = {.n = 0};
	uint64_t *sizes = NULL;
	struct bk_index_builder *builder = NULL;
	const sl_driver d = shelf_driver(&w->shelf);
	bool lied = false;
	while (shelf_count(&w->shelf, "index/") > 0)
		for (size_t i = 0; i < w->shelf.n; i++)
			if (strncmp(w->shelf.objects[i].name, "index/", 6) == 0)
				(void)shelf_drop(&w->shelf, w->shelf.objects[i].name);
	assert_int_equal(sl__bk_list_packs(w->b, &packs, &sizes, NULL, NULL), 0);
	assert_int_equal(sl__bk_index_builder_new(&builder, &w->b->env, &w->b->keys, NULL), 0);
	for (size_t i = 0; i < packs.n; i++) {
		struct bk_pack_blocks p = {.pack = packs.ids[i], .size = sizes[i]};
		assert_int_equal(sl__bk_directory_blocks(w->b, &p, NULL), 0);
		if (p.n > 1 && !lied) {
			struct bk_place place = p.blocks[0].place;
			p.blocks[0].place = p.blocks[1].place;
			p.blocks[1].place = place;
			lied = true;
		}
		assert_int_equal(sl__bk_index_builder_pack(builder, &p.pack, p.blocks, p.n, NULL), 0);
		sl__free(&w->b->env, p.blocks);
	}
	assert_true(lied);
	assert_int_equal(sl__bk_index_builder_put(builder, &d, NULL, NULL), 0);
	sl__bk_index_builder_free(builder);
	sl__bk_ids_fini(&w->b->env, &packs);
	sl__free(&w->b->env, sizes);
}

static int count_index_faults(const struct sl_backup_finding *f, void *ctx)
{
	int *n = ctx;
	*n += f->fault == SL_BACKUP_FAULT_INDEX && strstr(f->reason.msg, "does not agree") != NULL;
	return 0;
}

static void an_index_that_does_not_agree_with_the_packs_is_made_anew(void **state)
{
	(void)state;
	struct world w;
	int reported = 0;
	struct sl_backup_repaired r = {.struct_size = sizeof(r)}, again = r;
	begin(&w);
	put_index_that_lies(&w);
	assert_int_equal(care_check(w.b, count_index_faults, &reported, NULL), SL_ECORRUPT);
	assert_int_equal(reported, 1);
	reported = 0;
	assert_int_equal(sl_backup_repair(w.b, count_index_faults, &reported, &r, NULL), 0);
	assert_int_equal(reported, 1);
	assert_int_equal(r.indexes_rebuilt, 1);
	assert_int_equal(r.packs_rewritten + r.packs_lost + r.files_lost + r.snapshots_rewritten + r.snapshots_lost, 0);
	assert_int_equal(shelf_count(&w.shelf, "index/"), 1);
	care_assert_right(w.b);
	care_assert_whole(w.b, w.id, tree, SL_COUNT(tree));
	assert_int_equal(sl_backup_repair(w.b, NULL, NULL, &again, NULL), 0);
	assert_int_equal(again.indexes_rebuilt, 0);
	end(&w);
}

static void a_snapshot_of_a_later_version_is_left_as_it_is(void **state)
{
	(void)state;
	struct world w;
	static const char id[] = "0123456789abcdef0123456789abcdef", later[] = "{\"version\":2,\"something\":\"new\"}";
	begin(&w);
	assert_int_equal(sl__bk_put_sealed(w.b, &(struct bk_object){"snapshots", id, BK_KIND_SNAPSHOT},
					   (struct bk_bytes){later, strlen(later)}, SL_DRIVER_NEW, NULL),
			 0);
	damage_file(&w, 1);
	struct sl_backup_repaired r = repair(&w);
	assert_int_equal(r.snapshots_rewritten, 1); /* the other one */
	assert_int_equal(r.snapshots_lost, 0);
	assert_non_null(shelf_find(&w.shelf, "snapshots/0123456789abcdef0123456789abcdef"));
	end(&w);
}

static void a_repair_is_refused_while_a_prune_runs(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	w.shelf.locked = true;
	assert_int_equal(sl_backup_repair(w.b, NULL, NULL, NULL, NULL), SL_ELOCKED);
	w.shelf.locked = false;
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_hard_link_goes_with_the_file_that_is_lost_and_the_rest_stays),
		cmocka_unit_test(every_snapshot_that_has_the_lost_file_is_repaired),
		cmocka_unit_test(a_block_that_no_snapshot_needs_costs_no_snapshot),
		cmocka_unit_test(a_block_that_is_stored_twice_survives_the_damage_of_one_place),
		cmocka_unit_test(every_change_may_fail),
		cmocka_unit_test(a_full_disk_stops_creates_prunes_and_repairs_and_loses_nothing),
		cmocka_unit_test(a_snapshot_of_a_later_version_is_left_as_it_is),
		cmocka_unit_test(an_index_that_does_not_agree_with_the_packs_is_made_anew),
		cmocka_unit_test(what_is_put_aside_takes_no_name_that_is_taken),
		cmocka_unit_test(a_folder_whose_entry_is_lost_comes_back_with_the_files_that_are_not),
		cmocka_unit_test(a_repair_is_refused_while_a_prune_runs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
