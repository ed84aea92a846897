/* SPDX-License-Identifier: Apache-2.0 */
/* Verification: an export as it should be has no findings; whatever is changed is named. */
#include <errno.h>
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
#include "base/sha256.h"
#include "pipeline/audit_dataset.h"
#include "support/fault.h"

#define PARTITIONS 3

static struct catalog_place place;

struct findings {
	int n, notes;
	enum sl_audit_fault faults[64];
	char where[64][512]; /* path and text */
	uint64_t events[64];
};

static int note_finding(const struct sl_audit_finding *f, void *ctx)
{
	struct findings *all = ctx;
	if (f->fault < SL_AUDIT_MISSING)
		all->notes++;
	assert_true(all->n < 64);
	all->faults[all->n] = f->fault;
	all->events[all->n] = f->event;
	(void)snprintf(all->where[all->n++], sizeof(all->where[0]), "%.300s: %.200s", f->path, f->text);
	return 0;
}

/* What is verified, and how. */
struct how {
	const char *checkpoint, *public_key; /* names below the place */
	bool no_catalog, all;
	int threads;
	const struct sl_env *env;
};

static int verify_rc(const struct how *how, struct findings *f, struct sl_audit_result *r, struct sl_err *err)
{
	char checkpoint[512], key[512];
	(void)snprintf(checkpoint, sizeof(checkpoint), "%s/%s", place.dir,
		       how->checkpoint != NULL ? how->checkpoint : "");
	(void)snprintf(key, sizeof(key), "%s/%s", place.dir, how->public_key != NULL ? how->public_key : "");
	struct sl_audit_verify_opts opts = {SL_AUDIT_VERIFY_OPTS_INIT,
					    .env = how->env,
					    .threads = how->threads,
					    .all = how->all ? SL_ON : SL_OFF,
					    .checkpoint = how->checkpoint != NULL ? checkpoint : NULL,
					    .public_key = how->public_key != NULL ? key : NULL,
					    .catalog = how->no_catalog        ? ""
						       : place.server != NULL ? place.url
									      : NULL,
					    .on_finding = note_finding,
					    .ctx = f};
	*f = (struct findings){.n = 0};
	*r = (struct sl_audit_result){.struct_size = sizeof(*r)};
	return sl_audit_verify(place.dir, "d", &opts, r, err);
}

static struct findings verify(const struct how *how)
{
	struct findings f;
	struct sl_audit_result r;
	struct sl_err err = SL_ERR_INIT;
	if (verify_rc(how, &f, &r, &err) != 0)
		fail_msg("%s", err.msg);
	assert_int_equal(r.findings, (uint64_t)(f.n - f.notes));
	return f;
}

/* The first finding is of this kind and names this. */
static void assert_named(const struct findings *f, enum sl_audit_fault fault, const char *name)
{
	if (f->n == 0)
		fail_msg("nothing was found, expected %d: %s", (int)fault, name);
	if (f->faults[0] != fault || strstr(f->where[0], name) == NULL)
		fail_msg("found %d: %s, expected %d: %s", (int)f->faults[0], f->where[0], (int)fault, name);
}

static void assert_clean(const struct how *how)
{
	struct findings f = verify(how);
	if (f.n != 0)
		fail_msg("%s", f.where[0]);
}

static int set_up(void **state)
{
	(void)state;
	catalog_place_set_up(&place);
	if (place.server != NULL) { /* verification looks where exports put it */
		(void)snprintf(place.schema, sizeof(place.schema), "sluice");
		assert_int_equal(pg_temp_exec(place.admin, "SET search_path = sluice"), 0);
	}
	audit_dataset_make(&place, PARTITIONS);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	catalog_place_tear_down(&place);
	return 0;
}

/* ---- as it should be ---- */

static void an_intact_dataset_has_no_findings(void **state)
{
	struct findings f;
	struct sl_audit_result r;
	struct sl_err err = SL_ERR_INIT;
	const struct how how = {.checkpoint = "head", .public_key = "key.pub", .all = true};
	(void)state;
	assert_int_equal(verify_rc(&how, &f, &r, &err), 0);
	assert_int_equal(f.n, 0);
	assert_int_equal(r.events, PARTITIONS);
	assert_int_equal(r.rows, PARTITIONS * AUDIT_SIZE);
	assert_int_equal(r.start, 100);
	assert_int_equal(r.checkpoint, 129);
	assert_true(r.catalog_checked && r.head_checked && r.signature_checked);
	assert_clean(&(struct how){.no_catalog = true});
}

static void a_dataset_that_is_not_there_is_an_error_and_no_finding(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_audit_result r = {.struct_size = sizeof(r)};
	struct sl_audit_verify_opts opts = {SL_AUDIT_VERIFY_OPTS_INIT, .catalog = ""};
	(void)state;
	assert_int_equal(sl_audit_verify(place.dir, "nothing", &opts, &r, &err), SL_ENOENT);
	opts.catalog = place.server != NULL ? place.url : NULL;
	assert_int_equal(sl_audit_verify(place.dir, "nothing", &opts, &r, &err), SL_ENOENT);
	assert_int_equal(sl_audit_verify(place.dir, "../d", &opts, &r, &err), SL_EINVAL);
}

/* ---- every byte ---- */

static void every_changed_byte_of_a_data_file_is_named(void **state)
{
	char path[512];
	size_t n;
	(void)state;
	audit_dataset_file(&place, 1, path);
	char *data = audit_read(path, &n);
	for (size_t i = 0; i < n; i++) {
		data[i] ^= (char)(1 << (i % 8));
		audit_write(path, data, n);
		data[i] ^= (char)(1 << (i % 8));
		struct findings f = verify(&(struct how){.no_catalog = true, .threads = 1});
		assert_named(&f, SL_AUDIT_HASH, path);
		assert_int_equal(f.events[0], 2);
	}
	audit_write(path, data, n - 1);
	struct findings f = verify(&(struct how){.no_catalog = true});
	assert_named(&f, SL_AUDIT_SIZE, path);
	assert_int_equal(unlink(path), 0);
	f = verify(&(struct how){.no_catalog = true});
	assert_named(&f, SL_AUDIT_MISSING, path);
	printf("# %zu bytes\n", n);
	free(data);
}

static void every_changed_byte_of_the_events_is_named(void **state)
{
	char path[512];
	size_t n;
	(void)state;
	audit_dataset_events(&place, path);
	char *data = audit_read(path, &n);
	for (size_t i = 0; i < n; i++) {
		char was = data[i];
		data[i] = (char)(was ^ (1 << (i % 7)));
		audit_write(path, data, n);
		data[i] = was;
		/* With the catalog every eighth: it takes longer. */
		struct findings f = verify(&(struct how){.no_catalog = i % 8 != 0, .threads = 1});
		assert_named(&f, SL_AUDIT_EVENT, path);
	}
	printf("# %zu bytes\n", n);
	free(data);
}

/* A damaged event is one finding when the catalog can stand in for it. */
static void one_damaged_event_is_one_finding(void **state)
{
	char path[512];
	size_t n;
	(void)state;
	audit_dataset_events(&place, path);
	char *data = audit_read(path, &n);
	for (int line = 0; line < PARTITIONS; line++) {
		char *copy = malloc(n), *at = copy;
		assert_non_null(copy);
		memcpy(copy, data, n);
		for (int i = 0; i < line; i++)
			at = strchr(at, '\n') + 1;
		at[300] ^= 1;
		audit_write(path, copy, n);
		struct findings f = verify(&(struct how){.all = true});
		assert_named(&f, SL_AUDIT_EVENT, path);
		if (f.n != 1)
			fail_msg("line %d: %d findings: %s", line, f.n, f.where[1]);
		free(copy);
	}
	free(data);
}

static void every_changed_byte_of_a_head_is_named(void **state)
{
	char path[512];
	size_t n;
	(void)state;
	(void)snprintf(path, sizeof(path), "%s/head", place.dir);
	char *data = audit_read(path, &n);
	for (size_t i = 0; i < n; i++) {
		char was = data[i];
		data[i] = (char)(was ^ (1 << (i % 7)));
		audit_write(path, data, n);
		data[i] = was;
		struct findings f = verify(&(struct how){.no_catalog = true,
							 .threads = 1,
							 .checkpoint = "head",
							 .public_key = i % 2 ? "key.pub" : NULL});
		assert_int_equal(f.n, 1);
		assert_true(f.faults[0] == SL_AUDIT_HEAD || f.faults[0] == SL_AUDIT_SIGNATURE);
		assert_non_null(strstr(f.where[0], path));
	}
	free(data);
}

/* ---- every column ---- */

static const struct {
	const char *table, *column, *key;
	bool text;
} columns[] = {
	{"sluice_dataset", "name", "name='d'", true},
	{"sluice_dataset", "partition_size", "name='d'", false},
	{"sluice_dataset", "sequence_column", "name='d'", true},
	{"sluice_dataset", "schema_text", "name='d'", true},
	{"sluice_dataset", "schema_sha256", "name='d'", true},
	{"sluice_dataset", "events", "name='d'", false},
	{"sluice_dataset", "first_sequence", "name='d'", false},
	{"sluice_dataset", "checkpoint", "name='d'", false},
	{"sluice_dataset", "row_count", "name='d'", false},
	{"sluice_dataset", "bad_row_count", "name='d'", false},
	{"sluice_dataset", "byte_count", "name='d'", false},
	{"sluice_dataset", "head_hash", "name='d'", true},
	{"sluice_dataset", "delivered_files", "name='d'", false},
	{"sluice_dataset", "delivered_endpoint", "name='d'", false},
	{"sluice_partition", "dataset", "event=", true},
	{"sluice_partition", "first_sequence", "event=", false},
	{"sluice_partition", "last_sequence", "event=", false},
	{"sluice_partition", "type", "event=", true},
	{"sluice_partition", "row_count", "event=", false},
	{"sluice_partition", "bad_row_count", "event=", false},
	{"sluice_partition", "hole_count", "event=", false},
	{"sluice_partition", "holes", "event=", true},
	{"sluice_partition", "byte_count", "event=", false},
	{"sluice_partition", "sha256", "event=", true},
	{"sluice_partition", "path", "event=", true},
	{"sluice_partition", "event", "first_sequence=90+10*", false},
	{"sluice_audit_event", "dataset", "number=", true},
	{"sluice_audit_event", "number", "id=", false},
	{"sluice_audit_event", "id", "number=", true},
	{"sluice_audit_event", "event", "number=", true},
};

/* Of the column: another value, or the one before again. */
static void change_column(size_t i, int row, bool back)
{
	char sql[512], key[64], set[128];
	if (strcmp(columns[i].column, "name") == 0)
		(void)snprintf(key, sizeof(key), "name='%s'", back ? "dx" : "d");
	else if (strcmp(columns[i].column, "number") == 0)
		(void)snprintf(key, sizeof(key), "id='d:1%d0-1%d9'", row - 1, row - 1);
	else
		(void)snprintf(key, sizeof(key), "%s%.0d", columns[i].key,
			       strchr(columns[i].key, '\'') != NULL ? 0 : row);
	if (!columns[i].text)
		(void)snprintf(set, sizeof(set), "%s%c100", columns[i].column, back ? '-' : '+');
	else if (!back)
		(void)snprintf(set, sizeof(set), "%s||'x'", columns[i].column);
	else
		(void)snprintf(set, sizeof(set), "substr(%s,1,length(%s)-1)", columns[i].column, columns[i].column);
	(void)snprintf(sql, sizeof(sql), "UPDATE %s SET %s=%s WHERE %s", columns[i].table, columns[i].column, set, key);
	catalog_place_exec(&place, sql);
}

static void every_changed_column_of_the_catalog_is_named(void **state)
{
	int tried = 0;
	(void)state;
	for (size_t i = 0; i < SL_COUNT(columns); i++)
		for (int row = 1; row <= (strcmp(columns[i].table, "sluice_dataset") == 0 ? 1 : PARTITIONS); row++) {
			change_column(i, row, false);
			struct findings f = verify(&(struct how){.threads = 1});
			change_column(i, row, true);
			if (f.n == 0)
				fail_msg("%s.%s of row %d", columns[i].table, columns[i].column, row);
			assert_named(&f, SL_AUDIT_CATALOG, columns[i].table);
			tried++;
		}
	printf("# %d columns of rows\n", tried);
	assert_clean(&(struct how){.all = true});
}

/* SQLite takes any type in any column, and gives it as another. */
static void give_type(size_t i, int row, bool back)
{
	char sql[512], key[64];
	const char *c = columns[i].column;
	(void)snprintf(key, sizeof(key), "%s%.0d", columns[i].key, strchr(columns[i].key, '\'') != NULL ? 0 : row);
	if (strcmp(c, "name") == 0)
		(void)snprintf(key, sizeof(key), "CAST(name AS TEXT)='d'");
	else if (strcmp(c, "number") == 0)
		(void)snprintf(key, sizeof(key), "id='d:1%d0-1%d9'", row - 1, row - 1);
	if (columns[i].text)
		(void)snprintf(sql, sizeof(sql), "UPDATE %s SET %s=CAST(%s AS %s) WHERE %s", columns[i].table, c, c,
			       back ? "TEXT" : "BLOB", key);
	else if (back)
		(void)snprintf(sql, sizeof(sql), "UPDATE %s SET %s=CAST(%s AS INTEGER) WHERE %s", columns[i].table, c,
			       c, key);
	else
		(void)snprintf(sql, sizeof(sql), "UPDATE %s SET %s=%s%s WHERE %s", columns[i].table, c, c,
			       row % 2 != 0 ? "||'x'" : "+0.5", key);
	catalog_place_exec(&place, sql);
}

static void every_value_of_another_type_is_named(void **state)
{
	(void)state;
	for (size_t i = 0; i < SL_COUNT(columns); i++)
		for (int row = 1; row <= (strcmp(columns[i].table, "sluice_dataset") == 0 ? 1 : PARTITIONS); row++) {
			give_type(i, row, false);
			struct findings f = verify(&(struct how){.threads = 1});
			struct findings all = verify(&(struct how){.threads = 1, .all = true});
			give_type(i, row, true);
			if (f.n == 0)
				fail_msg("%s.%s of row %d", columns[i].table, columns[i].column, row);
			assert_named(&f, SL_AUDIT_CATALOG, columns[i].table);
			assert_true(all.n < 8);
		}
	/* Nor does a text end where a NUL stands. */
	catalog_place_exec(&place, "UPDATE sluice_partition SET path=path||char(0)||'x' WHERE event=2");
	struct findings f = verify(&(struct how){.threads = 1});
	assert_named(&f, SL_AUDIT_CATALOG, "sluice_partition d/110");
	catalog_place_exec(&place,
			   "UPDATE sluice_partition SET path=substr(path,1,instr(path,char(0))-1) WHERE event=2");
	assert_clean(&(struct how){.all = true});
}

static void rows_that_are_missing_or_too_many_are_named(void **state)
{
	(void)state;
	catalog_place_exec(
		&place, "INSERT INTO sluice_partition SELECT dataset,900,909,type,row_count,bad_row_count,"
			"hole_count,holes,committed_ms,byte_count,sha256,path,9 FROM sluice_partition WHERE event=3");
	struct findings f = verify(&(struct how){.threads = 1});
	assert_named(&f, SL_AUDIT_CATALOG, "sluice_partition d/900");
	catalog_place_exec(&place, "DELETE FROM sluice_partition WHERE event=9");
	for (int row = 1; row <= PARTITIONS; row++) {
		char sql[256], key[64];
		catalog_place_exec(&place, "CREATE TABLE kept AS SELECT * FROM sluice_partition");
		(void)snprintf(sql, sizeof(sql), "DELETE FROM sluice_partition WHERE event=%d", row);
		catalog_place_exec(&place, sql);
		f = verify(&(struct how){.threads = 1});
		(void)snprintf(key, sizeof(key), "sluice_partition d/%d", 90 + 10 * row);
		assert_named(&f, SL_AUDIT_CATALOG, key);
		catalog_place_exec(&place, "DELETE FROM sluice_partition");
		catalog_place_exec(&place, "INSERT INTO sluice_partition SELECT * FROM kept");
		catalog_place_exec(&place, "DROP TABLE kept");
		catalog_place_exec(&place, "CREATE TABLE kept AS SELECT * FROM sluice_audit_event");
		(void)snprintf(sql, sizeof(sql), "DELETE FROM sluice_audit_event WHERE number=%d", row);
		catalog_place_exec(&place, sql);
		f = verify(&(struct how){.threads = 1});
		(void)snprintf(key, sizeof(key), "sluice_audit_event d/%d", row);
		assert_named(&f, SL_AUDIT_CATALOG, key);
		catalog_place_exec(&place, "DELETE FROM sluice_audit_event");
		catalog_place_exec(&place, "INSERT INTO sluice_audit_event SELECT * FROM kept");
		catalog_place_exec(&place, "DROP TABLE kept");
	}
	assert_clean(&(struct how){.all = true});
}

/* ---- the chain ---- */

/* Write the lines of the event file in this order; -1 ends it. */
static void put_lines(const int *order)
{
	char path[512], *lines[PARTITIONS], *at;
	static char whole[65536];
	size_t n, used = 0;
	audit_dataset_events(&place, path);
	char *data = audit_read(path, &n);
	data[n] = '\0';
	at = data;
	for (int i = 0; i < PARTITIONS; i++) {
		lines[i] = at;
		at = strchr(at, '\n') + 1;
	}
	for (; *order >= 0; order++) {
		size_t len = strcspn(lines[*order], "\n") + 1;
		memcpy(whole + used, lines[*order], len);
		used += len;
	}
	audit_write(path, whole, used);
	free(data);
}

static void events_that_are_gone_or_have_changed_places_are_named(void **state)
{
	static const struct {
		int order[8];
		const char *named;
	} cases[] = {{{1, 2, -1}, "event 2 instead of event 1"},
		     {{0, 2, -1}, "event 3 instead of event 2"},
		     {{1, 0, 2, -1}, "event 2 instead of event 1"},
		     {{0, 2, 1, -1}, "event 3 instead of event 2"},
		     {{0, 1, 1, 2, -1}, "event 2 instead of event 3"}};
	char path[512];
	size_t n;
	(void)state;
	audit_dataset_events(&place, path);
	char *data = audit_read(path, &n);
	for (size_t i = 0; i < SL_COUNT(cases); i++)
		for (int all = 0; all < 2; all++) {
			put_lines(cases[i].order);
			struct findings f = verify(&(struct how){.no_catalog = i % 2 == 0, .all = all});
			assert_named(&f, SL_AUDIT_LINK, cases[i].named);
			audit_write(path, data, n);
		}
	/* At the end: the catalog says that it was written there. */
	put_lines((const int[]){0, 1, -1});
	struct findings f = verify(&(struct how){.all = true});
	assert_named(&f, SL_AUDIT_EVENT, "event 3 was written");
	assert_int_equal(f.n, 1);
	free(data);
}

static void drop_tail(void)
{
	char path[512];
	put_lines((const int[]){0, 1, -1});
	audit_dataset_file(&place, 2, path);
	assert_int_equal(unlink(path), 0);
	catalog_place_exec(&place, "DELETE FROM sluice_audit_event WHERE number=3");
	catalog_place_exec(&place, "DELETE FROM sluice_partition WHERE event=3");
	catalog_place_exec(
		&place, "UPDATE sluice_dataset SET events=2,checkpoint=119,row_count=20,delivered_files=2,"
			"byte_count=(SELECT sum(byte_count) FROM sluice_partition WHERE dataset='d') WHERE name='d'");
	/* A forger of the rest knows the hash as well. */
	struct sl_audit_head h;
	struct sl_err err = SL_ERR_INIT;
	char hex[SL__SHA256_HEX], sql[256];
	assert_int_equal(sl_audit_head_read(place.dir, "d", NULL, &h, &err), 0);
	sl__sha256_hex(h.event_hash, hex);
	(void)snprintf(sql, sizeof(sql), "UPDATE sluice_dataset SET head_hash='%s' WHERE name='d'", hex);
	catalog_place_exec(&place, sql);
}

static void a_tail_that_was_cut_off_everywhere_is_found_by_the_head(void **state)
{
	(void)state;
	drop_tail();
	assert_clean(&(struct how){.all = true});
	struct findings f = verify(&(struct how){.checkpoint = "head"});
	assert_named(&f, SL_AUDIT_HEAD, "its end is missing");
	f = verify(&(struct how){.checkpoint = "head", .public_key = "key.pub", .no_catalog = true});
	assert_named(&f, SL_AUDIT_HEAD, "3 events");
	/* A head of what is there now is fine. */
	audit_dataset_head(&place, "new_head", 1);
	assert_clean(&(struct how){.checkpoint = "new_head", .public_key = "key.pub"});
}

static void an_old_head_is_still_in_a_chain_that_has_grown(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	sl_catalog *c = catalog_place_open(&place, NULL);
	sl_catalog_lease *lease = NULL;
	(void)state;
	assert_int_equal(sl_catalog_lease_acquire(c, "d", NULL, &lease, &err), 0);
	audit_dataset_put(&place, c, lease, 3, NULL);
	/* Not delivered yet: reported, and no fault; its file is verified all the same. */
	struct findings f = verify(&(struct how){.checkpoint = "head", .all = true});
	assert_int_equal(f.n, 1);
	assert_named(&f, SL_AUDIT_NOTE_BACKLOG, "1 events");
	audit_dataset_deliver(&place, c, lease);
	assert_clean(&(struct how){.checkpoint = "head", .public_key = "key.pub"});
	sl_catalog_lease_release(lease);
	sl_catalog_close(c);
}

static void a_head_by_another_key_or_by_none_is_refused(void **state)
{
	uint8_t key[SL_AUDIT_PUBLIC_KEY_BYTES];
	struct sl_err err = SL_ERR_INIT;
	struct sl_audit_result r;
	struct findings f;
	char path[512];
	(void)state;
	(void)snprintf(path, sizeof(path), "%s/other", place.dir);
	assert_int_equal(sl_audit_keygen(path, NULL, key, &err), 0);
	f = verify(&(struct how){.checkpoint = "head", .public_key = "other.pub"});
	assert_named(&f, SL_AUDIT_SIGNATURE, "another key");
	audit_dataset_head(&place, "plain", 0);
	assert_clean(&(struct how){.checkpoint = "plain"});
	f = verify(&(struct how){.checkpoint = "plain", .public_key = "key.pub"});
	assert_named(&f, SL_AUDIT_SIGNATURE, "not signed");
	/* What is no key is an error, not a finding. */
	assert_int_equal(verify_rc(&(struct how){.checkpoint = "head", .public_key = "head"}, &f, &r, &err), SL_EKEY);
	assert_int_equal(verify_rc(&(struct how){.checkpoint = "head", .public_key = "key"}, &f, &r, &err), SL_EKEY);
	assert_int_equal(verify_rc(&(struct how){.checkpoint = "nothing"}, &f, &r, &err), SL_ENOENT);
	assert_int_equal(verify_rc(&(struct how){.public_key = "key.pub"}, &f, &r, &err), SL_EINVAL);
}

/* ---- gaps ---- */

static void a_gap_that_a_backfill_has_left_is_named(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	sl_catalog *c = catalog_place_open(&place, NULL);
	sl_catalog_lease *lease = NULL;
	char path[256];
	(void)state;
	assert_int_equal(sl_catalog_lease_acquire(c, "d", NULL, &lease, &err), 0);
	struct sl_catalog_partition p = catalog_partition("d", 50, 59, AUDIT_SIZE, path);
	p.type = SL_AUDIT_BACKFILL;
	assert_int_equal(sl_catalog_commit(c, lease, &p, NULL, &err), 0);
	audit_dataset_deliver(&place, c, lease);
	struct findings f = verify(&(struct how){.threads = 1});
	assert_named(&f, SL_AUDIT_GAP, "60 to 99");
	sl_catalog_lease_release(lease);
	sl_catalog_close(c);
}

/* ---- the tree ---- */

static void what_does_not_belong_there_is_named(void **state)
{
	static const char *const strange[] = {"d/extra.parquet", "d/partition-00000000000000000010/more.parquet",
					      "d/.hidden", "d/_audit/notes.txt", "d/_audit/events-1.jsonl",
					      /* of a range that is committed, under another name */
					      "d/partition-00000000000000000010/part-1-4.parquet"};
	char path[512], target[512];
	struct findings f;
	(void)state;
	for (size_t i = 0; i < SL_COUNT(strange); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", place.dir, strange[i]);
		audit_write(path, "x", 1);
		f = verify(&(struct how){.no_catalog = true});
		assert_named(&f, SL_AUDIT_UNKNOWN, path);
		assert_int_equal(unlink(path), 0);
	}
	(void)snprintf(path, sizeof(path), "%s/d/link", place.dir);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	f = verify(&(struct how){.no_catalog = true});
	assert_named(&f, SL_AUDIT_UNKNOWN, path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	f = verify(&(struct how){.no_catalog = true});
	assert_named(&f, SL_AUDIT_UNKNOWN, path);
	assert_int_equal(unlink(path), 0);
	/* What an export that was killed leaves is reported, and no fault. */
	(void)snprintf(path, sizeof(path), "%s/d/partition-00000000000000000010/.part-x.parquet.tmp-1234", place.dir);
	audit_write(path, "x", 1);
	(void)snprintf(target, sizeof(target), "%s/d/partition-00000000000000000013", place.dir);
	assert_int_equal(mkdir(target, 0700), 0);
	audit_dataset_file(&place, 3, path);
	audit_write(path, "x", 1);
	f = verify(&(struct how){.all = true});
	assert_int_equal(f.n, 2);
	assert_int_equal(f.notes, 2);
	/* Folders with an underscore are not data. */
	(void)snprintf(target, sizeof(target), "%s/d/_rejected", place.dir);
	assert_int_equal(mkdir(target, 0700), 0);
	assert_int_equal(verify(&(struct how){.all = true}).n, 2);
}

/* A file with a name of ours: by what it holds, and by whether an event holds that as well. */
static void a_file_of_sequences_that_no_event_holds_is_no_fault(void **state)
{
	static const struct {
		unsigned partition, start, end;
		bool fault;
	} cases[] = {{9, 90, 99, false},                           /* of a backfill that continues */
		     {9, 95, 97, false},    {13, 130, 139, false}, /* of an export */
		     {12, 120, 125, false}, /* the last one, closed short by a run that was killed */
		     {12, 121, 129, true},  {11, 110, 115, true},  {10, 100, 100, true},
		     {9, 90, 98, false},    {9, 90, 100, true} /* crosses a boundary */};
	(void)state;
	for (size_t i = 0; i < SL_COUNT(cases); i++) {
		char path[512], folder[512];
		(void)snprintf(folder, sizeof(folder), "%s/d/partition-%020u", place.dir, cases[i].partition);
		(void)mkdir(folder, 0700);
		(void)snprintf(path, sizeof(path), "%.400s/part-%020u-%020u.parquet", folder, cases[i].start,
			       cases[i].end);
		audit_write(path, "x", 1);
		struct findings f = verify(&(struct how){.no_catalog = i % 2 == 0, .all = true});
		assert_named(&f, cases[i].fault ? SL_AUDIT_UNKNOWN : SL_AUDIT_NOTE_UNCOMMITTED, path);
		assert_int_equal(f.n, 1);
		assert_int_equal(unlink(path), 0);
	}
}

static void no_link_is_followed_out_of_the_folder(void **state)
{
	char path[512], other[512], folder[512];
	struct findings f;
	(void)state;
	audit_dataset_file(&place, 0, path);
	(void)snprintf(other, sizeof(other), "%s/elsewhere", place.dir);
	assert_int_equal(rename(path, other), 0);
	assert_int_equal(symlink(other, path), 0);
	f = verify(&(struct how){.no_catalog = true});
	assert_named(&f, SL_AUDIT_UNREADABLE, path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rename(other, path), 0);
	assert_clean(&(struct how){.no_catalog = true});
	/* Nor a folder's. */
	(void)snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(path, '/') - path), path);
	assert_int_equal(rename(folder, other), 0);
	assert_int_equal(symlink(other, folder), 0);
	f = verify(&(struct how){.no_catalog = true, .all = true});
	assert_named(&f, SL_AUDIT_UNKNOWN, folder);
	assert_int_equal(f.faults[f.n - 1], SL_AUDIT_UNREADABLE);
	assert_int_equal(unlink(folder), 0);
	assert_int_equal(rename(other, folder), 0);
	/* Nor the events'. */
	audit_dataset_events(&place, path);
	assert_int_equal(rename(path, other), 0);
	assert_int_equal(symlink(other, path), 0);
	f = verify(&(struct how){.no_catalog = true});
	assert_named(&f, SL_AUDIT_UNREADABLE, path);
}

/* ---- contents ---- */

static void files_that_do_not_hold_what_their_event_says_are_named(void **state)
{
	static const int64_t twice[] = {130, 131, 131, 133, 134, 135, 136, 137, 138, 139};
	static const int64_t back[] = {130, 132, 131, 133, 134, 135, 136, 137, 138, 139};
	static const int64_t outside[] = {130, 131, 132, 133, 134, 135, 136, 137, 138, 140};
	static const int64_t negative[] = {-130, 131, 132, 133, 134, 135, 136, 137, 138, 139};
	static const int64_t short_one[] = {130, 131, 132};
	static const int64_t holes[] = {130, 132, 139};
	static const int64_t holes_back[] = {130, 139, 132}, holes_before[] = {129, 132, 139},
			     holes_outside[] = {130, 132, 140};
	static const struct {
		struct audit_rows rows;
		const char *named; /* NULL: nothing is wrong */
	} cases[] = {
		{{.sequences = twice, .n = 10}, "sequence 131, expected 132"},
		{{.sequences = back, .n = 10}, "sequence 132, expected 131"},
		{{.sequences = outside, .n = 10}, "sequence 140, expected 139"},
		{{.sequences = negative, .n = 10}, "sequence -130"},
		{{.sequences = short_one, .n = 3, .said_rows = 10}, "3 rows"},
		{{.sequences = holes, .n = 3, .said_rows = 4}, "3 rows, its event has 4"},
		{{.sequences = holes, .n = 3, .said_rows = 2}, "3 rows, its event has 2"},
		{{.column = "id"}, "no integer column \"seq\""},
		{{.sequences = outside, .n = 10, .group_rows = 4}, "sequence 140, expected 139"},
		{{.null_at = 3}, ", expected"},
		{{.sequences = holes_back, .n = 3}, "sequence 132, expected 140"},
		{{.sequences = holes_before, .n = 3}, "sequence 129, expected 130"},
		{{.sequences = holes_outside, .n = 3}, "sequence 140, expected 133"},
		{{.group_rows = 3}, NULL},
		{{.sequences = holes, .n = 3, .n_holes = 7, .holes = "131,133-138"}, NULL},
		{{.sequences = holes, .n = 3, .n_holes = 7, .holes = "132-138"},
		 "a row of sequence 132, which its event calls a hole"},
		{{.sequences = short_one, .n = 3, .n_holes = 7, .holes = "132-138"},
		 "a row of sequence 132, which its event calls a hole"},
		{{.sequences = holes, .n = 3, .n_holes = 1, .holes = "135"}, NULL},
		{{.sequences = holes, .n = 3, .n_holes = 1, .holes = "139"}, "sequence 139, which its event calls"},
		{{.sequences = holes, .n = 3}, NULL}};
	(void)state;
	for (size_t i = 0; i < SL_COUNT(cases); i++) {
		struct sl_err err = SL_ERR_INIT;
		sl_catalog_lease *lease = NULL;
		char path[512];
		if (i > 0) {
			(void)tear_down(NULL);
			(void)set_up(NULL);
		}
		sl_catalog *c = catalog_place_open(&place, NULL);
		assert_int_equal(sl_catalog_lease_acquire(c, "d", NULL, &lease, &err), 0);
		audit_dataset_put(&place, c, lease, 3, &cases[i].rows);
		audit_dataset_deliver(&place, c, lease);
		sl_catalog_lease_release(lease);
		sl_catalog_close(c);
		struct findings f = verify(&(struct how){.all = true});
		audit_dataset_file(&place, 3, path);
		if (cases[i].named == NULL) {
			assert_int_equal(f.n, 0);
			continue;
		}
		assert_named(&f, SL_AUDIT_CONTENTS, path);
		assert_non_null(strstr(f.where[0], cases[i].named));
		assert_int_equal(f.n, 1);
	}
}

/* A row without a sequence is not the row of sequence 0. */
static void a_row_without_a_sequence_is_named(void **state)
{
	static const struct audit_rows rows = {.null_at = 1};
	struct sl_err err = SL_ERR_INIT;
	sl_catalog_lease *lease = NULL;
	(void)state;
	(void)tear_down(NULL);
	catalog_place_set_up(&place);
	sl_catalog *c = catalog_place_open(&place, NULL);
	assert_int_equal(sl_catalog_lease_acquire(c, "d", NULL, &lease, &err), 0);
	audit_dataset_define(c, lease);
	audit_dataset_put(&place, c, lease, (uint64_t)-10, &rows);
	audit_dataset_deliver(&place, c, lease);
	sl_catalog_lease_release(lease);
	sl_catalog_close(c);
	struct findings f = verify(&(struct how){.no_catalog = true});
	assert_named(&f, SL_AUDIT_CONTENTS, ", expected 0");
}

/* ---- threads, faults, callbacks ---- */

static void findings_come_in_the_order_of_the_chain_for_any_number_of_threads(void **state)
{
	char path[512];
	(void)state;
	(void)tear_down(NULL);
	catalog_place_set_up(&place);
	if (place.server != NULL)
		(void)snprintf(place.schema, sizeof(place.schema), "sluice");
	audit_dataset_make(&place, 24);
	for (uint64_t i = 0; i < 24; i += 2) {
		size_t n;
		audit_dataset_file(&place, i, path);
		char *data = audit_read(path, &n);
		data[n / 2] ^= 1;
		audit_write(path, data, n);
		free(data);
	}
	for (int threads = 1; threads <= 8; threads *= 2) {
		struct findings f = verify(&(struct how){.all = true, .no_catalog = true, .threads = threads});
		assert_int_equal(f.n, 12);
		for (int i = 0; i < 12; i++)
			assert_int_equal(f.events[i], (uint64_t)(2 * i + 1));
		f = verify(&(struct how){.no_catalog = true, .threads = threads});
		assert_int_equal(f.n, 1);
		assert_int_equal(f.events[0], 1);
	}
}

static void no_allocation_that_fails_makes_a_dataset_look_fine_or_broken(void **state)
{
	struct fault f;
	char path[512];
	size_t n;
	(void)state;
	audit_dataset_file(&place, 1, path);
	char *data = audit_read(path, &n);
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, NULL);
	for (int broken = 0; broken < 2; broken++) {
		int64_t at;
		for (at = 1;; at++) {
			struct findings found;
			struct sl_audit_result r;
			struct sl_err err = SL_ERR_INIT;
			fault_arm_mem(&f, at, FAULT_ONCE);
			int rc = verify_rc(&(struct how){.env = &env, .threads = 2, .checkpoint = "head"}, &found, &r,
					   &err);
			fault_disarm(&f);
			bool injected = fault_mem_failed(&f) != 0;
			assert_int_equal(fault_live_allocs(&f), 0);
			assert_true(rc == SL_ENOMEM ? injected : rc == 0 && found.n == broken);
			if (!injected)
				break;
		}
		printf("# %ld allocations failed in turn\n", (long)(at - 1));
		assert_true(at > 10);
		data[n / 2] ^= 1;
		audit_write(path, data, n);
	}
	fault_fini(&f);
	free(data);
}

static void no_call_that_fails_makes_a_dataset_look_fine(void **state)
{
	struct fault f;
	int64_t at;
	(void)state;
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, NULL);
	for (at = 1;; at++) {
		struct findings found;
		struct sl_audit_result r;
		struct sl_err err = SL_ERR_INIT;
		fault_arm_io(&f, at, FAULT_ONCE, EIO, FAULT_ALL_OPS & ~FAULT_OP(FAULT_CLOSE));
		int rc = verify_rc(&(struct how){.env = &env, .threads = 1, .checkpoint = "head"}, &found, &r, &err);
		fault_disarm(&f);
		bool injected = fault_io_failed(&f) != 0;
		assert_int_equal(fault_open_fds(&f), 0);
		if (!injected) {
			assert_int_equal(found.n, 0);
			assert_int_equal(rc, 0);
			break;
		}
		if (rc == 0 && found.n == 0)
			fail_msg("call %ld (%s) failed and nothing was reported", (long)at, f.failed_op);
	}
	printf("# %ld calls failed in turn\n", (long)(at - 1));
	assert_true(at > 15);
	fault_fini(&f);
}

static int cancel(uint64_t done, uint64_t total, void *ctx)
{
	(void)done;
	(void)total;
	(void)ctx;
	return SL_ECANCELLED;
}

static int stop_at_finding(const struct sl_audit_finding *f, void *ctx)
{
	(void)f;
	++*(int *)ctx;
	return -1234;
}

static void a_callback_can_end_it(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_audit_result r = {.struct_size = sizeof(r)};
	int told = 0;
	char path[512];
	struct sl_audit_verify_opts opts = {SL_AUDIT_VERIFY_OPTS_INIT, .catalog = "", .on_progress = cancel};
	(void)state;
	assert_int_equal(sl_audit_verify(place.dir, "d", &opts, &r, &err), SL_ECANCELLED);
	for (uint64_t i = 0; i < PARTITIONS; i++) {
		audit_dataset_file(&place, i, path);
		assert_int_equal(unlink(path), 0);
	}
	opts = (struct sl_audit_verify_opts){SL_AUDIT_VERIFY_OPTS_INIT, .catalog = "", .all = SL_ON,
					     .on_finding = stop_at_finding, .ctx = &told};
	assert_int_equal(sl_audit_verify(place.dir, "d", &opts, &r, &err), -1234);
	assert_int_equal(told, 1);
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		/* What asks the catalog, for both databases … */
		T(an_intact_dataset_has_no_findings),
		T(a_dataset_that_is_not_there_is_an_error_and_no_finding),
		T(every_changed_column_of_the_catalog_is_named),
		T(rows_that_are_missing_or_too_many_are_named),
		T(one_damaged_event_is_one_finding),
		T(events_that_are_gone_or_have_changed_places_are_named),
		T(a_tail_that_was_cut_off_everywhere_is_found_by_the_head),
		T(an_old_head_is_still_in_a_chain_that_has_grown),
		/* … and what does not. */
		T(every_value_of_another_type_is_named),
		T(every_changed_byte_of_a_data_file_is_named),
		T(every_changed_byte_of_the_events_is_named),
		T(every_changed_byte_of_a_head_is_named),
		T(a_head_by_another_key_or_by_none_is_refused),
		T(a_gap_that_a_backfill_has_left_is_named),
		T(what_does_not_belong_there_is_named),
		T(a_file_of_sequences_that_no_event_holds_is_no_fault),
		T(no_link_is_followed_out_of_the_folder),
		T(files_that_do_not_hold_what_their_event_says_are_named),
		T(a_row_without_a_sequence_is_named),
		T(findings_come_in_the_order_of_the_chain_for_any_number_of_threads),
		T(no_allocation_that_fails_makes_a_dataset_look_fine_or_broken),
		T(no_call_that_fails_makes_a_dataset_look_fine),
		T(a_callback_can_end_it),
	};
	int rc = catalog_place_start(&place, argc, argv);
	if (rc != 0)
		return rc;
	rc = _cmocka_run_group_tests("audit verify", tests, place.server != NULL ? 8 : SL_COUNT(tests), NULL, NULL);
	catalog_place_stop(&place);
	return rc;
}
