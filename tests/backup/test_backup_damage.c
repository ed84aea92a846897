/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every byte of every object of a small repository is damaged in turn: check finds each; repair keeps all that is not
 * damaged and says what is lost; a second check passes, a second repair finds nothing; and what is kept is as it was.
 *
 * SLUICE_DAMAGE_STRIDE: every so manieth byte (default 37, an odd number that meets all parts; 1: all of them).
 */
#include "backup/care_kit.h"

static const struct care_file first[] = {{.path = "a"},
					 {.path = "a/1", .seed = 1, .len = 3000},
					 {.path = "a/2", .seed = 2, .len = 300},
					 {.path = "a/2b", .seed = 2, .len = 300, .link = "a/2"},
					 {.path = "b", .seed = 3, .len = 0}};
static const struct care_file second[] = {
	{.path = "a"}, {.path = "a/1", .seed = 1, .len = 3000}, {.path = "c", .seed = 4, .len = 2000}};

struct world {
	struct shelf whole, shelf; /* as made, and the one that is damaged */
	sl_backup *b;              /* on shelf */
	char one[SL_BACKUP_ID_BYTES], two[SL_BACKUP_ID_BYTES];
};

static void make(sl_backup *b, const struct care_file *files, size_t n, char id[SL_BACKUP_ID_BYTES])
{
	struct sl_err err = SL_ERR_INIT;
	const struct care_snapshot s = {.files = files, .n = n, .time_ms = 1000};
	if (care_make(b, &s, id, &err) != 0)
		fail_msg("make: %s", err.msg);
}

/* Two snapshots, packs, index files, and a mark of a third that was forgotten. */
static void begin(struct world *w, bool encrypted)
{
	static const struct care_file third[] = {{.path = "z", .seed = 9, .len = 500}};
	char id[SL_BACKUP_ID_BYTES];
	shelf_init(&w->whole);
	shelf_init(&w->shelf);
	sl_backup *b = care_new(&w->whole, encrypted);
	make(b, third, SL_COUNT(third), id);
	care_forget(b, id);
	(void)care_prune(b);
	make(b, first, SL_COUNT(first), w->one);
	make(b, second, SL_COUNT(second), w->two);
	sl_backup_close(b);
	shelf_copy(&w->shelf, &w->whole);
	w->b = care_open(&w->shelf);
}

static void end(struct world *w)
{
	sl_backup_close(w->b);
	shelf_fini(&w->shelf);
	shelf_fini(&w->whole);
}

/* ---- what was found ---- */

struct found {
	const char *object; /* that was damaged */
	int about_it;       /* findings that name it */
	int faults;
	int files; /* that are told as lost */
};

static int note(const struct sl_backup_finding *f, void *ctx)
{
	struct found *found = ctx;
	found->faults += !f->harmless;
	found->about_it += strcmp(f->object, found->object) == 0 && !f->harmless;
	found->files += f->path != NULL;
	return 0;
}

static bool is_in(const char *name, const char *folder)
{
	return strncmp(name, folder, strlen(folder)) == 0;
}

/* ---- what is left ---- */

struct left {
	struct world *w;
	int snapshots, right, wrong;
};

static int count_snapshot(const struct sl_backup_snapshot *s, void *ctx)
{
	struct left *l = ctx;
	bool is_one = strcmp(s->id, l->w->one) == 0 || strcmp(s->parent, l->w->one) == 0;
	int n = is_one ? care_count_right(l->w->b, s->id, first, SL_COUNT(first))
		       : care_count_right(l->w->b, s->id, second, SL_COUNT(second));
	l->snapshots++;
	l->right += n > 0 ? n : 0;
	l->wrong += n < 0;
	return 0;
}

static struct left look(struct world *w)
{
	struct left l = {.w = w};
	struct sl_err err = SL_ERR_INIT;
	if (sl_backup_list(w->b, count_snapshot, NULL, &l, &err) != 0)
		fail_msg("list: %s", err.msg);
	return l;
}

/* ---- one damage ---- */

#define ALL_RIGHT 5 /* files with contents of their own, in both snapshots */

static void find_it(struct world *w, const char *name, size_t at)
{
	struct found found = {.object = name};
	int rc = care_check(w->b, note, &found, NULL);
	if (rc != SL_ECORRUPT || found.about_it == 0)
		fail_msg("byte %zu of %s is damaged, and check says %d, with %d faults, %d of it", at, name, rc,
			 found.faults, found.about_it);
}

/* frames: the byte is inside of a pack's frames, and may cost what is in one. */
static void mend_it(struct world *w, const char *name, size_t at, bool frames)
{
	struct found found = {.object = name};
	struct sl_backup_repaired r = {.struct_size = sizeof r};
	struct sl_err err = SL_ERR_INIT;
	if (sl_backup_repair(w->b, note, &found, &r, &err) != 0)
		fail_msg("byte %zu of %s is damaged, and repair fails: %s", at, name, err.msg);
	if (found.about_it == 0)
		fail_msg("byte %zu of %s is damaged, and repair does not say so", at, name);
	if (care_check(w->b, NULL, NULL, NULL) != 0) {
		care_assert_right(w->b);
		fail_msg("byte %zu of %s was damaged, and a check after the repair does not pass", at, name);
	}
	struct left l = look(w);
	int lost = ALL_RIGHT - l.right;
	if (l.wrong > 0 || l.snapshots + (int)r.snapshots_lost != 2)
		fail_msg("byte %zu of %s: %d snapshots are wrong, %d there", at, name, l.wrong, l.snapshots);
	if (!frames && !is_in(name, "snapshots/") && lost != 0)
		fail_msg("byte %zu of %s: %d files are lost for nothing", at, name, lost);
	if (r.snapshots_lost == 0 && lost > (int)r.files_lost + (int)r.blocks_lost * ALL_RIGHT)
		fail_msg("byte %zu of %s: %d files are lost, and it says %d", at, name, lost, (int)r.files_lost);
	struct sl_backup_repaired again = {.struct_size = sizeof again}, nothing = {.struct_size = sizeof nothing};
	assert_int_equal(sl_backup_repair(w->b, NULL, NULL, &again, NULL), 0);
	assert_memory_equal(&again, &nothing, sizeof again);
}

/* Config and keys are needed to open anything; their copies do. */
static void open_all_the_same(struct world *w, const char *name, size_t at)
{
	sl_backup *b = NULL;
	struct sl_err err = SL_ERR_INIT;
	if (care_try_open(&b, &w->shelf, &err) != 0)
		fail_msg("byte %zu of %s is damaged, and it does not open: %s", at, name, err.msg);
	sl_backup_close(b);
}

struct frames {
	size_t end;
};

static int note_frame(const struct bk_id *id, const struct bk_place *place, void *ctx)
{
	struct frames *f = ctx;
	(void)id;
	f->end = SL_MAX(f->end, (size_t)place->frame_offset + place->frame_stored);
	return 0;
}

/* Where the frames of a pack end; 0 for anything else. */
static size_t frames_end(struct world *w, const struct shelf_object *o)
{
	struct frames f = {0};
	struct bk_id pack;
	if (is_in(o->name, "packs/")) {
		assert_true(sl__bk_unhex(o->name + strlen("packs/00/"), pack.b, sizeof pack.b));
		assert_int_equal(sl__bk_read_directory(w->b, &pack, o->len, note_frame, &f, NULL), 0);
	}
	return f.end;
}

static size_t damage_object(struct world *w, size_t index, size_t stride)
{
	size_t done = 0;
	shelf_copy(&w->shelf, &w->whole);
	size_t end = frames_end(w, &w->shelf.objects[index]);
	/* Of a pack's header nothing but the name of the file tells: a closer look at its few bytes. */
	size_t close = is_in(w->whole.objects[index].name, "packs/") ? SL_MIN(stride, (size_t)7) : stride;
	for (size_t at = index % close; at < w->whole.objects[index].len;
	     at += at < BK_PACK_HEADER ? close : stride, done++) {
		char name[SL_DRIVER_NAME_BYTES];
		shelf_copy(&w->shelf, &w->whole);
		memcpy(name, w->shelf.objects[index].name, sizeof name);
		w->shelf.objects[index].bytes[at] ^= (uint8_t)(1u << (at % 8));
		if (is_in(name, "keys/") || is_in(name, "config"))
			open_all_the_same(w, name, at);
		find_it(w, name, at);
		mend_it(w, name, at, at >= BK_PACK_HEADER && at < end);
	}
	return done;
}

static void damage_all(bool encrypted)
{
	struct world w;
	const char *text = getenv("SLUICE_DAMAGE_STRIDE");
	size_t stride = text != NULL ? strtoul(text, NULL, 10) : 37, done = 0;
	begin(&w, encrypted);
	assert_true(stride > 0);
	assert_int_equal(look(&w).right, ALL_RIGHT);
	for (size_t i = 0; i < w.whole.n; i++)
		done += damage_object(&w, i, stride);
	print_message("# %zu bytes of %zu objects damaged in turn\n", done, w.whole.n);
	end(&w);
}

static void every_damaged_byte_of_a_plain_repository_is_found_and_mended(void **state)
{
	(void)state;
	damage_all(false);
}

static void every_damaged_byte_of_an_encrypted_repository_is_found_and_mended(void **state)
{
	(void)state;
	damage_all(true);
}

/* ---- objects that are cut off, or gone ---- */

static void every_object_may_be_cut_off(void **state)
{
	(void)state;
	struct world w;
	begin(&w, false);
	for (size_t i = 0; i < w.whole.n; i++) {
		for (size_t cut = 0; cut < 3; cut++) {
			char name[SL_DRIVER_NAME_BYTES];
			shelf_copy(&w.shelf, &w.whole);
			memcpy(name, w.shelf.objects[i].name, sizeof name);
			w.shelf.objects[i].len = cut == 0   ? 0
						 : cut == 1 ? w.whole.objects[i].len / 2
							    : w.whole.objects[i].len - 1;
			find_it(&w, name, w.shelf.objects[i].len);
			mend_it(&w, name, w.shelf.objects[i].len, is_in(name, "packs/"));
		}
	}
	end(&w);
}

static void a_missing_index_costs_nothing(void **state)
{
	(void)state;
	struct world w;
	begin(&w, false);
	for (size_t i = 0; i < w.shelf.n;) {
		if (is_in(w.shelf.objects[i].name, "index/"))
			(void)shelf_drop(&w.shelf, w.shelf.objects[i].name);
		else
			i++;
	}
	struct sl_backup_checked out = {.struct_size = sizeof out};
	assert_int_equal(care_check(w.b, NULL, NULL, &out), 0);
	assert_true(out.harmless > 0);
	assert_int_equal(look(&w).right, ALL_RIGHT);
	end(&w);
}

static void a_missing_pack_is_told_with_the_files_it_costs(void **state)
{
	(void)state;
	struct world w;
	begin(&w, false);
	for (size_t i = 0; i < w.whole.n; i++) {
		char name[SL_DRIVER_NAME_BYTES];
		if (!is_in(w.whole.objects[i].name, "packs/"))
			continue;
		shelf_copy(&w.shelf, &w.whole);
		memcpy(name, w.whole.objects[i].name, sizeof name);
		assert_true(shelf_drop(&w.shelf, name));
		struct found found = {.object = name};
		int rc = care_check(w.b, note, &found, NULL);
		struct sl_backup_repaired r = {.struct_size = sizeof r};
		assert_int_equal(sl_backup_repair(w.b, NULL, NULL, &r, NULL), 0);
		care_assert_right(w.b);
		struct left l = look(&w);
		assert_int_equal(l.wrong, 0);
		assert_int_equal(rc == SL_ECORRUPT, l.right < ALL_RIGHT);
		if (rc != 0)
			assert_true(found.about_it > 0 && found.faults > 1);
	}
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_damaged_byte_of_a_plain_repository_is_found_and_mended),
		cmocka_unit_test(every_damaged_byte_of_an_encrypted_repository_is_found_and_mended),
		cmocka_unit_test(every_object_may_be_cut_off),
		cmocka_unit_test(a_missing_index_costs_nothing),
		cmocka_unit_test(a_missing_pack_is_told_with_the_files_it_costs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
