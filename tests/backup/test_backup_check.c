/* SPDX-License-Identifier: Apache-2.0 */
/* Check: what it finds without reading all data, what is harmless, who is named, and what it leaves alone. */
#include "backup/care_pair.h"
#include "backup/check/check.h"
#include "support/fault.h"

static struct shelf_object *any_in(struct world *w, const char *folder)
{
	for (size_t i = 0; i < w->shelf.n; i++)
		if (strncmp(w->shelf.objects[i].name, folder, strlen(folder)) == 0)
			return &w->shelf.objects[i];
	fail_msg("nothing in %s", folder);
	return NULL;
}

static int check(struct world *w, bool read_data, sl_backup_finding_fn *fn, void *ctx, struct sl_backup_checked *out)
{
	const struct sl_backup_check_opts opts = {SL_BACKUP_CHECK_OPTS_INIT, .read_data = read_data ? SL_ON : SL_OFF,
						  .on_finding = fn, .ctx = ctx};
	return sl_backup_check(w->b, &opts, out, NULL);
}

struct noted {
	int n, of[SL_BACKUP_FAULT_ONE_COPY + 1], harmless, files;
	char path[64], snapshot[SL_BACKUP_ID_BYTES];
};

static int note(const struct sl_backup_finding *f, void *ctx)
{
	struct noted *n = ctx;
	n->n++;
	n->of[f->fault]++;
	n->harmless += f->harmless;
	if (f->path != NULL) {
		n->files++;
		snprintf(n->path, sizeof(n->path), "%s", f->path);
		snprintf(n->snapshot, sizeof(n->snapshot), "%s", f->snapshot);
	}
	return 0;
}

static void a_right_repository_passes_and_is_counted(void **state)
{
	(void)state;
	struct world w;
	struct noted n = {0};
	struct sl_backup_checked out = {.struct_size = sizeof(out)};
	begin(&w);
	int64_t before = w.shelf.changes;
	assert_int_equal(check(&w, true, note, &n, &out), 0);
	assert_int_equal(out.snapshots, 2);
	assert_int_equal(out.packs, 4);  /* of each create one for the second copy of its manifest */
	assert_int_equal(out.blocks, 7); /* three contents, two manifests, each of these twice */
	assert_int_equal(out.findings + (uint64_t)n.n, 0);
	assert_true(out.bytes > 0);
	assert_int_equal(w.shelf.changes, before);
	end(&w);
}

static void damage_inside_of_a_frame_is_found_only_by_reading_it(void **state)
{
	(void)state;
	struct world w;
	static const struct care_file big[] = {{.path = "big", .seed = 1, .len = BK_SOLID_BELOW}};
	char id[SL_BACKUP_ID_BYTES];
	shelf_init(&w.shelf);
	w.b = care_new(&w.shelf, false);
	make(w.b, big, SL_COUNT(big), id);
	any_in(&w, "packs/")->bytes[BK_PACK_HEADER + 40] ^= 1; /* a frame before the one with the names */
	assert_int_equal(check(&w, false, NULL, NULL, NULL), 0);
	assert_int_equal(check(&w, true, NULL, NULL, NULL), SL_ECORRUPT);
	end(&w);
}

static void a_damaged_directory_is_found_without_reading_data(void **state)
{
	(void)state;
	struct world w;
	struct noted n = {0};
	begin(&w);
	struct shelf_object *pack = any_in(&w, "packs/");
	pack->bytes[pack->len - 40] ^= 1;
	assert_int_equal(check(&w, false, note, &n, NULL), SL_ECORRUPT);
	assert_int_equal(n.of[SL_BACKUP_FAULT_PACK], 1);
	end(&w);
}

static void files_that_a_damaged_pack_costs_are_named_with_their_snapshot(void **state)
{
	(void)state;
	struct world w;
	struct noted n = {0};
	begin(&w);
	/* The second snapshot's pack: its own file, and its manifest. */
	for (size_t i = 0; i < w.shelf.n; i++)
		if (strncmp(w.shelf.objects[i].name, "packs/", 6) == 0 && w.shelf.objects[i].len > 30000)
			assert_true(shelf_drop(&w.shelf, w.shelf.objects[i].name));
	assert_int_equal(check(&w, false, note, &n, NULL), SL_ECORRUPT);
	assert_int_equal(n.of[SL_BACKUP_FAULT_MISSING_PACK], 1);
	assert_true(n.of[SL_BACKUP_FAULT_MISSING_BLOCK] >= 1);
	end(&w);
}

static void strays_and_packs_in_no_index_are_harmless(void **state)
{
	(void)state;
	struct world w;
	struct noted n = {0};
	begin(&w);
	sl_driver d = shelf_driver(&w.shelf);
	assert_int_equal(d.ops->put(d.driver, "packs/00/notes.txt", "x", 1, SL_DRIVER_NEW, NULL), 0);
	char index[SL_DRIVER_NAME_BYTES];
	memcpy(index, any_in(&w, "index/")->name, sizeof(index));
	assert_true(shelf_drop(&w.shelf, index));
	assert_int_equal(d.ops->put(d.driver, "snapshots/readme", "x", 1, SL_DRIVER_NEW, NULL), 0);
	assert_int_equal(check(&w, true, note, &n, NULL), 0);
	assert_int_equal(n.of[SL_BACKUP_FAULT_STRAY], 2);
	assert_int_equal(n.of[SL_BACKUP_FAULT_UNINDEXED], 2);
	assert_int_equal(n.harmless, 4);
	end(&w);
}

/* A disk that cannot read a place is not damage that repair could judge, but check continues and reports the loss. */
static void a_pack_that_cannot_be_read_is_reported_and_the_others_are_checked(void **state)
{
	(void)state;
	struct world w;
	struct noted n = {0};
	char name[SL_DRIVER_NAME_BYTES];
	begin(&w);
	memcpy(name, any_in(&w, "packs/")->name, sizeof(name));
	w.shelf.unreadable = name;
	assert_int_equal(check(&w, true, note, &n, NULL), SL_ECORRUPT);
	assert_true(n.of[SL_BACKUP_FAULT_PACK] > 1);
	assert_int_equal(sl_backup_repair(w.b, NULL, NULL, NULL, NULL), SL_EIO);
	assert_int_equal(shelf_count(&w.shelf, "damaged/"), 0);
	w.shelf.unreadable = NULL;
	care_assert_right(w.b);
	end(&w);
}

static int stop_now(const struct sl_backup_finding *f, void *ctx)
{
	(void)f;
	++*(int *)ctx;
	return 42;
}

static void a_caller_may_stop_the_findings(void **state)
{
	(void)state;
	struct world w;
	int reported = 0;
	begin(&w);
	any_in(&w, "index/")->bytes[100] ^= 1;
	any_in(&w, "packs/")->bytes[100] ^= 1;
	assert_int_equal(check(&w, true, stop_now, &reported, NULL), 42);
	assert_int_equal(reported, 1);
	end(&w);
}

/* A prune that copies a block and deletes its pack while check lists the packs: the listing may be past the new pack
 * already, and the old one may be gone when it gets there. What seems to be missing is checked again. */
struct meanwhile {
	struct world *w;
	bool done;
};

static void prune_meanwhile(const char *what, const char *name, void *ctx)
{
	struct meanwhile *m = ctx;
	if (m->done || strcmp(what, "list") != 0 || strcmp(name, "packs/80") != 0)
		return;
	m->done = true;
	sl_backup *b = care_open(&m->w->shelf);
	const struct sl_backup_prune_opts opts = {SL_BACKUP_PRUNE_OPTS_INIT, .repack_percent = 95};
	for (int i = 0; i < 2; i++)
		assert_int_equal(sl_backup_prune(b, &opts, NULL, NULL), 0);
	sl_backup_close(b);
}

static void check_beside_prune(void)
{
	struct world w;
	begin(&w);
	care_forget(w.b, w.one);
	struct meanwhile m = {.w = &w};
	w.shelf.gate_ctx = &m;
	w.shelf.gate = prune_meanwhile;
	assert_int_equal(check(&w, false, NULL, NULL, NULL), 0);
	w.shelf.gate = NULL;
	assert_true(m.done);
	assert_int_equal(shelf_count(&w.shelf, "marks/"), 0);
	care_assert_whole(w.b, w.two, second, SL_COUNT(second));
	end(&w);
}

static void a_prune_that_moves_blocks_meanwhile_is_not_taken_for_damage(void **state)
{
	(void)state;
	for (int i = 0; i < 40;
	     i++) /* names are random: in a fourth of these the old pack is after and the new before */
		check_beside_prune();
}

/* ---- without memory ---- */

static int run_check(sl_backup *b)
{
	const struct sl_backup_check_opts opts = {SL_BACKUP_CHECK_OPTS_INIT, .read_data = SL_ON};
	return sl_backup_check(b, &opts, NULL, NULL);
}

static int run_prune(sl_backup *b)
{
	const struct sl_backup_prune_opts opts = {SL_BACKUP_PRUNE_OPTS_INIT, .repack_percent = 95};
	return sl_backup_prune(b, &opts, NULL, NULL);
}

#define ID "0000000000000000000000000000000" /* of a key, but for its last digit */

static int run_forget(sl_backup *b)
{
	const struct sl_backup_forget_opts opts = {SL_BACKUP_FORGET_OPTS_INIT, .keep_last = 1};
	return sl_backup_forget(b, &opts, NULL, NULL);
}

static int run_repair(sl_backup *b)
{
	return sl_backup_repair(b, NULL, NULL, NULL, NULL);
}

/* The objects of one shelf into another, in place of those that are there. */
static void put_all(struct shelf *to, const struct shelf *from)
{
	const sl_driver d = shelf_driver(to);
	for (size_t i = 0; i < from->n; i++)
		assert_int_equal(d.ops->put(d.driver, from->objects[i].name, from->objects[i].bytes,
					    from->objects[i].len, SL_DRIVER_REPLACE, NULL),
				 0);
}

static void drop_keys(struct shelf *s)
{
	for (size_t i = 0; i < s->n;) {
		char name[SL_DRIVER_NAME_BYTES];
		memcpy(name, s->objects[i].name, sizeof(name));
		if (strncmp(name, "keys/", 5) == 0 || strncmp(name, "copies/keys/", 12) == 0)
			assert_true(shelf_drop(s, name));
		else
			i++;
	}
}

/* Every allocation fails in turn: a clean error or none, nothing kept, and nothing of the repository lost. hurt (may be
 * NULL): what is put there once the repository is open, which a second run repairs; its keys have no place in a plain
 * repository. */
static void starve(const struct shelf *from, int (*run)(sl_backup *b), const struct shelf *hurt)
{
	struct shelf shelf;
	shelf_init(&shelf);
	for (int64_t n = 1;; n++) {
		struct fault f;
		sl_backup *b = NULL;
		shelf_copy(&shelf, from);
		fault_init(&f, NULL);
		struct sl_env env = fault_env(&f, NULL);
		const struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .env = &env, .threads = 1,
						    .max_retry_attempts = 1};
		const sl_driver driver = shelf_driver(&shelf);
		assert_int_equal(sl_backup_open(&b, &driver, &opts, NULL), 0);
		if (hurt != NULL)
			put_all(&shelf, hurt);
		fault_arm_mem(&f, n, FAULT_ONCE);
		int rc = run(b);
		int64_t failed = fault_mem_failed(&f);
		fault_disarm(&f);
		if (failed == 0)
			assert_int_equal(rc, 0);
		if (hurt != NULL)
			assert_int_equal(run(b), 0);
		sl_backup_close(b);
		assert_int_equal(fault_live_allocs(&f), 0);
		fault_fini(&f);
		drop_keys(&shelf);
		b = care_open(&shelf);
		care_assert_right(b);
		sl_backup_close(b);
		if (failed == 0)
			break;
		if (n > 200)
			n += 6; /* the listing of 256 folders is much of the same */
	}
	shelf_fini(&shelf);
}

/* A damaged config, and every kind of key that is there only once. */
static void hurt_twins(struct shelf *s, const struct shelf_object *config)
{
	struct shelf encrypted;
	const sl_driver d = shelf_driver(s);
	shelf_init(&encrypted);
	sl_backup_close(care_new(&encrypted, true));
	for (size_t i = 0; i < encrypted.n; i++) {
		const struct shelf_object *o = &encrypted.objects[i];
		if (strncmp(o->name, "keys/", 5) != 0)
			continue;
		assert_int_equal(d.ops->put(d.driver, "keys/" ID "1", o->bytes, o->len - 1, SL_DRIVER_NEW, NULL), 0);
		assert_int_equal(d.ops->put(d.driver, "copies/keys/" ID "1", o->bytes, o->len, SL_DRIVER_NEW, NULL), 0);
		assert_int_equal(d.ops->put(d.driver, "keys/" ID "2", o->bytes, o->len, SL_DRIVER_NEW, NULL), 0);
		assert_int_equal(d.ops->put(d.driver, "copies/keys/" ID "3", o->bytes, o->len, SL_DRIVER_NEW, NULL), 0);
		assert_int_equal(d.ops->put(d.driver, "keys/" ID "4", o->bytes, o->len - 1, SL_DRIVER_NEW, NULL), 0);
	}
	assert_int_equal(d.ops->put(d.driver, "config", config->bytes, config->len, SL_DRIVER_NEW, NULL), 0);
	shelf_find(s, "config")->bytes[7] ^= 1;
	shelf_fini(&encrypted);
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	struct world w;
	struct shelf damaged, hurt;
	begin(&w);
	starve(&w.shelf, run_check, NULL);
	care_forget(w.b, w.one);
	starve(&w.shelf, run_prune, NULL);
	make(w.b, first, SL_COUNT(first), w.one);
	starve(&w.shelf, run_forget, NULL);
	shelf_init(&damaged);
	shelf_copy(&damaged, &w.shelf);
	struct world d = {.shelf = damaged};
	any_in(&d, "packs/")->bytes[BK_PACK_HEADER + 40] ^= 1;
	shelf_init(&hurt);
	hurt_twins(&hurt, shelf_find(&d.shelf, "config"));
	starve(&d.shelf, run_repair, &hurt);
	shelf_fini(&hurt);
	shelf_fini(&d.shelf);
	end(&w);
}

/* ---- calls that fail ---- */

/* The Nth call that reads fails, whichever it is. The rest of the driver is a shelf's. */
struct failing {
	struct sl_driver_ops ops;
	sl_driver shelf;
	int64_t at, calls; /* from 1; 0: none */
};

static bool fails_now(struct failing *f)
{
	return ++f->calls == f->at;
}

static int failing_get(void *driver, const char *name, uint64_t offset, void *bytes, size_t len, size_t *got,
		       struct sl_err *err)
{
	struct failing *f = driver;
	return fails_now(f) ? sl_err_set(err, SL_EACCES, "get %s: not allowed", name)
			    : f->shelf.ops->get(f->shelf.driver, name, offset, bytes, len, got, err);
}

static int failing_list(void *driver, const char *folder, sl_driver_list_fn *fn, void *ctx, struct sl_err *err)
{
	struct failing *f = driver;
	return fails_now(f) ? sl_err_set(err, SL_EACCES, "list %s: not allowed", folder)
			    : f->shelf.ops->list(f->shelf.driver, folder, fn, ctx, err);
}

static int failing_stat(void *driver, const char *name, struct sl_driver_stat *out, struct sl_err *err)
{
	struct failing *f = driver;
	return fails_now(f) ? sl_err_set(err, SL_EACCES, "stat %s: not allowed", name)
			    : f->shelf.ops->stat(f->shelf.driver, name, out, err);
}

/* A check that could not read something never passes, and never reports that as damage. */
static void every_call_that_reads_may_fail(void **state)
{
	(void)state;
	struct world w;
	sl_backup *b = NULL;
	begin(&w);
	struct failing f = {.shelf = shelf_driver(&w.shelf)};
	f.ops = *f.shelf.ops;
	f.ops.get = failing_get;
	f.ops.list = failing_list;
	f.ops.stat = failing_stat;
	const sl_driver d = {.ops = &f.ops, .driver = &f};
	const struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .threads = 1};
	assert_int_equal(sl_backup_open(&b, &d, &opts, NULL), 0);
	int64_t n = 0;
	for (bool failed = true; failed; n++) {
		struct noted noted = {0};
		struct sl_err err = SL_ERR_INIT;
		const struct sl_backup_check_opts check_opts = {SL_BACKUP_CHECK_OPTS_INIT, .read_data = SL_ON,
								.on_finding = note, .ctx = &noted};
		f.calls = 0;
		f.at = n + 1;
		int rc = sl_backup_check(b, &check_opts, NULL, &err);
		failed = f.calls >= f.at;
		if (rc != (failed ? SL_EACCES : 0) || noted.n != 0)
			fail_msg("call %lld failed, and check says %d with %d findings: %s", (long long)f.at, rc,
				 noted.n, err.msg);
		if (failed)
			assert_non_null(strstr(err.msg, "not allowed"));
	}
	print_message("# %lld calls failed in turn\n", (long long)n - 1);
	assert_true(n > 20);
	sl_backup_close(b);
	end(&w);
}

/* ---- blocks ---- */

struct about {
	const char *object;
	int faults;
};

static int count_about(const struct sl_backup_finding *f, void *ctx)
{
	struct about *a = ctx;
	a->faults += strcmp(f->object, a->object) == 0 && f->fault == SL_BACKUP_FAULT_PACK && !f->harmless;
	return 0;
}

/* As bad memory makes one at a create: seals and name are right, but a block has not the bytes of its id (F1). */
static void a_block_that_is_not_that_of_its_id_is_found_though_its_pack_is_sealed(void **state)
{
	(void)state;
	struct world w;
	struct bk_pack *p = NULL;
	struct bk_pack_image image = {.bytes = NULL};
	struct bk_id id;
	bool full;
	char name[SL_DRIVER_NAME_BYTES];
	begin(&w);
	const sl_driver d = shelf_driver(&w.shelf);
	memset(id.b, 0x33, sizeof(id.b));
	assert_int_equal(sl__bk_pack_new(&p, &w.b->env,
					 &(struct bk_pack_opts){.keys = &w.b->keys, .level = 0, .pack_bytes = 1 << 20},
					 NULL),
			 0);
	assert_int_equal(sl__bk_pack_add(p, &(struct bk_block){&id, "another", 7}, &full, NULL), 0);
	assert_int_equal(sl__bk_pack_take(p, &image, NULL), 0);
	sl__bk_pack_name(&image.name, name);
	assert_int_equal(d.ops->put(d.driver, name, image.bytes, image.len, SL_DRIVER_NEW, NULL), 0);
	struct about a = {.object = name};
	assert_int_equal(care_check(w.b, count_about, &a, NULL), SL_ECORRUPT);
	assert_int_equal(a.faults, 1);
	struct sl_backup_repaired r = {.struct_size = sizeof(r)};
	assert_int_equal(sl_backup_repair(w.b, NULL, NULL, &r, NULL), 0);
	assert_int_equal(r.blocks_lost, 1);
	assert_int_equal(r.files_lost + r.snapshots_lost, 0);
	care_assert_right(w.b);
	sl__bk_pack_image_fini(&w.b->env, &image);
	sl__bk_pack_free(p);
	end(&w);
}

/* ---- findings ---- */

struct reported {
	uint64_t files, others;
	char last[256];
};

static int collect(const struct sl_backup_finding *f, void *ctx)
{
	struct reported *t = ctx;
	t->files += f->path != NULL;
	t->others += f->path == NULL;
	(void)snprintf(t->last, sizeof(t->last), "%s", f->reason.msg);
	return 0;
}

static void files_beyond_ten_thousand_are_counted_and_not_named(void **state)
{
	(void)state;
	struct sl_env env;
	struct reported t = {0};
	struct sl_backup_finding x = {
		.fault = SL_BACKUP_FAULT_MISSING_BLOCK, .object = "o", .snapshot = "s", .path = "p"};
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	struct bk_findings f = {.env = &env};
	(void)sl_err_set(&x.reason, SL_ECORRUPT, "lost");
	for (int i = 0; i < 10005; i++)
		assert_int_equal(sl__bk_findings_add(&f, &x, NULL), 0);
	assert_int_equal(f.faults, 10005);
	assert_int_equal(sl__bk_findings_report(&f, collect, &t, NULL), 0);
	assert_int_equal(t.files, 10000);
	assert_int_equal(t.others, 1);
	assert_non_null(strstr(t.last, "5 more files"));
	sl__bk_findings_fini(&f);
}

/* A view that is loaded again meets the same damage again. */
static void the_same_damage_of_an_object_is_reported_once(void **state)
{
	(void)state;
	struct sl_env env;
	struct reported t = {0};
	struct sl_backup_finding x = {.fault = SL_BACKUP_FAULT_INDEX, .object = "index/1"};
	assert_int_equal(sl__env_init(&env, NULL, NULL), 0);
	struct bk_findings f = {.env = &env};
	(void)sl_err_set(&x.reason, SL_ECORRUPT, "damaged");
	for (int i = 0; i < 2; i++)
		assert_int_equal(sl__bk_findings_add(&f, &x, NULL), 0);
	x.object = "index/2";
	assert_int_equal(sl__bk_findings_add(&f, &x, NULL), 0);
	assert_int_equal(f.faults, 2);
	assert_int_equal(sl__bk_findings_report(&f, collect, &t, NULL), 0);
	assert_int_equal(t.others, 2);
	sl__bk_findings_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_right_repository_passes_and_is_counted),
		cmocka_unit_test(damage_inside_of_a_frame_is_found_only_by_reading_it),
		cmocka_unit_test(a_damaged_directory_is_found_without_reading_data),
		cmocka_unit_test(files_that_a_damaged_pack_costs_are_named_with_their_snapshot),
		cmocka_unit_test(strays_and_packs_in_no_index_are_harmless),
		cmocka_unit_test(a_pack_that_cannot_be_read_is_reported_and_the_others_are_checked),
		cmocka_unit_test(a_caller_may_stop_the_findings),
		cmocka_unit_test(a_prune_that_moves_blocks_meanwhile_is_not_taken_for_damage),
		cmocka_unit_test(a_block_that_is_not_that_of_its_id_is_found_though_its_pack_is_sealed),
		cmocka_unit_test(files_beyond_ten_thousand_are_counted_and_not_named),
		cmocka_unit_test(the_same_damage_of_an_object_is_reported_once),
		cmocka_unit_test(every_call_that_reads_may_fail),
		cmocka_unit_test(every_allocation_may_fail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
