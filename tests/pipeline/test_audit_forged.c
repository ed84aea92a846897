/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verification of what no damage makes, but a hand: events, heads and rows that are each as they should be, with hashes
 * that are right, and that do not belong together.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "pipeline/audit_dataset.h"
#include "pipeline/partition.h"

#define PARTITIONS 3

static struct catalog_place place;

struct findings {
	int n;
	enum sl_audit_fault faults[32];
	char texts[32][512]; /* path and text */
};

static int note_finding(const struct sl_audit_finding *f, void *ctx)
{
	struct findings *all = ctx;
	assert_true(all->n < 32);
	all->faults[all->n] = f->fault;
	(void)snprintf(all->texts[all->n++], sizeof(all->texts[0]), "%.300s: %.200s", f->path, f->text);
	return 0;
}

static struct findings verify(bool with_catalog, bool all, const char *head)
{
	struct findings f = {.n = 0};
	struct sl_err err = SL_ERR_INIT;
	struct sl_audit_result r = {.struct_size = sizeof(r)};
	char path[512];
	(void)snprintf(path, sizeof(path), "%s/%s", place.dir, head != NULL ? head : "");
	struct sl_audit_verify_opts opts = {SL_AUDIT_VERIFY_OPTS_INIT,
					    .threads = 1,
					    .all = all ? SL_ON : SL_OFF,
					    .catalog = with_catalog ? NULL : "",
					    .checkpoint = head != NULL ? path : NULL,
					    .on_finding = note_finding,
					    .ctx = &f};
	if (sl_audit_verify(place.dir, "d", &opts, &r, &err) != 0)
		fail_msg("%s", err.msg);
	return f;
}

static void assert_told(const struct findings *f, int i, enum sl_audit_fault fault, const char *text)
{
	if (f->n <= i)
		fail_msg("%d findings; expected %d: %s", f->n, (int)fault, text);
	if (f->faults[i] != fault || strstr(f->texts[i], text) == NULL)
		fail_msg("found %d: %s, expected %d: %s", (int)f->faults[i], f->texts[i], (int)fault, text);
}

static int set_up(void **state)
{
	(void)state;
	catalog_place_set_up(&place);
	audit_dataset_make(&place, PARTITIONS);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	catalog_place_tear_down(&place);
	return 0;
}

/* ---- chains ---- */

struct chain {
	struct sl_audit_event events[8];
	char paths[8][256];
	char lines[8][SL_AUDIT_EVENT_BYTES];
	int n;
};

static int keep(const struct sl_audit_event *event, const char *text, size_t len, void *ctx)
{
	struct chain *c = ctx;
	struct sl_audit_event *e = &c->events[c->n];
	(void)text, (void)len;
	*e = *event;
	e->dataset = "d";
	e->sequence_column = "seq";
	e->producer = e->producer_version = "p";
	(void)snprintf(c->paths[c->n], sizeof(c->paths[0]), "%s", event->path);
	e->path = c->paths[c->n++];
	e->hole_ranges = NULL;
	return 0;
}

static void load(struct chain *c)
{
	struct sl_err err = SL_ERR_INIT;
	c->n = 0;
	assert_int_equal(sl_audit_events(place.dir, "d", NULL, keep, c, &err), 0);
}

static void move_event(struct chain *c, int i, uint64_t start)
{
	struct sl_audit_event *e = &c->events[i];
	char name[SL__PARTITION_NAME_BYTES];
	e->start = start;
	e->end = start + AUDIT_SIZE - 1;
	sl__partition_name(e->start, e->end, AUDIT_SIZE, false, name);
	(void)snprintf(c->paths[i], sizeof(c->paths[0]), "d/%s", name);
}

/* Number and link what there is, and make the lines. */
static void forge(struct chain *c)
{
	struct sl_err err = SL_ERR_INIT;
	size_t len;
	for (int i = 0; i < c->n; i++) {
		struct sl_audit_event *e = &c->events[i];
		e->number = (uint64_t)i + 1;
		memset(e->prev_hash, 0, sizeof(e->prev_hash));
		if (i > 0)
			memcpy(e->prev_hash, c->events[i - 1].hash, sizeof(e->prev_hash));
		if (sl_audit_event_format(e, c->lines[i], &len, &err) != 0)
			fail_msg("%s", err.msg);
	}
}

/* Lines [from, to) as the event file that says it begins with `first`. */
static void put_file(const struct chain *c, int from, int to, uint64_t first)
{
	static char text[8 * SL_AUDIT_EVENT_BYTES];
	char path[512];
	size_t n = 0;
	for (int i = from; i < to; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s\n", c->lines[i]);
	(void)snprintf(path, sizeof(path), "%s/d/_audit/events-%020" PRIu64 ".jsonl", place.dir, first);
	audit_write(path, text, n);
}

static void put_chain(struct chain *c)
{
	forge(c);
	put_file(c, 0, c->n, 1);
}

/* ---- events that do not belong together ---- */

static void other_dataset(struct chain *c)
{
	c->events[1].dataset = "e";
	c->paths[1][0] = 'e';
}

static void other_size(struct chain *c)
{
	c->events[1].partition_size = 30;
}

static void other_column(struct chain *c)
{
	c->events[2].sequence_column = "id";
}

static void other_schema(struct chain *c)
{
	c->events[2].schema_sha256[31] ^= 1;
}

static void same_again(struct chain *c)
{
	move_event(c, 2, 110);
}

static void gap_in_the_middle(struct chain *c)
{
	move_event(c, 1, 120);
	move_event(c, 2, 130);
}

static void backfill_that_continues(struct chain *c)
{
	c->events[2].type = SL_AUDIT_BACKFILL;
}

static void partition_that_goes_back(struct chain *c)
{
	move_event(c, 0, 110);
	move_event(c, 1, 100);
}

/* Event i with a hole of one sequence, and after all events one for a row that is late. */
static void add_late(struct chain *c, int i, uint64_t hole, uint64_t late)
{
	static char ranges[32];
	struct sl_audit_event *e = &c->events[c->n];
	char name[SL__PARTITION_NAME_BYTES];
	(void)snprintf(ranges, sizeof(ranges), "%" PRIu64, hole);
	c->events[i].rows = AUDIT_SIZE - 1;
	c->events[i].holes = 1;
	c->events[i].hole_ranges = ranges;
	*e = c->events[i];
	e->type = SL_AUDIT_LATE;
	e->start = e->end = late;
	e->rows = 1;
	e->holes = 0;
	e->hole_ranges = NULL;
	sl__partition_name(late, late, AUDIT_SIZE, true, name);
	(void)snprintf(c->paths[c->n], sizeof(c->paths[0]), "d/%s", name);
	e->path = c->paths[c->n++];
}

static void late_in_no_hole(struct chain *c)
{
	add_late(c, 1, 115, 116);
}

static void late_twice(struct chain *c)
{
	add_late(c, 1, 115, 115);
	add_late(c, 1, 115, 115);
}

static void late_before_its_partition(struct chain *c)
{
	add_late(c, 2, 125, 125);
	struct sl_audit_event late = c->events[3];
	c->events[3] = c->events[2];
	c->events[2] = late;
}

static void late_after_the_checkpoint(struct chain *c)
{
	add_late(c, 2, 125, 135);
}

static void events_with_right_hashes_that_do_not_fit_are_named(void **state)
{
	static const struct {
		void (*change)(struct chain *c);
		enum sl_audit_fault fault;
		const char *text;
	} cases[] = {{other_dataset, SL_AUDIT_LINK, "event 2 has another dataset"},
		     {other_size, SL_AUDIT_LINK, "event 2 has another partition size"},
		     {other_column, SL_AUDIT_LINK, "event 3 has another sequence column"},
		     {other_schema, SL_AUDIT_LINK, "event 3 has another schema"},
		     {same_again, SL_AUDIT_OVERLAP, "sequences from 110 are also in d/"},
		     {gap_in_the_middle, SL_AUDIT_GAP, "sequences 110 to 119"},
		     {late_in_no_hole, SL_AUDIT_OVERLAP, "116 to 116 were not recorded as a hole"},
		     {late_twice, SL_AUDIT_OVERLAP, "sequences from 115 are also in d/"},
		     {late_before_its_partition, SL_AUDIT_OVERLAP, "125 to 125 were not recorded as a hole"},
		     {late_after_the_checkpoint, SL_AUDIT_OVERLAP, "135 to 135 were not recorded as a hole"},
		     {backfill_that_continues, SL_AUDIT_LINK, "event 3 is a backfill, but the checkpoint was 119"},
		     {partition_that_goes_back, SL_AUDIT_LINK, "event 2 is a partition, but the checkpoint was 119"}};
	static struct chain whole, c;
	(void)state;
	load(&whole);
	put_chain(&whole);
	assert_int_equal(verify(false, true, NULL).n, 0);
	for (size_t i = 0; i < SL_COUNT(cases); i++) {
		load(&c);
		cases[i].change(&c);
		put_chain(&c);
		struct findings f = verify(false, false, NULL);
		assert_told(&f, 0, cases[i].fault, cases[i].text);
		put_file(&whole, 0, PARTITIONS, 1);
	}
}

static void an_event_missing_after_a_damaged_one_is_noticed(void **state)
{
	static struct chain c;
	(void)state;
	load(&c);
	c.events[3] = c.events[2];
	c.events[3].path = c.paths[3];
	move_event(&c, 3, 130);
	c.n = 4;
	forge(&c);
	c.lines[1][100] ^= 1;
	memmove(c.lines[2], c.lines[3], sizeof(c.lines[3])); /* 1, damaged, 4 */
	put_file(&c, 0, 3, 1);
	struct findings f = verify(false, true, NULL);
	assert_told(&f, 0, SL_AUDIT_EVENT, "line 2");
	assert_told(&f, 1, SL_AUDIT_LINK, "line 3: event 4 instead of event 2");
}

static void event_files_that_do_not_follow_each_other_are_named(void **state)
{
	static struct chain c;
	struct findings f;
	char path[512], text[SL_AUDIT_EVENT_BYTES];
	(void)state;
	load(&c);
	forge(&c);
	put_file(&c, 0, 1, 1);
	put_file(&c, 1, 3, 2);
	assert_int_equal(verify(false, true, NULL).n, 0);
	/* A name that is not its first event's. */
	(void)snprintf(path, sizeof(path), "%s/d/_audit/events-%020d.jsonl", place.dir, 2);
	assert_int_equal(unlink(path), 0);
	put_file(&c, 1, 3, 3);
	f = verify(false, false, NULL);
	assert_told(&f, 0, SL_AUDIT_LINK, "it begins with event 3, but 2 is expected");
	(void)snprintf(path, sizeof(path), "%s/d/_audit/events-%020d.jsonl", place.dir, 3);
	assert_int_equal(unlink(path), 0);
	put_file(&c, 1, 3, 2);
	/* Only the last file may end in the middle of a line. */
	audit_dataset_events(&place, path);
	(void)snprintf(text, sizeof(text), "%s", c.lines[0]);
	audit_write(path, text, strlen(text));
	f = verify(false, false, NULL);
	assert_told(&f, 0, SL_AUDIT_EVENT, "the last line has no line feed");
}

/* ---- forged heads ---- */

static void put_head(const struct sl_audit_head *h)
{
	char text[SL_AUDIT_HEAD_BYTES], path[512];
	struct sl_err err = SL_ERR_INIT;
	size_t len;
	assert_int_equal(sl_audit_head_format(h, text, &len, &err), 0);
	(void)snprintf(path, sizeof(path), "%s/forged", place.dir);
	audit_write(path, text, len);
}

static void a_head_of_another_chain_is_named(void **state)
{
	struct sl_audit_head h, other;
	struct sl_err err = SL_ERR_INIT;
	struct findings f;
	(void)state;
	assert_int_equal(sl_audit_head_read(place.dir, "d", NULL, &h, &err), 0);
	put_head(&h);
	assert_int_equal(verify(false, true, "forged").n, 0);
	other = h;
	other.dataset[0] = 'e';
	put_head(&other);
	f = verify(false, false, "forged");
	assert_told(&f, 0, SL_AUDIT_HEAD, "another dataset");
	other = h;
	other.event_hash[0] ^= 1;
	put_head(&other);
	f = verify(false, false, "forged");
	assert_told(&f, 0, SL_AUDIT_HEAD, "the chain differs from the one");
	other = h;
	other.checkpoint++;
	put_head(&other);
	f = verify(false, false, "forged");
	assert_told(&f, 0, SL_AUDIT_HEAD, "the checkpoint of the head");
}

static void a_secret_key_that_others_may_read_signs_nothing(void **state)
{
	struct sl_audit_head h;
	struct sl_err err = SL_ERR_INIT;
	char key[512], link[512];
	(void)state;
	assert_int_equal(sl_audit_head_read(place.dir, "d", NULL, &h, &err), 0);
	(void)snprintf(key, sizeof(key), "%s/key", place.dir);
	(void)snprintf(link, sizeof(link), "%s/link", place.dir);
	assert_int_equal(symlink(key, link), 0);
	assert_int_equal(sl_audit_head_sign(&h, link, NULL, &err), SL_EKEY);
	for (mode_t bit = 1; bit < 0100; bit <<= 1) {
		assert_int_equal(chmod(key, 0600 | bit), 0);
		assert_int_equal(sl_audit_head_sign(&h, key, NULL, &err), SL_EKEY);
		assert_int_equal(h.has_signature, 0);
	}
	assert_int_equal(chmod(key, 0600), 0);
	assert_int_equal(sl_audit_head_sign(&h, key, NULL, &err), 0);
}

/* ---- rows of the catalog ---- */

static void put_event_row(uint64_t number, const struct sl_audit_event *e, const char *text)
{
	static char sql[3 * SL_AUDIT_EVENT_BYTES];
	char id[160];
	(void)snprintf(sql, sizeof(sql), "UPDATE sluice_audit_event SET event='%s',id='%s' WHERE number=%" PRIu64, text,
		       sl_audit_event_id(e, id), number);
	catalog_place_exec(&place, sql);
}

static void rows_with_events_of_another_chain_are_named(void **state)
{
	static struct chain c;
	struct findings f;
	(void)state;
	catalog_place_exec(&place, "UPDATE sluice_partition SET type='backfill' WHERE event=3");
	f = verify(true, false, NULL);
	assert_told(&f, 0, SL_AUDIT_CATALOG, "d/120: type is not that of the event");
	catalog_place_exec(&place, "UPDATE sluice_partition SET type='partition' WHERE event=3");
	load(&c);
	c.events[2].sha256[0] ^= 1;
	forge(&c);
	put_event_row(3, &c.events[2], c.lines[2]);
	f = verify(true, false, NULL);
	assert_told(&f, 0, SL_AUDIT_CATALOG, "d/3: it is not the event of the files");
	put_event_row(3, &c.events[1], c.lines[1]);
	f = verify(true, false, NULL);
	assert_told(&f, 0, SL_AUDIT_CATALOG, "d/3: number is not that of the event");
}

/* Event 4 is in the catalog only, where it was replaced. */
static void events_that_only_the_catalog_has_must_fit_too(void **state)
{
	static struct chain c;
	struct sl_err err = SL_ERR_INIT;
	struct findings f;
	size_t len;
	sl_catalog_lease *lease = NULL;
	(void)state;
	sl_catalog *cat = catalog_place_open(&place, NULL);
	assert_int_equal(sl_catalog_lease_acquire(cat, "d", NULL, &lease, &err), 0);
	audit_dataset_put(&place, cat, lease, 3, NULL);
	sl_catalog_lease_release(lease);
	sl_catalog_close(cat);
	load(&c);
	c.events[3] = c.events[2];
	c.events[3].path = c.paths[3];
	move_event(&c, 3, 130);
	struct sl_audit_event *e = &c.events[3];
	e->number = 4;
	memcpy(e->prev_hash, c.events[1].hash, sizeof(e->prev_hash));
	assert_int_equal(sl_audit_event_format(e, c.lines[3], &len, &err), 0);
	put_event_row(4, e, c.lines[3]);
	f = verify(true, false, NULL);
	assert_told(&f, 0, SL_AUDIT_LINK, "catalog, sluice_audit_event d/4: event 4 does not have the hash");
	memcpy(e->prev_hash, c.events[2].hash, sizeof(e->prev_hash));
	e->schema_sha256[0] ^= 1;
	assert_int_equal(sl_audit_event_format(e, c.lines[3], &len, &err), 0);
	put_event_row(4, e, c.lines[3]);
	f = verify(true, false, NULL);
	assert_told(&f, 0, SL_AUDIT_LINK, "event 4 has another schema");
}

/* ---- names ---- */

static void files_with_names_of_partitions_that_are_not_due_are_named(void **state)
{
	static const char *const strange[] = {
		/* in the range that is committed */
		"partition-00000000000000000010/part-00000000000000000101-00000000000000000104.parquet",
		/* after it, in another partition's folder */
		"partition-00000000000000000010/part-00000000000000000200-00000000000000000209.parquet",
		/* after it, and not one partition */
		"partition-00000000000000000010/part-00000000000000000200-00000000000000000219.parquet",
		/* hidden from readers, and not from this */
		"partition-00000000000000000010/_x.parquet"};
	char path[512];
	(void)state;
	for (size_t i = 0; i < SL_COUNT(strange); i++) {
		(void)snprintf(path, sizeof(path), "%s/d/%s", place.dir, strange[i]);
		audit_write(path, "x", 1);
		struct findings f = verify(false, false, NULL);
		assert_told(&f, 0, SL_AUDIT_UNKNOWN, path);
		assert_int_equal(unlink(path), 0);
	}
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(events_with_right_hashes_that_do_not_fit_are_named),
		T(an_event_missing_after_a_damaged_one_is_noticed),
		T(event_files_that_do_not_follow_each_other_are_named),
		T(a_head_of_another_chain_is_named),
		T(a_secret_key_that_others_may_read_signs_nothing),
		T(rows_with_events_of_another_chain_are_named),
		T(events_that_only_the_catalog_has_must_fit_too),
		T(files_with_names_of_partitions_that_are_not_due_are_named),
	};
	int rc = catalog_place_start(&place, argc, argv);
	if (rc != 0)
		return rc;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	catalog_place_stop(&place);
	return rc;
}
