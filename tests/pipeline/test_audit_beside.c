/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verification next to an export that continues: before every single call that a verification makes of the file system and
 * of memory, one after the other, the export takes some of its steps. Whatever they are and whenever they come, nothing
 * is wrong with the dataset, and verification says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/env.h"
#include "pipeline/audit_dataset.h"

#define PARTITIONS 2
#define PENDING 2 /* the number of the one that is committed, and not delivered */

static struct catalog_place place;

/* ---- the export ---- */

static struct {
	sl_catalog *catalog;
	sl_catalog_lease *lease;
	uint64_t next;      /* partition */
	const char *steps;  /* c: store and commit one; b: the same below the start; d: deliver; h: keep a head */
	int64_t at;         /* the call before which they are taken */
	atomic_llong calls; /* so far */
	bool taken;
} writer;

static void open_writer(void)
{
	struct sl_err err = SL_ERR_INIT;
	writer.catalog = catalog_place_open(&place, NULL);
	assert_int_equal(sl_catalog_lease_acquire(writer.catalog, "d", NULL, &writer.lease, &err), 0);
}

static void close_writer(void)
{
	sl_catalog_lease_release(writer.lease);
	sl_catalog_close(writer.catalog);
	writer.lease = NULL;
	writer.catalog = NULL;
}

static void take_steps(void)
{
	static const struct audit_rows below = {.backfill = true};
	if (writer.catalog == NULL) {
		open_writer();
		audit_dataset_define(writer.catalog, writer.lease);
	}
	for (const char *step = writer.steps; *step != '\0'; step++)
		if (*step == 'c')
			audit_dataset_put(&place, writer.catalog, writer.lease, writer.next++, NULL);
		else if (*step == 'b')
			audit_dataset_put(&place, writer.catalog, writer.lease, (uint64_t)-1, &below);
		else if (*step == 'd')
			audit_dataset_deliver(&place, writer.catalog, writer.lease);
		else
			audit_dataset_head(&place, "head", 1);
}

/* ---- a verification that is looked over its shoulder ---- */

static void before_call(void)
{
	if (atomic_fetch_add(&writer.calls, 1) + 1 != writer.at)
		return;
	take_steps();
	writer.taken = true;
}

static void *w_alloc(size_t size, void *ctx)
{
	before_call();
	return sl__mem_real.alloc(size, ctx);
}

static void *w_resize(void *p, size_t size, void *ctx)
{
	before_call();
	return sl__mem_real.resize(p, size, ctx);
}

static void w_release(void *p, void *ctx)
{
	sl__mem_real.release(p, ctx);
	before_call();
}

static int w_open(const char *path, int flags, uint32_t mode, void *ctx)
{
	before_call();
	return sl__io_real.open(path, flags, mode, ctx);
}

static ssize_t w_pread(int fd, void *buf, size_t n, uint64_t offset, void *ctx)
{
	before_call();
	return sl__io_real.pread(fd, buf, n, offset, ctx);
}

static int w_stat(const char *path, struct sl_io_stat *out, void *ctx)
{
	before_call();
	return sl__io_real.stat(path, out, ctx);
}

static int w_list(const char *path, int (*each)(const char *name, void *each_ctx), void *each_ctx, void *ctx)
{
	before_call();
	return sl__io_real.list(path, each, each_ctx, ctx);
}

static const struct sl_mem watched_mem = {
	.version = SL_MEM_VERSION, .alloc = w_alloc, .resize = w_resize, .release = w_release};

static int tell_fault(const struct sl_audit_finding *f, void *ctx)
{
	(void)ctx;
	if (f->fault >= SL_AUDIT_MISSING)
		fail_msg("\"%s\" before call %lld: %s: %s", writer.steps, (long long)writer.at, f->path, f->text);
	return 0;
}

static int verify_watched(bool with_head, struct sl_audit_result *r, struct sl_err *err)
{
	char head[512];
	struct sl_io io = sl__io_real;
	io.open = w_open;
	io.pread = w_pread;
	io.stat = w_stat;
	io.list = w_list;
	const struct sl_env env = {SL_ENV_INIT, .mem = &watched_mem, .io = &io};
	(void)snprintf(head, sizeof(head), "%s/head", place.dir);
	const struct sl_audit_verify_opts opts = {SL_AUDIT_VERIFY_OPTS_INIT,
						  .env = &env,
						  .threads = 1,
						  .all = SL_ON,
						  .checkpoint = with_head ? head : NULL,
						  .catalog = place.server != NULL ? place.url : NULL,
						  .on_finding = tell_fault};
	*r = (struct sl_audit_result){.struct_size = sizeof(*r)};
	atomic_store(&writer.calls, 0);
	writer.taken = false;
	int rc = sl_audit_verify(place.dir, "d", &opts, r, err);
	writer.at = 0; /* what is called from now on is not its */
	return rc;
}

/* ---- tests ---- */

static void set_up(void)
{
	catalog_place_set_up(&place);
	if (place.server != NULL) /* verification looks where exports put it */
		(void)snprintf(place.schema, sizeof(place.schema), "sluice");
}

/* The steps before call `at`. false: there was no such call. */
static bool continue_before_call(const char *steps, int64_t at)
{
	struct sl_audit_result r;
	struct sl_err err = SL_ERR_INIT;
	set_up();
	audit_dataset_make(&place, PARTITIONS);
	open_writer();
	audit_dataset_put(&place, writer.catalog, writer.lease, PENDING, NULL);
	writer.next = PENDING + 1;
	writer.steps = steps;
	writer.at = at;
	int rc = verify_watched(true, &r, &err);
	if (rc != 0)
		fail_msg("\"%s\" before call %lld: %s", steps, (long long)at, err.msg);
	assert_int_equal(r.findings, 0);
	assert_true(r.events >= PENDING + 1);
	assert_true(r.catalog_checked && r.head_checked);
	close_writer();
	catalog_place_tear_down(&place);
	return writer.taken;
}

static void an_export_may_continue_at_any_moment(void **state)
{
	static const char *const all_steps[] = {"c", "d", "cd", "dcdh", "bd", "dc"};
	long long tried = 0;
	(void)state;
	/* A server makes a schema more slowly than a folder is made: each kind of steps comes before other calls. */
	const int64_t stride = place.server != NULL ? SL_COUNT(all_steps) : 1;
	for (size_t i = 0; i < SL_COUNT(all_steps); i++)
		for (int64_t at = 1 + (int64_t)i % stride; continue_before_call(all_steps[i], at); at += stride)
			tried++;
	print_message("# %lld times\n", tried);
	assert_true(tried > 200 / stride);
}

/* The first one: its catalog, its folder, its files come while they are looked for. */
static void an_export_may_begin_at_any_moment(void **state)
{
	int64_t at = 1;
	(void)state;
	writer.catalog = NULL;
	for (bool taken = true; taken; at++) {
		struct sl_audit_result r;
		struct sl_err err = SL_ERR_INIT;
		set_up();
		writer.next = 0;
		writer.steps = "cdc";
		writer.at = at;
		int rc = verify_watched(false, &r, &err);
		if (rc != 0 && rc != SL_ENOENT && rc != SL_EUNAVAIL)
			fail_msg("before call %lld: %s", (long long)at, err.msg);
		assert_int_equal(r.findings, 0);
		taken = writer.taken;
		close_writer();
		catalog_place_tear_down(&place);
	}
	print_message("# %lld times\n", (long long)at - 2);
	assert_true(at > 4);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_export_may_continue_at_any_moment),
		cmocka_unit_test(an_export_may_begin_at_any_moment),
	};
	int rc = catalog_place_start(&place, argc, argv);
	if (rc != 0)
		return rc;
	rc = cmocka_run_group_tests_name("audit verify beside an export", tests, NULL, NULL);
	catalog_place_stop(&place);
	return rc;
}
