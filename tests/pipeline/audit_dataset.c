/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/audit_dataset.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/sha256.h"
#include "pipeline/partition.h"
#include <sluice/parquet.h>

char *audit_read(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	char *data = malloc(1 << 20);
	assert_non_null(data);
	*n = fread(data, 1, 1 << 20, f);
	(void)fclose(f);
	return data;
}

void audit_write(const char *path, const void *data, size_t n)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

void audit_dataset_file(const struct catalog_place *place, uint64_t index, char out[512])
{
	char name[SL__PARTITION_NAME_BYTES];
	uint64_t start = 100 + index * AUDIT_SIZE;
	sl__partition_name(start, start + AUDIT_SIZE - 1, AUDIT_SIZE, false, name);
	(void)snprintf(out, 512, "%s/d/%s", place->dir, name);
}

void audit_dataset_events(const struct catalog_place *place, char out[512])
{
	(void)snprintf(out, 512, "%s/d/_audit/events-00000000000000000001.jsonl", place->dir);
}

struct bytes {
	char data[65536];
	size_t n;
};

static int take_bytes(const void *bytes, size_t n, struct sl_err *err, void *ctx)
{
	struct bytes *b = ctx;
	(void)err;
	assert_true(b->n + n <= sizeof(b->data));
	memcpy(b->data + b->n, bytes, n);
	b->n += n;
	return 0;
}

static void build(struct bytes *b, const int64_t *sequences, size_t n, const struct audit_rows *rows)
{
	static const char text[] = "some text";
	struct sl_err err = SL_ERR_INIT;
	struct sl_parquet_column columns[] = {{.name = rows->column != NULL ? rows->column : "seq",
					       .kind = SL_PARQUET_INT64,
					       .nullable = rows->null_at > 0},
					      {.name = "text", .kind = SL_PARQUET_STRING, .nullable = true}};
	struct sl_parquet_writer_opts opts = {SL_PARQUET_WRITER_OPTS_INIT, .row_group_rows = rows->group_rows};
	struct sl_parquet_bytes texts[64];
	uint8_t nulls[64] = {0};
	sl_parquet_writer *w = NULL;
	assert_true(n <= 64);
	for (size_t i = 0; i < n; i++)
		texts[i] = (struct sl_parquet_bytes){text, (uint32_t)(i % sizeof(text))};
	if (rows->null_at > 0)
		nulls[rows->null_at - 1] = 1;
	struct sl_parquet_values values[] = {{.values = sequences, .nulls = rows->null_at > 0 ? nulls : NULL},
					     {.values = texts}};
	b->n = 0;
	assert_int_equal(sl_parquet_writer_new(&w, columns, 2, &opts, take_bytes, b, &err), 0);
	if (n > 0)
		assert_int_equal(sl_parquet_writer_put(w, values, n, &err), 0);
	assert_int_equal(sl_parquet_writer_finish(w, &err), 0);
	sl_parquet_writer_free(w);
}

void audit_dataset_put(struct catalog_place *place, sl_catalog *c, sl_catalog_lease *lease, uint64_t index,
		       const struct audit_rows *rows)
{
	static struct bytes b;
	static const struct audit_rows as_it_should_be;
	struct sl_err err = SL_ERR_INIT;
	int64_t right[AUDIT_SIZE];
	uint64_t start = 100 + index * AUDIT_SIZE;
	char path[512], folder[512];
	rows = rows != NULL ? rows : &as_it_should_be;
	for (size_t i = 0; i < AUDIT_SIZE; i++)
		right[i] = (int64_t)(start + i);
	size_t n = rows->sequences != NULL ? rows->n : AUDIT_SIZE;
	build(&b, rows->sequences != NULL ? rows->sequences : right, n, rows);
	audit_dataset_file(place, index, path);
	(void)snprintf(folder, sizeof(folder), "%s/d", place->dir);
	(void)mkdir(folder, 0700);
	(void)snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(path, '/') - path), path);
	(void)mkdir(folder, 0700);
	audit_write(path, b.data, b.n);
	struct sl_catalog_partition p = {.struct_size = sizeof(p),
					 .type = rows->backfill ? SL_AUDIT_BACKFILL : SL_AUDIT_PARTITION,
					 .start = start,
					 .end = start + AUDIT_SIZE - 1,
					 .rows = rows->said_rows != 0 ? rows->said_rows : n,
					 .bytes = b.n,
					 .path = path + strlen(place->dir) + 1};
	p.holes = rows->n_holes;
	p.hole_ranges = rows->holes;
	p.bad_rows = AUDIT_SIZE - p.rows - p.holes;
	assert_int_equal(sl__sha256(b.data, b.n, p.sha256, NULL), 0);
	int rc = sl_catalog_commit(c, lease, &p, NULL, &err);
	if (rc != 0)
		fail_msg("%s", err.msg);
}

void audit_dataset_define(sl_catalog *c, sl_catalog_lease *lease)
{
	struct sl_err err = SL_ERR_INIT;
	struct sl_dataset d = {.struct_size = sizeof(d),
			       .partition_size = AUDIT_SIZE,
			       .sequence_column = "seq",
			       .schema = "{\"seq\":\"int64\",\"text\":\"string\"}"};
	assert_int_equal(sl_catalog_define(c, lease, &d, &err), 0);
}

void audit_dataset_deliver(struct catalog_place *place, sl_catalog *c, sl_catalog_lease *lease)
{
	struct sl_outbox_opts opts = {SL_OUTBOX_OPTS_INIT, .dir = place->dir};
	struct sl_err err = SL_ERR_INIT;
	sl_outbox *o = NULL;
	assert_int_equal(sl_outbox_start(c, lease, &opts, &o, &err), 0);
	assert_int_equal(sl_outbox_drain(o, SL_NONE, &err), 0);
	sl_outbox_stop(o);
}

void audit_dataset_head(struct catalog_place *place, const char *name, int with_key)
{
	struct sl_audit_head h;
	struct sl_err err = SL_ERR_INIT;
	char text[SL_AUDIT_HEAD_BYTES], path[512];
	size_t len;
	assert_int_equal(sl_audit_head_read(place->dir, "d", NULL, &h, &err), 0);
	(void)snprintf(path, sizeof(path), "%s/key", place->dir);
	if (with_key)
		assert_int_equal(sl_audit_head_sign(&h, path, NULL, &err), 0);
	assert_int_equal(sl_audit_head_format(&h, text, &len, &err), 0);
	(void)snprintf(path, sizeof(path), "%s/%s", place->dir, name);
	audit_write(path, text, len);
}

void audit_dataset_make(struct catalog_place *place, uint64_t n)
{
	struct sl_err err = SL_ERR_INIT;
	uint8_t key[SL_AUDIT_PUBLIC_KEY_BYTES];
	char path[512];
	sl_catalog *c = catalog_place_open(place, NULL);
	sl_catalog_lease *lease = NULL;
	assert_int_equal(sl_catalog_lease_acquire(c, "d", NULL, &lease, &err), 0);
	audit_dataset_define(c, lease);
	for (uint64_t i = 0; i < n; i++)
		audit_dataset_put(place, c, lease, i, NULL);
	audit_dataset_deliver(place, c, lease);
	sl_catalog_lease_release(lease);
	sl_catalog_close(c);
	(void)snprintf(path, sizeof(path), "%s/key", place->dir);
	assert_int_equal(sl_audit_keygen(path, NULL, key, &err), 0);
	audit_dataset_head(place, "head", 1);
}
