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
	int files; /* that are reported as lost */
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

/* ---- what one damage may cost ---- */

struct looking_for {
	struct bk_id id;
	bool found;
};

static int is_it(const struct bk_id *id, const struct bk_place *place, void *ctx)
{
	struct looking_for *l = ctx;
	(void)place;
	l->found = l->found || memcmp(id, &l->id, sizeof(*id)) == 0;
	return 0;
}

/* Whether the contents of a file are in this object: in a pack, as it was when it was whole. */
static bool has_contents(struct world *w, const char *name, const struct care_file *file)
{
	const struct shelf_object *o = shelf_find(&w->whole, name);
	struct looking_for l = {.found = false};
	struct bk_hasher *hasher = NULL;
	struct bk_id pack;
	if (!is_in(name, "packs/") || file->len == 0)
		return false;
	uint8_t *bytes = care_bytes(file), *image = malloc(o->len);
	assert_non_null(image);
	memcpy(image, o->bytes, o->len);
	assert_int_equal(sl__bk_hasher_new(&hasher, &w->b->env, &w->b->keys, NULL), 0);
	assert_int_equal(sl__bk_hash(hasher, bytes, file->len, &l.id, NULL), 0);
	assert_true(sl__bk_unhex(name + strlen("packs/00/"), pack.b, sizeof(pack.b)));
	struct bk_pack_end last = {.bytes = image, .n = o->len, .pack_size = o->len};
	assert_int_equal(sl__bk_directory_read(&w->b->keys, &last, is_it, &l, NULL), 0);
	sl__bk_hasher_free(hasher);
	free(image);
	free(bytes);
	return l.found;
}

struct costing {
	struct world *w;
	const char *name; /* of the object that is damaged or gone */
	const char *when;
	bool repaired;
	const struct care_file *files;
	size_t n;
	size_t entries; /* that were listed, and are of the snapshot */
	const uint8_t *bytes;
	size_t len, at;
	int snapshots;
};

static int count_entry(const struct sl_backup_entry *e, void *ctx)
{
	struct costing *c = ctx;
	for (size_t i = 0; i < c->n; i++)
		c->entries += strcmp(e->path, c->files[i].path) == 0;
	return 0;
}

static int compare_bytes(const void *bytes, size_t len, void *ctx)
{
	struct costing *c = ctx;
	if (len > c->len - c->at || memcmp(c->bytes + c->at, bytes, len) != 0)
		return 1;
	c->at += len;
	return 0;
}

/* Every name is there; every file has its bytes, unless these were in what is damaged. */
static int cost_of_snapshot(const struct sl_backup_snapshot *s, void *ctx)
{
	struct costing *c = ctx;
	struct sl_err err = SL_ERR_INIT;
	bool is_one = strcmp(s->id, c->w->one) == 0 || strcmp(s->parent, c->w->one) == 0;
	size_t lost = 0;
	c->files = is_one ? first : second;
	c->n = is_one ? SL_COUNT(first) : SL_COUNT(second);
	c->snapshots++;
	for (size_t i = 0; i < c->n; i++) {
		const struct care_file *f = &c->files[i];
		const struct care_file *of = f;
		for (size_t k = 0; f->link != NULL && k < c->n; k++)
			of = strcmp(c->files[k].path, f->link) == 0 ? &c->files[k] : of;
		bool may_be_lost = of->seed != 0 && has_contents(c->w, c->name, of);
		lost += may_be_lost;
		if (f->seed == 0 || may_be_lost)
			continue;
		uint8_t *bytes = care_bytes(f);
		c->bytes = bytes;
		c->len = f->len;
		c->at = 0;
		int rc = sl_backup_cat(c->w->b, s->id, f->path, compare_bytes, c, &err);
		if (rc != 0 || c->at != c->len)
			fail_msg("%s %s: %s of %.8s: %s", c->name, c->when, f->path, s->id,
				 rc != 0 ? err.msg : "short");
		free(bytes);
	}
	c->entries = 0;
	int rc = sl_backup_ls(c->w->b, s->id, NULL, count_entry, c, &err);
	if (rc != 0 || c->entries < c->n - (c->repaired ? lost : 0))
		fail_msg("%s %s: %zu of %zu names of %.8s: %s", c->name, c->when, c->entries, c->n, s->id,
			 rc != 0 ? err.msg : "");
	return 0;
}

/* A damaged byte, or an object that is gone, costs no more than the contents of files that are in it. */
static void expect_the_rest(struct world *w, const char *name, const char *when, bool repaired)
{
	struct costing c = {.w = w, .name = name, .when = when, .repaired = repaired};
	struct sl_err err = SL_ERR_INIT;
	if (sl_backup_list(w->b, cost_of_snapshot, NULL, &c, &err) != 0)
		fail_msg("%s %s: list: %s", name, when, err.msg);
	if (c.snapshots != 2)
		fail_msg("%s %s: %d snapshots are there", name, when, c.snapshots);
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
static void repair_it(struct world *w, const char *name, size_t at, bool frames)
{
	struct found found = {.object = name};
	struct sl_backup_repaired r = {.struct_size = sizeof(r)};
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
	struct sl_backup_repaired again = {.struct_size = sizeof(again)}, nothing = {.struct_size = sizeof(nothing)};
	assert_int_equal(sl_backup_repair(w->b, NULL, NULL, &again, NULL), 0);
	assert_memory_equal(&again, &nothing, sizeof(again));
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
		assert_true(sl__bk_unhex(o->name + strlen("packs/00/"), pack.b, sizeof(pack.b)));
		struct bk_pack_blocks p = {.pack = pack, .size = o->len};
		assert_int_equal(sl__bk_directory_blocks(w->b, &p, NULL), 0);
		for (size_t i = 0; i < p.n; i++)
			assert_int_equal(note_frame(&p.blocks[i].id, &p.blocks[i].place, &f), 0);
		sl__free(&w->b->env, p.blocks);
	}
	return f.end;
}

static size_t damage_object(struct world *w, size_t index, size_t stride)
{
	size_t done = 0;
	shelf_copy(&w->shelf, &w->whole);
	size_t end = frames_end(w, &w->shelf.objects[index]);
	/* Damage to a pack's header shows only by the file's name: its few bytes are sampled more densely. */
	size_t close = is_in(w->whole.objects[index].name, "packs/") ? SL_MIN(stride, (size_t)7) : stride;
	for (size_t at = index % close; at < w->whole.objects[index].len;
	     at += at < BK_PACK_HEADER ? close : stride, done++) {
		char name[SL_DRIVER_NAME_BYTES];
		shelf_copy(&w->shelf, &w->whole);
		memcpy(name, w->shelf.objects[index].name, sizeof(name));
		w->shelf.objects[index].bytes[at] ^= (uint8_t)(1u << (at % 8));
		if (is_in(name, "keys/") || is_in(name, "config"))
			open_all_the_same(w, name, at);
		expect_the_rest(w, name, "is damaged", false);
		find_it(w, name, at);
		repair_it(w, name, at, at >= BK_PACK_HEADER && at < end);
		expect_the_rest(w, name, "was damaged and repaired", true);
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

static void every_damaged_byte_of_a_plain_repository_is_found_and_repaired(void **state)
{
	(void)state;
	damage_all(false);
}

static void every_damaged_byte_of_an_encrypted_repository_is_found_and_repaired(void **state)
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
			memcpy(name, w.shelf.objects[i].name, sizeof(name));
			w.shelf.objects[i].len = cut == 0   ? 0
						 : cut == 1 ? w.whole.objects[i].len / 2
							    : w.whole.objects[i].len - 1;
			expect_the_rest(&w, name, "is cut off", false);
			find_it(&w, name, w.shelf.objects[i].len);
			repair_it(&w, name, w.shelf.objects[i].len, is_in(name, "packs/"));
			expect_the_rest(&w, name, "was cut off and repaired", true);
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
	struct sl_backup_checked out = {.struct_size = sizeof(out)};
	assert_int_equal(care_check(w.b, NULL, NULL, &out), 0);
	assert_true(out.harmless > 0);
	assert_int_equal(look(&w).right, ALL_RIGHT);
	end(&w);
}

/* What is to be there twice, and is not. */
static int count_single(const struct sl_backup_finding *f, void *ctx)
{
	int *n = ctx;
	*n += f->fault != SL_BACKUP_FAULT_UNINDEXED && f->fault != SL_BACKUP_FAULT_STRAY;
	return 0;
}

static int count_copies(const struct sl_backup_finding *f, void *ctx)
{
	int *n = ctx;
	*n += f->fault == SL_BACKUP_FAULT_ONE_COPY;
	return 0;
}

static void every_object_may_be_gone(bool encrypted)
{
	struct world w;
	begin(&w, encrypted);
	for (size_t i = 0; i < w.whole.n; i++) {
		char name[SL_DRIVER_NAME_BYTES];
		shelf_copy(&w.shelf, &w.whole);
		memcpy(name, w.whole.objects[i].name, sizeof(name));
		assert_true(shelf_drop(&w.shelf, name));
		expect_the_rest(&w, name, "is gone", false);
		assert_int_equal(sl_backup_repair(w.b, NULL, NULL, NULL, NULL), 0);
		care_assert_right(w.b);
		expect_the_rest(&w, name, "was gone and repaired", true);
		/* And what was there twice is there twice again: any other loss costs no more. */
		int single = 0;
		assert_int_equal(care_check(w.b, count_single, &single, NULL), 0);
		assert_int_equal(single, 0);
	}
	end(&w);
}

static void any_lost_object_costs_no_more_than_the_contents_in_it(void **state)
{
	(void)state;
	every_object_may_be_gone(false);
	every_object_may_be_gone(true);
}

/* A create counts on the index; one that is damaged is made good by it from the packs, without a repair. */
static void a_damaged_index_does_not_stop_creates(void **state)
{
	(void)state;
	struct world w;
	size_t done = 0;
	begin(&w, false);
	for (size_t i = 0; i < w.whole.n; i++) {
		if (!is_in(w.whole.objects[i].name, "index/"))
			continue;
		for (size_t at = i % 37; at < w.whole.objects[i].len; at += 37, done++) {
			char id[SL_BACKUP_ID_BYTES];
			shelf_copy(&w.shelf, &w.whole);
			size_t packs = shelf_count(&w.shelf, "packs/");
			w.shelf.objects[i].bytes[at] ^= 1;
			make(w.b, first, SL_COUNT(first), id);
			care_assert_whole(w.b, id, first, SL_COUNT(first));
			make(w.b, second, SL_COUNT(second), id);
			care_assert_whole(w.b, id, second, SL_COUNT(second));
			assert_int_equal(shelf_count(&w.shelf, "packs/"), packs); /* everything was there */
		}
	}
	print_message("# %zu bytes of the index damaged in turn\n", done);
	assert_true(done > 10);
	end(&w);
}

/* Any pack that has metadata is lost: the next prune puts what is left of it into a second pack again, and so does the
 * next create for its own manifest. */
static void prune_and_create_put_metadata_into_a_second_pack_again(void **state)
{
	(void)state;
	struct world w;
	int repaired = 0;
	begin(&w, false);
	for (size_t i = 0; i < w.whole.n; i++) {
		const char *name = w.whole.objects[i].name;
		bool contents = false;
		for (size_t k = 0; k < SL_COUNT(first); k++)
			contents = contents || (first[k].seed != 0 && has_contents(&w, name, &first[k]));
		for (size_t k = 0; k < SL_COUNT(second); k++)
			contents = contents || (second[k].seed != 0 && has_contents(&w, name, &second[k]));
		if (!is_in(name, "packs/") || contents)
			continue;
		for (int by_prune = 0; by_prune < 2; by_prune++) {
			int before = 0, after = 0;
			char id[SL_BACKUP_ID_BYTES];
			shelf_copy(&w.shelf, &w.whole);
			assert_true(shelf_drop(&w.shelf, name));
			assert_int_equal(care_check(w.b, count_single, &before, NULL), 0);
			if (by_prune)
				(void)care_prune(w.b);
			else {
				make(w.b, first, SL_COUNT(first), id);
				make(w.b, second, SL_COUNT(second), id);
			}
			assert_int_equal(care_check(w.b, count_copies, &after, NULL), 0);
			assert_int_equal(after, 0);
			repaired += before > 0;
		}
	}
	assert_true(repaired >= 4); /* the second copies of two manifests, each in two ways */
	end(&w);
}

static void a_missing_pack_is_reported_with_the_files_it_costs(void **state)
{
	(void)state;
	struct world w;
	begin(&w, false);
	for (size_t i = 0; i < w.whole.n; i++) {
		char name[SL_DRIVER_NAME_BYTES];
		if (!is_in(w.whole.objects[i].name, "packs/"))
			continue;
		shelf_copy(&w.shelf, &w.whole);
		memcpy(name, w.whole.objects[i].name, sizeof(name));
		assert_true(shelf_drop(&w.shelf, name));
		struct found found = {.object = name};
		int rc = care_check(w.b, note, &found, NULL);
		struct sl_backup_repaired r = {.struct_size = sizeof(r)};
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
		cmocka_unit_test(every_damaged_byte_of_a_plain_repository_is_found_and_repaired),
		cmocka_unit_test(every_damaged_byte_of_an_encrypted_repository_is_found_and_repaired),
		cmocka_unit_test(every_object_may_be_cut_off),
		cmocka_unit_test(a_missing_index_costs_nothing),
		cmocka_unit_test(any_lost_object_costs_no_more_than_the_contents_in_it),
		cmocka_unit_test(a_damaged_index_does_not_stop_creates),
		cmocka_unit_test(prune_and_create_put_metadata_into_a_second_pack_again),
		cmocka_unit_test(a_missing_pack_is_reported_with_the_files_it_costs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
