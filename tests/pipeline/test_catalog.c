/* SPDX-License-Identifier: Apache-2.0 */
/* The catalog's contract, the same for both databases: test_catalog sqlite, test_catalog postgres. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "pipeline/catalog_place.h"
#include "support/fault.h"

static struct catalog_place place;

struct opened {
	sl_catalog *c;
	sl_catalog_lease *lease;
};

static int set_up(void **state)
{
	struct opened *o = calloc(1, sizeof(*o));
	struct sl_err err = SL_ERR_INIT;
	assert_non_null(o);
	catalog_place_set_up(&place);
	o->c = catalog_place_open(&place, NULL);
	assert_int_equal(sl_catalog_lease_acquire(o->c, "d", NULL, &o->lease, &err), 0);
	catalog_define(o->c, o->lease);
	*state = o;
	return 0;
}

static int tear_down(void **state)
{
	struct opened *o = *state;
	sl_catalog_lease_release(o->lease);
	sl_catalog_close(o->c);
	free(o);
	catalog_place_tear_down(&place);
	return 0;
}

static int copy_dataset(const struct sl_dataset *d, void *ctx)
{
	memcpy(ctx, d, sizeof(*d));
	return 0;
}

static struct sl_dataset look(sl_catalog *c)
{
	struct sl_dataset d = {0};
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(sl_catalog_datasets(c, "d", copy_dataset, &d, &err), 0);
	return d;
}

/* ---- committing ---- */

struct walk {
	uint64_t n, last;
	struct sl_audit_event before;
	char storage[SL_AUDIT_EVENT_BYTES];
};

static int check_event(uint64_t number, const char *text, size_t len, void *ctx)
{
	struct walk *w = ctx;
	struct sl_audit_event e;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(number, w->n + 1);
	assert_int_equal(sl_audit_event_parse(text, len, &e, w->storage, &err), 0);
	assert_int_equal(e.number, number);
	if (w->n > 0)
		assert_memory_equal(e.prev_hash, w->before.hash, sizeof(e.hash));
	w->before = e;
	w->n++;
	return 0;
}

static int count_partition(const struct sl_catalog_partition *p, void *ctx)
{
	struct walk *w = ctx;
	assert_true(w->n == 0 || p->start > w->last);
	w->last = p->start;
	w->n++;
	return 0;
}

static void a_commit_is_row_event_and_checkpoint_together(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	struct walk events = {.n = 0}, partitions = {.n = 0};
	bool is_new = false;
	assert_int_equal(catalog_commit(o->c, o->lease, 150, 199, &is_new, &err), 0);
	assert_true(is_new);
	assert_int_equal(catalog_commit(o->c, o->lease, 200, 299, &is_new, &err), 0);
	struct sl_dataset d = look(o->c);
	assert_int_equal(d.start, 150);
	assert_int_equal(d.checkpoint, 299);
	assert_int_equal(d.events, 2);
	assert_int_equal(d.rows, 150);
	assert_int_equal(d.bytes, 2000);
	assert_int_equal(sl_catalog_events(o->c, "d", 0, 0, check_event, &events, &err), 0);
	assert_int_equal(events.n, 2);
	assert_memory_equal(events.before.hash, d.head, sizeof(d.head));
	assert_int_equal(sl_catalog_partitions(o->c, "d", 0, 0, count_partition, &partitions, &err), 0);
	assert_int_equal(partitions.n, 2);
}

static void committing_again_changes_nothing(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	bool is_new = true;
	assert_int_equal(catalog_commit(o->c, o->lease, 100, 199, NULL, &err), 0);
	assert_int_equal(catalog_commit(o->c, o->lease, 200, 299, NULL, &err), 0);
	struct sl_dataset before = look(o->c);
	assert_int_equal(catalog_commit(o->c, o->lease, 100, 199, &is_new, &err), 0);
	assert_false(is_new);
	assert_int_equal(catalog_commit(o->c, o->lease, 200, 299, &is_new, &err), 0);
	assert_false(is_new);
	struct sl_dataset after = look(o->c);
	assert_int_equal(after.events, 2);
	assert_memory_equal(after.head, before.head, sizeof(after.head));
}

static void other_contents_for_a_committed_range_are_a_conflict(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	char path[256];
	assert_int_equal(catalog_commit(o->c, o->lease, 100, 199, NULL, &err), 0);
	for (int i = 0; i < 8; i++) {
		struct sl_catalog_partition p = catalog_partition("d", 100, 199, 100, path);
		p.sha256[0] ^= i == 0;
		p.bytes += i == 1;
		p.rows -= i == 2, p.bad_rows += i == 2;
		p.end -= i == 3, p.rows -= i == 3;
		p.start += i == 4, p.rows -= i == 4;
		p.end -= i == 5;
		p.start += i == 6;
		p.path = i == 7 ? "d/elsewhere" : path;
		assert_int_equal(sl_catalog_commit(o->c, o->lease, &p, NULL, &err), SL_ECONFLICT);
		assert_non_null(strstr(err.msg, "part-00000000000000000100"));
	}
	assert_int_equal(look(o->c).events, 1);
}

/* A row that is in the way of the event: neither the partition nor the checkpoint is there without it. */
static void a_commit_whose_event_cannot_be_written_leaves_nothing(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(catalog_commit(o->c, o->lease, 100, 199, NULL, &err), 0);
	catalog_place_exec(&place, "INSERT INTO sluice_audit_event VALUES('d',2,'x','y')");
	assert_int_not_equal(catalog_commit(o->c, o->lease, 200, 299, NULL, &err), 0);
	assert_int_equal(catalog_place_number(&place, "SELECT count(*) FROM sluice_partition"), 1);
	assert_int_equal(look(o->c).checkpoint, 199);
	assert_int_equal(look(o->c).events, 1);
	catalog_place_exec(&place, "DELETE FROM sluice_audit_event WHERE number=2");
	bool is_new = false;
	assert_int_equal(catalog_commit(o->c, o->lease, 200, 299, &is_new, &err), 0);
	assert_true(is_new);
	assert_int_equal(look(o->c).checkpoint, 299);
}

static void what_does_not_continue_the_dataset_is_refused(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	char path[256];
	assert_int_equal(catalog_commit(o->c, o->lease, 300, 399, NULL, &err), 0);
	assert_int_equal(catalog_commit(o->c, o->lease, 500, 599, NULL, &err), SL_EGAP);
	assert_int_equal(catalog_commit(o->c, o->lease, 100, 199, NULL, &err), SL_EGAP);
	struct sl_catalog_partition p = catalog_partition("d", 400, 500, 100, path);
	assert_int_equal(sl_catalog_commit(o->c, o->lease, &p, NULL, &err), SL_EINVAL);
	p = catalog_partition("d", 400, 499, 100, path);
	p.rows--;
	assert_int_equal(sl_catalog_commit(o->c, o->lease, &p, NULL, &err), SL_EINVAL);
	p.rows++;
	p.path = "d/../x";
	assert_int_equal(sl_catalog_commit(o->c, o->lease, &p, NULL, &err), SL_EINVAL);
	assert_int_equal(look(o->c).events, 1);
	/* After all this the lease and the connection are as good as before. */
	assert_int_equal(catalog_commit(o->c, o->lease, 400, 450, NULL, &err), 0);
	assert_int_equal(catalog_commit(o->c, o->lease, 451, 499, NULL, &err), 0);
}

static int backfill(struct opened *o, uint64_t start, uint64_t end, struct sl_err *err)
{
	char path[256];
	struct sl_catalog_partition p = catalog_partition("d", start, end, 100, path);
	p.type = SL_AUDIT_BACKFILL;
	return sl_catalog_commit(o->c, o->lease, &p, NULL, err);
}

static int note_type(const struct sl_catalog_partition *p, void *ctx)
{
	char *text = ctx;
	size_t n = strlen(text);
	(void)snprintf(text + n, 200 - n, "%d:%d-%d ", (int)p->type, (int)p->start, (int)p->end);
	return 0;
}

static void a_backfill_fills_what_is_missing_and_nothing_else(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	char partial[200] = "", whole[200] = "";
	assert_int_equal(backfill(o, 100, 199, &err), SL_EINVAL); /* nothing is there yet */
	assert_int_equal(catalog_commit(o->c, o->lease, 500, 599, NULL, &err), 0);
	assert_int_equal(backfill(o, 600, 699, &err), SL_EINVAL);
	assert_int_equal(backfill(o, 100, 199, &err), 0);
	assert_int_equal(backfill(o, 100, 150, &err), SL_ECONFLICT);
	assert_int_equal(backfill(o, 300, 399, &err), 0);
	assert_int_equal(sl_catalog_partitions(o->c, "d", 0, 0, note_type, partial, &err), 0);
	assert_string_equal(partial, "1:100-199 1:300-399 0:500-599 ");
	assert_int_equal(backfill(o, 200, 299, &err), 0);
	assert_int_equal(backfill(o, 400, 499, &err), 0);
	assert_int_equal(sl_catalog_partitions(o->c, "d", 0, 0, note_type, whole, &err), 0);
	assert_string_equal(whole, "1:100-199 1:200-299 1:300-399 1:400-499 0:500-599 ");
	assert_int_equal(look(o->c).start, 100);
	assert_int_equal(look(o->c).checkpoint, 599);
	assert_int_equal(catalog_commit(o->c, o->lease, 600, 699, NULL, &err), 0);
}

static int commit_late(struct opened *o, uint64_t start, uint64_t end, bool *is_new, struct sl_err *err)
{
	char path[256];
	struct sl_catalog_partition p = catalog_partition("d", start, end, 100, path);
	p.type = SL_AUDIT_LATE;
	(void)snprintf(path, sizeof(path), "d/late-%d", (int)start);
	return sl_catalog_commit(o->c, o->lease, &p, is_new, err);
}

static void late_rows_lie_in_a_hole_and_overlap_nothing_else_that_is_late(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	char path[256], seen[200] = "";
	bool is_new = false;
	struct sl_catalog_partition p = catalog_partition("d", 100, 199, 100, path);
	p.rows -= 25;
	p.holes = 25;
	p.hole_ranges = "100-119,130,140-143";
	assert_int_equal(commit_late(o, 100, 101, NULL, &err), SL_EINVAL); /* nothing is there yet */
	assert_int_equal(sl_catalog_commit(o->c, o->lease, &p, NULL, &err), 0);
	assert_int_equal(catalog_commit(o->c, o->lease, 200, 299, NULL, &err), 0);
	assert_int_equal(commit_late(o, 120, 121, NULL, &err), SL_EINVAL);
	assert_non_null(strstr(err.msg, "120 to 121 were not recorded as a hole"));
	assert_int_equal(commit_late(o, 118, 120, NULL, &err), SL_EINVAL);
	assert_int_equal(commit_late(o, 201, 201, NULL, &err), SL_EINVAL);
	assert_int_equal(commit_late(o, 300, 301, NULL, &err), SL_EINVAL);
	assert_int_equal(commit_late(o, 141, 142, &is_new, &err), 0);
	assert_true(is_new);
	assert_int_equal(commit_late(o, 141, 142, &is_new, &err), 0);
	assert_false(is_new);
	assert_int_equal(commit_late(o, 142, 143, NULL, &err), SL_ECONFLICT);
	assert_int_equal(commit_late(o, 140, 141, NULL, &err), SL_ECONFLICT);
	assert_int_equal(commit_late(o, 100, 100, NULL, &err), 0); /* where its partition begins, too */
	assert_int_equal(catalog_commit(o->c, o->lease, 300, 399, NULL, &err), 0);
	assert_int_equal(look(o->c).start, 100);
	assert_int_equal(look(o->c).checkpoint, 399);
	assert_int_equal(look(o->c).rows, 278);
	assert_int_equal(sl_catalog_partitions(o->c, "d", 100, 0, note_type, seen, &err), 0);
	assert_string_equal(seen, "0:100-199 2:100-100 2:141-142 0:200-299 0:300-399 ");
}

static void a_definition_can_change_until_something_is_committed(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	struct sl_dataset d = {
		.struct_size = sizeof(d), .partition_size = 100, .sequence_column = "seq", .schema = "other"};
	assert_int_equal(sl_catalog_define(o->c, o->lease, &d, &err), 0);
	assert_int_equal(catalog_commit(o->c, o->lease, 100, 199, NULL, &err), 0);
	assert_int_equal(sl_catalog_define(o->c, o->lease, &d, &err), 0);
	d.schema = "more";
	assert_int_equal(sl_catalog_define(o->c, o->lease, &d, &err), SL_ECONFLICT);
	assert_non_null(strstr(err.msg, "schema"));
	d.schema = "other";
	d.partition_size = 101;
	assert_int_equal(sl_catalog_define(o->c, o->lease, &d, &err), SL_ECONFLICT);
	assert_non_null(strstr(err.msg, "partition_size"));
	d.partition_size = 100;
	d.sequence_column = "id";
	assert_int_equal(sl_catalog_define(o->c, o->lease, &d, &err), SL_ECONFLICT);
	d.sequence_column = "";
	assert_int_equal(sl_catalog_define(o->c, o->lease, &d, &err), SL_EINVAL);
}

static void many_rows_come_in_pages_and_in_order(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	struct walk events = {.n = 0}, partitions = {.n = 0}, some = {.n = 0};
	for (uint64_t i = 0; i < 1203; i++)
		assert_int_equal(catalog_commit(o->c, o->lease, i * 100, i * 100 + 99, NULL, &err), 0);
	assert_int_equal(sl_catalog_events(o->c, "d", 0, 0, check_event, &events, &err), 0);
	assert_int_equal(events.n, 1203);
	assert_int_equal(sl_catalog_partitions(o->c, "d", 0, 0, count_partition, &partitions, &err), 0);
	assert_int_equal(partitions.n, 1203);
	assert_int_equal(sl_catalog_partitions(o->c, "d", 101, 700, count_partition, &some, &err), 0);
	assert_int_equal(some.n, 700);
	assert_int_equal(some.last, 200 + 699 * 100);
}

static int stop_at_once(const struct sl_catalog_partition *p, void *ctx)
{
	(void)p;
	(void)ctx;
	return SL_ECANCELLED;
}

static void a_callback_can_stop_a_walk_and_use_the_catalog(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(catalog_commit(o->c, o->lease, 100, 199, NULL, &err), 0);
	assert_int_equal(sl_catalog_partitions(o->c, "d", 0, 0, stop_at_once, NULL, &err), SL_ECANCELLED);
	struct sl_dataset d;
	assert_int_equal(sl_catalog_datasets(o->c, "nothing", copy_dataset, &d, &err), SL_ENOENT);
	d.name = NULL;
	assert_int_equal(sl_catalog_datasets(o->c, NULL, copy_dataset, &d, &err), 0);
	assert_int_equal(d.checkpoint, 199);
}

/* ---- leases ---- */

static void a_lease_that_is_held_is_refused_and_its_holder_named(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	sl_catalog *other = catalog_place_open(&place, NULL);
	sl_catalog_lease *lease = NULL;
	char me[32];
	assert_int_equal(sl_catalog_lease_acquire(other, "d", NULL, &lease, &err), SL_ELOCKED);
	(void)snprintf(me, sizeof(me), "pid %ld", (long)getpid());
	assert_non_null(strstr(err.msg, me));
	assert_int_equal(sl_err_exit_code(err.code), 75);
	/* Another dataset is another lease, and one that was given back is free. */
	assert_int_equal(sl_catalog_lease_acquire(other, "e", NULL, &lease, &err), 0);
	sl_catalog_lease_release(lease);
	uint64_t fence = sl_catalog_lease_fence(o->lease);
	sl_catalog_lease_release(o->lease);
	assert_int_equal(sl_catalog_lease_acquire(other, "d", NULL, &o->lease, &err), 0);
	assert_true(sl_catalog_lease_fence(o->lease) > fence);
	sl_catalog_close(o->c);
	o->c = other;
}

static void a_holder_that_was_overtaken_cannot_write_any_more(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	struct sl_dataset d = {
		.struct_size = sizeof(d), .partition_size = 100, .sequence_column = "seq", .schema = "other"};
	assert_int_equal(catalog_commit(o->c, o->lease, 100, 199, NULL, &err), 0);
	catalog_place_exec(&place, "UPDATE sluice_dataset SET fence=fence+1, holder='another writer' WHERE name='d'");
	assert_int_equal(sl_catalog_lease_check(o->lease, &err), 0); /* not known yet */
	assert_int_equal(catalog_commit(o->c, o->lease, 200, 299, NULL, &err), SL_ESTALE);
	assert_non_null(strstr(err.msg, "another writer"));
	assert_false(sl_err_retryable(&err));
	assert_int_equal(sl_catalog_lease_check(o->lease, &err), SL_ESTALE);
	assert_int_equal(sl_catalog_define(o->c, o->lease, &d, &err), SL_ESTALE);
	assert_int_equal(look(o->c).events, 1);
	assert_int_equal(catalog_place_number(&place, "SELECT count(*) FROM sluice_partition"), 1);
	assert_int_equal(catalog_place_number(&place, "SELECT count(*) FROM sluice_audit_event"), 1);
	/* Giving it back does not take it from the other. */
	sl_catalog_lease_release(o->lease);
	o->lease = NULL;
	assert_string_equal(look(o->c).holder != NULL ? "held" : "free", "held");
}

/* The thread sanitizer does not let a forked child start threads, and on PostgreSQL a lease has one. */
#if defined(__SANITIZE_THREAD__)
#define WITHOUT_FORK
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITHOUT_FORK
#endif
#endif

#ifndef WITHOUT_FORK
static _Noreturn void hold_until_killed(int told)
{
	struct sl_err err = SL_ERR_INIT;
	sl_catalog *c = catalog_place_open(&place, NULL);
	sl_catalog_lease *lease = NULL;
	struct sl_catalog_lease_opts opts = {SL_CATALOG_LEASE_OPTS_INIT, .holder = "the first process"};
	char answer = sl_catalog_lease_acquire(c, "p", &opts, &lease, &err) == 0 ? 'y' : 'n';
	ssize_t n = write(told, &answer, 1);
	(void)n;
	for (;;)
		(void)pause();
}

static void a_killed_process_leaves_no_lease_behind_for_long(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	sl_catalog_lease *lease = NULL;
	int told[2];
	char answer = 0;
	assert_int_equal(pipe(told), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		hold_until_killed(told[1]);
	(void)close(told[1]); /* a child that dies is heard */
	assert_int_equal(read(told[0], &answer, 1), 1);
	assert_int_equal(answer, 'y');
	assert_int_equal(sl_catalog_lease_acquire(o->c, "p", NULL, &lease, &err), SL_ELOCKED);
	assert_non_null(strstr(err.msg, "the first process"));
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	/* Where leases expire, let the time pass. */
	if (place.server != NULL) {
		assert_int_equal(sl_catalog_lease_acquire(o->c, "p", NULL, &lease, &err), SL_ELOCKED);
		catalog_place_exec(&place, "UPDATE sluice_dataset SET lease_until_ms=lease_until_ms-30000");
	}
	assert_int_equal(sl_catalog_lease_acquire(o->c, "p", NULL, &lease, &err), 0);
	assert_int_equal(sl_catalog_lease_fence(lease), 2);
	sl_catalog_lease_release(lease);
	(void)close(told[0]);
}
#endif

static void a_lease_that_can_expire_is_renewed(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	sl_catalog_lease *lease = NULL;
	struct sl_catalog_lease_opts opts = {SL_CATALOG_LEASE_OPTS_INIT, .ttl_ms = 1000};
	static const char until[] = "SELECT lease_until_ms FROM sluice_dataset WHERE name='r'";
	assert_int_equal(sl_catalog_lease_acquire(o->c, "r", &opts, &lease, &err), 0);
	long long first = catalog_place_number(&place, until);
	while (catalog_place_number(&place, until) == first)
		assert_int_equal(sl_catalog_lease_check(lease, &err), 0);
	assert_true(catalog_place_number(&place, until) > first);
	/* And its thread is the first to learn that it was lost. */
	catalog_place_exec(&place, "UPDATE sluice_dataset SET fence=fence+1,holder='a thief' WHERE name='r'");
	while (sl_catalog_lease_check(lease, &err) == 0)
		;
	assert_int_equal(err.code, SL_ESTALE);
	assert_non_null(strstr(err.msg, "a thief"));
	sl_catalog_lease_release(lease);
}

/* ---- opening ---- */

static void names_and_urls_that_cannot_be_are_refused(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	sl_catalog_lease *lease = NULL;
	sl_catalog *c = NULL;
	assert_int_equal(sl_catalog_lease_acquire(o->c, "../x", NULL, &lease, &err), SL_EINVAL);
	assert_int_equal(sl_catalog_lease_acquire(o->c, "_x", NULL, &lease, &err), SL_EINVAL);
	assert_int_equal(sl_catalog_open(&c, "mysql://secret@host/", NULL, &err), SL_EINVAL);
	assert_null(strstr(err.msg, "secret"));
	assert_int_equal(sl_catalog_open(&c, "sqlite:", NULL, &err), SL_EINVAL);
	assert_int_equal(sl_catalog_open(&c, "sqlite://host/x", NULL, &err), SL_EINVAL);
	struct sl_catalog_opts opts = {SL_CATALOG_OPTS_INIT, .create = SL_OFF, .schema = "nothing_here"};
	char missing[600];
	(void)snprintf(missing, sizeof(missing), "%s%s", place.url, place.server == NULL ? ".not" : "");
	assert_int_equal(sl_catalog_open(&c, missing, &opts, &err), SL_EUNAVAIL);
}

static void options_out_of_range_are_refused_by_name(void **state)
{
	static const struct {
		struct sl_catalog_opts opts;
		const char *name; /* NULL: they are right */
	} cases[] = {
		{{SL_CATALOG_OPTS_INIT, .busy_ms = -5}, "busy_ms"},
		{{SL_CATALOG_OPTS_INIT, .connect_timeout_ms = -5}, "connect_timeout_ms"},
		{{SL_CATALOG_OPTS_INIT, .statement_timeout_ms = -5}, "statement_timeout_ms"},
		{{SL_CATALOG_OPTS_INIT, .busy_ms = SL_UNLIMITED, .statement_timeout_ms = SL_UNLIMITED}, NULL},
	};
	(void)state;
	for (size_t i = 0; i < SL_COUNT(cases); i++) {
		struct sl_err err = SL_ERR_INIT;
		struct sl_catalog_opts opts = cases[i].opts;
		sl_catalog *c = NULL;
		opts.schema = place.server != NULL ? "options" : NULL;
		int rc = sl_catalog_open(&c, place.url, &opts, &err);
		assert_int_equal(rc, cases[i].name != NULL ? SL_EINVAL : 0);
		assert_true(cases[i].name == NULL || strstr(err.msg, cases[i].name) == err.msg);
		sl_catalog_close(c);
	}
	sl_catalog *c = NULL;
	assert_int_equal(sl_catalog_open(&c, NULL, NULL, NULL), SL_EINVAL);
	assert_int_equal(sl_catalog_open(NULL, place.url, NULL, NULL), SL_EINVAL);
}

/* sqlite:FILE, sqlite:///FILE and sqlite:~/FILE. */
static void every_form_of_a_file_s_url_names_that_file(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	char url[600], path[600], home[256];
	(void)state;
	const char *before = getenv("HOME");
	(void)snprintf(home, sizeof(home), "%s", before != NULL ? before : "");
	assert_int_equal(setenv("HOME", place.dir, 1), 0);
	static const char *const names[] = {"a.db", "b.db", "c.db"};
	for (size_t i = 0; i < SL_COUNT(names); i++) {
		sl_catalog *c = NULL;
		(void)snprintf(url, sizeof(url), "sqlite:%s%s/%s", i == 1 ? "//" : "", i == 2 ? "~" : place.dir,
			       names[i]);
		(void)snprintf(path, sizeof(path), "%s/%s", place.dir, names[i]);
		if (sl_catalog_open(&c, url, NULL, &err) != 0)
			fail_msg("%s: %s", url, err.msg);
		sl_catalog_close(c);
		assert_int_equal(access(path, F_OK), 0);
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(setenv("HOME", home, 1), 0);
}

static void a_catalog_of_a_later_version_is_left_alone(void **state)
{
	struct sl_err err = SL_ERR_INIT;
	sl_catalog *c = NULL;
	(void)state;
	catalog_place_exec(&place, "INSERT INTO sluice_catalog VALUES(99)");
	assert_int_equal(catalog_place_try(&place, NULL, &c, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.msg, "99"));
}

static void processes_that_make_the_catalog_at_once_all_succeed(void **state)
{
	enum { PROCESSES = 6 };
	pid_t children[PROCESSES];
	int go[2], failures = 0;
	(void)state;
	if (place.server != NULL)
		(void)snprintf(place.schema, sizeof(place.schema), "fresh%d", place.n);
	else
		(void)snprintf(place.url, sizeof(place.url), "sqlite:%s/new/_catalog.db", place.dir);
	assert_int_equal(pipe(go), 0);
	for (int i = 0; i < PROCESSES; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			char byte;
			sl_catalog *c = NULL;
			struct sl_err err = SL_ERR_INIT;
			(void)close(go[1]);
			ssize_t n = read(go[0], &byte, 1); /* the end of the pipe is the start */
			int rc = catalog_place_try(&place, NULL, &c, &err);
			if (rc != 0)
				(void)fprintf(stderr, "# %s\n", err.msg);
			_exit(rc == 0 && n == 0 ? 0 : 1);
		}
	}
	(void)close(go[0]);
	(void)close(go[1]);
	for (int i = 0; i < PROCESSES; i++) {
		int status;
		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		failures += status != 0;
	}
	assert_int_equal(failures, 0);
}

static void a_forked_child_cannot_use_the_catalog(void **state)
{
	struct opened *o = *state;
	int status;
	pid_t child = fork();
	if (child == 0) {
		struct sl_err err = SL_ERR_INIT;
		int rc = catalog_commit(o->c, o->lease, 100, 199, NULL, &err);
		sl_catalog_lease_release(o->lease);
		sl_catalog_close(o->c);
		_exit(rc == SL_EFORKED ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* ---- trouble ---- */

static int all_of_it(const struct sl_env *env, struct sl_err *err)
{
	sl_catalog *c = NULL;
	sl_catalog_lease *lease = NULL;
	struct walk walk = {.n = 0};
	struct sl_dataset d = {
		.struct_size = sizeof(d), .partition_size = 100, .sequence_column = "seq", .schema = "{}"};
	int rc = catalog_place_try(&place, env, &c, err);
	if (rc != 0)
		return rc;
	rc = sl_catalog_lease_acquire(c, "faults", NULL, &lease, err);
	rc = rc != 0 ? rc : sl_catalog_define(c, lease, &d, err);
	if (rc == 0) {
		char path[256];
		struct sl_catalog_partition p = catalog_partition("faults", 100, 199, 100, path);
		rc = sl_catalog_commit(c, lease, &p, NULL, err);
	}
	rc = rc != 0 ? rc : sl_catalog_events(c, "faults", 0, 0, check_event, &walk, err);
	rc = rc != 0 ? rc : sl_catalog_datasets(c, NULL, copy_dataset, &d, err);
	sl_catalog_lease_release(lease);
	sl_catalog_close(c);
	return rc;
}

static void every_allocation_that_fails_is_an_error_and_no_leak(void **state)
{
	struct fault f;
	int64_t n;
	(void)state;
	fault_init(&f, NULL);
	struct sl_env env = fault_env(&f, NULL);
	for (n = 1;; n++) {
		struct sl_err err = SL_ERR_INIT;
		/* A lease that could not be released for lack of memory has to expire. */
		if (place.server != NULL)
			catalog_place_exec(&place, "UPDATE sluice_dataset SET lease_until_ms=0 WHERE name='faults'");
		fault_arm_mem(&f, n, FAULT_ONCE);
		int rc = all_of_it(&env, &err);
		fault_disarm(&f);
		bool injected = fault_mem_failed(&f) != 0;
		assert_int_equal(fault_live_allocs(&f), 0);
		assert_true(rc == 0 || (injected && err.code == rc && err.msg[0] != '\0'));
		if (!injected)
			break;
	}
	printf("# %ld allocations failed in turn\n", (long)(n - 1));
	assert_true(n > 5);
	assert_int_equal(catalog_place_number(&place, "SELECT count(*) FROM sluice_partition WHERE dataset='faults'"),
			 1);
	fault_fini(&f);
}

/* What the transaction of a commit runs under, as a trigger sees it. */
static void a_commit_waits_for_the_disk(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	catalog_place_exec(&place, "CREATE TABLE seen(sync text)");
	catalog_place_exec(&place, "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen"
				   " VALUES(current_setting('synchronous_commit')); RETURN NEW; END $$");
	catalog_place_exec(&place, "CREATE TRIGGER see AFTER INSERT ON sluice_partition FOR EACH ROW EXECUTE FUNCTION"
				   " see()");
	assert_int_equal(catalog_commit(o->c, o->lease, 100, 199, NULL, &err), 0);
	assert_int_equal(catalog_place_number(&place, "SELECT count(*) FROM seen WHERE sync='on'"), 1);
}

static void *commit_in_thread(void *ctx)
{
	struct opened *o = ctx;
	struct sl_err err = SL_ERR_INIT;
	return (void *)(intptr_t)catalog_commit(o->c, o->lease, 200, 299, NULL, &err);
}

/* The lease is taken in the very moment of a commit: it waits, and finds that it is not the holder any more. */
static void a_commit_that_meets_a_taker_of_its_lease_writes_nothing(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	pthread_t thread;
	void *rc = NULL;
	assert_int_equal(catalog_commit(o->c, o->lease, 100, 199, NULL, &err), 0);
	catalog_place_exec(&place, "BEGIN");
	catalog_place_exec(&place, "UPDATE sluice_dataset SET fence=fence+1,holder='a thief' WHERE name='d'");
	assert_int_equal(pthread_create(&thread, NULL, commit_in_thread, o), 0);
	while (catalog_place_number(&place, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 0)
		(void)sched_yield();
	catalog_place_exec(&place, "COMMIT");
	assert_int_equal(pthread_join(thread, &rc), 0);
	assert_int_equal((intptr_t)rc, SL_ESTALE);
	assert_int_equal(catalog_place_number(&place, "SELECT count(*) FROM sluice_partition"), 1);
	assert_int_equal(catalog_place_number(&place, "SELECT count(*) FROM sluice_audit_event"), 1);
}

static void an_unavailable_database_is_a_retryable_error_until_it_is_back(void **state)
{
	struct opened *o = *state;
	struct sl_err err = SL_ERR_INIT;
	assert_int_equal(catalog_commit(o->c, o->lease, 100, 199, NULL, &err), 0);
	assert_int_equal(pg_temp_command(place.server, "stop"), 0);
	assert_int_equal(catalog_commit(o->c, o->lease, 200, 299, NULL, &err), SL_EUNAVAIL);
	assert_true(sl_err_retryable(&err));
	assert_int_equal(pg_temp_command(place.server, "start"), 0);
	PQfinish(place.admin);
	place.admin = pg_temp_connect(place.server);
	char sql[128];
	(void)snprintf(sql, sizeof(sql), "SET client_min_messages=error; SET search_path = %s", place.schema);
	assert_int_equal(pg_temp_exec(place.admin, sql), 0);
	int rc = catalog_commit(o->c, o->lease, 200, 299, NULL, &err);
	for (int i = 0; i < 10 && rc == SL_EUNAVAIL; i++) /* connections that the pool still had */
		rc = catalog_commit(o->c, o->lease, 200, 299, NULL, &err);
	assert_int_equal(rc, 0);
	assert_int_equal(look(o->c).checkpoint, 299);
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_commit_is_row_event_and_checkpoint_together),
		T(committing_again_changes_nothing),
		T(other_contents_for_a_committed_range_are_a_conflict),
		T(a_commit_whose_event_cannot_be_written_leaves_nothing),
		T(what_does_not_continue_the_dataset_is_refused),
		T(a_backfill_fills_what_is_missing_and_nothing_else),
		T(late_rows_lie_in_a_hole_and_overlap_nothing_else_that_is_late),
		T(a_definition_can_change_until_something_is_committed),
		T(many_rows_come_in_pages_and_in_order),
		T(a_callback_can_stop_a_walk_and_use_the_catalog),
		T(a_lease_that_is_held_is_refused_and_its_holder_named),
		T(a_holder_that_was_overtaken_cannot_write_any_more),
#ifndef WITHOUT_FORK
		T(a_killed_process_leaves_no_lease_behind_for_long),
#endif
		T(names_and_urls_that_cannot_be_are_refused),
		T(options_out_of_range_are_refused_by_name),
		T(every_form_of_a_file_s_url_names_that_file),
		T(a_catalog_of_a_later_version_is_left_alone),
		T(processes_that_make_the_catalog_at_once_all_succeed),
		T(a_forked_child_cannot_use_the_catalog),
		T(every_allocation_that_fails_is_an_error_and_no_leak),
		/* Only where there is a server: leases expire, others can be in the way, and it can go away. */
		T(a_lease_that_can_expire_is_renewed),
		T(a_commit_waits_for_the_disk),
		T(a_commit_that_meets_a_taker_of_its_lease_writes_nothing),
		T(an_unavailable_database_is_a_retryable_error_until_it_is_back),
	};
	int rc = catalog_place_start(&place, argc, argv);
	if (rc != 0)
		return rc;
	size_t n = SL_COUNT(tests) - (place.server != NULL ? 0 : 4);
	rc = _cmocka_run_group_tests("catalog", tests, n, NULL, NULL);
	catalog_place_stop(&place);
	return rc;
}
