/* SPDX-License-Identifier: Apache-2.0 */
#include "export_place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <ftw.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void place_open(struct place *p)
{
	const char *base =
		access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* many syncs: in memory they are free */
	(void)snprintf(p->dir, sizeof(p->dir), "%s/sl-export-XXXXXX", base);
	assert_non_null(mkdtemp(p->dir));
	(void)snprintf(p->to, sizeof(p->to), "%s/out", p->dir);
	p->input[0] = '\0';
}

void place_close(struct place *p)
{
	(void)nftw(p->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void place_clear(struct place *p)
{
	(void)nftw(p->to, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void place_write(struct place *p, const char *name, const char *text, size_t n)
{
	(void)snprintf(p->input, sizeof(p->input), "%s/%s", p->dir, name);
	FILE *f = fopen(p->input, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

void place_append(struct place *p, const char *text)
{
	FILE *f = fopen(p->input, "a");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* ---- rows ---- */

char *rows_csv(uint64_t first, uint64_t last)
{
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	fprintf(f, "n,name,amount,at\n");
	for (uint64_t i = first; i <= last; i++)
		fprintf(f, "%" PRIu64 ",name %" PRIu64 ",%" PRIu64 ".5,2024-01-01T00:%02d:%02dZ\n", i, i * 7919 % 1000,
			i * 31, (int)(i / 60 % 60), (int)(i % 60));
	fclose(f);
	return text;
}

char *rows_json(uint64_t first, uint64_t last)
{
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	for (uint64_t i = first; i <= last; i++)
		fprintf(f,
			"{\"n\":%" PRIu64 ",\"name\":\"name %" PRIu64 "\",\"amount\":%" PRIu64
			".5,\"at\":\"2024-01-01T00:%02d:%02dZ\"}\n",
			i, i * 7919 % 1000, i * 31, (int)(i / 60 % 60), (int)(i % 60));
	fclose(f);
	return text;
}

/* ---- exporting ---- */

struct sl_export_opts place_opts(const struct place *p, int64_t partition_size)
{
	return (struct sl_export_opts){SL_EXPORT_OPTS_INIT,
				       .from = p->input,
				       .to = p->to,
				       .dataset = "ledger",
				       .partition_size = partition_size,
				       .perf = {.workers = 2, .retry_backoff_ms = 1}};
}

int place_run(const struct sl_export_opts *opts, struct sl_export_result *result, struct sl_err *err)
{
	sl_export *e;
	int rc = sl_export_new(&e, opts, err);
	if (rc != 0)
		return rc;
	*result = (struct sl_export_result){.struct_size = sizeof(*result)};
	rc = sl_export_run(e, result, err);
	sl_export_free(e);
	return rc;
}

/* ---- looking ---- */

static char *read_all(const char *path, size_t *n)
{
	FILE *f = fopen(path, "r");
	struct stat st;
	assert_non_null(f);
	assert_int_equal(fstat(fileno(f), &st), 0);
	char *data = malloc((size_t)st.st_size + 1);
	*n = fread(data, 1, (size_t)st.st_size, f);
	assert_int_equal(*n, st.st_size);
	fclose(f);
	return data;
}

static void show_file(FILE *out, const char *path, const char *name)
{
	uint8_t digest[SL__SHA256_BYTES];
	char hex[SL__SHA256_HEX];
	size_t n;
	char *data = read_all(path, &n);
	assert_int_equal(sl__sha256(data, n, digest, NULL), 0);
	sl__sha256_hex(digest, hex);
	fprintf(out, "%s %zu %s\n", name, n, hex);
	free(data);
}

static void show_folder(FILE *out, const char *folder, const char *name)
{
	struct dirent **entries;
	int n = scandir(folder, &entries, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		char path[600], inner[600];
		struct stat st;
		const char *entry = entries[i]->d_name;
		(void)snprintf(path, sizeof(path), "%s/%s", folder, entry);
		(void)snprintf(inner, sizeof(inner), "%s/%s", name, entry);
		if (strcmp(entry, ".") != 0 && strcmp(entry, "..") != 0 && stat(path, &st) == 0) {
			if (S_ISDIR(st.st_mode))
				show_folder(out, path, inner);
			else
				show_file(out, path, inner);
		}
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
}

static int show_partition(const struct sl_catalog_partition *p, void *ctx)
{
	char hex[SL__SHA256_HEX];
	sl__sha256_hex(p->sha256, hex);
	fprintf(ctx, "partition %d %" PRIu64 "-%" PRIu64 " rows %" PRIu64 " bad %" PRIu64 " bytes %" PRIu64 " %s %s\n",
		p->type, p->start, p->end, p->rows, p->bad_rows, p->bytes, hex, p->path);
	return 0;
}

static int show_event(uint64_t number, const char *event, size_t len, void *ctx)
{
	fprintf(ctx, "event %" PRIu64 " %.*s\n", number, (int)len, event);
	return 0;
}

static sl_catalog *catalog_of(const struct place *p)
{
	const struct sl_catalog_opts opts = {SL_CATALOG_OPTS_INIT, .create = SL_OFF};
	char url[160];
	sl_catalog *c;
	(void)snprintf(url, sizeof(url), "sqlite:%s/_catalog.db", p->to);
	assert_int_equal(sl_catalog_open(&c, url, &opts, NULL), 0);
	return c;
}

char *place_show(const struct place *p)
{
	char *text = NULL, folder[128];
	size_t n;
	FILE *out = open_memstream(&text, &n);
	(void)snprintf(folder, sizeof(folder), "%s/ledger", p->to);
	show_folder(out, folder, "ledger");
	sl_catalog *c = catalog_of(p);
	assert_int_equal(sl_catalog_partitions(c, "ledger", 0, 0, show_partition, out, NULL), 0);
	assert_int_equal(sl_catalog_events(c, "ledger", 0, 0, show_event, out, NULL), 0);
	sl_catalog_close(c);
	fclose(out);
	return text;
}

struct rows_of {
	const struct place *p;
	FILE *out;
};

static void show_value(FILE *out, const struct sl_parquet_column *c, const struct sl_parquet_values *v, size_t row)
{
	if (v->nulls != NULL && v->nulls[row]) {
		fprintf(out, "NULL");
	} else if (c->kind == SL_PARQUET_STRING) {
		const struct sl_parquet_bytes *s = v->values;
		fprintf(out, "%.*s", (int)s[row].len, s[row].data);
	} else if (c->kind == SL_PARQUET_DOUBLE) {
		fprintf(out, "%.17g", ((const double *)v->values)[row]);
	} else if (c->kind == SL_PARQUET_BOOL) {
		fprintf(out, "%s", ((const uint8_t *)v->values)[row] ? "true" : "false");
	} else if (c->kind == SL_PARQUET_INT32 || c->kind == SL_PARQUET_DATE) {
		fprintf(out, "%" PRId32, ((const int32_t *)v->values)[row]);
	} else {
		fprintf(out, "%" PRId64, ((const int64_t *)v->values)[row]);
	}
}

static void show_group(FILE *out, sl_parquet_reader *r, const struct sl_parquet_info *info, size_t group)
{
	struct sl_parquet_values values[16];
	struct sl_parquet_chunk chunk = {.struct_size = sizeof(chunk)};
	assert_in_range(info->n_columns, 1, 16);
	assert_int_equal(sl_parquet_reader_get_chunk(r, group, 0, &chunk, NULL), 0);
	for (size_t i = 0; i < info->n_columns; i++)
		assert_int_equal(sl_parquet_reader_read(r, group, i, &values[i], NULL), 0);
	for (size_t row = 0; row < chunk.rows; row++)
		for (size_t i = 0; i < info->n_columns; i++) {
			show_value(out, &info->columns[i], &values[i], row);
			fputc(i + 1 < info->n_columns ? '|' : '\n', out);
		}
}

static int show_rows(const struct sl_catalog_partition *p, void *ctx)
{
	const struct rows_of *rows = ctx;
	sl_parquet_reader *r;
	struct sl_parquet_info info = {.struct_size = sizeof(info)};
	char path[400];
	size_t n;
	(void)snprintf(path, sizeof(path), "%s/%s", rows->p->to, p->path);
	char *data = read_all(path, &n);
	assert_int_equal(sl_parquet_reader_open_memory(&r, data, n, NULL, NULL), 0);
	sl_parquet_reader_get_info(r, &info);
	assert_int_equal(info.rows, p->rows);
	for (size_t g = 0; g < info.row_groups; g++)
		show_group(rows->out, r, &info, g);
	sl_parquet_reader_close(r);
	free(data);
	return 0;
}

char *place_rows(const struct place *p)
{
	char *text = NULL;
	size_t n;
	struct rows_of rows = {.p = p, .out = open_memstream(&text, &n)};
	sl_catalog *c = catalog_of(p);
	assert_int_equal(sl_catalog_partitions(c, "ledger", 0, 0, show_rows, &rows, NULL), 0);
	sl_catalog_close(c);
	fclose(rows.out);
	return text;
}
