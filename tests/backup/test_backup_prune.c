/* SPDX-License-Identifier: Apache-2.0 */
/* Prune: what no snapshot needs goes in two steps, and nothing else ever does. */
#include <malloc.h>

#include "backup/care_pair.h"

#define DAY_MS INT64_C(86400000)

static void a_repository_without_anything_to_prune_is_left_as_it_is(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	struct sl_backup_pruned p = care_prune(w.b);
	assert_int_equal(p.packs, 4);
	assert_int_equal(p.packs_marked + p.packs_deleted + p.packs_rescued + p.packs_waiting, 0);
	care_assert_whole(w.b, w.one, first, SL_COUNT(first));
	care_assert_whole(w.b, w.two, second, SL_COUNT(second));
	care_assert_right(w.b);
	end(&w);
}

static void index_files_are_merged_into_one(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	assert_int_equal(shelf_count(&w.shelf, "index/"), 2);
	(void)care_prune(w.b);
	assert_int_equal(shelf_count(&w.shelf, "index/"), 1);
	care_assert_right(w.b);
	(void)care_prune(w.b);
	assert_int_equal(shelf_count(&w.shelf, "index/"), 1);
	end(&w);
}

static void what_a_forgotten_snapshot_needed_is_marked_first_and_deleted_by_the_next_run(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	care_forget(w.b, w.two);
	struct sl_backup_pruned p = care_prune(w.b);
	assert_int_equal(p.packs_marked, 2);
	assert_int_equal(p.packs_deleted, 0);
	assert_int_equal(shelf_count(&w.shelf, "packs/"), 4);
	assert_int_equal(shelf_count(&w.shelf, "marks/"), 1);
	p = care_prune(w.b);
	assert_int_equal(p.packs_deleted, 2);
	assert_true(p.bytes_deleted > 0);
	assert_int_equal(shelf_count(&w.shelf, "packs/"), 2);
	assert_int_equal(shelf_count(&w.shelf, "marks/"), 0);
	care_assert_whole(w.b, w.one, first, SL_COUNT(first));
	struct sl_backup_checked checked = {.struct_size = sizeof(checked)};
	assert_int_equal(care_check(w.b, NULL, NULL, &checked), 0);
	assert_int_equal(checked.findings, 0); /* nor does the index name what is gone */
	end(&w);
}

/* The second snapshot needs one small block of the first one's pack. */
static void a_pack_that_is_hardly_used_is_copied_from_and_marked(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	care_forget(w.b, w.one);
	struct sl_backup_prune_opts opts = {SL_BACKUP_PRUNE_OPTS_INIT, .repack_percent = 95};
	struct sl_backup_pruned p = {.struct_size = sizeof(p)};
	assert_int_equal(sl_backup_prune(w.b, &opts, &p, NULL), 0);
	assert_int_equal(p.packs_repacked, 1);
	assert_int_equal(p.packs_marked, 2);
	care_assert_right(w.b);
	assert_int_equal(care_prune(w.b).packs_deleted, 2);
	care_assert_whole(w.b, w.two, second, SL_COUNT(second));
	care_assert_right(w.b);
	assert_int_equal(care_prune(w.b).packs_marked, 0);
	end(&w);
}

static void without_repacking_a_pack_stays_as_long_as_one_block_is_needed(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	care_forget(w.b, w.one);
	struct sl_backup_prune_opts opts = {SL_BACKUP_PRUNE_OPTS_INIT, .repack_percent = SL_NONE};
	struct sl_backup_pruned p = {.struct_size = sizeof(p)};
	assert_int_equal(sl_backup_prune(w.b, &opts, &p, NULL), 0);
	assert_int_equal(p.packs_marked, 1); /* the one that had nothing but the second copy of its manifest */
	assert_int_equal(p.packs_repacked, 0);
	end(&w);
}

static void a_dry_run_changes_nothing_and_reports_the_same(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	care_forget(w.b, w.two);
	struct sl_backup_prune_opts opts = {SL_BACKUP_PRUNE_OPTS_INIT, .dry_run = SL_ON};
	struct sl_backup_pruned dry = {.struct_size = sizeof(dry)};
	int64_t before = w.shelf.changes;
	assert_int_equal(sl_backup_prune(w.b, &opts, &dry, NULL), 0);
	assert_int_equal(w.shelf.changes, before);
	struct sl_backup_pruned p = care_prune(w.b);
	assert_memory_equal(&dry, &p, sizeof(p));
	end(&w);
}

static void a_create_does_not_count_on_marked_packs(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	care_forget(w.b, w.two);
	(void)care_prune(w.b);
	char again[SL_BACKUP_ID_BYTES];
	make(w.b, second, SL_COUNT(second), again);
	assert_int_equal(shelf_count(&w.shelf, "packs/"), 6);
	assert_int_equal(care_prune(w.b).packs_deleted, 2);
	care_assert_whole(w.b, again, second, SL_COUNT(second));
	care_assert_right(w.b);
	end(&w);
}

static void a_mark_waits_for_a_session_that_has_not_seen_it(void **state)
{
	(void)state;
	struct world w;
	struct bk_session *session = NULL;
	begin(&w);
	care_forget(w.b, w.two);
	sl_backup *other = care_open(&w.shelf);
	assert_int_equal(sl__bk_session_begin(other, &session, NULL), 0);
	(void)care_prune(w.b);
	struct sl_backup_pruned p = care_prune(w.b);
	assert_int_equal(p.packs_deleted, 0);
	assert_int_equal(p.packs_waiting, 2);
	assert_int_equal(p.sessions_live, 1);
	sl__bk_session_end(session);
	assert_int_equal(care_prune(w.b).packs_deleted, 2);
	sl_backup_close(other);
	end(&w);
}

static void a_mark_does_not_wait_for_a_session_that_has_seen_it(void **state)
{
	(void)state;
	struct world w;
	struct bk_session *session = NULL;
	begin(&w);
	care_forget(w.b, w.two);
	(void)care_prune(w.b);
	sl_backup *other = care_open(&w.shelf);
	assert_int_equal(sl__bk_session_begin(other, &session, NULL), 0);
	assert_int_equal(care_prune(w.b).packs_deleted, 2);
	sl__bk_session_end(session);
	sl_backup_close(other);
	end(&w);
}

static void a_session_that_is_silent_for_a_day_is_removed_and_cannot_publish(void **state)
{
	(void)state;
	struct world w;
	struct bk_session *session = NULL;
	begin(&w);
	sl_backup *other = care_open(&w.shelf);
	assert_int_equal(sl__bk_session_begin(other, &session, NULL), 0);
	w.shelf.now_ms += DAY_MS - 1;
	assert_int_equal(care_prune(w.b).sessions_removed, 0);
	w.shelf.now_ms += 1;
	assert_int_equal(care_prune(w.b).sessions_removed, 1);
	assert_int_equal(sl__bk_session_publish(session, "{}", 2, NULL), SL_EAGAIN);
	sl__bk_session_end(session);
	assert_int_equal(care_snapshots(w.b), 2);
	sl_backup_close(other);
	end(&w);
}

/* After everything that a create has asked the repository, and before the rename that publishes it, another process
 * forgets all that it counts on, and prunes twice. */
struct late {
	struct world *w;
	int64_t silent_ms;
	struct sl_backup_pruned first, second;
};

static void prune_late(const char *what, const char *name, void *ctx)
{
	struct late *l = ctx;
	if (strcmp(what, "rename") != 0 || strncmp(name, "sessions/", 9) != 0)
		return;
	l->w->shelf.gate = NULL;
	care_forget(l->w->b, l->w->one);
	care_forget(l->w->b, l->w->two);
	l->first = care_prune(l->w->b);
	l->w->shelf.now_ms += l->silent_ms;
	l->second = care_prune(l->w->b);
}

static int create_while_pruned_late(struct late *l, char id[SL_BACKUP_ID_BYTES])
{
	const struct care_snapshot s = {.files = second, .n = SL_COUNT(second), .time_ms = 2000};
	begin(l->w);
	sl_backup *other = care_open(&l->w->shelf);
	l->w->shelf.gate = prune_late;
	l->w->shelf.gate_ctx = l;
	int rc = care_make(other, &s, id, NULL);
	assert_null(l->w->shelf.gate);
	sl_backup_close(other);
	return rc;
}

static void what_a_create_counts_on_is_kept_up_to_its_publishing(void **state)
{
	(void)state;
	struct world w;
	struct late l = {.w = &w};
	char id[SL_BACKUP_ID_BYTES];
	assert_int_equal(create_while_pruned_late(&l, id), 0);
	assert_int_equal(l.first.packs_marked, 4); /* by a run that finds nothing that needs them */
	assert_int_equal(l.second.packs_deleted, 0);
	assert_int_equal(l.second.packs_waiting, 4);
	care_assert_whole(w.b, id, second, SL_COUNT(second));
	struct sl_backup_pruned p = care_prune(w.b);
	assert_int_equal(p.packs_rescued, 3); /* which the published snapshot needs */
	assert_int_equal(p.packs_deleted, 1);
	assert_int_equal(care_prune(w.b).packs_deleted, 3);
	care_assert_whole(w.b, id, second, SL_COUNT(second));
	care_assert_right(w.b);
	end(&w);
}

static void a_create_whose_packs_were_deleted_under_it_publishes_nothing(void **state)
{
	(void)state;
	struct world w;
	struct late l = {.w = &w, .silent_ms = DAY_MS};
	char id[SL_BACKUP_ID_BYTES];
	assert_int_equal(create_while_pruned_late(&l, id), SL_EAGAIN);
	assert_int_equal(l.second.sessions_removed, 1);
	assert_true(l.second.packs_deleted > 0);
	assert_int_equal(care_snapshots(w.b), 0);
	end(&w);
}

/* The pack of a create at work is in no index; to mark it would only cost a copy later. */
static void packs_of_a_session_at_work_are_left_alone(void **state)
{
	(void)state;
	struct world w;
	struct bk_session *session = NULL;
	begin(&w);
	care_forget(w.b, w.two);
	while (shelf_count(&w.shelf, "index/") > 0)
		for (size_t i = 0; i < w.shelf.n; i++)
			if (strncmp(w.shelf.objects[i].name, "index/", 6) == 0)
				assert_true(shelf_drop(&w.shelf, w.shelf.objects[i].name));
	sl_backup *other = care_open(&w.shelf);
	assert_int_equal(sl__bk_session_begin(other, &session, NULL), 0);
	assert_int_equal(care_prune(w.b).packs_marked, 0);
	assert_int_equal(shelf_count(&w.shelf, "index/"), 0); /* the session has not synced them */
	sl__bk_session_end(session);
	assert_int_equal(care_prune(w.b).packs_marked, 2);
	assert_int_equal(shelf_count(&w.shelf, "index/"), 1);
	care_assert_whole(w.b, w.one, first, SL_COUNT(first));
	sl_backup_close(other);
	end(&w);
}

/* Index files are merged during a session at work, whose packs none of them names: no other session may count on these
 * packs yet (F3). */
static void a_merged_index_names_no_pack_of_a_session_at_work(void **state)
{
	(void)state;
	struct world w;
	char three[SL_BACKUP_ID_BYTES];
	struct bk_session *session = NULL;
	static const struct care_file third[] = {{.path = "c", .seed = 8, .len = 4000}};
	struct sl_backup_checked checked = {.struct_size = sizeof(checked)};
	begin(&w);
	size_t before = w.shelf.n;
	make(w.b, third, SL_COUNT(third), three);
	for (size_t i = before; i < w.shelf.n; i++)
		if (strncmp(w.shelf.objects[i].name, "index/", 6) == 0)
			assert_true(shelf_drop(&w.shelf, w.shelf.objects[i].name));
	assert_int_equal(shelf_count(&w.shelf, "index/"), 2);
	assert_int_equal(sl__bk_session_begin(w.b, &session, NULL), 0);
	sl_backup *other = care_open(&w.shelf);
	(void)care_prune(other);
	assert_int_equal(shelf_count(&w.shelf, "index/"), 1);
	assert_int_equal(care_check(other, NULL, NULL, &checked), 0);
	assert_int_equal(checked.harmless, 2); /* its packs are in no index */
	sl__bk_session_end(session);
	sl_backup_close(other);
	end(&w);
}

static void what_was_marked_and_is_needed_again_is_copied_before_its_pack_goes(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	/* A snapshot that comes back: as if a create that had not seen the mark had published it. */
	char name[SL_DRIVER_NAME_BYTES];
	snprintf(name, sizeof(name), "snapshots/%s", w.two);
	struct shelf_object *o = shelf_find(&w.shelf, name);
	struct shelf_object kept = *o;
	kept.bytes = malloc(kept.len);
	memcpy(kept.bytes, o->bytes, kept.len);
	care_forget(w.b, w.two);
	(void)care_prune(w.b);
	sl_driver d = shelf_driver(&w.shelf);
	assert_int_equal(d.ops->put(d.driver, name, kept.bytes, kept.len, SL_DRIVER_NEW, NULL), 0);
	free(kept.bytes);
	struct sl_backup_pruned p = care_prune(w.b);
	assert_int_equal(p.packs_rescued, 2);
	assert_int_equal(p.packs_deleted, 0);
	assert_int_equal(care_prune(w.b).packs_deleted, 2);
	care_assert_whole(w.b, w.two, second, SL_COUNT(second));
	care_assert_whole(w.b, w.one, first, SL_COUNT(first));
	care_assert_right(w.b);
	end(&w);
}

static void a_snapshot_that_cannot_be_read_stops_it_before_anything_is_changed(void **state)
{
	(void)state;
	struct world w;
	char name[SL_DRIVER_NAME_BYTES];
	begin(&w);
	care_forget(w.b, w.two);
	snprintf(name, sizeof(name), "snapshots/%s", w.one);
	shelf_find(&w.shelf, name)->bytes[40] ^= 1;
	snprintf(name, sizeof(name), "copies/snapshots/%s", w.one);
	shelf_find(&w.shelf, name)->bytes[40] ^= 1;
	int64_t before = w.shelf.changes;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl_backup_prune(w.b, NULL, NULL, &err), SL_ECORRUPT);
	assert_non_null(strstr(err.msg, "nothing was changed"));
	assert_int_equal(w.shelf.changes, before);
	end(&w);
}

/* A snapshot that is listed and then not there; `back`: the next listing has it again. */
struct vanishing {
	struct world *w;
	char name[SL_DRIVER_NAME_BYTES];
	uint8_t *bytes;
	size_t len;
	bool gone, back;
};

static void vanish(const char *what, const char *name, void *ctx)
{
	struct vanishing *v = ctx;
	struct shelf *s = &v->w->shelf;
	const struct shelf_object *o = shelf_find(s, v->name);
	if (!v->gone && strcmp(what, "get") == 0 && strcmp(name, v->name) == 0) {
		v->len = o->len;
		v->bytes = malloc(o->len);
		memcpy(v->bytes, o->bytes, o->len);
		char copy[SL_DRIVER_NAME_BYTES];
		(void)snprintf(copy, sizeof(copy), "copies/%.100s", v->name);
		v->gone = shelf_drop(s, v->name) && shelf_drop(s, copy);
	} else if (v->gone && v->back && strcmp(what, "list") == 0 && strcmp(name, "snapshots") == 0) {
		const sl_driver d = shelf_driver(s);
		s->gate = NULL;
		assert_int_equal(d.ops->put(d.driver, v->name, v->bytes, v->len, SL_DRIVER_NEW, NULL), 0);
	}
}

static int prune_while_it_vanishes(bool back)
{
	struct world w;
	struct vanishing v = {.w = &w, .back = back};
	begin(&w);
	(void)snprintf(v.name, sizeof(v.name), "snapshots/%s", w.one);
	w.shelf.gate = vanish;
	w.shelf.gate_ctx = &v;
	int rc = sl_backup_prune(w.b, NULL, NULL, NULL);
	w.shelf.gate = NULL;
	assert_true(v.gone);
	care_assert_whole(w.b, w.two, second, SL_COUNT(second));
	if (back)
		care_assert_whole(w.b, w.one, first, SL_COUNT(first));
	/* forgotten: nothing needs the pack of its manifest's second copy */
	assert_int_equal(shelf_count(&w.shelf, "marks/"), back ? 0 : 1);
	free(v.bytes);
	end(&w);
	return rc;
}

static void a_snapshot_that_is_forgotten_meanwhile_is_skipped(void **state)
{
	(void)state;
	assert_int_equal(prune_while_it_vanishes(false), 0);
}

static void a_snapshot_that_is_listed_and_cannot_be_had_stops_it(void **state)
{
	(void)state;
	assert_int_equal(prune_while_it_vanishes(true), SL_ENOENT);
}

static void a_block_that_is_missing_stops_it_before_anything_is_changed(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	for (size_t i = 0; i < w.shelf.n; i++)
		if (strncmp(w.shelf.objects[i].name, "packs/", 6) == 0) {
			assert_true(shelf_drop(&w.shelf, w.shelf.objects[i].name));
			break;
		}
	int64_t before = w.shelf.changes;
	assert_int_not_equal(sl_backup_prune(w.b, NULL, NULL, NULL), 0);
	assert_int_equal(w.shelf.changes, before);
	end(&w);
}

/* ---- packs of which the end is missing ---- */

/* While the first of two creates writes its packs, the second one writes the same blocks. */
struct twins {
	struct world w;
	sl_backup *other;
	int rc;
};

static void make_twin(const char *what, const char *name, void *ctx)
{
	struct twins *t = ctx;
	const struct care_snapshot s = {.files = first, .n = SL_COUNT(first), .time_ms = 2000};
	if (strcmp(what, "put") != 0 || strncmp(name, "packs/", 6) != 0)
		return;
	t->w.shelf.gate = NULL;
	t->rc = care_make(t->other, &s, t->w.two, NULL);
}

static void begin_twins(struct twins *t)
{
	*t = (struct twins){.rc = -1};
	shelf_init(&t->w.shelf);
	t->w.b = care_new(&t->w.shelf, false);
	t->other = care_open(&t->w.shelf);
	t->w.shelf.gate_ctx = t;
	t->w.shelf.gate = make_twin;
	make(t->w.b, first, SL_COUNT(first), t->w.one);
	assert_int_equal(t->rc, 0);
	assert_int_equal(shelf_count(&t->w.shelf, "packs/"), 4); /* two have only the second copy of the manifest */
}

static void end_twins(struct twins *t)
{
	sl_backup_close(t->other);
	end(&t->w);
}

/* The number-th pack by name that has contents of files loses its end. */
static void cut_pack(struct shelf *s, size_t number, size_t len)
{
	const struct shelf_object *last = NULL;
	struct shelf_object *o = NULL;
	for (size_t n = 0; n <= number; n++, last = o) {
		o = NULL;
		for (size_t i = 0; i < s->n; i++) {
			struct shelf_object *at = &s->objects[i];
			if (strncmp(at->name, "packs/", 6) == 0 && (at->len > 1000 || at == last) &&
			    (last == NULL || strcmp(at->name, last->name) > 0) &&
			    (o == NULL || strcmp(at->name, o->name) < 0))
				o = at;
		}
	}
	assert_non_null(o);
	assert_true(o->len > len);
	o->len = len;
}

static void of_two_copies_the_one_in_a_pack_that_was_cut_off_goes(void **state)
{
	static const size_t lens[] = {0, 100, 3000};
	(void)state;
	for (size_t i = 0; i < 2 * SL_COUNT(lens); i++) {
		struct twins t;
		begin_twins(&t);
		cut_pack(&t.w.shelf, i % 2, lens[i / 2]);
		care_forget(t.w.b, t.w.two);
		/* It, and perhaps one with a third copy of the manifest. */
		uint64_t marked = care_prune(t.w.b).packs_marked;
		assert_true(marked == 1 || marked == 2);
		assert_int_equal(care_prune(t.w.b).packs_deleted, marked);
		care_assert_whole(t.w.b, t.w.one, first, SL_COUNT(first));
		care_assert_right(t.w.b);
		end_twins(&t);
	}
}

static void a_pack_that_was_cut_off_stops_it_before_anything_is_changed(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct world w;
		begin(&w);
		cut_pack(&w.shelf, i, 1000);
		int64_t before = w.shelf.changes;
		assert_int_equal(sl_backup_prune(w.b, NULL, NULL, NULL), SL_ECORRUPT);
		assert_int_equal(w.shelf.changes, before);
		/* A create of the same stores it again, and what was cut off can go. */
		char id[SL_BACKUP_ID_BYTES];
		make(w.b, first, SL_COUNT(first), id);
		care_assert_whole(w.b, id, first, SL_COUNT(first));
		make(w.b, second, SL_COUNT(second), id);
		care_assert_whole(w.b, id, second, SL_COUNT(second));
		end(&w);
	}
}

static void a_second_prune_is_refused_while_one_runs(void **state)
{
	(void)state;
	struct world w;
	void *lock;
	begin(&w);
	sl_driver d = shelf_driver(&w.shelf);
	assert_int_equal(d.ops->lock(d.driver, "prune", &lock, NULL), 0);
	assert_int_equal(sl_backup_prune(w.b, NULL, NULL, NULL), SL_ELOCKED);
	d.ops->unlock(d.driver, lock);
	(void)care_prune(w.b);
	assert_false(w.shelf.locked);
	end(&w);
}

/* ---- small packs ---- */

#define SMALL 20

/* SMALL snapshots, each of a small file; all stay. */
static void make_small(struct world *w, char ids[SMALL][SL_BACKUP_ID_BYTES])
{
	shelf_init(&w->shelf);
	w->b = care_new(&w->shelf, false);
	for (size_t i = 0; i < SMALL; i++) {
		const struct care_file file = {.path = "f", .seed = 100 + i, .len = 3000};
		make(w->b, &file, 1, ids[i]);
	}
}

static void assert_small(struct world *w, char ids[SMALL][SL_BACKUP_ID_BYTES])
{
	for (size_t i = 0; i < SMALL; i++) {
		const struct care_file file = {.path = "f", .seed = 100 + i, .len = 3000};
		care_assert_whole(w->b, ids[i], &file, 1);
	}
	care_assert_right(w->b);
}

static void many_small_packs_are_merged_in_two_steps_and_then_left_alone(void **state)
{
	(void)state;
	struct world w;
	char ids[SMALL][SL_BACKUP_ID_BYTES];
	make_small(&w, ids);
	size_t packs = shelf_count(&w.shelf, "packs/");
	assert_true(packs >= SMALL);
	struct sl_backup_pruned p = care_prune(w.b);
	assert_int_equal(p.packs_merged, packs);
	assert_int_equal(p.packs_marked, packs);
	assert_int_equal(p.packs_deleted, 0);
	assert_int_equal(shelf_count(&w.shelf, "packs/"), packs + 2); /* manifests are in both */
	assert_small(&w, ids);
	p = care_prune(w.b);
	assert_int_equal(p.packs_deleted, packs);
	assert_int_equal(p.packs_merged, 0);
	assert_int_equal(shelf_count(&w.shelf, "packs/"), 2);
	assert_int_equal(shelf_count(&w.shelf, "marks/"), 0);
	assert_small(&w, ids);
	int64_t before = w.shelf.changes;
	p = care_prune(w.b);
	assert_int_equal(p.packs_merged + p.packs_marked + p.packs_deleted, 0);
	assert_int_equal(w.shelf.changes, before);
	end(&w);
}

static void what_nothing_needs_is_marked_and_not_merged(void **state)
{
	(void)state;
	struct world w;
	char ids[SMALL][SL_BACKUP_ID_BYTES];
	make_small(&w, ids);
	size_t packs = shelf_count(&w.shelf, "packs/");
	care_forget(w.b, ids[0]);
	struct sl_backup_pruned p = care_prune(w.b);
	assert_int_equal(p.packs_merged, packs - packs / SMALL);
	assert_int_equal(p.packs_marked, packs);
	end(&w);
}

static void small_packs_of_a_session_at_work_are_not_merged(void **state)
{
	(void)state;
	struct world w;
	char ids[SMALL][SL_BACKUP_ID_BYTES];
	struct bk_session *session = NULL;
	make_small(&w, ids);
	while (shelf_count(&w.shelf, "index/") > 0)
		for (size_t i = 0; i < w.shelf.n; i++)
			if (strncmp(w.shelf.objects[i].name, "index/", 6) == 0)
				assert_true(shelf_drop(&w.shelf, w.shelf.objects[i].name));
	sl_backup *other = care_open(&w.shelf);
	assert_int_equal(sl__bk_session_begin(other, &session, NULL), 0);
	assert_int_equal(care_prune(w.b).packs_merged, 0);
	sl__bk_session_end(session);
	assert_true(care_prune(w.b).packs_merged >= SMALL);
	assert_small(&w, ids);
	sl_backup_close(other);
	end(&w);
}

static uint64_t merged_by(struct world *w, struct sl_backup_prune_opts opts)
{
	struct sl_backup_pruned p = {.struct_size = sizeof(p)};
	opts.dry_run = SL_ON;
	assert_int_equal(sl_backup_prune(w->b, &opts, &p, NULL), 0);
	return p.packs_merged;
}

static void few_small_packs_are_left_alone_unless_they_fill_one(void **state)
{
	(void)state;
	struct world w;
	char ids[SMALL][SL_BACKUP_ID_BYTES];
	make_small(&w, ids);
	int32_t packs = (int32_t)shelf_count(&w.shelf, "packs/");
	struct sl_backup_prune_opts opts = {SL_BACKUP_PRUNE_OPTS_INIT, .merge_small = packs};
	assert_int_equal(merged_by(&w, opts), packs);
	opts.merge_small = packs + 1;
	assert_int_equal(merged_by(&w, opts), 0);
	opts.merge_small = SL_NONE;
	assert_int_equal(merged_by(&w, opts), 0);
	opts.merge_small = 2;
	opts.repack_percent = SL_NONE;
	assert_int_equal(merged_by(&w, opts), 0);
	/* Packs of which all together are more than one: the number does not matter. */
	opts.repack_percent = 0;
	opts.merge_small = packs + 1;
	size_t largest = 0, all = 0;
	for (size_t i = 0; i < w.shelf.n; i++)
		if (strncmp(w.shelf.objects[i].name, "packs/", 6) == 0) {
			all += w.shelf.objects[i].len;
			largest = SL_MAX(largest, w.shelf.objects[i].len);
		}
	w.b->opts.pack_bytes = (int64_t)all;
	assert_int_equal(merged_by(&w, opts), packs);
	w.b->opts.pack_bytes = (int64_t)all + 1;
	assert_int_equal(merged_by(&w, opts), 0);
	w.b->opts.pack_bytes = (int64_t)largest * 2; /* the largest is not small */
	assert_true(merged_by(&w, opts) < (uint64_t)packs);
	end(&w);
}

#define MANY 150

/* 64 full packs' worth a run: more than 128 that are just small. */
static void one_run_merges_a_bounded_amount_and_the_next_continues(void **state)
{
	(void)state;
	struct world w;
	size_t largest = 0, packs, left;
	shelf_init(&w.shelf);
	w.b = care_new(&w.shelf, false);
	for (size_t i = 0; i < MANY; i++) {
		const struct care_file file = {.path = "f", .seed = 100 + i, .len = 3000};
		make(w.b, &file, 1, w.one);
	}
	packs = shelf_count(&w.shelf, "packs/");
	for (size_t i = 0; i < w.shelf.n; i++)
		if (strncmp(w.shelf.objects[i].name, "packs/", 6) == 0)
			largest = SL_MAX(largest, w.shelf.objects[i].len);
	w.b->opts.pack_bytes = (int64_t)(2 * largest + 2);
	struct sl_backup_pruned p = care_prune(w.b);
	assert_true(p.packs_merged >= 128 && p.packs_merged < packs);
	left = packs - (size_t)p.packs_merged;
	p = care_prune(w.b);
	assert_true(p.packs_merged >= left);
	assert_int_equal(p.packs_deleted, packs - left);
	(void)care_prune(w.b);
	assert_true(shelf_count(&w.shelf, "packs/") < packs * 2 / 3);
	care_assert_right(w.b);
	end(&w);
}

/* On a copy of the repository, which is made once for all of them. */
static int64_t fail_merging_at(const struct shelf *whole, char ids[SMALL][SL_BACKUP_ID_BYTES], int64_t at,
			       bool for_ever)
{
	struct world w;
	shelf_init(&w.shelf);
	shelf_copy(&w.shelf, whole);
	w.b = care_open(&w.shelf);
	w.shelf.changes = 0;
	w.shelf.fail_at = at;
	w.shelf.for_ever = for_ever;
	w.shelf.fail_code = SL_EIO;
	int rc = sl_backup_prune(w.b, NULL, NULL, NULL);
	if (rc == 0)
		rc = sl_backup_prune(w.b, NULL, NULL, NULL);
	int64_t made = w.shelf.changes;
	if (made < at)
		assert_int_equal(rc, 0);
	w.shelf.fail_at = 0;
	assert_small(&w, ids);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sl_backup_prune(w.b, NULL, NULL, NULL), 0);
	assert_small(&w, ids);
	assert_true(shelf_count(&w.shelf, "packs/") <= 16); /* fewer than 16 small ones are left alone */
	assert_int_equal(shelf_count(&w.shelf, "marks/"), 0);
	end(&w);
	return made;
}

static void every_change_of_a_merge_may_fail(void **state)
{
	(void)state;
	struct world w;
	char ids[SMALL][SL_BACKUP_ID_BYTES];
	int64_t n = 1;
	make_small(&w, ids);
	while (fail_merging_at(&w.shelf, ids, n, n % 2 == 0) >= n)
		n++;
	assert_true(n > SMALL);
	print_message("# %lld changes failed in turn\n", (long long)n - 1);
	end(&w);
}

static void options_out_of_range_are_refused(void **state)
{
	(void)state;
	struct world w;
	begin(&w);
	struct sl_backup_prune_opts percent = {SL_BACKUP_PRUNE_OPTS_INIT, .repack_percent = 101};
	struct sl_backup_prune_opts silence = {SL_BACKUP_PRUNE_OPTS_INIT, .session_silence_ms = 59999};
	assert_int_equal(sl_backup_prune(w.b, &percent, NULL, NULL), SL_EINVAL);
	assert_int_equal(sl_backup_prune(w.b, &silence, NULL, NULL), SL_EINVAL);
	struct sl_backup_prune_opts small = {SL_BACKUP_PRUNE_OPTS_INIT, .merge_small = 1};
	assert_int_equal(sl_backup_prune(w.b, &small, NULL, NULL), SL_EINVAL);
	end(&w);
}

/* Whatever change of a run fails, once or from then on: no snapshot loses anything, and the next run gets through. */
static int64_t fail_at(int64_t at, bool for_ever, int code)
{
	struct world w;
	struct sl_err err = SL_ERR_INIT;
	begin(&w);
	care_forget(w.b, w.one);
	struct sl_backup_prune_opts opts = {SL_BACKUP_PRUNE_OPTS_INIT, .repack_percent = 95};
	w.shelf.changes = 0;
	w.shelf.fail_at = at;
	w.shelf.for_ever = for_ever;
	w.shelf.fail_code = code;
	int rc = sl_backup_prune(w.b, &opts, NULL, &err);
	if (rc == 0)
		rc = sl_backup_prune(w.b, &opts, NULL, &err);
	int64_t made = w.shelf.changes;
	if (made < at)
		assert_int_equal(rc, 0);
	w.shelf.fail_at = 0;
	care_assert_whole(w.b, w.two, second, SL_COUNT(second));
	for (int i = 0; i < 3; i++)
		assert_int_equal(sl_backup_prune(w.b, &opts, NULL, NULL), 0);
	care_assert_whole(w.b, w.two, second, SL_COUNT(second));
	care_assert_right(w.b);
	assert_int_equal(shelf_count(&w.shelf, "marks/"), 0);
	assert_int_equal(shelf_count(&w.shelf, "index/"), 1);
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
	for (n = 1; fail_at(n, true, SL_EIO) >= n;)
		n++;
	for (n = 1; fail_at(n, true, SL_ENOSPC) >= n;)
		n++;
	print_message("# %lld changes failed in turn\n", (long long)n - 1);
}

/* ---- memory ---- */

static struct {
	pthread_mutex_t mu;
	size_t now, peak;
} used = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void *account(void *p, size_t before)
{
	(void)pthread_mutex_lock(&used.mu);
	used.now += (p != NULL ? malloc_usable_size(p) : 0) - before;
	used.peak = SL_MAX(used.peak, used.now);
	(void)pthread_mutex_unlock(&used.mu);
	return p;
}

static void *counted_alloc(size_t size, SL_UNUSED void *ctx)
{
	return account(malloc(size), 0);
}

static void *counted_resize(void *p, size_t size, SL_UNUSED void *ctx)
{
	size_t before = p != NULL ? malloc_usable_size(p) : 0;
	void *grown = realloc(p, size);
	return grown != NULL ? account(grown, before) : NULL;
}

static void counted_release(void *p, SL_UNUSED void *ctx)
{
	if (p != NULL)
		(void)account(NULL, malloc_usable_size(p));
	free(p);
}

static void add_blocks(sl_backup *b, uint64_t n)
{
	struct bk_store *store = NULL;
	assert_int_equal(sl__bk_store_new(&store, b, NULL, 1, NULL), 0);
	for (uint64_t i = 0; i < n; i++) {
		struct bk_id id = {.b = {1}};
		memcpy(id.b + 8, &i, sizeof(i));
		assert_int_equal(sl__bk_store_put_always(store, 0, &(struct bk_block){&id, &i, sizeof(i)}, 1, NULL), 0);
	}
	assert_int_equal(sl__bk_store_finish(store, NULL), 0);
	sl__bk_store_free(store);
}

/* The peak of a prune that copies, in a repository with this many blocks that no snapshot needs. */
static size_t peak_of_prune(uint64_t blocks)
{
	static const struct sl_mem mem = {.version = SL_MEM_VERSION,
					  .alloc = counted_alloc,
					  .resize = counted_resize,
					  .release = counted_release};
	const struct sl_env env = {SL_ENV_INIT, .mem = &mem};
	const struct sl_backup_opts opts = {SL_BACKUP_OPTS_INIT, .env = &env, .threads = 1};
	const struct sl_backup_prune_opts repack = {SL_BACKUP_PRUNE_OPTS_INIT, .repack_percent = 95};
	struct sl_backup_pruned out = {.struct_size = sizeof(out)};
	struct world w;
	sl_backup *b = NULL;
	begin(&w);
	add_blocks(w.b, blocks);
	care_forget(w.b, w.one);
	const sl_driver driver = shelf_driver(&w.shelf);
	assert_int_equal(sl_backup_open(&b, &driver, &opts, NULL), 0);
	size_t before = used.peak = used.now;
	assert_int_equal(sl_backup_prune(b, &repack, &out, NULL), 0);
	assert_true(out.packs_repacked > 0); /* else the index is loaded once anyway */
	sl_backup_close(b);
	care_assert_whole(w.b, w.two, second, SL_COUNT(second));
	end(&w);
	return used.peak - before;
}

/* One view of everything, of 60 bytes per block. The buffers for copying have a fixed size, and the index
 * file that is put afterwards has at most 2^19 blocks. */
static void a_prune_that_copies_holds_one_index_at_a_time(void **state)
{
	(void)state;
	const uint64_t blocks = 100000;
	size_t few = peak_of_prune(1), many = peak_of_prune(blocks);
	print_message("# %.1f bytes per block\n", (double)(many - few) / (double)blocks);
	assert_true(many - few < blocks * 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_repository_without_anything_to_prune_is_left_as_it_is),
		cmocka_unit_test(index_files_are_merged_into_one),
		cmocka_unit_test(what_a_forgotten_snapshot_needed_is_marked_first_and_deleted_by_the_next_run),
		cmocka_unit_test(a_pack_that_is_hardly_used_is_copied_from_and_marked),
		cmocka_unit_test(without_repacking_a_pack_stays_as_long_as_one_block_is_needed),
		cmocka_unit_test(a_dry_run_changes_nothing_and_reports_the_same),
		cmocka_unit_test(a_create_does_not_count_on_marked_packs),
		cmocka_unit_test(a_mark_waits_for_a_session_that_has_not_seen_it),
		cmocka_unit_test(a_mark_does_not_wait_for_a_session_that_has_seen_it),
		cmocka_unit_test(a_session_that_is_silent_for_a_day_is_removed_and_cannot_publish),
		cmocka_unit_test(what_a_create_counts_on_is_kept_up_to_its_publishing),
		cmocka_unit_test(a_create_whose_packs_were_deleted_under_it_publishes_nothing),
		cmocka_unit_test(packs_of_a_session_at_work_are_left_alone),
		cmocka_unit_test(what_was_marked_and_is_needed_again_is_copied_before_its_pack_goes),
		cmocka_unit_test(a_snapshot_that_cannot_be_read_stops_it_before_anything_is_changed),
		cmocka_unit_test(a_merged_index_names_no_pack_of_a_session_at_work),
		cmocka_unit_test(a_snapshot_that_is_forgotten_meanwhile_is_skipped),
		cmocka_unit_test(a_snapshot_that_is_listed_and_cannot_be_had_stops_it),
		cmocka_unit_test(a_block_that_is_missing_stops_it_before_anything_is_changed),
		cmocka_unit_test(of_two_copies_the_one_in_a_pack_that_was_cut_off_goes),
		cmocka_unit_test(a_pack_that_was_cut_off_stops_it_before_anything_is_changed),
		cmocka_unit_test(a_second_prune_is_refused_while_one_runs),
		cmocka_unit_test(many_small_packs_are_merged_in_two_steps_and_then_left_alone),
		cmocka_unit_test(what_nothing_needs_is_marked_and_not_merged),
		cmocka_unit_test(small_packs_of_a_session_at_work_are_not_merged),
		cmocka_unit_test(few_small_packs_are_left_alone_unless_they_fill_one),
		cmocka_unit_test(one_run_merges_a_bounded_amount_and_the_next_continues),
		cmocka_unit_test(every_change_of_a_merge_may_fail),
		cmocka_unit_test(options_out_of_range_are_refused),
		cmocka_unit_test(a_prune_that_copies_holds_one_index_at_a_time),
		cmocka_unit_test(every_change_may_fail),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
